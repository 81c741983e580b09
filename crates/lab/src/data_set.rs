//! Seeded data sets, shaped like those of the published staging measurements.
//!
//! *Small*: files of 4 to 16 KB, 690 in a folder. *Typical*: files of 64 KB to 64 MB, 200 in a folder, lengths even on a
//! logarithmic scale. Both shrink to half, under a dictionary coder and at every scale from one 4 KB file to the whole set:
//! half of what looks like it should shrink does so by repeating earlier bytes of the same file, the rest is noise. (Bytes
//! of four bits' entropy each would halve under Huffman coding only; files cut from one text would shrink the more of them a
//! compressor or a deduplicating peer sees at once.)
//!
//! A file's bytes follow from the seed and its number alone, so threads make them in any order.

mod content;

use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;

pub(crate) use content::Content as Filler;
use content::{Content, Noise};

/// The shape of a data set.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Files of 4 to 16 KB
    Small,
    /// Files of 64 KB to 64 MB
    Typical,
}

impl Kind {
    /// Files in one folder: 5,084,604 in 7,380 and 3,927 in 20 in the published sets.
    fn files_in_folder(self) -> u64 {
        match self {
            Self::Small => 690,
            Self::Typical => 200,
        }
    }

    fn file_bytes(self, noise: &mut Noise) -> u64 {
        let unit = noise.unit();
        match self {
            Self::Small => 4096 + (unit * 12_289.0) as u64,
            Self::Typical => (65_536.0 * 1024_f64.powf(unit)) as u64,
        }
    }
}

/// What a data set is to be.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Shape {
    /// Lengths of files, and how many are in a folder.
    pub kind: Kind,
    /// How many files; `None` for as many as `bytes` takes.
    pub files: Option<u64>,
    /// How many bytes; the last file ends there.
    pub bytes: Option<u64>,
    /// How far each file shrinks: 2 for 2:1.
    pub ratio: f64,
    /// What the set follows from.
    pub seed: u64,
}

impl Shape {
    /// So many files of a kind, 2:1.
    pub fn of_files(kind: Kind, files: u64, seed: u64) -> Self {
        Self { kind, files: Some(files), bytes: None, ratio: 2.0, seed }
    }

    /// So many bytes in files of a kind, 2:1.
    pub fn of_bytes(kind: Kind, bytes: u64, seed: u64) -> Self {
        Self { kind, files: None, bytes: Some(bytes), ratio: 2.0, seed }
    }
}

