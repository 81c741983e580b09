//! Backups: the session that writes, its copies, and the sources that are read into it.

mod drive_sets;
mod joined;
mod options;
mod reading;

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use capstan_catalog::{Catalog, CatalogError, ObjectStatus, Pool, Resource, Wish};
use capstan_format::{ObjectId, ObjectKind, Volser};
use capstan_mover::{Bottleneck, Meters, Progress, RestoreWatch, SourceReport, TreeOptions};
use capstan_tape::{DriveNeeds, with_causes};
use joined::Joined;
use reading::Reading;

use crate::catch_up::{Known, Looked, Looking, catch_up_pool, looking};
use crate::claims::ClaimedJobs;
use crate::earlier_attempts::{EarlierObject, EarlierObjects};
use crate::error::DrivesOwner;
use crate::events::BaseUnavailable;
use crate::hold::{Hold, holder};
use crate::jobs::Job;
use crate::lacks::Lacks;
use crate::mounter::{Drives, Mounter};
use crate::path_filter::check_patterns;
use crate::pools::name_of_copy;
use crate::presence::Presence;
use crate::repair::RepairReport;
use crate::request::{BackupRequest, MissingSource, Retention, Shortfall, Target, check_tags};
use crate::sessions::{CopyFailure, LeftSession, ToldFailure};
use crate::site::{Site, locked};
use crate::{DirectorError, Event};

/// How often it is looked whether a drive is free.
const LOOKS: Duration = Duration::from_millis(100);
/// How long an attempt waits for a volume that may have what an earlier attempt of its run has written: longer than a
/// mover that was killed takes to come back. Then it writes that once more.
const WAITS_FOR_ATTEMPT: Duration = Duration::from_secs(120);
/// How often it looks for that: each time it asks all libraries what they have.
const LOOKS_FOR_ATTEMPT: Duration = Duration::from_secs(1);

/// What a display may look at while a backup runs, and the switch that stops it.
#[derive(Default)]
pub struct BackupWatch {
    /// Files and bytes read.
    pub progress: Progress,
    /// Files there are, once they are counted; 0 before.
    pub files_total: AtomicU64,
    /// Bytes of all files by their lengths, once they are counted; 0 before, and where a program prints them.
    pub bytes_total: AtomicU64,
    /// The session's counters, once it has begun.
    pub meters: OnceLock<Arc<Meters>>,
    /// Set it to stop at the next chunk.
    pub stop: Arc<AtomicBool>,
}

/// How one source ended.
#[derive(Debug)]
pub struct SourceOutcome {
    /// The object.
    pub object: ObjectId,
    /// The source.
    pub source: Vec<u8>,
    /// Whether an earlier run had begun the object.
    pub resumed: bool,
    /// The object it stands on.
    pub base: Option<ObjectId>,
    /// What it would have stood on, and does not.
    pub base_gone: Option<BaseUnavailable>,
    /// What was read, if it was read to its end.
    pub report: Result<SourceReport, String>,
}

/// How a backup ended.
#[derive(Debug)]
pub struct BackupReport {
    /// One outcome a source.
    pub sources: Vec<SourceOutcome>,
    /// Sources that were not there.
    pub missing: Vec<MissingSource>,
    /// Exclude patterns that matched nothing in any source; none where a source was not read to its end.
    pub excludes_unused: Vec<String>,
    /// Bytes of the streams.
    pub plain_bytes: u64,
    /// Bytes written to the first copy.
    pub stored_bytes: u64,
    /// How long it took, to the last flush.
    pub elapsed_ns: u64,
    /// What held it up.
    pub bottleneck: Bottleneck,
    /// Copies that failed while another was finished: number and reason.
    pub failed_copies: Vec<(u8, String)>,
    /// Volumes that would have been gone on with, and were not: barcode and reason.
    pub passed_over: Vec<(Volser, String)>,
    /// Sources that an earlier attempt of the same run has backed up, and that were not read again.
    pub earlier: Vec<EarlierObject>,
}

impl BackupReport {
    /// The report of an attempt that has nothing left to do.
    fn of_earlier(earlier: Vec<EarlierObject>) -> Self {
        Self {
            sources: Vec::new(),
            missing: Vec::new(),
            excludes_unused: Vec::new(),
            plain_bytes: 0,
            stored_bytes: 0,
            elapsed_ns: 0,
            bottleneck: Meters::default().bottleneck(0, 1),
            failed_copies: Vec::new(),
            passed_over: Vec::new(),
            earlier,
        }
    }
}

