//! Files whose reading was cut off: what is on the volumes of one stays, and the rest follows in another stream.
//!
//! ```text
//! stream 0   | member | member | header, content ... mark ... mark ... |          the process was killed here
//! stream 3                                                             | content ... | member | member
//! ```
//! A mark is a fragment's entry, which travels as the entries of members do: once its checkpoint is recorded, the file
//! need not be read again up to there. It is gone on with if it stands as it did and its header would be the same.

use std::collections::HashSet;
use std::ffi::{CString, OsString};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::{OsStrExt, OsStringExt};

use capstan_format::{FileEntry, Fragment};
use rustix::fs::{AtFlags, FileType, Mode, OFlags, fstat, openat, statat};
use serde::{Deserialize, Serialize};

use super::metadata::FileMetadata;
use super::options::Mounts;
use super::queue::Queue;
use super::tree::{FILE_FLAGS, TreeSource, is_below};
use crate::Metadata;

/// Files are marked after so many bytes of all connections together, where the next chunk ends. What was written behind
/// the last mark that is recorded is read again.
const MARK_BYTES: u64 = 16 << 20;
/// A mark costs less than what is between two of them, however many connections there are.
const MARK_BYTES_MIN: u64 = 2 << 20;

/// After how many bytes each of so many connections marks a file.
pub(crate) fn mark_bytes(connections: usize) -> u64 {
    (MARK_BYTES / connections.max(1) as u64).max(MARK_BYTES_MIN)
}

/// A file of which a stream holds the beginning.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CutFile {
    /// Its path in the object.
    #[serde(with = "crate::os_text")]
    pub path: OsString,
    /// Its size then.
    pub size: u64,
    /// Its modification time then.
    pub mtime_ns: i64,
    /// Its change fingerprint then.
    pub change: u32,
    /// Where in the file its content goes on.
    pub content: u64,
    /// CRC32C of the content up to there.
    pub crc: u32,
    /// Bytes in front of its content in the stream.
    pub header_len: u64,
    /// Their CRC32C.
    pub header_crc: u32,
    /// Where its member begins: connection and offset.
    pub begins: (u16, u64),
    /// Bytes of the member so far.
    pub so_far: u64,
    /// Where what there is ends: connection and offset.
    pub ends: (u16, u64),
}

impl CutFile {
    /// What the last fragment of a file says, of which a member begins there and has so many bytes so far.
    pub fn of((entry, fragment): (&FileEntry, &Fragment), begins: (u16, u64), so_far: u64) -> Self {
        Self {
            path: OsString::from_vec(entry.path.clone()),
            size: entry.size,
            mtime_ns: entry.mtime_ns,
            change: entry.change,
            content: fragment.content,
            crc: entry.crc,
            header_len: fragment.header_len,
            header_crc: fragment.header_crc,
            begins,
            so_far,
            ends: (entry.connection, entry.end()),
        }
    }

    fn stands(&self, metadata: &FileMetadata) -> bool {
        let then = Metadata { size: self.size, mtime_ns: self.mtime_ns, change: self.change };
        // It may come from another machine, and what follows is computed from it.
        let is_sound = self.content < self.size && self.so_far <= i64::MAX.cast_unsigned();
        is_sound
            && metadata.file_type == FileType::RegularFile
            && metadata.link_count == 1
            && metadata.compared() == then
    }
}

/// One that was opened, to be gone on with.
pub(crate) struct OpenCut {
    pub(crate) cut: CutFile,
    pub(crate) fd: OwnedFd,
    pub(crate) metadata: FileMetadata,
}

/// The files that go on, each at the head of a stream, and are not read where the walk meets them.
#[derive(Default)]
pub(crate) struct CutFiles {
    paths: HashSet<Vec<u8>>,
}

impl CutFiles {
    pub(crate) fn is_empty(&self) -> bool {
        self.paths.is_empty()
    }

    pub(crate) fn holds(&self, path: &[u8]) -> bool {
        self.paths.contains(path)
    }
}

/// Opens those that stand as they did, one for each stream at most. Whatever is doubtful is left to the walk, which
/// reads it from its beginning.
pub(crate) fn open_cut(
    source: &TreeSource,
    queue: &Queue,
    cut: &[CutFile],
    streams: usize,
) -> (CutFiles, Vec<OpenCut>) {
    let mut files = CutFiles::default();
    let mut open = Vec::new();
    for cut in cut {
        if open.len() < streams
            && !files.holds(cut.path.as_bytes())
            && let Some(found) = open_one(source, queue, cut)
        {
            files.paths.insert(cut.path.as_bytes().to_vec());
            open.push(found);
        }
    }
    (files, open)
}

fn open_one(source: &TreeSource, queue: &Queue, cut: &CutFile) -> Option<OpenCut> {
    let path = cut.path.as_bytes();
    // It may come from another machine.
    if path.split(|&byte| byte == b'/').any(|name| matches!(name, b"" | b"." | b"..")) {
        return None;
    }
    let number = source.roots.iter().position(|root| is_below(path, &root.path) && path != root.path)?;
    let ends = path.iter().enumerate().filter(|(_, byte)| **byte == b'/').map(|(at, _)| at);
    if ends.chain([path.len()]).any(|end| source.is_excluded(number, &path[..end])) {
        return None;
    }
    let (above, name) = match path.iter().rposition(|&byte| byte == b'/') {
        Some(slash) => (&path[..slash], &path[slash + 1..]),
        None => (&b"."[..], path),
    };
    let root = source.reopen(queue, number, &source.roots[number].path).ok()?;
    let directory = source.reopen(queue, number, above).ok()?;
    if directory.metadata.device != root.metadata.device && source.mounts == Mounts::Stay {
        return None;
    }
    let name = CString::new(name).ok()?;
    // To open what is no file may do something to it: a tape, for one.
    let found = statat(&directory.fd, &*name, AtFlags::SYMLINK_NOFOLLOW).ok()?;
    if !cut.stands(&FileMetadata::new(&found)) {
        return None;
    }
    let open = |more: OFlags| openat(&directory.fd, &*name, FILE_FLAGS | more, Mode::empty());
    // Only owners and root may leave access times alone.
    let fd = open(OFlags::NOATIME).or_else(|_| open(OFlags::empty())).ok()?;
    let metadata = FileMetadata::new(&fstat(&fd).ok()?);
    cut.stands(&metadata).then(|| OpenCut { cut: cut.clone(), fd, metadata })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_connections_together_have_little_between_their_marks() {
        let of = |connections| mark_bytes(connections) >> 20;
        assert_eq!([1, 2, 4, 8, 64].map(of), [16, 8, 4, 2, 2]);
    }
}
