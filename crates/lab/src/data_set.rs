//! Seeded data sets, shaped like those of the published staging measurements, or as a person says.
//!
//! *Small*: files of 4 to 16 KB, 690 in a folder. *Typical*: files of 64 KB to 64 MB, 200 in a folder, lengths even on
//! a logarithmic scale. Both shrink to half, under a dictionary coder and at every scale from one 4 KB file to the
//! whole set: half of what looks like it should shrink does so by repeating earlier bytes of the same file, the rest is
//! noise. (Bytes of four bits' entropy each would halve under Huffman coding only; files cut from one text would shrink
//! the more of them a compressor or a deduplicating peer sees at once.)
//!
//! What else can be said of a set: lengths of one's own, a ratio for each MB, names that programs stumble over, and how
//! wide and deep its tree is. Whatever it is to shrink by, [`DataSet::shrink`] finds out whether it does.
//!
//! A file's bytes follow from the seed and its number alone, so threads make them in any order.

mod content;
mod differ;
mod found;
mod noise;
mod shape;
mod tree;

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;

use content::{Content, Runs};
pub use differ::Differs;
pub use found::Shrunk;
pub(crate) use noise::Noise;
use shape::FILES_MAX;
pub use shape::{DataSetError, FileLengths, Names, Ratio, Shape};
use tree::Tree;

/// A block of so many bytes that shrink to one part in `ratio`.
pub(crate) fn block(len: usize, ratio: f64) -> Vec<u8> {
    let mut block = vec![0; len];
    Content::new(1, 1, Ratio::EachFile(ratio), Runs::Drawn).fill(&mut block);
    block
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
    seed: u64,
    ratio: Ratio,
    runs: Runs,
    lengths: Vec<u64>,
    tree: Tree,
}

/// What is done for a folder, by its number, with a buffer to do it in.
type Work<'a, T> = dyn Fn(u64, &mut [u8]) -> Result<Vec<T>, DataSetError> + Sync + 'a;

/// Bytes that are made at a time, and of a file that shrink alike.
const MB: u64 = 1 << 20;
/// What a file system gives out at a time, bytes.
const PAGE_BYTES: u64 = 4096;
/// What a file takes besides its pages, bytes: an inode, and a name of the longest.
const FILE_OVERHEAD_BYTES: u64 = 256 + 264;
/// Bytes that a path may have on Linux, without the zero behind it.
const PATH_BYTES_MAX: usize = 4095;

impl DataSet {
    /// Chooses lengths until `files` or `bytes`, whichever is given and comes first, is full.
    ///
    /// # Errors
    /// [`DataSetError::Shape`] if such a set would be empty, would have too many files, or cannot be.
    pub fn plan(shape: &Shape) -> Result<Self, DataSetError> {
        shape.check()?;
        let Shape { kind, files, bytes, ratio, seed, .. } = *shape;
        let mut noise = Noise::new(seed);
        let mut left = bytes.unwrap_or(u64::MAX);
        let mut lengths = Vec::new();
        while left > 0 && files.is_none_or(|files| (lengths.len() as u64) < files) {
            let length = kind.file_bytes(&mut noise).min(left);
            left -= length;
            lengths.push(length);
            if lengths.len() as u64 > FILES_MAX {
                let what =
                    "a data set has at most 100 million files: ask for fewer bytes, or for longer files".to_owned();
                return Err(DataSetError::Shape { what });
            }
        }
        if lengths.is_empty() {
            return Err(DataSetError::Shape {
                what: "a data set of nothing is none: ask for one file at least".to_owned(),
            });
        }
        let tree = Tree::new(shape, lengths.len() as u64);
        let runs = match (kind, ratio) {
            (FileLengths::Small | FileLengths::Typical, Ratio::EachFile(_)) => Runs::Drawn,
            _ => Runs::Fitted,
        };
        Ok(Self { seed, ratio, runs, lengths, tree })
    }

    /// How many files.
    pub fn file_count(&self) -> u64 {
        self.lengths.len() as u64
    }

    /// Bytes of all files.
    pub fn bytes(&self) -> u64 {
        self.lengths.iter().fold(0, |sum, &length| sum.saturating_add(length))
    }

    /// A file's path below the folder of the set.
    pub fn file_path(&self, number: u64) -> PathBuf {
        self.tree.file_path(number)
    }

    /// The first file, from the middle on, that is about so long.
    pub fn number_of_length(&self, bytes: u32) -> u64 {
        let middle = self.lengths.len() / 2;
        let bytes = u64::from(bytes);
        let near = |length: &u64| length.abs_diff(bytes) <= bytes / 20;
        (middle + self.lengths[middle..].iter().position(near).unwrap_or(0)) as u64
    }

