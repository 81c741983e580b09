//! A backup that writes each of its copies to several drives at once, and is read from them at once.

use std::collections::BTreeSet;
use std::io;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use capstan_catalog::{CopyState, Object, ObjectStatus, Promise};

use capstan_director::{
    BackupRequest, BackupWatch, Config, DirectorError, Event, JobConfig, Level, Loss, Place, Shortfall, Site,
};
use capstan_format::{EntryKind, FileEntry, Volser};
use capstan_mover::extract::{ExtractOptions, ExtractReport};
use capstan_mover::{
    Connection, Intake, LocalSources, RestoreInto, RestoreWatch, SourceError, SourceFound, SourceHost, SourceReading,
    SourceReport, SourceRun, Stopped, StreamSink,
};

use crate::mover_elsewhere::{FromClient, Mover, at, latest, with_client};
use crate::place::{Bench, copy_tree, small, tree};

/// Longer than a mount takes on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);

fn drives(count: u32) -> Config {
    let mut config = small();
    config.library.drives = count;
    config
}

fn on_two(bench: &Bench, level: Level) -> BackupRequest {
    BackupRequest { drives: 2, connections: 4, ..bench.request(level) }
}

/// So many files that each of four connections has its first batches of them, those from a cold cache, too.
const FILES_TO_SPREAD: u32 = 4 * (32 + 128);
/// How many of them each connection has at least.
const FILES_EACH: u64 = 32;

/// Sources of this machine, of which each connection has a batch of files before any of them ends its first one:
/// otherwise one connection may have them all on a busy machine.
struct SpreadSources;

/// A connection that waits with its first file until all others have one.
struct Together<'a> {
    connection: Connection,
    start: Option<&'a Start>,
}

/// How many connections have not come, and who waits for them.
struct Start(Mutex<usize>, Condvar);

impl Start {
    fn wait(&self) {
        let mut missing = self.0.lock().unwrap();
        *missing -= 1;
        self.1.notify_all();
        let (missing, waited) = self.1.wait_timeout_while(missing, PATIENCE, |missing| *missing > 0).unwrap();
        assert!(!waited.timed_out(), "{missing} connections have no files: {FILES_TO_SPREAD} are needed");
    }
}

impl StreamSink for Together<'_> {
    fn space(&mut self) -> Result<&mut [u8], Stopped> {
        self.connection.space()
    }

    fn advance(&mut self, len: usize) {
        self.connection.advance(len);
    }

    fn position(&self) -> u64 {
        self.connection.position()
    }

    fn connection(&self) -> u16 {
        self.connection.connection()
    }

    fn left_of_chunk(&self) -> usize {
        self.connection.left_of_chunk()
    }

    fn takes_fragments(&self) -> bool {
        self.connection.takes_fragments()
    }

    fn member(&mut self, entry: FileEntry) {
        // Whoever has the directory lists its files for all.
        if entry.kind != EntryKind::Directory
            && let Some(start) = self.start.take()
        {
            start.wait();
        }
        self.connection.member(entry);
    }
}

impl SourceHost for SpreadSources {
    fn look(&self, paths: &[PathBuf]) -> Result<Vec<io::Result<SourceFound>>, SourceError> {
        LocalSources.look(paths)
    }

    fn read(&self, intake: &Intake, reading: SourceReading<'_>) -> Result<SourceReport, SourceError> {
        let start = Start(Mutex::new(reading.connections), Condvar::new());
        let numbers = (reading.first_connection..).take(reading.connections);
        let together = |number| Together { connection: intake.connection(reading.object, number), start: Some(&start) };
        let mut sinks: Vec<_> = numbers.map(together).collect();
        let (progress, on_problem) = (reading.progress, reading.on_problem);
        let run = SourceRun { began_ns: reading.began_ns, baseline: None, cut: &[], progress, on_problem };
        let report = reading.spec.read(&mut sinks, run)?;
        sinks.into_iter().try_for_each(|sink| sink.connection.finish())?;
        Ok(report)
    }

    fn is_here(&self) -> bool {
        true
    }
}

/// A full backup of which each drive has files.
fn back_up_spread(bench: &Bench, site: Site) -> (Site, Object) {
    let site = site.with_sources(Arc::new(SpreadSources));
    let report = site.backup(&on_two(bench, Level::Full), &BackupWatch::default()).unwrap();
    assert!(report.failed_copies.is_empty() && report.sources[0].report.is_ok(), "{report:?}");
    (site, latest(bench))
}

