//! One connection's walk: takes work off the shared stack, enters directories, and gathers what is in them into
//! batches.
//!
//! Everything is opened relative to its open directory, one name at a time and never through a symbolic link, so that
//! paths may be as long as they like and a directory that is exchanged for a link while we walk leads nowhere else.

use std::cell::Cell;
use std::ffi::CStr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use capstan_format::{EntryFlags, EntryKind, PATH_LEN_STORED_MAX};
use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags, fstat, openat, statat};
use rustix::io::Errno;

use super::attributes::{AttributeReader, AttributesOf};
use super::batch::{BATCH_BYTES, Batch, COLD_FILES, State, Temperature, WARM_FILES};
use super::cut::{OpenCut, mark_bytes};
use super::emit::Emitter;
use super::listing::{Lister, Rest};
use super::metadata::FileMetadata;
use super::queue::{Directory, Parent, Work};
use super::report::{ProblemKind, Progress};
use super::snapshot::is_snapshot;
use super::tree::{DIRECTORY_FLAGS, Descent};
use super::walk::Walk;
use crate::{Stopped, StreamSink, Verdict};

/// One connection's walk.
pub(crate) struct Walker<'a, S> {
    pub(super) walk: &'a Walk<'a>,
    pub(super) emitter: Emitter<'a, S>,
    pub(super) attributes: AttributeReader,
    lister: Lister,
    /// What is being gathered.
    gathered: Batch,
    /// What was opened and announced, and waits for the disk while more is gathered.
    announced: Batch,
    /// Whether some of that may be given back, and others wait for it.
    holds: bool,
    /// Files to gather.
    files_max: usize,
    /// `O_NOATIME` while opening may leave access times alone. The kernel allows that to owners and to root only, so a
    /// refusal counts for the rest of the directory: most of its files have one owner.
    no_access_time: Cell<OFlags>,
}

impl<'a, S: StreamSink> Walker<'a, S> {
    pub(crate) fn new(walk: &'a Walk<'a>, sink: &'a mut S, progress: &'a Progress) -> Self {
        Self {
            walk,
            emitter: Emitter::new(
                sink,
                &walk.source.owners,
                walk.source.on_problem.as_ref(),
                progress,
                mark_bytes(walk.connections),
            ),
            attributes: AttributeReader::new(),
            lister: Lister::new(),
            gathered: Batch::default(),
            announced: Batch::default(),
            holds: false,
            files_max: WARM_FILES,
            no_access_time: Cell::new(OFlags::NOATIME),
        }
    }

