//! Backups of the policy `home` on disk, and what the policy `vault` copied of them to tape.

use capstan_format::Volser;

use super::super::reduction::plan_unasked;
use super::super::tests::{DAY, TODAY, daily, id, kept, known, names, numbers, object};
use super::super::{ExpiryPlan, ExpiryRequest, FullFolders, Kept, PolicyChoice, plan_expiry};
use super::*;
use crate::config::JobConfig;

/// An object of `home`.
fn of_home(number: u8, base: u8, day: i64) -> Object {
    Object { policy: "home".to_owned(), ..object(number, base, day) }
}

/// A copy that is whole, and its end in days from the object's beginning; 0 for ever.
fn copy_of(object: &Object, copy: u8, pool: &str, days: i64) -> CopyEnd {
    let expires_ns = if days == 0 { 0 } else { object.started_ns + days * DAY };
    CopyEnd { object: object.id, copy, pool: pool.to_owned(), holds_all: true, is_whole: true, expires_ns }
}

fn vault(migrate_after: Option<i64>) -> CopyingPolicy {
    CopyingPolicy {
        name: "vault".to_owned(),
        pool: "tape".to_owned(),
        copies_of: vec!["home".to_owned()],
        keeps: CopyLifetime::of(&JobConfig::default()),
        migrate_after_ns: migrate_after.map(|days| days * DAY),
        migrates_for_room: false,
        is_on: true,
    }
}

/// All objects on disk for so many days, and on tape for so many, and what is known then.
fn staged(objects: &[Object], (disk, tape): (i64, i64), today: i64) -> ExpirySnapshot {
    let mut known = known(objects, today);
    known.copies = objects.iter().flat_map(|it| [copy_of(it, 1, "disk", disk), copy_of(it, 2, "tape", tape)]).collect();
    known.copying.push(vault(None));
    known.own_pools.insert("home".to_owned(), HashSet::from(["disk".to_owned()]));
    let tape = objects.iter().map(|object| (object.id, 2)).collect();
    known.volumes.push((Volser::new("B00001").expect("a barcode"), tape));
    known
}

fn plan(known: &ExpirySnapshot) -> ExpiryPlan {
    plan_expiry(known, &ExpiryRequest::default())
}

/// Each copy that is forgotten alone: its object, its pool, and where the object stays.
fn copies(plan: &ExpiryPlan) -> Vec<(u8, &str, &str)> {
    plan.copies.iter().map(|copy| (copy.object.id.0[0], &*copy.pool, &*copy.stays_in)).collect()
}

#[test]
fn a_copy_ends_by_itself_and_the_object_with_its_last_one() {
    let full = [of_home(1, 0, TODAY), of_home(2, 0, TODAY + 1)];
    let on = |day| plan(&staged(&full, (14, 3650), TODAY + day));
    assert!(on(13).copies.is_empty() && on(13).forget.is_empty());
    assert_eq!((copies(&on(14)), on(14).forget.len()), (vec![(1, "disk", "tape")], 0));
    assert_eq!(copies(&on(15)), [(2, "disk", "tape"), (1, "disk", "tape")]);
    assert_eq!((on(14).frees.len(), on(15).frees[0].as_str()), (0, "A00001"));
    // The last one stays, with all that is there of it.
    let end = on(3651);
    assert_eq!((numbers(&end.forget), kept(&end), copies(&end)), (vec![1], vec![(2, Kept::Last)], vec![]));
    // The other way round.
    let mut now = staged(&full, (3650, 14), TODAY + 14);
    now.copying[0].keeps = CopyLifetime::of(&JobConfig { retention: Some("14d".to_owned()), ..JobConfig::default() });
    assert_eq!((copies(&plan(&now)), plan(&now).forget.len()), (vec![(1, "tape", "disk")], 0));
}

