//! What a cluster knows of the backups of its database.

use jiff::Timestamp;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::Name;

/// A database backup that was verified by restoring it, and that somebody has.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct BackupRecord {
    /// Its id, as it stands in the file, in hexadecimal.
    pub id: String,
    /// The epoch it was made in.
    pub epoch: u32,
    /// The revision of the ledger that it holds.
    pub revision: i64,
    /// When it was made.
    pub made: Timestamp,
    /// By whom.
    pub by: Name,
    /// How many records it holds.
    pub records: u64,
    /// How many keys are in them; each was unwrapped and is the one that its tag names.
    pub keys: u64,
    /// How long the file is.
    pub bytes: u64,
    /// The SHA-256 of the file, in hexadecimal: what is on the medium was read again and compared.
    pub sha256: String,
    /// Where it was put, in the words of whoever made it.
    pub place: String,
    /// Whether it is still there.
    pub state: BackupState,
}

/// Whether a backup is still there.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum BackupState {
    /// It is kept.
    Kept,
    /// Somebody said that all copies of it were destroyed.
    Destroyed {
        /// When it was said.
        at: Timestamp,
        /// By whom.
        by: Name,
    },
}

impl BackupRecord {
    /// Whether nobody has said that it was destroyed.
    #[must_use]
    pub fn is_kept(&self) -> bool {
        self.state == BackupState::Kept
    }
}
