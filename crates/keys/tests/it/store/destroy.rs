//! Destroying a key: it is gone from the file, and everybody is told so in words.

use capstan_keys::{Destruction, ExportSelection, KeyState};

use super::*;

/// Every 40 bytes that stand where a wrapped key may stand: found by SQLite itself, in a copy of the store.
fn wrapped_keys(path: &Path) -> Vec<Vec<u8>> {
    let copy = tempfile::tempdir().unwrap();
    let copied = copy.path().join("copy");
    std::fs::copy(path, &copied).unwrap();
    let connection = rusqlite::Connection::open(copied).unwrap();
    let mut statement = connection.prepare("SELECT wrapped FROM keys WHERE wrapped IS NOT NULL").unwrap();
    statement.query_map([], |row| row.get(0)).unwrap().collect::<Result<_, _>>().unwrap()
}

#[test]
fn the_wrapped_key_is_in_no_file_any_more() {
    let (_directory, path, mut store) = new_store();
    // Enough keys for several pages, so that rows move between pages as they come and change.
    let tags: Vec<_> = (0..60).map(|number| fill(&mut store, &format!("A{number:05}")).0).collect();
    let before = wrapped_keys(&path);
    assert_eq!(before.len(), tags.len());

    for (number, tag) in tags.iter().enumerate().filter(|(number, _)| number % 7 == 3) {
        let destruction = store.destroy(tag, NOW_NS + 77).unwrap();
        assert!(matches!(&destruction, Destruction::Destroyed(record) if record.tag == *tag));
        // Looked at through a copy of each file as it lies on disk, with the store still open.
        let files = files_of(&path);
        assert!(
            files.iter().any(|(file, contents)| {
                file.extension().is_some_and(|name| name == "sealed-journal") && contents.len() > 4096
            }),
            "the journal stays and is looked at too"
        );
        for (file, contents) in files {
            assert!(!contains(&contents, &before[number]), "key {number} is still in {}", file.display());
        }
    }

    let after = wrapped_keys(&path);
    let expected: Vec<_> =
        before.iter().enumerate().filter(|(number, _)| number % 7 != 3).map(|(_, key)| key).collect();
    assert!(after.iter().eq(expected), "the other keys are untouched");
    drop(store);
    let store = reopen(&path);
    for (number, tag) in tags.iter().enumerate() {
        assert_eq!(store.read_key(&volser(&format!("A{number:05}")), tag).is_ok(), number % 7 != 3, "key {number}");
    }
}

#[test]
fn a_destroyed_key_says_what_that_means() {
    let (_directory, path, mut store) = new_store();
    let (tag, _) = fill(&mut store, "A00001");
    store.destroy(&tag, NOW_NS + 5).unwrap();
    drop(store);
    let mut store = reopen(&path);
    for error in [
        refused(store.read_key(&volser("A00001"), &tag)),
        refused(store.append_key(&volser("A00001"), &tag, NOW_NS + 9)),
        refused(store.activate(&volser("A00001"), &tag, NOW_NS + 9)),
        refused(store.export(&ExportSelection::Keys(vec![tag]), &text("export"), CHEAP)),
    ] {
        assert!(matches!(&error, KeyError::KeyDestroyed { destroyed_ns, .. } if *destroyed_ns == NOW_NS + 5));
        assert_eq!(
            error.to_string(),
            format!(
                "key {tag} of volume A00001 was destroyed on 2026-09-21T14:13:20Z: the data on volume A00001 that was \
                 encrypted with it is gone for good. Read another copy; to use the volume again, relabel it"
            )
        );
    }
    let record = &store.list().unwrap()[0];
    assert_eq!(record.state, KeyState::Destroyed);
    assert_eq!(record.destroyed_ns, Some(NOW_NS + 5));
    assert_eq!(record.activated_ns, Some(NOW_NS + 1), "its history is kept");
}

#[test]
fn destroying_again_says_since_when() {
    let (_directory, _path, mut store) = new_store();
    let (tag, _) = fill(&mut store, "A00001");
    store.destroy(&tag, NOW_NS + 5).unwrap();
    let again = store.destroy(&tag, NOW_NS + 500).unwrap();
    assert!(matches!(again, Destruction::AlreadyDestroyed(record) if record.destroyed_ns == Some(NOW_NS + 5)));
    let error = refused(store.destroy(&KeyTag([1; 16]), NOW_NS));
    assert!(matches!(error, KeyError::KeyMissing { volser: None, .. }), "{error}");
}

#[test]
fn a_destroyed_volume_can_be_begun_anew() {
    let (_directory, _path, mut store) = new_store();
    let (old, _) = fill(&mut store, "A00001");
    store.destroy(&old, NOW_NS + 5).unwrap();
    let (new, bytes) = fill(&mut store, "A00001");
    assert_eq!(store.read_key(&volser("A00001"), &new).unwrap().expose(), &bytes);
    assert!(matches!(refused(store.read_key(&volser("A00001"), &old)), KeyError::KeyDestroyed { .. }));
}
