//! Copies that are forgotten while their objects stay.
//!
//! Each copy has its own end. A backup's own copies, in the pools that its policy writes to, end by that policy's keep
//! rule, or when their volumes say. A copy that a policy of copies made ends by the rule of that policy, or when its
//! volumes say. An object is kept as long as one of its copies, and so is what it stands on.
//!
//! - A copy whose end has come is forgotten if another one is whole whose end has not.
//! - Where a policy of copies migrates, a backup's own copies are forgotten once they are old enough and the copy of
//!   that policy is whole, whatever their own end is; but not before the other policies of copies have theirs.
//! - No copy is forgotten while its retention is locked, while a restore of the queue gives its object back, or while
//!   an object that stands on this one has a copy in the same pool: who restores from one pool needs no other.
//! - The last whole copy of an object is never forgotten here.

use std::collections::{HashMap, HashSet};

use capstan_catalog::{CopyEnd, Object, ObjectStatus};
use capstan_format::ObjectId;

use super::{ExpiryRequest, ExpirySnapshot, Ruling};
use crate::copy_terms::CopyLifetime;
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
    /// The backup's: it is one of its own copies, or one that is kept as long as these.
    Own { in_its_pools: bool },
    /// That of its volumes.
    Recorded,
    /// The rule of this policy of copies, by its place among them.
    Rule(usize),
}

/// A copy, and whether its end has come.
pub(super) struct Judged<'a> {
    end: &'a CopyEnd,
    terms: Terms,
    is_over: bool,
}

/// The copies of objects, and whether the end of each has come.
pub(super) struct JudgedCopies<'a>(HashMap<ObjectId, Vec<Judged<'a>>>);

impl JudgedCopies<'_> {
    /// Whether the end of all copies of a complete object has come; `None` where nobody knows of any.
    pub(super) fn are_over(&self, object: &Object) -> Option<bool> {
        let copies = self.0.get(&object.id).filter(|_| object.status == ObjectStatus::Complete)?;
        Some(copies.iter().all(|copy| copy.is_over))
    }
}

/// Judges all copies, by what keep rules say of the objects.
pub(super) fn judge<'a>(
    known: &'a ExpirySnapshot,
    rules: &HashMap<String, KeepRule>,
    request: &ExpiryRequest,
    ruled: &HashMap<ObjectId, Ruling>,
) -> JudgedCopies<'a> {
    let mut ends: HashMap<ObjectId, Vec<&CopyEnd>> = HashMap::new();
    for end in &known.copies {
        ends.entry(end.object).or_default().push(end);
    }
    let kept: Vec<_> = known.copying.iter().map(|policy| kept_by_rule(known, policy, rules, &ends)).collect();
    let now_ns = known.timeline.reading().now_ns;
    let mut judged = HashMap::new();
    for object in &known.objects {
        let own = known.own_pools.get(&object.policy);
        let judge = |end: &&'a CopyEnd| {
            let is_over_as_recorded = || {
                let expires_ns = end.expires_ns.unwrap_or(object.expires_ns);
                ends_at(object, expires_ns, &known.timeline).is_some_and(|at_ns| at_ns <= now_ns)
            };
            let terms = terms_of(end, object, (known, rules), own);
            let is_over = match terms {
                Terms::Own { .. } => {
                    request.policies.takes(&object.policy)
                        && match ruled.get(&object.id) {
                            Some(ruling) => matches!(ruling, Ruling::Goes),
                            None => is_over_as_recorded(),
                        }
                }
                Terms::Recorded => is_over_as_recorded(),
                Terms::Rule(policy) => {
                    request.policies.takes(&known.copying[policy].name)
                        && kept[policy].as_ref().is_some_and(|kept| !kept.contains(&object.id))
                }
            };
            Judged { end, terms, is_over }
        };
        if let Some(ends) = ends.get(&object.id) {
            judged.insert(object.id, ends.iter().map(judge).collect());
        }
    }
    JudgedCopies(judged)
}

fn terms_of(
    end: &CopyEnd,
    object: &Object,
    (known, rules): (&ExpirySnapshot, &HashMap<String, KeepRule>),
    own: Option<&HashSet<String>>,
) -> Terms {
    if own.is_some_and(|pools| pools.contains(&end.pool)) {
        return Terms::Own { in_its_pools: true };
    }
    let makes = |policy: &CopyingPolicy| policy.pool == end.pool && policy.copies_of.contains(&object.policy);
    match known.copying.iter().position(|policy| makes(policy) && rules.contains_key(&policy.name)) {
        Some(policy) => Terms::Rule(policy),
        // Only what a keep rule decides on has no end.
        None if end.expires_ns.unwrap_or(object.expires_ns) == 0 => Terms::Own { in_its_pools: false },
        None => Terms::Recorded,
    }
}

