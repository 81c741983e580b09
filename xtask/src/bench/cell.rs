//! Measures what a cell costs: a backup through a server, one by a client over TLS, and one by a client to a mover in a
//! process of its own or in the client's, beside the command, in turns; runs that share a drive; a backup that has two
//! drives; restores of one volume; a client that is killed; a client beside bare sockets; and a server that waits.
//!
//! ```text
//! round 1: capstan backup | by the server | by a client | to a mover | LAN-free -> round 2: backwards -> medians
//! 1,000 policies that are due next year -> the server's processor time and memory while nothing happens
//! ```
//! Of a run the time from its beginning to its end counts, and the processor time that the server, the client and the
//! mover needed meanwhile.
//! What a run waits before it begins is no cost of the data path: the server looks twice a second.

pub(crate) mod crowd;
mod killed;
mod restores;
mod several;
mod together;
mod wire;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;

use super::machine;
use super::measure::{Stage, Usage, account};
use crate::amount::{grouped, parse_bytes, shown_bytes};
use killed::{ONE_FILE, killed};
use restores::restores;
use several::{Several, several};
pub(super) use together::took;
use together::{Together, together};
use wire::wire;

#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// Scratch folder; data sets in it are used again, and one in memory is quieter [default: bench-work]
    #[arg(long, value_name = "DIR")]
    work: Option<PathBuf>,
    /// Files of 4-16 KB
    #[arg(long, default_value_t = 50_000)]
    small_files: u64,
    /// Bytes in files of 64 KB-64 MB
    #[arg(long, default_value = "1G", value_parser = parse_bytes)]
    typical_bytes: u64,
    /// Backups of each kind
    #[arg(long, default_value_t = 7)]
    rounds: usize,
}

/// The server's rate, of the command's.
const RATE_MIN: f64 = 0.97;
/// The processor time of a backup by a client, to a mover in another process or to the server's, for as many bytes, of
/// the command's.
const CLIENT_PROCESSOR_MAX: f64 = 1.4;
/// The rate of runs that share a drive, of that of one alone.
const TOGETHER_MIN: f64 = 0.95;
/// The rate of one backup to two drives, and of a restore from them, of one drive's.
const TWO_DRIVES_MIN: f64 = 1.6;
/// The rate of four restores of one volume at the same time, of one after the other.
const RESTORES_MIN: f64 = 2.0;
/// The rate of a client to a mover, uncompressed and to nowhere, of bare TLS sockets, as many.
const WIRE_MIN: f64 = 0.85;
/// What a client that was killed sends again, of what lies between checkpoints.
const SENT_AGAIN_MAX: f64 = 1.0;
/// How often it is looked whether a run has ended: its times are its own, and who looks takes from it.
const LOOKS: Duration = Duration::from_secs(2);
/// Drives at their pace are steadier than the machine.
const PACED_ROUNDS_MAX: usize = 3;
/// Policies of the server that waits, and how long it is watched.
const POLICIES: usize = 1000;
const WATCHED: Duration = Duration::from_secs(20);
/// The share of a processor, and the memory, that a server may need which does nothing: of 1,000 sessions and 10,000
/// clients.
const IDLE_SHARE_MAX: f64 = 0.2;
const IDLE_BYTES_MAX: u64 = 1 << 30;

/// The name of a client or mover that is the only one.
const MEMBER: &str = "bench";

/// A server or a client; it ends with its value.
pub(super) struct Peer(Child);

impl Peer {
    /// A server over the state directory of a stage.
    pub(super) fn server(stage: &Stage, program: &Path, name: &str, listens: bool) -> Result<Self> {
        let mut command = Command::new(program);
        command.args(["server", "run", "-q", "--state"]).arg(stage.work.join("cell").join(name).join("state"));
        command.arg("--key-file").arg(stage.work.join("cell").join(name).join("key"));
        if listens {
            command.args(["--listen", "127.0.0.1:0"]);
        }
        Ok(Self(command.stdin(Stdio::null()).spawn().context("start a server")?))
    }

    /// A client of the server of a stage, which has just joined it.
    fn client(stage: &Stage, program: &Path, name: &str) -> Result<Self> {
        Self::client_named(stage, program, name, MEMBER)
    }

