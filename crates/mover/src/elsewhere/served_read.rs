//! A read of this mover, for whoever decides elsewhere.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::thread;
use std::time::Duration;

use capstan_tape::with_causes;

use super::served::ServedMover;
use super::words::{Expects, MoverLink, ReadAnswer, ReadCall, ReadCounts, ReadDone, ReadKind, ReadTold, pack, unpack};
use crate::devices::remote::RemoteReadHost;
use crate::feed::{AccessHere, DrivesAt, ToRead, read_between};
use crate::network::{NetworkJob, NetworkStream};
use crate::read::{ReadPlan, Wanted};
use crate::throttle::{Throttle, ToldRate};
use crate::{BetweenBlocks, RestoreWatch, StreamsReport, VolumeAccess, verify_streams};

/// How long a client may take to come for what is read: other movers of the same restore may hang first.
const FETCHES_WITHIN: Duration = Duration::from_secs(180);
/// How often it is said how far a read is.
const REPORTS_EVERY: Duration = Duration::from_millis(250);

/// What a read works on.
struct Reading<'a> {
    mover: &'a ServedMover,
    wanted: &'a Wanted,
    plan: &'a ReadPlan,
    watch: &'a RestoreWatch,
    throttle: Throttle,
}

impl ServedMover {
    /// Carries out a read, and says how it goes.
    pub(super) fn serve_read(&self, mut link: MoverLink, call: ReadCall, packed: &[u8]) -> io::Result<()> {
        let (wanted, plan): (Wanted, ReadPlan) = unpack(packed)?;
        let ReadCall { owner, kind, between, rate } = call;
        let _owner = self.owner(&owner);
        let asks = !matches!(kind, ReadKind::Between { .. });
        let (token, hosts) = self.expect_hosts(u8::from(asks))?;
        let job = match &kind {
            ReadKind::Send { client } => Some(self.jobs().open(client, FETCHES_WITHIN)?),
            ReadKind::Verify | ReadKind::Between { .. } => None,
        };
        let sends = job.map(|job| (job.expect_pieces(), job));
        let pieces = sends.as_ref().map(|(restore, job)| (job.token().clone(), *restore));
        link.send(&Expects { hosts: token.clone(), pieces }, &[]).inspect_err(|_| self.forget_hosts(&token))?;
        let host = self.hosts(&token, &hosts)?.pop();
        let watch = RestoreWatch::default();
        let mut between = between.map(|form| form.into_blocks(&watch.stop));
        let rate = ToldRate::new(rate);
        let reading = Reading { mover: self, wanted: &wanted, plan: &plan, watch: &watch, throttle: rate.throttle() };
        thread::scope(|scope| {
            let (done, is_done) = channel();
            scope.spawn(move || {
                let outcome = reading.carry_out(kind, sends, host, between.as_mut());
                // Nobody waits where the connection broke.
                let _ = done.send(ReadDone { between: between.map(|between| between.to_form()), ..outcome });
            });
            loop {
                match is_done.recv_timeout(REPORTS_EVERY) {
                    Ok(outcome) => return link.send(&ReadTold::Done(counts(&watch)), &pack(&outcome)?),
                    Err(RecvTimeoutError::Timeout) => {
                        let told = link.send(&ReadTold::Progress(counts(&watch)), &[]);
                        let answer = told.and_then(|()| link.receive_within(0));
                        match &answer {
                            Ok((ReadAnswer::GoOn, _)) => rate.tell(None),
                            Ok((ReadAnswer::GoOnAt(now), _)) => rate.tell(Some(*now)),
                            Ok((ReadAnswer::Stop, _)) | Err(_) => watch.stop.store(true, Ordering::Relaxed),
                        }
                        answer?;
                    }
                    Err(RecvTimeoutError::Disconnected) => return Err(io::Error::other("a read failed by a bug")),
                }
            }
        })
    }
}

impl Reading<'_> {
    fn carry_out(
        &self,
        kind: ReadKind,
        sends: Option<(u64, NetworkJob)>,
        host: Option<Box<dyn NetworkStream>>,
        between: Option<&mut BetweenBlocks>,
    ) -> ReadDone {
        let drives = &**self.mover.drives();
        let mut host = host.map(RemoteReadHost::new);
        match (kind, &mut host, sends, between) {
            (ReadKind::Send { .. }, Some(host), Some((restore, job)), between) => {
                let (stop, meters): (&AtomicBool, _) = (&self.watch.stop, &self.watch.meters);
                let what = ToRead { wanted: self.wanted, plan: self.plan, stop, meters };
                let read = job.send_pieces(restore, what, AccessHere { host, drives, between }, &self.throttle);
                ReadDone { read, ..ReadDone::default() }
            }
            (ReadKind::Verify, Some(host), _, between) => {
                let access = VolumeAccess { host, drives: DrivesAt::from(drives), between };
                let StreamsReport { read, failed, fatal } = verify_streams(self.wanted, self.plan, access, self.watch);
                let broken = fatal.map(|error| with_causes(&error));
                ReadDone { read: Some(read), failed, between: None, broken }
            }
            (ReadKind::Between { mount, place, end_lbn }, _, _, Some(between)) => {
                let read = read_between(DrivesAt::from(drives), mount, &place, between, end_lbn);
                ReadDone { broken: read.err().map(|error| with_causes(&error)), ..ReadDone::default() }
            }
            _ => ReadDone { broken: Some("the call is not whole".to_owned()), ..ReadDone::default() },
        }
    }
}

fn counts(watch: &RestoreWatch) -> ReadCounts {
    ReadCounts {
        load: watch.meters.load(),
        members: watch.members.load(Ordering::Relaxed),
        bytes: watch.bytes.load(Ordering::Relaxed),
        taken: watch.taken.load(Ordering::Relaxed),
    }
}
