//! Restores to clients: those that a client asks for, which gets its own objects and learns of no others, and those
//! that a user asks for. Each is a run of the queue: it is planned when it is asked for, and again in its turn.
//!
//! ```text
//!  client, user --ask--> begin --> queue --its turn--> carry_out --order--> client, which writes
//!        ^                                                 |
//!        '--wait: what it waits for, its order, its end----'
//! ```

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use capstan_catalog::{
    ActiveRun, Cancelled, CatalogError, DoneRun, JobOutcome, ObjectFilter, PeerRow, QueuedRun, RunOutcome,
};
use capstan_client::CellOrder;
use capstan_client::files::path_text;
use capstan_client::restores::{
    ObjectsAnswer, RestoreEnded, RestoreOutlook, RestorePlanned, RestoreQuery, RestoreSeen,
};
use capstan_director::{DirectorError, Place, RestorePlan, RestoreReport, Site, Tally};
use capstan_mover::extract::{ExtractProblem, ExtractReport};
use capstan_mover::{NetworkJob, RestoreWatch};
use capstan_service::audit::{AuditAction, AuditActor, AuditEntry, AuditFact, AuditOrigin, AuditOutcome};
use capstan_service::problem::Refusal;
use capstan_service::rate_limit::{AddressRateLimiter, Burst};
use tokio::sync::Notify;

use super::CellError;
use super::blocking::{IsAwaited, blocking};
use super::error::{in_words, refusal_of, refused};
use super::own_object::{OBJECTS_MAX, own_object};
use super::restore_plan::{
    Planned, count_not_as_asked, not_as_asked, not_awaited, out_of_reach_in_words, places, places_of, planned,
    to_be_inserted,
};
use super::users::{CellAct, KnownNames, Rights, note, run_waits_for};
use crate::restore_run::{Asker, RestorePlace, RestoreRun};
use crate::serve::{TakesEntry, WorkEnd, Worked};

/// The priority of restores, beside the 50 that policies have if they name none: somebody waits for them.
const PRIORITY: i64 = 80;
/// Restores that one client or user has in the queue, at most.
const QUEUED_MAX: usize = 20;
/// How long the end of a restore is kept for whoever asked for it.
const ENDED_KEPT: Duration = Duration::from_secs(600);
/// How long one is kept of which nobody heard the end.
const FORGOTTEN_AFTER: Duration = Duration::from_secs(24 * 3600);
/// Ended restores that are kept of each asker.
const ENDED_MAX: usize = QUEUED_MAX;
/// Whoever waits at a client asks more often than this.
const ASKS_WITHIN: Duration = Duration::from_secs(90);
/// How long nobody may wait for a restore that was typed at a client, until it is given up: longer than the command
/// there looks for a server that is away.
const GIVEN_UP_AFTER: Duration = Duration::from_secs(15 * 60);
/// How many restores are entered from one address, and from all.
const ENTERED_OF_ONE: Burst = Burst { at_once: 200, every: Duration::from_secs(2) };
const ENTERED_OF_ALL: Burst = Burst { at_once: 2_000, every: Duration::from_millis(100) };
/// How much may be asked for, as it is sent, and as it stands in the queue.
const ASKED_BYTES_MAX: usize = 16 << 10;
const RUN_BYTES_MAX: usize = 32 << 10;
/// How often it is looked whether one at work is to stop.
const STOP_LOOKS: Duration = Duration::from_millis(100);
/// Why a restore ended that somebody cancelled.
const CANCELLED: &str = "it was cancelled";
/// How often it is looked whether a run was cancelled.
const LOOKS: Duration = Duration::from_secs(1);
/// Files that are named to whoever asked.
const FAILED_MAX: usize = 200;
/// Paths that are named with a plan, of those that do not come back as they were.
const PATHS_OF_OUTLOOK: usize = 20;
/// What a client does that restores something of its own.
const RESTORES_OWN: AuditAction = AuditAction::named("restore-own");
/// What exit codes of the history stand for: done, done with problems, failed, stopped.
const DONE: u8 = 0;
const WITH_PROBLEMS: u8 = 3;
const FAILED: u8 = 1;
const STOPPED: u8 = 130;

