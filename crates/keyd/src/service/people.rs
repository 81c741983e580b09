//! What people ask of a node: each act by the table of roles, noted before and after, and by quorum where that is what
//! the table says.
//!
//! ```text
//!  certificate --> Person --permitted(act)--> AtOnce   --> noted "begun", done, noted "done", answered
//!                     |                   `-> ByQuorum --> queue: pending/ID, approved by others, carried out with the last approval
//!                     `-- denied: noted, told which role may
//! ```
//! peers: agents, KMIP clients; kmas; keys: policies, groups, data units, keys; users; queue; custodians: core security
//! backups; audit, exposed: what auditors look at.

mod anchors;
mod arriving;
mod audit;
mod carrying;
mod certificates;
mod custodians;
mod exports;
mod exposed;
mod keys;
mod kma_changes;
mod kmas;
mod leaving;
mod lock;
mod material;
mod peers;
mod proposal;
mod queue;
mod renewal;
mod root;
mod sites;
mod transfer;
mod users;

use std::str::FromStr;

use axum::extract::rejection::RawPathParamsRejection;
use axum::extract::{FromRequestParts, RawPathParams};
use axum::http::request::Parts;
use capstan_keys::Name;
use capstan_service::openapi::RequestPart;
use capstan_service::problem::Refusal;

use super::access::NodeRoutes;
use super::person::{Person, broken, rule_of, users_of};
use capstan_service::time::time;

pub(super) use anchors::AnchorKeeper;
pub(super) use arriving::Arriving;
pub(super) use renewal::OwnRenewal;

/// The routes of people.
pub(super) fn routes() -> NodeRoutes {
    NodeRoutes::new()
        .merge(peers::routes())
        .merge(kmas::routes())
        .merge(material::routes())
        .merge(keys::routes())
        .merge(transfer::routes())
        .merge(exports::routes())
        .merge(users::routes())
        .merge(queue::routes())
        .merge(audit::routes())
        .merge(root::routes())
        .merge(exposed::routes())
        .merge(sites::routes())
        .merge(certificates::routes())
        .merge(lock::routes())
        .merge(custodians::routes())
}

/// The only part of a path that varies.
struct Of<T>(T);

impl<T> RequestPart for Of<T> {}

impl<T: FromStr, S: Send + Sync> FromRequestParts<S> for Of<T> {
    type Rejection = Refusal;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Refusal> {
        let malformed = |error: RawPathParamsRejection| Refusal::malformed(error.body_text());
        let params = RawPathParams::from_request_parts(parts, state).await.map_err(malformed)?;
        let value = params.iter().next().map(|(_, value)| value).unwrap_or_default();
        value.parse().map(Self).map_err(|_| Refusal::malformed(format!("{value:?} cannot stand in this path.")))
    }
}

fn user_path(name: &Name) -> crate::path::Path {
    crate::path::Path::Other(format!("user/{name}"))
}
