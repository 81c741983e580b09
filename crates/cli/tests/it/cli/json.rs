//! What `--json` prints: lines as docs/JSON.md describes them, in bounded memory, failures included.

use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::Path;
use std::process::Stdio;

use serde_json::Value;

use super::{Bench, ended};

pub(super) fn schemas() -> Value {
    let kept = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/json.schema.json");
    serde_json::from_str::<Value>(&fs::read_to_string(kept).unwrap()).unwrap()["$defs"].take()
}

/// Whether an object has the fields that a schema knows: all that are required, and no other.
fn fits(object: &Value, schema: &Value, schemas: &Value) -> bool {
    let within = schema["$ref"].as_str().map(|reference| &schemas[reference.rsplit('/').next().unwrap()]);
    let all: Vec<_> = [Some(schema), within].into_iter().flatten().collect();
    let fields = object.as_object().unwrap();
    let known = |name: &str| all.iter().any(|schema| schema["properties"].get(name).is_some());
    let required = all.iter().filter_map(|schema| schema["required"].as_array()).flatten();
    let named = schema["properties"]["event"]["const"].as_str();
    fields.keys().all(|name| known(name))
        && required.into_iter().all(|name| fields.contains_key(name.as_str().unwrap()))
        && named == object["event"].as_str()
}

pub(super) fn assert_described(schemas: &Value, kind: &str, rows: &[Value]) {
    assert!(!rows.is_empty(), "{kind}");
    for row in rows {
        assert!(fits(row, &schemas[kind], schemas), "not as docs/JSON.md says of {kind}: {row}");
    }
}