/// What a server knows of restores beside the queue: whom to tell what, by run. It goes with the server; whoever waits
/// asks the next one.
#[derive(Clone, Default)]
pub(super) struct Restores(Arc<AllRestores>);

struct AllRestores {
    all: Mutex<HashMap<i64, Arc<Restore>>>,
    /// How often they are entered: each of them is on record.
    rate: Mutex<AddressRateLimiter>,
    /// Held while those of an asker are counted and one more is entered.
    begins: Mutex<()>,
}

impl Default for AllRestores {
    fn default() -> Self {
        let rate = AddressRateLimiter::new(ENTERED_OF_ONE, ENTERED_OF_ALL);
        Self { all: Mutex::default(), rate: Mutex::new(rate), begins: Mutex::default() }
    }
}

struct Restore {
    asker: Asker,
    /// Since when it is known here.
    since: Instant,
    /// When somebody last asked about it.
    heard: Mutex<Option<Instant>>,
    /// Whether it is being carried out.
    is_at_work: AtomicBool,
    /// What whoever typed it at the client does now.
    order: Mutex<Option<CellOrder>>,
    ended: Mutex<Option<RestoreEnded>>,
    /// Until when its end is kept, once it has ended.
    kept_until: Mutex<Option<Instant>>,
    changes: Notify,
}

impl Restore {
    fn hear(&self) {
        *locked(&self.heard) = Some(Instant::now());
    }

    /// For how long nobody has asked about it.
    fn silent_for(&self) -> Duration {
        locked(&self.heard).unwrap_or(self.since).elapsed()
    }

    /// Whether somebody waits for it now.
    fn is_asked_for(&self) -> bool {
        locked(&self.heard).is_some_and(|heard| heard.elapsed() < ASKS_WITHIN)
    }
}

/// How a job of a client is opened, and how its client hears of it.
pub(super) trait RestoreJobs {
    /// Opens a job of a client, and gives the order that tells it to come.
    fn open(&self, client: &str) -> Result<(NetworkJob, CellOrder), String>;

    /// Sends a client that waits for orders the order.
    fn send(&self, client: &str, order: CellOrder) -> Result<(), String>;
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What there is of a client.
pub(super) fn objects(site: &Site, client: &str) -> Result<ObjectsAnswer, Refusal> {
    let filter = ObjectFilter { client: Some(client.to_owned()), ..ObjectFilter::default() };
    let objects = site.catalog().objects(&filter).map_err(|error| refused(&error.into()))?;
    Ok(ObjectsAnswer { objects: objects.iter().take(OBJECTS_MAX).map(own_object).collect() })
}

/// A record of a restore for the audit log; none where a name is none.
fn entry_of(run: &RestoreRun, to: &str, number: i64) -> Option<AuditEntry> {
    let fact = |name: &str| AuditFact::from(KnownNames(&[name]));
    let origin = AuditOrigin::Address(run.from);
    let entry = |kind, name: &str, act| Some(AuditEntry::new(AuditActor::peer(kind, name.parse().ok()?), origin, act));
    let entry = match &run.asker {
        Asker::Client(name) => entry("client", name, RESTORES_OWN)?.of("client", fact(name)),
        Asker::User(name) => {
            let act = AuditAction::named(CellAct::Restore.name());
            entry("user", name, act)?.of("client", fact(&run.of)).with("to", fact(to))
        }
    };
    let entry = entry.with("run", number);
    Some(match &run.into {
        Some(into) => entry.reading().with("directory", fact(&into.directory)),
        None => entry.reading(),
    })
}

/// What is noted of a restore in the audit log.
fn noted(run: &RestoreRun, to: &str, number: i64, planned: &Planned) -> Option<AuditEntry> {
    let entry = entry_of(run, to, number)?;
    let objects: Vec<_> = run.places.iter().map(|place| place.object.as_str()).collect();
    Some(entry.with("objects", AuditFact::from(KnownNames(&objects))).with("paths", planned.plan.members))
}

/// Why a restore is not carried out although its turn has come: whoever asked, or the client, is let in no more, or the
/// rights are others.
fn refused_now(site: &Site, run: &RestoreRun, to: &str) -> Result<Option<&'static str>, CatalogError> {
    let catalog = site.catalog();
    let mut peers = catalog.peers_named("client", to)?;
    if let Asker::User(name) = &run.asker {
        peers.extend(catalog.peers_named("user", name)?);
    }
    let user = match &run.asker {
        Asker::User(name) => catalog.user(name)?,
        Asker::Client(_) => None,
    };
    drop(catalog);
    let now_ns = site.now_ns();
    let is_let_in = |kind: &str, name: &str| {
        let own = |peer: &PeerRow| peer.kind == kind && peer.name == name;
        peers.iter().any(|peer| own(peer) && peer.revoked_ns.is_none() && peer.expires_ns > now_ns)
    };
    if !is_let_in("client", to) {
        return Ok(Some("the client is let in no more: let it in with `capstan client enrol`, then ask again"));
    }
    let Asker::User(name) = &run.asker else { return Ok(None) };
    let rights = user.as_ref().map(Rights::of);
    let may = |client| rights.as_ref().is_some_and(|rights| rights.may_of(CellAct::Restore, client));
    Ok(if !is_let_in("user", name) {
        Some("the user is let in no more: let the user in with `capstan user enrol`, then ask again")
    } else if !may(&run.of) || !may(to) {
        Some("the user may not do it any more: `capstan user change` gives the right back; then ask again")
    } else {
        None
    })
}

