//! Policies, the queue and the server, as people and programs see them.

use std::fs;
use std::io::{BufRead, BufReader};
use std::process::Stdio;

use serde_json::Value;

use super::Bench;
use super::json::{assert_described, events, schemas};

const HOME: &str = "[policies.home]\nsources = [\"SOURCE\"]\nschedule = \"mon..fri 22:00\"\nspread = \"1h\"\n";

pub(super) fn write_policies(bench: &Bench, text: &str) -> String {
    let path = bench.source().with_file_name("cell.toml");
    fs::write(&path, text.replace("SOURCE", &bench.source_text())).unwrap();
    path.display().to_string()
}

/// A server until it is done with the queue; gives the events that it printed.
pub(super) fn serve_until_done(bench: &Bench, runs: usize) -> Vec<Value> {
    let mut server = bench.command(&["server", "run", "--json"]).stdout(Stdio::piped()).spawn().unwrap();
    let mut events = Vec::new();
    let mut ended_runs = 0;
    for line in BufReader::new(server.stdout.take().unwrap()).lines() {
        let event: Value = serde_json::from_str(&line.unwrap()).unwrap();
        let is_last = event["event"] == "run-ended" && ended_runs + 1 == runs;
        ended_runs += usize::from(event["event"] == "run-ended");
        events.push(event);
        // A second signal would end it at once.
        if is_last {
            let pid = rustix::process::Pid::from_child(&server);
            // The last event says that it has stopped.
            let _ = rustix::process::kill_process(pid, rustix::process::Signal::TERM);
        }
    }
    assert!(server.wait().unwrap().success());
    events
}

#[test]
fn every_line_of_a_cell_is_as_the_page_says() {
    let bench = Bench::new(&[]);
    let schemas = schemas();
    let file = write_policies(&bench, HOME);
    assert_described(&schemas, "PolicyChangeRow", &events(&bench, &["policies", "apply", &file, "--dry-run"], 0));
    assert_eq!(events(&bench, &["policies"], 0), [] as [Value; 0], "a dry run changes nothing");
    assert_described(&schemas, "PolicyChangeRow", &events(&bench, &["policies", "apply", &file], 0));
    assert_described(&schemas, "BackupPolicyRow", &events(&bench, &["policies"], 0));
    assert_described(&schemas, "ComingRunRow", &events(&bench, &["schedule", "--days", "7"], 0));
    assert_described(&schemas, "QueueChangeRow", &events(&bench, &["queue", "add", "home"], 0));
    assert_described(&schemas, "QueueChangeRow", &events(&bench, &["queue", "add", "home"], 3));
    assert_described(&schemas, "QueueChangeRow", &events(&bench, &["queue", "hold", "1"], 0));
    let waiting = events(&bench, &["queue"], 0);
    assert_described(&schemas, "QueueRow", &waiting);
    assert_eq!((&waiting[0]["state"], &waiting[0]["waits_for"]), (&"waiting".into(), &"release".into()));
    assert_described(&schemas, "QueueChangeRow", &events(&bench, &["queue", "release", "1"], 0));
    let served = serve_until_done(&bench, 1);
    let kinds = schemas["ServerEvent"]["oneOf"].as_array().unwrap();
    for event in &served {
        assert!(kinds.iter().any(|kind| kind["properties"]["event"]["const"] == event["event"]), "{event}");
    }
    assert_eq!(served.last().unwrap()["event"], "stopped");
    let done = events(&bench, &["queue", "done"], 0);
    assert_described(&schemas, "QueueRow", &done);
    assert_eq!((&done[0]["state"], &done[0]["history"]), (&"done".into(), &1.into()));
    assert_described(&schemas, "QueueChangeRow", &events(&bench, &["queue", "rerun", "1"], 0));
    assert_described(&schemas, "QueueChangeRow", &events(&bench, &["queue", "cancel", "2"], 0));
    assert_described(&schemas, "PolicyChangeRow", &events(&bench, &["policies", "remove", "home", "--yes"], 0));
}

