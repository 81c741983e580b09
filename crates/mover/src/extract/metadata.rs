//! Owner, attributes, access control lists, times and mode of what was just made.
//!
//! The order matters. The owner comes first, because a change of owner takes away setuid bits and capabilities;
//! attributes before the mode, because a read-only mode would refuse them to a caller who is not root; the mode comes
//! last, because until then a file has mode 0200 and so does not look complete.

use std::fmt;
use std::os::fd::{AsRawFd, BorrowedFd};

use capstan_format::pax::DecodedMember;
use rustix::fs::{
    AtFlags, Gid, Mode, Timespec, Timestamps, UTIME_OMIT, Uid, XattrFlags, chmodat, chownat, fchmod, fchown,
    fremovexattr, fsetxattr, futimens, setxattr, utimensat,
};
use rustix::io::Errno;

use super::acl;
use super::options::Owners;

const ACL_ACCESS: &[u8] = b"system.posix_acl_access";
const ACL_DEFAULT: &[u8] = b"system.posix_acl_default";
const CAPABILITY: &[u8] = b"security.capability";
const SET_ID_BITS: u32 = 0o6000;
const SET_USER_ID: u32 = 0o4000;

/// What is said of a file that had privileges, and gets none.
const LEFT_OUT: &str = "its set-user-ID and set-group-ID bits and its capabilities are left out, because this restore \
                        was not typed at the machine that it writes to: restore it there, or set them by hand";

/// What the metadata is set on.
#[derive(Clone, Copy)]
pub(super) enum Handle<'a> {
    /// A regular file, open for writing.
    File(BorrowedFd<'a>),
    /// A directory, open for reading.
    Directory(BorrowedFd<'a>),
    /// A pipe or device, opened with O_PATH because opening it for real would wake what is behind it.
    Node(BorrowedFd<'a>),
    /// A symbolic link, opened with O_PATH.
    Symlink(BorrowedFd<'a>),
}

/// Who owns it now, and whether it may have got an access control list from its directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct MadeAs {
    pub(super) uid: u32,
    pub(super) gid: u32,
    pub(super) acl: InheritedAcl,
}

/// Whether a new file got an access control list from its directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum InheritedAcl {
    No,
    Perhaps,
}

/// Sets everything that `member` says. What could not be set is told to `problem`; the rest is set all the same.
pub(super) fn apply(
    handle: Handle<'_>,
    member: &DecodedMember,
    made_as: MadeAs,
    owners: Owners,
    problem: &mut dyn FnMut(String),
) {
    let mut notes = Notes(problem);
    let owned = match owners {
        Owners::Caller => false,
        Owners::Restore | Owners::WithoutPrivileges if (member.uid, member.gid) == (made_as.uid, made_as.gid) => true,
        Owners::Restore | Owners::WithoutPrivileges => {
            let set = handle.chown(member.uid, member.gid);
            notes.check(format_args!("owner {} and group {}", member.uid, member.gid), set);
            set.is_ok()
        }
    };
    // A directory's bits give nobody rights: they say which group files get that are made in it.
    let bars = owners == Owners::WithoutPrivileges && !matches!(handle, Handle::Directory(_));
    let has_some = member.mode & SET_ID_BITS != 0 || member.xattrs.iter().any(|(name, _)| name == CAPABILITY);
    if bars && has_some {
        (notes.0)(LEFT_OUT.to_owned());
    }
    let owned = owned && !bars;
    for (name, value) in &member.xattrs {
        // Capabilities are a kind of setuid bit: they say what whoever runs the file may do.
        if owned || name != CAPABILITY {
            // Linux takes 255 bytes of name; what is longer is shown as far.
            let shown = name[..name.len().min(255)].escape_ascii();
            notes.check(format_args!("attribute {shown}"), handle.set_xattr(name, value));
        }
    }
    // On a directory the set-group-ID bit gives nobody a right: what is made in it gets the group that it has already.
    let keeps_group = matches!(handle, Handle::Directory(_)) && member.gid == made_as.gid;
    let mut mode = match (owned, keeps_group) {
        (true, _) => member.mode,
        (false, true) => member.mode & !SET_USER_ID,
        (false, false) => member.mode & !SET_ID_BITS,
    };
    let symlink = matches!(handle, Handle::Symlink(_));
    for (name, text) in [(ACL_ACCESS, &member.acl_access), (ACL_DEFAULT, &member.acl_default)] {
        if !text.is_empty() && !symlink {
            let (set, mask) = match acl::encode(text) {
                Ok(list) => {
                    let set = handle.set_xattr(name, &list.value);
                    notes.check(format_args!("the access control list"), set);
                    (set.is_ok(), list.mask)
                }
                Err(reason) => {
                    (notes.0)(reason);
                    (false, None)
                }
            };
            // With a mask the mode's group bits are the mask, and libarchive stores those of the group instead. Without
            // the list, the group is to have no more than its own.
            let group = if set { mask } else { acl::group_alone(text) };
            if let (Some(group), ACL_ACCESS) = (group, name) {
                mode = mode & !0o070 | u32::from(group) << 3;
            }
            if !set && made_as.acl == InheritedAcl::Perhaps {
                handle.remove_xattr(name);
            }
        } else if made_as.acl == InheritedAcl::Perhaps {
            handle.remove_xattr(name);
        }
    }
    notes.check(format_args!("times"), handle.set_times(member));
    if !symlink {
        notes.check(format_args!("mode"), handle.chmod(mode));
    }
}

/// Tells of what failed.
struct Notes<'a>(&'a mut dyn FnMut(String));