/// Of which objects the rule of a policy of copies keeps their copies; `None` where it has no rule. Those of which
/// nobody knows yet when they were begun are kept, and so are those whose copy is not whole.
fn kept_by_rule(
    known: &ExpirySnapshot,
    policy: &CopyingPolicy,
    rules: &HashMap<String, KeepRule>,
    ends: &HashMap<ObjectId, Vec<&CopyEnd>>,
) -> Option<HashSet<ObjectId>> {
    let rule = rules.get(&policy.name)?;
    let mut kept = HashSet::new();
    let mut backups = BackupsOfSources::default();
    // The latest come first.
    for object in known.objects.iter().filter(|object| policy.copies_of.contains(&object.policy)) {
        let own = ends.get(&object.id).map(Vec::as_slice).unwrap_or_default();
        let is_whole = own.iter().any(|end| end.pool == policy.pool && end.is_whole);
        match known.timeline.begun(object.id).filter(|begun| begun.is_bounded && is_whole) {
            None => drop(kept.insert(object.id)),
            Some(begun) => backups.add(object, begun.by_ns),
        }
    }
    kept.extend(backups.kept(rule, &known.zone));
    Some(kept)
}

/// Objects of which a policy of copies keeps a copy that is whole.
pub(super) fn kept_by_policy(
    known: &ExpirySnapshot,
    policy: &CopyingPolicy,
    rules: &HashMap<String, KeepRule>,
) -> HashSet<ObjectId> {
    let mut ends: HashMap<ObjectId, Vec<&CopyEnd>> = HashMap::new();
    for end in known.copies.iter().filter(|end| end.pool == policy.pool && end.is_whole) {
        ends.entry(end.object).or_default().push(end);
    }
    let kept = kept_by_rule(known, policy, rules, &ends);
    let copied = known.objects.iter().filter(|object| policy.copies_of.contains(&object.policy));
    let whole = copied.map(|object| object.id).filter(|id| ends.contains_key(id));
    whole.filter(|id| kept.as_ref().is_none_or(|kept| kept.contains(id))).collect()
}

/// The copies that are forgotten of objects that stay.
pub(super) fn forgotten_copies(
    known: &ExpirySnapshot,
    judged: &JudgedCopies<'_>,
    request: &ExpiryRequest,
    forget: &[Object],
) -> Vec<ForgottenCopy> {
    let going: HashSet<ObjectId> = forget.iter().map(|object| object.id).collect();
    let awaited = awaited(known);
    // Pools in which something that stands on an object has a copy.
    let mut needed: HashMap<ObjectId, HashSet<&str>> = HashMap::new();
    let mut forgotten = Vec::new();
    // The latest first: an object before what it stands on.
    for object in known.objects.iter().filter(|object| !going.contains(&object.id)) {
        let Some(copies) = judged.0.get(&object.id) else { continue };
        let mut stay: Vec<&Judged<'_>> = copies.iter().collect();
        for copy in copies.iter().filter(|_| object.status == ObjectStatus::Complete) {
            let others = || stay.iter().filter(|other| other.end.copy != copy.end.copy && other.end.is_whole);
            let ended = || others().find(|other| copy.is_over && !other.is_over).map(|other| (None, other));
            let migrated = || {
                if awaited.contains(&object.id) {
                    return None;
                }
                migrated_by(known, request, object, copy).find_map(|policy| {
                    let other = others().find(|other| other.end.pool == policy.pool)?;
                    Some((Some(policy.name.clone()), other))
                })
            };
            let Some((migrated_by, other)) = ended().or_else(migrated) else { continue };
            let is_needed = needed.get(&object.id).is_some_and(|pools| pools.contains(&*copy.end.pool));
            let expires_ns = copy.end.expires_ns.unwrap_or(object.expires_ns);
            let is_locked = is_locked_until(object, expires_ns, &known.timeline).is_some();
            if is_needed || is_locked || known.restored.contains(&object.id) {
                continue;
            }
            let (pool, stays_in) = (copy.end.pool.clone(), other.end.pool.clone());
            forgotten.push(ForgottenCopy { object: object.clone(), copy: copy.end.copy, pool, migrated_by, stays_in });
            stay.retain(|other| other.end.copy != copy.end.copy);
        }
        if let Some(base) = object.base {
            needed.entry(base).or_default().extend(stay.iter().map(|copy| &*copy.end.pool));
        }
    }
    forgotten
}

/// Objects that policies of copies have yet to copy; none where none of these migrates.
fn awaited(known: &ExpirySnapshot) -> HashSet<ObjectId> {
    let mut awaited = HashSet::new();
    if known.copying.iter().all(|policy| policy.migrate_after_ns.is_none()) {
        return awaited;
    }
    for policy in known.copying.iter().filter(|policy| policy.is_on) {
        let is_there = |end: &&CopyEnd| end.pool == policy.pool && end.is_whole;
        let there: HashSet<ObjectId> = known.copies.iter().filter(is_there).map(|end| end.object).collect();
        let is_copied =
            |object: &&Object| object.status == ObjectStatus::Complete && policy.copies_of.contains(&object.policy);
        let kept = policy.keeps.kept(known.objects.iter().filter(is_copied), &known.timeline, &known.zone);
        awaited.extend(kept.difference(&there));
    }
    awaited
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
        is_old && policy.copies_of.contains(&object.policy) && request.policies.takes(&policy.name)
    })
}

#[cfg(test)]
#[path = "copies/tests.rs"]
mod tests;
