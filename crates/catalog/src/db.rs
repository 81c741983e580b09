//! The database below the catalog: SQLite in a file of its own, or PostgreSQL.
//!
//! ```text
//! volume, object, checkpoint, job ...   one SQL text, of the subset that both know
//!                |
//!               Db                      query, snapshot, write
//!              /  \
//!        sqlite    postgres             connections, errors
//!              \  /
//!            dialect                    the few words in which they differ
//! ```
//! What is written is written in a [`Transaction`] that has the only right to write from its beginning on, in both: a
//! row lock in PostgreSQL does what SQLite does by itself. So whoever reads before it writes reads what is so until it
//! commits.
//!
//! The shared subset: integers of 64 bits, text that is ordered by its bytes, and bytes; named columns; a conflict that
//! names its columns; no function that one of the two has not (`CASE` for the larger of two).

use std::ops::Deref;
use std::path::Path;

use crate::CatalogError;

mod dialect;
mod place;
mod postgres;
mod sqlite;
mod value;

pub use place::Database;
pub(crate) use value::{Bind, Cell, Row, Value};

use place::Place;
use postgres::Postgres;
use sqlite::Sqlite;

/// Values for the places `?1`, `?2` and so on of a statement.
macro_rules! params {
    ($($value:expr),* $(,)?) => {
        &[$($crate::db::Bind::bind(&$value)),*]
    };
}
pub(crate) use params;

/// When what was committed outlives a loss of power. Other processes see it at once in either case.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Durability {
    /// As soon as it is committed.
    Now,
    /// With the next commit that outlives it at once: what means nothing once the machine was off, such as who uses
    /// what.
    Later,
}

/// A connection to the catalog's database. Any number of processes may have one.
pub(crate) struct Db {
    engine: Engine,
}

enum Engine {
    Sqlite(Sqlite),
    Postgres(Box<Postgres>),
}

impl Db {
    /// Connects to the database of the catalog in a directory, and brings it to the newest schema.
    pub(crate) fn open(dir: &Path) -> Result<Self, CatalogError> {
        let engine = match place::read(dir)? {
            None => Engine::Sqlite(Sqlite::open(dir)?),
            Some(place) => Engine::Postgres(Box::new(Postgres::open(place)?)),
        };
        Ok(Self { engine })
    }

    /// A connection more, for long work beside this one; `None` where only one can be had.
    pub(crate) fn another(&self) -> Result<Option<Self>, CatalogError> {
        let engine = match &self.engine {
            Engine::Sqlite(sqlite) => sqlite.another()?.map(Engine::Sqlite),
            Engine::Postgres(postgres) => Some(Engine::Postgres(Box::new(postgres.another()?))),
        };
        Ok(engine.map(|engine| Self { engine }))
    }

