//! Writes the end of a file in large pieces, behind the back of whoever appends to it, and past the page cache.
//!
//! What is appended is gathered; a full piece goes to a thread that writes it while the next is gathered. Past the page
//! cache, because a volume is long and is not read again soon: its pages would drive out those of the files that are
//! backed up, and on a virtual machine the first touch of each can cost more than the disk does (`./x bench` has `cat`
//! beside it). Where a file system does not allow that, pieces go through the cache, and each is sent on to the disk as
//! it comes, so that a synchronous flush waits for little.
//!
//! As with a tape drive's buffer, a failure is told later: by the next append or by [`WriteBehind::settle`].

use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::JoinHandle;

use super::direct::{Memory, PAGE_BYTES, PIECE_BYTES, open_direct};

/// Less than this goes through the page cache: a direct write waits for the disk.
const DIRECT_BYTES_MIN: usize = 256 * 1024;
/// Pieces that wait for the disk.
const WAITING_MAX: usize = 2;

/// The end of a file, some of which is not yet written.
pub(super) struct WriteBehind {
    gathered: Piece,
    worker: Option<Worker>,
}

/// Bytes of a file from a page's border on.
struct Piece {
    offset: u64,
    memory: Memory,
    len: usize,
    /// Bytes, from the beginning, that are in the file already: less than a page.
    clean: usize,
}

/// A failed write: from where on the file lacks what was appended.
#[derive(Debug)]
pub(super) struct Lost {
    /// Everything in front of it is in the file.
    pub(super) offset: u64,
    /// Why.
    pub(super) source: io::Error,
}

struct Worker {
    full: SyncSender<Piece>,
    empty: Receiver<(Piece, Result<(), Lost>)>,
    /// Pieces on their way.
    out: usize,
    failed: bool,
    spare: Vec<Piece>,
    thread: JoinHandle<()>,
}

impl Piece {
    fn new(offset: u64) -> Self {
        Self { offset, memory: Memory::new(), len: 0, clean: 0 }
    }

    fn bytes(&mut self) -> &mut [u8] {
        self.memory.bytes()
    }

    fn end(&self) -> u64 {
        self.offset + self.len as u64
    }
}

impl WriteBehind {
    /// Everything is in the file, which ends at `end`.
    pub(super) fn new(end: u64) -> Self {
        let mut this = Self { gathered: Piece { offset: 0, memory: Memory::empty(), len: 0, clean: 0 }, worker: None };
        this.cut(end);
        this
    }

    /// Begins again at `end`, where the file was cut. What was gathered is forgotten, so it is settled before or not
    /// wanted.
    pub(super) fn cut(&mut self, end: u64) {
        // Behind a failure the thread writes nothing any more; the next full piece gets another one.
        if self.worker.as_ref().is_some_and(|worker| worker.out > 0 || worker.failed) {
            self.stop();
        }
        let within = (end % PAGE_BYTES as u64) as usize;
        // The page that the end lies in is read when it is needed.
        self.gathered = Piece { offset: end - within as u64, memory: Memory::empty(), len: within, clean: within };
    }

    /// Whether everything that was appended is in the file.
    pub(super) fn is_settled(&self) -> bool {
        self.gathered.clean == self.gathered.len && self.worker.as_ref().is_none_or(|worker| worker.out == 0)
    }

    /// Appends to the file. An error is one of an earlier append, too.
    pub(super) fn append(&mut self, file: &File, mut bytes: &[u8]) -> Result<(), Lost> {
        if self.gathered.memory.is_empty() {
            self.begin_piece(file)?;
        }
        while !bytes.is_empty() {
            let len = self.gathered.len;
            let (now, later) = bytes.split_at(bytes.len().min(PIECE_BYTES - len));
            self.gathered.bytes()[len..len + now.len()].copy_from_slice(now);
            self.gathered.len += now.len();
            bytes = later;
            if self.gathered.len == PIECE_BYTES {
                self.hand_on(file)?;
            }
        }
        Ok(())
    }

