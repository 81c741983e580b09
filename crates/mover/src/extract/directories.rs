//! The directories that a thread has open, so that most files cost no path resolution.
//!
//! A stream comes in the order of a walk: most members stand in the directory of the one before, or in one nearby. A
//! small cache of open directories finds it, or an ancestor from which one call leads there. Directories that no member
//! made yet (another stream may hold them) are made with mode 0700 and remembered, so that the member that describes
//! them later may set their metadata also where existing directories are to be left alone. Those that no member
//! described until the end lie above the source, and are opened then.
//!
//! The descriptors stay valid whatever happens to the names: nothing in this crate moves a directory or puts something
//! else in its place.

use std::cell::Cell;
use std::collections::BTreeSet;
use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::rc::Rc;
use std::sync::{Mutex, MutexGuard, PoisonError};

use rustix::fs::{Mode, OFlags, fgetxattr_query, fstat, mkdirat};
use rustix::io::Errno;

use super::beneath::Resolver;
use super::metadata::{InheritedAcl, MadeAs};
use super::names::Names;

/// Open directories per thread.
const OPEN_MAX: usize = 64;
/// Bytes of their paths; paths may be long.
const PATH_BYTES_MAX: usize = 1 << 20;
/// Bytes of the paths of directories that are remembered as made without a member.
const IMPLICIT_BYTES_MAX: usize = 16 << 20;

pub(super) const DIRECTORY: OFlags = OFlags::PATH.union(OFlags::DIRECTORY);

/// The target directory, and which directories were made below it without a member.
#[derive(Debug)]
pub(super) struct Root {
    pub(super) fd: OwnedFd,
    pub(super) resolver: Resolver,
    pub(super) names: Names,
    implicit: Mutex<Implicit>,
    hash: RandomState,
}

/// Directories that were made without a member.
#[derive(Debug, Default)]
struct Implicit {
    paths: BTreeSet<Vec<u8>>,
    bytes: usize,
}

impl Implicit {
    fn note(&mut self, path: &[u8]) {
        // Beyond the bound the metadata of further ones is not set under `Overwrite::Never`, and they stay closed; it
        // is not worth more memory.
        if self.bytes + path.len() <= IMPLICIT_BYTES_MAX && self.paths.insert(path.to_vec()) {
            self.bytes += path.len();
        }
    }
}

impl Root {
    pub(super) fn new(fd: OwnedFd) -> Self {
        let resolver = Resolver::detect(fd.as_fd());
        let hash = RandomState::new();
        let names = Names::probe(fd.as_fd(), hash.hash_one(u64::MAX));
        Self { fd, resolver, names, implicit: Mutex::default(), hash }
    }

    /// Remembers that a directory was made without a member.
    pub(super) fn made_implicitly(&self, path: &[u8]) {
        self.implicit().note(path);
    }

    /// Whether a directory was made without a member; asked once, by the member.
    pub(super) fn claim(&self, path: &[u8]) -> bool {
        let mut implicit = self.implicit();
        let is_implicit = implicit.paths.remove(path);
        if is_implicit {
            implicit.bytes -= path.len();
        }
        is_implicit
    }

    /// The directories that were made and that no member has claimed; asked once.
    pub(super) fn take_implicit(&self) -> BTreeSet<Vec<u8>> {
        std::mem::take(&mut *self.implicit()).paths
    }

    /// What stands for a path in the memory of this restore; whoever wrote a stream cannot foresee it.
    pub(super) fn mark(&self, path: &[u8]) -> u64 {
        self.hash.hash_one(path)
    }

    /// Sixty-four bits that differ for each number and cannot be foreseen by whoever wrote a stream.
    pub(super) fn random(&self, number: u64) -> u64 {
        self.hash.hash_one(number)
    }

    fn implicit(&self) -> MutexGuard<'_, Implicit> {
        self.implicit.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Makes a directory that no member made yet. Making and remembering are one step for the other threads, so that
    /// none takes the directory for one that was there before.
    fn make(&self, parent: BorrowedFd<'_>, name: &[u8], path: &[u8]) -> Result<(), Errno> {
        let mut implicit = self.implicit();
        match mkdirat(parent, name, Mode::RWXU) {
            Ok(()) => implicit.note(path),
            Err(Errno::EXIST) => {}
            Err(errno) => return Err(errno),
        }
        Ok(())
    }
}

/// An open directory.
#[derive(Debug)]
pub(super) struct Directory {
    fd: OwnedFd,
    path: Vec<u8>,
    made_as: Cell<Option<MadeAs>>,
}

