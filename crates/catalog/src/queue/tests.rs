//! A run goes through the queue once, whoever is killed and whatever clocks say.

#![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use capstan_format::ObjectId;

use super::*;
use crate::place_in_tests::catalog_in;
use crate::policy::{PolicyEdit, PolicyText};
use crate::reservation::{Grant, Wish};

/// A catalog, and the term of a server in it.
fn served() -> (tempfile::TempDir, Catalog, u64) {
    let dir = tempfile::tempdir().unwrap();
    let mut catalog = catalog_in(dir.path());
    let term = serve(&mut catalog);
    let edits = ["a", "b", "c", "home", "other"].map(|name| put(name, ""));
    catalog.edit_policies(&[], &edits, 0).unwrap();
    (dir, catalog, term)
}

/// A server that replaces the one before.
fn serve(catalog: &mut Catalog) -> u64 {
    match catalog.reserve(&Wish::alone(Resource::Server), "server", 9, &|_| true).unwrap() {
        Grant::Held(term) => term,
        Grant::Refused(by) => panic!("{by:?}"),
    }
}

fn at_main(session: i64) -> RunPlace {
    RunPlace { session, library: crate::MAIN_LIBRARY.to_owned(), drives: 2 }
}

fn run(policy: &'static str, due_ns: Option<i64>) -> NewRun<'static> {
    NewRun { policy, client: "tern", due_ns, priority: 50, not_before_ns: 0, is_full: false, any_time: false }
}

fn due(policy: &'static str, due_ns: i64) -> DueDecision<'static> {
    DueDecision {
        policy,
        client: "tern",
        scheduled_ns: 0,
        decided_ns: due_ns,
        again_ns: None,
        run: Some(run(policy, Some(due_ns))),
        missed: None,
    }
}

fn waits(entered: Entered) -> i64 {
    let Entered::Waits(run) = entered else { panic!("{entered:?}") };
    run
}

fn put<'a>(name: &'a str, text: &'a str) -> PolicyEdit<'a> {
    PolicyEdit::Put { name, text, is_rescheduled: false }
}

const CLAIM: [u8; 16] = [7; 16];

#[test]
fn how_far_a_run_is_is_noted_by_its_server_alone_and_gone_with_its_attempt() {
    let (_dir, mut catalog, term) = served();
    let first = waits(catalog.enter_run(&run("a", None), 1).unwrap());
    let progress = |bytes| RunProgress { files: 3, bytes, bytes_planned: 900, rate: 20, noted_ns: 7 };
    catalog.note_progress(term, &[(first, progress(1))]).unwrap();
    assert!(catalog.run_progress().unwrap().is_empty(), "it waits");
    catalog.claim_run(term, first, CLAIM, &at_main(1), 2).unwrap().unwrap();
    assert!(catalog.run_progress().unwrap().is_empty());
    catalog.note_progress(term, &[(first, progress(100)), (first + 1, progress(1))]).unwrap();
    catalog.note_progress(term + 1, &[(first, progress(200))]).unwrap();
    assert_eq!(catalog.run_progress().unwrap().into_iter().collect::<Vec<_>>(), [(first, progress(100))]);
    let next =
        RunAgain { attempt: 2, not_before_ns: 0, keeps_age: false, has_begun: false, message: "", lacks_volumes: &[] };
    catalog.retry_run(CLAIM, &next, 3).unwrap();
    catalog.claim_run(term, first, [8; 16], &at_main(2), 4).unwrap().unwrap();
    assert!(catalog.run_progress().unwrap().is_empty(), "the next attempt begins anew");
}

#[test]
fn a_run_that_waits_begins_at_any_time_if_that_is_asked_for() {
    let (_dir, mut catalog, term) = served();
    let now = NewRun { any_time: true, ..run("a", None) };
    let first = waits(catalog.enter_run(&run("a", None), 1).unwrap());
    assert!(!catalog.pending_runs().unwrap()[0].run.any_time);
    assert_eq!(catalog.enter_run(&now, 1).unwrap(), Entered::Behind(first));
    assert_eq!(catalog.enter_run(&run("a", None), 1).unwrap(), Entered::Behind(first));
    assert!(catalog.pending_runs().unwrap()[0].run.any_time);
    catalog.claim_run(term, first, CLAIM, &at_main(1), 2).unwrap().unwrap();
    catalog.retry_run(CLAIM, &again(9), 3).unwrap();
    assert!(catalog.pending_runs().unwrap()[0].run.any_time, "so does its next attempt");
    assert_eq!(catalog.enter_run(&now, 4).unwrap(), Entered::Behind(first));
    assert_eq!(catalog.pending_runs().unwrap()[0].not_before_ns, 4, "it waits for no time either");
}

#[test]
fn a_run_that_waits_becomes_full_if_that_is_asked_for_and_stays_it() {
    let (_dir, mut catalog, term) = served();
    let full = NewRun { is_full: true, ..run("a", None) };
    let first = waits(catalog.enter_run(&run("a", None), 1).unwrap());
    assert!(!catalog.pending_runs().unwrap()[0].run.is_full);
    assert_eq!(catalog.enter_run(&full, 1).unwrap(), Entered::Behind(first));
    assert_eq!(catalog.enter_run(&run("a", None), 1).unwrap(), Entered::Behind(first));
    assert!(catalog.pending_runs().unwrap()[0].run.is_full);
    let active = catalog.claim_run(term, first, CLAIM, &at_main(1), 2).unwrap().unwrap();
    assert!(active.run.is_full && catalog.active_runs().unwrap()[0].run.is_full);
    let next =
        RunAgain { attempt: 2, not_before_ns: 0, keeps_age: false, has_begun: false, message: "", lacks_volumes: &[] };
    catalog.retry_run(CLAIM, &next, 3).unwrap();
    assert!(catalog.pending_runs().unwrap()[0].run.is_full);
    catalog.claim_run(term, first, [8; 16], &at_main(2), 4).unwrap().unwrap();
    let end = RunEnd { ended_ns: 5, outcome: RunOutcome::Succeeded, message: "" };
    assert!(catalog.end_run([8; 16], &end).unwrap());
    assert!(catalog.done_run(first).unwrap().unwrap().run.is_full);
}

fn again(not_before_ns: i64) -> RunAgain<'static> {
    RunAgain {
        attempt: 2,
        not_before_ns,
        keeps_age: false,
        has_begun: false,
        message: "the tape broke",
        lacks_volumes: &[],
    }
}

/// Whoever looks while a run begins, or waits once more, sees it all the same: waiting or at work, and once.
#[test]
fn a_run_that_moves_is_seen_once() {
    let (dir, mut catalog, term) = served();
    let entered = waits(catalog.enter_run(&run("a", None), 1).unwrap());
    let is_over = Arc::new(AtomicBool::new(false));
    let told = Arc::clone(&is_over);
    let moves = std::thread::spawn(move || {
        while !told.load(Ordering::Relaxed) {
            catalog.claim_run(term, entered, CLAIM, &at_main(1), 2).unwrap().unwrap();
            assert_eq!(catalog.retry_run(CLAIM, &again(0), 3).unwrap(), Again::Waits);
        }
    });
    let looker = Catalog::open(dir.path()).unwrap();
    for look in 0..300 {
        let seen = looker.unfinished_runs().unwrap();
        assert_eq!(seen.runs().map(|run| run.run).collect::<Vec<_>>(), [entered], "look {look}");
        assert!(looker.queued_run(entered).unwrap().is_some(), "look {look}");
    }
    is_over.store(true, Ordering::Relaxed);
    moves.join().unwrap();
}

/// A restore has no policy: several of a client wait, no policy's end touches them, and each is carried out once.
#[test]
fn restores_go_through_the_queue_as_runs_do() {
    let (_dir, mut catalog, term) = served();
    let runs: Vec<_> = (0..2).map(|_| catalog.enter_restore("tern", "/home", 80, 5).unwrap()).collect();
    assert!(catalog.claim_run(term, runs[0], CLAIM, &at_main(1), 5).unwrap().is_none(), "held until it is noted");
    runs.iter().for_each(|run| catalog.release_restore(*run).unwrap());
    let backup = waits(catalog.enter_run(&run("a", None), 6).unwrap());
    let seen = catalog.policies().unwrap();
    catalog.edit_policies(&seen, &[PolicyEdit::Remove("a")], 7).unwrap();
    let pending = catalog.pending_runs().unwrap();
    assert_eq!(pending.iter().map(|pending| pending.run.run).collect::<Vec<_>>(), runs);
    let restore = &pending[0].run;
    assert_eq!((restore.name(), restore.policy.as_str(), restore.restore.as_deref()), ("restore", "", Some("/home")));
    assert_eq!(catalog.queued_run(backup).unwrap().unwrap().name(), "a");

    let active = catalog.claim_run(term, runs[0], CLAIM, &at_main(1), 8).unwrap().unwrap();
    assert_eq!(active.run, *restore);
    let returned = QueuedRun { returns: 1, has_begun: true, ..restore.clone() };
    let term = serve(&mut catalog);
    let not_noted = catalog.enter_restore("tern", "/", 80, 9).unwrap();
    let released = catalog.hold_run(not_noted, false, 9).unwrap();
    assert_eq!(released, HoldChange::Unknown, "an operator does not have it begin either");
    assert!(catalog.claim_run(term, not_noted, [9; 16], &at_main(1), 9).unwrap().is_none());
    assert_eq!(catalog.return_lost(term, 9).unwrap().as_slice(), std::slice::from_ref(restore));
    assert_eq!(catalog.queued_run(runs[0]).unwrap().unwrap(), returned, "as it was asked for");
    catalog.claim_run(term, runs[0], CLAIM, &at_main(1), 10).unwrap().unwrap();
    let end = RunEnd { ended_ns: 11, outcome: RunOutcome::Succeeded, message: "1 path" };
    assert!(catalog.end_run(CLAIM, &end).unwrap());
    assert_eq!(catalog.done_run(runs[0]).unwrap().unwrap().run, returned);
    assert_eq!(catalog.cancel_run(runs[1], 12).unwrap(), Cancelled::Removed);
    assert_eq!(catalog.queued_run(99).unwrap(), None);

    // Whoever is let in no more gets nothing, nor does the next machine of the name.
    let ends: Vec<_> = ["tern", "wren"].map(|client| catalog.enter_restore(client, "/", 80, 13).unwrap()).into();
    let taken_back = catalog.enter_restore("tern", "/", 80, 13).unwrap();
    assert!(catalog.withdraw_run(taken_back).unwrap() && !catalog.withdraw_run(taken_back).unwrap());
    catalog.revoke_peer("client", "tern", 14).unwrap();
    assert_eq!(catalog.pending_runs().unwrap().iter().map(|pending| pending.run.run).collect::<Vec<_>>(), [ends[1]]);
    assert_eq!(catalog.done_run(ends[0]).unwrap().unwrap().outcome, RunOutcome::Cancelled);
    assert_eq!((catalog.queued_run(taken_back).unwrap(), catalog.queued_run(not_noted).unwrap()), (None, None));
}

#[test]
fn a_due_run_is_entered_once_whatever_was_forgotten_of_the_schedule() {
    let (_dir, mut catalog, term) = served();
    let first = waits(catalog.enter_due(term, &due("home", 100), 101).unwrap().unwrap());
    let active = catalog.claim_run(term, first, CLAIM, &at_main(1), 102).unwrap().unwrap();
    assert_eq!((active.run.due_ns, active.run.attempt, active.started_ns), (Some(100), 1, 102));
    assert!(catalog.end_run(CLAIM, &RunEnd { ended_ns: 110, outcome: RunOutcome::Succeeded, message: "" }).unwrap());
    // A clock that was put back has the server decide once more.
    assert_eq!(catalog.enter_due(term, &due("home", 100), 101).unwrap(), Some(Entered::Before));
    assert!(catalog.pending_runs().unwrap().is_empty() && catalog.active_runs().unwrap().is_empty());
    let told = &catalog.done_runs(9).unwrap()[1];
    assert_eq!((told.outcome, told.run.due_ns, told.run.attempt), (RunOutcome::Missed, Some(100), 0));
    let positions = catalog.schedule_positions().unwrap();
    assert_eq!((positions.len(), positions[0].decided_ns), (1, 100));
}

#[test]
fn a_run_whose_predecessor_is_not_done_is_missed_and_says_so() {
    let (_dir, mut catalog, term) = served();
    let first = waits(catalog.enter_due(term, &due("home", 100), 101).unwrap().unwrap());
    assert_eq!(catalog.enter_due(term, &due("home", 200), 201).unwrap(), Some(Entered::Behind(first)));
    catalog.claim_run(term, first, CLAIM, &at_main(1), 250).unwrap().unwrap();
    assert_eq!(catalog.enter_due(term, &due("home", 300), 301).unwrap(), Some(Entered::Behind(first)));
    let done = catalog.done_runs(9).unwrap();
    let ends: Vec<_> = done.iter().map(|done| (done.run.due_ns, done.outcome, done.message.as_str())).collect();
    let why = "skipped: run 1 of this policy was still waiting or running";
    assert_eq!(ends, [(Some(300), RunOutcome::Missed, why), (Some(200), RunOutcome::Missed, why)]);
    assert_eq!(catalog.enter_run(&run("home", None), 302).unwrap(), Entered::Behind(first));
    waits(catalog.enter_run(&run("other", None), 302).unwrap());
}

/// Each hourly run was missed behind one that only waited for its next attempt, for up to twelve hours.
#[test]
fn a_run_that_waits_for_its_next_attempt_makes_it_when_another_is_due() {
    let (_dir, mut catalog, term) = served();
    let first = waits(catalog.enter_due(term, &due("home", 100), 101).unwrap().unwrap());
    catalog.claim_run(term, first, CLAIM, &at_main(1), 102).unwrap().unwrap();
    catalog.retry_run(CLAIM, &again(900), 150).unwrap();
    assert_eq!(catalog.enter_run(&run("home", None), 160).unwrap(), Entered::Behind(first));
    let pending = |catalog: &Catalog| catalog.pending_runs().unwrap().remove(0);
    assert_eq!((pending(&catalog).not_before_ns, pending(&catalog).run.skipped_due_ns), (900, None));
    assert_eq!(catalog.enter_due(term, &due("home", 200), 201).unwrap(), Some(Entered::Hastens(first)));
    assert_eq!((pending(&catalog).not_before_ns, pending(&catalog).run.skipped_due_ns), (201, Some(200)));
    assert!(catalog.done_runs(9).unwrap().is_empty(), "nothing is missed");
    // An operator holds it; and then it has no time to wait for.
    assert_eq!(catalog.hold_run(first, true, 202).unwrap(), HoldChange::Changed);
    assert_eq!(catalog.enter_due(term, &due("home", 300), 301).unwrap(), Some(Entered::Behind(first)));
    assert_eq!(catalog.hold_run(first, false, 302).unwrap(), HoldChange::Changed);
    assert_eq!(catalog.enter_due(term, &due("home", 400), 401).unwrap(), Some(Entered::Behind(first)));
    let active = catalog.claim_run(term, first, CLAIM, &at_main(1), 402).unwrap().unwrap();
    assert_eq!(active.run.skipped_due_ns, Some(400), "it keeps it");
    assert_eq!(catalog.enter_due(term, &due("home", 500), 501).unwrap(), Some(Entered::Behind(first)));
    let late = DueDecision { run: None, missed: Some("no server ran"), ..due("home", 600) };
    catalog.enter_due(term, &late, 900).unwrap();
    assert_eq!(catalog.active_runs().unwrap()[0].run.skipped_due_ns, Some(600));
}

#[test]
fn what_was_missed_is_noted_with_its_reason() {
    let (_dir, mut catalog, term) = served();
    let decision = DueDecision { run: None, missed: Some("no server ran"), ..due("home", 90) };
    assert_eq!(catalog.enter_due(term, &decision, 100).unwrap(), None);
    let done = catalog.done_runs(9).unwrap();
    assert_eq!((done.len(), done[0].message.as_str(), done[0].started_ns), (1, "no server ran", None));
    assert_eq!(catalog.done_run(done[0].run.run).unwrap().as_ref(), Some(&done[0]));
}

#[test]
fn a_server_that_was_replaced_moves_nothing_and_its_runs_wait_again() {
    let (_dir, mut catalog, old) = served();
    let ids: Vec<_> = ["a", "b", "c"].map(|policy| waits(catalog.enter_run(&run(policy, None), 1).unwrap())).into();
    catalog.claim_run(old, ids[0], CLAIM, &at_main(1), 2).unwrap().unwrap();
    catalog.claim_run(old, ids[1], [8; 16], &at_main(1), 2).unwrap().unwrap();
    assert_eq!(catalog.cancel_run(ids[1], 3).unwrap(), Cancelled::Told);
    let new = serve(&mut catalog);
    for refused in [
        catalog.claim_run(old, ids[2], [9; 16], &at_main(1), 4).map(drop),
        catalog.enter_due(old, &due("a", 5), 5).map(drop),
        catalog.return_lost(old, 5).map(drop),
    ] {
        assert!(matches!(refused, Err(CatalogError::ServerReplaced)), "{refused:?}");
    }
    assert!(catalog.schedule_positions().unwrap().is_empty(), "nothing of a refused change is kept");
    let lost = catalog.return_lost(new, 6).unwrap();
    assert_eq!(lost.iter().map(|run| run.run).collect::<Vec<_>>(), ids[..2]);
    let pending = catalog.pending_runs().unwrap();
    assert_eq!(pending.iter().map(|pending| pending.run.run).collect::<Vec<_>>(), [ids[0], ids[2]]);
    assert_eq!(
        (pending[0].run.attempt, pending[0].not_before_ns),
        (1, 0),
        "it was not its fault, and it keeps its age"
    );
    assert_eq!(catalog.done_runs(9).unwrap()[0].outcome, RunOutcome::Cancelled);
    // The one that had begun it comes back from wherever it was.
    let end = RunEnd { ended_ns: 7, outcome: RunOutcome::Succeeded, message: "" };
    assert!(
        !catalog.end_run(CLAIM, &end).unwrap() && catalog.retry_run(CLAIM, &again(0), 7).unwrap() == Again::Unknown
    );
    catalog.claim_run(new, ids[0], [9; 16], &at_main(1), 8).unwrap().unwrap();
    assert!(!catalog.end_run(CLAIM, &end).unwrap());
    assert!(catalog.end_run([9; 16], &end).unwrap());
}

#[test]
fn a_run_is_tried_again_held_and_cancelled() {
    let (_dir, mut catalog, term) = served();
    let id = waits(catalog.enter_run(&run("home", None), 1).unwrap());
    catalog.claim_run(term, id, CLAIM, &at_main(1), 2).unwrap().unwrap();
    let start = crate::JobStart { kind: "backup", subject: "home", process: "", started_ns: 2 };
    let job = catalog.begin_job(&start).unwrap();
    catalog.run_has_job(CLAIM, job).unwrap();
    assert_eq!(catalog.active_runs().unwrap()[0].job, Some(job));
    assert_eq!(catalog.hold_run(id, true, 3).unwrap(), HoldChange::Unknown, "it is at work");
    assert_eq!(catalog.retry_run(CLAIM, &again(500), 3).unwrap(), Again::Waits);
    let pending = catalog.pending_runs().unwrap();
    assert_eq!((pending[0].run.attempt, pending[0].not_before_ns, pending[0].is_held), (2, 500, false));
    assert_eq!(pending[0].last_message.as_deref(), Some("the tape broke"));
    assert_eq!(catalog.hold_run(id, true, 3).unwrap(), HoldChange::Changed);
    assert_eq!(catalog.hold_run(id, true, 3).unwrap(), HoldChange::Unchanged);
    assert_eq!(catalog.claim_run(term, id, CLAIM, &at_main(1), 3).unwrap(), None);
    assert_eq!(catalog.hold_run(id, false, 600).unwrap(), HoldChange::Changed);
    assert_eq!(catalog.hold_run(id, false, 600).unwrap(), HoldChange::Unchanged);
    assert_eq!(catalog.pending_runs().unwrap()[0].not_before_ns, 600, "it waits since it was released");
    assert_eq!(catalog.hold_run(id, false, 550).unwrap(), HoldChange::Changed);
    assert_eq!(catalog.pending_runs().unwrap()[0].not_before_ns, 550, "it waits for no time any more");
    assert_eq!(catalog.cancel_run(id, 4).unwrap(), Cancelled::Removed);
    assert_eq!(catalog.cancel_run(id, 4).unwrap(), Cancelled::Unknown);
    assert_eq!(catalog.claim_run(term, id, CLAIM, &at_main(1), 5).unwrap(), None);
    let done = catalog.done_runs(9).unwrap().remove(0);
    assert_eq!((done.outcome, done.job), (RunOutcome::Cancelled, Some(job)), "what its attempt said is found");
}

/// In a large cell a thousand runs ended after the one that mattered, and nobody looked further back.
#[test]
fn the_last_run_of_each_way_to_end_is_found_however_many_ended_since() {
    let (_dir, mut catalog, term) = served();
    let mut ends = |policy, outcome, ended_ns| {
        let id = waits(catalog.enter_run(&run(policy, None), 1).unwrap());
        catalog.claim_run(term, id, CLAIM, &at_main(1), 2).unwrap().unwrap();
        assert!(catalog.end_run(CLAIM, &RunEnd { ended_ns, outcome, message: "" }).unwrap());
        id
    };
    // The clock was ahead: what comes later is later all the same.
    let warned = ends("a", RunOutcome::Warned, 300);
    let other = ends("b", RunOutcome::Failed, 4);
    let runs: Vec<_> = (5..20).map(|at_ns| ends("a", RunOutcome::Failed, at_ns)).collect();
    let last = catalog.last_done_runs().unwrap();
    let last: Vec<_> = last.iter().map(|done| (done.run.run, done.outcome)).collect();
    let failed = RunOutcome::Failed;
    assert_eq!(last, [(runs[14], failed), (other, failed), (warned, RunOutcome::Warned)]);
}

#[test]
fn a_run_that_was_cancelled_does_not_wait_again() {
    let (_dir, mut catalog, term) = served();
    let id = waits(catalog.enter_run(&run("home", None), 1).unwrap());
    catalog.claim_run(term, id, CLAIM, &at_main(1), 2).unwrap().unwrap();
    assert_eq!(catalog.cancel_run(id, 3).unwrap(), Cancelled::Told);
    // It fails before anybody looks.
    assert_eq!(catalog.retry_run(CLAIM, &again(500), 4).unwrap(), Again::Cancelled);
    assert!(catalog.pending_runs().unwrap().is_empty());
    assert_eq!(catalog.done_run(id).unwrap().unwrap().outcome, RunOutcome::Cancelled);
}

/// A run that had waited while 10,000 numbers were given ended with a low one, and the next end deleted its result: a
/// failure was told to nobody, and whoever had asked for a restore had asked for none.
#[test]
fn the_runs_that_ended_last_are_kept_whatever_their_numbers_are() {
    let (_dir, mut catalog, term) = served();
    let ends = |catalog: &mut Catalog, run: i64, ended_ns: i64| {
        catalog.claim_run(term, run, CLAIM, &at_main(1), 2).unwrap().unwrap();
        assert!(catalog.end_run(CLAIM, &RunEnd { ended_ns, outcome: RunOutcome::Failed, message: "" }).unwrap());
    };
    let first = waits(catalog.enter_run(&run("a", None), 1).unwrap());
    let early = waits(catalog.enter_run(&run("b", None), 1).unwrap());
    ends(&mut catalog, early, 3);
    let transaction = catalog.write().unwrap();
    let others = "WITH RECURSIVE numbers (number) AS
            (SELECT 1 UNION ALL SELECT number + 1 FROM numbers WHERE number < ?1)
        INSERT INTO done_runs (run, policy, client, priority, entered_ns, attempt, returns, ended_ns, outcome, message)
        SELECT 1000 + number, 'c', 'tern', 50, 1, 1, 0, 1000 + number, 0, '' FROM numbers";
    transaction.execute(others, params![DONE_KEPT - 2]).unwrap();
    transaction.execute("UPDATE run_numbers SET last = 20000", &[]).unwrap();
    transaction.commit().unwrap();
    ends(&mut catalog, first, 20_000);
    let last = waits(catalog.enter_run(&run("a", None), 20_001).unwrap());
    assert!(catalog.done_run(early).unwrap().is_some());
    ends(&mut catalog, last, 20_002);
    let is_kept = |run: i64| catalog.done_run(run).unwrap().is_some();
    assert_eq!((is_kept(first), is_kept(last), is_kept(early), is_kept(1001)), (true, true, false, true));
}

#[test]
fn what_the_history_has_as_done_is_not_done_again() {
    let (_dir, mut catalog, old) = served();
    let mut jobs = Vec::new();
    for (policy, outcome) in [("a", JobOutcome::Warned), ("b", JobOutcome::Failed)] {
        let id = waits(catalog.enter_run(&run(policy, None), 1).unwrap());
        let claim = [id as u8; 16];
        catalog.claim_run(old, id, claim, &at_main(1), 2).unwrap().unwrap();
        let start = crate::JobStart { kind: "backup", subject: policy, process: "", started_ns: 3 };
        let job = catalog.begin_job(&start).unwrap();
        catalog.run_has_job(claim, job).unwrap();
        let (message, exit_code) = ("a file vanished".to_owned(), 3);
        let end = crate::JobEnd { ended_ns: 9, outcome, exit_code, files: 1, bytes: 1, stored: 1, message };
        catalog.end_job(job, &end, "").unwrap();
        let (first, second) = (ObjectId([id as u8; 16]), ObjectId([id as u8 + 100; 16]));
        catalog.run_writes(id, &[second, first]).unwrap();
        catalog.job_writes(job, first).unwrap();
        catalog.run_writes(77, &[first]).unwrap();
        assert_eq!(catalog.job(job).unwrap().unwrap().run, Some(id));
        assert_eq!(catalog.objects_of_run(id).unwrap(), [first, second]);
        jobs.push(job);
    }
    assert_eq!(catalog.objects_of_run(77).unwrap(), []);
    let new = serve(&mut catalog);
    catalog.return_lost(new, 10).unwrap();
    let done = catalog.done_runs(9).unwrap();
    assert_eq!((done.len(), done[0].outcome, done[0].ended_ns, done[0].job), (1, RunOutcome::Warned, 9, Some(jobs[0])));
    assert_eq!(done[0].message, "a file vanished");
    assert_eq!(catalog.pending_runs().unwrap()[0].run.policy, "b");
}

#[test]
fn a_run_that_ends_its_servers_lets_others_go_first() {
    let (_dir, mut catalog, mut term) = served();
    let id = waits(catalog.enter_run(&run("home", None), 1).unwrap());
    let mut waited = Vec::new();
    for _ in 0..5 {
        catalog.claim_run(term, id, CLAIM, &at_main(1), 2).unwrap().unwrap();
        term = serve(&mut catalog);
        catalog.return_lost(term, 100).unwrap();
        waited.push((catalog.pending_runs().unwrap()[0].not_before_ns - 100) / 1_000_000_000);
    }
    assert_eq!(waited, [0, 0, 60, 120, 240]);
    assert_eq!(catalog.pending_runs().unwrap()[0].run.attempt, 1);
}

#[test]
fn what_was_decided_by_times_that_are_no_more_is_void() {
    let (_dir, mut catalog, term) = served();
    let edit = PolicyEdit::Put { name: "home", text: "", is_rescheduled: true };
    catalog.edit_policies(&catalog.policies().unwrap(), &[edit], 50).unwrap();
    assert_eq!(catalog.enter_due(term, &due("home", 100), 101).unwrap(), Some(Entered::Void));
    let anew = DueDecision { scheduled_ns: 50, ..due("home", 100) };
    waits(catalog.enter_due(term, &anew, 101).unwrap().unwrap());
    assert_eq!(catalog.enter_due(term, &due("nobody", 100), 101).unwrap(), Some(Entered::Void));
    assert_eq!(catalog.enter_run(&run("nobody", None), 101).unwrap(), Entered::Void);
    assert_eq!(catalog.schedule_positions().unwrap().len(), 1);
}

#[test]
fn a_catalog_that_replaces_another_one_has_its_queue() {
    let (_dir, mut catalog, term) = served();
    let ids = ["a", "b", "c"].map(|policy| waits(catalog.enter_due(term, &due(policy, 100), 101).unwrap().unwrap()));
    catalog.claim_run(term, ids[0], CLAIM, &at_main(1), 102).unwrap().unwrap();
    catalog.claim_run(term, ids[1], [8; 16], &at_main(1), 102).unwrap().unwrap();
    catalog.end_run([8; 16], &RunEnd { ended_ns: 103, outcome: RunOutcome::Succeeded, message: "" }).unwrap();
    catalog.hold_run(ids[2], true, 103).unwrap();
    let other = tempfile::tempdir().unwrap();
    let mut anew = catalog_in(other.path());
    anew.take_over_policies(&catalog).unwrap();
    let pending = anew.pending_runs().unwrap();
    assert_eq!(
        pending.iter().map(|pending| (pending.run.run, pending.is_held)).collect::<Vec<_>>(),
        [(ids[0], false), (ids[2], true)]
    );
    assert_eq!(anew.done_runs(9).unwrap(), catalog.done_runs(9).unwrap());
    assert_eq!(anew.policies().unwrap(), catalog.policies().unwrap());
    let term = serve(&mut anew);
    assert_eq!(anew.enter_due(term, &due("b", 100), 104).unwrap(), Some(Entered::Before));
    assert!(waits(anew.enter_run(&run("home", None), 104).unwrap()) > ids[2], "numbers go on");
}

/// A client was taken from a policy, and fifty runs waited for somebody to cancel them.
#[test]
fn a_client_that_leaves_a_policy_leaves_the_queue() {
    let (_dir, mut catalog, term) = served();
    let other = NewRun { client: "wren", ..run("home", None) };
    let ids = [run("home", None), run("other", None), other].map(|run| waits(catalog.enter_run(&run, 1).unwrap()));
    let leave = PolicyEdit::Leave { name: "home", client: "tern" };
    catalog.edit_policies(&catalog.policies().unwrap(), &[leave], 2).unwrap();
    let left = |catalog: &Catalog| catalog.pending_runs().unwrap().iter().map(|one| one.run.run).collect::<Vec<_>>();
    assert_eq!(left(&catalog), ids[1..]);
    assert_eq!(catalog.done_run(ids[0]).unwrap().unwrap().outcome, RunOutcome::Cancelled);
    // One at work is on its way.
    catalog.claim_run(term, ids[2], CLAIM, &at_main(1), 3).unwrap().unwrap();
    catalog.cancel_waiting(&["home".to_owned(), "other".to_owned()], "wren", 4).unwrap();
    assert_eq!(left(&catalog), ids[1..2]);
    assert!(!catalog.active_runs().unwrap()[0].is_cancelled);
}

#[test]
fn policies_change_together_or_not_at_all() {
    let dir = tempfile::tempdir().unwrap();
    let mut catalog = catalog_in(dir.path());
    let term = serve(&mut catalog);
    catalog.edit_policies(&[], &[put("home", "a = 1"), put("web", "b = 1")], 5).unwrap();
    let seen = catalog.policies().unwrap();
    let home = PolicyText { name: "home".into(), text: "a = 1".into(), changed_ns: 5, scheduled_ns: 5 };
    assert_eq!((seen.len(), &seen[0]), (2, &home));
    let stale = catalog.edit_policies(&[], &[PolicyEdit::Remove("home")], 6);
    assert!(matches!(stale, Err(CatalogError::PoliciesChanged)), "{stale:?}");
    let id = waits(catalog.enter_run(&run("home", None), 6).unwrap());
    catalog.enter_due(term, &DueDecision { scheduled_ns: 5, ..due("home", 7) }, 8).unwrap();
    catalog.edit_policies(&seen, &[put("web", "b = 2"), PolicyEdit::Remove("home")], 9).unwrap();
    let left = catalog.policies().unwrap();
    assert_eq!(left, [PolicyText { name: "web".into(), text: "b = 2".into(), changed_ns: 9, scheduled_ns: 5 }]);
    assert!(catalog.pending_runs().unwrap().is_empty() && catalog.schedule_positions().unwrap().is_empty());
    assert_eq!(catalog.done_run(id).unwrap().unwrap().outcome, RunOutcome::Cancelled);
    catalog.enter_due(term, &DueDecision { scheduled_ns: 5, ..due("web", 10) }, 10).unwrap();
    catalog.edit_policies(&left, &[put("web", "b = 2")], 11).unwrap();
    assert_eq!(catalog.schedule_positions().unwrap().len(), 1);
    let edit = PolicyEdit::Put { name: "web", text: "b = 2", is_rescheduled: true };
    catalog.edit_policies(&catalog.policies().unwrap(), &[edit], 12).unwrap();
    assert!(catalog.schedule_positions().unwrap().is_empty());
    assert_eq!(catalog.policies().unwrap()[0].scheduled_ns, 12);
}
