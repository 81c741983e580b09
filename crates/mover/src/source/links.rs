//! Names of one file: the first that is met is stored with its content, the others as hard links to it.
//!
//! Links are written when all content is, on the last connection, so that each target lies before its links in the
//! connections' streams laid end to end. Memory goes with the number of files that have several names within the
//! source: a file is forgotten when as many names were seen as it has links.

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
                vacant.insert(Seen { path: path.to_vec(), names_left: metadata.link_count.saturating_sub(1) });
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
        seen.get(&(metadata.device, metadata.inode)).map(|seen| &seen.path).filter(|other| *other != path).cloned()
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
