//! Pools: which volumes may hold what, and for how long.

use std::fmt::Display;

use capstan_format::Algorithm;
use rusqlite::types::Type;
use rusqlite::{OptionalExtension, Row, params};

use crate::CatalogError;
use crate::catalog::{Catalog, number};

/// Whether a pool takes volumes from scratch when it runs out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ScratchFeed {
    /// It does.
    Allowed,
    /// An operator adds each volume.
    Denied,
}

/// A named set of volumes with one policy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pool {
    /// Its name, at most 63 bytes.
    pub name: String,
    /// The cipher of its volumes; `None` for a plain pool. The two are never mixed.
    pub encryption: Option<Algorithm>,
    /// How long an object is kept after its end, in nanoseconds; `None` for ever.
    pub retention_ns: Option<u64>,
    /// Whether scratch feeds it.
    pub feed: ScratchFeed,
}

impl Catalog {
    /// Adds a pool, or changes the one of that name.
    pub fn put_pool(&mut self, pool: &Pool) -> Result<(), CatalogError> {
        let retention = pool.retention_ns.map(|ns| number("the retention", ns)).transpose()?;
        self.db.execute(
            "INSERT INTO pools VALUES (?1, ?2, ?3, ?4)
             ON CONFLICT DO UPDATE SET encryption = ?2, retention_ns = ?3, feed = ?4",
            params![pool.name, pool.encryption.map(Algorithm::code), retention, pool.feed == ScratchFeed::Allowed],
        )?;
        Ok(())
    }

    /// The pool of a name.
    pub fn pool(&self, name: &str) -> Result<Option<Pool>, CatalogError> {
        let mut statement = self.db.prepare_cached("SELECT * FROM pools WHERE name = ?1")?;
        Ok(statement.query_row([name], pool).optional()?)
    }

    /// All pools, by name.
    pub fn pools(&self) -> Result<Vec<Pool>, CatalogError> {
        let mut statement = self.db.prepare_cached("SELECT * FROM pools ORDER BY name")?;
        Ok(statement.query_map([], pool)?.collect::<Result<_, _>>()?)
    }

    /// Copies that are promised to a pool.
    pub fn copies_wanted_in(&self, pool: &str) -> Result<u64, CatalogError> {
        let count =
            "SELECT count(*) FROM wanted_copies JOIN objects USING (object) WHERE pool = ?1 AND expired_ns IS NULL";
        Ok(self.db.query_row(count, [pool], |row| row.get(0))?)
    }

    /// Removes a pool that has no volumes.
    pub fn remove_pool(&mut self, name: &str) -> Result<(), CatalogError> {
        let transaction = self.write()?;
        let count = "SELECT count(*) FROM volumes WHERE pool = ?1";
        let volumes: u64 = transaction.query_row(count, [name], |row| row.get(0))?;
        if volumes > 0 {
            return Err(CatalogError::PoolInUse { pool: name.to_owned(), volumes });
        }
        if transaction.execute("DELETE FROM pools WHERE name = ?1", [name])? == 0 {
            return Err(CatalogError::UnknownPool(name.to_owned()));
        }
        transaction.commit()?;
        Ok(())
    }
}

fn pool(row: &Row<'_>) -> rusqlite::Result<Pool> {
    let encryption = row.get::<_, Option<u8>>(1)?.map(|code| algorithm(1, code)).transpose()?;
    let feed = if row.get(3)? { ScratchFeed::Allowed } else { ScratchFeed::Denied };
    Ok(Pool { name: row.get(0)?, encryption, retention_ns: row.get(2)?, feed })
}

/// The algorithm of a code that stands in column `at`.
pub(crate) fn algorithm(at: usize, code: u8) -> rusqlite::Result<Algorithm> {
    Algorithm::from_code(code).ok_or_else(|| impossible(at, "an algorithm", code))
}

/// The error for a code that no version writes.
pub(crate) fn impossible(at: usize, what: &str, code: impl Display) -> rusqlite::Error {
    let reason = format!("{what} has the impossible value {code}");
    rusqlite::Error::FromSqlConversionFailure(at, Type::Integer, reason.into())
}
