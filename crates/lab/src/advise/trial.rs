//! A forecast, tried: the data path run as a setting has it, against what was predicted of just such a run.

use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;

use capstan_format::Algorithm;
use schemars::JsonSchema;
use serde::Serialize;

use super::error::AdviseError;
use super::figures::SiteFigures;
use super::setting::{Setting, TapeDrive};
use crate::measure::data_path::{
    DataPath, DataPathError, DataPathRun, DataPathTarget, LONGER_MAX, null_run, run_data_path,
};
use crate::measure::{Spread, free_mb};

/// What was predicted of a run, and what it gave.
#[derive(Debug, Clone, PartialEq, JsonSchema, Serialize)]
pub struct Trial {
    /// MB/s from the first block to the last flush.
    pub predicted_mb_per_s: f64,
    /// The same, measured in rounds.
    pub measured_mb_per_s: Spread,
    /// What the meters of the data path named.
    pub bottleneck: &'static str,
    /// Times that the tape went back in the last round, if the drive was paced.
    pub backhitches: Option<u64>,
}

impl Trial {
    /// How far the prediction is off, as a share of what was measured.
    pub fn error(&self) -> f64 {
        self.predicted_mb_per_s / self.measured_mb_per_s.median - 1.0
    }
}

/// Why a setting could not be tried.
#[derive(Debug, thiserror::Error)]
pub enum TrialError {
    /// There is no forecast.
    #[error(transparent)]
    Advise(#[from] AdviseError),
    /// There is not enough room.
    #[error("a trial takes {needed} MB, and {} has {free} MB left: let it read for less time, or name another --folder", folder.display())]
    NoRoom {
        /// The folder.
        folder: PathBuf,
        /// MB that it takes.
        needed: u64,
        /// MB that are free.
        free: u64,
    },
    /// The run.
    #[error(transparent)]
    DataPath(#[from] DataPathError),
}

/// Runs a setting, direct, as it was measured: the same source, as cold and as slow, to virtual cartridges below a
/// folder that take the time of the setting's drive. Each round reads for so many seconds.
///
/// # Errors
/// [`TrialError::NoRoom`] before anything is written; else there is no forecast, or the run failed.
pub fn try_setting(
    figures: &SiteFigures,
    setting: &Setting,
    folder: &Path,
    seconds: f64,
    rounds: u32,
    stop: &AtomicBool,
) -> Result<Trial, TrialError> {
    let predicted_mb_per_s = figures.forecast_run(setting, seconds)?;
    let stored_mb_per_s = predicted_mb_per_s / figures.ratio(setting.compression_level, setting.block_len);
    let written_mb_per_s = stored_mb_per_s * f64::from(setting.copies);
    let needed = (written_mb_per_s * seconds) as u64 + 64;
    let free = free_mb(folder).ok();
    if let Some(free) = free.filter(|free| needed > *free) {
        return Err(TrialError::NoRoom { folder: folder.to_owned(), needed, free });
    }
    // A slow source makes runs longer, as far as there is room for half as much again as was foretold.
    let room_s = free.map_or(seconds, |free| free as f64 / (1.5 * written_mb_per_s.max(1e-9)));
    let pace = match &setting.drive {
        TapeDrive::Virtual => None,
        TapeDrive::Model(model) => Some(model.clone()),
    };
    let run = DataPath {
        cache: figures.path.cache,
        connections: setting.connections,
        block_len: setting.block_len,
        pool_bytes: setting.pool_bytes,
        compression_level: setting.compression_level,
        copies: setting.copies,
        checkpoint_bytes: setting.checkpoint_bytes,
        checkpoint_seconds: setting.checkpoint_seconds,
        target: DataPathTarget::Virtual { folder: folder.to_owned(), encryption: Some(Algorithm::Aes256Gcm), pace },
        seconds,
        seconds_max: if setting.drive == TapeDrive::Virtual { room_s.min(seconds * LONGER_MAX) } else { 0.0 },
        slow: figures.slow(),
        ..null_run(&figures.path.source)
    };
    let runs: Result<Vec<_>, _> = (0..rounds.max(1)).map(|_| run_data_path(&run, stop)).collect();
    let runs = runs?;
    // How much there is may have been found out only now.
    let whole = runs.iter().find(|run| run.whole).map(|run| run.mb);
    let predicted_mb_per_s = match whole {
        Some(mb) => SiteFigures { tree_mb: Some(mb), ..figures.clone() }.forecast_run(setting, seconds)?,
        None => predicted_mb_per_s,
    };
    // Where a drive takes its model's time the forecast is of just such a run, as long and with its flush; else it is
    // of a steady one.
    let rate = |run: &DataPathRun| match &setting.drive {
        TapeDrive::Virtual => run.steady_mb_per_s.median,
        TapeDrive::Model(_) => run.mb_per_s(),
    };
    let rates = runs.iter().map(rate).collect();
    let measured_mb_per_s = Spread::of_rounds(rates).unwrap_or(Spread::exactly(0.0));
    let last = runs.last();
    Ok(Trial {
        predicted_mb_per_s,
        measured_mb_per_s,
        bottleneck: last.map_or("none", |run| run.bottleneck.name()),
        backhitches: last.and_then(|run| run.backhitches),
    })
}
