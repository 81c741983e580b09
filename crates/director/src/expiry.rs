//! Expiry: which objects may be forgotten. A pure function of what is known; the dry run shows its plan, the run
//! carries it out.
//!
//! What is kept whatever its retention says:
//! - the last objects of a source that can be restored, unless the source is said to be gone: who stops a backup has
//!   not asked for the last one to be thrown away;
//! - what a living object stands on;
//! - everything, while the clock is in doubt: a year that is wrong ends every retention;
//! - an object whose retention is locked, until that ends.
//!
//! Retention counts from the moment an object was begun; for one whose clock was in doubt, from the first believed
//! record behind it, and while there is none it does not end.
//!
//! Where the job of an object has a keep rule, that decides instead of a retention: what the rule does not keep of the
//! job's backups of a source on a host may be forgotten. What cannot be restored in full takes no place in a rule from
//! what can, and is kept where it would have had one. An interrupted object, which has none, goes once there is a later
//! complete one of its source, which no run goes on with.

mod copies;
mod for_room;
mod reduction;
mod undo;

use std::collections::{BTreeMap, HashMap, HashSet};

use capstan_catalog::{
    Catalog, ClockReading, CopyEnd, GoneSource, MediumKind, Object, ObjectFilter, ObjectStatus, Resource, Timeline,
    Volume, VolumeState, Wish,
};
use capstan_format::{ObjectId, ObjectKind, Volser, VolumeId};
use jiff::tz::TimeZone;

pub use self::copies::{CopyingPolicy, ForgottenCopy};
use self::copies::{forgotten_copies, judge, leave_what_is_claimed_elsewhere};
pub use self::for_room::FullFolders;
use self::for_room::leave_where_there_is_room;
pub(crate) use self::reduction::KEEP_RULES_FACT;
pub use self::reduction::{KeepReduction, UnaskedExpiry};
pub use self::undo::Unexpired;
use crate::clock::distance;
use crate::config::JobConfig;
use crate::error::until_words;
use crate::hold::Hold;
use crate::keep::{KeepRule, KeptBy};
use crate::keys::volumes_without_key;
use crate::retention_lock::{keeps_until, locked_until};
use crate::site::{Site, locked};
use crate::{DirectorError, Event};

/// Copies that are forgotten in one transaction.
const COPIES_AT_ONCE: usize = 500;

/// What is to be forgotten.
#[derive(Debug, Clone)]
pub struct ExpiryRequest {
    /// These objects, whatever their retention; none for all whose retention has ended.
    pub named: Vec<ObjectId>,
    /// Where no objects are named: of which policies.
    pub policies: PolicyChoice,
    /// How many of the last objects of a source are kept.
    pub keep_last: usize,
    /// Whether the clock is taken to be right although it is in doubt.
    pub trust_clock: bool,
    /// Sources that are said to be gone now, beside those that were before.
    pub gone: Vec<GoneSource>,
}

impl Default for ExpiryRequest {
    fn default() -> Self {
        let (named, policies) = (Vec::new(), PolicyChoice::All);
        Self { named, policies, keep_last: 1, trust_clock: false, gone: Vec::new() }
    }
}

/// Policies whose objects may be forgotten.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PolicyChoice {
    /// All of them.
    All,
    /// These.
    Only(Vec<String>),
    /// All but these.
    AllBut(Vec<String>),
}

impl PolicyChoice {
    fn takes(&self, policy: &str) -> bool {
        let names = |names: &[String]| names.iter().any(|name| name == policy);
        match self {
            Self::All => true,
            Self::Only(chosen) => names(chosen),
            Self::AllBut(others) => !names(others),
        }
    }
}

