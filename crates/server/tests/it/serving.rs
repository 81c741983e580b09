//! What is due is run, once, whatever becomes of servers and clocks in between.

use std::sync::atomic::Ordering;

use capstan_catalog::{
    Cancelled, Entered, Grant, HoldChange, MAIN_LIBRARY, NewRun, ObjectFilter, Promise, Resource, RunAgain, RunOutcome,
    RunPlace, Wish,
};
use capstan_director::{
    BackupRequest, BackupWatch, DirectorError, JobJournal, Level, Loss, Retention, RunAsked, ServerTerm, Site,
};
use capstan_server::cell::users::CellActs;
use capstan_server::{ComingRun, Notice, RunDecision, RunTerms, WaitsFor, decide, forecast, look};

use crate::place::{Bench, Hand};

const NIGHTLY: &str = "[policies.one]\nsources = [\"DIR/one\"]\nschedule = \"22:00\"\nzone = \"UTC\"\n";

fn at_main(session: i64) -> RunPlace {
    RunPlace { session, library: MAIN_LIBRARY.to_owned(), drives: 1 }
}

fn is_done(site: &Site, runs: usize) -> bool {
    site.catalog().done_runs(100).unwrap().len() == runs
}

fn enter(bench: &Bench, policy: &str) -> i64 {
    let entered = bench.site().enter_runs(policy, None, RunAsked::OF_POLICY).unwrap();
    let [(_, Entered::Waits(run))] = entered[..] else { panic!("{entered:?}") };
    run
}

/// A run that a server of this process has begun, and its entry in the history.
fn at_work(bench: &Bench, site: &Site) -> (ServerTerm, i64, JobJournal) {
    let term = site.begin_term().unwrap();
    let run = enter(bench, "one");
    site.catalog().claim_run(term.number(), run, [7; 16], &at_main(run), site.now_ns()).unwrap().unwrap();
    let journal = site.begin_run("backup", "one:").unwrap();
    site.catalog().run_has_job([7; 16], journal.number()).unwrap();
    (term, run, journal)
}

fn ns(at: &str) -> i64 {
    i64::try_from(at.parse::<jiff::Timestamp>().unwrap().as_nanosecond()).unwrap()
}

fn attempts(bench: &Bench) -> Vec<u32> {
    bench.site().catalog().pending_runs().unwrap().iter().map(|pending| pending.run.attempt).collect()
}

#[test]
fn a_night_is_backed_up_once_by_two_servers_and_a_clock_that_goes_back() {
    let bench = Bench::new("2026-11-20T12:00:00Z", NIGHTLY);
    let hand = Hand::default();
    let said = bench.serve(&hand, || {
        bench.set_clock("2026-11-20T22:00:01Z");
        bench.until("the first night", |site| is_done(site, 1));
        // A clock that goes on from there, and not one that is right again an hour later at the next look.
        for at in ["2026-11-20T21:56:00Z", "2026-11-20T22:00:00Z"] {
            bench.set_clock(at);
            bench.until("the server sees the time", |site| {
                site.catalog().schedule_positions().unwrap()[0].again_ns == Some(ns(at))
            });
        }
    });
    let [Notice::Due { run: 1, .. }, Notice::Begun { .. }, Notice::Ended { .. }, Notice::Missed { reason, .. }] =
        &said[..]
    else {
        panic!("{said:?}")
    };
    assert!(reason.contains("before the clock was set back"), "{reason}");
    // Three nights nobody was there.
    bench.set_clock("2026-11-24T08:00:00Z");
    let said = bench.serve(&hand, || bench.until("the last night", |site| is_done(site, 4)));
    assert!(matches!(&said[0], Notice::Missed { reason, .. } if reason.starts_with("2 runs")), "{said:?}");
    let ends: Vec<_> = bench.done().into_iter().map(|done| (done.outcome, done.job.is_some())).collect();
    let (done, missed) = ((RunOutcome::Succeeded, true), (RunOutcome::Missed, false));
    assert_eq!(ends, [done, missed, done, missed]);
    let objects = bench.site().catalog().objects(&ObjectFilter::default()).unwrap();
    assert_eq!(objects.len(), 2);
    assert!(objects.iter().all(|object| object.policy == "one"));
}

