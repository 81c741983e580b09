//! One connection's walk: takes directories off the shared stack and writes what is in them.
//!
//! Everything is opened relative to its open directory, one name at a time and never through a symbolic link, so that paths
//! may be as long as they like and a directory that is exchanged for a link while we walk leads nowhere else. For a small
//! file without attributes that is open, stat, list of attributes, read and close.

use std::ffi::CStr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use capstan_format::{EntryFlags, EntryKind};
use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags, fstat, fstatfs, openat, readlinkat, statat};
use rustix::io::Errno;

use super::attributes::{AttributeReader, AttributesOf};
use super::emit::Emitter;
use super::filesystem::is_pseudo;
use super::links::{Name, PendingLink};
use super::listing::{Lister, Rest};
use super::metadata::FileMetadata;
use super::queue::{Directory, Parent, Work};
use super::report::{ProblemKind, Progress};
use super::tree::{Mounts, Walk};
use crate::{Stopped, StreamSink, Verdict};

/// A name in an open directory and the path that the object has for it.
#[derive(Clone, Copy)]
struct Place<'p> {
    directory: BorrowedFd<'p>,
    name: &'p CStr,
    path: &'p [u8],
    source: usize,
}

/// One connection's walk.
pub(crate) struct Walker<'a, S> {
    walk: &'a Walk<'a>,
    emitter: Emitter<'a, S>,
    attributes: AttributeReader,
    lister: Lister,
    path: Vec<u8>,
    /// Whether opening may leave access times alone; the kernel allows that to owners and to root only.
    no_access_time: OFlags,
}

impl<'a, S: StreamSink> Walker<'a, S> {
    pub(crate) fn new(walk: &'a Walk<'a>, sink: &'a mut S, progress: &'a Progress) -> Self {
        Self {
            walk,
            emitter: Emitter::new(sink, &walk.source.owners, progress),
            attributes: AttributeReader::new(),
            lister: Lister::new(),
            path: Vec::new(),
            no_access_time: OFlags::NOATIME,
        }
    }

