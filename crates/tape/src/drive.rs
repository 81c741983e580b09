//! The drive trait.
//!
//! It follows what SCSI stream commands (SSC-5) promise and no more: a write may be acknowledged from the drive's
//! buffer and fail later, so only a synchronous flush says that blocks are on the medium; a write at a position drops
//! what lay behind it; a filemark counts as one logical block. Conveniences live with their callers.

use capstan_format::{Algorithm, KeyTag, MediumSerial, Volser};
use serde::{Deserialize, Serialize};
use zeroize::ZeroizeOnDrop;

use crate::DriveError;
use crate::{DriveStatistics, TapeAlert};

/// A key as it is loaded into a drive's key slot. It must never be printed, logged, cloned or written anywhere.
#[derive(ZeroizeOnDrop)]
pub struct DriveKey {
    /// The key's public name; the drive stores it on the medium.
    #[zeroize(skip)]
    pub tag: KeyTag,
    /// The cipher.
    #[zeroize(skip)]
    pub algorithm: Algorithm,
    /// The key itself.
    pub key: [u8; 32],
}

/// Which drive this is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DriveIdentity {
    /// Name in messages and in the catalog: `virtual-0`, `/dev/tape/by-id/...`.
    pub name: String,
    /// Model: `virtual`, `LTO-9`.
    pub model: String,
    /// Whether it has a key slot.
    pub encrypts: bool,
}

/// Shortest and longest block, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BlockLimits {
    /// Shortest block that can be written.
    pub min: u32,
    /// Longest block that can be written.
    pub max: u32,
}

/// How the loaded medium is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum EncryptionState {
    /// Nothing was ever written, or the medium was erased.
    Blank,
    /// Blocks are stored as they were given.
    Plain,
    /// Every block is encrypted, by one cipher: block 0 with the key of this tag, and so is the rest unless the volume
    /// was appended to with further keys. Which key a block needs, a read without it tells ([`DriveError::NoKey`],
    /// [`DriveError::WrongKey`]).
    Encrypted {
        /// The cipher.
        algorithm: Algorithm,
        /// Public name of the first key.
        tag: KeyTag,
    },
}

/// Whether what is on a medium can be written over.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Rewritability {
    /// It can.
    Rewritable,
    /// It cannot (WORM): what is written stays. Only at the end of data can more be written, and nothing erases it.
    WriteOnce,
    /// Nobody can ask the drive: Linux's st does not pass on what it says. It is taken for rewritable, and refuses if
    /// it is not.
    Unknown,
}

/// The loaded medium.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Medium {
    /// Its barcode, from the medium's own memory or the changer.
    pub volser: Option<Volser>,
    /// The maker's serial number, where the medium's own memory tells it.
    pub serial: Option<MediumSerial>,
    /// Its generation, where it is known: `LTO-9`; `virtual` for one of no generation.
    pub generation: Option<String>,
    /// Native capacity.
    pub capacity_bytes: u64,
    /// Bytes that can still be written behind the end of data.
    pub remaining_bytes: u64,
    /// Whether nothing at all may be written: by the tab, or because the drive only reads this generation.
    pub write_protected: bool,
    /// Whether what is on it can be written over.
    pub rewritability: Rewritability,
    /// Whether and how it is encrypted.
    pub encryption: EncryptionState,
}

/// Where the drive stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Position {
    /// Number of the block or filemark that the next read returns.
    pub lbn: u64,
    /// Whether early warning lies behind: room for trailers only.
    pub early_warning: bool,
}

/// What a read met.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReadOutcome {
    /// A block of this length; the position is behind it.
    Block(usize),
    /// A filemark; the position is behind it.
    Filemark,
    /// End of data; the position is unchanged.
    EndOfData,
}

/// What a write met. The block or filemark was taken in both cases.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WriteOutcome {
    /// Taken.
    Written,
    /// Taken, and early warning lies behind: write the trailer, then go on to the next volume.
    EarlyWarning,
}

/// Whether a filemark waits for the medium.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Flush {
    /// Returns when the drive has it in its buffer.
    Buffered,
    /// Returns when this and everything before it is on the medium.
    Synchronous,
}

/// A tape drive.
///
/// Errors: any write may report the failure of an earlier one ([`DriveError::Deferred`]); then nothing since the last
/// synchronous flush counts as written. After [`DriveError::Reset`] the position is unknown until a locate succeeds.
pub trait Drive: Send {
    /// Which drive this is.
    fn identity(&self) -> DriveIdentity;

