//! What a person should look at, a line each, the gravest first. The server tells people of them, too.

use capstan_catalog::{Object, RunOutcome};
use capstan_director::{Concern, FailedJob, MANUAL, TellEvent};
use capstan_format::{ObjectId, ObjectKind, Volser};
use capstan_server::tell::TellFinding;

use super::Facts;
use super::last_run::LastRun;
use crate::failure::{BUSY, DONE_WITH_PROBLEMS};
use crate::table::path_text;
use crate::units;
use crate::wording::{doubt_text, short};

/// Objects that are named one by one.
const OBJECTS_SHOWN: usize = 10;

/// Something that a person should look at.
pub(super) struct Attention {
    /// What it is, and what to do, in a line.
    pub(super) text: String,
    /// What the server tells of it, if it tells it: what a run or an operator brought about it does not tell twice.
    pub(super) finding: Option<TellFinding>,
    /// A word for things of its kind, where the server does not tell it.
    shown_kind: &'static str,
}

impl Attention {
    /// What only `status` shows; things of one kind have one word.
    pub(super) fn shown(kind: &'static str, text: String) -> Self {
        Self { text, finding: None, shown_kind: kind }
    }

    /// What things of its kind have in common: the first word of their keys.
    pub(super) fn kind(&self) -> &str {
        let key = self.finding.as_ref().map(|finding| finding.key.as_str());
        key.map_or(self.shown_kind, |key| key.split(' ').next().unwrap_or(key))
    }

    /// What the server tells, too, by a key that it keeps as long as it lasts.
    pub(super) fn told(event: TellEvent, key: impl Into<String>, subject: impl Into<String>, text: String) -> Self {
        let finding = TellFinding::lasting(event, key.into(), subject.into(), text.clone());
        Self { text, finding: Some(finding), shown_kind: "" }
    }

    /// The same, of a policy at a client.
    pub(super) fn about(mut self, policy: &str, client: &str) -> Self {
        if let Some(finding) = &mut self.finding {
            (finding.policy, finding.client) = (policy.to_owned(), client.to_owned());
        }
        self
    }
}

pub(super) fn all(facts: &Facts) -> Vec<Attention> {
    let trouble = |key: &str, subject: &str, text| Attention::told(TellEvent::Trouble, key, subject, text);
    let mut lines = Vec::new();
    lines.extend(doubt_text(&facts.reading).map(|text| trouble("clock", "the clock is in doubt", text)));
    lines.extend(facts.read_only.then(|| {
        let text = format!(
            "the state directory {} cannot be written: nothing can be backed up, and nothing that is found is recorded",
            facts.state
        );
        trouble("read only", "the state directory cannot be written", text)
    }));
    let library = |text: &String| trouble("library", "the library cannot be used", text.clone());
    lines.extend(facts.library_problem.as_ref().map(library));
    let away = (!facts.folders_away.is_empty()).then(|| facts.folders_away.join("; "));
    lines.extend(away.map(|text| trouble("folders away", "a folder of a library cannot be used", text)));
    lines.extend(facts.keys_missing.as_ref().map(|store| {
        let text = format!(
            "the key store {store} is not there, and without keys no encrypted volume can be read. If its disk is not mounted, mount it; \
             if it is lost, `capstan keys create` makes a new one and `capstan keys import FILE` takes in the keys of an export"
        );
        trouble("key store", "the key store is not there", text)
    }));
    without_key(&facts.volumes_without_key, &mut lines);
    mistaken(&facts.mistaken, &mut lines);
    facts.ways.lines(&mut lines);
    if facts.not_exported.1 > 0 {
        let (count, days) = (units::counted(facts.not_exported.1 as u64, "volume"), facts.export_days);
        let text = format!(
            "the keys of {count} have been in no export for more than {days} days, and are lost with this machine: `capstan keys export FILE`"
        );
        lines.push(trouble("export", "keys are in no export", text));
    }
    unprotected(facts, &mut lines);
    indexes(&facts.indexes_missing, &mut lines);
    // What no copy has any more was said above; a repair does not help it.
    let lacking = facts.protection.lacking.iter().filter(|object| facts.lost.bytes(**object) == 0).count();
    if lacking > 0 {
        let lack = if lacking == 1 { "lacks" } else { "lack" };
        let text = format!("{} {lack} a copy: run `capstan repair`", units::counted(lacking as u64, "object"));
        lines.push(trouble("copies", "copies are missing", text));
    }
    facts.queued.lines(&mut lines);
    // On a host without a server, whoever runs `expire` and labels volumes looks at that.
    if facts.queued.is_served {
        lines.extend(not_expiring(facts));
        keeping_less(facts, &mut lines);
        facts.running_out.lines(&mut lines);
    }
    interrupted(facts, &mut lines);
    failed(facts, &mut lines);
    with_problems(facts, &mut lines);
    not_backed_up(facts, &mut lines);
    never(facts, &mut lines);
    overdue(facts, &mut lines);
    facts.owed.lines(facts, &mut lines);
    suspect(facts, &mut lines);
    lines.extend(facts.drive_concerns.iter().map(of_drive));
    for (volser, verified) in &facts.unverified {
        let when = verified.map_or_else(|| "never".to_owned(), |at_ns| format!("last on {}", units::day(at_ns)));
        let days = facts.verify_days;
        let text = format!(
            "volume {volser} was verified {when}; this is expected every {days} days: `capstan verify {volser}`"
        );
        let subject = format!("volume {volser} was not verified for too long");
        lines.push(Attention::told(TellEvent::Volume, format!("verify {volser}"), subject, text));
    }
    lines
}

