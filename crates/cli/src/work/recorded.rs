//! Enters what a command does in the history.

use std::process::ExitCode;

use capstan_catalog::JobOutcome;
use capstan_director::{JobJournal, Site, Tally};

use crate::failure::{DONE_WITH_PROBLEMS, Failure};
use crate::progress::Display;

/// What a command's work ends with.
pub(crate) trait Ending {
    /// The exit code that it stands for.
    fn code(&self) -> u8;
}

/// Codes that commands end with, for finding which one an `ExitCode` stands for: it does not tell.
const CODES: [u8; 8] = [0, DONE_WITH_PROBLEMS, 1, 2, 4, 5, 6, 130];

impl Ending for ExitCode {
    fn code(&self) -> u8 {
        CODES.into_iter().find(|known| Self::from(*known) == *self).unwrap_or(1)
    }
}

/// What a job leaves in the history beside what was said.
#[derive(Debug, Default)]
pub(crate) struct Record {
    /// What it did, in numbers.
    pub(crate) tally: Tally,
    /// How it ended, in a line.
    pub(crate) message: String,
}

/// Does a job's work, which the history then has: what it was, what was said, and how it ended.
pub(crate) fn recorded<T: Ending>(
    display: &Display,
    site: &Site,
    (kind, subject): (&str, &str),
    work: impl FnOnce(&mut Record) -> Result<T, Failure>,
) -> Result<T, Failure> {
    recorded_in(display.enter(site, kind, subject).as_deref(), work)
}

/// The same, for a job that is entered already, or cannot be.
pub(crate) fn recorded_in<T: Ending>(
    journal: Option<&JobJournal>,
    work: impl FnOnce(&mut Record) -> Result<T, Failure>,
) -> Result<T, Failure> {
    let mut record = Record::default();
    let ended = work(&mut record);
    if let Some(journal) = journal {
        let code = match &ended {
            Ok(ending) => ending.code(),
            Err(failure) => failure.exit_code(),
        };
        let outcome = match code {
            0 => JobOutcome::Succeeded,
            DONE_WITH_PROBLEMS => JobOutcome::Warned,
            _ => JobOutcome::Failed,
        };
        if let Err(failure) = &ended {
            record.message = failure.to_string();
        }
        journal.end(outcome, code, record.tally, &record.message);
    }
    ended
}
