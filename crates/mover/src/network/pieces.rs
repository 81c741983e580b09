//! What is read back, on its way to the client that writes it: frames of 32 bytes (little endian) and what follows.
//!
//! ```text
//!   0  1  kind: 1 stream begins, 2 block, 3 gap, 4 stream ends, 5 all is sent, 6 still here
//!   1  1  compression of a block: 0 none, 1 zstd
//!   2  2  0
//!   4  4  stream
//!   8  8  where in the stream it begins; of a beginning, how many others are open
//!  16  8  where it ends
//!  24  4  bytes that follow: the block as stored, or why there is a gap
//!  28  4  0
//! ```
//! Blocks go as they are on the volume, in the order in which they are read.

use std::collections::HashMap;
use std::io::{self, Read, Write};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use capstan_format::{BLOCK_HEADER_LEN, Compression};

use super::NetworkStream;
use super::frame::nonsense;
use crate::feed::Feeds;
use crate::pool::BlockPool;
use crate::stream::{Gap, Piece};
use crate::throttle::{SLEEPS_MAX, Throttle};

const FRAME_LEN: usize = 32;
/// Streams that are open at once, at most.
pub(super) const OPEN_MAX: u64 = 4_096;
/// Longest reason of a gap.
const REASON_LEN_MAX: usize = 64 << 10;

/// A frame as it is announced.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Frame {
    Begin { stream: u32, open: u64 },
    Block { stream: u32, compression: Compression, offset: u64, end: u64, len: u32 },
    Gap { stream: u32, offset: u64, end: u64, len: u32 },
    End { stream: u32 },
    All,
    StillHere,
}

impl Frame {
    pub(super) fn write(&self, to: &mut (impl Write + ?Sized)) -> io::Result<()> {
        let (kind, compressed, stream, offset, end, len) = match *self {
            Self::Begin { stream, open } => (1, 0, stream, open, 0, 0),
            Self::Block { stream, compression, offset, end, len } => {
                (2, u8::from(compression == Compression::Zstd), stream, offset, end, len)
            }
            Self::Gap { stream, offset, end, len } => (3, 0, stream, offset, end, len),
            Self::End { stream } => (4, 0, stream, 0, 0, 0),
            Self::All => (5, 0, 0, 0, 0, 0),
            Self::StillHere => (6, 0, 0, 0, 0, 0),
        };
        let mut bytes = [0; FRAME_LEN];
        (bytes[0], bytes[1]) = (kind, compressed);
        bytes[4..8].copy_from_slice(&stream.to_le_bytes());
        bytes[8..16].copy_from_slice(&offset.to_le_bytes());
        bytes[16..24].copy_from_slice(&end.to_le_bytes());
        bytes[24..28].copy_from_slice(&len.to_le_bytes());
        to.write_all(&bytes)
    }

    pub(super) fn read(from: &mut (impl Read + ?Sized)) -> io::Result<Self> {
        let mut bytes = [0; FRAME_LEN];
        from.read_exact(&mut bytes)?;
        let u32_at = |at: usize| u32::from_le_bytes(std::array::from_fn(|byte| bytes[at + byte]));
        let u64_at = |at: usize| u64::from_le_bytes(std::array::from_fn(|byte| bytes[at + byte]));
        let (stream, offset, end, len) = (u32_at(4), u64_at(8), u64_at(16), u32_at(24));
        match (bytes[0], bytes[1]) {
            (1, 0) => Ok(Self::Begin { stream, open: offset }),
            (2, compression @ 0..=1) => {
                let compression = if compression == 1 { Compression::Zstd } else { Compression::None };
                Ok(Self::Block { stream, compression, offset, end, len })
            }
            (3, 0) => Ok(Self::Gap { stream, offset, end, len }),
            (4, 0) => Ok(Self::End { stream }),
            (5, 0) => Ok(Self::All),
            (6, 0) => Ok(Self::StillHere),
            _ => Err(nonsense("a frame begins with what no frame begins with")),
        }
    }
}

