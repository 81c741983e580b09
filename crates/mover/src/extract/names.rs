//! File systems that take two names for one.
//!
//! Where case does not count, a stream with `Name` and `name` would silently lose one of the two, and a hostile one
//! could choose which. The target is probed once; on such a file system a name that exists is compared with what its
//! directory lists, and a member that would land in the place of another name is refused. This costs a listing for each
//! name that exists, and nothing elsewhere.

use std::os::fd::{AsFd, BorrowedFd};

use rustix::fs::{AtFlags, Dir, Mode, OFlags, openat, statat, unlinkat};

/// Whether names that differ only by case are one file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Names {
    Exact,
    Folding,
}

impl Names {
    /// Finds out by making a file and looking it up in capitals.
    pub(super) fn probe(directory: BorrowedFd<'_>, random: u64) -> Self {
        let name = format!(".capstan-probe-{random:016x}");
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        if openat(directory, &name, flags, Mode::WUSR).is_err() {
            return Self::Exact;
        }
        let folds = statat(directory, name.to_uppercase(), AtFlags::SYMLINK_NOFOLLOW).is_ok();
        let _ = unlinkat(directory, &name, AtFlags::empty());
        if folds { Self::Folding } else { Self::Exact }
    }

    /// Whether a name that was found is listed as it was asked for.
    pub(super) fn is_listed(self, directory: BorrowedFd<'_>, name: &[u8]) -> bool {
        if self == Self::Exact {
            return true;
        }
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let Ok(listed) = openat(directory, c".", flags, Mode::empty()) else { return false };
        let Ok(entries) = Dir::read_from(listed.as_fd()) else { return false };
        entries.flatten().any(|entry| entry.file_name().to_bytes() == name)
    }
}
