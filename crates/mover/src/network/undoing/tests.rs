//! A database that was told to stand still is told to go on, whoever is killed or given up.

#![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

use std::cell::RefCell;
use std::ffi::OsString;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::thread;
use std::time::Duration;

use super::super::{ClientEnd, ClientRules, Dial, NetworkJob, NetworkJobs, NetworkStream, serve_job};
use super::*;

struct Way(NetworkJobs);

impl Dial for Way {
    fn dial(&self) -> io::Result<Box<dyn NetworkStream>> {
        let (near, far) = UnixStream::pair()?;
        let jobs = self.0.clone();
        thread::spawn(move || jobs.accept("tern", Box::new(far)));
        Ok(Box::new(near))
    }
}

/// A machine whose scripts are noted as they end.
struct Machine {
    notes: PathBuf,
    owed: OwedScripts,
}

impl Machine {
    fn new(folder: &Path) -> Self {
        Self { notes: folder.join("notes"), owed: OwedScripts::noted_in(&folder.join("owed")) }
    }

    fn noted(&self) -> String {
        std::fs::read_to_string(&self.notes).unwrap_or_default()
    }

    /// How many programs are owed, as far as a process after this one would know.
    fn owes(&self) -> usize {
        std::fs::read_dir(&self.owed.folder).map_or(0, Iterator::count)
    }

    /// Runs what an earlier process owed; what is said.
    fn starts_again(&self) -> Vec<String> {
        let said = RefCell::new(Vec::new());
        OwedScripts::noted_in(&self.owed.folder).run_left(self, &|line| said.borrow_mut().push(line));
        said.into_inner()
    }
}

impl ClientRules for Machine {
    fn allows(&self, _: &Path) -> bool {
        true
    }

    fn script(&self, name: &str) -> Option<Vec<OsString>> {
        let takes = match name {
            "freeze" => "0",
            "thaw" => "0.5",
            _ => return None,
        };
        let text = format!("sleep {takes}; echo {name} $CAPSTAN_OUTCOME >> {}", self.notes.display());
        Some(vec!["sh".into(), "-c".into(), text.into()])
    }

    fn owed(&self) -> Option<&OwedScripts> {
        Some(&self.owed)
    }
}

fn owed(script: &str) -> RunScript {
    let told = vec![(JOB.to_owned(), "db".to_owned()), ("CAPSTAN_OUTCOME".to_owned(), "failed".to_owned())];
    RunScript { script: script.to_owned(), told, can_be_stopped: false, then: None }
}

/// A client stood still for over a minute: the server had given its job up, and the next attempt's `before` had run
/// when the first one's `after` did. The database wrote while it was read.
#[test]
fn what_an_attempt_owes_is_run_before_the_next_one_begins() {
    let folder = tempfile::tempdir().unwrap();
    let (machine, way) = (Machine::new(folder.path()), Way(NetworkJobs::default()));
    let told = [(JOB, "db".to_owned())];
    let freeze = |job: &NetworkJob| {
        job.run_before("freeze", &told, Some(("thaw", &told)), &AtomicBool::new(false)).unwrap();
    };
    thread::scope(|scope| {
        let begun = || {
            let job = way.0.open("tern", Duration::from_secs(20)).unwrap();
            let (dial, token, rules) = (&way, job.token().clone(), &machine);
            let end = ClientEnd { dial, token, links: 1, rules, restores: None, stop: Arc::default() };
            scope.spawn(move || drop(serve_job(&end)));
            job
        };
        let first = begun();
        freeze(&first);
        assert_eq!(machine.owes(), 1);
        assert_eq!(machine.starts_again(), Vec::<String>::new(), "whoever owes it lives");
        drop(first);
        let second = begun();
        freeze(&second);
        assert_eq!(machine.noted(), "freeze\nthaw\nfreeze\n");
        second.run_after("thaw", &told).unwrap();
        assert_eq!((machine.noted().lines().count(), machine.owes()), (4, 0));
    });
}

#[test]
fn jobs_of_different_names_do_not_wait_for_each_other() {
    let folder = tempfile::tempdir().unwrap();
    let scripts = OwedScripts::noted_in(folder.path());
    let pair = Pair::of(&owed("freeze"), &owed("thaw"));
    let other = RunScript { told: vec![(JOB.to_owned(), "web".to_owned())], ..owed("thaw") };
    let held = scripts.hold(&pair).unwrap();
    assert!(scripts.hold(&pair).is_none() && scripts.hold(&Pair::of(&owed("freeze"), &other)).is_some());
    drop(held);
    assert!(scripts.hold(&pair).is_some());
}

/// The client was killed behind `before`, and the database stood still until somebody looked.
#[test]
fn what_a_killed_client_owed_is_run_when_it_starts_again() {
    let folder = tempfile::tempdir().unwrap();
    let machine = Machine::new(folder.path());
    // A process that is killed has its locks no more, and takes no note away.
    let killed = |script: &str| {
        let mut held = machine.owed.hold(&Pair::of(&owed("freeze"), &owed(script))).unwrap();
        held.owe(&owed(script)).unwrap();
    };
    killed("thaw");
    let said = machine.starts_again();
    assert!(said.len() == 2 && said[0].contains("script thaw is owed") && said[1].contains("ended well"), "{said:?}");
    assert_eq!((machine.noted().as_str(), machine.owes()), ("thaw failed\n", 0));
    assert!(machine.starts_again().is_empty());
    // One that was killed while it noted has begun nothing.
    std::fs::write(machine.owed.folder.join("00.new"), "{").unwrap();
    assert!(machine.starts_again().is_empty() && machine.owes() == 0);
    // A script that the settings do not name any more is for a person.
    killed("gone");
    let said = machine.starts_again();
    assert!(said.len() == 2 && said[1].contains("no script gone") && said[1].contains("and remove"), "{said:?}");
    assert_eq!(machine.owes(), 1);
}
