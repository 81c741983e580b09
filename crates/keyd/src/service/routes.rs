//! Every route of a node, and the document that says so.

use std::sync::OnceLock;

use axum::Json;
use capstan_keys::api::{
    BeginEnrolment, EnrolmentBegun, EnrolmentFinished, FinishEnrolment, IssuedCertificate, RenewCertificate,
};
use serde_json::Value;

use super::openapi::{Method, Paths, Who, document};
use super::{agents, backups, handed, members, peers, people, proof};
use crate::door::{Input, Refusal};

/// All that this service answers to members.
pub(super) fn paths() -> Paths {
    agents::routes()
        .merge(members::routes())
        .merge(peers::routes())
        .merge(handed::routes())
        .merge(people::routes())
        .merge(backups::routes())
        .merge(proof::routes())
        .get("/v1/openapi.json", (Who::Member, "read this document"), async || Json(openapi()))
}

/// The document: every route of a node, what it takes and gives, and who may ask.
pub fn openapi() -> Value {
    static DOCUMENT: OnceLock<Value> = OnceLock::new();
    let made = || document(&doors(paths()).operations);
    DOCUMENT.get_or_init(made).clone()
}

type Renew = fn(Input<RenewCertificate>) -> std::future::Ready<Result<Json<IssuedCertificate>, Refusal>>;
type Begin = fn(Input<BeginEnrolment>) -> std::future::Ready<Result<Json<EnrolmentBegun>, Refusal>>;
type Finish = fn(Input<FinishEnrolment>) -> std::future::Ready<Result<Json<EnrolmentFinished>, Refusal>>;
type Health = fn() -> std::future::Ready<Result<Json<Value>, Refusal>>;

/// What the doors answer by themselves: [`crate::door::renewal_routes`], [`crate::door::health_routes`],
/// [`crate::door::enrolment_routes`].
fn doors(paths: Paths) -> Paths {
    let health: Health = || unreachable!("it is asked for its type alone");
    let renew: Renew = |_| unreachable!("it is asked for its type alone");
    let begin: Begin = |_| unreachable!("it is asked for its type alone");
    let finish: Finish = |_| unreachable!("it is asked for its type alone");
    paths
        .said_by_door(Method::Get, "/healthz", (Who::Member, "ask whether the node lives"), health)
        .said_by_door(Method::Get, "/readyz", (Who::Member, "ask whether the node can serve agents"), health)
        .said_by_door(Method::Post, "/v1/certificates/renew", (Who::Member, "renew one's own certificate"), renew)
        .said_by_door(Method::Post, "/v1/enrolments/begin", (Who::Stranger, "begin to enrol"), begin)
        .said_by_door(Method::Post, "/v1/enrolments/finish", (Who::Stranger, "finish to enrol"), finish)
}
