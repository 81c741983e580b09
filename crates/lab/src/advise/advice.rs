//! The search for a better setting, and the words for it.

use capstan_tape::model::{built_in, built_in_names};
use schemars::JsonSchema;
use serde::Serialize;

use super::doubt::Disagreement;
use super::error::AdviseError;
use super::figures::SiteFigures;
use super::forecast::Forecast;
use super::learned::Misses;
use super::setting::{BLOCK_LEN, Route, Setting, TapeDrive};
use crate::measure::Spread;
use crate::part::Part;

/// What gives less than this share more is not worth a change.
const WORTHWHILE: f64 = 0.02;
/// Pools that are tried, MiB.
const POOLS_MIB: [u64; 6] = [32, 128, 256, 512, 1024, 2048];
/// Checkpoints that are tried, MiB. Longer ones cost more when a run is taken up again.
const CHECKPOINTS_MIB: [u64; 3] = [1024, 4096, 16_384];
/// Seconds between checkpoints are tried in steps of a minute, and to a quarter of an hour: so much is lost with a run.
const CHECKPOINT_SECONDS_STEP: f64 = 60.0;
const CHECKPOINT_SECONDS_MAX: f64 = 900.0;
/// So many cartridges for one backup are few.
const VOLUMES_FEW: u64 = 10;
/// Depots that are tried, MB.
const DEPOTS_MB: [f64; 4] = [5e4, 2e5, 1e4, 1e3];

/// Something that can be set.
#[derive(Debug, Clone, Copy, PartialEq, Eq, JsonSchema, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Lever {
    /// Streams that read at the same time.
    Connections,
    /// Payload of a block.
    Block,
    /// Memory of the block pool.
    Pool,
    /// How often data are flushed.
    Checkpoint,
    /// Compression.
    Compression,
    /// Direct, or by way of a disk.
    Route,
}

impl Lever {
    const ALL: [Self; 6] =
        [Self::Connections, Self::Block, Self::Pool, Self::Checkpoint, Self::Compression, Self::Route];

