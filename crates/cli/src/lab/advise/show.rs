//! Advice, as it is printed.

use std::collections::BTreeSet;
use std::io::{Write, stdout};

use capstan_lab::{
    Advice, CHECKPOINT_SECONDS, Disagreement, Forecast, Lever, Setting, SettingChange, SiteFigures, SlowSource,
    TapeDrive, Trial,
};

use super::{Advise, foretold, of_trial};
use crate::json::{AdviceRow, AdvisedChange, Neighbour, SettingAndForecast, SettingRow, TriedRow};
use crate::lab::measure::spread;
use crate::table::Table;
use crate::units;

pub(super) fn drive_name(drive: &TapeDrive) -> String {
    match drive {
        TapeDrive::Virtual => "virtual".to_owned(),
        TapeDrive::Model(model) => model.name.clone(),
    }
}

fn both((setting, forecast): &(Setting, Forecast)) -> SettingAndForecast<'_> {
    SettingAndForecast { setting: SettingRow::new(setting, drive_name(&setting.drive)), forecast }
}

pub(super) fn as_row<'a>(
    figures: &SiteFigures,
    advice: &'a Advice,
    trials: &'a [(&str, Trial)],
    window_s: Option<f64>,
) -> AdviceRow<'a> {
    let neighbours = advice.neighbours.iter();
    AdviceRow {
        source: figures.path.source.display().to_string(),
        source_mb: figures.source_mb,
        window_s,
        now: both(&advice.current),
        changes: advice.changes.iter().map(AdvisedChange::from).collect(),
        advised: both(&advice.advised),
        uncertainty: advice.uncertainty(),
        interval_mb_per_s: advice.interval(),
        misses: advice.misses,
        configurations: neighbours
            .map(|(lever, setting, forecast)| Neighbour { lever: *lever, value: lever.value(setting), forecast })
            .collect(),
        twin: advice.twin.as_ref(),
        staged: advice.staged.as_ref().map(both),
        drives: &advice.drives,
        fitting: advice.fitting.as_deref(),
        apart: advice.apart.as_ref(),
        disagreement: advice.disagreement,
        trials: trials.iter().map(|(what, trial)| TriedRow { what, trial, error: trial.error() }).collect(),
    }
}

pub(in crate::lab) fn described(setting: &Setting) -> String {
    let Setting { connections, block_len, pool_bytes, checkpoint_bytes, compression_level, copies, .. } = setting;
    let seconds = setting.checkpoint_seconds;
    let seconds = if seconds == CHECKPOINT_SECONDS { String::new() } else { format!(" or {seconds} s") };
    let copies = if *copies == 1 { String::new() } else { format!(", {copies} copies") };
    format!(
        "{connections} connections, blocks of {} KiB, buffers of {} MiB, a checkpoint each {} MiB{seconds}, \
         zstd {compression_level}{copies}, {} to {}",
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

fn change_line(number: usize, change: &SettingChange) -> String {
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

pub(super) fn show(
    args: &Advise,
    figures: &SiteFigures,
    advice: &Advice,
    trials: &[(&str, Trial)],
    window_s: Option<f64>,
) -> std::io::Result<()> {
    let mut out = stdout().lock();
    // How much there is to back up was neither told nor found out.
    let is_open = figures.tree_mb.is_none() && args.ask.data.is_none();
    current(&mut out, figures, advice, is_open)?;
    changes(&mut out, figures, advice)?;
    match window_s {
        Some(window_s) if is_open => {
            let window = units::duration(window_s);
            writeln!(
                out,
                "window     {window}: how much there is was not found out; say --data, or run capstan lab read"
            )?;
        }
        Some(window_s) => window(&mut out, advice, figures, window_s)?,
        None => {}
    }
    others(&mut out, advice, window_s.is_some())?;
    for (name, trial) in trials {
        tried(&mut out, advice, name, trial)?;
    }
    if args.all {
        writeln!(out, "\nEach setting that differs from what there is now in one thing:")?;
        configurations(&mut out, advice)?;
        writeln!(out, "\nEach drive that has a model, direct, as advised:")?;
        drives(&mut out, advice)?;
    }
    Ok(())
}

/// The source, and what is to be expected without a change.
fn current(out: &mut dyn Write, figures: &SiteFigures, advice: &Advice, is_open: bool) -> std::io::Result<()> {
    let size = units::bytes((figures.source_mb * 1e6) as u64);
    let size = if is_open { format!("{size} and more") } else { size };
    let slowed = if figures.slow() == SlowSource::default() { "" } else { ", made slow when it was measured" };
    writeln!(out, "source     {}, {size}, {}{slowed}", figures.path.source.display(), figures.path.cache.name())?;
    writeln!(out, "now        {}", described(&advice.current.0))?;
    writeln!(out, "           {}", forecast_line(&advice.current.1))
}

/// What to change, what to expect then, and how far to believe it.
fn changes(out: &mut dyn Write, figures: &SiteFigures, advice: &Advice) -> std::io::Result<()> {
    let source = figures.path.source.display();
    if let Some(Disagreement { read, null }) = &advice.disagreement {
        let (read, null) = (spread(read), spread(null));
        writeln!(
            out,
            "doubt      bare readers got {read} MB/s of this source, the data path {null}, and no processor was busy:\n           \
             one of the two is wrong, so no change is advised. Measure both again, longer, while nothing else\n           \
             reads: capstan lab read {source} --seconds 20, and capstan lab null {source} --seconds 20"
        )?;
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
    // Each was measured with several blocks and levels.
    let unsettled: BTreeSet<u32> = figures.unsettled().map(|rate| rate.connections).collect();
    if !unsettled.is_empty() {
        let them = unsettled.iter().map(u32::to_string).collect::<Vec<_>>().join(", ");
        writeln!(
            out,
            "doubt      the source did not come steadily over {them} connections: measure it longer, with\n           \
             capstan lab null {source} --seconds 20"
        )?;
    }
    for (number, change) in (1..).zip(&advice.changes) {
        writeln!(out, "{}\n       {}", change_line(number, change), change.lever.how(&change.setting))?;
    }
    if !advice.changes.is_empty() {
        writeln!(out, "then       {}", forecast_line(&advice.advised.1))?;
    }
    writeln!(out, "certainty  {}", advice.certainty())
}

/// What else there could be: a second copy, a staging disk, a disk more, another drive.
fn others(out: &mut dyn Write, advice: &Advice, has_window: bool) -> std::io::Result<()> {
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
        let than = if has_window { "what the window needs, or as much as any" } else { "as much as any" };
        writeln!(out, "drive      {drive} fits: of the drives that give {than}, its tape moves most of the time")?;
    }
    Ok(())
}

/// A setting that was tried, beside what was predicted of it.
fn tried(out: &mut dyn Write, advice: &Advice, name: &str, trial: &Trial) -> std::io::Result<()> {
    let [low, high] = foretold(&of_trial(advice, name).1, advice, trial);
    let within = if (low..=high).contains(&trial.measured_mb_per_s.median) { "within" } else { "outside" };
    writeln!(
        out,
        "tried      {name}: predicted {:.1} MB/s, measured {}: {:+.1} %, {within} {low:.1} to {high:.1} as foretold; \
         the data path says: {}",
        trial.predicted_mb_per_s,
        spread(&trial.measured_mb_per_s),
        trial.error() * 100.0,
        trial.bottleneck
    )
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
