//! Content of a file, read into the stream.

use std::os::fd::BorrowedFd;

use capstan_format::pax::{DataExtent, padding};
use capstan_format::{crc32c_append, crc32c_append_zeros};
use rustix::fs::{SeekFrom, seek};
use rustix::io::{Errno, pread};

use crate::{Stopped, StreamSink};

/// Data extents of a file that are kept; behind the last of them holes are stored as zeros, so that a file with more
/// holes than anyone makes on purpose does not fill the memory.
pub(crate) const EXTENTS_MAX: usize = 65_536;

/// What is passed over where reading fails: the sector size of today's disks.
const FAILED_LEN: u64 = 4_096;
/// Failures in one file after which the rest of it is given up. A dying disk may take seconds for each.
const FAILURES_MAX: u32 = 256;

/// How the reading of some content went.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Read {
    /// All of it was there, and no more was noticed.
    Whole,
    /// There is more behind it now.
    More,
    /// The file ended early; zeros stand for the rest.
    Short,
    /// Reading failed somewhere; zeros stand for what could not be read.
    Failed(Errno),
}

/// Content that was taken into the stream.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Content {
    pub(crate) crc: u32,
    /// System calls that brought data: content that came with one was read in one instant, as good as.
    pub(crate) pieces: u32,
    pub(crate) failures: u32,
    pub(crate) read: Read,
}

impl Content {
    pub(crate) const EMPTY: Self = Self { crc: 0, pieces: 0, failures: 0, read: Read::Whole };
}

/// What is done about bytes behind those that are wanted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Beyond {
    /// One byte more is asked for where the chunk has room, so that growth is noticed without another system call.
    Probe,
    /// Nothing.
    Ignore,
}

/// Appends `len` bytes of the file from `offset` to the stream, no matter what: zeros stand for what is not there.
pub(crate) fn copy<S: StreamSink>(
    sink: &mut S,
    fd: BorrowedFd<'_>,
    (mut offset, mut len): (u64, u64),
    beyond: Beyond,
    content: &mut Content,
    mut passed: impl FnMut(u64),
) -> Result<(), Stopped> {
    while len > 0 && content.failures < FAILURES_MAX {
        let space = sink.space()?;
        let probe = u64::from(beyond == Beyond::Probe);
        let wanted = usize::try_from(len.saturating_add(probe)).unwrap_or(usize::MAX).min(space.len());
        let got = match pread(fd, &mut space[..wanted], offset) {
            Ok(0) => {
                content.read = Read::Short;
                break;
            }
            Ok(got) => got,
            Err(Errno::INTR) => continue,
            Err(error) => {
                content.read = Read::Failed(error);
                content.failures += 1;
                if content.failures == FAILURES_MAX {
                    break;
                }
                let skipped = len.min(FAILED_LEN - offset % FAILED_LEN);
                zeros(sink, skipped)?;
                content.crc = crc32c_append_zeros(content.crc, skipped);
                offset += skipped;
                len -= skipped;
                continue;
            }
        };
        let mut taken = got;
        if got as u64 > len {
            taken = len as usize;
            if content.read == Read::Whole {
                content.read = Read::More;
            }
        }
        content.crc = crc32c_append(content.crc, &space[..taken]);
        content.pieces += 1;
        sink.advance(taken);
        offset += taken as u64;
        len -= taken as u64;
        passed(taken as u64);
    }
    zeros(sink, len)?;
    content.crc = crc32c_append_zeros(content.crc, len);
    Ok(())
}

/// Appends zeros.
pub(crate) fn zeros<S: StreamSink>(sink: &mut S, mut len: u64) -> Result<(), Stopped> {
    while len > 0 {
        let space = sink.space()?;
        let part = usize::try_from(len).unwrap_or(usize::MAX).min(space.len());
        space[..part].fill(0);
        sink.advance(part);
        len -= part as u64;
    }
    Ok(())
}

/// Appends the padding behind content of this length.
pub(crate) fn pad<S: StreamSink>(sink: &mut S, len: u64) -> Result<(), Stopped> {
    zeros(sink, padding(len) as u64)
}

/// Whether a file's holes are all in its map.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mapped {
    /// It has no hole, or the file system does not tell.
    Solid,
    /// All of them.
    Holes,
    /// It has more extents than are kept; the last of the map runs to the end.
    Cut,
}

