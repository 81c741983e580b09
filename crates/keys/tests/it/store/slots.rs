//! Several ways to open one store, and changing a passphrase.

use capstan_keys::{SlotKind, create_key_file};

use super::*;

#[test]
fn changing_the_passphrase_is_adding_one_slot_and_removing_another() {
    let (_directory, path, mut store) = new_store();
    let (tag, bytes) = fill(&mut store, "A00001");
    let old = store.opened_slot();
    let new = store.add_slot(&passphrase("better"), CHEAP).unwrap();
    assert_ne!(old, new);

    for unlock in ["secret", "better"] {
        let store = SealedStore::open(&path, &passphrase(unlock)).unwrap();
        assert_eq!(store.read_key(&volser("A00001"), &tag).unwrap().expose(), &bytes, "{unlock}");
    }

    let wrapped_old = wrapped_root(&path, old);
    store.remove_slot(old).unwrap();
    drop(store);
    let error = refused(SealedStore::open(&path, &passphrase("secret")));
    assert!(matches!(error, KeyError::WrongPassphrase { .. }), "{error}");
    let store = SealedStore::open(&path, &passphrase("better")).unwrap();
    assert_eq!(store.opened_slot(), new);
    assert_eq!(store.read_key(&volser("A00001"), &tag).unwrap().expose(), &bytes);
    drop(store);
    for (file, contents) in files_of(&path) {
        assert!(!contains(&contents, &wrapped_old), "the old slot is still in {}", file.display());
    }
}

/// The wrapped root key of a slot, straight out of the file: byte 30 of slot 70 bytes long, behind the header's 29.
fn wrapped_root(path: &Path, number: u8) -> Vec<u8> {
    let bytes = std::fs::read(path).unwrap();
    let header = bytes.windows(8).position(|window| window == b"CAPSKEYS").unwrap();
    let slots = bytes[header + 29..].chunks(70);
    slots.take(2).find(|slot| slot[0] == number).unwrap()[30..70].to_vec()
}

#[test]
fn a_key_file_and_a_passphrase_side_by_side() {
    let (directory, path, mut store) = new_store();
    let key_file = create_key_file(&directory.path().join("store.key")).unwrap();
    store.add_slot(&key_file, CHEAP).unwrap();
    let kinds: Vec<_> = store.slots().unwrap().into_iter().map(|slot| (slot.number, slot.kind)).collect();
    assert_eq!(kinds, [(1, SlotKind::Passphrase), (2, SlotKind::KeyFile)]);
    assert_eq!(SealedStore::open(&path, &key_file).unwrap().opened_slot(), 2);
    assert_eq!(reopen(&path).opened_slot(), 1);
    // What opens it already takes no slot more, which nobody could tell from the first.
    let error = refused(store.add_slot(&key_file, CHEAP));
    assert!(matches!(error, KeyError::SlotThere { slot: 2, .. }), "{error}");
}

#[test]
fn the_last_slot_stays_and_missing_ones_are_named() {
    let (_directory, _path, mut store) = new_store();
    let error = refused(store.remove_slot(1));
    assert!(matches!(error, KeyError::LastSlot { slot: 1, .. }), "{error}");
    let error = refused(store.remove_slot(5));
    assert!(matches!(error, KeyError::SlotMissing { slot: 5, .. }), "{error}");
}

#[test]
fn there_are_eight_slots() {
    let (_directory, path, mut store) = new_store();
    for expected in 2..=8 {
        assert_eq!(store.add_slot(&passphrase(&format!("p{expected}")), CHEAP).unwrap(), expected);
    }
    let error = refused(store.add_slot(&passphrase("one more"), CHEAP));
    assert!(matches!(error, KeyError::SlotsFull { slots: 8, .. }), "{error}");
    SealedStore::open(&path, &passphrase("p8")).unwrap();
    store.remove_slot(4).unwrap();
    assert_eq!(store.add_slot(&passphrase("again"), CHEAP).unwrap(), 4);
}

/// A slot is worth what the weakest way in is worth, so an empty passphrase is refused here too.
#[test]
fn an_empty_passphrase_gets_no_slot() {
    let (_directory, _path, mut store) = new_store();
    let error = refused(store.add_slot(&passphrase(""), CHEAP));
    assert!(matches!(error, KeyError::EmptyPassphrase), "{error}");
    assert_eq!(store.slots().unwrap().len(), 1);
}
