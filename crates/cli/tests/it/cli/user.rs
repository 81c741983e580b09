//! Users of a cell, as people and programs see them.

use std::process::Output;

use serde_json::Value;

use super::client::{Machine, Printing, serve};
use super::json::{assert_described, events, schemas};
use super::{Bench, ended};

/// Opens the enrolment of a user, and gives its passphrase.
fn enrol(bench: &Bench, args: &[&str]) -> String {
    let opened = events(bench, &[&["user", "enrol"], args].concat(), 0);
    assert_described(&schemas(), "MemberEnrolmentRow", &opened);
    opened[0]["passphrase"].as_str().unwrap().to_owned()
}

fn joined(bench: &Bench, address: &str, user: &str, roles: &[&str]) -> Machine {
    let passphrase = enrol(bench, &[&[user], roles].concat());
    let machine = Machine::new();
    let args = ["user", "join", address, "--name", user, "--json"];
    let printed = machine.run(&args, &passphrase, 0).stdout;
    let row: Value = serde_json::from_slice(&printed).unwrap();
    assert_eq!(row["roles"][0], roles[1]);
    assert_described(&schemas(), "UserJoinedRow", &[row]);
    machine
}

/// What a command printed, and on standard error, and its exit code.
fn ended_with(output: &Output) -> (String, String, Option<i32>) {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (text(&output.stdout), text(&output.stderr), output.status.code())
}

