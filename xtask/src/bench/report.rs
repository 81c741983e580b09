//! Writes what was measured into docs/PERFORMANCE.md, between its two markers; what people wrote around them stays.

use std::fmt::Write;
use std::path::Path;

use anyhow::{Context, Result};

use super::contest::{Contestant, Data, Results, Sizes, Work};
use super::contestants::all_contestants;
use super::floors::{self, Verdict};
use super::measure::Usage;
use crate::amount::{grouped, shown_bytes, shown_time};

/// What a measurement writes on the page stands between two markers of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Markers {
    begin: &'static str,
    end: &'static str,
}

/// Those of the main job.
pub(super) const MAIN: Markers =
    Markers { begin: "<!-- bench: begin; ./x bench writes what follows -->", end: "<!-- bench: end -->" };
/// Those of tape drives.
pub(super) const TAPE: Markers = Markers {
    begin: "<!-- bench tape: begin; ./x bench tape writes what follows -->",
    end: "<!-- bench tape: end -->",
};
/// Those of the key-management cluster.
pub(super) const KEYS: Markers = Markers {
    begin: "<!-- bench keys: begin; ./x bench keys writes what follows -->",
    end: "<!-- bench keys: end -->",
};

const TABLES: [(&str, &str); 6] = [
    ("small-null/", "Small files to nowhere, warm"),
    ("small-cold/", "Small files to nowhere, cold"),
    ("small-volume/", "Small files to a volume"),
    ("typical-volume/", "Typical files to a volume"),
    ("restore/", "Restore of everything"),
    ("one-file/", "One 8 KB file of the small set"),
];

/// What a report is made of.
#[derive(Debug)]
pub(super) struct Report<'a> {
    pub(super) results: &'a Results,
    pub(super) sizes: Sizes,
    pub(super) version_bytes: Option<f64>,
    pub(super) machine: Vec<String>,
    pub(super) date: String,
    pub(super) command: String,
}

impl Report<'_> {
    /// The whole section in Markdown.
    pub(super) fn render(&self) -> Result<String> {
        let mut text = String::new();
        writeln!(text, "Measured on {} by `{}`:", self.date, self.command)?;
        for line in &self.machine {
            writeln!(text, "- {line}")?;
        }
        for (kind, data) in [("small", Data::Small), ("typical", Data::Typical)] {
            let (files, bytes) = (grouped(self.sizes.files(data)), shown_bytes(self.sizes.bytes(data)));
            writeln!(text, "- {kind} files: {files}, {bytes}, 2:1 compressible")?;
        }
        writeln!(text, "\n### Floors\n\n| what | floor | measured | |\n|---|---|---|---|")?;
        for line in floors::judge(self.results, self.sizes, self.version_bytes) {
            let verdict = match line.verdict {
                Verdict::Pass => "pass",
                Verdict::Miss => "**miss**",
                Verdict::Unmeasured => "not measured",
            };
            writeln!(text, "| {} | {} | {} | {verdict} |", line.what, line.floor, line.measured)?;
        }
        for (prefix, title) in TABLES {
            self.table(&mut text, prefix, title)?;
        }
        self.commands(&mut text)?;
        Ok(text)
    }

    fn table(&self, text: &mut String, prefix: &str, title: &str) -> Result<()> {
        let ran = |contestant: &&Contestant| {
            contestant.id.starts_with(prefix)
                && (!self.results.runs(contestant.id).is_empty() || self.results.failure(contestant.id).is_some())
        };
        let contestants: Vec<&Contestant> = all_contestants().filter(ran).collect();
        if contestants.is_empty() {
            return Ok(());
        }
        writeln!(text, "\n### {title}\n")?;
        writeln!(text, "| | wall (median) | spread | MB/s | files/s | processor | peak memory | runs |")?;
        writeln!(text, "|---|--:|--:|--:|--:|--:|--:|--:|")?;
        for contestant in contestants {
            match (self.results.median(contestant.id), self.results.failure(contestant.id)) {
                (Some(median), _) => self.row(text, contestant, median)?,
                (None, Some(failure)) => {
                    let line = failure.lines().next().unwrap_or_default().replace('|', "\\|");
                    writeln!(text, "| {} | failed: {line} | | | | | | |", contestant.name)?;
                }
                (None, None) => {}
            }
        }
        Ok(())
    }

    fn row(&self, text: &mut String, contestant: &Contestant, median: Usage) -> Result<()> {
        let seconds = median.wall.as_secs_f64();
        let runs = self.results.runs(contestant.id);
        let spread = match (runs.iter().map(|run| run.wall).min(), runs.iter().map(|run| run.wall).max()) {
            (Some(least), Some(most)) if runs.len() > 1 => format!("{}-{}", shown_time(least), shown_time(most)),
            _ => String::new(),
        };
        let (rate, files) = if contestant.id.starts_with("one-file/") {
            (String::new(), String::new())
        } else {
            let rate = self.sizes.bytes(contestant.data) as f64 / 1e6 / seconds;
            let files = self.sizes.files(contestant.data) as f64 / seconds;
            (format!("{rate:.0}"), grouped(files as u64))
        };
        let (wall, processor, peak) =
            (shown_time(median.wall), shown_time(median.processor), shown_bytes(median.peak_bytes));
        writeln!(
            text,
            "| {} | {wall} | {spread} | {rate} | {files} | {processor} | {peak} | {} |",
            contestant.name,
            runs.len()
        )?;
        Ok(())
    }

    fn commands(&self, text: &mut String) -> Result<()> {
        writeln!(text, "\n### Commands\n\n```")?;
        for contestant in all_contestants().filter(|contestant| !self.results.runs(contestant.id).is_empty()) {
            let line = match contestant.work {
                Work::Line(line) => line,
                Work::Bacula => "bconsole: run job=Bench (no compression, no encryption, MD5, file storage, SQLite)",
            };
            writeln!(text, "{:<33} {line}", contestant.id)?;
        }
        writeln!(text, "```")?;
        Ok(())
    }
}

