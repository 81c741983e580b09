//! A restore, at the mover's end: what is read goes to the client, over a connection for each drive that reads.

use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{LazyLock, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use capstan_tape::with_causes;

use super::super::SPEAKS_EVERY;
use super::super::orders::{
    FAILED_MAX, JobOrder, JobReport, OrdersLink, OtherMover, PiecesFrom, ROWS_MAX, RestoreOrder, RestoredReport,
    pack_selection, pack_wanted, unpack_failed,
};
use super::super::pieces::{PieceSender, keep_awake};
use super::super::report_bounds::hear;
use super::stopping::{LinkUse, StopPatience};
use super::{ATTACHED_LEN_MAX, NetworkJob, locked};
use crate::damage::Damage;
use crate::extract::{ExtractError, ExtractReport, Selection};
use crate::feed::{AccessHere, DrivesAt, DrivesWay, InLibrary, ReadHost, ReadReport, ToRead, gaps_of, read_into};
use crate::read::{ReadPlan, VolumePlace, Wanted};
use crate::restore::{RestoreWatch, StreamsReport};
use crate::source::SourceError;
use crate::stretch::open_at_once;
use crate::throttle::{Part, RateLimit, Throttle};
use crate::{Filled, HostError, MountId, MountedDrives, ReadOrder};

/// The first version in which a client takes several connections of a restore at once.
const SEVERAL_AT_ONCE: u32 = 3;
/// Shares that are read at the same time, at most.
const AT_ONCE_MAX: usize = 64;
/// How often it is looked whether a connection has come.
const LOOKS: Duration = Duration::from_millis(10);

/// Why nothing more comes of a volume whose mover is gone.
const MOVER_GONE: &str = "its mover ended the connection, or has not been heard of";

/// The drives of what is read with none.
static NO_DRIVES: LazyLock<MountedDrives> = LazyLock::new(MountedDrives::default);

/// Why a selection cannot be told.
const TOO_MANY_NAMES: &str = "too many files are wanted by other names than those that they are stored under: restore \
                              fewer of them at once, or all names of each";

/// Which part of a restore is ordered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RestorePart {
    /// Files that are written whole or not at all. Another part follows.
    Whole,
    /// Files of which what can be read is kept, where the rest is missing. Another part follows.
    Damaged,
    /// Whole files, and then what was written is finished.
    Last,
}

/// What one drive reads of a restore, in one library.
pub struct RestoreShare<'a> {
    /// What it reads. No other share has a stream of it.
    pub plan: ReadPlan,
    /// Who mounts its volumes. Dropped once all is read.
    pub host: Box<dyn ReadHost + 'a>,
    /// The drives that they are mounted in.
    pub drives: DrivesAt<'a>,
}

/// Reads a share until all is sent. What it met; `None` where its mover is gone.
type SendShare<'a> = Box<dyn FnOnce() -> Option<ReadReport> + Send + 'a>;

/// Who mounts what is read of no volume.
struct NoVolumes;

impl ReadHost for NoVolumes {
    fn mount(&mut self, place: &VolumePlace) -> Result<MountId, HostError> {
        Err(format!("volume {} is not part of it", place.volser).into())
    }

    fn release(&mut self, _: MountId, _: &VolumePlace) {}
}

/// A share that has its part of the rate once it has a volume.
struct BeginsWithMount<'a> {
    host: Box<dyn ReadHost + 'a>,
    part: Part,
}

impl ReadHost for BeginsWithMount<'_> {
    fn mount(&mut self, place: &VolumePlace) -> Result<MountId, HostError> {
        let mounted = self.host.mount(place)?;
        self.part.begin();
        Ok(mounted)
    }

    fn filled(&mut self, place: &VolumePlace) -> Option<Filled> {
        self.host.filled(place)
    }

    fn ordered(&mut self, order: &ReadOrder, notice: Option<String>) {
        self.host.ordered(order, notice);
    }

    fn release(&mut self, mount: MountId, place: &VolumePlace) {
        self.host.release(mount, place);
    }
}