#[test]
fn a_policy_writes_to_several_drives_and_a_lock_without_an_end_is_its_fault() {
    let bench = Bench::new(&["--drives", "3"]);
    // Each connection has its own part of an image; one of them may have all files of a tree on a busy machine.
    let policies = "[policies.wide]\nsources = [\"SOURCE/noise\"]\nconnections = 4\ndrives = 2\n\
                    [policies.locked]\nsources = [\"SOURCE\"]\nlock = true\n";
    let file = write_policies(&bench, policies);
    let said = bench.said(&["policies", "apply", &file], 3);
    assert!(said.contains("policy locked cannot be run"), "{said}");
    let said = bench.said(&["queue", "add", "locked"], 1);
    assert!(said.contains("a locked retention must end"), "{said}");
    bench.done(&["queue", "add", "wide"], 0);
    serve_until_done(&bench, 1);
    let objects = events(&bench, &["objects"], 0);
    assert_eq!(objects.len(), 1);
    assert_eq!(objects[0]["copies"][0]["volumes"].as_array().unwrap().len(), 2, "{objects:?}");
    // The next full backup is small: it has one.
    bench.done(&["queue", "add", "wide"], 0);
    serve_until_done(&bench, 1);
    let objects = events(&bench, &["objects"], 0);
    let latest = objects.iter().max_by_key(|object| object["started_ns"].as_u64()).unwrap();
    assert_eq!(latest["copies"][0]["volumes"].as_array().unwrap().len(), 1, "{latest}");
}

#[test]
fn a_dry_run_tells_all_that_would_keep_policies_from_running() {
    let bench = Bench::new(&["--drives", "2"]);
    let policies = "[policies.locked]\nsources = [\"SOURCE\"]\nlock = true\n\
                    [policies.nowhere]\nsources = [\"SOURCE\"]\npool = \"valut\"\n\
                    [policies.thrice]\nsources = [\"SOURCE\"]\ncopies = 3\n\
                    [policies.past]\nsources = [\"SOURCE\"]\nschedule = \"2020-01-01 12:00\"\n\
                    [policies.others]\nsources = [\"SOURCE\"]\nclients = [\"tern\"]\n\
                    [policies.labelled]\nsources = [\"SOURCE\"]\nclient_labels = [\"web\"]\n";
    let file = write_policies(&bench, policies);
    for args in [&["policies", "apply", &*file, "--dry-run"][..], &["policies", "apply", &*file]] {
        let said = bench.said(args, 3);
        for told in [
            "policy locked cannot be run on this machine: lock: a locked retention must end",
            "policy nowhere cannot be run on this machine: pool: there is no pool \"valut\"",
            "policy thrice cannot be run on this machine: copies: 3 copies are written at once, each on its own drive, and the library has 2",
            "policy past: its schedule has no time that is still to come",
            "policy others: client tern has not joined",
            "policy labelled: there is none of its clients with label web",
        ] {
            assert!(said.contains(told), "{told}: {said}");
        }
    }
    // Those that have only a notice are run; nothing is tried that cannot succeed.
    let said = bench.said(&["queue", "add", "thrice"], 1);
    assert!(said.contains("back up one copy and add others with `capstan copy`"), "{said}");
}

#[test]
fn the_schedule_says_when_the_window_lets_a_run_begin() {
    let bench = Bench::new(&[]);
    let policies = "[policies.early]\nsources = [\"SOURCE\"]\nschedule = \"18:00\"\nwindow = \"22:00-23:00\"\n\
                    catch_up = \"once\"\nzone = \"UTC\"\n";
    bench.done(&["policies", "apply", &write_policies(&bench, policies)], 0);
    let coming = events(&bench, &["schedule", "--days", "3"], 0);
    assert!(!coming.is_empty());
    for run in coming {
        let (due, starts) = (run["due_ns"].as_u64().unwrap(), run["starts_ns"].as_u64().unwrap());
        assert_eq!(starts - due, 4 * 3_600_000_000_000, "{run}");
    }
    let listed = events(&bench, &["policies"], 0);
    assert_eq!(listed[0]["next_ns"].as_u64().unwrap() / 1_000_000_000 % 86_400, 22 * 3600, "{listed:?}");
}

