//! The main job with its sources at the other end of a network: blocks, baselines and reports cross connections that
//! break, and clients that die.

use std::ffi::OsString;
use std::io::{self, Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::spawn;
use std::time::Duration;

use capstan_catalog::ObjectStatus;
use capstan_director::{
    BackupReport, BackupRequest, BackupWatch, Config, DirectorError, Level, Place, RestorePlan, Site,
};
use capstan_mover::extract::{ExtractOptions, ExtractReport, Overwrite};
use capstan_mover::{
    ClientEnd, ClientRules, Dial, JobToken, NetworkJob, NetworkJobs, NetworkStream, RateLimit, RestoreInto,
    RestoreWatch, SourceHost, serve_job,
};

use crate::place::{Bench, small};

const PATIENCE: Duration = Duration::from_secs(20);

/// A network in this process: each connection breaks after some bytes, or never.
#[derive(Clone)]
pub(crate) struct Network {
    pub(crate) jobs: NetworkJobs,
    /// Draws after how many bytes the next connection breaks; `None` for never.
    breaks: Arc<dyn Fn() -> Option<u64> + Send + Sync>,
    pub(crate) dialled: Arc<AtomicU64>,
    /// What the client has sent.
    sent: Arc<AtomicU64>,
    pub(crate) is_down: Arc<AtomicBool>,
}

impl Network {
    fn new(breaks: impl Fn() -> Option<u64> + Send + Sync + 'static) -> Self {
        Self {
            jobs: NetworkJobs::default(),
            breaks: Arc::new(breaks),
            dialled: Arc::default(),
            sent: Arc::default(),
            is_down: Arc::default(),
        }
    }
}

/// A connection that breaks.
struct Breaking {
    stream: UnixStream,
    left: Option<u64>,
    network: Network,
}

impl Breaking {
    /// How much of so many bytes still gets through.
    fn pass(&mut self, len: usize) -> io::Result<usize> {
        if self.network.is_down.load(Ordering::Relaxed) {
            self.stream.shutdown(std::net::Shutdown::Both)?;
            return Err(io::ErrorKind::ConnectionReset.into());
        }
        let Some(left) = &mut self.left else { return Ok(len) };
        let passes = (*left).min(len as u64);
        *left -= passes;
        if passes == 0 && len > 0 {
            self.stream.shutdown(std::net::Shutdown::Both)?;
            return Err(io::ErrorKind::ConnectionReset.into());
        }
        Ok(passes as usize)
    }
}

impl Read for Breaking {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        self.stream.read(out)
    }
}

impl Write for Breaking {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let len = self.pass(bytes.len())?;
        let written = self.stream.write(&bytes[..len])?;
        self.network.sent.fetch_add(written as u64, Ordering::Relaxed);
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.stream.flush()
    }
}

impl NetworkStream for Breaking {
    fn set_timeout(&mut self, limit: Option<Duration>) -> io::Result<()> {
        self.stream.set_timeout(limit)
    }
}

impl Dial for Network {
    fn dial(&self) -> io::Result<Box<dyn NetworkStream>> {
        if self.is_down.load(Ordering::Relaxed) {
            return Err(io::ErrorKind::ConnectionRefused.into());
        }
        let (near, far) = UnixStream::pair()?;
        let jobs = self.jobs.clone();
        spawn(move || jobs.accept("web1", Box::new(far)));
        // The first connection is for orders: it is the job.
        let is_first = self.dialled.fetch_add(1, Ordering::Relaxed) == 0;
        let left = if is_first { None } else { (self.breaks)() };
        Ok(Box::new(Breaking { stream: near, left, network: self.clone() }))
    }
}

/// A backup whose sources a client reads over this network.
pub(crate) fn backup(bench: &Bench, network: &Network, level: Level) -> Result<BackupReport, DirectorError> {
    backup_by(bench.site(), bench, network, level, &Anything)
}

fn backup_by(
    site: Site,
    bench: &Bench,
    network: &Network,
    level: Level,
    rules: &dyn ClientRules,
) -> Result<BackupReport, DirectorError> {
    backup_of(site, network, &bench.request(level), rules)
}

