//! Opening the catalog.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rusqlite::{Connection, ErrorCode, Transaction, TransactionBehavior};

use crate::CatalogError;
use crate::schema::migrate;

/// How long a writer waits for another one.
const BUSY_WAIT: Duration = Duration::from_secs(30);

/// The catalog in a directory: `catalog.db`, and `index/` with one file for each complete object.
///
/// Any number of processes may have it open. Reading never waits; a method that takes `&mut self` writes, in one
/// transaction, and waits for another writer up to half a minute.
pub struct Catalog {
    pub(crate) db: Connection,
    dir: PathBuf,
    sharing: Sharing,
}

/// Whether other processes may have the database open.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Sharing {
    Shared,
    Alone,
}

impl Catalog {
    /// Opens the catalog of a directory; makes what is missing and brings an older one to the newest schema.
    ///
    /// On a full disk it opens all the same, for one process at a time: whoever restores must be able to read it.
    pub fn open(dir: &Path) -> Result<Self, CatalogError> {
        let index = dir.join("index");
        fs::create_dir_all(&index).map_err(|source| CatalogError::io("create", &index, source))?;
        match Self::connect(dir, Sharing::Shared) {
            Err(CatalogError::Database { source }) if wants_space(&source) => Self::connect(dir, Sharing::Alone),
            other => other,
        }
    }

    fn connect(dir: &Path, sharing: Sharing) -> Result<Self, CatalogError> {
        let mut db = Connection::open(dir.join("catalog.db"))?;
        db.busy_timeout(BUSY_WAIT)?;
        if sharing == Sharing::Alone {
            // What processes share is a file of its own, which a full disk has no room for; who is alone needs none.
            db.pragma_update(None, "locking_mode", "EXCLUSIVE")?;
        }
        db.pragma_update(None, "journal_mode", "WAL")?;
        // A checkpoint that was recorded has been reported as protected: it must survive a loss of power.
        db.pragma_update(None, "synchronous", "FULL")?;
        db.set_prepared_statement_cache_capacity(64);
        migrate(&mut db)?;
        Ok(Self { db, dir: dir.to_owned(), sharing })
    }

    /// The same catalog once more, for long work beside whoever uses this one: each sees what the other has committed.
    /// `None` on a full disk, where only one can have it open.
    ///
    /// # Errors
    /// As [`Catalog::open`].
    pub fn another(&self) -> Result<Option<Self>, CatalogError> {
        match self.sharing {
            Sharing::Shared => Self::connect(&self.dir, Sharing::Shared).map(Some),
            Sharing::Alone => Ok(None),
        }
    }

    /// The directory it was opened in.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    pub(crate) fn index_dir(&self) -> PathBuf {
        self.dir.join("index")
    }

    /// A transaction that holds the write lock from its start.
    pub(crate) fn write(&mut self) -> Result<Transaction<'_>, CatalogError> {
        Ok(self.db.transaction_with_behavior(TransactionBehavior::Immediate)?)
    }
}

/// Whether SQLite failed because it could not make a file longer.
fn wants_space(error: &rusqlite::Error) -> bool {
    matches!(error.sqlite_error_code(), Some(ErrorCode::DiskFull | ErrorCode::SystemIoFailure))
}

/// A number that SQLite can keep: up to 2^63 - 1.
pub(crate) fn number(what: &'static str, value: u64) -> Result<i64, CatalogError> {
    i64::try_from(value).map_err(|_| CatalogError::TooLarge { what, value })
}
