//! What the suite runs: units of work that are independent of each other.

use std::env;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};
use rustix::fs::{StatVfsMountFlags, XattrFlags};
use tempfile::TempDir;

use super::programs::{Program, by_module};
use crate::postgres::Server;

/// End-to-end tests that run once more with the catalog's tables in PostgreSQL.
const ON_POSTGRES_TOO: &[&str] =
    &["cell_clients.py", "crash_sweep.py", "jobs_sweep.py", "roundtrip.sh", "server_sweep.py"];

/// The one of them that reaches it as it would another machine.
const ON_POSTGRES_WITH_TLS: &str = "roundtrip.sh";

/// Integration tests of the director that do not: they are about volumes, keys, drives or networks, whatever the
/// catalog stands on.
const NOT_ON_POSTGRES: &[&str] = &[
    "by_hand",
    "damage",
    "golden",
    "hostile_volume",
    "key_cluster",
    "mover_elsewhere",
    "order",
    "over_network",
    "over_sockets",
    "progress",
    "restores_over_network",
    "several_keys",
];

/// Crates whose integration tests take minutes: each module of them is a unit.
const BY_MODULE: &[&str] = &["catalog", "cli", "director", "keyd", "vtl"];

/// Tests of one program that run beside each other. Another program runs in the other lane, and what waits for disks,
/// processes and clocks leaves room for two.
const THREADS: &str = "2";

/// End-to-end tests, and a crate, whose files stay on a disk: whole trees, and what a file system in memory does
/// otherwise, such as the order of extended attributes.
const ON_DISK: &[&str] = &["full_disk.sh", "mover", "point_in_time.sh", "roundtrip.sh"];

/// Tests that mostly wait for clocks and connections, by their crate and program: of their time, nodes of a key cluster
/// use two fifths of a processor.
const WAITING: &[(&str, &str)] = &[("keyd", "faults"), ("keyd", "it")];

/// Where files in memory are.
pub(super) const MEMORY: &str = "/dev/shm";
/// What must be free there.
const MEMORY_FREE_MIN: u64 = 8 << 30;

/// Where a unit runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Place {
    /// Before all others, with nothing beside it: it measures the machine.
    Alone,
    /// One behind the other: a guest takes one processor, and waits for much.
    Guests,
    /// In a lane of their own beside the other two: they wait for clocks and connections most of the time, and take
    /// what the others leave of the processors.
    Waits,
    /// Beside anything.
    Anywhere,
}

/// A program to run, by itself.
#[derive(Debug)]
pub(super) struct Unit {
    pub(super) name: String,
    pub(super) command: Command,
    pub(super) place: Place,
    /// How many tests it must count, where that is known before.
    pub(super) tests: Option<usize>,
    /// Whether its files may be in memory.
    pub(super) in_memory: bool,
}

/// The tests of programs that cargo built, and, where there is a server of PostgreSQL, those of the catalog, and of the
/// director that stand on it, once more with the tables there.
pub(super) fn of_programs(programs: &[Program], postgres: Option<&Server>) -> Result<Vec<Unit>> {
    let mut units = Vec::new();
    for program in programs {
        let tests = program.tests()?;
        let modules = by_module(&tests);
        let whole = tests.iter().map(String::as_str).collect();
        let split = program.name == "it" && BY_MODULE.contains(&program.room.as_str());
        let shares = if split { modules.into_iter().collect() } else { vec![("", whole)] };
        for (module, tests) in shares.into_iter().filter(|(_, tests)| !tests.is_empty()) {
            units.push(tests_of(program, module, &tests));
            let on_postgres = match (program.room.as_str(), program.name.as_str()) {
                ("catalog", _) => true,
                ("director", "it") => !NOT_ON_POSTGRES.contains(&module),
                _ => false,
            };
            if let (Some(server), true) = (postgres, on_postgres) {
                let on_tables: Vec<_> = tests.iter().copied().filter(|test| !is_of_files(test)).collect();
                let mut unit = tests_of(program, module, &on_tables);
                unit.name += " on PostgreSQL";
                unit.command.arg("--include-ignored").env("CAPSTAN_POSTGRES", server.url());
                unit.command.env("CAPSTAN_POSTGRES_TLS", server.url_with_tls());
                units.push(unit);
            }
        }
    }
    Ok(units)
}

