//! The history: which commands run, which ran, how they ended, and what they said.
//!
//! A run is one command's work, a row of the catalog's table `jobs`. It is entered when it begins, with its process, so
//! that work of a process that lives is told from work that was interrupted. Nothing fails for want of history, and
//! what cannot be entered is left out; but for the backups of a server's queue, whose next attempts learn from it what
//! there is already.

use std::sync::{Arc, Mutex};

use capstan_catalog::{Catalog, Job, JobEnd, JobOutcome, JobStart, Reservation, Resource};
use capstan_format::ObjectId;

use crate::DirectorError;
use crate::process::{self, Life};
use crate::shared::Clock;
use crate::site::{Site, locked};
use crate::unentered::UnenteredEnds;

/// Most bytes of what a job said that are kept: its beginning.
const LOG_LEN_MAX: usize = 64 << 10;

/// Runs among which the last one of a job is looked for.
const RUNS_LOOKED_AT: u32 = 1_000;

/// The exit code of what somebody stopped.
const STOPPED: u8 = 130;

/// The entry of a command that runs.
pub struct JobJournal {
    catalog: Arc<Mutex<Catalog>>,
    unentered: Arc<UnenteredEnds>,
    clock: Clock,
    job: i64,
    log: Mutex<String>,
}

/// What a run did, in numbers.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Tally {
    /// Files handled.
    pub files: u64,
    /// Bytes of their content.
    pub bytes: u64,
    /// Bytes moved to or from volumes.
    pub stored: u64,
}

/// A run as it stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HistoryEntry {
    /// The job.
    pub job: Job,
    /// Whether its process lives, where no end is known.
    pub runs: bool,
    /// The objects that it writes, or wrote.
    pub objects: Vec<ObjectId>,
}

/// A job whose last run failed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FailedJob {
    /// The job, by its name in the settings.
    pub job: String,
    /// Its last run.
    pub run: Job,
}

/// How the subject of a job's run begins.
pub fn subject_of_job(job: &str) -> String {
    format!("{job}:")
}

