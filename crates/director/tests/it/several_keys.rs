//! A volume that went on under a further key: backups, restores, rebuild, and one of its keys destroyed.

use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use capstan_catalog::Object;
use capstan_catalog::{Pool, ScratchFeed};
use capstan_director::{BackupRequest, DirectorError, Level, RestoreReport};
use capstan_format::{Algorithm, KeyTag, Volser};
use capstan_keys::{KeyError, KeyGroup, KeyState, Name, Period, Policy};
use capstan_mover::RestoreWatch;

use crate::place::{Bench, small, tree};

/// A bench whose pool `brief` has keys that encrypt for a second.
fn bench() -> Bench {
    let bench = Bench::encrypted(small(), Some(Algorithm::Aes256Gcm));
    let brief: Name = "brief".parse().unwrap();
    let policy = Policy { encryption_period: Period::Seconds(1), ..Policy::unlimited(brief.clone()) };
    let mut keys = bench.keys();
    keys.put_policy(policy).unwrap();
    keys.put_group(KeyGroup { name: brief.clone(), policy: brief }).unwrap();
    let pool = Pool {
        name: "brief".to_owned(),
        encryption: Some(Algorithm::Aes256Gcm),
        retention_ns: None,
        feed: ScratchFeed::Allowed,
    };
    bench.site().catalog().put_pool(&pool).unwrap();
    bench
}

/// To the pool `brief`, when the encryption period of the key before is over.
fn later(bench: &Bench, level: Level) -> BackupRequest {
    std::thread::sleep(Duration::from_secs(1));
    BackupRequest { pool: "brief".to_owned(), ..bench.request(level) }
}

/// The key that was drawn last.
fn newest(bench: &Bench) -> KeyTag {
    bench.keys().list().unwrap().pop().unwrap().tag
}

struct TwoKeys {
    bench: Bench,
    volser: Volser,
    first: KeyTag,
    second: KeyTag,
    /// A full backup under the first key, another one under the second.
    objects: [Object; 2],
}

fn two_keys() -> TwoKeys {
    let bench = bench();
    bench.fill("a", 30, 100_000);
    bench.backup(&later(&bench, Level::Full)).unwrap();
    let older = bench.objects().remove(0);
    let volser = bench.site().catalog().volumes().unwrap().remove(0).volser;
    let first = newest(&bench);
    bench.fill("b", 20, 100_000);
    bench.backup(&later(&bench, Level::Full)).unwrap();
    let second = newest(&bench);
    assert_ne!(first, second);
    let newer = bench.objects().into_iter().find(|object| object.id != older.id).unwrap();
    // Both on the one volume, each block naming its own key.
    assert_eq!(bench.site().catalog().volumes().unwrap().len(), 1);
    let memory = fs::read(bench.cartridge(volser.as_str())).unwrap();
    assert_eq!((memory[8], memory[108]), (2, 1), "version 2, one further key");
    assert_eq!((&memory[60..76], &memory[112..128]), (&first.0[..], &second.0[..]));
    TwoKeys { bench, volser, first, second, objects: [older, newer] }
}

/// Files below the source that the restore gave back.
fn restored(bench: &Bench, to: &str) -> Vec<PathBuf> {
    let below = bench.path(to).join(bench.source().strip_prefix("/").unwrap());
    if below.exists() { tree(&below).into_keys().collect() } else { Vec::new() }
}

/// The report names the key that is gone, once, and nothing but keys.
fn assert_names(report: &RestoreReport, gone: &KeyTag) {
    let named: Vec<_> = report.without_key.iter().map(|(_, error)| error).collect();
    let [DirectorError::Keys(KeyError::KeyDestroyed { tag, .. })] = named[..] else { panic!("{named:?}") };
    assert_eq!(tag, gone);
}

#[test]
fn what_is_under_both_keys_is_restored_and_rebuilt() {
    let TwoKeys { bench, volser, objects: [_, newer], .. } = two_keys();
    bench.assert_restores(&newer, "one");
    let verified = bench.site().verify_volume(&volser, &RestoreWatch::default()).unwrap();
    assert!(verified.is_whole() && verified.without_key.is_empty(), "{verified:?}");
    // An incremental under a third key stands on what is under the second.
    bench.fill("c", 5, 100_000);
    bench.backup(&later(&bench, Level::Incremental)).unwrap();
    let third = newest(&bench);
    let incremental = bench.objects().into_iter().find(|object| object.base.is_some()).unwrap();
    bench.assert_restores(&incremental, "two");
    let before = bench.dump();
    bench.rebuild();
    assert_eq!(bench.dump(), before);
    bench.assert_restores(&incremental, "three");
    let states: Vec<_> = bench.keys().list().unwrap().iter().map(|key| (key.tag == third, key.state)).collect();
    let retired = (false, KeyState::ProcessOnly);
    assert_eq!(states, [retired, retired, (true, KeyState::ProtectAndProcess)]);
}

#[test]
fn the_second_key_destroyed_loses_what_is_under_it_and_no_more() {
    let TwoKeys { bench, second, objects: [older, newer], .. } = two_keys();
    assert_eq!(bench.site().destroy_key(&second).unwrap().tag, second);
    let report = bench.restore(&older, "older");
    assert!(report.is_whole() && report.without_key.is_empty(), "{report:?}");
    assert_eq!(restored(&bench, "older").len(), 30);
    let report = bench.restore(&newer, "newer");
    assert_eq!(report.failed.len(), 51, "50 files and their directory");
    assert!(report.failed.iter().all(|file| file.reason.contains("destroyed")), "{:?}", report.failed[0]);
    assert_names(&report, &second);
    // It is not said to be protected.
    let protection = bench.site().protection().unwrap();
    assert!(protection.unprotected.iter().any(|object| object.id == newer.id), "{protection:?}");

    bench.rebuild();
    assert!(bench.restore(&older, "again").is_whole());
}

#[test]
fn the_first_key_destroyed_loses_the_label_and_not_what_came_later() {
    let TwoKeys { bench, first, objects: [older, newer], .. } = two_keys();
    bench.site().destroy_key(&first).unwrap();
    bench.assert_restores(&newer, "newer");
    let report = bench.restore(&older, "older");
    assert_eq!((report.failed.len(), restored(&bench, "older").len()), (31, 0));
    assert_names(&report, &first);
    // Nothing is appended to a volume whose label nobody can read: another one is taken.
    bench.backup(&later(&bench, Level::Full)).unwrap();
    assert_eq!(bench.site().catalog().volumes().unwrap().len(), 2);
}
