//! What the journal asks of a disk, and how old bytes leave one: overwritten before their file is given up, for a key of theirs may be destroyed.

use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use super::chain::HEAD_LEN;

/// Where a journal lies, as far as it is concerned. Tests put a failing one here.
pub(super) trait Medium {
    /// Appends, and flushes. After an error it may hold a part.
    fn append(&mut self, bytes: &[u8]) -> io::Result<()>;
    /// Goes back to a length that it had; what stood behind it is overwritten.
    fn cut(&mut self, len: u64) -> io::Result<()>;
    /// Puts these bytes in the place of all that is there, as a whole or not at all; what was there is overwritten.
    fn replace(&mut self, bytes: &[u8]) -> io::Result<()>;
    /// The bytes from a place on, so many at most.
    fn read_from(&mut self, at: u64, len_max: usize) -> io::Result<Vec<u8>>;
}

// No node is called so: a name does not begin with a point.
const NEW: &str = ".new-";
const OLD: &str = ".old-";

pub(super) struct Disk {
    pub(super) path: PathBuf,
    pub(super) file: File,
}

impl Disk {
    /// Puts a file there as a whole or not at all.
    pub(super) fn write_new(path: &Path, bytes: &[u8]) -> io::Result<File> {
        let new = beside(path, NEW);
        let mut file = File::create(&new)?;
        file.write_all(bytes)?;
        file.sync_all()?;
        fs::rename(&new, path)?;
        sync_folder(path)?;
        OpenOptions::new().read(true).append(true).open(path)
    }

    /// Overwrites and takes away what a crash in [`Medium::replace`] has left beside a file.
    pub(super) fn sweep(path: &Path) -> io::Result<()> {
        let old = beside(path, OLD);
        match (fs::metadata(&old), fs::metadata(path)) {
            // The crash came before the new file had its name: these are two names of the one that still counts.
            (Ok(old_file), Ok(file)) if (old_file.dev(), old_file.ino()) == (file.dev(), file.ino()) => {
                fs::remove_file(&old)?;
                sync_folder(path)?;
            }
            (Ok(_), _) => wipe(&old)?,
            (Err(error), _) if error.kind() == ErrorKind::NotFound => {}
            (Err(error), _) => return Err(error),
        }
        match wipe(&beside(path, NEW)) {
            Err(error) if error.kind() != ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        }
    }
}

impl Medium for Disk {
    fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.file.write_all(bytes)?;
        self.file.sync_data()
    }

    fn cut(&mut self, len: u64) -> io::Result<()> {
        // What is left if this is cut off as well still reads as torn: the head of a record that is not whole, and zeros.
        blank(&self.path, len + HEAD_LEN as u64)?;
        self.file.set_len(len)?;
        self.file.sync_all()
    }

    fn replace(&mut self, bytes: &[u8]) -> io::Result<()> {
        Self::sweep(&self.path)?;
        let old = beside(&self.path, OLD);
        // They keep a name until they are overwritten: a crash in between must not leave them where nobody finds them again.
        fs::hard_link(&self.path, &old)?;
        match Self::write_new(&self.path, bytes) {
            Ok(file) => self.file = file,
            Err(error) => {
                fs::remove_file(&old)?;
                return Err(error);
            }
        }
        wipe(&old)
    }

    fn read_from(&mut self, at: u64, len_max: usize) -> io::Result<Vec<u8>> {
        self.file.seek(SeekFrom::Start(at))?;
        let mut bytes = Vec::new();
        (&self.file).take(len_max as u64).read_to_end(&mut bytes)?;
        Ok(bytes)
    }
}

fn beside(path: &Path, prefix: &str) -> PathBuf {
    path.with_file_name(format!("{prefix}{}", path.file_name().unwrap_or_default().to_string_lossy()))
}

fn sync_folder(path: &Path) -> io::Result<()> {
    File::open(path.parent().unwrap_or(Path::new(".")))?.sync_all()
}

/// Puts zeros in the place of a file's bytes from one on. A handle that appends would put them behind.
fn blank(path: &Path, from: u64) -> io::Result<()> {
    let mut file = OpenOptions::new().write(true).open(path)?;
    let len = file.metadata()?.len();
    file.seek(SeekFrom::Start(from))?;
    io::copy(&mut io::repeat(0).take(len.saturating_sub(from)), &mut file)?;
    file.sync_all()
}

/// Overwrites a file and takes it away. What a disk keeps below its file system stays out of reach.
pub(crate) fn wipe(path: &Path) -> io::Result<()> {
    blank(path, 0)?;
    fs::remove_file(path)?;
    sync_folder(path)
}
