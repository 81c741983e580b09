//! The parts of a report, each from what it shows.

use maud::{Markup, html};

use super::chart::{Axis, Bar, BarKind, Point, Run, Series, bars, plot};
use crate::advise::{Advice, Disagreement, Forecast, Lever, SiteFigures};
use crate::compare::{Comparison, median_error};
use crate::grid::{Cell, mean_error};
use crate::measure::Spread;
use crate::part::Part;
use crate::pipeline::Prediction;
use crate::site::{Measurements, Tried};

/// One section of a report.
pub struct ReportSection {
    title: String,
    body: Markup,
}

fn rate(value: f64) -> String {
    if value < 100.0 { format!("{value:.1}") } else { format!("{value:.0}") }
}

fn spread(value: &Spread) -> String {
    let Spread { low, median, high } = *value;
    if low == high { rate(median) } else { format!("{} ({}\u{2013}{})", rate(median), rate(low), rate(high)) }
}

fn hours(seconds: f64) -> String {
    match seconds {
        seconds if seconds < 100.0 => format!("{seconds:.1} s"),
        seconds if seconds < 7200.0 => format!("{:.0} min", seconds / 60.0),
        seconds => format!("{:.1} h", seconds / 3600.0),
    }
}

fn size(mb: f64) -> String {
    match mb {
        mb if mb < 1e3 => format!("{mb:.0} MB"),
        mb if mb < 1e6 => format!("{:.1} GB", mb / 1e3),
        mb => format!("{:.1} TB", mb / 1e6),
    }
}

/// Columns whose head begins with `>` are numbers. The first column names its row.
fn table(heads: &[&str], rows: impl IntoIterator<Item = Vec<String>>) -> Markup {
    let class = |head: &&str| if head.starts_with('>') { "number" } else { "" };
    html! {
        div.wide { table {
            thead { tr { @for head in heads { th scope="col" class=(class(head)) { (head.trim_start_matches('>')) } } } }
            tbody { @for row in rows { tr {
                @for (column, (head, cell)) in heads.iter().zip(&row).enumerate() {
                    @if column == 0 { th scope="row" { (cell) } } @else { td class=(class(head)) { (cell) } }
                }
            } } }
        } }
    }
}

impl ReportSection {
    pub(super) fn title(&self) -> &str {
        &self.title
    }

    pub(super) fn body(&self) -> &Markup {
        &self.body
    }

    pub(super) fn anchor(&self) -> String {
        let letters = self.title.chars().map(|c| if c.is_ascii_alphanumeric() { c.to_ascii_lowercase() } else { '-' });
        letters.collect()
    }

    /// What is advised for a source, with what was tried of it.
    pub fn advice(figures: &SiteFigures, advice: &Advice, trials: &[&Tried]) -> Self {
        let source = figures.path.source.display().to_string();
        let (now, then) = (&advice.current.1, &advice.advised.1);
        let body = html! {
            @if let Some(Disagreement { read, null }) = &advice.disagreement {
                p.lead { strong { "In doubt: " } "bare readers got " (spread(read)) " MB/s of this source, the data path " (spread(null))
                    ", and no processor was busy. One of the two is wrong: measure both again." }
            }
            p.lead {
                "Now " (spread(&now.mb_per_s)) " MB/s, and the " span.narrow { (now.bottleneck.name()) } " is the bottleneck. "
                @if advice.changes.is_empty() { "No setting gives more." }
                @else { "As advised " (spread(&then.mb_per_s)) " MB/s; then it is the " span.narrow { (then.bottleneck.name()) } "." }
            }
            (parts("What each part would give by itself, now. The narrowest is marked.", now))
            @if !advice.changes.is_empty() {
                h3 { "What to change, the most useful first" }
                (changes(advice))
                (parts("What each part would give by itself, as advised.", then))
            }
            p { (format!("Certainty: {}.", advice.certainty())) }
            @if !trials.is_empty() { (tried(trials)) }
            h3 { "What was measured of the source" }
            (source_curves(figures))
            h3 { "Other ways" }
            (other_ways(advice, figures))
            details { summary { "Every setting that differs from what there is now in one thing" } (configurations(advice)) }
            h3 { "Which drive fits this source" }
            (drives(advice))
        };
        Self { title: format!("Source {source}"), body }
    }