fn backup_of(
    site: Site,
    network: &Network,
    request: &BackupRequest,
    rules: &dyn ClientRules,
) -> Result<BackupReport, DirectorError> {
    let job = network.jobs.open("web1", PATIENCE).unwrap();
    network.dialled.store(0, Ordering::Relaxed);
    let token = job.token().clone();
    std::thread::scope(|scope| {
        let client = scope.spawn(move || {
            let end = ClientEnd { dial: network, token, links: 1, rules, restores: None, stop: Arc::default() };
            serve_job(&end)
        });
        let site = site.for_client("web1").with_sources(Arc::new(job));
        let report = site.backup(request, &BackupWatch::default());
        drop(site);
        let _ = client.join().unwrap();
        report
    })
}

/// A machine that does what it is told.
pub(crate) struct Anything;

impl ClientRules for Anything {
    fn allows(&self, _: &Path) -> bool {
        true
    }

    fn script(&self, name: &str) -> Option<Vec<OsString>> {
        let words = |words: &[&str]| Some(words.iter().map(OsString::from).collect());
        match name {
            "dump" => words(&["printf", "%s", "what the database has"]),
            "told" => words(&["sh", "-c", "test \"$CAPSTAN_JOB\" = nightly"]),
            "fails" => words(&["sh", "-c", "exit 3"]),
            "long" => words(&["sleep", "600"]),
            _ => None,
        }
    }
}

/// One that keeps its files to itself.
struct NotTheSource;

impl ClientRules for NotTheSource {
    fn allows(&self, path: &Path) -> bool {
        !path.ends_with("source")
    }

    fn script(&self, _: &str) -> Option<Vec<OsString>> {
        None
    }
}

/// Asks a client that does what it is told.
pub(crate) fn ask<T>(ask: impl FnOnce(&NetworkJob) -> T) -> T {
    let network = unbroken();
    let job = network.jobs.open("web1", PATIENCE).unwrap();
    let token = job.token().clone();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            serve_job(&ClientEnd {
                dial: &network,
                token,
                links: 1,
                rules: &Anything,
                restores: None,
                stop: Arc::default(),
            })
        });
        let answer = ask(&job);
        drop(job);
        answer
    })
}

#[test]
fn the_client_runs_what_its_own_settings_name_and_nothing_else() {
    let no = AtomicBool::new(false);
    let told = [("CAPSTAN_JOB", "nightly".to_owned())];
    ask(|job| {
        job.run_before("told", &told, None, &no).unwrap();
        let reason = |name: &str| job.run_before(name, &[], None, &no).unwrap_err().to_string();
        assert!(reason("told").contains("told ended with exit status: 1 (on web1)"), "{}", reason("told"));
        assert!(reason("fails").contains("exit status: 3"));
        assert!(reason("/bin/sh").contains("no script /bin/sh: add it there under [scripts]"));
        let stopped = job.run_before("long", &[], None, &AtomicBool::new(true)).unwrap_err().to_string();
        assert!(stopped.contains("signal: 15"), "{stopped}");
        assert_eq!(job.text_of(Path::new("/proc/sys/kernel/ostype")).unwrap(), "Linux\n");
        assert!(job.text_of(Path::new("/nothing/here")).unwrap_err().to_string().contains("cannot be read"));
    });
}

#[test]
fn a_stream_is_what_a_script_of_the_client_prints() {
    let bench = Bench::new(small());
    let stream = |command: &str| {
        let stream = capstan_mover::StreamInput { name: "db".to_owned(), command: vec![command.into()] };
        BackupRequest { stream: Some(stream), ..BackupRequest::of(Vec::new()) }
    };
    let run = |request: &BackupRequest| backup_of(bench.site(), &unbroken(), request, &Anything).unwrap();
    let dumped = run(&stream("dump"));
    assert_eq!(dumped.sources[0].report.as_ref().unwrap().bytes, 21);
    let refused = run(&stream("/bin/cat"));
    let reason = refused.sources[0].report.as_ref().unwrap_err();
    assert!(reason.contains("no script /bin/cat"), "{reason}");
}

pub(crate) fn unbroken() -> Network {
    Network::new(|| None)
}