    /// The same of a client of this name.
    pub(super) fn client_named(stage: &Stage, program: &Path, name: &str, client: &str) -> Result<Self> {
        Self::member(stage, program, name, ("client", client))
    }

    /// A mover with one drive, in the same way.
    fn mover(stage: &Stage, program: &Path, name: &str) -> Result<Self> {
        Self::mover_of(stage, program, name, 1, "")
    }

    /// A mover with one drive, and a client in the same process.
    fn mover_and_client(stage: &Stage, program: &Path, name: &str) -> Result<Self> {
        let client = join(stage, program, name, ("client", MEMBER))?;
        Self::mover_of(stage, program, name, 1, &format!("client = {client:?}\n"))
    }

    fn mover_of(stage: &Stage, program: &Path, name: &str, drives: usize, settings: &str) -> Result<Self> {
        let machine = stage.work.join("cell").join(name).join("tapes");
        fs::create_dir_all(&machine)?;
        let text = format!("listen = \"127.0.0.1:0\"\n{settings}[library]\ndrives = {drives}\n");
        fs::write(machine.join("mover.toml"), text)?;
        Self::member(stage, program, name, ("mover", MEMBER))
    }

    fn member(stage: &Stage, program: &Path, name: &str, (kind, of): (&str, &str)) -> Result<Self> {
        Self::again(program, kind, &join(stage, program, name, (kind, of))?)
    }

    /// A member that has joined before.
    fn again(program: &Path, kind: &str, machine: &Path) -> Result<Self> {
        let mut command = Command::new(program);
        command.args([kind, "run", "-q", "--state"]).arg(machine);
        Ok(Self(command.stdin(Stdio::null()).spawn().with_context(|| format!("start a {kind}"))?))
    }

    fn account(&self) -> Result<Usage> {
        account(self.id())
    }

