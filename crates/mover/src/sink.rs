//! What a source writes to, and what it compares with: the two doors between sources and the rest of the mover.

use capstan_format::FileEntry;
use thiserror::Error;

/// The run was stopped from the other end: by the operator, or because no copy can be written any more.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[error("the session was stopped")]
pub struct Stopped;

/// One connection's stream of bytes, cut into chunks of equal length that become blocks.
///
/// A source writes into the chunk itself, so that a read lands where the block is.
pub trait StreamSink: Send {
    /// The free rest of the current chunk, never empty; waits for a fresh chunk when the last one is full.
    ///
    /// # Errors
    /// Nobody takes chunks any more.
    fn space(&mut self) -> Result<&mut [u8], Stopped>;

    /// Takes the first `len` bytes of what [`StreamSink::space`] gave as written.
    fn advance(&mut self, len: usize);

    /// Bytes taken so far: the offset in the connection's stream.
    fn position(&self) -> u64;

    /// This connection's number.
    fn connection(&self) -> u16;

    /// Whether nobody takes chunks any more. A source looks that waits for what it reads.
    fn is_stopped(&self) -> bool {
        false
    }

    /// Bytes that the current chunk still takes; 0 where the next ones begin another.
    fn left_of_chunk(&self) -> usize {
        0
    }

    /// Whether whoever takes its chunks knows fragments. Then [`StreamSink::left_of_chunk`] says where they may end.
    fn takes_fragments(&self) -> bool {
        false
    }

    /// Reports a member whose last byte was just taken (or that has no bytes in the stream at all: deleted, vanished,
    /// unreadable), or a fragment. The entry becomes part of the catalog when the block that ends it is flushed.
    fn member(&mut self, entry: FileEntry);

    /// Copies bytes into the stream.
    ///
    /// # Errors
    /// As [`StreamSink::space`].
    fn write(&mut self, mut bytes: &[u8]) -> Result<(), Stopped> {
        while !bytes.is_empty() {
            let space = self.space()?;
            let len = space.len().min(bytes.len());
            space[..len].copy_from_slice(&bytes[..len]);
            self.advance(len);
            bytes = &bytes[len..];
        }
        Ok(())
    }
}

/// What is compared to tell whether a file changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Metadata {
    /// Size in bytes.
    pub size: u64,
    /// Modification time, nanoseconds since 1970.
    pub mtime_ns: i64,
    /// Fingerprint of change time and inode.
    pub change: u32,
}

impl Metadata {
    /// The same of a further name, whose content that path carries. Both ends of a connection reckon it.
    pub fn as_link_to(self, carrier: &[u8]) -> Self {
        Self { change: self.change ^ capstan_format::crc32c(carrier), ..self }
    }
}

/// How a path compares with the object that an incremental stands on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// Not in it.
    New,
    /// In it, and different.
    Changed,
    /// In it, and the same.
    Unchanged,
}

/// The state that an incremental compares with. Shared by all connections.
pub trait Baseline: Sync {
    /// Compares a path and remembers that it was seen.
    fn compare(&self, path: &[u8], metadata: &Metadata) -> Verdict;

    /// Calls `found` with each path that the state has and that was never compared, in order, after the walk.
    fn for_each_missing(&self, found: &mut dyn FnMut(&[u8]));
}
