//! Copies that are forgotten while their objects stay.
//!
//! Each copy has its own end. A backup's own copies, in the pools that its policy writes to, end by that policy's keep
//! rule, or when their volumes say. A copy in the pool of a policy of copies ends once that policy does not keep it any
//! more, and not before its volumes say; if the policy says nothing, it ends with its object. Any other copy ends when
//! its volumes say. An object is kept as long as one of its copies, and so is what it stands on.
//!
//! - A copy whose end has come is forgotten if another one is whole whose end has not. One that something stands on in
//!   the same pool has no end.
//! - Where a policy of copies migrates, a backup's own copies are forgotten once they are old enough and the copy of
//!   that policy is whole, whatever their own end is; but not before the other policies of copies have theirs.
//! - What a policy of copies with a retention or rule has yet to copy stays until it is copied.
//! - No copy is forgotten while its retention is locked, or while a restore of the queue gives its object back.
//! - The last whole copy of an object is never forgotten here.

use std::collections::{HashMap, HashSet};

use capstan_catalog::{CopyEnd, Object, ObjectStatus};
use capstan_format::ObjectId;

use super::{ExpiryRequest, ExpirySnapshot, Ruling};
use crate::config::JobConfig;
use crate::copy_terms::{BY_RULE, CopyLifetime};
use crate::keep::{BackupsOfSources, KeepRule};
use crate::retention_lock::{ends_at, is_locked_until};

/// What a policy of copies says of how long copies are kept.
#[derive(Debug, Clone)]
pub struct CopyingPolicy {
    /// Its name.
    pub name: String,
    /// Where its copies are.
    pub pool: String,
    /// The policies whose backups it copies.
    pub copies_of: Vec<String>,
    /// How long it keeps them.
    pub keeps: CopyLifetime,
    /// How old a backup is when its own copies are forgotten.
    pub migrate_after_ns: Option<i64>,
    /// Whether they are forgotten only where their disk needs room.
    pub migrates_for_room: bool,
    /// Whether its runs come; nobody waits for those of one that is switched off.
    pub is_on: bool,
}

/// A copy that is forgotten while its object stays.
#[derive(Debug, Clone)]
pub struct ForgottenCopy {
    /// The object.
    pub object: Object,
    /// The copy's number.
    pub copy: u8,
    /// The pool that it is in.
    pub pool: String,
    /// The policy of copies that has taken its place; `None` where its time is over.
    pub migrated_by: Option<String>,
    /// The pool of a copy that is whole, and stays.
    pub stays_in: String,
}

/// Whose word counts for when a copy ends.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Terms {
    /// The backup's: it is one of its own copies, or one that is kept as long as its object.
    Own { in_its_pools: bool },
    /// That of its volumes.
    Recorded,
    /// That of a policy of copies, by its place among them.
    Policy(usize),
}

/// A copy, and whether its end has come.
struct Judged<'a> {
    end: &'a CopyEnd,
    terms: Terms,
    is_over: bool,
}

/// The copies of objects, and whether the end of each has come.
pub(super) struct JudgedCopies<'a> {
    copies: HashMap<ObjectId, Vec<Judged<'a>>>,
    /// Objects that some policy of copies has yet to copy.
    awaited: HashSet<ObjectId>,
    /// Those of them that it keeps by terms of its own.
    owed: HashSet<ObjectId>,
}

impl JudgedCopies<'_> {
    /// Whether the end of all copies of a complete object has come; `None` where nobody knows of any.
    pub(super) fn are_over(&self, object: &Object) -> Option<bool> {
        let copies = self.copies.get(&object.id).filter(|_| object.status == ObjectStatus::Complete)?;
        Some(copies.iter().all(|copy| copy.is_over))
    }

    /// Whether a policy of copies that a request takes decides on a copy of an object.
    pub(super) fn are_chosen(&self, object: ObjectId, known: &ExpirySnapshot, request: &ExpiryRequest) -> bool {
        let takes = |copy: &Judged<'_>| match copy.terms {
            Terms::Policy(policy) => request.policies.takes(&known.copying[policy].name),
            Terms::Own { .. } | Terms::Recorded => false,
        };
        self.copies.get(&object).is_some_and(|copies| copies.iter().any(takes))
    }

    /// Whether a policy of copies has yet to copy an object, to keep it longer.
    pub(super) fn is_owed(&self, object: ObjectId) -> bool {
        self.owed.contains(&object)
    }
}

/// Keep rules by policy.
type Rules = HashMap<String, KeepRule>;

