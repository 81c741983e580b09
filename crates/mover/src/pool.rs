//! The block pool: every buffer of the data path, allocated once.
//!
//! A buffer holds one chunk of a stream with room for a block header in front of it, so that an uncompressed chunk becomes a
//! block where it lies. A buffer that is dropped goes back to its pool; who wants one while all are out waits, and that
//! waiting is what keeps sources from outrunning drives. The buffer that came back last goes out first: it is still in the
//! processor's caches, and buffers that a fast drive never needs are never touched.

use std::ops::{Deref, DerefMut};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Instant;

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
    stack: Mutex<Vec<Box<[u8]>>>,
    returned: Condvar,
}

/// One buffer of a pool; goes back when dropped.
pub(crate) struct Buffer {
    bytes: Box<[u8]>,
    home: Arc<Free>,
}

impl BlockPool {
    /// Allocates `buffers` buffers for chunks of `chunk_len` bytes.
    pub(crate) fn new(buffers: usize, chunk_len: usize) -> Self {
        let stack = (0..buffers).map(|_| vec![0; BLOCK_HEADER_LEN + chunk_len].into_boxed_slice()).collect();
        let free = Arc::new(Free { stack: Mutex::new(stack), returned: Condvar::new() });
        Self { free, chunk_len, buffers, waited_ns: Arc::default() }
    }

    /// Takes a buffer, waiting for one if need be.
    pub(crate) fn take(&self) -> Buffer {
        let mut stack = self.free.stack.lock().unwrap_or_else(PoisonError::into_inner);
        let mut since = None;
        let bytes = loop {
            if let Some(bytes) = stack.pop() {
                break bytes;
            }
            since.get_or_insert_with(Instant::now);
            stack = self.free.returned.wait(stack).unwrap_or_else(PoisonError::into_inner);
        };
        drop(stack);
        if let Some(since) = since {
            self.waited_ns.fetch_add(since.elapsed().as_nanos() as u64, Ordering::Relaxed);
        }
        Buffer { bytes, home: Arc::clone(&self.free) }
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
        self.free.stack.lock().unwrap_or_else(PoisonError::into_inner).len()
    }

    /// Time that sources have waited for a buffer, all together.
    pub(crate) fn waited_ns(&self) -> u64 {
        self.waited_ns.load(Ordering::Relaxed)
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
        self.home.stack.lock().unwrap_or_else(PoisonError::into_inner).push(bytes);
        self.home.returned.notify_one();
    }
}
