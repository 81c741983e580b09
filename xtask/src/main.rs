//! Work on the project itself: `cargo xtask tidy`, `test`, `package`, `demo`, `bench`.
//!
//! `./x` is the door for people: it installs what is missing and calls this. No room of the product depends on this
//! crate, and it depends on none of them: whatever it drives, it drives by its command line.

mod amount;
mod bench;
mod demo;
mod package;
mod postgres;
mod suite;
mod tidy;

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, Result};
use clap::{Parser, Subcommand};

#[derive(Parser)]
#[command(name = "cargo xtask", about = "Work on the project itself")]
struct Arguments {
    #[command(subcommand)]
    task: Task,
}

#[derive(Subcommand)]
enum Task {
    /// Checks that dependencies follow the architecture, and that sources keep our habits
    Tidy,
    /// Format, clippy and tidy
    Lint,
    /// Lint, every test of the workspace, and the end-to-end tests in tests/
    Test {
        /// Sweeps in their full length, for a night: more rounds, kills and seeds than continuous integration has time
        /// for
        #[arg(long)]
        full: bool,
        /// How long the build before took, which is part of the time that tests have
        #[arg(long, value_name = "SECONDS", default_value_t = 0, hide = true)]
        build: u64,
        /// Only the parts whose names have one of these words in them
        #[arg(value_name = "WORD")]
        words: Vec<String>,
    },
    /// Makes the Debian packages of the product
    Package(package::Arguments),
    /// Does the main job on real trees, and shows it
    Demo(demo::Arguments),
    /// Shows a server that backs up two machines, all on loopback, while one of them is killed
    DemoCell(demo::cell::Arguments),
    /// Measures capstan and its peers in turn, and writes docs/PERFORMANCE.md
    Bench(bench::Arguments),
    /// Measures our tape drives against tgt's and against a bare socket, and writes docs/PERFORMANCE.md
    BenchTape(bench::tape::Arguments),
    /// Measures a node of the key-management cluster, and writes docs/PERFORMANCE.md
    BenchKeys(bench::keys::Arguments),
    /// Measures the main job beside that of another commit, or with the catalog in PostgreSQL beside SQLite, in turns;
    /// ends with 1 where something has become slower than another commit
    BenchBeside(bench::beside::Arguments),
    /// Measures what a cell costs: a backup through a server beside the command, and a server that waits; ends with 1
    /// where a floor is missed
    BenchCell(bench::cell::Arguments),
    /// Measures tiers: staging, copies, full backups made of incrementals, restores of long chains; ends with 1 where a
    /// floor is missed
    BenchTiers(bench::tiers::Arguments),
    /// Measures what a server needs with 10,000 clients that wait and 1,000 runs at work
    BenchCrowd(bench::cell::crowd::Arguments),
    /// Measures the catalog of a large cell: checkpoints taken in, sealing, searches; on SQLite and PostgreSQL
    BenchFiles(bench::files::Arguments),
    /// Measures clients that are backed up at the same time beside Bacula, both with PostgreSQL
    BenchClients(bench::clients::Arguments),
    /// Reads a tree and drops it: the floor that bench measures against
    #[command(hide = true)]
    BareRead(bench::reader::Arguments),
}

fn main() -> ExitCode {
    match run(Arguments::parse().task) {
        Ok(code) => code,
        Err(error) => {
            eprintln!("xtask: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(task: Task) -> Result<ExitCode> {
    match task {
        Task::Tidy => tidy::run(&root()?),
        Task::Lint => suite::lint(&root()?),
        Task::Test { full, build, words } => suite::test(&root()?, full, Duration::from_secs(build), &words),
        Task::Package(arguments) => package::run(&root()?, &arguments),
        Task::Demo(arguments) => demo::run(&root()?, &arguments),
        Task::DemoCell(arguments) => demo::cell::run(&arguments),
        Task::Bench(arguments) => bench::run(&root()?, &arguments),
        Task::BenchTape(arguments) => bench::tape::run(&root()?, &arguments),
        Task::BenchBeside(arguments) => bench::beside::run(&root()?, &arguments),
        Task::BenchCell(arguments) => bench::cell::run(&root()?, &arguments),
        Task::BenchTiers(arguments) => bench::tiers::run(&root()?, &arguments),
        Task::BenchCrowd(arguments) => bench::cell::crowd::run(&root()?, &arguments),
        Task::BenchFiles(arguments) => bench::files::run(&root()?, &arguments),
        Task::BenchClients(arguments) => bench::clients::run(&root()?, &arguments),
        Task::BenchKeys(arguments) => bench::keys::run(&root()?, &arguments),
        Task::BareRead(arguments) => bench::reader::run(&arguments),
    }
}

/// The top of the work tree.
fn root() -> Result<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().context("xtask lies in the work tree")?;
    Ok(root.to_owned())
}
