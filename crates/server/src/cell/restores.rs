//! Restores to clients: those that a client asks for, which gets its own objects and learns of no others, and those
//! that a user asks for.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use capstan_catalog::{JobOutcome, ObjectFilter};
use capstan_client::restores::{AskRestore, ObjectsAnswer, RestoreEnded, RestoreOutlook, RestorePlanned, RestoreSeen};
use capstan_client::{CellOrder, JobId};
use capstan_director::{DirectorError, Event, PathFilter, Place, RestorePlan, RestoreReport, Site, Tally, index_path};
use capstan_mover::{NetworkJob, RestoreWatch};
use capstan_service::audit::{AuditEntry, AuditFact, AuditOutcome};
use capstan_service::problem::Refusal;
use tokio::sync::Notify;

use super::error::{in_words, refusal_of};
use super::own_object::{OBJECTS_MAX, own_object};
use super::users::{KnownNames, note};

/// How long the end of a restore is kept for whoever asked for it.
const ENDED_KEPT: Duration = Duration::from_secs(600);
/// Restores of one client at a time.
const RESTORES_MAX: usize = 2;
/// Files that are named to whoever asked.
const FAILED_MAX: usize = 200;
/// Ended restores that are kept of each asker.
const ENDED_MAX: usize = 8;
/// How many exit codes of history stand for: done, and done with problems.
const DONE: u8 = 0;
const WITH_PROBLEMS: u8 = 3;
const FAILED: u8 = 1;

/// The restores of a cell. They go with the server.
#[derive(Clone, Default)]
pub(super) struct Restores(Arc<AllRestores>);

#[derive(Default)]
struct AllRestores {
    all: Mutex<HashMap<JobId, Arc<Restore>>>,
    threads: Mutex<Vec<JoinHandle<()>>>,
    /// Set with `all` locked: from then on, none begins.
    is_stopping: AtomicBool,
}

/// A restore that somebody asks for.
pub(super) struct RestoreWish<'a> {
    /// Whose data.
    pub(super) of: &'a str,
    /// To which client.
    pub(super) to: &'a str,
    /// Who asks.
    pub(super) asker: Asker,
    /// What.
    pub(super) asked: &'a AskRestore,
    /// What is noted of it in the audit log.
    pub(super) noted: AuditEntry,
}

/// Who asked for a restore, and hears of its end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Asker {
    /// The client of this name, which writes it itself.
    Client(String),
    /// The user of this name.
    User(String),
}

struct Restore {
    /// The client that it is written at.
    client: String,
    asker: Asker,
    stop: Arc<AtomicBool>,
    ended: Mutex<Option<RestoreEnded>>,
    /// Until when its end is kept, once it has ended.
    kept_until: Mutex<Option<Instant>>,
    ends: Notify,
}

/// How a job of a client is opened, and how the client hears of it.
pub(super) trait RestoreJobs {
    /// Opens a job of a client, and gives the order that tells it to come.
    fn open(&self, client: &str) -> Result<(NetworkJob, CellOrder), String>;