impl Site {
    /// Jobs of the settings whose last run failed. One that somebody stopped goes on, and has not failed.
    ///
    /// # Errors
    /// The catalog cannot be read.
    pub fn failed_jobs(&self) -> Result<Vec<FailedJob>, DirectorError> {
        let mut failed = Vec::new();
        if self.config.jobs.is_empty() {
            return Ok(failed);
        }
        let runs = locked(&self.catalog).jobs(RUNS_LOOKED_AT)?;
        for name in self.config.jobs.keys() {
            let subject = subject_of_job(name);
            let last = runs.iter().find(|run| {
                let rest = run.subject.strip_prefix(&subject);
                run.kind == "backup" && rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(' '))
            });
            let end = last.and_then(|run| run.end.as_ref());
            if let (Some(run), true) =
                (last, end.is_some_and(|end| end.outcome == JobOutcome::Failed && end.exit_code != STOPPED))
            {
                failed.push(FailedJob { job: name.clone(), run: run.clone() });
            }
        }
        Ok(failed)
    }

    /// Enters a run that begins; `None` where nothing can be entered.
    pub fn begin_run(&self, kind: &str, subject: &str) -> Option<JobJournal> {
        if self.is_read_only() {
            return None;
        }
        self.must_begin_run(kind, subject).ok()
    }

    /// Enters a run that begins, and that may not begin otherwise: a next attempt has to find what it writes.
    ///
    /// # Errors
    /// The catalog cannot be written.
    pub fn must_begin_run(&self, kind: &str, subject: &str) -> Result<JobJournal, DirectorError> {
        let process = process::this();
        let start = JobStart { kind, subject, process: &process, started_ns: self.now_ns() };
        let job = locked(&self.catalog).begin_job(&start)?;
        Ok(JobJournal {
            catalog: Arc::clone(&self.catalog),
            unentered: Arc::clone(&self.unentered),
            clock: self.clock,
            job,
            log: Mutex::default(),
        })
    }

    /// Enters the ends of this process's commands that could not be entered before.
    ///
    /// # Errors
    /// The catalog still cannot be written; what is left is kept.
    pub fn enter_ends_again(&self) -> Result<(), DirectorError> {
        Ok(self.unentered.enter(&self.catalog)?)
    }

    /// What runs now, the latest first.
    ///
    /// # Errors
    /// The catalog cannot be read.
    pub fn running(&self) -> Result<Vec<HistoryEntry>, DirectorError> {
        let catalog = locked(&self.catalog);
        let without_end = catalog.jobs_without_end()?.into_iter().map(|job| row(&catalog, job));
        let mut rows = without_end.collect::<Result<Vec<_>, _>>()?;
        drop(catalog);
        // Of a process that cannot be seen, what it has reserved says whether it lives.
        let mut reserved: Option<Vec<Reservation>> = None;
        for row in rows.iter_mut().filter(|row| !row.runs && process::life(&row.job.process) == Life::Unseen) {
            let reserved = match &mut reserved {
                Some(reserved) => reserved,
                None => reserved.insert(self.holds.living()?),
            };
            row.runs = reserved.iter().any(|held| {
                held.is_alone && matches!(held.resource, Resource::Object(object) if row.objects.contains(&object))
            });
        }
        rows.retain(|row| row.runs);
        Ok(rows)
    }

    /// The last runs, the latest first.
    ///
    /// # Errors
    /// The catalog cannot be read.
    pub fn history(&self, limit: u32) -> Result<Vec<HistoryEntry>, DirectorError> {
        let catalog = locked(&self.catalog);
        catalog.jobs(limit)?.into_iter().map(|job| row(&catalog, job)).collect()
    }

    /// A run, and what it said.
    ///
    /// # Errors
    /// [`DirectorError::UnknownRun`] if there is none of that number. Otherwise the catalog cannot be read.
    pub fn run(&self, id: i64) -> Result<(HistoryEntry, String), DirectorError> {
        let catalog = locked(&self.catalog);
        let job = catalog.job(id)?.ok_or(DirectorError::UnknownRun { run: id })?;
        Ok((row(&catalog, job)?, catalog.log_of(id)?))
    }
}

fn row(catalog: &Catalog, job: Job) -> Result<HistoryEntry, DirectorError> {
    let objects = catalog.objects_of_job(job.id)?;
    Ok(HistoryEntry { runs: job.end.is_none() && process::lives(&job.process), objects, job })
}

impl JobJournal {
    /// Its number in the history.
    pub fn number(&self) -> i64 {
        self.job
    }

    /// Keeps a line that was said.
    pub fn said(&self, line: &str) {
        let mut log = locked(&self.log);
        if log.len() + line.len() < LOG_LEN_MAX {
            log.push_str(line);
            log.push('\n');
        } else if !log.ends_with("...\n") {
            log.push_str("...\n");
        }
    }

    /// Notes an object that is begun.
    pub fn writes(&self, object: ObjectId) {
        // Without it the object is told as interrupted while it is written. What the next attempt of a run has to know
        // is noted before, or the attempt fails.
        let _ = locked(&self.catalog).job_writes(self.job, object);
    }

    /// Enters how the job ended.
    pub fn end(&self, outcome: JobOutcome, exit_code: u8, tally: Tally, message: &str) {
        let end = JobEnd {
            ended_ns: (self.clock)(),
            outcome,
            exit_code,
            files: tally.files,
            bytes: tally.bytes,
            stored: tally.stored,
            message: message.to_owned(),
        };
        let log = locked(&self.log).clone();
        // A command whose end cannot be entered is listed as one that was killed, once its process is gone.
        let entered = locked(&self.catalog).end_job(self.job, &end, &log);
        if entered.is_err() {
            self.unentered.keep(self.job, end, log);
        }
    }
}
