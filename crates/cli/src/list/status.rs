//! `status`: what is protected, what runs, and what a person should look at; for people, as JSON, and as metrics.

mod attention;
mod failed;
mod findings;
mod last_run;
mod members;
mod metrics;
mod owed;
mod page;
mod queue;
mod scratch;
mod telling;

pub(crate) use findings::findings;

use std::io::{Write, stdout};
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;

use capstan_catalog::{
    ClockDoubt, ClockReading, Counts, DamageRecord as DamageOnRecord, Object, Timeline, Volume, VolumeState,
};
use capstan_director::{
    Concern, ExpiryPlan, FailedJob, HistoryEntry, KeepReduction, LostParts, Protection, Site, SourceRow, UnaskedExpiry,
    process_number,
};
use capstan_format::{ObjectId, Volser};
use capstan_mover::REFUSED_BY_CLIENT;
use capstan_server::cell::users::words::{StatusAnswer, StatusQuery};

use self::attention::Attention;
use crate::args;
use crate::door::{Door, as_user_of};
use crate::failure::director;
use crate::failure::{DONE_WITH_PROBLEMS, Failure};
use crate::globals::Globals;
use crate::json::{DamageRow, StatusRow, StatusSource, run_row};
use crate::output::print_json;
use crate::secrets::site;
use crate::table::path_text;
use crate::units;
use crate::wording::short;

/// What `status` is made of.
struct Facts {
    state: String,
    read_only: bool,
    protection: Protection,
    volumes: Vec<Volume>,
    damage: Vec<DamageOnRecord>,
    lost: LostParts,
    timeline: Timeline,
    reading: ClockReading,
    expiry: ExpiryPlan,
    /// Policies of which the server has nothing expire.
    held: Vec<KeepReduction>,
    /// Volumes that are suspect, or have damage on record.
    suspect: Vec<Volume>,
    drive_concerns: Vec<Concern>,
    /// Volumes that were not verified for too long, and when they were.
    unverified: Vec<(Volser, Option<i64>)>,
    library_problem: Option<String>,
    /// Folders of libraries that cannot be used, and why.
    folders_away: Vec<String>,
    running: Vec<HistoryEntry>,
    sources: Vec<SourceRow>,
    failed: Vec<FailedJob>,
    /// Runs of each job of the settings, the latest first.
    jobs: Vec<(String, Vec<HistoryEntry>)>,
    not_backed_up: Vec<failed::NotBackedUp>,
    with_problems: Vec<last_run::LastRun>,
    queued: queue::Queued,
    /// Copies that policies have yet to make.
    owed: owed::Owed,
    running_out: scratch::RunningOut,
    members: Vec<members::Member>,
    /// Members that are taken for others, and what to do.
    mistaken: Vec<String>,
    /// How people are told.
    ways: telling::Ways,
    /// Whether a server has backups expire by itself.
    expires: bool,
    indexes_missing: Vec<ObjectId>,
    keys_missing: Option<String>,
    volumes_without_key: Vec<Volser>,
    /// Volumes whose keys are in no export, and those of them that have been so for too long.
    not_exported: (Vec<Volser>, usize),
    verify_days: u32,
    export_days: u32,
    max_age_ns: Option<i64>,
}

