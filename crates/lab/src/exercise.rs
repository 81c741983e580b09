//! A virtual drive, written from memory: what it takes with this block, this cipher, these syncs, at this pace.
//!
//! Each exercise has a new cartridge of its own, in a folder that is removed behind it; no volume that holds data is touched.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use capstan_format::{Algorithm, KeyTag, Volser};
use capstan_tape::model::DriveModel;
use capstan_tape::{
    CartridgeDrive, CartridgeSpec, Drive, DriveError, DriveKey, Flush, KeySlotKind, PaceMeter, Paced, WallClock,
};

/// What is done with the drive.
#[derive(Debug, Clone, PartialEq)]
pub struct Exercise {
    /// Bytes of a block.
    pub block_len: usize,
    /// MB that are written.
    pub mb: f64,
    /// How fast the host hands them over, MB/s; `None` for as fast as memory.
    pub mb_per_s: Option<f64>,
    /// A synchronous filemark each time so many MB are written.
    pub sync_mb: Option<f64>,
    /// The drive's cipher.
    pub encryption: Option<Algorithm>,
    /// Whose time the drive takes.
    pub pace: Option<DriveModel>,
}

/// What came of it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Exercised {
    /// MB that were written.
    pub mb: f64,
    /// Seconds, until all of it was on the medium.
    pub seconds: f64,
    /// Times that the tape went back, if the drive was paced.
    pub backhitches: Option<u64>,
}

impl Exercised {
    /// MB/s.
    pub fn mb_per_s(&self) -> f64 {
        self.mb / self.seconds
    }
}

/// Why an exercise could not be done.
#[derive(Debug, thiserror::Error)]
pub enum ExerciseError {
    /// The drive.
    #[error(transparent)]
    Drive(#[from] DriveError),
    /// The folder.
    #[error("cannot make {}: {source}", path.display())]
    Folder {
        /// The folder.
        path: PathBuf,
        /// Why not.
        source: std::io::Error,
    },
    /// It was stopped.
    #[error("stopped; the cartridge is removed")]
    Stopped,
}

/// A folder that goes with all that is in it.
struct Scratch(PathBuf);

impl Scratch {
    fn new(below: &Path) -> Result<Self, ExerciseError> {
        let path = below.join(format!("capstan-lab-{}", std::process::id()));
        let made = std::fs::create_dir_all(below).and_then(|()| std::fs::create_dir(&path));
        made.map_err(|source| ExerciseError::Folder { path: path.clone(), source })?;
        Ok(Self(path))
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // A folder that is left says by its name whose it was.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Writes from memory to a new virtual cartridge below `folder`.
pub fn exercise(folder: &Path, what: &Exercise, stop: &AtomicBool) -> Result<Exercised, ExerciseError> {
    let scratch = Scratch::new(folder)?;
    let path = scratch.0.join("LAB001.tape");
    let volser = Volser::new("LAB001").unwrap_or_else(|error| unreachable!("it is a barcode: {error}"));
    let capacity_bytes = (what.mb * 1.2e6) as u64 + (64 << 20);
    CartridgeSpec { volser, capacity_bytes, early_warning_bytes: 1 << 20, generation: "virtual".to_owned() }
        .create(&path)?;
    let inner = CartridgeDrive::new("lab", path, KeySlotKind::Fitted);
    let mut meter: Option<PaceMeter> = None;
    let mut drive: Box<dyn Drive> = match &what.pace {
        None => Box::new(inner),
        Some(model) => {
            let paced = Paced::new(inner, model.clone(), WallClock::start());
            meter = Some(paced.meter());
            Box::new(paced)
        }
    };
    drive.load()?;
    if let Some(algorithm) = what.encryption {
        // What is written is dropped at once, and with it whatever a key could protect.
        drive.set_key(Some(DriveKey { tag: KeyTag([1; 16]), algorithm, key: [2; 32] }))?;
    }
    let block = vec![0x5A; what.block_len];
    let block_mb = what.block_len as f64 / 1e6;
    let began = Instant::now();
    let (mut mb, mut unsynced_mb) = (0.0, 0.0);
    let mut held = Duration::ZERO;
    while mb < what.mb {
        if stop.load(Ordering::Relaxed) {
            return Err(ExerciseError::Stopped);
        }
        if let Some(rate) = what.mb_per_s {
            // When a host of that rate would have the block: it does not make up for what the drive held it off.
            let due = Duration::from_secs_f64((mb + block_mb) / rate) + held;
            thread::sleep(due.saturating_sub(began.elapsed()));
        }
        let handed_over = Instant::now();
        drive.write_block(&block)?;
        mb += block_mb;
        unsynced_mb += block_mb;
        if what.sync_mb.is_some_and(|each| unsynced_mb >= each) {
            drive.write_filemarks(1, Flush::Synchronous)?;
            unsynced_mb = 0.0;
        }
        held += handed_over.elapsed();
    }
    drive.unload()?;
    let seconds = began.elapsed().as_secs_f64();
    Ok(Exercised { mb, seconds, backhitches: meter.map(|meter| meter.totals().backhitches) })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests fail by panicking")]
    use capstan_tape::model::built_in;

    use super::*;

    fn what(mb: f64, pace: Option<DriveModel>) -> Exercise {
        Exercise { block_len: 256 << 10, mb, mb_per_s: None, sync_mb: None, encryption: None, pace }
    }

    #[test]
    fn a_paced_drive_takes_its_time_and_leaves_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let model = built_in("LTO-5").unwrap();
        let done = exercise(folder.path(), &what(140.0, Some(model)), &AtomicBool::new(false)).unwrap();
        // How much longer hangs on whatever else the machine does.
        assert!((0.9..30.0).contains(&done.seconds), "140 MB at 140 MB/s: {done:?}");
        assert!(done.backhitches.is_some());
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
    }

    #[test]
    fn one_that_is_stopped_leaves_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let stopped = exercise(folder.path(), &what(100.0, None), &AtomicBool::new(true)).unwrap_err();
        assert!(matches!(stopped, ExerciseError::Stopped), "{stopped}");
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
    }
}
