//! An index against a sorted map, and against damage.
#![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

use std::collections::BTreeMap;
use std::fs::File;
use std::os::unix::fs::FileExt;

use capstan_format::{FileEntry, ObjectId};

use super::{Effort, Fingerprint, Index, IndexFile, IndexWriter};
use crate::order::{KeyRange, join_into, split};
use crate::random::Random;
use crate::{CatalogError, Entries, PathParts, PathPredicate};

/// What an index should be: entries by directory and name.
type Model = BTreeMap<(Vec<u8>, Vec<u8>), FileEntry>;

const OBJECT: ObjectId = ObjectId([5; 16]);

fn model(random: &mut Random, entries: u64) -> Model {
    let mut offset = 0u64;
    let mut entry = |_| {
        let connection = random.below(3) as u16;
        let entry = random.entry(connection, offset);
        offset = if random.chance(9) { random.number() } else { entry.offset.wrapping_add(entry.member_len) };
        let (dir, name) = split(&entry.path);
        ((dir.to_vec(), name.to_vec()), entry)
    };
    (0..entries).map(&mut entry).collect()
}

fn write(model: &Model, group_rows: usize, effort: Effort) -> (File, Fingerprint) {
    let file = tempfile::tempfile().unwrap();
    let writer = IndexWriter::new(file.try_clone().unwrap(), "test".to_owned(), OBJECT, effort).unwrap();
    let mut writer = writer.with_group_rows(group_rows);
    model.values().for_each(|entry| writer.push(entry).unwrap());
    assert_eq!(writer.finish().unwrap().entries, model.len() as u64);
    let fingerprint = IndexFile::fingerprint(&file, "test").unwrap();
    (file, fingerprint)
}

fn open(file: &File, fingerprint: &Fingerprint) -> Result<Index, CatalogError> {
    Ok(Index::new(OBJECT, IndexFile::open(file.try_clone().unwrap(), "test", fingerprint)?))
}

fn all(entries: Entries<'_>) -> Vec<FileEntry> {
    entries.map(Result::unwrap).collect()
}

fn bytes(file: &File) -> Vec<u8> {
    let mut bytes = vec![0; file.metadata().unwrap().len() as usize];
    file.read_exact_at(&mut bytes, 0).unwrap();
    bytes
}

#[test]
fn an_index_answers_as_a_sorted_map_does() {
    let mut random = Random::seeded("an_index_answers_as_a_sorted_map_does");
    let rounds = if std::env::var_os("CAPSTAN_FULL").is_some() { 100 } else { 12 };
    for _ in 0..rounds {
        let size = random.below(80);
        let model = model(&mut random, size);
        let group_rows = 1 + random.below(9) as usize;
        let effort = if random.below(2) == 0 { Effort::Kept } else { Effort::Passing };
        let (file, fingerprint) = write(&model, group_rows, effort);
        let index = open(&file, &fingerprint).unwrap();
        assert_eq!(index.len(), model.len() as u64);
        assert_eq!(all(index.iter()), model.values().cloned().collect::<Vec<_>>());
        let mut path = Vec::new();
        for (dir, name) in model.keys() {
            join_into(&mut path, dir, name);
            assert_eq!(index.get(&path).unwrap().as_ref(), model.get(&(dir.clone(), name.clone())));
        }
        for _ in 0..40 {
            let path = random.path();
            let below = [path.as_slice(), b"/"].concat();
            let (dir, name) = split(&path);
            assert_eq!(index.get(&path).unwrap().as_ref(), model.get(&(dir.to_vec(), name.to_vec())));
            let select = |wanted: &dyn Fn(&FileEntry) -> bool| -> Vec<FileEntry> {
                model.values().filter(|entry| wanted(entry)).cloned().collect()
            };
            assert_eq!(all(index.children(&path)), select(&|entry| split(&entry.path).0 == path));
            let expected = select(&|entry| entry.path == path || entry.path.starts_with(&below));
            assert_eq!(all(index.subtree(&path)), expected);
            let stop = random.path();
            let behind = |entry: &FileEntry| split(&entry.path) > split(&stop);
            assert_eq!(all(index.iter().behind(&stop)), select(&behind));
            assert_eq!(
                all(index.children(&path).behind(&stop)),
                select(&|entry| split(&entry.path).0 == path && behind(entry))
            );
            let expected = select(&|entry| (entry.path == path || entry.path.starts_with(&below)) && behind(entry));
            assert_eq!(all(index.subtree(&path).behind(&stop)), expected);
            let ending = &path[path.len() - 1..];
            assert_eq!(all(index.find(&|path| path.ends_with(ending))), select(&|entry| entry.path.ends_with(ending)));
            let none = PathParts::default;
            let found = |wanted: &PathPredicate<'_>, parts: PathParts| all(index.find_with(wanted, &parts, &|| false));
            let (named, stem) = (|path: &[u8]| split(path).1 == name, &name[..name.len().min(5)]);
            assert_eq!(found(&named, none().with_name(name)), select(&|entry| named(&entry.path)));
            let begins = |path: &[u8]| split(path).1.starts_with(stem);
            assert_eq!(found(&begins, none().with_beginning(stem)), select(&|entry| begins(&entry.path)));
            let ends = |path: &[u8]| path.ends_with(ending);
            assert_eq!(found(&ends, none().with_end(ending)), select(&|entry| ends(&entry.path)));
            let segment: Vec<_> = name.iter().map(|&byte| (random.below(3) > 0).then_some(byte)).collect();
            let fits =
                |there: &[u8]| segment.iter().zip(there).all(|(want, byte)| want.is_none_or(|want| want == *byte));
            let has = |path: &[u8]| split(path).1.windows(name.len()).any(fits);
            let known = none().with_segment(segment.clone());
            assert_eq!(found(&has, known.clone()), select(&|entry| has(&entry.path)));
            let behind_stop = all(index.find_with(&has, &known, &|| false).behind(&stop));
            assert_eq!(behind_stop, select(&|entry| has(&entry.path) && behind(entry)));
            // Whoever stops a search learns where it stands.
            let stopped = index.find_with(&|_| false, &known, &|| true).next().map(Result::unwrap);
            assert_eq!(stopped.as_ref(), model.values().next());
            let has = |entry: &[u8]| entry.windows(path.len()).any(|window| window == path);
            assert_eq!(found(&has, none().with_text(&path)), select(&|entry| has(&entry.path)));
        }
        assert_eq!(all(index.children(b"")), all(index.find(&|path| !path.contains(&b'/'))));
        assert_eq!(all(index.subtree(b".")).len(), model.len());
    }
}

