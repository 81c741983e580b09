//! The queue: runs of policies, and restores, that wait, that are at work, and that have ended.
//!
//! ```text
//! enter_due, enter_run, enter_restore
//!         '----------------> pending_runs --claim_run--> active_runs --end_run--> done_runs
//!                               ^   '--cancel_run------------|------------------^
//!                               '------retry_run, return_lost'
//! ```
//! A run moves from table to table, in one transaction, so the tables that are read all day stay as small as what waits
//! and works. What a schedule makes due is named by policy, client and due time, and is entered once, however often it
//! is decided on.
//!
//! Only the server moves runs on. It has reserved [`Resource::Server`], and what enters due runs, begins runs and takes
//! over lost ones names the generation of that reservation, its term: a server that was replaced does none of that any
//! more. Whoever works on a run got a random number with it, the claim, and can end it only by that.

use crate::CatalogError;
use crate::catalog::{Catalog, number};
use crate::db::{Db, Transaction, params};
use crate::job::JobOutcome;
use crate::reservation::Resource;

mod entering;
mod progress;
mod rows;
mod whole;

pub use entering::{DueDecision, Entered, NewRun, NewSchedule};
pub use progress::RunProgress;

pub(crate) use whole::WholeQueue;

use entering::numbered;
use rows::{
    ACTIVE, DONE, PENDING, RUN, active, cancelled, done, outcome_of, pending, put_active, put_cancelled, put_done,
    put_pending, queued, take_active,
};

/// Runs that have ended and are kept; older ones are forgotten when another ends.
const DONE_KEPT: i64 = 10_000;
/// When a restore begins that is not noted yet: never.
const NOT_NOTED_NS: i64 = i64::MAX;

/// A run of a policy for a client, or a restore to one, wherever in the queue it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct QueuedRun {
    /// Its number.
    pub run: i64,
    /// The policy; empty for a restore.
    pub policy: String,
    /// The client whose data is backed up, or that what is restored is written at.
    pub client: String,
    /// When its schedule had it due, nanoseconds since 1970; `None` for one that somebody entered.
    pub due_ns: Option<i64>,
    /// The higher, the sooner.
    pub priority: i64,
    /// When it was entered, nanoseconds since 1970.
    pub entered_ns: i64,
    /// Which attempt it is, or will be; 0 for a run that never begins.
    pub attempt: u32,
    /// How many servers ended while they worked on it.
    pub returns: u32,
    /// What is restored, for a restore: in the words of whoever enters and carries out restores.
    pub restore: Option<String>,
    /// Whether somebody asked for a full backup, whatever its policy says.
    pub is_full: bool,
    /// The newest time at which its schedule had another run due that did not begin because of this one, nanoseconds
    /// since 1970: what it backed up before that time is not what is there now.
    pub skipped_due_ns: Option<i64>,
    /// Whether it was at work when its server ended, and goes on: no window holds for what has begun.
    pub has_begun: bool,
    /// Whether somebody asked that it begins outside the window of its policy, too.
    pub any_time: bool,
}

impl QueuedRun {
    /// Its policy, or what it is instead.
    pub fn name(&self) -> &str {
        if self.restore.is_some() { "restore" } else { &self.policy }
    }
}

/// A run that waits.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PendingRun {
    /// The run.
    pub run: QueuedRun,
    /// It does not begin before, nanoseconds since 1970.
    pub not_before_ns: i64,
    /// Whether an operator keeps it from beginning.
    pub is_held: bool,
    /// Whether it has waited since it was entered, and not only since it may begin: it has not had its turn.
    pub keeps_age: bool,
    /// Why its last attempt did not do it, if there was one and it said so.
    pub last_message: Option<String>,
    /// Volumes that this one found not to be in any library: a restore waits for them to be inserted.
    pub lacks_volumes: Vec<String>,
}

impl PendingRun {
    /// A run that may begin at once.
    fn at_once(run: QueuedRun) -> Self {
        Self { run, not_before_ns: 0, is_held: false, keeps_age: false, last_message: None, lacks_volumes: Vec::new() }
    }
}

