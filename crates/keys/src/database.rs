//! The SQLite file below a store: atomic and durable changes, locks between processes, and no copies of old bytes.
//!
//! SQLite gives atomicity and locking; it is not trusted with anything else. What is read from it goes through
//! [`Contents::verify`](crate::contents::Contents::verify), and its errors are sorted by blame in [`sort_error`].
//!
//! - **Durable:** a rollback journal with `synchronous = EXTRA`: a commit that returned survives a loss of power. A
//!   write-ahead log was rejected: it keeps old pages in a second file for as long as any reader is open.
//! - **No old bytes:** `secure_delete` zeroes what is freed; `journal_mode = PERSIST` keeps the journal in the same
//!   disk blocks instead of freeing them with old pages inside, and [`Database::rewrite`] writes the whole file anew,
//!   which overwrites the journal from its beginning with pages that are clean; temporary data stays in memory.
//! - **Locking:** changes begin with `BEGIN IMMEDIATE`, so that two of them never work from the same reading. Every
//!   operation is one transaction, and whoever finds the store locked waits for the time given to [`Database::open`].
//!   The file must never be opened and closed by other means in a process that has it open: closing it would drop
//!   SQLite's POSIX locks.

use std::fs::OpenOptions;
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use capstan_format::{Algorithm, FormatError, KeyTag, Volser};
use rusqlite::config::DbConfig;
use rusqlite::limits::Limit;
use rusqlite::{Connection, OpenFlags, Transaction, TransactionBehavior, params};

use crate::contents::{ChangedRows, Contents, RealmRow, Row};
use crate::key_file::sync_directory;
use crate::realm::{RealmRecord, RecordKind};
use crate::record::StoredKey;
use crate::secret::random;
use crate::{KeyError, KeyRecord, KeyState};

/// The tables, compared letter by letter with those found: whatever else a file defines could act when it is used.
const SCHEMA: [(&str, &str); 4] = [
    ("header", "CREATE TABLE header (id INTEGER PRIMARY KEY CHECK (id = 1), bytes BLOB NOT NULL) STRICT"),
    (
        "seal",
        "CREATE TABLE seal (id INTEGER PRIMARY KEY CHECK (id = 1), counter INTEGER NOT NULL, mac BLOB NOT NULL) STRICT",
    ),
    (
        "keys",
        "CREATE TABLE keys (serial INTEGER PRIMARY KEY, tag BLOB NOT NULL, volser TEXT NOT NULL, \
         algorithm INTEGER NOT NULL, state INTEGER NOT NULL, created_ns INTEGER NOT NULL, activated_ns INTEGER, \
         retired_ns INTEGER, destroyed_ns INTEGER, imported_ns INTEGER, wrapped BLOB, mac BLOB NOT NULL) STRICT",
    ),
    (
        REALM,
        "CREATE TABLE realm (serial INTEGER PRIMARY KEY, kind INTEGER NOT NULL, name TEXT NOT NULL, bytes BLOB NOT NULL, \
         mac BLOB NOT NULL) STRICT",
    ),
];
/// The last table: a store has it from its first record on.
const REALM: &str = "realm";
/// Longest value that any column may hold; ours are far below, a hostile file's need not be.
const VALUE_BYTES_MAX: i32 = 64 * 1024;

/// An open store file.
pub(crate) struct Database {
    connection: Connection,
    path: PathBuf,
    lock_wait: Duration,
}

impl Database {
    /// Writes a new store file: it appears under its name complete, durable and readable by its owner only, or not at
    /// all.
    pub(crate) fn create(path: &Path, contents: &Contents) -> Result<(), KeyError> {
        let host = |error: io::Error| KeyError::host(format!("creating the key store {}", path.display()), error);
        let unfinished = Unfinished::create(path).map_err(host)?;
        let connection = Connection::open_with_flags(&unfinished.0, OpenFlags::SQLITE_OPEN_READ_WRITE)
            .and_then(|connection| {
                // Nobody else knows the name yet: if this is cut short, nothing has happened.
                connection.execute_batch("PRAGMA journal_mode = MEMORY; PRAGMA synchronous = FULL; BEGIN")?;
                SCHEMA[..SCHEMA.len() - 1].iter().try_for_each(|(_, sql)| connection.execute_batch(sql))?;
                write_contents(&connection, contents, &ChangedRows::default())?;
                connection.execute_batch("COMMIT")?;
                Ok(connection)
            })
            .map_err(|error| sort_error(path, error))?;
        connection.close().map_err(|(_, error)| sort_error(path, error))?;
        // A hard link, because unlike a rename it never replaces what is there.
        std::fs::hard_link(&unfinished.0, path).map_err(|error| match error.kind() {
            io::ErrorKind::AlreadyExists => KeyError::AlreadyExists { path: path.to_owned() },
            _ => host(error),
        })?;
        drop(unfinished);
        sync_directory(path).map_err(host)
    }