/// What a run of the queue restores, if it is a restore.
fn restored_by(run: &QueuedRun) -> Option<RestoreRun> {
    RestoreRun::of(run.restore.as_deref()?).ok()
}

impl Restores {
    /// Plans a restore to a client, and enters it into the queue unless only the plan is asked for.
    ///
    /// Nothing is entered for whoever no longer waits for the answer.
    pub(super) fn begin(
        &self,
        site: &Site,
        to: &str,
        mut run: RestoreRun,
        is_awaited: &IsAwaited<'_>,
    ) -> Result<RestorePlanned, Refusal> {
        let too_long = || {
            let advice = "name the directory that holds them, or choose with --include";
            Refusal::malformed(format!("That is too long for a restore: {advice}."))
        };
        if serde_json::to_vec(&run.ask).map_or(usize::MAX, |asked| asked.len()) > ASKED_BYTES_MAX {
            return Err(too_long());
        }
        let looks = site.with_own_catalog().map_err(|error| refused(&error))?;
        let places = places(&looks, &run.of, &run.ask, is_awaited)?;
        let planned = planned(site, &run, &places)?;
        let place = |place: &Place| RestorePlace::new(place.object.to_string(), &place.paths);
        (run.places, run.estimate_ns) = (places.iter().map(place).collect(), planned.plan.estimate_ns);
        run.volumes = planned.plan.passes.iter().map(|pass| pass.volser.to_string()).collect();
        locked(&planned.notices).extend(not_as_asked(&planned.plan).take(PATHS_OF_OUTLOOK));
        let more = count_not_as_asked(&planned.plan).saturating_sub(PATHS_OF_OUTLOOK as u64);
        if more > 0 {
            locked(&planned.notices).push(format!("and {more} more paths do not come back as they were"));
        }
        let outlook = RestoreOutlook {
            members: planned.plan.members,
            bytes: planned.plan.bytes,
            volumes: run.volumes.clone(),
            estimate_ns: planned.plan.estimate_ns,
            notices: std::mem::take(&mut *locked(&planned.notices)),
            lacks_part: !planned.plan.is_all_there(),
            lacks_key: !planned.plan.without_key.is_empty(),
        };
        if run.ask.plan_only {
            return Ok(RestorePlanned { outlook, run: None, waits_for: None });
        }
        run.volumes.dedup();
        if planned.plan.not_asked.is_some() {
            // Which copy is read is seen once a library answers: it is no reason to wait for one of them.
            run.volumes.clear();
        }
        let text = run.to_text();
        if text.len() > RUN_BYTES_MAX {
            return Err(too_long());
        }
        let counted = locked(&self.0.begins);
        let catalog = |error: CatalogError| refused(&error.into());
        let queued = site.catalog().unfinished_runs().map_err(catalog)?;
        let own = queued.runs().filter(|other| restored_by(other).is_some_and(|what| what.asker == run.asker));
        // One that nobody waits for any more is given up in its turn, and takes nobody's place until then.
        let own = own.filter(|other| !self.is_given_up(other)).count();
        if own >= QUEUED_MAX {
            return Err(Refusal::conflict(format!(
                "{QUEUED_MAX} restores that you asked for are in the queue: wait for one of them to end, or cancel one."
            )));
        }
        if !is_awaited() {
            return Err(not_awaited());
        }
        let next = locked(&self.0.rate).next(run.from.ip(), Instant::now());
        next.map_err(|wait| {
            let seconds = wait.as_secs() + 1;
            Refusal::conflict(format!("Too many restores were asked for from there: ask again in {seconds} s."))
        })?;
        let entered = site.enter_restore(to, &text, PRIORITY).map_err(|error| refused(&error))?;
        let Some(noted) = noted(&run, to, entered, &planned) else {
            let _ = site.withdraw_run(entered);
            return Err(Refusal::failed());
        };
        // What cannot be noted is not done.
        if let Err(error) = note(site, noted.clone().came_to(AuditOutcome::Begun)) {
            let _ = site.withdraw_run(entered);
            return Err(refusal_of(&error));
        }
        if let Err(error) = site.release_restore(entered) {
            let _ = site.withdraw_run(entered);
            let why = AuditFact::from("it could not be put into the queue");
            let _ = note(site, noted.came_to(AuditOutcome::Failed { why }));
            return Err(refused(&error));
        }
        drop(counted);
        self.prune(&run.asker);
        self.of(entered, &run.asker).hear();
        Ok(RestorePlanned { outlook, run: Some(entered), waits_for: run_waits_for(site, entered) })
    }

