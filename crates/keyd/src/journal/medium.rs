//! What the journal asks of a disk.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

/// Where a journal lies, as far as it is concerned. Tests put a failing one here.
pub(super) trait Medium {
    /// Appends, and flushes. After an error it may hold a part.
    fn append(&mut self, bytes: &[u8]) -> io::Result<()>;
    /// Goes back to a length that it had.
    fn cut(&mut self, len: u64) -> io::Result<()>;
    /// Puts these bytes in the place of all that is there, as a whole or not at all.
    fn replace(&mut self, bytes: &[u8]) -> io::Result<()>;
    /// The bytes from a place on, so many at most.
    fn read_from(&mut self, at: u64, len_max: usize) -> io::Result<Vec<u8>>;
}

pub(super) struct Disk {
    pub(super) path: PathBuf,
    pub(super) file: File,
}

impl Disk {
    /// Puts a file there as a whole or not at all.
    pub(super) fn write_new(path: &Path, bytes: &[u8]) -> io::Result<File> {
        // No node is called so: a name does not begin with a point.
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let new = path.with_file_name(format!(".new-{name}"));
        let mut file = File::create(&new)?;
        file.write_all(bytes)?;
        file.sync_all()?;
        fs::rename(&new, path)?;
        File::open(path.parent().unwrap_or(Path::new(".")))?.sync_all()?;
        OpenOptions::new().read(true).append(true).open(path)
    }
}

impl Medium for Disk {
    fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.file.write_all(bytes)?;
        self.file.sync_data()
    }

    fn cut(&mut self, len: u64) -> io::Result<()> {
        self.file.set_len(len)?;
        self.file.sync_all()
    }

    fn replace(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.file = Self::write_new(&self.path, bytes)?;
        Ok(())
    }

    fn read_from(&mut self, at: u64, len_max: usize) -> io::Result<Vec<u8>> {
        self.file.seek(SeekFrom::Start(at))?;
        let mut bytes = Vec::new();
        (&self.file).take(len_max as u64).read_to_end(&mut bytes)?;
        Ok(bytes)
    }
}
