//! Runs of a server that was killed when all was written, and before it noted that: they are done, and not to be done
//! again.

use capstan_catalog::{ActiveRun, Catalog, JobEnd, JobOutcome};

use crate::DirectorError;
use crate::config::JobConfig;
use crate::earlier_attempts::{is_of_path, is_of_stream, lacking_copies, lacks_files, restorable_of_run};
use crate::lacks::CopiesOfPolicies;
use crate::server_term::ServerTerm;
use crate::site::{Site, locked};

/// The exit code of a command that could not read everything.
const EXIT_PROBLEMS: u8 = 3;
/// What the history says of them.
const MESSAGE: &str = "all of it was written; the server was killed before it noted the end";

impl Site {
    /// Ends such runs in the history, from which the queue learns of it. A run that has a program run afterwards is not
    /// ended: nobody knows whether that has run, and it may be what lets a database write again.
    ///
    /// # Errors
    /// The catalog cannot be read or written.
    pub fn end_whole_runs(&self, term: &ServerTerm) -> Result<(), DirectorError> {
        let policies = self.policies()?;
        // What an object lacks is known once its list of files is made.
        self.seal_complete(&[])?;
        // And which copies are whole, once they were looked at.
        self.look_at_copies()?;
        let of_policies = self.copies_of_policies()?;
        let mut catalog = locked(&self.catalog);
        for run in catalog.active_runs()?.iter().filter(|run| run.term != term.number()) {
            let policy = policies.iter().find(|policy| policy.name == run.run.policy);
            let Some(policy) = policy.filter(|policy| policy.config.after.is_empty()) else { continue };
            if let Some((job, end)) = whole(&catalog, run, &policy.config, &of_policies)? {
                let log = catalog.log_of(job)?;
                catalog.end_job(job, &end, &log)?;
            }
        }
        Ok(())
    }
}

/// The entry of a run in the history, and how it ended, if it has written all that its policy names.
fn whole(
    catalog: &Catalog,
    run: &ActiveRun,
    policy: &JobConfig,
    of_policies: &CopiesOfPolicies,
) -> Result<Option<(i64, JobEnd)>, DirectorError> {
    let Some(job) = run.job.map(|job| catalog.job(job)).transpose()?.flatten() else { return Ok(None) };
    if job.end.is_some() {
        return Ok(None);
    }
    // What was due while the attempt was at work is no reason to do it again.
    let since_ns = run.run.skipped_due_ns.map(|skipped_ns| skipped_ns.min(run.started_ns));
    let mut written = restorable_of_run(catalog, (run.run.run, &run.run.client), since_ns)?;
    // An earlier attempt may have made an incremental before a full backup was asked for.
    written.retain(|object| !run.run.is_full || object.base.is_none());
    let has_paths = policy.sources.iter().all(|path| written.iter().any(|object| is_of_path(object, path)));
    let has_stream = policy.stdin.iter().all(|name| written.iter().any(|object| is_of_stream(object, name)));
    // What an object lacks is not known where its list of files could not be made.
    let has_lists = written.iter().all(|object| object.counts.is_some());
    if written.is_empty() || !has_paths || !has_stream || !has_lists {
        return Ok(None);
    }
    let counts = || written.iter().filter_map(|object| object.counts.as_ref());
    let mut message = MESSAGE.to_owned();
    for object in &written {
        for lacking in lacking_copies(catalog, object, of_policies)? {
            message += &format!("; {lacking}");
        }
    }
    let lacks = written.iter().any(lacks_files) || message != MESSAGE;
    let (outcome, exit_code) = if lacks { (JobOutcome::Warned, EXIT_PROBLEMS) } else { (JobOutcome::Succeeded, 0) };
    let end = JobEnd {
        ended_ns: written.iter().map(|object| object.ended_ns).max().unwrap_or(run.started_ns),
        outcome,
        exit_code,
        files: counts().map(|counts| counts.files).sum(),
        bytes: counts().map(|counts| counts.bytes).sum(),
        stored: 0,
        message,
    };
    Ok(Some((job.id, end)))
}
