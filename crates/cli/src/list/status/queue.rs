//! What runs by itself, and what keeps it from that.

use std::collections::{BTreeMap, HashMap, HashSet};

use capstan_catalog::{DoneRun, RunOutcome};
use capstan_director::{Site, TellEvent};
use capstan_server::cell::users::run_outcome_word;
use capstan_server::{Look, MoverAway, PeerAway, RunDecision, WaitingRun, WaitsFor, decide, look};

use super::attention::Attention;
use super::last_run::LastRun;
use crate::failure::{Failure, director};
use crate::units;
use crate::wording::peer_away;

/// Ended runs among which those that were missed are looked for.
const RUNS_LOOKED_AT: u32 = 1_000;
/// How a run can end.
const OUTCOMES: [RunOutcome; 5] =
    [RunOutcome::Succeeded, RunOutcome::Warned, RunOutcome::Failed, RunOutcome::Cancelled, RunOutcome::Missed];
/// How long a missed run is worth a word.
const MISSED_FOR_NS: i64 = 24 * 3600 * 1_000_000_000;
/// For how long a restore that has begun may still find that its volume is in no library.
const TRIES_FOR_NS: i64 = 60 * 1_000_000_000;

/// When a run that missed its window may begin.
enum NextTry {
    /// The window is open again.
    Now,
    /// When the window opens, nanoseconds since 1970.
    At(i64),
    /// Not within a year.
    Never,
}

impl NextTry {
    fn of(waits: &WaitsFor) -> Self {
        let WaitsFor::Window(opens) = waits else { return Self::Now };
        let opens_ns = opens.and_then(|opens| i64::try_from(opens.as_nanosecond()).ok());
        opens_ns.map_or(Self::Never, Self::At)
    }
}

/// Runs of a policy that did not begin in their window.
struct TooLate {
    policy: String,
    /// How many, and the first of them.
    runs: u64,
    run: i64,
    client: String,
    next: NextTry,
    /// Why its last attempt did not do it, if there was one.
    last_message: Option<String>,
}

/// Policies, the server and the queue.
#[derive(Default)]
pub(super) struct Queued {
    pub(super) is_served: bool,
    /// The policies, and how many of them are due by themselves.
    pub(super) policies: Vec<String>,
    scheduled: usize,
    /// Policies that name clients: only a server runs them.
    of_clients: Vec<String>,
    /// Policies that make no backups.
    without_backups: Vec<String>,
    /// The clients that policies name now.
    pub(super) clients: HashSet<String>,
    /// Policies that name clients by labels that none has now, and which.
    of_nobody: Vec<(String, String)>,
    /// Runs that wait though their policy does not name their client any more: number, policy, client, and why.
    unnamed: Vec<(i64, String, String, String)>,
    /// Policies with runs whose window closed before they began.
    too_late: Vec<TooLate>,
    /// Clients that runs wait for: their names, and why they cannot begin there.
    away: Vec<(String, PeerAway)>,
    /// The mover that has the drives, and why it cannot be told anything.
    movers_away: Vec<MoverAway>,
    /// How many libraries there are.
    libraries: usize,
    /// Policies that cannot be run here, and why.
    faults: Vec<(String, String)>,
    pub(super) waiting: usize,
    pub(super) working: usize,
    /// Runs that an operator holds.
    held: Vec<i64>,
    /// Volumes that restores wait for to be inserted, each with the first of these runs, and since when it waits.
    to_insert: BTreeMap<String, (i64, i64)>,
    /// Whether a restore has just begun, and may find that it has to wait for its volume again.
    pub(super) tries_restore: bool,
    /// Policies that missed a run in the last day.
    missed: Vec<String>,
    /// The last runs of policies for clients that failed.
    pub(super) failed_last: Vec<LastRun>,
    /// The last ones that went through, with problems or without.
    pub(super) through_last: Vec<LastRun>,
    /// Runs that wait or are at work: what an attempt of theirs did is not how they end.
    pub(super) unfinished: HashSet<i64>,
    /// How many runs ended in the last day, by how they ended.
    pub(super) ended_of_day: BTreeMap<&'static str, i64>,
    /// For how long the run has waited that has waited longest, of those that wait for drives or for other runs.
    pub(super) longest_wait_ns: i64,
    /// The drives of each library, as far as they are known.
    pub(super) drives: Vec<(String, u32)>,
}

