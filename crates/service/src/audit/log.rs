//! The log as callers see it: entries go in, and come back when they are on disk.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};

use capstan_keys::Name;
use tokio::sync::{mpsc, oneshot};

use super::folder::{Disk, Folder, note_anchored};
use super::writer::Writer;
use super::{AuditEntry, AuditError, LogHead};

/// Entries that wait for the thread; whoever brings more waits, too.
const QUEUE_LEN: usize = 1024;
/// Most entries of one write.
const BATCH_MAX: usize = 512;
/// A file is as long as an editor still opens.
const FILE_LEN_MAX: u64 = 64 << 20;
/// The same where each act reads the newest file anew.
const ONCE_FILE_LEN_MAX: u64 = 2 << 20;
/// How often it is tried to get the lock of such a log, a second each.
const LOCK_TRIES: u32 = 10;

static TURN: Mutex<()> = Mutex::new(());

struct Request {
    entry: AuditEntry,
    at_ns: i64,
    reply: oneshot::Sender<Result<LogHead, AuditError>>,
}

/// The audit log of this node. Shared by everything that acts.
pub struct AuditLog {
    requests: mpsc::Sender<Request>,
    head: Arc<Mutex<LogHead>>,
    directory: PathBuf,
    thread: JoinHandle<()>,
}

impl AuditLog {
    /// Opens the log of a folder, or begins one; notes that it did, and what a crash had torn off.
    ///
    /// # Errors
    /// The folder cannot be made, read or written, or the end of its newest file is no record of a log.
    pub fn open(directory: &Path, kma: &Name, now_ns: i64) -> Result<Self, AuditError> {
        Self::open_with(directory, kma, FILE_LEN_MAX, now_ns)
    }

    pub(super) fn open_with(directory: &Path, kma: &Name, file_len_max: u64, now_ns: i64) -> Result<Self, AuditError> {
        let found = Folder::open(directory)?;
        let torn = found.torn;
        let mut writer = Writer::new(found, directory.to_owned(), kma.clone(), file_len_max);
        writer.note_start(torn, now_ns)?;

        let head = Arc::new(Mutex::new(writer.head()));
        let (requests, queue) = mpsc::channel(QUEUE_LEN);
        let shared = Arc::clone(&head);
        let run = move || write_all(writer, queue, &shared);
        let unusable = |error| AuditError::Unusable { directory: directory.to_owned(), source: Arc::new(error) };
        let thread = thread::Builder::new().name("audit".to_owned()).spawn(run).map_err(unusable)?;
        Ok(Self { requests, head, directory: directory.to_owned(), thread })
    }

    /// Notes an act; when this returns, the record is on disk. After an error it is not noted, and must not be done.
    ///
    /// # Errors
    /// The record cannot be written, or the log is closed.
    pub async fn note(&self, entry: AuditEntry, at_ns: i64) -> Result<LogHead, AuditError> {
        let (reply, answer) = oneshot::channel();
        self.requests.send(Request { entry, at_ns, reply }).await.map_err(|_| AuditError::Closed)?;
        answer.await.unwrap_or(Err(AuditError::Closed))
    }

    /// The same for a thread that is none of the runtime's.
    ///
    /// # Errors
    /// As [`AuditLog::note`].
    pub fn note_blocking(&self, entry: AuditEntry, at_ns: i64) -> Result<LogHead, AuditError> {
        let (reply, answer) = oneshot::channel();
        self.requests.blocking_send(Request { entry, at_ns, reply }).map_err(|_| AuditError::Closed)?;
        answer.blocking_recv().unwrap_or(Err(AuditError::Closed))
    }

    /// The last record that is on disk: what an anchor says.
    pub fn head(&self) -> LogHead {
        *self.head.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Other nodes have the log's anchor at this record: from here on it is not believed if it is shorter.
    ///
    /// # Errors
    /// The head cannot be written.
    pub fn anchored(&self, sequence: u64) -> Result<(), AuditError> {
        note_anchored(&self.directory, sequence)
            .map_err(|error| AuditError::Unusable { directory: self.directory.clone(), source: Arc::new(error) })
    }

    /// Notes what still waits and closes the log.
    pub fn close(self) -> LogHead {
        drop(self.requests);
        // A writer that panicked has answered nobody whose record is not on disk.
        let _ = self.thread.join();
        *self.head.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Where a log stood at its last record, kept apart from its files: by it, a log that was cut off or written anew
/// shows.
pub trait KeptHead {
    /// Why it cannot be kept.
    type Error: From<AuditError>;

    /// Where the log stood; none if nothing was ever noted.
    ///
    /// # Errors
    /// It cannot be read.
    fn head(&self) -> Result<Option<LogHead>, Self::Error>;

    /// Keeps where it stands now.
    ///
    /// # Errors
    /// It cannot be kept.
    fn keep(&self, head: LogHead) -> Result<(), Self::Error>;
}

/// Notes one act in the log of a folder that several processes write, one after the other: the log is open only while
/// it is written. When this returns, the record is on disk. That the log was opened is noted only if a crash had torn
/// something off. Nothing is added to a log that does not hold what was kept of it; where all files are gone, the
/// numbers go on behind it, so that the gap stays to be seen.
///
/// # Errors
/// As [`AuditLog::open`] and [`AuditLog::note`]; [`AuditError::InUse`] if another process has had it open for seconds;
/// [`AuditError::Altered`] if the log is not the one that was kept.
pub fn note_once<K: KeptHead>(
    directory: &Path,
    kma: &Name,
    entry: AuditEntry,
    at_ns: i64,
    kept: &K,
) -> Result<LogHead, K::Error> {
    // Threads of this process come in turn, and do not try for the file's lock all at once.
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let mut found = Folder::open_patiently(directory, LOCK_TRIES)?;
    if let Some(kept) = kept.head()? {
        found.check_holds(directory, kept)?;
    }
    found.cut_torn()?;
    let torn = found.torn;
    let mut writer = Writer::new(found, directory.to_owned(), kma.clone(), ONCE_FILE_LEN_MAX);
    match torn {
        Some(_) => drop(writer.note_start(torn, at_ns)?),
        None => writer.look_for_room(),
    }
    let head = writer.commit(&[(entry, at_ns)]).pop().unwrap_or(Err(AuditError::Closed))?;
    kept.keep(head)?;
    Ok(head)
}

fn write_all<D: Disk>(mut writer: Writer<D>, mut queue: mpsc::Receiver<Request>, head: &Mutex<LogHead>) {
    while let Some(first) = queue.blocking_recv() {
        let (mut batch, mut replies) = (vec![(first.entry, first.at_ns)], vec![first.reply]);
        while batch.len() < BATCH_MAX
            && let Ok(Request { entry, at_ns, reply }) = queue.try_recv()
        {
            batch.push((entry, at_ns));
            replies.push(reply);
        }
        let noted = writer.commit(&batch);
        *head.lock().unwrap_or_else(PoisonError::into_inner) = writer.head();
        for (reply, noted) in replies.into_iter().zip(noted) {
            // Who no longer waits will ask again.
            let _ = reply.send(noted);
        }
    }
}

#[cfg(test)]
mod tests;
