//! The SQLite file below a replica.
//!
//! ```text
//! header  one row: cluster, epoch, last commit that is applied (0: none), number of records, XOR of their checksums, checksum of this row
//! record  path, sealed bytes, commit, CRC32C of path, 0, commit (8 bytes, little endian), sealed bytes
//! ```
//! The XOR over all records can be kept up with each change, and shows a record that is missing or there twice.

use std::fs::{File, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use capstan_format::{crc32c, crc32c_append};
use rusqlite::config::DbConfig;
use rusqlite::limits::Limit;
use rusqlite::{Connection, OpenFlags, OptionalExtension, params};

use super::ReplicaError;
use crate::ledger::{Entry, RECORD_LEN_MAX, is_path};

/// The tables, compared letter by letter with those found: whatever else a file defines could act when it is used.
const SCHEMA: [(&str, &str); 2] = [
    (
        "header",
        "CREATE TABLE header (id INTEGER PRIMARY KEY CHECK (id = 1), cluster TEXT NOT NULL, epoch INTEGER NOT NULL, \
         applied INTEGER NOT NULL, records INTEGER NOT NULL, all_records INTEGER NOT NULL, checksum INTEGER NOT NULL) STRICT",
    ),
    (
        "record",
        "CREATE TABLE record (path TEXT PRIMARY KEY, sealed BLOB NOT NULL, revision INTEGER NOT NULL, \
         checksum INTEGER NOT NULL) STRICT, WITHOUT ROWID",
    ),
];
/// Longest value of any column: a record, a path, and what SQLite puts around them.
const VALUE_BYTES_MAX: i32 = 2 * RECORD_LEN_MAX as i32;
/// How long a process that is just ending may keep the file.
const LOCK_WAIT: Duration = Duration::from_secs(1);

/// How many records there are, and the XOR of their checksums.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Sum {
    records: i64,
    checksum: u32,
}

impl Sum {
    fn add(&mut self, checksum: u32) {
        self.records += 1;
        self.checksum ^= checksum;
    }

    fn take_away(&mut self, checksum: u32) {
        self.records -= 1;
        self.checksum ^= checksum;
    }
}

/// What a replica says of itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Header {
    pub(super) cluster: String,
    pub(super) epoch: u64,
    /// The last commit; 0 if none.
    pub(super) applied: i64,
    pub(super) sum: Sum,
}

impl Header {
    pub(super) fn new(cluster: &str, epoch: u64) -> Self {
        Self { cluster: cluster.to_owned(), epoch, applied: 0, sum: Sum::default() }
    }

    fn checksum(&self) -> u32 {
        let numbers = [self.epoch.cast_signed(), self.applied, self.sum.records, i64::from(self.sum.checksum)];
        numbers.iter().fold(crc32c(self.cluster.as_bytes()), |crc, number| crc32c_append(crc, &number.to_le_bytes()))
    }
}

fn checksum_of(path: &str, revision: i64, sealed: &[u8]) -> u32 {
    let crc = crc32c_append(crc32c(path.as_bytes()), &[0]);
    crc32c_append(crc32c_append(crc, &revision.to_le_bytes()), sealed)
}

/// Writes a new file: it appears under its name complete, durable and readable by its owner only, or not at all.
pub(super) fn create(path: &Path, header: &Header) -> Result<(), ReplicaError> {
    let host = |error: io::Error| ReplicaError::host("creating", path, error);
    let unfinished = unfinished(path).map_err(host)?;
    match std::fs::remove_file(&unfinished) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(host(error)),
        _ => {}
    }
    OpenOptions::new().write(true).create_new(true).mode(0o600).open(&unfinished).map_err(host)?;
    let connection = connect(&unfinished).map_err(|error| ReplicaError::sort(path, error))?;
    let written = SCHEMA.iter().try_for_each(|(_, sql)| connection.execute_batch(sql));
    let written = written.and_then(|()| write_header(&connection, header));
    written.map_err(|error| ReplicaError::sort(path, error))?;
    connection.close().map_err(|(_, error)| ReplicaError::sort(path, error))?;
    // A journal that stays would be taken for the new file's own if it were renamed with it; it holds nothing.
    let _ = std::fs::remove_file(unfinished.with_extension("new-journal"));
    std::fs::rename(&unfinished, path).map_err(host)?;
    let folder = std::path::absolute(path).map_err(host)?;
    File::open(folder.parent().unwrap_or(Path::new("/"))).and_then(|folder| folder.sync_all()).map_err(host)
}

