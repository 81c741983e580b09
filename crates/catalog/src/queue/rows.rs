//! The rows of the queue's tables.

use super::{ActiveRun, DONE_KEPT, DoneRun, PendingRun, QueuedRun, RunOutcome, RunPlace};
use crate::CatalogError;
use crate::catalog::number;
use crate::db::{Bind, Row, Transaction, Value, impossible, params};

/// The columns that all tables of runs have.
pub(super) const RUN: &str = "run, policy, client, due_ns, priority, entered_ns, attempt, returns, restore, is_full, \
    skipped_due_ns, has_begun, any_time";

/// How many those are.
const RUN_COLUMNS: usize = 13;

/// Those that only runs have that wait.
pub(super) const PENDING: &str = "not_before_ns, held, last_message, keeps_age, lacks_volume";

/// Those that only runs have that are at work.
pub(super) const ACTIVE: &str = "term, claim, started_ns, cancelled, job, session, library, drives";

/// Those that only runs have that have ended.
pub(super) const DONE: &str = "started_ns, ended_ns, outcome, message, job";

fn run_values(run: &QueuedRun) -> [Value<'_>; RUN_COLUMNS] {
    [
        run.run.bind(),
        run.policy.bind(),
        run.client.bind(),
        run.due_ns.bind(),
        run.priority.bind(),
        run.entered_ns.bind(),
        run.attempt.bind(),
        run.returns.bind(),
        run.restore.bind(),
        run.is_full.bind(),
        run.skipped_due_ns.bind(),
        run.has_begun.bind(),
        run.any_time.bind(),
    ]
}

/// Puts a run into a table that has these columns beside those of all.
fn put(
    transaction: &Transaction<'_>,
    (table, columns): (&str, &str),
    run: &QueuedRun,
    more: &[Value<'_>],
) -> Result<(), CatalogError> {
    let values = [&run_values(run)[..], more].concat();
    let places: Vec<String> = (1..=values.len()).map(|place| format!("?{place}")).collect();
    let insert = format!("INSERT INTO {table} ({RUN}, {columns}) VALUES ({})", places.join(", "));
    transaction.execute(&insert, &values).map(drop)
}

pub(super) fn put_pending(transaction: &Transaction<'_>, pending: &PendingRun) -> Result<(), CatalogError> {
    let PendingRun { run, not_before_ns, is_held, keeps_age, last_message, lacks_volumes } = pending;
    // Names of volumes have no spaces.
    let lacks_volumes = Some(lacks_volumes.join(" ")).filter(|names| !names.is_empty());
    let more = params![not_before_ns, is_held, last_message, keeps_age, lacks_volumes];
    put(transaction, ("pending_runs", PENDING), run, more)
}

pub(super) fn put_active(transaction: &Transaction<'_>, active: &ActiveRun) -> Result<(), CatalogError> {
    let ActiveRun { run, term, claim, started_ns, place, .. } = active;
    let RunPlace { session, library, drives } = place;
    let (term, is_cancelled, job) = (number("a term", *term)?, false, None::<i64>);
    let more = params![term, claim, started_ns, is_cancelled, job, session, library, drives];
    put(transaction, ("active_runs", ACTIVE), run, more)
}

/// Puts a run among those that have ended, of which the latest are kept.
pub(super) fn put_done(transaction: &Transaction<'_>, done: &DoneRun) -> Result<(), CatalogError> {
    take_over_done(transaction, done)?;
    // By when they ended, and not by their numbers: one that waited for long ends with a low one.
    let forget = "DELETE FROM done_runs WHERE ended_ns <
        (SELECT ended_ns FROM done_runs ORDER BY ended_ns DESC, run DESC LIMIT 1 OFFSET ?1)";
    transaction.execute(forget, params![DONE_KEPT - 1]).map(drop)
}

/// Puts a run among those that have ended, and forgets none for it.
pub(super) fn take_over_done(transaction: &Transaction<'_>, done: &DoneRun) -> Result<(), CatalogError> {
    let DoneRun { run, started_ns, ended_ns, outcome, message, job } = done;
    let outcome = *outcome as u8;
    put(transaction, ("done_runs", DONE), run, params![started_ns, ended_ns, outcome, message, job])
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
    let delete = format!("DELETE FROM active_runs WHERE {which} RETURNING {RUN}, {ACTIVE}");
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
        skipped_due_ns: row.get(10)?,
        has_begun: row.get(11)?,
        any_time: row.get(12)?,
    })
}

pub(super) fn pending(row: &Row<'_>) -> Result<PendingRun, CatalogError> {
    let (not_before_ns, is_held) = (row.get(RUN_COLUMNS)?, row.get(RUN_COLUMNS + 1)?);
    let (last_message, keeps_age) = (row.get(RUN_COLUMNS + 2)?, row.get(RUN_COLUMNS + 3)?);
    let lacks_volumes: Option<String> = row.get(RUN_COLUMNS + 4)?;
    let lacks_volumes = lacks_volumes.unwrap_or_default().split_whitespace().map(str::to_owned).collect();
    Ok(PendingRun { run: queued(row)?, not_before_ns, is_held, keeps_age, last_message, lacks_volumes })
}

pub(super) fn active(row: &Row<'_>) -> Result<ActiveRun, CatalogError> {
    let (term, claim, started_ns) = (row.get(RUN_COLUMNS)?, row.get(RUN_COLUMNS + 1)?, row.get(RUN_COLUMNS + 2)?);
    let (is_cancelled, job) = (row.get(RUN_COLUMNS + 3)?, row.get(RUN_COLUMNS + 4)?);
    let (session, library) = (row.get(RUN_COLUMNS + 5)?, row.get(RUN_COLUMNS + 6)?);
    let place = RunPlace { session, library, drives: row.get(RUN_COLUMNS + 7)? };
    Ok(ActiveRun { run: queued(row)?, term, claim, started_ns, is_cancelled, job, place })
}

/// How a run ended, by its number in the database.
pub(super) fn outcome_of(code: u8) -> Result<RunOutcome, CatalogError> {
    RunOutcome::ALL.get(usize::from(code)).copied().ok_or_else(|| impossible("the end of a run", code))
}

pub(super) fn done(row: &Row<'_>) -> Result<DoneRun, CatalogError> {
    let (started_ns, ended_ns) = (row.get(RUN_COLUMNS)?, row.get(RUN_COLUMNS + 1)?);
    let outcome = outcome_of(row.get(RUN_COLUMNS + 2)?)?;
    let (message, job) = (row.get(RUN_COLUMNS + 3)?, row.get(RUN_COLUMNS + 4)?);
    Ok(DoneRun { run: queued(row)?, started_ns, ended_ns, outcome, message, job })
}
