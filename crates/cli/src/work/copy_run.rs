//! Runs of policies that copy what others have backed up.

use capstan_catalog::QueuedRun;
use capstan_director::{CopyRunReport, DirectorError, JobConfig, Site, Tally, subject_of_job};
use capstan_mover::RestoreWatch;
use capstan_server::{Expired, migrate};

use super::job::{Served, policy_of};
use crate::failure::{DONE_WITH_PROBLEMS, FAILED, Failure};
use crate::progress::{Display, Standing};
use crate::units;
use crate::work::recorded::{Ending, recorded};

/// Copies that were not made, of which the reason is said.
const FAILURES_SAID: usize = 10;

impl Ending for u8 {
    fn code(&self) -> u8 {
        *self
    }
}

/// Runs a policy of copies for a server; gives the exit code that a command would have had, and how it went in a line.
pub(crate) fn copy_served(
    served: &Served<'_>,
    run: &QueuedRun,
    display: &Display,
    watch: &RestoreWatch,
) -> Result<(u8, String), Failure> {
    let site = served.site.beside(display.events())?;
    let job = policy_of(&site, &run.policy)?;
    let mut message = String::new();
    let subject = format!("{} to pool {}", subject_of_job(&run.policy), job.pool.as_deref().unwrap_or_default());
    let code = recorded(display, &site, ("copy", &subject), |record| {
        served.note_entry(display)?;
        let mut report = CopyRunReport::default();
        let copied = display.follow(&|| Standing::of_reading(watch), || site.copy_by_policy(&job, watch, &mut report));
        record.tally = Tally { files: 0, bytes: report.bytes, stored: report.bytes };
        for copy in report.failed().take(FAILURES_SAID) {
            let reason = copy.failure.as_deref().unwrap_or_default();
            display.warn(&format!("object {} was not copied: {reason}", copy.object));
        }
        record.message = in_a_line(&report, &job);
        message.clone_from(&record.message);
        copied?;
        let migrated = migrated_text(&site, &job, &run.policy, display);
        record.message += &migrated;
        message += &migrated;
        code_of(report, &message)
    })?;
    Ok((code, message))
}

/// Forgets what the policy's copies take the place of, and says so behind what the run did. What is in use, or cannot
/// be forgotten now, goes with what expires next.
fn migrated_text(site: &Site, job: &JobConfig, policy: &str, display: &Display) -> String {
    if job.migrate_after.is_none() {
        return String::new();
    }
    match migrate(site, policy) {
        Ok(None) => String::new(),
        Ok(Some(Expired { copies: 0, notices, .. })) => {
            notices.iter().for_each(|notice| display.warn(notice));
            String::new()
        }
        Ok(Some(Expired { copies, volumes, notices, .. })) => {
            notices.iter().for_each(|notice| display.warn(notice));
            let freed = match volumes.len() {
                0 => String::new(),
                count => format!(", {} back to scratch", units::counted(count as u64, "volume")),
            };
            format!("; {} forgotten{freed}", units::counted(copies as u64, "older copy"))
        }
        Err(reason) => {
            display.warn(&format!("the copies that policy {policy} migrates are not forgotten now: {reason}"));
            String::new()
        }
    }
}

/// What came of it, in a line.
fn in_a_line(report: &CopyRunReport, job: &JobConfig) -> String {
    let pool = job.pool.as_deref().unwrap_or_default();
    let (made, tried) = (report.count(), report.made.copies.len());
    let mut line = match (made, tried) {
        (_, 0) if report.left > 0 => "nothing copied".to_owned(),
        (_, 0) => format!("nothing to copy to pool {pool}"),
        (made, tried) if made == tried => {
            format!("{} copied to pool {pool}", units::counted(made as u64, "object"))
        }
        (made, tried) => format!("{made} of {} copied to pool {pool}", units::counted(tried as u64, "object")),
    };
    if report.left > 0 {
        line += &format!(
            "; {} in use or not come to, and left for the next run",
            units::counted(report.left as u64, "object")
        );
    }
    if report.later > 0 {
        let delay = job.delay.as_deref().unwrap_or_default();
        line += &format!("; {} ended less than {delay} ago", units::counted(report.later as u64, "object"));
    }
    line
}

/// The exit code of a run that came to its end.
fn code_of(report: CopyRunReport, message: &str) -> Result<u8, Failure> {
    let (made, left, target_failed) = (report.count(), report.left, report.made.target_failed);
    let last_failure = report.failed().last().and_then(|copy| copy.failure.clone());
    match (report.made.outcome(), last_failure) {
        // It broke off, and is tried again; what was made stays made.
        (Ok(_), Some(reason)) if target_failed => {
            Err(Failure::Again { text: format!("{message}: {reason}"), exit_code: FAILED })
        }
        (Err(error), _) => Err(error.into()),
        (Ok(true), _) if left == 0 => Ok(0),
        (Ok(true), _) if made == 0 => {
            let (what, holder) = ("each object that is to be copied".to_owned(), "other jobs".to_owned());
            Err(DirectorError::InUse { what, holder }.into())
        }
        (Ok(_), _) => Ok(DONE_WITH_PROBLEMS),
    }
}
