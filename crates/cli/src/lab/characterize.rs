//! `capstan lab characterize`.

use std::io::{Write, stdout};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use capstan_lab::{
    Cell, DataSetWatch, GridAxes, GridError, HEADS, HostModel, Prediction, ReportSection, agreeing, built_in_host,
    calibrate, make_grid, mean_error, measure_grid, predict_grid, read_grid, report as page,
};
use clap::Args;

use super::read;
use super::simulate::parse_mb;
use crate::failure::Failure;
use crate::globals::Globals;
use crate::json::{self, GridRow};
use crate::progress::{Display, stop_on_interrupt};
use crate::secrets::now_ns;
use crate::units;

#[derive(Debug, Args)]
pub(crate) struct Characterize {
    /// A table of jobs, CSV
    #[arg(
        long,
        value_name = "FILE",
        required_unless_present = "drive",
        conflicts_with_all = ["drive", "file_sizes", "buffer_sizes", "buffers", "ratios", "encrypted"]
    )]
    grid: Option<PathBuf>,
    /// Make the table instead, for these drives of `capstan models`: everything with everything
    #[arg(long, value_name = "DRIVE,DRIVE", value_delimiter = ',')]
    drive: Vec<String>,
    /// Bytes of a file [default: 32K,256K,1M,1G,5G,10G, as the papers have]
    #[arg(long, value_name = "BYTES,BYTES", value_delimiter = ',', value_parser = units::parse_bytes)]
    file_sizes: Option<Vec<u64>>,
    /// Bytes of a buffer, which is a block on the tape [default: 64K,256K,512K,2M,8M, where the drive writes them]
    #[arg(long, value_name = "BYTES,BYTES", value_delimiter = ',', value_parser = units::parse_bytes)]
    buffer_sizes: Option<Vec<u64>>,
    /// How many buffers [default: 4,8,16,32]
    #[arg(long, value_name = "N,N", value_delimiter = ',')]
    buffers: Option<Vec<u32>>,
    /// How far the data compress [default: 1,2,10]
    #[arg(long, value_name = "RATIO,RATIO", value_delimiter = ',')]
    ratios: Option<Vec<f64>>,
    /// Whether the drive encrypts [default: 0,1; 0 of a drive that cannot]
    #[arg(long, value_name = "0,1", value_delimiter = ',', value_parser = parse_encrypted)]
    encrypted: Option<Vec<bool>>,
    /// The host that reads the files: lto4 or t10000a, after the tables they were calibrated against, or a file of your
    /// own (.toml)
    #[arg(long, value_name = "HOST", default_value = "lto4")]
    host: String,
    /// Do each job, too, on virtual drives that take the time of those named: files and cartridges are made and removed
    /// below this folder
    #[arg(long, value_name = "DIR")]
    measure: Option<PathBuf>,
    /// How much is made of files of each length, to measure with
    #[arg(long, default_value = "1G", value_parser = parse_mb)]
    amount: f64,
    /// Seconds that a job that is measured reads at most; in a short run the flush of the label and the last one weigh
    /// more
    #[arg(long, default_value_t = 10.0)]
    seconds: f64,
    /// Write a page with pictures of it, too
    #[arg(long, value_name = "FILE")]
    report: Option<PathBuf>,
    /// Find the host's figures by what was measured first, and print them
    #[arg(long)]
    calibrate: bool,
}

fn parse_encrypted(text: &str) -> Result<bool, String> {
    match text {
        "0" | "no" => Ok(false),
        "1" | "yes" => Ok(true),
        other => Err(format!("write 0, 1 or 0,1, not {other}")),
    }
}

