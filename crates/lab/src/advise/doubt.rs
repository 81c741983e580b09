//! Measurements that no advice should rest on: where they contradict each other, or say nothing.

use schemars::JsonSchema;
use serde::Serialize;

use crate::measure::Spread;
use crate::measure::data_path::{PathRate, PathRates, SlowSource};
use crate::measure::source::SourceRates;

/// What the data path gives of what bare readers get, below which the two disagree where no processor is to blame.
const AGREEING: f64 = 0.7;
/// The share of one processor below which none is to blame.
const IDLE: f64 = 0.5;

/// Seconds that a whole source must take at least to say what more connections give.
const TELLING_S: f64 = 0.2;

/// Bare readers and the data path, of the same source, where what they got cannot both be so. MB/s.
#[derive(Debug, Clone, Copy, PartialEq, JsonSchema, Serialize)]
pub struct Disagreement {
    /// What bare readers got at most.
    pub read: Spread,
    /// What the data path got at most.
    pub null: Spread,
}

impl Disagreement {
    /// Whether what bare readers got and what the data path got cannot both be so.
    pub(super) fn between(readers: &SourceRates, path: &PathRates) -> Option<Self> {
        let fastest = |rates: &mut dyn Iterator<Item = Spread>| rates.max_by(|a, b| a.median.total_cmp(&b.median));
        let null = fastest(&mut path.rates.iter().map(|rate| rate.mb_per_s))?;
        let read = fastest(&mut readers.rates.iter().map(|rate| rate.mb_per_s))?;
        let idle = |rate: &PathRate| rate.mb_per_s.median * rate.cpu_s_per_mb < IDLE;
        let apart = path.slow == SlowSource::default() && null.high < read.low * AGREEING;
        (apart && path.rates.iter().all(idle)).then_some(Self { read, null })
    }
}

/// Seconds in which a whole source was read at its fastest, if they are too few to say what more connections give.
pub(super) fn too_small_s(path: &PathRates) -> Option<f64> {
    let fastest = path.rates.iter().map(|rate| rate.mb_per_s.median).fold(0.0, f64::max);
    let seconds = path.mb / fastest.max(1e-9);
    (path.whole && seconds < TELLING_S).then_some(seconds)
}

/// Ways in which the data path did not go steadily before it was to end.
pub(super) fn unsettled(path: &PathRates) -> impl Iterator<Item = &PathRate> {
    path.rates.iter().filter(|rate| !rate.settled)
}

#[cfg(test)]
pub(super) mod tests {
    #![allow(clippy::unwrap_used, reason = "tests fail by panicking")]
    use std::path::Path;

    use super::super::figures::SiteFigures;
    use super::super::setting::{Route, Setting, TapeDrive};
    use super::*;
    use crate::measure::source::{Cache, ReaderRate};
    use crate::site::{Measured, Measurements};

    /// A setting for a drive's model.
    pub(in crate::advise) fn setting(drive: &str, compression_level: i32) -> Setting {
        Setting {
            connections: 4,
            block_len: 256 << 10,
            pool_bytes: 128 << 20,
            checkpoint_bytes: 4 << 30,
            checkpoint_seconds: 60,
            compression_level,
            copies: 1,
            route: Route::Direct,
            drive: TapeDrive::Model(Box::new(capstan_tape::model::built_in(drive).unwrap())),
        }
    }

    pub(in crate::advise) fn site(null: f64, cpu_s_per_mb: f64, read: f64) -> SiteFigures {
        let rate = PathRate {
            connections: 4,
            block_len: 512 << 10,
            compression_level: 0,
            mb_per_s: Spread::exactly(null),
            settled: true,
            cpu_s_per_mb,
            ratio: 1.0,
        };
        let path = PathRates {
            source: "/srv".into(),
            device: 0,
            cache: Cache::Cold,
            processors: 8,
            slow: SlowSource::default(),
            mb: 100.0,
            files: 10,
            whole: false,
            problems: 0,
            rates: vec![rate],
        };
        let files_per_s = Spread::exactly(1.0);
        let readers = SourceRates {
            source: "/srv".into(),
            device: 0,
            files: 10,
            mb: 100.0,
            whole: true,
            block_len: 256 << 10,
            cache: Cache::Cold,
            rates: vec![ReaderRate { readers: 4, mb_per_s: Spread::exactly(read), files_per_s, cpu_s_per_mb }],
            classes: Vec::new(),
        };
        let mut all = Measurements::default();
        all.add_path(Measured { at_ns: 1, found: path });
        all.add_source(Measured { at_ns: 1, found: readers });
        SiteFigures::of(&all, Path::new("/srv")).unwrap()
    }

    /// A disk of 20 MB/s was forecast at 4.0, where bare readers had got 19.5: the lesser was chosen without a word.
    #[test]
    fn where_readers_and_the_path_disagree_neither_is_chosen() {
        let figures = site(4.0, 0.001, 19.5);
        let Disagreement { read, null } = figures.disagreement().unwrap();
        assert_eq!((read.median, null.median), (19.5, 4.0));
        let source = figures.source(4, 512 << 10);
        assert_eq!((source.low, source.high), (4.0, 19.5));
        assert_eq!(site(18.5, 0.001, 19.5).disagreement(), None, "rounds differ by as much");
        assert_eq!(
            site(19.5, 0.001, 4.0).disagreement(),
            None,
            "the path announces what it reads, bare readers do not"
        );
        assert_eq!(site(3000.0, 0.0003, 6000.0).disagreement(), None, "one processor has all to do");
    }

    /// After `null --compression 0` forecasts at zstd 1 took neither a cost nor a ratio: 77 MB/s to an LTO-3 instead of
    /// 156.
    #[test]
    fn a_level_that_was_not_measured_is_not_forecast() {
        let setting = setting("LTO-3", 1);
        let figures = site(100.0, 0.001, 100.0);
        let told = figures.forecast(&setting).unwrap_err().to_string();
        assert!(told.starts_with("zstd 1 was not measured of /srv") && told.ends_with("--compression 0,1"), "{told}");
        assert!(figures.forecast(&Setting { compression_level: 0, ..setting }).is_ok());
    }

    #[test]
    fn a_source_that_is_read_in_no_time_says_nothing_of_connections() {
        let mut figures = site(1000.0, 0.001, 1000.0);
        assert_eq!(figures.too_small_s(), None, "there was more");
        figures.path.whole = true;
        assert!((figures.too_small_s().unwrap() - 0.1).abs() < 1e-9);
        figures.path.mb = 1000.0;
        assert_eq!(figures.too_small_s(), None);
    }
}
