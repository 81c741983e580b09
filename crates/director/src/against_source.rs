//! An object held against its source as it is now: what differs, and what the source has and the object lacks.

use std::collections::HashSet;
use std::fs::File;
use std::io::Read;
use std::os::fd::{AsFd, OwnedFd};

use capstan_catalog::Object;
use capstan_format::{EntryKind, FileEntry, ObjectKind, crc32c_append};
use capstan_mover::{CACHES_RULE, CacheDirectories, is_cache_directory};
use rustix::fs::{AtFlags, CWD, Dir, FileType, Mode, OFlags, openat, statat};

use crate::DirectorError;
use crate::path_filter::patterns;
use crate::paths::index_path;
use crate::restore::FailedFile;
use crate::site::{Site, locked};

impl Site {
    /// Compares the state at an object with the files as they are now: kind, size, time, mode, owner and content; and
    /// names what the source has and the object lacks, but for what matches `excludes` or was left out of the backup by
    /// a pattern. A directory that it lacks is named once.
    ///
    /// # Errors
    /// A pattern is not one, or the catalog or the index of the object cannot be read. What cannot be read of the
    /// source is a difference, not an error.
    pub fn compare_with_source(&self, object: &Object, excludes: &[String]) -> Result<Vec<FailedFile>, DirectorError> {
        let mut left_out: Vec<_> = self.left_out(object.id)?.unwrap_or_default().into_iter().collect();
        left_out.extend(excludes.iter().cloned());
        let excluded = patterns(&left_out)?;
        let source = index_path(&object.source);
        let state = locked(&self.catalog).state(object.id)?;
        let mut differences = Vec::new();
        let mut known = HashSet::new();
        for entry in state.subtree(&index_path(&object.source)) {
            let entry = entry?.entry;
            let file = match entry.kind {
                EntryKind::HardLink => state.get(&entry.link)?.map(|file| file.entry),
                _ => None,
            };
            if let Some(reason) = difference(&entry, file.as_ref().unwrap_or(&entry)) {
                differences.push(FailedFile { path: entry.path.clone(), reason });
            }
            known.insert(entry.path);
        }
        if object.kind == ObjectKind::Tree {
            let is_excluded = |path: &[u8]| excluded.matches(&source, path);
            let caches = match left_out.iter().any(|rule| rule == CACHES_RULE) {
                true => CacheDirectories::LeaveOut,
                false => CacheDirectories::Read,
            };
            name_lacking(&object.source, &known, &is_excluded, caches, &mut differences);
        }
        Ok(differences)
    }
}

/// Names what is below a directory and not among the known paths.
fn name_lacking(
    root: &[u8],
    known: &HashSet<Vec<u8>>,
    is_excluded: &dyn Fn(&[u8]) -> bool,
    caches: CacheDirectories,
    lacking: &mut Vec<FailedFile>,
) {
    let mut left = vec![root.to_vec()];
    while let Some(directory) = left.pop() {
        if caches == CacheDirectories::LeaveOut && directory != root && is_cache(&directory) {
            continue;
        }
        let listed = match list(&directory) {
            Ok(listed) => listed,
            // A source that is one file, or a link, has nothing below it.
            Err(rustix::io::Errno::NOTDIR | rustix::io::Errno::LOOP) => continue,
            Err(error) => {
                let reason = format!("it cannot be listed: {}", std::io::Error::from(error));
                lacking.push(FailedFile { path: index_path(&directory), reason });
                continue;
            }
        };
        for (name, kind) in listed {
            let path = [directory.as_slice(), &name].join(&b'/');
            let member = index_path(&path);
            // A socket is never stored.
            if kind == FileType::Socket || is_excluded(&member) {
                continue;
            }
            if !known.contains(&member) {
                let reason = "the source has it, and the object does not".to_owned();
                lacking.push(FailedFile { path: member, reason });
                continue;
            }
            // Another file system is looked into if the backup did so.
            let crossed = || {
                let below = [member.as_slice(), b"/"].concat();
                device(&path) == device(&directory) || known.iter().any(|path| path.starts_with(&below))
            };
            if kind == FileType::Directory && crossed() {
                left.push(path);
            }
        }
    }
}

fn is_cache(directory: &[u8]) -> bool {
    let opened = parent_of(directory).and_then(|(parent, name)| {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        openat(&parent, name, flags, Mode::empty())
    });
    opened.is_ok_and(|directory| is_cache_directory(directory.as_fd()))
}