/// What the plan is a function of.
#[derive(Debug)]
pub struct ExpirySnapshot {
    /// All living objects, the latest first.
    pub objects: Vec<Object>,
    /// Those of them that can be restored in full.
    pub restorable: HashSet<ObjectId>,
    /// Those of them that lack a copy that they were promised.
    pub lacking_copies: HashSet<ObjectId>,
    /// When each was begun, and what time it is.
    pub timeline: Timeline,
    /// Sources that are gone.
    pub gone: Vec<GoneSource>,
    /// Policies for what is stored by name: nobody waits for a next version, so the last one of a name is no floor.
    pub stored_by_name: HashSet<String>,
    /// Until when each copy is kept by what its volumes say.
    pub copies: Vec<CopyEnd>,
    /// The policies of copies.
    pub copying: Vec<CopyingPolicy>,
    /// The pools that the others write to, by policy.
    pub own_pools: HashMap<String, HashSet<String>>,
    /// Volumes that become scratch when they hold nothing any more, with the copies that they hold something of.
    pub volumes: Vec<(Volser, Vec<(ObjectId, u8)>)>,
    /// Keep rules, by the policy whose objects, or copies, they are for.
    pub rules: HashMap<String, KeepRule>,
    /// The rules by which policies expired last that have others now; none for one that had no rule.
    pub earlier_rules: BTreeMap<String, Option<KeepRule>>,
    /// Whose days, weeks, months and years these rules mean.
    pub zone: TimeZone,
    /// Policies whose jobs make full backups by themselves.
    pub self_ending: HashSet<String>,
    /// Objects that a restore of the queue gives back.
    pub restored: HashSet<ObjectId>,
    /// Folders that are filled above their mark, where a policy of copies migrates for their room.
    pub full_folders: Vec<FullFolders>,
}

/// Why an object is kept that was named, or whose retention has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kept {
    /// It is among the last of its source that can be restored.
    Last,
    /// Its retention is locked until then; the greatest time where nobody knows when it was begun.
    Locked {
        /// Nanoseconds since 1970.
        until_ns: i64,
    },
    /// A restore that waits, or is at work, gives it back.
    Restored,
    /// A policy of copies has yet to copy it, and keeps it longer.
    Owed,
    /// So many living objects stand on it directly.
    Base {
        /// How many.
        dependents: usize,
    },
}

/// Why nothing of a plan is done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ExpiryRefusal {
    /// The clock is in doubt.
    Clock,
    /// An object was named that is kept.
    Named,
}

/// What is forgotten, and what is not.
#[derive(Debug)]
pub struct ExpiryPlan {
    /// Objects to forget, each before what it stands on.
    pub forget: Vec<Object>,
    /// Copies to forget of objects that stay; none where objects were named.
    pub copies: Vec<ForgottenCopy>,
    /// Objects that were named, or whose retention has ended, and that are kept.
    pub kept: Vec<(Object, Kept)>,
    /// Objects that a keep rule keeps, and by which parts of it; none where objects were named.
    pub by_rule: Vec<(Object, Vec<KeptBy>)>,
    /// Policies whose chains end by themselves, because their jobs make full backups.
    pub self_ending: HashSet<String>,
    /// Volumes that are scratch then.
    pub frees: Vec<Volser>,
    /// What policies no longer keep because their rules are not those by which they expired last; none where objects
    /// were named.
    pub reductions: Vec<KeepReduction>,
    /// How many objects there are.
    pub living: usize,
    /// The clock that it was made by.
    pub clock: ClockReading,
    /// Why nothing of it is done.
    pub refusal: Option<ExpiryRefusal>,
}

impl ExpiryPlan {
    /// Whether it takes so much that somebody should be asked.
    pub fn takes_most(&self) -> bool {
        self.forget.len() * 2 > self.living
    }

    /// Objects that are kept only because younger ones stand on them, and for which nobody will make a full backup
    /// unasked.
    pub fn kept_as_bases(&self) -> impl Iterator<Item = &Object> {
        let bases = self.kept.iter().filter(|(_, why)| matches!(why, Kept::Base { .. })).map(|(object, _)| object);
        bases.filter(|object| !self.self_ending.contains(&object.policy))
    }

