//! What an object was promised is kept: copies that were never begun, ended early, or lost a volume.

use std::fs;
use std::sync::{Arc, Mutex};

use capstan_catalog::{CopyState, Promise};
use capstan_director::{DirectorError, Event, Level, Loss, Shortfall, VerifiedCopy};
use capstan_format::{ObjectId, Volser};
use capstan_mover::RestoreWatch;

use crate::place::{Bench, small};

fn volser(name: &str) -> Volser {
    Volser::new(name).unwrap()
}

/// A library that makes no volumes, with room for the first copy.
fn without_second_volume() -> Bench {
    let mut config = small();
    config.library.volumes_max = 0;
    let bench = Bench::new(config);
    bench.site().label(&volser("A00001"), Some("default"), Some(64 << 20), Loss::Refuse, Promise::Keep).unwrap();
    bench.fill("a", 20, 150_000);
    bench
}

fn states(bench: &Bench, object: ObjectId) -> Vec<(u8, String, CopyState)> {
    let wanted = bench.site().catalog().wanted_copies(object).unwrap();
    wanted.into_iter().map(|copy| (copy.copy, copy.pool, copy.state)).collect()
}

fn assert_twins_are_whole(bench: &Bench, object: ObjectId) {
    let (one, two) = ("default".to_owned(), "default-copy2".to_owned());
    assert_eq!(states(bench, object), [(1, one, CopyState::Whole), (2, two, CopyState::Whole)]);
    assert_eq!(bench.site().catalog().lacking_copies().unwrap(), []);
}

#[test]
fn a_copy_that_never_got_a_volume_is_made_by_the_next_run() {
    // What a copy lacked was derived from what it had. One that failed before its first checkpoint had nothing, so it
    // lacked nothing, and was never made.
    let bench = without_second_volume();
    let mut request = bench.request(Level::Full);
    request.copies = 2;
    assert_eq!(bench.backup(&request).unwrap().failed_copies.len(), 1);
    for number in 0..5 {
        fs::remove_file(bench.source().join(format!("a-{number}"))).unwrap();
    }
    // What is gone is told in the last stream, which has no bytes of its own: a copy must tell of it all the same.
    let mut request = bench.request(Level::Incremental);
    (request.copies, request.connections) = (2, 16);
    bench.backup(&request).unwrap();
    let objects = bench.objects();
    for object in &objects {
        assert_eq!(states(&bench, object.id)[1], (2, "default-copy2".to_owned(), CopyState::Open));
    }
    bench.site().label(&volser("B00001"), Some("default-copy2"), Some(64 << 20), Loss::Refuse, Promise::Keep).unwrap();
    fs::create_dir(bench.path("other")).unwrap();
    let mut other = bench.request(Level::Full);
    other.sources = vec![bench.path("other")];
    bench.backup(&other).unwrap();
    for object in &objects {
        assert_twins_are_whole(&bench, object.id);
    }
    let before = bench.dump();
    bench.rebuild();
    assert_eq!(bench.dump(), before);
    fs::rename(bench.cartridge("A00001"), bench.path("away")).unwrap();
    bench.rebuild();
    bench.assert_restores(&objects[0], "out");
    let site = bench.site();
    for VerifiedCopy { copy, report, .. } in
        site.verify_objects(std::slice::from_ref(&objects[1]), &RestoreWatch::default()).unwrap()
    {
        assert!(copy == 2 && report.is_whole() && report.behind == 0, "copy {copy}: {report:?}");
    }
}

