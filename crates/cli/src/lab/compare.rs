//! `capstan lab compare`.

use std::io::{Write, stdout};
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use capstan_lab::{CompareError, Comparison, DriveMeasurementError, Measured, compare, median_error};

use super::measure::{can_keep, keep};
use crate::failure::Failure;
use crate::globals::Globals;
use crate::json::{self, ComparedConfiguration, ComparisonRow};
use crate::progress::{Display, stop_on_interrupt};
use crate::secrets::now_ns;
use crate::table::Table;

pub(super) fn comparison(cli: &Globals, folder: &Path) -> Result<ExitCode, Failure> {
    can_keep(cli)?;
    let stop = Arc::new(AtomicBool::new(false));
    stop_on_interrupt(&stop);
    let display = Display::new(cli);
    let mut tell = |one: &Comparison| {
        let (predicted, measured) = (one.predicted_mb_per_s, one.measured_mb_per_s);
        display.say(&format!("{}: predicted {predicted:.1} MB/s, measured {measured:.1}", one.what));
    };
    let all = compare(folder, &stop, &mut tell).map_err(|error| match error {
        CompareError::Exercise(DriveMeasurementError::Stopped) => Failure::Stopped(error.to_string()),
        other => Failure::Other(other.to_string()),
    })?;
    show(cli, &all)?;
    keep(cli, |measurements| measurements.comparisons = Some(Measured { at_ns: now_ns(), found: all }))?;
    Ok(ExitCode::SUCCESS)
}

/// What was predicted beside what was measured.
fn show(cli: &Globals, all: &[Comparison]) -> Result<(), Failure> {
    let median =
        |paced: Option<bool>| median_error(all.iter().filter(|one| paced.is_none_or(|paced| one.paced == paced)));
    let mut out = stdout().lock();
    if cli.json {
        let rows = all.iter().map(|one| ComparedConfiguration {
            what: &one.what,
            paced: one.paced,
            predicted_mb_per_s: one.predicted_mb_per_s,
            measured_mb_per_s: one.measured_mb_per_s,
            error: one.error(),
        });
        return json::print(&ComparisonRow { median_error: median(None), rows: rows.collect() });
    }
    let mut table = Table::new(&["configuration", ">predicted MB/s", ">measured MB/s", ">error %"]);
    for one in all {
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
    .map_err(Failure::output)
}