/// What a run waits for. One that is held has a line of its own.
fn waits_for(decision: &RunDecision) -> Option<&WaitsFor> {
    match decision {
        RunDecision::Begins { .. } | RunDecision::Waits(WaitsFor::Release) => None,
        RunDecision::Waits(waits) => Some(waits),
    }
}

/// The runs whose window closed before they began, by policy.
fn too_late(look: &Look, decisions: &[(i64, RunDecision)]) -> Vec<TooLate> {
    let waits: HashMap<i64, &WaitsFor> =
        decisions.iter().filter_map(|(run, decision)| Some((*run, waits_for(decision)?))).collect();
    let mut found: BTreeMap<&str, TooLate> = BTreeMap::new();
    for waiting in &look.situation.waiting {
        let Some(waits) = waits.get(&waiting.run) else { continue };
        if !waiting.has_missed_window(look.situation.now) {
            continue;
        }
        let of_policy = found.entry(&waiting.policy).or_insert_with(|| {
            let pending = look.pending.iter().find(|pending| pending.run.run == waiting.run);
            TooLate {
                policy: waiting.policy.clone(),
                runs: 0,
                run: waiting.run,
                client: waiting.client.clone(),
                next: NextTry::of(waits),
                last_message: pending.and_then(|pending| pending.last_message.clone()),
            }
        });
        of_policy.runs += 1;
    }
    found.into_values().collect()
}

/// Of runs that ended, the latest first: the last of each policy for each client that it names.
fn last_runs<'a>(site: &Site, look: &Look, done: impl Iterator<Item = &'a DoneRun>) -> Vec<LastRun> {
    let mut last: BTreeMap<(&str, &str), &DoneRun> = BTreeMap::new();
    for done in done {
        last.entry((&done.run.policy, &done.run.client)).or_insert(done);
    }
    let names = |policy: &str, client: &str| {
        look.policy(policy).is_some_and(|policy| policy.config.clients_of(site.client()).contains(&client))
    };
    let named = last.into_values().filter(|done| names(&done.run.policy, &done.run.client));
    let of = |done: &DoneRun| LastRun {
        policy: done.run.policy.clone(),
        client: done.run.client.clone(),
        ended_ns: done.ended_ns,
        outcome: done.outcome,
        message: done.message.clone(),
        job: done.job,
    };
    named.map(of).collect()
}

/// Whether a run that ended so has backed up what there was.
fn went_through(done: &&DoneRun) -> bool {
    matches!(done.outcome, RunOutcome::Succeeded | RunOutcome::Warned)
}

