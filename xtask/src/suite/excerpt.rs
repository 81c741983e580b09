//! What a part said about its failures, to be shown once more at the end: continuous integration may show nothing else.

use std::collections::VecDeque;

use super::count::Count;

/// Lines before a line that counts a failure, and behind it.
const BEFORE: usize = 60;
const BEHIND: usize = 10;
/// Lines of one part at most: hundreds of failures have one reason.
const MAX: usize = 200;

/// The lines of one part's output that are near its failures.
#[derive(Debug, Default)]
pub(super) struct Excerpt {
    kept: Vec<String>,
    last: VecDeque<String>,
    behind: usize,
}

impl Excerpt {
    /// Takes one line in, and what it counted.
    pub(super) fn add(&mut self, line: &str, count: Count) {
        if count.failed > 0 {
            self.kept.extend(self.last.drain(..));
            self.behind = BEHIND + 1;
        }
        if self.behind > 0 {
            self.behind -= 1;
            self.kept.push(line.to_owned());
            return;
        }
        if self.last.len() == BEFORE {
            self.last.pop_front();
        }
        self.last.push_back(line.to_owned());
    }

    /// The lines near failures, or the last ones where no line counted a failure.
    pub(super) fn lines(self) -> Vec<String> {
        let mut lines = if self.kept.is_empty() { self.last.into() } else { self.kept };
        lines.truncate(MAX);
        lines
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn excerpt(lines: impl IntoIterator<Item = String>) -> Vec<String> {
        let mut excerpt = Excerpt::default();
        for line in lines {
            excerpt.add(&line, Count::of_line(&line));
        }
        excerpt.lines()
    }

    #[test]
    fn lines_near_failures_are_kept_and_no_others() {
        let lines = (0..1000).map(|n| if n == 500 { "not ok 500 - it".into() } else { format!("ok {n} - it") });
        let kept = excerpt(lines);
        assert_eq!(kept.len(), BEFORE + 1 + BEHIND);
        assert_eq!((kept[0].as_str(), kept[BEFORE].as_str()), ("ok 440 - it", "not ok 500 - it"));
    }

    #[test]
    fn a_part_that_names_no_failure_is_shown_by_its_last_lines() {
        let kept = excerpt((0..1000).map(|n| format!("line {n}")));
        assert_eq!((kept.len(), kept[BEFORE - 1].as_str()), (BEFORE, "line 999"));
    }

    #[test]
    fn many_failures_are_cut_short() {
        assert_eq!(excerpt((0..1000).map(|n| format!("not ok {n} - it"))).len(), MAX);
    }
}
