//! `restore`, `cat` and `verify`.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::io::{BufWriter, IsTerminal, stdout};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use capstan_catalog::{Object, ObjectStatus};
use capstan_director::{
    DirectorError, FileGiven, OlderVersion, PathFilter, Place, RestorePlan, RestoreReport, Site, Tally, VerifiedCopy,
};
use capstan_format::Volser;
use capstan_mover::RestoreWatch;
use capstan_mover::extract::{DeviceNodes, ExistingFiles, ExtractOptions, ExtractReport, Owners};
use capstan_tape::with_causes;

use crate::args;
use crate::audited::{ShellAct, audited};
use crate::door::as_user_of;
use crate::failure::{DONE_WITH_PROBLEMS, Failure, director, ended_in_part};
use crate::globals::Globals;
use crate::json::{self, DifferenceLine, RestoreEnd, RestoreFinished, words};
use crate::place::{MATCHED_NOTHING, check_of, place_at};
use crate::place::{find_volume, object_or_volume};
use crate::progress::{Display, Standing, rate, stop_on_interrupt};
use crate::secrets::{Need, open};
use crate::table::{path_text, words_text};
use crate::units;
use crate::wording::short;
use crate::work::client_restore::restore_as_user;
use crate::work::media::chain_of;
use crate::work::recorded::{Record, recorded};

/// Files that are listed one by one.
const FILES_SHOWN: usize = 50;
/// Paths that are listed below a cause they share.
const PATHS_OF_A_REASON: usize = 10;

fn places(site: &Site, texts: &[OsString], at: Option<&str>, of: Option<&str>) -> Result<Vec<Place>, Failure> {
    let mut places: Vec<Place> = Vec::new();
    for text in texts {
        let (object, typed) = place_at(site, text, at)?;
        if let Some(client) = of {
            check_of(&object, client, text)?;
        }
        let paths = typed.map(|typed| site.paths_in(&object, &typed)).transpose()?;
        match places.iter_mut().find(|place| place.object == object.id) {
            // The whole of an object holds each of its paths.
            Some(place) if place.paths.is_empty() => {}
            Some(place) => match paths {
                Some(paths) => place.paths.extend(paths),
                None => place.paths.clear(),
            },
            None => places.push(Place { object: object.id, paths: paths.unwrap_or_default() }),
        }
    }
    Ok(places)
}

pub(crate) fn restore(cli: &Globals, args: &args::Restore) -> Result<ExitCode, Failure> {
    if let Some(server) = as_user_of(cli)? {
        return restore_as_user(cli, &server, args);
    }
    if args.to_client.is_some() {
        return Err(Failure::Usage(
            "--to-client is for users of a cell, who ask its server (`capstan user enrol`). Here, restore below a directory \
             of this machine"
                .to_owned(),
        ));
    }
    if args.partial {
        return Err(Failure::Usage(
            "--partial is for a restore to a client, which waits in the queue for its volumes. Here, what is there is \
             restored"
                .to_owned(),
        ));
    }
    let display = Display::new(cli);
    let need = if args.dry_run { Need::Nothing } else { Need::Keys };
    let site = open(cli, need, display.events())?;
    let site = match &args.of {
        Some(client) => site.for_client(client),
        None => site,
    };
    let places = places(&site, &args.places, args.at.as_deref(), args.of.as_deref())?;
    let filter = PathFilter::new(&args.include, &args.exclude)?;
    let strip = usize::from(args.strip);
    let existing = match (&args.to, args.overwrite) {
        (Some(to), args::Overwrite::Changed) => {
            let failed = |error| Failure::Other(format!("cannot open the directory {}: {error}", to.display()));
            ExistingFiles::below(to, strip).map_err(failed)?
        }
        _ => None,
    };
    let mut plan = match existing {
        Some(mut existing) => site.plan_restore_on(&places, &filter, &mut existing)?,
        None => site.plan_restore_of(&places, &filter)?,
    };
    for option in filter.unused() {
        display.warn(&format!("{option} {MATCHED_NOTHING}"));
    }
    plan.check_strip(strip)?;
    plan.keep_damaged = args.keep_damaged;
    if !cli.quiet && !cli.json {
        for place in &places {
            let Some(object) = site.catalog().object(place.object).map_err(director)? else { continue };
            let (source, begun) = (path_text(&object.source), units::time(object.started_ns));
            eprintln!("from the backup of {source} of {}, begun {begun} (object {})", object.client, short(&object));
        }
    }
    show_plan(cli, &plan)?;
    let Some(directory) = args.to.as_ref().filter(|_| !args.dry_run) else {
        // As a restore would end: a plan that cannot be carried out today is no good news.
        return Ok(if plan.is_all_there() { ExitCode::SUCCESS } else { ended_in_part(&plan.without_key) });
    };
    if let Some(error) = plan.not_asked.take() {
        return Err(error.into());
    }
    let options = ExtractOptions {
        overwrite: args.overwrite.into(),
        devices: if args.devices { DeviceNodes::Create } else { DeviceNodes::Refuse },
        strip,
        ..ExtractOptions::default()
    };
    let ids: Vec<_> = places.iter().map(|place| place.object.to_string()).collect();
    let watch = Arc::new(RestoreWatch::default());
    stop_on_interrupt(&watch.stop);
    recorded(&display, &site, ("restore", &named(&args.places)), |record| {
        let restore = || Ok(site.restore(&plan, directory, &options, &watch)?);
        let restore = || audited(&site, ShellAct::Restore, &ids, restore);
        let report = display.follow(&|| Standing::of_reading(&watch), restore)?;
        record.tally = read(&report);
        record.message = restored_text(&report, directory);
        if options.owners == Owners::Caller {
            display.say(
                "Everything that was restored belongs to you, without set-user-ID bits, set-group-ID bits (except of \
                 directories that have their group), capabilities and trusted attributes. To restore owners and these, \
                 restore as root with --overwrite always.",
            );
        }
        show_restore(cli, &display, &plan, &report, directory)
    })
}

