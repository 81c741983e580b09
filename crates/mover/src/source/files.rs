//! One connection's work on a batch: open, describe, decide, read, close.

use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;
use std::sync::Arc;

use capstan_format::{EntryFlags, EntryKind};
use rustix::fs::{AtFlags, FileType, fstat, readlinkat, statat};
use rustix::io::Errno;

use super::attributes::AttributesOf;
use super::batch::{BATCH_BYTES_MAX, Batch, State};
use super::cut::OpenCut;
use super::links::{Name, PendingLink};
use super::listing::Names;
use super::metadata::FileMetadata;
use super::queue::Directory;
use super::report::ProblemKind;
use super::tree::FILE_FLAGS;
use super::walker::Walker;
use crate::{Stopped, StreamSink};

impl<S: StreamSink> Walker<'_, S> {
    /// Opens and describes the files of a batch, and drops those that need not be written.
    pub(super) fn prepare(&mut self, batch: &mut Batch) {
        if !self.walk.cut.is_empty() {
            (0..batch.len()).for_each(|item| self.pass_cut(batch, item));
        }
        if self.walk.baseline.is_some() {
            // Most files of an incremental stand as they did, and a stat by name is half of what it takes to open one.
            (0..batch.len()).for_each(|item| self.compare(batch, item));
        }
        for item in 0..batch.len() {
            if matches!(batch.items[item].state, State::Listed(FileType::RegularFile)) {
                batch.items[item].state = match self.open(batch.directory(item), batch.name(item), FILE_FLAGS) {
                    Ok(fd) => State::Opened(fd),
                    Err(error) => self.not_opened(batch, item, error),
                };
            }
        }
        self.describe(batch);
        for item in 0..batch.len() {
            if let State::Open(fd, metadata) = &batch.items[item].state {
                self.read_attributes(batch.path(item), AttributesOf::Open(fd.as_fd()), metadata.device);
                if !self.attributes.records().is_empty() {
                    batch.keep_records(item, self.attributes.records());
                }
            }
        }
    }

    /// Stats the open files of a batch. Where they turn out to be large, the rest goes back to the stack.
    fn describe(&mut self, batch: &mut Batch) {
        let mut bytes = 0;
        let mut surplus: Vec<(Arc<Directory>, Names)> = Vec::new();
        for item in 0..batch.len() {
            let state = std::mem::replace(&mut batch.items[item].state, State::Done);
            let State::Opened(fd) = state else {
                batch.items[item].state = state;
                continue;
            };
            if bytes > BATCH_BYTES_MAX
                && self.walk.connections > 1
                && let Some(directory) = batch.listed_in(item)
            {
                match surplus.last_mut().filter(|(last, _)| Arc::ptr_eq(last, directory)) {
                    Some((_, names)) => names.push_back(batch.name(item)),
                    None => {
                        let mut names = Names::default();
                        names.push_back(batch.name(item));
                        surplus.push((Arc::clone(directory), names));
                    }
                }
                continue;
            }
            batch.items[item].state = match fstat(&fd).map(|stat| FileMetadata::new(&stat)) {
                Ok(metadata) if metadata.file_type != FileType::RegularFile => State::ByName,
                Ok(metadata) if self.is_further_name(batch.path(item), &metadata, true) => {
                    self.emitter.tally.passed(metadata.size);
                    State::Done
                }
                Ok(metadata) => {
                    bytes += metadata.size;
                    State::Open(fd, metadata)
                }
                Err(error) => self.not_opened(batch, item, error),
            };
        }
        surplus.into_iter().for_each(|(directory, names)| self.walk.queue.give_back(directory, names));
    }

    /// Passes over a file that another stream goes on with at its head.
    fn pass_cut(&mut self, batch: &mut Batch, item: usize) {
        if matches!(batch.items[item].state, State::Listed(FileType::RegularFile))
            && self.walk.cut.holds(batch.path(item))
        {
            batch.items[item].state = State::Done;
        }
    }

    /// Goes on with a file of which the beginning is on volumes; reads all of it, if its member would begin otherwise.
    pub(super) fn rest_of(&mut self, open: &OpenCut) -> Result<(), Stopped> {
        let OpenCut { cut, fd, metadata } = open;
        let path = cut.path.as_bytes();
        // The base of an incremental may have it; then it is not missing. An earlier run may have read it whole.
        if !self.wanted(path, metadata, None) {
            self.emitter.tally.passed(metadata.size);
            return Ok(());
        }
        self.read_attributes(path, AttributesOf::Open(fd.as_fd()), metadata.device);
        self.emitter.file(path, fd.as_fd(), metadata, self.attributes.records(), Some(cut))
    }

    /// Compares a file with the base of an incremental, and is done with it if it stands as it did.
    fn compare(&mut self, batch: &mut Batch, item: usize) {
        if !matches!(batch.items[item].state, State::Listed(FileType::RegularFile)) {
            return;
        }
        // An error shows again when the file is opened.
        let stat = statat(batch.directory(item), batch.name(item), AtFlags::SYMLINK_NOFOLLOW);
        let Ok(metadata) = stat.map(|stat| FileMetadata::new(&stat)) else { return };
        let carrier = self.walk.links.carrier(&metadata, batch.path(item));
        if metadata.file_type == FileType::RegularFile && !self.wanted(batch.path(item), &metadata, carrier.as_deref())
        {
            self.is_further_name(batch.path(item), &metadata, false);
            self.emitter.tally.passed(metadata.size);
            self.emitter.tally.file(batch.path(item));
            batch.items[item].state = State::Done;
        }
    }

    fn not_opened(&mut self, batch: &Batch, item: usize, error: Errno) -> State {
        match error {
            Errno::NOENT => {
                self.vanished(batch.path(item), EntryKind::File);
                State::Done
            }
            // A symbolic link or something else by now.
            Errno::LOOP | Errno::NXIO => State::ByName,
            _ => self.unreadable(batch, item, error),
        }
    }

    fn unreadable(&mut self, batch: &Batch, item: usize, error: Errno) -> State {
        let path = batch.path(item);
        let stat = statat(batch.directory(item), batch.name(item), AtFlags::SYMLINK_NOFOLLOW).ok();
        let metadata = stat.as_ref().map(FileMetadata::new);
        if metadata.is_some_and(|metadata| metadata.file_type != FileType::RegularFile) {
            return State::ByName;
        }
        self.emitter.problem(path, ProblemKind::Unreadable(error.raw_os_error()));
        if metadata.is_none() {
            self.walk.keep_state_below(path);
        }
        self.emitter.absent(path, EntryKind::File, EntryFlags::UNREADABLE, metadata.as_ref());
        State::Done
    }

    /// Whether another name of the file carries its content; then this one is written at the end, if it is wanted.
    fn is_further_name(&mut self, path: &[u8], metadata: &FileMetadata, wanted: bool) -> bool {
        if metadata.link_count < 2 {
            return false;
        }
        let Name::Further(target) = self.walk.links.meet(metadata, path) else { return false };
        // A directory that changes while it is listed may give a name twice.
        if wanted && target != path {
            self.walk.links.defer(PendingLink { path: path.to_vec(), target, metadata: *metadata });
        }
        true
    }

    /// Writes a batch, and empties it.
    pub(super) fn write(&mut self, batch: &mut Batch) -> Result<(), Stopped> {
        for item in 0..batch.len() {
            match &batch.items[item].state {
                State::Open(fd, metadata) => {
                    self.emitter.file(batch.path(item), fd.as_fd(), metadata, batch.records(item), None)?;
                }
                State::Directory(metadata, flags) => {
                    let (path, records) = (batch.path(item), batch.records(item));
                    self.emitter.bare(path, EntryKind::Directory, *flags, metadata, b"", records)?;
                }
                State::Listed(_) | State::ByName | State::Unlisted => self.by_name(batch, item)?,
                State::Opened(_) | State::Done => {}
            }
        }
        batch.clear();
        Ok(())
    }

    /// Whatever has no content, or cannot be opened: described by name.
    fn by_name(&mut self, batch: &Batch, item: usize) -> Result<(), Stopped> {
        let (directory, name, path) = (batch.directory(item), batch.name(item), batch.path(item));
        let state = &batch.items[item].state;
        let unlisted = matches!(state, State::Unlisted);
        let metadata = match statat(directory, name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) => FileMetadata::new(&stat),
            Err(Errno::NOENT) => {
                self.vanished(path, EntryKind::File);
                return Ok(());
            }
            Err(error) => {
                // Of a directory that cannot be opened, that was said.
                if !unlisted {
                    self.emitter.problem(path, ProblemKind::Unreadable(error.raw_os_error()));
                    self.walk.keep_state_below(path);
                }
                self.emitter.absent(path, listed_kind(state), EntryFlags::UNREADABLE, None);
                return Ok(());
            }
        };
        let Some(kind) = metadata.kind() else {
            self.emitter.problem(path, ProblemKind::Socket);
            return Ok(());
        };
        let target = match kind {
            EntryKind::Symlink => readlinkat(directory, name, Vec::new()).map(std::ffi::CString::into_bytes),
            // Exchanged for a file since it was listed.
            EntryKind::File => Err(Errno::NOENT),
            _ => Ok(Vec::new()),
        };
        let Ok(target) = target else {
            self.vanished(path, kind);
            return Ok(());
        };
        let carrier = if kind == EntryKind::Directory { None } else { self.walk.links.carrier(&metadata, path) };
        let wanted = self.wanted(path, &metadata, carrier.as_deref());
        if kind != EntryKind::Directory && self.is_further_name(path, &metadata, wanted) {
            return Ok(());
        }
        let flags = match kind {
            EntryKind::Directory if unlisted => EntryFlags::UNREADABLE,
            _ => EntryFlags::default(),
        };
        if !wanted && flags == EntryFlags::default() {
            self.emitter.tally.file(path);
            return Ok(());
        }
        self.read_attributes(path, AttributesOf::Named(directory, name), metadata.device);
        self.emitter.bare(path, kind, flags, &metadata, &target, self.attributes.records())
    }
}

/// What a path that cannot be described was listed as; a file, where nothing is known.
fn listed_kind(state: &State) -> EntryKind {
    match state {
        State::Unlisted | State::Directory(..) => EntryKind::Directory,
        State::Listed(FileType::Symlink) => EntryKind::Symlink,
        State::Listed(FileType::Fifo) => EntryKind::Fifo,
        State::Listed(FileType::CharacterDevice) => EntryKind::CharDevice,
        State::Listed(FileType::BlockDevice) => EntryKind::BlockDevice,
        State::Listed(_) | State::ByName | State::Opened(_) | State::Open(..) | State::Done => EntryKind::File,
    }
}
