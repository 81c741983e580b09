//! The key slot of a real drive: loading, reading back, and who may write where with what.

use zeroize::Zeroizing;

use super::medium::{NO_TAG, tag_of};
use super::reservation::Reserved;
use super::{ScsiDrive, state_of};
use crate::hardware::line::{Done, Failure};
use crate::scsi::command::Destination;
use crate::scsi::encryption::{
    AlgorithmEntry, DecryptionMode, EncryptionMode, EncryptionStatus, KeyData, NextBlock, PROTOCOL, Scope,
    SetEncryption, page,
};
use crate::scsi::{Command, DataPhase, SenseData, Transport};
use crate::{DriveError, DriveKey, EncryptionState};

/// The key slot, as far as it is known from here.
pub(super) enum KeySlot {
    /// No key.
    Empty,
    /// This key is in the drive, which has said so.
    Loaded {
        key: DriveKey,
        /// The drive's count of keys when this one came in.
        instance: u32,
        proof: Proof,
    },
    /// This key is wanted and was taken out of the drive, which reads a plain volume. It goes back before the beginning
    /// of tape is written.
    Held(DriveKey),
    /// The drive has lost it: nothing is written until the caller has said which key is wanted.
    Lost,
    /// The drive has its keys from a key manager of its own.
    Elsewhere,
}

/// Whether a block that was written with a key was looked at on the tape.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Proof {
    /// No block was written with it yet.
    NoBlock,
    /// The last one that was written with it.
    Outstanding(u64),
    /// One was looked at, or the drive cannot tell.
    Given,
}

impl KeySlot {
    /// The key that was asked for.
    fn key(&self) -> Option<&DriveKey> {
        match self {
            Self::Loaded { key, .. } | Self::Held(key) => Some(key),
            Self::Empty | Self::Lost | Self::Elsewhere => None,
        }
    }

    pub(super) fn is_elsewhere(&self) -> bool {
        matches!(self, Self::Elsewhere)
    }

    /// After anything that clears keys. A key that was not in the drive is not lost with it.
    pub(super) fn lose(&mut self) {
        if matches!(self, Self::Loaded { .. }) {
            *self = Self::Lost;
        }
    }
}

impl<T: Transport> ScsiDrive<T> {
    /// Nobody here has loaded a key: then the drive may hold none, as a session that ended in the middle or another
    /// host may have left one behind, which would encrypt what is to be plain. One that cannot be cleared is a key
    /// manager's.
    pub(super) fn clear_foreign_key(&mut self) -> Result<(), DriveError> {
        if self.algorithms.is_empty() || !matches!(self.slot, KeySlot::Empty | KeySlot::Held(_)) {
            return Ok(());
        }
        let Some(status) = self.encryption_status()? else { return Ok(()) };
        if is_off(&status) {
            return Ok(());
        }
        match self.send_clear_page() {
            Err(failure) if matches!(failure.codes(), Some((0x5 | 0x7, 0x74, 0x21))) => {
                self.slot = KeySlot::Elsewhere;
                Ok(())
            }
            done => self.checked("SECURITY PROTOCOL OUT", done).map(drop),
        }
    }

    pub(super) fn change_key(&mut self, key: Option<DriveKey>) -> Result<(), DriveError> {
        let Some(key) = key else { return self.clear_slot() };
        let drive = self.line.name.clone();
        if self.algorithms.is_empty() {
            return Err(DriveError::NoKeySlot { drive });
        }
        if self.slot.is_elsewhere() {
            return Err(DriveError::KeysFromElsewhere { drive });
        }
        self.drain_if_lost()?;
        self.load_key(key)
    }

    /// Turns encryption off, if there is anything to turn off.
    pub(super) fn clear_slot(&mut self) -> Result<(), DriveError> {
        if self.algorithms.is_empty() || self.slot.is_elsewhere() {
            return Ok(());
        }
        // Whatever comes of it, the key is not wanted any more.
        let was_loaded = self.key_is_loaded();
        self.slot = KeySlot::Empty;
        self.drain_if_lost()?;
        let done = self.send_clear_page();
        match self.key_page_checked(done) {
            // There is none of ours to clear.
            Err(DriveError::KeysFromElsewhere { .. }) if !was_loaded => Ok(()),
            done => done,
        }
    }

    /// After a reset was told, further unit attentions are no news; they must not fail the command that puts things
    /// right.
    fn drain_if_lost(&mut self) -> Result<(), DriveError> {
        if self.at.is_some() {
            return Ok(());
        }
        for _ in 0..8 {
            match self.line.run(&Command::TestUnitReady, DataPhase::None) {
                Err(Failure::Check(data)) if data.sense.key == 0x6 => {
                    self.in_doubt = true;
                    self.slot.lose();
                }
                // Keys can be loaded into an empty drive.
                _ => break,
            }
        }
        Ok(())
    }