/// What a command was given, for the history.
fn named<T: AsRef<OsStr>>(words: &[T]) -> String {
    words.iter().map(|word| path_text(word.as_ref().as_bytes())).collect::<Vec<_>>().join(" ")
}

fn read(report: &RestoreReport) -> Tally {
    Tally { files: report.members, bytes: report.bytes, stored: 0 }
}

fn restored_text(report: &RestoreReport, directory: &Path) -> String {
    let elapsed = Duration::from_nanos(report.elapsed_ns);
    format!(
        "{}, {} restored to {} in {} ({}), {} read",
        units::counted(report.members, "path"),
        units::bytes(report.bytes),
        directory.display(),
        units::duration(elapsed.as_secs_f64()),
        rate(report.bytes, elapsed),
        units::counted(report.blocks, "block")
    )
}

fn show_plan(cli: &Globals, plan: &RestorePlan) -> Result<(), Failure> {
    if cli.json {
        return json::print(&json::Event::plan(plan));
    }
    for (_, error) in &plan.without_key {
        eprintln!("capstan: {error}");
    }
    if let Some(error) = &plan.not_asked {
        let reason = with_causes(error);
        eprintln!("capstan: no library answers ({reason}): volumes are taken to be where they were last");
    }
    for volser in &plan.out_of_reach {
        eprintln!(
            "capstan: volume {volser} is in a library that does not answer: `capstan drives` says which, and why"
        );
    }
    for volser in plan.absent.iter().filter(|volser| !plan.out_of_reach.contains(volser)) {
        eprintln!(
            "capstan: {}, and no volume in the library has its part of this: put it into the mail slot, unless it is \
             there already, and run `capstan library import`",
            plan.whereabouts_of(volser)
        );
    }
    for (_, reason) in plan.in_part() {
        eprintln!("capstan: {reason}");
    }
    if plan.interrupted {
        eprintln!("capstan: {}", RestorePlan::INTERRUPTED);
    }
    if cli.quiet {
        return Ok(());
    }
    let there = match plan.files_there() {
        0 => String::new(),
        1 => "; 1 file is there already".to_owned(),
        files => format!("; {} are there already", units::counted(files, "file")),
    };
    eprintln!("{}, {} of files{there}", units::counted(plan.members, "path"), units::bytes(plan.bytes));
    for (number, pass) in plan.passes.iter().enumerate() {
        eprintln!(
            "  mount {}: volume {}, read {}, pass over {}",
            number + 1,
            pass.volser,
            units::counted(pass.blocks, "block"),
            units::count(pass.skipped)
        );
    }
    let estimate = units::duration(plan.estimate_ns as f64 / 1e9);
    eprintln!("  {} to read, about {estimate}", units::bytes(plan.read_bytes));
    not_as_asked(plan).iter().for_each(|line| eprintln!("capstan: {line}"));
    Ok(())
}

