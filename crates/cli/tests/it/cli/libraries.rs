//! Several libraries of one state directory, and storage units, as commands see them.

use std::fs;

use serde_json::Value;

use super::Bench;

const TWO: &str = r#"
[libraries.west]
path = "west"
drives = 1
volume_mib = 64

[units.tape]
libraries = ["west", "main"]
"#;

fn column<'r>(rows: &'r [Value], name: &str) -> Vec<&'r str> {
    rows.iter().map(|row| row[name].as_str().unwrap()).collect()
}

#[test]
fn commands_name_libraries_and_units() {
    let bench = Bench::new(&[]);
    bench.settings(TWO);
    let source = bench.source_text();
    bench.done(&["backup", &source, "-q"], 0);
    // The main library has four drives free, and the west one.
    bench.done(&["backup", &source, "-q", "--unit", "tape"], 0);
    bench.done(&["backup", &source, "-q", "--unit", "west", "--incremental"], 0);
    bench.done(&["label", "W00001", "--library", "west", "--pool", "default"], 0);
    let volumes = bench.rows(&["volumes"]);
    assert_eq!(column(&volumes, "library"), ["main", "west", "west"], "{volumes:?}");
    assert!(bench.done(&["volumes"], 0).contains("west slot"), "the table says it too");
    let drives = bench.rows(&["drives"]);
    assert_eq!(column(&drives, "library"), ["main", "main", "main", "main", "west"]);
    let there = bench.rows(&["library", "inventory", "--library", "west"]);
    assert!(there[0].to_string().contains("W00001") && !there[0].to_string().contains(column(&volumes, "volume")[0]));
    // A label finds its volume, and so does a copy the library of its pool.
    bench.done(&["label", "W00001", "--pool", "scratch", "--yes"], 0);
    bench.done(&["pools", "add", "vault"], 0);
    bench.done(&["label", "W00001", "--pool", "vault", "--yes"], 0);
    let objects = bench.rows(&["objects"]);
    let full = objects.iter().find(|object| object["base"].is_null()).unwrap();
    let object = full["object"].as_str().unwrap().to_owned();
    bench.done(&["copy", &object, "--to-pool", "vault", "-q"], 0);
    let written = bench.rows(&["volumes", "--pool", "vault"]);
    assert!(written.len() == 1 && written[0]["written_bytes"].as_u64() > Some(1000), "{written:?}");
    bench.done(&["verify", &object, "-q"], 0);
    // So does a full backup that is made of others.
    bench.done(&["consolidate", "--pool", "vault", "-q"], 0);
    let full = bench.rows(&["objects", "--last", "1"]).remove(0);
    assert_eq!(full["copies"][0]["volumes"], serde_json::json!(["W00001"]), "{full}");
    for (words, said) in [
        (
            &["backup", &source, "--unit", "east"][..],
            "no storage unit or library \"east\" in capstan.toml: there are tape, main, west",
        ),
        (&["label", "E00001", "--library", "east"], "no library \"east\" in capstan.toml: there are main, west"),
        (&["library", "inventory", "--library", "tape"], "no library \"tape\""),
        (&["copy", &object, "--to-pool", "default", "--unit", "east"], "no storage unit or library \"east\""),
    ] {
        let heard = bench.said(words, 1);
        assert!(heard.contains(said), "{words:?}: {heard}");
    }
}

#[test]
fn a_library_that_is_not_there_is_named_and_the_other_one_goes_on() {
    let bench = Bench::new(&[]);
    bench.settings(TWO);
    let source = bench.source_text();
    bench.done(&["backup", &source, "-q", "--unit", "west"], 0);
    // The disk of the west is not mounted.
    let (west, aside) = (bench.dir.path().join("state/west"), bench.dir.path().join("aside"));
    fs::rename(&west, &aside).unwrap();
    bench.done(&["backup", &source, "-q", "--unit", "tape"], 0);
    let heard = bench.said(&["backup", &source, "-q", "--unit", "west"], 1);
    assert!(heard.contains("mount that disk") && heard.contains("library initialize --library west"), "{heard}");
    let status = bench.done(&["status"], 3);
    assert!(status.contains("west"), "{status}");
    fs::rename(&aside, &west).unwrap();
    bench.done(&["backup", &source, "-q", "--unit", "west", "--incremental"], 0);
    // A policy that names a unit which is not there does not run, and says so.
    let policies = bench.dir.path().join("policies.toml");
    fs::write(&policies, format!("[policies.p]\nsources = [{source:?}]\nunit = \"east\"\n")).unwrap();
    let said = "no storage unit or library east in capstan.toml: there are tape, main, west";
    let heard = bench.said(&["policies", "apply", policies.to_str().unwrap(), "-q"], 3);
    assert!(heard.contains(said), "{heard}");
    let heard = bench.said(&["backup", "p"], 1);
    assert!(heard.contains(said), "{heard}");
}
