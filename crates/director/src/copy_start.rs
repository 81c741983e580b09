//! When a policy of copies runs without a time: as soon as there is something to copy, or once the stage fills.
//!
//! Whoever serves the site asks now and then. A run is entered in the queue as if somebody had typed it: it waits for
//! its window and for drives like any other. The next one comes four times as long after the last one as that took, so
//! that what is backed up in small pieces costs a mount for many of them, and no later than ten minutes after it. What
//! a run left, or failed at, is tried again ten minutes after that.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::ops::Range;

use capstan_catalog::{DoneRun, Entered, RunOutcome, Volume};

use crate::DirectorError;
use crate::config::JobConfig;
use crate::known_policies::BackupPolicy;
use crate::libraries::LibraryAt;
use crate::server_term::RunAsked;
use crate::site::{Site, locked};

/// How long after a run what it left is copied by another one, in nanoseconds; and for how long what came since waits
/// at most.
const AGAIN_AFTER_NS: i64 = 600_000_000_000;
/// A run takes at most one part in so many of the time: what comes meanwhile is copied together.
const ONE_PART_IN: i64 = 5;

/// A run that was entered because there was something to copy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StartedCopies {
    /// Its number.
    pub run: i64,
    /// Its policy.
    pub policy: String,
    /// Why now.
    pub reason: String,
}

/// Policies that owed nothing when it was looked last, and for how long that holds. As long as nothing is backed up,
/// they owe nothing before that.
#[derive(Debug, Default)]
pub struct NothingOwed(HashMap<String, (Moment, Range<i64>)>);

/// When the last backup had ended, and when the policy was changed last.
type Moment = (i64, i64);

/// What came of a look at policies of copies that run by what there is to copy.
#[derive(Debug, Default)]
pub struct CopiesStarted {
    /// Runs that were entered.
    pub started: Vec<StartedCopies>,
    /// Policies of which it could not be told, and why.
    pub failed: Vec<(String, DirectorError)>,
}

impl Site {
    /// Enters runs of policies of copies that are to run by what there is to copy. What cannot be told of one keeps no
    /// other from it.
    ///
    /// # Errors
    /// The catalog cannot be read.
    pub fn start_owed_copies(&self, nothing: &mut NothingOwed) -> Result<CopiesStarted, DirectorError> {
        let policies = self.policies()?;
        let starts_itself = |policy: &&BackupPolicy| {
            policy.fault.is_none() && !policy.config.is_switched_off() && policy.config.starts_by_what_is_owed()
        };
        let starting: Vec<_> = policies.iter().filter(starts_itself).collect();
        let mut came = CopiesStarted::default();
        if starting.is_empty() {
            return Ok(came);
        }
        let (unfinished, newest_ns) = {
            let catalog = locked(&self.catalog);
            (catalog.unfinished_runs()?, catalog.last_ended_ns()?)
        };
        let in_queue: HashSet<&str> = unfinished.runs().map(|run| run.policy.as_str()).collect();
        for policy in starting.into_iter().filter(|policy| !in_queue.contains(policy.name.as_str())) {
            match self.start_if_owed(policy, &policies, newest_ns, nothing) {
                Ok(started) => came.started.extend(started),
                Err(error) => came.failed.push((policy.name.clone(), error)),
            }
        }
        Ok(came)
    }

    fn start_if_owed(
        &self,
        policy: &BackupPolicy,
        policies: &[BackupPolicy],
        newest_ns: i64,
        nothing: &mut NothingOwed,
    ) -> Result<Option<StartedCopies>, DirectorError> {
        let (name, job) = (&policy.name, &policy.config);
        let (now_ns, moment) = (self.now_ns(), (newest_ns, policy.changed_ns));
        if nothing.0.get(name).is_some_and(|(then, holds)| *then == moment && holds.contains(&now_ns)) {
            return Ok(None);
        }
        let last = locked(&self.catalog).last_done_run(name)?;
        if last.as_ref().is_some_and(|last| (last.ended_ns..goes_on_ns(last)).contains(&now_ns)) {
            return Ok(None);
        }
        let fill = match job.when_above {
            Some(percent) => match self.stage_above(job, percent, policies)? {
                Some(fill) => Some(fill),
                None => return Ok(None),
            },
            None => None,
        };
        let owed = self.copies_owed(job)?;
        if owed.objects.is_empty() {
            // An expiry may be taken back meanwhile.
            let until_ns = now_ns.saturating_add(AGAIN_AFTER_NS).min(owed.next_ns.unwrap_or(i64::MAX));
            nothing.0.insert(name.clone(), (moment, now_ns..until_ns));
            return Ok(None);
        }
        let was_tried = |last: &DoneRun| {
            let begun_ns = last.started_ns.unwrap_or(last.ended_ns);
            owed.due_ns <= begun_ns
                // The clock may have been ahead then.
                && (last.ended_ns..last.ended_ns.saturating_add(AGAIN_AFTER_NS)).contains(&now_ns)
        };
        if last.as_ref().is_some_and(was_tried) {
            return Ok(None);
        }
        let count = owed.objects.len();
        let objects = if count == 1 { "1 object is".to_owned() } else { format!("{count} objects are") };
        let reason = format!("{}{objects} to be copied", fill.map_or(String::new(), |fill| format!("{fill}, and ")));
        let entered = self.enter_runs(name, None, RunAsked::OF_POLICY)?;
        let waits = entered.into_iter().find_map(|(_, entered)| match entered {
            Entered::Waits(run) => Some(run),
            _ => None,
        });
        Ok(waits.map(|run| StartedCopies { run, policy: name.clone(), reason }))
    }

