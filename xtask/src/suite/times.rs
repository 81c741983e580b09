//! How long each part of the tests took, beside what it may take.
//!
//! All of them have half an hour on two quiet processors, the build included. A part that is over its budget fails
//! nothing, since a machine may be busy: it is named, so that whoever made it slower sees it the same day.

use std::time::Duration;

use crate::amount::shown_time;

/// All of `./x test`, from a fresh clone.
const ALL: Duration = Duration::from_secs(30 * 60);
const ALL_NAME: &str = "all of it";

/// What a part may take that has no budget of its own; of those above it each says why.
const BUDGET: u64 = 20;
/// What all those together may take that have none.
const OTHERS: u64 = 540;
const OTHERS_NAME: &str = "the others together";

/// Seconds that parts may take, with others beside them in the other lanes, and why they need more than 20.
const BUDGETS: &[(&str, u64, &str)] = &[
    ("build", 430, "a fresh clone: every dependency"),
    ("advice of lab", 105, "measures for seconds, and tries anew what a busy machine spoils"),
    ("advice.sh", 95, "measures for seconds, and tries anew what a busy machine spoils"),
    ("capstan_lab of lab", 35, "measures drives and networks"),
    ("cell_clients.py", 62, "6 rounds of processes that are killed and connections that break"),
    ("cell_clients.py on PostgreSQL", 35, "4 rounds of processes that are killed and connections that break"),
    ("cell_mover.py", 590, "90 rounds of processes that are killed, wrong clocks and full disks; and two libraries"),
    ("cell_tiers.py", 115, "14 rounds of backups that go through tiers, and a restore of each of them"),
    ("damage_sweep.py", 25, "375 damages, two commands each"),
    ("faults of keyd", 110, "60 rounds of failing processes"),
    ("it of cli: cli", 60, "a thousand commands"),
    ("it of cli: tape_faults", 60, "100 rounds of failing drives"),
    ("it of director: damage", 30, "2,000 damages"),
    ("it of keyd: kmip", 70, "a node that is cut off, and 10,000 messages"),
    ("it of keyd: watched", 25, "a node that is cut off for longer than a policy allows"),
    ("it of keyd: recovery", 55, "nodes, and an etcd that was put back, come back by themselves"),
    ("it of server", 52, "a server and clients that look for it after its end, and restores that are stopped"),
    ("jobs_sweep.py", 50, "40 rounds of several commands"),
    ("jobs_sweep.py on PostgreSQL", 28, "20 rounds of several commands"),
    ("key_days.py", 40, "every command of docs/KEYS.md, at a terminal"),
    ("reader.sh", 70, "a reader in Python decrypts"),
    ("roundtrip.sh", 80, "whole trees on a disk, compared by programs that are not ours"),
    ("server_sweep.py", 75, "25 servers, each of which works for a while"),
    ("server_sweep.py on PostgreSQL", 60, "12 servers, each of which works for a while"),
    ("tape_guest.sh", 170, "two libraries in guests"),
    ("tape_hardware.sh", 55, "in a guest"),
    ("tape_job.sh", 70, "in a guest, over sg and over st"),
    ("tape_peers.sh", 130, "Bacula and Amanda in guests"),
    ("tape_wire.sh", 70, "in a guest"),
];

/// What is faster is not listed by itself.
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

    /// The slowest first, each with why it is slow, and with its budget where it is over that; then the others, and
    /// what all of it took.
    pub(super) fn table(&self, all: Duration) -> String {
        let others = self.0.iter().filter(|(part, _)| of(part).is_none()).map(|(_, took)| *took).sum();
        let mut parts: Vec<_> = self.0.iter().filter(|(_, took)| *took >= LISTED_FROM).collect();
        parts.sort_by_key(|(_, took)| std::cmp::Reverse(*took));
        let parts = parts.into_iter().map(|(part, took)| (part.as_str(), *took, budget(part)));
        let sums = [(OTHERS_NAME, others, Duration::from_secs(OTHERS)), (ALL_NAME, all, ALL)];
        let lines = parts.chain(sums).map(|(part, took, budget)| {
            let why = of(part).map_or(String::new(), |(_, why)| format!(" ({why})"));
            let over =
                if took > budget { format!("  over its budget of {}", shown_time(budget)) } else { String::new() };
            format!("{:>10}  {part}{why}{over}\n", shown_time(took))
        });
        lines.collect()
    }
}

/// What a part may take.
pub(super) fn budget(part: &str) -> Duration {
    Duration::from_secs(of(part).map_or(BUDGET, |(seconds, _)| seconds))
}

/// The budget of a part, and why it is that large, if it has one of its own.
fn of(part: &str) -> Option<(u64, &'static str)> {
    BUDGETS.iter().find(|(name, ..)| *name == part).map(|(_, seconds, why)| (*seconds, *why))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What has both processors: the build, and what measures the machine.
    const ALONE: &[&str] = &["build", "clippy", "tidy", "advice of lab", "advice.sh"];
    /// What has a lane of its own, and one processor for half of its time.
    const WAITS: &[&str] =
        &["cell_mover.py", "faults of keyd", "it of keyd: kmip", "it of keyd: recovery", "it of keyd: watched"];

    #[test]
    fn the_budgets_fit_into_half_an_hour_on_two_processors() {
        let sum = |is_one: &dyn Fn(&str) -> bool| -> u64 {
            BUDGETS.iter().filter(|(name, ..)| is_one(name)).map(|(_, seconds, _)| seconds).sum()
        };
        let (alone, waits) = (|name: &str| ALONE.contains(&name), |name: &str| WAITS.contains(&name));
        let beside = (sum(&|name| !alone(name) && !waits(name)) + OTHERS + sum(&waits) / 2) / 2;
        let all = sum(&alone) + beside.max(sum(&waits));
        assert!(all <= ALL.as_secs(), "{all} s");
    }

    #[test]
    fn every_budget_is_of_its_own_and_says_why() {
        for (at, (name, seconds, why)) in BUDGETS.iter().enumerate() {
            assert!(BUDGETS[at + 1..].iter().all(|(other, ..)| other != name), "{name} has two budgets");
            assert!(*seconds > BUDGET && !why.is_empty(), "{name}");
        }
    }

    #[test]
    fn what_is_over_its_budget_is_named() {
        let mut times = Times::default();
        times.add("build", budget("build"));
        times.add("a", Duration::from_secs(BUDGET + 1));
        times.add("b", Duration::from_secs(6));
        times.add("c", Duration::from_secs(1));
        let table = times.table(ALL + Duration::from_secs(1));
        let lines: Vec<_> = table.lines().map(str::trim).collect();
        let [build, a, b, others, all] = lines.as_slice() else { panic!("{table}") };
        assert!(build.contains("s  build (") && build.ends_with(')'), "{table}");
        assert_eq!((*a, *b), ("21.00 s  a  over its budget of 20.00 s", "6.00 s  b"));
        assert_eq!((*others, *all), ("28.00 s  the others together", "1801 s  all of it  over its budget of 1800 s"));
    }
}
