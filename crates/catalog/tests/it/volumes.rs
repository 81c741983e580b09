//! Volumes and pools, their lives, and what is refused.

use capstan_catalog::{
    Catalog, CatalogError, CopySeen, CopyState, DamagedBlocks, JobEnd, JobOutcome, JobStart, KeyRef, LostCopy,
    MediumKind, Pool, Promise, ScratchFeed, Volume, VolumeState,
};
use capstan_format::{
    Algorithm, CatalogPart, ExtentRecord, FileEntry, KeyTag, ObjectId, ObjectRecord, ObjectState, PartRecord, Volser,
    VolumeId,
};

use crate::tape::{Tape, catalog, catalog_in, file, object, object_id, part};

#[test]
fn pools_and_volumes_are_kept_as_they_were_put() {
    let dir = tempfile::tempdir().unwrap();
    let mut catalog = catalog_in(dir.path());
    let pool = Pool {
        name: "vault".to_owned(),
        encryption: Some(Algorithm::Aes256Ccm),
        retention_ns: Some(86_400_000_000_000),
        feed: ScratchFeed::Denied,
    };
    let volume = Volume {
        pool: Some("vault".to_owned()),
        id: Some(VolumeId(u64::MAX)),
        state: VolumeState::Suspect,
        key: Some(KeyRef { tag: KeyTag([9; 16]), algorithm: Algorithm::Aes256Ccm }),
        capacity: Some(1 << 40),
        read_ns: Some(-5),
        mounts: 3,
        errors: 1,
        recycled: 2,
        medium: MediumKind::WriteOnce,
        ..Volume::blank(Volser::new("A00001L9").unwrap())
    };
    assert!(matches!(catalog.put_volume(&volume), Err(CatalogError::UnknownPool(name)) if name == "vault"));
    catalog.put_pool(&pool).unwrap();
    catalog.put_volume(&volume).unwrap();
    catalog.put_volume(&Volume::blank(Volser::new("A00000").unwrap())).unwrap();
    drop(catalog);
    let mut catalog = catalog_in(dir.path());
    assert_eq!(catalog.pools().unwrap(), std::slice::from_ref(&pool));
    assert_eq!(catalog.volume(&volume.volser).unwrap(), Some(volume.clone()));
    assert_eq!(catalog.volumes().unwrap().len(), 2);
    assert!(matches!(catalog.remove_pool("vault"), Err(CatalogError::PoolInUse { volumes: 1, .. })));
    assert!(matches!(catalog.remove_pool("none"), Err(CatalogError::UnknownPool(_))));
    let changed = catalog.update_volume(&volume.volser, |volume| volume.mounts += 1).unwrap();
    assert_eq!(changed, Volume { mounts: 4, ..volume.clone() });
    let other_life = catalog.update_volume(&volume.volser, |volume| volume.id = Some(VolumeId(1)));
    assert!(matches!(other_life, Err(CatalogError::OtherLife { .. })));
    assert!(catalog.remove_volume(&volume.volser, Promise::Keep).unwrap().is_empty());
    catalog.remove_pool("vault").unwrap();
    assert!(catalog.update_volume(&volume.volser, |_| ()).is_err());
}

#[test]
fn whoever_lost_a_volume_does_not_close_it_for_whoever_has_it() {
    let dir = tempfile::tempdir().unwrap();
    let mut catalog = catalog_in(dir.path());
    let life = VolumeId(u64::MAX);
    let volume = Volume { id: Some(life), ..Volume::blank(Volser::new("A00001").unwrap()) };
    catalog.put_volume(&volume).unwrap();
    catalog.volume_opened(life, 4).unwrap();
    catalog.volume_opened(life, 7).unwrap();
    assert!(!catalog.volume_closed_under(life, 4).unwrap());
    assert_eq!((catalog.opened_under(life).unwrap(), catalog.opened_volumes().unwrap()), (Some(7), vec![life]));
    assert!(catalog.volume_closed_under(life, 7).unwrap());
    assert_eq!(catalog.opened_under(life).unwrap(), None);
}

