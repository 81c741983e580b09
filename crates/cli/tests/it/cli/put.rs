//! What is stored by name: its versions, its tags, and the policies that take it.

use std::fs;
use std::io::Write;
use std::process::{Output, Stdio};

use super::cell::{serve_until_done, write_policies};
use super::json::{assert_described, events, schemas};
use super::{Bench, ended};

/// Runs a command with something on its standard input.
fn fed(bench: &Bench, args: &[&str], input: &[u8]) -> Output {
    let mut child =
        bench.command(args).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    // One that is refused reads nothing.
    let _ = child.stdin.take().unwrap().write_all(input);
    child.wait_with_output().unwrap()
}

fn stored(bench: &Bench, args: &[&str], input: &[u8]) -> String {
    let output = fed(bench, args, input);
    ended(&output, args, 0);
    String::from_utf8(output.stdout).unwrap()
}

fn versions(bench: &Bench, name: &str) -> Vec<String> {
    let rows = bench.rows(&["objects", "--source", name]);
    rows.iter().map(|row| row["object"].as_str().unwrap().to_owned()).collect()
}

#[test]
fn each_time_makes_a_version_of_its_own() {
    let bench = Bench::new(&[]);
    let line = stored(&bench, &["put", "app.log", "--tag", "nightly", "--tag", "release=1.2"], b"one\n");
    let first = versions(&bench, "app.log").remove(0);
    assert_eq!(line, format!("app.log: 4 B stored as version {}\n", &first[first.len() - 8..]));
    stored(&bench, &["put", "app.log", "--tag", "nightly"], b"two\n");
    // A program that has failed has mostly written nothing.
    let empty = fed(&bench, &["put", "app.log"], b"");
    ended(&empty, &["put", "app.log"], 1);
    assert!(String::from_utf8_lossy(&empty.stderr).contains("standard input is empty, and nothing was stored"));
    assert_eq!(bench.done(&["get", "app.log"], 0), "two\n");
    assert!(bench.said(&["put", "app.log"], 1).contains("standard input is empty"), "that is /dev/null");
    stored(&bench, &["put", "app.log", "--may-be-empty"], b"");
    assert_eq!(bench.done(&["get", "app.log"], 0), "");
    assert_eq!(bench.done(&["get", "app.log", "--tag", "nightly"], 0), "two\n");
    assert_eq!(bench.done(&["get", "app.log", "--tag", "nightly", "--tag", "release=1.2"], 0), "one\n");
    assert_eq!(bench.done(&["get", "app.log", "--id", &first], 0), "one\n");
    assert_eq!(bench.done(&["get", "app.log", "--id", &first[first.len() - 8..]], 0), "one\n");
    let said = bench.said(&["get", "app.log", "--at", "1d"], 1);
    assert!(said.contains("app.log has 3 versions, and none is that one"), "{said}");
    assert!(bench.said(&["get", "other.log"], 1).contains("nothing is stored as other.log"));
    assert!(bench.said(&["get", "app.log", "--of", "heron"], 1).contains("by client heron"));

    // A file is there whole, or not at all.
    let to = bench.dir.path().join("back");
    let to = to.to_str().unwrap();
    let get = ["get", "app.log", "--tag", "nightly", "--to", to];
    bench.done(&get, 0);
    assert_eq!(fs::read(to).unwrap(), b"two\n");
    assert!(bench.said(&get, 1).contains("--overwrite replaces it"));
    let link = bench.dir.path().join("link");
    std::os::unix::fs::symlink(to, &link).unwrap();
    bench.done(&["get", "app.log", "--tag", "nightly", "--overwrite", "--to", link.to_str().unwrap()], 0);
    assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
    let refused = |target: &str| bench.said(&["get", "app.log", "--overwrite", "--to", target], 1);
    assert!(refused(bench.dir.path().to_str().unwrap()).contains("is a directory"));
    assert!(refused("/dev/null").contains("is no file"));
    assert!(bench.said(&["get", "app.log", "--id", ""], 1).contains("none is that one"));
    bench.done(&["get", "app.log", "--id", &first, "--to", to, "--overwrite"], 0);
    assert_eq!(fs::read(to).unwrap(), b"one\n");
    let mut beside = fs::read_dir(bench.dir.path()).unwrap().map(|entry| entry.unwrap().file_name());
    assert!(!beside.any(|name| name.to_string_lossy().starts_with(".capstan")));

    // Lists know tags, and so do the volumes.
    let rows = bench.rows(&["objects", "--tag", "release=1.2"]);
    assert_eq!((rows.len(), &rows[0]["tags"]), (1, &serde_json::json!(["nightly", "release=1.2"])));
    assert_described(&schemas(), "ObjectRow", &rows);
    assert!(bench.done(&["objects"], 0).contains("nightly release=1.2"));
    assert!(bench.done(&["show", &first], 0).contains("nightly release=1.2"));
    assert!(bench.said(&["objects", "--tag", "none"], 0).contains("no such object of tag none"));
    bench.done(&["rebuild", "-q"], 0);
    assert_eq!(bench.done(&["get", "app.log", "--tag", "release=1.2"], 0), "one\n");
    assert!(bench.said(&["put", "x", "--may-be-empty", "--tag", "a\nb"], 1).contains("cannot be a tag"));
    // `a`, `./a` and `/a` would be three names, and `get` found none but the first.
    for name in ["", "/etc/passwd", "./a", "a//b", "a/", "..", "a/../b"] {
        assert!(bench.said(&["put", name, "--may-be-empty"], 2).contains("is no name to store under"), "{name}");
    }
    // What earlier versions stored, or `backup --stdin` does, is found all the same.
    ended(&fed(&bench, &["backup", "--stdin", "/var/dump"], b"old\n"), &["backup"], 0);
    assert_eq!(bench.done(&["get", "/var/dump"], 0), "old\n");
}