/// The volumes of each copy of an object.
fn volumes_of(site: &Site, object: &Object) -> Vec<BTreeSet<String>> {
    let copies = site.catalog().copies(object.id).unwrap();
    copies.iter().map(|copy| copy.volumes.iter().map(ToString::to_string).collect()).collect()
}

fn assert_whole(site: &Site, object: &Object) {
    assert_eq!(object.status, ObjectStatus::Complete);
    let wanted = site.catalog().wanted_copies(object.id).unwrap();
    assert!(wanted.iter().all(|copy| copy.state == CopyState::Whole), "{wanted:?}");
}

/// Waits until two volumes are mounted at the same time.
#[derive(Default)]
struct BothMounted(Mutex<u32>, Condvar);

impl BothMounted {
    fn hear(&self, event: &Event) {
        if matches!(event, Event::Mounted { .. }) {
            // Two belong together.
            let mut mounted = self.0.lock().unwrap();
            *mounted = if *mounted == 2 { 1 } else { *mounted + 1 };
            drop(mounted);
            self.1.notify_all();
            let (mounted, waited) =
                self.1.wait_timeout_while(self.0.lock().unwrap(), PATIENCE, |mounted| *mounted < 2).unwrap();
            assert!(!waited.timed_out(), "{mounted} mounted, and the other one is not beside it");
        }
    }
}

#[test]
fn one_object_goes_to_two_drives_and_comes_back_from_both_at_once() {
    for is_elsewhere in [false, true] {
        let bench = Bench::new(drives(2));
        bench.fill("a", FILES_TO_SPREAD, 12_000);
        let mover = is_elsewhere.then(|| Mover::of_library(&bench, "library"));
        let with_mover = |site: Site| match &mover {
            Some(mover) => at(mover, site),
            None => site,
        };
        let both = Arc::new(BothMounted::default());
        let heard = Arc::clone(&both);
        let site = with_mover(bench.site_told(Arc::new(move |event| heard.hear(&event))));
        let (site, full) = back_up_spread(&bench, site);
        assert_eq!(volumes_of(&site, &full), [["A00001", "A00002"].map(str::to_owned).into()]);
        assert_whole(&site, &full);

        *both.0.lock().unwrap() = 0;
        let plan = site.plan_restore(&[Place { object: full.id, paths: Vec::new() }]).unwrap();
        let to = bench.path("out");
        let report = site.restore(&plan, &to, &ExtractOptions::default(), &RestoreWatch::default()).unwrap();
        assert!(report.is_whole() && report.members > u64::from(FILES_TO_SPREAD), "{report:?}");
        assert_eq!(tree(&to.join(bench.source().strip_prefix("/").unwrap())), tree(&bench.source()));

        // What follows goes on where both end, with one drive or with two.
        let site = with_mover(bench.site());
        for (name, drives) in [("b", 1), ("c", 2)] {
            bench.fill(name, 20, 100_000);
            let request = BackupRequest { drives, ..on_two(&bench, Level::Incremental) };
            let report = site.backup(&request, &BackupWatch::default()).unwrap();
            assert!(report.sources[0].report.is_ok(), "{report:?}");
            let (object, used) = (latest(&bench), usize::from(drives));
            assert_whole(&site, &object);
            assert_eq!(volumes_of(&site, &object)[0].len(), used);
        }
        drop(site);
        bench.assert_restores(&latest(&bench), "all");
        let dump = bench.dump();
        bench.rebuild();
        assert_eq!(bench.dump(), dump);
        bench.assert_restores(&latest(&bench), "rebuilt");
    }
}

/// The client opens its connections to the mover, which gives each of them to a drive.
#[test]
fn what_a_client_brings_goes_to_two_drives() {
    let bench = Bench::new(drives(2));
    bench.fill("a", 80, 100_000);
    let way = FromClient::new(Mover::of_library(&bench, "library"));
    let report = with_client(&way, None, |job| {
        let site = at(&way.mover, bench.site()).for_client("web1").with_sources(Arc::new(job) as Arc<dyn SourceHost>);
        site.backup(&on_two(&bench, Level::Full), &BackupWatch::default()).unwrap()
    });
    assert!(report.failed_copies.is_empty() && report.sources[0].report.is_ok(), "{report:?}");
    assert_eq!(way.to_mover.load(Ordering::Relaxed), 4, "connections");
    let object = latest(&bench);
    assert_whole(&bench.site(), &object);
    assert_eq!(volumes_of(&bench.site(), &object)[0].len(), 2);
    bench.assert_restores(&object, "out");
}