#[test]
fn a_copy_that_lacks_only_its_end_gets_it() {
    // The copy had every block, and no record that said so: a catalog made from its volumes alone took it for
    // interrupted.
    let bench = Bench::new(small());
    bench.fill("a", 20, 150_000);
    let mut request = bench.request(Level::Full);
    request.copies = 2;
    let report = bench.backup(&request).unwrap();
    assert!(report.failed_copies.is_empty(), "{:?}", report.failed_copies);
    let object = bench.objects().remove(0);
    assert_twins_are_whole(&bench, object.id);
    bench.sql("UPDATE copies SET ended = 0 WHERE copy = 2; UPDATE wanted_copies SET whole = 0 WHERE copy = 2");
    let sessions = |bench: &Bench| bench.dump().iter().filter(|line| line.contains("\"row\":\"session\"")).count();
    assert_eq!(sessions(&bench), 2);
    let site = bench.site();
    assert_eq!(site.whole_copies(&object).unwrap(), [1]);
    let repaired = site.repair(&[object.id], Shortfall::Fail, &RestoreWatch::default()).unwrap();
    assert_eq!((repaired.copies.len(), repaired.copies[0].copy), (1, 2));
    drop(site);
    assert_twins_are_whole(&bench, object.id);
    assert_eq!(sessions(&bench), 3, "the end stands on the volume");
    let again = bench.site().repair(&[], Shortfall::Fail, &RestoreWatch::default()).unwrap();
    assert!(again.copies.is_empty(), "{again:?}");
    let before = bench.dump();
    bench.rebuild();
    assert_eq!(bench.dump(), before);
}

#[test]
fn a_twin_that_ended_what_it_had_not_begun_is_mended() {
    // The first run ends before the second copy has a volume. The second run ends the object on both copies, and what
    // the second one ends is only what it wrote itself.
    let bench = without_second_volume();
    bench.fill("b", 200, 150_000);
    let mut request = bench.request(Level::Full);
    request.copies = 2;
    bench.interrupted(&request, 4, |_| ());
    bench.site().label(&volser("B00001"), Some("default-copy2"), Some(64 << 20), Loss::Refuse, Promise::Keep).unwrap();
    let report = bench.backup(&request).unwrap();
    assert!(report.sources[0].resumed && report.failed_copies.is_empty(), "{report:?}");
    let object = bench.objects().remove(0);
    assert_twins_are_whole(&bench, object.id);
    fs::rename(bench.cartridge("A00001"), bench.path("away")).unwrap();
    bench.rebuild();
    bench.assert_restores(&object, "out");
}

#[test]
fn what_a_copy_lost_with_a_volume_comes_back_on_another() {
    let mut config = small();
    config.library.volume_mib = 30;
    let bench = Bench::new(config);
    bench.fill("a", 200, 150_000);
    let mut request = bench.request(Level::Full);
    request.copies = 2;
    bench.backup(&request).unwrap();
    let object = bench.objects().remove(0);
    let volumes = bench.site().catalog().copies(object.id).unwrap()[0].volumes.clone();
    assert!(volumes.len() > 1, "{volumes:?}");
    bench.site().erase(&volumes[0], Loss::Refuse, Promise::Keep).unwrap();
    assert_eq!(states(&bench, object.id)[0].2, CopyState::Open);
    bench.backup(&bench.request(Level::Incremental)).unwrap();
    assert_twins_are_whole(&bench, object.id);
    // A copy that is given up by name is not made again.
    for volser in &bench.site().catalog().copies(object.id).unwrap()[1].volumes {
        bench.site().erase(volser, Loss::Refuse, Promise::Drop).unwrap();
    }
    assert_eq!(states(&bench, object.id), [(1, "default".to_owned(), CopyState::Whole)]);
    bench.backup(&bench.request(Level::Incremental)).unwrap();
    bench.assert_restores(&object, "out");
}

#[test]
fn a_repair_that_cannot_be_done_says_why_and_others_go_on() {
    let bench = without_second_volume();
    let mut request = bench.request(Level::Full);
    request.copies = 2;
    bench.backup(&request).unwrap();
    let site = bench.site();
    let report = site.repair(&[], Shortfall::Fail, &RestoreWatch::default()).unwrap();
    assert!(matches!(report.first_failure, Some(DirectorError::NoVolume { .. })), "{report:?}");
    assert!(report.copies[0].failure.as_ref().unwrap().contains("default-copy2"), "{report:?}");
    // `copy` to the pool that it was promised to makes the promised copy, not a third one.
    site.label(&volser("B00001"), Some("default-copy2"), Some(64 << 20), Loss::Refuse, Promise::Keep).unwrap();
    let object = bench.objects().remove(0);
    let one = std::slice::from_ref(&object);
    assert_eq!(site.copy_objects(one, "default-copy2", &RestoreWatch::default()).unwrap()[0].copy, 2);
    drop(site);
    assert_twins_are_whole(&bench, object.id);
}

