//! Interleaving, of the paper on ExHPDM.

use std::fmt::Write;

use capstan_tape::model::{
    Afterwards, DriveModel, Engine, Figure, Origin, Restore, StartPosition, TapeExtent, plan_restore,
};

use super::drive;
use super::table::{Page, compared};

/// MB/s of one disk volume and of the channel, in the paper on ExHPDM.
const DISK_MB_PER_S: f64 = 10.5;
const CHANNEL_MB_PER_S: f64 = 120.0;

/// Volumes, the hours in which one after the other of them was dumped, and the blocks that are interleaved, bytes.
const VOLUMES: u64 = 128;
const HOURS: f64 = 5.0;
const BLOCK_BYTES: u64 = 256 * 1024;

fn interleaved(name: &str, connections: f64) -> f64 {
    let model = drive(name);
    let offered = (connections * DISK_MB_PER_S).min(CHANNEL_MB_PER_S);
    Engine::new(&model, 2.0).offer(offered, 3600.0) / 3600.0
}

/// Connections that are interleaved onto one tape, and what that does to restores.
pub(super) fn interleaving(page: &mut Page) {
    page.say("## Interleaving (Extended High Performance Data Mover, 2009)");
    page.say(
        "The source is 128 disk volumes of 10.5 MB/s each, through a channel of 120 MB/s, with data of 2:1 (both assumed: see\n\
         below). A dump takes less time as its rate goes up.",
    );
    let speed_up = |name: &str, connections: f64| interleaved(name, connections) / interleaved(name, 1.0);
    page.compare(&[
        compared("T10000A, 1 connection", "MB/s", 10.5, interleaved("T10000A", 1.0)),
        compared("T10000A, 8 connections (85-91)", "MB/s", 88.0, interleaved("T10000A", 8.0)),
        compared("T10000A, 16 connections", "MB/s", 120.0, interleaved("T10000A", 16.0)),
        compared("T10000B, 32 connections", "MB/s", 120.0, interleaved("T10000B", 32.0)),
        compared("T9840D, 8 connections", "MB/s", 50.0, interleaved("T9840D", 8.0)),
        compared("T9840D, 32 connections", "MB/s", 50.0, interleaved("T9840D", 32.0)),
        compared("T10000A: elapsed time, 1 against 32 (8-11)", "times", 9.5, speed_up("T10000A", 32.0)),
        compared("T9840D: elapsed time, 1 against 32", "times", 5.0, speed_up("T9840D", 32.0)),
    ]);
    restores(page);
}

fn restores(page: &mut Page) {
    page.say(
        "The next table has restores from such tapes. Here, too, the channel is in front of the drive. The drive reads over\n\
         blocks of other volumes if that is quicker than a locate, which it is for blocks of 256 KB. 128 volumes in 5 hours at\n\
         10.5 MB/s are 1.5 GB each.",
    );
    let origin = Origin::Estimate("the channel in front of it".to_owned());
    let behind_channel =
        DriveModel { ceiling_mb_per_s: Figure { value: CHANNEL_MB_PER_S, origin }, ..drive("T10000B") };
    let volume_bytes = HOURS * 3600.0 * DISK_MB_PER_S * 1e6 / VOLUMES as f64;
    // 2:1: a block takes half of its length.
    let (blocks, block_on_tape) = (volume_bytes as u64 / BLOCK_BYTES, BLOCK_BYTES / 2);
    let seconds = |connections: u64, wanted: u64, target: f64| {
        let extents: Vec<TapeExtent> = (0..blocks * connections)
            .filter(|block| block % connections < wanted)
            .map(|block| TapeExtent { begin: block * block_on_tape, len: block_on_tape })
            .collect();
        let (standing, afterwards) = (StartPosition::At(0), Afterwards::Stay);
        let target_mb_per_s = Some(target);
        plan_restore(&behind_channel, &Restore { extents: &extents, ratio: 2.0, target_mb_per_s, standing, afterwards })
            .there_s()
    };
    let together = |connections: u64| {
        let mb = (blocks * connections * BLOCK_BYTES) as f64 / 1e6;
        mb / seconds(connections, connections, connections as f64 * DISK_MB_PER_S)
    };
    let whole_tape = seconds(32, 32, f64::INFINITY);
    page.compare(&[
        compared("8 interleaved volumes, all restored together: dump speed (85-91)", "MB/s", 88.0, together(8)),
        compared("32 interleaved volumes, all restored together: dump speed", "MB/s", 120.0, together(32)),
        compared(
            "one of 32, part of their tape that goes by",
            "%",
            100.0,
            100.0 * seconds(32, 1, f64::INFINITY) / whole_tape,
        ),
    ]);
    let turn_s = behind_channel.geometry.turn_s.value;
    let _ = writeln!(
        page.text,
        "A locate takes {turn_s:.0} s to stop and to start. So reading over other blocks is quicker for up to {:.0} MB of them between two\n\
         pieces of the wanted volume. With extents longer than {:.0} MB, a restore of one of 32 volumes could locate over the 31\n\
         others.\n",
        turn_s * CHANNEL_MB_PER_S,
        turn_s * CHANNEL_MB_PER_S / 31.0,
    );
}
