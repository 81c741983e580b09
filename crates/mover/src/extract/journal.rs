//! Records that wait for the end of the restore, in bounded memory.
//!
//! Directory metadata and hard links can only be set once everything else is there, and nothing bounds how many there
//! are, nor the files that links may be made to. Records collect in memory; whenever they pass a budget they are moved
//! to a file without a name in the target, which disappears with the process whatever happens to it.
//!
//! Records come back in the order of their *lane*, highest first, and within a lane in the order they were put.
//! Directories use their depth as lane, so that children are done before their parents; what that costs in memory is 16
//! bytes a lane. Links and what they may be made to use the same lanes, so that a part of both is compared at a time.
//! Each record begins with the place of the next one of its lane, filled in when that one is put:
//! ```text
//! u64 place of the next record of the lane, or none | u32 length | record
//! ```

use std::fs::File;
use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::os::unix::fs::FileExt;

use rustix::fs::{AtFlags, Mode, OFlags, openat, unlinkat};

const HEAD_LEN: usize = 12;
const NONE: u64 = u64::MAX;
const SPILL_NAME: &str = ".capstan-restore-journal";

/// A journal; see the module.
#[derive(Debug)]
pub(super) struct Journal {
    memory: Vec<u8>,
    memory_max: usize,
    file: Option<File>,
    file_len: u64,
    /// First and last record of each lane.
    lanes: Vec<(u64, u64)>,
}

impl Journal {
    /// A journal that keeps up to `memory_max` bytes in memory.
    pub(super) fn new(memory_max: usize) -> Self {
        Self { memory: Vec::new(), memory_max, file: None, file_len: 0, lanes: Vec::new() }
    }

    /// Appends a record to a lane; spills to a file in `directory` if need be.
    pub(super) fn put(&mut self, lane: usize, record: &[u8], directory: BorrowedFd<'_>) -> io::Result<()> {
        let len = u32::try_from(record.len()).map_err(|_| io::ErrorKind::FileTooLarge)?;
        let place = self.file_len + self.memory.len() as u64;
        if self.lanes.len() <= lane {
            self.lanes.resize(lane + 1, (NONE, NONE));
        }
        let (first, last) = self.lanes[lane];
        if last == NONE {
            self.lanes[lane] = (place, place);
        } else {
            self.write_at(last, &place.to_le_bytes())?;
            self.lanes[lane] = (first, place);
        }
        self.memory.extend_from_slice(&NONE.to_le_bytes());
        self.memory.extend_from_slice(&len.to_le_bytes());
        self.memory.extend_from_slice(record);
        if self.memory.len() > self.memory_max {
            self.spill(directory)?;
        }
        Ok(())
    }

    /// The next record, highest lane first.
    pub(super) fn take(&mut self) -> io::Result<Option<Vec<u8>>> {
        while self.lanes.last().is_some_and(|&(first, _)| first == NONE) {
            self.lanes.pop();
        }
        let Some(highest) = self.lanes.len().checked_sub(1) else { return Ok(None) };
        self.take_of(highest)
    }

    /// The next record of a lane.
    pub(super) fn take_of(&mut self, lane: usize) -> io::Result<Option<Vec<u8>>> {
        let Some(&(place, _)) = self.lanes.get(lane).filter(|(first, _)| *first != NONE) else { return Ok(None) };
        let mut head = [0; HEAD_LEN];
        self.read_at(place, &mut head)?;
        let (next, len) = head.split_at(8);
        let mut bytes = [0; 8];
        bytes.copy_from_slice(next);
        let next = u64::from_le_bytes(bytes);
        let mut bytes = [0; 4];
        bytes.copy_from_slice(len);
        let mut record = vec![0; u32::from_le_bytes(bytes) as usize];
        self.read_at(place + HEAD_LEN as u64, &mut record)?;
        if let Some((first, _)) = self.lanes.get_mut(lane) {
            *first = next;
        }
        Ok(Some(record))
    }

    fn spill(&mut self, directory: BorrowedFd<'_>) -> io::Result<()> {
        let file = match &self.file {
            Some(file) => file,
            None => self.file.insert(nameless(directory)?.into()),
        };
        file.write_all_at(&self.memory, self.file_len)?;
        self.file_len += self.memory.len() as u64;
        self.memory.clear();
        self.memory.shrink_to(self.memory_max);
        Ok(())
    }

    fn write_at(&mut self, place: u64, bytes: &[u8]) -> io::Result<()> {
        match (&self.file, place.checked_sub(self.file_len)) {
            (_, Some(at)) => self.memory[at as usize..at as usize + bytes.len()].copy_from_slice(bytes),
            (Some(file), None) => file.write_all_at(bytes, place)?,
            (None, None) => return Err(io::ErrorKind::NotFound.into()),
        }
        Ok(())
    }

    fn read_at(&self, place: u64, bytes: &mut [u8]) -> io::Result<()> {
        match (&self.file, place.checked_sub(self.file_len)) {
            (_, Some(at)) => bytes.copy_from_slice(&self.memory[at as usize..at as usize + bytes.len()]),
            (Some(file), None) => file.read_exact_at(bytes, place)?,
            (None, None) => return Err(io::ErrorKind::NotFound.into()),
        }
        Ok(())
    }
}

/// A file without a name in `directory`.
fn nameless(directory: BorrowedFd<'_>) -> io::Result<OwnedFd> {
    let flags = OFlags::RDWR | OFlags::CLOEXEC;
    let mode = Mode::RUSR | Mode::WUSR;
    if let Ok(file) = openat(directory, c".", flags | OFlags::TMPFILE, mode) {
        return Ok(file);
    }
    // File systems without O_TMPFILE: a name that is taken away at once.
    let name = format!("{SPILL_NAME}-{}", rustix::process::getpid().as_raw_nonzero());
    let file = openat(directory, &name, flags | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW, mode)?;
    unlinkat(directory, &name, AtFlags::empty())?;
    Ok(file)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests fail by panicking")]
    use super::*;
    use std::os::fd::AsFd;

    #[test]
    fn records_come_back_by_lane_and_in_order_whether_spilled_or_not() {
        let directory = tempfile::tempdir().unwrap();
        let fd = File::open(directory.path()).unwrap();
        for memory_max in [0, 40, 1000, 1 << 20] {
            let mut journal = Journal::new(memory_max);
            let mut expected: Vec<(usize, usize)> = Vec::new();
            for number in 0..500usize {
                let lane = number * 7919 % 13;
                journal.put(lane, format!("{lane} {number}").as_bytes(), fd.as_fd()).unwrap();
                expected.push((lane, number));
            }
            expected.sort_by_key(|&(lane, number)| (usize::MAX - lane, number));
            for (lane, number) in expected {
                assert_eq!(journal.take().unwrap().unwrap(), format!("{lane} {number}").as_bytes());
            }
            assert_eq!(journal.take().unwrap(), None);
        }
        assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 0, "the file has no name");
    }
}
