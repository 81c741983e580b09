//! An index made anew from the catalog parts of its object alone.

use capstan_format::{ObjectId, Volser, VolumeId};

use crate::catalog::Catalog;
use crate::checkpoint::{pack_entries, record_piece};
use crate::db::params;
use crate::fragments;
use crate::object::{ObjectStatus, find};
use crate::seal::SealLock;
use crate::volume::volser;
use crate::{CatalogError, Counts};

/// The checkpoints of a volume whose catalog parts may have entries of an object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PartPlaces {
    /// Which copy of the object the volume holds.
    pub copy: u8,
    /// The volume.
    pub volser: Volser,
    /// The life of it that is meant.
    pub volume: VolumeId,
    /// Where the checkpoints stand.
    pub lbns: Vec<u64>,
}

impl Catalog {
    /// Where the entries of an object stand, a volume each, by copies.
    ///
    /// # Errors
    /// The database cannot be read.
    pub fn places_of_parts(&self, object: ObjectId) -> Result<Vec<PartPlaces>, CatalogError> {
        let query = "SELECT copy, volser, v.volume, lbn FROM copies c JOIN volumes v USING (volume) JOIN checkpoints k USING (volume)
             WHERE c.object = ?1
             AND k.lbn > (SELECT coalesce(min(first_lbn), 0) FROM extents e WHERE e.object = ?1 AND e.volume = v.volume)
             AND (k.session IN (SELECT session FROM extents e WHERE e.object = ?1 AND e.volume = v.volume)
                  OR NOT EXISTS (SELECT 1 FROM extents e WHERE e.object = ?1 AND e.volume = v.volume))
             ORDER BY copy, first_ns, volser, lbn";
        let rows: Vec<(u8, Volser, i64, u64)> = self
            .db
            .query(query, params![object.0], |row| Ok((row.get(0)?, volser(row, 1)?, row.get(2)?, row.get(3)?)))?;
        let mut places: Vec<PartPlaces> = Vec::new();
        for (copy, volser, volume, lbn) in rows {
            let volume = VolumeId(volume.cast_unsigned());
            match places.last_mut().filter(|last| last.copy == copy && last.volser == volser) {
                Some(last) => last.lbns.push(lbn),
                None => places.push(PartPlaces { copy, volser, volume, lbns: vec![lbn] }),
            }
        }
        Ok(places)
    }

    /// Makes the index of a complete object from all runs of entries that were found for it, in one step: whatever the
    /// old one was, the new one is these entries. Gives what the old one held by the record, and what the new one
    /// holds.
    ///
    /// # Errors
    /// [`CatalogError::UnknownObject`] and [`CatalogError::NotComplete`] if there is no such complete object; a run of
    /// entries cannot be decoded; else as [`Catalog::seal_index`].
    pub fn index_anew(&mut self, object: ObjectId, runs: &[Vec<u8>]) -> Result<(Option<Counts>, Counts), CatalogError> {
        let record = find(&self.db, object)?.ok_or(CatalogError::UnknownObject(object))?;
        if record.status != ObjectStatus::Complete {
            return Err(CatalogError::NotComplete(object));
        }
        let damaged = |reason| CatalogError::corrupt(format!("a list of files of object {object}"), reason);
        let pack = |run: &Vec<u8>| pack_entries(object, &fragments::apart(run).map_err(damaged)?.0);
        let pieces = runs.iter().map(pack).collect::<Result<Vec<_>, CatalogError>>()?;
        // Whoever seals it takes away the pieces that it has read, by their numbers: those of these are others.
        let lock = SealLock::take(&self.index_dir(), object)?;
        let transaction = self.write()?;
        transaction.execute("DELETE FROM pieces WHERE object = ?1", params![object.0])?;
        for piece in pieces.iter().flatten() {
            record_piece(&transaction, piece)?;
        }
        // Nothing of the old one is asked any more; a sealing that is interrupted here is taken up by the next.
        transaction.execute(
            "UPDATE objects SET index_len = NULL, index_crcs = NULL, entries = NULL WHERE object = ?1",
            params![object.0],
        )?;
        transaction.commit()?;
        drop(lock);
        Ok((record.counts, self.seal_index(object)?))
    }
}