    /// The models against drives of this machine.
    pub fn comparison(rows: &[Comparison]) -> Self {
        let points = |paced: bool| {
            let chosen = rows.iter().filter(|row| row.paced == paced);
            chosen.map(|row| Point::at(row.predicted_mb_per_s, row.measured_mb_per_s)).collect::<Vec<_>>()
        };
        let named = [("paced by a model", true), ("as fast as the disk", false)];
        let series =
            named.map(|(label, paced)| Series { label: label.to_owned(), points: points(paced), joined: false });
        let series: Vec<Series> = series.into_iter().filter(|series| !series.points.is_empty()).collect();
        let (x, y) = (Axis::new("predicted, MB/s", Run::Log), Axis::new("measured, MB/s", Run::Log));
        let title = format!("{} configurations of virtual drives, predicted and measured", rows.len());
        let cells = rows.iter().map(|row| {
            let error = format!("{:+.1}", row.error() * 100.0);
            vec![row.what.clone(), rate(row.predicted_mb_per_s), rate(row.measured_mb_per_s), error]
        });
        let body = html! {
            p.lead { "Median error " (format!("{:.1}", median_error(rows.iter()) * 100.0)) " % over " (rows.len()) " configurations." }
            (plot(&title, &x, &y, &series, true))
            details { summary { "The numbers" }
                (table(&["configuration", ">predicted MB/s", ">measured MB/s", ">error %"], cells))
            }
        };
        Self { title: "The models against this machine".to_owned(), body }
    }

    /// A table of jobs, predicted, and measured if it was: by length of file.
    pub fn grid(title: &str, cells: &[Cell], predictions: &[Prediction]) -> Self {
        let mut lengths: Vec<&str> = Vec::new();
        for cell in cells {
            if !lengths.contains(&&*cell.columns[4]) {
                lengths.push(&cell.columns[4]);
            }
        }
        let pairs = || cells.iter().zip(predictions);
        let measured = pairs().any(|(cell, _)| cell.measured_mb_per_s.is_some());
        let of_length = |length: &str| {
            let chosen =
                pairs().filter(|(cell, _)| cell.columns[4] == length && cell.measured_mb_per_s.is_some() == measured);
            let points = chosen.map(|(cell, prediction)| {
                let memory_mb = cell.job.buffer_bytes as f64 * f64::from(cell.job.buffers) / 1e6;
                match cell.measured_mb_per_s {
                    Some(found) => Point::at(prediction.mb_per_s, found),
                    None => Point::at(memory_mb, prediction.mb_per_s),
                }
            });
            Series { label: format!("files of {length}"), points: points.collect(), joined: false }
        };
        let series: Vec<Series> = lengths.iter().map(|length| of_length(length)).collect();
        let picture = if measured {
            let (x, y) = (Axis::new("predicted, MB/s", Run::Log), Axis::new("measured, MB/s", Run::Log));
            plot(&format!("{title}: {} jobs, predicted and measured", cells.len()), &x, &y, &series, true)
        } else {
            let (x, y) = (Axis::new("memory of all buffers, MB", Run::Log), Axis::new("predicted, MB/s", Run::Even));
            plot(&format!("{title}: {} jobs, predicted", cells.len()), &x, &y, &series, false)
        };
        let narrow = |name: &str| pairs().filter(|(_, prediction)| prediction.bottleneck().name() == name).count();
        let rows = pairs().map(|(cell, prediction)| {
            let mut row = cell.columns.clone();
            row.push(rate(prediction.mb_per_s));
            row.push(cell.measured_mb_per_s.map_or(String::new(), rate));
            row.push(prediction.bottleneck().name().to_owned());
            row
        });
        let heads = [
            "drive",
            ">buffers",
            ">buffer",
            ">encrypted",
            ">file",
            ">ratio",
            ">predicted MB/s",
            ">measured MB/s",
            "bottleneck",
        ];
        let body = html! {
            p.lead {
                @if let Some(error) = mean_error(cells, predictions) { "Mean absolute error " (format!("{:.1}", error * 100.0)) " %. " }
                "The bottleneck is the source in " (narrow("source")) " jobs, the buffers in " (narrow("buffers")) ", the drive in " (narrow("drive")) "."
            }
            (picture)
            details { summary { "The numbers" } (table(&heads, rows)) }
        };
        Self { title: title.to_owned(), body }
    }