#[test]
fn a_full_backup_and_incrementals_are_what_the_client_had() {
    let bench = Bench::new(small());
    bench.fill("a", 40, 150_000);
    bench.fill("deep/er/b", 30, 100);
    let network = unbroken();
    let full = backup(&bench, &network, Level::Full).unwrap();
    let report = full.sources[0].report.as_ref().unwrap();
    assert_eq!((report.files, report.problem_counts), (70, [0, 0, 0]));
    bench.assert_restores(&bench.objects()[0], "full");

    std::fs::remove_file(bench.source().join("a-3")).unwrap();
    std::fs::remove_dir_all(bench.source().join("deep")).unwrap();
    bench.fill("c", 5, 70_000);
    let changed = backup(&bench, &network, Level::Incremental).unwrap();
    let report = changed.sources[0].report.as_ref().unwrap();
    // deep, er, 30 files and one more.
    assert_eq!((report.files, report.deleted), (5, 33), "{report:?}");
    assert!(report.unchanged >= 39, "{report:?}");
    let latest = bench.objects().into_iter().max_by_key(|object| object.id).unwrap();
    assert_eq!(latest.client, "web1");
    bench.assert_restores(&latest, "incremental");

    let sent = network.sent.swap(0, Ordering::Relaxed);
    let again = backup(&bench, &network, Level::Incremental).unwrap();
    assert_eq!(again.sources[0].report.as_ref().unwrap().files, 0);
    assert!(network.sent.load(Ordering::Relaxed) < sent / 10, "what did not change is not sent");
}

fn two_drives() -> Config {
    let mut config = small();
    config.library.drives = 2;
    config
}

/// At one drive, and at two, whose connections are those of one client.
#[test]
fn connections_that_break_lose_nothing_and_repeat_little() {
    let seed = std::env::var("CAPSTAN_SEED").ok().and_then(|seed| seed.parse().ok());
    let seed = seed.unwrap_or_else(|| u64::from(std::process::id()) << 20 | 0x9e37);
    println!("CAPSTAN_SEED={seed}");
    let state = Mutex::new(seed);
    let network = Network::new(move || {
        let mut state = state.lock().unwrap();
        *state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        Some(200_000 + (*state >> 40) % 3_000_000)
    });
    for drives in [1, 2] {
        let bench = Bench::new(two_drives());
        bench.fill("a", 200, 100_000);
        bench.fill("deep/er/b", 300, 700);
        let report =
            backup_of(bench.site(), &network, &BackupRequest { drives, ..bench.request(Level::Full) }, &Anything)
                .unwrap();
        assert_eq!(report.sources[0].report.as_ref().unwrap().files, 500);
        let dialled = network.dialled.load(Ordering::Relaxed);
        assert!(dialled > 8, "{dialled} connections");
        // Each that broke had at most the pool's share under way.
        let (sent, plain) = (network.sent.swap(0, Ordering::Relaxed), report.plain_bytes);
        assert!(sent < plain + dialled * (2 << 20), "{sent} bytes sent of {plain} over {dialled} connections");
        bench.assert_restores(&bench.objects()[0], "broken");
    }
}

#[test]
fn a_client_that_dies_is_named_and_its_next_run_goes_on() {
    for drives in [1, 2] {
        let bench = Bench::new(two_drives());
        bench.fill("a", 150, 100_000);
        let network = unbroken();
        let request = BackupRequest { drives, ..bench.request(Level::Full) };
        let (down, checkpoints) = (Arc::clone(&network.is_down), AtomicU64::new(0));
        let events = Arc::new(move |event| {
            if matches!(event, capstan_director::Event::Checkpoint { .. })
                && checkpoints.fetch_add(1, Ordering::Relaxed) == 3
            {
                down.store(true, Ordering::Relaxed);
            }
        });
        let site = bench.site_told(events);
        let dies = backup_of(site, &network, &request, &Anything).unwrap();
        let reason = dies.sources[0].report.as_ref().unwrap_err();
        assert!(reason.contains("client web1: it has ended the connection"), "{reason}");
        let left = bench.objects();
        assert_eq!((left.len(), left[0].status), (1, ObjectStatus::Open));

        network.is_down.store(false, Ordering::Relaxed);
        let sent = network.sent.swap(0, Ordering::Relaxed);
        let next = backup_of(bench.site(), &network, &request, &Anything).unwrap();
        assert!(next.sources[0].resumed, "{next:?}");
        assert!(network.sent.load(Ordering::Relaxed) < 15_000_000, "after {sent} bytes all were sent again");
        let whole = bench.objects();
        assert_eq!((whole.len(), whole[0].status), (1, ObjectStatus::Complete));
        bench.assert_restores(&whole[0], "resumed");
    }
}

