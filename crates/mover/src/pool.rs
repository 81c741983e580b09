//! The block pool: every buffer of the data path, allocated once.
//!
//! A buffer holds one chunk of a stream with room for a block header in front of it, so that an uncompressed chunk becomes a
//! block where it lies. A buffer that is dropped goes back to its pool; who wants one while all are out waits, and that
//! waiting is what keeps sources from outrunning drives.

use std::ops::{Deref, DerefMut};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use capstan_format::BLOCK_HEADER_LEN;
use crossbeam_channel::{Receiver, Sender, bounded};

use crate::Stopped;

/// A fixed number of equal buffers.
#[derive(Clone)]
pub(crate) struct BlockPool {
    free: Receiver<Box<[u8]>>,
    back: Sender<Box<[u8]>>,
    chunk_len: usize,
    buffers: usize,
    waited_ns: Arc<AtomicU64>,
}

/// One buffer of a pool; goes back when dropped.
pub(crate) struct Buffer {
    bytes: Box<[u8]>,
    back: Sender<Box<[u8]>>,
}

impl BlockPool {
    /// Allocates `buffers` buffers for chunks of `chunk_len` bytes.
    pub(crate) fn new(buffers: usize, chunk_len: usize) -> Self {
        let (back, free) = bounded(buffers);
        for _ in 0..buffers {
            let buffer = vec![0; BLOCK_HEADER_LEN + chunk_len].into_boxed_slice();
            back.try_send(buffer).expect("the channel has room for every buffer");
        }
        Self { free, back, chunk_len, buffers, waited_ns: Arc::default() }
    }

    /// Takes a buffer, waiting for one if need be.
    pub(crate) fn take(&self) -> Result<Buffer, Stopped> {
        if let Ok(bytes) = self.free.try_recv() {
            return Ok(Buffer { bytes, back: self.back.clone() });
        }
        let since = Instant::now();
        let bytes = self.free.recv().map_err(|_| Stopped)?;
        self.waited_ns.fetch_add(since.elapsed().as_nanos() as u64, Ordering::Relaxed);
        Ok(Buffer { bytes, back: self.back.clone() })
    }

    /// Bytes of a chunk.
    pub(crate) fn chunk_len(&self) -> usize {
        self.chunk_len
    }

    /// How many buffers there are.
    pub(crate) fn buffers(&self) -> usize {
        self.buffers
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
        // The pool outlives its buffers or is gone with them; a closed channel means that nobody wants the buffer back.
        let _ = self.back.try_send(std::mem::take(&mut self.bytes));
    }
}
