//! The data path itself: a tree through connections, pax, compression and interleaving to drives, as a backup has it, without
//! a catalog. What is written is thrown away.
//!
//! To a null drive it says what the path gives and what it costs (`capstan lab null`); to virtual drives, paced or not, it tries
//! what was predicted.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use capstan_format::{
    Algorithm, BLOCK_HEADER_LEN, KeyTag, ObjectId, ObjectKind, ObjectRecord, ObjectState, SessionId, SessionRecord,
    Volser, VolumeHeader, VolumeId,
};
use capstan_mover::{
    Bottleneck, CheckpointBounds, Commit, Connection, CopyHost, ExtentBounds, FIRST_SESSION_LBN, HostError, Meters,
    Mounted, MoverError, PackOptions, Progress, Session, SessionOptions, Stopped, StreamSink, TreeOptions, TreeSource,
    VolumeEnd, write_label,
};
use capstan_tape::model::DriveModel;
use capstan_tape::{
    CartridgeDrive, CartridgeSpec, Drive, DriveKey, KeySlotKind, NullDrive, PaceMeter, Paced, WallClock,
};
use serde::{Deserialize, Serialize};

use super::source::{Cache, drop_caches_of_tree};
use super::{Scratch, Spread, device_of, processor_s, processors};

/// More than a run writes: a virtual cartridge takes no more than what is on it.
const CAPACITY_BYTES: u64 = 1 << 44;

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
    /// Seconds after which no more is read.
    pub seconds: f64,
    /// How slow the source is made.
    pub slow: SlowSource,
    /// How far a drive that takes a model's time compresses what it gets.
    pub drive_ratio: f64,
}

/// What came of a run.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct DataPathRun {
    /// MB of the streams.
    pub mb: f64,
    /// MB written to the first copy.
    pub stored_mb: f64,
    /// Files read.
    pub files: u64,
    /// Whether that was all of the source.
    pub whole: bool,
    /// Seconds while the source was read.
    pub reading_s: f64,
    /// Seconds until all of it was on the medium.
    pub seconds: f64,
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
    /// There was nothing to read.
    #[error("{} holds nothing to read: name a source that does", path.display())]
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

/// A connection that gets bytes no faster than it may.
struct Slowed<'a> {
    connection: Connection,
    slow: SlowSource,
    /// When this connection may have more.
    due: Instant,
    /// When any connection may have more.
    together: &'a Mutex<Instant>,
}

/// Time that a slow source may make up: a sleep is rarely as short as it should be. What it was held up for longer is lost to it, as to
/// any disk.
const MAKES_UP: Duration = Duration::from_millis(10);

/// When more may be had, after so many bytes at this rate.
fn due_after(due: Instant, len: usize, mb_per_s: Option<f64>) -> Instant {
    let Some(rate) = mb_per_s else { return due };
    let now = Instant::now();
    due.max(now.checked_sub(MAKES_UP).unwrap_or(now)) + Duration::from_secs_f64(len as f64 / 1e6 / rate)
}

impl StreamSink for Slowed<'_> {
    fn space(&mut self) -> Result<&mut [u8], Stopped> {
        let together = *self.together.lock().unwrap_or_else(PoisonError::into_inner);
        std::thread::sleep(self.due.max(together).saturating_duration_since(Instant::now()));
        self.connection.space()
    }

    fn advance(&mut self, len: usize) {
        self.due = due_after(self.due, len, self.slow.connection_mb_per_s);
        let mut together = self.together.lock().unwrap_or_else(PoisonError::into_inner);
        *together = due_after(*together, len, self.slow.mb_per_s);
        drop(together);
        self.connection.advance(len);
    }

    fn position(&self) -> u64 {
        self.connection.position()
    }

    fn connection(&self) -> u16 {
        self.connection.connection()
    }

    fn member(&mut self, entry: capstan_format::FileEntry) {
        self.connection.member(entry);
    }
}

