//! `copy`, `rebuild`, `erase`, `forget`, `label`.

use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use capstan_catalog::{Object, Promise};
use capstan_director::{
    CopyReport, IndexReport, KeptUntil, Loss, Overwritten, RebuildOptions, RebuildReport, Site, Tally,
};
use capstan_format::Volser;
use capstan_mover::RestoreWatch;
use capstan_server::cell::users::task_words::LabelVolumes;

use crate::args;
use crate::audited::{ShellAct, audited};
use crate::door::{Door, as_user_of};
use crate::failure::director;
use crate::failure::{DONE_WITH_PROBLEMS, Failure, ended_in_part};
use crate::globals::Globals;
use crate::json::{self, OverwrittenLine};
use crate::place::find_object;
use crate::progress::{Display, Standing, rate, stop_on_interrupt};
use crate::prompt::{confirm, volser};
use crate::secrets::{Need, now_ns, open, state_dir, unlock_at};
use crate::table::path_text;
use crate::tasks::until_ended;
use crate::units;
use crate::wording::short;
use crate::work::recorded::{Record, recorded};

/// Objects that are named when they are lost.
const OBJECTS_SHOWN: usize = 5;

/// The objects that are meant by a text that names one: itself where its id is written, or all that it stands on as
/// well where its source is, the oldest first.
pub(crate) fn chain_of(site: &Site, text: &str, object: Object, chain: bool) -> Result<Vec<Object>, Failure> {
    let (id, text) = (object.id.to_string(), text.to_ascii_lowercase());
    if !chain && (id.starts_with(&text) || id.ends_with(&text)) {
        return Ok(vec![object]);
    }
    let catalog = site.catalog();
    let mut objects = Vec::new();
    for id in catalog.chain(object.id).map_err(director)?.into_iter().rev() {
        objects.extend(catalog.object(id).map_err(director)?);
    }
    Ok(objects)
}

pub(crate) fn copy(cli: &Globals, args: &args::Copy) -> Result<ExitCode, Failure> {
    let display = Display::new(cli);
    let site = open(cli, Need::Keys, display.events())?;
    let site = match &args.unit {
        Some(unit) => site.in_unit(Some(unit))?,
        None => site.in_library_of_pool(&args.to_pool)?,
    };
    let mut objects: Vec<Object> = Vec::new();
    for text in &args.objects {
        let found = chain_of(&site, text, find_object(&site, text, None)?, args.chain)?;
        let is_new = |object: &Object| objects.iter().all(|known| known.id != object.id);
        let new: Vec<_> = found.into_iter().filter(is_new).collect();
        objects.extend(new);
    }
    let all = objects.len();
    let in_part = pass_over(&display, &site, &mut objects, &args.to_pool)?;
    if all > 1 {
        let there = all - objects.len();
        display.say(&format!("{all} objects to copy; {there} of them are in pool {} already", args.to_pool));
    }
    if objects.is_empty() {
        return Ok(if in_part { ExitCode::from(DONE_WITH_PROBLEMS) } else { ExitCode::SUCCESS });
    }
    say_kept(&display, &site, &objects, &args.to_pool);
    let watch = Arc::new(RestoreWatch::default());
    stop_on_interrupt(&watch.stop);
    let ids: Vec<_> = objects.iter().map(|object| object.id.to_string()).collect();
    recorded(&display, &site, ("copy", &format!("{} to {}", args.objects.join(" "), args.to_pool)), |record| {
        let copy = || Ok(site.copy_objects(&objects, &args.to_pool, &watch)?);
        let copy = || audited(&site, ShellAct::Copy, &ids, copy);
        let reports = display.follow(&|| Standing::of_reading(&watch), copy)?;
        let bytes = reports.iter().map(|report| report.bytes).sum();
        record.tally = Tally { files: 0, bytes, stored: bytes };
        record.message = format!("{} copied", units::counted(reports.len() as u64, "object"));
        let ended = show_copies(cli, args, &display, reports.into_iter().zip(&objects))?;
        Ok(if in_part && ended == ExitCode::SUCCESS { ExitCode::from(DONE_WITH_PROBLEMS) } else { ended })
    })
}

/// Takes out of the objects what a pool has already; whether a copy there is not whole, which is said.
fn pass_over(display: &Display, site: &Site, objects: &mut Vec<Object>, pool: &str) -> Result<bool, Failure> {
    let mut in_part = false;
    let mut left = Vec::new();
    for object in objects.drain(..) {
        let Some(held) = site.copy_in_pool(&object, pool)? else {
            left.push(object);
            continue;
        };
        let (id, copy) = (short(&object), held.copy);
        if held.is_whole {
            display.say(&format!("object {id} has a copy in pool {pool} already"));
        } else {
            in_part = true;
            display.warn(&format!(
                "object {id} has a copy in pool {pool} already, copy {copy}, which is NOT WHOLE: `capstan repair` \
                 copies what can still be read of the rest"
            ));
        }
    }
    *objects = left;
    Ok(in_part)
}

