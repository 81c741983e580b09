//! The index beside a data file: where each logical block stands, so that a LOCATE is one read of 16 bytes.
//!
//! ```text
//! header                                         entry of block n, at 32 + 16 n
//!  0  8  magic "CPSTNIDX"                         0  8  file offset of the record
//!  8  4  version: 1                               8  1  kind: 1 block, 2 filemark, 3 damaged
//! 12  4  zero                                     9  3  zero
//! 16  8  life of the volume                      12  4  CRC32C of life (8), block number (8) and bytes 0 to 11
//! 24  4  zero
//! 28  4  CRC32C of bytes 0 to 27
//! ```
//! It is a cache and never the truth: what it says is checked against the record header it points to, and an index that
//! is missing, short, of another life or corrupt is made again from the data file. For a damaged stretch of the data
//! file the offset is where the stretch begins.
//!
//! Entries are gathered and written a page at a time; a crash loses the last page, which the next load finds again. A
//! cut is synchronised at once, before the data file is cut, so that no power failure can leave entries of records that
//! were since overwritten.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;

use capstan_format::crc32c;

use super::record::{RecordKind, u32_at, u64_at};

const MAGIC: [u8; 8] = *b"CPSTNIDX";
const VERSION: u32 = 1;
const HEADER_LEN: usize = 32;
const ENTRY_LEN: usize = 16;
/// Entries read and written together: 4 KiB.
const PAGE_ENTRIES: u64 = 256;

/// What stands at a logical block number, as far as the index knows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum EntryKind {
    Block,
    Filemark,
    Damaged,
}

impl From<RecordKind> for EntryKind {
    fn from(kind: RecordKind) -> Self {
        match kind {
            RecordKind::PlainBlock | RecordKind::EncryptedBlock { .. } => Self::Block,
            RecordKind::Filemark => Self::Filemark,
        }
    }
}

/// One entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct IndexEntry {
    pub(super) offset: u64,
    pub(super) kind: EntryKind,
}

/// The open index of a loaded cartridge.
pub(super) struct Index {
    file: File,
    life: u64,
    /// Entries in the file.
    stored: u64,
    /// Encoded entries that follow them.
    tail: Vec<u8>,
    /// Number of the first entry and the bytes of the page read last.
    page: Option<(u64, Vec<u8>)>,
}

impl Index {
    /// Opens the index of a volume in its life `life`; one of another life is emptied. Where the file cannot be
    /// written, the index goes on in memory.
    pub(super) fn open(path: &Path, life: u64) -> io::Result<Self> {
        let file = OpenOptions::new().read(true).write(true).create(true).truncate(false).open(path);
        let file = file.or_else(|_| File::open(path)).or_else(|_| in_memory())?;
        let mut index = Self { file, life, stored: 0, tail: Vec::new(), page: None };
        let mut header = [0; HEADER_LEN];
        match index.file.read_exact_at(&mut header, 0) {
            Ok(()) if header == index.header() => {
                index.stored = (index.file.metadata()?.len() - HEADER_LEN as u64) / ENTRY_LEN as u64;
            }
            _ => index.reset(life)?,
        }
        Ok(index)
    }

    /// Number of entries.
    pub(super) fn len(&self) -> u64 {
        self.stored + (self.tail.len() / ENTRY_LEN) as u64
    }

    /// The entry of `lbn`; none if it is missing or damaged.
    pub(super) fn get(&mut self, lbn: u64) -> io::Result<Option<IndexEntry>> {
        if lbn >= self.len() {
            return Ok(None);
        }
        if lbn >= self.stored {
            let at = (lbn - self.stored) as usize * ENTRY_LEN;
            return Ok(decode_entry(&self.tail[at..at + ENTRY_LEN], self.life, lbn));
        }
        let first = lbn - lbn % PAGE_ENTRIES;
        if self.page.as_ref().is_none_or(|(page, _)| *page != first) {
            let entries = PAGE_ENTRIES.min(self.stored - first) as usize;
            let mut bytes = self.page.take().map(|(_, bytes)| bytes).unwrap_or_default();
            bytes.resize(entries * ENTRY_LEN, 0);
            self.file.read_exact_at(&mut bytes, entry_at(first))?;
            self.page = Some((first, bytes));
        }
        let at = (lbn - first) as usize * ENTRY_LEN;
        Ok(self.page.as_ref().and_then(|(_, bytes)| decode_entry(&bytes[at..at + ENTRY_LEN], self.life, lbn)))
    }

    /// Adds the entry of the next logical block.
    pub(super) fn push(&mut self, entry: IndexEntry) -> io::Result<()> {
        let bytes = encode_entry(entry, self.life, self.len());
        self.tail.extend_from_slice(&bytes);
        if self.tail.len() >= PAGE_ENTRIES as usize * ENTRY_LEN { self.flush() } else { Ok(()) }
    }

    /// Writes gathered entries to the file. If that fails, the index goes on in memory.
    pub(super) fn flush(&mut self) -> io::Result<()> {
        if self.tail.is_empty() {
            return Ok(());
        }
        if self.file.write_all_at(&self.tail, entry_at(self.stored)).is_err() {
            self.move_to_memory()?;
            self.file.write_all_at(&self.tail, entry_at(self.stored))?;
        }
        self.stored = self.len();
        self.tail.clear();
        self.page = None;
        Ok(())
    }

    /// Drops the entries from `lbn` on, for good.
    pub(super) fn truncate(&mut self, lbn: u64) -> io::Result<()> {
        if lbn >= self.len() {
            return Ok(());
        }
        self.page = None;
        if lbn >= self.stored {
            self.tail.truncate((lbn - self.stored) as usize * ENTRY_LEN);
            return Ok(());
        }
        self.tail.clear();
        self.stored = lbn;
        match self.file.set_len(entry_at(lbn)).and_then(|()| self.file.sync_data()) {
            Ok(()) => Ok(()),
            Err(_) => self.move_to_memory(),
        }
    }

