//! Who is measured at what, and how their runs alternate.
//!
//! In each round every contestant runs once, and the order turns from round to round, so that whatever else the machine
//! does hits all of them alike. A run counts only if the contestant handled every byte of the data set: a tool that
//! fails early is not fast.

use std::collections::BTreeMap;
use std::time::Instant;

use anyhow::{Context, Result, ensure};

use super::bacula::{Bacula, CatalogIn};
use super::measure::{Stage, Usage};
use super::memory::Filler;
use super::reader::NOT_HERE;

/// Which data set a contestant works on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Data {
    Small,
    Typical,
}

/// Whether the data set lies in memory when a run begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Cache {
    Warm,
    Cold,
}

/// How often a contestant runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Pace {
    EveryRound,
    /// In the first round only: it takes so long that its spread does not matter.
    Once,
}

/// How it is known that a contestant handled everything.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Count {
    /// It says how many bytes of files it took, at this JSON pointer in its output.
    Says(&'static str),
    /// This script, run behind the first run, prints the bytes that came out.
    CameOut(&'static str),
    /// This script, run behind the first run, succeeds.
    Proves(&'static str),
}

/// What runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Work {
    /// A shell line.
    Line(&'static str),
    /// A backup with Bacula's daemons.
    Bacula,
}

/// One line of a table in the report.
#[derive(Debug, Clone, Copy)]
pub(super) struct Contestant {
    /// Names it in floors and on the command line: `small-null/capstan`.
    pub(super) id: &'static str,
    /// Names it in the report.
    pub(super) name: &'static str,
    pub(super) data: Data,
    pub(super) cache: Cache,
    pub(super) pace: Pace,
    /// Runs before each measurement.
    pub(super) before: &'static str,
    pub(super) work: Work,
    pub(super) count: Count,
    /// Runs behind each measurement.
    pub(super) behind: &'static str,
}

/// Keeps what a run wrote until the end: ext4 looks at every inode that was deleted in the last minutes before it gives
/// out another, so that who makes many files behind a deletion of many takes ten times as long.
pub(super) const KEEP: &str = "mkdir -p spent; mv out spent/$(date +%s%N)";

/// How large the data sets are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Sizes {
    pub(super) small_files: u64,
    pub(super) small_bytes: u64,
    pub(super) typical_files: u64,
    pub(super) typical_bytes: u64,
}

impl Sizes {
    pub(super) fn bytes(&self, data: Data) -> u64 {
        match data {
            Data::Small => self.small_bytes,
            Data::Typical => self.typical_bytes,
        }
    }

    pub(super) fn files(&self, data: Data) -> u64 {
        match data {
            Data::Small => self.small_files,
            Data::Typical => self.typical_files,
        }
    }
}

/// What came out of a contest.
#[derive(Debug, Default)]
pub(super) struct Results {
    runs: BTreeMap<&'static str, Vec<Usage>>,
    failures: BTreeMap<&'static str, String>,
}

impl Results {
    pub(super) fn runs(&self, id: &str) -> &[Usage] {
        self.runs.get(id).map_or(&[], Vec::as_slice)
    }

    pub(super) fn failure(&self, id: &str) -> Option<&str> {
        self.failures.get(id).map(String::as_str)
    }

    /// The median run of a contestant, by wall time.
    pub(super) fn median(&self, id: &str) -> Option<Usage> {
        let mut runs = self.runs(id).to_vec();
        runs.sort_by_key(|usage| usage.wall);
        runs.get(runs.len().checked_sub(1)? / 2).copied()
    }

    #[cfg(test)]
    pub(super) fn record(&mut self, id: &'static str, usage: Usage) {
        self.runs.entry(id).or_default().push(usage);
    }
}

/// Runs rounds until all are done or the time is up; the first round always ends.
pub(super) fn run(stage: &Stage, all: &[Contestant], sizes: Sizes, rounds: usize, until: Instant) -> Result<Results> {
    let mut results = Results::default();
    let mut filler = Filler::new(&stage.work)?;
    for round in 0..rounds {
        let started = Instant::now();
        let order = (0..all.len()).map(|index| &all[(index + round * 5) % all.len()]);
        for contestant in order.filter(|contestant| round == 0 || contestant.pace == Pace::EveryRound) {
            if results.failures.contains_key(contestant.id) {
                continue;
            }
            match run_once(stage, &mut filler, contestant, sizes, round == 0) {
                Ok(usage) => {
                    let rate = sizes.bytes(contestant.data) as f64 / 1e6 / usage.wall.as_secs_f64();
                    let seconds = usage.wall.as_secs_f64();
                    println!(
                        "round {} of {rounds}: {:<34} {seconds:>8.2} s  {rate:>7.0} MB/s",
                        round + 1,
                        contestant.id
                    );
                    results.runs.entry(contestant.id).or_default().push(usage);
                }
                Err(error) => {
                    println!("round {} of {rounds}: {:<34} failed: {error:#}", round + 1, contestant.id);
                    results.failures.insert(contestant.id, format!("{error:#}"));
                }
            }
        }
        if Instant::now() + started.elapsed().mul_f32(0.7) > until && round + 1 < rounds {
            println!("stopping behind round {} of {rounds}: another one would take too long", round + 1);
            break;
        }
    }
    Ok(results)
}

fn run_once(stage: &Stage, filler: &mut Filler, contestant: &Contestant, sizes: Sizes, first: bool) -> Result<Usage> {
    stage.run(contestant.before).context("prepare")?;
    // What others wrote must not be on its way to the disk still.
    stage.run("sync")?;
    filler.fill()?;
    match (contestant.cache, contestant.data) {
        (Cache::Warm, Data::Small) => stage.run("$XTASK bare-read $SMALL")?,
        (Cache::Warm, Data::Typical) => stage.run("$XTASK bare-read $TYPICAL")?,
        (Cache::Cold, _) => stage.run("echo 3 >/proc/sys/vm/drop_caches")?,
    };
    let expected = sizes.bytes(contestant.data);
    let measured = match contestant.work {
        Work::Line(line) => run_line(stage, contestant, line, expected, first),
        Work::Bacula => run_bacula(stage, expected),
    };
    stage.run(contestant.behind).context("clean up")?;
    measured
}

fn run_line(stage: &Stage, contestant: &Contestant, line: &str, expected: u64, first: bool) -> Result<Usage> {
    let ended = stage.measure(line)?;
    ensure!(ended.status.code() != Some(i32::from(NOT_HERE)), "not possible here: {}", stage.stderr_end());
    ensure!(ended.status.success(), "{}: {}", ended.status, stage.stderr_end());
    let handled = match contestant.count {
        Count::Says(pointer) => {
            let said = stage.stdout()?;
            said.pointer(pointer).and_then(serde_json::Value::as_u64).with_context(|| format!("{pointer} in {said}"))?
        }
        Count::CameOut(script) if first => stage.run(script)?.trim().parse().context("bytes that came out")?,
        Count::Proves(script) if first => stage.run(script).map(|_| expected)?,
        Count::CameOut(_) | Count::Proves(_) => expected,
    };
    ensure!(handled >= expected, "only {handled} of {expected} bytes were handled");
    Ok(ended.usage)
}

fn run_bacula(stage: &Stage, expected: u64) -> Result<Usage> {
    let (usage, handled) = Bacula::start(stage, &[stage.work.join("small")], CatalogIn::Sqlite)?.back_up(stage)?;
    ensure!(handled >= expected, "only {handled} of {expected} bytes were handled");
    Ok(usage)
}
