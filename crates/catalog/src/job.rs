//! The log of jobs: what was run, when, how it ended, and what it said.

use capstan_format::ObjectId;

use crate::CatalogError;
use crate::catalog::{Catalog, number};
use crate::db::{Row, impossible, params};

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
    /// The run of the queue that it is an attempt of, if it is one.
    pub run: Option<i64>,
    /// What it did; `None` while it runs, and for ever if it was killed.
    pub end: Option<JobEnd>,
}

const JOB: &str = "SELECT job, kind, subject, process, started_ns, ended_ns, outcome, exit_code, files, bytes, stored, \
                   message, run FROM jobs";

const PUT_OBJECT: &str = "INSERT INTO job_objects (job, object) VALUES (?1, ?2) ON CONFLICT (job, object) DO NOTHING";

impl Catalog {
    /// Notes that a job begins, and gives its number.
    ///
    /// # Errors
    /// The database cannot be written.
    pub fn begin_job(&mut self, start: &JobStart<'_>) -> Result<i64, CatalogError> {
        let JobStart { kind, subject, process, started_ns } = start;
        let transaction = self.write()?;
        let last = transaction.query_count("SELECT coalesce(max(job), 0) FROM jobs", &[])?;
        let job = last.saturating_add(1).cast_signed();
        transaction.execute(
            "INSERT INTO jobs (job, kind, subject, process, started_ns, outcome, files, bytes, stored, message)
             VALUES (?1, ?2, ?3, ?4, ?5, 0, 0, 0, 0, '')",
            params![job, kind, subject, process, started_ns],
        )?;
        let oldest = job - JOBS_KEPT;
        transaction.execute("DELETE FROM jobs WHERE job <= ?1", params![oldest])?;
        transaction.execute("DELETE FROM job_objects WHERE job <= ?1", params![oldest])?;
        transaction.commit()?;
        Ok(job)
    }

    /// Notes which object a job writes.
    ///
    /// # Errors
    /// The database cannot be written.
    pub fn job_writes(&mut self, job: i64, object: ObjectId) -> Result<(), CatalogError> {
        let transaction = self.write_for_now()?;
        transaction.execute(PUT_OBJECT, params![job, object.0])?;
        transaction.commit()
    }

    /// Notes which objects an attempt of a run is about to write, so that the next attempt finds them. The attempt is
    /// the run's last job; of a run that has none, nothing is noted.
    ///
    /// # Errors
    /// The database cannot be written; nothing is noted then.
    pub fn run_writes(&mut self, run: i64, objects: &[ObjectId]) -> Result<(), CatalogError> {
        let transaction = self.write_for_now()?;
        let last = "SELECT job FROM jobs WHERE run = ?1 ORDER BY job DESC LIMIT 1";
        if let Some(job) = transaction.query_first::<i64>(last, params![run], |row| row.get(0))? {
            for object in objects {
                transaction.execute(PUT_OBJECT, params![job, object.0])?;
            }
        }
        transaction.commit()
    }

    /// Keeps what a job said so far.
    ///
    /// # Errors
    /// The database cannot be written.
    pub fn keep_log(&mut self, job: i64, log: &str) -> Result<(), CatalogError> {
        let transaction = self.write_for_now()?;
        transaction.execute("UPDATE jobs SET log = ?2 WHERE job = ?1", params![job, log])?;
        transaction.commit()
    }