    /// Forgets what nobody will ask for, and all but the last of what an asker has had.
    fn prune(&self, asker: &Asker) {
        let mut all = locked(&self.0.all);
        let is_heard =
            |restore: &Restore| restore.is_at_work.load(Ordering::Relaxed) || restore.silent_for() < FORGOTTEN_AFTER;
        all.retain(|_, one| locked(&one.kept_until).map_or_else(|| is_heard(one), |until| Instant::now() < until));
        let of_asker = all.iter().filter(|(_, restore)| restore.asker == *asker);
        let mut ended: Vec<_> =
            of_asker.filter_map(|(run, one)| Some((*locked(&one.kept_until).as_ref()?, *run))).collect();
        ended.sort();
        for (_, run) in ended.iter().take(ended.len().saturating_sub(ENDED_MAX)) {
            all.remove(run);
        }
    }

    /// What is known of a restore, from now on.
    fn of(&self, run: i64, asker: &Asker) -> Arc<Restore> {
        let new = || {
            Arc::new(Restore {
                asker: asker.clone(),
                since: Instant::now(),
                heard: Mutex::default(),
                is_at_work: AtomicBool::new(false),
                order: Mutex::default(),
                ended: Mutex::default(),
                kept_until: Mutex::default(),
                changes: Notify::new(),
            })
        };
        Arc::clone(locked(&self.0.all).entry(run).or_insert_with(new))
    }

