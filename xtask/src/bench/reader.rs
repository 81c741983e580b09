//! A bare reader: opens, reads and drops every file of a tree, and does nothing else. What a backup's source is held
//! against.
//!
//! Each thread takes a folder from a shared stack, lists it, puts its folders back, and reads its files relative to the
//! folder's descriptor; or hands them to an io_uring of its own ([`ring`]), which keeps many in flight while the disk
//! is cold.

mod ring;

use std::collections::VecDeque;
use std::ffi::{CStr, CString};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::{Condvar, Mutex, PoisonError};
use std::thread;

use anyhow::{Context, Result, anyhow};
use rustix::fs::{self, AtFlags, CWD, Dir, FileType, Mode, OFlags};
use rustix::io::{Errno, read};

#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// How many threads
    #[arg(long, default_value_t = 2)]
    threads: usize,
    /// Gives each thread an io_uring with so many files in flight
    #[arg(long, value_name = "FILES")]
    ring: Option<u16>,
    /// Also asks what a backup must know of each file: its status, and the names of its extended attributes
    #[arg(long, conflicts_with = "ring")]
    describe: bool,
    /// The tree to read
    folder: PathBuf,
}

/// Exit code of a reader that this system does not allow, as automake's tests have it.
pub(super) const NOT_HERE: u8 = 77;

/// Longer than any small file, so that one read takes it.
const BUFFER_BYTES: usize = 64 << 10;

/// Room for the names of a file's attributes.
const ATTRIBUTE_NAMES_LEN: usize = 256;

/// What was read.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, serde::Serialize)]
pub(crate) struct Total {
    files: u64,
    bytes: u64,
}

impl Total {
    fn add(&mut self, bytes: u64) {
        self.files += 1;
        self.bytes += bytes;
    }
}

pub(crate) fn run(arguments: &Arguments) -> Result<ExitCode> {
    match read_tree(arguments) {
        Err(error) if ring::is_forbidden(&error) => {
            eprintln!("io_uring is forbidden here: {error:#}");
            Ok(ExitCode::from(NOT_HERE))
        }
        total => {
            println!("{}", serde_json::to_string(&total?)?);
            Ok(ExitCode::SUCCESS)
        }
    }
}

fn read_tree(arguments: &Arguments) -> Result<Total> {
    let folders = Folders::new(CString::new(arguments.folder.as_os_str().as_bytes())?);
    let work = || match arguments.ring {
        Some(depth) => ring::read_folders(&folders, depth),
        None => read_folders(&folders, if arguments.describe { Depth::Described } else { Depth::Content }),
    };
    let mut total = Total::default();
    thread::scope(|scope| -> Result<()> {
        let threads: Vec<_> =
            (0..arguments.threads).map(|_| scope.spawn(|| work().inspect_err(|_| folders.stop()))).collect();
        for thread in threads {
            let read = thread.join().map_err(|_| anyhow!("a reading thread died"))??;
            total.files += read.files;
            total.bytes += read.bytes;
        }
        Ok(())
    })?;
    Ok(total)
}

/// Folders that wait to be listed, shared by the threads.
struct Folders {
    state: Mutex<Waiting>,
    changed: Condvar,
}

struct Waiting {
    paths: Vec<CString>,
    /// Threads that list a folder and may yet find more; nothing waiting and nobody busy is the end.
    busy: usize,
}

impl Folders {
    fn new(top: CString) -> Self {
        Self { state: Mutex::new(Waiting { paths: vec![top], busy: 0 }), changed: Condvar::new() }
    }

    /// The next folder to list; nothing when all are done. Each one taken ends with [`Folders::listed`].
    fn take(&self) -> Option<CString> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            if let Some(path) = state.paths.pop() {
                state.busy += 1;
                return Some(path);
            }
            if state.busy == 0 {
                return None;
            }
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Gives back what a listed folder held.
    fn listed(&self, found: Vec<CString>) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.paths.extend(found);
        state.busy -= 1;
        drop(state);
        self.changed.notify_all();
    }

    /// Ends the work of the others behind an error; the failing thread may still hold a folder.
    fn stop(&self) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.paths.clear();
        state.busy = 0;
        drop(state);
        self.changed.notify_all();
    }
}