    /// A word for it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Connections => "connections",
            Self::Block => "block",
            Self::Pool => "buffers",
            Self::Checkpoint => "checkpoints",
            Self::Compression => "compression",
            Self::Route => "way",
        }
    }

    /// What it is set to, as a person writes it.
    pub fn value(self, setting: &Setting) -> String {
        match self {
            Self::Connections => setting.connections.to_string(),
            Self::Block => format!("{} KiB", setting.block_len >> 10),
            Self::Pool => format!("{} MiB", setting.pool_bytes >> 20),
            Self::Checkpoint => {
                format!("{} MiB or {} s", setting.checkpoint_bytes >> 20, setting.checkpoint_seconds)
            }
            Self::Compression => format!("zstd {}", setting.compression_level),
            Self::Route => match setting.route {
                Route::Direct => "direct".to_owned(),
                Route::Staged { depot_mb } if depot_mb < 1e3 => format!("staged, depots of {depot_mb:.0} MB"),
                Route::Staged { depot_mb } => format!("staged, depots of {:.0} GB", depot_mb / 1e3),
            },
        }
    }

    /// How a person sets it.
    pub fn how(self, setting: &Setting) -> String {
        match self {
            Self::Connections => format!("capstan backup --connections {}", setting.connections),
            Self::Block => format!("data.block_kib = {} in capstan.toml", setting.block_len >> 10),
            Self::Pool => format!("data.buffer_mib = {} in capstan.toml", setting.pool_bytes >> 20),
            Self::Checkpoint => {
                let mib = setting.checkpoint_bytes >> 20;
                let seconds = setting.checkpoint_seconds;
                format!("data.checkpoint_mib = {mib} and data.checkpoint_seconds = {seconds} in capstan.toml")
            }
            Self::Compression => format!("data.compression_level = {} in capstan.toml", setting.compression_level),
            Self::Route => match setting.route {
                Route::Direct => "back up to the pool of the tapes".to_owned(),
                Route::Staged { .. } => {
                    "back up to a pool on disk, then capstan copy OBJECT --to-pool of the tapes".to_owned()
                }
            },
        }
    }

    /// The settings that differ from this one in nothing else.
    fn settings(self, figures: &SiteFigures, setting: &Setting, memory_bytes: u64) -> Vec<Setting> {
        let with = |change: &dyn Fn(&mut Setting)| {
            let mut other = setting.clone();
            change(&mut other);
            other
        };
        let longest = setting.drive.block_len_max();
        let mut all = match self {
            Self::Connections if figures.too_small_s().is_some() => Vec::new(),
            Self::Connections => {
                figures.connections().iter().map(|&value| with(&|other| other.connections = value)).collect()
            }
            Self::Block => {
                // As capstan.toml can have them.
                let can_be =
                    |block: &usize| *block <= longest && BLOCK_LEN.contains(block) && block.is_multiple_of(1024);
                let blocks = figures.drive_blocks().into_iter().filter(can_be);
                blocks.map(|value| with(&|other| other.block_len = value)).collect()
            }
            Self::Pool => {
                let pools = POOLS_MIB.iter().map(|mib| mib << 20).filter(|bytes| *bytes <= memory_bytes / 4);
                pools.map(|value| with(&|other| other.pool_bytes = value)).collect()
            }
            Self::Checkpoint => {
                let rate = figures.streamed_mb_per_s(setting);
                let checkpoints = CHECKPOINTS_MIB.iter().map(|mib| mib << 20);
                let seconds = |bytes| checkpoint_seconds(bytes, rate, setting.checkpoint_seconds);
                let change =
                    |bytes| with(&|other| (other.checkpoint_bytes, other.checkpoint_seconds) = (bytes, seconds(bytes)));
                checkpoints.map(change).collect()
            }
            Self::Compression => {
                figures.levels().iter().map(|&value| with(&|other| other.compression_level = value)).collect()
            }
            Self::Route if figures.staging.is_some() && setting.drive != TapeDrive::Virtual => {
                let stored = DEPOTS_MB.into_iter().chain([f64::INFINITY]);
                let routes = stored.map(|depot_mb| Route::Staged { depot_mb: depot_mb.min(figures.source_mb) });
                let mut routes: Vec<_> = routes.chain([Route::Direct]).collect();
                routes.dedup();
                routes.into_iter().map(|route| with(&|other| other.route = route)).collect()
            }
            Self::Route => Vec::new(),
        };
        all.retain(|other| other != setting);
        all
    }
}

/// Seconds between checkpoints with which so many bytes come between them at this rate, if their time would come first.
fn checkpoint_seconds(bytes: u64, mb_per_s: Option<f64>, now: u64) -> u64 {
    let Some(rate) = mb_per_s.filter(|rate| *rate > 0.0) else { return now };
    let seconds = bytes as f64 / 1e6 / rate;
    if seconds <= now as f64 {
        return now;
    }
    let steps = (seconds / CHECKPOINT_SECONDS_STEP).ceil();
    now.max((steps * CHECKPOINT_SECONDS_STEP).min(CHECKPOINT_SECONDS_MAX) as u64)
}

/// One change of a setting.
#[derive(Debug, Clone, PartialEq)]
pub struct SettingChange {
    /// What is changed.
    pub lever: Lever,
    /// The setting behind it.
    pub setting: Setting,
    /// From.
    pub from: String,
    /// To.
    pub to: String,
    /// What was the narrowest before.
    pub relieves: Part,
    /// Forecast before.
    pub before: Forecast,
    /// Forecast behind it.
    pub after: Forecast,
}

impl SettingChange {
    /// How much more it gives, as a share.
    pub fn gain(&self) -> f64 {
        self.after.mb_per_s.median / self.before.mb_per_s.median.max(1e-9) - 1.0
    }
}

/// How a drive would do with this source.
#[derive(Debug, Clone, PartialEq, JsonSchema, Serialize)]
pub struct Fit {
    /// The drive.
    pub drive: String,
    /// What comes of it, direct.
    pub forecast: Forecast,
    /// Cartridges that one copy takes.
    pub volumes: u64,
    /// How many of the figures of its model that matter here are estimates, and of how many.
    pub estimates: (usize, usize),
}

