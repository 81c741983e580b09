//! The catalog against a model: random runs with twins, kills and incrementals, recorded in any order.

use std::collections::BTreeMap;
use std::path::Path;

use capstan_catalog::{
    Catalog, CatalogError, CopySeen, CopyState, ObjectFilter, ObjectStatus, Promise, Recorded, Volume,
};
use capstan_format::{EntryFlags, EntryKind, FileEntry, ObjectId, ObjectRecord, ObjectState};

use crate::tape::{Random, Tape, Written, catalog, catalog_in, object, object_id, part, part_of};

/// Entries by directory and name, as an index orders them.
type Entries = BTreeMap<(Vec<u8>, Vec<u8>), FileEntry>;

fn key(path: &[u8]) -> (Vec<u8>, Vec<u8>) {
    match path.iter().rposition(|&byte| byte == b'/') {
        Some(at) => (path[..at].to_vec(), path[at + 1..].to_vec()),
        None => (Vec::new(), path.to_vec()),
    }
}

/// A source's history: objects, each the base of the next, and the checkpoints of both copies.
struct History {
    objects: Vec<(ObjectId, Entries)>,
    /// Checkpoints as the run recorded them, both copies in turn.
    live: Vec<Written>,
    tapes: [Tape; 2],
}

/// Writes `count` objects. Each is written by one run or, after a kill, by two with further connections, of which one
/// may go on with a file that the first run was killed in. The copies are cut at different places.
fn history(random: &mut Random, count: u64) -> History {
    let mut tapes = [Tape::new("A00001L9", 11), Tape::new("B00001L9", 22)];
    let (mut objects, mut live) = (Vec::new(), Vec::new());
    for number in 0..count {
        let (id, base) = (object_id(number), number.checked_sub(1).map(object_id));
        let mut model = Entries::new();
        let attempts = 1 + random.below(2);
        let file = FileEntry { kind: EntryKind::File, size: 5000, link: Vec::new(), ..random.entry(0, 0) };
        let (is_cut, mut cut_at) = (attempts == 2 && random.chance(2), 0);
        for attempt in 0..attempts {
            let mut runs: BTreeMap<u16, Vec<FileEntry>> = BTreeMap::new();
            if is_cut && attempt == 1 {
                let rest = random.fragment(&file, (2, 0, 2048), true, Some((0, cut_at + 3072)));
                let whole = FileEntry { connection: 0, offset: cut_at, member_len: 5120, ..file.clone() };
                let best = model.entry(key(&whole.path)).or_insert_with(|| whole.clone());
                if (0, cut_at) > (best.connection, best.offset) {
                    *best = whole.clone();
                }
                // What comes next begins behind the rest.
                runs.insert(2, vec![whole, rest]);
            }
            for _ in 0..random.below(25) {
                let connection = (attempt * 2 + random.below(2)) as u16;
                let run = runs.entry(connection).or_default();
                let offset = run.last().map_or(0, |entry| entry.offset + entry.member_len);
                let any = random.entry(connection, offset);
                // No file is longer; a part that says otherwise is refused, which volumes.rs tests.
                let size = any.size.min(i64::MAX.cast_unsigned());
                let mut entry = FileEntry { size, member_len: 1024 * (1 + random.below(3)), ..any };
                // Not two at one place: which of them is the later read nobody could tell.
                if random.chance(4) && run.last().is_none_or(|last| last.member_len > 0) {
                    let kind = if random.chance(4) { EntryKind::Directory } else { EntryKind::File };
                    entry = FileEntry { kind, flags: EntryFlags::UNREADABLE, member_len: 0, link: Vec::new(), ..entry };
                }
                if entry.path == file.path {
                    continue;
                }
                let best = model.entry(key(&entry.path)).or_insert_with(|| entry.clone());
                let place = |entry: &FileEntry| (entry.connection, entry.offset, entry.member_len);
                if place(&entry) > place(best) {
                    *best = entry.clone();
                }
                run.push(entry);
            }
            if is_cut && attempt == 0 {
                let run = runs.entry(0).or_default();
                cut_at = run.last().map_or(0, FileEntry::end);
                run.push(random.fragment(&file, (0, cut_at, 3072), false, None));
            }
            for (copy, tape) in tapes.iter_mut().enumerate() {
                let open = ObjectRecord { copy: copy as u8 + 1, ..object(id, base, ObjectState::Open) };
                for (&connection, run) in &runs {
                    let mut rest = run.as_slice();
                    while !rest.is_empty() {
                        let (now, later) = rest.split_at(1 + random.below(rest.len() as u64) as usize);
                        live.push(tape.write(part_of(&open, connection, now)));
                        rest = later;
                    }
                }
                if attempt + 1 == attempts {
                    let complete = ObjectRecord { copy: copy as u8 + 1, ..object(id, base, ObjectState::Complete) };
                    live.push(tape.write(part(&complete, &[])));
                }
            }
        }
        objects.push((id, model));
    }
    History { objects, live, tapes }
}

