//! The newest records of a replica: by them a ledger is known again before it is followed.

use crate::family::{Ending, ending_of};
use crate::ledger::{Change, Entry};

/// How many are compared.
const TIPS: usize = 4;

/// Paths of the newest records, the newest first, of families that are never deleted bare.
#[derive(Debug, Default)]
pub(super) struct Tips(Vec<(i64, String)>);

impl Tips {
    pub(super) fn note(&mut self, entry: &Entry) {
        if entry.revision <= 0 || ending_of(&entry.path) == Ending::Deletion {
            return;
        }
        self.0.retain(|(_, path)| *path != entry.path);
        let at = self.0.partition_point(|(revision, _)| *revision > entry.revision);
        if at < TIPS {
            self.0.insert(at, (entry.revision, entry.path.clone()));
            self.0.truncate(TIPS);
        }
    }

    pub(super) fn note_changes(&mut self, changes: &[Change]) {
        for change in changes {
            if let Change::Put(entry) = change {
                self.note(entry);
            }
        }
    }

    pub(super) fn paths(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(|(_, path)| path.as_str())
    }
}
