//! Drives in virtual time: `capstan simulate` and `capstan models`.

use std::io::{Write, stdout};
use std::path::PathBuf;
use std::process::ExitCode;

use capstan_lab::{HostLoad, Options, Simulation, SimulationError, plot, simulate};
use capstan_tape::model::{Conversion, built_in, built_in_names};
use clap::{Args, ValueEnum};

use super::{model, read};
use crate::failure::Failure;
use crate::globals::Globals;
use crate::json::{self, ModelRow, SimulatedRow};
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
pub(super) fn parse_mb(text: &str) -> Result<f64, String> {
    let digits = text.trim_end_matches(['k', 'K', 'M', 'G', 'T']);
    let scale = match &text[digits.len()..] {
        "" => 1e-6,
        "k" | "K" => 1e-3,
        "M" => 1.0,
        "G" => 1e3,
        "T" => 1e6,
        other => return Err(format!("{other} is not a unit: use k, M, G or T, in powers of ten")),
    };
    digits.parse::<f64>().map(|value| value * scale).map_err(|error| format!("{text}: {error}"))
}

pub(crate) fn simulation(cli: &Globals, args: &Simulate) -> Result<ExitCode, Failure> {
    let drive = model(&args.drive)?;
    let load = match (&args.trace, args.files) {
        (Some(path), _) => read(path, HostLoad::from_csv)?,
        (None, Some((count, mb))) => HostLoad::Files { count, mb, mb_per_s: args.rate, syncs: args.sync },
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

fn show(cli: &Globals, simulation: &Simulation) -> std::io::Result<()> {
    let mut out = stdout().lock();
    let totals = &simulation.totals;
    let mean = if totals.elapsed_s > 0.0 { totals.host_mb / totals.elapsed_s } else { 0.0 };
    if cli.json {
        return json::line(&SimulatedRow {
            drive: &simulation.drive,
            elapsed_s: totals.elapsed_s,
            host_mb: totals.host_mb,
            host_mb_per_s: mean,
            tape_mb: totals.tape_mb,
            pad_mb: totals.pad_mb,
            backhitches: totals.backhitches,
            speed_changes: totals.speed_changes,
            streaming_s: totals.streaming_s,
            host_waits_s: totals.host_waits_s,
            at_risk_mb: simulation.at_risk_mb,
            samples: &simulation.samples,
        });
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
pub(crate) fn models(cli: &Globals) -> Result<ExitCode, Failure> {
    let models: Result<Vec<_>, _> = built_in_names().map(built_in).collect();
    let models = models.map_err(|error| Failure::Other(error.to_string()))?;
    let mut out = stdout().lock();
    if cli.json {
        let mut lines = json::Lines::new();
        for model in &models {
            lines.row(&ModelRow {
                name: &model.name,
                native_mb_per_s: model.native_mb_per_s.value,
                ceiling_mb_per_s: model.ceiling_mb_per_s.value,
                buffer_mb: model.buffer_mb.value,
                backhitch_s: model.backhitch_s.value,
                capacity_gb: model.capacity_gb.value,
                block_len_max: model.block_len_max.value,
            })?;
        }
        lines.finish()?;
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
