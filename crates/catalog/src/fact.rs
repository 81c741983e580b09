//! Single values that belong to this catalog and stand on no volume.

use crate::CatalogError;
use crate::catalog::Catalog;
use crate::db::params;

const PUT: &str =
    "INSERT INTO facts (name, value) VALUES (?1, ?2) ON CONFLICT (name) DO UPDATE SET value = excluded.value";

impl Catalog {
    /// A value by its name.
    ///
    /// # Errors
    /// The database cannot be read.
    pub fn fact(&self, name: &str) -> Result<Option<String>, CatalogError> {
        self.db.query_first("SELECT value FROM facts WHERE name = ?1", params![name], |row| row.get(0))
    }

    /// A value by its name; this one from now on, where there is none.
    ///
    /// # Errors
    /// The database cannot be read, or cannot be written where there is none.
    pub fn fact_or(&mut self, name: &str, value: &str) -> Result<String, CatalogError> {
        if let Some(found) = self.fact(name)? {
            return Ok(found);
        }
        let transaction = self.write()?;
        transaction.execute(
            "INSERT INTO facts (name, value) VALUES (?1, ?2) ON CONFLICT (name) DO NOTHING",
            params![name, value],
        )?;
        transaction.commit()?;
        Ok(self.fact(name)?.unwrap_or_default())
    }

    /// Changes a value in one transaction: nobody else changes it between. `change` gets what it is, and gives what it
    /// is to be; none leaves it as it is.
    ///
    /// # Errors
    /// The database cannot be written.
    pub fn change_fact(
        &mut self,
        name: &str,
        change: impl FnOnce(Option<String>) -> Option<String>,
    ) -> Result<(), CatalogError> {
        let transaction = self.write()?;
        let query = "SELECT value FROM facts WHERE name = ?1";
        let known = transaction.query_first(query, params![name], |row| row.get(0))?;
        if let Some(value) = change(known) {
            transaction.execute(PUT, params![name, value])?;
        }
        transaction.commit()
    }

    /// Keeps a value under a name.
    ///
    /// # Errors
    /// The database cannot be written.
    pub fn put_fact(&mut self, name: &str, value: &str) -> Result<(), CatalogError> {
        let transaction = self.write()?;
        transaction.execute(PUT, params![name, value])?;
        transaction.commit()
    }
}
