//! Why nothing was decided.

use capstan_format::{KeyTag, Volser};
use capstan_keys::{KeyError, Name, RuleRefusal};
use thiserror::Error;

use crate::root::HierarchyError;
use crate::seal::SealError;

/// Why nothing was decided.
#[derive(Debug, Error)]
pub enum DeskError {
    /// The rules, or the state of the key.
    #[error(transparent)]
    Key(#[from] KeyError),
    /// Host or peers: the pool has no key that may be issued.
    #[error(
        "node {kma} has no key left that is stored twice. See that the other nodes run and reach each other, and where there is no \
         other, make a backup (`keyd backup`); other nodes may have keys"
    )]
    PoolEmpty {
        /// The node.
        kma: Name,
    },
    /// Peer: a key does not open.
    #[error(transparent)]
    Hierarchy(#[from] HierarchyError),
    /// Peer: the key of the pool is not the one its record names.
    #[error(
        "key {tag} of the pool of node {kma} does not open: its record was altered. It is not used; take it out of the pool"
    )]
    PoolKey {
        /// The node.
        kma: Name,
        /// The key.
        tag: KeyTag,
    },
    /// Operator: a key that was confirmed stays as it was confirmed.
    #[error(
        "key {tag} already belongs to volume {volser} and group {group}: that is on record, and can no longer be \
         changed"
    )]
    Confirmed {
        /// The key.
        tag: KeyTag,
        /// Its volume.
        volser: Volser,
        /// Its group.
        group: Name,
    },
    /// A record could not be sealed.
    #[error(transparent)]
    Seal(#[from] SealError),
}

impl From<RuleRefusal> for DeskError {
    fn from(refusal: RuleRefusal) -> Self {
        Self::Key(refusal.into())
    }
}
