//! Speed matching and syncs, of the paper on the T10000.

use std::fmt::Write;

use capstan_tape::model::{Conversion, DriveModel, Engine, Figure, Origin, Speeds};

use super::drive;
use super::table::{Page, compared};

fn is<T>(value: T) -> Figure<T> {
    Figure { value, origin: Origin::Sourced("Maximizing Tape Performance with StorageTek T10000, 2013".to_owned()) }
}

/// A step of the host's rate, up and down.
pub(super) fn speed_matching(page: &mut Page) {
    page.say("## Speed matching, second by second (Maximizing Tape Performance with StorageTek T10000, 2013)");
    page.say(
        "The host steps from 90 to 270 MB/s. Drive A has one speed of 250 MB/s, and 2 GB of buffer. Drive B has 90 to 250 MB/s,\n\
         and 1 GB of buffer. A backhitch takes 4 s, a calibration 5 s. Rates are those of the tape since the step, as the paper\n\
         gives them for drive B.",
    );
    let a = DriveModel {
        native_mb_per_s: is(250.0),
        ceiling_mb_per_s: is(1000.0),
        speeds_mb_per_s: None,
        buffer_mb: is(2000.0),
        ..drive("T10000D")
    };
    let b = DriveModel {
        speeds_mb_per_s: Some(is(Speeds::Range { from: 90.0, to: 250.0 })),
        buffer_mb: is(1000.0),
        ..a.clone()
    };
    let mut rows = Vec::new();
    let mut engine = Engine::new(&b, 1.0);
    engine.offer(90.0, 60.0);
    let before = engine.totals().tape_mb;
    let mut last = 0.0;
    let mut mean_of_b = 0.0;
    for (at, paper) in [(5.0, 90.0), (9.0, 50.0), (10.0, 70.0), (15.0, 130.0)] {
        engine.offer(270.0, at - last);
        last = at;
        mean_of_b = (engine.totals().tape_mb - before) / at;
        rows.push(compared(format!("drive B, mean of {at:.0} s"), "MB/s", paper, mean_of_b));
    }
    // Wherever in starting and stopping at 90 MB/s the step meets drive A: ten rounds of 6.25 s.
    let met: Vec<Met> = (0..625).map(|at| Met::after(&a, 600.0 + f64::from(at) * 0.1)).collect();
    let least = met.iter().map(|met| met.least_host).fold(f64::INFINITY, f64::min);
    rows.push(compared("drive A, the least that the host sees of 15 s", "MB/s", 250.0, least));
    let above = |mean_of_a: f64| 100.0 * (mean_of_a / mean_of_b - 1.0);
    let (mut slowest, mut fastest, mut sum) = (f64::INFINITY, 0.0_f64, 0.0);
    for met in &met {
        (slowest, fastest, sum) = (slowest.min(met.mean_tape), fastest.max(met.mean_tape), sum + met.mean_tape);
    }
    rows.push(compared(
        "drive A against B over 15 s, if the tape of A moves at the step (85-92)",
        "%",
        85.0,
        above(fastest),
    ));
    for (name, model) in [("A", &a), ("B", &b)] {
        let mut engine = Engine::new(model, 1.0);
        engine.offer(270.0, 60.0);
        let least = (0..60).map(|_| engine.offer(90.0, 1.0)).fold(f64::INFINITY, f64::min);
        rows.push(compared(format!("drive {name}, down to 90 MB/s, the least of 60 s"), "MB/s", 90.0, least));
    }
    page.compare(&rows);
    let _ = writeln!(
        page.text,
        "Drive A accepts more than its 250 MB/s for as long as its buffer has room for the rest; the paper counts what goes to\n\
         the tape. The paper says that drive A writes at that rate from the first second on. It does so only if its tape moves\n\
         when the step comes: 250 against 130 MB/s are the 92 %, and 85 is what the paper prints. Drive A starts and stops at 90\n\
         MB/s. If it has just stopped when the step comes, the difference is {:.0} %. The mean of all moments is {:.0} %.\n",
        above(slowest),
        above(sum / met.len() as f64)
    );
}

/// What a step from 90 to 270 MB/s makes of a drive in 15 s.
struct Met {
    /// The least of what the host sees in a second, MB/s.
    least_host: f64,
    /// What goes to the tape, MB/s.
    mean_tape: f64,
}

