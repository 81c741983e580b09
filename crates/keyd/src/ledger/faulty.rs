//! A ledger that fails as one behind a network does: late.
//!
//! What matters most is the commit that happened and whose answer is lost; its twin is the commit that was lost on the
//! way, which looks the same from outside. Both are [`LedgerError::Unknown`].

use std::sync::{Mutex, PoisonError};

use futures_util::StreamExt;
use futures_util::future::BoxFuture;
use futures_util::stream::{self, BoxStream};

use super::{Ledger, LedgerError, Outcome, Room, Snapshot, Transaction, Watched};
use crate::seeded::Seeded;

/// How often what goes wrong, each in percent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Faults {
    /// A commit or a read that finds no majority.
    pub unreachable: u8,
    /// A commit that is lost before it happens.
    pub lost_before: u8,
    /// A commit that happens and whose answer is lost.
    pub lost_after: u8,
    /// A watch that breaks instead of saying the next thing.
    pub cut: u8,
    /// A watch that says the next thing later than others do theirs.
    pub delayed: u8,
    /// A watch that is refused since its history is no longer kept.
    pub compacted: u8,
}

/// A ledger with faults; the same seed and the same calls give the same ones.
#[derive(Debug)]
pub struct FaultyLedger<L> {
    inner: L,
    faults: Faults,
    seeded: Mutex<Seeded>,
}

impl<L: Ledger> FaultyLedger<L> {
    /// Puts faults before a ledger.
    pub fn new(inner: L, seed: u64, faults: Faults) -> Self {
        Self { inner, faults, seeded: Mutex::new(Seeded::new(seed)) }
    }

    /// The ledger without its faults.
    pub fn inner(&self) -> &L {
        &self.inner
    }

    fn happens(&self, percent: u8) -> bool {
        self.seeded.lock().unwrap_or_else(PoisonError::into_inner).percent(percent)
    }

    /// Lets other tasks go first, some times.
    async fn delay(&self) {
        let turns = self.seeded.lock().unwrap_or_else(PoisonError::into_inner).below(20);
        for _ in 0..turns {
            tokio::task::yield_now().await;
        }
    }
}

fn unreachable() -> LedgerError {
    LedgerError::Unreachable { source: "a simulated fault".into() }
}

fn unknown() -> LedgerError {
    LedgerError::Unknown { source: "a simulated fault".into() }
}

impl<L: Ledger> Ledger for FaultyLedger<L> {
    fn commit(&self, transaction: Transaction) -> BoxFuture<'_, Result<Outcome, LedgerError>> {
        Box::pin(async move {
            if self.happens(self.faults.unreachable) {
                return Err(unreachable());
            }
            if self.happens(self.faults.lost_before) {
                return Err(unknown());
            }
            let outcome = self.inner.commit(transaction).await?;
            if self.happens(self.faults.lost_after) {
                return Err(unknown());
            }
            Ok(outcome)
        })
    }

    fn read<'a>(&'a self, prefix: &'a str) -> BoxFuture<'a, Result<Snapshot, LedgerError>> {
        Box::pin(async move {
            if self.happens(self.faults.unreachable) {
                return Err(unreachable());
            }
            self.inner.read(prefix).await
        })
    }

    fn forget(&self, revision: i64) -> BoxFuture<'_, Result<(), LedgerError>> {
        Box::pin(async move {
            if self.happens(self.faults.unreachable) {
                return Err(unreachable());
            }
            self.inner.forget(revision).await
        })
    }

    fn room(&self) -> BoxFuture<'_, Result<Option<Room>, LedgerError>> {
        self.inner.room()
    }

    fn watch(&self, after: i64) -> BoxStream<'_, Result<Watched, LedgerError>> {
        if self.happens(self.faults.compacted) {
            return stream::once(async move { Err(LedgerError::Compacted { from: after + 1 }) }).boxed();
        }
        stream::unfold(Some(self.inner.watch(after)), move |watch| async move {
            let mut watch = watch?;
            if self.happens(self.faults.cut) {
                return Some((Err(unreachable()), None));
            }
            let next = watch.next().await?;
            if self.happens(self.faults.delayed) {
                self.delay().await;
            }
            Some((next, Some(watch)))
        })
        .boxed()
    }
}
