//! Measures this work tree's capstan beside that of another commit, in turns, in one run: whether a change has made
//! anything slower. Or beside itself, once with the catalog in SQLite and once in PostgreSQL.
//!
//! ```text
//! git worktree of COMMIT -> its release build -> data sets (once) -> round 1: old, new -> round 2: new, old -> ... -> medians of ratios
//! ```
//! Each step of the main job is measured of both programs one behind the other, so that what a shared machine does hits
//! both alike. Of each round the new time is divided by the old one, and the median of that counts.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use anyhow::{Context, Result, ensure};

use super::machine;
use super::measure::{Stage, Usage};
use crate::amount::{grouped, parse_bytes, shown_bytes, shown_time};
use crate::postgres::{Durability, Server};

#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// The commit to measure beside
    #[arg(required_unless_present = "postgres")]
    commit: Option<String>,
    /// Measure this work tree with the catalog in PostgreSQL beside itself with SQLite; nothing is too slow then
    #[arg(long, conflicts_with = "commit")]
    postgres: bool,
    /// Scratch folder; data sets in it are used again, and one in memory is quieter [default: bench-work]
    #[arg(long, value_name = "DIR")]
    work: Option<PathBuf>,
    /// Files of 4-16 KB
    #[arg(long, default_value_t = 100_000)]
    small_files: u64,
    /// Bytes in files of 64 KB-64 MB
    #[arg(long, default_value = "2G", value_parser = parse_bytes)]
    typical_bytes: u64,
    /// Runs of each program
    #[arg(long, default_value_t = 5)]
    rounds: usize,
    /// Nothing may cost more than this times what it did
    #[arg(long, default_value_t = 1.03)]
    bound: f64,
}

/// The main job, in order. Only words that commits of long ago know, too. In the first round all of it is read for the
/// first time.
const STEPS: [(&str, &str); 6] = [
    ("full backup", "$CAPSTAN backup $SMALL $TYPICAL --full -q"),
    ("incremental, nothing changed", "$CAPSTAN backup $SMALL $TYPICAL --incremental -q"),
    ("find, ten times", "for _ in 1 2 3 4 5 6 7 8 9 10; do $CAPSTAN find '*99*'; done"),
    ("ls -R", "$CAPSTAN ls -R $SMALL"),
    ("verify a volume", "$CAPSTAN verify A00001 -q"),
    ("restore of everything", "$CAPSTAN restore $SMALL --to $BACK -q; $CAPSTAN restore $TYPICAL --to $BACK -q"),
];

/// One of the two programs, with a state of its own.
struct Program {
    stage: Stage,
    runs: [Vec<Usage>; STEPS.len()],
}

impl Program {
    fn new(work: &Path, name: &str, program: &Path) -> Self {
        let mut stage = Stage::new(work);
        let folder = work.join("beside").join(name);
        stage.set("CAPSTAN", program);
        stage.set("FOLDER", &folder);
        stage.set("BACK", folder.join("back"));
        stage.set("CAPSTAN_STATE", folder.join("state"));
        stage.set("CAPSTAN_KEY_FILE", folder.join("key"));
        Self { stage, runs: Default::default() }
    }

    fn begin(&self) -> Result<()> {
        self.stage.run("rm -rf $FOLDER; mkdir -p $FOLDER; $CAPSTAN init --volume-size 20G -q").map(drop)
    }

    fn step(&mut self, number: usize) -> Result<()> {
        let (name, script) = STEPS[number];
        let ended = self.stage.measure(script)?;
        ensure!(ended.status.success(), "{name}: {}: {}", ended.status, self.stage.stderr_end());
        self.stage.run("rm -rf $BACK")?;
        self.runs[number].push(ended.usage);
        Ok(())
    }
}

