//! Lists for people: what they show, in which columns, and what they leave out.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};

use super::{Bench, capstan, ended};

/// `show` printed raw JSON, with times in nanoseconds and a line for each extent.
#[test]
fn show_is_for_reading_and_json_is_asked_for() {
    let bench = Bench::new(&[]);
    bench.done(&["backup", "home", "--quiet", "--copies", "2", "--exclude", "*.o", "--policy", "nightly"], 0);
    fs::write(bench.source().join("letters/eve.txt"), "dear Eve\n").unwrap();
    bench.done(&["backup", "home", "--quiet", "--incremental", "--exclude", "*.o"], 0);
    let text = bench.done(&["show", "home"], 0);
    assert!(!text.contains(['{', '"']), "{text}");
    for words in
        ["source       /", "level        incr, based on an earlier object", "kept until   for ever", "left out     *.o"]
    {
        assert!(text.contains(words), "no {words:?} in:\n{text}");
    }
    assert!(text.contains("chain: the object and its bases") && text.contains("copies\n"), "{text}");
    let row = bench.json(&["show", "home"]);
    assert_eq!((&row["left_out"][0], row["chain"].as_array().unwrap().len()), (&"*.o".into(), 2));
    let volume = row["copies"][0]["volumes"][0].as_str().unwrap().to_owned();
    let line = text.lines().find(|line| line.contains(&volume)).unwrap_or_else(|| panic!("no {volume} in:\n{text}"));
    assert!(line.contains("whole") && line.contains("never"), "{line}");

    let text = bench.done(&["show", &volume], 0);
    for words in ["volume       ", "pool         default", "verified     never", "2 objects on it"] {
        assert!(text.contains(words), "no {words:?} in:\n{text}");
    }
    assert_eq!(bench.json(&["show", &volume])["objects"].as_array().unwrap().len(), 2);
}

/// A volume was full at 52 of 64 MiB, and nothing said why; what was deleted had the mode `x---------`; sizes stood
/// below "last run".
#[test]
fn what_looks_odd_in_a_list_is_explained() {
    let bench = Bench::new(&[]);
    fs::write(bench.source().join("large"), super::noise(60 << 20)).unwrap();
    bench.done(&["backup", "home", "--quiet"], 0);
    let text = bench.done(&["show", "A00001"], 0);
    let why = text.lines().find(|line| line.contains("take no data")).unwrap_or_else(|| panic!("{text}"));
    assert!(why.contains("12.0 MiB at the end") && why.contains("kept for the lists of files"), "{why}");
    assert!(!bench.done(&["show", "A00002"], 0).contains("take no data"), "one that is not full takes more");

    fs::remove_file(bench.source().join("letters/ada.txt")).unwrap();
    bench.done(&["backup", "home", "--quiet", "--incremental"], 0);
    let found = bench.done(&["find", "ada.txt"], 0);
    let line = found.lines().find(|line| line.contains("deleted")).unwrap_or_else(|| panic!("{found}"));
    assert!(line.contains("  deleted     ") && !line.contains("---"), "{line}");
    let status = bench.done(&["status"], 0);
    assert!(status.contains("size") && !status.contains("last run"), "{status}");
}

/// A cell has hundreds of sources: `status` had a line for each, and what needed somebody was lost among them.
#[test]
fn status_is_a_page_however_much_there_is() {
    let bench = Bench::new(&[]);
    let mut paths = Vec::new();
    for number in 0..40 {
        let path = format!("home/many/{number:02}");
        fs::create_dir_all(bench.source().parent().unwrap().join(&path)).unwrap();
        paths.push(path);
    }
    let paths: Vec<&str> = paths.iter().map(String::as_str).collect();
    bench.done(&[&["backup", "--quiet"], &paths[..30]].concat(), 0);
    let table = |status: &str| status.lines().filter(|line| line.contains("/many/")).count();
    let status = bench.done(&["status"], 0);
    assert!(table(&status) == 30 && !status.contains("sources "), "what fits is shown: {status}");

    bench.done(&[&["backup", "--quiet"], &paths[30..]].concat(), 0);
    let status = bench.done(&["status"], 0);
    let sources = "sources     40 on 1 host: 40 as they should be. `capstan status --all` lists them\n";
    assert!(status.ends_with(sources) && table(&status) == 0, "{status}");
    assert_eq!(table(&bench.done(&["status", "--all"], 0)), 40);
    assert_eq!(bench.json(&["status"])["sources"].as_array().unwrap().len(), 40);

    // Now all need something: a line each would be eighty.
    let late = ["status", "--max-age", "0s"];
    let status = bench.done(&late, 3);
    assert!(status.contains("sources     40 on 1 host: 40 to look at. "), "{status}");
    assert!(status.contains("attention   36 more of this kind: `capstan status --all`\n"), "{status}");
    assert!(status.ends_with("\nand 10 more: `capstan status --all`\n") && table(&status) == 4 + 30, "{status}");
    let all = bench.done(&[&late[..], &["--all"]].concat(), 3);
    assert_eq!(table(&all), 80, "{all}");
    let said = bench.done(&[&late[..], &["--json"]].concat(), 3);
    let said: serde_json::Value = serde_json::from_str(&said).unwrap();
    assert_eq!(said["attention_lines"].as_array().unwrap().len(), 40);
}

