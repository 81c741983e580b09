//! Decisions by cases: what waits, what works and what drives there are in, what begins out.
#![allow(clippy::unwrap_used, reason = "tests fail by panicking")]
use capstan_director::Shortfall;

use super::*;

mod kept;

const NOW: i64 = 1_800_000_000;

fn at(seconds: i64) -> Timestamp {
    Timestamp::from_second(NOW + seconds).unwrap()
}

/// No two of so many copies share a session unless they are told so.
fn terms(copies: u8) -> RunTerms {
    of_pool("p", copies)
}

fn of_pool(pool: &str, copies: u8) -> RunTerms {
    of_models(copies, pool, &[])
}

fn of_models(copies: u8, pool: &str, models: &[&str]) -> RunTerms {
    RunTerms::Writes(SessionTerms {
        pool: pool.into(),
        copies,
        compression: None,
        shortfall: Shortfall::Fail,
        models: models.iter().map(|&model| model.to_owned()).collect(),
    })
}

const MAIN: &str = "main";

fn begins(session: i64) -> RunDecision {
    begins_in(session, MAIN)
}

fn begins_in(session: i64, library: &str) -> RunDecision {
    RunDecision::Begins { session, library: library.into(), drives: 1 }
}

fn unit(name: &str, libraries: &[&str], runs_per_drive: u8) -> StorageUnit {
    let libraries = libraries.iter().map(|library| (*library).to_owned()).collect();
    StorageUnit { name: name.into(), libraries, models: Vec::new(), drives: None, runs_per_drive }
}

fn library(name: &str, all: Option<u32>, by_others: u32) -> DriveUse {
    DriveUse { library: name.into(), all, classes: Vec::new(), by_others, waited_for_ns: None }
}

fn waiting(run: i64, priority: i64, entered: i64) -> WaitingRun {
    WaitingRun {
        run,
        policy: format!("policy {run}"),
        runs_at_once: None,
        client: "tern".into(),
        network: None,
        priority,
        entered: at(entered),
        not_before: Timestamp::UNIX_EPOCH,
        keeps_age: false,
        is_held: false,
        terms: terms(1),
        drives: 1,
        unit: unit(MAIN, &[MAIN], 1),
        lifetime: Lifetime::ENDLESS,
        window: None,
        fault: None,
        source_in_use: None,
        volume_in_use: None,
        lacks_volumes: Vec::new(),
        client_away: None,
        usual: None,
    }
}

fn working(run: i64, drives: u8, ends: Option<i64>) -> WorkingRun {
    let (policy, client) = (format!("policy {run}"), "tern".to_owned());
    let (library, unit) = (MAIN.to_owned(), MAIN.to_owned());
    let (terms, lifetime, ends) = (terms(drives), Lifetime::ENDLESS, ends.map(at));
    WorkingRun { run, policy, client, network: None, session: run, library, drives: 1, unit, terms, lifetime, ends }
}

fn situation(waiting: Vec<WaitingRun>, working: Vec<WorkingRun>, drives: u32) -> Situation {
    Situation { now: at(0), waiting, working, runs_per_client: None, libraries: vec![library(MAIN, Some(drives), 0)] }
}

fn drives(needed: u32, free: u32, until: Option<i64>) -> RunDecision {
    RunDecision::Waits(WaitsFor::Drives { needed, free, until: until.map(at), before: 0 })
}

/// The same for a run that is not the first to wait for them.
fn drives_behind(before: usize, needed: u32, free: u32) -> RunDecision {
    RunDecision::Waits(WaitsFor::Drives { needed, free, until: None, before })
}

fn turn(behind: i64) -> RunDecision {
    RunDecision::Waits(WaitsFor::Turn { behind })
}

#[test]
fn the_first_in_the_queue_begins_while_drives_last() {
    let queue = vec![waiting(1, 50, -60), waiting(2, 90, -30), waiting(3, 50, -90)];
    let decisions = decide(&situation(queue, vec![working(9, 1, Some(300))], 3));
    let waits = drives(1, 0, Some(300));
    assert_eq!(decisions, [(2, begins(2)), (3, begins(3)), (1, waits)]);
}

#[test]
fn runs_share_a_session_where_no_drive_is_free_for_them() {
    let of_pool = |run: i64, pool: &str, since: i64| {
        let terms = of_pool(pool, 1);
        WaitingRun { terms, unit: unit(MAIN, &[MAIN], 3), ..waiting(run, 50, since) }
    };
    let at_work = |run: i64, session: i64| WorkingRun { session, ..working(run, 1, Some(300)) };
    let queue = vec![of_pool(4, "p", -60), of_pool(5, "p", -50), of_pool(6, "other", -40), of_pool(7, "p", -30)];
    let two = situation(queue.clone(), vec![at_work(1, 1), at_work(2, 1)], 2);
    // One is free, then the session with fewer runs has room for two, and the other one for one.
    assert_eq!(decide(&two), [(4, begins(4)), (5, begins(4)), (6, drives(1, 0, Some(300))), (7, begins(1))]);
    // While somebody outside the queue waits, for half an hour, nobody joins.
    let of_restore = |since| {
        let waited_for = DriveUse { waited_for_ns: Some((NOW + since) * 1_000_000_000), ..library(MAIN, Some(2), 0) };
        decide(&Situation { libraries: vec![waited_for], ..two.clone() })
    };
    assert_eq!(of_restore(-60)[1], (5, drives(1, 0, Some(300))));
    assert_eq!(of_restore(-1800)[1], (5, begins(4)));
    // Who waited long for a drive is passed by nobody, though there is room for others.
    let early = WaitingRun { entered: at(-7200), ..of_pool(6, "other", 0) };
    let full = Situation { waiting: vec![early, of_pool(7, "p", -30)], ..two.clone() };
    let full = Situation { libraries: vec![library(MAIN, Some(1), 0)], ..full };
    assert_eq!(decide(&full), [(6, drives(1, 0, Some(300))), (7, turn(6))]);
    // A session is over when its last run is.
    let longer = WorkingRun { ends: Some(at(900)), ..at_work(2, 1) };
    let last = Situation { working: vec![at_work(1, 1), longer], ..full };
    assert_eq!(decide(&last)[0].1, drives(1, 0, Some(900)));
}

