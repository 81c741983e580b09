//! The client's side of a job: it looks and reads as it is ordered, and sends the blocks.

use std::ffi::OsString;
use std::io::{self, Read};
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use capstan_tape::with_causes;
use rustix::fs::{CWD, Mode, OFlags, openat};

use super::frame::nonsense;
use super::hello::connect;
use super::here::streams_here;
use super::links::LinkTimes;
use super::orders::{
    JobOrder, JobReport, NOT_ALLOWED, OrdersLink, ProgressReport, REPORTS_EVERY, ReadSource, unpack_rows,
};
use super::pattern_text::{self, TEXT_LEN_MAX, too_long};
use super::report_bounds::{PATH_LEN_MAX, done};
use super::rules::ClientRules;
use super::script::{self, Owed, no_script};
use super::sender::{BlockLinks, BlockSender, NotSent};
use super::{Dial, JobToken, NetworkStream, Purpose, SILENT_MAX};
use crate::baseline::{BaselineBuilder, BaselineTable};
use crate::block::Block;
use crate::extract::{ExtractOptions, ExtractReport};
use crate::intake::StreamStart;
use crate::link::Link;
use crate::pack::{PackOptions, PackedTo, Packer};
use crate::pool::BlockPool;
use crate::queue::{Sender, queue};
use crate::source::{ProblemKind, Progress, SourceError, SourceFound, SourceReport, SourceRun, SourceSpec};
use crate::{Baseline, Connection, Metadata, Stopped, Verdict};

/// Memory for blocks that were read and that the mover does not have yet.
const POOL_BYTES: usize = 64 << 20;
/// Problems that are said in one report.
const PROBLEMS_EACH: usize = 500;
/// Connections of one reading, and links of one job, that are believed.
const CONNECTIONS_MAX: u16 = 256;
const LINKS_MAX: u16 = 64;
/// How often a link that waits for orders looks whether it is to stop.
const LOOKS: Duration = Duration::from_millis(500);
/// Longest blocks that are believed.
const CHUNK_LEN_MAX: usize = 16 << 20;

/// Where a client writes what is restored.
pub struct RestoreInto<'a> {
    /// The directory.
    pub directory: &'a Path,
    /// What may be done there.
    pub options: ExtractOptions,
    /// Told what was written, once all is.
    pub told: &'a (dyn Fn(&ExtractReport) + Sync),
}

/// What a client brings to a job.
pub struct ClientEnd<'a> {
    /// Opens connections to the mover.
    pub dial: &'a dyn Dial,
    /// What the server gave it for this job.
    pub token: JobToken,
    /// How many orders may be carried out at a time.
    pub links: u16,
    /// What it may do.
    pub rules: &'a dyn ClientRules,
    /// Where it writes what is restored; `None` for nowhere.
    pub restores: Option<RestoreInto<'a>>,
    /// Set it to stop at the next chunk.
    pub stop: Arc<AtomicBool>,
}

/// Carries out the orders of a job until the mover ends it.
///
/// # Errors
/// The mover cannot be reached, or the connection broke.
pub fn serve_job(end: &ClientEnd<'_>) -> io::Result<()> {
    let process = JobToken::random()?;
    let owed = Owed::default();
    let ended = thread::scope(|scope| {
        let links = (0..end.links.clamp(1, LINKS_MAX)).map(|_| scope.spawn(|| end.serve_link(&process, &owed)));
        let links: Vec<_> = links.collect();
        let ends = links.into_iter().map(|link| link.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)));
        ends.fold(Ok(()), Result::and)
    });
    // The mover is gone, or forgot it.
    match script::run_owed(end.rules, &owed) {
        None => ended,
        Some(reason) => ended.and_then(|()| Err(io::Error::other(reason))),
    }
}

impl<'a> ClientEnd<'a> {
    fn serve_link(&self, process: &JobToken, owed: &Owed<'a>) -> io::Result<()> {
        let mut link = Link(connect(self.dial, (&self.token, process), Purpose::Orders)?);
        let (mut restoring, mut existing) = (None, None);
        loop {
            // Orders come when they come: whether the mover is still there is for the system to find out.
            link.0.set_timeout(Some(LOOKS))?;
            let Some(first) = link.first_byte(&self.stop)? else { return Ok(()) };
            link.0.set_timeout(Some(SILENT_MAX))?;
            let (order, attached) = link.receive_behind(first)?;
            match order {
                JobOrder::Look(paths) => {
                    let found = paths.into_iter().map(|path| self.look(&PathBuf::from(path))).collect();
                    link.send(&JobReport::Found(found), &[])?;
                }
                JobOrder::Text(path) => link.send(&JobReport::Text(self.text_of(Path::new(&path))), &[])?,
                JobOrder::Run(order) => {
                    let ran = script::run(self.rules, &mut link, order, owed, &self.stop)?;
                    link.send(&JobReport::Ran(ran), &[])?;
                }
                JobOrder::There => {
                    let there = self.there(&mut existing, &attached)?;
                    let report = JobReport::There { is_left: there.is_some() };
                    link.send(&report, &there.unwrap_or_default())?;
                }
                JobOrder::Restore(order) => {
                    // What it was before is of no use any more.
                    existing = None;
                    restoring = self.restore(restoring.take(), &mut link, process, (&order, &attached))?;
                }
                JobOrder::Read(order) => link = self.read(link, process, *order)?,
                JobOrder::End => return Ok(()),
                JobOrder::Rows { .. } | JobOrder::GoOn | JobOrder::Stop => {
                    return Err(nonsense("the mover answers what it was not asked"));
                }
            }
        }
    }

