//! What this node does not believe of its ledger, put where people look: the audit log, beside the status.

use std::time::Duration;

use capstan_service::audit::{AuditAction, AuditActor, AuditEntry, AuditOrigin};

use super::Service;

const DOUBTED: AuditAction = AuditAction::named("ledger-doubted");
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// Notes each new doubt for as long as the node runs.
pub(super) async fn note_doubts(service: &Service) {
    let mut noted = 0;
    loop {
        if let Some(node) = service.open_node() {
            let doubts = node.doubt_count();
            // Some may have been taken back.
            noted = noted.min(doubts);
            if doubts > noted {
                let said =
                    AuditEntry::new(AuditActor::Nobody, AuditOrigin::Here, DOUBTED).with("doubts", doubts as u64);
                // One that cannot be noted now is noted with the next.
                if service.note(said).await.is_ok() {
                    noted = doubts;
                }
            }
        }
        tokio::time::sleep(LOOK_EVERY).await;
    }
}
