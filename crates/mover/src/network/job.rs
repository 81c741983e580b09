//! The mover's side of a job: who may come for it, and what the client is asked for.

mod restore;
mod stopping;
mod there;

use std::collections::HashMap;
use std::ffi::OsString;
use std::io;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use capstan_format::ObjectId;
use capstan_tape::with_causes;

use super::hello::{Hello, OLDEST, SEVERAL_LINKS, StreamHere, VERSION, Welcome};
use super::orders::{
    JobOrder, JobReport, NOT_ALLOWED, OrdersLink, OtherMover, ProgressReport, ReadSource, RowPacker, RunScript,
    crossing,
};
use super::pattern_text;
use super::peer_text::said;
use super::receiver::{BlockReceiver, LINK_NUMBERS, LinkOf};
use super::report_bounds::hear;
use super::{JobToken, NetworkStream, Purpose, SILENT_MAX, SPEAKS_EVERY};
use crate::intake::{IntakeHere, IntakeWay, StreamStart};
use crate::link::Link;
use crate::pack::PackOptions;
use crate::source::{Counted, SourceError, SourceFound, SourceReport};
use crate::source_host::{ListedBaseline, SourceHost, SourceReading};
use crate::{Connection, Intake, Metadata, Stopped};

pub use restore::{RestorePart, RestoreShare};
use stopping::{LinkUse, StopPatience};

/// Longest report beside the rows that were seen.
const ATTACHED_LEN_MAX: usize = 64;
/// Rows of a baseline between two looks at the time.
const ROWS_BETWEEN_LOOKS: usize = 4096;

/// How long a client may take to stop what it was told to stop, until it is left alone: it may wait for a dead disk.
const STOPS_WITHIN: Duration = Duration::from_secs(60);
/// The same of a program, which the client kills after a minute.
const SCRIPT_STOPS_WITHIN: Duration = Duration::from_secs(90);
/// How long a client may take no byte of what is restored.
const WRITES_WITHIN: Duration = Duration::from_secs(180);
/// Orders links of one job, at most.
const LINKS_MAX: usize = 64;
/// How often whoever waits for a link looks whether there are any.
const LINK_LOOKS: Duration = Duration::from_secs(1);

/// Why a stream is not taken.
const NOT_READ: &str = "nobody reads this stream any more";

/// The jobs that clients may come for.
#[derive(Clone, Default)]
pub struct NetworkJobs(Arc<Mutex<HashMap<JobToken, Arc<Job>>>>);

/// A job of a client: its sources, as long as this is kept.
pub struct NetworkJob {
    jobs: NetworkJobs,
    token: JobToken,
    job: Arc<Job>,
    /// How long the client may take to come.
    patience: Duration,
    /// How long it may take to stop, and a program of it.
    stops_within: (Duration, Duration),
}

struct Job {
    client: String,
    /// Orders links that nobody uses.
    links: Mutex<Links>,
    came: Condvar,
    readings: Mutex<HashMap<(u64, u16), Arc<BlockReceiver>>>,
    /// Connections for restores: none until they come, and only for those that are expected.
    restores: Mutex<HashMap<u64, Option<Box<dyn NetworkStream>>>>,
    /// The process of the client that came first, and the version of the words that it speaks.
    process: OnceLock<(JobToken, u32)>,
    /// Whether the client was shut out.
    is_shut_out: AtomicBool,
    next_reading: AtomicU64,
}

