//! Single values that belong to this catalog and stand on no volume.

use rusqlite::{OptionalExtension, params};

use crate::CatalogError;
use crate::catalog::Catalog;

impl Catalog {
    /// A value by its name.
    pub fn fact(&self, name: &str) -> Result<Option<String>, CatalogError> {
        let mut statement = self.db.prepare_cached("SELECT value FROM facts WHERE name = ?1")?;
        Ok(statement.query_row([name], |row| row.get(0)).optional()?)
    }

    /// A value by its name; this one from now on, where there is none.
    ///
    /// # Errors
    /// The database cannot be read, or cannot be written where there is none.
    pub fn fact_or(&mut self, name: &str, value: &str) -> Result<String, CatalogError> {
        if let Some(found) = self.fact(name)? {
            return Ok(found);
        }
        self.db.execute(
            "INSERT INTO facts (name, value) VALUES (?1, ?2) ON CONFLICT (name) DO NOTHING",
            params![name, value],
        )?;
        Ok(self.fact(name)?.unwrap_or_default())
    }

    /// Keeps a value under a name.
    pub fn put_fact(&mut self, name: &str, value: &str) -> Result<(), CatalogError> {
        self.db.execute("INSERT OR REPLACE INTO facts VALUES (?1, ?2)", params![name, value])?;
        Ok(())
    }
}