/// The name under which a file is made.
fn unfinished(path: &Path) -> io::Result<PathBuf> {
    let mut name = path.file_name().ok_or(io::ErrorKind::InvalidInput)?.to_owned();
    name.push(".new");
    Ok(std::path::absolute(path)?.with_file_name(name))
}

/// Opens a file and takes it for this process alone.
pub(super) fn open(path: &Path) -> Result<Connection, ReplicaError> {
    let host = |error: io::Error| ReplicaError::host("opening", path, error);
    // Absolute, because SQLite would take a name that begins with `file:` for a URI.
    let absolute = std::path::absolute(path).map_err(host)?;
    let metadata = std::fs::metadata(&absolute).map_err(host)?;
    if !metadata.is_file() {
        return Err(host(io::Error::other("it is not a regular file")));
    }
    if metadata.len() == 0 {
        // SQLite would take it for a new one.
        return Err(ReplicaError::damaged(path, "it is empty"));
    }
    let connection = connect(&absolute).map_err(|error| ReplicaError::sort(path, error))?;
    let found = connection
        .prepare("SELECT name, sql FROM sqlite_schema WHERE sql IS NOT NULL ORDER BY rowid")
        .and_then(|mut statement| {
            let rows = statement.query_map([], |row| Ok((row.get(0)?, row.get(1)?)))?;
            // One more than expected is enough to see that there are too many.
            rows.take(SCHEMA.len() + 1).collect::<Result<Vec<(String, String)>, _>>()
        })
        .map_err(|error| ReplicaError::sort(path, error))?;
    if !found.iter().map(|(name, sql)| (name.as_str(), sql.as_str())).eq(SCHEMA) {
        return Err(ReplicaError::damaged(path, "its tables are not those of a replica"));
    }
    Ok(connection)
}

fn connect(path: &Path) -> rusqlite::Result<Connection> {
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection = Connection::open_with_flags(path, flags)?;
    connection.busy_timeout(LOCK_WAIT)?;
    connection.set_limit(Limit::SQLITE_LIMIT_LENGTH, VALUE_BYTES_MAX)?;
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_DEFENSIVE, true)?;
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_TRUSTED_SCHEMA, false)?;
    connection.execute_batch(
        "PRAGMA locking_mode = EXCLUSIVE; PRAGMA synchronous = EXTRA; PRAGMA secure_delete = ON; PRAGMA temp_store = MEMORY; \
         PRAGMA cell_size_check = ON; PRAGMA mmap_size = 0; PRAGMA cache_size = -32768; PRAGMA journal_mode = PERSIST; \
         BEGIN EXCLUSIVE; COMMIT",
    )?;
    Ok(connection)
}

/// Overwrites the journal of a change that is over: it holds the pages from before it. Not flushed: nobody waits for
/// it.
pub(super) fn wipe_journal(path: &Path) -> io::Result<()> {
    let mut name = path.as_os_str().to_owned();
    name.push("-journal");
    let mut journal = OpenOptions::new().write(true).open(name)?;
    let len = journal.metadata()?.len();
    io::copy(&mut io::repeat(0).take(len), &mut journal).map(|_| ())
}

pub(super) fn read_header(connection: &Connection, path: &Path) -> Result<Header, ReplicaError> {
    let sql = "SELECT cluster, epoch, applied, records, all_records, checksum FROM header WHERE id = 1";
    let found = connection.query_row(sql, [], |row| {
        let epoch: i64 = row.get(1)?;
        let sum = Sum { records: row.get(3)?, checksum: row.get(4)? };
        let header = Header { cluster: row.get(0)?, epoch: epoch.cast_unsigned(), applied: row.get(2)?, sum };
        Ok((header, row.get::<_, u32>(5)?))
    });
    let (header, checksum) = found.map_err(|error| ReplicaError::sort(path, error))?;
    if header.checksum() != checksum || header.applied < 0 || header.sum.records < 0 {
        return Err(ReplicaError::damaged(path, "its header is not as it was written"));
    }
    Ok(header)
}

