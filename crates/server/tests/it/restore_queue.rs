//! Restores wait for their turn in the queue, and are carried out once, whoever stops in between.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use capstan_catalog::{GoneSource, ObjectFilter, RunOutcome};
use capstan_client::orders::Replaces;
use capstan_client::restores::{AskRestore, RestorePlanned, RestoreSeen, RestoreStopping, StopRestore};
use capstan_client::{ClientError, ClientWork, ServerQuestions};
use capstan_director::{ExpiryRequest, Kept};
use capstan_mover::RestoreInto;
use capstan_mover::extract::{ExtractOptions, ExtractReport};
use capstan_server::cell::ServedCell;
use capstan_server::cell::users::CellActs;
use capstan_server::cell::users::words::{AskRestoreTo, ChangeRuns, ChangeUser, RerunRuns, RunChange, RunsChanged};

use crate::cell::{CellBench, Machine, name, until};
use crate::own_objects::{ask, back_up, until_ended};
use crate::users::{questions, user, while_running};

/// A cell with one client, of which something was backed up.
struct Told {
    bench: CellBench,
    cell: ServedCell,
    tern: Machine,
    folder: tempfile::TempDir,
}

impl Told {
    fn new() -> Self {
        let bench = CellBench::new();
        let cell = bench.serve_keyed();
        let tern = bench.joined(&cell, "tern");
        let folder = tempfile::tempdir().unwrap();
        let told = Self { bench, cell, tern, folder };
        // Before it says for the first time what it allows.
        let settings = format!("restore_to = [{:?}]", told.back(""));
        std::fs::write(told.tern.state.dir().join("client.toml"), settings).unwrap();
        std::fs::create_dir(told.source()).unwrap();
        std::fs::write(told.source().join("letter"), "dear Ada\n").unwrap();
        back_up(&told.bench, &told.cell, &told.tern, "tern", &told.source());
        told
    }

    fn source(&self) -> PathBuf {
        self.folder.path().join("source")
    }

    fn back(&self, name: &str) -> PathBuf {
        self.folder.path().canonicalize().unwrap().join("back").join(name)
    }

    fn begin(&self) -> Result<RestorePlanned, ClientError> {
        ServerQuestions::new(&self.tern.state)?.begin_restore(&ask(&[self.source().to_str().unwrap()]))
    }

    fn seen(&self, run: i64) -> RestoreSeen {
        ServerQuestions::new(&self.tern.state).unwrap().restore_seen(run, None).unwrap()
    }

    fn letter(&self, to: &Path) -> String {
        std::fs::read_to_string(to.join(self.source().strip_prefix("/").unwrap()).join("letter")).unwrap()
    }

    /// Serves the queue while nobody runs at the client.
    fn serve<T>(&self, meanwhile: impl FnOnce() -> T) -> T {
        self.bench.serve_queue_where(&self.cell, |_| false, meanwhile)
    }

    fn acts(&self) -> CellActs {
        CellActs::at_shell(&self.bench.site(), 0).unwrap()
    }

    fn change(&self, change: RunChange, run: i64) -> RunsChanged {
        self.acts().change_runs(&ChangeRuns { change, runs: vec![run] }).unwrap()
    }
}

/// The volume was in the vault. The restore began at once and gave back nothing, and nobody was asked for the volume.
#[test]
fn a_restore_waits_for_its_volume_to_be_inserted() {
    let told = Told::new();
    let site = told.bench.site();
    let volumes = site.catalog().volumes().unwrap();
    let volume = volumes.iter().find(|volume| volume.id.is_some()).unwrap().volser.to_string();
    let slot = site.dir().join(format!("library/slots/{volume}.tape"));
    let vault = told.folder.path().join("vault");
    std::fs::rename(&slot, &vault).unwrap();
    let run = told.begin().unwrap().run.unwrap();
    let back = told.back("late");
    let ended = told.serve(|| {
        let said = format!("volume {volume} to be inserted");
        until("it waits for the volume", || {
            told.acts().queue().unwrap().runs.iter().any(|row| row.run == run && row.message.contains(&said))
        });
        std::fs::rename(&vault, &slot).unwrap();
        // An operator who does not wait for the next look.
        told.change(RunChange::Release, run);
        until_ended(&told.tern, run, &back).unwrap()
    });
    assert_eq!((ended.failure, told.letter(&back).as_str()), (None, "dear Ada\n"));
}