    /// Makes the cartridge in the drive ready, at its beginning. `NoMedium` if there is none.
    ///
    /// # Errors
    /// [`DriveError::NoMedium`] if the drive is empty; [`DriveError::CleaningCartridge`], [`DriveError::Unfit`]
    /// and [`DriveError::Incompatible`] if the cartridge is not for it; else the drive does not become ready.
    fn load(&mut self) -> Result<Medium, DriveError>;

    /// Flushes, clears the key slot and lets the cartridge go. The cartridge stays in the drive for the changer to
    /// take.
    ///
    /// # Errors
    /// [`DriveError::Deferred`] and [`DriveError::WriteFailed`] if the flush fails; else the drive does not let the
    /// cartridge go.
    fn unload(&mut self) -> Result<(), DriveError>;

    /// The loaded medium.
    ///
    /// # Errors
    /// [`DriveError::NoMedium`] if nothing is loaded; else the drive cannot be asked.
    fn medium(&mut self) -> Result<Medium, DriveError>;

    /// Shortest and longest block.
    fn block_limits(&self) -> BlockLimits;

    /// Where the drive stands.
    ///
    /// # Errors
    /// [`DriveError::NoMedium`] if nothing is loaded; else the drive cannot be asked.
    fn position(&mut self) -> Result<Position, DriveError>;

    /// Goes to a logical block number; beyond the end of data is [`DriveError::BlankCheck`].
    ///
    /// # Errors
    /// [`DriveError::BlankCheck`] beyond the end of data; else the block cannot be found. The position is unknown then.
    fn locate(&mut self, lbn: u64) -> Result<(), DriveError>;

    /// Goes behind the last block.
    ///
    /// # Errors
    /// [`DriveError::EndOfDataLost`] if the medium has lost it; else the drive does not get there.
    fn space_to_end_of_data(&mut self) -> Result<(), DriveError>;

    /// Passes over filemarks: behind the nth for a positive count; before the nth backwards for a negative one.
    ///
    /// # Errors
    /// [`DriveError::BlankCheck`] and [`DriveError::BeginningOfMedium`] if there are fewer; the drive stands where it
    /// met the end.
    fn space_filemarks(&mut self, count: i64) -> Result<(), DriveError>;

    /// Reads the next block into the front of `buffer`; a block longer than it is [`DriveError::BlockTooLong`] and
    /// passed. A block whose key is not loaded is not passed: load the key that the error names, and read again.
    ///
    /// # Errors
    /// [`DriveError::ReadFailed`], [`DriveError::BlankCheck`], [`DriveError::BlockTooLong`]; of encrypted blocks
    /// [`DriveError::NoKey`], [`DriveError::WrongKey`], [`DriveError::Integrity`] and [`DriveError::PlainBlock`]; else
    /// the drive cannot be asked. Each variant says whether the block was passed.
    fn read_block(&mut self, buffer: &mut [u8]) -> Result<ReadOutcome, DriveError>;

    /// Writes one block at the position; what lay behind is gone. [`DriveError::EndOfMedium`]: not written, no room.
    /// [`DriveError::WriteOnce`]: not written, since something lies behind that stays.
    ///
    /// # Errors
    /// [`DriveError::EndOfMedium`], [`DriveError::WriteProtected`], [`DriveError::WriteOnce`],
    /// [`DriveError::BlockLength`] and [`DriveError::MixedEncryption`] if it was not written;
    /// [`DriveError::WriteFailed`]; [`DriveError::Deferred`] if an earlier one failed: nothing since the last flush is
    /// safe then.
    fn write_block(&mut self, block: &[u8]) -> Result<WriteOutcome, DriveError>;

    /// Writes filemarks; zero of them with [`Flush::Synchronous`] is a plain flush.
    ///
    /// # Errors
    /// As [`Drive::write_block`]. After an error of a synchronous flush nothing since the one before it is safe.
    fn write_filemarks(&mut self, count: u32, flush: Flush) -> Result<WriteOutcome, DriveError>;

    /// Makes the medium blank from the beginning of tape: contents, and what its memory says of encryption. A
    /// write-once medium is never erased.
    ///
    /// # Errors
    /// [`DriveError::WriteProtected`] and [`DriveError::WriteOnce`] if it must not; else the drive fails to.
    fn erase(&mut self) -> Result<(), DriveError>;

    /// Loads a key into the key slot, or clears it. With a key, blocks written from the beginning of tape on, or behind
    /// encrypted ones, are encrypted with it, and encrypted blocks can be read that were; without, only plain ones.
    ///
    /// # Errors
    /// [`DriveError::NoKeySlot`] and [`DriveError::CipherMissing`] if the drive cannot encrypt so;
    /// [`DriveError::KeyNotTaken`] and [`DriveError::KeysFromElsewhere`] if it does not use the key.
    fn set_key(&mut self, key: Option<DriveKey>) -> Result<(), DriveError>;