impl CopyingPolicy {
    /// A policy, if it is one of copies.
    pub(super) fn of(name: &str, job: &JobConfig) -> Option<Self> {
        job.is_of_copies().then(|| Self {
            name: name.to_owned(),
            pool: job.first_pool().to_owned(),
            copies_of: job.copies_of.clone(),
            keeps: CopyLifetime::of(job),
            migrate_after_ns: job.migrate_after_ns(),
            migrates_for_room: job.migrates_for_room(),
            is_on: !job.is_switched_off(),
        })
    }

    fn copies(&self, object: &Object) -> bool {
        self.copies_of.contains(&object.policy)
    }

    /// Whether it says how long its copies are kept.
    fn has_terms(&self, rules: &Rules) -> bool {
        self.keeps.has_retention() || rules.contains_key(&self.name)
    }

    /// Of which objects it would make a copy now.
    fn wants(&self, known: &ExpirySnapshot, rules: &Rules) -> HashSet<ObjectId> {
        let is_copied = |object: &&Object| object.status == ObjectStatus::Complete && self.copies(object);
        let lifetime = self.keeps.with_rule(rules.get(&self.name).copied());
        lifetime.kept(known.objects.iter().filter(is_copied), &known.timeline, &known.zone)
    }

    /// Of which objects its rule keeps the copies that are there; none where it has no rule. Those of which nobody
    /// knows yet when they were begun are kept. One whose copy cannot be read takes no place.
    fn kept_by_rule(&self, known: &ExpirySnapshot, rules: &Rules) -> HashSet<ObjectId> {
        let Some(rule) = rules.get(&self.name) else { return HashSet::new() };
        let whole = self.whole(known);
        let mut kept = HashSet::new();
        let mut backups = BackupsOfSources::default();
        // The latest come first.
        for object in known.objects.iter().filter(|object| self.copies(object)) {
            match known.timeline.begun(object.id).filter(|begun| begun.is_bounded) {
                None => drop(kept.insert(object.id)),
                Some(begun) if whole.contains(&object.id) => backups.add(object, begun.by_ns),
                Some(_) => {}
            }
        }
        kept.extend(backups.kept(rule, &known.zone));
        kept
    }

    /// Objects of which its pool has a copy that holds all: its runs make no other one, readable or not.
    fn there(&self, known: &ExpirySnapshot) -> HashSet<ObjectId> {
        let is_there = |end: &&CopyEnd| end.pool == self.pool && end.holds_all;
        known.copies.iter().filter(is_there).map(|end| end.object).collect()
    }

    /// Objects of which its pool has a copy that can be read.
    fn whole(&self, known: &ExpirySnapshot) -> HashSet<ObjectId> {
        let is_whole = |end: &&CopyEnd| end.pool == self.pool && end.is_whole;
        known.copies.iter().filter(is_whole).map(|end| end.object).collect()
    }
}

/// Whether a copy's volumes leave it to a rule when it ends, and its policy has one.
fn is_by_rule(known: &ExpirySnapshot, rules: &Rules, policy: usize, end: &CopyEnd) -> bool {
    is_left_open(end) && rules.contains_key(&known.copying[policy].name)
}

/// Whether a copy's volumes leave it to a rule when it ends.
fn is_left_open(end: &CopyEnd) -> bool {
    matches!(end.expires_ns, 0 | BY_RULE)
}

/// Whether a copy's volumes say that its end has come.
fn is_over_as_recorded(known: &ExpirySnapshot, end: &CopyEnd, object: &Object) -> bool {
    let at_ns = ends_at(object, end.expires_ns, &known.timeline);
    at_ns.is_some_and(|at_ns| at_ns <= known.timeline.reading().now_ns)
}

