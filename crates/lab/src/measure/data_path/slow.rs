//! A source that is slower than it is, and is counted as it is read.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use capstan_format::FileEntry;
use capstan_mover::{Connection, Stopped, StreamSink};

use super::SlowSource;

/// A connection that gets bytes no faster than it may.
pub(super) struct Slowed<'a> {
    pub(super) connection: Connection,
    pub(super) slow: SlowSource,
    /// When this connection may have more.
    pub(super) due: Instant,
    /// When any connection may have more.
    pub(super) together: &'a Mutex<Instant>,
    /// What it has read.
    pub(super) count: Count<'a>,
    /// Set when no more is to be read.
    pub(super) enough: &'a AtomicBool,
}

/// Bytes that a connection counts by itself: a counter that all write for each small file would cost as much as the
/// file.
const COUNTS: u64 = 64 << 10;

/// One connection's share of what all have read.
pub(super) struct Count<'a> {
    all: &'a AtomicU64,
    mine: u64,
}

impl<'a> Count<'a> {
    /// Nothing yet, to be added to what all have.
    pub(super) fn of(all: &'a AtomicU64) -> Self {
        Self { all, mine: 0 }
    }

    fn add(&mut self, bytes: u64) {
        self.mine += bytes;
        if self.mine >= COUNTS {
            self.all.fetch_add(std::mem::take(&mut self.mine), Ordering::Relaxed);
        }
    }
}

impl Drop for Count<'_> {
    fn drop(&mut self) {
        self.all.fetch_add(self.mine, Ordering::Relaxed);
    }
}

/// Sleeps are no longer than this, so that whoever stops it need not wait.
const SLEEP: Duration = Duration::from_millis(20);

/// Time that a slow source may make up: a sleep is rarely as short as it should be. What it was held up for longer is
/// lost to it, as to any disk.
const MAKES_UP: Duration = Duration::from_millis(10);

/// When more may be had, after so many bytes at this rate.
fn due_after(due: Instant, len: usize, mb_per_s: Option<f64>) -> Instant {
    let Some(rate) = mb_per_s else { return due };
    let now = Instant::now();
    due.max(now.checked_sub(MAKES_UP).unwrap_or(now)) + Duration::from_secs_f64(len as f64 / 1e6 / rate)
}

impl StreamSink for Slowed<'_> {
    fn space(&mut self) -> Result<&mut [u8], Stopped> {
        // Nobody waits for a source that is as fast as it is.
        while self.slow != SlowSource::default() {
            let together = *self.together.lock().unwrap_or_else(PoisonError::into_inner);
            let left = self.due.max(together).saturating_duration_since(Instant::now());
            if left.is_zero() {
                break;
            }
            if self.enough.load(Ordering::Relaxed) {
                return Err(Stopped);
            }
            std::thread::sleep(left.min(SLEEP));
        }
        self.connection.space()
    }

    fn advance(&mut self, len: usize) {
        self.due = due_after(self.due, len, self.slow.connection_mb_per_s);
        if self.slow.mb_per_s.is_some() {
            let mut together = self.together.lock().unwrap_or_else(PoisonError::into_inner);
            *together = due_after(*together, len, self.slow.mb_per_s);
        }
        self.count.add(len as u64);
        self.connection.advance(len);
    }

    fn position(&self) -> u64 {
        self.connection.position()
    }

    fn connection(&self) -> u16 {
        self.connection.connection()
    }

    fn left_of_chunk(&self) -> usize {
        self.connection.left_of_chunk()
    }

    fn takes_fragments(&self) -> bool {
        self.connection.takes_fragments()
    }

    fn member(&mut self, entry: FileEntry) {
        self.connection.member(entry);
    }
}
