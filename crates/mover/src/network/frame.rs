//! What crosses a block link, as bytes (little endian).
//!
//! ```text
//!  from the client, 32 bytes and what follows them       from the mover, 12 or 20 bytes
//!   0  1  kind: 1 block, 2 entries, 3 still here           0  4  kind: 1 grant, 2 stop, 3 grant on one of several links
//!   1  1  compression: 0 none, 1 zstd                      4  4  blocks received
//!   2  1  1: the connection's last block, 2: that of a run  8  4  blocks that may have been sent
//!   3  1  0                                               12  4  frames that this link has brought (only kind 3)
//!   4  4  sequence of the block                           16  4  1: it says more unasked, 2: the job is held back
//!   8  8  offset of the block in the stream
//!  16  8  end of the last whole member
//!  24  4  bytes of the block in the stream
//!  28  4  bytes that follow: the block as stored, or packed entries
//! ```
//! Entries come before the block that they end in, in as many frames as they need.

use std::io::{self, Read, Write};

use capstan_format::Compression;

/// Bytes of a frame's head.
const HEAD_LEN: usize = 32;
const BLOCK: u8 = 1;
const ENTRIES: u8 = 2;
const STILL_HERE: u8 = 3;
const GRANT: u32 = 1;
const STOP: u32 = 2;
const LINK_GRANT: u32 = 3;
const SAYS_MORE: u32 = 1;
const HELD_BACK: u32 = 2;

/// What is said of a head that is none.
const NO_HEAD: &str = "a frame begins with what no frame begins with";

/// The head of a frame of the client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Head {
    /// The block follows.
    Block(BlockHead),
    /// So many bytes of packed entries follow, which end in this block.
    Entries { sequence: u32, len: u32 },
    /// Nothing follows.
    StillHere,
}

/// A block as it is announced.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct BlockHead {
    pub(super) compression: Compression,
    pub(super) last: bool,
    /// Whether nothing more comes: it is the last, or further blocks stand on the volume already.
    pub(super) closes: bool,
    pub(super) sequence: u32,
    pub(super) offset: u64,
    pub(super) valid_len: u64,
    pub(super) plain_len: u32,
    pub(super) stored_len: u32,
}

impl Head {
    pub(super) fn write(&self, to: &mut (impl Write + ?Sized)) -> io::Result<()> {
        let mut bytes = [0; HEAD_LEN];
        match *self {
            Self::Block(block) => {
                bytes[0] = BLOCK;
                bytes[1] = u8::from(block.compression == Compression::Zstd);
                bytes[2] = if block.last { 1 } else { 2 * u8::from(block.closes) };
                bytes[4..8].copy_from_slice(&block.sequence.to_le_bytes());
                bytes[8..16].copy_from_slice(&block.offset.to_le_bytes());
                bytes[16..24].copy_from_slice(&block.valid_len.to_le_bytes());
                bytes[24..28].copy_from_slice(&block.plain_len.to_le_bytes());
                bytes[28..].copy_from_slice(&block.stored_len.to_le_bytes());
            }
            Self::Entries { sequence, len } => {
                bytes[0] = ENTRIES;
                bytes[4..8].copy_from_slice(&sequence.to_le_bytes());
                bytes[28..].copy_from_slice(&len.to_le_bytes());
            }
            Self::StillHere => bytes[0] = STILL_HERE,
        }
        to.write_all(&bytes)
    }

    pub(super) fn read(from: &mut (impl Read + ?Sized)) -> io::Result<Self> {
        let mut bytes = [0; HEAD_LEN];
        from.read_exact(&mut bytes)?;
        let u32_at = |at: usize| u32::from_le_bytes(std::array::from_fn(|byte| bytes[at + byte]));
        let u64_at = |at: usize| u64::from_le_bytes(std::array::from_fn(|byte| bytes[at + byte]));
        match (bytes[0], bytes[1], bytes[2]) {
            (BLOCK, compression @ 0..=1, end @ 0..=2) => Ok(Self::Block(BlockHead {
                compression: if compression == 1 { Compression::Zstd } else { Compression::None },
                last: end == 1,
                closes: end > 0,
                sequence: u32_at(4),
                offset: u64_at(8),
                valid_len: u64_at(16),
                plain_len: u32_at(24),
                stored_len: u32_at(28),
            })),
            (ENTRIES, 0, 0) => Ok(Self::Entries { sequence: u32_at(4), len: u32_at(28) }),
            (STILL_HERE, 0, 0) => Ok(Self::StillHere),
            _ => Err(nonsense(NO_HEAD)),
        }
    }
}

/// What the mover says on a block link.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Grant {
    /// It has so many blocks, and takes so many in all.
    Takes { received: u32, granted: u32, on_link: Option<OnLink> },
    /// It takes no more: the session was stopped, or no copy is left that writes.
    Stop,
}

