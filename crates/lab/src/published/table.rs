//! Tables of what a paper has and what the model gives.

use std::fmt::Write;

/// A page that is being written.
pub(super) struct Page {
    pub(super) text: String,
}

/// A row of a table of comparisons.
pub(super) struct Compared {
    what: String,
    unit: &'static str,
    paper: f64,
    model: f64,
}

impl Page {
    /// A paragraph.
    pub(super) fn say(&mut self, words: &str) {
        self.text.push_str(words);
        self.text.push_str("\n\n");
    }

    /// A table of what the paper has and what the model gives.
    pub(super) fn compare(&mut self, rows: &[Compared]) {
        self.text.push_str("| what | paper | model | error |\n|---|--:|--:|--:|\n");
        for Compared { what, unit, paper, model } in rows {
            // Without a sign before nothing: -0 and 0 make 0.
            let error = (100.0 * (model / paper - 1.0)).round() + 0.0;
            // Small figures need what stands behind the point.
            let digits = usize::from(paper.abs() < 20.0);
            let shown = |value: f64| format!("{value:.digits$} {unit}").trim_end().to_owned();
            let _ = writeln!(self.text, "| {what} | {} | {} | {error:+.0} % |", shown(*paper), shown(*model));
        }
        self.text.push('\n');
    }
}

/// A row.
pub(super) fn compared(what: impl Into<String>, unit: &'static str, paper: f64, model: f64) -> Compared {
    Compared { what: what.into(), unit, paper, model }
}
