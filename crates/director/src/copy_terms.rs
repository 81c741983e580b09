//! How long a copy is kept that is made of what was backed up before: what its record on its volumes says.

use std::collections::{BTreeMap, HashSet};

use capstan_catalog::{CopyEnd, Object, ObjectStatus, Timeline};
use capstan_format::{ObjectId, ObjectRecord};
use jiff::tz::TimeZone;

use crate::DirectorError;
use crate::config::JobConfig;
use crate::jobs::record_of;
use crate::keep::{BackupsOfSources, KeepRule};
use crate::request::Retention;
use crate::site::{Site, locked};

/// The end of a copy on which the keep rule of a policy of copies decides. Without the policy nobody decides: then it
/// is kept, whatever becomes of the backup's own copies.
pub(crate) const BY_RULE: i64 = i64::MAX;

/// The policy of copies that copies to a pool what another one has backed up.
pub(crate) fn copying<'a>(jobs: &'a BTreeMap<String, JobConfig>, policy: &str, pool: &str) -> Option<&'a JobConfig> {
    jobs.values().find(|job| job.copies_to(pool, policy))
}

/// How long a policy of copies keeps its copies.
#[derive(Debug, Clone, Copy)]
pub struct CopyLifetime {
    retention_ns: Option<i64>,
    rule: Option<KeepRule>,
}

impl CopyLifetime {
    /// As its policy says.
    pub(crate) fn of(job: &JobConfig) -> Self {
        Self { retention_ns: job.retention_ns(), rule: job.keep }
    }

    /// Whether it is by a retention.
    pub(crate) fn has_retention(self) -> bool {
        self.retention_ns.is_some()
    }

    /// The same by another rule, or by none.
    pub(crate) fn with_rule(self, rule: Option<KeepRule>) -> Self {
        Self { rule, ..self }
    }

    /// Of which of these complete objects, the latest first, it keeps a copy now, with what they stand on. What would
    /// be forgotten at once is not copied.
    pub(crate) fn kept<'a>(
        self,
        objects: impl IntoIterator<Item = &'a Object> + Clone,
        timeline: &Timeline,
        zone: &TimeZone,
    ) -> HashSet<ObjectId> {
        if self.rule.is_none() && self.retention_ns.is_none() {
            return objects.into_iter().map(|object| object.id).collect();
        }
        let mut kept = HashSet::new();
        let mut backups = BackupsOfSources::default();
        for object in objects.clone() {
            let begun = timeline.begun(object.id).filter(|begun| begun.is_bounded);
            match (self.retention_ns, begun) {
                (Some(ns), Some(begun)) if begun.by_ns.saturating_add(ns) <= timeline.reading().now_ns => {}
                (None, Some(begun)) => backups.add(object, begun.by_ns),
                // Nobody knows yet when it was begun.
                _ => drop(kept.insert(object.id)),
            }
        }
        kept.extend(backups.kept(&self.rule.unwrap_or_default(), zone));
        // An object comes before what it stands on.
        for object in objects {
            if kept.contains(&object.id) {
                kept.extend(object.base);
            }
        }
        kept
    }
}

/// Until when a copy is kept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum KeptUntil {
    /// Nothing ends it but who names its object.
    ForEver,
    /// Nanoseconds since 1970.
    At(i64),
    /// As long as the keep rule of this policy keeps it.
    Rule {
        /// The policy, or job.
        policy: String,
        /// Its rule.
        rule: KeepRule,
    },
}

impl KeptUntil {
    fn at(expires_ns: i64) -> Self {
        match expires_ns {
            0 | BY_RULE => Self::ForEver,
            at_ns => Self::At(at_ns),
        }
    }
}

/// Who makes a copy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CopyMaker {
    /// The policy of the backup: it is one of its own copies.
    Backup,
    /// A policy of copies, of this name.
    PolicyOfCopies(String),
    /// No policy of now.
    Nobody,
}

/// How long a copy of an object is kept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CopyKept {
    /// The copy's number.
    pub copy: u8,
    /// Who makes it.
    pub maker: CopyMaker,
    /// Until when.
    pub until: KeptUntil,
    /// Which policy of copies takes its place sooner, once its own copy is whole.
    pub migrates: Option<Migration>,
}

/// When a policy of copies forgets a backup's own copy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Migration {
    /// The policy.
    pub policy: String,
    /// From when on, nanoseconds since 1970.
    pub from_ns: i64,
    /// Whether it does so only while the copy's disk is filled above its mark.
    pub when_full: bool,
}

impl Site {
    /// How long each copy of an object is kept.
    ///
    /// # Errors
    /// The catalog cannot be read.
    pub fn copies_kept(&self, object: &Object) -> Result<Vec<CopyKept>, DirectorError> {
        let ends = locked(&self.catalog).copy_ends(Some(object.id))?;
        let owed = self.copies_owed_of(object)?;
        let kept = |end: &CopyEnd| {
            let until = self.kept_until(object, &end.pool, end.expires_ns);
            let migrates = self.config.jobs.iter().filter(|(_, job)| job.copies_of.contains(&object.policy));
            let is_own = self.is_own_pool(object, &end.pool);
            let from_ns = |(name, job): (&String, &JobConfig)| {
                // What was staged may come to an own pool: there it stays.
                let after_ns = job.migrate_after_ns().filter(|_| is_own && end.pool != job.first_pool())?;
                let is_there = ends.iter().any(|end| end.pool == job.first_pool());
                let comes = is_there || owed.iter().any(|owed| owed.policy == *name);
                let from_ns = object.started_ns.saturating_add(after_ns);
                comes.then(|| Migration { policy: name.clone(), from_ns, when_full: job.migrates_for_room() })
            };
            let migrates =
                migrates.filter_map(from_ns).min_by_key(|migration| (migration.when_full, migration.from_ns));
            CopyKept { copy: end.copy, maker: self.copy_maker(object, &end.pool), until, migrates }
        };
        Ok(ends.iter().map(kept).collect())
    }

