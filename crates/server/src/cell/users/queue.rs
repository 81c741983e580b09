//! The queue and the schedule, as users see and change them.

use std::collections::HashMap;

use capstan_catalog::{
    Cancelled, DoneRun, Entered, HoldChange, MAIN_LIBRARY, PendingRun, QueuedRun, RunOutcome, RunProgress,
};
use capstan_director::{DirectorError, RunAsked, RunLevel, RunStart, Site};
use jiff::{SignedDuration, Timestamp};

use super::acts::{CellActs, known};
use super::rights::CellAct;
use super::words::{
    ChangeRuns, ComingRunRow, EnterRuns, QueueAnswer, QueueChangeRow, QueueRow, RerunRuns, RunChange, RunNotChanged,
    RunProgressRow, RunsChanged, ScheduleAnswer, ScheduleQuery, Word,
};
use crate::cell::CellError;
use crate::decide::{LimitOf, PeerAway, RunDecision, WaitsFor, decide};
use crate::due::forecast;
use crate::look::{Look, look};
use crate::restore_run::restored_in_words;

/// Days ahead that the schedule is shown for, and runs, if nobody says how many.
const DAYS_USUAL: u16 = 7;
const RUNS_USUAL: u32 = 100;
/// Days ahead at most.
const DAYS_MAX: u16 = 3_660;
/// Ended runs that are listed if nobody says how many.
const DONE_USUAL: u32 = 20;

impl CellActs {
    /// What is in the queue: what runs, and what waits and why.
    ///
    /// # Errors
    /// [`CellError::Denied`]; otherwise the catalog cannot be read.
    pub fn queue(&self) -> Result<QueueAnswer, CellError> {
        self.permitted(CellAct::ListQueue)?;
        let look = look(&self.site)?;
        let is_served = self.site.is_served()?;
        let progress = if is_served { self.site.catalog().run_progress()? } else { HashMap::new() };
        let runs = at_work(&look, is_served, &progress).into_iter().chain(waiting(&look, is_served)).collect();
        Ok(QueueAnswer { is_served, runs })
    }

    /// The runs that have ended, the latest first.
    ///
    /// # Errors
    /// [`CellError::Denied`]; otherwise the catalog cannot be read.
    pub fn done_runs(&self, last: Option<u32>) -> Result<QueueAnswer, CellError> {
        self.permitted(CellAct::ListQueue)?;
        let done = self.site.catalog().done_runs(last.unwrap_or(DONE_USUAL))?;
        let row = |done: DoneRun| {
            let DoneRun { run, started_ns, ended_ns, outcome, message, job } = done;
            let state = run_outcome_word(outcome).into();
            QueueRow { state, started_ns, ended_ns: Some(ended_ns), message, history: job, ..row(&run) }
        };
        Ok(QueueAnswer { is_served: self.site.is_served()?, runs: done.into_iter().map(row).collect() })
    }

    /// The runs that come.
    ///
    /// # Errors
    /// [`CellError::Denied`]; [`DirectorError::UnknownPolicy`]; otherwise the catalog cannot be read.
    pub fn schedule(&self, asked: &ScheduleQuery) -> Result<ScheduleAnswer, CellError> {
        self.permitted(CellAct::ListQueue)?;
        let mut look = look(&self.site)?;
        let policies: Vec<&str> = asked.policies.as_deref().unwrap_or_default().split_whitespace().collect();
        let (mut unscheduled, mut switched_off) = (Vec::new(), Vec::new());
        for name in &policies {
            match look.policy(name) {
                None => return Err(DirectorError::UnknownPolicy { name: (*name).to_owned() }.into()),
                Some(policy) if policy.config.schedule.is_none() => unscheduled.push(policy.name.clone()),
                Some(policy) if policy.config.is_switched_off() => switched_off.push(policy.name.clone()),
                Some(_) => {}
            }
        }
        look.scheduled.retain(|one| policies.is_empty() || policies.contains(&one.policy.as_str()));
        let days = asked.days.unwrap_or(DAYS_USUAL).min(DAYS_MAX);
        let ahead = SignedDuration::from_hours(24 * i64::from(days));
        let now = look.situation.now;
        let until = now.checked_add(ahead).unwrap_or(Timestamp::MAX);
        let most = asked.most.unwrap_or(RUNS_USUAL) as usize;
        let row = |run: crate::ComingRun| ComingRunRow {
            starts_ns: ns(look.may_begin(&run.policy, run.starts)),
            due_ns: ns(run.due),
            policy: run.policy,
            client: run.client,
        };
        let mut runs: Vec<_> = forecast(&look.scheduled, now, until, most).into_iter().map(row).collect();
        runs.sort_by_key(|run| run.starts_ns);
        Ok(ScheduleAnswer { runs, unscheduled, switched_off })
    }

