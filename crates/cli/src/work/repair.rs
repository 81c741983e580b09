//! `repair`.

use std::process::ExitCode;
use std::sync::atomic::Ordering;
use std::time::Duration;

use capstan_director::{DirectorError, ObjectStatus, RepairReport, RestoreWatch, Shortfall};
use serde_json::json;

use crate::args::{self, Cli};
use crate::failure::{DONE_WITH_PROBLEMS, Failure};
use crate::list::short;
use crate::place::find_object;
use crate::progress::{Display, rate, stop_on_interrupt};
use crate::secrets::{Need, open};
use crate::table::path_text;
use crate::units;

pub(crate) fn repair(cli: &Cli, args: &args::Repair) -> Result<ExitCode, Failure> {
    let display = Display::new(cli);
    let site = open(cli, Need::Keys, display.events())?;
    let mut objects = Vec::new();
    for text in &args.objects {
        let object = find_object(&site, text, None)?;
        if object.status == ObjectStatus::Open {
            return Err(Failure::Other(format!(
                "object {} was interrupted: its backup, run again, goes on with it on all copies",
                short(&object)
            )));
        }
        objects.push(object.id);
    }
    let watch = RestoreWatch::default();
    stop_on_interrupt(&watch.stop);
    let line = |elapsed: Duration| {
        let bytes = watch.bytes.load(Ordering::Relaxed);
        (format!("{} at {}", units::bytes(bytes), rate(bytes, elapsed)), None)
    };
    let shortfall = if args.wait { Shortfall::Wait } else { Shortfall::Fail };
    let report = display.during(&line, || site.repair(&objects, shortfall, &watch))?;
    show(cli, report)
}

fn show(cli: &Cli, report: RepairReport) -> Result<ExitCode, Failure> {
    let whole = report.copies.iter().filter(|copy| copy.failure.is_none()).count();
    if cli.json {
        let rows: Vec<_> = report
            .copies
            .iter()
            .map(|copy| {
                json!({"object": copy.object.to_string(), "source": path_text(&copy.source), "copy": copy.copy,
                       "pool": copy.pool, "whole": copy.failure.is_none(), "reason": copy.failure})
            })
            .collect();
        println!("{}", json!({"event": "repaired", "copies": rows}));
    } else if report.copies.is_empty() {
        println!("every copy that was promised is whole");
    } else {
        println!("{whole} of {} copies that lacked something are whole now", report.copies.len());
    }
    match report.first_failure {
        None => Ok(ExitCode::SUCCESS),
        // The copies are as good as they can be: somebody has to back up again.
        Some(DirectorError::NoCopyLeft { .. }) => Ok(ExitCode::from(DONE_WITH_PROBLEMS)),
        // Nothing could be done: the reason is the outcome, with its own exit code.
        Some(error) if whole == 0 => Err(error.into()),
        Some(_) => Ok(ExitCode::from(DONE_WITH_PROBLEMS)),
    }
}
