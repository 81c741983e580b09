//! Expiry carried out: what was shown and is still so, and what can be taken back.

use capstan_catalog::{GoneSource, Object, Promise, VolumeState};
use capstan_director::{BackupRequest, DirectorError, Event, ExpiryRequest, Level, Loss, Retention};
use capstan_format::{ObjectId, Volser};
use capstan_mover::RestoreWatch;

use crate::place::{Bench, small};

fn names(objects: &[ObjectId]) -> ExpiryRequest {
    ExpiryRequest { named: objects.to_vec(), ..ExpiryRequest::default() }
}

fn with_gone(object: &Object, request: ExpiryRequest) -> ExpiryRequest {
    let gone = vec![GoneSource { source: object.source.clone(), client: object.client.clone() }];
    ExpiryRequest { gone, ..request }
}

#[test]
fn no_more_is_forgotten_than_was_shown_and_nothing_that_became_a_base() {
    let bench = Bench::new(small());
    bench.fill("a", 3, 1000);
    bench.backup(&bench.request(Level::Full)).unwrap();
    bench.backup(&bench.request(Level::Full)).unwrap();
    let objects = bench.objects();
    let [second, first] = &objects[..] else { panic!("two objects") };
    // Its retention has ended, as has that of the other; that one is the last of its source.
    bench.sql("UPDATE copies SET expires_ns = 1");
    let shown = bench.site().plan_expiry(&ExpiryRequest::default()).unwrap();
    assert_eq!(shown.forget, [bench.objects()[1].clone()]);
    bench.fill("b", 3, 1000);
    bench.backup(&bench.request(Level::Incremental)).unwrap();
    bench.sql("UPDATE copies SET expires_ns = 1");
    let third = bench.objects()[0].clone();
    assert_eq!(third.base, Some(second.id));
    bench.backup(&bench.request(Level::Full)).unwrap();
    // Now four could go or stay by other reasons; what was shown is one.
    let done = bench.site().expire(&shown, &ExpiryRequest::default()).unwrap();
    assert_eq!(done.forget.iter().map(|object| object.id).collect::<Vec<_>>(), [first.id]);
    // What was shown as free to go has become a base.
    let shown = bench.site().plan_expiry(&names(&[third.id])).unwrap();
    bench.sql(&format!(
        "UPDATE objects SET base = x'{}' WHERE base IS NULL AND object > x'{}'",
        hex(third.id),
        hex(third.id)
    ));
    match bench.site().expire(&shown, &names(&[third.id])) {
        Err(DirectorError::ObjectKept { object, .. }) => assert_eq!(object, third.id),
        other => panic!("{other:?}"),
    }
    assert_eq!(bench.objects().len(), 3);
}

/// A volume that a killed session may have written more on became scratch, and suspect when it was to be used again.
#[test]
fn a_volume_that_may_hold_more_than_is_known_is_not_freed() {
    let bench = Bench::new(small());
    bench.fill("a", 3, 1000);
    bench.backup(&bench.request(Level::Full)).unwrap();
    bench.sql("UPDATE volumes SET state = 3 WHERE volser = 'A00001'");
    bench.backup(&bench.request(Level::Full)).unwrap();
    let first = bench.objects()[1].id;
    bench.sql("INSERT INTO opened_volumes (volume) SELECT volume FROM volumes WHERE volser = 'A00001'");
    let expire = |request: &ExpiryRequest| {
        let site = bench.site();
        let done = site.expire(&site.plan_expiry(request).unwrap(), request).unwrap();
        done.frees.iter().map(ToString::to_string).collect::<Vec<_>>()
    };
    assert_eq!(expire(&names(&[first])), [""; 0]);
    assert_eq!(bench.objects().len(), 1);
    assert!(bench.notices.lock().unwrap().iter().any(|notice| notice.contains("`capstan label A00001`")));
    bench.sql("DELETE FROM opened_volumes");
    assert_eq!(expire(&ExpiryRequest::default()), ["A00001"]);
}

