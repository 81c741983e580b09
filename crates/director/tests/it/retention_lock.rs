//! Locked retention: nothing takes away what is locked, by whatever way, until it ends.

use capstan_catalog::{CopyState, Grant, Object, Promise, Resource, Wish};
use capstan_director::{BackupRequest, DirectorError, ExpiryRequest, Level, Loss, Retention};
use capstan_format::{Algorithm, ObjectId, Volser};

use crate::mover_elsewhere::latest;
use crate::place::{Bench, small};

const DAY_NS: i64 = 86_400 * 1_000_000_000;

fn locked(bench: &Bench, level: Level) -> BackupRequest {
    BackupRequest { is_locked: true, retention: Retention::For(10 * DAY_NS), ..bench.request(level) }
}

fn volser(name: &str) -> Volser {
    Volser::new(name).unwrap()
}

fn expire(bench: &Bench, objects: &[ObjectId]) -> Result<usize, DirectorError> {
    let (site, request) = (bench.site(), ExpiryRequest { named: objects.to_vec(), ..ExpiryRequest::default() });
    Ok(site.expire(&site.plan_expiry(&request)?, &request)?.forget.len())
}

/// A full backup on the first volume, which is not locked, and a locked incremental on the second.
fn chain() -> (Bench, Object, Object) {
    let bench = Bench::encrypted(small(), Some(Algorithm::Aes256Gcm));
    bench.fill("a", 5, 50_000);
    bench.backup(&BackupRequest { retention: Retention::For(DAY_NS), ..bench.request(Level::Full) }).unwrap();
    let full = latest(&bench);
    bench.sql("UPDATE volumes SET state = 3 WHERE volser = 'A00001'");
    bench.fill("b", 5, 50_000);
    bench.backup(&locked(&bench, Level::Incremental)).unwrap();
    let incremental = latest(&bench);
    assert!(incremental.is_locked && !full.is_locked && incremental.base == Some(full.id));
    // A later one, so that it is not the last.
    bench.fill("c", 5, 50_000);
    bench.backup(&bench.request(Level::Full)).unwrap();
    (bench, full, incremental)
}

/// Refused for this object, until this one's retention ends.
fn assert_locked(ended: Result<impl std::fmt::Debug, DirectorError>, (object, until): (&Object, &Object), what: &str) {
    match ended {
        Err(DirectorError::RetentionLocked { object: named, until_ns, .. }) => {
            assert_eq!((named, until_ns), (object.id, until.expires_ns), "{what}");
        }
        other => panic!("{what}: {other:?}"),
    }
}

#[test]
fn nothing_takes_away_what_is_locked_or_what_it_stands_on() {
    let (bench, full, incremental) = chain();
    let site = bench.site();
    let refused = |ended| matches!(ended, Err(DirectorError::ObjectKept { .. }));
    assert!(refused(expire(&bench, &[incremental.id])));
    assert!(refused(expire(&bench, &[full.id])), "a base goes with nothing that stays");
    assert!(refused(expire(&bench, &[full.id, incremental.id])));
    for (name, object) in [("A00001", &full), ("A00002", &incremental)] {
        let locked = (object, &incremental);
        let volser = volser(name);
        assert_locked(site.erase(&volser, Loss::Accept, Promise::Keep), locked, name);
        assert_locked(site.label(&volser, None, None, Loss::Accept, Promise::Keep), locked, name);
        assert_locked(site.check_key_unlocked(name), locked, name);
        let key = site.catalog().volume(&volser).unwrap().unwrap().key.unwrap();
        assert_locked(site.destroy_key(&key.tag), locked, name);
        std::fs::rename(bench.cartridge(name), bench.path(name)).unwrap();
        assert_locked(bench.site().forget(&volser, Loss::Accept, Promise::Keep), locked, name);
        std::fs::rename(bench.path(name), bench.cartridge(name)).unwrap();
    }
    drop(site);
    bench.rebuild();
    assert!(bench.objects().iter().any(|object| object.id == incremental.id && object.is_locked), "volumes know it");
    assert!(refused(expire(&bench, &[incremental.id])));

    // Its retention ends: then all of it is as anything else.
    bench.sql("UPDATE objects SET expires_ns = 1 WHERE locked = 1");
    let site = bench.site();
    site.erase(&volser("A00002"), Loss::Accept, Promise::Keep).unwrap();
    site.erase(&volser("A00001"), Loss::Accept, Promise::Keep).unwrap();
}

