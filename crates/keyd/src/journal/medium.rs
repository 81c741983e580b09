//! What the journal asks of a disk, and how old bytes leave one: overwritten before their file is given up, for a key
//! of theirs may be destroyed.

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
    /// Puts these bytes in the place of all that is there, as a whole or not at all; what was there is overwritten, if
    /// it can be.
    fn replace(&mut self, bytes: &[u8]) -> Result<Old, ReplaceError>;
    /// Overwrites what [`Medium::replace`] has left.
    fn sweep(&mut self) -> io::Result<()>;
    /// The bytes from a place on, so many at most.
    fn read_from(&mut self, at: u64, len_max: usize) -> io::Result<Vec<u8>>;
}

/// What became of the bytes that were there before.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Old {
    Overwritten,
    /// The new ones count, and these lie beside them: overwriting takes room on some file systems, and there was none.
    Left,
}

/// Which bytes count after a replacement that failed.
#[derive(Debug)]
pub(super) enum ReplaceError {
    /// Those that were there: nothing has changed.
    Unchanged(io::Error),
    /// Nobody knows which a loss of power would leave.
    Unknown(io::Error),
}

impl From<ReplaceError> for io::Error {
    fn from(error: ReplaceError) -> Self {
        match error {
            ReplaceError::Unchanged(error) | ReplaceError::Unknown(error) => error,
        }
    }
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
        let file = Self::write_beside(path, bytes)?;
        fs::rename(beside(path, NEW), path)?;
        sync_folder(path)?;
        Ok(file)
    }

    /// The file that is to have the name, on disk, and open as it will be used: nothing but the name is left to be
    /// given.
    fn write_beside(path: &Path, bytes: &[u8]) -> io::Result<File> {
        let new = beside(path, NEW);
        not_there_is_well(fs::remove_file(&new))?;
        let mut file = OpenOptions::new().read(true).append(true).create_new(true).open(new)?;
        file.write_all(bytes)?;
        file.sync_all()?;
        sync_folder(path)?;
        Ok(file)
    }

    /// [`Medium::replace`], with what gives the old file its second name: not every file system has two names for one
    /// file.
    pub(super) fn replace_by(
        &mut self,
        bytes: &[u8],
        link: impl Fn(&Path, &Path) -> io::Result<()>,
    ) -> Result<Old, ReplaceError> {
        use ReplaceError::{Unchanged, Unknown};
        let (old, new) = (beside(&self.path, OLD), beside(&self.path, NEW));
        Self::sweep_beside(&self.path).map_err(Unchanged)?;
        let file = Self::write_beside(&self.path, bytes).map_err(Unchanged)?;
        // They keep a name until they are overwritten: a crash in between must not leave them where nobody finds them
        // again.
        let linked = link(&self.path, &old).is_ok();
        if !linked {
            fs::rename(&self.path, &old).map_err(Unchanged)?;
            sync_folder(&self.path).map_err(Unknown)?;
        }
        if let Err(error) = fs::rename(new, &self.path) {
            // A second name that stays is found before the next attempt.
            let has_its_name = linked || fs::rename(&old, &self.path).is_ok();
            return Err(if has_its_name { Unchanged(error) } else { Unknown(error) });
        }
        self.file = file;
        sync_folder(&self.path).map_err(Unknown)?;
        Ok(if wipe(&old).is_ok() { Old::Overwritten } else { Old::Left })
    }

    /// Gives a file its name back that a crash in [`Medium::replace`] took it, where a file has one name alone: the new
    /// one was whole by then, and had not got the name.
    pub(super) fn recover(path: &Path) -> io::Result<()> {
        let (old, new) = (beside(path, OLD), beside(path, NEW));
        if path.try_exists()? || !old.try_exists()? || !new.try_exists()? {
            return Ok(());
        }
        fs::rename(old, path)?;
        sync_folder(path)
    }

    /// Overwrites and takes away what a crash in [`Medium::replace`] has left beside a file, or a lack of room.
    pub(super) fn sweep_beside(path: &Path) -> io::Result<()> {
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
        not_there_is_well(wipe(&beside(path, NEW)))
    }
}

impl Medium for Disk {
    fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.file.write_all(bytes)?;
        self.file.sync_data()
    }

    fn cut(&mut self, len: u64) -> io::Result<()> {
        // What is left if this is cut off as well still reads as torn: the head of a record that is not whole, and
        // zeros.
        blank(&self.path, len + HEAD_LEN as u64)?;
        self.file.set_len(len)?;
        self.file.sync_all()
    }

    fn replace(&mut self, bytes: &[u8]) -> Result<Old, ReplaceError> {
        self.replace_by(bytes, |path, old| fs::hard_link(path, old))
    }

    fn sweep(&mut self) -> io::Result<()> {
        Self::sweep_beside(&self.path)
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

/// Whether the disk, or what its owner may use of it, is full: it is well otherwise.
pub(super) fn is_full(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::StorageFull | ErrorKind::QuotaExceeded)
}

fn not_there_is_well(removed: io::Result<()>) -> io::Result<()> {
    match removed {
        Err(error) if error.kind() != ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
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
