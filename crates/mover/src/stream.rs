//! A stream as it comes back: blocks in the order of the stream, decompressed, and gaps where nothing could be read.

use std::io::{self, BufRead, Read};
use std::ops::Range;
use std::sync::Arc;

use capstan_format::{BLOCK_HEADER_LEN, Compression, ObjectId};

use crate::damage::MissingBytes;
use crate::pool::Buffer;
use crate::queue::Receiver;
use crate::read::{WantedMember, WantedStream};

/// Bytes of a stream that no copy gave, and why.
pub(crate) type Gap = (Range<u64>, Arc<str>);

/// What is sent to a stream's thread.
pub(crate) enum Piece {
    Block { offset: u64, plain_len: usize, stored_len: usize, compression: Compression, buffer: Buffer },
    Gap(Gap),
}

/// One stream's bytes, member by member.
pub struct StreamReader<'a> {
    plan: &'a WantedStream,
    pieces: Receiver<Piece>,
    room: &'a mut Room,
    /// A block that was stored as it is: its bytes are taken from where they were read to. Given back before the next
    /// is waited for, so that no stream keeps a buffer from the others.
    stored: Option<Stored>,
    /// Offset of the plain bytes in the stream.
    plain_offset: u64,
    gaps: Vec<Gap>,
}

/// A block's payload where it was read to.
struct Stored {
    buffer: Buffer,
    len: usize,
}

impl Stored {
    fn bytes(&self) -> &[u8] {
        &self.buffer[BLOCK_HEADER_LEN..BLOCK_HEADER_LEN + self.len]
    }
}

/// A block as it was read: packed, or not.
pub struct StoredBlock {
    offset: u64,
    pub(crate) plain_len: usize,
    pub(crate) stored_len: usize,
    pub(crate) compression: Compression,
    pub(crate) buffer: Buffer,
}

impl StoredBlock {
    /// Bytes of the stream in it.
    pub fn plain_len(&self) -> u64 {
        self.plain_len as u64
    }
}

/// What is made once for a thread, and serves one stream after the other.
#[derive(Default)]
pub(crate) struct Room {
    plain: Vec<u8>,
    decompressor: Option<zstd::bulk::Decompressor<'static>>,
}

impl<'a> StreamReader<'a> {
    /// A reader of what is sent to it; the gaps are known beforehand.
    pub(crate) fn new(plan: &'a WantedStream, gaps: Vec<Gap>, pieces: Receiver<Piece>, room: &'a mut Room) -> Self {
        room.plain.clear();
        Self { plan, pieces, room, stored: None, plain_offset: 0, gaps }
    }

    /// Whose stream it is.
    pub fn object(&self) -> ObjectId {
        self.plan.object
    }