/// With drives at a mover, and with the server's own; and a client of the version before, which takes one volume after
/// the other.
#[test]
fn a_client_gets_back_from_two_drives_at_once() {
    for (is_elsewhere, is_old) in [(true, false), (false, false), (true, true), (false, true)] {
        let bench = Bench::new(drives(2));
        bench.fill("a", FILES_TO_SPREAD, 12_000);
        let (_, full) = back_up_spread(&bench, bench.site());
        let way = FromClient::new(Mover::of_library(&bench, "library"));
        let way = if is_old { way.old() } else { way };
        let both = Arc::new(BothMounted::default());
        let heard = Arc::clone(&both);
        let site = match is_old {
            true => bench.site(),
            false => bench.site_told(Arc::new(move |event| heard.hear(&event))),
        };
        let site = if is_elsewhere { at(&way.mover, site) } else { site };
        let to = bench.path("at-the-client");
        let files = Mutex::new(Vec::new());
        let told = |report: &ExtractReport| files.lock().unwrap().push(report.files);
        let into = RestoreInto { directory: &to, options: ExtractOptions::default(), told: &told };
        let report = with_client(&way, Some(into), |job| {
            let plan = site.plan_restore(&[Place { object: full.id, paths: Vec::new() }]).unwrap();
            site.restore_to_client(&plan, &job, &RestoreWatch::default()).unwrap()
        });
        assert!(report.is_whole() && report.members > u64::from(FILES_TO_SPREAD), "{report:?}");
        assert_eq!(*files.lock().unwrap(), [u64::from(FILES_TO_SPREAD)], "it is finished once");
        assert_eq!(tree(&to.join(bench.source().strip_prefix("/").unwrap())), tree(&bench.source()));
        let came = [&way.to_mover, &way.to_server].map(|count| count.load(Ordering::Relaxed));
        // One is for orders, and one for the word that this is all.
        assert_eq!(came, if is_elsewhere { [2, 2] } else { [0, 4] });
    }
}

#[test]
fn twin_copies_have_two_drives_each() {
    let bench = Bench::new(drives(4));
    bench.fill("a", 60, 100_000);
    let site = bench.site();
    let request = BackupRequest { copies: 2, ..on_two(&bench, Level::Full) };
    let report = site.backup(&request, &BackupWatch::default()).unwrap();
    assert!(report.failed_copies.is_empty(), "{report:?}");
    let object = latest(&bench);
    assert_whole(&site, &object);
    let copies = volumes_of(&site, &object);
    assert_eq!(copies.iter().map(BTreeSet::len).collect::<Vec<_>>(), [2, 2]);
    assert!(copies[0].is_disjoint(&copies[1]));
    let verified = site.verify_objects(&[object], &RestoreWatch::default()).unwrap();
    assert!(verified.len() == 2 && verified.iter().all(|copy| copy.report.is_whole()), "{verified:?}");
}

/// Two restores that want the same volume, with one drive: the second joins the first, and the volume is mounted once.
#[test]
fn restores_of_one_volume_read_it_together() {
    for is_elsewhere in [false, true] {
        let bench = Bench::new(drives(1));
        bench.fill("a", 200, 60_000);
        let requests = [bench.request(Level::Full), bench.request(Level::Full)];
        let objects = requests.map(|request| {
            let report = bench.backup(&request).unwrap();
            assert!(report.sources[0].report.is_ok(), "{report:?}");
            latest(&bench)
        });
        let mover = Mover::of_library(&bench, "library");
        let (mounted, together) = (Arc::new(AtomicU32::new(0)), Arc::new((Mutex::new(false), Condvar::new())));
        let (counted, came) = (Arc::clone(&mounted), Arc::clone(&together));
        let site = bench.site_told(Arc::new(move |event| match event {
            // The first has it in the drive, and reads when the other one has come.
            Event::Mounted { .. } => {
                counted.fetch_add(1, Ordering::Relaxed);
                let has_come = came.0.lock().unwrap();
                let (has_come, waited) = came.1.wait_timeout_while(has_come, PATIENCE, |came| !*came).unwrap();
                assert!(*has_come && !waited.timed_out(), "the other one does not come");
            }
            Event::Notice { message } if message.contains("they read it together") => {
                *came.0.lock().unwrap() = true;
                came.1.notify_all();
            }
            _ => {}
        }));
        let site = if is_elsewhere { at(&mover, site) } else { site };
        std::thread::scope(|scope| {
            for (number, object) in objects.iter().enumerate() {
                let (site, bench, mover) = (&site, &bench, Arc::clone(&mover));
                scope.spawn(move || {
                    let to = bench.path(&format!("at-client-{number}"));
                    let way = FromClient::new(mover);
                    let into = RestoreInto { directory: &to, options: ExtractOptions::default(), told: &|_| () };
                    let report = with_client(&way, Some(into), |job| {
                        let plan = site.plan_restore(&[Place { object: object.id, paths: Vec::new() }]).unwrap();
                        site.restore_to_client(&plan, &job, &RestoreWatch::default()).unwrap()
                    });
                    assert!(report.is_whole(), "{report:?}");
                    assert_eq!(tree(&to.join(bench.source().strip_prefix("/").unwrap())), tree(&bench.source()));
                });
            }
        });
        assert_eq!(mounted.load(Ordering::Relaxed), 1, "it was mounted once");
        // Nobody has it any more.
        let volser = site.catalog().volumes().unwrap().remove(0).volser;
        assert!(site.verify_volume(&volser, &RestoreWatch::default()).is_ok());
    }
}

