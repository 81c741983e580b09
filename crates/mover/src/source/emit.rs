//! Writes members into one connection's stream and reports them.

use std::collections::HashSet;
use std::os::fd::BorrowedFd;

use capstan_format::pax::{DataExtent, Member, encode};
use capstan_format::{EntryFlags, EntryKind, FileEntry, Fragment, crc32c, crc32c_append_zeros};
use rustix::fs::fstat;

use super::content::{self, Beyond, Content, Mapped, Read};
use super::cut::CutFile;
use super::metadata::FileMetadata;
use super::owners::OwnerNames;
use super::report::{OnProblem, ProblemKind, Progress, SourceReport, Tally};
use crate::{Stopped, StreamSink};

/// One connection's writer of members, with the buffers that it uses again and again.
pub(crate) struct Emitter<'a, S> {
    pub(crate) sink: &'a mut S,
    pub(crate) report: SourceReport,
    pub(crate) tally: Tally<'a>,
    owners: &'a OwnerNames,
    on_problem: Option<&'a OnProblem>,
    header: Vec<u8>,
    extents: Vec<DataExtent>,
    mean_size: u64,
    /// A file is marked after so many bytes.
    mark_bytes: u64,
    /// Paths of which not all attributes could be read: the next incremental reads them again.
    lacking: HashSet<Vec<u8>>,
}

impl<'a, S: StreamSink> Emitter<'a, S> {
    pub(crate) fn new(
        sink: &'a mut S,
        owners: &'a OwnerNames,
        on_problem: Option<&'a OnProblem>,
        progress: &'a Progress,
        mark_bytes: u64,
    ) -> Self {
        Self {
            sink,
            report: SourceReport::default(),
            tally: Tally::new(progress),
            owners,
            on_problem,
            header: Vec::with_capacity(4096),
            extents: Vec::new(),
            mean_size: 0,
            mark_bytes,
            lacking: HashSet::new(),
        }
    }

    /// Mean size of the last files or so: what large files are shared out by.
    pub(crate) fn mean_size(&self) -> u64 {
        self.mean_size
    }

    pub(crate) fn problem(&mut self, path: &[u8], kind: ProblemKind) {
        self.tally.problem();
        if let Some(on_problem) = self.on_problem {
            on_problem(path, kind);
        }
        if kind.may_pass() {
            self.lacking.insert(path.to_vec());
        }
        self.report.problem(path, kind);
    }

    /// A member without content: everything but a file.
    pub(crate) fn bare(
        &mut self,
        path: &[u8],
        kind: EntryKind,
        flags: EntryFlags,
        metadata: &FileMetadata,
        link: &[u8],
        records: &[u8],
    ) -> Result<(), Stopped> {
        self.encode_header(path, kind, metadata, link, records, None);
        let offset = self.sink.position();
        self.sink.write(&self.header)?;
        if kind == EntryKind::Directory {
            self.report.directories += 1;
            self.tally.directory();
        } else {
            self.report.others += 1;
            self.tally.file(path);
        }
        let mut entry = entry(path, kind, metadata);
        entry.flags = flags;
        if kind == EntryKind::HardLink {
            entry.link = link.to_vec();
        }
        self.report_member(entry, offset);
        Ok(())
    }