#[test]
fn the_last_whole_copy_is_never_forgotten_alone() {
    let full = [of_home(1, 0, TODAY)];
    let mut now = staged(&full, (14, 3650), TODAY + 20);
    now.copies[1].is_whole = false;
    assert!(plan(&now).copies.is_empty());
    now.copies.pop();
    assert_eq!((copies(&plan(&now)), kept(&plan(&now))), (vec![], vec![(1, Kept::Last)]));
}

#[test]
fn a_pool_keeps_what_its_copies_stand_on() {
    let chain = [of_home(1, 0, TODAY), of_home(2, 1, TODAY + 5)];
    assert_eq!(copies(&plan(&staged(&chain, (14, 3650), TODAY + 15))), []);
    let late = plan(&staged(&chain, (14, 3650), TODAY + 19));
    assert_eq!(copies(&late), [(2, "disk", "tape"), (1, "disk", "tape")]);
    // One that is not on tape yet keeps both.
    let mut now = staged(&chain, (14, 3650), TODAY + 19);
    now.copies.retain(|copy| (copy.object, copy.copy) != (id(2), 2));
    assert_eq!(copies(&plan(&now)), []);
}

#[test]
fn what_is_migrated_leaves_the_pools_of_its_policy_and_no_other() {
    let full = [of_home(1, 0, TODAY)];
    let on = |day| ExpirySnapshot { copying: vec![vault(Some(3))], ..staged(&full, (30, 30), TODAY + day) };
    assert_eq!(copies(&plan(&on(2))), []);
    let now = plan(&on(3));
    assert_eq!((copies(&now), now.copies[0].migrated_by.as_deref()), (vec![(1, "disk", "tape")], Some("vault")));
    // The last of its source goes from disk, too, once its time is over; then it is on tape alone.
    let late = plan(&on(40));
    assert_eq!((copies(&late), kept(&late)), (vec![(1, "disk", "tape")], vec![(1, Kept::Last)]));
    for change in [
        (|known| known.copies[1].is_whole = false) as fn(&mut ExpirySnapshot),
        |known| known.copies[1].pool = "safe".to_owned(),
        |known| known.own_pools.clear(),
        |known| known.restored = HashSet::from([id(1)]),
        |known| known.copying[0].copies_of = vec!["web".to_owned()],
    ] {
        let mut known = on(3);
        change(&mut known);
        assert_eq!(copies(&plan(&known)), []);
    }
    // Another policy of copies has yet to read it.
    let mut known = on(3);
    known.copying.push(CopyingPolicy { name: "west".to_owned(), pool: "west".to_owned(), ..vault(None) });
    assert_eq!(copies(&plan(&known)), []);
    known.copying[1].is_on = false;
    assert_eq!(copies(&plan(&known)), [(1, "disk", "tape")]);
    known.copying[1].is_on = true;
    known.copies.push(copy_of(&full[0], 3, "west", 30));
    assert_eq!(copies(&plan(&known)), [(1, "disk", "tape")]);
    // A copy that somebody made by hand stays.
    let mut known = on(3);
    known.copies.push(copy_of(&full[0], 3, "safe", 30));
    assert_eq!(copies(&plan(&known)), [(1, "disk", "tape")]);
    // Other policies' expiry takes nothing of it, that of the policy of copies does.
    let only = |name: &str| ExpiryRequest { policies: PolicyChoice::Only(vec![name.to_owned()]), ..Default::default() };
    assert_eq!(copies(&plan_expiry(&on(3), &only("home"))), []);
    assert_eq!(copies(&plan_expiry(&on(3), &only("vault"))), [(1, "disk", "tape")]);
    assert_eq!(copies(&plan_expiry(&on(3), &names(&[1]))), [], "who names objects means objects");
}

#[test]
fn a_locked_retention_holds_its_copy() {
    let mut full = [of_home(1, 0, TODAY), of_home(2, 0, TODAY + 1)];
    full[0].is_locked = true;
    let on = |day| ExpirySnapshot { copying: vec![vault(Some(0))], ..staged(&full, (14, 3650), TODAY + day) };
    assert_eq!(copies(&plan(&on(13))), [(2, "disk", "tape")]);
    assert_eq!(copies(&plan(&on(14))), [(2, "disk", "tape"), (1, "disk", "tape")]);
}