#[test]
fn the_same_entries_give_the_same_bytes() {
    let mut random = Random::seeded("the_same_entries_give_the_same_bytes");
    let model = model(&mut random, 300);
    assert_eq!(bytes(&write(&model, 64, Effort::Kept).0), bytes(&write(&model, 64, Effort::Kept).0));
}

#[test]
fn any_flipped_or_missing_byte_is_an_error_that_names_rebuild() {
    let mut random = Random::seeded("any_flipped_or_missing_byte_is_an_error_that_names_rebuild");
    let model = model(&mut random, 20);
    let (file, fingerprint) = write(&model, 16, Effort::Kept);
    let good = bytes(&file);
    let expected: Vec<FileEntry> = model.values().cloned().collect();
    let read = |what: &str| {
        // Bitmaps are read by a search, and by nobody else.
        let parts = PathParts::default();
        let all = |index: Index| {
            let bitmaps =
                (0..index.file.groups_of(&KeyRange::all()).end).map(|group| index.file.may_have(group, &parts));
            bitmaps.collect::<Result<Vec<_>, _>>()?;
            index.iter().collect::<Result<Vec<_>, _>>()
        };
        let read = open(&file, &fingerprint).and_then(all);
        match read {
            Err(CatalogError::Corrupt { .. }) => {
                assert!(read.unwrap_err().to_string().contains("capstan rebuild"));
            }
            // The magic at the start tells nothing that the end does not.
            Ok(entries) => assert!(entries == expected && what == "magic", "{what}: damage was not seen"),
            Err(other) => panic!("{what}: {other}"),
        }
    };
    for at in 0..good.len() {
        file.write_at(&[good[at] ^ (1 << random.below(8))], at as u64).unwrap();
        read(if at < 4 { "magic" } else { "flip" });
        file.write_at(&good[at..=at], at as u64).unwrap();
    }
    for len in 0..good.len() {
        file.set_len(len as u64).unwrap();
        read("truncation");
        file.write_all_at(&good[len..], len as u64).unwrap();
    }
    file.write_all_at(b"x", good.len() as u64).unwrap();
    read("a byte more");
}

/// The checksums are a lock, not a wall: should they be wrong too, decoding still ends in an error or in some entries.
#[test]
fn damage_below_the_checksums_does_not_panic() {
    let mut random = Random::seeded("damage_below_the_checksums_does_not_panic");
    let (file, _) = write(&model(&mut random, 20), 16, Effort::Passing);
    let good = bytes(&file);
    let mut errors = 0;
    for at in 4..good.len() {
        file.write_at(&[good[at] ^ (1 << random.below(8))], at as u64).unwrap();
        let read = IndexFile::fingerprint(&file, "test")
            .and_then(|fingerprint| open(&file, &fingerprint))
            .and_then(|index| index.iter().collect::<Result<Vec<_>, _>>());
        errors += u32::from(read.is_err());
        file.write_at(&good[at..=at], at as u64).unwrap();
    }
    assert!(errors > 0);
}

/// /dev/full refuses every write with ENOSPC.
#[test]
fn a_full_disk_is_named() {
    let mut random = Random::seeded("a_full_disk_is_named");
    let full = File::options().write(true).open("/dev/full").unwrap();
    let writer = IndexWriter::new(full, "test".to_owned(), OBJECT, Effort::Passing).unwrap();
    let mut writer = writer.with_group_rows(8);
    let written = model(&mut random, 100).values().try_for_each(|entry| writer.push(entry));
    let ended = written.and_then(|()| writer.finish().map(drop));
    assert!(matches!(ended, Err(CatalogError::DiskFull { .. })), "{ended:?}");
}
