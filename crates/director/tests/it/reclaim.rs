//! Volumes that are emptied: what is needed of them goes to others of the pool.

use std::collections::BTreeSet;
use std::fs;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use capstan_catalog::{Object, ObjectStatus, Promise, VolumeState};
use capstan_director::{
    BackupRequest, Config, DirectorError, Event, ExpiryRequest, Level, Loss, ReclaimOptions, ReclaimRequest, Reclaimed,
    Shortfall, Site, VolumeFate,
};
use capstan_format::Volser;
use capstan_mover::RestoreWatch;

use crate::place::spoil::spoil;
use crate::place::{Bench, noise, small};

const PLAINLY: ReclaimOptions = ReclaimOptions {
    retire: false,
    verify: false,
    most: usize::MAX,
    shortfall: Shortfall::Fail,
    in_this_library: false,
};

/// Volumes of a few objects each.
fn short() -> Config {
    let mut config = small();
    config.library.volume_mib = 6;
    config
}

fn back_up(bench: &Bench, name: &str, count: u32) -> Object {
    let source = bench.path(name);
    fs::create_dir_all(&source).unwrap();
    for number in 0..count {
        let seed = u64::from(number) * 31 + name.bytes().map(u64::from).sum::<u64>() * 977;
        fs::write(source.join(format!("f{number}")), noise(seed, 300_000)).unwrap();
    }
    let request = BackupRequest { sources: vec![source], connections: 2, ..bench.request(Level::Full) };
    let report = bench.backup(&request).unwrap();
    bench.site().catalog().object(report.sources[0].object).unwrap().unwrap()
}

fn give_up(site: &Site, objects: &[&Object]) {
    let request = ExpiryRequest { named: objects.iter().map(|object| object.id).collect(), ..ExpiryRequest::default() };
    site.expire(&site.plan_expiry(&request).unwrap(), &request).unwrap();
}

fn volumes_of(site: &Site, object: &Object, copy: u8) -> Vec<Volser> {
    let copies = site.catalog().copies(object.id).unwrap();
    copies.into_iter().filter(|held| held.copy == copy).flat_map(|held| held.volumes).collect()
}

fn state_of(site: &Site, volser: &Volser) -> VolumeState {
    site.catalog().volume(volser).unwrap().unwrap().state
}

fn of(volumes: &[Volser]) -> ReclaimRequest {
    ReclaimRequest { volumes: volumes.to_vec(), ..ReclaimRequest::default() }
}

type Ended = (Vec<Reclaimed>, Result<Option<DirectorError>, DirectorError>);

fn reclaim(site: &Site, request: &ReclaimRequest, options: ReclaimOptions, watch: &RestoreWatch) -> Ended {
    let plan = site.plan_reclaim(request).unwrap();
    let mut done = Vec::new();
    let ended = site.reclaim(&plan, options, watch, &mut |one| done.push(one.clone()));
    (done, ended)
}

/// Reclaims a volume, and is stopped at the first checkpoint, if there is one.
fn stopped_at_a_checkpoint(bench: &Bench, volser: &Volser) -> Ended {
    let watch = RestoreWatch::default();
    let stop = Arc::clone(&watch.stop);
    bench.set_hook(Some(Box::new(move |event| {
        if matches!(event, Event::Checkpoint { .. }) {
            stop.store(true, Ordering::Relaxed);
        }
    })));
    let ended = reclaim(&bench.site(), &of(std::slice::from_ref(volser)), PLAINLY, &watch);
    bench.set_hook(None);
    ended
}

fn all(site: &Site, request: &ReclaimRequest, options: ReclaimOptions) -> Vec<Reclaimed> {
    let (done, ended) = reclaim(site, request, options, &RestoreWatch::default());
    assert!(matches!(ended, Ok(None)), "{ended:?}");
    done
}

