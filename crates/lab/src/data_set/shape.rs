//! What a data set is to be, and why there can be none.

use std::io;
use std::path::PathBuf;

use super::noise::Noise;

/// Most files of a set: their numbers have seven digits or a few more, and their lengths are kept.
pub(super) const FILES_MAX: u64 = 100_000_000;
/// The longest file.
const LENGTH_MAX: u64 = 16 << 40;

/// Lengths of files.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FileLengths {
    /// Files of 4 to 16 KB, evenly
    Small,
    /// Files of 64 KB to 64 MB, evenly on a logarithmic scale
    Typical,
    /// Files between two lengths, both of them possible, evenly on a logarithmic scale
    Sizes {
        /// The shortest, bytes.
        from: u64,
        /// The longest.
        to: u64,
    },
}

impl FileLengths {
    /// Files in one folder, if nothing else is said: 5,084,604 in 7,380 and 3,927 in 20 in the published sets.
    fn files_in_folder(self) -> u64 {
        match self {
            Self::Small => 690,
            Self::Typical => 200,
            Self::Sizes { .. } => 500,
        }
    }

    pub(super) fn file_bytes(self, noise: &mut Noise) -> u64 {
        let unit = noise.unit();
        match self {
            Self::Small => 4096 + (unit * 12_289.0) as u64,
            Self::Typical => (65_536.0 * 1024_f64.powf(unit)) as u64,
            Self::Sizes { from, to } => {
                // Up to the next length, so that the longest is as likely as its neighbours.
                let (low, high) = (from as f64, to as f64 + 1.0);
                ((low * (high / low).powf(unit)) as u64).clamp(from, to)
            }
        }
    }
}

/// How far files shrink under a dictionary coder: 2 for 2:1.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Ratio {
    /// Each file as far.
    EachFile(f64),
    /// Each MB of a file by a ratio of its own, evenly between two.
    EachMb {
        /// The least.
        from: f64,
        /// The most.
        to: f64,
    },
}

/// Names of files and folders.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Names {
    /// A letter and a number.
    Plain,
    /// Up to the 255 bytes that a file system takes.
    Long,
    /// Characters of many scripts, of one to four bytes, up to 255 bytes.
    Unicode,
    /// What programs stumble over: spaces, newlines, leading dashes, escapes, what shells would run, what is not UTF-8.
    Hostile,
}

/// What a data set is to be.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Shape {
    /// Lengths of files.
    pub kind: FileLengths,
    /// How many files; `None` for as many as `bytes` takes.
    pub files: Option<u64>,
    /// How many bytes; the last file ends there.
    pub bytes: Option<u64>,
    /// How far they shrink.
    pub ratio: Ratio,
    /// What they are called.
    pub names: Names,
    /// How many files are in a folder; `None` for as many as its kind has.
    pub files_per_folder: Option<u64>,
    /// How many folders are in a folder, in as many levels as that takes; `None` for all in one.
    pub folders_per_folder: Option<u64>,
    /// What the set follows from.
    pub seed: u64,
}

impl Shape {
    /// So many files of a kind, 2:1.
    pub fn of_files(kind: FileLengths, files: u64, seed: u64) -> Self {
        let (ratio, names) = (Ratio::EachFile(2.0), Names::Plain);
        Self {
            kind,
            files: Some(files),
            bytes: None,
            ratio,
            names,
            files_per_folder: None,
            folders_per_folder: None,
            seed,
        }
    }

    /// So many bytes in files of a kind, 2:1.
    pub fn of_bytes(kind: FileLengths, bytes: u64, seed: u64) -> Self {
        Self { files: None, bytes: Some(bytes), ..Self::of_files(kind, 0, seed) }
    }

    pub(super) fn files_in_folder(&self) -> u64 {
        self.files_per_folder.unwrap_or_else(|| self.kind.files_in_folder())
    }

    pub(super) fn check(&self) -> Result<(), DataSetError> {
        let refuse = |what: String| Err(DataSetError::Shape { what });
        if self.files.is_none() && self.bytes.is_none() {
            return refuse("a data set has so many files or so many bytes: say which".to_owned());
        }
        if self.files.is_some_and(|files| files > FILES_MAX) {
            return refuse("a data set has at most 100 million files".to_owned());
        }
        if let FileLengths::Sizes { from, to } = self.kind
            && !(1 <= from && from <= to && to <= LENGTH_MAX)
        {
            return refuse(format!(
                "files of {from} to {to} bytes cannot be: write the shorter length first, as in 4K-16K, of 1 byte to 16 TiB"
            ));
        }
        let possible = 1.0..=10.0;
        match self.ratio {
            Ratio::EachFile(ratio) if !possible.contains(&ratio) => {
                return refuse(format!("data can be made to compress by 1:1 to 10:1, not by {ratio}:1"));
            }
            Ratio::EachMb { from, to } if !(possible.contains(&from) && possible.contains(&to) && from <= to) => {
                return refuse(format!(
                    "ratios of {from} to {to} cannot be: write the smaller one first, as in 1-10, of 1 to 10"
                ));
            }
            _ => {}
        }
        if self.files_in_folder() == 0 {
            return refuse("a folder has one file at least".to_owned());
        }
        if self.folders_per_folder.is_some_and(|folders| folders < 2) {
            return refuse(
                "a tree has two folders in a folder at least: with one it would never become wider".to_owned(),
            );
        }
        Ok(())
    }
}

/// Why a data set could not be made.
#[derive(Debug, thiserror::Error)]
pub enum DataSetError {
    /// It would have no end, or is none.
    #[error("{what}")]
    Shape {
        /// What is wrong.
        what: String,
    },
    /// There is something already.
    #[error("{} is not empty: name another folder, or remove it first", folder.display())]
    NotEmpty {
        /// The folder.
        folder: PathBuf,
    },
    /// There is not enough room.
    #[error("the set takes {needed} MB, and {} has {free} MB left: make a smaller one, or make room", folder.display())]
    NoRoom {
        /// The folder.
        folder: PathBuf,
        /// MB that the set takes.
        needed: u64,
        /// MB that are free.
        free: u64,
    },
    /// There are not enough inodes.
    #[error(
        "the set has {needed} files and folders, and the file system of {} takes {free} more: make fewer, or use another one",
        folder.display()
    )]
    NoInodes {
        /// The folder.
        folder: PathBuf,
        /// Files and folders of the set.
        needed: u64,
        /// How many the file system has left.
        free: u64,
    },
    /// Its paths would be too long.
    #[error(
        "paths of the set would have up to {longest} bytes, and the system takes {most}: use plain names, put more folders in a \
         folder, or make it below a shorter path"
    )]
    LongPaths {
        /// Bytes of the longest.
        longest: usize,
        /// Bytes that a path may have.
        most: usize,
    },
    /// The machine did not let it.
    #[error("cannot {action} {}: {source}", path.display())]
    Host {
        /// What was to be done.
        action: &'static str,
        /// With what.
        path: PathBuf,
        /// Why not.
        source: io::Error,
    },
    /// It was stopped, and what had been made is removed.
    #[error("stopped; what had been made is removed")]
    Stopped,
    /// Its check was stopped.
    #[error("stopped before all files were read; none is changed")]
    CheckStopped,
}
