//! Runs of policies that look after the volumes of pools: samples are read back, and volumes emptied.

use capstan_catalog::QueuedRun;
use capstan_director::{
    DirectorError, JobConfig, ReclaimOptions, ReclaimRequest, ScrubAmount, ScrubRequest, Sent, Shortfall, Site, Tally,
    subject_of_job,
};
use capstan_mover::RestoreWatch;

use super::job::{Served, policy_of};
use super::reclaim::Outcome;
use super::scrub;
use crate::failure::{DONE_WITH_PROBLEMS, Failure};
use crate::progress::{Display, Standing};
use crate::vault::sent_in_lines;
use crate::work::recorded::recorded;

/// How sure the statement of a scrub is.
const CERTAINTY: f64 = 0.99;

/// Runs a policy of care for a server; gives the exit code that a command would have had, and how it went in a line.
pub(crate) fn care_served(
    served: &Served<'_>,
    run: &QueuedRun,
    display: &Display,
    watch: &RestoreWatch,
) -> Result<(u8, String), Failure> {
    let site = served.site.beside(display.events())?;
    let job = policy_of(&site, &run.policy)?;
    let mut message = String::new();
    let subject = format!("{} pool {}", subject_of_job(&run.policy), job.care_of.join(", "));
    let code = recorded(display, &site, ("care", &subject), |record| {
        served.note_entry(display)?;
        let mut care = Care { site: &site, job: &job, display, watch, said: Vec::new(), bytes: 0, problems: false };
        let done = display.follow(&|| Standing::of_reading(watch), || care.all());
        record.tally = Tally { files: 0, bytes: care.bytes, stored: care.bytes };
        record.message = care.said.join("; ");
        message.clone_from(&record.message);
        done?;
        Ok(if care.problems { DONE_WITH_PROBLEMS } else { 0 })
    })?;
    Ok((code, message))
}

/// One run.
struct Care<'r> {
    site: &'r Site,
    job: &'r JobConfig,
    display: &'r Display,
    watch: &'r RestoreWatch,
    /// What came of it so far.
    said: Vec<String>,
    bytes: u64,
    problems: bool,
}

impl Care<'_> {
    /// All that the policy says.
    fn all(&mut self) -> Result<(), DirectorError> {
        let job = self.job;
        if let Some(one_in) = job.scrub_one_in {
            self.scrub(one_in)?;
        }
        let request = ReclaimRequest {
            volumes: Vec::new(),
            pools: job.care_of.clone(),
            below: job.reclaim_below.map(|percent| f64::from(percent) / 100.0),
            generations: job.retire_generations.clone(),
            suspect: job.reclaim_suspect == Some(true),
        };
        if request.below.is_some() || request.suspect || !request.generations.is_empty() {
            self.reclaim(&request)?;
        }
        if let Some(vault) = &job.vault {
            self.send(vault)?;
        }
        Ok(())
    }

    /// Brings what is to go to the vault to the mail slot. What finds no room there goes next time.
    fn send(&mut self, vault: &str) -> Result<(), DirectorError> {
        let Sent { in_mail_slot, noted, left } = self.site.send_due_to_vault(&self.job.care_of, Some(vault))?;
        for (volume, reason) in &left {
            self.display.say(&format!("volume {volume} was not sent: {reason}"));
        }
        let mut lines = sent_in_lines(&in_mail_slot, &noted);
        if !left.is_empty() {
            lines.push(format!("{} more to go to vault {vault}", left.len()));
        }
        if lines.is_empty() {
            lines.push(format!("no volume is to go to vault {vault}"));
        }
        for line in lines {
            self.display.say(&line);
            self.said.push(line);
        }
        Ok(())
    }

    fn scrub(&mut self, one_in: u64) -> Result<(), DirectorError> {
        let plan = self.site.plan_scrub(&ScrubRequest {
            volumes: Vec::new(),
            pools: self.job.care_of.clone(),
            place_blocks: self.job.scrub_place.unwrap_or(1),
            amount: ScrubAmount::OneIn(one_in),
            certainty: CERTAINTY,
            seed: None,
        })?;
        let report = self.site.scrub(plan, self.watch)?;
        let (statement, is_good) = scrub::said(self.display, &report);
        self.said.push(statement);
        self.problems |= !is_good;
        if report.is_stopped { Err(DirectorError::Interrupted) } else { Ok(()) }
    }

    fn reclaim(&mut self, request: &ReclaimRequest) -> Result<(), DirectorError> {
        let plan = self.site.plan_reclaim(request)?;
        // One that is gone from the shelves is gone; a name may be wrong, too.
        for generation in &plan.unknown {
            self.display.warn(&DirectorError::UnknownGeneration { generation: generation.clone() }.to_string());
        }
        if plan.volumes.is_empty() && plan.retires.is_empty() {
            return Ok(());
        }
        let options = ReclaimOptions {
            retire: false,
            verify: false,
            most: usize::from(self.job.reclaim_max.unwrap_or(u16::MAX)),
            shortfall: Shortfall::Fail,
            in_this_library: self.job.unit.is_some(),
        };
        let mut outcome = Outcome::default();
        let display = self.display;
        let done = outcome.of(display, self.site, &plan, options, self.watch, &mut |line, _| display.say(line));
        self.bytes += outcome.bytes;
        self.problems |= outcome.not_emptied > 0;
        self.said.push(outcome.in_a_line());
        done?;
        // What went wrong with all of them is the run's failure, and it is tried again.
        match outcome.first_failure.take() {
            Some(error) if outcome.emptied == 0 => Err(error),
            _ => Ok(()),
        }
    }
}