/// What the queue holds at one moment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnfinishedRuns {
    /// Runs that wait, in the order they were entered.
    pub pending: Vec<PendingRun>,
    /// Runs at work, in the order they were entered.
    pub active: Vec<ActiveRun>,
}

impl UnfinishedRuns {
    /// All of them: first what waits.
    pub fn runs(&self) -> impl Iterator<Item = &QueuedRun> {
        self.pending.iter().map(|pending| &pending.run).chain(self.active.iter().map(|active| &active.run))
    }
}

/// How a run waits once more.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RunAgain<'a> {
    /// The number of its next attempt.
    pub attempt: u32,
    /// It does not begin before, nanoseconds since 1970.
    pub not_before_ns: i64,
    /// Whether it has not had its turn, and ranks as before.
    pub keeps_age: bool,
    /// Whether it was at work and is only interrupted.
    pub has_begun: bool,
    /// Why the last one did not do it; may be empty.
    pub message: &'a str,
    /// Volumes that it needs and that are in no library.
    pub lacks_volumes: &'a [String],
}

/// Where a run writes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RunPlace {
    /// The session, with all others of the same number.
    pub session: i64,
    /// The library whose drives that has.
    pub library: String,
    /// How many of them each copy has.
    pub drives: u32,
}

/// A run at work.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ActiveRun {
    /// The run.
    pub run: QueuedRun,
    /// The term of the server that began it.
    pub term: u64,
    /// What whoever works on it was given.
    pub claim: [u8; 16],
    /// When it began, nanoseconds since 1970.
    pub started_ns: i64,
    /// Whether somebody wants it to stop.
    pub is_cancelled: bool,
    /// Its entry in the history, once it has one.
    pub job: Option<i64>,
    /// Where it writes.
    pub place: RunPlace,
}

/// How a run ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum RunOutcome {
    /// All was done.
    Succeeded,
    /// It was done, with problems that the message names.
    Warned,
    /// It failed as often as it may.
    Failed,
    /// Somebody cancelled it.
    Cancelled,
    /// It never began: its time had passed, or its predecessor was not done.
    Missed,
}

impl RunOutcome {
    const ALL: [Self; 5] = [Self::Succeeded, Self::Warned, Self::Failed, Self::Cancelled, Self::Missed];
}

/// A run that has ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DoneRun {
    /// The run.
    pub run: QueuedRun,
    /// When it began last, nanoseconds since 1970; `None` if it never did.
    pub started_ns: Option<i64>,
    /// When it ended, nanoseconds since 1970.
    pub ended_ns: i64,
    /// How.
    pub outcome: RunOutcome,
    /// What an operator should know, in a line.
    pub message: String,
    /// Its last entry in the history, if it has one.
    pub job: Option<i64>,
}

/// What became of a run that was to wait again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Again {
    /// It waits.
    Waits,
    /// Somebody had cancelled it: it has ended.
    Cancelled,
    /// The history has it as done, and so it is.
    Done,
    /// It was no longer at work under this claim.
    Unknown,
}

/// Up to where the schedule of a policy is decided on for a client.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SchedulePosition {
    /// The policy.
    pub policy: String,
    /// The client.
    pub client: String,
    /// All runs up to here are decided on, nanoseconds since 1970.
    pub decided_ns: i64,
    /// When the clock was behind that: up to where they are decided on once more.
    pub again_ns: Option<i64>,
}

/// What became of a run that was to be cancelled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cancelled {
    /// It had not begun, and never will.
    Removed,
    /// It is at work, and is told to stop.
    Told,
    /// No run of that number waits or is at work.
    Unknown,
}

/// What became of a run that was to be held or released.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HoldChange {
    /// It is held, or is not any more, or waits for its next attempt no longer.
    Changed,
    /// It was so before.
    Unchanged,
    /// No run of that number waits.
    Unknown,
}

/// How a run ended, as whoever worked on it says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RunEnd<'a> {
    /// When, nanoseconds since 1970.
    pub ended_ns: i64,
    /// How.
    pub outcome: RunOutcome,
    /// What an operator should know, in a line.
    pub message: &'a str,
}