    /// Turns encryption off. Some drives refuse an index that they do not list (5/26/00) in a page that sets no key,
    /// too.
    fn send_clear_page(&mut self) -> Result<Done, Failure> {
        let mut page = SetEncryption::clear(Scope::AllNexuses);
        page.algorithm_index = self.algorithms.first().map_or(0, |entry| entry.index);
        self.send_key_page(&page)
    }

    fn send_key_page(&mut self, set: &SetEncryption) -> Result<Done, Failure> {
        let bytes = set.to_bytes();
        let command = Command::SecurityProtocolOut { protocol: PROTOCOL, specific: page::SET, len: bytes.len() as u32 };
        self.line.run(&command, DataPhase::Out(&bytes))
    }

    fn key_page_checked(&mut self, done: Result<Done, Failure>) -> Result<(), DriveError> {
        match done {
            // Configuration prevented: the library or a key manager gives the keys.
            Err(failure) if matches!(failure.codes(), Some((0x5 | 0x7, 0x74, 0x21))) => {
                self.slot = KeySlot::Elsewhere;
                Err(DriveError::KeysFromElsewhere { drive: self.line.name.clone() })
            }
            done => self.checked("SECURITY PROTOCOL OUT", done).map(drop),
        }
    }

    /// Loads a key and reads back that it is there.
    fn load_key(&mut self, key: DriveKey) -> Result<(), DriveError> {
        self.slot = KeySlot::Empty;
        let offered = self.ciphers();
        let entry = self.algorithms.iter().find(|entry| entry.algorithm == key.algorithm).copied();
        let Some(entry) = entry else {
            let (drive, algorithm) = (self.line.name.clone(), key.algorithm);
            return Err(DriveError::CipherMissing { drive, algorithm, offered });
        };
        let before = self.encryption_status()?.map(|status| status.key_instance);
        let mut set = SetEncryption {
            scope: Scope::AllNexuses,
            lock: false,
            // Without a volume or a reservation, a drive refuses to tie the key to it.
            clear_on_demount: self.loaded.is_some(),
            clear_on_reservation_loss: matches!(self.reserved, Reserved::With(_)),
            raw_decryption_control: 3,
            encryption: EncryptionMode::Encrypt,
            decryption: DecryptionMode::Decrypt,
            algorithm_index: entry.index,
            key: Zeroizing::new(key.key.to_vec()),
            key_data: self.key_data(&key, entry)?,
        };
        let mut done = self.send_key_page(&set);
        if done.as_ref().is_err_and(|failure| failure.codes() == Some((0x5, 0x26, 0x00))) {
            // A drive that has no raw reading has nothing to forbid.
            set.raw_decryption_control = 0;
            done = self.send_key_page(&set);
        }
        self.key_page_checked(done)?;
        let status = self.encryption_status()?;
        match proof(status.as_ref(), before, entry, &set.key_data) {
            Ok(instance) => {
                self.slot = KeySlot::Loaded { key, instance, proof: Proof::NoBlock };
                Ok(())
            }
            Err(reason) => {
                let refused = DriveError::KeyNotTaken { drive: self.line.name.clone(), reason };
                // Whatever it did take must not be written with.
                let cleared = self.send_clear_page();
                Err(self.key_page_checked(cleared).err().unwrap_or(refused))
            }
        }
    }

    /// The key's tag, where the drive has room for it.
    fn key_data(&self, key: &DriveKey, entry: AlgorithmEntry) -> Result<KeyData, DriveError> {
        let tag = key.tag.0.to_vec();
        if usize::from(entry.unauthenticated_max) >= tag.len() {
            return Ok(KeyData { unauthenticated: tag, authenticated: Vec::new() });
        }
        if usize::from(entry.authenticated_max) >= tag.len() {
            return Ok(KeyData { unauthenticated: Vec::new(), authenticated: tag });
        }
        let reason = format!("it has no room for the key's name of {} bytes beside each block", tag.len());
        Err(DriveError::KeyNotTaken { drive: self.line.name.clone(), reason })
    }

    fn encryption_status(&mut self) -> Result<Option<EncryptionStatus>, DriveError> {
        let asked = self.ask_security_page(page::STATUS);
        match asked {
            Ok(bytes) => Ok(EncryptionStatus::of_bytes(&bytes)),
            Err(failure) => Err(self.failed("SECURITY PROTOCOL IN", failure)),
        }
    }

