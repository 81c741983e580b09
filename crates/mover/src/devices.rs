//! What a mover does with its library and drives for whoever decides.
//!
//! Whoever decides says which volume, by which reservation, with which key, and what to do with it; the mover brings it
//! into a drive, looks at its label and at where its data end, and reports. All of it is data: the two may be in one
//! process, or at the two ends of a socket ([`remote`]), and one conformance suite holds both to the same promises
//! ([`conformance`]). Blocks do not pass here: a session or a read of the same mover takes the drive by its [`MountId`]
//! ([`crate::MountedDrives`]).
//!
//! ```text
//!   decides                                   touches
//!     mount(volser, reservation)  ------>       robot, drive, load; a person is asked
//!     <------  report: medium, serial numbers, health
//!     set_key, read label, last checkpoint, write label ...
//!     <------  what stands there
//!     (a session writes; CopyHost asks and reports)
//!     dismount(description)       ------>       cartridge's memory, unload, robot
//!     <------  report: health, what went wrong
//! ```
//! A call lasts as long as a robot moves or a person takes, so whoever calls holds no lock. Calls for different mounts
//! may be made at the same time.

mod by_hand;
pub mod conformance;
mod library;
mod local;
pub mod remote;
mod wire;

use capstan_format::{CatalogPart, KeyTag, MediumSerial, SessionId, SessionRecord, Volser, VolumeHeader, VolumeId};
use capstan_tape::{
    CartridgeSpec, ChangerError, ChangerRequest, DriveDescription, DriveKey, DriveNeeds, Element, Finding, FolderRoom,
    Medium, Position, VolumeDescription,
};
use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::{DriveHealth, FoundCheckpoint, HostError, MountId, MoverError};

pub use library::{BY_HAND, LibraryConfig};
pub use local::{Loader, LocalDevices};

/// A mover's library and drives, as whoever decides orders them.
pub trait Devices: Send + Sync {
    /// How many drives there are.
    ///
    /// # Errors
    /// The library cannot be asked.
    fn drives(&self) -> Result<u32, DevicesError>;

    /// What the drives are, by their number.
    ///
    /// # Errors
    /// The library cannot be asked.
    fn describe_drives(&self) -> Result<Vec<DriveDescription>, DevicesError>;

    /// What is where.
    ///
    /// # Errors
    /// The library cannot be asked.
    fn inventory(&self) -> Result<LibraryInventory, DevicesError>;

    /// The same for whoever looks and must not wait: while the robot works, as it was when it was asked last.
    ///
    /// # Errors
    /// The library cannot be asked.
    fn inventory_at_once(&self) -> Result<LibraryInventory, DevicesError> {
        self.inventory()
    }

    /// Has the robot do something that is no mount of a job.
    ///
    /// # Errors
    /// It was not done; [`ChangerError`] says whether anything moved.
    fn change(&self, order: &ChangerOrder) -> Result<(), DevicesError>;

    /// Brings a volume into a free drive and makes it ready. `watch` is told what is waited for, and asked whether to
    /// go on waiting.
    ///
    /// # Errors
    /// [`DevicesError::NoDrive`] if none is free: the same order may be given again. Otherwise the volume is where it
    /// was, as far as the robot obeys.
    fn mount(&self, order: &MountOrder, watch: &dyn MountWatch) -> Result<MountReport, DevicesError>;

    /// Loads a key into the drive, or clears its key slot.
    ///
    /// # Errors
    /// The drive does not take it; nothing may be written.
    fn set_key(&self, mount: MountId, key: Option<DriveKey>) -> Result<(), DevicesError>;

    /// Looks at a mounted volume, or changes what is on it.
    ///
    /// # Errors
    /// [`DevicesError::Mover`] says what the drive or the medium said.
    fn at_volume(&self, mount: MountId, request: &VolumeRequest) -> Result<VolumeReport, DevicesError>;

    /// The catalog part of a checkpoint that was found.
    ///
    /// # Errors
    /// It cannot be read, or is not what its checkpoint says.
    fn catalog_part(
        &self,
        mount: MountId,
        volume: VolumeId,
        found: &FoundCheckpoint,
    ) -> Result<CatalogPart, DevicesError>;

    /// Unloads the drive and brings the volume back to its slot. The mount is over, whatever the report says.
    ///
    /// # Errors
    /// The mount is not known, or its drive is in use.
    fn dismount(&self, order: &DismountOrder) -> Result<DismountReport, DevicesError>;

    /// Lets go of a drive whose mount nobody ends: the volume stays in it, and the next mount finds it there.
    fn abandon(&self, mount: MountId);
}

/// Whoever is told how a mount goes on.
pub trait MountWatch: Sync {
    /// A person, or another job, is waited for.
    fn waiting(&self, message: String);