impl Catalog {
    /// How many bytes a second the last runs of a policy for a client have stored that went through, so many at most;
    /// none where there is none.
    ///
    /// # Errors
    /// The database cannot be read.
    pub fn rate_of_runs(&self, policy: &str, client: &str, most: u32) -> Result<Option<u64>, CatalogError> {
        let query =
            "SELECT jobs.stored, jobs.ended_ns - jobs.started_ns FROM done_runs JOIN jobs ON jobs.job = done_runs.job
                     WHERE policy = ?1 AND client = ?2 AND restore IS NULL AND done_runs.outcome IN (?3, ?4)
                     AND jobs.ended_ns > jobs.started_ns AND jobs.stored > 0
                     ORDER BY done_runs.ended_ns DESC, done_runs.run DESC LIMIT ?5";
        let (done, warned) = (RunOutcome::Succeeded as u8, RunOutcome::Warned as u8);
        let values = params![policy, client, done, warned, most];
        let runs: Vec<(u64, u64)> = self.db.query(query, values, |row| Ok((row.get(0)?, row.get(1)?)))?;
        let (bytes, ns) =
            runs.iter().fold((0u128, 0u128), |sum, run| (sum.0 + u128::from(run.0), sum.1 + u128::from(run.1)));
        Ok((ns > 0).then(|| u64::try_from(bytes * 1_000_000_000 / ns).unwrap_or(u64::MAX)))
    }

    /// Up to where schedules are decided on.
    ///
    /// # Errors
    /// The database cannot be read.
    pub fn schedule_positions(&self) -> Result<Vec<SchedulePosition>, CatalogError> {
        let positions = "SELECT policy, client, decided_ns, again_ns FROM schedule_positions ORDER BY policy, client";
        self.db.query(positions, &[], |row| {
            let (decided_ns, again_ns) = (row.get(2)?, row.get(3)?);
            Ok(SchedulePosition { policy: row.get(0)?, client: row.get(1)?, decided_ns, again_ns })
        })
    }

    /// Enters a restore that somebody asks for, held until it is released; gives the number of its run.
    ///
    /// # Errors
    /// The database cannot be written.
    pub fn enter_restore(
        &mut self,
        client: &str,
        restore: &str,
        priority: i64,
        now_ns: i64,
    ) -> Result<i64, CatalogError> {
        let transaction = self.write()?;
        let new =
            NewRun { policy: "", client, due_ns: None, priority, not_before_ns: 0, is_full: false, any_time: false };
        let run = QueuedRun { restore: Some(restore.to_owned()), ..numbered(&transaction, &new, 1, now_ns)? };
        let number = run.run;
        let pending = PendingRun { not_before_ns: NOT_NOTED_NS, is_held: true, ..PendingRun::at_once(run) };
        put_pending(&transaction, &pending)?;
        transaction.commit()?;
        Ok(number)
    }

    /// Lets a restore begin that was entered and noted.
    ///
    /// # Errors
    /// The database cannot be written.
    pub fn release_restore(&mut self, run: i64) -> Result<(), CatalogError> {
        let transaction = self.write()?;
        let release = "UPDATE pending_runs SET held = 0, not_before_ns = 0 WHERE run = ?1";
        transaction.execute(release, params![run])?;
        transaction.commit()
    }

    /// Takes a run back that has not begun, as if it had never been entered. Whether it waited.
    ///
    /// # Errors
    /// The database cannot be written.
    pub fn withdraw_run(&mut self, run: i64) -> Result<bool, CatalogError> {
        let transaction = self.write()?;
        let removed = transaction.execute("DELETE FROM pending_runs WHERE run = ?1", params![run])?;
        transaction.commit()?;
        Ok(removed > 0)
    }

    /// A run by its number, wherever in the queue it is.
    ///
    /// # Errors
    /// The database cannot be read.
    pub fn queued_run(&self, run: i64) -> Result<Option<QueuedRun>, CatalogError> {
        // One statement: between two of them it could move from a table to one that was looked into already.
        let tables = ["pending_runs", "active_runs", "done_runs"];
        let query = tables.map(|table| format!("SELECT {RUN} FROM {table} WHERE run = ?1")).join(" UNION ALL ");
        self.db.query_first(&query, params![run], queued)
    }