impl Met {
    /// The step comes after so many seconds.
    fn after(model: &DriveModel, seconds: f64) -> Self {
        let mut engine = Engine::new(model, 1.0);
        engine.offer(90.0, seconds);
        let before = engine.totals().tape_mb;
        let least_host = (0..15).map(|_| engine.offer(270.0, 1.0)).fold(f64::INFINITY, f64::min);
        Self { least_host, mean_tape: (engine.totals().tape_mb - before) / 15.0 }
    }
}

fn synced(model: &DriveModel, accelerated: bool, conversion: Conversion) -> (f64, u64) {
    let mut engine = Engine::new(model, 1.0).accelerated(accelerated).converting(conversion);
    for _ in 0..1923 {
        engine.write(13.0, 1000.0);
        engine.file_sync(13.0);
    }
    engine.finish();
    (engine.now_s(), engine.totals().backhitches)
}

/// MB/s of LTO-6 in that paper at most, with files of 1 GB and a sync behind each.
const LTO6_SYNCED: f64 = 75.0;

/// A sync behind each file.
pub(super) fn syncs(page: &mut Page) {
    page.say("## A sync behind each file (the same paper)");
    page.say(
        "The job is 25 GB in files of 13 MB. Three figures of the models were derived from these ratios: the backhitch of LTO,\n\
         the virtual backhitch of TS1140, and the pad of small-file handling. So four ratios test three figures; the counts of\n\
         backhitches are a test by themselves.",
    );
    let (lto, lto_backhitches) = synced(&drive("LTO-6"), true, Conversion::None);
    let (t10000d, t10000d_backhitches) = synced(&drive("T10000D"), true, Conversion::None);
    let (ts1140, _) = synced(&drive("TS1140"), true, Conversion::None);
    let (converted, _) = synced(&drive("T10000D"), true, Conversion::FileSyncs);
    page.compare(&[
        compared("LTO-6: backhitches", "", 1923.0, lto_backhitches as f64),
        compared("T10000D, small-file handling: backhitches", "", 13.0, t10000d_backhitches as f64),
        compared("T10000D against LTO-6", "times", 8.0, lto / t10000d),
        compared("T10000D above TS1140 (virtual backhitch)", "%", 27.0, 100.0 * (ts1140 / t10000d - 1.0)),
        compared("Tape Application Accelerator against LTO-6", "times", 35.0, lto / converted),
        compared("Tape Application Accelerator against TS1140", "times", 6.0, ts1140 / converted),
    ]);
    page.say("T10000D writing files of 1 GB, each with a sync, follows the host:");
    let model = drive("T10000D");
    let rows = [100.0, 150.0, 200.0, 252.0].map(|rate| {
        let mut engine = Engine::new(&model, 1.0).accelerated(true);
        for _ in 0..100 {
            engine.write(1000.0, rate);
            engine.file_sync(1000.0);
        }
        compared(format!("host at {rate:.0} MB/s"), "MB/s", rate, engine.totals().host_mb / engine.now_s())
    });
    page.compare(&rows);
    let model = drive("LTO-6");
    let mut engine = Engine::new(&model, 1.0).accelerated(true);
    for _ in 0..100 {
        engine.write(1000.0, 252.0);
        engine.file_sync(1000.0);
    }
    let (found, alone_s) = (engine.totals().host_mb / engine.now_s(), 1000.0 / model.native_mb_per_s.value);
    page.say("LTO-6 with the same files, and the fastest host:");
    page.compare(&[compared("at most", "MB/s", LTO6_SYNCED, found)]);
    let _ = writeln!(
        page.text,
        "A file of 1 GB takes {alone_s:.2} s at the native rate. A sync behind it then costs {:.1} s in the paper, and {:.2} s in the model.\n\
         The model's figure follows from files of 13 MB: with the paper's figure behind each of them, they would take {:.0} times as\n\
         long as the paper says. The paper does not say what else its drive does at the end of a long file. Expect {LTO6_SYNCED:.0} MB/s if a\n\
         program puts a sync behind each.\n",
        1000.0 / LTO6_SYNCED - alone_s,
        1000.0 / found - alone_s,
        (1000.0 / LTO6_SYNCED - alone_s) / model.backhitch_s.value,
    );
}