    /// What is forgotten, as the audit log names it.
    pub fn names(&self) -> Vec<String> {
        let objects = self.forget.iter().map(|object| object.id.to_string());
        let copies = self.copies.iter().map(|copy| format!("{} copy {}", copy.object.id, copy.copy));
        objects.chain(copies).collect()
    }

    /// What is forgotten, in a line.
    pub fn in_a_line(&self) -> String {
        let counted = |count: usize, one: &str, several: &str| match count {
            1 => format!("1 {one}"),
            count => format!("{count} {several}"),
        };
        let objects = counted(self.forget.len(), "object", "objects");
        match self.copies.len() {
            0 => format!("{objects} forgotten"),
            copies if self.forget.is_empty() => format!("{} forgotten", counted(copies, "copy", "copies")),
            copies => format!("{objects} and {} of others forgotten", counted(copies, "copy", "copies")),
        }
    }

    /// The refusal as an error.
    ///
    /// # Errors
    /// [`DirectorError::ClockInDoubt`] or [`DirectorError::ObjectKept`], as the plan says.
    pub fn check(&self) -> Result<(), DirectorError> {
        match self.refusal {
            None => Ok(()),
            Some(ExpiryRefusal::Clock) => Err(DirectorError::ClockInDoubt { apart: distance(&self.clock) }),
            Some(ExpiryRefusal::Named) => {
                let Some((object, why)) = self.kept.first() else { return Ok(()) };
                Err(DirectorError::ObjectKept { object: object.id, reason: kept_reason(*why, &object.source) })
            }
        }
    }
}

/// Why an object is kept, and what to do.
pub fn kept_reason(why: Kept, source: &[u8]) -> String {
    let source = String::from_utf8_lossy(source);
    match why {
        Kept::Locked { until_ns } => format!("its retention is locked, {}", until_words(until_ns)),
        Kept::Last => format!(
            "it is the last object of {source} that can be restored. It can expire once there is a later one; if the \
             source is gone for good, use --gone {source}"
        ),
        Kept::Restored => "a restore in the queue gives it back: it can expire once that has ended".to_owned(),
        Kept::Owed => {
            "a policy of copies has yet to copy it, and keeps it longer: `capstan object why` says when".to_owned()
        }
        Kept::Base { dependents: 1 } => {
            format!("1 object that is kept is based on it: name that one as well (`capstan objects --source {source}`)")
        }
        Kept::Base { dependents } => {
            format!(
                "{dependents} objects that are kept are based on it: name those as well (`capstan objects --source \
                 {source}`)"
            )
        }
    }
}

/// Objects that restores of the queue give back, waiting or at work. What a restore is, the server writes; what it
/// reads stands there as `places`, each with its `object`.
fn restored_by_queue(catalog: &Catalog) -> Result<HashSet<ObjectId>, DirectorError> {
    let mut objects = HashSet::new();
    for text in catalog.unfinished_runs()?.runs().filter_map(|run| run.restore.as_deref()) {
        let restore: serde_json::Value = serde_json::from_str(text).unwrap_or_default();
        let places = restore["places"].as_array().into_iter().flatten();
        objects.extend(places.filter_map(|place| place["object"].as_str()?.parse::<ObjectId>().ok()));
    }
    Ok(objects)
}

/// Decides what is forgotten. A pure function.
pub fn plan_expiry(known: &ExpirySnapshot, request: &ExpiryRequest) -> ExpiryPlan {
    let plan = plan_by(known, &known.rules, request);
    let reductions = if request.named.is_empty() { reduction::reductions(known, request, &plan) } else { Vec::new() };
    ExpiryPlan { reductions, ..plan }
}

