//! The tree source: directories and files, walked by all connections at once.

use std::collections::BTreeMap;
use std::ffi::CString;
use std::os::fd::BorrowedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

use capstan_format::{EntryFlags, EntryKind};
use rustix::fs::{CWD, Mode, OFlags, fstat, fstatfs, openat};
use rustix::io::Errno;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use super::SourceError;
use super::cache::{CACHE_TAG, is_cache_directory};
use super::emit::Emitter;
use super::filesystem::is_pseudo;
use super::links::Links;
use super::listing::Listing;
use super::metadata::FileMetadata;
use super::options::{CacheDirectories, Mounts, TreeOptions};
use super::owners::OwnerNames;
use super::patterns::PathPatterns;
use super::queue::{Directory, Queue};
use super::report::{OnProblem, Progress, SourceReport};
use super::walker::Walker;
use crate::{Baseline, Stopped, StreamSink};

/// One source as it was given.
#[derive(Debug)]
pub(crate) struct Root {
    /// What is opened.
    pub(crate) name: CString,
    /// Its path in the object.
    pub(crate) path: Vec<u8>,
}

/// Directories and files to be read as one object.
///
/// A source `/usr/share` gives members `usr/share/...`, the root directory gives `.` and then `usr/...`.
pub struct TreeSource {
    pub(crate) roots: Vec<Root>,
    excludes: PathPatterns,
    pub(crate) mounts: Mounts,
    pub(crate) caches: CacheDirectories,
    pub(crate) owners: OwnerNames,
    pub(crate) on_problem: Option<OnProblem>,
}

impl TreeSource {
    /// A source of these paths. One that lies below another is dropped, since the other holds it.
    pub fn new(paths: &[PathBuf], options: &TreeOptions) -> Result<Self, SourceError> {
        let mut roots: Vec<Root> = Vec::new();
        for path in paths {
            let member = member_path(path)?;
            let name =
                CString::new(path.as_os_str().as_bytes()).map_err(|_| SourceError::Path { path: path.clone() })?;
            roots.push(Root { name, path: member });
        }
        roots.sort_by(|a, b| a.path.cmp(&b.path));
        let paths: Vec<Vec<u8>> = roots.iter().map(|root| root.path.clone()).collect();
        let mut number = 0;
        roots.retain(|root| {
            number += 1;
            !paths[..number - 1].iter().any(|above| is_below(&root.path, above))
        });
        if roots.is_empty() {
            return Err(SourceError::Nothing);
        }
        let excludes = PathPatterns::new(&options.excludes)?;
        let TreeOptions { mounts, caches, .. } = *options;
        Ok(Self { roots, excludes, mounts, caches, owners: OwnerNames::read(), on_problem: None })
    }

    /// The same source that tells of each problem as it is met.
    #[must_use]
    pub fn on_problem(mut self, on_problem: OnProblem) -> Self {
        self.on_problem = Some(on_problem);
        self
    }

    /// Walks the tree on one thread for each connection and writes it into their streams.
    ///
    /// Which connection gets which file is decided as it goes. With one connection the order is depth first, and each
    /// directory lies before its content; with several, all content lies before the hard links to it when the streams are
    /// laid end to end in the order of the slice. The two blocks of zeros that end a tar archive are left to whoever lays them so.
    ///
    /// With a baseline only what is new or changed is written, and what is missing becomes a [`EntryKind::Deleted`] entry;
    /// what is excluded now counts as missing, what lies below a directory that could not be read does not.
    pub fn run<S: StreamSink>(
        &self,
        sinks: &mut [S],
        baseline: Option<&dyn Baseline>,
        progress: &Progress,
    ) -> Result<SourceReport, SourceError> {
        self.run_within(raise_descriptor_limit(), sinks, baseline, progress)
    }

