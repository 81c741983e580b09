//! Why a backup was not made or not believed, each with what to do next.

use std::path::PathBuf;

use capstan_format::{FormatError, KeyTag};
use capstan_keys::KeyError;
use thiserror::Error;

use crate::root::{HierarchyError, RootError};
use crate::seal::SealError;
use capstan_keys::api::ClusterId;

/// Why a backup was not made, or not believed.
#[derive(Debug, Error)]
pub enum BackupError {
    /// Medium: the bytes are not those of a backup, or were cut or altered.
    #[error("the backup {} is damaged, or none. Use another copy of it, or the one before", path.display())]
    Format {
        /// The file.
        path: PathBuf,
        /// What is wrong with its bytes.
        #[source]
        source: FormatError,
    },
    /// Attacker or medium: the whole is not what was written, although its parts may be.
    #[error(
        "the backup {} was altered since it was written: its seal over all records does not match. Use another copy of it, or the one \
         before", path.display()
    )]
    Altered {
        /// The file.
        path: PathBuf,
    },
    /// Operator: the two backups do not belong together.
    #[error(
        "the database backup is of cluster {database}, the core security backup of cluster {core}: take the core security backup \
         that was made with it"
    )]
    OtherCluster {
        /// Of the database backup.
        database: ClusterId,
        /// Of the core security backup.
        core: ClusterId,
    },
    /// Operator: the cluster key was changed between the two backups.
    #[error(
        "the database backup is under cluster key {database}, and the core security backup holds {core}: the cluster key was \
         changed between them. Take the core security backup that holds {database}"
    )]
    OtherKey {
        /// The public name of the key that the database backup is under.
        database: KeyTag,
        /// Of the one that the core security backup holds.
        core: KeyTag,
    },
    /// Operator: it is older than what is known to have been.
    #[error(
        "the backup is of epoch {epoch}, revision {revision}, and the cluster is known to have reached epoch {known_epoch}, \
         revision {known_revision}: what happened since is not in it, keys that were destroyed since are. Use the latest \
         backup. If there is none, restoring this one is a decision of the quorum, who then restore it as from nothing"
    )]
    Older {
        /// Of the backup.
        epoch: u32,
        /// Of the backup.
        revision: i64,
        /// The highest known.
        known_epoch: u32,
        /// The highest known.
        known_revision: i64,
    },
    /// Caller: the epoch to restore into is not a new one.
    #[error("a restore begins a new epoch: {epoch} is not above {above}")]
    EpochNotNew {
        /// The one asked for.
        epoch: u32,
        /// The highest there was.
        above: u32,
    },
    /// Medium or attacker: a key in it cannot be used.
    #[error(
        "{count} keys or records of the backup are not what they should be, the first is {first}: nothing was restored. Use the \
         backup before, and compare"
    )]
    Unproved {
        /// How many.
        count: usize,
        /// One of them.
        first: String,
    },
    /// Caller: the records are not in the order of their paths, or not of one moment.
    #[error("the records to back up cannot be: {what}")]
    Records {
        /// What is wrong.
        what: String,
    },
    /// Medium: a record does not open, so that a backup of it would be none.
    #[error("the record {path} cannot be backed up: {reason}. Compare it with the other nodes before the next backup")]
    Record {
        /// The record.
        path: String,
        /// What is wrong with it.
        reason: String,
    },
    /// A record that does not open or cannot be sealed.
    #[error(transparent)]
    Seal(#[from] SealError),
    /// A key that does not unwrap.
    #[error(transparent)]
    Hierarchy(#[from] HierarchyError),
    /// Passphrases, shares and files.
    #[error(transparent)]
    Root(#[from] RootError),
    /// The cryptographic library.
    #[error(transparent)]
    Key(#[from] KeyError),
}