/// The server asks a person before so much goes.
fn not_expiring(facts: &Facts) -> Option<Attention> {
    let (count, living) = (facts.expiry.forget.len() as u64, facts.expiry.living as u64);
    let subject = "more than half of all objects would expire, and the server expires none";
    let text = format!(
        "the retention of {} has ended, which is more than half of all {}: the server expires none of them. \
         `capstan expire --dry-run` shows them, and `capstan expire` does it. Where backups are kept for hours only, have \
         the server do it more often (`expire` under [server])",
        units::counted(count, "object"),
        units::count(living)
    );
    let asks = facts.expires && facts.expiry.refusal.is_none() && facts.expiry.takes_most();
    asks.then(|| Attention::told(TellEvent::Trouble, "expiry", subject, text))
}

/// Policies whose rules take most of what they kept: the server asks a person before that goes.
fn keeping_less(facts: &Facts, lines: &mut Vec<Attention>) {
    if !facts.expires || facts.expiry.refusal.is_some() {
        return;
    }
    for reduction in &facts.held {
        let policy = &reduction.policy;
        let subject = format!("policy {policy} keeps less than before, and the server expires nothing of it");
        let (key, text) = (format!("expiry {policy}"), reduction.held_text());
        lines.push(Attention::told(TellEvent::Trouble, key, subject, text).about(policy, ""));
    }
}

fn without_key(volumes: &[Volser], lines: &mut Vec<Attention>) {
    if volumes.is_empty() {
        return;
    }
    let named: Vec<_> = volumes.iter().take(OBJECTS_SHOWN).map(Volser::as_str).collect();
    let more = volumes.len() - named.len();
    let more = if more > 0 { format!(" and {more} more") } else { String::new() };
    let text = format!(
        "the keys of {} are not in the key store, and what is on them cannot be read: {}{more}. `capstan keys import FILE` takes in an export",
        units::counted(volumes.len() as u64, "volume"),
        named.join(", ")
    );
    lines.push(Attention::told(TellEvent::Volume, "volumes without key", "keys of volumes are missing", text));
}

