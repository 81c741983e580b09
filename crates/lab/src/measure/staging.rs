//! What a disk gives as a file library: written by one and many, read, and both at once.
//!
//! Depots are virtual cartridges, written and read as a backup and an object copy write and read them: in large pieces
//! past the page cache, with a flush at the end. What many writers have laid down at once is read again by itself,
//! because a file system may have mixed their pieces: the difference to what one writer has laid down alone is the cost
//! of fragmentation.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use capstan_format::Volser;
use capstan_tape::{CartridgeDrive, CartridgeSpec, Drive, DriveError, Flush, KeySlotKind, ReadOutcome};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Scratch, Spread, device_of, processor_s};

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
    /// A writer beside a reader, MB/s.
    pub write_beside_read: Spread,
    /// A reader beside a writer, MB/s.
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

struct Depots<'a> {
    folder: &'a Path,
    block_len: usize,
    blocks: u64,
    stop: &'a AtomicBool,
}

impl Depots<'_> {
    fn drive(&self, name: &str) -> Result<CartridgeDrive, DriveError> {
        Ok(CartridgeDrive::new("lab", self.folder.join(format!("{name}.tape")), KeySlotKind::Fitted))
    }

    fn check_stop(&self) -> Result<(), StagingError> {
        if self.stop.load(Ordering::Relaxed) { Err(StagingError::Stopped) } else { Ok(()) }
    }

    /// Writes a depot anew, and gives the seconds to its last flush.
    fn write(&self, name: &str, ready: &Barrier) -> Result<f64, StagingError> {
        let path = self.folder.join(format!("{name}.tape"));
        let _ = std::fs::remove_file(&path);
        let made = Volser::new(name).map_err(|_| StagingError::Option { what: "a depot's name is no barcode" });
        let capacity_bytes = self.blocks * (self.block_len as u64 + 64) + (64 << 20);
        let spec = made.map(|volser| CartridgeSpec {
            volser,
            capacity_bytes,
            early_warning_bytes: 1 << 20,
            generation: "virtual".to_owned(),
        });
        let created = spec.and_then(|spec| Ok(spec.create(&path)?));
        // Whoever waits for this one must not wait for ever.
        ready.wait();
        created?;
        let began = Instant::now();
        let mut drive = self.drive(name)?;
        drive.load()?;
        let block = vec![0x5A; self.block_len];
        for _ in 0..self.blocks {
            self.check_stop()?;
            drive.write_block(&block)?;
        }
        drive.write_filemarks(1, Flush::Synchronous)?;
        drive.unload()?;
        Ok(began.elapsed().as_secs_f64())
    }

    /// Reads a depot, and gives the seconds.
    fn read(&self, name: &str, ready: &Barrier) -> Result<f64, StagingError> {
        ready.wait();
        let began = Instant::now();
        let mut drive = self.drive(name)?;
        drive.load()?;
        let mut buffer = vec![0; self.block_len];
        while let ReadOutcome::Block(_) = drive.read_block(&mut buffer)? {
            self.check_stop()?;
        }
        drive.unload()?;
        Ok(began.elapsed().as_secs_f64())
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

fn joined<T>(result: std::thread::Result<T>) -> T {
    result.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}

pub(crate) fn free_mb(folder: &Path) -> Result<u64, rustix::io::Errno> {
    let found = rustix::fs::statvfs(folder)?;
    Ok(found.f_bavail.saturating_mul(found.f_frsize) / 1_000_000)
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
    if !(4096..=16 << 20).contains(&staging.block_len) {
        return option("blocks are of 4 KiB to 16 MiB");
    }
    if staging.rounds == 0 || !(staging.mb.is_finite() && staging.mb * 1e6 >= staging.block_len as f64) {
        return option("there is at least one round, and a depot holds at least a block");
    }
    let at = |source| StagingError::Folder { path: folder.to_owned(), source };
    let scratch = Scratch::below(folder).map_err(at)?;
    let most = staging.writers.iter().copied().max().unwrap_or(1);
    check_room(scratch.path(), staging.mb * f64::from(most + 2))?;
    let blocks = (staging.mb * 1e6 / staging.block_len as f64).round() as u64;
    let depots = Depots { folder: scratch.path(), block_len: staging.block_len, blocks, stop };
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
    let read = each(&mut || Ok(depots.mb() / depots.read("ALONE", &alone)?))?;
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
    let read_mixed = each(&mut || Ok(depots.mb() / depots.read("MIX000", &alone)?))?;
    let mixed_cpu = (processor_s() - cpu) / read_mb;
    tell("writing and reading at once");
    let (mut writing, mut reading) = (Vec::new(), Vec::new());
    let cpu = processor_s();
    for _ in 0..staging.rounds {
        let both = Barrier::new(2);
        let (write_s, read_s) = std::thread::scope(|scope| {
            let writer = scope.spawn(|| depots.write("BESIDE", &both));
            let read_s = depots.read("ALONE", &both);
            (joined(writer.join()), read_s)
        });
        writing.push(depots.mb() / write_s?);
        reading.push(depots.mb() / read_s?);
    }
    let both_cpu = (processor_s() - cpu) / (2.0 * read_mb);
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
        assert!(told(&staging(), true).contains("stopped"));
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
    }
}
