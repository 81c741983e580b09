//! How a backup comes to its session: one of its own, or one that it shares with other jobs of a server.

use std::sync::{Arc, Mutex};

use capstan_catalog::Pool;
use capstan_format::{ObjectId, SessionRecord, Volser};
use capstan_mover::{
    Commit, CopyHost, DriveHealth, HostError, Intake, Meters, MountId, Mounted, MountedDrives, MoverAt, RateLimit,
    Throttle, VolumeEnd,
};

use jiff::Timestamp;

use super::BackupWatch;
use crate::DirectorError;
use crate::append::AppendHost;
use crate::config::{Bandwidth, NetworkShare};
use crate::lifetime::Lifetime;
use crate::mounter::Mounter;
use crate::null::NullHost;
use crate::request::{BackupRequest, Target};
use crate::sessions::{LeftSession, RunningSession, SessionPlace, ToldFailure};
use crate::site::{Site, locked};

/// A backup's place in its session. Its way in goes before the place does.
pub(super) struct Joined {
    pub(super) intake: Intake,
    pub(super) meters: Arc<Meters>,
    place: SessionPlace,
}

impl Joined {
    /// Notes what the backup makes, before anything of it is read, and keeps what it has reserved for that.
    pub(super) fn makes(&self, objects: Vec<ObjectId>, claims: Box<dyn Send>) {
        self.place.makes(objects, claims);
    }

    /// How many drives each copy has.
    pub(super) fn drive_sets(&self) -> usize {
        self.place.drive_sets()
    }

    /// Leaves when all that was made is recorded.
    pub(super) fn leave(self) -> LeftSession {
        let Self { intake, place, .. } = self;
        drop(intake);
        place.leave()
    }
}

impl Site {
    /// Comes to the session that the request names, or begins one; waits for drives then.
    pub(super) fn join_session(
        &self,
        pools: &[Pool],
        request: &BackupRequest,
        watch: &BackupWatch,
    ) -> Result<Joined, DirectorError> {
        loop {
            let (place, is_first) = self.sessions.enter((request, &self.models), &self.events, &watch.stop);
            if is_first {
                self.open_session(&place, pools, request, watch)?;
            } else if !place.wait_until_open()? {
                continue;
            }
            let Some((intake, meters)) = place.intake()? else { continue };
            let intake = match (request.bandwidth.clone(), request.network.clone()) {
                (None, None) => intake,
                (own, network) => intake.throttled(Throttle::of(self.rate(own, network))),
            };
            return Ok(Joined { intake, meters, place });
        }
    }

    /// How fast a job may go by its bandwidth, and by its share of its network's, by the clock of this process.
    pub fn rate(&self, bandwidth: Option<Bandwidth>, network: Option<Arc<NetworkShare>>) -> RateLimit {
        let clock = self.clock;
        RateLimit::new(move || {
            let now = Timestamp::from_nanosecond(clock().into()).unwrap_or(Timestamp::UNIX_EPOCH);
            let own = bandwidth.as_ref().and_then(|bandwidth| bandwidth.at(now));
            own.into_iter().chain(network.as_ref().and_then(|network| network.at(now))).min()
        })
    }

    fn open_session(
        &self,
        place: &SessionPlace,
        pools: &[Pool],
        request: &BackupRequest,
        watch: &BackupWatch,
    ) -> Result<(), DirectorError> {
        let mounter = Mounter::new(self).telling(place.events());
        let mounter = if request.session.is_some() { mounter.of_queue() } else { mounter };
        let (seats, sets) = match request.target {
            // Whoever waits for them is the job that begins the session.
            Target::Pool => {
                let own = mounter.clone().stopped_by(&watch.stop);
                let sets = self.drive_sets(&own, pools, request)?;
                let (seats, sets) = own.seats_for_sets(u32::from(request.copies), sets)?;
                (Some(seats), sets as usize)
            }
            Target::Null => (None, 1),
        };
        let mounter = mounter.stopped_by(place.session_stop());
        let record = SessionRecord {
            started_ns: self.now_ns(),
            host: self.host.clone(),
            software: concat!("capstan ", env!("CARGO_PKG_VERSION")).to_owned(),
        };
        // What goes nowhere needs no drive of a mover.
        let nowhere: Arc<MountedDrives> = Arc::default();
        let hosts: Vec<_> = (0..sets).map(|_| self.hosts(&mounter, pools, request, &nowhere)).collect();
        let hosts = place.running().hears(hosts);
        let path = match request.target {
            Target::Null => MoverAt::Here(nowhere),
            Target::Pool => self.library.data_path.clone(),
        };
        if let Some(number) = request.session.filter(|_| sets != usize::from(request.drives)) {
            locked(&self.catalog).session_has_drives(number, sets as u32)?;
        }
        let stop = Arc::clone(place.session_stop());
        let session = path.start_session(&self.session_options(request, sets), &record, hosts, stop)?;
        place.open(session, seats, mounter.passed_over());
        Ok(())
    }

