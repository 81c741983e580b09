//! The main job with its drives at a mover in another process: orders, copies, reads and keys cross connections, and
//! the mover dies.

use std::io::{self, Read, Write};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::spawn;
use std::time::{Duration, Instant};

use capstan_catalog::ObjectStatus;
use capstan_director::{BackupReport, BackupRequest, BackupWatch, DirectorError, Event, Level, Place, Site};
use capstan_format::Algorithm;
use capstan_mover::devices::LibraryConfig;
use capstan_mover::extract::{ExtractOptions, ExtractReport};
use capstan_mover::{
    ClientEnd, Connect, Connection, Dial, JobToken, NetworkJobs, NetworkStream, OwnersKeys, RateLimit, RestoreInto,
    RestoreWatch, ServedMover, SourceHost, StreamHere, serve_job,
};

use crate::over_network::Anything;
use crate::place::{Bench, small, tree};

const PATIENCE: Duration = Duration::from_secs(20);

/// A mover, whose process is this one's threads: its drives, and connections to it.
pub(crate) struct Mover {
    served: ServedMover,
    /// Connections that are open.
    open: Mutex<Vec<UnixStream>>,
    is_down: AtomicBool,
}

impl Mover {
    /// One with the cartridges of a bench.
    fn of(bench: &Bench) -> Arc<Self> {
        Self::of_library(bench, "library")
    }

    /// One with those in a folder of its state directory.
    pub(crate) fn of_library(bench: &Bench, folder: &str) -> Arc<Self> {
        let settings = LibraryConfig { path: PathBuf::from(folder), ..LibraryConfig::default() };
        let library = settings.open(&bench.path("state"), Arc::new(|_| {})).unwrap();
        let (keys, drives) = (Arc::<OwnersKeys>::default(), Arc::default());
        let devices = Arc::new(settings.devices(&library, Arc::clone(&keys) as _, &drives));
        let served = ServedMover::new(devices, drives, keys);
        Arc::new(Self { served, open: Mutex::default(), is_down: AtomicBool::new(false) })
    }

    fn connect(&self, serve: impl FnOnce(ServedMover, UnixStream) + Send + 'static) -> io::Result<Wire> {
        if self.is_down.load(Ordering::Relaxed) {
            return Err(io::Error::new(io::ErrorKind::NotConnected, "mover rook is not connected"));
        }
        let (near, far) = UnixStream::pair()?;
        self.open.lock().unwrap().push(near.try_clone()?);
        let served = self.served.clone();
        spawn(move || serve(served, far));
        Ok(Wire(near))
    }

    /// It is gone, with all its connections.
    pub(crate) fn dies(&self) {
        self.is_down.store(true, Ordering::Relaxed);
        self.open.lock().unwrap().drain(..).for_each(|stream| drop(stream.shutdown(Shutdown::Both)));
    }
}

/// A connection that ends when it is dropped, whoever has another handle to it.
struct Wire(UnixStream);

impl Drop for Wire {
    fn drop(&mut self) {
        let _ = self.0.shutdown(Shutdown::Both);
    }
}

impl Read for Wire {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        self.0.read(out)
    }
}

impl Write for Wire {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}

impl NetworkStream for Wire {
    fn set_timeout(&mut self, limit: Option<Duration>) -> io::Result<()> {
        self.0.set_timeout(limit)
    }
}

struct Way(Arc<Mover>);

impl Connect for Way {
    fn connect(&self) -> io::Result<Box<dyn NetworkStream>> {
        let serve = |served: ServedMover, far| {
            let _ = served.serve(Box::new(far), &|| {}, &AtomicBool::new(false));
        };
        Ok(Box::new(self.0.connect(serve)?))
    }

    fn data_address(&self) -> io::Result<String> {
        Ok("rook:5703".to_owned())
    }
}

pub(crate) fn at(mover: &Arc<Mover>, site: Site) -> Site {
    site.with_mover(Arc::new(Way(Arc::clone(mover)))).unwrap()
}

/// A client's way to the server for orders, and to the mover for blocks.
pub(crate) struct FromClient {
    pub(crate) jobs: NetworkJobs,
    pub(crate) mover: Arc<Mover>,
    /// Whether it is in the process of the mover.
    is_beside: bool,
    /// Whether it speaks the words of version 2.
    is_old: bool,
    /// Connections that it has opened to the mover.
    pub(crate) to_mover: AtomicU64,
    /// Connections that it has opened to the server.
    pub(crate) to_server: AtomicU64,
}