#[test]
fn a_run_that_had_no_turn_ranks_by_when_it_was_entered() {
    let again = |keeps_age| WaitingRun { not_before: at(-1), keeps_age, ..waiting(1, 50, -3600) };
    let order = |keeps_age| {
        let decided = decide(&situation(vec![waiting(2, 50, -60), again(keeps_age)], vec![], 1));
        decided.into_iter().map(|(run, _)| run).collect::<Vec<_>>()
    };
    assert_eq!((order(true), order(false)), (vec![1, 2], vec![2, 1]));
}

#[test]
fn runs_share_a_session_with_what_is_kept_as_long_first() {
    let days = |days: i64| Lifetime::of_ns(days * 86_400_000_000_000);
    let shared = |run, lifetime| WaitingRun { lifetime, unit: unit(MAIN, &[MAIN], 3), ..waiting(run, 50, -60 + run) };
    let at_work = |run, session, lifetime| WorkingRun { session, lifetime, ..working(run, 1, Some(300)) };
    let working = vec![at_work(1, 1, days(30)), at_work(2, 1, days(30)), at_work(3, 3, days(3650))];
    let queue = vec![shared(4, days(31)), shared(5, days(40)), shared(6, days(3000))];
    // The first session has room for one more; after that any is better than none.
    assert_eq!(decide(&situation(queue, working, 2)), [(4, begins(1)), (5, begins(3)), (6, begins(3))]);
}

fn restore(run: i64, volume: &str, client: &str) -> WaitingRun {
    WaitingRun {
        policy: String::new(),
        client: client.into(),
        terms: RunTerms::Reads(volume.into()),
        unit: unit("", &[MAIN], 3),
        ..waiting(run, 80, -60 + run)
    }
}

#[test]
fn restores_that_want_one_volume_go_one_after_the_other_at_one_drive() {
    let queue = vec![
        restore(1, "A", "tern"),
        restore(2, "B", "wren"),
        restore(3, "A", "wren"),
        restore(4, "A", "heron"),
        restore(5, "A", "plover"),
    ];
    let waits = RunDecision::Waits(WaitsFor::Volume { held: "A, which run 1 reads".into(), until: None });
    let begun = [(1, begins(1)), (2, begins(2)), (3, begins(1)), (4, begins(1)), (5, waits.clone())];
    assert_eq!(decide(&situation(queue.clone(), Vec::new(), 4)), begun, "three have room at a drive");
    let one_drive = decide(&situation(queue, Vec::new(), 1));
    assert_eq!(one_drive, [(1, begins(1)), (2, drives(1, 0, None)), (3, begins(1)), (4, begins(1)), (5, waits)]);
}

#[test]
fn a_restore_waits_for_its_volume_and_for_no_backup_of_its_client() {
    let held = WaitingRun {
        volume_in_use: Some(VolumeTaken { held: "A, which another job uses".into(), pool: None }),
        ..restore(1, "A", "tern")
    };
    let of_tern: Vec<_> = (2..6).map(|run| restore(run, &format!("V{run}"), "tern")).collect();
    let queue = [vec![held, waiting(9, 50, 0)], of_tern].concat();
    let bounded = Situation { runs_per_client: Some(1), ..situation(queue, Vec::new(), 9) };
    let limit = |before| RunDecision::Waits(WaitsFor::Limit { of: LimitOf::Restores, at_most: 2, until: None, before });
    assert_eq!(
        decide(&bounded),
        [
            (1, RunDecision::Waits(WaitsFor::Volume { held: "A, which another job uses".into(), until: None })),
            (2, begins(2)),
            (3, begins(3)),
            (4, limit(0)),
            (5, limit(1)),
            (9, begins(9)),
        ]
    );
}

/// It kept every session of its library from being joined, for as long as it waited: a night of other pools' backups.
#[test]
fn a_volume_that_is_waited_for_closes_the_sessions_of_its_pool_alone() {
    let at_work = |session: i64, pool: &str| WorkingRun { terms: of_pool(pool, 1), ..working(session, 1, None) };
    let taken = |pool: &str| VolumeTaken { held: "A, which run 8 uses".into(), pool: Some(pool.into()) };
    let held = |entered: i64, pool: &str| WaitingRun {
        volume_in_use: Some(taken(pool)),
        entered: at(entered),
        not_before: at(entered),
        ..restore(1, "A", "tern")
    };
    let joins = |run: i64, pool: &str| WaitingRun {
        terms: of_pool(pool, 1),
        unit: unit(MAIN, &[MAIN], 3),
        ..waiting(run, 50, -60)
    };
    let decided = |waited: i64, pool: &str| {
        let queue = vec![held(-waited, pool), joins(2, "weekly"), joins(3, "daily")];
        decide(&situation(queue, vec![at_work(8, "weekly"), at_work(9, "daily")], 2))
    };
    let waits = RunDecision::Waits(WaitsFor::Volume { held: taken("").held, until: None });
    assert_eq!(
        decided(60, "weekly"),
        [(1, waits.clone()), (2, begins(8)), (3, begins(9))],
        "it waits for a minute only"
    );
    // The second is that of its further copies.
    for pool in ["weekly", "weekly-copy2"] {
        let long = decided(3_600, pool);
        assert_eq!((&long[0], &long[2]), (&(1, waits.clone()), &(3, begins(9))));
        assert!(matches!(long[1], (2, RunDecision::Waits(WaitsFor::Drives { .. }))), "{long:?}");
    }
}

