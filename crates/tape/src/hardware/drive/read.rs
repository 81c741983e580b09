//! Reading.
//!
//! SILI is set only where the buffer is at least as long as any block can be: with SILI and blocks of variable length,
//! a drive says nothing of a block that is longer than the buffer (SSC-5, 6.9), and the rest of it would be lost in
//! silence. Without SILI every other length is told, with the difference as residual.

use super::ScsiDrive;
use crate::hardware::line::{Done, Failure};
use crate::scsi::command::{Destination, Length};
use crate::scsi::sense::Action;
use crate::scsi::{Command, DataPhase, SenseKey, Transport, TransportError};
use crate::{DriveError, EncryptionState, ReadOutcome};

impl<T: Transport> ScsiDrive<T> {
    /// Reads the block at the position, which is this one; what stands behind it counts as part of it.
    pub(super) fn read_as_it_comes(&mut self, lbn: u64, buffer: &mut [u8]) -> Result<ReadOutcome, DriveError> {
        // A read of no bytes does nothing at all.
        let mut byte = [0];
        let room = if buffer.is_empty() { &mut byte[..] } else { &mut *buffer };
        let movable = room.len().min(self.line.transport.data_max()).min(0x00ff_ffff);
        let mut room = &mut room[..movable];
        let mut met = self.send_read(room);
        while let Err(Failure::Transport(TransportError::TooLong { .. })) = met
            && self.line.transport.data_max() < room.len()
        {
            room = &mut room[..self.line.transport.data_max()];
            self.limits.max = self.limits.max.min(self.movable());
            met = self.send_read(room);
        }
        let plain = self.loaded()?.medium.encryption == EncryptionState::Plain;
        if plain && self.key_is_loaded() && is_plain_block(&met) {
            self.settle(lbn)?;
            self.take_key_out()?;
            met = self.send_read(room);
        }
        let told = room.len();
        let outcome = match met {
            Ok(done) => {
                self.note(&done);
                self.block(lbn, &done, told, buffer.len())
            }
            Err(Failure::Check(data)) => {
                buffer.fill(0);
                match data.sense.action() {
                    Some(Action::EndOfData) => return Ok(ReadOutcome::EndOfData),
                    Some(Action::FetchKey | Action::TamperAlarm) => return Err(self.undecipherable(lbn, &data)),
                    _ if data.sense.key == SenseKey::DataProtect as u8 && data.sense.asc == 0x74 => {
                        return Err(self.undecipherable(lbn, &data));
                    }
                    _ if data.sense.is_medium_error() => return Err(self.unreadable(lbn, &data.sense.to_string())),
                    _ => return Err(self.failed("READ", Failure::Check(data))),
                }
            }
            Err(failure) => return Err(self.failed("READ", failure)),
        };
        // What others may have done meanwhile, the next command looks at.
        self.stand_at(lbn + 1);
        if let Err(DriveError::BlockTooLong { .. } | DriveError::HostLimit { .. }) = outcome {
            // That it was passed over is not said in so many words by every drive.
            self.settle(lbn + 1)?;
        }
        outcome
    }

    /// The most bytes that a read can return.
    fn longest_read(&self) -> usize {
        self.longest_on_tape as usize + self.guard.behind()
    }

    fn send_read(&mut self, room: &mut [u8]) -> Result<Done, Failure> {
        let suppress_incorrect_length = room.len() >= self.longest_read();
        let length = Length::Variable(room.len() as u32);
        self.line.run(&Command::Read { length, suppress_incorrect_length, at: None }, DataPhase::In(room))
    }

    /// What a read that was carried out has met.
    fn block(&mut self, lbn: u64, done: &Done, room: usize, buffer: usize) -> Result<ReadOutcome, DriveError> {
        let (drive, limit) = (self.line.name.clone(), self.movable());
        let host_is_narrow = limit < self.longest_on_tape && limit as usize <= buffer;
        let too_long = |found: usize| {
            Err(match host_is_narrow {
                true => DriveError::HostLimit { drive, len: found, limit },
                false => DriveError::BlockTooLong { lbn, found, buffer },
            })
        };
        if let Some(data) = &done.sense {
            if data.filemark || data.sense.action() == Some(Action::TakeFilemark) {
                return Ok(ReadOutcome::Filemark);
            }
            if data.incorrect_length {
                // Asked for less found.
                return match data.residual {
                    Some(residual) if residual < 0 => {
                        too_long(room.saturating_add(usize::try_from(residual.unsigned_abs()).unwrap_or(usize::MAX)))
                    }
                    Some(residual) => {
                        let left = usize::try_from(residual).unwrap_or(usize::MAX);
                        found(lbn, room.saturating_sub(left), buffer)
                    }
                    None => too_long(room + 1),
                };
            }
        }
        let len = done.moved.min(room);
        if len < room && room < self.longest_read() {
            // A shorter block would have been told: bytes were lost on the way.
            let reason = format!("only {len} of its {room} bytes came through the host adapter");
            return Err(DriveError::ReadFailed { lbn, reason });
        }
        found(lbn, len, buffer)
    }

    /// A block that cannot be read is passed over, whether the drive did so or not.
    fn unreadable(&mut self, lbn: u64, reason: &str) -> DriveError {
        match self.settle(lbn + 1) {
            Ok(()) => DriveError::ReadFailed { lbn, reason: reason.to_owned() },
            Err(DriveError::BlankCheck { .. }) => {
                DriveError::ReadFailed { lbn, reason: format!("{reason}, and nothing behind it can be found") }
            }
            // The way behind it is damaged, too.
            Err(DriveError::ReadFailed { .. }) => DriveError::ReadFailed { lbn, reason: reason.to_owned() },
            Err(DriveError::Refused { sense, .. }) if sense.is_medium_error() => {
                DriveError::ReadFailed { lbn, reason: reason.to_owned() }
            }
            Err(error) => error,
        }
    }

    /// Stands at a block that the drive is at or near, wherever the last command left it.
    pub(super) fn settle(&mut self, lbn: u64) -> Result<(), DriveError> {
        let data = self.ask_position()?;
        if data.lbn == Some(lbn) && data.partition == 0 {
            self.stand_at(lbn);
            return Ok(());
        }
        self.go(Destination::Object(lbn))
    }
}

fn found(lbn: u64, len: usize, buffer: usize) -> Result<ReadOutcome, DriveError> {
    if len > buffer {
        return Err(DriveError::BlockTooLong { lbn, found: len, buffer });
    }
    Ok(ReadOutcome::Block(len))
}

/// Unencrypted data met while decrypting.
fn is_plain_block(met: &Result<Done, Failure>) -> bool {
    met.as_ref().is_err_and(|failure| failure.codes() == Some((0x7, 0x74, 0x02)))
}
