//! What a person should look at, a line each, the gravest first.

use capstan_director::MANUAL;
use capstan_format::{ObjectId, ObjectKind, Volser};

use super::Facts;
use crate::failure::{BUSY, DONE_WITH_PROBLEMS};
use crate::table::path_text;
use crate::units;
use crate::wording::{doubt_text, short};

/// Objects that are named one by one.
const OBJECTS_SHOWN: usize = 10;

pub(super) fn lines(facts: &Facts) -> Vec<String> {
    let mut lines = Vec::new();
    lines.extend(doubt_text(&facts.reading));
    lines.extend(facts.read_only.then(|| {
        format!(
            "the state directory {} cannot be written: nothing can be backed up, and nothing that is found is recorded",
            facts.state
        )
    }));
    lines.extend(facts.library_problem.clone());
    lines.extend(facts.keys_missing.as_ref().map(|store| {
        format!(
            "the key store {store} is not there, and without keys no encrypted volume can be read. If its disk is not mounted, mount it; \
             if it is lost, `capstan keys create` makes a new one and `capstan keys import FILE` takes in the keys of an export"
        )
    }));
    without_key(&facts.volumes_without_key, &mut lines);
    if facts.not_exported.1 > 0 {
        let (count, days) = (units::counted(facts.not_exported.1 as u64, "volume"), facts.export_days);
        lines.push(format!(
            "the keys of {count} have been in no export for more than {days} days, and are lost with this machine: `capstan keys export FILE`"
        ));
    }
    unprotected(facts, &mut lines);
    indexes(&facts.indexes_missing, &mut lines);
    // What no copy has any more was said above; a repair does not help it.
    let lacking = facts.protection.lacking.iter().filter(|object| facts.lost.bytes(**object) == 0).count();
    if lacking > 0 {
        let lack = if lacking == 1 { "lacks" } else { "lack" };
        lines.push(format!("{} {lack} a copy: run `capstan repair`", units::counted(lacking as u64, "object")));
    }
    facts.queued.lines(&mut lines);
    interrupted(facts, &mut lines);
    failed(facts, &mut lines);
    not_backed_up(facts, &mut lines);
    never(facts, &mut lines);
    overdue(facts, &mut lines);
    suspect(facts, &mut lines);
    for (volser, verified) in &facts.unverified {
        let when = verified.map_or_else(|| "never".to_owned(), |at_ns| format!("last on {}", units::day(at_ns)));
        let days = facts.verify_days;
        lines.push(format!(
            "volume {volser} was verified {when}; this is expected every {days} days: `capstan verify {volser}`"
        ));
    }
    lines
}

fn without_key(volumes: &[Volser], lines: &mut Vec<String>) {
    if volumes.is_empty() {
        return;
    }
    let named: Vec<_> = volumes.iter().take(OBJECTS_SHOWN).map(Volser::as_str).collect();
    let more = volumes.len() - named.len();
    let more = if more > 0 { format!(" and {more} more") } else { String::new() };
    lines.push(format!(
        "the keys of {} are not in the key store, and what is on them cannot be read: {}{more}. `capstan keys import FILE` takes in an export",
        units::counted(volumes.len() as u64, "volume"),
        named.join(", ")
    ));
}

fn unprotected(facts: &Facts, lines: &mut Vec<String>) {
    let unprotected = &facts.protection.unprotected;
    for object in unprotected.iter().take(OBJECTS_SHOWN) {
        let (id, source) = (short(object), path_text(&object.source));
        let mut whole = facts.protection.protected.iter();
        let then = match whole.any(|other| other.source == object.source && other.client == object.client) {
            true => format!("another backup of it is whole; `capstan expire {id}` lets this one go"),
            false => "back it up again with --full".to_owned(),
        };
        let why = match facts.lost.bytes(object.id) {
            0 => format!("`capstan verify {id}` says why; {then}"),
            bytes => format!(
                "{} of it can no longer be read from any copy, and `capstan ls -R {id}` flags the files: {then}",
                units::bytes(bytes)
            ),
        };
        lines.push(format!("object {id} of {source} cannot be restored in full: {why}"));
    }
    if unprotected.len() > OBJECTS_SHOWN {
        let more = (unprotected.len() - OBJECTS_SHOWN) as u64;
        lines.push(format!("{} more cannot be restored in full", units::counted(more, "object")));
    }
}

fn indexes(missing: &[ObjectId], lines: &mut Vec<String>) {
    let Some(first) = missing.first() else { return };
    let id = first.to_string();
    let (id, more) = (&id[id.len() - 8..], missing.len() - 1);
    let others =
        if more == 0 { String::new() } else { format!(", and of {}", units::counted(more as u64, "more object")) };
    lines.push(format!(
        "the list of files of object {id}{others} is gone from the catalog: `capstan rebuild {id}` reads it from the object's volumes"
    ));
}

