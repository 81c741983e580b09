//! A source that is slower than it is.

use std::sync::atomic::{AtomicBool, Ordering};
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
    /// Set when no more is to be read.
    pub(super) enough: &'a AtomicBool,
}

/// Sleeps are no longer than this, so that whoever stops it need not wait.
const SLEEP: Duration = Duration::from_millis(20);

/// Time that a slow source may make up: a sleep is rarely as short as it should be. What it was held up for longer is lost to it, as to
/// any disk.
const MAKES_UP: Duration = Duration::from_millis(10);

/// When more may be had, after so many bytes at this rate.
fn due_after(due: Instant, len: usize, mb_per_s: Option<f64>) -> Instant {
    let Some(rate) = mb_per_s else { return due };
    let now = Instant::now();
    due.max(now.checked_sub(MAKES_UP).unwrap_or(now)) + Duration::from_secs_f64(len as f64 / 1e6 / rate)
}

impl StreamSink for Slowed<'_> {
    fn space(&mut self) -> Result<&mut [u8], Stopped> {
        let together = *self.together.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
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
        let mut together = self.together.lock().unwrap_or_else(PoisonError::into_inner);
        *together = due_after(*together, len, self.slow.mb_per_s);
        drop(together);
        self.connection.advance(len);
    }

    fn position(&self) -> u64 {
        self.connection.position()
    }

    fn connection(&self) -> u16 {
        self.connection.connection()
    }

    fn member(&mut self, entry: FileEntry) {
        self.connection.member(entry);
    }
}
