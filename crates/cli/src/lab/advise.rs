//! `capstan lab advise`.

use std::io::{Write, stdout};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::atomic::AtomicBool;

use capstan_director::Config;
use capstan_lab::{
    Advice, AdviseError, Change, Data, DataPath, Direction, Disagreement, Exercise, ExerciseMedium, Forecast,
    LONGER_MAX, Lever, Measured, Measurements, Reading, Route, Setting, SiteFigures, SlowSource, Spread, Staging,
    TapeDrive, Trial, TrialError, Tried, advise as look_for_advice, interval, measure_drive, measure_path,
    measure_source, measure_staging, null_run, try_setting,
};
use clap::Args;
use serde_json::{Value, json};

use super::measure::{can_keep, drive_failed, failed, measuring, read_failed, spread, staging_failed, wrong_file};
use super::model;
use crate::args::Cli;
use crate::failure::Failure;
use crate::progress::Display;
use crate::secrets::{now_ns, state_dir};
use crate::table::Table;
use crate::units;

/// What a backup is to be, and what it is to keep to.
#[derive(Debug, Args)]
pub(super) struct Ask {
    /// What is written to: `virtual`, a drive's name as `capstan models` lists them, or the file of a model [default: library.pace in
    /// capstan.toml]
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
    /// What the network between the source and the drive gives: MB/s, or the address of a host that `capstan lab network` measured
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
        figures.network = self.network.as_deref().map(|named| network(all, named)).transpose()?;
        if let Some(bytes) = self.data {
            figures.source_mb = bytes as f64 / 1e6;
        }
        Ok(figures)
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

/// What a network gives to whoever sends: as told, or as it was measured to that address, with as many connections as were best.
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
    pub(super) fn open(cli: &Cli, folder: Option<&Path>) -> Result<Self, Failure> {
        let state = state_dir(cli)?;
        let path = state.join("capstan.toml");
        // The laboratory measures before anybody decides to keep anything here.
        let config = if path.exists() { Config::read(&path)? } else { Config::default() };
        let folder = folder.map_or_else(|| state.join(&config.library.path), Path::to_owned);
        Ok(Self { state, config, folder })
    }