/// Patterns that matched nothing in any of the trees. Where one of them was not read to its end, nobody knows.
fn excludes_unused(sources: &[SourceOutcome], tree: &TreeOptions) -> Vec<String> {
    let Ok(reports) = sources.iter().map(|source| source.report.as_ref()).collect::<Result<Vec<_>, _>>() else {
        return Vec::new();
    };
    // What is not a tree has nothing to leave out.
    let unused: Vec<_> = reports.iter().filter_map(|report| report.excludes_unused.as_ref()).collect();
    let nowhere = |pattern: &&String| !unused.is_empty() && unused.iter().all(|unused| unused.contains(pattern));
    let mut patterns: Vec<String> = tree.excludes.iter().filter(nowhere).cloned().collect();
    patterns.dedup();
    patterns
}

/// The pool of a copy: the first is the one that was named, the others are made like it.
pub(crate) fn pool_of_copy(site: &Site, name: &str, copy: u8) -> Result<Pool, DirectorError> {
    let mut catalog = locked(&site.catalog);
    let pool = catalog.pool(name)?.ok_or_else(|| DirectorError::UnknownPool { pool: name.to_owned() })?;
    if copy == 1 {
        return Ok(pool);
    }
    let twin = Pool { name: name_of_copy(name, copy), ..pool };
    if let Some(there) = catalog.pool(&twin.name)? {
        return Ok(there);
    }
    catalog.put_pool(&twin)?;
    Ok(twin)
}

/// A backup that may begin: what it reads, where it writes, and what it has reserved for that.
struct Prepared {
    mounter: Mounter,
    joined: Joined,
    jobs: Vec<Job>,
    missing: Vec<MissingSource>,
    earlier: EarlierObjects,
    began: Instant,
}

/// What a backup has for itself until its objects are recorded.
struct Claims {
    _presence: Option<Presence>,
    _sources: Option<Hold>,
    _objects: Option<Hold>,
}

impl Site {
    /// Runs a backup to its end.
    ///
    /// # Errors
    /// [`DirectorError::Source`] if no source is there; [`DirectorError::SourceInUse`] if another job has one;
    /// [`DirectorError::CopiesFailed`] if no copy was written to its end; [`DirectorError::Interrupted`] if `watch`
    /// stopped it. What was recorded until then stays, and the next run goes on from there. A source that was not read
    /// to its end is in the report.
    pub fn backup(&self, request: &BackupRequest, watch: &BackupWatch) -> Result<BackupReport, DirectorError> {
        let earlier = self.earlier_objects(request)?;
        if earlier.has_all(request) {
            let _presence = self.presence_for(request, watch)?;
            self.seal_complete(&earlier.ids())?;
            self.look_after_copies(&[], watch)?;
            return Ok(BackupReport::of_earlier(self.report_earlier(&earlier)?));
        }
        let Prepared { mounter, joined, jobs, missing, earlier, began } = self.prepare(request, watch)?;
        let wanted_objects = jobs.len();
        let mut own = earlier.ids();
        own.extend(jobs.iter().map(|job| job.record.object));
        let meters = Arc::clone(&joined.meters);
        let _ = watch.meters.set(Arc::clone(&meters));
        let sources = Reading { site: self, joined: &joined, request, watch }.all(jobs);
        let left = joined.leave();
        let elapsed_ns = began.elapsed().as_nanos() as u64;
        let LeftSession { copies, claims, is_settled, mut passed_over } = left;
        let failed_copies = self.failed_copies(copies)?;
        if !is_settled {
            // It was stopped while others go on: what it has read is on its way.
            return Err(DirectorError::Interrupted);
        }
        self.seal_complete(&own)?;
        // Before that of the claims ends: no rebuild can begin in between, or beside what is mended.
        let presence = (request.target == Target::Pool).then(|| self.presence());
        drop(claims);
        passed_over.extend(mounter.take_passed_over());
        match presence {
            Some(Ok(_presence)) => self.look_after_copies(&failed_copies, watch)?,
            // What it wrote is recorded; what copies lack, the next backup makes.
            Some(Err(error)) => {
                let message = format!("what copies lack was not looked for: {}", with_causes(&error));
                (self.events)(Event::Notice { message });
            }
            None => {}
        }
        if watch.stop.load(Ordering::Relaxed) && !self.is_whole(request, wanted_objects, &sources)? {
            return Err(DirectorError::Interrupted);
        }
        let cores = std::thread::available_parallelism().map_or(1, |cores| cores.get() as u64);
        Ok(BackupReport {
            excludes_unused: if missing.is_empty() && earlier.is_empty() {
                excludes_unused(&sources, &request.tree)
            } else {
                Vec::new()
            },
            earlier: self.report_earlier(&earlier)?,
            sources,
            missing,
            plain_bytes: meters.plain_bytes.load(Ordering::Relaxed),
            stored_bytes: meters.stored_bytes.load(Ordering::Relaxed),
            elapsed_ns,
            bottleneck: meters.bottleneck(elapsed_ns, cores),
            failed_copies,
            passed_over,
        })
    }

