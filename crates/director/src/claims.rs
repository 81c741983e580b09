//! What backups and expiry reserve before they begin.
//!
//! A backup has its sources and the objects that it makes alone, and shares what these stand on. So two backups never
//! make objects of one source, and nothing that a job uses is given up. What is refused to an expiry is left for the
//! next one.

use std::collections::HashSet;
use std::os::unix::ffi::OsStrExt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use capstan_catalog::{Object, ObjectStatus, Pool, Resource, Wish};
use capstan_format::ObjectId;

use crate::catch_up::Known;
use crate::earlier_attempts::EarlierObjects;
use crate::hold::{Hold, holder, what};
use crate::jobs::Job;
use crate::mounter::Mounter;
use crate::request::{BackupRequest, MissingSource, Target};
use crate::site::{Site, locked};
use crate::{DirectorError, Event};

/// How soon a base is chosen again that was being given up.
const CHOICE_AGAIN: Duration = Duration::from_millis(100);

/// What each source becomes.
pub(crate) struct ClaimedJobs {
    pub(crate) jobs: Vec<Job>,
    /// Sources that were not there.
    pub(crate) missing: Vec<MissingSource>,
    /// What earlier attempts of the run have backed up.
    pub(crate) earlier: EarlierObjects,
    /// The objects that are made and those that they stand on; none where nothing is kept.
    pub(crate) hold: Option<Hold>,
}

impl Site {
    /// Reserves the sources, so that two backups never make objects of one, or take up the same one; and the pools.
    pub(crate) fn claim_sources(&self, request: &BackupRequest, stop: &AtomicBool) -> Result<Hold, DirectorError> {
        let paths = request.sources.iter().map(|path| path.as_os_str().as_bytes().to_vec());
        let sources = paths.chain(request.stream.iter().map(|stream| stream.name.clone().into_bytes()));
        let of_client = |source| Resource::Source { client: self.client.clone(), source };
        let wish = Wish {
            alone: sources.map(of_client).collect(),
            shared: vec![Resource::Pool(request.pool.clone())],
            ..Wish::default()
        };
        if !request.waits_for_writer {
            return self.holds.claim(&wish);
        }
        self.holds.wait_for(&wish, (stop, &self.events), |held| {
            format!("{} is in use by {}: this backup begins when that has ended", what(&held.resource), holder(held))
        })
    }

    /// What each source becomes, with these objects reserved: those that are made alone, what they stand on shared.
    pub(crate) fn claimed_jobs(
        &self,
        mounter: &Mounter,
        request: &BackupRequest,
        pool: &Pool,
        known: Known,
        stop: &AtomicBool,
    ) -> Result<ClaimedJobs, DirectorError> {
        // Only now: a killed attempt may have flushed the last block of an object, and catch-up has found that.
        let earlier = self.earlier_objects(request)?;
        loop {
            let (jobs, missing) = self.jobs(mounter, request, pool, known, &earlier)?;
            if request.target == Target::Null {
                return Ok(ClaimedJobs { jobs, missing, earlier, hold: None });
            }
            let mut wish = Wish::default();
            let mut bases = Vec::new();
            for job in &jobs {
                wish.alone.push(Resource::Object(job.record.object));
                if let Some(base) = job.record.base {
                    bases.extend(locked(&self.catalog).chain(base)?);
                }
            }
            wish.shared.extend(bases.iter().copied().map(Resource::Object));
            if let Ok(hold) = self.holds.reserve(&wish)? {
                let living = bases.iter().map(|base| self.is_complete(*base)).collect::<Result<Vec<_>, _>>()?;
                if living.into_iter().all(|living| living) {
                    return Ok(ClaimedJobs { jobs, missing, earlier, hold: Some(hold) });
                }
            }
            // What was chosen is being given up, or was a moment ago: another base is chosen then.
            if stop.load(Ordering::Relaxed) {
                return Err(DirectorError::Interrupted);
            }
            std::thread::sleep(CHOICE_AGAIN);
        }
    }

    fn is_complete(&self, object: ObjectId) -> Result<bool, DirectorError> {
        let found = locked(&self.catalog).object(object)?;
        Ok(found.is_some_and(|found| found.status == ObjectStatus::Complete))
    }

