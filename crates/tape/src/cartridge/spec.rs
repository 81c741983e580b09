//! How a new virtual cartridge is to be.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::path::Path;

use capstan_format::Volser;
use serde::{Deserialize, Serialize};

use super::memory::{Memory, RECORDS_AT, Tab, generation_fits};
use super::volume::{draw_life, open_data_file};
use crate::{DriveError, EncryptionState, Rewritability};

/// What is fixed when a virtual cartridge is made.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CartridgeSpec {
    /// Its barcode.
    pub volser: Volser,
    /// Bytes that blocks and filemarks may take, 36 bytes of header each included.
    pub capacity_bytes: u64,
    /// Early warning is given when less than this remains.
    pub early_warning_bytes: u64,
    /// Name of the media generation, at most 32 bytes: `virtual`, `LTO-9`.
    pub generation: String,
}

impl CartridgeSpec {
    /// Makes a blank cartridge at `path`, which must not exist yet; it can be written over.
    ///
    /// It is there whole or not at all. Of two that make the same one at once the later one wins: a library's lock is
    /// theirs to hold.
    ///
    /// # Errors
    /// [`DriveError::Host`] if there is a file at `path`, the generation's name is too long, or the file cannot be
    /// written.
    pub fn create(&self, path: &Path) -> Result<(), DriveError> {
        self.create_as(path, Rewritability::Rewritable)
    }

    /// The same, of either kind: what it is it stays. One of which nobody knows is rewritable.
    ///
    /// # Errors
    /// As [`CartridgeSpec::create`].
    pub fn create_as(&self, path: &Path, rewritability: Rewritability) -> Result<(), DriveError> {
        let host =
            |source| DriveError::Host { what: format!("virtual cartridge {} cannot be made", path.display()), source };
        if !generation_fits(&self.generation) {
            return Err(host(io::Error::new(io::ErrorKind::InvalidInput, "the generation's name is too long")));
        }
        // Whoever is killed meanwhile leaves no file under a cartridge's name that is none.
        let partial = path.with_extension("partial");
        let made = self.write(&partial, path, rewritability);
        if made.is_err() {
            let _ = fs::remove_file(partial);
        }
        made.map_err(host)
    }

    fn write(&self, partial: &Path, path: &Path, rewritability: Rewritability) -> io::Result<()> {
        if path.try_exists()? {
            return Err(io::ErrorKind::AlreadyExists.into());
        }
        let file = OpenOptions::new().read(true).write(true).create(true).truncate(true).open(partial)?;
        let mut memory = Memory {
            sequence: 0,
            volser: self.volser.clone(),
            capacity_bytes: self.capacity_bytes,
            early_warning_bytes: self.early_warning_bytes,
            life: draw_life()?,
            tab: Tab::Writable,
            rewritability,
            encryption: EncryptionState::Blank,
            further_keys: Vec::new(),
            generation: self.generation.clone(),
            serial: draw_life()?,
        };
        file.set_len(RECORDS_AT)?;
        memory.write(&file)?;
        file.sync_all()?;
        fs::rename(partial, path)?;
        let directory = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
        File::open(directory)?.sync_all()
    }
}

impl Tab {
    /// Slides the tab of the cartridge at `path`, which must not be loaded.
    ///
    /// # Errors
    /// [`DriveError::InUse`] if the cartridge is loaded; else it is no cartridge, or cannot be written.
    pub fn slide(self, path: &Path) -> Result<(), DriveError> {
        let (file, mut memory) = open_data_file(path, &path.display().to_string())?.writable()?;
        memory.tab = self;
        let what = || format!("the tab of {} cannot be moved", path.display());
        memory.write(&file).map_err(|source| DriveError::Host { what: what(), source })
    }
}
