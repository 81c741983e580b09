//! Measures what a server needs that has a large cell: clients by the thousand that have nothing to do, and then runs
//! by the thousand that are at work.
//!
//! ```text
//! examples/cell_crowd: 10,000 certificates, connections and questions -.
//! capstan client run, 8 of them: 1,000 runs at 4 kB/s -> capstan mover run, 16 drives     capstan server run: time, memory
//! ```
//! All of them are on this machine, and the processor time and memory of the server alone are counted.

use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, ExitCode, Stdio};
use std::time::{Duration, Instant};
use std::{fs, thread};

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use super::{IDLE_BYTES_MAX, IDLE_SHARE_MAX, Peer, rows};
use crate::amount::{grouped, shown_bytes};
use crate::bench::machine;
use crate::bench::measure::{Stage, Usage};

#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// Scratch folder [default: bench-work]
    #[arg(long, value_name = "DIR")]
    work: Option<PathBuf>,
    /// Clients that have nothing to do
    #[arg(long, default_value_t = 10_000)]
    clients: u32,
    /// Runs that are at work
    #[arg(long, default_value_t = 1_000)]
    runs: usize,
    /// Seconds for which each is watched
    #[arg(long, default_value_t = 60)]
    seconds: u64,
}

/// The clients whose runs are at work, and the drives that they share: at most 64 runs share one.
const WORKERS: usize = 8;
const RUNS_PER_DRIVE: usize = 64;
/// Bytes a second that each run may send, and the length of its file, which does not compress.
const RATE: u64 = 4_000;
const FILE_LEN: u64 = 3_000_000;
/// How long anything may take to begin.
const PATIENCE: Duration = Duration::from_secs(300);
const LOOKS: Duration = Duration::from_secs(1);

/// The process of the clients that have nothing to do.
struct Crowd {
    child: Child,
    asks: ChildStdin,
    answers: BufReader<std::process::ChildStdout>,
}

impl Crowd {
    fn begin(root: &Path, state: &Path, address: &str, clients: u32) -> Result<Self> {
        let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
        let mut build = Command::new(cargo);
        build.current_dir(root).args(["build", "--quiet", "--release", "--locked"]);
        build.args(["--package", "capstan-server", "--example", "cell_crowd"]);
        let status = build.status().with_context(|| format!("run {build:?}"))?;
        ensure!(status.success(), "{build:?}: {status}");
        let program = std::env::current_exe()?.with_file_name("examples").join("cell_crowd");
        let mut command = Command::new(program);
        command.arg(state).args([address, &clients.to_string()]).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().context("start the crowd")?;
        let (asks, answers) = (child.stdin.take(), child.stdout.take());
        let (asks, answers) = (asks.context("its input")?, BufReader::new(answers.context("its output")?));
        let mut crowd = Self { child, asks, answers };
        for word in ["enrolled", "connected"] {
            let line = crowd.line()?;
            ensure!(line.starts_with(word), "the crowd says: {line}");
            println!("{} clients: {line}", grouped(clients.into()));
        }
        Ok(crowd)
    }

    fn line(&mut self) -> Result<String> {
        let mut line = String::new();
        ensure!(self.answers.read_line(&mut line)? > 0, "the crowd has ended");
        Ok(line.trim().to_owned())
    }

    /// Answers that its clients had since they were asked last, and how often one of them was cut off.
    fn counts(&mut self) -> Result<(u64, u64)> {
        writeln!(self.asks)?;
        let line = self.line()?;
        let numbers: Vec<u64> = line.split(' ').filter_map(|word| word.parse().ok()).collect();
        let [answers, failures] = numbers[..] else { anyhow::bail!("the crowd says: {line}") };
        Ok((answers, failures))
    }
}

