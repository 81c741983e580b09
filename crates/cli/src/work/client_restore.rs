//! Restores that a client writes: at the client itself, or because a user of the cell asked for it.

use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use capstan_client::orders::Replaces;
use capstan_client::restores::{AskRestore, RestoreEnded, RestoreOutlook, RestoreSeen};
use capstan_client::{CellOrder, JobId};
use capstan_server::cell::users::words::AskRestoreTo;

use crate::args;
use crate::args::Overwrite;
use crate::door::Door;
use crate::failure::{DONE_WITH_PROBLEMS, Failure, WITHOUT_KEY};
use crate::globals::Globals;
use crate::json::{self, ClientRestoreEvent};
use crate::progress::{stop_all_on_interrupt, waiting_for_server};
use crate::secrets::now_ns;
use crate::table::words_text;
use crate::units;

/// Files that are listed one by one.
const FILES_SHOWN: usize = 50;
/// How long a server may be away of which a restore is waited for.
const AWAY_MAX: Duration = Duration::from_secs(600);
/// How often it is asked meanwhile.
const ASKS_AGAIN: Duration = Duration::from_secs(2);

/// `restore` as a user: a client writes what was backed up of it, or of another one.
pub(super) fn restore_as_user(cli: &Globals, server: &Door, args: &args::Restore) -> Result<ExitCode, Failure> {
    let of = args.of.clone().ok_or_else(|| {
        Failure::Usage("say whose data it is: `--of CLIENT`; `capstan objects` lists what there is".to_owned())
    })?;
    if args.devices {
        return Err(Failure::Usage(
            "--devices is for a restore that is typed at the client or at the server".to_owned(),
        ));
    }
    let place = |place: &std::ffi::OsString| {
        place.to_str().map(str::to_owned).ok_or_else(|| {
            Failure::Usage(format!("{}: that is no UTF-8: name the object and a pattern", place.display()))
        })
    };
    let client = args.to_client.clone().unwrap_or_else(|| of.clone());
    let directory = match &args.to {
        Some(to) if !args.dry_run && !to.is_absolute() => {
            return Err(Failure::Usage(format!("--to names a directory of client {client}: give an absolute path")));
        }
        Some(to) if !args.dry_run => Some(to.display().to_string()),
        _ => None,
    };
    // Whoever stops the command from here on cancels what it asked for.
    let stop = Arc::new(AtomicBool::new(false));
    stop_all_on_interrupt(&stop);
    let planned = server.restore(&AskRestoreTo {
        of,
        to: args.to_client.clone(),
        directory: directory.clone(),
        replaces: match args.overwrite {
            Overwrite::Never => Replaces::Never,
            Overwrite::Changed => Replaces::Changed,
            Overwrite::Always => Replaces::Always,
        },
        ask: AskRestore {
            places: args.places.iter().map(place).collect::<Result<_, _>>()?,
            at_ns: args
                .at
                .as_deref()
                .map(|text| units::parse_time(text, now_ns()))
                .transpose()
                .map_err(Failure::Usage)?,
            include: args.include.clone(),
            exclude: args.exclude.clone(),
            strip: args.strip,
            plan_only: args.dry_run,
            keep_damaged: args.keep_damaged,
            partial: args.partial,
        },
    })?;
    show_planned(cli, &planned.outlook)?;
    let (Some(directory), Some(run)) = (directory, planned.run) else { return Ok(ended_as_planned(&planned.outlook)) };
    show_queued(cli, run, planned.waits_for.as_deref())?;
    let tell_server = || {
        if let Err(failure) = server.stop_restore(run) {
            eprintln!("capstan: the restore goes on: {failure}");
        }
    };
    // The client writes it, whoever waits here.
    let wait = || until_ended(cli, (run, planned.waits_for), &|_| server.restore_seen(run), &|_| (), &stop);
    let ended = waiting_for_server(&stop, tell_server, wait)?;
    let shown = show_restored(cli, &format!("{directory} of client {client}"), ended);
    match shown {
        Err(_) if stop.load(Ordering::Relaxed) => Err(Failure::Stopped(format!(
            "the restore was stopped; what was written to {client} stays. Restore again with --overwrite changed to go on"
        ))),
        shown => shown,
    }
}

/// How a restore would end of which the plan alone was asked for.
pub(crate) fn ended_as_planned(planned: &RestoreOutlook) -> ExitCode {
    match (planned.lacks_key, planned.lacks_part) {
        (true, _) => ExitCode::from(WITHOUT_KEY),
        (false, true) => ExitCode::from(DONE_WITH_PROBLEMS),
        (false, false) => ExitCode::SUCCESS,
    }
}