pub(super) fn events(bench: &Bench, args: &[&str], code: i32) -> Vec<Value> {
    let printed = bench.done(&[args, &["--json"]].concat(), code);
    printed.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[test]
fn every_line_is_as_the_page_says() {
    let bench = Bench::new(&[]);
    let schemas = schemas();
    let told = |events: &[Value]| {
        let kinds = ["Event", "BackupEnd", "RestoreEnd"].map(|name| schemas[name]["oneOf"].as_array().unwrap());
        let known: Vec<_> = kinds.into_iter().flatten().collect();
        for event in events {
            assert!(known.iter().any(|schema| fits(event, schema, &schemas)), "not on the page: {event}");
        }
        events.iter().map(|event| event["event"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    let name = std::ffi::OsString::from_vec(b"odd\xff\nname".to_vec());
    fs::write(bench.source().join(&name), "odd\n").unwrap();
    let backup = events(&bench, &["backup", "home", "absent"], 3);
    let names = told(&backup);
    let copy = bench.dir.path().join("copy of the catalog");
    assert_eq!(told(&events(&bench, &["catalog", "copy", copy.to_str().unwrap()], 0)), ["catalog-copied"]);
    for name in ["source-missing", "begun", "checkpoint", "finished"] {
        assert!(names.iter().any(|other| other == name), "{name} in {names:?}");
    }
    told(&events(&bench, &["verify", "home", "--against-source"], 0));
    assert_eq!(told(&events(&bench, &["restore", "home", "--to", "back"], 0)).last().unwrap(), "finished");
    for (kind, args) in [
        ("FileRow", &["ls", "-R", "home"][..]),
        ("FileRow", &["find", "*"]),
        ("FileRow", &["versions", "home/noise"]),
        ("ObjectRow", &["objects"]),
        ("VolumeRow", &["volumes"]),
        ("PoolRow", &["pools"]),
        ("StatusRow", &["status"]),
        ("ShownObject", &["show", "home"]),
        ("ShownVolume", &["show", "A00001"]),
    ] {
        assert_described(&schemas, kind, &bench.rows(args));
    }

    // A path comes back as it can be handed in.
    let odd = bench.rows(&["find", "odd*"]).remove(0);
    assert!(odd["path"].as_str().unwrap().ends_with("odd\\xff\\nname"), "{odd}");
    let back = std::process::Command::new("base64").arg("-d").stdin(Stdio::piped()).stdout(Stdio::piped()).spawn();
    let mut back = back.unwrap();
    std::io::Write::write_all(&mut back.stdin.take().unwrap(), odd["path_base64"].as_str().unwrap().as_bytes())
        .unwrap();
    let bytes = back.wait_with_output().unwrap().stdout;
    assert!(bytes.ends_with(name.as_bytes()));
    let place = [odd["object"].as_str().unwrap().as_bytes(), b":", &bytes].concat();
    let cat = bench.command(&["cat"]).arg(std::ffi::OsString::from_vec(place)).output().unwrap();
    assert_eq!(cat.stdout, b"odd\n");

    // A failure is the last line, with its exit code; so is a fault of the command line.
    for (args, code) in
        [(&["ls", "nothing"][..], 1), (&["restore", "home", "--to", "x", "--at", "some day"], 2), (&["ls"], 2)]
    {
        let last = events(&bench, args, code).pop().unwrap();
        told(std::slice::from_ref(&last));
        assert_eq!((&last["event"], &last["exit_code"]), (&"error".into(), &code.into()), "{args:?}");
    }
}

/// `keys --json` printed one array over several lines, and text where something was done.
#[test]
fn every_line_of_keys_is_as_the_page_says() {
    let bench = Bench::with_passphrase(&[]);
    let schemas = schemas();
    let done = |args: &[&str]| {
        let mut command = bench.command(&[args, &["--json"]].concat());
        command
            .env("CAPSTAN_EXPORT_PASSPHRASE", "four plain words more")
            .env("CAPSTAN_NEW_PASSPHRASE", "five other words");
        let output = command.output().unwrap();
        ended(&output, args, 0);
        let lines = String::from_utf8(output.stdout).unwrap();
        let known = schemas["KeyEvent"]["oneOf"].as_array().unwrap();
        let names = lines.lines().map(|line| {
            let event: Value = serde_json::from_str(line).unwrap_or_else(|error| panic!("{args:?}: {error}: {line}"));
            assert!(known.iter().any(|schema| fits(&event, schema, &schemas)), "not on the page: {event}");
            event["event"].as_str().unwrap().to_owned()
        });
        names.collect::<Vec<_>>()
    };
    assert_eq!(done(&["keys", "policies", "add", "short", "--encrypt-for", "7d"]), ["policy-set"]);
    assert_eq!(done(&["keys", "groups", "add", "vault", "--policy", "short"]), ["group-set"]);
    assert_eq!(done(&["keys", "drives", "set", "SERIAL-1", "--group", "vault"]), ["drive-set"]);
    bench.done(&["backup", "home", "--copies", "2", "-q"], 0);
    assert_eq!(bench.json(&["status"])["volumes_not_exported"].as_array().unwrap().len(), 2);
    let file = bench.dir.path().join("export").to_str().unwrap().to_owned();
    assert_eq!(done(&["keys", "export", &file]), ["keys-exported"]);
    assert_eq!(bench.json(&["status"])["volumes_not_exported"].as_array().unwrap().len(), 0);
    // On a machine that knows of no export the file itself is one.
    let state = bench.dir.path().join("state");
    for entry in fs::read_dir(&state).unwrap().flatten() {
        if entry.file_name().to_string_lossy().starts_with("catalog") {
            let (path, kept) = (entry.path(), bench.dir.path().join(entry.file_name()));
            fs::rename(path, kept).unwrap();
        }
    }
    bench.done(&["rebuild", "-q"], 0);
    assert_eq!(bench.json(&["status"])["volumes_not_exported"].as_array().unwrap().len(), 2);
    assert_eq!(done(&["keys", "import", &file]), ["key-imported", "key-imported"]);
    assert_eq!(bench.json(&["status"])["volumes_not_exported"].as_array().unwrap().len(), 0);
    for (kind, args) in [
        ("KeyRow", &["keys", "list"][..]),
        ("VolumeKeysRow", &["keys", "volumes"]),
        ("SlotRow", &["keys", "slots"]),
        ("PolicyRow", &["keys", "policies"]),
        ("GroupRow", &["keys", "groups"]),
        ("KeyDriveRow", &["keys", "drives"]),
        ("KeysStatusRow", &["keys", "status"]),
    ] {
        assert_described(&schemas, kind, &bench.rows(args));
    }
    assert_eq!(done(&["keys", "extend", "A00001", "--for", "1h"]), ["reading-extended"]);
    assert_eq!(done(&["keys", "retire", "A00001", "--yes"]), ["key-changed"]);
    assert_eq!(done(&["keys", "destroy", "A00001", "--yes"]), ["key-changed"]);
    assert_eq!(done(&["keys", "passphrase"]), ["slot-added", "slot-removed"]);
}

/// Each line that one of several kinds describes, by the name of its event.
pub(super) fn told(schemas: &Value, kinds: &[&str], lines: &[Value]) -> Vec<String> {
    let known: Vec<_> = kinds.iter().flat_map(|kind| schemas[kind]["oneOf"].as_array().unwrap()).collect();
    let name = |event: &Value| {
        assert!(known.iter().any(|schema| fits(event, schema, schemas)), "not on the page: {event}");
        event["event"].as_str().unwrap().to_owned()
    };
    lines.iter().map(name).collect()
}

/// These printed lines that no page described, `models`, `lab read` and `lab characterize` one array, and `vtl create`
/// text.
#[test]
fn every_line_of_simulations_and_of_the_laboratory_is_as_the_page_says() {
    let bench = Bench::new(&[]);
    let schemas = schemas();
    let short = ["--rounds", "1", "--seconds", "0.1"];
    for (kind, args) in [
        ("ModelRow", &["models"][..]),
        ("SimulatedRow", &["simulate", "--drive", "LTO-5", "--files", "10x100M"]),
        ("DataSetRow", &["lab", "create-data", "--sizes", "4K", "--files", "20", "tree"]),
        ("DataSetRow", &["lab", "create-data", "--sizes", "4K", "--files", "20", "tree", "--check"]),
        ("SourceRates", &[&["lab", "read", "tree", "--readers", "1", "--block", "64K,256K"], &short[..]].concat()),
        ("PathRates", &[&["lab", "null", "tree", "-j", "1", "--block", "256K"], &short[..]].concat()),
        (
            "DriveRates",
            &[
                "lab", "drive", "--folder", ".", "--data", "zeros", "--block", "256K", "--rounds", "1", "--amount",
                "10M",
            ],
        ),
        ("StagingRates", &["lab", "staging", "--folder", ".", "--writers", "1", "--depot", "4M", "--rounds", "1"]),
        ("RestoreRates", &["lab", "restore", "tree", "--folder", ".", "--to", "back", "--rounds", "1"]),
        ("GridRow", &["lab", "characterize", "--drive", "LTO-8", "--file-sizes", "1G", "--buffers", "8"]),
        ("AdviceRow", &["lab", "advise", "tree", "--drive", "LTO-5", "-j", "1"]),
        ("ReportedRow", &["lab", "report", "--output", "page.html"]),
    ] {
        assert_described(&schemas, kind, &bench.rows(args));
    }
    let advice = bench.json(&["lab", "advise", "tree", "--drive", "LTO-5", "-j", "1"]);
    for (kind, within) in [
        ("SettingRow", &advice["now"]["setting"]),
        ("Forecast", &advice["now"]["forecast"]),
        ("Spread", &advice["now"]["forecast"]["mb_per_s"]),
        ("Fit", &advice["drives"][0]),
        ("Neighbour", &advice["configurations"][0]),
    ] {
        assert_described(&schemas, kind, std::slice::from_ref(within));
    }

    let mut listening = bench.command(&["lab", "network", "--listen", "0", "--once", "--json"]);
    let mut listening = listening.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    let mut lines = BufReader::new(listening.stdout.take().unwrap()).lines();
    let first: Value = serde_json::from_str(&lines.next().unwrap().unwrap()).unwrap();
    let network =
        ["lab", "network", "--to", first["address"].as_str().unwrap(), "--connections", "1", "--seconds", "0.1"];
    assert_described(&schemas, "NetworkMeasurement", &bench.rows(&network));
    let rest = lines.map(|line| serde_json::from_str(&line.unwrap()).unwrap());
    let lines: Vec<Value> = std::iter::once(first).chain(rest).collect();
    assert_eq!(told(&schemas, &["NetworkLine"], &lines), ["listening", "began", "done"]);
    assert!(listening.wait().unwrap().success());
}

#[test]
fn every_line_of_the_virtual_library_is_as_the_page_says() {
    let bench = Bench::new(&[]);
    let schemas = schemas();
    let kinds = ["VtlEvent", "LibraryServed"];
    assert_eq!(told(&schemas, &kinds, &bench.rows(&["vtl", "init", "vtl"])), ["vtl-made"]);
    let mut serving = bench.command(&["vtl", "serve", "vtl", "--listen", "127.0.0.1:0", "--json"]);
    let mut serving = serving.stdout(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(serving.stdout.take().unwrap()).lines();
    let first: Value = serde_json::from_str(&lines.next().unwrap().unwrap()).unwrap();
    assert_eq!(told(&schemas, &kinds, &[first]), ["serving"]);
    let status = bench.json(&["vtl", "status", "vtl"]);
    for args in [
        &["vtl", "create", "vtl", "B00001L9", "--capacity", "1G"][..],
        &["vtl", "inject", "vtl", "robot", "door-open:1"],
        &["vtl", "forgive", "vtl"],
    ] {
        assert_eq!(told(&schemas, &kinds, &bench.rows(args)), ["vtl-done"], "{args:?}");
    }
    // An act is answered before the server prints it, so its line is waited for; the server is ended only then.
    let printed = lines.map(|line| told(&schemas, &kinds, &[serde_json::from_str(&line.unwrap()).unwrap()]));
    assert!(printed.flatten().any(|event| event == "created"));
    serving.kill().unwrap();
    serving.wait().unwrap();
    assert_described(&schemas, "ServedLibrary", std::slice::from_ref(&status));
    assert_described(&schemas, "ServedDrive", status["drives"].as_array().unwrap());
    assert_described(&schemas, "ServedPlace", status["elements"].as_array().unwrap());
}

/// A list was one array that was built in memory: 2.6 kB a row and more, 5.3 GB for two million.
#[test]
fn lists_hold_no_rows() {
    const FILES: usize = 1_200;
    let bench = Bench::new(&[]);
    // Rows of 3.5 kB, so that few files make a long list.
    let (deep, name) = (vec!["d".repeat(250); 13].join("/"), "n".repeat(240));
    fs::create_dir_all(bench.source().join(&deep)).unwrap();
    for number in 0..FILES {
        fs::write(bench.source().join(&deep).join(format!("{name}{number}")), "").unwrap();
    }
    for _ in 0..8 {
        bench.done(&["backup", "home", "-q"], 0);
    }
    let peak_kib = |args: &[&str], least: usize| -> u64 {
        let mut listing = bench.command(args).stdout(Stdio::piped()).spawn().unwrap();
        let mut lines = BufReader::new(listing.stdout.take().unwrap()).split(b'\n');
        // Nearly to the end: what is left is more than a pipe takes, so the program is there to be looked at.
        assert_eq!(lines.by_ref().take(least).count(), least);
        let status = fs::read_to_string(format!("/proc/{}/status", listing.id())).unwrap();
        let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:")?.strip_suffix("kB")).unwrap();
        assert!(lines.count() > 100);
        assert!(listing.wait().unwrap().success());
        peak.trim().parse().unwrap()
    };
    let one = peak_kib(&["ls", "-R", "home"], FILES - 200);
    let all = peak_kib(&["--json", "find", "*"], 8 * (FILES - 20));
    eprintln!("one tree as text {one} KiB, eight as JSON {all} KiB");
    assert!(all < one + 20 * 1024, "{one} KiB for one tree as text, {all} KiB for eight as JSON");
}

#[test]
fn who_may_not_look_into_the_state_is_told_so() {
    // It was told to run `capstan init`.
    use std::os::unix::fs::PermissionsExt;
    let bench = Bench::new(&[]);
    let state = bench.dir.path().join("state");
    fs::set_permissions(&state, fs::Permissions::from_mode(0o000)).unwrap();
    let output = bench.held_to_modes(&["objects", "--json"]).output().unwrap();
    fs::set_permissions(&state, fs::Permissions::from_mode(0o700)).unwrap();
    ended(&output, &["objects"], 1);
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(
        said.contains("Permission denied") && !said.contains("capstan init") && !said.contains("os error"),
        "{said}"
    );
    let error: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(error["event"], "error");
}
