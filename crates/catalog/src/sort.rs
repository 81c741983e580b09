//! Sorting the entries of an object that may be larger than memory.
//!
//! Entries come in the order they were backed up, in runs from several connections, volumes and copies. They are sorted
//! a batch at a time; batches beyond the first go to unlinked files and everything is merged at the end. Memory is one
//! batch and, for each batch on disk, one frame.

use std::cmp::Ordering;
use std::collections::binary_heap::PeekMut;
use std::collections::{BinaryHeap, VecDeque};
use std::fs::File;
use std::io::{BufRead, BufReader, BufWriter, Read, Seek, Write};
use std::path::{Path, PathBuf};

use capstan_format::{EntryDecoder, EntryEncoder, FileEntry};

use crate::CatalogError;
use crate::order::Keyed;
use crate::scratch::scratch_file;

/// Entries of a batch: about 200 bytes each, so 50 MiB.
const BATCH_ENTRIES: usize = 256 * 1024;
/// Bytes of paths and links in a batch, should they be very long.
const BATCH_TEXT_MAX: usize = 64 << 20;
/// Entries of a frame on disk, about 60 bytes each.
const FRAME_ENTRIES: u64 = 4096;
/// How hard frames are compressed: they are read once.
const FRAME_LEVEL: i32 = 1;

/// Takes entries in any order.
pub(crate) struct Sorter {
    scratch: PathBuf,
    batch_entries: usize,
    batch: Vec<Keyed>,
    batch_bytes: usize,
    spilled: Vec<Spill>,
}

impl Sorter {
    /// A sorter that puts what does not fit in memory into unlinked files in `scratch`.
    pub(crate) fn new(scratch: &Path) -> Self {
        Self::with_batch(scratch, BATCH_ENTRIES)
    }

    fn with_batch(scratch: &Path, batch_entries: usize) -> Self {
        Self { scratch: scratch.to_owned(), batch_entries, batch: Vec::new(), batch_bytes: 0, spilled: Vec::new() }
    }

    /// Takes an entry.
    pub(crate) fn push(&mut self, entry: FileEntry) -> Result<(), CatalogError> {
        let bytes = entry.path.len() + entry.link.len();
        if self.batch.len() == self.batch_entries || self.batch_bytes + bytes > BATCH_TEXT_MAX {
            self.spill()?;
        }
        self.batch_bytes += bytes;
        self.batch.push(Keyed::new(entry));
        Ok(())
    }

    /// All entries in order, and of those with the same path the one that counts.
    ///
    /// `sorted` is one more sorted source: the file that further entries are merged into.
    pub(crate) fn finish<'s>(mut self, sorted: Option<EntrySource<'s>>) -> Result<Sorted<'s>, CatalogError> {
        self.batch.sort();
        let mut sources: Vec<EntrySource<'s>> = Vec::with_capacity(self.spilled.len() + 2);
        sources.extend(sorted);
        sources.extend(self.spilled.into_iter().map(|spill| Box::new(spill) as EntrySource<'s>));
        sources.push(Box::new(self.batch.into_iter().map(|keyed| Ok(keyed.entry))));
        let mut heads = BinaryHeap::with_capacity(sources.len());
        for (source, entries) in sources.iter_mut().enumerate() {
            if let Some(entry) = entries.next().transpose()? {
                heads.push(Head { keyed: Keyed::new(entry), source });
            }
        }
        Ok(Sorted { sources, heads, path: None })
    }

    fn spill(&mut self) -> Result<(), CatalogError> {
        self.batch.sort();
        self.batch_bytes = 0;
        let file = scratch_file(&self.scratch)?;
        let failed = |source| CatalogError::io("write a scratch file in", &self.scratch, source);
        let mut out = BufWriter::new(file);
        let mut encoder = EntryEncoder::new();
        let mut entries = self.batch.drain(..).peekable();
        while let Some(entry) = entries.next() {
            encoder.push(&entry.entry);
            if encoder.count() == FRAME_ENTRIES || entries.peek().is_none() {
                let frame = std::mem::take(&mut encoder).finish();
                let stored = zstd::bulk::compress(&frame, FRAME_LEVEL).map_err(failed)?;
                for len in [frame.len(), stored.len()] {
                    out.write_all(&(len as u64).to_le_bytes()).map_err(failed)?;
                }
                out.write_all(&stored).map_err(failed)?;
            }
        }
        drop(entries);
        let mut file = out.into_inner().map_err(|error| failed(error.into_error()))?;
        file.rewind().map_err(failed)?;
        let scratch = self.scratch.clone();
        self.spilled.push(Spill { scratch, file: BufReader::new(file), frame: VecDeque::new() });
        Ok(())
    }
}

