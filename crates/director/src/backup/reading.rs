//! The sources of a backup, read into its session.

use std::collections::VecDeque;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use capstan_format::ObjectId;
use capstan_mover::{Intake, ListedBaseline, ReadFrom, SnapshotUse, SourceReading, SourceReport, SourceSpec};
use capstan_tape::with_causes;

use super::{BackupWatch, SourceOutcome};
use crate::Event;
use crate::jobs::Job;
use crate::ranges::stream_lengths;
use crate::site::{Site, locked};

/// Reads sources into a session.
pub(super) struct Reading<'a> {
    pub(super) site: &'a Site,
    pub(super) intake: &'a Intake,
    /// How many streams are read at the same time.
    pub(super) connections: usize,
    pub(super) watch: &'a BackupWatch,
}

impl Reading<'_> {
    /// Reads all sources, as many at a time as there are connections for them.
    pub(super) fn all(&self, jobs: Vec<Job>) -> Vec<SourceOutcome> {
        let at_once = jobs.len().min(self.connections).max(1);
        let each = (self.connections / at_once).max(1);
        let queue = Mutex::new(jobs.into_iter().enumerate().collect::<VecDeque<_>>());
        let outcomes = Mutex::new(Vec::new());
        std::thread::scope(|scope| {
            for _ in 0..at_once {
                scope.spawn(|| {
                    loop {
                        let next = locked(&queue).pop_front();
                        let Some((number, job)) = next else { return };
                        let outcome = self.one(job, each);
                        locked(&outcomes).push((number, outcome));
                    }
                });
            }
        });
        let mut outcomes = outcomes.into_inner().unwrap_or_else(PoisonError::into_inner);
        outcomes.sort_by_key(|(number, _)| *number);
        outcomes.into_iter().map(|(_, outcome)| outcome).collect()
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
        let object = job.record.object;
        let known = stream_lengths(&locked(&self.site.catalog), object).map_err(|error| with_causes(&error))?;
        self.intake.begin_object_again(job.record.clone(), known).map_err(|error| with_causes(&error))?;
        // Whatever comes, a panic too: nobody waits for more of it.
        let mut leaves = LeavesObject(self.intake, Some(object));
        let report = self.read_begun(job, connections)?;
        leaves.1 = None;
        self.intake.end_object(object, self.site.now_ns()).map_err(|error| with_causes(&error))?;
        Ok(report)
    }

    fn read_begun(&self, job: Job, connections: usize) -> Result<SourceReport, String> {
        let Job { mut spec, real_path, record, first_connection, baseline, cut, .. } = job;
        let (object, began_ns) = (record.object, record.started_ns);
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
        let report = self.site.sources.read(self.intake, reading).map_err(|error| with_causes(&error))?;
        let source = String::from_utf8_lossy(&record.source);
        let wanted = match &spec {
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
            ReadFrom::Live | ReadFrom::Snapshot { .. } => return Ok(report),
        };
        (self.site.events)(Event::Notice { message });
        Ok(report)
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

/// Leaves an object as it is, unless it has ended.
struct LeavesObject<'a>(&'a Intake, Option<ObjectId>);

impl Drop for LeavesObject<'_> {
    fn drop(&mut self) {
        self.1.into_iter().for_each(|object| self.0.leave_object(object));
    }
}