    /// Carries a restore out whose turn has come, in this thread. `entered` takes the number of its entry in the
    /// history; the client gets what is read no faster than the rate says.
    pub(super) fn carry_out(
        &self,
        site: &Site,
        active: &ActiveRun,
        (stop, watch): (&Arc<AtomicBool>, &RestoreWatch),
        jobs: &dyn RestoreJobs,
        entered: &TakesEntry<'_>,
    ) -> Worked {
        let worked = |end, message: String| Worked { end, message };
        let (client, text) = (active.run.client.as_str(), active.run.restore.as_deref().unwrap_or_default());
        let run = match RestoreRun::of(text) {
            Ok(run) => run,
            Err(fault) => return worked(WorkEnd::Failed, fault),
        };
        let restore = self.of(active.run.run, &run.asker);
        // Whatever goes wrong in it, whoever asked hears that it has ended.
        let mut ends = EndsAtLast { restore: &restore, is_over: false };
        restore.is_at_work.store(true, Ordering::Relaxed);
        let number = active.run.run;
        let not_done = |ends: &mut EndsAtLast<'_>, failure: String, why: &'static str| {
            let why = AuditFact::from(why);
            if let Some(entry) = entry_of(&run, client, number) {
                let _ = note(site, entry.came_to(AuditOutcome::Failed { why }));
            }
            ends.end(RestoreEnded { failure: Some(failure.clone()), ..RestoreEnded::default() });
            worked(WorkEnd::Failed, failure)
        };
        match refused_now(site, &run, client) {
            Ok(None) => {}
            Ok(Some(why)) => return not_done(&mut ends, why.to_owned(), why),
            Err(error) => {
                ends.is_over = true;
                return worked(WorkEnd::Busy, format!("who is let in cannot be read: {error}"));
            }
        }
        if run.into.is_none() && !restore.is_asked_for() {
            if restore.silent_for() > GIVEN_UP_AFTER {
                let failure = format!(
                    "nobody at client {client} has waited for it for a long time: ask again there (`capstan client \
                     restore`)"
                );
                return not_done(&mut ends, failure, "nobody waited for it");
            }
            ends.is_over = true;
            return worked(WorkEnd::Busy, format!("nobody at client {client} waits for it now"));
        }
        let planned = places_of(site, &run).and_then(|places| planned(site, &run, &places));
        let planned = match planned {
            Ok(planned) => planned,
            Err(refusal) => {
                let failure = refusal.0.detail.trim_end_matches('.').to_owned();
                return not_done(&mut ends, failure, "it could not be planned");
            }
        };
        let out_of_reach = planned.plan.out_of_reach.first().map(out_of_reach_in_words);
        if let Some(reason) = planned.plan.not_asked.as_ref().map(|error| in_words(error)).or(out_of_reach) {
            ends.is_over = true;
            return worked(WorkEnd::Busy, reason);
        }
        // A volume that nobody knows any more is no part of the plan, and is not waited for.
        if !planned.plan.absent.is_empty() && !run.ask.partial {
            ends.is_over = true;
            let absent = planned.plan.absent.iter().map(ToString::to_string).collect();
            return worked(WorkEnd::LacksVolumes(absent), to_be_inserted(&planned.plan));
        }
        let Some(noted) = noted(&run, client, number, &planned) else {
            return not_done(&mut ends, "a name is none".to_owned(), "a name is none");
        };
        let (job, mut order) = match jobs.open(client) {
            Ok(opened) => opened,
            Err(reason) => {
                ends.is_over = true;
                return worked(WorkEnd::Busy, reason);
            }
        };
        match &run.into {
            None => {
                *locked(&restore.order) = Some(order);
                restore.changes.notify_waiters();
            }
            Some(into) => {
                if let CellOrder::Serve { restore, .. } = &mut order {
                    *restore = Some(into.clone());
                }
                if let Err(reason) = jobs.send(client, order) {
                    ends.is_over = true;
                    return worked(WorkEnd::Busy, reason);
                }
            }
        }
        let Planned { site, plan, notices, .. } = planned;
        let journal = site.begin_run("restore", &run.in_words(client));
        // On a full disk a restore goes on all the same: nothing that comes after it needs the entry.
        if let Some(journal) = &journal {
            let _ = entered(journal.number());
        }
        let report = stopped_by(stop, watch, || site.restore_to_client(&plan, &job, watch));
        // The client hears of the end of its job, and asks how it went.
        drop(job);
        *locked(&restore.order) = None;
        let mut ended = ended(report, &plan, std::mem::take(&mut *locked(&notices)));
        // What a client says of its end, and what that stops here, is no order of the server.
        let (end, outcome, code) = match (&ended.failure, ended.failed_count) {
            (Some(_), _) if stop.load(Ordering::Relaxed) => (WorkEnd::Stopped, JobOutcome::Failed, STOPPED),
            (Some(_), _) => (WorkEnd::Failed, JobOutcome::Failed, FAILED),
            (None, 0) => (WorkEnd::Succeeded, JobOutcome::Succeeded, DONE),
            (None, _) => (WorkEnd::Warned, JobOutcome::Warned, WITH_PROBLEMS),
        };
        let message = ended
            .failure
            .clone()
            .unwrap_or_else(|| format!("{} paths, {} bytes restored to the client", ended.members, ended.bytes));
        if let Some(journal) = journal {
            let tally = Tally { files: ended.members, bytes: ended.bytes, stored: 0 };
            journal.end(outcome, code, tally, &message);
        }
        // One whose server stops goes on with the next one; that it began is on record.
        let runs = site.catalog().active_runs().unwrap_or_default();
        let is_cancelled = runs.iter().any(|other| other.claim == active.claim && other.is_cancelled);
        if end == WorkEnd::Stopped && !is_cancelled {
            ends.is_over = true;
            return worked(end, message);
        }
        if end == WorkEnd::Stopped {
            ended.failure = Some(CANCELLED.to_owned());
        }
        let outcome = match end {
            WorkEnd::Succeeded => AuditOutcome::Done,
            WorkEnd::Warned => AuditOutcome::Failed { why: AuditFact::from("some of it could not be restored") },
            _ => AuditOutcome::Failed { why: AuditFact::from("it was not carried out to its end") },
        };
        // Whoever reads of its beginning alone has to look what became of it.
        let _ = note(&site, noted.came_to(outcome));
        ends.end(ended);
        worked(end, message)
    }

