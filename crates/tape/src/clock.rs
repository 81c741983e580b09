//! Time as an argument: what waits asks a clock, so that tests and simulations need not.

use std::time::{Duration, Instant};

/// A clock that can be waited for.
pub trait PaceClock: Send {
    /// Seconds since some moment.
    fn now_s(&self) -> f64;

    /// Returns when it is that late.
    fn wait_until(&mut self, at_s: f64);
}

/// The clock of this machine that nobody can set.
#[derive(Debug, Clone, Copy)]
pub struct MonotonicClock {
    began: Instant,
}

impl MonotonicClock {
    /// Begins at 0.
    pub fn start() -> Self {
        Self { began: Instant::now() }
    }
}

impl PaceClock for MonotonicClock {
    fn now_s(&self) -> f64 {
        self.began.elapsed().as_secs_f64()
    }

    fn wait_until(&mut self, at_s: f64) {
        let left = at_s - self.now_s();
        if left > 0.0 {
            std::thread::sleep(Duration::from_secs_f64(left));
        }
    }
}