/// Paths that do not come back as they were at the time that was asked for, a line each.
fn not_as_asked(plan: &RestorePlan) -> Vec<String> {
    let lost = plan
        .lost
        .iter()
        .map(|path| format!("{}: could not be read when it was backed up; nothing of it is stored", path_text(path)));
    let incomplete = plan.incomplete.iter().map(|path| incomplete_text(path));
    let all = lost.chain(incomplete).chain(plan.older.iter().map(older_text));
    let mut lines: Vec<_> = all.take(FILES_SHOWN).collect();
    let more = plan.older.len() + plan.lost.len() + plan.incomplete.len() - lines.len();
    if more > 0 {
        let more = units::counted(more as u64, "more path");
        lines.push(format!("and {more} that could not be read when the backup ran"));
    }
    lines
}

fn incomplete_text(path: &[u8]) -> String {
    format!(
        "{}: is incomplete, because it could not be read or listed to its end when it was backed up",
        path_text(path)
    )
}

fn older_text(older: &OlderVersion) -> String {
    let object = older.object.to_string();
    format!(
        "{}: could not be read by the last backup; the restored version is of {} (object {})",
        path_text(&older.path),
        units::time(older.backed_up_ns),
        &object[object.len() - 8..]
    )
}

fn show_failures(display: &Display, report: &RestoreReport) {
    for (_, error) in &report.without_key {
        display.warn(&error.to_string());
    }
    // One cause, such as a block that is gone, hits many files: it is said once.
    // By reasons that differ in the number of a block alone: of a volume that was cut short each block has its own.
    let mut by_reason: BTreeMap<String, (&str, Vec<&[u8]>)> = BTreeMap::new();
    for file in &report.failed {
        let (_, paths) = by_reason.entry(of_any_block(&file.reason)).or_insert((&file.reason, Vec::new()));
        paths.push(&file.path);
    }
    for (reason, paths) in by_reason.values().take(FILES_SHOWN) {
        let (first, more) = (path_text(paths[0]), paths.len() - 1);
        let shown = if more == 0 { first } else { format!("{first} and {}", units::counted(more as u64, "more path")) };
        display.warn(&format!("{shown}: {}", words_text(reason)));
        for path in paths.iter().skip(1).take(PATHS_OF_A_REASON) {
            display.say(&format!("  {}", path_text(path)));
        }
        let hidden = more.saturating_sub(PATHS_OF_A_REASON);
        if hidden > 0 {
            display.say(&format!("  and {}: --json names all", units::counted(hidden as u64, "more path")));
        }
    }
    if by_reason.len() > FILES_SHOWN {
        display.warn(&format!("and {} more reasons", by_reason.len() - FILES_SHOWN));
    }
    let mut lost: BTreeMap<String, (String, u64)> = BTreeMap::new();
    for damage in &report.lost {
        let text = damage.to_string();
        lost.entry(of_any_block(&text)).or_insert((text, 0)).1 += 1;
    }
    let new = lost.iter().filter(|(kind, _)| !by_reason.contains_key(*kind)).map(|(_, lost)| lost);
    for (first, times) in new.take(FILES_SHOWN) {
        let more = match times - 1 {
            0 => String::new(),
            more => format!(", and {} alike", units::counted(more, "more block")),
        };
        display.warn(&format!("lost: {first}{more}"));
    }
    if let Some(first) = report.recovered.first() {
        let count = units::counted(report.recovered.len() as u64, "block");
        let what = if first.of_medium { "damaged" } else { "could not be read" };
        display.warn(&format!("{count} {what} here came from another copy, the first: {first}"));
    }
}

/// A reason without the number of its block.
fn of_any_block(reason: &str) -> String {
    let mut parts = reason.split("block ");
    let mut text = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        text.push_str("block ");
        text.push_str(part.trim_start_matches(|c: char| c.is_ascii_digit()));
    }
    text
}