    /// Whether nobody at the client where a restore was typed has waited for it for a long time.
    fn is_given_up(&self, run: &QueuedRun) -> bool {
        let typed = restored_by(run).filter(|what| what.into.is_none());
        let known = locked(&self.0.all).get(&run.run).map(Arc::clone);
        let is_silent = |restore: Arc<Restore>| {
            !restore.is_at_work.load(Ordering::Relaxed) && restore.silent_for() > GIVEN_UP_AFTER
        };
        typed.is_some() && known.is_some_and(is_silent)
    }

    /// Whether a restore that was typed at a client can begin: whoever typed it waits for it, or has not for so long
    /// that it is given up in its turn.
    pub(super) fn may_begin(&self, run: i64, asker: &Asker) -> bool {
        let restore = self.of(run, asker);
        restore.is_asked_for() || restore.silent_for() > GIVEN_UP_AFTER
    }

    /// A run that is a restore of whoever asks.
    fn own(site: &Site, asker: &Asker, run: i64) -> Result<(QueuedRun, RestoreRun), Refusal> {
        let found = site.catalog().queued_run(run).map_err(|error| refused(&error.into()))?;
        let own = found.and_then(|found| Some((restored_by(&found)?, found)));
        let unknown = || Refusal::not_found("There is no such restore of yours.");
        own.filter(|(what, _)| what.asker == *asker).map(|(what, found)| (found, what)).ok_or_else(unknown)
    }

    /// Cancels a restore that somebody asked for. One at work ends a moment later.
    pub(super) fn stop_one(&self, site: &Site, asker: &Asker, run: i64) -> Result<(), Refusal> {
        let (queued, what) = Self::own(site, asker, run)?;
        // Nobody fills the list of what has ended with what never began.
        let was_waiting = site.withdraw_run(run).map_err(|error| refused(&error))?;
        if !was_waiting {
            return site.cancel_run(run).map(drop).map_err(|error| refused(&error));
        }
        EndsAtLast { restore: &self.of(run, asker), is_over: false }
            .end(RestoreEnded { failure: Some(CANCELLED.to_owned()), ..RestoreEnded::default() });
        note_cancelled(site, &queued, &what).map_err(|error| refusal_of(&error))
    }

