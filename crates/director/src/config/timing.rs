//! When a policy runs: its schedule and window, its place in the queue, and what becomes of a run that failed.

use capstan_schedule::{CatchUp, Schedule, Window};
use jiff::SignedDuration;
use jiff::tz::TimeZone;

use super::bandwidth::Bandwidth;
use super::job::{JobConfig, Wrong, parse_age};

/// The priority of a policy that names none.
const PRIORITY: u8 = 50;
const PRIORITY_MAX: u8 = 100;
/// How often a run is tried again, where a policy says nothing.
const RETRIES: u8 = 2;
const RETRIES_MAX: u8 = 10;
/// How long after the first failure, where a policy says nothing.
const RETRY_AFTER: SignedDuration = SignedDuration::from_mins(10);
/// A run that fails at once is not to keep the server busy.
const RETRY_AFTER_MIN: SignedDuration = SignedDuration::from_secs(1);
/// The longest that a run waits before it is tried again.
const RETRY_AFTER_MAX: SignedDuration = SignedDuration::from_hours(12);

/// When a policy runs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PolicyTiming {
    /// When it is due; `None` for a policy that runs only when somebody asks for it.
    pub schedule: Option<Schedule>,
    /// When its runs may begin; `None` for always.
    pub window: Option<Window>,
    /// The zone of the window.
    pub zone: TimeZone,
    /// Its place in the queue: the higher, the sooner.
    pub priority: i64,
    /// How many of its runs are at work at the same time, at most.
    pub runs_at_once: Option<usize>,
    /// How often a run that failed is tried again.
    pub retries: u32,
    retry_after: SignedDuration,
}

impl PolicyTiming {
    /// How long a run waits that has failed so often.
    pub fn retry_after(&self, failures: u32) -> SignedDuration {
        let doubled = 1_i32.checked_shl(failures.saturating_sub(1)).unwrap_or(i32::MAX);
        self.retry_after.checked_mul(doubled).unwrap_or(RETRY_AFTER_MAX).min(RETRY_AFTER_MAX.max(self.retry_after))
    }

    /// The longest that a run can have to wait for its time.
    pub fn longest_wait(&self) -> SignedDuration {
        let spread = self.schedule.as_ref().map_or(SignedDuration::ZERO, |schedule| schedule.spread);
        spread.max(RETRY_AFTER_MAX).max(self.retry_after)
    }
}

impl JobConfig {
    /// How fast its sources may be read; none for as fast as can be.
    ///
    /// # Errors
    /// The setting that is wrong, and why.
    pub fn bandwidth(&self) -> Result<Option<Bandwidth>, (Option<&'static str>, String)> {
        let zone = self.zone.as_ref().and_then(|name| TimeZone::get(name).ok());
        Bandwidth::parse(&self.bandwidth, &zone.unwrap_or_else(TimeZone::system))
    }

    /// When the policy runs.
    ///
    /// # Errors
    /// The setting that is wrong, and why. A zone that this machine does not know is wrong here only.
    pub fn timing(&self) -> Result<PolicyTiming, (Option<&'static str>, String)> {
        let zone = match &self.zone {
            Some(name) => TimeZone::get(name).map_err(|_| {
                let reason = format!("{name:?} is no time zone of this machine: write one as in \"Europe/Berlin\"");
                (Some("zone"), reason)
            })?,
            None => TimeZone::system(),
        };
        let named = |key: &'static str| move |error: &dyn std::fmt::Display| (Some(key), error.to_string());
        let event = self.schedule.as_ref().map(|text| text.parse().map_err(|error| named("schedule")(&error)));
        let window = self.window.as_ref().map(|text| text.parse().map_err(|error| named("window")(&error)));
        if event.is_none() {
            let needs_schedule = [("spread", self.spread.is_some()), ("catch_up", self.catch_up.is_some())];
            if let Some((key, _)) = needs_schedule.into_iter().find(|(_, is_set)| *is_set) {
                return Err((Some(key), "it is for a schedule, and there is none: set schedule".to_owned()));
            }
        }
        let spread = age("spread", self.spread.as_deref())?.unwrap_or(SignedDuration::ZERO);
        let catch_up = self.catch_up()?;
        let schedule = event.transpose()?.map(|event| Schedule { event, zone: zone.clone(), spread, catch_up });
        let bounded = |key: &'static str, value: u8, max: u8| match value <= max {
            true => Ok(value),
            false => Err((Some(key), format!("must be between 0 and {max}"))),
        };
        let priority = bounded("priority", self.priority.unwrap_or(PRIORITY), PRIORITY_MAX)?;
        if self.runs_at_once == Some(0) {
            return Err((Some("runs_at_once"), "must be at least 1; leave it out for no bound".to_owned()));
        }
        let retries = bounded("retries", self.retries.unwrap_or(RETRIES), RETRIES_MAX)?;
        Ok(PolicyTiming {
            schedule,
            window: window.transpose()?,
            zone,
            priority: priority.into(),
            runs_at_once: self.runs_at_once.map(usize::from),
            retries: retries.into(),
            retry_after: match age("retry_after", self.retry_after.as_deref())? {
                Some(wait) if wait < RETRY_AFTER_MIN => {
                    return Err((Some("retry_after"), "must be at least 1s".to_owned()));
                }
                wait => wait.unwrap_or(RETRY_AFTER),
            },
        })
    }

    /// The settings that only policies have, and whether each is set.
    pub(super) fn timing_keys(&self) -> impl Iterator<Item = (&'static str, bool)> {
        [
            ("clients", !self.clients.is_empty()),
            ("client_labels", !self.client_labels.is_empty()),
            ("enabled", self.enabled.is_some()),
            ("schedule", self.schedule.is_some()),
            ("zone", self.zone.is_some()),
            ("spread", self.spread.is_some()),
            ("catch_up", self.catch_up.is_some()),
            ("window", self.window.is_some()),
            ("priority", self.priority.is_some()),
            ("runs_at_once", self.runs_at_once.is_some()),
            ("retries", self.retries.is_some()),
            ("retry_after", self.retry_after.is_some()),
            ("copies_of", self.is_of_copies()),
            ("stage", self.stage.is_some()),
            ("stage_pool", self.stage_pool.is_some()),
            ("stage_when", self.stage_when.is_some()),
        ]
        .into_iter()
        .chain(self.copying_keys())
        .chain(self.care_keys())
    }

    fn catch_up(&self) -> Result<CatchUp, Wrong> {
        match self.catch_up.as_deref() {
            None | Some("once") => Ok(CatchUp::Once),
            Some("never") => Ok(CatchUp::Never),
            Some(text) => parse_age(text).map(SignedDuration::from_nanos).map(CatchUp::Within).map_err(|_| {
                let reason = format!("{text:?} is neither \"never\" nor \"once\" nor a duration such as \"12h\"");
                (Some("catch_up"), reason)
            }),
        }
    }
}

