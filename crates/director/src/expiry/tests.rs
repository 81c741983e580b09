//! Plans by cases: days, sources and chains in, what is forgotten and what is kept out.

use capstan_format::ObjectKind;

use super::reduction::plan_unasked;
use super::*;

pub(super) const DAY: i64 = 86_400 * 1_000_000_000;
/// 2026-11-22, in days since 1970.
pub(super) const TODAY: i64 = 20_779;

pub(super) fn id(number: u8) -> ObjectId {
    ObjectId([number; 16])
}

/// An object of `/srv` that is kept for 30 days; its base, and the day it was begun.
pub(super) fn object(number: u8, base: u8, day: i64) -> Object {
    Object {
        id: id(number),
        source: b"/srv".to_vec(),
        client: "tern".to_owned(),
        policy: String::new(),
        kind: ObjectKind::Tree,
        status: ObjectStatus::Complete,
        base: (base > 0).then(|| id(base)),
        consolidates: None,
        tags: Vec::new(),
        made_on: (base > 0).then(|| id(base)),
        chunk_len: 1,
        started_ns: day * DAY,
        ended_ns: day * DAY + 1,
        expires_ns: (day + 30) * DAY,
        is_locked: false,
        counts: None,
    }
}

/// What is known on a day; all can be restored.
pub(super) fn known(objects: &[Object], today: i64) -> ExpirySnapshot {
    let recorded: Vec<_> = objects.iter().map(|object| (object.id, object.started_ns)).collect();
    ExpirySnapshot {
        objects: objects.iter().rev().cloned().collect(),
        restorable: objects.iter().map(|object| object.id).collect(),
        lacking_copies: HashSet::new(),
        timeline: Timeline::new(&recorded, &[], today * DAY),
        gone: Vec::new(),
        stored_by_name: HashSet::new(),
        copies: Vec::new(),
        copying: Vec::new(),
        own_pools: HashMap::new(),
        rules: HashMap::new(),
        earlier_rules: BTreeMap::new(),
        zone: TimeZone::UTC,
        self_ending: HashSet::new(),
        restored: HashSet::new(),
        full_folders: Vec::new(),
        volumes: vec![(
            Volser::new("A00001").expect("a barcode"),
            objects.iter().map(|object| (object.id, 1)).collect(),
        )],
    }
}

pub(super) fn numbers(objects: &[Object]) -> Vec<u8> {
    objects.iter().map(|object| object.id.0[0]).collect()
}

pub(super) fn kept(plan: &ExpiryPlan) -> Vec<(u8, Kept)> {
    plan.kept.iter().map(|(object, why)| (object.id.0[0], *why)).collect()
}

pub(super) fn names(numbers: &[u8]) -> ExpiryRequest {
    ExpiryRequest { named: numbers.iter().map(|number| id(*number)).collect(), ..ExpiryRequest::default() }
}

fn srv_is_gone() -> ExpiryRequest {
    let gone = vec![GoneSource { source: b"/srv".to_vec(), client: "tern".to_owned() }];
    ExpiryRequest { gone, ..ExpiryRequest::default() }
}

/// Backups stopped, or the clock jumped by less than a doubt: all retentions end, and the last one was thrown away with
/// the others.
#[test]
fn the_last_of_a_source_stays_unless_the_source_is_gone() {
    let full = [object(1, 0, TODAY), object(2, 0, TODAY + 1), object(3, 0, TODAY + 2)];
    let late = known(&full, TODAY + 34);
    let plan = plan_expiry(&late, &ExpiryRequest::default());
    assert_eq!((numbers(&plan.forget), kept(&plan)), (vec![2, 1], vec![(3, Kept::Last)]));
    assert_eq!((plan.refusal, plan.takes_most(), plan.frees.len()), (None, true, 0));
    let plan = plan_expiry(&late, &ExpiryRequest { keep_last: 2, ..ExpiryRequest::default() });
    assert_eq!((numbers(&plan.forget), plan.takes_most()), (vec![1], false));
    let plan = plan_expiry(&late, &srv_is_gone());
    assert_eq!((numbers(&plan.forget), plan.frees.len()), (vec![3, 2, 1], 1));
    // Each source of each host has a last one.
    let mut others = full.to_vec();
    others[1].client = "auk".to_owned();
    let plan = plan_expiry(&known(&others, TODAY + 34), &srv_is_gone());
    assert_eq!((numbers(&plan.forget), kept(&plan)), (vec![3, 1], vec![(2, Kept::Last)]));
}

