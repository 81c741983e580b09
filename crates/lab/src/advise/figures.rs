//! What was measured of one source, as forecasts need it.

use std::path::{Path, PathBuf};

use crate::measure::Spread;
use crate::measure::data_path::{PathRate, PathRates, SlowSource};
use crate::measure::exercise::{Data, DriveRate, DriveRates};
use crate::measure::source::{Cache, SourceRates};
use crate::measure::staging::StagingRates;
use crate::site::Measurements;

/// A share of all processors from which on they are taken to be what held a measurement up.
const SATURATED: f64 = 0.85;

/// Why there is no advice.
#[derive(Debug, thiserror::Error)]
pub enum AdviseError {
    /// The data path was not measured with this source.
    #[error("{} was not measured yet: capstan lab null {}", path.display(), path.display())]
    NoPath {
        /// The source.
        path: PathBuf,
    },
    /// No drive was measured.
    #[error(
        "no virtual drive was measured yet: capstan lab drive --folder DIR, where DIR is on the disk of the library"
    )]
    NoDrive,
    /// A drive's model does not do what is asked of it.
    #[error(transparent)]
    Model(#[from] capstan_tape::model::ModelError),
    /// A number that cannot be.
    #[error("{what}")]
    Option {
        /// What is wrong.
        what: &'static str,
    },
}

/// What was measured of one source and of what it would be written to.
#[derive(Debug, Clone, PartialEq)]
pub struct SiteFigures {
    /// The data path to nowhere.
    pub path: PathRates,
    /// Bare readers, if they were measured.
    pub readers: Option<SourceRates>,
    /// A virtual drive that takes nobody's time, if one was measured.
    pub drive: Option<DriveRates>,
    /// A disk as a file library, if one was measured.
    pub staging: Option<StagingRates>,
    /// What the network gives, MB/s, if the source is behind one.
    pub network: Option<Spread>,
    /// MB of the source.
    pub source_mb: f64,
}

impl SiteFigures {
    /// What was measured of this source. A source that was measured cold is taken cold: that is how a backup finds it.
    pub fn of(all: &Measurements, source: &Path) -> Result<Self, AdviseError> {
        let coldest = |cache: Cache| if cache == Cache::Cold { 0 } else { 1 };
        let paths = all.paths.iter().filter(|measured| measured.found.source == source);
        let path = paths.min_by_key(|measured| coldest(measured.found.cache)).map(|measured| measured.found.clone());
        let path = path.ok_or_else(|| AdviseError::NoPath { path: source.to_owned() })?;
        let readers = all.sources.iter().map(|measured| &measured.found);
        let readers = readers.filter(|found| found.source == source && found.cache == path.cache);
        let readers = readers.max_by(|one, other| best(one).total_cmp(&best(other))).cloned();
        let drives =
            all.drives.iter().filter(|measured| measured.found.model.is_none() && measured.found.sync_mb.is_none());
        let drive = drives.max_by_key(|measured| measured.at_ns).map(|measured| measured.found.clone());
        let staging = all.staging.iter().max_by_key(|measured| measured.at_ns).map(|measured| measured.found.clone());
        let read_mb = readers.as_ref().map_or(0.0, |readers| readers.mb);
        let source_mb = if path.whole { path.mb } else { path.mb.max(read_mb) };
        Ok(Self { path, readers, drive, staging, network: None, source_mb })
    }

    /// How slow the source was made when it was measured.
    pub fn slow(&self) -> SlowSource {
        self.path.slow
    }

    /// Levels of compression that were measured.
    pub(super) fn levels(&self) -> Vec<i32> {
        distinct(self.path.rates.iter().map(|rate| rate.compression_level))
    }

    /// Numbers of connections that were measured.
    pub(super) fn connections(&self) -> Vec<u32> {
        distinct(self.path.rates.iter().map(|rate| rate.connections))
    }