#[test]
fn a_keep_rule_of_a_policy_of_copies_is_for_its_copies() {
    let full = [of_home(1, 0, TODAY), of_home(2, 0, TODAY + 1), of_home(3, 0, TODAY + 2)];
    let mut now = staged(&full, (14, 0), TODAY + 15);
    now.copies.iter_mut().filter(|copy| copy.pool == "tape").for_each(|copy| copy.expires_ns = i64::MAX);
    now.rules.insert("vault".to_owned(), KeepRule { last: 2, ..KeepRule::default() });
    // The disk keeps the third alone, and the tape the last two.
    assert_eq!((numbers(&plan(&now).forget), copies(&plan(&now))), (vec![1], vec![(2, "disk", "tape")]));
    // What is not whole yet takes no place in the rule, and stays.
    now.copies[5].is_whole = false;
    assert_eq!(
        (numbers(&plan(&now).forget), copies(&plan(&now))),
        (vec![], vec![(2, "disk", "tape"), (1, "disk", "tape")])
    );
    // Without the policy, nobody ends what its rule was to end.
    (now.copying, now.rules) = (Vec::new(), HashMap::new());
    assert_eq!((plan(&now).forget.len(), copies(&plan(&now)).len()), (0, 2));
}

#[test]
fn a_copy_with_a_retention_keeps_what_the_rule_of_its_backup_does_not() {
    let full = [of_home(1, 0, TODAY), of_home(2, 0, TODAY + 1), of_home(3, 0, TODAY + 2)];
    let mut now = staged(&full, (0, 100), TODAY + 3);
    now.rules.insert("home".to_owned(), daily(1));
    assert_eq!((plan(&now).forget.len(), copies(&plan(&now))), (0, vec![(2, "disk", "tape"), (1, "disk", "tape")]));
    // Where the policy of copies says nothing, its copies are kept as their objects are.
    now.copies.iter_mut().for_each(|copy| copy.expires_ns = 0);
    assert_eq!((numbers(&plan(&now).forget), copies(&plan(&now))), (vec![2, 1], vec![]));
}

/// `daily = 3` was typed for `daily = 30` in a policy of copies.
#[test]
fn a_rule_that_takes_most_copies_takes_none_unasked() {
    let full: Vec<_> = (1..=30).map(|number| of_home(number, 0, TODAY + i64::from(number))).collect();
    let mut now = staged(&full, (3650, 0), TODAY + 30);
    now.copies.iter_mut().filter(|copy| copy.pool == "tape").for_each(|copy| copy.expires_ns = i64::MAX);
    now.rules.insert("vault".to_owned(), daily(3));
    now.earlier_rules.insert("vault".to_owned(), Some(daily(30)));
    let unasked = plan_unasked(&now);
    assert_eq!((unasked.plan.copies.len(), unasked.held.len()), (0, 1));
    let held = &unasked.held[0];
    assert_eq!((&*held.policy, held.lost.len(), held.later, held.kept_before), ("vault", 27, 0, 30));
    assert_eq!(plan(&now).copies.len(), 27);
}

/// The vault was full for a fortnight, and the disk's time was over: the backup was forgotten and never archived.
#[test]
fn what_a_policy_keeps_longer_stays_until_it_is_copied() {
    let full = [of_home(1, 0, TODAY), of_home(2, 0, TODAY + 1)];
    let mut now = staged(&full, (14, 3650), TODAY + 20);
    now.copying[0].keeps = CopyLifetime::of(&JobConfig { retention: Some("10y".to_owned()), ..JobConfig::default() });
    now.copies.retain(|copy| (copy.object, copy.copy) != (id(1), 2));
    assert_eq!((kept(&plan(&now)), copies(&plan(&now))), (vec![(1, Kept::Owed)], vec![(2, "disk", "tape")]));
    assert_eq!(numbers(&plan_expiry(&now, &names(&[1])).forget), [1], "who names it means it");
    let mut off = now;
    off.copying[0].is_on = false;
    assert_eq!(numbers(&plan(&off).forget), [1]);
}

