//! What a failed command means: the table's action, as an error and as what is no longer known.

use std::time::Duration;

use super::ScsiDrive;
use super::reservation::Reserved;
use crate::DriveError;
use crate::hardware::line::Failure;
use crate::health::Cleaning;
use crate::scsi::sense::{Action, Sense};
use crate::scsi::{ScsiStatus, SenseData, SenseKey, Transport, TransportError};

/// Additional sense code of 3/09/00.
const TRACK_FOLLOWING: u8 = 0x09;

/// What is no longer known after a failure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Unknown {
    /// Nothing: the command was refused, and nothing moved.
    Nothing,
    /// Where the tape stands.
    Position,
    /// That, the key and the modes; perhaps which cartridge it is.
    Everything,
    /// There is no cartridge.
    Cartridge,
}

impl<T: Transport> ScsiDrive<T> {
    /// The error of a failed command; the drive forgets what it can no longer be sure of.
    pub(super) fn failed(&mut self, what: &'static str, failure: Failure) -> DriveError {
        let drive = self.line.name.clone();
        let hardware = |reason| DriveError::Hardware { drive: drive.clone(), reason };
        let (unknown, error) = match failure {
            Failure::Check(data) => self.meaning(what, &data),
            Failure::Transport(TransportError::TooLong { len, .. }) => {
                let limit = self.movable();
                self.limits.max = self.limits.max.min(limit);
                (Unknown::Nothing, DriveError::HostLimit { drive, len, limit })
            }
            Failure::Transport(source) => (Unknown::Everything, DriveError::OutOfReach { drive, source }),
            Failure::Busy(waited) => {
                (Unknown::Nothing, DriveError::NotReady { drive, reason: "it answers BUSY".to_owned(), waited })
            }
            Failure::Conflict if self.reserved != Reserved::No => {
                (Unknown::Everything, DriveError::ReservationLost { drive })
            }
            Failure::Conflict => {
                let holder = "another host, which has reserved it".to_owned();
                (Unknown::Everything, DriveError::InUse { what: format!("drive {drive}"), holder })
            }
            Failure::Status(ScsiStatus::CheckCondition) => {
                (Unknown::Everything, hardware(format!("{what} failed, and it does not say why: reset it")))
            }
            Failure::Status(status) => {
                (Unknown::Everything, hardware(format!("{what} ended with status {status:?}: reset it")))
            }
        };
        self.forget(unknown);
        if matches!(error, DriveError::ReservationLost { .. }) && self.reserved != Reserved::No {
            self.reserved = Reserved::Lost;
        }
        error
    }

