//! A volume that went on under a further key: backups, restores, rebuild, and one of its keys destroyed.
#![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

mod place;

use std::fs;
use std::path::PathBuf;
use std::time::{SystemTime, UNIX_EPOCH};

use capstan_director::{DirectorError, Level, Object, RestoreReport, RestoreWatch};
use capstan_format::{Algorithm, KeyTag, Volser};
use capstan_keys::{KeyError, KeyState};

use place::{Bench, small, tree};

fn now_ns() -> i64 {
    i64::try_from(SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_nanos()).unwrap()
}

/// Issues the volume another key and puts it in force, as a policy does when the encryption period of the old one is over.
fn turn_key(bench: &Bench, volser: &Volser) -> KeyTag {
    let mut keys = bench.keys();
    let tag = keys.key_for_new_volume(volser, Algorithm::Aes256Gcm, now_ns()).unwrap().tag();
    keys.activate(volser, &tag, now_ns()).unwrap();
    tag
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
    let bench = Bench::encrypted(small(), Some(Algorithm::Aes256Gcm));
    bench.fill("a", 30, 100_000);
    bench.backup(&bench.request(Level::Full)).unwrap();
    let older = bench.objects().remove(0);
    let volser = bench.site().catalog().volumes().unwrap().remove(0).volser;
    let first = bench.keys().list().unwrap()[0].tag;
    let second = turn_key(&bench, &volser);
    bench.fill("b", 20, 100_000);
    bench.backup(&bench.request(Level::Full)).unwrap();
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
    let third = turn_key(&bench, &volser);
    bench.fill("c", 5, 100_000);
    bench.backup(&bench.request(Level::Incremental)).unwrap();
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
    // Nothing is appended to a volume whose label nobody can read.
    let refused = bench.backup(&bench.request(Level::Full)).unwrap_err();
    assert!(
        matches!(&refused, DirectorError::Keys(KeyError::KeyDestroyed { tag, .. }) if *tag == first),
        "{refused:?}"
    );
}
