//! A simulation drawn: rates above, the buffer below, over the same time. SVG that stands alone, for light and dark.

use std::fmt::Write;

use super::simulation::{Sample, Simulation};

const WIDTH: f64 = 960.0;
const LEFT: f64 = 64.0;
/// Room for the labels at the ends of the lines.
const RIGHT: f64 = 136.0;
const RATES_TOP: f64 = 56.0;
const RATES_HEIGHT: f64 = 240.0;
const BUFFER_TOP: f64 = 352.0;
const BUFFER_HEIGHT: f64 = 120.0;
const HEIGHT: f64 = 528.0;
/// More points than pixels say nothing.
const POINTS_MAX: usize = 800;
/// Label lines closer than this run into each other.
const LABEL_GAP: f64 = 16.0;

const STYLE: &str = "\
svg{background:#fff;font:13px system-ui,sans-serif}text{fill:#333}.title{font-size:16px;font-weight:600}\
.grid{stroke:#ddd}.host{stroke:#1667b7;fill:none;stroke-width:1.6}.tape{stroke:#c2571a;fill:none;stroke-width:1.6}\
.buffer{stroke:#3d7d3f;fill:#3d7d3f33;stroke-width:1.2}.stop{stroke:#b3261e;stroke-width:1}\
text.host{fill:#1667b7;stroke:none}text.tape{fill:#c2571a;stroke:none}text.buffer{fill:#3d7d3f;stroke:none}text.stop{fill:#b3261e;stroke:none}\
@media(prefers-color-scheme:dark){svg{background:#16181b}text{fill:#ddd}.grid{stroke:#3a3d42}.host{stroke:#6db3f2}.tape{stroke:#f0965a}\
.buffer{stroke:#7cc47f;fill:#7cc47f33}.stop{stroke:#f2857d}text.host{fill:#6db3f2}text.tape{fill:#f0965a}text.buffer{fill:#7cc47f}text.stop{fill:#f2857d}}";

struct Panel {
    top: f64,
    height: f64,
    most: f64,
}

impl Panel {
    fn y(&self, value: f64) -> f64 {
        self.top + self.height * (1.0 - value / self.most)
    }

    /// Lines and numbers at round values.
    fn scale(&self, text: &mut String, unit: &str) {
        let step = round_step(self.most / 4.0);
        let mut value = 0.0;
        while value <= self.most * (1.0 + 1e-9) {
            let y = self.y(value);
            let end = WIDTH - RIGHT;
            let _ = write!(text, "<line class=\"grid\" x1=\"{LEFT}\" x2=\"{end}\" y1=\"{y:.1}\" y2=\"{y:.1}\"/>");
            let (x, y) = (LEFT - 8.0, y + 4.0);
            let _ = write!(text, "<text x=\"{x}\" y=\"{y:.1}\" text-anchor=\"end\">{value}</text>");
            value += step;
        }
        let _ = write!(text, "<text x=\"{LEFT}\" y=\"{:.1}\">{unit}</text>", self.top - 10.0);
    }
}

/// 1, 2 or 5 times a power of ten, at least `least`.
pub(crate) fn round_step(least: f64) -> f64 {
    let power = 10f64.powf(least.max(1e-9).log10().floor());
    [1.0, 2.0, 5.0, 10.0]
        .into_iter()
        .map(|digit| digit * power)
        .find(|step| *step >= least * (1.0 - 1e-9))
        .unwrap_or(power)
}

/// Neighbours as one, so that there are no more of them than points: rates as means, the buffer as it is at the end.
fn thinned(samples: &[Sample]) -> Vec<Sample> {
    let each = samples.len().div_ceil(POINTS_MAX).max(1);
    let mut last_s = 0.0;
    let merge = |chunk: &[Sample]| {
        let began_s = last_s;
        let (mut host, mut tape, mut at) = (0.0, 0.0, began_s);
        for sample in chunk {
            host += sample.host_mb_per_s * (sample.at_s - at);
            tape += sample.tape_mb_per_s * (sample.at_s - at);
            at = sample.at_s;
        }
        last_s = at;
        let seconds = (at - began_s).max(1e-9);
        let end = chunk.last().copied();
        end.map(|end| Sample {
            host_mb_per_s: host / seconds,
            tape_mb_per_s: tape / seconds,
            backhitches: chunk.iter().map(|sample| sample.backhitches).sum(),
            ..end
        })
    };
    samples.chunks(each).filter_map(merge).collect()
}

/// Text as it may stand in XML.
fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

