//! What was found bad is on record: who may stand on it, what repair mends, what is lost; and what a verification
//! reads, and how often it mounts.

use std::fs;
use std::os::unix::fs::FileExt;
use std::sync::{Arc, Mutex};

use capstan_catalog::{CopyState, Object, ObjectStatus, Promise, VolumeState};
use capstan_director::{DirectorError, Event, Level, Loss, Place, Shortfall};
use capstan_format::Volser;
use capstan_mover::RestoreWatch;
use capstan_mover::extract::{ExtractOptions, Overwrite};

use crate::place::spoil::spoil;
use crate::place::{Bench, small};

fn volser(name: &str) -> Volser {
    Volser::new(name).unwrap()
}

fn backed_up(copies: u8) -> (Bench, Object) {
    let bench = Bench::new(small());
    bench.fill("a", 20, 150_000);
    let mut request = bench.request(Level::Full);
    request.copies = copies;
    bench.backup(&request).unwrap();
    let object = bench.objects().remove(0);
    (bench, object)
}

fn state(bench: &Bench, name: &Volser) -> VolumeState {
    bench.site().catalog().volume(name).unwrap().unwrap().state
}

#[test]
fn damage_that_verify_finds_is_on_record_and_nothing_stands_on_it() {
    // `verify` said DAMAGED, and nothing remembered it: status was well, repair found everything whole, and the next
    // incremental was appended to the volume and stood on the object.
    let (bench, object) = backed_up(1);
    let (name, lbn) = spoil(&bench, &object, 1);
    let report = bench.site().verify_volume(&name, &RestoreWatch::default()).unwrap();
    assert!(report.is_damaged(), "{report:?}");
    let damage = bench.site().catalog().damage().unwrap();
    assert_eq!(damage.len(), 1, "{damage:?}");
    assert_eq!((&damage[0].volser, damage[0].blocks.first_lbn, damage[0].blocks.blocks), (&name, lbn, 1));
    assert_eq!(damage[0].found_by, "verify");
    assert_eq!(state(&bench, &name), VolumeState::Suspect);

    let protection = bench.site().protection().unwrap();
    assert!(protection.protected.is_empty(), "{protection:?}");
    assert_eq!(protection.unprotected[0].id, object.id);
    let lost = bench.site().lost_parts().unwrap();
    assert!(lost.bytes(object.id) > 0);
    let entries: Vec<_> = bench.site().catalog().index(object.id).unwrap().iter().map(Result::unwrap).collect();
    let hit: Vec<_> = entries.iter().filter(|entry| lost.holds(object.id, entry)).collect();
    assert!(!hit.is_empty() && hit.len() < entries.len(), "{} of {}", hit.len(), entries.len());

    let repaired = bench.site().repair(&[], Shortfall::Fail, &RestoreWatch::default()).unwrap();
    assert!(matches!(repaired.first_failure, Some(DirectorError::NoCopyLeft { .. })), "{repaired:?}");

    let report = bench.backup(&bench.request(Level::Incremental)).unwrap();
    assert_eq!(report.sources[0].base, None, "it does not stand on what cannot be read");
    let second = bench.objects().remove(0);
    let volumes = bench.site().catalog().copies(second.id).unwrap()[0].volumes.clone();
    assert!(!volumes.contains(&name), "the damaged volume takes no more data");
    assert_eq!(bench.site().protection().unwrap().protected[0].id, second.id);

    // A rebuild keeps what was found.
    bench.rebuild();
    assert_eq!(bench.site().catalog().damage().unwrap().len(), 1);
    assert_eq!(state(&bench, &name), VolumeState::Suspect);
}

