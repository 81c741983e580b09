//! Encodes the headers of a member: an extended header where something needs it, then the ustar header.
//!
//! ```text
//! extended header ('x', 512 bytes) | records, padded to 512      only if something does not fit the ustar header
//! ustar header (512 bytes)
//! sparse map, padded to 512                                       only for a file with holes
//! content | padding to 512                                        written by the caller
//! ```
//! The ustar fields (POSIX.1-2017, pax, "ustar Interchange Format"):
//! ```text
//!   0 name 100 | 100 mode 8 | 108 uid 8 | 116 gid 8 | 124 size 12 | 136 mtime 12 | 148 checksum 8 | 156 type 1
//! 157 link 100 | 257 "ustar\0" "00" | 265 user 32 | 297 group 32 | 329 major 8 | 337 minor 8 | 345 prefix 155
//! ```
//! Records are written only for what the ustar header cannot say, so that the common member costs 512 bytes, or 1,536
//! with nanoseconds in its time. Names that fit go into the ustar header byte for byte whatever their encoding, which
//! GNU tar, bsdtar and Python read back unchanged; a name that does not fit and is not UTF-8 is announced by
//! `hdrcharset=BINARY`, as POSIX has it. Files with holes are written as GNU.sparse 1.0, which keeps the map in the
//! data and so has no limit on its length. Nothing is allocated once the caller's buffer has grown to what its members
//! need.

use crate::EntryKind;

use super::attribute::{put_decimal, put_record};

/// Headers, maps and content are padded to multiples of this.
pub const BLOCK_LEN: usize = 512;

const NAME_LEN: usize = 100;
const PREFIX_LEN: usize = 155;
/// Largest value of seven octal digits: mode, ids, device numbers.
const SMALL_MAX: u64 = 0o777_7777;
/// Largest value of eleven octal digits: size and time.
const LARGE_MAX: u64 = 0o777_7777_7777;
const NANOSECONDS: u64 = 1_000_000_000;

/// A run of bytes of a file that is not a hole.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DataExtent {
    /// Where it begins in the file.
    pub offset: u64,
    /// Bytes of it.
    pub len: u64,
}

/// What the headers say of a member.
#[derive(Debug, Clone, Copy)]
pub struct Member<'a> {
    /// Path without a leading or trailing slash.
    pub path: &'a [u8],
    /// What it is; [`EntryKind::Deleted`] has no member and is encoded as an empty file.
    pub kind: EntryKind,
    /// Permission bits.
    pub mode: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Owner's name, empty if there is none.
    pub user: &'a [u8],
    /// Group's name, empty if there is none.
    pub group: &'a [u8],
    /// Size of the content with its holes; counts for [`EntryKind::File`] only.
    pub size: u64,
    /// Modification time, nanoseconds since 1970; wider than an entry's, because file systems know later years than
    /// 2262.
    pub mtime_ns: i128,
    /// Target of a symbolic link as it is, or path of the member that a hard link names.
    pub link: &'a [u8],
    /// Major and minor number of a device.
    pub device: (u32, u32),
    /// Further records as [`super::put_attribute`] makes them.
    pub records: &'a [u8],
    /// For a file with holes, where its data is, in order and without overlap.
    pub extents: Option<&'a [DataExtent]>,
}

/// Bytes of padding behind content of this length.
pub fn padding(len: u64) -> usize {
    (len.wrapping_neg() % BLOCK_LEN as u64) as usize
}

