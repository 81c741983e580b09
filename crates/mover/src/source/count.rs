//! How much there is: names counted ahead of the walk, for a display that says how far it is.
//!
//! Directories are opened and listed, and files are asked for their lengths by name, which costs about a microsecond a
//! file. It is done on a few threads, because on a cold file system both wait for the disk, and the walk, which lists
//! one directory at a time on each connection, then finds directories and files in the kernel's caches.

use std::ffi::CStr;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;

use rustix::fs::{AtFlags, CWD, FileType, Mode, Stat, fstat, openat, statat};

use super::listing::{Lister, Rest};
use super::metadata::FileMetadata;
use super::queue::{Directory, Parent, Queue, Work};
use super::run::raise_descriptor_limit;
use super::tree::{DIRECTORY_FLAGS, Descent, TreeSource};

/// Threads that list; each mostly waits.
const THREADS: usize = 4;

/// What was counted so far. It may be read while it is being counted.
#[derive(Debug, Default)]
pub struct Totals {
    files: AtomicU64,
    bytes: AtomicU64,
    directories: AtomicU64,
    complete: AtomicBool,
    stopped: AtomicBool,
}

impl Totals {
    /// All zero.
    pub fn new() -> Self {
        Self::default()
    }

    /// Everything but directories.
    pub fn files(&self) -> u64 {
        self.files.load(Ordering::Relaxed)
    }

    /// Bytes of the files by their lengths, holes included.
    pub fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    /// Directories.
    pub fn directories(&self) -> u64 {
        self.directories.load(Ordering::Relaxed)
    }

    /// Whether all was counted: only then is it a total.
    pub fn is_complete(&self) -> bool {
        self.complete.load(Ordering::Acquire)
    }

    /// Adds a device or an image, which is no file of a tree.
    pub(crate) fn add_device(&self, bytes: u64) {
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
        self.complete.store(!self.stopped.load(Ordering::Relaxed), Ordering::Release);
    }

    /// Ends the counting early, when nobody needs it any more.
    pub fn stop(&self) {
        self.stopped.store(true, Ordering::Relaxed);
    }
}

impl TreeSource {
    /// Counts what [`TreeSource::run`] would pass; returns when all is counted or [`Totals::stop`] was called. What
    /// cannot be opened counts as nothing.
    pub fn count(&self, totals: &Totals) {
        let queue = Queue::new(self.roots.len(), raise_descriptor_limit() / 4);
        thread::scope(|scope| {
            for _ in 0..THREADS {
                scope.spawn(|| self.count_from(&queue, totals));
            }
        });
        totals.complete.store(!totals.stopped.load(Ordering::Relaxed), Ordering::Release);
    }

    fn count_from(&self, queue: &Queue, totals: &Totals) {
        let mut lister = Lister::new();
        let mut path = Vec::new();
        while let Some(taken) = queue.take(usize::MAX) {
            if totals.stopped.load(Ordering::Relaxed) {
                return queue.stop();
            }
            match &*taken {
                Work::Source(number) => self.count_source(*number, queue, &mut lister, totals),
                Work::Rest(directory) => {
                    let (found, end) = lister.read(directory.fd.as_fd());
                    queue.put(directory, found, end.unwrap_or(Rest::End));
                }
                Work::Files(directory, names, range) => {
                    let (mut files, mut bytes) = (0, 0);
                    for (name, kind) in range.clone().filter_map(|index| names.get(index)) {
                        if self.excluded_in(directory, name, &mut path) {
                            continue;
                        }
                        files += 1;
                        if matches!(kind, FileType::RegularFile | FileType::Unknown) {
                            bytes += length(directory.fd.as_fd(), name);
                        }
                    }
                    totals.files.fetch_add(files, Ordering::Relaxed);
                    totals.bytes.fetch_add(bytes, Ordering::Relaxed);
                }
                Work::Child(parent, names, index) => {
                    let Some((name, _)) = names.get(*index) else { continue };
                    let parent = match parent {
                        Parent::Open(directory) => Arc::clone(directory),
                        Parent::Closed(closed) => match self.reopen(queue, closed.source, &closed.path) {
                            Ok(directory) => directory,
                            Err(_) => continue,
                        },
                    };
                    if self.excluded_in(&parent, name, &mut path) {
                        continue;
                    }
                    let Ok(fd) = openat(&parent.fd, &name[..name.len() - 1], DIRECTORY_FLAGS, Mode::empty()) else {
                        continue;
                    };
                    totals.directories.fetch_add(1, Ordering::Relaxed);
                    let Ok(metadata) = fstat(&fd).map(|stat| FileMetadata::new(&stat)) else { continue };
                    if self.descend(fd.as_fd(), metadata.device, Some(parent.metadata.device)) == Descent::Enter {
                        let cache = self.cache_listing(fd.as_fd());
                        let directory = queue.directory(fd, path.clone(), metadata, parent.source);
                        let (found, end) = match cache {
                            Some(listing) => (listing, Ok(Rest::End)),
                            None => lister.read(directory.fd.as_fd()),
                        };
                        queue.put(&directory, found, end.unwrap_or(Rest::End));
                    }
                }
            }
        }
    }

    fn count_source(&self, number: usize, queue: &Queue, lister: &mut Lister, totals: &Totals) {
        let root = &self.roots[number];
        let Ok(stat) = statat(CWD, &*root.name, AtFlags::SYMLINK_NOFOLLOW) else { return };
        if FileType::from_raw_mode(stat.st_mode) != FileType::Directory {
            totals.files.fetch_add(1, Ordering::Relaxed);
            totals.bytes.fetch_add(length_of(&stat), Ordering::Relaxed);
            return;
        }
        totals.directories.fetch_add(1, Ordering::Relaxed);
        let Ok(fd) = openat(CWD, &*root.name, DIRECTORY_FLAGS, Mode::empty()) else { return };
        let directory = queue.directory(fd, root.path.clone(), FileMetadata::new(&stat), number);
        let (found, end) = lister.read(directory.fd.as_fd());
        queue.put(&directory, found, end.unwrap_or(Rest::End));
    }

    /// Whether a name (with the NUL that ends it) in a directory is left out; `path` is its path afterwards.
    fn excluded_in(&self, directory: &Directory, name: &[u8], path: &mut Vec<u8>) -> bool {
        let name = &name[..name.len() - 1];
        path.clear();
        if directory.path != b"." {
            path.extend_from_slice(&directory.path);
            path.push(b'/');
        }
        path.extend_from_slice(name);
        self.is_excluded(directory.source, path)
    }
}

/// The length of what a name (with the NUL that ends it) in a directory is, if that is a regular file.
fn length(directory: BorrowedFd<'_>, name: &[u8]) -> u64 {
    let Ok(name) = CStr::from_bytes_with_nul(name) else { return 0 };
    statat(directory, name, AtFlags::SYMLINK_NOFOLLOW).map_or(0, |stat| length_of(&stat))
}

fn length_of(stat: &Stat) -> u64 {
    if FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile {
        stat.st_size.try_into().unwrap_or(0)
    } else {
        0
    }
}