/// Draws a simulation under a title.
pub fn plot(simulation: &Simulation, title: &str) -> String {
    let samples = thinned(&simulation.samples);
    let end_s = samples.last().map_or(1.0, |sample| sample.at_s).max(1e-9);
    let x = |at_s: f64| LEFT + (WIDTH - LEFT - RIGHT) * at_s / end_s;
    let fastest = samples.iter().map(|sample| sample.host_mb_per_s.max(sample.tape_mb_per_s)).fold(1.0, f64::max);
    let round_up = |value: f64| (value / round_step(value / 4.0)).ceil() * round_step(value / 4.0);
    let rates = Panel { top: RATES_TOP, height: RATES_HEIGHT, most: round_up(fastest) };
    let buffer = Panel { top: BUFFER_TOP, height: BUFFER_HEIGHT, most: round_up(simulation.buffer_mb) };

    let mut text = String::new();
    let _ = write!(
        text,
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" role=\"img\"><title>{0}</title><style>{STYLE}</style>\
         <text class=\"title\" x=\"{LEFT}\" y=\"24\">{0}</text>",
        escaped(title)
    );
    rates.scale(&mut text, "MB/s");
    buffer.scale(&mut text, "MB in the buffer");
    time_scale(&mut text, end_s, &x);

    // Each rate holds for its whole interval: steps, not slopes.
    let steps = |value: fn(&Sample) -> f64| {
        let mut path = String::new();
        let mut from = 0.0;
        for sample in &samples {
            let y = rates.y(value(sample));
            let _ = write!(
                path,
                "{}{:.1},{y:.1}L{:.1},{y:.1}",
                if path.is_empty() { 'M' } else { 'L' },
                x(from),
                x(sample.at_s)
            );
            from = sample.at_s;
        }
        path
    };
    let _ = write!(text, "<path class=\"tape\" d=\"{}\"/>", steps(|sample| sample.tape_mb_per_s));
    let _ = write!(text, "<path class=\"host\" d=\"{}\"/>", steps(|sample| sample.host_mb_per_s));
    let mut area = format!("M{:.1},{:.1}", x(0.0), buffer.y(0.0));
    for sample in &samples {
        let _ = write!(area, "L{:.1},{:.1}", x(sample.at_s), buffer.y(sample.buffer_mb));
    }
    let _ = write!(area, "L{:.1},{:.1}Z", x(end_s), buffer.y(0.0));
    let _ = write!(text, "<path class=\"buffer\" d=\"{area}\"/>");

    let label = |text: &mut String, class: &str, y: f64, words: &str| {
        let _ = write!(text, "<text class=\"{class}\" x=\"{:.1}\" y=\"{y:.1}\">{words}</text>", WIDTH - RIGHT + 8.0);
    };
    if let Some(last) = samples.last() {
        let (host, mut tape) = (rates.y(last.host_mb_per_s) + 4.0, rates.y(last.tape_mb_per_s) + 4.0);
        if (tape - host).abs() < LABEL_GAP {
            tape = if host + LABEL_GAP > RATES_TOP + RATES_HEIGHT { host - LABEL_GAP } else { host + LABEL_GAP };
        }
        label(&mut text, "host", host, "host");
        label(&mut text, "tape", tape, "tape");
        label(&mut text, "buffer", buffer.y(last.buffer_mb) + 4.0, "buffer");
    }
    let stops = RATES_TOP + RATES_HEIGHT + 8.0;
    for sample in samples.iter().filter(|sample| sample.backhitches > 0) {
        let x = x(sample.at_s);
        let _ = write!(
            text,
            "<line class=\"stop\" x1=\"{x:.1}\" x2=\"{x:.1}\" y1=\"{stops}\" y2=\"{:.1}\"/>",
            stops + 10.0
        );
    }
    let count = simulation.totals.backhitches;
    label(
        &mut text,
        "stop",
        stops + 10.0,
        &format!("{count} {}", if count == 1 { "backhitch" } else { "backhitches" }),
    );
    text.push_str("</svg>\n");
    text
}

fn time_scale(text: &mut String, end_s: f64, x: &dyn Fn(f64) -> f64) {
    // An hour is divided as clocks divide it.
    let (unit_s, unit) = match end_s {
        end_s if end_s > 10_800.0 => (3600.0, "hours"),
        end_s if end_s > 600.0 => (60.0, "minutes"),
        _ => (1.0, "seconds"),
    };
    let step = round_step(end_s / unit_s / 8.0);
    let y = BUFFER_TOP + BUFFER_HEIGHT + 20.0;
    let mut at = 0.0;
    while at <= end_s / unit_s * (1.0 + 1e-9) {
        let _ = write!(
            text,
            "<text x=\"{:.1}\" y=\"{y}\" text-anchor=\"middle\">{}</text>",
            x(at * unit_s),
            (at * 1e6).round() / 1e6
        );
        at += step;
    }
    let _ = write!(text, "<text x=\"{LEFT}\" y=\"{}\">{unit}</text>", y + 20.0);
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests fail by panicking")]
    use capstan_tape::model::built_in;

    use super::super::{HostLoad, Options, simulate};
    use super::*;

    #[test]
    fn a_long_simulation_is_drawn_with_few_points_and_all_its_backhitches() {
        let drive = built_in("LTO-6").unwrap();
        let load = HostLoad::Files { count: 3000, mb: 13.0, mb_per_s: 200.0, syncs: true };
        let simulation = simulate(&drive, &load, &Options::default()).unwrap();
        assert!(simulation.samples.len() > 4 * POINTS_MAX);
        let drawn: u64 = thinned(&simulation.samples).iter().map(|sample| sample.backhitches).sum();
        assert_eq!(drawn, simulation.totals.backhitches);
        let text = plot(&simulation, "files < 50 MB & syncs");
        assert!(text.contains("files &lt; 50 MB &amp; syncs") && text.len() < 100_000, "{}", text.len());
    }

    #[test]
    fn scales_are_round() {
        assert_eq!([0.3, 7.0, 62.5, 100.0, 230.0].map(round_step), [0.5, 10.0, 100.0, 100.0, 500.0]);
    }
}
