//! Volumes that may hold more than the catalog knows: a session has opened them to write, and is not known to have
//! closed them.
//!
//! A session that is killed may have flushed a checkpoint that it could not record any more. So that whoever goes on
//! need not mount every volume there is, each is noted before a session writes on it, and the note goes when its
//! session was closed and recorded.

use capstan_format::VolumeId;

use crate::CatalogError;
use crate::catalog::{Catalog, number};
use crate::db::params;

impl Catalog {
    /// Notes that a session is about to write on this life of a volume, all of which is recorded, under a reservation.
    /// Notes of lives that are gone are forgotten.
    ///
    /// # Errors
    /// The database cannot be written.
    pub fn volume_opened(&mut self, life: VolumeId, generation: u64) -> Result<(), CatalogError> {
        let transaction = self.write()?;
        transaction.execute(
            "DELETE FROM opened_volumes WHERE volume NOT IN (SELECT volume FROM volumes WHERE volume IS NOT NULL)",
            &[],
        )?;
        transaction.execute(
            "INSERT INTO opened_volumes (volume, generation) VALUES (?1, ?2)
             ON CONFLICT (volume) DO UPDATE SET generation = excluded.generation",
            params![life.0.cast_signed(), number("a generation", generation)?],
        )?;
        transaction.commit()
    }

    /// Notes that all is recorded that was written on this life of a volume under a reservation; whether it was noted
    /// under that. One that was taken over is opened by somebody else, who may be writing.
    ///
    /// # Errors
    /// The database cannot be written.
    pub fn volume_closed_under(&mut self, life: VolumeId, generation: u64) -> Result<bool, CatalogError> {
        let transaction = self.write()?;
        let close = "DELETE FROM opened_volumes WHERE volume = ?1 AND generation = ?2";
        let generation = number("a generation", generation)?;
        let closed = transaction.execute(close, params![life.0.cast_signed(), generation])?;
        transaction.commit()?;
        Ok(closed > 0)
    }

    /// Notes that all that this life of a volume holds is recorded.
    ///
    /// # Errors
    /// The database cannot be written.
    pub fn volume_closed(&mut self, life: VolumeId) -> Result<(), CatalogError> {
        let transaction = self.write()?;
        transaction.execute("DELETE FROM opened_volumes WHERE volume = ?1", params![life.0.cast_signed()])?;
        transaction.commit()
    }

    /// Under which reservation this life of a volume was opened last, if it was not closed.
    ///
    /// # Errors
    /// The database cannot be read.
    pub fn opened_under(&self, life: VolumeId) -> Result<Option<u64>, CatalogError> {
        let query = "SELECT generation FROM opened_volumes WHERE volume = ?1";
        self.db.query_first(query, params![life.0.cast_signed()], |row| row.get(0))
    }

    /// Lives of volumes that sessions have opened and not closed.
    ///
    /// # Errors
    /// The database cannot be read.
    pub fn opened_volumes(&self) -> Result<Vec<VolumeId>, CatalogError> {
        self.lives("SELECT volume FROM opened_volumes")
    }

    /// Lives of volumes that hold something of an object that is not complete.
    ///
    /// # Errors
    /// The database cannot be read.
    pub fn volumes_of_open_objects(&self) -> Result<Vec<VolumeId>, CatalogError> {
        self.lives("SELECT DISTINCT volume FROM copies JOIN objects USING (object) WHERE complete = 0")
    }

    fn lives(&self, query: &str) -> Result<Vec<VolumeId>, CatalogError> {
        self.db.query(query, &[], |row| Ok(VolumeId(row.get::<i64>(0)?.cast_unsigned())))
    }
}