fn unprotected(facts: &Facts, lines: &mut Vec<Attention>) {
    let unprotected = &facts.protection.unprotected;
    for object in unprotected.iter().take(OBJECTS_SHOWN) {
        let (id, source) = (short(object), path_text(&object.source));
        let mut whole = facts.protection.protected.iter();
        let then = match whole.any(|other| other.source == object.source && other.client == object.client) {
            true => format!("another backup of it is whole; `capstan expire {id}` lets this one go"),
            false => facts.queued.full_again(&object.policy),
        };
        let why = match facts.lost.bytes(object.id) {
            0 => format!("`capstan verify {id}` says why; {then}"),
            bytes => format!(
                "{} of it can no longer be read from any copy, and `capstan ls -R {id}` flags the files: {then}",
                units::bytes(bytes)
            ),
        };
        let subject = format!("object {id} of {source} cannot be restored in full");
        let attention =
            Attention::told(TellEvent::Volume, format!("object {}", object.id), &subject, format!("{subject}: {why}"));
        lines.push(attention.about(&object.policy, &object.client));
    }
    if unprotected.len() > OBJECTS_SHOWN {
        let more = (unprotected.len() - OBJECTS_SHOWN) as u64;
        let text = format!("{} more cannot be restored in full", units::counted(more, "object"));
        lines.push(Attention::told(TellEvent::Volume, "more objects", "many objects cannot be restored in full", text));
    }
}

fn indexes(missing: &[ObjectId], lines: &mut Vec<Attention>) {
    let Some(first) = missing.first() else { return };
    let id = first.to_string();
    let (id, more) = (&id[id.len() - 8..], missing.len() - 1);
    let others =
        if more == 0 { String::new() } else { format!(", and of {}", units::counted(more as u64, "more object")) };
    let text = format!(
        "the list of files of object {id}{others} is gone from the catalog: `capstan rebuild {id}` reads it from the object's volumes"
    );
    lines.push(Attention::told(TellEvent::Trouble, "indexes", "lists of files are gone from the catalog", text));
}

fn interrupted(facts: &Facts, lines: &mut Vec<Attention>) {
    for row in facts.sources.iter().filter(|row| row.run.is_none()) {
        let Some(open) = &row.open else { continue };
        let where_to = match open.kind {
            ObjectKind::Stream => "",
            _ => ", it continues from its last checkpoint",
        };
        // Another policy's backup does not go on with it.
        let whose = if open.policy == MANUAL { String::new() } else { format!(" (policy {})", open.policy) };
        let source = path_text(&row.source);
        let text = format!("backup of {source} of {} was interrupted: run it again{whose}{where_to}", row.client);
        // A policy's run goes on by itself.
        if facts.queued.is_policy(&open.policy) {
            lines.push(Attention::shown("interrupted", text));
            continue;
        }
        let (key, subject) = (
            format!("interrupted {} {source}", row.client),
            format!("backup of {source} of {} was interrupted", row.client),
        );
        let attention = Attention::told(TellEvent::Trouble, key, subject, text);
        lines.push(attention.about("", &row.client));
    }
}

fn overdue(facts: &Facts, lines: &mut Vec<Attention>) {
    let Some(max_age_ns) = facts.max_age_ns else { return };
    for row in facts.sources.iter().filter(|row| facts.is_overdue(row)) {
        let source = path_text(&row.source);
        let when = match &row.last {
            None => "has no backup that can be restored".to_owned(),
            Some(last) if facts.age_is_certain(last) => format!("was backed up {}", facts.age_text(last)),
            Some(last) if facts.reading.doubt.is_some() => {
                format!(
                    "was last backed up on {}, which is too long ago if the clock is right",
                    units::day(last.ended_ns)
                )
            }
            Some(_) => "was last backed up while its clock was wrong, which may be too long ago".to_owned(),
        };
        let then = match facts.is_refused(row) {
            true => format!("Its client refuses it: {}", to_allow(&row.client)),
            false => format!("Back it up, or run `capstan expire --gone {source}` if the source is gone for good"),
        };
        let age = units::age(max_age_ns);
        let text = format!("{source} of {} {when}; a backup is expected every {age}. {then}", row.client);
        let (key, subject) =
            (format!("overdue {} {source}", row.client), format!("{source} of {} is overdue", row.client));
        let policy = row.last.as_ref().map_or("", |last| last.policy.as_str());
        lines.push(Attention::told(TellEvent::Overdue, key, subject, text).about(policy, &row.client));
    }
}

/// Whether no object lacks anything: what damaged blocks held has been copied.
fn is_mended(facts: &Facts) -> bool {
    !facts.protection.any_lacking && facts.lost_in_part().next().is_none()
}

