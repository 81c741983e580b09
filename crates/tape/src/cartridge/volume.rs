//! A loaded cartridge: its memory and its records, changed together.

use std::cell::Cell;
use std::fs::{File, OpenOptions};
use std::io;
use std::path::Path;

use capstan_format::KeyTag;

use super::memory::{KEYS_MAX, Memory, RECORDS_AT, Tab};
use super::record::RECORD_HEADER_LEN;
use super::records::{Place, Records};
use crate::lock::{Locked, LockedFile, try_lock};
use crate::{DriveError, EncryptionState, Medium, Rewritability};

/// Whether the host lets the data file be written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Access {
    ReadWrite,
    ReadOnly,
}

/// A data file that was opened and locked.
pub(super) struct DataFile {
    file: LockedFile,
    memory: Memory,
    access: Access,
    name: String,
}

impl DataFile {
    /// The parts, if the file may be written.
    pub(super) fn writable(self) -> Result<(LockedFile, Memory), DriveError> {
        match self.access {
            Access::ReadWrite => Ok((self.file, self.memory)),
            Access::ReadOnly => {
                let source = io::Error::from(io::ErrorKind::PermissionDenied);
                Err(DriveError::Host { what: format!("{} may not be written", self.name), source })
            }
        }
    }
}

/// Opens a data file and locks it. `name` is the drive's, for messages.
pub(super) fn open_data_file(path: &Path, name: &str) -> Result<DataFile, DriveError> {
    let host = |source| DriveError::Host { what: format!("virtual cartridge {}", path.display()), source };
    let (file, access) = match OpenOptions::new().read(true).write(true).open(path) {
        Ok(file) => (file, Access::ReadWrite),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            return Err(DriveError::NoMedium { drive: name.to_owned() });
        }
        Err(error) if matches!(error.kind(), io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem) => {
            (File::open(path).map_err(host)?, Access::ReadOnly)
        }
        Err(error) => return Err(host(error)),
    };
    let file = match try_lock(file).map_err(host)? {
        Locked::Ours(file) => file,
        Locked::HeldBy(holder) => {
            return Err(DriveError::InUse { what: format!("cartridge {}", path.display()), holder });
        }
    };
    let memory = Memory::read(&file)
        .map_err(host)?
        .map_err(|reason| DriveError::Incompatible { drive: name.to_owned(), reason })?;
    Ok(DataFile { file, memory, access, name: name.to_owned() })
}

/// Draws a life: a volume that is written anew must not be taken for what it was.
pub(crate) fn draw_life() -> io::Result<u64> {
    Ok(u64::from_le_bytes(super::random::draw()?))
}

/// Whether a record fits, and what remains once it is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Room {
    Ample,
    BehindEarlyWarning,
    None,
}

/// Whether the memory names a key, or has room to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum KeyRoom {
    /// By this number.
    Named(u8),
    /// Not yet.
    Free,
    /// It names others, this many, and no more fit.
    Full { keys: usize },
}

/// The cartridge in a drive.
pub(super) struct Volume {
    memory: Memory,
    pub(super) records: Records,
    access: Access,
    disk: DiskRoom,
}

/// Bytes that are appended from one look at the file system to the next.
const LOOK_EVERY_BYTES: u64 = 16 * 1024 * 1024;

/// Whether there is less room on the file system than is to stay free.
struct DiskRoom {
    /// So much stays free; 0 if that does not matter.
    free_bytes: u64,
    /// Where data ended at the last look, and what was found.
    looked: Cell<Option<(u64, bool)>>,
}

impl DiskRoom {
    /// Looks, if that is worth it at this end of data.
    fn is_low(&self, file: &File, end: u64) -> bool {
        if self.free_bytes == 0 {
            return false;
        }
        match self.looked.get() {
            Some((at, is_low)) if (at..at + LOOK_EVERY_BYTES).contains(&end) => is_low,
            _ => {
                let found = rustix::fs::fstatvfs(file).ok();
                // What is low once stays so until the end of data has moved on or back.
                let is_low = found.is_some_and(|now| now.f_bavail.saturating_mul(now.f_frsize) < self.free_bytes);
                self.looked.set(Some((end, is_low)));
                is_low
            }
        }
    }
}

