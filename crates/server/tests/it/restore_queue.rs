//! Restores wait for their turn in the queue, and are carried out once, whoever stops in between.

use std::path::{Path, PathBuf};

use capstan_catalog::{ObjectFilter, RunOutcome};
use capstan_client::orders::Replaces;
use capstan_client::restores::{AskRestore, RestorePlanned, RestoreSeen, RestoreStopping, StopRestore};
use capstan_client::{ClientError, ServerQuestions};
use capstan_server::cell::ServedCell;
use capstan_server::cell::users::CellActs;
use capstan_server::cell::users::words::{AskRestoreTo, ChangeRuns, RerunRuns, RunChange, RunsChanged};

use crate::cell::{CellBench, Machine, until};
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

    fn acts(&self) -> CellActs {
        CellActs::at_shell(&self.bench.site(), 0).unwrap()
    }

    fn change(&self, change: RunChange, run: i64) -> RunsChanged {
        self.acts().change_runs(&ChangeRuns { change, runs: vec![run] }).unwrap()
    }
}

#[test]
fn restores_are_held_released_cancelled_and_stopped_as_runs_are() {
    let told = Told::new();
    let runs: Vec<i64> = (0..4).map(|_| told.begin().unwrap().run.unwrap()).collect();
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
    let ended = told.bench.serve_queue(&told.cell, || {
        let ended = until_ended(&told.tern, first, &back).unwrap();
        let rows = told.acts().queue().unwrap().runs;
        assert_eq!(
            rows.iter().map(|row| (row.run, row.waits_for.as_deref())).collect::<Vec<_>>(),
            [(held, Some("release"))]
        );
        ended
    });
    assert_eq!((ended.failure, ended.failed_count), (None, 0));
    assert_eq!(told.letter(&back), "dear Ada\n");
    told.change(RunChange::Release, held);
    let back = told.back("held");
    let ended = told.bench.serve_queue(&told.cell, || until_ended(&told.tern, held, &back).unwrap());
    assert_eq!((ended.failure, told.letter(&back).as_str()), (None, "dear Ada\n"));

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
    std::fs::write(tern.state.dir().join("client.toml"), format!("restore_to = [{back:?}]")).unwrap();
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
    let ended = told.bench.serve_queue(&told.cell, || until_ended(&told.tern, run, &back).unwrap());
    assert_eq!((ended.failure, told.letter(&back).as_str()), (None, "dear Ada\n"));
}

#[test]
fn nobody_fills_the_queue_with_restores() {
    let told = Told::new();
    let begun = (0..20).map(|_| told.begin().unwrap().run.unwrap()).last().unwrap();
    let refused = told.begin().unwrap_err().to_string();
    assert!(refused.contains("20 restores that you asked for are in the queue"), "{refused}");
    ServerQuestions::new(&told.tern.state).unwrap().stop_restore(begun).unwrap();
    told.begin().unwrap();
    // Whoever is let in no more has nothing restored any more.
    capstan_server::cell::revoke_member(&told.bench.site(), &crate::cell::client_id("tern")).unwrap();
    told.cell.look().unwrap();
    assert!(told.acts().queue().unwrap().runs.is_empty());
}