    /// Enters runs of policies: of the client that is named, or of all.
    ///
    /// # Errors
    /// [`CellError::Denied`]. [`DirectorError::UnknownPolicy`] or [`DirectorError::PolicyFault`] if one of the policies
    /// is not there or cannot be run: then nothing is entered.
    pub fn enter_runs(&self, asked: &EnterRuns) -> Result<RunsChanged, CellError> {
        let how = RunAsked { level: RunLevel::of(asked.full), start: RunStart::of(asked.now) };
        let wanted = asked.policies.iter().map(|policy| (policy.clone(), asked.client.clone(), how)).collect();
        self.enter(wanted)
    }

    /// Enters runs of the policies and clients of runs that have ended.
    ///
    /// # Errors
    /// As [`CellActs::enter_runs`]; [`CellError::RunNotEnded`] if one of the runs has not ended, or there is none;
    /// [`CellError::RunIsRestore`] if one was no backup.
    pub fn rerun(&self, asked: &RerunRuns) -> Result<RunsChanged, CellError> {
        self.permitted(CellAct::EnterRuns)?;
        let done = |run: &i64| {
            let done = self.site.catalog().done_run(*run)?;
            let done = done.ok_or(CellError::RunNotEnded(*run))?.run;
            match done.restore {
                Some(_) => Err(CellError::RunIsRestore(*run)),
                None => {
                    let how = RunAsked { level: RunLevel::of(done.is_full), start: RunStart::of(done.any_time) };
                    Ok((done.policy, Some(done.client), how))
                }
            }
        };
        self.enter(asked.runs.iter().map(done).collect::<Result<_, CellError>>()?)
    }

    fn enter(&self, wanted: Vec<(String, Option<String>, RunAsked)>) -> Result<RunsChanged, CellError> {
        self.permitted(CellAct::EnterRuns)?;
        // All or none: a name that is mistyped enters nothing.
        let policies = self.site.policies()?;
        for (name, client, _) in &wanted {
            let policy = policies.iter().find(|policy| policy.name == *name);
            let policy = policy.ok_or_else(|| DirectorError::UnknownPolicy { name: name.clone() })?;
            let clients = policy.config.clients_of(self.site.client());
            let named = client.as_deref().is_none_or(|client| clients.contains(&client));
            let reason = match (&policy.fault, client) {
                (Some(fault), _) => fault.clone(),
                (None, Some(client)) if !named => format!("it does not name client {client}"),
                _ => continue,
            };
            return Err(DirectorError::PolicyFault { name: name.clone(), reason }.into());
        }
        let (mut changes, mut failed) = (Vec::new(), Vec::new());
        for (name, client, how) in wanted {
            let noted = |entry: capstan_service::audit::AuditEntry| match &client {
                Some(client) => entry.of("policy", known(&name)).with("client", known(client)),
                None => entry.of("policy", known(&name)),
            };
            let work = |site: &Site| Ok(site.enter_runs(&name, client.as_deref(), how)?);
            let entered = match self.does(CellAct::EnterRuns, noted, work) {
                Ok(entered) => entered,
                Err(error) if changes.is_empty() => return Err(error),
                // What was done before is told all the same.
                Err(error) => {
                    failed.push(RunNotChanged { run: None, policy: Some(name), reason: error.to_string() });
                    break;
                }
            };
            for (client, entered) in entered {
                let (run, change) = match entered {
                    Entered::Waits(run) => (run, "entered"),
                    Entered::Behind(run) | Entered::Hastens(run) => (run, "waiting"),
                    // A run that is entered by hand has no due time, and is never void: that is an error.
                    Entered::Before | Entered::Void => continue,
                };
                let (policy, client) = (Some(name.clone()), Some(client));
                changes.push(QueueChangeRow { run, change: change.into(), policy, client });
            }
        }
        Ok(RunsChanged { is_served: self.site.is_served()?, changes, failed })
    }

