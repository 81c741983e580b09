//! What needs a hand inside: locks that are held, disks that are full, rows altered by SQL.
#![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

use std::path::PathBuf;

use capstan_format::Algorithm;
use rusqlite::Connection;
use tempfile::TempDir;

use super::*;
use crate::{Agent, Name};

const CHEAP: Argon2Cost = Argon2Cost { memory_kib: 8, iterations: 1, lanes: 1 };

fn secret() -> Unlock {
    Unlock::passphrase(String::from("secret").into())
}

fn volser() -> Volser {
    Volser::new("A00001").unwrap()
}

fn new_store() -> (TempDir, PathBuf, SealedStore) {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("keys.sealed");
    SealedStore::create(&path, &secret(), CHEAP).unwrap();
    let store = SealedStore::open_waiting(&path, &secret(), Duration::from_millis(50)).unwrap();
    (directory, path, store)
}

fn drive() -> Agent {
    Agent::anything("CPT0000001".parse().unwrap())
}

fn issue(store: &mut SealedStore) -> Result<VolumeKey, KeyError> {
    store.key_for_new_volume(&volser(), &drive(), &Name::default(), Algorithm::Aes256Gcm, 1)
}

#[test]
fn a_store_held_by_another_is_locked_and_then_free() {
    let (_directory, path, mut store) = new_store();
    let key = issue(&mut store).unwrap();
    let other = Connection::open(&path).unwrap();

    other.execute_batch("BEGIN IMMEDIATE").unwrap();
    assert!(matches!(issue(&mut store), Err(KeyError::Locked { .. })));
    assert!(matches!(store.destroy(&key.tag(), 2), Err(KeyError::Locked { .. })));
    store.key_for_reading(&volser(), &key.tag(), &drive(), 1).unwrap();
    other.execute_batch("ROLLBACK; BEGIN EXCLUSIVE").unwrap();
    assert!(matches!(store.list(), Err(KeyError::Locked { .. })));
    let opened = SealedStore::open_waiting(&path, &secret(), Duration::from_millis(50));
    assert!(matches!(opened, Err(KeyError::Locked { .. })));

    other.execute_batch("ROLLBACK").unwrap();
    issue(&mut store).unwrap();
    assert_eq!(store.list().unwrap().len(), 2);
}

/// The key is destroyed although the file cannot be rewritten, and repeating the command ends it.
#[test]
fn a_destruction_that_could_not_be_cleared_says_so() {
    let (_directory, path, mut store) = new_store();
    let key = issue(&mut store).unwrap();
    store.change(|contents, _| contents.rows[0].key.advance(crate::KeyEvent::Destroyed, 5)).unwrap();
    // Somebody who reads just then: rewriting the file would have to wait for him.
    let reader = Connection::open(&path).unwrap();
    reader.execute_batch("BEGIN; SELECT * FROM keys").unwrap();
    let error = store.destroy(&key.tag(), 6).unwrap_err();
    let text = error.to_string();
    assert!(matches!(error, KeyError::NotCleared { .. }), "{text}");
    assert!(text.contains("is destroyed") && text.contains("repeat"), "{text}");
    reader.execute_batch("ROLLBACK").unwrap();
    assert!(matches!(store.destroy(&key.tag(), 7), Ok(Destruction::AlreadyDestroyed(_))));
}

#[test]
fn a_full_disk_loses_no_key_and_gives_out_none_that_is_not_stored() {
    let (_directory, path, mut store) = new_store();
    let pages: i64 = store.database.connection().query_row("PRAGMA page_count", [], |row| row.get(0)).unwrap();
    let limit = format!("PRAGMA max_page_count = {}", pages + 1);
    store.database.connection().query_row(&limit, [], |_| Ok(())).unwrap();
    let mut given_out = Vec::new();
    let error = loop {
        match issue(&mut store) {
            Ok(key) => given_out.push(key.tag()),
            Err(error) => break error,
        }
        assert!(given_out.len() < 1000, "the disk never filled up");
    };
    assert!(matches!(error, KeyError::DiskFull { .. }), "{error}");
    assert!(!given_out.is_empty());
    drop(store);
    let mut store = SealedStore::open(&path, &secret()).unwrap();
    for tag in &given_out {
        store.key_for_reading(&volser(), tag, &drive(), 1).unwrap();
    }
    assert_eq!(store.list().unwrap().len(), given_out.len());
    issue(&mut store).unwrap();
}

/// Three keys; then `sql` behind the store's back; then what opening says.
fn after(sql: &str) -> String {
    let (_directory, path, mut store) = new_store();
    for _ in 0..3 {
        issue(&mut store).unwrap();
    }
    drop(store);
    Connection::open(&path).unwrap().execute_batch(sql).unwrap();
    match SealedStore::open(&path, &secret()) {
        Err(KeyError::Tampered { what, .. }) => what,
        Err(other) => panic!("{sql}: {other}"),
        Ok(_) => panic!("{sql}: not seen"),
    }
}