pub(crate) fn run(root: &Path, arguments: &Arguments) -> Result<ExitCode> {
    ensure!(arguments.rounds > 0, "there is at least one round");
    let work = arguments.work.clone().unwrap_or_else(|| root.join("bench-work"));
    fs::create_dir_all(&work).with_context(|| format!("make {}", work.display()))?;
    let work = work.canonicalize()?;
    let new = std::env::current_exe()?.with_file_name("capstan");
    let (old, names, beside) = match &arguments.commit {
        Some(commit) => (built(root, commit)?, ["old", "new"], format!("beside {commit}")),
        None => (new.clone(), ["SQLite", "PostgreSQL"], "the catalog in PostgreSQL beside SQLite".to_owned()),
    };
    let mut both = [Program::new(&work, names[0], &old), Program::new(&work, names[1], &new)];
    let server = if arguments.postgres { Server::start(&work, Durability::Full)? } else { None };
    ensure!(server.is_some() == arguments.postgres, "PostgreSQL is not installed (package postgresql)");
    let [old, new] = &mut both;
    if let Some(server) = &server {
        new.stage.set("CAPSTAN_DATABASE", server.url());
    }
    let sizes = super::make_data_sets(&mut old.stage, arguments.small_files, arguments.typical_bytes)?;
    super::make_data_sets(&mut new.stage, arguments.small_files, arguments.typical_bytes)?;
    for round in 0..arguments.rounds {
        println!("round {} of {}", round + 1, arguments.rounds);
        both.iter().try_for_each(Program::begin)?;
        for number in 0..STEPS.len() {
            let order = if round % 2 == 0 { [0, 1] } else { [1, 0] };
            order.into_iter().try_for_each(|which| both[which].step(number))?;
        }
    }
    let [old, new] = &both;
    println!("\n{beside}, {}", jiff::Zoned::now().strftime("%Y-%m-%d %H:%M %Z"));
    for line in machine::describe_machine(&old.stage) {
        println!("- {line}");
    }
    let (files, bytes) =
        (sizes.small_files + sizes.typical_files, sizes.small_bytes.saturating_add(sizes.typical_bytes));
    println!("- {} files, {}; medians of {} rounds\n", grouped(files), shown_bytes(bytes), arguments.rounds);
    let [one, other] = names;
    println!("| | wall, {one} | {other} | {other} / {one} | rounds | processor, {one} | {other} | {other} / {one} | |");
    println!("|---|--:|--:|--:|--:|--:|--:|--:|---|");
    let mut slower = 0;
    for (number, (name, _)) in STEPS.iter().enumerate() {
        let row = Row::of(&old.runs[number], &new.runs[number]);
        let is_slower = row.wall > arguments.bound || row.processor > arguments.bound;
        slower += usize::from(is_slower);
        let verdict = match (&arguments.commit, is_slower) {
            (None, _) => "",
            (Some(_), true) => "**slower**",
            (Some(_), false) => "pass",
        };
        println!("| {name} | {} | {verdict} |", row.told);
    }
    old.stage.run("rm -rf beside")?;
    Ok(if slower == 0 || arguments.postgres { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// What came of a step.
struct Row {
    told: String,
    wall: f64,
    processor: f64,
}

impl Row {
    fn of(old: &[Usage], new: &[Usage]) -> Self {
        let ratios = |of: fn(&Usage) -> f64| {
            let mut ratios: Vec<f64> = old.iter().zip(new).map(|(old, new)| of(new) / of(old).max(1e-9)).collect();
            ratios.sort_by(f64::total_cmp);
            ratios
        };
        let walls = ratios(|run| run.wall.as_secs_f64());
        let processors = ratios(|run| run.processor.as_secs_f64());
        let middle = |all: &[f64]| all.get(all.len() / 2).copied().unwrap_or(f64::NAN);
        let median = |runs: &[Usage], of: fn(&Usage) -> std::time::Duration| {
            let mut all: Vec<_> = runs.iter().map(of).collect();
            all.sort();
            shown_time(all.get(all.len() / 2).copied().unwrap_or_default())
        };
        let (wall, processor) = (middle(&walls), middle(&processors));
        let told = format!(
            "{} | {} | {wall:.3} | {:.2}-{:.2} | {} | {} | {processor:.3}",
            median(old, |run| run.wall),
            median(new, |run| run.wall),
            walls.first().copied().unwrap_or(f64::NAN),
            walls.last().copied().unwrap_or(f64::NAN),
            median(old, |run| run.processor),
            median(new, |run| run.processor),
        );
        Self { told, wall, processor }
    }
}

/// The program of a commit; built once, below `target/beside`.
fn built(root: &Path, commit: &str) -> Result<PathBuf> {
    let asked = Command::new("git")
        .args(["rev-parse", "--verify", "--quiet", &format!("{commit}^{{commit}}")])
        .current_dir(root)
        .output()
        .context("run git")?;
    ensure!(asked.status.success(), "there is no commit {commit} here");
    let id = String::from_utf8(asked.stdout)?.trim().to_owned();
    let folder = root.join("target/beside");
    let program = folder.join(format!("capstan-{id}"));
    if program.exists() {
        return Ok(program);
    }
    let tree = folder.join("tree");
    println!("building {id}");
    fs::create_dir_all(&folder)?;
    let shell = |script: &str| -> Result<()> {
        let mut command = Command::new("sh");
        command.args(["-ec", script]).current_dir(root).env("TREE", &tree).env("ID", &id);
        let status = command.env("CARGO_TARGET_DIR", folder.join("build")).status().context("run sh")?;
        ensure!(status.success(), "{script}: {status}");
        Ok(())
    };
    shell("git worktree remove --force \"$TREE\" 2>/dev/null || rm -rf \"$TREE\"; git worktree prune")?;
    shell("git worktree add --quiet --detach \"$TREE\" \"$ID\"")?;
    let outcome = shell("cd \"$TREE\" && cargo build --release --locked --package capstan-cli");
    shell("git worktree remove --force \"$TREE\"")?;
    outcome?;
    fs::rename(folder.join("build/release/capstan"), &program).context("keep the program")?;
    Ok(program)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn the_median_of_ratios_counts_and_not_the_ratio_of_medians() {
        let usage = |wall: u64| Usage { wall: Duration::from_secs(wall), ..Usage::default() };
        // The machine was twice as slow in the second round, and four times in the third: the program is no slower for
        // it.
        let (old, new) = ([1, 2, 4].map(usage), [1, 2, 8].map(usage));
        let row = Row::of(&old, &new);
        assert!((row.wall - 1.0).abs() < 1e-9, "{}", row.told);
        assert!(row.told.starts_with("2.00 s | 2.00 s | 1.000 | 1.00-2.00 |"), "{}", row.told);
    }
}
