//! Reading a tree: one thread for each connection, over one walk.

use std::thread;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use super::SourceError;
use super::cut::{CutFile, open_cut};
use super::report::{Progress, SourceReport};
use super::tree::TreeSource;
use super::walk::Walk;
use super::walker::Walker;
use crate::{Baseline, StreamSink};

impl TreeSource {
    /// Walks the tree on one thread for each connection and writes it into their streams.
    ///
    /// Which connection gets which file is decided as it goes. With one connection the order is depth first, and each
    /// directory lies before its content; with several, all content lies before the hard links to it when the streams
    /// are laid end to end in the order of the slice. The two blocks of zeros that end a tar archive are left to
    /// whoever lays them so.
    ///
    /// With a baseline only what is new or changed is written, and what is missing becomes a [`EntryKind::Deleted`]
    /// entry; what is excluded now counts as missing, what lies below a directory that could not be read does not.
    ///
    /// # Errors
    /// There is no connection, or the session was stopped. What cannot be read is in the report.
    pub fn run<S: StreamSink>(
        &self,
        sinks: &mut [S],
        baseline: Option<&dyn Baseline>,
        progress: &Progress,
    ) -> Result<SourceReport, SourceError> {
        self.run_on(sinks, (baseline, &[]), progress)
    }

    /// The same where an earlier reading was cut off in the middle of files, which are gone on with: those that stand
    /// as they did, one at the head of each stream. None of the streams may have anything yet.
    ///
    /// # Errors
    /// As [`TreeSource::run`].
    pub fn run_on<S: StreamSink>(
        &self,
        sinks: &mut [S],
        (baseline, cut): (Option<&dyn Baseline>, &[CutFile]),
        progress: &Progress,
    ) -> Result<SourceReport, SourceError> {
        let descriptors = self.descriptors_max.unwrap_or_else(raise_descriptor_limit);
        let mut walk = Walk::new(self, baseline, descriptors, sinks.len());
        let streams = sinks.iter().filter(|sink| sink.takes_fragments()).count();
        let cut = if streams == sinks.len() { cut } else { &[] };
        let (files, mut open) = open_cut(self, &walk.queue, cut, streams);
        walk.cut = files;
        let Some((last, others)) = sinks.split_last_mut() else { return Err(SourceError::NoConnection) };
        let walk = &walk;
        thread::scope(|scope| {
            let others: Vec<_> = others
                .iter_mut()
                .map(|sink| {
                    let first = open.pop();
                    let walked = move || Walker::new(walk, sink, progress).run(first);
                    scope.spawn(move || walked().map(|emitter| emitter.report))
                })
                .collect();
            let last = Walker::new(walk, last, progress).run(open.pop());
            // The links are all known once all connections are done.
            let mut parts = Vec::new();
            for other in others {
                parts.push(other.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))?);
            }
            let mut report = walk.finish(last?)?;
            parts.into_iter().for_each(|part| report.merge(part));
            report.excludes_unused = Some(self.excludes.unused());
            Ok(report)
        })
    }
}

/// Lets the process open as many files as it may; returns how many.
pub(crate) fn raise_descriptor_limit() -> usize {
    let limit = getrlimit(Resource::Nofile);
    let raised = Rlimit { current: limit.maximum, maximum: limit.maximum };
    let current = if setrlimit(Resource::Nofile, raised).is_ok() { limit.maximum } else { limit.current };
    usize::try_from(current.unwrap_or(1 << 20)).unwrap_or(usize::MAX)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests fail by panicking")]
    use std::fs;
    use std::path::Path;

    use super::*;
    use crate::TreeOptions;
    use crate::source::recorded::Entries;

    fn paths_within(descriptors: usize, root: &Path) -> Vec<Vec<u8>> {
        let mut tree = TreeSource::new(&[root.to_owned()], &TreeOptions::default()).unwrap();
        tree.descriptors_max = Some(descriptors);
        let mut sinks = [Entries::default(), Entries::default()];
        let report = tree.run(&mut sinks, None, &Progress::new()).unwrap();
        assert_eq!(report.problem_counts, [0, 0, 0]);
        let mut paths: Vec<_> = sinks.into_iter().flat_map(|sink| sink.entries).map(|entry| entry.path).collect();
        paths.sort();
        paths
    }

    #[test]
    fn a_walk_without_descriptors_to_spare_finds_the_same() {
        let source = tempfile::tempdir().unwrap();
        for path in ["a/b/c/d", "a/b/e", "a/f", "g/h/i", "g/j"] {
            fs::create_dir_all(source.path().join(path)).unwrap();
        }
        for path in ["a/b/c/d/1", "a/b/c/2", "a/b/3", "g/h/i/4", "g/5", "6"] {
            fs::write(source.path().join(path), path).unwrap();
        }
        let plenty = paths_within(1_000, source.path());
        assert_eq!(plenty.len(), 17);
        assert_eq!(paths_within(0, source.path()), plenty);
    }
}