impl FromClient {
    pub(crate) fn new(mover: Arc<Mover>) -> Self {
        let (jobs, to_mover, to_server) = Default::default();
        Self { jobs, mover, is_beside: false, is_old: false, to_mover, to_server }
    }

    /// The same of a client in the mover's process, or in another one.
    fn beside(self, is_beside: bool) -> Self {
        Self { is_beside, ..self }
    }

    /// The same of a client of the version before.
    pub(crate) fn old(self) -> Self {
        Self { is_old: true, ..self }
    }
}

/// A connection of a client that says that it is of version 2.
struct Old(UnixStream);

impl Read for Old {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        self.0.read(out)
    }
}

impl Write for Old {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let hello = bytes.strip_prefix(b"{\"version\":");
        let rest = hello.map(|hello| &hello[hello.iter().take_while(|byte| byte.is_ascii_digit()).count()..]);
        let old = rest.map(|rest| [b"{\"version\":2", rest].concat());
        self.0.write_all(old.as_deref().unwrap_or(bytes)).map(|()| bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}

impl NetworkStream for Old {
    fn set_timeout(&mut self, limit: Option<Duration>) -> io::Result<()> {
        self.0.set_timeout(limit)
    }
}

impl Dial for FromClient {
    fn dial(&self) -> io::Result<Box<dyn NetworkStream>> {
        let (near, far) = UnixStream::pair()?;
        let jobs = self.jobs.clone();
        spawn(move || jobs.accept("web1", Box::new(far)));
        self.to_server.fetch_add(1, Ordering::Relaxed);
        Ok(if self.is_old { Box::new(Old(near)) } else { Box::new(near) })
    }

    fn at(&self, address: &str, job: &JobToken) -> io::Result<Box<dyn Dial + '_>> {
        assert_eq!(address, "rook:5703");
        Ok(match self.is_beside {
            true => Box::new(self.mover.served.jobs().dial_here("web1", job).unwrap()),
            false => Box::new(ToMover(self)),
        })
    }

    fn connection_here(&self, stream: &StreamHere<'_>) -> io::Result<Option<Connection>> {
        let jobs = self.mover.served.jobs();
        assert!(jobs.connection_here("web2", stream)?.is_none(), "a job is of one client");
        if self.is_beside { jobs.connection_here("web1", stream) } else { Ok(None) }
    }
}

struct ToMover<'a>(&'a FromClient);

impl Dial for ToMover<'_> {
    fn dial(&self) -> io::Result<Box<dyn NetworkStream>> {
        self.0.to_mover.fetch_add(1, Ordering::Relaxed);
        Ok(Box::new(self.0.mover.connect(|served, far| drop(served.accept("web1", Box::new(far))))?))
    }
}

/// Does something with a client that serves a job meanwhile.
pub(crate) fn with_client<T>(
    way: &FromClient,
    restores: Option<RestoreInto<'_>>,
    work: impl FnOnce(capstan_mover::NetworkJob) -> T,
) -> T {
    let job = way.jobs.open("web1", PATIENCE).unwrap();
    let token = job.token().clone();
    std::thread::scope(|scope| {
        let client = scope.spawn(move || {
            let end = ClientEnd { dial: way, token, links: 1, rules: &Anything, restores, stop: Arc::default() };
            serve_job(&end)
        });
        let done = work(job);
        let _ = client.join().unwrap();
        done
    })
}

fn backup_of_client(bench: &Bench, way: &FromClient, level: Level) -> Result<BackupReport, DirectorError> {
    backup_as_asked(bench, way, &bench.request(level))
}

fn backup_as_asked(bench: &Bench, way: &FromClient, request: &BackupRequest) -> Result<BackupReport, DirectorError> {
    with_client(way, None, |job| {
        let site = at(&way.mover, bench.site()).for_client("web1").with_sources(Arc::new(job) as Arc<dyn SourceHost>);
        site.backup(request, &BackupWatch::default())
    })
}

pub(crate) fn latest(bench: &Bench) -> capstan_catalog::Object {
    bench.objects().into_iter().max_by_key(|object| object.id).unwrap()
}