/// A dump with the day in its name came once, and its only version stayed for ever.
#[test]
fn the_last_version_of_a_name_goes_like_the_others() {
    let mut versions = [object(1, 0, TODAY), object(2, 0, TODAY + 1), object(3, 0, TODAY + 33)];
    for version in &mut versions {
        (version.kind, version.policy) = (ObjectKind::Stream, "dumps".to_owned());
    }
    versions[0].source = b"dumps/monday".to_vec();
    let stored_by_name = HashSet::from(["dumps".to_owned()]);
    let late = ExpirySnapshot { stored_by_name, ..known(&versions, TODAY + 34) };
    assert_eq!(numbers(&plan_expiry(&late, &ExpiryRequest::default()).forget), [2, 1]);
    // Who asks for more than the last one gets them.
    let plan = plan_expiry(&late, &ExpiryRequest { keep_last: 2, ..ExpiryRequest::default() });
    assert!(plan.forget.is_empty(), "{:?}", numbers(&plan.forget));
    // What the policy backed up before it took names has a last one.
    let mut trees = versions.clone();
    trees.iter_mut().for_each(|version| version.kind = ObjectKind::Tree);
    let before = ExpirySnapshot { stored_by_name: HashSet::from(["dumps".to_owned()]), ..known(&trees, TODAY + 34) };
    assert_eq!(numbers(&plan_expiry(&before, &ExpiryRequest::default()).forget), [2]);
    // And what is stored under the name of a path is no backup of that path.
    let mut both = versions.clone();
    (both[0].kind, both[1].kind, both[1].source) = (ObjectKind::Stream, ObjectKind::Tree, b"dumps/monday".to_vec());
    both.iter_mut().for_each(|version| version.policy = "manual".to_owned());
    assert!(plan_expiry(&known(&both, TODAY + 34), &ExpiryRequest::default()).forget.is_empty());
    // Of any other policy the last one stays.
    assert_eq!(numbers(&plan_expiry(&known(&versions, TODAY + 34), &ExpiryRequest::default()).forget), [2]);
}

#[test]
fn what_cannot_be_restored_is_not_the_last() {
    let full = [object(1, 0, TODAY), object(2, 0, TODAY + 1), object(3, 0, TODAY + 2)];
    let mut late = known(&full, TODAY + 34);
    late.restorable.remove(&id(3));
    let plan = plan_expiry(&late, &ExpiryRequest::default());
    assert_eq!((numbers(&plan.forget), kept(&plan)), (vec![3, 1], vec![(2, Kept::Last)]));
    // A part is better than nothing.
    late.restorable.clear();
    assert_eq!(kept(&plan_expiry(&late, &ExpiryRequest::default())), [(3, Kept::Last)]);
    // What was interrupted protects nothing.
    let mut open = full.to_vec();
    open[2].status = ObjectStatus::Open;
    assert_eq!(kept(&plan_expiry(&known(&open, TODAY + 34), &ExpiryRequest::default())), [(2, Kept::Last)]);
}

#[test]
fn a_chain_is_kept_by_its_youngest_and_that_is_counted() {
    let chain = [object(1, 0, TODAY), object(2, 1, TODAY + 1), object(3, 2, TODAY + 32), object(4, 0, TODAY + 33)];
    let plan = plan_expiry(&known(&chain, TODAY + 40), &ExpiryRequest::default());
    let base = Kept::Base { dependents: 1 };
    assert_eq!((numbers(&plan.forget), kept(&plan)), (vec![], vec![(2, base), (1, base)]));
    assert_eq!(plan.kept_as_bases().count(), 2);
    // Once the youngest goes, all go at once, each before what it stands on.
    let plan = plan_expiry(&known(&chain, TODAY + 63), &ExpiryRequest::default());
    assert_eq!((numbers(&plan.forget), kept(&plan)), (vec![3, 2, 1], vec![(4, Kept::Last)]));
}

