//! A restore, at the mover's end: what is read goes to the client, over a connection for each drive that reads.

use std::collections::{BTreeSet, HashMap};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{LazyLock, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use capstan_tape::with_causes;

use super::super::SPEAKS_EVERY;
use super::super::orders::{
    JobOrder, JobReport, OrdersLink, OtherMover, PiecesFrom, RestoreOrder, RestoredReport, pack_wanted, unpack_failed,
};
use super::super::pieces::{PieceSender, keep_awake};
use super::{ATTACHED_LEN_MAX, NetworkJob, locked};
use crate::MountedDrives;
use crate::damage::Damage;
use crate::extract::{ExtractError, ExtractReport};
use crate::feed::{AccessHere, DrivesAt, DrivesWay, InLibrary, ReadHost, ReadReport, ToRead, gaps_of, read_into};
use crate::read::{ReadPlan, Wanted};
use crate::restore::{RestoreWatch, StreamsReport};
use crate::source::SourceError;
use crate::stretch::open_at_once;

/// The first version in which a client takes several connections of a restore at once.
const SEVERAL_AT_ONCE: u32 = 3;
/// How often it is looked whether a connection has come.
const LOOKS: Duration = Duration::from_millis(10);

/// Why nothing more comes of a volume whose mover is gone.
const MOVER_GONE: &str = "its mover ended the connection, or has not been heard of";

/// The drives of what is read with none.
static NO_DRIVES: LazyLock<MountedDrives> = LazyLock::new(MountedDrives::default);

/// What one drive reads of a restore, in one library.
pub struct RestoreShare<'a> {
    /// What it reads. No other share has a stream of it.
    pub plan: ReadPlan,
    /// Who mounts its volumes. Dropped once all is read.
    pub host: Box<dyn ReadHost + 'a>,
    /// The drives that they are mounted in.
    pub drives: DrivesAt<'a>,
}

/// Reads a share until all is sent. It is told whether the client still waits for it.
type SendShare<'a> = Box<dyn FnOnce(&AtomicBool) -> ReadReport + Send + 'a>;

impl NetworkJob {
    /// Reads what is wanted, all shares at the same time, and has the client write it where its user said. With `more`,
    /// another part of the same restore follows: what is written is finished behind the last one.
    ///
    /// # Errors
    /// The client is gone, or does not keep to the protocol; or no share could be begun, and nothing follows. What
    /// could not be read or written is in the report.
    pub fn restore(
        &self,
        wanted: &Wanted,
        shares: Vec<RestoreShare<'_>>,
        watch: &RestoreWatch,
        more: bool,
    ) -> Result<(StreamsReport, Option<ExtractReport>), SourceError> {
        let at_once = if self.version()? >= SEVERAL_AT_ONCE { shares.len() } else { 1 };
        let (mut whole, mut left) = (StreamsReport::default(), shares.into_iter());
        loop {
            let now = left.by_ref().take(at_once).collect();
            let is_last = left.len() == 0;
            let (part, extract) = self.restore_at_once(wanted, now, watch, more || !is_last)?;
            whole.add(part);
            if is_last || whole.fatal.is_some() || watch.stop.load(Ordering::Relaxed) {
                return Ok((whole, extract));
            }
        }
    }

    /// The version of the words that the client speaks, once it has come.
    fn version(&self) -> Result<u32, SourceError> {
        self.on_link(|_| Ok(()))?;
        Ok(self.job.process.get().map_or(0, |(_, version)| *version))
    }

    fn restore_at_once(
        &self,
        wanted: &Wanted,
        shares: Vec<RestoreShare<'_>>,
        watch: &RestoreWatch,
        more: bool,
    ) -> Result<(StreamsReport, Option<ExtractReport>), SourceError> {
        let split = shares.into_iter().map(|RestoreShare { plan, host, drives }| (plan, (host, drives)));
        let (plans, hosts): (Vec<_>, Vec<_>) = split.unzip();
        let mut whole = StreamsReport::default();
        let (mut connections, mut sends, mut over) = (Vec::new(), Vec::new(), HashMap::new());
        for (plan, (host, drives)) in plans.iter().zip(hosts) {
            let what = ToRead { wanted, plan, stop: &watch.stop, meters: &watch.meters };
            match self.begin(what, host, drives) {
                Ok((connection, send)) => {
                    over.extend(streams_of(plan).into_iter().map(|stream| (stream, connections.len() as u32)));
                    connections.push(connection);
                    sends.push(send);
                }
                // What others read comes all the same.
                Err(reason) => {
                    whole.fail(wanted, streams_of(plan), &reason);
                    whole.read.add(out_of_reach(what, &reason));
                }
            }
        }
        let mut connections = connections.into_iter();
        let Some(PiecesFrom { restore, open, from }) = connections.next() else {
            let reason = || whole.read.lost.first().map_or_else(String::new, |lost| lost.reason.clone());
            return if more { Ok((whole, None)) } else { Err(SourceError::Mover { reason: reason() }) };
        };
        let (streams, members) = pack_wanted(wanted, &over);
        let (planned, beside) = (watch.planned.load(Ordering::Relaxed), connections.collect());
        let order = RestoreOrder { restore, open, planned, streams, from, more, beside };
        self.on_link(|link| {
            link.send(&JobOrder::Restore(Box::new(order)), &members).map_err(|error| self.lost(&error))?;
            let is_answered = &AtomicBool::new(false);
            let (answer, reads) = thread::scope(|scope| {
                let reads: Vec<_> = sends.into_iter().map(|send| scope.spawn(move || send(is_answered))).collect();
                let answer = self.restored(link, watch);
                // Whatever it says, nothing more is wanted.
                is_answered.store(true, Ordering::Relaxed);
                watch.stop.fetch_or(answer.is_err(), Ordering::Relaxed);
                let joined =
                    reads.into_iter().map(|read| read.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)));
                (answer, joined.collect::<Vec<ReadReport>>())
            });
            let RestoredReport { failed, fatal, extract, .. } = answer?;
            reads.into_iter().for_each(|read| whole.read.add(read));
            whole.failed.extend(unpack_failed(wanted, failed));
            whole.fatal = fatal.map(|reason| ExtractError::AtClient { client: self.job.client.clone(), reason });
            Ok((whole, extract))
        })
    }

    /// How the client gets a share, and what reads it; why nothing can be read of it, if its mover is gone.
    fn begin<'a>(
        &'a self,
        what: ToRead<'a>,
        host: Box<dyn ReadHost + 'a>,
        drives: DrivesAt<'a>,
    ) -> Result<(PiecesFrom, SendShare<'a>), String> {
        let first = what.plan.passes.first().map(|pass| &what.wanted.volumes[pass.volume]);
        match (drives.0, first) {
            (DrivesWay::Several(routes), Some(place)) => {
                let library = routes.library_of(place);
                let host = Box::new(InLibrary { host, routes, library });
                self.begin_in(what, host, routes.drives(library))
            }
            (_, None) => self.begin_in(what, host, DrivesAt::from(&*NO_DRIVES)),
            _ => self.begin_in(what, host, drives),
        }
    }
}