#[test]
fn what_this_process_reads_is_backed_up_verified_mended_copied_and_restored() {
    let mut config = small();
    config.data.compression_level = 1;
    let bench = Bench::encrypted(config, Some(Algorithm::Aes256Gcm));
    bench.fill("a", 60, 150_000);
    bench.fill("deep/er/b", 300, 700);
    std::fs::write(bench.source().join("zeros"), vec![0; 3_000_000]).unwrap();
    let mover = Mover::of(&bench);
    let site = at(&mover, bench.site());
    let full = site.backup(&BackupRequest { copies: 2, ..bench.request(Level::Full) }, &BackupWatch::default());
    let full = full.unwrap();
    assert!(full.failed_copies.is_empty() && full.plain_bytes > 12_000_000, "{full:?}");
    bench.fill("c", 3, 150_000);
    let incremental = site.backup(&bench.request(Level::Incremental), &BackupWatch::default()).unwrap();
    assert_eq!(incremental.sources[0].report.as_ref().unwrap().files, 3);

    let objects = bench.objects();
    let watch = RestoreWatch::default();
    let verified = site.verify_objects(&objects, &watch).unwrap();
    assert_eq!(verified.len(), 3, "two copies, and one");
    assert!(verified.iter().all(|copy| copy.report.is_whole()), "{verified:?}");
    assert!(watch.members.load(Ordering::Relaxed) > 700, "{watch:?}");
    let volumes = site.catalog().volumes().unwrap();
    for volume in volumes {
        let report = site.verify_volume(&volume.volser, &RestoreWatch::default()).unwrap();
        assert!(report.is_whole() && report.bad.is_empty() && report.blocks > 0, "{}: {report:?}", volume.volser);
    }
    // The incremental had one copy: the other one is made from it.
    let copied = site.copy_objects(&[latest(&bench)], "default-copy2", &RestoreWatch::default());
    copied.unwrap();
    let verified = site.verify_objects(&[latest(&bench)], &RestoreWatch::default()).unwrap();
    assert!(verified.len() == 2 && verified.iter().all(|copy| copy.report.is_whole()), "{verified:?}");

    let plan = site.plan_restore(&[Place { object: latest(&bench).id, paths: Vec::new() }]).unwrap();
    let to = bench.path("far");
    let restored = site.restore(&plan, &to, &ExtractOptions::default(), &RestoreWatch::default()).unwrap();
    assert!(restored.is_whole(), "{restored:?}");
    assert_eq!(tree(&to.join(bench.source().strip_prefix("/").unwrap())), tree(&bench.source()));
    let mut stream = Vec::new();
    site.cat_object(latest(&bench).id, &mut stream).unwrap();
    assert!(stream.len() > 450_000);
    drop(site);
    // The volumes are as any other mover would have written them.
    bench.assert_restores(&latest(&bench), "here");
}

#[test]
fn a_client_brings_its_blocks_to_the_mover_and_fetches_them_there() {
    brings_and_fetches(false);
}

/// LAN-free: nothing but orders and reports leaves the process.
#[test]
fn a_client_in_the_process_of_the_mover_writes_and_reads_there() {
    brings_and_fetches(true);
}

fn brings_and_fetches(is_beside: bool) {
    let mut config = small();
    config.data.compression_level = 1;
    let bench = Bench::encrypted(config, Some(Algorithm::Aes256Gcm));
    bench.fill("a", 80, 150_000);
    bench.fill("deep/er/b", 200, 700);
    std::fs::write(bench.source().join("zeros"), vec![0; 3_000_000]).unwrap();
    let way = FromClient::new(Mover::of(&bench)).beside(is_beside);
    let full = backup_of_client(&bench, &way, Level::Full).unwrap();
    assert_eq!(full.sources[0].report.as_ref().unwrap().files, 281);
    // How much compresses depends on which files stand beside each other.
    let written: u64 = bench.site().catalog().volumes().unwrap().iter().map(|volume| volume.written).sum();
    assert_eq!(full.stored_bytes, written, "it is counted where it is written: {full:?}");
    assert!(written < full.plain_bytes, "{full:?}");
    assert_eq!(way.to_mover.load(Ordering::Relaxed) >= 2, !is_beside, "blocks come straight to the mover");
    bench.fill("c", 4, 90_000);
    let incremental = backup_of_client(&bench, &way, Level::Incremental).unwrap();
    assert_eq!(incremental.sources[0].report.as_ref().unwrap().files, 4);
    bench.assert_restores(&latest(&bench), "here");

    let (to, before) = (bench.path("at-the-client"), way.to_mover.load(Ordering::Relaxed));
    let written = Mutex::new(None);
    let told = |report: &ExtractReport| *written.lock().unwrap() = Some(report.files);
    let into = RestoreInto { directory: &to, options: ExtractOptions::default(), told: &told };
    let report = with_client(&way, Some(into), |job| {
        let site = at(&way.mover, bench.site());
        let plan = site.plan_restore(&[Place { object: latest(&bench).id, paths: Vec::new() }]).unwrap();
        site.restore_to_client(&plan, &job, &RestoreWatch::default()).unwrap()
    });
    assert!(report.is_whole(), "{report:?}");
    assert_eq!(*written.lock().unwrap(), Some(285));
    let came = way.to_mover.load(Ordering::Relaxed) - before;
    assert_eq!(came, u64::from(!is_beside), "it came straight from the mover");
    assert_eq!(tree(&to.join(bench.source().strip_prefix("/").unwrap())), tree(&bench.source()));
}

