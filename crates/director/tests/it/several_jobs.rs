//! Several jobs at once, in one process and over one state directory: none has what another uses, none waits for ever.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};

use capstan_catalog::Object;
use capstan_catalog::{ObjectStatus, Promise, Resource};
use capstan_director::{
    BackupReport, BackupRequest, BackupWatch, Config, DirectorError, Event, ExpiryRequest, Level, Loss, Shortfall, Site,
};
use capstan_format::{ObjectId, Volser};
use capstan_mover::RestoreWatch;

use crate::place::{Bench, small};

/// Longer than anything here takes on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);

/// What jobs have said so far, and those who wait for it.
#[derive(Default)]
struct Said {
    events: Mutex<Vec<Event>>,
    more: Condvar,
}

impl Said {
    fn add(&self, event: Event) {
        self.events.lock().unwrap().push(event);
        self.more.notify_all();
    }

    fn wait_for(&self, what: &str, reached: impl Fn(&[Event]) -> bool) {
        let began = Instant::now();
        let mut events = self.events.lock().unwrap();
        while !reached(&events) {
            assert!(began.elapsed() < PATIENCE, "{what}: {events:?}");
            events = self.more.wait_timeout(events, Duration::from_millis(50)).unwrap().0;
        }
    }
}

fn objects_in(events: &[Event]) -> BTreeSet<ObjectId> {
    let of = |event: &Event| match event {
        Event::Checkpoint { objects, .. } => objects.clone(),
        _ => Vec::new(),
    };
    events.iter().flat_map(of).collect()
}

fn waits(events: &[Event], words: &str) -> bool {
    events.iter().any(|event| matches!(event, Event::Waiting { message } if message.contains(words)))
}

/// A site whose jobs stop at their first checkpoint until `go` says that they may go on.
fn held_site(bench: &Bench, said: &Arc<Said>, what: &'static str, go: fn(&[Event]) -> bool) -> Site {
    let said = Arc::clone(said);
    bench.site_told(Arc::new(move |event: Event| {
        let is_checkpoint = matches!(event, Event::Checkpoint { .. });
        said.add(event);
        if is_checkpoint {
            said.wait_for(what, go);
        }
    }))
}

fn with_drives(drives: u32) -> Config {
    let mut config = small();
    config.library.drives = drives;
    config
}

/// Sources beside each other, each with its own files.
fn sources(bench: &Bench, count: u32) -> Vec<PathBuf> {
    let make = |number| {
        bench.fill(&format!("s{number}/file"), 4, 300_000);
        bench.source().join(format!("s{number}"))
    };
    (0..count).map(make).collect()
}

fn request(source: &Path) -> BackupRequest {
    BackupRequest { connections: 1, ..BackupRequest::of(vec![source.to_owned()]) }
}

fn backups(site: &Site, requests: &[BackupRequest]) -> Vec<Result<BackupReport, DirectorError>> {
    std::thread::scope(|scope| {
        let run = |request| scope.spawn(move || site.backup(request, &BackupWatch::default()));
        let running: Vec<_> = requests.iter().map(run).collect();
        running.into_iter().map(|job| job.join().unwrap()).collect()
    })
}

fn assert_nothing_is_reserved(bench: &Bench) {
    assert_eq!(bench.site().catalog().reservations().unwrap(), []);
}

/// All that was backed up by these, restored and compared.
fn assert_restored(bench: &Bench, objects: &[Object]) {
    for (number, object) in objects.iter().enumerate() {
        let to = format!("out-{number}");
        assert!(bench.restore(object, &to).is_whole());
        let source = PathBuf::from(String::from_utf8(object.source.clone()).unwrap());
        let restored = bench.path(&to).join(source.strip_prefix("/").unwrap());
        assert_eq!(crate::place::tree(&restored), crate::place::tree(&source));
    }
}

