//! Refusals are noted sparingly: whoever is refused may ask again as often as they like, and each entry of the audit
//! log is flushed.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use capstan_keys::Name;

/// How many are noted in a minute.
const NOTED_MAX: u32 = 30;
const MINUTE: Duration = Duration::from_secs(60);

/// What is noted so many times a minute, and counted beyond.
#[derive(Default)]
pub(super) struct Sparing {
    minute: Option<Instant>,
    noted: u32,
    left_out: u64,
}

impl Sparing {
    /// Whether this one is noted, and how many before it were not.
    pub(super) fn next(&mut self, now: Instant) -> Option<u64> {
        if self.minute.is_none_or(|minute| now.duration_since(minute) >= MINUTE) {
            (self.minute, self.noted) = (Some(now), 0);
        }
        if self.noted == NOTED_MAX {
            self.left_out += 1;
            return None;
        }
        self.noted += 1;
        Some(std::mem::take(&mut self.left_out))
    }
}

/// Refusals of each agent by itself, so that one that is noisy hides no other. There are no more of them than
/// certificates.
#[derive(Default)]
pub(super) struct Refusals(Mutex<HashMap<Name, Sparing>>);

impl Refusals {
    /// Whether this one is noted, and how many of this agent's before it were not.
    pub(super) fn next(&self, agent: &Name, now: Instant) -> Option<u64> {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        known.entry(agent.clone()).or_default().next(now)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests fail by panicking")]
mod tests {
    use super::*;

    /// Whoever knew the name of an enrolment that was over filled the audit log of a node: each try was an entry.
    #[test]
    fn so_many_are_noted_in_a_minute_and_how_many_were_not() {
        let (mut sparing, began) = (Sparing::default(), Instant::now());
        for _ in 0..NOTED_MAX {
            assert_eq!(sparing.next(began), Some(0));
        }
        for _ in 0..1000 {
            assert_eq!(sparing.next(began + MINUTE / 2), None);
        }
        assert_eq!(sparing.next(began + MINUTE), Some(1000));
        assert_eq!(sparing.next(began + MINUTE), Some(0), "it is said once");
    }

    #[test]
    fn an_agent_that_is_noisy_hides_no_other() {
        let (refusals, now) = (Refusals::default(), Instant::now());
        let [noisy, quiet]: [Name; 2] = ["noisy", "quiet"].map(|name| name.parse().unwrap());
        let noted = (0..100).filter(|_| refusals.next(&noisy, now).is_some()).count();
        assert_eq!((noted, refusals.next(&quiet, now)), (NOTED_MAX as usize, Some(0)));
    }
}
