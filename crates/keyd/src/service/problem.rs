//! What a node says when it does not do what it was asked, as programs and people read it.

use capstan_keys::api::Problem;
use capstan_keys::{KeyError, Name};

use crate::desk::DeskError;
use crate::door::Refusal;
use crate::node::NodeError;

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
        NodeError::NeedsMajority { .. } => unready("needs-majority", "The cluster's majority cannot be reached"),
        NodeError::IsolatedTooLong { .. } => unready("isolated-too-long", "This node has been cut off for too long"),
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
    let said = error.to_string();
    match error {
        KeyError::KeyMissing { tag, volser, .. } => {
            let problem = Problem::new(404, "key-missing", "There is no such key", said).with("tag", tag);
            match volser {
                Some(volser) => problem.with("volume", volser),
                None => problem,
            }
        }
        KeyError::KeyDestroyed { tag, volser, destroyed_ns } => {
            Problem::new(410, "key-destroyed", "The key was destroyed", said)
                .with("tag", tag)
                .with("volume", volser)
                .with("destroyed_ns", destroyed_ns)
        }
        KeyError::KeyRetired { tag, volser, state } => {
            Problem::new(409, "key-retired", "The key encrypts no more", said)
                .with("tag", tag)
                .with("volume", volser)
                .with("state", state)
        }
        KeyError::KeyOfOtherVolume { tag, volser, owner } => {
            Problem::new(409, "key-of-other-volume", "The key is another volume's", said)
                .with("tag", tag)
                .with("volume", volser)
                .with("owner", owner)
        }
        KeyError::Refused(_) => Problem::new(403, "refused", "The rules forbid it", said),
        other => {
            tracing::error!(error = %other, "an operation on keys failed");
            Problem::new(500, "failed", "This node failed", "Look at its log for this request.")
        }
    }
}
