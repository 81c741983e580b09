//! The tree source: directories and files, walked by all connections at once.

use std::ffi::CString;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::fs::{CWD, Mode, OFlags, fstat, fstatfs, openat};
use rustix::io::Errno;

use super::SourceError;
use super::cache::{CACHE_TAG, is_cache_directory};
use super::filesystem::is_pseudo;
use super::listing::Listing;
use super::metadata::FileMetadata;
use super::options::{CacheDirectories, Mounts, TreeOptions};
use super::owners::OwnerNames;
use super::patterns::PathPatterns;
use super::queue::{Directory, Queue};
use super::report::OnProblem;
use super::snapshot::Snapshot;

/// One source as it was given.
#[derive(Debug)]
pub(crate) struct Root {
    /// What is opened.
    pub(crate) name: CString,
    /// Its path in the object.
    pub(crate) path: Vec<u8>,
    /// The snapshot that is opened in its place.
    pub(crate) snapshot: Option<Arc<Snapshot>>,
}

/// Directories and files to be read as one object.
///
/// A source `/usr/share` gives members `usr/share/...`, the root directory gives `.` and then `usr/...`.
pub struct TreeSource {
    pub(crate) roots: Vec<Root>,
    pub(crate) excludes: PathPatterns,
    pub(crate) mounts: Mounts,
    pub(crate) caches: CacheDirectories,
    pub(crate) may_be_empty: bool,
    pub(crate) owners: OwnerNames,
    pub(crate) on_problem: Option<OnProblem>,
    /// How many descriptors a walk uses, as far as it is up to the walk; none for as many as the process may have.
    pub(crate) descriptors_max: Option<usize>,
}

impl TreeSource {
    /// A source of these paths. One that lies below another is dropped, since the other holds it.
    ///
    /// # Errors
    /// No path is given, a path cannot name members, or a pattern is not one.
    pub fn new(paths: &[PathBuf], options: &TreeOptions) -> Result<Self, SourceError> {
        let mut roots: Vec<Root> = Vec::new();
        for path in paths {
            let member = member_path(path)?;
            let name =
                CString::new(path.as_os_str().as_bytes()).map_err(|_| SourceError::Path { path: path.clone() })?;
            roots.push(Root { name, path: member, snapshot: None });
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
        let TreeOptions { mounts, caches, may_be_empty, .. } = *options;
        Ok(Self {
            roots,
            excludes,
            mounts,
            caches,
            may_be_empty,
            owners: OwnerNames::read(),
            on_problem: None,
            descriptors_max: None,
        })
    }

    /// The same source, which has one path, read from a snapshot of it.
    pub(crate) fn read_from(mut self, snapshot: &Arc<Snapshot>) -> Result<Self, SourceError> {
        let name = CString::new(snapshot.at.as_os_str().as_bytes());
        for root in &mut self.roots {
            root.name = name.clone().map_err(|_| SourceError::Path { path: snapshot.at.clone() })?;
            root.snapshot = Some(Arc::clone(snapshot));
        }
        Ok(self)
    }

    /// Opens what stands in place of a directory of a snapshot, by its path in the object and its inode there.
    pub(crate) fn open_live(&self, source: usize, path: &[u8], inode: u64) -> Option<Result<OwnedFd, Errno>> {
        let root = &self.roots[source];
        root.snapshot.as_ref()?.open_live(below(root, path), inode, DIRECTORY_FLAGS)
    }

    /// The same source that tells of each problem as it is met.
    #[must_use]
    pub fn on_problem(mut self, on_problem: OnProblem) -> Self {
        self.on_problem = Some(on_problem);
        self
    }
}

/// How directories are opened.
pub(crate) const DIRECTORY_FLAGS: OFlags =
    OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

/// How files are opened: without waiting, should a fifo have taken a file's name.
pub(crate) const FILE_FLAGS: OFlags =
    OFlags::RDONLY.union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC).union(OFlags::NONBLOCK).union(OFlags::NOCTTY);

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

    /// Whether to go into a directory of this device that lies in one of the device `above`; a source has none above
    /// it.
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
        let mut metadata = FileMetadata::new(&fstat(&fd)?);
        let mut so_far = if root.path == b"." { Vec::new() } else { root.path.clone() };
        for name in below(root, path).split(|&byte| byte == b'/').filter(|&name| !name.is_empty() && name != b".") {
            so_far.extend_from_slice(if so_far.is_empty() { b"" } else { b"/" });
            so_far.extend_from_slice(name);
            fd = openat(&fd, name, DIRECTORY_FLAGS, Mode::empty())?;
            metadata = FileMetadata::new(&fstat(&fd)?);
            if let Some(live) = self.open_live(source, &so_far, metadata.inode) {
                fd = live?;
                metadata = FileMetadata::new(&fstat(&fd)?);
            }
        }
        Ok(queue.directory(fd, path.to_vec(), metadata, source))
    }
}

/// What is behind a source in a path of the object, without a slash in front.
fn below<'p>(root: &Root, path: &'p [u8]) -> &'p [u8] {
    let below = if root.path == b"." { path } else { path.get(root.path.len()..).unwrap_or_default() };
    below.strip_prefix(b"/").unwrap_or(below)
}

/// Whether a path lies below another, in terms of the object's paths.
pub(crate) fn is_below(path: &[u8], above: &[u8]) -> bool {
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

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests fail by panicking")]
    use super::*;
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
