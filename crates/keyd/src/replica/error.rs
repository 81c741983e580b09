//! What can go wrong with a replica, each with what to do next.

use std::path::{Path, PathBuf};

use rusqlite::ErrorCode;
use thiserror::Error;

/// Why a replica did not do what it was asked.
#[derive(Debug, Error)]
pub enum ReplicaError {
    /// Medium: the file is not what was written.
    #[error(
        "the replica {} is damaged ({what}), and nothing is answered from it: see to the disk, move the file away and start the node \
         again; it copies the records from the cluster as soon as it reaches the majority",
        replica.display()
    )]
    Damaged {
        /// The file.
        replica: PathBuf,
        /// What shows it.
        what: String,
    },
    /// Operator: the file belongs to another cluster.
    #[error(
        "the replica {} is of cluster {found}, and this node is of {wanted}: see its configuration, or move the file away",
        replica.display()
    )]
    OtherCluster {
        /// The file.
        replica: PathBuf,
        /// Whose it is.
        found: String,
        /// Whose it was to be.
        wanted: String,
    },
    /// Operator: the node was put back to an older epoch than it has seen.
    #[error(
        "the replica {} has seen epoch {known} and the node is in epoch {given}: the node's configuration or the cluster was put back to \
         an older state, which is not believed. Let the node join the cluster as it is now",
        replica.display()
    )]
    EpochPassed {
        /// The file.
        replica: PathBuf,
        /// The epoch that it has seen.
        known: u64,
        /// The epoch it was to go back to.
        given: u64,
    },
    /// Peer: what it was given is older than what it has, or does not follow it.
    #[error(
        "the replica {} has commit {applied} and was offered commit {offered}: the ledger was put back to an older state, and is not \
         believed. Restore the newer one; if it is lost for good, begin a new epoch",
        replica.display()
    )]
    WentBack {
        /// The file.
        replica: PathBuf,
        /// The last commit that it has.
        applied: i64,
        /// What it was offered.
        offered: i64,
    },
    /// Host: the disk is full. The replica is as it was before.
    #[error(
        "there is no room on the disk for the replica {}: it stays as it is, and falls behind until there is. Free some",
        replica.display()
    )]
    DiskFull {
        /// The file.
        replica: PathBuf,
    },
    /// Operator: another process has it.
    #[error("the replica {} is in use by another process: is this node running already?", replica.display())]
    InUse {
        /// The file.
        replica: PathBuf,
    },
    /// Host: the file system refused something.
    #[error("{doing} the replica {} failed", replica.display())]
    Host {
        /// What was being done.
        doing: &'static str,
        /// The file.
        replica: PathBuf,
        /// What the host says.
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
}

impl ReplicaError {
    pub(super) fn damaged(replica: &Path, what: impl Into<String>) -> Self {
        Self::Damaged { replica: replica.to_owned(), what: what.into() }
    }

    pub(super) fn host(
        doing: &'static str,
        replica: &Path,
        source: impl Into<Box<dyn std::error::Error + Send + Sync>>,
    ) -> Self {
        Self::Host { doing, replica: replica.to_owned(), source: source.into() }
    }

    /// Whose fault an error of SQLite is.
    pub(super) fn sort(replica: &Path, error: rusqlite::Error) -> Self {
        match error.sqlite_error_code() {
            Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => Self::InUse { replica: replica.to_owned() },
            Some(ErrorCode::DiskFull) => Self::DiskFull { replica: replica.to_owned() },
            Some(
                ErrorCode::DatabaseCorrupt
                | ErrorCode::NotADatabase
                | ErrorCode::TypeMismatch
                | ErrorCode::ConstraintViolation
                | ErrorCode::TooBig
                | ErrorCode::Unknown,
            )
            | None => Self::damaged(replica, format!("SQLite says: {error}")),
            Some(_) => Self::host("using", replica, error),
        }
    }
}
