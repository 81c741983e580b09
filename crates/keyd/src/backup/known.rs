//! What is known of a cluster's past, against which a backup is held.

use std::cmp::Ordering;

use super::{BackupError, Manifest};

/// A point that the cluster is known to have reached: from a node that is left, the audit log, a destruction
/// certificate, or the list of backups that the officers keep.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Known {
    /// The epoch.
    pub epoch: u32,
    /// The revision of the ledger in that epoch.
    pub revision: i64,
}

/// What a backup is held against.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Knowledge {
    /// At least this was reached.
    Reached(Known),
    /// Everything is lost, or a quorum decided to go back: any backup of the cluster will do.
    Nothing,
}

impl Knowledge {
    /// Refuses a backup that is older than what is known.
    pub(super) fn check(self, manifest: &Manifest) -> Result<(), BackupError> {
        let Self::Reached(known) = self else { return Ok(()) };
        let backup = Known { epoch: manifest.epoch, revision: manifest.revision };
        match backup.cmp(&known) {
            Ordering::Equal | Ordering::Greater => Ok(()),
            Ordering::Less => Err(BackupError::Older {
                epoch: backup.epoch,
                revision: backup.revision,
                known_epoch: known.epoch,
                known_revision: known.revision,
            }),
        }
    }

    /// With what a core security backup tells: it was made in an epoch, so that was reached.
    pub(super) fn with_epoch(self, epoch: u32) -> Self {
        match self {
            Self::Reached(known) => Self::Reached(known.max(Known { epoch, revision: 0 })),
            Self::Nothing => Self::Nothing,
        }
    }

    /// The highest epoch known.
    pub(super) fn epoch(self) -> u32 {
        match self {
            Self::Reached(known) => known.epoch,
            Self::Nothing => 0,
        }
    }
}