/// Says that a copy goes with its object, where that goes some day.
fn say_kept(display: &Display, site: &Site, objects: &[Object], pool: &str) {
    let as_its_object = objects.iter().filter(|object| !site.has_terms_of_copies(object, pool));
    let first = as_its_object.filter_map(|object| match site.copy_kept_until(object, pool).ok()? {
        KeptUntil::Rule { policy, rule } => Some(format!("as the rule of job {policy} says ({rule})")),
        KeptUntil::ForEver => None,
        KeptUntil::At(at_ns) => Some(format!("until {}", units::day(at_ns))),
    });
    if let Some(until) = first.min() {
        display.warn(&format!(
            "copies are kept as long as the backup's own copies: {until}. The retention of pool {pool} applies to backups into it"
        ));
    }
}

fn show_copies<'a>(
    cli: &Globals,
    args: &args::Copy,
    display: &Display,
    reports: impl Iterator<Item = (CopyReport, &'a Object)>,
) -> Result<ExitCode, Failure> {
    let mut whole = true;
    let mut without_key = Vec::new();
    for (report, object) in reports {
        show_copied(cli, args, object, &report);
        for (_, error) in &report.without_key {
            display.warn(&error.to_string());
        }
        let mut lost: Vec<_> = report.lost.iter().map(ToString::to_string).collect();
        lost.dedup();
        for damage in lost {
            display.warn(&format!("lost: {damage}"));
        }
        whole &= report.lost.is_empty();
        without_key.extend(report.without_key);
    }
    Ok(if whole { ExitCode::SUCCESS } else { ended_in_part(&without_key) })
}

fn show_copied(cli: &Globals, args: &args::Copy, object: &Object, report: &CopyReport) {
    if cli.json {
        // A reader that is gone changes nothing of what was written.
        let _ = json::print(&json::Event::Copied(report.into()));
        return;
    }
    let elapsed = Duration::from_nanos(report.elapsed_ns);
    let verdict =
        if report.lost.is_empty() { "written" } else { "NOT WHOLE: only a part of it could be read and written" };
    println!(
        "object {}: copy {} {verdict} to pool {}: {}, {} in {} ({})",
        short(object),
        report.copy,
        args.to_pool,
        units::counted(report.blocks, "block"),
        units::bytes(report.bytes),
        units::duration(elapsed.as_secs_f64()),
        rate(report.bytes, elapsed)
    );
}

pub(crate) fn rebuild(cli: &Globals, args: &args::Rebuild) -> Result<ExitCode, Failure> {
    let display = Display::new(cli);
    if !args.objects.is_empty() {
        return rebuild_indexes(cli, args, &display);
    }
    let dir = state_dir(cli)?;
    let unlock = unlock_at(cli, &dir)?;
    let options = RebuildOptions {
        database: args.database.clone(),
        discard_old: args.discard_old,
        forget_absent: args.forget_absent,
    };
    let report = capstan_director::rebuild(&dir, unlock.as_ref(), now_ns, display.events(), &options)?;
    // The history belongs to the catalog, which is there only now.
    let site = open(cli, Need::Nothing, display.events())?;
    recorded(&display, &site, ("rebuild", ""), |record| {
        record.message = rebuilt_text(&report);
        show_rebuilt(cli, &display, &report)
    })
}

/// The lists of files of some objects.
fn rebuild_indexes(cli: &Globals, args: &args::Rebuild, display: &Display) -> Result<ExitCode, Failure> {
    let site = open(cli, Need::Keys, display.events())?;
    let objects = args.objects.iter().map(|text| find_object(&site, text, None)).collect::<Result<Vec<_>, _>>()?;
    let stop = Arc::default();
    stop_on_interrupt(&stop);
    recorded(display, &site, ("rebuild", &args.objects.join(" ")), |record| {
        let mut whole = true;
        for object in &objects {
            let report = site.rebuild_index(object, &stop)?;
            whole &= report.is_whole();
            for (volser, reason) in &report.problems {
                display.warn(&format!("{volser}: {reason}"));
            }
            record.message = index_text(object, &report);
            if cli.json {
                json::print(&json::Event::IndexRebuilt((&report).into()))?;
            } else {
                println!("{}", record.message);
            }
        }
        Ok(if whole { ExitCode::SUCCESS } else { ExitCode::from(DONE_WITH_PROBLEMS) })
    })
}