#[test]
fn a_file_in_which_a_client_died_is_not_sent_from_its_beginning() {
    for drives in [1, 2] {
        let bench = Bench::new(two_drives());
        bench.fill("a", 20, 100_000);
        bench.fill("large", 1, 48 << 20);
        let network = unbroken();
        let request = BackupRequest { drives, ..bench.request(Level::Full) };
        let (down, checkpoints) = (Arc::clone(&network.is_down), AtomicU64::new(0));
        let events = Arc::new(move |event| {
            if matches!(event, capstan_director::Event::Checkpoint { .. })
                && checkpoints.fetch_add(1, Ordering::Relaxed) == 30
            {
                down.store(true, Ordering::Relaxed);
            }
        });
        let dies = backup_of(bench.site_told(events), &network, &request, &Anything).unwrap();
        dies.sources[0].report.as_ref().unwrap_err();
        network.is_down.store(false, Ordering::Relaxed);
        network.sent.store(0, Ordering::Relaxed);
        let next = backup_of(bench.site(), &network, &request, &Anything).unwrap();
        assert!(next.sources[0].resumed, "{next:?}");
        // What was there of the large file, but for what came behind its last mark.
        let sent = network.sent.load(Ordering::Relaxed);
        assert!(sent < 38 << 20, "{sent} bytes were sent");
        let whole = bench.objects();
        assert_eq!((whole.len(), whole[0].status), (1, ObjectStatus::Complete));
        bench.assert_restores(&whole[0], "resumed");
    }
}

/// Its entry comes with the last of its streams, and says that it begins in the first.
#[test]
fn an_image_comes_over_several_connections() {
    let mut config = two_drives();
    config.library.volume_mib = 512;
    let bench = Bench::new(config);
    bench.fill("image", 1, 257 << 20);
    let image = bench.source().join("image-0");
    let request = BackupRequest { connections: 2, ..BackupRequest::of(vec![image]) };
    let report = backup_of(bench.site(), &unbroken(), &request, &Anything).unwrap();
    let source = report.sources[0].report.as_ref().unwrap();
    assert_eq!((source.files, source.bytes), (1, 257 << 20));
    assert_eq!(bench.objects()[0].kind, capstan_format::ObjectKind::Device);
    bench.assert_restores(&bench.objects()[0], "image");
}

#[test]
fn what_the_client_does_not_allow_is_not_read() {
    let bench = Bench::new(small());
    bench.fill("a", 1, 100);
    let error = backup_by(bench.site(), &bench, &unbroken(), Level::Full, &NotTheSource);
    let text = capstan_tape::with_causes(&error.unwrap_err());
    assert!(text.contains("own settings do not let it be read"), "{text}");
    assert!(bench.objects().is_empty());
}

#[test]
fn whoever_has_no_token_of_a_living_job_is_refused() {
    let jobs = NetworkJobs::default();
    let job = jobs.open("web1", Duration::from_millis(10)).unwrap();
    let refused = |client: &'static str, token: JobToken| {
        let (near, far) = UnixStream::pair().unwrap();
        let jobs = jobs.clone();
        let accepts = spawn(move || jobs.accept(client, Box::new(far)).unwrap_err().kind());
        struct Once(Mutex<Option<UnixStream>>);
        impl Dial for Once {
            fn dial(&self) -> io::Result<Box<dyn NetworkStream>> {
                Ok(Box::new(self.0.lock().unwrap().take().unwrap()))
            }
        }
        let dial = Once(Mutex::new(Some(near)));
        let end = ClientEnd { dial: &dial, token, links: 1, rules: &Anything, restores: None, stop: Arc::default() };
        let error = serve_job(&end).unwrap_err();
        assert_eq!(accepts.join().unwrap(), io::ErrorKind::PermissionDenied);
        error.to_string()
    };
    let token = job.token().clone();
    assert!(refused("web2", token.clone()).contains("no such job"));
    assert!(refused("web1", JobToken([7; 32])).contains("no such job"));
    // A client that does not come is waited for no longer than was said.
    let error = job.look(&["/etc".into()]).unwrap_err();
    assert!(error.to_string().contains("client web1: it was told of the job, and did not come"), "{error}");
    drop(job);
    assert!(refused("web1", token).contains("no such job"));
}

