//! What a source can give to bare readers: no pax, no blocks, no drive.
//!
//! A tree is listed once. Then readers take its files from the front, each file by one reader, for as long as a round
//! lasts. A device, or one large file, is read in as many ranges as there are readers. A round that is to be cold
//! begins with what it will read being dropped from the page cache.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Instant;

use rustix::fs::{Advice, fadvise};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use walkdir::WalkDir;

use super::course::Limits;
use super::{SECONDS, Spread, device_of, processor_s};

/// Most files that are listed: a source's rate shows long before.
const FILES_MAX: usize = 1_000_000;
/// Flag of an open file that is read past the page cache.
const DIRECT: i32 = rustix::fs::OFlags::DIRECT.bits() as i32;
/// What direct reads begin and end at.
const ALIGNMENT: usize = 4096;
/// Lengths up to which files are of one class, bytes.
const CLASSES: [u64; 6] = [4 << 10, 16 << 10, 64 << 10, 1 << 20, 16 << 20, u64::MAX];

/// Where what is read is to be found.
#[derive(Debug, Clone, Copy, PartialEq, Eq, JsonSchema, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[schemars(rename = "ReadFrom")]
pub enum Cache {
    /// In the page cache, if it was read before.
    Warm,
    /// Not in the page cache: its content is dropped before. What is known of names stays.
    Cold,
    /// Nowhere in memory: all that the machine caches is dropped before. That slows whatever else runs, and only root
    /// may.
    Dropped,
    /// Past the page cache.
    Direct,
}

impl Cache {
    /// A word for it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Warm => "warm",
            Self::Cold => "cold",
            Self::Dropped => "dropped",
            Self::Direct => "direct",
        }
    }
}

/// How a source is read.
#[derive(Debug, Clone, PartialEq)]
pub struct Reading {
    /// Numbers of readers, each measured.
    pub readers: Vec<u32>,
    /// Bytes of a read.
    pub block_len: usize,
    /// Where it is to be found.
    pub cache: Cache,
    /// Rounds of each.
    pub rounds: u32,
    /// Seconds that a round lasts, if it goes steadily by then.
    pub seconds: f64,
    /// Seconds that a round lasts at most, if that is more: a slow source takes longer to show what it gives.
    pub seconds_max: f64,
}

/// What so many readers got.
#[derive(Debug, Clone, PartialEq, JsonSchema, Serialize, Deserialize)]
pub struct ReaderRate {
    /// How many read.
    pub readers: u32,
    /// MB/s.
    pub mb_per_s: Spread,
    /// Files a second.
    pub files_per_s: Spread,
    /// Seconds of processors for each MB.
    pub cpu_s_per_mb: f64,
}

/// What files of about one length cost a reader.
#[derive(Debug, Clone, Copy, PartialEq, JsonSchema, Serialize, Deserialize)]
pub struct ClassRate {
    /// Files up to so many bytes, and longer than those of the class before.
    pub up_to_bytes: u64,
    /// How many were read.
    pub files: u64,
    /// What one reader got of them, MB/s.
    pub mb_per_s: f64,
    /// What one of them took, ms.
    pub ms_a_file: f64,
}

/// What a source gave.
#[derive(Debug, Clone, PartialEq, JsonSchema, Serialize, Deserialize)]
pub struct SourceRates {
    /// The source.
    #[serde(with = "crate::site::path_text")]
    #[schemars(with = "String")]
    pub source: PathBuf,
    /// The device that it lies on, or is; 0 if that is not known.
    #[serde(default)]
    pub device: u64,
    /// Files that it has, or the first of them; 1 for a device.
    pub files: u64,
    /// MB of these.
    pub mb: f64,
    /// Whether these are all: the list ends after a million.
    #[serde(default)]
    pub whole: bool,
    /// Bytes of a read.
    pub block_len: usize,
    /// Where it was found.
    pub cache: Cache,
    /// By the number of readers.
    pub rates: Vec<ReaderRate>,
    /// By the length of files, with the first number of readers.
    pub classes: Vec<ClassRate>,
}