impl NetworkJob {
    /// Reads what is wanted, all shares at the same time, and has the client write it where its user said. What is
    /// written is finished behind the last part.
    ///
    /// # Errors
    /// The client is gone, or does not keep to the protocol; the selection is too large to be told; or no share could
    /// be begun, and nothing follows. What could not be read or written is in the report.
    pub fn restore(
        &self,
        (wanted, selection): (&Wanted, &Selection),
        shares: Vec<RestoreShare<'_>>,
        watch: &RestoreWatch,
        part: RestorePart,
    ) -> Result<(StreamsReport, Option<ExtractReport>), SourceError> {
        let at_once = if self.version()? >= SEVERAL_AT_ONCE { AT_ONCE_MAX } else { 1 };
        let (mut whole, mut left) = (StreamsReport::default(), shares.into_iter());
        let mut has_begun = left.len() == 0;
        loop {
            let now = left.by_ref().take(at_once).collect();
            let is_last = left.len() == 0;
            let more = part != RestorePart::Last || !is_last;
            let order = (part == RestorePart::Damaged, more, &mut has_begun);
            let extract = self.restore_at_once((wanted, selection), now, watch, order, &mut whole)?;
            if is_last || whole.fatal.is_some() || watch.stop.load(Ordering::Relaxed) {
                return Ok((whole, extract));
            }
        }
    }

    /// The version of the words that the client speaks, once it has come.
    pub(super) fn version(&self) -> Result<u32, SourceError> {
        self.on_link(|_| Ok(()))?;
        Ok(self.job.process.get().map_or(0, |(_, version)| *version))
    }

    /// Carries out one order. `has_begun` says whether there was one of the same restore, or whether this is one.
    fn restore_at_once(
        &self,
        (wanted, selection): (&Wanted, &Selection),
        shares: Vec<RestoreShare<'_>>,
        watch: &RestoreWatch,
        (keep_damaged, more, has_begun): (bool, bool, &mut bool),
        whole: &mut StreamsReport,
    ) -> Result<Option<ExtractReport>, SourceError> {
        let Some((names, ways)) = pack_selection(selection) else {
            return Err(SourceError::Mover { reason: TOO_MANY_NAMES.to_owned() });
        };
        let split = shares.into_iter().map(|RestoreShare { plan, host, drives }| (plan, (host, drives)));
        let (plans, hosts): (Vec<_>, Vec<_>) = split.unzip();
        let (nothing, enough) = (ReadPlan::default(), AtomicBool::new(false));
        let what = |plan| ToRead { wanted, plan, stop: &enough, meters: &watch.meters };
        // One whose mover hangs does not keep the others waiting.
        let begun: Vec<_> = thread::scope(|scope| {
            let begin = |(plan, ((host, drives), (throttle, part)))| {
                let host = Box::new(BeginsWithMount { host, part });
                scope.spawn(move || self.begin(what(plan), (host, drives), throttle))
            };
            let shares = watch.rate.shared_by(plans.len());
            let begun: Vec<_> = plans.iter().zip(hosts.into_iter().zip(shares)).map(begin).collect();
            begun.into_iter().map(joined).collect()
        });
        let (mut connections, mut sends, mut over, mut last) = (Vec::new(), Vec::new(), HashMap::new(), None);
        for (plan, begun) in plans.iter().zip(begun) {
            match begun {
                Ok((connection, send)) => {
                    over.extend(plan.streams().into_iter().map(|stream| (stream, connections.len() as u32)));
                    connections.push(connection);
                    sends.push((plan, send));
                }
                // What others read comes all the same.
                Err(reason) => {
                    whole.fail(wanted, plan.streams(), &reason);
                    whole.read.add(out_of_reach(what(plan), None, &reason));
                    last = Some(reason);
                }
            }
        }
        if connections.is_empty() {
            match last {
                _ if more => return Ok(None),
                Some(reason) if !*has_begun => return Err(SourceError::Mover { reason }),
                // With nothing more to come, the client finishes what it has written.
                _ => {
                    let (no_volumes, no_drives) = (Box::new(NoVolumes), DrivesAt::from(&*NO_DRIVES));
                    let begun = self.begin(what(&nothing), (no_volumes, no_drives), Throttle::of(RateLimit::default()));
                    let (connection, send) = begun.map_err(|reason| SourceError::Mover { reason })?;
                    connections.push(connection);
                    sends.push((&nothing, send));
                }
            }
        }
        *has_begun = true;
        let (streams, members) = pack_wanted(wanted, &over);
        let beside = connections.split_off(1);
        let Some(PiecesFrom { restore, open, from }) = connections.pop() else { return Ok(None) };
        let planned = watch.planned.load(Ordering::Relaxed);
        let names_own = true;
        let order =
            RestoreOrder { restore, open, planned, streams, from, more, names_own, beside, keep_damaged, names, ways };
        self.on_link_for(|link, link_use| {
            link.send(&JobOrder::Restore(Box::new(order)), &members).map_err(|error| self.lost(&error))?;
            let (answer, reads) = thread::scope(|scope| {
                let reads: Vec<_> = sends.into_iter().map(|(plan, send)| (plan, scope.spawn(send))).collect();
                let answer = self.restored((link, link_use), watch, &enough);
                // Whatever it says, nothing more is wanted.
                enough.store(true, Ordering::Relaxed);
                watch.stop.fetch_or(answer.is_err(), Ordering::Relaxed);
                let read = |(plan, read)| (plan, joined(read));
                (answer, reads.into_iter().map(read).collect::<Vec<_>>())
            });
            let RestoredReport { failed, fatal, extract, .. } = answer?;
            let names_few = self.job.process.get().is_none_or(|(_, version)| *version < SEVERAL_AT_ONCE);
            if failed.len() >= if names_few { FAILED_MAX } else { ROWS_MAX } {
                whole.fail(wanted, over.keys().copied(), "more failed than the client can name");
            }
            let mut failed = unpack_failed(wanted, failed);
            if names_few {
                failed.iter_mut().for_each(|member| member.is_written = member.is_of_checksum());
            }
            let of_streams: HashSet<usize> = failed.iter().map(|member| member.stream).collect();
            for (plan, read) in reads {
                let lost = || out_of_reach(what(plan), Some(&of_streams), MOVER_GONE);
                whole.read.add(read.unwrap_or_else(lost));
            }
            whole.failed.extend(failed);
            whole.fatal = fatal.map(|reason| ExtractError::AtClient { client: self.job.client.clone(), reason });
            Ok(extract)
        })
    }