#[test]
fn repair_copies_just_the_damaged_blocks_from_another_copy() {
    let (bench, object) = backed_up(2);
    let (name, lbn) = spoil(&bench, &object, 1);
    // A restore that took the block from the other copy says so, and remembers it.
    bench.assert_restores(&object, "out");
    let damage = bench.site().catalog().damage().unwrap();
    assert_eq!((damage.len(), damage[0].blocks.first_lbn, damage[0].found_by.as_str()), (1, lbn, "restore"));
    let wanted = bench.site().catalog().wanted_copies(object.id).unwrap();
    assert_eq!((wanted[0].state, wanted[1].state), (CopyState::Ended, CopyState::Whole));
    let protection = bench.site().protection().unwrap();
    assert_eq!((protection.protected.len(), protection.lacking.len()), (1, 1));
    assert!(bench.site().lost_parts().unwrap().is_empty());

    let repaired = bench.site().repair(&[], Shortfall::Fail, &RestoreWatch::default()).unwrap();
    assert_eq!((repaired.copies.len(), repaired.copies[0].failure.as_deref()), (1, None), "{repaired:?}");
    let extents = bench.site().catalog().extents(object.id, Some(1)).unwrap();
    let mended: Vec<_> = extents.iter().filter(|extent| extent.volser != name && extent.record.plain_len > 0).collect();
    assert_eq!(mended.iter().map(|extent| extent.record.blocks).sum::<u32>(), 1, "{mended:?}");
    assert!(bench.site().protection().unwrap().lacking.is_empty());

    // The first copy alone gives everything back, the damaged block from where it was mended to.
    for verified in bench.site().verify_objects(std::slice::from_ref(&object), &RestoreWatch::default()).unwrap() {
        assert!(verified.report.is_whole() && verified.report.bad.is_empty(), "{verified:?}");
    }
    let second = if name == volser("A00002") { volser("A00001") } else { volser("A00002") };
    fs::rename(bench.cartridge(second.as_str()), bench.path("away")).unwrap();
    bench.site().forget(&second, Loss::Accept, Promise::Drop).unwrap();
    bench.assert_restores(&object, "again");
}

/// A volume that a repair had written called the object complete, and its streams as short as what was mended of them:
/// a catalog that was made from it alone did not know what is missing.
#[test]
fn a_volume_that_repair_wrote_says_how_long_the_streams_are() {
    let (bench, object) = backed_up(2);
    let before = bench.site().catalog().parts(object.id).unwrap();
    let (name, _) = spoil(&bench, &object, 1);
    bench.site().verify_volume(&name, &RestoreWatch::default()).unwrap();
    let repaired = bench.site().repair(&[], Shortfall::Fail, &RestoreWatch::default()).unwrap();
    assert_eq!((repaired.copies.len(), repaired.copies[0].failure.as_deref()), (1, None), "{repaired:?}");
    for volume in ["A00001", "A00002"] {
        fs::rename(bench.cartridge(volume), bench.path(volume)).unwrap();
    }
    bench.rebuild();
    let site = bench.site();
    assert_eq!(site.catalog().object(object.id).unwrap().unwrap().status, ObjectStatus::Complete);
    assert_eq!(site.catalog().parts(object.id).unwrap(), before);
    let lacking: Vec<_> = site.catalog().lacking_copies().unwrap().iter().map(|wanted| wanted.copy).collect();
    assert_eq!(lacking, [1, 2], "it knows that more is missing");
}

