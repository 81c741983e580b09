//! What a monitor and a person see while work runs, and afterwards: `status`, `history`.

use super::*;

/// Work that runs was told as interrupted, and nothing was left of what it had said.
#[test]
fn what_runs_is_running_until_its_process_is_gone() {
    let bench = Bench::new(&[]);
    set(&bench, "checkpoint_mib = 4096", "checkpoint_mib = 1");
    set(&bench, "extent_longest_mib = 256", "extent_longest_mib = 1");
    let noise = bench.source().join("noise");
    // It goes on until its reader is gone.
    let program = format!("while cat {}; do sleep 0.1; done", noise.display());
    let args = ["backup", "--stdin", "dump.sql", "--from-command", "--", "sh", "-c", &program];
    let mut running = bench.command(&args).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    until(&bench, |bench| !bench.rows(&["objects"]).is_empty());
    assert_eq!(bench.rows(&["objects"])[0]["status"], "running");
    let status = bench.json(&["status"]);
    assert_eq!((&status["attention"], &status["objects_running"]), (&false.into(), &1.into()), "{status}");
    assert_eq!(status["running"][0]["outcome"], "running");
    assert_eq!(status["sources"][0]["run"], status["running"][0]["run"]);
    let text = bench.done(&["status"], 0);
    assert!(text.contains("running     backup of dump.sql") && !text.contains("interrupted"), "{text}");

    running.kill().unwrap();
    running.wait().unwrap();
    assert_eq!(bench.rows(&["objects"])[0]["status"], "interrupted");
    let text = bench.done(&["status"], 3);
    assert!(
        text.contains("backup of dump.sql of ") && text.contains(" was interrupted") && !text.contains("running"),
        "{text}"
    );
    assert_eq!(bench.rows(&["history"])[0]["outcome"], "killed");
}

#[test]
fn each_source_has_an_age_that_can_be_too_great() {
    let bench = Bench::new(&[]);
    let source = bench.source_text();
    bench.done(&["backup", &source, "--copies", "2", "--quiet"], 0);
    bench.done(&["status", "--max-age", "1h"], 0);
    let text = bench.done(&["status", "--max-age", "0s"], 3);
    assert!(text.contains("overdue: back it up") && text.contains("2 of 2"), "{text}");
    let status: serde_json::Value =
        serde_json::from_str(&bench.done(&["status", "--max-age", "0s", "--json"], 3)).unwrap();
    assert_eq!((&status["sources"][0]["overdue"], &status["attention"]), (&true.into(), &true.into()));
    // One that is said to be gone is waited for no more.
    bench.done(&["expire", "--gone", &source, "--quiet"], 0);
    assert!(bench.done(&["status", "--max-age", "0s"], 0).contains("gone: nothing is waited for"));

    let metrics = bench.done(&["status", "--max-age", "0s", "--metrics"], 0);
    let line = format!("capstan_source_copies_whole{{source=\"{source}\",client=");
    assert!(metrics.contains(&line) && metrics.ends_with("# EOF\n"), "{metrics}");
    let file = bench.dir.path().join("capstan.prom");
    bench.done(&["status", "--metrics", "--output", file.to_str().unwrap()], 0);
    assert!(fs::read_to_string(file).unwrap().ends_with("# EOF\n"));
}

