//! How far runs are: noted in the catalog every few seconds, where `queue` finds it.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use capstan_catalog::RunProgress;
use capstan_director::{DirectorError, Site};

/// How often it is noted.
const NOTED_EVERY: Duration = Duration::from_secs(5);

/// How far a run is, as whoever works on it counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RunCounts {
    /// The run.
    pub run: i64,
    /// Files or paths that are done.
    pub files: u64,
    /// Bytes of what is planned that are behind it, moved or not.
    pub bytes: u64,
    /// Bytes that are planned; 0 while that is not known.
    pub bytes_planned: u64,
    /// Bytes that were moved.
    pub moved: u64,
}

/// What was counted last, and when.
#[derive(Default)]
pub(super) struct Noted {
    last: Option<Instant>,
    before: HashMap<i64, RunCounts>,
}

impl Noted {
    /// Notes what has changed, if it is time for it.
    pub(super) fn mind(
        &mut self,
        site: &Site,
        term: u64,
        counts: impl FnOnce() -> Vec<RunCounts>,
    ) -> Result<(), DirectorError> {
        let now = Instant::now();
        let since = self.last.map(|last| now.duration_since(last));
        if since.is_some_and(|since| since < NOTED_EVERY) {
            return Ok(());
        }
        let counts: HashMap<i64, RunCounts> = counts().into_iter().map(|counts| (counts.run, counts)).collect();
        let changed = self.changed(&counts, since, site.now_ns());
        if !changed.is_empty() {
            site.catalog().note_progress(term, &changed)?;
        }
        // The first one that begins is noted at once, and what could not be noted at the next look.
        self.last = (!counts.is_empty()).then_some(now);
        self.before = counts;
        Ok(())
    }

    /// One that stands still is noted once more, with a rate of nothing.
    fn changed(
        &self,
        counts: &HashMap<i64, RunCounts>,
        since: Option<Duration>,
        noted_ns: i64,
    ) -> Vec<(i64, RunProgress)> {
        let of_one = |(run, counts): (&i64, &RunCounts)| {
            let RunCounts { files, bytes, bytes_planned, .. } = *counts;
            let before = self.before.get(run);
            // One that was not there before has begun since.
            let moved = counts.moved.saturating_sub(before.map_or(0, |before| before.moved));
            let rate = since.map_or(0, |since| (moved as f64 / since.as_secs_f64()) as u64);
            let is_news = bytes + files > 0 || before.is_some_and(|before| before != counts);
            is_news.then_some((*run, RunProgress { files, bytes, bytes_planned, rate, noted_ns }))
        };
        counts.iter().filter_map(of_one).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rate_is_of_the_time_between_two_notes() {
        let of = |moved| {
            let counts = RunCounts { run: 7, files: 1, bytes: 99_000, bytes_planned: 0, moved };
            HashMap::from([(7, counts)])
        };
        let mut noted = Noted::default();
        let rate = |noted: &Noted, moved| noted.changed(&of(moved), Some(Duration::from_secs(5)), 1)[0].1.rate;
        assert_eq!(rate(&noted, 1000), 200);
        noted.before = of(1000);
        assert_eq!(rate(&noted, 11_000), 2000);
        assert_eq!(rate(&noted, 1000), 0);
        assert_eq!(rate(&noted, 500), 0, "an attempt that began anew");
        let waits = HashMap::from([(8, RunCounts { run: 8, files: 0, bytes: 0, bytes_planned: 9, moved: 0 })]);
        assert_eq!(noted.changed(&waits, Some(Duration::from_secs(5)), 1), [], "nothing is done yet");
    }
}
