//! Names of one file: the first that is met is stored with its content, the others as hard links to it.
//!
//! Links are written when all content is, on the last connection, so that each target lies before its links in the
//! connections' streams laid end to end. Memory goes with the number of files that have several names within the
//! source: a file is forgotten when as many names were seen as it has links.
//!
//! A walk takes hours, and the number of a file that is gone meanwhile may be another file's by then: it is the same
//! file only if size and modification time are what they were. A file that is written to between two of its names is
//! stored under both.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::metadata::FileMetadata;

/// A further name of a file.
#[derive(Debug)]
pub(crate) struct PendingLink {
    pub(crate) path: Vec<u8>,
    pub(crate) target: Vec<u8>,
    pub(crate) metadata: FileMetadata,
}

/// What a name of a file turned out to be.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Name {
    /// The first: it carries the content.
    First,
    /// A further one, of the file that this path carries.
    Further(Vec<u8>),
}

#[derive(Debug)]
struct Seen {
    path: Vec<u8>,
    names_left: u64,
    size: u64,
    mtime_ns: i128,
}

impl Seen {
    fn first(metadata: &FileMetadata, path: &[u8]) -> Self {
        let (size, mtime_ns) = (metadata.size, metadata.exact_mtime_ns());
        Self { path: path.to_vec(), names_left: metadata.link_count.saturating_sub(1), size, mtime_ns }
    }

    fn is_same(&self, metadata: &FileMetadata) -> bool {
        (self.size, self.mtime_ns) == (metadata.size, metadata.exact_mtime_ns())
    }
}

/// Files with several names that were met, and the links to be written. Shared by all connections.
#[derive(Debug, Default)]
pub(crate) struct Links {
    seen: Mutex<HashMap<(u64, u64), Seen>>,
    pending: Mutex<Vec<PendingLink>>,
}

impl Links {
    /// Asks what a name is; of several connections that ask for one file, one gets [`Name::First`].
    pub(crate) fn meet(&self, metadata: &FileMetadata, path: &[u8]) -> Name {
        match lock(&self.seen).entry((metadata.device, metadata.inode)) {
            Entry::Vacant(vacant) => {
                vacant.insert(Seen::first(metadata, path));
                Name::First
            }
            Entry::Occupied(mut occupied) if !occupied.get().is_same(metadata) => {
                occupied.insert(Seen::first(metadata, path));
                Name::First
            }
            Entry::Occupied(mut occupied) => {
                let seen = occupied.get_mut();
                seen.names_left = seen.names_left.saturating_sub(1);
                if seen.names_left == 0 {
                    Name::Further(occupied.remove().path)
                } else {
                    Name::Further(seen.path.clone())
                }
            }
        }
    }

    /// The name that carries the content of a file, if another one than this was met.
    pub(crate) fn carrier(&self, metadata: &FileMetadata, path: &[u8]) -> Option<Vec<u8>> {
        if metadata.link_count < 2 {
            return None;
        }
        let seen = lock(&self.seen);
        let same = seen.get(&(metadata.device, metadata.inode)).filter(|seen| seen.is_same(metadata));
        same.map(|seen| &seen.path).filter(|other| *other != path).cloned()
    }

    /// Keeps a link until all content is written.
    pub(crate) fn defer(&self, link: PendingLink) {
        lock(&self.pending).push(link);
    }

    /// The links, sorted by path.
    pub(crate) fn take(&self) -> Vec<PendingLink> {
        let mut pending = std::mem::take(&mut *lock(&self.pending));
        pending.sort_unstable_by(|a, b| a.path.cmp(&b.path));
        pending
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests fail by panicking")]
    use super::*;

    /// A file was removed while a walk went on, and another got its number: that one came back with the content of the
    /// first, and as one file with it.
    #[test]
    fn a_file_with_the_number_of_one_that_is_gone_is_another_file() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let of = |len, seconds| {
            file.as_file().set_len(len).unwrap();
            let time = std::time::SystemTime::UNIX_EPOCH + std::time::Duration::from_secs(seconds);
            file.as_file().set_modified(time).unwrap();
            let mut metadata = FileMetadata::new(&rustix::fs::fstat(file.as_file()).unwrap());
            metadata.link_count = 3;
            metadata
        };
        let (first, grown, later) = (of(10, 100), of(11, 100), of(11, 101));
        let links = Links::default();
        assert_eq!(links.meet(&first, b"a"), Name::First);
        assert_eq!(links.meet(&first, b"b"), Name::Further(b"a".to_vec()));
        assert_eq!(links.carrier(&first, b"b").as_deref(), Some(&b"a"[..]));
        for (metadata, path) in [(&grown, b"c"), (&later, b"d")] {
            assert_eq!(links.carrier(metadata, path), None);
            assert_eq!(links.meet(metadata, path), Name::First);
        }
        assert_eq!(links.meet(&later, b"e"), Name::Further(b"d".to_vec()));
    }
}
