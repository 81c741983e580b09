//! Drives and changers: one small trait each, their kinds, and the wraps that pace, break or watch them.
//!
//! A [`Drive`] knows blocks, filemarks, position, the medium in it and a key slot; it knows nothing of labels, objects or
//! jobs. Every kind passes the same conformance suite.

mod drive;
mod error;

pub use drive::{
    BlockLimits, Drive, DriveIdentity, DriveKey, EncryptionState, Flush, Medium, Position, ReadOutcome, WriteOutcome,
};
pub use error::DriveError;