/// A block that is gone took all of a file with it, however large it was.
#[test]
fn what_can_be_read_of_a_damaged_file_is_kept_beside_its_name() {
    let bench = Bench::new(small());
    let content: Vec<u8> = (0..2_000_000u32).flat_map(u32::to_le_bytes).map(|byte| byte | 1).collect();
    fs::write(bench.source().join("large"), &content).unwrap();
    fs::write(bench.source().join("small"), "whole").unwrap();
    bench.backup(&bench.request(Level::Full)).unwrap();
    let object = bench.objects().remove(0);
    spoil(&bench, &object, 1);
    let to = bench.path("out");
    let below = to.join(bench.source().strip_prefix("/").unwrap());
    let restore = |keep_damaged, overwrite| {
        let site = bench.site();
        let mut plan = site.plan_restore(&[Place { object: object.id, paths: Vec::new() }]).unwrap();
        plan.keep_damaged = keep_damaged;
        let options = ExtractOptions { overwrite, ..ExtractOptions::default() };
        let report = site.restore(&plan, &to, &options, &RestoreWatch::default()).unwrap();
        assert!(!report.is_whole());
        assert_eq!(report.failed.len(), 1, "{:?}", report.failed);
        assert_eq!(report.lost.len(), 1, "the block is named once: {:?}", report.lost);
        report.failed[0].reason.clone()
    };
    let reason = restore(false, Overwrite::Never);
    assert!(reason.contains("volume A00001: block"), "{reason}");
    assert!(!below.join("large").exists() && !below.join("large.damaged").exists());

    let reason = restore(true, Overwrite::Never);
    assert!(reason.contains("volume A00001: block") && reason.contains("with .damaged added"), "{reason}");
    assert!(!below.join("large").exists(), "nobody takes it for the whole file");
    let kept = fs::read(below.join("large.damaged")).unwrap();
    assert_eq!(kept.len(), content.len());
    let missing = kept.iter().filter(|byte| **byte == 0).count();
    assert!(reason.contains(&format!("{missing} of its bytes")), "{missing}: {reason}");
    assert!(missing > 1000 && missing < content.len() / 2, "{missing}");
    assert!(kept.iter().zip(&content).all(|(is, was)| is == was || *is == 0));
    assert_eq!(fs::read(below.join("small")).unwrap(), b"whole");

    // What is there under that name is replaced only where it may be.
    fs::write(below.join("large.damaged"), "mine").unwrap();
    restore(true, Overwrite::Never);
    assert_eq!(fs::read(below.join("large.damaged")).unwrap(), b"mine");
    restore(true, Overwrite::Changed);
    assert_eq!(fs::read(below.join("large.damaged")).unwrap(), kept);
}

#[test]
fn what_reads_well_again_is_taken_off_the_record() {
    let (bench, object) = backed_up(1);
    let before = fs::read(bench.cartridge("A00001")).unwrap();
    let (name, _) = spoil(&bench, &object, 1);
    bench.site().verify_objects(std::slice::from_ref(&object), &RestoreWatch::default()).unwrap();
    assert_eq!(bench.site().catalog().damage().unwrap().len(), 1);
    // Dirty heads, say: the next drive reads it.
    fs::write(bench.cartridge("A00001"), before).unwrap();
    let report = bench.site().verify_volume(&name, &RestoreWatch::default()).unwrap();
    assert!(report.is_whole(), "{report:?}");
    assert_eq!(bench.site().catalog().damage().unwrap(), []);
    assert_eq!(state(&bench, &name), VolumeState::Filling);
    assert_eq!(bench.site().protection().unwrap().protected.len(), 1);
    let verified = bench.site().catalog().volume_verified(&name).unwrap().unwrap();
    assert_eq!((verified.how.as_str(), verified.bad_blocks), ("volume", 0));
    let verified = bench.site().catalog().copy_verified(object.id, 1).unwrap().unwrap();
    assert_eq!((verified.how.as_str(), verified.bad_blocks), ("volume", 0));
}