    /// Reserves all that a backup needs, in the order in which everybody does (presence, sources, drives, objects), and
    /// decides what each source becomes.
    fn prepare(&self, request: &BackupRequest, watch: &BackupWatch) -> Result<Prepared, DirectorError> {
        // Before anything is begun, or waited for: it stays wrong.
        check_patterns(&request.tree.excludes)?;
        if let Some(stream) = &request.stream {
            // Before it is begun: what can never be backed up is no backup that was interrupted.
            stream.check_name().map_err(|error| DirectorError::StreamName { reason: error.to_string() })?;
        }
        check_tags(&request.tags)?;
        let to_pool = request.target == Target::Pool;
        let presence = to_pool.then(|| self.presence_for(request, watch)).transpose()?;
        let sources = to_pool.then(|| self.claim_sources(request, &watch.stop)).transpose()?;
        let pools = (1..=request.copies).map(|copy| pool_of_copy(self, &request.pool, copy));
        let pools = pools.collect::<Result<Vec<_>, _>>()?;
        let mounter = Mounter::new(self).stopped_by(&watch.stop);
        let mut known = Known::All;
        if to_pool {
            self.check_lock(request, &pools)?;
            self.check_drives(request.copies, &pools)?;
            self.say_clock()?;
            mounter.check_keys(&pools)?;
            mounter.learn_destroyed(&pools)?;
        }
        let interrupted = to_pool && self.any_interrupted(request)?;
        let shares = request.session.is_some();
        if interrupted && shares {
            known = self.catch_up_beside(&mounter, request, watch)?;
        }
        let joined = self.join_session(&pools, request, watch)?;
        // What was waited for is no part of how long it takes.
        let began = Instant::now();
        if interrupted && !shares {
            known = self.catch_up_alone(&mounter, request, watch)?.known();
        }
        let ClaimedJobs { jobs, missing, earlier, hold: objects } =
            self.claimed_jobs(&mounter, request, &pools[0], known, &watch.stop)?;
        if to_pool {
            self.promise(&jobs, &pools, request)?;
        }
        let claims = Claims { _presence: presence, _sources: sources, _objects: objects };
        joined.makes(jobs.iter().map(|job| job.record.object).collect(), Box::new(claims));
        Ok(Prepared { mounter, joined, jobs, missing, earlier, began })
    }

    /// Is present for a backup, which may wait for whoever has the state directory for itself.
    fn presence_for(&self, request: &BackupRequest, watch: &BackupWatch) -> Result<Presence, DirectorError> {
        if request.waits_for_writer { self.presence_waited_for(&watch.stop) } else { self.presence() }
    }

    /// Records what a killed run flushed and could not record. It must be known before connections are numbered: a
    /// number that is on a volume already would put two streams into one. One job at a time looks.
    fn catch_up_alone(
        &self,
        mounter: &Mounter,
        request: &BackupRequest,
        watch: &BackupWatch,
    ) -> Result<Looked, DirectorError> {
        let wish = Wish::alone(Resource::CatchUp(request.pool.clone()));
        let _catch_up = self.holds.wait_for(&wish, (&watch.stop, &self.events), |held| {
            let holder = holder(held);
            format!("{holder} looks for what an interrupted backup has left: this one goes on when that is done")
        })?;
        catch_up_pool(mounter, &request.pool)
    }