/// A restore waited for its client, and what it was to give back was expired and written over.
#[test]
fn what_a_restore_of_the_queue_gives_back_is_kept_with_what_it_stands_on() {
    let chain = [object(1, 0, TODAY), object(2, 1, TODAY + 1), object(3, 0, TODAY + 2)];
    let mut now = known(&chain, TODAY + 60);
    assert_eq!(numbers(&plan_expiry(&now, &ExpiryRequest::default()).forget), [2, 1]);
    now.restored.insert(id(2));
    let plan = plan_expiry(&now, &ExpiryRequest::default());
    let (restored, base) = (Kept::Restored, Kept::Base { dependents: 1 });
    assert_eq!((numbers(&plan.forget), kept(&plan)), (vec![], vec![(3, Kept::Last), (2, restored), (1, base)]));
    assert_eq!(plan_expiry(&now, &names(&[2])).refusal, Some(ExpiryRefusal::Named));
}

/// The dry run said that it would forget a base, and the run refused.
#[test]
fn an_object_that_is_named_is_forgotten_only_with_what_stands_on_it() {
    let chain = [object(1, 0, TODAY), object(2, 1, TODAY + 1), object(3, 0, TODAY + 2)];
    let now = known(&chain, TODAY + 3);
    let plan = plan_expiry(&now, &names(&[1]));
    assert_eq!((plan.refusal, kept(&plan)), (Some(ExpiryRefusal::Named), vec![(1, Kept::Base { dependents: 1 })]));
    assert!(plan.check().is_err_and(|error| error.to_string().contains("1 object that is kept is based on it")));
    let plan = plan_expiry(&now, &names(&[1, 2]));
    assert_eq!((plan.refusal, numbers(&plan.forget)), (None, vec![2, 1]));
    let plan = plan_expiry(&now, &names(&[3]));
    assert_eq!((plan.refusal, kept(&plan)), (Some(ExpiryRefusal::Named), vec![(3, Kept::Last)]));
    assert!(plan.check().is_err_and(|error| error.to_string().contains("--gone /srv")));
    let gone = ExpiryRequest { named: vec![id(3)], ..srv_is_gone() };
    assert_eq!(numbers(&plan_expiry(&now, &gone).forget), [3]);
}

/// A clock of 2035 forgot everything, without a question.
#[test]
fn nothing_is_forgotten_by_a_clock_in_doubt() {
    let full = [object(1, 0, TODAY), object(2, 0, TODAY + 1)];
    for now in [TODAY + 3_000, TODAY - 1] {
        let plan = plan_expiry(&known(&full, now), &ExpiryRequest::default());
        assert_eq!(plan.refusal, Some(ExpiryRefusal::Clock));
        assert!(plan.check().is_err_and(|error| error.to_string().contains("capstan clock --confirm")));
        // What is named needs no clock.
        let plan = plan_expiry(&known(&full, now), &names(&[1]));
        assert_eq!((plan.refusal, numbers(&plan.forget)), (None, vec![1]));
    }
    let trusted = ExpiryRequest { trust_clock: true, ..ExpiryRequest::default() };
    let plan = plan_expiry(&known(&full, TODAY + 3_000), &trusted);
    assert_eq!((plan.refusal, numbers(&plan.forget), kept(&plan)), (None, vec![1], vec![(2, Kept::Last)]));
}

#[test]
fn a_retention_that_began_in_doubt_counts_from_what_is_believed() {
    // One of 2020, one of 2030, and the clock right before and after.
    let mut objects = [object(1, 0, TODAY), object(2, 0, 18_262), object(3, 0, 21_915), object(4, 0, TODAY + 2)];
    let forgotten =
        |objects: &[Object], now| numbers(&plan_expiry(&known(objects, now), &ExpiryRequest::default()).forget);
    assert_eq!(
        forgotten(&objects, TODAY + 31),
        [1],
        "not the one of 2020, whose thirty days were over when it was made"
    );
    assert_eq!(forgotten(&objects, TODAY + 32), [3, 2, 1], "nor is the one of 2030 kept for years");
    // While nothing believed is behind them, nobody knows.
    assert_eq!(forgotten(&objects[..3], TODAY + 33), [1]);
    objects[1].expires_ns = 0;
    assert_eq!(forgotten(&objects, TODAY + 32), [3, 1], "never is never");
}

