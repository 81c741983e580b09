//! The medium in the drive: name, capacity, generation, and how it is written.

use std::fmt;

use capstan_format::{Algorithm, KeyTag, MediumSerial, Volser};

use super::ScsiDrive;
use super::modes::Modes;
use crate::hardware::line::Failure;
use crate::model;
use crate::scsi::attribute::{self, MediumAttribute, id};
use crate::scsi::bytes::be32;
use crate::scsi::command::{Length, PageControl};
use crate::scsi::encryption::{NextBlock, NextBlockStatus, page};
use crate::scsi::log;
use crate::scsi::sense::Action;
use crate::scsi::{Command, DataPhase, Transport};
use crate::{DriveError, EncryptionState, Medium, Rewritability};

const MIB: u64 = 1 << 20;

/// By what a cartridge is known again: the serial number in its memory, and its barcode.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct MediumName {
    serial: Option<String>,
    barcode: Option<String>,
}

impl MediumName {
    /// Whether another cartridge goes by that name. The serial number is the maker's and stays; a barcode may be
    /// written meanwhile.
    pub(super) fn is_other(&self, found: &Self) -> bool {
        match (&self.serial, &found.serial) {
            (Some(serial), Some(found)) => serial != found,
            _ => matches!((&self.barcode, &found.barcode), (Some(barcode), Some(found)) if barcode != found),
        }
    }

    fn of(attributes: &[MediumAttribute]) -> Self {
        let text = |wanted: u16| {
            let found = attributes.iter().find(|attribute| attribute.id == wanted)?;
            Some(found.as_text()).filter(|text| !text.is_empty())
        };
        Self { serial: text(id::MEDIUM_SERIAL), barcode: text(id::BARCODE) }
    }
}

impl fmt::Display for MediumName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (&self.barcode, &self.serial) {
            (Some(barcode), Some(serial)) => write!(f, "cartridge {barcode} (serial number {serial})"),
            (Some(barcode), None) => write!(f, "cartridge {barcode}"),
            (None, Some(serial)) => write!(f, "the cartridge with serial number {serial}"),
            (None, None) => f.write_str("a cartridge without a name in its memory"),
        }
    }
}

impl<T: Transport> ScsiDrive<T> {
    /// What the cartridge's memory and the modes say. How it is written is not known yet.
    pub(super) fn look_at_medium(&mut self, modes: Modes) -> Result<(Medium, MediumName), DriveError> {
        let attributes = self.attributes(0)?;
        let name = MediumName::of(&attributes);
        let barcode = name.barcode.clone();
        let number = |wanted: u16| attributes.iter().find(|attribute| attribute.id == wanted)?.as_number();
        if number(id::MEDIUM_TYPE) == Some(attribute::CLEANING) {
            return Err(DriveError::CleaningCartridge { drive: self.line.name.clone() });
        }
        let (capacity_mib, remaining_mib) = match (number(id::MAXIMUM), number(id::REMAINING)) {
            (Some(capacity), Some(remaining)) => (capacity, remaining),
            _ => self.capacity_by_log(),
        };
        let medium = Medium {
            volser: barcode.and_then(|barcode| Volser::new(&barcode).ok()),
            serial: name.serial.as_deref().and_then(|serial| MediumSerial::new(serial).ok()),
            generation: self.generation(modes.density),
            capacity_bytes: capacity_mib.saturating_mul(MIB),
            remaining_bytes: remaining_mib.saturating_mul(MIB),
            write_protected: modes.write_protected,
            rewritability: rewritability(number(id::MEDIUM_TYPE), modes.medium_type),
            encryption: EncryptionState::Blank,
        };
        Ok((medium, name))
    }

    /// The cartridge must be the one that was loaded: its position alone does not tell, since any tape has a beginning.
    pub(super) fn same_medium(&mut self) -> Result<(), DriveError> {
        let found = MediumName::of(&self.attributes(id::MEDIUM_SERIAL)?);
        let expected = &self.loaded()?.name;
        if !expected.is_other(&found) {
            return Ok(());
        }
        let (expected, found) = (expected.to_string(), found.to_string());
        self.at = None;
        self.loaded = None;
        Err(DriveError::MediumChanged { drive: self.line.name.clone(), expected, found })
    }

    /// The generation of a density code. It is asked after every reset, and the models are text to be read.
    fn generation(&mut self, density: u8) -> Option<String> {
        match &self.generation_known {
            Some((code, generation)) if *code == density => generation.clone(),
            _ => {
                let generation = generation_of_density(density);
                self.generation_known = Some((density, generation.clone()));
                generation
            }
        }
    }