/// A pool kept its copies of a chain as long as another pool kept the last link.
#[test]
fn each_pool_lets_a_chain_go_in_its_own_time() {
    let chain: Vec<_> = (1..=4).map(|number| of_home(number, number - 1, TODAY + i64::from(number))).collect();
    let mut now = staged(&chain, (14, 0), TODAY + 30);
    now.copies.iter_mut().filter(|copy| copy.pool == "tape").for_each(|copy| copy.expires_ns = BY_RULE);
    now.rules.insert("vault".to_owned(), KeepRule { last: 1, ..KeepRule::default() });
    let (plan, all) = (plan(&now), (1..=4).rev().map(|number| (number, "disk", "tape")).collect::<Vec<_>>());
    assert_eq!((copies(&plan), plan.forget.len()), (all, 0));
}

#[test]
fn an_old_full_backup_is_migrated_though_young_ones_stand_on_it() {
    let chain = [of_home(1, 0, TODAY), of_home(2, 1, TODAY + 5)];
    let now = ExpirySnapshot { copying: vec![vault(Some(3))], ..staged(&chain, (30, 30), TODAY + 6) };
    assert_eq!(copies(&plan(&now)), [(1, "disk", "tape")]);
}

/// `offsite` with ten years became `offsite2` with a rule, in the same pool.
#[test]
fn no_rule_shortens_what_a_retention_has_promised() {
    let full: Vec<_> = (1..=9).map(|number| of_home(number, 0, TODAY + i64::from(number))).collect();
    let mut now = staged(&full, (14, 3650), TODAY + 40);
    now.rules.insert("vault".to_owned(), KeepRule { last: 2, ..KeepRule::default() });
    let only_disk = plan(&now);
    assert_eq!((only_disk.forget.len(), only_disk.copies.iter().filter(|copy| copy.pool == "tape").count()), (0, 0));
    // What a rule kept is for the new rule, and that is asked for.
    now.copies.iter_mut().filter(|copy| copy.pool == "tape").for_each(|copy| copy.expires_ns = BY_RULE);
    now.earlier_rules.insert("vault".to_owned(), None);
    let unasked = plan_unasked(&now);
    assert_eq!((unasked.plan.forget.len(), unasked.held[0].lost.len(), unasked.held[0].kept_before), (0, 7, 9));
    // A retention that takes the rule's place is for what is made from then on.
    now.rules.clear();
    now.earlier_rules.clear();
    now.copying[0].keeps = CopyLifetime::of(&JobConfig { retention: Some("10d".to_owned()), ..JobConfig::default() });
    assert_eq!(plan(&now).forget.len(), 0);
    now.copies.iter_mut().filter(|copy| copy.pool == "tape").for_each(|copy| copy.expires_ns = 0);
    assert_eq!(plan(&now).forget.len(), 0);
}

#[test]
fn the_rule_of_a_policy_of_copies_is_for_no_backup_of_its_name() {
    let mut old = [of_home(1, 0, TODAY), of_home(2, 0, TODAY + 1), of_home(3, 0, TODAY + 2)];
    old.iter_mut().for_each(|object| (object.policy, object.expires_ns) = ("vault".to_owned(), 0));
    let mut now = known(&old, TODAY + 40);
    now.copying.push(vault(None));
    now.rules.insert("vault".to_owned(), daily(1));
    assert_eq!(plan(&now).forget.len(), 0);
}