/// The same by these rules, whatever they were before.
fn plan_by(known: &ExpirySnapshot, rules: &HashMap<String, KeepRule>, request: &ExpiryRequest) -> ExpiryPlan {
    let clock = known.timeline.reading();
    let floor = floor(known, request);
    let mut dependents: HashMap<ObjectId, usize> = HashMap::new();
    for base in known.objects.iter().filter_map(|object| object.base) {
        *dependents.entry(base).or_default() += 1;
    }
    let (mut forget, mut kept): (Vec<Object>, Vec<(Object, Kept)>) = (Vec::new(), Vec::new());
    let mut ruled = if request.named.is_empty() { ruled(known, rules) } else { HashMap::new() };
    let judged = judge(known, rules, request, &ruled);
    let mut by_rule = Vec::new();
    let is_chosen = |object: &&Object| {
        let takes = || request.policies.takes(&object.policy) || judged.are_chosen(object.id, known, request);
        !request.named.is_empty() || takes()
    };
    // The latest first: an object is judged before what it stands on.
    for object in known.objects.iter().filter(is_chosen) {
        let is_due = match (&request.named[..], ruled.remove(&object.id)) {
            (named @ [_, ..], _) => named.contains(&object.id),
            ([], Some(Ruling::Goes)) => judged.are_over(object).unwrap_or(true),
            ([], Some(Ruling::Stays(parts))) => {
                if !parts.is_empty() {
                    by_rule.push((object.clone(), parts));
                }
                false
            }
            ([], None) => judged.are_over(object).unwrap_or_else(|| {
                keeps_until(object, &known.timeline).is_some_and(|until_ns| until_ns <= clock.now_ns)
            }),
        };
        let dependents_left = dependents.get(&object.id).copied().unwrap_or_default();
        if !is_due {
            continue;
        } else if let Some(until_ns) = locked_until(object, &known.timeline) {
            kept.push((object.clone(), Kept::Locked { until_ns }));
        } else if floor.contains(&object.id) {
            kept.push((object.clone(), Kept::Last));
        } else if known.restored.contains(&object.id) {
            kept.push((object.clone(), Kept::Restored));
        } else if request.named.is_empty() && judged.is_owed(object.id) {
            kept.push((object.clone(), Kept::Owed));
        } else if dependents_left > 0 {
            kept.push((object.clone(), Kept::Base { dependents: dependents_left }));
        } else {
            if let Some(left) = object.base.and_then(|base| dependents.get_mut(&base)) {
                *left -= 1;
            }
            forget.push(object.clone());
        }
    }
    let mut copies = match request.named[..] {
        [] => forgotten_copies(known, &judged, request, &forget),
        [_, ..] => Vec::new(),
    };
    let going: HashSet<ObjectId> = forget.iter().map(|object| object.id).collect();
    let is_for_room = |copy: &ForgottenCopy| {
        let is_its = |policy: &&CopyingPolicy| copy.migrated_by.as_ref() == Some(&policy.name);
        known.copying.iter().find(is_its).is_some_and(|policy| policy.migrates_for_room)
    };
    leave_where_there_is_room(&mut copies, known, is_for_room, |copy| going.contains(&copy.0));
    let alone: HashSet<(ObjectId, u8)> = copies.iter().map(|copy| (copy.object.id, copy.copy)).collect();
    let goes = |copy: &(ObjectId, u8)| going.contains(&copy.0) || alone.contains(copy);
    let is_freed = |(_, copies): &&(Volser, Vec<(ObjectId, u8)>)| copies.iter().all(goes);
    let frees = known.volumes.iter().filter(is_freed).map(|(volser, _)| volser.clone()).collect();
    let refusal = if request.named.is_empty() && clock.doubt.is_some() && !request.trust_clock {
        Some(ExpiryRefusal::Clock)
    } else if !request.named.is_empty() && !kept.is_empty() {
        Some(ExpiryRefusal::Named)
    } else {
        None
    };
    let (self_ending, living) = (known.self_ending.clone(), known.objects.len());
    let reductions = Vec::new();
    ExpiryPlan { forget, copies, kept, by_rule, self_ending, frees, reductions, living, clock, refusal }
}

/// What a keep rule says of an object.
enum Ruling {
    /// It may be forgotten.
    Goes,
    /// It stays, by these parts of the rule; by none where nobody knows yet when it was begun, or it is still being
    /// written.
    Stays(Vec<KeptBy>),
}

