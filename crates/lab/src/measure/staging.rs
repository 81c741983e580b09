//! What a disk gives as a file library: written by one and many, read, and both at once.
//!
//! Depots are virtual cartridges, written and read as a backup and an object copy write and read them: in large pieces
//! past the page cache, with a flush at the end. What many writers have laid down at once is read again by itself,
//! because a file system may have mixed their pieces: the difference to what one writer has laid down alone is the cost
//! of fragmentation. Depots hold noise, and no two blocks of it are alike: a file system that compresses, or that
//! stores what is alike only once, would otherwise be measured at the rate of memory.
//!
//! A writer and a reader beside each other are measured for as long as both are at work. The one that is done sooner
//! begins anew, until the other is done, too:
//! ```text
//!   writer  |--------- depot ---------|            MB of both count up to here
//!   reader  |-- depot --|-- depot --|-- dep'
//! ```

use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Barrier, Mutex, PoisonError};
use std::time::Instant;

use capstan_format::Volser;
use capstan_tape::{CartridgeDrive, CartridgeSpec, Drive, DriveError, Flush, KeySlotKind, ReadOutcome};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::exercise::block_len_max;
use super::{Scratch, Spread, device_of, free_mb, processor_s};
use crate::data_set::{self, Noise};

/// How a disk is measured.
#[derive(Debug, Clone, PartialEq)]
pub struct Staging {
    /// Numbers of writers, each measured.
    pub writers: Vec<u32>,
    /// Bytes of a block.
    pub block_len: usize,
    /// MB of a depot.
    pub mb: f64,
    /// Rounds of each.
    pub rounds: u32,
}

/// What so many writers got together.
#[derive(Debug, Clone, PartialEq, JsonSchema, Serialize, Deserialize)]
pub struct WriterRate {
    /// How many wrote.
    pub writers: u32,
    /// MB/s, all together.
    pub mb_per_s: Spread,
    /// Seconds of processors for each MB.
    pub cpu_s_per_mb: f64,
}

/// What a disk gave.
#[derive(Debug, Clone, PartialEq, JsonSchema, Serialize, Deserialize)]
pub struct StagingRates {
    /// The folder.
    #[serde(with = "crate::site::path_text")]
    #[schemars(with = "String")]
    pub folder: PathBuf,
    /// The device that it lies on; 0 if that is not known.
    #[serde(default)]
    pub device: u64,
    /// MB that were free on it; 0 if that is not known.
    #[serde(default)]
    pub free_mb: u64,
    /// Bytes of a block.
    pub block_len: usize,
    /// By the number of writers.
    pub write: Vec<WriterRate>,
    /// A depot that was written alone, read, MB/s.
    pub read: Spread,
    /// A depot that was written beside others, read, MB/s.
    pub read_mixed: Spread,
    /// A writer beside a reader, while both are at work, MB/s.
    pub write_beside_read: Spread,
    /// A reader beside a writer, while both are at work, MB/s.
    pub read_beside_write: Spread,
    /// Seconds of processors for each MB that is read alone; for each that is read beside others; and for each of both
    /// a writer and a reader. None in older files.
    #[serde(default)]
    pub cpu_s_per_mb: Option<[f64; 3]>,
}

/// Why a disk could not be measured.
#[derive(Debug, thiserror::Error)]
pub enum StagingError {
    /// A depot.
    #[error(transparent)]
    Drive(#[from] DriveError),
    /// The folder.
    #[error("cannot make a folder below {}: {source}", path.display())]
    Folder {
        /// The folder.
        path: PathBuf,
        /// Why not.
        source: io::Error,
    },
    /// There is not enough room.
    #[error("this takes {needed} MB, and {} has {free} MB left: take smaller depots, or fewer writers", folder.display())]
    NoRoom {
        /// The folder.
        folder: PathBuf,
        /// MB that it takes.
        needed: u64,
        /// MB that are free.
        free: u64,
    },
    /// A number that cannot be.
    #[error("{what}")]
    Option {
        /// What is wrong.
        what: &'static str,
    },
    /// It was stopped.
    #[error("stopped; what was written is removed")]
    Stopped,
}

/// Two that are at work on one disk at the same time: a writer and a reader.
#[derive(Default)]
struct Overlap {
    /// Bytes that each has passed.
    bytes: [AtomicU64; 2],
    /// Set when one of the two failed, or both have passed a depot.
    over: AtomicBool,
    course: Mutex<OverlapCourse>,
}

#[derive(Default)]
struct OverlapCourse {
    began: Option<Instant>,
    passed: [bool; 2],
    /// Seconds until both had passed a depot, and bytes of each by then.
    ended: Option<(f64, [u64; 2])>,
}

/// A pass over a depot: what it counts to, and what ends it early.
struct Pass<'a> {
    bytes: &'a AtomicU64,
    over: &'a AtomicBool,
}

