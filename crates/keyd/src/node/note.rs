//! The journal as the node uses it: what was decided cut off, until the ledger has it.

use thiserror::Error;

use crate::desk::Asked;

/// An entry that the ledger does not have yet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Noted {
    /// Its number in the journal.
    pub number: u64,
    /// What is to be said to the ledger.
    pub asked: Asked,
}

/// Host: an entry could not be written or read.
#[derive(Debug, Error)]
#[error("the journal of what this node gave out cut off: {what}")]
pub struct JournalError {
    /// What happened, and what to do.
    pub what: String,
    /// The cause.
    #[source]
    pub source: Option<Box<dyn std::error::Error + Send + Sync>>,
}

/// Where a node notes what it decides cut off.
pub trait Notebook: Send {
    /// Notes what was decided, all of it or nothing; on the disk when this returns.
    fn note(&mut self, asked: &[Asked]) -> Result<(), JournalError>;

    /// What was noted and not struck out, in order.
    fn pending(&self) -> Vec<Noted>;

    /// The ledger has an entry: it is pending no more.
    fn strike_out(&mut self, number: u64) -> Result<(), JournalError>;
}
