//! Why nothing was noted.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use thiserror::Error;

/// Why the audit log does not take a record, each with what to do next. Whoever gets one must not do what was to be
/// noted.
#[derive(Debug, Clone, Error)]
pub enum AuditError {
    /// Host: no room for a record.
    #[error(
        "the disk of the audit log {} is full, and what cannot be noted is not done: make room there. A key node gives keys for \
         reading as long as the log's reserve lasts", directory.display()
    )]
    DiskFull {
        /// The folder of the log.
        directory: PathBuf,
    },
    /// Host: the disk failed, and nobody knows what of the last records it holds.
    #[error(
        "the audit log {} could not be written, and nothing is noted any more: see what the system says of the disk, then start \
         the service again", directory.display()
    )]
    Broken {
        /// The folder of the log.
        directory: PathBuf,
        /// What the system said.
        #[source]
        source: Arc<io::Error>,
    },
    /// Attacker or medium: the log is not as it was left.
    #[error(
        "the audit log was altered: {what}. It is not written any further. Keep its files for those who look into it, then move \
         them away and start the service again: it begins a new log. The ledger of a key cluster still tells of the old one"
    )]
    Altered {
        /// Where, and how that shows.
        what: String,
    },
    /// Operator: another process writes it.
    #[error(
        "the audit log {} is in use: another process with this state has it; wait until that is done, or stop it",
        directory.display()
    )]
    InUse {
        /// The folder of the log.
        directory: PathBuf,
    },
    /// Host: the log's files cannot be read or made.
    #[error("the audit log {} cannot be opened: see that this program may read and write there", directory.display())]
    Unusable {
        /// The folder of the log.
        directory: PathBuf,
        /// What the system said.
        #[source]
        source: Arc<io::Error>,
    },
    /// Caller: the record is longer than any can be.
    #[error("a record of {len} bytes is too long for the audit log: note fewer facts at once")]
    TooLong {
        /// Its length.
        len: usize,
    },
    /// Caller: the log was closed.
    #[error("the audit log is closed, for the service is going down: ask again when it is up")]
    Closed,
}
