//! The record area of a virtual cartridge: records found, read, appended and cut.
//!
//! The data file alone says what a volume holds. Its end of data is behind the last whole record; what follows (a
//! record torn by a crash) is dropped by the next write, never by a load. A damaged header costs its own block: the
//! scan looks for the next header of this life, and the numbers in between are damaged blocks.

use std::fs::File;
use std::io::{self, IoSliceMut};
use std::os::unix::fs::FileExt;
use std::path::Path;

use rustix::io::{preadv, retry_on_intr};

use super::index::{EntryKind, Index, IndexEntry};
use super::memory::RECORDS_AT;
use super::read_ahead::ReadAhead;
use super::record::{NEEDLE_LEN, RECORD_HEADER_LEN, RecordHeader, RecordKind, needle};
use super::write_behind::{Lost, WriteBehind};
use crate::lock::LockedFile;

/// Bytes searched at once for the next header behind a damaged one.
const SEARCH_LEN: usize = 256 * 1024;

/// A logical block number and where its record begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Place {
    pub(super) lbn: u64,
    pub(super) offset: u64,
}

/// Beginning of tape.
pub(super) const BEGINNING: Place = Place { lbn: 0, offset: RECORDS_AT };

/// The open record area.
pub(super) struct Records {
    /// First, so that its thread has ended when the lock goes: what it still writes must not meet another drive's
    /// records.
    behind: WriteBehind,
    file: LockedFile,
    index: Index,
    life: u64,
    end: Place,
    /// End of data when it was last known to be on the medium.
    flushed: Place,
    /// Bytes stand behind the end of data that a write must cut off first.
    torn: bool,
    /// Cleared when the end of data could not be found again behind a failure: nothing is written then, lest it cut off
    /// data.
    usable: bool,
    /// What was lost of what was handed over, and was told to nobody who writes.
    untold: Option<io::Error>,
    /// The header that was read together with the record in front of it.
    next_header: Option<(u64, [u8; RECORD_HEADER_LEN])>,
    ahead: ReadAhead,
}

/// Why a record was not written.
#[derive(Debug)]
pub(super) struct WriteLost {
    pub(super) source: io::Error,
    /// Whether records that were handed over before it are lost.
    pub(super) is_earlier: bool,
}

impl From<io::Error> for WriteLost {
    fn from(source: io::Error) -> Self {
        Self { source, is_earlier: false }
    }
}

impl Records {
    /// Opens the record area and finds the end of data.
    pub(super) fn open(file: LockedFile, index_path: &Path, life: u64) -> io::Result<Self> {
        let index = Index::open(index_path, life)?;
        let behind = WriteBehind::new(RECORDS_AT);
        let (end, flushed) = (BEGINNING, BEGINNING);
        let (next_header, ahead) = (None, ReadAhead::new());
        let mut records = Self {
            behind,
            file,
            index,
            life,
            end,
            flushed,
            torn: false,
            usable: true,
            untold: None,
            next_header,
            ahead,
        };
        records.find_end()?;
        records.flushed = records.end;
        // The kernel doubles its read-ahead; a refusal costs speed only.
        let _ = rustix::fs::fadvise(&records.file, 0, None, rustix::fs::Advice::Sequential);
        Ok(records)
    }

    /// Finds the end of data, from the last block that the index knows.
    fn find_end(&mut self) -> io::Result<()> {
        let known = self.behind_last_indexed()?;
        match known {
            Some(place) => self.index.truncate(place.lbn)?,
            None => self.index.reset(self.life)?,
        }
        self.scan(known.unwrap_or(BEGINNING))
    }

    /// End of data.
    pub(super) fn end(&self) -> Place {
        self.end
    }

    pub(super) fn file(&self) -> &File {
        &self.file
    }