impl NetworkJob {
    fn begin_in<'a>(
        &'a self,
        what: ToRead<'a>,
        mut host: Box<dyn ReadHost + 'a>,
        drives: DrivesAt<'a>,
    ) -> Result<(PiecesFrom, SendShare<'a>), String> {
        let open = open_at_once(what.plan) as u32;
        match drives.0 {
            DrivesWay::Here(drives) => {
                let restore = self.expect_pieces();
                let send = move |is_answered: &AtomicBool| {
                    let access = AccessHere { host: &mut *host, drives, between: None };
                    // What a client does not come for it names as failed.
                    self.send_pieces(restore, what, access, is_answered).unwrap_or_default()
                };
                Ok((PiecesFrom { restore, open, from: None }, Box::new(send)))
            }
            DrivesWay::Elsewhere(far) => {
                let (expected, run) = far.send(what, &self.job.client).map_err(|error| with_causes(&error))?;
                let from = Some(OtherMover { address: expected.address, token: expected.token });
                let send = move |_: &AtomicBool| {
                    let is_lost = || !what.stop.load(Ordering::Relaxed);
                    let read = run(&mut *host);
                    read.unwrap_or_else(
                        || if is_lost() { out_of_reach(what, MOVER_GONE) } else { ReadReport::default() },
                    )
                };
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
    fn restored(&self, link: &mut OrdersLink, watch: &RestoreWatch) -> Result<RestoredReport, SourceError> {
        let lost = |error: std::io::Error| self.lost(&error);
        loop {
            let report = link.receive_within(ATTACHED_LEN_MAX).map_err(lost)?.0;
            self.check_admitted()?;
            match report {
                JobReport::Progress(progress) => {
                    let (members, bytes, taken) = progress.counted.restored();
                    watch.members.store(members, Ordering::Relaxed);
                    watch.bytes.store(bytes, Ordering::Relaxed);
                    watch.taken.store(taken, Ordering::Relaxed);
                    let stops = watch.stop.load(Ordering::Relaxed);
                    let answer = if stops { JobOrder::Stop } else { JobOrder::GoOn };
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

    /// Waits for the connection of a restore, and sends over it what is read; none where it did not come.
    pub(crate) fn send_pieces(
        &self,
        restore: u64,
        what: ToRead<'_>,
        access: AccessHere<'_>,
        is_answered: &AtomicBool,
    ) -> Option<ReadReport> {
        let ToRead { wanted, plan, stop, meters } = what;
        let until = Instant::now() + self.patience;
        let link = loop {
            let mut expected = locked(&self.job.restores);
            if let Some(link) = expected.get_mut(&restore).and_then(Option::take) {
                expected.remove(&restore);
                break Mutex::new(link);
            }
            if is_answered.load(Ordering::Relaxed) || stop.load(Ordering::Relaxed) || Instant::now() > until {
                expected.remove(&restore);
                return None;
            }
            drop(expected);
            thread::sleep(LOOKS);
        };
        let is_over = AtomicBool::new(false);
        thread::scope(|scope| {
            scope.spawn(|| keep_awake(&link, &is_over, SPEAKS_EVERY));
            let mut pieces = PieceSender::new(&link, gaps_of(wanted, plan));
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

/// The streams that a share has something of.
fn streams_of(plan: &ReadPlan) -> BTreeSet<usize> {
    let read = plan.passes.iter().flat_map(|pass| &pass.runs).map(|run| run.stream);
    read.chain(plan.missing.iter().map(|(stream, _)| *stream)).collect()
}

/// What is to be said of volumes whose mover cannot be asked for them.
fn out_of_reach(what: ToRead<'_>, reason: &str) -> ReadReport {
    let mut report = ReadReport::default();
    for pass in &what.plan.passes {
        let Some(first) = pass.runs.first() else { continue };
        let volser = what.wanted.volumes[pass.volume].volser.clone();
        let (object, connection, offset) = (what.wanted.streams[first.stream].object, first.connection, first.offset);
        let reason = reason.to_owned();
        report.lost.push(Damage { volser, lbn: None, object, connection, offset, reason, of_medium: false });
        report.lost_count += 1;
    }
    report
}
