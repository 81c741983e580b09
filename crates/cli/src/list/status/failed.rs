//! Last runs that did not do all: sources that they did not back up, and runs that ended with problems.

use std::collections::{HashMap, HashSet};

use capstan_catalog::{JobOutcome, RunOutcome};
use capstan_director::{FailedJob, HistoryEntry, Site, SourceRow, subject_of_job};
use capstan_format::ObjectId;
use capstan_mover::REFUSED_BY_CLIENT;

use super::last_run::LastRun;
use super::queue::Queued;
use crate::failure::director;
use crate::failure::{Failure, STOPPED};
use crate::list::history::names;
use crate::progress::missing_text;
use crate::table::path_text;

/// Runs among which the last one of a source is looked for.
const RUNS_LOOKED_AT: u32 = 1_000;

/// A source that its last run did not back up.
pub(super) struct NotBackedUp {
    /// The source, as it is printed, and its machine.
    pub(super) source: String,
    pub(super) client: String,
    /// Whether that is this one.
    pub(super) is_here: bool,
    /// The policy or job of its last backup.
    pub(super) policy: String,
    /// That run.
    pub(super) run: HistoryEntry,
    /// Why it went on without the source, if it said that.
    pub(super) reason: Option<String>,
}

impl NotBackedUp {
    /// Whether the client's own settings keep the source from being read, so that nobody knows whether it is there.
    pub(super) fn is_refused(&self) -> bool {
        self.reason.as_deref().is_some_and(|reason| reason.contains(REFUSED_BY_CLIENT))
    }
}

/// The runs of each job of the settings among the last ones, the latest first.
pub(super) fn runs_of_jobs(site: &Site) -> Result<Vec<(String, Vec<HistoryEntry>)>, Failure> {
    if site.config().jobs.is_empty() {
        return Ok(Vec::new());
    }
    let mut runs = site.history(RUNS_LOOKED_AT)?;
    runs.retain(|run| run.job.kind == "backup");
    let of = |name: &String| {
        let subject = subject_of_job(name);
        let own = runs.iter().filter(|run| names(&run.job.subject, &subject)).cloned();
        (name.clone(), own.collect())
    };
    Ok(site.config().jobs.keys().map(of).collect())
}

/// Takes out the failed runs of policies of this machine that somebody has run by hand since: the history knows of
/// these alone.
pub(super) fn leave_out_run_since(site: &Site, queued: &mut Queued) -> Result<(), Failure> {
    let is_of_here = |last: &LastRun| last.job.is_some() && last.client == site.client();
    if !queued.failed_last.iter().any(is_of_here) {
        return Ok(());
    }
    let runs = site.history(RUNS_LOOKED_AT)?;
    queued.failed_last.retain(|last| {
        let subject = subject_of_job(&last.policy);
        let is_later = |run: &HistoryEntry| Some(run.job.id) > last.job && names(&run.job.subject, &subject);
        !is_of_here(last) || !runs.iter().any(|run| run.job.kind == "backup" && is_later(run))
    });
    Ok(())
}

/// The last runs that went through, and had problems: those of the queue, and those of jobs and policies that somebody
/// has run by hand since. A run that failed later does not make up for them.
pub(super) fn with_problems(own: &str, queued: &Queued, jobs: &[(String, Vec<HistoryEntry>)]) -> Vec<LastRun> {
    let mut last = queued.through_last.clone();
    for (name, runs) in jobs {
        let by_hand = runs.iter().filter(|run| run.job.run.is_none()).find_map(|run| last_by_hand(own, name, run));
        let Some(by_hand) = by_hand else { continue };
        match last.iter_mut().find(|last| last.policy == *name && last.client == own) {
            Some(of_queue) if of_queue.job < by_hand.job => *of_queue = by_hand,
            Some(_) => {}
            None => last.push(by_hand),
        }
    }
    last.retain(|last| last.outcome == RunOutcome::Warned);
    last
}

