//! A real drive, driven by SCSI commands over any transport.
//!
//! # No write goes to a position that was not verified
//! The drive here keeps the block number at which the next write belongs. It is known from READ POSITION after a load,
//! a locate or a space, and counted on with each block. Whatever may have moved the tape makes it unknown: a unit
//! attention, a time-out, a broken path, an aborted command, a deferred error. The command that met it says so, and
//! every write after it is refused with [`DriveError::Reset`] until a locate, a load or a space to the end of data has
//! succeeded and READ POSITION agrees.
//!
//! A unit attention is told once to each nexus, and all handles of a host (st, sg, another process) are one nexus:
//! somebody else may have taken it. So the host's count of commands ([`Transport::commands_seen`]) is compared with our
//! own before each write. Where they differ, or nobody counts, READ POSITION must name the expected block before the
//! write goes out, and a loaded key must be the same one by its instance counter.
//!
//! **What remains:** between that look and the write, another handle may take a unit attention and leave no trace
//! before the write is sent: microseconds, and only on a host where somebody else uses the drive in mid-session. The
//! next write finds the count changed and the position wrong, so that nothing after the last flush is taken for
//! written; but the block that went out in between may lie where it does not belong. Open the drive exclusively, and
//! reserve it ([`ScsiDrive::reserve`]).
//!
//! # Keys
//! A key is trusted only after the drive's status page has named its tag and mode. The drive here keeps the key as long
//! as it is loaded, because a plain volume can only be read while the drive is not told to decrypt; it is zeroed when
//! it is cleared, replaced or lost. Who may append what is decided here as well as in the drive, as LTO drives would
//! mix plain and encrypted.
//!
//! # Blocks on their way, and room for the last of them
//! With [`ScsiDrive::with_protection`] each block carries a checksum that the drive holds it to, and that is made again
//! by the drive when the block is read: cable, adapter and switch are no longer trusted. With
//! [`ScsiDrive::with_reserve`] early warning comes while there is room for what must be written behind it. Both are
//! modes, set anew after every load and reset; the first is undone by an unload, so that the next program finds the
//! drive as it knows it.

use capstan_format::Algorithm;

use crate::hardware::line::{Done, Failure, Line};
use crate::scsi::command::{Destination, SpaceOver};
use crate::scsi::encryption::AlgorithmEntry;
use crate::scsi::inquiry::Inquiry;
use crate::scsi::sense::Action;
use crate::scsi::{Command, DataPhase, Transport};
use crate::{
    BlockLimits, Cleaning, Drive, DriveCare, DriveError, DriveIdentity, DriveKey, EncryptionState, Flush, Medium,
    PaceClock, Position, ReadOutcome, Rewritability, WriteOutcome,
};

mod access_order;
mod failure;
mod guard;
mod health;
mod keys;
mod medium;
mod modes;
mod open;
mod place;
mod read;
mod ready;
mod reservation;
mod reserve;
mod write;

pub use guard::BlockProtection;
pub(crate) use medium::generation_of_density;
pub(crate) use open::model_of;

use guard::Guard;
use keys::KeySlot;
use medium::MediumName;
use place::PositionAsked;
use ready::Empty;
use reservation::Reserved;
use reserve::Reserve;

/// Whether the drive compresses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DriveCompression {
    /// It does: for data that come as they are.
    On,
    /// It does not: for data that are compressed or encrypted already, which it would only make longer.
    Off,
}