    /// Cancels, holds or releases runs, and names those with which that cannot be done.
    ///
    /// # Errors
    /// [`CellError::Denied`]; otherwise the state directory cannot be written.
    pub fn change_runs(&self, asked: &ChangeRuns) -> Result<RunsChanged, CellError> {
        self.permitted(CellAct::ChangeRuns)?;
        let (mut changes, mut failed) = (Vec::new(), Vec::new());
        let how = match asked.change {
            RunChange::Cancel => "cancel",
            RunChange::Hold => "hold",
            RunChange::Release => "release",
        };
        for &run in &asked.runs {
            let noted = |entry: capstan_service::audit::AuditEntry| entry.of("run", run).with("change", how);
            match self.does(CellAct::ChangeRuns, noted, |_| self.change_run(asked.change, run)) {
                Ok(change) => {
                    changes.push(QueueChangeRow { run, change: change.into(), policy: None, client: None });
                }
                Err(error @ (CellError::RunNotQueued(_) | CellError::RunAtWork(_) | CellError::RunNotHeld { .. })) => {
                    failed.push(RunNotChanged { run: Some(run), policy: None, reason: error.to_string() });
                }
                Err(error) if changes.is_empty() => return Err(error),
                Err(error) => {
                    failed.push(RunNotChanged { run: Some(run), policy: None, reason: error.to_string() });
                    break;
                }
            }
        }
        Ok(RunsChanged { is_served: self.site.is_served()?, changes, failed })
    }

    fn change_run(&self, change: RunChange, run: i64) -> Result<&'static str, CellError> {
        let is_held = match change {
            RunChange::Cancel => {
                return match self.site.cancel_run(run)? {
                    Cancelled::Removed => Ok("cancelled"),
                    Cancelled::Told => Ok("stopping"),
                    Cancelled::Unknown => Err(CellError::RunNotQueued(run)),
                };
            }
            RunChange::Hold => true,
            RunChange::Release => false,
        };
        match self.site.hold_run(run, is_held)? {
            HoldChange::Changed | HoldChange::Unchanged if is_held => return Ok("held"),
            HoldChange::Changed => return Ok("released"),
            HoldChange::Unchanged => {
                let waiting = waiting(&look(&self.site)?, self.site.is_served()?);
                let row = waiting.into_iter().find(|row| row.run == run);
                return Err(match row {
                    Some(row) => CellError::RunNotHeld { run, waits_for: row.message },
                    // It has begun since.
                    None => CellError::RunAtWork(run),
                });
            }
            HoldChange::Unknown => {}
        }
        let active = self.site.catalog().active_runs()?;
        match active.iter().any(|active| active.run.run == run) {
            true => Err(CellError::RunAtWork(run)),
            false => Err(CellError::RunNotQueued(run)),
        }
    }
}