/// What is known where `/srv` is backed up by the job `nightly`, which has a rule.
fn nightly(objects: &[Object], today: i64, rule: KeepRule) -> ExpirySnapshot {
    let mut objects = objects.to_vec();
    for object in &mut objects {
        object.policy = "nightly".to_owned();
        object.expires_ns = 0;
    }
    ExpirySnapshot { rules: HashMap::from([("nightly".to_owned(), rule)]), ..known(&objects, today) }
}

fn by_rule(plan: &ExpiryPlan) -> Vec<(u8, String)> {
    let name = |(object, parts): &(Object, Vec<KeptBy>)| {
        let parts: Vec<_> = parts.iter().map(|part| part.name()).collect();
        (object.id.0[0], parts.join(" "))
    };
    plan.by_rule.iter().map(name).collect()
}

#[test]
fn a_rule_decides_for_the_objects_of_its_job_alone() {
    let rule = KeepRule { last: 1, daily: 2, monthly: 2, ..KeepRule::default() };
    // 2026-10-31, 2026-11-20, -21, -22.
    let full = [object(1, 0, TODAY - 22), object(2, 0, TODAY - 2), object(3, 0, TODAY - 1), object(4, 0, TODAY)];
    let plan = plan_expiry(&nightly(&full, TODAY, rule), &ExpiryRequest::default());
    assert_eq!(numbers(&plan.forget), [2]);
    let kept = [(4, "last daily monthly".to_owned()), (3, "daily".to_owned()), (1, "monthly".to_owned())];
    assert_eq!(by_rule(&plan), kept);
    // Time alone takes nothing: the same plan, three weeks later.
    let plan = plan_expiry(&nightly(&full, TODAY + 21, rule), &ExpiryRequest::default());
    assert_eq!((numbers(&plan.forget), by_rule(&plan)), (vec![2], kept.to_vec()));
    // Another host, another source and another policy have a rule of their own, or none.
    let mut mixed = nightly(&full, TODAY, rule);
    mixed.objects[3].client = "auk".to_owned();
    mixed.objects[2].source = b"/etc".to_vec();
    mixed.objects[1].policy = "manual".to_owned();
    let plan = plan_expiry(&mixed, &ExpiryRequest::default());
    assert_eq!((numbers(&plan.forget), plan.by_rule.len()), (vec![], 3));
    // What is named goes, whatever the rule says.
    let plan = plan_expiry(&nightly(&full, TODAY, rule), &names(&[3]));
    assert_eq!((numbers(&plan.forget), plan.by_rule.len(), plan.refusal), (vec![3], 0, None));
}

#[test]
fn what_a_kept_one_stands_on_is_kept_and_the_floor_stays_above_a_rule() {
    let rule = KeepRule { last: 1, ..KeepRule::default() };
    let chain = [object(1, 0, TODAY), object(2, 1, TODAY + 1), object(3, 2, TODAY + 2)];
    let plan = plan_expiry(&nightly(&chain, TODAY + 2, rule), &ExpiryRequest::default());
    let base = Kept::Base { dependents: 1 };
    assert_eq!((numbers(&plan.forget), kept(&plan)), (vec![], vec![(2, base), (1, base)]));
    // Nobody is told to make a full backup where the job does so.
    assert_eq!(plan.kept_as_bases().count(), 2);
    let self_ending = HashSet::from(["nightly".to_owned()]);
    let known = ExpirySnapshot { self_ending, ..nightly(&chain, TODAY + 2, rule) };
    assert_eq!(plan_expiry(&known, &ExpiryRequest::default()).kept_as_bases().count(), 0);
    let full = [object(1, 0, TODAY), object(2, 0, TODAY + 1), object(3, 0, TODAY + 2)];
    let two = ExpiryRequest { keep_last: 2, ..ExpiryRequest::default() };
    let plan = plan_expiry(&nightly(&full, TODAY + 2, rule), &two);
    assert_eq!((numbers(&plan.forget), kept(&plan)), (vec![1], vec![(2, Kept::Last)]));
    // A clock in doubt refuses it as it refuses retentions.
    let plan = plan_expiry(&nightly(&full, TODAY + 3_000, rule), &ExpiryRequest::default());
    assert_eq!(plan.refusal, Some(ExpiryRefusal::Clock));
}

