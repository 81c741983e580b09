//! Backups that are interrupted, volumes that fill, copies that fall behind: what is reported as protected comes back.

use std::fs;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use capstan_catalog::{Object, ObjectStatus, Promise, VolumeState};
use capstan_director::{
    BackupRequest, BackupWatch, DirectorError, Event, Level, Loss, Retention, Shortfall, VerifiedCopy,
};
use capstan_format::Volser;
use capstan_mover::RestoreWatch;

use crate::place::{Bench, copy_tree, small};

fn volser(name: &str) -> Volser {
    Volser::new(name).unwrap()
}

#[test]
fn an_interrupted_backup_goes_on_and_restores() {
    let bench = Bench::new(small());
    bench.fill("a", 100, 150_000);
    bench.interrupted(&bench.request(Level::Full), 3, |_| ());
    assert_eq!(bench.objects()[0].status, ObjectStatus::Open);
    let report = bench.backup(&bench.request(Level::Full)).unwrap();
    assert!(report.sources[0].resumed);
    let objects = bench.objects();
    assert_eq!((objects.len(), objects[0].status), (1, ObjectStatus::Complete));
    bench.assert_restores(&objects[0], "out");
    let site = bench.site();
    let verified = site.verify_objects(std::slice::from_ref(&objects[0]), &Default::default()).unwrap();
    assert!(verified.iter().all(|copy| copy.report.is_whole()), "{verified:?}");
}

/// An archive that is kept for ten years went on with what a job had begun that keeps for a day, and was forgotten
/// after the day.
#[test]
fn what_another_policy_began_is_not_gone_on_with() {
    let bench = Bench::new(small());
    bench.fill("a", 100, 150_000);
    let day_ns = 86_400_000_000_000;
    let of = |policy: &str, days: i64| BackupRequest {
        policy: policy.to_owned(),
        retention: Retention::For(days * day_ns),
        ..bench.request(Level::Full)
    };
    bench.interrupted(&of("short", 1), 3, |_| ());
    let report = bench.backup(&of("archive", 3650)).unwrap();
    assert!(!report.sources[0].resumed);
    assert!(bench.notices.lock().unwrap().iter().any(|notice| notice.contains("it is of policy short")));
    let archived = bench.objects().into_iter().find(|object| object.id == report.sources[0].object).unwrap();
    assert_eq!((archived.policy.as_str(), archived.expires_ns - archived.started_ns), ("archive", 3650 * day_ns));
}

#[test]
fn what_is_gone_on_with_is_kept_as_long_as_the_longer_of_both_runs_asks() {
    let bench = Bench::new(small());
    bench.fill("a", 100, 150_000);
    let day_ns = 86_400_000_000_000;
    let keep = |days: i64| BackupRequest { retention: Retention::For(days * day_ns), ..bench.request(Level::Full) };
    bench.interrupted(&keep(1), 3, |_| ());
    assert!(bench.backup(&keep(10)).unwrap().sources[0].resumed);
    let [object] = &bench.objects()[..] else { panic!("one object") };
    assert!(object.expires_ns - object.started_ns >= 10 * day_ns, "{}", object.expires_ns - object.started_ns);
    bench.rebuild();
    assert_eq!(bench.objects()[0].expires_ns, object.expires_ns);
}

#[test]
fn a_resumed_run_never_uses_the_number_of_a_connection_that_only_the_volume_knows() {
    // A run was killed between the flush of a checkpoint and its commit. The next run numbered its connections by the
    // catalog alone, and two streams of one object had one number: what was flushed could not be read any more.
    let bench = Bench::new(small());
    bench.fill("a", 200, 150_000);
    let (catalog, saved) = (bench.path("state/catalog"), bench.path("saved"));
    bench.interrupted(&bench.request(Level::Full), 2, |_| ());
    // The second run's checkpoints all come after the copy of the catalog.
    copy_tree(&catalog, &saved);
    bench.interrupted(&bench.request(Level::Full), 2, |_| ());
    bench.put_back("saved", "state/catalog");
    let report = bench.backup(&bench.request(Level::Full)).unwrap();
    assert!(report.sources[0].resumed);
    let objects = bench.objects();
    assert_eq!((objects.len(), objects[0].status), (1, ObjectStatus::Complete));
    bench.assert_restores(&objects[0], "out");
    assert!(fs::read_dir(bench.path("out")).unwrap().count() > 0);
}

