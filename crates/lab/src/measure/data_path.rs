//! The data path itself: a tree through connections, pax, compression and interleaving to drives, as a backup has it, without
//! a catalog. What is written is thrown away.
//!
//! To a null drive it says what the path gives and what it costs (`capstan lab null`); to virtual drives, paced or not, it tries
//! what was predicted.

mod host;
mod rates;
mod slow;

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use capstan_format::{Algorithm, BLOCK_HEADER_LEN, ObjectId, ObjectKind, ObjectRecord, ObjectState, SessionRecord};
use capstan_mover::{
    Bottleneck, CheckpointBounds, CopyHost, ExtentBounds, Meters, MoverError, PackOptions, Progress, Session,
    SessionOptions, TreeOptions, TreeSource,
};
use capstan_tape::PaceMeter;
use capstan_tape::model::DriveModel;
use serde::{Deserialize, Serialize};

pub use rates::{PathRate, PathRates, measure_path};

use super::course::Limits;
use super::source::{self, Cache, make_tree_cold};
use super::{SECONDS, SLOW_MB_PER_S, Scratch, Spread, processor_s, processors};
pub(crate) use host::throwaway_key;
use host::{Host, Kept};
use slow::{Count, Slowed};

/// More than a run writes: a virtual cartridge takes no more than what is on it.
const CAPACITY_BYTES: u64 = 1 << 44;

/// How many times as long as was asked a run may last, until a slow source goes steadily.
pub const LONGER_MAX: f64 = 10.0;

/// A source that is slower than it is: for trying what a slow one does.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
pub struct SlowSource {
    /// All connections together get no more than this, MB/s.
    pub mb_per_s: Option<f64>,
    /// Each connection gets no more than this, MB/s.
    pub connection_mb_per_s: Option<f64>,
}

/// Where blocks go.
#[derive(Debug, Clone, PartialEq)]
pub enum Target {
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
    /// A checkpoint after so many bytes.
    pub checkpoint_bytes: u64,
    /// Where blocks go.
    pub target: Target,
    /// Seconds after which no more is read, if it goes steadily by then.
    pub seconds: f64,
    /// Seconds after which no more is read in any case, if that is more: a slow source takes longer to show what it gives.
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
    /// MB/s of content while it went steadily, least, mean and most of two looks at it; of a run that read the whole source, what
    /// it gave from its beginning to its last flush.
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
    Cold(source::SourceError),
    /// There was nothing to read.
    #[error("{} holds nothing to read, or a run is too short to read it: name a source that does", path.display())]
    Empty {
        /// The source.
        path: PathBuf,
    },
    /// It was stopped.
    #[error("stopped; what was written is removed")]
    Stopped,
}

fn now_ns() -> i64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_nanos() as i64)
}

fn check(run: &DataPath) -> Result<(), DataPathError> {
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
    if !SECONDS.contains(&run.seconds) || !(0.0..=*SECONDS.end()).contains(&run.seconds_max) {
        return option("a run lasts 0.05 s to a day");
    }
    let rates = [run.slow.mb_per_s, run.slow.connection_mb_per_s];
    if rates.into_iter().flatten().any(|rate| !SLOW_MB_PER_S.contains(&rate)) {
        return option("a slow source gives 0.001 to 1000000 MB/s");
    }
    Ok(())
}

pub(crate) fn session_options(run: &DataPath) -> SessionOptions {
    SessionOptions {
        chunk_len: run.block_len,
        pool_bytes: run.pool_bytes,
        pack: if run.compression_level == 0 { PackOptions::Store } else { PackOptions::Zstd(run.compression_level) },
        // As a backup has it.
        pack_workers: (processors() as usize).saturating_sub(1).max(1),
        first_copy: 1,
        connections: run.connections as usize,
        extents: ExtentBounds { worthwhile: 4 << 20, longest: 256 << 20 },
        checkpoints: CheckpointBounds {
            bytes: run.checkpoint_bytes,
            every: Duration::from_secs(60),
            entry_bytes: 16 << 20,
        },
    }
}

