//! The loop: enters what is due, begins what can begin, and records what came of it.

mod expiry;
mod progress;

pub use progress::RunCounts;

use std::collections::{BTreeSet, HashMap};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use capstan_catalog::{
    ActiveRun, Again, CatalogError, DueDecision, Entered, NewRun, NewSchedule, QueuedRun, RunAgain, RunEnd, RunOutcome,
    RunPlace,
};
use capstan_director::{DirectorError, DriveUse, ServerTerm, Site};
use uuid::Uuid;

use crate::decide::{PeerAway, RunDecision, RunTerms, WaitingRun, WaitsFor, decide};
use crate::due::{Scheduled, due};
use crate::look::{Look, look, ns};
use crate::restore_run::RestoreRun;
use crate::tell::{TellDesk, TellFindings, TellFrom};
use progress::Noted;

/// How often the server looks.
const LOOKS: Duration = Duration::from_millis(500);
/// How long it waits after a look that failed.
const LOOKS_AFTER_FAILURE: Duration = Duration::from_secs(5);
/// How often an end that could not be recorded is tried again.
const RECORDS_AGAIN: Duration = Duration::from_secs(2);
/// How often a library is asked how many drives it has, at most; one that was away is asked at once.
const DRIVES_ASKED_EVERY: Duration = Duration::from_secs(15);
/// How long a run waits that did not begin because another job had what it needs, or because the machine was full.
const BUSY_FOR_NS: i64 = 30_000_000_000;
/// How long a restore waits until it looks again whether its volume was inserted: a person has to fetch that.
const LACKS_FOR_NS: i64 = 60_000_000_000;

/// What the server says while it works.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Notice {
    /// Runs of a server before this one wait again, or had ended.
    Returned {
        /// How many.
        runs: usize,
    },
    /// A run is due, and waits.
    Due {
        /// The run.
        run: i64,
        /// Its policy, or `restore`.
        policy: String,
    },
    /// A run waits that nobody entered, and no schedule: there is something to copy.
    Entered {
        /// The run.
        run: i64,
        /// Its policy.
        policy: String,
        /// Why now.
        reason: String,
    },
    /// Runs never begin.
    Missed {
        /// Their policy.
        policy: String,
        /// Why.
        reason: String,
    },
    /// A run begins.
    Begun {
        /// The run.
        run: i64,
        /// Its policy, or `restore`.
        policy: String,
        /// How often it was begun, this time included.
        attempt: u32,
    },
    /// A run has ended.
    Ended {
        /// The run.
        run: i64,
        /// Its policy, or `restore`.
        policy: String,
        /// How.
        outcome: RunOutcome,
        /// What an operator should know.
        message: String,
    },
    /// A run failed, or could not begin, and is tried again.
    Retried {
        /// The run.
        run: i64,
        /// Its policy, or `restore`.
        policy: String,
        /// Why.
        message: String,
        /// When it begins at the earliest, nanoseconds since 1970.
        not_before_ns: i64,
    },
    /// Backups whose retention has ended were forgotten.
    Expired(Expired),
    /// Something keeps the server from its work, or from a part of it.
    Trouble {
        /// Why.
        reason: String,
    },
}

/// What expired.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Expired {
    /// How many objects.
    pub objects: usize,
    /// How many copies of objects that stay.
    pub copies: usize,
    /// Volumes that are scratch by it, or blank.
    pub volumes: Vec<String>,
    /// What a person should know of it.
    pub notices: Vec<String>,
}

/// How the work of a run ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum WorkEnd {
    /// All was done.
    Succeeded,
    /// It was done, with problems that the message names.
    Warned,
    /// It failed.
    Failed,
    /// It did not begin: another job has what it needs.
    Busy,
    /// It did not begin: this volume is in no library.
    LacksVolumes(Vec<String>),
    /// It was told to stop.
    Stopped,
}

/// What came of a run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Worked {
    /// How it ended.
    pub end: WorkEnd,
    /// What an operator should know, in a line.
    pub message: String,
}

/// Takes the number of a run's entry in the history, or says why it cannot.
pub type TakesEntry<'a> = dyn Fn(i64) -> Result<(), DirectorError> + 'a;

