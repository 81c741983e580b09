//! How long what is made is kept, and what is on the volumes that are being filled.

use std::collections::HashMap;

use capstan_catalog::{Catalog, Object, Pool};
use capstan_format::Volser;

use crate::DirectorError;
use crate::config::{Config, JobConfig};
use crate::keep::KeepRule;
use crate::lifetime::{Lifetime, LifetimeSpan};
use crate::pools::DEFAULT_POOL;
use crate::request::Retention;

impl Lifetime {
    /// What is made with this retention, for a policy with this rule, into this pool.
    pub(crate) fn of(retention: Retention, rule: Option<&KeepRule>, pool: &Pool) -> Self {
        match retention {
            _ if rule.is_some() => rule.map_or(Self::ENDLESS, KeepRule::lifetime),
            Retention::OfPool => {
                pool.retention_ns.map_or(Self::ENDLESS, |ns| Self::of_ns(i64::try_from(ns).unwrap_or(i64::MAX)))
            }
            Retention::For(ns) => Self::of_ns(ns),
            Retention::ByRule => Self::ENDLESS,
        }
    }

    /// Of what a job or policy makes; for ever, if there is no such pool.
    pub fn of_job(job: &JobConfig, pools: &[Pool]) -> Self {
        let name = job.pool.as_deref().unwrap_or(DEFAULT_POOL);
        let pool = pools.iter().find(|pool| pool.name == name);
        pool.map_or(Self::ENDLESS, |pool| Self::of(Retention::of_job(job), job.keep.as_ref(), pool))
    }

    pub(crate) fn of_object(object: &Object, config: &Config) -> Self {
        let rule = config.jobs.get(&object.policy).and_then(|job| job.keep);
        let own = match object.expires_ns {
            0 => Self::ENDLESS,
            expires_ns => Self::of_ns(expires_ns.saturating_sub(object.started_ns)),
        };
        rule.map_or(own, |rule| rule.lifetime())
    }
}

/// The lifetimes of the volumes that are being filled; none of those on which nothing lives.
pub(crate) fn lifetimes_of_volumes(
    catalog: &Catalog,
    config: &Config,
) -> Result<HashMap<Volser, LifetimeSpan>, DirectorError> {
    let mut lifetimes: HashMap<Volser, LifetimeSpan> = HashMap::new();
    for kept in catalog.kept_on_volumes()? {
        let rule = config.jobs.get(&kept.policy).and_then(|job| job.keep);
        let by_retention =
            || LifetimeSpan { shortest: Lifetime::of_ns(kept.shortest_ns), longest: Lifetime::of_ns(kept.longest_ns) };
        let own = rule.map_or_else(by_retention, |rule| LifetimeSpan::of(rule.lifetime()));
        lifetimes.entry(kept.volser).and_modify(|known| *known = known.with(own)).or_insert(own);
    }
    Ok(lifetimes)
}