#[test]
fn a_volume_is_kept_that_holds_what_another_copy_lost() {
    // Whether a volume may be erased was decided by there being another copy, though that was only part of one: first a
    // volume of copy 1 was erased, then, without a word, the volume of copy 2 that held the same.
    let mut config = small();
    config.library.volume_mib = 30;
    let bench = Bench::new(config);
    bench.fill("a", 200, 150_000);
    let mut request = bench.request(Level::Full);
    request.copies = 2;
    bench.backup(&request).unwrap();
    let object = bench.objects().remove(0);
    let site = bench.site();
    let copies = site.catalog().copies(object.id).unwrap();
    assert!(copies[0].volumes.len() > 1, "{copies:?}");
    site.erase(&copies[0].volumes[0], Loss::Refuse, Promise::Keep).unwrap();
    let second = site.erase(&copies[1].volumes[0], Loss::Refuse, Promise::Keep);
    assert!(matches!(second, Err(DirectorError::VolumeHoldsData { .. })), "{second:?}");
    drop(site);
    bench.assert_restores(&object, "out");
}

#[test]
fn a_source_that_is_named_twice_is_taken_up_once() {
    // Both jobs took up the one object that an earlier run had left open, on connections of the same numbers.
    let bench = Bench::new(small());
    bench.fill("a", 200, 150_000);
    bench.interrupted(&bench.request(Level::Full), 2, |_| ());
    let mut request = bench.request(Level::Full);
    request.connections = 4;
    request.sources.push(bench.source());
    bench.backup(&request).unwrap();
    bench.assert_restores(&bench.objects()[0], "out");
}

/// Labels a volume, saves the catalog, backs up, and puts the older catalog back; gives the object that it does not
/// know.
pub(crate) fn with_an_older_catalog(pool: Option<&str>) -> (Bench, Object) {
    let bench = Bench::new(small());
    bench.site().label(&volser("A00001"), pool, None, Loss::Refuse, Promise::Keep).unwrap();
    copy_tree(&bench.path("state/catalog"), &bench.path("saved"));
    bench.fill("a", 5, 150_000);
    bench.backup(&bench.request(Level::Full)).unwrap();
    let first = bench.objects().remove(0);
    bench.put_back("saved", "state/catalog");
    (bench, first)
}

/// Another tree is backed up then: both must be there.
fn an_older_catalog(pool: Option<&str>) {
    let (bench, first) = with_an_older_catalog(pool);
    bench.fill("b", 5, 150_000);
    bench.backup(&bench.request(Level::Full)).unwrap();
    bench.rebuild();
    assert_eq!(bench.objects().len(), 2);
    let report = bench.restore(&first, "out");
    assert!(report.is_whole(), "{:?}", report.failed);
}

#[test]
fn a_scratch_volume_that_was_written_since_is_not_written_over() {
    // A catalog from before a backup was put back. It took the volume for scratch, and the next backup labelled it
    // anew.
    an_older_catalog(None);
}

#[test]
fn an_empty_volume_of_the_pool_that_was_written_since_is_appended_to() {
    // The same with a volume that had been labelled for the pool and was still empty.
    an_older_catalog(Some("default"));
}

#[test]
fn blocks_longer_than_a_twentieth_of_the_volume_leave_room_for_the_checkpoint() {
    // The reserve behind early warning was a twentieth of the volume. One block could take all of it, the checkpoint
    // found no room, and each further run came to the same end.
    let mut config = small();
    config.library.volume_mib = 5;
    config.data.block_kib = 511;
    config.data.checkpoint_mib = 64;
    let bench = Bench::new(config);
    bench.fill("a", 6000, 600);
    bench.backup(&bench.request(Level::Full)).unwrap();
    bench.assert_restores(&bench.objects()[0], "out");
}

#[test]
fn a_run_that_finds_no_room_for_a_checkpoint_does_not_come_to_the_same_end_again() {
    // A cartridge from elsewhere with a small reserve: the run fails, the next one goes on on another volume.
    let mut config = small();
    config.data.block_kib = 4;
    config.data.checkpoint_mib = 64;
    let bench = Bench::new(config);
    let spec = capstan_tape::CartridgeSpec {
        volser: volser("A00001"),
        capacity_bytes: 4 << 20,
        early_warning_bytes: 100,
        generation: "virtual".to_owned(),
    };
    spec.create(&bench.path("state/library/slots/A00001.tape")).unwrap();
    bench.site().label(&volser("A00001"), Some("default"), None, Loss::Refuse, Promise::Keep).unwrap();
    bench.fill("a", 6000, 600);
    let first = bench.backup(&bench.request(Level::Full));
    assert!(first.is_err(), "{first:?}");
    bench.backup(&bench.request(Level::Full)).unwrap();
    bench.assert_restores(&bench.objects()[0], "out");
}

