//! `capstan lab report`.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use capstan_lab::{Measurements, PublishedGrid, ReportSection, Tried, predict_grid, published_grids, report as page};
use clap::Args;

use super::advise::{Ask, Site};
use super::measure::wrong_file;
use crate::failure::{DONE_WITH_PROBLEMS, Failure};
use crate::globals::Globals;
use crate::json::{self, ReportedRow};
use crate::progress::Display;
use crate::secrets::now_ns;
use crate::units;

#[derive(Debug, Args)]
pub(crate) struct Report {
    /// Sources, as they were measured with `capstan lab null` [default: all that were]
    sources: Vec<PathBuf>,
    /// The page to write
    #[arg(long, short, value_name = "FILE")]
    output: PathBuf,
    /// Write what was predicted and what was measured as CSV, too
    #[arg(long, value_name = "FILE")]
    csv: Option<PathBuf>,
    #[command(flatten)]
    ask: Ask,
}

/// Something that was predicted, and measured if it was.
struct Row {
    kind: &'static str,
    what: String,
    predicted_mb_per_s: f64,
    measured_mb_per_s: Option<f64>,
    bottleneck: &'static str,
}

pub(super) fn report(cli: &Globals, args: &Report) -> Result<ExitCode, Failure> {
    let site = Site::open(cli, None)?;
    let all = Measurements::read(&site.state).map_err(|error| wrong_file(&error))?;
    let current = site.setting(cli, &args.ask)?;
    let mut sources: Vec<PathBuf> =
        args.sources.iter().map(|path| std::path::absolute(path).unwrap_or_else(|_| path.clone())).collect();
    if sources.is_empty() {
        sources = all.paths.iter().map(|measured| measured.found.source.clone()).collect();
        sources.sort();
        sources.dedup();
    }
    let display = Display::new(cli);
    // What is asked for all of them is no fault of one.
    args.ask.network(&all)?;
    let (mut sections, mut rows, mut skipped) = (Vec::new(), Vec::new(), false);
    for source in &sources {
        let advised = args.ask.figures(&all, source).and_then(|figures| {
            let advice = args.ask.advice(&figures, &current)?;
            Ok((figures, advice))
        });
        let (figures, advice) = match advised {
            Ok(advised) => advised,
            Err(failure) => {
                skipped = true;
                display.warn(&format!("{}: there is no advice in the page: {failure}", source.display()));
                continue;
            }
        };
        let tried: Vec<&Tried> =
            all.trials.iter().map(|trial| &trial.found).filter(|trial| trial.source == *source).collect();
        let name = source.display();
        let forecasts = [("now", &advice.current.1), ("as advised", &advice.advised.1)].into_iter();
        let forecasts = forecasts.map(|(what, forecast)| (what.to_owned(), forecast));
        let others = advice.neighbours.iter();
        let others =
            others.map(|(lever, setting, forecast)| (format!("{} {}", lever.name(), lever.value(setting)), forecast));
        let drives = advice.drives.iter().map(|fit| (fit.drive.clone(), &fit.forecast));
        rows.extend(forecasts.chain(others).chain(drives).map(|(what, forecast)| Row {
            kind: "forecast",
            what: format!("{name}: {what}"),
            predicted_mb_per_s: forecast.mb_per_s.median,
            measured_mb_per_s: None,
            bottleneck: forecast.bottleneck.name(),
        }));
        rows.extend(tried.iter().map(|trial| Row {
            kind: "trial",
            what: format!("{name}: {}", trial.setting),
            predicted_mb_per_s: trial.predicted_mb_per_s,
            measured_mb_per_s: Some(trial.mb_per_s),
            bottleneck: "",
        }));
        sections.push(ReportSection::advice(&figures, &advice, &tried));
    }
    sections.push(ReportSection::measurements(&all));
    if let Some(comparisons) = &all.comparisons {
        rows.extend(comparisons.found.iter().map(|one| Row {
            kind: "virtual drive",
            what: one.what.clone(),
            predicted_mb_per_s: one.predicted_mb_per_s,
            measured_mb_per_s: Some(one.measured_mb_per_s),
            bottleneck: "",
        }));
        sections.push(ReportSection::comparison(&comparisons.found));
    }
    published(&mut sections)?;
    let stands_on = [
        ("made", units::time(now_ns())),
        ("now", super::advise::described(&current)),
        ("processors", std::thread::available_parallelism().map_or(1, usize::from).to_string()),
    ];
    write(&args.output, &page("Capstan laboratory", &stands_on, &sections))?;
    if let Some(path) = &args.csv {
        write(path, &csv(&rows)?)?;
    }
    if cli.json {
        let mut lines = json::Lines::new();
        for row in &rows {
            lines.row(&ReportedRow {
                kind: row.kind,
                what: &row.what,
                predicted_mb_per_s: row.predicted_mb_per_s,
                measured_mb_per_s: row.measured_mb_per_s,
                bottleneck: row.bottleneck,
            })?;
        }
        lines.finish()?;
    }
    if sources.is_empty() {
        display.warn("no source was measured yet, so there is no advice in it: capstan lab advise SOURCE --measure");
    }
    display.say(&format!("written: {}", args.output.display()));
    Ok(if skipped { ExitCode::from(DONE_WITH_PROBLEMS) } else { ExitCode::SUCCESS })
}

/// The tables that were published, so that whoever reads forecasts sees how the models do elsewhere.
fn published(sections: &mut Vec<ReportSection>) -> Result<(), Failure> {
    let other = |error: &dyn std::fmt::Display| Failure::Other(error.to_string());
    for PublishedGrid { name, host, cells } in published_grids().map_err(|error| other(&error))? {
        let predictions = predict_grid(&cells, &host).map_err(|error| other(&error))?;
        sections.push(ReportSection::grid(&format!("Published: {name}"), &cells, &predictions));
    }
    Ok(())
}

fn write(path: &Path, text: &str) -> Result<(), Failure> {
    std::fs::write(path, text).map_err(|error| Failure::Other(format!("cannot write {}: {error}", path.display())))
}

fn csv(rows: &[Row]) -> Result<String, Failure> {
    let wrong = |error: &dyn std::fmt::Display| Failure::Other(format!("cannot write the CSV: {error}"));
    let mut writer = csv::Writer::from_writer(Vec::new());
    let heads = ["kind", "what", "predicted_mb_per_s", "measured_mb_per_s", "bottleneck"];
    writer.write_record(heads).map_err(|error| wrong(&error))?;
    for row in rows {
        let (predicted, measured) = (format!("{:.3}", row.predicted_mb_per_s), row.measured_mb_per_s);
        let measured = measured.map_or(String::new(), |rate| format!("{rate:.3}"));
        let record = [row.kind, &row.what, &predicted, &measured, row.bottleneck];
        writer.write_record(record).map_err(|error| wrong(&error))?;
    }
    let bytes = writer.into_inner().map_err(|error| wrong(&error))?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}
