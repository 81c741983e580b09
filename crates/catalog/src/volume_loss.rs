//! The end of a volume's life: it is labelled anew, erased, lost or destroyed, and what stood on it is gone.

use capstan_format::{ObjectId, Volser, VolumeId};

use crate::CatalogError;
use crate::catalog::Catalog;
use crate::db::{Row, Transaction, params};
use crate::expire::{purge, remove_indexes};
use crate::volume::{Volume, find, upsert};

/// An object that lost a copy, or part of one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LostCopy {
    /// The object.
    pub object: ObjectId,
    /// The copy.
    pub copy: u8,
    /// Other copies of it that are still on some volume.
    pub copies_left: u32,
}

/// What becomes of the copies that a volume held, once it is gone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Promise {
    /// They are wanted still, and are made again from the copies that are left.
    Keep,
    /// Those of which it was the last volume are given up; the others are mended.
    Drop,
}

impl Catalog {
    /// Forgets the life that a volume had, with its sessions and extents, and records it as it is now: labelled anew,
    /// or erased. Says which objects lost a copy by that; what has no copy left can only be expired.
    ///
    /// # Errors
    /// The database cannot be written, or index files that nobody needs any more cannot be removed; the new life is on
    /// record in the second case.
    pub fn relabelled(&mut self, now: &Volume, promise: Promise) -> Result<Vec<LostCopy>, CatalogError> {
        let dir = self.index_dir();
        let transaction = self.write()?;
        let before = find(&transaction, &now.volser)?.and_then(|volume| volume.id);
        let (mut lost, mut purged) = (Vec::new(), Vec::new());
        if let Some(before) = before.filter(|&before| now.id != Some(before)) {
            (lost, purged) = lose_copies(&transaction, before, promise)?;
        }
        upsert(&transaction, now)?;
        transaction.commit()?;
        remove_indexes(&dir, &purged)?;
        Ok(lost)
    }

    /// Forgets a volume altogether: it is lost or destroyed. Says which objects lost a copy by that.
    ///
    /// # Errors
    /// [`CatalogError::UnknownVolume`] if there is no such volume; else as [`Catalog::relabelled`].
    pub fn remove_volume(&mut self, volser: &Volser, promise: Promise) -> Result<Vec<LostCopy>, CatalogError> {
        let dir = self.index_dir();
        let transaction = self.write()?;
        let volume = find(&transaction, volser)?.ok_or_else(|| CatalogError::UnknownVolume(volser.clone()))?;
        let (lost, purged) = volume.id.map_or(Ok(Default::default()), |id| lose_copies(&transaction, id, promise))?;
        for table in ["volumes", "sent_volumes"] {
            transaction.execute(&format!("DELETE FROM {table} WHERE volser = ?1"), params![volser.as_str()])?;
        }
        transaction.commit()?;
        remove_indexes(&dir, &purged)?;
        Ok(lost)
    }
}

/// What went with a life of a volume: copies of living objects; and what was kept of expired ones, with their index
/// generations.
type Gone = (Vec<LostCopy>, Vec<(ObjectId, u64)>);

/// Deletes all that stood on a life of a volume. Expired objects of which it held the last copy, or a part, cannot be
/// taken back.
fn lose_copies(db: &Transaction<'_>, life: VolumeId, promise: Promise) -> Result<Gone, CatalogError> {
    let life = life.0.cast_signed();
    let query = "SELECT object, copy,
                        (SELECT count(DISTINCT others.copy) FROM copies AS others
                         WHERE others.object = copies.object AND others.copy <> copies.copy)
                 FROM copies WHERE volume = ?1 ORDER BY object";
    let lost =
        |row: &Row<'_>| Ok(LostCopy { object: ObjectId(row.get(0)?), copy: row.get(1)?, copies_left: row.get(2)? });
    let mut lost: Vec<LostCopy> = db.query(query, params![life], lost)?;
    for table in ["extents", "copies", "checkpoints", "sessions", "damage", "verifications"] {
        db.execute(&format!("DELETE FROM {table} WHERE volume = ?1"), params![life])?;
    }
    lose(db, &lost, promise)?;
    let expired = "SELECT object FROM objects WHERE expired_ns IS NOT NULL AND object = ?1";
    let mut given_up = Vec::new();
    for copy in &lost {
        if db.exists(expired, params![copy.object.0])? {
            given_up.push(*copy);
        }
    }
    lost.retain(|copy| !given_up.contains(copy));
    let unkept: Vec<_> = given_up.iter().filter(|copy| copy.copies_left == 0).map(|copy| copy.object).collect();
    Ok((lost, purge(db, &unkept)?))
}

/// Takes back what stood on a volume that is gone: a copy that has other volumes is to be mended; one that has none is
/// to be made again, or is given up with its last volume.
fn lose(db: &Transaction<'_>, lost: &[LostCopy], promise: Promise) -> Result<(), CatalogError> {
    for LostCopy { object, copy, copies_left } in lost {
        let copy_left = "SELECT 1 FROM copies WHERE object = ?1 AND copy = ?2";
        let again = promise == Promise::Keep && *copies_left > 0;
        if again || db.exists(copy_left, params![object.0, copy])? {
            // What has no bytes, such as the note that a path is gone, may have stood on the lost volume alone; so the
            // copy is ended anew, with all such notes.
            db.execute("UPDATE copies SET ended = 0 WHERE object = ?1 AND copy = ?2", params![object.0, copy])?;
            let doubt = "UPDATE wanted_copies SET whole = 0 WHERE object = ?1 AND copy = ?2";
            db.execute(doubt, params![object.0, copy])?;
        } else if *copies_left > 0 {
            db.execute("DELETE FROM wanted_copies WHERE object = ?1 AND copy = ?2", params![object.0, copy])?;
        } else {
            // Nothing is left that a further copy could be made from.
            db.execute("DELETE FROM wanted_copies WHERE object = ?1", params![object.0])?;
        }
    }
    Ok(())
}