/// All of an object can be restored, and is what was backed up.
fn assert_whole(bench: &Bench, object: &Object, name: &str) {
    let to = format!("back-{name}-{}", fs::read_dir(bench.path("")).unwrap().count());
    let report = bench.restore(object, &to);
    assert!(report.is_whole(), "{name}: {:?} {:?}", report.failed, report.lost);
    let source = bench.path(name);
    let restored = bench.path(&to).join(source.strip_prefix("/").unwrap());
    for entry in fs::read_dir(&source).unwrap().map(Result::unwrap) {
        assert!(fs::read(entry.path()).unwrap() == fs::read(restored.join(entry.file_name())).unwrap(), "{entry:?}");
    }
}

#[test]
fn what_is_needed_of_a_sparse_volume_goes_to_another_one() {
    let bench = Bench::new(short());
    let site = bench.site();
    let (a, b, c) = (back_up(&bench, "a", 4), back_up(&bench, "b", 4), back_up(&bench, "c", 30));
    let first = volumes_of(&site, &a, 1)[0].clone();
    assert_eq!(volumes_of(&site, &b, 1)[0], first);
    assert_eq!(state_of(&site, &first), VolumeState::Full);
    let rule = ReclaimRequest { below: Some(0.5), ..ReclaimRequest::default() };
    assert!(site.plan_reclaim(&rule).unwrap().volumes.is_empty());
    // The last one of a source is kept.
    fs::remove_dir_all(bench.path("a")).unwrap();
    back_up(&bench, "a", 1);
    give_up(&site, &[&a]);
    let sparse = ReclaimRequest { below: Some(0.9), ..ReclaimRequest::default() };
    let plan = site.plan_reclaim(&sparse).unwrap();
    let planned = plan.volumes.iter().find(|volume| volume.volser == first).unwrap();
    assert_eq!(planned.objects, 2);
    let share = planned.needed as f64 / planned.written as f64;
    assert!((0.5..0.9).contains(&share), "{share}");

    let known = site.catalog().copy_ends(None).unwrap();
    let done = all(&site, &of(std::slice::from_ref(&first)), PLAINLY);
    let one = &done[0];
    assert_eq!((one.fate, one.copies, &one.left[..]), (VolumeFate::Scratch, 2, &[][..]));
    assert!(!one.onto.contains(&first) && one.bytes > 1_000_000, "{one:?}");
    // Of what stands on two volumes, only what stood on this one was written.
    assert!(one.bytes < 6_000_000, "{one:?}");
    assert_eq!(state_of(&site, &first), VolumeState::Scratch);
    assert_eq!(site.catalog().copy_ends(None).unwrap(), known);
    for (object, name) in [(&b, "b"), (&c, "c")] {
        assert!(!volumes_of(&site, object, 1).contains(&first));
        assert_eq!(site.whole_copies(object).unwrap(), [1]);
        assert_whole(&bench, object, name);
    }
    // It is written anew, by what comes next.
    let next = back_up(&bench, "d", 60);
    assert!(volumes_of(&site, &next, 1).contains(&first), "{:?}", volumes_of(&site, &next, 1));
    bench.rebuild();
    for (object, name) in [(&b, "b"), (&c, "c"), (&next, "d")] {
        assert_whole(&bench, object, name);
    }
}

/// One by one, at each checkpoint: each object can be restored at any time, and in the end the volume is free.
#[test]
fn one_that_is_stopped_goes_on_where_it_was() {
    let bench = Bench::new(small());
    let site = bench.site();
    let objects: Vec<(String, Object)> = (0..4)
        .map(|number| {
            let name = format!("o{number}");
            let object = back_up(&bench, &name, 40);
            (name, object)
        })
        .collect();
    let volser = volumes_of(&site, &objects[0].1, 1)[0].clone();
    let (mut stops, mut bytes) = (0, 0);
    loop {
        let (done, ended) = stopped_at_a_checkpoint(&bench, &volser);
        for (name, object) in &objects {
            assert_whole(&bench, object, name);
        }
        if ended.is_ok() {
            bytes += done[0].bytes;
            assert_eq!(done[0].fate, VolumeFate::Scratch, "{:?}", done[0]);
            break;
        }
        assert!(matches!(ended, Err(DirectorError::ReclaimStopped)), "{ended:?}");
        stops += 1;
        assert!(stops < 40, "it never ends");
    }
    assert!(stops >= 2, "{stops}");
    assert!(bytes < 24_000_000, "the last run wrote {bytes} bytes: what was there before was written again");
    assert_eq!(state_of(&site, &volser), VolumeState::Scratch);
    bench.rebuild();
    for (name, object) in &objects {
        assert_whole(&bench, object, name);
    }
}