/// Who does the work of runs.
pub trait Worker: Sync {
    /// Does the work of a run, in this thread, until it is done or told to stop. `entered` takes the number of the
    /// run's entry in the history, once it has one; a backup may not begin without.
    fn work(&self, run: &ActiveRun, stop: &Arc<AtomicBool>, entered: &TakesEntry<'_>) -> Worked;

    /// How far the runs are that are worked on.
    fn counts(&self) -> Vec<RunCounts> {
        Vec::new()
    }

    /// Whether a client waits for orders; `None` where that is not known here.
    fn is_connected(&self, client: &str) -> Option<bool>;

    /// Whether a restore that was typed at a client can begin: somebody waits for it there, or nobody will any more.
    fn may_begin(&self, run: &QueuedRun) -> bool {
        let _ = run;
        true
    }

    /// Says what the server does.
    fn say(&self, notice: Notice);

    /// Has backups expire whose retention has ended; gives what did.
    ///
    /// # Errors
    /// Why none does, in words.
    fn expire(&self) -> Result<Option<Expired>, String> {
        Ok(None)
    }

    /// Makes room on disks that are taken above their mark; gives what was forgotten for it, and nothing where no disk
    /// needs room.
    ///
    /// # Errors
    /// Why nothing could be done, in words.
    fn make_room(&self) -> Result<Option<Vec<Expired>>, String> {
        Ok(None)
    }

    /// What a person should look at now, as `capstan status` finds it; asked once a minute.
    ///
    /// # Errors
    /// Why it cannot be found out, in words.
    fn findings(&self) -> Result<TellFindings, String> {
        Ok(TellFindings::default())
    }

    /// What troubled others of this process than the server, since this was asked last: people are told of it, too.
    fn troubles(&self) -> Vec<String> {
        Vec::new()
    }

    /// Variables of the environment that programs of rules must not learn.
    fn secrets(&self) -> Vec<String> {
        Vec::new()
    }
}

/// Serves a site until it is told to stop; runs at work are then stopped too, and wait for the next server.
///
/// # Errors
/// Another server has taken over, or the queue of servers before this one cannot be read.
pub fn serve(site: &Site, term: &ServerTerm, worker: &dyn Worker, stop: &AtomicBool) -> Result<(), DirectorError> {
    let server = Server {
        site,
        term,
        worker,
        stop,
        working: Mutex::default(),
        looked: Mutex::default(),
        wants_drives: AtomicBool::new(true),
        away: Mutex::default(),
        came: AtomicBool::new(false),
        has_ended: AtomicBool::new(false),
        desk: TellDesk::default(),
    };
    site.end_whole_runs(term)?;
    let returned = site.catalog().return_lost(term.number(), site.now_ns())?;
    if !returned.is_empty() {
        worker.say(Notice::Returned { runs: returned.len() });
    }
    thread::scope(|scope| {
        // Whatever ends the loop, a panic too, what works is told to stop: the scope waits for it.
        let _stops = StopsAll(&server);
        let asks = thread::Builder::new().name("drives".to_owned()).spawn_scoped(scope, || server.find_drives());
        if let Err(error) = asks {
            worker.say(Notice::Trouble { reason: format!("nobody asks the library for its drives: {error}") });
        }
        let expires = || {
            if catch_unwind(AssertUnwindSafe(|| server.mind_expiry())).is_err() {
                let reason = "no backup expires by itself any more, because of a bug: please report it".to_owned();
                server.say(Notice::Trouble { reason });
            }
        };
        if let Err(error) = thread::Builder::new().name("expiry".to_owned()).spawn_scoped(scope, expires) {
            worker.say(Notice::Trouble { reason: format!("no backup expires by itself: {error}") });
        }
        let tells = || {
            let findings = || worker.findings();
            // What cannot be told is said, and not told.
            let say = |reason| worker.say(Notice::Trouble { reason });
            let troubles = || worker.troubles();
            let from = TellFrom { findings: &findings, troubles: &troubles, secrets: worker.secrets(), say: &say };
            server.desk.serve(site, from, &|| server.is_over());
        };
        if let Err(error) = thread::Builder::new().name("tell".to_owned()).spawn_scoped(scope, tells) {
            worker.say(Notice::Trouble { reason: format!("nobody is told what goes wrong: {error}") });
        }
        server.serve(&|run, stop| {
            let server = &server;
            let name = format!("run {}", run.run.run);
            let begun = thread::Builder::new().name(name).spawn_scoped(scope, move || server.work(&run, &stop));
            begun.map(drop)
        })
    })
}

/// Begins the work of a run in a thread of its own.
type Begin<'a> = dyn Fn(ActiveRun, Arc<AtomicBool>) -> std::io::Result<()> + 'a;

struct Server<'a> {
    site: &'a Site,
    term: &'a ServerTerm,
    worker: &'a dyn Worker,
    stop: &'a AtomicBool,
    /// The work under each claim.
    working: Mutex<HashMap<[u8; 16], Working>>,
    /// When it was looked last what is due.
    looked: Mutex<Option<jiff::Timestamp>>,
    /// Whether somebody waits for what the library says of its drives.
    wants_drives: AtomicBool,
    /// The libraries that nobody could ask at the last look, their movers being away.
    away: Mutex<BTreeSet<String>>,
    /// Whether one of them can be asked by now.
    came: AtomicBool,
    /// Whether the loop has ended, however it did.
    has_ended: AtomicBool,
    /// Who tells people hears here what is said.
    desk: TellDesk,
}

