//! A stream as it comes back: blocks in the order of the stream, decompressed, and gaps where nothing could be read.

use std::io::{self, BufRead, Read};
use std::ops::Range;
use std::sync::Arc;

use capstan_format::{BLOCK_HEADER_LEN, Compression};
use crossbeam_channel::Receiver;

use crate::pool::Buffer;
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
    /// Offset of the plain bytes in the stream.
    plain_offset: u64,
    gaps: Vec<Gap>,
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
        Self { plan, pieces, room, plain_offset: 0, gaps }
    }

    /// The members that are wanted, in order.
    pub fn members(&self) -> &'a [WantedMember] {
        &self.plan.members
    }

    /// The bytes of a range of the stream. Ranges must be taken in order; what is not read of one is passed over.
    pub fn range<'r>(&'r mut self, range: Range<u64>) -> RangeBytes<'r, 'a> {
        RangeBytes { at: range.start, end: range.end, reader: self }
    }

    /// The plain bytes from `at` on, as many as are at hand.
    fn bytes_at(&mut self, at: u64) -> io::Result<&[u8]> {
        loop {
            let end = self.plain_offset + self.room.plain.len() as u64;
            if self.plain_offset <= at && at < end {
                return Ok(&self.room.plain[(at - self.plain_offset) as usize..]);
            }
            self.gaps.retain(|(range, _)| range.end > at);
            if let Some((_, damage)) = self.gaps.iter().find(|(range, _)| range.contains(&at)) {
                return Err(io::Error::other(damage.to_string()));
            }
            let ended = || io::Error::new(io::ErrorKind::UnexpectedEof, "reading stopped before this point");
            match self.pieces.recv().map_err(|_| ended())? {
                Piece::Gap(gap) => self.gaps.push(gap),
                Piece::Block { offset, plain_len, stored_len, compression, buffer } => {
                    let stored = &buffer[BLOCK_HEADER_LEN..BLOCK_HEADER_LEN + stored_len];
                    self.plain_offset = offset;
                    self.room.plain.clear();
                    match compression {
                        Compression::None => self.room.plain.extend_from_slice(stored),
                        Compression::Zstd => {
                            let decompressor = match &mut self.room.decompressor {
                                Some(decompressor) => decompressor,
                                none => none.insert(zstd::bulk::Decompressor::new()?),
                            };
                            self.room.plain.reserve(plain_len);
                            decompressor.decompress_to_buffer(stored, &mut self.room.plain)?;
                        }
                    }
                    if self.room.plain.len() != plain_len {
                        return Err(io::Error::other("a block holds more or less than its header says"));
                    }
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
