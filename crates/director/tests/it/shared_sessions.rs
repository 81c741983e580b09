//! Jobs that share a session: they come and go while it runs, one stops and the others go on, and what each has made
//! is there when it says so.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use capstan_catalog::{CopyState, Object, ObjectStatus};
use capstan_director::{BackupReport, BackupRequest, BackupWatch, DirectorError, Event, Site};
use capstan_mover::StreamInput;

use crate::place::{Bench, small, tree};

/// Longer than anything here takes on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);

/// A site of which every job shares what happens.
struct Shared {
    bench: Bench,
    site: Site,
    events: Arc<Mutex<Vec<Event>>>,
}

impl Shared {
    fn new(drives: u32, change: impl FnOnce(&mut capstan_director::Config)) -> Self {
        let mut config = small();
        config.library.drives = drives;
        change(&mut config);
        let bench = Bench::new(config);
        let site = bench.site();
        Self { bench, site, events: Arc::default() }
    }

    /// A source with files of its own.
    fn source(&self, name: &str, files: u32, len: usize) -> PathBuf {
        self.bench.fill(&format!("{name}/file"), files, len);
        self.bench.source().join(name)
    }

    fn backup(&self, request: &BackupRequest, watch: &BackupWatch) -> Result<BackupReport, DirectorError> {
        self.backup_told(request, watch, |_| {})
    }

    fn backup_told(
        &self,
        request: &BackupRequest,
        watch: &BackupWatch,
        told: impl Fn(&Event) + Send + Sync + 'static,
    ) -> Result<BackupReport, DirectorError> {
        let events = Arc::clone(&self.events);
        let tell = move |event: Event| {
            told(&event);
            events.lock().unwrap().push(event);
        };
        self.site.beside(Arc::new(tell)).unwrap().backup(request, watch)
    }

    /// Mounts that the jobs were told of.
    fn mounts(&self) -> usize {
        self.events.lock().unwrap().iter().filter(|event| matches!(event, Event::Mounted { .. })).count()
    }

    fn latest(&self, source: &Path) -> Option<Object> {
        let source = source.as_os_str().as_encoded_bytes();
        self.bench.objects().into_iter().filter(|object| object.source == source).max_by_key(|object| object.id)
    }

    fn wait_until_begun(&self) {
        let began = Instant::now();
        while !self.events.lock().unwrap().iter().any(|event| matches!(event, Event::Begun { .. })) {
            assert!(began.elapsed() < PATIENCE, "the slow job is not begun within a minute");
            thread::sleep(Duration::from_millis(10));
        }
    }

    /// Whether an object gives back what its source has.
    fn assert_restores(&self, source: &Path, to: &str) {
        let object = self.latest(source).unwrap();
        assert_eq!(object.status, ObjectStatus::Complete, "{}", source.display());
        let report = self.bench.restore(&object, to);
        assert!(report.is_whole(), "{}: {:?}", source.display(), report.failed.first().map(|file| &file.reason));
        let restored = self.bench.path(to).join(source.strip_prefix("/").unwrap());
        assert!(tree(&restored) == tree(source), "{} differs", source.display());
    }
}

/// All of a source, into the session of this number.
fn into_session(session: i64, source: &Path) -> BackupRequest {
    BackupRequest { session: Some(session), connections: 2, ..BackupRequest::of(vec![source.to_owned()]) }
}

/// A stream that goes on until its gate is there.
struct HeldStream {
    request: BackupRequest,
    gate: PathBuf,
}

impl HeldStream {
    fn new(bench: &Bench, name: &str, copies: u8) -> Self {
        let gate = bench.path(&format!("{name}.gate"));
        let script =
            format!("head -c 300000 /dev/zero; until test -e '{}'; do sleep 0.02; done; echo end", gate.display());
        let stream = StreamInput { name: name.to_owned(), command: ["sh", "-c", &script].map(Into::into).into() };
        let request = BackupRequest { stream: Some(stream), session: Some(1), copies, ..BackupRequest::of(Vec::new()) };
        Self { request, gate }
    }

    fn let_go(&self) {
        fs::write(&self.gate, "").unwrap();
    }
}

/// Lets a stream go on, whatever becomes of the test.
struct LetsGo<'a>(&'a HeldStream);

impl Drop for LetsGo<'_> {
    fn drop(&mut self) {
        self.0.let_go();
    }
}

