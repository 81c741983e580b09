//! How fast a job may take what its sources have, or a client gets what is read for it: so many bytes a second over all
//! its connections, as it is now.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// What a rate is asked of: bytes a second now; none for no bound.
type RateNow = dyn Fn() -> Option<u64> + Send + Sync;

/// Bytes a second, which may be others at any time; without a bound, unless there is one.
#[derive(Clone, Default)]
pub struct RateLimit(Option<Arc<RateNow>>);

impl RateLimit {
    /// What `now` says, each time it is asked; none for no bound.
    pub fn new(now: impl Fn() -> Option<u64> + Send + Sync + 'static) -> Self {
        Self(Some(Arc::new(now)))
    }

    fn now(&self) -> Option<u64> {
        self.0.as_ref().and_then(|now| now())
    }

    /// What holds so many to it together: each has the same part, once it has begun and until it is dropped.
    pub(crate) fn shared_by(&self, count: usize) -> Vec<(Throttle, Part)> {
        let begun = Arc::new(AtomicU64::new(0));
        let part = || {
            let (all, of) = (self.clone(), Arc::clone(&begun));
            let throttle = move || all.now().map(|all| (all / of.load(Ordering::Relaxed).max(1)).max(1));
            (Throttle::new(throttle), Part { begun: Arc::clone(&begun), has_begun: false })
        };
        (0..count).map(|_| part()).collect()
    }
}

/// A rate that whoever decides elsewhere says anew now and then.
#[derive(Clone)]
pub(crate) struct ToldRate(Arc<AtomicU64>);

/// What stands for no bound.
const NO_BOUND: u64 = u64::MAX;

impl ToldRate {
    pub(crate) fn new(rate: Option<u64>) -> Self {
        Self(Arc::new(AtomicU64::new(rate.unwrap_or(NO_BOUND))))
    }

    pub(crate) fn tell(&self, rate: Option<u64>) {
        self.0.store(rate.unwrap_or(NO_BOUND), Ordering::Relaxed);
    }

    pub(crate) fn throttle(&self) -> Throttle {
        let now = Arc::clone(&self.0);
        Throttle::new(move || Some(now.load(Ordering::Relaxed)).filter(|rate| *rate != NO_BOUND))
    }
}

impl fmt::Debug for RateLimit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RateLimit").finish_non_exhaustive()
    }
}

/// One of those that share a rate.
pub(crate) struct Part {
    begun: Arc<AtomicU64>,
    has_begun: bool,
}

impl Part {
    /// From now on it has its part.
    pub(crate) fn begin(&mut self) {
        if !std::mem::replace(&mut self.has_begun, true) {
            self.begun.fetch_add(1, Ordering::Relaxed);
        }
    }
}

impl Drop for Part {
    fn drop(&mut self) {
        self.begun.fetch_sub(u64::from(self.has_begun), Ordering::Relaxed);
    }
}

/// Longest that anybody sleeps before it looks whether to stop.
pub(crate) const SLEEPS_MAX: Duration = Duration::from_millis(100);
/// How long what is asked for ahead takes to come.
const ASKED_AHEAD: Duration = Duration::from_secs(5);

/// A bound for a job.
pub struct Throttle {
    rate: RateLimit,
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
        Self::of(RateLimit::new(rate))
    }

    /// The same, of a rate.
    pub fn of(rate: RateLimit) -> Self {
        Self { rate, state: Mutex::new(State { at: Instant::now(), owed: 0.0 }) }
    }

    /// Bytes a second now; none for no bound.
    pub(crate) fn rate(&self) -> Option<u64> {
        self.rate.now()
    }

    /// Bytes that may be asked for ahead, where there is a bound: what is taken slowly stands in its connection, and
    /// one that stands for long breaks.
    pub(crate) fn ahead(&self) -> Option<u64> {
        self.rate().map(|rate| rate.saturating_mul(ASKED_AHEAD.as_secs()))
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
    fn those_that_are_at_work_share_a_rate() {
        assert_eq!(Throttle::of(RateLimit::default()).rate(), None);
        let mut shares = RateLimit::new(|| Some(9)).shared_by(4);
        for (_, part) in &mut shares[..3] {
            part.begin();
            part.begin();
        }
        assert!(shares.iter().all(|(throttle, _)| throttle.rate() == Some(3)), "one has not begun");
        shares.truncate(1);
        assert_eq!(shares[0].0.rate(), Some(9));
        let told = ToldRate::new(None);
        let throttle = told.throttle();
        assert_eq!(throttle.rate(), None);
        told.tell(Some(7));
        assert_eq!(throttle.rate(), Some(7));
    }

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