    /// Waits until everything that was appended is in the file: not on the disk, which takes a synchronisation besides.
    pub(super) fn settle(&mut self, file: &File) -> Result<(), Lost> {
        if let Some(worker) = &mut self.worker {
            while worker.out > 0 {
                worker.take_back(self.gathered.offset)?;
            }
        }
        let Piece { offset, len, clean, .. } = self.gathered;
        if clean == len {
            return Ok(());
        }
        // The pages that are full, from the one that holds the first byte to be written.
        let (first, pages) = (clean - clean % PAGE_BYTES, len - len % PAGE_BYTES);
        let mut from = clean;
        if pages.saturating_sub(first) >= DIRECT_BYTES_MIN
            && let Ok(direct) = open_direct(file, OpenOptions::new().write(true))
            && direct.write_all_at(&self.gathered.bytes()[first..pages], offset + first as u64).is_ok()
        {
            from = pages;
        }
        file.write_all_at(&self.gathered.bytes()[from..len], offset + from as u64)
            .map_err(|source| Lost { offset: offset + from as u64, source })?;
        // The last page is kept: the piece that follows begins with it.
        self.gathered.bytes().copy_within(pages..len, 0);
        self.gathered.offset += pages as u64;
        self.gathered.len = len - pages;
        self.gathered.clean = len - pages;
        Ok(())
    }

    fn stop(&mut self) {
        if let Some(Worker { full, empty, thread, .. }) = self.worker.take() {
            drop((full, empty));
            // It ends early only by a panic, and has nothing to tell.
            let _ = thread.join();
        }
    }

    /// Gets memory for the page that the file ends in, and reads it.
    fn begin_piece(&mut self, file: &File) -> Result<(), Lost> {
        let Piece { offset, len, .. } = self.gathered;
        let mut piece = Piece::new(offset);
        (piece.len, piece.clean) = (len, len);
        file.read_exact_at(&mut piece.bytes()[..len], offset)
            .map_err(|source| Lost { offset: offset + len as u64, source })?;
        self.gathered = piece;
        Ok(())
    }

    /// Sends the full piece on its way and begins the next.
    fn hand_on(&mut self, file: &File) -> Result<(), Lost> {
        if self.worker.is_none() {
            self.worker = Worker::spawn(file);
        }
        let next = self.gathered.end();
        let Some(worker) = &mut self.worker else {
            // Without a thread to spare it takes longer and nothing else.
            self.settle(file)?;
            return Ok(());
        };
        while worker.out > WAITING_MAX {
            worker.take_back(self.gathered.offset)?;
        }
        let mut empty = worker.spare.pop().unwrap_or_else(|| Piece::new(next));
        (empty.offset, empty.len, empty.clean) = (next, 0, 0);
        let full = std::mem::replace(&mut self.gathered, empty);
        worker.out += 1;
        if worker.full.send(full).is_err() {
            return Err(worker.ended(next));
        }
        Ok(())
    }
}

impl Drop for WriteBehind {
    fn drop(&mut self) {
        self.stop();
    }
}

impl Worker {
    fn spawn(file: &File) -> Option<Self> {
        let mut target =
            Target { direct: open_direct(file, OpenOptions::new().write(true)).ok(), cached: file.try_clone().ok()? };
        let (full, queue) = sync_channel::<Piece>(WAITING_MAX);
        let (back, empty) = sync_channel(WAITING_MAX + 1);
        let work = move || {
            let mut failed: Option<u64> = None;
            for mut piece in queue {
                // Behind a piece that is lost nothing may follow: the file ends in front of it.
                let written = match failed {
                    Some(offset) => Err(Lost { offset, source: io::Error::other("an earlier write failed") }),
                    None => target.write(&mut piece),
                };
                failed = failed.or(written.as_ref().err().map(|lost| lost.offset));
                if back.send((piece, written)).is_err() {
                    return;
                }
            }
        };
        let thread = std::thread::Builder::new().name("tape-write".to_owned()).spawn(work).ok()?;
        Some(Self { full, empty, out: 0, failed: false, spare: Vec::new(), thread })
    }

    /// Waits for a piece to come back. All that are out end at `behind`, where the next begins.
    fn take_back(&mut self, behind: u64) -> Result<(), Lost> {
        let Ok((piece, written)) = self.empty.recv() else { return Err(self.ended(behind)) };
        self.out -= 1;
        self.failed |= written.is_err();
        self.spare.push(piece);
        written
    }

    /// The thread has panicked: nobody knows how far it came with what is out.
    fn ended(&mut self, behind: u64) -> Lost {
        let unknown = self.out * PIECE_BYTES;
        (self.out, self.failed) = (0, true);
        // A piece begins less than a page before what the file lacks; keeping that page keeps all that was there
        // before.
        let offset = behind.saturating_sub(unknown as u64) + PAGE_BYTES as u64;
        Lost { offset, source: io::Error::other("the writing thread ended") }
    }
}

