//! When a policy of copies runs without a time: as soon as there is something to copy, or once the stage fills.
//!
//! Whoever serves the site asks now and then. A run is entered in the queue as if somebody had typed it: it waits for
//! its window and for drives like any other. What the last run left is tried again ten minutes after that.

use std::collections::{HashMap, HashSet};

use capstan_catalog::{DoneRun, Entered, Volume};

use crate::DirectorError;
use crate::config::JobConfig;
use crate::known_policies::BackupPolicy;
use crate::libraries::LibraryAt;
use crate::server_term::RunAsked;
use crate::site::{Site, locked};

/// How long after a run what it left is copied by another one, in nanoseconds.
const AGAIN_AFTER_NS: i64 = 600_000_000_000;

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

/// Policies that owed nothing when it was looked last. As long as nothing is backed up, they owe nothing now.
#[derive(Debug, Default)]
pub struct NothingOwed(HashMap<String, (Moment, i64)>);

/// When the last backup had ended, and when the policy was changed last.
type Moment = (i64, i64);

impl Site {
    /// Enters runs of policies of copies that are to run by what there is to copy.
    ///
    /// # Errors
    /// The catalog cannot be read or written.
    pub fn start_owed_copies(&self, nothing: &mut NothingOwed) -> Result<Vec<StartedCopies>, DirectorError> {
        let policies = self.policies()?;
        let starts_itself = |policy: &&BackupPolicy| {
            policy.fault.is_none() && !policy.config.is_switched_off() && policy.config.starts_by_what_is_owed()
        };
        let starting: Vec<_> = policies.iter().filter(starts_itself).collect();
        if starting.is_empty() {
            return Ok(Vec::new());
        }
        let (unfinished, ended, newest_ns) = {
            let catalog = locked(&self.catalog);
            (catalog.unfinished_runs()?, catalog.last_done_runs()?, catalog.last_ended_ns()?)
        };
        let in_queue: HashSet<&str> = unfinished.runs().map(|run| run.policy.as_str()).collect();
        let mut started = Vec::new();
        for policy in starting.into_iter().filter(|policy| !in_queue.contains(policy.name.as_str())) {
            let (name, job) = (&policy.name, &policy.config);
            let (now_ns, moment) = (self.now_ns(), (newest_ns, policy.changed_ns));
            let is_known = |(then, looked_ns): &(Moment, i64)| {
                // An expiry may have been taken back since.
                *then == moment && (*looked_ns..looked_ns.saturating_add(AGAIN_AFTER_NS)).contains(&now_ns)
            };
            if nothing.0.get(name).is_some_and(is_known) {
                continue;
            }
            let fill = match job.when_above {
                Some(percent) => match self.stage_above(job, percent, &policies)? {
                    Some(fill) => Some(fill),
                    None => continue,
                },
                None => None,
            };
            let owed = self.copies_owed(job)?;
            if owed.objects.is_empty() {
                if owed.later == 0 {
                    nothing.0.insert(name.clone(), (moment, now_ns));
                }
                continue;
            }
            let last = ended.iter().filter(|done| done.run.policy == *name).max_by_key(|done| done.run.run);
            let was_tried = |last: &DoneRun| {
                let begun_ns = last.started_ns.unwrap_or(last.ended_ns);
                owed.objects.iter().all(|object| object.ended_ns.saturating_add(job.delay_ns()) <= begun_ns)
                    // The clock may have been ahead then.
                    && (last.ended_ns..last.ended_ns.saturating_add(AGAIN_AFTER_NS)).contains(&now_ns)
            };
            if last.is_some_and(was_tried) {
                continue;
            }
            let count = owed.objects.len();
            let objects = if count == 1 { "1 object is".to_owned() } else { format!("{count} objects are") };
            let reason =
                format!("{}{objects} to be copied", fill.map_or(String::new(), |fill| format!("{fill}, and ")));
            for (_, entered) in self.enter_runs(name, None, RunAsked::OF_POLICY)? {
                if let Entered::Waits(run) = entered {
                    started.push(StartedCopies { run, policy: name.clone(), reason: reason.clone() });
                }
            }
        }
        Ok(started)
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
        for (library, inventory) in &self.virtual_libraries() {
            let own = volumes.iter().filter(|volume| {
                volume.library == library.name && volume.pool.as_ref().is_some_and(|pool| pools.contains(pool))
            });
            let (mut names, mut written) = (HashSet::new(), 0u64);
            for volume in own {
                names.insert(&volume.volser);
                written = written.saturating_add(volume.written);
            }
            let disks = inventory.rooms.iter().filter(|room| room.volumes.iter().any(|volser| names.contains(volser)));
            if let Some(room) = disks.max_by_key(|room| room.percent_taken())
                && room.percent_taken() > u64::from(percent)
            {
                return Ok(Some(format!("the disk of {} is {} % full", room.folder, room.percent_taken())));
            }
            let taken = percent_of(written, holds_at_most(library, &volumes));
            if !names.is_empty() && taken > u64::from(percent) {
                return Ok(Some(format!("library {} is {taken} % full", library.name)));
            }
        }
        Ok(None)
    }
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
