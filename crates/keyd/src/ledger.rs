//! The ledger: sealed records by path, the only authority on what the cluster has decided.
//!
//! A ledger knows paths and bytes, and nothing of what they mean: it holds ciphertext alone ([`crate::seal`]).
//! Everything that changes it is one [`Transaction`]: what must be as it was when the decision was made, and what is to
//! be. There are no locks and no leases: a node that is stopped between its decision and its commit holds nobody up,
//! and a late commit that no longer fits is a [`Outcome::Conflict`], not damage.
//!
//! ```text
//! decide (snapshot, now) --> Transaction { expect, put, remove } --commit--> Committed { revision } | Conflict | unknown
//! ```
//! **A commit that fails may have happened** ([`LedgerError::Unknown`]): whoever asked looks at what the ledger says
//! then, and never takes the silence for a no. Revisions are those of the whole ledger: each commit that changes
//! something has one, higher than any before.
//!
//! [`EtcdLedger`] is the ledger of a cluster; [`SimulatedLedger`] one in memory, for tests and simulations, and
//! [`FaultyLedger`] makes any of them fail as a network does. [`conformance`] says in code what all of them promise.

pub mod conformance;
mod etcd;
mod faulty;
mod simulated;

pub use etcd::{EtcdFiles, EtcdLedger, EtcdMembers, EtcdTiming, QUOTA_BYTES};
pub use faulty::{Faults, FaultyLedger};
pub use simulated::SimulatedLedger;

use std::collections::HashSet;
use std::fmt;

use futures_util::future::BoxFuture;
use futures_util::stream::BoxStream;
use thiserror::Error;
use tokio::time::Instant;

/// Longest path, in bytes.
pub const PATH_LEN_MAX: usize = 256;
/// Longest sealed record, in bytes: etcd takes requests of 1.5 MiB, and a transaction has several.
pub const RECORD_LEN_MAX: usize = 64 << 10;
/// Most records that one transaction may look at, and most that it may change: etcd's default is 128 operations.
pub const TRANSACTION_RECORDS_MAX: usize = 100;
/// Most bytes of paths and sealed records in one transaction, below the 1.5 MiB that etcd takes.
pub const TRANSACTION_BYTES_MAX: usize = 1 << 20;

/// One record of the ledger.
#[derive(Clone, PartialEq, Eq)]
pub struct Entry {
    /// Where it lies, as in `key/4f02...`: kinds and names, divided by `/`.
    pub path: String,
    /// What lies there, sealed.
    pub sealed: Vec<u8>,
    /// The commit that put it there.
    pub revision: i64,
}

/// A record of the ledger that lies somewhere else.
#[derive(Clone, Copy)]
pub struct Sealed<'a> {
    /// Where it lies in the ledger.
    pub path: &'a str,
    /// What lies there, sealed.
    pub sealed: &'a [u8],
    /// The commit that put it there.
    pub revision: i64,
}

impl Entry {
    /// The same, without taking it along.
    pub fn borrowed(&self) -> Sealed<'_> {
        Sealed { path: &self.path, sealed: &self.sealed, revision: self.revision }
    }
}

impl fmt::Debug for Entry {
    /// Without what is sealed: nobody can read it, and there may be much of it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({} bytes, commit {})", self.path, self.sealed.len(), self.revision)
    }
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
    /// Records that are to be no more; that one of them is none already is no conflict.
    pub remove: Vec<String>,
}

impl Transaction {
    /// Whether a ledger may be asked for it at all. Every ledger checks it so before it does anything.
    pub(crate) fn check(&self) -> Result<(), LedgerError> {
        let changed = self.put.iter().map(|(path, _)| path).chain(&self.remove);
        let looked_at = self.expect.iter().map(|(path, _)| path);
        let record_bytes_max = self.put.iter().map(|(_, sealed)| sealed.len()).max().unwrap_or(0);
        let bytes = changed.clone().chain(looked_at.clone()).map(String::len).sum::<usize>()
            + self.put.iter().map(|(_, sealed)| sealed.len()).sum::<usize>();
        let records = self.expect.len().max(self.put.len() + self.remove.len());
        if records > TRANSACTION_RECORDS_MAX || record_bytes_max > RECORD_LEN_MAX || bytes > TRANSACTION_BYTES_MAX {
            return Err(LedgerError::TooLarge { records, record_bytes_max, bytes });
        }
        for paths in [looked_at.collect::<Vec<_>>(), changed.collect()] {
            let mut seen = HashSet::new();
            for path in paths {
                if !is_path(path) {
                    return Err(LedgerError::Malformed { what: format!("{path:?} is no path") });
                }
                if !seen.insert(path) {
                    return Err(LedgerError::Malformed { what: format!("it names {path} twice") });
                }
            }
        }
        Ok(())
    }
}

