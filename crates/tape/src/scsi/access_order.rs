//! Recommended access order (SSC-5, RRAO and GRAO): which of many stretches of a tape to read first.
//!
//! ```text
//! user data segment descriptor            GENERATE list: 4 reserved, 4 length, descriptors
//!   0  2  001Eh: bytes that follow        RECEIVE list:  0  1  process, bits 2-0
//!   2  3  reserved                                       1  1  status, bits 2-0
//!   5 10  name, the host's own                           2  2  reserved
//!  15  1  partition                                      4  4  length, descriptors in the order to read
//!  16  8  first logical block             limits:        0  2  most segments in a list
//!  24  8  last logical block                             2  2  bytes of the longest descriptor
//! ```
//! The host sends a list with GENERATE, and RECEIVE returns the same segments in another order. The layouts are those
//! that LTO-9 drives are driven with; that a status of 0 means an order was made is not sure.

use super::bytes::{be16, be32, be64};

/// Bytes of a descriptor.
pub const SEGMENT_LEN: usize = 32;
const HEADER_LEN: usize = 8;
/// In the order that the drive finds best.
pub const BEST_ORDER: u8 = 2;

/// A stretch of blocks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Segment {
    /// What the host calls it.
    pub name: [u8; 10],
    /// Partition.
    pub partition: u8,
    /// First logical block.
    pub first: u64,
    /// Last logical block.
    pub last: u64,
}

impl Segment {
    fn to_bytes(self) -> [u8; SEGMENT_LEN] {
        let mut bytes = [0; SEGMENT_LEN];
        bytes[1] = (SEGMENT_LEN - 2) as u8;
        bytes[5..15].copy_from_slice(&self.name);
        bytes[15] = self.partition;
        bytes[16..24].copy_from_slice(&self.first.to_be_bytes());
        bytes[24..32].copy_from_slice(&self.last.to_be_bytes());
        bytes
    }

    fn of_bytes(bytes: &[u8; SEGMENT_LEN]) -> Option<Self> {
        let mut name = [0; 10];
        name.copy_from_slice(&bytes[5..15]);
        let segment = Self { name, partition: bytes[15], first: be64(bytes, 16), last: be64(bytes, 24) };
        (usize::from(be16(bytes, 0)) == SEGMENT_LEN - 2 && segment.first <= segment.last).then_some(segment)
    }
}

/// What GENERATE sends.
pub fn to_generate(segments: &[Segment]) -> Vec<u8> {
    list([0; 4], segments)
}

/// What RECEIVE returns.
pub fn to_receive(process: u8, segments: &[Segment]) -> Vec<u8> {
    list([process, 0, 0, 0], segments)
}

fn list(head: [u8; 4], segments: &[Segment]) -> Vec<u8> {
    let mut bytes = head.to_vec();
    bytes.extend_from_slice(&((segments.len() * SEGMENT_LEN) as u32).to_be_bytes());
    segments.iter().for_each(|segment| bytes.extend_from_slice(&segment.to_bytes()));
    bytes
}

/// The segments of either list; the error is the place of what makes no sense.
///
/// # Errors
/// The place of the byte at which the list is cut short, or a segment makes no sense.
pub fn segments_of(bytes: &[u8]) -> Result<Vec<Segment>, u16> {
    let rest = bytes.get(HEADER_LEN..).ok_or(4u16)?;
    let len = be32(bytes, 4) as usize;
    let (descriptors, []) = rest.get(..len).ok_or(4u16)?.as_chunks::<SEGMENT_LEN>() else { return Err(4) };
    let place = |at: usize| u16::try_from(HEADER_LEN + at * SEGMENT_LEN).unwrap_or(u16::MAX);
    descriptors.iter().enumerate().map(|(at, bytes)| Segment::of_bytes(bytes).ok_or_else(|| place(at))).collect()
}

/// The limits that a drive tells: most segments in a list.
pub fn to_limits(segments_max: u16) -> [u8; 4] {
    let [high, low] = segments_max.to_be_bytes();
    [high, low, 0, SEGMENT_LEN as u8]
}

/// Most segments that a list may have; none if the drive's descriptors are shorter than ours.
pub fn segments_max_of(limits: &[u8]) -> Option<usize> {
    (limits.len() >= 4 && usize::from(be16(limits, 2)) >= SEGMENT_LEN).then(|| usize::from(be16(limits, 0)))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests fail by panicking")]
    use super::*;

    #[test]
    fn lists_come_back_as_they_were() {
        let segment =
            |number: u8| Segment { name: [number; 10], partition: 0, first: 100, last: 100 + u64::from(number) };
        let segments: Vec<Segment> = (0..3).map(segment).collect();
        let bytes = to_generate(&segments);
        assert_eq!((bytes.len(), &bytes[..10]), (104, &[0, 0, 0, 0, 0, 0, 0, 96, 0, 30][..]));
        assert_eq!(segments_of(&bytes).unwrap(), segments);
        assert_eq!(segments_of(&to_receive(BEST_ORDER, &segments)).unwrap(), segments);
        assert_eq!(segments_max_of(&to_limits(2730)), Some(2730));
    }

    #[test]
    fn lists_that_make_no_sense_are_refused() {
        let bytes = to_generate(&[Segment { name: [0; 10], partition: 0, first: 7, last: 7 }]);
        for len in 0..bytes.len() {
            assert!(segments_of(&bytes[..len]).is_err(), "{len} bytes");
        }
        let mut backwards = bytes.clone();
        backwards[8 + 23] = 8;
        assert_eq!(segments_of(&backwards), Err(8));
        let mut longer = bytes;
        longer[7] = 33;
        assert_eq!(segments_of(&longer), Err(4));
        assert_eq!(segments_max_of(&[0, 9, 0, 16]), None);
    }
}