#[test]
fn the_queue_says_how_far_a_run_is() {
    let bench = Bench::new("2026-11-20T12:00:00Z", NIGHTLY);
    let hand = Hand::default();
    hand.waits.store(true, Ordering::SeqCst);
    let run = enter(&bench, "one");
    bench.serve(&hand, || {
        bench.until("it is noted", |site| site.catalog().run_progress().unwrap().contains_key(&run));
        let queue = CellActs::at_shell(&bench.site(), 0).unwrap().queue().unwrap();
        let progress = queue.runs[0].progress.as_ref().unwrap();
        assert_eq!((progress.files, progress.bytes, progress.bytes_planned), (3, 1000, Some(4000)));
        hand.go_on();
        bench.until("it ends", |site| is_done(site, 1));
    });
    assert!(bench.site().catalog().run_progress().unwrap().is_empty());
}

#[test]
fn what_is_due_waits_while_its_policy_is_switched_off_and_is_not_caught_up_with() {
    let bench = Bench::new("2026-11-20T12:00:00Z", NIGHTLY);
    let hand = Hand::default();
    bench.serve(&hand, || {
        hand.fails.store(1, Ordering::SeqCst);
        bench.set_clock("2026-11-20T22:00:01Z");
        bench.until("it waits for its second attempt", |_| attempts(&bench) == [2]);
        bench.apply(&format!("{NIGHTLY}enabled = false\n"));
        bench.set_clock("2026-11-22T23:00:00Z");
        bench.until("it says so", |site| {
            let look = look(site).unwrap();
            let decided = decide(&look.situation);
            matches!(&decided[..], [(_, RunDecision::Waits(WaitsFor::Repair(why)))] if why.contains("switched off"))
        });
        bench.apply(NIGHTLY);
        bench.until("it runs", |site| is_done(site, 1));
        bench.set_clock("2026-11-23T22:00:01Z");
        bench.until("so does the next one", |site| is_done(site, 2));
    });
    assert_eq!(hand.begun().len(), 3, "two attempts of the first run, and that of the last night");
}

/// Whoever changed a schedule within its spread took that night from the clients whose starts were to come.
#[test]
fn a_change_of_a_schedule_takes_no_start_that_is_to_come() {
    let bench = Bench::new("2026-11-20T12:00:00Z", NIGHTLY);
    let next_of = |event: &str, now: &str| -> ComingRun {
        bench.set_clock(now);
        bench.apply(&NIGHTLY.replace("22:00\"", &format!("{event}\"\nspread = \"10h\"")));
        let look = look(&bench.site()).unwrap();
        let until = look.situation.now.checked_add(jiff::SignedDuration::from_hours(48)).unwrap();
        forecast(&look.scheduled, look.situation.now, until, 1).remove(0)
    };
    let tonight = next_of("22,23:00", "2026-11-20T22:00:01Z");
    assert_eq!(tonight.due.to_string(), "2026-11-20T22:00:00Z");
    assert!(tonight.starts.duration_since(tonight.due).as_secs() > 60, "{tonight:?}");
    let has_begun = tonight.starts.checked_add(jiff::SignedDuration::from_secs(1)).unwrap();
    assert_eq!(next_of("21,22:00", &has_begun.to_string()).due.to_string(), "2026-11-21T21:00:00Z");
}

#[test]
fn a_changed_priority_counts_for_what_waits() {
    let bench = Bench::new("2026-11-20T12:00:00Z", NIGHTLY);
    enter(&bench, "one");
    bench.apply(&format!("{NIGHTLY}priority = 90\n"));
    let look = look(&bench.site()).unwrap();
    assert_eq!((look.pending[0].run.priority, look.situation.waiting[0].priority), (90, 90));
}

/// A run that found its source in use lost its place to all that came meanwhile, each time anew.
#[test]
fn a_run_that_could_not_begin_keeps_its_place() {
    let bench = Bench::new("2026-11-20T12:00:00Z", NIGHTLY);
    let hand = Hand::default();
    hand.is_busy.store(1, Ordering::SeqCst);
    enter(&bench, "one");
    bench.set_clock("2026-11-20T13:00:00Z");
    bench.serve(&hand, || {
        bench.until("it waits again", |site| site.catalog().pending_runs().unwrap().iter().any(|run| run.keeps_age));
    });
    let look = look(&bench.site()).unwrap();
    let waiting = &look.situation.waiting[0];
    assert_eq!(waiting.entered.to_string(), "2026-11-20T12:00:00Z");
    assert!(waiting.keeps_age && waiting.not_before > look.situation.now, "{waiting:?}");
}

