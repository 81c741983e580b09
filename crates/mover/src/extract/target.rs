//! The directory that is restored to, shared by the threads of a restore.

use std::fs::DirBuilder;
use std::io;
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::DirBuilderExt;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use capstan_format::pax::DecodedMember;
use rustix::fs::{CWD, Mode, OFlags, openat, syncfs};
use rustix::io::Errno;

use super::deferred;
use super::directories::{DIRECTORY, Root};
use super::extractor::Extractor;
use super::journal::Journal;
use super::options::{Durability, ExtractOptions};
use super::path::depth;
use super::report::{ExtractError, ExtractReport, Failure, Tally};

/// A directory that is restored to. Made once, used by one [`Extractor`] a thread, finished once.
///
/// Locks: each of the three mutexes inside is held for one operation and never together with another.
#[derive(Debug)]
pub struct Target {
    root: Root,
    options: ExtractOptions,
    tally: Tally,
    temporary: AtomicU64,
    links: Mutex<Journal>,
    directories: Mutex<Journal>,
}

impl Target {
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
        let mut made = false;
        let opened = match openat(CWD, directory, DIRECTORY | OFlags::CLOEXEC, Mode::empty()) {
            Err(Errno::NOENT) => {
                let builder = DirBuilder::new().mode(0o700).recursive(true).create(directory);
                builder.map_err(|error| failed("make the directory", error))?;
                made = true;
                openat(CWD, directory, DIRECTORY | OFlags::CLOEXEC, Mode::empty())
            }
            opened => opened,
        };
        let root = Root::new(opened.map_err(|errno| failed("open the directory", errno.into()))?);
        if made {
            root.made_implicitly(b"");
        }
        let journal = || Mutex::new(Journal::new(options.deferred_bytes_max / 2));
        let (links, directories) = (journal(), journal());
        Ok(Self { root, tally: Tally::default(), temporary: AtomicU64::new(0), links, directories, options })
    }

    /// A writer for the calling thread.
    pub fn extractor(&self) -> Extractor<'_> {
        Extractor::new(self)
    }

    /// Leading components that are taken from each path.
    pub(crate) fn strip(&self) -> usize {
        self.options.strip
    }

    /// Makes hard links, sets the metadata of directories, deepest first, and reports. Until it returns, directories have
    /// mode 0700 and the present time.
    ///
    /// # Errors
    /// [`ExtractError`] if the target fails or is full; what concerns single paths is in the report.
    pub fn finish(self) -> Result<ExtractReport, ExtractError> {
        let take = |journal: &Mutex<Journal>| {
            let mut journal = journal.lock().unwrap_or_else(PoisonError::into_inner);
            std::mem::replace(&mut *journal, Journal::new(0))
        };
        deferred::make_links(&self, take(&self.links))?;
        deferred::set_directories(&self, take(&self.directories))?;
        if self.options.durability == Durability::Synced {
            let synced = self.root.resolver.open(self.root.fd.as_fd(), b".", OFlags::RDONLY).and_then(syncfs);
            synced.map_err(|errno| self.fatal("bring it to stable storage", errno.into()))?;
        }
        Ok(self.tally.report())
    }

    pub(super) fn defer_link(&self, path: &[u8], link: &[u8]) -> Result<(), Failure> {
        self.defer(&self.links, 0, &deferred::encode_link(path, link))
    }

    pub(super) fn defer_directory(&self, path: &[u8], member: &DecodedMember) -> Result<(), Failure> {
        self.defer(&self.directories, depth(path), &deferred::encode_directory(path, member))
    }

    fn defer(&self, journal: &Mutex<Journal>, lane: usize, record: &[u8]) -> Result<(), Failure> {
        let mut journal = journal.lock().unwrap_or_else(PoisonError::into_inner);
        let put = journal.put(lane, record, self.root.fd.as_fd());
        self.journal_result(put).map_err(Failure::Fatal)
    }

    pub(super) fn journal_result<T>(&self, result: io::Result<T>) -> Result<T, ExtractError> {
        result.map_err(|error| self.fatal("keep what waits for the end of the restore", error))
    }

    fn fatal(&self, action: &'static str, source: io::Error) -> ExtractError {
        ExtractError::Target { path: b".".to_vec(), action, source }
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
}
