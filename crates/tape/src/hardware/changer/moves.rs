//! Moving cartridges.

use capstan_format::Volser;

use super::{Failure, Met, ScsiChanger, volser_of};
use crate::scsi::element::{ElementStatus, ElementType, MediumType};
use crate::scsi::{Command, DataPhase, Transport};
use crate::{ChangerError, ElementAddress, barcode};

/// A move as it is decided on the last inventory.
enum Plan {
    /// All is as it should be.
    Nothing,
    /// From one element to another.
    Move { from: u16, to: u16 },
    /// What is in `with` goes to `from`, and what is in `from` to `with`.
    Exchange { from: u16, with: u16 },
}

/// What a cartridge is brought to a drive for.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Purpose {
    Data,
    Cleaning,
}

impl Purpose {
    /// Refuses a cleaning cartridge for data, whether its barcode or the library says that it is one.
    fn check(self, volser: &Volser, element: &ElementStatus) -> Result<(), ChangerError> {
        let cleans = barcode::is_cleaning(volser) || element.medium_type == Some(MediumType::Cleaning);
        if cleans && self == Self::Data {
            return Err(ChangerError::CleaningCartridge { volser: volser.clone() });
        }
        Ok(())
    }
}

impl<T: Transport> ScsiChanger<T> {
    pub(super) fn bring(&mut self, volser: &Volser, drive: u32, purpose: Purpose) -> Result<(), ChangerError> {
        self.carry_out(&|this| {
            let to = this.drive_element(drive)?;
            let from = this.find_volume(volser)?;
            purpose.check(volser, from)?;
            if from.address == to.address {
                return Ok(Plan::Nothing);
            }
            if from.kind == ElementType::DataTransfer {
                let other = this.number_of(from);
                let holder = "another session".to_owned();
                return Err(ChangerError::InOtherDrive { volser: volser.clone(), drive: other, holder });
            }
            if to.full {
                return Err(this.drive_full(drive, to));
            }
            Ok(Plan::Move { from: from.address, to: to.address })
        })
    }

    pub(super) fn take_back(&mut self, drive: u32) -> Result<(), ChangerError> {
        self.carry_out(&|this| {
            let from = this.drive_element(drive)?;
            if !from.full {
                return Err(ChangerError::DriveEmpty { drive });
            }
            Ok(Plan::Move { from: from.address, to: this.home_of(from)? })
        })
    }

    /// Brings a cartridge into a drive in exchange for the one that is there, which goes where the first came from. The
    /// drive must have unloaded it. A library that cannot exchange does it in two moves.
    ///
    /// # Errors
    /// [`ChangerError::UnknownVolume`] and [`ChangerError::InOtherDrive`] if there is nothing to bring;
    /// [`ChangerError::NoRoom`] if the other one has nowhere to go; else the library cannot be asked or does not move
    /// it.
    pub fn exchange(&mut self, volser: &Volser, drive: u32) -> Result<(), ChangerError> {
        let exchanged = self.carry_out(&|this| {
            let to = this.drive_element(drive)?;
            let from = this.find_volume(volser)?;
            Purpose::Data.check(volser, from)?;
            match from.address == to.address {
                true => Ok(Plan::Nothing),
                false if !to.full => Ok(Plan::Move { from: from.address, to: to.address }),
                false => Ok(Plan::Exchange { from: from.address, with: to.address }),
            }
        });
        match exchanged {
            Err(ChangerError::Refused { sense, .. }) if (sense.key, sense.asc) == (0x5, 0x20) => {
                self.take_back(drive)?;
                self.bring(volser, drive, Purpose::Data)
            }
            exchanged => exchanged,
        }
    }

    /// Brings what is in a mail slot into the first free slot.
    ///
    /// # Errors
    /// [`ChangerError::ElementEmpty`] if nothing is in the mail slot; [`ChangerError::NoRoom`] if no slot is free; else
    /// the library cannot be asked or does not move it.
    pub fn import(&mut self, mail_slot: u32) -> Result<(), ChangerError> {
        let place = ElementAddress::ImportExport(mail_slot);
        self.carry_out(&|this| {
            let from = this.element(place).filter(|element| element.full);
            let from = from.ok_or(ChangerError::ElementEmpty { element: place })?;
            let to = this.free(ElementType::Storage).ok_or_else(|| this.no_room("slot", from))?;
            Ok(Plan::Move { from: from.address, to })
        })
    }

    /// Brings a cartridge to the first free mail slot, for a person to take out.
    ///
    /// # Errors
    /// [`ChangerError::UnknownVolume`] if there is no such cartridge; [`ChangerError::NoRoom`] if no mail slot is free;
    /// else the library cannot be asked or does not move it.
    pub fn export(&mut self, volser: &Volser) -> Result<(), ChangerError> {
        self.carry_out(&|this| {
            let from = this.find_volume(volser)?;
            if from.kind == ElementType::ImportExport {
                return Ok(Plan::Nothing);
            }
            let to = this.free(ElementType::ImportExport).ok_or_else(|| this.no_room("mail slot", from))?;
            Ok(Plan::Move { from: from.address, to })
        })
    }