impl Facts {
    fn of(site: &Site, max_age_ns: Option<i64>) -> Result<Self, Failure> {
        let protection = site.protection()?;
        let volumes = site.catalog().volumes().map_err(director)?;
        let damage = site.catalog().damage().map_err(director)?;
        let damaged = |volume: &Volume| damage.iter().any(|damage| damage.volser == volume.volser);
        let is_suspect = |volume: &&Volume| volume.state == VolumeState::Suspect || damaged(volume);
        let suspect = volumes.iter().filter(is_suspect).cloned().collect();
        let timeline = site.timeline()?;
        let reading = timeline.reading();
        let running = site.running()?;
        let sources = site.sources(&protection, &running)?;
        let failed = site.failed_jobs()?;
        let mut queued = queue::Queued::of(site)?;
        failed::leave_out_run_since(site, &mut queued)?;
        let not_backed_up = failed::sources(site, &sources, &failed, &queued)?;
        let jobs = failed::runs_of_jobs(site)?;
        let with_problems = failed::with_problems(site.client(), &queued, &jobs);
        let indexes_missing = site.catalog().indexes_missing().map_err(director)?;
        let attention = &site.config().attention;
        let hours = i64::from(attention.backup_hours);
        let by_settings = (hours > 0).then(|| hours.saturating_mul(3_600_000_000_000));
        let UnaskedExpiry { plan: expiry, held, .. } = site.plan_unasked_expiry()?;
        Ok(Self {
            state: site.dir().display().to_string(),
            read_only: site.is_read_only(),
            unverified: verified_too_long_ago(site, &volumes, reading.now_ns)?,
            lost: site.lost_parts()?,
            running_out: scratch::RunningOut::of(site, &volumes, &expiry),
            expiry,
            held,
            members: members::members(site)?,
            mistaken: members::mistaken(site)?,
            ways: telling::Ways::of(site, &queued, &sources)?,
            expires: site.config().server.expires().is_some(),
            library_problem: site.library_problem(),
            folders_away: site.folders_away(),
            queued,
            owed: owed::owed(site)?,
            indexes_missing,
            keys_missing: site.key_store_missing().map(|path| path.display().to_string()),
            volumes_without_key: site.volumes_without_key()?,
            not_exported: not_exported(site, reading.now_ns)?,
            verify_days: attention.verify_days,
            export_days: attention.export_days,
            max_age_ns: max_age_ns.or(by_settings),
            protection,
            volumes,
            damage,
            suspect,
            drive_concerns: site.drive_concerns()?,
            timeline,
            reading,
            running,
            sources,
            with_problems,
            jobs,
            not_backed_up,
            failed,
        })
    }

    fn sum(&self, count: fn(Counts) -> u64) -> u64 {
        let counts = self.protection.protected.iter().map(|object| object.counts.unwrap_or_default());
        counts.map(count).fold(0, u64::saturating_add)
    }

    fn written(&self) -> u64 {
        self.volumes.iter().map(|volume| volume.written).sum()
    }

    /// Objects of which something can be read in no copy any more.
    fn lost_in_part(&self) -> impl Iterator<Item = &Object> {
        let all = self.protection.protected.iter().chain(&self.protection.unprotected);
        all.filter(|object| self.lost.bytes(object.id) > 0)
    }

    /// Whether a time between a backup and now says something.
    fn age_is_certain(&self, object: &Object) -> bool {
        self.reading.doubt.is_none() && self.timeline.begun(object.id).is_some_and(|begun| begun.doubt.is_none())
    }

    /// Whether the last backup is older than is wanted, or may be: one whose own clock was wrong is as old as it can
    /// be. One that waits for its first time is no older than is wanted: that has a line of its own.
    fn is_overdue(&self, row: &SourceRow) -> bool {
        if row.is_never() && row.job.is_some() {
            return false;
        }
        let doubted = |last: &Object| self.timeline.begun(last.id).filter(|begun| begun.doubt.is_some());
        let now_ns = latest_now_ns(&self.reading);
        let is_ahead = |doubt| doubt == Some(ClockDoubt::Ahead);
        match row.last.as_ref().and_then(doubted) {
            // If the clock is ahead, it was so then, too: what lies between is as it says.
            Some(begun) if is_ahead(begun.doubt) && is_ahead(self.reading.doubt) => {
                row.is_overdue(now_ns, self.max_age_ns)
            }
            Some(begun) => {
                let oldest_ns = now_ns.saturating_sub(begun.from_ns);
                row.is_awaited() && self.max_age_ns.is_some_and(|max_ns| oldest_ns > max_ns)
            }
            None => row.is_overdue(now_ns, self.max_age_ns),
        }
    }

    fn age_text(&self, object: &Object) -> String {
        let age_ns = self.reading.now_ns.saturating_sub(object.ended_ns).max(0);
        match self.age_is_certain(object) {
            true => format!("{} ago", units::age(age_ns)),
            false => "in doubt".to_owned(),
        }
    }

