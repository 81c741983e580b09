//! What a replica keeps although the ledger says otherwise.
//!
//! The ledger is written by whoever may write to etcd, and a node believes the cluster alone. A record of a family that
//! is never deleted bare ([`crate::family`]) and is gone, one that went back to an older change, one that does not open
//! where a good one was: the file keeps the version that it had. It says so in the record's revision, so that the doubt
//! outlives a restart:
//! ```text
//!  r > 0   the ledger has it, put there by commit r
//!  0       the ledger has none
//!  -r      the ledger has something else there, put by commit r, that is not believed
//! ```
//! Without the cluster's keys only what a record claims of itself can be looked at; a node that is locked takes a
//! forgery that counts on for a change, and trusts the record with nothing once it is unlocked and cannot open it.

use std::fmt;
use std::sync::Arc;

use crate::family::{Ending, ending_of};
use crate::ledger::{Change, Changes, Entry, Snapshot};
use crate::seal::Sealer;

/// Who can tell a record of the cluster from a forgery.
pub trait Judge: Send + Sync {
    /// Whether the cluster has sealed this for its path; whoever has no keys says yes.
    fn is_genuine(&self, entry: &Entry) -> bool;
}

/// The rule by which a record is kept.
#[derive(Clone)]
pub(super) struct Keep(pub(super) Arc<dyn Judge>);

impl fmt::Debug for Keep {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Keep")
    }
}

impl Keep {
    /// What stays in the place of a record that a change would take away or put back.
    pub(super) fn instead(&self, before: Option<Entry>, change: &Change) -> Option<Entry> {
        let before = before?;
        match change {
            Change::Removed { path, .. } => self.missing(path, before),
            Change::Put(entry) => self.unbelieved(before, entry),
        }
    }

    /// What stays of a record that is not there any more.
    pub(super) fn missing(&self, path: &str, before: Entry) -> Option<Entry> {
        match ending_of(path) {
            Ending::Deletion => None,
            Ending::Never | Ending::Tombstone => Some(Entry { revision: 0, ..before }),
        }
    }

    /// What stays of a record that another was put over.
    pub(super) fn unbelieved(&self, before: Entry, entry: &Entry) -> Option<Entry> {
        if entry.sealed == before.sealed {
            return None;
        }
        let (then, now) = (Sealer::claimed(&before.sealed), Sealer::claimed(&entry.sealed));
        let goes_on = now.is_some() && now > then || !self.0.is_genuine(&before);
        let believed = goes_on && self.0.is_genuine(entry);
        (!believed).then_some(Entry { revision: -entry.revision, ..before })
    }
}

/// Puts what was kept in the place of the changes that were not believed, each named by its number.
pub(super) fn changes_as_kept(changes: &mut Changes, kept: Vec<(usize, Entry)>) {
    for (at, entry) in kept {
        changes.changes[at] = Change::Put(entry);
    }
}

/// A snapshot with what was kept in it.
pub(super) fn snapshot_as_kept(snapshot: &mut Snapshot, kept: Vec<Entry>) {
    if kept.is_empty() {
        return;
    }
    let paths: std::collections::HashSet<&str> = kept.iter().map(|entry| &*entry.path).collect();
    snapshot.entries.retain(|entry| !paths.contains(&*entry.path));
    snapshot.entries.extend(kept);
    snapshot.entries.sort_by(|one, other| one.path.cmp(&other.path));
}

#[cfg(test)]
mod tests;