#[test]
fn a_volume_labelled_anew_loses_its_copies_and_says_whose() {
    let dir = tempfile::tempdir().unwrap();
    let (mut first, mut second) = (Tape::new("A00001", 11), Tape::new("B00001", 22));
    let mut catalog = catalog(dir.path(), &[&first, &second]);
    let (twin, single) = (object_id(1), object_id(2));
    let entries = [file("a", 0, 0), file("b", 0, 1024)];
    for (tape, copy) in [(&mut first, 1), (&mut second, 2)] {
        let record = ObjectRecord { copy, ..object(twin, None, ObjectState::Complete) };
        tape.write(part(&record, &entries)).record(&mut catalog).unwrap();
    }
    let record = object(single, None, ObjectState::Complete);
    first.write(part(&record, &entries)).record(&mut catalog).unwrap();
    assert_eq!(catalog.copies(twin).unwrap().len(), 2);
    assert_eq!(catalog.objects_on(&first.volser).unwrap().len(), 2);
    assert_eq!(catalog.extents_on(&first.volser).unwrap().len(), 2);

    let before = catalog.volume(&first.volser).unwrap().unwrap();
    assert_eq!(before.written, 2 * (2048 + 64));
    let now = Volume { id: Some(VolumeId(33)), recycled: 1, ..Volume::blank(first.volser.clone()) };
    let lost = catalog.relabelled(&now, Promise::Keep).unwrap();
    let expected =
        [LostCopy { object: twin, copy: 1, copies_left: 1 }, LostCopy { object: single, copy: 1, copies_left: 0 }];
    assert_eq!(lost, expected);
    let wanted = catalog.wanted_copies(twin).unwrap();
    assert_eq!((wanted[0].copy, wanted[0].state), (1, CopyState::Open), "it is promised still");
    assert!(catalog.relabelled(&now, Promise::Keep).unwrap().is_empty());
    assert!(catalog.extents(single, None).unwrap().is_empty());
    assert_eq!(catalog.extents(twin, None).unwrap().len(), 1);
    assert_eq!(catalog.copies(twin).unwrap()[0].copy, 2);

    // A checkpoint of the old life belongs to no volume that there is.
    let stale = first.write(part(&record, &entries)).record(&mut catalog);
    assert!(matches!(stale, Err(CatalogError::OtherLife { .. })));
}

#[test]
fn a_copy_is_wanted_until_its_last_volume_is_given_up() {
    let dir = tempfile::tempdir().unwrap();
    let (mut first, mut second) = (Tape::new("A00001", 11), Tape::new("B00001", 22));
    let (mut twin, mut blank) = (Tape::new("C00001", 33), 100);
    let mut catalog = catalog(dir.path(), &[&first, &second, &twin]);
    let id = object_id(1);
    catalog.promise_copies(&[(id, 1, "main"), (id, 2, "main"), (id, 3, "vault")]).unwrap();
    let (open, complete) = (object(id, None, ObjectState::Open), object(id, None, ObjectState::Complete));
    first.write(part(&open, &[file("a", 0, 0)])).record(&mut catalog).unwrap();
    assert_eq!(catalog.lacking_copies().unwrap(), [], "an open object lacks nothing yet");
    second.write(part(&complete, &[file("b", 0, 1024)])).record(&mut catalog).unwrap();
    let of_twin = ObjectRecord { copy: 2, ..complete };
    twin.write(part(&of_twin, &[file("a", 0, 0), file("b", 0, 1024)])).record(&mut catalog).unwrap();
    let states = |catalog: &Catalog| -> Vec<_> {
        catalog.wanted_copies(id).unwrap().iter().map(|copy| (copy.copy, copy.state)).collect()
    };
    let counted = [1, 2, 3].map(|copy| (id, copy, catalog.copy_seen(id, copy).unwrap()));
    let before = counted.map(|(id, copy, seen)| (id, copy, CopySeen { extents: seen.extents + 1, ..seen }));
    catalog.copies_are_whole(&before).unwrap();
    assert_eq!(catalog.lacking_copies().unwrap().len(), 3, "they are not what was looked at");
    catalog.copies_are_whole(&counted).unwrap();
    // Copy 3 was promised and never begun: whatever is said of it, it did not end.
    assert_eq!(states(&catalog), [(1, CopyState::Whole), (2, CopyState::Whole), (3, CopyState::Open)]);
    assert_eq!(catalog.lacking_copies().unwrap().len(), 1);

    let mut erase = |catalog: &mut Catalog, tape: &Tape| {
        blank += 1;
        let now = Volume { id: Some(VolumeId(blank)), ..Volume::blank(tape.volser.clone()) };
        catalog.relabelled(&now, Promise::Drop).unwrap();
    };
    erase(&mut catalog, &second);
    assert_eq!(states(&catalog), [(1, CopyState::Open), (2, CopyState::Whole), (3, CopyState::Open)]);
    erase(&mut catalog, &twin);
    assert_eq!(states(&catalog), [(1, CopyState::Open), (3, CopyState::Open)], "given up by its last volume");
    erase(&mut catalog, &first);
    assert_eq!(states(&catalog), [], "there is nothing left that copy 3 could be made from");
}

