//! The sources of a backup, read into its session.

use std::collections::VecDeque;
use std::path::Path;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::ScopedJoinHandle;

use capstan_format::{ObjectId, ObjectKind, ObjectRecord};
use capstan_mover::{
    Intake, ListedBaseline, ReadFrom, Severity, SnapshotUse, SourceReading, SourceReport, SourceSpec, Totals,
};
use capstan_tape::with_causes;

use super::joined::Joined;
use super::{BackupWatch, SourceOutcome};
use crate::jobs::Job;
use crate::ranges::stream_lengths;
use crate::request::{BackupRequest, Target};
use crate::site::{Site, locked};
use crate::{DirectorError, Event};

/// Why a directory that is empty is no backup.
const EMPTIED: &str = "nothing is in it, and something was at its last backup: mount its file system, or use \
                       --may-be-empty (may_be_empty in a policy) if it was emptied";

/// Why something else in the place of a directory is none.
const EXCHANGED: &str = "it is no directory any more but a symbolic link or a file, and something was in it at its last \
                         backup: name what the link points to as the source, or use --may-be-empty (may_be_empty in a \
                         policy) to back it up as it is";

/// Reads sources into a session.
pub(super) struct Reading<'a> {
    pub(super) site: &'a Site,
    pub(super) joined: &'a Joined,
    pub(super) request: &'a BackupRequest,
    pub(super) watch: &'a BackupWatch,
}

