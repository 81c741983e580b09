//! Anchors: where this node's audit log stands, said to the others; and what the others said, noted here.

use std::collections::BTreeMap;
use std::time::Duration;

use capstan_keys::Name;
use capstan_service::audit::{Anchor, AuditEntry, LogHead};
use capstan_service::housekeeping::NextCheck;
use capstan_service::problem::Refusal;

use super::super::Service;
use super::queue::removable;
use crate::desk::Decided;
use crate::node::{DoubtKind, MajorityContact, Node};
use crate::path::Path;

const ANCHOR_EVERY: Duration = Duration::from_secs(60);
/// How soon it is tried again while the majority is not reached.
const TRY_AGAIN: Duration = Duration::from_secs(2);

/// Sets this node's anchors and notes those of others.
#[derive(Default)]
pub(in super::super) struct AnchorKeeper {
    /// The last record that is anchored, or that says nothing but what others' anchors were: two nodes that note each
    /// other's anchors would never come to rest.
    settled: u64,
    witnessed: BTreeMap<Name, LogHead>,
}

impl AnchorKeeper {
    /// Sets an anchor, where something was noted since the last one.
    pub(in super::super) async fn check<'a>(&mut self, service: &'a Service) -> NextCheck<'a> {
        let pause = match service.open_node() {
            Some(node) if node.standing() == MajorityContact::Current => match self.keep(service, &node).await {
                Ok(()) => ANCHOR_EVERY,
                Err(Refusal(problem)) => {
                    tracing::warn!(%problem, "the audit log has no new anchor");
                    TRY_AGAIN
                }
            },
            _ => TRY_AGAIN,
        };
        NextCheck::after(pause).or_when(service.anchoring.notified())
    }

    async fn keep(&mut self, service: &Service, node: &Node) -> Result<(), Refusal> {
        let head = service.audit.head();
        if head.sequence > self.settled {
            let anchored = self.anchor(service, node, head).await;
            if let Err(Refusal(problem)) = &anchored
                && problem.is("conflict")
            {
                // Somebody has cut it, and has taken away as well what this node noted of its anchor.
                node.doubt(
                    DoubtKind::Audit,
                    format!("the audit log of this node was cut off or written anew: {}", problem.detail),
                );
            }
            anchored?;
            if let Err(error) = service.audit.anchored(head.sequence) {
                tracing::warn!(%error, "that the audit log is anchored is not on this node's disk");
            }
            self.settled = head.sequence;
        }
        let others: Vec<Anchor> = node.view(|view| {
            let all = view.ledger().others("anchor/").filter_map(|(_, bytes)| Anchor::decode(bytes).ok());
            all.filter(|anchor| anchor.kma != *service.name()).collect()
        });
        for anchor in others {
            if self.witnessed.get(&anchor.kma) == Some(&anchor.head) {
                continue;
            }
            let before = service.audit.head().sequence;
            let noted = service.audit.note(AuditEntry::witnessed(&anchor), node.now_ns()).await;
            let noted = noted.map_err(|error| Refusal::unready(error.to_string()))?;
            if before == self.settled && noted.sequence == before + 1 {
                self.settled = noted.sequence;
            }
            self.witnessed.insert(anchor.kma.clone(), anchor.head);
        }
        node.change(|view| Ok::<_, Refusal>(Decided::records(Vec::new(), removable(view, node.now_ns())))).await
    }

    async fn anchor(&self, service: &Service, node: &Node, head: LogHead) -> Result<(), Refusal> {
        let anchor = Anchor { kma: service.name().clone(), head, at_ns: node.now_ns() };
        let path = Path::Other(format!("anchor/{}", anchor.kma));
        node.change(|view| {
            let known = view.ledger().other(&path.to_string()).and_then(|bytes| Anchor::decode(bytes).ok());
            if let Some(known) = known {
                if known.head == anchor.head {
                    return Ok(Decided::records(Vec::new(), Vec::new()));
                }
                anchor.check_follows(&known).map_err(|back| Refusal::conflict(back.to_string()))?;
            }
            Ok::<_, Refusal>(Decided::records(vec![(path.clone(), anchor.encode())], Vec::new()))
        })
        .await
    }
}

impl Service {
    /// Sets an anchor at once: what was just noted is not to be taken back.
    pub(in super::super) fn anchor_soon(&self) {
        self.anchoring.notify_one();
    }
}
