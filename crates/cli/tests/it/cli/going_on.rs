//! A restore that was stopped goes on: of what is there already nothing is read.

use std::fs::{self, File, Permissions};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;

use serde_json::Value;

use super::Bench;

const FILES: usize = 6;

/// Large files, each in blocks of its own, one of them with two names.
fn bench() -> Bench {
    let bench = Bench::new(&[]);
    for number in 0..FILES {
        let noise: Vec<u8> = (0..3_000_000_u32).map(|at| (at.wrapping_mul(2_654_435_761) >> 13) as u8).collect();
        fs::write(bench.source().join(format!("large{number}")), &noise[number..]).unwrap();
    }
    fs::hard_link(bench.source().join("large0"), bench.source().join("other-name")).unwrap();
    bench.done(&["backup", "home", "--quiet"], 0);
    bench
}

impl Bench {
    /// The plan of a restore to `back`, and how it ended.
    fn goes_on(&self, args: &[&str]) -> (Value, Value) {
        let said = self.done(&[&["restore", "home", "--to", "back", "--json"], args].concat(), 0);
        let events: Vec<Value> = said.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        let plan = events.iter().find(|event| event["event"] == "plan").unwrap().clone();
        (plan, events.last().unwrap().clone())
    }
}

fn same_as(source: &Path, back: &Path) {
    for name in (0..FILES).map(|number| format!("large{number}")).chain(["other-name".to_owned()]) {
        assert!(fs::read(source.join(&name)).unwrap() == fs::read(back.join(&name)).unwrap(), "{name} differs");
    }
    let numbers = ["large0", "other-name"].map(|name| back.join(name).metadata().unwrap().ino());
    assert_eq!(numbers[0], numbers[1]);
}

#[test]
fn what_is_there_already_is_not_read_again() {
    let bench = bench();
    let (whole, _) = bench.goes_on(&[]);
    assert_eq!(whole["there"], 0);
    let back = bench.dir.path().join("back").join(bench.source().strip_prefix("/").unwrap());
    // What a restore that was killed leaves: a file that is missing, one that is not finished, one that is cut short.
    fs::remove_file(back.join("large2")).unwrap();
    fs::set_permissions(back.join("large3"), Permissions::from_mode(0o200)).unwrap();
    File::options().write(true).open(back.join("large4")).unwrap().set_len(1000).unwrap();

    let (dry, _) = bench.goes_on(&["--overwrite", "changed", "--dry-run"]);
    let (plan, end) = bench.goes_on(&["--overwrite", "changed"]);
    assert_eq!((&plan["there"], &plan["read_bytes"]), (&dry["there"], &dry["read_bytes"]));
    // Three are to be written; the one with two names is read, since a link needs the file that it names.
    let there = plan["there"].as_u64().unwrap();
    let small = whole["members"].as_u64().unwrap() - plan["members"].as_u64().unwrap();
    assert_eq!(there, small, "{plan}");
    assert!(there >= 2, "{plan}");
    let bytes = |plan: &Value| plan["read_bytes"].as_u64().unwrap();
    assert!(bytes(&plan) < bytes(&whole) - 2 * 2_500_000, "{plan} beside {whole}");
    assert_eq!(end["event"], "finished", "{end}");
    same_as(&bench.source(), &back);

    // With nothing left to write, next to nothing is read, and the directories have their times again.
    let (plan, _) = bench.goes_on(&["--overwrite", "changed"]);
    assert!(bytes(&plan) < 5_000_000, "{plan}");
    assert_eq!(back.metadata().unwrap().mtime(), bench.source().metadata().unwrap().mtime());
    // By default what is there is left alone, and all is read, as before.
    let (plan, _) = bench.goes_on(&[]);
    assert_eq!((&plan["there"], bytes(&plan)), (&Value::from(0), bytes(&whole)));
}

#[test]
fn what_would_get_one_name_is_refused_all_the_same() {
    let bench = Bench::new(&[]);
    for folder in ["a", "b"] {
        fs::create_dir(bench.source().join(folder)).unwrap();
        fs::write(bench.source().join(folder).join("file"), folder).unwrap();
    }
    bench.done(&["backup", "home", "--quiet"], 0);
    let strip = (bench.source().strip_prefix("/").unwrap().components().count() + 1).to_string();
    let restore = |place: &str, code| {
        let args = ["restore", place, "--to", "back", "--strip", &strip, "--overwrite", "changed", "--include"];
        bench.said(&[&args[..], &["file"]].concat(), code)
    };
    restore("home:a", 0);
    let said = restore("home", 1);
    assert!(said.contains("--strip"), "{said}");
    assert_eq!(fs::read_to_string(bench.dir.path().join("back/file")).unwrap(), "a");
}

/// By default what is there stays. It may be anything, and the exit code said that all was restored; each directory
/// that existed counted as left.
#[test]
fn what_stays_and_is_something_else_is_counted() {
    let bench = Bench::new(&[]);
    bench.done(&["backup", "home", "--quiet"], 0);
    let restore = |places: &[&str], code| bench.said(&[&["restore", "--to", "back"], places].concat(), code);
    restore(&["home"], 0);
    let said = restore(&["home:letters/ada.txt"], 0);
    assert!(said.contains("1 path was there already") && !said.contains("differ"), "{said}");
    let back = bench.dir.path().join("back").join(bench.source().strip_prefix("/").unwrap());
    fs::remove_file(back.join("letters/ada.txt")).unwrap();
    assert!(!restore(&["home:letters/ada.txt"], 0).contains("there already"), "directories are entered");
    for content in ["dear Eve, and more", "dear Eve\n"] {
        fs::write(back.join("letters/ada.txt"), content).unwrap();
        let said = restore(&["home"], 3);
        assert!(said.contains("1 path that was there already, and is left as it was, differs"), "{said}");
        let end: Value = {
            let said = bench.done(&["restore", "home", "--to", "back", "--json"], 3);
            serde_json::from_str(said.lines().last().unwrap()).unwrap()
        };
        assert_eq!(end["differing"], 1, "{end}");
    }
    restore(&["home", "--overwrite", "changed"], 0);
    assert_eq!(fs::read_to_string(back.join("letters/ada.txt")).unwrap(), "dear Ada\n");
}

/// Names with the escapes of a terminal went through to it where they could not be restored.
#[test]
fn what_cannot_be_restored_moves_no_cursor() {
    let bench = Bench::new(&[]);
    let name = "odd\u{1b}[2J\nname";
    fs::write(bench.source().join(name), "odd\n").unwrap();
    bench.done(&["backup", "home", "--quiet"], 0);
    let back = bench.dir.path().join("back").join(bench.source().strip_prefix("/").unwrap());
    fs::create_dir_all(back.join(name)).unwrap();
    let said = bench.said(&["restore", "home", "--to", "back", "--overwrite", "always"], 3);
    assert!(!said.contains('\u{1b}') && said.contains("odd\\u{1b}[2J\\nname: a directory of this name"), "{said}");
}