    /// What `read` makes of each row.
    pub(crate) fn query<T>(
        &self,
        sql: &str,
        values: &[Value<'_>],
        mut read: impl FnMut(&Row<'_>) -> Result<T, CatalogError>,
    ) -> Result<Vec<T>, CatalogError> {
        let mut all = Vec::new();
        let each = &mut |row: &Row<'_>| {
            all.push(read(row)?);
            Ok(())
        };
        match &self.engine {
            Engine::Sqlite(sqlite) => sqlite.query(sql, values, each)?,
            Engine::Postgres(postgres) => postgres.query(sql, values, each)?,
        }
        Ok(all)
    }

    /// What `read` makes of the first row, if there is one.
    pub(crate) fn query_first<T>(
        &self,
        sql: &str,
        values: &[Value<'_>],
        read: impl FnMut(&Row<'_>) -> Result<T, CatalogError>,
    ) -> Result<Option<T>, CatalogError> {
        Ok(self.query(sql, values, read)?.into_iter().next())
    }

    /// The number that a query is sure to give.
    pub(crate) fn query_count(&self, sql: &str, values: &[Value<'_>]) -> Result<u64, CatalogError> {
        Ok(self.query_first(sql, values, |row| row.get(0))?.unwrap_or_default())
    }

    /// Whether a query gives any row.
    pub(crate) fn exists(&self, sql: &str, values: &[Value<'_>]) -> Result<bool, CatalogError> {
        Ok(self.query_first(sql, values, |_| Ok(()))?.is_some())
    }

    /// Copies all tables that are in a file here, as they are at one moment, into one that is not there yet.
    pub(crate) fn copy_tables(&self, file: &Path) -> Result<(), CatalogError> {
        match &self.engine {
            Engine::Sqlite(sqlite) => sqlite.copy_tables(file),
            Engine::Postgres(_) => Ok(()),
        }
    }

    /// Reads what was committed at one moment, until it is dropped.
    pub(crate) fn snapshot(&self) -> Result<Snapshot<'_>, CatalogError> {
        match &self.engine {
            Engine::Sqlite(sqlite) => sqlite.begin_snapshot()?,
            Engine::Postgres(postgres) => postgres.begin_snapshot()?,
        }
        Ok(Snapshot { db: self })
    }

    /// Begins to write: waits half a minute for whoever writes, and has the only right to until it is dropped.
    pub(crate) fn write(&mut self, durability: Durability) -> Result<Transaction<'_>, CatalogError> {
        match &self.engine {
            Engine::Sqlite(sqlite) => sqlite.begin_write(durability)?,
            Engine::Postgres(postgres) => postgres.begin_write(durability)?,
        }
        Ok(Transaction { db: self, is_open: true })
    }

    fn roll_back(&self) {
        match &self.engine {
            Engine::Sqlite(sqlite) => sqlite.roll_back(),
            Engine::Postgres(postgres) => postgres.roll_back(),
        }
    }

    /// The connection, where SQLite has the tables.
    #[cfg(test)]
    pub(crate) fn sqlite(&self) -> Option<&rusqlite::Connection> {
        match &self.engine {
            Engine::Sqlite(sqlite) => Some(sqlite.connection()),
            Engine::Postgres(_) => None,
        }
    }
}

/// Makes room for the tables of a catalog that is to be in this directory.
pub(crate) fn create(dir: &Path, database: &Database) -> Result<(), CatalogError> {
    let Database::Postgres { url } = database else { return Ok(()) };
    place::write(dir, &Place::new(url.clone(), postgres::create_schema(url)?, dir)?)
}

/// Removes the tables of the catalog in a directory, where they are not in it, and are its own.
pub(crate) fn discard(dir: &Path) -> Result<(), CatalogError> {
    let Some(place) = place::read(dir)? else { return Ok(()) };
    place.check_own(dir)?;
    postgres::drop_schema(&place)
}

/// A transaction that only reads.
pub(crate) struct Snapshot<'a> {
    db: &'a Db,
}

impl Deref for Snapshot<'_> {
    type Target = Db;

    fn deref(&self) -> &Db {
        self.db
    }
}

impl Drop for Snapshot<'_> {
    fn drop(&mut self) {
        self.db.roll_back();
    }
}

/// A transaction that writes. Dropped without a commit, nothing of it is kept.
pub(crate) struct Transaction<'a> {
    db: &'a mut Db,
    is_open: bool,
}

impl Transaction<'_> {
    /// Changes rows, and says how many.
    pub(crate) fn execute(&self, sql: &str, values: &[Value<'_>]) -> Result<u64, CatalogError> {
        match &self.db.engine {
            Engine::Sqlite(sqlite) => sqlite.execute(sql, values),
            Engine::Postgres(postgres) => postgres.execute(sql, values),
        }
    }

    /// Keeps what was written. When this returns, it is as durable as was asked for.
    ///
    /// An answer that is lost on its way is looked for over another connection: what this says is so.
    pub(crate) fn commit(mut self) -> Result<(), CatalogError> {
        self.is_open = false;
        let committed = match &self.db.engine {
            Engine::Sqlite(sqlite) => sqlite.commit(),
            Engine::Postgres(postgres) => postgres.commit(),
        };
        if committed.is_err() {
            self.db.roll_back();
        }
        committed
    }
}

impl Deref for Transaction<'_> {
    type Target = Db;

    fn deref(&self) -> &Db {
        self.db
    }
}

impl Drop for Transaction<'_> {
    fn drop(&mut self) {
        if self.is_open {
            self.db.roll_back();
        }
    }
}

/// The error for a value that no version writes.
pub(crate) fn impossible(what: &str, value: impl std::fmt::Display) -> CatalogError {
    CatalogError::corrupt("the catalog's database", format!("{what} has the impossible value {value}"))
}
