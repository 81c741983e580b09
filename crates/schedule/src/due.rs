//! Which run of a schedule is due, for one target.
//!
//! ```text
//!   decided            now                      a target has its own delay within the spread, the same one each time
//! -----|---+-----+------|----------> time
//!          |     `- due for its start: the newest run that has come; catch-up says whether it is late beyond use
//!          `------- missed: one run does for all that have come since
//! ```
//! A run is named by its schedule, its target and the instant at which it was due. Whoever records runs by this name
//! records each of them once, even if the clock is set back: a run that was due already comes again under the same
//! name, and a run that a fast clock passed over comes at its time.

use jiff::tz::TimeZone;
use jiff::{SignedDuration, Timestamp};

use crate::CalendarEvent;

/// How late a run may begin that nobody missed: the server looks this often, and a machine can be busy.
const ON_TIME: SignedDuration = SignedDuration::from_mins(5);
/// Missed runs are counted up to here.
const COUNTED_MAX: u32 = 1000;

/// When something runs for each of its targets.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Schedule {
    /// When runs are due.
    pub event: CalendarEvent,
    /// The zone of an event that names none.
    pub zone: TimeZone,
    /// Over how long the targets' starts are spread.
    pub spread: SignedDuration,
    /// What becomes of a run whose start was missed.
    pub catch_up: CatchUp,
}

/// What becomes of a run whose start was missed, because no server ran or the machine slept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CatchUp {
    /// It is left out: the next one comes in its time.
    Never,
    /// It begins as soon as it can. Of several the newest one does.
    Once,
    /// As [`CatchUp::Once`], if it is not later than this.
    Within(SignedDuration),
}

/// One run of a schedule for one target.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct ScheduledRun {
    /// When the schedule has it: with schedule and target, its name.
    pub due: Timestamp,
    /// When it begins for this target.
    pub starts: Timestamp,
}

/// What has come since it was looked last.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Due {
    /// The run that begins now.
    pub run: Option<ScheduledRun>,
    /// How many have come that do not begin any more; of very many about 1,000 are counted.
    pub missed: u32,
    /// All runs up to here are decided on: to be given when it is looked next.
    pub decided: Timestamp,
}

impl Schedule {
    /// The first run of a target that is due after this instant: after those that are decided on, if a run that is due
    /// and waits for its start counts, too.
    #[must_use]
    pub fn next_run(&self, after: Timestamp, target: &str) -> Option<ScheduledRun> {
        let due = self.event.next_after(after, &self.zone)?;
        Some(ScheduledRun { due, starts: due.checked_add(self.delay(target)).ok()? })
    }

    /// What has come for a target since runs up to `decided` were decided on.
    #[must_use]
    pub fn due(&self, decided: Timestamp, now: Timestamp, target: &str) -> Due {
        // A run that was due later than this cannot have begun, unless the clock was ahead.
        let until = now.checked_sub(self.delay(target)).unwrap_or(now);
        let decided = decided.min(until);
        let Some(due) = self.last_in(decided, until) else { return Due { run: None, missed: 0, decided } };
        let starts = due.checked_add(self.delay(target)).unwrap_or(due);
        let late = now.duration_since(starts);
        let begins = match self.catch_up {
            CatchUp::Never => late <= ON_TIME,
            CatchUp::Once => true,
            CatchUp::Within(longest) => late <= longest.max(ON_TIME),
        };
        let come = self.count_in(decided, due);
        Due {
            run: begins.then_some(ScheduledRun { due, starts }),
            missed: if begins { come - 1 } else { come },
            decided: due,
        }
    }

    /// How long after it is due a target's run begins: spread evenly by the target's name, and always the same.
    #[must_use]
    pub fn delay(&self, target: &str) -> SignedDuration {
        let seconds = u64::try_from(self.spread.as_secs()).unwrap_or_default();
        let share = (u128::from(hash(target.as_bytes())) * u128::from(seconds)) >> 64;
        SignedDuration::from_secs(i64::try_from(share).unwrap_or_default())
    }

    /// The newest instant after the first one and up to the second one.
    fn last_in(&self, after: Timestamp, until: Timestamp) -> Option<Timestamp> {
        // From near to far, so that a schedule of every second is not gone through from years ago.
        const BACK: [SignedDuration; 4] = [
            SignedDuration::from_mins(2),
            SignedDuration::from_hours(2),
            SignedDuration::from_hours(7 * 24),
            SignedDuration::from_hours(400 * 24),
        ];
        let near = BACK.iter().filter_map(|back| until.checked_sub(*back).ok()).filter(|from| *from > after);
        near.chain([after]).find_map(|from| self.instants(from, until).last())
    }

    fn count_in(&self, after: Timestamp, until: Timestamp) -> u32 {
        let count = self.instants(after, until).take(COUNTED_MAX as usize).count();
        u32::try_from(count).unwrap_or(COUNTED_MAX)
    }

    fn instants(&self, after: Timestamp, until: Timestamp) -> impl Iterator<Item = Timestamp> {
        let next = move |at: &Timestamp| self.event.next_after(*at, &self.zone).filter(|next| *next <= until);
        std::iter::successors(next(&after), next)
    }
}

