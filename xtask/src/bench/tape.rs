//! Measures our tape drives as others see them: beside tgt's under the kernel's tape driver, and beside a bare socket.
//!
//! ```text
//! guest/rate          one guest, both libraries in its memory, dd through st in turn     -> times tgt's rate
//! drive_rate          our initiator to our drives over the loopback, and a bare socket   -> share of the socket's rate
//! ```
//! Both print what each round came to; here stand the medians, the floors, and what goes on the page. Rounds are
//! compared one by one: what else the machine did in one is not held against the next.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use anyhow::{Context, Result, bail, ensure};
use serde::Deserialize;

use super::machine;
use super::measure::Stage;
use super::report;

/// What of tgt's rate ours must be.
const TIMES_TGT_MIN: f64 = 3.0;
/// What of a bare socket's rate a drive must leave.
const SHARE_OF_SOCKET_MIN: f64 = 0.7;

#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// Rounds of each measurement
    #[arg(long, default_value_t = 7)]
    rounds: usize,
    /// Folders for the cartridges beside the bare socket [default: /dev/shm and /var/tmp: memory and disk]
    #[arg(long, value_name = "DIR")]
    folder: Vec<PathBuf>,
    /// MiB that each run writes and reads in the guest
    #[arg(long, default_value_t = 128)]
    guest_mib: u64,
    /// MiB that each run writes and reads over the loopback
    #[arg(long, default_value_t = 512)]
    socket_mib: u64,
}

/// Bytes a second of one library in the guest, round by round.
type Rates = BTreeMap<(String, String), Vec<f64>>;

/// What one run beside the socket came to.
#[derive(Debug, Clone, Copy, Deserialize)]
struct Run {
    bytes_s: f64,
    processor_s_gb: f64,
}

pub(crate) fn run(root: &Path, arguments: &Arguments) -> Result<ExitCode> {
    ensure!(arguments.rounds > 0, "--rounds 0 measures nothing");
    let stage = Stage::new(root);
    let (machine, load) = (machine::describe_machine(&stage), load()?);
    let guest = guest_rates(&ask(&mut guest_command(root, arguments)?)?)?;
    let mut text = String::new();
    let date = jiff::Zoned::now().strftime("%Y-%m-%d %H:%M %Z").to_string();
    writeln!(text, "Measured on {date} by `./x bench tape`, medians of {} rounds:", arguments.rounds)?;
    for line in &machine {
        writeln!(text, "- {line}")?;
    }
    writeln!(text, "- load of the machine: {load} before anything of this ran")?;
    let socket: BTreeMap<String, Vec<Run>> = serde_json::from_str(ask(&mut socket_command(root, arguments))?.trim())?;
    write_guest(&mut text, &guest, arguments.guest_mib)?;
    write_socket(&mut text, &socket, arguments.socket_mib)?;
    println!("\n{text}");
    report::write(&root.join("docs/PERFORMANCE.md"), report::TAPE, &text)?;
    println!("docs/PERFORMANCE.md is written");
    Ok(ExitCode::SUCCESS)
}

/// Load of the last minute.
fn load() -> Result<String> {
    let text = std::fs::read_to_string("/proc/loadavg")?;
    Ok(text.split(' ').next().unwrap_or_default().to_owned())
}

fn guest_command(root: &Path, arguments: &Arguments) -> Result<Command> {
    let capstan = std::env::current_exe()?.with_file_name("capstan");
    ensure!(capstan.exists(), "{} is not built: cargo build --release --package capstan-cli", capstan.display());
    let built = Command::new(root.join("guest/build")).status().context("run guest/build")?;
    ensure!(built.success(), "guest/build failed: {built}");
    let mut command = Command::new(root.join("guest/run"));
    let tape_mb = format!("TAPE_MB={}", arguments.guest_mib * 2);
    command.args(["-d", "tgt", "-t", "1200", "-e", &tape_mb, "--", "sh"]).arg(root.join("guest/rate"));
    command.args([arguments.guest_mib.to_string(), arguments.rounds.to_string()]);
    command.env("CAPSTAN_BIN", capstan);
    Ok(command)
}

