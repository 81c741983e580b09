//! Drives at a model's pace, on a clock of their own.

use std::path::Path;
use std::sync::{Arc, Mutex};

use capstan_tape::model::{Engine, built_in};
use capstan_tape::{
    CartridgeDrive, CartridgeSpec, Drive, DriveError, Flush, KeySlotKind, NullDrive, PaceClock, Paced, ReadOutcome,
    UnfitDrive,
};

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

/// T10000D with a host of 151 MB/s and a sync each 252 MB went back behind each sync, at a third of the rate that the
/// model has: the tape ran at the host's rate with nothing in its buffer, and the first block that was late stopped it.
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
            assert!(back <= 1 && (times - 1.0).abs() < 0.05, "{name}, {share}: {times}, {back}; CAPSTAN_SEED={seed}");
        }
    }
}

#[test]
fn a_paced_drive_does_what_the_engine_says_of_the_same_host() {
    for name in ["T10000A", "T10000D", "LTO-3", "LTO-5", "LTO-9", "TS1140", "T9840D", "SDLT-220"] {
        for share in [0.25, 0.4, 0.6, 0.8, 1.3, 3.0] {
            for synced in [true, false] {
                let model = built_in(name).unwrap();
                let native = model.native_mb_per_s.value;
                let (mut drive, clock) = paced(name);
                let mut steady = Engine::new(&model, 1.0).accelerated(true);
                let host = (share * native).min(model.ceiling_mb_per_s.value);
                for _ in 0..20 {
                    let file_mb = (native * 4.0).floor() / 4.0;
                    write(&mut drive, &clock, file_mb, host);
                    steady.write(file_mb, host);
                    if synced {
                        drive.write_filemarks(1, Flush::Synchronous).unwrap();
                        steady.tape_mark(file_mb);
                    }
                }
                drive.unload().unwrap();
                steady.finish();
                let times = clock.now_s() / steady.now_s();
                assert!((times - 1.0).abs() < 0.03, "{name}, {share} of its rate, synced {synced}: {times}");
            }
        }
    }
}

/// A cartridge of that generation in a drive at the pace of that model.
fn with_cartridge(directory: &Path, generation: &str, model: &str) -> Paced<CartridgeDrive, TestClock> {
    let path = directory.join("A00001.tape");
    if !path.exists() {
        let (volser, generation) = ("A00001".parse().unwrap(), generation.to_owned());
        CartridgeSpec { volser, capacity_bytes: 8 << 20, early_warning_bytes: 1 << 20, generation }
            .create(&path)
            .unwrap();
    }
    let drive = CartridgeDrive::new("virtual-0", path, KeySlotKind::Missing);
    Paced::new(drive, built_in(model).unwrap(), TestClock::default())
}

#[test]
fn a_cartridge_of_a_generation_that_the_model_does_not_read_is_refused_and_the_drives_that_do_are_named() {
    let directory = tempfile::tempdir().unwrap();
    for model in ["LTO-9", "LTO-4", "T10000D"] {
        let mut drive = with_cartridge(directory.path(), "LTO-6", model);
        let refused = drive.load().unwrap_err();
        assert!(
            matches!(&refused, DriveError::Unfit(error) if matches!(**error, UnfitDrive::Foreign { .. })),
            "{refused:?}"
        );
        assert_eq!(
            refused.to_string(),
            format!(
                "drive virtual-0, at the pace of {model}, cannot use a cartridge of LTO-6: take a drive of LTO-6 or LTO-7"
            )
        );
        // It is out again: the drive is empty, and another may have it.
        assert!(matches!(drive.medium(), Err(DriveError::NoMedium { .. })));
    }
    let mut drive = with_cartridge(directory.path(), "LTO-6", "LTO-7");
    assert!(!drive.load().unwrap().write_protected);
    drive.write_block(b"kept").unwrap();
}

#[test]
fn a_cartridge_of_a_generation_that_the_model_only_reads_is_read_and_not_written() {
    let directory = tempfile::tempdir().unwrap();
    let mut drive = with_cartridge(directory.path(), "LTO-5", "LTO-5");
    drive.load().unwrap();
    drive.write_block(b"kept").unwrap();
    drive.write_filemarks(1, Flush::Synchronous).unwrap();
    drive.unload().unwrap();

    let mut drive = with_cartridge(directory.path(), "LTO-5", "LTO-7");
    assert!(drive.load().unwrap().write_protected && drive.medium().unwrap().write_protected);
    let refused =
        [drive.write_block(b"lost").map(drop), drive.write_filemarks(1, Flush::Synchronous).map(drop), drive.erase()];
    for refused in refused {
        let told = refused.unwrap_err().to_string();
        let wanted = "drive virtual-0, at the pace of LTO-7, only reads cartridges of LTO-5: to write this one take a drive of \
                      LTO-5 or LTO-6";
        assert_eq!(told, wanted);
    }
    let mut block = [0; 8];
    assert_eq!(drive.read_block(&mut block).unwrap(), ReadOutcome::Block(4));
    assert_eq!(&block[..4], b"kept");
    drive.unload().unwrap();
    // What was in it before says nothing of the next.
    let mut drive = with_cartridge(directory.path(), "LTO-5", "LTO-6");
    assert!(!drive.load().unwrap().write_protected);
}
