//! Wanted copies: how many copies an object was promised, in which pools, and which of them are whole.
//!
//! What a copy holds stands in its extents; that a copy is wanted of which there is nothing yet stands nowhere but
//! here. A run says so before its first block. Recording a checkpoint says it again of the copy that the volume holds,
//! so that a rebuilt catalog knows every copy of which some volume is left; a copy of which none is left is unknown to
//! it, and no longer wanted.
//!
//! `whole` is a conclusion that whoever knows the extents draws and [`Catalog::copies_are_whole`] keeps, so that
//! looking for what is not whole costs as much as there is of it, however long the history is. Whatever may falsify it
//! takes it back: a stream that turns out to be longer, a volume that is labelled anew, damage that is found.
//!
//! A copy that was forgotten while its object stays is wanted no longer ([`Catalog::forget_copies`]), and `whole` is 2.
//! Its row keeps its number: what is left of it on volumes bears that, and no other copy may.

use std::collections::HashSet;

use capstan_format::ObjectId;

use crate::CatalogError;
use crate::catalog::{Catalog, number};
use crate::db::{Row, Transaction, params};

/// A copy that an object is wanted in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WantedCopy {
    /// The object.
    pub object: ObjectId,
    /// The copy's number, from 1.
    pub copy: u8,
    /// The pool whose volumes it belongs on.
    pub pool: String,
    /// How far it has come.
    pub state: CopyState,
}

/// How far a wanted copy has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CopyState {
    /// No volume of it says that the object is complete.
    Open,
    /// A volume of it says that the object is complete. Whether it holds all of the streams was not looked at: a run
    /// that was taken up again ends copies that lack what an earlier run could not write.
    Ended,
    /// It ended, and holds all of the streams.
    Whole,
}

/// What there was of a copy, and of damage to it, when somebody began to look at it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CopySeen {
    /// How many extents the copy had.
    pub extents: u64,
    /// How many ranges of damaged blocks were on record of its volumes.
    pub damages: u64,
}

macro_rules! wanted {
    ($rest:literal) => {
        concat!(
            "SELECT object, copy, pool, whole, EXISTS
             (SELECT 1 FROM copies WHERE copies.object = wanted_copies.object AND copies.copy = wanted_copies.copy
              AND ended = 1)
             FROM wanted_copies ",
            $rest
        )
    };
}

/// Copies of complete objects that are not known to be whole.
const LACKING: &str = wanted!("JOIN objects USING (object) WHERE whole = 0 AND complete = 1 AND expired_ns IS NULL");

const EXTENTS_OF_COPY: &str = "SELECT count(*) FROM extents JOIN copies
    ON copies.object = extents.object AND copies.volume = extents.volume
    WHERE extents.object = ?1 AND copies.copy = ?2";

const DAMAGES_OF_COPY: &str = "SELECT count(*) FROM damage JOIN copies ON copies.volume = damage.volume
    WHERE copies.object = ?1 AND copies.copy = ?2";

/// Promises to objects that were begun, never came to a checkpoint, and are nobody's now.
const FORGET: &str = "DELETE FROM wanted_copies WHERE whole = 0 AND object NOT IN (SELECT object FROM objects)
    AND object NOT IN (SELECT name FROM reservations WHERE kind = 'object')";

impl Catalog {
    /// Notes copies that objects are wanted in, before anything of them is written. Forgets those of objects of which
    /// nothing ever was; so whoever makes an object has reserved it before.
    ///
    /// # Errors
    /// The database cannot be written; no copy is promised then.
    pub fn promise_copies(&mut self, wanted: &[(ObjectId, u8, &str)]) -> Result<(), CatalogError> {
        let transaction = self.write()?;
        transaction.execute(FORGET, &[])?;
        for (object, copy, pool) in wanted {
            want(&transaction, *object, *copy, pool)?;
        }
        transaction.commit()
    }

    /// The copies that an object is wanted in, by number.
    ///
    /// # Errors
    /// The database cannot be read.
    pub fn wanted_copies(&self, object: ObjectId) -> Result<Vec<WantedCopy>, CatalogError> {
        self.db.query(wanted!("WHERE object = ?1 AND whole < 2 ORDER BY copy"), params![object.0], wanted_row)
    }

