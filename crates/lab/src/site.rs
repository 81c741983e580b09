//! What was measured of a site: one readable file in the state directory, that each measurement adds to.

pub(crate) mod path_text;

use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::compare::Comparison;
use super::measure::data_path::{PathRate, PathRates};
use super::measure::exercise::{DriveRate, DriveRates};
use super::measure::restore::RestoreRates;
use super::measure::source::{ReaderRate, SourceRates};
use super::measure::staging::StagingRates;
use super::network::NetworkMeasurement;
use super::part::Part;

/// The file's name in a state directory.
const FILE: &str = "laboratory.json";
/// What the file says of its own form.
const VERSION: u32 = 1;

/// A measurement, and when it was made.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Measured<T> {
    /// Nanoseconds since 1970.
    pub at_ns: i64,
    /// What was found.
    pub found: T,
}

/// All that was measured of a site.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Measurements {
    version: u32,
    /// Bare readers.
    #[serde(default)]
    pub sources: Vec<Measured<SourceRates>>,
    /// The data path to nowhere.
    #[serde(default)]
    pub paths: Vec<Measured<PathRates>>,
    /// Drives.
    #[serde(default)]
    pub drives: Vec<Measured<DriveRates>>,
    /// Disks as file libraries.
    #[serde(default)]
    pub staging: Vec<Measured<StagingRates>>,
    /// Whole backups that were tried.
    #[serde(default)]
    pub trials: Vec<Measured<Tried>>,
    /// The models against virtual drives of this machine, as of the last time.
    #[serde(default)]
    pub comparisons: Option<Measured<Vec<Comparison>>>,
    /// What the network gave.
    #[serde(default)]
    pub networks: Vec<Measured<NetworkMeasurement>>,
    /// What restores and object copies gave.
    #[serde(default)]
    pub restores: Vec<Measured<RestoreRates>>,
}

/// A backup that was tried.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Tried {
    /// The source.
    #[serde(with = "path_text")]
    pub source: PathBuf,
    /// How.
    pub setting: String,
    /// What each part would have given by itself, MB/s; nothing where a drive's model says what they give together.
    pub parts: Vec<(Part, f64)>,
    /// What was predicted, MB/s.
    pub predicted_mb_per_s: f64,
    /// What came of it, MB/s.
    pub mb_per_s: f64,
    /// From where to where the forecast had it before it was tried, MB/s.
    #[serde(default)]
    pub foretold: Option<[f64; 2]>,
}

impl Tried {
    /// Whether it came out within what was foretold; none if that was no interval.
    pub fn within(&self) -> Option<bool> {
        self.foretold.map(|[low, high]| (low..=high).contains(&self.mb_per_s))
    }
}

/// Why what was measured cannot be read or kept.
#[derive(Debug, thiserror::Error)]
pub enum MeasurementsError {
    /// The file cannot be read or written.
    #[error("cannot {action} {}: {source}. What is measured is kept in the state directory; --state names another", path.display())]
    File {
        /// What was to be done.
        action: &'static str,
        /// The file.
        path: PathBuf,
        /// Why not.
        source: io::Error,
    },
    /// The file is not what it should be.
    #[error("{} cannot be understood: {reason}. Remove it, and measure again", path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        reason: String,
    },
    /// What is to be kept could not be read again.
    #[error("what was measured is not kept, because it could not be read again ({reason}). {} is as it was", path.display())]
    NotKept {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        reason: String,
    },
}

impl Default for Measurements {
    fn default() -> Self {
        let (sources, paths, drives, staging) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        Self {
            version: VERSION,
            sources,
            paths,
            drives,
            staging,
            trials: Vec::new(),
            comparisons: None,
            networks: Vec::new(),
            restores: Vec::new(),
        }
    }
}

/// Puts a measurement in the place of an earlier one of the same thing.
fn replace<T>(all: &mut Vec<Measured<T>>, new: Measured<T>, same: impl Fn(&T, &T) -> bool) {
    all.retain(|old| !same(&old.found, &new.found));
    all.push(new);
}

