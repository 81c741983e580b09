//! Writes members into one connection's stream and reports them.

use std::os::fd::BorrowedFd;

use capstan_format::pax::{DataExtent, Member, encode};
use capstan_format::{EntryFlags, EntryKind, FileEntry, crc32c_append_zeros};
use rustix::fs::fstat;

use super::content::{self, Beyond, Content, Mapped, Read};
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
}

impl<'a, S: StreamSink> Emitter<'a, S> {
    pub(crate) fn new(
        sink: &'a mut S,
        owners: &'a OwnerNames,
        on_problem: Option<&'a OnProblem>,
        progress: &'a Progress,
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
        let offset = self.header(path, kind, metadata, link, records, None)?;
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

    /// A regular file: holes where it has them, content, and what happened to it meanwhile.
    pub(crate) fn file(
        &mut self,
        path: &[u8],
        fd: BorrowedFd<'_>,
        metadata: &FileMetadata,
        records: &[u8],
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
        let offset = self.header(path, EntryKind::File, metadata, b"", records, sparse)?;
        let mut content = Content::EMPTY;
        let mut flags = EntryFlags::default();
        if let Some(extents) = sparse {
            flags = flags.with(EntryFlags::SPARSE);
            self.sparse_content(path, fd, metadata.size, extents, &mut content)?;
        } else if metadata.size > 0 {
            let range = (0, metadata.size);
            content::copy(self.sink, fd, range, Beyond::Probe, &mut content, |len| self.tally.bytes(path, len))?;
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
        self.report_member(entry, offset);
        Ok(())
    }

    fn sparse_content(
        &mut self,
        path: &[u8],
        fd: BorrowedFd<'_>,
        size: u64,
        extents: &[DataExtent],
        content: &mut Content,
    ) -> Result<(), Stopped> {
        let (mut end, mut stored) = (0, 0);
        for extent in extents {
            content.crc = crc32c_append_zeros(content.crc, extent.offset - end);
            let range = (extent.offset, extent.len);
            content::copy(self.sink, fd, range, Beyond::Ignore, content, |len| self.tally.bytes(path, len))?;
            end = extent.offset + extent.len;
            stored += extent.len;
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
        if content.pieces > 1
            && let Ok(stat) = fstat(fd)
        {
            let after = FileMetadata::new(&stat);
            if after.size > before.size {
                flags = flags.with(EntryFlags::GREW);
            } else if after.size < before.size {
                flags = flags.with(EntryFlags::SHRANK);
            }
            if (after.mtime_ns, after.ctime_ns) != (before.mtime_ns, before.ctime_ns) {
                flags = flags.with(EntryFlags::CHANGED);
            }
        }
        for (flag, kind) in [
            (EntryFlags::SHRANK, ProblemKind::Shrank),
            (EntryFlags::GREW, ProblemKind::Grew),
            (EntryFlags::CHANGED, ProblemKind::Changed),
        ] {
            if flags.contains(flag) {
                self.problem(path, kind);
                break;
            }
        }
        flags
    }

    /// A path of which the stream holds nothing: vanished, unreadable, deleted.
    pub(crate) fn absent(&mut self, path: &[u8], kind: EntryKind, flags: EntryFlags, metadata: Option<&FileMetadata>) {
        let mut entry = metadata.map_or_else(|| empty_entry(path, kind), |metadata| entry(path, kind, metadata));
        entry.flags = flags;
        self.report_member(entry, self.sink.position());
    }

    fn header(
        &mut self,
        path: &[u8],
        kind: EntryKind,
        metadata: &FileMetadata,
        link: &[u8],
        records: &[u8],
        extents: Option<&[DataExtent]>,
    ) -> Result<u64, Stopped> {
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
        let offset = self.sink.position();
        self.sink.write(&self.header)?;
        Ok(offset)
    }

    fn report_member(&mut self, mut entry: FileEntry, offset: u64) {
        entry.connection = self.sink.connection();
        entry.offset = offset;
        entry.member_len = self.sink.position() - offset;
        self.sink.member(entry);
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