impl Volume {
    /// Opens the cartridge at `path` in the drive `name`, which leaves so much of the file system free.
    pub(super) fn open(path: &Path, name: &str, free_bytes: u64) -> Result<Self, DriveError> {
        // A library's bay is a link; the index lies beside what it points to.
        let path = std::fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
        let DataFile { file, memory, access, .. } = open_data_file(&path, name)?;
        let records = Records::open(file, &path.with_extension("index"), memory.life).map_err(|source| {
            DriveError::Host { what: format!("virtual cartridge {} cannot be read", path.display()), source }
        })?;
        let disk = DiskRoom { free_bytes, looked: Cell::new(None) };
        Ok(Self { memory, records, access, disk })
    }

    pub(super) fn encryption(&self) -> EncryptionState {
        self.memory.encryption
    }

    /// The key of a number that a block names.
    pub(super) fn key(&self, number: u8) -> Option<KeyTag> {
        self.memory.key(number)
    }

    /// Whether blocks may be written with a key.
    pub(super) fn room_for_key(&self, tag: &KeyTag) -> KeyRoom {
        match self.memory.number_of(tag) {
            Some(number) => KeyRoom::Named(number),
            None if self.memory.further_keys.len() + 1 < KEYS_MAX => KeyRoom::Free,
            None => KeyRoom::Full { keys: KEYS_MAX },
        }
    }

    /// Names a further key, for good before this returns, and gives its number.
    ///
    /// Its first block comes later: a block under a key that the memory does not name would be lost with the memory of
    /// whoever wrote it.
    pub(super) fn add_key(&mut self, tag: KeyTag) -> io::Result<u8> {
        let mut memory = self.memory.clone();
        memory.further_keys.push(tag);
        let number = u8::try_from(memory.further_keys.len()).map_err(io::Error::other)?;
        memory.write(self.records.file())?;
        self.memory = memory;
        Ok(number)
    }

    pub(super) fn write_protected(&self) -> bool {
        self.access == Access::ReadOnly || self.memory.tab == Tab::Protected
    }

    /// Whether a write at `place` would take what stays. Of one that was begun and of which no record can be found
    /// nobody knows what it held: it is not begun again.
    pub(super) fn bars_overwriting(&self, place: Place) -> bool {
        let holds = place.lbn < self.records.end().lbn;
        self.is_write_once() && (holds || place.lbn == 0 && self.memory.encryption != EncryptionState::Blank)
    }

    /// Whether nothing ever makes it blank again.
    pub(super) fn is_write_once(&self) -> bool {
        self.memory.rewritability == Rewritability::WriteOnce
    }

    pub(super) fn medium(&self) -> Medium {
        Medium {
            volser: Some(self.memory.volser.clone()),
            serial: self.memory.serial_number(),
            generation: Some(self.memory.generation.clone()),
            capacity_bytes: self.memory.capacity_bytes,
            remaining_bytes: self.remaining_behind(self.records.end()),
            write_protected: self.write_protected(),
            rewritability: self.memory.rewritability,
            encryption: self.memory.encryption,
        }
    }

    /// Whether early warning lies at or before `place`.
    pub(super) fn early_warning_at(&self, place: Place) -> bool {
        self.remaining_behind(place) < self.memory.early_warning_bytes
    }

    /// Whether there is less room on the file system at `place` than is to stay free: that may change.
    pub(super) fn disk_is_low(&self, place: Place) -> bool {
        // What is written from the beginning gives the room of what was there back first.
        place.lbn > 0 && self.disk.is_low(self.records.file(), place.offset)
    }

    /// Room for `count` records of `stored_len` bytes each from `place` on.
    pub(super) fn room(&self, place: Place, count: u32, stored_len: usize) -> Room {
        let len = u64::from(count) * (RECORD_HEADER_LEN + stored_len) as u64;
        match self.remaining_behind(place).checked_sub(len) {
            None => Room::None,
            Some(left) if left < self.memory.early_warning_bytes || self.disk_is_low(place) => Room::BehindEarlyWarning,
            Some(_) => Room::Ample,
        }
    }

    /// Cuts off everything and begins another life in the given state.
    pub(super) fn begin(&mut self, encryption: EncryptionState) -> io::Result<()> {
        let mut memory = Memory { life: draw_life()?, encryption, further_keys: Vec::new(), ..self.memory.clone() };
        if memory.serial == 0 {
            // An older program made it.
            memory.serial = draw_life()?;
        }
        memory.write(self.records.file())?;
        self.memory = memory;
        self.disk.looked.set(None);
        self.records.begin(self.memory.life)
    }

    fn remaining_behind(&self, place: Place) -> u64 {
        self.memory.capacity_bytes.saturating_sub(place.offset.saturating_sub(RECORDS_AT))
    }
}
