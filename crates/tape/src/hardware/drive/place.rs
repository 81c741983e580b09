//! Where the drive stands, and going elsewhere.

use super::{LocateKnown, ScsiDrive};
use crate::DriveError;
use crate::hardware::line::{Done, Failure};
use crate::scsi::command::{Destination, PositionForm, SpaceOver};
use crate::scsi::position::PositionData;
use crate::scsi::sense::Action;
use crate::scsi::{Command, DataPhase, Transport};

/// The form of READ POSITION that the drive is asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum PositionAsked {
    Long,
    /// The long one was refused.
    Short,
}

impl<T: Transport> ScsiDrive<T> {
    /// What READ POSITION says.
    pub(super) fn ask_position(&mut self) -> Result<PositionData, DriveError> {
        let mut bytes = [0; 32];
        if self.position_asked == PositionAsked::Long {
            let command = Command::ReadPosition { form: PositionForm::Long };
            match self.line.run(&command, DataPhase::In(&mut bytes)) {
                Err(failure) if failure.is_not_known() => self.position_asked = PositionAsked::Short,
                done => {
                    let moved = self.checked("READ POSITION", done)?.moved.min(bytes.len());
                    return PositionData::of_long(&bytes[..moved]).ok_or_else(|| self.no_position());
                }
            }
        }
        let command = Command::ReadPosition { form: PositionForm::Short };
        let moved = self.command("READ POSITION", &command, DataPhase::In(&mut bytes[..20]))?.moved.min(20);
        PositionData::of_short(&bytes[..moved]).ok_or_else(|| self.no_position())
    }

    fn no_position(&self) -> DriveError {
        let reason = "READ POSITION returned nothing: reset it".to_owned();
        DriveError::Hardware { drive: self.line.name.clone(), reason }
    }

    /// READ POSITION must name this block, and a loaded key must be there still: a drive that was reset may stand where
    /// it stood. Only then is what others did known to have done no harm.
    pub(super) fn verify(&mut self, lbn: u64) -> Result<PositionData, DriveError> {
        // Taken first: a command that another sends meanwhile is seen next time.
        let seen = self.line.transport.commands_seen();
        let others = seen.map(|seen| seen.wrapping_sub(self.line.sent));
        let before = self.others;
        let data = self.ask_position()?;
        if data.lbn != Some(lbn) || data.partition != 0 {
            let reset = self.found_elsewhere();
            let commands = before.zip(others).map_or(0, |(before, now)| now.wrapping_sub(before));
            return Err(match data.lbn {
                Some(found) if commands > 0 => {
                    DriveError::MovedByOthers { drive: self.line.name.clone(), commands, expected: lbn, found }
                }
                _ => reset,
            });
        }
        self.verify_key()?;
        self.others = others;
        Ok(data)
    }

    /// Whether somebody else has, or may have, sent commands since the position was verified.
    pub(super) fn others_came(&mut self) -> OthersCame {
        let Some(seen) = self.line.transport.commands_seen() else { return OthersCame::CannotTell };
        match self.others {
            Some(others) if seen.wrapping_sub(self.line.sent) == others => OthersCame::No,
            Some(_) => OthersCame::Yes,
            None => OthersCame::CannotTell,
        }
    }

    /// Before what only reads: a wrong block would be noticed by who reads it, so not knowing is no reason to ask each
    /// time.
    pub(super) fn verify_if_others_came(&mut self, lbn: u64) -> Result<(), DriveError> {
        if self.others_came() == OthersCame::Yes {
            self.verify(lbn)?;
        }
        Ok(())
    }

    /// Goes there, and makes the position known if the drive agrees that it is there.
    pub(super) fn go(&mut self, to: Destination) -> Result<(), DriveError> {
        let was_known = self.at.take();
        let gone = match to {
            Destination::EndOfData => {
                self.line.run(&Command::Space { over: SpaceOver::EndOfData, count: 0 }, DataPhase::None)
            }
            to => self.send_locate(to)?,
        };
        let what = if to == Destination::EndOfData { "SPACE" } else { "LOCATE" };
        match (gone, to) {
            (Err(failure), Destination::Object(lbn)) if failure.action() == Some(Action::EndOfData) => {
                let data = self.ask_position()?;
                let end_of_data = data.lbn.filter(|end| data.partition == 0 && *end < lbn);
                let Some(end_of_data) = end_of_data else {
                    let reason = format!("it finds no block {lbn}, and stands at {}: reset it", at(data));
                    return Err(DriveError::Hardware { drive: self.line.name.clone(), reason });
                };
                // It is known where the tape stands, but after a reset only a locate that succeeds counts.
                if was_known.is_some() {
                    self.stand_at(end_of_data);
                }
                return Err(DriveError::BlankCheck { lbn, end_of_data });
            }
            // A blank tape may have no other word for its end of data.
            (Err(failure), Destination::EndOfData) if failure.action() == Some(Action::EndOfData) => {}
            (gone, to) => match (self.checked(what, gone), to) {
                // It is the block that cannot be reached, and not the one where the drive stood.
                (Err(DriveError::ReadFailed { reason, .. }), Destination::Object(lbn)) => {
                    return Err(DriveError::ReadFailed { lbn, reason });
                }
                (done, _) => {
                    done?;
                }
            },
        }
        let seen = self.line.transport.commands_seen();
        let others = seen.map(|seen| seen.wrapping_sub(self.line.sent));
        let data = self.ask_position()?;
        let found = data.lbn.filter(|_| data.partition == 0);
        match (found, to) {
            (Some(found), Destination::Object(lbn)) if found == lbn => self.stand_at(lbn),
            (Some(found), Destination::EndOfData | Destination::File(_)) => self.stand_at(found),
            _ => {
                let drive = self.line.name.clone();
                let reason = format!("{what} went to {} instead of {to:?}: reset it", at(data));
                return Err(DriveError::Hardware { drive, reason });
            }
        }
        self.others = others;
        self.loaded()?.early_warning = self.is_warned(data);
        Ok(())
    }

