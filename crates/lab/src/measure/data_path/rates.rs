//! Rates of the data path, in rounds.

use std::path::PathBuf;
use std::sync::atomic::AtomicBool;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::super::source::Cache;
use super::super::unfinished::{Unfinished, ended};
use super::super::{Spread, device_of, processors};
use super::plan::check;
use super::{DataPath, DataPathError, DataPathRun, DataPathTarget, SlowSource, run_data_path};

/// What the path gave to nowhere, with so many connections and blocks of so many bytes.
#[derive(Debug, Clone, PartialEq, JsonSchema, Serialize, Deserialize)]
pub struct PathRate {
    /// Streams that read at the same time.
    pub connections: u32,
    /// Payload bytes of a block.
    pub block_len: usize,
    /// zstd level; 0 for none.
    pub compression_level: i32,
    /// MB/s of content, while it went steadily.
    pub mb_per_s: Spread,
    /// Whether all rounds went steadily before they had to end. If not, the rate is of a source that had not shown it
    /// yet.
    #[serde(default = "settled")]
    pub settled: bool,
    /// Seconds of processors for each MB.
    pub cpu_s_per_mb: f64,
    /// Bytes of content for each byte stored.
    pub ratio: f64,
}

impl PathRates {
    /// Whether a level of compression was measured.
    pub fn has_level(&self, level: i32) -> bool {
        self.rates.iter().any(|rate| rate.compression_level == level)
    }
}

/// What older files say of it, which is nothing.
fn settled() -> bool {
    true
}

/// What the path gave of a source.
#[derive(Debug, Clone, PartialEq, JsonSchema, Serialize, Deserialize)]
pub struct PathRates {
    /// The source.
    #[serde(with = "crate::site::path_text")]
    #[schemars(with = "String")]
    pub source: PathBuf,
    /// The device that it lies on; 0 if that is not known.
    #[serde(default)]
    pub device: u64,
    /// Where it was found.
    pub cache: Cache,
    /// Processors that there were.
    pub processors: u32,
    /// How slow the source was made.
    #[serde(default)]
    pub slow: SlowSource,
    /// MB and files of a run, and whether that was all of the source.
    pub mb: f64,
    /// Files.
    pub files: u64,
    /// Whether a run read all of it.
    pub whole: bool,
    /// Paths that could not be read.
    #[serde(default)]
    pub problems: u64,
    /// In each way.
    pub rates: Vec<PathRate>,
}

/// Measures the data path to nowhere with each number of connections, block and level, in rounds; the rest is as `what`
/// says. `tell` hears of each way when it is done. All ways are checked before the first is measured.
///
/// # Errors
/// As [`super::run_data_path`], and [`DataPathError::Option`] for no rounds; with the ways that were measured before.
pub fn measure_path(
    what: &DataPath,
    each: &[(u32, usize, i32)],
    rounds: u32,
    stop: &AtomicBool,
    tell: &mut dyn FnMut(&PathRate),
) -> Result<PathRates, Unfinished<PathRates, DataPathError>> {
    if rounds == 0 {
        return Err(DataPathError::Option { what: "there is at least one round" }.into());
    }
    let ways: Vec<DataPath> = each
        .iter()
        .map(|&(connections, block_len, compression_level)| DataPath {
            connections,
            block_len,
            compression_level,
            target: DataPathTarget::Null,
            ..what.clone()
        })
        .collect();
    ways.iter().try_for_each(check)?;
    let mut found = PathRates {
        source: what.source.clone(),
        device: device_of(&what.source),
        cache: what.cache,
        processors: processors(),
        slow: what.slow,
        mb: 0.0,
        files: 0,
        whole: false,
        problems: 0,
        rates: Vec::new(),
    };
    let failed = ways.iter().try_for_each(|way| measure_way(way, rounds, &mut found, stop, tell)).err();
    let is_empty = found.rates.is_empty();
    ended(found, is_empty, failed)
}

/// Measures one way, and adds what it gave.
fn measure_way(
    way: &DataPath,
    rounds: u32,
    found: &mut PathRates,
    stop: &AtomicBool,
    tell: &mut dyn FnMut(&PathRate),
) -> Result<(), DataPathError> {
    if way.cache == Cache::Warm && found.rates.is_empty() {
        run_data_path(way, stop)?;
    }
    let mut runs = rounds_of(way, rounds, stop)?;
    runs.sort_by(|one, other| one.steady_mb_per_s.median.total_cmp(&other.steady_mb_per_s.median));
    let mb_per_s = match &runs[..] {
        // Two looks at one long round are as good as two rounds.
        [alone] => alone.steady_mb_per_s,
        all => {
            let rates = all.iter().map(|run| run.steady_mb_per_s.median).collect();
            let Some(mb_per_s) = Spread::of_rounds(rates) else { return Ok(()) };
            mb_per_s
        }
    };
    for run in &runs {
        found.whole |= run.whole;
        found.problems = found.problems.max(run.problems);
        if run.mb > found.mb {
            (found.mb, found.files) = (run.mb, run.files);
        }
    }
    let middle = &runs[runs.len() / 2];
    let rate = PathRate {
        connections: way.connections,
        block_len: way.block_len,
        compression_level: way.compression_level,
        mb_per_s,
        settled: runs.iter().all(|run| run.settled),
        cpu_s_per_mb: middle.cpu_s / middle.mb,
        ratio: middle.ratio(),
    };
    tell(&rate);
    found.rates.push(rate);
    Ok(())
}

/// Rounds of one way. Where a slow source makes them longer than was asked there are fewer, one at least, so that all
/// together take not much longer than they were to.
fn rounds_of(what: &DataPath, rounds: u32, stop: &AtomicBool) -> Result<Vec<DataPathRun>, DataPathError> {
    // Rounds of the length that was asked last a little longer, by what was read and not yet written.
    let planned_s = 1.5 * what.seconds * f64::from(rounds);
    let (mut runs, mut taken_s) = (Vec::new(), 0.0);
    for _ in 0..rounds {
        let run = run_data_path(what, stop)?;
        taken_s += run.seconds;
        runs.push(run);
        let next_s = taken_s / runs.len() as f64;
        if taken_s + next_s > planned_s {
            break;
        }
    }
    Ok(runs)
}
