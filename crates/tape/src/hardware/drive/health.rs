//! What the drive counts and complains of: TapeAlert, statistics of drive and volume, compression.

use super::ScsiDrive;
use crate::health::{Cleaning, DriveStatistics, TapeAlert, VolumeStatistics};
use crate::scsi::attribute::{AttributeFormat, MediumAttribute, encode, id};
use crate::scsi::log::{Parameter, page};
use crate::scsi::{Command, DataPhase, Transport};
use crate::{DriveCare, DriveError, VolumeDescription};

/// Tape usage, of LTO drives that have no volume statistics page; its parameters have the same numbers as far as they
/// are read here.
const USAGE: u8 = 0x30;

/// Number of the parameter "cleaning action required" on the sequential access page.
const CLEANING_REQUIRED: u16 = 0x0100;

impl<T: Transport> ScsiDrive<T> {
    /// The flags that are up. Reading them takes them down: keep what is returned.
    pub fn alerts(&mut self) -> Vec<TapeAlert> {
        let flags = self.log_page(page::TAPE_ALERT).unwrap_or_default();
        flags
            .iter()
            .filter(|flag| flag.value.last().is_some_and(|value| value & 1 == 1))
            .map(|flag| TapeAlert::of_flag(flag.number))
            .collect()
    }

    /// What the drive counts; what it does not count is none.
    pub fn statistics(&mut self) -> DriveStatistics {
        let access = self.log_page(page::SEQUENTIAL);
        let compression = self.log_page(page::COMPRESSION);
        let device = self.log_page(page::DEVICE_STATISTICS);
        let volume = match self.log_page(page::VOLUME_STATISTICS) {
            Some(parameters) => Some(parameters),
            None => self.log_page(USAGE),
        };
        let number = |parameters: &Option<Vec<Parameter>>, wanted: u16| {
            parameters.as_ref()?.iter().find(|parameter| parameter.number == wanted)?.as_number()
        };
        let cleaning = match (self.cleaning, number(&access, CLEANING_REQUIRED)) {
            (Cleaning::Asked, _) => Some(Cleaning::Asked),
            (Cleaning::NotAsked, Some(0)) => Some(Cleaning::NotAsked),
            (Cleaning::NotAsked, Some(_)) => Some(Cleaning::Asked),
            (Cleaning::NotAsked, None) => None,
        };
        DriveStatistics {
            host_written_bytes: number(&access, 0x0000),
            medium_written_bytes: number(&access, 0x0001),
            medium_read_bytes: number(&access, 0x0002),
            host_read_bytes: number(&access, 0x0003),
            read_compression_percent: number(&compression, 0x0000),
            write_compression_percent: number(&compression, 0x0001),
            recovered_errors: self.recovered_errors,
            cleaning,
            loads: number(&device, 0x0000),
            metres: number(&device, 0x0004),
            volume: VolumeStatistics {
                mounts: number(&volume, 0x0001),
                data_sets_written: number(&volume, 0x0002),
                write_retries: number(&volume, 0x0003),
                write_errors: number(&volume, 0x0004),
                data_sets_read: number(&volume, 0x0007),
                read_retries: number(&volume, 0x0008),
                read_errors: number(&volume, 0x0009),
                written_mb: number(&volume, 0x0010),
                read_mb: number(&volume, 0x0011),
            },
        }
    }
}

/// Whose memory of a cartridge it is (SPC-5, 7.4.2.3).
const APPLICATION: (&str, &str) = ("CAPSTAN", "Capstan");

/// Volume coherency information (SSC-5, 7.4, attribute 080Ch): the change reference's length and value, a count, the
/// set, and what belongs to the application: ours is the volume's life.
fn coherency(description: &VolumeDescription) -> MediumAttribute {
    let mut value = vec![8];
    value.extend_from_slice(&description.life.to_be_bytes());
    value.extend_from_slice(&description.checkpoint_lbn.to_be_bytes());
    value.extend_from_slice(&description.checkpoint_lbn.to_be_bytes());
    let mut own = APPLICATION.0.as_bytes().to_vec();
    own.push(0);
    own.extend_from_slice(&description.life.to_be_bytes());
    value.extend_from_slice(&(own.len() as u16).to_be_bytes());
    value.extend_from_slice(&own);
    MediumAttribute { id: id::COHERENCY, read_only: false, kind: AttributeFormat::Binary, value }
}

impl<T: Transport> DriveCare for ScsiDrive<T> {
    fn reserve(&mut self, key: u64, is_gone: &dyn Fn(u64) -> bool) -> Result<(), DriveError> {
        ScsiDrive::reserve(self, key, is_gone)
    }

    fn release(&mut self) -> Result<(), DriveError> {
        ScsiDrive::release(self)
    }

    fn alerts(&mut self) -> Vec<TapeAlert> {
        ScsiDrive::alerts(self)
    }

    fn statistics(&mut self) -> DriveStatistics {
        ScsiDrive::statistics(self)
    }

    fn describe_volume(&mut self, description: &VolumeDescription) -> Result<(), DriveError> {
        if self.at.is_none() {
            // It is not known what happened to the drive since; the volume's next session tells its memory.
            return Ok(());
        }
        // What is said of one cartridge must not be written into another.
        self.same_medium()?;
        let attributes = [
            MediumAttribute::ascii(id::APPLICATION_VENDOR, APPLICATION.0, 8),
            MediumAttribute::ascii(id::APPLICATION_NAME, APPLICATION.1, 32),
            MediumAttribute::ascii(id::APPLICATION_VERSION, env!("CARGO_PKG_VERSION"), 8),
            MediumAttribute::ascii(id::BARCODE, description.volser.as_str(), 32),
            MediumAttribute::text(id::MEDIA_POOL, &description.pool, 160),
            MediumAttribute::ascii(id::FORMAT_VERSION, &description.format, 16),
            coherency(description),
        ];
        let body = encode(&attributes);
        let mut list = (body.len() as u32).to_be_bytes().to_vec();
        list.extend_from_slice(&body);
        let command = Command::WriteAttribute { write_through: true, partition: 0, len: list.len() as u32 };
        let sent = self.line.run(&command, DataPhase::Out(&list));
        match sent {
            // Cartridges without a memory, and drives that do not write it.
            Err(failure) if failure.is_not_known() => Ok(()),
            sent => self.checked("WRITE ATTRIBUTE", sent).map(drop),
        }
    }
}