#[test]
fn altered_rows_are_named() {
    for (sql, expected) in [
        ("UPDATE keys SET volser = 'B00002' WHERE serial = 2", "record 2 (key "),
        ("UPDATE keys SET state = 3 WHERE serial = 1", "record 1 (key "),
        ("UPDATE keys SET algorithm = 2 WHERE serial = 3", "record 3 (key "),
        ("UPDATE keys SET created_ns = 2 WHERE serial = 3", "record 3 (key "),
        ("UPDATE keys SET wrapped = zeroblob(40) WHERE serial = 3", "record 3 (key "),
        ("UPDATE keys SET wrapped = (SELECT wrapped FROM keys WHERE serial = 1) WHERE serial = 2", "record 2 (key "),
        ("UPDATE keys SET wrapped = NULL, state = 7, destroyed_ns = 1 WHERE serial = 2", "record 2 (key "),
        (
            "UPDATE keys SET serial = -serial WHERE serial < 3; UPDATE keys SET serial = 3 + serial WHERE serial < 0",
            "record 1 (key ",
        ),
        ("DELETE FROM keys WHERE serial = 1", "record 1 was removed"),
        ("DELETE FROM keys WHERE serial = 3", "the seal over the header"),
        ("DELETE FROM keys", "the seal over the header"),
        ("UPDATE seal SET counter = counter + 1", "the seal over the header"),
        ("UPDATE seal SET mac = zeroblob(32)", "the seal over the header"),
        ("DELETE FROM seal", "its header or its seal is missing"),
        ("DELETE FROM header", "its header or its seal is missing"),
        ("UPDATE header SET bytes = x''", "not a header of the key store"),
        ("UPDATE keys SET state = 8 WHERE serial = 2", "record 2 has an impossible state"),
        ("UPDATE keys SET state = 1000 WHERE serial = 2", "record 2 has an impossible state"),
        ("UPDATE keys SET volser = 'lower' WHERE serial = 2", "record 2 has an impossible barcode"),
        ("UPDATE keys SET wrapped = zeroblob(39) WHERE serial = 2", "record 2 has an impossible wrapped key"),
        ("UPDATE keys SET tag = zeroblob(60000) WHERE serial = 2", "record 2 has an impossible tag"),
        ("UPDATE keys SET mac = zeroblob(70000) WHERE serial = 2", "SQLite cannot make sense of it"),
        ("CREATE TRIGGER t AFTER UPDATE ON seal BEGIN DELETE FROM keys; END", "its tables are not those"),
        ("ALTER TABLE keys ADD COLUMN more BLOB", "its tables are not those"),
        ("DROP TABLE keys", "its tables are not those"),
        ("CREATE INDEX i ON keys (tag)", "its tables are not those"),
    ] {
        let what = after(sql);
        assert!(what.starts_with(expected), "{sql}: {what}");
    }
}

/// Whatever goes wrong below while a change is written, it is seen before it is committed. Here a trigger that somebody
/// added while the store was open.
#[test]
fn a_change_that_does_not_read_back_is_not_made() {
    let (_directory, path, mut store) = new_store();
    let key = issue(&mut store).unwrap();
    let behind = Connection::open(&path).unwrap();
    let trigger = "CREATE TRIGGER t AFTER UPDATE ON seal BEGIN DELETE FROM keys WHERE serial = 1; END";
    behind.execute_batch(trigger).unwrap();
    let error = issue(&mut store).err().unwrap();
    assert!(matches!(&error, KeyError::Tampered { what, .. } if what.contains("does not read back")), "{error}");
    behind.execute_batch("DROP TRIGGER t").unwrap();
    assert_eq!(store.list().unwrap().len(), 1);
    store.key_for_reading(&volser(), &key.tag(), &drive(), 1).unwrap();
}

/// One row of an earlier day, good by itself, put back: for example to bring a destroyed key to life again.
#[test]
fn a_row_put_back_to_an_earlier_state_is_seen() {
    let (_directory, path, mut store) = new_store();
    let key = issue(&mut store).unwrap();
    issue(&mut store).unwrap();
    let behind = Connection::open(&path).unwrap();
    behind.execute_batch("ATTACH ':memory:' AS old; CREATE TABLE old.keys AS SELECT * FROM main.keys").unwrap();
    store.destroy(&key.tag(), 5).unwrap();
    behind
        .execute_batch("DELETE FROM keys WHERE serial = 1; INSERT INTO keys SELECT * FROM old.keys WHERE serial = 1")
        .unwrap();
    for error in [
        store.list().unwrap_err(),
        store.key_for_reading(&volser(), &key.tag(), &drive(), 1).err().unwrap(),
        issue(&mut store).err().unwrap(),
        SealedStore::open(&path, &secret()).err().unwrap(),
    ] {
        let text = error.to_string();
        assert!(matches!(error, KeyError::Tampered { .. }), "{text}");
        assert!(text.contains("put back to an earlier state"), "{text}");
    }
}

/// A removed slot put back, to open the store with a passphrase that was taken away.
#[test]
fn a_header_put_back_to_an_earlier_state_is_seen() {
    let (_directory, path, mut store) = new_store();
    let behind = Connection::open(&path).unwrap();
    behind.execute_batch("ATTACH ':memory:' AS old; CREATE TABLE old.header AS SELECT * FROM main.header").unwrap();
    store.add_slot(&Unlock::passphrase(String::from("better").into()), CHEAP).unwrap();
    store.remove_slot(1).unwrap();
    drop(store);
    behind.execute_batch("UPDATE header SET bytes = (SELECT bytes FROM old.header)").unwrap();
    let error = SealedStore::open(&path, &secret()).err().unwrap();
    assert!(
        matches!(&error, KeyError::Tampered { what, .. } if what.starts_with("the seal over the header")),
        "{error}"
    );
}

/// A header from a later program is that, not damage.
#[test]
fn a_later_version_asks_for_a_newer_program() {
    let (_directory, path, store) = new_store();
    drop(store);
    let behind = Connection::open(&path).unwrap();
    let mut header: Vec<u8> = behind.query_row("SELECT bytes FROM header", [], |row| row.get(0)).unwrap();
    header.truncate(header.len() - 4);
    header[8] = 2;
    crate::fields::put_checksum(&mut header);
    behind.execute("UPDATE header SET bytes = ?1", [&header]).unwrap();
    let error = SealedStore::open(&path, &secret()).err().unwrap();
    assert!(matches!(error, KeyError::Version { found: 2, supported: 1, .. }), "{error}");
}