fn show_restore(
    cli: &Globals,
    display: &Display,
    plan: &RestorePlan,
    report: &RestoreReport,
    directory: &Path,
) -> Result<ExitCode, Failure> {
    show_failures(display, report);
    if report.is_damaged() && !plan.keep_damaged && !report.failed.is_empty() {
        display.say("With --keep-damaged, what can be read of a damaged file is kept beside its name.");
    }
    if !report.is_whole() {
        for volser in &plan.stood_in_for {
            display.warn(&format!(
                "{} and holds another copy of a part of this: put it into the mail slot, run `capstan library import`, \
                 and restore again with --overwrite changed",
                plan.whereabouts_of(volser)
            ));
        }
    }
    if let (Some(first), false) = (plan.vanished.first(), cli.quiet || cli.json) {
        let (first, count) = (path_text(first), units::counted(plan.vanished.len() as u64, "path"));
        eprintln!("{count} vanished while the backup ran and could not be stored, the first: {first}");
    }
    if !cli.json {
        // Once more behind all that scrolled by.
        not_as_asked(plan).iter().for_each(|line| display.warn(line));
    }
    let problems = report.extract.as_ref().map(|extract| extract.problems.as_slice()).unwrap_or_default();
    for problem in problems.iter().take(FILES_SHOWN) {
        display.warn(&format!("{}: {}", path_text(&problem.path), words_text(&problem.reason)));
    }
    if problems.len() > FILES_SHOWN {
        display.warn(&format!("and {} more problems", problems.len() - FILES_SHOWN));
    }
    let kept = report.extract.as_ref().map_or(0, |extract| extract.kept);
    if kept > 0 {
        let left = match kept {
            1 => "1 path was there already and is left as it was".to_owned(),
            _ => format!("{} were there already and are left as they were", units::counted(kept, "path")),
        };
        display.warn(&left);
    }
    let differing = report.extract.as_ref().and_then(ExtractReport::differing_in_words);
    differing.iter().for_each(|differing| display.warn(differing));
    if cli.json {
        json::print(&RestoreEnd::Finished(RestoreFinished::new(plan, report)))?;
    } else if !cli.quiet {
        println!("{}", restored_text(report, directory));
    }
    if !report.is_whole() {
        return Ok(ended_in_part(&report.without_key));
    }
    // What vanished is not there to be given back.
    let as_asked = !plan.interrupted
        && problems.is_empty()
        && differing.is_none()
        && plan.lost.is_empty()
        && plan.incomplete.is_empty()
        && plan.older.is_empty();
    Ok(if as_asked { ExitCode::SUCCESS } else { ExitCode::from(DONE_WITH_PROBLEMS) })
}

pub(crate) fn cat(cli: &Globals, args: &args::Cat) -> Result<ExitCode, Failure> {
    let display = Display::new(cli);
    let site = open(cli, Need::Keys, Arc::new(|_| {}))?;
    let (object, typed) = place_at(&site, &args.place, args.at.as_deref())?;
    let path = typed.map(|typed| site.path_in(&object, &typed)).transpose()?;
    if path.is_none() && stdout().is_terminal() {
        let advice = "a pax stream is not text: pipe it, as in `capstan cat OBJECT | tar tvf -`";
        return Err(Failure::Usage(advice.to_owned()));
    }
    let mut out = BufWriter::with_capacity(1 << 20, stdout());
    let given = audited(&site, ShellAct::Restore, &[object.id.to_string()], || match &path {
        Some(path) => Ok(site.cat_file(object.id, path, &mut out, &Arc::default()).map(Some)?),
        None => {
            site.cat_object(object.id, &mut out)?;
            Ok(None)
        }
    })?;
    std::io::Write::flush(&mut out).map_err(Failure::output)?;
    let (Some(path), Some(FileGiven { older, is_incomplete })) = (path, given) else { return Ok(ExitCode::SUCCESS) };
    let as_asked = older.is_none() && !is_incomplete;
    older.iter().for_each(|older| display.warn(&older_text(older)));
    if is_incomplete {
        display.warn(&incomplete_text(&path));
    }
    Ok(if as_asked { ExitCode::SUCCESS } else { ExitCode::from(DONE_WITH_PROBLEMS) })
}

pub(crate) fn verify(cli: &Globals, args: &args::Verify) -> Result<ExitCode, Failure> {
    let display = Display::new(cli);
    let site = open(cli, Need::Keys, display.events())?;
    recorded(&display, &site, ("verify", &named(&args.what)), |record| verify_all(cli, args, &display, &site, record))
}

fn verify_all(
    cli: &Globals,
    args: &args::Verify,
    display: &Display,
    site: &Site,
    record: &mut Record,
) -> Result<ExitCode, Failure> {
    let mut whole = true;
    let mut without_key = Vec::new();
    for what in &args.what {
        if let Some((volser, _)) = find_volume(site, what)? {
            let watch = Arc::new(RestoreWatch::default());
            stop_on_interrupt(&watch.stop);
            let report = display.follow(&|| Standing::of_reading(&watch), || site.verify_volume(&volser, &watch))?;
            // What another volume stood in for is no loss; the volume is damaged all the same.
            let damaged = report.is_damaged() || !report.bad.is_empty();
            whole &= report.is_whole() && !damaged;
            show_failures(display, &report);
            add(&mut record.tally, &report);
            show_verified(cli, &format!("volume {volser}"), &report, damaged, false);
            without_key.extend(report.without_key);
            continue;
        }
        let object = object_or_volume(site, what)?;
        let objects = chain_of(site, what, object.clone(), args.chain)?;
        whole &= verify_objects(cli, display, site, &objects, (record, &mut without_key))?;
        if args.against_source {
            whole &= against_source(cli, display, site, &object, &args.exclude)?;
        }
    }
    record.message = if whole { "good" } else { "not all of it is good" }.to_owned();
    Ok(if whole { ExitCode::SUCCESS } else { ended_in_part(&without_key) })
}