/// Whoever wants what is there now need not wait for somebody to fetch the rest.
#[test]
fn a_restore_in_part_does_not_wait_for_a_volume() {
    let told = Told::new();
    let site = told.bench.site();
    let volumes = site.catalog().volumes().unwrap();
    let volume = volumes.iter().find(|volume| volume.id.is_some()).unwrap().volser.to_string();
    std::fs::rename(site.dir().join(format!("library/slots/{volume}.tape")), told.folder.path().join("vault")).unwrap();
    let asked = AskRestore { partial: true, ..ask(&[told.source().to_str().unwrap()]) };
    let run = ServerQuestions::new(&told.tern.state).unwrap().begin_restore(&asked).unwrap().run.unwrap();
    let back = told.back("in part");
    let ended = told.serve(|| until_ended(&told.tern, run, &back).unwrap());
    assert!(ended.failed_count > 0 && ended.failed[0].contains("on no volume in the library"), "{ended:?}");
    assert!(ended.notices[0].contains(&volume), "{ended:?}");
}

#[test]
fn restores_are_held_released_cancelled_and_stopped_as_runs_are() {
    let told = Told::new();
    let planned: Vec<_> = (0..4).map(|_| told.begin().unwrap()).collect();
    assert_eq!(planned[0].waits_for.as_deref(), Some("the library to answer"), "nobody has asked it yet");
    let runs: Vec<i64> = planned.iter().map(|planned| planned.run.unwrap()).collect();
    let [first, held, cancelled, stopped] = runs[..] else { panic!("{runs:?}") };
    let rows = told.acts().queue().unwrap().runs;
    assert_eq!(rows.iter().map(|row| row.run).collect::<Vec<_>>(), runs);
    assert!(rows[0].restore.as_ref().unwrap().ends_with("source to tern"), "{rows:?}");
    told.change(RunChange::Hold, held);
    told.change(RunChange::Cancel, cancelled);
    ServerQuestions::new(&told.tern.state).unwrap().stop_restore(stopped).unwrap();
    for run in [cancelled, stopped] {
        assert_eq!(told.seen(run).ended.unwrap().failure.as_deref(), Some("it was cancelled"));
    }

    let back = told.back("first");
    let ended = told.serve(|| {
        let ended = until_ended(&told.tern, first, &back).unwrap();
        // The client hears of the end before the queue notes it.
        let site = told.bench.site();
        until("it has left the queue", || site.catalog().done_run(first).unwrap().is_some());
        let rows = told.acts().queue().unwrap().runs;
        assert_eq!(
            rows.iter().map(|row| (row.run, row.waits_for.as_deref())).collect::<Vec<_>>(),
            [(held, Some("release"))]
        );
        ended
    });
    assert_eq!((ended.failure, ended.failed_count), (None, 0));
    assert_eq!(told.letter(&back), "dear Ada\n");
    // What it gives back does not expire before.
    let expiry = || {
        let site = told.bench.site();
        let object = site.catalog().objects(&ObjectFilter::default()).unwrap().remove(0);
        let gone = vec![GoneSource { source: object.source, client: object.client }];
        let plan =
            site.plan_expiry(&ExpiryRequest { named: vec![object.id], gone, ..ExpiryRequest::default() }).unwrap();
        plan.kept.into_iter().map(|(_, why)| why).collect::<Vec<_>>()
    };
    assert_eq!(expiry(), [Kept::Restored]);
    told.change(RunChange::Release, held);
    let back = told.back("held");
    let ended = told.serve(|| until_ended(&told.tern, held, &back).unwrap());
    assert_eq!((ended.failure, told.letter(&back).as_str()), (None, "dear Ada\n"));
    assert_eq!(expiry(), []);

    let done = told.bench.site().catalog().done_runs(9).unwrap();
    let ends: Vec<_> = done.iter().map(|done| (done.run.run, done.outcome, done.job.is_some())).collect();
    for run in [first, held] {
        assert!(ends.contains(&(run, RunOutcome::Succeeded, true)), "{ends:?}");
    }
    let refused = told.acts().rerun(&RerunRuns { runs: vec![first] }).unwrap_err().to_string();
    assert!(refused.contains("was a restore"), "{refused}");
    let records = told.acts().audit(Some(100)).unwrap().records;
    let restores = records.iter().filter(|record| record["act"] == "restore-own");
    let results: Vec<_> = restores.map(|record| record["result"].as_str().unwrap()).collect();
    assert_eq!(results, ["begun", "begun", "begun", "begun", "failed", "done", "done"], "{records:?}");
}