    /// Who makes the copy of an object in a pool.
    pub fn copy_maker(&self, object: &Object, pool: &str) -> CopyMaker {
        let mut of_copies = self.config.jobs.iter().filter(|(_, job)| job.copies_to(pool, &object.policy));
        match of_copies.next() {
            _ if self.is_own_pool(object, pool) => CopyMaker::Backup,
            Some((policy, _)) => CopyMaker::PolicyOfCopies(policy.clone()),
            None => CopyMaker::Nobody,
        }
    }

    /// Until when a copy is kept that somebody makes of an object in a pool now.
    ///
    /// # Errors
    /// The catalog cannot be read.
    pub fn copy_kept_until(&self, object: &Object, pool: &str) -> Result<KeptUntil, DirectorError> {
        Ok(self.kept_until(object, pool, self.end_of_copy(object, pool)?))
    }

    /// Whether a policy of copies says how long its copies of an object in a pool are kept.
    pub fn has_terms_of_copies(&self, object: &Object, pool: &str) -> bool {
        let policy = copying(&self.config.jobs, &object.policy, pool);
        policy.is_some_and(|policy| policy.keep.is_some() || policy.retention.is_some())
    }

    fn is_own_pool(&self, object: &Object, pool: &str) -> bool {
        self.config.jobs.get(&object.policy).is_some_and(|job| job.own_pools().any(|own| own == pool))
    }

    /// As `expiry::copies` judges it.
    fn kept_until(&self, object: &Object, pool: &str, expires_ns: i64) -> KeptUntil {
        let rule = |policy: &String, job: &JobConfig| Some(KeptUntil::Rule { policy: policy.clone(), rule: job.keep? });
        let is_own = self.is_own_pool(object, pool);
        let mut others = self.config.jobs.iter().filter(|(_, job)| !is_own && job.copies_to(pool, &object.policy));
        let of_copies = others.clone().find(|(_, job)| job.keep.is_some() || job.retention.is_some());
        if let Some((policy, job)) = of_copies {
            let is_open = matches!(expires_ns, 0 | BY_RULE);
            let after = |ns| object.started_ns.saturating_add(ns);
            return match (job.keep, job.retention_ns()) {
                // The rule counts once the volumes do not keep it any longer.
                (Some(_), _) if !is_open && expires_ns > self.now_ns() => KeptUntil::At(expires_ns),
                (Some(rule), _) => KeptUntil::Rule { policy: policy.clone(), rule },
                // A longer retention counts for what is there, too.
                (None, Some(ns)) if !is_open => KeptUntil::At(expires_ns.max(after(ns))),
                (None, _) => KeptUntil::at(expires_ns),
            };
        }
        // Where its policy says nothing, a copy is kept as long as its object.
        let with_object = others.next().is_some();
        let expires_ns = if with_object { object.expires_ns } else { expires_ns };
        let job = self.config.jobs.get(&object.policy).filter(|_| is_own || with_object || expires_ns == 0);
        job.and_then(|job| rule(&object.policy, job)).unwrap_or_else(|| KeptUntil::at(expires_ns))
    }

    /// The record that an object has on volumes of a pool to which it is copied.
    pub(crate) fn record_of_copy(&self, object: &Object, pool: &str) -> Result<ObjectRecord, DirectorError> {
        Ok(ObjectRecord { expires_ns: self.end_of_copy(object, pool)?, ..record_of(object) })
    }

    /// Until when a copy in a pool is kept: as its policy of copies says, else as long as the backup's own copies.
    pub(crate) fn end_of_copy(&self, object: &Object, pool: &str) -> Result<i64, DirectorError> {
        // What is not complete goes on under the end that it was begun with.
        if object.status != ObjectStatus::Complete {
            return Ok(object.expires_ns);
        }
        let jobs = &self.config.jobs;
        let of_policy = copying(jobs, &object.policy, pool);
        // A rule has no end that could be locked.
        if of_policy.is_some_and(|policy| policy.keep.is_some()) && !object.is_locked {
            return Ok(BY_RULE);
        }
        let after = |ns| object.started_ns.saturating_add(ns);
        if let Some(ns) = of_policy.and_then(JobConfig::retention_ns) {
            return Ok(after(ns));
        }
        let ends = locked(&self.catalog).copy_ends(Some(object.id))?;
        let own = ends.iter().filter(|end| copying(jobs, &object.policy, &end.pool).is_none());
        let ends = own.map(|end| end.expires_ns).filter(|&at_ns| at_ns != BY_RULE);
        let shortest = ends.min_by_key(|&at_ns| if at_ns == 0 { BY_RULE } else { at_ns });
        if let Some(shortest) = shortest {
            return Ok(shortest);
        }
        // None of its own copies is left.
        let Some(job) = jobs.get(&object.policy) else { return Ok(object.expires_ns) };
        Ok(match Retention::of_job(job) {
            Retention::For(ns) => after(ns),
            Retention::ByRule => 0,
            Retention::OfPool => {
                let pool = locked(&self.catalog).pool(job.first_pool())?;
                let ns = pool.and_then(|pool| pool.retention_ns).and_then(|ns| i64::try_from(ns).ok());
                ns.map_or(0, after)
            }
        })
    }
}
