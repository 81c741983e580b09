//! Streams, restores and staging, of the paper on Data Protector.

use std::fmt::Write;

use capstan_tape::model::{Afterwards, Engine, Restore, RestoreSchedule, StartPosition, TapeExtent, plan_restore};

use super::drive;
use super::table::{Page, compared};
use crate::staging_model::{StagedJob, StagingModel};

/// The data sets: MB, and how many small files there are.
const TYPICAL_MB: f64 = 44_600.0;
const SMALL_MB: f64 = 44_900.0;
const SMALL_FILES: f64 = 5_084_604.0;
/// How both compress.
const RATIO: f64 = 2.0;
/// MB/s that the paper's 12 disks write as one RAID 0, and three of them.
const TWELVE_DISKS_WRITE: f64 = 79.0;
const THREE_DISKS_WRITE: f64 = 22.0;
/// MB/s to read the source by itself: small files, and typical ones, from one LUN.
const SMALL_SOURCE: f64 = 5.0;
const TYPICAL_SOURCE: f64 = 31.0;

/// Streams to tape.
pub(super) fn streams(page: &mut Page) {
    page.say("## Streams (Data Protector 6.0 Advanced Backup to Disk performance, 2007)");
    page.say(
        "The job is typical files to LTO-3, in blocks of 256 KB. The paper's source gives 31, 52 and 77 MB/s to null with 1, 2\n\
         and 4 streams. These rates go into the model of the drive, with the 2:1 of the paper's data.",
    );
    let model = drive("LTO-3");
    let to_tape = |offered: f64| Engine::new(&model, 2.0).offer(offered, 3600.0) / 3600.0;
    let from_memory = |ratio: f64| (ratio * model.native_mb_per_s.value).min(model.ceiling_mb_per_s.value);
    // The slowest speed at which the tape need not stop, in MB/s of the host.
    let streams_from = (1..80).map(f64::from).find(|rate| {
        let mut engine = Engine::new(&model, 1.0);
        engine.offer(*rate, 600.0);
        let before = engine.totals().backhitches;
        engine.offer(*rate, 600.0);
        engine.totals().backhitches == before
    });
    page.compare(&[
        compared("to tape, 1 stream", "MB/s", 30.0, to_tape(31.0)),
        compared("to tape, 2 streams", "MB/s", 50.0, to_tape(52.0)),
        compared("to tape, 4 streams", "MB/s", 74.0, to_tape(77.0)),
        compared("from memory, 2:1, 256 KB", "MB/s", 156.0, from_memory(2.0)),
        compared("from memory, zeros, 64 KB", "MB/s", 175.0, from_memory(100.0)),
        compared("matched rates, 1:1: the slowest", "MB/s", 27.0, streams_from.unwrap_or_default()),
    ]);
    page.say(
        "The ceiling and the matched rates are the paper's own figures. So these rows hold by construction; they are here for\n\
         completeness.",
    );
}

/// Restores from tape.
pub(super) fn restores(page: &mut Page) {
    page.say("## Restores (the same paper)");
    page.say(
        "The model of the drive plans these restores: load, locate, read, rewind, unload. The targets are the paper's own arrays.\n\
         12 disks as one RAID 0 write 79 MB/s, three of them 22; four times three are assumed to write no more than the twelve.\n\
         For one LUN of a 4-way multiplexed tape, the blocks have 256 KB, and every fourth is wanted; the drive reads over the\n\
         others. The 8 KB file may be anywhere among the small files; the figure is the mean of a thousand places.",
    );
    let model = drive("LTO-3");
    let on_tape = |mb: f64| (mb * 1e6 / RATIO) as u64;
    let planned = |extents: &[TapeExtent], target_mb_per_s: Option<f64>, standing: StartPosition| {
        let afterwards = Afterwards::Unload;
        plan_restore(&model, &Restore { extents, ratio: RATIO, target_mb_per_s, standing, afterwards })
    };
    let rate = |extents: &[TapeExtent], target: f64| {
        let mb: f64 = extents.iter().map(|extent| extent.len as f64 * RATIO / 1e6).sum();
        mb / planned(extents, Some(target), StartPosition::At(0)).there_s()
    };
    let typical = [TapeExtent { begin: 0, len: on_tape(TYPICAL_MB) }];
    let block = on_tape(0.262_144);
    let every_fourth: Vec<TapeExtent> =
        (0..on_tape(TYPICAL_MB) / block / 4).map(|at| TapeExtent { begin: at * 4 * block, len: block }).collect();
    let one_file = |share: f64| {
        let begin = (share * on_tape(SMALL_MB) as f64) as u64;
        planned(&[TapeExtent { begin, len: on_tape(0.008) }], None, StartPosition::Unloaded)
    };
    let mean = |seconds: fn(&RestoreSchedule) -> f64| {
        (0..1000).map(|at| seconds(&one_file((f64::from(at) + 0.5) / 1000.0))).sum::<f64>() / 1000.0
    };
    page.compare(&[
        compared("typical files to one LUN, alone", "MB/s", 84.0, rate(&typical, TWELVE_DISKS_WRITE)),
        compared(
            "typical files to four LUNs",
            "MB/s",
            75.0,
            rate(&typical, (4.0 * THREE_DISKS_WRITE).min(TWELVE_DISKS_WRITE)),
        ),
        compared("one LUN of a 4-way multiplexed tape", "MB/s", 37.0, rate(&every_fourth, TWELVE_DISKS_WRITE)),
        compared("one file of 8 KB, until the cartridge is out again", "s", 110.0, mean(RestoreSchedule::total_s)),
    ]);
    let files = 20e6;
    let all = [TapeExtent { begin: 0, len: on_tape(SMALL_MB / SMALL_FILES * files) }];
    let tape_s = planned(&all, None, StartPosition::Unloaded).total_s();
    let _ = writeln!(
        page.text,
        "The file itself is restored after {:.0} s; the paper does not say which of the two its 110 s count.\n\n\
         In the paper, the restore of 20 million small files was given up after 30 hours. The tape accounts for {:.0} minutes of\n\
         them. Most of the time is what it costs the target to create a file, and no figure of that was published. It was at\n\
         least {:.1} ms here, while reading a file costs {:.1} ms. A restore counts it as part of the target's rate\n\
         (`target_mb_per_s`): with {:.1} ms a file, that rate is less than {:.1} MB/s.\n",
        mean(RestoreSchedule::there_s),
        tape_s / 60.0,
        (30.0 * 3600.0 - tape_s) / files * 1e3,
        SMALL_MB / SMALL_FILES / SMALL_SOURCE * 1e3,
        (30.0 * 3600.0 - tape_s) / files * 1e3,
        SMALL_MB / SMALL_FILES / ((30.0 * 3600.0 - tape_s) / files),
    );
}

