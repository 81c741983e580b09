//! What was measured of one source, as forecasts need it.

use std::path::Path;

use super::doubt::{Disagreement, too_small_s, unsettled};
use super::error::{AdviseError, distinct};
use super::learned::{Learned, steadiness};
use crate::measure::Spread;
use crate::measure::data_path::{PathRate, PathRates, SlowSource};
use crate::measure::exercise::{DriveData, DriveRate, DriveRates};
use crate::measure::source::{Cache, SourceRates};
use crate::measure::staging::StagingRates;
use crate::site::Measurements;

/// A share of all processors from which on they are taken to be what held a measurement up.
const SATURATED: f64 = 0.85;

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
    /// MB to back up: the source's, or more, of which it is a sample.
    pub source_mb: f64,
    /// MB that the source has, if that is known.
    pub tree_mb: Option<f64>,
    /// What bare readers got at most of anything on the source's device, MB/s.
    pub disk_read: Option<Spread>,
    /// How little rates fluctuate here, as trials have shown: the power that joins them.
    pub steadiness: f64,
    /// How far what was tried here was from its forecast; none if nothing was.
    pub misses: Learned,
}

impl SiteFigures {
    /// What was measured of this source. A source that was measured cold is taken cold: that is how a backup finds it.
    ///
    /// # Errors
    /// [`AdviseError::NoPath`] if the data path was not measured with this source.
    pub fn of(all: &Measurements, source: &Path) -> Result<Self, AdviseError> {
        let coldest = |cache: Cache| match cache {
            Cache::Dropped => 0,
            Cache::Cold => 1,
            Cache::Warm | Cache::Direct => 2,
        };
        let paths = all.paths.iter().filter(|measured| measured.found.source == source);
        // As it is, if it was ever measured so; else as slow as it was made.
        let path = paths
            .min_by_key(|measured| (measured.found.slow != SlowSource::default(), coldest(measured.found.cache)))
            .map(|measured| measured.found.clone());
        let path = path.ok_or_else(|| AdviseError::NoPath { path: source.to_owned() })?;
        let readers = all.sources.iter().map(|measured| &measured.found);
        let readers = readers.filter(|found| found.source == source && found.cache == path.cache);
        let readers = readers.max_by(|one, other| best(one).total_cmp(&best(other))).cloned();
        let on_device = all.sources.iter().map(|other| &other.found);
        let on_device = on_device
            .filter(|other| path.device != 0 && other.device == path.device && other.cache == path.cache)
            .flat_map(|other| other.rates.iter().map(|rate| rate.mb_per_s));
        let disk_read = on_device
            .chain(path.rates.iter().map(|rate| rate.mb_per_s))
            .max_by(|one, other| one.median.total_cmp(&other.median));
        let steadiness = steadiness(&all.trials);
        let drives =
            all.drives.iter().filter(|measured| measured.found.model.is_none() && measured.found.sync_mb.is_none());
        let drive = drives.max_by_key(|measured| measured.at_ns).map(|measured| measured.found.clone());
        let staging = all.staging.iter().max_by_key(|measured| measured.at_ns).map(|measured| measured.found.clone());
        let listed = readers.as_ref().filter(|readers| readers.whole).map(|readers| readers.mb);
        let tree_mb = if path.whole { Some(path.mb) } else { listed.map(|listed| listed.max(path.mb)) };
        let source_mb = tree_mb.unwrap_or(path.mb);
        Ok(Self {
            path,
            readers,
            drive,
            staging,
            network: None,
            source_mb,
            tree_mb,
            disk_read,
            steadiness,
            misses: Learned::of(&all.trials),
        })
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

    /// A level that was not measured has neither a cost nor a ratio, and those of another are no stand-in: nothing is
    /// forecast of it.
    pub(super) fn check_level(&self, level: i32) -> Result<(), AdviseError> {
        let known = self.levels();
        if known.contains(&level) {
            return Ok(());
        }
        Err(AdviseError::Level { path: self.path.source.clone(), level, known })
    }

    /// Rates of a level that was measured, with the block that is nearest to this one.
    fn rates_of(&self, level: i32, block_len: usize) -> Vec<&PathRate> {
        let of_level: Vec<_> = self.path.rates.iter().filter(|rate| rate.compression_level == level).collect();
        let nearest = of_level.iter().map(|rate| rate.block_len).min_by_key(|other| other.abs_diff(block_len));
        of_level.into_iter().filter(|rate| Some(rate.block_len) == nearest).collect()
    }

    fn used(&self, rate: &PathRate) -> f64 {
        rate.mb_per_s.median * rate.cpu_s_per_mb / f64::from(self.path.processors)
    }

    /// What the source gives to so many connections. Where processors held the measurement up it is what bare readers
    /// got, if that was more.
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
        if let Some(Disagreement { read, null }) = self.disagreement() {
            // Neither is chosen: it is somewhere from one to the other.
            let high = read.high.max(given.high);
            return Spread { low: given.low.min(null.low), median: f64::midpoint(given.median, read.median), high };
        }
        match bare {
            Some(bare) if used > SATURATED && bare.median > given.median => bare,
            // Nothing is known of what the source would give to more processors than there are.
            None if used > SATURATED => given.map(|rate| rate / used),
            _ => given,
        }
    }

    /// Whether bare readers got much more of the source than the data path did, though no processor held it up: one of
    /// the two was measured wrongly, or while something else went on. A source that was made slow was not so for bare
    /// readers.
    pub fn disagreement(&self) -> Option<Disagreement> {
        Disagreement::between(self.readers.as_ref()?, &self.path)
    }