/// FNV-1a, and its bits mixed as in splitmix64: it must give the same for the same name in every version.
fn hash(bytes: &[u8]) -> u64 {
    let fnv = bytes
        .iter()
        .fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3));
    let mixed = (fnv ^ (fnv >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests fail by panicking")]
    use super::*;

    fn at(text: &str) -> Timestamp {
        text.parse().unwrap()
    }

    fn nightly(catch_up: CatchUp) -> Schedule {
        Schedule { event: "22:00".parse().unwrap(), zone: TimeZone::UTC, spread: SignedDuration::ZERO, catch_up }
    }

    /// The day of the run that begins, and how many were missed.
    fn due(schedule: &Schedule, decided: &str, now: &str) -> (Option<String>, u32) {
        let due = schedule.due(at(decided), at(now), "a");
        (due.run.map(|run| run.due.to_string()), due.missed)
    }

    #[test]
    fn a_run_is_due_once() {
        let schedule = nightly(CatchUp::Never);
        assert_eq!(due(&schedule, "2026-01-01T22:00:00Z", "2026-01-02T21:59:59Z"), (None, 0));
        let begins = (Some("2026-01-02T22:00:00Z".to_owned()), 0);
        assert_eq!(due(&schedule, "2026-01-01T22:00:00Z", "2026-01-02T22:00:00Z"), begins);
        assert_eq!(due(&schedule, "2026-01-01T22:00:00Z", "2026-01-02T22:04:00Z"), begins, "the server was busy");
        assert_eq!(due(&schedule, "2026-01-02T22:00:00Z", "2026-01-02T22:00:01Z"), (None, 0));
    }

    #[test]
    fn what_was_missed_is_caught_up_as_the_schedule_says() {
        let (friday, monday) = ("2026-01-02T22:00:00Z", "2026-01-05T08:00:00Z");
        let sunday = Some("2026-01-04T22:00:00Z".to_owned());
        assert_eq!(due(&nightly(CatchUp::Never), friday, monday), (None, 2));
        assert_eq!(due(&nightly(CatchUp::Once), friday, monday), (sunday.clone(), 1), "one run does for both nights");
        let within = |hours| nightly(CatchUp::Within(SignedDuration::from_hours(hours)));
        assert_eq!(due(&within(12), friday, monday), (sunday, 1));
        assert_eq!(due(&within(9), friday, monday), (None, 2));
    }

    #[test]
    fn a_clock_that_was_ahead_hides_no_run() {
        let ahead = "2031-01-01T00:00:00Z";
        let schedule = nightly(CatchUp::Once);
        let Due { run, decided, .. } = schedule.due(at(ahead), at("2026-01-02T12:00:00Z"), "a");
        assert_eq!((run, decided), (None, at("2026-01-02T12:00:00Z")), "nothing later is decided on");
        assert_eq!(schedule.due(decided, at("2026-01-02T22:00:00Z"), "a").run.unwrap().due, at("2026-01-02T22:00:00Z"));
    }

    /// What a clock that is a day ahead decides on comes again at its time, also within the spread.
    #[test]
    fn a_clock_that_was_ahead_hides_no_delayed_run() {
        let schedule = Schedule { spread: SignedDuration::from_hours(1), ..nightly(CatchUp::Never) };
        let target = (0..).map(|n| format!("client-{n}")).find(|name| schedule.delay(name).as_mins() > 45).unwrap();
        let ahead = schedule.due(at("2026-01-01T22:00:00Z"), at("2026-01-03T22:30:00Z"), &target);
        let early = schedule.due(ahead.decided, at("2026-01-02T22:31:00Z"), &target);
        assert_eq!(early.run, None, "its start is later");
        let run = schedule.next_run(early.decided, &target).unwrap();
        assert_eq!(run.due, at("2026-01-02T22:00:00Z"));
        assert_eq!(schedule.due(early.decided, run.starts, &target).run, Some(run));
    }

    #[test]
    fn targets_are_spread_and_each_keeps_its_place() {
        let schedule = Schedule { spread: SignedDuration::from_hours(1), ..nightly(CatchUp::Never) };
        let delays: Vec<i64> = (0..1000).map(|n| schedule.delay(&format!("client-{n}")).as_secs()).collect();
        assert!(delays.iter().all(|delay| (0..3600).contains(delay)));
        // Of 1,000 in 12 parts of five minutes, each has 83 more or less.
        for part in 0..12 {
            let here = delays.iter().filter(|delay| **delay / 300 == part).count();
            assert!((50..120).contains(&here), "{here} in part {part}");
        }
        assert_eq!(schedule.delay("client-7"), schedule.delay("client-7"));
        let run = schedule.next_run(at("2026-01-02T00:00:00Z"), "client-7").unwrap();
        assert_eq!(run.starts.duration_since(run.due), schedule.delay("client-7"));
        assert_eq!(schedule.due(at("2026-01-01T23:30:00Z"), run.starts, "client-7").run, Some(run));
    }

    #[test]
    fn years_of_seconds_are_not_gone_through() {
        let schedule = Schedule { event: "*:*:*".parse().unwrap(), ..nightly(CatchUp::Once) };
        let due = schedule.due(at("2010-01-01T00:00:00Z"), at("2026-01-01T00:00:00Z"), "a");
        assert_eq!((due.run.unwrap().due, due.missed), (at("2026-01-01T00:00:00Z"), 999));
    }
}