fn dump(catalog: &Catalog) -> Vec<String> {
    let mut out = Vec::new();
    catalog.dump(&mut out).unwrap();
    String::from_utf8(out).unwrap().lines().map(str::to_owned).collect()
}

fn seal_all(catalog: &mut Catalog) {
    for object in catalog.unsealed().unwrap() {
        catalog.seal_index(object).unwrap();
    }
    assert!(catalog.unsealed().unwrap().is_empty());
}

/// Looks at copies that are not known to be whole, as a run does at its end.
fn look_at_copies(catalog: &mut Catalog) {
    for lacking in catalog.lacking_copies().unwrap() {
        let parts: u64 = catalog.parts(lacking.object).unwrap().iter().map(|part| part.valid_len).sum();
        let extents = catalog.extents(lacking.object, Some(lacking.copy)).unwrap();
        if extents.iter().map(|extent| extent.record.plain_len).sum::<u64>() == parts {
            let seen = CopySeen { extents: extents.len() as u64, damages: 0 };
            catalog.copies_are_whole(&[(lacking.object, lacking.copy, seen)]).unwrap();
        }
    }
}

fn all_whole(catalog: &mut Catalog, history: &History) {
    look_at_copies(catalog);
    assert_eq!(catalog.lacking_copies().unwrap(), []);
    for (object, _) in &history.objects {
        let wanted = catalog.wanted_copies(*object).unwrap();
        let wanted: Vec<_> = wanted.iter().map(|copy| (copy.copy, copy.pool.as_str(), copy.state)).collect();
        assert_eq!(wanted, [(1, "main", CopyState::Whole), (2, "main", CopyState::Whole)]);
    }
}

/// The bytes of an object's index, whatever its generation.
fn index_bytes(dir: &Path, object: ObjectId) -> Vec<u8> {
    let files = std::fs::read_dir(dir.join("index")).unwrap().map(|file| file.unwrap().path());
    let name = object.to_string();
    let mut files = files.filter(|file| file.file_name().unwrap().to_string_lossy().starts_with(&name));
    let file = files.next().unwrap();
    assert_eq!(files.next(), None, "one generation stays");
    std::fs::read(file).unwrap()
}

/// An entry of a state: the object that holds it, and the one that could not read it later.
type Held = (ObjectId, FileEntry, Option<ObjectId>);

/// The state of an object: the chain up to it, later wins, deleted is gone, what could not be read is as it was before.
fn state(objects: &[(ObjectId, Entries)]) -> BTreeMap<(Vec<u8>, Vec<u8>), Held> {
    let unread = |entry: &FileEntry| entry.flags.0 & EntryFlags::UNREADABLE.0 != 0 && entry.member_len == 0;
    let is_directory = |entry: &FileEntry| entry.kind == EntryKind::Directory;
    let mut state: BTreeMap<_, Held> = BTreeMap::new();
    for (object, entries) in objects {
        for (key, entry) in entries {
            let before = state.get_mut(key).filter(|(_, before, _)| {
                before.kind != EntryKind::Deleted && !unread(before) && is_directory(before) == is_directory(entry)
            });
            match before.filter(|_| unread(entry)) {
                Some((_, _, later)) => *later = Some(*object),
                None => drop(state.insert(key.clone(), (*object, entry.clone(), None))),
            }
        }
    }
    state.retain(|_, (_, entry, _)| entry.kind != EntryKind::Deleted);
    state
}