    /// Seconds in which the data path read the whole source at its fastest, if that is too little to tell numbers of
    /// connections apart: they come and go within it.
    pub fn too_small_s(&self) -> Option<f64> {
        too_small_s(&self.path)
    }

    /// Ways in which the data path did not go steadily before it was to end.
    pub fn unsettled(&self) -> impl Iterator<Item = &PathRate> {
        unsettled(&self.path)
    }

    /// Whether the source and the virtual drive share one disk, and the source is read from it.
    pub(super) fn shares_disk(&self) -> bool {
        let device = self.drive.as_ref().map_or(0, |drive| drive.device);
        matches!(self.path.cache, Cache::Cold | Cache::Dropped) && device != 0 && device == self.path.device
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

    /// What a disk that source and drive share gives to both: seconds for each MB read, and for each MB written, as
    /// each was measured alone; and how much longer both take beside each other, if that was measured.
    pub(super) fn disk_s(&self, written_mb_per_s: f64, pick: fn(&Spread) -> f64) -> Option<(f64, f64)> {
        let (read_s, write_s) = (1.0 / pick(&self.disk_read?), 1.0 / written_mb_per_s);
        let staging = self.staging.as_ref().filter(|staging| staging.device == self.path.device);
        let longer = staging.map_or(1.0, |staging| {
            let one = staging.write.iter().find(|rate| rate.writers == 1);
            let one = one.map_or(written_mb_per_s, |rate| pick(&rate.mb_per_s));
            // What the disk does in a second for both, in seconds of each alone.
            let read_alone_s = pick(&staging.read_beside_write) / pick(&staging.read).max(1e-9);
            let write_alone_s = pick(&staging.write_beside_read) / one.max(1e-9);
            (1.0 / (read_alone_s + write_alone_s).max(1e-9)).max(1.0)
        });
        Some((read_s * longer, write_s * longer))
    }

    /// Seconds of processors for each MB on its way to a drive.
    pub(super) fn path_cpu(&self, level: i32, block_len: usize, connections: u32) -> f64 {
        let points = self.rates_of(level, block_len).into_iter();
        let points = points.map(|rate| (f64::from(rate.connections).log2(), rate.cpu_s_per_mb));
        interpolate(points.collect(), f64::from(connections).log2())
    }

    /// The share of all processors that can be had: what the measurement of this level had that used them most, if they
    /// held it up, with the spread of its rounds; else all of them.
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
        if rates.is_empty() { 1.0 } else { sum / rates.len() as f64 }
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

    /// Rates of data that do not compress, which is what comes out of our own compression; else of whatever was
    /// measured.
    fn drive_rates(&self) -> Option<Vec<&DriveRate>> {
        let rates = &self.drive.as_ref()?.rates;
        let random: Vec<_> = rates.iter().filter(|rate| rate.data == DriveData::Random).collect();
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
    #![allow(clippy::unwrap_used, reason = "tests fail by panicking")]
    use super::*;

    #[test]
    fn between_points_is_a_line_and_beyond_them_nothing_changes() {
        let points = vec![(2.0, 20.0), (0.0, 10.0), (1.0, 18.0)];
        for (x, wanted) in [(-1.0, 10.0), (0.0, 10.0), (0.5, 14.0), (1.0, 18.0), (1.5, 19.0), (9.0, 20.0)] {
            assert_eq!(interpolate(points.clone(), x), wanted, "at {x}");
        }
    }

    /// Where one of the two got nearly all of the disk, the other was taken to cost next to nothing: rates that were
    /// added up hid that a MB read and a MB written do not take as long.
    #[test]
    fn a_disk_that_is_read_and_written_at_once_takes_as_long_as_was_measured() {
        use super::super::doubt::tests::site;
        use crate::measure::staging::WriterRate;
        let exactly = Spread::exactly;
        let longer = |read: f64, write: f64, read_beside: f64, write_beside: f64| {
            let mut figures = site(read, 0.001, read);
            figures.staging = Some(StagingRates {
                folder: "/srv".into(),
                device: 0,
                free_mb: 0,
                block_len: 1 << 19,
                write: vec![WriterRate { writers: 1, mb_per_s: exactly(write), cpu_s_per_mb: 0.0 }],
                read: exactly(read),
                read_mixed: exactly(read),
                write_beside_read: exactly(write_beside),
                read_beside_write: exactly(read_beside),
                cpu_s_per_mb: None,
            });
            let (read_s, write_s) = figures.disk_s(write, |spread| spread.median).unwrap();
            assert!((read_s * read - write_s * write).abs() < 1e-9);
            read_s * read
        };
        // A tenth of what it reads alone, and half of what it writes alone: six tenths of a second's work in a second.
        assert!((longer(1000.0, 100.0, 100.0, 50.0) - 1.0 / 0.6).abs() < 1e-9);
        // Each gets half, as one after the other would have it.
        assert!((longer(100.0, 100.0, 50.0, 50.0) - 1.0).abs() < 1e-9);
        assert_eq!(longer(100.0, 100.0, 80.0, 80.0), 1.0, "no disk is faster for doing two things");
    }

    /// A client compresses before it sends: a network of 100 MB/s carries 200 MB/s of what shrinks by half.
    #[test]
    fn a_network_carries_what_was_compressed() {
        use super::super::doubt::tests::{setting, site};
        use crate::part::Part;
        let mut figures = site(1000.0, 0.0001, 1000.0);
        figures.network = Some(Spread::exactly(100.0));
        figures.path.rates[0].ratio = 2.0;
        let setting = setting("LTO-8", 0);
        let forecast = figures.forecast(&setting).unwrap();
        let network = forecast.parts.iter().find(|(part, _)| *part == Part::Network).unwrap();
        assert_eq!(network.1, 200.0);
    }
}