fn at_work(look: &Look, is_served: bool, progress: &HashMap<i64, RunProgress>) -> Vec<QueueRow> {
    let line = |active: &capstan_catalog::ActiveRun| {
        let ends = look.situation.working.iter().find(|working| working.run == active.run.run);
        let until = ends.and_then(|working| working.ends).filter(|ends| *ends > look.situation.now);
        let others = look.active.iter().filter(|other| other.place == active.place).count() - 1;
        let message = match (is_served, active.is_cancelled, others) {
            (false, true, _) => "no server is running: it will be cancelled when one starts".to_owned(),
            (false, false, _) => "no server is running: it continues when one starts".to_owned(),
            (true, _, 0) => String::new(),
            (true, _, others) => format!("shares drives with {}", counted_runs(others)),
        };
        let several = is_served && look.situation.libraries.len() > 1;
        let library = several.then(|| format!("in library {}", active.place.library));
        let drives = Some(active.place.drives).filter(|drives| is_served && *drives > 1);
        let drives = drives.map(|drives| format!("writes to {drives} drives at once"));
        let parts = library.into_iter().chain(drives).chain(Some(message).filter(|message| !message.is_empty()));
        let message = parts.collect::<Vec<_>>().join(", ");
        let state = match (active.is_cancelled, is_served) {
            (true, _) => "stopping",
            (false, true) => "running",
            (false, false) => "interrupted",
        };
        QueueRow {
            state: state.into(),
            started_ns: Some(active.started_ns),
            until_ns: until.filter(|_| is_served).map(ns),
            message,
            progress: progress.get(&active.run.run).map(progress_row),
            history: active.job,
            session: Some(active.place.session),
            library: Some(active.place.library.clone()),
            drives: Some(active.place.drives),
            ..row(&active.run)
        }
    };
    look.active.iter().map(line).collect()
}

fn progress_row(progress: &RunProgress) -> RunProgressRow {
    RunProgressRow {
        files: progress.files,
        bytes: progress.bytes,
        bytes_planned: Some(progress.bytes_planned).filter(|planned| *planned > 0),
        rate: progress.rate,
        noted_ns: progress.noted_ns,
    }
}

fn waiting(look: &Look, is_served: bool) -> Vec<QueueRow> {
    let mut rows = Vec::new();
    for (run, decision) in decide(&look.situation) {
        let Some(pending) = look.pending.iter().find(|pending| pending.run.run == run) else { continue };
        let waits = match (is_served, &decision) {
            (true, RunDecision::Begins { .. }) => Waits::new("server", "the server starts it within a second"),
            // What an operator must do stays true; all else waits for a server first.
            (true, RunDecision::Waits(waits_for))
            | (
                false,
                RunDecision::Waits(
                    waits_for @ (WaitsFor::Release | WaitsFor::Repair(_) | WaitsFor::Client(PeerAway::NotEnrolled)),
                ),
            ) => Waits::of(waits_for, pending),
            (false, _) => Waits::new("server", "a server: `capstan server run` starts one"),
        };
        let Waits { waits_for, until, seen, message } = waits;
        let (until_ns, seen_ns) = (until.map(ns), seen.map(ns));
        // Of a volume that is to be inserted, that is said already.
        let is_said = matches!(decision, RunDecision::Waits(WaitsFor::Insertion(_)));
        let last_message = pending.last_message.clone().filter(|_| !is_said);
        let waits_for = Some(waits_for);
        rows.push(QueueRow { waits_for, until_ns, seen_ns, message, last_message, ..row(&pending.run) });
    }
    rows
}

/// What a restore waits for, in words for whoever asked for it, who may not know of other runs and machines; none if it
/// does not wait, or begins at once.
pub(in crate::cell) fn run_waits_for(site: &Site, run: i64) -> Option<String> {
    let look = look(site).ok()?;
    let (_, decision) = decide(&look.situation).into_iter().find(|(other, _)| *other == run)?;
    let RunDecision::Waits(waits_for) = decision else { return None };
    let last = look.pending.iter().find(|pending| pending.run.run == run)?.last_message.as_deref();
    Some(asker_waits_for(waits_for, last))
}

/// The same of what it waits for, and of why its last try did not do it.
fn asker_waits_for(waits_for: WaitsFor, last: Option<&str>) -> String {
    let words = match waits_for {
        WaitsFor::Release => "an operator to release it",
        WaitsFor::Repair(fault) => return fault,
        WaitsFor::Insertion(volumes) => return format!("{} to be inserted", volumes_named(&volumes)),
        WaitsFor::Time(_) | WaitsFor::Window(_) => {
            return last.map_or_else(|| "its start".to_owned(), |last| format!("its next try: {last}"));
        }
        WaitsFor::Volume { .. } | WaitsFor::Source(_) => "a volume that is in use",
        WaitsFor::Client(_) => "its client: look whether `capstan client run` runs there",
        WaitsFor::Limit { .. } => "another restore to its client to end",
        WaitsFor::Library(_) => "the library to answer",
        WaitsFor::Drives { .. } | WaitsFor::Turn { .. } => "a drive",
    };
    words.to_owned()
}