    /// Walks until nothing is left.
    ///
    /// `first` is a file that is gone on with at the head of the stream.
    pub(crate) fn run(mut self, first: Option<OpenCut>) -> Result<Emitter<'a, S>, Stopped> {
        let result = first.map_or(Ok(()), |cut| self.rest_of(&cut)).and_then(|()| self.walk_all());
        if result.is_err() {
            self.walk.queue.stop();
        }
        if self.walk.queue.stopped() { Err(Stopped) } else { Ok(self.emitter) }
    }

    fn walk_all(&mut self) -> Result<(), Stopped> {
        loop {
            if self.gathered.is_empty() {
                self.let_go();
            }
            let idle = self.gathered.is_empty() && self.announced.is_empty();
            let room = self.files_max.saturating_sub(self.gathered.len());
            // Waits only with empty hands, so that what was gathered is not held up.
            let queue = &self.walk.queue;
            match if idle { queue.take(room) } else { queue.try_take(room) } {
                Some(work) => self.gather(&work),
                None if idle => return Ok(()),
                None => self.rotate()?,
            }
            if self.gathered.len() >= self.files_max {
                self.rotate()?;
            }
        }
    }

    /// Opens what was gathered, and reads it, or what was announced before it.
    fn rotate(&mut self) -> Result<(), Stopped> {
        let mut batch = std::mem::take(&mut self.gathered);
        self.prepare(&mut batch);
        self.let_go();
        let files = match batch.announce() {
            Temperature::Warm => {
                let mut before = std::mem::take(&mut self.announced);
                self.write(&mut before)?;
                self.write(&mut batch)?;
                self.gathered = batch;
                self.announced = before;
                WARM_FILES
            }
            Temperature::Cold => {
                let mut before = std::mem::replace(&mut self.announced, batch);
                self.write(&mut before)?;
                self.gathered = before;
                COLD_FILES
            }
        };
        let mean = self.emitter.mean_size().max(1);
        self.files_max =
            files.min(usize::try_from(BATCH_BYTES / mean).unwrap_or(files)).min(self.walk.files_max).max(1);
        Ok(())
    }

    /// Nothing more of what was gathered is given back.
    fn let_go(&mut self) {
        if std::mem::take(&mut self.holds) {
            self.walk.queue.let_go();
        }
    }

    fn gather(&mut self, work: &Work) {
        match work {
            Work::Source(number) => self.source(*number),
            Work::Child(parent, names, index) => {
                if let Some((name, _)) = names.get(*index) {
                    self.child(parent, name);
                }
            }
            Work::Rest(directory) => {
                if let Err(error) = self.list(directory).map(drop) {
                    // What cannot be listed any more may still be described.
                    let read =
                        self.attributes.read(AttributesOf::Open(directory.fd.as_fd()), directory.metadata.device);
                    let records = if read.is_ok() { self.attributes.records() } else { b"" };
                    if self.walk.cut_short(&directory.path, directory.metadata, records) {
                        self.unlisted(&directory.path, error);
                    }
                }
            }
            Work::Files(directory, names, range) => {
                if !std::mem::replace(&mut self.holds, true) {
                    self.walk.queue.hold();
                }
                self.gathered.enter(Some(directory));
                for (name, file_type) in range.clone().filter_map(|index| names.get(index)) {
                    let item = self.gathered.push(name, State::Listed(file_type));
                    if self.is_left_out(item, directory.source, ProblemKind::Unreadable) {
                        self.gathered.pop();
                    } else if file_type == FileType::Unknown {
                        self.find_type(item, directory);
                    }
                }
            }
        }
    }

    fn source(&mut self, number: usize) {
        let root = &self.walk.source.roots[number];
        self.gathered.enter(None);
        let item = self.gathered.push_as(&root.path, root.name.to_bytes_with_nul(), State::ByName);
        match statat(CWD, &*root.name, AtFlags::SYMLINK_NOFOLLOW).map(|stat| FileType::from_raw_mode(stat.st_mode)) {
            Ok(FileType::Directory) => self.directory(item, number, None),
            Ok(FileType::RegularFile) => self.gathered.items[item].state = State::Listed(FileType::RegularFile),
            Ok(FileType::Symlink) => self.emitter.problem(&root.path, ProblemKind::SourceIsLink),
            Ok(_) => {}
            Err(error) => {
                // Perhaps not mounted today: nothing below it is taken for deleted. A source is nearly always a
                // directory.
                self.gathered.pop();
                self.walk.keep_state_below(&root.path);
                self.emitter.problem(&root.path, ProblemKind::Unreadable(error.raw_os_error()));
                self.emitter.absent(&root.path, EntryKind::Directory, EntryFlags::UNREADABLE, None);
            }
        }
    }

    fn child(&mut self, parent: &Parent, name: &[u8]) {
        let parent = match parent {
            Parent::Open(directory) => Arc::clone(directory),
            Parent::Closed(closed) => match self.walk.source.reopen(&self.walk.queue, closed.source, &closed.path) {
                Ok(directory) => directory,
                Err(error) => {
                    if self.walk.cut_short(&closed.path, closed.metadata, b"") {
                        self.unlisted(&closed.path, error);
                    }
                    return;
                }
            },
        };
        self.gathered.enter(Some(&parent));
        let item = self.gathered.push(name, State::ByName);
        if self.is_left_out(item, parent.source, ProblemKind::Unlisted) {
            self.gathered.pop();
        } else {
            self.directory(item, parent.source, Some(parent.metadata.device));
        }
    }

    /// What a name is of which its directory does not say it.
    fn find_type(&mut self, item: usize, parent: &Directory) {
        let stat = statat(self.gathered.directory(item), self.gathered.name(item), AtFlags::SYMLINK_NOFOLLOW);
        match stat.map(|stat| FileType::from_raw_mode(stat.st_mode)) {
            Ok(FileType::Directory) => self.directory(item, parent.source, Some(parent.metadata.device)),
            Ok(file_type) => self.gathered.items[item].state = State::Listed(file_type),
            Err(_) => self.gathered.items[item].state = State::ByName,
        }
    }

    /// Enters a directory: describes and lists it. `above` is the device of the directory that it lies in.
    fn directory(&mut self, item: usize, source: usize, above: Option<u64>) {
        self.no_access_time.set(OFlags::NOATIME);
        let opened = self
            .open(self.gathered.directory(item), self.gathered.name(item), DIRECTORY_FLAGS)
            .and_then(|fd| Ok((FileMetadata::new(&fstat(&fd)?), fd)));
        let path = self.gathered.path(item).to_vec();
        // The source itself is in its snapshot.
        let opened = opened.and_then(|(metadata, fd)| {
            match above.and_then(|_| self.walk.source.open_live(source, &path, metadata.inode)) {
                Some(live) => live.and_then(|fd| Ok((FileMetadata::new(&fstat(&fd)?), fd))),
                None => Ok((metadata, fd)),
            }
        });
        let (metadata, fd) = match opened {
            Ok(opened) => opened,
            Err(Errno::NOENT) => {
                self.gathered.items[item].state = State::Done;
                return self.vanished(&path, EntryKind::Directory);
            }
            // Something else by now; or a directory that can be described at least.
            Err(error) => {
                let exchanged = matches!(error, Errno::NOTDIR | Errno::LOOP);
                self.gathered.items[item].state = if exchanged { State::ByName } else { State::Unlisted };
                if !exchanged {
                    self.unlisted(&path, error);
                }
                return;
            }
        };
        if above.is_some() && is_snapshot(self.gathered.name(item).to_bytes(), metadata.uid) {
            self.gathered.items[item].state = State::Done;
            return;
        }
        self.read_attributes(&path, AttributesOf::Open(fd.as_fd()), metadata.device);
        self.gathered.keep_records(item, self.attributes.records());
        let wanted = self.wanted(&path, &metadata, None);
        let listed = match self.walk.source.descend(fd.as_fd(), metadata.device, above) {
            Descent::Enter => {
                let cache = above.and_then(|_| self.walk.source.cache_listing(fd.as_fd()));
                let directory = self.walk.queue.directory(fd, path.clone(), metadata, source);
                match cache {
                    Some(listing) => {
                        self.walk.queue.put(&directory, listing, Rest::End);
                        Ok(())
                    }
                    None => self.list(&directory).map(|names| {
                        // A source of which nothing is there: perhaps not mounted today.
                        if names == 0 && above.is_none() && !self.walk.source.may_be_empty {
                            self.walk.keep_state_below(&path);
                        }
                    }),
                }
            }
            Descent::Stay => Ok(()),
            Descent::Pseudo => {
                self.emitter.problem(&path, ProblemKind::PseudoFilesystem);
                Ok(())
            }
        };
        self.gathered.items[item].state = match listed {
            Ok(()) if wanted => State::Directory(metadata, EntryFlags::default()),
            Ok(()) => {
                self.emitter.tally.directory();
                State::Done
            }
            // In an incremental, too, where it stands as it did: what it holds is not known to.
            Err(error) => {
                self.unlisted(&path, error);
                State::Directory(metadata, EntryFlags::UNREADABLE)
            }
        };
    }

    /// Puts the next piece of a directory on the stack; gives the number of names in it.
    fn list(&mut self, directory: &Arc<Directory>) -> Result<usize, Errno> {
        let (found, end) = self.lister.read(directory.fd.as_fd());
        let names = found.files.len() + found.directories.len();
        self.walk.queue.put(directory, found, end.unwrap_or(Rest::End));
        // A directory that was removed since it was opened says so; what it held is gone.
        end.map(|_| names).or_else(|error| if error == Errno::NOENT { Ok(names) } else { Err(error) })
    }

    /// Whether nothing of a path is stored: it is excluded, or longer than any that can be restored. Anybody who may
    /// write below a source can make such a path.
    fn is_left_out(&mut self, item: usize, source: usize, problem: fn(i32) -> ProblemKind) -> bool {
        let path = self.gathered.path(item);
        let is_excluded = self.walk.source.is_excluded(source, path);
        let is_long = !is_excluded && path.len() > PATH_LEN_STORED_MAX;
        if is_long {
            self.emitter.problem(path, problem(Errno::NAMETOOLONG.raw_os_error()));
        }
        is_excluded || is_long
    }

    /// Opens without touching the access time where that is allowed.
    pub(super) fn open(&self, directory: BorrowedFd<'_>, name: &CStr, flags: OFlags) -> Result<OwnedFd, Errno> {
        loop {
            match openat(directory, name, flags | self.no_access_time.get(), Mode::empty()) {
                Err(Errno::PERM) if !self.no_access_time.get().is_empty() => self.no_access_time.set(OFlags::empty()),
                Err(Errno::INTR) => {}
                other => return other,
            }
        }
    }

    pub(super) fn read_attributes(&mut self, path: &[u8], of: AttributesOf<'_>, device: u64) {
        if let Err(error) = self.attributes.read(of, device) {
            self.emitter.problem(path, ProblemKind::AttributesUnreadable(error.raw_os_error()));
        }
    }

    /// Whether a path is to be written: always in a full backup, if it is new or changed in an incremental. It is, too,
    /// if `carrier` carries its content now, another path of the same file, and another one did in the base.
    pub(super) fn wanted(&mut self, path: &[u8], metadata: &FileMetadata, carrier: Option<&[u8]>) -> bool {
        let compared = carrier.map_or_else(|| metadata.compared(), |carrier| metadata.compared().as_link_to(carrier));
        let unchanged =
            self.walk.baseline.is_some_and(|baseline| baseline.compare(path, &compared) == Verdict::Unchanged);
        self.emitter.report.unchanged += u64::from(unchanged);
        !unchanged
    }

    pub(super) fn vanished(&mut self, path: &[u8], kind: EntryKind) {
        self.emitter.problem(path, ProblemKind::Vanished);
        // What the base of an incremental has of it is reported with everything else that is missing, after the walk.
        if self.walk.baseline.is_none() {
            self.emitter.absent(path, kind, EntryFlags::VANISHED, None);
        }
    }

    fn unlisted(&mut self, path: &[u8], error: Errno) {
        self.emitter.problem(path, ProblemKind::Unlisted(error.raw_os_error()));
        self.walk.keep_state_below(path);
    }
}
