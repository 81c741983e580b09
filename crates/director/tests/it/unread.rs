//! Files that could not be read for a while: the last version that was read comes back.

use std::fs;
use std::sync::Arc;

use capstan_director::Level;

use crate::place::{Bench, small};
use rustix::thread::{CapabilitySet, capabilities, set_capabilities};

/// Backs up as somebody who may read nothing that its mode forbids.
fn backup_as_nobody_special(bench: &Bench, level: Level) {
    // Root reads everything unless it lays that down; a thread may do so for itself and for those that it starts.
    std::thread::scope(|scope| {
        let run = scope.spawn(|| {
            let mut sets = capabilities(None).unwrap();
            sets.effective -= CapabilitySet::DAC_OVERRIDE | CapabilitySet::DAC_READ_SEARCH;
            set_capabilities(None, sets).unwrap();
            bench.backup(&bench.request(level)).unwrap();
        });
        run.join().unwrap();
    });
}

#[test]
fn what_could_not_be_read_later_comes_back_as_it_was_read_last() {
    // An incremental that could not read a file hid the version that a full backup had, and nothing of it was restored.
    use std::os::unix::fs::PermissionsExt;
    let bench = Bench::new(small());
    let file = |name: &str| bench.source().join(name);
    let (secret, never) = (file("secret"), file("never"));
    let close = |path: &std::path::Path| fs::set_permissions(path, fs::Permissions::from_mode(0o000)).unwrap();
    let open = |path: &std::path::Path| fs::set_permissions(path, fs::Permissions::from_mode(0o600)).unwrap();
    bench.fill("a", 3, 1000);
    fs::write(&secret, "first").unwrap();
    bench.backup(&bench.request(Level::Full)).unwrap();
    let full = bench.objects().remove(0);
    fs::write(&secret, "second").unwrap();
    fs::write(&never, "never read").unwrap();
    close(&secret);
    close(&never);
    backup_as_nobody_special(&bench, Level::Incremental);
    backup_as_nobody_special(&bench, Level::Incremental);
    let object = bench.objects().remove(0);
    let below = |out: &str, path: &std::path::Path| bench.path(out).join(path.strip_prefix("/").unwrap());
    let places = [capstan_director::Place { object: object.id, paths: Vec::new() }];
    let plan = bench.site().plan_restore(&places).unwrap();
    let older: Vec<_> =
        plan.older.iter().map(|older| (older.path.as_slice(), older.object, older.backed_up_ns)).collect();
    let path = capstan_director::index_path(secret.to_str().unwrap().as_bytes());
    assert_eq!(older, [(path.as_slice(), full.id, full.started_ns)]);
    let lost = capstan_director::index_path(never.to_str().unwrap().as_bytes());
    assert_eq!(plan.lost, [lost]);
    assert!(bench.restore(&object, "out").is_whole());
    assert_eq!(fs::read(below("out", &secret)).unwrap(), b"first");
    let mut out = Vec::new();
    let told = bench.site().cat_file(object.id, &path, &mut out, &Arc::default()).unwrap().older.unwrap();
    assert_eq!((out.as_slice(), told.object), (&b"first"[..], full.id));

    // Once it can be read it is, though nothing else changed; once it is gone no version of it comes back.
    open(&secret);
    bench.backup(&bench.request(Level::Incremental)).unwrap();
    bench.restore(&bench.objects()[0], "readable");
    assert_eq!(fs::read(below("readable", &secret)).unwrap(), b"second");
    close(&secret);
    fs::write(file("a-0"), "so that there is something to do").unwrap();
    open(&secret);
    fs::write(&secret, "third").unwrap();
    close(&secret);
    backup_as_nobody_special(&bench, Level::Incremental);
    fs::remove_file(&secret).unwrap();
    fs::remove_file(&never).unwrap();
    bench.backup(&bench.request(Level::Incremental)).unwrap();
    bench.assert_restores(&bench.objects()[0], "gone");
}