/// Jobs whose last run failed: nothing was backed up then, whatever stands from before.
fn failed(facts: &Facts, lines: &mut Vec<Attention>) {
    let queued = &facts.queued;
    let by_client = |entry: &&FailedJob| queued.failed_last.iter().any(|last| last.job == Some(entry.run.id));
    let failed = facts.failed.iter().filter(|entry| !(queued.is_of_clients(&entry.job) && by_client(entry)));
    lines.extend(failed.map(|entry| of_failed(entry, &queued.named(&entry.job))));
    // The last run of a policy is that of one client. What the queue ran is told when it ends.
    for last in &queued.failed_last {
        let (policy, client, job) = (&last.policy, &last.client, last.job);
        if !queued.is_of_clients(policy) && facts.failed.iter().any(|entry| job == Some(entry.run.id)) {
            continue;
        }
        lines.push(Attention::shown(
            "history",
            how_ended(last, &format!("the last run of policy {policy} for {client}")),
        ));
    }
}

/// Members that are taken for others.
fn mistaken(texts: &[String], lines: &mut Vec<Attention>) {
    lines.extend(texts.iter().map(|text| {
        let subject = text.split(": ").next().unwrap_or(text);
        Attention::told(TellEvent::Trouble, format!("identity {subject}"), subject, text.clone())
    }));
}

/// Runs that went through, and did not do all. Where that is because they went on without sources, those are named.
fn with_problems(facts: &Facts, lines: &mut Vec<Attention>) {
    for last in &facts.with_problems {
        let (policy, client) = (&last.policy, &last.client);
        let is_said = facts.not_backed_up.iter().any(|entry| Some(entry.run.job.id) == last.job);
        let lacks_paths = |object: &Object| object.policy == *policy && object.counts.is_some_and(|n| n.problems > 0);
        let own = facts.sources.iter().filter(|row| row.client == *client);
        if is_said && !own.filter_map(|row| row.last.as_ref()).any(lacks_paths) {
            continue;
        }
        let whose = facts.queued.is_policy(policy).then_some(client.as_str());
        let which = last_run_of(&facts.queued.named(policy), whose, facts.queued.is_without_backups(policy));
        lines.push(of_problems(last, &which));
    }
}

/// The last run of a policy or job, in words. One that makes no backups is no client's.
fn last_run_of(named: &str, client: Option<&str>, is_without_backups: bool) -> String {
    match client.filter(|_| !is_without_backups) {
        Some(client) => format!("the last backup by {named} for {client}"),
        None if is_without_backups => format!("the last run of {named}"),
        None => format!("the last backup by {named}"),
    }
}

/// The next run that does all ends it, so a file that is never readable is told once.
fn of_problems(last: &LastRun, which: &str) -> Attention {
    let (policy, client) = (&last.policy, &last.client);
    let text = how_ended(last, which);
    let (key, subject) = (format!("problems {policy} {client}"), format!("{which} had problems"));
    let mut attention = Attention::told(TellEvent::Problems, key, subject, text).about(policy, client);
    if let Some(finding) = &mut attention.finding {
        finding.run = last.job;
    }
    attention
}

/// When and how a run ended, why, and where to look.
fn how_ended(last: &LastRun, which: &str) -> String {
    let (when, first) = (units::time(last.ended_ns), last.message.lines().next().unwrap_or_default());
    let look = last.job.map_or_else(|| "capstan queue done".to_owned(), |job| format!("capstan history {job}"));
    let how = if last.outcome == RunOutcome::Warned { "ended with problems" } else { "failed" };
    format!("{which}, on {when}, {how}: {first} (`{look}`)")
}

fn of_failed(entry: &FailedJob, what: &str) -> Attention {
    let (run, end) = (entry.run.id, entry.run.end.as_ref());
    let first = end.and_then(|end| end.message.lines().next()).unwrap_or_default();
    let when = units::time(entry.run.started_ns);
    let how = if end.is_some_and(|end| end.exit_code == BUSY) { "did not begin" } else { "failed" };
    let text = format!("the last run of {what}, on {when}, {how}: {first} (`capstan history {run}`)");
    // The queue has its own runs, and what becomes of them. A policy that somebody runs by hand is not in it.
    if entry.run.run.is_some() {
        return Attention::shown("history", text);
    }
    let mut attention = Attention::told(TellEvent::Failed, format!("history {run}"), format!("{what} {how}"), text);
    if let Some(finding) = &mut attention.finding {
        finding.lasts = false;
        (finding.run, finding.since_ns) = (Some(run), end.map(|end| end.ended_ns));
    }
    attention.about(&entry.job, "")
}

