//! The virtual drive.

use std::io;
use std::path::PathBuf;

use capstan_format::{ENVELOPE_LEN, crc32c};

use super::index::EntryKind;
use super::key_slot::KeySlot;
use super::record::{BLOCK_LEN_MAX, RecordHeader, RecordKind};
use super::records::{BEGINNING, Place, WriteLost};
use super::volume::{KeyRoom, Room, Volume};
use crate::lock::LockedFile;
use crate::{
    BlockLimits, Drive, DriveCare, DriveError, DriveIdentity, DriveKey, EncryptionState, Flush, Medium, Position,
    ReadOutcome, WriteOutcome,
};

/// Whether a virtual drive is an encrypting one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KeySlotKind {
    /// It has a key slot: with a key it encrypts, and reads what that key encrypted.
    Fitted,
    /// It has none: it can neither read nor append to encrypted volumes.
    Missing,
}

/// A drive for virtual cartridges.
pub struct CartridgeDrive {
    name: String,
    bay: PathBuf,
    key_slot_kind: KeySlotKind,
    key: Option<KeySlot>,
    loaded: Option<Loaded>,
    /// An encrypted block between drive and file; grows to the longest block met and stays.
    stored: Vec<u8>,
    /// Keeps the bay of a library for this process.
    _bay_lock: Option<LockedFile>,
    /// Early warning is given, too, where less than this is left on the file system.
    free_bytes: u64,
}

struct Loaded {
    volume: Volume,
    at: Place,
}

impl CartridgeDrive {
    /// A drive whose bay is `bay`: the data file of a cartridge, or a link to one. Nothing there means an empty drive.
    pub fn new(name: impl Into<String>, bay: impl Into<PathBuf>, key_slot_kind: KeySlotKind) -> Self {
        Self {
            name: name.into(),
            bay: bay.into(),
            key_slot_kind,
            key: None,
            loaded: None,
            stored: Vec::new(),
            _bay_lock: None,
            free_bytes: 0,
        }
    }

    /// The same, with a lock that is held as long as the drive lives.
    pub(crate) fn in_library(name: String, bay: PathBuf, key_slot_kind: KeySlotKind, lock: LockedFile) -> Self {
        Self { _bay_lock: Some(lock), ..Self::new(name, bay, key_slot_kind) }
    }

    /// The same, which leaves so much of the file system free: early warning is given where there is less.
    pub(crate) fn leaving(self, free_bytes: u64) -> Self {
        Self { free_bytes, ..self }
    }

    fn loaded(&mut self) -> Result<&mut Loaded, DriveError> {
        match &mut self.loaded {
            Some(loaded) => Ok(loaded),
            None => Err(DriveError::NoMedium { drive: self.name.clone() }),
        }
    }

    /// How what is written at the position is to be stored, or why it may not be written.
    fn writing_state(&mut self) -> Result<EncryptionState, DriveError> {
        let drive = self.name.clone();
        let key = self.key.as_ref().map(|key| (key.algorithm(), key.tag()));
        let Loaded { volume, at } = self.loaded()?;
        if volume.write_protected() {
            return Err(DriveError::WriteProtected { drive });
        }
        if volume.bars_overwriting(*at) {
            return Err(DriveError::WriteOnce { drive });
        }
        let mixed = |reason| Err(DriveError::MixedEncryption { drive: drive.clone(), reason });
        let wanted = match key {
            Some((algorithm, tag)) => EncryptionState::Encrypted { algorithm, tag },
            None => EncryptionState::Plain,
        };
        if at.lbn == 0 {
            return Ok(wanted);
        }
        match (volume.encryption(), wanted) {
            (found, wanted) if found == wanted => Ok(wanted),
            (
                EncryptionState::Encrypted { algorithm: found, .. },
                EncryptionState::Encrypted { algorithm: wanted_algorithm, .. },
            ) => match found == wanted_algorithm {
                // A further key, or one of those that are named.
                true => Ok(wanted),
                false => mixed("the volume is written with the other cipher: load a key for that one"),
            },
            (EncryptionState::Encrypted { .. }, _) => {
                mixed("the volume is encrypted and no key is loaded: load its key, or write from the beginning of tape")
            }
            (_, _) => mixed("the volume is plain and a key is loaded: clear it, or write from the beginning of tape"),
        }
    }