/// A source by its name and its machine; and whether somebody stored it under that name, which is no backup of the path
/// that is called so.
type SourceOf<'a> = (&'a [u8], &'a str, bool);

fn source_of(object: &Object) -> SourceOf<'_> {
    (&object.source, &object.client, object.kind == ObjectKind::Stream)
}

/// What keep rules say, of each object whose policy has one.
fn ruled(known: &ExpirySnapshot, rules: &HashMap<String, KeepRule>) -> HashMap<ObjectId, Ruling> {
    let mut rulings = HashMap::new();
    type Backups = Vec<(ObjectId, i64)>;
    let mut groups: HashMap<(&str, SourceOf<'_>), Backups> = HashMap::new();
    let mut complete: HashSet<SourceOf<'_>> = HashSet::new();
    // A full object that was made of another one is the same backup: what it stands for takes no place beside it.
    let mut stood_for: HashSet<ObjectId> = HashSet::new();
    let living: HashSet<ObjectId> = known.objects.iter().map(|object| object.id).collect();
    for object in &known.objects {
        let source = source_of(object);
        let is_complete = object.status == ObjectStatus::Complete;
        // The rule of a policy of copies is for copies, whatever bore its name before.
        let is_of_copies = known.copying.iter().any(|policy| policy.name == object.policy);
        if !is_of_copies && rules.contains_key(&object.policy) {
            // The latest come first, so what is known by now is later.
            let ruling = match known.timeline.begun(object.id) {
                // Whoever makes it of others goes on with it.
                _ if !is_complete && object.consolidates.is_some_and(|of| living.contains(&of)) => {
                    Ruling::Stays(Vec::new())
                }
                _ if !is_complete && complete.contains(&source) => Ruling::Goes,
                _ if is_complete && stood_for.contains(&object.id) => Ruling::Goes,
                Some(begun) if is_complete && begun.is_bounded => {
                    let group = groups.entry((&object.policy, source)).or_default();
                    group.push((object.id, begun.by_ns));
                    Ruling::Goes
                }
                _ => Ruling::Stays(Vec::new()),
            };
            rulings.insert(object.id, ruling);
        }
        if is_complete {
            complete.insert(source);
            let is_sound = known.restorable.contains(&object.id) && !known.lacking_copies.contains(&object.id);
            stood_for.extend(object.consolidates.filter(|_| is_sound));
        }
    }
    for ((policy, ..), group) in groups {
        let Some(rule) = rules.get(policy) else { continue };
        let whole: Vec<_> = group.iter().copied().filter(|(id, _)| known.restorable.contains(id)).collect();
        let mut kept = rule.kept(&whole, &known.zone);
        for (id, parts) in rule.kept(&group, &known.zone) {
            kept.entry(id).or_insert(parts);
        }
        rulings.extend(kept.into_iter().map(|(id, parts)| (id, Ruling::Stays(parts))));
    }
    rulings
}

/// The last objects of each source that is not gone. Of a source of which none can be restored in full, those that can
/// be in part.
fn floor(known: &ExpirySnapshot, request: &ExpiryRequest) -> HashSet<ObjectId> {
    type Kept = (Vec<ObjectId>, Vec<ObjectId>);
    let mut sources: HashMap<SourceOf<'_>, Kept> = HashMap::new();
    for object in known.objects.iter().filter(|object| object.status == ObjectStatus::Complete) {
        let is_gone = |gone: &&GoneSource| gone.source == object.source && gone.client == object.client;
        // More than the last one, somebody asks for.
        let is_stream = object.kind == ObjectKind::Stream;
        let is_stored = request.keep_last <= 1 && is_stream && known.stored_by_name.contains(&object.policy);
        if is_stored || known.gone.iter().chain(&request.gone).any(|gone| is_gone(&gone)) {
            continue;
        }
        let (whole, part) = sources.entry(source_of(object)).or_default();
        let kept = if known.restorable.contains(&object.id) { whole } else { part };
        if kept.len() < request.keep_last {
            kept.push(object.id);
        }
    }
    sources.into_values().flat_map(|(whole, part)| if whole.is_empty() { part } else { whole }).collect()
}

impl Site {
    /// What would be forgotten now.
    ///
    /// # Errors
    /// The catalog cannot be read.
    pub fn plan_expiry(&self, request: &ExpiryRequest) -> Result<ExpiryPlan, DirectorError> {
        Ok(plan_expiry(&self.expiry_snapshot(self.now_ns())?, request))
    }

    fn expiry_snapshot(&self, now_ns: i64) -> Result<ExpirySnapshot, DirectorError> {
        let restorable = self.protection()?.protected.into_iter().map(|object| object.id).collect();
        let copying = self.copying_policies();
        let full_folders = match copying.iter().any(|policy| policy.migrates_for_room) {
            true => self.full_folders()?,
            false => Vec::new(),
        };
        let catalog = locked(&self.catalog);
        // One that may hold more than is known is looked at by the next backup to its pool first.
        let opened: HashSet<VolumeId> = catalog.opened_volumes()?.into_iter().collect();
        let is_closed = |volume: &Volume| volume.id.is_none_or(|life| !opened.contains(&life));
        let mut volumes = Vec::new();
        for volume in catalog.volumes()? {
            if is_used(&volume) && volume.medium == MediumKind::Rewritable && is_closed(&volume) {
                let copies = catalog.copies_on(&volume.volser)?;
                volumes.push((volume.volser, copies));
            }
        }
        Ok(ExpirySnapshot {
            objects: catalog.objects(&ObjectFilter::default())?,
            restorable,
            lacking_copies: catalog.lacking_copies()?.into_iter().map(|copy| copy.object).collect(),
            timeline: catalog.timeline(now_ns)?,
            gone: catalog.gone_sources()?,
            stored_by_name: self.stored_by_name(),
            copies: readable_copies(&catalog)?,
            copying,
            own_pools: self.own_pools(),
            volumes,
            rules: self.keep_rules(),
            earlier_rules: self.other_rules_before(&catalog)?,
            zone: TimeZone::system(),
            self_ending: self.self_ending_jobs(),
            restored: restored_by_queue(&catalog)?,
            full_folders,
        })
    }

    /// Jobs and policies for what is stored by name.
    pub(crate) fn stored_by_name(&self) -> HashSet<String> {
        self.config.jobs.iter().filter(|(_, job)| job.takes_puts()).map(|(name, _)| name.clone()).collect()
    }

    /// Keep rules of jobs: their objects bear their names as policies.
    fn keep_rules(&self) -> HashMap<String, KeepRule> {
        let jobs = self.config.jobs.iter();
        jobs.filter_map(|(name, job)| Some((name.clone(), job.keep?))).collect()
    }

    /// What policies of copies say of how long copies are kept.
    fn copying_policies(&self) -> Vec<CopyingPolicy> {
        self.config.jobs.iter().filter_map(|(name, job)| CopyingPolicy::of(name, job)).collect()
    }

    /// The pools that jobs and policies write their backups to.
    fn own_pools(&self) -> HashMap<String, HashSet<String>> {
        let jobs = self.config.jobs.iter().filter(|(_, job)| job.makes_backups());
        jobs.map(|(name, job)| (name.clone(), job.own_pools().collect())).collect()
    }

    /// Jobs whose chains end by themselves.
    fn self_ending_jobs(&self) -> HashSet<String> {
        let ends =
            |job: &JobConfig| !job.is_incremental() || job.full_every.is_some() || job.consolidate_after.is_some();
        self.config.jobs.iter().filter(|(_, job)| ends(job)).map(|(name, _)| name.clone()).collect()
    }

    /// The machines that have objects of a source.
    ///
    /// # Errors
    /// The catalog cannot be read.
    pub fn clients_of(&self, source: &[u8]) -> Result<Vec<String>, DirectorError> {
        let filter = ObjectFilter { source: Some(source.to_vec()), ..ObjectFilter::default() };
        let objects = locked(&self.catalog).objects(&filter)?;
        let mut clients: Vec<_> = objects.into_iter().map(|object| object.client).collect();
        clients.sort();
        clients.dedup();
        Ok(clients)
    }

    /// Carries a plan out, and what is still so of it: of what it shows nothing is forgotten that has become a base or
    /// the last of its source meanwhile. Gives what was done. Volumes that hold nothing any more go back to scratch,
    /// but for write-once ones.
    ///
    /// # Errors
    /// The plan is a refusal ([`ExpiryPlan::check`]), also if it has become one since it was shown;
    /// [`DirectorError::InUse`] if a job uses an object that was named. Otherwise the catalog cannot be written.
    pub fn expire(&self, shown: &ExpiryPlan, request: &ExpiryRequest) -> Result<ExpiryPlan, DirectorError> {
        // Whoever keeps more for once has not agreed to what the rules take.
        let agrees = request.named.is_empty() && request.keep_last <= ExpiryRequest::default().keep_last;
        self.carry_out(shown, request, agrees)
    }

    /// What would be forgotten of backups because a policy of copies has copied them and migrates.
    ///
    /// # Errors
    /// The catalog cannot be read.
    pub fn plan_migration(&self, policy: &str) -> Result<ExpiryPlan, DirectorError> {
        let mut plan = self.plan_expiry(&of_policy(policy))?;
        plan.copies.retain(|copy| copy.migrated_by.is_some());
        plan.forget.clear();
        Ok(plan)
    }

    /// Carries such a plan out, as [`Site::expire`] does.
    ///
    /// # Errors
    /// As [`Site::expire`].
    pub fn migrate(&self, shown: &ExpiryPlan, policy: &str) -> Result<ExpiryPlan, DirectorError> {
        // Whatever else the policy's rule takes is for those to say who are asked.
        self.carry_out(shown, &of_policy(policy), false)
    }

    fn carry_out(
        &self,
        shown: &ExpiryPlan,
        request: &ExpiryRequest,
        agrees: bool,
    ) -> Result<ExpiryPlan, DirectorError> {
        shown.check()?;
        let _presence = self.presence()?;
        let of_copies = shown.copies.iter().map(|copy| &copy.object);
        let used: Vec<Object> = shown.forget.iter().chain(of_copies).cloned().collect();
        let (claims, claimed) = self.claim_to_forget(&used)?;
        let mut now = plan_expiry(&self.expiry_snapshot(shown.clock.now_ns)?, request);
        now.check()?;
        let named = &request.named;
        let planned = now.forget.clone();
        self.leave_what_is_used(&mut now.forget, &shown.forget, &claimed, named)?;
        let were_shown: HashSet<_> = shown.copies.iter().map(|copy| (copy.object.id, copy.copy)).collect();
        let goes = |copy: &ForgottenCopy| {
            claimed.contains(&copy.object.id) && were_shown.contains(&(copy.object.id, copy.copy))
        };
        let go: HashSet<ObjectId> = now.forget.iter().map(|object| object.id).collect();
        let are_left: Vec<Object> = planned.into_iter().filter(|object| !go.contains(&object.id)).collect();
        leave_what_is_claimed_elsewhere(&mut now.copies, goes, &are_left);
        now.frees.retain(|volser| shown.frees.contains(volser));
        // What is in a drive is looked at by the next run.
        let mut volumes: Vec<Hold> = Vec::new();
        let mut free = Vec::new();
        for volser in std::mem::take(&mut now.frees) {
            if let Ok(hold) = self.holds.reserve(&Wish::alone(Resource::Volume(volser.clone())))? {
                volumes.push(hold);
                free.push(volser);
            }
        }
        let in_use = self.holds.volumes()?;
        let mut catalog = locked(&self.catalog);
        if request.trust_clock && now.clock.doubt.is_some() {
            catalog.confirm_clock(now.clock.now_ns)?;
        }
        for gone in &request.gone {
            catalog.source_is_gone(gone)?;
        }
        let mut held = HashSet::new();
        let mark_ns = catalog.expiry_mark(now.clock.now_ns)?;
        for object in &now.forget {
            held.extend(catalog.copies(object.id)?.into_iter().flat_map(|copy| copy.volumes));
            catalog.expire(object.id, mark_ns)?;
        }
        for copy in &now.copies {
            let copies = catalog.copies(copy.object.id)?.into_iter().filter(|held| held.copy == copy.copy);
            held.extend(copies.flat_map(|copy| copy.volumes));
        }
        let copies: Vec<_> = now.copies.iter().map(|copy| (copy.object.id, copy.copy)).collect();
        let mut forgotten = HashSet::new();
        // Whoever records a checkpoint waits for no more than some of them.
        for some in copies.chunks(COPIES_AT_ONCE) {
            forgotten.extend(catalog.forget_copies(some)?);
        }
        now.copies.retain(|copy| forgotten.contains(&(copy.object.id, copy.copy)));
        if agrees {
            self.note_rules(&mut catalog, &request.policies)?;
        }
        let mut freed = Vec::new();
        // One that was written since it was planned may hold more than is known.
        let opened = catalog.opened_volumes()?;
        for volume in catalog.volumes()? {
            if !is_used(&volume) || !catalog.objects_on(&volume.volser)?.is_empty() {
                continue;
            }
            if volume.id.is_some_and(|life| opened.contains(&life)) {
                if volume.medium == MediumKind::Rewritable && !in_use.contains(&volume.volser) {
                    (self.events)(Event::Notice { message: why_not_freed(&volume.volser) });
                }
            } else if volume.medium == MediumKind::WriteOnce && held.contains(&volume.volser) {
                let message = format!(
                    "volume {} holds nothing that is still kept, but it is WORM and cannot be reused. Take it out, or \
                     leave it until it is full",
                    volume.volser
                );
                (self.events)(Event::Notice { message });
            } else if free.contains(&volume.volser) {
                catalog.update_volume(&volume.volser, |volume| {
                    volume.state = VolumeState::Scratch;
                    volume.pool = None;
                })?;
                freed.push(volume.volser);
            }
        }
        drop(catalog);
        drop((claims, volumes));
        now.frees = freed;
        Ok(now)
    }
}

/// Until when copies are kept, and which of them can be read.
fn readable_copies(catalog: &Catalog) -> Result<Vec<CopyEnd>, DirectorError> {
    let mut copies = catalog.copy_ends(None)?;
    let mut lost = HashSet::new();
    for volser in volumes_without_key(catalog)? {
        lost.extend(catalog.copies_on(&volser)?);
    }
    copies.iter_mut().for_each(|copy| copy.is_whole &= !lost.contains(&(copy.object, copy.copy)));
    Ok(copies)
}

/// What a policy of copies has forgotten; it has no objects of its own.
fn of_policy(policy: &str) -> ExpiryRequest {
    ExpiryRequest { policies: PolicyChoice::Only(vec![policy.to_owned()]), ..ExpiryRequest::default() }
}

/// Why a volume that holds nothing that is kept is not freed, and what to do.
fn why_not_freed(volser: &Volser) -> String {
    format!(
        "volume {volser} holds nothing that is still kept, but it is not freed: a backup that wrote on it was killed, and \
         it may hold more than the catalog knows. `capstan label {volser}` makes it scratch unless it does"
    )
}

/// Whether a volume holds sessions of a pool.
fn is_used(volume: &Volume) -> bool {
    matches!(volume.state, VolumeState::Filling | VolumeState::Full) && volume.checkpoint_lbn > 0
}

#[cfg(test)]
#[path = "expiry/tests.rs"]
mod tests;