fn interrupted(facts: &Facts, lines: &mut Vec<String>) {
    for row in facts.sources.iter().filter(|row| row.run.is_none()) {
        let Some(open) = &row.open else { continue };
        let where_to = match open.kind {
            ObjectKind::Stream => "",
            _ => ", it continues from its last checkpoint",
        };
        // Another policy's backup does not go on with it.
        let whose = if open.policy == MANUAL { String::new() } else { format!(" (policy {})", open.policy) };
        lines.push(format!("backup of {} was interrupted: run it again{whose}{where_to}", path_text(&row.source)));
    }
}

fn overdue(facts: &Facts, lines: &mut Vec<String>) {
    let Some(max_age_ns) = facts.max_age_ns else { return };
    for row in facts.sources.iter().filter(|row| facts.is_overdue(row) && !(row.is_never() && row.job.is_some())) {
        let source = path_text(&row.source);
        let when = match &row.last {
            None => "has no backup that can be restored".to_owned(),
            Some(last) if facts.age_is_certain(last) => format!("was backed up {}", facts.age_text(last)),
            Some(_) => "was last backed up while its clock was wrong, which may be too long ago".to_owned(),
        };
        lines.push(format!(
            "{source} of {} {when}; a backup is expected every {}. Back it up, or run `capstan expire --gone {source}` \
             if the source is gone",
            row.client,
            units::age(max_age_ns)
        ));
    }
}

/// Whether no object lacks anything: what damaged blocks held has been copied.
fn is_mended(facts: &Facts) -> bool {
    facts.protection.lacking.is_empty() && facts.lost_in_part().next().is_none()
}

/// Jobs whose last run failed: nothing was backed up then, whatever stands from before.
fn failed(facts: &Facts, lines: &mut Vec<String>) {
    for entry in &facts.failed {
        let (run, message) = (entry.run.id, entry.run.end.as_ref().map(|end| end.message.as_str()).unwrap_or_default());
        let first = message.lines().next().unwrap_or_default();
        let when = units::time(entry.run.started_ns);
        let how = match entry.run.end.as_ref().is_some_and(|end| end.exit_code == BUSY) {
            true => "did not begin",
            false => "failed",
        };
        let what = facts.queued.named(&entry.job);
        lines.push(format!("the last run of {what}, on {when}, {how}: {first} (`capstan history {run}`)"));
    }
}

/// Sources that their last run did not back up.
fn not_backed_up(facts: &Facts, lines: &mut Vec<String>) {
    for entry in &facts.not_backed_up {
        let (run, end) = (&entry.run.job, entry.run.job.end.as_ref());
        let when = units::time(run.started_ns);
        let failed = end.is_some_and(|end| end.exit_code != DONE_WITH_PROBLEMS);
        let first = end.and_then(|end| end.message.lines().next()).unwrap_or_default();
        let why = if failed { format!(": {first}") } else { String::new() };
        lines.push(format!(
            "{} was not backed up by its last run, on {when}{why} (`capstan history {}`)",
            entry.source, run.id
        ));
    }
}

/// Sources of jobs that were never backed up.
fn never(facts: &Facts, lines: &mut Vec<String>) {
    for row in facts.sources.iter().filter(|row| row.is_never() && row.run.is_none()) {
        let Some(job) = &row.job else { continue };
        let source = path_text(&row.source);
        let what = facts.queued.named(job);
        let command = facts.queued.command(job);
        let of = if facts.queued.is_of_clients(job) { format!(" of client {}", row.client) } else { String::new() };
        lines.push(format!("{source}{of} was never backed up, and {what} names it: {command}"));
    }
}

fn suspect(facts: &Facts, lines: &mut Vec<String>) {
    for volume in &facts.suspect {
        let volser = &volume.volser;
        let own = || facts.damage.iter().filter(|damage| damage.volser == *volser);
        let blocks: u64 = own().map(|damage| damage.blocks.blocks).sum();
        if blocks > 0 && is_mended(facts) {
            lines.push(format!(
                "volume {volser} has {} that cannot be read; other volumes have everything that was on them. Run \
                 `capstan library export {volser}`, take it out of the mail slot, run `capstan forget {volser}`, then \
                 `capstan repair`, which copies what else it held",
                units::counted(blocks, "block")
            ));
            continue;
        }
        let why = match own().next() {
            Some(first) if blocks > 0 => format!(
                ": {} cannot be read since {} ({}). `capstan repair` copies what they held from another copy",
                units::counted(blocks, "block"),
                units::day(first.since_ns),
                first.found_by
            ),
            Some(first) => format!(" since {}: {}", units::day(first.since_ns), first.blocks.reason),
            None => String::new(),
        };
        lines.push(format!(
            "volume {volser} is suspect{why}. `capstan verify {volser}` says what can be read, and clears the volume \
             if everything can"
        ));
    }
}
