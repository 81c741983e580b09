//! Runs what `./x lint` and `./x test` run, counts it, and says the sum in the last line.
//!
//! Every step runs, even behind one that failed or hangs: one run shows all that is wrong. What is to be tested is
//! independent units ([`units`]): test programs, modules of large ones, and the end-to-end tests, executable files
//! directly under `tests/`, which find the programs in `CAPSTAN_BIN` and `KEYD_BIN`. They run two beside each other
//! ([`lanes`]), and what measures the machine alone. Tests are counted from what test programs print, and from the
//! lines `ok ...` and `not ok ...` of the end-to-end tests.
//!
//! `./x test` compiles once: clippy's driver is the compiler, and its warnings are read from what cargo repeats of the
//! build ([`programs`]). Its code is not optimised as that of rustc is (it leaves out inlining before LLVM), of which
//! the tests of the director show nothing: 38.9 s of a processor, 38.7 s with rustc. `./x lint` only checks, which is
//! faster where nothing is to be run.

mod count;
mod excerpt;
mod lanes;
mod programs;
mod room;
mod step;
mod times;
mod units;

use std::env;
use std::path::Path;
use std::process::{Command, ExitCode};
use std::time::{Duration, Instant};

use anyhow::Result;

use crate::postgres::{Durability, Server};

use programs::built;
use step::Steps;

/// Tells tests that sweep to do all of it, and not only what continuous integration has time for.
const FULL: &str = "CAPSTAN_FULL";

/// Format, clippy, tidy.
pub(crate) fn lint(root: &Path) -> Result<ExitCode> {
    let out = &mut std::io::stdout();
    let mut steps = Steps::new(out);
    format_and_tidy(&mut steps, root)?;
    let clippy = ["clippy", "--locked", "--workspace", "--all-targets", "--", "--deny", "warnings"];
    steps.run("clippy", cargo(root).args(clippy))?;
    steps.show_failures()?;
    Ok(steps.outcome.count.summary())
}

/// Lint, then all tests, or those whose names have one of the words in them; sweeps in their full length where that is
/// asked for. The build before took some time.
pub(crate) fn test(root: &Path, full: bool, build: Duration, words: &[String]) -> Result<ExitCode> {
    let started = Instant::now();
    let out = &mut std::io::stdout();
    let mut steps = Steps::new(out);
    steps.outcome.times.add("build", build);
    format_and_tidy(&mut steps, root)?;
    let asked = Instant::now();
    let built = built(compiled_by_clippy(cargo(root)))?;
    steps.done("clippy", asked.elapsed(), &built.warnings)?;
    let (temporary, programs) = (env::temp_dir(), units::target_folder()?);
    let places = [programs.as_path(), Path::new("/var/tmp"), temporary.as_path(), Path::new(units::MEMORY)];
    steps.say(format!("\n==> free: {}\n", room::free(&places)).as_bytes())?;
    let postgres = Server::start(&temporary, Durability::None)?;
    if postgres.is_none() {
        steps.say(b"SKIP PostgreSQL is not installed: no test of the catalog on it was run\n")?;
        steps.outcome.count.skipped += 1;
    }
    let mut units = units::of_programs(&built.programs, postgres.as_ref())?;
    units.push(units::doc_tests(compiled_by_clippy(cargo(root))));
    units.extend(units::end_to_end(root, &programs, postgres.as_ref())?);
    units.retain(|unit| words.is_empty() || words.iter().any(|word| unit.name.contains(word)));
    let memory = units::memory();
    for unit in &mut units {
        if full {
            unit.command.env(FULL, "1");
        }
        if let Some(folder) = memory.as_ref().filter(|_| unit.in_memory) {
            unit.command.env("TMPDIR", folder.path());
        }
    }
    lanes::run(&mut steps, units)?;
    // While the tests' own files are there no more.
    for place in room::full(&places) {
        let words = format!("\n==> {} is full: what failed may have failed by that\n", place.display());
        steps.say(words.as_bytes())?;
    }
    let table = steps.outcome.times.table(build + started.elapsed());
    steps.say(format!("\n==> how long each part took\n{table}\n").as_bytes())?;
    steps.show_failures()?;
    Ok(steps.outcome.count.summary())
}

fn format_and_tidy(steps: &mut Steps<'_>, root: &Path) -> Result<()> {
    steps.run("format", cargo(root).args(["fmt", "--all", "--check"]))?;
    steps.run("tidy", Command::new(env::current_exe()?).arg("tidy").current_dir(root))
}

fn cargo(root: &Path) -> Command {
    let mut command = Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.current_dir(root);
    command
}

/// As `x` sets it for the build: with other words here, all would be compiled again.
fn compiled_by_clippy(mut cargo: Command) -> Command {
    cargo.env("RUSTC_WORKSPACE_WRAPPER", "clippy-driver");
    cargo
}
