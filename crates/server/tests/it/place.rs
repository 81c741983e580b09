//! A site, a clock that tests set, and servers over it whose work is looked into.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use capstan_catalog::{ActiveRun, DoneRun};
use capstan_director::{
    BackupRequest, BackupWatch, Config, DirectorError, InitOptions, Level, OtherPolicies, RebuildOptions,
    RebuildReport, Site, rebuild,
};
use capstan_keys::{Unlock, create_key_file};
use capstan_server::tell::{TellFinding, TellFindings};
use capstan_server::{Expired, Notice, RunCounts, TakesEntry, WorkEnd, Worked, Worker, serve};
use jiff::Timestamp;
use tempfile::TempDir;

/// How long anything may take that is waited for.
const WAITED_MAX: Duration = Duration::from_secs(60);

/// The time of a test; each test program has one, so tests that set it run one behind the other.
static NOW_NS: AtomicI64 = AtomicI64::new(0);
static CLOCK_IS_TAKEN: Mutex<()> = Mutex::new(());

fn now_ns() -> i64 {
    NOW_NS.load(Ordering::SeqCst)
}

/// A state directory with a source, and the clock.
pub(crate) struct Bench {
    dir: TempDir,
    unlock: Unlock,
    _clock: std::sync::MutexGuard<'static, ()>,
}