fn verify_objects(
    cli: &Globals,
    display: &Display,
    site: &Site,
    objects: &[Object],
    (record, without_key): (&mut Record, &mut Vec<(Volser, DirectorError)>),
) -> Result<bool, Failure> {
    let watch = Arc::new(RestoreWatch::default());
    stop_on_interrupt(&watch.stop);
    let verified = display.follow(&|| Standing::of_reading(&watch), || site.verify_objects(objects, &watch))?;
    let mut whole = true;
    for object in objects {
        let mut any = false;
        for VerifiedCopy { copy, report, .. } in verified.iter().filter(|verified| verified.object == object.id) {
            any = true;
            whole &= report.is_whole();
            add(&mut record.tally, report);
            show_failures(display, report);
            if report.behind > 0 {
                let paths = units::counted(report.behind, "path");
                display.warn(&format!("copy {copy} lacks {paths} that another copy has: `capstan repair` adds them"));
            }
            let interrupted = object.status == ObjectStatus::Open;
            let what = format!("object {}, copy {copy}", short(object));
            show_verified(cli, &what, report, report.is_damaged(), interrupted);
        }
        if !any {
            display.warn(&format!("object {} is on no volume any more: its data is gone", short(object)));
            whole = false;
        }
    }
    without_key.extend(verified.into_iter().flat_map(|verified| verified.report.without_key));
    if let [object] = objects {
        let chain = site.catalog().chain(object.id).map_err(|error| Failure::Director(error.into()))?;
        if chain.len() > 1 {
            let earlier = chain.len() - 1;
            display.say(&format!(
                "it is based on {} that were not verified: --chain verifies them too",
                if earlier == 1 { "an earlier object".to_owned() } else { format!("{earlier} earlier objects") }
            ));
        }
    }
    Ok(whole)
}

fn add(tally: &mut Tally, report: &RestoreReport) {
    let Tally { files, bytes, .. } = read(report);
    tally.files += files;
    tally.bytes += bytes;
}

fn names(volumes: &[Volser]) -> String {
    volumes.iter().map(Volser::as_str).collect::<Vec<_>>().join(", ")
}

fn show_verified(cli: &Globals, what: &str, report: &RestoreReport, damaged: bool, interrupted: bool) {
    if cli.json {
        // A reader that is gone changes nothing of the verdict.
        let _ = json::print(&json::Event::Verified { what: what.to_owned(), damaged, work: report.into() });
        return;
    }
    let elapsed = Duration::from_nanos(report.elapsed_ns);
    let verdict = if damaged {
        "DAMAGED".to_owned()
    } else if !report.absent.is_empty() && !report.is_whole() {
        // Nothing is known to be wrong with what was not looked at.
        format!("NOT IN THE LIBRARY ({})", names(&report.absent))
    } else if !report.is_whole() {
        "NOT READ, see above".to_owned()
    } else if interrupted {
        "INTERRUPTED, what there is of it is good".to_owned()
    } else {
        "good".to_owned()
    };
    println!(
        "{what}: {verdict}: {}, {}, {} in {} ({})",
        units::counted(report.blocks, "block"),
        units::counted(report.members, "path"),
        units::bytes(report.bytes),
        units::duration(elapsed.as_secs_f64()),
        rate(report.bytes, elapsed)
    );
}

fn against_source(
    cli: &Globals,
    display: &Display,
    site: &Site,
    object: &Object,
    exclude: &[String],
) -> Result<bool, Failure> {
    let differences = site.compare_with_source(object, exclude)?;
    for difference in differences.iter().take(FILES_SHOWN) {
        display.warn(&format!("/{}: {}", path_text(&difference.path), difference.reason));
    }
    if differences.len() > FILES_SHOWN {
        display.warn(&format!("and {} more differences", differences.len() - FILES_SHOWN));
    }
    if cli.json {
        let line = |path: &Vec<u8>, reason: &str| DifferenceLine { path: path.into(), reason: words(reason) };
        let differences = differences.iter().map(|difference| line(&difference.path, &difference.reason)).collect();
        json::print(&json::Event::Compared { differences })?;
    } else if differences.is_empty() {
        println!("object {}: the source is as it was backed up", short(object));
    } else {
        let differ = if differences.len() == 1 { "differs" } else { "differ" };
        let paths = units::counted(differences.len() as u64, "path");
        println!("object {}: {paths} of the source {differ}", short(object));
    }
    Ok(differences.is_empty())
}