/// Somebody was woken for a job that had been written a minute before, and for a policy that was switched off.
#[test]
fn what_waits_for_its_first_time_is_not_overdue() {
    let bench = Bench::new(&[]);
    bench.settings("[jobs.nightly]\nsources = [\"SOURCE\"]\n");
    let late = ["status", "--max-age", "0s"];
    let overdue = |metrics: &str| {
        let lines = metrics.lines().filter(|line| line.starts_with("capstan_source_overdue{"));
        lines.map(|line| line.rsplit(' ').next().unwrap().to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(overdue(&bench.done(&[&late[..], &["--metrics"]].concat(), 0)), ["0"]);
    let status: serde_json::Value = serde_json::from_str(&bench.done(&[&late[..], &["--json"]].concat(), 3)).unwrap();
    assert_eq!(status["sources"][0]["overdue"], false);
    bench.done(&["backup", "nightly", "--quiet"], 0);
    assert_eq!(overdue(&bench.done(&[&late[..], &["--metrics"]].concat(), 0)), ["1"]);
}

#[test]
fn the_history_keeps_what_was_said_and_how_it_ended() {
    let bench = Bench::new(&[]);
    let source = bench.source_text();
    let missing = bench.dir.path().join("nothing").to_str().unwrap().to_owned();
    bench.done(&["backup", &source, &missing, "--quiet"], 3);
    bench.done(&["restore", &source, "--to", "back", "--quiet"], 0);
    bench.done(&["verify", "A00001"], 0);
    bench.done(&["forget", "A00001", "--yes"], 1);
    let rows = bench.rows(&["history"]);
    let kinds: Vec<_> =
        rows.iter().map(|row| (row["kind"].as_str().unwrap(), row["exit_code"].as_i64().unwrap())).collect();
    assert_eq!(kinds, [("forget", 1), ("verify", 0), ("restore", 0), ("backup", 3)]);
    assert_eq!((&rows[3]["files"], &rows[3]["outcome"]), (&2.into(), &"problems".into()));
    let message = rows[3]["message"].as_str().unwrap();
    assert!(
        message.starts_with(&format!("source {missing} is not backed up: No such file or directory; ")),
        "{message}"
    );
    let shown = bench.done(&["history", "1"], 0);
    assert!(shown.contains(&format!("source {missing} is not backed up")), "{shown}");
    let object = rows[3]["objects"][0].as_str().unwrap();
    assert!(shown.contains(object) && bench.json(&["history", "1"])["log"].as_array().unwrap().len() > 1);
    assert_eq!(bench.rows(&["history", "--kind", "verify"]).len(), 1);
    assert!(bench.said(&["history", "77"], 1).contains("there is no run 77"));
    // The history is no part of the volumes, and outlives a catalog that is made anew.
    bench.done(&["rebuild"], 0);
    let rows = bench.rows(&["history"]);
    assert_eq!((rows.len(), &rows[0]["kind"]), (5, &"rebuild".into()));
}

/// A job that failed before it began, and a source that never was, were invisible to whoever watches.
#[test]
fn a_job_that_failed_and_a_source_that_never_was_ask_for_attention() {
    let bench = Bench::with_passphrase(&[]);
    let (source, missing) = (bench.source_text(), bench.dir.path().join("nothing").to_str().unwrap().to_owned());
    let path = bench.dir.path().join("state/capstan.toml");
    let settings = fs::read_to_string(&path).unwrap();
    let job = |rest: &str| {
        fs::write(&path, format!("{settings}\n[jobs.nightly]\nsources = [\"{source}\", \"{missing}\"]\n{rest}"))
    };
    job("").unwrap();
    let text = bench.done(&["status"], 3);
    assert!(text.contains(&format!("{missing} was never backed up, and job nightly names it")), "{text}");
    bench.done(&["backup", "nightly", "--quiet"], 3);
    let text = bench.done(&["status"], 3);
    assert!(!text.contains(&format!("{source} was never")) && text.contains(&format!("{missing} was never")), "{text}");
    job("before = [\"false\"]\n").unwrap();
    bench.done(&["backup", "nightly", "--quiet"], 1);
    let text = bench.done(&["status"], 3);
    assert!(text.contains("the last run of job nightly") && text.contains("capstan history 2"), "{text}");
    let rows = bench.rows(&["history"]);
    assert_eq!((&rows[0]["outcome"], &rows[0]["exit_code"]), (&"failed".into(), &1.into()));
    // A passphrase that does not open ends it before anything is begun, and is part of the history all the same.
    job("").unwrap();
    let mut wrong = bench.command(&["backup", "nightly", "--quiet"]);
    assert_eq!(wrong.env("CAPSTAN_PASSPHRASE", "other words").output().unwrap().status.code(), Some(4));
    assert_eq!(bench.rows(&["history"])[0]["exit_code"], 4);
    fs::create_dir(&missing).unwrap();
    bench.done(&["backup", "nightly", "--quiet"], 0);
    bench.done(&["status"], 0);
}

/// A job whose program failed afterwards, or that could not read all, ended with problems, and `status` was content.
#[test]
fn a_job_that_ends_with_problems_asks_for_attention_until_one_has_none() {
    let bench = Bench::new(&[]);
    let source = bench.source_text();
    let path = bench.dir.path().join("state/capstan.toml");
    let settings = fs::read_to_string(&path).unwrap();
    let job = |rest: &str| fs::write(&path, format!("{settings}\n[jobs.nightly]\nsources = [\"{source}\"]\n{rest}"));
    job("after = [\"false\"]\n").unwrap();
    bench.done(&["backup", "nightly", "--quiet"], 3);
    let problems = |text: &str| {
        let line = text.lines().find(|line| line.contains("the last backup by job nightly, on "));
        line.is_some_and(|line| line.contains(", ended with problems: ") && line.ends_with("(`capstan history 1`)"))
    };
    let text = bench.done(&["status"], 3);
    assert!(problems(&text), "{text}");
    // One that fails does not make up for it.
    job("before = [\"false\"]\n").unwrap();
    bench.done(&["backup", "nightly", "--quiet"], 1);
    let text = bench.done(&["status"], 3);
    assert!(problems(&text) && text.contains("the last run of job nightly, on "), "{text}");
    job("").unwrap();
    bench.done(&["backup", "nightly", "--quiet"], 0);
    bench.done(&["status"], 0);
}

/// Sources had figures, and a job that failed had none.
#[test]
fn each_job_has_figures_for_a_collector() {
    let bench = Bench::new(&[]);
    let source = bench.source_text();
    let path = bench.dir.path().join("state/capstan.toml");
    let settings = fs::read_to_string(&path).unwrap();
    let jobs = format!(
        "\n[jobs.nightly]\nsources = [\"{source}\"]\n[jobs.weekly]\nsources = [\"{source}\"]\nbefore = [\"false\"]\n"
    );
    fs::write(&path, settings + &jobs + &format!("[jobs.yearly]\nsources = [\"{source}\"]\n")).unwrap();
    bench.done(&["backup", "nightly", "--quiet"], 0);
    bench.done(&["backup", "weekly", "--quiet"], 1);
    let metrics = bench.done(&["status", "--metrics"], 0);
    let has = |line: &str| assert!(metrics.lines().any(|other| other == line), "{line} is not in\n{metrics}");
    has("capstan_job_last_exit_code{job=\"nightly\"} 0");
    has("capstan_job_last_exit_code{job=\"weekly\"} 1");
    has("capstan_job_last_outcome{job=\"nightly\",outcome=\"done\"} 1");
    has("capstan_job_last_outcome{job=\"nightly\",outcome=\"failed\"} 0");
    has("capstan_job_last_outcome{job=\"weekly\",outcome=\"failed\"} 1");
    has("capstan_job_last_run_timestamp_seconds{job=\"yearly\"} 0");
    has("capstan_job_running{job=\"nightly\"} 0");
    assert!(metrics.contains("capstan_job_last_run_age_seconds{job=\"weekly\"} "), "{metrics}");
    assert!(!metrics.contains("capstan_job_last_run_age_seconds{job=\"yearly\"}"), "{metrics}");
}

/// A backup that a cron line asks for and that fails left `status` content: the source had a backup, of whatever age.
#[test]
fn a_source_that_its_last_run_did_not_back_up_asks_for_attention() {
    let bench = Bench::with_passphrase(&[]);
    let source = bench.source_text();
    let second = bench.dir.path().join("second").to_str().unwrap().to_owned();
    fs::create_dir(&second).unwrap();
    bench.done(&["backup", &source, &second, "--quiet"], 0);
    bench.done(&["status"], 0);
    // A wrong passphrase: nothing was begun.
    let mut wrong = bench.command(&["backup", "home", "--quiet"]);
    assert_eq!(wrong.env("CAPSTAN_PASSPHRASE", "other words").output().unwrap().status.code(), Some(4));
    let text = bench.done(&["status"], 3);
    assert!(text.contains(&format!("{source} was not backed up by its last run")), "{text}");
    assert!(text.contains("capstan history 2") && !text.contains(&format!("{second} was not")), "{text}");
    bench.done(&["backup", &source, "--quiet"], 0);
    bench.done(&["status"], 0);
    // One of two is not there; the other is none the worse for it.
    fs::remove_dir(&second).unwrap();
    bench.done(&["backup", &source, &second, "--quiet"], 3);
    let text = bench.done(&["status"], 3);
    assert!(text.contains(&format!("{second} was not backed up by its last run")), "{text}");
    assert!(!text.contains(&format!("{source} was not")), "{text}");
    // A source that was mistyped is none; one that is said to be gone waits for nothing.
    bench.done(&["backup", "hmoe", "--quiet"], 1);
    bench.done(&["expire", "--gone", &second, "--quiet"], 0);
    bench.done(&["status"], 0);
    // The runs that name a source, or that name nothing.
    assert_eq!(bench.rows(&["history", "home"]).len(), 4);
    assert_eq!(bench.rows(&["history", &second]).len(), 2);
    // A name that nothing has ended with 0.
    let said = bench.said(&["history", "hmoe"], 0);
    assert_eq!(said, "", "a run names it, though nothing else does");
    let said = bench.said(&["history", "secnod"], 1);
    assert!(said.contains("is not a run, job, source or volume (did you mean ") && said.contains("second?)"), "{said}");
    assert!(bench.said(&["history", "A00001"], 0).contains("no run names \"A00001\""));
}