    /// Runs with no more than so many descriptors, as far as it is up to the walk.
    fn run_within<S: StreamSink>(
        &self,
        descriptors: usize,
        sinks: &mut [S],
        baseline: Option<&dyn Baseline>,
        progress: &Progress,
    ) -> Result<SourceReport, SourceError> {
        let walk = Walk {
            source: self,
            baseline,
            queue: Queue::new(self.roots.len(), descriptors / 2),
            // Two batches of each connection are open at a time; all together take a quarter of what there is.
            connections: sinks.len(),
            files_max: descriptors / 8 / sinks.len().max(1),
            links: Links::default(),
            kept: Mutex::new(Vec::new()),
            cut_short: Mutex::default(),
        };
        let Some((last, others)) = sinks.split_last_mut() else { return Err(SourceError::NoConnection) };
        let walk = &walk;
        thread::scope(|scope| {
            let others: Vec<_> = others
                .iter_mut()
                .map(|sink| scope.spawn(move || Walker::new(walk, sink, progress).run().map(|emitter| emitter.report)))
                .collect();
            let last = Walker::new(walk, last, progress).run();
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

/// How directories are opened.
pub(crate) const DIRECTORY_FLAGS: OFlags =
    OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

/// Whether a walk goes into a directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Descent {
    /// It does.
    Enter,
    /// Another file system, where it shall stay on its own.
    Stay,
    /// A file system that the kernel makes up.
    Pseudo,
}

impl TreeSource {
    /// Whether a path below one of the sources is left out.
    pub(crate) fn is_excluded(&self, source: usize, path: &[u8]) -> bool {
        !self.excludes.is_empty() && self.excludes.matches(&self.roots[source].path, path)
    }

    /// Of a directory that is a cache, and is to be left out: the listing that stands for its own.
    pub(crate) fn cache_listing(&self, directory: BorrowedFd<'_>) -> Option<Listing> {
        (self.caches == CacheDirectories::LeaveOut && is_cache_directory(directory)).then(|| {
            let mut listing = Listing::default();
            listing.files.push_back(CACHE_TAG);
            listing
        })
    }

    /// Whether to go into a directory of this device that lies in one of the device `above`; a source has none above it.
    pub(crate) fn descend(&self, directory: BorrowedFd<'_>, device: u64, above: Option<u64>) -> Descent {
        match above {
            Some(above) if above != device && self.mounts == Mounts::Stay => Descent::Stay,
            Some(above) if above != device && fstatfs(directory).is_ok_and(|stat| is_pseudo(&stat)) => Descent::Pseudo,
            _ => Descent::Enter,
        }
    }

    /// Opens a directory that was closed to save descriptors, by single steps from its source.
    pub(crate) fn reopen(&self, queue: &Queue, source: usize, path: &[u8]) -> Result<Arc<Directory>, Errno> {
        let root = &self.roots[source];
        let mut fd = openat(CWD, &*root.name, DIRECTORY_FLAGS, Mode::empty())?;
        let below = if root.path == b"." { path } else { path.get(root.path.len()..).unwrap_or_default() };
        for name in below.split(|&byte| byte == b'/').filter(|&name| !name.is_empty() && name != b".") {
            fd = openat(&fd, name, DIRECTORY_FLAGS, Mode::empty())?;
        }
        let metadata = FileMetadata::new(&fstat(&fd)?);
        Ok(queue.directory(fd, path.to_vec(), metadata, source))
    }
}

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
    /// Paths that could not be looked into: what the base has below them stays.
    kept: Mutex<Vec<Vec<u8>>>,
    /// Directories whose listing failed when they had been written already.
    cut_short: Mutex<BTreeMap<Vec<u8>, Described>>,
}

impl Walk<'_> {
    /// Notes that nothing at or below a path counts as deleted.
    pub(crate) fn keep_state_below(&self, path: &[u8]) {
        if self.baseline.is_some() {
            self.kept.lock().unwrap_or_else(PoisonError::into_inner).push(path.to_vec());
        }
    }

    /// Notes that a directory that was written already could not be listed to its end, with the pax records of its attributes;
    /// whether that is new.
    pub(crate) fn cut_short(&self, path: &[u8], metadata: FileMetadata, records: &[u8]) -> bool {
        let mut cut_short = self.cut_short.lock().unwrap_or_else(PoisonError::into_inner);
        let new = !cut_short.contains_key(path);
        if new {
            cut_short.insert(path.to_vec(), (metadata, records.to_vec()));
        }
        new
    }

    /// What comes after all content: directories that turned out not to be whole, hard links, then what is no longer there.
    fn finish<S: StreamSink>(&self, mut emitter: Emitter<'_, S>) -> Result<SourceReport, Stopped> {
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

/// Whether a path lies below another, in terms of the object's paths.
fn is_below(path: &[u8], above: &[u8]) -> bool {
    above == b"." || path == above || path.strip_prefix(above).is_some_and(|rest| rest.starts_with(b"/"))
}

/// A source's path in the object: without slashes at its ends, without empty and `.` components.
pub(crate) fn member_path(path: &Path) -> Result<Vec<u8>, SourceError> {
    let bytes = path.as_os_str().as_bytes();
    if bytes.is_empty() {
        return Err(SourceError::Path { path: path.to_owned() });
    }
    let mut member = Vec::with_capacity(bytes.len());
    for component in bytes.split(|&byte| byte == b'/') {
        match component {
            b"" | b"." => continue,
            b".." => return Err(SourceError::Path { path: path.to_owned() }),
            _ => {}
        }
        if !member.is_empty() {
            member.push(b'/');
        }
        member.extend_from_slice(component);
    }
    if member.is_empty() {
        member.push(b'.');
    }
    Ok(member)
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
    use super::*;
    use capstan_format::FileEntry;
    use std::fs;

    /// Keeps entries only.
    #[derive(Default)]
    struct Entries {
        chunk: Vec<u8>,
        position: u64,
        entries: Vec<FileEntry>,
    }

    impl StreamSink for Entries {
        fn space(&mut self) -> Result<&mut [u8], Stopped> {
            self.chunk.resize(65_536, 0);
            Ok(&mut self.chunk)
        }

        fn advance(&mut self, len: usize) {
            self.position += len as u64;
        }

        fn position(&self) -> u64 {
            self.position
        }

        fn connection(&self) -> u16 {
            0
        }

        fn member(&mut self, entry: FileEntry) {
            self.entries.push(entry);
        }
    }

    fn paths_within(descriptors: usize, root: &Path) -> Vec<Vec<u8>> {
        let tree = TreeSource::new(&[root.to_owned()], &TreeOptions::default()).unwrap();
        let mut sinks = [Entries::default(), Entries::default()];
        let report = tree.run_within(descriptors, &mut sinks, None, &Progress::new()).unwrap();
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

    #[test]
    fn a_directory_that_fails_after_it_was_written_is_written_again_with_its_flag() {
        let source = tempfile::tempdir().unwrap();
        let tree = TreeSource::new(&[source.path().to_owned()], &TreeOptions::default()).unwrap();
        let walk = Walk {
            source: &tree,
            baseline: None,
            queue: Queue::new(1, 1),
            connections: 1,
            files_max: 1,
            links: Links::default(),
            kept: Mutex::default(),
            cut_short: Mutex::default(),
        };
        let metadata = FileMetadata::new(&rustix::fs::stat(source.path()).unwrap());
        assert!(walk.cut_short(b"dir", metadata, b""));
        assert!(!walk.cut_short(b"dir", metadata, b""), "said once, whatever number of its children were to be opened");
        let mut sink = Entries::default();
        walk.finish(Emitter::new(&mut sink, &tree, &Progress::new())).unwrap();
        let [entry] = &sink.entries[..] else { panic!("{:?}", sink.entries) };
        assert_eq!(
            (&entry.path[..], entry.kind, entry.flags),
            (&b"dir"[..], EntryKind::Directory, EntryFlags::UNREADABLE)
        );
        assert!(entry.member_len > 0);
    }

    #[test]
    fn sources_are_named_without_slashes_at_their_ends() {
        let named = |path: &str| member_path(Path::new(path)).map(|path| String::from_utf8(path).unwrap()).ok();
        assert_eq!(named("/usr//share/./x/").as_deref(), Some("usr/share/x"));
        assert_eq!(named("relative").as_deref(), Some("relative"));
        assert_eq!(named("/").as_deref(), Some("."));
        assert_eq!(named("a/../b"), None);
        assert_eq!(named(""), None);
    }
}
