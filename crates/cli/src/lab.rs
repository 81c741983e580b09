//! The laboratory's commands: their arguments, and what they print.

use std::io::{Write, stdout};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use capstan_lab::{
    CompareError, Comparison, Conversion, DataSet, DataSetError, DataSetWatch, DriveModel, ExerciseError, GridError,
    HEADS, HostModel, Kind, Load, Options, Shape, Simulation, SimulationError, agreeing, built_in, built_in_host,
    built_in_names, calibrate, compare, mean_error, median_error, page, plot, predict_grid, read_grid, simulate,
};
use clap::{Args, Subcommand, ValueEnum};
use serde_json::json;

use crate::args::Cli;
use crate::failure::{DONE_WITH_PROBLEMS, Failure};
use crate::progress::{Display, stop_on_interrupt};
use crate::table::Table;
use crate::units;

/// Rows that a person reads; a longer simulation is drawn or printed as JSON.
const ROWS_MAX: usize = 60;

#[derive(Debug, Args)]
pub(crate) struct Simulate {
    /// A drive's name, as `capstan models` lists them, or the file of a model
    #[arg(long, value_name = "DRIVE")]
    drive: String,
    /// What the host offers: a CSV file with the columns from_s,to_s,mb_per_s
    #[arg(long, value_name = "FILE", required_unless_present = "files", conflicts_with = "files")]
    trace: Option<PathBuf>,
    /// Files of one length, one behind the other: 1923x13M
    #[arg(long, value_name = "COUNTxBYTES", value_parser = parse_files)]
    files: Option<(u64, f64)>,
    /// How fast the host hands files over, MB/s
    #[arg(long, value_name = "MB/S", default_value_t = 200.0)]
    rate: f64,
    /// The host waits behind each file until the file is on the tape
    #[arg(long)]
    sync: bool,
    /// How far the data compress: 2 for 2:1
    #[arg(long, default_value_t = 1.0)]
    ratio: f64,
    /// Switch on the drive's own handling of syncs (File Sync Accelerator, virtual backhitch)
    #[arg(long)]
    accelerate: bool,
    /// What the Tape Application Accelerator converts; a loss of power then takes what the buffer holds
    #[arg(long, value_enum)]
    convert: Option<Convert>,
    /// Seconds of an interval
    #[arg(long, value_name = "SECONDS", default_value_t = 1.0)]
    interval: f64,
    /// Draw it into this file
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Lab {
    /// Make a seeded tree of files to measure with
    #[command(
        after_help = "Examples:\n  capstan lab create-data --preset small --files 200000 /srv/small\n  capstan lab create-data --preset typical --bytes 40G --ratio 3 /srv/typical\n  capstan lab create-data --preset small --files 200000 /srv/small --check"
    )]
    CreateData(CreateData),
    /// Hold the models against this machine: 48 configurations of its own virtual drives, predicted and measured
    #[command(
        after_help = "Example:\n  capstan lab compare --folder /srv/scratch\n\nIt takes six minutes, and up to 2 GB of the folder while it runs."
    )]
    Compare {
        /// Where cartridges are made and removed
        #[arg(long, value_name = "DIR")]
        folder: PathBuf,
    },
    /// Predict a table of jobs, row by row, for any drive that has a model
    #[command(
        after_help = "Example:\n  capstan lab characterize --grid table.csv > predicted.csv\n\nThe table has the columns drive,data_buffers,buffer_size,encrypted,file_size,compression_ratio and, where it was measured, mb_per_s."
    )]
    Characterize(Characterize),
    /// Print the models beside the numbers that were published (docs/MODEL.md)
    #[command(after_help = "Example:\n  capstan lab published > docs/MODEL.md")]
    Published,
}

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