    fn write_failed(lbn: u64) -> impl FnOnce(io::Error) -> DriveError {
        move |source| DriveError::WriteFailed { lbn, source }
    }

    /// What was handed over before and is lost is told as such: the host believes it written.
    fn write_lost(lbn: u64) -> impl FnOnce(WriteLost) -> DriveError {
        move |WriteLost { source, is_earlier }| match is_earlier {
            true => DriveError::Deferred { source: source.into() },
            false => DriveError::WriteFailed { lbn, source },
        }
    }

    fn read_failed(lbn: u64) -> impl FnOnce(io::Error) -> DriveError {
        move |error| DriveError::ReadFailed { lbn, reason: error.to_string() }
    }

    /// Reads the record at the position, whose header is whole. Whatever comes of it, the position may move on.
    fn read_record(&mut self, header: &RecordHeader, buffer: &mut [u8]) -> Result<ReadOutcome, DriveError> {
        let drive = self.name.clone();
        let Some(Loaded { volume, at }) = &mut self.loaded else { return Err(DriveError::NoMedium { drive }) };
        let (at, lbn) = (*at, at.lbn);
        let failed = |reason: &str| Err(DriveError::ReadFailed { lbn, reason: reason.to_owned() });
        let stored_len = header.stored_len as usize;
        let too_long = |found: usize| Err(DriveError::BlockTooLong { lbn, found, buffer: buffer.len() });
        match (header.kind, volume.encryption()) {
            (RecordKind::Filemark, _) => Ok(ReadOutcome::Filemark),
            (RecordKind::PlainBlock, EncryptionState::Encrypted { .. }) => Err(DriveError::Integrity { lbn }),
            (RecordKind::PlainBlock, _) => {
                if stored_len > buffer.len() {
                    return too_long(stored_len);
                }
                let block = &mut buffer[..stored_len];
                volume.records.read(at, block).map_err(Self::read_failed(lbn))?;
                if crc32c(block) != header.data_crc {
                    return failed("its checksum is wrong");
                }
                Ok(ReadOutcome::Block(stored_len))
            }
            (RecordKind::EncryptedBlock { key }, EncryptionState::Encrypted { .. }) if volume.key(key).is_none() => {
                failed("it names a key that the cartridge's memory does not know")
            }
            (RecordKind::EncryptedBlock { .. }, EncryptionState::Encrypted { algorithm, .. }) => {
                let len = stored_len - ENVELOPE_LEN;
                if len > buffer.len() {
                    return too_long(len);
                }
                self.stored.resize(stored_len, 0);
                volume.records.read(at, &mut self.stored).map_err(Self::read_failed(lbn))?;
                if crc32c(&self.stored) != header.data_crc {
                    return failed("its checksum is wrong");
                }
                let opened = self.key.as_mut().map(|key| key.open(algorithm, lbn, &self.stored, &mut buffer[..len]));
                match opened {
                    Some(Ok(())) => Ok(ReadOutcome::Block(len)),
                    _ => Err(DriveError::Integrity { lbn }),
                }
            }
            (RecordKind::EncryptedBlock { .. }, _) => {
                failed("it is encrypted, and the cartridge says the volume is not")
            }
        }
    }

    /// Whether the loaded key is the one that the block at the position needs.
    fn check_key(&mut self, header: &RecordHeader) -> Result<(), DriveError> {
        let drive = self.name.clone();
        let loaded = self.key.as_ref().map(KeySlot::tag);
        let RecordKind::EncryptedBlock { key } = header.kind else { return Ok(()) };
        let Some(needed) = self.loaded()?.volume.key(key) else { return Ok(()) };
        match loaded {
            None => Err(DriveError::NoKey { drive, lbn: header.lbn, tag: needed }),
            Some(loaded) if loaded != needed => Err(DriveError::WrongKey { drive, needed, loaded }),
            Some(_) => Ok(()),
        }
    }

    /// Moves over the block at the position, which may be damaged.
    fn pass(&mut self, header: Option<&RecordHeader>) -> Result<(), DriveError> {
        let Loaded { volume, at } = self.loaded()?;
        let lbn = at.lbn + 1;
        *at = match header {
            Some(header) => Place { lbn, offset: at.offset + header.record_len() },
            None => volume.records.place(lbn).map_err(Self::read_failed(at.lbn))?,
        };
        Ok(())
    }
}