fn age(key: &'static str, text: Option<&str>) -> Result<Option<SignedDuration>, Wrong> {
    let ns = text.map(parse_age).transpose().map_err(|reason| (Some(key), reason))?;
    Ok(ns.map(SignedDuration::from_nanos))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests fail by panicking")]
    use super::*;

    fn policy(rest: &str) -> JobConfig {
        toml::from_str(&format!("sources = [\"/etc\"]\n{rest}")).unwrap()
    }

    #[test]
    fn a_policy_without_a_word_about_it_waits_for_somebody_and_is_tried_three_times() {
        let timing = policy("").timing().unwrap();
        assert_eq!((timing.schedule, timing.window, timing.priority, timing.retries), (None, None, 50, 2));
    }

    #[test]
    fn failures_that_repeat_are_waited_for_longer_each_time() {
        let timing = policy("retry_after = \"30m\"").timing().unwrap();
        let minutes: Vec<_> = [1, 2, 3, 4, 5, 6, 40].map(|failures| timing.retry_after(failures).as_mins()).into();
        assert_eq!(minutes, [30, 60, 120, 240, 480, 720, 720]);
        let rare = policy("retry_after = \"2d\"").timing().unwrap();
        assert_eq!(rare.retry_after(3).as_hours(), 48, "what somebody asks for is never made shorter");
    }

    #[test]
    fn a_day_that_is_over_and_one_that_is_rare_are_days() {
        for schedule in ["2020-01-01 02:00", "*-02-29", "2199-12-31 23:59", "mon *-02-29"] {
            assert!(policy(&format!("schedule = \"{schedule}\"")).timing().unwrap().schedule.is_some(), "{schedule}");
        }
    }

    #[test]
    fn what_is_wrong_is_named_by_its_setting() {
        for (rest, key, said) in [
            ("schedule = \"noon\"", "schedule", "noon"),
            ("schedule = \"*-02-30\"", "schedule", "no date is like that"),
            // That was a Saturday.
            ("schedule = \"mon 2026-11-28\"", "schedule", "no date is like that"),
            ("schedule = \"daily\"\nzone = \"Europe/Atlantis\"", "zone", "no time zone of this machine"),
            ("schedule = \"daily\"\nspread = \"long\"", "spread", "not a duration"),
            ("spread = \"1h\"", "spread", "set schedule"),
            ("catch_up = \"once\"", "catch_up", "set schedule"),
            ("schedule = \"daily\"\ncatch_up = \"twice\"", "catch_up", "neither"),
            ("window = \"nights\"", "window", "nights"),
            ("runs_at_once = 0", "runs_at_once", "at least 1"),
            ("priority = 101", "priority", "between 0 and 100"),
            ("retries = 11", "retries", "between 0 and 10"),
            ("retry_after = \"soon\"", "retry_after", "not a duration"),
            ("retry_after = \"0s\"", "retry_after", "at least 1s"),
        ] {
            let (at, reason) = policy(rest).timing().unwrap_err();
            assert_eq!(at, Some(key), "{rest}");
            assert!(reason.contains(said), "{reason}");
        }
    }
}
