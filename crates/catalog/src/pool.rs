//! Pools: which volumes may hold what, and for how long.

use capstan_format::Algorithm;

use crate::CatalogError;
use crate::catalog::{Catalog, number};
use crate::db::{Row, impossible, params};

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

const POOL: &str = "SELECT name, encryption, retention_ns, feed FROM pools";

impl Catalog {
    /// Adds a pool, or changes the one of that name.
    ///
    /// # Errors
    /// The database cannot be written, or [`CatalogError::TooLarge`]: the retention is above what it can keep.
    pub fn put_pool(&mut self, pool: &Pool) -> Result<(), CatalogError> {
        let retention = pool.retention_ns.map(|ns| number("the retention", ns)).transpose()?;
        let transaction = self.write()?;
        transaction.execute(
            "INSERT INTO pools (name, encryption, retention_ns, feed) VALUES (?1, ?2, ?3, ?4)
             ON CONFLICT (name) DO UPDATE SET encryption = excluded.encryption, retention_ns = excluded.retention_ns,
             feed = excluded.feed",
            params![pool.name, pool.encryption.map(Algorithm::code), retention, pool.feed == ScratchFeed::Allowed],
        )?;
        transaction.commit()
    }

    /// The pool of a name.
    ///
    /// # Errors
    /// The database cannot be read.
    pub fn pool(&self, name: &str) -> Result<Option<Pool>, CatalogError> {
        self.db.query_first(&format!("{POOL} WHERE name = ?1"), params![name], pool)
    }

    /// All pools, by name.
    ///
    /// # Errors
    /// The database cannot be read.
    pub fn pools(&self) -> Result<Vec<Pool>, CatalogError> {
        self.db.query(&format!("{POOL} ORDER BY name"), &[], pool)
    }

    /// Copies that are promised to a pool.
    ///
    /// # Errors
    /// The database cannot be read.
    pub fn copies_wanted_in(&self, pool: &str) -> Result<u64, CatalogError> {
        let count = "SELECT count(*) FROM wanted_copies JOIN objects USING (object)
             WHERE pool = ?1 AND whole < 2 AND expired_ns IS NULL";
        self.db.query_count(count, params![pool])
    }

    /// Removes a pool that has no volumes.
    ///
    /// # Errors
    /// [`CatalogError::PoolInUse`] if it has volumes; [`CatalogError::UnknownPool`] if there is no such pool; else the
    /// database cannot be written.
    pub fn remove_pool(&mut self, name: &str) -> Result<(), CatalogError> {
        let transaction = self.write()?;
        let count = "SELECT count(*) FROM volumes WHERE pool = ?1";
        let volumes = transaction.query_count(count, params![name])?;
        if volumes > 0 {
            return Err(CatalogError::PoolInUse { pool: name.to_owned(), volumes });
        }
        if transaction.execute("DELETE FROM pools WHERE name = ?1", params![name])? == 0 {
            return Err(CatalogError::UnknownPool(name.to_owned()));
        }
        transaction.commit()
    }
}

fn pool(row: &Row<'_>) -> Result<Pool, CatalogError> {
    let encryption = row.get::<Option<u8>>(1)?.map(algorithm).transpose()?;
    let feed = if row.get(3)? { ScratchFeed::Allowed } else { ScratchFeed::Denied };
    Ok(Pool { name: row.get(0)?, encryption, retention_ns: row.get(2)?, feed })
}

/// The algorithm of a code.
pub(crate) fn algorithm(code: u8) -> Result<Algorithm, CatalogError> {
    Algorithm::from_code(code).ok_or_else(|| impossible("an algorithm", code))
}
