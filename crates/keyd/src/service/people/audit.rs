//! The audit log of this node, for those who look.

use axum::Json;
use axum::extract::Query;
use capstan_service::audit::{Anchor, last_records};
use capstan_service::problem::Refusal;
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::Value;

use super::super::access::NodeRoutes;
use super::{Person, broken};
use crate::authority::Act;

const LAST_MAX: usize = 1000;

pub(super) fn routes() -> NodeRoutes {
    NodeRoutes::new().get("/v1/audit", Act::ReadAudit, show).get("/v1/audit/anchors", Act::VerifyAudit, anchors)
}

#[derive(Deserialize, JsonSchema)]
struct Last {
    last: Option<usize>,
}

/// The last records of this node's log, the one that says so included.
async fn show(person: Person, Query(Last { last }): Query<Last>) -> Result<Json<Vec<Value>>, Refusal> {
    person.permitted(Act::ReadAudit).await?;
    person.service.note(person.entry(Act::ReadAudit)).await?;
    let (directory, last) = (person.service.audit_directory.clone(), last.unwrap_or(100).min(LAST_MAX));
    let read = tokio::task::spawn_blocking(move || last_records(&directory, last)).await;
    read.map_err(|error| broken(&error))?.map(Json).map_err(|error| broken(&error))
}

/// Where the logs of all nodes stood when their anchors were set: for a check away from the cluster.
async fn anchors(person: Person) -> Result<Json<Vec<Value>>, Refusal> {
    let look = |view: crate::state::View<'_>, _| {
        let anchors = view.ledger().others("anchor/").filter_map(|(_, bytes)| Anchor::decode(bytes).ok());
        Ok(Json(anchors.filter_map(|anchor| serde_json::from_str(&anchor.to_json()).ok()).collect()))
    };
    person.looks(Act::VerifyAudit, look).await
}
