//! Whole commits out of the answers of a watch.
//!
//! etcd divides an answer that is longer than a request may be (1.5 MiB and a little) into fragments, anywhere, also
//! within a commit. What comes is in the order of commits, so that everything before the last commit of a fragment is
//! whole.
//!
//! ```text
//! fragment  | 7 7 8 9 9 |      | 9 9 9 10 |    the last one
//! goes out    7 7 8              9 9 9 9 9 10
//! held back         9 9
//! ```

use crate::ledger::{Change, Changes, LedgerError};

/// Whether more of the same answer is to come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Part {
    Fragment,
    Last,
}

/// What has come of a watch and is not whole yet.
#[derive(Debug)]
pub(super) struct Assembly {
    /// The last commit that is whole.
    whole: i64,
    /// Events of commits after it; without a change where they are not of our records.
    held_back: Vec<(i64, Option<Change>)>,
}

impl Assembly {
    pub(super) fn after(revision: i64) -> Self {
        Self { whole: revision, held_back: Vec::new() }
    }

    /// The last commit that was brought as a whole.
    pub(super) fn whole(&self) -> i64 {
        self.whole
    }

    /// Adds events with their commits; gives what is whole now and concerns us.
    pub(super) fn add(
        &mut self,
        events: impl IntoIterator<Item = (i64, Option<Change>)>,
        part: Part,
    ) -> Result<Option<Changes>, LedgerError> {
        for (revision, change) in events {
            let last = self.held_back.last().map_or(self.whole + 1, |(last, _)| *last);
            if revision < last {
                return Err(LedgerError::Protocol {
                    what: format!("the watch brought commit {revision} when it was at commit {last}"),
                });
            }
            self.held_back.push((revision, change));
        }
        let Some(&(last, _)) = self.held_back.last() else { return Ok(None) };
        let whole = match part {
            Part::Last => self.held_back.len(),
            Part::Fragment => self.held_back.partition_point(|(revision, _)| *revision < last),
        };
        let Some(&(revision, _)) = self.held_back[..whole].last() else { return Ok(None) };
        self.whole = revision;
        let changes: Vec<_> = self.held_back.drain(..whole).filter_map(|(_, change)| change).collect();
        Ok((!changes.is_empty()).then_some(Changes { revision, changes }))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests fail by panicking")]
    use super::*;

    fn event(revision: i64, path: &str) -> (i64, Option<Change>) {
        (revision, Some(Change::Removed { path: path.to_owned(), revision }))
    }

    fn paths(changes: Option<Changes>) -> (i64, String) {
        let changes = changes.unwrap();
        let path = |change: &Change| match change {
            Change::Put(entry) => entry.path.clone(),
            Change::Removed { path, .. } => path.clone(),
        };
        (changes.revision, changes.changes.iter().map(path).collect())
    }

    #[test]
    fn a_commit_that_was_divided_goes_out_as_a_whole() {
        let mut assembly = Assembly::after(6);
        let first = [event(7, "a"), event(7, "b"), event(8, "c"), event(9, "d")];
        assert_eq!(paths(assembly.add(first, Part::Fragment).unwrap()), (8, "abc".to_owned()));
        assert_eq!(assembly.add([event(9, "e")], Part::Fragment).unwrap(), None);
        assert_eq!(assembly.whole(), 8);
        assert_eq!(paths(assembly.add([event(9, "f"), event(10, "g")], Part::Last).unwrap()), (10, "defg".to_owned()));
    }

    #[test]
    fn what_is_not_ours_brings_nothing_and_counts_as_brought() {
        let mut assembly = Assembly::after(6);
        assert_eq!(assembly.add([(7, None), (8, None)], Part::Last).unwrap(), None);
        assert_eq!(assembly.whole(), 8);
        assert_eq!(paths(assembly.add([(9, None), event(9, "a"), (10, None)], Part::Last).unwrap()), (10, "a".into()));
    }

    #[test]
    fn a_commit_that_comes_twice_or_too_late_is_not_taken() {
        let mut assembly = Assembly::after(6);
        assert!(assembly.add([event(6, "a")], Part::Last).is_err());
        let mut assembly = Assembly::after(6);
        assert!(assembly.add([event(8, "a"), event(7, "b")], Part::Last).is_err());
    }
}
