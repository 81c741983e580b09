//! Copies by policy: what others have backed up is copied to a pool, later and by a schedule of its own.
//!
//! ```text
//! backups of the policies named, the oldest first
//!   --which pool has no whole copy--> owed --some at a time--> promised --repair--> copied
//! ```
//! What an object stands on was backed up before it, and is copied before it. A promise is what a repair mends: so a
//! run that is stopped, or killed, leaves nothing behind that the next run does not go on with. Only so many objects
//! are promised at a time. No backup mends such a promise on its way, as it does others: these copies have a time and
//! a place of their own.

use std::collections::{HashMap, HashSet};
use std::sync::atomic::Ordering;

use capstan_catalog::{CopyState, Object, ObjectFilter, ObjectStatus, Timeline};
use capstan_format::{ObjectId, Volser};
use capstan_mover::RestoreWatch;
use capstan_tape::with_causes;
use jiff::tz::TimeZone;

use crate::DirectorError;
use crate::config::JobConfig;
use crate::copy::copies_of;
use crate::copy_terms::CopyLifetime;
use crate::known_policies::BackupPolicy;
use crate::lacks::Lacks;
use crate::mounter::{Drives, Mounter};
use crate::repair::{RepairReport, RepairedCopy};
use crate::request::Shortfall;
use crate::shared::apart;
use crate::site::{Site, locked};

/// Objects that are promised their copies at the same time, at most.
const OBJECTS_TOGETHER: usize = 1024;
/// Bytes of them, but of one object at least.
const BYTES_TOGETHER: u64 = 256 << 30;

/// What a policy of copies has before it.
#[derive(Debug, Default)]
pub struct CopiesOwed {
    /// Complete backups of which its pool has no whole copy, the oldest first.
    pub objects: Vec<Object>,
    /// How many more there are that have not ended for long enough.
    pub later: usize,
    /// When the first of those will have, nanoseconds since 1970.
    pub next_ns: Option<i64>,
    /// When the last of the others had.
    pub due_ns: i64,
}

/// A copy that an object has yet to get.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OwedCopy {
    /// The policy whose run makes it.
    pub policy: String,
    /// The pool that it goes to.
    pub pool: String,
    /// It is not made before, nanoseconds since 1970.
    pub from_ns: i64,
}

/// What a run of a policy of copies did.
#[derive(Debug, Default)]
pub struct CopyRunReport {
    /// Copies that were made, or could not be.
    pub made: RepairReport,
    /// Bytes of those that were made.
    pub bytes: u64,
    /// Objects that it did not come to, or that another job uses.
    pub left: usize,
    /// Objects that it left because they have not ended for long enough.
    pub later: usize,
}

impl CopyRunReport {
    /// How many copies were made.
    pub fn count(&self) -> usize {
        self.made.copies.iter().filter(|copy| copy.failure.is_none()).count()
    }

    /// Copies that could not be made.
    pub fn failed(&self) -> impl Iterator<Item = &RepairedCopy> {
        self.made.copies.iter().filter(|copy| copy.failure.is_some())
    }

    /// An object that cannot be copied at all.
    fn fails(&mut self, object: &Object, pool: &str, error: DirectorError) {
        let failure = Some(with_causes(&error));
        let (source, pool) = (object.source.clone(), pool.to_owned());
        self.made.copies.push(RepairedCopy { object: object.id, source, copy: 0, pool, failure });
        self.made.first_failure.get_or_insert(error);
    }
}

/// From when on an object is copied, nanoseconds since 1970. One whose clock was ahead has not ended in the future: it
/// had by the time that is known of it.
fn copied_from_ns(object: &Object, job: &JobConfig, timeline: &Timeline, now_ns: i64) -> i64 {
    let ended_ns = if object.ended_ns <= now_ns {
        object.ended_ns
    } else {
        let begun = timeline.begun(object.id).filter(|begun| begun.is_bounded);
        begun.map_or(now_ns, |begun| begun.by_ns.min(now_ns))
    };
    ended_ns.saturating_add(job.delay_ns())
}