    /// The last run of a source on this machine, if it did not back the source up.
    fn failed_run(&self, row: &SourceRow) -> Option<i64> {
        let is_own =
            |entry: &&failed::NotBackedUp| entry.client == row.client && entry.source == path_text(&row.source);
        let of_source = self.not_backed_up.iter().find(is_own).map(|entry| entry.run.job.id);
        // A policy may have failed at another client.
        let is_its =
            |entry: &&FailedJob| row.job.as_ref() == Some(&entry.job) && !self.queued.is_of_clients(&entry.job);
        let of_job = || self.failed.iter().find(is_its).map(|entry| entry.run.id);
        of_source.or_else(of_job)
    }

    /// Whether the last run of a source says that its client's own settings do not let it be read.
    fn is_refused(&self, row: &SourceRow) -> bool {
        let source = path_text(&row.source);
        let policies = [row.job.as_ref(), row.last.as_ref().map(|last| &last.policy)];
        let is_its = |last: &&last_run::LastRun| last.client == row.client && policies.contains(&Some(&last.policy));
        let mut failed = self.queued.failed_last.iter().filter(is_its).map(|last| &last.message);
        let mut went_on =
            self.not_backed_up.iter().filter(|entry| entry.client == row.client && entry.source == source);
        went_on.any(failed::NotBackedUp::is_refused)
            || failed.any(|message| message.contains(REFUSED_BY_CLIENT) && message.contains(&source))
    }

    /// What to do for a source, if there is anything.
    fn next_step(&self, row: &SourceRow) -> Option<String> {
        if let Some(run) = row.run {
            return Some(format!("runs (run {run})"));
        }
        if row.is_gone {
            return Some("gone: nothing is waited for".to_owned());
        }
        if row.unprotected.is_some() {
            return Some(self.queued.full_again(row.job.as_deref().unwrap_or_default()));
        }
        if row.open.is_some() {
            return Some("interrupted: run it again".to_owned());
        }
        if let (true, Some(job)) = (row.is_never(), &row.job) {
            return Some(self.queued.command(job));
        }
        if self.is_overdue(row) {
            return Some("overdue: back it up".to_owned());
        }
        let last = row.last.as_ref()?;
        if row.copies.0 + row.copies_without_key < row.copies.1 {
            return Some("`capstan repair` makes the copies".to_owned());
        }
        if row.copies_without_key > 0 && self.volumes_without_key.is_empty() {
            return Some("the key of a copy is destroyed: erase its volume, then `capstan repair`".to_owned());
        }
        if row.copies_without_key > 0 {
            return Some("`capstan keys import FILE`: a copy has no key".to_owned());
        }
        if let Some(run) = self.failed_run(row) {
            return Some(format!("its last run failed: `capstan history {run}`"));
        }
        if self.queued.has_failed(&last.policy, &row.client) {
            return Some("its last run failed: `capstan queue done`".to_owned());
        }
        let problems = last.counts.unwrap_or_default().problems;
        (problems > 0).then(|| format!("`capstan ls -R {}` flags what was not read", short(last)))
    }
}

/// The site that a server looks at. It runs for long: its own knows the jobs and policies of when it was opened. And
/// nobody waits for its catalog meanwhile.
fn of_server(site: &Site) -> Result<Site, Failure> {
    Ok(site.with_own_catalog()?.beside(Arc::new(|_| {}))?)
}

/// What a server tells those who watch it.
pub(crate) fn metrics_of(site: &Site) -> Result<String, Failure> {
    let site = of_server(site)?;
    let facts = Facts::of(&site, None)?;
    Ok(metrics::text(&facts, attention::all(&facts).len()))
}

/// What a server says of its cell.
pub(crate) fn status_of(site: &Site, asked: &StatusQuery) -> Result<StatusAnswer, Failure> {
    let site = of_server(site)?;
    let facts = Facts::of(&site, asked.max_age_ns)?;
    let found = attention::all(&facts);
    let mut page = Vec::new();
    page::text(&facts, &found, asked.all, &mut page)?;
    let status = serde_json::to_value(json(&facts, &found)).map_err(|error| Failure::because(&error))?;
    Ok(StatusAnswer { attention: !found.is_empty(), text: String::from_utf8_lossy(&page).into_owned(), status })
}