#[test]
fn one_with_room_is_written_to_again_if_it_is_not_emptied() {
    let bench = Bench::new(small());
    let site = bench.site();
    let a = back_up(&bench, "a", 12);
    let volser = volumes_of(&site, &a, 1)[0].clone();
    assert_eq!(state_of(&site, &volser), VolumeState::Filling);
    let watch = RestoreWatch::default();
    watch.stop.store(true, Ordering::Relaxed);
    let (_, ended) = reclaim(&site, &of(std::slice::from_ref(&volser)), PLAINLY, &watch);
    assert!(matches!(ended, Err(DirectorError::ReclaimStopped)), "{ended:?}");
    assert_eq!(state_of(&site, &volser), VolumeState::Filling);
    let done = all(&site, &of(std::slice::from_ref(&volser)), PLAINLY);
    assert_eq!(done[0].fate, VolumeFate::Scratch);
    assert_ne!(done[0].onto, [volser]);
    assert_whole(&bench, &a, "a");
}

/// What can be read neither from the volume nor elsewhere keeps it; what another copy has is taken from there.
#[test]
fn damage_is_passed_by_or_keeps_the_volume() {
    let bench = Bench::new(small());
    let site = bench.site();
    site.add_pool("default-copy2", None, None).unwrap();
    let single = back_up(&bench, "single", 6);
    let source = bench.path("double");
    fs::create_dir_all(&source).unwrap();
    fs::write(source.join("f0"), noise(4, 2_000_000)).unwrap();
    let request = BackupRequest { sources: vec![source], connections: 1, copies: 2, ..bench.request(Level::Full) };
    let report = bench.backup(&request).unwrap();
    let double = site.catalog().object(report.sources[0].object).unwrap().unwrap();
    let volser = volumes_of(&site, &double, 1)[0].clone();
    assert_eq!(volumes_of(&site, &single, 1), std::slice::from_ref(&volser));
    spoil(&bench, &double, 1);
    let done = all(&site, &of(std::slice::from_ref(&volser)), PLAINLY);
    // What damage was found on stays set aside.
    assert_eq!((done[0].fate, done[0].copies), (VolumeFate::SetAside, 2), "{:?}", done[0]);
    assert_eq!(state_of(&site, &volser), VolumeState::Suspect);
    assert_whole(&bench, &double, "double");
    assert_whole(&bench, &single, "single");

    let volser = volumes_of(&site, &single, 1)[0].clone();
    spoil(&bench, &single, 1);
    let done = all(&site, &of(std::slice::from_ref(&volser)), PLAINLY);
    let one = &done[0];
    assert_eq!((one.fate, one.copies), (VolumeFate::Needed, 1), "{one:?}");
    let [(object, reason)] = &one.left[..] else { panic!("{one:?}") };
    assert_eq!(*object, single.id);
    assert!(reason.contains("bytes of it cannot be read, and no other volume has them"), "{reason}");
    // All of it that can be read is elsewhere, too.
    assert!(volumes_of(&site, &single, 1).len() > 1);
    let again = all(&site, &of(std::slice::from_ref(&volser)), PLAINLY);
    assert_eq!((again[0].fate, again[0].bytes), (VolumeFate::Needed, 0), "{:?}", again[0]);
}

