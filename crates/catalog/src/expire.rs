//! Giving objects up.

use capstan_format::ObjectId;
use rusqlite::params;

use crate::CatalogError;
use crate::catalog::Catalog;
use crate::object::{ObjectStatus, dependents, find};
use crate::seal::remove_generations;

impl Catalog {
    /// Gives an object up: its row stays, marked; its entries, extents and index are gone. Does nothing a second time.
    ///
    /// An object that a living one stands on is refused with [`CatalogError::BaseOfLiving`]. The data stays on the
    /// volumes until they are labelled anew.
    pub fn expire(&mut self, object: ObjectId, now_ns: i64) -> Result<(), CatalogError> {
        let dir = self.index_dir();
        let transaction = self.write()?;
        let record = find(&transaction, object)?.ok_or(CatalogError::UnknownObject(object))?;
        let dependents = dependents(&transaction, object)?;
        if record.status != ObjectStatus::Expired && !dependents.is_empty() {
            return Err(CatalogError::BaseOfLiving { object, dependents });
        }
        for table in ["extents", "copies", "wanted_copies", "parts", "pieces", "verifications"] {
            transaction.execute(&format!("DELETE FROM {table} WHERE object = ?1"), [object.0])?;
        }
        transaction.execute(
            "UPDATE objects SET expired_ns = coalesce(expired_ns, ?2), index_len = NULL, index_crcs = NULL
             WHERE object = ?1",
            params![object.0, now_ns],
        )?;
        let query = "SELECT generation FROM objects WHERE object = ?1";
        let generation = transaction.query_row(query, [object.0], |row| row.get(0))?;
        transaction.commit()?;
        // Only now: a crash leaves a file too many, which a second call removes, and never a row without its file.
        remove_generations(&dir, object, generation)
    }
}