fn index_text(object: &Object, report: &IndexReport) -> String {
    let (id, paths) = (short(object), units::counted(report.entries, "path"));
    let parts = units::counted(report.parts, "catalog part");
    match report.entries_before {
        Some(before) if !report.is_whole() => format!(
            "object {id}: the list has {paths} of {} that it had: not all of its volumes could be read",
            units::count(before)
        ),
        _ if report.parts == 0 && !report.problems.is_empty() => {
            format!("object {id}: its list of {paths} can be read, and was kept: not all of its volumes could be read")
        }
        _ => format!("object {id}: its list of {paths} was rebuilt from {parts}"),
    }
}

fn rebuilt_text(report: &RebuildReport) -> String {
    format!(
        "{} read ({} blank), {}: {}, {} interrupted",
        units::counted(report.volumes, "volume"),
        report.blank,
        units::counted(report.checkpoints, "checkpoint"),
        units::counted(report.complete, "complete object"),
        report.open
    )
}

fn show_rebuilt(cli: &Globals, display: &Display, report: &RebuildReport) -> Result<ExitCode, Failure> {
    for (volser, reason) in &report.problems {
        display.warn(&format!("{volser}: {reason}"));
    }
    if cli.json {
        json::print(&json::Event::Rebuilt(report.into()))?;
    } else {
        println!("{}", rebuilt_text(report));
        if let Some(old) = &report.old {
            println!("the old catalog is kept in {}", old.display());
        }
    }
    Ok(if report.problems.is_empty() { ExitCode::SUCCESS } else { ExitCode::from(DONE_WITH_PROBLEMS) })
}

pub(crate) fn erase(cli: &Globals, args: &args::GiveUp) -> Result<ExitCode, Failure> {
    let display = Display::new(cli);
    let site = open(cli, Need::Nothing, display.events())?;
    let volume = volser(&args.volume)?;
    confirm(&format!("All data on volume {volume} will be lost."), args.yes)?;
    recorded(&display, &site, ("erase", volume.as_str()), |record| {
        let erase = || Ok(site.erase(&volume, loss(args.force), promise(args.drop_copies))?);
        let lost = audited(&site, ShellAct::Erase, &[volume.as_str()], erase)?;
        show_lost(cli, &display, &volume, &lost);
        record.message = format!("volume {volume} is blank{}", copies_text(&lost, args.drop_copies));
        if !cli.json {
            println!("{}", record.message);
        }
        Ok(ExitCode::SUCCESS)
    })
}

pub(crate) fn forget(cli: &Globals, args: &args::GiveUp) -> Result<ExitCode, Failure> {
    let display = Display::new(cli);
    let site = open(cli, Need::Nothing, display.events())?;
    let volume = volser(&args.volume)?;
    confirm(
        &format!("Volume {volume} will be removed from the catalog. If it is found, `capstan rebuild` adds it again."),
        args.yes,
    )?;
    recorded(&display, &site, ("forget", volume.as_str()), |record| {
        let forget = || Ok(site.forget(&volume, loss(args.force), promise(args.drop_copies))?);
        let lost = audited(&site, ShellAct::Forget, &[volume.as_str()], forget)?;
        show_lost(cli, &display, &volume, &lost);
        record.message = format!("volume {volume} is forgotten{}", copies_text(&lost, args.drop_copies));
        if !cli.json {
            println!("{}", record.message);
        }
        Ok(ExitCode::SUCCESS)
    })
}

/// The same by the server of a cell, for volumes that were never written.
fn label_there(cli: &Globals, server: &Door, args: &args::Label) -> Result<ExitCode, Failure> {
    if args.force || args.drop_copies {
        return Err(Failure::Usage(
            "--force and --drop-copies are for the server's machine: what destroys copies is typed there".to_owned(),
        ));
    }
    let volumes = args.volumes.iter().map(|text| Ok(volser(text)?.to_string())).collect::<Result<_, Failure>>()?;
    let pool = (args.pool != "scratch").then(|| args.pool.clone());
    let asked = LabelVolumes { volumes, pool, library: args.library.clone(), size: args.size };
    let end = until_ended(cli, server, server.label(&asked)?)?;
    for volume in &end.not_labelled {
        eprintln!("capstan: {}: {}", volume.volume, json::words(&volume.reason));
    }
    if cli.json {
        json::print(&end)?;
    }
    Ok(if end.not_labelled.is_empty() { ExitCode::SUCCESS } else { ExitCode::from(DONE_WITH_PROBLEMS) })
}