/// Volumes by their names.
pub(in crate::cell) fn volumes_named(volumes: &[String]) -> String {
    let noun = if volumes.len() == 1 { "volume" } else { "volumes" };
    format!("{noun} {}", volumes.join(", "))
}

/// What a run waits for: its name, until when, and in words.
struct Waits {
    waits_for: Word,
    until: Option<Timestamp>,
    seen: Option<Timestamp>,
    message: String,
}

impl Waits {
    fn new(waits_for: &'static str, message: impl Into<String>) -> Self {
        Self { waits_for: waits_for.into(), until: None, seen: None, message: message.into() }
    }

    fn until(self, until: impl Into<Option<Timestamp>>) -> Self {
        Self { until: until.into(), ..self }
    }

    /// Says how many runs are before it, if some are.
    fn behind(mut self, before: usize) -> Self {
        match before {
            0 => {}
            1 => self.message += "; 1 run is before this one",
            before => self.message += &format!("; {before} runs are before this one"),
        }
        self
    }

    fn of(waits_for: &WaitsFor, pending: &PendingRun) -> Self {
        let run = &pending.run;
        match waits_for {
            WaitsFor::Release => Self::new("release", "somebody to release it: `capstan queue release`"),
            WaitsFor::Repair(fault) if run.restore.is_some() => Self::new("repair", fault.clone()),
            WaitsFor::Repair(fault) => Self::new("repair", format!("a correction of its policy: {fault}")),
            WaitsFor::Time(until) if run.attempt > 1 => {
                Self::new("time", format!("attempt {}", run.attempt)).until(*until)
            }
            WaitsFor::Time(until) if pending.last_message.is_some() => Self::new("time", "its next try").until(*until),
            WaitsFor::Time(until) => Self::new("time", "its start").until(*until),
            WaitsFor::Window(Some(opens)) => Self::new("window", "its window").until(*opens),
            WaitsFor::Window(None) => Self::new("window", "its window, which does not open within a year"),
            WaitsFor::Source(held) => Self::new("source", format!("its {held}")),
            WaitsFor::Insertion(volumes) => {
                let is_there = if volumes.len() == 1 { "it is" } else { "they are" };
                let named = volumes_named(volumes);
                Self::new("volume", format!("{named} to be inserted: {is_there} in no library that answers"))
            }
            WaitsFor::Volume { held, until } => Self::new("volume", format!("volume {held}")).until(*until),
            WaitsFor::Client(away) => {
                let seen = if let PeerAway::Silent(seen) = away { *seen } else { None };
                Self { seen, ..Self::new("client", peer_away_in_words(*away, "client", &run.client)) }
            }
            WaitsFor::Limit { of, at_most, until, before } => {
                let (name, of, setting) = match of {
                    LimitOf::Policy => (&run.policy, "policy", "runs_at_once"),
                    LimitOf::Client => (&run.client, "client", "runs_per_client"),
                    LimitOf::Restores => {
                        let words =
                            format!("another restore to client {} to end: at most {at_most} at a time", run.client);
                        return Self::new("limit", words).behind(*before).until(*until);
                    }
                    LimitOf::Network => (&run.client, "the network of client", "runs_at_once of [networks]"),
                    LimitOf::Unit => {
                        let drives = if *at_most == 1 { "1 drive".to_owned() } else { format!("{at_most} drives") };
                        return Self::new(
                            "limit",
                            format!("another run of its storage unit to end: {drives} at a time"),
                        )
                        .behind(*before)
                        .until(*until);
                    }
                };
                let runs = counted_runs(*at_most);
                Self::new("limit", format!("another run of {of} {name} to end: at most {runs} at a time ({setting})"))
                    .behind(*before)
                    .until(*until)
            }
            WaitsFor::Library(libraries) => {
                let which = match &libraries[..] {
                    [] => {
                        let words = "a library of its storage unit: no mover has a label of it: `capstan mover label`";
                        return Self::new("library", words);
                    }
                    [only] if only == MAIN_LIBRARY => "the library".to_owned(),
                    [only] => format!("library {only}"),
                    several => format!("one of the libraries {}", several.join(", ")),
                };
                Self::new("library", format!("{which} to answer: `capstan drives` shows whether it does"))
            }
            WaitsFor::Drives { needed, free, until, before } => {
                let drives = if *needed == 1 { "1 drive".to_owned() } else { format!("{needed} drives") };
                Self::new("drives", format!("{drives} ({free} free now)")).behind(*before).until(*until)
            }
            WaitsFor::Turn { behind } => Self::new("turn", format!("its turn: drives are kept for run {behind}")),
        }
    }
}

