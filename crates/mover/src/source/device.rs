//! A block device or an image of one, read by all connections at once as one file.
//!
//! Connection i carries the i-th part of the content; the first begins with the member's header and the last ends with
//! its padding, so that the streams laid end to end are one member. There is one entry. It names the first connection
//! and the offset of the header there, and its length counts through the streams: what does not lie behind the offset
//! in the first connection's stream goes on at the beginning of the second's, and so on. It is reported on the last
//! connection when all have taken their last byte, so it may be counted as stored only when all that they have taken
//! is.

use std::fs::File;
use std::io::{self, Seek, SeekFrom};
use std::num::NonZeroU64;
use std::ops::Range;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::thread;

use capstan_format::pax::{Member, encode};
use capstan_format::{EntryFlags, EntryKind, FileEntry, crc32c_combine};
use rustix::fs::{Advice, CWD, FileType, Mode, fadvise, fstat, openat};

use super::SourceError;
use super::attributes::{AttributeReader, AttributesOf};
use super::content::{self, Beyond, Content, Read};
use super::emit::{changed_since, unsteady};
use super::metadata::FileMetadata;
use super::owners::OwnerNames;
use super::report::{ProblemKind, Progress, SourceReport, Tally};
use super::tree::{FILE_FLAGS, member_path};
use crate::{Stopped, StreamSink};

/// Parts begin at multiples of this, so that no disk block is read twice.
const ALIGNMENT: u64 = 1 << 20;
/// How much is read between two announcements of what comes next.
const STEP_LEN: u64 = 4 << 20;

/// A block device or an image file.
#[derive(Debug)]
pub struct DeviceSource {
    file: File,
    path: Vec<u8>,
    metadata: FileMetadata,
}

impl DeviceSource {
    /// Opens a device or an image.
    ///
    /// # Errors
    /// It cannot be opened, it is neither a device nor a file, or its path cannot name a member.
    pub fn open(path: &Path) -> Result<Self, SourceError> {
        let error = |reason| SourceError::Open { path: path.to_owned(), reason };
        // It may have been exchanged since somebody looked: a link leads elsewhere, and a pipe would be waited for.
        let opened = openat(CWD, path, FILE_FLAGS, Mode::empty()).map_err(|errno| error(errno.into()))?;
        let mut file = File::from(opened);
        let mut metadata = FileMetadata::new(&fstat(&file).map_err(|errno| error(errno.into()))?);
        if !matches!(metadata.file_type, FileType::BlockDevice | FileType::RegularFile) {
            return Err(SourceError::NotADevice { path: PathBuf::from(path) });
        }
        // A device's stat says nothing of its size.
        metadata.size = file.seek(SeekFrom::End(0)).map_err(error)?;
        // One without a medium can be opened so. What is backed up of it would be empty, and whole.
        if metadata.file_type == FileType::BlockDevice && metadata.size == 0 {
            return Err(error(io::Error::other("it has no content: is there a medium in it?")));
        }
        Ok(Self { file, path: member_path(path)?, metadata })
    }

    /// Size in bytes.
    pub fn size(&self) -> u64 {
        self.metadata.size
    }