/// The server ends between the question and its turn, and begins anew under another address.
#[test]
fn a_restore_outlives_its_server_and_one_of_a_user_the_user_too() {
    let Told { bench, cell, tern, folder } = Told::new();
    let back = folder.path().canonicalize().unwrap().join("back");
    let ada = user(&bench, &cell, "ada", &["administrator"], &[]);
    let own = ServerQuestions::new(&tern.state).unwrap();
    let source = folder.path().join("source");
    let place = source.to_str().unwrap();
    let typed = own.begin_restore(&ask(&[place])).unwrap().run.unwrap();
    let asked = AskRestoreTo {
        of: "tern".to_owned(),
        to: None,
        directory: Some(back.join("of ada").display().to_string()),
        replaces: Replaces::Never,
        ask: AskRestore { places: vec![place.to_owned()], ..AskRestore::default() },
    };
    let mut by_ada = None;
    while_running(&tern, &cell, "tern", || {
        let planned: RestorePlanned = questions(&ada).post("/v1/restores", &asked).unwrap();
        by_ada = planned.run;
        let stopped: RestorePlanned = questions(&ada).post("/v1/restores", &asked).unwrap();
        let run = stopped.run.unwrap();
        let stopping: RestoreStopping = questions(&ada).post("/v1/restores/stop", &StopRestore { run }).unwrap();
        assert_eq!(stopping.run, run);
    });
    let by_ada = by_ada.unwrap();
    drop(cell);

    let cell = bench.serve_keyed();
    tern.looks_for(&cell);
    ada.looks_for(&cell);
    let site = bench.site();
    while_running(&tern, &cell, "tern", || {
        bench.serve_queue(&cell, || {
            let ended = until_ended(&tern, typed, &back.join("typed")).unwrap();
            assert_eq!(ended.failure, None);
            until("the user's restore ends", || site.catalog().done_run(by_ada).unwrap().is_some());
        });
    });
    for to in ["of ada", "typed"] {
        let letter = back.join(to).join(source.strip_prefix("/").unwrap()).join("letter");
        assert_eq!(std::fs::read_to_string(letter).unwrap(), "dear Ada\n", "{to}");
    }
    let seen: RestoreSeen = questions(&ada).get(&format!("/v1/restores?run={by_ada}")).unwrap();
    assert_eq!((seen.ended.unwrap().failure, seen.order), (None, None));
}

#[test]
fn a_restore_gives_back_what_there_was_when_it_was_asked_for() {
    let told = Told::new();
    let run = told.begin().unwrap().run.unwrap();
    std::fs::write(told.source().join("letter"), "dear Bea\n").unwrap();
    back_up(&told.bench, &told.cell, &told.tern, "tern", &told.source());
    assert_eq!(told.bench.site().catalog().objects(&ObjectFilter::default()).unwrap().len(), 2);
    let back = told.back("then");
    let ended = told.serve(|| until_ended(&told.tern, run, &back).unwrap());
    assert_eq!((ended.failure, told.letter(&back).as_str()), (None, "dear Ada\n"));
}

/// Writes what comes of a restore, and is slow to say that it has; `has_written` is set when all is written.
fn slowly(told: &Told, run: i64, to: &Path, has_written: &AtomicBool) {
    let server = ServerQuestions::new(&told.tern.state).unwrap();
    let mut seen = server.restore_seen(run, None).unwrap();
    while seen.order.is_none() {
        seen = server.restore_seen(run, None).unwrap();
    }
    let told_of = |_: &ExtractReport| {
        has_written.store(true, Ordering::SeqCst);
        std::thread::sleep(Duration::from_secs(3));
    };
    let into = RestoreInto { directory: to, options: ExtractOptions::default(), told: &told_of };
    drop(ClientWork::new(&told.tern.state).unwrap().restore(seen.order.unwrap(), into));
}