#[test]
fn a_run_that_fails_is_tried_again_later_and_not_for_ever() {
    let bench = Bench::new("2026-11-20T12:00:00Z", &format!("{NIGHTLY}retries = 2\nretry_after = \"10m\"\n"));
    let hand = Hand::default();
    hand.fails.store(2, Ordering::SeqCst);
    let run = enter(&bench, "one");
    let said = bench.serve(&hand, || {
        bench.until("the second attempt waits", |_| attempts(&bench) == [2]);
        bench.set_clock("2026-11-20T12:09:00Z");
        std::thread::sleep(std::time::Duration::from_millis(1200));
        assert_eq!(hand.begun(), [run], "it is too early");
        bench.set_clock("2026-11-20T12:10:01Z");
        bench.until("the third attempt waits", |_| attempts(&bench) == [3]);
        bench.set_clock("2026-11-20T12:30:02Z");
        bench.until("it is done", |site| is_done(site, 1));
    });
    assert_eq!(said.iter().filter(|notice| matches!(notice, Notice::Retried { .. })).count(), 2, "{said:?}");
    assert_eq!((bench.done()[0].outcome, bench.done()[0].run.attempt), (RunOutcome::Succeeded, 3));
    hand.fails.store(i64::MAX, Ordering::SeqCst);
    enter(&bench, "one");
    bench.serve(&hand, || {
        for (attempt, at) in [(2, "2026-11-20T13:00:00Z"), (3, "2026-11-20T14:00:00Z")] {
            bench.until("the next attempt waits", |_| attempts(&bench) == [attempt]);
            bench.set_clock(at);
        }
        bench.until("it has failed", |site| is_done(site, 2));
    });
    let last = bench.done().remove(0);
    assert_eq!((last.outcome, last.message.as_str()), (RunOutcome::Failed, "the source is on fire"));
}

#[test]
fn a_server_that_stops_leaves_its_runs_to_the_next_one() {
    let bench = Bench::new("2026-11-20T12:00:00Z", NIGHTLY);
    let hand = Hand::default();
    hand.waits.store(true, Ordering::SeqCst);
    let run = enter(&bench, "one");
    // The hand lets go only once the server is told to stop.
    let said = bench.serve(&hand, || bench.until("it works", |_| hand.begun() == [run]));
    assert!(!said.iter().any(|notice| matches!(notice, Notice::Ended { .. })), "{said:?}");
    let waits = bench.site().catalog().pending_runs().unwrap();
    let active = bench.site().catalog().active_runs().unwrap();
    assert_eq!((waits.len(), waits.first().map(|pending| pending.run.attempt), active.len()), (1, Some(1), 0));
    hand.go_on();
    bench.serve(&hand, || bench.until("the next server does it", |site| is_done(site, 1)));
    assert_eq!(bench.done()[0].outcome, RunOutcome::Succeeded);
}

#[test]
fn a_server_that_was_replaced_stops_what_it_began() {
    let two = format!("{NIGHTLY}[policies.two]\nsources = [\"DIR/two\"]\n");
    let bench = Bench::new("2026-11-20T12:00:00Z", &two);
    let hand = Hand::default();
    hand.waits.store(true, Ordering::SeqCst);
    let run = enter(&bench, "one");
    let (_, served) = bench.serve_in_vain(&hand, || {
        bench.until("it works", |_| hand.begun() == [run]);
        assert!(matches!(bench.site().begin_term(), Err(DirectorError::ServerRuns { process: Some(_) })));
        // Its lease ran out, say, and another machine's server took the term.
        let wish = Wish::alone(Resource::Server);
        bench.site().catalog().reserve(&wish, "another machine", i64::MAX, &|_| true).unwrap();
        enter(&bench, "two");
        // It finds out as soon as it wants to begin the next one, and tells what works to stop.
        bench.until("it knows", |site| site.catalog().active_runs().unwrap().is_empty());
    });
    let error = served.unwrap_err().to_string();
    assert!(error.contains("another server has taken over"), "{error}");
}