/// `daily = 3` was typed for `daily = 30` in the policy of the backups, and what was on disk went without a word.
#[test]
fn a_rule_that_takes_most_own_copies_is_asked_for_though_others_stay() {
    let full: Vec<_> = (1..=30).map(|number| of_home(number, 0, TODAY + i64::from(number))).collect();
    let mut now = staged(&full, (0, 3650), TODAY + 30);
    now.rules.insert("home".to_owned(), daily(3));
    now.earlier_rules.insert("home".to_owned(), Some(daily(30)));
    let unasked = plan_unasked(&now);
    assert_eq!((unasked.plan.copies.len(), unasked.held.len()), (0, 1));
    assert_eq!((unasked.held[0].lost.len(), unasked.held[0].later, plan(&now).copies.len()), (27, 0, 27));
}

#[test]
fn what_is_not_claimed_holds_what_it_stands_on_in_its_pool() {
    let chain = [of_home(1, 0, TODAY), of_home(2, 1, TODAY), of_home(3, 2, TODAY), of_home(4, 0, TODAY)];
    let planned = plan(&staged(&chain, (14, 3650), TODAY + 20)).copies;
    assert_eq!(planned.len(), 4);
    let left = |not: u8, stay: &[Object]| {
        let mut copies = planned.clone();
        leave_what_is_claimed_elsewhere(&mut copies, |copy| copy.object.id != id(not), stay);
        copies.iter().map(|copy| copy.object.id.0[0]).collect::<Vec<_>>()
    };
    assert_eq!((left(3, &[]), left(2, &[]), left(1, &[])), (vec![4], vec![4, 3], vec![4, 3, 2]));
    assert_eq!((left(9, &[]), left(9, &chain[2..3])), (vec![4, 3, 2, 1], vec![4, 3]));
}

/// The policy without terms copied its backups again each day, and each night they were forgotten.
#[test]
fn a_copy_without_terms_stays_as_long_as_its_object() {
    let full = [of_home(1, 0, TODAY), of_home(2, 0, TODAY + 1)];
    let on = |day, home: Option<KeepRule>| {
        let mut now = staged(&full, (14, 3650), TODAY + day);
        now.copying[0].keeps =
            CopyLifetime::of(&JobConfig { retention: Some("10y".to_owned()), ..JobConfig::default() });
        now.copying.push(CopyingPolicy { name: "west".to_owned(), pool: "west".to_owned(), ..vault(None) });
        let days = if home.is_some() { 0 } else { 14 };
        now.copies.extend(full.iter().map(|object| copy_of(object, 3, "west", days)));
        now.rules.extend(home.map(|rule| ("home".to_owned(), rule)));
        now
    };
    assert_eq!(copies(&plan(&on(20, None))), [(2, "disk", "tape"), (1, "disk", "tape")]);
    assert_eq!(copies(&plan(&on(20, Some(daily(1))))), [(1, "disk", "tape")]);
    assert_eq!(numbers(&plan(&on(3700, None)).forget), [1]);
}

/// A tape was suspect: nothing was migrated any more, for a run that had nothing to copy.
#[test]
fn a_copy_that_cannot_be_read_is_there_all_the_same() {
    let full = [of_home(1, 0, TODAY), of_home(2, 0, TODAY + 1)];
    let mut now = staged(&full, (14, 3650), TODAY + 20);
    now.copying[0].keeps = CopyLifetime::of(&JobConfig { retention: Some("10y".to_owned()), ..JobConfig::default() });
    now.copies.iter_mut().filter(|copy| copy.pool == "tape").for_each(|copy| copy.is_whole = false);
    assert_eq!((copies(&plan(&now)), kept(&plan(&now))), (vec![], vec![]), "it is not owed, and nothing stands for it");
    // A copy that no rule wants, and that is not whole, ends.
    now.rules.insert("vault".to_owned(), KeepRule { last: 1, ..KeepRule::default() });
    now.copying[0].keeps = CopyLifetime::of(&JobConfig::default());
    let of_first = |copy: &&mut CopyEnd| copy.pool == "tape" && copy.object == id(1);
    now.copies.iter_mut().filter(of_first).for_each(|copy| (copy.holds_all, copy.expires_ns) = (false, BY_RULE));
    assert_eq!(numbers(&plan(&now).forget), [1]);
}

