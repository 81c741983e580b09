//! `capstan lab read`, `null`, `drive` and `staging`: what each part gives by itself. What is found is kept in the state
//! directory, for `capstan lab advise`.

mod drive;
mod null;
mod read;
mod staging;

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use capstan_lab::{Cache, Measurements, MeasurementsError, Spread};
use clap::ValueEnum;

use crate::args::Cli;
use crate::failure::Failure;
use crate::progress::{Display, stop_on_interrupt};
use crate::secrets::state_dir;
use crate::units;

pub(super) use drive::{Drive, drive, drive_failed};
pub(super) use null::{Null, failed, null};
pub(super) use read::{Read, read, read_failed};
pub(super) use staging::{StageDisk, staging, staging_failed};

/// Where a source is to be found.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum CacheChoice {
    /// In the page cache, as far as it fits
    Warm,
    /// Its content dropped from the page cache before each round; what is known of names stays
    Cold,
    /// All that the machine caches dropped before each round: root only, and it slows whatever else runs
    Dropped,
    /// Past the page cache (for `read` only)
    Direct,
}

impl From<CacheChoice> for Cache {
    fn from(choice: CacheChoice) -> Self {
        match choice {
            CacheChoice::Warm => Self::Warm,
            CacheChoice::Cold => Self::Cold,
            CacheChoice::Dropped => Self::Dropped,
            CacheChoice::Direct => Self::Direct,
        }
    }
}

pub(super) fn wrong_file(error: &MeasurementsError) -> Failure {
    Failure::Other(error.to_string())
}

/// Keeps what was measured in the state directory.
pub(super) fn keep(cli: &Cli, add: impl FnOnce(&mut Measurements)) -> Result<(), Failure> {
    let path = Measurements::add(&state_dir(cli)?, add).map_err(|error| wrong_file(&error))?;
    Display::new(cli).say(&format!("kept in {}", path.display()));
    Ok(())
}

/// Looks whether what will be measured can be kept, before minutes go by.
pub(super) fn can_keep(cli: &Cli) -> Result<(), Failure> {
    Measurements::add(&state_dir(cli)?, |_| {}).map(|_| ()).map_err(|error| wrong_file(&error))
}

/// Runs a measurement that takes about so long, with a line that says how far it is, and a flag that Ctrl-C sets.
pub(super) fn measuring<T>(cli: &Cli, about_s: f64, work: impl FnOnce(&AtomicBool, &Display) -> T) -> T {
    let stop = Arc::new(AtomicBool::new(false));
    stop_on_interrupt(&stop);
    let display = Display::new(cli);
    let line = |elapsed: Duration| {
        let share = (elapsed.as_secs_f64() / about_s).min(0.99);
        let left = (about_s - elapsed.as_secs_f64()).max(0.0);
        (format!("measuring, about {} left", units::duration(left)), Some(share))
    };
    display.during(&line, || work(&stop, &display))
}

/// `31.2`, or `31.2 (29.8-33.0)` where rounds differ.
pub(super) fn spread(value: &Spread) -> String {
    let digits = |value: f64| if value < 100.0 { 1 } else { 0 };
    let Spread { low, median, high } = *value;
    let (low, high) = (format!("{low:.*}", digits(low)), format!("{high:.*}", digits(high)));
    let median = format!("{median:.*}", digits(median));
    if low == high { median } else { format!("{median} ({low}-{high})") }
}

/// Seconds of processors for a GB, as people compare them.
fn cpu(cpu_s_per_mb: f64) -> String {
    format!("{:.2}", cpu_s_per_mb * 1e3)
}

fn block(bytes: usize) -> String {
    units::bytes(bytes as u64)
}