    /// Runs that wait and runs at work, as they are at one moment: read one after the other, a run that moves from one
    /// to the other could be in neither.
    ///
    /// # Errors
    /// The database cannot be read.
    pub fn unfinished_runs(&self) -> Result<UnfinishedRuns, CatalogError> {
        let _moment = self.db.snapshot()?;
        Ok(UnfinishedRuns { pending: self.pending_runs()?, active: self.active_runs()? })
    }

    /// Runs that wait, in the order they were entered.
    ///
    /// # Errors
    /// The database cannot be read.
    pub fn pending_runs(&self) -> Result<Vec<PendingRun>, CatalogError> {
        self.db.query(&format!("SELECT {RUN}, {PENDING} FROM pending_runs ORDER BY run"), &[], pending)
    }

    /// Runs at work, in the order they were entered.
    ///
    /// # Errors
    /// The database cannot be read.
    pub fn active_runs(&self) -> Result<Vec<ActiveRun>, CatalogError> {
        let query = format!("SELECT {RUN}, {ACTIVE} FROM active_runs ORDER BY run");
        self.db.query(&query, &[], active)
    }

    /// Runs that have ended, the latest first.
    ///
    /// # Errors
    /// The database cannot be read.
    pub fn done_runs(&self, limit: u32) -> Result<Vec<DoneRun>, CatalogError> {
        let query = format!("SELECT {RUN}, {DONE} FROM done_runs ORDER BY ended_ns DESC, run DESC LIMIT ?1");
        self.db.query(&query, params![limit], done)
    }

