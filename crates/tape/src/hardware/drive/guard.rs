//! Checksums behind blocks, from here to the drive and back: logical block protection.
//!
//! A block that came with a wrong checksum is asked for once more, and sent once more where the drive says so
//! (4/10/01); the second time the path is at fault, and nothing goes over it any more until the drive is loaded or
//! located anew. Each costs a copy of the block.

use super::ScsiDrive;
use super::modes::{self, ModePage};
use crate::hardware::line::{Done, Failure};
use crate::scsi::command::{Destination, Length};
use crate::scsi::protection::{CHECKSUM_LEN, LogicalBlockProtection, PAGE, ProtectionMethod, SETTINGS, SUBPAGE};
use crate::scsi::sense::Action;
use crate::scsi::{Command, DataPhase, Transport};
use crate::{DriveError, ReadOutcome};

/// Whether blocks have checksums on their way to the drive and back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BlockProtection {
    /// Blocks go as they are. A drive that a program which was killed left protecting is told so, when it is loaded.
    Off,
    /// They have, in the strongest way that the drive knows; a drive that knows none is used without.
    WhereOffered,
}

/// How far it has come.
pub(super) struct Guard {
    pub(super) wish: BlockProtection,
    /// How the drive was set.
    pub(super) method: Option<ProtectionMethod>,
    /// A block and its checksum; grows to the longest met, and stays.
    scratch: Vec<u8>,
}

impl ModePage {
    /// The same page, as long as the drive has it, with what else is in it; none if it is too short to be one.
    fn with_protection(&self, wanted: LogicalBlockProtection) -> Option<Self> {
        let mut page = self.page.clone();
        page.get_mut(SETTINGS)?.copy_from_slice(&wanted.to_page()[SETTINGS]);
        Some(Self { page, ..*self })
    }
}

impl Guard {
    pub(super) fn new(wish: BlockProtection) -> Self {
        Self { wish, method: None, scratch: Vec::new() }
    }

    /// Bytes that stand behind each block.
    pub(super) fn behind(&self) -> usize {
        if self.method.is_some() { CHECKSUM_LEN } else { 0 }
    }
}

impl<T: Transport> ScsiDrive<T> {
    /// Has blocks protected from the next load on.
    #[must_use]
    pub fn with_protection(mut self, wish: BlockProtection) -> Self {
        self.guard = Guard::new(wish);
        self.limits.max = self.limits.max.min(self.movable());
        self
    }

    /// How blocks are protected: known once a cartridge was loaded.
    pub fn protection(&self) -> Option<ProtectionMethod> {
        self.guard.method
    }

    /// Sets the drive to what is wished, as far as it goes. After a reset it has forgotten.
    pub(super) fn set_protection(&mut self) -> Result<(), DriveError> {
        self.guard.method = None;
        let Some(found) = self.mode_page((PAGE, SUBPAGE))? else { return Ok(()) };
        if self.guard.wish == BlockProtection::Off {
            if LogicalBlockProtection::of_page(&found.page) != Ok(LogicalBlockProtection::NONE) {
                self.try_protection(&found, LogicalBlockProtection::NONE)?;
            }
            return Ok(());
        }
        for method in [ProtectionMethod::Crc32c, ProtectionMethod::ReedSolomon] {
            let wanted = LogicalBlockProtection::both_ways(method);
            if self.try_protection(&found, wanted)? {
                self.guard.method = Some(method);
                break;
            }
        }
        Ok(())
    }

    /// Whether the drive took it.
    fn try_protection(&mut self, found: &ModePage, wanted: LogicalBlockProtection) -> Result<bool, DriveError> {
        let Some(wanted_page) = found.with_protection(wanted) else { return Ok(false) };
        match self.mode_select(&wanted_page.to_select()) {
            Err(failure) if modes::is_refused(&failure) => Ok(false),
            done => {
                self.checked("MODE SELECT", done)?;
                // A drive that takes every page and heeds none would be sent checksums for data.
                let told = self.mode_page((PAGE, SUBPAGE))?;
                Ok(told.is_some_and(|told| LogicalBlockProtection::of_page(&told.page) == Ok(wanted)))
            }
        }
    }

