//! How much had been read at each moment of a run, and from when on it went steadily.
//!
//! The beginning of a run says little of a slow source: what was announced to it comes before what is asked for, so
//! that nothing comes for seconds, and then much at once. The end says little, too, if what is counted is files, or
//! blocks, that are finished. So bytes are counted as they are read, and a rate is taken from the last two thirds of a
//! run, which is long enough when these two agree.
//!
//! ```text
//!   bytes |                         ____/
//!         |                    ____/         thirds 2 and 3 have one slope: that is the rate
//!         |        ___________/
//!         |_______/  jam: not the rate
//!         0        1/3        2/3        t
//! ```
//! Rejected: to count from the first byte, which a jam behind it makes too little, or what was announced too much.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Thirds that differ by no more than this share are one rate.
const AGREE: f64 = 0.1;
/// Moments that are kept. When there are as many, every second is dropped, and as many are taken from then on.
const MOMENTS_MAX: usize = 4096;

/// How long something is read.
pub(crate) struct Limits {
    /// Seconds, if it goes steadily by then.
    pub(crate) seconds: f64,
    /// Seconds at most, if that is more.
    pub(crate) seconds_max: f64,
    /// Bytes of a third without which nothing is said of its rate: what comes at once is no rate.
    pub(crate) bytes_enough: u64,
}

impl Limits {
    /// Sets `over` when the time is over and what is counted comes steadily, at the latest when the limit is reached,
    /// or when somebody stops it. Ends when that is so, or when it is `done`; returns how much was counted until when.
    pub(crate) fn watch(&self, counted: &AtomicU64, done: &AtomicBool, over: &AtomicBool, stop: &AtomicBool) -> Course {
        const LOOKS: Duration = Duration::from_millis(5);
        let began = Instant::now();
        let mut course = Course::default();
        while !done.load(Ordering::Relaxed) {
            let at_s = began.elapsed().as_secs_f64();
            course.note(at_s, counted.load(Ordering::Relaxed));
            let steady = || course.steady().is_some_and(|steady| steady.agrees(self.bytes_enough));
            let enough = at_s >= self.seconds && (at_s >= self.seconds_max || steady());
            if enough || stop.load(Ordering::Relaxed) {
                over.store(true, Ordering::Relaxed);
                break;
            }
            std::thread::sleep(LOOKS);
        }
        course
    }
}

/// What was read until when.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Course {
    /// Seconds since the beginning, and bytes by then. Both only grow.
    moments: Vec<(f64, u64)>,
    /// Each so many calls are kept.
    step: u64,
    calls: u64,
}

/// The rates of the last two thirds of a course, bytes a second.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Steady {
    /// Of the second.
    pub(crate) second: f64,
    /// Of the third.
    pub(crate) third: f64,
    /// Bytes of the one that has fewer.
    pub(crate) bytes_min: f64,
}

impl Steady {
    /// The rate of both.
    pub(crate) fn rate(&self) -> f64 {
        f64::midpoint(self.second, self.third)
    }

    /// Whether they are one rate, and not by chance: each has bytes enough.
    pub(crate) fn agrees(&self, bytes_enough: u64) -> bool {
        let most = self.second.max(self.third);
        self.bytes_min >= bytes_enough as f64 && (self.second - self.third).abs() <= AGREE * most
    }
}

impl Default for Course {
    fn default() -> Self {
        Self { moments: vec![(0.0, 0)], step: 1, calls: 0 }
    }
}

impl Course {
    /// Notes how much was read by now.
    pub(crate) fn note(&mut self, at_s: f64, bytes: u64) {
        self.calls += 1;
        if !self.calls.is_multiple_of(self.step) {
            return;
        }
        self.moments.push((at_s, bytes));
        if self.moments.len() >= MOMENTS_MAX {
            let mut number = 0;
            self.moments.retain(|_| {
                number += 1;
                number % 2 == 1
            });
            self.step *= 2;
        }
    }