/// Who agreed to what was held saw an empty list, and the server took all the same.
#[test]
fn what_a_policy_of_copies_alone_keeps_is_of_that_policy() {
    let full: Vec<_> = (1..=9).map(|number| of_home(number, 0, TODAY + i64::from(number))).collect();
    let mut now = staged(&full, (14, 3650), TODAY + 40);
    now.copies.retain(|copy| copy.pool == "tape");
    now.copies.iter_mut().for_each(|copy| copy.expires_ns = BY_RULE);
    now.rules.insert("vault".to_owned(), KeepRule { last: 2, ..KeepRule::default() });
    let only = |name: &str| ExpiryRequest { policies: PolicyChoice::Only(vec![name.to_owned()]), ..Default::default() };
    assert_eq!(numbers(&plan_expiry(&now, &only("vault")).forget), [7, 6, 5, 4, 3, 2, 1]);
    let but = ExpiryRequest { policies: PolicyChoice::AllBut(vec!["vault".to_owned()]), ..Default::default() };
    assert_eq!(plan_expiry(&now, &but).forget.len(), 0);
}

/// Four full backups that are on tape, too. On the disk, volume A00001 holds the first, A00002 the second and third,
/// and A00003 the third and fourth; each 100 bytes.
fn on_a_full_disk(wanted_bytes: u64) -> ExpirySnapshot {
    let full: Vec<Object> = (1..=4).map(|number| of_home(number, 0, TODAY + i64::from(number))).collect();
    let mut known = staged(&full, (3650, 3650), TODAY + 10);
    let volser = |number: u8| Volser::new(&format!("A0000{number}")).expect("a barcode");
    let holds = [(1, vec![1]), (2, vec![2, 3]), (3, vec![3, 4])];
    known.volumes = holds
        .into_iter()
        .map(|(number, held)| (volser(number), held.into_iter().map(|object| (id(object), 1)).collect()))
        .collect();
    let volumes = (1..=3).map(|number| (volser(number), 100)).collect();
    known.full_folders = vec![FullFolders { wanted_bytes, volumes }];
    known.copying = vec![CopyingPolicy { migrates_for_room: true, ..vault(Some(3)) }];
    known
}