    /// Leaves the drive to others, who may not know that blocks are protected. Where that fails, they are told by their
    /// first write.
    pub(super) fn end_protection(&mut self) {
        if self.guard.method.take().is_some()
            && let Ok(Some(found)) = self.mode_page((PAGE, SUBPAGE))
        {
            drop(self.try_protection(&found, LogicalBlockProtection::NONE));
        }
    }

    /// Sends a block to where the drive stands, with its checksum where it has one. How it went, and how many bytes
    /// were sent.
    pub(super) fn send_block(&mut self, lbn: u64, block: &[u8]) -> Result<(Result<Done, Failure>, usize), DriveError> {
        let Some(method) = self.guard.method else {
            let command = Command::Write { length: Length::Variable(block.len() as u32), at: None };
            return Ok((self.line.run(&command, DataPhase::Out(block)), block.len()));
        };
        let mut protected = std::mem::take(&mut self.guard.scratch);
        protected.clear();
        protected.extend_from_slice(block);
        protected.extend_from_slice(&method.checksum(block));
        let command = Command::Write { length: Length::Variable(protected.len() as u32), at: None };
        let mut done = self.line.run(&command, DataPhase::Out(&protected));
        if done.as_ref().is_err_and(|failure| failure.action() == Some(Action::ResendOnce)) {
            // The drive has not taken it: it must stand where it stood.
            self.verify(lbn)?;
            done = self.line.run(&command, DataPhase::Out(&protected));
        }
        let sent = protected.len();
        self.guard.scratch = protected;
        Ok((done, sent))
    }

    /// Reads the block at the position, which is this one, and holds it to its checksum where it has one.
    pub(super) fn read_at(&mut self, lbn: u64, buffer: &mut [u8]) -> Result<ReadOutcome, DriveError> {
        let Some(method) = self.guard.method else { return self.read_as_it_comes(lbn, buffer) };
        let mut protected = std::mem::take(&mut self.guard.scratch);
        protected.resize(buffer.len().max(1) + CHECKSUM_LEN, 0);
        let mut outcome = self.read_checked(method, lbn, &mut protected, buffer);
        if let Ok(None) = outcome {
            let back = self.go(Destination::Object(lbn));
            outcome = back.and_then(|()| self.read_checked(method, lbn, &mut protected, buffer));
        }
        self.guard.scratch = protected;
        match outcome {
            Ok(Some(outcome)) => Ok(outcome),
            Ok(None) => Err(self.path_is_down(lbn)),
            Err(error) => Err(error),
        }
    }

    /// The same once; nothing if the checksum is wrong.
    fn read_checked(
        &mut self,
        method: ProtectionMethod,
        lbn: u64,
        protected: &mut [u8],
        buffer: &mut [u8],
    ) -> Result<Option<ReadOutcome>, DriveError> {
        let len = match self.read_as_it_comes(lbn, protected) {
            Ok(ReadOutcome::Block(len)) => len,
            Ok(other) => return Ok(Some(other)),
            Err(DriveError::BlockTooLong { lbn, found, .. }) => {
                let found = found.saturating_sub(CHECKSUM_LEN);
                return Err(DriveError::BlockTooLong { lbn, found, buffer: buffer.len() });
            }
            Err(error) => {
                buffer.fill(0);
                return Err(error);
            }
        };
        let Some(block) = method.checked(&protected[..len]) else { return Ok(None) };
        let Some(room) = buffer.get_mut(..block.len()) else {
            return Err(DriveError::BlockTooLong { lbn, found: block.len(), buffer: buffer.len() });
        };
        room.copy_from_slice(block);
        Ok(Some(ReadOutcome::Block(block.len())))
    }
}