#[test]
fn drives_that_are_left_go_to_runs_that_can_use_them() {
    let wants =
        |run: i64, copies: u8, drives: u32| WaitingRun { terms: terms(copies), drives, ..waiting(run, 50, -60) };
    let with = |session: i64, drives: u32| RunDecision::Begins { session, library: MAIN.into(), drives };
    // Each has its own first; what is left the first can use, and the other then.
    let two = situation(vec![wants(1, 1, 3), wants(2, 1, 3)], vec![], 5);
    assert_eq!(decide(&two), [(1, with(1, 3)), (2, with(2, 2))]);
    // Twins need two each.
    let twins = situation(vec![wants(1, 2, 3)], vec![], 5);
    assert_eq!(decide(&twins), [(1, with(1, 2))]);
    // They count as in use, and their session may be joined.
    let at_work = WorkingRun { drives: 3, ..working(9, 1, Some(300)) };
    let full = situation(vec![wants(1, 1, 1)], vec![at_work.clone()], 3);
    assert_eq!(decide(&full), [(1, drives(1, 0, Some(300)))]);
    let joins = WaitingRun { unit: unit(MAIN, &[MAIN], 2), ..wants(1, 1, 2) };
    assert_eq!(decide(&situation(vec![joins], vec![at_work], 3)), [(1, with(9, 3))]);
    // The bound of the unit is of drives.
    let bounded = WaitingRun { unit: StorageUnit { drives: Some(2), ..unit("u", &[MAIN], 1) }, ..wants(1, 1, 3) };
    assert_eq!(decide(&situation(vec![bounded], vec![], 5)), [(1, with(1, 2))]);
    // Nobody has two while another one waits for its only one, in the queue or outside it.
    let waits = vec![wants(1, 1, 3), wants(2, 3, 1)];
    assert_eq!(decide(&situation(waits, vec![], 3))[0], (1, with(1, 1)));
    let waited_for = DriveUse { waited_for_ns: Some((NOW - 60) * 1_000_000_000), ..library(MAIN, Some(3), 0) };
    let outside = Situation { libraries: vec![waited_for], ..situation(vec![wants(1, 1, 3)], vec![], 3) };
    assert_eq!(decide(&outside), [(1, with(1, 1))]);
}

#[test]
fn bounds_of_policies_and_clients_are_kept() {
    let of = |run: i64, policy: &str, client: &str, runs_at_once| {
        let (policy, client) = (policy.to_owned(), client.to_owned());
        WaitingRun { policy, client, runs_at_once, ..waiting(run, 50, -100 + run) }
    };
    let queue =
        vec![of(1, "web", "a", Some(2)), of(2, "web", "b", Some(2)), of(3, "db", "b", None), of(4, "db", "c", None)];
    let busy = WorkingRun { policy: "web".into(), client: "c".into(), ..working(9, 1, None) };
    let bounded = Situation { runs_per_client: Some(1), ..situation(queue, vec![busy], 9) };
    let limit = |of, at_most| RunDecision::Waits(WaitsFor::Limit { of, at_most, until: None, before: 0 });
    let (of_policy, of_client) = (limit(LimitOf::Policy, 2), limit(LimitOf::Client, 1));
    assert_eq!(decide(&bounded), [(1, begins(1)), (2, of_policy), (3, begins(3)), (4, of_client)]);
}

#[test]
fn so_many_runs_of_a_network_are_at_work() {
    let in_network = |run: i64, name: &str| {
        let network = Some((name.to_owned(), Some(2)));
        WaitingRun { network, client: format!("client {run}"), ..waiting(run, 50, -100 + run) }
    };
    let queue = vec![in_network(1, "branch"), in_network(2, "branch"), in_network(3, "lab"), waiting(4, 50, 0)];
    let busy = WorkingRun { network: Some("branch".into()), ..working(9, 1, None) };
    let limit = RunDecision::Waits(WaitsFor::Limit { of: LimitOf::Network, at_most: 2, until: None, before: 0 });
    let decided = decide(&situation(queue, vec![busy, working(8, 1, None)], 9));
    assert_eq!(decided, [(1, begins(1)), (2, limit), (3, begins(3)), (4, begins(4))]);
}