impl Characterize {
    fn cells(&self) -> Result<Vec<Cell>, Failure> {
        if let Some(path) = &self.grid {
            return read(path, read_grid);
        }
        let papers = GridAxes::of_papers(self.drive.clone());
        let axes = GridAxes {
            file_bytes: self.file_sizes.clone().unwrap_or(papers.file_bytes),
            buffer_bytes: self.buffer_sizes.clone().or(papers.buffer_bytes),
            buffers: self.buffers.clone().unwrap_or(papers.buffers),
            ratios: self.ratios.clone().unwrap_or(papers.ratios),
            encrypted: self.encrypted.clone().or(papers.encrypted),
            drives: papers.drives,
        };
        make_grid(&axes).map_err(|error| Failure::Usage(error.to_string()))
    }
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

/// Does each job of the table.
fn measure(cli: &Globals, args: &Characterize, cells: &mut [Cell], folder: &Path) -> Result<(), Failure> {
    let watch = DataSetWatch::default();
    stop_on_interrupt(&watch.stop);
    let display = Display::new(cli);
    let all_s = args.seconds * cells.len() as f64;
    let line = |elapsed: Duration| {
        let left = (all_s - elapsed.as_secs_f64()).max(0.0);
        (format!("about {} left", units::duration(left)), Some((elapsed.as_secs_f64() / all_s).min(0.99)))
    };
    let mut tell = |cell: &Cell| {
        let rate = cell.measured_mb_per_s.unwrap_or_default();
        display.say(&format!("{}: {rate:.1} MB/s", cell.columns.join(", ")));
    };
    let done = display.during(&line, || measure_grid(cells, folder, args.amount, args.seconds, &watch, &mut tell));
    done.map_err(|error| {
        let text = error.to_string();
        if error.is_stopped() { Failure::Stopped(text) } else { Failure::Other(text) }
    })
}

pub(super) fn characterize(cli: &Globals, args: &Characterize) -> Result<ExitCode, Failure> {
    let told = |error: GridError| {
        let path = args.grid.as_ref().map(|path| format!("{}: ", path.display()));
        Failure::Usage(format!("{}{error}", path.unwrap_or_default()))
    };
    let mut cells = args.cells()?;
    let mut host = host(&args.host)?;
    // What cannot be predicted need not be measured.
    predict_grid(&cells, &host).map_err(told)?;
    let failure = args.measure.as_ref().and_then(|folder| measure(cli, args, &mut cells, folder).err());
    // What was measured is printed, though a later job failed or somebody stopped it.
    if let Some(failure) = failure {
        if cells.iter().any(|cell| cell.measured_mb_per_s.is_some()) {
            let predictions = predict_grid(&cells, &host).map_err(told)?;
            print(cli, &cells, &predictions)?;
        }
        return Err(failure);
    }
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
    print(cli, &cells, &predictions)?;
    if let Some(path) = &args.report {
        let names: Vec<&str> = args.drive.iter().map(String::as_str).collect();
        let title = args.grid.as_ref().map_or_else(|| names.join(", "), |path| path.display().to_string());
        let stands_on = [("host", host.name.clone()), ("made", units::time(now_ns()))];
        let text = page("Capstan laboratory", &stands_on, &[ReportSection::grid(&title, &cells, &predictions)]);
        let wrong = |error| Failure::Other(format!("cannot write {}: {error}", path.display()));
        std::fs::write(path, text).map_err(wrong)?;
    }
    if let Some(error) = mean_error(&cells, &predictions)
        && !cli.quiet
    {
        eprintln!("capstan: mean absolute error {:.1} % over {} rows", error * 100.0, cells.len());
    }
    Ok(ExitCode::SUCCESS)
}

/// The table, with what is predicted and, where it was measured, what was found.
fn print(cli: &Globals, cells: &[Cell], predictions: &[Prediction]) -> Result<(), Failure> {
    let mut out = stdout().lock();
    if cli.json {
        let mut lines = json::Lines::new();
        for (cell, prediction) in cells.iter().zip(predictions) {
            lines.row(&GridRow::new(cell, prediction))?;
        }
        lines.finish()?;
    } else {
        let measured = cells.iter().any(|cell| cell.measured_mb_per_s.is_some());
        let head = if measured { ",mb_per_s" } else { "" };
        let mut lines = format!("{}{head},predicted_mb_per_s,bottleneck\n", HEADS.join(","));
        for (cell, prediction) in cells.iter().zip(predictions) {
            lines.push_str(&cell.columns.join(","));
            if measured {
                lines.push(',');
                lines.extend(cell.measured_mb_per_s.map(|rate| rate.to_string()));
            }
            lines.push_str(&format!(",{:.3},{}\n", prediction.mb_per_s, prediction.bottleneck().name()));
        }
        out.write_all(lines.as_bytes()).map_err(Failure::output)?;
    }
    Ok(())
}
