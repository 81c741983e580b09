//! What is due at a node that is open: its journal, its pool, marks of what it holds, what removed nodes have left.

use std::sync::Arc;
use std::time::Duration;

use capstan_service::housekeeping::NextCheck;

use super::removed::Removed;
use super::wiped::Wiped;
use super::{Service, autonomous};
use crate::node::{MajorityContact, Node};

/// How often a node looks at what is due.
const TEND_EVERY: Duration = Duration::from_millis(200);
/// How often it looks while its pool fills.
const TEND_MORE: Duration = Duration::from_millis(1);

/// What is kept from one look to the next, from when the node is open.
#[derive(Default)]
pub(super) struct Tending {
    open: Option<OpenNode>,
}

struct OpenNode {
    node: Arc<Node>,
    removed: Removed,
    wiped: Wiped,
    own: autonomous::Keeping,
}

impl OpenNode {
    async fn begin(node: Arc<Node>) -> Self {
        if let Err(error) = node.take_journal_back().await {
            tracing::error!(%error, "the journal is not the one that the other nodes know: nothing is given out cut off");
        }
        let (removed, wiped, own) = (Removed::default(), Wiped::default(), autonomous::Keeping::default());
        Self { node, removed, wiped, own }
    }

    /// Does what takes the majority, and says when to look again.
    async fn settle(&mut self, service: &Service) -> Duration {
        let mut pause = TEND_EVERY;
        match self.node.reconcile().await {
            Ok(reconciled) if reconciled.taken > 0 || !reconciled.void.is_empty() => {
                tracing::info!(?reconciled, "back in touch: the ledger has what was given out cut off");
            }
            Ok(_) => {}
            Err(error) => tracing::warn!(%error, "what was given out cut off is not with the ledger yet"),
        }
        match self.node.tend().await {
            Ok(tended) if tended.more => pause = TEND_MORE,
            Ok(_) => {}
            Err(error) => tracing::warn!(%error, "what is due was not done"),
        }
        if let Err(error) = service.take_root_over(&self.node) {
            tracing::error!(%error, "the root key is under other holders, and this node's disk has it under the old ones");
        }
        self.own.settle(service, &self.node).await;
        match self.removed.settle(service, &self.node).await {
            Ok(true) => pause = TEND_MORE,
            Ok(false) => {}
            Err(error) => tracing::warn!(%error, "what removed nodes have left is not taken in yet"),
        }
        if let Err(error) = self.wiped.settle(service, &self.node).await {
            tracing::warn!(%error, "what is left of journals here is not wiped, or the others do not hear of it yet");
        }
        pause
    }
}

impl Tending {
    /// Does what is due.
    pub(super) async fn check<'a>(&mut self, service: &'a Service) -> NextCheck<'a> {
        let opened = service.opened.notified();
        let open = match &mut self.open {
            Some(open) => open,
            None => match service.open_node() {
                Some(node) => self.open.insert(OpenNode::begin(node).await),
                None => return NextCheck::when(opened),
            },
        };
        open.removed.ask_whether_this_is_one(service, &open.node).await;
        if open.node.standing() != MajorityContact::Current {
            return NextCheck::after(TEND_EVERY);
        }
        NextCheck::after(open.settle(service).await)
    }
}
