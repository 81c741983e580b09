//! What policies no longer keep because their keep rules have changed.
//!
//! A keep rule judges all objects of its policy anew at each expiry, also those that were made under an earlier rule:
//! one wrong number in it takes nearly all of them at once. So the catalog has the rule by which each policy expired
//! last. What goes by the rule of now and would stay by that one is a reduction, and a server makes no large one
//! unasked. What goes day by day by the same rule is none, however short the rule is and however much goes.
//!
//! A retention needs no such guard: the end of each object was recorded when it was made, and a change of the setting
//! moves it for none. Rejected: to count what goes of each policy, whatever the reason, as is done for all objects
//! together. A policy that runs each hour and keeps the last few loses most of its objects each day, as it should.

use std::collections::{BTreeMap, HashSet};
use std::fmt;

use capstan_catalog::{Catalog, Object, ObjectFilter, ObjectStatus, PolicyText};
use capstan_format::ObjectId;
use jiff::Timestamp;
use jiff::tz::TimeZone;

use super::copies::{CopyingPolicy, kept_by_policy};
use super::{ExpiryPlan, ExpiryRequest, ExpirySnapshot, ForgottenCopy, Kept, PolicyChoice, plan_by, plan_expiry};
use crate::DirectorError;
use crate::config::JobConfig;
use crate::keep::KeepRule;
use crate::known_policies::BackupPolicy;
use crate::policies::{PolicyChange, PolicyChanges};
use crate::site::{Site, locked};

/// The catalog's fact with the rule by which each policy expired last, as JSON; null for a policy that had none.
pub(crate) const KEEP_RULES_FACT: &str = "keep rules";

/// Rules by policy; none for a policy without one.
type KeepRules = BTreeMap<String, Option<KeepRule>>;

/// What a policy no longer keeps since its rule is another one.
#[derive(Debug, Clone)]
pub struct KeepReduction {
    /// The policy.
    pub policy: String,
    /// Complete objects that its earlier rule keeps and this one does not, the latest first; of a policy of copies,
    /// those of which it keeps its copies.
    pub lost: Vec<Object>,
    /// How many of them stay for now, mostly because objects that are kept are based on them.
    pub later: usize,
    /// How many complete objects the earlier rule keeps.
    pub kept_before: usize,
}

impl KeepReduction {
    /// Whether it takes so much that somebody should be asked.
    pub fn takes_most(&self) -> bool {
        self.lost.len() * 2 > self.kept_before
    }

    /// What to say, beside the policy's name, to whoever changes the rule.
    pub fn change_text(&self) -> String {
        let policy = &self.policy;
        match self.takes_most() {
            true => format!(
                "it {self}. That is most of them: the server does not forget them by itself, `capstan expire --policy \
                 {policy}` at its machine does"
            ),
            false => format!(
                "it {self}. The next expiry forgets them, unless the policy has its earlier `keep` or `retention` \
                 again by then"
            ),
        }
    }

    /// What to say where nothing of the policy expires unasked because of it.
    pub fn held_text(&self) -> String {
        let policy = &self.policy;
        format!(
            "policy {policy} {self}. The server expires nothing of it by itself. If that is meant, run `capstan expire \
             --policy {policy}` (--dry-run shows what goes); if not, give the policy its earlier `keep` or `retention` \
             again"
        )
    }
}

/// How much it takes, without the policy's name.
impl fmt::Display for KeepReduction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let bytes = self.lost.iter().map(|object| object.counts.unwrap_or_default().bytes).fold(0, u64::saturating_add);
        let (count, before) = (self.lost.len(), self.kept_before);
        let backups = if before == 1 { "backup" } else { "backups" };
        write!(f, "keeps less than before: of {before} {backups} that it kept, {count} can go ({}", size(bytes))?;
        if let Some(oldest) = self.lost.last() {
            write!(f, ", the oldest of {}", day(oldest.started_ns))?;
        }
        f.write_str(")")?;
        match self.later {
            0 => Ok(()),
            later => write!(f, ", {later} of them once nothing that is kept is based on them"),
        }
    }
}

/// `12.3 GiB`.
fn size(bytes: u64) -> String {
    let units = [("TiB", 40), ("GiB", 30), ("MiB", 20), ("KiB", 10)];
    let Some((unit, shift)) = units.into_iter().find(|(_, shift)| bytes >> shift > 0) else {
        return format!("{bytes} B");
    };
    let tenths = (u128::from(bytes) * 10) >> shift;
    format!("{}.{} {unit}", tenths / 10, tenths % 10)
}

fn day(ns: i64) -> String {
    let time = Timestamp::from_nanosecond(ns.into()).unwrap_or_default();
    time.to_zoned(TimeZone::system()).strftime("%Y-%m-%d").to_string()
}