    /// Of each policy for each client, and of each way to end, the last run, the latest first; restores are no runs of
    /// a policy. Numbers count, and not times: a clock may have been ahead.
    ///
    /// # Errors
    /// The database cannot be read.
    pub fn last_done_runs(&self) -> Result<Vec<DoneRun>, CatalogError> {
        let query = format!(
            "SELECT {RUN}, {DONE} FROM done_runs JOIN (
                SELECT policy AS of_policy, client AS of_client, outcome AS of_outcome, MAX(run) AS last
                FROM done_runs WHERE restore IS NULL GROUP BY policy, client, outcome
            ) AS lasts ON policy = of_policy AND client = of_client AND outcome = of_outcome AND run = last
            WHERE restore IS NULL ORDER BY run DESC"
        );
        self.db.query(&query, &[], done)
    }

    /// The last run of a policy that has ended.
    ///
    /// # Errors
    /// The database cannot be read.
    pub fn last_done_run(&self, policy: &str) -> Result<Option<DoneRun>, CatalogError> {
        let query = format!(
            "SELECT {RUN}, {DONE} FROM done_runs WHERE policy = ?1 AND restore IS NULL ORDER BY run DESC LIMIT 1"
        );
        self.db.query_first(&query, params![policy], done)
    }

    /// When the object was complete that was complete last, nanoseconds since 1970; 0 where there is none.
    ///
    /// # Errors
    /// The database cannot be read.
    pub fn last_ended_ns(&self) -> Result<i64, CatalogError> {
        let last = "SELECT COALESCE(MAX(ended_ns), 0) FROM objects WHERE complete = 1";
        Ok(self.db.query_first(last, &[], |row| row.get(0))?.unwrap_or(0))
    }

    /// How many runs have ended between two times, by how they ended. What a clock that was ahead has dated later than
    /// that is no part of it.
    ///
    /// # Errors
    /// The database cannot be read.
    pub fn runs_ended_between(&self, since_ns: i64, until_ns: i64) -> Result<Vec<(RunOutcome, i64)>, CatalogError> {
        let query = "SELECT outcome, COUNT(*) FROM done_runs WHERE ended_ns > ?1 AND ended_ns <= ?2 GROUP BY outcome";
        self.db.query(query, params![since_ns, until_ns], |row| Ok((outcome_of(row.get(0)?)?, row.get(1)?)))
    }

    /// A run that has ended, by its number.
    ///
    /// # Errors
    /// The database cannot be read.
    pub fn done_run(&self, run: i64) -> Result<Option<DoneRun>, CatalogError> {
        let query = format!("SELECT {RUN}, {DONE} FROM done_runs WHERE run = ?1");
        self.db.query_first(&query, params![run], done)
    }

    /// Notes how many drives each copy of a session has: fewer than were given may have been free, or have had volumes.
    ///
    /// # Errors
    /// The database cannot be written.
    pub fn session_has_drives(&mut self, session: i64, drives: u32) -> Result<(), CatalogError> {
        let transaction = self.write()?;
        let note = "UPDATE active_runs SET drives = ?2 WHERE session = ?1";
        transaction.execute(note, params![session, drives])?;
        transaction.commit()
    }

    /// Begins a run that waits, at its place; `None` if it does not wait any more, or is held.
    ///
    /// # Errors
    /// [`CatalogError::ServerReplaced`] if another server has taken over. Otherwise the database cannot be written.
    pub fn claim_run(
        &mut self,
        term: u64,
        run: i64,
        claim: [u8; 16],
        place: &RunPlace,
        now_ns: i64,
    ) -> Result<Option<ActiveRun>, CatalogError> {
        let transaction = self.write()?;
        check_term(&transaction, term)?;
        let delete = format!("DELETE FROM pending_runs WHERE run = ?1 AND held = 0 RETURNING {RUN}");
        let Some(run) = transaction.query_first(&delete, params![run], queued)? else { return Ok(None) };
        // A session that runs has the drives that it has.
        let of_session = "SELECT drives FROM active_runs WHERE session = ?1 ORDER BY run LIMIT 1";
        let drives = transaction.query_first(of_session, params![place.session], |row| row.get(0))?;
        let place = RunPlace { drives: drives.unwrap_or(place.drives), ..place.clone() };
        let active = ActiveRun { run, term, claim, started_ns: now_ns, is_cancelled: false, job: None, place };
        put_active(&transaction, &active)?;
        transaction.commit()?;
        Ok(Some(active))
    }

    /// Notes the entry in the history of a run at work.
    ///
    /// # Errors
    /// The database cannot be written.
    pub fn run_has_job(&mut self, claim: [u8; 16], job: i64) -> Result<(), CatalogError> {
        let transaction = self.write_for_now()?;
        transaction.execute("UPDATE active_runs SET job = ?2 WHERE claim = ?1", params![claim, job])?;
        // Whoever has lost the claim meanwhile has said before which run it is.
        let of_run = "UPDATE jobs SET run = (SELECT active_runs.run FROM active_runs WHERE claim = ?1)
                      WHERE job = ?2 AND EXISTS (SELECT 1 FROM active_runs WHERE claim = ?1)";
        transaction.execute(of_run, params![claim, job])?;
        transaction.commit()
    }

    /// Ends a run at work. Whether it was still at work under this claim.
    ///
    /// # Errors
    /// The database cannot be written.
    pub fn end_run(&mut self, claim: [u8; 16], end: &RunEnd<'_>) -> Result<bool, CatalogError> {
        self.leave_work(claim, |transaction, run| {
            let done = DoneRun {
                started_ns: Some(run.started_ns),
                ended_ns: end.ended_ns,
                outcome: end.outcome,
                message: end.message.to_owned(),
                job: run.job,
                run: run.run,
            };
            put_done(transaction, &done)
        })
    }

    /// Has a run at work wait once more, as another attempt or as the same one; one that was cancelled has ended.
    ///
    /// # Errors
    /// The database cannot be written.
    pub fn retry_run(&mut self, claim: [u8; 16], next: &RunAgain<'_>, now_ns: i64) -> Result<Again, CatalogError> {
        let RunAgain { attempt, not_before_ns, keeps_age, has_begun, message, lacks_volumes } = *next;
        let mut again = Again::Waits;
        let was_at_work = self.leave_work(claim, |transaction, active| {
            if let Some(done) = done_by_history(transaction, &active)? {
                again = Again::Done;
                return put_done(transaction, &done);
            }
            if active.is_cancelled {
                again = Again::Cancelled;
                return put_done(transaction, &cancelled(active.run.clone(), Some(&active), now_ns));
            }
            let run = QueuedRun { attempt, has_begun, ..active.run };
            let last_message = Some(message.to_owned()).filter(|message| !message.is_empty());
            let (is_held, lacks_volumes) = (false, lacks_volumes.to_vec());
            put_pending(
                transaction,
                &PendingRun { run, not_before_ns, is_held, keeps_age, last_message, lacks_volumes },
            )
        })?;
        Ok(if was_at_work { again } else { Again::Unknown })
    }

    fn leave_work(
        &mut self,
        claim: [u8; 16],
        put: impl FnOnce(&Transaction<'_>, ActiveRun) -> Result<(), CatalogError>,
    ) -> Result<bool, CatalogError> {
        let transaction = self.write()?;
        let Some(run) = take_active(&transaction, "claim = ?1", params![claim])?.pop() else { return Ok(false) };
        put(&transaction, run)?;
        transaction.commit()?;
        Ok(true)
    }

    /// Has the runs wait again that servers before this one began and did not end; what they reached is gone on from.
    /// One that was to stop has ended so, and one that the history has as done is done.
    ///
    /// # Errors
    /// [`CatalogError::ServerReplaced`] if another server has taken over. Otherwise the database cannot be written.
    pub fn return_lost(&mut self, term: u64, now_ns: i64) -> Result<Vec<QueuedRun>, CatalogError> {
        let transaction = self.write()?;
        check_term(&transaction, term)?;
        // A server that died while it entered them told nobody of them.
        let not_noted = "DELETE FROM pending_runs WHERE restore IS NOT NULL AND not_before_ns = ?1";
        transaction.execute(not_noted, params![NOT_NOTED_NS])?;
        let lost = take_active(&transaction, "term <> ?1", params![number("a term", term)?])?;
        for active in &lost {
            if let Some(done) = done_by_history(&transaction, active)? {
                put_done(&transaction, &done)?;
            } else if active.is_cancelled {
                put_done(&transaction, &cancelled(active.run.clone(), Some(active), now_ns))?;
            } else {
                let returns = active.run.returns + 1;
                let run = QueuedRun { returns, has_begun: true, ..active.run.clone() };
                // It keeps its age, unless it has brought servers down more than once.
                let wait_ns = wait_after_returns_ns(returns);
                let not_before_ns = if wait_ns == 0 { 0 } else { now_ns.saturating_add(wait_ns) };
                put_pending(&transaction, &PendingRun { not_before_ns, ..PendingRun::at_once(run) })?;
            }
        }
        transaction.commit()?;
        Ok(lost.into_iter().map(|active| active.run).collect())
    }

    /// Keeps a run that waits from beginning, or lets it begin: it then waits since now. One that is not held and waits
    /// for its next attempt waits for that no longer.
    ///
    /// # Errors
    /// The database cannot be written.
    pub fn hold_run(&mut self, run: i64, is_held: bool, now_ns: i64) -> Result<HoldChange, CatalogError> {
        let transaction = self.write()?;
        // A restore that is on no record yet begins for nobody.
        let waits = "SELECT held FROM pending_runs WHERE run = ?1 AND (restore IS NULL OR not_before_ns <> ?2)";
        let was_held = transaction.query_first(waits, params![run, NOT_NOTED_NS], |row| row.get::<bool>(0))?;
        let Some(was_held) = was_held else { return Ok(HoldChange::Unknown) };
        let since = "UPDATE pending_runs SET not_before_ns = ?2
            WHERE run = ?1 AND ((held = 1 AND not_before_ns < ?2) OR (held = 0 AND not_before_ns > ?2))";
        let may_begin = if is_held { 0 } else { transaction.execute(since, params![run, now_ns])? };
        transaction.execute("UPDATE pending_runs SET held = ?2 WHERE run = ?1", params![run, is_held])?;
        transaction.commit()?;
        let is_news = was_held != is_held || may_begin > 0;
        Ok(if is_news { HoldChange::Changed } else { HoldChange::Unchanged })
    }

    /// Cancels a run, whether it waits or is at work.
    ///
    /// # Errors
    /// The database cannot be written.
    pub fn cancel_run(&mut self, run: i64, now_ns: i64) -> Result<Cancelled, CatalogError> {
        let transaction = self.write()?;
        let delete = format!("DELETE FROM pending_runs WHERE run = ?1 RETURNING {RUN}");
        let became = match transaction.query_first(&delete, params![run], queued)? {
            Some(run) => {
                put_cancelled(&transaction, run, now_ns)?;
                Cancelled::Removed
            }
            None => match transaction.execute("UPDATE active_runs SET cancelled = 1 WHERE run = ?1", params![run])? {
                0 => Cancelled::Unknown,
                _ => Cancelled::Told,
            },
        };
        transaction.commit()?;
        Ok(became)
    }
}