#[test]
fn a_copy_of_an_object_that_was_interrupted_is_not_complete() {
    // Copying an object that a run had left open ended it: it was complete from then on, with half of its files.
    let bench = Bench::new(small());
    bench.fill("a", 200, 150_000);
    bench.interrupted(&bench.request(Level::Full), 2, |_| ());
    let site = bench.site();
    site.add_pool("vault", None, None).unwrap();
    let object = site.catalog().objects(&capstan_catalog::ObjectFilter::default()).unwrap().remove(0);
    site.copy_objects(std::slice::from_ref(&object), "vault", &RestoreWatch::default()).unwrap();
    drop(site);
    assert_eq!(bench.objects()[0].status, ObjectStatus::Open);
    bench.backup(&bench.request(Level::Full)).unwrap();
    bench.assert_restores(&bench.objects()[0], "out");
}

#[test]
fn an_object_is_not_taken_up_in_another_pool() {
    // Only the volumes of the pool that was named are read before connections are numbered. What a killed run had
    // flushed on another pool's came to light later, with the numbers of connections that were used again meanwhile.
    let bench = Bench::new(small());
    bench.fill("a", 200, 150_000);
    bench.site().add_pool("other", None, None).unwrap();
    bench.interrupted(&bench.request(Level::Full), 2, |_| ());
    copy_tree(&bench.path("state/catalog"), &bench.path("saved"));
    bench.interrupted(&bench.request(Level::Full), 2, |_| ());
    bench.put_back("saved", "state/catalog");
    let mut request = bench.request(Level::Full);
    request.pool = "other".to_owned();
    bench.backup(&request).unwrap();
    bench.rebuild();
    let complete: Vec<_> = bench.objects().into_iter().filter(|o| o.status == ObjectStatus::Complete).collect();
    assert_eq!(complete.len(), 1);
    bench.assert_restores(&complete[0], "out");
}

#[test]
fn a_damaged_volume_does_not_keep_an_interrupted_backup_from_being_done() {
    // Before a run took up an interrupted object all volumes of the pool were read, and one with a damaged checkpoint
    // ended every run; and what stood in front of the damage could have had the numbers of connections that are used
    // next.
    let bench = Bench::new(small());
    bench.fill("a", 200, 150_000);
    bench.interrupted(&bench.request(Level::Full), 2, |_| ());
    copy_tree(&bench.path("state/catalog"), &bench.path("saved"));
    bench.interrupted(&bench.request(Level::Full), 2, |_| ());
    bench.put_back("saved", "state/catalog");
    let cartridge = bench.cartridge("A00001");
    let mut bytes = fs::read(&cartridge).unwrap();
    // The last record is a filemark of 36 bytes, before it the checkpoint.
    let at = bytes.len() - 36 - 20;
    bytes[at] ^= 1;
    fs::write(&cartridge, bytes).unwrap();
    bench.backup(&bench.request(Level::Full)).unwrap();
    let complete: Vec<_> = bench.objects().into_iter().filter(|o| o.status == ObjectStatus::Complete).collect();
    bench.assert_restores(&complete[0], "out");
    bench.rebuild();
    bench.assert_restores(&complete[0], "again");
}

