//! Exports and imports between stores.

use capstan_keys::{ExportSelection, ImportOutcome, KeyState};

use super::*;

#[test]
fn an_export_brings_every_key_to_an_empty_store() {
    let (_one, _path, mut store) = new_store();
    let filled: Vec<_> = ["A00001", "A00001", "B00002"].map(|name| (name, fill(&mut store, name))).into();
    store.new_key(&volser("C00003"), Algorithm::Aes256Ccm, NOW_NS).unwrap();
    let export = store.export(&ExportSelection::All, &text("export"), CHEAP).unwrap();

    let (_other, other_path, mut other) = new_store();
    let imported = other.take_in(&export, &text("export"), NOW_NS + 50).unwrap();
    let outcomes: Vec<_> = imported.iter().map(|key| (key.volser.as_str(), key.outcome)).collect();
    assert_eq!(
        outcomes,
        [
            ("A00001", ImportOutcome::Added(KeyState::ProcessOnly)),
            ("A00001", ImportOutcome::Added(KeyState::ProtectAndProcess)),
            ("B00002", ImportOutcome::Added(KeyState::ProtectAndProcess)),
            ("C00003", ImportOutcome::Added(KeyState::Ready)),
        ]
    );
    drop(other);
    let mut other = reopen(&other_path);
    for (name, (tag, bytes)) in &filled {
        assert_eq!(other.read_key(&volser(name), tag).unwrap().expose(), bytes);
    }
    for (mut ours, theirs) in store.list().unwrap().into_iter().zip(other.list().unwrap()) {
        ours.imported_ns = Some(NOW_NS + 50);
        assert_eq!(ours, theirs);
    }
    // After the loss of a machine its half-full volumes are filled on.
    other.append_key(&volser("B00002"), &filled[2].1.0, NOW_NS + 60).unwrap();

    let again = other.take_in(&export, &text("export"), NOW_NS + 70).unwrap();
    assert!(again.iter().all(|key| key.outcome == ImportOutcome::AlreadyPresent), "{again:?}");
    assert_eq!(other.list().unwrap().len(), 4);
}

#[test]
fn a_selection_holds_what_was_selected() {
    let (_one, _path, mut store) = new_store();
    let tags: Vec<_> = ["A00001", "A00002", "A00003"].iter().map(|name| fill(&mut store, name).0).collect();
    let selection = ExportSelection::Keys(vec![tags[2], tags[0], tags[2]]);
    let export = store.export(&selection, &text("export"), CHEAP).unwrap();
    let (_other, _path, mut other) = new_store();
    let imported = other.take_in(&export, &text("export"), NOW_NS).unwrap();
    assert_eq!(imported.iter().map(|key| key.tag).collect::<Vec<_>>(), [tags[0], tags[2]]);

    let missing = ExportSelection::Keys(vec![tags[0], KeyTag([9; 16])]);
    let error = refused(store.export(&missing, &text("export"), CHEAP));
    assert!(matches!(error, KeyError::KeyMissing { tag: KeyTag([9, ..]), .. }), "{error}");
}

#[test]
fn a_destroyed_key_does_not_come_back_by_import() {
    let (_one, _path, mut store) = new_store();
    let (kept, _) = fill(&mut store, "A00001");
    let (gone, bytes) = fill(&mut store, "A00002");
    let export = store.export(&ExportSelection::All, &text("export"), CHEAP).unwrap();
    store.destroy(&gone, NOW_NS + 5).unwrap();

    let imported = store.take_in(&export, &text("export"), NOW_NS + 10).unwrap();
    assert_eq!(imported[0].tag, kept);
    assert_eq!(imported[0].outcome, ImportOutcome::AlreadyPresent);
    assert_eq!(imported[1].tag, gone);
    assert_eq!(imported[1].outcome, ImportOutcome::StaysDestroyed { destroyed_ns: NOW_NS + 5 });
    assert!(matches!(refused(store.read_key(&volser("A00002"), &gone)), KeyError::KeyDestroyed { .. }));

    // A new store is the way to have it back, and a later export of the first one no longer holds it.
    let (_other, _path, mut other) = new_store();
    other.take_in(&export, &text("export"), NOW_NS).unwrap();
    assert_eq!(other.read_key(&volser("A00002"), &gone).unwrap().expose(), &bytes);
    let (_third, _path, mut third) = new_store();
    let later = store.export(&ExportSelection::All, &text("export"), CHEAP).unwrap();
    assert_eq!(third.take_in(&later, &text("export"), NOW_NS).unwrap().len(), 1);
}

/// Two machines filled a volume of the same barcode: each goes on with its own key, and reads with both.
#[test]
fn an_imported_key_does_not_displace_the_one_in_force() {
    let (_one, _path, mut store) = new_store();
    let (theirs, _) = fill(&mut store, "A00001");
    let export = store.export(&ExportSelection::All, &text("export"), CHEAP).unwrap();
    let (_other, _path, mut other) = new_store();
    let (ours, _) = fill(&mut other, "A00001");
    let imported = other.take_in(&export, &text("export"), NOW_NS + 50).unwrap();
    assert_eq!(imported[0].outcome, ImportOutcome::Added(KeyState::ProcessOnly));
    let next = other.append_key(&volser("A00001"), &theirs, NOW_NS + 60).unwrap().tag();
    assert!(next != theirs && next != ours, "their volume goes on with a key of its own");
    other.append_key(&volser("A00001"), &ours, NOW_NS + 60).unwrap();
    other.read_key(&volser("A00001"), &theirs).unwrap();
}

#[test]
fn wrong_passphrase_and_damage_are_told_apart() {
    let (_one, _path, mut store) = new_store();
    fill(&mut store, "A00001");
    let export = store.export(&ExportSelection::All, &text("export"), CHEAP).unwrap();
    let (_other, _path, mut other) = new_store();
    let error = refused(other.take_in(&export, &text("Export"), NOW_NS));
    assert!(matches!(error, KeyError::WrongExportPassphrase), "{error}");
    let error = refused(other.take_in(&export[..export.len() - 1], &text("export"), NOW_NS));
    assert!(matches!(error, KeyError::ExportDamaged { .. }), "{error}");
    let error = refused(other.take_in(b"", &text("export"), NOW_NS));
    assert!(matches!(error, KeyError::ExportDamaged { .. }), "{error}");
    assert!(other.list().unwrap().is_empty(), "nothing was imported");
    let error = refused(store.export(&ExportSelection::All, &text(""), CHEAP));
    assert!(matches!(error, KeyError::EmptyPassphrase), "{error}");
}

#[test]
fn an_export_of_nothing_is_an_export() {
    let (_one, _path, mut store) = new_store();
    let export = store.export(&ExportSelection::All, &text("export"), CHEAP).unwrap();
    assert!(store.take_in(&export, &text("export"), NOW_NS).unwrap().is_empty());
}
