//! The first words of a connection, and the answer.
//!
//! ```text
//!  hello, 32 bytes                              answer, 24 bytes
//!   0  8  "CAPSTNET"                             0  8  "CAPSTNET"
//!   8  2  version                                8  2  version
//!  10  1  what is wanted                        10  1  verdict
//!  11  1  zero                                  11  5  zero
//!  12  4  bytes of a block                      16  8  number of the measurement
//!  16  8  number of the measurement
//!  24  4  milliseconds
//!  28  4  zero
//! ```
//! Numbers are little-endian. The first ten bytes of both stay as they are in every version.

use super::line::{Cut, Line};
use super::{BLOCK_BYTES_MAX, BLOCK_BYTES_MIN, Direction, SECONDS_MAX};

const MAGIC: [u8; 8] = *b"CAPSTNET";
/// Of the hello and of everything behind it.
pub(super) const VERSION: u16 = 1;
/// Magic and version.
const HEAD_LEN: usize = 10;
const HELLO_LEN: usize = 32;
const ANSWER_LEN: usize = 24;

const WANTS_MEASUREMENT: u8 = 1;
const WANTS_TO_SEND: u8 = 2;
const WANTS_TO_RECEIVE: u8 = 3;

/// What a connection is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Hello {
    /// A measurement is to begin.
    Measurement,
    /// Blocks of one.
    Blocks(Blocks),
}

/// Blocks in one direction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Blocks {
    pub(super) direction: Direction,
    pub(super) block_bytes: u32,
    /// Of the measurement they belong to.
    pub(super) number: u64,
    pub(super) milliseconds: u32,
}

/// What is said to it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Verdict {
    /// It may go on.
    Welcome,
    /// Another measurement goes on.
    Busy,
    /// Its version is not ours.
    OtherVersion,
    /// It asks for what is out of bounds, or for a measurement that is over.
    Refused,
}

impl Verdict {
    const ALL: [Self; 4] = [Self::Welcome, Self::Busy, Self::OtherVersion, Self::Refused];
}

/// An answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Answer {
    pub(super) verdict: Verdict,
    /// The measurement's, to be named by its other connections.
    pub(super) number: u64,
}

/// Why the other side's first words are none.
#[derive(Debug)]
pub(super) enum Strange {
    /// It is another program.
    NotOurs(String),
    /// It is another version.
    OtherVersion(u16),
    /// It asks for what cannot be.
    OutOfBounds,
    /// We are to stop.
    Stopped,
}

impl From<Cut> for Strange {
    fn from(cut: Cut) -> Self {
        match cut {
            Cut::Stopped => Self::Stopped,
            other => Self::NotOurs(other.to_string()),
        }
    }
}

impl Hello {
    fn to_bytes(self) -> [u8; HELLO_LEN] {
        let mut bytes = [0; HELLO_LEN];
        bytes[..8].copy_from_slice(&MAGIC);
        bytes[8..10].copy_from_slice(&VERSION.to_le_bytes());
        match self {
            Self::Measurement => bytes[10] = WANTS_MEASUREMENT,
            Self::Blocks(Blocks { direction, block_bytes, number, milliseconds }) => {
                bytes[10] = match direction {
                    Direction::Send => WANTS_TO_SEND,
                    Direction::Receive => WANTS_TO_RECEIVE,
                };
                bytes[12..16].copy_from_slice(&block_bytes.to_le_bytes());
                bytes[16..24].copy_from_slice(&number.to_le_bytes());
                bytes[24..28].copy_from_slice(&milliseconds.to_le_bytes());
            }
        }
        bytes
    }

    fn from_bytes(bytes: &[u8; HELLO_LEN]) -> Option<Self> {
        let direction = match bytes[10] {
            WANTS_MEASUREMENT => return Some(Self::Measurement),
            WANTS_TO_SEND => Direction::Send,
            WANTS_TO_RECEIVE => Direction::Receive,
            _ => return None,
        };
        let (block_bytes, milliseconds) = (u32_at(bytes, 12), u32_at(bytes, 24));
        let in_bounds =
            (BLOCK_BYTES_MIN..=BLOCK_BYTES_MAX).contains(&block_bytes) && f64::from(milliseconds) <= SECONDS_MAX * 1e3;
        let number = u64_at(bytes, 16);
        in_bounds.then_some(Self::Blocks(Blocks { direction, block_bytes, number, milliseconds }))
    }

