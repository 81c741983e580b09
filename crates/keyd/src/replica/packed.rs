//! Sealed records in memory, packed: what a node that is locked keeps of its replica until it can open it.
//!
//! A million records are some 300 MB, and as strings and vectors of their own a third more, in pieces that the
//! allocator never gives back once they lie between others. So they lie one behind the other in blocks of a megabyte,
//! which are given back as a whole.
//! ```text
//! block  records: length of the path (2) | path | commit (8) | length of what is sealed (4) | sealed
//! ```
//! The blocks are never changed, and whoever opens them shares them. What is committed meanwhile lies over them.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::ledger::{Change, Changes, Entry, Sealed, Snapshot};

const BLOCK_LEN: usize = 1 << 20;

/// Records of a replica up to a commit. A clone shares what is packed.
#[derive(Clone, Default)]
pub struct PackedRecords {
    blocks: Vec<Arc<Vec<u8>>>,
    filling: Vec<u8>,
    records: usize,
    /// What was committed since: a record, or that there is none any more.
    since: BTreeMap<String, Option<Entry>>,
    /// The commit up to which they are all there.
    revision: i64,
}

impl PackedRecords {
    /// Packs a record behind the others. Every path is packed once.
    pub fn push(&mut self, record: Sealed<'_>) {
        let Sealed { path, sealed, revision } = record;
        let len = 2 + path.len() + 8 + 4 + sealed.len();
        if self.filling.len() + len > self.filling.capacity() {
            self.close_block();
            self.filling.reserve_exact(len.max(BLOCK_LEN));
        }
        // Paths have 256 bytes at most, records 64 KiB.
        self.filling.extend_from_slice(&(path.len() as u16).to_le_bytes());
        self.filling.extend_from_slice(path.as_bytes());
        self.filling.extend_from_slice(&revision.to_le_bytes());
        self.filling.extend_from_slice(&(sealed.len() as u32).to_le_bytes());
        self.filling.extend_from_slice(sealed);
        self.records += 1;
    }

    /// They are all there, up to this commit.
    pub fn close(&mut self, revision: i64) {
        self.close_block();
        self.revision = revision;
    }

    fn close_block(&mut self) {
        let block = std::mem::take(&mut self.filling);
        if !block.is_empty() {
            self.blocks.push(Arc::new(block));
        }
    }

    /// A whole copy of the ledger.
    pub fn of(snapshot: &Snapshot) -> Self {
        let mut packed = Self::default();
        snapshot.entries.iter().for_each(|entry| packed.push(entry.borrowed()));
        packed.close(snapshot.revision);
        packed
    }

    /// Takes in what was committed.
    pub fn apply(&mut self, changes: &Changes) {
        for change in &changes.changes {
            match change {
                Change::Put(entry) => self.since.insert(entry.path.clone(), Some(entry.clone())),
                Change::Removed { path, .. } => self.since.insert(path.clone(), None),
            };
        }
        self.revision = changes.revision;
    }

    /// The commit up to which they are all there.
    pub fn revision(&self) -> i64 {
        self.revision
    }

    /// Whether these are the packed records of another, and perhaps something that was committed since.
    pub fn is_over(&self, other: &Self) -> bool {
        let (one, other) = (&self.blocks, &other.blocks);
        one.len() == other.len() && one.iter().zip(other).all(|(one, other)| Arc::ptr_eq(one, other))
    }

    /// What was committed since they were packed, of each path the last.
    pub fn since(&self) -> Changes {
        let revision = self.revision;
        let changes = self.since.iter().map(|(path, entry)| match entry {
            Some(entry) => Change::Put(entry.clone()),
            None => Change::Removed { path: path.clone(), revision },
        });
        Changes { revision, changes: changes.collect() }
    }

    /// How many were packed.
    pub fn len(&self) -> usize {
        self.records
    }

    /// Whether none were.
    pub fn is_empty(&self) -> bool {
        self.records == 0
    }

    /// The records, in parts that may be read side by side: each path once.
    pub fn parts(&self) -> Vec<impl Iterator<Item = Sealed<'_>> + Send> {
        let of_block = |block| Part { rest: block, over: &self.since, since: None };
        let since = Part { rest: &[], over: &self.since, since: Some(self.since.values()) };
        self.blocks.iter().map(|block| of_block(block.as_slice())).chain([since]).collect()
    }
}

/// A block without what lies over it, or what lies over the blocks.
struct Part<'a> {
    rest: &'a [u8],
    over: &'a BTreeMap<String, Option<Entry>>,
    since: Option<std::collections::btree_map::Values<'a, String, Option<Entry>>>,
}

impl<'a> Iterator for Part<'a> {
    type Item = Sealed<'a>;

    fn next(&mut self) -> Option<Sealed<'a>> {
        if let Some(since) = &mut self.since {
            return since.by_ref().flatten().next().map(Entry::borrowed);
        }
        loop {
            let (record, rest) = unpack(self.rest)?;
            self.rest = rest;
            if self.over.is_empty() || !self.over.contains_key(record.path) {
                return Some(record);
            }
        }
    }
}

/// The first record of a block, and what comes after it.
fn unpack(block: &[u8]) -> Option<(Sealed<'_>, &[u8])> {
    let (len, rest) = block.split_first_chunk()?;
    let (path, rest) = rest.split_at_checked(usize::from(u16::from_le_bytes(*len)))?;
    let (revision, rest) = rest.split_first_chunk()?;
    let (len, rest) = rest.split_first_chunk()?;
    let (sealed, rest) = rest.split_at_checked(u32::from_le_bytes(*len) as usize)?;
    let record = Sealed { path: str::from_utf8(path).ok()?, sealed, revision: i64::from_le_bytes(*revision) };
    Some((record, rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(path: &str, revision: i64) -> Entry {
        Entry { path: path.to_owned(), sealed: vec![revision as u8; 40_000], revision }
    }

    fn unpacked(packed: &PackedRecords) -> BTreeMap<String, (i64, usize)> {
        let mut found = BTreeMap::new();
        for Sealed { path, sealed, revision } in packed.parts().into_iter().flatten() {
            assert!(sealed.iter().all(|byte| *byte == revision as u8));
            assert_eq!(found.insert(path.to_owned(), (revision, sealed.len())), None, "{path} is there twice");
        }
        found
    }

    #[test]
    fn what_was_packed_comes_out_with_what_was_committed_since() {
        let entries: Vec<_> = (0..100).map(|number| entry(&format!("key/{number:03}"), number + 1)).collect();
        let mut packed = PackedRecords::of(&Snapshot { revision: 100, entries: entries.clone() });
        assert!(packed.parts().len() > 3, "that many fill several blocks");
        let mut expected: BTreeMap<_, _> =
            entries.iter().map(|entry| (entry.path.clone(), (entry.revision, entry.sealed.len()))).collect();
        assert_eq!(unpacked(&packed), expected);

        let changes = vec![
            Change::Put(entry("key/007", 101)),
            Change::Removed { path: "key/008".to_owned(), revision: 102 },
            Change::Put(entry("key/new", 103)),
            Change::Removed { path: "key/new".to_owned(), revision: 104 },
            Change::Put(entry("key/newer", 104)),
        ];
        let before = packed.clone();
        packed.apply(&Changes { revision: 105, changes });
        expected.insert("key/007".to_owned(), (101, 40_000));
        expected.remove("key/008");
        expected.insert("key/newer".to_owned(), (104, 40_000));
        assert_eq!((unpacked(&packed), packed.revision(), packed.len()), (expected, 105, 100));
        assert_eq!((unpacked(&before).len(), before.revision()), (100, 100), "a clone stays as it was");
    }
}