#[derive(Default)]
struct Links {
    idle: Vec<OrdersLink>,
    /// How many there are, idle or not.
    open: usize,
    /// Whether one has come at all.
    has_come: bool,
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl NetworkJobs {
    /// Opens a job for a client, which has so long to come.
    ///
    /// # Errors
    /// The system has no random numbers.
    pub fn open(&self, client: &str, patience: Duration) -> io::Result<NetworkJob> {
        let token = JobToken::random()?;
        let job = Arc::new(Job {
            client: client.to_owned(),
            links: Mutex::default(),
            came: Condvar::new(),
            readings: Mutex::default(),
            restores: Mutex::default(),
            process: OnceLock::new(),
            is_shut_out: AtomicBool::new(false),
            next_reading: AtomicU64::new(1),
        });
        locked(&self.0).insert(token.clone(), Arc::clone(&job));
        Ok(NetworkJob { jobs: self.clone(), token, job, patience, stops_within: (STOPS_WITHIN, SCRIPT_STOPS_WITHIN) })
    }

    /// Ends the jobs of a client that is let in no more.
    pub fn shut_out(&self, client: &str) {
        for job in locked(&self.0).values().filter(|job| job.client == client) {
            job.is_shut_out.store(true, Ordering::Relaxed);
            locked(&job.readings).values().for_each(|receiver| receiver.end());
            let mut links = locked(&job.links);
            links.open -= links.idle.len();
            links.idle.clear();
            drop(links);
            // Whoever waits for a link hears that there will be none.
            job.came.notify_all();
        }
    }

    /// Takes a connection of `client` in. An orders link is kept for its job; the blocks of a stream are received in
    /// this thread, until all are here or the connection ends.
    ///
    /// # Errors
    /// It does not belong to a job of this client, it broke, or it does not keep to the protocol.
    pub fn accept(&self, client: &str, mut stream: Box<dyn NetworkStream>) -> io::Result<()> {
        stream.set_timeout(Some(SILENT_MAX))?;
        let mut link = Link(stream);
        let Hello { version, token, process, purpose } = match link.open_short(OLDEST..=VERSION)? {
            Ok(hello) => hello,
            Err(version) => {
                let reason =
                    format!("the client speaks version {version} of the protocol, and this mover version {VERSION}");
                // An older one may be from before there was the other answer.
                let is_newer = version > VERSION;
                let answer = if is_newer { Welcome::Speaks(VERSION) } else { Welcome::Refused(reason.clone()) };
                link.send(&answer, &[])?;
                return Err(io::Error::new(io::ErrorKind::PermissionDenied, reason));
            }
        };
        // Whoever is refused learns whether the job is another's or none at all from neither words nor time.
        let job = locked(&self.0).get(&token).filter(|job| job.client == client).map(Arc::clone);
        let Some(job) = job else {
            let reason = "there is no such job any more".to_owned();
            link.send(&Welcome::Refused(reason.clone()), &[])?;
            return Err(io::Error::new(io::ErrorKind::PermissionDenied, reason));
        };
        if let Err(reason) = job.serve_to(&process, version) {
            link.send(&Welcome::Refused(reason.clone()), &[])?;
            return Err(io::Error::new(io::ErrorKind::PermissionDenied, reason));
        }
        match purpose {
            Purpose::Orders => {
                if locked(&job.links).open >= LINKS_MAX {
                    link.send(&Welcome::Refused("this job has its links".to_owned()), &[])?;
                    return Err(io::ErrorKind::PermissionDenied.into());
                }
                link.send(&Welcome::Taken, &[])?;
                let mut links = locked(&job.links);
                links.idle.push(link);
                links.open += 1;
                links.has_come = true;
                job.came.notify_one();
                Ok(())
            }
            Purpose::Pieces { restore } => {
                if !matches!(locked(&job.restores).get(&restore), Some(None)) {
                    link.send(&Welcome::Refused("nobody restores this".to_owned()), &[])?;
                    return Err(io::ErrorKind::PermissionDenied.into());
                }
                link.send(&Welcome::Taken, &[])?;
                // The client writes when its disk does: it has more time for that than for words. Whoever decides may
                // wait for a person that brings the volume which it writes.
                link.0.set_timeout((!client.is_empty()).then_some(WRITES_WITHIN))?;
                // One that ended meanwhile wants it no more.
                if let Some(place) = locked(&job.restores).get_mut(&restore) {
                    *place = Some(link.0);
                }
                Ok(())
            }
            Purpose::Blocks { reading, connection, link: number } => {
                let receiver = locked(&job.readings).get(&(reading, connection)).map(Arc::clone);
                let receiver = receiver.filter(|_| number < LINK_NUMBERS);
                let Some(receiver) = receiver else {
                    link.send(&Welcome::Refused(NOT_READ.to_owned()), &[])?;
                    return Err(io::ErrorKind::PermissionDenied.into());
                };
                if let Some(fault) = receiver.fault() {
                    let reason = format!(
                        "the mover objects to what this client has sent ({fault}): see that both are of the newest \
                         version, and report it if they are"
                    );
                    link.send(&Welcome::Refused(reason.clone()), &[])?;
                    return Err(io::Error::new(io::ErrorKind::PermissionDenied, reason));
                }
                link.send(&Welcome::Taken, &[])?;
                receiver.receive(&mut *link.0, LinkOf { number, of_several: version >= SEVERAL_LINKS }).map(drop)
            }
        }
    }
}

impl NetworkJobs {
    /// Whether a job of this client is one of these.
    pub(super) fn has(&self, client: &str, token: &JobToken) -> bool {
        locked(&self.0).get(token).is_some_and(|job| job.client == client)
    }