#[test]
fn a_job_is_whole_while_another_goes_on_at_the_same_drive() {
    let shared = Shared::new(1, |_| {});
    let held = HeldStream::new(&shared.bench, "held", 1);
    let sources: Vec<_> = (0..4).map(|number| shared.source(&format!("s{number}"), 6, 400_000)).collect();
    thread::scope(|scope| {
        let slow = scope.spawn(|| shared.backup(&held.request, &BackupWatch::default()));
        let lets_go = LetsGo(&held);
        shared.wait_until_begun();
        // One after the other, and then two at once.
        for source in &sources[..2] {
            shared.backup(&into_session(1, source), &BackupWatch::default()).unwrap();
            assert_eq!(shared.latest(source).unwrap().status, ObjectStatus::Complete);
        }
        let two: Vec<_> = sources[2..]
            .iter()
            .map(|source| scope.spawn(|| shared.backup(&into_session(1, source), &BackupWatch::default())))
            .collect();
        for job in two {
            let report = job.join().unwrap().unwrap();
            assert!(report.plain_bytes > 2_400_000 && report.stored_bytes >= report.plain_bytes, "{report:?}");
            assert!(report.plain_bytes < 3_000_000, "its own bytes are counted: {report:?}");
        }
        assert!(!slow.is_finished(), "it waits for its gate");
        drop(lets_go);
        slow.join().unwrap().unwrap();
    });
    let drives: Vec<_> = shared.bench.site().catalog().volumes().unwrap().iter().map(|volume| volume.mounts).collect();
    assert_eq!(drives, [1], "all went to one volume, which was mounted once");
    for source in &sources {
        shared.assert_restores(source, "restored");
    }
    shared.bench.rebuild();
    sources.iter().for_each(|source| shared.assert_restores(source, "again"));
}

#[test]
fn both_copies_of_a_job_are_whole_when_it_leaves() {
    let shared = Shared::new(2, |_| {});
    let held = HeldStream::new(&shared.bench, "held", 2);
    let source = shared.source("s", 6, 400_000);
    thread::scope(|scope| {
        let slow = scope.spawn(|| shared.backup(&held.request, &BackupWatch::default()));
        let _lets_go = LetsGo(&held);
        shared.wait_until_begun();
        let request = BackupRequest { copies: 2, ..into_session(1, &source) };
        let report = shared.backup(&request, &BackupWatch::default()).unwrap();
        assert_eq!(report.failed_copies, []);
        assert!(!slow.is_finished());
        let object = shared.latest(&source).unwrap();
        let site = shared.bench.site();
        let catalog = site.catalog();
        let states: Vec<_> = catalog.wanted_copies(object.id).unwrap().iter().map(|wanted| wanted.state).collect();
        assert_eq!(states, [CopyState::Whole; 2]);
    });
}

#[test]
fn a_job_that_is_stopped_before_each_copy_is_recorded_is_not_done() {
    let shared = Shared::new(2, |_| {});
    let held = HeldStream::new(&shared.bench, "held", 2);
    let source = shared.source("s", 2, 1_000);
    thread::scope(|scope| {
        scope.spawn(|| shared.backup(&held.request, &BackupWatch::default()));
        let _lets_go = LetsGo(&held);
        shared.wait_until_begun();
        let (watch, goes_on) = (BackupWatch::default(), Arc::new(AtomicBool::new(false)));
        let (stop, second) = (Arc::clone(&watch.stop), Arc::clone(&goes_on));
        let ended =
            shared.backup_told(&BackupRequest { copies: 2, ..into_session(1, &source) }, &watch, move |event| {
                match event {
                    Event::Checkpoint { copy: 1, .. } => stop.store(true, Ordering::Relaxed),
                    Event::Checkpoint { .. } => {
                        while !second.load(Ordering::Relaxed) {
                            thread::sleep(Duration::from_millis(5));
                        }
                    }
                    _ => {}
                }
            });
        goes_on.store(true, Ordering::Relaxed);
        assert!(matches!(ended, Err(DirectorError::Interrupted)), "{ended:?}");
    });
}

/// It leaves blocks on their way; the next attempt must not use the numbers of its streams again.
#[test]
fn a_job_that_is_stopped_is_gone_on_with_in_the_same_session() {
    let shared = Shared::new(1, |_| {});
    let held = HeldStream::new(&shared.bench, "held", 1);
    let source = shared.source("s", 100, 400_000);
    thread::scope(|scope| {
        let slow = scope.spawn(|| shared.backup(&held.request, &BackupWatch::default()));
        let _lets_go = LetsGo(&held);
        shared.wait_until_begun();
        let waits = BackupRequest { waits_for_writer: true, ..into_session(1, &source) };
        for checkpoints in [1, 2] {
            let watch = BackupWatch::default();
            let (stop, seen) = (Arc::clone(&watch.stop), AtomicU64::new(0));
            let ended = shared.backup_told(&waits, &watch, move |event| {
                if matches!(event, Event::Checkpoint { .. }) && seen.fetch_add(1, Ordering::Relaxed) + 1 == checkpoints
                {
                    stop.store(true, Ordering::Relaxed);
                }
            });
            assert!(matches!(ended, Err(DirectorError::Interrupted)), "{ended:?}");
            assert!(!slow.is_finished(), "the other one goes on");
        }
        let report = shared.backup(&waits, &BackupWatch::default()).unwrap();
        assert!(report.sources[0].resumed, "{report:?}");
        assert!(!slow.is_finished());
    });
    shared.assert_restores(&source, "restored");
    shared.bench.rebuild();
    shared.assert_restores(&source, "again");
}

