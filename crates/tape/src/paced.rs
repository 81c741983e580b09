//! A drive that takes as long as a real one: the model's time, kept by a clock.
//!
//! What is written goes to the drive inside at once; then the model says when a real drive would have taken it, and the caller
//! waits until then. So a host that is too slow makes the tape stop and go back, a full buffer holds the host off, and a
//! synchronous filemark lasts until the model's buffer is empty. Reads wait for the tape's speed. Loads, unloads and locates take
//! no time: what is shown is how a tape is kept moving.
//!
//! Rates are means over a [`TICK_S`]: a host hands over block by block, and no drive looks at one alone.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use crate::model::{DriveModel, Engine, Totals};
use crate::{
    BlockLimits, Drive, DriveError, DriveIdentity, DriveKey, Flush, Medium, Position, ReadOutcome, WriteOutcome,
};

/// Seconds over which the host's rate is taken.
const TICK_S: f64 = 0.2;

/// Time as a paced drive sees it.
pub trait PaceClock: Send {
    /// Seconds since some moment.
    fn now_s(&self) -> f64;

    /// Returns when it is that late.
    fn wait_until(&mut self, at_s: f64);
}

/// The time of the wall.
#[derive(Debug, Clone, Copy)]
pub struct WallClock {
    began: Instant,
}

impl WallClock {
    /// Begins at 0.
    pub fn start() -> Self {
        Self { began: Instant::now() }
    }
}

impl PaceClock for WallClock {
    fn now_s(&self) -> f64 {
        self.began.elapsed().as_secs_f64()
    }

    fn wait_until(&mut self, at_s: f64) {
        let left = at_s - self.now_s();
        if left > 0.0 {
            std::thread::sleep(Duration::from_secs_f64(left));
        }
    }
}

/// What a paced drive has done so far; it outlives the drive.
#[derive(Debug, Clone, Default)]
pub struct PaceMeter(Arc<Mutex<Totals>>);