    pub(super) fn setting(&self, cli: &Cli, args: &Ask) -> Result<Setting, Failure> {
        let data = &self.config.data;
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

pub(crate) fn advise(cli: &Cli, args: &Advise) -> Result<ExitCode, Failure> {
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
        let value = as_json(&figures, &advice, &trials, window_s);
        writeln!(stdout(), "{value}").map_err(Failure::output)?;
    } else {
        show(args, &figures, &advice, &trials, window_s).map_err(Failure::output)?;
    }
    Ok(ExitCode::SUCCESS)
}

/// What is tried: what there is, and what is advised, if that is something else and needs no other disk.
fn tried(
    cli: &Cli,
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

/// Adds to what is kept, and takes what others have added meanwhile.
fn keep_in(site: &Site, all: &mut Measurements, add: impl FnOnce(&mut Measurements)) -> Result<(), Failure> {
    let kept = Measurements::add(&site.state, |kept| {
        add(kept);
        all.clone_from(kept);
    });
    kept.map(|_| ()).map_err(|error| wrong_file(&error))
}

fn measure_missing(
    cli: &Cli,
    all: &mut Measurements,
    source: &Path,
    site: &Site,
    current: &Setting,
) -> Result<(), Failure> {
    const ROUNDS: u32 = 3;
    const SECONDS: f64 = 2.0;
    let seconds_max = SECONDS * LONGER_MAX;
    let display = Display::new(cli);
    let connections = [1, 2, 4, 8, 16];
    let known = SiteFigures::of(all, source).ok().map(|figures| figures.path);
    if let Some(known) = known.filter(|known| !known.has_level(current.compression_level)) {
        let level = current.compression_level;
        display.say(&format!("measuring the data path at zstd {level} (capstan lab null)"));
        // As it was measured at other levels.
        let what = DataPath { seconds: SECONDS, seconds_max, cache: known.cache, slow: known.slow, ..null_run(source) };
        let mut each: Vec<_> = known.rates.iter().map(|rate| (rate.connections, rate.block_len, level)).collect();
        each.sort_unstable();
        each.dedup();
        let about_s = SECONDS * f64::from(ROUNDS) * each.len() as f64;
        let found = measuring(cli, about_s, |stop, _| measure_path(&what, &each, ROUNDS, stop, &mut |_| {}));
        let found = found.map_err(|error| failed(&error))?;
        keep_in(site, all, |all| all.add_levels(found, now_ns()))?;
    }
    if all.paths.iter().all(|measured| measured.found.source != source) {
        display.say("measuring the data path without a drive (capstan lab null)");
        let what = DataPath { seconds: SECONDS, seconds_max, ..null_run(source) };
        let mut levels = vec![0, 1, current.compression_level];
        levels.sort_unstable();
        levels.dedup();
        let each: Vec<_> = levels
            .iter()
            .flat_map(|&level| connections.map(|connections| (connections, current.block_len, level)))
            .collect();
        let about_s = SECONDS * f64::from(ROUNDS) * each.len() as f64;
        let found = measuring(cli, about_s, |stop, _| measure_path(&what, &each, ROUNDS, stop, &mut |_| {}));
        let found = Measured { at_ns: now_ns(), found: found.map_err(|error| failed(&error))? };
        keep_in(site, all, |all| all.add_path(found))?;
    }
    if all.sources.iter().all(|measured| measured.found.source != source) {
        display.say("measuring bare readers (capstan lab read)");
        let reading = Reading {
            readers: connections.to_vec(),
            block_len: 256 << 10,
            cache: capstan_lab::Cache::Cold,
            rounds: ROUNDS,
            seconds: SECONDS,
            seconds_max,
        };
        let about_s = SECONDS * f64::from(ROUNDS) * connections.len() as f64;
        let found = measuring(cli, about_s, |stop, _| measure_source(source, &reading, stop, &mut |_| {}));
        let found = Measured { at_ns: now_ns(), found: found.map_err(|error| read_failed(&error))? };
        keep_in(site, all, |all| all.add_source(found))?;
    }
    if all.drives.iter().all(|measured| measured.found.model.is_some() || measured.found.sync_mb.is_some()) {
        display.say("measuring the virtual drive (capstan lab drive)");
        let medium = ExerciseMedium::New { folder: site.folder.clone() };
        let blocks = [64 << 10, 256 << 10, 512 << 10, 2000 << 10].map(|block_len| (Data::Random, block_len));
        let what = Exercise {
            data: Data::Random,
            block_len: 0,
            mb: 500.0,
            mb_per_s: None,
            sync_mb: None,
            encryption: Some(capstan_director::Algorithm::Aes256Gcm),
            pace: None,
        };
        let found = measuring(cli, 20.0, |stop, _| measure_drive(&medium, &blocks, ROUNDS, &what, stop, &mut |_| {}));
        let found = Measured { at_ns: now_ns(), found: found.map_err(|error| drive_failed(&error))? };
        keep_in(site, all, |all| all.add_drive(found))?;
    }
    if all.staging.is_empty() {
        display.say("measuring the disk as a file library (capstan lab staging)");
        let what = Staging { writers: vec![1, 2, 4], block_len: 512 << 10, mb: 400.0, rounds: ROUNDS };
        let found = measuring(cli, 40.0, |stop, _| measure_staging(&site.folder, &what, stop, &mut |_| {}));
        let found = Measured { at_ns: now_ns(), found: found.map_err(|error| staging_failed(&error))? };
        keep_in(site, all, |all| all.add_staging(found))?;
    }
    Ok(())
}

fn drive_name(drive: &TapeDrive) -> String {
    match drive {
        TapeDrive::Virtual => "virtual".to_owned(),
        TapeDrive::Model(model) => model.name.clone(),
    }
}

fn setting_json(setting: &Setting) -> Value {
    json!({
        "connections": setting.connections,
        "block_bytes": setting.block_len,
        "pool_bytes": setting.pool_bytes,
        "checkpoint_bytes": setting.checkpoint_bytes,
        "compression_level": setting.compression_level,
        "copies": setting.copies,
        "route": setting.route,
        "drive": drive_name(&setting.drive),
    })
}

fn as_json(figures: &SiteFigures, advice: &Advice, trials: &[(&str, Trial)], window_s: Option<f64>) -> Value {
    let both =
        |(setting, forecast): &(Setting, Forecast)| json!({"setting": setting_json(setting), "forecast": forecast});
    let changes: Vec<_> = advice
        .changes
        .iter()
        .map(|change| {
            json!({
                "lever": change.lever,
                "from": change.from,
                "to": change.to,
                "how": change.lever.how(&change.setting),
                "relieves": change.relieves,
                "gain": change.gain(),
                "forecast": change.after,
            })
        })
        .collect();
    let neighbours: Vec<_> = advice
        .neighbours
        .iter()
        .map(|(lever, setting, forecast)| json!({"lever": lever, "value": lever.value(setting), "forecast": forecast}))
        .collect();
    let trials: Vec<_> =
        trials.iter().map(|(name, trial)| json!({"what": name, "trial": trial, "error": trial.error()})).collect();
    json!({
        "source": figures.path.source.display().to_string(),
        "source_mb": figures.source_mb,
        "window_s": window_s,
        "now": both(&advice.current),
        "changes": changes,
        "advised": both(&advice.advised),
        "uncertainty": advice.uncertainty(),
        "interval_mb_per_s": advice.interval(),
        "misses": advice.misses,
        "configurations": neighbours,
        "twin": advice.twin,
        "staged": advice.staged.as_ref().map(both),
        "drives": advice.drives,
        "fitting": advice.fitting,
        "apart": advice.apart,
        "disagreement": advice.disagreement,
        "trials": trials,
    })
}

pub(super) fn described(setting: &Setting) -> String {
    let Setting { connections, block_len, pool_bytes, checkpoint_bytes, compression_level, copies, .. } = setting;
    let copies = if *copies == 1 { String::new() } else { format!(", {copies} copies") };
    format!(
        "{connections} connections, blocks of {} KiB, buffers of {} MiB, a checkpoint each {} MiB, zstd {compression_level}{copies}, {} to {}",
        block_len >> 10,
        pool_bytes >> 20,
        checkpoint_bytes >> 20,
        Lever::Route.value(setting),
        drive_name(&setting.drive)
    )
}

fn forecast_line(forecast: &Forecast) -> String {
    let goes_back =
        forecast.backhitches_per_hour.map_or(String::new(), |count| format!("; {count:.0} backhitches an hour"));
    format!("{} MB/s, bottleneck: {}{goes_back}", spread(&forecast.mb_per_s), forecast.bottleneck.name())
}

fn change_line(number: usize, change: &Change) -> String {
    let (from, to) = (change.before.mb_per_s.median, change.after.mb_per_s.median);
    let (name, before, after) = (change.lever.name(), &change.from, &change.to);
    let what = if change.gain() > 0.0 {
        format!("{from:.0} -> {to:.0} MB/s ({:+.0} %)", change.gain() * 100.0)
    } else {
        let busy = [&change.before, &change.after].map(|forecast| units::duration(forecast.drive_busy_s));
        format!("the drive is taken for {} instead of {}", busy[1], busy[0])
    };
    format!("  {number}. {name}: {before} -> {after}: {what}; relieves the {}", change.relieves.name())
}

fn show(
    args: &Advise,
    figures: &SiteFigures,
    advice: &Advice,
    trials: &[(&str, Trial)],
    window_s: Option<f64>,
) -> std::io::Result<()> {
    let mut out = stdout().lock();
    let size = units::bytes((figures.source_mb * 1e6) as u64);
    let size = if figures.tree_mb.is_none() && args.ask.data.is_none() { format!("{size} and more") } else { size };
    let slow = figures.slow();
    let slowed = if slow == SlowSource::default() { "" } else { ", made slow when it was measured" };
    writeln!(out, "source     {}, {size}, {}{slowed}", figures.path.source.display(), figures.path.cache.name())?;
    writeln!(out, "now        {}", described(&advice.current.0))?;
    writeln!(out, "           {}", forecast_line(&advice.current.1))?;
    if let Some(Disagreement { read, null }) = &advice.disagreement {
        let (read, null) = (spread(read), spread(null));
        writeln!(
            out,
            "doubt      bare readers got {read} MB/s of this source, the data path {null}, and no processor was busy:"
        )?;
        writeln!(
            out,
            "           one of the two is wrong, so no change is advised. Measure both again, longer, while nothing"
        )?;
        writeln!(out, "           else reads: capstan lab read and capstan lab null, with --seconds 20")?;
    } else if advice.changes.is_empty() {
        let part = advice.advised.1.bottleneck.name();
        writeln!(out, "advice     no setting gives more: the {part} is the limit")?;
    } else {
        writeln!(out, "advice")?;
    }
    if let Some(seconds) = figures.too_small_s() {
        writeln!(
            out,
            "doubt      all of the source is read in {seconds:.2} s: too little to say what more connections give. Name a larger one"
        )?;
    }
    let unsettled: Vec<_> = figures.unsettled().map(|rate| rate.connections.to_string()).collect();
    if !unsettled.is_empty() {
        let them = unsettled.join(", ");
        writeln!(
            out,
            "doubt      the source did not come steadily over {them} connections: measure it longer (--seconds)"
        )?;
    }
    for (number, change) in (1..).zip(&advice.changes) {
        writeln!(out, "{}\n       {}", change_line(number, change), change.lever.how(&change.setting))?;
    }
    if !advice.changes.is_empty() {
        writeln!(out, "then       {}", forecast_line(&advice.advised.1))?;
    }
    writeln!(out, "certainty  {}", advice.certainty())?;
    if let Some(window_s) = window_s
        && figures.tree_mb.is_none()
        && args.ask.data.is_none()
    {
        let window = units::duration(window_s);
        writeln!(out, "window     {window}: how much there is was not found out; say --data, or run capstan lab read")?;
    } else if let Some(window_s) = window_s {
        window(&mut out, advice, figures, window_s)?;
    }
    if let Some(twin) = &advice.twin {
        let cost = 100.0 * (1.0 - twin.mb_per_s.median / advice.advised.1.mb_per_s.median.max(1e-9));
        writeln!(out, "twin       a second copy at once: {}; it costs {cost:.0} %", forecast_line(twin))?;
    }
    if let Some((setting, forecast)) = &advice.staged {
        let (reading, tape) = (units::duration(forecast.source_busy_s), units::duration(forecast.on_tape_s));
        let direct = units::duration(advice.advised.1.on_tape_s);
        writeln!(
            out,
            "staging    {}: the source is read in {reading}, all is on tape in {tape} (as advised: {direct}), the disk holds {} at most, \
             the drive is taken for {}, {:.0} backhitches in all (direct: {:.0})",
            Lever::Route.value(setting),
            units::bytes((forecast.staging_mb * 1e6) as u64),
            units::duration(forecast.drive_busy_s),
            forecast.backhitches(),
            advice.current.1.backhitches()
        )?;
    }
    if let Some(apart) = &advice.apart {
        writeln!(out, "disk       source and library share one disk; on two: {}", forecast_line(apart))?;
    }
    if let Some(drive) = &advice.fitting {
        let than = if window_s.is_some() { "what the window needs, or as much as any" } else { "as much as any" };
        writeln!(out, "drive      {drive} fits: of the drives that give {than}, its tape moves most of the time")?;
    }
    for (name, trial) in trials {
        let [low, high] = foretold(&of_trial(advice, name).1, advice, trial);
        writeln!(
            out,
            "tried      {name}: predicted {:.1} MB/s, measured {}: {:+.1} %, {} {low:.1} to {high:.1} as foretold; the data path says: {}",
            trial.predicted_mb_per_s,
            spread(&trial.measured_mb_per_s),
            trial.error() * 100.0,
            if (low..=high).contains(&trial.measured_mb_per_s.median) { "within" } else { "outside" },
            trial.bottleneck
        )?;
    }
    if args.all {
        writeln!(out, "\nEach setting that differs from what there is now in one thing:")?;
        configurations(&mut out, advice)?;
        writeln!(out, "\nEach drive that has a model, direct, as advised:")?;
        drives(&mut out, advice)?;
    }
    Ok(())
}

fn window(out: &mut dyn Write, advice: &Advice, figures: &SiteFigures, window_s: f64) -> std::io::Result<()> {
    let needed = figures.source_mb / window_s;
    let takes = |forecast: &Forecast| units::duration(forecast.source_busy_s);
    let (now, then) = (&advice.current.1, &advice.advised.1);
    let window = units::duration(window_s);
    if now.mb_per_s.low >= needed {
        writeln!(out, "window     {window}: kept as it is ({}); nothing need be changed", takes(now))
    } else if then.mb_per_s.low >= needed {
        writeln!(out, "window     {window}: not kept now ({}), kept as advised ({})", takes(now), takes(then))
    } else if then.mb_per_s.high >= needed {
        writeln!(out, "window     {window}: not surely kept, even as advised ({})", takes(then))
    } else {
        let part = then.bottleneck.name();
        writeln!(
            out,
            "window     {window}: not kept, even as advised ({}): it needs {needed:.0} MB/s, and the {part} is the limit",
            takes(then)
        )
    }
}

fn configurations(out: &mut dyn Write, advice: &Advice) -> std::io::Result<()> {
    let mut table = Table::new(&["what", "to", ">MB/s", "bottleneck", ">processor %", ">backhitches/h"]);
    let now = (Lever::Connections, "as it is".to_owned(), &advice.current.1);
    let others = advice.neighbours.iter().map(|(lever, setting, forecast)| (*lever, lever.value(setting), forecast));
    for (lever, value, forecast) in std::iter::once(now).chain(others) {
        table.row(vec![
            if value == "as it is" { "now" } else { lever.name() }.to_owned(),
            value,
            format!("{:.1}", forecast.mb_per_s.median),
            forecast.bottleneck.name().to_owned(),
            format!("{:.0}", forecast.processor_share() * 100.0),
            forecast.backhitches_per_hour.map_or("-".to_owned(), |count| format!("{count:.0}")),
        ]);
    }
    table.print(out)
}

fn drives(out: &mut dyn Write, advice: &Advice) -> std::io::Result<()> {
    let mut table = Table::new(&[
        "drive",
        ">MB/s",
        "bottleneck",
        ">processor %",
        ">backhitches/h",
        ">tape moves %",
        ">cartridges",
        "estimates in its model",
    ]);
    for fit in &advice.drives {
        table.row(vec![
            fit.drive.clone(),
            format!("{:.1}", fit.forecast.mb_per_s.median),
            fit.forecast.bottleneck.name().to_owned(),
            format!("{:.0}", fit.forecast.processor_share() * 100.0),
            format!("{:.0}", fit.forecast.backhitches_per_hour.unwrap_or_default()),
            format!("{:.0}", fit.forecast.streaming_share.unwrap_or_default() * 100.0),
            fit.volumes.to_string(),
            format!("{} of {}", fit.estimates.0, fit.estimates.1),
        ]);
    }
    table.print(out)
}
