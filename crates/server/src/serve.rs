//! The loop: enters what is due, begins what can begin, and records what came of it.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use capstan_catalog::{ActiveRun, CatalogError, DueDecision, Entered, NewRun, RunEnd, RunOutcome};
use capstan_director::{DirectorError, ServerTerm, Site};
use uuid::Uuid;

use crate::decide::{RunDecision, decide};
use crate::due::due;
use crate::look::{Look, look};

/// How often the server looks.
const LOOKS: Duration = Duration::from_millis(500);
/// How long it waits after a look that failed.
const LOOKS_AFTER_FAILURE: Duration = Duration::from_secs(5);
/// How often an end that could not be recorded is tried again.
const RECORDS_AGAIN: Duration = Duration::from_secs(2);

/// What the server says while it works.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Notice {
    /// Runs of a server before this one wait again.
    Returned {
        /// How many.
        runs: usize,
    },
    /// A run is due, and waits.
    Due {
        /// The run.
        run: i64,
        /// Its policy.
        policy: String,
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
        /// Its policy.
        policy: String,
        /// How often it was begun, this time included.
        attempt: u32,
    },
    /// A run has ended.
    Ended {
        /// The run.
        run: i64,
        /// Its policy.
        policy: String,
        /// How.
        outcome: RunOutcome,
        /// What an operator should know.
        message: String,
    },
    /// A run failed, and is tried again.
    Retried {
        /// The run.
        run: i64,
        /// Its policy.
        policy: String,
        /// Why it failed.
        message: String,
        /// When it begins at the earliest, nanoseconds since 1970.
        not_before_ns: i64,
    },
    /// The server could not look or record; it tries again.
    Trouble {
        /// Why.
        reason: String,
    },
}

/// What came of a run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Worked {
    /// How it ended.
    pub outcome: RunOutcome,
    /// What an operator should know, in a line.
    pub message: String,
}

/// Who does the work of runs.
pub trait Worker: Sync {
    /// Does the work of a run, in this thread, until it is done or told to stop. `entered` takes the number of the
    /// run's entry in the history, once it has one.
    fn work(&self, run: &ActiveRun, stop: &Arc<AtomicBool>, entered: &dyn Fn(i64)) -> Worked;

    /// Says what the server does.
    fn say(&self, notice: Notice);
}

/// Serves a site until it is told to stop; runs at work are then stopped too, and wait for the next server.
///
/// # Errors
/// Another server has taken over, or the queue of servers before this one cannot be read.
pub fn serve(site: &Site, term: &ServerTerm, worker: &dyn Worker, stop: &AtomicBool) -> Result<(), DirectorError> {
    let server = Server { site, term, worker, stop, working: Mutex::default() };
    let returned = server.site.catalog().return_lost(term.number(), site.now_ns())?;
    if !returned.is_empty() {
        worker.say(Notice::Returned { runs: returned.len() });
    }
    thread::scope(|scope| {
        let served = server.serve(&|run| {
            let server = &server;
            scope.spawn(move || server.work(&run));
        });
        server.stop_all();
        served
    })
}

struct Server<'a> {
    site: &'a Site,
    term: &'a ServerTerm,
    worker: &'a dyn Worker,
    stop: &'a AtomicBool,
    /// Runs at work, and what stops each.
    working: Mutex<HashMap<i64, Arc<AtomicBool>>>,
}

