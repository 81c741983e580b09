//! What is noted of what KMIP clients do: one record for each batch item, with the standard's own names.

use std::net::SocketAddr;

use capstan_format::KeyTag;
use capstan_kmip::{AuditedAct, Operation, RequestDecision, ResultReason};
use capstan_service::audit::{AuditAction, AuditEntry, AuditFact, AuditOrigin, AuditOutcome};
use capstan_service::identity::Peer;
use capstan_service::problem::Refusal;
use futures_util::future::try_join_all;

use crate::node::MajorityContact;
use crate::service::{Service, who};

const KMIP: AuditAction = AuditAction::named("kmip");

impl Service {
    /// Notes what a request came to. All of it goes out with one write.
    pub(super) async fn note_acts(
        &self,
        peer: &Peer,
        from: SocketAddr,
        decided: &RequestDecision,
        standing: MajorityContact,
    ) -> Result<(), Refusal> {
        for act in &decided.acts {
            let result = act.outcome.map_or_else(ResultReason::name, |()| "Success");
            self.metrics.kmip_operation(act.operation.map_or("unknown", Operation::name), result);
        }
        let changes_nothing = decided.changes.is_empty();
        let entries = decided.acts.iter().map(|act| {
            let mut noted = entry(act, AuditEntry::new(who(&peer.id), AuditOrigin::Address(from), KMIP));
            if changes_nothing {
                noted = noted.reading();
            }
            if standing != MajorityContact::Current {
                noted = noted.with("cut-off", "yes");
            }
            self.note(noted)
        });
        try_join_all(entries).await.map(drop)
    }
}

fn entry(act: &AuditedAct, noted: AuditEntry) -> AuditEntry {
    let mut noted = noted.with("operation", act.operation.map_or("unknown", |operation| operation.name()));
    // A Unique Identifier of ours is 16 random bytes in hexadecimal, as a key's tag is; what a client made up is not
    // noted.
    let mut uids = act.uids.iter().filter_map(|uid| uid.parse::<KeyTag>().ok()).map(AuditFact::from);
    if let Some(uid) = uids.next() {
        noted = noted.of("kmip", uid);
    }
    if let Some(uid) = uids.next() {
        noted = noted.with("also", uid).with("objects", act.uids.len() as u64);
    }
    match act.outcome {
        Ok(()) => noted,
        Err(reason) => noted.came_to(AuditOutcome::Refused { why: reason.name().into() }),
    }
}
