//! What is not as it was made: files that changed, that lack, that cannot be read, and what there is too much.

use std::collections::HashSet;
use std::collections::hash_map::DefaultHasher;
use std::fs::File;
use std::hash::{Hash, Hasher};
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;

use serde::Serialize;
use walkdir::WalkDir;

use super::{DataSet, DataSetError, DataSetWatch};

/// How a path differs from what was made.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Differs {
    /// Its content, or its length, is another.
    Changed,
    /// It is not there.
    Missing,
    /// It cannot be read.
    Unreadable,
    /// It was not made.
    Extra,
}

impl Differs {
    /// A word for it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Changed => "changed",
            Self::Missing => "missing",
            Self::Unreadable => "unreadable",
            Self::Extra => "extra",
        }
    }
}

fn hashed(path: &Path) -> u64 {
    let mut hasher = DefaultHasher::new();
    path.hash(&mut hasher);
    hasher.finish()
}

impl DataSet {
    /// Reads a set that was made, and gives what is not as it was, by path below the folder. Folders do not count.
    ///
    /// # Errors
    /// [`DataSetError::CheckStopped`] if it was stopped; else the folder cannot be listed. That files differ is no
    /// error.
    pub fn check(&self, folder: &Path, watch: &DataSetWatch) -> Result<Vec<(PathBuf, Differs)>, DataSetError> {
        let differing = self.each_folder(watch, &|number, buffer| {
            let mut differing = Vec::new();
            for number in self.tree.files_of(number) {
                if watch.stop.load(Ordering::Relaxed) {
                    return Err(DataSetError::Stopped);
                }
                let path = self.file_path(number);
                if let Some(differs) = self.differs(&folder.join(&path), number, buffer, watch)? {
                    differing.push((path, differs));
                }
                self.count(number, watch);
            }
            Ok(differing)
        });
        let mut differing = differing.map_err(|error| match error {
            DataSetError::Stopped => DataSetError::CheckStopped,
            other => other,
        })?;
        differing.extend(self.extra(folder, watch)?.into_iter().map(|path| (path, Differs::Extra)));
        differing.sort();
        Ok(differing)
    }

    /// What is below the folder and was not made. Of what was made the hashes of the paths are kept, eight bytes for
    /// each.
    fn extra(&self, folder: &Path, watch: &DataSetWatch) -> Result<Vec<PathBuf>, DataSetError> {
        let made: HashSet<u64> = (0..self.file_count()).map(|number| hashed(&self.file_path(number))).collect();
        let mut extra = Vec::new();
        // What cannot be listed is missing already.
        for entry in WalkDir::new(folder).into_iter().filter_map(Result::ok) {
            if watch.stop.load(Ordering::Relaxed) {
                return Err(DataSetError::CheckStopped);
            }
            if !entry.file_type().is_dir()
                && let Ok(path) = entry.path().strip_prefix(folder)
                && !made.contains(&hashed(path))
            {
                extra.push(path.to_owned());
            }
        }
        Ok(extra)
    }

    fn differs(
        &self,
        path: &Path,
        number: u64,
        buffer: &mut [u8],
        watch: &DataSetWatch,
    ) -> Result<Option<Differs>, DataSetError> {
        let mut file = match File::open(path) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Some(Differs::Missing)),
            Err(_) => return Ok(Some(Differs::Unreadable)),
        };
        let mut content = self.content(number);
        let mut left = self.length(number);
        let mut found = vec![0; left.min(buffer.len() as u64) as usize];
        while left > 0 {
            // A file may take minutes.
            if watch.stop.load(Ordering::Relaxed) {
                return Err(DataSetError::Stopped);
            }
            let part = left.min(buffer.len() as u64) as usize;
            content.fill(&mut buffer[..part]);
            match file.read_exact(&mut found[..part]) {
                Ok(()) if found[..part] == buffer[..part] => left -= part as u64,
                Err(error) if error.kind() != io::ErrorKind::UnexpectedEof => {
                    return Ok(Some(Differs::Unreadable));
                }
                Ok(()) | Err(_) => return Ok(Some(Differs::Changed)),
            }
        }
        let whole = matches!(file.read(&mut [0; 1]), Ok(0));
        Ok((!whole).then_some(Differs::Changed))
    }
}