#[test]
fn two_backups_run_at_the_same_moment() {
    let bench = Bench::new(with_drives(2));
    let sources = sources(&bench, 2);
    let said = Arc::<Said>::default();
    // Neither can end before both have written.
    let site = held_site(&bench, &said, "both write", |events| objects_in(events).len() == 2);
    for ended in backups(&site, &[request(&sources[0]), request(&sources[1])]) {
        ended.unwrap();
    }
    drop(site);
    let objects = bench.objects();
    assert_eq!(objects.len(), 2);
    assert_restored(&bench, &objects);
    assert_nothing_is_reserved(&bench);
    // What the volumes say is what the catalog says.
    let before = bench.dump();
    bench.rebuild();
    assert_eq!(bench.dump(), before);
}

#[test]
fn the_second_waits_for_the_drive_and_says_so() {
    let bench = Bench::new(with_drives(1));
    let sources = sources(&bench, 2);
    let said = Arc::<Said>::default();
    let go = |events: &[Event]| waits(events, "the drive is in use by another job (process ");
    let site = held_site(&bench, &said, "the other waits", go);
    for ended in backups(&site, &[request(&sources[0]), request(&sources[1])]) {
        ended.unwrap();
    }
    drop(site);
    assert_restored(&bench, &bench.objects());
    assert_nothing_is_reserved(&bench);
}

#[test]
fn eight_share_three_drives() {
    let bench = Bench::new(with_drives(3));
    let sources = sources(&bench, 8);
    let requests = sources.iter().zip(1u8..).map(|(source, number)| {
        // Some write two copies, and need two drives at once.
        BackupRequest { copies: 1 + number % 2, ..request(source) }
    });
    let requests: Vec<_> = requests.collect();
    let site = bench.site();
    for level in [Level::Full, Level::Incremental] {
        bench.fill(&format!("s3/more-{level:?}"), 2, 200_000);
        let requests: Vec<_> = requests.iter().map(|request| BackupRequest { level, ..request.clone() }).collect();
        for ended in backups(&site, &requests) {
            ended.unwrap();
        }
    }
    drop(site);
    let objects = bench.objects();
    assert_eq!(objects.len(), 16);
    assert!(objects.iter().all(|object| object.status == ObjectStatus::Complete));
    assert!(bench.site().catalog().lacking_copies().unwrap().is_empty());
    assert_restored(&bench, &objects[..8]);
    assert_nothing_is_reserved(&bench);
}

#[test]
fn one_source_is_backed_up_once_at_a_time() {
    let bench = Bench::new(with_drives(2));
    let sources = sources(&bench, 1);
    let said = Arc::<Said>::default();
    let site = held_site(&bench, &said, "the other is refused", |events| waits(events, "is in use by another job"));
    std::thread::scope(|scope| {
        let first = scope.spawn(|| site.backup(&request(&sources[0]), &BackupWatch::default()));
        said.wait_for("the first writes", |events| !objects_in(events).is_empty());
        let refused = site.backup(&request(&sources[0]), &BackupWatch::default()).unwrap_err();
        assert!(matches!(&refused, DirectorError::SourceInUse { .. }), "{refused}");
        let waiting = BackupRequest { waits_for_writer: true, ..request(&sources[0]) };
        let second = site.backup(&waiting, &BackupWatch::default()).unwrap();
        let first = first.join().unwrap().unwrap();
        assert!(first.sources[0].object < second.sources[0].object && !second.sources[0].resumed);
    });
}