/// Judges all copies, by what keep rules say of the objects.
pub(super) fn judge<'a>(
    known: &'a ExpirySnapshot,
    rules: &Rules,
    request: &ExpiryRequest,
    ruled: &HashMap<ObjectId, Ruling>,
) -> JudgedCopies<'a> {
    let mut ends: HashMap<ObjectId, Vec<&CopyEnd>> = HashMap::new();
    for end in &known.copies {
        ends.entry(end.object).or_default().push(end);
    }
    let (mut awaited, mut owed, mut kept) = (HashSet::new(), HashSet::new(), Vec::new());
    for policy in &known.copying {
        let (mut wanted, there) = (policy.wants(known, rules), policy.there(known));
        let lacking = wanted.iter().copied().filter(|object| policy.is_on && !there.contains(object));
        awaited.extend(lacking.clone());
        if policy.has_terms(rules) {
            owed.extend(lacking);
        }
        wanted.extend(policy.kept_by_rule(known, rules));
        kept.push(wanted);
    }
    let mut copies = HashMap::new();
    for object in &known.objects {
        let Some(ends) = ends.get(&object.id) else { continue };
        let is_chosen = request.policies.takes(&object.policy);
        let judge = |end: &&'a CopyEnd| {
            let terms = terms_of(known, rules, end, object);
            let is_over = match terms {
                Terms::Own { in_its_pools } if is_chosen => {
                    let is_over = ruled.get(&object.id).map_or_else(
                        || is_over_as_recorded(known, end, object),
                        |ruling| matches!(ruling, Ruling::Goes),
                    );
                    // A longer end that was recorded once is kept, whatever its policy has become.
                    let is_for_ever = end.expires_ns == 0;
                    is_over && (in_its_pools || is_for_ever || is_over_as_recorded(known, end, object))
                }
                Terms::Recorded if is_chosen => is_over_as_recorded(known, end, object),
                Terms::Own { .. } | Terms::Recorded => false,
                Terms::Policy(policy) => {
                    request.policies.takes(&known.copying[policy].name)
                        && !kept[policy].contains(&object.id)
                        && (is_by_rule(known, rules, policy, end) || is_over_as_recorded(known, end, object))
                }
            };
            Judged { end, terms, is_over }
        };
        let mut own: Vec<Judged<'_>> = ends.iter().map(judge).collect();
        // What is kept as long as its object goes with what decides on that.
        let with_object = Terms::Own { in_its_pools: false };
        let others_stay = own.iter().any(|copy| copy.terms != with_object && !copy.is_over);
        own.iter_mut().filter(|copy| copy.terms == with_object).for_each(|copy| copy.is_over &= !others_stay);
        copies.insert(object.id, own);
    }
    JudgedCopies { copies, awaited, owed }
}

fn terms_of(known: &ExpirySnapshot, rules: &Rules, end: &CopyEnd, object: &Object) -> Terms {
    if known.own_pools.get(&object.policy).is_some_and(|pools| pools.contains(&end.pool)) {
        return Terms::Own { in_its_pools: true };
    }
    let makes = |policy: &CopyingPolicy| policy.pool == end.pool && policy.copies(object);
    let with_terms = known.copying.iter().position(|policy| makes(policy) && policy.has_terms(rules));
    match with_terms {
        Some(policy) => Terms::Policy(policy),
        None if known.copying.iter().any(makes) => Terms::Own { in_its_pools: false },
        // Only what a keep rule decides on has no end.
        None if end.expires_ns == 0 => Terms::Own { in_its_pools: false },
        None => Terms::Recorded,
    }
}

/// Objects of which a policy of copies keeps a copy that is whole, and that its volumes do not keep longer anyway.
pub(super) fn kept_by_policy(known: &ExpirySnapshot, policy: &CopyingPolicy, rules: &Rules) -> HashSet<ObjectId> {
    let mut kept = policy.wants(known, rules);
    kept.extend(policy.kept_by_rule(known, rules));
    let objects: HashMap<ObjectId, &Object> = known.objects.iter().map(|object| (object.id, object)).collect();
    let is_kept = |end: &&CopyEnd| {
        let object = objects.get(&end.object).filter(|object| policy.copies(object));
        let is_open = |object: &&Object| is_left_open(end) || is_over_as_recorded(known, end, object);
        end.pool == policy.pool && end.is_whole && kept.contains(&end.object) && object.is_some_and(is_open)
    };
    known.copies.iter().filter(is_kept).map(|end| end.object).collect()
}