#[test]
fn an_act_mounts_each_volume_once() {
    // A verification loaded and unloaded a cartridge once for each object on it, and once more: an hour of robot for 20
    // MB.
    let mounts: Arc<Mutex<Vec<Volser>>> = Arc::default();
    let (bench, _) = backed_up(1);
    for number in 0..4 {
        bench.fill(&format!("more-{number}"), 3, 20_000);
        bench.backup(&bench.request(Level::Incremental)).unwrap();
    }
    let objects = bench.objects();
    assert_eq!(objects.len(), 5);
    let seen = Arc::clone(&mounts);
    bench.set_hook(Some(Box::new(move |event| {
        if let Event::Mounted { volser, .. } = event {
            seen.lock().unwrap().push(volser.clone());
        }
    })));
    let counted = |what: &str, most: usize| {
        let mounted = std::mem::take(&mut *mounts.lock().unwrap());
        assert!(mounted.len() <= most, "{what}: {mounted:?}");
    };
    let watch = RestoreWatch::default;
    let report = bench.site().verify_volume(&volser("A00001"), &watch()).unwrap();
    assert!(report.is_whole(), "{report:?}");
    counted("verify of a volume", 1);
    bench.site().verify_objects(&objects, &watch()).unwrap();
    counted("verify of a chain", 1);
    bench.restore(&objects[0], "out");
    counted("restore", 1);
    bench.site().add_pool("vault", None, None).unwrap();
    bench.site().copy_objects(&objects, "vault", &watch()).unwrap();
    counted("copy of a chain: one to read, one to write", 2);
    for object in &objects {
        let copies = bench.site().catalog().copies(object.id).unwrap();
        assert_eq!(copies.len(), 2, "{copies:?}");
    }
    let other = bench.site().catalog().copies(objects[0].id).unwrap()[1].volumes[0].clone();
    bench.site().erase(&other, Loss::Refuse, Promise::Keep).unwrap();
    counted("erase", 1);
    bench.site().repair(&[], Shortfall::Fail, &watch()).unwrap();
    counted("repair of five copies: one to read, one to write", 2);
    assert_eq!(bench.site().catalog().lacking_copies().unwrap(), []);
}

#[test]
fn a_library_that_is_not_there_is_not_made_anew() {
    // With the library's disk unmounted, a backup made a new library in the mount point, rc 0: it lay on the root disk,
    // and was hidden as soon as the disk was mounted.
    let (bench, object) = backed_up(1);
    let (library, away) = (bench.path("state/library"), bench.path("away"));
    let refused = |what: &str, words: &str| {
        let error = bench.backup(&bench.request(Level::Full)).unwrap_err();
        let text = capstan_tape::with_causes(&error);
        assert!(text.contains(words) && text.contains("mount"), "{what}: {text}");
    };
    fs::rename(&library, &away).unwrap();
    refused("the directory is missing", "is not there");
    assert!(!library.exists(), "nothing was made");
    assert!(bench.site().library_problem().is_some());
    assert_eq!(bench.objects().len(), 1, "lists go on");
    fs::create_dir(&library).unwrap();
    refused("an empty mount point", "library.id");
    assert_eq!(fs::read_dir(&library).unwrap().count(), 0, "nothing was made");
    let rebuilt = capstan_director::rebuild(
        &bench.path("state"),
        None,
        || 1,
        Arc::new(|_| ()),
        &capstan_director::RebuildOptions { discard_old: true, ..capstan_director::RebuildOptions::default() },
    );
    let refusal = rebuilt.map(drop).map_err(|error| error.to_string()).unwrap_err();
    assert!(refusal.contains("library.id"), "a rebuild does not take it for the library: {refusal}");
    fs::remove_dir(&library).unwrap();
    fs::rename(&away, &library).unwrap();
    bench.assert_restores(&object, "out");
    // Its slots are a mount point of their own.
    fs::rename(library.join("slots"), &away).unwrap();
    refused("all cartridges are gone", "holds none of the 1");
    fs::remove_dir_all(library.join("slots")).unwrap();
    fs::rename(&away, library.join("slots")).unwrap();
    bench.backup(&bench.request(Level::Incremental)).unwrap();
    // Moved on purpose, without its marker.
    fs::remove_file(library.join("library.id")).unwrap();
    refused("the marker is gone", "capstan library initialize");
    bench.site().initialize_library().unwrap();
    bench.backup(&bench.request(Level::Incremental)).unwrap();
    // A catalog that was lost is not replaced by an empty one.
    fs::rename(bench.path("state/catalog"), bench.path("lost")).unwrap();
    let opened = capstan_director::Site::open(&bench.path("state"), None, || 1, Arc::new(|_| ())).map(drop);
    assert!(matches!(opened, Err(DirectorError::CatalogMissing { .. })), "{opened:?}");
}