fn check(catalog: &Catalog, history: &History, random: &mut Random) {
    for (at, (object, entries)) in history.objects.iter().enumerate() {
        let index = catalog.index(*object).unwrap();
        let listed: Vec<_> = index.iter().map(Result::unwrap).collect();
        assert_eq!(listed, entries.values().cloned().collect::<Vec<_>>());
        let merged = catalog.state(*object).unwrap();
        let expected = state(&history.objects[..=at]);
        let listed: Vec<_> = merged.iter().map(|it| it.unwrap()).map(|it| (it.object, it.entry, it.unread)).collect();
        assert_eq!(listed, expected.values().cloned().collect::<Vec<_>>());
        for _ in 0..10 {
            let stop = random.path();
            let behind: Vec<_> = merged.iter().behind(&stop).map(|it| it.unwrap().entry.path).collect();
            let all =
                expected.iter().filter(|(path, _)| **path > key(&stop)).map(|(_, (_, entry, _))| entry.path.clone());
            assert_eq!(behind, all.collect::<Vec<_>>());
            let path = random.path();
            let found = merged.get(&path).unwrap().map(|it| (it.object, it.entry, it.unread));
            assert_eq!(found.as_ref(), expected.get(&key(&path)));
            let children: Vec<_> = merged.children(&path).map(|it| it.unwrap().entry.path).collect();
            let expected_children: Vec<_> = expected
                .iter()
                .filter(|((dir, _), _)| *dir == path)
                .map(|(_, (_, entry, _))| entry.path.clone())
                .collect();
            assert_eq!(children, expected_children);
            let versions: Vec<_> = catalog
                .versions(&ObjectFilter::default(), &path, &mut Vec::new())
                .unwrap()
                .into_iter()
                .map(|it| (it.object.id, it.entry))
                .collect();
            let all = history.objects.iter().rev();
            let expected_versions: Vec<_> =
                all.filter_map(|(id, entries)| Some((*id, entries.get(&key(&path))?.clone()))).collect();
            assert_eq!(versions, expected_versions);
        }
    }
}

#[test]
fn any_order_any_number_of_times_gives_the_same_catalog() {
    let mut random = Random::seeded("any_order_any_number_of_times_gives_the_same_catalog");
    for _ in 0..12 {
        let objects = 1 + random.below(4);
        let history = history(&mut random, objects);
        let tapes: Vec<&Tape> = history.tapes.iter().collect();

        let live_dir = tempfile::tempdir().unwrap();
        let mut live = catalog(live_dir.path(), &tapes);
        for written in &history.live {
            assert_eq!(written.record(&mut live).unwrap(), Recorded::New);
            // The first copy may be complete and sealed while the second still comes.
            if random.chance(8) {
                seal_all(&mut live);
                look_at_copies(&mut live);
            }
        }
        all_whole(&mut live, &history);
        check(&live, &history, &mut random);
        seal_all(&mut live);
        check(&live, &history, &mut random);

        // A rebuild: backwards on each volume, volumes in any order, some of it twice; here shuffled altogether.
        let rebuilt_dir = tempfile::tempdir().unwrap();
        let mut rebuilt = catalog(rebuilt_dir.path(), &tapes);
        let mut order = history.live.clone();
        order.extend(history.live.iter().filter(|_| random.chance(3)).cloned());
        random.shuffle(&mut order);
        let mut new = 0;
        for written in &order {
            new += usize::from(written.record(&mut rebuilt).unwrap() == Recorded::New);
            // What was concluded too early, of a stream of which only the beginning was known, is taken back.
            if random.chance(8) {
                look_at_copies(&mut rebuilt);
            }
        }
        all_whole(&mut rebuilt, &history);
        assert_eq!(new, history.live.len());
        seal_all(&mut rebuilt);
        check(&rebuilt, &history, &mut random);
        assert_eq!(dump(&rebuilt), dump(&live));
        for (object, _) in &history.objects {
            assert_eq!(index_bytes(rebuilt_dir.path(), *object), index_bytes(live_dir.path(), *object));
        }

        // What is recorded again changes nothing, and a catalog opened anew is the same.
        for written in &order {
            assert_eq!(written.record(&mut rebuilt).unwrap(), Recorded::Known);
        }
        drop(rebuilt);
        assert_eq!(dump(&catalog_in(rebuilt_dir.path())), dump(&live));
    }
}