#[test]
fn runs_are_cancelled_wherever_they_are() {
    let two = format!("{NIGHTLY}[policies.two]\nsources = [\"DIR/two\"]\n");
    let bench = Bench::new("2026-11-20T12:00:00Z", &two);
    let hand = Hand::default();
    hand.waits.store(true, Ordering::SeqCst);
    let (one, two) = (enter(&bench, "one"), enter(&bench, "two"));
    assert_eq!(bench.site().hold_run(two, true).unwrap(), HoldChange::Changed);
    bench.serve(&hand, || {
        bench.until("the first works", |_| hand.begun() == [one]);
        let site = bench.site();
        assert_eq!(site.cancel_run(one).unwrap(), Cancelled::Told);
        bench.until("the first has ended", |site| is_done(site, 1));
        assert_eq!(hand.begun(), [one], "the second is held");
        assert_eq!(site.cancel_run(two).unwrap(), Cancelled::Removed);
        enter(&bench, "two");
        hand.go_on();
        bench.until("the third is done", |site| is_done(site, 3));
    });
    let ends: Vec<_> = bench.done().into_iter().map(|done| done.outcome).collect();
    assert_eq!(ends.iter().filter(|outcome| **outcome == RunOutcome::Cancelled).count(), 2, "{ends:?}");
}

#[test]
fn what_cannot_be_run_waits_and_what_is_removed_does_not() {
    let policies = format!("{NIGHTLY}before = [\"quiesce\"]\n");
    let bench = Bench::new("2026-11-20T12:00:00Z", &policies);
    let hand = Hand::default();
    bench.serve(&hand, || {
        bench.set_clock("2026-11-20T22:00:01Z");
        bench.until("it waits", |_| attempts(&bench) == [1]);
        std::thread::sleep(std::time::Duration::from_millis(1200));
        assert!(hand.begun().is_empty());
        bench.apply(NIGHTLY);
        bench.until("it is put right, and done", |site| is_done(site, 1));
        hand.waits.store(true, Ordering::SeqCst);
        enter(&bench, "one");
        bench.until("it works", |_| hand.begun().len() == 2);
        bench.apply("[policies.two]\nsources = [\"DIR/two\"]\n");
        bench.until("it is cancelled", |site| is_done(site, 2));
    });
    assert_eq!(bench.done()[0].outcome, RunOutcome::Cancelled);
}

#[test]
fn a_fault_of_the_program_ends_a_run_and_not_the_server() {
    let bench = Bench::new("2026-11-20T12:00:00Z", &format!("{NIGHTLY}retry_after = \"10m\"\n"));
    let hand = Hand::default();
    hand.panics.store(true, Ordering::SeqCst);
    enter(&bench, "one");
    let said = bench.serve(&hand, || {
        bench.until("it waits again", |_| attempts(&bench) == [2]);
        bench.set_clock("2026-11-20T12:10:01Z");
        bench.until("it is done", |site| is_done(site, 1));
    });
    assert!(
        said.iter()
            .any(|notice| matches!(notice, Notice::Retried { message, .. } if message.contains("Please report it")))
    );
    assert_eq!(bench.done()[0].outcome, RunOutcome::Succeeded);
}

#[test]
fn a_run_that_nobody_works_on_waits_again() {
    let bench = Bench::new("2026-11-20T12:00:00Z", NIGHTLY);
    let hand = Hand::default();
    bench.serve(&hand, || {
        // A claim that was recorded, and whose answer was lost: in the name of the server's own term. Its time has not
        // come, so the server does not begin it.
        let site = bench.site();
        let held = site.catalog().reservations().unwrap();
        let term = held.iter().find(|held| held.resource == Resource::Server).unwrap().generation;
        let (policy, not_before_ns) = ("one", ns("2026-11-20T13:00:00Z"));
        let (is_full, any_time) = (false, false);
        let new =
            NewRun { policy, client: site.client(), due_ns: None, priority: 50, not_before_ns, is_full, any_time };
        let Entered::Waits(run) = site.catalog().enter_run(&new, site.now_ns()).unwrap() else { panic!("it is there") };
        assert!(site.catalog().claim_run(term, run, [7; 16], &at_main(1), site.now_ns()).unwrap().is_some());
        bench.until("it waits again", |_| attempts(&bench) == [1]);
        bench.set_clock("2026-11-20T12:00:31Z");
        bench.until("it is done", |site| is_done(site, 1));
    });
    assert_eq!(hand.begun().len(), 1);
}