/// What to do.
#[derive(Debug, Clone, PartialEq)]
pub struct Advice {
    /// What there is, and what it gives.
    pub current: (Setting, Forecast),
    /// Changes, the most useful first, each on top of those before it.
    pub changes: Vec<SettingChange>,
    /// What there would be then.
    pub advised: (Setting, Forecast),
    /// Each setting that differs from the current one in one thing.
    pub neighbours: Vec<(Lever, Setting, Forecast)>,
    /// Two copies at once instead of one, everything else as advised.
    pub twin: Option<Forecast>,
    /// By way of a disk, everything else as advised, with the best depot.
    pub staged: Option<(Setting, Forecast)>,
    /// What each drive that has a model would make of it, direct, everything else as advised.
    pub drives: Vec<Fit>,
    /// Of the drives that give what is needed, or as much as any, the one whose tape moves most of the time.
    pub fitting: Option<String>,
    /// The source and the virtual drive on two disks, everything else as advised, where they share one.
    pub apart: Option<Forecast>,
    /// What bare readers and the data path got, where that cannot both be so. Then no change is advised.
    pub disagreement: Option<Disagreement>,
    /// How far what was tried here was from its forecast; none if nothing was.
    pub misses: Option<Misses>,
}

/// More is better, unless it takes more tape for less; of what gives the same, what takes the drive for half as long.
fn better(one: &Forecast, other: &Forecast) -> bool {
    let rate = |forecast: &Forecast| forecast.mb_per_s.median;
    let longer = one.stored_mb / other.stored_mb.max(1e-9);
    if longer > 1.0 + WORTHWHILE && rate(one) < rate(other) * longer {
        // More tape than time is gained.
        return false;
    }
    if one.staging_mb > other.staging_mb
        && one.on_tape_s > other.on_tape_s * (1.0 - WORTHWHILE)
        && one.drive_busy_s > other.drive_busy_s / 2.0
    {
        // A disk in between that neither frees the drive nor brings anything to tape sooner only hides that the drive
        // is too slow.
        return false;
    }
    if rate(one) > rate(other) * (1.0 + WORTHWHILE) {
        // Not if it may as well be less: what rounds differ by is no gain.
        return one.mb_per_s.low >= other.mb_per_s.low;
    }
    if rate(one) < rate(other) / (1.0 + WORTHWHILE) {
        return false;
    }
    let busy = |forecast: &Forecast| forecast.drive_busy_s;
    if busy(one) < busy(other) / 2.0 {
        return true;
    }
    false
}

/// Looks for the setting that gives most from `current` on, one thing at a time until nothing helps any more, with at
/// most a quarter of the memory for the pool. Which drive fits hangs on what is needed, MB/s of the source.
///
/// # Errors
/// Those of [`SiteFigures::forecast`].
pub fn advise(
    figures: &SiteFigures,
    current: &Setting,
    memory_bytes: u64,
    needed_mb_per_s: Option<f64>,
) -> Result<Advice, AdviseError> {
    let first = figures.forecast(current)?;
    let mut neighbours = Vec::new();
    for lever in Lever::ALL {
        for setting in lever.settings(figures, current, memory_bytes) {
            let forecast = figures.forecast(&setting)?;
            neighbours.push((lever, setting, forecast));
        }
    }
    let mut changes: Vec<SettingChange> = Vec::new();
    let (mut setting, mut forecast) = (current.clone(), first.clone());
    let disagreement = figures.disagreement();
    // Each thing is changed at most once, so it ends. Nothing is worth a change that rests on what may be wrong.
    while disagreement.is_none()
        && let Some(change) = best_change(figures, &setting, &forecast, &changes, memory_bytes)?
    {
        (setting, forecast) = (change.setting.clone(), change.after.clone());
        changes.push(change);
    }
    let direct = Setting { route: Route::Direct, ..setting.clone() };
    let twin =
        (setting.copies == 1).then(|| figures.forecast(&Setting { copies: 2, ..setting.clone() })).transpose()?;
    let mut staged: Option<(Setting, Forecast)> = None;
    for other in Lever::Route.settings(figures, &direct, memory_bytes) {
        let forecast = figures.forecast(&other)?;
        // Of depots with which all is on tape as soon, those for which the tape stops least.
        let sooner = |best: &Forecast| {
            let share = forecast.on_tape_s / best.on_tape_s.max(1e-9);
            share < 1.0 - WORTHWHILE || (share < 1.0 + WORTHWHILE && forecast.backhitches() < best.backhitches())
        };
        if staged.as_ref().is_none_or(|(_, best)| sooner(best)) {
            staged = Some((other, forecast));
        }
    }
    let misses = figures.misses.for_drive(&setting.drive);
    let drives = fits(figures, &direct)?;
    let fitting = fitting(&drives, needed_mb_per_s);
    let to_disk = setting.drive == TapeDrive::Virtual && setting.route == Route::Direct;
    let apart = (to_disk && figures.shares_disk()).then(|| figures.on_two_disks().forecast(&setting)).transpose()?;
    Ok(Advice {
        current: (current.clone(), first),
        changes,
        advised: (setting, forecast),
        neighbours,
        twin,
        staged,
        drives,
        fitting,
        apart,
        disagreement,
        misses,
    })
}

