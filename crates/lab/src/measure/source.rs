//! What a source can give to bare readers: no pax, no blocks, no drive.
//!
//! A tree is listed once, as a backup lists it (`list`). Then readers take its files from the front, each file by one
//! reader, for as long as a round lasts. A device, or one large file, is read in as many ranges as there are readers. A
//! round that is to be cold begins with what it will read being dropped from the page cache. Holes are neither read nor
//! counted.

mod list;

use std::fs::{self, File};
use std::io;
use std::ops::ControlFlow;
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Instant;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use list::{Forgetting, data_from, data_len, each_file, may_have_holes};

use super::course::Limits;
use super::unfinished::{Unfinished, ended};
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
#[derive(Debug, Clone, PartialEq, Eq)]
struct Piece {
    path: PathBuf,
    from: u64,
    end: u64,
    /// Bytes of data in it, without holes.
    len: u64,
    is_sparse: bool,
}

enum Source {
    Tree(Vec<Piece>),
    Device { path: PathBuf, len: u64, is_sparse: bool },
}

/// Lists the files of a tree that hold data, at most a million.
fn list(path: &Path, stop: &AtomicBool) -> Result<Vec<Piece>, SourceRateError> {
    let mut pieces = Vec::new();
    each_file(path, stop, |file| {
        let len = if file.is_sparse { data_len(&file.path, 0, file.len) } else { file.len };
        if len > 0 {
            pieces.push(Piece { path: file.path, from: 0, end: file.len, len, is_sparse: file.is_sparse });
        }
        if pieces.len() < FILES_MAX { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
    })?;
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
    let is_sparse = metadata.is_file() && may_have_holes(&metadata);
    if len == 0 || is_sparse && data_len(path, 0, len) == 0 {
        return Err(empty());
    }
    Ok(Source::Device { path: path.to_owned(), len, is_sparse })
}

impl Source {
    /// What so many readers read: files, or ranges of a device.
    fn pieces(&self, readers: u32) -> Vec<Piece> {
        match self {
            Self::Tree(pieces) => pieces.clone(),
            Self::Device { path, len, is_sparse } => {
                let (len, is_sparse) = (*len, *is_sparse);
                let each = len.div_ceil(u64::from(readers)).next_multiple_of(1 << 20);
                let ranges = (0..u64::from(readers)).map(|at| (at * each, (at * each).saturating_add(each).min(len)));
                let filled = ranges.filter(|(from, end)| from < end);
                filled
                    .map(|(from, end)| {
                        let data = if is_sparse { data_len(path, from, end) } else { end - from };
                        Piece { path: path.clone(), from, end, len: data, is_sparse }
                    })
                    .collect()
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

/// Makes these files as cold as they are to be.
fn make_cold<'a>(
    cache: Cache,
    mut paths: impl Iterator<Item = &'a Path>,
    stop: &AtomicBool,
) -> Result<(), SourceRateError> {
    match cache {
        Cache::Warm | Cache::Direct => Ok(()),
        Cache::Dropped => drop_all_caches(),
        Cache::Cold => {
            let mut forgetting = Forgetting::default();
            paths.try_for_each(|path| {
                if stop.load(Ordering::Relaxed) {
                    return Err(SourceRateError::Stopped);
                }
                forgetting.file(path);
                Ok(())
            })
        }
    }
}

/// The same for all files of a tree.
pub(crate) fn make_tree_cold(cache: Cache, tree: &Path, stop: &AtomicBool) -> Result<(), SourceRateError> {
    if cache != Cache::Cold {
        return make_cold(cache, std::iter::empty(), stop);
    }
    let mut forgetting = Forgetting::default();
    each_file(tree, stop, |file| {
        forgetting.file(&file.path);
        ControlFlow::Continue(())
    })
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
        let bytes_read = read_piece(piece, &file, buffer, round, &over)?;
        round.files.fetch_add(1, Ordering::Relaxed);
        let class = CLASSES.iter().position(|up_to| piece.len <= *up_to).unwrap_or(CLASSES.len() - 1);
        let [files, bytes, ns] = &round.classes[class];
        files.fetch_add(1, Ordering::Relaxed);
        bytes.fetch_add(bytes_read, Ordering::Relaxed);
        ns.fetch_add(began.elapsed().as_nanos() as u64, Ordering::Relaxed);
    }
    Ok(())
}

/// Reads the data of one piece, and gives how much that was.
fn read_piece(
    piece: &Piece,
    file: &File,
    buffer: &mut [u8],
    round: &Round,
    over: &impl Fn() -> bool,
) -> Result<u64, SourceRateError> {
    let mut sum = 0;
    let (mut at, mut data_end) = (piece.from, if piece.is_sparse { piece.from } else { piece.end });
    while !over() {
        if at >= data_end {
            let stretch = if at < piece.end { data_from(file, at, piece.end) } else { None };
            let Some(stretch) = stretch else { break };
            (at, data_end) = stretch;
        }
        // Direct reads are of whole blocks; what lies behind the piece does not count.
        let left = data_end - at;
        let wanted = usize::try_from(left.next_multiple_of(ALIGNMENT as u64)).unwrap_or(usize::MAX).min(buffer.len());
        let got = rustix::io::pread(file, &mut buffer[..wanted], at);
        let got = got.map_err(|error| unreadable(&piece.path)(error.into()))?;
        let got = (got as u64).min(left);
        if got == 0 {
            // It was cut since it was listed.
            break;
        }
        at += got;
        sum += got;
        round.bytes.fetch_add(got, Ordering::Relaxed);
    }
    Ok(sum)
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
    make_cold(reading.cache, pieces.iter().map(|piece| &*piece.path), stop)?;
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

impl Reading {
    /// Whether a source can be read so.
    ///
    /// # Errors
    /// [`SourceRateError::Option`].
    pub fn check(&self) -> Result<(), SourceRateError> {
        let option = |what| Err(SourceRateError::Option { what });
        if self.readers.is_empty() || self.readers.iter().any(|readers| !(1..=1024).contains(readers)) {
            return option("a source is read by 1 to 1024 readers");
        }
        if !self.block_len.is_multiple_of(ALIGNMENT) || !(ALIGNMENT..=64 << 20).contains(&self.block_len) {
            return option("reads are multiples of 4 KiB, up to 64 MiB");
        }
        if self.rounds == 0 || !SECONDS.contains(&self.seconds) {
            return option("there is at least one round, and it lasts 0.05 s to a day");
        }
        Ok(())
    }
}

/// Measures a source; `tell` hears of each number of readers when it is done.
///
/// # Errors
/// [`SourceRateError`]: the source cannot be read or holds nothing, the machine's caches cannot be dropped, a number
/// cannot be, or it was stopped; with the numbers of readers that were measured before.
pub fn measure_source(
    path: &Path,
    reading: &Reading,
    stop: &AtomicBool,
    tell: &mut dyn FnMut(&ReaderRate),
) -> Result<SourceRates, Unfinished<SourceRates, SourceRateError>> {
    reading.check()?;
    let source = open_source(path, stop)?;
    let (files, mb) = match &source {
        Source::Tree(pieces) => (pieces.len() as u64, pieces.iter().map(|piece| piece.len as f64 / 1e6).sum()),
        Source::Device { .. } => (1, source.pieces(1).iter().map(|piece| piece.len as f64 / 1e6).sum()),
    };
    let mut found = SourceRates {
        source: path.to_owned(),
        device: device_of(path),
        files,
        mb,
        whole: files < FILES_MAX as u64,
        block_len: reading.block_len,
        cache: reading.cache,
        rates: Vec::new(),
        classes: Vec::new(),
    };
    let mut measure = |readers: &u32| measure_readers(&source, *readers, reading, &mut found, stop, tell);
    let failed = reading.readers.iter().try_for_each(&mut measure).err();
    let is_empty = found.rates.is_empty();
    ended(found, is_empty, failed)
}

/// Measures one number of readers, and adds what they got.
fn measure_readers(
    source: &Source,
    readers: u32,
    reading: &Reading,
    found: &mut SourceRates,
    stop: &AtomicBool,
    tell: &mut dyn FnMut(&ReaderRate),
) -> Result<(), SourceRateError> {
    let pieces = source.pieces(readers);
    let (mut mb_per_s, mut files_per_s, mut cpu_s_per_mb) = (Vec::new(), Vec::new(), Vec::new());
    if reading.cache == Cache::Warm {
        read_round(&pieces, readers, reading, stop)?;
    }
    for _ in 0..reading.rounds {
        let rates = read_round(&pieces, readers, reading, stop)?;
        if rates.round.bytes.load(Ordering::Relaxed) == 0 {
            return Err(SourceRateError::Nothing { path: found.source.clone() });
        }
        mb_per_s.push(rates.mb_per_s);
        files_per_s.push(rates.files_per_s);
        cpu_s_per_mb.push(rates.cpu_s_per_mb);
        if found.rates.is_empty() {
            found.classes = classes_of(&rates.round);
        }
    }
    let spread = |rounds| Spread::of_rounds(rounds).unwrap_or(Spread::exactly(0.0));
    let cpu_s_per_mb = spread(cpu_s_per_mb).median;
    let rate = ReaderRate { readers, mb_per_s: spread(mb_per_s), files_per_s: spread(files_per_s), cpu_s_per_mb };
    tell(&rate);
    found.rates.push(rate);
    Ok(())
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