#[test]
fn a_file_or_what_a_program_prints_is_stored_if_it_is_whole() {
    let bench = Bench::new(&[]);
    let file = bench.dir.path().join("of");
    fs::write(&file, super::noise(3_000_000)).unwrap();
    bench.done(&["put", "of.bin", file.to_str().unwrap()], 0);
    let back = bench.command(&["get", "of.bin"]).output().unwrap();
    assert!(back.stdout == fs::read(&file).unwrap());
    assert!(bench.said(&["put", "x", bench.dir.path().to_str().unwrap()], 1).contains("it is a directory"));
    assert!(bench.said(&["put", "x", "/nonexistent"], 1).contains("/nonexistent cannot be stored"));

    bench.done(&["put", "seq", "--", "seq", "1000"], 0);
    let said = bench.said(&["put", "seq", "--", "sh", "-c", "echo half; exit 3"], 1);
    assert!(said.contains("ended with exit status: 3"), "{said}");
    assert_eq!(bench.done(&["get", "seq"], 0).lines().count(), 1000);
    let line = events(&bench, &["put", "seq", "/proc/version", "--tag", "x"], 0).pop().unwrap();
    assert_eq!((&line["event"], &line["sources"][0]["source"]), (&"finished".into(), &"seq".into()), "{line}");
}

