//! A setting: everything about a backup that can be chosen.

use capstan_format::BLOCK_HEADER_LEN;
use capstan_tape::model::DriveModel;
use schemars::JsonSchema;
use serde::Serialize;

/// What `data.block_kib` may be at least and at most (`director/src/config.rs`), in bytes.
pub(super) const BLOCK_LEN: std::ops::RangeInclusive<usize> = 4 << 10..=2000 << 10;

/// What is written to.
#[derive(Debug, Clone, PartialEq)]
pub enum TapeDrive {
    /// Virtual cartridges on a disk, as they were measured.
    Virtual,
    /// A drive, by its model.
    Model(Box<DriveModel>),
}

impl TapeDrive {
    /// Payload bytes of the longest block that may be set for it: a drive may write longer ones than capstan.toml
    /// takes.
    pub fn block_len_max(&self) -> usize {
        match self {
            Self::Virtual => *BLOCK_LEN.end(),
            Self::Model(model) => {
                let longest = (model.block_len_max.value as usize).saturating_sub(BLOCK_HEADER_LEN);
                longest.clamp(1, *BLOCK_LEN.end())
            }
        }
    }
}

/// The way to the drive.
#[derive(Debug, Clone, Copy, PartialEq, JsonSchema, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Route {
    /// At once.
    Direct,
    /// To a disk first, in depots, and from each depot to the drive when it is full.
    Staged {
        /// MB of a depot, as they stand on the disk.
        depot_mb: f64,
    },
}

/// How a backup is done.
#[derive(Debug, Clone, PartialEq)]
pub struct Setting {
    /// Streams that read at the same time.
    pub connections: u32,
    /// Payload bytes of a block.
    pub block_len: usize,
    /// Bytes of the block pool.
    pub pool_bytes: u64,
    /// A checkpoint after so many bytes ...
    pub checkpoint_bytes: u64,
    /// ... or so many seconds.
    pub checkpoint_seconds: u64,
    /// zstd level; 0 for none.
    pub compression_level: i32,
    /// Copies that are written at once.
    pub copies: u32,
    /// The way to the drive.
    pub route: Route,
    /// The drive.
    pub drive: TapeDrive,
}
