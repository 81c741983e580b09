//! The state of a source at a point in time: an incremental merged with the objects that it stands on.
//!
//! Of each path the latest entry counts. Where that says that the path could not be read, the last version that was
//! read is given instead, and says so: the file was there, and an older version of it is better than none. One that
//! vanished is gone.

use std::cmp::Ordering;

use capstan_format::{EntryFlags, EntryKind, FileEntry, ObjectId};

use crate::CatalogError;
use crate::catalog::Catalog;
use crate::index::{Entries, Index, PathParts, PathPredicate, StopSearch};
use crate::object::{ObjectStatus, find};
use crate::order::compare_paths;

/// Longest chain of incrementals that is followed.
const CHAIN_LEN_MAX: usize = 4096;

/// The merged view of an object and its bases: of each path the latest entry that was read, and none where the latest
/// says deleted.
#[derive(Clone)]
pub struct MergedState {
    /// The latest object first.
    chain: Vec<Index>,
}

/// An entry of a state, and the object that holds it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StateEntry {
    /// The object whose payload holds the member.
    pub object: ObjectId,
    /// The entry.
    pub entry: FileEntry,
    /// The latest object, in which the path could not be read; this is the last version that was. `None` for what is up
    /// to date.
    pub unread: Option<ObjectId>,
}

/// Looks for the last version of a path that was read, from the latest object back.
enum Search {
    /// Nothing was found yet; the latest object that could not read the path, and of which kind it took it to be.
    Going { unread: Option<(ObjectId, FileEntry)> },
    /// What counts; `None` for a path that is not there.
    Done(Option<StateEntry>),
}

impl Search {
    /// Takes an entry of the path from the next older object.
    fn take(self, object: ObjectId, entry: FileEntry) -> Self {
        let Self::Going { unread } = self else { return self };
        let Some((latest, lost)) = unread else {
            return match entry {
                entry if entry.kind == EntryKind::Deleted => Self::Done(None),
                entry if is_unread(&entry) => Self::Going { unread: Some((object, entry)) },
                entry => Self::Done(Some(StateEntry { object, entry, unread: None })),
            };
        };
        let is_directory = |entry: &FileEntry| entry.kind == EntryKind::Directory;
        if entry.kind == EntryKind::Deleted || is_directory(&entry) != is_directory(&lost) {
            // What was there before is something else.
            return Self::Done(Some(StateEntry { object: latest, entry: lost, unread: None }));
        }
        if is_unread(&entry) {
            return Self::Going { unread: Some((latest, lost)) };
        }
        Self::Done(Some(StateEntry { object, entry, unread: Some(latest) }))
    }

    fn end(self) -> Option<StateEntry> {
        match self {
            Self::Done(found) => found,
            Self::Going { unread } => unread.map(|(object, entry)| StateEntry { object, entry, unread: None }),
        }
    }
}

/// Whether an entry says that its path was there and that nothing of it could be read.
fn is_unread(entry: &FileEntry) -> bool {
    entry.flags.0 & EntryFlags::UNREADABLE.0 != 0 && entry.member_len == 0
}

impl Catalog {
    /// An object and those that it stands on, the latest first; each must be there and not expired, and each base
    /// complete.
    ///
    /// # Errors
    /// [`CatalogError::UnknownObject`] and [`CatalogError::Expired`] if there is no such living object;
    /// [`CatalogError::ChainBroken`] if a base is missing, or cannot be used; else the database cannot be read.
    pub fn chain(&self, object: ObjectId) -> Result<Vec<ObjectId>, CatalogError> {
        let (chain, broken) = self.chain_as_far(object)?;
        broken.map_or(Ok(chain), Err)
    }

    /// An object and its bases as far as they can be used, and why the next one cannot.
    ///
    /// # Errors
    /// As [`Catalog::chain`], where not even the object itself can be used.
    pub fn chain_as_far(&self, object: ObjectId) -> Result<(Vec<ObjectId>, Option<CatalogError>), CatalogError> {
        let mut record = find(&self.db, object)?.ok_or(CatalogError::UnknownObject(object))?;
        if record.status == ObjectStatus::Expired {
            return Err(CatalogError::Expired(object));
        }
        let mut chain = vec![object];
        while let Some(base) = record.base {
            let broken = |reason| Some(CatalogError::ChainBroken { object: record.id, base, reason });
            if chain.contains(&base) || chain.len() == CHAIN_LEN_MAX {
                return Ok((chain, broken("leads back to itself")));
            }
            record = match find(&self.db, base)? {
                None => return Ok((chain, broken("is not in the catalog"))),
                Some(found) => match found.status {
                    ObjectStatus::Complete => found,
                    ObjectStatus::Open => return Ok((chain, broken("was never completed"))),
                    ObjectStatus::Expired => return Ok((chain, broken("has expired"))),
                },
            };
            chain.push(base);
        }
        Ok((chain, None))
    }

    /// The state that an object and its bases describe.
    ///
    /// # Errors
    /// Those of [`Catalog::chain`], and those of [`Catalog::index`] for an object of the chain.
    pub fn state(&self, object: ObjectId) -> Result<MergedState, CatalogError> {
        let (state, broken) = self.state_as_far(object)?;
        broken.map_or(Ok(state), Err)
    }