    fn look(&self, path: &Path) -> Result<SourceFound, i32> {
        if !self.rules.allows(path) {
            return Err(NOT_ALLOWED);
        }
        SourceFound::at(path).map_err(|error| error.raw_os_error().unwrap_or(0))
    }

    fn text_of(&self, path: &Path) -> Result<String, String> {
        if !self.rules.allows(path) {
            return Err(not_allowed(path));
        }
        let read = |error: io::Error| format!("{} cannot be read: {error}", path.display());
        let mut text = String::new();
        // A pipe would be waited for, whenever it was put in its place.
        let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOCTTY;
        let opened = openat(CWD, path, flags, Mode::empty()).map_err(|errno| read(errno.into()))?;
        let file = std::fs::File::from(opened);
        let metadata = file.metadata().map_err(read)?;
        if !metadata.is_file() {
            return Err(format!("{} is no file", path.display()));
        }
        if metadata.len() > TEXT_LEN_MAX {
            return Err(too_long(path));
        }
        file.take(TEXT_LEN_MAX + 1).read_to_string(&mut text).map_err(read)?;
        pattern_text::bounded(path, text)
    }

    /// Why a source is not read here, if it is not.
    fn refusal(&self, order: &ReadSource) -> Option<String> {
        match &order.spec {
            SourceSpec::Tree { path, .. } | SourceSpec::Device { path } if !self.rules.allows(path) => {
                Some(not_allowed(path))
            }
            _ if order.chunk_len == 0
                || order.chunk_len as usize > CHUNK_LEN_MAX
                || !(1..=CONNECTIONS_MAX).contains(&order.connections)
                || order.first_connection.checked_add(order.connections).is_none() =>
            {
                Some("the order makes no sense".to_owned())
            }
            _ => None,
        }
    }

    /// Reads a source, and reports.
    fn read(&self, mut link: OrdersLink, process: &JobToken, mut order: ReadSource) -> io::Result<OrdersLink> {
        let table = order.has_baseline.then(|| baseline(&mut link)).transpose()?;
        let mut refusal = self.refusal(&order);
        if let SourceSpec::Stream(input) = &mut order.spec {
            // The order names a script, and the machine's own settings say what that is.
            let name = input.command.first().and_then(|name| name.to_str()).unwrap_or_default().to_owned();
            match self.rules.script(&name).filter(|command| !command.is_empty()) {
                Some(command) => input.command = command,
                None => refusal = Some(no_script(&name)),
            }
        }
        if let Some(reason) = refusal {
            link.send(&JobReport::Failed { reason, is_stopped: false }, &[])?;
            return Ok(link);
        }
        let stop = Arc::default();
        let here = match streams_here(self.dial, process, &order, &stop) {
            Ok(here) => here,
            Err(error) => {
                link.send(&JobReport::Failed { reason: with_causes(&error), is_stopped: false }, &[])?;
                return Ok(link);
            }
        };
        let link = Mutex::new(link);
        let reader = Reader { end: self, process, order: &order, link: &link, stop, problems: Arc::default() };
        let ran = match here {
            Some(sinks) => reader.run_here(sinks, table.as_ref()),
            None => reader.run(table.as_ref()),
        };
        let report = match ran? {
            Ok(report) => done(report),
            Err(failed) => failed,
        };
        let mut link = link.into_inner().unwrap_or_else(PoisonError::into_inner);
        link.send(&report, &[])?;
        Ok(link)
    }
}

fn not_allowed(path: &Path) -> String {
    format!(
        "this machine's own settings do not let {} be read: name it under `paths` in its client.toml, and start the \
         client again",
        path.display()
    )
}

/// Takes in the rows of a baseline.
fn baseline(link: &mut OrdersLink) -> io::Result<BaselineTable> {
    let mut builder = BaselineBuilder::default();
    rows(link, &mut |path, metadata| builder.push(path, metadata))?;
    Ok(builder.finish())
}