impl Server<'_> {
    fn serve(&self, begin: &dyn Fn(ActiveRun)) -> Result<(), DirectorError> {
        let mut trouble = String::new();
        while !self.stop.load(Ordering::Relaxed) {
            let pause = match self.turn(begin) {
                Ok(()) => {
                    trouble.clear();
                    LOOKS
                }
                Err(error @ DirectorError::Catalog(CatalogError::ServerReplaced)) => return Err(error),
                Err(error) => {
                    let reason = error.to_string();
                    if reason != trouble {
                        self.worker.say(Notice::Trouble { reason: reason.clone() });
                        trouble = reason;
                    }
                    LOOKS_AFTER_FAILURE
                }
            };
            self.pause(pause);
        }
        Ok(())
    }

    /// Waits, but not for longer than nobody wants it to stop.
    fn pause(&self, pause: Duration) {
        let mut left = pause;
        while !left.is_zero() && !self.stop.load(Ordering::Relaxed) {
            let step = left.min(LOOKS);
            thread::sleep(step);
            left -= step;
        }
    }

    fn turn(&self, begin: &dyn Fn(ActiveRun)) -> Result<(), DirectorError> {
        let before = look(self.site)?;
        // What has just been entered may begin at once.
        let look = if self.enter_due(&before)? { look(self.site)? } else { before };
        for active in look.active.iter().filter(|active| active.is_cancelled) {
            if let Some(stop) = locked(&self.working).get(&active.run.run) {
                stop.store(true, Ordering::Relaxed);
            }
        }
        for (run, verdict) in decide(&look.situation) {
            if verdict != RunDecision::Begins {
                continue;
            }
            let claim = Uuid::new_v4().into_bytes();
            let claimed = self.site.catalog().claim_run(self.term.number(), run, claim, self.site.now_ns())?;
            let Some(active) = claimed else { continue };
            self.worker.say(Notice::Begun { run, policy: active.run.policy.clone(), attempt: active.run.attempt });
            locked(&self.working).insert(run, Arc::default());
            begin(active);
        }
        Ok(())
    }

    /// Enters what is due; whether anything was entered.
    fn enter_due(&self, look: &Look) -> Result<bool, DirectorError> {
        let mut any = false;
        for come in due(&look.scheduled, look.situation.now) {
            let timing = look.policy(&come.policy).and_then(|policy| policy.config.timing().ok());
            let priority = timing.map_or(0, |timing| timing.priority);
            let run = come.run.map(|run| NewRun {
                policy: &come.policy,
                client: &come.client,
                due_ns: Some(ns(run.due)),
                priority,
                not_before_ns: ns(run.starts),
            });
            let decision = DueDecision {
                policy: &come.policy,
                client: &come.client,
                decided_ns: ns(come.decided),
                run,
                missed: come.missed.as_deref().map(|reason| (ns(come.decided), reason)),
            };
            let entered = self.site.catalog().enter_due(self.term.number(), &decision, self.site.now_ns())?;
            if let Some(reason) = come.missed {
                self.worker.say(Notice::Missed { policy: come.policy.clone(), reason });
            }
            match entered {
                Some(Entered::Waits(run)) => {
                    any = true;
                    self.worker.say(Notice::Due { run, policy: come.policy });
                }
                Some(Entered::Behind(other)) => {
                    let reason = format!("run {other} before it was not done");
                    self.worker.say(Notice::Missed { policy: come.policy, reason });
                }
                Some(Entered::Before) | None => {}
            }
        }
        Ok(any)
    }

    /// Works on a run, and records what came of it.
    fn work(&self, active: &ActiveRun) {
        let run = active.run.run;
        let stop = locked(&self.working).get(&run).map(Arc::clone).unwrap_or_default();
        let entered = |job: i64| {
            // Who looks at the queue misses a pointer to the history, and nothing else.
            let _ = self.site.catalog().run_has_job(active.claim, job);
        };
        let worked = self.worker.work(active, &stop, &entered);
        let mut said = false;
        while let Err(error) = self.record(active, &worked) {
            if !said {
                self.worker.say(Notice::Trouble { reason: error.to_string() });
                said = true;
            }
            // The next server has it run again, which goes on from what is there.
            if self.stop.load(Ordering::Relaxed) {
                break;
            }
            thread::sleep(RECORDS_AGAIN);
        }
        locked(&self.working).remove(&run);
    }

    fn record(&self, active: &ActiveRun, worked: &Worked) -> Result<(), DirectorError> {
        let Worked { outcome, message } = worked;
        let run = &active.run;
        let now_ns = self.site.now_ns();
        let mut catalog = self.site.catalog();
        let is_cancelled = catalog.active_runs()?.iter().any(|row| row.claim == active.claim && row.is_cancelled);
        let policy = run.policy.clone();
        if *outcome == RunOutcome::Cancelled && !is_cancelled {
            // The server was told to stop, and not the run.
            catalog.retry_run(active.claim, run.attempt, 0)?;
            return Ok(());
        }
        drop(catalog);
        if *outcome == RunOutcome::Failed
            && let Some(wait_ns) = self.retry_after_ns(&policy, run.attempt)?
        {
            let not_before_ns = now_ns.saturating_add(wait_ns);
            if self.site.catalog().retry_run(active.claim, run.attempt + 1, not_before_ns)? {
                let message = message.clone();
                self.worker.say(Notice::Retried { run: run.run, policy, message, not_before_ns });
            }
            return Ok(());
        }
        let end = RunEnd { ended_ns: now_ns, outcome: *outcome, message };
        if self.site.catalog().end_run(active.claim, &end)? {
            self.worker.say(Notice::Ended { run: run.run, policy, outcome: *outcome, message: message.clone() });
        }
        Ok(())
    }

    /// How long a run that failed waits until it is tried again; `None` if it is not.
    fn retry_after_ns(&self, policy: &str, attempt: u32) -> Result<Option<i64>, DirectorError> {
        let policies = self.site.policies()?;
        let timing = policies.iter().find(|other| other.name == policy).and_then(|policy| policy.config.timing().ok());
        let wait = timing.filter(|timing| attempt <= timing.retries).map(|timing| timing.retry_after(attempt));
        Ok(wait.map(|wait| i64::try_from(wait.as_nanos()).unwrap_or(i64::MAX)))
    }

    fn stop_all(&self) {
        for stop in locked(&self.working).values() {
            stop.store(true, Ordering::Relaxed);
        }
    }
}

fn ns(at: jiff::Timestamp) -> i64 {
    i64::try_from(at.as_nanosecond()).unwrap_or(i64::MAX)
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
