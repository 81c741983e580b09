//! Drives and changers: one small trait each, their kinds, and the wraps that pace, break or watch them.
//!
//! A [`Drive`] knows blocks, filemarks, position, the medium in it and a key slot; it knows nothing of labels, objects
//! or jobs. Every kind passes the same conformance suite. A [`Changer`] brings cartridges to drives and back.
//!
//! ```
//! use capstan_tape::{CartridgeSpec, Changer, Drive, Flush, KeySlotKind, Library, ReadOutcome, VirtualLibrary};
//! let directory = tempfile::tempdir()?;
//! let mut library = VirtualLibrary::open(directory.path(), 1)?;
//! library.create_cartridge(&CartridgeSpec {
//!     volser: "A00001".parse()?,
//!     capacity_bytes: 1 << 20,
//!     early_warning_bytes: 64 << 10,
//!     generation: "virtual".to_owned(),
//! })?;
//!
//! let mut drive = library.drive(0, KeySlotKind::Missing)?;
//! library.load(&"A00001".parse()?, 0)?;
//! drive.load()?;
//! drive.write_block(b"first")?;
//! drive.write_filemarks(1, Flush::Synchronous)?;
//!
//! drive.locate(0)?;
//! let mut block = [0; 64];
//! assert_eq!(drive.read_block(&mut block)?, ReadOutcome::Block(5));
//! assert_eq!(drive.read_block(&mut block)?, ReadOutcome::Filemark);
//! assert_eq!(drive.read_block(&mut block)?, ReadOutcome::EndOfData);
//! drive.unload()?;
//! library.unload(0)?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

pub mod barcode;
mod cartridge;
mod changer;
mod clock;
pub mod conformance;
mod drive;
mod error;
pub mod exercise;
mod faulty;
pub mod hardware;
mod health;
mod keyed;
mod library;
pub mod linux;
mod lock;
pub mod model;
mod needs;
mod null;
mod paced;
pub mod scsi;

pub use cartridge::{CartridgeDrive, CartridgeSpec, KeySlotKind, Tab};
pub use changer::{
    Changer, ChangerError, ChangerRequest, DriveDescription, Element, ElementAddress, Finding, FolderRoom, Library,
};
pub use clock::{MonotonicClock, PaceClock};
pub use drive::{
    BlockLimits, Drive, DriveCare, DriveIdentity, DriveKey, EncryptionState, Flush, Medium, Position, ReadOutcome,
    Rewritability, VolumeDescription, WriteOutcome,
};
pub use error::{Blame, DriveError, UnfitDrive, with_causes, without_error_numbers};
pub use faulty::{Draw, Fault, FaultyDrive, Next};
pub use health::{AlertDemand, Cleaning, DriveStatistics, TapeAlert, VolumeStatistics};
pub use keyed::Keyed;
pub use library::{FolderRules, VirtualLibrary};
pub use needs::{DriveNeeds, WriteFit};
pub use null::{NullDrive, Written};
pub use paced::{PaceMeter, Paced};