#[test]
fn a_policy_that_is_switched_off_runs_only_when_it_is_entered() {
    let bench = Bench::new(&[]);
    let on = "[policies.often]\nsources = [\"SOURCE\"]\nschedule = \"minutely\"\n";
    bench.done(&["policies", "apply", &write_policies(&bench, &format!("{on}enabled = false\n"))], 0);
    let listed = events(&bench, &["policies"], 0);
    assert_eq!((&listed[0]["enabled"], &listed[0]["next_ns"]), (&false.into(), &Value::Null));
    let said = bench.said(&["schedule", "often"], 0);
    assert!(said.contains("policy often is switched off") && said.contains("no run comes"), "{said}");
    bench.done(&["queue", "add", "often"], 0);
    serve_until_done(&bench, 1);
    bench.done(&["policies", "apply", &write_policies(&bench, on)], 0);
    assert!(events(&bench, &["policies"], 0)[0]["next_ns"].is_u64());
    let said = bench.said(&["schedule", "often", "--days", "1"], 0);
    assert!(!said.contains("switched off"), "{said}");
}

#[test]
fn a_full_backup_is_asked_for_by_queue() {
    let bench = Bench::new(&[]);
    let policies = "[policies.home]\nsources = [\"SOURCE\"]\nlevel = \"incremental\"\n";
    bench.done(&["policies", "apply", &write_policies(&bench, policies)], 0);
    bench.done(&["queue", "add", "home"], 0);
    serve_until_done(&bench, 1);
    bench.done(&["queue", "add", "home"], 0);
    // The run waits, and becomes full.
    bench.done(&["queue", "add", "home", "--full"], 3);
    assert_eq!(events(&bench, &["queue"], 0)[0]["full"], true);
    assert!(bench.done(&["queue"], 0).contains("home (full)"));
    serve_until_done(&bench, 1);
    bench.done(&["queue", "rerun", "2"], 0);
    serve_until_done(&bench, 1);
    bench.done(&["queue", "add", "home"], 0);
    serve_until_done(&bench, 1);
    let mut objects = events(&bench, &["objects"], 0);
    objects.sort_by_key(|object| object["started_ns"].as_u64());
    let levels: Vec<_> = objects.iter().map(|object| object["level"].as_str().unwrap()).collect();
    assert_eq!(levels, ["full", "full", "full", "incr"], "{objects:?}");
}

