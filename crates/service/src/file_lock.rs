//! Files that one process alone may write.

use std::fs::{File, TryLockError};
use std::io;
use std::path::Path;
use std::thread;
use std::time::Duration;

/// A process that is just being started holds the locks of the one that starts it, between fork and exec.
const TRIES: u32 = 20;
const PAUSE: Duration = Duration::from_millis(50);

/// Takes the lock of a path, for as long as the file is open; none if another process has it.
///
/// # Errors
/// The file cannot be made or locked.
pub fn lock(path: &Path) -> io::Result<Option<File>> {
    let file = File::create(path)?;
    for _ in 0..TRIES {
        match file.try_lock() {
            Ok(()) => return Ok(Some(file)),
            Err(TryLockError::WouldBlock) => thread::sleep(PAUSE),
            Err(TryLockError::Error(error)) => return Err(error),
        }
    }
    Ok(None)
}
