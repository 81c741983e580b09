//! A drive that takes as long as a real one: the model's time, kept by a clock.
//!
//! What is written goes to the drive inside at once; then the model says when a real drive would have taken it, and the
//! caller waits until then. So a host that is too slow makes the tape stop and go back, a full buffer holds the host
//! off, and a synchronous filemark lasts until the model's buffer is empty. Reads wait for the tape's speed. Loads,
//! unloads and locates take no time: what is shown is how a tape is kept moving.
//!
//! It takes the cartridges that the model's reads and writes: one of another generation is refused at its load, and one
//! of a generation that is only read counts as write-protected.
//!
//! Rates are means over a [`TICK_S`]: a host hands over block by block, and no drive looks at one alone.

use std::sync::{Arc, Mutex, PoisonError};

use crate::model::{Access, DriveModel, Engine, EngineTotals, drives_for};
use crate::{
    BlockLimits, Drive, DriveCare, DriveError, DriveIdentity, DriveKey, Flush, Medium, PaceClock, Position,
    ReadOutcome, UnfitDrive, WriteOutcome,
};

/// Seconds over which the host's rate is taken.
const TICK_S: f64 = 0.2;

/// What a paced drive has done so far; it outlives the drive.
#[derive(Debug, Clone, Default)]
pub struct PaceMeter(Arc<Mutex<EngineTotals>>);