/// When the same thing was measured before.
fn earlier<T>(all: &[Measured<T>], new: &T, same: impl Fn(&T, &T) -> bool) -> Option<i64> {
    all.iter().filter(|old| same(&old.found, new)).map(|old| old.at_ns).max()
}

impl Measurements {
    /// Reads what was measured; nothing, if nothing was.
    ///
    /// # Errors
    /// [`MeasurementsError::File`] if the file is there and cannot be read; [`MeasurementsError::Unreadable`] if it is
    /// damaged or of another version.
    pub fn read(state: &Path) -> Result<Self, MeasurementsError> {
        let path = state.join(FILE);
        let text = match fs::read_to_string(&path) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Self::default()),
            Err(source) => return Err(MeasurementsError::File { action: "read", path, source }),
        };
        let wrong = |reason| MeasurementsError::Unreadable { path: path.clone(), reason };
        let found: Self = serde_json::from_str(&text).map_err(|error| wrong(error.to_string()))?;
        if found.version == VERSION {
            Ok(found)
        } else {
            Err(wrong(format!("it is of version {}, and this program knows {VERSION}", found.version)))
        }
    }

    /// Adds to what is kept, one process at a time.
    ///
    /// # Errors
    /// As [`Measurements::read`], and if the lock cannot be taken or the file cannot be written;
    /// [`MeasurementsError::NotKept`] if it could not be read again. What was there stays then.
    pub fn add(state: &Path, add: impl FnOnce(&mut Self)) -> Result<PathBuf, MeasurementsError> {
        let path = state.join("laboratory.lock");
        let lock = || {
            fs::create_dir_all(state)?;
            let file = fs::File::options().create(true).truncate(false).write(true).open(&path)?;
            rustix::fs::flock(&file, rustix::fs::FlockOperation::LockExclusive)?;
            Ok(file)
        };
        let locked = lock().map_err(|source| MeasurementsError::File { action: "lock", path: path.clone(), source })?;
        let mut all = Self::read(state)?;
        add(&mut all);
        let written = all.write(state);
        drop(locked);
        written
    }

    /// Keeps them, whole or not at all.
    fn write(&self, state: &Path) -> Result<PathBuf, MeasurementsError> {
        let path = state.join(FILE);
        let staged = state.join(format!("{FILE}.{}", std::process::id()));
        let told = |source: serde_json::Error| MeasurementsError::File {
            action: "write",
            path: path.clone(),
            source: source.into(),
        };
        let text = serde_json::to_string_pretty(self).map_err(told)?;
        // JSON has no word for what is no number: it would be written, and never read again.
        if let Err(error) = serde_json::from_str::<Self>(&text) {
            return Err(MeasurementsError::NotKept { path, reason: error.to_string() });
        }
        let write = || {
            fs::create_dir_all(state)?;
            let mut file = fs::File::create(&staged)?;
            file.write_all(text.as_bytes())?;
            file.sync_all()?;
            fs::rename(&staged, &path)
        };
        write().map_err(|source| {
            // Half of a file is of no use to anybody.
            let _ = fs::remove_file(&staged);
            MeasurementsError::File { action: "write", path: path.clone(), source }
        })?;
        Ok(path)
    }

    /// Adds what bare readers got.
    pub fn add_source(&mut self, new: Measured<SourceRates>) {
        replace(&mut self.sources, new, same_source);
    }

    /// Adds what bare readers got until they ended early, to what others got before.
    pub fn add_source_part(&mut self, new: SourceRates, at_ns: i64) {
        let known = |new: &SourceRates, old: &ReaderRate| new.rates.iter().any(|rate| rate.readers == old.readers);
        match self.sources.iter_mut().find(|old| same_source(&old.found, &new)) {
            Some(old) => {
                old.found.rates.retain(|rate| !known(&new, rate));
                old.found.rates.extend(new.rates);
            }
            None => self.sources.push(Measured { at_ns, found: new }),
        }
    }

    /// When the same was measured before, nanoseconds since 1970.
    pub fn earlier_source(&self, new: &SourceRates) -> Option<i64> {
        earlier(&self.sources, new, same_source)
    }

    /// Adds what the data path gave.
    pub fn add_path(&mut self, new: Measured<PathRates>) {
        replace(&mut self.paths, new, same_path);
    }

    /// When the same was measured before, nanoseconds since 1970.
    pub fn earlier_path(&self, new: &PathRates) -> Option<i64> {
        earlier(&self.paths, new, same_path)
    }

    /// Adds levels of compression that were not measured before to what the data path gave otherwise.
    pub fn add_levels(&mut self, new: PathRates, at_ns: i64) {
        match self.paths.iter_mut().find(|old| same_path(&old.found, &new)) {
            Some(old) => {
                old.found.rates.retain(|rate| !new.has_level(rate.compression_level));
                old.found.rates.extend(new.rates);
            }
            None => self.paths.push(Measured { at_ns, found: new }),
        }
    }

    /// Adds what the data path gave until it ended early, to what was measured of other ways before.
    pub fn add_path_part(&mut self, new: PathRates, at_ns: i64) {
        let way = |rate: &PathRate| (rate.connections, rate.block_len, rate.compression_level);
        match self.paths.iter_mut().find(|old| same_path(&old.found, &new)) {
            Some(old) => {
                old.found.rates.retain(|rate| new.rates.iter().all(|other| way(other) != way(rate)));
                old.found.rates.extend(new.rates);
            }
            None => self.paths.push(Measured { at_ns, found: new }),
        }
    }

    /// Adds what a drive took.
    pub fn add_drive(&mut self, new: Measured<DriveRates>) {
        replace(&mut self.drives, new, same_drive);
    }

    /// Adds what a drive took until it ended early, to what was measured of other ways before.
    pub fn add_drive_part(&mut self, new: DriveRates, at_ns: i64) {
        let way = |rate: &DriveRate| (rate.block_len, rate.data);
        match self.drives.iter_mut().find(|old| same_drive(&old.found, &new)) {
            Some(old) => {
                old.found.rates.retain(|rate| new.rates.iter().all(|other| way(other) != way(rate)));
                old.found.rates.extend(new.rates);
            }
            None => self.drives.push(Measured { at_ns, found: new }),
        }
    }

    /// When the same was measured before, nanoseconds since 1970.
    pub fn earlier_drive(&self, new: &DriveRates) -> Option<i64> {
        earlier(&self.drives, new, same_drive)
    }

    /// Adds what the network gave.
    pub fn add_network(&mut self, new: Measured<NetworkMeasurement>) {
        replace(&mut self.networks, new, |old, new| old.peer.ip() == new.peer.ip());
    }

    /// Adds what was tried.
    pub fn add_trial(&mut self, new: Measured<Tried>) {
        replace(&mut self.trials, new, |old, new| old.source == new.source && old.setting == new.setting);
    }

    /// Adds what restores and object copies gave.
    pub fn add_restore(&mut self, new: Measured<RestoreRates>) {
        replace(&mut self.restores, new, same_restore);
    }

    /// When the same was measured before, nanoseconds since 1970.
    pub fn earlier_restore(&self, new: &RestoreRates) -> Option<i64> {
        earlier(&self.restores, new, same_restore)
    }

    /// Adds what a disk gave.
    pub fn add_staging(&mut self, new: Measured<StagingRates>) {
        replace(&mut self.staging, new, same_staging);
    }

    /// When the same was measured before, nanoseconds since 1970.
    pub fn earlier_staging(&self, new: &StagingRates) -> Option<i64> {
        earlier(&self.staging, new, same_staging)
    }
}

