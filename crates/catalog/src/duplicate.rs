//! A copy of the catalog, made while others use it.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fs::{self, DirBuilder, File};
use std::io::ErrorKind;
use std::os::unix::fs::DirBuilderExt;
use std::path::Path;

use crate::db::Database;
use crate::{Catalog, CatalogError};

/// What was copied of a catalog.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct CatalogCopy {
    /// Files of indexes that the copy did not have, and the file of the tables.
    pub files: u64,
    /// Their bytes.
    pub bytes: u64,
}

impl Catalog {
    /// Copies the catalog into a directory: a new one, or that of an earlier copy, which is brought up to date. Others
    /// may use the catalog meanwhile. The tables are copied as they are at one moment; indexes are copied before and
    /// behind that, so that those of objects which are sealed or expire meanwhile are there, too.
    ///
    /// # Errors
    /// [`CatalogError::DatabaseRefused`] where the tables are in PostgreSQL, which has programs for that; otherwise a
    /// file cannot be read or written.
    pub fn copy_to(&self, dir: &Path) -> Result<CatalogCopy, CatalogError> {
        // Before anything is made that would be no copy.
        let database = Database::of(self.dir())?;
        if database != Database::Sqlite {
            let reason = "its tables are in PostgreSQL: copy them with pg_dump, and the folder `catalog` as it is";
            return Err(CatalogError::DatabaseRefused { database: database.told(), reason: reason.to_owned() });
        }
        let index = dir.join("index");
        private_dir(&index)?;
        let (mut copied, mut kept) = (CatalogCopy::default(), BTreeSet::new());
        self.copy_indexes(&index, &mut copied, &mut kept)?;
        let (tables, new) = (dir.join("catalog.db"), dir.join("catalog.db.new"));
        remove(&new)?;
        self.db.copy_tables(&new)?;
        self.copy_indexes(&index, &mut copied, &mut kept)?;
        copied.files += 1;
        copied.bytes += synced(&new)?;
        // What somebody who opened the copy left there is of the old one.
        for log in ["catalog.db-wal", "catalog.db-shm"] {
            remove(&dir.join(log))?;
        }
        fs::rename(&new, &tables).map_err(|source| CatalogError::io("rename", &new, source))?;
        for (name, _) in files_in(&index)?.into_iter().filter(|(name, _)| !kept.contains(name)) {
            remove(&index.join(name))?;
        }
        for dir in [&index, dir] {
            synced(dir)?;
        }
        Ok(copied)
    }

    /// Copies the indexes that are not there yet: what a name stands for never changes.
    fn copy_indexes(
        &self,
        to: &Path,
        copied: &mut CatalogCopy,
        kept: &mut BTreeSet<OsString>,
    ) -> Result<(), CatalogError> {
        let there = files_in(to)?;
        for (name, len) in files_in(&self.index_dir())? {
            let is_index = Path::new(&name).extension().is_some_and(|extension| extension == "parquet");
            if !is_index || !kept.insert(name.clone()) || there.contains(&(name.clone(), len)) {
                continue;
            }
            let (from, to) = (self.index_dir().join(&name), to.join(&name));
            match fs::copy(&from, &to) {
                // It has expired, or was sealed anew, since it was listed.
                Err(error) if error.kind() == ErrorKind::NotFound => remove(&to)?,
                Err(error) => return Err(CatalogError::io("copy an index to", &to, error)),
                Ok(_) => {
                    copied.files += 1;
                    copied.bytes += synced(&to)?;
                }
            }
        }
        Ok(())
    }
}

/// The files of a directory, with their lengths.
fn files_in(dir: &Path) -> Result<BTreeSet<(OsString, u64)>, CatalogError> {
    let failed = |source| CatalogError::io("read", dir, source);
    let mut files = BTreeSet::new();
    for entry in fs::read_dir(dir).map_err(failed)? {
        let entry = entry.map_err(failed)?;
        match entry.metadata() {
            Ok(about) if about.is_file() => drop(files.insert((entry.file_name(), about.len()))),
            Ok(_) => {}
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            Err(error) => return Err(failed(error)),
        }
    }
    Ok(files)
}

fn private_dir(dir: &Path) -> Result<(), CatalogError> {
    let made = DirBuilder::new().recursive(true).mode(0o700).create(dir);
    made.map_err(|source| CatalogError::io("create", dir, source))
}

fn remove(path: &Path) -> Result<(), CatalogError> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != ErrorKind::NotFound => Err(CatalogError::io("remove", path, error)),
        _ => Ok(()),
    }
}

/// Has the disk keep what was written; how many bytes that are.
fn synced(path: &Path) -> Result<u64, CatalogError> {
    let failed = |source| CatalogError::io("sync", path, source);
    let file = File::open(path).map_err(failed)?;
    file.sync_all().map_err(failed)?;
    Ok(file.metadata().map_err(failed)?.len())
}