/// Nothing that a client sends does more than end its connection.
#[test]
fn nonsense_ends_a_connection_and_nothing_else() {
    let jobs = NetworkJobs::default();
    let job = jobs.open("web1", Duration::from_secs(5)).unwrap();
    for bytes in [&b""[..], b"GET / HTTP/1.1\r\n\r\n", &[0; 64], &[255; 64], b"\x02\0\0\0\0\0\0\0{}", b"\x08\0\0\0"] {
        let (mut near, far) = UnixStream::pair().unwrap();
        let accepts = {
            let jobs = jobs.clone();
            spawn(move || jobs.accept("web1", Box::new(far)))
        };
        near.write_all(bytes).unwrap();
        near.shutdown(std::net::Shutdown::Write).unwrap();
        accepts.join().unwrap().unwrap_err();
    }
    drop(job);
}

/// Configurations in which blocks are few: nothing waits for ever.
#[test]
fn a_small_pool_and_many_connections_come_to_an_end() {
    let mut config = Config { ..small() };
    config.data.buffer_mib = 1;
    let bench = Bench::new(config);
    bench.fill("a", 60, 120_000);
    let request = BackupRequest { connections: 8, ..bench.request(Level::Full) };
    let report = backup_of(bench.site(), &unbroken(), &request, &Anything).unwrap();
    assert_eq!(report.sources[0].report.as_ref().unwrap().files, 60);
    bench.assert_restores(&bench.objects()[0], "small");
}

/// Restores objects to a directory of a client, through this network.
pub(crate) fn restore(
    bench: &Bench,
    network: &Network,
    object: capstan_format::ObjectId,
    to: &Path,
) -> (Result<capstan_director::RestoreReport, DirectorError>, Option<u64>) {
    restore_watched(bench, network, object, (to, Overwrite::Never), &RestoreWatch::default())
}

pub(crate) fn restore_watched(
    bench: &Bench,
    network: &Network,
    object: capstan_format::ObjectId,
    into: (&Path, Overwrite),
    watch: &RestoreWatch,
) -> (Result<capstan_director::RestoreReport, DirectorError>, Option<u64>) {
    restore_as_planned(bench, network, object, into, (watch, &|_| ()))
}

pub(crate) fn restore_as_planned(
    bench: &Bench,
    network: &Network,
    object: capstan_format::ObjectId,
    (to, overwrite): (&Path, Overwrite),
    (watch, change): (&RestoreWatch, &(dyn Fn(&mut RestorePlan) + Sync)),
) -> (Result<capstan_director::RestoreReport, DirectorError>, Option<u64>) {
    let job = network.jobs.open("web1", PATIENCE).unwrap();
    network.dialled.store(0, Ordering::Relaxed);
    let token = job.token().clone();
    let written = Mutex::new(None);
    let told = |report: &ExtractReport| *written.lock().unwrap() = Some(report.files);
    let report = std::thread::scope(|scope| {
        let into = RestoreInto {
            directory: to,
            options: ExtractOptions { overwrite, ..ExtractOptions::default() },
            told: &told,
        };
        let end = ClientEnd {
            dial: network,
            token,
            links: 1,
            rules: &NotTheSource,
            restores: Some(into),
            stop: Arc::default(),
        };
        let client = scope.spawn(move || serve_job(&end));
        let site = bench.site();
        let mut plan = site.plan_restore(&[Place { object, paths: Vec::new() }]).unwrap();
        change(&mut plan);
        let report = site.restore_to_client(&plan, &job, watch);
        drop(job);
        let _ = client.join().unwrap();
        report
    });
    (report, written.into_inner().unwrap())
}

