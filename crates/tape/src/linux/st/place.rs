//! Where the tape stands: verified, sought, passed over, and found again after an error.

use rustix::io::Errno;

use super::StDrive;
use super::kernel::{Node, Operation, Status};
use crate::DriveError;

/// The most objects that one SPACE can pass: a count of 24 bits with a sign.
const SPACE_MAX: u64 = 0x007f_ffff;

/// What is known of the position after an error.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Found {
    /// The drive says that it is there.
    At(u64),
    /// The drive does not say, or the driver forbids to ask: it was reset.
    Nowhere,
}

impl StDrive {
    /// Asks the drive whether it stands where it is thought to.
    pub(super) fn verify(&mut self, lbn: u64) -> Result<(), DriveError> {
        let found = self.node()?.position();
        if found == Ok(u32::try_from(lbn).unwrap_or(u32::MAX)) {
            self.stand_at(lbn);
            return Ok(());
        }
        // Leaves the driver without the thought that it is writing.
        self.find()?;
        self.unflushed = false;
        match found {
            Err(error) if error != Errno::IO => Err(self.failed("READ POSITION", error)),
            _ => Err(self.reset()),
        }
    }

    /// The last look before a write goes out at this block.
    pub(super) fn verify_if_others_came(&mut self, lbn: u64) -> Result<(), DriveError> {
        let now = self.node()?.commands_seen();
        if now.is_some() && now == self.commands { Ok(()) } else { self.verify(lbn) }
    }

    /// Finds the position after an error. It stays unknown: the caller decides whether it may be trusted.
    pub(super) fn find(&mut self) -> Result<Found, DriveError> {
        self.at = None;
        let node = self.node()?;
        // A step of no blocks moves nothing, and the driver no longer thinks that it is writing: it would put a
        // filemark, at close or before a seek, wherever the tape stands now.
        let _ = node.operate(Operation::ForwardBlocks, 0);
        // The driver refuses this, which is no command, only after a reset that it knows of.
        if node.operate(Operation::Nothing, 0).is_err() {
            return Ok(Found::Nowhere);
        }
        Ok(node.position().map_or(Found::Nowhere, |lbn| Found::At(u64::from(lbn))))
    }

    /// Flushes what was written, so that its errors are told as such and the driver adds no filemark.
    pub(super) fn settle(&mut self) -> Result<(), DriveError> {
        if self.unflushed { self.flush() } else { Ok(()) }
    }

    pub(super) fn seek(&mut self, lbn: u64) -> Result<(), DriveError> {
        self.node()?;
        let Ok(number) = u32::try_from(lbn) else {
            let reason = format!("the tape driver cannot go to block {lbn}, above 32 bits: use the drive by SG_IO");
            return Err(DriveError::Incompatible { drive: self.name.clone(), reason });
        };
        self.settle()?;
        let was_known = self.at.take().is_some();
        let node = self.node()?;
        match node.operate(Operation::Seek, number) {
            Ok(()) => return self.verify(lbn),
            Err(Errno::IO) => {}
            Err(error) => return Err(self.failed("LOCATE", error)),
        }
        let Found::At(found) = self.find()? else { return Err(self.reset()) };
        if found < lbn && self.at_end_of_data()? {
            // It is known where the tape stands, but after a reset only a locate that succeeds counts.
            if was_known {
                self.stand_at(found);
            }
            return Err(DriveError::BlankCheck { lbn, end_of_data: found });
        }
        Err(self.failed("LOCATE", Errno::IO))
    }

    pub(super) fn seek_end_of_data(&mut self) -> Result<(), DriveError> {
        self.node()?;
        self.settle()?;
        self.at = None;
        let node = self.node()?;
        let found = node.operate(Operation::EndOfData, 0).and_then(|()| node.position());
        match found {
            Ok(lbn) => {
                self.stand_at(u64::from(lbn));
                Ok(())
            }
            Err(Errno::IO) if self.find()? == Found::Nowhere => Err(self.reset()),
            Err(error) => Err(self.failed("SPACE", error)),
        }
    }

    pub(super) fn pass_filemarks(&mut self, count: i64) -> Result<(), DriveError> {
        self.known()?;
        self.settle()?;
        let operation = if count < 0 { Operation::BackFilemarks } else { Operation::ForwardFilemarks };
        let mut left = count.unsigned_abs();
        while left > 0 {
            let part = left.min(SPACE_MAX);
            left -= part;
            self.at = None;
            let node = self.node()?;
            let (passed, met) = (node.operate(operation, part as u32), node.status());
            if let Err(error) = passed {
                let end_of_data = met.is_ok_and(Status::end_of_data);
                return Err(self.stopped(count, end_of_data, error));
            }
        }
        let found = self.node()?.position();
        match found {
            Ok(lbn) => {
                self.stand_at(u64::from(lbn));
                Ok(())
            }
            Err(_) => Err(self.reset()),
        }
    }

    /// Why spacing stopped before the last filemark.
    fn stopped(&mut self, count: i64, end_of_data: bool, error: Errno) -> DriveError {
        let found = match self.find() {
            Ok(Found::At(lbn)) => lbn,
            Ok(Found::Nowhere) => return self.reset(),
            Err(error) => return error,
        };
        if error == Errno::IO && count > 0 && end_of_data {
            self.stand_at(found);
            return DriveError::BlankCheck { lbn: found, end_of_data: found };
        }
        if error == Errno::IO && count < 0 && found == 0 {
            self.stand_at(0);
            return DriveError::BeginningOfMedium;
        }
        self.failed("SPACE", error)
    }

    /// Whether nothing is written here. Where something is, the tape has moved past it.
    pub(super) fn at_end_of_data(&self) -> Result<bool, DriveError> {
        let node = self.node()?;
        Ok(node.operate(Operation::ForwardBlocks, 1).is_err() && says_end_of_data(node))
    }
}

/// Whether the driver's last command met the end of data.
pub(super) fn says_end_of_data(node: &Node) -> bool {
    node.status().is_ok_and(Status::end_of_data)
}