impl Drive for CartridgeDrive {
    fn identity(&self) -> DriveIdentity {
        let encrypts = self.key_slot_kind == KeySlotKind::Fitted;
        DriveIdentity { name: self.name.clone(), model: "virtual".to_owned(), encrypts }
    }

    fn load(&mut self) -> Result<Medium, DriveError> {
        if self.loaded.is_none() {
            self.loaded = Some(Loaded { volume: Volume::open(&self.bay, &self.name, self.free_bytes)?, at: BEGINNING });
        }
        let loaded = self.loaded()?;
        loaded.at = BEGINNING;
        Ok(loaded.volume.medium())
    }

    fn unload(&mut self) -> Result<(), DriveError> {
        self.key = None;
        let Some(mut loaded) = self.loaded.take() else { return Ok(()) };
        if loaded.volume.write_protected() {
            return Ok(());
        }
        loaded.volume.records.flush().map_err(|source| DriveError::Deferred { source: source.into() })
    }

    fn medium(&mut self) -> Result<Medium, DriveError> {
        Ok(self.loaded()?.volume.medium())
    }

    fn block_limits(&self) -> BlockLimits {
        BlockLimits { min: 1, max: BLOCK_LEN_MAX }
    }

    fn position(&mut self) -> Result<Position, DriveError> {
        let Loaded { volume, at } = self.loaded()?;
        Ok(Position { lbn: at.lbn, early_warning: volume.early_warning_at(*at) })
    }

    fn locate(&mut self, lbn: u64) -> Result<(), DriveError> {
        let Loaded { volume, at } = self.loaded()?;
        let end_of_data = volume.records.end().lbn;
        if lbn > end_of_data {
            return Err(DriveError::BlankCheck { lbn, end_of_data });
        }
        *at = volume.records.place(lbn).map_err(Self::read_failed(lbn))?;
        Ok(())
    }

    fn space_to_end_of_data(&mut self) -> Result<(), DriveError> {
        let Loaded { volume, at } = self.loaded()?;
        *at = volume.records.end();
        Ok(())
    }

    fn space_filemarks(&mut self, count: i64) -> Result<(), DriveError> {
        let Loaded { volume, at } = self.loaded()?;
        let end_of_data = volume.records.end().lbn;
        let mut left = count.unsigned_abs();
        let mut lbn = at.lbn;
        while left > 0 {
            let met = if count > 0 {
                if lbn >= end_of_data {
                    *at = volume.records.end();
                    return Err(DriveError::BlankCheck { lbn, end_of_data });
                }
                lbn += 1;
                lbn - 1
            } else {
                if lbn == 0 {
                    *at = BEGINNING;
                    return Err(DriveError::BeginningOfMedium);
                }
                lbn -= 1;
                lbn
            };
            if volume.records.kind(met).map_err(Self::read_failed(met))? == EntryKind::Filemark {
                left -= 1;
            }
        }
        *at = volume.records.place(lbn).map_err(Self::read_failed(lbn))?;
        Ok(())
    }

    fn read_block(&mut self, buffer: &mut [u8]) -> Result<ReadOutcome, DriveError> {
        let Loaded { volume, at } = self.loaded()?;
        let at = *at;
        if at.lbn >= volume.records.end().lbn {
            return Ok(ReadOutcome::EndOfData);
        }
        match volume.records.header(at).map_err(Self::read_failed(at.lbn)) {
            Ok(Ok(header)) => {
                self.check_key(&header)?;
                let read = self.read_record(&header, buffer);
                self.pass(Some(&header))?;
                read
            }
            Ok(Err(reason)) => {
                self.pass(None)?;
                Err(DriveError::ReadFailed { lbn: at.lbn, reason: reason.to_owned() })
            }
            Err(error) => {
                self.pass(None)?;
                Err(error)
            }
        }
    }