/// A drive at the other end of a [`Transport`].
pub struct ScsiDrive<T> {
    line: Line<T>,
    inquiry: Inquiry,
    serial: Option<String>,
    limits: BlockLimits,
    /// Longest block that can be on a tape, whatever the host can move.
    longest_on_tape: u32,
    algorithms: Vec<AlgorithmEntry>,
    /// Whether the drive has said which ciphers it has.
    knows_ciphers: bool,
    compression: DriveCompression,
    position_asked: PositionAsked,
    locate_known: LocateKnown,
    loaded: Option<Loaded>,
    slot: KeySlot,
    /// Where the next read or write belongs; unknown after anything that may have moved the tape.
    at: Option<u64>,
    /// The last block number that was known, for messages.
    last_lbn: u64,
    /// Blocks were written since the last synchronous flush.
    unflushed: bool,
    /// Something happened after which modes and cartridge must be looked at again.
    in_doubt: bool,
    /// Commands that others had sent when the position was last verified.
    others: Option<u64>,
    reserved: Reserved,
    /// What a load does about a drive that says it is empty.
    when_empty: Empty,
    recovered_errors: u64,
    cleaning: Cleaning,
    /// The last density code that was met, and its generation.
    generation_known: Option<(u8, Option<String>)>,
    guard: Guard,
    reserve: Reserve,
}

/// The forms of LOCATE that the drive has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum LocateKnown {
    Sixteen,
    TenOnly,
    /// Rewinds and passes over blocks instead.
    None,
}

/// What is in the drive.
struct Loaded {
    medium: Medium,
    name: MediumName,
    /// Early warning was met at the position.
    early_warning: bool,
}

impl<T: Transport> ScsiDrive<T> {
    /// Takes another clock, for tests: all waiting goes by it.
    #[must_use]
    pub fn with_clock(mut self, clock: Box<dyn PaceClock>) -> Self {
        self.line.set_clock(clock);
        self
    }

    /// Is told while the drive is waited for.
    #[must_use]
    pub fn with_on_wait(mut self, on_wait: crate::hardware::OnWait) -> Self {
        self.line.set_on_wait(on_wait);
        self
    }

    /// A robot brings the cartridge before each load: a drive that does not notice it at once is waited for, a minute
    /// at most.
    #[must_use]
    pub fn fed_by_robot(mut self) -> Self {
        self.when_empty = Empty::Await;
        self
    }

    /// A person puts cartridges in, and the drive takes them by itself: what lies in its mouth was let go of, and is
    /// left there.
    #[must_use]
    pub fn fed_by_hand(mut self) -> Self {
        self.when_empty = Empty::Tell;
        self
    }

    /// Serial number, by which libraries know the drive.
    pub fn serial(&self) -> Option<&str> {
        self.serial.as_deref()
    }

    /// Who the drive says it is.
    pub fn inquiry(&self) -> &Inquiry {
        &self.inquiry
    }

    /// Ciphers that it has.
    pub fn ciphers(&self) -> Vec<Algorithm> {
        self.algorithms.iter().map(|entry| entry.algorithm).collect()
    }

    fn loaded(&mut self) -> Result<&mut Loaded, DriveError> {
        match &mut self.loaded {
            Some(loaded) => Ok(loaded),
            None => Err(DriveError::NoMedium { drive: self.line.name.clone() }),
        }
    }

    fn reset(&self) -> DriveError {
        DriveError::Reset { drive: self.line.name.clone() }
    }

    fn known(&self) -> Result<u64, DriveError> {
        self.at.ok_or_else(|| self.reset())
    }

    fn stand_at(&mut self, lbn: u64) {
        self.at = Some(lbn);
        self.last_lbn = lbn;
    }

    /// Runs a command whose every failure is one.
    fn command(&mut self, what: &'static str, command: &Command, data: DataPhase<'_>) -> Result<Done, DriveError> {
        let done = self.line.run(command, data);
        self.checked(what, done)
    }

    fn checked(&mut self, what: &'static str, done: Result<Done, Failure>) -> Result<Done, DriveError> {
        match done {
            Ok(done) => {
                self.note(&done);
                Ok(done)
            }
            Err(failure) => Err(self.failed(what, failure)),
        }
    }

    /// Counts what the drive recovered from, and keeps what it asks for.
    fn note(&mut self, done: &Done) {
        match done.sense.and_then(|data| data.sense.action()) {
            Some(Action::CountRecovered) => self.recovered_errors += 1,
            Some(Action::Clean) => self.cleaning = Cleaning::Asked,
            _ => {}
        }
    }
}