#[derive(Debug, Args)]
pub(crate) struct Characterize {
    /// The table, CSV
    #[arg(long, value_name = "FILE")]
    grid: PathBuf,
    /// The host that reads the files: lto4 or t10000a, after the tables they were calibrated against, or a file of your own (.toml)
    #[arg(long, value_name = "HOST", default_value = "lto4")]
    host: String,
    /// Find the host's figures by what was measured first, and print them
    #[arg(long)]
    calibrate: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Convert {
    /// File syncs are answered at once
    FileSyncs,
    /// Tape marks are buffered, too
    TapeMarks,
}

fn parse_files(text: &str) -> Result<(u64, f64), String> {
    let (count, bytes) = text.split_once('x').ok_or("a number of files and a length, as 1923x13M")?;
    let count = count.parse().map_err(|error| format!("{count}: {error}"))?;
    Ok((count, parse_mb(bytes)?))
}

/// Lengths in the laboratory are in powers of ten, as in data sheets.
fn parse_mb(text: &str) -> Result<f64, String> {
    let digits = text.trim_end_matches(['k', 'K', 'M', 'G', 'T']);
    let scale = match &text[digits.len()..] {
        "" => 1e-6,
        "k" | "K" => 1e-3,
        "M" => 1.0,
        "G" => 1e3,
        "T" => 1e6,
        other => return Err(format!("{other} is no unit; there are k, M, G and T, in powers of ten")),
    };
    digits.parse::<f64>().map(|value| value * scale).map_err(|error| format!("{text}: {error}"))
}

/// Reads a file that a person named; whatever is wrong with it is told with its name.
fn read<T, E: std::fmt::Display>(path: &Path, parse: impl FnOnce(&str) -> Result<T, E>) -> Result<T, Failure> {
    let wrong = |reason: &dyn std::fmt::Display| Failure::Usage(format!("{}: {reason}", path.display()));
    let text = std::fs::read_to_string(path).map_err(|error| wrong(&error))?;
    parse(&text).map_err(|error| wrong(&error))
}

fn model(name: &str) -> Result<DriveModel, Failure> {
    if name.ends_with(".toml") {
        return read(Path::new(name), DriveModel::from_toml);
    }
    built_in(name).map_err(|error| Failure::Usage(format!("{error}. A file of your own ends with .toml")))
}

pub(crate) fn simulation(cli: &Cli, args: &Simulate) -> Result<ExitCode, Failure> {
    let drive = model(&args.drive)?;
    let load = match (&args.trace, args.files) {
        (Some(path), _) => read(path, Load::from_csv)?,
        (None, Some((count, mb))) => Load::Files { count, mb, mb_per_s: args.rate, syncs: args.sync },
        (None, None) => return Err(Failure::Usage("name a --trace or --files".to_owned())),
    };
    let conversion = match args.convert {
        None => Conversion::None,
        Some(Convert::FileSyncs) => Conversion::FileSyncs,
        Some(Convert::TapeMarks) => Conversion::TapeMarks,
    };
    let options = Options { ratio: args.ratio, conversion, accelerated: args.accelerate, interval_s: args.interval };
    let told = |error: SimulationError| Failure::Usage(error.to_string());
    let simulation = simulate(&drive, &load, &options).map_err(told)?;
    if let Some(path) = &args.svg {
        let title = title(&simulation, args);
        let written = std::fs::write(path, plot(&simulation, &title));
        written.map_err(|error| Failure::Other(format!("cannot write {}: {error}", path.display())))?;
    }
    show(cli, &simulation).map_err(Failure::output)?;
    Ok(ExitCode::SUCCESS)
}

fn title(simulation: &Simulation, args: &Simulate) -> String {
    let drive = &simulation.drive;
    match (&args.trace, args.files) {
        (Some(path), _) => format!("{drive} under {}", path.display()),
        (None, Some((count, mb))) => {
            let syncs = if args.sync { ", a sync behind each" } else { "" };
            format!("{drive}: {count} files of {mb} MB at {} MB/s{syncs}", args.rate)
        }
        (None, None) => drive.clone(),
    }
}

fn show(cli: &Cli, simulation: &Simulation) -> std::io::Result<()> {
    let mut out = stdout().lock();
    let totals = &simulation.totals;
    let mean = if totals.elapsed_s > 0.0 { totals.host_mb / totals.elapsed_s } else { 0.0 };
    if cli.json {
        let value = json!({
            "drive": simulation.drive,
            "elapsed_s": totals.elapsed_s,
            "host_mb": totals.host_mb,
            "host_mb_per_s": mean,
            "tape_mb": totals.tape_mb,
            "pad_mb": totals.pad_mb,
            "backhitches": totals.backhitches,
            "speed_changes": totals.speed_changes,
            "streaming_s": totals.streaming_s,
            "host_waits_s": totals.host_waits_s,
            "at_risk_mb": simulation.at_risk_mb,
            "samples": simulation.samples,
        });
        return writeln!(out, "{value}");
    }
    if !cli.quiet && simulation.samples.len() <= ROWS_MAX {
        let mut table = Table::new(&[">second", ">host MB/s", ">tape MB/s", ">buffer MB", ">backhitches", "tape"]);
        for sample in &simulation.samples {
            let cells = [sample.at_s, sample.host_mb_per_s, sample.tape_mb_per_s, sample.buffer_mb];
            let mut cells: Vec<String> = cells.iter().map(|value| format!("{value:.1}")).collect();
            cells.push(sample.backhitches.to_string());
            cells.push(if sample.moving { "moves" } else { "stands" }.to_owned());
            table.row(cells);
        }
        table.print(&mut out)?;
        writeln!(out)?;
    }
    let mut line = |name: &str, value: String| writeln!(out, "{name:<16}{value}");
    line("drive", simulation.drive.clone())?;
    line("time", units::duration(totals.elapsed_s))?;
    line(
        "host",
        format!("{:.0} MB, {mean:.1} MB/s; it waited {}", totals.host_mb, units::duration(totals.host_waits_s)),
    )?;
    line(
        "tape",
        format!(
            "{:.0} MB, moving {:.0} % of the time",
            totals.tape_mb,
            100.0 * totals.streaming_s / totals.elapsed_s.max(1e-9)
        ),
    )?;
    line("backhitches", format!("{}, of them {} for another speed", totals.backhitches, totals.speed_changes))?;
    if totals.pad_mb > 0.0 {
        line("pad", format!("{:.0} MB of the tape's capacity", totals.pad_mb))?;
    }
    if simulation.at_risk_mb > 0.0 {
        line(
            "at risk",
            format!("{:.0} MB that were answered and not on the tape, had the power failed", simulation.at_risk_mb),
        )?;
    }
    if !cli.quiet && simulation.samples.len() > ROWS_MAX {
        line("intervals", format!("{}: --svg FILE draws them, --json prints them", simulation.samples.len()))?;
    }
    Ok(())
}

/// Lists the drives that have a model.
pub(crate) fn models(cli: &Cli) -> Result<ExitCode, Failure> {
    let models: Result<Vec<_>, _> = built_in_names().map(built_in).collect();
    let models = models.map_err(|error| Failure::Other(error.to_string()))?;
    let mut out = stdout().lock();
    if cli.json {
        let rows: Vec<_> = models
            .iter()
            .map(|model| {
                json!({
                    "name": model.name,
                    "native_mb_per_s": model.native_mb_per_s.value,
                    "ceiling_mb_per_s": model.ceiling_mb_per_s.value,
                    "buffer_mb": model.buffer_mb.value,
                    "backhitch_s": model.backhitch_s.value,
                    "capacity_gb": model.capacity_gb.value,
                    "block_len_max": model.block_len_max.value,
                })
            })
            .collect();
        writeln!(out, "{}", json!(rows)).map_err(Failure::output)?;
        return Ok(ExitCode::SUCCESS);
    }
    let heads = [
        "drive",
        ">native MB/s",
        ">ceiling MB/s",
        ">buffer MB",
        ">backhitch s",
        ">capacity GB",
        "of its figures, estimates",
    ];
    let mut table = Table::new(&heads);
    for model in &models {
        let (estimates, all) = model.estimates();
        let values =
            [&model.native_mb_per_s, &model.ceiling_mb_per_s, &model.buffer_mb, &model.backhitch_s, &model.capacity_gb];
        let mut cells = vec![model.name.clone()];
        cells.extend(values.iter().map(|figure| figure.value.to_string()));
        cells.push(format!("{estimates} of {all}"));
        table.row(cells);
    }
    table.print(&mut out).map_err(Failure::output)?;
    Ok(ExitCode::SUCCESS)
}

pub(crate) fn lab(cli: &Cli, args: &Lab) -> Result<ExitCode, Failure> {
    match args {
        Lab::CreateData(args) => create_data(cli, args),
        Lab::Compare { folder } => comparison(cli, folder),
        Lab::Characterize(args) => characterize(cli, args),
        Lab::Published => {
            let text = page().map_err(|error| Failure::Other(error.to_string()))?;
            write!(stdout().lock(), "{text}").map_err(Failure::output)?;
            Ok(ExitCode::SUCCESS)
        }
    }
}

fn create_data(cli: &Cli, args: &CreateData) -> Result<ExitCode, Failure> {
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

fn comparison(cli: &Cli, folder: &Path) -> Result<ExitCode, Failure> {
    let stop = Arc::new(AtomicBool::new(false));
    stop_on_interrupt(&stop);
    let display = Display::new(cli);
    let mut tell = |one: &Comparison| {
        let (predicted, measured) = (one.predicted_mb_per_s, one.measured_mb_per_s);
        display.say(&format!("{}: predicted {predicted:.1} MB/s, measured {measured:.1}", one.what));
    };
    let all = compare(folder, &stop, &mut tell).map_err(|error| match error {
        CompareError::Exercise(ExerciseError::Stopped) => Failure::Stopped(error.to_string()),
        other => Failure::Other(other.to_string()),
    })?;
    let median =
        |paced: Option<bool>| median_error(all.iter().filter(|one| paced.is_none_or(|paced| one.paced == paced)));
    let mut out = stdout().lock();
    if cli.json {
        let rows: Vec<_> = all
            .iter()
            .map(|one| {
                json!({
                    "what": one.what,
                    "paced": one.paced,
                    "predicted_mb_per_s": one.predicted_mb_per_s,
                    "measured_mb_per_s": one.measured_mb_per_s,
                    "error": one.error(),
                })
            })
            .collect();
        writeln!(out, "{}", json!({"median_error": median(None), "rows": rows})).map_err(Failure::output)?;
        return Ok(ExitCode::SUCCESS);
    }
    let mut table = Table::new(&["configuration", ">predicted MB/s", ">measured MB/s", ">error %"]);
    for one in &all {
        table.row(vec![
            one.what.clone(),
            format!("{:.1}", one.predicted_mb_per_s),
            format!("{:.1}", one.measured_mb_per_s),
            format!("{:+.1}", one.error() * 100.0),
        ]);
    }
    table.print(&mut out).map_err(Failure::output)?;
    let share = |paced| median(paced) * 100.0;
    writeln!(
        out,
        "median error {:.1} % over {} configurations: paced {:.1} %, not paced {:.1} %",
        share(None),
        all.len(),
        share(Some(true)),
        share(Some(false))
    )
    .map_err(Failure::output)?;
    Ok(ExitCode::SUCCESS)
}

fn host(name: &str) -> Result<HostModel, Failure> {
    if name.ends_with(".toml") {
        return read(Path::new(name), HostModel::from_toml);
    }
    let unknown = || {
        Failure::Usage(format!("no host is named {name}; there are lto4 and t10000a, and files that end with .toml"))
    };
    built_in_host(name).ok_or_else(unknown)
}

fn characterize(cli: &Cli, args: &Characterize) -> Result<ExitCode, Failure> {
    let told = |error: GridError| Failure::Usage(format!("{}: {error}", args.grid.display()));
    let cells = read(&args.grid, read_grid)?;
    let mut host = host(&args.host)?;
    if args.calibrate {
        // Where a table contradicts itself, its rows say nothing of the host.
        let agreeing = agreeing(&cells, 0.1);
        let by = if agreeing.is_empty() { &cells } else { &agreeing };
        host = calibrate(by, &host).map_err(told)?.0;
        let HostModel {
            open_s,
            request_s,
            window_kb,
            stream_mb_per_s,
            border_s,
            cycle_s,
            copy_mb_per_s,
            steadiness,
            ..
        } = host;
        eprintln!(
            "# calibrated by {} of {} rows\nname = \"mine\"\nopen_s = {open_s:.6}\nrequest_s = {request_s:.6}\nwindow_kb = {window_kb:.0}\n\
             stream_mb_per_s = {stream_mb_per_s:.1}\nborder_s = {border_s:.6}\ncycle_s = {cycle_s:.5}\ncopy_mb_per_s = {copy_mb_per_s:.1}\n\
             steadiness = {steadiness:.2}",
            by.len(),
            cells.len()
        );
    }
    let predictions = predict_grid(&cells, &host).map_err(told)?;
    let mut out = stdout().lock();
    if cli.json {
        let rows: Vec<_> = cells
            .iter()
            .zip(&predictions)
            .map(|(cell, prediction)| {
                let mut row = serde_json::Map::new();
                row.extend(HEADS.iter().zip(&cell.columns).map(|(head, value)| ((*head).to_owned(), json!(value))));
                row.insert("mb_per_s".to_owned(), json!(cell.measured_mb_per_s));
                row.insert("predicted_mb_per_s".to_owned(), json!(prediction.mb_per_s));
                row.insert("bottleneck".to_owned(), json!(prediction.bottleneck().name()));
                row
            })
            .collect();
        writeln!(out, "{}", json!(rows)).map_err(Failure::output)?;
    } else {
        let measured = cells.iter().any(|cell| cell.measured_mb_per_s.is_some());
        let head = if measured { ",mb_per_s" } else { "" };
        let mut lines = format!("{}{head},predicted_mb_per_s,bottleneck\n", HEADS.join(","));
        for (cell, prediction) in cells.iter().zip(&predictions) {
            lines.push_str(&cell.columns.join(","));
            if measured {
                lines.push(',');
                lines.extend(cell.measured_mb_per_s.map(|rate| rate.to_string()));
            }
            lines.push_str(&format!(",{:.3},{}\n", prediction.mb_per_s, prediction.bottleneck().name()));
        }
        out.write_all(lines.as_bytes()).map_err(Failure::output)?;
    }
    if let Some(error) = mean_error(&cells, &predictions)
        && !cli.quiet
    {
        eprintln!("capstan: mean absolute error {:.1} % over {} rows", error * 100.0, cells.len());
    }
    Ok(ExitCode::SUCCESS)
}