fn of_cell(cli: &Globals, server: &Door, asked: &StatusQuery) -> Result<ExitCode, Failure> {
    let answer = server.status(asked)?;
    match cli.json {
        true => drop(print_json(&answer.status)?),
        // Whatever the server sends, a terminal takes it for text.
        false => answer.text.lines().for_each(|line| println!("{}", path_text(line.as_bytes()))),
    }
    Ok(if answer.attention { ExitCode::from(DONE_WITH_PROBLEMS) } else { ExitCode::SUCCESS })
}

pub(crate) fn status(cli: &Globals, args: &args::Status) -> Result<ExitCode, Failure> {
    let max_age_ns = args.max_age.as_deref().map(units::parse_age).transpose().map_err(Failure::Usage)?;
    if let Some(server) = as_user_of(cli)? {
        if args.metrics {
            return Err(Failure::Usage("--metrics is for the server's machine".to_owned()));
        }
        return of_cell(cli, &server, &StatusQuery { max_age_ns, all: args.all });
    }
    let site = site(cli)?;
    let facts = Facts::of(&site, max_age_ns)?;
    let found = attention::all(&facts);
    if args.metrics {
        let text = metrics::text(&facts, found.len());
        match &args.output {
            Some(path) => write_whole(path, &text)?,
            None => stdout().write_all(text.as_bytes()).map_err(Failure::output)?,
        }
        // A collector that reads them needs no exit code, and its timer would fail by it.
        return Ok(ExitCode::SUCCESS);
    }
    if cli.json {
        print_json(&json(&facts, &found))?;
    } else {
        page::text(&facts, &found, args.all, &mut stdout().lock())?;
    }
    // A monitor reads the exit code: 3 where a person should look.
    Ok(if found.is_empty() { ExitCode::SUCCESS } else { ExitCode::from(DONE_WITH_PROBLEMS) })
}

/// A reader of the file sees the old text or the new one, and never a part.
fn write_whole(path: &Path, text: &str) -> Result<(), Failure> {
    let mut staged = path.as_os_str().to_owned();
    staged.push(".new");
    let written = std::fs::write(&staged, text).and_then(|()| std::fs::rename(&staged, path));
    written.map_err(|error| Failure::Other(format!("cannot write {}: {error}", path.display())))
}

fn json(facts: &Facts, found: &[Attention]) -> StatusRow {
    let Facts { protection, .. } = facts;
    let running: Vec<_> = facts.running.iter().flat_map(|row| &row.objects).collect();
    let (written, interrupted): (Vec<&Object>, Vec<&Object>) =
        protection.open.iter().partition(|object| running.contains(&&object.id));
    let sources = facts.sources.iter().map(|row| StatusSource {
        source: row.source.as_slice().into(),
        client: row.client.clone(),
        object: row.last.as_ref().map(|last| last.id.to_string()),
        ended_ns: row.last.as_ref().map(|last| last.ended_ns),
        age_ns: row.last.as_ref().filter(|last| facts.age_is_certain(last)).and(row.age_ns(facts.reading.now_ns)),
        problems: row.last.as_ref().map(|last| last.counts.unwrap_or_default().problems),
        copies_whole: row.copies.0,
        copies_promised: row.copies.1,
        copies_without_key: row.copies_without_key,
        open: row.open.as_ref().map(|open| open.id.to_string()),
        run: row.run,
        overdue: facts.is_overdue(row),
        gone: row.is_gone,
        next: facts.next_step(row),
    });
    StatusRow {
        state: facts.state.clone(),
        objects_complete: protection.protected.len() + protection.unprotected.len(),
        objects_protected: protection.protected.len(),
        objects_unprotected: protection.unprotected.iter().map(|object| object.id.to_string()).collect(),
        objects_lacking_a_copy: protection.lacking.len(),
        objects_interrupted: interrupted.len(),
        copies_owed: facts.owed.rows.clone(),
        objects_running: written.len(),
        files: facts.sum(|counts| counts.files),
        bytes: facts.sum(|counts| counts.bytes),
        volumes: facts.volumes.len(),
        written_bytes: facts.written(),
        suspect: facts.suspect.iter().map(|volume| volume.volser.to_string()).collect(),
        latest_ended_ns: protection.protected.first().map(|object| object.ended_ns),
        clock: (&facts.reading).into(),
        objects_kept_as_bases: facts.expiry.kept_as_bases().count(),
        objects_lost_in_part: facts.lost_in_part().map(|object| object.id.to_string()).collect(),
        damage: facts.damage.iter().map(DamageRow::from).collect(),
        library_problem: facts.library_problem.clone(),
        server_runs: facts.queued.is_served,
        policies: facts.queued.policies(),
        runs_waiting: facts.queued.waiting,
        runs_at_work: facts.queued.working,
        indexes_missing: facts.indexes_missing.iter().map(ToString::to_string).collect(),
        key_store_missing: facts.keys_missing.is_some(),
        volumes_without_key: facts.volumes_without_key.iter().map(ToString::to_string).collect(),
        volumes_not_exported: facts.not_exported.0.iter().map(ToString::to_string).collect(),
        sources: sources.collect(),
        running: facts.running.iter().map(run_row).collect(),
        attention: !found.is_empty(),
        attention_lines: found.iter().map(|attention| attention.text.clone()).collect(),
    }
}

