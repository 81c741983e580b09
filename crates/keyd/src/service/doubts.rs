//! What this node does not believe of its ledger, put where people look: the audit log, beside the status.

use std::time::Duration;

use capstan_service::audit::{AuditAction, AuditActor, AuditEntry, AuditOrigin};
use capstan_service::housekeeping::NextCheck;

use super::Service;

const DOUBTED: AuditAction = AuditAction::named("ledger-doubted");
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// How many doubts are noted.
#[derive(Debug, Default)]
pub(super) struct NotedDoubts(usize);

impl NotedDoubts {
    /// Notes doubts that are new.
    pub(super) async fn check(&mut self, service: &Service) -> NextCheck<'static> {
        if let Some(node) = service.open_node() {
            let doubts = node.doubt_count();
            // Some may have been taken back.
            self.0 = self.0.min(doubts);
            if doubts > self.0 {
                let said = AuditEntry::new(AuditActor::Nobody, AuditOrigin::Here, DOUBTED);
                // One that cannot be noted now is noted with the next.
                if service.note(said.with("doubts", doubts as u64)).await.is_ok() {
                    self.0 = doubts;
                }
            }
        }
        NextCheck::after(LOOK_EVERY)
    }
}