impl Pass<'_> {
    /// Counts a block; false if the pass is to end.
    fn count(&self, len: usize) -> bool {
        self.bytes.fetch_add(len as u64, Ordering::Relaxed);
        !self.over.load(Ordering::Relaxed)
    }
}

impl Overlap {
    /// Has one of the two pass its depot again and again, until the other has passed its own.
    fn work(
        &self,
        side: usize,
        mut pass: impl FnMut(&Pass<'_>) -> Result<(), StagingError>,
    ) -> Result<(), StagingError> {
        let course = || self.course.lock().unwrap_or_else(PoisonError::into_inner);
        course().began.get_or_insert_with(Instant::now);
        while !self.over.load(Ordering::Relaxed) {
            let done = pass(&Pass { bytes: &self.bytes[side], over: &self.over });
            if let Err(error) = done {
                self.over.store(true, Ordering::Relaxed);
                return Err(error);
            }
            let mut course = course();
            course.passed[side] = true;
            if course.passed == [true, true] && course.ended.is_none() {
                let seconds = course.began.map_or(0.0, |began| began.elapsed().as_secs_f64());
                course.ended = Some((seconds, self.bytes.each_ref().map(|bytes| bytes.load(Ordering::Relaxed))));
                self.over.store(true, Ordering::Relaxed);
            }
        }
        Ok(())
    }

    /// MB/s of each while both were at work.
    fn rates(&self) -> Option<[f64; 2]> {
        let (seconds, bytes) = self.course.lock().unwrap_or_else(PoisonError::into_inner).ended?;
        Some(bytes.map(|bytes| bytes as f64 / 1e6 / seconds.max(1e-9)))
    }

    /// MB that both have passed, those of a pass that was not ended included.
    fn mb(&self) -> f64 {
        self.bytes.iter().map(|bytes| bytes.load(Ordering::Relaxed) as f64 / 1e6).sum()
    }
}

struct Depots<'a> {
    folder: &'a Path,
    block_len: usize,
    blocks: u64,
    /// A block of noise.
    noise: Vec<u8>,
    stop: &'a AtomicBool,
}