#[test]
fn a_policy_copies_what_another_backs_up() {
    let bench = Bench::new(&["--drives", "2"]);
    bench.done(&["pools", "add", "vault"], 0);
    let policies = "[policies.home]\nsources = [\"SOURCE\"]\n\n\
                    [policies.offsite]\ncopies_of = [\"home\"]\npool = \"vault\"\nschedule = \"2020-01-01 12:00\"\n";
    bench.done(&["policies", "apply", &write_policies(&bench, policies)], 0);
    bench.done(&["queue", "add", "home"], 0);
    serve_until_done(&bench, 1);
    let listed = events(&bench, &["policies"], 0);
    assert_described(&schemas(), "BackupPolicyRow", &listed);
    assert_eq!(listed[1]["copies_of"]["owed"], 1, "{listed:?}");
    assert!(bench.done(&["policies"], 0).contains("copies of home to pool vault (1 to copy)"));
    let status = bench.done(&["status"], 3);
    assert!(status.contains("to copy     1 object to pool vault of "), "{status}");
    let late = bench.done(&["status", "--max-age", "0s"], 3);
    assert!(late.contains("1 object has no copy in pool vault, and could have had since "), "{late}");
    let owed = &events(&bench, &["status"], 3)[0]["copies_owed"];
    assert_eq!((&owed[0]["policy"], &owed[0]["objects"]), (&"offsite".into(), &1.into()), "{owed}");
    let object = events(&bench, &["objects"], 0)[0]["object"].as_str().unwrap().to_owned();
    let shown = bench.done(&["show", &object], 0);
    assert!(shown.contains("to copy      to pool vault, by the next run of policy offsite\n"), "{shown}");
    let why = bench.done(&["object", "why", &object], 0);
    assert!(why.contains("policy home writes it\n"), "{why}");
    let to_come = "policy offsite copies it: once somebody runs it (`capstan queue add offsite`)\n";
    assert!(why.contains("vault    to come") && why.contains(to_come), "{why}");
    assert!(bench.said(&["backup", "offsite"], 2).contains("a server runs it: `capstan queue add offsite`"));
    assert!(bench.said(&["queue", "add", "offsite", "--full"], 1).contains("leave --full out"));
    let copy = || {
        bench.done(&["queue", "add", "offsite"], 0);
        let served = serve_until_done(&bench, 1);
        let ended = served.iter().find(|event| event["event"] == "run-ended").unwrap();
        (ended["outcome"].as_str().unwrap().to_owned(), ended["message"].as_str().unwrap().to_owned())
    };
    assert_eq!(copy(), ("done".to_owned(), "1 object copied to pool vault".to_owned()));
    let objects = events(&bench, &["objects"], 0);
    let copies = objects[0]["copies"].as_array().unwrap();
    assert!(copies.len() == 2 && copies.iter().all(|copy| copy["whole"] == true), "{objects:?}");
    let run = &events(&bench, &["history", "offsite"], 0)[0];
    assert_eq!((&run["kind"], &run["outcome"]), (&"copy".into(), &"done".into()), "{run}");
    assert_eq!(copy(), ("done".to_owned(), "nothing to copy to pool vault".to_owned()));
    assert!(bench.done(&["policies"], 0).contains("copies of home to pool vault\n"));
    assert!(!bench.done(&["status"], 3).contains("to copy"));
}

