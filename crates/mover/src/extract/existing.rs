//! What a restore that goes on would leave as it is, known before anything is read for it.

use std::io;
use std::path::Path;

use capstan_format::pax::DecodedMember;
use capstan_format::{EntryKind, FileEntry};
use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags, Stat, openat, statat};
use rustix::io::Errno;

use super::directories::{DIRECTORY, DirectoryCache, Missing, Root};
use super::path::{checked, split, stripped};

/// Mode of a file that is not complete.
pub(super) const UNFINISHED: Mode = Mode::WUSR;

/// A regular file as a backup knows it.
pub(super) struct KnownFile {
    pub(super) mode: u32,
    pub(super) size: u64,
    pub(super) mtime_ns: i128,
}

impl KnownFile {
    pub(super) fn of(member: &DecodedMember) -> Self {
        Self { mode: member.mode, size: member.size, mtime_ns: member.mtime_ns }
    }

    /// Whether what exists looks like one that a restore has not finished.
    pub(super) fn is_unfinished(&self, existing: &Stat) -> bool {
        FileType::from_raw_mode(existing.st_mode) == FileType::RegularFile
            && existing.st_mode & 0o7777 == UNFINISHED.as_raw_mode()
            && self.mode != UNFINISHED.as_raw_mode()
    }

    /// Whether what exists is a file of the same size and time, and finished.
    pub(super) fn is_same(&self, existing: &Stat) -> bool {
        FileType::from_raw_mode(existing.st_mode) == FileType::RegularFile
            && !self.is_unfinished(existing)
            && existing.st_size.cast_unsigned() == self.size
            && mtime_ns(existing) == self.mtime_ns
    }
}

/// When what exists was modified, nanoseconds since 1970.
pub(super) fn mtime_ns(existing: &Stat) -> i128 {
    i128::from(existing.st_mtime) * 1_000_000_000 + i128::from(existing.st_mtime_nsec)
}

/// A directory that is restored to, as it is before the restore.
#[derive(Debug)]
pub struct ExistingFiles {
    root: Root,
    directories: DirectoryCache,
    strip: usize,
}

impl ExistingFiles {
    /// Opens the directory; none if there is none. So many leading components are taken from each path.
    ///
    /// # Errors
    /// It cannot be opened.
    pub fn below(directory: &Path, strip: usize) -> io::Result<Option<Self>> {
        match openat(CWD, directory, DIRECTORY | OFlags::CLOEXEC, Mode::empty()) {
            Ok(opened) => Ok(Some(Self { root: Root::new(opened), directories: DirectoryCache::new(), strip })),
            Err(Errno::NOENT) => Ok(None),
            Err(errno) => Err(errno.into()),
        }
    }

    /// Whether [`Overwrite::Changed`](super::Overwrite::Changed) would leave the file of an entry as it is. In doubt
    /// it would not: the restore sees for itself.
    pub fn has(&mut self, entry: &FileEntry) -> bool {
        if entry.kind != EntryKind::File {
            return false;
        }
        let Some(path) = stripped(&entry.path, self.strip) else { return false };
        let Ok(path) = checked(&path) else { return false };
        let (above, name) = split(path);
        let Ok(directory) = self.directories.get(&self.root, above, Missing::Fail) else { return false };
        let known = KnownFile { mode: entry.mode, size: entry.size, mtime_ns: entry.mtime_ns.into() };
        !name.is_empty()
            && statat(directory.fd(), name, AtFlags::SYMLINK_NOFOLLOW).is_ok_and(|existing| known.is_same(&existing))
            && self.root.names.is_listed(directory.fd(), name)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests fail by panicking")]
    use std::fs::{self, File, Permissions};
    use std::os::unix::fs::{PermissionsExt, symlink};
    use std::time::{Duration, SystemTime};

    use capstan_format::EntryFlags;

    use super::*;

    fn entry(path: &str, kind: EntryKind) -> FileEntry {
        FileEntry {
            path: path.as_bytes().to_vec(),
            kind,
            flags: EntryFlags::default(),
            mode: 0o644,
            uid: 0,
            gid: 0,
            size: 5,
            mtime_ns: 7_000_000_001,
            change: 0,
            crc: 0,
            connection: 0,
            offset: 0,
            member_len: 1024,
            link: Vec::new(),
        }
    }

    /// A file of five bytes, as that entry knows it.
    fn make(path: &Path) {
        fs::write(path, "hello").unwrap();
        let time = SystemTime::UNIX_EPOCH + Duration::from_nanos(7_000_000_001);
        File::options().write(true).open(path).unwrap().set_modified(time).unwrap();
    }

    #[test]
    fn a_file_is_there_if_size_and_time_are_the_same_and_it_is_finished() {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir(folder.path().join("a")).unwrap();
        let file = folder.path().join("a/file");
        make(&file);
        let mut existing = ExistingFiles::below(folder.path(), 0).unwrap().unwrap();
        let known = entry("a/file", EntryKind::File);
        assert!(existing.has(&known));
        assert!(!existing.has(&FileEntry { size: 6, ..known.clone() }));
        assert!(!existing.has(&FileEntry { mtime_ns: 7_000_000_000, ..known.clone() }));
        assert!(!existing.has(&FileEntry { kind: EntryKind::Symlink, ..known.clone() }));
        for path in ["a/other", "b/file", "a", ".", "../a/file", "/a/file"] {
            assert!(!existing.has(&entry(path, EntryKind::File)), "{path}");
        }
        fs::set_permissions(&file, Permissions::from_mode(0o200)).unwrap();
        assert!(!existing.has(&known), "what a restore that was killed has left");
        assert!(existing.has(&FileEntry { mode: 0o200, ..known }));
        let mut stripped = ExistingFiles::below(folder.path(), 2).unwrap().unwrap();
        assert!(stripped.has(&FileEntry { mode: 0o200, ..entry("x/y/a/file", EntryKind::File) }));
        assert!(!stripped.has(&entry("x/y", EntryKind::File)));
        assert!(ExistingFiles::below(&folder.path().join("none"), 0).unwrap().is_none());
    }

    #[test]
    fn nothing_is_found_through_a_link() {
        let (folder, outside) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        make(&outside.path().join("file"));
        symlink(outside.path(), folder.path().join("a")).unwrap();
        symlink(outside.path().join("file"), folder.path().join("b")).unwrap();
        let mut existing = ExistingFiles::below(folder.path(), 0).unwrap().unwrap();
        assert!(!existing.has(&entry("a/file", EntryKind::File)));
        assert!(!existing.has(&entry("b", EntryKind::File)));
    }
}
