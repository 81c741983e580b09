//! What was certified: the keys that are destroyed everywhere.

use std::collections::BTreeMap;

use axum::Json;
use capstan_service::problem::Refusal;

use super::super::access::NodeRoutes;
use super::super::backups::disks_of;
use super::{Person, broken};
use crate::authority::Act;
use crate::destruction::Certificate;

pub(super) fn routes() -> NodeRoutes {
    NodeRoutes::new().get("/v1/destructions", Act::ListCertificates, list)
}

async fn list(person: Person) -> Result<Json<Vec<Certificate>>, Refusal> {
    person
        .looks(Act::ListCertificates, |view, _| {
            let read = view.ledger().others("destruction/").map(|(_, bytes)| serde_json::from_slice(bytes));
            let mut certificates: Vec<Certificate> = read.collect::<Result<_, _>>().map_err(|error| broken(&error))?;
            // What a certificate stood on may have turned out not to be so.
            let met = view.ledger().removed_kmas().filter_map(|kma| {
                let met_ns = view.ledger().removed(&kma)?.met_since_ns()?;
                Some((disks_of(&kma), met_ns))
            });
            let met: BTreeMap<String, i64> = met.collect();
            for said in certificates.iter_mut().flat_map(|certificate| &mut certificate.declared) {
                said.met_ns = met.get(&said.copy).copied();
            }
            Ok(Json(certificates))
        })
        .await
}
