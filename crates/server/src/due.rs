//! Which runs of policies have come, and which come next.

use capstan_schedule::{Schedule, ScheduledRun};
use jiff::{SignedDuration, Timestamp};

/// How long after the clock has come again to where it was set back from it is still looked at what comes: the last run
/// that was decided on there begins meanwhile. A clock that has gone further than this from one look to the next was
/// not there: it is right again.
const AGAIN_FOR: SignedDuration = SignedDuration::from_mins(5);

/// Up to where the runs of a schedule are decided on.
///
/// ```text
///        again      now             decided          the clock was set back from about `decided`
/// ---------|---------|-----------------|-----------> time
///          `- runs up to here come once more, at their time: those that were begun are known by their names
/// ```
/// A clock that is right again after it was behind is past `decided`: nothing was missed meanwhile.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DecidedUntil {
    /// The furthest.
    pub furthest: Timestamp,
    /// While the clock is behind that: up to where they are decided on once more.
    pub again: Option<Timestamp>,
}

impl DecidedUntil {
    /// Where a client's runs go on from; `looked` is the look before this one, if there was one.
    fn from(&self, schedule: &Schedule, client: &str, (looked, now): (Option<Timestamp>, Timestamp)) -> Self {
        let begun_until = now.checked_sub(schedule.delay(client)).unwrap_or(now);
        let is_behind = |slack| self.furthest.checked_add(slack).is_ok_and(|furthest| furthest > begun_until);
        let has_jumped = looked.is_some_and(|looked| now.duration_since(looked) >= AGAIN_FOR);
        let again = match self.again {
            Some(again) if is_behind(SignedDuration::ZERO) => Some(again.min(now)),
            // The last one alone: those before it have had their time, or the clock was not there.
            Some(again) if is_behind(AGAIN_FOR) && !has_jumped => {
                let before_last = self.furthest.checked_sub(SignedDuration::from_nanos(1)).unwrap_or(self.furthest);
                Some(again.max(before_last).min(now))
            }
            None if self.furthest > now => Some(begun_until),
            _ => None,
        };
        Self { again, ..*self }
    }

    fn position(&self) -> Timestamp {
        self.again.unwrap_or(self.furthest)
    }
}

/// A policy that is due by itself, for one client.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Scheduled {
    /// The policy.
    pub policy: String,
    /// The client.
    pub client: String,
    /// When it is due.
    pub schedule: Schedule,
    /// Up to where its runs are decided on; where nothing is, since when the policy is due at these times.
    pub decided: DecidedUntil,
    /// Since when it is due at these times, as the catalog has it.
    pub scheduled_ns: i64,
    /// Whether nobody has noted yet up to where its runs are decided on.
    pub is_new: bool,
}

/// What has come of one policy for one client.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DueRuns {
    /// The policy.
    pub policy: String,
    /// The client.
    pub client: String,
    /// The run that is due, if one is.
    pub run: Option<ScheduledRun>,
    /// Why others never begin, if some do not.
    pub missed: Option<String>,
    /// All runs up to here are decided on now.
    pub decided: DecidedUntil,
    /// Since when the policy is due at the times that this was decided by.
    pub scheduled_ns: i64,
}

/// A run that will come.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct ComingRun {
    /// When its start is, the spread counted in.
    pub starts: Timestamp,
    /// When the schedule has it.
    pub due: Timestamp,
    /// The policy.
    pub policy: String,
    /// The client.
    pub client: String,
}