/// Mounts drives of its own and records nothing.
struct Host {
    target: Target,
    scratch: PathBuf,
    copy: u32,
    block_len_max: u32,
    drive_ratio: f64,
    mounts: u32,
    meter: Arc<Mutex<Option<PaceMeter>>>,
}

impl Host {
    fn label(&mut self, drive: &mut dyn Drive, volser: &Volser) -> Result<(), HostError> {
        if let Target::Virtual { encryption: Some(algorithm), .. } = self.target {
            // What is written is thrown away, and with it whatever a key could protect.
            drive.set_key(Some(DriveKey { tag: KeyTag([1; 16]), algorithm, key: [2; 32] }))?;
        }
        let header = VolumeHeader {
            volume: VolumeId(1),
            volser: volser.clone(),
            labelled_ns: now_ns(),
            pool: "laboratory".to_owned(),
            block_len_max: self.block_len_max,
            recycled: 0,
        };
        Ok(write_label(drive, &header)?)
    }
}

impl CopyHost for Host {
    fn mount(&mut self) -> Result<Mounted, HostError> {
        self.mounts += 1;
        let volser = Volser::new(&format!("LAB{}{:02}", self.copy, self.mounts))?;
        let mut drive: Box<dyn Drive> = match &self.target {
            Target::Null => Box::new(NullDrive::new()),
            Target::Virtual { pace, .. } => {
                let path = self.scratch.join(format!("{volser}.tape"));
                CartridgeSpec {
                    volser: volser.clone(),
                    capacity_bytes: CAPACITY_BYTES,
                    early_warning_bytes: 256 << 20,
                    generation: "virtual".to_owned(),
                }
                .create(&path)?;
                let inner = CartridgeDrive::new("lab", path, KeySlotKind::Fitted);
                match pace {
                    None => Box::new(inner),
                    Some(model) => {
                        let paced = Paced::new(inner, (**model).clone(), WallClock::start());
                        let paced = paced.compressing(self.drive_ratio);
                        let mut meter = self.meter.lock().unwrap_or_else(PoisonError::into_inner);
                        meter.get_or_insert(paced.meter());
                        Box::new(paced)
                    }
                }
            }
        };
        drive.load()?;
        self.label(drive.as_mut(), &volser)?;
        let append_lbn = FIRST_SESSION_LBN;
        Ok(Mounted { drive, volser, volume: VolumeId(1), append_lbn, session: SessionId(0) })
    }

    fn committed(&mut self, _commit: &Commit) -> Result<(), HostError> {
        Ok(())
    }

    fn release(&mut self, mut drive: Box<dyn Drive>, _volser: &Volser, _end: VolumeEnd) {
        // It was flushed; whatever is wrong with it now is thrown away with it.
        let _ = drive.unload();
    }

    fn now_ns(&self) -> i64 {
        now_ns()
    }
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
    if !(run.seconds.is_finite() && run.seconds > 0.0) {
        return option("a run lasts longer than 0 s");
    }
    let rates = [run.slow.mb_per_s, run.slow.connection_mb_per_s];
    if rates.into_iter().flatten().any(|rate| !(rate.is_finite() && rate > 0.0)) {
        return option("a slow source gives more than 0 MB/s");
    }
    Ok(())
}