impl Reading<'_> {
    /// Reads all sources, as many at a time as there are connections for them.
    pub(super) fn all(&self, jobs: Vec<Job>) -> Vec<SourceOutcome> {
        let connections = self.site.connections(self.request, self.joined.drive_sets());
        let at_once = jobs.len().min(connections).max(1);
        let each = (connections / at_once).max(1);
        let specs: Vec<_> = jobs.iter().map(|job| job.spec.clone()).collect();
        let totals = Totals::default();
        let queue = Mutex::new(jobs.into_iter().enumerate().collect::<VecDeque<_>>());
        let outcomes = Mutex::new(Vec::new());
        std::thread::scope(|scope| {
            // Beside the reading, and by names alone: no file is looked at twice for the sake of a percentage.
            let counter = self.is_to_count(&specs).then(|| scope.spawn(|| self.count(&specs, &totals)));
            let read = || {
                loop {
                    let next = locked(&queue).pop_front();
                    let Some((number, job)) = next else { return };
                    let outcome = self.one(job, each);
                    locked(&outcomes).push((number, outcome));
                }
            };
            let readers: Vec<_> = (0..at_once).map(|_| scope.spawn(read)).collect();
            readers.into_iter().for_each(join);
            totals.stop();
            counter.into_iter().for_each(join);
        });
        let mut outcomes = outcomes.into_inner().unwrap_or_else(PoisonError::into_inner);
        outcomes.sort_by_key(|(number, _)| *number);
        outcomes.into_iter().map(|(_, outcome)| outcome).collect()
    }

    /// Whether what there is is counted for the display.
    fn is_to_count(&self, specs: &[SourceSpec]) -> bool {
        let all = |kind| specs.iter().all(|spec| spec.kind() == kind);
        let is_wanted = all(ObjectKind::Device) || (self.request.count_first && !all(ObjectKind::Stream));
        is_wanted && self.site.sources_are_here()
    }

    fn count(&self, specs: &[SourceSpec], totals: &Totals) {
        specs.iter().for_each(|spec| spec.count(totals));
        if totals.is_complete() {
            self.watch.bytes_total.store(totals.bytes(), Ordering::Relaxed);
            self.watch.files_total.store(totals.files(), Ordering::Relaxed);
        }
    }

    fn one(&self, job: Job, connections: usize) -> SourceOutcome {
        let object = job.record.object;
        let (source, resumed, base) = (job.record.source.clone(), job.resumed, job.record.base);
        let base_gone = job.base_gone.clone();
        (self.site.events)(Event::Begun { object, source: source.clone(), resumed });
        let report = self.read(job, connections);
        SourceOutcome { object, source, resumed, base, base_gone, report }
    }

    fn read(&self, job: Job, connections: usize) -> Result<SourceReport, String> {
        let Job { mut spec, real_path, record, first_connection, baseline, cut, .. } = job;
        let (intake, object, began_ns) = (&self.joined.intake, record.object, record.started_ns);
        let known = stream_lengths(&locked(&self.site.catalog), object).map_err(|error| with_causes(&error))?;
        intake.begin_object_again(record.clone(), known).map_err(|error| with_causes(&error))?;
        // Whatever comes, a panic too: nobody waits for more of it.
        let mut leaves = LeavesObject(intake, Some(object));
        let connections = spec.connections(connections);
        if let SourceSpec::Tree { options, .. } = &mut spec {
            options.excludes.extend(real_path.and_then(|path| self.library_below(&path)));
        }
        let events = Arc::clone(&self.site.events);
        let reading = SourceReading {
            spec: &spec,
            object,
            first_connection,
            connections,
            began_ns,
            baseline: baseline.as_ref().map(|baseline| baseline as &dyn ListedBaseline),
            cut: &cut,
            progress: &self.watch.progress,
            on_problem: Box::new(move |path, kind| events(Event::PathProblem { object, path: path.to_vec(), kind })),
        };
        let report = self.site.sources.read(intake, reading).map_err(|error| with_causes(&error))?;
        self.check_snapshot(&spec, &record.source, &report)?;
        if self.is_emptied(&spec, &record, &report).map_err(|error| with_causes(&error))? {
            let is_exchanged = report.files + report.others > 0;
            return Err(if is_exchanged { EXCHANGED } else { EMPTIED }.to_owned());
        }
        leaves.1 = None;
        intake.end_object(object, self.site.now_ns()).map_err(|error| with_causes(&error))?;
        Ok(report)
    }

    /// Whether nothing is in a directory that had something at its last backup, or something else is in its place, and
    /// that may not be so.
    fn is_emptied(
        &self,
        spec: &SourceSpec,
        record: &ObjectRecord,
        report: &SourceReport,
    ) -> Result<bool, DirectorError> {
        let SourceSpec::Tree { options, .. } = spec else { return Ok(false) };
        // The source itself is one path.
        let has_something = report.files + report.others + report.directories + report.unchanged > 1;
        // What could not be read or listed is there, and was named.
        let is_in_part = report.count(Severity::Loss) > 0;
        if has_something || is_in_part || options.may_be_empty || self.request.target != Target::Pool {
            return Ok(false);
        }
        let before = match record.base {
            Some(base) => Some(base),
            None => self.site.last_of(&record.source)?,
        };
        let Some(before) = before else { return Ok(false) };
        let state = locked(&self.site.catalog).state_as_far(before)?.0;
        Ok(state.iter().take(2).count() > 1)
    }

    /// Tells where a source was not read from a snapshot although it should be; it is an error where it had to.
    fn check_snapshot(&self, spec: &SourceSpec, source: &[u8], report: &SourceReport) -> Result<(), String> {
        let source = String::from_utf8_lossy(source);
        let wanted = match spec {
            SourceSpec::Tree { options, .. } => options.snapshot,
            _ => SnapshotUse::None,
        };
        let message = match &report.from {
            // It says nothing of snapshots: whatever it was asked, it knows of none.
            ReadFrom::Live if wanted == SnapshotUse::Require => {
                return Err("the machine that has it knows of no snapshots: bring it to this version".to_owned());
            }
            ReadFrom::Live if wanted == SnapshotUse::Prefer => {
                format!("{source} was read as it is: the machine that has it knows of no snapshots")
            }
            ReadFrom::LiveForWant { reason } => format!("{source} was read as it is, without a snapshot: {reason}"),
            ReadFrom::Snapshot { by, left: Some(reason) } => format!(
                "the {by} snapshot that {source} was read from could not be removed ({reason}): the next backup of it \
                 tries again"
            ),
            ReadFrom::Live | ReadFrom::Snapshot { .. } => return Ok(()),
        };
        (self.site.events)(Event::Notice { message });
        Ok(())
    }

    /// A pattern for the library, if a tree holds it: volumes are no source for themselves, and each run would store
    /// all earlier ones.
    fn library_below(&self, real_path: &Path) -> Option<String> {
        if !self.site.sources_are_here() {
            return None;
        }
        let library = std::fs::canonicalize(self.site.library_dir()).ok()?;
        let held = library.starts_with(real_path);
        let pattern = held.then(|| globset::escape(&library.to_string_lossy()))?;
        let message = format!("the library {} lies in a source, and is left out", library.display());
        (self.site.events)(Event::Notice { message });
        Some(pattern)
    }
}

fn join(thread: ScopedJoinHandle<'_, ()>) {
    if let Err(panic) = thread.join() {
        std::panic::resume_unwind(panic);
    }
}

/// Leaves an object as it is, unless it has ended.
struct LeavesObject<'a>(&'a Intake, Option<ObjectId>);

impl Drop for LeavesObject<'_> {
    fn drop(&mut self) {
        self.1.into_iter().for_each(|object| self.0.leave_object(object));
    }
}
