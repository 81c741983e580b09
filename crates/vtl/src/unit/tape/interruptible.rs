//! A drive that stops in the middle of a long command when the command is taken away.
//!
//! VERIFY of a whole tape, SPACE over thousands of filemarks and the search for them are many steps of the drive below;
//! each step looks first whether anybody still wants the command. Steps that read or move the tape are refused then;
//! what writes, threads or lets go is not, so that nothing is left half done. Where the tape stands afterwards is where
//! the last step left it.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use capstan_tape::scsi::SenseKey;
use capstan_tape::scsi::sense::{About, Sense};
use capstan_tape::{
    BlockLimits, Drive, DriveCare, DriveError, DriveIdentity, DriveKey, Flush, Medium, Position, ReadOutcome,
    WriteOutcome,
};

use crate::device::Cancel;

/// The command that a unit carries out, so that others can have it given up.
#[derive(Debug, Clone, Default)]
pub(super) struct Current(Arc<Mutex<Cancel>>);

impl Current {
    fn cancel(&self) -> MutexGuard<'_, Cancel> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A command begins.
    pub(super) fn begin(&self, cancel: &Cancel) {
        *self.cancel() = cancel.clone();
    }

    /// It has ended: what follows is nobody's command.
    pub(super) fn end(&self) {
        *self.cancel() = Cancel::default();
    }

    /// It is to end soon.
    pub(super) fn give_up(&self) {
        self.cancel().order();
    }
}

/// A drive whose reads and motions are refused once the current command is given up.
pub(super) struct Interruptible<D> {
    drive: D,
    current: Current,
}

impl<D: Drive> Interruptible<D> {
    pub(super) fn new(drive: D, current: Current) -> Self {
        Self { drive, current }
    }

    fn go_on(&self, command: &'static str) -> Result<(), DriveError> {
        if !self.current.cancel().is_ordered() {
            return Ok(());
        }
        let sense = Sense { about: About::ThisCommand, key: SenseKey::AbortedCommand as u8, asc: 0, ascq: 0 };
        Err(DriveError::Aborted { drive: self.drive.identity().name, command, sense })
    }
}

impl<D: Drive> Drive for Interruptible<D> {
    fn identity(&self) -> DriveIdentity {
        self.drive.identity()
    }

    fn load(&mut self) -> Result<Medium, DriveError> {
        self.drive.load()
    }

    fn unload(&mut self) -> Result<(), DriveError> {
        self.drive.unload()
    }

    fn medium(&mut self) -> Result<Medium, DriveError> {
        self.drive.medium()
    }

    fn block_limits(&self) -> BlockLimits {
        self.drive.block_limits()
    }

    fn position(&mut self) -> Result<Position, DriveError> {
        self.drive.position()
    }

    fn locate(&mut self, lbn: u64) -> Result<(), DriveError> {
        self.go_on("LOCATE")?;
        self.drive.locate(lbn)
    }

    fn space_to_end_of_data(&mut self) -> Result<(), DriveError> {
        self.go_on("SPACE")?;
        self.drive.space_to_end_of_data()
    }

    fn space_filemarks(&mut self, count: i64) -> Result<(), DriveError> {
        self.go_on("SPACE")?;
        self.drive.space_filemarks(count)
    }

    fn read_block(&mut self, buffer: &mut [u8]) -> Result<ReadOutcome, DriveError> {
        self.go_on("READ")?;
        self.drive.read_block(buffer)
    }

    fn write_block(&mut self, block: &[u8]) -> Result<WriteOutcome, DriveError> {
        self.drive.write_block(block)
    }

    fn write_filemarks(&mut self, count: u32, flush: Flush) -> Result<WriteOutcome, DriveError> {
        self.drive.write_filemarks(count, flush)
    }

    fn erase(&mut self) -> Result<(), DriveError> {
        self.go_on("ERASE")?;
        self.drive.erase()
    }

    fn set_key(&mut self, key: Option<DriveKey>) -> Result<(), DriveError> {
        self.drive.set_key(key)
    }

    fn recommended_order(&mut self, stretches: &[(u64, u64)]) -> Result<Option<Vec<usize>>, DriveError> {
        self.drive.recommended_order(stretches)
    }

    fn care(&mut self) -> Option<&mut dyn DriveCare> {
        self.drive.care()
    }
}