#[test]
fn a_policy_migrates_what_another_backs_up() {
    let bench = Bench::new(&["--drives", "2"]);
    bench.done(&["pools", "add", "vault"], 0);
    let policies = "[policies.home]\nsources = [\"SOURCE\"]\nretention = \"14d\"\n\n[policies.offsite]\n\
                    copies_of = [\"home\"]\npool = \"vault\"\nretention = \"10y\"\nmigrate_after = \"0h\"\n";
    bench.done(&["policies", "apply", &write_policies(&bench, policies)], 0);
    bench.done(&["queue", "add", "home"], 0);
    serve_until_done(&bench, 1);
    assert!(bench.done(&["policies"], 0).contains("migrates home to pool vault (1 to copy)"));
    let object = events(&bench, &["objects"], 0)[0]["object"].as_str().unwrap().to_owned();
    let shown = bench.done(&["show", &object], 0);
    assert!(shown.contains(" on once offsite has it"), "{shown}");
    let shown = events(&bench, &["show", &object], 0);
    assert_described(&schemas(), "ShownObject", &shown);
    assert_eq!(shown[0]["copies_kept"][0]["migrated_by"], "offsite", "{shown:?}");
    let why = events(&bench, &["object", "why", &object], 0);
    assert_described(&schemas(), "CopyWhyRow", &why);
    let rows: Vec<_> = why.iter().map(|row| (row["copy"].as_u64(), row["state"].as_str().unwrap())).collect();
    assert_eq!(rows, [(Some(1), "whole"), (None, "to come")], "{why:?}");
    // Somebody copies it by hand first: the daily expiry would find that its time has come.
    bench.done(&["copy", &object, "--to-pool", "vault"], 0);
    let planned = bench.done(&["expire", "--dry-run"], 0);
    assert!(planned.contains("would forget copy 1 in pool default, of "), "{planned}");
    assert!(planned.contains(": policy offsite has migrated it, and it stays in pool vault\n"), "{planned}");
    assert!(planned.contains("1 copy would be forgotten, 1 volume (A00001) would be scratch"), "{planned}");
    let planned = events(&bench, &["expire", "--dry-run"], 0).remove(0);
    assert_eq!((&planned["copies"][0]["object"], &planned["freed"][0]), (&object.as_str().into(), &"A00001".into()));
    bench.done(&["queue", "add", "home"], 0);
    serve_until_done(&bench, 1);
    bench.done(&["queue", "add", "offsite"], 0);
    let served = serve_until_done(&bench, 1);
    let ended = served.iter().find(|event| event["event"] == "run-ended").unwrap();
    assert_eq!(ended["message"], "1 object copied to pool vault; 2 older copies forgotten, 1 volume back to scratch");
    let run = &events(&bench, &["history"], 0)[0];
    assert_eq!((&run["kind"], &run["subject"]), (&"expire".into(), &"offsite".into()), "{run}");
    let copies =
        |object: &Value| object["copies"].as_array().unwrap().iter().map(|copy| copy["pool"].clone()).collect();
    let why = bench.done(&["object", "why", &object], 0);
    assert!(why.contains("vault  whole") && why.contains("policy offsite copies it\n"), "{why}");
    let left: Vec<Vec<Value>> = events(&bench, &["objects"], 0).iter().map(copies).collect();
    assert_eq!(left, [["vault"], ["vault"]]);
    assert!(bench.done(&["expire"], 0).contains("0 objects forgotten"), "nothing is left to do");
}

/// What a slow client sends goes to disk, and a policy of copies brings it to where the rest is.
#[test]
fn a_policy_writes_to_its_stage_first() {
    let bench = Bench::new(&["--drives", "2"]);
    bench.settings("[libraries.disk]\npath = \"disk\"\ndrives = 2\nvolume_mib = 64\nvolumes_max = 9\n");
    for pool in ["home-stage", "tape"] {
        bench.done(&["pools", "add", pool], 0);
    }
    let policy = |when: &str, rest: &str| {
        let text = format!(
            "[policies.home]\nsources = [\"SOURCE\"]\npool = \"tape\"\nstage = \"disk\"\nstage_pool = \"home-stage\"\n\
             retention = \"30d\"\n{when}\n[policies.down]\ncopies_of = [\"home\"]\n\
             pool = \"tape\"\nmigrate_after = \"0h\"\n{rest}"
        );
        write_policies(&bench, &text)
    };
    bench.done(&["policies", "apply", &policy("stage_when = \"always\"", "")], 0);
    let pools = || {
        let of = |copy: &Value| copy["pool"].as_str().unwrap().to_owned();
        let all = events(&bench, &["objects"], 0);
        all.iter().map(|row| row["copies"].as_array().unwrap().iter().map(of).collect::<Vec<_>>()).collect::<Vec<_>>()
    };
    let run = |name: &str| {
        bench.done(&["queue", "add", name], 0);
        serve_until_done(&bench, 1);
        events(&bench, &["history", "-n", "2"], 0)
    };
    run("home");
    assert_eq!(pools(), [["home-stage"]]);
    let volumes = bench.rows(&["volumes"]);
    assert!(volumes.iter().all(|row| row["library"] == "disk"), "{volumes:?}");
    let last = events(&bench, &["history", "--kind", "backup"], 0).remove(0);
    let shown = bench.done(&["history", &last["run"].to_string()], 0);
    assert!(shown.contains("to the stage, as its policy says"), "{shown}");
    run("down");
    assert_eq!(pools(), [["tape"]]);
    // Where no drive has a lowest speed, nothing is gained by it; nor is it where the policy says so.
    for when in ["", "stage_when = \"never\""] {
        bench.done(&["policies", "apply", &policy(when, "")], 0);
        run("home");
        assert_eq!(pools()[0], ["tape"], "{when}");
    }
    run("down");
    assert_eq!(pools(), [["tape"], ["tape"], ["tape"]]);
    bench.done(&["verify", &bench.source_text()], 0);
    for (when, said) in [("stage_when = \"often\"", "stage_when"), ("copies = 2", "policies of copies make more")] {
        let said_by = bench.said(&["policies", "apply", &policy(when, "")], 1);
        assert!(said_by.contains(said), "{said_by}");
    }
    let wrong =
        "[policies.home]\nsources = [\"SOURCE\"]\nstage = \"main\"\nstage_pool = \"home-stage\"\nretention = \"30d\"\n";
    let said = bench.said(&["policies", "apply", &write_policies(&bench, wrong)], 3);
    assert!(said.contains("library main is one of the policy's unit, too"), "{said}");
}

