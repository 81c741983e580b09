//! Creating and opening a store, and everything that can be wrong with its secret or its file.

use std::os::unix::fs::MetadataExt;

use capstan_keys::create_key_file;

use super::*;

#[test]
fn a_wrong_passphrase_is_that_and_nothing_else() {
    let (_directory, path, store) = new_store();
    drop(store);
    for wrong in ["Secret", "secret ", "secre", "geheim"] {
        let error = refused(SealedStore::open(&path, &passphrase(wrong)));
        assert!(matches!(error, KeyError::WrongPassphrase { .. }), "{wrong}: {error}");
    }
    reopen(&path);
}

#[test]
fn a_key_file_opens_its_store_and_no_other() {
    let directory = tempfile::tempdir().unwrap();
    let at = |name: &str| directory.path().join(name);
    let unlock = create_key_file(&at("one.key")).unwrap();
    create_key_file(&at("other.key")).unwrap();
    let mut store = SealedStore::create(&at("keys.sealed"), &unlock, CHEAP).unwrap();
    let (tag, bytes) = fill(&mut store, "A00001");
    drop(store);

    let unlock = Unlock::key_file(&at("one.key")).unwrap();
    let store = SealedStore::open(&at("keys.sealed"), &unlock).unwrap();
    assert_eq!(store.read_key(&volser("A00001"), &tag).unwrap().expose(), &bytes);

    let other = Unlock::key_file(&at("other.key")).unwrap();
    let error = refused(SealedStore::open(&at("keys.sealed"), &other));
    assert!(matches!(error, KeyError::WrongKeyFile { .. }), "{error}");
    let error = refused(SealedStore::open(&at("keys.sealed"), &passphrase("secret")));
    assert!(matches!(error, KeyError::NoSuchSlot { needed: "key file", .. }), "{error}");
}

#[test]
fn a_passphrase_store_asked_with_a_key_file_says_what_it_needs() {
    let (directory, path, store) = new_store();
    drop(store);
    let unlock = create_key_file(&directory.path().join("store.key")).unwrap();
    let error = refused(SealedStore::open(&path, &unlock));
    assert!(matches!(error, KeyError::NoSuchSlot { needed: "passphrase", .. }), "{error}");
}

#[test]
fn an_empty_passphrase_protects_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("keys.sealed");
    let error = refused(SealedStore::create(&path, &passphrase(""), CHEAP));
    assert!(matches!(error, KeyError::EmptyPassphrase), "{error}");
    assert!(files_of(&path).is_empty(), "nothing was left behind");
}

#[test]
fn a_missing_store_says_so() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("keys.sealed");
    let error = refused(SealedStore::open(&path, &passphrase("secret")));
    assert!(matches!(error, KeyError::StoreMissing { .. }), "{error}");
    assert!(files_of(&path).is_empty(), "opening created nothing");
}

#[test]
fn a_store_is_never_overwritten() {
    let (_directory, path, store) = new_store();
    drop(store);
    let before = std::fs::read(&path).unwrap();
    let error = refused(SealedStore::create(&path, &passphrase("other"), CHEAP));
    assert!(matches!(error, KeyError::AlreadyExists { .. }), "{error}");
    assert_eq!(std::fs::read(&path).unwrap(), before);

    // Not even through a name that leads nowhere.
    let link = path.with_file_name("link.sealed");
    std::os::unix::fs::symlink("/nonexistent/keys.sealed", &link).unwrap();
    let error = refused(SealedStore::create(&link, &passphrase("other"), CHEAP));
    assert!(matches!(error, KeyError::AlreadyExists { .. }), "{error}");
}

/// Two that create at once: one wins, the other is told, and what is there opens.
#[test]
fn of_two_creators_one_wins() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("keys.sealed");
    let outcomes: Vec<_> = std::thread::scope(|scope| {
        let create = || SealedStore::create(&path, &passphrase("secret"), CHEAP).map(drop);
        let creators: Vec<_> = (0..8).map(|_| scope.spawn(create)).collect();
        creators.into_iter().map(|creator| creator.join().unwrap()).collect()
    });
    assert_eq!(outcomes.iter().filter(|outcome| outcome.is_ok()).count(), 1, "{outcomes:?}");
    for outcome in outcomes {
        assert!(matches!(outcome, Ok(()) | Err(KeyError::AlreadyExists { .. })), "{outcome:?}");
    }
    reopen(&path);
    let names: Vec<_> = files_of(&path).into_iter().map(|(path, _)| path).collect();
    assert_eq!(names, [path], "no unfinished file is left");
}

#[test]
fn only_its_owner_may_read_a_store_and_what_lies_beside_it() {
    let (_directory, path, mut store) = new_store();
    fill(&mut store, "A00001");
    let files = files_of(&path);
    assert_eq!(files.len(), 2, "the store and its journal");
    for (file, _) in files {
        assert_eq!(std::fs::metadata(&file).unwrap().mode() & 0o777, 0o600, "{}", file.display());
    }
}

#[test]
fn a_path_that_cannot_hold_a_store_is_the_hosts_matter() {
    let directory = tempfile::tempdir().unwrap();
    let nowhere = directory.path().join("missing/keys.sealed");
    let error = refused(SealedStore::create(&nowhere, &passphrase("secret"), CHEAP));
    assert!(matches!(error, KeyError::Host { .. }), "{error}");
    let error = refused(SealedStore::open(directory.path(), &passphrase("secret")));
    assert!(matches!(error, KeyError::Host { .. }), "{error}");
}

/// SQLite takes `file:...?mode=memory` for a URI where that is allowed; a store's name is a name.
#[test]
fn a_name_that_looks_like_a_uri_is_a_name() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("file:keys?mode=memory");
    let mut store = SealedStore::create(&path, &passphrase("secret"), CHEAP).unwrap();
    let (tag, _) = fill(&mut store, "A00001");
    drop(store);
    assert_eq!(reopen(&path).list().unwrap()[0].tag, tag);
}

#[test]
fn a_file_of_another_kind_is_altered_or_no_store() {
    let directory = tempfile::tempdir().unwrap();
    for (name, bytes) in [
        ("empty", Vec::new()),
        ("text", b"not a database at all\n".repeat(100)),
        ("zeros", vec![0; 8192]),
        ("magic", b"SQLite format 3\0".to_vec()),
    ] {
        let path = directory.path().join(name);
        std::fs::write(&path, &bytes).unwrap();
        let error = refused(SealedStore::open(&path, &passphrase("secret")));
        assert!(matches!(error, KeyError::Tampered { .. }), "{name}: {error}");
        assert_eq!(std::fs::read(&path).unwrap(), bytes, "{name} was left as it was");
    }
}

#[test]
fn argon2_parameters_out_of_bounds_are_refused_before_any_work() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("keys.sealed");
    let cost = Argon2Cost { memory_kib: u32::MAX, iterations: 1, lanes: 1 };
    let error = refused(SealedStore::create(&path, &passphrase("secret"), cost));
    assert!(matches!(error, KeyError::Argon2 { .. }), "{error}");
}
