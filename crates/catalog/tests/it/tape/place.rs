//! Catalogs in the database under test.

use std::path::Path;

use capstan_catalog::{Catalog, Database};

/// The catalog of a folder. One that is not there yet is made in the database that `CAPSTAN_POSTGRES` names, else in
/// SQLite.
pub fn catalog_in(dir: &Path) -> Catalog {
    if Catalog::exists(dir) {
        return Catalog::open(dir).unwrap();
    }
    let database = std::env::var("CAPSTAN_POSTGRES").map_or(Database::Sqlite, |url| Database::Postgres { url });
    Catalog::create(dir, &database).unwrap()
}
