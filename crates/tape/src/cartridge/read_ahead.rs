//! Reads a file that is read from front to back ahead of whoever reads it, in large pieces and past the page cache.
//!
//! A restore or a verification reads a volume once. Through the page cache each byte would take a page from the files
//! that are being written, and be copied twice. A thread reads the pieces that follow while the present one is used up.
//!
//! It only saves time: what it cannot give (a piece that fails, a place that nobody expected, a file system without
//! direct reads) is read from the file as it ever was, and a failure is told by that read.

use std::collections::VecDeque;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::JoinHandle;

use super::direct::{Memory, PAGE_BYTES, PIECE_BYTES, open_direct};

/// Bytes that must have been read one behind the other before anything is read ahead: whoever looks for one file reads
/// less.
const RUN_BYTES_MIN: u64 = 2 * 1024 * 1024;
/// What may lie between two reads of a run: the header of a record.
const GAP_MAX: u64 = 64;
/// Pieces that are read or wait to be used.
const AHEAD: usize = 3;

/// What is read ahead of one reader of a file.
pub(super) struct ReadAhead {
    /// Where the last read ended, and how many bytes were read up to there without a jump.
    run: (u64, u64),
    worker: Option<Worker>,
    /// Direct reads do not work here.
    refused: bool,
}

/// Bytes of a file from a page's border on.
struct Piece {
    offset: u64,
    memory: Memory,
    /// What could be read: less than a piece at the end of the file.
    len: usize,
}

struct Worker {
    wanted: SyncSender<Piece>,
    read: Receiver<Piece>,
    /// Pieces that were read, one behind the other in the file.
    here: VecDeque<Piece>,
    /// Pieces on their way, which follow them.
    out: usize,
    /// Where the piece behind all of these begins.
    next: u64,
    thread: JoinHandle<()>,
}

impl ReadAhead {
    pub(super) fn new() -> Self {
        Self { run: (0, 0), worker: None, refused: false }
    }

    /// Forgets what was read: the file is about to change.
    pub(super) fn forget(&mut self) {
        if let Some(worker) = self.worker.take() {
            worker.end();
        }
        self.run = (0, 0);
    }

    /// Copies bytes of the file from `at` on to `buffer`, and says how many: it may have fewer, or none.
    pub(super) fn read(&mut self, file: &File, at: u64, buffer: &mut [u8]) -> usize {
        let (end, run) = self.run;
        let run = if at.checked_sub(end).is_some_and(|gap| gap <= GAP_MAX) { run } else { 0 };
        if self.worker.as_ref().is_some_and(|worker| !worker.expects(at)) {
            self.forget();
        }
        self.run = (at + buffer.len() as u64, run + buffer.len() as u64);
        if self.worker.is_none() && run >= RUN_BYTES_MIN && !self.refused {
            self.worker = Worker::spawn(file, at);
            self.refused = self.worker.is_none();
        }
        let Some(worker) = &mut self.worker else { return 0 };
        worker.copy(at, buffer).unwrap_or_else(|| {
            self.forget();
            0
        })
    }
}

impl Drop for ReadAhead {
    fn drop(&mut self) {
        self.forget();
    }
}

impl Worker {
    fn spawn(file: &File, at: u64) -> Option<Self> {
        let direct = open_direct(file, OpenOptions::new().read(true)).ok()?;
        let (wanted, queue) = sync_channel::<Piece>(AHEAD);
        let (done, read) = sync_channel(AHEAD);
        let work = move || {
            for mut piece in queue {
                piece.len = fill(&direct, piece.offset, piece.memory.bytes());
                if done.send(piece).is_err() {
                    return;
                }
            }
        };
        let thread = std::thread::Builder::new().name("tape-read".to_owned()).spawn(work).ok()?;
        let next = at - at % PAGE_BYTES as u64;
        let mut worker = Self { wanted, read, here: VecDeque::new(), out: 0, next, thread };
        (0..AHEAD).for_each(|_| worker.ask(Memory::new()));
        Some(worker)
    }

    fn ask(&mut self, memory: Memory) {
        // A thread that ended has panicked; the read that waits for it says so.
        let _ = self.wanted.send(Piece { offset: self.next, memory, len: 0 });
        self.out += 1;
        self.next += PIECE_BYTES as u64;
    }