/// Nobody reads a volume with the drive that writes.
#[test]
fn a_run_of_copies_says_what_it_lacks_where_there_is_one_drive() {
    let bench = Bench::new(&["--drives", "1"]);
    bench.done(&["pools", "add", "vault"], 0);
    let policies = "[policies.home]\nsources = [\"SOURCE\"]\n\n\
                    [policies.offsite]\ncopies_of = [\"home\"]\npool = \"vault\"\nretries = 0\n";
    bench.done(&["policies", "apply", &write_policies(&bench, policies)], 0);
    for policy in ["home", "offsite"] {
        bench.done(&["queue", "add", policy], 0);
        serve_until_done(&bench, 1);
    }
    let run = &events(&bench, &["queue", "done"], 0)[0];
    assert_eq!(run["state"], "failed", "{run}");
    let message = run["message"].as_str().unwrap();
    assert!(message.contains("library main has one drive") && message.contains("unit"), "{run}");
    assert!(bench.said(&["copy", "home", "--to-pool", "vault"], 1).contains("library main has one drive"));
}

#[test]
fn mistakes_are_answered_with_what_to_do() {
    let bench = Bench::new(&[]);
    let with_script = format!("{HOME}before = [\"quiesce\"]\n");
    let file = write_policies(&bench, &with_script);
    let said = bench.said(&["policies", "apply", &file], 3);
    assert!(said.contains("add it there under [scripts]"), "{said}");
    for (args, code, answer) in [
        (&["queue", "add", "home"][..], 1, "policy home cannot be run: before: capstan.toml"),
        (&["backup", "home"], 1, "policy home cannot be run"),
        (&["queue", "add", "hoem"], 1, "there is no policy hoem: `capstan policies` lists them"),
        (&["schedule", "hoem"], 1, "there is no policy hoem"),
        (&["queue", "cancel", "7"], 1, "run 7 is not in the queue: `capstan queue` lists what is"),
        (&["queue", "hold", "7"], 1, "run 7 is not in the queue"),
        (&["queue", "rerun", "7"], 1, "`capstan queue done` lists those that can run again"),
        (&["policies", "apply", "absent.toml"], 1, "absent.toml"),
        (&["history", "--kind", "backpu"], 2, "possible values: backup, restore"),
        (&["objects", "--host", "tren", "--policy", "hoem"], 0, "no such object of host tren, policy hoem"),
        (&["policies", "remove", "home"], 2, "use --yes to answer yes"),
        (&["policies", "export", "hoem"], 1, "there is no policy hoem"),
        (&["server"], 2, "Usage"),
    ] {
        let said = bench.said(args, code);
        assert!(said.contains(answer), "{args:?}: {said}");
    }
    let said = bench.done(&["status"], 3);
    assert!(said.contains("no server is running, so no policy runs when it is due"), "{said}");
    assert!(said.contains("policy home cannot be run on this machine"), "{said}");
    // What is removed by a file is asked for, too.
    let other = write_policies(&bench, "[policies.web]\nsources = [\"SOURCE\"]\nkeep = { last = 2 }\n");
    let said = bench.said(&["policies", "apply", &other, "--only"], 2);
    assert!(said.contains("Remove home? Waiting runs are cancelled") && said.contains("--yes"), "{said}");
    bench.done(&["policies", "apply", &other, "--only", "--yes"], 0);
    let said = bench.said(&["policies", "remove", "web"], 2);
    assert!(said.contains("The backups of web stay"), "{said}");
}