    /// How what is written at the position will be stored, or why it may not be written.
    pub(super) fn writing_state(&mut self, lbn: u64) -> Result<EncryptionState, DriveError> {
        let drive = self.line.name.clone();
        if matches!(self.slot, KeySlot::Lost) {
            return Err(self.reset());
        }
        let wanted = state_of(self.slot.key());
        let elsewhere = self.slot.is_elsewhere();
        let medium = &self.loaded()?.medium;
        if medium.write_protected {
            return Err(DriveError::WriteProtected { drive });
        }
        if lbn == 0 || elsewhere {
            return Ok(wanted);
        }
        let mixed = |reason| Err(DriveError::MixedEncryption { drive: drive.clone(), reason });
        match (medium.encryption, wanted) {
            (found, wanted) if found == wanted => Ok(wanted),
            (
                EncryptionState::Encrypted { algorithm: found, .. },
                EncryptionState::Encrypted { algorithm: wanted_algorithm, .. },
            ) => match found == wanted_algorithm {
                // Each block names its key: a volume may have several.
                true => Ok(wanted),
                false => mixed("the volume is written with the other cipher: load a key for that one"),
            },
            (EncryptionState::Encrypted { .. }, _) => {
                mixed("the volume is encrypted and no key is loaded: load its key, or write from the beginning of tape")
            }
            (_, _) => mixed("the volume is plain and a key is loaded: clear it, or write from the beginning of tape"),
        }
    }

    /// Before the beginning of tape is written: a key that was taken out to read goes back.
    pub(super) fn key_back(&mut self) -> Result<(), DriveError> {
        match std::mem::replace(&mut self.slot, KeySlot::Empty) {
            KeySlot::Held(key) => self.load_key(key),
            slot => {
                self.slot = slot;
                Ok(())
            }
        }
    }

    /// A plain block on a plain volume, and a drive that was told to decrypt: takes the key out so that it can be read.
    pub(super) fn take_key_out(&mut self) -> Result<(), DriveError> {
        if let KeySlot::Loaded { key, .. } = std::mem::replace(&mut self.slot, KeySlot::Empty) {
            let done = self.send_clear_page();
            self.key_page_checked(done)?;
            self.slot = KeySlot::Held(key);
        }
        Ok(())
    }

    pub(super) fn key_is_loaded(&self) -> bool {
        matches!(self.slot, KeySlot::Loaded { .. })
    }

    /// Somebody else was, or may have been, at the drive: the key must still be the one that was loaded, or none.
    pub(super) fn verify_key(&mut self) -> Result<(), DriveError> {
        let wanted = match &self.slot {
            KeySlot::Loaded { instance, .. } => Some(*instance),
            KeySlot::Empty | KeySlot::Held(_) if !self.algorithms.is_empty() => None,
            KeySlot::Empty | KeySlot::Held(_) | KeySlot::Lost | KeySlot::Elsewhere => return Ok(()),
        };
        let status = self.encryption_status()?;
        let same = status.is_some_and(|status| match wanted {
            Some(instance) => status.key_instance == instance && status.encryption == EncryptionMode::Encrypt as u8,
            None => is_off(&status),
        });
        if same {
            return Ok(());
        }
        self.found_elsewhere();
        Err(DriveError::KeyLost { drive: self.line.name.clone() })
    }

    /// A block went out with the loaded key.
    pub(super) fn wrote_with_key(&mut self, lbn: u64) {
        if let KeySlot::Loaded { proof: proof @ (Proof::NoBlock | Proof::Outstanding(_)), .. } = &mut self.slot {
            *proof = Proof::Outstanding(lbn);
        }
    }

