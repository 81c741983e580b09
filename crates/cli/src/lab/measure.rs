//! `capstan lab read`, `null`, `drive`, `staging` and `restore`: what each part gives by itself. What is found is kept
//! in the state directory, for `capstan lab advise`.

mod drive;
mod null;
mod read;
mod restore;
mod staging;

use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use capstan_lab::{Cache, Measurements, MeasurementsError, OtherLoad, Spread, Unfinished};
use clap::{Args, ValueEnum};

use crate::failure::Failure;
use crate::globals::Globals;
use crate::progress::{Display, stop_on_interrupt};
use crate::secrets::state_dir;
use crate::units;

pub(super) use drive::{Drive, drive, drive_failed};
pub(super) use null::{Null, failed, null};
pub(super) use read::{Read, read, read_failed};
pub(super) use restore::{Restore, restore};
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

/// Keeps something in the state directory.
pub(super) fn keep(cli: &Globals, add: impl FnOnce(&mut Measurements)) -> Result<(), Failure> {
    let path = Measurements::add(&state_dir(cli)?, add).map_err(|error| wrong_file(&error))?;
    Display::new(cli).say(&format!("kept in {}", path.display()));
    Ok(())
}

/// What becomes of an earlier measurement of the same.
#[derive(Debug, Args)]
pub(super) struct Replacing {
    /// Let it take the place of an earlier measurement, though other programs were busy meanwhile
    #[arg(long)]
    replace: bool,
}

/// The share of the processors from which on other programs are taken to have disturbed a measurement.
const DISTURBED: f64 = 0.25;

/// What becomes of a measurement.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Verdict {
    /// It is kept.
    Kept,
    /// It is kept, and others disturbed it.
    Doubted,
    /// Others disturbed it, and there is one that stays.
    Dropped,
}

fn verdict(others: Option<f64>, earlier: bool, replace: bool) -> Verdict {
    match others {
        Some(share) if share > DISTURBED && earlier && !replace => Verdict::Dropped,
        Some(share) if share > DISTURBED => Verdict::Doubted,
        _ => Verdict::Kept,
    }
}

/// Keeps what was measured in the state directory. What other programs disturbed does not take the place of an earlier
/// measurement of the same, of `earlier`, unless that is asked for; and nothing does so without a word.
pub(super) fn keep_undisturbed(
    cli: &Globals,
    replacing: &Replacing,
    before: Option<OtherLoad>,
    earlier: impl FnOnce(&Measurements) -> Option<i64>,
    add: impl FnOnce(&mut Measurements),
) -> Result<(), Failure> {
    let (state, display) = (state_dir(cli)?, Display::new(cli));
    let earlier = earlier(&Measurements::read(&state).map_err(|error| wrong_file(&error))?).map(units::time);
    let share = before.and_then(|before| OtherLoad::now().map(|now| now.share_since(&before)));
    let kept = verdict(share, earlier.is_some(), replacing.replace);
    if let (Some(share), Verdict::Doubted | Verdict::Dropped) = (share, kept) {
        let percent = share * 100.0;
        display.warn(&format!(
            "other programs had {percent:.0} % of the processors meanwhile: measure again while nothing else runs"
        ));
    }
    if let (Some(earlier), Verdict::Dropped) = (&earlier, kept) {
        display.warn(&format!("it is not kept: what was measured {earlier} stays; --replace takes this instead"));
        return Ok(());
    }
    let path = Measurements::add(&state, add).map_err(|error| wrong_file(&error))?;
    let place = earlier.map_or(String::new(), |earlier| format!(", in the place of what was measured {earlier}"));
    display.say(&format!("kept in {}{place}", path.display()));
    Ok(())
}

/// Looks whether what will be measured can be kept, before minutes go by.
pub(super) fn can_keep(cli: &Globals) -> Result<(), Failure> {
    Measurements::add(&state_dir(cli)?, |_| {}).map(|_| ()).map_err(|error| wrong_file(&error))
}

/// What was measured, as far as it came, and why it came no further. What is done is printed and kept in any case.
fn as_far<T, E>(measured: Result<T, Unfinished<T, E>>, told: fn(&E) -> Failure) -> (Option<T>, Option<Failure>) {
    match measured {
        Ok(found) => (Some(found), None),
        Err(Unfinished { found, error }) => (found.map(|found| *found), Some(told(&error))),
    }
}

/// How a measurement ends.
fn ended(failure: Option<Failure>) -> Result<ExitCode, Failure> {
    failure.map_or(Ok(ExitCode::SUCCESS), Err)
}

/// Runs a measurement that takes about so long, with a line that says how far it is, and a flag that Ctrl-C sets.
pub(super) fn measuring<T>(cli: &Globals, about_s: f64, work: impl FnOnce(&AtomicBool, &Display) -> T) -> T {
    measuring_shared(cli, about_s, |stop, display| work(stop, display))
}

/// The same, for what keeps the flag.
fn measuring_shared<T>(cli: &Globals, about_s: f64, work: impl FnOnce(&Arc<AtomicBool>, &Display) -> T) -> T {
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

/// The load of all processors at a rate, in percent, as the papers' tables have it.
fn load(rate: &Spread, cpu_s_per_mb: f64) -> String {
    let processors = std::thread::available_parallelism().map_or(1, usize::from) as f64;
    format!("{:.0}", (rate.median * cpu_s_per_mb / processors * 100.0).min(100.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A run beside a compiler took the place of a good one, and nothing was said.
    #[test]
    fn what_was_disturbed_takes_no_place_unless_asked() {
        assert_eq!(verdict(Some(0.6), true, false), Verdict::Dropped);
        assert_eq!(verdict(Some(0.6), true, true), Verdict::Doubted);
        assert_eq!(verdict(Some(0.6), false, false), Verdict::Doubted);
        for others in [None, Some(0.0), Some(0.2)] {
            assert_eq!(verdict(others, true, false), Verdict::Kept);
        }
    }
}
