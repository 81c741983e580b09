//! Which runs of policies have come, and which come next.

use capstan_schedule::{Schedule, ScheduledRun};
use jiff::Timestamp;

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
    pub decided: Timestamp,
    /// Since when it is due at these times, as the catalog has it.
    pub scheduled_ns: i64,
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
    pub decided: Timestamp,
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

/// What has come since it was looked last; policies of which nothing has are left out.
#[must_use]
pub fn due(scheduled: &[Scheduled], now: Timestamp) -> Vec<DueRuns> {
    let of = |one: &Scheduled| {
        let come = one.schedule.due(one.decided, now, &one.client);
        let missed = match come.missed {
            0 => None,
            1 => Some("one run was missed: it could not be begun in time".to_owned()),
            many => Some(format!("{many} runs were missed: they could not be begun in time")),
        };
        // A clock that was ahead is no reason to decide on nothing until it comes to there again.
        let is_news = come.run.is_some() || missed.is_some() || one.decided > now;
        is_news.then(|| DueRuns {
            policy: one.policy.clone(),
            client: one.client.clone(),
            run: come.run,
            missed,
            decided: come.decided,
            scheduled_ns: one.scheduled_ns,
        })
    };
    scheduled.iter().filter_map(of).collect()
}

/// The next runs up to a time, in the order of their starts, and so many at most: what [`due()`] will say as time goes
/// on.
#[must_use]
pub fn forecast(scheduled: &[Scheduled], until: Timestamp, most: usize) -> Vec<ComingRun> {
    let mut coming: Vec<ComingRun> = Vec::new();
    for one in scheduled {
        let next = |after: Timestamp| one.schedule.next_run(after, &one.client).filter(|run| run.starts <= until);
        let runs = std::iter::successors(next(one.decided), |run| next(run.due));
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
        let decided = decided.parse().unwrap();
        Scheduled { policy: policy.into(), client: "tern".into(), schedule, decided, scheduled_ns: 0 }
    }

    /// What is shown beforehand is what happens: the forecast of two weeks over a change of the clock, beside a server
    /// that looks every minute.
    #[test]
    fn the_forecast_is_what_comes() {
        let from: Timestamp = "2026-03-20T12:00:00Z".parse().unwrap();
        let until: Timestamp = "2026-04-03T12:00:00Z".parse().unwrap();
        let policies = [("nightly", "02:30"), ("hourly", "mon..fri 8..17:00"), ("monthly", "*-*-1 06:00")];
        let mut all: Vec<_> = policies.map(|(name, event)| scheduled(name, event, &from.to_string())).into();
        let foretold = forecast(&all, until, 1000);
        assert!(foretold.len() > 100, "{}", foretold.len());
        let mut come = Vec::new();
        let mut now = from;
        while now < until {
            now += SignedDuration::from_mins(1);
            for due in due(&all, now) {
                assert_eq!(due.missed, None);
                let ScheduledRun { due: at, starts } = due.run.unwrap();
                come.push(ComingRun { starts, due: at, policy: due.policy.clone(), client: due.client.clone() });
                all.iter_mut().find(|one| one.policy == due.policy).unwrap().decided = due.decided;
            }
        }
        come.sort();
        assert_eq!(come, foretold);
        assert_eq!(forecast(&all, until, 3), []);
    }

    #[test]
    fn what_nobody_began_is_said_once() {
        let mut one = scheduled("nightly", "22:00", "2026-01-02T21:00:00Z");
        let monday = "2026-01-05T08:00:00Z".parse().unwrap();
        let come = due(std::slice::from_ref(&one), monday).remove(0);
        assert_eq!(
            (come.run, come.missed.as_deref()),
            (None, Some("2 runs were missed: they could not be begun in time"))
        );
        one.decided = come.decided;
        assert_eq!(due(&[one], monday), []);
    }
}
