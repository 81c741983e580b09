//! `capstan lab create-data`.

use std::io::{Write, stdout};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use capstan_client::files::ShownPath;
use capstan_lab::{DataSet, DataSetError, DataSetWatch, Differs, FileLengths, Names, Ratio, Shape, Shrunk};
use clap::{Args, ValueEnum};

use crate::failure::{DONE_WITH_PROBLEMS, Failure};
use crate::globals::Globals;
use crate::json::{self, DataSetRow};
use crate::progress::{Display, stop_on_interrupt};
use crate::table::path_text;
use crate::units;

#[derive(Debug, Args)]
pub(crate) struct CreateData {
    /// Where; must not exist, or be empty
    folder: PathBuf,
    /// Lengths of files, and how many are in a folder
    #[arg(long, value_enum, required_unless_present = "sizes", conflicts_with = "sizes")]
    preset: Option<Preset>,
    /// Lengths of files, evenly on a logarithmic scale: 4K-16K; or one length: 1M
    #[arg(long, value_name = "FROM-TO", value_parser = parse_sizes)]
    sizes: Option<(u64, u64)>,
    /// How many files
    #[arg(long, required_unless_present = "bytes")]
    files: Option<u64>,
    /// How many bytes: 40G; the last file ends there
    #[arg(long, value_parser = units::parse_bytes)]
    bytes: Option<u64>,
    /// How far each file compresses: 1 to 10
    #[arg(long, default_value_t = 2.0)]
    ratio: f64,
    /// How far each MB of a file compresses, evenly drawn: 1-10
    #[arg(long, value_name = "FROM-TO", value_parser = parse_ratios, conflicts_with = "ratio")]
    ratio_per_mb: Option<(f64, f64)>,
    /// What files and folders are called
    #[arg(long, value_enum, default_value = "plain")]
    names: NameStyle,
    /// How many files are in a folder [default: that of the preset; 500 with --sizes]
    #[arg(long, value_name = "N")]
    files_per_folder: Option<u64>,
    /// How many folders are in a folder: a tree of as many levels as that takes [default: all in one]
    #[arg(long, value_name = "N")]
    folders_per_folder: Option<u64>,
    /// What the tree follows from
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Make nothing: read a tree that was made so, and name the files that changed, that lack, and that are too much
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

/// What files and folders are called.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum NameStyle {
    /// A letter and a number
    Plain,
    /// 200 to 255 bytes
    Long,
    /// Characters of many scripts, of one to four bytes, up to 255 bytes
    Unicode,
    /// Spaces, newlines, leading dashes, escapes, what shells would run, what is not UTF-8
    Hostile,
}

impl NameStyle {
    fn names(self) -> Names {
        match self {
            Self::Plain => Names::Plain,
            Self::Long => Names::Long,
            Self::Unicode => Names::Unicode,
            Self::Hostile => Names::Hostile,
        }
    }
}

/// A compressor that makes so much more or less of a set than was asked, as a share, is worth a warning.
const RATIO_ERROR_MAX: f64 = 0.08;

/// `FROM-TO`, or one value for both.
fn parse_range<T: Copy>(text: &str, parse: impl Fn(&str) -> Result<T, String>) -> Result<(T, T), String> {
    match text.split_once('-') {
        Some((from, to)) => Ok((parse(from)?, parse(to)?)),
        None => parse(text).map(|both| (both, both)),
    }
}

fn parse_sizes(text: &str) -> Result<(u64, u64), String> {
    parse_range(text, units::parse_bytes)
}

fn parse_ratios(text: &str) -> Result<(f64, f64), String> {
    let ratio = |text: &str| {
        text.parse().map_err(|_| format!("{text:?} is not a ratio: write two numbers of 1 to 10, as in 1-10"))
    };
    parse_range(text, ratio)
}