impl Bench {
    pub(crate) fn new(now: &str, policies: &str) -> Self {
        let clock = CLOCK_IS_TAKEN.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        let dir = tempfile::tempdir().unwrap();
        let unlock = create_key_file(&dir.path().join("key")).unwrap();
        let mut config = Config::default();
        config.data.buffer_mib = 4;
        config.library.volume_mib = 64;
        config.library.drives = 2;
        let database = capstan_catalog::Database::Sqlite;
        let options = InitOptions { config, encryption: None, database };
        Site::init(&dir.path().join("state"), &options, Some(&unlock)).unwrap();
        let bench = Self { dir, unlock, _clock: clock };
        bench.set_clock(now);
        for source in ["one", "two"] {
            std::fs::create_dir(bench.path(source)).unwrap();
            std::fs::write(bench.path(source).join("file"), source).unwrap();
        }
        bench.apply(policies);
        bench
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    pub(crate) fn set_clock(&self, now: &str) {
        let now: Timestamp = now.parse().unwrap();
        NOW_NS.store(i64::try_from(now.as_nanosecond()).unwrap(), Ordering::SeqCst);
    }

    /// Makes these the policies; DIR stands for the folder of the sources.
    pub(crate) fn apply(&self, policies: &str) {
        let text = policies.replace("DIR", &self.dir.path().display().to_string());
        let site = self.site();
        let plan = site.plan_policies(&text, Path::new("cell.toml"), OtherPolicies::Remove).unwrap();
        site.change_policies(&plan).unwrap();
    }

    pub(crate) fn site(&self) -> Site {
        Site::open(&self.path("state"), Some(&self.unlock), now_ns, Arc::new(|_| {})).unwrap()
    }

    pub(crate) fn rebuild(&self) -> Result<RebuildReport, DirectorError> {
        let options = RebuildOptions { discard_old: true, ..RebuildOptions::default() };
        rebuild(&self.path("state"), Some(&self.unlock), now_ns, Arc::new(|_| {}), &options)
    }

    pub(crate) fn done(&self) -> Vec<DoneRun> {
        self.site().catalog().done_runs(100).unwrap()
    }

    /// Waits until something is so.
    pub(crate) fn until(&self, what: &str, mut is_so: impl FnMut(&Site) -> bool) {
        let site = self.site();
        self.wait(what, || is_so(&site));
    }

    /// The same, for what is looked at otherwise.
    pub(crate) fn wait(&self, what: &str, mut is_so: impl FnMut() -> bool) {
        let began = Instant::now();
        while !is_so() {
            assert!(began.elapsed() < WAITED_MAX, "{what}: not within a minute");
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// Serves while `meanwhile` runs; gives what the server said.
    pub(crate) fn serve(&self, hand: &Hand, meanwhile: impl FnOnce()) -> Vec<Notice> {
        let (said, served) = self.serve_in_vain(hand, meanwhile);
        served.unwrap();
        said
    }

    /// The same, for a server that cannot go on.
    pub(crate) fn serve_in_vain(
        &self,
        hand: &Hand,
        meanwhile: impl FnOnce(),
    ) -> (Vec<Notice>, Result<(), DirectorError>) {
        let site = self.site();
        let term = site.begin_term().unwrap();
        let stop = AtomicBool::new(false);
        let worker = Clerk { site: &site, hand, said: Mutex::default() };
        let served = std::thread::scope(|scope| {
            let server = scope.spawn(|| serve(&site, &term, &worker, &stop));
            let panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(meanwhile));
            stop.store(true, Ordering::SeqCst);
            let served = server.join().unwrap();
            if let Err(panic) = panicked {
                std::panic::resume_unwind(panic);
            }
            served
        });
        (worker.said.into_inner().unwrap(), served)
    }
}

/// What tests do to the work of runs.
#[derive(Default)]
pub(crate) struct Hand {
    /// So many runs fail from now on.
    pub(crate) fails: AtomicI64,
    /// So many find another job at what they need.
    pub(crate) is_busy: AtomicI64,
    /// So many runs fail from now on when all is written.
    pub(crate) fails_at_the_end: AtomicI64,
    /// Work waits for as long as this is set, and ends if it is told to stop.
    pub(crate) waits: AtomicBool,
    /// The next run panics.
    pub(crate) panics: AtomicBool,
    /// What a person should look at.
    pub(crate) findings: Mutex<Vec<TellFinding>>,
    /// Troubles of listeners that the server has not asked for yet.
    pub(crate) troubles: Mutex<Vec<String>>,
    /// How often the server had backups expire, and whether that fails.
    pub(crate) expired: AtomicI64,
    pub(crate) expiry_fails: AtomicBool,
    /// The runs that were begun.
    pub(crate) begun: Mutex<Vec<i64>>,
}

impl Hand {
    pub(crate) fn go_on(&self) {
        self.waits.store(false, Ordering::SeqCst);
    }

    pub(crate) fn begun(&self) -> Vec<i64> {
        self.begun.lock().unwrap().clone()
    }
}

/// Backs up what a run's policy says.
struct Clerk<'a> {
    site: &'a Site,
    hand: &'a Hand,
    said: Mutex<Vec<Notice>>,
}

impl Worker for Clerk<'_> {
    fn work(&self, run: &ActiveRun, stop: &Arc<AtomicBool>, entered: &TakesEntry<'_>) -> Worked {
        self.hand.begun.lock().unwrap().push(run.run.run);
        let stopped = || Worked { end: WorkEnd::Stopped, message: "stopped".into() };
        assert!(!self.hand.panics.swap(false, Ordering::SeqCst), "as it was told to");
        while self.hand.waits.load(Ordering::SeqCst) {
            if stop.load(Ordering::SeqCst) {
                return stopped();
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        if self.hand.is_busy.fetch_sub(1, Ordering::SeqCst) > 0 {
            return Worked { end: WorkEnd::Busy, message: "another job has the source".into() };
        }
        if self.hand.fails.fetch_sub(1, Ordering::SeqCst) > 0 {
            return Worked { end: WorkEnd::Failed, message: "the source is on fire".into() };
        }
        let site = self.site.beside(Arc::new(|_| {})).unwrap();
        let journal = site.begin_run("backup", &run.run.policy).unwrap();
        entered(journal.number()).unwrap();
        let sources = site.config().jobs[&run.run.policy].sources.clone();
        let policy = run.run.policy.clone();
        let (session, of_run) = (Some(run.place.session), Some(run.run.run));
        let request = BackupRequest { level: Level::Full, policy, session, run: of_run, ..BackupRequest::of(sources) };
        let watch = BackupWatch { stop: Arc::clone(stop), ..BackupWatch::default() };
        match site.backup(&request, &watch) {
            Ok(report) => {
                if self.hand.fails_at_the_end.fetch_sub(1, Ordering::SeqCst) > 0 {
                    return Worked { end: WorkEnd::Failed, message: "the last word was lost".into() };
                }
                let message = format!("{} read, {} there", report.sources.len(), report.earlier.len());
                Worked { end: WorkEnd::Succeeded, message }
            }
            Err(DirectorError::Interrupted) => stopped(),
            Err(error @ DirectorError::SourceInUse { .. }) => Worked { end: WorkEnd::Busy, message: error.to_string() },
            Err(error) => Worked { end: WorkEnd::Failed, message: error.to_string() },
        }
    }

    fn counts(&self) -> Vec<RunCounts> {
        let counts = |run| RunCounts { run, files: 3, bytes: 1000, bytes_planned: 4000, moved: 1000 };
        self.hand.begun().into_iter().map(counts).collect()
    }

    fn is_connected(&self, _: &str) -> Option<bool> {
        None
    }

    fn expire(&self) -> Result<Option<Expired>, String> {
        self.hand.expired.fetch_add(1, Ordering::SeqCst);
        match self.hand.expiry_fails.load(Ordering::SeqCst) {
            true => Err("the catalog is on fire".to_owned()),
            false => Ok(None),
        }
    }

    fn findings(&self) -> Result<TellFindings, String> {
        Ok(TellFindings { found: self.hand.findings.lock().unwrap().clone(), unsure: Vec::new() })
    }

    fn troubles(&self) -> Vec<String> {
        std::mem::take(&mut *self.hand.troubles.lock().unwrap())
    }

    fn say(&self, notice: Notice) {
        self.said.lock().unwrap().push(notice);
    }
}