#[test]
fn a_twin_that_ran_out_of_volumes_is_mended_and_then_suffices_alone() {
    // What a twin lacked was copied with the entries of members only. Of an incremental it lacked what tells of deleted
    // files: a catalog rebuilt from the twin alone gave them back.
    let mut config = small();
    config.library.volumes_max = 0;
    let bench = Bench::new(config);
    let site = bench.site();
    site.add_pool("default-copy2", None, None).unwrap();
    site.label(&volser("A00001"), Some("default"), Some(64 << 20), Loss::Refuse, Promise::Keep).unwrap();
    site.label(&volser("B00001"), Some("default-copy2"), Some(64 << 20), Loss::Refuse, Promise::Keep).unwrap();
    drop(site);
    bench.fill("a", 20, 150_000);
    let mut request = bench.request(Level::Full);
    request.copies = 2;
    bench.backup(&request).unwrap();
    // The full one fits, the incremental's twin does not: its volume is small.
    bench.site().label(&volser("B00002"), Some("default-copy2"), Some(20 << 20), Loss::Refuse, Promise::Keep).unwrap();
    let full = |volume: &mut capstan_catalog::Volume| volume.state = VolumeState::Full;
    bench.site().catalog().update_volume(&volser("B00001"), full).unwrap();
    bench.fill("b", 200, 150_000);
    for number in 0..5 {
        fs::remove_file(bench.source().join(format!("a-{number}"))).unwrap();
    }
    let mut request = bench.request(Level::Incremental);
    request.copies = 2;
    let report = bench.backup(&request).unwrap();
    assert_eq!(report.failed_copies.len(), 1, "{:?}", report.failed_copies);
    let site = bench.site();
    site.label(&volser("B00003"), Some("default-copy2"), Some(64 << 20), Loss::Refuse, Promise::Keep).unwrap();
    let repaired = site.repair(&[], Shortfall::Fail, &RestoreWatch::default()).unwrap();
    assert!(repaired.copies.len() == 1 && repaired.first_failure.is_none(), "{repaired:?}");
    let object = bench.objects().remove(0);
    for VerifiedCopy { copy, report, .. } in
        site.verify_objects(std::slice::from_ref(&object), &RestoreWatch::default()).unwrap()
    {
        assert!(report.is_whole() && report.behind == 0, "copy {copy}: {report:?}");
    }
    drop(site);
    fs::rename(bench.cartridge("A00001"), bench.path("away")).unwrap();
    bench.assert_restores(&object, "out");
    bench.rebuild();
    bench.assert_restores(&object, "again");
}

#[test]
fn hundreds_of_connections_with_little_memory_come_to_an_end() {
    let mut config = small();
    config.data.compression_level = 1;
    config.data.buffer_mib = 1;
    let bench = Bench::new(config);
    bench.fill("d/a", 600, 20_000);
    let mut request = bench.request(Level::Full);
    request.connections = 256;
    bench.backup(&request).unwrap();
    bench.assert_restores(&bench.objects()[0], "out");
}

#[test]
fn an_object_under_another_block_length_is_begun_anew() {
    let bench = Bench::new(small());
    bench.fill("a", 200, 150_000);
    bench.interrupted(&bench.request(Level::Full), 2, |_| ());
    let path = bench.path("state/capstan.toml");
    let text = fs::read_to_string(&path).unwrap().replace("block_kib = 64", "block_kib = 32");
    fs::write(&path, text).unwrap();
    let report = bench.backup(&bench.request(Level::Full)).unwrap();
    assert!(!report.sources[0].resumed);
    bench.assert_restores(&bench.objects()[0], "out");
}

#[test]
fn a_point_in_time_is_that_point() {
    use std::os::unix::fs::MetadataExt;
    let bench = Bench::new(small());
    bench.fill("a", 10, 1000);
    fs::hard_link(bench.source().join("a-0"), bench.source().join("link")).unwrap();
    bench.backup(&bench.request(Level::Full)).unwrap();
    fs::remove_file(bench.source().join("a-1")).unwrap();
    fs::rename(bench.source().join("a-2"), bench.source().join("renamed")).unwrap();
    fs::hard_link(bench.source().join("a-3"), bench.source().join("link-3")).unwrap();
    fs::write(bench.source().join("a-4"), b"new").unwrap();
    bench.backup(&bench.request(Level::Incremental)).unwrap();
    let object = bench.objects().remove(0);
    bench.assert_restores(&object, "out");
    let below = bench.path("out").join(bench.source().strip_prefix("/").unwrap());
    let inode = |name: &str| fs::metadata(below.join(name)).unwrap().ino();
    assert_eq!(inode("a-0"), inode("link"));
    assert_eq!(inode("a-3"), inode("link-3"));
    fs::remove_file(bench.source().join("link-3")).unwrap();
    fs::write(bench.source().join("a-1"), b"back").unwrap();
    bench.backup(&bench.request(Level::Incremental)).unwrap();
    bench.assert_restores(&bench.objects()[0], "third");
    bench.rebuild();
    bench.assert_restores(&bench.objects()[0], "fourth");
}