    /// A regular file: holes where it has them, content, and what happened to it meanwhile. Of one whose beginning
    /// another stream has (`cut`), what is left of it; the whole file, if its member begins otherwise now.
    pub(crate) fn file(
        &mut self,
        path: &[u8],
        fd: BorrowedFd<'_>,
        metadata: &FileMetadata,
        records: &[u8],
        cut: Option<&CutFile>,
    ) -> Result<(), Stopped> {
        let mut extents = std::mem::take(&mut self.extents);
        let mapped = if metadata.may_have_holes() {
            content::map_extents(fd, metadata.size, &mut extents)
        } else {
            Mapped::Solid
        };
        if mapped == Mapped::Cut {
            self.problem(path, ProblemKind::TooManyExtents);
        }
        let sparse = (mapped != Mapped::Solid).then_some(&extents[..]);
        self.encode_header(path, EntryKind::File, metadata, b"", records, sparse);
        // Most files are too short to be marked.
        let is_long = metadata.size > self.mark_bytes || cut.is_some();
        let header = if is_long { (self.header.len() as u64, crc32c(&self.header)) } else { (0, 0) };
        let cut = cut.filter(|cut| (cut.header_len, cut.header_crc) == header);
        let offset = self.sink.position();
        let mut content = Content::EMPTY;
        match cut {
            Some(cut) => {
                content.crc = cut.crc;
                // It was read at two times.
                content.pieces = 2;
                self.tally.passed(cut.so_far.saturating_sub(cut.header_len));
            }
            None => self.sink.write(&self.header)?,
        }
        let mut marks = Marks {
            path,
            metadata,
            begins: (self.sink.connection(), offset),
            header,
            continues: cut.map(|cut| cut.ends),
            // Another name of it may be the one that the walk meets first then.
            may_be_cut: metadata.link_count == 1 && self.sink.takes_fragments(),
            since: 0,
        };
        let from = cut.map_or(0, |cut| cut.content);
        let mut flags = EntryFlags::default();
        if let Some(extents) = sparse {
            flags = flags.with(EntryFlags::SPARSE);
            self.sparse_content((path, fd), (from, metadata.size), extents, &mut content, &mut marks)?;
        } else if metadata.size > 0 {
            let range = (from, metadata.size - from);
            self.marked_content((path, fd), range, Beyond::Probe, &mut content, &mut marks)?;
            content::pad(self.sink, metadata.size)?;
        }
        self.extents = extents;
        let mut entry = entry(path, EntryKind::File, metadata);
        entry.crc = content.crc;
        entry.flags = flags.with(self.judge(path, fd, metadata, &content));
        self.report.files += 1;
        self.report.bytes += metadata.size;
        self.mean_size = self.mean_size - self.mean_size / 8 + metadata.size / 8;
        self.tally.file(path);
        let Some(cut) = cut else {
            self.report_member(entry, offset);
            return Ok(());
        };
        // Whoever reads the member must know which stream this one continues.
        let at = self.sink.position();
        self.sink.member(marks.fragment(metadata.size, content.crc, at));
        (entry.connection, entry.offset) = cut.begins;
        entry.member_len = cut.so_far + (at - offset);
        self.pass_on(entry);
        Ok(())
    }

