//! What could not be read, and where it stands.

use std::fmt;

use capstan_format::{ObjectId, Volser, VolumeId};
use serde::{Deserialize, Serialize};

use crate::read::VolumePlace;

/// Most ranges of bad blocks that are kept; beyond that the last one of the volume grows over what is between.
const BAD_RANGES_MAX: usize = 10_000;

/// A block, or a run of blocks, that could not be read from one copy.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Damage {
    /// The volume.
    pub volser: Volser,
    /// The block; `None` where the whole volume could not be mounted.
    pub lbn: Option<u64>,
    /// The object it belongs to.
    pub object: ObjectId,
    /// The connection.
    pub connection: u16,
    /// Offset of the block in the stream.
    pub offset: u64,
    /// What was wrong.
    pub reason: String,
    /// Whether the medium is at fault. A key that is not there, or a drive that does not answer, says nothing of what
    /// is written.
    pub of_medium: bool,
}

/// Bytes of a stream that no copy gives: the source of the error of its reader, who passes over them if they are
/// consumed.
#[derive(Debug, thiserror::Error)]
#[error("{reason}")]
pub(crate) struct MissingBytes {
    /// How many, from where the reader stands.
    pub(crate) len: u64,
    /// Why.
    pub(crate) reason: std::sync::Arc<str>,
}

/// Consecutive blocks of a volume that are written badly, or not at all.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct BadBlocks {
    /// The volume.
    pub volser: Volser,
    /// Its life.
    pub volume: VolumeId,
    /// The first.
    pub first_lbn: u64,
    /// How many.
    pub blocks: u64,
    /// What is wrong with the first.
    pub reason: String,
}

/// A member that could not be given back as it was.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FailedMember {
    /// Index of its stream.
    pub stream: usize,
    /// Where it begins in the stream.
    pub offset: u64,
    /// What is wrong.
    pub reason: String,
    /// Whether it was written all the same: its content is not what it was.
    #[serde(default)]
    pub is_written: bool,
}

/// Adds a block to ranges of bad blocks, in bounded room and leaving none out.
pub fn add_bad_block(bad: &mut Vec<BadBlocks>, place: &VolumePlace, lbn: u64, reason: &str) {
    let full = bad.len() >= BAD_RANGES_MAX;
    if let Some(last) = bad.iter_mut().rev().find(|last| last.volser == place.volser && last.volume == place.volume) {
        let end = last.first_lbn + last.blocks;
        if (last.first_lbn..end).contains(&lbn) {
            return;
        }
        if lbn == end || full && lbn > end {
            last.blocks = lbn + 1 - last.first_lbn;
            return;
        }
        if full && lbn < last.first_lbn {
            (last.first_lbn, last.blocks) = (lbn, end - lbn);
            return;
        }
    }
    let (volser, volume) = (place.volser.clone(), place.volume);
    bad.push(BadBlocks { volser, volume, first_lbn: lbn, blocks: 1, reason: reason.to_owned() });
}

impl fmt::Display for Damage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.lbn {
            Some(_) => f.write_str(&self.reason),
            None => write!(f, "volume {} cannot be mounted: {}", self.volser, self.reason),
        }
    }
}