/// What is recorded stays, nothing is held for ever, and the next run goes on with it, at a mover that has begun anew.
#[test]
fn a_mover_that_dies_costs_what_was_not_recorded() {
    for (by_client, is_beside) in [(false, false), (true, false), (true, true)] {
        let bench = Bench::new(small());
        bench.fill("a", 150, 100_000);
        let mover = Mover::of(&bench);
        let way = FromClient::new(Arc::clone(&mover)).beside(is_beside);
        let (dying, checkpoints) = (Arc::clone(&mover), AtomicU64::new(0));
        bench.set_hook(Some(Box::new(move |event| {
            if matches!(event, Event::Checkpoint { .. }) && checkpoints.fetch_add(1, Ordering::Relaxed) == 3 {
                dying.dies();
            }
        })));
        let error = match by_client {
            true => backup_of_client(&bench, &way, Level::Full).map(drop).unwrap_err(),
            false => {
                let site = at(&mover, bench.site());
                site.backup(&bench.request(Level::Full), &BackupWatch::default()).map(drop).unwrap_err()
            }
        };
        bench.set_hook(None);
        let text = capstan_tape::with_causes(&error);
        assert!(text.contains("mover"), "{text}");
        let left = bench.objects();
        assert_eq!((left.len(), left[0].status), (1, ObjectStatus::Open), "by a client: {by_client}");

        let way = FromClient::new(Mover::of(&bench)).beside(is_beside);
        let next = match by_client {
            true => backup_of_client(&bench, &way, Level::Full).unwrap(),
            false => {
                let site = at(&way.mover, bench.site());
                site.backup(&bench.request(Level::Full), &BackupWatch::default()).unwrap()
            }
        };
        assert!(next.sources[0].resumed && next.plain_bytes < 14_000_000, "{next:?}");
        let whole = bench.objects();
        assert_eq!((whole.len(), whole[0].status), (1, ObjectStatus::Complete));
        bench.assert_restores(&whole[0], "resumed");
    }
}

/// The server gives a client up that goes on reading beside the mover: what comes then is not of the object any more.
#[test]
fn a_client_beside_the_mover_that_is_given_up_costs_what_was_not_recorded() {
    let bench = Bench::new(small());
    bench.fill("a", 150, 100_000);
    let way = FromClient::new(Mover::of(&bench)).beside(true);
    let (jobs, checkpoints) = (way.jobs.clone(), AtomicU64::new(0));
    bench.set_hook(Some(Box::new(move |event| {
        if matches!(event, Event::Checkpoint { .. }) && checkpoints.fetch_add(1, Ordering::Relaxed) == 3 {
            jobs.shut_out("web1");
        }
    })));
    // It reads for longer than it takes to report.
    let bandwidth = capstan_director::JobConfig { bandwidth: vec!["8M".to_owned()], ..Default::default() }.bandwidth();
    let request = BackupRequest { bandwidth: bandwidth.unwrap(), ..bench.request(Level::Full) };
    let report = backup_as_asked(&bench, &way, &request).unwrap();
    bench.set_hook(None);
    let reason = report.sources[0].report.as_ref().unwrap_err();
    assert!(reason.contains("revoked"), "{reason}");
    let left = bench.objects();
    assert_eq!((left.len(), left[0].status), (1, ObjectStatus::Open));
    let way = FromClient::new(Arc::clone(&way.mover)).beside(true);
    let next = backup_of_client(&bench, &way, Level::Full).unwrap();
    assert!(next.sources[0].resumed && next.plain_bytes < 14_000_000, "{next:?}");
    bench.assert_restores(&latest(&bench), "resumed");
}

/// A bound holds from the first block on, also of a run that would be over before anybody looks how it does.
#[test]
fn a_short_run_to_a_mover_keeps_to_its_bandwidth() {
    let bench = Bench::new(small());
    bench.fill("a", 1, 600_000);
    let way = FromClient::new(Mover::of(&bench));
    let bandwidth = capstan_director::JobConfig { bandwidth: vec!["1M".to_owned()], ..Default::default() }.bandwidth();
    let request = BackupRequest { bandwidth: bandwidth.unwrap(), connections: 1, ..bench.request(Level::Full) };
    let report = backup_as_asked(&bench, &way, &request).unwrap();
    // Of one connection, a block may not be paid yet, and the last one is not.
    let least_ns = (600_000 - 2 * 65_536) * 1_000;
    assert!(report.elapsed_ns >= least_ns, "{report:?}");
}