    /// Content of a file, marked so that it can be gone on with.
    fn marked_content(
        &mut self,
        (path, fd): (&[u8], BorrowedFd<'_>),
        (mut offset, mut len): (u64, u64),
        beyond: Beyond,
        content: &mut Content,
        marks: &mut Marks<'_>,
    ) -> Result<(), Stopped> {
        while len > 0 {
            // The mark is where a chunk ends, so that what follows it on the volume is not read twice.
            let until = match self.mark_bytes.saturating_sub(marks.since) {
                0 => self.sink.left_of_chunk() as u64,
                left => left,
            };
            if until == 0 {
                marks.since = 0;
                // What could not be read is tried again.
                if marks.may_be_cut && content.read == Read::Whole {
                    let at = self.sink.position();
                    self.sink.member(marks.fragment(offset, content.crc, at));
                }
                continue;
            }
            let part = len.min(until);
            let beyond = if part == len { beyond } else { Beyond::Ignore };
            content::copy(self.sink, fd, (offset, part), beyond, content, |len| self.tally.bytes(path, len))?;
            (offset, len) = (offset + part, len - part);
            marks.since += part;
        }
        Ok(())
    }

    fn sparse_content(
        &mut self,
        of: (&[u8], BorrowedFd<'_>),
        (from, size): (u64, u64),
        extents: &[DataExtent],
        content: &mut Content,
        marks: &mut Marks<'_>,
    ) -> Result<(), Stopped> {
        let (mut end, mut stored) = (from, 0);
        for extent in extents {
            stored += extent.len;
            let (start, behind) = (extent.offset.max(end), extent.offset + extent.len);
            if start < behind {
                content.crc = crc32c_append_zeros(content.crc, start - end);
                self.marked_content(of, (start, behind - start), Beyond::Ignore, content, marks)?;
                end = behind;
            }
        }
        content.crc = crc32c_append_zeros(content.crc, size - end);
        self.tally.passed(size - stored);
        // Holes were mapped at an earlier instant than they are read, however short the file is.
        content.pieces = content.pieces.max(2);
        content::pad(self.sink, stored)
    }

    /// What happened to a file while it was read: a second stat if it took more than one system call.
    fn judge(&mut self, path: &[u8], fd: BorrowedFd<'_>, before: &FileMetadata, content: &Content) -> EntryFlags {
        let mut flags = EntryFlags::default();
        match content.read {
            Read::Failed(errno) => {
                self.problem(path, ProblemKind::ReadFailed(errno.raw_os_error()));
                return EntryFlags::UNREADABLE;
            }
            Read::Short => flags = EntryFlags::SHRANK,
            Read::More => flags = EntryFlags::GREW,
            Read::Whole => {}
        }
        if content.pieces > 1 {
            flags = flags.with(changed_since(fd, before));
        }
        if let Some(kind) = unsteady(flags) {
            self.problem(path, kind);
        }
        flags
    }

    /// A path of which the stream holds nothing: vanished, unreadable, deleted.
    pub(crate) fn absent(&mut self, path: &[u8], kind: EntryKind, flags: EntryFlags, metadata: Option<&FileMetadata>) {
        let mut entry = metadata.map_or_else(|| empty_entry(path, kind), |metadata| entry(path, kind, metadata));
        entry.flags = flags;
        self.report_member(entry, self.sink.position());
    }

    fn encode_header(
        &mut self,
        path: &[u8],
        kind: EntryKind,
        metadata: &FileMetadata,
        link: &[u8],
        records: &[u8],
        extents: Option<&[DataExtent]>,
    ) {
        self.header.clear();
        let member = Member {
            path,
            kind,
            mode: metadata.mode,
            uid: metadata.uid,
            gid: metadata.gid,
            user: self.owners.user(metadata.uid),
            group: self.owners.group(metadata.gid),
            size: metadata.size,
            mtime_ns: metadata.exact_mtime_ns(),
            link,
            device: metadata.device_node,
            records,
            extents,
        };
        encode(&member, &mut self.header);
    }

    fn report_member(&mut self, mut entry: FileEntry, offset: u64) {
        entry.connection = self.sink.connection();
        entry.offset = offset;
        entry.member_len = self.sink.position() - offset;
        self.pass_on(entry);
    }

    fn pass_on(&mut self, mut entry: FileEntry) {
        if !self.lacking.is_empty() && self.lacking.remove(&entry.path) {
            entry.flags = entry.flags.with(EntryFlags::LACKS_ATTRIBUTES);
        }
        self.sink.member(entry);
    }
}

/// What became of a file since it was described.
pub(super) fn changed_since(fd: BorrowedFd<'_>, before: &FileMetadata) -> EntryFlags {
    let mut flags = EntryFlags::default();
    let Ok(after) = fstat(fd).map(|stat| FileMetadata::new(&stat)) else { return flags };
    if after.size > before.size {
        flags = flags.with(EntryFlags::GREW);
    } else if after.size < before.size {
        flags = flags.with(EntryFlags::SHRANK);
    }
    if (after.mtime_ns, after.ctime_ns) != (before.mtime_ns, before.ctime_ns) {
        flags = flags.with(EntryFlags::CHANGED);
    }
    flags
}

/// What is said of a file that was in use, the worst of it.
pub(super) fn unsteady(flags: EntryFlags) -> Option<ProblemKind> {
    let kinds = [
        (EntryFlags::SHRANK, ProblemKind::Shrank),
        (EntryFlags::GREW, ProblemKind::Grew),
        (EntryFlags::CHANGED, ProblemKind::Changed),
    ];
    kinds.into_iter().find(|(flag, _)| flags.contains(*flag)).map(|(_, kind)| kind)
}

/// How far the content of a file is marked.
struct Marks<'f> {
    path: &'f [u8],
    metadata: &'f FileMetadata,
    /// Where what this stream has of the member begins: connection and offset.
    begins: (u16, u64),
    /// Length and checksum of what is in front of the content.
    header: (u64, u32),
    continues: Option<(u16, u64)>,
    may_be_cut: bool,
    /// Bytes since the last mark.
    since: u64,
}

impl Marks<'_> {
    /// What says that the stream has the file up to `content` there, at `position`.
    fn fragment(&self, content: u64, crc: u32, position: u64) -> FileEntry {
        let (header_len, header_crc) = self.header;
        let fragment = Fragment { content, header_len, header_crc, continues: self.continues };
        FileEntry {
            flags: EntryFlags::FRAGMENT,
            crc,
            connection: self.begins.0,
            offset: self.begins.1,
            member_len: position - self.begins.1,
            link: fragment.encode(),
            ..entry(self.path, EntryKind::File, self.metadata)
        }
    }
}

fn entry(path: &[u8], kind: EntryKind, metadata: &FileMetadata) -> FileEntry {
    FileEntry {
        mode: metadata.mode,
        uid: metadata.uid,
        gid: metadata.gid,
        size: metadata.size,
        mtime_ns: metadata.mtime_ns,
        change: metadata.change(),
        ..empty_entry(path, kind)
    }
}

fn empty_entry(path: &[u8], kind: EntryKind) -> FileEntry {
    FileEntry {
        path: path.to_vec(),
        kind,
        flags: EntryFlags::default(),
        mode: 0,
        uid: 0,
        gid: 0,
        size: 0,
        mtime_ns: 0,
        change: 0,
        crc: 0,
        connection: 0,
        offset: 0,
        member_len: 0,
        link: Vec::new(),
    }
}