/// A restore that was typed read volumes that the server's expiry had given to others meanwhile.
#[test]
fn what_a_restore_reads_does_not_expire_meanwhile() {
    let bench = Bench::new(small());
    bench.fill("a", 3, 1000);
    bench.backup(&bench.request(Level::Full)).unwrap();
    bench.backup(&bench.request(Level::Full)).unwrap();
    let first = bench.objects()[1].clone();
    let (mounted, is_mounted) = std::sync::mpsc::channel();
    let (goes_on, go_on) = std::sync::mpsc::channel::<()>();
    bench.set_hook(Some(Box::new(move |event| {
        if let Event::Mounted { .. } = event {
            mounted.send(()).unwrap();
            go_on.recv().unwrap();
        }
    })));
    let expire = || {
        let site = bench.site_told(std::sync::Arc::new(|_| ()));
        site.expire(&site.plan_expiry(&names(&[first.id])).unwrap(), &names(&[first.id]))
    };
    std::thread::scope(|scope| {
        let restored = scope.spawn(|| bench.restore(&first, "out"));
        is_mounted.recv().unwrap();
        let refused = expire();
        goes_on.send(()).unwrap();
        assert!(matches!(refused, Err(DirectorError::InUse { .. })), "{refused:?}");
        assert!(restored.join().unwrap().is_whole());
    });
    bench.set_hook(None);
    assert_eq!(expire().unwrap().forget.len(), 1);
}