/// Puts a section between its markers of a page; makes the page where there is none.
pub(super) fn write(page: &Path, markers: Markers, section: &str) -> Result<()> {
    let Markers { begin, end } = markers;
    let old = match std::fs::read_to_string(page) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => format!("# Performance\n\n{begin}\n{end}\n"),
        old => old.with_context(|| format!("read {}", page.display()))?,
    };
    let new = between_markers(&old, markers, section)
        .with_context(|| format!("{} lost its markers: {begin} and {end}", page.display()))?;
    std::fs::write(page, new).with_context(|| format!("write {}", page.display()))
}

fn between_markers(page: &str, Markers { begin, end }: Markers, section: &str) -> Option<String> {
    let (before, rest) = page.split_once(begin)?;
    let (_, after) = rest.split_once(end)?;
    Some(format!("{before}{begin}\n\n{}\n{end}{after}", section.trim_end_matches('\n').to_owned() + "\n"))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests fail by panicking")]
    use std::time::Duration;

    use super::*;

    #[test]
    fn only_what_stands_between_the_markers_is_replaced() {
        let Markers { begin, end } = MAIN;
        let other = format!("{}\nother\n{}", TAPE.begin, TAPE.end);
        let page = format!("# Performance\nby hand\n{begin}\nold\n{end}\nprofile\n{other}\n");
        let new = between_markers(&page, MAIN, "new\n").unwrap();
        assert_eq!(new, format!("# Performance\nby hand\n{begin}\n\nnew\n\n{end}\nprofile\n{other}\n"));
        assert_eq!(between_markers(&new, MAIN, "new").unwrap(), new, "writing it again changes nothing");
        assert_eq!(between_markers("no markers", MAIN, "new"), None);
    }

    #[test]
    fn a_report_shows_medians_and_floors() {
        let mut results = Results::default();
        for wall in [2, 1, 3] {
            let usage =
                Usage { wall: Duration::from_secs(wall), processor: Duration::from_secs(1), peak_bytes: 10_000_000 };
            results.record("small-null/tar", usage);
        }
        let sizes = Sizes { small_files: 1000, small_bytes: 10_000_000, typical_files: 1, typical_bytes: 1 };
        let machine = vec!["2 cores".to_owned()];
        let (date, command) = ("2026-11-21".to_owned(), "./x bench".to_owned());
        let report = Report { results: &results, sizes, version_bytes: None, machine, date, command };
        let text = report.render().unwrap();
        assert!(text.contains("| GNU tar | 2.00 s | 1.00 s-3.00 s | 5 | 500 | 1.00 s | 10.0 MB | 3 |"), "{text}");
        assert!(text.contains("| small files to null, warm | 3 × GNU tar | - | not measured |"), "{text}");
    }
}