fn rows(link: &mut OrdersLink, found: &mut dyn FnMut(&[u8], &Metadata)) -> io::Result<()> {
    loop {
        let (JobOrder::Rows { more }, packed) = link.receive()? else {
            return Err(nonsense("the mover sends something else than the rows of a baseline"));
        };
        unpack_rows(&packed, found)?;
        if !more {
            return Ok(());
        }
    }
}

/// What came of a reading, and of sending it.
type ReadAndSent = (Result<SourceReport, SourceError>, Vec<Result<(), NotSent>>);

/// One reading.
struct Reader<'a> {
    end: &'a ClientEnd<'a>,
    process: &'a JobToken,
    order: &'a ReadSource,
    link: &'a Mutex<OrdersLink>,
    /// Stops this reading.
    stop: Arc<AtomicBool>,
    problems: Arc<Mutex<Vec<(OsString, ProblemKind)>>>,
}

/// A baseline whose paths the mover has.
struct RemoteBaseline<'a> {
    table: &'a BaselineTable,
    link: &'a Mutex<OrdersLink>,
    stop: &'a AtomicBool,
}

impl Baseline for RemoteBaseline<'_> {
    fn compare(&self, path: &[u8], metadata: &Metadata) -> Verdict {
        self.table.compare(path, metadata)
    }

    fn for_each_missing(&self, found: &mut dyn FnMut(&[u8])) {
        let mut link = self.link.lock().unwrap_or_else(PoisonError::into_inner);
        let asked = link.send(&JobReport::Missing, &self.table.seen().to_bytes());
        if asked.and_then(|()| rows(&mut link, &mut |path, _| found(path))).is_err() {
            // The next report fails too; until then nothing may be taken for the end of the list.
            self.stop.store(true, Ordering::Relaxed);
        }
    }
}

