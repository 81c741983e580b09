//! Blocks and filemarks: READ, WRITE, WRITE FILEMARKS, VERIFY, ERASE.

use capstan_tape::model::Access;
use capstan_tape::scsi::command::{Address, Length};
use capstan_tape::scsi::protection::CHECKSUM_LEN;
use capstan_tape::scsi::{SenseData, SenseKey};
use capstan_tape::{Drive, DriveError, EncryptionState, Flush, ReadOutcome, Rewritability, WriteOutcome};

use super::CommandContext;
use super::failure::OVERWRITE_ATTEMPTED;
use super::security::Purpose;
use crate::device::DataIn;
use crate::unit::answer::{Answer, Refusal, check, invalid_command_field};

/// What ended a run of reads.
enum Stop {
    Filemark,
    EndOfData,
    Length { found: usize },
}

impl CommandContext<'_> {
    /// READ BLOCK LIMITS.
    pub(super) fn block_limits(&mut self, object_identifier: bool, data_in: &mut DataIn) -> Answer {
        if object_identifier {
            let mut bytes = [0; 20];
            bytes[12..20].copy_from_slice(&u64::MAX.to_be_bytes());
            data_in.put(&bytes, 20);
            return Ok(());
        }
        let max = self.block_len_max().to_be_bytes();
        data_in.put(&[0, max[1], max[2], max[3], 0, 1], 6);
        Ok(())
    }

    fn block_len_max(&self) -> u32 {
        let model = self.unit.model.block_len_max.value;
        let fits = self.state.bay.as_ref().map_or(model, |bay| bay.drive.block_limits().max.min(model));
        // The field has three bytes.
        fits.min(0xff_ffff)
    }

    /// The 16-byte forms say where they want to be; they go there if they are not.
    pub(super) fn go_to_address(&mut self, at: Option<Address>) -> Answer {
        let Some(Address { partition, lbn }) = at else { return Ok(()) };
        if partition != 0 {
            return Err(invalid_command_field(3));
        }
        self.state.on_drive(|bay, loaded| {
            if bay.drive.position()?.lbn == lbn {
                return Ok(());
            }
            loaded.moved();
            bay.drive.locate(lbn)
        })?;
        self.state.nexuses.position_verified(self.initiator);
        Ok(())
    }

    /// READ.
    pub(super) fn read(&mut self, length: Length, suppress: bool, data_in: &mut DataIn) -> Answer {
        let fixed_len = self.state.modes.block_len;
        match length {
            Length::Variable(len) => {
                self.state.loaded()?;
                if len == 0 {
                    return Ok(());
                }
                let (filled, stop) = self.read_one(data_in, 0, len as usize)?;
                data_in.filled(filled);
                match stop {
                    None => Ok(()),
                    Some(Stop::Length { found }) => {
                        // SSC-5, 5.11: a shorter block is passed over in silence if that was asked for, a longer one
                        // only if no fixed length is set.
                        let silent = suppress && (found < len as usize || fixed_len == 0);
                        if silent { Ok(()) } else { Err(incorrect_length(i64::from(len) - found as i64)) }
                    }
                    Some(stop) => Err(stopped(&stop, i64::from(len))),
                }
            }
            Length::Fixed(count) => {
                if suppress || fixed_len == 0 {
                    return Err(invalid_command_field(1));
                }
                self.state.loaded()?;
                let fixed_len = fixed_len as usize;
                // More than the longest block at once is more than anyone asks for; it is taken in parts by no
                // initiator known.
                if (count as usize).saturating_mul(fixed_len) > crate::device::DATA_IN_MAX {
                    return Err(invalid_command_field(2));
                }
                let mut done = 0;
                for left in (1..=count).rev() {
                    let (filled, stop) = match self.read_one(data_in, done, fixed_len) {
                        Ok(read) => read,
                        Err(Refusal::Check(sense)) => {
                            data_in.filled(done);
                            return Err(sense.with_residual(i64::from(left)).into());
                        }
                        Err(conflict) => return Err(conflict),
                    };
                    match stop {
                        None => done += filled,
                        Some(stop) => {
                            data_in.filled(done + filled);
                            return Err(match stop {
                                Stop::Length { .. } => incorrect_length(i64::from(left)),
                                stop => stopped(&stop, i64::from(left)),
                            });
                        }
                    }
                }
                data_in.filled(done);
                Ok(())
            }
        }
    }

    /// Reads a block, with its checksum where it has one, to behind the first `at` bytes of the buffer; a block of
    /// another length is told, and passed over.
    fn read_one(&mut self, data_in: &mut DataIn, at: usize, len: usize) -> Result<(usize, Option<Stop>), Refusal> {
        self.ready_keys(Purpose::Reading)?;
        let method = self.state.modes.protection.of_reads();
        // A checksum is made of what was read: the block's own, in the cartridge, has just been checked by the drive
        // below.
        let behind = if method.is_some() { CHECKSUM_LEN } else { 0 };
        let (bay, _) = self.state.loaded()?;
        let longest = bay.drive.block_limits().max as usize;
        // Nobody gets a buffer for more than there can be.
        let room = len.saturating_sub(behind).min(longest);
        let read = self.read_with_its_key(&mut data_in.room(at + room)[at..]);
        let read = read.map_err(|refusal| with_residual(refusal, len as i64))?;
        let (bay, _) = self.state.loaded()?;
        match read {
            Ok(ReadOutcome::Block(found)) => {
                self.state.counters.read(found);
                if let Some(method) = method {
                    let (block, checksum) = data_in.room(at + found + behind)[at..].split_at_mut(found);
                    checksum.copy_from_slice(&method.checksum(block));
                }
                let found = found + behind;
                Ok((found, (found != len).then_some(Stop::Length { found })))
            }
            Ok(ReadOutcome::Filemark) => Ok((0, Some(Stop::Filemark))),
            Ok(ReadOutcome::EndOfData) => Ok((0, Some(Stop::EndOfData))),
            Err(DriveError::BlockTooLong { lbn, found, .. }) => {
                // Read once more, whole, for its first part.
                let mut whole = vec![0; found];
                let again = bay.drive.locate(lbn).and_then(|()| bay.drive.read_block(&mut whole));
                again.map_err(|error| self.state.failed(&error))?;
                self.state.counters.read(found);
                if let Some(method) = method {
                    let checksum = method.checksum(&whole);
                    whole.extend_from_slice(&checksum);
                }
                let given = len.min(whole.len());
                data_in.room(at + given)[at..].copy_from_slice(&whole[..given]);
                Ok((given, Some(Stop::Length { found: whole.len() })))
            }
            Err(error) => Err(with_residual(self.state.failed(&error), len as i64)),
        }
    }

    /// WRITE.
    pub(super) fn write(&mut self, length: Length) -> Answer {
        self.check_may_write()?;
        match length {
            Length::Variable(0) | Length::Fixed(0) => Ok(()),
            Length::Variable(len) => {
                let block = self.taken(super::parameters(self.data_out, len as usize)?, i64::from(len))?;
                let outcome = self.write_one(block).map_err(|refusal| with_residual(refusal, i64::from(len)))?;
                self.warn(outcome, 0)
            }
            Length::Fixed(count) => {
                let len = self.state.modes.block_len;
                if len == 0 {
                    return Err(invalid_command_field(1));
                }
                let all = super::parameters(self.data_out, (len as usize).saturating_mul(count as usize))?;
                for (left, block) in (1..=i64::from(count)).rev().zip(all.chunks_exact(len as usize)) {
                    let block = self.taken(block, left)?;
                    let outcome = self.write_one(block).map_err(|refusal| with_residual(refusal, left))?;
                    // Early warning ends the command behind this block.
                    self.warn(outcome, left - 1)?;
                }
                Ok(())
            }
        }
    }

    /// The block in what was sent, if it is as it was when its checksum was made; `left` is the residual where it is
    /// not.
    fn taken<'b>(&self, sent: &'b [u8], left: i64) -> Result<&'b [u8], Refusal> {
        let method = self.state.modes.protection.of_writes();
        let behind = if method.is_some() { CHECKSUM_LEN } else { 0 };
        if sent.len() <= behind || sent.len() - behind > self.block_len_max() as usize {
            return Err(invalid_command_field(2));
        }
        match method {
            None => Ok(sent),
            // LOGICAL BLOCK GUARD CHECK FAILED: nothing of it is written.
            Some(method) => {
                method.checked(sent).ok_or_else(|| with_residual(check(SenseKey::HardwareError, 0x10, 0x01), left))
            }
        }
    }

    /// Whether anything may be written at all; notes a write by somebody who cannot know where.
    fn check_may_write(&mut self) -> Answer {
        let knows = self.state.nexuses.knows_position(self.initiator);
        let (bay, loaded) = self.state.loaded()?;
        if loaded.medium.write_protected {
            return Err(check(SenseKey::DataProtect, 0x27, 0x00));
        }
        if loaded.access != Access::ReadWrite {
            return Err(check(SenseKey::DataProtect, 0x30, 0x05));
        }
        // The drive below refuses all that is not at the end of data. It is asked first at the beginning, since a write
        // there draws a new key and begins the volume's memory anew.
        let taken = loaded.medium.rewritability == Rewritability::WriteOnce
            && loaded.medium.encryption != EncryptionState::Blank;
        if taken && bay.drive.position().is_ok_and(|position| position.lbn == 0) {
            return Err(OVERWRITE_ATTEMPTED.into());
        }
        if !knows {
            self.state.unverified_writes += 1;
        }
        Ok(())
    }

    fn write_one(&mut self, block: &[u8]) -> Result<WriteOutcome, Refusal> {
        self.ready_keys(Purpose::Writing)?;
        let unbuffered = self.state.modes.buffered == 0;
        let (lbn, outcome) = self.state.on_drive(|bay, loaded| {
            let lbn = bay.drive.position()?.lbn;
            let outcome = bay.drive.write_block(block)?;
            loaded.filemarks.written(lbn, false);
            if unbuffered {
                bay.drive.write_filemarks(0, Flush::Synchronous)?;
            }
            Ok((lbn, outcome))
        })?;
        self.state.counters.wrote(block.len());
        match lbn {
            0 => self.begun()?,
            _ => self.note_key_data(),
        }
        Ok(outcome)
    }

    /// The volume has begun another life: what is known of it is asked again.
    fn begun(&mut self) -> Answer {
        self.state.on_drive(|bay, loaded| {
            loaded.medium = bay.drive.medium()?;
            loaded.programmable_told = false;
            bay.memory.began_anew();
            Ok(())
        })?;
        self.began_with_key();
        Ok(())
    }

    /// WRITE FILEMARKS.
    pub(super) fn write_filemarks(&mut self, count: u32, immediate: bool) -> Answer {
        if count > 0 {
            self.check_may_write()?;
            self.ready_keys(Purpose::Writing)?;
        }
        let flush = if immediate { Flush::Buffered } else { Flush::Synchronous };
        let written = self.state.on_drive(|bay, loaded| {
            let lbn = bay.drive.position()?.lbn;
            let outcome = bay.drive.write_filemarks(count, flush)?;
            for mark in 0..u64::from(count) {
                loaded.filemarks.written(lbn + mark, true);
            }
            Ok((lbn, outcome))
        });
        let (lbn, outcome) = written.map_err(|refusal| with_residual(refusal, i64::from(count)))?;
        if lbn == 0 && count > 0 {
            self.begun()?;
        }
        if flush == Flush::Synchronous {
            self.confirm_key()?;
        }
        self.warn(outcome, 0)
    }

    /// Tells early warning, and the programmable one once.
    fn warn(&mut self, outcome: WriteOutcome, left: i64) -> Answer {
        if outcome == WriteOutcome::EarlyWarning {
            let met = SenseData { end_of_medium: true, ..SenseData::new(SenseKey::NoSense, 0x00, 0x02) };
            return Err(met.with_residual(left).into());
        }
        let early = u64::from(self.state.modes.programmable_early_warning_mb) << 20;
        if early == 0 {
            return Ok(());
        }
        let (bay, loaded) = self.state.loaded()?;
        let behind = bay.drive.medium().is_ok_and(|medium| medium.remaining_bytes < early);
        if behind && !loaded.programmable_told {
            loaded.programmable_told = true;
            let met = SenseData { end_of_medium: true, ..SenseData::new(SenseKey::NoSense, 0x00, 0x07) };
            return Err(met.with_residual(left).into());
        }
        Ok(())
    }

    /// VERIFY: reads without handing out.
    pub(super) fn verify(&mut self, length: Length, to_end_of_data: bool, by_filemarks: bool) -> Answer {
        self.state.loaded()?;
        let mut scratch = DataIn::default();
        let wanted = match length {
            Length::Variable(count) | Length::Fixed(count) if by_filemarks => u64::from(count),
            Length::Fixed(count) => u64::from(count),
            Length::Variable(len) => u64::from(len > 0),
        };
        let mut left = if to_end_of_data { u64::MAX } else { wanted };
        while left > 0 {
            let longest = self.block_len_max() as usize;
            match self.read_one(&mut scratch, 0, longest)?.1 {
                Some(Stop::Filemark) if by_filemarks => left -= 1,
                Some(Stop::Filemark) if to_end_of_data => {}
                Some(Stop::EndOfData) if to_end_of_data => return Ok(()),
                Some(Stop::Filemark) => return Err(stopped(&Stop::Filemark, left as i64)),
                Some(Stop::EndOfData) => return Err(stopped(&Stop::EndOfData, left as i64)),
                Some(Stop::Length { .. }) | None if by_filemarks || to_end_of_data => {}
                Some(Stop::Length { found })
                    if matches!(length, Length::Fixed(_)) && found != self.state.modes.block_len as usize =>
                {
                    return Err(incorrect_length(left as i64));
                }
                Some(Stop::Length { .. }) | None => left -= 1,
            }
        }
        Ok(())
    }

    /// ERASE from the beginning makes the medium blank; at the end of data there is nothing to erase. In between, a
    /// drive below knows no cut but that of a write. What is write-once is never erased, even where there is nothing on
    /// it.
    pub(super) fn erase(&mut self) -> Answer {
        self.check_may_write()?;
        if self.state.loaded()?.1.medium.rewritability == Rewritability::WriteOnce {
            return Err(OVERWRITE_ATTEMPTED.into());
        }
        let (at, end) = self
            .state
            .on_drive(|bay, loaded| Ok((bay.drive.position()?.lbn, loaded.filemarks.end(&mut bay.drive)?)))?;
        if at > 0 {
            // POSITION PAST BEGINNING OF MEDIUM
            return if end == at { Ok(()) } else { Err(check(SenseKey::IllegalRequest, 0x3b, 0x0c)) };
        }
        self.state.on_drive(|bay, loaded| {
            bay.drive.erase()?;
            loaded.medium = bay.drive.medium()?;
            loaded.filemarks.cut(0);
            bay.memory.began_anew();
            Ok(())
        })
    }
}

fn with_residual(refusal: Refusal, residual: i64) -> Refusal {
    match refusal {
        Refusal::Check(sense) => Refusal::Check(sense.with_residual(residual)),
        other @ (Refusal::Conflict | Refusal::Lost) => other,
    }
}

fn incorrect_length(residual: i64) -> Refusal {
    let sense = SenseData::new(SenseKey::NoSense, 0x00, 0x00).with_residual(residual);
    Refusal::Check(SenseData { incorrect_length: true, ..sense })
}

fn stopped(stop: &Stop, residual: i64) -> Refusal {
    let sense = match stop {
        Stop::Filemark => SenseData { filemark: true, ..SenseData::new(SenseKey::NoSense, 0x00, 0x01) },
        Stop::EndOfData | Stop::Length { .. } => SenseData::new(SenseKey::BlankCheck, 0x00, 0x05),
    };
    Refusal::Check(sense.with_residual(residual))
}