impl Queued {
    pub(super) fn of(site: &Site) -> Result<Self, Failure> {
        let look = look(site)?;
        let done = site.catalog().done_runs(RUNS_LOOKED_AT).map_err(director)?;
        let now_ns = site.now_ns();
        let day = now_ns.saturating_sub(MISSED_FOR_NS)..=now_ns;
        let mut ended_of_day: BTreeMap<_, _> = OUTCOMES.map(|outcome| (run_outcome_word(outcome), 0)).into();
        for (outcome, count) in site.catalog().runs_ended_between(*day.start(), *day.end()).map_err(director)? {
            ended_of_day.insert(run_outcome_word(outcome), count);
        }
        let ended = site.catalog().last_done_runs().map_err(director)?;
        let mut failed_last = last_runs(site, &look, ended.iter());
        failed_last.retain(|last| last.outcome == RunOutcome::Failed);
        let through_last = last_runs(site, &look, ended.iter().filter(went_through));
        let missed = done.into_iter().filter(|done| done.outcome == RunOutcome::Missed && day.contains(&done.ended_ns));
        let mut missed: Vec<_> = missed.map(|done| done.run.policy).collect();
        missed.sort();
        missed.dedup();
        let is_held =
            |(run, decision): (i64, RunDecision)| (decision == RunDecision::Waits(WaitsFor::Release)).then_some(run);
        let decisions = decide(&look.situation);
        let away = |waiting: &WaitingRun| Some((waiting.client.clone(), waiting.lacks_client(look.situation.now)?));
        let mut clients_away: Vec<_> = look.situation.waiting.iter().filter_map(away).collect();
        clients_away.sort_by(|one, other| one.0.cmp(&other.0));
        clients_away.dedup();
        let too_late = too_late(&look, &decisions);
        let for_others = |decision: &RunDecision| {
            let RunDecision::Waits(waits) = decision else { return false };
            matches!(
                waits,
                WaitsFor::Drives { .. } | WaitsFor::Turn { .. } | WaitsFor::Limit { .. } | WaitsFor::Library(_)
            )
        };
        let waits: HashSet<i64> =
            decisions.iter().filter(|(_, decision)| for_others(decision)).map(|(run, _)| *run).collect();
        let waiting = look.situation.waiting.iter().filter(|waiting| waits.contains(&waiting.run));
        let begins_from = waiting.map(|waiting| waiting.ready_since(look.situation.now)).min();
        let longest = begins_from.map(|from| look.situation.now.duration_since(from).as_nanos());
        let longest_wait_ns = longest.and_then(|ns| i64::try_from(ns).ok()).unwrap_or(0).max(0);
        let drives = look.situation.libraries.iter().filter_map(|use_| Some((use_.library.clone(), use_.all?)));
        let drives = drives.collect();
        let has_clients = look.policies.iter().filter(|policy| policy.config.is_of_clients());
        let of_clients = has_clients.map(|policy| policy.name.clone()).collect();
        let without_backups = look.policies.iter().filter(|policy| !policy.config.makes_backups());
        let without_backups = without_backups.map(|policy| policy.name.clone()).collect();
        let clients = look.policies.iter().flat_map(|policy| policy.config.clients_of(site.client()));
        let clients = clients.map(str::to_owned).collect();
        let of_nobody = look.policies.iter().filter(|policy| policy.config.clients_of(site.client()).is_empty());
        let of_nobody = of_nobody.map(|policy| (policy.name.clone(), policy.config.clients_in_words())).collect();
        let unnamed = |(run, decision): &(i64, RunDecision)| {
            let RunDecision::Waits(WaitsFor::Repair(fault)) = decision else { return None };
            let run = &look.pending.iter().find(|pending| pending.run.run == *run)?.run;
            // A policy that cannot be run has a line of its own.
            let policy = look.policy(&run.policy)?;
            policy.fault.is_none().then(|| (run.run, run.policy.clone(), run.client.clone(), fault.clone()))
        };
        let unnamed = decisions.iter().filter_map(unnamed).collect();
        let mut to_insert = BTreeMap::new();
        // Also where it waits for a drive by now: the next try needs one before it can look.
        for pending in look.pending.iter().filter(|pending| !pending.is_held) {
            for volume in &pending.lacks_volumes {
                to_insert.entry(volume.clone()).or_insert((pending.run.run, pending.run.entered_ns));
            }
        }
        let restores = look.active.iter().filter(|active| active.run.restore.is_some());
        let mut began = restores.map(|active| now_ns.saturating_sub(active.started_ns));
        let tries_restore = began.any(|ago_ns| (0..TRIES_FOR_NS).contains(&ago_ns));
        Ok(Self {
            of_clients,
            without_backups,
            clients,
            of_nobody,
            unnamed,
            to_insert,
            tries_restore,
            too_late,
            away: clients_away,
            movers_away: look.movers_away.clone(),
            libraries: site.library_names().len(),
            is_served: site.is_served()?,
            policies: look.policies.iter().map(|policy| policy.name.clone()).collect(),
            scheduled: look.scheduled.len(),
            faults: look
                .policies
                .iter()
                .filter_map(|policy| Some((policy.name.clone(), policy.fault.clone()?)))
                .collect(),
            waiting: look.pending.len(),
            working: look.active.len(),
            held: decisions.into_iter().filter_map(is_held).collect(),
            missed,
            failed_last,
            through_last,
            unfinished: look
                .pending
                .iter()
                .map(|pending| pending.run.run)
                .chain(look.active.iter().map(|active| active.run.run))
                .collect(),
            ended_of_day,
            longest_wait_ns,
            drives,
        })
    }

    /// Whether the last run of a policy for a client failed.
    pub(super) fn has_failed(&self, policy: &str, client: &str) -> bool {
        self.failed_last.iter().any(|last| last.policy == policy && last.client == client)
    }

    /// How many policies there are.
    pub(super) fn policies(&self) -> usize {
        self.policies.len()
    }

