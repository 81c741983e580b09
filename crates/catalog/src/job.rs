//! The log of jobs: what was run, when, and how it ended.

use rusqlite::{Row, params};

use crate::CatalogError;
use crate::catalog::{Catalog, number};
use crate::pool::impossible;

/// How a job ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum JobOutcome {
    /// It runs, or was killed.
    Running,
    /// All was done.
    Succeeded,
    /// It was done, with problems that the message names.
    Warned,
    /// It was given up.
    Failed,
}

impl JobOutcome {
    const ALL: [Self; 4] = [Self::Running, Self::Succeeded, Self::Warned, Self::Failed];
}

/// What a job did.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JobEnd {
    /// When it ended, nanoseconds since 1970.
    pub ended_ns: i64,
    /// How it ended.
    pub outcome: JobOutcome,
    /// Files handled.
    pub files: u64,
    /// Bytes of their content.
    pub bytes: u64,
    /// Bytes moved to or from volumes.
    pub stored: u64,
    /// What an operator should know.
    pub message: String,
}

/// A job in the log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Job {
    /// Its number.
    pub id: i64,
    /// What was done: `backup`, `restore`, `verify` ...
    pub kind: String,
    /// To what.
    pub subject: String,
    /// When it began, nanoseconds since 1970.
    pub started_ns: i64,
    /// What it did; `None` while it runs, and for ever if it was killed.
    pub end: Option<JobEnd>,
}

impl Catalog {
    /// Notes that a job begins, and gives its number.
    pub fn begin_job(&mut self, kind: &str, subject: &str, started_ns: i64) -> Result<i64, CatalogError> {
        self.db.execute(
            "INSERT INTO jobs (kind, subject, started_ns, outcome, files, bytes, stored, message)
             VALUES (?1, ?2, ?3, 0, 0, 0, 0, '')",
            params![kind, subject, started_ns],
        )?;
        Ok(self.db.last_insert_rowid())
    }

    /// Notes how a job ended.
    pub fn end_job(&mut self, job: i64, end: &JobEnd) -> Result<(), CatalogError> {
        self.db.execute(
            "UPDATE jobs SET ended_ns = ?2, outcome = ?3, files = ?4, bytes = ?5, stored = ?6, message = ?7 WHERE job = ?1",
            params![
                job,
                end.ended_ns,
                end.outcome as u8,
                number("a count of files", end.files)?,
                number("a count of bytes", end.bytes)?,
                number("a count of bytes", end.stored)?,
                end.message,
            ],
        )?;
        Ok(())
    }

    /// The last jobs, the latest first.
    pub fn jobs(&self, limit: u32) -> Result<Vec<Job>, CatalogError> {
        let mut statement = self.db.prepare_cached("SELECT * FROM jobs ORDER BY job DESC LIMIT ?1")?;
        Ok(statement.query_map([limit], job)?.collect::<Result<_, _>>()?)
    }
}

fn job(row: &Row<'_>) -> rusqlite::Result<Job> {
    let end = match row.get(4)? {
        Some(ended_ns) => {
            let code: u8 = row.get(5)?;
            let outcome = JobOutcome::ALL.get(usize::from(code)).ok_or_else(|| impossible(5, "an outcome", code))?;
            let (files, bytes, stored, message) = (row.get(6)?, row.get(7)?, row.get(8)?, row.get(9)?);
            Some(JobEnd { ended_ns, outcome: *outcome, files, bytes, stored, message })
        }
        None => None,
    };
    Ok(Job { id: row.get(0)?, kind: row.get(1)?, subject: row.get(2)?, started_ns: row.get(3)?, end })
}
