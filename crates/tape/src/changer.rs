//! The changer trait: what a library's robot promises.
//!
//! It follows SCSI media changer commands (SMC-3): elements with addresses, of which slots, drives and import/export
//! elements matter here. A changer moves cartridges and knows nothing of what is on them.

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use capstan_format::Volser;
use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::scsi::TransportError;
use crate::scsi::sense::Sense;
use crate::{CartridgeSpec, Drive, DriveError, UnfitDrive};

/// Where a cartridge can be.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum ElementAddress {
    /// A storage slot, counted from 0.
    Slot(u32),
    /// A drive, counted from 0.
    Drive(u32),
    /// An element of the mail slot, counted from 0.
    ImportExport(u32),
}

impl fmt::Display for ElementAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Slot(number) => write!(f, "slot {number}"),
            Self::Drive(number) => write!(f, "drive {number}"),
            Self::ImportExport(number) => write!(f, "mail slot {number}"),
        }
    }
}

/// One element and the cartridge in it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Element {
    /// Where it is.
    pub address: ElementAddress,
    /// The barcode of the cartridge in it; none if it is empty.
    pub volser: Option<Volser>,
}

/// Something in the library that a person has to put right.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Finding {
    /// A cartridge whose barcode cannot be read.
    NoBarcode {
        /// Where it is.
        at: ElementAddress,
    },
    /// A cartridge whose barcode is no volser.
    NoVolser {
        /// Where it is.
        at: ElementAddress,
        /// Its barcode.
        barcode: String,
    },
    /// Two cartridges of one barcode.
    Duplicate {
        /// The barcode.
        volser: Volser,
        /// Where one is.
        one: ElementAddress,
        /// Where the other is.
        other: ElementAddress,
    },
    /// An element that the library says has something wrong with it.
    Exception {
        /// Which.
        at: ElementAddress,
        /// Additional sense code and qualifier.
        codes: (u8, u8),
    },
    /// A folder of a virtual library that cannot be used: its cartridges are not in the library.
    FolderAway {
        /// The folder.
        folder: String,
        /// Why.
        reason: String,
    },
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoBarcode { at } => {
                write!(f, "the cartridge in {at} has no barcode that can be read: label it, or clean the reader")
            }
            Self::NoVolser { at, barcode } => write!(
                f,
                "the cartridge in {at} has barcode {barcode}: relabel it with up to 8 capital letters and digits"
            ),
            Self::Duplicate { volser, one, other } => {
                write!(f, "volume {volser} is in {one} and in {other}: take one out and give it another barcode")
            }
            Self::Exception { at, codes: (code, qualifier) } => {
                write!(f, "the library reports {code:02X}/{qualifier:02X} for {at}: look at it")
            }
            Self::FolderAway { folder, reason } => write!(f, "folder {folder} cannot be used: {reason}"),
        }
    }
}

/// A folder of a virtual library, and what room is there.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FolderRoom {
    /// The folder.
    pub folder: String,
    /// Which file system it is on, at the host that has it: folders of one share its room.
    pub disk: u64,
    /// Bytes of its file system that are taken, or may be taken by whoever runs the library.
    pub total_bytes: u64,
    /// Bytes of it that are free.
    pub free_bytes: u64,
    /// Bytes that must be free for a cartridge to be begun.
    pub begins_from_bytes: u64,
    /// Bytes that cartridges which hold nothing any more should give back.
    pub wanted_bytes: u64,
    /// The cartridges in it.
    pub volumes: Vec<Volser>,
}

impl FolderRoom {
    /// Whether a cartridge may be begun there.
    pub fn has_room(&self) -> bool {
        self.has_room_with(0)
    }

    /// The same once so many bytes more are free.
    pub fn has_room_with(&self, given_back: u64) -> bool {
        self.free_bytes.saturating_add(given_back) >= self.begins_from_bytes
    }

    /// How much of it is taken, in percent.
    pub fn percent_taken(&self) -> u64 {
        let taken = self.total_bytes.saturating_sub(self.free_bytes);
        taken.saturating_mul(100).checked_div(self.total_bytes).unwrap_or(100)
    }
}

/// A library's robot.
pub trait Changer: Send {
    /// Every element, in order of address.
    ///
    /// # Errors
    /// The library is not ready, is out of reach, is reserved by another host, or reports what cannot be.
    fn inventory(&mut self) -> Result<Vec<Element>, ChangerError>;