#[test]
fn what_migrates_for_room_goes_as_far_as_that_is_needed() {
    let gone =
        |known: &ExpirySnapshot| -> Vec<u8> { copies(&plan(known)).into_iter().map(|(object, ..)| object).collect() };
    assert_eq!(gone(&on_a_full_disk(0)), [0; 0]);
    assert_eq!(gone(&ExpirySnapshot { full_folders: Vec::new(), ..on_a_full_disk(9) }), [0; 0]);
    // The oldest first, and those that end a volume with it.
    assert_eq!(gone(&on_a_full_disk(1)), [1]);
    assert_eq!(gone(&on_a_full_disk(100)), [1]);
    assert_eq!(gone(&on_a_full_disk(101)), [3, 2, 1]);
    assert_eq!(gone(&on_a_full_disk(201)), [4, 3, 2, 1]);
    assert_eq!(gone(&on_a_full_disk(u64::MAX)), [4, 3, 2, 1]);
    // One that stays on a volume keeps it: to forget the others would give nothing back.
    let mut known = on_a_full_disk(201);
    known.restored = HashSet::from([id(4)]);
    assert_eq!(gone(&known), [3, 2, 1]);
    known.restored = HashSet::from([id(2)]);
    assert_eq!(gone(&known), [4, 3, 1]);
    known.restored = HashSet::from([id(3)]);
    assert_eq!(gone(&known), [1], "it is on both other volumes");
    // What is young, on another disk, or not on tape yet.
    let mut known = on_a_full_disk(u64::MAX);
    known.copying[0].migrate_after_ns = Some(9 * DAY);
    assert_eq!(gone(&known), [1]);
    let mut known = on_a_full_disk(u64::MAX);
    known.full_folders[0].volumes.remove(0);
    assert_eq!(gone(&known), [4, 3, 2]);
    let mut known = on_a_full_disk(u64::MAX);
    known.copies.retain(|copy| (copy.object, copy.copy) != (id(1), 2));
    known.copying[0].is_on = false;
    assert_eq!(gone(&known), [4, 3, 2]);
    // A chain goes as a whole, before what came later: the second, on the next volume, is based on the first.
    let mut known = on_a_full_disk(1);
    known.objects.iter_mut().filter(|object| object.id == id(2)).for_each(|object| object.base = Some(id(1)));
    assert_eq!(gone(&known), [2, 1]);
    // One that stays keeps its chain, if the others are enough; else the oldest goes alone.
    known.restored = HashSet::from([id(2)]);
    known.full_folders[0].wanted_bytes = 100;
    assert_eq!(gone(&known), [4, 3]);
    known.full_folders[0].wanted_bytes = 101;
    assert_eq!(gone(&known), [4, 3, 1]);
    // What stays there keeps what it is based on, though the time of that is over.
    let mut known = on_a_full_disk(0);
    known.objects.iter_mut().filter(|object| object.id == id(2)).for_each(|object| object.base = Some(id(1)));
    let of_first = |copy: &&mut CopyEnd| (copy.object, copy.copy) == (id(1), 1);
    known.copies.iter_mut().filter(of_first).for_each(|copy| copy.expires_ns = TODAY * DAY);
    assert_eq!(gone(&known), [0; 0]);
    // Another policy migrates in any case.
    let mut known = on_a_full_disk(0);
    let other = CopyingPolicy { name: "later".to_owned(), migrates_for_room: false, ..known.copying[0].clone() };
    known.copying.push(CopyingPolicy { migrate_after_ns: Some(8 * DAY), ..other });
    assert_eq!(gone(&known), [2, 1]);
}

/// Both counted, and the older backup lost its copy to what was the same backup twice.
#[test]
fn a_rule_counts_a_full_one_that_was_made_of_an_incremental_as_that() {
    let made = Object { consolidates: Some(id(2)), ..of_home(3, 0, TODAY + 1) };
    let objects = [of_home(1, 0, TODAY), of_home(2, 1, TODAY + 1), made, of_home(4, 3, TODAY + 2)];
    let mut now = staged(&objects, (3650, 0), TODAY + 10);
    let rule = KeepRule { last: 2, ..KeepRule::default() };
    now.rules.insert("vault".to_owned(), rule);
    assert_eq!(copies(&plan(&now)), [(2, "tape", "disk"), (1, "tape", "disk")]);
    // Until its own copy is there, that of the incremental stays.
    now.copies.retain(|copy| copy.object != id(3) || copy.pool != "tape");
    assert_eq!(copies(&plan(&now)), []);
}

/// The vault had the incremental and what is based on it, and the full one that stands for it elsewhere only: the copy
/// of the incremental went, and the other one was of no use any more.
#[test]
fn a_copy_is_needed_where_what_stands_for_it_has_none() {
    let made = Object { consolidates: Some(id(2)), ..of_home(3, 0, TODAY + 1) };
    let later = Object { made_on: Some(id(2)), ..of_home(4, 3, TODAY + 4) };
    let objects = [of_home(1, 0, TODAY), of_home(2, 1, TODAY + 1), made, later];
    let mut now = staged(&objects, (3650, 14), TODAY + 16);
    now.copying[0].keeps = CopyLifetime::of(&JobConfig { retention: Some("14d".to_owned()), ..JobConfig::default() });
    assert_eq!(copies(&plan(&now)), [(2, "tape", "disk"), (1, "tape", "disk")]);
    now.copies.retain(|copy| copy.object != id(3) || copy.pool != "tape");
    assert_eq!(copies(&plan(&now)), []);
}