#[test]
fn objects_expire_from_the_end_of_the_chain() {
    let mut random = Random::seeded("objects_expire_from_the_end_of_the_chain");
    let history = history(&mut random, 3);
    let dir = tempfile::tempdir().unwrap();
    let mut catalog = catalog(dir.path(), &history.tapes.iter().collect::<Vec<_>>());
    for written in &history.live {
        written.record(&mut catalog).unwrap();
    }
    seal_all(&mut catalog);
    let ids: Vec<ObjectId> = history.objects.iter().map(|(id, _)| *id).collect();
    match catalog.expire(ids[0], 9) {
        Err(CatalogError::BaseOfLiving { dependents, .. }) => assert_eq!(dependents, [ids[1]]),
        other => panic!("{other:?}"),
    }
    catalog.expire(ids[2], 9).unwrap();
    catalog.expire(ids[2], 9).unwrap();
    assert!(matches!(catalog.index(ids[2]), Err(CatalogError::Expired(_))));
    assert!(matches!(catalog.state(ids[2]), Err(CatalogError::Expired(_))));
    assert_eq!(catalog.object(ids[2]).unwrap().unwrap().status, ObjectStatus::Expired);
    assert_eq!(catalog.objects(&ObjectFilter::default()).unwrap().len(), 2);
    let expired = ObjectFilter { status: Some(ObjectStatus::Expired), ..ObjectFilter::default() };
    assert_eq!(catalog.latest(&expired).unwrap().unwrap().id, ids[2]);
    // Nothing is lost yet: it can be taken back, as it was.
    let before = dump(&catalog);
    catalog.expire(ids[1], 9).unwrap();
    assert_ne!(dump(&catalog), before);
    catalog.unexpire(&[ids[1]]).unwrap();
    assert_eq!(dump(&catalog), before);
    catalog.expire(ids[1], 9).unwrap();
    catalog.expire(ids[0], 9).unwrap();
    for tape in &history.tapes {
        assert_eq!(catalog.objects_on(&tape.volser).unwrap(), []);
        assert_eq!(catalog.extents_on(&tape.volser).unwrap(), []);
    }
    // Their volumes are labelled anew: no living object loses anything, and nothing is kept of the expired ones.
    for tape in &history.tapes {
        assert_eq!(catalog.relabelled(&Volume::blank(tape.volser.clone()), Promise::Keep).unwrap(), []);
    }
    for id in &ids {
        assert!(catalog.extents(*id, None).unwrap().is_empty() && catalog.copies(*id).unwrap().is_empty());
        assert_eq!(catalog.wanted_copies(*id).unwrap(), []);
    }
    assert_eq!(std::fs::read_dir(dir.path().join("index")).unwrap().count(), 0, "the files are gone");
    // A copy that comes late does not bring an expired object back.
    let mut tape = Tape::new("C00001L9", 33);
    catalog.put_volume(&tape.volume()).unwrap();
    let late = ObjectRecord { copy: 3, ..object(ids[0], None, ObjectState::Complete) };
    let entries = [crate::tape::file("a", 0, 0)];
    assert_eq!(tape.write(part(&late, &entries)).record(&mut catalog).unwrap(), Recorded::New);
    assert!(catalog.extents(ids[0], None).unwrap().is_empty());
    assert!(catalog.unsealed().unwrap().is_empty());
}
