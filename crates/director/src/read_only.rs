//! A state directory that cannot be written: its disk went read-only, or was mounted so.
//!
//! Whoever restores must be able to, so what is read works as ever: on a stand-in. That is a scratch directory with
//! copies of what is small (settings, database, sealed key store) and links to what is large (index files, cartridges).
//! What a job notes there is gone with it, unless the tables of the catalog are in a database elsewhere. Whatever is
//! more than reading is refused at the lock of writers.

use std::fs::Permissions;
use std::io;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};

use rustix::fs::{Access, access};
use tempfile::TempDir;

use crate::DirectorError;
use crate::config::{Config, find_settings};

/// Where a stand-in may be made: first in memory, since it holds the sealed keys.
const PLACES: [&str; 3] = ["/run", "/dev/shm", "/tmp"];

/// Files of a state directory that are copied, where they are there.
const COPIED: [&str; 5] =
    ["keys.db", "keys.db-journal", "catalog/catalog.db", "catalog/catalog.db-wal", "catalog/database.json"];

/// Parts of a virtual library that are linked. Its drives are the stand-in's own.
const LINKED: [&str; 3] = ["slots", "mail", "library.id"];

/// Whether a directory can be written. One that is not there cannot, and is no matter of ours.
pub(crate) fn can_write(dir: &Path) -> bool {
    !matches!(access(dir, Access::WRITE_OK), Err(rustix::io::Errno::ROFS | rustix::io::Errno::ACCESS))
}

/// What stands in for a state directory that cannot be written; `None` for one that can.
pub(crate) fn stand_in(dir: &Path) -> Result<Option<TempDir>, DirectorError> {
    if can_write(dir) && can_write(&dir.join("catalog")) {
        return Ok(None);
    }
    let config = Config::read(&find_settings(dir)?)?;
    let scratch = scratch().map_err(DirectorError::host("find room for a stand-in of", dir))?;
    fill(dir, &config, scratch.path()).map_err(DirectorError::host("make a stand-in of", dir))?;
    Ok(Some(scratch))
}

fn scratch() -> io::Result<TempDir> {
    let mut failed = io::Error::from(io::ErrorKind::ReadOnlyFilesystem);
    let places = PLACES.iter().map(PathBuf::from).chain([std::env::temp_dir()]);
    for place in places.filter(|place| place.is_dir()) {
        // The settings may hold secrets, too.
        let owners_alone = Permissions::from_mode(0o700);
        match tempfile::Builder::new().prefix("capstan-").permissions(owners_alone).tempdir_in(place) {
            Ok(scratch) => return Ok(scratch),
            Err(error) => failed = error,
        }
    }
    Err(failed)
}

fn fill(dir: &Path, config: &Config, scratch: &Path) -> io::Result<()> {
    std::fs::create_dir(scratch.join("catalog"))?;
    for name in COPIED {
        copy(&dir.join(name), &scratch.join(name))?;
    }
    let absolute = std::path::absolute(dir)?;
    let index = absolute.join("catalog/index");
    if index.exists() {
        symlink(index, scratch.join("catalog/index"))?;
    }
    let mut config = config.clone();
    if config.keys.is_cluster() {
        config.keys.identity = absolute.join(&config.keys.identity);
    }
    for (number, settings) in std::iter::once(&mut config.library).chain(config.libraries.values_mut()).enumerate() {
        let there = absolute.join(&settings.path);
        settings.folders = settings.folders_below(&absolute);
        if settings.is_folder_here() && there.exists() {
            settings.path = library(there, &scratch.join(format!("library{number}")))?;
        }
    }
    std::fs::write(scratch.join("capstan.toml"), config.to_text())
}

/// A library on a disk of its own is used as it is; one that cannot be written has a stand-in, too.
fn library(there: PathBuf, here: &Path) -> io::Result<PathBuf> {
    if can_write(&there) {
        return Ok(there);
    }
    std::fs::create_dir(here)?;
    for name in LINKED.iter().filter(|name| there.join(name).exists()) {
        symlink(there.join(name), here.join(name))?;
    }
    Ok(here.to_owned())
}

/// Copies a file if there is one, for its owner to write: the original may say that nobody may.
fn copy(from: &Path, to: &Path) -> io::Result<()> {
    let mut from = match std::fs::File::open(from) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        opened => opened?,
    };
    let mut to = std::fs::File::create_new(to)?;
    restrict(&to)?;
    io::copy(&mut from, &mut to).map(drop)
}

fn restrict(file: &std::fs::File) -> io::Result<()> {
    use std::os::unix::fs::PermissionsExt;
    file.set_permissions(Permissions::from_mode(0o600))
}
