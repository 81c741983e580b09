//! Pictures of a report: lines and dots over two axes, and bars.

use std::fmt::Write;

use maud::{Markup, PreEscaped, html};

use crate::plot::round_step;

const WIDTH: f64 = 900.0;
const HEIGHT: f64 = 380.0;
const LEFT: f64 = 70.0;
/// Room for the words at the ends of lines.
const RIGHT: f64 = 190.0;
const TOP: f64 = 30.0;
const BOTTOM: f64 = 52.0;
/// Words closer than this run into each other.
const LABEL_GAP: f64 = 17.0;
const COLOURS: usize = 5;

/// How an axis runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Run {
    /// From 0, evenly.
    Even,
    /// By factors.
    Log,
}

/// An axis: its words with the unit, and how it runs.
pub(super) struct Axis {
    pub(super) label: &'static str,
    pub(super) run: Run,
    /// Where it has lines; none for round values.
    pub(super) ticks: Vec<f64>,
}

impl Axis {
    pub(super) fn new(label: &'static str, run: Run) -> Self {
        Self { label, run, ticks: Vec::new() }
    }
}

/// A point with what it spreads over.
#[derive(Debug, Clone, Copy)]
pub(super) struct Point {
    pub(super) x: f64,
    pub(super) y: f64,
    pub(super) low: f64,
    pub(super) high: f64,
}

impl Point {
    pub(super) fn at(x: f64, y: f64) -> Self {
        Self { x, y, low: y, high: y }
    }
}

/// Points that belong together.
pub(super) struct Series {
    pub(super) label: String,
    pub(super) points: Vec<Point>,
    /// Joined by a line, with its words at the end; else dots, with their words above the picture.
    pub(super) joined: bool,
}

struct Scale {
    run: Run,
    from: f64,
    to: f64,
    begin: f64,
    end: f64,
}

impl Scale {
    fn over(axis: &Axis, values: impl Iterator<Item = f64>, begin: f64, end: f64) -> Self {
        let (mut least, mut most) = (f64::INFINITY, 0.0_f64);
        for value in values.chain(axis.ticks.iter().copied()).filter(|value| value.is_finite() && *value > 0.0) {
            least = least.min(value);
            most = most.max(value);
        }
        if !least.is_finite() {
            (least, most) = (1.0, 10.0);
        }
        let (from, to) = match axis.run {
            Run::Even => {
                let step = round_step(most / 5.0);
                (0.0, (most / step).ceil() * step)
            }
            Run::Log => (least / 1.15, most * 1.15),
        };
        Self { run: axis.run, from, to, begin, end }
    }

    fn place(&self, value: f64) -> f64 {
        let share = match self.run {
            Run::Even => (value - self.from) / (self.to - self.from),
            Run::Log => (value.max(self.from) / self.from).ln() / (self.to / self.from).ln(),
        };
        self.begin + (self.end - self.begin) * share
    }

    fn ticks(&self) -> Vec<f64> {
        match self.run {
            Run::Even => {
                let step = round_step((self.to - self.from) / 5.0);
                (0..=20).map(|at| f64::from(at) * step).take_while(|value| *value <= self.to * (1.0 + 1e-9)).collect()
            }
            Run::Log => {
                let decades = (self.from.log10().floor() as i32)..=(self.to.log10().ceil() as i32);
                let all = decades.flat_map(|power| [1.0, 2.0, 5.0].map(|digit| digit * 10f64.powi(power)));
                all.filter(|value| (self.from..=self.to).contains(value)).collect()
            }
        }
    }
}

fn number(value: f64) -> String {
    if value >= 100.0 || value.fract() == 0.0 { format!("{value:.0}") } else { format!("{value:.1}") }
}

/// Moves words apart that would run into each other, from the top down, and back up if they would leave the picture.
fn apart(mut places: Vec<(usize, f64)>) -> Vec<(usize, f64)> {
    places.sort_by(|one, other| one.1.total_cmp(&other.1));
    for at in 1..places.len() {
        places[at].1 = places[at].1.max(places[at - 1].1 + LABEL_GAP);
    }
    let bottom = HEIGHT - BOTTOM + 4.0;
    for at in (0..places.len()).rev() {
        let limit = if at + 1 < places.len() { places[at + 1].1 - LABEL_GAP } else { bottom };
        places[at].1 = places[at].1.min(limit);
    }
    places
}