    fn hosts(
        &self,
        mounter: &Mounter,
        pools: &[Pool],
        request: &BackupRequest,
        nowhere: &Arc<MountedDrives>,
    ) -> Vec<Box<dyn CopyHost>> {
        match request.target {
            Target::Null => vec![Box::new(NullHost::new(self.clock, Arc::clone(nowhere)))],
            Target::Pool => {
                let host = |copy| -> Box<dyn CopyHost> { Box::new(self.append_host(mounter, pools, copy, request)) };
                (1..=request.copies).map(host).collect()
            }
        }
    }

    /// Serves a copy, from 1, with volumes of its pool.
    pub(super) fn append_host(
        &self,
        mounter: &Mounter,
        pools: &[Pool],
        copy: u8,
        request: &BackupRequest,
    ) -> AppendHost {
        let pool = pools[usize::from(copy) - 1].clone();
        let by_rule = self.config.jobs.get(&request.policy).and_then(Lifetime::by_rule);
        AppendHost {
            mounter: mounter.clone().here_alone().for_writing(pool.encryption.is_some(), &self.models),
            config: self.config.clone(),
            library_dir: self.library_dir(),
            failed_in: Mutex::default(),
            // The pool of the first copy says how long all of them are kept.
            lifetime: Lifetime::of(request.retention, by_rule, &pools[0]),
            pool,
            copy,
            shortfall: request.shortfall,
            writing: None,
        }
    }
}

impl RunningSession {
    /// Has these hosts, set by set, tell the session what is recorded; all in one row.
    fn hears(self: &Arc<Self>, sets: Vec<Vec<Box<dyn CopyHost>>>) -> Vec<Box<dyn CopyHost>> {
        self.has_sets(sets.len(), sets.iter().map(Vec::len).sum());
        let copies = sets.into_iter().flat_map(|hosts| hosts.into_iter().enumerate());
        let heard = |(writer, (copy, host))| -> Box<dyn CopyHost> {
            Box::new(HeardHost { host, copy, writer, running: Arc::clone(self), lacks_volume: false, is_over: false })
        };
        copies.enumerate().map(heard).collect()
    }
}

/// A copy's host, of which the session hears what is recorded.
struct HeardHost {
    host: Box<dyn CopyHost>,
    /// From 0.
    copy: usize,
    /// Among those of all drive sets, from 0.
    writer: usize,
    running: Arc<RunningSession>,
    /// Whether no volume was found.
    lacks_volume: bool,
    /// Whether the session has heard how the copy ended.
    is_over: bool,
}

impl Drop for HeardHost {
    fn drop(&mut self) {
        if !self.is_over {
            self.ended(Some("the copy has ended without a word"));
        }
    }
}

impl CopyHost for HeardHost {
    fn mount(&mut self) -> Result<Mounted, HostError> {
        let mounted = self.host.mount();
        self.lacks_volume =
            matches!(mounted.as_ref().map_err(|error| error.downcast_ref()), Err(Some(DirectorError::NoVolume { .. })));
        mounted
    }

    fn committed(&mut self, commit: &Commit) -> Result<(), HostError> {
        self.host.committed(commit)?;
        if self.copy == 0 {
            self.running.flushed(commit.part.extents.iter().map(|extent| (extent.object, extent.stored_len)));
        }
        Ok(())
    }

    fn health(&mut self, volser: &Volser, health: &DriveHealth) {
        self.host.health(volser, health);
    }

    fn release(&mut self, mount: MountId, volser: &Volser, end: VolumeEnd) {
        self.host.release(mount, volser, end);
    }

    fn settled(&mut self, objects: &[ObjectId]) {
        self.running.settled(self.writer, objects);
    }

    fn ended(&mut self, failure: Option<&str>) {
        self.is_over = true;
        let told = |reason: &str| ToldFailure { reason: reason.to_owned(), lacks_volume: self.lacks_volume };
        self.running.ended(self.writer, failure.map_or(Ok(()), |reason| Err(told(reason))));
    }

    fn now_ns(&self) -> i64 {
        self.host.now_ns()
    }
}