/// Sends pieces. Nothing more is read for a connection that breaks.
pub(super) struct PieceSender<'a> {
    link: &'a Mutex<Box<dyn NetworkStream>>,
    gaps: HashMap<usize, Vec<Gap>>,
    failed: Option<io::Error>,
    /// How fast it may send, and what ends a wait for that.
    pace: Option<(&'a Throttle, &'a AtomicBool)>,
}

impl<'a> PieceSender<'a> {
    pub(super) fn new(link: &'a Mutex<Box<dyn NetworkStream>>, gaps: HashMap<usize, Vec<Gap>>) -> Self {
        Self { link, gaps, failed: None, pace: None }
    }

    /// Sends no faster than that, until it is stopped.
    pub(super) fn no_faster_than(self, throttle: &'a Throttle, stop: &'a AtomicBool) -> Self {
        Self { pace: Some((throttle, stop)), ..self }
    }

    /// Waits until so many bytes more may be sent.
    fn pace(&self, bytes: usize) {
        let Some((throttle, stop)) = self.pace else { return };
        while let Some(wait) = throttle.wait()
            && !stop.load(Ordering::Relaxed)
        {
            thread::sleep(wait.min(SLEEPS_MAX));
        }
        throttle.took(bytes as u64);
    }

    fn put(&mut self, frame: Frame, bytes: &[u8]) {
        if self.failed.is_some() {
            return;
        }
        let mut link = self.link.lock().unwrap_or_else(PoisonError::into_inner);
        let written = frame.write(&mut *link).and_then(|()| link.write_all(bytes));
        self.failed = written.err();
    }

    fn put_gap(&mut self, stream: usize, (range, reason): &Gap) {
        let reason = &reason.as_bytes()[..reason.len().min(REASON_LEN_MAX)];
        let (stream, offset, end, len) = (stream as u32, range.start, range.end, reason.len() as u32);
        self.put(Frame::Gap { stream, offset, end, len }, reason);
    }

    /// Says that this is all.
    pub(super) fn finish(mut self) -> io::Result<()> {
        self.put(Frame::All, &[]);
        self.failed.map_or(Ok(()), Err)?;
        self.link.lock().unwrap_or_else(PoisonError::into_inner).flush()
    }
}

impl Feeds for PieceSender<'_> {
    fn without_blocks(&self, runs: &HashMap<usize, usize>) -> Vec<usize> {
        let mut streams: Vec<usize> = self.gaps.keys().copied().filter(|stream| !runs.contains_key(stream)).collect();
        streams.sort_unstable();
        streams
    }

    fn start(&mut self, stream: usize, open: usize) {
        self.put(Frame::Begin { stream: stream as u32, open: open as u64 }, &[]);
        for gap in self.gaps.remove(&stream).unwrap_or_default() {
            self.put_gap(stream, &gap);
        }
    }

    fn try_send(&mut self, _: usize, piece: Piece) -> Option<Piece> {
        Some(piece)
    }

    fn send(&mut self, stream: usize, piece: Piece) {
        match piece {
            Piece::Gap(gap) => self.put_gap(stream, &gap),
            Piece::Block { offset, plain_len, stored_len, compression, buffer } => {
                let (end, len, stream) = (offset + plain_len as u64, stored_len as u32, stream as u32);
                let bytes = &buffer[BLOCK_HEADER_LEN..BLOCK_HEADER_LEN + stored_len];
                self.pace(stored_len);
                self.put(Frame::Block { stream, compression, offset, end, len }, bytes);
            }
        }
    }

    fn end(&mut self, stream: usize) {
        self.put(Frame::End { stream: stream as u32 }, &[]);
    }

    fn are_taken(&self) -> bool {
        self.failed.is_none()
    }
}