/// The latest that it may be now. A clock that is ahead may be right: where all backups failed for weeks, what is
/// overdue stays so. One that is behind is not, and it is no earlier than the newest record says.
fn latest_now_ns(reading: &ClockReading) -> i64 {
    match reading.doubt {
        Some(ClockDoubt::Behind) => reading.newest_ns.unwrap_or(reading.now_ns),
        Some(ClockDoubt::Ahead) | None => reading.now_ns,
    }
}

fn running_text(facts: &Facts, row: &HistoryEntry) -> String {
    let job = &row.job;
    let since = facts.reading.now_ns.saturating_sub(job.started_ns).max(0);
    let process = process_number(&job.process).map(|number| format!(", process {number}")).unwrap_or_default();
    format!("{} of {}, for {} (run {}{process})", job.kind, job.subject, units::age(since), job.id)
}

/// Volumes whose keys are in no export, and how many have been so for longer than the settings say.
fn not_exported(site: &Site, now_ns: i64) -> Result<(Vec<Volser>, usize), Failure> {
    let days = i64::from(site.config().attention.export_days);
    let oldest_ns = now_ns.saturating_sub(days.saturating_mul(86_400_000_000_000));
    let volumes = site.volumes_not_exported()?;
    let is_late = |labelled_ns: Option<i64>| days > 0 && labelled_ns.is_some_and(|at_ns| at_ns < oldest_ns);
    let late = volumes.iter().filter(|(_, labelled_ns)| is_late(*labelled_ns)).count();
    Ok((volumes.into_iter().map(|(volser, _)| volser).collect(), late))
}

/// Volumes with data that were not verified for as long as the settings say, and when they were last.
fn verified_too_long_ago(site: &Site, volumes: &[Volume], now_ns: i64) -> Result<Vec<(Volser, Option<i64>)>, Failure> {
    let days = i64::from(site.config().attention.verify_days);
    let mut late = Vec::new();
    if days == 0 {
        return Ok(late);
    }
    let oldest_ns = now_ns.saturating_sub(days.saturating_mul(86_400_000_000_000));
    for volume in volumes.iter().filter(|volume| volume.pool.is_some() && volume.checkpoint_lbn > 0) {
        let verified = site.catalog().volume_verified(&volume.volser).map_err(director)?.map(|verified| verified.at_ns);
        if verified.or(volume.labelled_ns).is_some_and(|at_ns| at_ns < oldest_ns) {
            late.push((volume.volser.clone(), verified));
        }
    }
    Ok(late)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Nothing was overdue while the clock was in doubt, and it is in doubt when all backups have failed for weeks.
    #[test]
    fn what_is_overdue_stays_so_while_the_clock_is_in_doubt() {
        let reading = |now_ns, doubt| ClockReading { now_ns, newest_ns: Some(5), doubt };
        assert_eq!(latest_now_ns(&reading(7, None)), 7);
        assert_eq!(latest_now_ns(&reading(9, Some(ClockDoubt::Ahead))), 9);
        assert_eq!(latest_now_ns(&reading(2, Some(ClockDoubt::Behind))), 5);
    }
}
