//! A run that goes on later, after a failure or with another server: what it takes, and when it does.

use std::sync::atomic::Ordering;

use capstan_catalog::{Entered, RunOutcome};
use capstan_director::RunLevel;

use crate::place::{Bench, Hand};

const TWO_SOURCES: &str = "[policies.one]\nsources = [\"DIR/one\", \"DIR/two\"]\nzone = \"UTC\"\n";

fn enter(bench: &Bench) -> i64 {
    let entered = bench.site().enter_runs("one", None, RunLevel::OfPolicy).unwrap();
    let [(_, Entered::Waits(run))] = entered[..] else { panic!("{entered:?}") };
    run
}

fn attempts(bench: &Bench) -> Vec<u32> {
    bench.site().catalog().pending_runs().unwrap().iter().map(|pending| pending.run.attempt).collect()
}

/// A laptop dropped off on Friday after its first source, and came back a week later: what it had changed in that
/// source was in no backup, and the nights between were missed because of this very run.
#[test]
fn what_was_read_before_another_run_was_due_is_read_again() {
    let bench =
        Bench::new("2026-11-20T12:00:00Z", &format!("{TWO_SOURCES}schedule = \"22:00\"\nretry_after = \"10m\"\n"));
    let hand = Hand::default();
    let message_at = |now: &str| {
        hand.fails_at_the_end.store(1, Ordering::SeqCst);
        std::fs::rename(bench.path("two"), bench.path("away")).unwrap();
        let run = enter(&bench);
        bench.serve(&hand, || {
            bench.until("the second attempt waits", |_| attempts(&bench) == [2]);
            std::fs::rename(bench.path("away"), bench.path("two")).unwrap();
            bench.set_clock(now);
            bench.until("it is done", |site| site.catalog().done_run(run).unwrap().is_some());
        });
        bench.site().catalog().done_run(run).unwrap().unwrap().message
    };
    assert_eq!(message_at("2026-11-20T12:10:01Z"), "1 read, 1 there");
    assert_eq!(message_at("2026-11-20T22:00:01Z"), "2 read, 0 there");
    assert_eq!(message_at("2026-11-20T22:20:01Z"), "1 read, 1 there", "nothing was due since");
}

/// An hourly policy was not backed up for half a day: all its runs were missed behind one that waited for its next
/// attempt.
#[test]
fn a_due_time_begins_the_next_attempt_of_a_run_that_failed() {
    let bench =
        Bench::new("2026-11-20T12:00:00Z", &format!("{TWO_SOURCES}schedule = \"*:00\"\nretry_after = \"6h\"\n"));
    let hand = Hand::default();
    hand.fails.store(1, Ordering::SeqCst);
    let run = enter(&bench);
    bench.serve(&hand, || {
        bench.until("the second attempt waits", |_| attempts(&bench) == [2]);
        bench.set_clock("2026-11-20T13:00:01Z");
        bench.until("it is done", |site| site.catalog().done_run(run).unwrap().is_some());
    });
    let ends: Vec<_> = bench.done().into_iter().map(|done| (done.run.run, done.outcome, done.run.attempt)).collect();
    assert_eq!(ends, [(run, RunOutcome::Succeeded, 2)]);
}
