//! How fast work goes of late, and how long it will take: arithmetic over moments that whoever looks names. No clock.

use std::collections::VecDeque;
use std::time::Duration;

use capstan_mover::Load;

/// What the rate that is shown is a mean of: short enough that a drive that stands is seen, long enough that a
/// checkpoint is none.
const RATE_WINDOW: Duration = Duration::from_secs(10);
/// What the time left is computed from: a mount or a directory of small files does not throw it about.
const LEFT_WINDOW: Duration = Duration::from_secs(60);
/// Moments that are kept lie at least this far apart.
const SPACING: Duration = Duration::from_millis(500);

/// How far work was at a moment.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Sample {
    /// When, from the beginning.
    pub(crate) at: Duration,
    /// How much of what is planned was behind it.
    pub(crate) done: u64,
    /// How many bytes were moved.
    pub(crate) moved: u64,
    /// How long the parts had been at work.
    pub(crate) load: Load,
}

/// What was seen in the last minute.
#[derive(Debug)]
pub(crate) struct Pace {
    /// The earliest first; the last one is of now.
    samples: VecDeque<Sample>,
}

impl Pace {
    /// Work that begins.
    pub(crate) fn new() -> Self {
        Self { samples: VecDeque::from([Sample::default()]) }
    }

    /// Takes in how far it is now.
    pub(crate) fn see(&mut self, now: Sample) {
        // The last one is replaced until it is far enough from the one before it.
        let len = self.samples.len();
        if len > 1 && self.samples[len - 1].at < self.samples[len - 2].at + SPACING {
            self.samples.pop_back();
        }
        self.samples.push_back(now);
        let oldest = now.at.saturating_sub(LEFT_WINDOW);
        while self.samples.get(1).is_some_and(|second| second.at <= oldest) {
            self.samples.pop_front();
        }
    }

    /// The first and the last sample of a time that ends now; `None` where that is no time.
    fn within(&self, window: Duration) -> Option<(Sample, Sample)> {
        let last = *self.samples.back()?;
        let oldest = last.at.saturating_sub(window);
        let first = *self.samples.iter().rev().find(|sample| sample.at <= oldest).or(self.samples.front())?;
        (first.at < last.at).then_some((first, last))
    }

    /// Bytes a second over the last ten seconds.
    pub(crate) fn rate(&self) -> f64 {
        let Some((first, last)) = self.within(RATE_WINDOW) else { return 0.0 };
        last.moved.saturating_sub(first.moved) as f64 / (last.at - first.at).as_secs_f64()
    }

    /// How long it will take until all that is planned is done, if it goes on as in the last minute. `None` while
    /// nothing moves, and where more was done than was planned.
    pub(crate) fn left(&self, planned: u64) -> Option<Duration> {
        let (first, last) = self.within(LEFT_WINDOW)?;
        let (left, done) = (planned.checked_sub(last.done)?, last.done.saturating_sub(first.done));
        if done == 0 {
            return None;
        }
        Duration::try_from_secs_f64(left as f64 / done as f64 * (last.at - first.at).as_secs_f64()).ok()
    }

    /// How long the parts were at work in the last ten seconds, and how long that is.
    pub(crate) fn load(&self) -> Option<(Load, Duration)> {
        let (first, last) = self.within(RATE_WINDOW)?;
        Some((last.load.since(first.load), last.at - first.at))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    fn seconds(count: f64) -> Duration {
        Duration::from_secs_f64(count)
    }

    /// Looks five times a second for so long, while so much is done in each second.
    fn go_on(pace: &mut Pace, from: &mut Sample, duration_s: u32, done_a_second: u64) {
        for _ in 0..duration_s * 5 {
            from.at += Duration::from_millis(200);
            from.done += done_a_second / 5;
            from.moved += done_a_second / 5;
            pace.see(*from);
        }
    }

    fn near(found: f64, wanted: f64) -> bool {
        (found - wanted).abs() <= wanted * 0.06
    }

    #[test]
    fn the_rate_is_that_of_the_last_seconds_and_not_the_mean() {
        let (mut pace, mut at) = (Pace::new(), Sample::default());
        assert_eq!((pace.rate(), pace.left(100)), (0.0, None));
        go_on(&mut pace, &mut at, 3600, 100 * MIB);
        assert!(near(pace.rate(), 100e0 * MIB as f64));
        // A tape that is changed: after ten seconds it is said that nothing moves.
        go_on(&mut pace, &mut at, 11, 0);
        assert_eq!(pace.rate(), 0.0);
        go_on(&mut pace, &mut at, 11, 300 * MIB);
        assert!(near(pace.rate(), 300e0 * MIB as f64), "{}", pace.rate());
    }

    #[test]
    fn what_is_left_follows_the_last_minute() {
        let (mut pace, mut at) = (Pace::new(), Sample::default());
        go_on(&mut pace, &mut at, 1, 100 * MIB);
        let left = |pace: &Pace, planned: u64| pace.left(planned).map_or(-1.0, |left| left.as_secs_f64());
        assert!(near(left(&pace, 1_100 * MIB), 10.0), "from the first second on: {}", left(&pace, 1_100 * MIB));
        go_on(&mut pace, &mut at, 599, 100 * MIB);
        assert!(near(left(&pace, 90_000 * MIB), 300.0));
        // Half a minute of a mount makes it longer, and is no reason to say never.
        go_on(&mut pace, &mut at, 30, 0);
        assert!(near(left(&pace, 90_000 * MIB), 600.0), "{}", left(&pace, 90_000 * MIB));
        go_on(&mut pace, &mut at, 31, 0);
        assert_eq!(pace.left(90_000 * MIB), None);
        assert_eq!(pace.left(at.done - 1), None, "a file that grew while it was read");
        assert_eq!(pace.left(at.done), None);
        go_on(&mut pace, &mut at, 1, MIB);
        assert_eq!(pace.left(at.done), Some(Duration::ZERO));
    }

    #[test]
    fn a_week_is_seen_in_bounded_room() {
        let (mut pace, mut at) = (Pace::new(), Sample::default());
        go_on(&mut pace, &mut at, 100_000, MIB);
        assert!(pace.samples.len() <= 60 * 2 + 3, "{}", pace.samples.len());
        let (_, window) = pace.load().unwrap_or_default();
        assert!(window >= seconds(10.0) && window <= seconds(11.0), "{window:?}");
    }

    #[test]
    fn the_load_is_that_of_the_last_seconds() {
        let mut pace = Pace::new();
        for second in 0..100_u64 {
            let drive_ns = 900_000_000 * second.min(50);
            let load = Load { drive_ns, pack_ns: 0, target_ns: 1_000_000 * second };
            pace.see(Sample { at: Duration::from_secs(second), done: 0, moved: 0, load });
        }
        let (load, window) = pace.load().unwrap_or_default();
        assert_eq!((load.drive_ns, load.target_ns, window), (0, 10_000_000, Duration::from_secs(10)));
    }
}