    /// Empties the index and begins it for a life of the volume.
    pub(super) fn reset(&mut self, life: u64) -> io::Result<()> {
        self.life = life;
        self.stored = 0;
        self.tail.clear();
        self.page = None;
        if self.begin().is_err() {
            self.file = in_memory()?;
            self.begin()?;
        }
        Ok(())
    }

    fn begin(&self) -> io::Result<()> {
        self.file.set_len(0)?;
        self.file.write_all_at(&self.header(), 0)
    }

    fn header(&self) -> [u8; HEADER_LEN] {
        let mut bytes = [0; HEADER_LEN];
        bytes[0..8].copy_from_slice(&MAGIC);
        bytes[8..12].copy_from_slice(&VERSION.to_le_bytes());
        bytes[16..24].copy_from_slice(&self.life.to_le_bytes());
        let crc = crc32c(&bytes[..HEADER_LEN - 4]);
        bytes[HEADER_LEN - 4..].copy_from_slice(&crc.to_le_bytes());
        bytes
    }

    /// A full disk must not stop a cartridge whose data still fits elsewhere, nor one that is only read.
    fn move_to_memory(&mut self) -> io::Result<()> {
        let memory = in_memory()?;
        let mut copied = vec![0; PAGE_ENTRIES as usize * ENTRY_LEN];
        let end = entry_at(self.stored);
        let mut at = 0;
        while at < end {
            let len = copied.len().min((end - at) as usize);
            self.file.read_exact_at(&mut copied[..len], at)?;
            memory.write_all_at(&copied[..len], at)?;
            at += len as u64;
        }
        self.file = memory;
        Ok(())
    }
}

fn in_memory() -> io::Result<File> {
    Ok(File::from(rustix::fs::memfd_create("cartridge-index", rustix::fs::MemfdFlags::CLOEXEC)?))
}

fn entry_at(lbn: u64) -> u64 {
    HEADER_LEN as u64 + lbn * ENTRY_LEN as u64
}

fn encode_entry(entry: IndexEntry, life: u64, lbn: u64) -> [u8; ENTRY_LEN] {
    let mut bytes = [0; ENTRY_LEN];
    bytes[0..8].copy_from_slice(&entry.offset.to_le_bytes());
    bytes[8] = match entry.kind {
        EntryKind::Block => 1,
        EntryKind::Filemark => 2,
        EntryKind::Damaged => 3,
    };
    let crc = entry_crc(&bytes, life, lbn);
    bytes[12..16].copy_from_slice(&crc.to_le_bytes());
    bytes
}

fn decode_entry(bytes: &[u8], life: u64, lbn: u64) -> Option<IndexEntry> {
    if u32_at(bytes, 12) != entry_crc(bytes, life, lbn) {
        return None;
    }
    let kind = match bytes[8] {
        1 => EntryKind::Block,
        2 => EntryKind::Filemark,
        3 => EntryKind::Damaged,
        _ => return None,
    };
    Some(IndexEntry { offset: u64_at(bytes, 0), kind })
}

fn entry_crc(bytes: &[u8], life: u64, lbn: u64) -> u32 {
    let mut checked = [0; 28];
    checked[0..8].copy_from_slice(&life.to_le_bytes());
    checked[8..16].copy_from_slice(&lbn.to_le_bytes());
    checked[16..28].copy_from_slice(&bytes[..12]);
    crc32c(&checked)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests fail by panicking")]
    use super::*;

    fn entry(lbn: u64) -> IndexEntry {
        IndexEntry {
            offset: 4096 + lbn * 100,
            kind: if lbn % 10 == 9 { EntryKind::Filemark } else { EntryKind::Block },
        }
    }

    #[test]
    fn entries_survive_flush_reopen_and_truncation() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.index");
        let mut index = Index::open(&path, 1).unwrap();
        for lbn in 0..1000 {
            index.push(entry(lbn)).unwrap();
        }
        for lbn in [0, 255, 256, 767, 768, 999] {
            assert_eq!(index.get(lbn).unwrap(), Some(entry(lbn)), "before the flush, block {lbn}");
        }
        assert_eq!(index.get(1000).unwrap(), None);
        index.flush().unwrap();
        drop(index);

        let mut index = Index::open(&path, 1).unwrap();
        assert_eq!(index.len(), 1000);
        index.truncate(300).unwrap();
        assert_eq!(index.get(300).unwrap(), None);
        index.push(IndexEntry { offset: 1, kind: EntryKind::Damaged }).unwrap();
        assert_eq!(index.get(299).unwrap(), Some(entry(299)));
        assert_eq!(index.get(300).unwrap(), Some(IndexEntry { offset: 1, kind: EntryKind::Damaged }));
    }

    #[test]
    fn another_life_empties_it() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.index");
        let mut index = Index::open(&path, 1).unwrap();
        index.push(entry(0)).unwrap();
        index.flush().unwrap();
        drop(index);
        assert_eq!(Index::open(&path, 2).unwrap().len(), 0);
    }

    #[test]
    fn each_flipped_bit_of_an_entry_is_refused() {
        let bytes = encode_entry(entry(5), 1, 5);
        assert_eq!(decode_entry(&bytes, 1, 5), Some(entry(5)));
        assert_eq!(decode_entry(&bytes, 1, 6), None);
        for bit in 0..ENTRY_LEN * 8 {
            let mut flipped = bytes;
            flipped[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(decode_entry(&flipped, 1, 5), None, "bit {bit}");
        }
    }
}
