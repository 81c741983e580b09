//! Standard input, or anything else that is read to its end, as one file.
//!
//! A pax header says how long the content is, and a stream does not know that. So the stream is cut into segments that
//! are gathered in memory before they are written, each a member of its own: `NAME` if one segment holds all, else
//! `NAME.000000`, `NAME.000001` and so on, which a plain `tar x` and `cat NAME.*` turn into the stream again. The
//! catalog sees one file: a single entry that spans all segments, with the size and the checksum of the whole. Its
//! content is that of the members from its offset to its end, one after the other.
//!
//! Rejected: spooling to disk (writes everything twice), a size of zero or a huge one corrected later (no tar reads
//! that), and one segment for each block (without the memory, but a terabyte would be a million files to tar).

use std::io::{ErrorKind, Read};
use std::time::Duration;

use capstan_format::pax::{Member, encode};
use capstan_format::{EntryFlags, EntryKind, FileEntry, crc32c_append};

use super::SourceError;
use super::content;
use super::owners::OwnerNames;
use super::report::{Progress, SourceReport, Tally};
use crate::{Stopped, StreamSink};

/// Bytes of a segment: half of what a mover may use besides its blocks.
const SEGMENT_LEN: usize = 32 << 20;

/// How long it is waited where nothing can be read at the moment.
const LOOKS: Duration = Duration::from_millis(10);

/// A stream of unknown length.
#[derive(Debug)]
pub struct StreamSource<R> {
    name: Vec<u8>,
    reader: R,
    mtime_ns: i64,
    segment_len: usize,
}

impl<R: Read> StreamSource<R> {
    /// A stream that is stored under `name`, as of `mtime_ns` (nanoseconds since 1970).
    ///
    /// # Errors
    /// The name cannot name a member.
    pub fn new(name: &str, reader: R, mtime_ns: i64) -> Result<Self, SourceError> {
        let name = super::tree::member_path(name.as_ref())?;
        Ok(Self { name, reader, mtime_ns, segment_len: SEGMENT_LEN })
    }

    /// Reads the stream to its end. An error of the reader is an error of the source: what was read until then must not
    /// pass for the whole.
    ///
    /// # Errors
    /// The reader fails, or the session was stopped.
    pub fn run<S: StreamSink>(mut self, sink: &mut S, progress: &Progress) -> Result<SourceReport, SourceError> {
        let mut writer = SegmentWriter::new(&self.name, self.mtime_ns, sink);
        let mut tally = Tally::new(progress);
        // One byte more than a segment shows whether the segment is the last.
        let mut buffer = vec![0; self.segment_len + 1];
        let mut held = 0;
        loop {
            let end = self.fill(&mut buffer, &mut held, &mut tally, &|| writer.sink.is_stopped())?;
            let len = held.min(self.segment_len);
            writer.segment(&buffer[..len], end)?;
            if end == End::Reached {
                break;
            }
            buffer.copy_within(len..held, 0);
            held -= len;
        }
        tally.file(&self.name);
        let bytes = writer.finish();
        Ok(SourceReport { files: 1, bytes, ..SourceReport::default() })
    }

    fn fill(
        &mut self,
        buffer: &mut [u8],
        held: &mut usize,
        tally: &mut Tally<'_>,
        is_stopped: &dyn Fn() -> bool,
    ) -> Result<End, SourceError> {
        while *held < buffer.len() {
            match self.reader.read(&mut buffer[*held..]) {
                Ok(0) => return Ok(End::Reached),
                Ok(len) => {
                    *held += len;
                    tally.bytes(&self.name, len as u64);
                }
                // Nothing came for a while: it may not be waited for any more.
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    if is_stopped() {
                        return Err(Stopped.into());
                    }
                    // Standard input may be one that waits for nobody.
                    std::thread::sleep(LOOKS);
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(reason) => {
                    return Err(SourceError::Stream { name: String::from_utf8_lossy(&self.name).into_owned(), reason });
                }
            }
        }
        Ok(End::Ahead)
    }
}

/// Whether the end of the stream was met.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum End {
    Ahead,
    Reached,
}

struct SegmentWriter<'a, S> {
    sink: &'a mut S,
    owners: OwnerNames,
    entry: FileEntry,
    number: u64,
    header: Vec<u8>,
}

impl<'a, S: StreamSink> SegmentWriter<'a, S> {
    fn new(name: &[u8], mtime_ns: i64, sink: &'a mut S) -> Self {
        let entry = FileEntry {
            path: name.to_vec(),
            kind: EntryKind::File,
            flags: EntryFlags::default(),
            // A dump of a database is nobody else's business.
            mode: 0o600,
            uid: rustix::process::geteuid().as_raw(),
            gid: rustix::process::getegid().as_raw(),
            size: 0,
            mtime_ns,
            change: 0,
            crc: 0,
            connection: sink.connection(),
            offset: sink.position(),
            member_len: 0,
            link: Vec::new(),
        };
        Self { sink, owners: OwnerNames::read(), entry, number: 0, header: Vec::new() }
    }

    fn segment(&mut self, bytes: &[u8], end: End) -> Result<(), Stopped> {
        let entry = &mut self.entry;
        let mut path = entry.path.clone();
        if self.number > 0 || end == End::Ahead {
            path.extend_from_slice(format!(".{:06}", self.number).as_bytes());
        }
        let member = Member {
            path: &path,
            kind: EntryKind::File,
            mode: entry.mode,
            uid: entry.uid,
            gid: entry.gid,
            user: self.owners.user(entry.uid),
            group: self.owners.group(entry.gid),
            size: bytes.len() as u64,
            mtime_ns: entry.mtime_ns.into(),
            link: b"",
            device: (0, 0),
            records: b"",
            extents: None,
        };
        self.header.clear();
        encode(&member, &mut self.header);
        self.sink.write(&self.header)?;
        self.sink.write(bytes)?;
        content::pad(self.sink, bytes.len() as u64)?;
        entry.crc = crc32c_append(entry.crc, bytes);
        entry.size += bytes.len() as u64;
        self.number += 1;
        Ok(())
    }

    /// Reports the whole; returns its size.
    fn finish(self) -> u64 {
        let size = self.entry.size;
        let member_len = self.sink.position() - self.entry.offset;
        self.sink.member(FileEntry { member_len, ..self.entry });
        size
    }
}