    /// Waits for a restore to end, or to have an order for whoever typed it at a client, until `until`.
    pub(super) async fn wait(
        &self,
        site: &Site,
        asker: &Asker,
        query: &RestoreQuery,
        until: tokio::time::Instant,
    ) -> Result<RestoreSeen, Refusal> {
        let run = query.run;
        let look = |site: Site, asker: Asker| {
            blocking(move || {
                let catalog = |error: CatalogError| refused(&error.into());
                Self::own(&site, &asker, run)?;
                let Some(done) = site.catalog().done_run(run).map_err(catalog)? else { return Ok(None) };
                let job = done.job.map(|job| site.catalog().job(job)).transpose().map_err(catalog)?.flatten();
                let read = job.and_then(|job| job.end).map_or((0, 0), |end| (end.files, end.bytes));
                Ok(Some((done, read)))
            })
        };
        let known = locked(&self.0.all).get(&run).filter(|known| known.asker == *asker).map(Arc::clone);
        // One that was taken back is known here alone.
        if let Some(ended) = known.as_ref().and_then(|known| locked(&known.ended).clone()) {
            return Ok(RestoreSeen { ended: Some(ended), ..RestoreSeen::default() });
        }
        let mut done = look(site.clone(), asker.clone()).await?;
        if let (Some(done), None) = (&done, &known) {
            return Ok(RestoreSeen { ended: Some(ended_so(done)), ..RestoreSeen::default() });
        }
        let restore = known.unwrap_or_else(|| self.of(run, asker));
        loop {
            restore.hear();
            // Before it is looked: a change in between is not missed.
            let changes = restore.changes.notified();
            let ended = locked(&restore.ended).clone();
            let is_known = ended.is_some();
            let ended = ended.or_else(|| done.as_ref().map(ended_so));
            if ended.is_some() {
                if !is_known {
                    locked(&self.0.all).remove(&run);
                }
                return Ok(RestoreSeen { ended, ..RestoreSeen::default() });
            }
            let is_new = |order: &CellOrder| Some(order.job()) != query.had;
            let order = locked(&restore.order).clone().filter(is_new);
            if order.is_some() {
                return Ok(RestoreSeen { order, ..RestoreSeen::default() });
            }
            tokio::select! {
                () = changes => {}
                () = tokio::time::sleep(LOOKS) => match look(site.clone(), asker.clone()).await {
                    // It was taken back meanwhile.
                    Err(_) if locked(&restore.ended).is_some() => {}
                    looked => done = looked?,
                },
                () = tokio::time::sleep_until(until) => {
                    let site = site.clone();
                    let waits_for = blocking(move || Ok(run_waits_for(&site, run))).await?;
                    return Ok(RestoreSeen { waits_for, ..RestoreSeen::default() });
                }
            }
        }
    }

    /// Cancels those that somebody asked for who is let in no more, and those to such a client.
    pub(super) fn stop_of(&self, site: &Site, gone: &Asker) {
        // What cannot be seen now fails in its turn, as what cannot be cancelled does.
        let Ok(queued) = site.catalog().unfinished_runs() else { return };
        for run in queued.runs() {
            let Some(what) = restored_by(run) else { continue };
            let is_to = matches!(gone, Asker::Client(client) if *client == run.client);
            if what.asker == *gone || is_to {
                // One that cannot be cancelled now fails in its turn.
                if matches!(site.cancel_run(run.run), Ok(Cancelled::Removed)) {
                    let _ = note_cancelled(site, run, &what);
                }
            }
        }
    }
}

/// How a restore ended of which the queue alone knows: it was cancelled, or the server that carried it out is gone, and
/// what it knew with it.
fn ended_so((done, read): &(DoneRun, (u64, u64))) -> RestoreEnded {
    let failure = match done.outcome {
        RunOutcome::Succeeded | RunOutcome::Warned => None,
        RunOutcome::Cancelled => Some(CANCELLED.to_owned()),
        RunOutcome::Failed | RunOutcome::Missed => Some(done.message.clone()),
    };
    let notices = failure.is_none().then(|| done.message.clone()).into_iter().collect();
    let failed_count = u64::from(done.outcome == RunOutcome::Warned);
    let (members, bytes) = *read;
    RestoreEnded { failure, notices, failed_count, members, bytes, ..RestoreEnded::default() }
}