#[test]
fn what_one_copy_lost_comes_from_the_other_also_on_rebuild() {
    let bench = Bench::new(small());
    bench.fill("a", 60, 150_000);
    let mut request = bench.request(Level::Full);
    request.copies = 2;
    bench.backup(&request).unwrap();
    let object = bench.objects().remove(0);
    let copies = bench.site().catalog().copies(object.id).unwrap();
    let first = bench.cartridge(copies[0].volumes[0].as_str());
    let mut bytes = fs::read(&first).unwrap();
    for at in (5000..bytes.len()).step_by(40_000) {
        bytes[at] ^= 4;
    }
    fs::write(&first, bytes).unwrap();
    bench.assert_restores(&object, "out");
    bench.rebuild();
    bench.assert_restores(&object, "again");
    fs::remove_file(&first).unwrap();
    bench.assert_restores(&object, "third");
    let second = bench.cartridge(copies[1].volumes[0].as_str());
    fs::rename(&second, bench.path("away")).unwrap();
    let report = bench.restore(&object, "none");
    assert!(!report.is_whole());
    assert_eq!(report.failed.len(), 61);
}

#[test]
fn a_path_that_comes_twice_in_an_object_is_the_later_one() {
    let bench = Bench::new(small());
    bench.fill("a", 200, 150_000);
    bench.interrupted(&bench.request(Level::Full), 3, |_| ());
    let stored = {
        let site = bench.site();
        let object = site.catalog().objects(&capstan_catalog::ObjectFilter::default()).unwrap().remove(0);
        let index = site.catalog().index(object.id).unwrap();
        let entries: Vec<_> = index.iter().map(Result::unwrap).collect();
        entries.into_iter().find(|entry| entry.size == 150_000).unwrap()
    };
    let changed = std::path::Path::new("/").join(std::str::from_utf8(&stored.path).unwrap());
    fs::write(&changed, b"later").unwrap();
    let report = bench.backup(&bench.request(Level::Full)).unwrap();
    assert!(report.sources[0].resumed);
    let object = bench.objects().remove(0);
    bench.assert_restores(&object, "out");
    let site = bench.site();
    let mut out = Vec::new();
    site.cat_file(object.id, &stored.path, &mut out, &Arc::default()).unwrap();
    assert_eq!(out, b"later");
    let mut all = Vec::new();
    site.cat_object(object.id, &mut all).unwrap();
    fs::write(bench.path("all.tar"), all).unwrap();
    fs::create_dir(bench.path("tar")).unwrap();
    let mut tar = std::process::Command::new("tar");
    let extracted = tar.arg("xf").arg(bench.path("all.tar")).arg("-C").arg(bench.path("tar")).status();
    assert!(extracted.unwrap().success());
    let place = bench.path("tar").join(std::str::from_utf8(&stored.path).unwrap());
    assert_eq!(fs::read(place).unwrap(), b"later");
}

#[test]
fn what_cannot_be_mended_does_not_fail_the_next_backup() {
    // A range of an old object was on no volume that was there; every later backup with two copies ended in that error.
    let mut config = small();
    config.library.volume_mib = 30;
    let bench = Bench::new(config);
    bench.fill("a", 200, 150_000);
    let mut request = bench.request(Level::Full);
    request.copies = 2;
    bench.backup(&request).unwrap();
    let object = bench.objects().remove(0);
    let site = bench.site();
    let copies = site.catalog().copies(object.id).unwrap();
    site.erase(&copies[0].volumes[0], Loss::Accept, Promise::Keep).unwrap();
    fs::rename(bench.cartridge(copies[1].volumes[0].as_str()), bench.path("away")).unwrap();
    drop(site);
    let report = bench.backup(&request).unwrap();
    assert!(report.failed_copies.is_empty());
    assert!(bench.notices.lock().unwrap().iter().any(|notice| notice.contains(&object.id.to_string())));
}

#[test]
fn a_run_that_waits_for_a_volume_can_be_stopped() {
    // A copy that waited for somebody to insert a volume looked for nothing else: Ctrl-C was heard once there was a
    // volume.
    let mut config = small();
    config.library.volumes_max = 0;
    let bench = Bench::new(config);
    bench.site().label(&volser("A00001"), Some("default"), Some(8 << 20), Loss::Refuse, Promise::Keep).unwrap();
    bench.fill("a", 100, 150_000);
    let watch = BackupWatch::default();
    let stop = Arc::clone(&watch.stop);
    bench.set_hook(Some(Box::new(move |event| {
        if matches!(event, Event::Waiting { .. }) {
            stop.store(true, Ordering::Relaxed);
        }
    })));
    let mut request = bench.request(Level::Full);
    (request.shortfall, request.waits_for_writer) = (Shortfall::Wait, true);
    let ended = bench.site().backup(&request, &watch);
    assert!(matches!(ended, Err(DirectorError::Interrupted)), "{ended:?}");
    bench.set_hook(None);
    bench.site().label(&volser("A00002"), Some("default"), Some(64 << 20), Loss::Refuse, Promise::Keep).unwrap();
    let report = bench.backup(&bench.request(Level::Full)).unwrap();
    assert!(report.sources[0].resumed);
    bench.assert_restores(&bench.objects()[0], "out");
}

