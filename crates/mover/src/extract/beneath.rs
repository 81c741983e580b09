//! Opening what lies below one directory, and nothing else.
//!
//! On Linux 5.6 and later the kernel does it: `openat2` with RESOLVE_BENEATH, RESOLVE_NO_SYMLINKS and
//! RESOLVE_NO_MAGICLINKS refuses a path on which any component is a symbolic link, also one that another process puts
//! there meanwhile. Where `openat2` is missing or forbidden (old kernels, some container profiles) each component is
//! opened by itself with O_NOFOLLOW, which is as safe for paths that `path::checked` let through and only slower.
//!
//! Paths longer than the kernel takes at once are walked in pieces.

use std::ffi::OsStr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::fs::{Mode, OFlags, ResolveFlags, mkdirat, openat, openat2};
use rustix::io::Errno;

/// Longest piece of a path given to the kernel; PATH_MAX is 4,096 with its NUL.
const PIECE_LEN_MAX: usize = 4_000;
/// How often a resolution that another process's rename disturbed is tried again.
const TRIES: usize = 16;

/// Opens a directory by one name in another, or makes it with a mode; a symbolic link in its place is an error. What it
/// gives serves as a place to go on from, and no more: whoever may pass through a directory need not be able to list
/// it.
///
/// # Errors
/// `ENOTDIR` or `ELOOP` where something else stands there; it can be neither opened nor made.
pub fn open_or_make_directory(above: BorrowedFd<'_>, name: &OsStr, mode: Mode) -> Result<OwnedFd, Errno> {
    let flags = OFlags::DIRECTORY | OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let open = || openat(above, name, flags, Mode::empty());
    match open() {
        Err(Errno::NOENT) => match mkdirat(above, name, mode) {
            Ok(()) | Err(Errno::EXIST) => open(),
            Err(errno) => Err(errno),
        },
        opened => opened,
    }
}

/// How paths are resolved.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Resolver {
    /// The kernel refuses what leads out.
    Openat2,
    /// Component by component.
    Walk,
}

impl Resolver {
    /// The best that this kernel allows.
    pub(super) fn detect(directory: BorrowedFd<'_>) -> Self {
        match Self::Openat2.open(directory, b".", OFlags::PATH | OFlags::DIRECTORY) {
            Ok(_) => Self::Openat2,
            Err(_) => Self::Walk,
        }
    }

    /// Opens what `path`, a checked path or `.`, names below `from`, never through a symbolic link.
    pub(super) fn open(self, from: BorrowedFd<'_>, path: &[u8], flags: OFlags) -> Result<OwnedFd, Errno> {
        let mut owned: Option<OwnedFd> = None;
        let mut rest = path;
        loop {
            let from = owned.as_ref().map_or(from, |fd| fd.as_fd());
            let piece_len = match self {
                Self::Openat2 => PIECE_LEN_MAX,
                Self::Walk => 0,
            };
            let (piece, left) = cut(rest, piece_len);
            if left.is_empty() {
                return self.open_piece(from, piece, flags);
            }
            owned = Some(self.open_piece(from, piece, OFlags::PATH | OFlags::DIRECTORY)?);
            rest = left;
        }
    }

    fn open_piece(self, from: BorrowedFd<'_>, piece: &[u8], flags: OFlags) -> Result<OwnedFd, Errno> {
        let flags = flags | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let beneath = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
        for _ in 0..TRIES {
            let opened = match self {
                Self::Openat2 => openat2(from, piece, flags, Mode::empty(), beneath),
                Self::Walk => openat(from, piece, flags, Mode::empty()),
            };
            match opened {
                Err(Errno::AGAIN | Errno::INTR) => {}
                // A walk sees "not a directory" where the kernel says "too many links".
                opened => return opened,
            }
        }
        Err(Errno::AGAIN)
    }
}

/// The longest run of whole components of at most `max` bytes, at least one, and the rest behind the slash.
fn cut(path: &[u8], max: usize) -> (&[u8], &[u8]) {
    if path.len() <= max {
        return (path, b"");
    }
    let slash = path[..max.min(path.len())].iter().rposition(|&byte| byte == b'/');
    let slash = slash.or_else(|| path.iter().position(|&byte| byte == b'/'));
    slash.map_or((path, &b""[..]), |slash| (&path[..slash], &path[slash + 1..]))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests fail by panicking")]
    use super::*;
    use rustix::fs::CWD;
    use std::fs;
    use std::os::unix::fs::symlink;

    const DIRECTORY: OFlags = OFlags::PATH.union(OFlags::DIRECTORY);

    #[test]
    fn both_resolvers_refuse_links() {
        let outside = tempfile::tempdir().unwrap();
        let inside = tempfile::tempdir().unwrap();
        fs::create_dir(inside.path().join("real")).unwrap();
        fs::create_dir(inside.path().join("real/deep")).unwrap();
        symlink(outside.path(), inside.path().join("out")).unwrap();
        symlink("real", inside.path().join("link")).unwrap();
        let root = openat(CWD, inside.path(), DIRECTORY, Mode::empty()).unwrap();
        for resolver in [Resolver::Openat2, Resolver::Walk] {
            assert!(resolver.open(root.as_fd(), b"real/deep", DIRECTORY).is_ok());
            for refused in [&b"out"[..], b"link", b"link/deep", b"out/x"] {
                let error = resolver.open(root.as_fd(), refused, DIRECTORY).unwrap_err();
                assert!(matches!(error, Errno::LOOP | Errno::NOTDIR), "{resolver:?} {error}");
            }
            assert_eq!(resolver.open(root.as_fd(), b"none", DIRECTORY).unwrap_err(), Errno::NOENT);
        }
    }

    #[test]
    fn pieces_are_whole_components() {
        assert_eq!(cut(b"a/b/c", 5), (&b"a/b/c"[..], &b""[..]));
        assert_eq!(cut(b"a/b/c", 4), (&b"a/b"[..], &b"c"[..]));
        assert_eq!(cut(b"a/b/c", 3), (&b"a"[..], &b"b/c"[..]));
        assert_eq!(cut(b"a/b/c", 0), (&b"a"[..], &b"b/c"[..]));
        assert_eq!(cut(b"abc", 0), (&b"abc"[..], &b""[..]));
    }

    #[test]
    fn a_path_longer_than_the_kernel_takes() {
        let inside = tempfile::tempdir().unwrap();
        let root = openat(CWD, inside.path(), DIRECTORY, Mode::empty()).unwrap();
        let name = [b'n'; 200];
        let mut fd = root.try_clone().unwrap();
        let mut path = Vec::new();
        for _ in 0..60 {
            mkdirat(&fd, &name[..], Mode::RWXU).unwrap();
            fd = openat(&fd, &name[..], DIRECTORY, Mode::empty()).unwrap();
            path.extend_from_slice(&name);
            path.push(b'/');
        }
        path.pop();
        for resolver in [Resolver::Openat2, Resolver::Walk] {
            assert!(resolver.open(root.as_fd(), &path, DIRECTORY).is_ok());
        }
    }
}
