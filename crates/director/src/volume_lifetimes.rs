//! How long what is made is kept, and what is on the volumes that are being filled.

use std::collections::HashMap;

use capstan_catalog::{Catalog, Object, Pool};
use capstan_format::Volser;
use jiff::Timestamp;

use crate::DirectorError;
use crate::config::{Config, JobConfig};
use crate::copy_terms::copying;
use crate::keep::DAY_NS;
use crate::lifetime::{Lifetime, LifetimeSpan};
use crate::pools::DEFAULT_POOL;
use crate::request::Retention;
use crate::site::Site;

impl Lifetime {
    /// What is made with this retention, for a policy whose rule gives this lifetime, into this pool.
    pub(crate) fn of(retention: Retention, by_rule: Option<Self>, pool: &Pool) -> Self {
        by_rule.unwrap_or_else(|| match retention {
            Retention::OfPool => {
                pool.retention_ns.map_or(Self::ENDLESS, |ns| Self::of_ns(i64::try_from(ns).unwrap_or(i64::MAX)))
            }
            Retention::For(ns) => Self::of_ns(ns),
            Retention::ByRule => Self::ENDLESS,
        })
    }

    /// Of what a job or policy makes that has a keep rule.
    pub(crate) fn by_rule(job: &JobConfig) -> Option<Self> {
        job.keep.map(|rule| rule.lifetime(every_ns(job)))
    }

    /// Of what a job or policy makes; for ever, if there is no such pool.
    pub fn of_job(job: &JobConfig, pools: &[Pool]) -> Self {
        let name = job.pool.as_deref().unwrap_or(DEFAULT_POOL);
        let pool = pools.iter().find(|pool| pool.name == name);
        pool.map_or(Self::ENDLESS, |pool| Self::of(Retention::of_job(job), Self::by_rule(job), pool))
    }

    /// By the rule that decides on what of a policy is in a pool, if one does.
    fn by_rule_in(config: &Config, policy: &str, pool: Option<&str>) -> Option<Self> {
        let of_copies = pool.and_then(|pool| copying(&config.jobs, policy, pool));
        match of_copies {
            Some(job) if job.keep.is_some() || job.retention.is_some() => Self::by_rule(job),
            _ => config.jobs.get(policy).and_then(Self::by_rule),
        }
    }
}

impl Site {
    /// How long a copy of an object in a pool is kept.
    pub(crate) fn lifetime_of_copy(&self, object: &Object, pool: &str) -> Result<Lifetime, DirectorError> {
        if let Some(by_rule) = Lifetime::by_rule_in(&self.config, &object.policy, Some(pool)) {
            return Ok(by_rule);
        }
        Ok(match self.end_of_copy(object, pool)? {
            0 => Lifetime::ENDLESS,
            expires_ns => Lifetime::of_ns(expires_ns.saturating_sub(object.started_ns)),
        })
    }
}

/// About how long it is from one backup of a job to the next: by its schedule, and a day where it has none.
fn every_ns(job: &JobConfig) -> i64 {
    let schedule = job.timing().ok().and_then(|timing| timing.schedule);
    // Which time it is does not matter for that.
    let mean = schedule.and_then(|schedule| schedule.event.mean_interval(Timestamp::UNIX_EPOCH, &schedule.zone));
    mean.map_or(DAY_NS, |mean| i64::try_from(mean.as_nanos()).unwrap_or(i64::MAX))
}

/// The lifetimes of the volumes that are being filled; none of those on which nothing lives.
pub(crate) fn lifetimes_of_volumes(
    catalog: &Catalog,
    config: &Config,
) -> Result<HashMap<Volser, LifetimeSpan>, DirectorError> {
    let mut lifetimes: HashMap<Volser, LifetimeSpan> = HashMap::new();
    for kept in catalog.kept_on_volumes()? {
        let by_rule = Lifetime::by_rule_in(config, &kept.policy, kept.pool.as_deref());
        let by_retention =
            || LifetimeSpan { shortest: Lifetime::of_ns(kept.shortest_ns), longest: Lifetime::of_ns(kept.longest_ns) };
        let own = by_rule.map_or_else(by_retention, LifetimeSpan::of);
        lifetimes.entry(kept.volser).and_modify(|known| *known = known.with(own)).or_insert(own);
    }
    Ok(lifetimes)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests fail by panicking")]
    use super::*;

    fn days(policy: &str) -> Lifetime {
        Lifetime::by_rule(&toml::from_str(&format!("sources = [\"/srv\"]\n{policy}")).unwrap()).unwrap()
    }

    /// `last = 24` of a policy that runs each hour counted as 24 days, and its objects were written among those of a
    /// month, which kept their place for a month; `last = 8` of a weekly one counted as 8 days.
    #[test]
    fn the_last_few_are_kept_as_long_as_the_schedule_takes_to_make_them() {
        for (policy, expected) in [
            ("keep = { last = 24 }\nschedule = \"hourly\"", 1),
            ("keep = { last = 24, daily = 3 }\nschedule = \"hourly\"", 3),
            ("keep = { last = 8 }\nschedule = \"sun 03:00\"", 56),
            ("keep = { daily = 7, weekly = 4 }\nschedule = \"sun 03:00\"", 49),
            ("keep = { last = 30 }\nschedule = \"mon..fri 22:00\"", 42),
            // Nobody knows when the others run; a schedule that comes once says no more.
            ("keep = { last = 24 }", 24),
            ("keep = { last = 24 }\nschedule = \"2030-01-01 03:00\"", 24),
        ] {
            let (found, expected) = (days(policy), Lifetime::of_ns(expected * DAY_NS));
            assert!(found.is_like(expected), "{policy}: {found:?}");
        }
        assert!(Lifetime::by_rule(&toml::from_str("retention = \"9d\"").unwrap()).is_none());
    }
}