/// What a client writes for a program, so that a test can look.
struct Scripts(std::path::PathBuf);

impl ClientRules for Scripts {
    fn allows(&self, _: &Path) -> bool {
        true
    }

    fn script(&self, name: &str) -> Option<Vec<OsString>> {
        let note = format!("echo {name} $CAPSTAN_OUTCOME $LD_PRELOAD >> {}; sleep 0.2", self.0.display());
        Some(vec!["sh".into(), "-c".into(), note.into()])
    }
}

/// A database that was told to stand still is told to go on, whatever becomes of the mover; and a server sets no
/// variable that changes what a program is.
#[test]
fn what_was_begun_before_a_job_is_undone_though_the_mover_is_gone() {
    let folder = tempfile::tempdir().unwrap();
    let notes = folder.path().join("notes");
    let rules = Scripts(notes.clone());
    let no = AtomicBool::new(false);
    let failed = [("CAPSTAN_OUTCOME", "failed".to_owned()), ("LD_PRELOAD", "/tmp/evil.so".to_owned())];
    let serve = |is_ordered: bool| {
        let network = unbroken();
        let job = network.jobs.open("web1", PATIENCE).unwrap();
        let token = job.token().clone();
        std::thread::scope(|scope| {
            let stop: Arc<AtomicBool> = Arc::default();
            let end =
                ClientEnd { dial: &network, token, links: 1, rules: &rules, restores: None, stop: Arc::clone(&stop) };
            let served = scope.spawn(move || serve_job(&end));
            job.run_before("freeze", &failed[1..], Some(("thaw", &failed)), &no).unwrap();
            if is_ordered {
                // A client that is told to stop runs it all the same, to its end.
                stop.store(true, Ordering::Relaxed);
                let _ = job.run_after("thaw", &failed);
            }
            drop(job);
            let _ = served.join().unwrap();
        });
        let noted = std::fs::read_to_string(&notes).unwrap();
        std::fs::remove_file(&notes).unwrap();
        noted
    };
    assert_eq!(serve(false), "freeze\nthaw failed\n");
    assert_eq!(serve(true), "freeze\nthaw failed\n");
}

/// A machine that was copied has the same certificate: it does not come into the job of the other.
#[test]
fn two_processes_with_one_identity_do_not_serve_one_job() {
    let network = unbroken();
    let job = network.jobs.open("web1", PATIENCE).unwrap();
    let token = job.token().clone();
    std::thread::scope(|scope| {
        let end = |token| ClientEnd {
            dial: &network,
            token,
            links: 1,
            rules: &Anything,
            restores: None,
            stop: Arc::default(),
        };
        let (first, second) = (end(token.clone()), end(token));
        let served = scope.spawn(move || serve_job(&first));
        job.text_of(Path::new("/proc/sys/kernel/ostype")).unwrap();
        let refused = serve_job(&second).unwrap_err().to_string();
        assert!(refused.contains("was this machine, or its state directory, copied?"), "{refused}");
        assert_eq!(job.text_of(Path::new("/proc/sys/kernel/ostype")).unwrap(), "Linux\n");
        drop(job);
        served.join().unwrap().unwrap();
    });
}

#[test]
fn a_client_that_is_shut_out_stops_in_the_middle() {
    let bench = Bench::new(small());
    bench.fill("a", 300, 100_000);
    let network = unbroken();
    let (jobs, checkpoints) = (network.jobs.clone(), AtomicU64::new(0));
    let events = Arc::new(move |event| {
        if matches!(event, capstan_director::Event::Checkpoint { .. })
            && checkpoints.fetch_add(1, Ordering::Relaxed) == 2
        {
            jobs.shut_out("web1");
        }
    });
    let report = backup_by(bench.site_told(events), &bench, &network, Level::Full, &Anything).unwrap();
    let reason = report.sources[0].report.as_ref().unwrap_err();
    assert!(reason.contains("web1"), "{reason}");
    assert_eq!(bench.objects()[0].status, ObjectStatus::Open);
}