    /// Notes how a job ended, and what it said.
    ///
    /// # Errors
    /// The database cannot be written, or [`CatalogError::TooLarge`]: a count is above what it can keep.
    pub fn end_job(&mut self, job: i64, end: &JobEnd, log: &str) -> Result<(), CatalogError> {
        let transaction = self.write()?;
        transaction.execute(
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
        transaction.commit()
    }

    /// The last jobs, the latest first.
    ///
    /// # Errors
    /// The database cannot be read.
    pub fn jobs(&self, limit: u32) -> Result<Vec<Job>, CatalogError> {
        self.db.query(&format!("{JOB} ORDER BY job DESC LIMIT ?1"), params![limit], job)
    }

    /// Jobs of which no end is known: they run, or were killed. The latest first.
    ///
    /// # Errors
    /// The database cannot be read.
    pub fn jobs_without_end(&self) -> Result<Vec<Job>, CatalogError> {
        self.db.query(&format!("{JOB} WHERE ended_ns IS NULL ORDER BY job DESC"), &[], job)
    }

    /// A job by its number.
    ///
    /// # Errors
    /// The database cannot be read.
    pub fn job(&self, id: i64) -> Result<Option<Job>, CatalogError> {
        self.db.query_first(&format!("{JOB} WHERE job = ?1"), params![id], job)
    }

    /// What a job said.
    ///
    /// # Errors
    /// The database cannot be read.
    pub fn log_of(&self, job: i64) -> Result<String, CatalogError> {
        let log = self.db.query_first("SELECT log FROM jobs WHERE job = ?1", params![job], |row| row.get(0))?;
        Ok(log.unwrap_or_default())
    }

    /// Which objects a job wrote, in the order they were recorded.
    ///
    /// # Errors
    /// The database cannot be read.
    pub fn objects_of_job(&self, job: i64) -> Result<Vec<ObjectId>, CatalogError> {
        let query = "SELECT object FROM job_objects WHERE job = ?1 ORDER BY object";
        self.db.query(query, params![job], |row| row.get(0).map(ObjectId))
    }

    /// Which objects the attempts of a run wrote, in the order they were recorded.
    ///
    /// # Errors
    /// The database cannot be read.
    pub fn objects_of_run(&self, run: i64) -> Result<Vec<ObjectId>, CatalogError> {
        let query = "SELECT DISTINCT object FROM job_objects JOIN jobs USING (job) WHERE run = ?1 ORDER BY object";
        self.db.query(query, params![run], |row| row.get(0).map(ObjectId))
    }

    /// When the last attempt of a run that wrote an object began, nanoseconds since 1970: what it read is not older,
    /// whenever the object was begun. `None` if none of its attempts is known to have written it.
    ///
    /// # Errors
    /// The database cannot be read.
    pub fn written_by_run_ns(&self, run: i64, object: ObjectId) -> Result<Option<i64>, CatalogError> {
        let query = "SELECT started_ns FROM jobs JOIN job_objects USING (job) WHERE run = ?1 AND object = ?2
                     ORDER BY job DESC LIMIT 1";
        self.db.query_first(query, params![run, object.0], |row| row.get(0))
    }

    /// Takes over the log of another catalog, which this one replaces. Without its queue, jobs are of no run: the
    /// numbers of runs are given anew then.
    ///
    /// # Errors
    /// The old catalog cannot be read, or this one cannot be written; nothing is taken over then.
    pub fn take_over_jobs(&mut self, old: &Self, has_queue: bool) -> Result<(), CatalogError> {
        let jobs = old.db.query(&format!("{JOB} ORDER BY job"), &[], job)?;
        let mut logs = Vec::with_capacity(jobs.len());
        for job in jobs {
            logs.push((old.log_of(job.id)?, old.objects_of_job(job.id)?, job));
        }
        let transaction = self.write()?;
        for (log, objects, job) in logs {
            let end = job.end.as_ref();
            let count = |what, count: fn(&JobEnd) -> u64| number(what, end.map_or(0, count));
            transaction.execute(
                "INSERT INTO jobs (job, kind, subject, process, started_ns, ended_ns, outcome, exit_code, files, bytes, stored,
                                   message, log, run)
                 VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14) ON CONFLICT (job) DO NOTHING",
                params![
                    job.id,
                    job.kind,
                    job.subject,
                    job.process,
                    job.started_ns,
                    end.map(|end| end.ended_ns),
                    end.map_or(JobOutcome::Running, |end| end.outcome) as u8,
                    end.map_or(0, |end| end.exit_code),
                    count("a count of files", |end| end.files)?,
                    count("a count of bytes", |end| end.bytes)?,
                    count("a count of bytes", |end| end.stored)?,
                    end.map_or("", |end| &end.message),
                    log,
                    job.run.filter(|_| has_queue),
                ],
            )?;
            for object in objects {
                transaction.execute(PUT_OBJECT, params![job.id, object.0])?;
            }
        }
        transaction.commit()
    }
}

fn job(row: &Row<'_>) -> Result<Job, CatalogError> {
    let end = match row.get(5)? {
        Some(ended_ns) => {
            let code: u8 = row.get(6)?;
            let outcome = JobOutcome::ALL.get(usize::from(code)).ok_or_else(|| impossible("an outcome", code))?;
            let (exit_code, files, bytes, stored, message) =
                (row.get(7)?, row.get(8)?, row.get(9)?, row.get(10)?, row.get(11)?);
            Some(JobEnd { ended_ns, outcome: *outcome, exit_code, files, bytes, stored, message })
        }
        None => None,
    };
    let (id, kind, subject, process) = (row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?);
    Ok(Job { id, kind, subject, process, started_ns: row.get(4)?, run: row.get(12)?, end })
}