/// A backup kept everything else out, from `label` to `expire`, for as long as it took.
#[test]
fn everything_else_runs_beside_a_backup() {
    let bench = Bench::new(with_drives(4));
    let sources = sources(&bench, 3);
    let site = bench.site();
    site.add_pool("vault", None, None).unwrap();
    for source in [&sources[0], &sources[0], &sources[1], &sources[1]] {
        site.backup(&request(source), &BackupWatch::default()).unwrap();
    }
    // The backup gets a volume of its own: what the others need is free.
    bench.sql("UPDATE volumes SET state = 3");
    let objects = bench.objects();
    let of = |source: &PathBuf| -> Vec<Object> {
        let name = source.to_str().unwrap().as_bytes();
        objects.iter().filter(|object| object.source == name).cloned().collect()
    };
    let said = Arc::<Said>::default();
    let is_told = |events: &[Event]| {
        events.iter().any(|event| matches!(event, Event::Created { volser } if volser.as_str() == "GO0001"))
    };
    let busy = held_site(&bench, &said, "the others are done", is_told);
    let volser = |name: &str| Volser::new(name).unwrap();
    std::thread::scope(|scope| {
        let incremental = BackupRequest { level: Level::Incremental, ..request(&sources[0]) };
        bench.fill("s0/new", 1, 1_500_000);
        let backup = scope.spawn({
            let busy = &busy;
            move || busy.backup(&incremental, &BackupWatch::default())
        });
        said.wait_for("it writes", |events| !objects_in(events).is_empty());
        let writing = *objects_in(&said.events.lock().unwrap()).first().unwrap();
        let (mine, other) = (of(&sources[0]), of(&sources[1]));

        site.label(&volser("NEW001"), Some("vault"), None, Loss::Refuse, Promise::Keep).unwrap();
        site.add_pool("more", None, None).unwrap();
        let report = site.verify_volume(&volser("A00001"), &RestoreWatch::default()).unwrap();
        assert!(report.is_whole());
        let copied = site.copy_objects(&other[..1], "vault", &RestoreWatch::default()).unwrap();
        assert!(copied[0].lost.is_empty());
        assert_eq!(site.repair(&[], Shortfall::Fail, &RestoreWatch::default()).unwrap().copies, []);
        let named = |object: &Object| ExpiryRequest { named: vec![object.id], ..ExpiryRequest::default() };
        let expire = |request: &ExpiryRequest| site.expire(&site.plan_expiry(request).unwrap(), request);
        assert_eq!(expire(&named(&other[1])).unwrap().forget.len(), 1);
        site.unexpire(&[other[1].id]).unwrap();

        // What it stands on, what it writes and where are its own.
        let refused = expire(&ExpiryRequest { keep_last: 0, ..named(&mine[0]) }).unwrap_err();
        assert!(matches!(&refused, DirectorError::ObjectKept { .. }), "{refused}");
        let open = site.catalog().object(writing).unwrap().unwrap();
        let refused = site.copy_objects(&[open], "vault", &RestoreWatch::default()).unwrap_err();
        assert!(matches!(&refused, DirectorError::InUse { .. }), "{refused}");
        let held = site.catalog().reservations().unwrap();
        let volumes = held.iter().filter_map(|held| match &held.resource {
            Resource::Volume(volser) => Some(volser.clone()),
            _ => None,
        });
        let volumes: Vec<_> = volumes.collect();
        assert_eq!(volumes.len(), 1, "{held:?}");
        for refused in [
            site.erase(&volumes[0], Loss::Accept, Promise::Drop).map(drop),
            site.label(&volumes[0], None, None, Loss::Accept, Promise::Drop).map(drop),
            // It holds what the backup stands on.
            site.erase(&volser("A00001"), Loss::Accept, Promise::Drop).map(drop),
            site.remove_pool("default"),
        ] {
            let refused = refused.unwrap_err();
            assert!(matches!(&refused, DirectorError::InUse { .. }), "{refused}");
        }
        site.remove_pool("more").unwrap();

        said.add(Event::Created { volser: volser("GO0001") });
        let report = backup.join().unwrap().unwrap();
        assert_eq!(report.sources[0].base, Some(mine[0].id));
    });
    drop((site, busy));
    assert_nothing_is_reserved(&bench);
    let last = bench.objects().into_iter().find(|object| object.base.is_some()).unwrap();
    assert_restored(&bench, &[last]);
}