/// Nobody waits for a link of a client that will not come again.
#[test]
fn what_is_asked_of_a_client_that_is_shut_out_is_refused_at_once() {
    let network = unbroken();
    let job = network.jobs.open("web1", PATIENCE).unwrap();
    let token = job.token().clone();
    std::thread::scope(|scope| {
        let end = ClientEnd { dial: &network, token, links: 2, rules: &Anything, restores: None, stop: Arc::default() };
        scope.spawn(move || serve_job(&end));
        let kind = Path::new("/proc/sys/kernel/ostype");
        job.text_of(kind).unwrap();
        network.jobs.shut_out("web1");
        for _ in 0..3 {
            let refused = job.text_of(kind).unwrap_err().to_string();
            assert!(refused.contains("revoked"), "{refused}");
        }
        drop(job);
    });
}

/// More sources than links: each waits for its turn.
#[test]
fn many_sources_over_one_link_are_all_read() {
    let bench = Bench::new(small());
    let sources: Vec<_> = (0..12).map(|number| bench.source().join(format!("of-{number}"))).collect();
    for (number, source) in sources.iter().enumerate() {
        std::fs::create_dir_all(source).unwrap();
        std::fs::write(source.join("file"), vec![number as u8; 200_000]).unwrap();
    }
    let network = unbroken();
    let job = network.jobs.open("web1", Duration::from_millis(200)).unwrap();
    let token = job.token().clone();
    let report = std::thread::scope(|scope| {
        let end = ClientEnd { dial: &network, token, links: 1, rules: &Anything, restores: None, stop: Arc::default() };
        scope.spawn(move || serve_job(&end));
        let site = bench.site().for_client("web1").with_sources(Arc::new(job));
        let request = BackupRequest { connections: 12, ..BackupRequest::of(sources) };
        site.backup(&request, &BackupWatch::default()).unwrap()
    });
    assert!(report.sources.iter().all(|source| source.report.is_ok()), "{report:?}");
}

#[test]
fn a_run_keeps_to_its_bandwidth_here_and_over_the_network() {
    let bench = Bench::new(small());
    bench.fill("a", 10, 300_000);
    let job = capstan_director::JobConfig { bandwidth: vec!["2M".to_owned()], ..Default::default() };
    let request = BackupRequest { bandwidth: job.bandwidth().unwrap(), ..bench.request(Level::Full) };
    let here = bench.backup(&request).unwrap();
    let network = unbroken();
    let over = backup_of(bench.site(), &network, &request, &Anything).unwrap();
    // Each connection may have one block that is not paid yet.
    let least_ns = (3_000_000 - 4 * 65_536) * 1_000_000_000 / 2_000_000;
    for report in [here, over] {
        assert!(report.elapsed_ns >= least_ns, "{report:?}");
    }
    bench.assert_restores(bench.objects().last().unwrap(), "restored");
    // So does a restore, also one that is told to stop where it would take a week.
    let (object, rate) = (bench.objects().last().unwrap().id, RateLimit::new(|| Some(2_000_000)));
    let watch = RestoreWatch { rate, ..RestoreWatch::default() };
    let report = restore_watched(&bench, &network, object, (&bench.path("paced"), Overwrite::Never), &watch).0.unwrap();
    assert!(report.is_whole() && report.elapsed_ns >= least_ns, "{report:?}");
    let watch = RestoreWatch { rate: RateLimit::new(|| Some(1)), ..RestoreWatch::default() };
    std::thread::scope(|scope| {
        scope.spawn(|| {
            std::thread::sleep(Duration::from_millis(300));
            watch.stop.store(true, Ordering::Relaxed);
        });
        let stopped = restore_watched(&bench, &network, object, (&bench.path("stopped"), Overwrite::Never), &watch)
            .0
            .unwrap_err();
        assert!(stopped.to_string().contains("stop"), "{stopped}");
    });
    // Its directories are not left to whoever restored alone: a later turn would take them for what was there before.
    let back = bench.path("stopped").join(bench.source().strip_prefix("/").unwrap());
    let mode = |path: &Path| PermissionsExt::mode(&std::fs::metadata(path).unwrap().permissions());
    assert_eq!(mode(&back), mode(&bench.source()));
}