impl Depots<'_> {
    fn path(&self, name: &str) -> PathBuf {
        self.folder.join(format!("{name}.tape"))
    }

    fn check_stop(&self) -> Result<(), StagingError> {
        if self.stop.load(Ordering::Relaxed) { Err(StagingError::Stopped) } else { Ok(()) }
    }

    /// Makes a depot anew.
    fn create(&self, name: &str) -> Result<(), StagingError> {
        let path = self.path(name);
        let _ = std::fs::remove_file(&path);
        let volser = Volser::new(name).map_err(|_| StagingError::Option { what: "a depot's name is no barcode" })?;
        let capacity_bytes = self.blocks * (self.block_len as u64 + 64) + (64 << 20);
        let generation = "virtual".to_owned();
        CartridgeSpec { volser, capacity_bytes, early_warning_bytes: 1 << 20, generation }.create(&path)?;
        Ok(())
    }

    /// Fills a depot that was made, and flushes it.
    fn fill(&self, name: &str, pass: Option<&Pass<'_>>) -> Result<(), StagingError> {
        let mut drive = CartridgeDrive::new("lab", self.path(name), KeySlotKind::Fitted);
        drive.load()?;
        let mut block = vec![0; self.block_len];
        let depot = name.bytes().fold(0_u64, |all, byte| all.wrapping_mul(257) + u64::from(byte)) << 32;
        for number in 0..self.blocks {
            self.check_stop()?;
            draw(&mut block, &self.noise, depot | number);
            drive.write_block(&block)?;
            if pass.is_some_and(|pass| !pass.count(block.len())) {
                // What it would write now is not counted any more.
                break;
            }
        }
        drive.write_filemarks(1, Flush::Synchronous)?;
        Ok(drive.unload()?)
    }

    /// Writes a depot anew, and gives the seconds to its last flush.
    fn write(&self, name: &str, ready: &Barrier) -> Result<f64, StagingError> {
        let created = self.create(name);
        // Whoever waits for this one must not wait for ever.
        ready.wait();
        created?;
        let began = Instant::now();
        self.fill(name, None)?;
        Ok(began.elapsed().as_secs_f64())
    }

    /// Reads a depot.
    fn pass_over(&self, name: &str, pass: Option<&Pass<'_>>) -> Result<(), StagingError> {
        let mut drive = CartridgeDrive::new("lab", self.path(name), KeySlotKind::Fitted);
        drive.load()?;
        let mut buffer = vec![0; self.block_len];
        while let ReadOutcome::Block(len) = drive.read_block(&mut buffer)? {
            self.check_stop()?;
            if pass.is_some_and(|pass| !pass.count(len)) {
                break;
            }
        }
        Ok(drive.unload()?)
    }

    /// Reads a depot, and gives the seconds.
    fn read(&self, name: &str) -> Result<f64, StagingError> {
        let began = Instant::now();
        self.pass_over(name, None)?;
        Ok(began.elapsed().as_secs_f64())
    }

    /// Writes one depot and reads another for as long as both are at work.
    fn write_and_read(&self, written: &str, read: &str) -> Result<Overlap, StagingError> {
        let (both, ready) = (Overlap::default(), Barrier::new(2));
        self.create(written)?;
        let (wrote, passed) = std::thread::scope(|scope| {
            let writer = scope.spawn(|| {
                ready.wait();
                let mut is_new = true;
                both.work(0, |pass| {
                    if !std::mem::take(&mut is_new) {
                        self.create(written)?;
                    }
                    self.fill(written, Some(pass))
                })
            });
            ready.wait();
            let passed = both.work(1, |pass| self.pass_over(read, Some(pass)));
            (joined(writer.join()), passed)
        });
        wrote.and(passed)?;
        Ok(both)
    }

    fn mb(&self) -> f64 {
        self.blocks as f64 * self.block_len as f64 / 1e6
    }

    /// So many writers at once: seconds until the last is done.
    fn write_beside(&self, writers: u32) -> Result<f64, StagingError> {
        let ready = Barrier::new(writers as usize);
        let work = |number: u32| self.write(&format!("MIX{number:03}"), &ready);
        let work = &work;
        std::thread::scope(|scope| {
            let threads: Vec<_> = (0..writers).map(|number| scope.spawn(move || work(number))).collect();
            let mut last = 0.0_f64;
            for thread in threads {
                last = last.max(joined(thread.join())?);
            }
            Ok(last)
        })
    }
}

/// Makes a block of noise that is like no other: each word of `noise` is joined with one that `number` draws, which
/// costs no more than to copy it. What is no whole word at the end stays as it is.
fn draw(block: &mut [u8], noise: &[u8], number: u64) {
    let mask = Noise::new(number).next();
    for (word, of_noise) in block.as_chunks_mut().0.iter_mut().zip(noise.as_chunks().0) {
        *word = (u64::from_le_bytes(*of_noise) ^ mask).to_le_bytes();
    }
}

fn joined<T>(result: std::thread::Result<T>) -> T {
    result.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}

fn check_room(folder: &Path, mb: f64) -> Result<(), StagingError> {
    let at = |error: rustix::io::Errno| StagingError::Folder { path: folder.to_owned(), source: error.into() };
    let free = free_mb(folder).map_err(at)?;
    let needed = (mb as u64).saturating_add(64);
    if needed > free {
        return Err(StagingError::NoRoom { folder: folder.to_owned(), needed, free });
    }
    Ok(())
}