    fn write_block(&mut self, block: &[u8]) -> Result<WriteOutcome, DriveError> {
        let BlockLimits { min, max } = self.block_limits();
        if block.len() < min as usize || block.len() > max as usize {
            return Err(DriveError::BlockLength { len: block.len(), min, max });
        }
        let state = self.writing_state()?;
        let drive = self.name.clone();
        let Some(Loaded { volume, at }) = &mut self.loaded else { return Err(DriveError::NoMedium { drive }) };
        let lbn = at.lbn;
        let encrypted = matches!(state, EncryptionState::Encrypted { .. });
        let stored_len = if encrypted { block.len() + ENVELOPE_LEN } else { block.len() };
        let room = volume.room(*at, 1, stored_len);
        if room == Room::None {
            return Err(DriveError::EndOfMedium { lbn });
        }
        if lbn == 0 {
            volume.begin(state).map_err(Self::write_failed(lbn))?;
        }
        let number = match state {
            EncryptionState::Encrypted { tag, .. } => match volume.room_for_key(&tag) {
                KeyRoom::Named(number) => number,
                KeyRoom::Free => volume.add_key(tag).map_err(Self::write_failed(lbn))?,
                KeyRoom::Full { keys } => return Err(DriveError::KeyListFull { drive, keys }),
            },
            EncryptionState::Plain | EncryptionState::Blank => 0,
        };
        let (kind, stored) = match &mut self.key {
            Some(key) if encrypted => {
                key.seal(lbn, block, &mut self.stored)
                    .map_err(|_| DriveError::Hardware { drive, reason: "its cipher refused the block".to_owned() })?;
                (RecordKind::EncryptedBlock { key: number }, self.stored.as_slice())
            }
            _ => (RecordKind::PlainBlock, block),
        };
        let written = volume.records.write(*at, kind, crc32c(stored), stored);
        *at = written.as_ref().map_or(volume.records.end(), |place| *place);
        written.map_err(Self::write_lost(lbn))?;
        Ok(outcome(room))
    }

    fn write_filemarks(&mut self, count: u32, flush: Flush) -> Result<WriteOutcome, DriveError> {
        let mut room = Room::Ample;
        if count > 0 {
            let state = self.writing_state()?;
            let Loaded { volume, at } = self.loaded()?;
            room = volume.room(*at, count, 0);
            if room == Room::None {
                return Err(DriveError::EndOfMedium { lbn: at.lbn });
            }
            if at.lbn == 0 {
                volume.begin(state).map_err(Self::write_failed(0))?;
            }
            for _ in 0..count {
                let lbn = at.lbn;
                let written = volume.records.write(*at, RecordKind::Filemark, crc32c(&[]), &[]);
                *at = written.as_ref().map_or(volume.records.end(), |place| *place);
                written.map_err(Self::write_lost(lbn))?;
            }
        }
        let Loaded { volume, at } = self.loaded()?;
        if flush == Flush::Synchronous && !volume.write_protected() {
            let flushed = volume.records.flush();
            if flushed.is_err() && at.lbn > volume.records.end().lbn {
                // What was lost is not there to be stood behind.
                *at = volume.records.end();
            }
            flushed.map_err(|source| DriveError::Deferred { source: source.into() })?;
        }
        if count == 0 && (volume.early_warning_at(*at) || volume.disk_is_low(*at)) {
            room = Room::BehindEarlyWarning;
        }
        Ok(outcome(room))
    }

    fn erase(&mut self) -> Result<(), DriveError> {
        let drive = self.name.clone();
        let Loaded { volume, at } = self.loaded()?;
        if volume.write_protected() {
            return Err(DriveError::WriteProtected { drive });
        }
        if volume.is_write_once() {
            return Err(DriveError::WriteOnce { drive });
        }
        volume.begin(EncryptionState::Blank).map_err(Self::write_failed(0))?;
        *at = BEGINNING;
        Ok(())
    }

    fn set_key(&mut self, key: Option<DriveKey>) -> Result<(), DriveError> {
        let drive = self.name.clone();
        self.key = match key {
            None => None,
            Some(_) if self.key_slot_kind == KeySlotKind::Missing => return Err(DriveError::NoKeySlot { drive }),
            Some(key) => Some(KeySlot::new(key)),
        };
        Ok(())
    }

    fn recommended_order(&mut self, _: &[(u64, u64)]) -> Result<Option<Vec<usize>>, DriveError> {
        Ok(None)
    }

    fn care(&mut self) -> Option<&mut dyn DriveCare> {
        None
    }
}

impl Drop for Loaded {
    fn drop(&mut self) {
        // The index is only a cache: without its last entries the next load takes a little longer. The data is not
        // synchronised here, because no one could be told of a failure.
        let _ = self.volume.records.save_index();
    }
}

fn outcome(room: Room) -> WriteOutcome {
    match room {
        Room::Ample => WriteOutcome::Written,
        Room::BehindEarlyWarning | Room::None => WriteOutcome::EarlyWarning,
    }
}