pub(crate) fn object_record(run: &DataPath) -> ObjectRecord {
    ObjectRecord {
        object: ObjectId([1; 16]),
        source: run.source.as_os_str().as_encoded_bytes().to_vec(),
        client: "laboratory".to_owned(),
        policy: "laboratory".to_owned(),
        kind: ObjectKind::Tree,
        state: ObjectState::Open,
        base: None,
        copy: 1,
        chunk_len: run.block_len as u32,
        started_ns: now_ns(),
        ended_ns: 0,
        expires_ns: 0,
    }
}

/// Runs the data path once. `stop` ends it from outside.
pub fn run_data_path(run: &DataPath, stop: &AtomicBool) -> Result<DataPathRun, DataPathError> {
    check(run)?;
    let scratch = match &run.target {
        Target::Null => None,
        Target::Virtual { folder, .. } => {
            look_at(&run.source)?;
            let folder_of = |source| DataPathError::Folder { path: folder.clone(), source };
            Some(Scratch::below(folder).map_err(folder_of)?)
        }
    };
    let scratch = scratch.as_ref().map_or(Path::new(""), Scratch::path);
    run_within(run, scratch, None, stop)
}

/// Runs it once, and leaves the cartridges in a folder, with what a catalog would know of them.
pub(crate) fn run_and_keep(
    run: &DataPath,
    folder: &Path,
    stop: &AtomicBool,
) -> Result<(DataPathRun, Kept), DataPathError> {
    check(run)?;
    let kept = Arc::default();
    let done = run_within(run, folder, Some(&kept), stop)?;
    let mut kept = kept.lock().unwrap_or_else(PoisonError::into_inner);
    Ok((done, std::mem::take(&mut *kept)))
}

/// What writes a copy of a run to cartridges in a folder.
pub(crate) fn writer(run: &DataPath, folder: &Path, copy: u32) -> Box<dyn CopyHost> {
    Box::new(host_of(run, folder, copy, &Arc::default(), None))
}

/// Removes the cartridges of a copy.
pub(crate) fn remove_copy(folder: &Path, copy: u32) {
    let begins = host::copy_begins(copy);
    let entries = fs::read_dir(folder).into_iter().flatten().filter_map(Result::ok);
    for entry in entries.filter(|entry| entry.file_name().to_string_lossy().starts_with(&begins)) {
        // What is left goes with its folder.
        let _ = fs::remove_file(entry.path());
    }
}

fn host_of(
    run: &DataPath,
    scratch: &Path,
    copy: u32,
    meter: &Arc<Mutex<Option<PaceMeter>>>,
    kept: Option<&Arc<Mutex<Kept>>>,
) -> Host {
    Host {
        target: run.target.clone(),
        scratch: scratch.to_owned(),
        copy,
        block_len_max: (run.block_len + BLOCK_HEADER_LEN) as u32,
        drive_ratio: run.drive_ratio,
        mounts: 0,
        meter: Arc::clone(meter),
        kept: kept.map(Arc::clone),
    }
}

pub(crate) fn session_record() -> SessionRecord {
    SessionRecord { started_ns: now_ns(), host: "laboratory".to_owned(), software: "capstan lab".to_owned() }
}

/// Whether a source can be read at all, before anything is made.
fn look_at(source: &Path) -> Result<(), DataPathError> {
    let unreadable = |error| DataPathError::Unreadable { path: source.to_owned(), source: error };
    let metadata = fs::metadata(source).map_err(unreadable)?;
    if metadata.is_dir() {
        fs::read_dir(source).map_err(unreadable)?;
    }
    Ok(())
}

