//! Tasks: what users have the server do with cartridges. A robot takes minutes, so whoever asked hears of it in
//! questions that stay open for half a minute each; the task goes on whether somebody asks or not. One that waits for a
//! drive or a person can be stopped, and is stopped once nobody has asked about it for [`GIVEN_UP_AFTER`]: it may hold
//! a drive.
//!
//! A task is gone with the server. What it had reserved is free then, and the audit log has its beginning alone.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use capstan_director::{Event, Site};
use capstan_service::problem::Refusal;
use tokio::sync::Notify;
use tokio::time::Instant as Moment;

use super::CellError;
use super::error::{in_words, refused};
use super::users::task_words::{TaskBegun, TaskEnd, TaskQuery, TaskSeen};

/// Tasks of one user that are worked on at the same time, and of all.
const OF_USER_MAX: usize = 4;
const AT_ONCE_MAX: usize = 16;
/// How long the end of a task is kept for whoever asked for it.
const ENDED_KEPT: Duration = Duration::from_secs(600);
/// How long nobody may ask about a task that says nothing new, until it is to stop: longer than the command that waits
/// for it looks for a server that is away.
const GIVEN_UP_AFTER: Duration = Duration::from_secs(15 * 60);
/// Messages that are kept of a task.
const MESSAGES_MAX: usize = 1000;

/// The tasks of a server. Clones share them.
#[derive(Clone, Default)]
pub(super) struct Tasks(Arc<Mutex<KnownTasks>>);

#[derive(Default)]
struct KnownTasks {
    all: HashMap<u64, Arc<Task>>,
    /// The last number that was given.
    last: u64,
}