    /// Disks and drives, as they were measured.
    pub fn measurements(all: &Measurements) -> Self {
        let drives = all.drives.iter().flat_map(|measured| {
            let found = &measured.found;
            let name = found.model.clone().unwrap_or_else(|| "as fast as the disk".to_owned());
            found.rates.iter().map(move |rate| {
                let block = format!("{} KiB", rate.block_len >> 10);
                let data = rate.data.name().to_owned();
                vec![found.place.display().to_string(), name.clone(), data, block, spread(&rate.mb_per_s)]
            })
        });
        let staging = all.staging.iter().flat_map(|measured| {
            let found = &measured.found;
            let place = found.folder.display().to_string();
            let writers = found.write.iter().map(|rate| (format!("written by {}", rate.writers), rate.mb_per_s));
            let others = [
                ("read".to_owned(), found.read),
                ("read, written beside others".to_owned(), found.read_mixed),
                ("written beside a reader".to_owned(), found.write_beside_read),
                ("read beside a writer".to_owned(), found.read_beside_write),
            ];
            let place = &place;
            writers.chain(others).map(|(what, rate)| vec![place.clone(), what, spread(&rate)]).collect::<Vec<_>>()
        });
        let restores = all.restores.iter().flat_map(|measured| {
            let found = &measured.found;
            let ways = [
                ("backup to a cartridge", found.backup),
                ("restore to files, flushed", found.restore),
                ("object copy to another cartridge", found.copy),
            ];
            ways.map(|(what, way)| {
                let busy = way.mb_per_s.median * way.cpu_s_per_mb / f64::from(found.processors) * 100.0;
                vec![found.source.display().to_string(), what.to_owned(), spread(&way.mb_per_s), format!("{busy:.0}")]
            })
        });
        let body = html! {
            @if !all.restores.is_empty() {
                h3 { "Restores and object copies" }
                (table(&["source", "what", ">MB/s", ">processor %"], restores))
            }
            h3 { "Drives, written from memory" }
            (table(&["place", "pace", "data", ">block", ">MB/s"], drives))
            h3 { "Disks as file libraries" }
            (table(&["place", "what", ">MB/s"], staging))
        };
        Self { title: "Drives and disks".to_owned(), body }
    }
}

fn parts(title: &str, forecast: &Forecast) -> Markup {
    let bar = |(part, value): &(Part, f64)| {
        let narrow = *part == forecast.bottleneck;
        let words = format!("{} MB/s{}", rate(*value), if narrow { ", the bottleneck" } else { "" });
        let kind = if narrow { BarKind::Narrow } else { BarKind::Part };
        Bar { label: part.name().to_owned(), value: *value, words, kind }
    };
    let mut all: Vec<Bar> = forecast.parts.iter().map(bar).collect();
    let together = format!("{} MB/s", spread(&forecast.mb_per_s));
    all.push(Bar {
        label: "together".to_owned(),
        value: forecast.mb_per_s.median,
        words: together,
        kind: BarKind::Together,
    });
    bars(title, &all)
}

fn changes(advice: &Advice) -> Markup {
    let rows = advice.changes.iter().map(|change| {
        vec![
            change.lever.name().to_owned(),
            format!("{} \u{2192} {}", change.from, change.to),
            rate(change.before.mb_per_s.median),
            rate(change.after.mb_per_s.median),
            format!("{:+.0}", change.gain() * 100.0),
            change.relieves.name().to_owned(),
            change.lever.how(&change.setting),
        ]
    });
    table(&["what", "from, to", ">from MB/s", ">to MB/s", ">gain %", "relieves", "how"], rows)
}

fn tried(trials: &[&Tried]) -> Markup {
    let rows = trials.iter().map(|trial| {
        let error = format!("{:+.1}", 100.0 * (trial.predicted_mb_per_s / trial.mb_per_s - 1.0));
        vec![trial.setting.clone(), rate(trial.predicted_mb_per_s), rate(trial.mb_per_s), error]
    });
    html! {
        h3 { "Tried, with what was predicted before" }
        (table(&["setting", ">predicted MB/s", ">measured MB/s", ">error %"], rows))
    }
}