fn run_within(
    run: &DataPath,
    scratch: &Path,
    kept: Option<&Arc<Mutex<Kept>>>,
    stop: &AtomicBool,
) -> Result<DataPathRun, DataPathError> {
    look_at(&run.source)?;
    make_tree_cold(run.cache, &run.source).map_err(DataPathError::Cold)?;
    let meter = Arc::default();
    let hosts =
        (1..=run.copies).map(|copy| -> Box<dyn CopyHost> { Box::new(host_of(run, scratch, copy, &meter, kept)) });
    let (began, cpu) = (Instant::now(), processor_s());
    let enough = Arc::new(AtomicBool::new(false));
    let session = Session::start(&session_options(run), &session_record(), hosts.collect(), Arc::clone(&enough))?;
    let meters = session.meters();
    let progress = Progress::new();
    let (done, counted) = (AtomicBool::new(false), AtomicU64::new(0));
    let (read, course) = std::thread::scope(|scope| {
        let watch = scope.spawn(|| limits(run).watch(&counted, &done, &enough, stop));
        let read = feed(run, &session, &progress, &counted, &enough);
        done.store(true, Ordering::Relaxed);
        (read, watch.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
    });
    let outcome = session.finish();
    let seconds = began.elapsed().as_secs_f64();
    let cpu_s = processor_s() - cpu;
    if stop.load(Ordering::Relaxed) {
        return Err(DataPathError::Stopped);
    }
    // Why a copy failed says more than that its source was stopped by it.
    for copy in outcome.copies {
        copy.map_err(DataPathError::from)?;
    }
    let whole = match read {
        Ok(()) => true,
        Err(DataPathError::Source(capstan_mover::SourceError::Stopped(_))) => false,
        Err(error) => return Err(error),
    };
    let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
    // Content, as bare readers and people count it: no headers, no padding.
    let mb = progress.bytes() as f64 / 1e6;
    if progress.bytes() == 0 {
        return Err(DataPathError::Empty { path: run.source.clone() });
    }
    let of_content = progress.bytes() as f64 / count(&counted).max(1) as f64;
    let cut = if whole { None } else { course.steady() };
    let (steady_mb_per_s, settled) = match cut {
        None => (Spread::exactly(mb / seconds), true),
        Some(steady) => {
            let [second, third] = [steady.second, steady.third].map(|rate| rate * of_content / 1e6);
            let median = steady.rate() * of_content / 1e6;
            (
                Spread { low: second.min(third), median, high: second.max(third) },
                steady.agrees(limits(run).bytes_enough),
            )
        }
    };
    let meter: &Mutex<Option<PaceMeter>> = &meter;
    let meter = meter.lock().unwrap_or_else(PoisonError::into_inner);
    Ok(DataPathRun {
        mb,
        stored_mb: count(&meters.stored_bytes) as f64 / 1e6,
        files: progress.files(),
        whole,
        problems: progress.problems(),
        seconds,
        steady_mb_per_s,
        settled,
        cpu_s,
        bottleneck: Meters::bottleneck(&meters, (seconds * 1e9) as u64, u64::from(processors())),
        backhitches: meter.as_ref().map(|meter| meter.totals().backhitches),
    })
}

/// How long a run reads.
fn limits(run: &DataPath) -> Limits {
    let bytes_enough = 2 * u64::from(run.connections) * run.block_len as u64;
    Limits { seconds: run.seconds, seconds_max: run.seconds_max, bytes_enough }
}

fn feed(
    run: &DataPath,
    session: &Session,
    progress: &Progress,
    counted: &AtomicU64,
    enough: &AtomicBool,
) -> Result<(), DataPathError> {
    let object = object_record(run);
    let id = object.object;
    session.begin_object(object)?;
    let began = Instant::now();
    let together = Mutex::new(began);
    let connection = |number| Slowed {
        connection: session.connection(id, number),
        slow: run.slow,
        due: began,
        together: &together,
        count: Count::of(counted),
        enough,
    };
    let mut sinks: Vec<Slowed> = (0..run.connections as u16).map(connection).collect();
    let tree = TreeSource::new(std::slice::from_ref(&run.source), &TreeOptions::default())?;
    tree.run(&mut sinks, None, progress)?;
    for sink in sinks {
        sink.connection.finish().map_err(capstan_mover::SourceError::from)?;
    }
    Ok(session.end_object(id, run.connections as usize, now_ns())?)
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
        target: Target::Null,
        seconds: 5.0,
        seconds_max: 0.0,
        slow: SlowSource::default(),
        drive_ratio: 1.0,
    }
}

#[cfg(test)]
mod tests;