    /// Opens a store file and checks that it is one; waits for locks at most `lock_wait`.
    pub(crate) fn open(path: &Path, lock_wait: Duration) -> Result<Self, KeyError> {
        let host = |error: io::Error| match error.kind() {
            io::ErrorKind::NotFound => KeyError::StoreMissing { store: path.to_owned() },
            _ => KeyError::host(format!("opening the key store {}", path.display()), error),
        };
        // Absolute, because SQLite would take a name that begins with `file:` for a URI.
        let absolute = std::path::absolute(path).map_err(host)?;
        if !std::fs::metadata(&absolute).map_err(host)?.is_file() {
            return Err(host(io::Error::other("it is not a regular file")));
        }
        let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let connection = Connection::open_with_flags(&absolute, flags)
            .and_then(|connection| configure(&connection, lock_wait).map(|()| connection))
            .map_err(|error| sort_error(path, error))?;
        let database = Self { connection, path: path.to_owned(), lock_wait };
        database.check_schema()?;
        Ok(database)
    }

    /// A second connection to the same file: what it reads comes from the file and not from this one's cache.
    pub(crate) fn reopen(&self) -> Result<Self, KeyError> {
        Self::open(&self.path, self.lock_wait)
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Everything in the store at one moment.
    pub(crate) fn read(&self) -> Result<Contents, KeyError> {
        let transaction = self.connection.unchecked_transaction().map_err(|error| sort_error(&self.path, error))?;
        read_contents(&transaction, &self.path)
    }

    /// Begins a change: from here to its end no other process can begin one.
    pub(crate) fn begin(&mut self) -> Result<Change<'_>, KeyError> {
        let transaction = self
            .connection
            .transaction_with_behavior(TransactionBehavior::Immediate)
            .map_err(|error| sort_error(&self.path, error))?;
        Ok(Change { transaction, path: &self.path })
    }

    /// Writes the whole file anew, so that nothing that was overwritten or deleted is left in it or in its journal.
    pub(crate) fn rewrite(&self) -> Result<(), KeyError> {
        self.connection.execute_batch("VACUUM").map_err(|error| sort_error(&self.path, error))
    }

    fn check_schema(&self) -> Result<(), KeyError> {
        let found = self
            .connection
            .prepare("SELECT name, sql FROM sqlite_schema ORDER BY rowid")
            .and_then(|mut statement| {
                let rows = statement.query_map([], |row| Ok((row.get(0)?, row.get(1)?)))?;
                // One more than expected is enough to see that there are too many.
                rows.take(SCHEMA.len() + 1).collect::<Result<Vec<(String, String)>, _>>()
            })
            .map_err(|error| sort_error(&self.path, error))?;
        let found = || found.iter().map(|(name, sql)| (name.as_str(), sql.as_str()));
        if found().eq(SCHEMA) || found().eq(SCHEMA[..SCHEMA.len() - 1].iter().copied()) {
            return Ok(());
        }
        Err(KeyError::tampered(&self.path, "its tables are not those of a key store"))
    }

    #[cfg(test)]
    pub(crate) fn connection(&self) -> &Connection {
        &self.connection
    }
}

/// A change under way; dropped without [`Change::commit`] it never happened.
pub(crate) struct Change<'a> {
    transaction: Transaction<'a>,
    path: &'a Path,
}

impl Change<'_> {
    pub(crate) fn read(&self) -> Result<Contents, KeyError> {
        read_contents(&self.transaction, self.path)
    }

    /// Writes the header, the seal and the rows at the places given.
    pub(crate) fn write(&self, contents: &Contents, changed: &ChangedRows) -> Result<(), KeyError> {
        write_contents(&self.transaction, contents, changed).map_err(|error| sort_error(self.path, error))
    }

    /// On disk when this returns.
    pub(crate) fn commit(self) -> Result<(), KeyError> {
        self.transaction.commit().map_err(|error| sort_error(self.path, error))
    }
}

/// A store file that has no name yet; its temporary one goes when this is dropped.
struct Unfinished(PathBuf);