/// A server is killed between the last block of a run and the note of its end.
#[test]
fn what_was_all_written_is_not_done_again() {
    let bench = Bench::new("2026-11-20T12:00:00Z", NIGHTLY);
    let settings = bench.path("state/capstan.toml");
    let scripts = std::fs::read_to_string(&settings).unwrap() + "\n[scripts]\nthaw = [\"true\"]\n";
    std::fs::write(&settings, scripts).unwrap();
    for (after, runs_again) in [("", 0), ("after = [\"thaw\"]", 1)] {
        bench.apply(&format!("{NIGHTLY}{after}"));
        let site = bench.site();
        let (term, run, journal) = at_work(&bench, &site);
        let of_run = BackupRequest { run: Some(run), ..BackupRequest::of(vec![bench.path("one")]) };
        site.backup(&BackupRequest { policy: "one".into(), ..of_run }, &BackupWatch::default()).unwrap();
        drop((term, journal));
        let hand = Hand::default();
        bench.serve(&hand, || bench.until("it is done", |site| is_done(site, run as usize)));
        assert_eq!(hand.begun().len(), runs_again, "{after}");
        let done = bench.done().into_iter().find(|done| done.run.run == run).unwrap();
        assert_eq!((done.outcome, done.run.attempt), (RunOutcome::Succeeded, 1));
        assert_eq!(done.message.contains("the server was killed"), runs_again == 0, "{}", done.message);
    }
}

/// An attempt fails behind the end of a source, too. The next one made a second object of it.
#[test]
fn what_an_attempt_has_made_the_next_one_takes_as_it_is() {
    let both = NIGHTLY.replace("[\"DIR/one\"]", "[\"DIR/one\", \"DIR/two\"]");
    let bench = Bench::new("2026-11-20T12:00:00Z", &format!("{both}retry_after = \"10m\"\n"));
    let hand = Hand::default();
    let objects = || bench.site().catalog().objects(&ObjectFilter::default()).unwrap().len();
    let serve_once = |now: &str, changes: &dyn Fn()| {
        hand.fails_at_the_end.store(1, Ordering::SeqCst);
        let run = enter(&bench, "one");
        bench.serve(&hand, || {
            bench.until("the second attempt waits", |_| attempts(&bench) == [2]);
            changes();
            bench.set_clock(now);
            bench.until("it is done", |site| is_done(site, run as usize));
        });
        let done = bench.done().into_iter().find(|done| done.run.run == run).unwrap();
        assert_eq!((done.outcome, done.run.attempt), (RunOutcome::Succeeded, 2));
        (done.message, objects())
    };
    std::fs::rename(bench.path("two"), bench.path("away")).unwrap();
    let returns = || std::fs::rename(bench.path("away"), bench.path("two")).unwrap();
    assert_eq!(serve_once("2026-11-20T12:10:01Z", &returns), ("1 read, 1 there".to_owned(), 2));
    // Nothing of it is needed again: neither the sources nor a drive.
    let gone = || ["one", "two"].iter().for_each(|source| std::fs::remove_dir_all(bench.path(source)).unwrap());
    assert_eq!(serve_once("2026-11-20T12:30:01Z", &gone), ("0 read, 2 there".to_owned(), 4));
}

/// What an attempt would not make itself, it does not take either.
#[test]
fn an_earlier_object_is_taken_only_as_it_is_asked_for() {
    let bench = Bench::new("2026-11-20T12:00:00Z", NIGHTLY);
    let site = bench.site();
    let (_term, run, _journal) = at_work(&bench, &site);
    let back_up = |change: &dyn Fn(&mut BackupRequest)| {
        let mut request = BackupRequest { run: Some(run), ..BackupRequest::of(vec![bench.path("one")]) };
        change(&mut request);
        let report = site.backup(&request, &BackupWatch::default()).unwrap();
        (report.sources.len(), report.earlier.len())
    };
    let as_before: &dyn Fn(&mut BackupRequest) = &|_| {};
    assert_eq!((back_up(as_before), back_up(as_before)), ((1, 0), (0, 1)));
    assert_eq!(back_up(&|request| request.copies = 2), (1, 0), "the object has one copy");
    assert_eq!(back_up(&|request| request.tree.excludes.push("*.o".into())), (1, 0), "it has more paths");
    assert_eq!(back_up(&|request| request.run = Some(run + 1)), (1, 0), "it is of another run");
    assert_eq!(back_up(as_before), (0, 1), "the others are there all the same");
    let volumes = site.catalog().volumes().unwrap();
    for volume in volumes {
        site.erase(&volume.volser, Loss::Accept, Promise::Drop).unwrap();
    }
    assert_eq!(back_up(as_before), (1, 0), "they stand on no volume any more");
}