/// As many have to end as are too many, and of those whose length is known the first ones are counted on.
#[test]
fn when_a_bound_will_have_room_is_told_by_the_runs_at_work() {
    let waits = |ends: &[Option<i64>], at_most| {
        let waiting = WaitingRun { policy: "web".into(), runs_at_once: Some(at_most), ..waiting(1, 50, 0) };
        let at_work =
            ends.iter().zip(2..).map(|(ends, run)| WorkingRun { policy: "web".into(), ..working(run, 1, *ends) });
        let decided = decide(&situation(vec![waiting], at_work.collect(), 9));
        let [(1, RunDecision::Waits(WaitsFor::Limit { of: LimitOf::Policy, until, .. }))] = decided[..] else {
            panic!("{decided:?}")
        };
        until
    };
    assert_eq!(waits(&[Some(300), Some(100)], 2), Some(at(100)));
    assert_eq!(waits(&[Some(300), Some(100)], 1), Some(at(300)), "the bound was lowered meanwhile");
    assert_eq!((waits(&[None, Some(200)], 2), waits(&[None, Some(200)], 1)), (Some(at(200)), None));
    assert_eq!((waits(&[Some(-10)], 1), waits(&[Some(-10), Some(100)], 2)), (None, Some(at(100))), "one takes longer");
    // So it is for drives of a storage unit, and for a volume that as many restores read as may.
    let seats = usize::from(restore(1, "A", "a").unit.runs_per_drive);
    let reading = (0..seats as i64).map(|at| {
        let (terms, library) = (RunTerms::Reads("A".into()), MAIN.to_owned());
        WorkingRun { terms, library, session: 2, client: format!("c{at}"), ..working(2 + at, 1, Some(100 + at)) }
    });
    let decided = decide(&situation(vec![restore(1, "A", "a")], reading.collect(), 2));
    let held = "A, which run 2 reads".to_owned();
    assert_eq!(decided, [(1, RunDecision::Waits(WaitsFor::Volume { held, until: Some(at(100)) }))]);
    let unit = StorageUnit { drives: Some(1), ..unit("tape", &[MAIN], 1) };
    let at_work = WorkingRun { unit: "tape".into(), ..working(9, 1, Some(60)) };
    let decided = decide(&situation(vec![WaitingRun { unit, ..waiting(1, 50, 0) }], vec![at_work], 3));
    let limit = WaitsFor::Limit { of: LimitOf::Unit, at_most: 1, until: Some(at(60)), before: 0 };
    assert_eq!(decided, [(1, RunDecision::Waits(limit))]);
}

#[test]
fn a_run_of_copies_needs_a_drive_to_read_where_it_writes_and_goes_alone() {
    let RunTerms::Writes(of_vault) = of_pool("vault", 1) else { panic!("a backup writes") };
    let copies =
        |policy: &str, reads_beside| RunTerms::Copies { policy: policy.into(), terms: of_vault.clone(), reads_beside };
    let waits = |run, terms| WaitingRun { policy: "offsite".into(), terms, ..waiting(run, 50, -60 + run) };
    let at_work =
        || WorkingRun { terms: copies("offsite", false), policy: "offsite".into(), ..working(9, 1, Some(300)) };
    // Its client has a bound that is met, and has nothing to do with it.
    let decided =
        |queue, at_work, drives| decide(&Situation { runs_per_client: Some(1), ..situation(queue, at_work, drives) });
    let backup = || working(8, 1, Some(600));
    assert_eq!(decided(vec![waits(1, copies("offsite", false))], vec![backup()], 2), [(1, begins(1))]);
    let beside =
        |drives_of_library| decided(vec![waits(1, copies("offsite", true))], vec![backup()], drives_of_library);
    assert_eq!(beside(3), [(1, begins(1))]);
    assert_eq!(beside(2), [(1, drives(2, 1, Some(600)))]);
    // A bound of drives is one of drives that are written: the one that is read does not count.
    let bound = |queue: Vec<WaitingRun>, at_work: Vec<WorkingRun>| {
        let bounded = StorageUnit { drives: Some(1), ..unit("slow", &[MAIN], 1) };
        let queue = queue.into_iter().map(|run| WaitingRun { unit: bounded.clone(), ..run }).collect();
        let at_work = at_work.into_iter().map(|run| WorkingRun { unit: "slow".into(), ..run }).collect();
        decided(queue, at_work, 4)
    };
    assert_eq!(bound(vec![waits(1, copies("offsite", true))], vec![]), [(1, begins(1))]);
    let limit = WaitsFor::Limit { of: LimitOf::Unit, at_most: 1, until: Some(at(600)), before: 0 };
    assert_eq!(bound(vec![waits(1, copies("offsite", true))], vec![backup()]), [(1, RunDecision::Waits(limit))]);
    // It begins where there is but one, and says why it cannot.
    assert_eq!(decided(vec![waits(1, copies("offsite", true))], vec![], 1), [(1, begins(1))]);
    let limit = WaitsFor::Limit { of: LimitOf::Policy, at_most: 1, until: Some(at(300)), before: 0 };
    let second = decided(vec![waits(1, copies("offsite", false))], vec![at_work()], 5);
    assert_eq!(second, [(1, RunDecision::Waits(limit))]);
    // Nor does a backup to that pool join it, or count it as one of its client.
    let joins = WaitingRun { terms: of_pool("vault", 1), unit: unit(MAIN, &[MAIN], 3), ..waiting(1, 50, -60) };
    assert_eq!(decided(vec![joins.clone()], vec![at_work()], 1), [(1, drives(1, 0, Some(300)))]);
    assert_eq!(decided(vec![joins], vec![at_work()], 2), [(1, begins(1))]);
}

#[test]
fn a_run_that_is_begun_again_takes_no_number_that_is_in_use() {
    let at_work = WorkingRun { session: 1, ..working(2, 1, None) };
    let again = situation(vec![waiting(1, 50, -60)], vec![at_work], 2);
    assert_eq!(decide(&again), [(1, begins(2))]);
}

#[test]
fn what_waited_long_passes_a_new_run_of_higher_priority() {
    let first = |waited: i64| {
        let queue = vec![waiting(1, 0, -waited), waiting(2, 100, -60)];
        decide(&situation(queue, vec![], 1))[0].0
    };
    assert_eq!(first(9 * 3600), 2);
    assert_eq!(first(11 * 3600), 1);
}