/// What a grant says of the link that it comes over, where a stream may have several.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct OnLink {
    /// Frames that the link has brought.
    pub(super) answered: u32,
    /// Whether the mover says more before it hears anything.
    pub(super) says_more: bool,
    /// Whether it is the job's own bound that is waited for.
    pub(super) is_held_back: bool,
}

impl Grant {
    pub(super) fn write(&self, to: &mut (impl Write + ?Sized)) -> io::Result<()> {
        let words = match *self {
            Self::Takes { received, granted, on_link: None } => &[GRANT, received, granted][..],
            Self::Takes { received, granted, on_link: Some(OnLink { answered, says_more, is_held_back }) } => {
                let flags = SAYS_MORE * u32::from(says_more) + HELD_BACK * u32::from(is_held_back);
                &[LINK_GRANT, received, granted, answered, flags]
            }
            Self::Stop => &[STOP, 0, 0],
        };
        let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        to.write_all(&bytes)?;
        to.flush()
    }

    pub(super) fn read(from: &mut (impl Read + ?Sized)) -> io::Result<Self> {
        let mut bytes = [0; 12];
        from.read_exact(&mut bytes)?;
        let u32_at = |at: usize| u32::from_le_bytes(std::array::from_fn(|byte| bytes[at + byte]));
        match u32_at(0) {
            GRANT => Ok(Self::Takes { received: u32_at(4), granted: u32_at(8), on_link: None }),
            LINK_GRANT => {
                let mut more = [0; 8];
                from.read_exact(&mut more)?;
                let [answered, flags] =
                    [0, 4].map(|at| u32::from_le_bytes(std::array::from_fn(|byte| more[at + byte])));
                let (says_more, is_held_back) = (flags & SAYS_MORE != 0, flags & HELD_BACK != 0);
                let on_link = Some(OnLink { answered, says_more, is_held_back });
                Ok(Self::Takes { received: u32_at(4), granted: u32_at(8), on_link })
            }
            STOP => Ok(Self::Stop),
            _ => Err(nonsense("the mover says what no mover says")),
        }
    }
}

/// What the other end does against the protocol.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
struct Nonsense(String);

/// The other end does not keep to the protocol.
pub(super) fn nonsense(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, Nonsense(what.to_owned()))
}

/// What the other end does against the protocol, if that is what an error says. TLS gives errors of the same kind where
/// a byte has changed on the way.
pub fn protocol_fault(error: &io::Error) -> Option<&str> {
    let nonsense = error.get_ref()?.downcast_ref::<Nonsense>()?;
    Some(&nonsense.0)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests fail by panicking")]
    use super::*;

    #[test]
    fn what_is_written_is_read_back_and_nonsense_is_refused() {
        let block = Head::Block(BlockHead {
            compression: Compression::Zstd,
            last: true,
            closes: true,
            sequence: 3,
            offset: 1 << 40,
            valid_len: (1 << 40) + 5,
            plain_len: 7,
            stored_len: 6,
        });
        let Head::Block(mut of_run) = block else { panic!("it is a block") };
        of_run.last = false;
        for head in [block, Head::Block(of_run), Head::Entries { sequence: 9, len: 11 }, Head::StillHere] {
            let mut bytes = Vec::new();
            head.write(&mut bytes).unwrap();
            assert_eq!((bytes.len(), Head::read(&mut bytes.as_slice()).unwrap()), (HEAD_LEN, head));
        }
        let takes = |on_link| Grant::Takes { received: 1, granted: u32::MAX, on_link };
        let on_link = |says_more, is_held_back| takes(Some(OnLink { answered: 7, says_more, is_held_back }));
        for grant in [takes(None), on_link(true, false), on_link(false, true), on_link(false, false), Grant::Stop] {
            let mut bytes = Vec::new();
            grant.write(&mut bytes).unwrap();
            assert_eq!(Grant::read(&mut bytes.as_slice()).unwrap(), grant);
        }
        for begins in [[0, 0, 0], [4, 0, 0], [1, 2, 0], [1, 0, 3], [3, 1, 0], [2, 0, 1]] {
            let mut bytes = [0; HEAD_LEN];
            bytes[..3].copy_from_slice(&begins);
            assert_eq!(Head::read(&mut bytes.as_slice()).unwrap_err().kind(), io::ErrorKind::InvalidData);
        }
        assert_eq!(protocol_fault(&Head::read(&mut [9; HEAD_LEN].as_slice()).unwrap_err()), Some(NO_HEAD));
        assert_eq!(protocol_fault(&io::Error::new(io::ErrorKind::InvalidData, "received corrupt message")), None);
        assert_eq!(Head::read(&mut [1; 31].as_slice()).unwrap_err().kind(), io::ErrorKind::UnexpectedEof);
        assert_eq!(Grant::read(&mut [7; 12].as_slice()).unwrap_err().kind(), io::ErrorKind::InvalidData);
    }
}