impl Reader<'_> {
    /// Reads to the end, into a session of this process. An error is that of the orders link.
    fn run_here(
        &self,
        sinks: Vec<Connection>,
        table: Option<&BaselineTable>,
    ) -> io::Result<Result<SourceReport, JobReport>> {
        let progress = Progress::new();
        self.reporting(&progress, || (self.read_into(sinks, table, &progress), Vec::new()))
    }

    /// Reads to the end, and sends what is read. An error is that of the orders link.
    fn run(&self, table: Option<&BaselineTable>) -> io::Result<Result<SourceReport, JobReport>> {
        let order = self.order;
        let workers = thread::available_parallelism().map_or(1, |cores| cores.get().saturating_sub(1).max(1));
        let (chunk_len, connections) = (order.chunk_len as usize, usize::from(order.connections));
        let needed = connections * 2 + workers * 2 + 8;
        let pool = BlockPool::new(needed.max(POOL_BYTES / chunk_len), chunk_len);
        let (senders, receivers): (Vec<_>, Vec<_>) = (0..connections).map(|_| queue(usize::MAX)).unzip();
        let progress = Progress::new();
        let elsewhere = match &order.to {
            Some(mover) => match self.end.dial.at(&mover.address, &mover.token) {
                Ok(dial) => Some((dial, &mover.token)),
                Err(error) => {
                    return Ok(Err(JobReport::Failed { reason: with_causes(&error), is_stopped: false }));
                }
            },
            None => None,
        };
        let (dial, token) =
            elsewhere.as_ref().map_or((self.end.dial, &self.end.token), |(dial, token)| (&**dial, *token));
        self.reporting(&progress, || {
            thread::scope(|scope| {
                let streams = (order.first_connection..).zip(receivers).map(|(connection, blocks)| {
                    let (start, token, stop) = (StreamStart::whole(connection), (token, self.process), &*self.stop);
                    let links = BlockLinks::AsWanted(LinkTimes::default());
                    let sender = BlockSender { dial, token, reading: order.reading, start, blocks, stop, links };
                    scope.spawn(move || sender.run())
                });
                let streams: Vec<_> = streams.collect();
                let read = self.read(senders, &pool, workers, table, &progress);
                drop(pool);
                let sent = streams.into_iter().map(|stream| {
                    stream.join().unwrap_or_else(|_| Err(NotSent::Lost("a sender failed by a bug".to_owned())))
                });
                (read, sent.collect())
            })
        })
    }

    /// Reads in a thread of its own, and reports meanwhile.
    fn reporting(
        &self,
        progress: &Progress,
        read: impl FnOnce() -> ReadAndSent + Send,
    ) -> io::Result<Result<SourceReport, JobReport>> {
        thread::scope(|scope| {
            let (done, is_done) = channel();
            // Nobody waits where the orders link broke.
            scope.spawn(move || drop(done.send(read())));
            loop {
                match is_done.recv_timeout(REPORTS_EVERY) {
                    Ok((read, sent)) => {
                        self.report(progress)?;
                        return Ok(self.outcome(read, &sent));
                    }
                    Err(RecvTimeoutError::Timeout) => {
                        let goes_on = self.report(progress);
                        if self.end.stop.load(Ordering::Relaxed) || !matches!(goes_on, Ok(true)) {
                            self.stop.store(true, Ordering::Relaxed);
                        }
                        goes_on?;
                    }
                    Err(RecvTimeoutError::Disconnected) => return Err(io::Error::other("a reader failed by a bug")),
                }
            }
        })
    }

    /// Says how far it is; whether it goes on.
    fn report(&self, progress: &Progress) -> io::Result<bool> {
        let problems = std::mem::take(&mut *self.problems.lock().unwrap_or_else(PoisonError::into_inner));
        let mut current = progress.current();
        current.truncate(PATH_LEN_MAX);
        let current = OsString::from_vec(current);
        let report = ProgressReport { counted: progress.counted(), current, problems };
        let mut link = self.link.lock().unwrap_or_else(PoisonError::into_inner);
        link.send(&JobReport::Progress(Box::new(report)), &[])?;
        match link.receive()?.0 {
            JobOrder::GoOn => Ok(true),
            JobOrder::Stop => Ok(false),
            _ => Err(nonsense("the mover does not answer a report")),
        }
    }

    fn read(
        &self,
        senders: Vec<Sender<Block>>,
        pool: &BlockPool,
        workers: usize,
        table: Option<&BaselineTable>,
        progress: &Progress,
    ) -> Result<SourceReport, SourceError> {
        let order = self.order;
        let first = order.first_connection;
        let out: PackedTo = Arc::new(move |block: Block| {
            let sender = senders.get(usize::from(block.place.connection - first)).ok_or(Stopped)?;
            sender.send(block).map_err(|_| Stopped)
        });
        let pack = order.level.map_or(PackOptions::Store, PackOptions::Zstd);
        let packing = Packer::start(pack, workers, pool, out, Arc::default());
        let (packer, pack_workers) = packing.map_err(|error| SourceError::AtClient {
            client: "this machine".to_owned(),
            reason: with_causes(&error),
        })?;
        let sinks: Vec<Connection> = (0..order.connections)
            .map(|number| {
                let (pool, stop) = (pool.clone(), Arc::clone(&self.stop));
                Connection::new((u64::from(number), order.object, first + number), pool, packer.share(), None, stop)
                    .taking_fragments(order.marks)
            })
            .collect();
        let read = self.read_into(sinks, table, progress);
        drop(packer);
        pack_workers.join();
        read
    }

    fn read_into(
        &self,
        mut sinks: Vec<Connection>,
        table: Option<&BaselineTable>,
        progress: &Progress,
    ) -> Result<SourceReport, SourceError> {
        let order = self.order;
        let baseline = table.map(|table| RemoteBaseline { table, link: self.link, stop: &self.stop });
        let met = Arc::clone(&self.problems);
        let problems = move |path: &[u8], kind| {
            let mut met = met.lock().unwrap_or_else(PoisonError::into_inner);
            // All are counted in the report of the whole; a broken disk has more than fit into a message.
            if met.len() < PROBLEMS_EACH {
                met.push((OsString::from_vec(path[..path.len().min(PATH_LEN_MAX)].to_vec()), kind));
            }
        };
        let run = SourceRun {
            began_ns: order.began_ns,
            baseline: baseline.as_ref().map(|baseline| baseline as &dyn Baseline),
            cut: &order.cut,
            progress,
            on_problem: Box::new(problems),
        };
        let report = order.spec.read(&mut sinks, run)?;
        // What is missing may not be all that is.
        if self.stop.load(Ordering::Relaxed) {
            return Err(Stopped.into());
        }
        sinks.into_iter().try_for_each(Connection::finish)?;
        Ok(report)
    }

    fn outcome(
        &self,
        read: Result<SourceReport, SourceError>,
        sent: &[Result<(), NotSent>],
    ) -> Result<SourceReport, JobReport> {
        let lost = sent.iter().find_map(|sent| match sent {
            Err(NotSent::Lost(reason)) => Some(reason.clone()),
            _ => None,
        });
        if let Some(reason) = lost {
            return Err(JobReport::Failed { reason, is_stopped: false });
        }
        match read {
            Ok(report) if sent.iter().all(Result::is_ok) => Ok(report),
            Ok(_) | Err(SourceError::Stopped(_)) => match self.end.stop.load(Ordering::Relaxed) {
                true => Err(JobReport::Failed { reason: "it was told to stop there".to_owned(), is_stopped: false }),
                false => Err(JobReport::Failed { reason: "it was told to stop".to_owned(), is_stopped: true }),
            },
            Err(error) => Err(JobReport::Failed { reason: with_causes(&error), is_stopped: false }),
        }
    }
}
