//! The data path itself: a tree through connections, pax, compression and interleaving to drives, as a backup has it,
//! without a catalog. What is written is thrown away.
//!
//! To a null drive it says what the path gives and what it costs (`capstan lab null`); to virtual drives, paced or not,
//! it tries what was predicted.

mod host;
mod plan;
mod rates;
mod slow;

use std::fs;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use capstan_format::{BLOCK_HEADER_LEN, ObjectId, ObjectKind, ObjectRecord, ObjectState, SessionRecord};
use capstan_mover::{
    CheckpointBounds, CopyHost, ExtentBounds, Meters, MountedDrives, PackOptions, Progress, Session, SessionOptions,
    TreeOptions, TreeSource,
};
use capstan_tape::PaceMeter;

pub(super) use plan::check;
pub use plan::{
    CHECKPOINT_SECONDS, DataPath, DataPathError, DataPathRun, DataPathTarget, LONGER_MAX, SlowSource, null_run,
};
pub use rates::{PathRate, PathRates, measure_path};

use super::course::Limits;
use super::source::{SourceRateError, make_tree_cold};
use super::{Scratch, Spread, processor_s, processors};
pub(crate) use host::throwaway_key;
use host::{Host, Kept};
use slow::{Count, Slowed};

/// More than a run writes: a virtual cartridge takes no more than what is on it.
const CAPACITY_BYTES: u64 = 1 << 44;

/// Entry bytes after which a checkpoint is due, as a backup has it (`director/src/limits.rs`).
const ENTRY_BYTES_MAX: usize = 8 << 20;

fn now_ns() -> i64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_nanos() as i64)
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
            every: Duration::from_secs(run.checkpoint_seconds),
            entry_bytes: ENTRY_BYTES_MAX,
        },
        ended_within: None,
        mounts_for_blocks: false,
        drive_sets: 1,
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
        is_locked: false,
        consolidates: None,
        tags: Vec::new(),
    }
}

/// Runs the data path once. `stop` ends it from outside.
///
/// # Errors
/// [`DataPathError::Option`] if a number cannot be; [`DataPathError::Unreadable`] if the source cannot be read;
/// [`DataPathError::Folder`] if there is no place for cartridges; else the source or the mover failed, or it was
/// stopped.
pub fn run_data_path(run: &DataPath, stop: &AtomicBool) -> Result<DataPathRun, DataPathError> {
    check(run)?;
    let scratch = match &run.target {
        DataPathTarget::Null => None,
        DataPathTarget::Virtual { folder, .. } => {
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
pub(crate) fn writer(run: &DataPath, folder: &Path, copy: u32, drives: &Arc<MountedDrives>) -> Box<dyn CopyHost> {
    Box::new(host_of(run, folder, copy, drives, &Arc::default(), None))
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
    drives: &Arc<MountedDrives>,
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
        drives: Arc::clone(drives),
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
    make_tree_cold(run.cache, &run.source, stop).map_err(|error| match error {
        SourceRateError::Stopped => DataPathError::Stopped,
        error => DataPathError::Cold(error),
    })?;
    let (meter, drives) = (Arc::default(), Arc::new(MountedDrives::new()));
    let host = |copy| -> Box<dyn CopyHost> { Box::new(host_of(run, scratch, copy, &drives, &meter, kept)) };
    let hosts = (1..=run.copies).map(host).collect();
    let (began, cpu) = (Instant::now(), processor_s());
    let enough = Arc::new(AtomicBool::new(false));
    let session = Session::start(&session_options(run), &session_record(), &drives, hosts, Arc::clone(&enough))?;
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
    for copy in outcome.writers {
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
    let (packed, stored) = (count(&meters.plain_bytes), count(&meters.stored_bytes));
    if progress.bytes() == 0 || stored == 0 {
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
        packed_mb: packed as f64 * of_content / 1e6,
        stored_mb: stored as f64 / 1e6,
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
    session.intake().begin_object(object)?;
    let began = Instant::now();
    let together = Mutex::new(began);
    let connection = |number| Slowed {
        connection: session.intake().connection(id, number),
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
    Ok(session.intake().end_object(id, now_ns())?)
}

#[cfg(test)]
mod tests;
