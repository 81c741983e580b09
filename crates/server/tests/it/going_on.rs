//! A run that goes on later, after a failure or with another server: what it takes, and when it does.

use std::sync::atomic::Ordering;

use capstan_catalog::{Entered, MAIN_LIBRARY, RunOutcome, RunPlace};
use capstan_director::{RunAsked, RunLevel, RunStart, Site};
use capstan_server::{Notice, RunDecision, WaitsFor, decide, look};

use crate::place::{Bench, Hand};

const TWO_SOURCES: &str = "[policies.one]\nsources = [\"DIR/one\", \"DIR/two\"]\nzone = \"UTC\"\n";

fn enter(bench: &Bench) -> i64 {
    let entered = bench.site().enter_runs("one", None, RunAsked::OF_POLICY).unwrap();
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

/// A server was started anew outside the window, for an update. The backups that were at work waited for the next
/// night, and were told as missed.
#[test]
fn what_a_restart_of_the_server_interrupts_goes_on_outside_its_window() {
    let bench =
        Bench::new("2026-11-20T21:00:00Z", &format!("{TWO_SOURCES}window = \"20:00-22:00\"\nretry_after = \"10m\"\n"));
    let hand = Hand::default();
    let run = enter(&bench);
    let window_of = |bench: &Bench| look(&bench.site()).unwrap().situation.waiting[0].window.is_some();
    assert!(window_of(&bench));
    hand.waits.store(true, Ordering::SeqCst);
    bench.serve(&hand, || bench.until("it works", |_| hand.begun() == [run]));
    bench.set_clock("2026-11-20T23:00:00Z");
    let look = look(&bench.site()).unwrap();
    let waiting = &look.situation.waiting[0];
    assert!(!waiting.has_missed_window(look.situation.now), "{waiting:?}");
    hand.go_on();
    hand.is_busy.store(1, Ordering::SeqCst);
    bench.serve(&hand, || {
        bench.until("its source is in use", |_| hand.begun().len() == 2 && attempts(&bench) == [1]);
        assert!(!window_of(&bench), "it has begun all the same");
        hand.fails.store(1, Ordering::SeqCst);
        bench.set_clock("2026-11-20T23:01:00Z");
        bench.until("it fails", |_| attempts(&bench) == [2]);
    });
    assert!(window_of(&bench), "another attempt begins in the window");
    // A server that was killed.
    bench.set_clock("2026-11-21T20:30:00Z");
    let site = bench.site();
    let killed = site.begin_term().unwrap();
    let place = RunPlace { session: run, library: MAIN_LIBRARY.to_owned(), drives: 1 };
    site.catalog().claim_run(killed.number(), run, [7; 16], &place, site.now_ns()).unwrap().unwrap();
    drop(killed);
    bench.set_clock("2026-11-21T22:30:00Z");
    bench.serve(&hand, || bench.until("it is done", |site| site.catalog().done_run(run).unwrap().is_some()));
    assert_eq!(bench.done()[0].outcome, RunOutcome::Succeeded);
}

/// A machine was renamed. Its policy, written a week ago, had missed a run under the new name, and made a full backup
/// in the daytime.
#[test]
fn a_machine_of_another_name_is_not_caught_up_with() {
    let bench = Bench::new("2026-11-20T12:00:00Z", &format!("{TWO_SOURCES}schedule = \"22:00\"\n"));
    bench.set_clock("2026-11-27T12:00:00Z");
    let settings = bench.path("state/capstan.toml");
    let text = std::fs::read_to_string(&settings).unwrap();
    let others = text.lines().filter(|line| !line.starts_with("client ="));
    let named = format!("client = \"heron\"\n{}\n", others.collect::<Vec<_>>().join("\n"));
    std::fs::write(&settings, named).unwrap();
    let hand = Hand::default();
    let said = bench.serve(&hand, || {
        let noted = |site: &Site| site.catalog().schedule_positions().unwrap().iter().any(|one| one.client == "heron");
        bench.until("the new name is noted", noted);
        bench.set_clock("2026-11-27T22:00:01Z");
        bench.until("its first night", |site| !site.catalog().done_runs(9).unwrap().is_empty());
    });
    assert!(matches!(said[..], [Notice::Due { .. }, Notice::Begun { .. }, Notice::Ended { .. }]), "{said:?}");
    // Whoever is named when a policy is written counts from then on, though no server ran.
    bench.set_clock("2026-11-28T12:00:00Z");
    bench.apply(&format!("{TWO_SOURCES}schedule = \"21:00\"\n"));
    bench.set_clock("2026-11-29T12:00:00Z");
    bench.serve(&hand, || bench.until("it is caught up with", |_| bench.done().len() == 2));
}

/// An emergency backup in the daytime needed a change of its policy.
#[test]
fn a_run_that_is_wanted_now_begins_outside_its_window() {
    let bench = Bench::new("2026-11-20T12:00:00Z", &format!("{TWO_SOURCES}window = \"20:00-22:00\"\n"));
    let hand = Hand::default();
    let run = enter(&bench);
    bench.serve(&hand, || {
        let decided = |site: &Site| decide(&look(site).unwrap().situation);
        bench.until("it waits for its window", |site| {
            matches!(decided(site)[..], [(_, RunDecision::Waits(WaitsFor::Window(Some(_))))])
        });
        let now = RunAsked { level: RunLevel::OfPolicy, start: RunStart::Now };
        let entered = bench.site().enter_runs("one", None, now).unwrap();
        assert!(matches!(entered[..], [(_, Entered::Behind(other))] if other == run), "{entered:?}");
        bench.until("it is done", |site| site.catalog().done_run(run).unwrap().is_some());
    });
    assert_eq!(bench.done()[0].outcome, RunOutcome::Succeeded);
}