/// Whether a test of the catalog is about index files alone, whatever the tables stand on.
fn is_of_files(test: &str) -> bool {
    ["index::", "sort::"].iter().any(|module| test.starts_with(module))
}

/// Some tests of a program: those of a module, or all.
fn tests_of(program: &Program, module: &str, tests: &[&str]) -> Unit {
    let mut command = program.command();
    command.arg("--exact").args(tests).env("RUST_TEST_THREADS", THREADS);
    let colon = if module.is_empty() { "" } else { ": " };
    let place = match (program.room.as_str(), program.name.as_str()) {
        // The one that measures: the library of advice (crates/lab/tests/advice.rs).
        (_, "advice") => Place::Alone,
        named if WAITING.contains(&named) => Place::Waits,
        _ => Place::Anywhere,
    };
    let name = format!("{} of {}{colon}{module}", program.name, program.room);
    let in_memory = place != Place::Alone && !ON_DISK.contains(&program.room.as_str());
    Unit { name, command, place, tests: Some(tests.len()), in_memory }
}

/// The examples in the documentation.
pub(super) fn doc_tests(mut cargo: Command) -> Unit {
    cargo.args(["test", "--locked", "--workspace", "--doc", "--no-fail-fast", "--quiet"]);
    Unit { name: "doc tests".into(), command: cargo, place: Place::Anywhere, tests: None, in_memory: true }
}

/// The end-to-end tests, which find the programs in a folder; those of the catalog once more on PostgreSQL.
pub(super) fn end_to_end(root: &Path, programs: &Path, postgres: Option<&Server>) -> Result<Vec<Unit>> {
    let mut units = vec![demo_of_cell(root, programs)];
    for script in executables(&root.join("tests"))? {
        let name = script.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let place = match name.as_str() {
            "advice.sh" => Place::Alone,
            name if name.starts_with("tape_") => Place::Guests,
            "cell_mover.py" => Place::Waits,
            _ => Place::Anywhere,
        };
        let unit = || {
            let mut command = Command::new(&script);
            command.current_dir(root);
            command.env("CAPSTAN_BIN", programs.join("capstan")).env("KEYD_BIN", programs.join("keyd"));
            let in_memory = matches!(place, Place::Anywhere | Place::Waits) && !ON_DISK.contains(&name.as_str());
            Unit { name: name.clone(), command, place, tests: None, in_memory }
        };
        units.push(unit());
        if let (Some(server), true) = (postgres, ON_POSTGRES_TOO.contains(&name.as_str())) {
            let mut unit = unit();
            unit.name += " on PostgreSQL";
            // What `capstan init` asks for where it is told nothing else.
            let url = if name == ON_POSTGRES_WITH_TLS { server.url_with_tls() } else { server.url() };
            unit.command.env("CAPSTAN_DATABASE", url);
            units.push(unit);
        }
    }
    Ok(units)
}

/// A folder in memory for tests, which wait for disks half of their time: they sync whatever is said to be protected,
/// and no test cuts the power. None where there is no room, or where files lack what they have on disks.
pub(super) fn memory() -> Option<TempDir> {
    let about = rustix::fs::statvfs(MEMORY).ok()?;
    let roomy = about.f_bavail * about.f_frsize >= MEMORY_FREE_MIN && !about.f_flag.contains(StatVfsMountFlags::NOEXEC);
    let folder = tempfile::Builder::new().prefix("capstan-suite-").tempdir_in(MEMORY).ok().filter(|_| roomy)?;
    // Linux has had these on files in memory since 6.6.
    rustix::fs::setxattr(folder.path(), "user.capstan", b"1", XattrFlags::empty()).ok()?;
    Some(folder)
}

/// The demonstration of a cell, which ends by itself and fails where something is not as it says.
fn demo_of_cell(root: &Path, programs: &Path) -> Unit {
    let mut command = Command::new(programs.join("xtask"));
    command.arg("demo-cell").current_dir(root);
    Unit { name: "demo cell".into(), command, place: Place::Anywhere, tests: None, in_memory: true }
}

/// The executable files of a folder, by name.
fn executables(folder: &Path) -> Result<Vec<PathBuf>> {
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

/// Where cargo put this program, and with it the product.
pub(super) fn target_folder() -> Result<PathBuf> {
    Ok(env::current_exe()?.parent().context("a program lies in a folder")?.to_owned())
}