fn socket_command(root: &Path, arguments: &Arguments) -> Command {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    let build =
        ["run", "--quiet", "--release", "--locked", "--package", "capstan-vtl", "--example", "drive_rate", "--"];
    command.current_dir(root).args(build);
    command.args([arguments.socket_mib.to_string(), arguments.rounds.to_string()]);
    if arguments.folder.is_empty() {
        command.args(["/dev/shm", "/var/tmp"]);
    } else {
        command.args(&arguments.folder);
    }
    command
}

/// What a command prints; what it complains of goes where ours does.
fn ask(command: &mut Command) -> Result<String> {
    println!("{command:?}");
    let output = command.stderr(std::process::Stdio::inherit()).output().with_context(|| format!("run {command:?}"))?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    if !output.status.success() {
        bail!("{command:?}: {}\n{text}", output.status);
    }
    Ok(text)
}

/// Lines "LIBRARY write|read BYTES NANOSECONDS"; others, of programs in the guest, are passed over.
fn guest_rates(text: &str) -> Result<Rates> {
    let mut rates = Rates::new();
    for line in text.lines() {
        let words: Vec<&str> = line.split_whitespace().collect();
        let [library @ ("tgt" | "capstan"), what @ ("write" | "read"), bytes, nanoseconds] = words[..] else {
            continue;
        };
        let (bytes, nanoseconds): (f64, f64) = (bytes.parse()?, nanoseconds.parse()?);
        rates.entry((library.to_owned(), what.to_owned())).or_default().push(bytes / nanoseconds * 1e9);
    }
    ensure!(rates.len() == 4, "the guest did not measure both libraries:\n{text}");
    Ok(rates)
}

fn median(values: impl IntoIterator<Item = f64>) -> f64 {
    let mut values: Vec<f64> = values.into_iter().collect();
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}

/// The least and the most of a few ratios.
fn spread(values: &[f64]) -> String {
    let least = values.iter().copied().fold(f64::INFINITY, f64::min);
    let most = values.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    format!("{least:.2}-{most:.2}")
}

fn verdict(met: bool) -> &'static str {
    if met { "pass" } else { "**miss**" }
}

fn ratios(of: &[f64], to: &[f64]) -> Vec<f64> {
    of.iter().zip(to).map(|(of, to)| of / to).collect()
}

fn write_guest(text: &mut String, rates: &Rates, mib: u64) -> Result<()> {
    writeln!(text, "\n### Under the kernel's tape driver, beside tgt's tape\n")?;
    writeln!(
        text,
        "`guest/rate`: one guest of one processor, both libraries in its memory, `dd bs=256k` of {mib} MiB through `st`.\n"
    )?;
    writeln!(
        text,
        "| | tgt, MB/s | capstan, MB/s | times tgt (floor {TIMES_TGT_MIN}) | rounds | |\n|---|--:|--:|--:|--:|---|"
    )?;
    for what in ["write", "read"] {
        let of =
            |library: &str| rates.get(&(library.to_owned(), what.to_owned())).map(Vec::as_slice).unwrap_or_default();
        let (tgt, ours) = (of("tgt"), of("capstan"));
        let times = ratios(ours, tgt);
        let (tgt, ours) = (median(tgt.iter().copied()) / 1e6, median(ours.iter().copied()) / 1e6);
        let middle = median(times.iter().copied());
        let met = verdict(middle >= TIMES_TGT_MIN);
        writeln!(text, "| {what} | {tgt:.0} | {ours:.0} | {middle:.1} | {} | {met} |", spread(&times))?;
    }
    Ok(())
}