/// Measures a disk by depots below a folder; `tell` hears what is being measured.
///
/// # Errors
/// [`StagingError`]: there is not enough room, a depot cannot be written or read, a number cannot be, or it was
/// stopped. What was written is removed.
pub fn measure_staging(
    folder: &Path,
    staging: &Staging,
    stop: &AtomicBool,
    tell: &mut dyn FnMut(&str),
) -> Result<StagingRates, StagingError> {
    let option = |what| Err(StagingError::Option { what });
    if staging.writers.is_empty() || staging.writers.iter().any(|writers| !(1..=64).contains(writers)) {
        return option("a disk is written by 1 to 64 writers");
    }
    if !(4096..=block_len_max()).contains(&staging.block_len) {
        return option("blocks are of 4 KiB to 2 MiB, as virtual drives write them");
    }
    if staging.rounds == 0 || !(staging.mb.is_finite() && staging.mb * 1e6 >= staging.block_len as f64) {
        return option("there is at least one round, and a depot holds at least a block");
    }
    let at = |source| StagingError::Folder { path: folder.to_owned(), source };
    let scratch = Scratch::below(folder).map_err(at)?;
    let most = staging.writers.iter().copied().max().unwrap_or(1);
    check_room(scratch.path(), staging.mb * f64::from(most + 2))?;
    let blocks = (staging.mb * 1e6 / staging.block_len as f64).round() as u64;
    let noise = data_set::block(staging.block_len, 1.0);
    let depots = Depots { folder: scratch.path(), block_len: staging.block_len, blocks, noise, stop };
    let spread = |rounds| Spread::of_rounds(rounds).unwrap_or(Spread::exactly(0.0));
    let alone = Barrier::new(1);
    let each = |measure: &mut dyn FnMut() -> Result<f64, StagingError>| -> Result<Spread, StagingError> {
        let rounds: Result<Vec<_>, _> = (0..staging.rounds).map(|_| measure()).collect();
        Ok(spread(rounds?))
    };

    tell("reading what was written alone");
    depots.write("ALONE", &alone)?;
    let read_mb = depots.mb() * f64::from(staging.rounds);
    let cpu = processor_s();
    let read = each(&mut || Ok(depots.mb() / depots.read("ALONE")?))?;
    let read_cpu = (processor_s() - cpu) / read_mb;
    let mut write = Vec::new();
    for &writers in &staging.writers {
        tell(&format!("writing, {writers} at once"));
        let cpu = processor_s();
        let mb_per_s = each(&mut || Ok(depots.mb() * f64::from(writers) / depots.write_beside(writers)?))?;
        let written_mb = depots.mb() * f64::from(writers * staging.rounds);
        write.push(WriterRate { writers, mb_per_s, cpu_s_per_mb: (processor_s() - cpu) / written_mb });
    }
    tell("reading what was written beside others");
    depots.write_beside(most)?;
    let cpu = processor_s();
    let read_mixed = each(&mut || Ok(depots.mb() / depots.read("MIX000")?))?;
    let mixed_cpu = (processor_s() - cpu) / read_mb;
    tell("writing and reading at once");
    let (mut writing, mut reading, mut both_mb) = (Vec::new(), Vec::new(), 0.0);
    let cpu = processor_s();
    for _ in 0..staging.rounds {
        let both = depots.write_and_read("BESIDE", "ALONE")?;
        both_mb += both.mb();
        let Some([write, read]) = both.rates() else { continue };
        writing.push(write);
        reading.push(read);
    }
    let both_cpu = (processor_s() - cpu) / both_mb.max(1e-9);
    Ok(StagingRates {
        folder: folder.to_owned(),
        device: device_of(folder),
        free_mb: free_mb(folder).unwrap_or_default(),
        block_len: staging.block_len,
        write,
        read,
        read_mixed,
        write_beside_read: spread(writing),
        read_beside_write: spread(reading),
        cpu_s_per_mb: Some([read_cpu, mixed_cpu, both_cpu]),
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests fail by panicking")]
    use super::*;

    fn staging() -> Staging {
        Staging { writers: vec![1, 2], block_len: 256 << 10, mb: 20.0, rounds: 2 }
    }

    #[test]
    fn a_disk_is_measured_in_all_ways_and_nothing_stays() {
        let folder = tempfile::tempdir().unwrap();
        let mut told = Vec::new();
        let stop = AtomicBool::new(false);
        let rates = measure_staging(folder.path(), &staging(), &stop, &mut |what| told.push(what.to_owned())).unwrap();
        assert_eq!(rates.write.iter().map(|rate| rate.writers).collect::<Vec<_>>(), [1, 2]);
        let all = [rates.read, rates.read_mixed, rates.write_beside_read, rates.read_beside_write];
        assert!(all.iter().chain(rates.write.iter().map(|rate| &rate.mb_per_s)).all(|rate| rate.low > 0.0));
        assert_eq!(told.len(), 5);
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
    }

    #[test]
    fn what_has_no_room_or_is_stopped_leaves_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let told = |staging: &Staging, stop: bool| {
            let stop = AtomicBool::new(stop);
            measure_staging(folder.path(), staging, &stop, &mut |_| {}).unwrap_err().to_string()
        };
        assert!(told(&Staging { mb: 1e12, ..staging() }, false).contains("take smaller depots"));
        assert!(told(&Staging { writers: vec![0], ..staging() }, false).contains("1 to 64 writers"));
        assert!(told(&Staging { block_len: 4 << 20, ..staging() }, false).contains("4 KiB to 2 MiB"));
        assert!(told(&staging(), true).contains("stopped"));
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
    }

    /// Depots were one byte over and over: where the file system compresses, the rates were those of memory.
    #[test]
    fn depots_hold_what_neither_shrinks_nor_repeats() {
        let folder = tempfile::tempdir().unwrap();
        let (block_len, stop) = (256 << 10, AtomicBool::new(false));
        let noise = data_set::block(block_len, 1.0);
        let depots = Depots { folder: folder.path(), block_len, blocks: 8, noise, stop: &stop };
        let alone = Barrier::new(1);
        depots.write("ONE001", &alone).unwrap();
        depots.write("TWO002", &alone).unwrap();
        let both: Vec<u8> =
            ["ONE001", "TWO002"].iter().flat_map(|name| std::fs::read(depots.path(name)).unwrap()).collect();
        let stored = zstd::bulk::compress(&both, 1).unwrap();
        assert!(stored.len() as f64 > both.len() as f64 * 0.9, "{} of {} bytes are left", stored.len(), both.len());
    }

    /// Where one was done sooner, the other went on alone, and its rate was that of one alone.
    #[test]
    fn of_two_beside_each_other_only_what_both_do_counts() {
        let both = Overlap::default();
        let quick_passes = AtomicU64::new(0);
        std::thread::scope(|scope| {
            let quick = scope.spawn(|| {
                both.work(0, |pass| {
                    quick_passes.fetch_add(1, Ordering::Relaxed);
                    (0..10).try_for_each(|_| {
                        std::thread::yield_now();
                        pass.count(1_000_000).then_some(())
                    });
                    Ok(())
                })
            });
            // The slower one ends once the other began its depot anew.
            let slow = both.work(1, |pass| {
                while quick_passes.load(Ordering::Relaxed) < 3 && !quick.is_finished() {
                    std::thread::yield_now();
                }
                pass.count(5_000_000);
                Ok(())
            });
            slow.unwrap();
            quick.join().unwrap().unwrap();
        });
        let (seconds, [quick, slow]) = both.course.lock().unwrap().ended.unwrap();
        assert!(seconds > 0.0 && quick >= 20_000_000 && slow == 5_000_000, "{quick} and {slow}");
        assert_eq!(both.rates().unwrap()[1], 5.0 / seconds);
    }

    #[test]
    fn one_that_fails_does_not_let_the_other_go_on_for_ever() {
        let both = Overlap::default();
        std::thread::scope(|scope| {
            let other = scope.spawn(|| {
                both.work(0, |pass| {
                    pass.count(1);
                    Ok(())
                })
            });
            both.work(1, |_| Err(StagingError::Stopped)).unwrap_err();
            other.join().unwrap().unwrap();
        });
        assert_eq!(both.rates(), None);
    }
}
