//! Giving objects up, and taking them back.
//!
//! An object that is given up is marked, and in no list any more; its data stay on the volumes, and what the catalog
//! knows of them stays, too, until one of its volumes is labelled anew. Until then a mistake costs nothing.

use std::path::Path;

use capstan_format::ObjectId;

use crate::CatalogError;
use crate::catalog::Catalog;
use crate::db::{Transaction, params};
use crate::object::{ObjectStatus, dependents, find};
use crate::seal::remove_generations;
use crate::timeline::{end_of_place, put_confirmation};

/// A source of which an operator said that it is gone, and that was not backed up since.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GoneSource {
    /// The source.
    pub source: Vec<u8>,
    /// The machine it was on.
    pub client: String,
}

impl Catalog {
    /// Gives an object up. Does nothing a second time.
    ///
    /// An object that a living one stands on is refused with [`CatalogError::BaseOfLiving`].
    ///
    /// # Errors
    /// [`CatalogError::UnknownObject`] if there is no such object; [`CatalogError::BaseOfLiving`]; else the database
    /// cannot be written.
    pub fn expire(&mut self, object: ObjectId, now_ns: i64) -> Result<(), CatalogError> {
        let transaction = self.write()?;
        let record = find(&transaction, object)?.ok_or(CatalogError::UnknownObject(object))?;
        let dependents = dependents(&transaction, object)?;
        if record.status != ObjectStatus::Expired && !dependents.is_empty() {
            return Err(CatalogError::BaseOfLiving { object, dependents });
        }
        let mark = "UPDATE objects SET expired_ns = coalesce(expired_ns, ?2) WHERE object = ?1";
        transaction.execute(mark, params![object.0, now_ns])?;
        transaction.commit()
    }

    /// Takes back that objects were given up, in one transaction: all or none. What is left of each on volumes is the
    /// caller's affair.
    ///
    /// # Errors
    /// The database cannot be written.
    pub fn unexpire(&mut self, objects: &[ObjectId]) -> Result<(), CatalogError> {
        let transaction = self.write()?;
        for object in objects {
            transaction.execute("UPDATE objects SET expired_ns = NULL WHERE object = ?1", params![object.0])?;
        }
        transaction.commit()
    }

    /// What a run that gives objects up marks them with: its time, or one more than the last run's where the clock did
    /// not go on from there.
    ///
    /// # Errors
    /// The database cannot be read.
    pub fn expiry_mark(&self, now_ns: i64) -> Result<i64, CatalogError> {
        let last: Option<Option<i64>> =
            self.db.query_first("SELECT max(expired_ns) FROM objects", &[], |row| row.get(0))?;
        Ok(last.flatten().map_or(now_ns, |last| now_ns.max(last.saturating_add(1))))
    }

    /// The objects that the last run gave up.
    ///
    /// # Errors
    /// The database cannot be read.
    pub fn last_expired(&self) -> Result<Vec<ObjectId>, CatalogError> {
        let query =
            "SELECT object FROM objects WHERE expired_ns = (SELECT max(expired_ns) FROM objects) ORDER BY object";
        self.db.query(query, &[], |row| row.get(0).map(ObjectId))
    }

    /// Notes that a source is gone: its last object needs no keeping. A backup of it takes that back.
    ///
    /// # Errors
    /// The database cannot be written.
    pub fn source_is_gone(&mut self, gone: &GoneSource) -> Result<(), CatalogError> {
        let transaction = self.write()?;
        let last = "SELECT object FROM objects WHERE source = ?1 AND client = ?2 ORDER BY object DESC LIMIT 1";
        let last = transaction.query_first(last, params![gone.source, gone.client], |row| row.get(0).map(ObjectId))?;
        if let Some(last) = last {
            transaction.execute(
                "INSERT INTO gone_sources (source, client, after) VALUES (?1, ?2, ?3)
                 ON CONFLICT (source, client) DO UPDATE SET after = excluded.after",
                params![gone.source, gone.client, end_of_place(last)],
            )?;
        }
        transaction.commit()
    }

    /// Takes over what operators said from an older catalog of the same volumes: no volume knows it.
    ///
    /// # Errors
    /// The old catalog cannot be read, or this one cannot be written; nothing is taken over then.
    pub fn keep_words(&mut self, old: &Self) -> Result<(), CatalogError> {
        let confirmed: Vec<(i64, [u8; 16])> =
            old.db.query("SELECT at_ns, after FROM clock_confirmed ORDER BY confirmation", &[], |row| {
                Ok((row.get(0)?, row.get(1)?))
            })?;
        let gone: Vec<(Vec<u8>, String, [u8; 16])> =
            old.db.query("SELECT source, client, after FROM gone_sources", &[], |row| {
                Ok((row.get(0)?, row.get(1)?, row.get(2)?))
            })?;
        let transaction = self.write()?;
        for (at_ns, after) in confirmed {
            put_confirmation(&transaction, at_ns, after)?;
        }
        for (source, client, after) in gone {
            transaction.execute(
                "INSERT INTO gone_sources (source, client, after) VALUES (?1, ?2, ?3)
                 ON CONFLICT (source, client) DO NOTHING",
                params![source, client, after],
            )?;
        }
        transaction.commit()
    }

