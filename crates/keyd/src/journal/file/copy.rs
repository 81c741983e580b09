//! The copies of other nodes' journals.

use std::fs;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

use capstan_keys::{Name, Secret};

use super::super::medium::Disk;
use super::super::{JournalError, PlacedEntry};
use super::{ChainFile, Start, TRIM_LEN};

/// A copy of another node's journal.
pub struct JournalCopy(ChainFile<Disk>);

impl JournalCopy {
    /// Opens the copy of a peer's journal in the folder of this node's own, or begins one.
    pub fn open(directory: &Path, peer: &Name, key: &Secret) -> Result<(Self, Start), JournalError> {
        let (file, start) = ChainFile::open(Self::path(directory, peer), peer, key)?;
        Ok((Self(file), start))
    }

    /// Whether there is one.
    pub fn is_there(directory: &Path, peer: &Name) -> bool {
        Self::path(directory, peer).is_file()
    }

    fn path(directory: &Path, peer: &Name) -> PathBuf {
        directory.join("copies").join(peer.as_str())
    }

    /// Takes what the peer sent, if it continues the copy; when this returns, it is on disk. Says where the copy
    /// stands.
    pub fn accept(&mut self, segment: &[u8]) -> Result<u64, JournalError> {
        self.0.accept(segment, TRIM_LEN)
    }

    /// What the peer has not reconciled, as far as is known here.
    pub fn pending(&self) -> impl Iterator<Item = &PlacedEntry> {
        self.0.chain.pending.iter()
    }

    /// The number of the last record that is here.
    pub fn sequence(&self) -> u64 {
        self.0.chain.sequence
    }

    /// The MAC of the last record that is here, in hexadecimal: it stands for all of the copy.
    pub fn end(&self) -> String {
        self.0.end()
    }

    /// Begins the copy anew where it ends: the ledger has all that it holds.
    pub fn wipe(&mut self) -> Result<(), JournalError> {
        self.0.sweep();
        if self.0.places.is_empty() { Ok(()) } else { self.0.begin_anew() }
    }

    /// Whether nothing of any entry is in the copy, nor of what its file was before.
    pub fn is_wiped(&self) -> bool {
        self.0.is_wiped()
    }

    /// The nodes whose journals a folder has copies of.
    pub fn all(directory: &Path) -> io::Result<Vec<Name>> {
        let files = match fs::read_dir(directory.join("copies")) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
            files => files?,
        };
        let names = files.map(|file| Ok(file?.file_name().to_str().and_then(|name| name.parse().ok())));
        names.filter_map(io::Result::transpose).collect()
    }

    /// What the peer misses itself, if it lost its disk.
    pub fn since(&mut self, after: u64) -> Result<Vec<u8>, JournalError> {
        self.0.since(after)
    }
}