/// Whether a record may lie there: not too long, and nothing in it that a terminal would act on.
pub(crate) fn is_path(path: &str) -> bool {
    !path.is_empty() && path.len() <= PATH_LEN_MAX && !path.chars().any(char::is_control)
}

/// What became of a transaction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// The majority holds it on disk.
    Committed {
        /// Its commit; if it changed nothing, the last one before it.
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

impl Change {
    /// The record that was changed.
    pub fn path(&self) -> &str {
        match self {
            Self::Put(Entry { path, .. }) | Self::Removed { path, .. } => path,
        }
    }

    /// The commit that changed it.
    pub fn revision(&self) -> i64 {
        match self {
            Self::Put(Entry { revision, .. }) | Self::Removed { revision, .. } => *revision,
        }
    }
}

/// The changes of one or more whole commits: never a part of one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Changes {
    /// The last commit that they bring up to.
    pub revision: i64,
    /// The changes, in the order of their commits.
    pub changes: Vec<Change>,
}

/// What a watch brings.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Watched {
    /// Something was committed. It may be old news: only [`Watched::Current`] says how fresh a copy is.
    Changes(Changes),
    /// The majority, asked at that moment, had nothing that this watch has not brought.
    Current {
        /// The last commit of the whole ledger, which may have changed nothing that is watched.
        revision: i64,
        /// When the majority was asked, not when it answered.
        asked: Instant,
    },
}

/// How much of its room a ledger has used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Room {
    /// What its largest member takes on its disk. What was replaced is in it until the member was compacted and
    /// defragmented.
    pub used_bytes: u64,
    /// How much a member takes at most.
    pub quota_bytes: u64,
    /// A member has met its quota: nothing is committed any more.
    pub is_full: bool,
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
    #[error("the cluster's answer was lost: the change may have been made. Check that before you ask for it again")]
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
    /// Operator: the majority's members have no room left for records.
    #[error(
        "the ledger is full, and nothing was changed: its members take no more (etcd's --quota-backend-bytes). Compact and defragment \
         etcd or raise its quota, then disarm its alarm NOSPACE"
    )]
    Full {
        /// What the client of the ledger says.
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// Operator: the files that open the way to the ledger cannot be used.
    #[error("{what}")]
    Unusable {
        /// Which, why, and what to do.
        what: String,
        /// What the host says.
        #[source]
        source: Option<Box<dyn std::error::Error + Send + Sync>>,
    },
    /// Caller: the transaction is larger than a ledger takes.
    #[error(
        "a change of {records} records, {bytes} bytes, the longest of {record_bytes_max}, is too large for the ledger: it takes \
         {TRANSACTION_RECORDS_MAX} records, {TRANSACTION_BYTES_MAX} bytes, the longest of {RECORD_LEN_MAX}"
    )]
    TooLarge {
        /// How many records it looks at, or changes.
        records: usize,
        /// Its longest record.
        record_bytes_max: usize,
        /// Its paths and records together.
        bytes: usize,
    },
    /// Caller: the transaction makes no sense.
    #[error("invalid transaction: {what}")]
    Malformed {
        /// Why.
        what: String,
    },
    /// Operator: the ledger has lost commits that it once had.
    #[error(
        "the ledger is at commit {found} and was at commit {known}: it was put back to an older state, and is not believed. Restore \
         the newer one; if it is lost for good, begin a new epoch"
    )]
    WentBack {
        /// The commit that was seen.
        known: i64,
        /// Its last one now.
        found: i64,
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

    /// All changes after commit `after`, as they happen, each commit whole. As long as the majority is reachable the
    /// stream says [`Watched::Current`] at least each second (a machine that is busy may be later), so that whoever
    /// watches knows how fresh its copy is. It ends with an error when the ledger can no longer be followed; it is then
    /// asked for anew, or a snapshot is read.
    fn watch(&self, after: i64) -> BoxStream<'_, Result<Watched, LedgerError>>;

    /// Forgets how it came to the state of that commit: what was replaced up to then can no longer be asked for.
    /// Nothing of what is changes; a watch from before is refused with [`LedgerError::Compacted`]. To forget twice is
    /// to forget once.
    fn forget(&self, revision: i64) -> BoxFuture<'_, Result<(), LedgerError>>;

    /// How much room it has; nothing where it has no bound.
    fn room(&self) -> BoxFuture<'_, Result<Option<Room>, LedgerError>> {
        Box::pin(std::future::ready(Ok(None)))
    }
}
