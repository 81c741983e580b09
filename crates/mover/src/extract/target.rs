//! The directory that is restored to, shared by the threads of a restore.

use std::fs::DirBuilder;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::DirBuilderExt;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, OnceLock};

use capstan_format::ObjectId;
use rustix::fs::{CWD, Mode, OFlags, openat};
use rustix::io::Errno;

use super::directories::{DIRECTORY, Root};
use super::journal::Journal;
use super::options::{ExtractOptions, MemberChoice};
use super::report::{ExtractError, Tally};
use super::selection::Selection;

/// A directory that is restored to. Made once, used by one [`Extractor`](super::Extractor) a thread, finished once.
///
/// Locks: each of the four mutexes inside is held for one operation and never together with another.
#[derive(Debug)]
pub struct RestoreTarget {
    root: Root,
    options: ExtractOptions,
    tally: Tally,
    temporary: AtomicU64,
    keeps_damaged: AtomicBool,
    selection: OnceLock<Selection>,
    is_new: bool,
    /// Hard links, which are made last.
    pub(super) links: Mutex<Journal>,
    /// What links may be made to, in the lanes of the links to it.
    pub(super) linkable: Mutex<Journal>,
    /// Directories, whose metadata are set last.
    pub(super) directories: Mutex<Journal>,
}

impl RestoreTarget {
    /// Opens `directory`, or makes it. It may be a symbolic link; nothing below it is followed.
    ///
    /// # Errors
    /// [`ExtractError::Target`] if it can be neither opened nor made.
    pub fn new(directory: &Path, options: ExtractOptions) -> Result<Self, ExtractError> {
        let failed = |action, source: io::Error| ExtractError::Target {
            path: directory.as_os_str().as_bytes().to_vec(),
            action,
            source,
        };
        let mut is_new = false;
        let opened = match openat(CWD, directory, DIRECTORY | OFlags::CLOEXEC, Mode::empty()) {
            Err(Errno::NOENT) => {
                let builder = DirBuilder::new().mode(0o700).recursive(true).create(directory);
                builder.map_err(|error| failed("make the directory", error))?;
                is_new = true;
                openat(CWD, directory, DIRECTORY | OFlags::CLOEXEC, Mode::empty())
            }
            opened => opened,
        };
        let root = Root::new(opened.map_err(|errno| failed("open the directory", errno.into()))?);
        if is_new {
            root.made_implicitly(b"");
        }
        let journal = |part: usize| Mutex::new(Journal::new(options.deferred_bytes_max / part));
        let (links, linkable, directories) = (journal(4), journal(4), journal(2));
        let (temporary, keeps_damaged) = (AtomicU64::new(0), AtomicBool::new(false));
        let tally = Tally::default();
        let selection = OnceLock::new();
        Ok(Self { root, tally, temporary, keeps_damaged, selection, is_new, links, linkable, directories, options })
    }

    /// What is restored is not all of its objects. Said once, before anything is written; what is said later is the
    /// same.
    pub fn select(&self, selection: Selection) {
        let _ = self.selection.set(selection);
    }

    /// What becomes of what an object has at a path.
    pub(crate) fn choice(&self, object: ObjectId, path: &[u8]) -> MemberChoice {
        self.selection.get_or_init(Selection::default).choice(object, path, self.options.strip)
    }

    /// From now on, what can be read of a file is written, under [`super::damaged_name`] of its own, where a part of
    /// its content is missing.
    pub fn keep_damaged(&self) {
        self.keeps_damaged.store(true, Ordering::Relaxed);
    }

    pub(super) fn keeps_damaged(&self) -> bool {
        self.keeps_damaged.load(Ordering::Relaxed)
    }

    pub(super) fn journal_result<T>(&self, result: io::Result<T>) -> Result<T, ExtractError> {
        result.map_err(|error| self.fatal("keep what waits for the end of the restore", error))
    }

    pub(super) fn fatal(&self, action: &'static str, source: io::Error) -> ExtractError {
        ExtractError::Target { path: b".".to_vec(), action, source }
    }

    /// Whether it was made for this restore, and is closed to others: nobody else's file is in it.
    pub(super) fn is_new(&self) -> bool {
        self.is_new
    }

    /// A name that nothing has, for what is not finished.
    pub(super) fn temporary_name(&self) -> String {
        let number = self.temporary.fetch_add(1, Ordering::Relaxed);
        format!(".capstan-restore-{:016x}", self.root.random(number))
    }

    pub(super) fn root(&self) -> &Root {
        &self.root
    }

    pub(super) fn options(&self) -> &ExtractOptions {
        &self.options
    }

    pub(super) fn tally(&self) -> &Tally {
        &self.tally
    }

    pub(super) fn into_tally(self) -> Tally {
        self.tally
    }
}