    /// The state that an object and its bases describe, as far as these can be used, and why the next one cannot: what
    /// stands in it alone is not there.
    ///
    /// # Errors
    /// As [`Catalog::state`], but for a base that cannot be used.
    pub fn state_as_far(&self, object: ObjectId) -> Result<(MergedState, Option<CatalogError>), CatalogError> {
        let (chain, broken) = self.chain_as_far(object)?;
        let chain = chain.into_iter().map(|object| self.index(object)).collect::<Result<_, _>>()?;
        Ok((MergedState { chain }, broken))
    }
}

impl MergedState {
    /// The indexes that are merged, the latest first.
    pub fn chain(&self) -> &[Index] {
        &self.chain
    }

    /// The entry of a path.
    ///
    /// # Errors
    /// An index file cannot be read, or is damaged.
    pub fn get(&self, path: &[u8]) -> Result<Option<StateEntry>, CatalogError> {
        let mut search = Search::Going { unread: None };
        for index in &self.chain {
            if let Some(entry) = index.get(path)? {
                search = search.take(index.object(), entry);
            }
            if let Search::Done(found) = search {
                return Ok(found);
            }
        }
        Ok(search.end())
    }

    /// The entry of a path, and no other.
    pub fn path(&self, path: &[u8]) -> StateEntries<'static> {
        StateEntries::new(self.chain.iter().map(|index| (index.object(), index.path(path))))
    }

    /// What stands directly in a directory; in the empty directory stands what has no slash in its path.
    pub fn children(&self, dir: &[u8]) -> StateEntries<'static> {
        StateEntries::new(self.chain.iter().map(|index| (index.object(), index.children(dir))))
    }

    /// A path and all below it; everything for `.` and for the empty path.
    pub fn subtree(&self, path: &[u8]) -> StateEntries<'static> {
        StateEntries::new(self.chain.iter().map(|index| (index.object(), index.subtree(path))))
    }

    /// Every entry.
    pub fn iter(&self) -> StateEntries<'static> {
        StateEntries::new(self.chain.iter().map(|index| (index.object(), index.iter())))
    }

    /// The entries whose whole path is wanted.
    pub fn find<'f>(&self, wanted: &'f PathPredicate<'f>) -> StateEntries<'f> {
        StateEntries::new(self.chain.iter().map(|index| (index.object(), index.find(wanted))))
    }

    /// The same, where each path that is wanted is known to have these parts, until it is to stop: see
    /// [`Index::find_with`].
    pub fn find_with<'f>(
        &self,
        wanted: &'f PathPredicate<'f>,
        parts: &'f PathParts,
        stop: &'f StopSearch<'f>,
    ) -> StateEntries<'f> {
        StateEntries::new(self.chain.iter().map(|index| (index.object(), index.find_with(wanted, parts, stop))))
    }
}

/// Entries of a state, in the order of an index; ends at the first error.
pub struct StateEntries<'f> {
    /// The latest object first; each with its next entry, once it was asked for.
    sources: Vec<Source<'f>>,
    failed: bool,
}

struct Source<'f> {
    object: ObjectId,
    entries: Entries<'f>,
    head: Option<FileEntry>,
    begun: bool,
}

impl<'f> StateEntries<'f> {
    fn new(sources: impl Iterator<Item = (ObjectId, Entries<'f>)>) -> Self {
        let source = |(object, entries)| Source { object, entries, head: None, begun: false };
        Self { sources: sources.map(source).collect(), failed: false }
    }

    /// Those that stand behind a path in the order of an index, of entries that were not read yet.
    #[must_use]
    pub fn behind(mut self, path: &[u8]) -> Self {
        let cut = |source: Source<'f>| Source { entries: source.entries.behind(path), ..source };
        self.sources = self.sources.into_iter().map(cut).collect();
        self
    }

    fn entry(&mut self) -> Result<Option<StateEntry>, CatalogError> {
        loop {
            let mut first: Option<usize> = None;
            let mut same = Vec::new();
            for at in 0..self.sources.len() {
                let source = &mut self.sources[at];
                if !source.begun {
                    source.begun = true;
                    source.head = source.entries.next().transpose()?;
                }
                let Some(head) = &self.sources[at].head else { continue };
                let against = first.and_then(|first| self.sources[first].head.as_ref());
                match against.map_or(Ordering::Less, |against| compare_paths(&head.path, &against.path)) {
                    Ordering::Less => {
                        first = Some(at);
                        same.clear();
                    }
                    Ordering::Equal => same.push(at),
                    Ordering::Greater => {}
                }
            }
            let Some(first) = first else { return Ok(None) };
            let mut search = Search::Going { unread: None };
            for at in [first].into_iter().chain(same) {
                let source = &mut self.sources[at];
                let following = source.entries.next().transpose()?;
                if let Some(entry) = std::mem::replace(&mut source.head, following) {
                    search = search.take(source.object, entry);
                }
            }
            if let Some(found) = search.end() {
                return Ok(Some(found));
            }
        }
    }
}

impl Iterator for StateEntries<'_> {
    type Item = Result<StateEntry, CatalogError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.failed {
            return None;
        }
        let entry = self.entry();
        self.failed = entry.is_err();
        entry.transpose()
    }
}