    /// Brings a cartridge from its slot into a drive; nothing is done if it is there already.
    /// [`ChangerError::CleaningCartridge`] if it cleans.
    ///
    /// # Errors
    /// [`ChangerError::UnknownVolume`], [`ChangerError::DriveFull`], [`ChangerError::InOtherDrive`],
    /// [`ChangerError::Foreign`] and [`ChangerError::CleaningCartridge`] if there is nothing to move, or it must not
    /// be; else the library cannot be asked or does not move it. After [`ChangerError::OutOfReach`] the move may still
    /// be under way.
    fn load(&mut self, volser: &Volser, drive: u32) -> Result<(), ChangerError>;

    /// Brings the cartridge in a drive back to its slot. The drive must have unloaded it.
    ///
    /// # Errors
    /// [`ChangerError::DriveEmpty`] if nothing is in the drive; [`ChangerError::NoRoom`] if no slot is free; else as
    /// [`Changer::load`].
    fn unload(&mut self, drive: u32) -> Result<(), ChangerError>;

    /// Does what a person asks for, and no job.
    ///
    /// # Errors
    /// [`ChangerError::ElementEmpty`] and [`ChangerError::NoRoom`] where there is nothing to move or no place for it;
    /// else as [`Changer::load`].
    fn carry_out_request(&mut self, request: &ChangerRequest) -> Result<(), ChangerError>;

    /// What the last inventory met that a person has to put right; nothing of that kind in a library without barcodes
    /// to misread.
    fn findings(&self) -> Vec<Finding> {
        Vec::new()
    }
}

/// What a robot does for a person.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum ChangerRequest {
    /// Brings a cartridge into a drive, in exchange for the one there, which must have been unloaded.
    Exchange {
        /// The cartridge to be brought.
        volser: Volser,
        /// The drive.
        drive: u32,
    },
    /// Brings what is in this mail slot to a free slot.
    Import {
        /// The mail slot.
        mail_slot: u32,
    },
    /// Brings a cartridge to a free mail slot, to be taken out.
    Export {
        /// The cartridge.
        volser: Volser,
    },
    /// Brings a cleaning cartridge into a drive, which cleans itself then.
    Clean {
        /// The cleaning cartridge.
        volser: Volser,
        /// The drive.
        drive: u32,
    },
    /// Looks at every element anew: minutes.
    Initialize,
}

/// A drive of a library, for people.
#[derive(Debug, Default, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DriveDescription {
    /// `virtual`, or maker and product; none if this host does not find the drive.
    pub model: Option<String>,
    /// The model that says what it can do ([`crate::model::built_in`]), where that is known: `LTO-9`.
    #[serde(default)]
    pub class: Option<String>,
    /// Serial number, where it is known.
    pub serial: Option<String>,
    /// The node that it is used by, if it is a device.
    pub path: Option<PathBuf>,
}

/// A library: a robot, and the drives that it serves.
///
/// Who mounts takes a drive into use first and has a cartridge brought to it then: one in a drive that is nobody's may
/// be taken away.
pub trait Library: Changer {
    /// How many drives there are.
    ///
    /// # Errors
    /// The library cannot be asked.
    fn drives(&mut self) -> Result<u32, ChangerError>;

    /// What the drives are, by their number.
    ///
    /// # Errors
    /// The library cannot be asked, or this host cannot list its devices.
    fn describe_drives(&mut self) -> Result<Vec<DriveDescription>, ChangerError>;

    /// Takes a drive into use; nobody else has it until the value is dropped. [`ChangerError::InUse`] if somebody has
    /// it.
    ///
    /// # Errors
    /// [`ChangerError::InUse`] if somebody has the drive; [`ChangerError::UnknownDrive`] if there is none of this
    /// number; else its node cannot be opened or the drive does not answer.
    fn take_drive(&mut self, drive: u32) -> Result<Box<dyn Drive>, ChangerError>;

    /// Puts a new blank cartridge into a slot, in a library that can make some.
    ///
    /// # Errors
    /// [`ChangerError::NotMade`] in a library of hardware; [`ChangerError::VolserTaken`] if there is one of this
    /// barcode; else the file cannot be written.
    fn create_cartridge(&mut self, spec: &CartridgeSpec) -> Result<(), ChangerError>;