impl Catalog {
    /// Cancels the runs of policies for a client that wait: the policies name it no more.
    ///
    /// # Errors
    /// The database cannot be written; nothing is cancelled then.
    pub fn cancel_waiting(&mut self, policies: &[String], client: &str, now_ns: i64) -> Result<(), CatalogError> {
        let transaction = self.write()?;
        for policy in policies {
            cancel_waiting_of(&transaction, policy, client, now_ns)?;
        }
        transaction.commit()
    }
}

/// Cancels all runs of a policy.
pub(crate) fn cancel_all_of(transaction: &Transaction<'_>, policy: &str, now_ns: i64) -> Result<(), CatalogError> {
    cancel_where(transaction, "policy = ?1", policy, now_ns)
}

/// Cancels the runs of a policy for a client that wait; one at work goes on.
pub(crate) fn cancel_waiting_of(
    transaction: &Transaction<'_>,
    policy: &str,
    client: &str,
    now_ns: i64,
) -> Result<(), CatalogError> {
    let delete = format!("DELETE FROM pending_runs WHERE policy = ?1 AND client = ?2 RETURNING {RUN}");
    for run in transaction.query(&delete, params![policy, client], queued)? {
        put_cancelled(transaction, run, now_ns)?;
    }
    Ok(())
}