    /// Reads the device on one thread for each connection and writes it into their streams as one member.
    ///
    /// # Errors
    /// There is no connection, or the session was stopped. What cannot be read is in the report, and zeros stand for
    /// it.
    pub fn run<S: StreamSink>(&self, sinks: &mut [S], progress: &Progress) -> Result<SourceReport, SourceError> {
        let Some(first) = sinks.first_mut() else { return Err(SourceError::NoConnection) };
        let (connection, offset) = (first.connection(), first.position());
        let before: u64 = sinks.iter().map(StreamSink::position).sum();
        let is_file = self.metadata.file_type == FileType::RegularFile;
        let mut attributes = AttributeReader::new();
        let attributes_read = match is_file {
            true => attributes.read(AttributesOf::Open(self.file.as_fd()), self.metadata.device),
            false => Ok(()),
        };
        self.header(&mut sinks[0], attributes.records())?;
        let ranges = parts(self.metadata.size, sinks.len() as u64);
        let results: Vec<Result<Content, Stopped>> = thread::scope(|scope| {
            let threads: Vec<_> = sinks
                .iter_mut()
                .zip(ranges.clone())
                .map(|(sink, range)| scope.spawn(|| self.part(sink, range, progress)))
                .collect();
            threads
                .into_iter()
                .map(|thread| thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
                .collect()
        });
        let mut whole = Content::EMPTY;
        let mut report = SourceReport { files: 1, bytes: self.metadata.size, ..SourceReport::default() };
        let mut tally = Tally::new(progress);
        for (result, range) in results.into_iter().zip(ranges) {
            let part = result?;
            whole.crc = crc32c_combine(whole.crc, part.crc, range.end - range.start);
            if part.read != Read::Whole {
                whole.read = part.read;
            }
        }
        let flags = match whole.read {
            Read::Failed(errno) => {
                report.problem(&self.path, ProblemKind::ReadFailed(errno.raw_os_error()));
                EntryFlags::UNREADABLE
            }
            read => {
                let short = if read == Read::Short { EntryFlags::SHRANK } else { EntryFlags::default() };
                let flags = match is_file {
                    true => short.with(changed_since(self.file.as_fd(), &self.metadata)),
                    // A device's stat says nothing of what was written to it.
                    false => short,
                };
                unsteady(flags).into_iter().for_each(|kind| report.problem(&self.path, kind));
                flags
            }
        };
        let mut flags = flags;
        if let Err(errno) = attributes_read {
            let kind = ProblemKind::AttributesUnreadable(errno.raw_os_error());
            report.problem(&self.path, kind);
            if kind.may_pass() {
                flags = flags.with(EntryFlags::LACKS_ATTRIBUTES);
            }
        }
        tally.file(&self.path);
        let after: u64 = sinks.iter().map(StreamSink::position).sum();
        if let Some(last) = sinks.last_mut() {
            content::pad(last, self.metadata.size)?;
            last.member(FileEntry {
                path: self.path.clone(),
                kind: EntryKind::File,
                flags,
                mode: self.metadata.mode,
                uid: self.metadata.uid,
                gid: self.metadata.gid,
                size: self.metadata.size,
                mtime_ns: self.metadata.mtime_ns,
                change: self.metadata.change(),
                crc: whole.crc,
                connection,
                offset,
                member_len: after - before + capstan_format::pax::padding(self.metadata.size) as u64,
                link: Vec::new(),
            });
        }
        Ok(report)
    }

    fn header<S: StreamSink>(&self, sink: &mut S, records: &[u8]) -> Result<(), Stopped> {
        let owners = OwnerNames::read();
        let mut header = Vec::new();
        let member = Member {
            path: &self.path,
            kind: EntryKind::File,
            mode: self.metadata.mode,
            uid: self.metadata.uid,
            gid: self.metadata.gid,
            user: owners.user(self.metadata.uid),
            group: owners.group(self.metadata.gid),
            size: self.metadata.size,
            mtime_ns: self.metadata.exact_mtime_ns(),
            link: b"",
            device: (0, 0),
            records,
            extents: None,
        };
        encode(&member, &mut header);
        sink.write(&header)
    }

    fn part<S: StreamSink>(&self, sink: &mut S, range: Range<u64>, progress: &Progress) -> Result<Content, Stopped> {
        let mut content = Content::EMPTY;
        let mut tally = Tally::new(progress);
        let mut at = range.start;
        while at < range.end {
            let len = STEP_LEN.min(range.end - at);
            // Only advice: without it the kernel reads ahead by itself, in shorter runs.
            let ahead = range.end.min(at + 2 * STEP_LEN) - at;
            let _ = fadvise(&self.file, at, NonZeroU64::new(ahead), Advice::WillNeed);
            content::copy(sink, self.file.as_fd(), (at, len), Beyond::Ignore, &mut content, |len| {
                tally.bytes(&self.path, len);
            })?;
            at += len;
        }
        Ok(content)
    }
}

/// Parts of a whole, one for each connection, the last ones perhaps empty.
fn parts(size: u64, count: u64) -> Vec<Range<u64>> {
    let len = size.div_ceil(count.max(1)).next_multiple_of(ALIGNMENT);
    (0..count).map(|number| (number * len).min(size)..((number + 1) * len).min(size)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_cover_the_whole_without_overlap() {
        for size in [0, 1, 511, ALIGNMENT, ALIGNMENT + 1, 10 * ALIGNMENT - 1, 1 << 40] {
            for count in 1..9 {
                let parts = parts(size, count);
                assert_eq!(parts.len() as u64, count);
                let end = parts.iter().fold(0, |at, part| {
                    assert_eq!(part.start, at);
                    part.end
                });
                assert_eq!(end, size);
            }
        }
    }
}