impl CreateData {
    fn shape(&self) -> Result<Shape, Failure> {
        let kind = match (self.preset, self.sizes) {
            (Some(Preset::Small), _) => FileLengths::Small,
            (Some(Preset::Typical), _) => FileLengths::Typical,
            (None, Some((from, to))) => FileLengths::Sizes { from, to },
            (None, None) => return Err(Failure::Usage("name a --preset or --sizes".to_owned())),
        };
        let ratio = match self.ratio_per_mb {
            Some((from, to)) => Ratio::EachMb { from, to },
            None => Ratio::EachFile(self.ratio),
        };
        let Self { files, bytes, files_per_folder, folders_per_folder, seed, .. } = *self;
        let names = self.names.names();
        Ok(Shape { kind, files, bytes, ratio, names, files_per_folder, folders_per_folder, seed })
    }
}

pub(super) fn create_data(cli: &Globals, args: &CreateData) -> Result<ExitCode, Failure> {
    let told = |error: DataSetError| match error {
        DataSetError::Shape { .. } | DataSetError::LongPaths { .. } => Failure::Usage(error.to_string()),
        DataSetError::Stopped | DataSetError::CheckStopped => Failure::Stopped(error.to_string()),
        other => Failure::Other(other.to_string()),
    };
    let set = DataSet::plan(&args.shape()?).map_err(told)?;
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
    let (differing, shrunk, seconds) = display
        .during(&line, || {
            let differing = match args.check {
                true => set.check(&args.folder, &watch)?,
                false => {
                    set.make(&args.folder, &watch)?;
                    // What is only in memory was not made yet.
                    DataSet::flush(&args.folder)?;
                    Vec::new()
                }
            };
            let seconds = began.elapsed().as_secs_f64();
            // What is not as it was made says nothing of how it was made.
            let shrunk = if differing.is_empty() { Some(set.shrink(&args.folder)?) } else { None };
            Ok((differing, shrunk, seconds))
        })
        .map_err(told)?;
    let mb_per_s = all_bytes as f64 / 1e6 / seconds.max(1e-3);
    let mut out = stdout().lock();
    if cli.json {
        let of = |wanted: Option<Differs>| -> Vec<_> {
            let some = differing.iter().filter(|(_, differs)| wanted.is_none_or(|wanted| *differs == wanted));
            some.map(|(path, _)| ShownPath::from(path.as_os_str().as_bytes())).collect()
        };
        json::print(&DataSetRow {
            files: all_files,
            bytes: all_bytes,
            seconds,
            mb_per_s,
            differing: of(None),
            changed: of(Some(Differs::Changed)),
            missing: of(Some(Differs::Missing)),
            unreadable: of(Some(Differs::Unreadable)),
            extra: of(Some(Differs::Extra)),
            asked_ratio: shrunk.map(|shrunk| shrunk.asked),
            found_ratio: shrunk.map(|shrunk| shrunk.found),
            compressed_bytes: shrunk.map(|shrunk| shrunk.bytes),
        })?;
    } else {
        for (path, differs) in &differing {
            let path = path_text(args.folder.join(path).as_os_str().as_bytes());
            writeln!(out, "{:<10}  {path}", differs.name()).map_err(Failure::output)?;
        }
        let done = if args.check { "read" } else { "made and flushed" };
        let a_minute = units::count((all_files as f64 / seconds.max(1e-3) * 60.0) as u64);
        let (files, bytes, time) = (units::count(all_files), units::bytes(all_bytes), units::duration(seconds));
        display.say(&format!("{files} files, {bytes} {done} in {time}, {mb_per_s:.0} MB/s, {a_minute} files a minute"));
    }
    if let Some(shrunk) = shrunk {
        let Shrunk { asked, found, bytes } = shrunk;
        let bytes = units::bytes(bytes);
        display.say(&format!("asked {asked:.2}:1, found {found:.2}:1 (zstd level 1, {bytes} of the set)"));
        if shrunk.error().abs() > RATIO_ERROR_MAX {
            display.warn(&format!(
                "the set compresses {found:.2}:1, not {asked:.2}:1: files of a few hundred bytes have too little to repeat; \
                 make them longer, or ask for less"
            ));
        }
    }
    if differing.is_empty() { Ok(ExitCode::SUCCESS) } else { Ok(ExitCode::from(DONE_WITH_PROBLEMS)) }
}
