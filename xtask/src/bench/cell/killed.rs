//! Measures what a client sends again that was killed: all that it sends, with and without kills.

use std::fs;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use rustix::process::{Pid, Signal, kill_process};

use super::together::{ended, enter, took};
use super::{MEMBER, Peer};
use crate::bench::measure::Stage;

/// Between checkpoints.
const CHECKPOINT_MIB: u64 = 64;
/// How often the client is killed, and after which share of all bytes each time.
const KILLS: u32 = 3;
const KILLED_AFTER: f64 = 0.2;
/// How often it is looked how much it has sent.
const LOOKS: Duration = Duration::from_millis(2);
const PATIENCE: Duration = Duration::from_secs(120);

/// A folder of one large file, in the words of the shell.
pub(super) const ONE_FILE: &str = "$FOLDER/one";

/// Bytes sent again for each time that the client was killed, of those between two checkpoints.
pub(super) fn killed(stage: &Stage, program: &Path, source: &str) -> Result<f64> {
    stage.run(&format!(
        "rm -rf $FOLDER; mkdir -p {ONE_FILE}; cd $FOLDER
         [ {source} != {ONE_FILE} ] || head -c 800000000 /dev/urandom >{ONE_FILE}/file
         $CAPSTAN init --volume-size 20G --drives 1 -q
         sed -i 's/^checkpoint_mib = .*/checkpoint_mib = {CHECKPOINT_MIB}/' $CAPSTAN_STATE/capstan.toml
         for n in whole killed; do
             printf '[policies.%s]\\nclients = [\"{MEMBER}\"]\\ncompression = 0\\nretries = 10\\nretry_after = \"1s\"\\n' $n
             printf 'sources = [\"%s\"]\\n' {source}
         done >cell.toml
         $CAPSTAN policies apply cell.toml -q"
    ))?;
    let _server = Peer::server(stage, program, "killed", true)?;
    let mut client = Peer::client(stage, program, "killed")?;
    let machine = stage.work.join("cell").join("killed").join("machine");
    let before = sent(&client)?;
    took(stage, &["whole"])?;
    let whole = sent(&client)? - before;

    let run = enter(stage, &["killed"])?[0];
    let mut all = 0;
    for _ in 0..KILLS {
        let from = sent(&client)?;
        let began = Instant::now();
        while ((sent(&client)? - from) as f64) < whole as f64 * KILLED_AFTER {
            ensure!(began.elapsed() < PATIENCE, "the client sends nothing");
            thread::sleep(LOOKS);
        }
        // Between the look and its end it sends nothing more.
        let process = Pid::from_raw(client.id().cast_signed()).context("a process has a number")?;
        kill_process(process, Signal::STOP)?;
        all += sent(&client)? - from;
        drop(client);
        client = Peer::again(program, "client", &machine)?;
    }
    let from = sent(&client)?;
    ended(stage, run)?;
    all += sent(&client)? - from;
    let again = all.saturating_sub(whole) as f64 / f64::from(KILLS);
    println!("{} MB sent whole, {} MB with {KILLS} kills", whole / 1_000_000, all / 1_000_000);
    stage.run("rm -rf $FOLDER")?;
    Ok(again / (CHECKPOINT_MIB << 20) as f64)
}

/// Bytes that a process has written to files and sockets.
fn sent(peer: &Peer) -> Result<u64> {
    let text = fs::read_to_string(format!("/proc/{}/io", peer.id())).context("the client has ended")?;
    let written = text.lines().find_map(|line| line.strip_prefix("wchar: "));
    Ok(written.context("wchar in /proc/PID/io")?.parse()?)
}