    /// The same for a job that shares its session: the drives of that are not this job's to look with. It looks with a
    /// drive that is free, unless a job that writes has looked meanwhile.
    fn catch_up_beside(
        &self,
        mounter: &Mounter,
        request: &BackupRequest,
        watch: &BackupWatch,
    ) -> Result<Known, DirectorError> {
        let mut said = false;
        loop {
            let looking = looking(mounter, &request.pool)?;
            if looking == Looking::Needless {
                return Ok(Known::All);
            }
            if let (Looking::Possible, Some(seat)) = (looking, mounter.seat_if_free()?) {
                let mut looked = self.catch_up_alone(mounter, request, watch)?;
                drop(seat);
                self.wait_for_attempt(mounter, request, &mut looked, watch)?;
                return Ok(looked.known());
            }
            if watch.stop.load(Ordering::Relaxed) {
                return Err(DirectorError::Interrupted);
            }
            if !std::mem::replace(&mut said, true) {
                let message = "a volume that an interrupted backup has written is to be looked at: this job goes on when a \
                               drive is free for that";
                (self.events)(Event::Waiting { message: message.to_owned() });
            }
            std::thread::sleep(LOOKS);
        }
    }

    /// Waits for volumes that are out of reach, and may have what an earlier attempt of the same run has written, in
    /// another library perhaps: what is there need not be written once more. It waits without a drive.
    fn wait_for_attempt(
        &self,
        mounter: &Mounter,
        request: &BackupRequest,
        looked: &mut Looked,
        watch: &BackupWatch,
    ) -> Result<(), DirectorError> {
        let began = Instant::now();
        let mut said = false;
        while !looked.later.is_empty() && began.elapsed() < WAITS_FOR_ATTEMPT && self.has_unfinished_attempt(request)? {
            if !std::mem::replace(&mut said, true) {
                let volumes = looked.later.iter().map(Volser::as_str).collect::<Vec<_>>().join(", ");
                let message = format!(
                    "an earlier attempt may have written all of it, on {volumes}: this one waits up to {} s for a drive \
                     that can read that, and then goes on without",
                    WAITS_FOR_ATTEMPT.as_secs()
                );
                (self.events)(Event::Waiting { message });
            }
            if watch.stop.load(Ordering::Relaxed) {
                return Err(DirectorError::Interrupted);
            }
            std::thread::sleep(LOOKS_FOR_ATTEMPT);
            if let Some(_seat) = mounter.seat_if_free()? {
                looked.once_more(mounter)?;
            }
        }
        Ok(())
    }

    /// Notes whose attempt makes the objects, and which copies are wanted, before the first block: a copy that fails
    /// before its first checkpoint is made later.
    fn promise(&self, jobs: &[Job], pools: &[Pool], request: &BackupRequest) -> Result<(), DirectorError> {
        let each = jobs.iter().flat_map(|job| (1u8..).zip(pools).map(|(copy, pool)| (job.record.object, copy, pool)));
        let wanted: Vec<_> = each.map(|(object, copy, pool)| (object, copy, pool.name.as_str())).collect();
        let trees = jobs.iter().filter(|job| job.record.kind == ObjectKind::Tree);
        let trees: Vec<_> = trees.map(|job| job.record.object).collect();
        let mut catalog = locked(&self.catalog);
        if let Some(run) = request.run {
            // An attempt that could not find these would make them once more.
            let objects: Vec<_> = jobs.iter().map(|job| job.record.object).collect();
            catalog.run_writes(run, &objects)?;
        }
        catalog.promise_copies(&wanted)?;
        Ok(catalog.put_left_out(&trees, &request.tree.rules())?)
    }

    /// Says which copies failed; it is an error where all did.
    fn failed_copies(&self, copies: Vec<Result<(), CopyFailure>>) -> Result<Vec<(u8, String)>, DirectorError> {
        let (count, mut failed, mut first_failure) = (copies.len(), Vec::new(), None);
        for (copy, result) in (1u8..).zip(copies) {
            if let Err(failure) = result {
                let reason = failure.reason();
                (self.events)(Event::CopyFailed { copy, reason: reason.clone() });
                failed.push((copy, reason));
                first_failure.get_or_insert(failure);
            }
        }
        match first_failure.filter(|_| failed.len() == count) {
            Some(CopyFailure::Known(error)) => Err(DirectorError::of_copy(error)),
            Some(CopyFailure::Told(ToldFailure { reason, lacks_volume })) => {
                Err(DirectorError::SessionFailed { reason, lacks_volume })
            }
            None => Ok(failed),
        }
    }