/// Draws series over two axes. With `even`, the line on which both are the same is drawn, and a band of a tenth on
/// either side.
pub(super) fn plot(title: &str, x_axis: &Axis, y_axis: &Axis, series: &[Series], even: bool) -> Markup {
    let all = || series.iter().flat_map(|series| &series.points);
    let both = all().flat_map(|point| [point.x, point.y]).collect::<Vec<_>>();
    let xs: Vec<f64> = if even { both.clone() } else { all().map(|point| point.x).collect() };
    let ys: Vec<f64> = if even { both } else { all().flat_map(|point| [point.low, point.high, point.y]).collect() };
    let x = Scale::over(x_axis, xs.into_iter(), LEFT, WIDTH - RIGHT);
    let y = Scale::over(y_axis, ys.into_iter(), HEIGHT - BOTTOM, TOP);
    let mut text = String::new();
    grid(&mut text, x_axis, y_axis, &x, &y);
    if even {
        let (from, to) = (x.from.max(y.from).max(1e-9), x.to.min(y.to));
        let corner = |at: f64, share: f64| {
            format!("{:.1},{:.1}", x.place(at), y.place((at * share).clamp(y.from.max(1e-9), y.to)))
        };
        let band = [corner(from, 0.9), corner(to, 0.9), corner(to, 1.1), corner(from, 1.1)].join(" ");
        let _ = write!(text, "<polygon class=\"band\" points=\"{band}\"/>");
        let _ = write!(text, "<path class=\"even\" d=\"M{}L{}\"/>", corner(from, 1.0), corner(to, 1.0));
    }
    for (number, series) in series.iter().enumerate() {
        draw(&mut text, number % COLOURS, series, &x, &y);
    }
    labels(&mut text, series, &y, if even { "dashed: as predicted; band: 10 %" } else { "" });
    let view = format!("0 0 {WIDTH} {HEIGHT}");
    html! {
        figure {
            svg xmlns="http://www.w3.org/2000/svg" viewBox=(view) role="img" aria-label=(title) { (PreEscaped(text)) }
            figcaption { (title) }
        }
    }
}

fn grid(text: &mut String, x_axis: &Axis, y_axis: &Axis, x: &Scale, y: &Scale) {
    let (right, bottom) = (WIDTH - RIGHT, HEIGHT - BOTTOM);
    for value in y.ticks() {
        let at = y.place(value);
        let _ = write!(text, "<line class=\"grid\" x1=\"{LEFT}\" x2=\"{right}\" y1=\"{at:.1}\" y2=\"{at:.1}\"/>");
        let (place, value) = (LEFT - 8.0, number(value));
        let _ = write!(text, "<text x=\"{place}\" y=\"{:.1}\" text-anchor=\"end\">{value}</text>", at + 4.0);
    }
    let ticks = if x_axis.ticks.is_empty() { x.ticks() } else { x_axis.ticks.clone() };
    for value in ticks {
        let at = x.place(value);
        let _ = write!(
            text,
            "<line class=\"axis\" x1=\"{at:.1}\" x2=\"{at:.1}\" y1=\"{bottom}\" y2=\"{}\"/>",
            bottom + 5.0
        );
        let _ =
            write!(text, "<text x=\"{at:.1}\" y=\"{}\" text-anchor=\"middle\">{}</text>", bottom + 20.0, number(value));
    }
    let _ = write!(text, "<line class=\"axis\" x1=\"{LEFT}\" x2=\"{right}\" y1=\"{bottom}\" y2=\"{bottom}\"/>");
    let _ = write!(text, "<text class=\"soft\" x=\"{LEFT}\" y=\"{}\">{}</text>", TOP - 12.0, y_axis.label);
    let _ = write!(
        text,
        "<text class=\"soft\" x=\"{right}\" y=\"{}\" text-anchor=\"end\">{}</text>",
        bottom + 40.0,
        x_axis.label
    );
}

