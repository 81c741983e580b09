//! Volumes that hold more than the catalog knows: what is blamed on them, and what is not.

use capstan_catalog::{Catalog, Promise, VolumeState};
use capstan_director::{DirectorError, Level, Loss, Place, RebuildOptions, RebuildReport, rebuild};
use capstan_format::Volser;
use capstan_mover::RestoreWatch;
use capstan_mover::extract::ExtractOptions;

use crate::place::database::refuse_checkpoints;
use crate::place::{Bench, copy_tree, now_ns, small};

fn volser(name: &str) -> Volser {
    Volser::new(name).unwrap()
}

/// A backup is interrupted twice; the catalog is put back to what it was between.
fn volume_ahead_of_the_catalog() -> Bench {
    let bench = Bench::new(small());
    bench.fill("a", 200, 150_000);
    bench.interrupted(&bench.request(Level::Full), 2, |_| ());
    copy_tree(&bench.path("state/catalog"), &bench.path("saved"));
    bench.interrupted(&bench.request(Level::Full), 2, |_| ());
    bench.put_back("saved", "state/catalog");
    bench
}

fn state_of(bench: &Bench, name: &str) -> VolumeState {
    bench.site().catalog().volume(&volser(name)).unwrap().unwrap().state
}

#[test]
fn a_catalog_that_cannot_be_written_makes_no_volume_suspect() {
    // Whatever went wrong while the catalog caught up with a volume set the volume aside: a full disk cost a good
    // volume.
    let bench = volume_ahead_of_the_catalog();
    refuse_checkpoints(&bench.path("state/catalog"), true);
    let ended = bench.backup(&bench.request(Level::Full));
    assert!(matches!(ended, Err(DirectorError::Catalog(_))), "{ended:?}");
    // A run that has nothing to take up meets the same where it appends.
    bench.fill("../other/b", 2, 1000);
    let mut other = bench.request(Level::Full);
    other.sources = vec![bench.path("other")];
    let ended = bench.backup(&other);
    assert!(matches!(ended, Err(DirectorError::Catalog(_))), "{ended:?}");
    assert_eq!(state_of(&bench, "A00001"), VolumeState::Filling);
    refuse_checkpoints(&bench.path("state/catalog"), false);
    let report = bench.backup(&bench.request(Level::Full)).unwrap();
    assert!(report.sources[0].resumed);
    bench.assert_restores(&bench.objects()[0], "out");
}

#[test]
fn a_volume_whose_checkpoints_pass_over_the_one_that_is_known_is_another() {
    // What was written behind the last checkpoint was recorded without looking whether it leads back to it.
    let bench = volume_ahead_of_the_catalog();
    bench.sql("UPDATE volumes SET checkpoint_lbn = checkpoint_lbn + 1");
    let report = bench.backup(&bench.request(Level::Full)).unwrap();
    assert!(!report.sources[0].resumed);
    assert_eq!(state_of(&bench, "A00001"), VolumeState::Suspect);
    assert!(bench.notices.lock().unwrap().iter().any(|notice| notice.contains("do not lead back")));
}

/// A backup is interrupted; the catalog is put back to what it was `behind` checkpoints before, and the last one is
/// torn, as a loss of power leaves it. Gives how the next backup of the same source went on.
fn resumed_behind_a_torn_checkpoint(behind: u32) -> (Bench, bool) {
    let bench = Bench::new(small());
    bench.fill("a", 200, 150_000);
    let (state, seen) = (bench.path("state/catalog"), std::sync::Arc::new(std::sync::atomic::AtomicU32::new(0)));
    let (saved, count_seen) = (bench.path("saved"), std::sync::Arc::clone(&seen));
    bench.interrupted(&bench.request(Level::Full), 4, move |count| {
        copy_tree(&state, &saved.with_extension(count.to_string()));
        count_seen.store(count, std::sync::atomic::Ordering::Relaxed);
    });
    let last = seen.load(std::sync::atomic::Ordering::Relaxed);
    bench.put_back(&format!("saved.{}", last - behind), "state/catalog");
    let cartridge = bench.cartridge("A00001");
    let mut bytes = std::fs::read(&cartridge).unwrap();
    // The filemark's record has 32 bytes; in front of it ends the checkpoint.
    let at = bytes.len() - 32 - 20;
    bytes[at..at + 16].fill(0);
    std::fs::write(&cartridge, bytes).unwrap();
    let report = bench.backup(&bench.request(Level::Full)).unwrap();
    (bench, report.sources[0].resumed)
}

