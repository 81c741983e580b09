//! One thread's side of a restore: members in, files out.

use std::io::BufRead;
use std::os::fd::{AsFd, BorrowedFd};

use capstan_format::pax::DecodedMember;
use capstan_format::{EntryKind, crc32c_append, crc32c_append_zeros};
use rustix::fs::{
    AtFlags, FileType, Mode, OFlags, chmod, fstat, ftruncate, makedev, mkdirat, mknodat, openat, statat, symlinkat,
    unlinkat,
};
use rustix::io::{Errno, pwrite};

use super::directories::{Directory, DirectoryCache, Missing};
use super::existing::UNFINISHED;
use super::members::{Content, MemberHead, MemberReader, Piece};
use super::metadata::{self, Handle, InheritedAcl, MadeAs, descriptor_path};
use super::options::{DeviceNodes, MemberChoice, Overwrite};
use super::path::{checked, split};
use super::placement::{Placed, place};
use super::report::{
    DamagedFile, ExtractError, ExtractProblemKind, Failure, Likeness, MemberDone, MemberOutcome, count,
};
use super::target::RestoreTarget;

/// Writes members below a [`RestoreTarget`]. One a thread; it keeps directories open between members and streams.
#[derive(Debug)]
pub struct Extractor<'t> {
    target: &'t RestoreTarget,
    directories: DirectoryCache,
}

/// Why a member is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Wish {
    /// It was asked for.
    Itself,
    /// It leads to something that was.
    Way,
}

/// What came of one member.
struct Done {
    outcome: MemberOutcome,
    crc: Option<u32>,
    bytes: u64,
    missing: u64,
}

/// What came of a file's content.
#[derive(Default)]
struct Copied {
    crc: u32,
    written: u64,
    missing: u64,
}

impl Done {
    fn without_content(outcome: MemberOutcome) -> Self {
        Self { outcome, crc: None, bytes: 0, missing: 0 }
    }
}

impl RestoreTarget {
    /// A writer for the calling thread.
    pub fn extractor(&self) -> Extractor<'_> {
        Extractor::new(self)
    }
}

type Stream<'s> = &'s mut dyn BufRead;

impl<'t> Extractor<'t> {
    pub(super) fn new(target: &'t RestoreTarget) -> Self {
        Self { target, directories: DirectoryCache::new() }
    }