fn hex(object: ObjectId) -> String {
    object.0.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// What is kept for ten years was written behind what is kept for a month, and kept its volume for ten years.
#[test]
fn objects_of_like_lifetime_gather_on_volumes() {
    let mut config = small();
    config.attention.scratch_volumes = 0;
    config.library.volumes_max = 3;
    let bench = Bench::new(config);
    bench.fill("a", 3, 100_000);
    let kept = |days: i64| BackupRequest {
        retention: Retention::For(days * 86_400_000_000_000),
        ..bench.request(Level::Full)
    };
    let written = |days: i64| {
        let object = bench.backup(&kept(days)).unwrap().sources[0].object;
        let mut copies = bench.site().catalog().copies(object).unwrap();
        assert_eq!((copies.len(), copies[0].volumes.len()), (1, 1));
        copies.remove(0).volumes.remove(0)
    };
    let (month, decade) = (written(30), written(3650));
    assert_ne!(month, decade);
    assert_eq!([written(31), written(3000), written(20)], [month.clone(), decade.clone(), month.clone()]);
    let forever = bench.backup(&BackupRequest { retention: Retention::OfPool, ..kept(1) }).unwrap().sources[0].object;
    let forever = bench.site().catalog().copies(forever).unwrap()[0].volumes[0].clone();
    assert!(![&month, &decade].contains(&&forever));
    // The library has no place for a fourth: the nearest is shared.
    assert_eq!(written(365), decade, "ten times as long, and a month is a twelfth");
    assert_eq!(written(1), month);
    // A catalog that is made anew knows it.
    bench.rebuild();
    assert_eq!([written(30), written(3650)], [month, decade]);
}

#[test]
fn what_expired_is_taken_back_as_it_was_while_a_copy_of_it_is_left() {
    let bench = Bench::new(small());
    bench.fill("a", 3, 100_000);
    bench.backup(&BackupRequest { copies: 2, ..bench.request(Level::Full) }).unwrap();
    bench.fill("b", 3, 100_000);
    bench.backup(&BackupRequest { copies: 2, ..bench.request(Level::Incremental) }).unwrap();
    let objects = bench.objects();
    let [incremental, full] = &objects[..] else { panic!("two objects") };
    let before = bench.dump();
    let request = with_gone(full, names(&[full.id, incremental.id]));
    let forget = || {
        let plan = bench.site().plan_expiry(&request).unwrap();
        let done = bench.site().expire(&plan, &request).unwrap();
        assert_eq!((done.forget.len(), done.frees.len()), (2, 2));
        assert!(bench.objects().is_empty());
        done.frees
    };
    let volumes = forget();
    // One is named, and what it stands on comes along.
    let back = bench.site().unexpire(&[incremental.id]).unwrap();
    assert_eq!((back.objects.len(), back.lost.len(), back.volumes.len()), (2, 0, 2));
    assert_eq!(bench.dump(), before);
    let states = bench.site().catalog().volumes().unwrap().into_iter().map(|volume| volume.state);
    assert!(states.eq([VolumeState::Filling, VolumeState::Filling]));
    bench.assert_restores(incremental, "back");

    forget();
    // A volume that holds nothing living is labelled without force, and nothing living lost a copy.
    let label = |at: usize| bench.site().label(&volumes[at], None, None, Loss::Refuse, Promise::Keep).unwrap();
    assert!(label(0).copies.is_empty());
    let back = bench.site().unexpire(&[]).unwrap();
    assert_eq!((back.objects.len(), back.lost.len()), (2, 0), "the last run's");
    bench.assert_restores(incremental, "from the other copy");

    let plan = bench.site().plan_expiry(&request).unwrap();
    bench.site().expire(&plan, &request).unwrap();
    label(1);
    let back = bench.site().unexpire(&[]).unwrap();
    assert_eq!((back.objects.len(), back.lost.len()), (0, 2), "of none of them anything is left");
}

/// Two full backups of a source, each on a volume of its own; the first one is forgotten, and A00001 is scratch.
pub(crate) fn with_a_scratch_volume() -> (Bench, Object) {
    let bench = Bench::new(small());
    bench.fill("a", 3, 100_000);
    bench.backup(&bench.request(Level::Full)).unwrap();
    bench.sql("UPDATE volumes SET state = 3");
    bench.backup(&bench.request(Level::Full)).unwrap();
    bench.sql("UPDATE volumes SET state = 3");
    let first = bench.objects().remove(1);
    let request = names(&[first.id]);
    let plan = bench.site().plan_expiry(&request).unwrap();
    assert_eq!(bench.site().expire(&plan, &request).unwrap().frees.len(), 1);
    assert_eq!(place_of(&bench), (VolumeState::Scratch, None));
    (bench, first)
}

fn a00001() -> Volser {
    Volser::new("A00001").unwrap()
}

/// The state and the pool of A00001.
fn place_of(bench: &Bench) -> (VolumeState, Option<String>) {
    let known = bench.site().catalog().volume(&a00001()).unwrap().unwrap();
    (known.state, known.pool)
}

/// A verification finds all of it good, and then the next backup goes on behind what is on it.
fn assert_is_cleared(bench: &Bench) {
    bench.site().verify_volume(&a00001(), &RestoreWatch::default()).unwrap();
    assert_eq!(place_of(bench), (VolumeState::Filling, Some("default".to_owned())));
    bench.sql("UPDATE volumes SET state = 3 WHERE volser <> 'A00001'");
    let object = bench.backup(&bench.request(Level::Full)).unwrap().sources[0].object;
    assert_eq!(bench.site().catalog().copies(object).unwrap()[0].volumes, [a00001()]);
}

/// A scratch volume was set aside, and only then its expiry was undone. It stayed in no pool; a verification made it
/// scratch again, and the next backup wrote over what had been taken back.
#[test]
fn what_is_taken_back_from_a_volume_that_was_set_aside_is_not_written_over() {
    let (bench, first) = with_a_scratch_volume();
    bench.sql("UPDATE volumes SET state = 4 WHERE volser = 'A00001'");
    let back = bench.site().unexpire(&[first.id]).unwrap();
    assert_eq!((back.objects.len(), back.lost.len(), back.volumes.len()), (1, 0, 0));
    assert_eq!(place_of(&bench), (VolumeState::Suspect, Some("default".to_owned())));
    assert_is_cleared(&bench);
    bench.assert_restores(&first, "out");
}

/// An earlier version left volumes in no pool, or scratch, whose objects had been taken back: a backup labelled them.
#[test]
fn what_is_kept_on_a_volume_that_passes_for_scratch_is_not_written_over() {
    let (bench, first) = with_a_scratch_volume();
    bench.sql("UPDATE objects SET expired_ns = NULL");
    bench.backup(&bench.request(Level::Full)).unwrap();
    assert_eq!(place_of(&bench), (VolumeState::Suspect, None));
    assert!(bench.notices.lock().unwrap().iter().any(|notice| notice.contains("lists 1 object on it")));
    bench.assert_restores(&first, "out");
    // All of it is good: it goes where its objects were promised to.
    assert_is_cleared(&bench);
    bench.assert_restores(&first, "out-2");
}

/// Undoing said that an object was taken back whose pool had been removed meanwhile. Its volume stayed scratch, and was
/// written over.
#[test]
fn what_belongs_in_a_pool_that_was_removed_is_taken_back_once_there_is_one_again() {
    let bench = Bench::new(small());
    bench.fill("a", 3, 1000);
    bench.site().add_pool("vault", None, None).unwrap();
    bench.backup(&BackupRequest { pool: "vault".to_owned(), ..bench.request(Level::Full) }).unwrap();
    let object = bench.objects().remove(0);
    let request = with_gone(&object, names(&[object.id]));
    let plan = bench.site().plan_expiry(&request).unwrap();
    bench.site().expire(&plan, &request).unwrap();
    bench.site().remove_pool("vault").unwrap();
    let back = bench.site().unexpire(&[]).unwrap();
    assert_eq!((back.objects.len(), back.lost.len(), back.volumes.len()), (0, 1, 0));
    assert!(back.lost[0].1.contains("`capstan pools add vault`"), "{}", back.lost[0].1);
    assert!(bench.objects().is_empty());
    assert_eq!(place_of(&bench), (VolumeState::Scratch, None));
    bench.site().add_pool("vault", None, None).unwrap();
    let back = bench.site().unexpire(&[]).unwrap();
    assert_eq!((back.objects.len(), back.lost.len(), back.volumes.len()), (1, 0, 1));
    assert_eq!(place_of(&bench), (VolumeState::Filling, Some("vault".to_owned())));
    bench.assert_restores(&object, "out");
}

/// An object that nobody knew any more kept those named before it from being reserved: a backup could write over their
/// volume while they were taken back.
#[test]
fn what_is_taken_back_is_reserved_whatever_else_is_named() {
    let (bench, first) = with_a_scratch_volume();
    let (mounted, is_mounted) = std::sync::mpsc::channel();
    let (goes_on, go_on) = std::sync::mpsc::channel::<()>();
    bench.set_hook(Some(Box::new(move |event| {
        if let Event::Mounted { .. } = event {
            mounted.send(()).unwrap();
            let _ = go_on.recv();
        }
    })));
    std::thread::scope(|scope| {
        let backup = scope.spawn(|| bench.backup(&bench.request(Level::Full)));
        is_mounted.recv().unwrap();
        let site = bench.site_told(std::sync::Arc::new(|_| ()));
        let refused = site.unexpire(&[first.id, ObjectId([9; 16])]);
        drop(goes_on);
        assert!(matches!(refused, Err(DirectorError::InUse { .. })), "{refused:?}");
        backup.join().unwrap().unwrap();
    });
    bench.set_hook(None);
    let back = bench.site().unexpire(&[first.id]).unwrap();
    assert!(back.objects.is_empty(), "its volume was labelled");
}

/// A killed session had written on a volume that was set aside. A verification found all of it good and recorded what
/// the catalog lacked, but the note that there may be more stayed, and no expiry ever freed the volume.
#[test]
fn a_volume_that_a_verification_has_cleared_is_freed() {
    let bench = Bench::new(small());
    bench.fill("a", 3, 1000);
    bench.backup(&bench.request(Level::Full)).unwrap();
    bench.sql("UPDATE volumes SET state = 3");
    bench.backup(&bench.request(Level::Full)).unwrap();
    let first = bench.objects().remove(1);
    bench.sql("INSERT INTO opened_volumes (volume) SELECT volume FROM volumes WHERE volser = 'A00001'");
    bench.sql("UPDATE volumes SET state = 4 WHERE volser = 'A00001'");
    bench.site().verify_volume(&a00001(), &RestoreWatch::default()).unwrap();
    assert_eq!(place_of(&bench).0, VolumeState::Filling);
    assert!(bench.site().catalog().opened_volumes().unwrap().is_empty());
    let request = names(&[first.id]);
    let plan = bench.site().plan_expiry(&request).unwrap();
    assert_eq!(bench.site().expire(&plan, &request).unwrap().frees, [a00001()]);
}

/// All of a volume is good, but the pool that its objects were written for is gone: it was made scratch.
#[test]
fn a_volume_whose_pool_was_removed_stays_set_aside_while_it_holds_what_is_kept() {
    let bench = Bench::new(small());
    bench.fill("a", 3, 1000);
    bench.site().add_pool("vault", None, None).unwrap();
    bench.backup(&BackupRequest { pool: "vault".to_owned(), ..bench.request(Level::Full) }).unwrap();
    let object = bench.objects().remove(0);
    // As an earlier version left it.
    bench.sql("UPDATE volumes SET state = 4, pool = NULL; DELETE FROM pools WHERE name = 'vault'");
    let verify = || bench.site().verify_volume(&a00001(), &RestoreWatch::default()).unwrap();
    assert!(verify().is_whole());
    assert_eq!(place_of(&bench), (VolumeState::Suspect, None));
    assert!(bench.notices.lock().unwrap().iter().any(|notice| notice.contains("`capstan pools add`")));
    bench.site().add_pool("vault", None, None).unwrap();
    assert!(verify().is_whole());
    assert_eq!(place_of(&bench), (VolumeState::Filling, Some("vault".to_owned())));
    bench.assert_restores(&object, "out");
}