    /// Its process.
    pub(super) fn id(&self) -> u32 {
        self.0.id()
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        // What it serves is scratch.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Has a client or a mover join the server of a stage; its state directory.
fn join(stage: &Stage, program: &Path, name: &str, (kind, of): (&str, &str)) -> Result<PathBuf> {
    let machine = stage.work.join("cell").join(name).join(match (kind, of) {
        ("mover", _) => "tapes",
        (_, MEMBER) => "machine",
        (_, of) => of,
    });
    let began = Instant::now();
    loop {
        let enrolled: Value = serde_json::from_str(&stage.run(&format!("$CAPSTAN {kind} enrol {of} --json"))?)?;
        if let (Some(address), Some(passphrase)) = (enrolled["address"].as_str(), enrolled["passphrase"].as_str()) {
            let joins = Command::new(program)
                .args([kind, "join", address, "--name", of, "-q", "--replace", "--state"])
                .arg(&machine)
                .env("CAPSTAN_ENROLMENT_PASSPHRASE", passphrase)
                .stdin(Stdio::null())
                .status()
                .context("join the server")?;
            if joins.success() {
                return Ok(machine);
            }
        }
        ensure!(began.elapsed() < Duration::from_secs(30), "no {kind} could join the server");
        thread::sleep(Duration::from_millis(200));
    }
}

pub(crate) fn run(root: &Path, arguments: &Arguments) -> Result<ExitCode> {
    ensure!(arguments.rounds > 0, "there is at least one round");
    let work = arguments.work.clone().unwrap_or_else(|| root.join("bench-work"));
    fs::create_dir_all(&work).with_context(|| format!("make {}", work.display()))?;
    let work = work.canonicalize()?;
    let program = std::env::current_exe()?.with_file_name("capstan");
    let mut stages = ["command", "served", "client", "mover", "lan-free", "together", "several", "restores", "killed"]
        .map(|name| {
            let mut stage = Stage::new(&work);
            let folder = work.join("cell").join(name);
            stage.set("CAPSTAN", &program);
            stage.set("FOLDER", &folder);
            stage.set("CAPSTAN_STATE", folder.join("state"));
            stage.set("CAPSTAN_KEY_FILE", folder.join("key"));
            stage
        });
    let mut sizes = None;
    for stage in &mut stages {
        sizes = Some(super::make_data_sets(stage, arguments.small_files, arguments.typical_bytes)?);
        stage.run("rm -rf $FOLDER; mkdir -p $FOLDER; $CAPSTAN init --volume-size 20G --drives 1 -q")?;
    }
    let [command, served, client, mover, lan_free, shared, apart, restoring, dying] = &stages;
    served.run(
        "printf '[policies.all]\\nsources = [\"%s\", \"%s\"]\\n' $SMALL $TYPICAL >$FOLDER/cell.toml
         $CAPSTAN policies apply $FOLDER/cell.toml -q",
    )?;
    for stage in [mover, lan_free] {
        stage.run("sed -i 's/^mover = .*/mover = \"bench\"/' $CAPSTAN_STATE/capstan.toml")?;
    }
    for stage in [client, mover, lan_free] {
        stage.run(
            "printf '[policies.all]\\nclients = [\"bench\"]\\nconnections = %s\\nsources = [\"%s\", \"%s\"]\\n' \
             $(nproc) $SMALL $TYPICAL >$FOLDER/cell.toml
         $CAPSTAN policies apply $FOLDER/cell.toml -q",
        )?;
    }
    let server = [Peer::server(served, &program, "served", false)?];
    let remote_server = Peer::server(client, &program, "client", true)?;
    let remote = [Peer::client(client, &program, "client")?, remote_server];
    let mover_server = Peer::server(mover, &program, "mover", true)?;
    let to_mover = [Peer::mover(mover, &program, "mover")?, Peer::client(mover, &program, "mover")?, mover_server];
    let (mut rates, mut processors) = (Vec::new(), Vec::new());
    let (mut client_rates, mut client_processors) = (Vec::new(), Vec::new());
    let here_server = Peer::server(lan_free, &program, "lan-free", true)?;
    let here = [Peer::mover_and_client(lan_free, &program, "lan-free")?, here_server];
    let (mut mover_rates, mut mover_processors) = (Vec::new(), Vec::new());
    let (mut here_rates, mut here_processors) = (Vec::new(), Vec::new());
    for round in 0..arguments.rounds {
        let (direct, run, over, to, beside) = if round % 2 == 0 {
            let direct = by_command(command)?;
            let run = by_server(served, &server)?;
            let over = by_server(client, &remote)?;
            let to = by_server(mover, &to_mover)?;
            (direct, run, over, to, by_server(lan_free, &here)?)
        } else {
            let beside = by_server(lan_free, &here)?;
            let to = by_server(mover, &to_mover)?;
            let over = by_server(client, &remote)?;
            let run = by_server(served, &server)?;
            (by_command(command)?, run, over, to, beside)
        };
        let rate = |usage: &Usage| direct.wall.as_secs_f64() / usage.wall.as_secs_f64();
        let processor = |usage: &Usage| usage.processor.as_secs_f64() / direct.processor.as_secs_f64();
        rates.push(rate(&run));
        processors.push(processor(&run));
        client_rates.push(rate(&over));
        client_processors.push(processor(&over));
        mover_rates.push(rate(&to));
        mover_processors.push(processor(&to));
        here_rates.push(rate(&beside));
        here_processors.push(processor(&beside));
        let (number, of) = (round + 1, arguments.rounds);
        let (own, client, mover, here) = (rates[round], client_rates[round], mover_rates[round], here_rates[round]);
        println!(
            "round {number} of {of}: {own:.3}, by a client {client:.3}, to a mover {mover:.3}, LAN-free {here:.3}"
        );
    }
    drop((server, remote, to_mover, here));
    // What they have written is not needed any more, and may be in memory.
    for stage in [command, client, mover, lan_free] {
        stage.run("rm -rf $FOLDER")?;
    }
    let together = together(shared, &program, arguments.rounds)?;
    let Several { backup, restore } = several(apart, arguments.rounds.min(PACED_ROUNDS_MAX))?;
    let restores = restores(restoring, &program, arguments.rounds.min(PACED_ROUNDS_MAX))?;
    let again = killed(dying, &program, "$TYPICAL")?;
    let again_in_one = killed(dying, &program, ONE_FILE)?;
    let mut wire = wire(root, dying, arguments.rounds)?;
    let idle = idle(served, &program)?;
    let sizes = sizes.context("there are two stages")?;
    println!("\na cell, {}", jiff::Zoned::now().strftime("%Y-%m-%d %H:%M %Z"));
    for line in machine::describe_machine(command) {
        println!("- {line}");
    }
    let (files, bytes) =
        (sizes.small_files + sizes.typical_files, sizes.small_bytes.saturating_add(sizes.typical_bytes));
    println!("- {} files, {}; medians of {} rounds\n", grouped(files), shown_bytes(bytes), arguments.rounds);
    let (rate, processor) = (median(&mut rates), median(&mut processors));
    let share = idle.processor.as_secs_f64() / WATCHED.as_secs_f64();
    let (lowest, highest) = (rates[0], rates[rates.len() - 1]);
    let (client_rate, client_processor) = (median(&mut client_rates), median(&mut client_processors));
    let (client_lowest, client_highest) = (client_rates[0], client_rates[client_rates.len() - 1]);
    let (mover_rate, mover_processor) = (median(&mut mover_rates), median(&mut mover_processors));
    let mover_spread = format!("{:.2}-{:.2}", mover_rates[0], mover_rates[mover_rates.len() - 1]);
    let Together { eight, beside_slow: beside } = together;
    let rows = [
        (
            format!("a backup through the server: rate, of the command's ({lowest:.2}-{highest:.2})"),
            format!("{rate:.3}"),
            format!("at least {RATE_MIN}"),
            rate >= RATE_MIN,
        ),
        ("processor time of that, of the command's".to_owned(), format!("{processor:.3}"), String::new(), true),
        (
            format!("a backup by a client over TLS: rate, of the command's ({client_lowest:.2}-{client_highest:.2})"),
            format!("{client_rate:.3}"),
            String::new(),
            true,
        ),
        (
            "processor time of that, client and server, of the command's".to_owned(),
            format!("{client_processor:.3}"),
            format!("at most {CLIENT_PROCESSOR_MAX}"),
            client_processor <= CLIENT_PROCESSOR_MAX,
        ),
        (
            format!("a backup by a client to a mover in a process of its own: rate, of the command's ({mover_spread})"),
            format!("{mover_rate:.3}"),
            String::new(),
            true,
        ),
        (
            "processor time of that, client, mover and server, of the command's".to_owned(),
            format!("{mover_processor:.3}"),
            format!("at most {CLIENT_PROCESSOR_MAX}"),
            mover_processor <= CLIENT_PROCESSOR_MAX,
        ),
        ratio_row("a backup by a client in the process of its mover: rate, of the command's", here_rates, RATE_MIN),
        (
            "processor time of that, client, mover and server, of the command's".to_owned(),
            format!("{:.3}", median(&mut here_processors)),
            String::new(),
            true,
        ),
        ratio_row("eight runs at a time to one drive: rate, of one run with all their files", eight, TOGETHER_MIN),
        ratio_row(
            "a fast client beside a slow one (1 MB/s) on one drive: rate, of its rate alone",
            beside,
            TOGETHER_MIN,
        ),
        ratio_row("one backup to two drives at the pace of LTO-3: rate, of one drive's", backup, TWO_DRIVES_MIN),
        ratio_row("a restore of that from both: rate, of one drive's", restore, TWO_DRIVES_MIN),
        ratio_row("four restores of one volume at the same time: rate, of one after the other", restores, RESTORES_MIN),
        ratio_row(
            "a client to a mover over TLS, to nowhere: rate, of bare TLS sockets, as many",
            wire.of_sockets,
            WIRE_MIN,
        ),
        (
            "the same: rate, of bare TLS sockets that read the files and send them".to_owned(),
            format!("{:.3}", median(&mut wire.of_files)),
            String::new(),
            true,
        ),
        (
            "bytes sent again for each time that a client is killed, of those between checkpoints".to_owned(),
            format!("{again:.2}"),
            format!("at most {SENT_AGAIN_MAX}"),
            again <= SENT_AGAIN_MAX,
        ),
        (
            "the same in the middle of one file of 800 MB".to_owned(),
            format!("{again_in_one:.2}"),
            format!("at most {SENT_AGAIN_MAX}"),
            again_in_one <= SENT_AGAIN_MAX,
        ),
        (
            format!("a server with {} policies that waits: share of a processor", grouped(POLICIES as u64)),
            format!("{share:.3}"),
            format!("at most {IDLE_SHARE_MAX}"),
            share <= IDLE_SHARE_MAX,
        ),
        (
            "its memory".to_owned(),
            shown_bytes(idle.peak_bytes),
            format!("at most {}", shown_bytes(IDLE_BYTES_MAX)),
            idle.peak_bytes <= IDLE_BYTES_MAX,
        ),
    ];
    println!("| what | measured | floor | |\n|---|--:|--:|---|");
    let mut missed = 0;
    for (what, measured, floor, is_met) in rows {
        missed += usize::from(!is_met);
        println!("| {what} | {measured} | {floor} | {} |", if is_met { "pass" } else { "**missed**" });
    }
    command.run("rm -rf cell")?;
    Ok(if missed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// A row of ratios: their median, and how far they lie apart.
pub(super) fn ratio_row(what: &str, mut ratios: Vec<f64>, least: f64) -> (String, String, String, bool) {
    let ratio = median(&mut ratios);
    let (lowest, highest) = (ratios[0], ratios[ratios.len() - 1]);
    let what = format!("{what} ({lowest:.2}-{highest:.2})");
    (what, format!("{ratio:.3}"), format!("at least {least}"), ratio >= least)
}

/// What a command prints, a row a line.
fn rows(stage: &Stage, command: &str) -> Result<Vec<Value>> {
    let printed = stage.run(&format!("$CAPSTAN {command} --json"))?;
    printed.lines().map(|line| Ok(serde_json::from_str(line)?)).collect()
}

fn by_command(stage: &Stage) -> Result<Usage> {
    let ended = stage.measure("$CAPSTAN backup $SMALL $TYPICAL --full -q")?;
    ensure!(ended.status.success(), "backup: {}: {}", ended.status, stage.stderr_end());
    Ok(ended.usage)
}

/// A run of the server, from its beginning to its end, and what these processes needed for it.
fn by_server(stage: &Stage, processes: &[Peer]) -> Result<Usage> {
    let needed = || processes.iter().map(|process| Ok(process.account()?.processor)).sum::<Result<Duration>>();
    let before = needed()?;
    let entered: Value = serde_json::from_str(&stage.run("$CAPSTAN queue add all --json")?)?;
    let done = loop {
        thread::sleep(LOOKS);
        let last = stage.run("$CAPSTAN queue done --last 1 --json")?;
        let last: Value = if last.is_empty() { Value::Null } else { serde_json::from_str(&last)? };
        if last["run"] == entered["run"] {
            break last;
        }
    };
    ensure!(done["state"] == "done", "the run ended so: {done}");
    let (Some(began), Some(ended)) = (done["started_ns"].as_u64(), done["ended_ns"].as_u64()) else {
        bail!("the run has no times: {done}")
    };
    let processor = needed()?.saturating_sub(before);
    Ok(Usage { wall: Duration::from_nanos(ended.saturating_sub(began)), processor, ..Usage::default() })
}

/// What a server needs that has many policies and nothing to do.
fn idle(stage: &Stage, program: &Path) -> Result<Usage> {
    stage.run(&format!(
        "for n in $(seq {POLICIES}); do
             printf '[policies.p%s]\\nsources = [\"/srv/p%s\"]\\nexclude = [\"*.tmp\"]\\nschedule = \"*-01-01 02:30\"\\nkeep = {{ last = 3 }}\\n' $n $n
         done >$FOLDER/cell.toml
         $CAPSTAN policies apply $FOLDER/cell.toml -q"
    ))?;
    let server = Peer::server(stage, program, "served", false)?;
    thread::sleep(Duration::from_secs(3));
    let (before, began) = (server.account()?, Instant::now());
    thread::sleep(WATCHED);
    let after = server.account()?;
    ensure!(began.elapsed() < WATCHED * 2, "the machine was away for a while: measure again");
    Ok(Usage { processor: after.processor.saturating_sub(before.processor), ..after })
}

pub(super) fn median(all: &mut [f64]) -> f64 {
    all.sort_by(f64::total_cmp);
    all.get(all.len() / 2).copied().unwrap_or(f64::NAN)
}