/// There was no way to list but all of a source, and neither host nor policy stood in any table.
#[test]
fn objects_are_filtered_and_say_host_and_policy_where_it_matters() {
    let bench = Bench::new(&[]);
    for _ in 0..2 {
        bench.done(&["backup", "home/letters", "home/noise", "--quiet"], 0);
    }
    let head = |args: &[&str]| bench.done(args, 0).lines().next().unwrap().to_owned();
    let plain = head(&["objects"]);
    assert!(!plain.contains("host") && !plain.contains("policy"), "{plain}");
    bench.done(&["backup", "home/letters", "--quiet", "--policy", "nightly"], 0);
    let with = head(&["objects"]);
    assert!(!with.contains("host") && with.contains("policy"), "{with}");
    let count = |args: &[&str]| bench.rows(&[&["objects"], args].concat()).len();
    assert_eq!(count(&[]), 5);
    assert_eq!(count(&["--policy", "nightly"]), 1);
    assert_eq!(count(&["--last", "1"]), 2);
    assert_eq!(count(&["--last", "2"]), 4);
    assert_eq!(count(&["--host", "of.nobody"]), 0);
    assert_eq!(count(&["--since", "1h"]), 5);
    assert_eq!(count(&["--since", "2100-01-01"]), 0);
    let host = bench.rows(&["objects"])[0]["client"].as_str().unwrap().to_owned();
    assert_eq!(count(&["--host", &host, "--source", "home/noise"]), 2);
    bench.done(&["backup", "--stdin", "dump.sql", "--quiet"], 0);
    assert_eq!(count(&["--source", "dump.sql"]), 1, "a stream is no path from the working directory");
}

#[test]
fn find_has_a_head_and_filters() {
    let bench = Bench::new(&[]);
    symlink("noise", bench.source().join("link")).unwrap();
    bench.done(&["backup", "home", "--quiet"], 0);
    fs::write(bench.source().join("letters/ada.txt"), "dear Ada, once more\n").unwrap();
    bench.done(&["backup", "home", "--quiet"], 0);
    let text = bench.done(&["find", "ada.txt"], 0);
    assert!(text.starts_with("object  "), "{text}");
    let mut columns = text.lines().map(|line| line.find("path").or(line.find("/home").and(line.find("tmp"))));
    assert!(columns.all(|column| column.is_some()), "{text}");
    assert_eq!(bench.done(&["find", "nobody"], 0), "", "no head over nothing");
    let count = |args: &[&str]| bench.rows(&[&["find"], args].concat()).len();
    assert_eq!(count(&["ada.txt"]), 2);
    assert_eq!(count(&["ada.txt", "--latest"]), 1);
    assert_eq!(count(&["*", "--latest", "--type", "symlink"]), 1);
    assert_eq!(count(&["*", "--latest", "--type", "l", "--type", "directory"]), 3);
    assert_eq!(count(&["*", "--latest", "--size", "+1M"]), 1);
    assert_eq!(count(&["*", "--latest", "--size", "-1k"]), 1);
    assert_eq!(count(&["*", "--latest", "--since", "2100-01-01"]), 0);
    assert_eq!(count(&["*", "--latest", "--since", "1d", "--type", "file"]), 2);
    bench.said(&["find", "*", "--size", "large"], 2);
}

#[test]
fn ls_names_owners_and_what_a_hard_link_is_another_name_of() {
    let bench = Bench::new(&[]);
    fs::hard_link(bench.source().join("noise"), bench.source().join("again")).unwrap();
    fs::write(bench.source().join("txt.\u{202e}exe"), "").unwrap();
    bench.done(&["backup", "home", "--quiet"], 0);
    let text = bench.done(&["ls", "home"], 0);
    assert!(text.lines().next().unwrap().contains("owner"), "{text}");
    let link = text.lines().find(|line| line.contains(" = ")).unwrap_or_else(|| panic!("no link in:\n{text}"));
    assert!(link.contains("home/noise") && link.contains("home/again"), "{link}");
    assert!(text.contains("txt.\\u{202e}exe") && !text.contains('\u{202e}'), "{text}");
    let rows = bench.rows(&["ls", "home"]);
    assert_eq!(rows.iter().filter(|row| row["link"]["path"].is_string()).count(), 1);
    let uid = rows[0]["uid"].to_string();
    let numeric = bench.done(&["ls", "home", "--numeric"], 0);
    assert!(numeric.lines().nth(1).unwrap().split_whitespace().any(|word| word == uid), "{numeric}");
}

/// A retention of an hour was shown as `0 d`, one of five years as `1826 d`.
#[test]
fn pools_show_retention_as_it_was_given() {
    let bench = Bench::new(&[]);
    for (name, retention) in [("short", "1h"), ("long", "5y"), ("month", "30d")] {
        bench.done(&["pools", "add", name, "--plain", "--retention", retention], 0);
        let text = bench.done(&["pools"], 0);
        let line = text.lines().find(|line| line.starts_with(name)).unwrap();
        assert!(line.split_whitespace().any(|word| word == retention), "{line}");
    }
}

/// `init --state /srv` shut everybody else out of /srv.
#[test]
fn a_folder_that_others_use_is_no_state_directory() {
    let dir = tempfile::TempDir::new().unwrap();
    let (state, others) = (dir.path().join("srv"), dir.path().join("srv/others"));
    fs::create_dir_all(&others).unwrap();
    let init = || {
        let mut command = capstan(&["init", "--encrypt", "none", "--volume-size", "64M"]);
        command.env("CAPSTAN_STATE", &state).env("CAPSTAN_PASSPHRASE", "three plain words").output().unwrap()
    };
    let refused = init();
    ended(&refused, &["init"], 1);
    let said = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(said.contains("it holds something else (others): name a directory of its own"), "{said}");
    assert_eq!(fs::metadata(&state).unwrap().permissions().mode() & 0o777, 0o755);
    fs::remove_dir(&others).unwrap();
    ended(&init(), &["init"], 0);
}