/// A volume says that an object is complete: then all of it is on volumes, whenever the machine dies.
#[test]
fn no_volume_says_that_an_object_is_complete_before_the_other_has_its_part() {
    // One drive is late: each of them, for which one is the object's home is not known.
    for late in 0..4 {
        let bench = Bench::new(drives(2));
        bench.fill("a", 40, 60_000);
        let (slots, saved) = (bench.path("state/library/slots"), bench.path("saved"));
        let (mounted, count) = (AtomicU32::new(0), Arc::new(AtomicU32::new(0)));
        let counted = Arc::clone(&count);
        let site = bench.site_told(Arc::new(move |event| match event {
            Event::Mounted { .. } if mounted.fetch_add(1, Ordering::Relaxed) == late % 2 => {
                std::thread::sleep(Duration::from_millis(300));
            }
            // As the machine would leave it: the other drive writes meanwhile.
            Event::Checkpoint { .. } => {
                let number = counted.fetch_add(1, Ordering::Relaxed);
                copy_tree(&slots, &saved.with_extension(number.to_string()));
            }
            _ => {}
        }));
        let report = site.backup(&on_two(&bench, Level::Full), &BackupWatch::default()).unwrap();
        assert!(report.sources[0].report.is_ok());
        drop(site);
        let count = count.load(Ordering::Relaxed);
        assert!(count >= 2, "{count} checkpoints");
        let mut complete = 0;
        for number in 0..count {
            bench.put_back(&format!("saved.{number}"), "state/library/slots");
            bench.rebuild();
            for object in bench.objects().iter().filter(|object| object.status == ObjectStatus::Complete) {
                complete += 1;
                bench.assert_restores(object, &format!("out-{number}"));
            }
        }
        assert!(complete > 0, "the last checkpoint has the whole object");
    }
}

/// Whoever has one volume of an object knows that the other one is missing: with the one that calls it complete, and
/// with the other one.
#[test]
fn a_catalog_made_from_one_of_the_volumes_knows_that_a_part_is_missing() {
    let bench = Bench::new(drives(2));
    bench.fill("a", FILES_TO_SPREAD, 5_000);
    let (_, object) = back_up_spread(&bench, bench.site());
    let mut complete = 0;
    for (away, there) in [("A00001", "A00002"), ("A00002", "A00001")] {
        std::fs::rename(bench.cartridge(away), bench.path(away)).unwrap();
        bench.rebuild();
        let (known, site) = (latest(&bench), bench.site());
        assert_eq!(known.id, object.id);
        complete += u32::from(known.status == ObjectStatus::Complete);
        let mended = site.repair(&[], Shortfall::Fail, &RestoreWatch::default()).unwrap();
        let wanted = site.catalog().wanted_copies(object.id).unwrap();
        assert!(wanted.iter().all(|copy| copy.state != CopyState::Whole), "{there}: {wanted:?}, {mended:?}");
        let report = bench.restore(&known, &format!("with-{there}"));
        assert!(known.status != ObjectStatus::Complete || !report.is_whole(), "{there}: {report:?}");
        std::fs::rename(bench.path(away), bench.cartridge(away)).unwrap();
    }
    assert_eq!(complete, 1, "one volume calls it complete");
    bench.rebuild();
    assert_whole(&bench.site(), &latest(&bench));
    bench.assert_restores(&latest(&bench), "both");
}

