//! Files that hold keys: whole or not there, for their owner alone, on disk when they are said to be, and never
//! overwritten unasked.
//!
//! A file is written beside its name, as `NAME.partial`, flushed, and only then given its name; what is left behind by
//! a crash is a `.partial` that the next writer of the same name overwrites and takes away.

use std::fs::{File, OpenOptions};
use std::io::{self, BufWriter, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use rustix::fs::{CWD, RenameFlags, renameat_with};

use super::RootError;

/// What becomes of a file that has the name already.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Existing {
    /// It stays, and writing is an error.
    Kept,
    /// It is replaced as a whole.
    Replaced,
}

/// A file that has no name yet. Dropped without [`NewFile::finish`], it is gone.
pub(crate) struct NewFile {
    path: PathBuf,
    partial: PathBuf,
    file: Option<BufWriter<File>>,
}

impl NewFile {
    pub(crate) fn create(path: &Path, existing: Existing) -> Result<Self, RootError> {
        if existing == Existing::Kept && path.symlink_metadata().is_ok() {
            return Err(RootError::Exists { path: path.to_owned() });
        }
        let mut partial = path.as_os_str().to_owned();
        partial.push(".partial");
        let partial = PathBuf::from(partial);
        erase(&partial)?;
        let file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&partial);
        let file = file.map_err(|error| RootError::file("creating", &partial, error))?;
        Ok(Self { path: path.to_owned(), partial, file: Some(BufWriter::with_capacity(256 << 10, file)) })
    }

    /// Flushes the file, gives it its name, and flushes that.
    pub(crate) fn finish(mut self, existing: Existing) -> Result<(), RootError> {
        let Some(file) = self.file.take() else { return Ok(()) };
        let failed = |error| RootError::file("writing", &self.path, error);
        let file = file.into_inner().map_err(|error| failed(error.into_error()))?;
        file.sync_all().map_err(failed)?;
        let flags = match existing {
            Existing::Kept => RenameFlags::NOREPLACE,
            Existing::Replaced => RenameFlags::empty(),
        };
        renameat_with(CWD, &self.partial, CWD, &self.path, flags).map_err(|error| failed(error.into()))?;
        let directory = match self.path.parent() {
            Some(parent) if !parent.as_os_str().is_empty() => parent,
            _ => Path::new("."),
        };
        File::open(directory).and_then(|directory| directory.sync_all()).map_err(failed)
    }
}

impl Write for NewFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.file.as_mut().map_or(Ok(0), |file| file.write(bytes))
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.as_mut().map_or(Ok(()), Write::flush)
    }
}

impl Drop for NewFile {
    fn drop(&mut self) {
        // What it still holds back would be written after the zeros. After `finish` the name is no longer there, or
        // belongs to nobody.
        if let Some(file) = self.file.take() {
            drop(file.into_parts());
        }
        let _ = erase(&self.partial);
    }
}

/// Writes a small file.
pub(crate) fn write(path: &Path, bytes: &[u8], existing: Existing) -> Result<(), RootError> {
    let mut file = NewFile::create(path, existing)?;
    file.write_all(bytes).map_err(|error| RootError::file("writing", path, error))?;
    file.finish(existing)
}

/// Reads a small file, of at most `len_max` bytes and one more, which no decoder takes.
pub(crate) fn read(path: &Path, len_max: usize) -> Result<Vec<u8>, RootError> {
    let failed = |error| RootError::file("reading", path, error);
    let mut bytes = Vec::new();
    File::open(path).map_err(failed)?.take(len_max as u64 + 1).read_to_end(&mut bytes).map_err(failed)?;
    Ok(bytes)
}

/// Overwrites a small file with nothing, on disk, and takes it away. One that is not there is gone already.
pub(crate) fn erase(path: &Path) -> Result<(), RootError> {
    let failed = |error| RootError::file("erasing", path, error);
    let mut file = match OpenOptions::new().write(true).open(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        file => file.map_err(failed)?,
    };
    let len = file.metadata().map_err(failed)?.len();
    io::copy(&mut io::repeat(0).take(len), &mut file).and_then(|_| file.sync_all()).map_err(failed)?;
    std::fs::remove_file(path).map_err(failed)?;
    let directory = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    File::open(directory).and_then(|directory| directory.sync_all()).map_err(failed)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

    use std::os::unix::fs::MetadataExt;

    use super::*;

    #[test]
    fn a_file_is_there_as_a_whole_or_not_at_all_and_is_not_overwritten_unasked() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("root.sealed");
        let mut file = NewFile::create(&path, Existing::Kept).unwrap();
        file.write_all(&[7; 300 << 10]).unwrap();
        let mut given_up = File::open(directory.path().join("root.sealed.partial")).unwrap();
        drop(file);
        let mut bytes = Vec::new();
        given_up.read_to_end(&mut bytes).unwrap();
        assert!(!bytes.is_empty() && bytes.iter().all(|&byte| byte == 0), "and overwritten");
        assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 0, "what is not finished is gone");
        std::fs::write(directory.path().join("root.sealed.partial"), "the rest of a crash").unwrap();
        write(&path, b"one", Existing::Kept).unwrap();
        assert_eq!(std::fs::metadata(&path).unwrap().mode() & 0o777, 0o600);
        assert!(matches!(write(&path, b"two", Existing::Kept), Err(RootError::Exists { .. })));
        // Somebody is faster between the first look and the last step.
        std::fs::remove_file(&path).unwrap();
        let mut file = NewFile::create(&path, Existing::Kept).unwrap();
        file.write_all(b"two").unwrap();
        std::fs::write(&path, "one").unwrap();
        assert!(matches!(file.finish(Existing::Kept), Err(RootError::Exists { .. })));
        assert_eq!(read(&path, 100).unwrap(), b"one");
        write(&path, b"three", Existing::Replaced).unwrap();
        assert_eq!(read(&path, 100).unwrap(), b"three");
        assert_eq!(read(&path, 2).unwrap(), b"thr", "one byte more than may be");
        assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 1);
    }
}
