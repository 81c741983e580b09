//! Taking in what the replica holds: all of it at a start, and what is committed from then on.
//!
//! ```text
//!  parts of the replica --+--> thread: open, decode --+
//!                         +--> thread: open, decode --+--> state, in the order of the parts --> swapped in
//! ```
//! To open and to decode a record takes longer than to file it, and of a million records it takes seconds: so the
//! machine's processors share it, and nobody is kept waiting meanwhile. What a commit brings is decoded before the
//! state is held, too, and filed some commits at a time: a commit is taken in as a whole or not at all, since what it
//! changed belongs together.

use std::num::NonZero;
use std::sync::mpsc::sync_channel;
use std::thread;

use super::doubt::{Distrusted, of_kept};
use super::doubts::{self, Doubt, DoubtKind};
use super::{Memory, Node, NodeError};
use crate::ledger::{Change, Changes, Sealed};
use crate::seal::SealedContent;
use crate::state::{Decoded, LedgerState, Mark, StateError};

/// Records that are filed while the state is held once; a commit that has more is filed as a whole.
pub const FILED_AT_ONCE: usize = 256;
/// More threads than this do not help: one files what they decode.
const THREADS_MAX: usize = 4;
/// Decoded parts of each thread that wait to be filed.
const PARTS_WAITING: usize = 2;

/// A record that was opened, or why it is not believed.
type Read = Result<Opened, Distrusted>;

/// What a record says.
struct Opened {
    what: What,
    /// What is to be said of it all the same.
    doubt: Option<Doubt>,
}

enum What {
    /// What the ledger has.
    Record(Decoded),
    /// That there is none any more.
    Tombstone(String, Mark),
    /// What the replica has kept, in the place of which the ledger has nothing, or what is not believed. Such records
    /// are few.
    Kept(String, Mark, Option<Vec<u8>>),
}

/// What a change does to the state.
enum Step {
    Put(Read),
    Remove(String, i64),
}

impl Node {
    /// Takes in what its replica holds, at the start or when it was made anew: parts of it, which several threads read.
    pub fn load<'a, P>(&self, parts: Vec<P>, revision: i64)
    where
        P: Iterator<Item = Sealed<'a>> + Send,
    {
        let (mut state, mut doubts) = (LedgerState::default(), Doubts::default());
        self.read_all(parts, |read| doubts.take(file(&mut state, read)));
        let mut memory = self.memory_mut();
        let before = std::mem::replace(&mut memory.state, state);
        doubts.tell(&mut memory);
        drop(memory);
        // To let go of a million records takes time as well.
        drop(before);
        self.progress.send_modify(|progress| progress.applied = revision);
    }

    /// Opens and decodes parts on several threads, and files them in order on this one.
    fn read_all<'a, P>(&self, parts: Vec<P>, mut file: impl FnMut(Read))
    where
        P: Iterator<Item = Sealed<'a>> + Send,
    {
        let threads = thread::available_parallelism().map_or(1, NonZero::get).min(THREADS_MAX).min(parts.len());
        if threads < 2 {
            parts.into_iter().flatten().for_each(|record| file(self.read_sealed(record)));
            return;
        }
        let count = parts.len();
        let mut shares: Vec<Vec<P>> = (0..threads).map(|_| Vec::new()).collect();
        for (number, part) in parts.into_iter().enumerate() {
            shares[number % threads].push(part);
        }
        thread::scope(|scope| {
            let share = |share: Vec<P>| {
                let (decoded, filed) = sync_channel(PARTS_WAITING);
                scope.spawn(move || {
                    for part in share {
                        let part: Vec<Read> = part.map(|record| self.read_sealed(record)).collect();
                        if decoded.send(part).is_err() {
                            return;
                        }
                    }
                });
                filed
            };
            let filed: Vec<_> = shares.into_iter().map(share).collect();
            for number in 0..count {
                // One that has panicked ends the scope with its panic.
                let Ok(part) = filed[number % threads].recv() else { return };
                part.into_iter().for_each(&mut file);
            }
        });
    }

    /// Takes in what was committed, after the replica's disk has it.
    pub fn apply(&self, changes: &Changes) {
        for slice in whole_commits(&changes.changes) {
            let steps: Vec<Step> = slice.iter().map(|change| self.step(change)).collect();
            let mut memory = self.memory_mut();
            let mut doubts = Doubts::default();
            for step in steps {
                match step {
                    Step::Remove(path, revision) => memory.removed(&path, revision),
                    Step::Put(read) => doubts.take(file(&mut memory.state, read)),
                }
            }
            doubts.tell(&mut memory);
        }
        self.progress.send_modify(|progress| progress.applied = progress.applied.max(changes.revision));
    }

    fn step(&self, change: &Change) -> Step {
        match change {
            Change::Put(entry) => Step::Put(self.read_sealed(entry.borrowed())),
            Change::Removed { path, revision } => Step::Remove(path.clone(), *revision),
        }
    }