/// A program in the bench's directory that keeps what it is told; gives its path.
fn pager(bench: &Bench) -> String {
    use std::os::unix::fs::PermissionsExt;
    let path = bench.dir.path().join("page");
    let told = bench.dir.path().join("told");
    // It is not told the passphrase.
    let script = format!("#!/bin/sh\n[ -z \"$CAPSTAN_PASSPHRASE\" ] && cat >> {}\n", told.display());
    fs::write(&path, script).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    path.display().to_string()
}

fn add_settings(bench: &Bench, text: &str) {
    let path = bench.dir.path().join("state/capstan.toml");
    let settings = fs::read_to_string(&path).unwrap();
    fs::write(&path, format!("{settings}\n{text}")).unwrap();
}

#[test]
fn rules_are_listed_and_tried_without_a_server() {
    let bench = Bench::new(&[]);
    let schemas = schemas();
    assert!(bench.said(&["server", "tell"], 0).contains("the server tells nobody"));
    assert!(bench.said(&["server", "tell", "--test", "oncall"], 2).contains("no rule [tell.oncall]"));
    let page = pager(&bench);
    add_settings(
        &bench,
        &format!(
            "[tell.oncall]\ncommand = [\"{page}\"]\n[tell.both]\ncommand = [\"{page}\"]\nwebhook = \
             \"http://127.0.0.1:1/s3cret\"\n[tell.none]\ncommand = [\"/nonexistent/page\"]\n"
        ),
    );
    let rows = events(&bench, &["server", "tell"], 0);
    assert_described(&schemas, "TellRow", &rows);
    let ways: Vec<_> = rows.iter().map(|row| format!("{} {}", row["rule"], row["way"]).replace('"', "")).collect();
    assert_eq!(ways, ["both webhook", "both command", "none command", "oncall command"]);
    let listed = bench.done(&["server", "tell"], 0);
    assert!(listed.contains("http://127.0.0.1:1/...") && !listed.contains("s3cret"), "{listed}");
    for (rule, code) in [("oncall", 0), ("both", 3), ("none", 1)] {
        let trials = events(&bench, &["server", "tell", "--test", rule], code);
        let trials: Vec<_> = trials.into_iter().filter(|row| row["event"].is_null()).collect();
        assert_described(&schemas, "TellTrialRow", &trials);
        assert_eq!(trials.iter().all(|trial| trial["arrived"] == true), code == 0, "{trials:?}");
    }
    assert!(
        bench.said(&["server", "tell", "--test", "none"], 1).contains("the test did not arrive: command /nonexist")
    );
    let told = fs::read_to_string(bench.dir.path().join("told")).unwrap();
    assert_eq!(told.lines().count(), 2, "{told}");
    let test: Value = serde_json::from_str(told.lines().next().unwrap()).unwrap();
    assert_eq!(test["events"][0]["event"], "test");
}