/// Appends the headers of a member, and the map of a file with holes; the content (of a file with holes: the extents'
/// bytes) and its padding follow it.
pub fn encode(member: &Member<'_>, out: &mut Vec<u8>) {
    let sparse = member.extents.filter(|_| member.kind == EntryKind::File);
    let content_len = match (member.kind, sparse) {
        (EntryKind::File, Some(extents)) => {
            sparse_map_len(member.size, extents) + extents.iter().map(|e| e.len).sum::<u64>()
        }
        (EntryKind::File, None) => member.size,
        _ => 0,
    };
    let start = out.len();
    // Room for the extended header; what its records hold is known once they are written.
    out.resize(start + BLOCK_LEN, 0);
    put_records(member, sparse.is_some(), content_len, out);
    let records_len = out.len() - start - BLOCK_LEN;
    if records_len == 0 {
        out.truncate(start);
    } else {
        out.resize(out.len() + padding(records_len as u64), 0);
        let header = &mut out[start..start + BLOCK_LEN];
        header[..EXTENDED_NAME.len()].copy_from_slice(EXTENDED_NAME);
        put_numbers(header, 0o644, 0, 0, records_len as u64, 0);
        seal(header, b'x');
    }
    let start = out.len();
    out.resize(start + BLOCK_LEN, 0);
    put_header(member, sparse.is_some(), content_len, &mut out[start..]);
    if let Some(extents) = sparse {
        put_sparse_map(member.size, extents, out);
    }
}

/// Name of extended headers, seen only by programs that do not know them.
const EXTENDED_NAME: &[u8] = b"PaxHeaders/0";

fn put_records(member: &Member<'_>, sparse: bool, content_len: u64, out: &mut Vec<u8>) {
    let path_fits = !sparse && split_path(member.path, member.kind).is_some();
    let link_fits = member.link.len() <= NAME_LEN;
    let beyond = [
        (!path_fits, member.path),
        (!link_fits, member.link),
        (member.user.len() >= 32, member.user),
        (member.group.len() >= 32, member.group),
    ];
    if beyond.iter().any(|(recorded, text)| *recorded && str::from_utf8(text).is_err()) {
        put_record(out, b"hdrcharset", b"BINARY");
    }
    if sparse {
        put_record(out, b"GNU.sparse.major", b"1");
        put_record(out, b"GNU.sparse.minor", b"0");
        put_record(out, b"GNU.sparse.name", member.path);
        put_number_record(out, b"GNU.sparse.realsize", member.size);
    } else if !path_fits {
        if member.kind == EntryKind::Directory {
            let mut path = Vec::with_capacity(member.path.len() + 1);
            path.extend_from_slice(member.path);
            path.push(b'/');
            put_record(out, b"path", &path);
        } else {
            put_record(out, b"path", member.path);
        }
    }
    if !link_fits {
        put_record(out, b"linkpath", member.link);
    }
    for (key, id) in [(b"uid", member.uid), (b"gid", member.gid)] {
        if u64::from(id) > SMALL_MAX {
            put_number_record(out, key, u64::from(id));
        }
    }
    if is_device(member.kind) {
        for (key, number) in [(b"SCHILY.devmajor", member.device.0), (b"SCHILY.devminor", member.device.1)] {
            if u64::from(number) > SMALL_MAX {
                put_number_record(out, key, u64::from(number));
            }
        }
    }
    if member.user.len() >= 32 {
        put_record(out, b"uname", member.user);
    }
    if member.group.len() >= 32 {
        put_record(out, b"gname", member.group);
    }
    if content_len > LARGE_MAX {
        put_number_record(out, b"size", content_len);
    }
    put_time_record(member.mtime_ns, out);
    out.extend_from_slice(member.records);
}

fn is_device(kind: EntryKind) -> bool {
    matches!(kind, EntryKind::CharDevice | EntryKind::BlockDevice)
}

fn put_number_record(out: &mut Vec<u8>, key: &[u8], value: u64) {
    let mut digits = Vec::with_capacity(20);
    put_decimal(&mut digits, value);
    put_record(out, key, &digits);
}