/// The copies that are forgotten of objects that stay.
pub(super) fn forgotten_copies(
    known: &ExpirySnapshot,
    judged: &JudgedCopies<'_>,
    request: &ExpiryRequest,
    forget: &[Object],
) -> Vec<ForgottenCopy> {
    let going: HashSet<ObjectId> = forget.iter().map(|object| object.id).collect();
    // Pools in which something that stands on an object has a copy.
    let mut needed: HashMap<ObjectId, HashSet<&str>> = HashMap::new();
    let mut forgotten = Vec::new();
    // The latest first: an object before what it stands on.
    for object in known.objects.iter().filter(|object| !going.contains(&object.id)) {
        let Some(copies) = judged.copies.get(&object.id) else { continue };
        let needed_in = needed.remove(&object.id).unwrap_or_default();
        let has_end = |copy: &Judged<'_>| copy.is_over && !needed_in.contains(&*copy.end.pool);
        // An object that stays, whatever its time, has all that is there of it.
        let none_stays = copies.iter().all(has_end);
        let mut stay: Vec<&Judged<'_>> = copies.iter().collect();
        for copy in copies.iter().filter(|_| object.status == ObjectStatus::Complete) {
            let others = || {
                let is_other = |other: &&&Judged<'_>| other.end.copy != copy.end.copy && other.end.is_whole;
                stay.iter().filter(is_other).filter(|other| none_stays || !has_end(other))
            };
            let ended = || others().find(|_| has_end(copy) && !none_stays).map(|other| (None, other));
            let migrated = || {
                if judged.awaited.contains(&object.id) {
                    return None;
                }
                // One that migrates in any case goes first.
                let mut policies: Vec<_> = migrated_by(known, request, object, copy).collect();
                policies.sort_by_key(|policy| policy.migrates_for_room);
                policies.into_iter().find_map(|policy| {
                    let other = others().find(|other| other.end.pool == policy.pool)?;
                    Some((Some(policy.name.clone()), other))
                })
            };
            let Some((migrated_by, other)) = ended().or_else(migrated) else { continue };
            let is_locked = is_locked_until(object, copy.end.expires_ns, &known.timeline).is_some();
            if is_locked || known.restored.contains(&object.id) {
                continue;
            }
            let (pool, stays_in) = (copy.end.pool.clone(), other.end.pool.clone());
            forgotten.push(ForgottenCopy { object: object.clone(), copy: copy.end.copy, pool, migrated_by, stays_in });
            stay.retain(|other| other.end.copy != copy.end.copy);
        }
        if let Some(base) = object.base {
            needed.entry(base).or_default().extend(stay.iter().map(|copy| &*copy.end.pool));
            // Where what stands for its base has no whole copy, the base is needed itself.
            let has = |pool: &str| {
                let own = judged.copies.get(&base).map_or(&[][..], Vec::as_slice);
                own.iter().any(|copy| copy.end.pool == pool && copy.end.is_whole)
            };
            if let Some(made_on) = object.made_on.filter(|made_on| *made_on != base) {
                let pools = stay.iter().map(|copy| &*copy.end.pool).filter(|pool| !has(pool));
                needed.entry(made_on).or_default().extend(pools);
            }
        }
    }
    forgotten
}

/// Leaves what is not claimed to the next run, and what its objects stand on in the same pools.
pub(super) fn leave_what_is_claimed_elsewhere(
    copies: &mut Vec<ForgottenCopy>,
    mut goes: impl FnMut(&ForgottenCopy) -> bool,
    stay: &[Object],
) {
    // What stays in all pools, and what does in one.
    let mut bases: HashSet<ObjectId> = stay.iter().filter_map(|object| object.base).collect();
    let mut bases_in: HashSet<(ObjectId, String)> = HashSet::new();
    // An object comes before what it stands on.
    copies.retain(|copy| {
        let place = (copy.object.id, copy.pool.clone());
        let is_migrated = copy.migrated_by.is_some();
        let is_needed = !is_migrated && (bases.contains(&copy.object.id) || bases_in.contains(&place));
        let is_free = goes(copy) && !is_needed;
        if let (false, Some(base)) = (is_free, copy.object.base) {
            bases_in.insert((base, place.1));
            if bases.contains(&copy.object.id) {
                bases.insert(base);
            }
        }
        is_free
    });
}

/// The policies of copies that take the place of a copy now: it is one of the backup's own, and old enough.
fn migrated_by<'a>(
    known: &'a ExpirySnapshot,
    request: &'a ExpiryRequest,
    object: &'a Object,
    copy: &Judged<'_>,
) -> impl Iterator<Item = &'a CopyingPolicy> {
    let is_own = copy.terms == Terms::Own { in_its_pools: true };
    let begun = known.timeline.begun(object.id).filter(|begun| is_own && begun.is_bounded);
    let age_ns = begun.map(|begun| known.timeline.reading().now_ns.saturating_sub(begun.by_ns));
    known.copying.iter().filter(move |policy| {
        let is_old = policy.migrate_after_ns.zip(age_ns).is_some_and(|(after_ns, age_ns)| age_ns >= after_ns);
        is_old && policy.copies(object) && request.policies.takes(&policy.name)
    })
}

#[cfg(test)]
#[path = "copies/tests.rs"]
mod tests;
