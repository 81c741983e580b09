//! A virtual drive, written from memory: what it takes of these data, with this block, this cipher, these syncs, at
//! this pace.
//!
//! Each exercise has a new cartridge of its own, in a folder that is removed behind it, or one that somebody named,
//! which must be blank and is blank afterwards: no volume that holds anything is touched.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use capstan_format::{Algorithm, KeyTag, Volser};
use capstan_tape::model::DriveModel;
use capstan_tape::{
    CartridgeDrive, CartridgeSpec, Drive, DriveError, DriveKey, Flush, KeySlotKind, Medium, MonotonicClock, PaceMeter,
    Paced, Rewritability,
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::unfinished::{Unfinished, ended};
use super::{Scratch, Spread, device_of, free_mb, processor_s};
use crate::data_set;

/// What is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, JsonSchema, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum DriveData {
    /// Nothing but zeros.
    Zeros,
    /// Bytes that compress by half.
    Half,
    /// Noise.
    Random,
}

impl DriveData {
    /// A word for it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Zeros => "zeros",
            Self::Half => "half",
            Self::Random => "random",
        }
    }

    /// What a drive that compresses makes of it: zeros shrink until something else is the limit.
    fn ratio(self) -> f64 {
        match self {
            Self::Zeros => 1000.0,
            Self::Half => 2.0,
            Self::Random => 1.0,
        }
    }

    fn block(self, len: usize) -> Vec<u8> {
        if self == Self::Zeros { vec![0; len] } else { data_set::block(len, self.ratio()) }
    }
}