#[test]
fn a_run_says_what_it_waits_for() {
    let held = WaitingRun { is_held: true, ..waiting(1, 50, -60) };
    let faulty = WaitingRun { fault: Some("no script".into()), ..waiting(2, 50, -60) };
    let later = WaitingRun { not_before: at(600), ..waiting(3, 50, -60) };
    let vault = WaitingRun { lacks_volumes: vec!["A00003".into()], not_before: at(30), ..waiting(6, 50, -60) };
    // It is a Friday, 8:00 UTC.
    let window = Some(("sat,sun".parse().unwrap(), TimeZone::UTC));
    let weekend = WaitingRun { window, ..waiting(4, 50, -60) };
    let in_use = WaitingRun { source_in_use: Some("by hand".into()), ..waiting(5, 50, -60) };
    let decisions = decide(&situation(vec![held, faulty, later, weekend, in_use, vault], vec![], 4));
    let of = |run: i64| decisions.iter().find(|(of, _)| *of == run).unwrap().1.clone();
    assert_eq!(of(1), RunDecision::Waits(WaitsFor::Release));
    assert_eq!(of(2), RunDecision::Waits(WaitsFor::Repair("no script".into())));
    assert_eq!(of(3), RunDecision::Waits(WaitsFor::Time(at(600))));
    assert_eq!(of(5), RunDecision::Waits(WaitsFor::Source("by hand".into())));
    assert_eq!(of(6), RunDecision::Waits(WaitsFor::Insertion(vec!["A00003".into()])));
    assert_eq!(of(4), RunDecision::Waits(WaitsFor::Window(Some("2027-01-16T00:00:00Z".parse().unwrap()))));
}

#[test]
fn small_runs_pass_a_large_one_for_a_while_and_then_drives_are_kept_for_it() {
    let decisions = |waited: i64| {
        let large = WaitingRun { terms: terms(2), ..waiting(1, 50, -waited) };
        let at_work = vec![working(9, 1, Some(900))];
        decide(&situation(vec![large, waiting(2, 50, -10)], at_work, 2))
    };
    assert_eq!(decisions(60), [(1, drives(2, 1, Some(900))), (2, begins(2))]);
    assert_eq!(decisions(1800), [(1, drives(2, 1, Some(900))), (2, turn(1))]);
}

#[test]
fn when_drives_come_free_is_said_only_where_it_can_be_told() {
    let of = |at_work: Vec<WorkingRun>| {
        let two = WaitingRun { terms: terms(2), ..waiting(1, 50, -60) };
        decide(&situation(vec![two], at_work, 3)).remove(0).1
    };
    assert_eq!(of(vec![working(8, 1, Some(300)), working(9, 2, Some(600))]), drives(2, 0, Some(600)));
    assert_eq!(of(vec![working(8, 1, Some(300)), working(9, 2, None)]), drives(2, 0, None));
    assert_eq!(of(vec![working(9, 3, Some(-5))]), drives(2, 0, None), "it takes longer than usual");
}

#[test]
fn drives_of_others_are_not_given_and_more_than_there_are_is_nobodys_wait() {
    let queue = vec![WaitingRun { terms: terms(3), ..waiting(1, 50, -60) }];
    let mut others = situation(queue, vec![], 2);
    assert_eq!(decide(&others), [(1, begins(1))], "the job itself says what it lacks");
    others.libraries = vec![library(MAIN, Some(2), 1)];
    assert_eq!(decide(&others), [(1, drives(2, 1, None))]);
}

#[test]
fn drives_are_kept_for_nobody_who_waits_for_others_or_for_a_window() {
    let large = WaitingRun { terms: terms(2), ..waiting(1, 50, -7200) };
    let pinned = situation(vec![large.clone(), waiting(2, 50, -10)], vec![], 2);
    let pinned = Situation { libraries: vec![library(MAIN, Some(2), 1)], ..pinned };
    assert_eq!(decide(&pinned), [(1, drives(2, 1, None)), (2, begins(2))]);
    // It is 8:00 UTC: the window has been open for ten minutes.
    let window = |text: &str| Some((text.parse().unwrap(), TimeZone::UTC));
    let second = |window| {
        let large = WaitingRun { window, ..large.clone() };
        decide(&situation(vec![large, waiting(2, 50, -10)], vec![working(9, 1, Some(900))], 2)).remove(1).1
    };
    assert_eq!(second(window("07:50-09:00")), begins(2));
    assert_eq!(second(window("07:20-09:00")), turn(1));
}

#[test]
fn nothing_begins_before_the_library_says_what_it_has() {
    let unknown =
        Situation { libraries: vec![library(MAIN, None, 0)], ..situation(vec![waiting(1, 50, -60)], vec![], 0) };
    assert_eq!(decide(&unknown), [(1, RunDecision::Waits(WaitsFor::Library(vec![MAIN.into()])))]);
}

#[test]
fn a_run_goes_to_the_library_of_its_unit_that_has_most_drives_free() {
    let of_unit = |run: i64, unit: StorageUnit| WaitingRun { unit, ..waiting(run, 50, -run) };
    let both = || unit("tape", &["east", "west"], 2);
    let libraries = |east, west| vec![library(MAIN, Some(1), 0), library("west", west, 0), library("east", east, 0)];
    let queue = (1..=6).rev().map(|run| of_unit(run, both())).collect();
    let three = Situation { libraries: libraries(Some(1), Some(2)), ..situation(queue, vec![], 0) };
    // Two are free in the west, then one in each, of which the unit names the east first; then sessions are shared.
    let west = |run, session| (run, begins_in(session, "west"));
    let east = |run, session| (run, begins_in(session, "east"));
    assert_eq!(decide(&three), [west(6, 6), east(5, 5), west(4, 4), west(3, 6), east(2, 5), west(1, 4)]);
    // One that is away is nobody's, and what is written elsewhere waits for that alone.
    let queue = vec![of_unit(1, both()), of_unit(2, unit("west", &["west"], 2))];
    let away = Situation { libraries: libraries(Some(1), None), ..situation(queue, vec![], 0) };
    let waits = RunDecision::Waits(WaitsFor::Library(vec!["west".into()]));
    assert_eq!(decide(&away), [(2, waits), (1, begins_in(1, "east"))]);
}