/// So does what a client gets back, where it crosses a network.
#[test]
fn a_restore_from_a_mover_keeps_to_its_rate() {
    let bench = Bench::new(small());
    bench.fill("a", 6, 100_000);
    for is_beside in [false, true] {
        let way = FromClient::new(Mover::of(&bench)).beside(is_beside);
        backup_of_client(&bench, &way, Level::Full).unwrap();
        let (to, told) = (bench.path(if is_beside { "beside" } else { "elsewhere" }), |_: &ExtractReport| {});
        let into = RestoreInto { directory: &to, options: ExtractOptions::default(), told: &told };
        // Another rate holds once it is told: at the first, it would take a week. In one process none does.
        let asked = AtomicU64::new(0);
        let later = if is_beside { 1 } else { 500_000 };
        let rate = RateLimit::new(move || Some(if asked.fetch_add(1, Ordering::Relaxed) == 0 { 1 } else { later }));
        let watch = RestoreWatch { rate, ..RestoreWatch::default() };
        let report = with_client(&way, Some(into), |job| {
            let site = at(&way.mover, bench.site());
            let plan = site.plan_restore(&[Place { object: latest(&bench).id, paths: Vec::new() }]).unwrap();
            site.restore_to_client(&plan, &job, &watch).unwrap()
        });
        assert!(report.is_whole(), "{report:?}");
        let least_ns = (600_000 - 2 * 65_536) * 2_000;
        assert!(is_beside || report.elapsed_ns >= least_ns, "{report:?}");
    }
}

/// A restore from a mover that dies names what it could not give back, and the rest is there.
#[test]
fn a_restore_from_a_mover_that_dies_says_what_is_missing() {
    let bench = Bench::new(small());
    // Enough that it is not over before the mover dies.
    bench.fill("a", 500, 100_000);
    bench.backup(&bench.request(Level::Full)).unwrap();
    let mover = Mover::of(&bench);
    let dying = Arc::clone(&mover);
    let site = at(&mover, bench.site());
    let watch = RestoreWatch::default();
    let to = bench.path("far");
    let plan = site.plan_restore(&[Place { object: latest(&bench).id, paths: Vec::new() }]).unwrap();
    let report = std::thread::scope(|scope| {
        let watch = &watch;
        scope.spawn(move || {
            while watch.members.load(Ordering::Relaxed) < 10 {
                std::thread::sleep(Duration::from_millis(1));
            }
            dying.dies();
        });
        site.restore(&plan, &to, &ExtractOptions::default(), watch).unwrap()
    });
    let given_back = report.extract.as_ref().unwrap().files;
    assert!(!report.is_whole() && given_back >= 10, "{report:?}");
    assert!(
        report.failed.len() as u64 + given_back >= 500,
        "{} failed of 500, {given_back} are there",
        report.failed.len()
    );
    assert!(report.failed[0].reason.contains("mover"), "{:?}", report.failed[0]);
    drop(site);
    // What was its process lives on here, and lets go of the drive when it has seen that nobody is there.
    let until = Instant::now() + PATIENCE;
    for probe in 0.. {
        if bench.restore(&latest(&bench), &format!("probe-{probe}")).is_whole() {
            break;
        }
        assert!(Instant::now() < until, "the drive is not let go of");
        std::thread::sleep(Duration::from_millis(100));
    }
    bench.assert_restores(&latest(&bench), "here");
}

#[test]
fn a_mover_that_is_not_there_is_named() {
    let bench = Bench::new(small());
    bench.fill("a", 1, 100);
    let mover = Mover::of(&bench);
    mover.dies();
    let error = at(&mover, bench.site()).backup(&bench.request(Level::Full), &BackupWatch::default()).unwrap_err();
    let text = capstan_tape::with_causes(&error);
    assert!(text.contains("mover rook is not connected"), "{text}");
    // A state directory whose library is a mover's reaches it through its server.
    let mut config = small();
    config.library.mover = "rook".to_owned();
    let bench = Bench::new(config);
    bench.fill("a", 1, 100);
    let text = capstan_tape::with_causes(&bench.backup(&bench.request(Level::Full)).unwrap_err());
    assert!(text.contains("start `capstan server run`"), "{text}");
}
