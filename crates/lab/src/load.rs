//! What a host gives a drive.

use serde::Deserialize;

/// A rate that lasts.
#[derive(Debug, Clone, Copy, PartialEq, Deserialize)]
pub struct RateStep {
    /// Seconds since the beginning.
    pub from_s: f64,
    /// Until when.
    pub to_s: f64,
    /// What the host offers, MB/s.
    pub mb_per_s: f64,
}

/// What a host does.
#[derive(Debug, Clone, PartialEq)]
pub enum HostLoad {
    /// It offers these rates, one after the other; what the drive does not take is not offered again.
    Trace(Vec<RateStep>),
    /// It hands over files, one after the other.
    Files {
        /// How many.
        count: u64,
        /// MB of each.
        mb: f64,
        /// As fast as that, if the drive takes it.
        mb_per_s: f64,
        /// Whether it waits behind each file until the file is on the tape.
        syncs: bool,
    },
}

/// Why something is no load.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum LoadError {
    /// A line is no step.
    #[error("line {line} of the trace cannot be read: {reason}. Its columns are from_s,to_s,mb_per_s")]
    Unreadable {
        /// Which line, from 1.
        line: u64,
        /// What is wrong.
        reason: String,
    },
    /// A step does not begin where the one before it ends.
    #[error("the trace has a gap: line {line} begins at {from} s, and what stands before it ends at {end} s")]
    Gap {
        /// Which line, from 1.
        line: u64,
        /// Where it begins.
        from: String,
        /// Where it should.
        end: String,
    },
    /// A step of no length, or of a rate that cannot be.
    #[error("line {line} of the trace cannot be: {reason}")]
    Step {
        /// Which line, from 1.
        line: u64,
        /// What is wrong.
        reason: &'static str,
    },
    /// There is no step.
    #[error("the trace is empty")]
    Empty,
    /// Files that cannot be.
    #[error("{what} must be more than 0")]
    Files {
        /// What.
        what: &'static str,
    },
}

impl HostLoad {
    /// Reads a trace: CSV with the columns `from_s,to_s,mb_per_s`, without gaps, from 0 on.
    ///
    /// # Errors
    /// [`LoadError::Unreadable`] for a line that is no row; [`LoadError::Gap`] and [`LoadError::Step`] for a row that
    /// does not follow the one before, or cannot be; [`LoadError::Empty`].
    pub fn from_csv(text: &str) -> Result<Self, LoadError> {
        let mut reader =
            csv::ReaderBuilder::new().trim(csv::Trim::All).comment(Some(b'#')).from_reader(text.as_bytes());
        let mut steps: Vec<RateStep> = Vec::new();
        for row in reader.deserialize() {
            let line_of = |position: Option<&csv::Position>| position.map_or(0, csv::Position::line);
            let step: RateStep = row.map_err(|error: csv::Error| LoadError::Unreadable {
                line: line_of(error.position()),
                reason: error.to_string(),
            })?;
            // The header is the first line.
            let line = steps.len() as u64 + 2;
            let end = steps.last().map_or(0.0, |step| step.to_s);
            if step.from_s != end {
                return Err(LoadError::Gap { line, from: step.from_s.to_string(), end: end.to_string() });
            }
            if !step.to_s.is_finite() || step.to_s <= step.from_s {
                return Err(LoadError::Step { line, reason: "it ends before it begins, or never" });
            }
            if !step.mb_per_s.is_finite() || step.mb_per_s < 0.0 {
                return Err(LoadError::Step { line, reason: "its rate is not 0 or more" });
            }
            steps.push(step);
        }
        if steps.is_empty() { Err(LoadError::Empty) } else { Ok(Self::Trace(steps)) }
    }

    /// Refuses files that cannot be.
    pub(crate) fn check(&self) -> Result<(), LoadError> {
        let Self::Files { count, mb, mb_per_s, .. } = self else { return Ok(()) };
        let positive = |value: f64| value.is_finite() && value > 0.0;
        if *count == 0 {
            return Err(LoadError::Files { what: "the number of files" });
        }
        if !positive(*mb) {
            return Err(LoadError::Files { what: "the length of a file" });
        }
        if !positive(*mb_per_s) {
            return Err(LoadError::Files { what: "the host's rate" });
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests fail by panicking")]
    use super::*;

    #[test]
    fn a_trace_is_read() {
        let load = HostLoad::from_csv("from_s,to_s,mb_per_s\n# warm up\n0, 60, 90\n60,120,270\n").unwrap();
        let step = |from_s, to_s, mb_per_s| RateStep { from_s, to_s, mb_per_s };
        assert_eq!(load, HostLoad::Trace(vec![step(0.0, 60.0, 90.0), step(60.0, 120.0, 270.0)]));
    }

    #[test]
    fn a_trace_that_cannot_be_is_refused_with_its_line() {
        let told = |rows: &str| HostLoad::from_csv(&format!("from_s,to_s,mb_per_s\n{rows}")).unwrap_err().to_string();
        assert!(told("0,60,90\n61,70,90\n").contains("line 3 begins at 61 s, and what stands before it ends at 60 s"));
        assert!(told("0,60,fast\n").contains("line 2"), "{}", told("0,60,fast\n"));
        assert!(told("0,0,90\n").contains("ends before it begins"));
        assert!(told("0,60,-1\n").contains("rate"));
        assert_eq!(told(""), "the trace is empty");
        assert!(HostLoad::from_csv("seconds,rate\n0,1\n").unwrap_err().to_string().contains("from_s,to_s,mb_per_s"));
    }
}
