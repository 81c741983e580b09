//! Damaged, missing and foreign files: an error that says what to do, never a panic, never other entries.

use std::fs;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};

use capstan_catalog::{Catalog, CatalogError};
use capstan_format::{FileEntry, ObjectId, ObjectState};

use crate::tape::{Random, Tape, catalog, file, object, object_id, part};

fn sealed() -> (tempfile::TempDir, ObjectId, PathBuf) {
    sealed_in(tempfile::tempdir().unwrap())
}

/// One whose tables are in a file here, whatever database is under test.
fn sealed_in_sqlite() -> (tempfile::TempDir, ObjectId, PathBuf) {
    let dir = tempfile::tempdir().unwrap();
    Catalog::open(dir.path()).unwrap();
    sealed_in(dir)
}

fn sealed_in(dir: tempfile::TempDir) -> (tempfile::TempDir, ObjectId, PathBuf) {
    let mut tape = Tape::new("A00001", 11);
    let mut catalog = catalog(dir.path(), &[&tape]);
    let entries: Vec<FileEntry> = (0..50).map(|at| file(&format!("a/{at}"), 0, at * 1024)).collect();
    let id = object_id(1);
    tape.write(part(&object(id, None, ObjectState::Complete), &entries)).record(&mut catalog).unwrap();
    catalog.seal_index(id).unwrap();
    let index = dir.path().join(format!("index/{id}.1.parquet"));
    (dir, id, index)
}

fn corrupt(dir: &std::path::Path, object: ObjectId) {
    let read = || Catalog::open(dir)?.index(object)?.iter().collect::<Result<Vec<_>, _>>();
    let error = read().unwrap_err();
    assert!(matches!(error, CatalogError::Corrupt { .. }), "{error:?}");
    assert!(error.to_string().contains("capstan rebuild"), "{error}");
}

#[test]
fn an_index_that_is_gone_cut_or_another_says_rebuild() {
    let (dir, id, index) = sealed();
    let good = fs::read(&index).unwrap();
    fs::write(&index, &good[..good.len() / 2]).unwrap();
    corrupt(dir.path(), id);
    fs::write(&index, b"").unwrap();
    corrupt(dir.path(), id);
    fs::write(&index, vec![0; good.len()]).unwrap();
    corrupt(dir.path(), id);
    fs::remove_file(&index).unwrap();
    corrupt(dir.path(), id);
    fs::write(&index, &good).unwrap();
    assert_eq!(Catalog::open(dir.path()).unwrap().index(id).unwrap().len(), 50);
}

#[test]
fn a_damaged_database_says_rebuild_and_a_newer_one_says_newer() {
    let (dir, _, _) = sealed_in_sqlite();
    let db = dir.path().join("catalog.db");
    let good = fs::read(&db).unwrap();
    fs::write(&db, b"this is no database, and long enough to be looked at as one........................").unwrap();
    match Catalog::open(dir.path()).map(|_| ()) {
        Err(error @ CatalogError::Corrupt { .. }) => assert!(error.to_string().contains("capstan rebuild")),
        other => panic!("{other:?}"),
    }
    // user_version stands at byte 60 of the file, big-endian (SQLite file format, section 1.3).
    let mut newer = good.clone();
    newer[60..64].copy_from_slice(&99u32.to_be_bytes());
    fs::write(&db, newer).unwrap();
    assert!(matches!(Catalog::open(dir.path()), Err(CatalogError::Newer { found: 99, .. })));
    fs::write(&db, &good).unwrap();
    Catalog::open(dir.path()).unwrap();
}

/// Random damage to the database ends in an error or goes unnoticed where nothing reads it; it never panics.
#[test]
fn damage_to_the_database_never_panics() {
    let mut random = Random::seeded("damage_to_the_database_never_panics");
    let (dir, id, _) = sealed_in_sqlite();
    let db = dir.path().join("catalog.db");
    let good = fs::read(&db).unwrap();
    let mut errors = 0;
    for _ in 0..200 {
        let mut bad = good.clone();
        for _ in 0..=random.below(20) {
            let at = random.below(bad.len() as u64) as usize;
            bad[at] = random.u64() as u8;
        }
        fs::write(&db, bad).unwrap();
        let read = || {
            let catalog = Catalog::open(dir.path())?;
            catalog.volumes()?;
            catalog.extents(id, None)?;
            catalog.dump(&mut Vec::new())
        };
        errors += u32::from(read().is_err());
    }
    assert!(errors > 0);
}

