//! The changer trait: what a library's robot promises.
//!
//! It follows SCSI media changer commands (SMC-3): elements with addresses, of which slots, drives and import/export
//! elements matter here. A changer moves cartridges and knows nothing of what is on them.

use capstan_format::Volser;
use thiserror::Error;

use crate::{CartridgeSpec, Drive, DriveError};

/// Where a cartridge can be.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ElementAddress {
    /// A storage slot, counted from 0.
    Slot(u32),
    /// A drive, counted from 0.
    Drive(u32),
    /// An element of the mail slot, counted from 0.
    ImportExport(u32),
}

/// One element and the cartridge in it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Element {
    /// Where it is.
    pub address: ElementAddress,
    /// The barcode of the cartridge in it; none if it is empty.
    pub volser: Option<Volser>,
}

/// A library's robot.
pub trait Changer: Send {
    /// Every element, in order of address.
    fn inventory(&mut self) -> Result<Vec<Element>, ChangerError>;

    /// Brings a cartridge from its slot into a drive; nothing is done if it is there already.
    fn load(&mut self, volser: &Volser, drive: u32) -> Result<(), ChangerError>;

    /// Brings the cartridge in a drive back to its slot. The drive must have unloaded it.
    fn unload(&mut self, drive: u32) -> Result<(), ChangerError>;
}

/// A library: a robot, and the drives that it serves.
///
/// Who mounts takes a drive into use first and has a cartridge brought to it then: one in a drive that is nobody's may be taken away.
pub trait Library: Changer {
    /// How many drives there are.
    fn drives(&self) -> u32;

    /// Takes a drive into use; nobody else has it until the value is dropped. [`ChangerError::InUse`] if somebody has it.
    fn take_drive(&self, drive: u32) -> Result<Box<dyn Drive>, ChangerError>;

    /// Puts a new blank cartridge into a slot, in a library that can make some.
    fn create_cartridge(&mut self, spec: &CartridgeSpec) -> Result<(), ChangerError>;
}

/// Why a cartridge was not moved.
#[derive(Debug, Error)]
pub enum ChangerError {
    /// Caller: no such cartridge.
    #[error("volume {volser} is not in the library: insert it, or choose another volume")]
    UnknownVolume {
        /// The cartridge asked for.
        volser: Volser,
    },
    /// Caller: no such drive.
    #[error("the library has no drive {drive}, only {drives} counted from 0")]
    UnknownDrive {
        /// The drive asked for.
        drive: u32,
        /// How many there are.
        drives: u32,
    },
    /// Caller: a cartridge is in the drive already (5/3B/0D).
    #[error("drive {drive} holds volume {volser}: unload it first")]
    DriveFull {
        /// The drive.
        drive: u32,
        /// The cartridge in it.
        volser: Volser,
    },
    /// Caller: no cartridge is in the drive (5/3B/0E).
    #[error("drive {drive} holds no cartridge")]
    DriveEmpty {
        /// The drive.
        drive: u32,
    },
    /// Caller: the cartridge is in another drive (5/3B/0E).
    #[error(
        "volume {volser} is in drive {drive}, which {holder} uses: wait until it is done, or choose another volume"
    )]
    InOtherDrive {
        /// The cartridge asked for.
        volser: Volser,
        /// Where it is.
        drive: u32,
        /// Who uses that drive.
        holder: String,
    },
    /// Host: a drive or a cartridge is in use, so that it cannot be moved or removed (5/53/02).
    #[error("{what} is in use by {holder}: wait until it is done, or end it")]
    InUse {
        /// The drive or cartridge.
        what: String,
        /// The process that holds it.
        holder: String,
    },
    /// Caller: a new cartridge would have the barcode of one that is there.
    #[error("volume {volser} is in the library already: choose another volser")]
    VolserTaken {
        /// The barcode.
        volser: Volser,
    },
    /// Caller: only a virtual library makes cartridges.
    #[error("volume {volser} is not in the library, which cannot make one: insert a cartridge with that barcode")]
    NotMade {
        /// The cartridge asked for.
        volser: Volser,
    },
    /// Drive or medium: see there.
    #[error(transparent)]
    Drive(#[from] DriveError),
    /// Host: the directory of a virtual library, or the system call below a real changer.
    #[error("{what}")]
    Host {
        /// What was done to what.
        what: String,
        /// The cause.
        #[source]
        source: std::io::Error,
    },
}