impl Unfinished {
    fn create(path: &Path) -> io::Result<Self> {
        let mut suffix = [0; 8];
        random(&mut suffix).map_err(io::Error::other)?;
        let mut name = path.file_name().ok_or(io::ErrorKind::InvalidInput)?.to_owned();
        name.push(format!(".new-{:016x}", u64::from_le_bytes(suffix)));
        let unfinished = std::path::absolute(path)?.with_file_name(name);
        OpenOptions::new().write(true).create_new(true).mode(0o600).open(&unfinished)?;
        Ok(Self(unfinished))
    }
}

impl Drop for Unfinished {
    fn drop(&mut self) {
        // A name left behind is untidy and no danger: it holds what the store itself holds.
        let _ = std::fs::remove_file(&self.0);
    }
}

fn configure(connection: &Connection, lock_wait: Duration) -> rusqlite::Result<()> {
    connection.busy_timeout(lock_wait)?;
    connection.set_limit(Limit::SQLITE_LIMIT_LENGTH, VALUE_BYTES_MAX)?;
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_DEFENSIVE, true)?;
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_TRUSTED_SCHEMA, false)?;
    connection.execute_batch(
        "PRAGMA synchronous = EXTRA; PRAGMA secure_delete = ON; PRAGMA temp_store = MEMORY; PRAGMA cell_size_check = ON; \
         PRAGMA mmap_size = 0; PRAGMA journal_mode = PERSIST",
    )
}

fn read_contents(connection: &Connection, path: &Path) -> Result<Contents, KeyError> {
    let sort = |error| sort_error(path, error);
    let header = connection.query_row("SELECT bytes FROM header WHERE id = 1", [], |row| row.get(0)).map_err(sort)?;
    let (counter, mac) = connection
        .query_row("SELECT counter, mac FROM seal WHERE id = 1", [], |row| Ok((row.get(0)?, row.get(1)?)))
        .map_err(sort)?;
    let mut statement = connection
        .prepare(
            "SELECT serial, tag, volser, algorithm, state, created_ns, activated_ns, retired_ns, destroyed_ns, \
             imported_ns, wrapped, mac FROM keys ORDER BY serial",
        )
        .map_err(sort)?;
    let mut found = statement.query([]).map_err(sort)?;
    let mut rows = Vec::new();
    while let Some(row) = found.next().map_err(sort)? {
        let serial = row.get(0).map_err(sort)?;
        let field = |name: &str| KeyError::tampered(path, format!("record {serial} has an impossible {name}"));
        let algorithm = row.get(3).map_err(|_| field("algorithm"))?;
        let state = row.get(4).map_err(|_| field("state"))?;
        let volser: String = row.get(2).map_err(|_| field("barcode"))?;
        let record = KeyRecord {
            tag: KeyTag(row.get(1).map_err(|_| field("tag"))?),
            volser: Volser::new(&volser).map_err(|_| field("barcode"))?,
            algorithm: Algorithm::from_code(algorithm).ok_or_else(|| field("algorithm"))?,
            state: KeyState::from_code(state).ok_or_else(|| field("state"))?,
            created_ns: row.get(5).map_err(|_| field("time of creation"))?,
            activated_ns: row.get(6).map_err(|_| field("time of activation"))?,
            retired_ns: row.get(7).map_err(|_| field("time of retirement"))?,
            destroyed_ns: row.get(8).map_err(|_| field("time of destruction"))?,
            imported_ns: row.get(9).map_err(|_| field("time of import"))?,
        };
        let wrapped = row.get(10).map_err(|_| field("wrapped key"))?;
        let mac = row.get(11).map_err(|_| field("seal"))?;
        rows.push(Row { serial, key: StoredKey { record, wrapped }, mac });
    }
    Ok(Contents { header, counter, mac, rows, realm: read_realm(connection, path)? })
}

fn has_realm(connection: &Connection) -> rusqlite::Result<bool> {
    connection.prepare_cached("SELECT 1 FROM sqlite_schema WHERE name = ?1")?.exists([REALM])
}

