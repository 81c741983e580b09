//! The state that an incremental compares with, in memory: about 30 bytes a file, no paths.
//!
//! A path is remembered by a 64-bit keyed hash and its metadata by another. Two paths of one hash (one chance in a
//! thousand at two hundred million files) are both taken as changed: they are backed up again and never taken for
//! deleted.

use std::collections::HashMap;
use std::collections::hash_map::{Entry, RandomState};
use std::hash::{BuildHasher, Hasher};
use std::sync::atomic::{AtomicU64, Ordering};

use capstan_mover::{Baseline, Metadata, Verdict};

/// Calls a function with each path of the state, in the same order each time.
type Paths = Box<dyn Fn(&mut dyn FnMut(&[u8])) + Sync + Send>;

#[derive(Clone, Copy)]
enum Slot {
    One { metadata: u64, row: u32 },
    Several,
}

/// A baseline built from a catalog's state.
pub(crate) struct StateBaseline {
    hasher: RandomState,
    slots: HashMap<u64, Slot>,
    seen: Vec<AtomicU64>,
    paths: Paths,
}

/// Collects rows for a [`StateBaseline`].
pub(crate) struct BaselineBuilder {
    hasher: RandomState,
    slots: HashMap<u64, Slot>,
    rows: u32,
}

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
    pub(crate) fn new() -> Self {
        Self { hasher: RandomState::new(), slots: HashMap::new(), rows: 0 }
    }

    /// Adds a path of the state.
    pub(crate) fn push(&mut self, path: &[u8], metadata: &Metadata) {
        let row = self.rows;
        self.rows = self.rows.saturating_add(1);
        let metadata = hash_metadata(&self.hasher, metadata);
        match self.slots.entry(hash_path(&self.hasher, path)) {
            Entry::Vacant(vacant) => {
                vacant.insert(Slot::One { metadata, row });
            }
            Entry::Occupied(mut occupied) => {
                occupied.insert(Slot::Several);
            }
        }
    }

    /// Ends the collection; `paths` gives the paths again, for those that will be missing.
    pub(crate) fn finish(self, paths: Paths) -> StateBaseline {
        let words = (self.rows as usize).div_ceil(64);
        let seen = (0..words).map(|_| AtomicU64::new(0)).collect();
        StateBaseline { hasher: self.hasher, slots: self.slots, seen, paths }
    }
}

impl Baseline for StateBaseline {
    fn compare(&self, path: &[u8], metadata: &Metadata) -> Verdict {
        match self.slots.get(&hash_path(&self.hasher, path)) {
            None => Verdict::New,
            Some(Slot::Several) => Verdict::Changed,
            Some(Slot::One { metadata: known, row }) => {
                self.seen[*row as usize / 64].fetch_or(1 << (row % 64), Ordering::Relaxed);
                if *known == hash_metadata(&self.hasher, metadata) { Verdict::Unchanged } else { Verdict::Changed }
            }
        }
    }

    fn for_each_missing(&self, found: &mut dyn FnMut(&[u8])) {
        (self.paths)(&mut |path| {
            if let Some(Slot::One { row, .. }) = self.slots.get(&hash_path(&self.hasher, path)) {
                let word = self.seen[*row as usize / 64].load(Ordering::Relaxed);
                if word & (1 << (row % 64)) == 0 {
                    found(path);
                }
            }
        });
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
        let paths: [&[u8]; 3] = [b"a", b"b", b"c"];
        let mut builder = BaselineBuilder::new();
        for path in paths {
            builder.push(path, &metadata(1));
        }
        let baseline = builder.finish(Box::new(move |found| paths.iter().for_each(|path| found(path))));
        assert_eq!(baseline.compare(b"a", &metadata(1)), Verdict::Unchanged);
        assert_eq!(baseline.compare(b"b", &metadata(2)), Verdict::Changed);
        assert_eq!(baseline.compare(b"d", &metadata(1)), Verdict::New);
        let mut missing = Vec::new();
        baseline.for_each_missing(&mut |path| missing.push(path.to_vec()));
        assert_eq!(missing, [b"c"]);
    }
}