fn best_change(
    figures: &SiteFigures,
    setting: &Setting,
    before: &Forecast,
    done: &[SettingChange],
    memory_bytes: u64,
) -> Result<Option<SettingChange>, AdviseError> {
    let mut best: Option<SettingChange> = None;
    for lever in Lever::ALL {
        if done.iter().any(|change| change.lever == lever) {
            continue;
        }
        // Within one lever the smallest change that gives as much as any other.
        for other in lever.settings(figures, setting, memory_bytes) {
            let after = figures.forecast(&other)?;
            let free = figures.staging.as_ref().map_or(0, |staging| staging.free_mb);
            if free > 0 && after.staging_mb > free as f64 {
                // What does not fit on the disk is no way.
                continue;
            }
            let than = best.as_ref().map_or(before, |best| &best.after);
            if better(&after, than) && better(&after, before) {
                let (from, to) = (lever.value(setting), lever.value(&other));
                let faster = after.mb_per_s.median > before.mb_per_s.median * (1.0 + WORTHWHILE);
                // What is no faster frees the drive.
                let relieves = if faster { before.bottleneck } else { Part::Drive };
                let before = before.clone();
                best = Some(SettingChange { lever, setting: other, from, to, relieves, before, after });
            }
        }
    }
    Ok(best)
}

fn fits(figures: &SiteFigures, setting: &Setting) -> Result<Vec<Fit>, AdviseError> {
    let mut fits = Vec::new();
    for name in built_in_names() {
        let model = built_in(name)?;
        let estimates = model.estimates();
        let capacity_mb = model.capacity_gb.value * 1e3;
        let drive = TapeDrive::Model(Box::new(model));
        let block_len = setting.block_len.min(drive.block_len_max());
        let forecast = figures.forecast(&Setting { drive, block_len, ..setting.clone() })?;
        let volumes = (forecast.stored_mb / capacity_mb).ceil().max(1.0) as u64;
        fits.push(Fit { drive: name.to_owned(), forecast, volumes, estimates });
    }
    Ok(fits)
}

/// Of the drives that give what is needed, or, if none does or nothing is said of it, as much as any, the one whose
/// tape moves most of the time: the slowest that is fast enough.
fn fitting(drives: &[Fit], needed_mb_per_s: Option<f64>) -> Option<String> {
    let rate = |fit: &Fit| fit.forecast.mb_per_s.median;
    let most = drives.iter().map(rate).fold(0.0, f64::max) * (1.0 - WORTHWHILE);
    let enough = needed_mb_per_s.map_or(most, |needed| needed.min(most));
    // Whole percents: what is no different to a person is none, and the slower drive is the cheaper one.
    let streaming = |fit: &Fit| (fit.forecast.streaming_share.unwrap_or_default() * 100.0).round();
    // Nobody changes cartridges all night for a tape that moves: as few as any drive needs, or a handful.
    let fewest = drives.iter().filter(|fit| rate(fit) >= enough).map(|fit| fit.volumes).min().unwrap_or_default();
    let fast = drives.iter().filter(|fit| rate(fit) >= enough && fit.volumes <= fewest.max(VOLUMES_FEW));
    fast.max_by(|one, other| streaming(one).total_cmp(&streaming(other)).then(rate(other).total_cmp(&rate(one))))
        .map(|fit| fit.drive.clone())
}

