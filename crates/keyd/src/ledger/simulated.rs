//! A ledger in memory, for tests and simulations: it keeps every promise of [`Ledger`] as long as its process lives.
//!
//! It has the majority on its side always: [`FaultyLedger`](super::FaultyLedger) is what makes it fail.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::future::BoxFuture;
use futures_util::stream::{self, BoxStream};
use tokio::sync::watch;
use tokio::time::Instant;

use super::{Change, Changes, Entry, Expected, Ledger, LedgerError, Outcome, Snapshot, Transaction, Watched};

/// How often a watch says that it is current while nothing happens.
const BEAT: Duration = Duration::from_millis(100);

/// A ledger in memory.
#[derive(Debug)]
pub struct SimulatedLedger {
    state: Mutex<State>,
    /// The last commit, for those who watch.
    committed: watch::Sender<i64>,
}

#[derive(Debug)]
struct State {
    revision: i64,
    records: BTreeMap<String, Entry>,
    /// The commits after `compacted`, the oldest first.
    history: VecDeque<Changes>,
    compacted: i64,
}

impl Default for SimulatedLedger {
    fn default() -> Self {
        Self::new()
    }
}

impl SimulatedLedger {
    /// An empty one.
    pub fn new() -> Self {
        // An etcd without any record is at 1 too.
        let state = State { revision: 1, records: BTreeMap::new(), history: VecDeque::new(), compacted: 0 };
        Self { state: Mutex::new(state), committed: watch::Sender::new(1) }
    }

    /// Forgets how it came to the state of that commit: a watch from before it is refused.
    pub fn compact(&self, revision: i64) {
        let mut state = self.lock();
        state.compacted = revision.min(state.revision).max(state.compacted);
        let compacted = state.compacted;
        state.history.retain(|commit| commit.revision > compacted);
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn commit(&mut self, transaction: Transaction) -> Result<Outcome, LedgerError> {
        transaction.check()?;
        let as_expected = |(path, expected): &(String, Expected)| match *expected {
            Expected::Absent => !self.records.contains_key(path),
            Expected::At { revision } => self.records.get(path).is_some_and(|entry| entry.revision == revision),
        };
        if !transaction.expect.iter().all(as_expected) {
            return Ok(Outcome::Conflict);
        }
        let revision = self.revision + 1;
        let mut changes = Vec::new();
        for (path, sealed) in transaction.put {
            let entry = Entry { path: path.clone(), sealed, revision };
            changes.push(Change::Put(entry.clone()));
            self.records.insert(path, entry);
        }
        for path in transaction.remove {
            if self.records.remove(&path).is_some() {
                changes.push(Change::Removed { path, revision });
            }
        }
        if !changes.is_empty() {
            self.revision = revision;
            self.history.push_back(Changes { revision, changes });
        }
        Ok(Outcome::Committed { revision: self.revision })
    }

    /// What a watch that has brought everything up to `after` says next, if there is anything.
    fn next_after(&self, after: i64) -> Result<Option<Watched>, LedgerError> {
        if after > self.revision {
            return Err(LedgerError::WentBack { known: after, found: self.revision });
        }
        if after < self.compacted {
            return Err(LedgerError::Compacted { from: after + 1 });
        }
        Ok(self.history.iter().find(|commit| commit.revision > after).cloned().map(Watched::Changes))
    }
}

impl Ledger for SimulatedLedger {
    fn commit(&self, transaction: Transaction) -> BoxFuture<'_, Result<Outcome, LedgerError>> {
        Box::pin(async move {
            let mut state = self.lock();
            let outcome = state.commit(transaction)?;
            self.committed.send_replace(state.revision);
            Ok(outcome)
        })
    }

    fn read<'a>(&'a self, prefix: &'a str) -> BoxFuture<'a, Result<Snapshot, LedgerError>> {
        Box::pin(async move {
            let state = self.lock();
            let from = state.records.range(prefix.to_owned()..);
            let entries = from.take_while(|(path, _)| path.starts_with(prefix)).map(|(_, entry)| entry.clone());
            Ok(Snapshot { revision: state.revision, entries: entries.collect() })
        })
    }

    fn forget(&self, revision: i64) -> BoxFuture<'_, Result<(), LedgerError>> {
        self.compact(revision);
        Box::pin(std::future::ready(Ok(())))
    }

    fn watch(&self, after: i64) -> BoxStream<'_, Result<Watched, LedgerError>> {
        let state = (after, self.committed.subscribe(), Pace::AtOnce);
        stream::try_unfold(state, move |(after, mut committed, mut pace)| async move {
            loop {
                let asked = Instant::now();
                let (next, revision) = {
                    committed.mark_unchanged();
                    let state = self.lock();
                    (state.next_after(after)?, state.revision)
                };
                let next = match (next, pace) {
                    (Some(Watched::Changes(changes)), _) => {
                        return Ok(Some((Watched::Changes(changes.clone()), (changes.revision, committed, pace))));
                    }
                    (_, Pace::AtOnce) => Watched::Current { revision, asked },
                    (_, Pace::AfterPause) => {
                        let _ = tokio::time::timeout(BEAT, committed.changed()).await;
                        pace = Pace::AtOnce;
                        continue;
                    }
                };
                return Ok(Some((next, (after, committed, Pace::AfterPause))));
            }
        })
        .boxed()
    }
}

/// When a watch says that it is current.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Pace {
    AtOnce,
    AfterPause,
}
