//! Opening the catalog.

use std::fs;
use std::path::{Path, PathBuf};

use crate::CatalogError;
use crate::db::{self, Database, Db, Durability, Transaction};

/// The catalog in a directory: `index/` with one file for each complete object, and the tables in `catalog.db`, or in a
/// database that `database.json` names.
///
/// Any number of processes may have it open. Reading never waits; a method that takes `&mut self` writes, in one
/// transaction, and waits for another writer up to half a minute.
pub struct Catalog {
    pub(crate) db: Db,
    dir: PathBuf,
}

impl Catalog {
    /// Opens the catalog of a directory; makes what is missing and brings an older one to the newest schema.
    ///
    /// On a full disk it opens all the same, for one process at a time: whoever restores must be able to read it.
    ///
    /// # Errors
    /// The directory or the database cannot be used, or the database was written by a later program.
    pub fn open(dir: &Path) -> Result<Self, CatalogError> {
        let index = dir.join("index");
        fs::create_dir_all(&index).map_err(|source| CatalogError::io("create", &index, source))?;
        Ok(Self { db: Db::open(dir)?, dir: dir.to_owned() })
    }

    /// Makes a catalog in a directory, with its tables in a database. Opens the one that is there, if its tables are in
    /// that database.
    ///
    /// # Errors
    /// The directory or the database cannot be used, or the directory has a catalog in another database.
    pub fn create(dir: &Path, database: &Database) -> Result<Self, CatalogError> {
        fs::create_dir_all(dir).map_err(|source| CatalogError::io("create", dir, source))?;
        if !Self::exists(dir) {
            db::create(dir, database)?;
        } else if Database::of(dir)? != *database {
            let reason = format!("{} has one in {}", dir.display(), Database::of(dir)?.told());
            return Err(CatalogError::DatabaseRefused { database: database.told(), reason });
        }
        Self::open(dir)
    }

    /// Removes the catalog of a directory: its tables, wherever they are, then the directory.
    ///
    /// # Errors
    /// The directory cannot be removed, or the database cannot be reached.
    pub fn discard(dir: &Path) -> Result<(), CatalogError> {
        db::discard(dir)?;
        fs::remove_dir_all(dir).map_err(|source| CatalogError::io("remove", dir, source))
    }

    /// Whether a directory has a catalog.
    pub fn exists(dir: &Path) -> bool {
        dir.join("catalog.db").exists() || dir.join(Database::FILE).exists()
    }

    /// The same catalog once more, for long work beside whoever uses this one: each sees what the other has committed.
    /// `None` on a full disk, where only one can have it open.
    ///
    /// # Errors
    /// As [`Catalog::open`].
    pub fn another(&self) -> Result<Option<Self>, CatalogError> {
        let another = self.db.another()?;
        Ok(another.map(|db| Self { db, dir: self.dir.clone() }))
    }

    /// The directory it was opened in.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    pub(crate) fn index_dir(&self) -> PathBuf {
        self.dir.join("index")
    }

    /// Makes a change, and makes it once more where the connection was lost and nothing of it was recorded, as far as
    /// that is known: a server that is started anew ends no job. To make it twice does no harm.
    pub(crate) fn repeatable<T>(
        &mut self,
        change: impl Fn(&mut Self) -> Result<T, CatalogError>,
    ) -> Result<T, CatalogError> {
        match change(self) {
            Err(CatalogError::Unreachable { .. } | CatalogError::OutcomeUnknown { .. }) => change(self),
            done => done,
        }
    }

    /// A transaction that has the only right to write from its start.
    pub(crate) fn write(&mut self) -> Result<Transaction<'_>, CatalogError> {
        self.db.write(Durability::Now)
    }

    /// The same for what means nothing once the machine was off: a loss of power may take it.
    pub(crate) fn write_for_now(&mut self) -> Result<Transaction<'_>, CatalogError> {
        self.db.write(Durability::Later)
    }
}

/// A number that a database can keep: up to 2^63 - 1.
pub(crate) fn number(what: &'static str, value: u64) -> Result<i64, CatalogError> {
    i64::try_from(value).map_err(|_| CatalogError::TooLarge { what, value })
}
