//! Interleaving, of the paper on ExHPDM.

use capstan_tape::model::Engine;

use super::drive;
use super::table::{Page, compared};

/// MB/s of one disk volume and of the channel, in the paper on ExHPDM.
const DISK_MB_PER_S: f64 = 10.5;
const CHANNEL_MB_PER_S: f64 = 120.0;

fn interleaved(name: &str, connections: f64) -> f64 {
    let model = drive(name);
    let offered = (connections * DISK_MB_PER_S).min(CHANNEL_MB_PER_S);
    Engine::new(&model, 2.0).offer(offered, 3600.0) / 3600.0
}

/// Connections that are interleaved onto one tape, and what that does to restores.
pub(super) fn interleaving(page: &mut Page) {
    page.say("## Interleaving (Extended High Performance Data Mover, 2009)");
    page.say(
        "128 disk volumes of 10.5 MB/s each, through a channel of 120 MB/s, 2:1 (both assumed: see below). The time of a dump goes down as its rate\n\
         goes up.",
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
}