#[test]
fn volumes_that_are_to_go_are_laid_by() {
    let bench = Bench::new(short());
    let site = bench.site();
    let (a, b) = (back_up(&bench, "a", 30), back_up(&bench, "b", 10));
    let olds: BTreeSet<Volser> = volumes_of(&site, &a, 1).into_iter().chain(volumes_of(&site, &b, 1)).collect();
    assert!(olds.len() > 2, "{olds:?}");
    bench.sql("UPDATE volumes SET generation = 'LTO-5' WHERE pool IS NOT NULL");
    // One of them is empty, and one of no pool.
    let empty = [Volser::new("E00001").unwrap(), Volser::new("E00002").unwrap()];
    site.label(&empty[0], Some("default"), Some(6 << 20), Loss::Refuse, Promise::Keep).unwrap();
    site.label(&empty[1], None, Some(6 << 20), Loss::Refuse, Promise::Keep).unwrap();
    bench.sql("UPDATE volumes SET generation = 'LTO-5'");
    let request = ReclaimRequest { generations: vec!["lto5".to_owned()], ..ReclaimRequest::default() };
    let plan = site.plan_reclaim(&request).unwrap();
    assert_eq!(plan.retires.len(), olds.len() + 2, "{:?}", plan.retires);
    let unknown = ReclaimRequest { generations: vec!["LTO-66".to_owned()], ..ReclaimRequest::default() };
    assert_eq!(site.plan_reclaim(&unknown).unwrap().unknown, ["LTO-66"]);
    assert!(plan.unknown.is_empty(), "{:?}", plan.unknown);
    // Nothing is written on any of them from the first moment on, however many of them a run empties.
    let first = all(&site, &request, ReclaimOptions { most: 1, ..PLAINLY });
    assert_eq!(first.len(), 1);
    for volser in olds.iter().chain(&empty) {
        assert_eq!(state_of(&site, volser), VolumeState::Retired);
    }
    assert!(first[0].onto.iter().all(|volser| !olds.contains(volser)), "{first:?}");
    let mut done = all(&site, &request, PLAINLY);
    done.extend(first);
    assert_eq!(done.iter().map(|one| one.volser.clone()).collect::<BTreeSet<_>>(), olds);
    for one in &done {
        assert_eq!(one.fate, VolumeFate::Retired, "{one:?}");
        assert_eq!(state_of(&site, &one.volser), VolumeState::Retired);
        assert!(one.onto.iter().all(|volser| !olds.contains(volser)), "{one:?}");
    }
    assert_whole(&bench, &a, "a");
    assert_whole(&bench, &b, "b");
    // Nothing is left to do.
    assert!(site.plan_reclaim(&request).unwrap().volumes.is_empty());
}

/// A run that was stopped leaves an object open, and the next one goes on with it where it is.
#[test]
fn what_is_not_complete_stays() {
    let bench = Bench::new(small());
    bench.fill("a", 100, 300_000);
    bench.interrupted(&bench.request(Level::Full), 2, |_| {});
    let site = bench.site();
    let open = bench.objects()[0].clone();
    assert_eq!(open.status, ObjectStatus::Open);
    let volser = volumes_of(&site, &open, 1)[0].clone();
    let done = all(&site, &of(std::slice::from_ref(&volser)), PLAINLY);
    assert_eq!((done[0].fate, done[0].copies, done[0].left.len()), (VolumeFate::Needed, 0, 1));
    assert_eq!(state_of(&site, &volser), VolumeState::Filling);
}

/// What a run that was stopped had written counts only while it can be read: it was taken for safe on a volume that was
/// set aside since, and the last good one was freed.
#[test]
fn what_stands_on_a_volume_that_is_set_aside_counts_for_nothing() {
    let bench = Bench::new(small());
    let site = bench.site();
    let object = back_up(&bench, "a", 60);
    let first = volumes_of(&site, &object, 1)[0].clone();
    let (_, ended) = stopped_at_a_checkpoint(&bench, &first);
    assert!(matches!(ended, Err(DirectorError::ReclaimStopped)), "{ended:?}");
    let second = volumes_of(&site, &object, 1).into_iter().find(|volser| *volser != first).unwrap();
    bench.sql(&format!("UPDATE volumes SET state = 4 WHERE volser = '{second}'"));
    let done = all(&site, &of(std::slice::from_ref(&first)), PLAINLY);
    assert_eq!(done[0].fate, VolumeFate::Scratch, "{done:?}");
    assert!(done[0].bytes > 17_000_000, "only {} bytes were written elsewhere", done[0].bytes);
    fs::remove_file(bench.cartridge(second.as_str())).unwrap();
    fs::remove_file(bench.cartridge(first.as_str())).unwrap();
    assert_whole(&bench, &object, "a");
}

