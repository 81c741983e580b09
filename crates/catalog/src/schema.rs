//! The database's tables, and how they came to be.

use rusqlite::{Connection, TransactionBehavior};

use crate::CatalogError;

/// Each step takes the schema from one version to the next; `user_version` counts the steps taken. Steps are only added.
const STEPS: [&str; 1] = [
    // Times are nanoseconds since 1970. Volume and session ids are 64 random bits, kept as the signed number of the same
    // bits. `copies` says which copy of an object a life of a volume holds; `checkpoints` makes recording idempotent.
    "
    CREATE TABLE pools (
        name TEXT PRIMARY KEY, encryption INTEGER, retention_ns INTEGER, feed INTEGER NOT NULL
    ) STRICT;
    CREATE TABLE volumes (
        volser TEXT PRIMARY KEY, pool TEXT REFERENCES pools (name), volume INTEGER UNIQUE, state INTEGER NOT NULL,
        key_tag BLOB, algorithm INTEGER, capacity INTEGER, written INTEGER NOT NULL, end_lbn INTEGER NOT NULL,
        checkpoint_lbn INTEGER NOT NULL, labelled_ns INTEGER, written_ns INTEGER, read_ns INTEGER,
        mounts INTEGER NOT NULL, errors INTEGER NOT NULL, recycled INTEGER NOT NULL
    ) STRICT;
    CREATE TABLE sessions (
        volume INTEGER NOT NULL, session INTEGER NOT NULL, started_ns INTEGER, host TEXT, software TEXT,
        closed_ns INTEGER, continued_on TEXT, PRIMARY KEY (volume, session)
    ) STRICT, WITHOUT ROWID;
    CREATE TABLE checkpoints (
        volume INTEGER NOT NULL, session INTEGER NOT NULL, number INTEGER NOT NULL, lbn INTEGER NOT NULL,
        written_ns INTEGER NOT NULL, PRIMARY KEY (volume, session, number)
    ) STRICT, WITHOUT ROWID;
    CREATE TABLE objects (
        object BLOB PRIMARY KEY, source BLOB NOT NULL, client TEXT NOT NULL, policy TEXT NOT NULL,
        kind INTEGER NOT NULL, complete INTEGER NOT NULL, base BLOB, chunk_len INTEGER NOT NULL,
        started_ns INTEGER NOT NULL, ended_ns INTEGER NOT NULL, expires_ns INTEGER NOT NULL, expired_ns INTEGER,
        generation INTEGER NOT NULL DEFAULT 0, index_len INTEGER, index_crcs BLOB,
        entries INTEGER, files INTEGER, bytes INTEGER, deleted INTEGER, changed INTEGER, problems INTEGER
    ) STRICT, WITHOUT ROWID;
    CREATE INDEX objects_of_source ON objects (source, client, started_ns);
    CREATE INDEX objects_on_base ON objects (base) WHERE base IS NOT NULL;
    CREATE TABLE parts (
        object BLOB NOT NULL, connection INTEGER NOT NULL, valid_len INTEGER NOT NULL, PRIMARY KEY (object, connection)
    ) STRICT, WITHOUT ROWID;
    CREATE TABLE copies (
        object BLOB NOT NULL, volume INTEGER NOT NULL, copy INTEGER NOT NULL, first_ns INTEGER NOT NULL,
        PRIMARY KEY (object, volume)
    ) STRICT, WITHOUT ROWID;
    CREATE INDEX copies_on_volume ON copies (volume);
    CREATE TABLE extents (
        object BLOB NOT NULL, volume INTEGER NOT NULL, connection INTEGER NOT NULL, first_sequence INTEGER NOT NULL,
        session INTEGER NOT NULL, first_lbn INTEGER NOT NULL, blocks INTEGER NOT NULL, start INTEGER NOT NULL,
        plain_len INTEGER NOT NULL, stored_len INTEGER NOT NULL,
        PRIMARY KEY (object, connection, first_sequence, volume)
    ) STRICT, WITHOUT ROWID;
    CREATE INDEX extents_on_volume ON extents (volume, first_lbn);
    CREATE TABLE pieces (
        piece INTEGER PRIMARY KEY, object BLOB NOT NULL, crc INTEGER NOT NULL, raw_len INTEGER NOT NULL,
        stored BLOB NOT NULL
    ) STRICT;
    CREATE INDEX pieces_of_object ON pieces (object, crc);
    CREATE TABLE jobs (
        job INTEGER PRIMARY KEY, kind TEXT NOT NULL, subject TEXT NOT NULL, started_ns INTEGER NOT NULL,
        ended_ns INTEGER, outcome INTEGER NOT NULL, files INTEGER NOT NULL, bytes INTEGER NOT NULL,
        stored INTEGER NOT NULL, message TEXT NOT NULL
    ) STRICT;
    ",
];

/// Brings a database to the newest version, whatever older one it has; an empty file is version 0.
pub(crate) fn migrate(db: &mut Connection) -> Result<(), CatalogError> {
    if check(version(db)?)? == STEPS.len() {
        return Ok(());
    }
    let transaction = db.transaction_with_behavior(TransactionBehavior::Immediate)?;
    // Another process may have migrated while this one waited for the lock.
    for (at, step) in STEPS.iter().enumerate().skip(check(version(&transaction)?)?) {
        transaction.execute_batch(step)?;
        transaction.pragma_update(None, "user_version", at + 1)?;
    }
    transaction.commit()?;
    Ok(())
}

fn version(db: &Connection) -> Result<i64, CatalogError> {
    Ok(db.query_row("PRAGMA user_version", [], |row| row.get(0))?)
}

fn check(found: i64) -> Result<usize, CatalogError> {
    let supported = STEPS.len() as i64;
    if found > supported {
        return Err(CatalogError::Newer { found, supported });
    }
    usize::try_from(found).map_err(|_| CatalogError::corrupt("the catalog's database", "its version is negative"))
}