    /// Walks until nothing is left.
    pub(crate) fn run(mut self) -> Result<Emitter<'a, S>, Stopped> {
        while let Some(taken) = self.walk.queue.take() {
            let result = match &*taken {
                Work::Source(number) => self.source(*number),
                Work::Child(parent, names, index) => self.child(parent, names.get(*index).map(|(name, _)| name)),
                Work::Rest(directory) => self.list(directory),
            };
            if result.is_err() {
                self.walk.queue.stop();
                return Err(Stopped);
            }
        }
        if self.walk.queue.stopped() { Err(Stopped) } else { Ok(self.emitter) }
    }

    fn source(&mut self, number: usize) -> Result<(), Stopped> {
        let root = &self.walk.source.roots[number];
        let place = Place { directory: CWD, name: &root.name, path: &root.path, source: number };
        let stat = match statat(CWD, &*root.name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) => stat,
            Err(error) => {
                // Perhaps not mounted today: nothing below it is taken for deleted.
                self.walk.keep_state_below(&root.path);
                self.emitter.problem(&root.path, ProblemKind::Unreadable(error.raw_os_error()));
                return Ok(());
            }
        };
        match FileType::from_raw_mode(stat.st_mode) {
            FileType::Directory => self.directory(place, None),
            FileType::RegularFile => self.file(place),
            FileType::Symlink => {
                self.emitter.problem(&root.path, ProblemKind::SourceIsLink);
                self.other(place)
            }
            _ => self.other(place),
        }
    }

    fn child(&mut self, parent: &Parent, name: Option<&CStr>) -> Result<(), Stopped> {
        let Some(name) = name else { return Ok(()) };
        let reopened;
        let parent = match parent {
            Parent::Open(directory) => directory,
            Parent::Closed(source, path) => match self.reopen(*source, path) {
                Ok(directory) => {
                    reopened = directory;
                    &reopened
                }
                Err(error) => return self.unlisted(path, error),
            },
        };
        let mut path = Vec::with_capacity(parent.path.len() + 1 + name.count_bytes());
        parent.join(name.to_bytes(), &mut path);
        if self.walk.excluded(&path, name.to_bytes()) {
            return Ok(());
        }
        self.directory(
            Place { directory: parent.fd.as_fd(), name, path: &path, source: parent.source },
            Some(parent.device),
        )
    }

    /// Opens a directory that was closed to save descriptors, by single steps from its source.
    fn reopen(&self, source: usize, path: &[u8]) -> Result<Arc<Directory>, Errno> {
        let root = &self.walk.source.roots[source];
        let mut fd = openat(CWD, &*root.name, DIRECTORY_FLAGS, Mode::empty())?;
        let below = if root.path == b"." { path } else { path.get(root.path.len()..).unwrap_or_default() };
        for name in below.split(|&byte| byte == b'/').filter(|name| !name.is_empty()) {
            fd = openat(&fd, name, DIRECTORY_FLAGS, Mode::empty())?;
        }
        let device = fstat(&fd)?.st_dev as u64;
        Ok(self.walk.queue.directory(fd, path.to_vec(), device, source))
    }

    /// A directory: its member, then what is in it. `above` is the device of the directory that it lies in.
    fn directory(&mut self, place: Place<'_>, above: Option<u64>) -> Result<(), Stopped> {
        let opened = self.open(place, DIRECTORY_FLAGS).and_then(|fd| Ok((FileMetadata::new(&fstat(&fd)?), fd)));
        let (metadata, fd) = match opened {
            Ok(opened) => opened,
            Err(Errno::NOENT) => {
                self.vanished(place.path, EntryKind::Directory);
                return Ok(());
            }
            // No longer a directory.
            Err(Errno::NOTDIR | Errno::LOOP) => return self.other(place),
            Err(error) => {
                self.unlisted(place.path, error)?;
                return self.other(place);
            }
        };
        self.read_attributes(place.path, AttributesOf::Open(fd.as_fd()), metadata.device);
        if self.wanted(place.path, &metadata) {
            self.emitter.bare(place.path, EntryKind::Directory, &metadata, b"", self.attributes.records())?;
        } else {
            self.emitter.tally.directory();
        }
        if above.is_some_and(|above| above != metadata.device) {
            if self.walk.source.mounts == Mounts::Stay {
                return Ok(());
            }
            if fstatfs(&fd).is_ok_and(|stat| is_pseudo(&stat)) {
                self.emitter.problem(place.path, ProblemKind::PseudoFilesystem);
                return Ok(());
            }
        }
        let directory = self.walk.queue.directory(fd, place.path.to_vec(), metadata.device, place.source);
        self.list(&directory)
    }

    /// Writes the files of the next piece of a directory, after its children are put on the stack.
    fn list(&mut self, directory: &Arc<Directory>) -> Result<(), Stopped> {
        let rest = match self.lister.read(directory.fd.as_fd()) {
            Ok(rest) => rest,
            // Removed since it was opened: what it held is gone.
            Err(Errno::NOENT) => Rest::End,
            Err(error) => {
                self.unlisted(&directory.path, error)?;
                Rest::End
            }
        };
        self.walk.queue.put(directory, std::mem::take(&mut self.lister.directories), rest == Rest::More);
        let files = std::mem::take(&mut self.lister.files);
        let mut path = std::mem::take(&mut self.path);
        let result = (0..files.len()).filter_map(|index| files.get(index)).try_for_each(|(name, file_type)| {
            directory.join(name.to_bytes(), &mut path);
            if self.walk.excluded(&path, name.to_bytes()) {
                return Ok(());
            }
            let place = Place { directory: directory.fd.as_fd(), name, path: &path, source: directory.source };
            match file_type {
                FileType::RegularFile => self.file(place),
                FileType::Unknown => self.unknown(place, directory.device),
                _ => self.other(place),
            }
        });
        self.lister.files = files;
        self.path = path;
        result
    }

    /// A name of which the directory does not say what it is.
    fn unknown(&mut self, place: Place<'_>, above: u64) -> Result<(), Stopped> {
        match statat(place.directory, place.name, AtFlags::SYMLINK_NOFOLLOW)
            .map(|stat| FileType::from_raw_mode(stat.st_mode))
        {
            Ok(FileType::RegularFile) => self.file(place),
            Ok(FileType::Directory) => self.directory(place, Some(above)),
            _ => self.other(place),
        }
    }

    fn file(&mut self, place: Place<'_>) -> Result<(), Stopped> {
        let opened = self.open(place, FILE_FLAGS).and_then(|fd| Ok((FileMetadata::new(&fstat(&fd)?), fd)));
        let (metadata, fd) = match opened {
            Ok(opened) => opened,
            Err(Errno::NOENT) => {
                self.vanished(place.path, EntryKind::File);
                return Ok(());
            }
            Err(error) => return self.unreadable(place, error),
        };
        if metadata.file_type != FileType::RegularFile {
            return self.other(place);
        }
        self.regular(place, &fd, &metadata)
    }

    fn regular(&mut self, place: Place<'_>, fd: &OwnedFd, metadata: &FileMetadata) -> Result<(), Stopped> {
        let wanted = self.wanted(place.path, metadata);
        if self.is_further_name(place.path, metadata, wanted) {
            return Ok(());
        }
        if !wanted {
            self.emitter.tally.file(place.path);
            return Ok(());
        }
        self.read_attributes(place.path, AttributesOf::Open(fd.as_fd()), metadata.device);
        self.emitter.file(place.path, fd.as_fd(), metadata, self.attributes.records())
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

    /// Whatever has no content: described by name, never opened.
    fn other(&mut self, place: Place<'_>) -> Result<(), Stopped> {
        let stat = match statat(place.directory, place.name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) => stat,
            Err(Errno::NOENT) => {
                self.vanished(place.path, EntryKind::File);
                return Ok(());
            }
            Err(error) => {
                self.emitter.problem(place.path, ProblemKind::Unreadable(error.raw_os_error()));
                self.walk.keep_state_below(place.path);
                return Ok(());
            }
        };
        let metadata = FileMetadata::new(&stat);
        let Some(kind) = metadata.kind() else {
            self.emitter.problem(place.path, ProblemKind::Socket);
            return Ok(());
        };
        let wanted = self.wanted(place.path, &metadata);
        if kind != EntryKind::Directory && self.is_further_name(place.path, &metadata, wanted) {
            return Ok(());
        }
        if !wanted {
            self.emitter.tally.file(place.path);
            return Ok(());
        }
        let target = match kind {
            EntryKind::Symlink => match readlinkat(place.directory, place.name, Vec::new()) {
                Ok(target) => target.into_bytes(),
                Err(_) => {
                    self.vanished(place.path, kind);
                    return Ok(());
                }
            },
            // Exchanged for a file since it was listed: not worth a second try.
            EntryKind::File => {
                self.vanished(place.path, kind);
                return Ok(());
            }
            _ => Vec::new(),
        };
        self.read_attributes(place.path, AttributesOf::Named(place.directory, place.name), metadata.device);
        self.emitter.bare(place.path, kind, &metadata, &target, self.attributes.records())
    }

    /// Opens without touching the access time where that is allowed.
    fn open(&mut self, place: Place<'_>, flags: OFlags) -> Result<OwnedFd, Errno> {
        loop {
            match openat(place.directory, place.name, flags | self.no_access_time, Mode::empty()) {
                Err(Errno::PERM) if !self.no_access_time.is_empty() => self.no_access_time = OFlags::empty(),
                Err(Errno::INTR) => {}
                other => return other,
            }
        }
    }

    fn read_attributes(&mut self, path: &[u8], of: AttributesOf<'_>, device: u64) {
        if let Err(error) = self.attributes.read(of, device) {
            self.emitter.problem(path, ProblemKind::AttributesUnreadable(error.raw_os_error()));
        }
    }

    /// Whether a path is to be written: always in a full backup, if it is new or changed in an incremental.
    fn wanted(&mut self, path: &[u8], metadata: &FileMetadata) -> bool {
        let unchanged = self
            .walk
            .baseline
            .is_some_and(|baseline| baseline.compare(path, &metadata.compared()) == Verdict::Unchanged);
        self.emitter.report.unchanged += u64::from(unchanged);
        !unchanged
    }

    fn vanished(&mut self, path: &[u8], kind: EntryKind) {
        self.emitter.problem(path, ProblemKind::Vanished);
        // What the base has of it is reported with everything else that is missing, after the walk.
        if self.walk.baseline.is_none() {
            self.emitter.absent(path, kind, EntryFlags::VANISHED, None);
        }
    }

    fn unreadable(&mut self, place: Place<'_>, error: Errno) -> Result<(), Stopped> {
        let stat = match statat(place.directory, place.name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) if FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile => Some(stat),
            // A symbolic link or something else by now.
            Ok(_) => return self.other(place),
            Err(_) => None,
        };
        let metadata = stat.as_ref().map(FileMetadata::new);
        self.emitter.problem(place.path, ProblemKind::Unreadable(error.raw_os_error()));
        // Seen, so that it does not count as deleted.
        let compared = metadata.map(|metadata| metadata.compared());
        if let (Some(baseline), Some(compared)) = (self.walk.baseline, compared) {
            baseline.compare(place.path, &compared);
        }
        self.emitter.absent(place.path, EntryKind::File, EntryFlags::UNREADABLE, metadata.as_ref());
        Ok(())
    }

    fn unlisted(&mut self, path: &[u8], error: Errno) -> Result<(), Stopped> {
        self.emitter.problem(path, ProblemKind::Unlisted(error.raw_os_error()));
        self.walk.keep_state_below(path);
        Ok(())
    }
}

/// How directories are opened.
const DIRECTORY_FLAGS: OFlags = OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);
/// How files are opened: without waiting, should a fifo have taken a file's name.
const FILE_FLAGS: OFlags =
    OFlags::RDONLY.union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC).union(OFlags::NONBLOCK).union(OFlags::NOCTTY);
