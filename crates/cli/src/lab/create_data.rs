//! `capstan lab create-data`.

use std::io::{Write, stdout};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use capstan_lab::{DataSet, DataSetError, DataSetWatch, Kind, Shape};
use clap::{Args, ValueEnum};
use serde_json::json;

use crate::args::Cli;
use crate::failure::{DONE_WITH_PROBLEMS, Failure};
use crate::progress::{Display, stop_on_interrupt};
use crate::units;

#[derive(Debug, Args)]
pub(crate) struct CreateData {
    /// Where; must not exist, or be empty
    folder: PathBuf,
    /// Lengths of files, and how many are in a folder
    #[arg(long, value_enum)]
    preset: Preset,
    /// How many files
    #[arg(long, required_unless_present = "bytes")]
    files: Option<u64>,
    /// How many bytes: 40G; the last file ends there
    #[arg(long, value_parser = units::parse_bytes)]
    bytes: Option<u64>,
    /// How far each file compresses: 1 to 10
    #[arg(long, default_value_t = 2.0)]
    ratio: f64,
    /// What the tree follows from
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Make nothing: read a tree that was made so, and name the files that are not as they were
    #[arg(long)]
    check: bool,
}

/// The data sets of the Data Protector paper, at any scale.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Preset {
    /// Files of 4 to 16 KB, 690 in a folder
    Small,
    /// Files of 64 KB to 64 MB, 200 in a folder
    Typical,
}

pub(super) fn create_data(cli: &Cli, args: &CreateData) -> Result<ExitCode, Failure> {
    let told = |error: DataSetError| match error {
        DataSetError::Shape { .. } => Failure::Usage(error.to_string()),
        DataSetError::Stopped => Failure::Stopped(error.to_string()),
        other => Failure::Other(other.to_string()),
    };
    let kind = match args.preset {
        Preset::Small => Kind::Small,
        Preset::Typical => Kind::Typical,
    };
    let shape = Shape { kind, files: args.files, bytes: args.bytes, ratio: args.ratio, seed: args.seed };
    let set = DataSet::plan(&shape).map_err(told)?;
    let watch = DataSetWatch::default();
    stop_on_interrupt(&watch.stop);
    let (all_files, all_bytes) = (set.file_count(), set.bytes());
    let line = |elapsed: Duration| {
        let (files, bytes) = (watch.files.load(Ordering::Relaxed), watch.bytes.load(Ordering::Relaxed));
        let share = bytes as f64 / all_bytes as f64;
        let left = if share > 0.0 { elapsed.as_secs_f64() * (1.0 - share) / share } else { 0.0 };
        let rate = bytes as f64 / elapsed.as_secs_f64().max(1e-3);
        let (files, rate, left) = (units::count(files), units::bytes(rate as u64), units::duration(left));
        (format!("{files} files, {rate}/s, {left} left"), Some(share))
    };
    let display = Display::new(cli);
    let began = Instant::now();
    let differing = display.during(&line, || match args.check {
        true => set.check(&args.folder, &watch),
        false => set.make(&args.folder, &watch).map(|()| Vec::new()),
    });
    let differing = differing.map_err(told)?;
    let seconds = began.elapsed().as_secs_f64();
    let mut out = stdout().lock();
    if cli.json {
        let differing: Vec<_> = differing.iter().map(|path| path.display().to_string()).collect();
        let value = json!({"files": all_files, "bytes": all_bytes, "seconds": seconds, "differing": differing});
        writeln!(out, "{value}").map_err(Failure::output)?;
    } else {
        for path in &differing {
            writeln!(out, "{}", args.folder.join(path).display()).map_err(Failure::output)?;
        }
        let done = if args.check { "read" } else { "made" };
        let a_minute = units::count((all_files as f64 / seconds.max(1e-3) * 60.0) as u64);
        let (files, bytes, time) = (units::count(all_files), units::bytes(all_bytes), units::duration(seconds));
        display.say(&format!("{files} files, {bytes} {done} in {time}, {a_minute} files a minute"));
    }
    if differing.is_empty() { Ok(ExitCode::SUCCESS) } else { Ok(ExitCode::from(DONE_WITH_PROBLEMS)) }
}
