//! Restoring to a client: the mover reads, and the client writes.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::thread;
use std::time::{Duration, Instant};

use capstan_tape::with_causes;

use super::client::{ClientEnd, RestoreInto};
use super::frame::nonsense;
use super::hello::connect;
use super::orders::{
    JobOrder, JobReport, OrdersLink, PiecesFrom, ProgressReport, REPORTS_EVERY, RestoreOrder, RestoredReport,
    pack_failed, unpack_files, unpack_selection, unpack_wanted,
};
use super::peer_text::said;
use super::report_bounds::fit_extract;
use super::{JobToken, Purpose, pieces, why_broken};
use crate::crew::{Consume, Crew, queue_len};
use crate::extract::{ExistingFiles, ExtractError, ExtractReport, Overwrite, RestoreTarget};
use crate::feed::{CrewFeeds, NOT_ALL, ReadReport, UpToTheEnd, pool_for};
use crate::read::Wanted;
use crate::restore::{RestoreWatch, Verdicts, restore_stream};
use crate::source::Counted;
use crate::stream::StreamReader;

/// How long files are looked for before the mover is answered.
const LOOKS_FOR: Duration = Duration::from_secs(5);
/// Connections of one order that are believed.
const CONNECTIONS_MAX: usize = 256;

/// A restore of which more orders come.
pub(super) struct OpenRestore {
    target: OpenTarget,
    watch: RestoreWatch,
}

/// Where a restore writes. However it ends, what was written gets what is set at last: until then its directories are
/// of whoever restores alone, and whoever goes on with it takes them for what was there before.
struct OpenTarget(Option<Box<RestoreTarget>>);

impl OpenTarget {
    fn finish(mut self) -> Result<ExtractReport, ExtractError> {
        self.0.take().map_or_else(|| Ok(ExtractReport::default()), |target| target.finish())
    }
}

impl Drop for OpenTarget {
    fn drop(&mut self) {
        if let Some(target) = self.0.take() {
            // What broke it off is told by whoever saw it.
            let _ = target.finish();
        }
    }
}

/// How far what was ordered has brought a restore.
enum Written {
    /// Another order of it comes.
    More(OpenTarget),
    Finished(ExtractReport),
}

/// What came of an order, beside what the mover met.
type Outcome = (Verdicts, Result<Written, String>);

impl ClientEnd<'_> {
    /// Writes what comes, and reports; gives what the next order goes on with, where one follows. An error is that of
    /// the orders link.
    pub(super) fn restore(
        &self,
        begun: Option<OpenRestore>,
        link: &mut OrdersLink,
        process: &JobToken,
        order: (&RestoreOrder, &[u8]),
    ) -> io::Result<Option<OpenRestore>> {
        let begun = match begun {
            Some(begun) => Ok(begun),
            None => self.target().map(|target| OpenRestore {
                target: OpenTarget(Some(Box::new(target))),
                watch: RestoreWatch::default(),
            }),
        };
        let (report, open) = match begun {
            Err(reason) => {
                let fatal = Some(reason);
                (RestoredReport { members: 0, bytes: 0, failed: Vec::new(), fatal, extract: None }, None)
            }
            Ok(begun) => self.restore_into(begun, link, process, order)?,
        };
        link.send(&JobReport::Restored(Box::new(report)), &[])?;
        Ok(open)
    }

    /// A byte for each of the first of these files: 1 if it is there as it would be written, and left as it is; none
    /// where a restore leaves no such file. What there is keeps what `existing` has found for the next ones.
    pub(super) fn there(&self, existing: &mut Option<ExistingFiles>, packed: &[u8]) -> io::Result<Option<Vec<u8>>> {
        let leaves = |into: &&RestoreInto<'_>| into.options.overwrite == Overwrite::Changed;
        let Some(into) = self.restores.as_ref().filter(leaves) else { return Ok(None) };
        if existing.is_none() {
            // What is wrong with the directory, the restore says.
            *existing = ExistingFiles::below(into.directory, into.options.strip).unwrap_or_default();
        }
        let Some(existing) = existing else { return Ok(None) };
        let (mut there, began) = (Vec::new(), Instant::now());
        // Where a disk takes long, the first ones are answered: the rest is asked for again.
        unpack_files(packed, &mut |file| {
            if there.is_empty() || began.elapsed() < LOOKS_FOR {
                there.push(u8::from(existing.has(&file)));
            }
        })?;
        Ok(Some(there))
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
        OpenRestore { target, watch: whole }: OpenRestore,
        link: &mut OrdersLink,
        process: &JobToken,
        (order, members): (&RestoreOrder, &[u8]),
    ) -> io::Result<(RestoredReport, Option<OpenRestore>)> {
        let wanted = &unpack_wanted(&order.streams, members)?;
        whole.planned.store(order.planned, Ordering::Relaxed);
        let watch = &whole;
        let (report, target) = thread::scope(|scope| {
            let (done, is_done) = channel();
            scope.spawn(move || {
                let outcome = self.write(target, wanted, process, order, watch);
                // Nobody waits where the orders link broke.
                let _ = done.send(outcome);
            });
            loop {
                match is_done.recv_timeout(REPORTS_EVERY) {
                    Ok((verdicts, written)) => return Ok(report(verdicts, wanted, written, watch)),
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
        })?;
        Ok((report, target.map(|target| OpenRestore { target, watch: whole })))
    }

    fn write(
        &self,
        open: OpenTarget,
        wanted: &Wanted,
        process: &JobToken,
        order: &RestoreOrder,
        watch: &RestoreWatch,
    ) -> Outcome {
        let verdicts = Verdicts::default();
        let Some(target) = &open.0 else { return (verdicts, Err("it has been finished".to_owned())) };
        if order.keep_damaged {
            target.keep_damaged();
        }
        target.select(unpack_selection(order));
        let consume = |stream: usize, reader: &mut StreamReader<'_>| {
            restore_stream((target, watch, &verdicts), stream, reader);
        };
        let connections = order.connections();
        if connections.len() > CONNECTIONS_MAX {
            return (verdicts, Err("it is told to come over more connections than any restore has".to_owned()));
        }
        thread::scope(|scope| {
            for (number, from) in connections.iter().enumerate() {
                let (consume, own) = (&consume, order.streams_over(number as u32));
                scope.spawn(move || self.take(from, (own, order.names_own), (wanted, consume), process, &watch.stop));
            }
        });
        if watch.stop.load(Ordering::Relaxed) {
            return (verdicts, Err("it was told to stop".to_owned()));
        }
        if order.more {
            return (verdicts, Ok(Written::More(open)));
        }
        let finished = open.finish().map_err(|error| with_causes(&error));
        if let (Ok(report), Some(into)) = (&finished, &self.restores) {
            (into.told)(report);
        }
        (verdicts, finished.map(Written::Finished))
    }
}