/// The record that nearly every member has, written in place: ` mtime=-SSS.NNNNNNNNN`.
fn put_time_record(mtime_ns: i128, out: &mut Vec<u8>) {
    let (seconds, mut fraction) = whole_and_fraction(mtime_ns.unsigned_abs());
    if fraction == 0 && mtime_ns >= 0 && seconds <= LARGE_MAX {
        return;
    }
    let mut text = [0u8; 32];
    let mut at = text.len();
    let mut put = |byte: u8| {
        at -= 1;
        text[at] = byte;
    };
    if fraction != 0 {
        for _ in 0..9 {
            put(b'0' + (fraction % 10) as u8);
            fraction /= 10;
        }
        put(b'.');
    }
    let mut left = seconds;
    loop {
        put(b'0' + (left % 10) as u8);
        left /= 10;
        if left == 0 {
            break;
        }
    }
    if mtime_ns < 0 {
        put(b'-');
    }
    put_record(out, b"mtime", &text[at..]);
}

/// Seconds and nanoseconds; almost every time fits 64 bits, whose division is ten times as fast.
fn whole_and_fraction(ns: u128) -> (u64, u64) {
    match u64::try_from(ns) {
        Ok(ns) => (ns / NANOSECONDS, ns % NANOSECONDS),
        Err(_) => {
            let (whole, fraction) = (ns / u128::from(NANOSECONDS), ns % u128::from(NANOSECONDS));
            (u64::try_from(whole).unwrap_or(u64::MAX), fraction as u64)
        }
    }
}

fn put_header(member: &Member<'_>, sparse: bool, content_len: u64, header: &mut [u8]) {
    if sparse {
        let base = member.path.rsplit(|&byte| byte == b'/').next().unwrap_or_default();
        let (directory, name) = header[..NAME_LEN].split_at_mut(16);
        directory.copy_from_slice(b"GNUSparseFile.0/");
        put_text(name, base);
    } else {
        let (prefix, name) = split_path(member.path, member.kind).unwrap_or((b"", member.path));
        put_text(&mut header[..NAME_LEN], name);
        if member.kind == EntryKind::Directory && name.len() < NAME_LEN {
            header[name.len()] = b'/';
        }
        put_text(&mut header[345..345 + PREFIX_LEN], prefix);
    }
    let seconds = u128::try_from(member.mtime_ns).map_or(0, |ns| whole_and_fraction(ns).0).min(LARGE_MAX);
    let size = if content_len > LARGE_MAX { 0 } else { content_len };
    put_numbers(header, member.mode & 0o7777, member.uid, member.gid, size, seconds);
    put_text(&mut header[157..157 + NAME_LEN], member.link);
    put_text(&mut header[265..265 + 31], member.user);
    put_text(&mut header[297..297 + 31], member.group);
    let kind = match member.kind {
        EntryKind::File | EntryKind::Deleted => b'0',
        EntryKind::HardLink => b'1',
        EntryKind::Symlink => b'2',
        EntryKind::CharDevice => b'3',
        EntryKind::BlockDevice => b'4',
        EntryKind::Directory => b'5',
        EntryKind::Fifo => b'6',
    };
    if is_device(member.kind) {
        put_octal(&mut header[329..337], u64::from(member.device.0).min(SMALL_MAX));
        put_octal(&mut header[337..345], u64::from(member.device.1).min(SMALL_MAX));
    }
    seal(header, kind);
}

/// Prefix and name as the ustar header holds them, without a directory's slash behind it; `None` if they do not fit.
fn split_path(path: &[u8], kind: EntryKind) -> Option<(&[u8], &[u8])> {
    let name_max = if kind == EntryKind::Directory { NAME_LEN - 1 } else { NAME_LEN };
    if path.len() <= name_max {
        return Some((b"", path));
    }
    // The first slash that leaves a name short enough also leaves the shortest prefix.
    let from = path.len() - name_max - 1;
    let slash = from + path[from..].iter().position(|&byte| byte == b'/')?;
    (slash > 0 && slash <= PREFIX_LEN).then(|| (&path[..slash], &path[slash + 1..]))
}

fn put_numbers(header: &mut [u8], mode: u32, uid: u32, gid: u32, size: u64, seconds: u64) {
    put_octal(&mut header[100..108], u64::from(mode));
    // An id that does not fit is in a record; a reader without records shall not make the file root's.
    put_octal(&mut header[108..116], u64::from(uid).min(SMALL_MAX));
    put_octal(&mut header[116..124], u64::from(gid).min(SMALL_MAX));
    put_octal(&mut header[124..136], size);
    put_octal(&mut header[136..148], seconds);
}