#[test]
fn a_policy_takes_names() {
    let mut bench = Bench::new(&[]);
    bench.done(&["pools", "add", "logs", "--retention", "90d"], 0);
    let policies = "[policies.logs]\nput_names = [\"*.log\"]\npool = \"logs\"\nretention = \"7d\"\n\
                    [policies.dumps]\nput_names = [\"dumps/*\", \"web.log\"]\nkeep = { last = 9 }\n\
                    [policies.home]\nsources = [\"/etc\"]\n";
    let file = write_policies(&bench, policies);
    bench.done(&["policies", "apply", &file], 0);
    assert!(bench.done(&["policies"], 0).contains("what is put as dumps/*, web.log"));
    assert_described(&schemas(), "BackupPolicyRow", &bench.rows(&["policies"]));

    stored(&bench, &["put", "app.log"], b"one\n");
    stored(&bench, &["put", "app.log", "--retention", "30d"], b"two\n");
    stored(&bench, &["put", "other"], b"three\n");
    let row = |name: &str, at: usize| bench.rows(&["objects", "--source", name]).remove(at);
    let kept = |row: &serde_json::Value| {
        (row["expires_ns"].as_i64().unwrap() - row["started_ns"].as_i64().unwrap()) / 86_400_000_000_000
    };
    assert_eq!((&row("app.log", 1)["policy"], kept(&row("app.log", 1))), (&"logs".into(), 7));
    assert_eq!((&row("app.log", 0)["policy"], kept(&row("app.log", 0))), (&"logs".into(), 30));
    assert_eq!(row("app.log", 0)["copies"][0]["pool"], "logs");
    assert_eq!((&row("other", 0)["policy"], row("other", 0)["expires_ns"].as_i64()), (&"manual".into(), Some(0)));

    let said = bench.said(&["put", "web.log"], 2);
    assert!(said.contains("web.log is a name that dumps and logs take: say which with --policy"), "{said}");
    let said = bench.said(&["put", "web.log", "--policy", "dumps", "--retention", "1d"], 2);
    assert!(said.contains("policy dumps keeps by its rule"), "{said}");
    let said = bench.said(&["put", "app.log", "--retention", "6m"], 2);
    assert!(said.contains("m is for minutes, and a month is 30d"), "{said}");
    stored(&bench, &["put", "web.log", "--policy", "dumps"], b"four\n");
    assert_eq!(row("web.log", 0)["policy"], "dumps");
    stored(&bench, &["put", "once.log"], b"five\n");
    assert!(bench.said(&["put", "x", "--policy", "home"], 2).contains("give it put_names"));
    assert!(bench.said(&["put", "x", "--policy", "none"], 1).contains("none"));
    assert!(bench.said(&["backup", "logs"], 2).contains("`capstan put NAME`"));
    let said = bench.said(&["queue", "add", "logs"], 1);
    assert!(said.contains("there is nothing to run"), "{said}");
    // Nothing of it is late, or was never run.
    let status = bench.done(&["status"], 3);
    let attention = status.lines().filter(|line| line.starts_with("attention")).collect::<Vec<_>>();
    assert!(attention.len() == 1 && attention[0].contains("/etc was never backed up"), "{status}");
    // Nor is a next version waited for, and the last one goes when its time has come.
    let settings = bench.dir.path().join("state/capstan.toml");
    let text = fs::read_to_string(&settings).unwrap();
    fs::write(&settings, text.replace("backup_hours = 0", "backup_hours = 1")).unwrap();
    bench.hours_ahead = 24 * 8;
    let overdue = |row: &serde_json::Value| {
        row["sources"].as_array().unwrap().iter().filter(|row| row["overdue"] == true).count()
    };
    let status = bench.command(&["status", "--json"]).output().unwrap();
    let status: serde_json::Value = serde_json::from_slice(&status.stdout).unwrap();
    assert_eq!(overdue(&status), 1, "only what no policy took: {status}");
    bench.done(&["expire", "--yes"], 0);
    let left: Vec<_> =
        bench.rows(&["objects"]).into_iter().map(|row| row["source"].as_str().unwrap().to_owned()).collect();
    assert_eq!(left, ["web.log", "other", "app.log"], "app.log as it was kept for longer");
}

/// Small things that come all day long: to disk first, and to tape together, without anybody's asking.
#[test]
fn what_is_put_on_a_stage_goes_to_tape_once_there_is_something() {
    let bench = Bench::new(&["--drives", "2"]);
    bench.settings("[libraries.disk]\npath = \"disk\"\ndrives = 2\nvolume_mib = 64\nvolumes_max = 9\n");
    bench.done(&["pools", "add", "logs-stage"], 0);
    let policies = "[policies.logs]\nput_names = [\"*.log\"]\nunit = \"disk\"\npool = \"logs-stage\"\n\
                    [policies.down]\ncopies_of = [\"logs\"]\npool = \"default\"\nmigrate_after = \"0h\"\nwhen_owed = true\n";
    bench.done(&["policies", "apply", &write_policies(&bench, policies)], 0);
    assert!(bench.done(&["policies"], 0).contains("when owed"));
    for number in 0..5 {
        stored(&bench, &["put", "app.log"], format!("line {number}\n").as_bytes());
    }
    assert!(bench.done(&["object", "why", "app.log"], 0).contains("policy down copies it: as soon as it can"));
    let served = serve_until_done(&bench, 1);
    let entered = served.iter().find(|event| event["event"] == "entered").unwrap();
    assert_eq!((&entered["policy"], &entered["reason"]), (&"down".into(), &"5 objects are to be copied".into()));
    let rows = bench.rows(&["objects", "--source", "app.log"]);
    assert!(rows.len() == 5 && rows.iter().all(|row| row["copies"][0]["pool"] == "default"), "{rows:?}");
    assert_eq!(bench.done(&["get", "app.log"], 0), "line 4\n");
}