    /// The numbers that copies of an object were promised, with their pools; also those of copies that were forgotten.
    ///
    /// # Errors
    /// The database cannot be read.
    pub fn copy_numbers(&self, object: ObjectId) -> Result<Vec<(u8, String)>, CatalogError> {
        let query = "SELECT copy, pool FROM wanted_copies WHERE object = ?1 ORDER BY copy";
        self.db.query(query, params![object.0], |row| Ok((row.get(0)?, row.get(1)?)))
    }

    /// Takes over numbers of copies that were forgotten, as an older catalog of the same volumes has them. Perhaps no
    /// volume that is here says it.
    ///
    /// # Errors
    /// The database cannot be written; none is taken over then.
    pub fn keep_copy_numbers(&mut self, numbers: &[(ObjectId, u8, &str)]) -> Result<(), CatalogError> {
        let transaction = self.write()?;
        let keep = "INSERT INTO wanted_copies (object, copy, pool, whole) VALUES (?1, ?2, ?3, 2)
                    ON CONFLICT (object, copy) DO NOTHING";
        for (object, copy, pool) in numbers {
            transaction.execute(keep, params![object.0, copy, *pool])?;
        }
        transaction.commit()
    }

    /// Wanted copies of complete objects that are not known to be whole, the oldest object first.
    ///
    /// # Errors
    /// The database cannot be read.
    pub fn lacking_copies(&self) -> Result<Vec<WantedCopy>, CatalogError> {
        self.db.query(&format!("{LACKING} ORDER BY started_ns, object, copy"), &[], wanted_row)
    }

    /// Objects of which a pool has a copy that is known to be whole. One pass over all copies.
    ///
    /// # Errors
    /// The database cannot be read.
    pub fn whole_in_pool(&self, pool: &str) -> Result<HashSet<ObjectId>, CatalogError> {
        let query = "SELECT object FROM wanted_copies WHERE pool = ?1 AND whole = 1";
        let whole = self.db.query(query, params![pool], |row| row.get(0).map(ObjectId))?;
        Ok(whole.into_iter().collect())
    }

    /// Complete objects of which a copy is known to be whole and no key of its volumes is known to be destroyed, by id.
    /// One pass over all copies.
    ///
    /// # Errors
    /// The database cannot be read.
    pub fn readable_objects(&self) -> Result<Vec<ObjectId>, CatalogError> {
        let query = "SELECT DISTINCT object FROM
                         (SELECT object FROM wanted_copies JOIN copies USING (object, copy) JOIN volumes USING (volume)
                          WHERE whole = 1 GROUP BY object, copy HAVING count(key_destroyed_ns) = 0) AS readable
                     JOIN objects USING (object) WHERE complete = 1 AND expired_ns IS NULL ORDER BY object";
        self.db.query(query, &[], |row| row.get(0).map(ObjectId))
    }

    /// What there is of a copy, to be asked before it is looked at.
    ///
    /// # Errors
    /// The database cannot be read.
    pub fn copy_seen(&self, object: ObjectId, copy: u8) -> Result<CopySeen, CatalogError> {
        let count = |query| self.db.query_count(query, params![object.0, copy]);
        Ok(CopySeen { extents: count(EXTENTS_OF_COPY)?, damages: count(DAMAGES_OF_COPY)? })
    }

    /// Keeps that copies hold all of their objects, in one transaction: each with what there was of it when it was
    /// looked at. One that did not end, has lost or won extents since, or has a volume of which damage was found
    /// meanwhile, perhaps by another process, stays as it is.
    ///
    /// # Errors
    /// The database cannot be written, or a number of extents is above what it can keep; no copy is noted then.
    pub fn copies_are_whole(&mut self, copies: &[(ObjectId, u8, CopySeen)]) -> Result<(), CatalogError> {
        let transaction = self.write()?;
        for (object, copy, seen) in copies {
            let keep = format!(
                "UPDATE wanted_copies SET whole = 1 WHERE object = ?1 AND copy = ?2
                 AND EXISTS (SELECT 1 FROM copies WHERE object = ?1 AND copy = ?2 AND ended = 1)
                 AND ({EXTENTS_OF_COPY}) = ?3 AND ({DAMAGES_OF_COPY}) = ?4"
            );
            transaction.execute(
                &keep,
                params![
                    object.0,
                    copy,
                    number("a count of extents", seen.extents)?,
                    number("a count of damaged ranges", seen.damages)?
                ],
            )?;
        }
        transaction.commit()
    }
}