    /// Whether a name is that of a policy.
    pub(super) fn is_policy(&self, name: &str) -> bool {
        self.policies.iter().any(|policy| policy == name)
    }

    /// A backup by name, in words.
    pub(super) fn named(&self, name: &str) -> String {
        let what = if self.is_policy(name) { "policy" } else { "job" };
        format!("{what} {name}")
    }

    /// Whether a policy of this name makes no backups: it copies those of others, or looks after volumes.
    pub(super) fn is_without_backups(&self, name: &str) -> bool {
        self.without_backups.iter().any(|policy| policy == name)
    }

    /// Whether a policy of this name names clients.
    pub(super) fn is_of_clients(&self, name: &str) -> bool {
        self.of_clients.iter().any(|policy| policy == name)
    }

    /// The command that backs up what a job or policy names.
    pub(super) fn command(&self, name: &str) -> String {
        match self.is_of_clients(name) {
            true => format!("`capstan queue add {name}`"),
            false => format!("`capstan backup {name}`"),
        }
    }

    /// How all of a source is backed up again, of this job or policy.
    pub(super) fn full_again(&self, name: &str) -> String {
        match self.is_of_clients(name) {
            true => format!("back it up again in full: `capstan queue add {name} --full`"),
            false => "back it up again with --full".to_owned(),
        }
    }

    /// Lines for people, each with its name; none where nothing runs by itself.
    pub(super) fn text(&self) -> Vec<(&'static str, String)> {
        if self.policies.is_empty() && !self.is_served {
            return Vec::new();
        }
        let server = if self.is_served { "running" } else { "not running" };
        let policies = units::counted(self.policies() as u64, "policy");
        let server = format!("{server}, {policies}, {} waiting, {} at work", self.waiting, self.working);
        let ended = OUTCOMES.map(run_outcome_word).into_iter().filter_map(|word| {
            let count = u64::try_from(*self.ended_of_day.get(word)?).ok().filter(|&count| count > 0)?;
            Some(format!("{} {word}", units::count(count)))
        });
        let ended: Vec<_> = ended.collect();
        let mut lines = vec![("server", server)];
        if !ended.is_empty() {
            lines.push(("last 24 h", ended.join(", ")));
        }
        lines
    }