/// One that cannot be emptied comes last, and takes nobody's turn.
#[test]
fn one_that_cannot_be_emptied_keeps_no_other_from_it() {
    let bench = Bench::new(short());
    let site = bench.site();
    let (a, b) = (back_up(&bench, "a", 15), back_up(&bench, "b", 15));
    let lost = spoil(&bench, &a, 1).0;
    site.verify_volume(&lost, &RestoreWatch::default()).unwrap();
    let good = volumes_of(&site, &b, 1).into_iter().find(|volser| !volumes_of(&site, &a, 1).contains(volser)).unwrap();
    let both = of(&[lost.clone(), good.clone()]);
    let plan = site.plan_reclaim(&both).unwrap();
    let planned: Vec<_> = plan.volumes.iter().map(|volume| (&volume.volser, volume.holds_lost)).collect();
    assert_eq!(planned, [(&good, false), (&lost, true)]);
    let done = all(&site, &both, ReclaimOptions { most: 1, ..PLAINLY });
    assert_eq!(done.iter().map(|one| (&one.volser, one.fate)).collect::<Vec<_>>(), [(&good, VolumeFate::Scratch)]);
    let done = all(&site, &of(std::slice::from_ref(&lost)), ReclaimOptions { most: 1, ..PLAINLY });
    assert_eq!(done[0].fate, VolumeFate::Needed, "{done:?}");
}

/// A pool without room is named, and others are looked after all the same.
#[test]
fn what_cannot_be_done_of_one_is_done_of_the_others() {
    let bench = Bench::new(short());
    let site = bench.site();
    site.add_pool("other", None, None).unwrap();
    let a = back_up(&bench, "a", 4);
    let source = bench.path("b");
    fs::create_dir_all(&source).unwrap();
    fs::write(source.join("f"), noise(9, 4_000_000)).unwrap();
    let request =
        BackupRequest { sources: vec![source], pool: "other".to_owned(), connections: 1, ..bench.request(Level::Full) };
    let b = bench.backup(&request).unwrap().sources[0].object;
    let b = site.catalog().object(b).unwrap().unwrap();
    let volumes: Vec<Volser> = volumes_of(&site, &a, 1).into_iter().chain(volumes_of(&site, &b, 1)).collect();
    // One pool has an empty volume left, and no cartridge may be made any more.
    let empty = Volser::new("O00001").unwrap();
    site.label(&empty, Some("other"), Some(6 << 20), Loss::Refuse, Promise::Keep).unwrap();
    let mut config = short();
    config.library.volumes_max = u32::try_from(volumes.len()).unwrap() + 1;
    fs::write(bench.path("state/capstan.toml"), config.to_text()).unwrap();
    let (done, ended) = reclaim(&bench.site(), &of(&volumes), PLAINLY, &RestoreWatch::default());
    assert!(matches!(ended, Ok(Some(DirectorError::NoVolume { .. }))), "{ended:?}");
    assert_eq!(done.len(), volumes.len());
    let emptied: Vec<_> = done.iter().filter(|one| one.is_emptied()).map(|one| one.pool.as_str()).collect();
    assert!(emptied.contains(&"other"), "{done:?}");
    let reasons: Vec<_> = done.iter().filter_map(|one| one.kept_by.as_deref()).collect();
    assert!(reasons.iter().any(|reason| reason.contains("has no volume to write to")), "{reasons:?}");
    for (object, name) in [(&a, "a"), (&b, "b")] {
        assert_whole(&bench, object, name);
    }
}