fn write_socket(text: &mut String, runs: &BTreeMap<String, Vec<Run>>, mib: u64) -> Result<()> {
    writeln!(text, "\n### Beside a bare socket\n")?;
    writeln!(
        text,
        "`cargo run --release -p capstan-vtl --example drive_rate`: blocks of 256 KiB, {mib} MiB a run, our initiator over the\n\
         loopback to a drive whose cartridge lies in the folder. \"Socket and file\" is a bare socket whose other end writes a plain\n\
         file there, or reads it. Processor time is that of both ends.\n"
    )?;
    writeln!(
        text,
        "| folder | | MB/s | processor, s/GB | share of the socket (floor {SHARE_OF_SOCKET_MIN}) | rounds | |\n|---|---|--:|--:|--:|--:|---|"
    )?;
    let mut places: Vec<&str> = runs.keys().filter_map(|name| name.split_once(": ").map(|(place, _)| place)).collect();
    places.dedup();
    for place in places {
        for way in ["out", "in"] {
            let of = |who: &str| runs.get(&format!("{place}: {who}, {way}")).map(Vec::as_slice).unwrap_or_default();
            let rates = |who: &str| of(who).iter().map(|run| run.bytes_s).collect::<Vec<f64>>();
            let bare = rates("socket");
            for who in ["socket", "socket and file", "plain drive", "encrypted drive"] {
                let rate = median(rates(who)) / 1e6;
                let processor = median(of(who).iter().map(|run| run.processor_s_gb));
                let shares = ratios(&rates(who), &bare);
                let share = median(shares.iter().copied());
                let met = if who.ends_with("drive") { verdict(share >= SHARE_OF_SOCKET_MIN) } else { "" };
                let row = format!(
                    "| {place} | {who}, {way} | {rate:.0} | {processor:.2} | {share:.2} | {} | {met} |",
                    spread(&shares)
                );
                writeln!(text, "{row}")?;
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests fail by panicking")]
    use super::*;

    #[test]
    fn rounds_are_compared_one_by_one() {
        let text = "Loading media\ntgt write 1000000 1000\ntgt read 1000000 500\ncapstan write 1000000 100\ncapstan read 1000000 250\n\
                    tgt write 1000000 4000\ntgt read 1000000 500\ncapstan write 1000000 1000\ncapstan read 1000000 100\n\
                    tgt write 1000000 1000\ntgt read 1000000 500\ncapstan write 1000000 100\ncapstan read 1000000 250\n";
        let mut page = String::new();
        write_guest(&mut page, &guest_rates(text).unwrap(), 1).unwrap();
        assert!(page.contains("| write | 1000000 | 10000000 | 10.0 | 4.00-10.00 | pass |"), "{page}");
        assert!(page.contains("| read | 2000000 | 4000000 | 2.0 | 2.00-5.00 | **miss** |"), "{page}");
    }

    #[test]
    fn a_guest_that_measured_nothing_is_an_error() {
        assert!(guest_rates("tgt write 1 1\n").is_err());
    }

    #[test]
    fn drives_are_judged_and_the_rest_is_shown() {
        let run = |bytes_s| vec![Run { bytes_s, processor_s_gb: 0.25 }];
        let names = [("socket", 4e9), ("socket and file", 1e9), ("plain drive", 3e9), ("encrypted drive", 2e9)];
        let runs = ["out", "in"]
            .into_iter()
            .flat_map(|way| names.map(|(who, rate)| (format!("/dev/shm: {who}, {way}"), run(rate))))
            .collect();
        let mut page = String::new();
        write_socket(&mut page, &runs, 1).unwrap();
        assert!(page.contains("| /dev/shm | plain drive, out | 3000 | 0.25 | 0.75 | 0.75-0.75 | pass |"), "{page}");
        assert!(
            page.contains("| /dev/shm | encrypted drive, in | 2000 | 0.25 | 0.50 | 0.50-0.50 | **miss** |"),
            "{page}"
        );
    }
}