/// Why a source could not be measured.
#[derive(Debug, thiserror::Error)]
pub enum SourceRateError {
    /// It cannot be read.
    #[error("cannot read {}: {source}", path.display())]
    Unreadable {
        /// The path.
        path: PathBuf,
        /// Why not.
        source: io::Error,
    },
    /// There is nothing to read.
    #[error("{} holds no file with anything in it: name a source that does", path.display())]
    Empty {
        /// The source.
        path: PathBuf,
    },
    /// Nothing of it could be read.
    #[error("nothing of {} could be read: see whether you may read it, or let rounds last longer", path.display())]
    Nothing {
        /// The source.
        path: PathBuf,
    },
    /// The machine's caches cannot be dropped.
    #[error("what the machine caches cannot be dropped ({source}): run it as root, or take --cache cold")]
    Caches {
        /// Why not.
        source: io::Error,
    },
    /// A number that cannot be.
    #[error("{what}")]
    Option {
        /// What is wrong.
        what: &'static str,
    },
    /// It was stopped.
    #[error("stopped")]
    Stopped,
}

fn unreadable(path: &Path) -> impl FnOnce(io::Error) -> SourceRateError {
    let path = path.to_owned();
    move |source| SourceRateError::Unreadable { path, source }
}

/// A file, or a range of a device, and how much of it there is.
struct Piece {
    path: PathBuf,
    from: u64,
    len: u64,
}

enum Source {
    Tree(Vec<Piece>),
    Device(PathBuf, u64),
}

/// Lists the files of a tree that hold something, with their lengths, at most a million.
fn list(path: &Path, stop: &AtomicBool) -> Result<Vec<Piece>, SourceRateError> {
    let mut pieces = Vec::new();
    for entry in WalkDir::new(path).same_file_system(true) {
        if stop.load(Ordering::Relaxed) {
            return Err(SourceRateError::Stopped);
        }
        // A directory that may not be looked into is left out here, and reported where it is backed up.
        let Ok(entry) = entry else { continue };
        let length = entry.metadata().map(|metadata| if metadata.is_file() { metadata.len() } else { 0 });
        if let Ok(len @ 1..) = length {
            pieces.push(Piece { path: entry.into_path(), from: 0, len });
        }
        if pieces.len() == FILES_MAX {
            break;
        }
    }
    Ok(pieces)
}

fn open_source(path: &Path, stop: &AtomicBool) -> Result<Source, SourceRateError> {
    let metadata = fs::metadata(path).map_err(unreadable(path))?;
    let empty = || SourceRateError::Empty { path: path.to_owned() };
    if metadata.is_dir() {
        let pieces = list(path, stop)?;
        return if pieces.is_empty() { Err(empty()) } else { Ok(Source::Tree(pieces)) };
    }
    let mut len = metadata.size();
    if metadata.file_type().is_block_device() {
        let file = File::open(path).map_err(unreadable(path))?;
        len = rustix::fs::seek(&file, rustix::fs::SeekFrom::End(0)).map_err(|error| unreadable(path)(error.into()))?;
    }
    if len == 0 { Err(empty()) } else { Ok(Source::Device(path.to_owned(), len)) }
}

impl Source {
    /// What so many readers read: files, or ranges of a device.
    fn pieces(&self, readers: u32) -> Vec<Piece> {
        let copy = |piece: &Piece| Piece { path: piece.path.clone(), from: piece.from, len: piece.len };
        match self {
            Self::Tree(pieces) => pieces.iter().map(copy).collect(),
            Self::Device(path, len) => {
                let each = len.div_ceil(u64::from(readers)).next_multiple_of(1 << 20);
                let ranges = (0..u64::from(readers)).map(|at| (at * each, each.min(len.saturating_sub(at * each))));
                let filled = ranges.filter(|(_, len)| *len > 0);
                filled.map(|(from, len)| Piece { path: path.clone(), from, len }).collect()
            }
        }
    }
}

/// Drops all that the kernel caches, names and inodes too.
fn drop_all_caches() -> Result<(), SourceRateError> {
    const SWITCH: &str = "/proc/sys/vm/drop_caches";
    rustix::fs::sync();
    fs::write(SWITCH, "3").map_err(|source| SourceRateError::Caches { source })
}

/// Drops the content of one file from the page cache. One that cannot be opened is not in it by us.
fn forget_pages(path: &Path) {
    if let Ok(file) = File::open(path) {
        let _ = fadvise(&file, 0, None, Advice::DontNeed);
    }
}

/// Makes these files as cold as they are to be.
fn make_cold<'a>(cache: Cache, paths: impl Iterator<Item = &'a Path>) -> Result<(), SourceRateError> {
    match cache {
        Cache::Warm | Cache::Direct => {}
        Cache::Cold => paths.for_each(forget_pages),
        Cache::Dropped => drop_all_caches()?,
    }
    Ok(())
}

