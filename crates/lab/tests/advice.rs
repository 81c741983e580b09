//! Advice tried as a person would: each part in turn is made the slow one, must be named, and what is advised must give
//! what was promised. A slow disk needs a device of its own: `tests/advice.sh`.
//!
//! A program of its own: it measures the machine, so that no other test runs beside it.

#![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

use std::io::Read;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use capstan_lab::{
    Advice, Cache, DataPath, DataSet, DataSetWatch, DriveData, Exercise, ExerciseMedium, FileLengths, Lever, Measured,
    Measurements, Part, Route, Setting, Shape, SiteFigures, SlowSource, TapeDrive, advise, measure_drive, measure_path,
    null_run, try_setting,
};
use capstan_tape::model::built_in;
use tempfile::TempDir;

const MEMORY_BYTES: u64 = 8 << 30;
/// Machines that run tests are busy with other things, too.
const NEAR: f64 = 0.25;
/// What was measured in a slow second of such a machine is no promise for a fast one: what misses is measured and tried
/// anew. A forecast that is wrong is wrong each time, and to the same side. What a machine's moods add to one round
/// they take from another, so all rounds together are right where the forecast is.
const ROUNDS: u32 = 4;

/// One test measures at a time.
static QUIET: Mutex<()> = Mutex::new(());

/// A tree, and what was measured of it.
struct Bench {
    folder: TempDir,
    stop: AtomicBool,
    _quiet: MutexGuard<'static, ()>,
}

impl Bench {
    fn new(kind: FileLengths, bytes: u64) -> Self {
        // A test that failed leaves nothing behind that others stumble over.
        let _quiet = QUIET.lock().unwrap_or_else(PoisonError::into_inner);
        let bench = Self { folder: tempfile::tempdir().unwrap(), stop: AtomicBool::new(false), _quiet };
        let set = DataSet::plan(&Shape::of_bytes(kind, bytes, 11)).unwrap();
        set.make(&bench.folder.path().join("set"), &DataSetWatch::default()).unwrap();
        bench
    }

    fn out(&self) -> std::path::PathBuf {
        self.folder.path().join("out")
    }

    /// Measures as `capstan lab null` and `drive` do, and keeps it and reads it again as they do.
    fn measured(&self, ways: &Ways) -> SiteFigures {
        let &Ways { slow, connections, levels, block_len } = ways;
        let source = self.folder.path().join("set");
        let what = DataPath { cache: Cache::Warm, seconds: 1.0, slow, ..null_run(&source) };
        let each: Vec<_> = levels
            .iter()
            .flat_map(|&level| connections.iter().map(move |&connections| (connections, block_len, level)))
            .collect();
        let path = measure_path(&what, &each, 3, &self.stop, &mut |_| {}).unwrap();
        let exercise = Exercise {
            data: DriveData::Random,
            block_len,
            mb: 50.0,
            mb_per_s: None,
            sync_mb: None,
            encryption: None,
            pace: None,
        };
        let medium = ExerciseMedium::New { folder: self.out() };
        let drive =
            measure_drive(&medium, &[(DriveData::Random, block_len)], 3, &exercise, &self.stop, &mut |_| {}).unwrap();
        let state = tempfile::tempdir_in(self.folder.path()).unwrap();
        let add = |all: &mut Measurements| {
            all.add_path(Measured { at_ns: 1, found: path });
            all.add_drive(Measured { at_ns: 1, found: drive });
        };
        Measurements::add(state.path(), add).unwrap();
        SiteFigures::of(&Measurements::read(state.path()).unwrap(), &source).unwrap()
    }

    /// What a setting was promised to give in a run, and gives.
    #[track_caller]
    fn assert_promise(&self, ways: &Ways, figures: &SiteFigures, setting: &Setting, seconds: f64) {
        self.assert_promise_at(ways, figures, setting, seconds, None);
    }