    /// After a flush: a block that was written with a key must stand on the tape as encrypted with it. Done once for
    /// each load of a key, with the last block: the first flush of a session that was appended comes after a whole
    /// checkpoint, and a locate over that much tape costs more than it proves.
    pub(super) fn prove_key(&mut self) -> Result<(), DriveError> {
        let KeySlot::Loaded { key, proof: Proof::Outstanding(lbn), .. } = &self.slot else { return Ok(()) };
        let (tag, lbn) = (key.tag, *lbn);
        let back = self.known()?;
        // What was written in front of it since has ended the tape there, or many filemarks lie between: the next flush
        // has another block.
        if lbn >= back || back - lbn > PROVED_WITHIN {
            return Ok(());
        }
        let early_warning = self.loaded()?.early_warning;
        self.go(Destination::Object(lbn))?;
        let status = self.next_block()?;
        self.go(Destination::Object(back))?;
        self.loaded()?.early_warning |= early_warning;
        let reason = match status.map(|status| (status.next, tag_of(&status))) {
            Some((NextBlock::Plain, _)) => format!("block {lbn} stands on the tape as it was given"),
            Some((NextBlock::Encrypted, found)) if found != tag => {
                format!("block {lbn} names key {found} instead of {tag}")
            }
            Some((NextBlock::KeyMissing, _)) => {
                format!("block {lbn} stands on the tape under a key that the drive does not have")
            }
            Some((NextBlock::OtherAlgorithm, _)) => {
                format!("block {lbn} stands on the tape under a cipher that the drive does not have")
            }
            // A filemark was written over it.
            Some((NextBlock::NoBlock, _)) => return Ok(()),
            // The right key, or a drive that cannot tell.
            Some((NextBlock::Encrypted | NextBlock::Unknown, _)) | None => {
                if let KeySlot::Loaded { proof, .. } = &mut self.slot {
                    *proof = Proof::Given;
                }
                return Ok(());
            }
        };
        Err(DriveError::KeyNotTaken { drive: self.line.name.clone(), reason })
    }

    /// A block that the drive could not or may not decrypt. The drive is left in front of it, or behind it if it was
    /// altered.
    pub(super) fn undecipherable(&mut self, lbn: u64, data: &SenseData) -> DriveError {
        let drive = self.line.name.clone();
        if let Err(error) = self.settle(lbn) {
            return error;
        }
        let passed_over = |this: &mut Self, found| match this.settle(lbn + 1) {
            Ok(()) => found,
            Err(error) => error,
        };
        if data.sense.asc == 0x74 && data.sense.ascq >= KEY_MANAGER {
            return DriveError::Refused { drive, command: "READ", sense: data.sense };
        }
        match (data.sense.asc, data.sense.ascq) {
            (0x74, 0x02) => return passed_over(self, DriveError::PlainBlock { lbn }),
            (0x74, 0x04) => return passed_over(self, DriveError::Integrity { lbn }),
            _ => {}
        }
        let named = match self.next_block() {
            Ok(status) => status.map(|status| tag_of(&status)).filter(|tag| *tag != NO_TAG),
            Err(error) => return error,
        };
        let of_volume = match self.loaded.as_ref().map(|loaded| loaded.medium.encryption) {
            Some(EncryptionState::Encrypted { tag, .. }) => tag,
            _ => NO_TAG,
        };
        match (named, self.slot.key().map(|key| key.tag)) {
            (named, None) => DriveError::NoKey { drive, lbn, tag: named.unwrap_or(of_volume) },
            // It is the key of that name, and does not open the block.
            (Some(named), Some(loaded)) if named == loaded => passed_over(self, DriveError::Integrity { lbn }),
            // A volume may have several keys: the loaded one is not this block's, and which is the drive cannot tell.
            (None, Some(loaded)) if loaded == of_volume => DriveError::WrongKey { drive, needed: NO_TAG, loaded },
            (named, Some(loaded)) => DriveError::WrongKey { drive, needed: named.unwrap_or(of_volume), loaded },
        }
    }
}

/// Qualifiers of 7/74 from here on tell of a drive's own key manager (SPC-5, table F.1).
const KEY_MANAGER: u8 = 0x20;

/// Neither encrypts nor decrypts.
fn is_off(status: &EncryptionStatus) -> bool {
    (status.encryption, status.decryption) == (EncryptionMode::Disable as u8, DecryptionMode::Disable as u8)
}

/// How far behind a block may be looked at, counted in blocks and filemarks: only filemarks lie between.
const PROVED_WITHIN: u64 = 64;

/// The count of keys under which the drive has the key, or what it says instead.
fn proof(
    status: Option<&EncryptionStatus>,
    before: Option<u32>,
    entry: AlgorithmEntry,
    key_data: &KeyData,
) -> Result<u32, String> {
    let Some(status) = status else { return Err("its status page is none".to_owned()) };
    let (encrypt, decrypt) = (EncryptionMode::Encrypt as u8, DecryptionMode::Decrypt as u8);
    if (status.encryption, status.decryption) != (encrypt, decrypt) {
        return Err(format!("its modes are {} and {}", status.encryption, status.decryption));
    }
    if status.algorithm_index != entry.index {
        return Err(format!("it uses algorithm {} instead of {}", status.algorithm_index, entry.index));
    }
    let named = status.key_data != KeyData::default();
    if named && status.key_data != *key_data {
        return Err("it names another key".to_owned());
    }
    // A drive that does not name the key must at least count it.
    if !named && before == Some(status.key_instance) {
        return Err("it neither names the key nor has counted it".to_owned());
    }
    Ok(status.key_instance)
}
