//! What one stat says of a file, in the units of the catalog.

use capstan_format::{EntryKind, crc32c};
use rustix::fs::{FileType, Stat};

use crate::Metadata;

/// The change fingerprint: the low 24 bits of the change time's seconds since 1970, above the low 8 bits of CRC32C over
/// the change time (nanoseconds since 1970, i64) and the inode number (u64), both little-endian.
///
/// It costs the catalog a fraction of 32 random bits, because files that were installed together share their seconds.
/// What it cannot see: a change within the same second as the one before it that leaves size and modification time as
/// they were to the nanosecond, in one case of 256.
pub fn change_fingerprint(ctime_ns: i64, inode: u64) -> u32 {
    let mut bytes = [0; 16];
    bytes[..8].copy_from_slice(&ctime_ns.to_le_bytes());
    bytes[8..].copy_from_slice(&inode.to_le_bytes());
    let seconds = ctime_ns.div_euclid(1_000_000_000) as u32;
    seconds << 8 | (crc32c(&bytes) & 0xff)
}

/// One stat's worth of facts.
#[derive(Debug, Clone, Copy)]
pub(crate) struct FileMetadata {
    pub(crate) file_type: FileType,
    pub(crate) mode: u32,
    pub(crate) uid: u32,
    pub(crate) gid: u32,
    /// Size in bytes; 0 for everything but regular files.
    pub(crate) size: u64,
    /// Held at the ends of its range for times before 1677 and behind 2262.
    pub(crate) mtime_ns: i64,
    /// The modification time, whatever it is.
    exact_mtime_ns: i128,
    pub(crate) ctime_ns: i64,
    pub(crate) device: u64,
    pub(crate) inode: u64,
    pub(crate) link_count: u64,
    /// Blocks of 512 bytes that the file occupies.
    pub(crate) blocks: u64,
    pub(crate) device_node: (u32, u32),
}

impl FileMetadata {
    /// The modification time in the width of a pax header.
    pub(crate) fn exact_mtime_ns(&self) -> i128 {
        self.exact_mtime_ns
    }

    pub(crate) fn new(stat: &Stat) -> Self {
        let file_type = FileType::from_raw_mode(stat.st_mode);
        let nanoseconds = |seconds: i64, part: i64| i128::from(seconds) * 1_000_000_000 + i128::from(part);
        let held = |ns: i128| ns.clamp(i64::MIN.into(), i64::MAX.into()) as i64;
        let exact_mtime_ns = nanoseconds(stat.st_mtime, stat.st_mtime_nsec as i64);
        let size = if file_type == FileType::RegularFile { u64::try_from(stat.st_size).unwrap_or(0) } else { 0 };
        Self {
            file_type,
            mode: stat.st_mode & 0o7777,
            uid: stat.st_uid,
            gid: stat.st_gid,
            size,
            mtime_ns: held(exact_mtime_ns),
            exact_mtime_ns,
            ctime_ns: held(nanoseconds(stat.st_ctime, stat.st_ctime_nsec as i64)),
            device: stat.st_dev,
            inode: stat.st_ino,
            link_count: stat.st_nlink,
            blocks: u64::try_from(stat.st_blocks).unwrap_or(0),
            device_node: (rustix::fs::major(stat.st_rdev), rustix::fs::minor(stat.st_rdev)),
        }
    }

    /// The kind of member; `None` for a socket.
    pub(crate) fn kind(&self) -> Option<EntryKind> {
        match self.file_type {
            FileType::RegularFile => Some(EntryKind::File),
            FileType::Directory => Some(EntryKind::Directory),
            FileType::Symlink => Some(EntryKind::Symlink),
            FileType::Fifo => Some(EntryKind::Fifo),
            FileType::CharacterDevice => Some(EntryKind::CharDevice),
            FileType::BlockDevice => Some(EntryKind::BlockDevice),
            FileType::Socket | FileType::Unknown => None,
        }
    }

    pub(crate) fn change(&self) -> u32 {
        change_fingerprint(self.ctime_ns, self.inode)
    }

    /// What an incremental compares.
    pub(crate) fn compared(&self) -> Metadata {
        Metadata { size: self.size, mtime_ns: self.mtime_ns, change: self.change() }
    }

    /// Whether the file occupies less than its size, so that it may have holes.
    pub(crate) fn may_have_holes(&self) -> bool {
        self.blocks.saturating_mul(512) < self.size
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_fingerprint_is_what_the_format_says() {
        let mut bytes = 1_700_000_000_123_456_789i64.to_le_bytes().to_vec();
        bytes.extend_from_slice(&42u64.to_le_bytes());
        let expected = 1_700_000_000u32 << 8 | (crc32c(&bytes) & 0xff);
        assert_eq!(change_fingerprint(1_700_000_000_123_456_789, 42), expected);
        assert_ne!(change_fingerprint(1, 42), change_fingerprint(2, 42));
        assert_ne!(change_fingerprint(1, 42), change_fingerprint(1, 43));
        assert_ne!(change_fingerprint(0, 42), change_fingerprint(1_000_000_000, 42));
    }
}