/// The same of what was interrupted, and gone on with on another volume.
#[test]
fn a_catalog_made_from_the_last_volume_of_a_resumed_object_knows_that_a_part_is_missing() {
    for drives_used in [1, 2] {
        let bench = Bench::new(drives(2));
        bench.fill("a", 200, 150_000);
        let request = BackupRequest { drives: drives_used, ..on_two(&bench, Level::Full) };
        bench.interrupted(&request, 4, |_| ());
        let before: Vec<_> =
            bench.site().catalog().volumes().unwrap().into_iter().map(|volume| volume.volser).collect();
        bench.sql("UPDATE volumes SET state = 3");
        let report = bench.backup(&request).unwrap();
        assert!(report.sources[0].resumed, "{report:?}");
        for volser in &before {
            std::fs::remove_file(bench.cartridge(volser.as_str())).unwrap();
        }
        bench.rebuild();
        let object = latest(&bench);
        assert_eq!(object.status, ObjectStatus::Complete);
        bench.site().repair(&[], Shortfall::Fail, &RestoreWatch::default()).unwrap();
        let wanted = bench.site().catalog().wanted_copies(object.id).unwrap();
        assert!(wanted.iter().all(|copy| copy.state != CopyState::Whole), "{wanted:?}");
        let restored = bench.restore(&object, "rest");
        assert!(restored.failed.iter().any(|file| file.reason.contains("may be missing")), "{:?}", restored.failed);
    }
}

/// The second copy finds no further volume for one of its drives, while the first goes on: none of its volumes says
/// that the object is complete.
#[test]
fn a_copy_that_fails_at_one_of_its_drives_is_complete_on_none_of_its_volumes() {
    let mut config = drives(4);
    config.library.volumes_max = 0;
    let bench = Bench::new(config);
    let site = bench.site();
    site.add_pool("default-copy2", None, None).unwrap();
    let label = |site: &Site, name: &str, mib: u64| {
        let pool = if name.starts_with('A') { "default" } else { "default-copy2" };
        let volser = Volser::new(name).unwrap();
        site.label(&volser, Some(pool), Some(mib << 20), Loss::Refuse, Promise::Keep).unwrap();
    };
    for (name, mib) in [("A00001", 64), ("A00002", 64), ("B00001", 64), ("B00002", 2)] {
        label(&site, name, mib);
    }
    let len = 50_000;
    assert!(FILES_EACH * 2 * len > 2 << 20, "what a drive has at least is too much for one of the volumes");
    bench.fill("a", FILES_TO_SPREAD, len as usize);
    let request = BackupRequest { copies: 2, ..on_two(&bench, Level::Full) };
    let report = site.with_sources(Arc::new(SpreadSources)).backup(&request, &BackupWatch::default()).unwrap();
    assert_eq!(report.failed_copies.iter().map(|(copy, _)| *copy).collect::<Vec<_>>(), [2], "{report:?}");
    let object = latest(&bench);
    assert_eq!(object.status, ObjectStatus::Complete);
    for name in ["A00001", "A00002"] {
        std::fs::rename(bench.cartridge(name), bench.path(name)).unwrap();
    }
    bench.rebuild();
    assert_eq!(latest(&bench).status, ObjectStatus::Open, "of what there is");
    for name in ["A00001", "A00002"] {
        std::fs::rename(bench.path(name), bench.cartridge(name)).unwrap();
    }
    bench.rebuild();
    let site = bench.site();
    label(&site, "B00003", 64);
    let mended = site.repair(&[], Shortfall::Fail, &RestoreWatch::default()).unwrap();
    assert!(mended.first_failure.is_none(), "{mended:?}");
    assert_whole(&site, &latest(&bench));
    let verified = site.verify_objects(&[latest(&bench)], &RestoreWatch::default()).unwrap();
    assert!(verified.len() == 2 && verified.iter().all(|copy| copy.report.is_whole()), "{verified:?}");
}

