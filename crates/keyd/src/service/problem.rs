//! What a node says when it does not do what it was asked, as programs and people read it.

use capstan_keys::api::Problem;
use capstan_keys::{KeyError, Name};
use capstan_service::problem::Refusal;

use crate::desk::DeskError;
use crate::node::NodeError;

/// The kind of what is refused since the ledger takes no more.
pub(super) const LEDGER_FULL: &str = "ledger-full";

/// The node waits to be unlocked.
pub(super) fn locked(name: &Name) -> Problem {
    let detail = format!("Node {name} is locked: unlock it (`keyd unlock`), or ask another.");
    Problem::new(503, "locked", "This node is locked", detail)
}

impl From<NodeError> for Refusal {
    fn from(error: NodeError) -> Self {
        problem(&error).into()
    }
}

/// An error of a node. The last part of the kind is for programs (`docs/KEYS.md` lists them), the detail for people.
fn problem(error: &NodeError) -> Problem {
    let said = error.to_string();
    let unready = |kind, title| Problem::new(503, kind, title, said.clone());
    match error {
        NodeError::Desk(DeskError::Key(key)) => of_key(key),
        NodeError::Desk(DeskError::PoolEmpty { .. }) => unready("pool-empty", "This node has no key to give"),
        NodeError::Desk(DeskError::Confirmed { .. }) => Problem::new(409, "conflict", "It is so already", said),
        NodeError::NeedsMajority { .. } => unready("needs-majority", "The cluster's majority cannot be reached"),
        NodeError::LedgerFull { .. } => unready(LEDGER_FULL, "The ledger is full"),
        NodeError::IsolatedTooLong { .. } => unready("isolated-too-long", "This node has been cut off for too long"),
        NodeError::Removed { .. } => unready("removed", "This node was removed from the cluster"),
        NodeError::Superseded { .. } => unready("superseded", "The cluster has gone on without this node"),
        NodeError::Contended { .. } => unready("contended", "Others changed the same records"),
        NodeError::Journal(cause) => {
            tracing::error!(error = %cause, "the journal cannot be used");
            unready("journal", "This node is cut off and cannot note what it gives out")
        }
        NodeError::Desk(DeskError::Hierarchy(_) | DeskError::PoolKey { .. } | DeskError::Seal(_))
        | NodeError::State(_) => {
            tracing::error!(%error, "a record is not believed");
            Problem::new(500, "record-altered", "A record of the cluster is not believed", said)
        }
    }
}

fn of_key(error: &KeyError) -> Problem {
    Problem::of_key(error).unwrap_or_else(|| {
        tracing::error!(%error, "an operation on keys failed");
        Problem::new(500, "failed", "This node failed", "Look at its log for this request.")
    })
}