/// The same for all files of a tree.
pub(crate) fn make_tree_cold(cache: Cache, tree: &Path) -> Result<(), SourceRateError> {
    if cache != Cache::Cold {
        return make_cold(cache, std::iter::empty());
    }
    let files = WalkDir::new(tree).into_iter().filter_map(Result::ok).filter(|entry| entry.file_type().is_file());
    files.for_each(|entry| forget_pages(entry.path()));
    Ok(())
}

#[derive(Default)]
struct Round {
    /// Set when no more is to be read.
    over: AtomicBool,
    bytes: AtomicU64,
    files: AtomicU64,
    /// Files, bytes and nanoseconds of each class.
    classes: [[AtomicU64; 3]; CLASSES.len()],
}

/// One reader: takes pieces until there are none, or the time is over.
fn read_pieces(
    pieces: &[Piece],
    next: &AtomicU64,
    reading: &Reading,
    round: &Round,
    stop: &AtomicBool,
) -> Result<(), SourceRateError> {
    let over = || round.over.load(Ordering::Relaxed) || stop.load(Ordering::Relaxed);
    // Direct reads want an aligned buffer, and it does the others no harm.
    let mut memory = vec![0_u8; reading.block_len + ALIGNMENT];
    let skip = memory.as_ptr().align_offset(ALIGNMENT);
    let buffer = &mut memory[skip..skip + reading.block_len];
    while !over() {
        let Some(piece) = pieces.get(next.fetch_add(1, Ordering::Relaxed) as usize) else { return Ok(()) };
        let began = Instant::now();
        let flags = if reading.cache == Cache::Direct { DIRECT } else { 0 };
        let opened = File::options().read(true).custom_flags(flags).open(&piece.path);
        let file = match opened {
            Ok(file) => file,
            // It went since it was listed, or is not for us: the backup reports it.
            Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::PermissionDenied) => continue,
            Err(error) => return Err(unreadable(&piece.path)(error)),
        };
        let mut at = 0;
        while at < piece.len {
            if over() {
                break;
            }
            let got = rustix::io::pread(&file, &mut *buffer, piece.from + at);
            match got.map_err(|error| unreadable(&piece.path)(error.into()))? {
                // It was cut since it was listed.
                0 => break,
                got => {
                    at += got as u64;
                    round.bytes.fetch_add(got as u64, Ordering::Relaxed);
                }
            }
        }
        round.files.fetch_add(1, Ordering::Relaxed);
        let class = CLASSES.iter().position(|up_to| piece.len <= *up_to).unwrap_or(CLASSES.len() - 1);
        let [files, bytes, ns] = &round.classes[class];
        files.fetch_add(1, Ordering::Relaxed);
        bytes.fetch_add(at, Ordering::Relaxed);
        ns.fetch_add(began.elapsed().as_nanos() as u64, Ordering::Relaxed);
    }
    Ok(())
}

/// What a round gave, while it went steadily; of one that read everything, from its beginning to its end.
struct RoundRates {
    round: Round,
    mb_per_s: f64,
    files_per_s: f64,
    cpu_s_per_mb: f64,
}

