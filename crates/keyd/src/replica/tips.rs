//! The newest records of a replica: by them a ledger is known again before it is followed.
//!
//! A ledger that was made anew, or put back to an older state and written to since, may be at a later commit than the
//! replica, and nothing in its changes from there on shows what it has lost. But it lost its newest records first. So
//! the replica notes its [`TIPS`] newest, of those that no node deletes bare and that are not rewritten all day
//! ([`crate::family`]), and asks the ledger for each ([`Tip::held_against`]):
//! ```text
//!  there, by the same commit, with the same bytes      known again
//!  there, by a later commit, counting on               changed since: says nothing
//!  there, by a commit that the replica had reached,
//!     as another record than the replica's             another history: one is enough
//!  missing or doubtful, and older than a tip that
//!     is known again                                   a matter of this record ([`super::keep`])
//!  missing, newer than each that is known again, and
//!     the history from the replica's commit on shows
//!     no deletion, or is forgotten                     another history: one is enough
//!  missing, and that history shows who took it away    a matter of this record
//!  there, by a later commit, and not counting on       doubtful: somebody put an old record back, or the cluster wrote anew what it had lost
//! ```
//! **The rule:** another history is not followed; nor is a ledger in which more tips are doubtful than are known again,
//! of those that are newer than each of these. A state that was put back has all that came before its newest record:
//! what is missing below one that is known again was deleted, and no history need be left to show that.
//!
//! **What is seen so:** an etcd made anew; a snapshot from before the replica's last commit, however much was written
//! to it since, as soon as one record of the tips was made or changed between the two; a second restore of the same
//! backup, whose records have other bytes.
//!
//! **What is not:** a state whose loss is of records alone that are rewritten all day or of pools, which nobody misses
//! (a key of a pool that the ledger has not is given out by no commit); one in which each tip was written again and
//! more often than before; a ledger that is replayed by whoever has the cluster's keys. A node whose replica is older
//! than the state that was put back has lost nothing, and sees nothing: those that were ahead of it do.

use super::keep::Keep;
use crate::family::{Ending, ending_of, is_rewritten};
use crate::ledger::{Change, Entry};

/// How many are compared: those of the last eight volumes begun, or so, and each costs a read of the ledger.
pub(super) const TIPS: usize = 16;

/// Paths of the newest records, the newest first.
#[derive(Debug, Default)]
pub(super) struct Tips(Vec<(i64, String)>);

impl Tips {
    pub(super) fn note(&mut self, entry: &Entry) {
        let is_tip = entry.revision > 0 && ending_of(&entry.path) != Ending::Deletion && !is_rewritten(&entry.path);
        let oldest = self.0.last().map_or(0, |(revision, _)| *revision);
        if !is_tip || self.0.len() == TIPS && entry.revision < oldest {
            return;
        }
        self.forget(&entry.path);
        let at = self.0.partition_point(|(revision, _)| *revision > entry.revision);
        self.0.insert(at, (entry.revision, entry.path.clone()));
        self.0.truncate(TIPS);
    }

    /// Notes changes, but those in whose place something else was kept: each of these is a doubt of its own.
    pub(super) fn note_changes(&mut self, changes: &[Change], kept: &[(usize, Entry)]) {
        for (at, change) in changes.iter().enumerate() {
            match change {
                Change::Put(entry) if !kept.iter().any(|(kept, _)| *kept == at) => self.note(entry),
                Change::Put(Entry { path, .. }) | Change::Removed { path, .. } => self.forget(path),
            }
        }
    }

    /// This record tells nothing of the ledger any more.
    pub(super) fn forget(&mut self, path: &str) {
        self.0.retain(|(_, tip)| tip != path);
    }

    pub(super) fn paths(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(|(_, path)| path.as_str())
    }
}

/// What a ledger has of a tip.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Tip {
    Known,
    Changed,
    Doubtful,
    Missing,
    /// By a commit that the replica had reached: it was never there.
    Other {
        revision: i64,
    },
}

impl Tip {
    /// Holds a tip of a replica that has all up to `applied` against what the ledger has there.
    pub(super) fn held_against(keep: &Keep, tip: &Entry, found: Option<&Entry>, applied: i64) -> Self {
        match found {
            None => Self::Missing,
            Some(found) if found == tip => Self::Known,
            Some(found) if found.revision <= applied => Self::Other { revision: found.revision },
            Some(found) if keep.unbelieved(tip.clone(), found).is_some() || found.sealed == tip.sealed => {
                Self::Doubtful
            }
            Some(_) => Self::Changed,
        }
    }
}