    /// Sends the client the order, if it does not get it as the answer to its question.
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

fn refused(error: &DirectorError) -> Refusal {
    let text = format!("{}.", in_words(error));
    match error {
        DirectorError::Catalog(_) => Refusal::unready(text),
        _ => Refusal::malformed(text),
    }
}

fn unknown(client: &str, text: &str) -> Refusal {
    Refusal::not_found(format!(
        "Nothing of client {client} was backed up as {text}: `capstan client objects` at the machine, or `capstan \
         objects` of a user, lists what there is."
    ))
}

/// The object of a client that a text names, and the path behind the last colon that leaves one in front of it.
fn place(site: &Site, client: &str, text: &str, at_ns: Option<i64>) -> Result<Place, Refusal> {
    let own = |name: &str| site.find_object(name, at_ns).ok().filter(|object| object.client == client);
    if let Some(object) = own(text) {
        return Ok(Place { object: object.id, paths: Vec::new() });
    }
    let colons = text.char_indices().filter(|&(_, c)| c == ':').map(|(at, _)| at).collect::<Vec<_>>();
    for at in colons.into_iter().rev() {
        let Some(object) = own(&text[..at]) else { continue };
        let typed = &text.as_bytes()[at + 1..];
        let paths = match index_path(typed).is_empty() {
            true => Vec::new(),
            false => site.paths_in(&object, typed).map_err(|error| refused(&error))?,
        };
        return Ok(Place { object: object.id, paths });
    }
    // A path below a source, as people type it.
    for above in Path::new(OsStr::from_bytes(text.as_bytes())).ancestors().skip(1) {
        let Some(object) = above.to_str().and_then(own) else { continue };
        let paths = site.paths_in(&object, text.as_bytes()).map_err(|error| refused(&error))?;
        return Ok(Place { object: object.id, paths });
    }
    Err(unknown(client, text))
}

impl Restores {
    /// Plans a restore, and begins it unless only the plan is asked for.
    pub(super) fn begin(
        &self,
        site: &Site,
        wish: &RestoreWish<'_>,
        jobs: &dyn RestoreJobs,
    ) -> Result<RestorePlanned, Refusal> {
        let RestoreWish { of: client, asked, .. } = *wish;
        let notices: Arc<Mutex<Vec<String>>> = Arc::default();
        let told = Arc::clone(&notices);
        let events = Arc::new(move |event| {
            if let Event::Notice { message } = event {
                locked(&told).push(message);
            }
        });
        let site = site.beside(events).map_err(|error| refused(&error))?.for_client(client);
        let mut places: Vec<Place> = Vec::new();
        for text in &asked.places {
            let new = place(&site, client, text, asked.at_ns)?;
            match places.iter_mut().find(|place| place.object == new.object) {
                // The whole of an object holds each of its paths.
                Some(place) if place.paths.is_empty() || new.paths.is_empty() => place.paths.clear(),
                Some(place) => place.paths.extend(new.paths),
                None => places.push(new),
            }
        }
        if places.is_empty() {
            return Err(Refusal::malformed("A restore names at least one object or source."));
        }
        let filter = PathFilter::new(&asked.include, &asked.exclude).map_err(|error| refused(&error))?;
        let plan = site.plan_restore_of(&places, &filter).map_err(|error| refused(&error))?;
        plan.check_strip(usize::from(asked.strip)).map_err(|error| refused(&error))?;
        let unused = filter.unused().into_iter().map(|option| format!("{option} matched nothing"));
        locked(&notices).extend(unused.chain(of_plan(&plan)));
        let outlook = RestoreOutlook {
            members: plan.members,
            bytes: plan.bytes,
            volumes: plan.passes.iter().map(|pass| pass.volser.to_string()).collect(),
            estimate_ns: plan.estimate_ns,
            notices: std::mem::take(&mut *locked(&notices)),
        };
        if asked.plan_only {
            return Ok(RestorePlanned { outlook, order: None });
        }
        let objects: Vec<_> = places.iter().map(|place| place.object.to_string()).collect();
        let objects: Vec<_> = objects.iter().map(String::as_str).collect();
        let noted =
            wish.noted.clone().with("objects", AuditFact::from(KnownNames(&objects))).with("paths", plan.members);
        let order = self.carry_out(site, wish, noted, plan, notices, jobs)?;
        Ok(RestorePlanned { outlook, order: Some(order) })
    }

