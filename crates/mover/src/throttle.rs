//! How fast a job may take what its sources have: so many bytes a second over all its connections, as it is now.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// What a rate is asked of: bytes a second now; none for no bound.
type RateNow = Box<dyn Fn() -> Option<u64> + Send + Sync>;

/// Longest that anybody sleeps before it looks whether to stop.
pub(crate) const SLEEPS_MAX: Duration = Duration::from_millis(100);

/// A bound for a job.
pub struct Throttle {
    rate: RateNow,
    state: Mutex<State>,
}

struct State {
    /// Up to when bytes were paid.
    at: Instant,
    /// Bytes that were taken and are not paid yet.
    owed: f64,
}

impl Throttle {
    /// Takes no more than `rate` says; it is asked at each block.
    pub fn new(rate: impl Fn() -> Option<u64> + Send + Sync + 'static) -> Self {
        Self { rate: Box::new(rate), state: Mutex::new(State { at: Instant::now(), owed: 0.0 }) }
    }

    /// Bytes a second now; none for no bound.
    pub(crate) fn rate(&self) -> Option<u64> {
        (self.rate)()
    }

    /// Counts bytes that were taken.
    pub(crate) fn took(&self, bytes: u64) {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).owed += bytes as f64;
    }

    /// How long to wait before more is taken, if at all.
    pub(crate) fn wait(&self) -> Option<Duration> {
        self.wait_at(Instant::now())
    }

    fn wait_at(&self, now: Instant) -> Option<Duration> {
        let rate = self.rate();
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let passed = now.saturating_duration_since(state.at);
        state.at = now;
        let Some(rate) = rate else {
            state.owed = 0.0;
            return None;
        };
        state.owed = (state.owed - passed.as_secs_f64() * rate as f64).max(0.0);
        (state.owed > 0.0).then(|| Duration::from_secs_f64(state.owed / rate.max(1) as f64))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU64, Ordering};

    use super::*;

    #[test]
    fn bytes_are_paid_at_the_rate_of_the_moment() {
        let rate = Arc::new(AtomicU64::new(1_000));
        let now = Arc::clone(&rate);
        let throttle = Throttle::new(move || Some(now.load(Ordering::Relaxed)).filter(|rate| *rate > 0));
        let began = Instant::now();
        let at = |ms| began + Duration::from_millis(ms);
        assert_eq!(throttle.wait_at(at(5_000)), None, "what was not used before is not saved");
        throttle.took(3_000);
        assert_eq!(throttle.wait_at(at(5_000)), Some(Duration::from_secs(3)));
        assert_eq!(throttle.wait_at(at(6_000)), Some(Duration::from_secs(2)));
        rate.store(4_000, Ordering::Relaxed);
        assert_eq!(throttle.wait_at(at(6_250)), Some(Duration::from_millis(250)));
        rate.store(0, Ordering::Relaxed);
        assert_eq!(throttle.wait_at(at(6_250)), None, "there is no bound any more");
    }
}
