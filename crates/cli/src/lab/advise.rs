//! `capstan lab advise`.

mod missing;
mod show;

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::atomic::AtomicBool;

use capstan_director::Config;
use capstan_lab::{
    Advice, AdviseError, Direction, Forecast, Measured, Measurements, Route, Setting, SiteFigures, Spread, TapeDrive,
    Trial, TrialError, Tried, advise as look_for_advice, interval, try_setting,
};
use clap::Args;

use super::measure::{can_keep, failed, measuring, wrong_file};
use super::model;
use crate::failure::Failure;
use crate::globals::Globals;
use crate::json;
use crate::progress::Display;
use crate::secrets::{now_ns, state_dir};
use crate::units;
use missing::{keep_in, measure_missing};
pub(super) use show::described;
use show::{as_row, drive_name, show};

/// What a backup is to be, and what it is to keep to.
#[derive(Debug, Args)]
pub(super) struct Ask {
    /// What is written to: `virtual`, a drive's name as `capstan models` lists them, or the file of a model [default:
    /// library.pace in capstan.toml]
    #[arg(long, value_name = "DRIVE")]
    drive: Option<String>,
    /// Streams that read now [default: one a core, at most 8]
    #[arg(long, short = 'j', value_parser = clap::value_parser!(u32).range(1..=256))]
    connections: Option<u32>,
    /// Copies that are written at once
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=4))]
    copies: u32,
    /// The time that a backup may take: 8h, 30m
    #[arg(long, value_name = "TIME", value_parser = parse_window)]
    window: Option<i64>,
    /// How much there is to back up, if the source is only a part of it: 40T
    #[arg(long, value_name = "BYTES", value_parser = parse_data)]
    data: Option<u64>,
    /// What the network between the source and the drive gives: MB/s, or the address of a host that
    /// `capstan lab network` measured
    #[arg(long, value_name = "MB/S|ADDRESS")]
    network: Option<String>,
}

#[derive(Debug, Args)]
pub(crate) struct Advise {
    /// The source, as it was measured with `capstan lab null`
    source: PathBuf,
    #[command(flatten)]
    ask: Ask,
    /// Measure first what was not measured yet: two to three minutes
    #[arg(long)]
    measure: bool,
    /// Run what there is and what is advised, and compare with what was predicted
    #[arg(long = "try")]
    tries: bool,
    /// Seconds that each round of a trial reads
    #[arg(long, default_value_t = 5.0)]
    try_seconds: f64,
    /// Where trials and measurements write and remove cartridges [default: the library's folder]
    #[arg(long, value_name = "DIR")]
    folder: Option<PathBuf>,
    /// List every setting that differs in one thing
    #[arg(long)]
    all: bool,
}

fn parse_window(text: &str) -> Result<i64, String> {
    let ns = units::parse_age(text)?;
    if ns >= 1_000_000_000 { Ok(ns) } else { Err("a window is a second long or longer".to_owned()) }
}

fn parse_data(text: &str) -> Result<u64, String> {
    let bytes = units::parse_bytes(text)?;
    if bytes >= 1_000_000 { Ok(bytes) } else { Err("there is a megabyte to back up, or more".to_owned()) }
}

impl Ask {
    fn window_s(&self) -> Option<f64> {
        self.window.map(|ns| ns as f64 / 1e9)
    }

    /// What was measured of a source, as far as it is asked for.
    pub(super) fn figures(&self, all: &Measurements, source: &Path) -> Result<SiteFigures, Failure> {
        let mut figures = SiteFigures::of(all, source).map_err(told)?;
        figures.network = self.network(all)?;
        if let Some(bytes) = self.data {
            figures.source_mb = bytes as f64 / 1e6;
        }
        Ok(figures)
    }

    /// What the network gives, if one is named.
    pub(super) fn network(&self, all: &Measurements) -> Result<Option<Spread>, Failure> {
        self.network.as_deref().map(|named| network(all, named)).transpose()
    }

    pub(super) fn advice(&self, figures: &SiteFigures, current: &Setting) -> Result<Advice, Failure> {
        let needed = self.window_s().map(|window_s| figures.source_mb / window_s);
        look_for_advice(figures, current, memory_bytes(), needed).map_err(told)
    }
}

fn told(error: AdviseError) -> Failure {
    match error {
        AdviseError::NoPath { .. } | AdviseError::Level { .. } | AdviseError::NoDrive => {
            Failure::Usage(format!("{error}\nor let advise measure what is missing: --measure"))
        }
        other => Failure::Usage(other.to_string()),
    }
}

