//! Taking in what the replica holds: all of it at a start, and what is committed from then on.
//!
//! ```text
//!  parts of the replica --+--> thread: open, decode --+
//!                         +--> thread: open, decode --+--> state, in the order of the parts --> swapped in
//! ```
//! To open and to decode a record takes longer than to file it, and of a million records it takes seconds: so the machine's processors
//! share it, and nobody is kept waiting meanwhile. What a commit brings is decoded before the state is held, too, and filed some commits at
//! a time: a commit is taken in as a whole or not at all, since what it changed belongs together.

use std::num::NonZero;
use std::sync::mpsc::sync_channel;
use std::thread;

use super::{DOUBTS_MAX, Node};
use crate::ledger::{Change, Changes, Sealed};
use crate::state::{Decoded, Mark, State};

/// Records that are filed while the state is held once; a commit that has more is filed as a whole.
pub const FILED_AT_ONCE: usize = 256;
/// More threads than this do not help: one files what they decode.
const THREADS_MAX: usize = 4;
/// Decoded parts of each thread that wait to be filed.
const PARTS_WAITING: usize = 2;

/// A record, or why it is not believed.
type Read = Result<Decoded, String>;

/// What a change does to the state.
enum Step {
    Put(Read),
    Remove(String),
}

impl Node {
    /// Takes in what its replica holds, at the start or when it was made anew: parts of it, which several threads read. `heard_ns` is when
    /// the majority was heard last.
    pub fn load<'a, P>(&self, parts: Vec<P>, revision: i64, heard_ns: i64)
    where
        P: Iterator<Item = Sealed<'a>> + Send,
    {
        let (mut state, mut doubts) = (State::default(), Vec::new());
        self.read_all(parts, |read| {
            let filed = read.and_then(|decoded| state.put_decoded(decoded).map_err(|error| error.to_string()));
            // A replica of another cluster would be a doubt for each record.
            if let Err(doubt) = filed
                && doubts.len() < DOUBTS_MAX
            {
                doubts.push(doubt);
            }
        });
        let mut memory = self.memory_mut();
        let before = std::mem::replace(&mut memory.state, state);
        doubts.into_iter().for_each(|doubt| memory.doubt(doubt));
        drop(memory);
        // To let go of a million records takes time as well.
        drop(before);
        self.progress.send_modify(|progress| {
            progress.applied = revision;
            progress.heard_ns = progress.heard_ns.max(heard_ns);
        });
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
            for step in steps {
                let filed = match step {
                    Step::Remove(path) => {
                        memory.state.remove(&path);
                        Ok(())
                    }
                    Step::Put(read) => {
                        read.and_then(|decoded| memory.state.put_decoded(decoded).map_err(|error| error.to_string()))
                    }
                };
                if let Err(doubt) = filed {
                    memory.doubt(doubt);
                }
            }
        }
        self.progress.send_modify(|progress| progress.applied = progress.applied.max(changes.revision));
    }

    fn step(&self, change: &Change) -> Step {
        match change {
            Change::Put(entry) => Step::Put(self.read_sealed(entry.borrowed())),
            Change::Removed { path, .. } => Step::Remove(path.clone()),
        }
    }

    /// Opens a record and decodes it. One that is not believed leaves what is known of it as it was, and is named.
    fn read_sealed(&self, record: Sealed<'_>) -> Read {
        let Sealed { path, sealed, revision } = record;
        let opened = self.keys.sealer().open(path, sealed).map_err(|error| error.to_string())?;
        if opened.epoch != self.epoch {
            return Err(format!("{path} is of epoch {}, and this node of epoch {}", opened.epoch, self.epoch));
        }
        let mark = Mark { revision, change: opened.change };
        Decoded::read(path, mark, &opened.plaintext).map_err(|error| error.to_string())
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
