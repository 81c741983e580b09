//! The journal on disk: a node's own, and what it has in common with the copies of others'.

mod copy;

use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

use capstan_keys::{Name, Secret};

use super::chain::{Chain, ChainKey, Next, next_record};
use super::medium::{Disk, Medium, Old, ReplaceError, is_full};
use super::places::Places;
use super::record::Body;
use super::{JournalEntry, JournalError, PlacedEntry};
use capstan_service::file_lock::lock;

pub use copy::JournalCopy;

/// As much as is read into memory at a start.
const FILE_LEN_MAX: u64 = 64 << 20;
/// Entries leave room for what reconciles them.
const ENTRIES_LEN_MAX: u64 = FILE_LEN_MAX - (1 << 20);
/// A file in which everything is reconciled begins anew, however short it is: a key of its entries may be destroyed one
/// day.
const TRIM_LEN: u64 = 0;
/// Most bytes of records that one node sends to another at once: in base64 they are still below what a listener takes.
const SEGMENT_LEN_MAX: u64 = 512 << 10;

/// How a journal was found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Start {
    /// There was none. Where this node has had one, a peer has the copy.
    New,
    /// As it was left.
    Whole,
    /// A crash left a part of a record that was never acknowledged; it is cut off.
    Torn {
        /// How many bytes.
        bytes: u64,
    },
}

enum State {
    Good,
    Broken,
}

struct ChainFile<M> {
    medium: M,
    path: PathBuf,
    chain: Chain,
    places: Places,
    len: u64,
    /// What the file was before it began anew is not overwritten yet.
    old_left: bool,
    /// It was said that the file did not begin anew: it is tried every few seconds.
    is_late: bool,
    state: State,
}

impl ChainFile<Disk> {
    fn open(path: PathBuf, kma: &Name, key: &Secret) -> Result<(Self, Start), JournalError> {
        let unusable = |source| JournalError::Unusable { path: path.clone(), source };
        let key = ChainKey::new(kma, key);
        fs::create_dir_all(path.parent().unwrap_or(Path::new("."))).map_err(unusable)?;
        Disk::recover(&path).map_err(unusable)?;
        let old_left = match Disk::sweep_beside(&path) {
            // A node with a full disk starts, and reads.
            Err(error) if is_full(&error) => true,
            swept => swept.map(|()| false).map_err(unusable)?,
        };
        match fs::metadata(&path) {
            Ok(found) if found.len() > FILE_LEN_MAX => {
                let what = format!("it has {} bytes, more than any", found.len());
                Err(JournalError::Altered { path, what })
            }
            Ok(_) => {
                let bytes = fs::read(&path).map_err(unusable)?;
                let loaded = Chain::load(&key, &bytes);
                let loaded = loaded.map_err(|what| JournalError::Altered { path: path.clone(), what })?;
                let file = OpenOptions::new().read(true).append(true).open(&path).map_err(unusable)?;
                let torn = (bytes.len() - loaded.len) as u64;
                let len = loaded.len as u64;
                let mut medium = Disk { path: path.clone(), file };
                if torn > 0 {
                    medium.cut(len).map_err(unusable)?;
                }
                let start = if torn > 0 { Start::Torn { bytes: torn } } else { Start::Whole };
                let mut places = Places::behind_header(loaded.header_len as u64);
                places.add(&bytes[loaded.header_len..loaded.len]);
                Ok((
                    Self {
                        medium,
                        path,
                        chain: loaded.chain,
                        places,
                        len,
                        old_left,
                        is_late: false,
                        state: State::Good,
                    },
                    start,
                ))
            }
            Err(error) if error.kind() == ErrorKind::NotFound => {
                let chain = Chain::new(key);
                let header = chain.header();
                let file = Disk::write_new(&path, &header).map_err(unusable)?;
                let medium = Disk { path: path.clone(), file };
                let len = header.len() as u64;
                let places = Places::behind_header(len);
                Ok((
                    Self { medium, path, chain, places, len, old_left, is_late: false, state: State::Good },
                    Start::New,
                ))
            }
            Err(error) => Err(unusable(error)),
        }
    }
}

impl<M: Medium> ChainFile<M> {
    /// Makes records durable. Only then the chain takes its step.
    fn write(&mut self, bytes: &[u8]) -> Result<(), JournalError> {
        self.check_good()?;
        if let Err(source) = self.medium.append(bytes) {
            // A disk that is full is well otherwise. After any other failure nobody knows what it holds.
            if !is_full(&source) || self.medium.cut(self.len).is_err() {
                self.state = State::Broken;
            }
            return Err(JournalError::NotNoted { path: self.path.clone(), source });
        }
        self.len += bytes.len() as u64;
        self.places.add(bytes);
        Ok(())
    }

