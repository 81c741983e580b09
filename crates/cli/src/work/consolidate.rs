//! `consolidate`, and what jobs have consolidated.

use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use capstan_catalog::Object;
use capstan_director::{Consolidated, DirectorError, Shortfall, Site, Tally};
use capstan_format::ObjectId;
use capstan_mover::RestoreWatch;

use crate::args;
use crate::audited::{ShellAct, audited};
use crate::failure::{DONE_WITH_PROBLEMS, Failure};
use crate::globals::Globals;
use crate::json;
use crate::place::find_object;
use crate::progress::{Display, Standing, rate, stop_on_interrupt};
use crate::secrets::{Need, open};
use crate::table::path_text;
use crate::units;
use crate::wording::{short, short_id};
use crate::work::recorded::recorded;

/// Reasons that are told where many objects could not be made full ones.
const REASONS_TOLD: usize = 3;

pub(crate) fn consolidate(cli: &Globals, args: &args::Consolidate) -> Result<ExitCode, Failure> {
    let display = Display::new(cli);
    let site = open(cli, Need::Keys, display.events())?;
    let site = match &args.unit {
        Some(unit) => site.in_unit(Some(unit))?,
        None => site,
    };
    let named = args.objects.iter().map(|text| find_object(&site, text, None)).collect::<Result<Vec<_>, _>>()?;
    let is_named = !named.is_empty();
    let objects = match is_named {
        true => named,
        false => site.to_consolidate(args.policy.as_deref(), args.after.unwrap_or(1) as usize)?,
    };
    if objects.is_empty() {
        display.say("no source has incrementals to make a full backup of");
        return Ok(ExitCode::SUCCESS);
    }
    let watch = Arc::new(RestoreWatch::default());
    stop_on_interrupt(&watch.stop);
    let ids: Vec<_> = objects.iter().map(|object| object.id.to_string()).collect();
    let subject = match &args.policy {
        Some(policy) if !is_named => format!("backups of policy {policy}"),
        _ if !is_named => "all sources".to_owned(),
        _ => args.objects.join(" "),
    };
    recorded(&display, &site, ("consolidate", &subject), |record| {
        let work = || audited(&site, ShellAct::Consolidate, &ids, || all(cli, args, &display, &site, &objects, &watch));
        let outcome = display.follow(&|| Standing::of_reading(&watch), work)?;
        record.tally = Tally { files: outcome.members, bytes: outcome.bytes, stored: outcome.bytes };
        record.message = outcome.in_a_line();
        match outcome.first_failure {
            Some(error) if outcome.made == 0 => Err(error.into()),
            Some(_) => Ok(ExitCode::from(DONE_WITH_PROBLEMS)),
            None => Ok(ExitCode::SUCCESS),
        }
    })
}

/// What came of several.
#[derive(Default)]
struct Outcome {
    made: usize,
    members: u64,
    bytes: u64,
    first_failure: Option<DirectorError>,
    reasons: Vec<String>,
}

impl Outcome {
    fn in_a_line(&self) -> String {
        let made = format!("{} made of incrementals", units::counted(self.made as u64, "full object"));
        [made].into_iter().chain(self.reasons.iter().take(REASONS_TOLD).cloned()).collect::<Vec<_>>().join("; ")
    }
}

/// Makes full ones of all; what cannot be done of one does not keep the others from it.
fn all(
    cli: &Globals,
    args: &args::Consolidate,
    display: &Display,
    site: &Site,
    objects: &[Object],
    watch: &RestoreWatch,
) -> Result<Outcome, Failure> {
    let mut outcome = Outcome::default();
    let shortfall = if args.wait { Shortfall::Wait } else { Shortfall::Fail };
    for object in objects {
        let pool = args.pool.clone().map_or_else(|| site.pool_to_consolidate(object), Ok);
        let made = pool.and_then(|pool| {
            let site = if args.unit.is_some() { site.clone() } else { site.clone().in_library_of_pool(&pool)? };
            site.consolidate(object, &pool, shortfall, watch)
        });
        match made {
            Ok(done) => {
                show(cli, &done);
                outcome.made += 1;
                outcome.members += done.members;
                outcome.bytes += done.bytes;
            }
            Err(error) if watch.stop.load(Ordering::Relaxed) => return Err(error.into()),
            Err(error) => {
                if objects.len() > 1 {
                    display.warn(&format!("{} of {}: {error}", path_text(&object.source), object.client));
                }
                outcome.reasons.push(error.to_string());
                outcome.first_failure.get_or_insert(error);
            }
        }
    }
    Ok(outcome)
}

fn show(cli: &Globals, done: &Consolidated) {
    if cli.json {
        // A reader that is gone changes nothing of what was written.
        let _ = json::print(&json::Event::Consolidated(done.into()));
        return;
    }
    println!("{}", in_a_line(done));
}

fn in_a_line(done: &Consolidated) -> String {
    let elapsed = Duration::from_nanos(done.elapsed_ns);
    let before = match done.written_before {
        0 => String::new(),
        before => format!(", {before} were written before"),
    };
    format!(
        "object {} is a full backup of {}, made of {} backups, in pool {}: {}{before}, {} in {} ({})",
        short_id(done.object),
        path_text(&done.source),
        done.chain,
        done.pool,
        units::counted(done.members, "member"),
        units::bytes(done.bytes),
        units::duration(elapsed.as_secs_f64()),
        rate(done.bytes, elapsed)
    )
}

/// Makes full objects of what a job's run has backed up, where so many incrementals stand on the last full one. Gives
/// what is to be said of it, and whether all went well.
pub(super) fn behind_a_run(
    site: &Site,
    (policy, after): (&str, u32),
    written: &[ObjectId],
    (shortfall, watch): (Shortfall, &RestoreWatch),
) -> Result<Vec<Result<String, String>>, DirectorError> {
    let mut told = Vec::new();
    let mut sources = Vec::new();
    for id in written {
        sources.extend(site.catalog().object(*id)?.map(|object| (object.source, object.client)));
    }
    // What an earlier run was to end, too.
    let due = site.to_consolidate(Some(policy), after as usize)?;
    for object in due.into_iter().filter(|due| sources.iter().any(|own| (&own.0, &own.1) == (&due.source, &due.client)))
    {
        let pool = site.pool_to_consolidate(&object)?;
        match site.consolidate(&object, &pool, shortfall, watch) {
            Ok(done) => told.push(Ok(in_a_line(&done))),
            Err(error) => {
                let (id, source) = (short(&object), path_text(&object.source));
                let is_stopped = watch.stop.load(Ordering::Relaxed);
                let reason = match is_stopped {
                    true => "it was stopped, and the next run goes on with it".to_owned(),
                    false => error.to_string(),
                };
                told.push(Err(format!("no full backup was made of object {id} of {source}: {reason}")));
                if is_stopped {
                    break;
                }
            }
        }
    }
    Ok(told)
}