/// Takes pieces in, and hands them to threads here, until all are here or nothing more is wanted. `streams` is how many
/// there are.
pub(crate) fn receive(
    link: &mut dyn NetworkStream,
    streams: usize,
    pool: &BlockPool,
    feeds: &mut dyn Feeds,
    stop: &AtomicBool,
) -> io::Result<()> {
    loop {
        let frame = Frame::read(link)?;
        if stop.load(Ordering::Relaxed) {
            return Err(io::Error::other("it was told to stop"));
        }
        let (Frame::Begin { stream, .. }
        | Frame::Block { stream, .. }
        | Frame::Gap { stream, .. }
        | Frame::End { stream }) = frame
        else {
            if frame == Frame::All {
                return Ok(());
            }
            continue;
        };
        let stream = stream as usize;
        if stream >= streams {
            return Err(nonsense("a piece is of a stream that nobody wants"));
        }
        match frame {
            Frame::Begin { open, .. } => feeds.start(stream, open.min(OPEN_MAX) as usize),
            Frame::Block { compression, offset, end, len, .. } => {
                let (plain_len, stored_len) = (end.wrapping_sub(offset) as usize, len as usize);
                if end < offset || plain_len > pool.chunk_len() || stored_len > pool.chunk_len() {
                    return Err(nonsense("a block is longer than any of its object"));
                }
                let mut buffer = pool.take();
                link.read_exact(&mut buffer[BLOCK_HEADER_LEN..BLOCK_HEADER_LEN + stored_len])?;
                feeds.send(stream, Piece::Block { offset, plain_len, stored_len, compression, buffer });
            }
            Frame::Gap { offset, end, len, .. } => {
                if len as usize > REASON_LEN_MAX {
                    return Err(nonsense("the reason of a gap is longer than any"));
                }
                let mut reason = vec![0; len as usize];
                link.read_exact(&mut reason)?;
                feeds.send(stream, Piece::Gap((offset..end, String::from_utf8_lossy(&reason).into())));
            }
            Frame::End { .. } => feeds.end(stream),
            Frame::All | Frame::StillHere => {}
        }
    }
}

/// Says every so often that the mover is still there, until it is told that all is sent.
pub(super) fn keep_awake(link: &Mutex<Box<dyn NetworkStream>>, is_over: &AtomicBool, every: Duration) {
    let step = Duration::from_millis(100).min(every);
    let mut waited = Duration::ZERO;
    while !is_over.load(Ordering::Relaxed) {
        thread::sleep(step);
        waited += step;
        if waited >= every {
            waited = Duration::ZERO;
            let mut link = link.lock().unwrap_or_else(PoisonError::into_inner);
            // Whoever sends the next piece hears of a connection that broke.
            let _ = Frame::StillHere.write(&mut *link).and_then(|()| Write::flush(&mut *link));
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests fail by panicking")]
    use super::*;

    #[test]
    fn frames_are_read_as_they_were_written_and_nonsense_is_refused() {
        let frames = [
            Frame::Begin { stream: 7, open: 3 },
            Frame::Block { stream: 7, compression: Compression::Zstd, offset: 1 << 40, end: (1 << 40) + 9, len: 4 },
            Frame::Block { stream: 0, compression: Compression::None, offset: 0, end: 5, len: 5 },
            Frame::Gap { stream: 1, offset: 2, end: 3, len: 4 },
            Frame::End { stream: u32::MAX },
            Frame::All,
            Frame::StillHere,
        ];
        let mut bytes = Vec::new();
        frames.iter().for_each(|frame| frame.write(&mut bytes).unwrap());
        let mut from = bytes.as_slice();
        for frame in frames {
            assert_eq!(Frame::read(&mut from).unwrap(), frame);
        }
        assert!(from.is_empty());
        for begins in [[0, 0], [7, 0], [2, 2], [1, 1], [5, 1]] {
            let mut bytes = [0; FRAME_LEN];
            bytes[..2].copy_from_slice(&begins);
            assert_eq!(Frame::read(&mut bytes.as_slice()).unwrap_err().kind(), io::ErrorKind::InvalidData);
        }
    }
}
