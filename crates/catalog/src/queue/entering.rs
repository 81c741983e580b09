//! How runs come into the queue: what a schedule made due, and what somebody asks for.

use super::rows::{put_done, put_pending};
use super::{DoneRun, PendingRun, QueuedRun, RunOutcome, check_term};
use crate::CatalogError;
use crate::catalog::Catalog;
use crate::db::{Transaction, params};

/// How long the name of a due run is kept behind what is decided on: longer than any clock is ahead.
const NAMES_KEPT_NS: i64 = 400 * 24 * 3600 * 1_000_000_000;

/// A run to be entered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NewRun<'a> {
    /// The policy.
    pub policy: &'a str,
    /// The client whose data is backed up.
    pub client: &'a str,
    /// When its schedule has it due; `None` if somebody enters it.
    pub due_ns: Option<i64>,
    /// The higher, the sooner.
    pub priority: i64,
    /// It does not begin before.
    pub not_before_ns: i64,
    /// Whether it is a full backup, whatever its policy says.
    pub is_full: bool,
    /// Whether it begins outside the window of its policy, too.
    pub any_time: bool,
}

/// What a schedule has decided on for a client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DueDecision<'a> {
    /// The policy.
    pub policy: &'a str,
    /// The client.
    pub client: &'a str,
    /// Since when the policy is due at these times: whoever changed them meanwhile makes this decision void.
    pub scheduled_ns: i64,
    /// All runs up to here are decided on, nanoseconds since 1970.
    pub decided_ns: i64,
    /// While the clock is behind that: up to where they are decided on once more.
    pub again_ns: Option<i64>,
    /// The run that is due.
    pub run: Option<NewRun<'a>>,
    /// Why runs before it do not begin, if any were missed.
    pub missed: Option<&'a str>,
}

/// Where the schedule of a policy begins for a client of which nothing is decided on yet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NewSchedule<'a> {
    /// The policy.
    pub policy: &'a str,
    /// The client.
    pub client: &'a str,
    /// Since when the policy is due at these times.
    pub scheduled_ns: i64,
    /// Runs up to here are not caught up with, nanoseconds since 1970.
    pub decided_ns: i64,
}

/// What became of a run that was to be entered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Entered {
    /// It waits, under this number.
    Waits(i64),
    /// Another run of the same policy and client, of this number, waits or is at work; so it was not entered.
    Behind(i64),
    /// Another run of the same policy and client, of this number, waited for its next attempt, and makes that now in
    /// place of this run.
    Hastens(i64),
    /// A run of that name was entered before.
    Before,
    /// There is no such policy, or it is due at other times now.
    Void,
}

/// Whether a policy is still due at the times at which it was looked at.
const IS_SCHEDULED: &str = "SELECT 1 FROM policies WHERE name = ?1 AND scheduled_ns = ?2";

pub(super) const NAME_DUE: &str = "INSERT INTO due_runs (policy, client, due_ns) VALUES (?1, ?2, ?3)
    ON CONFLICT (policy, client, due_ns) DO NOTHING";

impl Entered {
    /// Why a run that was due never begins, if it does not.
    pub fn missed(self) -> Option<String> {
        match self {
            Self::Behind(other) => Some(format!("skipped: run {other} of this policy was still waiting or running")),
            Self::Before => {
                let when = "before the clock was set back or the schedule was changed";
                Some(format!("this run was already started, {when}: it does not start again"))
            }
            Self::Waits(_) | Self::Hastens(_) | Self::Void => None,
        }
    }
}

impl Catalog {
    /// Notes what a schedule has decided on, and enters the run that is due. A run whose predecessor waits or is at
    /// work is missed, and one that was entered before; a predecessor that waits for its next attempt makes that now.
    ///
    /// # Errors
    /// [`CatalogError::ServerReplaced`] if another server has taken over. Otherwise the database cannot be written.
    pub fn enter_due(
        &mut self,
        term: u64,
        decision: &DueDecision<'_>,
        now_ns: i64,
    ) -> Result<Option<Entered>, CatalogError> {
        let DueDecision { policy, client, scheduled_ns, decided_ns, again_ns, run, missed } = decision;
        let transaction = self.write()?;
        check_term(&transaction, term)?;
        if !transaction.exists(IS_SCHEDULED, params![policy, scheduled_ns])? {
            return Ok(Some(Entered::Void));
        }
        transaction.execute(
            "INSERT INTO schedule_positions (policy, client, decided_ns, again_ns) VALUES (?1, ?2, ?3, ?4)
             ON CONFLICT (policy, client)
             DO UPDATE SET decided_ns = excluded.decided_ns, again_ns = excluded.again_ns",
            params![policy, client, decided_ns, again_ns],
        )?;
        transaction.execute(
            "DELETE FROM due_runs WHERE policy = ?1 AND client = ?2 AND due_ns < ?3",
            params![policy, client, decided_ns.saturating_sub(NAMES_KEPT_NS)],
        )?;
        if let Some(message) = missed {
            let run =
                NewRun { policy, client, due_ns: None, priority: 0, not_before_ns: 0, is_full: false, any_time: false };
            leave_out(&transaction, &run, message, now_ns)?;
            pass_over(&transaction, (policy, client), *decided_ns)?;
        }
        let entered = run.as_ref().map(|run| enter(&transaction, run, now_ns)).transpose()?;
        if let (Some(run), Some(reason)) = (run, entered.and_then(Entered::missed)) {
            leave_out(&transaction, run, &reason, now_ns)?;
        }
        transaction.commit()?;
        Ok(entered)
    }