/// Where pieces go.
struct Target {
    direct: Option<File>,
    cached: File,
}

impl Target {
    fn write(&mut self, piece: &mut Piece) -> Result<(), Lost> {
        let Piece { offset, len, clean, .. } = *piece;
        let lost = |source| Lost { offset: offset + clean as u64, source };
        if let Some(direct) = &self.direct {
            match direct.write_all_at(&piece.bytes()[..len], offset) {
                Ok(()) => return Ok(()),
                // Larger sectors than ours, or a file system that takes the flag and not the write.
                Err(error) if error.kind() == io::ErrorKind::InvalidInput => self.direct = None,
                Err(source) => return Err(lost(source)),
            }
        }
        self.cached.write_all_at(&piece.bytes()[..len], offset).map_err(lost)?;
        send_on(&self.cached, offset, len);
        Ok(())
    }
}

/// Starts writing to the disk. A refusal costs speed at the next flush and nothing else, so the answer is not looked
/// at.
fn send_on(file: &File, offset: u64, len: usize) {
    let (Ok(offset), Ok(len)) = (i64::try_from(offset), i64::try_from(len)) else { return };
    #[allow(unsafe_code, reason = "sync_file_range has no safe wrapper in rustix")]
    // SAFETY: the descriptor is open for as long as `file` is borrowed, and no memory is passed.
    unsafe {
        libc::sync_file_range(file.as_raw_fd(), offset, len, libc::SYNC_FILE_RANGE_WRITE);
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests fail by panicking")]
    use super::*;

    fn pattern(len: usize) -> Vec<u8> {
        (0..len).map(|at| (at * 31 + at / 4096 * 7) as u8).collect()
    }

    #[test]
    fn appends_of_any_length_between_settles_give_the_file() {
        let file = tempfile::tempfile_in(".").unwrap();
        let bytes = pattern(3 * PIECE_BYTES + 12_345);
        let mut behind = WriteBehind::new(0);
        let (mut at, mut step) = (0, 1);
        while at < bytes.len() {
            let end = (at + step).min(bytes.len());
            behind.append(&file, &bytes[at..end]).unwrap();
            at = end;
            step = step * 5 % 1_000_003;
            if step % 3 == 0 {
                behind.settle(&file).unwrap();
                assert_eq!(file.metadata().unwrap().len(), at as u64);
            }
        }
        behind.settle(&file).unwrap();
        assert!(behind.is_settled());
        let mut read = vec![0; bytes.len()];
        file.read_exact_at(&mut read, 0).unwrap();
        assert!(read == bytes && file.metadata().unwrap().len() == bytes.len() as u64);
    }

    #[test]
    fn writing_goes_on_behind_a_cut_within_a_page() {
        let file = tempfile::tempfile_in(".").unwrap();
        let bytes = pattern(2 * PIECE_BYTES);
        let mut behind = WriteBehind::new(0);
        behind.append(&file, &bytes).unwrap();
        behind.settle(&file).unwrap();
        file.set_len(5000).unwrap();
        behind.cut(5000);
        behind.append(&file, &bytes[5000..PIECE_BYTES + 777]).unwrap();
        behind.settle(&file).unwrap();
        let mut read = vec![0; PIECE_BYTES + 777];
        file.read_exact_at(&mut read, 0).unwrap();
        assert!(read == bytes[..PIECE_BYTES + 777] && file.metadata().unwrap().len() == read.len() as u64);
    }

    #[test]
    fn a_failure_says_from_where_on_the_file_lacks_what_was_appended() {
        let full = OpenOptions::new().read(true).write(true).open("/dev/full").unwrap();
        let mut behind = WriteBehind::new(0);
        for (len, settled) in [(10, false), (5 * PIECE_BYTES, false), (5 * PIECE_BYTES, true)] {
            let appended = behind.append(&full, &pattern(len));
            let lost =
                if settled { appended.unwrap_err() } else { appended.and_then(|()| behind.settle(&full)).unwrap_err() };
            assert_eq!((lost.offset, lost.source.kind()), (0, io::ErrorKind::StorageFull));
            behind.cut(0);
            assert!(behind.is_settled());
        }
    }
}
