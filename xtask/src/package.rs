//! `.deb` packages of the product: `capstan`, where server, mover and client are one program, and `capstan-keyd`.
//!
//! Programs are copied and stripped. Man pages and completions are what the programs themselves print. Services, users,
//! scripts and the texts of the packages are files in `packaging/`, and [`contents`] says what goes where. Nothing of a
//! package is a number that a person keeps up to date: the version is that of Cargo.toml, and `dpkg-shlibdeps` tells
//! which versions of which libraries the programs need. It comes with `build-essential`, as the compiler does, so there
//! is no second way for machines without it.
//!
//! The same programs give the same bytes: owners are root, modes are set, and no time is later than the last commit.
//!
//! Budget: 620 lines with modules and tests, of which the licences of others are a fifth.

mod contents;
mod deb;
mod licences;
mod tree;

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use anyhow::{Context, Result, ensure};

use contents::PACKAGES;
use deb::{Compression, Facts};
use licences::Metadata;

#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// How the programs are built
    #[arg(long, value_enum, default_value_t = Profile::Release)]
    profile: Profile,
    /// Where the packages are put [default: packages in cargo's target folder]
    #[arg(long, value_name = "FOLDER")]
    out: Option<PathBuf>,
    /// Pack the programs of this folder, and build none
    #[arg(long, value_name = "FOLDER")]
    programs: Option<PathBuf>,
    /// The version of the packages [default: that of Cargo.toml]
    #[arg(long = "as", value_name = "VERSION")]
    version: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Profile {
    Debug,
    Release,
}

pub(crate) fn run(root: &Path, arguments: &Arguments) -> Result<ExitCode> {
    let target = root.join(env::var_os("CARGO_TARGET_DIR").unwrap_or_else(|| "target".into()));
    let programs = match &arguments.programs {
        Some(folder) => folder.clone(),
        None => build(root, &target, arguments.profile)?,
    };
    let out = arguments.out.clone().unwrap_or_else(|| target.join("packages"));
    fs::create_dir_all(&out).with_context(|| format!("make {}", out.display()))?;
    let facts = Facts {
        version: arguments.version.clone().unwrap_or_else(|| env!("CARGO_PKG_VERSION").to_owned()),
        architecture: said(Command::new("dpkg").arg("--print-architecture"))?.trim().to_owned(),
        epoch: said(Command::new("git").args(["log", "-1", "--format=%ct"]).current_dir(root))?.trim().to_owned(),
        // What is built to be tried is packed to be tried.
        compression: if arguments.profile == Profile::Debug { Compression::Fast } else { Compression::Small },
    };
    let crates = Metadata::read(root)?;
    for package in PACKAGES {
        let scratch = tempfile::tempdir()?;
        let tree = contents::tree(package, root, &programs, &crates, &scratch.path().join(package.name))?;
        let file = deb::build(package, root, &tree, &facts, &out)?;
        let mib = fs::metadata(&file)?.len() as f64 / f64::from(1 << 20);
        println!("{} {mib:.1} MiB", file.display());
    }
    Ok(ExitCode::SUCCESS)
}

/// Builds both programs; gives their folder.
fn build(root: &Path, target: &Path, profile: Profile) -> Result<PathBuf> {
    let mut cargo = Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    cargo
        .args(["build", "--locked", "--bins", "--package", "capstan-cli", "--package", "capstan-keyd"])
        .current_dir(root);
    let folder = match profile {
        Profile::Debug => "debug",
        Profile::Release => {
            cargo.arg("--release");
            "release"
        }
    };
    ensure!(cargo.status().context("start cargo")?.success(), "the programs were not built");
    Ok(target.join(folder))
}

/// What a program prints. It must succeed; if it does not, what it says is the error.
fn said(command: &mut Command) -> Result<String> {
    let name = command.get_program().to_string_lossy().into_owned();
    let output = command.output().with_context(|| format!("start {name}"))?;
    ensure!(output.status.success(), "{name}: {}\n{}", output.status, String::from_utf8_lossy(&output.stderr).trim());
    String::from_utf8(output.stdout).with_context(|| format!("{name} prints no text"))
}
