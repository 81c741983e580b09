//! Writing: blocks, filemarks, flushes, erasure.

use rustix::io::Errno;

use super::StDrive;
use super::kernel::{Operation, Status};
use super::place::Found;
use crate::{DriveError, EncryptionState, Flush, WriteOutcome};

/// The most filemarks that one command can write.
const FILEMARKS_MAX: u32 = 0x00ff_ffff;

impl StDrive {
    pub(super) fn write_next(&mut self, block: &[u8]) -> Result<WriteOutcome, DriveError> {
        let lbn = self.known()?;
        let limits = self.limits;
        if !u32::try_from(block.len()).is_ok_and(|len| (limits.min..=limits.max).contains(&len)) {
            return Err(DriveError::BlockLength { len: block.len(), min: limits.min, max: limits.max });
        }
        self.writable()?;
        self.verify_if_others_came(lbn)?;
        let node = self.node()?;
        let sent = match node.write(block) {
            // Behind a write that met early warning the driver refuses one, and nothing is sent. At the end of the
            // medium it refuses what it sent and then the next: so what is refused twice has no room.
            Err(Errno::NOSPC) => node.write(block),
            sent => sent,
        };
        match sent {
            Ok(len) if len == block.len() => self.wrote(lbn, block.len() as u64),
            Ok(len) => {
                self.lose_position();
                let reason = format!("the tape driver took {len} bytes of a block of {}", block.len());
                Err(DriveError::Hardware { drive: self.name.clone(), reason })
            }
            Err(Errno::NOSPC) => Err(self.full(lbn)),
            Err(error) => Err(self.unwritten(lbn, error)),
        }
    }

    fn wrote(&mut self, lbn: u64, bytes: u64) -> Result<WriteOutcome, DriveError> {
        let status = self.node()?.status();
        self.moved_on(lbn, lbn + 1, bytes)?;
        if status.is_ok_and(Status::end_of_tape) {
            self.early_warning_from.get_or_insert(lbn + 1);
        }
        Ok(self.outcome(lbn + 1))
    }

    /// Something was written from one block to another; what lay behind is gone.
    fn moved_on(&mut self, from: u64, to: u64, bytes: u64) -> Result<(), DriveError> {
        if self.early_warning_from.is_some_and(|warned| from < warned) {
            self.early_warning_from = None;
        }
        self.unflushed = true;
        self.stand_at(to);
        let medium = self.medium_mut()?;
        if from == 0 {
            medium.encryption = EncryptionState::Plain;
            medium.remaining_bytes = medium.capacity_bytes;
        }
        medium.remaining_bytes = medium.remaining_bytes.saturating_sub(bytes);
        Ok(())
    }

    fn outcome(&self, lbn: u64) -> WriteOutcome {
        match self.early_warning_from {
            Some(from) if lbn >= from => WriteOutcome::EarlyWarning,
            _ => WriteOutcome::Written,
        }
    }

    fn writable(&self) -> Result<(), DriveError> {
        match &self.loaded {
            Some(medium) if medium.write_protected => Err(DriveError::WriteProtected { drive: self.name.clone() }),
            _ => Ok(()),
        }
    }

    pub(super) fn mark(&mut self, count: u32, flush: Flush) -> Result<WriteOutcome, DriveError> {
        let mut lbn = self.known()?;
        let mut left = count;
        while left > 0 {
            let part = left.min(FILEMARKS_MAX);
            left -= part;
            self.writable()?;
            self.verify_if_others_came(lbn)?;
            let waits = flush == Flush::Synchronous && left == 0;
            let operation = if waits { Operation::WriteFilemarks } else { Operation::WriteFilemarksBuffered };
            self.order(lbn, operation, part)?;
            self.moved_on(lbn, lbn + u64::from(part), 0)?;
            lbn += u64::from(part);
            if waits {
                self.flushed(lbn)?;
            }
        }
        if count == 0 && flush == Flush::Synchronous {
            self.flush()?;
        }
        Ok(self.outcome(lbn))
    }

    /// Zero filemarks, waited for: everything written is on the medium then.
    pub(super) fn flush(&mut self) -> Result<(), DriveError> {
        let lbn = self.known()?;
        if !self.unflushed {
            return self.verify(lbn);
        }
        self.order(lbn, Operation::WriteFilemarks, 0)?;
        self.flushed(lbn)
    }

    /// A flush succeeded. It counts only if the drive stands behind all that was written: a buffer that was lost with a
    /// reset is flushed with success.
    fn flushed(&mut self, lbn: u64) -> Result<(), DriveError> {
        self.verify(lbn)?;
        self.unflushed = false;
        Ok(())
    }

    /// Writes filemarks at this block.
    fn order(&mut self, lbn: u64, operation: Operation, count: u32) -> Result<(), DriveError> {
        let node = self.node()?;
        let Err(error) = node.operate(operation, count) else { return Ok(()) };
        // To be read before anything else: the next command clears it.
        let full = node.status().is_ok_and(Status::end_of_tape);
        if error == Errno::IO && full && count > 0 {
            return Err(self.full(lbn));
        }
        Err(self.unwritten(lbn, error))
    }

    /// The medium is full: nothing was written, and the drive must say that it stands where it did.
    fn full(&mut self, lbn: u64) -> DriveError {
        match self.find() {
            Ok(Found::At(found)) if found == lbn => {
                self.stand_at(lbn);
                DriveError::EndOfMedium { lbn }
            }
            Ok(_) => self.deferred("the cartridge is full, and blocks in the drive's buffer are lost"),
            Err(error) => error,
        }
    }

    /// Why a write failed. The driver does not say whether this one or an earlier one did, so the worse is assumed.
    fn unwritten(&mut self, lbn: u64, error: Errno) -> DriveError {
        if error != Errno::IO {
            self.lose_position();
            return self.failed("WRITE", error);
        }
        match self.find() {
            Ok(Found::At(found)) if found == lbn && !self.unflushed => {
                self.stand_at(lbn);
                DriveError::WriteFailed { lbn, source: error.into() }
            }
            // A drive that was reset stands at the beginning, or says nothing.
            Ok(Found::At(0) | Found::Nowhere) => {
                self.unflushed = false;
                self.reset()
            }
            Ok(Found::At(found)) => {
                self.deferred(&format!("a write failed at block {lbn}; the drive now stands at block {found}"))
            }
            Err(error) => error,
        }
    }

    fn deferred(&mut self, reason: &str) -> DriveError {
        self.at = None;
        self.unflushed = false;
        DriveError::Deferred { source: reason.into() }
    }

    fn lose_position(&mut self) {
        let _ = self.find();
        self.unflushed = false;
    }

    /// A short ERASE at the beginning: the end of data is there then.
    pub(super) fn erase_all(&mut self) -> Result<(), DriveError> {
        self.node()?;
        self.writable()?;
        self.seek(0)?;
        if let Err(error) = self.node()?.operate(Operation::Erase, 0) {
            return Err(self.unwritten(0, error));
        }
        self.seek(0)?;
        self.early_warning_from = None;
        let medium = self.medium_mut()?;
        medium.encryption = EncryptionState::Blank;
        medium.remaining_bytes = medium.capacity_bytes;
        Ok(())
    }
}