    /// The MAC of the last record, in hexadecimal.
    fn end(&self) -> String {
        self.chain.mac.iter().map(|byte| format!("{byte:02x}")).collect()
    }

    /// Puts a header in the place of all that the file holds.
    fn replace(&mut self, header: &[u8]) -> Result<(), ReplaceError> {
        let old = self.medium.replace(header).inspect_err(|error| {
            if matches!(error, ReplaceError::Unknown(_)) {
                self.state = State::Broken;
            }
        })?;
        self.len = header.len() as u64;
        self.places = Places::behind_header(self.len);
        self.old_left = old == Old::Left;
        if self.old_left {
            tracing::warn!(file = %self.path.display(), "what that journal held is not overwritten yet: make room on its disk");
        }
        Ok(())
    }

    /// Overwrites what the file was before, where that could not be done at once.
    fn sweep(&mut self) {
        self.old_left = self.old_left && self.medium.sweep().is_err();
    }

    /// Whether nothing of any entry is in the file, nor of what the file was before.
    fn is_wiped(&self) -> bool {
        self.places.is_empty() && !self.old_left
    }

    fn check_room(&self, bytes: &[u8], len_max: u64) -> Result<(), JournalError> {
        if self.len + bytes.len() as u64 > len_max {
            return Err(JournalError::Full { path: self.path.clone() });
        }
        Ok(())
    }

    fn check_good(&self) -> Result<(), JournalError> {
        match self.state {
            State::Good => Ok(()),
            State::Broken => Err(JournalError::Broken { path: self.path.clone() }),
        }
    }

    fn append(&mut self, entry: JournalEntry) -> Result<u64, JournalError> {
        if entry.is_too_large() {
            return Err(JournalError::TooLarge { path_len: entry.path.len(), sealed_len: entry.sealed.len() });
        }
        let (bytes, step) = self.chain.record(Body::Entry(entry));
        self.check_room(&bytes, ENTRIES_LEN_MAX)?;
        self.write(&bytes)?;
        self.chain.advance(step);
        Ok(self.chain.sequence)
    }

    fn reconciled(&mut self, up_to: u64, trim_len: u64) -> Result<(), JournalError> {
        let up_to = up_to.min(self.chain.sequence);
        if up_to > self.chain.reconciled {
            let (bytes, step) = self.chain.record(Body::Reconciled { up_to });
            self.check_room(&bytes, FILE_LEN_MAX)?;
            self.write(&bytes)?;
            self.chain.advance(step);
        }
        self.trim(trim_len)
    }

    /// Begins the file anew when nothing in it is needed any more.
    fn trim(&mut self, trim_len: u64) -> Result<(), JournalError> {
        self.sweep();
        if !self.chain.pending.is_empty() || self.places.is_empty() || self.len <= trim_len {
            return Ok(());
        }
        self.begin_anew()
    }

    /// Nothing in the file is needed any more: it begins here.
    fn begin_anew(&mut self) -> Result<(), JournalError> {
        self.check_good()?;
        let header = self.chain.header();
        match self.replace(&header) {
            Ok(()) => {
                self.chain.reconciled = self.chain.sequence;
                self.chain.pending.clear();
                self.is_late = false;
            }
            // The long one goes on, and begins anew another time. Or it is broken: the next who writes is told.
            Err(error) => {
                if !std::mem::replace(&mut self.is_late, true) {
                    let error = io::Error::from(error);
                    tracing::warn!(file = %self.path.display(), %error, "what that journal held stays in it until its disk takes a new file");
                }
            }
        }
        Ok(())
    }

    /// A segment of what comes after a record.
    fn since(&mut self, after: u64) -> Result<Vec<u8>, JournalError> {
        let (kma, own) = (self.chain.key.kma.clone(), self.chain.sequence);
        if after > own {
            return Err(JournalError::PeerKnowsMore { kma, own, peer: after });
        }
        let mut segment = Vec::new();
        for range in [self.places.header(), self.places.behind(after, SEGMENT_LEN_MAX)] {
            let len = (range.end - range.start) as usize;
            let read = self.medium.read_from(range.start, len);
            let read = read.map_err(|source| JournalError::Unusable { path: self.path.clone(), source })?;
            if read.len() != len {
                let what = "it was cut while it was open".to_owned();
                return Err(JournalError::Altered { path: self.path.clone(), what });
            }
            segment.extend_from_slice(&read);
        }
        Ok(segment)
    }

    /// Where the chain stands that a segment begins with, and where its records begin.
    fn header_of(&self, segment: &[u8]) -> Result<(Chain, usize), JournalError> {
        let malformed = |what| JournalError::Malformed { kma: self.chain.key.kma.clone(), what };
        Chain::read_header(&self.chain.key, segment).map_err(malformed)
    }