    /// Asks anew how much can still be written.
    pub(super) fn refresh_remaining(&mut self) -> Result<(), DriveError> {
        let attributes = self.attributes(id::REMAINING)?;
        let remaining =
            attributes.iter().find(|attribute| attribute.id == id::REMAINING).and_then(MediumAttribute::as_number);
        if let Some(remaining) = remaining {
            self.loaded()?.medium.remaining_bytes = remaining.saturating_mul(MIB);
        }
        Ok(())
    }

    /// Attributes from this one on; none if the cartridge has no memory, or one that cannot be read.
    fn attributes(&mut self, first: u16) -> Result<Vec<MediumAttribute>, DriveError> {
        let mut bytes = vec![0; 16_384.min(self.line.transport.data_max())];
        let allocation = bytes.len() as u32;
        let command = Command::ReadAttribute { action: 0, volume: 0, partition: 0, first, allocation };
        match self.line.run(&command, DataPhase::In(&mut bytes)) {
            Ok(done) => {
                self.note(&done);
                let end = (4 + be32(&bytes, 0) as usize).min(done.moved).min(bytes.len());
                Ok(attribute::decode(bytes.get(4..end).unwrap_or_default()).0)
            }
            Err(failure) if matches!(failure.codes(), Some((0x3..=0x5, ..))) => Ok(Vec::new()),
            Err(failure) => Err(self.failed("READ ATTRIBUTE", failure)),
        }
    }

    /// MiB altogether and left, from the capacity log page of drives whose cartridges have no memory; zero if there is
    /// none.
    fn capacity_by_log(&mut self) -> (u64, u64) {
        let parameters = self.log_page(log::page::CAPACITY).unwrap_or_default();
        let number = |wanted: u16| {
            let found = parameters.iter().find(|parameter| parameter.number == wanted);
            found.and_then(log::Parameter::as_number).unwrap_or(0)
        };
        // Main partition: 1 remaining, 3 maximum.
        (number(3), number(1))
    }

    /// A log page; none if the drive has it not.
    pub(super) fn log_page(&mut self, page: u8) -> Option<Vec<log::Parameter>> {
        let mut bytes = vec![0; 0xffff.min(self.line.transport.data_max())];
        let command = Command::LogSense {
            save: false,
            // Cumulative values.
            control: PageControl::Changeable,
            page,
            subpage: 0,
            from_parameter: 0,
            allocation: bytes.len() as u16,
        };
        let done = self.line.run(&command, DataPhase::In(&mut bytes));
        match done {
            Ok(done) => log::decode(page, &bytes[..done.moved.min(bytes.len())]),
            Err(failure) => {
                // A page that is not there is no failure; whatever else it tells must not be forgotten.
                if !failure.is_not_known() {
                    drop(self.failed("LOG SENSE", failure));
                }
                None
            }
        }
    }

    /// How the block at the beginning of tape is written. The tape may have moved when this returns.
    pub(super) fn encryption_at_beginning(&mut self) -> Result<EncryptionState, DriveError> {
        if !self.algorithms.is_empty()
            && let Some(status) = self.next_block()?
            && let Some(state) = self.state_of_next(&status)
        {
            return Ok(state);
        }
        // Nothing was said, or that it is no block: a filemark or the end of data. A read tells.
        let mut byte = [0];
        let command = Command::Read { length: Length::Variable(1), suppress_incorrect_length: false, at: None };
        let met = self.line.run(&command, DataPhase::In(&mut byte));
        self.at = None;
        match met {
            Ok(done) => {
                self.note(&done);
                Ok(EncryptionState::Plain)
            }
            Err(failure) if failure.action() == Some(Action::EndOfData) => Ok(EncryptionState::Blank),
            // Without its own word for it, a blank tape has no end of data, or nothing at all.
            Err(failure) if matches!(failure.codes(), Some((0x8, ..))) => Ok(EncryptionState::Blank),
            // Unencrypted data met while decrypting.
            Err(failure) if matches!(failure.codes(), Some((0x7, 0x74, 0x02))) => Ok(EncryptionState::Plain),
            Err(failure) if matches!(failure.codes(), Some((0x7, 0x74 | 0x26, _))) => {
                // The drive may know now what it did not before.
                let status = self.next_block()?;
                let state = status.and_then(|status| self.state_of_next(&status));
                Ok(state.unwrap_or(EncryptionState::Encrypted { algorithm: Algorithm::Aes256Gcm, tag: NO_TAG }))
            }
            // The first block cannot be read; others may be.
            Err(Failure::Check(data)) if data.sense.is_medium_error() => Ok(EncryptionState::Plain),
            Err(failure) => Err(self.failed("READ", failure)),
        }
    }