/// Why a data set could not be made.
#[derive(Debug, thiserror::Error)]
pub enum DataSetError {
    /// It would have no end, or is none.
    #[error("{what}")]
    Shape {
        /// What is wrong.
        what: &'static str,
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
}

fn host(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> DataSetError {
    let path = path.to_owned();
    move |source| DataSetError::Host { action, path, source }
}

/// How far a set has come, and whether it is to be stopped.
#[derive(Debug, Default)]
pub struct DataSetWatch {
    /// Set to stop.
    pub stop: Arc<AtomicBool>,
    /// Files that are done.
    pub files: AtomicU64,
    /// Bytes of them.
    pub bytes: AtomicU64,
}

/// What a data set will hold.
#[derive(Debug)]
pub struct DataSet {
    kind: Kind,
    seed: u64,
    ratio: f64,
    lengths: Vec<u32>,
}

/// What is done for a folder, by its number, with a buffer to do it in.
type Work<'a, T> = dyn Fn(u64, &mut [u8]) -> Result<Vec<T>, DataSetError> + Sync + 'a;

/// Most files of a set: their numbers have seven digits, and their lengths are kept.
const FILES_MAX: u64 = 100_000_000;
/// What a file takes besides its bytes: an inode, its name, and the rest of its last page.
const FILE_OVERHEAD_BYTES: u64 = 2500;

impl DataSet {
    /// Chooses lengths until `files` or `bytes`, whichever is given and comes first, is full.
    pub fn plan(shape: &Shape) -> Result<Self, DataSetError> {
        let Shape { kind, files, bytes, ratio, seed } = *shape;
        if files.is_none() && bytes.is_none() {
            return Err(DataSetError::Shape { what: "a data set has so many files or so many bytes: say which" });
        }
        if files.is_some_and(|files| files > FILES_MAX) {
            return Err(DataSetError::Shape { what: "a data set has at most 100 million files" });
        }
        if !(1.0..=10.0).contains(&ratio) {
            return Err(DataSetError::Shape { what: "data can be made to compress by 1:1 to 10:1" });
        }
        let mut noise = Noise::new(seed);
        let mut left = bytes.unwrap_or(u64::MAX);
        let mut lengths = Vec::new();
        while left > 0 && files.is_none_or(|files| (lengths.len() as u64) < files) {
            let length = kind.file_bytes(&mut noise).min(left);
            left -= length;
            lengths.push(u32::try_from(length).unwrap_or(u32::MAX));
            if lengths.len() as u64 > FILES_MAX {
                return Err(DataSetError::Shape { what: "a data set has at most 100 million files" });
            }
        }
        if lengths.is_empty() {
            return Err(DataSetError::Shape { what: "a data set of nothing is none" });
        }
        Ok(Self { kind, seed, ratio, lengths })
    }

    /// How many files.
    pub fn file_count(&self) -> u64 {
        self.lengths.len() as u64
    }

    /// Bytes of all files.
    pub fn bytes(&self) -> u64 {
        self.lengths.iter().map(|&length| u64::from(length)).sum()
    }

    /// A file's path below the folder of the set.
    pub fn file_path(&self, number: u64) -> PathBuf {
        self.folder_path(number / self.kind.files_in_folder()).join(format!("f{number:07}"))
    }

    fn folder_path(&self, number: u64) -> PathBuf {
        PathBuf::from(format!("d{number:05}"))
    }

    /// The first file, from the middle on, that is about so long.
    pub fn number_of_length(&self, bytes: u32) -> u64 {
        let middle = self.lengths.len() / 2;
        let near = |length: &u32| length.abs_diff(bytes) <= bytes / 20;
        (middle + self.lengths[middle..].iter().position(near).unwrap_or(0)) as u64
    }

    /// Writes the set with as many threads as there are cores. What was made is removed if it cannot be made whole.
    pub fn make(&self, folder: &Path, watch: &DataSetWatch) -> Result<(), DataSetError> {
        if fs::read_dir(folder).is_ok_and(|mut entries| entries.next().is_some()) {
            return Err(DataSetError::NotEmpty { folder: folder.to_owned() });
        }
        let was_there = folder.exists();
        fs::create_dir_all(folder).map_err(host("make", folder))?;
        let made = self.check_room(folder).and_then(|()| {
            self.each_folder(watch, &|number, buffer| self.make_folder(folder, number, buffer, watch)).map(|_| ())
        });
        if made.is_err() {
            // The folder was empty: everything in it is ours. What cannot be removed is less bad than why the set was not made.
            let _ = fs::remove_dir_all(folder);
            if was_there {
                let _ = fs::create_dir(folder);
            }
        }
        made
    }

    /// Reads a set that was made, and gives the files that are not as they were, by path.
    pub fn check(&self, folder: &Path, watch: &DataSetWatch) -> Result<Vec<PathBuf>, DataSetError> {
        let mut differing = self.each_folder(watch, &|number, buffer| {
            let mut differing = Vec::new();
            for number in self.numbers_of(number) {
                if watch.stop.load(Ordering::Relaxed) {
                    return Err(DataSetError::Stopped);
                }
                let path = self.file_path(number);
                if !self.is_as_made(&folder.join(&path), number, buffer) {
                    differing.push(path);
                }
                self.count(number, watch);
            }
            Ok(differing)
        })?;
        differing.sort();
        Ok(differing)
    }

    fn check_room(&self, folder: &Path) -> Result<(), DataSetError> {
        let found = rustix::fs::statvfs(folder).map_err(|error| host("look at", folder)(error.into()))?;
        let free = found.f_bavail.saturating_mul(found.f_frsize);
        let needed = self.bytes() + self.file_count() * FILE_OVERHEAD_BYTES;
        if needed > free {
            let (needed, free) = (needed / 1_000_000, free / 1_000_000);
            return Err(DataSetError::NoRoom { folder: folder.to_owned(), needed, free });
        }
        Ok(())
    }

    /// Numbers of the files in a folder.
    fn numbers_of(&self, folder: u64) -> std::ops::Range<u64> {
        let files = self.kind.files_in_folder();
        folder * files..((folder + 1) * files).min(self.file_count())
    }

    /// Does something for each folder, in as many threads as there are cores, and joins what comes of it.
    fn each_folder<T: Send>(&self, watch: &DataSetWatch, work: &Work<'_, T>) -> Result<Vec<T>, DataSetError> {
        let folders = self.file_count().div_ceil(self.kind.files_in_folder());
        let next = AtomicU64::new(0);
        let each = || {
            let mut buffer = vec![0; 1 << 20];
            let mut all = Vec::new();
            loop {
                let number = next.fetch_add(1, Ordering::Relaxed);
                if number >= folders {
                    return Ok(all);
                }
                all.extend(work(number, &mut buffer).inspect_err(|_| {
                    // Others need not go on.
                    next.store(folders, Ordering::Relaxed);
                })?);
            }
        };
        let cores = thread::available_parallelism().map_or(1, usize::from);
        let mut all = Vec::new();
        thread::scope(|scope| {
            let threads: Vec<_> = (0..cores).map(|_| scope.spawn(each)).collect();
            for thread in threads {
                match thread.join() {
                    Ok(part) => all.extend(part?),
                    Err(panic) => std::panic::resume_unwind(panic),
                }
            }
            Ok(())
        })?;
        if watch.stop.load(Ordering::Relaxed) { Err(DataSetError::Stopped) } else { Ok(all) }
    }

    fn make_folder(
        &self,
        folder: &Path,
        number: u64,
        buffer: &mut [u8],
        watch: &DataSetWatch,
    ) -> Result<Vec<()>, DataSetError> {
        let path = folder.join(self.folder_path(number));
        fs::create_dir(&path).map_err(host("make", &path))?;
        for number in self.numbers_of(number) {
            if watch.stop.load(Ordering::Relaxed) {
                return Err(DataSetError::Stopped);
            }
            let path = folder.join(self.file_path(number));
            self.make_file(&path, number, buffer).map_err(host("write", &path))?;
            self.count(number, watch);
        }
        Ok(Vec::new())
    }

    fn length(&self, number: u64) -> usize {
        self.lengths.get(number as usize).map_or(0, |length| *length as usize)
    }

    fn count(&self, number: u64, watch: &DataSetWatch) {
        watch.files.fetch_add(1, Ordering::Relaxed);
        watch.bytes.fetch_add(self.length(number) as u64, Ordering::Relaxed);
    }

    fn make_file(&self, path: &Path, number: u64, buffer: &mut [u8]) -> io::Result<()> {
        let mut content = Content::new(self.seed, number, self.ratio);
        let mut left = self.length(number);
        let mut file = File::create_new(path)?;
        while left > 0 {
            let part = left.min(buffer.len());
            content.fill(&mut buffer[..part]);
            file.write_all(&buffer[..part])?;
            left -= part;
        }
        Ok(())
    }

    fn is_as_made(&self, path: &Path, number: u64, buffer: &mut [u8]) -> bool {
        let mut content = Content::new(self.seed, number, self.ratio);
        let mut left = self.length(number);
        let Ok(mut file) = File::open(path) else { return false };
        let mut found = vec![0; left.min(buffer.len())];
        while left > 0 {
            let part = left.min(buffer.len());
            content.fill(&mut buffer[..part]);
            if file.read_exact(&mut found[..part]).is_err() || found[..part] != buffer[..part] {
                return false;
            }
            left -= part;
        }
        matches!(file.read(&mut [0; 1]), Ok(0))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests fail by panicking")]
    use super::*;

    fn plan(shape: Shape) -> DataSet {
        DataSet::plan(&shape).unwrap()
    }

    #[test]
    fn lengths_keep_to_their_kind() {
        let small = plan(Shape::of_files(Kind::Small, 10_000, 1));
        assert!(small.lengths.iter().all(|length| (4096..=16_384).contains(length)));
        let mean = small.bytes() / small.file_count();
        assert!((10_000..10_500).contains(&mean), "mean of {mean}");

        let typical = plan(Shape::of_bytes(Kind::Typical, 40 << 30, 1));
        assert_eq!(typical.bytes(), 40 << 30);
        let (last, others) = typical.lengths.split_last().unwrap();
        assert!(others.iter().all(|length| (64 << 10..=64 << 20).contains(length)));
        assert!(*last <= 64 << 20);
    }

    #[test]
    fn a_set_is_found_as_it_was_made_and_damage_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let set = plan(Shape::of_files(Kind::Small, 1500, 7));
        let watch = DataSetWatch::default();
        set.make(folder.path(), &watch).unwrap();
        assert_eq!((watch.files.into_inner(), watch.bytes.into_inner()), (1500, set.bytes()));
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 3);
        let check = || set.check(folder.path(), &DataSetWatch::default()).unwrap();
        assert_eq!(check(), [] as [PathBuf; 0]);
        let (changed, longer, gone) = (set.file_path(3), set.file_path(700), set.file_path(1499));
        let mut bytes = fs::read(folder.path().join(&changed)).unwrap();
        bytes[4000] ^= 1;
        fs::write(folder.path().join(&changed), bytes).unwrap();
        let mut bytes = fs::read(folder.path().join(&longer)).unwrap();
        bytes.push(0);
        fs::write(folder.path().join(&longer), bytes).unwrap();
        fs::remove_file(folder.path().join(&gone)).unwrap();
        assert_eq!(check(), [changed, longer, gone]);
    }

    #[test]
    fn a_folder_with_something_in_it_is_left_alone() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("mine"), "").unwrap();
        let set = plan(Shape::of_files(Kind::Small, 1, 1));
        let error = set.make(folder.path(), &DataSetWatch::default()).unwrap_err();
        assert!(error.to_string().contains("is not empty"), "{error}");
        assert!(folder.path().join("mine").exists());
    }

    #[test]
    fn what_is_stopped_or_has_no_room_leaves_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let watch = DataSetWatch::default();
        watch.stop.store(true, Ordering::Relaxed);
        let stopped = plan(Shape::of_files(Kind::Small, 2000, 1)).make(folder.path(), &watch).unwrap_err();
        assert!(matches!(stopped, DataSetError::Stopped), "{stopped}");
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
        let huge = plan(Shape::of_bytes(Kind::Typical, 1 << 44, 1));
        let new = folder.path().join("new");
        let refused = huge.make(&new, &DataSetWatch::default()).unwrap_err();
        assert!(matches!(refused, DataSetError::NoRoom { .. }), "{refused}");
        assert!(!new.exists());
    }

    #[test]
    fn what_has_no_end_is_no_set() {
        let refused = |shape: Shape| DataSet::plan(&shape).unwrap_err().to_string();
        let shape = Shape::of_files(Kind::Small, 1, 1);
        assert!(refused(Shape { files: None, ..shape }).contains("say which"));
        assert!(refused(Shape { files: Some(0), ..shape }).contains("nothing"));
        assert!(refused(Shape { ratio: 11.0, ..shape }).contains("10:1"));
    }
}