fn read_round(
    pieces: &[Piece],
    readers: u32,
    reading: &Reading,
    stop: &AtomicBool,
) -> Result<RoundRates, SourceRateError> {
    make_cold(reading.cache, pieces.iter().map(|piece| &*piece.path))?;
    let round = Round::default();
    let next = AtomicU64::new(0);
    let (began, cpu) = (Instant::now(), processor_s());
    let done = AtomicBool::new(false);
    let limits = Limits {
        seconds: reading.seconds,
        seconds_max: reading.seconds_max,
        bytes_enough: 2 * u64::from(readers) * reading.block_len as u64,
    };
    let (read, course) = std::thread::scope(|scope| {
        let watch = scope.spawn(|| limits.watch(&round.bytes, &done, &round.over, stop));
        let read = || read_pieces(pieces, &next, reading, &round, stop);
        let threads: Vec<_> = (0..readers).map(|_| scope.spawn(read)).collect();
        let read = threads.into_iter().try_for_each(|thread| match thread.join() {
            Ok(read) => read,
            Err(panic) => std::panic::resume_unwind(panic),
        });
        done.store(true, Ordering::Relaxed);
        (read, watch.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
    });
    read?;
    if stop.load(Ordering::Relaxed) {
        return Err(SourceRateError::Stopped);
    }
    let mb = round.bytes.load(Ordering::Relaxed) as f64 / 1e6;
    let cut = if round.over.load(Ordering::Relaxed) { course.steady() } else { None };
    let mb_per_s = cut.map_or(mb / began.elapsed().as_secs_f64(), |steady| steady.rate() / 1e6);
    let files = round.files.load(Ordering::Relaxed) as f64;
    Ok(RoundRates {
        round,
        mb_per_s,
        files_per_s: files * mb_per_s / mb.max(1e-9),
        cpu_s_per_mb: (processor_s() - cpu) / mb.max(1e-6),
    })
}

/// Measures a source; `tell` hears of each number of readers when it is done.
///
/// # Errors
/// [`SourceRateError`]: the source cannot be read or holds nothing, the machine's caches cannot be dropped, a number
/// cannot be, or it was stopped.
pub fn measure_source(
    path: &Path,
    reading: &Reading,
    stop: &AtomicBool,
    tell: &mut dyn FnMut(&ReaderRate),
) -> Result<SourceRates, SourceRateError> {
    if reading.readers.is_empty() || reading.readers.iter().any(|readers| !(1..=1024).contains(readers)) {
        return Err(SourceRateError::Option { what: "a source is read by 1 to 1024 readers" });
    }
    if !reading.block_len.is_multiple_of(ALIGNMENT) || !(ALIGNMENT..=64 << 20).contains(&reading.block_len) {
        return Err(SourceRateError::Option { what: "reads are multiples of 4 KiB, up to 64 MiB" });
    }
    if reading.rounds == 0 || !SECONDS.contains(&reading.seconds) {
        return Err(SourceRateError::Option { what: "there is at least one round, and it lasts 0.05 s to a day" });
    }
    let source = open_source(path, stop)?;
    let mut rates = Vec::new();
    let mut classes = Vec::new();
    for &readers in &reading.readers {
        let pieces = source.pieces(readers);
        let (mut mb_per_s, mut files_per_s, mut cpu_s_per_mb) = (Vec::new(), Vec::new(), Vec::new());
        if reading.cache == Cache::Warm {
            read_round(&pieces, readers, reading, stop)?;
        }
        for _ in 0..reading.rounds {
            let found = read_round(&pieces, readers, reading, stop)?;
            if found.round.bytes.load(Ordering::Relaxed) == 0 {
                return Err(SourceRateError::Nothing { path: path.to_owned() });
            }
            mb_per_s.push(found.mb_per_s);
            files_per_s.push(found.files_per_s);
            cpu_s_per_mb.push(found.cpu_s_per_mb);
            if rates.is_empty() {
                classes = classes_of(&found.round);
            }
        }
        let spread = |rounds| Spread::of_rounds(rounds).unwrap_or(Spread::exactly(0.0));
        let cpu_s_per_mb = spread(cpu_s_per_mb).median;
        let rate = ReaderRate { readers, mb_per_s: spread(mb_per_s), files_per_s: spread(files_per_s), cpu_s_per_mb };
        tell(&rate);
        rates.push(rate);
    }
    let (files, mb) = match &source {
        Source::Tree(pieces) => (pieces.len() as u64, pieces.iter().map(|piece| piece.len as f64 / 1e6).sum()),
        Source::Device(_, len) => (1, *len as f64 / 1e6),
    };
    let Reading { block_len, cache, .. } = *reading;
    let device = device_of(path);
    let whole = files < FILES_MAX as u64;
    Ok(SourceRates { source: path.to_owned(), device, whole, files, mb, block_len, cache, rates, classes })
}

fn classes_of(round: &Round) -> Vec<ClassRate> {
    let rate = |(up_to_bytes, counted): (&u64, &[AtomicU64; 3])| {
        let [files, bytes, ns] = counted.each_ref().map(|counter| counter.load(Ordering::Relaxed));
        let seconds = ns as f64 / 1e9;
        (files > 0 && ns > 0).then(|| ClassRate {
            up_to_bytes: *up_to_bytes,
            files,
            mb_per_s: bytes as f64 / 1e6 / seconds,
            ms_a_file: seconds * 1e3 / files as f64,
        })
    };
    CLASSES.iter().zip(&round.classes).filter_map(rate).collect()
}

#[cfg(test)]
mod tests;