impl Site {
    /// The backups that a policy of copies has yet to copy.
    ///
    /// # Errors
    /// The catalog cannot be read.
    pub fn copies_owed(&self, job: &JobConfig) -> Result<CopiesOwed, DirectorError> {
        // As long as it takes to go through all objects, others record.
        let (there, mut objects) = apart(&self.catalog, |catalog| {
            let filter = ObjectFilter { status: Some(ObjectStatus::Complete), ..ObjectFilter::default() };
            Ok::<_, DirectorError>((catalog.whole_in_pool(job.first_pool())?, catalog.objects(&filter)?))
        })?;
        objects.retain(|object| job.copies_of.contains(&object.policy));
        let timeline = self.timeline_apart()?;
        let wanted = CopyLifetime::of(job).kept(&objects, &timeline, &TimeZone::system());
        objects.retain(|object| wanted.contains(&object.id) && !there.contains(&object.id));
        objects.reverse();
        let now_ns = self.now_ns();
        let all = objects.len();
        // One whose base waits still waits with it.
        let mut waits: HashSet<ObjectId> = HashSet::new();
        let (mut next_ns, mut due_ns) = (None, i64::MIN);
        objects.retain(|object| {
            let from_ns = copied_from_ns(object, job, &timeline, now_ns);
            let goes = from_ns <= now_ns && object.base.is_none_or(|base| !waits.contains(&base));
            if goes {
                due_ns = due_ns.max(from_ns);
            } else {
                waits.insert(object.id);
                next_ns = Some(next_ns.map_or(from_ns, |next_ns: i64| next_ns.min(from_ns)));
            }
            goes
        });
        Ok(CopiesOwed { later: all - objects.len(), objects, next_ns, due_ns })
    }

    /// The copies that policies have yet to make of an object, by policy.
    ///
    /// # Errors
    /// The catalog cannot be read.
    pub fn copies_owed_of(&self, object: &Object) -> Result<Vec<OwedCopy>, DirectorError> {
        if object.status != ObjectStatus::Complete {
            return Ok(Vec::new());
        }
        let policies = self.policies()?;
        let wanted = locked(&self.catalog).wanted_copies(object.id)?;
        let is_there = |pool: &str| wanted.iter().any(|copy| copy.pool == pool && copy.state == CopyState::Whole);
        let mut owed = Vec::new();
        for BackupPolicy { name, config: job, .. } in policies.iter() {
            if !job.copies_of.contains(&object.policy) || is_there(job.first_pool()) {
                continue;
            }
            let of_source = ObjectFilter {
                source: Some(object.source.clone()),
                client: Some(object.client.clone()),
                policy: Some(object.policy.clone()),
                status: Some(ObjectStatus::Complete),
            };
            let objects = locked(&self.catalog).objects(&of_source)?;
            let timeline = self.timeline_apart()?;
            if CopyLifetime::of(job).kept(&objects, &timeline, &TimeZone::system()).contains(&object.id) {
                let (policy, pool) = (name.clone(), job.first_pool().to_owned());
                let from_ns = copied_from_ns(object, job, &timeline, self.now_ns());
                owed.push(OwedCopy { policy, pool, from_ns });
            }
        }
        Ok(owed)
    }

    fn timeline_apart(&self) -> Result<Timeline, DirectorError> {
        Ok(apart(&self.catalog, |catalog| catalog.timeline(self.now_ns()))?)
    }

    /// Copies what a policy of copies has yet to copy, in the library of this site: an object after the other, some of
    /// them in one session. What another job uses, and what cannot be read, is in the report and keeps nothing else
    /// from being copied. The report has what was done, whatever ends it.
    ///
    /// # Errors
    /// [`DirectorError::Interrupted`] if `watch` stopped it. Otherwise the library cannot be asked, or the catalog
    /// cannot be read or written.
    pub fn copy_by_policy(
        &self,
        job: &JobConfig,
        watch: &RestoreWatch,
        report: &mut CopyRunReport,
    ) -> Result<(), DirectorError> {
        let _presence = self.presence()?;
        // A copy that has come to its end since is whole.
        self.look_at_copies()?;
        let CopiesOwed { objects, later, .. } = self.copies_owed(job)?;
        report.later = later;
        let lens = self.stream_lens(&objects)?;
        let len_of = |object: &Object| lens.get(&object.id).copied().unwrap_or_default();
        watch.planned.fetch_add(lens.values().sum(), Ordering::Relaxed);
        let (pool, mut in_use, mut rest) = (job.first_pool(), 0, &objects[..]);
        let how = (Drives::Waited, Shortfall::Fail);
        while !rest.is_empty() {
            report.left = in_use + rest.len();
            if watch.stop.load(Ordering::Relaxed) {
                return Err(DirectorError::Interrupted);
            }
            let (together, behind) = rest.split_at(that_go_together(rest, len_of));
            rest = behind;
            let readable = self.that_can_be_read(together, pool, &mut in_use, report)?;
            let promised = self.promise_in(pool, &readable, &mut in_use, report)?;
            // None would be all.
            if promised.is_empty() {
                report.left = in_use + rest.len();
                continue;
            }
            let before = report.made.copies.len();
            let mended = self.mend_copies(&promised, Lacks::Owed(pool), how, watch, &mut report.made);
            let tried = &report.made.copies[before..];
            let made = tried.iter().filter(|copy| copy.failure.is_none());
            report.bytes += made.filter_map(|copy| lens.get(&copy.object)).sum::<u64>();
            report.left = in_use + rest.len() + promised.len().saturating_sub(tried.len());
            mended?;
            report.left = in_use + rest.len();
            // A pool without room is so for the others, too.
            if report.made.target_failed {
                break;
            }
        }
        Ok(())
    }