impl Notes<'_> {
    fn check(&mut self, what: fmt::Arguments<'_>, result: Result<(), Errno>) {
        if let Err(errno) = result {
            (self.0)(format!("cannot set {what}: {errno}"));
        }
    }
}

/// Access and modification time as the kernel takes them; an unknown access time is left.
pub(super) fn timestamps(member: &DecodedMember) -> Timestamps {
    let timespec = |ns: i128| Timespec {
        tv_sec: i64::try_from(ns.div_euclid(1_000_000_000)).unwrap_or(i64::MAX),
        tv_nsec: ns.rem_euclid(1_000_000_000) as i64,
    };
    let omitted = Timespec { tv_sec: 0, tv_nsec: UTIME_OMIT };
    Timestamps { last_access: member.atime_ns.map_or(omitted, timespec), last_modification: timespec(member.mtime_ns) }
}

impl Handle<'_> {
    fn chown(self, uid: u32, gid: u32) -> Result<(), Errno> {
        // The kernel takes the highest id for "leave it".
        if uid == u32::MAX || gid == u32::MAX {
            return Err(Errno::INVAL);
        }
        let (uid, gid) = (Some(Uid::from_raw(uid)), Some(Gid::from_raw(gid)));
        match self {
            Self::File(fd) | Self::Directory(fd) => fchown(fd, uid, gid),
            Self::Node(fd) | Self::Symlink(fd) => chownat(fd, c"", uid, gid, AtFlags::EMPTY_PATH),
        }
    }

    fn chmod(self, mode: u32) -> Result<(), Errno> {
        let mode = Mode::from_raw_mode(mode);
        match self {
            Self::File(fd) | Self::Directory(fd) => fchmod(fd, mode),
            Self::Node(fd) | Self::Symlink(fd) => chmodat(rustix::fs::CWD, descriptor_path(fd), mode, AtFlags::empty()),
        }
    }

    fn set_xattr(self, name: &[u8], value: &[u8]) -> Result<(), Errno> {
        match self {
            Self::File(fd) | Self::Directory(fd) => fsetxattr(fd, name, value, XattrFlags::empty()),
            Self::Node(fd) | Self::Symlink(fd) => setxattr(descriptor_path(fd), name, value, XattrFlags::empty()),
        }
    }

    /// That there was none, or that the file system has none, is what is wanted.
    fn remove_xattr(self, name: &[u8]) {
        let _ = match self {
            Self::File(fd) | Self::Directory(fd) => fremovexattr(fd, name),
            Self::Node(fd) => rustix::fs::removexattr(descriptor_path(fd), name),
            Self::Symlink(_) => Ok(()),
        };
    }

    fn set_times(self, member: &DecodedMember) -> Result<(), Errno> {
        let times = timestamps(member);
        match self {
            Self::File(fd) | Self::Directory(fd) => futimens(fd, &times),
            Self::Node(fd) | Self::Symlink(fd) => utimensat(fd, c"", &times, AtFlags::EMPTY_PATH),
        }
    }
}

/// The way to an inode for calls that take no O_PATH descriptor: it leads to what is open, whatever its name is by now.
pub(super) fn descriptor_path(fd: BorrowedFd<'_>) -> String {
    format!("/proc/self/fd/{}", fd.as_raw_fd())
}