fn read_realm(connection: &Connection, path: &Path) -> Result<Vec<RealmRow>, KeyError> {
    let sort = |error| sort_error(path, error);
    if !has_realm(connection).map_err(sort)? {
        return Ok(Vec::new());
    }
    let mut statement =
        connection.prepare("SELECT serial, kind, name, bytes, mac FROM realm ORDER BY serial").map_err(sort)?;
    let mut found = statement.query([]).map_err(sort)?;
    let mut rows = Vec::new();
    while let Some(row) = found.next().map_err(sort)? {
        let altered = |what: String| KeyError::tampered(path, what);
        let serial: i64 = row.get(0).map_err(sort)?;
        let field = |name: &str| {
            altered(format!("record {serial} of its policies and volumes has a {name} that makes no sense"))
        };
        let kind = row.get(1).ok().and_then(RecordKind::from_code).ok_or_else(|| field("kind"))?;
        let name: String = row.get(2).map_err(|_| field("name"))?;
        let bytes: Vec<u8> = row.get(3).map_err(|_| field("contents"))?;
        let record = RealmRecord::decode(kind, &bytes).map_err(|error| match error {
            // Its seal is not checked yet, so that this may be damage too.
            FormatError::Version { found, .. } => altered(format!(
                "its record of {} {name} is damaged, or of a later Capstan (version {found})",
                kind.name()
            )),
            error => altered(format!("its record of {} {name} is damaged: {error}", kind.name())),
        })?;
        if record.name() != name {
            return Err(field("name"));
        }
        rows.push(RealmRow { serial, record, mac: row.get(4).map_err(|_| field("seal"))? });
    }
    Ok(rows)
}

fn write_realm(connection: &Connection, contents: &Contents, places: &[usize]) -> rusqlite::Result<()> {
    if places.is_empty() {
        return Ok(());
    }
    if !has_realm(connection)? {
        connection.execute_batch(SCHEMA[SCHEMA.len() - 1].1)?;
    }
    let mut statement = connection.prepare(
        "INSERT INTO realm (serial, kind, name, bytes, mac) VALUES (?1, ?2, ?3, ?4, ?5) \
         ON CONFLICT (serial) DO UPDATE SET kind = ?2, name = ?3, bytes = ?4, mac = ?5",
    )?;
    for &place in places {
        let RealmRow { serial, record, mac } = &contents.realm[place];
        statement.execute(params![serial, record.kind().code(), record.name(), record.encode(), mac])?;
    }
    Ok(())
}

fn write_contents(connection: &Connection, contents: &Contents, changed: &ChangedRows) -> rusqlite::Result<()> {
    connection.execute(
        "INSERT INTO header (id, bytes) VALUES (1, ?1) ON CONFLICT (id) DO UPDATE SET bytes = ?1",
        [&contents.header],
    )?;
    connection.execute(
        "INSERT INTO seal (id, counter, mac) VALUES (1, ?1, ?2) ON CONFLICT (id) DO UPDATE SET counter = ?1, mac = ?2",
        params![contents.counter, contents.mac],
    )?;
    let mut statement = connection.prepare(
        "INSERT INTO keys (serial, tag, volser, algorithm, state, created_ns, activated_ns, retired_ns, destroyed_ns, \
         imported_ns, wrapped, mac) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12) \
         ON CONFLICT (serial) DO UPDATE SET tag = ?2, volser = ?3, algorithm = ?4, state = ?5, created_ns = ?6, \
         activated_ns = ?7, retired_ns = ?8, destroyed_ns = ?9, imported_ns = ?10, wrapped = ?11, mac = ?12",
    )?;
    for &place in &changed.rows {
        let Row { serial, key: StoredKey { record, wrapped }, mac } = &contents.rows[place];
        statement.execute(params![
            serial,
            record.tag.0,
            record.volser.as_str(),
            record.algorithm.code(),
            record.state.code(),
            record.created_ns,
            record.activated_ns,
            record.retired_ns,
            record.destroyed_ns,
            record.imported_ns,
            wrapped,
            mac
        ])?;
    }
    write_realm(connection, contents, &changed.realm)
}

/// Whose fault an error of SQLite is.
fn sort_error(path: &Path, error: rusqlite::Error) -> KeyError {
    use rusqlite::ErrorCode;
    let store = path.to_owned();
    let altered = |reason: String| KeyError::tampered(path, format!("SQLite cannot make sense of it ({reason})"));
    match error.sqlite_error_code() {
        Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => KeyError::Locked { store },
        Some(ErrorCode::DiskFull) => KeyError::DiskFull { store },
        Some(
            ErrorCode::DatabaseCorrupt
            | ErrorCode::NotADatabase
            | ErrorCode::TypeMismatch
            | ErrorCode::ConstraintViolation
            | ErrorCode::TooBig
            | ErrorCode::Unknown,
        ) => altered(error.to_string()),
        Some(_) => KeyError::host(format!("using the key store {}", path.display()), error),
        None => match error {
            rusqlite::Error::QueryReturnedNoRows => KeyError::tampered(path, "its header or its seal is missing"),
            other => altered(other.to_string()),
        },
    }
}
