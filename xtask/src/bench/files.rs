//! Measures the catalog of a large cell: `examples/many_files` of the director, on SQLite and on PostgreSQL.

use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::{env, fs};

use anyhow::{Context, Result, ensure};

use super::machine;
use super::measure::Stage;
use crate::amount::grouped;
use crate::postgres::{Durability, Server};

#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// Scratch folder [default: bench-work]
    #[arg(long, value_name = "DIR")]
    work: Option<PathBuf>,
    /// Backups in the catalog
    #[arg(long, default_value_t = 500)]
    objects: u32,
    /// Files of each
    #[arg(long, default_value_t = 200_000)]
    entries: u32,
}

pub(crate) fn run(root: &Path, arguments: &Arguments) -> Result<ExitCode> {
    let work = arguments.work.clone().unwrap_or_else(|| root.join("bench-work"));
    let cargo = env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut build = Command::new(cargo);
    build.current_dir(root).args(["build", "--quiet", "--release", "--locked"]);
    build.args(["--package", "capstan-director", "--example", "many_files"]);
    let status = build.status().with_context(|| format!("run {build:?}"))?;
    ensure!(status.success(), "{build:?}: {status}");
    fs::create_dir_all(&work).with_context(|| work.display().to_string())?;
    for line in machine::describe_machine(&Stage::new(&work)) {
        println!("- {line}");
    }
    println!(
        "- {} files of {} backups\n",
        grouped(u64::from(arguments.objects) * u64::from(arguments.entries)),
        arguments.objects
    );
    for database in ["SQLite", "PostgreSQL"] {
        let folder = work.join(format!("many-files-{}", database.to_lowercase()));
        fs::create_dir_all(&folder).with_context(|| folder.display().to_string())?;
        let server = if database == "SQLite" { None } else { Server::start(&work, Durability::Full)? };
        let url = server.as_ref().map(Server::url);
        if url.is_none() && database != "SQLite" {
            println!("PostgreSQL is not installed (package postgresql)");
            continue;
        }
        println!("| {database} | measured | floor | |\n|---|--:|--:|---|");
        let program = env::current_exe()?.with_file_name("examples").join("many_files");
        let mut command = Command::new(program);
        command.arg(&folder).args([arguments.objects.to_string(), arguments.entries.to_string()]);
        command.env_remove("CAPSTAN_DATABASE").envs(url.map(|url| ("CAPSTAN_DATABASE", url)));
        let status = command.status().context("start many_files")?;
        fs::remove_dir_all(&folder).with_context(|| folder.display().to_string())?;
        ensure!(status.success(), "many_files: {status}");
        println!();
    }
    Ok(ExitCode::SUCCESS)
}
