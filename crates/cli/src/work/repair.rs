//! `repair`.

use std::process::ExitCode;

use capstan_catalog::ObjectStatus;
use capstan_director::{RepairReport, Shortfall};
use capstan_mover::RestoreWatch;

use crate::args;
use crate::audited::{ShellAct, audited};
use crate::failure::{DONE_WITH_PROBLEMS, Failure};
use crate::globals::Globals;
use crate::json;
use crate::place::find_object;
use crate::progress::{Display, Standing, stop_on_interrupt};
use crate::secrets::{Need, open};
use crate::wording::short;
use crate::work::recorded::recorded;

/// Copies that were not mended, of which the reason is said.
const FAILURES_SHOWN: usize = 10;

pub(crate) fn repair(cli: &Globals, args: &args::Repair) -> Result<ExitCode, Failure> {
    let display = Display::new(cli);
    let site = open(cli, Need::Keys, display.events())?;
    let mut objects = Vec::new();
    for text in &args.objects {
        let object = find_object(&site, text, None)?;
        if object.status == ObjectStatus::Open {
            return Err(Failure::Other(format!(
                "object {} was interrupted: run its backup again, which continues all its copies",
                short(&object)
            )));
        }
        objects.push(object.id);
    }
    let watch = RestoreWatch::default();
    stop_on_interrupt(&watch.stop);
    let shortfall = if args.wait { Shortfall::Wait } else { Shortfall::Fail };
    recorded(&display, &site, ("repair", &args.objects.join(" ")), |record| {
        let names: Vec<_> = objects.iter().map(ToString::to_string).collect();
        let repair = || audited(&site, ShellAct::Repair, &names, || Ok(site.repair(&objects, shortfall, &watch)?));
        let report = display.follow(&|| Standing::of_reading(&watch), repair)?;
        record.message = summary(&report);
        show(cli, report)
    })
}

fn whole_now(report: &RepairReport) -> usize {
    report.copies.iter().filter(|copy| copy.failure.is_none()).count()
}

fn summary(report: &RepairReport) -> String {
    if report.copies.is_empty() {
        return "every copy that was promised is whole".to_owned();
    }
    format!("{} of {} copies that lacked something are whole now", whole_now(report), report.copies.len())
}

fn show(cli: &Globals, report: RepairReport) -> Result<ExitCode, Failure> {
    if cli.json {
        json::print(&json::Event::Repaired { copies: json::repaired(&report) })?;
    } else {
        println!("{}", summary(&report));
    }
    for copy in report.copies.iter().filter(|copy| copy.failure.is_some()).take(FAILURES_SHOWN) {
        eprintln!(
            "capstan: copy {} of object {}: {}",
            copy.copy,
            copy.object,
            copy.failure.as_deref().unwrap_or_default()
        );
    }
    // Where nothing could be done, the reason is the outcome, with its own exit code.
    Ok(if report.outcome()? { ExitCode::SUCCESS } else { ExitCode::from(DONE_WITH_PROBLEMS) })
}
