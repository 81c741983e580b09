//! File entries: one row for each member of an object, as a checkpoint carries them and the catalog keeps them.
//!
//! A run of entries is packed: each path shares a prefix with the one before it. For each entry:
//! ```text
//! varint  bytes of the path shared with the entry before (0 for the first)
//! varint  length of the rest of the path, then the rest
//! u8      kind: 1 file, 2 directory, 3 symlink, 4 hard link, 5 fifo, 6 character device, 7 block device, 8 deleted
//! varint  flags: 1 grew, 2 shrank, 4 vanished, 8 content changed while read, 16 sparse, 32 unreadable, 64 fragment
//! varint  mode (permission bits), varint uid, varint gid
//! varint  size
//! signed varint  mtime, nanoseconds since 1970, less that of the entry before (0 before the first; wrapping)
//! u32     change fingerprint
//! u32     CRC32C of the content (0 where there is none)
//! varint  connection
//! signed varint  offset of the member in the connection's stream, less the end of the member before (wrapping)
//! varint  length of the member in the stream: headers, content and padding (0 where the stream holds nothing)
//! kind 4 only: varint length of the target's path, then the path
//! flag 64 only: varint length of a [`Fragment`], then it
//! ```
//! A varint is LEB128; a signed varint is zigzag in a varint.
//!
//! The change fingerprint is the change time's seconds, their low 24 bits, above 8 bits of a hash over change time in
//! nanoseconds and inode: together with the exact size and mtime it tells whether a file was touched, at a fraction of
//! the bytes that both would cost in the catalog, because neighbours share their seconds.

use crate::FormatError;
use crate::cursor::{Cursor, put_bytes, put_varint, put_varint_signed};

/// Longest path that is believed when entries are decoded.
const PATH_LEN_MAX: usize = 1 << 20;
/// Longest path that is stored. What is longer could be neither restored nor recorded.
pub const PATH_LEN_STORED_MAX: usize = 256 << 10;

/// What a member is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum EntryKind {
    /// A regular file; also a device image or a stream, which are read as one file.
    File,
    /// A directory.
    Directory,
    /// A symbolic link.
    Symlink,
    /// A further name of a file that another entry holds.
    HardLink,
    /// A named pipe.
    Fifo,
    /// A character device.
    CharDevice,
    /// A block device node.
    BlockDevice,
    /// A path that the base of an incremental has and the source no longer has.
    Deleted,
}

impl EntryKind {
    const ALL: [Self; 8] = [
        Self::File,
        Self::Directory,
        Self::Symlink,
        Self::HardLink,
        Self::Fifo,
        Self::CharDevice,
        Self::BlockDevice,
        Self::Deleted,
    ];

    /// The kind's number on tape and in the catalog, from 1.
    pub fn code(self) -> u8 {
        Self::ALL.iter().position(|&kind| kind == self).map_or(0, |at| at as u8 + 1)
    }

    /// The kind of a number, if there is one.
    pub fn from_code(code: u8) -> Option<Self> {
        Self::ALL.get(usize::from(code).checked_sub(1)?).copied()
    }
}

/// What happened to a file while it was read, and how its content is laid out: a set of bits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Hash)]
pub struct EntryFlags(pub u8);

impl EntryFlags {
    /// It became longer while it was read; what was there at the start is stored.
    pub const GREW: Self = Self(1);
    /// It became shorter while it was read; zeros stand for what went missing.
    pub const SHRANK: Self = Self(2);
    /// It was listed and then gone; nothing is stored.
    pub const VANISHED: Self = Self(4);
    /// Its content changed while it was read.
    pub const CHANGED: Self = Self(8);
    /// Holes are stored as holes.
    pub const SPARSE: Self = Self(16);
    /// It could not be read. Without a member nothing is stored; with one, zeros stand for a part of a file, and of a
    /// directory what is in it could not be listed to its end.
    pub const UNREADABLE: Self = Self(32);
    /// It is no member, but what a stream holds of one that is not whole yet or that began in another stream.
    pub const FRAGMENT: Self = Self(64);
    /// Not all of its extended attributes and access control lists could be read, and another try may help.
    pub const LACKS_ATTRIBUTES: Self = Self(128);
    /// Both bits: when its object was of the moment that it describes, the path could not be read, and this is the last
    /// version that was. Only an object that was made of others has such a member.
    pub const OLDER: Self = Self::VANISHED.with(Self::UNREADABLE);