/// Entries in order.
pub(crate) type EntrySource<'s> = Box<dyn Iterator<Item = Result<FileEntry, CatalogError>> + 's>;

/// What a [`Sorter`] was fed, merged.
pub(crate) struct Sorted<'s> {
    sources: Vec<EntrySource<'s>>,
    heads: BinaryHeap<Head>,
    path: Option<Vec<u8>>,
}

impl Sorted<'_> {
    fn entry(&mut self) -> Result<Option<FileEntry>, CatalogError> {
        while let Some(mut head) = self.heads.peek_mut() {
            let following = self.sources[head.source].next().transpose()?;
            let entry = match following {
                Some(following) => std::mem::replace(&mut head.keyed, Keyed::new(following)).entry,
                None => PeekMut::pop(head).keyed.entry,
            };
            if self.path.as_ref() != Some(&entry.path) {
                self.path.get_or_insert_default().clone_from(&entry.path);
                return Ok(Some(entry));
            }
        }
        Ok(None)
    }
}

impl Iterator for Sorted<'_> {
    type Item = Result<FileEntry, CatalogError>;

    fn next(&mut self) -> Option<Self::Item> {
        self.entry().transpose()
    }
}

/// The next entry of a source. The first in order is the greatest, as the heap wants it.
struct Head {
    keyed: Keyed,
    source: usize,
}

impl Ord for Head {
    fn cmp(&self, other: &Self) -> Ordering {
        other.keyed.cmp(&self.keyed)
    }
}

impl PartialOrd for Head {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Head {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for Head {}

/// A sorted batch on disk: frames of `raw length (8) | stored length (8) | zstd of packed entries`.
struct Spill {
    scratch: PathBuf,
    file: BufReader<File>,
    frame: VecDeque<FileEntry>,
}

impl Spill {
    fn next_frame(&mut self) -> Result<(), CatalogError> {
        let failed = |source| CatalogError::io("read a scratch file in", &self.scratch, source);
        if self.file.fill_buf().map_err(failed)?.is_empty() {
            return Ok(());
        }
        let mut lens = [0; 16];
        self.file.read_exact(&mut lens).map_err(failed)?;
        let len = |at: usize| u64::from_le_bytes(std::array::from_fn(|byte| lens[at + byte])) as usize;
        let mut stored = vec![0; len(8)];
        self.file.read_exact(&mut stored).map_err(failed)?;
        let frame = zstd::bulk::decompress(&stored, len(0)).map_err(failed)?;
        for entry in EntryDecoder::new(&frame) {
            self.frame.push_back(entry.map_err(|error| failed(std::io::Error::other(error)))?);
        }
        Ok(())
    }
}

impl Iterator for Spill {
    type Item = Result<FileEntry, CatalogError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.frame.is_empty()
            && let Err(error) = self.next_frame()
        {
            return Some(Err(error));
        }
        self.frame.pop_front().map(Ok)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

    use std::collections::BTreeMap;

    use super::*;
    use crate::order::split;
    use crate::random::Random;

    #[test]
    fn batches_on_disk_merge_to_what_a_map_would_hold() {
        let mut random = Random::seeded("batches_on_disk_merge_to_what_a_map_would_hold");
        let dir = tempfile::tempdir().unwrap();
        for _ in 0..40 {
            let mut model: BTreeMap<(Vec<u8>, Vec<u8>), FileEntry> = BTreeMap::new();
            let mut sorter = Sorter::with_batch(dir.path(), 1 + random.below(20) as usize);
            let mut entries: Vec<FileEntry> = Vec::new();
            for offset in 0..random.below(200) {
                let connection = random.below(3) as u16;
                entries.push(random.entry(connection, offset));
            }
            for entry in &entries {
                let (dir, name) = split(&entry.path);
                let best = model.entry((dir.to_vec(), name.to_vec())).or_insert_with(|| entry.clone());
                if (entry.connection, entry.offset) > (best.connection, best.offset) {
                    *best = entry.clone();
                }
            }
            // The same entries again, as a twin brings them, and all of it in any order.
            entries.extend(entries.clone());
            random.shuffle(&mut entries);
            entries.into_iter().for_each(|entry| sorter.push(entry).unwrap());
            let sorted: Vec<FileEntry> = sorter.finish(None).unwrap().map(Result::unwrap).collect();
            assert_eq!(sorted, model.into_values().collect::<Vec<_>>());
        }
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0, "scratch files have no names");
    }
}