    /// Begins a restore in a thread of its own.
    fn carry_out(
        &self,
        site: Site,
        wish: &RestoreWish<'_>,
        noted: AuditEntry,
        plan: RestorePlan,
        notices: Arc<Mutex<Vec<String>>>,
        jobs: &dyn RestoreJobs,
    ) -> Result<CellOrder, Refusal> {
        let client = wish.to;
        let restore = Arc::new(Restore {
            client: client.to_owned(),
            asker: wish.asker.clone(),
            stop: Arc::default(),
            ended: Mutex::default(),
            kept_until: Mutex::default(),
            ends: Notify::new(),
        });
        let (job, order) = jobs.open(client).map_err(Refusal::malformed)?;
        {
            let mut all = locked(&self.0.all);
            let of_client = |restore: &&Arc<Restore>| restore.client == client;
            if self.0.is_stopping.load(Ordering::Relaxed) {
                return Err(Refusal::unready("The server stops: ask again when it runs."));
            }
            all.retain(|_, restore| locked(&restore.kept_until).is_none_or(|until| Instant::now() < until));
            let of_asker = all.iter().filter(|(_, restore)| restore.asker == wish.asker);
            let mut ended: Vec<_> =
                of_asker.filter_map(|(job, one)| Some((*locked(&one.kept_until).as_ref()?, *job))).collect();
            ended.sort();
            for (_, job) in ended.iter().take(ended.len().saturating_sub(ENDED_MAX)) {
                all.remove(job);
            }
            let is_under_way = |restore: &&Arc<Restore>| of_client(restore) && locked(&restore.ended).is_none();
            if all.values().filter(is_under_way).count() >= RESTORES_MAX {
                return Err(Refusal::conflict(format!(
                    "{RESTORES_MAX} restores to client {client} are under way: wait for one of them to end."
                )));
            }
            all.insert(order.job(), Arc::clone(&restore));
        }
        // What cannot be noted is not done.
        if let Err(error) = note(&site, noted.clone().came_to(AuditOutcome::Begun)) {
            locked(&self.0.all).remove(&order.job());
            return Err(refusal_of(&error));
        }
        let not_begun = |why: &'static str| {
            locked(&self.0.all).remove(&order.job());
            let _ = note(&site, noted.clone().came_to(AuditOutcome::Failed { why: AuditFact::from(why) }));
        };
        if let Err(reason) = jobs.send(client, order.clone()) {
            not_begun("the client could not be told");
            return Err(Refusal::conflict(reason));
        }
        let (log_site, log_entry) = (site.clone(), noted.clone());
        let subject = match wish.of == client {
            true => format!("{} to {client}", wish.asked.places.join(" ")),
            false => format!("{} of {} to {client}", wish.asked.places.join(" "), wish.of),
        };
        let work = move || {
            // Whatever goes wrong in it, its client hears that it has ended.
            let _ends = EndsAtLast(Arc::clone(&restore));
            let journal = site.begin_run("restore", &subject);
            let watch = RestoreWatch { stop: Arc::clone(&restore.stop), ..RestoreWatch::default() };
            let report = site.restore_to_client(&plan, &job, &watch);
            // The client hears of the end of its job, and asks how it went.
            drop(job);
            let ended = ended(report, std::mem::take(&mut *locked(&notices)));
            let outcome = match (&ended.failure, ended.failed_count) {
                (None, 0) => AuditOutcome::Done,
                (None, _) => AuditOutcome::Failed { why: AuditFact::from("some of it could not be restored") },
                (Some(_), _) => AuditOutcome::Failed { why: AuditFact::from("it was not carried out to its end") },
            };
            // That it began is on record: whoever reads that alone has to look what became of it.
            let _ = note(&site, noted.came_to(outcome));
            if let Some(journal) = journal {
                let (outcome, code) = match (&ended.failure, ended.failed_count) {
                    (Some(_), _) => (JobOutcome::Failed, FAILED),
                    (None, 0) => (JobOutcome::Succeeded, DONE),
                    (None, _) => (JobOutcome::Warned, WITH_PROBLEMS),
                };
                let tally = Tally { files: ended.members, bytes: ended.bytes, stored: 0 };
                let message = ended.failure.clone().unwrap_or_else(|| {
                    format!("{} paths, {} bytes restored to the client", ended.members, ended.bytes)
                });
                journal.end(outcome, code, tally, &message);
            }
            *locked(&restore.ended) = Some(ended);
            *locked(&restore.kept_until) = Some(Instant::now() + ENDED_KEPT);
            restore.ends.notify_waiters();
        };
        let job = order.job();
        let Ok(thread) = thread::Builder::new().name("restore".to_owned()).spawn(work) else {
            locked(&self.0.all).remove(&job);
            let why = AuditFact::from("the system gave no thread");
            let _ = note(&log_site, log_entry.came_to(AuditOutcome::Failed { why }));
            return Err(Refusal::failed());
        };
        let mut threads = locked(&self.0.threads);
        threads.retain(|thread| !thread.is_finished());
        threads.push(thread);
        Ok(order)
    }

    /// A restore that somebody asked for.
    fn of(&self, asker: &Asker, job: JobId) -> Result<Arc<Restore>, Refusal> {
        let found = locked(&self.0.all).get(&job).filter(|restore| restore.asker == *asker).map(Arc::clone);
        let unknown = "There is no such restore of yours: it ended long ago, or the server has started anew since.";
        found.ok_or_else(|| Refusal::not_found(unknown))
    }

    /// Stops a restore that somebody asked for. It ends a moment later.
    pub(super) fn stop_one(&self, asker: &Asker, job: JobId) -> Result<(), Refusal> {
        self.of(asker, job)?.stop.store(true, Ordering::Relaxed);
        Ok(())
    }