    /// Notes where schedules begin, if nothing is decided on of them and they are still due at these times.
    ///
    /// # Errors
    /// [`CatalogError::ServerReplaced`] if another server has taken over. Otherwise the database cannot be written.
    pub fn begin_schedules(&mut self, term: u64, schedules: &[NewSchedule<'_>]) -> Result<(), CatalogError> {
        let transaction = self.write()?;
        check_term(&transaction, term)?;
        for NewSchedule { policy, client, scheduled_ns, decided_ns } in schedules {
            if transaction.exists(IS_SCHEDULED, params![policy, scheduled_ns])? {
                transaction.execute(
                    "INSERT INTO schedule_positions (policy, client, decided_ns) VALUES (?1, ?2, ?3)
                     ON CONFLICT (policy, client) DO NOTHING",
                    params![policy, client, decided_ns],
                )?;
            }
        }
        transaction.commit()
    }

    /// Enters a run that somebody asks for.
    ///
    /// # Errors
    /// The database cannot be written.
    pub fn enter_run(&mut self, run: &NewRun<'_>, now_ns: i64) -> Result<Entered, CatalogError> {
        let transaction = self.write()?;
        let entered = enter(&transaction, run, now_ns)?;
        transaction.commit()?;
        Ok(entered)
    }
}

/// Enters a run, if none of its policy and client is in the queue, and none of its name ever was.
fn enter(transaction: &Transaction<'_>, new: &NewRun<'_>, now_ns: i64) -> Result<Entered, CatalogError> {
    let NewRun { policy, client, due_ns, not_before_ns, is_full, any_time, .. } = *new;
    if !transaction.exists("SELECT 1 FROM policies WHERE name = ?1", params![policy])? {
        return Ok(Entered::Void);
    }
    if let Some(due_ns) = due_ns {
        let named = transaction.execute(NAME_DUE, params![policy, client, due_ns])?;
        if named == 0 {
            return Ok(Entered::Before);
        }
    }
    for table in ["pending_runs", "active_runs"] {
        let query = format!("SELECT run FROM {table} WHERE policy = ?1 AND client = ?2");
        let Some(other) = transaction.query_first(&query, params![policy, client], |row| row.get(0))? else { continue };
        if is_full {
            transaction.execute("UPDATE pending_runs SET is_full = 1 WHERE run = ?1", params![other])?;
        }
        if any_time {
            let begins = "UPDATE pending_runs SET any_time = 1,
                not_before_ns = CASE WHEN not_before_ns > ?2 THEN ?2 ELSE not_before_ns END WHERE run = ?1";
            transaction.execute(begins, params![other, now_ns])?;
        }
        let Some(due_ns) = due_ns else { return Ok(Entered::Behind(other)) };
        pass_over(transaction, (policy, client), due_ns)?;
        let hasten = "UPDATE pending_runs SET not_before_ns = ?2
            WHERE run = ?1 AND attempt > 1 AND held = 0 AND not_before_ns > ?2";
        return Ok(match transaction.execute(hasten, params![other, now_ns])? {
            0 => Entered::Behind(other),
            _ => Entered::Hastens(other),
        });
    }
    let run = numbered(transaction, new, 1, now_ns)?;
    let number = run.run;
    put_pending(transaction, &PendingRun { not_before_ns, ..PendingRun::at_once(run) })?;
    Ok(Entered::Waits(number))
}

/// Notes of the run of a policy and a client that another one was due at a time, and does not begin because of it.
fn pass_over(transaction: &Transaction<'_>, (policy, client): (&str, &str), due_ns: i64) -> Result<(), CatalogError> {
    for table in ["pending_runs", "active_runs"] {
        let note = format!(
            "UPDATE {table} SET skipped_due_ns = ?3
             WHERE policy = ?1 AND client = ?2 AND (skipped_due_ns IS NULL OR skipped_due_ns < ?3)"
        );
        transaction.execute(&note, params![policy, client, due_ns])?;
    }
    Ok(())
}

/// A run with a number of its own.
pub(super) fn numbered(
    transaction: &Transaction<'_>,
    new: &NewRun<'_>,
    attempt: u32,
    now_ns: i64,
) -> Result<QueuedRun, CatalogError> {
    Ok(QueuedRun {
        run: next_number(transaction)?,
        policy: new.policy.to_owned(),
        client: new.client.to_owned(),
        due_ns: new.due_ns,
        priority: new.priority,
        entered_ns: now_ns,
        attempt,
        returns: 0,
        restore: None,
        is_full: new.is_full,
        skipped_due_ns: None,
        has_begun: false,
        any_time: new.any_time,
    })
}

/// Notes a run that never begins.
fn leave_out(transaction: &Transaction<'_>, new: &NewRun<'_>, message: &str, now_ns: i64) -> Result<(), CatalogError> {
    let run = numbered(transaction, new, 0, now_ns)?;
    let outcome = RunOutcome::Missed;
    put_done(
        transaction,
        &DoneRun { run, started_ns: None, ended_ns: now_ns, outcome, message: message.to_owned(), job: None },
    )
}

/// A number that no run had.
fn next_number(transaction: &Transaction<'_>) -> Result<i64, CatalogError> {
    let last: Option<i64> = transaction.query_first(
        "INSERT INTO run_numbers (id, last) VALUES (1, 1) ON CONFLICT (id) DO UPDATE SET last = run_numbers.last + 1
         RETURNING last",
        &[],
        |row| row.get(0),
    )?;
    last.ok_or_else(|| CatalogError::corrupt("the catalog's database", "it gives no number to a run"))
}
