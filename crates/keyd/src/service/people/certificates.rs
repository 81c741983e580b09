//! What was certified: the keys that are destroyed everywhere.

use axum::Json;

use super::super::openapi::Paths;
use super::{Person, broken};
use crate::authority::Act;
use crate::destruction::Certificate;
use crate::door::Refusal;

pub(super) fn routes() -> Paths {
    Paths::new().get("/v1/destructions", Act::ListCertificates, list)
}

async fn list(person: Person) -> Result<Json<Vec<Certificate>>, Refusal> {
    person
        .looks(Act::ListCertificates, |view, _| {
            let read = view.ledger().others("destruction/").map(|(_, bytes)| serde_json::from_slice(bytes));
            read.collect::<Result<_, _>>().map(Json).map_err(|error| broken(&error))
        })
        .await
}
