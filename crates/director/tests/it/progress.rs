//! What is told while work goes on: bytes of bytes, of one large file as well, and which volumes are in drives.

use std::fs;
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use capstan_director::{BackupWatch, Event, Level, Place};
use capstan_format::Volser;
use capstan_mover::RestoreWatch;
use capstan_mover::extract::ExtractOptions;
use capstan_mover::{Totals, TreeOptions, TreeSource};

use crate::place::{Bench, small};

const MIB: u64 = 1 << 20;

fn load(counter: &AtomicU64) -> u64 {
    counter.load(Ordering::Relaxed)
}

/// A restore of one file showed nothing until it was done: hours of 0 B/s for an image of 2 TB.
#[test]
fn one_large_file_moves_in_a_backup_and_in_a_restore() {
    let mut config = small();
    config.library.volume_mib = 16;
    let bench = Bench::new(config);
    bench.fill("large", 1, 24 << 20);
    let watch = Arc::new(BackupWatch::default());
    let (seen, looked) = (Arc::new(Mutex::new(Vec::new())), Arc::clone(&watch));
    let told = Arc::clone(&seen);
    bench.set_hook(Some(Box::new(move |event| {
        if matches!(event, Event::Full { .. }) {
            told.lock().unwrap().push((looked.progress.files(), looked.progress.passed_bytes()));
        }
    })));
    bench.site().backup(&bench.request(Level::Full), &watch).unwrap();
    bench.set_hook(None);
    let seen = std::mem::take(&mut *seen.lock().unwrap());
    assert!(!seen.is_empty());
    // A buffer of 4 MiB is all that lies between the source and a volume of 16.
    assert!(seen.iter().all(|(_, passed)| *passed >= 4 * MIB), "{seen:?}");
    assert_eq!(watch.progress.passed_bytes(), 24 * MIB);

    let watch = Arc::new(RestoreWatch::default());
    let (seen, looked) = (Arc::new(Mutex::new(Vec::new())), Arc::clone(&watch));
    let told = Arc::clone(&seen);
    bench.set_hook(Some(Box::new(move |event| {
        let counts = (load(&looked.members), load(&looked.taken), load(&looked.planned));
        match event {
            Event::Mounted { volser, .. } => told.lock().unwrap().push(("in", volser.to_string(), counts)),
            Event::Dismounted { volser, .. } => told.lock().unwrap().push(("out", volser.to_string(), counts)),
            _ => {}
        }
    })));
    let site = bench.site();
    let object = bench.objects().remove(0);
    let plan = site.plan_restore(&[Place { object: object.id, paths: Vec::new() }]).unwrap();
    site.restore(&plan, &bench.path("back"), &ExtractOptions::default(), &watch).unwrap();
    bench.set_hook(None);
    let seen = std::mem::take(&mut *seen.lock().unwrap());
    let moves: Vec<_> = seen.iter().map(|(way, volser, _)| (*way, volser.as_str())).collect();
    assert!(moves.len() >= 4, "it stands on several volumes: {moves:?}");
    for (number, moved) in moves.chunks(2).enumerate() {
        let volume = format!("A{:05}", number + 1);
        assert_eq!(moved, [("in", volume.as_str()), ("out", volume.as_str())]);
    }
    let (_, _, (members, taken, planned)) = &seen[2];
    assert!(*members <= 1 && *taken >= 4 * MIB && *planned >= 24 * MIB, "at the second volume: {seen:?}");
    assert_eq!(load(&watch.taken), load(&watch.planned));
    assert!(watch.meters.load().drive_ns > 0);

    // Read back, and copied: all that is planned is taken.
    let watch = RestoreWatch::default();
    site.verify_objects(std::slice::from_ref(&object), &watch).unwrap();
    assert_eq!(load(&watch.taken), load(&watch.planned));
    let watch = RestoreWatch::default();
    site.verify_volume(&Volser::new("A00001").unwrap(), &watch).unwrap();
    assert!(load(&watch.planned) >= 4 * MIB && load(&watch.taken) >= 4 * MIB);
    site.add_pool("vault", None, None).unwrap();
    let watch = RestoreWatch::default();
    site.copy_objects(std::slice::from_ref(&object), "vault", &watch).unwrap();
    assert!(load(&watch.taken) >= 24 * MIB);
    assert_eq!(load(&watch.taken), load(&watch.planned));
}

/// Holes, further names of a file, and what an incremental leaves alone are not read, and are behind it all the same.
#[test]
fn what_need_not_be_read_is_passed() {
    let bench = Bench::new(small());
    bench.fill("dir/file", 3, 1 << 20);
    fs::hard_link(bench.source().join("dir/file-0"), bench.source().join("dir/link")).unwrap();
    let sparse = fs::File::create(bench.source().join("sparse")).unwrap();
    sparse.write_at(b"end", 64 * MIB).unwrap();
    drop(sparse);
    std::os::unix::fs::symlink("dir", bench.source().join("way")).unwrap();
    for (level, moved_most) in [(Level::Full, 4 * MIB), (Level::Incremental, 0)] {
        let watch = BackupWatch::default();
        bench.site().backup(&bench.request(level), &watch).unwrap();
        let totals = Totals::new();
        TreeSource::new(&[bench.source()], &TreeOptions::default()).unwrap().count(&totals);
        assert_eq!(totals.bytes(), 4 * MIB + 64 * MIB + 3);
        assert_eq!(watch.progress.passed_bytes(), totals.bytes(), "{level:?}");
        assert!(watch.progress.bytes() <= moved_most, "{level:?}");
    }
}