#[test]
fn what_was_interrupted_at_two_drives_goes_on() {
    for behind in [0, 1, 2] {
        let bench = Bench::new(drives(2));
        bench.fill("a", 200, 100_000);
        let (state, saved) = (bench.path("state/catalog"), bench.path("saved"));
        let seen = Arc::new(AtomicU32::new(0));
        let count_seen = Arc::clone(&seen);
        bench.interrupted(&on_two(&bench, Level::Full), 6, move |count| {
            copy_tree(&state, &saved.with_extension(count.to_string()));
            count_seen.store(count, Ordering::Relaxed);
        });
        if behind > 0 {
            // What was flushed last was not recorded.
            let last = seen.load(Ordering::Relaxed);
            bench.put_back(&format!("saved.{}", last - behind), "state/catalog");
        }
        // It may go on with one drive, too.
        let request = BackupRequest { drives: 1 + (behind % 2) as u8, ..on_two(&bench, Level::Full) };
        let report = bench.backup(&request).unwrap();
        assert!(report.sources[0].resumed && report.sources[0].report.is_ok(), "{behind} behind: {report:?}");
        let object = latest(&bench);
        assert_whole(&bench.site(), &object);
        bench.assert_restores(&object, "out");
        bench.rebuild();
        bench.assert_restores(&latest(&bench), "rebuilt");
    }
}

#[test]
fn a_pool_that_has_a_volume_for_one_drive_gets_one_and_says_so() {
    let mut config = drives(2);
    config.library.volumes_max = 1;
    let bench = Bench::new(config);
    bench.fill("a", 20, 100_000);
    bench.backup(&on_two(&bench, Level::Full)).unwrap();
    let object = latest(&bench);
    assert_eq!(volumes_of(&bench.site(), &object)[0].len(), 1);
    let notices = bench.notices.lock().unwrap().clone();
    assert!(notices.iter().any(|notice| notice.contains("has volumes for 1 of them")), "{notices:?}");
    bench.assert_restores(&object, "out");
}

/// One drive finds no further volume: nothing more is read, and the next attempt goes on from what both have.
#[test]
fn a_drive_that_cannot_go_on_ends_the_session_and_nothing_is_lost() {
    let mut config = drives(2);
    config.library.volume_mib = 8;
    config.library.volumes_max = 3;
    let bench = Bench::new(config);
    bench.fill("a", 400, 100_000);
    let ended = bench.backup(&on_two(&bench, Level::Full));
    assert!(
        matches!(&ended, Err(DirectorError::SessionFailed { lacks_volume: true, .. }))
            || format!("{ended:?}").contains("NoVolume"),
        "{ended:?}"
    );
    assert_eq!(latest(&bench).status, ObjectStatus::Open);
    let settings = bench.path("state/capstan.toml");
    let text = std::fs::read_to_string(&settings).unwrap();
    std::fs::write(&settings, text.replacen("volumes_max = 3", "volumes_max = 20", 1)).unwrap();
    let report = bench.backup(&on_two(&bench, Level::Full)).unwrap();
    assert!(report.sources[0].resumed, "{report:?}");
    assert_whole(&bench.site(), &latest(&bench));
    bench.assert_restores(&latest(&bench), "out");
}

#[test]
fn a_job_uses_as_many_drives_as_its_last_backup_had_use_for() {
    let mut config = drives(4);
    config.data.drive_worthwhile_gib = 0;
    let bench = Bench::new(config);
    bench.fill("a", 10, 1000);
    let incremental = JobConfig {
        sources: vec![bench.source()],
        drives: Some(3),
        full_every: Some("4w".to_owned()),
        ..JobConfig::default()
    };
    let needed = |job: &JobConfig| bench.site().drives_needed(job, &latest_client(&bench)).unwrap();
    let first = bench.site().drives_needed(&incremental, "nobody").unwrap();
    assert_eq!(first, 3, "nobody knows what there is");
    bench.backup(&bench.request(Level::Full)).unwrap();
    let full = JobConfig { full_every: None, ..incremental.clone() };
    assert_eq!((needed(&full), needed(&incremental)), (3, 1));
    let few = JobConfig { drives: None, ..full };
    assert_eq!(needed(&few), 1);
    bench.fill("b", 10, 1000);
    bench.backup(&bench.request(Level::Incremental)).unwrap();
    assert_eq!(needed(&incremental), 3, "10,000 bytes are a drive's worth for each here");
}

/// What was backed up before was looked for under the host's name, whatever machine the sources are of.
#[test]
fn a_small_backup_of_another_machine_uses_one_drive_from_the_second_time_on() {
    let bench = Bench::new(drives(2));
    bench.fill("a", 10, 1000);
    let site = bench.site().for_client("web1");
    let request = BackupRequest { drives_by_need: true, ..on_two(&bench, Level::Full) };
    for used in [2, 1] {
        site.backup(&request, &BackupWatch::default()).unwrap();
        assert_eq!(volumes_of(&site, &latest(&bench))[0].len(), used);
    }
}

fn latest_client(bench: &Bench) -> String {
    latest(bench).client
}
