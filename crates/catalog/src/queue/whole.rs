//! A queue that another catalog takes over.

use super::entering::NAME_DUE;
use super::rows::{ACTIVE, DONE, PENDING, RUN, active, cancelled, done, pending, put_pending, take_over_done};
use super::{DoneRun, PendingRun, QueuedRun, done_by_history};
use crate::CatalogError;
use crate::db::{Db, Transaction, params};

/// All of a queue, to be put into another catalog.
pub(crate) struct WholeQueue {
    pending: Vec<PendingRun>,
    /// What was at work, and is not known to have ended.
    was_active: Vec<QueuedRun>,
    done: Vec<DoneRun>,
    names: Vec<(String, String, i64)>,
    last_number: Option<i64>,
}

impl WholeQueue {
    pub(crate) fn of(db: &Db) -> Result<Self, CatalogError> {
        let names = "SELECT policy, client, due_ns FROM due_runs";
        let done_runs = format!("SELECT {RUN}, {DONE} FROM done_runs");
        let mut all_done = db.query(&done_runs, &[], done)?;
        let active_runs = format!("SELECT {RUN}, {ACTIVE} FROM active_runs");
        let mut waiting = Vec::new();
        for active in db.query(&active_runs, &[], active)? {
            match done_by_history(db, &active)? {
                Some(done) => all_done.push(done),
                None if active.is_cancelled => {
                    all_done.push(cancelled(active.run.clone(), Some(&active), active.started_ns));
                }
                None => waiting.push(active.run),
            }
        }
        Ok(Self {
            pending: db.query(&format!("SELECT {RUN}, {PENDING} FROM pending_runs"), &[], pending)?,
            was_active: waiting,
            done: all_done,
            names: db.query(names, &[], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)))?,
            last_number: db.query_first("SELECT last FROM run_numbers", &[], |row| row.get(0))?,
        })
    }

    /// Puts it where no queue is yet.
    pub(crate) fn put_into(self, transaction: &Transaction<'_>) -> Result<(), CatalogError> {
        for pending in &self.pending {
            put_pending(transaction, pending)?;
        }
        for run in self.was_active {
            put_pending(transaction, &PendingRun::at_once(QueuedRun { has_begun: true, ..run }))?;
        }
        for done in self.done {
            take_over_done(transaction, &done)?;
        }
        for (policy, client, due_ns) in self.names {
            transaction.execute(NAME_DUE, params![policy, client, due_ns])?;
        }
        if let Some(last) = self.last_number {
            transaction.execute("INSERT INTO run_numbers (id, last) VALUES (1, ?1)", params![last])?;
        }
        Ok(())
    }
}
