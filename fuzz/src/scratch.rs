//! Where targets put files: in memory, and gone when the process ends.

use std::path::Path;

use tempfile::TempDir;

/// A directory of its own.
pub(crate) fn directory() -> TempDir {
    let memory = Path::new("/dev/shm");
    let made = tempfile::Builder::new().prefix("capstan-fuzz-").tempdir_in(memory).or_else(|_| tempfile::tempdir());
    made.expect("the test needs a directory to write in")
}
