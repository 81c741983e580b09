//! Restoring to a client: the mover reads, and the client writes.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::sync::{Mutex, PoisonError};
use std::thread;

use capstan_tape::with_causes;

use super::client::ClientEnd;
use super::frame::nonsense;
use super::hello::connect;
use super::orders::{
    JobOrder, JobReport, OrdersLink, ProgressReport, REPORTS_EVERY, RestoreOrder, RestoredReport, unpack_wanted,
};
use super::{JobToken, Purpose, pieces};
use crate::crew::{Crew, queue_len};
use crate::extract::{ExtractReport, RestoreTarget};
use crate::feed::{CrewFeeds, ReadReport, pool_for};
use crate::restore::{RestoreWatch, Verdicts, restore_stream};
use crate::source::Counted;
use crate::stream::StreamReader;

/// Members that failed that are named to the mover.
const FAILED_MAX: usize = 10_000;
/// Problems that are named to the mover.
const PROBLEMS_MAX: usize = 1_000;
/// Streams that are open at once, at most.
const OPEN_MAX: usize = 4_096;

/// What came of a restore, beside what the mover met.
type Outcome = (Verdicts, Result<ExtractReport, String>);

impl ClientEnd<'_> {
    /// Writes what comes, and reports. An error is that of the orders link.
    pub(super) fn restore(
        &self,
        link: &mut OrdersLink,
        process: &JobToken,
        order: &RestoreOrder,
        members: &[u8],
    ) -> io::Result<()> {
        let report = match self.target() {
            Err(reason) => {
                RestoredReport { members: 0, bytes: 0, failed: Vec::new(), fatal: Some(reason), extract: None }
            }
            Ok(target) => self.restore_into(target, link, process, order, members)?,
        };
        link.send(&JobReport::Restored(Box::new(report)), &[])
    }

    /// Where its own user said.
    fn target(&self) -> Result<RestoreTarget, String> {
        let Some(into) = &self.restores else {
            return Err("nothing is restored there that the machine does not allow (restore_to in its client.toml) or that was not typed there (`capstan client restore`)".to_owned());
        };
        RestoreTarget::new(into.directory, into.options.clone()).map_err(|error| with_causes(&error))
    }

    fn restore_into(
        &self,
        target: RestoreTarget,
        link: &mut OrdersLink,
        process: &JobToken,
        order: &RestoreOrder,
        members: &[u8],
    ) -> io::Result<RestoredReport> {
        let wanted = unpack_wanted(&order.streams, members)?;
        let watch = RestoreWatch::default();
        watch.planned.store(order.planned, Ordering::Relaxed);
        let watch = &watch;
        thread::scope(|scope| {
            let (done, is_done) = channel();
            scope.spawn(move || {
                let outcome = self.write(target, &wanted, process, order, watch);
                // Nobody waits where the orders link broke.
                let _ = done.send(outcome);
            });
            loop {
                match is_done.recv_timeout(REPORTS_EVERY) {
                    Ok((verdicts, extract)) => return Ok(report(verdicts, extract, watch)),
                    Err(RecvTimeoutError::Timeout) => {
                        let goes_on = tell(link, watch);
                        if self.stop.load(Ordering::Relaxed) || !matches!(goes_on, Ok(true)) {
                            watch.stop.store(true, Ordering::Relaxed);
                        }
                        goes_on?;
                    }
                    Err(RecvTimeoutError::Disconnected) => return Err(io::Error::other("a writer failed by a bug")),
                }
            }
        })
    }

    fn write(
        &self,
        target: RestoreTarget,
        wanted: &crate::read::Wanted,
        process: &JobToken,
        order: &RestoreOrder,
        watch: &RestoreWatch,
    ) -> Outcome {
        let verdicts = Verdicts::default();
        let consume = |stream: usize, reader: &mut StreamReader<'_>| {
            restore_stream((&target, watch, &verdicts), stream, reader);
        };
        let open = (order.open as usize).clamp(1, OPEN_MAX);
        let purpose = Purpose::Pieces { restore: order.restore };
        let connected = match &order.from {
            Some(mover) => {
                self.dial.at(&mover.address).and_then(|dial| connect(&*dial, (&mover.token, process), purpose))
            }
            None => connect(self.dial, (&self.token, process), purpose),
        };
        let received = connected.and_then(|mut link| {
            let pool = pool_for(wanted, open);
            thread::scope(|scope| {
                let crew = Crew::new(scope, wanted, &consume, queue_len(open), Default::default());
                let mut feeds = CrewFeeds { crew, feeds: Default::default() };
                pieces::receive(&mut link, wanted.streams.len(), &pool, &mut feeds, &watch.stop)
            })
        });
        if let Err(error) = received {
            let reason = format!(
                "the connection broke ({error}): restore again with --overwrite changed to go on with what is missing"
            );
            return (verdicts, Err(reason));
        }
        if watch.stop.load(Ordering::Relaxed) {
            return (verdicts, Err("it was told to stop".to_owned()));
        }
        let finished = target.finish().map_err(|error| with_causes(&error));
        if let (Ok(report), Some(into)) = (&finished, &self.restores) {
            (into.told)(report);
        }
        (verdicts, finished)
    }
}

/// Says how far it is; whether it goes on.
fn tell(link: &mut OrdersLink, watch: &RestoreWatch) -> io::Result<bool> {
    let counted = Counted::of_restore(
        watch.members.load(Ordering::Relaxed),
        watch.bytes.load(Ordering::Relaxed),
        watch.taken.load(Ordering::Relaxed),
    );
    let report = ProgressReport { counted, ..ProgressReport::default() };
    link.send(&JobReport::Progress(Box::new(report)), &[])?;
    match link.receive()?.0 {
        JobOrder::GoOn => Ok(true),
        JobOrder::Stop => Ok(false),
        _ => Err(nonsense("the mover does not answer a report")),
    }
}

fn report(verdicts: Verdicts, extract: Result<ExtractReport, String>, watch: &RestoreWatch) -> RestoredReport {
    let streams = verdicts.into_report(ReadReport::default());
    let mut failed = streams.failed;
    failed.truncate(FAILED_MAX);
    let fatal = streams.fatal.map(|error| with_causes(&error));
    let (extract, failure) = match extract {
        Ok(mut extract) => {
            extract.problems.truncate(PROBLEMS_MAX);
            (Some(extract), None)
        }
        Err(reason) => (None, Some(reason)),
    };
    RestoredReport {
        members: watch.members.load(Ordering::Relaxed),
        bytes: watch.bytes.load(Ordering::Relaxed),
        failed,
        fatal: fatal.or(failure),
        extract,
    }
}

/// Says every so often that the mover is still there, until it is told that all is sent.
pub(super) fn keep_awake(
    link: &Mutex<Box<dyn super::NetworkStream>>,
    is_over: &AtomicBool,
    every: std::time::Duration,
) {
    let step = std::time::Duration::from_millis(100).min(every);
    let mut waited = std::time::Duration::ZERO;
    while !is_over.load(Ordering::Relaxed) {
        thread::sleep(step);
        waited += step;
        if waited >= every {
            waited = std::time::Duration::ZERO;
            let mut link = link.lock().unwrap_or_else(PoisonError::into_inner);
            // Whoever sends the next piece hears of a connection that broke.
            let _ = pieces::Frame::StillHere.write(&mut *link).and_then(|()| io::Write::flush(&mut *link));
        }
    }
}