    /// Writes the set with as many threads as there are cores. What was made is removed if it cannot be made whole.
    ///
    /// # Errors
    /// [`DataSetError::NotEmpty`], [`DataSetError::LongPaths`], [`DataSetError::NoRoom`] and [`DataSetError::NoInodes`]
    /// before anything is written; else a file cannot be written, or it was stopped.
    pub fn make(&self, folder: &Path, watch: &DataSetWatch) -> Result<(), DataSetError> {
        if fs::read_dir(folder).is_ok_and(|mut entries| entries.next().is_some()) {
            return Err(DataSetError::NotEmpty { folder: folder.to_owned() });
        }
        let longest = folder.as_os_str().len() + 1 + self.tree.longest_path();
        if longest > PATH_BYTES_MAX {
            return Err(DataSetError::LongPaths { longest, most: PATH_BYTES_MAX });
        }
        let was_there = folder.exists();
        fs::create_dir_all(folder).map_err(host("make", folder))?;
        let made = self.check_room(folder).and_then(|()| {
            self.each_folder(watch, &|number, buffer| self.make_folder(folder, number, buffer, watch)).map(|_| ())
        });
        if made.is_err() {
            // The folder was empty: everything in it is ours. What cannot be removed is less bad than why the set was
            // not made.
            let _ = fs::remove_dir_all(folder);
            if was_there {
                let _ = fs::create_dir(folder);
            }
        }
        made
    }

    /// Brings all of a folder to the disk: what was made is in memory only, and its rate that of memory.
    ///
    /// # Errors
    /// The folder cannot be opened, or its disk cannot be written.
    pub fn flush(folder: &Path) -> Result<(), DataSetError> {
        let flushed = File::open(folder).and_then(|file| Ok(rustix::fs::syncfs(file)?));
        flushed.map_err(host("flush", folder))
    }

    fn check_room(&self, folder: &Path) -> Result<(), DataSetError> {
        let found = rustix::fs::statvfs(folder).map_err(|error| host("look at", folder)(error.into()))?;
        let free = found.f_bavail.saturating_mul(found.f_frsize);
        let pages = self.lengths.iter().fold(0_u64, |sum, length| sum.saturating_add(length.div_ceil(PAGE_BYTES)));
        let entries = self.file_count() + self.tree.all_folders();
        let needed = pages.saturating_add(self.tree.all_folders()).saturating_mul(PAGE_BYTES);
        let needed = needed.saturating_add(entries * FILE_OVERHEAD_BYTES);
        if needed > free {
            let (needed, free) = (needed / 1_000_000, free / 1_000_000);
            return Err(DataSetError::NoRoom { folder: folder.to_owned(), needed, free });
        }
        // File systems that make inodes as they are needed say that they have none at all.
        if found.f_files > 0 && found.f_favail < entries {
            let (folder, free) = (folder.to_owned(), found.f_favail);
            return Err(DataSetError::NoInodes { folder, needed: entries, free });
        }
        Ok(())
    }

    /// Does something for each folder, in as many threads as there are cores, and joins what comes of it.
    fn each_folder<T: Send>(&self, watch: &DataSetWatch, work: &Work<'_, T>) -> Result<Vec<T>, DataSetError> {
        let folders = self.tree.folders();
        let next = AtomicU64::new(0);
        let each = || {
            let mut buffer = vec![0; MB as usize];
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
        let path = folder.join(self.tree.folder_path(number));
        fs::create_dir_all(&path).map_err(host("make", &path))?;
        for number in self.tree.files_of(number) {
            if watch.stop.load(Ordering::Relaxed) {
                return Err(DataSetError::Stopped);
            }
            let path = folder.join(self.file_path(number));
            self.make_file(&path, number, buffer, watch)?;
            self.count(number, watch);
        }
        Ok(Vec::new())
    }

    fn length(&self, number: u64) -> u64 {
        self.lengths.get(number as usize).copied().unwrap_or(0)
    }

    fn content(&self, number: u64) -> Content {
        Content::new(self.seed, number, self.ratio, self.runs)
    }

    fn count(&self, number: u64, watch: &DataSetWatch) {
        watch.files.fetch_add(1, Ordering::Relaxed);
        watch.bytes.fetch_add(self.length(number), Ordering::Relaxed);
    }

    fn make_file(&self, path: &Path, number: u64, buffer: &mut [u8], watch: &DataSetWatch) -> Result<(), DataSetError> {
        let mut content = self.content(number);
        let mut left = self.length(number);
        let mut file = File::create_new(path).map_err(host("write", path))?;
        while left > 0 {
            // A file may take minutes.
            if watch.stop.load(Ordering::Relaxed) {
                return Err(DataSetError::Stopped);
            }
            let part = left.min(buffer.len() as u64) as usize;
            content.fill(&mut buffer[..part]);
            file.write_all(&buffer[..part]).map_err(host("write", path))?;
            left -= part as u64;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