impl ClientEnd<'_> {
    /// Takes what comes over one connection. If it breaks, the rest of its streams fails, and others go on.
    fn take(
        &self,
        from: &PiecesFrom,
        (own, names_own): (Vec<usize>, bool),
        (wanted, consume): (&Wanted, Consume<'_>),
        process: &JobToken,
        stop: &AtomicBool,
    ) {
        let open = (from.open as usize).clamp(1, pieces::OPEN_MAX as usize);
        let purpose = Purpose::Pieces { restore: from.restore };
        let connected = match &from.from {
            Some(mover) => {
                let way = self.dial.at(&mover.address, &mover.token);
                way.and_then(|way| connect(&*way, (&mover.token, process), purpose))
            }
            None => connect(self.dial, (&self.token, process), purpose),
        };
        let pool = pool_for(wanted, open);
        thread::scope(|scope| {
            let crew = Crew::new(scope, wanted, consume, queue_len(open), Default::default());
            let mut feeds = CrewFeeds { crew, feeds: Default::default() };
            let mut feeds = UpToTheEnd::of(&mut feeds, own);
            let received = connected
                .and_then(|mut link| pieces::receive(&mut link, wanted.streams.len(), &pool, &mut feeds, stop));
            // One that is stopped says so, and not of each file.
            if !stop.load(Ordering::Relaxed) && (names_own || received.is_err()) {
                let broke = |error: io::Error| format!("the connection to the mover broke: {}", why_broken(&error));
                let reason = received.map_or_else(broke, |()| NOT_ALL.to_owned());
                feeds.fail(&format!("{reason}: restore again with --overwrite changed to go on with what is missing"));
            }
        });
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

fn report(
    verdicts: Verdicts,
    wanted: &Wanted,
    written: Result<Written, String>,
    watch: &RestoreWatch,
) -> (RestoredReport, Option<OpenTarget>) {
    let streams = verdicts.into_report(ReadReport::default());
    let failed = pack_failed(wanted, streams.failed);
    let fatal = streams.fatal.map(|error| with_causes(&error));
    let (mut extract, mut failure, mut open) = (None, None, None);
    match written {
        Ok(Written::Finished(mut report)) => {
            fit_extract(&mut report);
            extract = Some(report);
        }
        Ok(Written::More(target)) => open = Some(target),
        Err(reason) => failure = Some(reason),
    }
    let report = RestoredReport {
        members: watch.members.load(Ordering::Relaxed),
        bytes: watch.bytes.load(Ordering::Relaxed),
        failed,
        fatal: fatal.or(failure).map(|reason| said(&reason)),
        extract,
    };
    (report, open)
}