/// What a network gives to whoever sends: as told, or as it was measured to that address, with as many connections as
/// were best.
fn network(all: &Measurements, named: &str) -> Result<Spread, Failure> {
    if let Ok(rate) = named.parse::<f64>() {
        let possible = rate.is_finite() && rate > 0.0;
        return if possible { Ok(Spread::exactly(rate)) } else { Err(Failure::Usage(format!("{named} is no rate"))) };
    }
    let measured = all.networks.iter().find(|measured| measured.found.peer.ip().to_string() == named);
    let rates = measured.into_iter().flat_map(|measured| &measured.found.rates);
    let sending = rates.filter(|rate| rate.direction == Direction::Send).map(|rate| rate.mb_per_s);
    let best = sending.max_by(f64::total_cmp);
    let unknown = || {
        Failure::Usage(format!(
            "{named} is neither a rate, which is a number of MB/s, nor a host to which the network was measured: capstan lab network --to {named}:PORT"
        ))
    };
    best.map(Spread::exactly).ok_or_else(unknown)
}

/// What there is now: settings, and where its library lies.
pub(super) struct Site {
    pub(super) state: PathBuf,
    config: Config,
    folder: PathBuf,
}

impl Site {
    pub(super) fn open(cli: &Globals, folder: Option<&Path>) -> Result<Self, Failure> {
        let state = state_dir(cli)?;
        let path = state.join("capstan.toml");
        // The laboratory measures before anybody decides to keep anything here.
        let config = if path.exists() { Config::read(&path)? } else { Config::default() };
        let folder = folder.map_or_else(|| state.join(&config.library.path), Path::to_owned);
        Ok(Self { state, config, folder })
    }

    /// What there is now.
    ///
    /// # Errors
    /// Another drive than a virtual one is written to, and its model is not named; or there is no such model.
    pub(super) fn setting(&self, cli: &Globals, args: &Ask) -> Result<Setting, Failure> {
        let (data, library) = (&self.config.data, &self.config.library);
        // What holds for a folder of this host says nothing of what is written to elsewhere, or to a tape.
        let is_elsewhere = !library.is_folder_here() || !library.devices.is_empty();
        if args.drive.is_none() && library.pace.is_empty() && is_elsewhere {
            return Err(Failure::Usage(
                "backups of this site go to the drives of [library] in capstan.toml, and their model is not known: \
                 name it, as in --drive LTO-8 (capstan models), or take --drive virtual for cartridges on a disk"
                    .to_owned(),
            ));
        }
        let named = args.drive.as_deref().unwrap_or(&self.config.library.pace);
        let drive = match named {
            "" | "virtual" => TapeDrive::Virtual,
            name => TapeDrive::Model(Box::new(model(name)?)),
        };
        let (block_kib, longest) = (data.block_kib as usize, drive.block_len_max() >> 10);
        if block_kib > longest {
            let name = drive_name(&drive);
            let told =
                format!("{name} writes no longer blocks: data.block_kib = {longest} is taken instead of {block_kib}");
            Display::new(cli).warn(&told);
        }
        let cores = std::thread::available_parallelism().map_or(1, |cores| cores.get() as u32);
        let connections = args.connections.unwrap_or(cores.min(8));
        Ok(Setting {
            connections,
            block_len: block_kib.min(longest) << 10,
            pool_bytes: data.buffer_mib << 20,
            checkpoint_bytes: data.checkpoint_mib << 20,
            checkpoint_seconds: data.checkpoint_seconds,
            compression_level: data.compression_level,
            copies: args.copies,
            route: Route::Direct,
            drive,
        })
    }
}

/// Memory of the machine; a GiB where that is not known.
fn memory_bytes() -> u64 {
    let info = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let total = info.lines().find_map(|line| line.strip_prefix("MemTotal:"));
    let kib = total.and_then(|text| text.trim().trim_end_matches("kB").trim().parse::<u64>().ok());
    kib.map_or(1 << 30, |kib| kib << 10)
}