#[test]
fn a_signal_behind_the_last_block_stops_nothing() {
    // Ctrl-C while the drive was unloaded: "stopped", counts of nothing and exit code 130, and the object was complete.
    let bench = Bench::new(small());
    bench.fill("a", 20, 10_000);
    let watch = BackupWatch::default();
    let (stop, site) = (Arc::clone(&watch.stop), bench.site());
    bench.set_hook(Some(Box::new(move |event| {
        if matches!(event, Event::Checkpoint { .. }) {
            stop.store(true, Ordering::Relaxed);
        }
    })));
    let report = site.backup(&bench.request(Level::Full), &watch).unwrap();
    bench.set_hook(None);
    assert!(watch.stop.load(Ordering::Relaxed), "a tree as small as this has one checkpoint, the last");
    assert_eq!(report.sources[0].report.as_ref().unwrap().files, 20);
    bench.assert_restores(&bench.objects()[0], "out");
}

#[test]
fn a_tree_that_holds_the_library_is_stored_without_it() {
    // A backup of a home directory with the state directory in it stored the volume that it was writing, and all
    // earlier ones.
    let bench = Bench::new(small());
    bench.fill("a", 20, 150_000);
    let mut request = bench.request(Level::Full);
    request.sources = vec![fs::canonicalize(bench.path("")).unwrap()];
    bench.backup(&request).unwrap();
    let site = bench.site();
    let object = site.catalog().objects(&capstan_catalog::ObjectFilter::default()).unwrap().remove(0);
    let paths: Vec<_> = site.catalog().index(object.id).unwrap().iter().map(|entry| entry.unwrap().path).collect();
    assert!(paths.iter().any(|path| path.ends_with(b"/source/a-0")));
    assert!(!paths.iter().any(|path| path.ends_with(b".tape")));
    assert!(bench.notices.lock().unwrap().iter().any(|notice| notice.contains("left out")));
}

/// A copy packed each block again: seven seconds of a processor for each GB, where the drive wants 120 MB a second.
#[test]
fn a_copy_takes_blocks_as_they_are_and_cuts_others_anew() {
    let mut config = small();
    config.library.drives = 2;
    config.data.compression_level = 3;
    let bench = Bench::new(config);
    for number in 0..30u8 {
        let text = format!("{number} the same line again\n").repeat(9_000);
        fs::write(bench.source().join(format!("text-{number}")), text).unwrap();
    }
    bench.fill("noise", 5, 70_000);
    bench.backup(&bench.request(Level::Full)).unwrap();
    let object = bench.objects().remove(0);
    // Nothing is packed from here on.
    let settings = bench.path("state/capstan.toml");
    let text = fs::read_to_string(&settings).unwrap();
    fs::write(&settings, text.replace("compression_level = 3", "compression_level = 0")).unwrap();
    let site = bench.site();
    site.add_pool("vault", None, None).unwrap();
    site.copy_objects(std::slice::from_ref(&object), "vault", &RestoreWatch::default()).unwrap();
    let lens = |copy| {
        let extents = site.catalog().extents(object.id, Some(copy)).unwrap();
        let each = |of: fn(&capstan_format::ExtentRecord) -> u64| extents.iter().map(|extent| of(&extent.record)).sum();
        let (stored, plain): (u64, u64) = (each(|record| record.stored_len), each(|record| record.plain_len));
        (stored, plain)
    };
    assert_eq!(lens(2), lens(1));
    assert!(lens(1).0 * 4 < lens(1).1, "{:?}", lens(1));
    assert_eq!(site.whole_copies(&object).unwrap(), [1, 2]);
    let volume = site.catalog().copies(object.id).unwrap()[0].volumes[0].clone();
    drop(site);
    fs::remove_file(bench.cartridge(volume.as_str())).unwrap();
    bench.assert_restores(&object, "from-the-copy");
    assert!(bench.site().catalog().index(object.id).unwrap().iter().count() > 35);
}
