//! `capstan lab characterize`.

use std::io::{Write, stdout};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use capstan_lab::{
    GridError, HEADS, HostModel, agreeing, built_in_host, calibrate, mean_error, predict_grid, read_grid,
};
use clap::Args;
use serde_json::json;

use super::read;
use crate::args::Cli;
use crate::failure::Failure;

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

fn host(name: &str) -> Result<HostModel, Failure> {
    if name.ends_with(".toml") {
        return read(Path::new(name), HostModel::from_toml);
    }
    let unknown = || {
        Failure::Usage(format!("no host is named {name}; there are lto4 and t10000a, and files that end with .toml"))
    };
    built_in_host(name).ok_or_else(unknown)
}

pub(super) fn characterize(cli: &Cli, args: &Characterize) -> Result<ExitCode, Failure> {
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
