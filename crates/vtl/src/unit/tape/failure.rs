//! What a drive's error is in sense data.

use capstan_tape::scsi::{SenseData, SenseKey};
use capstan_tape::{DriveError, UnfitDrive};

use crate::agent::KeyAgentError;

/// WORM MEDIUM - OVERWRITE ATTEMPTED
pub(super) const OVERWRITE_ATTEMPTED: SenseData = SenseData::new(SenseKey::DataProtect, 0x30, 0x0c);

/// Sense data for an error of the drive below.
pub(super) fn sense_of(error: &DriveError) -> SenseData {
    use SenseKey::{
        AbortedCommand, BlankCheck, DataProtect, HardwareError, IllegalRequest, MediumError, NoSense, NotReady,
        UnitAttention, VolumeOverflow,
    };
    let sense = SenseData::new;
    match error {
        DriveError::NoMedium { .. } => sense(NotReady, 0x3a, 0x00),
        DriveError::WriteProtected { .. } => sense(DataProtect, 0x27, 0x00),
        DriveError::WriteOnce { .. } => OVERWRITE_ATTEMPTED,
        DriveError::ReadFailed { .. } => sense(MediumError, 0x11, 0x00),
        DriveError::WriteFailed { .. } => sense(MediumError, 0x0c, 0x00),
        DriveError::Deferred { .. } => sense(MediumError, 0x0c, 0x00).deferred(),
        DriveError::BlankCheck { .. } => sense(BlankCheck, 0x00, 0x05),
        DriveError::EndOfMedium { .. } => SenseData { end_of_medium: true, ..sense(VolumeOverflow, 0x00, 0x02) },
        DriveError::BlockTooLong { .. } => SenseData { incorrect_length: true, ..sense(NoSense, 0x00, 0x00) },
        DriveError::BlockLength { .. } | DriveError::HostLimit { .. } => {
            SenseData { field: Some((true, 2)), ..sense(IllegalRequest, 0x24, 0x00) }
        }
        DriveError::Incompatible { .. } => sense(MediumError, 0x30, 0x00),
        DriveError::Unfit(error) => match **error {
            UnfitDrive::Foreign { .. } | UnfitDrive::OtherModel { .. } => sense(MediumError, 0x30, 0x02),
            UnfitDrive::ReadOnly { .. } | UnfitDrive::Plain { .. } => sense(DataProtect, 0x30, 0x05),
        },
        // It cannot be written with another key; with those that it has, and read, it can.
        DriveError::KeyListFull { .. } => sense(DataProtect, 0x30, 0x05),
        DriveError::NoKey { .. } | DriveError::KeyUnavailable { .. } => sense(DataProtect, 0x74, 0x01),
        DriveError::WrongKey { .. } => sense(DataProtect, 0x74, 0x03),
        DriveError::Integrity { .. } => sense(DataProtect, 0x74, 0x04),
        DriveError::MixedEncryption { .. } => sense(DataProtect, 0x30, 0x05),
        DriveError::NoKeySlot { .. } => sense(IllegalRequest, 0x20, 0x00),
        DriveError::BeginningOfMedium => SenseData { end_of_medium: true, ..sense(NoSense, 0x00, 0x04) },
        DriveError::InUse { .. } => sense(NotReady, 0x04, 0x07),
        DriveError::EndOfDataLost { .. } => sense(BlankCheck, 0x14, 0x03),
        DriveError::Reset { .. } | DriveError::MovedByOthers { .. } => sense(UnitAttention, 0x29, 0x00),
        DriveError::PlainBlock { .. } => sense(DataProtect, 0x74, 0x02),
        DriveError::Aborted { .. } => sense(AbortedCommand, 0x00, 0x00),
        DriveError::NotReady { .. } => sense(NotReady, 0x04, 0x01),
        DriveError::CleaningCartridge { .. } => sense(NotReady, 0x30, 0x03),
        DriveError::MediumChanged { .. } => sense(UnitAttention, 0x28, 0x00),
        DriveError::ReservationLost { .. } => sense(UnitAttention, 0x2a, 0x03),
        DriveError::KeyLost { .. } => sense(UnitAttention, 0x2a, 0x11),
        DriveError::KeysFromElsewhere { .. } => sense(IllegalRequest, 0x74, 0x21),
        DriveError::CipherMissing { .. } => sense(IllegalRequest, 0x26, 0x00),
        DriveError::Hardware { .. }
        | DriveError::Host { .. }
        | DriveError::Reported { .. }
        | DriveError::KeyNotTaken { .. }
        | DriveError::OutOfReach { .. }
        | DriveError::Refused { .. } => sense(HardwareError, 0x44, 0x00),
    }
}

/// Sense data for a key that an agent did not get (SPC-5, table F.1).
pub(super) fn sense_of_agent(error: &KeyAgentError) -> SenseData {
    let ascq = match error {
        // EXTERNAL DATA ENCRYPTION KEY NOT FOUND
        KeyAgentError::Gone { .. } => 0x63,
        // EXTERNAL DATA ENCRYPTION REQUEST NOT AUTHORIZED
        KeyAgentError::Refused { .. } => 0x64,
        // EXTERNAL DATA ENCRYPTION KEY MANAGER ACCESS ERROR
        KeyAgentError::Unreachable { .. } => 0x61,
    };
    SenseData::new(SenseKey::DataProtect, 0x74, ascq)
}
