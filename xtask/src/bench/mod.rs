//! Measures capstan and its peers in turn, in one run on one machine, and writes docs/PERFORMANCE.md.
//!
//! ```text
//! data sets (once) -> round 1: every contestant -> round 2: the same, in another order -> ... -> medians, floors, report
//! ```
//! Contestants are tables ([`peers`], [`ours`]); a run is a shell line that is measured from outside ([`measure`]).

mod bacula;
pub(crate) mod beside;
pub(crate) mod cell;
pub(crate) mod clients;
mod contest;
mod contestants;
pub(crate) mod files;
mod floors;
pub(crate) mod keys;
mod machine;
mod measure;
mod memory;
mod ours;
mod peers;
pub(crate) mod reader;
mod report;
pub(crate) mod tape;
pub(crate) mod tiers;

use std::env;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use capstan_lab::{DataSet, DataSetWatch, FileLengths, Shape};

use crate::amount::{grouped, parse_bytes, shown_bytes, shown_time};
use contest::{Cache, Contestant, Sizes};
use measure::Stage;

#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// Scratch folder; data sets in it are used again [default: bench-work]
    #[arg(long, value_name = "DIR")]
    work: Option<PathBuf>,
    /// Files of 4-16 KB
    #[arg(long, default_value_t = 200_000)]
    small_files: u64,
    /// Bytes in files of 64 KB-64 MB
    #[arg(long, default_value = "4G", value_parser = parse_bytes)]
    typical_bytes: u64,
    /// Runs of each contestant
    #[arg(long, default_value_t = 3)]
    rounds: usize,
    /// No new round begins that would end later than this
    #[arg(long, default_value_t = 15)]
    minutes: u64,
    /// Only contestants whose id holds one of these, as small-null/ or capstan; the page is not written then
    #[arg(long, value_name = "TEXT")]
    only: Vec<String>,
    /// The program to measure [default: the one built beside this]
    #[arg(long, value_name = "FILE")]
    capstan: Option<PathBuf>,
}

/// Both data sets follow from it.
const SEED: u64 = 1;

pub(crate) fn run(root: &Path, arguments: &Arguments) -> Result<ExitCode> {
    let started = Instant::now();
    let work = arguments.work.clone().unwrap_or_else(|| root.join("bench-work"));
    std::fs::create_dir_all(&work).with_context(|| format!("make {}", work.display()))?;
    let work = work.canonicalize()?;
    let mut stage = Stage::new(&work);
    let sizes = make_data_sets(&mut stage, arguments.small_files, arguments.typical_bytes)?;
    set_programs(&mut stage, arguments)?;

    let contestants: Vec<Contestant> = chosen(&arguments.only);
    ensure!(!contestants.is_empty(), "--only {:?} leaves nobody", arguments.only);
    let until = started + Duration::from_secs(arguments.minutes * 60);
    let results = contest::run(&stage, &contestants, sizes, arguments.rounds, until)?;

    let version_bytes = stage.run(ours::VERSION_BYTES).ok().and_then(|text| text.trim().parse().ok());
    let machine = machine::describe(&stage);
    let date = jiff::Zoned::now().strftime("%Y-%m-%d %H:%M %Z").to_string();
    let words: Vec<String> = env::args().skip(2).collect();
    let command = ["./x bench"].into_iter().chain(words.iter().map(String::as_str)).collect::<Vec<_>>().join(" ");
    let text = report::Report { results: &results, sizes, version_bytes, machine, date, command }.render()?;
    println!("\n{text}");
    if arguments.only.is_empty() {
        report::write(&root.join("docs/PERFORMANCE.md"), report::MAIN, &text)?;
        println!("docs/PERFORMANCE.md is written");
    }
    stage.run("rm -rf out spent kept bacula age.key small.tar")?;
    println!("took {}; the data sets stay in {}", shown_time(started.elapsed()), work.display());
    Ok(ExitCode::SUCCESS)
}

/// Who runs: those whose id was asked for, and cold runs only where the cache may be dropped.
fn chosen(only: &[String]) -> Vec<Contestant> {
    let root = rustix::process::geteuid().is_root();
    if !root {
        println!("not root, so the page cache cannot be dropped: no cold runs");
    }
    let asked = |contestant: &&Contestant| only.is_empty() || only.iter().any(|text| contestant.id.contains(text));
    let possible = |contestant: &&Contestant| root || contestant.cache == Cache::Warm;
    contestants::all_contestants().filter(asked).filter(possible).copied().collect()
}

/// Makes the data sets, unless they lie there from the last time.
fn make_data_sets(stage: &mut Stage, small_files: u64, typical_bytes: u64) -> Result<Sizes> {
    let small = DataSet::plan(&Shape::of_files(FileLengths::Small, small_files, SEED))?;
    let typical = DataSet::plan(&Shape::of_bytes(FileLengths::Typical, typical_bytes, SEED))?;
    for (variable, name, set) in [("SMALL", "small", &small), ("TYPICAL", "typical", &typical)] {
        let folder = stage.work.join(name);
        stage.set(variable, &folder);
        let made = stage.work.join(format!("{name}.made"));
        let what = format!("{} files, {} bytes, seed {SEED}\n", set.file_count(), set.bytes());
        if std::fs::read_to_string(&made).is_ok_and(|text| text == what) {
            continue;
        }
        println!("making {}: {} files, {}", folder.display(), grouped(set.file_count()), shown_bytes(set.bytes()));
        stage.run(&format!("rm -rf {name} {name}.made"))?;
        set.make(&folder, &DataSetWatch::default())?;
        std::fs::write(made, what)?;
    }
    let one = small.number_of_length(8192);
    let one = stage.work.join("small").join(small.file_path(one));
    stage.set("ONE", &one);
    Ok(Sizes {
        small_files: small.file_count(),
        small_bytes: small.bytes(),
        typical_files: typical.file_count(),
        typical_bytes: typical.bytes(),
    })
}

/// Lets scripts find this program, capstan, and where it keeps its state.
fn set_programs(stage: &mut Stage, arguments: &Arguments) -> Result<()> {
    let xtask = env::current_exe()?;
    let capstan = arguments.capstan.clone().unwrap_or_else(|| xtask.with_file_name("capstan"));
    let capstan = capstan.canonicalize().with_context(|| format!("{} is not built", capstan.display()))?;
    let folder = capstan.parent().context("a program lies in a folder")?;
    let path = env::join_paths(
        [folder.to_owned()].into_iter().chain(env::split_paths(&env::var_os("PATH").unwrap_or_default())),
    )?;
    stage.set("PATH", path);
    stage.set("XTASK", &xtask);
    let out = stage.work.join("out");
    stage.set("CAPSTAN_STATE", out.join("state"));
    stage.set("CAPSTAN_KEY_FILE", out.join("key"));
    stage.set("RESTIC_PASSWORD", "bench");
    stage.set("BORG_PASSPHRASE", "bench");
    stage.set("BORG_BASE_DIR", out.join("base"));
    Ok(())
}