    /// A stream that a client of this process brings; none if the job is another mover's, or another client's.
    ///
    /// # Errors
    /// Another process serves the job, or the stream is not expected.
    pub fn connection_here(&self, client: &str, here: &StreamHere<'_>) -> io::Result<Option<Connection>> {
        let job = locked(&self.0).get(here.job).filter(|job| job.client == client).map(Arc::clone);
        let Some(job) = job else { return Ok(None) };
        let refused = |reason| io::Error::new(io::ErrorKind::PermissionDenied, reason);
        job.serve_to(here.process, VERSION).map_err(refused)?;
        let receiver = locked(&job.readings).get(&here.stream).map(Arc::clone);
        let connection = receiver.and_then(|receiver| receiver.connection_here(here.stop));
        connection.map(Some).ok_or_else(|| refused(NOT_READ.to_owned()))
    }
}

impl Job {
    /// Serves the process of the client that comes first, and no other; why, if it is another.
    fn serve_to(&self, process: &JobToken, version: u32) -> Result<(), String> {
        if self.process.get_or_init(|| (process.clone(), version)).0 == *process {
            return Ok(());
        }
        Err(format!(
            "another process is client {} as well, and serves this job: was this machine, or its state directory, \
             copied? Each machine joins by itself",
            self.client
        ))
    }
}

impl NetworkJob {
    /// What the client comes with.
    pub fn token(&self) -> &JobToken {
        &self.token
    }

    fn lost(&self, error: &io::Error) -> SourceError {
        let reason = match error.kind() {
            io::ErrorKind::UnexpectedEof | io::ErrorKind::ConnectionReset | io::ErrorKind::BrokenPipe => {
                "it has ended the connection: it was stopped, or it is down".to_owned()
            }
            io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => {
                "it has not been heard of for a minute: it hangs, or the network is down".to_owned()
            }
            // What cannot be read may be quoted.
            _ => said(&error.to_string()),
        };
        SourceError::Client { client: self.job.client.clone(), reason }
    }