/// A folder's descriptor and the names of its files, in the order of the folder.
struct Listing {
    folder: OwnedFd,
    files: VecDeque<CString>,
}

/// Lists the next folder and gives its folders back.
fn next_listing(folders: &Folders) -> Result<Option<Listing>> {
    let Some(path) = folders.take() else { return Ok(None) };
    let folder = fs::openat(CWD, &path, OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())
        .with_context(|| format!("open {path:?}"))?;
    let mut below = Vec::new();
    let mut files = VecDeque::new();
    for entry in Dir::read_from(&folder)? {
        let entry = entry?;
        let name = entry.file_name();
        if name == c"." || name == c".." {
            continue;
        }
        match kind(&folder, name, entry.file_type())? {
            FileType::Directory => below.push(CString::new([path.as_bytes(), b"/", name.to_bytes()].concat())?),
            FileType::RegularFile => files.push_back(name.to_owned()),
            _ => {}
        }
    }
    folders.listed(below);
    Ok(Some(Listing { folder, files }))
}

/// What an entry is; some file systems say so only when asked.
fn kind(folder: &OwnedFd, name: &CStr, listed: FileType) -> Result<FileType> {
    if listed != FileType::Unknown {
        return Ok(listed);
    }
    let stat = fs::statat(folder, name, AtFlags::SYMLINK_NOFOLLOW)?;
    Ok(FileType::from_raw_mode(stat.st_mode))
}

/// What is asked of each file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Depth {
    Content,
    Described,
}

fn read_folders(folders: &Folders, depth: Depth) -> Result<Total> {
    let mut total = Total::default();
    let mut buffer = vec![0; BUFFER_BYTES];
    while let Some(listing) = next_listing(folders)? {
        for name in &listing.files {
            total.add(read_file(&listing.folder, name, depth, &mut buffer).with_context(|| format!("read {name:?}"))?);
        }
    }
    Ok(total)
}

/// Reads a file until a read comes back short: at the end of a regular file it always does.
fn read_file(folder: impl AsFd, name: &CStr, depth: Depth, buffer: &mut [u8]) -> Result<u64> {
    let file = fs::openat(folder, name, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?;
    if depth == Depth::Described {
        fs::fstat(&file)?;
        match fs::flistxattr(&file, &mut buffer[..ATTRIBUTE_NAMES_LEN]) {
            Ok(_) | Err(Errno::OPNOTSUPP) => {}
            Err(error) => return Err(error.into()),
        }
    }
    let mut bytes = 0;
    loop {
        let count = read(&file, &mut *buffer)?;
        bytes += count as u64;
        if count < buffer.len() {
            return Ok(bytes);
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests fail by panicking")]
    use super::*;
    use capstan_lab::{DataSet, DataSetWatch, FileLengths, Shape};

    #[test]
    fn every_reader_reads_every_byte() {
        let temporary = tempfile::tempdir().unwrap();
        let folder = temporary.path().join("set");
        let set = DataSet::plan(&Shape::of_files(FileLengths::Small, 2000, 3)).unwrap();
        set.make(&folder, &DataSetWatch::default()).unwrap();
        // At, below and above the length of a buffer, and nothing at all.
        for length in [0, BUFFER_BYTES - 1, BUFFER_BYTES, BUFFER_BYTES + 1, 3 * BUFFER_BYTES] {
            std::fs::write(folder.join(format!("d00001/{length}")), vec![7; length]).unwrap();
        }
        let expected = Total { files: set.file_count() + 5, bytes: set.bytes() + 6 * BUFFER_BYTES as u64 };
        let kinds = [
            (1, None, false),
            (2, None, false),
            (2, None, true),
            (32, None, false),
            (1, Some(1), false),
            (2, Some(64), false),
        ];
        for (threads, ring, describe) in kinds {
            let arguments = Arguments { threads, ring, describe, folder: folder.clone() };
            match read_tree(&arguments) {
                Ok(total) => assert_eq!(total, expected, "{arguments:?}"),
                // Containers often forbid io_uring, and then there is nothing to test.
                Err(error) if ring::is_forbidden(&error) => println!("io_uring is forbidden here: {error:#}"),
                Err(error) => panic!("{arguments:?}: {error:#}"),
            }
        }
    }
}
