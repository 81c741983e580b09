//! The rows of the queue's tables.

use super::{ActiveRun, DONE_KEPT, DoneRun, PendingRun, QueuedRun, RunOutcome, RunPlace};
use crate::CatalogError;
use crate::catalog::number;
use crate::db::{Row, Transaction, Value, impossible, params};

/// The columns that all tables of runs have.
pub(super) const RUN: &str = "run, policy, client, due_ns, priority, entered_ns, attempt, returns, restore, is_full";

/// Those that only runs have that wait.
pub(super) const PENDING: &str = "not_before_ns, held, last_message, keeps_age";

pub(super) fn put_pending(transaction: &Transaction<'_>, pending: &PendingRun) -> Result<(), CatalogError> {
    let PendingRun { run, not_before_ns, is_held, keeps_age, last_message } = pending;
    let QueuedRun { run, policy, client, due_ns, priority, entered_ns, attempt, returns, restore, is_full } = run;
    let insert = format!(
        "INSERT INTO pending_runs ({RUN}, {PENDING}) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14)"
    );
    let (restore, last_message) = (restore.as_deref(), last_message.as_deref());
    transaction
        .execute(
            &insert,
            params![
                run,
                policy,
                client,
                due_ns,
                priority,
                entered_ns,
                attempt,
                returns,
                restore,
                is_full,
                not_before_ns,
                is_held,
                last_message,
                keeps_age
            ],
        )
        .map(drop)
}

pub(super) fn put_active(transaction: &Transaction<'_>, active: &ActiveRun) -> Result<(), CatalogError> {
    let ActiveRun { run, term, claim, started_ns, place, .. } = active;
    let RunPlace { session, library, drives } = place;
    let term = number("a term", *term)?;
    let QueuedRun { run, policy, client, due_ns, priority, entered_ns, attempt, returns, restore, is_full } = run;
    let insert = format!(
        "INSERT INTO active_runs ({RUN}, term, claim, started_ns, cancelled, session, library, drives)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, 0, ?14, ?15, ?16)"
    );
    let restore = restore.as_deref();
    transaction
        .execute(
            &insert,
            params![
                run, policy, client, due_ns, priority, entered_ns, attempt, returns, restore, is_full, term, *claim,
                started_ns, session, library, drives
            ],
        )
        .map(drop)
}

pub(super) fn put_done(transaction: &Transaction<'_>, done: &DoneRun) -> Result<(), CatalogError> {
    let DoneRun { run, started_ns, ended_ns, outcome, message, job } = done;
    let QueuedRun { run, policy, client, due_ns, priority, entered_ns, attempt, returns, restore, is_full } = run;
    let insert = format!(
        "INSERT INTO done_runs ({RUN}, started_ns, ended_ns, outcome, message, job)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15)"
    );
    let (outcome, restore) = (*outcome as u8, restore.as_deref());
    transaction.execute(
        &insert,
        params![
            run, policy, client, due_ns, priority, entered_ns, attempt, returns, restore, is_full, started_ns,
            ended_ns, outcome, message, job
        ],
    )?;
    transaction.execute("DELETE FROM done_runs WHERE run <= ?1", params![run - DONE_KEPT])?;
    Ok(())
}

/// Puts a run that waited among those that have ended, with the entry of its last attempt in the history.
pub(super) fn put_cancelled(transaction: &Transaction<'_>, run: QueuedRun, now_ns: i64) -> Result<(), CatalogError> {
    let last = "SELECT job FROM jobs WHERE run = ?1 ORDER BY job DESC LIMIT 1";
    let job = transaction.query_first(last, params![run.run], |row| row.get(0))?;
    put_done(transaction, &DoneRun { job, ..cancelled(run, None, now_ns) })
}

pub(super) fn cancelled(run: QueuedRun, active: Option<&ActiveRun>, now_ns: i64) -> DoneRun {
    DoneRun {
        run,
        started_ns: active.map(|active| active.started_ns),
        ended_ns: now_ns,
        outcome: RunOutcome::Cancelled,
        message: "cancelled".to_owned(),
        job: active.and_then(|active| active.job),
    }
}

/// Takes runs out of work.
pub(super) fn take_active(
    transaction: &Transaction<'_>,
    which: &str,
    values: &[Value<'_>],
) -> Result<Vec<ActiveRun>, CatalogError> {
    let delete = format!(
        "DELETE FROM active_runs WHERE {which} RETURNING {RUN}, term, claim, started_ns, cancelled, job, session, library, drives"
    );
    transaction.query(&delete, values, active)
}

pub(super) fn queued(row: &Row<'_>) -> Result<QueuedRun, CatalogError> {
    Ok(QueuedRun {
        run: row.get(0)?,
        policy: row.get(1)?,
        client: row.get(2)?,
        due_ns: row.get(3)?,
        priority: row.get(4)?,
        entered_ns: row.get(5)?,
        attempt: row.get(6)?,
        returns: row.get(7)?,
        restore: row.get(8)?,
        is_full: row.get(9)?,
    })
}

pub(super) fn pending(row: &Row<'_>) -> Result<PendingRun, CatalogError> {
    let (not_before_ns, is_held, last_message) = (row.get(10)?, row.get(11)?, row.get(12)?);
    Ok(PendingRun { run: queued(row)?, not_before_ns, is_held, keeps_age: row.get(13)?, last_message })
}

pub(super) fn active(row: &Row<'_>) -> Result<ActiveRun, CatalogError> {
    let (term, claim, started_ns) = (row.get(10)?, row.get(11)?, row.get(12)?);
    let (is_cancelled, job) = (row.get(13)?, row.get(14)?);
    let place = RunPlace { session: row.get(15)?, library: row.get(16)?, drives: row.get(17)? };
    Ok(ActiveRun { run: queued(row)?, term, claim, started_ns, is_cancelled, job, place })
}

/// How a run ended, by its number in the database.
pub(super) fn outcome_of(code: u8) -> Result<RunOutcome, CatalogError> {
    RunOutcome::ALL.get(usize::from(code)).copied().ok_or_else(|| impossible("the end of a run", code))
}

pub(super) fn done(row: &Row<'_>) -> Result<DoneRun, CatalogError> {
    let outcome = outcome_of(row.get(12)?)?;
    let (started_ns, ended_ns, message, job) = (row.get(10)?, row.get(11)?, row.get(13)?, row.get(14)?);
    Ok(DoneRun { run: queued(row)?, started_ns, ended_ns, outcome, message, job })
}
