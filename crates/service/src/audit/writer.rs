//! What the log's thread does with a batch: one write, one flush, and what is refused when there is no room.

use std::io::{self, ErrorKind};
use std::path::PathBuf;
use std::sync::Arc;

use capstan_keys::Name;

use super::folder::{Disk, Found};
use super::{AuditAction, AuditEntry, AuditError, AuditWeight, LineHash, LogHead};

/// Written at every start.
const OPENED: AuditAction = AuditAction::named("log-opened");
/// Written once there is room again.
const WAS_FULL: AuditAction = AuditAction::named("log-was-full");

/// An entry, and when.
pub(super) type Timed = (AuditEntry, i64);
/// What became of each entry of a batch, in order.
type Noted = Vec<Result<LogHead, AuditError>>;

enum State {
    Good,
    /// The reserve is given up: nothing but readings.
    Full,
    Broken(Arc<io::Error>),
}

pub(super) struct Writer<D> {
    disk: D,
    directory: PathBuf,
    kma: Name,
    head: LogHead,
    len: u64,
    file_len_max: u64,
    state: State,
    /// How many were refused since there was room last.
    refused: u64,
}

impl Writer<super::folder::Folder> {
    pub(super) fn new(found: Found, directory: PathBuf, kma: Name, file_len_max: u64) -> Self {
        let Found { folder, len, head, .. } = found;
        Self { disk: folder, directory, kma, head, len, file_len_max, state: State::Good, refused: 0 }
    }
}

impl<D: Disk> Writer<D> {
    pub(super) fn head(&self) -> LogHead {
        self.head
    }

    /// Notes that the log was opened, and what was torn off its end.
    pub(super) fn note_start(&mut self, torn: Option<(u64, LineHash)>, now_ns: i64) -> Result<LogHead, AuditError> {
        self.look_for_room();
        let entry = match torn {
            Some((len, hash)) => AuditEntry::own(OPENED).with("torn-bytes", len).with_hash("torn-hash", hash),
            None => AuditEntry::own(OPENED),
        };
        // A node that has just room enough to give keys for reading must come up.
        let noted = self.commit(&[(entry.reading(), now_ns)]);
        noted.into_iter().next().unwrap_or(Err(AuditError::Closed))
    }

    /// Without the reserve the log is as it is on a full disk.
    pub(super) fn look_for_room(&mut self) {
        if self.disk.lay_reserve_in().is_err() {
            self.state = State::Full;
        }
    }

    /// Notes a batch. Those that succeed are on disk.
    pub(super) fn commit(&mut self, batch: &[Timed]) -> Noted {
        if let State::Broken(source) = &self.state {
            let error = AuditError::Broken { directory: self.directory.clone(), source: Arc::clone(source) };
            return batch.iter().map(|_| Err(error.clone())).collect();
        }
        if matches!(self.state, State::Full) && self.disk.lay_reserve_in().is_ok() {
            self.state = State::Good;
        }
        match self.state {
            State::Good => match self.append(batch, |_| true) {
                Ok(noted) => noted,
                Err(error) if is_full(&error) => self.commit_readings(batch),
                Err(error) => self.give_up(error, batch),
            },
            State::Full | State::Broken(_) => self.commit_readings(batch),
        }
    }

    /// On a full disk: readings into what the reserve took up, and nothing else.
    fn commit_readings(&mut self, batch: &[Timed]) -> Noted {
        let is_reading = |entry: &AuditEntry| entry.weight == AuditWeight::Reading;
        if !batch.iter().any(|(entry, _)| is_reading(entry)) {
            return self.refuse_all(batch);
        }
        self.state = State::Full;
        if let Err(error) = self.disk.give_reserve_up() {
            return self.give_up(error, batch);
        }
        match self.append(batch, is_reading) {
            Ok(noted) => noted,
            Err(error) if is_full(&error) => self.refuse_all(batch),
            Err(error) => self.give_up(error, batch),
        }
    }

    /// Appends those that `takes` takes, and refuses the others. After an error the file is as it was, or given up by
    /// the caller.
    fn append(&mut self, batch: &[Timed], takes: impl Fn(&AuditEntry) -> bool) -> io::Result<Noted> {
        if self.len >= self.file_len_max {
            self.disk.begin_file(self.head.sequence + 1)?;
            self.len = 0;
        }
        let (mut bytes, mut head, mut refused) = (Vec::new(), self.head, 0);
        let was_full = AuditEntry::own(WAS_FULL).with("refused", self.refused);
        let told = self.refused > 0 && matches!(self.state, State::Good);
        if let (true, Some((_, at_ns))) = (told, batch.first())
            && let Ok((line, next)) = head.next_line(&self.kma, &was_full, *at_ns)
        {
            bytes.extend_from_slice(&line);
            head = next;
        }
        let mut noted = Vec::with_capacity(batch.len());
        for (entry, at_ns) in batch {
            if !takes(entry) {
                refused += 1;
                noted.push(Err(self.full()));
                continue;
            }
            noted.push(head.next_line(&self.kma, entry, *at_ns).map(|(line, next)| {
                bytes.extend_from_slice(&line);
                head = next;
                next
            }));
        }
        if let Err(error) = self.disk.append(&bytes) {
            // What is there of it was not acknowledged. If it cannot be cut off the disk is worse than full.
            self.disk.cut(self.len)?;
            return Err(error);
        }
        self.refused = if told { refused } else { self.refused + refused };
        self.len += bytes.len() as u64;
        self.head = head;
        Ok(noted)
    }

    fn refuse_all(&mut self, batch: &[Timed]) -> Noted {
        self.refused += batch.len() as u64;
        batch.iter().map(|_| Err(self.full())).collect()
    }

    fn give_up(&mut self, error: io::Error, batch: &[Timed]) -> Noted {
        self.state = State::Broken(Arc::new(error));
        self.commit(batch)
    }

    fn full(&self) -> AuditError {
        AuditError::DiskFull { directory: self.directory.clone() }
    }
}

fn is_full(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::StorageFull | ErrorKind::QuotaExceeded | ErrorKind::FileTooLarge)
}

#[cfg(test)]
mod tests;