/// A session that had begun on the volume went on under a key that nobody has any more.
#[test]
fn a_key_is_not_destroyed_while_a_job_has_its_volume() {
    let bench = Bench::encrypted(small(), Some(Algorithm::Aes256Gcm));
    bench.fill("a", 5, 50_000);
    bench.backup(&bench.request(Level::Full)).unwrap();
    let site = bench.site();
    let key = site.catalog().volume(&volser("A00001")).unwrap().unwrap().key.unwrap();
    let wish = Wish::alone(Resource::Volume(volser("A00001")));
    let held = site.catalog().reserve(&wish, "elsewhere 1 1", i64::MAX, &|_| false).unwrap();
    let Grant::Held(generation) = held else { panic!("{held:?}") };
    assert!(matches!(site.destroy_key(&key.tag), Err(DirectorError::InUse { .. })));
    site.catalog().release(&[generation]).unwrap();
    assert_eq!(site.destroy_key(&key.tag).unwrap().tag, key.tag);
}

#[test]
fn another_copy_may_be_lost_and_not_given_up() {
    let bench = Bench::new(small());
    bench.fill("a", 5, 50_000);
    bench.backup(&BackupRequest { copies: 2, ..locked(&bench, Level::Full) }).unwrap();
    let (object, site) = (latest(&bench), bench.site());
    let second = &site.catalog().copies(object.id).unwrap()[1].volumes[0].clone();
    assert_locked(site.erase(second, Loss::Refuse, Promise::Drop), (&object, &object), "its promise");
    site.erase(second, Loss::Refuse, Promise::Keep).unwrap();
    let wanted = site.catalog().wanted_copies(object.id).unwrap();
    assert!(wanted.iter().any(|copy| copy.copy == 2 && copy.state != CopyState::Whole), "{wanted:?}");
    let first = &site.catalog().copies(object.id).unwrap()[0].volumes[0].clone();
    assert_locked(site.erase(first, Loss::Accept, Promise::Keep), (&object, &object), "the last copy");
}

/// An interrupted object that is kept for ever was gone on with, and would have been locked for ever.
#[test]
fn a_locked_backup_does_not_go_on_with_what_is_kept_for_ever() {
    let bench = Bench::new(small());
    bench.fill("a", 200, 150_000);
    bench.interrupted(&bench.request(Level::Full), 2, |_| ());
    let left = latest(&bench);
    let report = bench.backup(&locked(&bench, Level::Full)).unwrap();
    assert!(!report.sources[0].resumed);
    let object = latest(&bench);
    assert!(object.id != left.id && object.is_locked && object.expires_ns > 0, "{object:?}");
    // One that is locked is gone on with, and keeps its lock.
    bench.interrupted(&locked(&bench, Level::Full), 2, |_| ());
    let report = bench.backup(&locked(&bench, Level::Full)).unwrap();
    assert!(report.sources[0].resumed && latest(&bench).is_locked, "{report:?}");
}

#[test]
fn a_lock_needs_a_retention_that_ends() {
    let bench = Bench::new(small());
    bench.fill("a", 1, 1000);
    for retention in [Retention::OfPool, Retention::ByRule] {
        let ended = bench.backup(&BackupRequest { retention, ..locked(&bench, Level::Full) });
        assert!(matches!(ended, Err(DirectorError::LockWithoutRetention { .. })), "{ended:?}");
    }
    bench.site().add_pool("default", None, Some(10 * DAY_NS as u64)).unwrap();
    bench.backup(&BackupRequest { retention: Retention::OfPool, ..locked(&bench, Level::Full) }).unwrap();
    assert!(latest(&bench).is_locked);
}