pub(super) fn write_header(connection: &Connection, header: &Header) -> rusqlite::Result<()> {
    let sql = "INSERT OR REPLACE INTO header (id, cluster, epoch, applied, records, all_records, checksum) \
               VALUES (1, ?1, ?2, ?3, ?4, ?5, ?6)";
    let Sum { records, checksum } = header.sum;
    let epoch = header.epoch.cast_signed();
    let columns = params![header.cluster, epoch, header.applied, records, checksum, header.checksum()];
    connection.prepare_cached(sql)?.execute(columns).map(|_| ())
}

/// Hands over every record and checks it.
pub(super) fn read_records(
    connection: &Connection,
    path: &Path,
    record: &mut impl FnMut(Entry),
) -> Result<Sum, ReplicaError> {
    let sort = |error| ReplicaError::sort(path, error);
    let mut statement =
        connection.prepare("SELECT path, sealed, revision, checksum FROM record ORDER BY path").map_err(sort)?;
    let mut rows = statement.query([]).map_err(sort)?;
    let mut sum = Sum::default();
    while let Some(row) = rows.next().map_err(sort)? {
        let entry = Entry {
            path: row.get(0).map_err(sort)?,
            sealed: row.get(1).map_err(sort)?,
            revision: row.get(2).map_err(sort)?,
        };
        let checksum = row.get(3).map_err(sort)?;
        if checksum_of(&entry.path, entry.revision, &entry.sealed) != checksum || !is_path(&entry.path) {
            return Err(ReplicaError::damaged(path, format!("record {} is not as it was written", sum.records + 1)));
        }
        sum.add(checksum);
        record(entry);
    }
    Ok(sum)
}

/// Puts a record in the place of the one that is there, if there is one.
pub(super) fn put(connection: &Connection, entry: &Entry, sum: &mut Sum) -> rusqlite::Result<()> {
    if let Some(before) = checksum_at(connection, &entry.path)? {
        sum.take_away(before);
    }
    let sql = "INSERT OR REPLACE INTO record (path, sealed, revision, checksum) VALUES (?1, ?2, ?3, ?4)";
    write_record(connection, sql, entry, sum)
}

/// Puts a record where there is none.
pub(super) fn insert(connection: &Connection, entry: &Entry, sum: &mut Sum) -> rusqlite::Result<()> {
    write_record(
        connection,
        "INSERT INTO record (path, sealed, revision, checksum) VALUES (?1, ?2, ?3, ?4)",
        entry,
        sum,
    )
}

fn write_record(connection: &Connection, sql: &str, entry: &Entry, sum: &mut Sum) -> rusqlite::Result<()> {
    let Entry { path, sealed, revision } = entry;
    let checksum = checksum_of(path, *revision, sealed);
    connection.prepare_cached(sql)?.execute(params![path, sealed, revision, checksum])?;
    sum.add(checksum);
    Ok(())
}

/// Removes a record; one that is not there is an error, since the ledger has removed it just now.
pub(super) fn remove(connection: &Connection, path: &str, sum: &mut Sum) -> rusqlite::Result<()> {
    let before = checksum_at(connection, path)?.ok_or(rusqlite::Error::QueryReturnedNoRows)?;
    connection.prepare_cached("DELETE FROM record WHERE path = ?1")?.execute([path])?;
    sum.take_away(before);
    Ok(())
}

/// The record at a path.
pub(super) fn find(connection: &Connection, path: &str) -> rusqlite::Result<Option<Entry>> {
    connection
        .prepare_cached("SELECT sealed, revision FROM record WHERE path = ?1")?
        .query_row([path], |row| Ok(Entry { path: path.to_owned(), sealed: row.get(0)?, revision: row.get(1)? }))
        .optional()
}

pub(super) fn remove_all(connection: &Connection) -> rusqlite::Result<()> {
    connection.execute("DELETE FROM record", []).map(|_| ())
}

fn checksum_at(connection: &Connection, path: &str) -> rusqlite::Result<Option<u32>> {
    connection
        .prepare_cached("SELECT checksum FROM record WHERE path = ?1")?
        .query_row([path], |row| row.get(0))
        .optional()
}
