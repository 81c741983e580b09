//! The 512-byte header block.
//!
//! ```text
//!   0 100 name        148   8 checksum    263  2 version    345 155 prefix
//! 100   8 mode        156   1 typeflag    265 32 uname      500  12 unused
//! 108   8 uid         157 100 linkname    297 32 gname
//! 116   8 gid         257   6 magic       329  8 devmajor
//! 124  12 size                            337  8 devminor
//! 136  12 mtime
//! ```
//! Numbers are octal text, ended by a space or NUL (POSIX.1-2017, pax, "ustar Interchange Format"), or, as GNU tar
//! writes what does not fit, a big-endian number behind a first byte of 0x80 (0xff where it is negative).

use super::{BLOCK_LEN, DecodedMember, until_nul};
use crate::{EntryKind, FormatError};

/// What a header block announces.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Role {
    /// A member.
    Member(EntryKind),
    /// Records for the next member (`x`).
    Local,
    /// Records for all members behind it (`g`).
    Global,
    /// GNU: the next member's path (`L`).
    LongPath,
    /// GNU: the next member's link target (`K`).
    LongLink,
}

/// A block whose checksum is right.
pub(super) struct Header<'a> {
    block: &'a [u8; BLOCK_LEN],
}

impl<'a> Header<'a> {
    /// `None` for a block of zeros.
    pub(super) fn decode(block: &'a [u8; BLOCK_LEN]) -> Result<Option<Self>, FormatError> {
        if block.iter().all(|&byte| byte == 0) {
            return Ok(None);
        }
        let header = Self { block };
        let stored = header.number(148, 8, "checksum")?;
        let sum = |bytes: &[u8]| bytes.iter().map(|&byte| u32::from(byte)).sum::<u32>();
        let computed = sum(&block[..148]) + 8 * u32::from(b' ') + sum(&block[156..]);
        if stored != i64::from(computed) {
            let stored = u32::try_from(stored).unwrap_or(u32::MAX);
            return Err(FormatError::Checksum { what: "pax header", stored, computed });
        }
        Ok(Some(header))
    }

    pub(super) fn role(&self) -> Result<Role, FormatError> {
        let flag = self.block[156];
        Ok(match flag {
            // Before POSIX a directory was a file whose name ends in a slash.
            0 if self.text(0, 100).ends_with(b"/") => Role::Member(EntryKind::Directory),
            0 | b'0' | b'7' => Role::Member(EntryKind::File),
            b'1' => Role::Member(EntryKind::HardLink),
            b'2' => Role::Member(EntryKind::Symlink),
            b'3' => Role::Member(EntryKind::CharDevice),
            b'4' => Role::Member(EntryKind::BlockDevice),
            b'5' => Role::Member(EntryKind::Directory),
            b'6' => Role::Member(EntryKind::Fifo),
            b'x' => Role::Local,
            b'g' => Role::Global,
            b'L' => Role::LongPath,
            b'K' => Role::LongLink,
            _ => {
                let value = (flag as char).escape_default().to_string();
                return Err(FormatError::Field { what: "pax header", field: "typeflag", value });
            }
        })
    }

    /// Whether the block is POSIX's own kind and not GNU's or older.
    pub(super) fn posix(&self) -> bool {
        self.block[257..263] == *b"ustar\0"
    }

    pub(super) fn size(&self) -> Result<u64, FormatError> {
        unsigned(self.number(124, 12, "size")?, "size")
    }

    /// Sets every field of `member` to what the block says, extended attributes to none.
    pub(super) fn fill(&self, kind: EntryKind, member: &mut DecodedMember) -> Result<(), FormatError> {
        member.clear();
        member.kind = kind;
        if self.posix() {
            let prefix = self.text(345, 155);
            if !prefix.is_empty() {
                member.path.extend_from_slice(prefix);
                member.path.push(b'/');
            }
        }
        member.path.extend_from_slice(self.text(0, 100));
        member.link.extend_from_slice(self.text(157, 100));
        member.mode = (self.number(100, 8, "mode")? & 0o7777) as u32;
        member.uid = id(self.number(108, 8, "uid")?, "uid")?;
        member.gid = id(self.number(116, 8, "gid")?, "gid")?;
        member.size = self.size()?;
        member.mtime_ns = i128::from(self.number(136, 12, "mtime")?) * 1_000_000_000;
        if matches!(kind, EntryKind::CharDevice | EntryKind::BlockDevice) {
            member.device_major = id(self.number(329, 8, "devmajor")?, "devmajor")?;
            member.device_minor = id(self.number(337, 8, "devminor")?, "devminor")?;
        }
        Ok(())
    }

    fn text(&self, at: usize, len: usize) -> &'a [u8] {
        until_nul(&self.block[at..at + len])
    }

    fn number(&self, at: usize, len: usize, field: &'static str) -> Result<i64, FormatError> {
        let bytes = &self.block[at..at + len];
        let wrong = || FormatError::Field {
            what: "pax header",
            field,
            value: String::from_utf8_lossy(until_nul(bytes)).escape_default().to_string(),
        };
        if bytes[0] & 0x80 != 0 {
            return base256(bytes).ok_or_else(wrong);
        }
        let digits = bytes.trim_ascii_start();
        let end = digits.iter().position(|&byte| byte == 0 || byte == b' ').unwrap_or(digits.len());
        let mut value = 0i64;
        for &digit in &digits[..end] {
            if !(b'0'..=b'7').contains(&digit) {
                return Err(wrong());
            }
            value =
                value.checked_mul(8).and_then(|value| value.checked_add(i64::from(digit - b'0'))).ok_or_else(wrong)?;
        }
        Ok(value)
    }
}

fn base256(bytes: &[u8]) -> Option<i64> {
    // The first byte's top bit marks the encoding, the next one is the sign.
    let first = bytes[0] & 0x7f;
    let mut value = if first & 0x40 == 0 { i128::from(first) } else { i128::from(first) - 0x80 };
    for &byte in &bytes[1..] {
        value = value << 8 | i128::from(byte);
    }
    i64::try_from(value).ok()
}

fn unsigned(value: i64, field: &'static str) -> Result<u64, FormatError> {
    u64::try_from(value).map_err(|_| FormatError::Field { what: "pax header", field, value: value.to_string() })
}

fn id(value: i64, field: &'static str) -> Result<u32, FormatError> {
    u32::try_from(value).map_err(|_| FormatError::Field { what: "pax header", field, value: value.to_string() })
}