    /// Writes the members of a stream: whole members one after another, up to the end of the bytes or of the archive.
    /// `choose` is asked for each path, also for the paths that hard links name; `done` is told of each member.
    ///
    /// # Errors
    /// [`ExtractError`]. What failed halfway was removed; members before it stay, and further streams may be extracted
    /// after [`ExtractError::Stream`].
    pub fn extract(
        &mut self,
        stream: &mut dyn BufRead,
        choose: &mut dyn FnMut(&[u8]) -> MemberChoice,
        done: &mut dyn FnMut(&MemberDone<'_>),
    ) -> Result<(), ExtractError> {
        let mut reader = MemberReader::new(stream).passing_missing(self.target.keeps_damaged());
        while let Some((head, mut content)) = reader.next()? {
            let result = self.member(head, &mut content, choose)?;
            self.count(head.header.kind, &result);
            done(&MemberDone {
                path: &head.header.path,
                offset: head.offset,
                crc: result.crc,
                bytes: result.bytes,
                missing: result.missing,
                outcome: result.outcome,
            });
        }
        Ok(())
    }

    fn member(
        &mut self,
        head: &MemberHead,
        content: &mut Content<'_, Stream<'_>>,
        choose: &mut dyn FnMut(&[u8]) -> MemberChoice,
    ) -> Result<Done, ExtractError> {
        let chosen = choose(&head.header.path);
        let (path, wish) = match &chosen {
            MemberChoice::Take => (&head.header.path, Wish::Itself),
            MemberChoice::TakeAs(path) => (path, Wish::Itself),
            MemberChoice::Enter(path) => (path, Wish::Way),
            MemberChoice::Skip => return Ok(Done::without_content(MemberOutcome::NotWanted)),
        };
        match self.write((path, wish), &head.header, content, choose) {
            Ok(done) => Ok(done),
            Err(Failure::Member(kind, reason)) => {
                self.target.tally().problem(path, kind, reason);
                Ok(Done::without_content(MemberOutcome::Failed))
            }
            Err(Failure::Fatal(error)) => Err(error),
        }
    }

    fn write(
        &mut self,
        (path, wish): (&[u8], Wish),
        member: &DecodedMember,
        content: &mut Content<'_, Stream<'_>>,
        choose: &mut dyn FnMut(&[u8]) -> MemberChoice,
    ) -> Result<Done, Failure> {
        let path = inside(path)?;
        match member.kind {
            EntryKind::Directory => return self.directory(path, member, wish),
            EntryKind::HardLink => {
                let chosen = choose(&member.link);
                let link = match &chosen {
                    MemberChoice::TakeAs(link) | MemberChoice::Enter(link) => link,
                    MemberChoice::Take | MemberChoice::Skip => &member.link,
                };
                let link = inside(link)?;
                if path.is_empty() || link.is_empty() {
                    return Err(not_the_target());
                }
                self.target.defer_link(path, link, member.mtime_ns)?;
                return Ok(Done::without_content(MemberOutcome::Deferred));
            }
            _ => {}
        }
        let (parent, name) = split(path);
        if name.is_empty() {
            return Err(not_the_target());
        }
        let directory = self.directories.get(self.target.root(), parent, Missing::Make);
        let directory = directory.map_err(|errno| Failure::system(path, "make its directory", member.size, errno))?;
        let at = Place { target: self.target, directory: &directory, name, path };
        let done = match member.kind {
            EntryKind::File => at.file(member, content)?,
            EntryKind::Symlink => at.symlink(member)?,
            EntryKind::Fifo => at.node(member, FileType::Fifo)?,
            EntryKind::CharDevice => at.device(member, FileType::CharacterDevice)?,
            EntryKind::BlockDevice => at.device(member, FileType::BlockDevice)?,
            EntryKind::Directory | EntryKind::HardLink | EntryKind::Deleted => {
                Done::without_content(MemberOutcome::NotWanted)
            }
        };
        if let MemberOutcome::Written | MemberOutcome::Unchanged | MemberOutcome::Kept(Likeness::Same) = done.outcome {
            self.target.may_be_linked(path)?;
        }
        Ok(done)
    }

    fn directory(&mut self, path: &[u8], member: &DecodedMember, wish: Wish) -> Result<Done, Failure> {
        let target = self.target;
        let overwrite = target.options().overwrite;
        let failure = |errno| Failure::system(path, "make the directory", 0, errno);
        let mut made = false;
        if !path.is_empty() {
            let (parent, name) = split(path);
            let parent = self.directories.get(target.root(), parent, Missing::Make).map_err(failure)?;
            made = match mkdirat(parent.fd(), name, Mode::RWXU) {
                Ok(()) => true,
                Err(Errno::EXIST) => {
                    let stat = statat(parent.fd(), name, AtFlags::SYMLINK_NOFOLLOW).map_err(failure)?;
                    if !target.root().names.is_listed(parent.fd(), name) {
                        return Err(Failure::folded());
                    }
                    let kind = FileType::from_raw_mode(stat.st_mode);
                    let is_directory = kind == FileType::Directory;
                    if !is_directory {
                        if let Some(reason) = stays_in_the_way(kind, wish, overwrite) {
                            return Err(Failure::Member(ExtractProblemKind::InTheWay, reason.to_owned()));
                        }
                        unlinkat(parent.fd(), name, AtFlags::empty()).map_err(failure)?;
                        mkdirat(parent.fd(), name, Mode::RWXU).map_err(failure)?;
                    }
                    !is_directory
                }
                Err(errno) => return Err(failure(errno)),
            };
        }
        let is_left = overwrite == Overwrite::Never || wish == Wish::Way;
        if !made && !target.root().claim(path) && is_left {
            return Ok(Done::without_content(MemberOutcome::Kept(Likeness::Same)));
        }
        if !made {
            self.open_to_owner(path);
        }
        target.defer_directory(path, member)?;
        Ok(Done::without_content(MemberOutcome::Written))
    }

    /// Lets whoever restores write into a directory of theirs that was there, as into one that is made. What it is to
    /// be in the end is set last.
    fn open_to_owner(&mut self, path: &[u8]) {
        let Ok(directory) = self.directories.get(self.target.root(), path, Missing::Fail) else { return };
        let Ok(stat) = fstat(directory.fd()) else { return };
        let mode = Mode::from_raw_mode(stat.st_mode);
        if !mode.contains(Mode::RWXU) {
            // Where it is somebody else's, what cannot be written into it is told.
            let _ = chmod(descriptor_path(directory.fd()), mode | Mode::RWXU);
        }
    }

    fn count(&self, kind: EntryKind, done: &Done) {
        let tally = self.target.tally();
        match (done.outcome, kind) {
            // A directory that exists is entered.
            (MemberOutcome::Kept(_), EntryKind::Directory) => {}
            (MemberOutcome::Kept(likeness), _) => tally.count_kept(likeness),
            (MemberOutcome::Unchanged, _) => count(&tally.unchanged, 1),
            (MemberOutcome::Written, EntryKind::File) => {
                count(&tally.files, 1);
                count(&tally.bytes, done.bytes);
            }
            (MemberOutcome::Written, EntryKind::Symlink) => count(&tally.symlinks, 1),
            (MemberOutcome::Written, EntryKind::Fifo | EntryKind::CharDevice | EntryKind::BlockDevice) => {
                count(&tally.nodes, 1);
            }
            _ => {}
        }
    }
}

/// Why something that is no directory stays where one should be; none if it is replaced.
fn stays_in_the_way(kind: FileType, wish: Wish, overwrite: Overwrite) -> Option<&'static str> {
    match (wish, overwrite) {
        (Wish::Way, _) => Some(
            "something that is not a directory stands on the way to what is restored; it is neither followed nor \
             replaced. Remove it, or restore to another directory",
        ),
        (Wish::Itself, Overwrite::Never) => Some(
            "something that is not a directory has this name. Remove it, restore to another directory, or with \
             --overwrite always",
        ),
        (Wish::Itself, Overwrite::Changed) if kind == FileType::Symlink => Some(
            "a symbolic link has this name; it is neither followed nor replaced. Remove it, restore to another \
             directory, or with --overwrite always",
        ),
        (Wish::Itself, Overwrite::Changed | Overwrite::Always) => None,
    }
}