    /// How full a library is that a policy copies from, in words, if one is filled above so many percent: by the disk
    /// of a folder, or by what its volumes may hold.
    fn stage_above(
        &self,
        job: &JobConfig,
        percent: u8,
        policies: &[BackupPolicy],
    ) -> Result<Option<String>, DirectorError> {
        let own = |name: &String| {
            let known = policies.iter().find(|policy| policy.name == *name).map(|policy| &policy.config);
            known.or_else(|| self.config.jobs.get(name))
        };
        let pools: HashSet<String> = job.copies_of.iter().filter_map(own).flat_map(JobConfig::own_pools).collect();
        let volumes = locked(&self.catalog).volumes()?;
        let is_own = |volume: &&Volume| volume.pool.as_ref().is_some_and(|pool| pools.contains(pool));
        let libraries: BTreeSet<&str> = volumes.iter().filter(is_own).map(|volume| &*volume.library).collect();
        let mut is_known = false;
        for (library, inventory) in &self.virtual_libraries() {
            let of_library = volumes.iter().filter(|volume| volume.library == library.name);
            let written = of_library.clone().fold(0, |sum: u64, volume| sum.saturating_add(volume.written));
            let names: HashSet<_> = of_library.filter(is_own).map(|volume| &volume.volser).collect();
            let holds = holds_at_most(library, &volumes);
            is_known |= !names.is_empty() && (holds > 0 || !inventory.rooms.is_empty());
            let disks = inventory.rooms.iter().filter(|room| room.volumes.iter().any(|volser| names.contains(volser)));
            if let Some(room) = disks.max_by_key(|room| room.percent_taken())
                && room.percent_taken() > u64::from(percent)
            {
                return Ok(Some(format!("the disk of {} is {} % full", room.folder, room.percent_taken())));
            }
            let taken = percent_of(written, holds);
            if !names.is_empty() && taken > u64::from(percent) {
                return Ok(Some(format!("library {} is {taken} % full", library.name)));
            }
        }
        if !libraries.is_empty() && !is_known {
            let libraries = libraries.into_iter().collect::<Vec<_>>().join(", ");
            return Err(DirectorError::FillUnknown { libraries });
        }
        Ok(None)
    }
}

/// When the next run may come, nanoseconds since 1970.
fn goes_on_ns(last: &DoneRun) -> i64 {
    let pause_ns = match last.outcome {
        RunOutcome::Succeeded => {
            let took_ns = last.ended_ns.saturating_sub(last.started_ns.unwrap_or(last.ended_ns)).max(0);
            took_ns.saturating_mul(ONE_PART_IN - 1).min(AGAIN_AFTER_NS)
        }
        RunOutcome::Warned | RunOutcome::Failed | RunOutcome::Cancelled | RunOutcome::Missed => AGAIN_AFTER_NS,
    };
    last.ended_ns.saturating_add(pause_ns)
}

/// Bytes that all volumes of a library hold at most, as its settings have them; none where another machine has these.
fn holds_at_most(library: &LibraryAt, volumes: &[Volume]) -> u64 {
    if !library.config.is_folder_here() {
        return 0;
    }
    let there = volumes.iter().filter(|volume| volume.library == library.name).count() as u64;
    u64::from(library.config.volumes_max).max(there).saturating_mul(library.config.volume_mib << 20)
}

fn percent_of(part: u64, whole: u64) -> u64 {
    if whole == 0 { 0 } else { u64::try_from(u128::from(part) * 100 / u128::from(whole)).unwrap_or(u64::MAX) }
}
