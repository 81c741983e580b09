//! Keeps the backlog of dirty pages short, so that a synchronous flush waits for little.
//!
//! Left alone the kernel gathers up to a tenth of the memory before it writes, and the flush of a checkpoint would stall
//! until all of it is out. Here writing is started as each stretch is full; nothing waits for it.

use std::fs::File;
use std::os::fd::AsRawFd;

/// Bytes that are handed to the disk together.
const STRETCH_BYTES: u64 = 8 * 1024 * 1024;

/// How far writing was started.
pub(super) struct Writeback {
    started: u64,
}

impl Writeback {
    pub(super) fn new(offset: u64) -> Self {
        Self { started: offset }
    }

    /// Tells that the file was written up to `end`.
    pub(super) fn written(&mut self, file: &File, end: u64) {
        let len = end.saturating_sub(self.started);
        if len < STRETCH_BYTES {
            return;
        }
        start(file, self.started, len);
        self.started = end;
    }
}

/// A refusal costs speed at the next flush and nothing else, so the answer is not looked at.
fn start(file: &File, offset: u64, len: u64) {
    let (Ok(offset), Ok(len)) = (i64::try_from(offset), i64::try_from(len)) else { return };
    #[allow(unsafe_code, reason = "sync_file_range has no safe wrapper in rustix")]
    // SAFETY: the descriptor is open for as long as `file` is borrowed, and no memory is passed.
    unsafe {
        libc::sync_file_range(file.as_raw_fd(), offset, len, libc::SYNC_FILE_RANGE_WRITE);
    }
}