    /// Keeps what is read from being given up meanwhile, as far as that can be had: it is read all the same without it.
    /// An object that may be gone on with is left to whoever does.
    pub(crate) fn keep_what_is_read(&self, objects: &[ObjectId]) -> Vec<Hold> {
        let shared = |objects: &[ObjectId]| {
            let shared = objects.iter().copied().map(Resource::Object).collect();
            Wish { shared, ..Wish::default() }
        };
        let complete: Vec<_> = objects.iter().copied().filter(|id| self.is_complete(*id).unwrap_or(false)).collect();
        self.reserve_as_far_as_free(complete, shared).map(|(holds, _)| holds).unwrap_or_default()
    }

    /// Reserves objects, as far as nobody is in the way; gives those that it got. `wish` says how they are wanted.
    pub(crate) fn reserve_as_far_as_free(
        &self,
        objects: Vec<ObjectId>,
        wish: impl Fn(&[ObjectId]) -> Wish,
    ) -> Result<(Vec<Hold>, Vec<ObjectId>), DirectorError> {
        // One transaction where nobody is in the way.
        if let Ok(hold) = self.holds.reserve(&wish(&objects))? {
            return Ok((vec![hold], objects));
        }
        let (mut holds, mut reserved) = (Vec::new(), Vec::new());
        for object in objects {
            if let Ok(hold) = self.holds.reserve(&wish(&[object]))? {
                holds.push(hold);
                reserved.push(object);
            }
        }
        Ok((holds, reserved))
    }

    /// Reserves what is to be forgotten, as far as no job uses it; gives what it got.
    pub(crate) fn claim_to_forget(&self, objects: &[Object]) -> Result<(Vec<Hold>, HashSet<ObjectId>), DirectorError> {
        let alone = |objects: &[ObjectId]| {
            let alone = objects.iter().copied().map(Resource::Object).collect();
            Wish { alone, ..Wish::default() }
        };
        let all = objects.iter().map(|object| object.id).collect();
        let (holds, claimed) = self.reserve_as_far_as_free(all, alone)?;
        Ok((holds, claimed.into_iter().collect()))
    }

    /// Leaves what nobody was shown, what jobs use, and what both stand on, for the next run.
    pub(crate) fn leave_what_is_used(
        &self,
        forget: &mut Vec<Object>,
        shown: &[Object],
        claimed: &HashSet<ObjectId>,
        named: &[ObjectId],
    ) -> Result<(), DirectorError> {
        let mut bases = HashSet::new();
        let mut used = Vec::new();
        // Each stands before what it stands on.
        forget.retain(|object| {
            let is_free = claimed.contains(&object.id) && !bases.contains(&object.id);
            if !is_free {
                bases.extend(object.base);
                if shown.iter().any(|was| was.id == object.id) {
                    used.push(object.id);
                }
            }
            is_free
        });
        let Some(first) = used.first() else { return Ok(()) };
        if named.contains(first) {
            let holder = "another job".to_owned();
            return Err(DirectorError::InUse { what: format!("object {first}"), holder });
        }
        let message = match used.len() {
            1 => format!("object {first} is in use by another job, and left for the next expire"),
            several => format!("{several} objects are in use by other jobs, and left for the next expire"),
        };
        (self.events)(Event::Notice { message });
        Ok(())
    }

    /// Reserves what is taken back, and volumes of no pool that hold something of it, scratch or set aside: none of
    /// them is written anew, or made scratch, meanwhile. So are the pools that these go back to: none is removed.
    pub(crate) fn claim_to_take_back(&self, objects: &[ObjectId]) -> Result<Hold, DirectorError> {
        let mut wish = Wish::default();
        {
            let catalog = locked(&self.catalog);
            let mut at: Vec<ObjectId> = objects.to_vec();
            let mut seen = HashSet::new();
            while let Some(id) = at.pop() {
                // One that nobody knows any more; the others are reserved all the same.
                let Some(record) = catalog.object(id)? else { continue };
                if record.status != ObjectStatus::Expired || !seen.insert(record.id) {
                    continue;
                }
                at.extend(record.base);
                wish.alone.push(Resource::Object(record.id));
                for wanted in catalog.wanted_copies(record.id)? {
                    let pool = Resource::Pool(wanted.pool);
                    if !wish.shared.contains(&pool) {
                        wish.shared.push(pool);
                    }
                }
                for volser in catalog.copies(record.id)?.into_iter().flat_map(|copy| copy.volumes) {
                    if catalog.volume(&volser)?.is_some_and(|known| known.pool.is_none()) {
                        wish.alone.push(Resource::Volume(volser));
                    }
                }
            }
        }
        self.holds.claim(&wish)
    }
}
