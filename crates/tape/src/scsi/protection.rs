//! Logical block protection (SSC-5, 4.2.29 and 8.5.9): a checksum behind each block on its way between host and drive.
//!
//! ```text
//! Control data protection mode page (0Ah, subpage F0h)     logical block protection VPD page (B5h), body
//!  0  1  4Ah: page 0Ah with a subpage                        0  4  reserved
//!  1  1  F0h                                                 4  .  for each method:
//!  2  2  001Ch                                                     0  1  03h: bytes that follow
//!  4  1  method: 0 none, 1 Reed-Solomon CRC, 2 CRC32C              1  1  method
//!  5  1  bits 5-0 length of the checksum: 4, or 0                  2  1  bits 5-0 length of the checksum: 4
//!  6  1  bit 7 W: blocks that are written have it                  3  1  bit 7 W, bit 6 R, bit 5 RBDP: can be set
//!        bit 6 R: blocks that are read have it
//!        bit 5 RBDP: blocks of RECOVER BUFFERED DATA, too
//!  7 25  reserved
//! ```
//! Lengths in READ and WRITE count the checksum. Certain, since several programs that drive LTO and enterprise drives
//! do the same: the mode page, the order of the bytes (Reed-Solomon most significant first, CRC32C least significant
//! first), and that lengths count it. Less certain: the VPD page, which is as `sg_vpd` reads it; and that a fixed block
//! length counts the checksum as well.

use std::ops::Range;

use capstan_format::crc32c;

/// Page code of [`LogicalBlockProtection`] in MODE SENSE and MODE SELECT.
pub const PAGE: u8 = 0x0a;
/// Its subpage.
pub const SUBPAGE: u8 = 0xf0;
/// Bytes of the page with its header; T10000 drives have a shorter one.
const PAGE_LEN: usize = 32;
/// Bytes of the page that say something.
pub(crate) const SETTINGS: Range<usize> = 4..7;
/// Bytes of a checksum, whatever the method.
pub const CHECKSUM_LEN: usize = 4;

/// How the checksum is made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ProtectionMethod {
    /// The Reed-Solomon CRC of ECMA-319, annex D: what LTO drives since LTO-5 know.
    ReedSolomon = 1,
    /// CRC32C, as iSCSI has it: LTO-7 and on, T10000, TS1140 and on.
    Crc32c = 2,
}

/// What the mode page says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LogicalBlockProtection {
    /// How checksums are made; none while blocks are not protected.
    pub method: Option<ProtectionMethod>,
    /// Whether blocks that are written have one.
    pub writes: bool,
    /// Whether blocks that are read have one.
    pub reads: bool,
}

impl LogicalBlockProtection {
    /// No block has a checksum.
    pub const NONE: Self = Self { method: None, writes: false, reads: false };

    /// Blocks have checksums both ways.
    pub fn both_ways(method: ProtectionMethod) -> Self {
        Self { method: Some(method), writes: true, reads: true }
    }

    /// How blocks that are written are protected.
    pub fn of_writes(self) -> Option<ProtectionMethod> {
        self.method.filter(|_| self.writes)
    }

    /// How blocks that are read are protected.
    pub fn of_reads(self) -> Option<ProtectionMethod> {
        self.method.filter(|_| self.reads)
    }

    /// The mode page.
    pub fn to_page(self) -> Vec<u8> {
        let mut page = vec![0; PAGE_LEN];
        page[..4].copy_from_slice(&[0x40 | PAGE, SUBPAGE, 0, (PAGE_LEN - 4) as u8]);
        if let Some(method) = self.method {
            (page[4], page[5]) = (method as u8, CHECKSUM_LEN as u8);
        }
        page[6] = (u8::from(self.writes) << 7) | (u8::from(self.reads) << 6);
        page
    }

    /// From a mode page with its header; the error is the place of the byte that makes no sense.
    ///
    /// # Errors
    /// The place of the byte that makes no sense.
    pub fn of_page(page: &[u8]) -> Result<Self, u16> {
        if page.len() < SETTINGS.end {
            return Err(2);
        }
        let method = match page[4] {
            0 => None,
            1 => Some(ProtectionMethod::ReedSolomon),
            2 => Some(ProtectionMethod::Crc32c),
            _ => return Err(4),
        };
        let protection = Self { method, writes: page[6] & 0x80 != 0, reads: page[6] & 0x40 != 0 };
        match (method, usize::from(page[5] & 0x3f)) {
            // Without a method nothing can be protected by it.
            (None, _) if protection.writes || protection.reads => Err(6),
            (None, _) => Ok(Self::NONE),
            (Some(_), CHECKSUM_LEN) => Ok(protection),
            (Some(_), _) => Err(5),
        }
    }
}

/// The body of the VPD page of a drive that has both methods, both ways.
pub fn vital_body() -> Vec<u8> {
    let method = |method: ProtectionMethod| [3, method as u8, CHECKSUM_LEN as u8, 0xc0];
    [[0; 4], method(ProtectionMethod::ReedSolomon), method(ProtectionMethod::Crc32c)].concat()
}

impl ProtectionMethod {
    /// The checksum of a block, as it stands behind it.
    pub fn checksum(self, block: &[u8]) -> [u8; CHECKSUM_LEN] {
        match self {
            Self::ReedSolomon => reed_solomon(block).to_be_bytes(),
            Self::Crc32c => crc32c(block).to_le_bytes(),
        }
    }

