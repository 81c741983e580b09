//! The file index of one object: what it holds, by path.

mod columns;
mod file;
mod group;
mod parts;
mod segment;
#[cfg(test)]
mod tests;
mod text;
mod write;

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;

use capstan_format::{FileEntry, ObjectId};

pub(crate) use columns::Effort;
pub(crate) use file::{Fingerprint, IndexFile};
use group::{Group, LastPath};
pub use parts::PathParts;
use segment::SegmentSearch;
pub(crate) use write::IndexWriter;

use crate::CatalogError;
use crate::order::KeyRange;

/// Says of a path whether it is wanted: a glob, a regular expression.
pub type PathPredicate<'f> = dyn Fn(&[u8]) -> bool + Sync + 'f;

/// Says whether a search is to stop.
pub type StopSearch<'f> = dyn Fn() -> bool + Sync + 'f;

/// The entries of one object, one for each path, ordered by directory and then by name.
///
/// Cheap to clone and free of the catalog it came from: it may be read from several threads, and goes on to show what
/// it showed when it was opened.
#[derive(Clone)]
pub struct Index {
    object: ObjectId,
    file: Arc<IndexFile>,
}

impl Index {
    pub(crate) fn new(object: ObjectId, file: IndexFile) -> Self {
        Self { object, file: Arc::new(file) }
    }

    /// The object.
    pub fn object(&self) -> ObjectId {
        self.object
    }

    /// How many entries there are.
    pub fn len(&self) -> u64 {
        self.file.rows()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Bytes of the entries on disk.
    pub fn stored_len(&self) -> u64 {
        self.file.len()
    }

    /// The entry of a path.
    ///
    /// # Errors
    /// The file cannot be read, or is damaged.
    pub fn get(&self, path: &[u8]) -> Result<Option<FileEntry>, CatalogError> {
        self.path(path).next().transpose()
    }

    /// The entry of a path, and no other.
    pub fn path(&self, path: &[u8]) -> Entries<'static> {
        self.scan([KeyRange::path(path)], None)
    }

    /// What stands directly in a directory; in the empty directory stands what has no slash in its path.
    pub fn children(&self, dir: &[u8]) -> Entries<'static> {
        self.scan([KeyRange::children(dir)], None)
    }

    /// A path and all below it; everything for `.` and for the empty path.
    pub fn subtree(&self, path: &[u8]) -> Entries<'static> {
        self.scan(KeyRange::subtree(path), None)
    }

    /// Every entry.
    pub fn iter(&self) -> Entries<'static> {
        self.scan([KeyRange::all()], None)
    }

    /// The entries whose whole path is wanted. Paths that are not cost no more than the comparison.
    pub fn find<'f>(&self, wanted: &'f PathPredicate<'f>) -> Entries<'f> {
        self.scan([KeyRange::all()], Some(wanted))
    }

    /// The same, where each path that is wanted is known to have these parts: rows that cannot be such are not looked
    /// at. Now and then it asks whether to stop, and then gives what stands next, whatever that is.
    pub fn find_with<'f>(
        &self,
        wanted: &'f PathPredicate<'f>,
        parts: &'f PathParts,
        stop: &'f StopSearch<'f>,
    ) -> Entries<'f> {
        let segment = SegmentSearch::new(parts.segment());
        Entries {
            parts: Some(parts).filter(|parts| parts.can_be_missed()),
            segment,
            stop: Some(stop),
            ..self.find(wanted)
        }
    }

    fn scan<'f>(
        &self,
        ranges: impl IntoIterator<Item = KeyRange>,
        wanted: Option<&'f PathPredicate<'f>>,
    ) -> Entries<'f> {
        Entries {
            file: Arc::clone(&self.file),
            ranges: ranges.into_iter().collect(),
            groups: 0..0,
            rows: 0..0,
            group: None,
            wanted,
            parts: None,
            segment: None,
            stop: None,
            path: LastPath::default(),
        }
    }
}

/// Entries in the order of the index; ends at the first error.
pub struct Entries<'f> {
    file: Arc<IndexFile>,
    /// The range being read stands first; it goes when its last row group is done.
    ranges: VecDeque<KeyRange>,
    groups: Range<usize>,
    rows: Range<usize>,
    group: Option<Arc<Group>>,
    wanted: Option<&'f PathPredicate<'f>>,
    parts: Option<&'f PathParts>,
    /// What the names have in them.
    segment: Option<SegmentSearch>,
    stop: Option<&'f StopSearch<'f>>,
    path: LastPath,
}

impl Entries<'_> {
    /// Those that stand behind a path in the order of the index, of entries that were not read yet: whoever read up to
    /// there goes on with them.
    #[must_use]
    pub fn behind(mut self, path: &[u8]) -> Self {
        self.ranges.retain_mut(|range| range.cut_behind(path));
        self
    }

    fn entry(&mut self) -> Result<Option<FileEntry>, CatalogError> {
        loop {
            if let Some(group) = &self.group {
                loop {
                    if let Some(segment) = self.segment.as_ref().filter(|_| !self.rows.is_empty()) {
                        self.rows.start = group.next_with(self.rows.start, segment).min(self.rows.end);
                    }
                    let Some(row) = self.rows.next() else { break };
                    if let Some(wanted) = self.wanted
                        && !wanted(group.path_behind(row, &mut self.path)?)
                    {
                        continue;
                    }
                    return group.entry(row).map(Some);
                }
            }
            if !self.next_group()? {
                return Ok(None);
            }
        }
    }

    /// Goes on to the next row group of the range, or of the next range that has one.
    fn next_group(&mut self) -> Result<bool, CatalogError> {
        loop {
            while self.groups.is_empty() {
                if self.group.take().is_some() {
                    self.ranges.pop_front();
                }
                let Some(range) = self.ranges.front() else { return Ok(false) };
                self.groups = self.file.groups_of(range);
                if self.groups.is_empty() {
                    self.ranges.pop_front();
                }
            }
            let (Some(number), Some(range)) = (self.groups.next(), self.ranges.front()) else { return Ok(false) };
            if self.stop.is_some_and(|stop| stop()) {
                (self.parts, self.segment, self.wanted) = (None, None, None);
            }
            if let Some(parts) = self.parts
                && !self.file.may_have(number, parts)?
            {
                if self.groups.is_empty() && self.group.is_none() {
                    self.ranges.pop_front();
                }
                continue;
            }
            let group = self.file.group(number)?;
            let to = range.to.as_ref().map_or(Ok(group.rows()), |to| group.lower_bound(to))?;
            let from = if self.file.begins_before(number, &range.from) { group.lower_bound(&range.from)? } else { 0 };
            self.rows = from..to;
            (self.group, self.path) = (Some(group), LastPath::default());
            return Ok(true);
        }
    }
}

impl Iterator for Entries<'_> {
    type Item = Result<FileEntry, CatalogError>;

    fn next(&mut self) -> Option<Self::Item> {
        let entry = self.entry().transpose();
        if matches!(entry, Some(Err(_))) {
            self.ranges.clear();
            self.groups = 0..0;
            self.rows = 0..0;
            self.group = None;
        }
        entry
    }
}
