//! The engine of drive models: its laws, and the worked examples of the papers.

use capstan_tape::model::{Conversion, DriveModel, Engine, Figure, Motion, Origin, Speeds, built_in, built_in_names};
use proptest::prelude::*;

fn is<T>(value: T) -> Figure<T> {
    Figure { value, origin: Origin::Estimate("a test".to_owned()) }
}

/// Drive A of the speed-matching example: one speed and a large buffer.
fn drive_a() -> DriveModel {
    DriveModel {
        native_mb_per_s: is(250.0),
        ceiling_mb_per_s: is(1000.0),
        speeds_mb_per_s: None,
        buffer_mb: is(2000.0),
        backhitch_s: is(4.0),
        calibration_s: is(5.0),
        ..built_in("T10000D").unwrap()
    }
}

/// Drive B: it matches its speed, and has half the buffer.
fn drive_b() -> DriveModel {
    DriveModel {
        speeds_mb_per_s: Some(is(Speeds::Range { from: 90.0, to: 250.0 })),
        buffer_mb: is(1000.0),
        ..drive_a()
    }
}

#[test]
fn a_drive_that_matches_its_speed_stands_still_while_it_changes() {
    // T10000 paper: at 90 MB/s its buffer holds a tenth; the host steps up to 270.
    let model = drive_b();
    let mut drive = Engine::new(&model, 1.0);
    drive.offer(90.0, 60.0);
    assert!((drive.buffer_mb() - 100.0).abs() < 1e-6 && drive.motion() == Motion::Streaming { speed: 90.0 });
    let before = drive.totals().tape_mb;
    let mut averages = Vec::new();
    let mut last = 0.0;
    for at in [5.0, 9.0, 10.0, 15.0] {
        drive.offer(270.0, at - last);
        last = at;
        averages.push((drive.totals().tape_mb - before) / at);
    }
    let wanted = [90.0, 50.0, 70.0, 130.0];
    assert!(averages.iter().zip(wanted).all(|(is, wanted)| (is - wanted).abs() < 1e-6), "{averages:?}");
    assert_eq!((drive.totals().backhitches, drive.totals().speed_changes), (1, 1));
}

#[test]
fn a_drive_of_one_speed_and_a_large_buffer_takes_its_rate_from_the_first_second_on() {
    let model = drive_a();
    let mut drive = Engine::new(&model, 1.0);
    drive.offer(90.0, 600.0);
    for _ in 0..15 {
        assert!(drive.offer(270.0, 1.0) >= 250.0 - 1e-6);
    }
}

#[test]
fn a_step_down_costs_neither_drive_anything() {
    for model in [drive_a(), drive_b()] {
        let mut drive = Engine::new(&model, 1.0);
        drive.offer(270.0, 60.0);
        for _ in 0..60 {
            assert!((drive.offer(90.0, 1.0) - 90.0).abs() < 1e-6, "{} MB", drive.buffer_mb());
        }
    }
}

/// 25 GB in files of 13 MB, each behind a file sync, from a host that is faster than any drive. Gives the drive at the
/// end, and what a loss of power would have taken behind the last file.
fn synced_files(model: &DriveModel, accelerated: bool, conversion: Conversion) -> (Engine, f64) {
    let mut drive = Engine::new(model, 1.0).accelerated(accelerated).converting(conversion);
    for _ in 0..1923 {
        drive.write(13.0, 1000.0);
        drive.file_sync(13.0);
    }
    let at_risk_mb = drive.at_risk_mb();
    drive.finish();
    (drive, at_risk_mb)
}

#[test]
fn syncs_cost_a_backhitch_each_or_thirteen_in_all() {
    let (lto, t10000, ts1140) = (built_in("LTO-6").unwrap(), built_in("T10000D").unwrap(), built_in("TS1140").unwrap());
    let (plain, plain_at_risk_mb) = synced_files(&lto, true, Conversion::None);
    let (sparse, _) = synced_files(&t10000, true, Conversion::None);
    let (virtual_backhitch, _) = synced_files(&ts1140, true, Conversion::None);
    let (converted, at_risk_mb) = synced_files(&t10000, true, Conversion::FileSyncs);
    assert_eq!((plain.totals().backhitches, sparse.totals().backhitches), (1923, 13));
    // The one at its end, when there is no more to write.
    assert_eq!(converted.totals().backhitches, 1);
    let times = |slow: &Engine, fast: &Engine| slow.now_s() / fast.now_s();
    // The paper: 8 times LTO, 27 % above TS1140; converted, 35 times LTO and 6 times TS1140.
    let found = [
        (times(&plain, &sparse), 8.0),
        (times(&virtual_backhitch, &sparse), 1.27),
        (times(&plain, &converted), 35.0),
        (times(&virtual_backhitch, &converted), 6.0),
    ];
    assert!(found.iter().all(|(is, wanted)| (is / wanted - 1.0).abs() < 0.12), "{found:?}");
    // The price of the conversion: what was answered is in the buffer still.
    assert!(at_risk_mb > 1000.0 && plain_at_risk_mb == 0.0);
}