/// Seconds of a processor that a block costs: 73 MB/s in blocks of 64 KB take 47 % of two processors, 74 MB/s of 256 KB
/// 24 %.
fn block_s() -> f64 {
    let (processors, short, long) = (2.0, 73.0 / 0.065_536, 74.0 / 0.262_144);
    processors * (0.47 - 0.24) / (short - long)
}

/// A file library between source and tape.
pub(super) fn staging(page: &mut Page) {
    page.say("## Disk staging (the same paper)");
    let library = StagingModel { write_mb_per_s: 32.0, read_mb_per_s: 32.0, block_s: block_s() };
    let _ = writeln!(
        page.text,
        "The model has three figures. The first two are published: the array, RAID 5 of 6 disks, writes and reads 32 and 32 MB/s.\n\
         The paper does not say which array held the library. Restores from it reach 34 MB/s, and of the arrays with one LUN this\n\
         one reads fastest. The third is what a block costs its reader. It follows from the processors' share: backups in blocks\n\
         of 64 KB take 47 %, and those of 256 KB take 24, which makes {:.2} ms a block. The source gives what the paper's source\n\
         gives: 31 MB/s of typical files to null, 5 of small ones. If the paper does not give the size of a block, it is assumed\n\
         to be 64 KB for small files, the program's default, and 256 KB for typical ones.\n",
        library.block_s * 1e3
    );
    let drive_takes = (RATIO * drive("LTO-3").native_mb_per_s.value).min(drive("LTO-3").ceiling_mb_per_s.value);
    let job = |source_mb_per_s, block_kib: f64| StagedJob {
        source_mb_per_s,
        taker_mb_per_s: drive_takes,
        block_bytes: block_kib * 1024.0,
    };
    let (typical, typical_64, small) = (job(TYPICAL_SOURCE, 256.0), job(TYPICAL_SOURCE, 64.0), job(SMALL_SOURCE, 64.0));
    let restored = StagedJob { taker_mb_per_s: TWELVE_DISKS_WRITE, ..typical };
    page.compare(&[
        compared("to file library, typical, 64 KB, depots of 50 GB", "MB/s", 29.0, library.takes(&typical_64)),
        compared("to file library, typical, 64 KB, depots of 10 GB", "MB/s", 30.0, library.takes(&typical_64)),
        compared("to file library, typical, 256 KB, depots of 50 GB", "MB/s", 31.0, library.takes(&typical)),
        compared("to file library, typical, 256 KB, depots of 10 GB", "MB/s", 26.0, library.takes(&typical)),
        compared("to file library, small (5-6)", "MB/s", 5.5, library.takes(&small)),
        compared("object copy to tape, typical, 64 KB", "MB/s", 27.0, library.gives(&typical_64)),
        compared("object copy to tape, typical, 256 KB", "MB/s", 33.0, library.gives(&typical)),
        compared("object copy to tape, small", "MB/s", 25.0, library.gives(&small)),
        compared("restore from file library, typical (29-34)", "MB/s", 31.5, library.gives(&restored)),
    ]);
    page.say(
        "Depots of 10 and 50 GB make no difference to the rate in the model, and none that the paper's own figures agree on. They\n\
         change the time until all is on tape: a complete depot goes to tape while the next one is filled, as far as the spindles\n\
         have time for both. Here the source takes nearly all of their time, so short depots gain little.",
    );
    page.text.push_str("| 44.6 GB of typical files, blocks of 256 KB | minutes until all is on tape |\n|---|--:|\n");
    for gb in [50.0, 10.0, 1.0] {
        let minutes = library.elapsed_s(&typical, TYPICAL_MB, gb * 1e3) / 60.0;
        let _ = writeln!(page.text, "| depots of {gb:.0} GB | {minutes:.0} |");
    }
    page.text.push('\n');
}
