//! Reading blocks.

use rustix::io::Errno;

use super::StDrive;
use super::kernel::Operation;
use super::place::{Found, says_end_of_data};
use crate::{DriveError, ReadOutcome};

impl StDrive {
    pub(super) fn read_next(&mut self, buffer: &mut [u8]) -> Result<ReadOutcome, DriveError> {
        let lbn = self.known()?;
        self.settle()?;
        // A read of no bytes does nothing at all, and one of more than the drive's longest block is refused.
        let mut byte = [0];
        let empty = buffer.is_empty();
        let room = if empty { &mut byte[..] } else { &mut *buffer };
        let len = room.len().min(self.limits.max as usize);
        let node = self.node()?;
        match node.read(&mut room[..len]) {
            Ok(0) => self.filemark(lbn),
            Ok(found) if empty => {
                self.stand_at(lbn + 1);
                Err(DriveError::BlockTooLong { lbn, found, buffer: 0 })
            }
            Ok(found) => {
                self.stand_at(lbn + 1);
                Ok(ReadOutcome::Block(found))
            }
            Err(Errno::NOMEM) => Err(self.too_long(lbn, buffer.len())),
            Err(Errno::IO) => self.unread(lbn),
            Err(error) => {
                self.at = None;
                Err(self.failed("READ", error))
            }
        }
    }

    /// Nothing was read: a filemark, which moved the tape, or the end of data, which did not.
    fn filemark(&mut self, lbn: u64) -> Result<ReadOutcome, DriveError> {
        let node = self.node()?;
        if says_end_of_data(node) || node.position() == Ok(lbn as u32) {
            self.verify(lbn)?;
            return Ok(ReadOutcome::EndOfData);
        }
        self.verify(lbn + 1)?;
        Ok(ReadOutcome::Filemark)
    }

    /// A block that is longer than the buffer has been passed: its length is found by reading it again with room for
    /// any.
    fn too_long(&mut self, lbn: u64, buffer: usize) -> DriveError {
        let measured = (|| {
            self.seek(lbn)?;
            let mut room = vec![0; self.limits.max as usize];
            let node = self.node()?;
            let found = node.read(&mut room).map_err(|error| self.failed("READ", error))?;
            self.verify(lbn + 1)?;
            Ok(DriveError::BlockTooLong { lbn, found, buffer })
        })();
        measured.unwrap_or_else(|error| error)
    }

    /// An I/O error is what the driver makes of the end of data, of a block that cannot be read, and of a reset.
    fn unread(&mut self, lbn: u64) -> Result<ReadOutcome, DriveError> {
        let failed = |reason: &str| DriveError::ReadFailed { lbn, reason: reason.to_owned() };
        match self.find()? {
            Found::At(found) if found == lbn => {
                if self.at_end_of_data()? {
                    self.verify(lbn)?;
                    return Ok(ReadOutcome::EndOfData);
                }
                // Passed by the step that looked for the end of data, or else by this one.
                if self.node()?.position() == Ok(lbn as u32) {
                    let _ = self.node()?.operate(Operation::ForwardBlocks, 1);
                }
                self.verify(lbn + 1)?;
                Err(failed("the drive could not; the kernel's log says what it met"))
            }
            Found::At(found) if found == lbn + 1 => {
                self.verify(found)?;
                Err(failed("the drive could not; the kernel's log says what it met"))
            }
            Found::At(_) | Found::Nowhere => Err(self.reset()),
        }
    }
}