fn source_curves(figures: &SiteFigures) -> Markup {
    let mut series = Vec::new();
    let mut ticks: Vec<f64> = Vec::new();
    if let Some(readers) = &figures.readers {
        let points = readers.rates.iter().map(|rate| point(f64::from(rate.readers), &rate.mb_per_s));
        series.push(Series { label: "bare readers".to_owned(), points: points.collect(), joined: true });
    }
    let mut levels: Vec<i32> = figures.path.rates.iter().map(|rate| rate.compression_level).collect();
    levels.sort_unstable();
    levels.dedup();
    for level in levels {
        let of_level = figures.path.rates.iter().filter(|rate| rate.compression_level == level);
        let mut points: Vec<Point> = of_level.map(|rate| point(f64::from(rate.connections), &rate.mb_per_s)).collect();
        points.sort_by(|one, other| one.x.total_cmp(&other.x));
        series.push(Series { label: format!("data path, zstd {level}"), points, joined: true });
    }
    for point in series.iter().flat_map(|series| &series.points) {
        if !ticks.contains(&point.x) {
            ticks.push(point.x);
        }
    }
    let x = Axis { ticks, ..Axis::new("readers or connections", Run::Log) };
    let title = format!(
        "What the source gives to so many readers, and the data path without a drive ({}); whiskers: least and most of the rounds",
        figures.path.cache.name()
    );
    plot(&title, &x, &Axis::new("MB/s", Run::Even), &series, false)
}

fn point(x: f64, rate: &Spread) -> Point {
    Point { x, y: rate.median, low: rate.low, high: rate.high }
}

fn other_ways(advice: &Advice, figures: &SiteFigures) -> Markup {
    let row = |name: &str, forecast: &Forecast| {
        vec![
            name.to_owned(),
            spread(&forecast.mb_per_s),
            forecast.bottleneck.name().to_owned(),
            hours(forecast.source_busy_s),
            hours(forecast.on_tape_s),
            hours(forecast.drive_busy_s),
            forecast.backhitches_per_hour.map_or(String::new(), |count| format!("{count:.0}")),
        ]
    };
    let mut rows = vec![row("now", &advice.current.1), row("as advised", &advice.advised.1)];
    rows.extend(advice.twin.as_ref().map(|twin| row("as advised, two copies at once", twin)));
    rows.extend(advice.staged.as_ref().map(|(setting, staged)| row(&Lever::Route.value(setting), staged)));
    rows.extend(advice.apart.as_ref().map(|apart| row("source and library on two disks", apart)));
    html! {
        p { "For " (size(figures.source_mb)) " of the source." }
        (table(&["way", ">MB/s", "bottleneck", ">source read in", ">all on tape in", ">drive taken for", ">backhitches/h"], rows))
    }
}

fn configurations(advice: &Advice) -> Markup {
    let rows = advice.neighbours.iter().map(|(lever, setting, forecast)| {
        let back = forecast.backhitches_per_hour.map_or(String::new(), |count| format!("{count:.0}"));
        let (value, rate) = (lever.value(setting), spread(&forecast.mb_per_s));
        vec![lever.name().to_owned(), value, rate, forecast.bottleneck.name().to_owned(), back]
    });
    table(&["what", "to", ">MB/s", "bottleneck", ">backhitches/h"], rows)
}

fn drives(advice: &Advice) -> Markup {
    let rows = advice.drives.iter().map(|fit| {
        let share = fit.forecast.streaming_share.unwrap_or_default() * 100.0;
        let back = fit.forecast.backhitches_per_hour.unwrap_or_default();
        vec![
            fit.drive.clone(),
            spread(&fit.forecast.mb_per_s),
            fit.forecast.bottleneck.name().to_owned(),
            format!("{back:.0}"),
            format!("{share:.0}"),
            fit.volumes.to_string(),
            format!("{} of {}", fit.estimates.0, fit.estimates.1),
        ]
    });
    let heads =
        ["drive", ">MB/s", "bottleneck", ">backhitches/h", ">tape moves %", ">cartridges", "estimates in its model"];
    html! {
        @if let Some(drive) = &advice.fitting {
            p { strong { (drive) } ": of the drives that are fast enough, its tape moves most of the time." }
        }
        (table(&heads, rows))
    }
}