#[test]
fn a_unit_of_some_models_begins_where_such_drives_are_free() {
    let of = |name: &str, classes: &[&str]| DriveUse {
        classes: classes.iter().map(|&class| class.to_owned()).collect(),
        ..library(name, Some(classes.len() as u32), 0)
    };
    let new = || StorageUnit { models: vec!["LTO-9".into()], drives: Some(2), ..unit("new", &["east", "west"], 1) };
    let of_unit = |run: i64| WaitingRun { unit: new(), terms: of_models(1, "p", &["LTO-9"]), ..waiting(run, 50, 0) };
    let decided = |libraries, runs: i64| {
        decide(&Situation { libraries, ..situation((1..=runs).map(of_unit).collect(), vec![], 0) })
    };
    // The east has more drives free, and none of them.
    let only_west = vec![of("east", &["LTO-8", "LTO-8", "LTO-8"]), of("west", &["LTO-8", "LTO-9"])];
    assert_eq!(decided(only_west, 2), [(1, begins_in(1, "west")), (2, drives(1, 0, None))]);
    let each = vec![of("east", &["LTO-9", "LTO-8", "LTO-8"]), of("west", &["LTO-9"])];
    assert_eq!(decided(each, 2), [(1, begins_in(1, "east")), (2, begins_in(2, "west"))]);
    // A run of two copies finds two nowhere: it begins, and whoever writes says that there are too few.
    let large = WaitingRun { terms: of_models(2, "p", &["LTO-9"]), ..of_unit(1) };
    let spread = vec![of("east", &["LTO-9", "LTO-8", "LTO-8"]), of("west", &["LTO-9", "LTO-8", "LTO-8"])];
    let too_few = Situation { libraries: spread, ..situation(vec![large], vec![], 0) };
    assert_eq!(decide(&too_few), [(1, begins_in(1, "east"))]);
    // Nobody knows what they are.
    let unknown = vec![of("east", &["", ""]), of("west", &["LTO-9"])];
    assert_eq!(decided(unknown, 2), [(1, begins_in(1, "east")), (2, begins_in(2, "east"))]);
}

/// A run of two copies waits for the library that has two drives; it does not begin where it must fail.
#[test]
fn a_run_of_several_copies_begins_in_no_library_that_is_too_small_for_it() {
    let large =
        |run: i64| WaitingRun { unit: unit("any", &["east", "west"], 1), terms: terms(2), ..waiting(run, 50, 0) };
    let libraries = |west| vec![library("east", Some(1), 0), library("west", west, 1)];
    let decided = |west| decide(&Situation { libraries: libraries(west), ..situation(vec![large(1)], vec![], 0) });
    assert_eq!(decided(Some(2)), [(1, drives(2, 1, None))], "one of the two is in use");
    assert_eq!(decided(Some(3)), [(1, begins_in(1, "west"))]);
    assert_eq!(decided(Some(1)), [(1, begins_in(1, "east"))], "nobody has two");
    let away = RunDecision::Waits(WaitsFor::Library(vec!["west".into()]));
    assert_eq!(decided(None), [(1, away)], "whoever does not answer may have them");
    // Of models, too: the east has one of them.
    let of = |name: &str, classes: &[&str], by_others| DriveUse {
        classes: classes.iter().map(|&class| class.to_owned()).collect(),
        ..library(name, Some(classes.len() as u32), by_others)
    };
    let new = StorageUnit { models: vec!["LTO-9".into()], ..unit("new", &["east", "west"], 1) };
    let run = WaitingRun { unit: new, terms: of_models(2, "p", &["LTO-9"]), ..waiting(1, 50, 0) };
    let libraries = vec![of("east", &["LTO-9", "LTO-8", "LTO-8"], 0), of("west", &["LTO-9", "LTO-9"], 1)];
    let busy = Situation { libraries, ..situation(vec![run], vec![], 0) };
    assert!(matches!(&decide(&busy)[..], [(1, RunDecision::Waits(WaitsFor::Drives { needed: 2, .. }))]));
}

/// Drives are kept in the library that has enough for a run, and not in one that never will.
#[test]
fn drives_are_kept_where_a_run_can_begin() {
    let of = |name: &str, classes: &[&str]| DriveUse {
        classes: classes.iter().map(|&class| class.to_owned()).collect(),
        ..library(name, Some(classes.len() as u32), 0)
    };
    let new = || StorageUnit { models: vec!["LTO-9".into()], ..unit("new", &["east", "west"], 1) };
    let of_new = |run: i64, copies: u8| WaitingRun {
        unit: new(),
        terms: of_models(copies, &format!("p{run}"), &["LTO-9"]),
        ..waiting(run, 50, -7200 + run)
    };
    let west = |run: i64| WaitingRun { unit: unit("west", &["west"], 1), ..waiting(run, 50, -7200 + run) };
    let at_work = |run: i64| WorkingRun { library: "west".into(), unit: "west".into(), ..working(run, 1, Some(60)) };
    let libraries = vec![of("east", &["LTO-9", "LTO-8", "LTO-8"]), of("west", &["LTO-9", "LTO-9"])];
    let queue = vec![of_new(1, 2), west(2), of_new(3, 1)];
    let busy = Situation { libraries, ..situation(queue, vec![at_work(9)], 0) };
    let decided = decide(&busy);
    assert_eq!(decided, [(1, drives(2, 1, Some(60))), (2, turn(1)), (3, begins_in(3, "east"))]);
}