/// Work of this server.
#[derive(Clone)]
struct Working {
    stop: Arc<AtomicBool>,
    /// The terms of its session, and its storage unit: its policy may say others by now.
    terms: RunTerms,
    unit: String,
}

/// What keeps the server from its work, said once for as long as it does.
#[derive(Default)]
struct Trouble(String);

impl Trouble {
    fn tell(&mut self, server: &Server<'_>, reason: Option<String>) {
        let reason = reason.unwrap_or_default();
        if !reason.is_empty() && reason != self.0 {
            server.say(Notice::Trouble { reason: reason.clone() });
        }
        self.0 = reason;
    }
}

struct StopsAll<'s, 'a>(&'s Server<'a>);

impl Drop for StopsAll<'_, '_> {
    fn drop(&mut self) {
        self.0.has_ended.store(true, Ordering::Relaxed);
        for working in locked(&self.0.working).values() {
            working.stop.store(true, Ordering::Relaxed);
        }
    }
}

impl Server<'_> {
    fn say(&self, notice: Notice) {
        match &notice {
            Notice::Missed { .. } | Notice::Ended { outcome: RunOutcome::Failed, .. } => self.desk.hear_of_run(),
            Notice::Trouble { reason } => self.desk.hear_of_trouble(reason, self.site.now_ns()),
            _ => {}
        }
        self.worker.say(notice);
    }

    fn serve(&self, begin: &Begin<'_>) -> Result<(), DirectorError> {
        let (mut trouble, mut settings, mut noted) = (Trouble::default(), Trouble::default(), Noted::default());
        while !self.stop.load(Ordering::Relaxed) {
            let fault = self.site.settings_fault();
            let goes_on = |fault| format!("{fault}. The server goes on with what the file said before");
            settings.tell(self, fault.map(goes_on));
            let turn = self.turn(begin);
            if let Err(error @ DirectorError::Catalog(CatalogError::ServerReplaced)) = turn {
                return Err(error);
            }
            let pause = if turn.is_ok() { LOOKS } else { LOOKS_AFTER_FAILURE };
            // No run waits for what cannot be noted of others.
            let turn = turn.and_then(|()| noted.mind(self.site, self.term.number(), || self.worker.counts()));
            trouble.tell(self, turn.err().map(|error| tries_again(&error)));
            self.pause(pause);
        }
        Ok(())
    }

    /// Asks the library for its drives while runs wait for them. It may be off, or a robot may move for minutes: nobody
    /// else waits for its answer.
    fn find_drives(&self) {
        let mut trouble = Trouble::default();
        while !self.is_over() {
            if !self.wants_drives.swap(false, Ordering::Relaxed) {
                thread::sleep(LOOKS);
                continue;
            }
            self.came.store(false, Ordering::Relaxed);
            let found = self.site.find_drives();
            let all_answer = found.as_ref().is_ok_and(Vec::is_empty);
            let reason = match found {
                Ok(silent) => {
                    let several = self.site.library_names().len() > 1;
                    let words = silent.iter().map(|(library, error)| match several {
                        true => format!("library {library}: {}", tries_again(error)),
                        false => tries_again(error),
                    });
                    words.reduce(|all, more| format!("{all}; {more}"))
                }
                // What cannot be noted is asked for again.
                Err(error) => Some(tries_again(&error)),
            };
            let pause = if all_answer { DRIVES_ASKED_EVERY } else { LOOKS_AFTER_FAILURE };
            trouble.tell(self, reason);
            self.pause_until(pause, || self.came.load(Ordering::Relaxed));
        }
    }

    fn is_over(&self) -> bool {
        self.stop.load(Ordering::Relaxed) || self.has_ended.load(Ordering::Relaxed)
    }

    /// Waits, but not for longer than nobody wants it to stop.
    fn pause(&self, pause: Duration) {
        self.pause_until(pause, || false);
    }

    fn pause_until(&self, pause: Duration, is_enough: impl Fn() -> bool) {
        let until = Instant::now() + pause;
        while Instant::now() < until && !self.is_over() && !is_enough() {
            thread::sleep(until.saturating_duration_since(Instant::now()).min(LOOKS));
        }
    }

    fn turn(&self, begin: &Begin<'_>) -> Result<(), DirectorError> {
        let before = look(self.site)?;
        // What has just been entered may begin at once.
        let mut look = if self.enter_due(&before)? { look(self.site)? } else { before };
        self.mind_clients(&mut look);
        self.mind_terms(&mut look);
        self.mind_active(&look)?;
        self.mind_movers(&look);
        // A library that came back is asked, though no run waits for it alone.
        let of_runs = |library: &DriveUse| {
            look.situation.waiting.iter().any(|waiting| waiting.unit.libraries.contains(&library.library))
        };
        let is_away = |library: &DriveUse| look.movers_away.iter().any(|away| away.library == library.library);
        let mut unknown = look.situation.libraries.iter().filter(|library| library.all.is_none());
        if unknown.any(|library| of_runs(library) && !is_away(library)) {
            self.wants_drives.store(true, Ordering::Relaxed);
        }
        for (run, decision) in decide(&look.situation) {
            match decision {
                RunDecision::Begins { session, library, drives } => {
                    if let Some(waiting) = look.situation.waiting.iter().find(|waiting| waiting.run == run) {
                        self.begin(waiting, &RunPlace { session, library, drives }, begin)?;
                    }
                }
                RunDecision::Waits(WaitsFor::Library(_) | WaitsFor::Drives { .. }) => {
                    self.wants_drives.store(true, Ordering::Relaxed);
                }
                RunDecision::Waits(_) => {}
            }
        }
        self.site.enter_ends_again()
    }

    /// A library whose mover has come is asked at once: what is known of its drives is of the time before.
    fn mind_movers(&self, look: &Look) {
        let now: BTreeSet<String> = look.movers_away.iter().map(|away| away.library.clone()).collect();
        let mut away = locked(&self.away);
        if away.difference(&now).next().is_some() {
            self.came.store(true, Ordering::Relaxed);
            self.wants_drives.store(true, Ordering::Relaxed);
        }
        *away = now;
    }

    /// What the catalog says of clients is some seconds old: a run begins only where the client is there now, and at
    /// once when it is.
    fn mind_clients(&self, look: &mut Look) {
        for waiting in &mut look.situation.waiting {
            let Some(pending) = look.pending.iter().find(|pending| pending.run.run == waiting.run) else { continue };
            // Whoever typed a restore at a client comes by itself.
            let text = pending.run.restore.as_deref().filter(|_| !waiting.is_held);
            let restore = text.and_then(|text| RestoreRun::of(text).ok());
            if restore.is_some_and(|restore| restore.into.is_none()) {
                waiting.client_away = (!self.worker.may_begin(&pending.run)).then_some(PeerAway::Silent(None));
                continue;
            }
            match (waiting.client_away, self.worker.is_connected(&pending.run.client)) {
                (Some(PeerAway::Silent(_) | PeerAway::NobodyListens), Some(true)) => waiting.client_away = None,
                (None | Some(PeerAway::NobodyListens), Some(false)) => {
                    waiting.client_away = Some(PeerAway::Silent(None));
                }
                _ => {}
            }
        }
    }

    /// A run at work keeps the terms that it began with.
    fn mind_terms(&self, look: &mut Look) {
        let working = locked(&self.working);
        for run in &mut look.situation.working {
            let active = look.active.iter().find(|active| active.run.run == run.run);
            if let Some(working) = active.and_then(|active| working.get(&active.claim)) {
                (run.terms, run.unit) = (working.terms.clone(), working.unit.clone());
            }
        }
    }

    /// Stops runs that are cancelled. One of this server that nobody works on waits again: its work panicked, or the
    /// answer to its claim was lost.
    fn mind_active(&self, look: &Look) -> Result<(), DirectorError> {
        for active in &look.active {
            let stop = locked(&self.working).get(&active.claim).map(|working| Arc::clone(&working.stop));
            match stop {
                Some(stop) if active.is_cancelled => stop.store(true, Ordering::Relaxed),
                Some(_) => {}
                None if active.term == self.term.number() => {
                    // Its end may have been recorded since this was looked at: then the claim is gone.
                    let now_ns = self.site.now_ns();
                    let next = RunAgain {
                        attempt: active.run.attempt,
                        not_before_ns: now_ns.saturating_add(BUSY_FOR_NS),
                        keeps_age: true,
                        has_begun: active.run.has_begun,
                        message: "nobody works on it any more: the server's output may say why",
                        lacks_volumes: &[],
                    };
                    self.site.catalog().retry_run(active.claim, &next, now_ns)?;
                }
                None => {}
            }
        }
        Ok(())
    }

    fn begin(&self, waiting: &WaitingRun, place: &RunPlace, begin: &Begin<'_>) -> Result<(), DirectorError> {
        let (run, terms, unit) = (waiting.run, waiting.terms.clone(), waiting.unit.name.clone());
        let claim = Uuid::new_v4().into_bytes();
        let claimed = self.site.catalog().claim_run(self.term.number(), run, claim, place, self.site.now_ns())?;
        let Some(active) = claimed else { return Ok(()) };
        let (policy, attempt) = (active.run.name().to_owned(), active.run.attempt);
        let stop: Arc<AtomicBool> = Arc::default();
        locked(&self.working).insert(claim, Working { stop: Arc::clone(&stop), terms, unit });
        self.say(Notice::Begun { run, policy, attempt });
        if let Err(error) = begin(active, stop) {
            // The next look has it wait again.
            locked(&self.working).remove(&claim);
            self.say(Notice::Trouble { reason: format!("run {run} cannot be begun, and waits again: {error}") });
        }
        Ok(())
    }

    /// Enters what is due; whether anything was entered.
    fn enter_due(&self, look: &Look) -> Result<bool, DirectorError> {
        let mut any = false;
        let now = look.situation.now;
        let new: Vec<NewSchedule<'_>> = look.scheduled.iter().filter(|one| one.is_new).map(new_schedule).collect();
        if !new.is_empty() {
            self.site.catalog().begin_schedules(self.term.number(), &new)?;
        }
        let looked = locked(&self.looked).replace(now);
        for come in due(&look.scheduled, looked, now) {
            let timing = look.policy(&come.policy).and_then(|policy| policy.config.timing().ok());
            let priority = timing.map_or(0, |timing| timing.priority);
            let run = come.run.map(|run| NewRun {
                policy: &come.policy,
                client: &come.client,
                due_ns: Some(ns(run.due)),
                priority,
                not_before_ns: ns(run.starts),
                is_full: false,
                any_time: false,
            });
            let decision = DueDecision {
                policy: &come.policy,
                client: &come.client,
                scheduled_ns: come.scheduled_ns,
                decided_ns: ns(come.decided.furthest),
                again_ns: come.decided.again.map(ns),
                run,
                missed: come.missed.as_deref(),
            };
            let entered = self.site.catalog().enter_due(self.term.number(), &decision, self.site.now_ns())?;
            let policy = come.policy;
            let missed = |reason| self.say(Notice::Missed { policy: policy.clone(), reason });
            if let (Some(reason), false) = (come.missed, entered == Some(Entered::Void)) {
                missed(reason);
            }
            match entered {
                Some(Entered::Waits(run) | Entered::Hastens(run)) => {
                    any = true;
                    self.say(Notice::Due { run, policy });
                }
                Some(other) => other.missed().into_iter().for_each(missed),
                None => {}
            }
        }
        Ok(any)
    }

    /// Works on a run, and records what came of it.
    fn work(&self, active: &ActiveRun, stop: &Arc<AtomicBool>) {
        let entered = |job| Ok(self.site.catalog().run_has_job(active.claim, job)?);
        let worked = catch_unwind(AssertUnwindSafe(|| self.worker.work(active, stop, &entered)));
        let worked = worked.unwrap_or_else(|_| {
            let message = "Capstan failed because of a bug. Please report it, with the server's output".to_owned();
            Worked { end: WorkEnd::Failed, message }
        });
        let mut said = false;
        while let Err(error) = self.record(active, &worked) {
            if !said {
                self.say(Notice::Trouble { reason: tries_again(&error) });
                said = true;
            }
            // Whoever has it wait again looks into the history, which may have its end.
            if self.stop.load(Ordering::Relaxed) || stop.load(Ordering::Relaxed) {
                break;
            }
            thread::sleep(RECORDS_AGAIN);
        }
        locked(&self.working).remove(&active.claim);
    }

    fn record(&self, active: &ActiveRun, worked: &Worked) -> Result<(), DirectorError> {
        let now_ns = self.site.now_ns();
        let attempt = active.run.attempt;
        let outcome = match &worked.end {
            WorkEnd::Succeeded => RunOutcome::Succeeded,
            WorkEnd::Warned => RunOutcome::Warned,
            // One that was told to stop has failed at nothing.
            WorkEnd::Stopped => {
                let next = RunAgain {
                    attempt,
                    not_before_ns: 0,
                    keeps_age: false,
                    has_begun: true,
                    message: "",
                    lacks_volumes: &[],
                };
                return self.again(active, next, &worked.message);
            }
            WorkEnd::Busy | WorkEnd::LacksVolumes(_) => {
                let (lacks_volumes, wait_ns) = match &worked.end {
                    WorkEnd::LacksVolumes(volumes) => (&volumes[..], LACKS_FOR_NS),
                    _ => (&[][..], BUSY_FOR_NS),
                };
                let not_before_ns = now_ns.saturating_add(wait_ns);
                let (has_begun, message) = (active.run.has_begun, worked.message.as_str());
                let next = RunAgain { attempt, not_before_ns, keeps_age: true, has_begun, message, lacks_volumes };
                return self.again(active, next, &worked.message);
            }
            WorkEnd::Failed => match self.retry_after_ns(&active.run, attempt)? {
                Some(wait_ns) => {
                    let not_before_ns = now_ns.saturating_add(wait_ns);
                    let attempt = attempt + 1;
                    let message = worked.message.as_str();
                    let (keeps_age, has_begun, lacks_volumes) = (false, false, &[][..]);
                    let next = RunAgain { attempt, not_before_ns, keeps_age, has_begun, message, lacks_volumes };
                    return self.again(active, next, &worked.message);
                }
                None => RunOutcome::Failed,
            },
        };
        let end = RunEnd { ended_ns: now_ns, outcome, message: &worked.message };
        if self.site.catalog().end_run(active.claim, &end)? {
            self.say_ended(active, outcome, &worked.message);
        }
        Ok(())
    }

    /// Has a run wait once more, unless somebody has cancelled it.
    fn again(&self, active: &ActiveRun, next: RunAgain<'_>, message: &str) -> Result<(), DirectorError> {
        let again = self.site.catalog().retry_run(active.claim, &next, self.site.now_ns())?;
        let not_before_ns = next.not_before_ns;
        match again {
            // A server that stops says so itself.
            Again::Waits if not_before_ns == 0 => {}
            Again::Waits => {
                let (policy, message) = (active.run.name().to_owned(), message.to_owned());
                self.say(Notice::Retried { run: active.run.run, policy, message, not_before_ns });
            }
            Again::Cancelled => self.say_ended(active, RunOutcome::Cancelled, message),
            Again::Done | Again::Unknown => {}
        }
        Ok(())
    }

    fn say_ended(&self, active: &ActiveRun, outcome: RunOutcome, message: &str) {
        let (policy, message) = (active.run.name().to_owned(), message.to_owned());
        self.say(Notice::Ended { run: active.run.run, policy, outcome, message });
    }

    /// How long a run that failed waits until it is tried again; `None` if it is not.
    fn retry_after_ns(&self, run: &QueuedRun, attempt: u32) -> Result<Option<i64>, DirectorError> {
        if run.restore.is_some() {
            return Ok(None);
        }
        let timing = self.site.policy(&run.policy)?.and_then(|policy| policy.config.timing().ok());
        let wait = timing.filter(|timing| attempt <= timing.retries).map(|timing| timing.retry_after(attempt));
        Ok(wait.map(|wait| i64::try_from(wait.as_nanos()).unwrap_or(i64::MAX)))
    }
}

/// Where a schedule begins of which nothing is noted yet.
fn new_schedule(one: &Scheduled) -> NewSchedule<'_> {
    NewSchedule {
        policy: &one.policy,
        client: &one.client,
        scheduled_ns: one.scheduled_ns,
        decided_ns: ns(one.decided.furthest),
    }
}

fn tries_again(error: &DirectorError) -> String {
    let cause = std::error::Error::source(error).map(|cause| format!(": {cause}")).unwrap_or_default();
    format!("{error}{cause}; the server tries again")
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