/// Fills a field with octal digits and the NUL that ends it.
fn put_octal(field: &mut [u8], mut value: u64) {
    let digits = field.len() - 1;
    for digit in field[..digits].iter_mut().rev() {
        *digit = b'0' + (value & 7) as u8;
        value >>= 3;
    }
    debug_assert_eq!(value, 0, "the value fits its field");
}

fn put_text(field: &mut [u8], text: &[u8]) {
    let len = text.len().min(field.len());
    field[..len].copy_from_slice(&text[..len]);
}

/// Type, magic and checksum.
fn seal(header: &mut [u8], kind: u8) {
    header[156] = kind;
    header[257..265].copy_from_slice(b"ustar\x0000");
    header[148..156].fill(b' ');
    let sum: u32 = header.iter().map(|&byte| u32::from(byte)).sum();
    put_octal(&mut header[148..155], u64::from(sum));
}

/// Data extents as the map lists them: with an empty one at the end where the file ends in a hole, from which readers
/// take the length to extend the file to.
fn sparse_entries(size: u64, extents: &[DataExtent]) -> impl Iterator<Item = DataExtent> + '_ {
    let end = extents.last().map_or(0, |last| last.offset + last.len);
    let ends_in_hole = end < size || extents.is_empty();
    extents.iter().copied().chain(ends_in_hole.then_some(DataExtent { offset: size, len: 0 }))
}

fn sparse_map_len(size: u64, extents: &[DataExtent]) -> u64 {
    let line_len = |value: u64| u64::from(value.checked_ilog10().unwrap_or(0)) + 2;
    let (mut count, mut len) = (0, 0);
    for extent in sparse_entries(size, extents) {
        count += 1;
        len += line_len(extent.offset) + line_len(extent.len);
    }
    len += line_len(count);
    len + padding(len) as u64
}

fn put_sparse_map(size: u64, extents: &[DataExtent], out: &mut Vec<u8>) {
    let start = out.len();
    let line = |value: u64, out: &mut Vec<u8>| {
        put_decimal(out, value);
        out.push(b'\n');
    };
    line(sparse_entries(size, extents).count() as u64, out);
    for extent in sparse_entries(size, extents) {
        line(extent.offset, out);
        line(extent.len, out);
    }
    let len = out.len() - start;
    out.resize(out.len() + padding(len as u64), 0);
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

    use super::*;
    use crate::pax::{DecodedMember, MemberDecoder, Step};

    /// A device number above seven octal digits was cut to its lower bits: the node of another device came back. Linux
    /// has no such numbers, but takes them from file systems of systems that have.
    #[test]
    fn large_device_numbers_survive() {
        for device in [(8, 1), (0o777_7777, 0o1000_0000), (u32::MAX, u32::MAX)] {
            let member = Member {
                path: b"node",
                kind: EntryKind::BlockDevice,
                mode: 0o600,
                uid: 0,
                gid: 6,
                user: b"",
                group: b"",
                size: 0,
                mtime_ns: 0,
                link: b"",
                device,
                records: b"",
                extents: None,
            };
            let mut encoded = Vec::new();
            encode(&member, &mut encoded);
            let (mut decoder, mut decoded) = (MemberDecoder::new(), DecodedMember::new());
            let mut blocks = encoded.chunks_exact(BLOCK_LEN).map(|block| block.first_chunk().unwrap());
            loop {
                match decoder.header(blocks.next().unwrap(), &mut decoded).unwrap() {
                    Step::Payload(len) => decoder.payload(&blocks.next().unwrap()[..len]).unwrap(),
                    Step::Member => break,
                    Step::Zeros => panic!("an encoded member has no blocks of zeros"),
                }
            }
            assert_eq!((decoded.device_major, decoded.device_minor), device);
        }
    }
}
