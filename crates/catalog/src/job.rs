//! The log of jobs: what was run, when, how it ended, and what it said.

use capstan_format::ObjectId;
use rusqlite::{OptionalExtension, Row, params};

use crate::CatalogError;
use crate::catalog::{Catalog, number};
use crate::pool::impossible;

/// Jobs that are kept; older ones are forgotten when another begins.
const JOBS_KEPT: i64 = 10_000;

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

/// A job that begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct JobStart<'a> {
    /// What is done: `backup`, `restore`, `verify` ...
    pub kind: &'a str,
    /// To what.
    pub subject: &'a str,
    /// The process that does it, in words by which another one sees whether it lives.
    pub process: &'a str,
    /// When it begins, nanoseconds since 1970.
    pub started_ns: i64,
}

/// What a job did.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JobEnd {
    /// When it ended, nanoseconds since 1970.
    pub ended_ns: i64,
    /// How it ended.
    pub outcome: JobOutcome,
    /// The exit code of its command.
    pub exit_code: u8,
    /// Files handled.
    pub files: u64,
    /// Bytes of their content.
    pub bytes: u64,
    /// Bytes moved to or from volumes.
    pub stored: u64,
    /// What an operator should know, in a line.
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
    /// The process that does it.
    pub process: String,
    /// When it began, nanoseconds since 1970.
    pub started_ns: i64,
    /// What it did; `None` while it runs, and for ever if it was killed.
    pub end: Option<JobEnd>,
}

const JOB: &str = "SELECT job, kind, subject, process, started_ns, ended_ns, outcome, exit_code, files, bytes, stored, message FROM jobs";

impl Catalog {
    /// Notes that a job begins, and gives its number.
    pub fn begin_job(&mut self, start: &JobStart<'_>) -> Result<i64, CatalogError> {
        let JobStart { kind, subject, process, started_ns } = start;
        let transaction = self.write()?;
        transaction.execute(
            "INSERT INTO jobs (kind, subject, process, started_ns, outcome, files, bytes, stored, message)
             VALUES (?1, ?2, ?3, ?4, 0, 0, 0, 0, '')",
            params![kind, subject, process, started_ns],
        )?;
        let job = transaction.last_insert_rowid();
        let oldest = job - JOBS_KEPT;
        transaction.execute("DELETE FROM jobs WHERE job <= ?1", [oldest])?;
        transaction.execute("DELETE FROM job_objects WHERE job <= ?1", [oldest])?;
        transaction.commit()?;
        Ok(job)
    }

    /// Notes which object a job writes.
    pub fn job_writes(&mut self, job: i64, object: ObjectId) -> Result<(), CatalogError> {
        self.db.execute("INSERT OR IGNORE INTO job_objects VALUES (?1, ?2)", params![job, object.0])?;
        Ok(())
    }

    /// Keeps what a job said so far.
    pub fn keep_log(&mut self, job: i64, log: &str) -> Result<(), CatalogError> {
        self.db.execute("UPDATE jobs SET log = ?2 WHERE job = ?1", params![job, log])?;
        Ok(())
    }

    /// Notes how a job ended, and what it said.
    pub fn end_job(&mut self, job: i64, end: &JobEnd, log: &str) -> Result<(), CatalogError> {
        self.db.execute(
            "UPDATE jobs SET ended_ns = ?2, outcome = ?3, exit_code = ?4, files = ?5, bytes = ?6, stored = ?7, message = ?8, log = ?9
             WHERE job = ?1",
            params![
                job,
                end.ended_ns,
                end.outcome as u8,
                end.exit_code,
                number("a count of files", end.files)?,
                number("a count of bytes", end.bytes)?,
                number("a count of bytes", end.stored)?,
                end.message,
                log,
            ],
        )?;
        Ok(())
    }

    /// The last jobs, the latest first.
    pub fn jobs(&self, limit: u32) -> Result<Vec<Job>, CatalogError> {
        let mut statement = self.db.prepare_cached(&format!("{JOB} ORDER BY job DESC LIMIT ?1"))?;
        Ok(statement.query_map([limit], job)?.collect::<Result<_, _>>()?)
    }

    /// Jobs of which no end is known: they run, or were killed. The latest first.
    pub fn jobs_without_end(&self) -> Result<Vec<Job>, CatalogError> {
        let mut statement = self.db.prepare_cached(&format!("{JOB} WHERE ended_ns IS NULL ORDER BY job DESC"))?;
        Ok(statement.query_map([], job)?.collect::<Result<_, _>>()?)
    }

    /// A job by its number.
    pub fn job(&self, id: i64) -> Result<Option<Job>, CatalogError> {
        Ok(self.db.prepare_cached(&format!("{JOB} WHERE job = ?1"))?.query_row([id], job).optional()?)
    }

    /// What a job said.
    pub fn log_of(&self, job: i64) -> Result<String, CatalogError> {
        let mut statement = self.db.prepare_cached("SELECT log FROM jobs WHERE job = ?1")?;
        Ok(statement.query_row([job], |row| row.get(0)).optional()?.unwrap_or_default())
    }

    /// Which objects a job wrote, in the order they were begun.
    pub fn objects_of_job(&self, job: i64) -> Result<Vec<ObjectId>, CatalogError> {
        let mut statement = self.db.prepare_cached("SELECT object FROM job_objects WHERE job = ?1 ORDER BY rowid")?;
        Ok(statement.query_map([job], |row| row.get(0).map(ObjectId))?.collect::<Result<_, _>>()?)
    }

    /// Takes over the log of another catalog, which this one replaces.
    pub fn take_over_jobs(&mut self, old: &Self) -> Result<(), CatalogError> {
        let transaction = self.write()?;
        for (table, columns) in [
            (
                "jobs",
                "job, kind, subject, started_ns, ended_ns, outcome, files, bytes, stored, message, process, exit_code, log",
            ),
            ("job_objects", "job, object"),
        ] {
            let mut from = old.db.prepare(&format!("SELECT {columns} FROM {table} ORDER BY rowid"))?;
            let count = from.column_count();
            let places = (1..=count).map(|place| format!("?{place}")).collect::<Vec<_>>().join(", ");
            let mut to =
                transaction.prepare(&format!("INSERT OR IGNORE INTO {table} ({columns}) VALUES ({places})"))?;
            let mut rows = from.query([])?;
            while let Some(row) = rows.next()? {
                let values: Vec<rusqlite::types::Value> = (0..count).map(|at| row.get(at)).collect::<Result<_, _>>()?;
                to.execute(rusqlite::params_from_iter(values))?;
            }
        }
        transaction.commit()?;
        Ok(())
    }
}

fn job(row: &Row<'_>) -> rusqlite::Result<Job> {
    let end = match row.get(5)? {
        Some(ended_ns) => {
            let code: u8 = row.get(6)?;
            let outcome = JobOutcome::ALL.get(usize::from(code)).ok_or_else(|| impossible(6, "an outcome", code))?;
            let (exit_code, files, bytes, stored, message) =
                (row.get(7)?, row.get(8)?, row.get(9)?, row.get(10)?, row.get(11)?);
            Some(JobEnd { ended_ns, outcome: *outcome, exit_code, files, bytes, stored, message })
        }
        None => None,
    };
    let (id, kind, subject, process) = (row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?);
    Ok(Job { id, kind, subject, process, started_ns: row.get(4)?, end })
}