    /// Whether every bit of `other` is set.
    pub fn contains(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    /// Both sets together.
    #[must_use]
    pub const fn with(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

/// One member of an object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileEntry {
    /// Path without a leading or trailing slash, as bytes; `.` where the source itself is the root directory.
    pub path: Vec<u8>,
    /// What it is.
    pub kind: EntryKind,
    /// What happened to it.
    pub flags: EntryFlags,
    /// Permission bits, `mode & 0o7777`.
    pub mode: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Size of the content in bytes, holes included.
    pub size: u64,
    /// Modification time, nanoseconds since 1970.
    pub mtime_ns: i64,
    /// Fingerprint of change time and inode; see the module's page.
    pub change: u32,
    /// CRC32C of the content with holes read as zeros; 0 where there is none.
    pub crc: u32,
    /// Connection whose stream holds the member.
    pub connection: u16,
    /// Where the member begins in that stream.
    pub offset: u64,
    /// Bytes of the member in the stream, headers and padding included.
    pub member_len: u64,
    /// Path of the file that a hard link names; of a fragment, the packed [`Fragment`]; else empty.
    pub link: Vec<u8>,
}

impl FileEntry {
    /// What is wrong with it, in words that follow its path, if no backup writes it so: a catalog refuses the whole
    /// checkpoint that it comes with. Whoever takes entries from elsewhere asks before.
    pub fn fault(&self) -> Option<&'static str> {
        // Whoever reads a catalog may add what it says without looking twice.
        let ends = [Some(self.size), self.offset.checked_add(self.member_len)];
        if ends.iter().any(|end| end.is_none_or(|end| i64::try_from(end).is_err())) {
            return Some("reaches further than any stream");
        }
        let path = &self.path;
        let is_path = !path.is_empty() && !path.starts_with(b"/") && !path.ends_with(b"/") && !path.contains(&0);
        (!is_path).then_some("is no path of a member")
    }

    /// Whether it is a fragment, and no member.
    pub fn is_fragment(&self) -> bool {
        self.flags.contains(EntryFlags::FRAGMENT)
    }

    /// What a fragment says beyond its entry; none for a member.
    ///
    /// # Errors
    /// As [`Fragment::decode`]; or it is of no file, ends behind any stream, or goes on from a stream that is no
    /// earlier one, or in the middle of its own.
    pub fn fragment(&self) -> Result<Option<Fragment>, FormatError> {
        if !self.is_fragment() {
            return Ok(None);
        }
        let fragment = Fragment::decode(&self.link)?;
        let field = |field, value: u64| FormatError::Field { what: "fragment", field, value: value.to_string() };
        if self.kind != EntryKind::File {
            return Err(field("kind", self.kind.code().into()));
        }
        if let Some((connection, end)) = fragment.continues {
            if connection >= self.connection {
                return Err(field("continued connection", connection.into()));
            }
            if self.offset != 0 || i64::try_from(end).is_err() {
                return Err(field("end of the continued stream", end));
            }
        }
        Ok(Some(fragment))
    }

    /// Where its bytes end in its stream.
    pub fn end(&self) -> u64 {
        self.offset.saturating_add(self.member_len)
    }
}

/// What a fragment says beyond its entry: how its file may be gone on with, and which stream it goes on from.
///
/// The entry has the path, size, time and change fingerprint of the file as the member has them, the CRC32C of the
/// content up to the fragment's end, and where the fragment is in its stream. Packed: varints content, length of the
/// header; u32 CRC32C of the header; u8 0, or 1 and varints of the stream and its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Fragment {
    /// Where in the file the content goes on behind it.
    pub content: u64,
    /// Bytes in front of the member's content: pax records, header, map of a sparse file.
    pub header_len: u64,
    /// Their CRC32C: a writer goes on only where they would be the same.
    pub header_crc: u32,
    /// The stream whose end this one goes on from, and where that ends.
    pub continues: Option<(u16, u64)>,
}

impl Fragment {
    /// The packed bytes.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::new();
        put_varint(&mut out, self.content);
        put_varint(&mut out, self.header_len);
        out.extend_from_slice(&self.header_crc.to_le_bytes());
        out.push(u8::from(self.continues.is_some()));
        if let Some((connection, end)) = self.continues {
            put_varint(&mut out, u64::from(connection));
            put_varint(&mut out, end);
        }
        out
    }

    /// Unpacks what a fragment's entry has.
    ///
    /// # Errors
    /// It is cut short or goes on behind its end, or a field has a value that no writer writes.
    pub fn decode(bytes: &[u8]) -> Result<Self, FormatError> {
        let mut cursor = Cursor::new("fragment", bytes);
        let (content, header_len, header_crc) = (cursor.varint()?, cursor.varint()?, cursor.u32()?);
        let continues = match cursor.u8()? {
            0 => None,
            1 => {
                let connection = cursor.varint()?;
                let connection = u16::try_from(connection).map_err(|_| cursor.field("connection", &connection))?;
                Some((connection, cursor.varint()?))
            }
            other => return Err(cursor.field("continues", &other)),
        };
        if !cursor.is_empty() {
            return Err(cursor.field("bytes behind the end", &(bytes.len() - cursor.position())));
        }
        Ok(Self { content, header_len, header_crc, continues })
    }
}

