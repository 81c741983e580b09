//! Keeps the backlog of dirty pages short, so that a synchronous flush waits for little.
//!
//! Left alone the kernel gathers up to a tenth of the memory before it writes, and the flush of a checkpoint would stall
//! until all of it is out. Here writing is started as each stretch is full. A thread does it, because the call that starts
//! the writing allocates the blocks of the file and waits when the disk's queue is full; the thread comes with the first full
//! stretch, so a small volume never has one. When it is behind, the next stretch grows.

use std::fs::File;
use std::os::fd::AsRawFd;
use std::sync::mpsc::{SyncSender, sync_channel};
use std::thread::JoinHandle;

/// Bytes that are handed to the disk together at least.
const STRETCH_BYTES: u64 = 8 * 1024 * 1024;
/// Stretches end with a page, since a page that is on its way to the disk may not be written to until it is there.
const PAGE_BYTES: u64 = 4096;

/// How far writing was started.
pub(super) struct Writeback {
    started: u64,
    worker: Option<Worker>,
}

struct Worker {
    stretches: SyncSender<Stretch>,
    thread: JoinHandle<()>,
}

struct Stretch {
    offset: u64,
    len: u64,
}

impl Writeback {
    /// Nothing is dirty in front of `offset`.
    pub(super) fn new(offset: u64) -> Self {
        Self { started: offset, worker: None }
    }

    /// The file was cut to `offset`.
    pub(super) fn cut(&mut self, offset: u64) {
        self.started = offset;
    }

    /// The file was written up to `end`.
    pub(super) fn written(&mut self, file: &File, end: u64) {
        let end = end - end % PAGE_BYTES;
        let stretch = Stretch { offset: self.started, len: end.saturating_sub(self.started) };
        if stretch.len < STRETCH_BYTES {
            return;
        }
        if self.worker.is_none() {
            self.worker = Worker::spawn(file);
        }
        if self.worker.as_ref().is_some_and(|worker| worker.stretches.try_send(stretch).is_ok()) {
            self.started = end;
        }
    }
}

impl Drop for Writeback {
    fn drop(&mut self) {
        if let Some(Worker { stretches, thread }) = self.worker.take() {
            drop(stretches);
            // It only ends early by a panic, and has nothing to tell.
            let _ = thread.join();
        }
    }
}

impl Worker {
    /// Without a descriptor or a thread to spare, flushes are slower and nothing else.
    fn spawn(file: &File) -> Option<Self> {
        let file = file.try_clone().ok()?;
        let (stretches, queue) = sync_channel::<Stretch>(1);
        let work = move || queue.iter().for_each(|stretch| start(&file, &stretch));
        let thread = std::thread::Builder::new().name("tape-writeback".to_owned()).spawn(work).ok()?;
        Some(Self { stretches, thread })
    }
}

/// A refusal costs speed at the next flush and nothing else, so the answer is not looked at.
fn start(file: &File, stretch: &Stretch) {
    let (Ok(offset), Ok(len)) = (i64::try_from(stretch.offset), i64::try_from(stretch.len)) else { return };
    #[allow(unsafe_code, reason = "sync_file_range has no safe wrapper in rustix")]
    // SAFETY: the descriptor is open for as long as `file` is borrowed, and no memory is passed.
    unsafe {
        libc::sync_file_range(file.as_raw_fd(), offset, len, libc::SYNC_FILE_RANGE_WRITE);
    }
}
