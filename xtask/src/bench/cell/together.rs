//! Measures runs that share a drive: eight at a time beside one that has all of their files; and a fast client beside
//! a slow one, which gives a megabyte a second, and alone.

use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use super::{Peer, rows};
use crate::bench::measure::Stage;

/// Runs at a time.
const RUNS: usize = 8;
/// What was written in earlier rounds is not kept.
const KEEP: &str = "keep = { last = 1 }\\n";
/// How long the slow client writes alone before the fast one begins.
const SLOW_ALONE: Duration = Duration::from_secs(2);
/// How often it is looked how a run does, which takes from it.
const LOOKS: Duration = Duration::from_secs(1);
/// How long anything may take.
const PATIENCE: Duration = Duration::from_secs(600);

/// Ratios of each round.
pub(super) struct Together {
    /// The rate of eight runs, of one.
    pub(super) eight: Vec<f64>,
    /// The rate of a fast client beside a slow one, of its rate alone.
    pub(super) beside_slow: Vec<f64>,
}

/// Measures, over a state directory of its own with one drive.
pub(super) fn together(stage: &Stage, program: &Path, rounds: usize) -> Result<Together> {
    // Small volumes: those of earlier rounds are used again.
    stage.run(&format!(
        "rm -rf $FOLDER; mkdir -p $FOLDER/machine; cd $FOLDER
         $CAPSTAN init --volume-size 1G --drives 1 -q
         find $TYPICAL -type f | awk '{{print > \"list-\" (NR % {RUNS})}}'
         for n in $(seq 0 {last}); do
             mkdir -p parts/$n; xargs -d '\\n' cp -l --backup=numbered -t parts/$n <list-$n
             printf '[policies.p%s]\\nsources = [\"%s\"]\\n{KEEP}' $n $FOLDER/parts/$n
         done >cell.toml
         printf '[policies.one]\\nsources = [\"%s\"]\\n{KEEP}' $FOLDER/parts >>cell.toml
         printf '[policies.fast]\\nclients = [\"bench\"]\\nsources = [\"%s\"]\\n{KEEP}' $TYPICAL >>cell.toml
         printf '[policies.slow]\\nclients = [\"bench\"]\\nstdin = \"slow\"\\nstdin_command = [\"slow\"]\\n{KEEP}' >>cell.toml
         echo 'until test -e '$FOLDER'/enough; do head -c 100000 /dev/urandom; sleep 0.1; done' >slow.sh
         printf '[scripts]\\nslow = [\"sh\", \"%s\"]\\n' $FOLDER/slow.sh >machine/client.toml
         $CAPSTAN policies apply cell.toml -q",
        last = RUNS - 1
    ))?;
    let parts: Vec<_> = (0..RUNS).map(|number| format!("p{number}")).collect();
    let parts: Vec<&str> = parts.iter().map(String::as_str).collect();
    let _server = Peer::server(stage, program, "together", true)?;
    let _client = Peer::client(stage, program, "together")?;
    let mut together = Together { eight: Vec::new(), beside_slow: Vec::new() };
    for round in 0..rounds {
        let (one, eight) = if round % 2 == 0 {
            let one = took(stage, &["one"])?;
            (one, took(stage, &parts)?)
        } else {
            let eight = took(stage, &parts)?;
            (took(stage, &["one"])?, eight)
        };
        together.eight.push(one.as_secs_f64() / eight.as_secs_f64());
        let (alone, beside) = if round % 2 == 0 {
            let alone = took(stage, &["fast"])?;
            (alone, beside_slow(stage)?)
        } else {
            let beside = beside_slow(stage)?;
            (took(stage, &["fast"])?, beside)
        };
        together.beside_slow.push(alone.as_secs_f64() / beside.as_secs_f64());
        stage.run("$CAPSTAN expire --yes -q")?;
        let (number, eight, beside) = (round + 1, together.eight[round], together.beside_slow[round]);
        println!("round {number} of {rounds}: eight at a time {eight:.3}, beside a slow client {beside:.3}");
    }
    Ok(together)
}

/// How long these policies take together, from the first beginning to the last end.
pub(in crate::bench) fn took(stage: &Stage, policies: &[&str]) -> Result<Duration> {
    let runs = enter(stage, policies)?;
    let done: Vec<Value> = runs.iter().map(|run| ended(stage, *run)).collect::<Result<_>>()?;
    let time = |row: &Value, key: &str| row[key].as_u64().with_context(|| format!("a run has no {key}: {row}"));
    let began = done.iter().map(|row| time(row, "started_ns")).collect::<Result<Vec<_>>>()?;
    let ended = done.iter().map(|row| time(row, "ended_ns")).collect::<Result<Vec<_>>>()?;
    let (began, ended) = (began.into_iter().min().unwrap_or(0), ended.into_iter().max().unwrap_or(0));
    Ok(Duration::from_nanos(ended.saturating_sub(began)))
}

/// How long the fast client takes while the slow one writes to the same drive.
fn beside_slow(stage: &Stage) -> Result<Duration> {
    stage.run("rm -f $FOLDER/enough")?;
    let slow = enter(stage, &["slow"])?[0];
    let running = || -> Result<Option<()>> {
        let queue = rows(stage, "queue")?;
        Ok(queue.iter().any(|row| row["run"] == slow && row["state"] == "running").then_some(()))
    };
    until("the slow client is backed up", running)?;
    thread::sleep(SLOW_ALONE);
    let fast = enter(stage, &["fast"])?[0];
    // It may end before anybody sees it running. There is one drive: ended beside the slow one, it has shared it.
    let done = ended(stage, fast)?;
    ensure!(running()?.is_some(), "the slow client has ended before the fast one");
    stage.run("touch $FOLDER/enough")?;
    ended(stage, slow)?;
    let (Some(began), Some(ended)) = (done["started_ns"].as_u64(), done["ended_ns"].as_u64()) else {
        anyhow::bail!("the run has no times: {done}")
    };
    Ok(Duration::from_nanos(ended.saturating_sub(began)))
}

pub(super) fn enter(stage: &Stage, policies: &[&str]) -> Result<Vec<u64>> {
    let entered = rows(stage, &format!("queue add {}", policies.join(" ")))?;
    entered.iter().map(|row| row["run"].as_u64().with_context(|| format!("no run was entered: {row}"))).collect()
}

pub(super) fn ended(stage: &Stage, run: u64) -> Result<Value> {
    let row = until("a run has ended", || {
        let done = rows(stage, "queue done --last 100")?;
        Ok(done.into_iter().find(|row| row["run"] == run))
    })?;
    ensure!(row["state"] == "done", "the run ended so: {row}");
    Ok(row)
}

fn until<T>(what: &str, mut look: impl FnMut() -> Result<Option<T>>) -> Result<T> {
    let began = Instant::now();
    loop {
        if let Some(found) = look()? {
            return Ok(found);
        }
        ensure!(began.elapsed() < PATIENCE, "{what}: not within {} s", PATIENCE.as_secs());
        thread::sleep(LOOKS);
    }
}