#[test]
fn an_interrupted_object_whose_volume_was_erased_is_begun_anew() {
    // The next run took up the object and left out the files that had been on the erased volume: it was complete
    // without them.
    let bench = Bench::new(small());
    bench.fill("a", 200, 150_000);
    bench.interrupted(&bench.request(Level::Full), 3, |_| ());
    bench.site().erase(&volser("A00001"), Loss::Accept, Promise::Keep).unwrap();
    let report = bench.backup(&bench.request(Level::Full)).unwrap();
    assert!(!report.sources[0].resumed);
    let complete = bench.objects().into_iter().find(|object| object.id == report.sources[0].object).unwrap();
    bench.assert_restores(&complete, "out");
}

/// Every backup, of whatever source, ended in an error when all of it was written, and looked after no copy, as long as
/// the list of files of one other object was lost while pieces of a late copy waited to be added to it.
#[test]
fn a_lost_list_of_files_fails_no_backup_of_another_source() {
    let bench = Bench::new(small());
    bench.fill("a", 5, 150_000);
    bench.backup(&bench.request(Level::Full)).unwrap();
    let lost = bench.objects().remove(0);
    fs::remove_file(bench.path(&format!("state/catalog/index/{}.1.parquet", lost.id))).unwrap();
    // A piece of no entries: an empty frame of zstd.
    bench.sql(&format!(
        "INSERT INTO pieces (piece, object, crc, raw_len, stored) VALUES (1000, x'{}', 0, 0, x'28b52ffd2000010000')",
        lost.id
    ));
    let mut other = bench.request(Level::Full);
    other.sources = vec![bench.path("other")];
    fs::create_dir(bench.path("other")).unwrap();
    let report = bench.backup(&other).unwrap();
    let object = bench.site().catalog().object(report.sources[0].object).unwrap().unwrap();
    assert!(object.counts.is_some(), "its own list is made, behind the one that cannot be");
    let advice = format!("`capstan rebuild {}`", lost.id);
    let is_told = |notice: &String| notice.contains("list of files") && notice.contains(&advice);
    assert!(bench.notices.lock().unwrap().iter().any(is_told), "{:?}", bench.notices);

    assert!(bench.site().rebuild_index(&lost, &Arc::default()).unwrap().is_whole());
    bench.notices.lock().unwrap().clear();
    bench.backup(&other).unwrap();
    assert!(!bench.notices.lock().unwrap().iter().any(is_told), "{:?}", bench.notices);
    bench.assert_restores(&lost, "out");
}

/// A backup let go of its presence before it mended copies: a rebuild could put another catalog in place meanwhile, and
/// what the repair wrote was recorded in the one that was moved aside.
#[test]
fn a_backup_that_mends_copies_is_present_until_they_are_mended() {
    let bench = without_second_volume();
    let mut request = bench.request(Level::Full);
    request.copies = 2;
    assert_eq!(bench.backup(&request).unwrap().failed_copies.len(), 1);
    let object = bench.objects().remove(0);
    let twin = volser("B00001");
    bench.site().label(&twin, Some("default-copy2"), Some(64 << 20), Loss::Refuse, Promise::Keep).unwrap();
    let mut other = bench.request(Level::Full);
    other.sources = vec![bench.path("other")];
    fs::create_dir(bench.path("other")).unwrap();

    // Whether somebody could have had the state directory alone each time that the volume of the second copy was
    // mounted.
    let (lock, free) = (bench.path("state/writer.lock"), Arc::new(Mutex::new(Vec::new())));
    let seen = Arc::clone(&free);
    bench.set_hook(Some(Box::new(move |event| {
        if matches!(event, Event::Mounted { volser, .. } if *volser == twin) {
            seen.lock().unwrap().push(fs::File::open(&lock).unwrap().try_lock().is_ok());
        }
    })));
    bench.backup(&other).unwrap();
    bench.set_hook(None);
    assert_twins_are_whole(&bench, object.id);
    let free = free.lock().unwrap();
    assert!(!free.is_empty() && !free.contains(&true), "{free:?}");
}