impl<T: Transport> Drive for ScsiDrive<T> {
    fn identity(&self) -> DriveIdentity {
        let encrypts = !self.algorithms.is_empty() && !matches!(self.slot, KeySlot::Elsewhere);
        DriveIdentity { name: self.line.name.clone(), model: model_of(&self.inquiry.product), encrypts }
    }

    fn load(&mut self) -> Result<Medium, DriveError> {
        self.load_and_look()
    }

    fn unload(&mut self) -> Result<(), DriveError> {
        self.flush_and_let_go()
    }

    fn medium(&mut self) -> Result<Medium, DriveError> {
        self.loaded()?;
        if self.at.is_some() {
            self.refresh_remaining()?;
        }
        Ok(self.loaded()?.medium.clone())
    }

    fn block_limits(&self) -> BlockLimits {
        self.limits
    }

    fn position(&mut self) -> Result<Position, DriveError> {
        self.loaded()?;
        let lbn = self.known()?;
        let data = self.verify(lbn)?;
        Ok(Position { lbn, early_warning: self.is_warned(data) || self.loaded()?.early_warning })
    }

    fn locate(&mut self, lbn: u64) -> Result<(), DriveError> {
        self.loaded()?;
        self.recover()?;
        self.go(Destination::Object(lbn))
    }

    fn space_to_end_of_data(&mut self) -> Result<(), DriveError> {
        self.loaded()?;
        self.recover()?;
        self.go(Destination::EndOfData)
    }

    fn space_filemarks(&mut self, count: i64) -> Result<(), DriveError> {
        self.loaded()?;
        let lbn = self.known()?;
        if count == 0 {
            return Ok(());
        }
        self.verify_if_others_came(lbn)?;
        self.space(SpaceOver::Filemarks, count)
    }

    fn read_block(&mut self, buffer: &mut [u8]) -> Result<ReadOutcome, DriveError> {
        self.loaded()?;
        let lbn = self.known()?;
        self.verify_if_others_came(lbn)?;
        self.read_at(lbn, buffer)
    }

    fn write_block(&mut self, block: &[u8]) -> Result<WriteOutcome, DriveError> {
        self.loaded()?;
        let BlockLimits { min, max } = self.limits;
        if block.len() < min as usize || block.len() > max as usize {
            return Err(DriveError::BlockLength { len: block.len(), min, max });
        }
        let lbn = self.known()?;
        let state = self.writing_state(lbn)?;
        self.verify_before_write(lbn)?;
        let (done, sent) = self.send_block(lbn, block)?;
        self.written("WRITE", lbn, 1, state, done, Some(sent))
    }

    fn write_filemarks(&mut self, count: u32, flush: Flush) -> Result<WriteOutcome, DriveError> {
        self.loaded()?;
        self.filemarks(count, flush)
    }

    fn erase(&mut self) -> Result<(), DriveError> {
        let drive = self.line.name.clone();
        if self.loaded()?.medium.write_protected {
            return Err(DriveError::WriteProtected { drive });
        }
        if self.loaded()?.medium.rewritability == Rewritability::WriteOnce {
            return Err(DriveError::WriteOnce { drive });
        }
        self.known()?;
        self.go(Destination::Object(0))?;
        self.erase_from_beginning()
    }

    fn set_key(&mut self, key: Option<DriveKey>) -> Result<(), DriveError> {
        self.change_key(key)
    }

    fn recommended_order(&mut self, stretches: &[(u64, u64)]) -> Result<Option<Vec<usize>>, DriveError> {
        self.ask_order(stretches)
    }

    fn care(&mut self) -> Option<&mut dyn DriveCare> {
        Some(self)
    }
}

/// How the volume is written once this has been written on it.
fn state_of(key: Option<&DriveKey>) -> EncryptionState {
    match key {
        Some(key) => EncryptionState::Encrypted { algorithm: key.algorithm, tag: key.tag },
        None => EncryptionState::Plain,
    }
}