#[test]
fn a_drive_with_large_file_handling_follows_the_host() {
    // T10000D, files of 1 GB: nearly one to one up to 252 MB/s.
    let model = built_in("T10000D").unwrap();
    for rate in [100.0, 150.0, 200.0, 250.0] {
        let mut drive = Engine::new(&model, 1.0).accelerated(true);
        for _ in 0..100 {
            drive.write(1000.0, rate);
            drive.file_sync(1000.0);
        }
        let mean = drive.totals().host_mb / drive.now_s();
        assert!(mean > 0.9 * rate, "{mean} of {rate} MB/s");
        assert!(drive.totals().pad_mb <= 0.02 * 8.5e6);
    }
}

#[test]
fn a_buffer_of_rate_by_backhitch_hides_the_backhitch() {
    let model = DriveModel { buffer_mb: is(252.0 * 4.0 / 0.9), ..drive_a() };
    let mut drive = Engine::new(&model, 1.0);
    let taken = drive.offer(200.0, 3600.0);
    assert!((taken - 200.0 * 3600.0).abs() < 1e-3 && drive.totals().backhitches > 10);
    let small = DriveModel { buffer_mb: is(200.0), ..model };
    let mut drive = Engine::new(&small, 1.0);
    assert!(drive.offer(200.0, 3600.0) < 0.9 * 200.0 * 3600.0);
}

#[test]
fn a_hundred_hours_of_a_busy_drive_take_seconds() {
    let began = std::time::Instant::now();
    let model = built_in("LTO-6").unwrap();
    let mut drive = Engine::new(&model, 2.0);
    let mut files = 0u64;
    while drive.now_s() < 100.0 * 3600.0 {
        drive.write(5.0, 40.0 + (files % 7) as f64 * 40.0);
        files += 1;
        if files.is_multiple_of(50) {
            drive.file_sync(5.0);
        }
    }
    assert!(drive.totals().backhitches > 1000);
    assert!(began.elapsed().as_secs() < 10, "{:?}", began.elapsed());
}

/// What a host does.
#[derive(Debug, Clone)]
enum Act {
    Offer(f64, f64),
    Write(f64, f64),
    Sync(f64),
}

fn acts() -> impl Strategy<Value = Vec<Act>> {
    let act = prop_oneof![
        (0.0..600.0f64, 0.0..30.0f64).prop_map(|(rate, seconds)| Act::Offer(rate, seconds)),
        (0.001..2000.0f64, 1.0..600.0f64).prop_map(|(mb, rate)| Act::Write(mb, rate)),
        (0.001..200.0f64).prop_map(Act::Sync),
    ];
    prop::collection::vec(act, 1..60)
}

fn play(drive: &mut Engine, acts: &[Act]) {
    for act in acts {
        match *act {
            Act::Offer(rate, seconds) => drop(drive.offer(rate, seconds)),
            Act::Write(mb, rate) => drop(drive.write(mb, rate)),
            Act::Sync(mb) => drop(drive.file_sync(mb)),
        }
    }
}

fn any_model() -> impl Strategy<Value = DriveModel> {
    let names: Vec<_> = built_in_names().collect();
    prop::sample::select(names).prop_map(|name| built_in(name).unwrap())
}

proptest! {
    #[test]
    fn what_went_in_is_on_the_tape_or_in_the_buffer(
        model in any_model(), ratio in 1.0..10.0f64, accelerated in any::<bool>(), acts in acts()
    ) {
        let mut drive = Engine::new(&model, ratio).accelerated(accelerated);
        play(&mut drive, &acts);
        let totals = *drive.totals();
        let off = totals.host_mb / ratio - totals.tape_mb - drive.buffer_mb();
        prop_assert!(off.abs() <= 1e-6 * (1.0 + totals.host_mb), "{off} MB of {totals:?}");
        prop_assert!(drive.buffer_mb() <= model.buffer_mb.value + 1e-6);
    }

    #[test]
    fn no_rate_is_above_the_ceiling(model in any_model(), ratio in 1.0..10.0f64, acts in acts()) {
        let mut drive = Engine::new(&model, ratio);
        play(&mut drive, &acts);
        let totals = drive.totals();
        prop_assert!(totals.host_mb <= model.ceiling_mb_per_s.value * totals.elapsed_s + 1e-6);
        let native = model.native_mb_per_s.value;
        prop_assert!(totals.tape_mb <= native * totals.streaming_s + 1e-6);
    }

    #[test]
    fn more_buffer_is_never_worse(
        model in any_model(), ratio in 1.0..4.0f64, rate in 1.0..600.0f64, more in 1.0..8.0f64
    ) {
        // What the buffer itself takes is no throughput; an hour makes it small.
        let larger = DriveModel { buffer_mb: is(model.buffer_mb.value * more), ..model.clone() };
        let taken = |model: &DriveModel| Engine::new(model, ratio).offer(rate, 3600.0);
        let (small, large) = (taken(&model), taken(&larger));
        prop_assert!(large >= small * (1.0 - 1e-9), "{small} MB with {}, {large} with {}", model.buffer_mb.value, larger.buffer_mb.value);
    }

    #[test]
    fn the_same_gives_the_same(model in any_model(), acts in acts()) {
        let run = || {
            let mut drive = Engine::new(&model, 2.0);
            play(&mut drive, &acts);
            *drive.totals()
        };
        prop_assert_eq!(run(), run());
    }
}