    /// How the client gets a share, and what reads it; why nothing can be read of it, if its mover is gone.
    fn begin<'a>(
        &'a self,
        what: ToRead<'a>,
        (host, drives): (Box<dyn ReadHost + 'a>, DrivesAt<'a>),
        throttle: Throttle,
    ) -> Result<(PiecesFrom, SendShare<'a>), String> {
        let first = what.plan.passes.first().map(|pass| &what.wanted.volumes[pass.volume]);
        match (drives.0, first) {
            (DrivesWay::Several(routes), Some(place)) => {
                let library = routes.library_of(place);
                let host = Box::new(InLibrary { host, routes, library });
                self.begin_with(what, (host, routes.drives(library)), throttle)
            }
            (_, None) => self.begin_with(what, (host, DrivesAt::from(&*NO_DRIVES)), throttle),
            _ => self.begin_with(what, (host, drives), throttle),
        }
    }

    fn begin_with<'a>(
        &'a self,
        what: ToRead<'a>,
        (mut host, drives): (Box<dyn ReadHost + 'a>, DrivesAt<'a>),
        throttle: Throttle,
    ) -> Result<(PiecesFrom, SendShare<'a>), String> {
        let open = open_at_once(what.plan) as u32;
        match drives.0 {
            DrivesWay::Here(drives) => {
                let restore = self.expect_pieces();
                let send = move || {
                    let access = AccessHere { host: &mut *host, drives, between: None };
                    // What a client does not come for it names as failed.
                    Some(self.send_pieces(restore, what, access, &throttle).unwrap_or_default())
                };
                Ok((PiecesFrom { restore, open, from: None }, Box::new(send)))
            }
            DrivesWay::Elsewhere(far) => {
                let sent = far.send(what, &self.job.client, throttle);
                let (expected, run) = sent.map_err(|error| with_causes(&error))?;
                let from = Some(OtherMover { address: expected.address, token: expected.token });
                let send = move || run(&mut *host);
                Ok((PiecesFrom { restore: expected.reading, open, from }, Box::new(send)))
            }
            // A library has drives in one place.
            DrivesWay::Several(_) => Err("its drives are in no one place".to_owned()),
        }
    }

    /// Expects the connection of a restore; what it is called.
    pub(crate) fn expect_pieces(&self) -> u64 {
        let restore = self.job.next_reading.fetch_add(1, Ordering::Relaxed);
        locked(&self.job.restores).insert(restore, None);
        restore
    }

    /// Hears how the writing goes, to its end.
    fn restored(
        &self,
        (link, link_use): (&mut OrdersLink, &mut LinkUse),
        watch: &RestoreWatch,
        enough: &AtomicBool,
    ) -> Result<RestoredReport, SourceError> {
        let mut patience = StopPatience::of(self.stops_within.0);
        let lost = |error: std::io::Error| self.lost(&error);
        loop {
            let report = hear(link, ATTACHED_LEN_MAX).map_err(lost)?.0;
            self.check_admitted()?;
            match report {
                JobReport::Progress(progress) => {
                    let (members, bytes, taken) = progress.counted.restored();
                    watch.members.store(members, Ordering::Relaxed);
                    watch.bytes.store(bytes, Ordering::Relaxed);
                    watch.taken.store(taken, Ordering::Relaxed);
                    let stops = watch.stop.load(Ordering::Relaxed);
                    enough.fetch_or(stops, Ordering::Relaxed);
                    let answer = patience.answer(stops, Instant::now(), link_use)?;
                    link.send(&answer, &[]).map_err(lost)?;
                }
                JobReport::Restored(report) => {
                    watch.members.store(report.members, Ordering::Relaxed);
                    watch.bytes.store(report.bytes, Ordering::Relaxed);
                    if report.fatal.is_some() {
                        watch.stop.store(true, Ordering::Relaxed);
                    }
                    return Ok(*report);
                }
                _ => return Err(self.nonsense()),
            }
        }
    }

    /// Waits for the connection of a restore, and sends over it what is read, as fast as it may where it crosses a
    /// network; none where it did not come.
    pub(crate) fn send_pieces(
        &self,
        restore: u64,
        what: ToRead<'_>,
        access: AccessHere<'_>,
        throttle: &Throttle,
    ) -> Option<ReadReport> {
        let ToRead { wanted, plan, stop, meters } = what;
        let until = Instant::now() + self.patience;
        let link = loop {
            let mut expected = locked(&self.job.restores);
            if let Some(link) = expected.get_mut(&restore).and_then(Option::take) {
                expected.remove(&restore);
                break link;
            }
            if stop.load(Ordering::Relaxed) || Instant::now() > until {
                expected.remove(&restore);
                return None;
            }
            drop(expected);
            thread::sleep(LOOKS);
        };
        let is_paced = link.crosses_network();
        let (link, is_over) = (Mutex::new(link), AtomicBool::new(false));
        thread::scope(|scope| {
            scope.spawn(|| keep_awake(&link, &is_over, SPEAKS_EVERY));
            let pieces = PieceSender::new(&link, gaps_of(wanted, plan));
            let mut pieces = if is_paced { pieces.no_faster_than(throttle, stop) } else { pieces };
            let read = read_into(wanted, plan, access, (stop, meters), &mut pieces);
            is_over.store(true, Ordering::Relaxed);
            // A connection that broke is the client's to report.
            if !stop.load(Ordering::Relaxed) {
                let _ = pieces.finish();
            }
            Some(read)
        })
    }
}

fn joined<T>(thread: thread::ScopedJoinHandle<'_, T>) -> T {
    thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}

/// What is to be said of volumes whose mover cannot be asked for them: of those that some streams needed, or of all.
fn out_of_reach(what: ToRead<'_>, of_streams: Option<&HashSet<usize>>, reason: &str) -> ReadReport {
    let mut report = ReadReport::default();
    for pass in &what.plan.passes {
        let mut runs = pass.runs.iter();
        let Some(first) = runs.find(|run| of_streams.is_none_or(|streams| streams.contains(&run.stream))) else {
            continue;
        };
        let volser = what.wanted.volumes[pass.volume].volser.clone();
        report.out_of_reach.push(volser.clone());
        let (object, connection, offset) = (what.wanted.streams[first.stream].object, first.connection, first.offset);
        let reason = reason.to_owned();
        report.lost.push(Damage { volser, lbn: None, object, connection, offset, reason, of_medium: false });
        report.lost_count += 1;
    }
    report
}
