//! How a new virtual cartridge is to be.

use std::fs::{File, OpenOptions};
use std::io;
use std::path::Path;

use capstan_format::Volser;

use super::memory::{Memory, RECORDS_AT, Tab, generation_fits};
use super::volume::{draw_life, open_data_file};
use crate::{DriveError, EncryptionState, Rewritability};

/// What is fixed when a virtual cartridge is made.
#[derive(Debug, Clone, PartialEq, Eq)]
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
    pub fn create(&self, path: &Path) -> Result<(), DriveError> {
        self.create_as(path, Rewritability::Rewritable)
    }

    /// The same, of either kind: what it is it stays. One of which nobody knows is rewritable.
    pub fn create_as(&self, path: &Path, rewritability: Rewritability) -> Result<(), DriveError> {
        let host =
            |source| DriveError::Host { what: format!("virtual cartridge {} cannot be made", path.display()), source };
        if !generation_fits(&self.generation) {
            return Err(host(io::Error::new(io::ErrorKind::InvalidInput, "the generation's name is too long")));
        }
        let file = OpenOptions::new().read(true).write(true).create_new(true).open(path).map_err(host)?;
        let made = self.write(&file, path, rewritability);
        if made.is_err() {
            // A file that is no cartridge must not stay under a cartridge's name.
            let _ = std::fs::remove_file(path);
        }
        made.map_err(host)
    }

    fn write(&self, file: &File, path: &Path, rewritability: Rewritability) -> io::Result<()> {
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
        };
        file.set_len(RECORDS_AT)?;
        memory.write(file)?;
        file.sync_all()?;
        let directory = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
        File::open(directory)?.sync_all()
    }
}

impl Tab {
    /// Slides the tab of the cartridge at `path`, which must not be loaded.
    pub fn slide(self, path: &Path) -> Result<(), DriveError> {
        let (file, mut memory) = open_data_file(path, &path.display().to_string())?.writable()?;
        memory.tab = self;
        let what = || format!("the tab of {} cannot be moved", path.display());
        memory.write(&file).map_err(|source| DriveError::Host { what: what(), source })
    }
}