    /// Rates of a level with the block that is nearest to this one.
    fn rates_of(&self, level: i32, block_len: usize) -> Vec<&PathRate> {
        let levels = self.levels();
        let nearest_level = levels.iter().copied().min_by_key(|other| (other - level).unsigned_abs());
        let of_level: Vec<_> =
            self.path.rates.iter().filter(|rate| Some(rate.compression_level) == nearest_level).collect();
        let nearest = of_level.iter().map(|rate| rate.block_len).min_by_key(|other| other.abs_diff(block_len));
        of_level.into_iter().filter(|rate| Some(rate.block_len) == nearest).collect()
    }

    fn used(&self, rate: &PathRate) -> f64 {
        rate.mb_per_s.median * rate.cpu_s_per_mb / f64::from(self.path.processors)
    }

    /// What the source gives to so many connections. Where processors held the measurement up it is what bare readers got, if that
    /// was more.
    pub(super) fn source(&self, connections: u32, block_len: usize) -> Spread {
        let least = self.levels().into_iter().min_by_key(|level| level.unsigned_abs()).unwrap_or_default();
        let rates = self.rates_of(least, block_len);
        let between = |value: fn(&PathRate) -> f64| {
            let points = rates.iter().map(|rate| (f64::from(rate.connections).log2(), value(rate)));
            interpolate(points.collect(), f64::from(connections).log2())
        };
        let low = between(|rate| rate.mb_per_s.low);
        let given =
            Spread { low, median: between(|rate| rate.mb_per_s.median), high: between(|rate| rate.mb_per_s.high) };
        let used = between(|rate| rate.mb_per_s.median * rate.cpu_s_per_mb) / f64::from(self.path.processors);
        let bare = self.readers.as_ref().and_then(|readers| {
            readers.rates.iter().map(|rate| rate.mb_per_s).max_by(|one, other| one.median.total_cmp(&other.median))
        });
        match bare {
            Some(bare) if used > SATURATED && bare.median > given.median => bare,
            // Nothing is known of what the source would give to more processors than there are.
            None if used > SATURATED => given.map(|rate| rate / used),
            _ => given,
        }
    }

    /// Whether the source and the virtual drive share one disk, and the source is read from it.
    pub(super) fn shares_disk(&self) -> bool {
        let device = self.drive.as_ref().map_or(0, |drive| drive.device);
        self.path.cache == Cache::Cold && device != 0 && device == self.path.device
    }

    /// The same site, with the virtual drive on a disk of its own.
    #[must_use]
    pub(super) fn on_two_disks(&self) -> Self {
        let mut apart = self.clone();
        if let Some(drive) = &mut apart.drive {
            drive.device = 0;
        }
        apart
    }

    /// What the source's disk gives when nothing else wants it.
    pub(super) fn source_disk(&self, block_len: usize) -> Spread {
        let most = self.connections().into_iter().max().unwrap_or(1);
        let path = self.source(most, block_len);
        let bare = self.readers.as_ref().and_then(|readers| {
            readers.rates.iter().map(|rate| rate.mb_per_s).max_by(|one, other| one.median.total_cmp(&other.median))
        });
        bare.filter(|bare| bare.median > path.median).unwrap_or(path)
    }

    /// Seconds of processors for each MB on its way to a drive.
    pub(super) fn path_cpu(&self, level: i32, block_len: usize, connections: u32) -> f64 {
        let points = self.rates_of(level, block_len).into_iter();
        let points = points.map(|rate| (f64::from(rate.connections).log2(), rate.cpu_s_per_mb));
        interpolate(points.collect(), f64::from(connections).log2())
    }

    /// The share of all processors that can be had: what the measurement of this level had that used them most, if they held it
    /// up, with the spread of its rounds; else all of them.
    pub(super) fn usable(&self, level: i32, block_len: usize) -> Spread {
        let rates = self.rates_of(level, block_len);
        let busiest = rates.into_iter().max_by(|one, other| self.used(one).total_cmp(&self.used(other)));
        let Some(busiest) = busiest.filter(|rate| self.used(rate) > SATURATED) else { return Spread::exactly(1.0) };
        let (used, rounds) = (self.used(busiest).min(1.0), busiest.mb_per_s);
        rounds.map(|rate| used * rate / rounds.median)
    }

