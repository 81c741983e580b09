//! Runs units side by side: two lanes take them from one queue, the longest first. A third one has the units that
//! mostly wait.
//!
//! Two, because continuous integration has two processors. A unit's output is kept until it has ended, and then shown
//! whole, so that no two are mixed.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;

use anyhow::Result;

use super::step::Steps;
use super::times::budget;
use super::units::{Place, Unit};

/// What is still to be run, the longest first.
struct Queue(VecDeque<Unit>);

impl Queue {
    fn new(mut units: Vec<Unit>) -> Self {
        units.sort_by_key(|unit| std::cmp::Reverse(budget(&unit.name)));
        Self(units.into())
    }

    /// The longest of a kind, or, where none is left, the longest.
    fn take(&mut self, preferred: Place) -> Option<Unit> {
        let at = self.0.iter().position(|unit| unit.place == preferred);
        self.0.remove(at.unwrap_or(0))
    }
}

/// Runs all units, those that measure the machine before the lanes begin.
pub(super) fn run(steps: &mut Steps<'_>, units: Vec<Unit>) -> Result<()> {
    let (alone, beside) = units.into_iter().partition(|unit| unit.place == Place::Alone);
    let Queue(alone) = Queue::new(alone);
    for mut unit in alone {
        steps.run_unit(&mut unit)?;
    }
    let (waits, beside) = beside.into_iter().partition(|unit| unit.place == Place::Waits);
    let [waits, beside] = [waits, beside].map(|units| Mutex::new(Queue::new(units)));
    let steps = Mutex::new(steps);
    let lane = |preferred| -> Result<()> {
        let queue = if preferred == Place::Waits { &waits } else { &beside };
        loop {
            let Some(mut unit) = locked(queue).take(preferred) else { return Ok(()) };
            let mut said = Vec::new();
            let mut own = Steps::new(&mut said);
            own.run_unit(&mut unit)?;
            let outcome = own.outcome;
            locked(&steps).append(&said, outcome)?;
        }
    };
    thread::scope(|scope| {
        let lanes = [Place::Guests, Place::Anywhere, Place::Waits];
        let lanes = lanes.map(|preferred| scope.spawn(move || lane(preferred)));
        let ended = lanes.map(|lane| lane.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)));
        ended.into_iter().collect()
    })
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests fail by panicking")]
    use std::process::Command;

    use super::super::count::Count;
    use super::*;

    fn unit(name: &str, place: Place, script: &str) -> Unit {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        Unit { name: name.to_owned(), command, place, tests: None, in_memory: false }
    }

    #[test]
    fn a_lane_takes_the_longest_of_its_own_and_then_helps_the_other() {
        let names = [("key_days.py", Place::Anywhere), ("a", Place::Anywhere), ("tape_job.sh", Place::Guests)];
        let mut queue = Queue::new(names.map(|(name, place)| unit(name, place, "true")).into());
        let mut take = |preferred| queue.take(preferred).map(|unit| unit.name);
        assert_eq!(take(Place::Guests).unwrap(), "tape_job.sh");
        assert_eq!(take(Place::Guests).unwrap(), "key_days.py");
        assert_eq!(take(Place::Anywhere).unwrap(), "a");
        assert_eq!(take(Place::Anywhere), None);
    }

    #[test]
    fn each_unit_runs_once_and_its_output_stays_together() {
        let script = "echo ok 1 - a; sleep 0.05; echo ok 2 - b";
        let mut units: Vec<_> = (0..6).map(|n| unit(&format!("unit {n}"), Place::Anywhere, script)).collect();
        units.push(unit("measured", Place::Alone, "echo ok 1 - c"));
        units.push(unit("waits", Place::Waits, "echo ok 1 - d"));
        let mut said = Vec::new();
        let mut steps = Steps::new(&mut said);
        run(&mut steps, units).unwrap();
        assert_eq!(steps.outcome.count, Count { passed: 14, ..Count::default() });
        let said = String::from_utf8(said).unwrap();
        assert!(said.starts_with("\n==> measured\n"), "{said}");
        for n in 0..6 {
            let whole = format!("==> unit {n}\nok 1 - a\nok 2 - b\n==> unit {n}: 2 passed, 0 failed");
            assert_eq!(said.matches(&whole).count(), 1, "{said}");
        }
    }

    #[test]
    fn a_unit_that_counts_fewer_tests_than_it_has_has_failed() {
        let mut short = unit("short", Place::Anywhere, "echo ok 1 - a");
        short.tests = Some(2);
        let mut said = Vec::new();
        let mut steps = Steps::new(&mut said);
        run(&mut steps, vec![short]).unwrap();
        assert_eq!(steps.outcome.count, Count { passed: 1, failed: 1, skipped: 0 });
    }
}