/// What policies no longer keep since they have other rules than those by which they expired last.
pub(super) fn reductions(known: &ExpirySnapshot, request: &ExpiryRequest, plan: &ExpiryPlan) -> Vec<KeepReduction> {
    if known.earlier_rules.is_empty() {
        return Vec::new();
    }
    let mut rules = known.rules.clone();
    for (policy, rule) in &known.earlier_rules {
        match rule {
            Some(rule) => rules.insert(policy.clone(), *rule),
            None => rules.remove(policy),
        };
    }
    let lets_go = |plan: &ExpiryPlan| -> HashSet<ObjectId> {
        let not_last = plan.kept.iter().filter(|(_, why)| *why != Kept::Last).map(|(object, _)| object.id);
        let is_own = |copy: &&ForgottenCopy| {
            let own = known.own_pools.get(&copy.object.policy).is_some_and(|pools| pools.contains(&copy.pool));
            own && copy.migrated_by.is_none()
        };
        // Where a further copy stays, a rule takes the backup's own one.
        let own = plan.copies.iter().filter(is_own).map(|copy| copy.object.id);
        plan.forget.iter().map(|object| object.id).chain(not_last).chain(own).collect()
    };
    let (before, now) = (lets_go(&plan_by(known, &rules, request)), lets_go(plan));
    let copies = plan.copies.iter().map(|copy| copy.object.id);
    let goes_now: HashSet<ObjectId> = plan.forget.iter().map(|object| object.id).chain(copies).collect();
    let reduction_of_copies = |policy: &CopyingPolicy| {
        let (before, now) = (kept_by_policy(known, policy, &rules), kept_by_policy(known, policy, &known.rules));
        let lost = known.objects.iter().filter(|object| before.contains(&object.id) && !now.contains(&object.id));
        let lost: Vec<Object> = lost.cloned().collect();
        let later = lost.iter().filter(|object| !goes_now.contains(&object.id)).count();
        let (policy, kept_before) = (policy.name.clone(), before.len());
        (!lost.is_empty()).then_some(KeepReduction { policy, lost, later, kept_before })
    };
    let reduction = |policy: &String| {
        if let Some(copying) = known.copying.iter().find(|copying| copying.name == *policy) {
            return reduction_of_copies(copying);
        }
        let was_kept = |object: &&Object| {
            object.policy == *policy && object.status == ObjectStatus::Complete && !before.contains(&object.id)
        };
        let kept_before: Vec<_> = known.objects.iter().filter(was_kept).collect();
        let lost = kept_before.iter().copied().filter(|object| now.contains(&object.id));
        let lost: Vec<Object> = lost.cloned().collect();
        let later = lost.iter().filter(|object| !goes_now.contains(&object.id)).count();
        let kept_before = kept_before.len();
        (!lost.is_empty()).then(|| KeepReduction { policy: policy.clone(), lost, later, kept_before })
    };
    known.earlier_rules.keys().filter_map(reduction).collect()
}

/// What a server has expire by itself.
#[derive(Debug)]
pub struct UnaskedExpiry {
    /// What goes.
    pub plan: ExpiryPlan,
    /// What the plan is the answer to.
    pub request: ExpiryRequest,
    /// Policies of which nothing goes, because most of what they kept would.
    pub held: Vec<KeepReduction>,
}

/// What a server has expire by itself. A pure function.
pub(super) fn plan_unasked(known: &ExpirySnapshot) -> UnaskedExpiry {
    let mut request = ExpiryRequest::default();
    let mut plan = plan_expiry(known, &request);
    let held: Vec<_> = plan.reductions.iter().filter(|reduction| reduction.takes_most()).cloned().collect();
    if !held.is_empty() {
        request.policies = PolicyChoice::AllBut(held.iter().map(|reduction| reduction.policy.clone()).collect());
        plan = plan_expiry(known, &request);
    }
    UnaskedExpiry { plan, request, held }
}

fn rules_noted(catalog: &Catalog) -> Result<KeepRules, DirectorError> {
    let text = catalog.fact(KEEP_RULES_FACT)?.unwrap_or_default();
    // What cannot be read, as where a later version wrote it, is noted anew by the next expiry.
    Ok(serde_json::from_str(&text).unwrap_or_default())
}

/// The keep rule of a policy as it was written.
fn keep_of(policy: &PolicyText) -> Option<KeepRule> {
    toml::from_str::<JobConfig>(&policy.text).ok().and_then(|policy| policy.keep)
}

fn note(catalog: &mut Catalog, before: &KeepRules, now: &KeepRules) -> Result<(), DirectorError> {
    if before != now {
        catalog.put_fact(KEEP_RULES_FACT, &serde_json::to_string(now).unwrap_or_default())?;
    }
    Ok(())
}

impl Site {
    /// What would be forgotten now without anybody being asked.
    ///
    /// # Errors
    /// The catalog cannot be read.
    pub fn plan_unasked_expiry(&self) -> Result<UnaskedExpiry, DirectorError> {
        Ok(plan_unasked(&self.expiry_snapshot(self.now_ns())?))
    }