    fn state_of_next(&self, status: &NextBlockStatus) -> Option<EncryptionState> {
        let encrypted = || {
            let entry = self.algorithms.iter().find(|entry| entry.index == status.algorithm_index);
            let algorithm = entry.map_or(Algorithm::Aes256Gcm, |entry| entry.algorithm);
            EncryptionState::Encrypted { algorithm, tag: tag_of(status) }
        };
        match status.next {
            NextBlock::Plain => Some(EncryptionState::Plain),
            // Somebody else gives the drive its keys: whoever reads through it sees plain blocks and needs none.
            NextBlock::Encrypted if self.slot.is_elsewhere() => Some(EncryptionState::Plain),
            NextBlock::Encrypted | NextBlock::KeyMissing | NextBlock::OtherAlgorithm => Some(encrypted()),
            NextBlock::NoBlock | NextBlock::Unknown => None,
        }
    }

    /// The next block's encryption status; none if the drive cannot tell.
    pub(super) fn next_block(&mut self) -> Result<Option<NextBlockStatus>, DriveError> {
        match self.ask_security_page(page::NEXT_BLOCK) {
            Ok(bytes) => Ok(NextBlockStatus::of_bytes(&bytes)),
            Err(failure) if matches!(failure.codes(), Some((0x5 | 0x7 | 0x8 | 0x3, ..))) => Ok(None),
            Err(failure) => Err(self.failed("SECURITY PROTOCOL IN", failure)),
        }
    }
}

/// The tag of a key that the medium does not name.
pub(super) const NO_TAG: KeyTag = KeyTag([0; 16]);

/// The key that the drive read from the medium. Other programs' key data are cut or filled up with zeroes.
pub(super) fn tag_of(status: &NextBlockStatus) -> KeyTag {
    let mut tag = [0; 16];
    let data = &status.key_data;
    let bytes = if data.unauthenticated.is_empty() { &data.authenticated } else { &data.unauthenticated };
    for (to, from) in tag.iter_mut().zip(bytes) {
        *to = *from;
    }
    KeyTag(tag)
}

/// WORM if either the cartridge's memory or the mode parameter header says so: one that was taken for rewritable is
/// used up by its label.
fn rewritability(attribute: Option<u64>, medium_type: u8) -> Rewritability {
    match attribute == Some(attribute::WRITE_ONCE) || attribute::LTO_WRITE_ONCE.contains(&medium_type) {
        true => Rewritability::WriteOnce,
        false => Rewritability::Rewritable,
    }
}

/// The generation that a density code stands for, where a model has it. Drives whose cartridges have other names than
/// they (JD, say, in a TS1155) do not tell which of them it is: several are written in one density.
pub(crate) fn generation_of_density(code: u8) -> Option<String> {
    if code == 0 {
        return None;
    }
    model::built_in_names()
        .filter_map(|name| model::built_in(name).ok())
        .find(|model| model.density_code.as_ref().is_some_and(|figure| figure.value == code))
        .filter(|model| model.access(&model.name) == model::Access::ReadWrite)
        .map(|model| model.name.clone())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cartridge_or_the_drive_says_that_it_is_write_once() {
        assert_eq!(rewritability(Some(0x80), 0), Rewritability::WriteOnce);
        assert_eq!(rewritability(Some(0), 0x9c), Rewritability::WriteOnce, "a memory may be silent of it");
        assert_eq!(rewritability(Some(0), 0x98), Rewritability::Rewritable);
        assert_eq!(rewritability(None, 0x3c), Rewritability::WriteOnce, "LTO-3");
        assert_eq!(rewritability(None, 0x98), Rewritability::Rewritable, "LTO-9");
    }

    #[test]
    fn a_density_code_names_its_generation() {
        assert_eq!(generation_of_density(0x60).as_deref(), Some("LTO-9"));
        assert_eq!(generation_of_density(0x4d).as_deref(), Some("T10000D"));
        assert_eq!(generation_of_density(0x57), None, "a TS1160, which has cartridges JD and JE");
        assert_eq!(generation_of_density(0), None);
        assert_eq!(generation_of_density(0xee), None);
    }
}