#[test]
fn files_that_a_killed_sealing_left_are_replaced() {
    let dir = tempfile::tempdir().unwrap();
    let mut tape = Tape::new("A00001", 11);
    let mut catalog = catalog(dir.path(), &[&tape]);
    let id = object_id(1);
    tape.write(part(&object(id, None, ObjectState::Complete), &[file("a", 0, 0)])).record(&mut catalog).unwrap();
    fs::write(dir.path().join(format!("index/{id}.new")), vec![1; 100_000]).unwrap();
    fs::write(dir.path().join(format!("index/{id}.1.parquet")), vec![2; 100_000]).unwrap();
    assert_eq!(catalog.index(id).unwrap().len(), 1);
    catalog.seal_index(id).unwrap();
    assert_eq!(catalog.index(id).unwrap().len(), 1);
    fs::write(dir.path().join(format!("index/{id}.new")), b"again").unwrap();
    catalog.expire(id, 1).unwrap();
    catalog.remove_volume(&tape.volser, capstan_catalog::Promise::Keep).unwrap();
    assert_eq!(fs::read_dir(dir.path().join("index")).unwrap().count(), 0);
}

#[test]
fn a_full_disk_is_named() {
    // /dev/full refuses every write with ENOSPC.
    let (dir, _, _) = sealed();
    let catalog = Catalog::open(dir.path()).unwrap();
    let mut full = fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
    assert!(matches!(catalog.dump(&mut full), Err(CatalogError::DiskFull { .. })));
}

/// Readers in other threads (each with a connection of its own, as other processes have) while one writes and seals.
#[test]
fn readers_never_see_half_of_a_checkpoint() {
    let dir = tempfile::tempdir().unwrap();
    let mut tape = Tape::new("A00001", 11);
    let mut writer = catalog(dir.path(), &[&tape]);
    let id = object_id(1);
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let reader = || {
            let catalog = Catalog::open(dir.path()).unwrap();
            let mut seen = 0;
            while !done.load(Ordering::Relaxed) {
                if catalog.object(id).unwrap().is_none() {
                    continue;
                }
                let entries = catalog.index(id).unwrap().len();
                assert!(entries >= seen && entries.is_multiple_of(10), "{entries} after {seen}");
                seen = entries;
                let extents = catalog.extents(id, None).unwrap().len() as u64;
                assert!(extents >= entries / 10);
            }
        };
        let readers = [scope.spawn(reader), scope.spawn(reader)];
        for step in 0..30 {
            let entries: Vec<FileEntry> =
                (0..10).map(|at| file(&format!("{step}/{at}"), 0, (step * 10 + at) * 1024)).collect();
            let state = if step < 15 { ObjectState::Open } else { ObjectState::Complete };
            tape.write(part(&object(id, None, state), &entries)).record(&mut writer).unwrap();
            if state == ObjectState::Complete {
                writer.seal_index(id).unwrap();
            }
        }
        done.store(true, Ordering::Relaxed);
        readers.into_iter().for_each(|reader| reader.join().unwrap());
    });
    assert_eq!(writer.index(id).unwrap().len(), 300);
}

/// Two that seal one object while a third adds to it: what is named in the end is whole, and nothing else is left.
#[test]
fn several_seal_one_object_at_once() {
    let dir = tempfile::tempdir().unwrap();
    let mut tape = Tape::new("A00001", 11);
    let mut writer = catalog(dir.path(), &[&tape]);
    let id = object_id(1);
    let mut steps = 0..;
    let mut record = |writer: &mut Catalog| {
        let step: u64 = steps.next().unwrap();
        let entries: Vec<FileEntry> =
            (0..200).map(|at| file(&format!("{step}/{at}"), 0, (step * 200 + at) * 1024)).collect();
        tape.write(part(&object(id, None, ObjectState::Complete), &entries)).record(writer).unwrap();
    };
    record(&mut writer);
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let seal = || {
            let mut catalog = Catalog::open(dir.path()).unwrap().another().unwrap().unwrap();
            while !done.load(Ordering::Relaxed) {
                catalog.seal_index(id).unwrap();
            }
        };
        let sealers = [scope.spawn(seal), scope.spawn(seal), scope.spawn(seal)];
        (1..40).for_each(|_| record(&mut writer));
        done.store(true, Ordering::Relaxed);
        sealers.into_iter().for_each(|sealer| sealer.join().unwrap());
    });
    writer.seal_index(id).unwrap();
    assert_eq!(writer.index(id).unwrap().iter().map(Result::unwrap).count(), 40 * 200);
    let left: Vec<_> = fs::read_dir(dir.path().join("index")).unwrap().collect();
    assert_eq!(left.len(), 1, "{left:?}");
}
