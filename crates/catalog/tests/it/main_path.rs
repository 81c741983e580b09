//! The main path: record, seal, look up, merge a chain.

use capstan_catalog::{CatalogError, ObjectFilter, ObjectStatus, Recorded};
use capstan_format::{EntryKind, FileEntry, ObjectState};

use crate::tape::{Tape, catalog, file, object, object_id, part, paths};

fn tree(connection: u16) -> Vec<FileEntry> {
    let names =
        ["usr", "usr/share", "usr/share/doc", "usr/share/doc/a", "usr/share/doc-base", "usr/share/x", "usr/lib"];
    let entries = names.iter().zip(0..).map(|(path, at)| file(path, connection, at * 1024));
    entries.collect()
}

#[test]
fn what_is_recorded_is_found_before_and_after_sealing() {
    let dir = tempfile::tempdir().unwrap();
    let mut tape = Tape::new("A00001L9", 77);
    let mut catalog = catalog(dir.path(), &[&tape]);
    let id = object_id(1);
    let (open, complete) = (object(id, None, ObjectState::Open), object(id, None, ObjectState::Complete));
    let entries = tree(0);
    let first = tape.write(part(&open, &entries[..4]));
    let last = tape.write(part(&complete, &entries[4..]));
    assert_eq!(first.record(&mut catalog).unwrap(), Recorded::New);
    assert_eq!(catalog.object(id).unwrap().unwrap().status, ObjectStatus::Open);
    assert!(matches!(catalog.seal_index(id), Err(CatalogError::NotComplete(_))));
    assert_eq!(catalog.index(id).unwrap().len(), 4);
    assert_eq!(last.record(&mut catalog).unwrap(), Recorded::New);
    assert_eq!(last.record(&mut catalog).unwrap(), Recorded::Known);

    let look = |catalog: &capstan_catalog::Catalog| {
        let index = catalog.index(id).unwrap();
        assert_eq!(index.len(), 7);
        assert_eq!(paths(index.children(b"usr")), ["usr/lib", "usr/share"]);
        assert_eq!(paths(index.children(b"")), ["usr"]);
        let below = ["usr/share", "usr/share/doc", "usr/share/doc-base", "usr/share/x", "usr/share/doc/a"];
        assert_eq!(paths(index.subtree(b"usr/share")), below);
        assert_eq!(paths(index.subtree(b"usr/share/doc")), ["usr/share/doc", "usr/share/doc/a"]);
        assert_eq!(paths(index.find(&|path| path.ends_with(b"/a"))), ["usr/share/doc/a"]);
        for entry in &entries {
            assert_eq!(index.get(&entry.path).unwrap().as_ref(), Some(entry));
        }
        assert_eq!(index.get(b"usr/share/do").unwrap(), None);
        assert_eq!(index.get(b"zz").unwrap(), None);
    };
    look(&catalog);
    assert_eq!(catalog.unsealed().unwrap(), [id]);
    let counts = catalog.seal_index(id).unwrap();
    assert_eq!((counts.entries, counts.files, counts.bytes), (7, 7, 70));
    assert!(catalog.unsealed().unwrap().is_empty());
    look(&catalog);

    let extents = catalog.extents(id, Some(1)).unwrap();
    assert_eq!(extents.iter().map(|extent| extent.record.offset).collect::<Vec<_>>(), [0, 4096]);
    assert_eq!(catalog.extents_of_range(id, 0, 4095, 4096).unwrap().len(), 1);
    assert_eq!(catalog.extents_of_range(id, 0, 4095, 4097).unwrap().len(), 2);
    assert_eq!(catalog.parts(id).unwrap()[0].valid_len, 7168);
    let volume = catalog.volume(&tape.volser).unwrap().unwrap();
    assert_eq!((volume.checkpoint_lbn, volume.end_of_data_lbn, volume.written), (22, 24, 7168 + 128));
}

#[test]
fn a_state_is_the_chain_merged_and_not_the_union() {
    let dir = tempfile::tempdir().unwrap();
    let mut tape = Tape::new("A00001", 77);
    let mut catalog = catalog(dir.path(), &[&tape]);
    let (full, incremental) = (object_id(1), object_id(2));
    let written = tape.write(part(&object(full, None, ObjectState::Complete), &tree(0)));
    written.record(&mut catalog).unwrap();
    catalog.seal_index(full).unwrap();

    let gone = FileEntry { kind: EntryKind::Deleted, member_len: 0, ..file("usr/share/x", 0, 0) };
    let changed = FileEntry { size: 11, ..file("usr/share/doc/a", 0, 0) };
    let new = file("usr/share/doc/b", 0, 1024);
    let changes = [gone, changed.clone(), new.clone()];
    let written = tape.write(part(&object(incremental, Some(full), ObjectState::Complete), &changes));
    written.record(&mut catalog).unwrap();

    let state = catalog.state(incremental).unwrap();
    let all: Vec<_> = state.iter().map(|entry| entry.unwrap()).collect();
    let merged: Vec<_> = all.iter().map(|entry| String::from_utf8_lossy(&entry.entry.path)).collect();
    let expected =
        ["usr", "usr/lib", "usr/share", "usr/share/doc", "usr/share/doc-base", "usr/share/doc/a", "usr/share/doc/b"];
    assert_eq!(merged, expected);
    assert_eq!((all[5].object, &all[5].entry), (incremental, &changed));
    assert_eq!((all[6].object, &all[6].entry), (incremental, &new));
    assert_eq!(all[4].object, full);
    assert_eq!(state.get(b"usr/share/x").unwrap(), None);
    assert_eq!(state.get(b"usr/lib").unwrap().unwrap().object, full);
    assert_eq!(state.children(b"usr/share").count(), 2);

    let latest = ObjectFilter { client: Some("tern".to_owned()), ..ObjectFilter::default() };
    assert_eq!(catalog.latest(&latest).unwrap().unwrap().id, incremental);
    let elsewhere = ObjectFilter { client: Some("auk".to_owned()), ..ObjectFilter::default() };
    assert_eq!(catalog.latest(&elsewhere).unwrap(), None);
}
