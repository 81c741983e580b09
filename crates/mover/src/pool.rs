//! The block pool: every buffer of the data path, allocated once.
//!
//! A buffer holds one chunk of a stream with room for a block header in front of it, so that an uncompressed chunk
//! becomes a block where it lies. A buffer that is dropped goes back to its pool; who wants one while all are out
//! waits, and that waiting is what keeps sources from outrunning drives. The buffer that came back last goes out first:
//! it is still in the processor's caches, and buffers that a fast drive never needs are never touched.

use std::ops::{Deref, DerefMut};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use capstan_format::BLOCK_HEADER_LEN;

/// A fixed number of equal buffers.
#[derive(Clone)]
pub(crate) struct BlockPool {
    free: Arc<Free>,
    chunk_len: usize,
    buffers: usize,
    waited_ns: Arc<AtomicU64>,
}

/// Buffers that nobody has.
struct Free {
    stack: Mutex<Stack>,
    returned: Condvar,
    /// Who waits is woken when there are so many: a source that is faster than the drive reads them all before it
    /// sleeps again.
    worthwhile: usize,
}

struct Stack {
    buffers: Vec<Box<[u8]>>,
    waiting: usize,
}

/// Most buffers that must be there before a source is woken. A session has as many beyond those that its connections
/// and workers may keep while they wait, so that they come back whatever the others do.
const WORTHWHILE_MAX: usize = 8;

/// How often whoever waits for a buffer looks whether to stop.
const STOP_LOOKS: Duration = Duration::from_millis(100);

/// One buffer of a pool; goes back when dropped.
pub(crate) struct Buffer {
    bytes: Box<[u8]>,
    home: Arc<Free>,
}

impl BlockPool {
    /// Allocates `buffers` buffers for chunks of `chunk_len` bytes.
    pub(crate) fn new(buffers: usize, chunk_len: usize) -> Self {
        let all = (0..buffers).map(|_| vec![0; BLOCK_HEADER_LEN + chunk_len].into_boxed_slice()).collect();
        let stack = Mutex::new(Stack { buffers: all, waiting: 0 });
        let worthwhile = (buffers / 8).clamp(1, WORTHWHILE_MAX);
        let free = Arc::new(Free { stack, returned: Condvar::new(), worthwhile });
        Self { free, chunk_len, buffers, waited_ns: Arc::default() }
    }

    /// Takes a buffer, waiting for one if need be.
    pub(crate) fn take(&self) -> Buffer {
        self.take_looking(|stack| (self.free.returned.wait(stack).unwrap_or_else(PoisonError::into_inner), true))
            .expect("nobody ends this wait")
    }

    /// Takes a buffer, waiting for one unless this is set.
    pub(crate) fn take_unless(&self, stop: &AtomicBool) -> Option<Buffer> {
        self.take_looking(|stack| {
            // Where the clock stands still, it waits until a buffer comes back.
            let waited = self.free.returned.wait_timeout(stack, STOP_LOOKS).unwrap_or_else(PoisonError::into_inner);
            (waited.0, !stop.load(Ordering::Relaxed))
        })
    }

    /// Takes a buffer, for as long as `wait` says that it is worth waiting.
    fn take_looking<'a>(
        &'a self,
        mut wait: impl FnMut(MutexGuard<'a, Stack>) -> (MutexGuard<'a, Stack>, bool),
    ) -> Option<Buffer> {
        let mut stack = self.free.stack.lock().unwrap_or_else(PoisonError::into_inner);
        let (mut since, mut goes_on) = (None, true);
        let bytes = loop {
            if let Some(bytes) = stack.buffers.pop() {
                break Some(bytes);
            }
            if !goes_on {
                break None;
            }
            since.get_or_insert_with(Instant::now);
            stack.waiting += 1;
            (stack, goes_on) = wait(stack);
            stack.waiting -= 1;
        };
        // Each who was woken wakes the next while there is something for it.
        let others = since.is_some() && stack.waiting > 0 && !stack.buffers.is_empty();
        drop(stack);
        if others {
            self.free.returned.notify_one();
        }
        if let Some(since) = since {
            self.waited_ns.fetch_add(since.elapsed().as_nanos() as u64, Ordering::Relaxed);
        }
        Some(Buffer { bytes: bytes?, home: Arc::clone(&self.free) })
    }

    /// Takes a buffer, waiting for one so long.
    pub(crate) fn take_within(&self, limit: Duration) -> Option<Buffer> {
        let since = Instant::now();
        self.take_looking(|stack| {
            let left = limit.saturating_sub(since.elapsed());
            let waited = self.free.returned.wait_timeout(stack, left).unwrap_or_else(PoisonError::into_inner);
            (waited.0, since.elapsed() < limit)
        })
    }

    /// Takes a buffer if there is one now.
    pub(crate) fn try_take(&self) -> Option<Buffer> {
        let bytes = self.free.stack.lock().unwrap_or_else(PoisonError::into_inner).buffers.pop()?;
        Some(Buffer { bytes, home: Arc::clone(&self.free) })
    }

    /// Bytes of a chunk.
    pub(crate) fn chunk_len(&self) -> usize {
        self.chunk_len
    }

    /// How many buffers there are.
    pub(crate) fn buffers(&self) -> usize {
        self.buffers
    }

    /// How many nobody has.
    #[cfg(test)]
    pub(crate) fn free(&self) -> usize {
        self.free.stack.lock().unwrap_or_else(PoisonError::into_inner).buffers.len()
    }

    /// Time that sources have waited for a buffer, all together.
    pub(crate) fn waited_ns(&self) -> u64 {
        self.waited_ns.load(Ordering::Relaxed)
    }
}

impl Buffer {
    /// Exchanges what two buffers of the same length hold: each goes back to the pool that it came from.
    pub(crate) fn exchange(&mut self, other: &mut Self) {
        assert_eq!(self.len(), other.len(), "buffers of a pool have one length");
        std::mem::swap(&mut self.bytes, &mut other.bytes);
    }
}

impl Deref for Buffer {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        &self.bytes
    }
}

impl DerefMut for Buffer {
    fn deref_mut(&mut self) -> &mut [u8] {
        &mut self.bytes
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        let bytes = std::mem::take(&mut self.bytes);
        let mut stack = self.home.stack.lock().unwrap_or_else(PoisonError::into_inner);
        stack.buffers.push(bytes);
        let wake = stack.waiting > 0 && stack.buffers.len() >= self.home.worthwhile;
        drop(stack);
        if wake {
            self.home.returned.notify_one();
        }
    }
}