#[test]
fn what_cannot_be_restored_takes_no_place_in_a_rule() {
    let rule = KeepRule { last: 2, ..KeepRule::default() };
    let full = [object(1, 0, TODAY), object(2, 0, TODAY + 1), object(3, 0, TODAY + 2), object(4, 0, TODAY + 3)];
    let mut known = nightly(&full, TODAY + 3, rule);
    known.restorable.remove(&id(4));
    let plan = plan_expiry(&known, &ExpiryRequest::default());
    assert_eq!((numbers(&plan.forget), plan.by_rule.len()), (vec![1], 3), "4 would have had a place, 3 and 2 have it");
    // One that was interrupted stays while it is the latest, and goes once no run can go on with it.
    let mut known = nightly(&full, TODAY + 3, KeepRule { last: 9, ..rule });
    known.objects[0].status = ObjectStatus::Open;
    known.objects[2].status = ObjectStatus::Open;
    let plan = plan_expiry(&known, &ExpiryRequest::default());
    assert_eq!((numbers(&plan.forget), plan.by_rule.len()), (vec![2], 2));
    // Nobody knows yet when one was made whose clock was wrong.
    let mut objects = full.to_vec();
    objects[3].started_ns = 18_262 * DAY;
    let known = nightly(&objects, TODAY + 3, KeepRule { last: 1, ..rule });
    assert_eq!(numbers(&plan_expiry(&known, &ExpiryRequest::default()).forget), [2, 1]);
}

#[test]
fn what_is_locked_stays_until_its_retention_ends_whoever_names_it() {
    let mut objects = [object(1, 0, TODAY), object(2, 0, TODAY + 1), object(3, 0, TODAY + 2)];
    objects[1].is_locked = true;
    let until_ns = objects[1].expires_ns;
    let lock = Kept::Locked { until_ns };
    for request in [names(&[2]), ExpiryRequest { trust_clock: true, ..names(&[2]) }] {
        let plan = plan_expiry(&known(&objects, TODAY + 20), &request);
        assert_eq!((kept(&plan), plan.refusal), (vec![(2, lock)], Some(ExpiryRefusal::Named)));
        let refused = plan.check().expect_err("it is locked").to_string();
        assert!(refused.contains("its retention is locked, until 2026-12-23 00:00 UTC"), "{refused}");
    }
    let late = plan_expiry(&known(&objects, TODAY + 31), &names(&[2]));
    assert_eq!((numbers(&late.forget), late.refusal), (vec![2], None));
    // What was interrupted may be complete on a volume that is away.
    objects[1].status = ObjectStatus::Open;
    assert_eq!(kept(&plan_expiry(&known(&objects, TODAY + 20), &names(&[2]))), [(2, lock)]);
    objects[1].status = ObjectStatus::Complete;
    // A lock that never ends was asked for by nobody.
    let for_ever =
        [object(1, 0, TODAY), Object { expires_ns: 0, is_locked: true, ..object(2, 0, TODAY) }, object(3, 0, TODAY)];
    assert_eq!(numbers(&plan_expiry(&known(&for_ever, TODAY + 20), &names(&[2])).forget), [2]);
    // A clock that is in doubt ends no lock, whoever trusts it.
    let doubted = plan_expiry(&known(&objects, TODAY + 4000), &ExpiryRequest { trust_clock: true, ..names(&[2]) });
    assert!(doubted.clock.doubt.is_some());
    assert_eq!(kept(&doubted), [(2, lock)]);
}

pub(super) fn daily(days: u32) -> KeepRule {
    KeepRule { daily: days, ..KeepRule::default() }
}

