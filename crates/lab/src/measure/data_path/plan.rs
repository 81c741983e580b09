//! What a run of the data path is to do, what came of it, and why it failed.

use std::io;
use std::path::{Path, PathBuf};

use capstan_format::{Algorithm, BLOCK_HEADER_LEN};
use capstan_mover::{Bottleneck, MoverError};
use capstan_tape::model::DriveModel;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::super::source::{self, Cache};
use super::super::{SECONDS, SLOW_MB_PER_S, Spread, processors};

/// How many times as long as was asked a run may last, until a slow source goes steadily.
pub const LONGER_MAX: f64 = 10.0;

/// Seconds after which a backup makes a checkpoint by default: `data.checkpoint_seconds`.
pub const CHECKPOINT_SECONDS: u64 = 60;

/// A source that is slower than it is: for trying what a slow one does.
#[derive(Debug, Clone, Copy, PartialEq, Default, JsonSchema, Serialize, Deserialize)]
pub struct SlowSource {
    /// All connections together get no more than this, MB/s.
    pub mb_per_s: Option<f64>,
    /// Each connection gets no more than this, MB/s.
    pub connection_mb_per_s: Option<f64>,
}

/// Where blocks go.
#[derive(Debug, Clone, PartialEq)]
pub enum DataPathTarget {
    /// Nowhere.
    Null,
    /// To new virtual cartridges below a folder.
    Virtual {
        /// The folder.
        folder: PathBuf,
        /// Their cipher.
        encryption: Option<Algorithm>,
        /// Whose time the drives take.
        pace: Option<Box<DriveModel>>,
    },
}

/// One run of the data path.
#[derive(Debug, Clone, PartialEq)]
pub struct DataPath {
    /// The tree that is read.
    pub source: PathBuf,
    /// Where it is to be found; direct reads are not the data path's.
    pub cache: Cache,
    /// Streams that read at the same time.
    pub connections: u32,
    /// Payload bytes of a block.
    pub block_len: usize,
    /// Bytes of the block pool.
    pub pool_bytes: u64,
    /// zstd level; 0 for none.
    pub compression_level: i32,
    /// Copies that are written at once.
    pub copies: u32,
    /// A checkpoint after so many bytes ...
    pub checkpoint_bytes: u64,
    /// ... or so many seconds.
    pub checkpoint_seconds: u64,
    /// Where blocks go.
    pub target: DataPathTarget,
    /// Seconds after which no more is read, if it goes steadily by then.
    pub seconds: f64,
    /// Seconds after which no more is read in any case, if that is more: a slow source takes longer to show what it
    /// gives.
    pub seconds_max: f64,
    /// How slow the source is made.
    pub slow: SlowSource,
    /// How far a drive that takes a model's time compresses what it gets.
    pub drive_ratio: f64,
}

/// What came of a run.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct DataPathRun {
    /// MB of content that were read.
    pub mb: f64,
    /// MB of content in the blocks that were packed. What a connection read into a block that was not full when the run
    /// ended is not among them.
    pub packed_mb: f64,
    /// MB written to the first copy.
    pub stored_mb: f64,
    /// Files read.
    pub files: u64,
    /// Whether that was all of the source.
    pub whole: bool,
    /// Paths that could not be read.
    pub problems: u64,
    /// Seconds until all of it was on the medium.
    pub seconds: f64,
    /// MB/s of content while it went steadily, least, mean and most of two looks at it; of a run that read the whole
    /// source, what it gave from its beginning to its last flush.
    pub steady_mb_per_s: Spread,
    /// Whether it went steadily before no more was to be read.
    pub settled: bool,
    /// Seconds of processors.
    pub cpu_s: f64,
    /// What the meters of the data path name.
    pub bottleneck: Bottleneck,
    /// Times that the tape went back, if the drive was paced.
    pub backhitches: Option<u64>,
}

impl DataPathRun {
    /// MB/s, to the last flush.
    pub fn mb_per_s(&self) -> f64 {
        self.mb / self.seconds
    }

    /// Bytes of content for each byte stored. What was read and not packed counts for neither.
    pub fn ratio(&self) -> f64 {
        self.packed_mb / self.stored_mb
    }
}

/// Why a run failed.
#[derive(Debug, thiserror::Error)]
pub enum DataPathError {
    /// The source.
    #[error(transparent)]
    Source(#[from] capstan_mover::SourceError),
    /// The path, or its drives.
    #[error(transparent)]
    Mover(#[from] MoverError),
    /// The folder for cartridges.
    #[error("cannot make a folder below {}: {source}", path.display())]
    Folder {
        /// The folder.
        path: PathBuf,
        /// Why not.
        source: io::Error,
    },
    /// A number that cannot be.
    #[error("{what}")]
    Option {
        /// What is wrong.
        what: &'static str,
    },
    /// The source cannot be read.
    #[error("cannot read {}: {source}", path.display())]
    Unreadable {
        /// The source.
        path: PathBuf,
        /// Why not.
        source: io::Error,
    },
    /// The source cannot be made cold.
    #[error(transparent)]
    Cold(source::SourceRateError),
    /// There was nothing to read, or no block of it was full when the run ended.
    #[error(
        "{} holds nothing to read, or a run is too short to fill a block: name another source, or read for longer (--seconds)",
        path.display()
    )]
    Empty {
        /// The source.
        path: PathBuf,
    },
    /// It was stopped.
    #[error("stopped; what was written is removed")]
    Stopped,
}

/// Whether a run can be done so.
pub(in crate::measure) fn check(run: &DataPath) -> Result<(), DataPathError> {
    let option = |what| Err(DataPathError::Option { what });
    if !(1..=256).contains(&run.connections) {
        return option("a source is read over 1 to 256 connections");
    }
    if !(4096 - BLOCK_HEADER_LEN..=(2 << 20) - BLOCK_HEADER_LEN).contains(&run.block_len) {
        return option("blocks are of 4 to 2048 KiB with their header");
    }
    if !(1..=4).contains(&run.copies) {
        return option("there are 1 to 4 copies");
    }
    if run.checkpoint_bytes == 0 || run.checkpoint_seconds == 0 {
        return option("a checkpoint comes after more than nothing");
    }
    if !SECONDS.contains(&run.seconds) || !(0.0..=*SECONDS.end()).contains(&run.seconds_max) {
        return option("a run lasts 0.05 s to a day");
    }
    let rates = [run.slow.mb_per_s, run.slow.connection_mb_per_s];
    if rates.into_iter().flatten().any(|rate| !SLOW_MB_PER_S.contains(&rate)) {
        return option("a slow source gives 0.001 to 1000000 MB/s");
    }
    Ok(())
}

/// A run to nowhere, as a backup would have it by default.
pub fn null_run(source: &Path) -> DataPath {
    DataPath {
        source: source.to_owned(),
        cache: Cache::Cold,
        connections: processors().min(8),
        block_len: 512 << 10,
        pool_bytes: 128 << 20,
        compression_level: 0,
        copies: 1,
        checkpoint_bytes: 4096 << 20,
        checkpoint_seconds: CHECKPOINT_SECONDS,
        target: DataPathTarget::Null,
        seconds: 5.0,
        seconds_max: 0.0,
        slow: SlowSource::default(),
        drive_ratio: 1.0,
    }
}
