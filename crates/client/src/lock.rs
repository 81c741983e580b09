//! One process alone runs from the state directory of a client or a mover.
//!
//! What is locked (`flock`) is the folder `cell` itself, and no file in it: nothing is written, so a disk that can only
//! be read is none the worse for it. The kernel lets go of the lock with the process, however that ends. Over NFS it
//! counts among the processes of one machine. Rejected: a file with the number of the process, which stays behind when
//! that is killed.
//!
//! Commands that only ask the server take no lock: they work beside a client that runs.

use std::fs::{File, TryLockError};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::thread;
use std::time::Duration;

use rustix::fs::{major, minor};

use crate::{ClientError, MemberState};

/// A process that is just being killed, or starts a program, has the lock for some moments more.
const TRIES: u32 = 20;
const PAUSE: Duration = Duration::from_millis(50);

/// The state directory of a client or a mover that runs: no other process runs from it as long as this is kept.
#[derive(Debug)]
pub struct LockedState {
    state: MemberState,
    folder: File,
    /// Why it is not locked, if the file system has no locks.
    problem: Option<io::Error>,
}

impl MemberState {
    /// Locks it for a client or a mover that is to run. Where the file system has no locks, whoever runs goes on
    /// without, and says so.
    ///
    /// # Errors
    /// [`ClientError::RunsAlready`] if another process runs from it; [`ClientError::NotJoined`], or the folder cannot
    /// be opened.
    pub fn lock(&self) -> Result<LockedState, ClientError> {
        let path = self.cell_folder();
        let folder = File::open(&path).map_err(|error| match error.kind() {
            io::ErrorKind::NotFound => ClientError::NotJoined { path: self.dir().to_owned(), kind: self.kind() },
            _ => ClientError::io("open", &path)(error),
        })?;
        for _ in 0..TRIES {
            let problem = match folder.try_lock() {
                Ok(()) => None,
                Err(TryLockError::WouldBlock) => {
                    thread::sleep(PAUSE);
                    continue;
                }
                Err(TryLockError::Error(error)) => Some(error),
            };
            return Ok(LockedState { state: self.clone(), folder, problem });
        }
        Err(ClientError::RunsAlready { path: self.dir().to_owned(), kind: self.kind(), holder: holder(&folder) })
    }
}

impl LockedState {
    /// Whose it is.
    pub(crate) fn state(&self) -> &MemberState {
        &self.state
    }

    /// Why nothing keeps a second process off it, in words, if nothing does.
    pub(crate) fn problem(&self) -> Option<String> {
        let (dir, kind) = (self.state.dir().display(), self.state.kind());
        let problem = self.problem.as_ref()?;
        Some(format!("{dir} cannot be locked ({problem}): see that no second `capstan {kind} run` uses it"))
    }
}

impl Drop for LockedState {
    fn drop(&mut self) {
        // A program that is just being started shares the lock until it is executed. If this fails, closing does it.
        let _ = self.folder.unlock();
    }
}

/// Who has the lock of a folder, as far as can be told: the kernel's list says it, which is never stale.
fn holder(folder: &File) -> String {
    let process = folder.metadata().ok().and_then(|metadata| {
        let device = metadata.dev();
        let place = format!("{:02x}:{:02x}:{}", major(device), minor(device), metadata.ino());
        find_holder(&std::fs::read_to_string("/proc/locks").ok()?, &place)
    });
    process.map_or_else(|| "another process".to_owned(), |process| format!("process {process}"))
}

/// The process that has locked a place, in the text of `/proc/locks`: lines of the form
/// `1: FLOCK  ADVISORY  WRITE 1234 fe:00:5678 0 EOF`; one that waits has `->` before its kind.
fn find_holder(locks: &str, place: &str) -> Option<u32> {
    locks.lines().find_map(|line| match line.split_ascii_whitespace().collect::<Vec<_>>().as_slice() {
        [_, "FLOCK", _, _, process, at, ..] if *at == place => process.parse().ok(),
        _ => None,
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

    use capstan_keys::api::PeerKind;

    use super::*;

    /// A client that somebody started by hand beside the service's asked for the same orders under the same name.
    #[test]
    fn a_second_process_is_refused_and_nothing_is_written() {
        let folder = tempfile::tempdir().unwrap();
        let state = MemberState::new(folder.path(), PeerKind::Client);
        let not_joined = state.lock().unwrap_err();
        assert!(matches!(not_joined, ClientError::NotJoined { .. }), "{not_joined}");
        let cell = folder.path().join("cell");
        std::fs::create_dir(&cell).unwrap();
        let first = state.lock().unwrap();
        assert_eq!((first.state(), first.problem()), (&state, None));
        let second = state.lock().unwrap_err();
        assert!(matches!(second, ClientError::RunsAlready { .. }), "{second}");
        assert!(second.to_string().contains("stop it first"), "{second}");
        assert_eq!(std::fs::read_dir(&cell).unwrap().count(), 0);
        drop(first);
        // Whoever shares the file for a moment, as a program does that is just being started, does not keep the lock.
        let again = state.lock().unwrap();
        let shared = again.folder.try_clone().unwrap();
        drop(again);
        state.lock().unwrap();
        drop(shared);
    }

    #[test]
    fn a_state_that_has_no_locks_is_used_and_named() {
        let folder = tempfile::tempdir().unwrap();
        let state = MemberState::new(folder.path(), PeerKind::Mover);
        let problem = Some(io::Error::from(io::ErrorKind::Unsupported));
        let unlocked = LockedState { state, folder: File::open(folder.path()).unwrap(), problem };
        let said = unlocked.problem().unwrap();
        assert!(said.contains("see that no second `capstan mover run` uses it"), "{said}");
    }

    #[test]
    fn the_kernels_list_is_understood() {
        let list = "1: POSIX  ADVISORY  WRITE 11 fe:00:77 0 EOF\n2: FLOCK  ADVISORY  WRITE 12 fe:00:77 0 EOF\n\
                    2: -> FLOCK  ADVISORY  WRITE 13 fe:00:77 0 EOF\n3: FLOCK  ADVISORY  WRITE 14 00:2a:77 0 EOF\n";
        assert_eq!(find_holder(list, "fe:00:77"), Some(12));
        assert_eq!(find_holder(list, "00:2a:77"), Some(14), "the same number on another disk");
        assert_eq!(find_holder(list, "fe:00:78"), None);
    }
}