fn draw(text: &mut String, colour: usize, series: &Series, x: &Scale, y: &Scale) {
    let _ = write!(text, "<g class=\"c{colour}\">");
    if series.joined {
        let mut path = String::new();
        for point in &series.points {
            let step = if path.is_empty() { 'M' } else { 'L' };
            let _ = write!(path, "{step}{:.1},{:.1}", x.place(point.x), y.place(point.y));
        }
        let _ = write!(text, "<path class=\"line\" d=\"{path}\"/>");
    }
    for point in &series.points {
        let at = x.place(point.x);
        if point.high > point.low {
            let (low, high) = (y.place(point.low), y.place(point.high));
            let _ = write!(
                text,
                "<line class=\"whisker\" x1=\"{at:.1}\" x2=\"{at:.1}\" y1=\"{low:.1}\" y2=\"{high:.1}\"/>"
            );
        }
        let radius = if series.joined { 3.5 } else { 3.0 };
        let _ = write!(text, "<circle class=\"dot\" cx=\"{at:.1}\" cy=\"{:.1}\" r=\"{radius}\"/>", y.place(point.y));
    }
    text.push_str("</g>");
}

fn labels(text: &mut String, series: &[Series], y: &Scale, note: &str) {
    let ends = series.iter().enumerate().filter(|(_, series)| series.joined);
    let ends = ends.filter_map(|(number, series)| Some((number, y.place(series.points.last()?.y) + 4.0)));
    let dots = series.iter().enumerate().filter(|(_, series)| !series.joined);
    let dots = dots.enumerate().map(|(row, (number, _))| (number, TOP + 12.0 + row as f64 * LABEL_GAP));
    let place = WIDTH - RIGHT + 12.0;
    for (number, at) in apart(ends.chain(dots).collect()) {
        // The value stands at the end of its line, so that nobody measures the picture.
        let value = series[number].points.last().filter(|_| series[number].joined);
        let value = value.map_or(String::new(), |point| format!(": {}", self::number(point.y)));
        let label = maud::html! { (series[number].label) (value) }.into_string();
        let colour = number % COLOURS;
        let _ = write!(text, "<text class=\"label c{colour}\" x=\"{place}\" y=\"{at:.1}\">{label}</text>");
    }
    if !note.is_empty() {
        let _ = write!(text, "<text class=\"soft\" x=\"{}\" y=\"{}\">{note}</text>", LEFT + 8.0, TOP + 4.0);
    }
}

/// A bar.
pub(super) struct Bar {
    pub(super) label: String,
    pub(super) value: f64,
    /// What stands behind it.
    pub(super) words: String,
    /// What it is to the picture.
    pub(super) kind: BarKind,
}

/// What a bar is to its picture.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum BarKind {
    /// A part.
    Part,
    /// The narrowest part.
    Narrow,
    /// All parts together.
    Together,
}

/// Where bars end, by their values, and which values the axis names: evenly from 0, or by factors where the longest is
/// more than five times the shortest, so that neither is a sliver and none is cut off.
struct BarScale {
    scale: Scale,
    ticks: Vec<f64>,
}

impl BarScale {
    fn over(bars: &[Bar], begin: f64, end: f64) -> Self {
        const FACTOR: f64 = 5.0;
        let values = || bars.iter().map(|bar| bar.value).filter(|value| value.is_finite() && *value > 0.0);
        let (least, most) =
            values().fold((f64::INFINITY, 1e-9), |(least, most), value| (value.min(least), value.max(most)));
        if most <= least * FACTOR {
            let scale = Scale::over(&Axis::new("MB/s", Run::Even), values(), begin, end);
            let ticks = scale.ticks();
            return Self { scale, ticks };
        }
        // From the power of ten below the shortest, less one where that would leave nothing of it.
        let decade = least.log10().floor() as i32;
        let from = if least < 2.0 * 10f64.powi(decade) { decade - 1 } else { decade };
        let scale = Scale { run: Run::Log, from: 10f64.powi(from), to: most * 1.05, begin, end };
        let ticks = (from..=most.log10().floor() as i32).map(|power| 10f64.powi(power)).collect();
        Self { scale, ticks }
    }
}