/// Another process recorded damage while copies were looked at. The copy was kept as whole all the same, and stayed so:
/// the same damage found again is nothing new.
#[test]
fn a_copy_is_not_whole_over_damage_that_was_found_while_it_was_looked_at() {
    let dir = tempfile::tempdir().unwrap();
    let mut tape = Tape::new("A00001", 11);
    let mut catalog = catalog(dir.path(), &[&tape]);
    let id = object_id(1);
    catalog.promise_copies(&[(id, 1, "main")]).unwrap();
    let record = object(id, None, ObjectState::Complete);
    tape.write(part(&record, &[file("a", 0, 0)])).record(&mut catalog).unwrap();
    let seen = catalog.copy_seen(id, 1).unwrap();
    let first_lbn = catalog.extents_on(&tape.volser).unwrap()[0].record.first_lbn;
    let bad = DamagedBlocks { first_lbn, blocks: 1, reason: "unreadable".to_owned() };
    assert_eq!(catalog.record_damage(&tape.volser, VolumeId(11), &[bad], "verify", 100).unwrap(), 1);
    catalog.copies_are_whole(&[(id, 1, seen)]).unwrap();
    assert_eq!(catalog.wanted_copies(id).unwrap()[0].state, CopyState::Ended);
    assert_eq!(catalog.lacking_copies().unwrap().len(), 1, "it is looked at again");
    // Whoever knows of the damage may have found those blocks elsewhere.
    let seen = catalog.copy_seen(id, 1).unwrap();
    catalog.copies_are_whole(&[(id, 1, seen)]).unwrap();
    assert_eq!(catalog.wanted_copies(id).unwrap()[0].state, CopyState::Whole);
}

#[test]
fn the_volumes_of_a_copy_stand_in_the_order_they_were_written() {
    let dir = tempfile::tempdir().unwrap();
    let (mut first, mut second) = (Tape::new("Z00001", 11), Tape::new("A00001", 22));
    let mut catalog = catalog(dir.path(), &[&first, &second]);
    let id = object_id(1);
    let open = object(id, None, ObjectState::Open);
    let early = first.write(part(&open, &[file("a", 0, 0)]));
    second.lbn = first.lbn;
    let next = second.write(part(&open, &[file("b", 0, 1024)]));
    first.lbn = second.lbn;
    let late = first.write(part(&open, &[file("c", 1, 0)]));
    for written in [next, early, late] {
        written.record(&mut catalog).unwrap();
    }
    assert_eq!(catalog.copies(id).unwrap()[0].volumes, [first.volser, second.volser]);
}

