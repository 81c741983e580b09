//! Drives that are kept for a run of several: from whom, and for how long.

use super::*;

const HOUR: i64 = 3600;

/// It may join others.
fn shares(run: WaitingRun) -> WaitingRun {
    WaitingRun { unit: unit(MAIN, &[MAIN], 3), ..run }
}

/// One that usually takes so long.
fn of_length(run: WaitingRun, seconds: i64) -> WaitingRun {
    WaitingRun { usual: Some(SignedDuration::from_secs(seconds)), ..run }
}

/// What becomes of others while a run of two copies has waited for so long, and the run at the other one of two drives
/// is done after some time.
fn decided(waited: i64, ends: Option<i64>, others: Vec<WaitingRun>) -> Vec<RunDecision> {
    let two = WaitingRun { terms: terms(2), ..waiting(1, 50, -waited) };
    let queue = [vec![two], others].concat();
    let mut decisions = decide(&situation(queue, vec![working(9, 1, ends)], 2));
    decisions.sort_by_key(|(run, _)| *run);
    assert!(matches!(decisions[0].1, RunDecision::Waits(WaitsFor::Drives { needed: 2, .. })), "{decisions:?}");
    decisions.into_iter().skip(1).map(|(_, decision)| decision).collect()
}

/// A full backup of 20 hours had one drive, and one of two copies waited. The other drive stood idle all that time, and
/// nobody joined the full backup.
#[test]
fn a_run_of_two_copies_that_has_long_to_wait_stops_nobody() {
    let others = || vec![shares(waiting(2, 50, -60)), shares(waiting(3, 50, -50))];
    for ends in [Some(20 * HOUR), None] {
        assert_eq!(decided(HOUR, ends, others()), [begins(2), begins(9)], "{ends:?}");
    }
    assert_eq!(decided(HOUR, Some(HOUR), others()), [turn(1), turn(1)], "it has its drives soon");
    for ends in [Some(20 * HOUR), None] {
        assert_eq!(decided(13 * HOUR, ends, others()), [turn(1), turn(1)], "it has waited for long: {ends:?}");
    }
}

#[test]
fn what_is_done_before_a_kept_drive_is_needed_uses_it() {
    let of = |length: i64| vec![of_length(shares(waiting(2, 50, -60)), length)];
    assert_eq!(decided(HOUR, Some(HOUR), of(HOUR - 60)), [begins(2)]);
    assert_eq!(decided(HOUR, Some(HOUR), of(HOUR + 60)), [turn(1)]);
    assert_eq!(decided(13 * HOUR, Some(20 * HOUR), of(2 * HOUR)), [begins(2)]);
    assert_eq!(decided(13 * HOUR, None, of(60)), [turn(1)], "nobody knows when it is needed");
    // It joins nobody whose end is waited for.
    let both = vec![of_length(shares(waiting(2, 50, -60)), 60), of_length(shares(waiting(3, 50, -50)), 60)];
    assert_eq!(decided(HOUR, Some(HOUR), both), [begins(2), drives_behind(1, 1, 0)]);
}

/// Somebody waits for a restore. Drives that were kept for a backup were kept from it, too.
#[test]
fn a_restore_uses_a_drive_that_is_kept_for_a_backup() {
    // They rank after it.
    let late = |run: WaitingRun| WaitingRun { priority: 50, ..run };
    let restores = || vec![late(restore(2, "A", "tern")), late(restore(3, "B", "wren"))];
    for waited in [HOUR, 13 * HOUR] {
        assert_eq!(decided(waited, Some(HOUR), restores()), [begins(2), drives_behind(1, 1, 0)], "{waited}");
    }
    assert_eq!(decided(49 * HOUR, None, restores()), [turn(1), turn(1)], "there is no end of restores");
}

/// Runs of 20 hours that others may join, and restores, come without an end, and there is always one that could begin.
#[test]
fn a_run_of_two_copies_has_its_turn_in_the_end_however_long_others_take() {
    for is_known in [true, false] {
        let mut now = 0;
        let mut queue = vec![WaitingRun { terms: terms(2), ..waiting(1, 50, 0) }];
        let mut at_work: Vec<(i64, WorkingRun)> = Vec::new();
        for next in 1.. {
            now += 600;
            let (backup, restored) = (2 * next, 2 * next + 1);
            if next % 6 == 1 {
                let backup = WaitingRun { entered: at(now), ..shares(waiting(backup, 90, 0)) };
                queue.push(if is_known { of_length(backup, 20 * HOUR) } else { backup });
            }
            let (volume, client) = (format!("V{}", next % 2), format!("client {next}"));
            queue.push(WaitingRun { entered: at(now), ..restore(restored, &volume, &client) });
            at_work.retain(|(ends, _)| *ends > now);
            let working_now = at_work.iter().map(|(_, working)| working.clone()).collect();
            let situation = Situation { now: at(now), ..situation(queue.clone(), working_now, 2) };
            for (run, decision) in decide(&situation) {
                let RunDecision::Begins { session, .. } = decision else { continue };
                let position = queue.iter().position(|waiting| waiting.run == run).unwrap();
                let begun = queue.remove(position);
                let ends = now + if begun.terms.is_restore() { HOUR } else { 20 * HOUR };
                let (terms, client) = (begun.terms, begun.client);
                let run = WorkingRun { session, terms, client, ..working(run, 1, is_known.then_some(ends)) };
                at_work.push((ends, run));
            }
            if queue.iter().all(|waiting| waiting.run != 1) {
                break;
            }
            assert!(now < 72 * HOUR, "it waits for {now} s");
        }
    }
}

/// Two hundred runs were all told the same time, and the last of them began a day later.
#[test]
fn when_a_drive_is_free_is_told_to_the_first_that_waits_for_it_alone() {
    let queue = (1..=4).map(|run| waiting(run, 50, -60 + run)).collect();
    let decided = decide(&situation(queue, vec![working(9, 1, Some(300))], 1));
    let first = drives(1, 0, Some(300));
    assert_eq!(
        decided,
        [(1, first), (2, drives_behind(1, 1, 0)), (3, drives_behind(2, 1, 0)), (4, drives_behind(3, 1, 0))]
    );
    let of_web = |run: i64| WaitingRun { policy: "web".into(), runs_at_once: Some(1), ..waiting(run, 50, -60 + run) };
    let at_work = WorkingRun { policy: "web".into(), ..working(9, 1, Some(300)) };
    let decided = decide(&situation((1..=3).map(of_web).collect(), vec![at_work], 9));
    let limit = |until: Option<i64>, before| {
        RunDecision::Waits(WaitsFor::Limit { of: LimitOf::Policy, at_most: 1, until: until.map(at), before })
    };
    assert_eq!(decided, [(1, limit(Some(300), 0)), (2, limit(None, 1)), (3, limit(None, 2))]);
}
