//! What objects stand on when a full one was made of the object that they were based on.

use capstan_catalog::{Catalog, CatalogError, GoneSource, ObjectFilter};
use capstan_format::{ObjectId, ObjectRecord, ObjectState, VolumeId};

use crate::tape::{Tape, Written, catalog, file, object, part};

/// An id of version 7 of this millisecond.
fn object_id(ms: u8) -> ObjectId {
    ObjectId([0, 0, 0, 0, 0, ms, 0x70, 1, 0x80, 1, 1, 1, 1, 1, 1, 1])
}

fn refs(tapes: &[Tape]) -> Vec<&Tape> {
    tapes.iter().collect()
}

/// The one that comes next behind an object, made of it.
fn made_of(of: ObjectId, state: ObjectState) -> ObjectRecord {
    let mut id = of.0;
    id[15] += 1;
    ObjectRecord { consolidates: Some(of), ..object(ObjectId(id), None, state) }
}

/// Notes that the copy of an object was looked at, and is whole.
fn is_whole(catalog: &mut Catalog, object: ObjectId) {
    let seen = catalog.copy_seen(object, 1).unwrap();
    catalog.copies_are_whole(&[(object, 1, seen)]).unwrap();
}

/// Of a full, an incremental, one that stands on that, and a full one made of the incremental: each on its own volume.
fn written() -> (Vec<Tape>, Vec<Written>, [ObjectId; 4]) {
    let ids = [1, 2, 3].map(object_id);
    let made = made_of(ids[1], ObjectState::Complete);
    let bases = [None, Some(ids[0]), Some(ids[1])];
    let own = ids.iter().zip(bases).map(|(id, base)| object(*id, base, ObjectState::Complete));
    let mut tapes: Vec<_> = (1..=4).map(|number| Tape::new(&format!("A0000{number}"), number)).collect();
    let records = own.chain([made.clone()]).zip(&mut tapes);
    let written = records.map(|(record, tape)| tape.write(part(&record, &[file("a", 0, 0)]))).collect();
    (tapes, written, [ids[0], ids[1], ids[2], made.object])
}

#[test]
fn what_was_based_on_it_stands_on_what_was_made_of_it_whatever_was_recorded_first() {
    let (tapes, written, [first, second, third, full]) = written();
    for order in [[0, 1, 2, 3], [3, 2, 1, 0], [2, 3, 0, 1], [1, 3, 2, 0]] {
        let dir = tempfile::tempdir().unwrap();
        let mut catalog = catalog(dir.path(), &refs(&tapes));
        for at in order {
            written[at].record(&mut catalog).unwrap();
        }
        is_whole(&mut catalog, full);
        let objects = catalog.objects(&ObjectFilter::default()).unwrap();
        assert_eq!(objects.iter().map(|object| object.id).collect::<Vec<_>>(), [third, full, second, first]);
        let bases: Vec<_> = objects.iter().map(|object| object.base).collect();
        assert_eq!(bases, [Some(full), None, Some(first), None]);
        assert_eq!(objects[1].consolidates, Some(second));
        assert_eq!(catalog.chain(third).unwrap(), [third, full]);
        assert_eq!((catalog.dependents(full).unwrap(), catalog.dependents(second).unwrap()), (vec![third], vec![]));
        // What it was made of can go; it cannot.
        assert!(matches!(catalog.expire(full, 9), Err(CatalogError::BaseOfLiving { .. })));
        catalog.expire(second, 9).unwrap();
        catalog.expire(first, 9).unwrap();
        assert_eq!(catalog.chain(third).unwrap(), [third, full]);
    }
}

#[test]
fn what_is_not_whole_or_not_there_or_of_another_source_stands_for_nothing() {
    let (tapes, written, [_, second, third, full]) = written();
    let base = |catalog: &Catalog| catalog.object(third).unwrap().unwrap().base;
    let before = |dir: &std::path::Path| {
        let mut catalog = catalog(dir, &refs(&tapes));
        for written in &written[..3] {
            written.record(&mut catalog).unwrap();
        }
        catalog
    };
    let complete = made_of(second, ObjectState::Complete);
    let others = [
        made_of(second, ObjectState::Open),
        ObjectRecord { source: b"/home".to_vec(), ..complete.clone() },
        ObjectRecord { client: "plover".to_owned(), ..complete.clone() },
    ];
    for record in others {
        let dir = tempfile::tempdir().unwrap();
        let mut catalog = before(dir.path());
        let mut tape = tapes[3].clone();
        tape.write(part(&record, &[file("a", 0, 0)])).record(&mut catalog).unwrap();
        assert_eq!(base(&catalog), Some(second), "{record:?}");
    }
    let dir = tempfile::tempdir().unwrap();
    let mut catalog = before(dir.path());
    written[3].record(&mut catalog).unwrap();
    assert_eq!(base(&catalog), Some(second), "nobody has looked at it yet");
    is_whole(&mut catalog, full);
    assert_eq!(base(&catalog), Some(full));
    assert_eq!(catalog.object(third).unwrap().unwrap().made_on, Some(second));
    // A block of it is found bad.
    let first_lbn = catalog.extents_on(&tapes[3].volser).unwrap()[0].record.first_lbn;
    let bad = capstan_catalog::DamagedBlocks { first_lbn, blocks: 1, reason: "unreadable".to_owned() };
    catalog.record_damage(&tapes[3].volser, tapes[3].id, &[bad], "restore", 5).unwrap();
    assert_eq!((base(&catalog), catalog.dependents(second).unwrap()), (Some(second), vec![third]));
    // It is all there is, then.
    catalog.expire(third, 9).unwrap();
    catalog.expire(second, 9).unwrap();
    catalog.unexpire(&[third]).unwrap();
    assert_eq!(base(&catalog), Some(full));
    catalog.unexpire(&[second]).unwrap();
    // Its volume is erased: what it was made of is there.
    let blank =
        capstan_catalog::Volume { id: Some(VolumeId(99)), ..capstan_catalog::Volume::blank(tapes[3].volser.clone()) };
    catalog.relabelled(&blank, capstan_catalog::Promise::Drop).unwrap();
    assert_eq!((base(&catalog), catalog.dependents(second).unwrap()), (Some(second), vec![third]));
}

/// It would have counted as a new backup of the source, and the word would have been taken back.
#[test]
fn what_is_made_of_an_object_later_is_no_later_backup() {
    let (tapes, written, [first, second, ..]) = written();
    let dir = tempfile::tempdir().unwrap();
    let mut catalog = catalog(dir.path(), &refs(&tapes));
    for written in &written[..2] {
        written.record(&mut catalog).unwrap();
    }
    let gone = GoneSource { source: b"/usr/share".to_vec(), client: "tern".to_owned() };
    catalog.source_is_gone(&gone).unwrap();
    let day = 86_400_000_000_000;
    catalog.confirm_clock(day).unwrap();
    let doubt = |catalog: &Catalog, id| catalog.timeline(day).unwrap().begun(id).unwrap().doubt;
    let before = (doubt(&catalog, first), doubt(&catalog, second));
    written[3].record(&mut catalog).unwrap();
    assert_eq!(catalog.gone_sources().unwrap(), [gone]);
    assert_eq!((doubt(&catalog, first), doubt(&catalog, second)), before);
    let full = made_of(second, ObjectState::Complete).object;
    assert_eq!(doubt(&catalog, full), before.1);
}