/// Drives of some models are kept for a run that waits long, though others of the library are free.
#[test]
fn drives_of_models_are_kept_for_a_run_that_needs_several() {
    let models = ["LTO-9"];
    let of_unit = |run: i64, copies: u8, entered: i64| WaitingRun {
        unit: StorageUnit { models: vec!["LTO-9".into()], ..unit("new", &[MAIN], 1) },
        terms: of_models(copies, "p", &models),
        ..waiting(run, 50, entered)
    };
    let classes = ["LTO-9", "LTO-9", "LTO-8", "LTO-8"].map(str::to_owned).to_vec();
    let at_work = WorkingRun { unit: "new".into(), terms: of_models(1, "q", &models), ..working(9, 1, None) };
    let decided = |entered| {
        let libraries = vec![DriveUse { classes: classes.clone(), ..library(MAIN, Some(4), 0) }];
        let queue = vec![of_unit(1, 2, entered), of_unit(2, 1, entered + 1)];
        decide(&Situation { libraries, ..situation(queue, vec![at_work.clone()], 0) })
    };
    assert_eq!(decided(-7200), [(1, drives(2, 1, None)), (2, begins(2))]);
    assert_eq!(decided(-13 * 3600), [(1, drives(2, 1, None)), (2, turn(1))]);
}

/// What sessions of one unit have is not free for another one that may have the same drives.
#[test]
fn units_that_share_drives_count_each_others_sessions() {
    let run_of = |run: i64, models: &[&str]| WaitingRun {
        unit: StorageUnit {
            models: models.iter().map(|&model| model.to_owned()).collect(),
            ..unit(&models.join("+"), &[MAIN], 1)
        },
        terms: of_models(1, &models.join("+"), models),
        ..waiting(run, 50, run)
    };
    let decided = |runs: &[&[&str]]| -> Vec<RunDecision> {
        let queue = (1..).zip(runs).map(|(run, models)| run_of(run, models)).collect();
        let classes = ["LTO-9", "LTO-8", "LTO-8"].map(str::to_owned).to_vec();
        let libraries = vec![DriveUse { classes, ..library(MAIN, Some(3), 0) }];
        decide(&Situation { libraries, ..situation(queue, vec![], 0) })
            .into_iter()
            .map(|(_, decision)| decision)
            .collect()
    };
    let (new, any, old): (&[&str], &[&str], &[&str]) = (&["LTO-9"], &["LTO-8", "LTO-9"], &["LTO-8"]);
    // The last of any models may have an old one.
    assert_eq!(decided(&[new, any, old]), [begins(1), begins(2), begins(3)]);
    assert_eq!(decided(&[any, any, new]), [begins(1), begins(2), begins(3)], "they may both have old ones");
    // Two that may have all need two of the three; with an old one, the new one is theirs.
    assert_eq!(decided(&[old, old, any]), [begins(1), begins(2), begins(3)]);
    assert_eq!(decided(&[&["LTO-9"], &["LTO-9", "LTO-7"]]), [begins(1), drives(1, 0, None)]);
}

#[test]
fn a_unit_has_a_bound_of_drives_and_keeps_them_in_its_libraries_alone() {
    let bounded = StorageUnit { drives: Some(1), ..unit("tape", &["east", "west"], 1) };
    let of_unit = |run: i64, unit: &StorageUnit| WaitingRun { unit: unit.clone(), ..waiting(run, 50, -7200 - run) };
    let libraries = vec![library("east", Some(1), 0), library("west", Some(1), 0)];
    let queue = vec![of_unit(2, &bounded), of_unit(1, &bounded)];
    let limit = RunDecision::Waits(WaitsFor::Limit { of: LimitOf::Unit, at_most: 1, until: None, before: 0 });
    let both = Situation { libraries: libraries.clone(), ..situation(queue, vec![], 0) };
    assert_eq!(decide(&both), [(2, begins_in(2, "east")), (1, limit.clone())]);
    // The bound is kept for a run that waits long, too.
    let two = StorageUnit { drives: Some(2), ..bounded.clone() };
    let large = WaitingRun { terms: terms(2), entered: at(-13 * 3600), ..of_unit(2, &two) };
    let at_work = WorkingRun { library: "east".into(), unit: "tape".into(), ..working(9, 1, None) };
    let wide = vec![library("east", Some(1), 0), library("west", Some(2), 0)];
    let queue = vec![large, of_unit(1, &two)];
    let kept = Situation { libraries: wide, ..situation(queue, vec![at_work], 0) };
    let limit = RunDecision::Waits(WaitsFor::Limit { of: LimitOf::Unit, at_most: 2, until: None, before: 0 });
    assert_eq!(decide(&kept), [(2, limit), (1, turn(2))]);
    // Drives of the east are kept for a run that waits long; the west goes on.
    let (east, west) = (unit("east", &["east"], 1), unit("any", &["east", "west"], 1));
    let at_work = WorkingRun { library: "east".into(), unit: "east".into(), ..working(9, 1, Some(300)) };
    let queue = vec![of_unit(2, &east), of_unit(1, &east), WaitingRun { unit: west, ..waiting(3, 50, 0) }];
    let kept = Situation { libraries, ..situation(queue, vec![at_work], 0) };
    assert_eq!(decide(&kept), [(2, drives(1, 0, Some(300))), (1, turn(2)), (3, begins_in(3, "west"))]);
}