    /// The block in front of its checksum; none if that is not its checksum, or if nothing stands in front of it.
    pub fn checked(self, protected: &[u8]) -> Option<&[u8]> {
        let (block, checksum) = protected.split_last_chunk::<CHECKSUM_LEN>()?;
        (!block.is_empty() && self.checksum(block) == *checksum).then_some(block)
    }
}

/// ECMA-319, annex D: bytes are digits in GF(256) over x^8 + x^4 + x^3 + x^2 + 1, the generator is
/// y^4 + a^201 y^3 + a^246 y^2 + a^201 y + 1, and the register begins at zero.
fn reed_solomon(block: &[u8]) -> u32 {
    block.iter().fold(0, |register, byte| (register << 8) ^ TIMES_GENERATOR[usize::from(byte ^ (register >> 24) as u8)])
}

/// Each byte times the lower coefficients of the generator.
static TIMES_GENERATOR: [u32; 256] = {
    // a^201 and a^246.
    const COEFFICIENTS: [u8; 4] = [0x38, 0xcf, 0x38, 0x01];
    let mut table = [0; 256];
    let mut byte = 0;
    while byte < 256 {
        let mut at = 0;
        while at < 4 {
            table[byte] = (table[byte] << 8) | product(byte as u8, COEFFICIENTS[at]) as u32;
            at += 1;
        }
        byte += 1;
    }
    table
};

/// Product in that field.
const fn product(mut of: u8, mut by: u8) -> u8 {
    let mut sum = 0;
    while by != 0 {
        if by & 1 != 0 {
            sum ^= of;
        }
        of = (of << 1) ^ if of & 0x80 != 0 { 0x1d } else { 0 };
        by >>= 1;
    }
    sum
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests fail by panicking")]
    use super::*;

    const METHODS: [ProtectionMethod; 2] = [ProtectionMethod::ReedSolomon, ProtectionMethod::Crc32c];

    #[test]
    fn the_page_stands_as_drives_have_it() {
        let page = LogicalBlockProtection::both_ways(ProtectionMethod::Crc32c).to_page();
        assert_eq!((&page[..7], page.len()), (&[0x4a, 0xf0, 0x00, 0x1c, 2, 4, 0xc0][..], 32));
        assert_eq!(LogicalBlockProtection::NONE.to_page()[4..], [0; 28]);
        let writes = LogicalBlockProtection { method: Some(ProtectionMethod::ReedSolomon), writes: true, reads: false };
        for protection in
            [LogicalBlockProtection::NONE, writes, LogicalBlockProtection::both_ways(ProtectionMethod::Crc32c)]
        {
            assert_eq!(LogicalBlockProtection::of_page(&protection.to_page()), Ok(protection));
        }
        // A T10000's, of eight bytes.
        assert_eq!(LogicalBlockProtection::of_page(&[0x4a, 0xf0, 0, 4, 1, 4, 0x80, 0]), Ok(writes));
    }

    #[test]
    fn a_page_that_makes_no_sense_is_refused_where_it_does_not() {
        let page = LogicalBlockProtection::both_ways(ProtectionMethod::Crc32c).to_page();
        for (at, byte) in [(4, 3), (4, 0xf0), (5, 2), (5, 0)] {
            let mut page = page.clone();
            page[at] = byte;
            assert_eq!(LogicalBlockProtection::of_page(&page), Err(at as u16));
        }
        let mut page = page;
        page[4] = 0;
        assert_eq!(LogicalBlockProtection::of_page(&page), Err(6));
        assert_eq!(LogicalBlockProtection::of_page(&page[..6]), Err(2));
    }

    /// The remainder of a message followed by its checksum is zero: that is what makes it one.
    #[test]
    fn checksums_are_those_of_the_standards() {
        // RFC 7143, appendix A.4: 32 zeroes.
        assert_eq!(ProtectionMethod::Crc32c.checksum(&[0; 32]), [0xaa, 0x36, 0x91, 0x8a]);
        // One digit leaves the generator itself.
        assert_eq!(ProtectionMethod::ReedSolomon.checksum(&[1]), [0x38, 0xcf, 0x38, 0x01]);
        assert_eq!(ProtectionMethod::ReedSolomon.checksum(&[0xff]), [0x76, 0x3f, 0x76, 0xff]);
        let block: Vec<u8> = (0..1000).map(|at| (at * 7) as u8).collect();
        let checksum = ProtectionMethod::ReedSolomon.checksum(&block);
        assert_eq!(reed_solomon(&[&block[..], &checksum].concat()), 0);
    }

    #[test]
    fn every_flipped_bit_is_seen() {
        for method in METHODS {
            let block: Vec<u8> = (1..200).collect();
            let mut protected = [&block[..], &method.checksum(&block)].concat();
            assert_eq!(method.checked(&protected), Some(&block[..]));
            for bit in 0..protected.len() * 8 {
                protected[bit / 8] ^= 1 << (bit % 8);
                assert_eq!(method.checked(&protected), None, "bit {bit}");
                protected[bit / 8] ^= 1 << (bit % 8);
            }
            assert_eq!((method.checked(&[0; 4]), method.checked(&[0; 3])), (None, None));
        }
    }
}