/// Asks the file system where a file has data.
pub(crate) fn map_extents(fd: BorrowedFd<'_>, size: u64, extents: &mut Vec<DataExtent>) -> Mapped {
    extents.clear();
    let mut at = 0;
    while at < size {
        let start = match seek(fd, SeekFrom::Data(at)) {
            Ok(start) if start < size => start,
            // No data up to the end.
            Ok(_) | Err(Errno::NXIO) => return Mapped::Holes,
            Err(_) => return Mapped::Solid,
        };
        let end = match seek(fd, SeekFrom::Hole(start)) {
            Ok(end) if end > start => end.min(size),
            // The file changes under us: what is left is taken as data.
            _ => size,
        };
        if start == 0 && end == size {
            return Mapped::Solid;
        }
        if extents.len() == EXTENTS_MAX - 1 {
            extents.push(DataExtent { offset: start, len: size - start });
            return Mapped::Cut;
        }
        extents.push(DataExtent { offset: start, len: end - start });
        at = end;
    }
    Mapped::Holes
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests fail by panicking")]
    use super::*;
    use capstan_format::{FileEntry, crc32c};
    use std::fs::File;
    use std::io::{BufRead, BufReader};
    use std::os::fd::AsFd;

    struct Memory {
        bytes: Vec<u8>,
        chunk: [u8; 1000],
    }

    impl StreamSink for Memory {
        fn space(&mut self) -> Result<&mut [u8], Stopped> {
            self.chunk.fill(0xa5);
            Ok(&mut self.chunk)
        }

        fn advance(&mut self, len: usize) {
            self.bytes.extend_from_slice(&self.chunk[..len]);
        }

        fn position(&self) -> u64 {
            self.bytes.len() as u64
        }

        fn connection(&self) -> u16 {
            0
        }

        fn member(&mut self, _: FileEntry) {}
    }

    fn copied(file: &File, range: (u64, u64)) -> (Vec<u8>, Content) {
        let mut sink = Memory { bytes: Vec::new(), chunk: [0; 1000] };
        let mut content = Content::EMPTY;
        copy(&mut sink, file.as_fd(), range, Beyond::Ignore, &mut content, |_| {}).unwrap();
        assert_eq!((sink.bytes.len() as u64, crc32c(&sink.bytes)), (range.1, content.crc));
        (sink.bytes, content)
    }

    /// The process's own memory is a file that cannot be read below the program: real errors in the middle of a file.
    #[test]
    fn zeros_stand_for_what_cannot_be_read_and_what_lies_behind_is_read() {
        let first = BufReader::new(File::open("/proc/self/maps").unwrap()).lines().next().unwrap().unwrap();
        let start = u64::from_str_radix(first.split_once('-').unwrap().0, 16).unwrap();
        let memory = File::open("/proc/self/mem").unwrap();
        let hole = 20 * FAILED_LEN - 7;
        let (bytes, content) = copied(&memory, (start - hole, hole + 100));
        assert_eq!(content.read, Read::Failed(Errno::IO));
        let (before, behind) = bytes.split_at(hole as usize);
        assert!(before.iter().all(|&byte| byte == 0));
        let mut expected = [0; 100];
        pread(&memory, &mut expected, start).unwrap();
        assert_eq!(&behind[..4], b"\x7fELF");
        assert_eq!(behind, expected);
    }

    #[test]
    fn a_file_that_gives_nothing_is_given_up() {
        let directory = tempfile::tempdir().unwrap();
        // Open for writing only, so that each read fails at once.
        let file = File::create(directory.path().join("file")).unwrap();
        let (bytes, content) = copied(&file, (0, 10_000_000));
        assert_eq!(content.read, Read::Failed(Errno::BADF));
        assert!(bytes.iter().all(|&byte| byte == 0));
    }

    #[test]
    fn extents_are_bounded_and_their_last_runs_to_the_end() {
        let directory = tempfile::tempdir().unwrap();
        let file = File::create_new(directory.path().join("file")).unwrap();
        file.set_len(1 << 20).unwrap();
        let mut extents = Vec::new();
        assert_eq!((map_extents(file.as_fd(), 1 << 20, &mut extents), extents.len()), (Mapped::Holes, 0));
        rustix::io::pwrite(&file, &[1; 4096], 1 << 19).unwrap();
        assert_eq!(map_extents(file.as_fd(), 1 << 20, &mut extents), Mapped::Holes);
        assert_eq!(extents, [DataExtent { offset: 1 << 19, len: 4096 }]);
        rustix::io::pwrite(&file, &vec![1; 1 << 20], 0).unwrap();
        assert_eq!(map_extents(file.as_fd(), 1 << 20, &mut extents), Mapped::Solid);
    }
}
