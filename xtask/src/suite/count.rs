//! How many checks passed, failed and were skipped, as their output says.

use std::ops::AddAssign;
use std::process::ExitCode;

/// How many checks passed, failed, and were not made because something is missing here.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(super) struct Count {
    pub(super) passed: u64,
    pub(super) failed: u64,
    pub(super) skipped: u64,
}

impl AddAssign for Count {
    fn add_assign(&mut self, other: Self) {
        self.passed += other.passed;
        self.failed += other.failed;
        self.skipped += other.skipped;
    }
}

impl Count {
    pub(super) fn total(self) -> u64 {
        self.passed + self.failed + self.skipped
    }

    /// Prints the sum. What was skipped fails nothing, and is never silent.
    pub(super) fn summary(self) -> ExitCode {
        println!("{} passed, {} failed, {} skipped", self.passed, self.failed, self.skipped);
        if self.failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
    }

    /// What one line of output says of tests, if anything.
    pub(super) fn of_line(line: &str) -> Self {
        if let Some(result) = line.strip_prefix("test result: ") {
            let before = |word: &str| {
                let end = result.find(word)?;
                result[..end].trim_end().rsplit(' ').next()?.parse().ok()
            };
            let of = |word| before(word).unwrap_or(0);
            return Self { passed: of("passed"), failed: of("failed"), skipped: of("ignored") };
        }
        if line.contains("# SKIP ") || line.starts_with("SKIP ") {
            return Self { skipped: 1, ..Self::default() };
        }
        match line.split_once(' ') {
            Some(("ok", _)) => Self { passed: 1, ..Self::default() },
            Some(("not", rest)) if rest.starts_with("ok ") => Self { failed: 1, ..Self::default() },
            _ => Self::default(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_output_are_counted() {
        let of = |passed, failed, skipped| Count { passed, failed, skipped };
        let line = "test result: FAILED. 12 passed; 3 failed; 1 ignored; 0 measured; 0 filtered out; finished in 0.01s";
        assert_eq!(Count::of_line(line), of(12, 3, 1));
        assert_eq!(Count::of_line("ok 3 - every byte flipped"), of(1, 0, 0));
        assert_eq!(Count::of_line("not ok 4 - xattrs"), of(0, 1, 0));
        assert_eq!(Count::of_line("ok 1 - advice # SKIP no such kernel"), of(0, 0, 1));
        assert_eq!(Count::of_line("SKIP clocks.sh: no faketime"), of(0, 0, 1));
        for other in ["", "okay", "not okay", "test format::label ... ok", "ok"] {
            assert_eq!(Count::of_line(other), Count::default(), "{other}");
        }
    }
}
