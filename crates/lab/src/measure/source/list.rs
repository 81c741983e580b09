//! The files of a tree that a backup reads, and where they have data.
//!
//! A walk of our own, since the mover's reads what it lists. It keeps to the mover's rules: it goes on where another
//! file system is mounted, but not into one that the kernel makes up; it passes over holes; and content that has
//! several names is taken once.

use std::collections::HashSet;
use std::fs::{self, File};
use std::io;
use std::ops::ControlFlow;
use std::os::fd::AsFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use capstan_mover::is_pseudo;
use rustix::fs::{Advice, SeekFrom, fadvise, seek, statfs, syncfs};
use rustix::io::Errno;
use walkdir::{DirEntry, WalkDir};

use super::SourceRateError;

/// A file that holds something.
pub(super) struct Listed {
    pub(super) path: PathBuf,
    /// Bytes, holes included.
    pub(super) len: u64,
    /// Whether it has holes.
    pub(super) is_sparse: bool,
}

/// Calls `found` with each file of a tree that holds something, until it has enough. What may not be looked into is
/// left out here, and reported where it is backed up.
///
/// # Errors
/// [`SourceRateError::Stopped`].
pub(super) fn each_file(
    tree: &Path,
    stop: &AtomicBool,
    mut found: impl FnMut(Listed) -> ControlFlow<()>,
) -> Result<(), SourceRateError> {
    // The devices of the directories above the one that is looked at.
    let mut devices: Vec<u64> = Vec::new();
    let enter = move |entry: &DirEntry| {
        if !entry.file_type().is_dir() {
            return true;
        }
        let Ok(metadata) = entry.metadata() else { return false };
        devices.truncate(entry.depth());
        let above = devices.last().copied();
        devices.push(metadata.dev());
        !is_pseudo_below(entry.path(), metadata.dev(), above)
    };
    let mut linked = HashSet::new();
    for entry in WalkDir::new(tree).into_iter().filter_entry(enter) {
        if stop.load(Ordering::Relaxed) {
            return Err(SourceRateError::Stopped);
        }
        let Ok(entry) = entry else { continue };
        let Ok(metadata) = entry.metadata() else { continue };
        if !metadata.is_file() || metadata.nlink() > 1 && !linked.insert((metadata.dev(), metadata.ino())) {
            continue;
        }
        let listed = Listed { path: entry.into_path(), len: metadata.len(), is_sparse: may_have_holes(&metadata) };
        if listed.len > 0 && found(listed).is_break() {
            break;
        }
    }
    Ok(())
}

/// Whether a directory of this device is of a file system that the kernel makes up, and lies in one of the device
/// `above`; a source has none above it.
pub(super) fn is_pseudo_below(directory: &Path, device: u64, above: Option<u64>) -> bool {
    let is_mounted = above.is_some_and(|above| above != device);
    is_mounted && statfs(directory).is_ok_and(|stat| is_pseudo(&stat))
}

/// Whether a file takes less than its length.
pub(super) fn may_have_holes(metadata: &fs::Metadata) -> bool {
    metadata.blocks().saturating_mul(512) < metadata.len()
}

/// The next stretch from `at` on that holds data and ends before `end`; none if only a hole follows.
pub(super) fn data_from(file: &File, at: u64, end: u64) -> Option<(u64, u64)> {
    let from = match seek(file, SeekFrom::Data(at)) {
        Ok(from) if from < end => from,
        Ok(_) | Err(Errno::NXIO) => return None,
        // The file system does not tell.
        Err(_) => return Some((at, end)),
    };
    let to = seek(file, SeekFrom::Hole(from)).ok().filter(|to| *to > from);
    Some((from, to.map_or(end, |to| to.min(end))))
}

/// Bytes of data in a part of a file; all of it, if it cannot be opened.
pub(super) fn data_len(path: &Path, from: u64, end: u64) -> u64 {
    let Ok(file) = File::open(path) else { return end - from };
    let (mut at, mut sum) = (from, 0);
    while let Some((begin, to)) = data_from(&file, at, end) {
        sum += to - begin;
        at = to;
        if at >= end {
            break;
        }
    }
    sum
}

/// What is dropped from the page cache, file by file.
#[derive(Default)]
pub(super) struct Forgetting {
    /// Devices whose dirty pages were written.
    synced: HashSet<u64>,
}

impl Forgetting {
    /// Drops the content of one file from the page cache. Pages that were not written yet would stay, so the first file
    /// of each file system has it written. A file that cannot be opened is not in the cache by us.
    pub(super) fn file(&mut self, path: &Path) {
        let mut forget = || -> io::Result<()> {
            let file = File::open(path)?;
            if self.synced.insert(file.metadata()?.dev()) {
                syncfs(file.as_fd())?;
            }
            Ok(fadvise(&file, 0, None, Advice::DontNeed)?)
        };
        // What stays in the cache makes a round warmer, and is no reason to end it.
        let _ = forget();
    }
}