fn session_options(run: &DataPath) -> SessionOptions {
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

fn object_record(run: &DataPath) -> ObjectRecord {
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
    fs::metadata(&run.source).map_err(|_| DataPathError::Empty { path: run.source.clone() })?;
    let scratch = match &run.target {
        Target::Null => None,
        Target::Virtual { folder, .. } => {
            let folder_of = |source| DataPathError::Folder { path: folder.clone(), source };
            Some(Scratch::below(folder).map_err(folder_of)?)
        }
    };
    if run.cache == Cache::Cold {
        drop_caches_of_tree(&run.source);
    }
    let meter = Arc::default();
    let hosts = (1..=run.copies).map(|copy| -> Box<dyn CopyHost> {
        Box::new(Host {
            target: run.target.clone(),
            scratch: scratch.as_ref().map_or_else(PathBuf::new, |scratch| scratch.path().to_owned()),
            copy,
            block_len_max: (run.block_len + BLOCK_HEADER_LEN) as u32,
            drive_ratio: run.drive_ratio,
            mounts: 0,
            meter: Arc::clone(&meter),
        })
    });
    let record =
        SessionRecord { started_ns: now_ns(), host: "laboratory".to_owned(), software: "capstan lab".to_owned() };
    let (began, cpu) = (Instant::now(), processor_s());
    let enough = Arc::new(AtomicBool::new(false));
    let session = Session::start(&session_options(run), &record, hosts.collect(), Arc::clone(&enough))?;
    let meters = session.meters();
    let progress = Progress::new();
    let done = AtomicBool::new(false);
    let read = std::thread::scope(|scope| {
        scope.spawn(|| watch_the_clock(run.seconds, &done, &enough, stop));
        let read = feed(run, &session, &progress);
        done.store(true, Ordering::Relaxed);
        read
    });
    let reading_s = began.elapsed().as_secs_f64();
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
    let mb = count(&meters.plain_bytes) as f64 / 1e6;
    if progress.bytes() == 0 {
        return Err(DataPathError::Empty { path: run.source.clone() });
    }
    let meter: &Mutex<Option<PaceMeter>> = &meter;
    let meter = meter.lock().unwrap_or_else(PoisonError::into_inner);
    Ok(DataPathRun {
        mb,
        stored_mb: count(&meters.stored_bytes) as f64 / 1e6,
        files: progress.files(),
        whole,
        reading_s,
        seconds,
        cpu_s,
        bottleneck: Meters::bottleneck(&meters, (seconds * 1e9) as u64, u64::from(processors())),
        backhitches: meter.as_ref().map(|meter| meter.totals().backhitches),
    })
}

/// Says `enough` when the time is over, or when somebody stops it.
fn watch_the_clock(seconds: f64, done: &AtomicBool, enough: &AtomicBool, stop: &AtomicBool) {
    const LOOKS: Duration = Duration::from_millis(5);
    let until = Instant::now() + Duration::from_secs_f64(seconds);
    while !done.load(Ordering::Relaxed) {
        if Instant::now() >= until || stop.load(Ordering::Relaxed) {
            return enough.store(true, Ordering::Relaxed);
        }
        std::thread::sleep(LOOKS);
    }
}

fn feed(run: &DataPath, session: &Session, progress: &Progress) -> Result<(), DataPathError> {
    let object = object_record(run);
    let id = object.object;
    session.begin_object(object)?;
    let began = Instant::now();
    let together = Mutex::new(began);
    let connection =
        |number| Slowed { connection: session.connection(id, number), slow: run.slow, due: began, together: &together };
    let mut sinks: Vec<Slowed> = (0..run.connections as u16).map(connection).collect();
    let tree = TreeSource::new(std::slice::from_ref(&run.source), &TreeOptions::default())?;
    tree.run(&mut sinks, None, progress)?;
    for sink in sinks {
        sink.connection.finish().map_err(capstan_mover::SourceError::from)?;
    }
    Ok(session.end_object(id, run.connections as usize, now_ns())?)
}

/// What the path gave to nowhere, with so many connections and blocks of so many bytes.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PathRate {
    /// Streams that read at the same time.
    pub connections: u32,
    /// Payload bytes of a block.
    pub block_len: usize,
    /// zstd level; 0 for none.
    pub compression_level: i32,
    /// MB/s of the streams.
    pub mb_per_s: Spread,
    /// Seconds of processors for each MB.
    pub cpu_s_per_mb: f64,
    /// Bytes read for each byte stored.
    pub ratio: f64,
}