/// What is known where `nightly` made a backup each day from one object on, and expired by another rule than it has.
fn ruled_anew(first: u8, objects: &[Object], earlier: Option<KeepRule>, rule: KeepRule) -> ExpirySnapshot {
    let today = objects.last().map_or(0, |object| object.started_ns / DAY);
    let mut known = nightly(objects, today, rule);
    for object in known.objects.iter_mut().filter(|object| object.id < id(first)) {
        (object.policy, object.source) = (String::new(), b"/etc".to_vec());
        object.expires_ns = object.started_ns + 30 * DAY;
    }
    known.earlier_rules.insert("nightly".to_owned(), earlier);
    known
}

fn day_by_day(numbers: std::ops::RangeInclusive<u8>) -> Vec<Object> {
    numbers.map(|number| object(number, 0, TODAY + i64::from(number))).collect()
}

/// `daily = 3` was typed for `daily = 30`, and the server threw 27 of 30 backups away: among those of all policies they
/// were less than half.
#[test]
fn a_rule_that_takes_most_of_what_a_policy_kept_takes_nothing_unasked() {
    // The first of two of another source goes anyway.
    let mut objects = vec![object(1, 0, TODAY - 10), object(2, 0, TODAY - 9)];
    objects.extend(day_by_day(3..=32));
    let known = ruled_anew(3, &objects, Some(daily(30)), daily(3));
    let unasked = plan_unasked(&known);
    assert_eq!(numbers(&unasked.plan.forget), [1], "other policies expire as before");
    let [reduction] = &unasked.held[..] else { panic!("{:?}", unasked.held) };
    assert_eq!(
        (&*reduction.policy, reduction.lost.len(), reduction.later, reduction.kept_before),
        ("nightly", 27, 0, 30)
    );
    let said = reduction.held_text();
    assert!(said.contains("of 30 backups that it kept, 27 can go"), "{said}");
    assert!(said.contains("`capstan expire --policy nightly`"), "{said}");
    // Who says so has them go, with the others or alone.
    assert_eq!(plan_expiry(&known, &ExpiryRequest::default()).forget.len(), 28);
    let only = PolicyChoice::Only(vec!["nightly".to_owned()]);
    let asked = plan_expiry(&known, &ExpiryRequest { policies: only, ..ExpiryRequest::default() });
    assert_eq!((asked.forget.len(), asked.reductions.len()), (27, 1));
    // A rule that takes some of it is what somebody meant.
    let known = ruled_anew(3, &objects, Some(daily(30)), daily(20));
    let unasked = plan_unasked(&known);
    assert_eq!((unasked.plan.forget.len(), unasked.held.len(), unasked.plan.reductions.len()), (11, 0, 1));
}

#[test]
fn what_is_held_stays_so_however_many_backups_are_made_meanwhile() {
    let known = ruled_anew(1, &day_by_day(1..=90), Some(daily(30)), daily(3));
    let held = plan_unasked(&known).held;
    assert_eq!((held[0].lost.len(), held[0].kept_before), (27, 30));
}

/// Bases that a policy no longer keeps stay for weeks: all went at once when nobody thought of the rule any more.
#[test]
fn a_rule_that_takes_most_later_is_asked_for_too() {
    let chain: Vec<_> = (1..=10).map(|number| object(number, number - 1, TODAY + i64::from(number))).collect();
    let known = ruled_anew(1, &chain, Some(daily(10)), daily(2));
    let unasked = plan_unasked(&known);
    assert_eq!((unasked.plan.forget.len(), unasked.held.len()), (0, 1));
    let reduction = &unasked.held[0];
    assert_eq!((reduction.lost.len(), reduction.later, reduction.kept_before), (8, 8, 10));
    assert!(
        reduction.held_text().contains("8 of them once nothing that is kept is based on them"),
        "{}",
        reduction.held_text()
    );
}

#[test]
fn a_rule_in_place_of_a_retention_is_another_rule() {
    // By their retention, none at all, they stay.
    let known = ruled_anew(1, &day_by_day(1..=9), None, daily(3));
    assert_eq!(plan_unasked(&known).held.len(), 1);
    let known = ruled_anew(1, &day_by_day(1..=9), None, daily(7));
    assert_eq!((plan_unasked(&known).held.len(), plan_unasked(&known).plan.forget.len()), (0, 2));
}