    /// Sends the longest form of LOCATE that the drive knows, and does without one if it knows none.
    fn send_locate(&mut self, to: Destination) -> Result<Result<Done, Failure>, DriveError> {
        if self.locate_known == LocateKnown::Sixteen {
            let gone = self.line.run(&Command::Locate { to, partition: None, immediate: false }, DataPhase::None);
            match gone {
                Err(failure) if failure.codes() == Some((0x5, 0x20, 0x00)) => self.locate_known = LocateKnown::TenOnly,
                gone => return Ok(gone),
            }
        }
        let Destination::Object(lbn) = to else { return Err(self.too_far(to)) };
        if self.locate_known == LocateKnown::TenOnly {
            let Ok(lbn) = u32::try_from(lbn) else { return Err(self.too_far(to)) };
            let gone = self.line.run_cdb(&Command::locate_10(lbn), &mut DataPhase::None);
            match gone {
                Err(failure) if failure.codes() == Some((0x5, 0x20, 0x00)) => self.locate_known = LocateKnown::None,
                gone => return Ok(gone),
            }
        }
        Ok(self.count_from_beginning(lbn))
    }

    /// LOCATE for drives that have none: blocks are counted from the beginning of tape. A filemark ends each run, and
    /// counts as one.
    fn count_from_beginning(&mut self, lbn: u64) -> Result<Done, Failure> {
        let mut done = self.line.run(&Command::Rewind { immediate: false }, DataPhase::None)?;
        let mut left = i64::try_from(lbn).unwrap_or(i64::MAX);
        while left > 0 {
            done = self.line.run(&Command::Space { over: SpaceOver::Blocks, count: left }, DataPhase::None)?;
            left = match done.sense {
                Some(data) if data.filemark || data.sense.action() == Some(Action::TakeFilemark) => {
                    // Without a residual it is not known how far it came: the position will say that this is not the
                    // place.
                    data.residual.unwrap_or(0).clamp(0, left) - 1
                }
                _ => 0,
            };
        }
        Ok(done)
    }

    fn too_far(&self, to: Destination) -> DriveError {
        let reason = format!("it has only LOCATE(10), which cannot go to {to:?}: use a newer drive");
        DriveError::Incompatible { drive: self.line.name.clone(), reason }
    }

    /// Passes over objects from a position that is known, and asks where that led.
    pub(super) fn space(&mut self, over: SpaceOver, count: i64) -> Result<(), DriveError> {
        self.at = None;
        let met = match self.line.run(&Command::Space { over, count }, DataPhase::None) {
            Ok(done) => {
                self.note(&done);
                let beginning =
                    done.sense.is_some_and(|data| data.codes() == (0, 0x00, 0x04) || (count < 0 && data.end_of_medium));
                if beginning { Met::Beginning } else { Met::Nothing }
            }
            Err(failure) if failure.action() == Some(Action::EndOfData) => Met::EndOfData,
            Err(failure) => return Err(self.failed("SPACE", failure)),
        };
        let seen = self.line.transport.commands_seen();
        let others = seen.map(|seen| seen.wrapping_sub(self.line.sent));
        let data = self.ask_position()?;
        let Some(lbn) = data.lbn.filter(|_| data.partition == 0) else { return Err(self.reset()) };
        self.stand_at(lbn);
        self.others = others;
        self.loaded()?.early_warning = self.is_warned(data);
        match met {
            Met::Nothing => Ok(()),
            Met::Beginning => Err(DriveError::BeginningOfMedium),
            Met::EndOfData => Err(DriveError::BlankCheck { lbn, end_of_data: lbn }),
        }
    }
}

/// What a space met.
enum Met {
    Nothing,
    Beginning,
    EndOfData,
}

/// Whether others used the drive.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum OthersCame {
    No,
    Yes,
    CannotTell,
}

fn at(data: PositionData) -> String {
    match data.lbn {
        Some(lbn) => format!("block {lbn} of partition {}", data.partition),
        None => "an unknown position".to_owned(),
    }
}
