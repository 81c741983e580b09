//! The models held against this machine: virtual drives, paced and not, predicted and then measured.
//!
//! A paced drive is predicted by its model alone. One that is not paced is predicted by two figures, seconds for a
//! block and seconds for a byte, that are found with a short and a long block and then hold for those between.

use std::path::Path;
use std::sync::atomic::AtomicBool;

use capstan_format::Algorithm;
use capstan_tape::model::{ModelError, built_in};
use serde::{Deserialize, Serialize};

use super::load::HostLoad;
use super::measure::exercise::{DriveData, DriveMeasurementError, Exercise, Exercised, exercise};
use super::simulation::{Options, SimulationError, simulate};

/// Drives whose buffers and rates a minute of exercise can fill and feel.
const PACED: [&str; 5] = ["SDLT-220", "T9840D", "LTO-3", "LTO-5", "T10000D"];
/// Rates of the host, in native rates of the drive; none for as fast as memory.
const RATES: [Option<f64>; 4] = [None, Some(1.3), Some(0.6), Some(0.25)];
/// Seconds of data, at the rate that the drive or the host has.
const SECONDS: f64 = 4.0;
const PACED_BLOCK: usize = 256 * 1024;
const BLOCKS: [usize; 6] = [64 << 10, 128 << 10, 256 << 10, 512 << 10, 1 << 20, 2 << 20];
/// MB of an exercise that is not paced.
const UNPACED_MB: f64 = 1000.0;

/// One configuration, predicted and measured.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Comparison {
    /// What was done.
    pub what: String,
    /// Whether it was paced.
    pub paced: bool,
    /// MB/s.
    pub predicted_mb_per_s: f64,
    /// MB/s.
    pub measured_mb_per_s: f64,
}

impl Comparison {
    /// How far the prediction is off, as a share of what was measured.
    pub fn error(&self) -> f64 {
        self.predicted_mb_per_s / self.measured_mb_per_s - 1.0
    }
}

/// Why a comparison could not be made.
#[derive(Debug, thiserror::Error)]
pub enum CompareError {
    /// A model.
    #[error(transparent)]
    Model(#[from] ModelError),
    /// A simulation.
    #[error(transparent)]
    Simulation(#[from] SimulationError),
    /// An exercise.
    #[error(transparent)]
    Exercise(#[from] DriveMeasurementError),
}

/// Median of absolute errors; 0 of nothing.
pub fn median_error<'a>(comparisons: impl Iterator<Item = &'a Comparison>) -> f64 {
    let mut errors: Vec<f64> = comparisons.map(|comparison| comparison.error().abs()).collect();
    errors.sort_by(f64::total_cmp);
    errors.get(errors.len() / 2).copied().unwrap_or_default()
}

/// Predicts and measures all configurations, in `folder`, and tells each as it comes.
///
/// # Errors
/// [`CompareError`]: a model, a simulation or an exercise of a drive failed. What was told before stays told.
pub fn compare(
    folder: &Path,
    stop: &AtomicBool,
    tell: &mut dyn FnMut(&Comparison),
) -> Result<Vec<Comparison>, CompareError> {
    let mut all = Vec::new();
    let mut add = |comparison: Comparison| {
        tell(&comparison);
        all.push(comparison);
    };
    for name in PACED {
        for rate in RATES {
            for synced in [false, true] {
                add(paced(folder, stop, name, rate, synced)?);
            }
        }
    }
    for encryption in [None, Some(Algorithm::Aes256Gcm)] {
        unpaced(folder, stop, encryption, &mut add)?;
    }
    Ok(all)
}

fn paced(
    folder: &Path,
    stop: &AtomicBool,
    name: &str,
    rate: Option<f64>,
    synced: bool,
) -> Result<Comparison, CompareError> {
    let model = built_in(name)?;
    let native = model.native_mb_per_s.value;
    let offered = rate.map(|rate| rate * native);
    // Whole blocks, and whole syncs, so that both do the same.
    let blocks_of = |mb: f64| (mb * 1e6 / PACED_BLOCK as f64).ceil() * PACED_BLOCK as f64 / 1e6;
    let each = blocks_of(native);
    let mb = if synced { each * SECONDS } else { blocks_of(native * rate.unwrap_or(1.0).min(1.0) * SECONDS) };
    let host = offered.unwrap_or(f64::INFINITY).min(model.ceiling_mb_per_s.value);
    let (count, file_mb) = if synced { (SECONDS as u64, each) } else { (1, mb) };
    let load = HostLoad::Files { count, mb: file_mb, mb_per_s: host, syncs: synced };
    let simulation = simulate(&model, &load, &Options { accelerated: true, ..Options::default() })?;
    let predicted_mb_per_s = simulation.totals.host_mb / simulation.totals.elapsed_s;
    // A rounded sum must not put the last sync off to the next block.
    let sync_mb = synced.then_some(each * (1.0 - 1e-9));
    let mb = mb * (1.0 - 1e-9);
    let done = exercise(
        folder,
        &Exercise {
            data: DriveData::Random,
            block_len: PACED_BLOCK,
            mb,
            mb_per_s: offered,
            sync_mb,
            encryption: None,
            pace: Some(model),
        },
        stop,
    )?;
    let host = offered.map_or("as fast as memory".to_owned(), |rate| format!("at {rate:.0} MB/s"));
    let syncs = if synced { format!(", a sync each {each:.0} MB") } else { String::new() };
    let what = format!("{name}, host {host}{syncs}");
    Ok(Comparison { what, paced: true, predicted_mb_per_s, measured_mb_per_s: done.mb_per_s() })
}

fn unpaced(
    folder: &Path,
    stop: &AtomicBool,
    encryption: Option<Algorithm>,
    add: &mut dyn FnMut(Comparison),
) -> Result<(), CompareError> {
    let run = |block_len: usize| -> Result<Exercised, DriveMeasurementError> {
        let what = Exercise {
            data: DriveData::Random,
            block_len,
            mb: UNPACED_MB,
            mb_per_s: None,
            sync_mb: None,
            encryption,
            pace: None,
        };
        // The first runs of a machine that was idle are slower; the median of three is not among them.
        let mut runs = [exercise(folder, &what, stop)?, exercise(folder, &what, stop)?, exercise(folder, &what, stop)?];
        runs.sort_by(|a, b| a.seconds.total_cmp(&b.seconds));
        Ok(runs[1])
    };
    let (short, long) = (BLOCKS[0], BLOCKS[BLOCKS.len() - 1]);
    let block_s = |block_len: usize, done: &Exercised| done.seconds / (done.mb * 1e6 / block_len as f64);
    let (of_short, of_long) = (block_s(short, &run(short)?), block_s(long, &run(long)?));
    let byte_s = (of_long - of_short) / (long - short) as f64;
    let each_s = of_short - byte_s * short as f64;
    for block_len in &BLOCKS[1..BLOCKS.len() - 1] {
        let predicted_mb_per_s = *block_len as f64 / 1e6 / (each_s + byte_s * *block_len as f64);
        let measured_mb_per_s = run(*block_len)?.mb_per_s();
        let cipher = encryption.map_or("plain", Algorithm::name);
        let what = format!("not paced, blocks of {} KiB, {cipher}", block_len >> 10);
        add(Comparison { what, paced: false, predicted_mb_per_s, measured_mb_per_s });
    }
    Ok(())
}