fn inside(path: &[u8]) -> Result<&[u8], Failure> {
    checked(path).map_err(|refused| {
        let reason = format!("{refused}; it was not restored. The stream is not one that Capstan wrote");
        Failure::Member(ExtractProblemKind::Refused, reason)
    })
}

fn not_the_target() -> Failure {
    Failure::Member(ExtractProblemKind::Refused, "the target itself is a directory and stays one".to_owned())
}

/// What a file is called of which a part is missing. It never has its own name: nobody takes it for the whole one,
/// and a later restore of what changed still brings that.
pub fn damaged_name(name: &[u8]) -> Vec<u8> {
    [name, b".damaged"].concat()
}

/// Where one member goes.
struct Place<'a> {
    target: &'a RestoreTarget,
    directory: &'a Directory,
    name: &'a [u8],
    path: &'a [u8],
}

impl Place<'_> {
    fn failure(&self, action: &'static str, missing_bytes: u64, errno: Errno) -> Failure {
        Failure::system(self.path, action, missing_bytes, errno)
    }

    fn set_metadata(&self, handle: Handle<'_>, member: &DecodedMember, made_as: MadeAs) {
        let mut problem = |reason| self.target.tally().problem(self.path, ExtractProblemKind::Metadata, reason);
        metadata::apply(handle, member, made_as, self.target.options().owners, &mut problem);
    }

    fn file(&self, member: &DecodedMember, content: &mut Content<'_, Stream<'_>>) -> Result<Done, Failure> {
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let make = |name: &[u8]| openat(self.directory.fd(), name, flags, UNFINISHED);
        let (fd, placement) = match place(self.target, self.directory.fd(), self.name, self.path, member, make)? {
            Placed::New(fd, placement) => (fd, placement),
            Placed::Existing(outcome) => return Ok(Done::without_content(outcome)),
        };
        let Copied { crc, written: bytes, missing } = self.content(fd.as_fd(), member, content)?;
        if missing > 0 && bytes == 0 {
            let unread = MemberOutcome::Damaged(DamagedFile::Unread);
            return Ok(Done { missing, ..Done::without_content(unread) });
        }
        let made_as = self.directory.made_as(fd.as_fd()).map_err(|errno| self.failure("look at it", 0, errno))?;
        self.set_metadata(Handle::File(fd.as_fd()), member, made_as);
        let failed = |errno| self.failure("rename it", 0, errno);
        if missing > 0 {
            let name = damaged_name(self.name);
            let damaged = match placement.commit_as(&name, self.target.options().overwrite) {
                Ok(()) => DamagedFile::Kept,
                Err(Errno::EXIST) => DamagedFile::InTheWay,
                Err(errno) => return Err(failed(errno)),
            };
            return Ok(Done { outcome: MemberOutcome::Damaged(damaged), crc: None, bytes, missing });
        }
        placement.commit().map_err(failed)?;
        Ok(Done { outcome: MemberOutcome::Written, crc: Some(crc), bytes, missing })
    }

    /// Writes the content, holes and what is missing as holes.
    fn content(
        &self,
        fd: BorrowedFd<'_>,
        member: &DecodedMember,
        content: &mut Content<'_, Stream<'_>>,
    ) -> Result<Copied, Failure> {
        let (mut copied, mut end_in_file) = (Copied::default(), 0);
        while let Some(piece) = content.next_piece()? {
            match piece {
                Piece::Data { offset, bytes } => {
                    let mut done = 0;
                    while done < bytes.len() {
                        match pwrite(fd, &bytes[done..], offset + done as u64) {
                            Ok(len) => done += len,
                            Err(Errno::INTR) => {}
                            Err(errno) => {
                                let missing = member.size.saturating_sub(offset + done as u64);
                                return Err(self.failure("write it", missing, errno));
                            }
                        }
                    }
                    copied.crc = crc32c_append(copied.crc, bytes);
                    copied.written += bytes.len() as u64;
                    end_in_file = offset + bytes.len() as u64;
                }
                Piece::Hole { len, .. } => copied.crc = crc32c_append_zeros(copied.crc, len),
                Piece::Missing { len, .. } => copied.missing += len,
            }
        }
        if end_in_file < member.size {
            ftruncate(fd, member.size).map_err(|errno| self.failure("set its length", 0, errno))?;
        }
        Ok(copied)
    }

    fn symlink(&self, member: &DecodedMember) -> Result<Done, Failure> {
        if member.link.contains(&0) || member.link.is_empty() {
            let reason = "the link points to an empty path or one with a NUL byte";
            return Err(Failure::Member(ExtractProblemKind::Refused, reason.to_owned()));
        }
        let make = |name: &[u8]| symlinkat(&member.link[..], self.directory.fd(), name);
        self.without_content(member, make)
    }

    fn device(&self, member: &DecodedMember, kind: FileType) -> Result<Done, Failure> {
        if self.target.options().devices == DeviceNodes::Refuse {
            let (major, minor) = (member.device_major, member.device_minor);
            let reason = format!("device node {major}:{minor} was not made. Restore with --devices if it is wanted");
            return Err(Failure::Member(ExtractProblemKind::Device, reason));
        }
        self.node(member, kind)
    }

    fn node(&self, member: &DecodedMember, kind: FileType) -> Result<Done, Failure> {
        let device = makedev(member.device_major, member.device_minor);
        let make = |name: &[u8]| mknodat(self.directory.fd(), name, kind, UNFINISHED, device);
        self.without_content(member, make)
    }

    fn without_content(
        &self,
        member: &DecodedMember,
        make: impl FnMut(&[u8]) -> Result<(), Errno>,
    ) -> Result<Done, Failure> {
        let placement = match place(self.target, self.directory.fd(), self.name, self.path, member, make)? {
            Placed::New((), placement) => placement,
            Placed::Existing(outcome) => return Ok(Done::without_content(outcome)),
        };
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let opened = openat(self.directory.fd(), placement.current(), flags, Mode::empty());
        let fd = opened.map_err(|errno| self.failure("open it to set its metadata", 0, errno))?;
        let stat = fstat(&fd).map_err(|errno| self.failure("look at it", 0, errno))?;
        let made_as = MadeAs { uid: stat.st_uid, gid: stat.st_gid, acl: InheritedAcl::Perhaps };
        let handle =
            if member.kind == EntryKind::Symlink { Handle::Symlink(fd.as_fd()) } else { Handle::Node(fd.as_fd()) };
        self.set_metadata(handle, member, made_as);
        placement.commit().map_err(|errno| self.failure("rename it", 0, errno))?;
        Ok(Done::without_content(MemberOutcome::Written))
    }
}