/// Shows what a restore to a client will read.
pub(crate) fn show_planned(cli: &Globals, planned: &RestoreOutlook) -> Result<(), Failure> {
    if cli.json {
        return json::print(&ClientRestoreEvent::Planned {
            members: planned.members,
            bytes: planned.bytes,
            volumes: planned.volumes.clone(),
            estimate_ns: planned.estimate_ns,
            notices: planned.notices.clone(),
        });
    }
    planned.notices.iter().for_each(|notice| eprintln!("capstan: {notice}"));
    if !cli.quiet {
        let (paths, bytes) = (units::counted(planned.members, "path"), units::bytes(planned.bytes));
        let estimate = units::duration(planned.estimate_ns as f64 / 1e9);
        let from = match planned.volumes.is_empty() {
            true => "no volume has to be read".to_owned(),
            false => format!("from volumes {}, about {estimate}", planned.volumes.join(", ")),
        };
        eprintln!("{paths}, {bytes} of files, {from}");
    }
    Ok(())
}

/// What the server says of a restore; why it cannot be asked, if it is away.
type Asked = Result<Result<RestoreSeen, String>, Failure>;

/// Does what comes of a restore in the queue until it has ended: a server that starts anew gives it another turn. An
/// order has to be asked for with the job of the one before it.
pub(crate) fn until_ended(
    cli: &Globals,
    (run, mut waits_for): (i64, Option<String>),
    ask: &dyn Fn(Option<JobId>) -> Asked,
    write: &dyn Fn(CellOrder),
    stop: &AtomicBool,
) -> Result<RestoreEnded, Failure> {
    let (mut had, mut away_since): (_, Option<Instant>) = (None, None);
    loop {
        match ask(had)? {
            Ok(RestoreSeen { ended: Some(ended), .. }) => return Ok(ended),
            Ok(RestoreSeen { order: Some(order), .. }) => {
                (had, away_since) = (Some(order.job()), None);
                write(order);
            }
            Ok(seen) => {
                away_since = None;
                if seen.waits_for != waits_for {
                    waits_for = seen.waits_for;
                    show_queued(cli, run, waits_for.as_deref())?;
                }
            }
            Err(reason) => {
                let since = away_since.get_or_insert_with(|| {
                    eprintln!("capstan: the server is away ({reason}): run {run} goes on when it is back");
                    Instant::now()
                });
                if stop.load(Ordering::Relaxed) || since.elapsed() > AWAY_MAX {
                    return Err(Failure::Other(format!(
                        "the server is away ({reason}): run {run} stays in its queue; `capstan queue` there shows what \
                         becomes of it"
                    )));
                }
                std::thread::sleep(ASKS_AGAIN);
            }
        }
    }
}

/// Shows that a restore is in the queue, and what it waits for there.
pub(crate) fn show_queued(cli: &Globals, run: i64, waits_for: Option<&str>) -> Result<(), Failure> {
    if cli.json {
        return json::print(&ClientRestoreEvent::Queued { run, waits_for: waits_for.map(str::to_owned) });
    }
    match waits_for {
        _ if cli.quiet => {}
        Some(waits_for) => eprintln!("run {run} waits for {waits_for}"),
        None => eprintln!("run {run} begins"),
    }
    Ok(())
}

/// Shows how a restore to a client ended, and ends as it did.
pub(crate) fn show_restored(cli: &Globals, place: &str, ended: RestoreEnded) -> Result<ExitCode, Failure> {
    let is_whole = ended.failed_count == 0 && ended.problems_count == 0;
    if cli.json {
        json::print(&ClientRestoreEvent::Ended {
            failure: ended.failure.clone(),
            members: ended.members,
            bytes: ended.bytes,
            failed: ended.failed.clone(),
            failed_count: ended.failed_count,
            kept: ended.kept,
            problems: ended.problems.clone(),
            problems_count: ended.problems_count,
        })?;
    } else {
        let said = ended.notices.iter().chain(&ended.failed).chain(&ended.problems);
        said.take(FILES_SHOWN).for_each(|line| eprintln!("capstan: {}", words_text(line)));
        if ended.failure.is_none() && !cli.quiet {
            let (paths, bytes) = (units::counted(ended.members, "path"), units::bytes(ended.bytes));
            println!("{paths}, {bytes} restored to {place}");
            if ended.kept > 0 {
                println!(
                    "not replaced, because something is there: {} (see --overwrite)",
                    units::counted(ended.kept, "path")
                );
            }
        }
    }
    match ended.failure {
        Some(reason) => Err(Failure::Other(words_text(&reason))),
        None if is_whole => Ok(ExitCode::SUCCESS),
        None => Ok(ExitCode::from(DONE_WITH_PROBLEMS)),
    }
}
