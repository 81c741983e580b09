//! How many links carry a stream: as many as its rate and the latency of the network want.
//!
//! One connection carries no more than its window in each round trip: if that takes long, this is little, however fast
//! the network is. If a stream waits for its links, their number is doubled, and stays so if the stream is faster by a
//! tenth. If it is not, something else sets the rate. Then more links are tried later, and more and more rarely.

use std::time::{Duration, Instant};

/// Links that one stream may have.
pub(super) const BLOCK_LINKS_MAX: u16 = 8;

/// When links are looked at.
#[derive(Debug, Clone, Copy)]
pub(crate) struct LinkTimes {
    /// How long a rate is measured.
    pub(crate) watch: Duration,
    /// How long new links have to come up to their rate.
    pub(crate) settle: Duration,
    /// How long after links that were no use more are tried, at first and at most.
    pub(crate) pause: (Duration, Duration),
}

impl Default for LinkTimes {
    fn default() -> Self {
        let pause = (Duration::from_secs(30), Duration::from_secs(600));
        Self { watch: Duration::from_secs(2), settle: Duration::from_secs(1), pause }
    }
}

/// What has become of a stream so far.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct SoFar {
    /// Bytes that were sent.
    pub(super) bytes: u64,
    /// How long its links kept blocks waiting, all together.
    pub(super) waited: Duration,
}

/// Chooses how many links a stream has.
#[derive(Debug)]
pub(super) struct LinkChoice {
    times: LinkTimes,
    max: u16,
    links: u16,
    /// Since when it is looked at, and what was so far then.
    since: (Instant, SoFar),
    /// What it had before more were tried: so many links, and bytes a second.
    before: Option<(u16, f64)>,
    next_try: Instant,
    pause: Duration,
}

impl LinkChoice {
    pub(super) fn new(now: Instant, times: LinkTimes, max: u16) -> Self {
        let (since, pause) = ((now, SoFar::default()), times.pause.0);
        Self { times, max: max.max(1), links: 1, since, before: None, next_try: now, pause }
    }

    /// How many links it should have now.
    pub(super) fn look(&mut self, now: Instant, so_far: SoFar) -> u16 {
        let (since, then) = self.since;
        let passed = now.saturating_duration_since(since);
        if passed.is_zero() {
            // New links come up to their rate first.
            self.since.1 = so_far;
        }
        if passed < self.times.watch {
            return self.links;
        }
        self.since = (now, so_far);
        let rate = (so_far.bytes - then.bytes) as f64 / passed.as_secs_f64();
        if let Some((links, before)) = self.before.take() {
            if rate >= before * 1.1 {
                self.pause = self.times.pause.0;
            } else {
                self.links = links;
                self.next_try = now + self.pause;
                self.pause = (self.pause * 2).min(self.times.pause.1);
            }
            return self.links;
        }
        let waited = so_far.waited.saturating_sub(then.waited);
        if waited * 2 > passed * self.links.into() && self.links < self.max && now >= self.next_try {
            self.before = Some((self.links, rate));
            self.links = (self.links * 2).min(self.max);
            self.since.0 = now + self.times.settle;
        }
        self.links
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Rates of a stream with one link and with more, in bytes a second, and whether the links are waited for; how many
    /// links it has in the end, and how often that has changed.
    fn chosen(seconds: u64, way: impl Fn(u16) -> (u64, bool)) -> (u16, usize) {
        let begin = Instant::now();
        let (mut choice, mut so_far, mut links, mut changes) =
            (LinkChoice::new(begin, LinkTimes::default(), BLOCK_LINKS_MAX), SoFar::default(), 1, 0);
        for tenth in 1..=seconds * 10 {
            let (rate, waits) = way(links);
            so_far.bytes += rate / 10;
            if waits {
                so_far.waited += Duration::from_millis(90) * links.into();
            }
            let wanted = choice.look(begin + Duration::from_millis(100) * tenth as u32, so_far);
            changes += usize::from(wanted != links);
            links = wanted;
        }
        (links, changes)
    }

    #[test]
    fn a_long_path_gets_as_many_links_as_its_rate_wants() {
        // Each link carries 4 MB/s, and the network or the drive no more than so many MB/s.
        let up_to = |most: u64| move |links: u16| ((4 * u64::from(links)).min(most) * 1_000_000, true);
        assert_eq!(chosen(20, up_to(1_000)), (8, 3));
        assert_eq!(chosen(20, up_to(16)), (4, 4), "eight are tried, and are no faster");
        assert_eq!(chosen(20, up_to(4)), (1, 2));
        // It is asked again after 30 s, a minute, and so on: seldom for a backup that takes a day.
        assert!(chosen(86_400, up_to(4)).1 < 300);
    }

    #[test]
    fn a_stream_whose_source_or_drive_is_slow_has_one_link() {
        assert_eq!(chosen(3_600, |_| (1_000_000, false)), (1, 0));
    }
}