    /// In which order to read these stretches, from first to last block each, by their places in the list; none if the
    /// drive has no opinion, or takes no list as long: then the geometry of its model tells
    /// ([`crate::model::plan_restore`]). The tape does not move.
    ///
    /// # Errors
    /// The drive failed when it was asked.
    fn recommended_order(&mut self, stretches: &[(u64, u64)]) -> Result<Option<Vec<usize>>, DriveError>;

    /// What it offers to those who look after it; none of a drive that needs no looking after.
    ///
    /// Neither this nor the order has a default: a drive that had both once kept them to itself, since no compiler
    /// missed this.
    fn care(&mut self) -> Option<&mut dyn DriveCare>;
}

/// What a volume's own memory is to say of it, for people and programs that meet it without a catalog.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct VolumeDescription {
    /// Barcode.
    pub volser: Volser,
    /// Pool; empty for none.
    pub pool: String,
    /// Version of the format on the tape.
    pub format: String,
    /// The life of the volume, its change counted by the drive, and where it was whole last: block number of the last
    /// checkpoint.
    pub life: u64,
    /// See there.
    pub checkpoint_lbn: u64,
}

/// Looking after a real drive: whose it is, how it fares, what the cartridge's memory says.
pub trait DriveCare {
    /// Keeps other hosts away, with this mover's key, which is not 0. Where another mover does, `is_gone` says of its
    /// key whether it is gone: then the drive is taken from it.
    ///
    /// # Errors
    /// [`DriveError::InUse`] if another mover has the drive.
    fn reserve(&mut self, key: u64, is_gone: &dyn Fn(u64) -> bool) -> Result<(), DriveError>;

    /// Lets others have it; nothing is done if it is not reserved from here.
    ///
    /// # Errors
    /// The drive does not answer.
    fn release(&mut self) -> Result<(), DriveError>;

    /// Flags that the drive has raised. Reading them takes them down: keep what is returned.
    fn alerts(&mut self) -> Vec<TapeAlert>;

    /// What the drive counts.
    fn statistics(&mut self) -> DriveStatistics;

    /// Writes into the cartridge's memory what the volume is.
    ///
    /// # Errors
    /// [`DriveError::NoMedium`] if nothing is loaded; else the memory cannot be written.
    fn describe_volume(&mut self, description: &VolumeDescription) -> Result<(), DriveError>;
}

impl<D: Drive + ?Sized> Drive for Box<D> {
    fn identity(&self) -> DriveIdentity {
        (**self).identity()
    }

    fn load(&mut self) -> Result<Medium, DriveError> {
        (**self).load()
    }

    fn unload(&mut self) -> Result<(), DriveError> {
        (**self).unload()
    }

    fn medium(&mut self) -> Result<Medium, DriveError> {
        (**self).medium()
    }

    fn block_limits(&self) -> BlockLimits {
        (**self).block_limits()
    }

    fn position(&mut self) -> Result<Position, DriveError> {
        (**self).position()
    }

    fn locate(&mut self, lbn: u64) -> Result<(), DriveError> {
        (**self).locate(lbn)
    }

    fn space_to_end_of_data(&mut self) -> Result<(), DriveError> {
        (**self).space_to_end_of_data()
    }

    fn space_filemarks(&mut self, count: i64) -> Result<(), DriveError> {
        (**self).space_filemarks(count)
    }

    fn read_block(&mut self, buffer: &mut [u8]) -> Result<ReadOutcome, DriveError> {
        (**self).read_block(buffer)
    }

    fn write_block(&mut self, block: &[u8]) -> Result<WriteOutcome, DriveError> {
        (**self).write_block(block)
    }

    fn write_filemarks(&mut self, count: u32, flush: Flush) -> Result<WriteOutcome, DriveError> {
        (**self).write_filemarks(count, flush)
    }

    fn erase(&mut self) -> Result<(), DriveError> {
        (**self).erase()
    }

    fn set_key(&mut self, key: Option<DriveKey>) -> Result<(), DriveError> {
        (**self).set_key(key)
    }

    fn recommended_order(&mut self, stretches: &[(u64, u64)]) -> Result<Option<Vec<usize>>, DriveError> {
        (**self).recommended_order(stretches)
    }

    fn care(&mut self) -> Option<&mut dyn DriveCare> {
        (**self).care()
    }
}