/// Sources that their last run did not back up.
fn not_backed_up(facts: &Facts, lines: &mut Vec<Attention>) {
    for entry in &facts.not_backed_up {
        let (run, end) = (&entry.run.job, entry.run.job.end.as_ref());
        let when = units::time(run.started_ns);
        let failed = end.is_some_and(|end| end.exit_code != DONE_WITH_PROBLEMS);
        let first = end.and_then(|end| end.message.lines().next()).unwrap_or_default();
        let why = if failed { Some(first) } else { entry.reason.as_deref() };
        let why = why.map(|why| format!(": {why}")).unwrap_or_default();
        let (source, client) = (&entry.source, &entry.client);
        let (what, key) = match entry.is_here {
            true => (source.clone(), source.clone()),
            false => (format!("{source} of {client}"), format!("{client} {source}")),
        };
        let subject = format!("{what} was not backed up by its last run");
        // A run that failed as a whole says nothing of the source.
        let then = if failed {
            String::new()
        } else if entry.is_refused() {
            format!("; {}", to_allow(client))
        } else {
            format!("; if the source is gone for good: `capstan expire --gone {source}`")
        };
        let text = format!("{subject}, on {when}{why} (`capstan history {}`){then}", run.id);
        let attention = Attention::told(TellEvent::Failed, format!("not backed up {key}"), subject, text);
        lines.push(attention.about(&entry.policy, client));
    }
}

/// What to do about a source that its client does not let be read: whether it is gone, nobody knows.
fn to_allow(client: &str) -> String {
    format!("name it under `paths` in client.toml of {client} and start the client again, or take it out of the policy")
}

/// Sources of jobs that were never backed up.
fn never(facts: &Facts, lines: &mut Vec<Attention>) {
    for row in facts.sources.iter().filter(|row| row.is_never() && row.run.is_none()) {
        let Some(job) = &row.job else { continue };
        let source = path_text(&row.source);
        let what = facts.queued.named(job);
        let command = facts.queued.command(job);
        let of = if facts.queued.is_of_clients(job) { format!(" of client {}", row.client) } else { String::new() };
        // Whoever has just written a job or a policy knows that.
        lines.push(Attention::shown(
            "never",
            format!("{source}{of} was never backed up, and {what} names it: {command}"),
        ));
    }
}

/// What drives have told, as `drives report` says it.
fn of_drive(concern: &Concern) -> Attention {
    let (event, key, subject) = match concern {
        Concern::Alert { drive, volser, alert } => (
            TellEvent::Drive,
            format!("drive {drive} alert {} {volser}", alert.flag),
            format!("drive {drive} raised TapeAlert {} with volume {volser}", alert.flag),
        ),
        Concern::Cleaning { drive } => {
            (TellEvent::Drive, format!("drive {drive} cleaning"), format!("drive {drive} wants to be cleaned"))
        }
        Concern::Failed { drive, volser, .. } => (
            TellEvent::Drive,
            format!("drive {drive} failed {volser}"),
            format!("reads or writes failed in drive {drive} with volume {volser}"),
        ),
        Concern::VolumeWears { volser, .. } => {
            (TellEvent::Volume, format!("volume {volser} wears"), format!("errors rise on volume {volser}"))
        }
        Concern::DriveWears { drive, .. } => {
            (TellEvent::Drive, format!("drive {drive} wears"), format!("errors rise in drive {drive}"))
        }
    };
    let text = format!("{concern}. To look further: `capstan drives report`");
    Attention::told(event, key, subject, text)
}

