//! Locks between processes, and who holds them.
//!
//! `flock` is used because the kernel releases it with the process, however that ends, and because it also excludes a
//! second drive in the same process. Who holds a lock is read from `/proc/locks`: it is never stale, unlike a file with
//! a number.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::MetadataExt;

use rustix::fs::{FlockOperation, flock};

/// A locked file. The lock goes when this is dropped, even if a child process that was just forked still shares the
/// file: closing alone would leave the lock to the child until it executes its program.
#[derive(Debug)]
pub(crate) struct LockedFile(File);

/// What became of an attempt to lock.
pub(crate) enum Locked {
    /// The lock is ours.
    Ours(LockedFile),
    /// Someone else holds it: a process by number and name, as far as can be told.
    HeldBy(String),
}

/// Locks a file for this open description alone, without waiting.
pub(crate) fn try_lock(file: File) -> io::Result<Locked> {
    match flock(&file, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(Locked::Ours(LockedFile(file))),
        Err(rustix::io::Errno::WOULDBLOCK) => Ok(Locked::HeldBy(holder(&file))),
        Err(error) => Err(error.into()),
    }
}

/// Locks a file and waits until it can be had.
pub(crate) fn wait_lock(file: File) -> io::Result<LockedFile> {
    rustix::io::retry_on_intr(|| flock(&file, FlockOperation::LockExclusive))?;
    Ok(LockedFile(file))
}

impl std::ops::Deref for LockedFile {
    type Target = File;

    fn deref(&self) -> &File {
        &self.0
    }
}

impl AsFd for LockedFile {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl Drop for LockedFile {
    fn drop(&mut self) {
        // If this fails, closing the file does it.
        let _ = flock(&self.0, FlockOperation::Unlock);
    }
}

/// How often the holder of a lock is looked for.
const LOOKS: u32 = 8;

fn holder(file: &File) -> String {
    let unknown = || "another process".to_owned();
    let Ok(metadata) = file.metadata() else { return unknown() };
    // The kernel walks its list anew for each piece that is read, and may pass over a lock while others come and go.
    let look = |_| find_holder(&std::fs::read_to_string("/proc/locks").ok()?, metadata.ino());
    let Some(pid) = (0..LOOKS).find_map(look) else { return unknown() };
    match std::fs::read_to_string(format!("/proc/{pid}/comm")) {
        Ok(name) => format!("process {pid} ({})", name.trim_end()),
        Err(_) => format!("process {pid}"),
    }
}

/// The process that holds a `flock` on the inode, in the text of `/proc/locks`: lines of the form
/// `1: FLOCK  ADVISORY  WRITE 1234 fe:00:5678 0 EOF`.
fn find_holder(locks: &str, inode: u64) -> Option<u32> {
    let inode = inode.to_string();
    locks.lines().find_map(|line| {
        let mut fields = line.split_ascii_whitespace().skip(1);
        // A waiting lock has `->` here.
        (fields.next()? == "FLOCK").then_some(())?;
        let pid = fields.nth(2)?.parse().ok()?;
        (fields.next()?.rsplit(':').next()? == inode).then_some(pid)
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests fail by panicking")]
    use super::*;

    fn open(file: &tempfile::NamedTempFile) -> File {
        File::open(file.path()).unwrap()
    }

    #[test]
    fn a_second_lock_names_the_holder() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let Locked::Ours(first) = try_lock(open(&file)).unwrap() else { panic!("not locked") };
        let Locked::HeldBy(holder) = try_lock(open(&file)).unwrap() else { panic!("locked twice") };
        assert!(holder.contains(&std::process::id().to_string()), "{holder}");
        drop(first);
        assert!(matches!(try_lock(open(&file)).unwrap(), Locked::Ours(_)));
    }

    /// A load failed now and then with "in use by another process" while some other thread started a program: the child
    /// shared the file for the moment between fork and exec. A second descriptor of the same file does as that child
    /// did.
    #[test]
    fn a_lock_goes_although_a_child_shares_the_file() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let Locked::Ours(locked) = try_lock(open(&file)).unwrap() else { panic!("not locked") };
        let child = locked.try_clone().unwrap();
        drop(locked);
        assert!(matches!(try_lock(open(&file)).unwrap(), Locked::Ours(_)));
        drop(child);
    }

    #[test]
    fn the_kernels_list_is_understood() {
        let list = "1: POSIX  ADVISORY  WRITE 11 fe:00:77 0 EOF\n2: FLOCK  ADVISORY  WRITE 12 fe:00:77 0 EOF\n2: -> FLOCK  ADVISORY  WRITE 13 fe:00:77 0 EOF\n";
        assert_eq!(find_holder(list, 77), Some(12));
        assert_eq!(find_holder(list, 78), None);
    }
}