#[test]
fn a_checkpoint_that_a_loss_of_power_tore_is_written_over() {
    // Its filemark was whole, so the volume was taken for one that is not as it should be.
    let (bench, resumed) = resumed_behind_a_torn_checkpoint(1);
    let notices = bench.notices.lock().unwrap().clone();
    assert!(resumed && notices.iter().any(|notice| notice.contains("ends in an incomplete checkpoint")), "{notices:?}");
    assert_eq!(state_of(&bench, "A00001"), VolumeState::Filling);
    bench.assert_restores(&bench.objects()[0], "out");
    bench.rebuild();
    bench.assert_restores(&bench.objects()[0], "out-2");
}

#[test]
fn a_torn_checkpoint_behind_others_that_are_not_known_is_kept() {
    // The catalog is an older one: what follows was reported once.
    let (bench, resumed) = resumed_behind_a_torn_checkpoint(2);
    assert!(!resumed);
    assert_eq!(state_of(&bench, "A00001"), VolumeState::Suspect);
    bench.assert_restores(&bench.objects()[0], "out");
}

/// Going on after an interruption mounted every volume of the pool that was not full: hours on a real library.
#[test]
fn going_on_mounts_what_the_interrupted_session_had_open_and_no_more() {
    let bench = Bench::new(small());
    for number in 1..=3 {
        bench.fill("a", 3, 1000 * number);
        bench.backup(&bench.request(Level::Full)).unwrap();
        bench.sql(&format!("UPDATE volumes SET state = 3 WHERE volser = 'A0000{number}'"));
    }
    bench.sql("UPDATE volumes SET state = 2");
    let noted = |path: &std::path::Path| -> Vec<String> {
        let catalog = Catalog::open(path).unwrap();
        let opened = catalog.opened_volumes().unwrap();
        let volumes = catalog.volumes().unwrap().into_iter();
        let noted = volumes.filter(|volume| volume.id.is_some_and(|life| opened.contains(&life)));
        noted.map(|volume| volume.volser.to_string()).collect()
    };
    let database = bench.path("state/catalog");
    assert_eq!(noted(&database), [""; 0], "what was closed needs no look");

    bench.fill("b", 100, 150_000);
    let (during, seen) = (std::sync::Arc::new(std::sync::Mutex::new(Vec::new())), database.clone());
    let seen_during = std::sync::Arc::clone(&during);
    bench.interrupted(&bench.request(Level::Full), 2, move |_| seen_during.lock().unwrap().extend(noted(&seen)));
    let during = during.lock().unwrap().clone();
    assert!(during.len() >= 2 && during.iter().all(|volser| *volser == during[0]), "{during:?}");
    let written = during[0].clone();

    // As a run that was killed leaves it, and one that wrote the second copy elsewhere.
    let other = if written == "A00001" { "A00002" } else { "A00001" };
    bench.sql(&format!("INSERT INTO opened_volumes (volume) SELECT volume FROM volumes WHERE volser = '{other}'"));
    let mounted = std::sync::Arc::new(std::sync::Mutex::new(Vec::new()));
    let seen = std::sync::Arc::clone(&mounted);
    bench.set_hook(Some(Box::new(move |event| {
        if let capstan_director::Event::Mounted { volser, .. } = event {
            seen.lock().unwrap().push(volser.to_string());
        }
    })));
    let report = bench.backup(&bench.request(Level::Full)).unwrap();
    bench.set_hook(None);
    assert!(report.sources[0].resumed);
    let mut mounted = mounted.lock().unwrap().clone();
    mounted.sort();
    mounted.dedup();
    let mut wanted = vec![written, other.to_owned()];
    wanted.sort();
    assert_eq!(mounted, wanted);
    bench.assert_restores(&bench.objects()[0], "out");
}

#[test]
fn a_volume_that_was_set_aside_and_is_good_is_written_again() {
    let bench = Bench::new(small());
    bench.fill("a", 20, 150_000);
    bench.backup(&bench.request(Level::Full)).unwrap();
    bench.sql("UPDATE volumes SET state = 4");
    assert_eq!(state_of(&bench, "A00001"), VolumeState::Suspect);
    let verified = || bench.site().verify_volume(&volser("A00001"), &RestoreWatch::default()).unwrap();

    let cartridge = bench.cartridge("A00001");
    let good = std::fs::read(&cartridge).unwrap();
    let mut damaged = good.clone();
    damaged[good.len() / 2] ^= 1;
    std::fs::write(&cartridge, damaged).unwrap();
    assert!(!verified().is_whole());
    assert_eq!(state_of(&bench, "A00001"), VolumeState::Suspect);

    std::fs::write(&cartridge, good).unwrap();
    assert!(verified().is_whole());
    assert_eq!(state_of(&bench, "A00001"), VolumeState::Filling);
    bench.backup(&bench.request(Level::Full)).unwrap();
    assert_eq!(bench.objects().len(), 2);
    assert!(bench.site().catalog().volume(&volser("A00002")).unwrap().is_none(), "it went on where it was");
}