    /// The header of the record at `place`; the inner error says what is wrong with it.
    pub(super) fn header(&mut self, place: Place) -> io::Result<Result<RecordHeader, &'static str>> {
        self.settle_to_read()?;
        let bytes = match self.next_header {
            Some((offset, bytes)) if offset == place.offset => bytes,
            _ => match read_header(&self.file, place.offset)? {
                Some(bytes) => bytes,
                None => return Ok(Err("its record header is cut off")),
            },
        };
        Ok(RecordHeader::decode(&bytes, place.offset, self.life).and_then(|header| {
            if header.lbn != place.lbn {
                Err("another block's record stands in its place")
            } else if place.offset + header.record_len() > self.end.offset {
                Err("its record is cut off")
            } else {
                Ok(header)
            }
        }))
    }

    /// Reads the stored bytes of the record at `place`, and the header behind it.
    pub(super) fn read(&mut self, place: Place, stored: &mut [u8]) -> io::Result<()> {
        let at = place.offset + RECORD_HEADER_LEN as u64;
        let mut next = [0; RECORD_HEADER_LEN];
        self.next_header = None;
        let mut found = self.ahead.read(&self.file, at, stored);
        if found == stored.len() {
            found += self.ahead.read(&self.file, at + found as u64, &mut next);
        } else {
            found =
                retry_on_intr(|| preadv(&self.file, &mut [IoSliceMut::new(stored), IoSliceMut::new(&mut next)], at))?;
        }
        if found < stored.len() {
            self.file.read_exact_at(&mut stored[found..], at + found as u64)?;
        } else if found == stored.len() + RECORD_HEADER_LEN {
            self.next_header = Some((at + stored.len() as u64, next));
        }
        Ok(())
    }

    /// Where the block `lbn`, at most the end of data, stands.
    pub(super) fn place(&mut self, lbn: u64) -> io::Result<Place> {
        if lbn >= self.end.lbn {
            return Ok(self.end);
        }
        self.settle_to_read()?;
        if let Some(place) = self.indexed_place(lbn)? {
            return Ok(place);
        }
        self.index.reset(self.life)?;
        self.scan(BEGINNING)?;
        if lbn >= self.end.lbn {
            return Ok(self.end);
        }
        let entry =
            self.index.get(lbn)?.ok_or_else(|| io::Error::other("the index lost a block that was just found"))?;
        Ok(Place { lbn, offset: entry.offset })
    }

    /// What kind of record stands at `lbn`.
    pub(super) fn kind(&mut self, lbn: u64) -> io::Result<EntryKind> {
        if let Some(entry) = self.index.get(lbn)? {
            return Ok(entry.kind);
        }
        let place = self.place(lbn)?;
        Ok(self.header(place)?.map_or(EntryKind::Damaged, |header| header.kind.into()))
    }

    /// Drops every record from `place` on.
    pub(super) fn truncate(&mut self, place: Place) -> io::Result<()> {
        self.check_usable()?;
        self.settle()?;
        self.index.truncate(place.lbn)?;
        self.file.set_len(place.offset)?;
        self.set_end(place, false);
        Ok(())
    }

    /// Drops every record and begins another life.
    pub(super) fn begin(&mut self, life: u64) -> io::Result<()> {
        // What was to be written is dropped with the rest, and with it whatever became of it.
        self.behind.cut(RECORDS_AT);
        self.life = life;
        self.index.reset(life)?;
        self.file.set_len(RECORDS_AT)?;
        self.set_end(BEGINNING, false);
        (self.usable, self.untold) = (true, None);
        Ok(())
    }

    /// Writes a record at `place`, behind which everything is dropped, and gives the end of data behind it. A failure
    /// may be that of an earlier write, and says so; the end of data is then behind the last whole record.
    pub(super) fn write(
        &mut self,
        place: Place,
        kind: RecordKind,
        data_crc: u32,
        stored: &[u8],
    ) -> Result<Place, WriteLost> {
        if let Some(source) = self.untold.take() {
            return Err(WriteLost { source, is_earlier: true });
        }
        if place.lbn > self.end.lbn {
            let lbn = self.end.lbn;
            let source = io::Error::other(format!("a write before it failed, and data ends at block {lbn}"));
            return Err(source.into());
        }
        if place.lbn < self.end.lbn {
            self.truncate(place)?;
        }
        self.check_usable()?;
        if self.torn {
            self.file.set_len(self.end.offset)?;
            self.torn = false;
        }
        let Place { lbn, offset } = self.end;
        let stored_len = u32::try_from(stored.len()).map_err(io::Error::other)?;
        let header = RecordHeader { kind, life: self.life, lbn, stored_len, data_crc };
        let pieces = [&header.encode(offset)[..], stored];
        if let Err(lost) = pieces.into_iter().try_for_each(|bytes| self.behind.append(&self.file, bytes)) {
            let is_earlier = lost.offset < offset;
            return Err(WriteLost { source: self.fall_back(lost), is_earlier });
        }
        self.next_header = None;
        self.ahead.forget();
        self.end = Place { lbn: lbn + 1, offset: offset + header.record_len() };
        // The record counts, whatever becomes of its entry: an entry that cannot be stored now stays gathered.
        let _ = self.index.push(IndexEntry { offset, kind: kind.into() });
        Ok(self.end)
    }

    /// Puts everything on the medium.
    pub(super) fn flush(&mut self) -> io::Result<()> {
        if let Some(lost) = self.untold.take() {
            return Err(lost);
        }
        self.check_usable()?;
        self.settle()?;
        self.file.sync_data().map_err(|error| self.forget_unflushed(error))?;
        self.flushed = self.end;
        Ok(())
    }

    /// The kernel tells of a failed synchronisation once and keeps the pages as if they were written: from then on they
    /// read well and the next synchronisation succeeds, whatever the disk holds. So what was not flushed is cut off.
    fn forget_unflushed(&mut self, source: io::Error) -> io::Error {
        self.fall_back(Lost { offset: self.flushed.offset, source })
    }

    fn check_usable(&self) -> io::Result<()> {
        let reason = "its end of data was lost by a failed write: unload the cartridge and load it again";
        if self.usable { Ok(()) } else { Err(io::Error::other(reason)) }
    }

    /// Puts everything in the file before something is read. What is lost then was handed over, and whoever writes or
    /// flushes next hears of it, whatever becomes of the reading.
    fn settle_to_read(&mut self) -> io::Result<()> {
        self.settle().inspect_err(|lost| self.untold = Some(io::Error::new(lost.kind(), lost.to_string())))
    }

    /// Puts everything in the file, where it can be read.
    fn settle(&mut self) -> io::Result<()> {
        if self.behind.is_settled() {
            return Ok(());
        }
        self.behind.settle(&self.file).map_err(|lost| self.fall_back(lost))
    }

    /// Makes the last record that is whole in the file the last one. Gives what went wrong.
    fn fall_back(&mut self, lost: Lost) -> io::Error {
        // The thread may have pieces still; it is waited for, so that nothing is written behind the cut.
        self.behind.cut(lost.offset);
        // Cut, never made longer: what stands in front of the loss counts.
        let cut = self
            .file
            .metadata()
            .and_then(|metadata| if metadata.len() > lost.offset { self.file.set_len(lost.offset) } else { Ok(()) });
        self.usable = cut.and_then(|()| self.find_end()).is_ok();
        lost.source
    }

    /// Writes what the index gathered, for the next load to be short.
    pub(super) fn save_index(&mut self) -> io::Result<()> {
        self.index.flush()
    }

    fn set_end(&mut self, end: Place, torn: bool) {
        self.end = end;
        if end.lbn < self.flushed.lbn {
            self.flushed = end;
        }
        self.torn = torn;
        self.next_header = None;
        self.ahead.forget();
        self.behind.cut(end.offset);
    }

    /// The place behind one of the last blocks that the index knows and the data file confirms: the last, or not much
    /// farther back. The index is ahead of the data by as many blocks as were on their way when a run was killed, so
    /// the steps back grow.
    fn behind_last_indexed(&mut self) -> io::Result<Option<Place>> {
        let file_len = self.file.metadata()?.len();
        let len = self.index.len();
        for lbn in steps_back(len) {
            let Some(IndexEntry { offset, kind: EntryKind::Block | EntryKind::Filemark }) = self.index.get(lbn)? else {
                continue;
            };
            if let Some(header) = self.confirms_within(Place { lbn, offset }, file_len)? {
                return Ok(Some(Place { lbn: lbn + 1, offset: offset + header.record_len() }));
            }
        }
        Ok(None)
    }

    /// The header at `place` if it is whole and of that number.
    fn confirms(&self, place: Place) -> io::Result<Option<RecordHeader>> {
        let Some(bytes) = read_header(&self.file, place.offset)? else { return Ok(None) };
        let header = RecordHeader::decode(&bytes, place.offset, self.life).ok();
        Ok(header.filter(|header| header.lbn == place.lbn))
    }

    /// The place that the index gives, if the data file does not contradict it.
    fn indexed_place(&mut self, lbn: u64) -> io::Result<Option<Place>> {
        let Some(entry) = self.index.get(lbn)? else { return Ok(None) };
        let place = Place { lbn, offset: entry.offset };
        if entry.kind != EntryKind::Damaged && self.confirms(place)?.is_some() {
            return Ok(Some(place));
        }
        // Either the record is damaged or the index is wrong. It is the record if what stands in front ends just there;
        // the numbers of one damaged stretch share its offset.
        for before in (0..lbn).rev() {
            let Some(previous) = self.index.get(before)? else { return Ok(None) };
            if previous.kind == EntryKind::Damaged && previous.offset == entry.offset {
                continue;
            }
            let header = self.confirms(Place { lbn: before, offset: previous.offset })?;
            return Ok(header.filter(|header| previous.offset + header.record_len() == entry.offset).map(|_| place));
        }
        Ok((entry.offset == RECORDS_AT).then_some(place))
    }

    /// Walks the records from `from` on, gives each its index entry, and sets the end of data.
    fn scan(&mut self, from: Place) -> io::Result<()> {
        let file_len = self.file.metadata()?.len();
        let mut at = from;
        loop {
            let header = match self.confirms_within(at, file_len)? {
                Some(header) => header,
                None => {
                    let Some(next) = self.resynchronise(at, file_len)? else { break };
                    while at.lbn < next.lbn {
                        self.index.push(IndexEntry { offset: at.offset, kind: EntryKind::Damaged })?;
                        at.lbn += 1;
                    }
                    at.offset = next.offset;
                    continue;
                }
            };
            self.index.push(IndexEntry { offset: at.offset, kind: header.kind.into() })?;
            at = Place { lbn: at.lbn + 1, offset: at.offset + header.record_len() };
        }
        self.set_end(at, at.offset < file_len);
        Ok(())
    }

    fn confirms_within(&self, place: Place, file_len: u64) -> io::Result<Option<RecordHeader>> {
        Ok(self.confirms(place)?.filter(|header| place.offset + header.record_len() <= file_len))
    }

    /// The next whole record behind the damaged one at `bad`.
    fn resynchronise(&self, bad: Place, file_len: u64) -> io::Result<Option<Place>> {
        let needle = needle(self.life);
        let mut window = vec![0; SEARCH_LEN];
        let mut at = bad.offset + 1;
        while at + RECORD_HEADER_LEN as u64 <= file_len {
            let len = window.len().min((file_len - at) as usize);
            self.file.read_exact_at(&mut window[..len], at)?;
            for found in memchr::memmem::find_iter(&window[..len], &needle) {
                let offset = at + found as u64;
                let Some(bytes) = read_header(&self.file, offset)? else { continue };
                let Ok(header) = RecordHeader::decode(&bytes, offset, self.life) else { continue };
                // No more blocks can be lost than headers fit between.
                let lost_max = (offset - bad.offset) / RECORD_HEADER_LEN as u64;
                let lost = header.lbn.checked_sub(bad.lbn).filter(|lost| (1..=lost_max).contains(lost));
                if lost.is_some() && offset + header.record_len() <= file_len {
                    return Ok(Some(Place { lbn: header.lbn, offset }));
                }
            }
            // A needle may lie across the border of two windows.
            at += (len.saturating_sub(NEEDLE_LEN - 1)).max(1) as u64;
        }
        Ok(None)
    }
}