/// Notes that a restore was cancelled that had not begun.
fn note_cancelled(site: &Site, run: &QueuedRun, what: &RestoreRun) -> Result<(), CellError> {
    let Some(entry) = entry_of(what, &run.client, run.run) else { return Ok(()) };
    let why = AuditFact::from("it was cancelled before it began");
    note(site, entry.came_to(AuditOutcome::Failed { why }))
}

/// Does something that is to stop when the server says so: what it stops by itself says nothing to the server.
fn stopped_by<T>(stop: &AtomicBool, watch: &RestoreWatch, work: impl FnOnce() -> T) -> T {
    struct Over<'a>(&'a AtomicBool);
    impl Drop for Over<'_> {
        fn drop(&mut self) {
            self.0.store(true, Ordering::Relaxed);
        }
    }
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            while !is_over.load(Ordering::Relaxed) {
                if stop.load(Ordering::Relaxed) {
                    watch.stop.store(true, Ordering::Relaxed);
                }
                thread::sleep(STOP_LOOKS);
            }
        });
        let _over = Over(&is_over);
        work()
    })
}

/// A restore whose thread fails has ended, too.
struct EndsAtLast<'a> {
    restore: &'a Restore,
    is_over: bool,
}

impl EndsAtLast<'_> {
    fn end(&mut self, ended: RestoreEnded) {
        self.is_over = true;
        self.restore.is_at_work.store(false, Ordering::Relaxed);
        *locked(&self.restore.ended) = Some(ended);
        *locked(&self.restore.kept_until) = Some(Instant::now() + ENDED_KEPT);
        self.restore.changes.notify_waiters();
    }
}

impl Drop for EndsAtLast<'_> {
    fn drop(&mut self) {
        self.restore.is_at_work.store(false, Ordering::Relaxed);
        if !self.is_over {
            let failure = "the server failed because of a bug: please report it, with the server's output".to_owned();
            self.end(RestoreEnded { failure: Some(failure), ..RestoreEnded::default() });
        }
    }
}

fn ended(report: Result<RestoreReport, DirectorError>, plan: &RestorePlan, notices: Vec<String>) -> RestoreEnded {
    let nothing = RestoreEnded { notices, ..RestoreEnded::default() };
    match report {
        Err(error) => RestoreEnded { failure: Some(in_words(&error)), ..nothing },
        Ok(report) => {
            let files = report.failed.iter().map(|file| format!("{}: {}", file.path.escape_ascii(), file.reason));
            let lost = report.lost.iter().map(|damage| format!("lost: {damage}"));
            let written = report.extract.as_ref();
            let differing = written.and_then(ExtractReport::differing_in_words).into_iter();
            let problems = written.map(|written| {
                let in_words = |problem: &ExtractProblem| format!("{}: {}", path_text(&problem.path), problem.reason);
                written.problems.iter().map(in_words)
            });
            RestoreEnded {
                members: report.members,
                bytes: report.bytes,
                blocks: report.blocks,
                failed: differing.chain(files).chain(lost).chain(not_as_asked(plan)).take(FAILED_MAX).collect(),
                // What a client reports may be any number.
                failed_count: ((report.failed.len() + report.lost.len()) as u64)
                    .saturating_add(count_not_as_asked(plan))
                    .saturating_add(written.map_or(0, |written| written.differing))
                    .saturating_add(written.map_or(0, |written| written.problems_count)),
                kept: written.map_or(0, |written| written.kept.saturating_add(written.unchanged)),
                problems: problems.into_iter().flatten().take(FAILED_MAX).collect(),
                problems_count: written.map_or(0, |written| written.problems_count),
                ..nothing
            }
        }
    }
}