    /// Mends what copies lack, of this run and of earlier ones, where drives are free for it. This run's objects are
    /// whole whether or not those can be mended now: what could not be was said. For whoever is present already.
    fn look_after_copies(&self, failed: &[(u8, String)], watch: &BackupWatch) -> Result<(), DirectorError> {
        if !failed.is_empty() || watch.stop.load(Ordering::Relaxed) {
            return self.look_at_copies().map(drop);
        }
        // An earlier run may have lost a copy, or been killed between the flushes of its copies.
        let repair = RestoreWatch { stop: Arc::clone(&watch.stop), ..RestoreWatch::default() };
        let how = (Drives::IfFree, Shortfall::Fail);
        let _ = self.mend_copies(&[], Lacks::NotOfPolicies, how, &repair, &mut RepairReport::default());
        Ok(())
    }

    /// A lock that never ends is none that anybody wanted.
    fn check_lock(&self, request: &BackupRequest, pools: &[Pool]) -> Result<(), DirectorError> {
        let ends = match request.retention {
            Retention::OfPool => pools.first().is_none_or(|pool| pool.retention_ns.is_some()),
            Retention::For(_) => true,
            Retention::ByRule => false,
        };
        match pools.first().filter(|_| request.is_locked && !ends) {
            None => Ok(()),
            Some(pool) => Err(DirectorError::LockWithoutRetention { pool: pool.name.clone() }),
        }
    }

    /// How many drives can be used to write to these pools.
    fn drives_for_pools(&self, pools: &[Pool]) -> Result<u32, DirectorError> {
        let encrypts = pools.iter().any(|pool| pool.encryption.is_some());
        let models = self.models.to_vec();
        Ok(self.library.drives_fit(&DriveNeeds { writes: true, encrypts, models, ..DriveNeeds::default() })?)
    }

    /// Each copy has a volume in a drive until the end, so one that has none fails whatever is waited for.
    fn check_drives(&self, copies: u8, pools: &[Pool]) -> Result<(), DirectorError> {
        let drives = self.drives_for_pools(pools)?;
        if u32::from(copies) > drives && copies > 1 {
            let owner = DrivesOwner::of(&self.library.config);
            return Err(DirectorError::TooFewDrives { copies, drives, owner });
        }
        Ok(())
    }

    /// Whether all that was asked for is in complete objects: a signal that came behind the last block stopped nothing.
    fn is_whole(
        &self,
        request: &BackupRequest,
        wanted: usize,
        sources: &[SourceOutcome],
    ) -> Result<bool, DirectorError> {
        if request.target == Target::Null
            || sources.len() < wanted
            || sources.iter().any(|source| source.report.is_err())
        {
            return Ok(false);
        }
        let catalog = locked(&self.catalog);
        for source in sources {
            let object = catalog.object(source.object)?;
            if object.is_none_or(|object| object.status != ObjectStatus::Complete) {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Seals what is complete, by a connection of its own: a job that records a checkpoint meanwhile does not wait for
    /// files to be sorted and written.
    ///
    /// An object that is not among a job's own ones and cannot be sealed does not fail that job: it is told what to do,
    /// and the pieces stay for the next time.
    pub(crate) fn seal_complete(&self, own: &[ObjectId]) -> Result<(), DirectorError> {
        let mut unsealed = Vec::new();
        let mut seal = |catalog: &mut Catalog| -> Result<(), DirectorError> {
            for object in catalog.unsealed()? {
                match catalog.seal_index(object) {
                    // Another process has expired it, or erased the volume that said that it is complete.
                    Ok(_)
                    | Err(CatalogError::Expired(_) | CatalogError::UnknownObject(_) | CatalogError::NotComplete(_)) => {
                    }
                    Err(error) if own.contains(&object) => return Err(error.into()),
                    Err(error) => unsealed.push((object, with_causes(&error))),
                }
            }
            Ok(())
        };
        let another = locked(&self.catalog).another()?;
        let sealed = match another {
            Some(mut another) => seal(&mut another),
            None => seal(&mut locked(&self.catalog)),
        };
        for (object, reason) in unsealed {
            let message = format!("the list of files of object {object} could not be brought up to date: {reason}");
            (self.events)(Event::Notice { message });
        }
        sealed
    }
}
