//! The state that an incremental compares with, in memory: about 30 bytes a file, no paths.
//!
//! A path is remembered by a 64-bit keyed hash and its metadata by another. Two paths of one hash (one chance in a
//! thousand at two hundred million files) are both taken as changed: they are backed up again and never taken for
//! deleted.

use std::collections::HashMap;
use std::collections::hash_map::{Entry, RandomState};
use std::hash::{BuildHasher, Hasher};
use std::sync::atomic::{AtomicU64, Ordering};

use crate::{Metadata, Verdict};

#[derive(Clone, Copy)]
enum Slot {
    One { metadata: u64, row: u32 },
    Several,
}

/// The rows of a state: each is a path and its metadata.
pub struct BaselineTable {
    hasher: RandomState,
    slots: HashMap<u64, Slot>,
    seen: SeenRows,
}

/// Collects the rows of a [`BaselineTable`], in the order of the state.
#[derive(Default)]
pub struct BaselineBuilder {
    hasher: RandomState,
    slots: HashMap<u64, Slot>,
    rows: u32,
    /// Rows whose hash another one has as well.
    several: Vec<u32>,
}

/// Which rows of a state were compared: a bit each.
pub struct SeenRows(Vec<AtomicU64>);

fn hash_path(hasher: &RandomState, path: &[u8]) -> u64 {
    let mut state = hasher.build_hasher();
    state.write(path);
    state.finish()
}

fn hash_metadata(hasher: &RandomState, metadata: &Metadata) -> u64 {
    let mut state = hasher.build_hasher();
    state.write_u64(metadata.size);
    state.write_i64(metadata.mtime_ns);
    state.write_u32(metadata.change);
    state.finish()
}

impl BaselineBuilder {
    /// Adds the next path of the state.
    pub fn push(&mut self, path: &[u8], metadata: &Metadata) {
        let row = self.rows;
        self.rows = self.rows.saturating_add(1);
        let metadata = hash_metadata(&self.hasher, metadata);
        match self.slots.entry(hash_path(&self.hasher, path)) {
            Entry::Vacant(vacant) => {
                vacant.insert(Slot::One { metadata, row });
            }
            Entry::Occupied(mut occupied) => {
                if let Slot::One { row: other, .. } = occupied.insert(Slot::Several) {
                    self.several.push(other);
                }
                self.several.push(row);
            }
        }
    }

    /// Ends the collection.
    pub fn finish(self) -> BaselineTable {
        let seen = SeenRows::of(self.rows);
        self.several.iter().for_each(|row| seen.set(*row));
        BaselineTable { hasher: self.hasher, slots: self.slots, seen }
    }
}

impl BaselineTable {
    /// Compares a path and remembers that it was seen.
    pub fn compare(&self, path: &[u8], metadata: &Metadata) -> Verdict {
        match self.slots.get(&hash_path(&self.hasher, path)) {
            None => Verdict::New,
            Some(Slot::Several) => Verdict::Changed,
            Some(Slot::One { metadata: known, row }) => {
                self.seen.set(*row);
                if *known == hash_metadata(&self.hasher, metadata) { Verdict::Unchanged } else { Verdict::Changed }
            }
        }
    }

    /// The rows that were compared so far.
    pub fn seen(&self) -> &SeenRows {
        &self.seen
    }
}

impl SeenRows {
    /// None of so many.
    fn of(rows: u32) -> Self {
        Self((0..(rows as usize).div_ceil(64)).map(|_| AtomicU64::new(0)).collect())
    }

    /// As [`SeenRows::to_bytes`] gave them.
    pub(crate) fn from_bytes(bytes: &[u8]) -> Self {
        let word = |bytes: &[u8]| bytes.iter().rev().fold(0, |word, byte| (word << 8) | u64::from(*byte));
        Self(bytes.chunks(8).map(|bytes| AtomicU64::new(word(bytes))).collect())
    }

    /// Eight rows a byte, the first in the lowest bit.
    pub(crate) fn to_bytes(&self) -> Vec<u8> {
        self.0.iter().flat_map(|word| word.load(Ordering::Relaxed).to_le_bytes()).collect()
    }

    fn set(&self, row: u32) {
        self.0[row as usize / 64].fetch_or(1 << (row % 64), Ordering::Relaxed);
    }

    /// Whether a row was compared. A row that there is not was: nothing is concluded from it.
    pub fn contains(&self, row: usize) -> bool {
        self.0.get(row / 64).is_none_or(|word| word.load(Ordering::Relaxed) & (1 << (row % 64)) != 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn metadata(size: u64) -> Metadata {
        Metadata { size, mtime_ns: 5, change: 7 }
    }

    #[test]
    fn tells_new_changed_unchanged_and_missing() {
        let mut builder = BaselineBuilder::default();
        for path in [b"a", b"b", b"c"] {
            builder.push(path, &metadata(1));
        }
        let table = builder.finish();
        assert_eq!(table.compare(b"a", &metadata(1)), Verdict::Unchanged);
        assert_eq!(table.compare(b"b", &metadata(2)), Verdict::Changed);
        assert_eq!(table.compare(b"d", &metadata(1)), Verdict::New);
        let crossed = SeenRows::from_bytes(&table.seen().to_bytes());
        for seen in [table.seen(), &crossed] {
            assert_eq!([0, 1, 2, 64].map(|row| seen.contains(row)), [true, true, false, true]);
        }
    }

    #[test]
    fn two_rows_of_one_hash_are_changed_and_never_missing() {
        let mut builder = BaselineBuilder::default();
        // The same path is the same hash, whatever the key.
        for path in [b"a", b"b", b"a"] {
            builder.push(path, &metadata(1));
        }
        let table = builder.finish();
        assert_eq!(table.compare(b"a", &metadata(1)), Verdict::Changed);
        assert_eq!([0, 1, 2].map(|row| table.seen().contains(row)), [true, false, true]);
    }
}