fn rows(machine: &Machine, args: &[&str], code: i32) -> Vec<Value> {
    let printed = machine.run(&[args, &["--json"]].concat(), "", code).stdout;
    String::from_utf8(printed).unwrap().lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[test]
fn a_user_types_the_same_commands_and_sees_the_same() {
    let bench = Bench::new(&[]);
    let policy = format!("[policies.home]\nsources = [{:?}]\nschedule = \"22:00\"\n", bench.source_text());
    let file = bench.dir.path().join("cell.toml");
    std::fs::write(&file, policy).unwrap();
    let file = file.to_str().unwrap();
    let (server, address) = serve(&bench);
    let ada = joined(&bench, &address, "ada", &["--role", "administrator"]);
    let eve = joined(&bench, &address, "eve", &["--role", "auditor"]);

    let planned = rows(&ada, &["policies", "apply", file, "--dry-run"], 0);
    assert_described(&schemas(), "PolicyChangeRow", &planned);
    assert!(rows(&ada, &["policies"], 0).is_empty(), "it was looked at");
    ada.run(&["policies", "apply", file], "", 0);
    for args in [&["policies"][..], &["policies", "export"], &["schedule", "--days", "2"]] {
        let here = bench.command(args).output().unwrap();
        ended(&here, args, 0);
        assert_eq!(ada.run(args, "", 0).stdout, here.stdout, "{args:?}");
    }
    let said = eve.said(&["queue", "add", "home"], "", 1);
    assert!(said.contains("user eve (auditor) may not put runs of policies into the queue"), "{said}");
    let entered = rows(&ada, &["queue", "add", "home"], 0);
    assert_described(&schemas(), "QueueChangeRow", &entered);
    let is_done = || rows(&eve, &["queue", "done"], 0).iter().any(|run| run["state"] == "done");
    let until = std::time::Instant::now() + std::time::Duration::from_secs(60);
    while !is_done() {
        assert!(std::time::Instant::now() < until, "the run ends");
        std::thread::sleep(std::time::Duration::from_millis(100));
    }
    let objects = rows(&ada, &["objects"], 0);
    assert_described(&schemas(), "CellObjectRow", &objects);
    assert_eq!(objects[0]["source"], bench.source_text());
    // What is found is the same, but that a user is told of which client it is.
    for args in [&["find", "*"][..], &["find", "*", "--latest", "--type", "file"], &["ls", "-R", &bench.source_text()]]
    {
        let (here, there) = (bench.rows(args), rows(&ada, args, 0));
        assert_described(&schemas(), "FileRow", &there);
        assert!(!there.is_empty() && here == there, "{args:?}: {here:?} {there:?}");
        let said = eve.said(args, "", 1);
        assert!(said.contains("user eve (auditor) may not find and list the files in it"), "{said}");
    }
    for args in [
        &["volumes"][..],
        &["volumes", "--pool", "nobody"],
        &["vault"],
        &["pools"],
        &["drives"],
        &["library", "inventory"],
    ] {
        for args in [args.to_vec(), [args, &["--json"]].concat()] {
            let here = bench.command(&args).output().unwrap();
            assert_eq!(ended_with(&eve.run(&args, "", 0)), ended_with(&here), "{args:?}");
        }
    }
    ada.run(&["label", "L00001", "L00002"], "", 0);
    assert_described(&schemas(), "TaskEnd", &rows(&ada, &["label", "L00003"], 0));
    let full = rows(&ada, &["volumes"], 0).into_iter().find(|row| row["state"] == "filling").unwrap();
    let full = full["volume"].as_str().unwrap().to_owned();
    let said = ada.said(&["label", &full, "L00004"], "", 3);
    assert!(said.contains("labelled L00004 for scratch") && said.contains("has been written"), "{said}");
    assert!(ada.said(&["label", &full], "", 1).contains("the server's machine"));
    assert_eq!(rows(&ada, &["library", "initialize"], 0)[0]["event"], "initialized");
    let said = ada.said(&["library", "load", "L00001", "0"], "", 1);
    assert!(said.contains("a job mounts what it needs"), "{said}");
    let said = eve.said(&["library", "unload", "0"], "", 1);
    assert!(said.contains("user eve (auditor) may not label volumes"), "{said}");
    let letter = format!("{}/noise", bench.source_text());
    assert_eq!(bench.rows(&["versions", &letter]), rows(&ada, &["versions", &letter], 0));
    assert_described(&schemas(), "StatusRow", &rows(&eve, &["status"], 0));
    assert_described(&schemas(), "WhoAnswer", &rows(&eve, &["user", "who"], 0));
    assert_described(&schemas(), "CellUserRow", &rows(&eve, &["user", "list"], 0));
    assert_described(&schemas(), "AuditChecked", &rows(&eve, &["audit", "verify"], 0));
    let table = String::from_utf8(eve.run(&["audit"], "", 0).stdout).unwrap();
    assert!(table.contains("user/ada") && table.contains("set=home"), "{table}");

    assert_described(
        &schemas(),
        "MemberChangeRow",
        &events(&bench, &["user", "change", "ada", "--role", "operator"], 0),
    );
    let said = ada.said(&["user", "list"], "", 1);
    assert!(said.contains("user ada (operator) may not list the users"), "{said}");
    bench.done(&["user", "revoke", "ada"], 0);
    let said = ada.said(&["queue"], "", 1);
    assert!(said.contains("has no rights in this cell") || said.contains("was revoked"), "{said}");
    Printing::stop(server);
    let said = eve.said(&["queue"], "", 1);
    assert!(said.contains("see that the server runs"), "{said}");
}

/// The log of a server that nobody joins had its policies, and nothing of what was erased.
#[test]
fn a_log_that_is_there_has_what_a_shell_does_with_volumes() {
    let bench = Bench::new(&[]);
    let (source, policies) = (bench.source_text(), bench.dir.path().join("cell.toml"));
    std::fs::write(&policies, format!("[policies.home]\nsources = [\"{source}\"]\n")).unwrap();
    bench.done(&["policies", "apply", policies.to_str().unwrap(), "--quiet"], 0);
    bench.done(&["label", "L00001"], 0);
    let records = bench.rows(&["audit"]);
    assert!(records.iter().any(|record| record["act"] == "label-volumes"), "{records:?}");
}

/// Whoever erases at a shell of the server is on record, and cannot where that cannot be noted; a restore can.
#[test]
fn what_a_shell_does_with_volumes_and_objects_is_in_the_audit_log() {
    let bench = Bench::new(&[]);
    let (source, to) = (bench.source_text(), bench.dir.path().join("back"));
    let log = bench.dir.path().join("state/cell/audit");
    bench.done(&["backup", &source], 0);
    bench.done(&["label", "L00001"], 0);
    assert!(!log.exists(), "a state directory that is no cell has no such log");
    let (server, _) = serve(&bench);
    bench.done(&["user", "enrol", "ada", "--role", "administrator"], 0);
    let act_and_result =
        |record: &Value| [&record["act"], &record["result"]].map(|text| text.as_str().unwrap().to_owned());
    bench.done(&["label", "L00002"], 0);
    bench.done(&["erase", "L00001", "--yes"], 0);
    bench.done(&["library", "unload", "7"], 1);
    bench.done(&["restore", &source, "--to", to.to_str().unwrap()], 0);
    let records: Vec<_> = bench.rows(&["audit"]);
    let acts: Vec<_> = records.iter().map(act_and_result).collect();
    let expected = [
        ["label-volumes", "begun"],
        ["label-volumes", "done"],
        ["erase-volume", "begun"],
        ["erase-volume", "done"],
        ["move-cartridges", "begun"],
        ["move-cartridges", "failed"],
        ["restore", "begun"],
        ["restore", "done"],
    ];
    assert_eq!(acts[2..10], expected.map(|act| act.map(str::to_owned)), "{records:?}");
    assert_eq!(records[4]["object"], "volume/L00001", "{records:?}");

    std::fs::rename(&log, bench.dir.path().join("audit")).unwrap();
    std::fs::write(&log, "").unwrap();
    let state = || bench.rows(&["volumes"]).iter().find(|row| row["volume"] == "L00002").unwrap()["state"].clone();
    let (before, said) = (state(), bench.said(&["erase", "L00002", "--yes"], 1));
    assert!(said.contains("audit"), "{said}");
    assert_eq!((state(), &before), (before.clone(), &serde_json::json!("scratch")), "it was not done");
    let said = bench.said(&["library", "unload", "7"], 1);
    assert!(said.contains("this is not in the audit log, which cannot be written"), "{said}");
    bench.done(&["restore", &source, "--to", to.to_str().unwrap(), "--overwrite", "changed"], 0);
    Printing::stop(server);
}

#[test]
fn mistakes_of_users_are_answered_with_what_to_do() {
    let bench = Bench::new(&[]);
    for (args, code, answer) in [
        (&["user", "list"][..], 0, "`capstan user enrol NAME --role administrator`"),
        (&["user", "enrol", "bert"], 2, "--role"),
        (&["user", "enrol", "bert", "--role", "king"], 2, "possible values: administrator"),
        (&["user", "enrol", "bert", "--role", "restorer"], 1, "name each with --client"),
        (&["user", "enrol", "bert", "--role", "operator", "--client", "tern"], 1, "clients are for a restorer"),
        (&["user", "enrol", "bert", "--role", "auditor", "--role", "operator"], 1, "an auditor has no other role"),
        (&["user", "enrol", "bert", "--role", "operator", "--valid", "60d"], 1, "30 days at most"),
        (&["user", "change", "zoe", "--role", "operator"], 1, "`capstan user list` lists them"),
        (&["user", "revoke", "zoe"], 1, "`capstan user list` lists them"),
        (&["restore", "x", "--to", "/tmp", "--of", "tern", "--to-client", "heron"], 2, "--to-client is for users"),
    ] {
        let said = bench.said(args, code);
        assert!(said.contains(answer), "{args:?}: {said}");
    }
    let (server, address) = serve(&bench);
    let ada = joined(&bench, &address, "ada", &["--role", "administrator"]);
    for (args, code, answer) in [
        (&["backup", "/home"][..], 2, "this command is for the server's machine"),
        (&["init"], 2, "is the state directory of a user"),
        (&["client", "run"], 1, "is the state directory of a user"),
        (&["restore", "/home", "--to", "/tmp"], 2, "say whose data it is"),
        (&["restore", "/home", "--of", "tern", "--to", "here"], 2, "give an absolute path"),
        (&["restore", "/home", "--of", "tern", "--to", "/tmp"], 1, "client tern is not connected"),
        (&["restore", "/home", "--of", "tern", "--dry-run"], 1, "Nothing of client tern was backed up as /home"),
        (&["ls", "/home", "--of", "tern"], 1, "Nothing of client tern was backed up as /home"),
        (&["find", "letter", "--of", "tern"], 1, "Nothing of client tern is backed up"),
        (&["ls", "/home"], 1, "Nothing was backed up as /home"),
        (&["find", "no-such", "--latest"], 0, "nothing matches"),
        (&["find", "["], 1, "is not a pattern"),
        (&["versions", "/home/letter"], 0, "no object has /home/letter"),
        (&["erase", "L00001"], 2, "this command is for the server's machine"),
        (&["label", "L00001", "--force"], 2, "what destroys copies is typed there"),
        (&["label", "-"], 2, "barcode"),
        (&["label", "L00001", "--pool", "nobody"], 1, "nobody"),
        (&["pools", "remove", "vault"], 2, "this command is for the server's machine"),
        (&["library", "unload", "77"], 1, "a job mounts what it needs"),
        (&["library", "import"], 1, "the mail slot is empty"),
        (&["library", "inventory", "--library", "attic"], 1, "attic"),
        (&["policies", "apply", "no-such.toml"], 1, "no-such.toml"),
        (&["queue", "cancel", "7"], 1, "run 7 is not in the queue"),
        (&["queue", "rerun", "7"], 1, "run 7 has not ended, or there is none"),
        (&["user", "join", &address, "--name", "ada"], 1, "--replace"),
    ] {
        let said = ada.said(args, "", code);
        assert!(said.contains(answer), "{args:?}: {said}");
    }
    server.stop();
}

/// The longest source won, however old its backup was: the older version of a file came back without a word.
#[test]
fn a_path_below_two_sources_is_the_one_of_the_later_backup() {
    let bench = Bench::new(&[]);
    let letters = bench.source().join("letters");
    let letter = letters.join("ada.txt");
    let (letters, letter_text) = (letters.to_str().unwrap().to_owned(), letter.to_str().unwrap().to_owned());
    bench.done(&["backup", &letters], 0);
    std::fs::write(&letter, "dear Ada, once more\n").unwrap();
    bench.done(&["backup", &bench.source_text()], 0);
    let (server, address) = serve(&bench);
    let ada = joined(&bench, &address, "ada", &["--role", "administrator"]);
    let host = bench.rows(&["objects"])[0]["client"].as_str().unwrap().to_owned();
    let size = |args: &[&str]| rows(&ada, &[&["ls", &letter_text, "--of", &host], args].concat(), 0)[0]["size"].clone();
    assert_eq!(size(&[]), 20);
    // What only the older one has is of that one.
    std::fs::remove_file(&letter).unwrap();
    bench.done(&["backup", &bench.source_text()], 0);
    assert_eq!(size(&[]), 9);
    server.stop();
}

/// The other ports of a server hang up on whoever brings them something else: the command died of it, and said nothing.
#[test]
fn a_port_that_hangs_up_is_named() {
    let bench = Bench::new(&[]);
    let (server, _) = serve(&bench);
    let opened = events(&bench, &["client", "enrol", "tern"], 0);
    server.stop();
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    std::thread::spawn(move || listener.incoming().for_each(drop));
    let machine = Machine::new();
    let passphrase = opened[0]["passphrase"].as_str().unwrap();
    let said = machine.said(&["client", "join", &address, "--name", "tern"], passphrase, 1);
    assert!(said.contains(&address), "{said}");
}