    /// The objects that can be read now, while a copy is written in the library of this site. Where there is one drive
    /// for both, they have failed; where another job has a volume, they are left to the next run: whoever waited for it
    /// would keep drives from all others meanwhile.
    fn that_can_be_read(
        &self,
        objects: &[Object],
        pool: &str,
        in_use: &mut usize,
        report: &mut CopyRunReport,
    ) -> Result<Vec<Object>, DirectorError> {
        let mounter = Mounter::new(self);
        let held: HashSet<String> = self.volumes_in_use()?.into_iter().map(|held| held.volser).collect();
        let is_held = |volumes: &[Volser]| volumes.iter().any(|volser| held.contains(volser.as_str()));
        let all = self.volumes_to_read(objects.iter().map(|object| object.id), 0)?;
        if mounter.check_drives_to_copy(&all).is_ok() && !is_held(&all) {
            return Ok(objects.to_vec());
        }
        let mut readable = Vec::new();
        for object in objects {
            let copy = self.copy_to_promise(object, pool)?.unwrap_or_default();
            let volumes = self.volumes_to_read(std::iter::once(object.id), copy)?;
            match mounter.check_drives_to_copy(&volumes) {
                Err(error @ DirectorError::OneDrive { .. }) => report.fails(object, pool, error),
                Err(error) => return Err(error),
                Ok(()) if is_held(&volumes) => *in_use += 1,
                Ok(()) => readable.push(object.clone()),
            }
        }
        Ok(readable)
    }

    /// Promises objects a copy in a pool, as far as no other job is at them; gives those that have the promise.
    fn promise_in(
        &self,
        pool: &str,
        objects: &[Object],
        in_use: &mut usize,
        report: &mut CopyRunReport,
    ) -> Result<Vec<ObjectId>, DirectorError> {
        let ids = objects.iter().map(|object| object.id).collect();
        // Nobody else takes the number of a copy meanwhile.
        let (_claims, claimed) = self.reserve_as_far_as_free(ids, |ids| copies_of(ids, Some(pool)))?;
        *in_use += objects.len() - claimed.len();
        let (mut promises, mut promised) = (Vec::new(), Vec::new());
        for object in objects.iter().filter(|object| claimed.contains(&object.id)) {
            // It may have been given up since it was looked up.
            let now = locked(&self.catalog).object(object.id)?;
            if now.is_none_or(|now| now.status != ObjectStatus::Complete) {
                continue;
            }
            let Some(number) = self.copy_to_promise(object, pool)? else {
                report.fails(object, pool, DirectorError::TooManyCopies { object: object.id.to_string() });
                continue;
            };
            promises.push((object.id, number, pool));
            promised.push(object.id);
        }
        locked(&self.catalog).promise_copies(&promises)?;
        Ok(promised)
    }

    /// How many bytes the streams of objects have.
    fn stream_lens(&self, objects: &[Object]) -> Result<HashMap<ObjectId, u64>, DirectorError> {
        apart(&self.catalog, |catalog| {
            let len = |object: &Object| {
                let parts = catalog.parts(object.id)?;
                Ok((object.id, parts.iter().map(|part| part.valid_len).sum()))
            };
            objects.iter().map(len).collect()
        })
    }
}

/// How many of these objects, from the first on, are copied together.
fn that_go_together(objects: &[Object], len_of: impl Fn(&Object) -> u64) -> usize {
    let mut bytes = 0u64;
    let fit = objects.iter().take(OBJECTS_TOGETHER).take_while(|object| {
        bytes = bytes.saturating_add(len_of(object));
        bytes <= BYTES_TOGETHER
    });
    fit.count().max(1)
}

/// Why a policy of copies cannot copy the backups of another one, whose name that is, if it writes them to the pool
/// itself.
pub(crate) fn check_pools(job: &JobConfig, copied: &str, other: &JobConfig) -> Result<(), String> {
    let pool = job.first_pool();
    // What is staged comes to where the rest is.
    if other.stage.is_some() && pool == other.first_pool() {
        return Ok(());
    }
    match other.own_pools().any(|own| own == pool) {
        true => Err(format!("{copied} writes its backups to pool {pool} itself: name another pool")),
        false => Ok(()),
    }
}