impl Drop for Crowd {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

pub(crate) fn run(root: &Path, arguments: &Arguments) -> Result<ExitCode> {
    let work = arguments.work.clone().unwrap_or_else(|| root.join("bench-work"));
    fs::create_dir_all(&work).with_context(|| format!("make {}", work.display()))?;
    let work = work.canonicalize()?;
    let program = std::env::current_exe()?.with_file_name("capstan");
    let (mut stage, folder) = (Stage::new(&work), work.join("cell/crowd"));
    stage.set("CAPSTAN", &program);
    stage.set("FOLDER", &folder);
    stage.set("CAPSTAN_STATE", folder.join("state"));
    stage.set("CAPSTAN_KEY_FILE", folder.join("key"));
    let drives = arguments.runs.div_ceil(RUNS_PER_DRIVE);
    prepare(&stage, arguments.runs, drives)?;
    let server = Peer::server(&stage, &program, "crowd", true)?;
    let _mover = Peer::mover_of(&stage, &program, "crowd", drives, "")?;
    let workers = (0..WORKERS).map(|number| Peer::client_named(&stage, &program, "crowd", &format!("worker{number}")));
    let _workers = workers.collect::<Result<Vec<_>>>()?;
    let alone = watch(&server, arguments.seconds)?;
    let address = stage.run("sed -n 1p $FOLDER/worker0/cell/server")?;
    let mut crowd = Crowd::begin(root, &folder.join("state"), address.trim(), arguments.clients)?;
    crowd.counts()?;
    let idle = watch(&server, arguments.seconds)?;
    let (answers, failures) = crowd.counts()?;
    ensure!(failures == 0, "{failures} clients were cut off");
    begin_runs(&stage, arguments.runs)?;
    let busy = watch(&server, arguments.seconds)?;
    let (_, cut_off) = crowd.counts()?;
    let left = at_work(&stage)?;
    ensure!(left == arguments.runs, "{left} of {} runs are at work still", arguments.runs);

    println!("\na large cell, {}", jiff::Zoned::now().strftime("%Y-%m-%d %H:%M %Z"));
    for line in machine::describe_machine(&stage) {
        println!("- {line}");
    }
    let each_second = answers as f64 / arguments.seconds as f64;
    println!("- the clients asked {each_second:.0} times a second; {cut_off} were cut off while the runs began\n");
    let share = |usage: &Usage| usage.processor.as_secs_f64() / usage.wall.as_secs_f64();
    let clients = grouped(arguments.clients.into());
    let runs = grouped(arguments.runs as u64);
    println!("| what | processor | memory | |\n|---|--:|--:|---|");
    let mut missed = 0;
    for (what, usage, is_floor) in [
        (format!("a server of {WORKERS} clients and {runs} policies that waits"), &alone, false),
        (format!("with {clients} clients that wait"), &idle, false),
        (format!("and with {runs} runs at work"), &busy, true),
    ] {
        let is_met = share(usage) <= IDLE_SHARE_MAX && usage.peak_bytes <= IDLE_BYTES_MAX;
        missed += usize::from(is_floor && !is_met);
        let verdict = match (is_floor, is_met) {
            (false, _) => "",
            (true, true) => "pass",
            (true, false) => "**missed**",
        };
        println!("| {what} | {:.3} | {} | {verdict} |", share(usage), shown_bytes(usage.peak_bytes));
    }
    println!("\nthe floor: at most {IDLE_SHARE_MAX} of a processor, and {}", shown_bytes(IDLE_BYTES_MAX));
    drop((crowd, server));
    stage.run("rm -rf $FOLDER")?;
    Ok(if missed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// A state directory whose drives are those of a mover, with so many policies of one file each.
fn prepare(stage: &Stage, runs: usize, drives: usize) -> Result<()> {
    stage.run(&format!(
        "rm -rf $FOLDER; mkdir -p $FOLDER; cd $FOLDER
         $CAPSTAN init --volume-size 1G --drives {drives} -q
         sed -i -e 's/^mover = .*/mover = \"bench\"/' -e 's/^runs_per_drive = .*/runs_per_drive = {RUNS_PER_DRIVE}/' \
             -e 's/^runs_per_client = .*/runs_per_client = 0/' state/capstan.toml
         head -c {FILE_LEN} /dev/urandom >file
         for n in $(seq 0 {last}); do
             ln file file$n
             printf '[policies.p%s]\\nclients = [\"worker%s\"]\\nconnections = 1\\n' $n $((n % {WORKERS}))
             printf 'bandwidth = [\"{RATE}\"]\\nsources = [\"%s\"]\\n' $FOLDER/file$n
         done >cell.toml
         $CAPSTAN policies apply cell.toml -q",
        last = runs - 1
    ))?;
    Ok(())
}

/// Has all policies run, and waits until each run is at work.
fn begin_runs(stage: &Stage, runs: usize) -> Result<()> {
    let began = Instant::now();
    stage.run(&format!("$CAPSTAN queue add $(seq -f p%g 0 {}) -q", runs - 1))?;
    loop {
        let begun = at_work(stage)?;
        if begun == runs {
            println!("{} runs at work after {:.0} s", grouped(runs as u64), began.elapsed().as_secs_f64());
            return Ok(());
        }
        ensure!(began.elapsed() < PATIENCE, "{begun} of {runs} runs have begun within {} s", PATIENCE.as_secs());
        thread::sleep(LOOKS);
    }
}

fn at_work(stage: &Stage) -> Result<usize> {
    Ok(rows(stage, "queue")?.iter().filter(|row: &&Value| row["state"] == "running").count())
}

/// What a server needs for so many seconds.
fn watch(server: &Peer, seconds: u64) -> Result<Usage> {
    let (before, began) = (server.account()?, Instant::now());
    thread::sleep(Duration::from_secs(seconds));
    let after = server.account()?;
    let processor = after.processor.saturating_sub(before.processor);
    Ok(Usage { wall: began.elapsed(), processor, ..after })
}