    /// What a person should look at.
    pub(super) fn lines(&self, lines: &mut Vec<Attention>) {
        if !self.is_served && (self.scheduled > 0 || self.waiting > 0 || self.working > 0) {
            let text = "no server is running, so no policy runs when it is due: start one with `capstan server run`";
            // Who would tell it?
            lines.push(Attention::shown("server", text.to_owned()));
        }
        for (policy, fault) in &self.faults {
            let subject = format!("policy {policy} cannot be run on this machine");
            let text = format!("{subject}: {fault}");
            lines
                .push(Attention::told(TellEvent::Trouble, format!("policy {policy}"), subject, text).about(policy, ""));
        }
        for (policy, whom) in &self.of_nobody {
            let subject = format!("policy {policy} backs up nobody");
            let text = format!("{subject}: no client is one of its {whom} (`capstan client label` gives a label)");
            let key = format!("policy {policy} of nobody");
            lines.push(Attention::told(TellEvent::Trouble, key, subject, text).about(policy, ""));
        }
        for (run, policy, client, fault) in &self.unnamed {
            let subject = format!("run {run} of policy {policy} for client {client} does not start");
            let text = format!("{subject}: {fault} (`capstan queue cancel {run}`)");
            lines.push(Attention::told(TellEvent::Trouble, format!("run {run}"), subject, text).about(policy, client));
        }
        for TooLate { policy, runs, run, client, next, last_message } in &self.too_late {
            let (subject, more) = match runs - 1 {
                0 => (format!("a run of policy {policy} missed its window"), String::new()),
                1 => (format!("2 runs of policy {policy} missed their window"), " (and 1 more)".to_owned()),
                more => {
                    let runs = units::count(*runs);
                    (format!("{runs} runs of policy {policy} missed their window"), format!(" (and {more} more)"))
                }
            };
            let next = match next {
                NextTry::Now => "still".to_owned(),
                NextTry::At(opens_ns) => format!("until {}", units::time(*opens_ns)),
                NextTry::Never => "for a year".to_owned(),
            };
            let why = last_message.as_ref().map(|why| format!(" Its last attempt: {why}.")).unwrap_or_default();
            let text = format!(
                "{subject}: run {run} for client {client}{more} did not begin before that closed, and waits {next}.{why} \
                 If the machine was there, a longer `window`, more drives or fewer runs at that time help"
            );
            lines.push(Attention::told(TellEvent::Missed, format!("window {policy}"), subject, text).about(policy, ""));
        }
        for (client, away) in &self.away {
            let text = format!("runs wait for {}", peer_away(*away, "client", client));
            let subject = match away {
                PeerAway::NobodyListens => format!("the server listens for no clients, and runs wait for {client}"),
                _ => format!("client {client} is away, and runs wait for it"),
            };
            let key = format!("client {client}");
            lines.push(Attention::told(TellEvent::ClientAway, key, subject, text).about("", client));
        }
        // Nobody sees a mover while no server runs.
        for MoverAway { library, mover, away } in self.movers_away.iter().filter(|_| self.is_served) {
            let which = match self.libraries {
                1 => "no drive".to_owned(),
                _ => format!("no drive of library {library}"),
            };
            let text = format!("{which} can be used: they are those of {}", peer_away(*away, "mover", mover));
            let (key, subject) = (format!("mover {mover}"), format!("mover {mover} is away, and {which} can be used"));
            lines.push(Attention::told(TellEvent::MoverAway, key, subject, text));
        }
        for (volume, (run, since_ns)) in &self.to_insert {
            let subject = format!("restores wait for volume {volume}, which is in no library");
            let text = format!("{subject}: insert it, and run {run} goes on by itself");
            let mut attention = Attention::told(TellEvent::Volume, format!("insert {volume}"), subject, text);
            if let Some(finding) = &mut attention.finding {
                finding.since_ns = Some(*since_ns);
            }
            lines.push(attention);
        }
        for run in &self.held {
            // Somebody holds it on purpose.
            lines.push(Attention::shown("held", format!(
                "run {run} is held: `capstan queue release {run}` lets it start, `capstan queue cancel {run}` ends it"
            )));
        }
        if !self.missed.is_empty() {
            let missed = self.missed.join(", ");
            let text = format!("in the last 24 hours runs were missed of {missed}: `capstan queue done` says why");
            // The server tells of each of these runs.
            lines.push(Attention::shown("missed", text));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_that_missed_their_window_are_told_once_a_policy() {
        let too_late = TooLate {
            policy: "web".to_owned(),
            runs: 3,
            run: 12,
            client: "tern".to_owned(),
            next: NextTry::At(1_800_000_000_000_000_000),
            last_message: Some("the source is on fire".to_owned()),
        };
        let queued = Queued { too_late: vec![too_late], ..Queued::default() };
        let mut lines = Vec::new();
        queued.lines(&mut lines);
        let [line] = lines.as_slice() else { panic!("{} lines", lines.len()) };
        let found = line.finding.as_ref().expect("it is told");
        assert_eq!((found.event, found.key.as_str(), found.lasts), (TellEvent::Missed, "window web", true));
        assert_eq!((found.policy.as_str(), found.client.as_str()), ("web", ""));
        let begins = "3 runs of policy web missed their window: run 12 for client tern (and 2 more) did not begin before \
                      that closed, and waits until 2027-01-";
        assert!(line.text.starts_with(begins), "{}", line.text);
        assert!(line.text.contains("Its last attempt: the source is on fire. If the machine"), "{}", line.text);
    }

    /// A restore waited all night for a volume of the vault, and nobody was told.
    #[test]
    fn a_volume_that_restores_wait_for_is_told() {
        let to_insert = BTreeMap::from([("A00003".to_owned(), (12, 5))]);
        let mut lines = Vec::new();
        Queued { to_insert, ..Queued::default() }.lines(&mut lines);
        let [line] = lines.as_slice() else { panic!("{} lines", lines.len()) };
        let found = line.finding.as_ref().expect("it is told");
        assert_eq!((found.event, found.key.as_str(), found.lasts), (TellEvent::Volume, "insert A00003", true));
        assert_eq!(found.since_ns, Some(5));
        let text = "restores wait for volume A00003, which is in no library: insert it, and run 12 goes on by itself";
        assert_eq!(line.text, text);
    }
}