/// What has come since it was looked last, `looked`, if that is known; policies of which nothing has are left out.
#[must_use]
pub fn due(scheduled: &[Scheduled], looked: Option<Timestamp>, now: Timestamp) -> Vec<DueRuns> {
    let of = |one: &Scheduled| {
        let from = one.decided.from(&one.schedule, &one.client, (looked, now));
        let come = one.schedule.due(from.position(), now, &one.client);
        let missed = match come.missed {
            0 => None,
            1 => Some("one run was missed: it could not be begun in time".to_owned()),
            many => Some(format!("{many} runs were missed: they could not be begun in time")),
        };
        let decided = match from.again {
            Some(_) => DecidedUntil { furthest: from.furthest.max(come.decided), again: Some(come.decided) },
            None => DecidedUntil { furthest: come.decided, again: None },
        };
        // Since when the clock is behind must be known to whoever looks next; and that it is not, any more.
        let is_news = come.run.is_some() || missed.is_some() || from.again != one.decided.again;
        is_news.then(|| DueRuns {
            policy: one.policy.clone(),
            client: one.client.clone(),
            run: come.run,
            missed,
            decided,
            scheduled_ns: one.scheduled_ns,
        })
    };
    scheduled.iter().filter_map(of).collect()
}

/// The next runs up to a time, in the order of their starts, and so many at most: what [`due()`] will say as time goes
/// on from now.
#[must_use]
pub fn forecast(scheduled: &[Scheduled], now: Timestamp, until: Timestamp, most: usize) -> Vec<ComingRun> {
    let mut coming: Vec<ComingRun> = Vec::new();
    for one in scheduled {
        let next = |after: Timestamp| one.schedule.next_run(after, &one.client).filter(|run| run.starts <= until);
        let from = one.decided.from(&one.schedule, &one.client, (Some(now), now));
        let runs = std::iter::successors(next(from.position()), |run| next(run.due));
        coming.extend(runs.take(most).map(|ScheduledRun { due, starts }| ComingRun {
            starts,
            due,
            policy: one.policy.clone(),
            client: one.client.clone(),
        }));
    }
    coming.sort();
    coming.truncate(most);
    coming
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests fail by panicking")]
    use capstan_schedule::CatchUp;
    use jiff::SignedDuration;
    use jiff::tz::TimeZone;

    use super::*;

    fn scheduled(policy: &str, event: &str, decided: &str) -> Scheduled {
        let schedule = Schedule {
            event: event.parse().unwrap(),
            zone: TimeZone::get("Europe/Berlin").unwrap(),
            spread: SignedDuration::from_mins(90),
            catch_up: CatchUp::Within(SignedDuration::from_hours(3)),
        };
        let decided = DecidedUntil { furthest: decided.parse().unwrap(), again: None };
        Scheduled { policy: policy.into(), client: "tern".into(), schedule, decided, scheduled_ns: 0, is_new: false }
    }

    /// What is shown beforehand is what happens: the forecast of two weeks over a change of the clock, beside a server
    /// that looks every minute.
    #[test]
    fn the_forecast_is_what_comes() {
        let from: Timestamp = "2026-03-20T12:00:00Z".parse().unwrap();
        let until: Timestamp = "2026-04-03T12:00:00Z".parse().unwrap();
        let policies = [("nightly", "02:30"), ("hourly", "mon..fri 8..17:00"), ("monthly", "*-*-1 06:00")];
        let mut all: Vec<_> = policies.map(|(name, event)| scheduled(name, event, &from.to_string())).into();
        let foretold = forecast(&all, from, until, 1000);
        assert!(foretold.len() > 100, "{}", foretold.len());
        let mut come = Vec::new();
        let mut now = from;
        while now < until {
            let looked = now;
            now += SignedDuration::from_mins(1);
            for due in due(&all, Some(looked), now) {
                assert_eq!(due.missed, None);
                let ScheduledRun { due: at, starts } = due.run.unwrap();
                come.push(ComingRun { starts, due: at, policy: due.policy.clone(), client: due.client.clone() });
                all.iter_mut().find(|one| one.policy == due.policy).unwrap().decided = due.decided;
            }
        }
        come.sort();
        assert_eq!(come, foretold);
        assert_eq!(forecast(&all, now, until, 3), []);
    }

    /// What becomes of a schedule from one look to the next: the runs that begin, and what is said to be missed.
    fn looked_at(one: &mut Scheduled, times: &[&str]) -> Vec<String> {
        let (mut said, mut looked) = (Vec::new(), None);
        for now in times {
            let now = now.parse().unwrap();
            for come in due(std::slice::from_ref(one), looked.replace(now), now) {
                said.extend(come.run.map(|run| run.due.to_string()));
                said.extend(come.missed);
                one.decided = come.decided;
            }
        }
        said
    }

    /// A server machine whose clock was days behind for a moment reported every night since as missed.
    #[test]
    fn a_clock_that_was_behind_for_a_moment_has_missed_nothing() {
        let mut one = scheduled("nightly", "22:00", "2026-01-08T21:00:00Z");
        let said = looked_at(&mut one, &["2026-01-04T12:00:00Z", "2026-01-04T12:00:01Z", "2026-01-09T12:00:00Z"]);
        assert_eq!(said, Vec::<String>::new());
        let starts = one.schedule.next_run("2026-01-09T12:00:00Z".parse().unwrap(), "tern").unwrap().starts;
        assert_eq!(looked_at(&mut one, &[&starts.to_string()]), ["2026-01-09T21:00:00Z"]);
        assert_eq!(one.decided, DecidedUntil { furthest: "2026-01-09T21:00:00Z".parse().unwrap(), again: None });
    }

    /// The last run comes again only where the clock has gone on to it. It was said to be missed, and others with it,
    /// where the clock was behind for one look soon after the run.
    #[test]
    fn a_clock_that_was_behind_soon_after_a_run_has_missed_nothing() {
        let mut one = scheduled("hourly", "*:00", "2026-01-08T12:00:00Z");
        one.schedule.spread = SignedDuration::ZERO;
        assert_eq!(looked_at(&mut one, &["2026-01-08T12:01:00Z", "2026-01-08T09:01:00Z"]), Vec::<String>::new());
        assert!(one.decided.again.is_some());
        let mut restarted = one.clone();
        let said = looked_at(&mut one, &["2026-01-08T09:01:01Z", "2026-01-08T12:01:02Z"]);
        assert_eq!(said, Vec::<String>::new());
        // Nor does the next time that it is behind go on from there.
        assert_eq!(one.decided.again, None);
        // Who does not know what the clock did meanwhile looks at the last run: it is known by its name if it began.
        assert_eq!(looked_at(&mut restarted, &["2026-01-08T12:01:02Z"]), ["2026-01-08T12:00:00Z"]);
    }

    /// What a clock that was ahead has decided on comes at its time, up to the last of it, and then goes on.
    #[test]
    fn a_clock_that_was_ahead_hides_no_run() {
        let mut one = scheduled("nightly", "22:00", "2026-01-08T21:00:00Z");
        one.schedule.spread = SignedDuration::ZERO;
        let mut times = vec!["2026-01-06T20:30:00Z".parse::<Timestamp>().unwrap()];
        while times.len() < 4 * 24 * 60 {
            times.push(times[times.len() - 1] + SignedDuration::from_mins(1));
        }
        let times: Vec<_> = times.iter().map(ToString::to_string).collect();
        let times: Vec<_> = times.iter().map(String::as_str).collect();
        let nights = [6, 7, 8, 9].map(|day| format!("2026-01-0{day}T21:00:00Z"));
        assert_eq!(looked_at(&mut one, &times), nights);
        assert_eq!(one.decided.again, None);
    }

    #[test]
    fn what_nobody_began_is_said_once() {
        let mut one = scheduled("nightly", "22:00", "2026-01-02T21:00:00Z");
        let monday = "2026-01-05T08:00:00Z".parse().unwrap();
        let come = due(std::slice::from_ref(&one), None, monday).remove(0);
        assert_eq!(
            (come.run, come.missed.as_deref()),
            (None, Some("2 runs were missed: they could not be begun in time"))
        );
        one.decided = come.decided;
        assert_eq!(due(&[one], Some(monday), monday), []);
    }
}
