//! How often something may happen: what is noted of it, and who is heard.
//!
//! Whoever is refused may ask again as often as they like, and each entry of the audit log is flushed. So refusals are
//! noted so many times a minute, and counted beyond. Who may try something is limited by where they come from
//! ([`AddressRateLimiter`]).

mod addresses;

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

pub(crate) use addresses::place;
pub use addresses::{AddressRateLimiter, Burst};

const MINUTE: Duration = Duration::from_secs(60);

/// What happens so many times a minute, and is counted beyond.
#[derive(Debug)]
pub struct RateLimiter {
    per_minute_max: u32,
    minute: Option<Instant>,
    taken: u32,
    left_out: u64,
}

impl RateLimiter {
    /// So many times a minute.
    pub fn new(per_minute_max: u32) -> Self {
        Self { per_minute_max, minute: None, taken: 0, left_out: 0 }
    }

    /// Whether this one happens, and how many before it did not.
    pub fn next(&mut self, now: Instant) -> Option<u64> {
        if self.minute.is_none_or(|minute| now.duration_since(minute) >= MINUTE) {
            (self.minute, self.taken) = (Some(now), 0);
        }
        if self.taken == self.per_minute_max {
            self.left_out += 1;
            return None;
        }
        self.taken += 1;
        Some(std::mem::take(&mut self.left_out))
    }
}

/// A limit for each key by itself, so that one that is noisy hides no other. Keys are never forgotten: there must be a
/// bounded number of them.
#[derive(Debug)]
pub struct KeyedRateLimiter<K> {
    per_minute_max: u32,
    known: Mutex<HashMap<K, RateLimiter>>,
}

impl<K: Eq + Hash + Clone> KeyedRateLimiter<K> {
    /// So many times a minute for each.
    pub fn new(per_minute_max: u32) -> Self {
        Self { per_minute_max, known: Mutex::default() }
    }

    /// Whether this one happens, and how many of this key before it did not.
    pub fn next(&self, key: &K, now: Instant) -> Option<u64> {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        known.entry(key.clone()).or_insert_with(|| RateLimiter::new(self.per_minute_max)).next(now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whoever knew the name of an enrolment that was over filled the audit log of a node: each try was an entry.
    #[test]
    fn so_many_happen_in_a_minute_and_how_many_did_not_is_told() {
        let (mut limiter, began) = (RateLimiter::new(30), Instant::now());
        for _ in 0..30 {
            assert_eq!(limiter.next(began), Some(0));
        }
        for _ in 0..1000 {
            assert_eq!(limiter.next(began + MINUTE / 2), None);
        }
        assert_eq!(limiter.next(began + MINUTE), Some(1000));
        assert_eq!(limiter.next(began + MINUTE), Some(0), "it is said once");
    }

    #[test]
    fn a_key_that_is_noisy_hides_no_other() {
        let (limiter, now) = (KeyedRateLimiter::new(30), Instant::now());
        let taken = (0..100).filter(|_| limiter.next(&"noisy", now).is_some()).count();
        assert_eq!((taken, limiter.next(&"quiet", now)), (30, Some(0)));
    }
}