fn wanted_row(row: &Row<'_>) -> Result<WantedCopy, CatalogError> {
    let state = match (row.get::<bool>(3)?, row.get::<bool>(4)?) {
        (true, _) => CopyState::Whole,
        (false, true) => CopyState::Ended,
        (false, false) => CopyState::Open,
    };
    Ok(WantedCopy { object: ObjectId(row.get(0)?), copy: row.get(1)?, pool: row.get(2)?, state })
}

/// Notes a wanted copy. Should a copy's volumes be of several pools, the first by name counts, whatever order they come
/// in. One that was forgotten is wanted again.
pub(crate) fn want(db: &Transaction<'_>, object: ObjectId, copy: u8, pool: &str) -> Result<(), CatalogError> {
    let put = "INSERT INTO wanted_copies (object, copy, pool, whole) VALUES (?1, ?2, ?3, 0)
               ON CONFLICT (object, copy) DO UPDATE SET
               pool = CASE WHEN excluded.pool < wanted_copies.pool THEN excluded.pool ELSE wanted_copies.pool END,
               whole = CASE WHEN wanted_copies.whole = 2 THEN 0 ELSE wanted_copies.whole END
               WHERE excluded.pool < wanted_copies.pool OR wanted_copies.whole = 2";
    db.execute(put, params![object.0, copy, pool]).map(drop)
}

/// Takes back that copies of an object are whole: one of its streams is longer than was known.
pub(crate) fn look_again(db: &Transaction<'_>, object: ObjectId) -> Result<(), CatalogError> {
    db.execute("UPDATE wanted_copies SET whole = 0 WHERE object = ?1 AND whole = 1", params![object.0]).map(drop)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

    use super::*;
    use crate::place_in_tests::catalog_in;
    use crate::{Resource, Wish};

    /// A backup asks this at its end; history must not make it slower.
    #[test]
    fn what_lacks_something_is_found_by_an_index_of_nothing_else() {
        let dir = tempfile::tempdir().unwrap();
        let catalog = Catalog::open(dir.path()).unwrap();
        let db = catalog.db.sqlite().unwrap();
        for query in [LACKING, FORGET] {
            let mut statement = db.prepare(&format!("EXPLAIN QUERY PLAN {query}")).unwrap();
            let plan: Vec<String> =
                statement.query_map([], |row| row.get(3)).unwrap().collect::<Result<_, _>>().unwrap();
            assert!(plan[0].contains("INDEX lacking_copies"), "{plan:?}");
            assert!(!plan.iter().any(|step| step.starts_with("SCAN objects")), "{plan:?}");
        }
    }

    #[test]
    fn what_never_had_a_checkpoint_does_not_pile_up() {
        let dir = tempfile::tempdir().unwrap();
        let mut catalog = catalog_in(dir.path());
        let rows =
            |catalog: &Catalog| -> u64 { catalog.db.query_count("SELECT count(*) FROM wanted_copies", &[]).unwrap() };
        for run in 1..20u8 {
            let object = ObjectId([run; 16]);
            catalog.promise_copies(&[(object, 1, "main"), (object, 2, "main-copy2")]).unwrap();
            assert_eq!(rows(&catalog), 2);
        }
        // Another job has begun one.
        let begun = ObjectId([99; 16]);
        catalog.reserve(&Wish::alone(Resource::Object(begun)), "another", 0, &|_| false).unwrap();
        catalog.promise_copies(&[(begun, 1, "main")]).unwrap();
        catalog.promise_copies(&[(ObjectId([19; 16]), 1, "main"), (ObjectId([19; 16]), 2, "main-copy2")]).unwrap();
        assert_eq!(rows(&catalog), 3);
        let left = catalog.wanted_copies(ObjectId([19; 16])).unwrap();
        assert_eq!(left.len(), 2);
        assert_eq!((left[1].copy, left[1].pool.as_str(), left[1].state), (2, "main-copy2", CopyState::Open));
        assert_eq!(catalog.lacking_copies().unwrap(), [], "the object is not complete");
    }
}
