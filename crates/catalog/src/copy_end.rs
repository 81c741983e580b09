//! When copies end, and forgetting them while their objects stay.
//!
//! The record of an object on a volume says until when the object is kept, as whoever made that copy knew it: so a
//! further copy has a retention of its own, and a catalog that is made anew knows it. An object is kept as long as one
//! of its copies.
//!
//! Of a copy that is forgotten its number alone stays: what it had on volumes counts for nothing any more, and is
//! written over in its time. Another copy is whole; so nothing of the object is lost, and nothing is taken back.

use capstan_format::{ObjectId, Volser, VolumeId};

use crate::CatalogError;
use crate::catalog::Catalog;
use crate::db::{Row, params};
use crate::volume::VolumeState;

/// A wanted copy of which some volume has something, and until when it is kept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CopyEnd {
    /// The object.
    pub object: ObjectId,
    /// The copy's number, from 1.
    pub copy: u8,
    /// The pool whose volumes it belongs on.
    pub pool: String,
    /// Whether it is known to hold all of the object.
    pub holds_all: bool,
    /// Whether it does, no key of its volumes is known to be destroyed, and none of them is suspect.
    pub is_whole: bool,
    /// Until when its volumes say that it is kept, nanoseconds since 1970; 0 for ever.
    pub expires_ns: i64,
}

impl Catalog {
    /// Until when the copies of an object, or of all living ones, are kept; by object and copy. One pass over all
    /// copies.
    ///
    /// # Errors
    /// The database cannot be read.
    pub fn copy_ends(&self, object: Option<ObjectId>) -> Result<Vec<CopyEnd>, CatalogError> {
        let of_one = if object.is_some() { "AND wanted_copies.object = ?2" } else { "" };
        let query = format!(
            "SELECT wanted_copies.object, wanted_copies.copy, wanted_copies.pool,
                    whole = 1 AND count(key_destroyed_ns) = 0 AND count(CASE WHEN state = ?1 THEN 1 END) = 0,
                    CASE WHEN min(coalesce(copies.expires_ns, objects.expires_ns)) = 0 THEN 0
                         ELSE max(coalesce(copies.expires_ns, objects.expires_ns)) END,
                    whole
             FROM wanted_copies JOIN copies
                 ON copies.object = wanted_copies.object AND copies.copy = wanted_copies.copy
             JOIN volumes ON volumes.volume = copies.volume
             JOIN objects ON objects.object = wanted_copies.object
             WHERE expired_ns IS NULL {of_one}
             GROUP BY wanted_copies.object, wanted_copies.copy, wanted_copies.pool, whole
             ORDER BY wanted_copies.object, wanted_copies.copy"
        );
        let suspect = VolumeState::Suspect.code();
        let row = |row: &Row<'_>| {
            let (object, copy, pool) = (ObjectId(row.get(0)?), row.get(1)?, row.get(2)?);
            let holds_all = row.get(5)?;
            Ok(CopyEnd { object, copy, pool, holds_all, is_whole: row.get(3)?, expires_ns: row.get(4)? })
        };
        match object {
            Some(object) => self.db.query(&query, params![suspect, object.0], row),
            None => self.db.query(&query, params![suspect], row),
        }
    }

    /// Forgets copies of living objects, in one transaction, as far as another copy is known to be whole; gives those.
    ///
    /// # Errors
    /// The database cannot be written; none is forgotten then.
    pub fn forget_copies(&mut self, copies: &[(ObjectId, u8)]) -> Result<Vec<(ObjectId, u8)>, CatalogError> {
        let transaction = self.write()?;
        let mut forgotten = Vec::new();
        for (object, copy) in copies {
            let other = "SELECT 1 FROM wanted_copies JOIN objects USING (object)
                         WHERE object = ?1 AND copy <> ?2 AND whole = 1 AND complete = 1 AND expired_ns IS NULL";
            if !transaction.exists(other, params![object.0, copy])? {
                continue;
            }
            for table in ["extents", "verifications"] {
                let of_copy = format!(
                    "DELETE FROM {table} WHERE object = ?1
                     AND volume IN (SELECT volume FROM copies WHERE object = ?1 AND copy = ?2)"
                );
                transaction.execute(&of_copy, params![object.0, copy])?;
            }
            transaction.execute("DELETE FROM copies WHERE object = ?1 AND copy = ?2", params![object.0, copy])?;
            let number_stays = "UPDATE wanted_copies SET whole = 2 WHERE object = ?1 AND copy = ?2";
            transaction.execute(number_stays, params![object.0, copy])?;
            // The object is kept as long as what is left of it.
            let end = "UPDATE objects SET expires_ns =
                       (SELECT CASE WHEN min(coalesce(copies.expires_ns, 0)) = 0 THEN 0 ELSE max(copies.expires_ns) END
                        FROM copies WHERE copies.object = ?1)
                       WHERE object = ?1";
            transaction.execute(end, params![object.0])?;
            forgotten.push((*object, *copy));
        }
        transaction.commit()?;
        Ok(forgotten)
    }

    /// Forgets what a life of a volume has of copies, in one transaction, as far as another volume says that the copy
    /// is complete, which is not set aside and whose key is not destroyed; gives those. Whoever asks has seen that the
    /// other volumes hold all of them.
    ///
    /// # Errors
    /// The database cannot be written; all stay then.
    pub fn leave_volume(
        &mut self,
        life: VolumeId,
        copies: &[(ObjectId, u8)],
    ) -> Result<Vec<(ObjectId, u8)>, CatalogError> {
        let transaction = self.write()?;
        let life = life.0.cast_signed();
        let mut left = Vec::new();
        for (object, copy) in copies {
            let elsewhere = "SELECT 1 FROM copies JOIN volumes USING (volume)
                WHERE object = ?1 AND copy = ?2 AND volume <> ?3 AND ended = 1
                AND state <> ?4 AND key_destroyed_ns IS NULL";
            let suspect = VolumeState::Suspect.code();
            if !transaction.exists(elsewhere, params![object.0, copy, life, suspect])? {
                continue;
            }
            for table in ["extents", "verifications", "copies"] {
                let of_volume = format!("DELETE FROM {table} WHERE object = ?1 AND volume = ?2");
                transaction.execute(&of_volume, params![object.0, life])?;
            }
            left.push((*object, *copy));
        }
        transaction.commit()?;
        Ok(left)
    }

    /// What volumes hold of living objects: each object with its copy, by volume.
    ///
    /// # Errors
    /// The database cannot be read.
    pub fn copies_on(&self, volser: &Volser) -> Result<Vec<(ObjectId, u8)>, CatalogError> {
        let query = "SELECT object, copy FROM copies JOIN volumes USING (volume) JOIN objects USING (object)
                     WHERE volser = ?1 AND expired_ns IS NULL ORDER BY object";
        self.db.query(query, params![volser.as_str()], |row| Ok((ObjectId(row.get(0)?), row.get(1)?)))
    }
}