    /// Bytes by that moment, on the line between those that are known.
    fn bytes_at(&self, at_s: f64) -> f64 {
        let behind = self.moments.partition_point(|(moment, _)| *moment < at_s);
        let Some((to_s, to)) = self.moments.get(behind).copied() else {
            return self.moments.last().map_or(0.0, |(_, bytes)| *bytes as f64);
        };
        let Some((from_s, from)) = behind.checked_sub(1).and_then(|before| self.moments.get(before)).copied() else {
            return to as f64;
        };
        from as f64 + (to - from) as f64 * (at_s - from_s) / (to_s - from_s).max(1e-9)
    }

    /// The last two thirds of what there is so far; none if nothing was noted.
    pub(crate) fn steady(&self) -> Option<Steady> {
        let (end_s, end) = self.moments.last().copied()?;
        if end_s <= 0.0 {
            return None;
        }
        let third_s = end_s / 3.0;
        let (one, two) = (self.bytes_at(third_s), self.bytes_at(2.0 * third_s));
        let (second, third) = (two - one, end as f64 - two);
        Some(Steady { second: second / third_s, third: third / third_s, bytes_min: second.min(third) })
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests fail by panicking")]
    use super::*;

    const ENOUGH: u64 = 16 << 20;

    /// Runs until it is steady, or the limit: when it ended, and its rate.
    fn run(seconds: f64, limit_s: f64, bytes_at: impl Fn(f64) -> f64) -> (f64, f64) {
        let mut course = Course::default();
        for tick in 1.. {
            let at_s = f64::from(tick) * 0.005;
            course.note(at_s, bytes_at(at_s) as u64);
            let steady = course.steady().unwrap();
            if at_s >= limit_s || (at_s >= seconds && steady.agrees(ENOUGH)) {
                return (at_s, steady.rate());
            }
        }
        unreachable!()
    }

    /// A disk of 20 MB/s was told of 80 MB ahead, of a run of 3 s: 1 MB came in the first seconds, so that it was taken
    /// for a disk of less than 1 MB/s.
    #[test]
    fn what_goes_on_at_the_beginning_does_not_count() {
        for (rate, jam_s) in [(20e6, 0.0), (20e6, 1.6), (20e6, 5.6), (5e6, 2.0)] {
            let (ended_s, found) = run(3.0, 60.0, |at_s| 1e6_f64.min(rate * at_s) + rate * (at_s - jam_s).max(0.0));
            assert!((found / rate - 1.0).abs() < 0.12, "{rate} after {jam_s} s: {found}");
            let enough_s = 3.5 * ENOUGH as f64 / rate;
            assert!(
                ended_s <= 3.0_f64.max(3.5 * jam_s).max(enough_s) + 1.0,
                "{rate} after {jam_s} s lasted {ended_s} s"
            );
        }
    }

    #[test]
    fn a_steady_source_is_read_no_longer_than_was_asked() {
        let (ended_s, found) = run(2.0, 20.0, |at_s| 2e9 * at_s);
        assert!(ended_s < 2.02 && (found / 2e9 - 1.0).abs() < 0.001, "{ended_s} {found}");
        // Pieces of 16 files of 512 KiB, that all come at the same time.
        let (ended_s, found) = run(2.0, 60.0, |at_s| (20e6 * at_s / 8e6).floor() * 8e6);
        assert!(ended_s < 20.0 && (found / 20e6 - 1.0).abs() < 0.15, "{ended_s} {found}");
    }

    #[test]
    fn what_never_goes_steadily_ends_at_the_limit() {
        let (ended_s, found) = run(1.0, 4.0, |at_s| 1e6 * at_s.exp());
        assert!((ended_s - 4.0).abs() < 0.01 && found > 0.0);
    }

    #[test]
    fn a_long_course_is_bounded_and_keeps_its_ends() {
        let mut course = Course::default();
        for tick in 1..=100_000_u64 {
            course.note(tick as f64, tick * 7);
        }
        assert!(course.moments.len() < MOMENTS_MAX);
        let steady = course.steady().unwrap();
        assert!((steady.rate() - 7.0).abs() < 0.01 && steady.agrees(1), "{steady:?}");
        assert_eq!(Course::default().steady(), None);
    }
}