    /// Bytes read for each byte stored.
    pub(super) fn ratio(&self, level: i32, block_len: usize) -> f64 {
        let rates = self.rates_of(level, block_len);
        let sum: f64 = rates.iter().map(|rate| rate.ratio).sum();
        if rates.is_empty() { 1.0 } else { (sum / rates.len() as f64).max(1.0) }
    }

    /// What the virtual drive takes, MB/s, and the seconds of processors for each MB. Time for a block is interpolated.
    pub(super) fn virtual_drive(&self, block_len: usize) -> Option<(Spread, f64)> {
        let rates = self.drive_rates()?;
        let block_mb = block_len as f64 / 1e6;
        let between = |value: &dyn Fn(&DriveRate) -> f64| {
            let points = rates.iter().map(|rate| {
                let mb = rate.block_len as f64 / 1e6;
                (mb, mb / value(rate))
            });
            block_mb / interpolate(points.collect(), block_mb)
        };
        let spread = Spread {
            low: between(&|rate| rate.mb_per_s.low),
            median: between(&|rate| rate.mb_per_s.median),
            high: between(&|rate| rate.mb_per_s.high),
        };
        let points = rates.iter().map(|rate| (rate.block_len as f64, rate.cpu_s_per_mb));
        Some((spread, interpolate(points.collect(), block_len as f64)))
    }

    /// Blocks that a virtual drive was measured with.
    pub(super) fn drive_blocks(&self) -> Vec<usize> {
        distinct(self.drive_rates().into_iter().flatten().map(|rate| rate.block_len))
    }

    /// Rates of data that do not compress, which is what comes out of our own compression; else of whatever was measured.
    fn drive_rates(&self) -> Option<Vec<&DriveRate>> {
        let rates = &self.drive.as_ref()?.rates;
        let random: Vec<_> = rates.iter().filter(|rate| rate.data == Data::Random).collect();
        let chosen = if random.is_empty() { rates.iter().collect() } else { random };
        if chosen.is_empty() { None } else { Some(chosen) }
    }

    /// The share of a disk's rate that each of so many writers gets.
    pub(super) fn share_of_writer(&self, writers: u32) -> f64 {
        let rate_of = |staging: &StagingRates, writers: u32| {
            staging.write.iter().find(|rate| rate.writers == writers).map(|rate| rate.mb_per_s.median)
        };
        let measured = self
            .staging
            .as_ref()
            .and_then(|staging| Some(rate_of(staging, writers)? / f64::from(writers) / rate_of(staging, 1)?));
        measured.unwrap_or(1.0 / f64::from(writers)).min(1.0)
    }
}

fn best(rates: &SourceRates) -> f64 {
    rates.rates.iter().map(|rate| rate.mb_per_s.median).fold(0.0, f64::max)
}

fn distinct<T: Ord>(values: impl Iterator<Item = T>) -> Vec<T> {
    let mut values: Vec<T> = values.collect();
    values.sort();
    values.dedup();
    values
}

/// The value at `x` on the lines between points; beyond the last point on either side it stays what it was there.
fn interpolate(mut points: Vec<(f64, f64)>, x: f64) -> f64 {
    points.sort_by(|one, other| one.0.total_cmp(&other.0));
    let Some((first, last)) = points.first().zip(points.last()) else { return 0.0 };
    if x <= first.0 {
        return first.1;
    }
    if x >= last.0 {
        return last.1;
    }
    let pair = points.windows(2).find(|pair| x <= pair[1].0);
    pair.map_or(last.1, |pair| {
        let ((from, low), (to, high)) = (pair[0], pair[1]);
        if to > from { low + (high - low) * (x - from) / (to - from) } else { high }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn between_points_is_a_line_and_beyond_them_nothing_changes() {
        let points = vec![(2.0, 20.0), (0.0, 10.0), (1.0, 18.0)];
        for (x, wanted) in [(-1.0, 10.0), (0.0, 10.0), (0.5, 14.0), (1.0, 18.0), (1.5, 19.0), (9.0, 20.0)] {
            assert_eq!(interpolate(points.clone(), x), wanted, "at {x}");
        }
    }
}
