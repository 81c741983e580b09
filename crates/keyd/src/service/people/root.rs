//! The root key under other holders: by quorum, and by the holders that there are.
//!
//! Two keys turn: the holders' passphrases make the new split, on a machine of theirs and in no node, and the quorum
//! lets it in. What waits for the approval is the sealed root key as it is to be, of which nothing is secret; the
//! request names it by its SHA-256. Once approved it lies at `root`, and each node takes it over onto its own disk.

use axum::Json;
use capstan_keys::api::{Requested, SplitRoot};
use capstan_service::problem::{Input, Refusal};

use super::super::access::NodeRoutes;
use super::proposal::{Proposal, fingerprint};
use super::{Person, queue};
use crate::authority::Act;
use crate::root::{Opens, SealedRoot};

pub(super) fn routes() -> NodeRoutes {
    NodeRoutes::new().post("/v1/root/split", Act::ChangeCredentials, split)
}

async fn split(person: Person, Input(asked): Input<SplitRoot>) -> Result<Json<Requested>, Refusal> {
    person.permitted(Act::ChangeCredentials).await?;
    let bytes = asked.root.0;
    let malformed = |what: String| Refusal::malformed(format!("This is no split of this cluster's root key: {what}."));
    let sealed = SealedRoot::decode(&bytes).map_err(|error| malformed(error.to_string()))?;
    sealed.check_of(person.node.keys(), person.node.epoch()).map_err(|error| malformed(error.to_string()))?;
    let Opens::Quorum { threshold, holders } = sealed.opens() else {
        return Err(malformed("it is in a token".to_owned()));
    };
    let holders = holders.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
    let proposal = Proposal::SplitRoot { holders, needed: threshold, root: fingerprint(&bytes) };
    queue::request_with(&person, proposal, None, Some(bytes)).await.map(Json)
}