    /// Takes the inventory, decides, and moves; once more if the library turns out to be other than it said.
    fn carry_out(&mut self, decide: &dyn Fn(&Self) -> Result<Plan, ChangerError>) -> Result<(), ChangerError> {
        self.take_inventory()?;
        let mut tries = 0;
        loop {
            let plan = decide(self)?;
            tries += 1;
            let (what, command, from) = match plan {
                Plan::Nothing => return Ok(()),
                Plan::Move { from, to } => {
                    ("MOVE MEDIUM", Command::MoveMedium { transport: self.assignments.transport.0, from, to }, from)
                }
                Plan::Exchange { from, with } => {
                    let transport = self.assignments.transport.0;
                    ("EXCHANGE MEDIUM", Command::ExchangeMedium { transport, from, to: with, second_to: from }, with)
                }
            };
            match self.try_command(what, &command, DataPhase::None)? {
                Met::Done(_) => return Ok(()),
                Met::OtherThanTold(failure) if tries > 1 => return Err(self.stuck(what, failure, from)),
                Met::OtherThanTold(_) => self.take_inventory()?,
            }
        }
    }

    /// It did not help to look again.
    fn stuck(&self, what: &'static str, failure: Failure, from: u16) -> ChangerError {
        match failure.codes() {
            Some((0x5, 0x53, 0x02)) => {
                let place = self.place_of(from).map_or_else(|| format!("element {from}"), |place| place.to_string());
                let holder = "the drive or a host that prevents its removal".to_owned();
                ChangerError::InUse { what: format!("the cartridge in {place}"), holder }
            }
            _ => self.failed(what, failure),
        }
    }

    fn drive_element(&self, drive: u32) -> Result<&ElementStatus, ChangerError> {
        let unknown = || ChangerError::UnknownDrive { drive, drives: self.drives() };
        self.element(ElementAddress::Drive(drive)).ok_or_else(unknown)
    }

    fn find_volume(&self, volser: &Volser) -> Result<&ElementStatus, ChangerError> {
        let mut found = self.elements.iter().filter(|element| volser_of(element).as_ref() == Some(volser));
        let one = found.next().ok_or_else(|| ChangerError::UnknownVolume { volser: volser.clone() })?;
        if let Some(other) = found.next()
            && let Some(one) = self.place_of(one.address)
            && let Some(other) = self.place_of(other.address)
        {
            return Err(ChangerError::DuplicateVolume { volser: volser.clone(), one, other });
        }
        Ok(one)
    }

    fn number_of(&self, element: &ElementStatus) -> u32 {
        match self.place_of(element.address) {
            Some(
                ElementAddress::Slot(number) | ElementAddress::Drive(number) | ElementAddress::ImportExport(number),
            ) => number,
            None => u32::from(element.address),
        }
    }

    fn drive_full(&self, drive: u32, element: &ElementStatus) -> ChangerError {
        match volser_of(element) {
            Some(volser) => ChangerError::DriveFull { drive, volser },
            None => {
                let barcode = element.volume_tag.as_ref().map(|tag| format!("with barcode {tag}, which is no volser"));
                let cartridge = barcode.unwrap_or_else(|| "without a barcode that can be read".to_owned());
                let holder = format!("a cartridge {cartridge} (`capstan library unload {drive}` takes it out)");
                ChangerError::InUse { what: format!("drive {drive}"), holder }
            }
        }
    }

    /// Where a cartridge in a drive came from, if that is free; else the first free slot.
    fn home_of(&self, drive: &ElementStatus) -> Result<u16, ChangerError> {
        let source = drive.source.and_then(|source| self.elements.iter().find(|element| element.address == source));
        let free = |element: &&ElementStatus| element.kind != ElementType::DataTransfer && is_free(element);
        source
            .filter(free)
            .map(|element| element.address)
            .or_else(|| self.free(ElementType::Storage))
            .ok_or_else(|| self.no_room("slot", drive))
    }

    fn free(&self, kind: ElementType) -> Option<u16> {
        self.elements.iter().find(|element| element.kind == kind && is_free(element)).map(|element| element.address)
    }

    fn no_room(&self, kind: &'static str, cartridge: &ElementStatus) -> ChangerError {
        let volser = match (&cartridge.volume_tag, self.place_of(cartridge.address)) {
            (Some(tag), _) => tag.clone(),
            (None, Some(place)) => format!("without a barcode in {place}"),
            (None, None) => "without a barcode".to_owned(),
        };
        ChangerError::NoRoom { kind, volser }
    }
}

/// Whether a cartridge may be put there. An element that something is wrong with is left alone.
fn is_free(element: &ElementStatus) -> bool {
    !element.full && element.exception.is_none() && element.accessible
}