pub(crate) fn label(cli: &Globals, args: &args::Label) -> Result<ExitCode, Failure> {
    if let Some(server) = as_user_of(cli)? {
        return label_there(cli, &server, args);
    }
    let display = Display::new(cli);
    let site = open(cli, Need::Keys, display.events())?;
    let site = match &args.library {
        Some(library) => site.in_library(library)?,
        None => site,
    };
    let pool = (args.pool != "scratch").then_some(args.pool.as_str());
    let volumes = args.volumes.iter().map(|text| volser(text)).collect::<Result<Vec<_>, _>>()?;
    for volume in volumes.iter().filter(|_| !args.force) {
        // What has its last copy there is refused without --force; what has another is asked for.
        let held = site.catalog().objects_on(volume).map_err(director)?;
        let mut elsewhere = !held.is_empty();
        for object in &held {
            let copies = site.catalog().copies(object.id).map_err(director)?;
            elsewhere &= copies.iter().any(|copy| !copy.volumes.contains(volume));
        }
        if elsewhere {
            let held = units::counted(held.len() as u64, "object");
            confirm(&format!("Volume {volume} holds {held}, and nothing of that will be on it any more."), args.yes)?;
        }
    }
    recorded(&display, &site, ("label", &args.volumes.join(" ")), |record| {
        audited(&site, ShellAct::Label, &args.volumes, || {
            label_all(cli, args, (&display, &site), pool, volumes, record)
        })
    })
}

fn label_all(
    cli: &Globals,
    args: &args::Label,
    (display, site): (&Display, &Site),
    pool: Option<&str>,
    volumes: Vec<Volser>,
    record: &mut Record,
) -> Result<ExitCode, Failure> {
    let (mut done, mut failed) = (Vec::new(), Vec::new());
    for volume in volumes {
        match site.label(&volume, pool, args.size, loss(args.force), promise(args.drop_copies)) {
            Ok(lost) => {
                show_lost(cli, display, &volume, &lost);
                if !cli.json && !lost.copies.is_empty() {
                    println!("volume {volume} is labelled{}", copies_text(&lost, args.drop_copies));
                }
                done.push(volume.to_string());
            }
            // One alone speaks for itself.
            Err(error) if args.volumes.len() == 1 => return Err(error.into()),
            Err(error) => {
                display.warn(&format!("{volume}: {}", capstan_tape::with_causes(&error)));
                failed.push((volume.to_string(), error));
            }
        }
    }
    let (labelled, total) = (done.len(), args.volumes.len());
    let names: Vec<&str> = failed.iter().map(|(volume, _)| volume.as_str()).collect();
    let done = if done.is_empty() { "none".to_owned() } else { done.join(", ") };
    let summary = format!("{labelled} of {total} volumes labelled: {done}; not labelled: {}", names.join(", "));
    record.message.clone_from(&summary);
    match failed.into_iter().next() {
        None => Ok(ExitCode::SUCCESS),
        Some((_, first)) if labelled == 0 => {
            display.warn(&summary);
            Err(first.into())
        }
        Some(_) => {
            display.warn(&summary);
            Ok(ExitCode::from(DONE_WITH_PROBLEMS))
        }
    }
}

fn loss(force: bool) -> Loss {
    if force { Loss::Accept } else { Loss::Refuse }
}

fn promise(drop_copies: bool) -> Promise {
    if drop_copies { Promise::Drop } else { Promise::Keep }
}

/// What becomes of the copies that a volume held: the same words for each way to lose a volume.
fn copies_text(lost: &Overwritten, dropped: bool) -> String {
    let objects = lost.copies.len();
    if objects == 0 {
        return String::new();
    }
    let objects = units::counted(objects as u64, "object");
    let elsewhere = lost.copies.iter().any(|copy| copy.copies_left > 0);
    match (dropped, elsewhere) {
        (true, _) => format!("; the copies of {objects} that it held are given up"),
        (false, true) => format!(
            "; {objects} lost a copy, which is promised still: `capstan repair` makes it again from the copies that are left \
             (--drop-copies gives it up instead)"
        ),
        (false, false) => format!("; {objects} lost the last copy"),
    }
}

/// Says which objects are gone with what was on a volume.
fn show_lost(cli: &Globals, display: &Display, volume: &Volser, lost: &Overwritten) {
    if cli.json {
        // A reader that is gone changes nothing of what was done.
        let _ = json::print(&json::Event::Overwritten(OverwrittenLine::new(volume, lost)));
    }
    if lost.last.is_empty() {
        return;
    }
    let name = |object: &Object| {
        format!("{} of {}, {}", short(object), path_text(&object.source), units::time(object.started_ns))
    };
    let named: Vec<_> = lost.last.iter().take(OBJECTS_SHOWN).map(name).collect();
    let more = lost.last.len() - named.len();
    let more = if more > 0 { format!("; and {more} more") } else { String::new() };
    display.warn(&format!(
        "volume {volume} held data that no other volume holds. It is lost for good, and belonged to {}: {}{more}",
        units::counted(lost.last.len() as u64, "object"),
        named.join("; ")
    ));
}