    /// The room in each folder of a virtual library that has rules for it; else nothing.
    ///
    /// # Errors
    /// Its directory cannot be looked at.
    fn rooms(&mut self) -> Result<Vec<FolderRoom>, ChangerError> {
        Ok(Vec::new())
    }
}

/// Why a cartridge was not moved.
#[derive(Debug, Error)]
pub enum ChangerError {
    /// Operator: two cartridges of one barcode.
    #[error(
        "a cartridge with barcode {volser} is in a slot and another is in the mail slot, and nothing was moved: take one of them out, and look which of \
         the two the catalog knows (`capstan verify {volser}`)"
    )]
    BarcodeTwice {
        /// The barcode.
        volser: Volser,
    },
    /// Caller: no such cartridge.
    #[error("volume {volser} is not in the library: insert it, or choose another volume")]
    UnknownVolume {
        /// The cartridge asked for.
        volser: Volser,
    },
    /// Operator: no drive of the library can be used for it as it is wanted. Nothing was moved.
    #[error("volume {volser} was not moved: {source}")]
    Foreign {
        /// The cartridge asked for.
        volser: Volser,
        /// What one of the drives cannot.
        #[source]
        source: Box<UnfitDrive>,
    },
    /// Caller: it is no volume, and each load takes one of its uses.
    #[error(
        "{volser} is a cleaning cartridge, which no job loads: `capstan library load {volser} DRIVE` cleans a drive with it"
    )]
    CleaningCartridge {
        /// Its barcode.
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
    /// Operator: every folder of a virtual library has less free than it is to have.
    #[error(
        "no cartridge was made for volume {volser}: all folders of the library have less room than is to stay free \
         (`library.free_mib`). Make room, or give the library another folder (`library.folders`)"
    )]
    FoldersFull {
        /// The cartridge asked for.
        volser: Volser,
    },
    /// Caller: only a virtual library makes cartridges.
    #[error("volume {volser} is not in the library, which cannot make one: insert a cartridge with that barcode")]
    NotMade {
        /// The cartridge asked for.
        volser: Volser,
    },
    /// Operator: two cartridges with one barcode, of which neither can be told from the other.
    #[error("volume {volser} is in the library twice, in {one} and {other}: take one out and give it another barcode")]
    DuplicateVolume {
        /// The barcode.
        volser: Volser,
        /// Where one is.
        one: ElementAddress,
        /// Where the other is.
        other: ElementAddress,
    },
    /// Operator: no room for the cartridge.
    #[error("no free {kind} for volume {volser}: take cartridges out of the library first")]
    NoRoom {
        /// Slots or mail slots.
        kind: &'static str,
        /// The cartridge, or where it is if its barcode cannot be read.
        volser: String,
    },
    /// Caller: there is no cartridge in that element.
    #[error("{element} is empty: take the inventory again")]
    ElementEmpty {
        /// The element.
        element: ElementAddress,
    },
    /// Operator: doors, power, a robot that hangs (2/04/xx, BUSY).
    #[error("library {library} is not ready after {} s ({reason}): close its doors and look at its panel", .waited.as_secs())]
    NotReady {
        /// The library.
        library: String,
        /// What it said last.
        reason: String,
        /// How long it was waited for.
        waited: Duration,
    },
    /// Host: another host has reserved the library (RESERVATION CONFLICT, 6/2A/03 to 05).
    #[error("another host has reserved library {library}: find out who shares it")]
    Reserved {
        /// The library.
        library: String,
    },
    /// Host or cable: nothing came back. A move may still be under way.
    #[error(
        "library {library} is out of reach: look at its power and cable, then take the inventory before anything is moved"
    )]
    OutOfReach {
        /// The library.
        library: String,
        /// What the host says.
        #[source]
        source: TransportError,
    },
    /// Library: it does not do what it was asked.
    #[error("library {library} refused {command}: {sense}; look at its panel, and take the inventory again")]
    Refused {
        /// The library.
        library: String,
        /// The command.
        command: &'static str,
        /// What it said.
        sense: Sense,
    },
    /// Library: what it says cannot be.
    #[error("library {library} is unusable: {reason}")]
    Unusable {
        /// The library.
        library: String,
        /// Why, and what to do.
        reason: String,
    },
    /// Met by a mover in another process, in its words: nobody decides by more than what it says here.
    #[error("{text}")]
    Reported {
        /// The error and its causes.
        text: String,
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
