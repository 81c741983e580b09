//! Drives and changers: one small trait each, their kinds, and the wraps that pace, break or watch them.
//!
//! A [`Drive`] knows blocks, filemarks, position, the medium in it and a key slot; it knows nothing of labels, objects or
//! jobs. Every kind passes the same conformance suite.

mod cartridge;
mod changer;
pub mod conformance;
mod drive;
mod error;
mod faulty;
mod library;
mod lock;
mod null;
pub mod sense;

pub use cartridge::{CartridgeDrive, CartridgeSpec, KeySlotKind, Tab};
pub use changer::{Changer, ChangerError, Element, ElementAddress};
pub use drive::{
    BlockLimits, Drive, DriveIdentity, DriveKey, EncryptionState, Flush, Medium, Position, ReadOutcome, WriteOutcome,
};
pub use error::DriveError;
pub use faulty::{Fault, Faulty};
pub use library::VirtualLibrary;
pub use null::{NullDrive, Written};