impl Directory {
    pub(super) fn fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }

    /// What a file just made here got from the system: looked up for the first one, the same for all others. It depends
    /// on the directory's setgid bit and default list, on the mount and on the server behind it, so it is seen, not
    /// computed.
    pub(super) fn made_as(&self, file: BorrowedFd<'_>) -> Result<MadeAs, Errno> {
        if let Some(made_as) = self.made_as.get() {
            return Ok(made_as);
        }
        let stat = fstat(file)?;
        let list = fgetxattr_query(file, c"system.posix_acl_access");
        let acl = if list.is_ok() { InheritedAcl::Perhaps } else { InheritedAcl::No };
        let made_as = MadeAs { uid: stat.st_uid, gid: stat.st_gid, acl };
        self.made_as.set(Some(made_as));
        Ok(made_as)
    }
}

/// The open directories of one thread, most recently used last.
#[derive(Debug)]
pub(super) struct DirectoryCache {
    open: Vec<Rc<Directory>>,
    path_bytes: usize,
}

/// What happens where a directory on the way does not exist.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Missing {
    Make,
    Fail,
}

impl DirectoryCache {
    pub(super) fn new() -> Self {
        Self { open: Vec::new(), path_bytes: 0 }
    }

    /// The directory of a checked path, empty for the target.
    pub(super) fn get(&mut self, root: &Root, path: &[u8], missing: Missing) -> Result<Rc<Directory>, Errno> {
        if let Some(found) = self.open.iter().rposition(|directory| directory.path == path) {
            let last = self.open.len() - 1;
            if found != last {
                self.open[found..].rotate_left(1);
            }
            return Ok(Rc::clone(&self.open[last]));
        }
        let ancestor = self.open.iter().filter(|directory| is_above(&directory.path, path));
        let ancestor = ancestor.max_by_key(|directory| directory.path.len()).cloned();
        let (from, known) = match &ancestor {
            Some(directory) => (directory.fd(), directory.path.len()),
            None => (root.fd.as_fd(), 0),
        };
        let rest = path[known..].strip_prefix(b"/").unwrap_or(&path[known..]);
        let at = path.len() - rest.len();
        let opened = match (root.names, rest) {
            (_, b"") => root.resolver.open(from, b".", DIRECTORY),
            (Names::Folding, _) => walk(root, from, path, at, missing),
            (Names::Exact, _) => match root.resolver.open(from, rest, DIRECTORY) {
                Err(Errno::NOENT) if missing == Missing::Make => walk(root, from, path, at, missing),
                opened => opened,
            },
        };
        let directory = Rc::new(Directory { fd: opened?, path: path.to_vec(), made_as: Cell::new(None) });
        self.keep(Rc::clone(&directory));
        Ok(directory)
    }

    fn keep(&mut self, directory: Rc<Directory>) {
        self.path_bytes += directory.path.len();
        while !self.open.is_empty() && (self.open.len() >= OPEN_MAX || self.path_bytes > PATH_BYTES_MAX) {
            self.path_bytes -= self.open.remove(0).path.len();
        }
        self.open.push(directory);
    }
}

/// Whether `above` is a proper ancestor of `path`.
fn is_above(above: &[u8], path: &[u8]) -> bool {
    above.is_empty() || path.strip_prefix(above).is_some_and(|rest| rest.starts_with(b"/"))
}

/// Walks from `from`, which is `path[..at]`, component by component, and makes what is missing if told so. A directory
/// whose name differs by case is EEXIST.
fn walk(root: &Root, from: BorrowedFd<'_>, path: &[u8], at: usize, missing: Missing) -> Result<OwnedFd, Errno> {
    let mut at = at;
    let mut owned: Option<OwnedFd> = None;
    loop {
        let from = owned.as_ref().map_or(from, |fd| fd.as_fd());
        let end = path[at..].iter().position(|&byte| byte == b'/').map_or(path.len(), |slash| at + slash);
        let name = &path[at..end];
        let opened = match root.resolver.open(from, name, DIRECTORY) {
            Err(Errno::NOENT) if missing == Missing::Make => {
                root.make(from, name, &path[..end])?;
                root.resolver.open(from, name, DIRECTORY)
            }
            Ok(_) if !root.names.is_listed(from, name) => Err(Errno::EXIST),
            opened => opened,
        };
        let opened = opened?;
        if end == path.len() {
            return Ok(opened);
        }
        owned = Some(opened);
        at = end + 1;
    }
}