/// Block numbers below `len`, from the last on, each twice as far from the end as the one before it.
fn steps_back(len: u64) -> impl Iterator<Item = u64> {
    std::iter::successors(Some(1), |back: &u64| back.checked_mul(2)).map_while(move |back| len.checked_sub(back))
}

/// The bytes of a header, or none if the file ends before or within it.
fn read_header(file: &File, offset: u64) -> io::Result<Option<[u8; RECORD_HEADER_LEN]>> {
    let mut bytes = [0; RECORD_HEADER_LEN];
    match file.read_exact_at(&mut bytes, offset) {
        Ok(()) => Ok(Some(bytes)),
        // An offset beyond what a file can have stands only in a damaged index.
        Err(error) if matches!(error.kind(), io::ErrorKind::UnexpectedEof | io::ErrorKind::InvalidInput) => Ok(None),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests fail by panicking")]
    use std::time::Duration;

    use super::*;
    use crate::lock::{Locked, try_lock};

    fn open(path: &Path) -> Records {
        let file = File::options().read(true).write(true).create(true).truncate(false).open(path).unwrap();
        let Locked::Ours(file) = try_lock(file).unwrap() else { panic!("in use") };
        Records::open(file, &path.with_extension("index"), 1).unwrap()
    }

    fn append(records: &mut Records, len: usize) {
        records.write(records.end(), RecordKind::PlainBlock, 0, &vec![7; len]).unwrap();
    }

    /// A drive that was dropped without an unload let the cartridge go while a piece was on its way to the file: the
    /// next drive found the end of data in front of it, and the piece would have been written over what that one
    /// appended.
    #[test]
    fn nothing_is_written_once_the_lock_is_gone() {
        let dir = tempfile::tempdir_in(".").unwrap();
        for round in 0..20 {
            let path = dir.path().join(format!("{round}.tape"));
            let mut records = open(&path);
            let next = File::open(&path).unwrap();
            let waiting = std::thread::spawn(move || {
                let next = crate::lock::wait_lock(next).unwrap();
                let len = next.metadata().unwrap().len();
                std::thread::sleep(Duration::from_millis(20));
                (len, next.metadata().unwrap().len())
            });
            (0..13).for_each(|_| append(&mut records, 1 << 20));
            drop(records);
            let (found, later) = waiting.join().unwrap();
            assert_eq!(found, later, "round {round}");
        }
    }

    /// What was lost while the host asked for something else was told to that question alone, and the flush behind it
    /// succeeded.
    #[test]
    fn what_is_lost_while_something_is_read_is_told_to_whoever_writes() {
        let dir = tempfile::tempdir_in(".").unwrap();
        let mut records = open(&dir.path().join("A.tape"));
        append(&mut records, 5000);
        let lost = || Some(io::Error::new(io::ErrorKind::StorageFull, "no room"));
        records.untold = lost();
        assert_eq!(records.flush().unwrap_err().kind(), io::ErrorKind::StorageFull);
        records.flush().unwrap();
        records.untold = lost();
        let told = records.write(records.end(), RecordKind::PlainBlock, 0, &[7; 100]).unwrap_err();
        assert!(told.is_earlier && told.source.kind() == io::ErrorKind::StorageFull);
        append(&mut records, 100);
        records.untold = lost();
        records.begin(2).unwrap();
        records.flush().unwrap();
    }

    /// A synchronisation that failed is told of once; the pages stay in the cache and read well. What they hold was
    /// taken for written by whoever loaded the cartridge next.
    #[test]
    fn what_could_not_be_flushed_is_not_there_any_more() {
        let dir = tempfile::tempdir_in(".").unwrap();
        let path = dir.path().join("A.tape");
        let mut records = open(&path);
        append(&mut records, 5000);
        records.flush().unwrap();
        let flushed = records.end();
        append(&mut records, 6000);
        append(&mut records, 5 << 20);
        records.settle().unwrap();
        let told = records.forget_unflushed(io::Error::other("the disk is gone"));
        assert_eq!(told.to_string(), "the disk is gone");
        assert_eq!((records.end(), records.file().metadata().unwrap().len()), (flushed, flushed.offset));
        append(&mut records, 100);
        records.flush().unwrap();
        drop(records);
        assert_eq!(open(&path).end().lbn, 2);
    }

    #[test]
    fn what_was_flushed_ends_no_later_than_a_cut() {
        let dir = tempfile::tempdir_in(".").unwrap();
        let mut records = open(&dir.path().join("A.tape"));
        append(&mut records, 5000);
        let behind_first = records.end();
        append(&mut records, 5000);
        records.flush().unwrap();
        records.truncate(behind_first).unwrap();
        append(&mut records, 9000);
        records.forget_unflushed(io::Error::other("the disk is gone"));
        assert_eq!(records.end(), behind_first);
    }

    #[test]
    fn steps_back_grow_and_end() {
        assert_eq!(steps_back(10).collect::<Vec<_>>(), [9, 8, 6, 2]);
        assert_eq!(steps_back(0).count(), 0);
        assert_eq!(steps_back(u64::MAX).count(), 64);
    }
}