#[test]
fn what_the_source_has_and_the_object_lacks_is_named() {
    // A verification against the source looked only at what the object has: of files that it lacks it said nothing.
    let (bench, object) = backed_up(1);
    assert_eq!(bench.site().compare_with_source(&object, &[]).unwrap().len(), 0);
    fs::create_dir(bench.source().join("new")).unwrap();
    fs::write(bench.source().join("new/below"), "x").unwrap();
    fs::write(bench.source().join("left-out.tmp"), "x").unwrap();
    let found = bench.site().compare_with_source(&object, &["*.tmp".to_owned()]).unwrap();
    let paths: Vec<_> = found.iter().map(|file| String::from_utf8_lossy(&file.path).into_owned()).collect();
    let lacking: Vec<_> = found.iter().filter(|file| file.reason.contains("the object does not")).collect();
    assert_eq!(lacking.len(), 1, "a directory is named once: {paths:?}");
    assert!(lacking[0].path.ends_with(b"source/new"), "{paths:?}");
}

/// A verification took a volume for damaged that a killed run was about to label, and barred it from being written.
#[test]
fn a_volume_whose_labelling_was_interrupted_is_not_damaged() {
    let bench = Bench::new(small());
    let (site, volume) = (bench.site(), volser("A00001"));
    site.label(&volume, Some("default"), None, Loss::Refuse, Promise::Keep).unwrap();
    site.erase(&volume, Loss::Refuse, Promise::Keep).unwrap();
    let blank = fs::read(bench.cartridge("A00001")).unwrap();
    site.label(&volume, Some("default"), None, Loss::Refuse, Promise::Keep).unwrap();
    // As a run leaves it that was killed between what the catalog knows and what the tape does.
    fs::write(bench.cartridge("A00001"), blank).unwrap();
    let report = site.verify_volume(&volume, &RestoreWatch::default()).unwrap();
    assert!(report.is_whole() && report.bad.is_empty());
    assert_eq!(site.catalog().damage().unwrap(), []);
    assert_eq!(site.catalog().volume(&volume).unwrap().unwrap().state, VolumeState::Filling);
    assert!(bench.notices.lock().unwrap().iter().any(|notice| notice.contains("has no label")));
    bench.fill("a", 3, 1000);
    bench.backup(&bench.request(Level::Full)).unwrap();
    assert_eq!(bench.site().catalog().volumes().unwrap().len(), 1, "it was labelled and written");
    assert!(site.verify_volume(&volume, &RestoreWatch::default()).unwrap().members >= 3);
}

/// One bad block at the beginning of a tape made all of it unreadable.
#[test]
fn a_volume_with_a_damaged_label_is_read() {
    let (bench, object) = backed_up(1);
    let cartridge = bench.cartridge("A00001");
    let bytes = fs::read(&cartridge).unwrap();
    let label = bytes.windows(4).position(|window| window == b"VOL1").unwrap();
    fs::File::options().write(true).open(&cartridge).unwrap().write_all_at(b"ZZZZZZZZ", label as u64 + 8).unwrap();
    bench.assert_restores(&object, "out");
    assert!(bench.notices.lock().unwrap().iter().any(|notice| notice.contains("label of volume A00001")));
    // It is not written, whatever else can be read.
    bench.site().verify_volume(&volser("A00001"), &RestoreWatch::default()).unwrap_err();
    assert_eq!(state(&bench, &volser("A00001")), VolumeState::Suspect);
    bench.backup(&bench.request(Level::Full)).unwrap();
    assert!(bench.cartridge("A00002").exists());
    bench.assert_restores(&object, "out-2");
}
