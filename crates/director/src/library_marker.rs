//! Which directory is a library of a catalog.
//!
//! A virtual library often lies on a disk of its own. If that is not mounted, its mount point is an empty directory,
//! and a backup into it would be hidden as soon as the disk is there again. So the library's directory carries a marker
//! ([`VirtualLibrary::id`]) that the catalog knows, and a directory without it is not used: lists go on, whatever needs
//! a cartridge is refused with the reason.

use std::path::{Path, PathBuf};

use capstan_catalog::{Catalog, MAIN_LIBRARY};
use capstan_format::Volser;
use capstan_tape::{
    CartridgeSpec, Changer, ChangerError, ChangerRequest, Drive, DriveDescription, Element, Library, VirtualLibrary,
};
use uuid::Uuid;

use crate::DirectorError;

/// The catalog's fact that has the mark of a library.
pub(crate) fn library_fact(name: &str) -> String {
    if name == MAIN_LIBRARY { "library".to_owned() } else { format!("library {name}") }
}

/// Whether a directory is the library of a catalog; `Err` has the reason why not, for the operator. A library that was
/// never marked is marked, if cartridges that the catalog knows are in it, or if the catalog knows none.
pub(crate) fn check(
    directory: &Path,
    catalog: &mut Catalog,
    (name, others): (&str, &[&str]),
) -> Result<Result<(), String>, DirectorError> {
    let found = VirtualLibrary::id(directory).map_err(DirectorError::host("read the marker of", directory))?;
    for other in others.iter().filter(|other| **other != name) {
        if found.is_some() && catalog.fact(&library_fact(other))? == found {
            return Ok(Err(format!("it is the directory of library {other}, too: give each its own in capstan.toml")));
        }
    }
    let reason = match (catalog.fact(&library_fact(name))?, found) {
        (Some(known), Some(found)) if known == found => return Ok(Ok(())),
        (Some(_), Some(_)) => {
            "it is the library of another catalog: look at library.path in capstan.toml, and at what is mounted there"
        }
        (Some(_), None) if !directory.exists() => {
            "the directory is not there. If it is on a disk of its own, mount that disk"
        }
        (Some(_), None) => {
            "it does not hold the file library.id, which marks the library of this catalog. If it is on a disk of its own, mount that disk"
        }
        (None, Some(found)) => {
            note(catalog, name, &found);
            return Ok(Ok(()));
        }
        (None, None) if cartridges_are_gone(directory, catalog, name)? => {
            "none of the cartridges that the catalog knows is in it. If it is on a disk of its own, mount that disk"
        }
        (None, None) => {
            // A disk that cannot be written has been read from all the same, and is marked another time.
            if let Ok(id) = VirtualLibrary::mark(directory, &Uuid::new_v4().simple().to_string()) {
                note(catalog, name, &id);
            }
            return Ok(Ok(()));
        }
    };
    let which = if name == MAIN_LIBRARY { String::new() } else { format!(" --library {name}") };
    let unless = format!("; if this is where the cartridges are on purpose, run `capstan library initialize{which}`");
    Ok(Err(format!("{reason}{unless}")))
}

/// Makes a directory, with further folders, the library of a catalog, whatever was known before.
pub(crate) fn adopt(
    (directory, folders): (&Path, &[PathBuf]),
    catalog: &mut Catalog,
    name: &str,
) -> Result<(), DirectorError> {
    // With folders that may be away now, a library keeps the mark that they have.
    let known = catalog.fact(&library_fact(name))?.filter(|_| !folders.is_empty());
    let id = known.unwrap_or_else(|| Uuid::new_v4().simple().to_string());
    let id = VirtualLibrary::mark_with_folders(directory, folders, &id);
    let id = id.map_err(DirectorError::host("mark", directory))?;
    Ok(catalog.put_fact(&library_fact(name), &id)?)
}

/// Whether the catalog knows labelled cartridges, and none of them is in a directory.
fn cartridges_are_gone(directory: &Path, catalog: &Catalog, name: &str) -> Result<bool, DirectorError> {
    let mut known = catalog.volumes()?;
    known.retain(|volume| volume.id.is_some() && volume.library == name);
    Ok(!known.is_empty() && !known.iter().any(|volume| VirtualLibrary::holds(directory, &volume.volser)))
}

/// Keeps the library's id. A catalog that cannot be written is noted another time.
fn note(catalog: &mut Catalog, name: &str, id: &str) {
    let _ = catalog.put_fact(&library_fact(name), id);
}

/// Stands for a library that is not to be used.
#[derive(Debug)]
pub(crate) struct AbsentLibrary {
    pub(crate) library: String,
    pub(crate) reason: String,
}

impl AbsentLibrary {
    fn refusal<T>(&self) -> Result<T, ChangerError> {
        Err(ChangerError::Unusable { library: self.library.clone(), reason: self.reason.clone() })
    }
}

impl Changer for AbsentLibrary {
    fn inventory(&mut self) -> Result<Vec<Element>, ChangerError> {
        self.refusal()
    }

    fn load(&mut self, _volser: &Volser, _drive: u32) -> Result<(), ChangerError> {
        self.refusal()
    }

    fn unload(&mut self, _drive: u32) -> Result<(), ChangerError> {
        self.refusal()
    }

    fn carry_out_request(&mut self, _errand: &ChangerRequest) -> Result<(), ChangerError> {
        self.refusal()
    }
}

impl Library for AbsentLibrary {
    fn drives(&mut self) -> Result<u32, ChangerError> {
        self.refusal()
    }

    fn describe_drives(&mut self) -> Result<Vec<DriveDescription>, ChangerError> {
        self.refusal()
    }

    fn take_drive(&mut self, _drive: u32) -> Result<Box<dyn Drive>, ChangerError> {
        self.refusal()
    }

    fn create_cartridge(&mut self, _spec: &CartridgeSpec) -> Result<(), ChangerError> {
        self.refusal()
    }
}
