//! What the connections of one walk share, and what comes last.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use capstan_format::{EntryFlags, EntryKind};

use super::cut::CutFiles;
use super::emit::Emitter;
use super::links::Links;
use super::metadata::FileMetadata;
use super::queue::Queue;
use super::report::SourceReport;
use super::tree::{TreeSource, is_below};
use crate::{Baseline, Stopped, StreamSink};

/// A directory as it was described, and the pax records of its attributes.
type Described = (FileMetadata, Vec<u8>);

/// What the connections of one run share.
pub(crate) struct Walk<'a> {
    pub(crate) source: &'a TreeSource,
    pub(crate) baseline: Option<&'a dyn Baseline>,
    pub(crate) queue: Queue,
    /// How many walk.
    pub(crate) connections: usize,
    /// Files that a batch may have.
    pub(crate) files_max: usize,
    pub(crate) links: Links,
    /// Files that are not read where they are met.
    pub(crate) cut: CutFiles,
    /// Paths that could not be looked into: what the base has below them stays.
    kept: Mutex<Vec<Vec<u8>>>,
    /// Directories whose listing failed when they had been written already.
    cut_short: Mutex<BTreeMap<Vec<u8>, Described>>,
}

impl<'a> Walk<'a> {
    /// A walk that so many connections share, with so many descriptors for all of them as far as it is up to the walk.
    pub(crate) fn new(
        source: &'a TreeSource,
        baseline: Option<&'a dyn Baseline>,
        descriptors: usize,
        connections: usize,
    ) -> Self {
        Self {
            source,
            baseline,
            queue: Queue::new(source.roots.len(), descriptors / 2),
            connections,
            // Two batches of each connection are open at a time; all together take a quarter of what there is.
            files_max: descriptors / 8 / connections.max(1),
            links: Links::default(),
            cut: CutFiles::default(),
            kept: Mutex::default(),
            cut_short: Mutex::default(),
        }
    }

    /// Notes that nothing at or below a path counts as deleted.
    pub(crate) fn keep_state_below(&self, path: &[u8]) {
        if self.baseline.is_some() {
            self.kept.lock().unwrap_or_else(PoisonError::into_inner).push(path.to_vec());
        }
    }

    /// Notes that a directory that was written already could not be listed to its end, with the pax records of its
    /// attributes; whether that is new.
    pub(crate) fn cut_short(&self, path: &[u8], metadata: FileMetadata, records: &[u8]) -> bool {
        let mut cut_short = self.cut_short.lock().unwrap_or_else(PoisonError::into_inner);
        let new = !cut_short.contains_key(path);
        if new {
            cut_short.insert(path.to_vec(), (metadata, records.to_vec()));
        }
        new
    }

    /// What comes after all content: directories that turned out not to be whole, hard links, then what is no longer
    /// there.
    pub(crate) fn finish<S: StreamSink>(&self, mut emitter: Emitter<'_, S>) -> Result<SourceReport, Stopped> {
        let cut_short = std::mem::take(&mut *self.cut_short.lock().unwrap_or_else(PoisonError::into_inner));
        for (path, (metadata, records)) in cut_short {
            // Of two members of one path the later counts: here the one that is flagged.
            emitter.bare(&path, EntryKind::Directory, EntryFlags::UNREADABLE, &metadata, b"", &records)?;
        }
        for link in self.links.take() {
            let flags = EntryFlags::default();
            emitter.bare(&link.path, EntryKind::HardLink, flags, &link.metadata, &link.target, b"")?;
        }
        if let Some(baseline) = self.baseline {
            let kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
            baseline.for_each_missing(&mut |path| {
                if !kept.iter().any(|above| path == &above[..] || is_below(path, above)) {
                    emitter.absent(path, EntryKind::Deleted, EntryFlags::default(), None);
                    emitter.report.deleted += 1;
                }
            });
        }
        Ok(emitter.report)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests fail by panicking")]
    use super::*;
    use crate::TreeOptions;
    use crate::source::recorded::Entries;
    use crate::source::report::Progress;

    #[test]
    fn a_directory_that_fails_after_it_was_written_is_written_again_with_its_flag() {
        let source = tempfile::tempdir().unwrap();
        let tree = TreeSource::new(&[source.path().to_owned()], &TreeOptions::default()).unwrap();
        let walk = Walk::new(&tree, None, 8, 1);
        let metadata = FileMetadata::new(&rustix::fs::stat(source.path()).unwrap());
        assert!(walk.cut_short(b"dir", metadata, b""));
        assert!(!walk.cut_short(b"dir", metadata, b""), "said once, whatever number of its children were to be opened");
        let mut sink = Entries::default();
        walk.finish(Emitter::new(&mut sink, &tree.owners, None, &Progress::new(), u64::MAX)).unwrap();
        let [entry] = &sink.entries[..] else { panic!("{:?}", sink.entries) };
        assert_eq!(
            (&entry.path[..], entry.kind, entry.flags),
            (&b"dir"[..], EntryKind::Directory, EntryFlags::UNREADABLE)
        );
        assert!(entry.member_len > 0);
    }
}