/// What the path gave of a source.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PathRates {
    /// The source.
    pub source: PathBuf,
    /// The device that it lies on; 0 if that is not known.
    #[serde(default)]
    pub device: u64,
    /// Where it was found.
    pub cache: Cache,
    /// Processors that there were.
    pub processors: u32,
    /// How slow the source was made.
    #[serde(default)]
    pub slow: SlowSource,
    /// MB and files of a run, and whether that was all of the source.
    pub mb: f64,
    /// Files.
    pub files: u64,
    /// Whether a run read all of it.
    pub whole: bool,
    /// In each way.
    pub rates: Vec<PathRate>,
}

/// Measures the data path to nowhere with each number of connections, block and level, in rounds; the rest is as `what` says. `tell`
/// hears of each way when it is done.
pub fn measure_path(
    what: &DataPath,
    each: &[(u32, usize, i32)],
    rounds: u32,
    stop: &AtomicBool,
    tell: &mut dyn FnMut(&PathRate),
) -> Result<PathRates, DataPathError> {
    if rounds == 0 {
        return Err(DataPathError::Option { what: "there is at least one round" });
    }
    let mut found = PathRates {
        source: what.source.clone(),
        device: device_of(&what.source),
        cache: what.cache,
        processors: processors(),
        slow: what.slow,
        mb: 0.0,
        files: 0,
        whole: false,
        rates: Vec::new(),
    };
    for &(connections, block_len, compression_level) in each {
        let what = DataPath { connections, block_len, compression_level, target: Target::Null, ..what.clone() };
        if what.cache == Cache::Warm && found.rates.is_empty() {
            run_data_path(&what, stop)?;
        }
        let runs: Result<Vec<_>, _> = (0..rounds).map(|_| run_data_path(&what, stop)).collect();
        let mut runs = runs?;
        runs.sort_by(|one, other| one.mb_per_s().total_cmp(&other.mb_per_s()));
        let Some(mb_per_s) = Spread::of_rounds(runs.iter().map(DataPathRun::mb_per_s).collect()) else { continue };
        for run in &runs {
            found.whole |= run.whole;
            if run.mb > found.mb {
                (found.mb, found.files) = (run.mb, run.files);
            }
        }
        let middle = &runs[runs.len() / 2];
        let (cpu_s_per_mb, ratio) = (middle.cpu_s / middle.mb, middle.mb / middle.stored_mb);
        let rate = PathRate { connections, block_len, compression_level, mb_per_s, cpu_s_per_mb, ratio };
        tell(&rate);
        found.rates.push(rate);
    }
    Ok(found)
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
        slow: SlowSource::default(),
        drive_ratio: 1.0,
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests fail by panicking")]
    use capstan_tape::model::built_in;

    use super::*;
    use crate::data_set::{DataSet, DataSetWatch, Kind, Shape};

    fn tree(bytes: u64) -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        let set = DataSet::plan(&Shape::of_bytes(Kind::Typical, bytes, 3)).unwrap();
        set.make(&folder.path().join("set"), &DataSetWatch::default()).unwrap();
        folder
    }

    fn run(folder: &Path) -> DataPath {
        DataPath { cache: Cache::Warm, seconds: 60.0, ..null_run(&folder.join("set")) }
    }

    #[test]
    fn all_of_a_tree_goes_through_and_nothing_stays() {
        let folder = tree(20_000_000);
        let stop = AtomicBool::new(false);
        for (target, level) in [
            (Target::Null, 0),
            (
                Target::Virtual {
                    folder: folder.path().join("out"),
                    encryption: Some(Algorithm::Aes256Gcm),
                    pace: None,
                },
                1,
            ),
        ] {
            let what = DataPath { target, compression_level: level, copies: 2, ..run(folder.path()) };
            let done = run_data_path(&what, &stop).unwrap();
            assert!(done.whole && done.mb > 20.0 && done.mb < 20.3, "{done:?}");
            let ratio = done.mb / done.stored_mb;
            let wanted = if level == 0 { 1.0 } else { 2.0 };
            assert!((ratio / wanted - 1.0).abs() < 0.1, "{ratio} of {wanted}");
            assert!(done.cpu_s > 0.0);
        }
        assert_eq!(fs::read_dir(folder.path().join("out")).unwrap().count(), 0);
    }

    #[test]
    fn a_slow_source_is_as_slow_as_it_is_told_and_more_connections_help_only_where_each_is_slow() {
        let folder = tempfile::tempdir().unwrap();
        let set = DataSet::plan(&Shape::of_bytes(Kind::Small, 12_000_000, 3)).unwrap();
        set.make(&folder.path().join("set"), &DataSetWatch::default()).unwrap();
        let rate = |connections, slow| {
            let what = DataPath { connections, slow, ..run(folder.path()) };
            run_data_path(&what, &AtomicBool::new(false)).unwrap().mb_per_s()
        };
        let together = SlowSource { mb_per_s: Some(20.0), connection_mb_per_s: None };
        let each = SlowSource { mb_per_s: None, connection_mb_per_s: Some(10.0) };
        for (connections, slow, wanted) in [(1, together, 20.0), (1, each, 10.0)] {
            let found = rate(connections, slow);
            assert!((found / wanted - 1.0).abs() < 0.15, "{connections} connections, {slow:?}: {found} MB/s");
        }
        assert!(rate(4, each) > 15.0, "four at 10 MB/s are faster than one");
    }

    #[test]
    fn a_run_ends_when_its_time_is_over() {
        let folder = tree(20_000_000);
        let slow = SlowSource { mb_per_s: Some(5.0), connection_mb_per_s: None };
        let done =
            run_data_path(&DataPath { seconds: 0.5, slow, ..run(folder.path()) }, &AtomicBool::new(false)).unwrap();
        assert!(!done.whole && done.mb < 10.0 && done.seconds < 5.0, "{done:?}");
    }

    #[test]
    fn a_paced_drive_is_the_bottleneck_and_says_how_often_it_went_back() {
        let folder = tree(60_000_000);
        let model = built_in("SDLT-220").unwrap();
        let native = model.native_mb_per_s.value;
        let target =
            Target::Virtual { folder: folder.path().join("out"), encryption: None, pace: Some(Box::new(model)) };
        let what = DataPath { target, block_len: 128 << 10, pool_bytes: 4 << 20, ..run(folder.path()) };
        let done = run_data_path(&what, &AtomicBool::new(false)).unwrap();
        assert_eq!(done.bottleneck, Bottleneck::Drive);
        assert!(done.mb_per_s() < native * 1.1 && done.mb_per_s() > native * 0.6, "{done:?} of {native}");
        assert!(done.backhitches.is_some());
    }

    #[test]
    fn what_cannot_be_is_refused_and_a_stop_leaves_nothing() {
        let folder = tree(2_000_000);
        let stop = AtomicBool::new(false);
        let told = |what: &DataPath| run_data_path(what, &stop).unwrap_err().to_string();
        assert!(told(&DataPath { connections: 0, ..run(folder.path()) }).contains("1 to 256 connections"));
        assert!(told(&DataPath { block_len: 1, ..run(folder.path()) }).contains("4 to 2048 KiB"));
        assert!(told(&run(&folder.path().join("gone"))).contains("holds nothing to read"));
        let out = folder.path().join("out");
        let target = Target::Virtual { folder: out.clone(), encryption: None, pace: None };
        let slow = SlowSource { mb_per_s: Some(1.0), connection_mb_per_s: None };
        let stopped =
            run_data_path(&DataPath { target, slow, ..run(folder.path()) }, &AtomicBool::new(true)).unwrap_err();
        assert!(matches!(stopped, DataPathError::Stopped), "{stopped}");
        assert_eq!(fs::read_dir(out).unwrap().count(), 0);
    }
}
