//! How long each part of the tests took, beside what it may take.
//!
//! All of them have half an hour on two quiet cores. A part that is over its budget fails nothing, since a machine may
//! be busy: it is named, so that whoever made it slower sees it the same day.

use std::time::Duration;

use crate::amount::shown_time;

/// What a part may take that has no budget of its own.
const BUDGET: Duration = Duration::from_secs(30);

/// Seconds that slow parts may take, on two quiet cores: steps, test programs of cargo, end-to-end tests.
const BUDGETS: &[(&str, u64)] = &[
    ("clippy", 240),
    ("unit and integration tests", 900),
    ("advice", 110),
    ("advice.sh", 150),
    ("crash_sweep.py", 200),
    ("jobs_sweep.py", 100),
    ("capstan_lab", 45),
    ("faults", 100),
    ("first_contact.sh", 120),
    ("it", 300),
    ("key_cluster.sh", 120),
    ("key_days.py", 150),
    ("reader.sh", 70),
    ("roundtrip.sh", 150),
    ("simulation", 45),
    ("tape_guest.sh", 500),
    ("tape_hardware.sh", 300),
    ("tape_job.sh", 300),
    ("tape_peers.sh", 300),
    ("tape_wire.sh", 90),
];

/// What is faster is not listed.
const LISTED_FROM: Duration = Duration::from_secs(5);

/// The parts that ran, in their order.
#[derive(Debug, Default)]
pub(super) struct Times(Vec<(String, Duration)>);

impl Times {
    pub(super) fn add(&mut self, part: &str, took: Duration) {
        self.0.push((part.to_owned(), took));
    }

    pub(super) fn append(&mut self, mut other: Self) {
        self.0.append(&mut other.0);
    }

    /// Takes in what a line of `cargo test` says of a test program; `program` is the one that runs.
    pub(super) fn of_cargo(&mut self, program: &mut String, line: &str) {
        let line = line.trim();
        if let Some((_, path)) = line.strip_prefix("Running ").and_then(|rest| rest.rsplit_once('/')) {
            // target/debug/deps/NAME-HASH)
            path.rsplit_once('-').map_or(path, |(name, _)| name).clone_into(program);
        } else if let Some(room) = line.strip_prefix("Doc-tests ") {
            *program = format!("doc tests of {room}");
        } else if let Some((_, took)) = line.rsplit_once("; finished in ")
            && let Ok(seconds) = took.trim_end_matches('s').parse()
        {
            self.add(program, Duration::from_secs_f64(seconds));
        }
    }

    /// The slowest first, each with its budget where it is over that.
    pub(super) fn table(&self) -> String {
        let mut parts: Vec<_> = self.0.iter().filter(|(_, took)| *took >= LISTED_FROM).collect();
        parts.sort_by_key(|(_, took)| std::cmp::Reverse(*took));
        let lines = parts.into_iter().map(|(part, took)| {
            let over = match budget(part) {
                budget if *took > budget => format!("  over its budget of {}", shown_time(budget)),
                _ => String::new(),
            };
            format!("{:>10}  {part}{over}\n", shown_time(*took))
        });
        lines.collect()
    }
}

fn budget(part: &str) -> Duration {
    BUDGETS.iter().find(|(name, _)| *name == part).map_or(BUDGET, |(_, seconds)| Duration::from_secs(*seconds))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn test_programs_are_timed_by_what_cargo_says() {
        let (mut times, mut program) = (Times::default(), String::new());
        for line in [
            "     Running unittests src/lib.rs (target/debug/deps/capstan_tape-0123)",
            "test result: ok. 1 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.25s",
            "     Running tests/faults/main.rs (target/debug/deps/faults-4567)",
            "test result: ok. 3 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out; finished in 259.80s",
            "   Doc-tests capstan_keys",
            "test result: ok. 1 passed; 0 failed; 1 ignored; 0 measured; 0 filtered out; finished in 6.00s",
        ] {
            times.of_cargo(&mut program, line);
        }
        let names: Vec<_> = times.0.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(names, ["capstan_tape", "faults", "doc tests of capstan_keys"]);
        let table = times.table();
        let lines: Vec<_> = table.lines().collect();
        assert_eq!(lines.len(), 2, "{table}");
        assert!(lines[0].contains("faults  over its budget of"), "{table}");
        assert!(lines[1].ends_with("doc tests of capstan_keys"), "{table}");
    }

    #[test]
    fn every_budget_is_of_its_own() {
        assert!(
            BUDGETS.iter().enumerate().all(|(at, (name, _))| BUDGETS[at + 1..].iter().all(|(other, _)| other != name))
        );
    }
}