    /// The same of a processor that `yardstick` knows the speed of: `figures` are of when it was started.
    #[track_caller]
    fn assert_promise_at(
        &self,
        ways: &Ways,
        figures: &SiteFigures,
        setting: &Setting,
        seconds: f64,
        yardstick: Option<&Yardstick>,
    ) {
        let mut figures = figures.clone();
        let mut speed = yardstick.map(Yardstick::lap);
        let mut all = 0.0;
        for round in 1..=ROUNDS {
            let (began, before) = (Instant::now(), processor_time());
            let trial = try_setting(&figures, setting, &self.out(), seconds, 1, &self.stop).unwrap();
            // What needs all processors is promised for those that nobody else uses.
            let got = (processor_time() - before).as_secs_f64() / began.elapsed().as_secs_f64();
            let faster = yardstick.zip(speed).map_or(1.0, |(yardstick, speed)| yardstick.lap() / speed);
            let share = match trial.bottleneck {
                "processor" => (got / f64::from(figures.path.processors)).min(1.0),
                _ => 1.0,
            };
            let told = format!("{setting:?}: {trial:?}, with {share:.2} of the processors, {faster:.2} times as fast");
            println!("{told}");
            let ratio = trial.predicted_mb_per_s * share * faster / trial.measured_mb_per_s.median;
            all += ratio.ln() / f64::from(ROUNDS);
            let near = |ratio: f64| (ratio - 1.0).abs() < NEAR;
            if near(ratio) || round == ROUNDS && near(all.exp()) {
                return;
            }
            assert!(round < ROUNDS, "{told}; all rounds {:.2}", all.exp());
            figures = self.measured(ways);
            speed = yardstick.map(Yardstick::lap);
        }
    }
}

/// What all threads of this process have had of the processors.
fn processor_time() -> Duration {
    time_of(rustix::time::ClockId::ProcessCPUTime)
}

fn time_of(clock: rustix::time::ClockId) -> Duration {
    let time = rustix::time::clock_gettime(clock);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

/// How fast the processor goes all along. The processor of a virtual machine may be half as fast from one second to
/// the next, when its neighbour becomes busy, and no clock of this machine shows it: work of a known amount does. It
/// takes a tenth of the time.
struct Yardstick {
    laps: Arc<Mutex<Vec<Duration>>>,
    stop: Arc<AtomicBool>,
    thread: Option<thread::JoinHandle<()>>,
}

impl Yardstick {
    const PAUSE: Duration = Duration::from_millis(400);
    const WORK_BYTES: u64 = 256 << 10;

    /// With work from the largest file of a tree.
    fn start(tree: &Path) -> Self {
        let largest =
            walkdir::WalkDir::new(tree).into_iter().map(Result::unwrap).filter(|file| file.file_type().is_file());
        let largest = largest.max_by_key(|file| file.metadata().unwrap().len()).unwrap();
        let mut work = Vec::new();
        std::fs::File::open(largest.path()).unwrap().take(Self::WORK_BYTES).read_to_end(&mut work).unwrap();
        let (laps, stop) = (Arc::new(Mutex::new(Vec::new())), Arc::new(AtomicBool::new(false)));
        let (all, over) = (laps.clone(), stop.clone());
        let thread = thread::spawn(move || {
            while !over.load(Ordering::Relaxed) {
                let before = time_of(rustix::time::ClockId::ThreadCPUTime);
                std::hint::black_box(zstd::bulk::compress(&work, 15).unwrap());
                all.lock().unwrap().push(time_of(rustix::time::ClockId::ThreadCPUTime) - before);
                thread::sleep(Self::PAUSE);
            }
        });
        Self { laps, stop, thread: Some(thread) }
    }

    /// How often a second of the processor does the work, since this was last asked.
    fn lap(&self) -> f64 {
        while self.laps.lock().unwrap().is_empty() {
            thread::sleep(Self::PAUSE);
        }
        let laps = std::mem::take(&mut *self.laps.lock().unwrap());
        laps.len() as f64 / laps.iter().sum::<Duration>().as_secs_f64()
    }
}

impl Drop for Yardstick {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        let _ = self.thread.take().map(thread::JoinHandle::join);
    }
}

