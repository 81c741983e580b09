//! The order of an index: by directory, then by name, both as bytes.
//!
//! A listing of a directory is then one run of rows, and a directory's own row stands before those below it. What lies
//! below a directory is two runs: its children (directory equal to it) and the rest (directory beginning with it and a
//! slash). Plain order of the paths would mix `a-b` in between `a` and `a/b`.

use std::cmp::Ordering;

use capstan_format::FileEntry;

/// Splits a path into its directory (empty at the top) and its name.
pub(crate) fn split(path: &[u8]) -> (&[u8], &[u8]) {
    match path.iter().rposition(|&byte| byte == b'/') {
        Some(at) => (&path[..at], &path[at + 1..]),
        None => (&[], path),
    }
}

/// Writes the path of a directory and a name into `path`; the inverse of [`split`].
pub(crate) fn join_into(path: &mut Vec<u8>, dir: &[u8], name: &[u8]) {
    path.clear();
    path.extend_from_slice(dir);
    if !dir.is_empty() {
        path.push(b'/');
    }
    path.extend_from_slice(name);
}

/// Order of two paths in an index.
pub(crate) fn compare_paths(a: &[u8], b: &[u8]) -> Ordering {
    split(a).cmp(&split(b))
}

/// An entry, and where its path is split, so that sorting does not look for it again at each comparison.
///
/// Ordered by path; of several entries of one path the first is the one that counts. The higher connection is the later
/// attempt, the higher offset the later read. What follows only makes the order total, so that the same entries give
/// the same file in whatever order they came.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Keyed {
    pub(crate) entry: FileEntry,
    dir_len: usize,
}

impl Keyed {
    pub(crate) fn new(entry: FileEntry) -> Self {
        let dir_len = split(&entry.path).0.len();
        Self { entry, dir_len }
    }

    fn key(&self) -> (&[u8], &[u8]) {
        // At the top there is no slash to skip.
        let path = &self.entry.path;
        (&path[..self.dir_len], &path[self.dir_len + usize::from(self.dir_len > 0)..])
    }
}

impl Ord for Keyed {
    fn cmp(&self, other: &Self) -> Ordering {
        let (a, b) = (&self.entry, &other.entry);
        self.key()
            .cmp(&other.key())
            .then_with(|| b.connection.cmp(&a.connection))
            .then_with(|| b.offset.cmp(&a.offset))
            .then_with(|| b.member_len.cmp(&a.member_len))
            .then_with(|| rest(b).cmp(&rest(a)))
    }
}

impl PartialOrd for Keyed {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

type Rest<'a> = (u8, u8, [u32; 5], u64, i64, &'a [u8]);

fn rest(entry: &FileEntry) -> Rest<'_> {
    let FileEntry { mode, uid, gid, change, crc, .. } = *entry;
    (entry.kind.code(), entry.flags.0, [mode, uid, gid, change, crc], entry.size, entry.mtime_ns, &entry.link)
}

/// A run of keys (directory, name): from `from` on, up to but without `to`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct KeyRange {
    pub(crate) from: Key,
    pub(crate) to: Option<Key>,
}

/// Directory and name, owned.
pub(crate) type Key = (Vec<u8>, Vec<u8>);

impl KeyRange {
    /// Every key.
    pub(crate) fn all() -> Self {
        Self { from: (Vec::new(), Vec::new()), to: None }
    }

    /// One path.
    pub(crate) fn path(path: &[u8]) -> Self {
        let (dir, name) = split(path);
        let to = Some((dir.to_vec(), with(name, 0)));
        Self { from: (dir.to_vec(), name.to_vec()), to }
    }

    /// What stands in a directory, without what is below its own directories.
    pub(crate) fn children(dir: &[u8]) -> Self {
        Self { from: (dir.to_vec(), Vec::new()), to: Some((with(dir, 0), Vec::new())) }
    }

    /// A path and all below it, as runs in order.
    pub(crate) fn subtree(path: &[u8]) -> Vec<Self> {
        if path.is_empty() || path == b"." {
            return vec![Self::all()];
        }
        // The byte behind the slash ends the directories that begin with `path` and a slash.
        let below = Self { from: (with(path, b'/'), Vec::new()), to: Some((with(path, b'/' + 1), Vec::new())) };
        vec![Self::path(path), Self::children(path), below]
    }

    /// Leaves out a path and what stands before it; whether anything is left.
    pub(crate) fn cut_behind(&mut self, path: &[u8]) -> bool {
        let (dir, name) = split(path);
        let next = (dir.to_vec(), with(name, 0));
        if self.from < next {
            self.from = next;
        }
        self.to.as_ref().is_none_or(|to| self.from < *to)
    }
}

fn with(bytes: &[u8], last: u8) -> Vec<u8> {
    [bytes, &[last]].concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_stands_before_what_it_holds_and_its_listing_is_one_run() {
        let mut paths: Vec<&[u8]> =
            vec![b"a/b/c", b"a-b/x", b"a", b"a/b", b"a/c", b"b", b"a/b-c", b"a/b/d", b"a-b", b"a/b.d/e"];
        paths.sort_by(|a, b| compare_paths(a, b));
        let text: Vec<_> = paths.iter().map(|path| String::from_utf8_lossy(path)).collect();
        assert_eq!(text, ["a", "a-b", "b", "a/b", "a/b-c", "a/c", "a-b/x", "a/b/c", "a/b/d", "a/b.d/e"]);
    }

    #[test]
    fn split_and_join_are_inverse() {
        let mut joined = Vec::new();
        for path in [&b"a"[..], b"a/b", b"a//b", b".", b"a/b/\xff"] {
            let (dir, name) = split(path);
            join_into(&mut joined, dir, name);
            assert_eq!(joined, path);
        }
    }
}