/// Packs entries into bytes, each after the one before.
#[derive(Debug, Default)]
pub struct EntryEncoder {
    bytes: Vec<u8>,
    count: u64,
    path: Vec<u8>,
    mtime_ns: i64,
    member_end: u64,
}

impl EntryEncoder {
    /// An empty run.
    pub fn new() -> Self {
        Self::default()
    }

    /// Appends an entry.
    pub fn push(&mut self, entry: &FileEntry) {
        let shared = self.path.iter().zip(&entry.path).take_while(|(a, b)| a == b).count();
        let out = &mut self.bytes;
        put_varint(out, shared as u64);
        put_bytes(out, &entry.path[shared..]);
        out.push(entry.kind.code());
        put_varint(out, u64::from(entry.flags.0));
        put_varint(out, u64::from(entry.mode));
        put_varint(out, u64::from(entry.uid));
        put_varint(out, u64::from(entry.gid));
        put_varint(out, entry.size);
        put_varint_signed(out, entry.mtime_ns.wrapping_sub(self.mtime_ns));
        out.extend_from_slice(&entry.change.to_le_bytes());
        out.extend_from_slice(&entry.crc.to_le_bytes());
        put_varint(out, u64::from(entry.connection));
        put_varint_signed(out, entry.offset.wrapping_sub(self.member_end).cast_signed());
        put_varint(out, entry.member_len);
        if entry.kind == EntryKind::HardLink || entry.is_fragment() {
            put_bytes(out, &entry.link);
        }
        self.path.clear();
        self.path.extend_from_slice(&entry.path);
        self.mtime_ns = entry.mtime_ns;
        self.member_end = entry.offset.wrapping_add(entry.member_len);
        self.count += 1;
    }

    /// Entries so far.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// Bytes so far.
    pub fn len(&self) -> usize {
        self.bytes.len()
    }

    /// Whether nothing was pushed.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Ends the run.
    pub fn finish(self) -> Vec<u8> {
        self.bytes
    }
}

/// Unpacks entries; an iterator that ends at the first error.
pub struct EntryDecoder<'a> {
    cursor: Cursor<'a>,
    path: Vec<u8>,
    mtime_ns: i64,
    member_end: u64,
    failed: bool,
}

impl<'a> EntryDecoder<'a> {
    /// A decoder over a whole run.
    pub fn new(bytes: &'a [u8]) -> Self {
        let cursor = Cursor::new("file entries", bytes);
        Self { cursor, path: Vec::new(), mtime_ns: 0, member_end: 0, failed: false }
    }

    fn entry(&mut self) -> Result<FileEntry, FormatError> {
        let cursor = &mut self.cursor;
        let shared = usize::try_from(cursor.varint()?).unwrap_or(usize::MAX);
        if shared > self.path.len() {
            return Err(cursor.field("shared path length", &shared));
        }
        let rest = cursor.bytes(PATH_LEN_MAX)?;
        if shared + rest.len() > PATH_LEN_MAX {
            return Err(cursor.field("path length", &(shared + rest.len())));
        }
        self.path.truncate(shared);
        self.path.extend_from_slice(rest);
        let code = cursor.u8()?;
        let kind = EntryKind::from_code(code).ok_or_else(|| cursor.field("kind", &code))?;
        let flags = cursor.varint()?;
        let flags = u8::try_from(flags).map(EntryFlags).map_err(|_| cursor.field("flags", &flags))?;
        let mode = cursor.varint_u32()?;
        let uid = cursor.varint_u32()?;
        let gid = cursor.varint_u32()?;
        let size = cursor.varint()?;
        let mtime_ns = self.mtime_ns.wrapping_add(cursor.varint_signed()?);
        let change = cursor.u32()?;
        let crc = cursor.u32()?;
        let connection = cursor.varint()?;
        let connection = u16::try_from(connection).map_err(|_| cursor.field("connection", &connection))?;
        let offset = self.member_end.wrapping_add(cursor.varint_signed()?.cast_unsigned());
        let member_len = cursor.varint()?;
        let has_link = kind == EntryKind::HardLink || flags.contains(EntryFlags::FRAGMENT);
        let link = if has_link { cursor.bytes(PATH_LEN_MAX)?.to_vec() } else { Vec::new() };
        self.mtime_ns = mtime_ns;
        self.member_end = offset.wrapping_add(member_len);
        let path = self.path.clone();
        Ok(FileEntry {
            path,
            kind,
            flags,
            mode,
            uid,
            gid,
            size,
            mtime_ns,
            change,
            crc,
            connection,
            offset,
            member_len,
            link,
        })
    }
}

impl Iterator for EntryDecoder<'_> {
    type Item = Result<FileEntry, FormatError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.failed || self.cursor.is_empty() {
            return None;
        }
        let entry = self.entry();
        self.failed = entry.is_err();
        Some(entry)
    }
}