    /// Opens a record and decodes it. One that is not believed leaves what is known of it as it was, and is named.
    fn read_sealed(&self, record: Sealed<'_>) -> Read {
        let Sealed { path, sealed, revision } = record;
        let distrusted = |why: String| Distrusted { path: path.to_owned(), revision, why, later_epoch: None };
        let opened = self.keys.sealer().open(path, sealed).map_err(|error| distrusted(error.to_string()))?;
        if opened.epoch > self.epoch {
            let why = NodeError::Superseded { epoch: self.epoch, found: opened.epoch }.to_string();
            return Err(Distrusted { later_epoch: Some(opened.epoch), ..distrusted(why) });
        }
        if opened.epoch != self.epoch {
            let why = format!("{path} is of epoch {}, and this node of epoch {}", opened.epoch, self.epoch);
            return Err(distrusted(why));
        }
        let mark = Mark { revision: revision.abs(), change: opened.change };
        let doubt = of_kept(path, revision).or_else(|| self.doubt_of_clock(path, &opened.plaintext));
        let what = match opened.content {
            SealedContent::Record if revision > 0 => {
                let decoded = Decoded::read(path, mark, &opened.plaintext);
                What::Record(decoded.map_err(|error| distrusted(error.to_string()))?)
            }
            SealedContent::Tombstone if revision > 0 => What::Tombstone(path.to_owned(), mark),
            SealedContent::Record => What::Kept(path.to_owned(), mark, Some(opened.plaintext.to_vec())),
            SealedContent::Tombstone => What::Kept(path.to_owned(), mark, None),
        };
        Ok(Opened { what, doubt })
    }
}

/// Files what was read. What is not believed leaves what is known as it was, and what was never known counts for as
/// little as it can.
fn file(state: &mut LedgerState, read: Read) -> Result<Option<Doubt>, Distrusted> {
    let filed = read.and_then(|Opened { what, doubt }| {
        let (revision, filed) = match what {
            What::Record(decoded) => (decoded.revision(), state.put_decoded(decoded)),
            What::Tombstone(path, mark) => (mark.revision, state.bury(&path, mark)),
            What::Kept(path, mark, plaintext) => (0, state.keep(&path, mark, plaintext.as_deref())),
        };
        let distrusted = |error: StateError| {
            let (path, why) = (error.path().to_owned(), error.to_string());
            Distrusted { path, revision, why, later_epoch: None }
        };
        filed.map(|()| doubt).map_err(distrusted)
    });
    filed.inspect_err(|distrusted| distrusted.note(state))
}

/// What is to be said of the records that were filed.
#[derive(Default)]
struct Doubts {
    said: doubts::Doubts,
    later_epoch: Option<u32>,
}

impl Doubts {
    fn take(&mut self, filed: Result<Option<Doubt>, Distrusted>) {
        let doubt = match filed {
            Ok(None) => return,
            Ok(Some(doubt)) => doubt,
            Err(Distrusted { path, why, later_epoch, .. }) => {
                self.later_epoch = self.later_epoch.max(later_epoch);
                match later_epoch {
                    Some(_) => DoubtKind::Superseded.that(why),
                    None => DoubtKind::Record.that(why).about(path),
                }
            }
        };
        self.said.take(doubt);
    }

    fn tell(self, memory: &mut Memory) {
        memory.superseded = memory.superseded.max(self.later_epoch);
        memory.doubt_all(self.said);
    }
}

/// What is filed at a time: whole commits, as many as have [`FILED_AT_ONCE`] records, and one where it alone has more.
fn whole_commits(changes: &[Change]) -> impl Iterator<Item = &[Change]> {
    let mut rest = changes;
    std::iter::from_fn(move || {
        let mut len = 0;
        for commit in rest.chunk_by(|one, next| one.revision() == next.revision()) {
            if len > 0 && len + commit.len() > FILED_AT_ONCE {
                break;
            }
            len += commit.len();
        }
        let (slice, after) = rest.split_at(len);
        rest = after;
        (len > 0).then_some(slice)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ledger::Entry;

    #[test]
    fn commits_are_filed_some_at_a_time_and_never_divided() {
        let lens = [1, FILED_AT_ONCE - 1, 1, FILED_AT_ONCE + 7, 3, 3, FILED_AT_ONCE - 3, 1];
        let commits = lens.iter().zip(1..).flat_map(|(len, revision)| {
            (0..*len).map(move |_| Change::Put(Entry { path: "key".to_owned(), sealed: Vec::new(), revision }))
        });
        let changes: Vec<_> = commits.collect();
        let slices: Vec<Vec<i64>> =
            whole_commits(&changes).map(|slice| slice.iter().map(Change::revision).collect()).collect();
        let expected: [&[i64]; 5] = [&[1, 2], &[3], &[4], &[5, 6], &[7, 8]];
        for (slice, expected) in slices.iter().zip(expected) {
            let mut revisions = slice.clone();
            revisions.dedup();
            assert_eq!(revisions, expected);
        }
        assert_eq!(slices.concat(), changes.iter().map(Change::revision).collect::<Vec<_>>());
    }
}
