//! `capstan drives report`: what drives have told of themselves and of volumes, over time.

use std::io::{Write, stdout};
use std::process::ExitCode;

use capstan_director::{DriveHistory, Fare};
use capstan_format::Volser;
use capstan_tape::TapeAlert;
use clap::Args;

use crate::failure::{DONE_WITH_PROBLEMS, Failure};
use crate::globals::Globals;
use crate::json::DriveReportRow;
use crate::output::print_json;
use crate::prompt::volser;
use crate::secrets::site;
use crate::table::Table;
use crate::units;

#[derive(Debug, Args)]
pub(super) struct Report {
    /// Only this drive: its path, or its number as `capstan drives` counts them
    drive: Option<String>,
    /// Only this volume
    #[arg(long, value_name = "BARCODE")]
    volume: Option<String>,
    /// How many mounts to list, the latest first; 0 lists all
    #[arg(long, value_name = "COUNT", default_value_t = 20)]
    last: usize,
}

pub(super) fn report(cli: &Globals, args: &Report) -> Result<ExitCode, Failure> {
    let volume = args.volume.as_deref().map(volser).transpose()?;
    let mut history = site(cli)?.drive_history(args.drive.as_deref(), volume.as_ref())?;
    let known = history.stays.len();
    if args.last > 0 {
        history.stays.truncate(args.last);
    }
    let code = if history.concerns.is_empty() { ExitCode::SUCCESS } else { ExitCode::from(DONE_WITH_PROBLEMS) };
    if cli.json {
        print_json(&DriveReportRow::from(&history))?;
    } else if known == 0 {
        eprintln!("capstan: {}", nothing_yet(args.drive.as_deref(), volume.as_ref()));
    } else {
        show(&history, known).map_err(Failure::output)?;
    }
    Ok(code)
}

fn nothing_yet(drive: Option<&str>, volume: Option<&Volser>) -> String {
    let of = match (drive, volume) {
        (None, None) => String::new(),
        (Some(drive), None) => format!(" of drive {drive} (`capstan drives` lists them)"),
        (None, Some(volume)) => format!(" of volume {volume}"),
        (Some(drive), Some(volume)) => format!(" of volume {volume} in drive {drive}"),
    };
    format!(
        "drives have reported nothing yet{of}. Capstan asks a drive when a job mounts a volume, after checkpoints, and \
         before the volume leaves the drive. The state directory's virtual drives and st drives report nothing: name \
         physical drives by their sg nodes"
    )
}

fn megabytes(mb: u64) -> u64 {
    mb.saturating_mul(1_000_000)
}

/// What a drive does not count.
fn known(count: Option<u64>, text: impl Fn(u64) -> String) -> String {
    count.map_or_else(|| "-".to_owned(), text)
}

fn fares(what: &'static str, fares: &[Fare]) -> Table {
    let heads = [what, ">stays", ">written", ">read", ">corrected", ">per GB", ">failed", ">loads", ">metres"];
    let mut table = Table::new(&heads);
    for fare in fares {
        let gb = (fare.written_mb + fare.read_mb) as f64 / 1000.0;
        let per_gb = if gb > 0.0 { format!("{:.2}", fare.corrected as f64 / gb) } else { "-".to_owned() };
        table.row(vec![
            fare.name.clone(),
            fare.stays.to_string(),
            units::bytes(megabytes(fare.written_mb)),
            units::bytes(megabytes(fare.read_mb)),
            units::count(fare.corrected),
            per_gb,
            units::count(fare.uncorrected),
            known(fare.loads, units::count),
            known(fare.metres, units::count),
        ]);
    }
    table
}

fn show(history: &DriveHistory, known_stays: usize) -> std::io::Result<()> {
    let out = &mut stdout().lock();
    fares("drive", &history.drives).print(out)?;
    writeln!(out)?;
    fares("volume", &history.volumes).print(out)?;
    writeln!(out)?;
    let heads =
        ["mounted", "drive", "volume", ">written", ">read", ">corrected", ">failed", ">ratio", "cleaning", "alerts"];
    let mut table = Table::new(&heads);
    let mut alerts: Vec<TapeAlert> = Vec::new();
    for stay in &history.stays {
        alerts.extend(&stay.alerts);
        let flags: Vec<String> = stay.alerts.iter().map(|alert| alert.flag.to_string()).collect();
        let bytes = |mb: u64| units::bytes(megabytes(mb));
        table.row(vec![
            units::time(stay.since_ns),
            stay.drive.clone(),
            stay.volser.to_string(),
            known(stay.written_mb, bytes),
            known(stay.read_mb, bytes),
            known(stay.corrected, units::count),
            known(stay.uncorrected, units::count),
            known(stay.compression_percent, |percent| format!("{:.2}", percent as f64 / 100.0)),
            if stay.cleaning { "asked for" } else { "-" }.to_owned(),
            if flags.is_empty() { "-".to_owned() } else { flags.join(", ") },
        ]);
    }
    table.print(out)?;
    if known_stays > history.stays.len() {
        writeln!(out, "{} earlier ones are not listed: --last 0 lists all", known_stays - history.stays.len())?;
    }
    alerts.sort_by_key(|alert| alert.flag);
    alerts.dedup();
    for alert in &alerts {
        writeln!(out, "alert {}: {}", alert.flag, alert.meaning.unwrap_or("of the drive's maker: see its manual"))?;
    }
    for concern in &history.concerns {
        writeln!(out, "look: {concern}")?;
    }
    Ok(())
}