    /// Waits for a restore to end, until `until`.
    pub(super) async fn wait(
        &self,
        asker: &Asker,
        job: JobId,
        until: tokio::time::Instant,
    ) -> Result<RestoreSeen, Refusal> {
        let restore = self.of(asker, job)?;
        loop {
            // Before it is looked: an end in between is not missed.
            let ends = restore.ends.notified();
            let ended = locked(&restore.ended).clone();
            if ended.is_some() {
                return Ok(RestoreSeen { ended });
            }
            tokio::select! {
                () = ends => {}
                () = tokio::time::sleep_until(until) => return Ok(RestoreSeen { ended: None }),
            }
        }
    }

    /// Stops all that is under way, and waits until drives are given back.
    pub(super) fn stop(&self) {
        {
            let all = locked(&self.0.all);
            self.0.is_stopping.store(true, Ordering::Relaxed);
            all.values().for_each(|restore| restore.stop.store(true, Ordering::Relaxed));
        }
        let threads = std::mem::take(&mut *locked(&self.0.threads));
        for thread in threads {
            let _ = thread.join();
        }
    }

    /// Stops those that a user asked for who is let in no more.
    pub(super) fn stop_of_user(&self, user: &str) {
        let all = locked(&self.0.all);
        let own = all.values().filter(|restore| restore.asker == Asker::User(user.to_owned()));
        own.for_each(|restore| restore.stop.store(true, Ordering::Relaxed));
    }

    /// Stops those of a client that is let in no more.
    pub(super) fn stop_of(&self, client: &str) {
        let all = locked(&self.0.all);
        let own = all.values().filter(|restore| restore.client == client);
        own.for_each(|restore| restore.stop.store(true, Ordering::Relaxed));
    }
}

/// A restore whose thread fails has ended, too.
struct EndsAtLast(Arc<Restore>);

impl Drop for EndsAtLast {
    fn drop(&mut self) {
        let failure = Some("the server failed because of a bug: please report it, with the server's output".to_owned());
        let nothing = RestoreEnded { failure, ..ended(Ok(RestoreReport::default()), Vec::new()) };
        locked(&self.0.ended).get_or_insert(nothing);
        locked(&self.0.kept_until).get_or_insert(Instant::now() + ENDED_KEPT);
        self.0.ends.notify_waiters();
    }
}

/// What a person should know of a plan.
fn of_plan(plan: &RestorePlan) -> Vec<String> {
    let keys = plan.without_key.iter().map(|(_, error)| error.to_string());
    let absent = plan.absent.iter().map(|volser| {
        format!(
            "volume {volser} is not in the library, and no volume there has its part of this: ask for it to be inserted"
        )
    });
    let open =
        plan.interrupted.then(|| "an object was interrupted and never finished: what it has is restored".to_owned());
    let older = |count: usize, what: &str| (count > 0).then(|| format!("{count} {what}"));
    keys.chain(absent)
        .chain(open)
        .chain(older(plan.lost.len(), "paths could not be read when they were backed up: nothing of them is stored"))
        .chain(older(plan.incomplete.len(), "paths are incomplete, because they could not be read to their end"))
        .chain(older(plan.older.len(), "paths could not be read by the last backup: older versions are restored"))
        .collect()
}

fn ended(report: Result<RestoreReport, DirectorError>, notices: Vec<String>) -> RestoreEnded {
    let nothing = RestoreEnded { notices, ..RestoreEnded::default() };
    match report {
        Err(error) => RestoreEnded { failure: Some(in_words(&error)), ..nothing },
        Ok(report) => {
            let files = report.failed.iter().map(|file| format!("{}: {}", file.path.escape_ascii(), file.reason));
            let lost = report.lost.iter().map(|damage| format!("lost: {damage}"));
            let written = report.extract.as_ref();
            let problems = written.map(|written| written.problems.iter().map(ToString::to_string));
            RestoreEnded {
                members: report.members,
                bytes: report.bytes,
                blocks: report.blocks,
                failed: files.chain(lost).take(FAILED_MAX).collect(),
                failed_count: (report.failed.len() + report.lost.len()) as u64
                    + written.map_or(0, |written| written.problems_count),
                kept: written.map_or(0, |written| written.kept + written.unchanged),
                problems: problems.into_iter().flatten().take(FAILED_MAX).collect(),
                problems_count: written.map_or(0, |written| written.problems_count),
                ..nothing
            }
        }
    }
}