    /// Something that is no failure.
    fn notice(&self, message: String);

    /// Whether nobody waits any more.
    fn is_stopped(&self) -> bool;
}

/// Who gives the keys that blocks name while they are read.
pub trait KeySource: Send + Sync {
    /// The key that a block needs.
    ///
    /// # Errors
    /// It cannot be had; the error is the source of [`capstan_tape::DriveError::KeyUnavailable`].
    fn key(&self, wanted: &KeyWanted) -> Result<DriveKey, HostError>;
}

/// A key that a block names, and where that block is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeyWanted {
    /// Name of the key.
    pub tag: KeyTag,
    /// The volume.
    pub volser: Volser,
    /// Serial number of the cartridge, once its memory has told it.
    pub cartridge: Option<MediumSerial>,
    /// Serial number of the drive, where the library tells it.
    pub drive: Option<String>,
}

/// What is where in a library.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LibraryInventory {
    /// Every element, in order of address.
    pub elements: Vec<Element>,
    /// What a person has to put right.
    pub findings: Vec<Finding>,
    /// The room in the folders of a virtual library that has rules for it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub rooms: Vec<FolderRoom>,
}

/// What the robot does besides mounts. A drive that a job uses is left alone.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum ChangerOrder {
    /// Puts a new blank cartridge into a slot of a library that can make some.
    Create(CartridgeSpec),
    /// Brings a volume into a drive and leaves it there; a cleaning cartridge cleans the drive.
    Load {
        /// The volume.
        volser: Volser,
        /// The drive, counted from 0.
        drive: u32,
    },
    /// Unloads a drive and brings what is in it to its slot.
    Unload {
        /// The drive, counted from 0.
        drive: u32,
    },
    /// What a person asks of the robot, once the drive that it is about is unloaded.
    Request(ChangerRequest),
}

/// Which volume to mount, and what whoever decides knows of it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MountOrder {
    /// The volume.
    pub volser: Volser,
    /// By which key the drive is reserved.
    pub reservation: DriveReservation,
    /// Whether it has a label of ours, as far as is known.
    pub labelled: bool,
    /// The key that its label is encrypted with, as far as is known.
    pub first_key: Option<KeyTag>,
    /// Which drive it needs.
    #[serde(default)]
    pub needs: DriveNeeds,
}

/// A persistent reservation of a drive (SPC-4, 5.13), where it takes one.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DriveReservation {
    /// Catalog and generation of whoever mounts.
    pub key: ReservationKey,
    /// Generations of the jobs that live. A drive is taken over from an older one that does not; from nobody where they
    /// are not known.
    pub living: Option<Vec<u64>>,
}

/// A volume in a drive.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MountReport {
    /// What the mount is called.
    pub mount: MountId,
    /// Number of the drive.
    pub number: u32,
    /// Name of the drive.
    pub drive: String,
    /// Its serial number, where the library tells it.
    pub drive_serial: Option<String>,
    /// The cartridge.
    pub medium: Medium,
    /// Flags that were up before the volume came: they are about the one before, or the drive.
    pub left_alerts: Vec<u16>,
    /// How drive and volume are; none where the drive tells nothing.
    pub health: Option<DriveHealth>,
}

/// What is looked at, or done, on a mounted volume.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum VolumeRequest {
    /// Its label: [`VolumeReport::Label`].
    ReadLabel,
    /// Writes a label from the beginning of tape: [`VolumeReport::Medium`], as it is then.
    WriteLabel(VolumeHeader),
    /// Where data end: [`VolumeReport::Position`].
    EndOfData,
    /// Everything that was written is on the medium: [`VolumeReport::Done`].
    Flush,
    /// Makes it blank: [`VolumeReport::Done`].
    Erase,
    /// Writes into the cartridge's memory what the volume is: [`VolumeReport::Done`], also where it has none.
    Describe(VolumeDescription),
    /// Its last checkpoint: [`VolumeReport::Checkpoint`].
    LastCheckpoint(VolumeId),
    /// Where that stands, by the last filemark alone: [`VolumeReport::Lbn`].
    LastCheckpointLbn(VolumeId),
    /// The checkpoint at a block: [`VolumeReport::Checkpoint`].
    Checkpoint(VolumeId, u64),
    /// Where the checkpoint before the one at a block stands: [`VolumeReport::Lbn`].
    CheckpointLbnBefore(VolumeId, u64),
    /// The session header at a block: [`VolumeReport::Session`].
    SessionRecord(VolumeId, u64),
}

/// What was found on a volume.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum VolumeReport {
    /// It is done.
    Done,
    /// The label.
    Label(VolumeHeader),
    /// The medium.
    Medium(Medium),
    /// Where the drive stands.
    Position(Position),
    /// A checkpoint, if there is one.
    Checkpoint(Option<FoundCheckpoint>),
    /// A block number, if there is one.
    Lbn(Option<u64>),
    /// A session header.
    Session(SessionId, SessionRecord),
}