/// What is measured of a source.
struct Ways {
    slow: SlowSource,
    connections: &'static [u32],
    levels: &'static [i32],
    block_len: usize,
}

fn setting(drive: TapeDrive) -> Setting {
    Setting {
        connections: 1,
        block_len: 256 << 10,
        pool_bytes: 128 << 20,
        checkpoint_bytes: 4096 << 20,
        checkpoint_seconds: 60,
        compression_level: 0,
        copies: 1,
        route: Route::Direct,
        drive,
    }
}

fn model(name: &str) -> TapeDrive {
    TapeDrive::Model(Box::new(built_in(name).unwrap()))
}

/// The first change is this one; others gain no more than rounds differ by on a busy machine.
#[track_caller]
fn assert_changes(advice: &Advice, wanted: Option<Lever>) {
    const NOISE: f64 = 0.15;
    let told = |change: &capstan_lab::SettingChange| {
        format!("{} {} -> {}: {:+.2}", change.lever.name(), change.from, change.to, change.gain())
    };
    let told: Vec<_> = advice.changes.iter().map(told).collect();
    let now = &advice.current.1;
    let first = advice.changes.first().filter(|change| change.gain() > NOISE).map(|change| change.lever);
    assert_eq!(first, wanted, "{told:?}, now {now:?}");
    let others: f64 =
        advice.changes.iter().skip(usize::from(wanted.is_some())).map(capstan_lab::SettingChange::gain).sum();
    assert!(others < NOISE, "{told:?}, now {now:?}");
}

#[test]
fn a_source_that_is_slow_on_each_connection_wants_more_of_them() {
    let bench = Bench::new(FileLengths::Small, 200_000_000);
    let slow = SlowSource { mb_per_s: None, connection_mb_per_s: Some(8.0) };
    let ways = Ways { slow, connections: &[1, 2, 4, 8], levels: &[0], block_len: 256 << 10 };
    let figures = bench.measured(&ways);
    let advice = advise(&figures, &setting(TapeDrive::Virtual), MEMORY_BYTES, None).unwrap();
    assert_eq!(advice.current.1.bottleneck, Part::Source);
    assert_changes(&advice, Some(Lever::Connections));
    assert_eq!(advice.advised.0.connections, 8);
    assert!(advice.changes[0].gain() > 4.0, "{:?}", advice.changes[0].gain());
    bench.assert_promise(&ways, &figures, &advice.current.0, 2.0);
    bench.assert_promise(&ways, &figures, &advice.advised.0, 2.0);
}

#[test]
fn a_source_that_is_slow_as_a_whole_is_named_and_nothing_is_promised() {
    let bench = Bench::new(FileLengths::Small, 100_000_000);
    let slow = SlowSource { mb_per_s: Some(20.0), connection_mb_per_s: None };
    let ways = Ways { slow, connections: &[1, 4], levels: &[0, 1], block_len: 256 << 10 };
    let figures = bench.measured(&ways);
    let current = setting(model("LTO-6"));
    let advice = advise(&figures, &current, MEMORY_BYTES, None).unwrap();
    assert_eq!(advice.current.1.bottleneck, Part::Source);
    assert_changes(&advice, None);
    // 20 MB/s is a third of what its slowest speed needs: the buffer hides that from the host, and the tape goes back
    // for it.
    assert!(advice.current.1.backhitches_per_hour.unwrap() > 50.0, "{:?}", advice.current.1);
    // Something that goes as slowly as that is to be had.
    let fit = advice.fitting.as_deref().unwrap();
    let fit = advice.drives.iter().find(|other| other.drive == fit).unwrap();
    assert!(fit.forecast.streaming_share.unwrap() > advice.current.1.streaming_share.unwrap(), "{fit:?}");
    bench.assert_promise(&ways, &figures, &setting(TapeDrive::Virtual), 2.0);
}

