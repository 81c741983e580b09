//! What each part gives by itself, on this machine.
//!
//! ```text
//!   read      source --> nowhere                             bare readers: what the source could give
//!   null      source --> read, pax, compress --> nowhere     the data path without a drive
//!   drive                      memory --> encrypt --> drive  the drive without a source
//!   staging                    memory --> disk --> memory    a file library, written, read, and both at once
//!   restore   drive --> decrypt, unpack --> files, flushed   what comes back; and from a drive to a drive, an object copy
//! ```
//! All are measured in rounds. What a part gives is the median, and the rounds that were farthest from it say how sure
//! that is.

pub(crate) mod course;
pub(crate) mod data_path;
pub(crate) mod exercise;
pub(crate) mod grid;
pub(crate) mod others;
pub(crate) mod restore;
pub(crate) mod source;
pub(crate) mod staging;
pub(crate) mod unfinished;

use std::path::{Path, PathBuf};
use std::time::Duration;
use std::{fs, io};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// What rounds gave: in the middle, and at both ends.
#[derive(Debug, Clone, Copy, PartialEq, JsonSchema, Serialize, Deserialize)]
pub struct Spread {
    /// The least of them.
    pub low: f64,
    /// That in the middle.
    pub median: f64,
    /// The most.
    pub high: f64,
}

impl Spread {
    /// Of rounds; none of no rounds.
    pub fn of_rounds(mut rounds: Vec<f64>) -> Option<Self> {
        rounds.sort_by(f64::total_cmp);
        let (low, high) = (*rounds.first()?, *rounds.last()?);
        let median = (rounds[(rounds.len() - 1) / 2] + rounds[rounds.len() / 2]) / 2.0;
        Some(Self { low, median, high })
    }

    /// Something that does not spread.
    pub fn exactly(value: f64) -> Self {
        Self { low: value, median: value, high: value }
    }

    /// Each of the three, made into something else.
    #[must_use]
    pub fn map(&self, make: impl Fn(f64) -> f64) -> Self {
        let (one, other) = (make(self.low), make(self.high));
        Self { low: one.min(other), median: make(self.median), high: one.max(other) }
    }
}

/// Seconds that a round may last.
pub(crate) const SECONDS: std::ops::RangeInclusive<f64> = 0.05..=86_400.0;
/// MB/s that something slow may be made to give.
pub(crate) const SLOW_MB_PER_S: std::ops::RangeInclusive<f64> = 0.001..=1e6;

/// Seconds that this process has had of the processors.
pub(crate) fn processor_s() -> f64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    Duration::new(time.tv_sec.unsigned_abs(), time.tv_nsec as u32).as_secs_f64()
}

/// MB that are free where a folder lies.
pub(crate) fn free_mb(folder: &Path) -> Result<u64, rustix::io::Errno> {
    let found = rustix::fs::statvfs(folder)?;
    Ok(found.f_bavail.saturating_mul(found.f_frsize) / 1_000_000)
}

/// The device that a path lies on; 0 if that cannot be known.
pub(crate) fn device_of(path: &Path) -> u64 {
    use std::os::unix::fs::MetadataExt;
    fs::metadata(path).map_or(0, |metadata| metadata.dev())
}

/// Processors that this process may run on.
pub(crate) fn processors() -> u32 {
    std::thread::available_parallelism().map_or(1, |count| count.get() as u32)
}

/// A folder that goes with all that is in it.
pub(crate) struct Scratch(PathBuf);

impl Scratch {
    /// Makes one below a folder, which is made if it is not there. A name that is taken is left alone: it may be that
    /// of another process, since processes in containers may have the same number.
    pub(crate) fn below(folder: &Path) -> io::Result<Self> {
        Self::begun_by(folder, std::process::id())
    }

    fn begun_by(folder: &Path, process: u32) -> io::Result<Self> {
        const NAMES_MAX: u32 = 10_000;
        // A process may measure in two threads, as tests do.
        static NEXT: std::sync::atomic::AtomicU32 = std::sync::atomic::AtomicU32::new(0);
        fs::create_dir_all(folder)?;
        for _ in 0..NAMES_MAX {
            let number = NEXT.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
            let path = folder.join(format!("capstan-lab-{process}-{number}"));
            match fs::create_dir(&path) {
                Ok(()) => return Ok(Self(path)),
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                Err(error) => return Err(error),
            }
        }
        Err(io::ErrorKind::AlreadyExists.into())
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // A folder that is left says by its name whose it was.
        let _ = fs::remove_dir_all(&self.0);
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests fail by panicking")]
    use super::*;

    #[test]
    fn rounds_have_a_middle_and_ends() {
        let spread = Spread::of_rounds(vec![3.0, 1.0, 2.0]).unwrap();
        assert_eq!(spread, Spread { low: 1.0, median: 2.0, high: 3.0 });
        assert_eq!(Spread::of_rounds(Vec::new()), None);
        // What grows when this shrinks keeps its ends in order.
        assert_eq!(spread.map(|value| 6.0 / value), Spread { low: 2.0, median: 3.0, high: 6.0 });
    }

    /// Two containers had a process of the same number: the second one's measurement failed.
    #[test]
    fn a_scratch_folder_of_another_process_is_left_alone() {
        const OTHER: u32 = 7;
        let folder = tempfile::tempdir().unwrap();
        let first = Scratch::begun_by(folder.path(), OTHER).unwrap();
        let taken = first.path().file_name().unwrap().to_str().unwrap().rsplit('-').next().unwrap();
        // Other tests draw names meanwhile, a few at most.
        let taken: u32 = taken.parse().unwrap();
        for number in taken + 1..taken + 200 {
            fs::create_dir(folder.path().join(format!("capstan-lab-{OTHER}-{number}"))).unwrap();
        }
        let second = Scratch::begun_by(folder.path(), OTHER).unwrap();
        let path = second.path().to_owned();
        drop(second);
        assert!(!path.exists() && first.path().exists());
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 200);
    }
}