/// What is done with the drive.
#[derive(Debug, Clone, PartialEq)]
pub struct Exercise {
    /// What is written.
    pub data: DriveData,
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
pub(crate) struct Exercised {
    /// MB that were written.
    pub(crate) mb: f64,
    /// Seconds, until all of it was on the medium.
    pub(crate) seconds: f64,
    /// Seconds of processors.
    pub(crate) cpu_s: f64,
    /// Times that the tape went back, if the drive was paced.
    pub(crate) backhitches: Option<u64>,
}

impl Exercised {
    /// MB/s.
    pub(crate) fn mb_per_s(&self) -> f64 {
        self.mb / self.seconds
    }
}

/// Why an exercise could not be done.
#[derive(Debug, thiserror::Error)]
pub enum DriveMeasurementError {
    /// The drive.
    #[error(transparent)]
    Drive(#[from] DriveError),
    /// The folder.
    #[error("cannot make a folder below {}: {source}", path.display())]
    Folder {
        /// The folder.
        path: PathBuf,
        /// Why not.
        source: std::io::Error,
    },
    /// A cartridge that somebody named is not blank.
    #[error(
        "{} holds {blocks} blocks and filemarks; only a blank cartridge is written: name another, or erase it first",
        path.display()
    )]
    HoldsData {
        /// The cartridge.
        path: PathBuf,
        /// Blocks and filemarks on it.
        blocks: u64,
    },
    /// A cartridge that somebody named cannot be made blank again.
    #[error("{} is WORM: what is written to it stays, so it is not written; name a rewritable cartridge", path.display())]
    WriteOnce {
        /// The cartridge.
        path: PathBuf,
    },
    /// A cartridge that somebody named may not be written.
    #[error("{} is write-protected: slide its tab, or name another cartridge", path.display())]
    WriteProtected {
        /// The cartridge.
        path: PathBuf,
    },
    /// A cartridge that somebody named was written, and could not be made blank again.
    #[error("{outcome}; and {} holds test data, because it could not be erased: {source}. Erase it", path.display())]
    NotErased {
        /// The cartridge.
        path: PathBuf,
        /// What came of the measurement.
        outcome: String,
        /// Why it could not be erased.
        source: Box<DriveError>,
    },
    /// There is not enough room.
    #[error("this takes {needed} MB, and {} has {free} MB left: take a smaller amount, or another folder", folder.display())]
    NoRoom {
        /// The folder.
        folder: PathBuf,
        /// MB that it takes.
        needed: u64,
        /// MB that are free.
        free: u64,
    },
    /// There is no such cartridge.
    #[error("there is no cartridge {}: name one that is there, or a --folder for a new one", path.display())]
    NoCartridge {
        /// The cartridge.
        path: PathBuf,
    },
    /// The drive writes no such blocks.
    #[error("{model} writes blocks of at most {longest} bytes, not of {len}: leave that length out of --block")]
    Block {
        /// The drive.
        model: String,
        /// Bytes of a block.
        len: usize,
        /// Bytes of its longest.
        longest: usize,
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

/// Writes from memory to a new virtual cartridge below `folder`.
pub(crate) fn exercise(folder: &Path, what: &Exercise, stop: &AtomicBool) -> Result<Exercised, DriveMeasurementError> {
    let made = Scratch::below(folder);
    let scratch = made.map_err(|source| DriveMeasurementError::Folder { path: folder.to_owned(), source })?;
    check_room(folder, what.mb)?;
    let path = scratch.path().join("LAB001.tape");
    let volser = Volser::new("LAB001").unwrap_or_else(|error| unreachable!("it is a barcode: {error}"));
    let capacity_bytes = (what.mb * 1.2e6) as u64 + (64 << 20);
    CartridgeSpec { volser, capacity_bytes, early_warning_bytes: 1 << 20, generation: "virtual".to_owned() }
        .create(&path)?;
    let (mut drive, meter, _) = open_drive(path, what)?;
    let done = write_all(drive.as_mut(), meter, what, stop)?;
    Ok(done)
}

/// Whether a folder has room for so many MB, and what goes with them.
fn check_room(folder: &Path, mb: f64) -> Result<(), DriveMeasurementError> {
    let (needed, free) = ((mb as u64).saturating_add(64), free_mb(folder).unwrap_or(u64::MAX));
    if needed > free {
        return Err(DriveMeasurementError::NoRoom { folder: folder.to_owned(), needed, free });
    }
    Ok(())
}

/// Writes from memory to a cartridge that is there and blank, and blank again afterwards.
pub(crate) fn exercise_cartridge(
    path: &Path,
    what: &Exercise,
    stop: &AtomicBool,
) -> Result<Exercised, DriveMeasurementError> {
    if !path.is_file() {
        return Err(DriveMeasurementError::NoCartridge { path: path.to_owned() });
    }
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    check_room(folder, what.mb)?;
    let (mut drive, meter, medium) = open_drive(path.to_owned(), what)?;
    if medium.rewritability == Rewritability::WriteOnce {
        return Err(DriveMeasurementError::WriteOnce { path: path.to_owned() });
    }
    if medium.write_protected {
        return Err(DriveMeasurementError::WriteProtected { path: path.to_owned() });
    }
    drive.space_to_end_of_data()?;
    let blocks = drive.position()?.lbn;
    if blocks > 0 {
        return Err(DriveMeasurementError::HoldsData { path: path.to_owned(), blocks });
    }
    let done = write_all(drive.as_mut(), meter, what, stop);
    make_blank(drive.as_mut(), path, done)
}

/// Erases a cartridge that was written. Where that fails, the outcome of the measurement is told with it.
fn make_blank(
    drive: &mut dyn Drive,
    path: &Path,
    done: Result<Exercised, DriveMeasurementError>,
) -> Result<Exercised, DriveMeasurementError> {
    let mut erase = || {
        drive.load()?;
        drive.erase()?;
        drive.unload()
    };
    let Err(source) = erase() else { return done };
    let outcome = match done {
        Ok(done) => format!("{:.0} MB were written at {:.1} MB/s", done.mb, done.mb_per_s()),
        Err(DriveMeasurementError::Stopped) => "stopped".to_owned(),
        Err(error) => error.to_string(),
    };
    Err(DriveMeasurementError::NotErased { path: path.to_owned(), outcome, source: Box::new(source) })
}

/// A drive with a cartridge in it, what meters its pace, and the cartridge.
type Opened = (Box<dyn Drive>, Option<PaceMeter>, Medium);

fn open_drive(path: PathBuf, what: &Exercise) -> Result<Opened, DriveMeasurementError> {
    let inner = CartridgeDrive::new("lab", path, KeySlotKind::Fitted);
    let mut meter: Option<PaceMeter> = None;
    let mut drive: Box<dyn Drive> = match &what.pace {
        None => Box::new(inner),
        Some(model) => {
            let paced = Paced::new(inner, model.clone(), MonotonicClock::start()).compressing(what.data.ratio());
            meter = Some(paced.meter());
            Box::new(paced)
        }
    };
    let medium = drive.load()?;
    Ok((drive, meter, medium))
}

fn write_all(
    drive: &mut dyn Drive,
    meter: Option<PaceMeter>,
    what: &Exercise,
    stop: &AtomicBool,
) -> Result<Exercised, DriveMeasurementError> {
    if let Some(algorithm) = what.encryption {
        // What is written is dropped at once, and with it whatever a key could protect.
        drive.set_key(Some(DriveKey { tag: KeyTag([1; 16]), algorithm, key: [2; 32] }))?;
    }
    let block = what.data.block(what.block_len);
    let block_mb = what.block_len as f64 / 1e6;
    let (began, cpu) = (Instant::now(), processor_s());
    let (mut mb, mut unsynced_mb) = (0.0, 0.0);
    let mut held = Duration::ZERO;
    while mb < what.mb {
        if stop.load(Ordering::Relaxed) {
            return Err(DriveMeasurementError::Stopped);
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
    let cpu_s = processor_s() - cpu;
    Ok(Exercised { mb, seconds, cpu_s, backhitches: meter.map(|meter| meter.totals().backhitches) })
}

/// What a drive took in one way of writing it.
#[derive(Debug, Clone, PartialEq, JsonSchema, Serialize, Deserialize)]
pub struct DriveRate {
    /// Bytes of a block.
    pub block_len: usize,
    /// What was written.
    pub data: DriveData,
    /// MB/s.
    pub mb_per_s: Spread,
    /// Seconds of processors for each MB.
    pub cpu_s_per_mb: f64,
    /// Times that the tape went back in the round in the middle, if the drive was paced.
    pub backhitches: Option<u64>,
}

/// What a drive took, in all ways.
#[derive(Debug, Clone, PartialEq, JsonSchema, Serialize, Deserialize)]
pub struct DriveRates {
    /// Where its cartridges lay.
    #[serde(with = "crate::site::path_text")]
    #[schemars(with = "String")]
    pub place: PathBuf,
    /// The device that they lay on; 0 if that is not known.
    #[serde(default)]
    pub device: u64,
    /// Whose time it took; none for as fast as the disk is.
    pub model: Option<String>,
    /// Its cipher.
    pub encryption: Option<String>,
    /// MB between two syncs.
    pub sync_mb: Option<f64>,
    /// In each way.
    pub rates: Vec<DriveRate>,
}

/// Exercises a drive with each kind of data and each block, in rounds; `tell` hears of each when it is done. All ways
/// are checked before the first is measured.
///
/// # Errors
/// [`DriveMeasurementError::Option`] and [`DriveMeasurementError::Block`] if it cannot be done so;
/// [`DriveMeasurementError::HoldsData`], [`DriveMeasurementError::WriteOnce`] and
/// [`DriveMeasurementError::WriteProtected`] if the cartridge is not to be written; [`DriveMeasurementError::NoRoom`];
/// [`DriveMeasurementError::NotErased`] if the cartridge is not blank afterwards; else the drive failed, or it was
/// stopped. With the ways that were measured before.
pub fn measure_drive(
    medium: &ExerciseMedium,
    each: &[(DriveData, usize)],
    rounds: u32,
    what: &Exercise,
    stop: &AtomicBool,
    tell: &mut dyn FnMut(&DriveRate),
) -> Result<DriveRates, Unfinished<DriveRates, DriveMeasurementError>> {
    check(each, rounds, what)?;
    let mut rates = Vec::new();
    let mut measure = |&(data, block_len): &(DriveData, usize)| {
        let what = Exercise { data, block_len, ..what.clone() };
        let done: Result<Vec<_>, _> = (0..rounds)
            .map(|_| match medium {
                ExerciseMedium::New { folder } => exercise(folder, &what, stop),
                ExerciseMedium::Blank { cartridge } => exercise_cartridge(cartridge, &what, stop),
            })
            .collect();
        let mut done = done?;
        done.sort_by(|one, other| one.mb_per_s().total_cmp(&other.mb_per_s()));
        let spread = Spread::of_rounds(done.iter().map(Exercised::mb_per_s).collect());
        let Some((mb_per_s, middle)) = spread.zip(done.get(done.len() / 2)) else { return Ok(()) };
        let cpu_s_per_mb = middle.cpu_s / middle.mb;
        let rate = DriveRate { block_len, data, mb_per_s, cpu_s_per_mb, backhitches: middle.backhitches };
        tell(&rate);
        rates.push(rate);
        Ok(())
    };
    let failed = each.iter().try_for_each(&mut measure).err();
    let (ExerciseMedium::New { folder: place } | ExerciseMedium::Blank { cartridge: place }) = medium;
    let is_empty = rates.is_empty();
    let found = DriveRates {
        place: place.clone(),
        device: device_of(place),
        model: what.pace.as_ref().map(|model| model.name.clone()),
        encryption: what.encryption.map(|algorithm| algorithm.name().to_owned()),
        sync_mb: what.sync_mb,
        rates,
    };
    ended(found, is_empty, failed)
}

/// Whether all ways can be measured so.
fn check(each: &[(DriveData, usize)], rounds: u32, what: &Exercise) -> Result<(), DriveMeasurementError> {
    let option = |what| Err(DriveMeasurementError::Option { what });
    if rounds == 0 {
        return option("there is at least one round");
    }
    if what.sync_mb.is_some_and(|each| !(each.is_finite() && each > 0.0)) {
        return option("a sync comes behind more than nothing");
    }
    let (name, longest) = match &what.pace {
        Some(model) => (model.name.as_str(), block_len_max().min(model.block_len_max.value as usize)),
        None => ("a virtual drive", block_len_max()),
    };
    for &(_, len) in each {
        if len > longest {
            return Err(DriveMeasurementError::Block { model: name.to_owned(), len, longest });
        }
        if len == 0 || !(what.mb.is_finite() && what.mb * 1e6 >= len as f64) {
            return option("at least a block is written, and a block is longer than nothing");
        }
    }
    Ok(())
}

/// Bytes of the longest block that a virtual drive writes.
pub(crate) fn block_len_max() -> usize {
    CartridgeDrive::new("lab", "", KeySlotKind::Fitted).block_limits().max as usize
}

/// What a drive is exercised on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ExerciseMedium {
    /// New cartridges below a folder.
    New {
        /// The folder.
        folder: PathBuf,
    },
    /// A cartridge that is blank.
    Blank {
        /// Its file.
        cartridge: PathBuf,
    },
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests fail by panicking")]
    use capstan_tape::model::built_in;

    use super::*;

    fn what(mb: f64, pace: Option<DriveModel>) -> Exercise {
        Exercise {
            data: DriveData::Random,
            block_len: 256 << 10,
            mb,
            mb_per_s: None,
            sync_mb: None,
            encryption: None,
            pace,
        }
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

    fn cartridge(folder: &Path, rewritability: Rewritability) -> PathBuf {
        let path = folder.join("TST001.tape");
        CartridgeSpec {
            volser: Volser::new("TST001").unwrap(),
            capacity_bytes: 100 << 20,
            early_warning_bytes: 1 << 20,
            generation: "virtual".to_owned(),
        }
        .create_as(&path, rewritability)
        .unwrap();
        path
    }

    /// A blank WORM cartridge was written full of test data, which nothing erases.
    #[test]
    fn a_worm_cartridge_is_not_written() {
        let folder = tempfile::tempdir().unwrap();
        let path = cartridge(folder.path(), Rewritability::WriteOnce);
        let before = std::fs::read(&path).unwrap();
        let refused = exercise_cartridge(&path, &what(5.0, None), &AtomicBool::new(false)).unwrap_err();
        assert!(matches!(refused, DriveMeasurementError::WriteOnce { .. }), "{refused}");
        assert_eq!(std::fs::read(&path).unwrap(), before);
    }

    #[test]
    fn a_cartridge_without_room_below_it_is_not_written() {
        let folder = tempfile::tempdir().unwrap();
        let path = cartridge(folder.path(), Rewritability::Rewritable);
        let refused = exercise_cartridge(&path, &what(9e14, None), &AtomicBool::new(false)).unwrap_err();
        assert!(matches!(refused, DriveMeasurementError::NoRoom { .. }), "{refused}");
    }

    /// That the cartridge could not be erased hid what had come of the measurement, and why it had failed.
    #[test]
    fn what_was_measured_is_told_where_the_cartridge_cannot_be_erased() {
        let path = Path::new("/gone/TST001.tape");
        let mut drive = CartridgeDrive::new("test", path, KeySlotKind::Fitted);
        let done = Exercised { mb: 10.0, seconds: 2.0, cpu_s: 1.0, backhitches: None };
        let told = make_blank(&mut drive, path, Ok(done)).unwrap_err().to_string();
        assert!(told.starts_with("10 MB were written at 5.0 MB/s; and /gone/TST001.tape holds test data"), "{told}");
        let failed = DriveMeasurementError::Drive(DriveError::EndOfMedium { lbn: 7 });
        let told = make_blank(&mut drive, path, Err(failed)).unwrap_err().to_string();
        assert!(told.starts_with("the cartridge is full at block 7; and "), "{told}");
    }

    #[test]
    fn all_ways_are_checked_before_the_first_is_measured_and_what_is_done_stays() {
        let folder = tempfile::tempdir().unwrap();
        let medium = ExerciseMedium::New { folder: folder.path().join("out") };
        let stop = AtomicBool::new(false);
        let mut told = 0;
        let each = [(DriveData::Zeros, 64 << 10), (DriveData::Zeros, 4 << 20)];
        let refused = measure_drive(&medium, &each, 1, &what(5.0, None), &stop, &mut |_| told += 1).unwrap_err();
        assert!(refused.to_string().starts_with("a virtual drive writes blocks of at most 2097152 bytes"), "{refused}");
        assert!(told == 0 && refused.found.is_none() && !folder.path().join("out").exists());
        let each = [(DriveData::Zeros, 64 << 10), (DriveData::Zeros, 128 << 10)];
        let halt = &mut |_: &DriveRate| stop.store(true, Ordering::Relaxed);
        let stopped = measure_drive(&medium, &each, 1, &what(5.0, None), &stop, halt).unwrap_err();
        assert!(matches!(stopped.error, DriveMeasurementError::Stopped), "{stopped}");
        assert_eq!(stopped.found.unwrap().rates.len(), 1);
    }

    #[test]
    fn only_a_blank_cartridge_is_written_and_it_is_blank_afterwards() {
        let folder = tempfile::tempdir().unwrap();
        let path = cartridge(folder.path(), Rewritability::Rewritable);
        let stop = AtomicBool::new(false);
        for _ in 0..2 {
            exercise_cartridge(&path, &what(5.0, None), &stop).unwrap();
        }
        let mut drive = CartridgeDrive::new("test", path.clone(), KeySlotKind::Fitted);
        drive.load().unwrap();
        drive.write_block(b"somebody's").unwrap();
        drive.write_filemarks(1, Flush::Synchronous).unwrap();
        drive.unload().unwrap();
        let refused = exercise_cartridge(&path, &what(5.0, None), &stop).unwrap_err().to_string();
        assert!(refused.contains("holds 2 blocks and filemarks"), "{refused}");
        drive.load().unwrap();
        let mut buffer = [0; 16];
        assert_eq!(drive.read_block(&mut buffer).unwrap(), capstan_tape::ReadOutcome::Block(10));
    }

    #[test]
    fn a_paced_drive_compresses_what_can_be() {
        let folder = tempfile::tempdir().unwrap();
        let model = built_in("SDLT-220").unwrap();
        let native = model.native_mb_per_s.value;
        let medium = ExerciseMedium::New { folder: folder.path().to_owned() };
        let each = [(DriveData::Random, 64 << 10), (DriveData::Half, 64 << 10)];
        let mut told = 0;
        let mut tell = |_: &DriveRate| told += 1;
        let what = what(native * 2.0, Some(model));
        let rates = measure_drive(&medium, &each, 1, &what, &AtomicBool::new(false), &mut tell).unwrap().rates;
        assert_eq!(told, 2);
        let times = rates[1].mb_per_s.median / rates[0].mb_per_s.median;
        assert!((1.5..2.5).contains(&times), "2:1 data went {times} times as fast: {rates:?}");
    }

    #[test]
    fn one_that_is_stopped_leaves_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let stopped = exercise(folder.path(), &what(100.0, None), &AtomicBool::new(true)).unwrap_err();
        assert!(matches!(stopped, DriveMeasurementError::Stopped), "{stopped}");
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
    }
}