#[test]
fn a_slow_drive_is_named_and_compression_relieves_it() {
    let bench = Bench::new(FileLengths::Typical, 400_000_000);
    let ways = Ways { slow: SlowSource::default(), connections: &[1, 2], levels: &[0, 1], block_len: 128 << 10 };
    let figures = bench.measured(&ways);
    let current = Setting { block_len: 128 << 10, pool_bytes: 16 << 20, ..setting(model("SDLT-220")) };
    let advice = advise(&figures, &current, MEMORY_BYTES, None).unwrap();
    assert_eq!(advice.current.1.bottleneck, Part::Drive);
    assert_changes(&advice, Some(Lever::Compression));
    let gain = advice.changes[0].gain();
    assert!((0.8..1.2).contains(&gain), "2:1 data go through the drive twice as fast: {gain}");
    bench.assert_promise(&ways, &figures, &advice.current.0, 3.0);
    bench.assert_promise(&ways, &figures, &advice.advised.0, 3.0);
}

#[test]
fn small_buffers_are_named_and_larger_ones_carry_the_source_over_flushes() {
    let bench = Bench::new(FileLengths::Typical, 800_000_000);
    let slow = SlowSource { mb_per_s: Some(60.0), connection_mb_per_s: None };
    let ways = Ways { slow, connections: &[2], levels: &[0], block_len: 128 << 10 };
    let figures = bench.measured(&ways);
    let current = Setting {
        connections: 2,
        block_len: 128 << 10,
        pool_bytes: 2 << 20,
        checkpoint_bytes: 256 << 20,
        ..setting(model("LTO-4"))
    };
    let advice = advise(&figures, &current, MEMORY_BYTES, None).unwrap();
    assert_eq!(advice.current.1.bottleneck, Part::Buffers, "{:?}", advice.current.1);
    let pools = advice.neighbours.iter().filter(|(lever, ..)| *lever == Lever::Pool);
    let best = pools.max_by(|one, other| one.2.mb_per_s.median.total_cmp(&other.2.mb_per_s.median)).unwrap();
    assert!(best.2.mb_per_s.median > advice.current.1.mb_per_s.median * 1.1, "{best:?}");
    bench.assert_promise(&ways, &figures, &current, 9.0);
    bench.assert_promise(&ways, &figures, &best.1, 9.0);
}

/// Lets this thread, and those that it starts, run on one processor.
fn on_one_processor() {
    let mut set = rustix::thread::CpuSet::new();
    let all = rustix::thread::sched_getaffinity(None).unwrap();
    let first = (0..rustix::thread::CpuSet::MAX_CPU).find(|&cpu| all.is_set(cpu)).unwrap();
    set.set(first);
    rustix::thread::sched_setaffinity(None, &set).unwrap();
}

#[test]
fn one_processor_is_named_and_less_compression_relieves_it() {
    on_one_processor();
    let bench = Bench::new(FileLengths::Typical, 300_000_000);
    let yardstick = Yardstick::start(&bench.folder.path().join("set"));
    let ways = Ways { slow: SlowSource::default(), connections: &[1], levels: &[1, 15], block_len: 256 << 10 };
    let figures = bench.measured(&ways);
    assert_eq!(figures.path.processors, 1);
    let current = Setting { compression_level: 15, ..setting(TapeDrive::Virtual) };
    let advice = advise(&figures, &current, MEMORY_BYTES, None).unwrap();
    assert_eq!(advice.current.1.bottleneck, Part::Processor);
    assert_changes(&advice, Some(Lever::Compression));
    bench.assert_promise_at(&ways, &figures, &advice.current.0, 3.0, Some(&yardstick));
}

#[test]
fn without_measurements_there_is_no_advice_but_what_to_measure() {
    let told = SiteFigures::of(&Measurements::default(), Path::new("/srv")).unwrap_err().to_string();
    assert_eq!(told, "/srv was not measured yet: capstan lab null /srv");
}