impl Advice {
    /// From where to where what is advised is foretold to be, MB/s.
    pub fn interval(&self) -> [f64; 2] {
        interval(&self.advised.1.mb_per_s, self.misses.as_ref())
    }

    /// The same in words, with what it rests on: a statement that the next trial can be held against.
    pub fn certainty(&self) -> String {
        let [low, high] = self.interval();
        let digits = if high < 100.0 { 1 } else { 0 };
        let between = format!("{low:.digits$} to {high:.digits$} MB/s");
        let Some(Misses { trials, least, most, within: (foretold, within) }) = self.misses else {
            return format!("{between} as far as rounds differ; nothing was tried here yet (--try)");
        };
        let what = match trials {
            1 => format!("what was tried here gave {least:.2} of what is forecast without it"),
            _ => format!(
                "{trials} that were tried here gave {least:.2} to {most:.2} of what all others of them foretell"
            ),
        };
        let checked = if foretold > 0 { format!("; {within} of {foretold} fell within") } else { String::new() };
        format!("{between}: {what}{checked}")
    }

    /// Half of that, as a share of the forecast.
    pub fn uncertainty(&self) -> f64 {
        let [low, high] = self.interval();
        (high - low) / 2.0 / self.advised.1.mb_per_s.median.max(1e-9)
    }
}

/// From where to where a forecast is: what the rounds of the measurements leave open, and beyond either end as far as
/// what was tried here missed by. It can be checked: a trial falls within, or not.
pub fn interval(forecast: &Spread, misses: Option<&Misses>) -> [f64; 2] {
    let (least, most) = misses.map_or((1.0, 1.0), |misses| (misses.least.min(1.0), misses.most.max(1.0)));
    [forecast.low * least, forecast.high * most]
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests fail by panicking")]
    use super::super::doubt::tests::{setting, site};
    use super::*;
    use crate::measure::exercise::{DriveData, DriveRate, DriveRates};

    fn figures(blocks: &[usize]) -> SiteFigures {
        let rate = |&block_len: &usize| DriveRate {
            block_len,
            data: DriveData::Random,
            mb_per_s: Spread::exactly(500.0),
            cpu_s_per_mb: 0.001,
            backhitches: None,
        };
        let rates = blocks.iter().map(rate).collect();
        let drive = DriveRates { place: "/srv".into(), device: 0, model: None, encryption: None, sync_mb: None, rates };
        SiteFigures { drive: Some(drive), ..site(20.0, 0.001, 20.0) }
    }

    /// `data.block_kib = 2048` was advised, which capstan.toml refuses.
    #[test]
    fn only_blocks_are_advised_that_can_be_set() {
        let figures = figures(&[1 << 10, 5000, 64 << 10, 2000 << 10, 2 << 20]);
        let tried = Lever::Block.settings(&figures, &setting("LTO-8", 0), 8 << 30);
        assert_eq!(tried.iter().map(|setting| setting.block_len).collect::<Vec<_>>(), [64 << 10, 2000 << 10]);
        assert_eq!(setting("LTO-8", 0).drive.block_len_max(), 2000 << 10);
    }

    /// At 20 MB/s a checkpoint comes each minute, whatever `checkpoint_mib` says: to set only that changed nothing.
    #[test]
    fn longer_intervals_have_the_time_that_they_take() {
        let now = setting("LTO-8", 0);
        let tried = Lever::Checkpoint.settings(&figures(&[64 << 10]), &now, 8 << 30);
        let each: Vec<_> =
            tried.iter().map(|setting| (setting.checkpoint_bytes >> 20, setting.checkpoint_seconds)).collect();
        // 1024 MiB take 54 s, 4096 take 215; 16384 would take longer than anybody wants to lose.
        assert_eq!(each, [(1024, 60), (4096, 240), (16_384, 900)]);
        let how = Lever::Checkpoint.how(&tried[1]);
        assert_eq!(how, "data.checkpoint_mib = 4096 and data.checkpoint_seconds = 240 in capstan.toml");
        assert_eq!(Lever::Checkpoint.value(&now), "4096 MiB or 60 s");
    }
}