#[test]
fn what_ends_all_copies_ends_all_jobs_and_each_is_told_why() {
    // One small volume, and no other.
    let shared = Shared::new(1, |config| {
        config.library.volume_mib = 32;
        config.library.volumes_max = 1;
    });
    let held = HeldStream::new(&shared.bench, "held", 1);
    let source = shared.source("s", 100, 400_000);
    thread::scope(|scope| {
        let slow = scope.spawn(|| shared.backup(&held.request, &BackupWatch::default()));
        let lets_go = LetsGo(&held);
        shared.wait_until_begun();
        let failed = shared.backup(&into_session(1, &source), &BackupWatch::default()).unwrap_err();
        assert!(matches!(failed, DirectorError::SessionFailed { .. }), "{failed:?}");
        assert!(failed.to_string().contains("pool default"), "{failed}");
        // Who comes then does not join what has failed, though the slow job is there yet.
        let failed = shared.backup(&into_session(1, &source), &BackupWatch::default()).unwrap_err();
        assert!(matches!(failed, DirectorError::NoVolume { .. }), "{failed:?}");
        assert!(!slow.is_finished());
        drop(lets_go);
        let failed = slow.join().unwrap().unwrap_err();
        assert!(matches!(failed, DirectorError::NoVolume { .. }), "{failed:?}");
    });
    // The session is over: what was in it is not waited for.
    let small = shared.source("small", 1, 10);
    let failed = shared.backup(&into_session(1, &small), &BackupWatch::default()).unwrap_err();
    assert!(matches!(failed, DirectorError::NoVolume { .. }), "{failed:?}");
}

/// Jobs of other terms have a session of their own, and wait for a drive.
#[test]
fn a_job_of_other_terms_does_not_join() {
    let shared = Shared::new(1, |_| {});
    let held = HeldStream::new(&shared.bench, "held", 1);
    let source = shared.source("s", 2, 1_000);
    thread::scope(|scope| {
        scope.spawn(|| shared.backup(&held.request, &BackupWatch::default()));
        let lets_go = LetsGo(&held);
        shared.wait_until_begun();
        let request = BackupRequest { compression: Some(1), ..into_session(1, &source) };
        let watch = BackupWatch::default();
        let stop = Arc::clone(&watch.stop);
        let waits = move |event: &Event| {
            if matches!(event, Event::Waiting { message } if message.contains("the drive is in use")) {
                stop.store(true, Ordering::Relaxed);
            }
        };
        let stopped = shared.backup_told(&request, &watch, waits);
        assert!(matches!(stopped, Err(DirectorError::Interrupted)), "{stopped:?}");
        drop(lets_go);
    });
    assert_eq!(shared.mounts(), 1);
}

/// Jobs begin, are stopped after some checkpoints and begin again, over two sessions, which have one drive or two; in
/// the end all of them are whole.
#[test]
fn jobs_come_and_go_as_they_like() {
    let seed = std::env::var("CAPSTAN_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or_else(|| {
        std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().subsec_nanos().into()
    });
    println!("CAPSTAN_SEED={seed} replays this, as far as threads do");
    let shared = Shared::new(4, |_| {});
    let state = AtomicU64::new(seed);
    // splitmix64.
    let draw = |below: u64| {
        let mut drawn = state.fetch_add(0x9e37_79b9_7f4a_7c15, Ordering::Relaxed);
        drawn = (drawn ^ (drawn >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        drawn = (drawn ^ (drawn >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (drawn ^ (drawn >> 31)) % below
    };
    let sources: Vec<_> = (0..6).map(|number| shared.source(&format!("s{number}"), 8, 300_000)).collect();
    thread::scope(|scope| {
        for source in &sources {
            scope.spawn(|| {
                let mut left = 1 + draw(3);
                while left > 0 {
                    let session = 1 + draw(2) as i64;
                    let drives = 1 + draw(2) as u8;
                    let request = BackupRequest { waits_for_writer: true, drives, ..into_session(session, source) };
                    let watch = BackupWatch::default();
                    let (stop, until) = (Arc::clone(&watch.stop), draw(5));
                    let seen = AtomicU64::new(0);
                    let ended = shared.backup_told(&request, &watch, move |event| {
                        if matches!(event, Event::Checkpoint { .. }) && seen.fetch_add(1, Ordering::Relaxed) == until {
                            stop.store(true, Ordering::Relaxed);
                        }
                    });
                    match ended {
                        Ok(_) => left -= 1,
                        Err(DirectorError::Interrupted) => {}
                        Err(error) => panic!("seed {seed}: {error:?}"),
                    }
                }
            });
        }
    });
    for source in &sources {
        shared.assert_restores(source, "restored");
    }
    let before: Vec<_> = shared.bench.objects().iter().map(|object| (object.id, object.status)).collect();
    shared.bench.rebuild();
    let after: Vec<_> = shared.bench.objects().iter().map(|object| (object.id, object.status)).collect();
    assert_eq!(before, after, "seed {seed}: the volumes say the same");
    sources.iter().for_each(|source| shared.assert_restores(source, "again"));
}