/// A run of a job on this machine, if it went through.
fn last_by_hand(own: &str, name: &str, run: &HistoryEntry) -> Option<LastRun> {
    let end = run.job.end.as_ref()?;
    let outcome = match end.outcome {
        JobOutcome::Succeeded => RunOutcome::Succeeded,
        JobOutcome::Warned => RunOutcome::Warned,
        JobOutcome::Running | JobOutcome::Failed => return None,
    };
    let (policy, client, message) = (name.to_owned(), own.to_owned(), end.message.clone());
    Some(LastRun { policy, client, ended_ns: end.ended_ns, outcome, message, job: Some(run.job.id) })
}

/// Sources that were backed up before and whose last run ended without an object of them. What somebody stopped has not
/// failed; a job that failed as a whole is named by its name; and a run that is tried again has not ended.
pub(super) fn sources(
    site: &Site,
    rows: &[SourceRow],
    failed: &[FailedJob],
    queued: &Queued,
) -> Result<Vec<NotBackedUp>, Failure> {
    let runs = site.history(RUNS_LOOKED_AT)?;
    // Several clients may have a source of the same name.
    let peers = site.catalog().peers().map_err(director)?;
    let clients: HashSet<&str> =
        peers.iter().filter(|peer| peer.kind == "client").map(|peer| peer.name.as_str()).collect();
    let has_failed = |run: &HistoryEntry| {
        failed.iter().any(|failed| failed.run.id == run.job.id)
            || queued.failed_last.iter().any(|last| last.job == Some(run.job.id))
    };
    let mut of_clients: HashMap<&str, Vec<(&str, &HistoryEntry)>> = HashMap::new();
    let is_unfinished = |run: &HistoryEntry| run.job.run.is_some_and(|number| queued.unfinished.contains(&number));
    let ended = runs.iter().filter(|run| run.job.kind == "backup" && run.job.end.is_some() && !is_unfinished(run));
    for run in ended {
        let subject = run.job.subject.as_str();
        let of_client = subject.rsplit_once(" of ").filter(|(_, client)| clients.contains(client));
        let (subject, client) = of_client.unwrap_or((subject, site.client()));
        of_clients.entry(client).or_default().push((subject, run));
    }
    // The machine and the source of each object that a run wrote.
    let mut source_of: HashMap<ObjectId, Option<(String, Vec<u8>)>> = HashMap::new();
    let mut found = Vec::new();
    // Of a client that no policy names any more nothing is expected.
    let is_expected = |row: &&SourceRow| row.client == site.client() || queued.clients.contains(&row.client);
    let rows = rows.iter().filter(|row| !row.is_gone && !row.is_never() && row.run.is_none());
    for row in rows.filter(is_expected) {
        let source = path_text(&row.source);
        let own = of_clients.get(row.client.as_str()).map_or(&[][..], Vec::as_slice);
        let Some((_, run)) = own.iter().find(|(subject, _)| names(subject, &source)) else { continue };
        let stopped = run.job.end.as_ref().is_none_or(|end| matches!(end.exit_code, 0 | STOPPED));
        if stopped || has_failed(run) {
            continue;
        }
        // What an earlier attempt wrote is not written again.
        let objects = match run.job.run {
            Some(number) => site.catalog().objects_of_run(number).map_err(director)?,
            None => run.objects.clone(),
        };
        let mut wrote = false;
        for object in objects {
            let of = match source_of.get(&object) {
                Some(known) => known,
                None => {
                    let record = site.catalog().object(object).map_err(director)?;
                    source_of.entry(object).or_insert(record.map(|record| (record.client, record.source)))
                }
            };
            wrote |= of.as_ref().is_some_and(|(client, source)| *client == row.client && *source == row.source);
        }
        if !wrote {
            let is_here = row.client == site.client();
            let policy = row.last.as_ref().map_or_else(String::new, |last| last.policy.clone());
            let log = site.catalog().log_of(run.job.id).map_err(director)?;
            let reason = log.lines().find_map(|line| line.strip_prefix(&missing_text(&row.source, "")));
            let (client, run, reason) = (row.client.clone(), (*run).clone(), reason.map(str::to_owned));
            found.push(NotBackedUp { source, client, is_here, policy, run, reason });
        }
    }
    Ok(found)
}