/// Names in a directory, and what each is.
fn list(directory: &[u8]) -> rustix::io::Result<Vec<(Vec<u8>, FileType)>> {
    let (parent, name) = parent_of(directory)?;
    let name = if name.is_empty() { b"." } else { name };
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let opened = openat(&parent, name, flags, Mode::empty())?;
    let mut found = Vec::new();
    for entry in Dir::read_from(&opened)? {
        let entry = entry?;
        let name = entry.file_name().to_bytes();
        if name == b"." || name == b".." {
            continue;
        }
        let kind = match entry.file_type() {
            // Not every file system tells with the name.
            FileType::Unknown => {
                let status = statat(&opened, entry.file_name(), AtFlags::SYMLINK_NOFOLLOW)?;
                FileType::from_raw_mode(status.st_mode)
            }
            told => told,
        };
        found.push((name.to_vec(), kind));
    }
    Ok(found)
}

fn device(path: &[u8]) -> Option<u64> {
    let (parent, name) = parent_of(path).ok()?;
    let name = if name.is_empty() { b"." } else { name };
    statat(&parent, name, AtFlags::SYMLINK_NOFOLLOW).ok().map(|status| status.st_dev)
}

/// Longest piece of a path that is opened at once; the kernel's limit is 4,096 with the zero.
const PIECE_LEN_MAX: usize = 4000;

/// Opens the directory above a path, a piece at a time: a path may be longer than the kernel takes in one call.
fn parent_of(path: &[u8]) -> rustix::io::Result<(OwnedFd, &[u8])> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let mut at = openat(CWD, c"/", flags, Mode::empty())?;
    let mut rest = path;
    loop {
        let window = &rest[..rest.len().min(PIECE_LEN_MAX)];
        let split = match (rest.len() <= PIECE_LEN_MAX, window.iter().rposition(|&byte| byte == b'/')) {
            (_, Some(slash)) => slash,
            (_, None) => return Ok((at, rest)),
        };
        at = openat(&at, &rest[..split], flags | OFlags::NOFOLLOW, Mode::empty())?;
        rest = &rest[split + 1..];
    }
}

/// What differs at a path now; `file` is the entry of its content, another one for a further name of a file.
fn difference(entry: &FileEntry, file: &FileEntry) -> Option<String> {
    let gone = |error: rustix::io::Errno| Some(format!("it cannot be looked at: {}", std::io::Error::from(error)));
    let (parent, name) = match parent_of(&entry.path) {
        Ok(found) => found,
        Err(error) => return gone(error),
    };
    let name = if name.is_empty() { b"." } else { name };
    let now = match statat(&parent, name, AtFlags::SYMLINK_NOFOLLOW) {
        Ok(now) => now,
        Err(error) => return gone(error),
    };
    let kind = FileType::from_raw_mode(now.st_mode);
    let same_kind = match entry.kind {
        EntryKind::File => kind == FileType::RegularFile,
        EntryKind::HardLink if file.kind == EntryKind::File => kind == FileType::RegularFile,
        EntryKind::HardLink => kind != FileType::Directory,
        EntryKind::Directory => kind == FileType::Directory,
        EntryKind::Symlink => kind == FileType::Symlink,
        EntryKind::Fifo => kind == FileType::Fifo,
        EntryKind::CharDevice => kind == FileType::CharacterDevice,
        EntryKind::BlockDevice => kind == FileType::BlockDevice,
        EntryKind::Deleted => false,
    };
    if !same_kind {
        return Some("it is of another kind now".to_owned());
    }
    let mode = now.st_mode & 0o7777;
    if kind != FileType::Symlink && mode != entry.mode {
        return Some(format!("its mode is {mode:04o}, was {:04o}", entry.mode));
    }
    if (now.st_uid, now.st_gid) != (entry.uid, entry.gid) {
        return Some(format!("its owner is {}:{}, was {}:{}", now.st_uid, now.st_gid, entry.uid, entry.gid));
    }
    if file.kind != EntryKind::File {
        return None;
    }
    if u64::try_from(now.st_size) != Ok(file.size) {
        return Some(format!("it has {} bytes, had {}", now.st_size, file.size));
    }
    let mtime_ns = now.st_mtime.saturating_mul(1_000_000_000).saturating_add(now.st_mtime_nsec as i64);
    if mtime_ns != file.mtime_ns {
        return Some("its modification time differs".to_owned());
    }
    let opened = openat(&parent, name, OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC, Mode::empty());
    match opened.map_err(std::io::Error::from).and_then(|file| content_crc(File::from(file))) {
        Ok(crc) if crc == file.crc => None,
        Ok(_) => Some("its content differs although size and time are the same".to_owned()),
        Err(error) => Some(format!("it cannot be read: {error}")),
    }
}

fn content_crc(mut file: File) -> std::io::Result<u32> {
    let mut buffer = vec![0; 1 << 20];
    let mut crc = 0;
    loop {
        match file.read(&mut buffer)? {
            0 => return Ok(crc),
            len => crc = crc32c_append(crc, &buffer[..len]),
        }
    }
}