/// Rebuilds with what an operator types without options.
fn rebuild_as_it_is(bench: &Bench) -> Result<RebuildReport, DirectorError> {
    rebuild(&bench.path("state"), Some(&bench.unlock), now_ns, std::sync::Arc::new(|_| ()), &RebuildOptions::default())
}

/// Its last checkpoint was taken for one that a loss of power tore, and written over.
#[test]
fn what_a_rebuild_cannot_read_is_not_written_over() {
    let bench = Bench::new(small());
    bench.fill("a", 200, 150_000);
    bench.backup(&bench.request(Level::Full)).unwrap();
    let cartridge = bench.cartridge("A00001");
    let mut bytes = std::fs::read(&cartridge).unwrap();
    let at = bytes.len() - 32 - 20;
    bytes[at..at + 16].fill(0);
    std::fs::write(&cartridge, &bytes).unwrap();
    let report = rebuild_as_it_is(&bench).unwrap();
    assert!(!report.problems.is_empty());
    assert_eq!(state_of(&bench, "A00001"), VolumeState::Suspect);
    bench.backup(&bench.request(Level::Full)).unwrap();
    let site = bench.site();
    let verified = site.verify_volume(&volser("A00001"), &RestoreWatch::default());
    assert_eq!(state_of(&bench, "A00001"), VolumeState::Suspect, "{verified:?}");
    bench.backup(&bench.request(Level::Full)).unwrap();
    assert!(std::fs::read(&cartridge).unwrap() == bytes, "something was written there");
}

#[test]
fn a_rebuild_forgets_nothing_unasked() {
    let bench = Bench::new(small());
    bench.fill("a", 3, 150_000);
    bench.backup(&bench.request(Level::Full)).unwrap();
    bench.sql("UPDATE volumes SET state = 3");
    bench.fill("b", 3, 150_000);
    let source = bench.source();
    bench.backup(&bench.request(Level::Incremental)).unwrap();
    let objects = bench.objects();
    let erased = bench.site().erase(&volser("A00001"), Loss::Refuse, Promise::Keep);
    assert!(
        matches!(erased, Err(DirectorError::VolumeHoldsData { objects: 1, standing: 1, .. })),
        "what stands on it is counted: {erased:?}"
    );
    std::fs::rename(bench.cartridge("A00001"), bench.path("away")).unwrap();
    // What a drive has said of a volume stands on none.
    bench.sql("UPDATE volumes SET state = 4 WHERE volser = 'A00002'");
    let refused = rebuild_as_it_is(&bench).unwrap_err();
    assert!(matches!(&refused, DirectorError::RebuildForgets { volumes } if volumes == "A00001"), "{refused}");
    assert_eq!(bench.objects(), objects);
    bench.rebuild();
    assert_eq!(state_of(&bench, "A00002"), VolumeState::Suspect);
    bench.fill("c", 3, 150_000);
    bench.backup(&bench.request(Level::Full)).unwrap();
    assert!(!bench.cartridge("A00001").exists(), "the name of one that is away was given to another");
    // What the incremental holds comes back, and that the rest does not is said.
    let incremental = objects.iter().find(|object| object.base.is_some()).unwrap();
    let site = bench.site();
    let plan = site.plan_restore(&[Place { object: incremental.id, paths: Vec::new() }]).unwrap();
    assert!(plan.broken.len() == 1 && plan.broken[0].1.contains("is not in the catalog"), "{:?}", plan.broken);
    let to = bench.path("in-part");
    let report = site.restore(&plan, &to, &ExtractOptions::default(), &RestoreWatch::default()).unwrap();
    assert!(!report.is_whole());
    let restored = to.join(source.strip_prefix("/").unwrap());
    assert!(restored.join("b-1").exists() && !restored.join("a-1").exists());
    let object = site.find_object(&incremental.id.to_string(), None).unwrap();
    let lacking = site.paths_in(&object, b"a-1").unwrap_err();
    assert!(lacking.to_string().contains("is not in the catalog"), "{lacking}");
}