    /// Takes what continues the chain out of a segment, durable when this returns; then says where the chain stands.
    fn accept(&mut self, segment: &[u8], trim_len: u64) -> Result<u64, JournalError> {
        let kma = self.chain.key.kma.clone();
        let malformed = |what: &str| JournalError::Malformed { kma: kma.clone(), what: what.to_owned() };
        if segment.len() > FILE_LEN_MAX as usize {
            return Err(malformed("it is longer than any"));
        }
        let (base, mut at) = self.header_of(segment)?;
        // The other side has begun its file anew since: what this one misses, and all that it has, is reconciled there.
        let skips = base.sequence > self.chain.sequence;
        // What is pending here already does not matter to what continues it.
        let mut chain = if skips { base } else { self.chain.end() };
        let (begin, mut taken) = (chain.end(), Vec::new());
        while at < segment.len() {
            let Next::Record { sequence, body, signed, mac, len } = next_record(segment, at) else {
                return Err(malformed("a record in it is not whole"));
            };
            let forked = || JournalError::Forked { kma: kma.clone(), sequence };
            if sequence > chain.sequence {
                chain.take(sequence, body, signed, mac).map_err(|_| forked())?;
                taken.extend_from_slice(&segment[at..at + len]);
            } else if self.places.mac(sequence).is_some_and(|known| *known != mac) {
                return Err(forked());
            }
            at += len;
        }
        if skips {
            self.check_good()?;
            let header = begin.header();
            let replaced = self.replace(&header);
            replaced.map_err(|error| JournalError::NotNoted { path: self.path.clone(), source: error.into() })?;
            self.chain = begin;
        }
        if !taken.is_empty() {
            self.check_room(&taken, FILE_LEN_MAX)?;
            self.write(&taken)?;
            self.chain.go_on(chain);
        }
        self.trim(trim_len)?;
        Ok(self.chain.sequence)
    }
}

/// What this node has assigned while it was cut off.
pub struct Journal {
    file: ChainFile<Disk>,
    /// Held locked as long as the journal is open: two writers would make two chains of one.
    _lock: File,
}

impl Journal {
    /// Opens this node's journal in a folder, or begins one. `key` is the cluster's journal key.
    pub fn open(directory: &Path, kma: &Name, key: &Secret) -> Result<(Self, Start), JournalError> {
        let path = directory.join("own");
        let unusable = |source| JournalError::Unusable { path: path.clone(), source };
        fs::create_dir_all(directory).map_err(unusable)?;
        let Some(lock) = lock(&directory.join(".lock")).map_err(unusable)? else {
            return Err(JournalError::InUse { path });
        };
        let (file, start) = ChainFile::open(path, kma, key)?;
        Ok((Self { file, _lock: lock }, start))
    }

    /// Notes an entry; when this returns, it is on disk. After an error it must not be acted upon.
    pub fn append(&mut self, entry: JournalEntry) -> Result<u64, JournalError> {
        self.file.append(entry)
    }

    /// What is not reconciled yet, in order.
    pub fn pending(&self) -> impl ExactSizeIterator<Item = &PlacedEntry> {
        self.file.chain.pending.iter()
    }

    /// The ledger has all entries up to this record, or has refused them for good.
    pub fn reconciled(&mut self, up_to: u64) -> Result<(), JournalError> {
        self.file.reconciled(up_to, TRIM_LEN)
    }

    /// Begins the file anew if all of it is reconciled and it has not begun anew yet: a full disk kept it from that, or
    /// an older program.
    pub fn wipe(&mut self) -> Result<(), JournalError> {
        self.file.trim(TRIM_LEN)
    }

    /// Whether nothing of any entry is in the file, nor of what the file was before.
    pub fn is_wiped(&self) -> bool {
        self.file.is_wiped()
    }

    /// The number of the last record.
    pub fn sequence(&self) -> u64 {
        self.file.chain.sequence
    }

    /// The MAC of the last record, in hexadecimal.
    pub fn end(&self) -> String {
        self.file.end()
    }

    /// What a peer misses that has a copy up to `after`: about 1 MiB at most, so that it is asked for until the copy
    /// stands at [`Journal::sequence`].
    pub fn since(&mut self, after: u64) -> Result<Vec<u8>, JournalError> {
        self.file.since(after)
    }

    /// Takes back from a peer's copy what this disk has lost. What it has noted since and not yet reconciled never
    /// gives way: a copy that goes on beyond it is of another chain.
    pub fn take_back(&mut self, segment: &[u8]) -> Result<u64, JournalError> {
        let (base, _) = self.file.header_of(segment)?;
        if base.sequence > self.file.chain.sequence && !self.file.chain.pending.is_empty() {
            let (kma, sequence) = (self.file.chain.key.kma.clone(), self.file.chain.sequence);
            return Err(JournalError::Forked { kma, sequence });
        }
        self.file.accept(segment, TRIM_LEN)
    }
}

#[cfg(test)]
mod tests;