    /// The members that are wanted, in order.
    pub fn members(&self) -> &'a [WantedMember] {
        &self.plan.members
    }

    /// The bytes of a range of the stream. Ranges must be taken in order; what is not read of one is passed over.
    pub fn range<'r>(&'r mut self, range: Range<u64>) -> RangeBytes<'r, 'a> {
        RangeBytes { at: range.start, end: range.end, reader: self }
    }

    /// The plain bytes at hand.
    fn plain(&self) -> &[u8] {
        self.stored.as_ref().map_or(&self.room.plain, Stored::bytes)
    }

    /// Whether a byte is at hand.
    fn has(&self, at: u64) -> bool {
        let end = self.plain_offset + self.plain().len() as u64;
        self.plain_offset <= at && at < end
    }

    /// The block that begins at `at`, as it is stored; none where none begins there, or what is there was unpacked.
    ///
    /// # Errors
    /// No copy has it, or reading stopped before.
    pub fn stored_at(&mut self, at: u64) -> io::Result<Option<StoredBlock>> {
        while !self.has(at) {
            let block = self.next_block(at)?;
            if block.offset == at {
                return Ok(Some(block));
            }
            self.unpack(block)?;
        }
        Ok(None)
    }

    /// Unpacks a block that was taken, so that its bytes can be read.
    ///
    /// # Errors
    /// It cannot be unpacked.
    pub fn unpack(&mut self, block: StoredBlock) -> io::Result<()> {
        let StoredBlock { offset, plain_len, stored_len, compression, buffer } = block;
        let stored = Stored { buffer, len: stored_len };
        self.plain_offset = offset;
        match compression {
            Compression::None => self.stored = Some(stored),
            Compression::Zstd => {
                let decompressor = match &mut self.room.decompressor {
                    Some(decompressor) => decompressor,
                    none => none.insert(zstd::bulk::Decompressor::new()?),
                };
                self.room.plain.reserve(plain_len);
                decompressor.decompress_to_buffer(stored.bytes(), &mut self.room.plain)?;
            }
        }
        if self.plain().len() != plain_len {
            return Err(io::Error::other("a block holds more or less than its header says"));
        }
        Ok(())
    }

    /// The plain bytes from `at` on, as many as are at hand.
    fn bytes_at(&mut self, at: u64) -> io::Result<&[u8]> {
        while !self.has(at) {
            let block = self.next_block(at)?;
            self.unpack(block)?;
        }
        Ok(&self.plain()[(at - self.plain_offset) as usize..])
    }

    /// The next block that comes, for whoever wants what is at `at`.
    fn next_block(&mut self, at: u64) -> io::Result<StoredBlock> {
        loop {
            self.room.plain.clear();
            self.stored = None;
            self.gaps.retain(|(range, _)| range.end > at);
            if let Some((range, reason)) = self.gaps.iter().find(|(range, _)| range.contains(&at)) {
                return Err(io::Error::other(MissingBytes { len: range.end - at, reason: Arc::clone(reason) }));
            }
            let ended = || io::Error::new(io::ErrorKind::UnexpectedEof, "reading stopped before this point");
            match self.pieces.next().ok_or_else(ended)? {
                Piece::Gap(gap) => self.gaps.push(gap),
                Piece::Block { offset, plain_len, stored_len, compression, buffer } => {
                    return Ok(StoredBlock { offset, plain_len, stored_len, compression, buffer });
                }
            }
        }
    }
}

/// The bytes of a range of a stream, as a reader.
pub struct RangeBytes<'r, 'a> {
    reader: &'r mut StreamReader<'a>,
    at: u64,
    end: u64,
}

impl BufRead for RangeBytes<'_, '_> {
    fn fill_buf(&mut self) -> io::Result<&[u8]> {
        if self.at >= self.end {
            return Ok(&[]);
        }
        let left = (self.end - self.at).try_into().unwrap_or(usize::MAX);
        let bytes = self.reader.bytes_at(self.at)?;
        Ok(&bytes[..bytes.len().min(left)])
    }

    fn consume(&mut self, len: usize) {
        self.at += len as u64;
    }
}

impl Read for RangeBytes<'_, '_> {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        let bytes = self.fill_buf()?;
        let len = bytes.len().min(out.len());
        out[..len].copy_from_slice(&bytes[..len]);
        self.consume(len);
        Ok(len)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

    use super::*;
    use crate::pool::BlockPool;
    use crate::queue::queue;

    /// A verification copied each block that was stored as it is before it looked at it: a pass over memory for
    /// nothing.
    #[test]
    fn a_block_that_is_stored_as_it_is_is_taken_where_it_was_read_to() {
        let plan = WantedStream {
            object: ObjectId([1; 16]),
            connection: 0,
            chunk_len: 100,
            members: Vec::new(),
            extents: Vec::new(),
        };
        let pool = BlockPool::new(2, 100);
        let (sender, pieces) = queue(2);
        let mut read_to = Vec::new();
        for number in 0..2 {
            let mut buffer = pool.take();
            buffer[BLOCK_HEADER_LEN..].fill(number);
            read_to.push(buffer[BLOCK_HEADER_LEN..].as_ptr());
            let (offset, compression) = (u64::from(number) * 100, Compression::None);
            assert!(sender.send(Piece::Block { offset, plain_len: 100, stored_len: 100, compression, buffer }).is_ok());
        }
        drop(sender);
        let mut room = Room::default();
        let mut reader = StreamReader::new(&plan, Vec::new(), pieces, &mut room);
        for number in 0..2u8 {
            let bytes = reader.bytes_at(u64::from(number) * 100).unwrap();
            assert_eq!((bytes, bytes.as_ptr()), (&[number; 100][..], read_to[usize::from(number)]));
        }
        assert_eq!(pool.free(), 1, "the first was given back");
        assert!(reader.bytes_at(200).is_err());
        assert_eq!(pool.free(), 2, "who waits for the next block keeps none");
    }
}