/// A run of the queue that went on without a source was named by nobody: the source had no backup before.
#[test]
fn a_run_of_the_queue_with_problems_asks_for_attention_until_one_has_none() {
    let bench = Bench::new(&[]);
    let half = "[policies.half]\nsources = [\"SOURCE/letters\", \"SOURCE/nothing\"]\nretries = 0\n";
    bench.done(&["policies", "apply", &write_policies(&bench, half), "-q"], 0);
    bench.done(&["queue", "add", "half"], 0);
    serve_until_done(&bench, 1);
    let said = bench.done(&["status"], 3);
    let line = said.lines().find(|line| line.contains("the last backup by policy half for "));
    let why = format!("ended with problems: source {}/nothing is not backed up: No such file", bench.source_text());
    assert!(line.is_some_and(|line| line.contains(&why) && line.ends_with("(`capstan history 1`)")), "{said}");
    fs::create_dir(bench.source().join("nothing")).unwrap();
    bench.done(&["queue", "add", "half"], 0);
    serve_until_done(&bench, 1);
    bench.done(&["status"], 0);
}

/// A rule whose policy was mistyped was never used, and nothing said so. Jobs are no policies, and rules tell of them.
#[test]
fn a_rule_for_a_policy_that_does_not_exist_asks_for_attention() {
    let bench = Bench::new(&[]);
    let rule = "[tell.oncall]\npolicies = [\"hoem\", \"nightly\"]\ncommand = [\"/bin/true\"]\n";
    add_settings(&bench, &format!("[jobs.nightly]\nsources = [\"{}\"]\n{rule}", bench.source_text()));
    bench.done(&["backup", "nightly", "-q"], 0);
    bench.done(&["policies", "apply", &write_policies(&bench, "[policies.home]\nsources = [\"SOURCE\"]\n"), "-q"], 0);
    let said = bench.done(&["status"], 3);
    assert!(said.contains("rule oncall names policy hoem, which does not exist (did you mean home?)"), "{said}");
    assert!(!said.contains("names policy nightly"), "{said}");
    bench.done(&["policies", "apply", &write_policies(&bench, "[policies.hoem]\nsources = [\"SOURCE\"]\n"), "-q"], 0);
    bench.done(&["status"], 0);
}

/// What `status` calls to attention and a run that fails, as the server that runs tells them.
#[test]
fn a_server_tells_what_failed_and_what_status_finds() {
    let bench = Bench::new(&[]);
    let page = pager(&bench);
    add_settings(&bench, &format!("[tell.oncall]\nevents = [\"failed\"]\ncommand = [\"{page}\"]\n"));
    let gone = "[policies.gone]\nsources = [\"SOURCE/nothing\"]\nretries = 0\n";
    bench.done(&["policies", "apply", &write_policies(&bench, gone), "-q"], 0);
    bench.done(&["queue", "add", "gone"], 0);
    serve_until_done(&bench, 1);
    // It may have stopped before the program ran: the next one tells it.
    let told = bench.dir.path().join("told");
    let mut server = bench.command(&["server", "run", "-q"]).spawn().unwrap();
    let until = std::time::Instant::now() + std::time::Duration::from_secs(60);
    while bench.json(&["server", "tell"])["arrived_ns"].is_null() {
        assert!(std::time::Instant::now() < until, "nothing was told within a minute");
        std::thread::sleep(std::time::Duration::from_millis(100));
    }
    let _ = rustix::process::kill_process(rustix::process::Pid::from_child(&server), rustix::process::Signal::TERM);
    assert!(server.wait().unwrap().success());
    let told = fs::read_to_string(told).unwrap();
    let message: Value = serde_json::from_str(&told).unwrap_or_else(|error| panic!("one message: {error}: {told}"));
    let event = &message["events"][0];
    assert_eq!((&event["event"], &event["policy"]), (&"failed".into(), &"gone".into()), "{message}");
    assert!(event["text"].as_str().unwrap().contains("capstan queue rerun 1"), "{message}");
    let listed = bench.rows(&["server", "tell"]);
    assert_eq!(listed[0]["last"], "policy gone failed (1 attempt)");
}