pub(crate) fn advise(cli: &Globals, args: &Advise) -> Result<ExitCode, Failure> {
    let site = Site::open(cli, args.folder.as_deref())?;
    if args.measure || args.tries {
        can_keep(cli)?;
    }
    let current = site.setting(cli, &args.ask)?;
    let source = std::path::absolute(&args.source).unwrap_or_else(|_| args.source.clone());
    let mut all = Measurements::read(&site.state).map_err(|error| wrong_file(&error))?;
    if args.measure {
        measure_missing(cli, &mut all, &source, &site, &current)?;
    }
    if args.measure && all.trials.iter().all(|trial| trial.found.source != source) {
        Display::new(cli).say("trying a backup to the virtual library");
        let figures = SiteFigures::of(&all, &source).map_err(told)?;
        let to_disk = Setting { drive: TapeDrive::Virtual, ..current.clone() };
        let advice = look_for_advice(&figures, &to_disk, memory_bytes(), None).map_err(told)?;
        let trials = tried(cli, args, &site, &figures, &advice)?;
        keep_trials(&mut all, &site, &figures, &advice, &trials)?;
    }
    let figures = args.ask.figures(&all, &source)?;
    let advice = args.ask.advice(&figures, &current)?;
    let window_s = args.ask.window_s();
    let trials = if args.tries { tried(cli, args, &site, &figures, &advice)? } else { Vec::new() };
    keep_trials(&mut all, &site, &figures, &advice, &trials)?;
    if cli.json {
        json::print(&as_row(&figures, &advice, &trials, window_s))?;
    } else {
        show(args, &figures, &advice, &trials, window_s).map_err(Failure::output)?;
    }
    Ok(ExitCode::SUCCESS)
}

/// What is tried: what there is, and what is advised, if that is something else and needs no other disk.
fn tried(
    cli: &Globals,
    args: &Advise,
    site: &Site,
    figures: &SiteFigures,
    advice: &Advice,
) -> Result<Vec<(&'static str, Trial)>, Failure> {
    const ROUNDS: u32 = 3;
    // A trial goes through no network.
    let figures = &SiteFigures { network: None, ..figures.clone() };
    let mut each = vec![("now", &advice.current.0)];
    if advice.advised.0 != advice.current.0 && advice.advised.0.route == Route::Direct {
        each.push(("advised", &advice.advised.0));
    }
    let about_s = args.try_seconds * f64::from(ROUNDS) * each.len() as f64;
    let run = |(name, setting): (&'static str, &Setting), stop: &AtomicBool| {
        try_setting(figures, setting, &site.folder, args.try_seconds, ROUNDS, stop).map(|trial| (name, trial))
    };
    let trials: Result<Vec<_>, TrialError> =
        measuring(cli, about_s, |stop, _| each.into_iter().map(|one| run(one, stop)).collect());
    trials.map_err(|error| match error {
        TrialError::DataPath(error) => failed(&error),
        other => Failure::Other(other.to_string()),
    })
}

/// Setting and forecast that a trial tried.
fn of_trial<'a>(advice: &'a Advice, name: &str) -> &'a (Setting, Forecast) {
    if name == "now" { &advice.current } else { &advice.advised }
}

/// From where to where a trial was foretold to be: a run to a drive of a model is short, and its forecast is its own.
fn foretold(forecast: &Forecast, advice: &Advice, trial: &Trial) -> [f64; 2] {
    let shorter = trial.predicted_mb_per_s / forecast.mb_per_s.median.max(1e-9);
    interval(&forecast.mb_per_s.map(|rate| rate * shorter), advice.misses.as_ref())
}

/// What was tried teaches the next forecast, and says how sure it is.
fn keep_trials(
    all: &mut Measurements,
    site: &Site,
    figures: &SiteFigures,
    advice: &Advice,
    trials: &[(&str, Trial)],
) -> Result<(), Failure> {
    if trials.is_empty() {
        return Ok(());
    }
    let figures = SiteFigures { network: None, ..figures.clone() };
    for (name, trial) in trials {
        let (setting, _) = of_trial(advice, name);
        let forecast = figures.forecast(setting).map_err(told)?;
        // A run to a drive that has a model is predicted by its simulation, not by joining rates.
        let joined = setting.drive == TapeDrive::Virtual;
        let found = Tried {
            source: figures.path.source.clone(),
            setting: described(setting),
            parts: if joined { forecast.parts.clone() } else { Vec::new() },
            predicted_mb_per_s: trial.predicted_mb_per_s,
            mb_per_s: trial.measured_mb_per_s.median,
            foretold: Some(foretold(&forecast, advice, trial)),
        };
        keep_in(site, all, |all| all.add_trial(Measured { at_ns: now_ns(), found }))?;
    }
    Ok(())
}