/// Cancels all restores to a client.
pub(crate) fn cancel_restores_to(transaction: &Transaction<'_>, client: &str, now_ns: i64) -> Result<(), CatalogError> {
    cancel_where(transaction, "client = ?1 AND restore IS NOT NULL", client, now_ns)
}

fn cancel_where(transaction: &Transaction<'_>, which: &str, name: &str, now_ns: i64) -> Result<(), CatalogError> {
    let delete = format!("DELETE FROM pending_runs WHERE {which} RETURNING {RUN}");
    for run in transaction.query(&delete, params![name], queued)? {
        put_cancelled(transaction, run, now_ns)?;
    }
    let tell = format!("UPDATE active_runs SET cancelled = 1 WHERE {which}");
    transaction.execute(&tell, params![name])?;
    Ok(())
}

/// Refuses a change of a server that another one has replaced.
fn check_term(db: &Db, term: u64) -> Result<(), CatalogError> {
    let (kind, name) = (Resource::Server.kind(), Resource::Server.name());
    let held = db.exists(
        "SELECT 1 FROM reservations WHERE kind = ?1 AND name = ?2 AND generation = ?3",
        params![kind, name, number("a term", term)?],
    )?;
    if held { Ok(()) } else { Err(CatalogError::ServerReplaced) }
}

/// How long a run waits whose servers ended so often: it may be what ends them, and then others are to have a turn.
fn wait_after_returns_ns(returns: u32) -> i64 {
    const MINUTE_NS: i64 = 60_000_000_000;
    match returns {
        0..=2 => 0,
        more => MINUTE_NS << (more - 3).min(6),
    }
}

/// A run at work as done, if its entry in the history ended so: its server was killed before it could say it.
fn done_by_history(db: &Db, active: &ActiveRun) -> Result<Option<DoneRun>, CatalogError> {
    let ended = "SELECT ended_ns, outcome, message FROM jobs WHERE job = ?1 AND ended_ns IS NOT NULL";
    let end: Option<(i64, u8, String)> =
        db.query_first(ended, params![active.job], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)))?;
    let Some((ended_ns, outcome, message)) = end else { return Ok(None) };
    let outcome = match outcome {
        code if code == JobOutcome::Succeeded as u8 => RunOutcome::Succeeded,
        code if code == JobOutcome::Warned as u8 => RunOutcome::Warned,
        _ => return Ok(None),
    };
    let (run, started_ns) = (active.run.clone(), Some(active.started_ns));
    Ok(Some(DoneRun { run, started_ns, ended_ns, outcome, message, job: active.job }))
}

#[cfg(test)]
mod tests;