/// How a mount is ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DismountOrder {
    /// Which.
    pub mount: MountId,
    /// What the cartridge's memory is to say, where it has one; none to leave it as it is.
    pub description: Option<VolumeDescription>,
}

/// How a mount has ended.
#[derive(Debug)]
pub struct DismountReport {
    /// Name of the drive.
    pub drive: String,
    /// How drive and volume were at last.
    pub health: Option<DriveHealth>,
    /// What is to be told: of a cartridge's memory, of a drive's pace.
    pub notices: Vec<String>,
    /// What went wrong: the volume may still be in the drive.
    pub outcome: Result<(), DevicesError>,
}

/// Why a mover did not do what it was told.
#[derive(Debug, Error)]
pub enum DevicesError {
    /// Library: see there.
    #[error(transparent)]
    Changer(#[from] ChangerError),
    /// Host: every drive that takes the volume is in use, or none takes it.
    #[error(transparent)]
    NoDrive(ChangerError),
    /// Drive or medium: see there.
    #[error(transparent)]
    Mover(#[from] MoverError),
    /// Operator: the volume lies in a mail slot.
    #[error("volume {volser} lies in {place}, which counts as outside: `capstan library import` brings it in")]
    InMailSlot {
        /// The volume.
        volser: Volser,
        /// Where.
        place: String,
    },
    /// Library or operator: the robot brought another cartridge, or this one had another barcode before.
    #[error(
        "the library was asked for volume {volser}, but the memory of the cartridge in drive {drive} holds barcode \
         {found}: nothing was read or written. If the robot brought a wrong one, have all barcodes read again \
         (`capstan library initialize`); if the cartridge got a new label, stick the one with {found} on it again"
    )]
    WrongCartridge {
        /// The volume.
        volser: Volser,
        /// What came, as its memory says.
        found: Volser,
        /// The drive.
        drive: String,
    },
    /// Caller: [`MountWatch::is_stopped`] said so.
    #[error("nobody waits for the volume any more")]
    Stopped,
    /// Network: the mover does not answer, or not in words that are known here.
    #[error("the mover cannot be reached")]
    Connection(#[source] std::io::Error),
}

/// How a mover's reservation key begins: "CP".
const KEY_PREFIX: u64 = 0x4350;

/// Bits of the catalog's name, and of the generation.
const PART_BITS: u32 = 24;
const PART: u64 = (1 << PART_BITS) - 1;

/// Whose reservation of a drive it is: "CP", 24 bits of the catalog's name and 24 of the generation under which the job
/// has reserved what it mounts.
///
/// So whoever finds a drive reserved can look whether the job lives that did it, wherever that ran; the drive of one
/// that is gone is taken over. Of the key of another catalog, or another program, nothing is known, and it stays.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReservationKey(u64);

impl ReservationKey {
    /// The key of a job of a catalog.
    pub fn new(catalog: &str, generation: u64) -> Self {
        let name = u64::from(capstan_format::crc32c(catalog.as_bytes())) & PART;
        Self((KEY_PREFIX << (2 * PART_BITS)) | (name << PART_BITS) | (generation & PART))
    }

    /// Whether another key is of the same catalog, of an older generation, and of none of those that live. A younger
    /// one is of a catalog that this one is a copy of.
    fn is_gone(self, other: u64, living: &[u64]) -> bool {
        let same_catalog = other >> PART_BITS == self.0 >> PART_BITS;
        let older_by = self.0.wrapping_sub(other) & PART;
        let is_older = (1..=PART / 2).contains(&older_by);
        same_catalog && is_older && !living.iter().any(|generation| generation & PART == other & PART)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_drive_is_taken_from_a_job_of_this_catalog_that_is_gone() {
        let own = ReservationKey::new("one", 9);
        assert_eq!(own.0 >> 48, 0x4350);
        let (gone, lives) = (ReservationKey::new("one", 7), ReservationKey::new("one", (1 << PART_BITS) | 8));
        assert!(own.is_gone(gone.0, &[8, 9]) && !own.is_gone(lives.0, &[8, 9]));
        assert!(!own.is_gone(ReservationKey::new("other", 7).0, &[8, 9]), "another catalog may be at work");
        assert!(!own.is_gone(0x1234, &[8, 9]));
        assert!(!own.is_gone(ReservationKey::new("one", 10).0, &[8, 9]), "this catalog is an older copy");
        assert!(!own.is_gone(own.0, &[]));
        let behind_the_turn = ReservationKey::new("one", (1 << PART_BITS) + 2);
        assert!(behind_the_turn.is_gone(ReservationKey::new("one", (1 << PART_BITS) - 5).0, &[]));
    }
}