    /// Sources that are said to be gone.
    ///
    /// # Errors
    /// The database cannot be read.
    pub fn gone_sources(&self) -> Result<Vec<GoneSource>, CatalogError> {
        let query = "SELECT source, client FROM gone_sources AS gone WHERE NOT EXISTS
                     (SELECT 1 FROM objects WHERE source = gone.source AND client = gone.client AND object > gone.after)
                     ORDER BY source, client";
        self.db.query(query, &[], |row| Ok(GoneSource { source: row.get(0)?, client: row.get(1)? }))
    }
}

/// Forgets what the catalog kept of objects that were given up, where a volume of theirs is gone: they cannot be taken
/// back. Their index files are removed by [`remove_indexes`] once that is on disk.
pub(crate) fn purge(db: &Transaction<'_>, objects: &[ObjectId]) -> Result<Vec<(ObjectId, u64)>, CatalogError> {
    let mut generations = Vec::new();
    for object in objects {
        for table in ["extents", "copies", "wanted_copies", "parts", "pieces", "fragments", "verifications", "left_out"]
        {
            db.execute(&format!("DELETE FROM {table} WHERE object = ?1"), params![object.0])?;
        }
        let forget = "UPDATE objects SET index_len = NULL, index_crcs = NULL WHERE object = ?1 RETURNING generation";
        let generation = db.query_first(forget, params![object.0], |row| row.get(0))?;
        generations.extend(generation.map(|generation| (*object, generation)));
    }
    Ok(generations)
}

/// Removes the index files of objects that were purged. A crash before leaves files that nothing names.
pub(crate) fn remove_indexes(dir: &Path, purged: &[(ObjectId, u64)]) -> Result<(), CatalogError> {
    purged.iter().try_for_each(|(object, generation)| remove_generations(dir, *object, *generation))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

    use super::*;
    use crate::place_in_tests::catalog_in;

    fn record(catalog: &mut Catalog, number: u8, source: &str) {
        let row = "INSERT INTO objects (object, source, client, policy, kind, complete, chunk_len, started_ns, ended_ns, expires_ns)
                   VALUES (?1, ?2, 'tern', '', 1, 1, 1, 1, 2, 0)";
        let transaction = catalog.write().unwrap();
        transaction.execute(row, params![[number; 16], source.as_bytes()]).unwrap();
        transaction.commit().unwrap();
    }

    #[test]
    fn a_source_is_gone_until_it_is_backed_up_again() {
        let dir = tempfile::tempdir().unwrap();
        let mut catalog = catalog_in(dir.path());
        let gone = GoneSource { source: b"/old".to_vec(), client: "tern".to_owned() };
        catalog.source_is_gone(&gone).unwrap();
        assert_eq!(catalog.gone_sources().unwrap(), [], "there never was one");
        record(&mut catalog, 1, "/old");
        catalog.source_is_gone(&gone).unwrap();
        record(&mut catalog, 2, "/srv");
        assert_eq!(catalog.gone_sources().unwrap(), std::slice::from_ref(&gone));
        record(&mut catalog, 3, "/old");
        assert_eq!(catalog.gone_sources().unwrap(), []);
        catalog.source_is_gone(&gone).unwrap();
        catalog.confirm_clock(7).unwrap();
        // A catalog that is made anew takes the word over, and finds the objects later.
        let anew = tempfile::tempdir().unwrap();
        let mut anew = catalog_in(anew.path());
        anew.keep_words(&catalog).unwrap();
        assert_eq!(anew.gone_sources().unwrap(), [gone]);
        assert_eq!(anew.timeline(8).unwrap().reading(), catalog.timeline(8).unwrap().reading());
        record(&mut anew, 4, "/old");
        assert_eq!(anew.gone_sources().unwrap(), []);
    }

    #[test]
    fn the_last_run_is_the_last_one_whatever_its_clock_said() {
        let dir = tempfile::tempdir().unwrap();
        let mut catalog = catalog_in(dir.path());
        for (number, now_ns) in [(1, 5_000), (2, 70), (3, 6_000)] {
            record(&mut catalog, number, "/srv");
            let mark_ns = catalog.expiry_mark(now_ns).unwrap();
            catalog.expire(ObjectId([number; 16]), mark_ns).unwrap();
            assert_eq!(catalog.last_expired().unwrap(), [ObjectId([number; 16])]);
        }
        catalog.unexpire(&catalog.last_expired().unwrap()).unwrap();
        assert_eq!(catalog.last_expired().unwrap(), [ObjectId([2; 16])], "and then the one before it");
    }
}