fn suspect(facts: &Facts, lines: &mut Vec<Attention>) {
    for volume in &facts.suspect {
        let volser = &volume.volser;
        let own = || facts.damage.iter().filter(|damage| damage.volser == *volser);
        let blocks: u64 = own().map(|damage| damage.blocks.blocks).sum();
        let told = |text| {
            let subject = format!("volume {volser} is suspect");
            Attention::told(TellEvent::Volume, format!("volume {volser}"), subject, text)
        };
        if blocks > 0 && is_mended(facts) {
            lines.push(told(format!(
                "volume {volser} has {} that cannot be read; other volumes have everything that was on them. Run \
                 `capstan library export {volser}`, take it out of the mail slot, run `capstan forget {volser}`, then \
                 `capstan repair`, which copies what else it held",
                units::counted(blocks, "block")
            )));
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
        lines.push(told(format!(
            "volume {volser} is suspect{why}. `capstan verify {volser}` says what can be read, and clears the volume \
             if everything can"
        )));
    }
}

#[cfg(test)]
mod tests {
    use capstan_catalog::{Job, JobEnd, JobOutcome};

    use super::*;

    /// While a message told of a copied client, its address changed, and it was told as something new.
    #[test]
    fn a_member_that_runs_twice_is_told_under_one_key() {
        let text =
            |from: &str| format!("client tern runs in two places under one identity: at 192.0.2.1 and at {from}");
        let mut found = Vec::new();
        mistaken(&[text("192.0.2.7"), text("2001:db8::7")], &mut found);
        for attention in &found {
            let finding = attention.finding.as_ref().expect("it is told");
            assert_eq!(finding.event, TellEvent::Trouble);
            assert_eq!(finding.key, "identity client tern runs in two places under one identity");
        }
        assert!(found.len() == 2 && found[1].text.ends_with("2001:db8::7"));
    }

    /// A nightly run that could not read some files was told to nobody, whatever the rules said.
    #[test]
    fn a_run_with_problems_is_told_until_one_has_none() {
        let last = LastRun {
            policy: "web".to_owned(),
            client: "tern".to_owned(),
            ended_ns: 7,
            outcome: RunOutcome::Warned,
            message: "3 paths could not be read in full; 1.0 GB".to_owned(),
            job: Some(12),
        };
        let line = of_problems(&last, &last_run_of("policy web", Some("tern"), false));
        let said = "ended with problems: 3 paths could not be read in full; 1.0 GB (`capstan history 12`)";
        assert!(line.text.starts_with("the last backup by policy web for tern, on "), "{}", line.text);
        assert!(line.text.ends_with(said), "{}", line.text);
        assert_eq!(last_run_of("policy offsite", Some("tern"), true), "the last run of policy offsite");
        let found = line.finding.expect("it is told");
        assert_eq!((found.event, found.key.as_str(), found.lasts), (TellEvent::Problems, "problems web tern", true));
        assert_eq!((found.policy.as_str(), found.client.as_str(), found.run), ("web", "tern", Some(12)));
    }

    /// A policy that somebody ran by hand, and that failed, was told to nobody: it was taken for a run of the queue.
    #[test]
    fn what_failed_is_told_unless_the_queue_tells_it() {
        let failed = |of_queue| {
            let (files, bytes, stored, exit_code, message) = (0, 0, 0, 1, "no drive\nmore".to_owned());
            let end = JobEnd { ended_ns: 7, outcome: JobOutcome::Failed, exit_code, files, bytes, stored, message };
            let (kind, subject, process) = ("backup".to_owned(), "policy web".to_owned(), String::new());
            let run = Job { id: 12, kind, subject, process, started_ns: 5, run: of_queue, end: Some(end) };
            of_failed(&FailedJob { job: "web".to_owned(), run }, "policy web")
        };
        assert_eq!(failed(Some(3)).finding, None);
        let by_hand = failed(None);
        assert!(by_hand.text.ends_with("failed: no drive (`capstan history 12`)"), "{}", by_hand.text);
        let found = by_hand.finding.expect("it is told");
        assert_eq!((found.event, found.key.as_str(), found.policy.as_str()), (TellEvent::Failed, "history 12", "web"));
        assert_eq!((found.run, found.since_ns, found.lasts), (Some(12), Some(7), false));
    }
}