    /// What policies would no longer keep if they were changed as planned: what the next expiry forgets, or has to be
    /// asked for, and what the rules by which they expired last keep.
    ///
    /// # Errors
    /// The catalog cannot be read.
    pub fn reductions_of_change(&self, plan: &PolicyChanges) -> Result<Vec<KeepReduction>, DirectorError> {
        let after = self.planned_policies(plan)?;
        let noted = rules_noted(&locked(&self.catalog))?;
        let (mut earlier_rules, mut now) = (KeepRules::new(), KeepRules::new());
        for PolicyChange { name, .. } in &plan.changes {
            let before = plan.seen().iter().find(|seen| seen.name == *name).map(keep_of);
            let rule = after.iter().find(|policy| policy.name == *name).and_then(|policy| policy.config.keep);
            // A policy of copies that is new here may stand where another one stood.
            let is_of_copies = after.iter().any(|policy| policy.name == *name && policy.config.is_of_copies());
            let earlier = noted.get(name).copied().or(before).or(is_of_copies.then_some(None));
            let earlier = earlier.filter(|earlier| *earlier != rule);
            if before != Some(rule) {
                earlier_rules.extend(earlier.map(|earlier| (name.clone(), earlier)));
            }
            now.insert(name.clone(), rule);
        }
        if earlier_rules.is_empty() {
            return Ok(Vec::new());
        }
        let mut known = self.expiry_snapshot(self.now_ns())?;
        known.rules.retain(|policy, _| !now.contains_key(policy));
        known.copying.retain(|policy| !now.contains_key(&policy.name));
        known.copying.extend(after.iter().filter_map(|policy| CopyingPolicy::of(&policy.name, &policy.config)));
        known.rules.extend(now.into_iter().filter_map(|(policy, rule)| Some((policy, rule?))));
        let known = ExpirySnapshot { earlier_rules, ..known };
        Ok(plan_expiry(&known, &ExpiryRequest::default()).reductions)
    }

    /// Notes by which rules policies expired, where there was nothing to forget.
    ///
    /// # Errors
    /// The catalog cannot be written.
    pub fn nothing_expired(&self, request: &ExpiryRequest) -> Result<(), DirectorError> {
        let _presence = self.presence()?;
        self.note_rules(&mut locked(&self.catalog), &request.policies)
    }

    /// The rules by which policies expired last that have others now.
    pub(super) fn other_rules_before(&self, catalog: &Catalog) -> Result<KeepRules, DirectorError> {
        let mut rules = rules_noted(catalog)?;
        // Nobody has agreed yet to what a new policy of copies takes from a pool that has copies already.
        for (policy, _) in self.config.jobs.iter().filter(|(_, job)| job.is_of_copies()) {
            rules.entry(policy.clone()).or_insert(None);
        }
        rules.retain(|policy, rule| *rule != self.rule_of(policy));
        Ok(rules)
    }

    /// Notes the rules of now as those by which these policies expired.
    pub(super) fn note_rules(&self, catalog: &mut Catalog, policies: &PolicyChoice) -> Result<(), DirectorError> {
        let before = rules_noted(catalog)?;
        let names: Vec<_> = before.keys().chain(self.config.jobs.keys()).filter(|name| policies.takes(name)).collect();
        let mut now = before.clone();
        now.extend(names.into_iter().map(|name| (name.clone(), self.rule_of(name))));
        // A removed policy is known as long as it has objects: it may come again, with another rule.
        let gone: Vec<_> = now.keys().filter(|name| !self.config.jobs.contains_key(*name)).cloned().collect();
        for policy in gone {
            let of_policy = ObjectFilter { policy: Some(policy.clone()), ..ObjectFilter::default() };
            if catalog.objects(&of_policy)?.is_empty() {
                now.remove(&policy);
            }
        }
        note(catalog, &before, &now)
    }

    /// Notes the rules of policies that are about to change, where no expiry has noted any yet.
    pub(crate) fn note_rules_before<'a>(
        catalog: &mut Catalog,
        changing: impl IntoIterator<Item = &'a BackupPolicy>,
    ) -> Result<(), DirectorError> {
        let before = rules_noted(catalog)?;
        let mut now = before.clone();
        for policy in changing {
            now.entry(policy.name.clone()).or_insert(policy.config.keep);
        }
        note(catalog, &before, &now)
    }

    /// Notes the rules of policies of copies that are new, and whose pools have no copies that they could take.
    pub(crate) fn note_rules_of_new<'a>(
        &self,
        catalog: &mut Catalog,
        new: impl Iterator<Item = &'a BackupPolicy>,
    ) -> Result<(), DirectorError> {
        let before = rules_noted(catalog)?;
        let mut now = before.clone();
        for policy in new.filter(|policy| policy.config.is_of_copies()) {
            if catalog.copies_wanted_in(policy.config.first_pool())? == 0 {
                now.insert(policy.name.clone(), policy.config.keep);
            }
        }
        note(catalog, &before, &now)
    }

    fn rule_of(&self, policy: &str) -> Option<KeepRule> {
        self.config.jobs.get(policy).and_then(|job| job.keep)
    }
}