/// Why a client or a mover cannot be told to begin, and what to do about it. When it was last seen is said beside.
#[must_use]
pub fn peer_away_in_words(away: PeerAway, kind: &str, name: &str) -> String {
    match away {
        PeerAway::NotEnrolled => format!("{kind} {name}, which has not joined: `capstan {kind} enrol {name}`"),
        PeerAway::Revoked => {
            format!("{kind} {name}, whose certificate was revoked: `capstan {kind} enrol {name}`, and join anew")
        }
        PeerAway::Ended => format!(
            "{kind} {name}, whose certificate has ended by the clock here: if that is right, `capstan {kind} enrol \
             {name}`, and join anew"
        ),
        PeerAway::NobodyListens => format!(
            "{kind} {name}, but the server that runs listens for no {kind}s: start it again with --listen, or with \
             listen under [server] in capstan.toml"
        ),
        PeerAway::Silent(None) => format!("{kind} {name}, which was never seen: run `capstan {kind} run` there"),
        PeerAway::Silent(Some(_)) => {
            format!("{kind} {name}, which does not answer: look whether `capstan {kind} run` runs there")
        }
    }
}

fn counted_runs(count: usize) -> String {
    if count == 1 { "1 run".to_owned() } else { format!("{count} runs") }
}

fn row(run: &QueuedRun) -> QueueRow {
    QueueRow {
        run: run.run,
        policy: run.policy.clone(),
        client: run.client.clone(),
        restore: restored_in_words(run),
        full: run.is_full,
        state: "waiting".into(),
        due_ns: run.due_ns,
        entered_ns: run.entered_ns,
        started_ns: None,
        ended_ns: None,
        attempt: run.attempt,
        priority: run.priority,
        waits_for: None,
        until_ns: None,
        seen_ns: None,
        message: String::new(),
        last_message: None,
        progress: None,
        history: None,
        session: None,
        library: None,
        drives: None,
    }
}

/// How a run ended, in the word that lists have for it.
#[must_use]
pub fn run_outcome_word(outcome: RunOutcome) -> &'static str {
    match outcome {
        RunOutcome::Succeeded => "done",
        RunOutcome::Warned => "problems",
        RunOutcome::Failed => "failed",
        RunOutcome::Cancelled => "cancelled",
        RunOutcome::Missed => "missed",
    }
}

pub(super) fn ns(at: Timestamp) -> i64 {
    i64::try_from(at.as_nanosecond()).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whoever waited for a restore was told of a next try, also where there had been none, and never why.
    #[test]
    fn whoever_waits_for_a_restore_learns_why_its_last_try_did_not_do_it() {
        let time = || WaitsFor::Time(Timestamp::UNIX_EPOCH);
        assert_eq!(asker_waits_for(time(), None), "its start");
        let last = "volume A00003 is in a library that does not answer";
        assert_eq!(asker_waits_for(time(), Some(last)), format!("its next try: {last}"));
        assert_eq!(asker_waits_for(WaitsFor::Turn { behind: 7 }, Some(last)), "a drive");
    }
}