    pub(super) fn write(self, line: &mut Line<'_>) -> Result<(), Cut> {
        line.write(&self.to_bytes())
    }

    pub(super) fn read(line: &mut Line<'_>) -> Result<Self, Strange> {
        let bytes = read_words::<HELLO_LEN>(line)?;
        Self::from_bytes(&bytes).ok_or(Strange::OutOfBounds)
    }
}

impl Answer {
    fn to_bytes(self) -> [u8; ANSWER_LEN] {
        let mut bytes = [0; ANSWER_LEN];
        bytes[..8].copy_from_slice(&MAGIC);
        bytes[8..10].copy_from_slice(&VERSION.to_le_bytes());
        bytes[10] = self.verdict as u8;
        bytes[16..24].copy_from_slice(&self.number.to_le_bytes());
        bytes
    }

    pub(super) fn write(self, line: &mut Line<'_>) -> Result<(), Cut> {
        line.write(&self.to_bytes())
    }

    pub(super) fn read(line: &mut Line<'_>) -> Result<Self, Strange> {
        let bytes = read_words::<ANSWER_LEN>(line)?;
        let verdict = Verdict::ALL.get(usize::from(bytes[10])).copied();
        let verdict = verdict.ok_or_else(|| Strange::NotOurs(format!("it answers {}", bytes[10])))?;
        Ok(Self { verdict, number: u64_at(&bytes, 16) })
    }
}

/// Reads the head first: what is behind it belongs to a version.
fn read_words<const LEN: usize>(line: &mut Line<'_>) -> Result<[u8; LEN], Strange> {
    let mut bytes = [0; LEN];
    line.read(&mut bytes[..HEAD_LEN])?;
    if bytes[..8] != MAGIC {
        return Err(Strange::NotOurs(format!("its first words are \"{}\"", bytes[..HEAD_LEN].escape_ascii())));
    }
    let version = u16::from_le_bytes([bytes[8], bytes[9]]);
    if version != VERSION {
        return Err(Strange::OtherVersion(version));
    }
    line.read(&mut bytes[HEAD_LEN..])?;
    Ok(bytes)
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(std::array::from_fn(|index| bytes[at + index]))
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(std::array::from_fn(|index| bytes[at + index]))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests fail by panicking")]
    use super::*;

    #[test]
    fn the_bytes_are_those_of_version_1() {
        let hello = Hello::Blocks(Blocks {
            direction: Direction::Receive,
            block_bytes: 0x0004_0000,
            number: 0x0102,
            milliseconds: 3000,
        });
        let bytes = *b"CAPSTNET\x01\0\x03\0\0\0\x04\0\x02\x01\0\0\0\0\0\0\xb8\x0b\0\0\0\0\0\0";
        assert_eq!(hello.to_bytes(), bytes);
        assert_eq!(Hello::from_bytes(&bytes), Some(hello));
        let answer = Answer { verdict: Verdict::Busy, number: 7 };
        assert_eq!(answer.to_bytes(), *b"CAPSTNET\x01\0\x01\0\0\0\0\0\x07\0\0\0\0\0\0\0");
    }

    #[test]
    fn what_is_out_of_bounds_is_no_hello() {
        let good =
            Hello::Blocks(Blocks { direction: Direction::Send, block_bytes: 1 << 20, number: 1, milliseconds: 1 });
        for (at, value) in [(10, 0), (10, 4), (14, 0xff), (15, 0xff), (14, 0), (27, 0xff)] {
            let mut bytes = good.to_bytes();
            bytes[at] = value;
            assert_eq!(Hello::from_bytes(&bytes), None, "byte {at} of {value}");
        }
    }
}