    /// Whether `at` is in what was read or is on its way.
    fn expects(&self, at: u64) -> bool {
        let begin = self.next - (PIECE_BYTES * (self.here.len() + self.out)) as u64;
        (begin..self.next).contains(&at)
    }

    /// How many bytes of `buffer` it could give; none if no more is to come.
    fn copy(&mut self, at: u64, buffer: &mut [u8]) -> Option<usize> {
        let mut found = 0;
        while found < buffer.len() {
            let at = at + found as u64;
            let Some(piece) = self.here.front_mut() else {
                let piece = self.read.recv().ok()?;
                self.out -= 1;
                self.here.push_back(piece);
                continue;
            };
            let from = usize::try_from(at - piece.offset).ok()?;
            if from >= PIECE_BYTES {
                if let Some(piece) = self.here.pop_front() {
                    self.ask(piece.memory);
                }
                continue;
            }
            if from >= piece.len {
                // Nothing further can be had here: the end of the file, or a place that cannot be read.
                return (found > 0).then_some(found);
            }
            let len = (piece.len - from).min(buffer.len() - found);
            buffer[found..found + len].copy_from_slice(&piece.memory.bytes()[from..from + len]);
            found += len;
        }
        Some(found)
    }

    fn end(self) {
        let Self { wanted, read, thread, .. } = self;
        drop((wanted, read));
        // It has nothing to tell.
        let _ = thread.join();
    }
}

/// How many bytes from `offset` on could be read.
fn fill(file: &File, offset: u64, bytes: &mut [u8]) -> usize {
    let mut found = 0;
    while found < bytes.len() {
        match file.read_at(&mut bytes[found..], offset + found as u64) {
            Ok(0) => break,
            Ok(len) => found += len,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(_) => break,
        }
        // Behind a short read the rest is not aligned any more: it was the end of the file.
        if found % PAGE_BYTES != 0 {
            break;
        }
    }
    found
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests fail by panicking")]
    use super::*;

    const LEN: usize = 5 * PIECE_BYTES + 12_345;

    fn file() -> (File, Vec<u8>) {
        let file = tempfile::tempfile_in(".").unwrap();
        let bytes: Vec<u8> = (0..LEN).map(|at| (at * 31 + at / 4096 * 7) as u8).collect();
        file.write_all_at(&bytes, 0).unwrap();
        (file, bytes)
    }

    /// Reads as a drive does: what is not read ahead comes from the file.
    fn read(ahead: &mut ReadAhead, file: &File, at: usize, len: usize) -> (Vec<u8>, usize) {
        let mut buffer = vec![0xEE; len];
        let found = ahead.read(file, at as u64, &mut buffer);
        file.read_exact_at(&mut buffer[found..], (at + found) as u64).unwrap();
        (buffer, found)
    }

    #[test]
    fn what_is_read_from_front_to_back_comes_ahead() {
        let (file, bytes) = file();
        let mut ahead = ReadAhead::new();
        let (mut at, mut step, mut given) = (0, 1, 0);
        while at < LEN {
            let len = step.min(LEN - at);
            let (got, found) = read(&mut ahead, &file, at, len);
            assert!(got == bytes[at..at + len], "at {at}");
            given += found;
            at += len;
            step = step * 5 % 1_000_003;
        }
        assert!(given > LEN / 2 || ahead.refused, "{given} of {LEN}");
    }

    #[test]
    fn a_jump_begins_anew() {
        let (file, bytes) = file();
        let mut ahead = ReadAhead::new();
        let len = 300_000;
        for begin in [0, 9_000_001, 4_000_000, 17_000_000] {
            for at in (begin..).step_by(len).take(12) {
                assert!(read(&mut ahead, &file, at, len).0 == bytes[at..at + len], "at {at}");
            }
        }
    }

    #[test]
    fn what_changed_is_read_again() {
        let (file, mut bytes) = file();
        let mut ahead = ReadAhead::new();
        let len = 500_000;
        for at in (0..).step_by(len).take(10) {
            read(&mut ahead, &file, at, len);
        }
        ahead.forget();
        bytes.fill(7);
        file.write_all_at(&bytes, 0).unwrap();
        for at in (5_000_000..).step_by(len).take(10) {
            assert!(read(&mut ahead, &file, at, len).0 == bytes[at..at + len], "at {at}");
        }
    }
}
