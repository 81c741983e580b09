//! Runs what `./x lint` and `./x test` run, counts it, and says the sum in the last line.
//!
//! Every step runs, even behind one that failed or hangs: one run shows all that is wrong. A step's output is passed on
//! as it comes. Tests in guests run beside the other end-to-end tests, and what measures the machine runs alone. Tests
//! are counted from what `cargo test` prints, and from the lines `ok ...` and `not ok ...` of the end-to-end tests:
//! executable files directly under `tests/`, which find the programs in `CAPSTAN_BIN` and `KEYD_BIN`.

mod count;
mod programs;
mod step;
mod times;

use std::env;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::thread;

use anyhow::{Context, Result};

use crate::postgres::{Durability, Server};

use count::Count;
use programs::test_programs;
use step::Steps;
use times::Times;

/// Tells tests that sweep to do all of it, and not only what continuous integration has time for.
const FULL: &str = "CAPSTAN_FULL";

/// End-to-end tests that run once more with the catalog's tables in PostgreSQL.
const ON_POSTGRES_TOO: &[&str] = &["crash_sweep.py", "jobs_sweep.py", "roundtrip.sh"];

/// Integration tests of the director that do not: they are about volumes, keys or drives, whatever the catalog stands
/// on.
const NOT_ON_POSTGRES: &[&str] = &["damage::", "golden::", "hostile_volume::", "key_cluster::"];

/// Format, clippy, tidy.
pub(crate) fn lint(root: &Path) -> Result<ExitCode> {
    let out = &mut std::io::stdout();
    let mut steps = Steps::new(out);
    lint_steps(&mut steps, root)?;
    Ok(steps.count.summary())
}

/// Lint, then all tests; sweeps in their full length where that is asked for.
pub(crate) fn test(root: &Path, full: bool) -> Result<ExitCode> {
    let out = &mut std::io::stdout();
    let mut steps = Steps::new(out);
    lint_steps(&mut steps, root)?;
    let sweeping = |command: &mut Command| {
        if full {
            command.env(FULL, "1");
        }
    };
    let mut cargo_test = cargo(root);
    cargo_test.args(["test", "--locked", "--workspace", "--no-fail-fast"]);
    sweeping(&mut cargo_test);
    steps.run("unit and integration tests", &mut cargo_test)?;
    let postgres = Server::start(&env::temp_dir(), Durability::None)?;
    match &postgres {
        Some(server) => tests_on_postgres(&mut steps, root, &server.url())?,
        None => steps.say(b"SKIP PostgreSQL is not installed: no test of the catalog on it was run\n")?,
    }
    let folder = target_folder()?;
    let (capstan, keyd) = (folder.join("capstan"), folder.join("keyd"));
    let run = |steps: &mut Steps<'_>, script: &Path| -> Result<()> {
        let name = script.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let mut command = Command::new(script);
        command.current_dir(root).env("CAPSTAN_BIN", &capstan).env("KEYD_BIN", &keyd);
        sweeping(&mut command);
        steps.run(&name, &mut command)?;
        if let (Some(server), true) = (&postgres, ON_POSTGRES_TOO.contains(&name.as_str())) {
            // What `capstan init` asks for where it is told nothing else.
            command.env("CAPSTAN_DATABASE", server.url());
            steps.run(&format!("{name} on PostgreSQL"), &mut command)?;
        }
        Ok(())
    };
    let Lanes { alone, guests, others } = Lanes::of(end_to_end_tests(&root.join("tests"))?);
    for script in alone {
        run(&mut steps, &script)?;
    }
    let (said, of_guests, times) = thread::scope(|scope| {
        let guests = scope.spawn(|| -> Result<(Vec<u8>, Count, Times)> {
            let mut said = Vec::new();
            let mut steps = Steps::new(&mut said);
            for script in guests {
                run(&mut steps, &script)?;
            }
            let (count, times) = (steps.count, steps.times);
            Ok((said, count, times))
        });
        for script in others {
            run(&mut steps, &script)?;
        }
        guests.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })?;
    steps.say(&said)?;
    steps.count += of_guests;
    steps.times.append(times);
    steps.say(format!("\n==> how long each part took\n{}\n", steps.times.table()).as_bytes())?;
    Ok(steps.count.summary())
}

/// Runs the tests of the catalog, and those of the director that stand on it, with the tables in PostgreSQL.
fn tests_on_postgres(steps: &mut Steps<'_>, root: &Path, url: &str) -> Result<()> {
    for program in test_programs(cargo(root))? {
        let left_out = match (program.room.as_str(), program.name.as_str()) {
            ("catalog", _) => &[],
            ("director", "it") => NOT_ON_POSTGRES,
            _ => continue,
        };
        let mut command = Command::new(&program.file);
        command.args(["--include-ignored", "--quiet"]).current_dir(&program.folder).env("CAPSTAN_POSTGRES", url);
        command.args(left_out.iter().flat_map(|module| ["--skip", *module]));
        steps.run(&format!("{} of {} on PostgreSQL", program.name, program.room), &mut command)?;
    }
    Ok(())
}

/// What of the end-to-end tests runs beside what.
#[derive(Debug, Default, PartialEq, Eq)]
struct Lanes {
    /// What measures the machine: first, with nothing beside it.
    alone: Vec<PathBuf>,
    /// In guests, which take one processor each and wait for much: one after the other, shown when they have ended.
    guests: Vec<PathBuf>,
    /// Meanwhile, and shown as they come.
    others: Vec<PathBuf>,
}

impl Lanes {
    fn of(scripts: Vec<PathBuf>) -> Self {
        let mut lanes = Self::default();
        for script in scripts {
            let name = script.file_name().unwrap_or_default().to_string_lossy().into_owned();
            let lane = match name.as_str() {
                "advice.sh" => &mut lanes.alone,
                name if name.starts_with("tape_") => &mut lanes.guests,
                _ => &mut lanes.others,
            };
            lane.push(script);
        }
        lanes
    }
}

fn lint_steps(steps: &mut Steps<'_>, root: &Path) -> Result<()> {
    steps.run("format", cargo(root).args(["fmt", "--all", "--check"]))?;
    let clippy = ["clippy", "--locked", "--workspace", "--all-targets", "--", "--deny", "warnings"];
    steps.run("clippy", cargo(root).args(clippy))?;
    steps.run("tidy", Command::new(env::current_exe()?).arg("tidy").current_dir(root))
}

fn cargo(root: &Path) -> Command {
    let mut command = Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.current_dir(root);
    command
}

/// Where cargo put this program, and with it the product.
fn target_folder() -> Result<PathBuf> {
    Ok(env::current_exe()?.parent().context("a program lies in a folder")?.to_owned())
}

/// The executable files directly under `tests/`, by name.
fn end_to_end_tests(folder: &Path) -> Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).with_context(|| folder.display().to_string())? {
        let entry = entry?;
        let metadata = entry.metadata()?;
        if metadata.is_file() && metadata.permissions().mode() & 0o111 != 0 {
            found.push(entry.path());
        }
    }
    found.sort();
    Ok(found)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests fail by panicking")]
    use super::*;

    #[test]
    fn what_measures_the_machine_runs_alone() {
        let lanes = Lanes::of(["advice.sh", "key_days.py", "tape_guest.sh", "tape_job.sh"].map(PathBuf::from).to_vec());
        let [advice, days, guest, job] =
            ["advice.sh", "key_days.py", "tape_guest.sh", "tape_job.sh"].map(PathBuf::from);
        assert_eq!(lanes, Lanes { alone: vec![advice], guests: vec![guest, job], others: vec![days] });
    }
}