impl PaceMeter {
    /// As of the last command.
    pub fn totals(&self) -> EngineTotals {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A drive at a model's pace.
pub struct Paced<D, C> {
    drive: D,
    model: DriveModel,
    clock: C,
    engine: Engine,
    /// The generation of the loaded cartridge, if the model only reads it.
    only_read: Option<String>,
    /// What the host offered last, MB/s; as fast as the drive can take it until that is known.
    offered_mb_per_s: f64,
    /// MB that the host handed over and the engine has not seen.
    pending_mb: f64,
    /// MB since the last synchronous filemark.
    unsynced_mb: f64,
    /// When what was read is through, if the tape runs at its speed.
    read_until_s: f64,
    meter: PaceMeter,
}

impl<D: Drive, C: PaceClock> Paced<D, C> {
    /// The drive inside, as fast as this model. Blocks come as they go to the tape: nothing is compressed any more,
    /// unless it is [told so](Self::compressing).
    pub fn new(drive: D, model: DriveModel, clock: C) -> Self {
        let engine = Engine::new(&model, 1.0).accelerated(true);
        let (pending_mb, unsynced_mb, read_until_s) = (0.0, 0.0, 0.0);
        let (only_read, meter) = (None, PaceMeter::default());
        let offered_mb_per_s = model.ceiling_mb_per_s.value;
        Self { drive, model, clock, engine, only_read, offered_mb_per_s, pending_mb, unsynced_mb, read_until_s, meter }
    }

    /// The same, with data that compress: bytes of the host for each byte on the tape.
    #[must_use]
    pub fn compressing(self, ratio: f64) -> Self {
        let engine = Engine::new(&self.model, ratio).accelerated(true);
        Self { engine, ..self }
    }

    /// What it does from now on, also when the drive is somebody else's.
    pub fn meter(&self) -> PaceMeter {
        self.meter.clone()
    }

    /// What the model can do with a cartridge; one of no known generation is anybody's.
    fn access(&self, medium: &Medium) -> Access {
        medium.generation.as_ref().map_or(Access::ReadWrite, |generation| self.model.access(generation))
    }

    fn check_writes(&self) -> Result<(), DriveError> {
        let Some(generation) = &self.only_read else { return Ok(()) };
        Err(Box::new(UnfitDrive::ReadOnly {
            drive: self.drive.identity().name,
            model: format!("at the pace of {}", self.model.name),
            generation: generation.clone(),
            instead: drives_for(generation, Access::ReadWrite),
        })
        .into())
    }

    fn as_it_may_be_used(&self, medium: Medium) -> Medium {
        Medium { write_protected: medium.write_protected || self.only_read.is_some(), ..medium }
    }

    /// Brings the model to the present.
    fn catch_up(&mut self, least_s: f64) {
        let seconds = self.clock.now_s() - self.engine.now_s();
        if seconds >= least_s && seconds > 0.0 {
            let offered = self.pending_mb / seconds;
            if offered > 0.0 {
                self.offered_mb_per_s = offered;
            }
            let taken = self.engine.offer(offered, seconds);
            self.pending_mb = (self.pending_mb - taken).max(0.0);
        }
    }

    /// Hands over what is pending, and stays so because the buffer is full: the host has it, and waits.
    fn hand_over(&mut self) {
        self.catch_up(0.0);
        if self.pending_mb > 0.0 {
            self.engine.write(self.pending_mb, self.offered_mb_per_s);
            self.pending_mb = 0.0;
        }
    }

    fn wait(&mut self) {
        self.clock.wait_until(self.engine.now_s());
        *self.meter.0.lock().unwrap_or_else(PoisonError::into_inner) = *self.engine.totals();
    }

    fn written(&mut self, bytes: usize) {
        let mb = bytes as f64 / 1e6;
        self.pending_mb += mb;
        self.unsynced_mb += mb;
        // With this block: the host needed the time for it, too.
        self.catch_up(TICK_S);
        if self.engine.buffer_mb() + self.pending_mb > self.model.buffer_mb.value {
            self.hand_over();
            self.wait();
        }
    }

    /// All that was written is on the tape, and the tape stands, or moves if the drive knows how.
    fn synced(&mut self) {
        self.hand_over();
        self.engine.tape_mark(self.unsynced_mb);
        self.unsynced_mb = 0.0;
        self.wait();
    }

    fn was_read(&mut self, bytes: usize) {
        let now = self.clock.now_s();
        // The drive reads ahead into its buffer while nobody asks.
        let ahead_s = self.model.buffer_mb.value / self.model.native_mb_per_s.value;
        let through = self.read_until_s.max(now - ahead_s) + bytes as f64 / 1e6 / self.model.native_mb_per_s.value;
        self.read_until_s = through;
        self.clock.wait_until(through);
    }
}

impl<D: Drive, C: PaceClock> Drive for Paced<D, C> {
    fn identity(&self) -> DriveIdentity {
        DriveIdentity { model: format!("virtual, at the pace of {}", self.model.name), ..self.drive.identity() }
    }

    fn load(&mut self) -> Result<Medium, DriveError> {
        let medium = self.drive.load()?;
        self.only_read = None;
        match (self.access(&medium), &medium.generation) {
            (Access::None, Some(generation)) => {
                let foreign = UnfitDrive::Foreign {
                    drive: self.drive.identity().name,
                    model: format!("at the pace of {}", self.model.name),
                    generation: generation.clone(),
                    instead: drives_for(generation, Access::ReadOnly),
                };
                // It goes out again; that it is the wrong one is the error to report.
                let _ = self.drive.unload();
                return Err(Box::new(foreign).into());
            }
            (Access::ReadOnly, Some(generation)) => self.only_read = Some(generation.clone()),
            _ => {}
        }
        Ok(self.as_it_may_be_used(medium))
    }

    fn unload(&mut self) -> Result<(), DriveError> {
        if self.unsynced_mb > 0.0 {
            self.synced();
        }
        self.catch_up(0.0);
        self.engine.finish();
        self.wait();
        self.drive.unload()
    }

    fn medium(&mut self) -> Result<Medium, DriveError> {
        let medium = self.drive.medium()?;
        Ok(self.as_it_may_be_used(medium))
    }

    fn block_limits(&self) -> BlockLimits {
        let BlockLimits { min, max } = self.drive.block_limits();
        BlockLimits { min, max: max.min(self.model.block_len_max.value) }
    }

    fn position(&mut self) -> Result<Position, DriveError> {
        self.drive.position()
    }

    fn locate(&mut self, lbn: u64) -> Result<(), DriveError> {
        self.drive.locate(lbn)
    }

    fn space_to_end_of_data(&mut self) -> Result<(), DriveError> {
        self.drive.space_to_end_of_data()
    }

    fn space_filemarks(&mut self, count: i64) -> Result<(), DriveError> {
        self.drive.space_filemarks(count)
    }

    fn read_block(&mut self, buffer: &mut [u8]) -> Result<ReadOutcome, DriveError> {
        let outcome = self.drive.read_block(buffer)?;
        if let ReadOutcome::Block(len) = outcome {
            self.was_read(len);
        }
        Ok(outcome)
    }

    fn write_block(&mut self, block: &[u8]) -> Result<WriteOutcome, DriveError> {
        let BlockLimits { min, max } = self.block_limits();
        if block.len() > max as usize {
            return Err(DriveError::BlockLength { len: block.len(), min, max });
        }
        self.check_writes()?;
        let outcome = self.drive.write_block(block)?;
        self.written(block.len());
        Ok(outcome)
    }

    fn write_filemarks(&mut self, count: u32, flush: Flush) -> Result<WriteOutcome, DriveError> {
        if count > 0 {
            self.check_writes()?;
        }
        let outcome = self.drive.write_filemarks(count, flush)?;
        if flush == Flush::Synchronous {
            self.synced();
        }
        Ok(outcome)
    }

    fn erase(&mut self) -> Result<(), DriveError> {
        self.check_writes()?;
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