impl PaceMeter {
    /// As of the last command.
    pub fn totals(&self) -> Totals {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A drive at a model's pace.
pub struct Paced<D, C> {
    drive: D,
    model: DriveModel,
    clock: C,
    engine: Engine,
    /// MB that the host handed over and the engine has not seen.
    pending_mb: f64,
    /// MB since the last synchronous filemark.
    unsynced_mb: f64,
    /// When what was read is through, if the tape runs at its speed.
    read_until_s: f64,
    meter: PaceMeter,
}

impl<D: Drive, C: PaceClock> Paced<D, C> {
    /// The drive inside, as fast as this model. Blocks come as they go to the tape: nothing is compressed any more.
    pub fn new(drive: D, model: DriveModel, clock: C) -> Self {
        let engine = Engine::new(&model, 1.0).accelerated(true);
        let (pending_mb, unsynced_mb, read_until_s) = (0.0, 0.0, 0.0);
        Self { drive, model, clock, engine, pending_mb, unsynced_mb, read_until_s, meter: PaceMeter::default() }
    }

    /// What it does from now on, also when the drive is somebody else's.
    pub fn meter(&self) -> PaceMeter {
        self.meter.clone()
    }

    /// Brings the model to the present.
    fn catch_up(&mut self, least_s: f64) {
        let seconds = self.clock.now_s() - self.engine.now_s();
        if seconds >= least_s && seconds > 0.0 {
            let taken = self.engine.offer(self.pending_mb / seconds, seconds);
            self.pending_mb = (self.pending_mb - taken).max(0.0);
        }
    }

    /// Hands over what is pending as fast as the drive takes it.
    fn hand_over(&mut self) {
        if self.pending_mb > 0.0 {
            self.engine.write(self.pending_mb, self.model.ceiling_mb_per_s.value);
            self.pending_mb = 0.0;
        }
    }

    fn wait(&mut self) {
        self.clock.wait_until(self.engine.now_s());
        *self.meter.0.lock().unwrap_or_else(PoisonError::into_inner) = *self.engine.totals();
    }

    fn written(&mut self, bytes: usize) {
        let mb = bytes as f64 / 1e6;
        self.pending_mb += mb;
        self.unsynced_mb += mb;
        // With this block: the host needed the time for it, too.
        self.catch_up(TICK_S);
        if self.engine.buffer_mb() + self.pending_mb > self.model.buffer_mb.value {
            self.hand_over();
            self.wait();
        }
    }

    /// All that was written is on the tape, and the tape stands, or moves if the drive knows how.
    fn synced(&mut self) {
        self.catch_up(0.0);
        self.hand_over();
        self.engine.tape_mark(self.unsynced_mb);
        self.unsynced_mb = 0.0;
        self.wait();
    }

    fn was_read(&mut self, bytes: usize) {
        let now = self.clock.now_s();
        // The drive reads ahead into its buffer while nobody asks.
        let ahead_s = self.model.buffer_mb.value / self.model.native_mb_per_s.value;
        let through = self.read_until_s.max(now - ahead_s) + bytes as f64 / 1e6 / self.model.native_mb_per_s.value;
        self.read_until_s = through;
        self.clock.wait_until(through);
    }
}

impl<D: Drive, C: PaceClock> Drive for Paced<D, C> {
    fn identity(&self) -> DriveIdentity {
        DriveIdentity { model: format!("virtual, at the pace of {}", self.model.name), ..self.drive.identity() }
    }

    fn load(&mut self) -> Result<Medium, DriveError> {
        self.drive.load()
    }

    fn unload(&mut self) -> Result<(), DriveError> {
        if self.unsynced_mb > 0.0 {
            self.synced();
        }
        self.catch_up(0.0);
        self.engine.finish();
        self.wait();
        self.drive.unload()
    }

    fn medium(&mut self) -> Result<Medium, DriveError> {
        self.drive.medium()
    }

    fn block_limits(&self) -> BlockLimits {
        let BlockLimits { min, max } = self.drive.block_limits();
        BlockLimits { min, max: max.min(self.model.block_len_max.value) }
    }

    fn position(&mut self) -> Result<Position, DriveError> {
        self.drive.position()
    }

    fn locate(&mut self, lbn: u64) -> Result<(), DriveError> {
        self.drive.locate(lbn)
    }

    fn space_to_end_of_data(&mut self) -> Result<(), DriveError> {
        self.drive.space_to_end_of_data()
    }

    fn space_filemarks(&mut self, count: i64) -> Result<(), DriveError> {
        self.drive.space_filemarks(count)
    }

    fn read_block(&mut self, buffer: &mut [u8]) -> Result<ReadOutcome, DriveError> {
        let outcome = self.drive.read_block(buffer)?;
        if let ReadOutcome::Block(len) = outcome {
            self.was_read(len);
        }
        Ok(outcome)
    }

    fn write_block(&mut self, block: &[u8]) -> Result<WriteOutcome, DriveError> {
        let BlockLimits { min, max } = self.block_limits();
        if block.len() > max as usize {
            return Err(DriveError::BlockLength { len: block.len(), min, max });
        }
        let outcome = self.drive.write_block(block)?;
        self.written(block.len());
        Ok(outcome)
    }

    fn write_filemarks(&mut self, count: u32, flush: Flush) -> Result<WriteOutcome, DriveError> {
        let outcome = self.drive.write_filemarks(count, flush)?;
        if flush == Flush::Synchronous {
            self.synced();
        }
        Ok(outcome)
    }

    fn erase(&mut self) -> Result<(), DriveError> {
        self.drive.erase()
    }

    fn set_key(&mut self, key: Option<DriveKey>) -> Result<(), DriveError> {
        self.drive.set_key(key)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests fail by panicking")]
    use super::*;
    use crate::NullDrive;
    use crate::model::built_in;

    /// A clock that nobody waits for. The host takes its time by moving it on.
    #[derive(Clone, Default)]
    struct TestClock(Arc<Mutex<f64>>);

    impl TestClock {
        fn pass(&self, seconds: f64) {
            *self.0.lock().unwrap() += seconds;
        }
    }

    impl PaceClock for TestClock {
        fn now_s(&self) -> f64 {
            *self.0.lock().unwrap()
        }

        fn wait_until(&mut self, at_s: f64) {
            let mut now = self.0.lock().unwrap();
            *now = now.max(at_s);
        }
    }

    /// Writes MB in blocks of a quarter of one, as a host of that rate does, and says how long it took.
    fn write(drive: &mut Paced<NullDrive, TestClock>, clock: &TestClock, mb: f64, mb_per_s: f64) -> f64 {
        let block = vec![0; 250_000];
        let began = clock.now_s();
        for _ in 0..(mb * 4.0) as u64 {
            clock.pass(0.25 / mb_per_s);
            drive.write_block(&block).unwrap();
        }
        clock.now_s() - began
    }

    fn paced(name: &str) -> (Paced<NullDrive, TestClock>, TestClock) {
        let clock = TestClock::default();
        let mut drive = Paced::new(NullDrive::new(), built_in(name).unwrap(), clock.clone());
        drive.load().unwrap();
        (drive, clock)
    }

    #[test]
    fn a_fast_host_gets_the_native_rate_and_a_slow_one_its_own() {
        for (offered, wanted) in [(2000.0, 160.0), (100.0, 100.0)] {
            let (mut drive, clock) = paced("LTO-6");
            let took = write(&mut drive, &clock, 20_000.0, offered);
            let rate = 20_000.0 / took;
            assert!((rate / wanted - 1.0).abs() < 0.05, "{rate} MB/s of {wanted}");
        }
    }

    #[test]
    fn a_host_below_the_slowest_speed_makes_the_tape_go_back() {
        let (mut drive, clock) = paced("LTO-6");
        let meter = drive.meter();
        let took = write(&mut drive, &clock, 6000.0, 30.0);
        drive.unload().unwrap();
        assert!((6000.0 / took / 30.0 - 1.0).abs() < 0.02, "its buffer hides that from the host");
        let totals = meter.totals();
        assert!(totals.backhitches > 20 && (totals.tape_mb - 6000.0).abs() < 1.0, "{totals:?}");
    }

    #[test]
    fn a_synchronous_filemark_lasts_until_the_buffer_is_empty() {
        let (mut drive, clock) = paced("LTO-6");
        write(&mut drive, &clock, 320.0, 2000.0);
        let before = clock.now_s();
        drive.write_filemarks(1, Flush::Buffered).unwrap();
        assert_eq!(clock.now_s(), before);
        drive.write_filemarks(1, Flush::Synchronous).unwrap();
        let took = clock.now_s() - before;
        assert!(took > 1.5 && took < 2.5, "320 MB at 160 MB/s, some of it on the way before: {took} s");
        assert_eq!(drive.meter().totals().backhitches, 1);
    }

    #[test]
    fn a_block_that_the_model_cannot_write_is_refused() {
        let (mut drive, _) = paced("T9840D");
        let refused = drive.write_block(&vec![0; 300_000]).unwrap_err();
        assert!(matches!(refused, DriveError::BlockLength { max: 262_144, .. }), "{refused}");
    }

    /// Numbers from 0 to 1, the same for the same seed.
    fn draws(seed: u64) -> impl FnMut() -> f64 {
        let mut state = seed | 1;
        move || {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            (state >> 11) as f64 / (1u64 << 53) as f64
        }
    }

    /// T10000D with a host of 151 MB/s and a sync each 252 MB went back behind each sync, at a third of the rate that the model
    /// has: the tape ran at the host's rate with nothing in its buffer, and the first block that was late stopped it.
    #[test]
    fn a_host_that_wavers_does_not_stop_a_tape_that_moves_over_syncs() {
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_nanos() as u64;
        let seed = std::env::var("CAPSTAN_SEED").map_or(now, |text| text.parse().unwrap());
        println!("seed {seed}");
        let mut draw = draws(seed);
        for name in ["T10000D", "TS1140"] {
            for share in [0.6, 0.7, 0.8] {
                let native = built_in(name).unwrap().native_mb_per_s.value;
                let (files, rate) = (20, share * native);
                let (mut drive, clock) = paced(name);
                let meter = drive.meter();
                for _ in 0..files {
                    let mut left_mb = native;
                    while left_mb > 0.0 {
                        // Another rate each 10 MB, up to 5 % off.
                        write(&mut drive, &clock, 10.0, rate * (1.0 + 0.1 * (draw() - 0.5)));
                        left_mb -= 10.0;
                    }
                    drive.write_filemarks(1, Flush::Synchronous).unwrap();
                }
                drive.unload().unwrap();
                let mb = meter.totals().host_mb;
                let mut steady = Engine::new(&built_in(name).unwrap(), 1.0).accelerated(true);
                for _ in 0..files {
                    steady.write(mb / f64::from(files), rate);
                    steady.tape_mark(mb / f64::from(files));
                }
                let times = clock.now_s() / steady.now_s();
                let back = meter.totals().backhitches;
                assert!(
                    back <= 1 && (times - 1.0).abs() < 0.05,
                    "{name}, {share}: {times}, {back}; CAPSTAN_SEED={seed}"
                );
            }
        }
    }
}