/// A run whose first source was complete as an incremental was made a full one. It said that it was done, and had no
/// full backup of that source; nor was what was to be locked, or kept for longer.
#[test]
fn an_earlier_object_is_taken_only_if_it_is_full_and_kept_as_it_is_asked_for() {
    let bench = Bench::new("2026-11-20T12:00:00Z", NIGHTLY);
    let site = bench.site();
    let (_term, run, _journal) = at_work(&bench, &site);
    let back_up = |run: Option<i64>, level: Level, change: &dyn Fn(&mut BackupRequest)| {
        let mut request = BackupRequest { run, level, ..BackupRequest::of(vec![bench.path("one")]) };
        change(&mut request);
        let report = site.backup(&request, &BackupWatch::default()).unwrap();
        (report.sources.len(), report.earlier.len())
    };
    let as_before: &dyn Fn(&mut BackupRequest) = &|_| {};
    assert_eq!(back_up(None, Level::Full, as_before), (1, 0));
    let of_run = |level: Level, change: &dyn Fn(&mut BackupRequest)| back_up(Some(run), level, change);
    assert_eq!(of_run(Level::Incremental, as_before), (1, 0));
    assert_eq!(of_run(Level::Incremental, as_before), (0, 1));
    assert_eq!(of_run(Level::Full, as_before), (1, 0), "the object is an incremental");
    assert_eq!((of_run(Level::Full, as_before), of_run(Level::Incremental, as_before)), ((0, 1), (0, 1)));
    let kept = |days: i64, is_locked: bool| {
        move |request: &mut BackupRequest| {
            request.retention = Retention::For(days * 86_400_000_000_000);
            request.is_locked = is_locked;
        }
    };
    assert_eq!(of_run(Level::Full, &kept(2, false)), (0, 1), "it is kept for ever");
    assert_eq!(of_run(Level::Full, &kept(2, true)), (1, 0), "it is not locked");
    assert_eq!(of_run(Level::Full, &kept(2, true)), (0, 1));
    assert_eq!(of_run(Level::Full, &kept(3, true)), (1, 0), "it is not kept for as long");
    assert_eq!(of_run(Level::Full, &kept(2, true)), (0, 1), "the longer one is as good");
}

#[test]
fn a_source_that_somebody_backs_up_is_waited_for_and_costs_no_attempt() {
    let bench = Bench::new("2026-11-20T12:00:00Z", NIGHTLY);
    let hand = Hand::default();
    let site = bench.site();
    let source = bench.path("one").into_os_string().into_encoded_bytes();
    let wish = Wish::alone(Resource::Source { client: site.client().to_owned(), source });
    let by_hand = site.catalog().reserve(&wish, "elsewhere 1 1", i64::MAX, &|_| false).unwrap();
    let Grant::Held(generation) = by_hand else { panic!("{by_hand:?}") };
    enter(&bench, "one");
    bench.serve(&hand, || {
        bench.until("it waits for the source", |site| {
            let decided = decide(&look(site).unwrap().situation);
            matches!(&decided[..], [(1, RunDecision::Waits(WaitsFor::Source(_)))])
        });
        site.catalog().release(&[generation]).unwrap();
        bench.until("it is done", |site| is_done(site, 1));
    });
    let done = bench.done().remove(0);
    assert_eq!((done.outcome, done.run.attempt, hand.begun().len()), (RunOutcome::Succeeded, 1, 1));
}

#[test]
fn a_mistake_in_the_settings_stops_nothing_that_runs() {
    let bench = Bench::new("2026-11-20T12:00:00Z", NIGHTLY);
    let settings = bench.path("state/capstan.toml");
    let good = std::fs::read_to_string(&settings).unwrap();
    let site = bench.site();
    let said = bench.serve(&Hand::default(), || {
        std::fs::write(&settings, format!("{good}\n[jobs.x]\nsource = 1\n")).unwrap();
        site.enter_runs("one", None, RunAsked::OF_POLICY).unwrap();
        bench.wait("it is done all the same", || is_done(&site, 1));
    });
    std::fs::write(&settings, good).unwrap();
    let trouble = |notice: &&Notice| matches!(notice, Notice::Trouble { reason } if reason.contains("unknown field"));
    assert_eq!(said.iter().filter(trouble).count(), 1, "{said:?}");
    assert_eq!(bench.done()[0].outcome, RunOutcome::Succeeded);
}

