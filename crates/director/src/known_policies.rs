//! The policies as they were read last. A server asks for them at each look and at each step of each run: they are read
//! from their texts anew only where something changed that they follow from.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};

use capstan_catalog::{MemberLabel, PolicyText, Pool};

use crate::config::{Config, JobConfig};
use crate::shared::locked;

/// A policy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BackupPolicy {
    /// Its name.
    pub name: String,
    /// What it says.
    pub config: JobConfig,
    /// Why it cannot be run here, if it cannot.
    pub fault: Option<String>,
    /// When it was changed last, nanoseconds since 1970.
    pub changed_ns: i64,
    /// Since when it is due at the times at which it is, nanoseconds since 1970.
    pub scheduled_ns: i64,
}

/// All that policies follow from.
#[derive(PartialEq)]
pub(crate) struct PolicySources {
    pub(crate) texts: Vec<PolicyText>,
    pub(crate) labels: Vec<MemberLabel>,
    pub(crate) pools: Vec<Pool>,
    /// The settings as they are now: they name scripts.
    pub(crate) settings: Config,
    /// The machine that sources are of.
    pub(crate) client: String,
}

/// Settings in which the policies stand beside the jobs.
#[derive(Clone)]
pub(crate) struct FoldedPolicies {
    pub(crate) config: Arc<Config>,
    pub(crate) names: Arc<BTreeSet<String>>,
    pub(crate) faults: Arc<BTreeMap<String, String>>,
}

/// What was read last. Sites of one process share it.
#[derive(Default)]
pub(crate) struct KnownPolicies(Mutex<Option<Known>>);

struct Known {
    from: PolicySources,
    policies: Arc<Vec<BackupPolicy>>,
    /// What they were folded into, and what came of it.
    folded: Option<(Arc<Config>, FoldedPolicies)>,
}

impl KnownPolicies {
    /// The policies that follow from these, as `read` gives them.
    pub(crate) fn of(
        &self,
        from: PolicySources,
        read: impl FnOnce(&PolicySources) -> Vec<BackupPolicy>,
    ) -> Arc<Vec<BackupPolicy>> {
        let mut place = locked(&self.0);
        match &*place {
            Some(known) if known.from == from => Arc::clone(&known.policies),
            _ => {
                let policies = Arc::new(read(&from));
                *place = Some(Known { from, policies: Arc::clone(&policies), folded: None });
                policies
            }
        }
    }

    /// What comes of them and these settings of an open site, as `fold` gives it by the settings that they follow from;
    /// none if others were read meanwhile.
    pub(crate) fn folded(
        &self,
        policies: &Arc<Vec<BackupPolicy>>,
        opened: &Arc<Config>,
        fold: impl FnOnce(&Config) -> FoldedPolicies,
    ) -> Option<FoldedPolicies> {
        let mut place = locked(&self.0);
        let known = place.as_mut().filter(|known| Arc::ptr_eq(&known.policies, policies))?;
        // A site that was folded is folded again.
        let is_of = |(of, folded): &&(Arc<Config>, FoldedPolicies)| {
            Arc::ptr_eq(of, opened) || Arc::ptr_eq(&folded.config, opened)
        };
        if let Some((_, folded)) = known.folded.as_ref().filter(is_of) {
            return Some(folded.clone());
        }
        let folded = fold(&known.from.settings);
        known.folded = Some((Arc::clone(opened), folded.clone()));
        Some(folded)
    }
}