#[test]
fn one_at_work_is_cancelled_and_one_whose_server_stops_goes_on_with_the_next() {
    let told = Told::new();
    for is_cancelled in [true, false] {
        let run = told.begin().unwrap().run.unwrap();
        let (back, has_written) = (told.back(&format!("{is_cancelled}")), AtomicBool::new(false));
        std::thread::scope(|scope| {
            scope.spawn(|| slowly(&told, run, &back, &has_written));
            told.serve(|| {
                until("all is written", || has_written.load(Ordering::SeqCst));
                if is_cancelled {
                    told.change(RunChange::Cancel, run);
                    until("it has ended", || told.bench.site().catalog().done_run(run).unwrap().is_some());
                }
            });
        });
        if is_cancelled {
            let done = told.bench.site().catalog().done_run(run).unwrap().unwrap();
            assert_eq!(done.outcome, RunOutcome::Cancelled, "{done:?}");
            assert_eq!(told.seen(run).ended.unwrap().failure.as_deref(), Some("it was cancelled"));
            continue;
        }
        let pending = told.bench.site().catalog().pending_runs().unwrap();
        assert_eq!(
            pending.iter().map(|pending| (pending.run.run, pending.run.attempt)).collect::<Vec<_>>(),
            [(run, 1)]
        );
        let ended = told.serve(|| until_ended(&told.tern, run, &back).unwrap());
        assert_eq!((ended.failure, told.letter(&back).as_str()), (None, "dear Ada\n"));
    }
}

/// What was asked for is not what may be done when its turn comes.
#[test]
fn a_restore_of_a_user_whose_rights_have_changed_is_not_carried_out() {
    let Told { bench, cell, tern, folder } = Told::new();
    let back = folder.path().canonicalize().unwrap().join("back");
    let bert = user(&bench, &cell, "bert", &["restorer"], &["tern"]);
    let asked = AskRestoreTo {
        of: "tern".to_owned(),
        to: None,
        directory: Some(back.display().to_string()),
        replaces: Replaces::Never,
        ask: ask(&[folder.path().join("source").to_str().unwrap()]),
    };
    while_running(&tern, &cell, "tern", || {
        let planned: RestorePlanned = questions(&bert).post("/v1/restores", &asked).unwrap();
        let run = planned.run.unwrap();
        let roles = ChangeUser { name: name("bert"), roles: vec!["operator".to_owned()], clients: Vec::new() };
        CellActs::at_shell(&bench.site(), 0).unwrap().change_user(&roles).unwrap();
        bench.serve_queue(&cell, || {
            until("it has ended", || bench.site().catalog().done_run(run).unwrap().is_some());
        });
        let done = bench.site().catalog().done_run(run).unwrap().unwrap();
        assert_eq!(done.outcome, RunOutcome::Failed);
        assert!(done.message.contains("the user may not do it any more"), "{}", done.message);
    });
    assert!(!back.exists());
}

#[test]
fn nobody_fills_the_queue_with_restores() {
    let told = Told::new();
    let begun = (0..20).map(|_| told.begin().unwrap().run.unwrap()).last().unwrap();
    let refused = told.begin().unwrap_err().to_string();
    assert!(refused.contains("20 restores that you asked for are in the queue"), "{refused}");
    ServerQuestions::new(&told.tern.state).unwrap().stop_restore(begun).unwrap();
    told.begin().unwrap();
    let exclude = vec!["a".repeat(70_000)];
    let long = AskRestore { exclude, ..ask(&[told.source().to_str().unwrap()]) };
    let refused = ServerQuestions::new(&told.tern.state).unwrap().begin_restore(&long).unwrap_err().to_string();
    assert!(refused.contains("too long for a restore"), "{refused}");
    // Whoever is let in no more has nothing restored any more.
    capstan_server::cell::revoke_member(&told.bench.site(), &crate::cell::client_id("tern")).unwrap();
    told.cell.look().unwrap();
    assert!(told.acts().queue().unwrap().runs.is_empty());
}