#[test]
fn nobody_rebuilds_the_catalog_of_a_server() {
    let bench = Bench::new("2026-11-20T12:00:00Z", NIGHTLY);
    bench.serve(&Hand::default(), || {
        let rebuilt = bench.rebuild();
        assert!(matches!(rebuilt, Err(DirectorError::ServerRuns { process: Some(_) })), "{rebuilt:?}");
    });
    bench.rebuild().unwrap();
    assert_eq!(bench.site().policies().unwrap().len(), 1, "the new catalog has the policies");
}

#[test]
fn a_run_does_not_wait_for_a_time_that_a_wrong_clock_has_set() {
    let bench = Bench::new("2026-11-20T12:00:00Z", NIGHTLY);
    let site = bench.site();
    site.find_drives().unwrap();
    let term = site.begin_term().unwrap();
    let run = enter(&bench, "one");
    for (again_at, waits) in [("2026-11-20T12:05:00Z", true), ("2038-11-20T12:00:00Z", false)] {
        let now_ns = site.now_ns();
        site.catalog().claim_run(term.number(), run, [7; 16], &at_main(run), now_ns).unwrap().unwrap();
        let next = RunAgain {
            attempt: 2,
            not_before_ns: ns(again_at),
            keeps_age: false,
            has_begun: false,
            message: "",
            lacks_volumes: &[],
        };
        site.catalog().retry_run([7; 16], &next, now_ns).unwrap();
        let decided = decide(&look(&site).unwrap().situation);
        let [(_, decision)] = &decided[..] else { panic!("{decided:?}") };
        assert_eq!(matches!(decision, RunDecision::Waits(WaitsFor::Time(_))), waits, "{again_at}: {decision:?}");
        assert_eq!(matches!(decision, RunDecision::Begins { .. }), !waits, "{again_at}: {decision:?}");
    }
}

/// Where runs of policies of copies may write, and how many drives they need, by where what they copy is.
#[test]
fn copies_go_to_another_library_than_what_they_are_made_of() {
    let bench = Bench::new("2026-11-20T08:00:00Z", "[policies.one]\nsources = [\"DIR/one\"]\n");
    let settings = bench.path("state/capstan.toml");
    let text = std::fs::read_to_string(&settings).unwrap();
    let more = "\n[libraries.west]\npath = \"west\"\n[libraries.east]\npath = \"east\"\n\
                [units.both]\nlibraries = [\"main\", \"west\"]\n[jobs.by-hand]\nsources = [\"/srv\"]\nunit = \"west\"\n";
    std::fs::write(&settings, text + more).unwrap();
    let site = bench.site();
    site.add_pool("vault", None, None).unwrap();
    drop(site);
    let looked = |copies_of: &str, rest: &str| {
        let copies = format!("[policies.copies]\ncopies_of = {copies_of}\npool = \"vault\"\n{rest}");
        bench.apply(&format!("[policies.one]\nsources = [\"DIR/one\"]\n{copies}"));
        let site = bench.site();
        let _ = site.enter_runs("copies", None, RunAsked::OF_POLICY).unwrap();
        let waiting = look(&site).unwrap().situation.waiting.remove(0);
        let RunTerms::Copies { reads_beside, .. } = waiting.terms else { panic!("{waiting:?}") };
        (waiting.unit.libraries.join(" "), reads_beside)
    };
    assert_eq!(looked("[\"one\"]", ""), ("main".into(), true));
    assert_eq!(looked("[\"one\"]", "unit = \"both\""), ("west".into(), false));
    assert_eq!(looked("[\"by-hand\"]", "unit = \"both\""), ("main".into(), false));
    assert_eq!(looked("[\"one\", \"by-hand\"]", "unit = \"both\""), ("main west".into(), true));
    assert_eq!(looked("[\"one\", \"by-hand\"]", "unit = \"east\""), ("east".into(), false));
}