/// Bars over one axis, each with its value in words behind it.
pub(super) fn bars(title: &str, bars: &[Bar]) -> Markup {
    const ROW: f64 = 34.0;
    const NAMES: f64 = 130.0;
    const WORDS: f64 = 260.0;
    const AXIS: f64 = 26.0;
    let BarScale { scale, ticks } = BarScale::over(bars, NAMES, WIDTH - WORDS);
    let bottom = ROW * bars.len() as f64 + 4.0;
    let height = bottom + AXIS;
    let mut text = String::new();
    for value in ticks {
        let at = scale.place(value);
        let _ = write!(text, "<line class=\"grid\" x1=\"{at:.1}\" x2=\"{at:.1}\" y1=\"4\" y2=\"{bottom}\"/>");
        let (y, value) = (bottom + 17.0, number(value));
        let _ = write!(text, "<text class=\"soft\" x=\"{at:.1}\" y=\"{y}\" text-anchor=\"middle\">{value}</text>");
    }
    let by = if scale.run == Run::Log { "MB/s, by factors of ten" } else { "MB/s" };
    let _ = write!(text, "<text class=\"soft\" x=\"{}\" y=\"{}\">{by}</text>", WIDTH - WORDS + 24.0, bottom + 17.0);
    for (row, bar) in bars.iter().enumerate() {
        let top = 4.0 + row as f64 * ROW;
        let length = scale.place(bar.value.max(scale.from)) - NAMES;
        let (class, word_class) = match bar.kind {
            BarKind::Part => ("bar rest", ""),
            BarKind::Narrow => ("bar cn", "label cn"),
            BarKind::Together => ("bar c0", "label c0"),
        };
        let (label, words) = (html! { (bar.label) }.into_string(), html! { (bar.words) }.into_string());
        let base = top + ROW / 2.0 + 4.0;
        let _ = write!(text, "<text x=\"{}\" y=\"{base}\" text-anchor=\"end\">{label}</text>", NAMES - 10.0);
        let _ = write!(
            text,
            "<rect class=\"{class}\" x=\"{NAMES}\" y=\"{}\" width=\"{length:.1}\" height=\"{}\" rx=\"2\"/>",
            top + 5.0,
            ROW - 10.0
        );
        let _ =
            write!(text, "<text class=\"{word_class}\" x=\"{:.1}\" y=\"{base}\">{words}</text>", NAMES + length + 8.0);
    }
    let view = format!("0 0 {WIDTH} {height}");
    html! {
        figure {
            svg xmlns="http://www.w3.org/2000/svg" viewBox=(view) role="img" aria-label=(title) { (PreEscaped(text)) }
            figcaption { (title) }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_do_not_run_into_each_other_and_stay_in_the_picture() {
        let placed = apart((0..12).map(|number| (number, HEIGHT - BOTTOM - f64::from(number as u32))).collect());
        for pair in placed.windows(2) {
            assert!(pair[1].1 - pair[0].1 >= LABEL_GAP - 1e-9, "{placed:?}");
        }
        assert!(placed.iter().all(|(_, at)| *at <= HEIGHT - BOTTOM + 4.0), "{placed:?}");
    }

    /// 7,889 was cut off at five times the shortest, and looked like 1,774 beside it.
    #[test]
    fn no_bar_is_cut_and_longer_ones_are_longer() {
        for values in [vec![60.0, 1774.0, 7889.0], vec![60.0, 121.0], vec![0.5, 20.0], vec![1.0], vec![100.0, 501.0]] {
            let of =
                |value: &f64| Bar { label: String::new(), value: *value, words: String::new(), kind: BarKind::Part };
            let bars: Vec<Bar> = values.iter().map(of).collect();
            let BarScale { scale, ticks } = BarScale::over(&bars, 100.0, 600.0);
            let ends: Vec<f64> = values.iter().map(|value| scale.place(*value)).collect();
            assert!(ends.windows(2).all(|pair| pair[1] > pair[0] + 5.0), "{values:?} end at {ends:?}");
            assert!(ends.iter().all(|end| (110.0..=600.0 + 1e-9).contains(end)), "{values:?} end at {ends:?}");
            assert!(!ticks.is_empty() && ticks.iter().all(|tick| scale.place(*tick) <= 600.0 + 1e-9), "{ticks:?}");
        }
    }

    #[test]
    fn scales_hold_all_that_is_on_them() {
        for run in [Run::Even, Run::Log] {
            let scale = Scale::over(&Axis::new("MB/s", run), [3.0, 250.0, 17.0].into_iter(), 0.0, 100.0);
            for value in [3.0, 17.0, 250.0] {
                assert!((0.0..=100.0).contains(&scale.place(value)), "{run:?} {value}");
            }
            assert!(scale.ticks().len() > 3, "{run:?}: {:?}", scale.ticks());
        }
    }
}