    /// An orders link that nobody uses.
    fn link(&self) -> Result<OrdersLink, SourceError> {
        let until = Instant::now() + self.patience;
        let mut links = locked(&self.job.links);
        loop {
            self.check_admitted()?;
            if let Some(link) = links.idle.pop() {
                return Ok(link);
            }
            // Once the client has come, whoever finds all links in use waits for one.
            let left = match links.has_come {
                true => LINK_LOOKS,
                false => until.saturating_duration_since(Instant::now()),
            };
            let all_lost = links.has_come && links.open == 0;
            if left.is_zero() || all_lost {
                let reason = match links.has_come {
                    false => "it was told of the job, and did not come: look at what it says there",
                    true => "it has ended the connection: it was stopped, or it is down",
                };
                return Err(SourceError::Client { client: self.job.client.clone(), reason: reason.to_owned() });
            }
            links = self.job.came.wait_timeout(links, left).unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Asks on a link, which is given back if it still works.
    fn on_link<T>(&self, ask: impl FnOnce(&mut OrdersLink) -> Result<T, SourceError>) -> Result<T, SourceError> {
        self.on_link_for(|link, _| ask(link))
    }

    /// The same; what is asked may say that the link is of no more use.
    fn on_link_for<T>(
        &self,
        ask: impl FnOnce(&mut OrdersLink, &mut LinkUse) -> Result<T, SourceError>,
    ) -> Result<T, SourceError> {
        let (mut link, mut link_use) = (self.link()?, LinkUse::Again);
        let timed = link.0.set_timeout(Some(SILENT_MAX)).map_err(|error| self.lost(&error));
        let answer = timed.and_then(|()| ask(&mut link, &mut link_use));
        let mut links = locked(&self.job.links);
        // A source that cannot be read says nothing against the connection.
        match (&answer, link_use) {
            (Err(SourceError::Client { .. }), _) | (_, LinkUse::Over) => links.open -= 1,
            (_, LinkUse::Again) => links.idle.push(link),
        }
        drop(links);
        self.job.came.notify_all();
        answer
    }

    /// Sends the rows of a baseline.
    fn send_rows(link: &mut OrdersLink, baseline: &dyn ListedBaseline) -> io::Result<usize> {
        let (mut rows, mut packer, mut failed) = (0, RowPacker::default(), None);
        let listed = baseline.for_each_row(&mut |path, metadata| {
            rows += 1;
            if failed.is_none()
                && let Some(packed) = packer.push(path, metadata)
            {
                failed = packed.and_then(|packed| link.send(&JobOrder::Rows { more: true }, &packed)).err();
            }
        });
        failed.map_or(Ok(()), Err)?;
        listed.map_err(io::Error::other)?;
        link.send(&JobOrder::Rows { more: false }, &packer.take()?)?;
        Ok(rows)
    }

    /// Sends the paths that were not seen.
    fn send_missing(link: &mut OrdersLink, baseline: &dyn ListedBaseline, seen: &[u8]) -> io::Result<()> {
        let seen = crate::baseline::SeenRows::from_bytes(seen);
        let (mut row, mut packer, mut failed) = (0_usize, RowPacker::default(), None);
        let nothing = Metadata { size: 0, mtime_ns: 0, change: 0 };
        let mut spoke = Instant::now();
        let listed = baseline.for_each_row(&mut |path, _| {
            // Of many rows nearly all were seen: whoever waits for the others hears that this goes on.
            if row.is_multiple_of(ROWS_BETWEEN_LOOKS) && spoke.elapsed() > SPEAKS_EVERY && failed.is_none() {
                spoke = Instant::now();
                let packed = packer.take();
                failed = packed.and_then(|packed| link.send(&JobOrder::Rows { more: true }, &packed)).err();
            }
            if !seen.contains(row)
                && failed.is_none()
                && let Some(packed) = packer.push(path, &nothing)
            {
                failed = packed.and_then(|packed| link.send(&JobOrder::Rows { more: true }, &packed)).err();
            }
            row += 1;
        });
        failed.map_or(Ok(()), Err)?;
        listed.map_err(io::Error::other)?;
        link.send(&JobOrder::Rows { more: false }, &packer.take()?)
    }

    fn read_on(
        &self,
        (link, link_use): (&mut OrdersLink, &mut LinkUse),
        stop: &AtomicBool,
        order: ReadSource,
        reading: &SourceReading<'_>,
    ) -> Result<SourceReport, SourceError> {
        let mut patience = StopPatience::of(self.stops_within.0);
        let lost = |error: io::Error| self.lost(&error);
        link.send(&JobOrder::Read(Box::new(order)), &[]).map_err(lost)?;
        let rows = reading.baseline.map_or(Ok(0), |baseline| Self::send_rows(link, baseline)).map_err(lost)?;
        let mut told = Counted::default();
        loop {
            let (report, attached) = hear(link, rows / 8 + ATTACHED_LEN_MAX).map_err(lost)?;
            self.check_admitted()?;
            match report {
                JobReport::Progress(progress) => {
                    let ProgressReport { counted, current, problems } = *progress;
                    reading.progress.follow(&told, &counted, current.into_vec());
                    told = counted;
                    problems.into_iter().for_each(|(path, kind)| (reading.on_problem)(path.as_bytes(), kind));
                    let answer = patience.answer(stop.load(Ordering::Relaxed), Instant::now(), link_use)?;
                    link.send(&answer, &[]).map_err(lost)?;
                }
                JobReport::Missing => match reading.baseline {
                    // What a shorter answer leaves open is not taken for seen.
                    Some(_) if attached.len() != rows.div_ceil(64) * 8 => return Err(self.nonsense()),
                    Some(baseline) => Self::send_missing(link, baseline, &attached).map_err(lost)?,
                    None => return Err(self.nonsense()),
                },
                JobReport::Done(report) => return Ok(*report),
                JobReport::Failed { is_stopped: true, .. } => return Err(Stopped.into()),
                JobReport::Failed { reason, .. } => {
                    return Err(SourceError::AtClient { client: self.job.client.clone(), reason });
                }
                _ => return Err(self.nonsense()),
            }
        }
    }

    /// Whether the client may go on.
    fn check_admitted(&self) -> Result<(), SourceError> {
        if !self.job.is_shut_out.load(Ordering::Relaxed) {
            return Ok(());
        }
        let reason = "its certificate was revoked".to_owned();
        Err(SourceError::Client { client: self.job.client.clone(), reason })
    }

    fn nonsense(&self) -> SourceError {
        let reason = "it answers another question: it is of another version".to_owned();
        SourceError::Client { client: self.job.client.clone(), reason }
    }
}

impl NetworkJob {
    /// The text of a file of the client, such as one of patterns.
    ///
    /// # Errors
    /// The client is gone, or says why it cannot be read.
    pub fn text_of(&self, path: &Path) -> Result<String, SourceError> {
        self.on_link(|link| {
            let lost = |error: io::Error| self.lost(&error);
            link.send(&JobOrder::Text(crossing(path)), &[]).map_err(lost)?;
            match hear(link, ATTACHED_LEN_MAX).map_err(lost)?.0 {
                JobReport::Text(Ok(text)) => pattern_text::bounded(path, text)
                    .map_err(|reason| SourceError::AtClient { client: self.job.client.clone(), reason }),
                JobReport::Text(Err(reason)) => Err(SourceError::AtClient { client: self.job.client.clone(), reason }),
                _ => Err(self.nonsense()),
            }
        })
    }

    /// Has the client run a program to its end, which its own settings have under this name; it is stopped where the
    /// job is. `then` is a program that the client runs afterwards by itself, if nobody orders that any more.
    ///
    /// # Errors
    /// The client is gone, or the program did not end well.
    pub fn run_before(
        &self,
        name: &str,
        told: &[(&str, String)],
        then: Option<(&str, &[(&str, String)])>,
        stop: &AtomicBool,
    ) -> Result<(), SourceError> {
        let then = then.map(|(name, told)| Box::new(script(name, told, false)));
        self.run_script(RunScript { then, ..script(name, told, true) }, stop)
    }

    /// The same of a program that is not stopped: it may be what lets a database write again.
    ///
    /// # Errors
    /// As [`NetworkJob::run_before`].
    pub fn run_after(&self, name: &str, told: &[(&str, String)]) -> Result<(), SourceError> {
        self.run_script(script(name, told, false), &AtomicBool::new(false))
    }

    fn run_script(&self, order: RunScript, stop: &AtomicBool) -> Result<(), SourceError> {
        self.on_link_for(|link, link_use| {
            let mut patience = StopPatience::of(self.stops_within.1);
            let lost = |error: io::Error| self.lost(&error);
            link.send(&JobOrder::Run(order), &[]).map_err(lost)?;
            loop {
                match hear(link, ATTACHED_LEN_MAX).map_err(lost)?.0 {
                    JobReport::StillRuns => {
                        let answer = patience.answer(stop.load(Ordering::Relaxed), Instant::now(), link_use)?;
                        link.send(&answer, &[]).map_err(lost)?;
                    }
                    JobReport::Ran(Ok(())) => return Ok(()),
                    JobReport::Ran(Err(reason)) => {
                        return Err(SourceError::AtClient { client: self.job.client.clone(), reason });
                    }
                    _ => return Err(self.nonsense()),
                }
            }
        })
    }
}

fn script(name: &str, told: &[(&str, String)], can_be_stopped: bool) -> RunScript {
    let told = told.iter().map(|(name, value)| ((*name).to_owned(), value.clone())).collect();
    RunScript { script: name.to_owned(), told, can_be_stopped, then: None }
}

/// What a client is told to read.
fn read_order(
    reading: &SourceReading<'_>,
    number: u64,
    (chunk_len, pack): (usize, PackOptions),
    (to, marks): (Option<OtherMover>, bool),
) -> ReadSource {
    ReadSource {
        reading: number,
        spec: reading.spec.clone(),
        object: reading.object,
        first_connection: reading.first_connection,
        connections: reading.connections as u16,
        began_ns: reading.began_ns,
        chunk_len: chunk_len as u32,
        level: match pack {
            PackOptions::Store => None,
            PackOptions::Zstd(level) => Some(level),
        },
        has_baseline: reading.baseline.is_some(),
        to,
        cut: if marks { reading.cut.to_vec() } else { Vec::new() },
        marks,
    }
}

/// Streams of an object that a client brings.
pub(crate) struct Expected {
    /// What they are called in the job.
    pub(crate) reading: u64,
    streams: Vec<(u16, Arc<BlockReceiver>)>,
}

impl NetworkJob {
    /// Expects streams of an object, for a session of this process.
    pub(crate) fn expect(&self, way_in: &IntakeHere, object: ObjectId, streams: &[StreamStart]) -> Expected {
        let reading = self.job.next_reading.fetch_add(1, Ordering::Relaxed);
        // Whoever decides mends copies, of which other blocks are there.
        let may_end_early = self.job.client.is_empty();
        let begin = |start: &StreamStart| {
            let set = way_in.set_for(object);
            let receiver = Arc::new(BlockReceiver::new(set, object, *start, may_end_early));
            locked(&self.job.readings).insert((reading, start.connection), Arc::clone(&receiver));
            (start.connection, receiver)
        };
        Expected { reading, streams: streams.iter().map(begin).collect() }
    }

    /// Expects them no more; whether all of each has come.
    pub(crate) fn have_come(&self, expected: &Expected) -> bool {
        for (connection, receiver) in &expected.streams {
            locked(&self.job.readings).remove(&(expected.reading, *connection));
            receiver.end();
        }
        expected.streams.iter().all(|(_, receiver)| receiver.is_whole())
    }
}

/// Why there is nothing at a path that the client's settings keep from being read, whether there is anything or not.
pub const REFUSED_BY_CLIENT: &str = "the machine's own settings do not let it be read (client.toml there)";

/// Why a client has found nothing at a path.
fn not_found(number: i32) -> io::Error {
    match number {
        NOT_ALLOWED => io::Error::new(io::ErrorKind::PermissionDenied, REFUSED_BY_CLIENT),
        number => io::Error::from_raw_os_error(number),
    }
}

impl SourceHost for NetworkJob {
    fn look(&self, paths: &[PathBuf]) -> Result<Vec<io::Result<SourceFound>>, SourceError> {
        let wanted: Vec<OsString> = paths.iter().map(|path| crossing(path)).collect();
        self.on_link(|link| {
            let lost = |error: io::Error| self.lost(&error);
            link.send(&JobOrder::Look(wanted), &[]).map_err(lost)?;
            match hear(link, ATTACHED_LEN_MAX).map_err(lost)?.0 {
                JobReport::Found(found) if found.len() == paths.len() => {
                    Ok(found.into_iter().map(|found| found.map_err(not_found)).collect())
                }
                _ => Err(self.nonsense()),
            }
        })
    }

    fn read(&self, intake: &Intake, reading: SourceReading<'_>) -> Result<SourceReport, SourceError> {
        let connections = (reading.first_connection..).take(reading.connections);
        let streams: Vec<_> = connections.map(StreamStart::whole).collect();
        let (report, is_whole) = match &intake.0 {
            IntakeWay::Here(here) => {
                let blocks_in = here.blocks();
                let expected = self.expect(here, reading.object, &streams);
                let order =
                    read_order(&reading, expected.reading, (blocks_in.pool.chunk_len(), blocks_in.pack), (None, true));
                let report =
                    self.on_link_for(|link, link_use| self.read_on((link, link_use), &blocks_in.stop, order, &reading));
                (report, self.have_come(&expected))
            }
            IntakeWay::Elsewhere(far) => {
                let expected = far.expect(&self.job.client, reading.object, &streams);
                let expected = expected.map_err(|error| SourceError::Mover { reason: with_causes(&error) })?;
                let to = OtherMover { address: expected.address.clone(), token: expected.token.clone() };
                let order = read_order(
                    &reading,
                    expected.reading,
                    (far.chunk_len(), far.pack()),
                    (Some(to), far.takes_fragments()),
                );
                let report =
                    self.on_link_for(|link, link_use| self.read_on((link, link_use), far.stop(), order, &reading));
                (report, far.have_come(&expected))
            }
        };
        let report = report?;
        if is_whole {
            return Ok(report);
        }
        let reason = "it says that all was sent, and something is missing".to_owned();
        Err(SourceError::Client { client: self.job.client.clone(), reason })
    }

    fn is_here(&self) -> bool {
        false
    }
}

impl Drop for NetworkJob {
    fn drop(&mut self) {
        locked(&self.jobs.0).remove(&self.token);
        for mut link in locked(&self.job.links).idle.drain(..) {
            // A client that is gone needs no word.
            let _ = link.send(&JobOrder::End, &[]);
        }
    }
}
