//! Streams, restores and staging, of the paper on Data Protector.

use capstan_tape::model::Engine;

use super::drive;
use super::table::{Page, compared};

/// Streams to tape.
pub(super) fn streams(page: &mut Page) {
    page.say("## Streams (Data Protector 6.0 Advanced Backup to Disk performance, 2007)");
    page.say(
        "Typical files, LTO-3, blocks of 256 KB. What the paper's source gives to null with 1, 2 and 4 streams (31, 52 and 77 MB/s) goes into the\n\
         model of the drive, with the 2:1 of its data. A stream of a 4-way multiplexed tape is a quarter of what the tape is read at.",
    );
    let model = drive("LTO-3");
    let to_tape = |offered: f64| Engine::new(&model, 2.0).offer(offered, 3600.0) / 3600.0;
    let reading = (2.0 * model.native_mb_per_s.value).min(model.ceiling_mb_per_s.value);
    page.compare(&[
        compared("to tape, 1 stream", "MB/s", 30.0, to_tape(31.0)),
        compared("to tape, 2 streams", "MB/s", 50.0, to_tape(52.0)),
        compared("to tape, 4 streams", "MB/s", 74.0, to_tape(77.0)),
        compared("from memory, 2:1, 256 KB", "MB/s", 156.0, reading),
        compared("one LUN restored from a 4-way multiplexed tape", "MB/s", 37.0, reading / 4.0),
    ]);
}