/// Whatever comes, a run that could begin does so after all that ranked before it: nothing starves.
#[test]
fn nothing_starves_under_a_stream_of_better_runs() {
    let mut now = 0;
    let mut queue = vec![WaitingRun { terms: terms(2), ..waiting(1, 0, 0) }];
    let mut at_work: Vec<WorkingRun> = Vec::new();
    for next in 2.. {
        now += 300;
        queue.push(waiting(next, 100, now));
        at_work.retain(|working| working.ends > Some(at(now)));
        let situation = Situation { now: at(now), ..situation(queue.clone(), at_work.clone(), 2) };
        for (run, decision) in decide(&situation) {
            if let RunDecision::Begins { session, .. } = decision {
                let terms = queue.iter().find(|waiting| waiting.run == run).unwrap().terms.clone();
                queue.retain(|waiting| waiting.run != run);
                at_work.push(WorkingRun { session, terms, ..working(run, 1, Some(now + 500)) });
            }
        }
        if queue.iter().all(|waiting| waiting.run != 1) {
            break;
        }
        assert!(now < 16 * 3600, "it waits for {now} s");
    }
}

#[test]
fn a_window_is_missed_once_it_was_open_and_closed_again() {
    // 2027-01-15 08:00 UTC.
    let with_window = |entered: i64, window: &str| WaitingRun {
        window: Some((window.parse().unwrap(), TimeZone::UTC)),
        ..waiting(1, 50, entered)
    };
    let (hour, now) = (3600, at(0));
    // It waited from 04:00 on.
    assert!(with_window(-4 * hour, "22:00-06:00").has_missed_window(now));
    assert!(!with_window(-4 * hour, "22:00-09:00").has_missed_window(now), "it is open");
    assert!(!with_window(-hour, "22:00-06:00").has_missed_window(now), "it came when that was closed");
    assert!(!waiting(1, 50, -4 * hour).has_missed_window(now), "it has none");
    let retried = WaitingRun { not_before: at(-hour), ..with_window(-4 * hour, "22:00-06:00") };
    assert!(!retried.has_missed_window(now), "its last attempt was in it");
    assert!(with_window(-28 * hour, "06:00-09:00").has_missed_window(now), "it is open once more");
}

/// A run that was due at noon had aged for eight hours when its window opened, and went before the one of a much higher
/// priority that was due then. What it waited in the windows of other nights counts.
#[test]
fn a_run_ages_while_its_window_is_open() {
    let hour = 3600;
    let in_window = |run: i64, priority: i64, entered: i64| WaitingRun {
        window: Some(("07:00-09:00".parse().unwrap(), TimeZone::UTC)),
        ..waiting(run, priority, entered)
    };
    // It is 08:00: the window has been open for an hour.
    let first = |waited: i64, priority: i64| {
        let queue = vec![in_window(1, 10, -waited), waiting(2, priority, -hour)];
        decide(&situation(queue, vec![], 1))[0].0
    };
    assert_eq!(first(20 * hour, 80), 2, "it came at noon");
    assert_eq!(first(20 * hour, 9), 1);
    // Four nights of two hours before are worth 80 points.
    assert_eq!((first(4 * 24 * hour + 2 * hour, 91), first(4 * 24 * hour + 2 * hour, 89)), (2, 1));
}

/// A run that waited from the evening on, and found no drive in its window of an hour, had waited for a night.
#[test]
fn a_run_is_ready_since_its_window_opened_last() {
    let (hour, now) = (3600, at(0));
    let ready = |entered: i64, window: &str| {
        let run = WaitingRun { window: Some((window.parse().unwrap(), TimeZone::UTC)), ..waiting(1, 50, entered) };
        run.ready_since(now)
    };
    // It is 08:00.
    assert_eq!(waiting(1, 50, -40 * hour).ready_since(now), at(-40 * hour));
    assert_eq!(ready(-10 * hour, "07:00-09:00"), at(-hour));
    assert_eq!(ready(-100 * hour, "07:00-09:00"), at(-hour), "not the first of four");
    assert_eq!(ready(-1800, "07:00-09:00"), at(-1800), "it came when that was open");
    assert_eq!(ready(-100 * 24 * hour, "00:00-24:00"), at(-14 * 24 * hour), "as far back as is looked");
}

/// Every morning, when the window closed, a client that was still away was told to be there.
#[test]
fn a_run_lacks_its_client_from_its_time_on_until_it_begins() {
    let (hour, now, away) = (3600, at(0), Some(PeerAway::NotEnrolled));
    let with_window = |entered: i64, window: &str| WaitingRun {
        window: Some((window.parse().unwrap(), TimeZone::UTC)),
        client_away: away,
        ..waiting(1, 50, entered)
    };
    // It is 08:00.
    assert_eq!(with_window(-4 * hour, "22:00-09:00").lacks_client(now), away);
    assert_eq!(with_window(-4 * hour, "22:00-06:00").lacks_client(now), away, "the window has closed");
    assert_eq!(with_window(-hour, "22:00-06:00").lacks_client(now), None, "it could not begin yet");
    let later = WaitingRun { not_before: at(hour), client_away: away, ..waiting(1, 50, -hour) };
    assert_eq!(later.lacks_client(now), None, "its time has not come");
    let held = WaitingRun { is_held: true, ..with_window(-4 * hour, "22:00-09:00") };
    assert_eq!(held.lacks_client(now), None);
    let faulty = WaitingRun { fault: Some("no pool".to_owned()), ..with_window(-4 * hour, "22:00-09:00") };
    assert_eq!(faulty.lacks_client(now), None);
    assert_eq!(WaitingRun { client_away: None, ..with_window(-4 * hour, "22:00-06:00") }.lacks_client(now), None);
}
