//! SQLite: one file beside the indexes.

use std::cell::Cell;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rusqlite::{Connection, ErrorCode, params_from_iter};

use super::{Durability, Row, Value};
use crate::CatalogError;
use crate::schema::{STEPS, steps_from};

/// How long a writer waits for another one.
const BUSY_WAIT: Duration = Duration::from_secs(30);

/// Statements that stay prepared.
const STATEMENTS_KEPT: usize = 96;

/// Whether other processes may have the database open.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Sharing {
    Shared,
    Alone,
}

pub(super) struct Sqlite {
    db: Connection,
    dir: PathBuf,
    sharing: Sharing,
    /// What the connection is set to.
    durability: Cell<Durability>,
}

impl Sqlite {
    /// On a full disk it opens all the same, for one process at a time: whoever restores must be able to read it.
    pub(super) fn open(dir: &Path) -> Result<Self, CatalogError> {
        Self::connect(dir, Sharing::Shared).or_else(|error| match error {
            Failed::Sqlite(error) if wants_space(&error) => Self::connect(dir, Sharing::Alone).map_err(Failed::said),
            error => Err(error.said()),
        })
    }

    pub(super) fn another(&self) -> Result<Option<Self>, CatalogError> {
        match self.sharing {
            Sharing::Shared => Self::connect(&self.dir, Sharing::Shared).map(Some).map_err(Failed::said),
            Sharing::Alone => Ok(None),
        }
    }

    fn connect(dir: &Path, sharing: Sharing) -> Result<Self, Failed> {
        let mut db = Connection::open(dir.join("catalog.db"))?;
        db.busy_timeout(BUSY_WAIT)?;
        if sharing == Sharing::Alone {
            // What processes share is a file of its own, which a full disk has no room for; who is alone needs none.
            db.pragma_update(None, "locking_mode", "EXCLUSIVE")?;
        }
        db.pragma_update(None, "journal_mode", "WAL")?;
        // A checkpoint that was recorded has been reported as protected: it must survive a loss of power.
        db.pragma_update(None, "synchronous", "FULL")?;
        db.set_prepared_statement_cache_capacity(STATEMENTS_KEPT);
        migrate(&mut db)?;
        Ok(Self { db, dir: dir.to_owned(), sharing, durability: Cell::new(Durability::Now) })
    }

    pub(super) fn query(
        &self,
        sql: &str,
        values: &[Value<'_>],
        each: &mut dyn FnMut(&Row<'_>) -> Result<(), CatalogError>,
    ) -> Result<(), CatalogError> {
        let mut statement = self.db.prepare_cached(sql).map_err(failed)?;
        let mut rows = statement.query(params_from_iter(values)).map_err(failed)?;
        while let Some(row) = rows.next().map_err(failed)? {
            each(&Row::Sqlite(row))?;
        }
        Ok(())
    }

    pub(super) fn execute(&self, sql: &str, values: &[Value<'_>]) -> Result<u64, CatalogError> {
        let mut statement = self.db.prepare_cached(sql).map_err(failed)?;
        Ok(statement.execute(params_from_iter(values)).map_err(failed)? as u64)
    }

    pub(super) fn copy_tables(&self, file: &Path) -> Result<(), CatalogError> {
        let file = file.as_os_str().as_bytes();
        let name = str::from_utf8(file).map_err(|error| CatalogError::Database { source: Box::new(error) })?;
        self.db.execute("VACUUM INTO ?1", [name]).map(drop).map_err(failed)
    }

    pub(super) fn begin_snapshot(&self) -> Result<(), CatalogError> {
        self.run("BEGIN")
    }

    pub(super) fn begin_write(&self, durability: Durability) -> Result<(), CatalogError> {
        if self.durability.get() != durability {
            // In WAL mode NORMAL leaves the log to be synced with a later commit, and in order.
            self.run(if durability == Durability::Now {
                "PRAGMA synchronous = FULL"
            } else {
                "PRAGMA synchronous = NORMAL"
            })?;
            // Only now: what is protected must not be committed as what may wait, because this failed once.
            self.durability.set(durability);
        }
        self.run("BEGIN IMMEDIATE")
    }

    pub(super) fn commit(&self) -> Result<(), CatalogError> {
        self.run("COMMIT")
    }

    pub(super) fn roll_back(&self) {
        // Some errors have ended the transaction; any other end of the connection ends it, too.
        if !self.db.is_autocommit() {
            let _ = self.run("ROLLBACK");
        }
    }

    fn run(&self, sql: &str) -> Result<(), CatalogError> {
        self.execute(sql, &[]).map(drop)
    }

    #[cfg(test)]
    pub(super) fn connection(&self) -> &Connection {
        &self.db
    }
}

/// Brings a database to the newest version, whatever older one it has; an empty file is version 0.
fn migrate(db: &mut Connection) -> Result<(), Failed> {
    if steps_from(version(db)?)?.is_empty() {
        return Ok(());
    }
    let transaction = db.transaction_with_behavior(rusqlite::TransactionBehavior::Immediate)?;
    // Another process may have migrated while this one waited for the lock.
    for step in steps_from(version(&transaction)?)? {
        transaction.execute_batch(step)?;
    }
    transaction.pragma_update(None, "user_version", STEPS.len())?;
    Ok(transaction.commit()?)
}

fn version(db: &Connection) -> rusqlite::Result<i64> {
    db.query_row("PRAGMA user_version", [], |row| row.get(0))
}

/// Why a database could not be opened, before it is said in the catalog's words.
enum Failed {
    Sqlite(rusqlite::Error),
    Catalog(CatalogError),
}

impl From<rusqlite::Error> for Failed {
    fn from(error: rusqlite::Error) -> Self {
        Self::Sqlite(error)
    }
}

impl From<CatalogError> for Failed {
    fn from(error: CatalogError) -> Self {
        Self::Catalog(error)
    }
}

impl Failed {
    fn said(self) -> CatalogError {
        match self {
            Self::Sqlite(error) => failed(error),
            Self::Catalog(error) => error,
        }
    }
}

/// Whether SQLite failed because it could not make a file longer.
fn wants_space(error: &rusqlite::Error) -> bool {
    matches!(error.sqlite_error_code(), Some(ErrorCode::DiskFull | ErrorCode::SystemIoFailure))
}

/// An error of SQLite in the catalog's words.
fn failed(source: rusqlite::Error) -> CatalogError {
    use rusqlite::Error::{InvalidColumnIndex, InvalidColumnName, InvalidColumnType, Utf8Error};
    match source.sqlite_error_code() {
        Some(ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase) => {
            CatalogError::corrupt("the catalog's database", source)
        }
        Some(ErrorCode::DiskFull) => CatalogError::DiskFull { what: "write the catalog's database".to_owned() },
        Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => CatalogError::Busy,
        _ => match source {
            InvalidColumnIndex(..) | InvalidColumnType(..) | InvalidColumnName(..) | Utf8Error(..) => {
                CatalogError::corrupt("the catalog's database", source)
            }
            source => CatalogError::Database { source: Box::new(source) },
        },
    }
}