fn same_source(old: &SourceRates, new: &SourceRates) -> bool {
    old.source == new.source && old.cache == new.cache && old.block_len == new.block_len
}

fn same_path(old: &PathRates, new: &PathRates) -> bool {
    old.source == new.source && old.cache == new.cache && old.slow == new.slow
}

fn same_drive(old: &DriveRates, new: &DriveRates) -> bool {
    let same = old.place == new.place && old.model == new.model && old.encryption == new.encryption;
    same && old.sync_mb == new.sync_mb
}

fn same_restore(old: &RestoreRates, new: &RestoreRates) -> bool {
    old.source == new.source && old.to == new.to
}

fn same_staging(old: &StagingRates, new: &StagingRates) -> bool {
    old.folder == new.folder
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests fail by panicking")]
    use super::*;
    use crate::measure::Spread;
    use crate::measure::exercise::DriveData;

    fn staging(folder: &str, mb_per_s: f64) -> StagingRates {
        let rate = Spread::exactly(mb_per_s);
        StagingRates {
            folder: folder.into(),
            device: 0,
            free_mb: 0,
            block_len: 1,
            write: Vec::new(),
            read: rate,
            read_mixed: rate,
            write_beside_read: rate,
            read_beside_write: rate,
            cpu_s_per_mb: None,
        }
    }

    #[test]
    fn the_latest_of_each_thing_is_kept() {
        let state = tempfile::tempdir().unwrap();
        let state = state.path().join("new");
        let mut all = Measurements::read(&state).unwrap();
        assert_eq!(all, Measurements::default());
        all.add_staging(Measured { at_ns: 1, found: staging("/one", 1.0) });
        all.add_staging(Measured { at_ns: 2, found: staging("/two", 2.0) });
        all.add_staging(Measured { at_ns: 3, found: staging("/one", 3.0) });
        assert_eq!(all.earlier_staging(&staging("/one", 9.0)), Some(3));
        assert_eq!(all.earlier_staging(&staging("/three", 9.0)), None);
        all.write(&state).unwrap();
        let read = Measurements::read(&state).unwrap();
        assert_eq!(read, all);
        assert_eq!(read.staging.iter().map(|one| one.at_ns).collect::<Vec<_>>(), [2, 3]);
    }

    /// A run that stored nothing had a ratio without end. It was written as `null`, and the file could never be read
    /// again.
    #[test]
    fn what_could_not_be_read_again_is_not_kept() {
        let state = tempfile::tempdir().unwrap();
        let mut all = Measurements::default();
        all.add_staging(Measured { at_ns: 1, found: staging("/one", 1.0) });
        all.write(state.path()).unwrap();
        let before = fs::read_to_string(state.path().join(FILE)).unwrap();
        all.add_staging(Measured { at_ns: 2, found: staging("/one", f64::INFINITY) });
        assert!(all.write(state.path()).unwrap_err().to_string().contains("is not kept"));
        assert_eq!(fs::read_to_string(state.path().join(FILE)).unwrap(), before);
    }

    #[test]
    fn what_cannot_be_written_leaves_no_half_of_a_file() {
        let state = tempfile::tempdir().unwrap();
        // A folder of the file's name cannot be replaced by a file.
        fs::create_dir(state.path().join(FILE)).unwrap();
        Measurements::default().write(state.path()).unwrap_err();
        assert_eq!(fs::read_dir(state.path()).unwrap().count(), 1);
    }

    #[test]
    fn a_part_leaves_what_was_measured_of_other_ways() {
        let rate = |block_len, mb_per_s| DriveRate {
            block_len,
            data: DriveData::Random,
            mb_per_s: Spread::exactly(mb_per_s),
            cpu_s_per_mb: 0.0,
            backhitches: None,
        };
        let drive =
            |rates| DriveRates { place: "/one".into(), device: 0, model: None, encryption: None, sync_mb: None, rates };
        let mut all = Measurements::default();
        all.add_drive_part(drive(vec![rate(1, 10.0), rate(2, 20.0)]), 1);
        all.add_drive_part(drive(vec![rate(1, 11.0)]), 2);
        let [kept] = &all.drives[..] else { panic!("{:?}", all.drives) };
        assert_eq!(kept.found.rates, [rate(2, 20.0), rate(1, 11.0)]);
    }

    #[test]
    fn a_file_that_cannot_be_understood_is_named() {
        let state = tempfile::tempdir().unwrap();
        let told = |text: &str| {
            fs::write(state.path().join(FILE), text).unwrap();
            Measurements::read(state.path()).unwrap_err().to_string()
        };
        assert!(told("{").contains("Remove it, and measure again"));
        assert!(told("{\"version\": 9}").contains("of version 9, and this program knows 1"));
    }
}
