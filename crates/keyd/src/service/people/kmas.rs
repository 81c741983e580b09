//! Nodes that are to join: by quorum.

use axum::Json;
use capstan_keys::api::{AddKma, PeerId, PeerKind, Requested};

use super::super::openapi::Paths;
use super::super::registrar::host_of;
use super::peers::new_enrolment;
use super::proposal::Proposal;
use super::{Person, queue};
use crate::authority::Act;
use crate::door::{Input, Refusal};

pub(super) fn routes() -> Paths {
    Paths::new().post("/v1/kmas/add", Act::AddKma, add)
}

async fn add(person: Person, Input(asked): Input<AddKma>) -> Result<Json<Requested>, Refusal> {
    person.permitted(Act::AddKma).await?;
    let host = host_of(&asked.address).filter(|host| !host.is_empty());
    let host =
        host.ok_or_else(|| Refusal::malformed(format!("{:?} is no address: give host and port.", asked.address)))?;
    let peer = PeerId { kind: PeerKind::Kma, name: asked.name.clone() };
    let enrolment = new_enrolment(&person, peer, vec![host])?;
    let AddKma { name, address, site } = asked;
    queue::request(&person, Proposal::AddKma { name, address, site }, Some(enrolment)).await.map(Json)
}
