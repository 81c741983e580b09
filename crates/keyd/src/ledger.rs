//! The ledger: sealed records by path, the only authority on what the cluster has decided.
//!
//! A ledger knows paths and bytes, and nothing of what they mean: it holds ciphertext alone ([`crate::seal`]). Everything that changes it
//! is one [`Transaction`]: what must be as it was when the decision was made, and what is to be. There are no locks and no leases: a
//! node that is stopped between its decision and its commit holds nobody up, and a late commit that no longer fits is a
//! [`Outcome::Conflict`], not damage.
//!
//! ```text
//! decide (snapshot, now) --> Transaction { expect, put, remove } --commit--> Committed { revision } | Conflict | unknown
//! ```
//! **A commit that fails may have happened** ([`LedgerError::Unknown`]): whoever asked looks at what the ledger says then, and never
//! takes the silence for a no. Revisions are those of the whole ledger: each commit has one, higher than any before.

use futures_util::future::BoxFuture;
use futures_util::stream::BoxStream;
use thiserror::Error;

/// Longest path, in bytes.
pub const PATH_LEN_MAX: usize = 256;
/// Longest sealed record, in bytes: etcd takes requests of 1.5 MiB, and a transaction has several.
pub const RECORD_LEN_MAX: usize = 64 << 10;
/// Most records that one transaction may look at or change: etcd's default is 128 operations.
pub const TRANSACTION_RECORDS_MAX: usize = 100;

/// One record of the ledger.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// Where it lies, as in `key/4f02...`: kinds and names, divided by `/`.
    pub path: String,
    /// What lies there, sealed.
    pub sealed: Vec<u8>,
    /// The commit that put it there.
    pub revision: i64,
}

/// How a record must be for a transaction to take place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Expected {
    /// There is none.
    Absent,
    /// It is the one that this commit put there.
    At {
        /// The commit.
        revision: i64,
    },
}

/// A change that takes place as a whole or not at all.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Transaction {
    /// What must be so: every record that the decision rests on.
    pub expect: Vec<(String, Expected)>,
    /// Records that are to be, sealed.
    pub put: Vec<(String, Vec<u8>)>,
    /// Records that are to be no more.
    pub remove: Vec<String>,
}

/// What became of a transaction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// The majority holds it on disk.
    Committed {
        /// Its commit.
        revision: i64,
    },
    /// Something is no longer as it was expected: nothing was changed. Look again and decide anew.
    Conflict,
}

/// The records under a prefix, all of one moment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Snapshot {
    /// The last commit that it holds.
    pub revision: i64,
    /// The records, in the order of their paths.
    pub entries: Vec<Entry>,
}

/// What a commit did to one record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Change {
    /// It is there now.
    Put(Entry),
    /// It is gone.
    Removed {
        /// Where it lay.
        path: String,
        /// The commit that removed it.
        revision: i64,
    },
}

/// The changes of one or more whole commits: never a part of one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Changes {
    /// The last commit that they bring up to.
    pub revision: i64,
    /// The changes, in the order of their commits.
    pub changes: Vec<Change>,
}

/// Why the ledger did not answer.
#[derive(Debug, Error)]
pub enum LedgerError {
    /// Peer: no majority can be reached, and nothing was changed.
    #[error("the cluster's majority cannot be reached: see that its members run and reach each other, and try again")]
    Unreachable {
        /// What the client of the ledger says.
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// Peer: the answer was lost; what was asked for may have happened.
    #[error("the cluster's answer was lost: what was asked for may have happened. Look before it is asked again")]
    Unknown {
        /// What the client of the ledger says.
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// Peer: what was watched from is no longer kept; a whole snapshot is needed.
    #[error("the ledger no longer keeps its history back to commit {from}: a whole copy is needed")]
    Compacted {
        /// Where the watch was to begin.
        from: i64,
    },
    /// Caller: the transaction is larger than a ledger takes.
    #[error("a change of {records} records or with one of {len_max} bytes is too large for the ledger")]
    TooLarge {
        /// How many records it has.
        records: usize,
        /// Its longest record.
        len_max: usize,
    },
    /// Peer: it answered something that cannot be.
    #[error("the ledger answered what cannot be: {what}")]
    Protocol {
        /// What.
        what: String,
    },
}

/// Sealed records by path, changed by compare-and-set alone.
pub trait Ledger: Send + Sync + 'static {
    /// Commits a transaction, if everything is as it expects. When this says committed, a majority has it on disk.
    fn commit(&self, transaction: Transaction) -> BoxFuture<'_, Result<Outcome, LedgerError>>;

    /// The records whose paths begin with `prefix`, as the majority knows them at this moment.
    fn read<'a>(&'a self, prefix: &'a str) -> BoxFuture<'a, Result<Snapshot, LedgerError>>;

    /// All changes after commit `after`, as they happen. The stream ends with an error when the ledger can no longer be followed;
    /// it is then asked for anew, or a snapshot is read. It also brings a [`Changes`] without changes now and then, at least each
    /// second while the majority is reachable: so whoever watches knows how fresh its copy is.
    fn watch(&self, after: i64) -> BoxStream<'_, Result<Changes, LedgerError>>;
}