    /// The one place where an action of the sense table becomes an error.
    fn meaning(&mut self, what: &'static str, data: &SenseData) -> (Unknown, DriveError) {
        let drive = self.line.name.clone();
        let sense = data.sense;
        let lbn = self.at.unwrap_or(self.last_lbn);
        let source = || std::io::Error::other(sense.to_string());
        let reason = || sense.to_string();
        match sense.action() {
            Some(Action::RollBack) => (Unknown::Position, DriveError::Deferred { source: source().into() }),
            Some(Action::CloseVolume | Action::ReadElsewhere) => (Unknown::Position, self.medium_error(what, sense)),
            Some(Action::NextVolume) => (Unknown::Position, DriveError::EndOfMedium { lbn }),
            Some(Action::EndOfData) => (Unknown::Position, DriveError::BlankCheck { lbn, end_of_data: lbn }),
            Some(Action::RecoverReadOnly) => (Unknown::Position, DriveError::EndOfDataLost { reason: reason() }),
            Some(Action::Eject) => (Unknown::Nothing, DriveError::Incompatible { drive, reason: reason() }),
            Some(Action::DriveDown) => (
                Unknown::Everything,
                DriveError::Hardware { drive, reason: format!("{sense} on {what}: take it out of service") },
            ),
            Some(Action::ResendOnce) => (
                Unknown::Position,
                DriveError::Hardware { drive, reason: format!("{sense} on {what}: look at cable and host adapter") },
            ),
            Some(Action::Reverify) => (Unknown::Everything, DriveError::Reset { drive }),
            Some(Action::Stop) => (Unknown::Everything, DriveError::ReservationLost { drive }),
            Some(Action::ReloadKey) => (Unknown::Everything, DriveError::KeyLost { drive }),
            // The one of the two that is a matter of where on it, and not of the whole cartridge.
            Some(Action::AnotherVolume) if sense.asc == 0x30 => (Unknown::Nothing, DriveError::WriteOnce { drive }),
            Some(Action::AnotherVolume) => (Unknown::Nothing, DriveError::WriteProtected { drive }),
            Some(Action::FetchKey | Action::TamperAlarm) => self.about_keys(what, data),
            Some(Action::Poll) if sense.asc == 0x3a => (Unknown::Cartridge, DriveError::NoMedium { drive }),
            Some(Action::Poll) => {
                (Unknown::Everything, DriveError::NotReady { drive, reason: reason(), waited: Duration::ZERO })
            }
            Some(Action::Clean) => {
                self.cleaning = Cleaning::Asked;
                (Unknown::Cartridge, DriveError::CleaningCartridge { drive })
            }
            Some(Action::ReadPosition) => (Unknown::Position, DriveError::Aborted { drive, command: what, sense }),
            // A changer's affairs, and what is no failure.
            Some(
                Action::Inventory
                | Action::TakeFilemark
                | Action::StopData
                | Action::WriteTrailer
                | Action::CountRecovered,
            )
            | None => {
                let refused = DriveError::Refused { drive: drive.clone(), command: what, sense };
                match sense.key {
                    _ if sense.is_medium_error() => (Unknown::Position, self.medium_error(what, sense)),
                    // 2/3A/01 and 02 say how the drive stands empty.
                    key if key == SenseKey::NotReady as u8 && sense.asc == 0x3a => {
                        (Unknown::Cartridge, DriveError::NoMedium { drive })
                    }
                    key if key == SenseKey::NotReady as u8 => {
                        let (reason, waited) = (reason(), Duration::ZERO);
                        (Unknown::Everything, DriveError::NotReady { drive, reason, waited })
                    }
                    key if key == SenseKey::IllegalRequest as u8 || key == SenseKey::DataProtect as u8 => {
                        (Unknown::Nothing, refused)
                    }
                    // Any unit attention may stand for one that was lost.
                    key if key == SenseKey::UnitAttention as u8 => (Unknown::Everything, DriveError::Reset { drive }),
                    _ => (Unknown::Position, refused),
                }
            }
        }
    }

    /// A medium error. Its code says what the drive has met, and the command what that means.
    fn medium_error(&self, what: &'static str, sense: Sense) -> DriveError {
        let lbn = self.at.unwrap_or(self.last_lbn);
        let write_failed = || DriveError::WriteFailed { lbn, source: std::io::Error::other(sense.to_string()) };
        let read_failed = || DriveError::ReadFailed { lbn, reason: sense.to_string() };
        match (what, sense.action()) {
            ("WRITE" | "WRITE FILEMARKS" | "ERASE", _) => write_failed(),
            ("READ", _) => read_failed(),
            // Whatever moves the tape writes the buffer out first. A track is also lost on the way to a block.
            (_, Some(Action::CloseVolume)) if sense.asc != TRACK_FOLLOWING => write_failed(),
            (_, Some(Action::ReadElsewhere)) => read_failed(),
            _ => DriveError::Refused { drive: self.line.name.clone(), command: what, sense },
        }
    }

    /// Data protection that has to do with keys, outside of reading a block, where more is known.
    fn about_keys(&self, what: &'static str, data: &SenseData) -> (Unknown, DriveError) {
        let drive = self.line.name.clone();
        let sense = data.sense;
        match sense.ascq {
            0x04 => (Unknown::Position, DriveError::Integrity { lbn: self.at.unwrap_or(self.last_lbn) }),
            _ => (Unknown::Nothing, DriveError::Refused { drive, command: what, sense }),
        }
    }

    fn forget(&mut self, unknown: Unknown) {
        if unknown == Unknown::Nothing {
            return;
        }
        self.at = None;
        self.others = None;
        if unknown != Unknown::Position {
            self.in_doubt = true;
            self.slot.lose();
        }
        if unknown == Unknown::Cartridge {
            self.loaded = None;
        }
    }

    /// A block came with a wrong checksum twice.
    pub(super) fn path_is_down(&mut self, lbn: u64) -> DriveError {
        self.forget(Unknown::Position);
        let reason = format!(
            "block {lbn} does not match its checksum when it comes here, twice: look at cable and host adapter, and use another path"
        );
        DriveError::Hardware { drive: self.line.name.clone(), reason }
    }

    /// A unit attention was taken by somebody else, or the position is not what it must be.
    pub(super) fn found_elsewhere(&mut self) -> DriveError {
        self.forget(Unknown::Everything);
        self.reset()
    }
}