struct Task {
    user: String,
    messages: Mutex<Vec<String>>,
    ended: Mutex<Option<(Instant, TaskEnd)>>,
    changes: Notify,
    /// When somebody last asked about it, or it last said something.
    heard: Mutex<Instant>,
    /// Set when it is to stop.
    stop: Arc<AtomicBool>,
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Task {
    fn of(user: &str) -> Self {
        Self {
            user: user.to_owned(),
            messages: Mutex::default(),
            ended: Mutex::default(),
            changes: Notify::new(),
            heard: Mutex::new(Instant::now()),
            stop: Arc::default(),
        }
    }

    fn hear(&self) {
        *locked(&self.heard) = Instant::now();
    }

    fn say(&self, message: String) {
        // It gets on.
        self.hear();
        let mut messages = locked(&self.messages);
        if messages.len() < MESSAGES_MAX {
            messages.push(message);
        }
        drop(messages);
        self.changes.notify_waiters();
    }

    fn end(&self, end: TaskEnd) {
        *locked(&self.ended) = Some((Instant::now(), end));
        self.changes.notify_waiters();
    }

    /// What there is of it that was not heard yet.
    fn seen(&self, heard: usize) -> TaskSeen {
        // The end first: what was said before it is there then.
        let ended = locked(&self.ended).as_ref().map(|(_, end)| end.clone());
        TaskSeen { messages: locked(&self.messages).iter().skip(heard).cloned().collect(), ended }
    }
}

impl Tasks {
    /// Begins a task of a user, on a thread of its own.
    pub(super) fn begin(
        &self,
        site: &Site,
        user: &str,
        work: impl FnOnce(&Site) -> Result<TaskEnd, CellError> + Send + 'static,
    ) -> Result<TaskBegun, Refusal> {
        let task = Arc::new(Task::of(user));
        let told = Arc::clone(&task);
        let events = Arc::new(move |event| {
            if let Some(message) = in_message(&event) {
                told.say(message);
            }
        });
        // Before the lock: who waits for a task must not wait for the catalog.
        let site = site.beside(events).map_err(|error| refused(&error))?.stopped_by(&task.stop);
        let mut known = locked(&self.0);
        let KnownTasks { all, last } = &mut *known;
        let is_kept = |task: &Task| locked(&task.ended).as_ref().is_none_or(|(at, _)| at.elapsed() < ENDED_KEPT);
        all.retain(|_, task| is_kept(task));
        let at_work = all.values().filter(|task| locked(&task.ended).is_none());
        let (own, others): (Vec<_>, Vec<_>) = at_work.partition(|task| task.user == user);
        if own.len() >= OF_USER_MAX || own.len() + others.len() >= AT_ONCE_MAX {
            return Err(Refusal::conflict(
                "The server works on as many tasks as it may already: ask again when one has ended.",
            ));
        }
        // A server that starts anew gives no number twice.
        let now = u64::try_from(site.now_ns() / 1_000_000).unwrap_or_default();
        *last = now.max(*last + 1);
        let number = *last;
        let worked = Arc::clone(&task);
        let begun = thread::Builder::new().name("task".to_owned()).spawn(move || {
            let done = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| work(&site)));
            worked.end(match done {
                Ok(Ok(end)) => end,
                Ok(Err(error)) => TaskEnd { failure: Some(in_words(&error)), ..TaskEnd::default() },
                Err(_) => {
                    let failure = "the server failed at it: look at what it printed".to_owned();
                    TaskEnd { failure: Some(failure), ..TaskEnd::default() }
                }
            });
        });
        begun.map_err(|_| Refusal::unready("The server can begin no task now: ask again in a minute."))?;
        all.insert(number, task);
        Ok(TaskBegun { task: number })
    }

    fn own(&self, user: &str, number: u64) -> Result<Arc<Task>, Refusal> {
        let task = locked(&self.0).all.get(&number).filter(|task| task.user == user).map(Arc::clone);
        task.ok_or_else(|| {
            Refusal::not_found(
                "There is no such task of yours. The server may have started anew meanwhile: look what was done \
                 (`capstan library inventory`, `capstan volumes`).",
            )
        })
    }

    /// Has a task of a user stop, as soon as it waits for something.
    pub(super) fn stop(&self, user: &str, number: u64) -> Result<TaskBegun, Refusal> {
        self.own(user, number)?.stop.store(true, Ordering::Relaxed);
        Ok(TaskBegun { task: number })
    }

    /// Has all tasks of a user stop who is let in no more.
    pub(super) fn stop_of(&self, user: &str) {
        locked(&self.0).all.values().filter(|task| task.user == user).for_each(|task| {
            task.stop.store(true, Ordering::Relaxed);
        });
    }

    /// Has all tasks stop, as soon as they wait for something, that say nothing new and that nobody asks about.
    pub(super) fn stop_given_up(&self, now: Instant) {
        let is_given_up = |task: &Task| now.saturating_duration_since(*locked(&task.heard)) > GIVEN_UP_AFTER;
        locked(&self.0).all.values().filter(|task| is_given_up(task)).for_each(|task| {
            task.stop.store(true, Ordering::Relaxed);
        });
    }

    /// What is new of a task of a user, as soon as something is.
    pub(super) async fn wait(&self, user: &str, query: TaskQuery, until: Moment) -> Result<TaskSeen, Refusal> {
        let task = self.own(user, query.task)?;
        task.hear();
        loop {
            // Before it is looked: a change in between is not missed.
            let mut changes = std::pin::pin!(task.changes.notified());
            changes.as_mut().enable();
            let seen = task.seen(query.heard);
            if !seen.messages.is_empty() || seen.ended.is_some() {
                return Ok(seen);
            }
            tokio::select! {
                () = changes => {}
                () = tokio::time::sleep_until(until) => return Ok(seen),
            }
        }
    }
}

/// What whoever waits for a task is told of an event.
fn in_message(event: &Event) -> Option<String> {
    match event {
        Event::Created { volser } => Some(format!("new cartridge {volser}")),
        Event::Labelled { volser, pool, .. } if pool.is_empty() => Some(format!("labelled {volser} for scratch")),
        Event::Labelled { volser, pool, .. } => Some(format!("labelled {volser} for pool {pool}")),
        Event::Waiting { message } | Event::Notice { message } => Some(message.clone()),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

    use super::*;

    /// A task waited for a person without end, and held its drive, after the machine that had asked for it was gone.
    #[test]
    fn a_task_that_nobody_asks_about_is_stopped() {
        let tasks = Tasks::default();
        let before = Instant::now();
        for (number, user) in [(1, "ada"), (2, "bert")] {
            locked(&tasks.0).all.insert(number, Arc::new(Task::of(user)));
        }
        let is_stopped = |user, number| tasks.own(user, number).unwrap().stop.load(Ordering::Relaxed);
        tasks.stop_given_up(before + GIVEN_UP_AFTER);
        assert!(!is_stopped("ada", 1) && !is_stopped("bert", 2));
        let between = Instant::now();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        runtime.block_on(tasks.wait("ada", TaskQuery { task: 1, heard: 0 }, Moment::now())).unwrap();
        tasks.stop_given_up(between + GIVEN_UP_AFTER);
        assert!(!is_stopped("ada", 1) && is_stopped("bert", 2));
    }
}
