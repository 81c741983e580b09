//! Writing: blocks, filemarks, flushes, erasure.

use super::place::OthersCame;
use super::reserve::Reserve;
use super::{Failure, ScsiDrive};
use crate::hardware::line::Done;
use crate::scsi::sense::Action;
use crate::scsi::{Command, DataPhase, Transport};
use crate::{DriveError, EncryptionState, Flush, WriteOutcome};

/// The most filemarks that one command can write.
const FILEMARKS_MAX: u32 = 0x00ff_ffff;

impl<T: Transport> ScsiDrive<T> {
    /// The last look before a write goes out at this block.
    pub(super) fn verify_before_write(&mut self, lbn: u64) -> Result<(), DriveError> {
        self.still_reserved()?;
        if lbn == 0 {
            self.key_back()?;
        }
        let others = self.others_came();
        if others == OthersCame::No {
            return Ok(());
        }
        self.verify(lbn)?;
        // A tape that was changed by hand stands at its beginning, and so may the one that is to be written from there.
        if lbn == 0 || others == OthersCame::Yes {
            self.same_medium()?;
        }
        Ok(())
    }

    /// What came of a write of `objects` blocks or filemarks at `lbn`.
    pub(super) fn written(
        &mut self,
        what: &'static str,
        lbn: u64,
        objects: u32,
        state: EncryptionState,
        done: Result<Done, Failure>,
        sent: Option<usize>,
    ) -> Result<WriteOutcome, DriveError> {
        let end = lbn + u64::from(objects);
        let done = match done {
            Ok(done) => done,
            Err(failure) if failure.action() == Some(Action::NextVolume) => return self.end_of_medium(lbn, end),
            Err(failure) => {
                // The block may be in the buffer all the same.
                self.unflushed = true;
                return Err(self.failed(what, failure));
            }
        };
        self.note(&done);
        self.began(lbn, state)?;
        self.unflushed = true;
        self.stand_at(end);
        let data = done.sense;
        let early = data.is_some_and(|data| {
            data.end_of_medium || matches!(data.sense.action(), Some(Action::WriteTrailer | Action::StopData))
        });
        if let Some(data) = data {
            // It may say that not everything was taken, or mean something else by the number: the position tells.
            if data.residual.unwrap_or(0) != 0 && self.ask_position()?.lbn != Some(end) {
                if early {
                    return self.end_of_medium(lbn, end);
                }
                self.found_elsewhere();
                let source = std::io::Error::other(format!("not all of it was taken ({})", data.sense));
                return Err(DriveError::WriteFailed { lbn, source });
            }
        } else if sent.is_some_and(|sent| done.moved < sent) {
            self.found_elsewhere();
            let reason = format!("the host adapter passed only {} bytes of block {lbn} on: look at it", done.moved);
            return Err(DriveError::Hardware { drive: self.line.name.clone(), reason });
        }
        // Filemarks have no key.
        if sent.is_some() && state != EncryptionState::Plain {
            self.wrote_with_key(lbn);
        }
        // Ours is told once, and holds all the same.
        let holds = matches!(self.reserve, Reserve::Set(_));
        let loaded = self.loaded()?;
        let early = early || holds && loaded.early_warning;
        loaded.early_warning |= early;
        Ok(if early { WriteOutcome::EarlyWarning } else { WriteOutcome::Written })
    }

    /// The medium is full. The position tells whether the last object was taken all the same; then the next flush says
    /// what became of it.
    fn end_of_medium(&mut self, lbn: u64, end: u64) -> Result<WriteOutcome, DriveError> {
        self.at = None;
        let data = self.ask_position()?;
        let found = data.lbn.filter(|found| data.partition == 0 && (lbn..=end).contains(found));
        let Some(found) = found else { return Err(self.found_elsewhere()) };
        self.stand_at(found);
        self.loaded()?.early_warning = true;
        if found == end { Ok(WriteOutcome::EarlyWarning) } else { Err(DriveError::EndOfMedium { lbn: found }) }
    }

    /// What was written at the beginning of tape decides how the volume is written.
    fn began(&mut self, lbn: u64, state: EncryptionState) -> Result<(), DriveError> {
        if lbn == 0 {
            self.loaded()?.medium.encryption = state;
        }
        Ok(())
    }

    pub(super) fn filemarks(&mut self, count: u32, flush: Flush) -> Result<WriteOutcome, DriveError> {
        let mut lbn = self.known()?;
        let mut left = count;
        let mut outcome = WriteOutcome::Written;
        let mut is_full = false;
        while left > 0 {
            let part = left.min(FILEMARKS_MAX);
            left -= part;
            let state = self.writing_state(lbn)?;
            self.verify_before_write(lbn)?;
            let immediate = flush == Flush::Buffered || left > 0;
            let done = self.line.run(&Command::WriteFilemarks { count: part, immediate, at: None }, DataPhase::None);
            is_full |= done.as_ref().is_err_and(|failure| failure.action() == Some(Action::NextVolume));
            outcome = self.written("WRITE FILEMARKS", lbn, part, state, done, None)?;
            lbn += u64::from(part);
        }
        if flush == Flush::Synchronous {
            // A mark that the full medium took into the buffer has flushed nothing.
            if count == 0 || is_full {
                self.flush_alone(lbn)?;
            }
            self.unflushed = false;
            self.prove_key()?;
        }
        if count == 0 && self.loaded()?.early_warning {
            outcome = WriteOutcome::EarlyWarning;
        }
        Ok(outcome)
    }

    /// Zero filemarks: writes out the buffer, and nothing if there is nothing in it.
    fn flush_alone(&mut self, lbn: u64) -> Result<(), DriveError> {
        if self.loaded()?.medium.write_protected {
            return Ok(());
        }
        if !matches!(self.others_came(), OthersCame::No) {
            // A buffer that was lost with a reset is not flushed by this.
            self.verify(lbn)?;
        }
        let done = self.line.run(&Command::WriteFilemarks { count: 0, immediate: false, at: None }, DataPhase::None);
        match done {
            Err(failure) if failure.action() == Some(Action::NextVolume) => {
                // What is in the buffer has no room.
                self.at = None;
                Err(DriveError::Deferred { source: "the cartridge is full, and blocks wait in the buffer".into() })
            }
            done => self.checked("WRITE FILEMARKS", done).map(drop),
        }
    }

    /// From block 0, where the drive stands.
    pub(super) fn erase_from_beginning(&mut self) -> Result<(), DriveError> {
        self.verify_before_write(0)?;
        self.unflushed = false;
        self.command("ERASE", &Command::Erase { long: false, immediate: false, at: None }, DataPhase::None)?;
        self.settle(0)?;
        let loaded = self.loaded()?;
        loaded.medium.encryption = EncryptionState::Blank;
        loaded.medium.remaining_bytes = loaded.medium.capacity_bytes;
        loaded.early_warning = false;
        Ok(())
    }
}