#[test]
fn a_part_that_contradicts_itself_is_refused_whole() {
    let dir = tempfile::tempdir().unwrap();
    let mut tape = Tape::new("A00001", 11);
    let mut catalog = catalog(dir.path(), &[&tape]);
    let known = object(object_id(1), None, ObjectState::Open);
    let good = part(&known, &[file("a", 0, 0)]);
    let stranger = PartRecord { object: object_id(9), connection: 0, valid_len: 1 };
    let mut refused = vec![
        CatalogPart { parts: vec![stranger], ..good.clone() },
        CatalogPart { parts: vec![PartRecord { valid_len: u64::MAX, ..good.parts[0] }], ..good.clone() },
        CatalogPart { entries: vec![(object_id(1), vec![1, 2, 3])], ..good.clone() },
        CatalogPart { entries: vec![(object_id(9), crate::tape::run(&[file("a", 0, 0)]))], ..good.clone() },
    ];
    let far = ExtentRecord { offset: i64::MAX as u64, ..good.extents[0] };
    refused.push(CatalogPart { extents: vec![far], ..good.clone() });
    for path in ["", "/a", "a/", "a\0b"] {
        refused.push(part(&known, &[file(path, 0, 0)]));
    }
    // Taken in, these stopped every plan that a restore of the object began with: their ends were added, and
    // overflowed.
    let far = |offset, member_len| FileEntry { offset, member_len, ..file("far", 0, 0) };
    let large = FileEntry { size: 1 << 63, ..far(0, 1) };
    for entry in [far(u64::MAX, 1), far(1024, u64::MAX), far(i64::MAX as u64, 1), large] {
        refused.push(CatalogPart { entries: vec![(object_id(1), crate::tape::run(&[entry]))], ..good.clone() });
    }
    for part in refused {
        let error = tape.write(part.clone()).record(&mut catalog).unwrap_err();
        let expected = matches!(
            error,
            CatalogError::PartRefused { .. } | CatalogError::PartDamaged { .. } | CatalogError::TooLarge { .. }
        );
        assert!(expected, "{error:?}");
        assert_eq!(catalog.object(object_id(1)).unwrap(), None, "nothing of it stays");
    }
    tape.write(good).record(&mut catalog).unwrap();
    let other_copy = ObjectRecord { copy: 2, ..known };
    assert!(tape.write(part(&other_copy, &[])).record(&mut catalog).is_err());
    let unknown = Tape::new("Z00001", 5).write(CatalogPart::default()).record(&mut catalog);
    assert!(matches!(unknown, Err(CatalogError::UnknownVolume(_))));
}

#[test]
fn jobs_are_listed_latest_first() {
    let dir = tempfile::tempdir().unwrap();
    let mut catalog = catalog_in(dir.path());
    let start = |kind, started_ns| JobStart { kind, subject: "/usr", process: "boot 1 2", started_ns };
    let first = catalog.begin_job(&start("backup", 1)).unwrap();
    let second = catalog.begin_job(&start("restore", 2)).unwrap();
    catalog.job_writes(first, ObjectId([1; 16])).unwrap();
    let end = JobEnd {
        ended_ns: 3,
        outcome: JobOutcome::Warned,
        exit_code: 3,
        files: 4,
        bytes: 5,
        stored: 6,
        message: "1 file vanished".to_owned(),
    };
    catalog.end_job(first, &end, "a\nb\n").unwrap();
    let jobs = catalog.jobs(10).unwrap();
    assert_eq!(jobs.iter().map(|job| job.id).collect::<Vec<_>>(), [second, first]);
    assert_eq!((jobs[0].end.clone(), jobs[1].end.clone()), (None, Some(end)));
    assert_eq!(catalog.jobs(1).unwrap().len(), 1);
    assert_eq!(catalog.jobs_without_end().unwrap(), jobs[..1]);
    assert_eq!(catalog.log_of(first).unwrap(), "a\nb\n");

    // A catalog that is made anew goes on with the log.
    let other = tempfile::tempdir().unwrap();
    let mut anew = catalog_in(other.path());
    anew.take_over_jobs(&catalog, true).unwrap();
    assert_eq!(anew.jobs(10).unwrap(), jobs);
    assert_eq!(
        (anew.log_of(first).unwrap().as_str(), anew.objects_of_job(first).unwrap()),
        ("a\nb\n", vec![ObjectId([1; 16])])
    );
    assert_eq!(anew.begin_job(&start("verify", 4)).unwrap(), second + 1);
}
