//! What could not be read, was not there, vanished, or had to be waited for.

use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::process::Stdio;

use serde_json::Value;

use super::{Bench, ended, noise};

fn lines(printed: &[u8]) -> Vec<Value> {
    printed
        .split(|&byte| byte == b'\n')
        .filter(|line| !line.is_empty())
        .map(|line| serde_json::from_slice(line).unwrap())
        .collect()
}

fn close(path: &Path) {
    fs::set_permissions(path, fs::Permissions::from_mode(0o000)).unwrap();
}

/// A directory that could not be listed left no trace: no problem counted, no flag, a restore that ended with 0. And of
/// many paths only the first 20 were named anywhere.
#[test]
fn what_could_not_be_read_is_in_the_object_and_named() {
    const CLOSED: usize = 30;
    let bench = Bench::new(&[]);
    let dir = bench.source().join("closed");
    fs::create_dir(&dir).unwrap();
    fs::write(dir.join("inner"), "inner\n").unwrap();
    close(&dir);
    for number in 0..CLOSED {
        let path = bench.source().join(format!("secret-{number}"));
        fs::write(&path, "secret\n").unwrap();
        close(&path);
    }
    let args = ["backup", "home", "--json"];
    let output = bench.held_to_modes(&args).output().unwrap();
    ended(&output, &args, 3);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(said.contains("Permission denied") && !said.contains("os error"), "{said}");
    assert!(said.contains("and 11 more"), "{said}");
    let events = lines(&output.stdout);
    let failed: Vec<_> = events.iter().filter(|event| event["event"] == "problem").collect();
    assert_eq!(failed.len(), CLOSED + 1, "every one is named");
    assert!(
        failed.iter().all(|event| event["severity"] == "loss" && event["reason"].as_str().unwrap().contains("denied"))
    );
    assert!(failed.iter().any(|event| event["path"].as_str().unwrap().ends_with("home/closed")));
    assert_eq!(events.last().unwrap()["sources"][0]["losses"], CLOSED + 1);

    assert_eq!(bench.rows(&["objects"])[0]["problems"], CLOSED + 1);
    let row = bench.rows(&["find", "closed"]).remove(0);
    assert_eq!((&row["kind"], &row["flags"]), (&"directory".into(), &"unreadable".into()));
    let said = bench.said(&["restore", "home", "--to", "back"], 3);
    assert!(said.contains("home/closed: is incomplete"), "{said}");
    let restored = bench.done(&["restore", "home", "--to", "again", "--json"], 3);
    let finished = lines(restored.as_bytes()).pop().unwrap();
    assert_eq!(finished["lost"].as_array().unwrap().len(), CLOSED);
    assert!(finished["incomplete"][0]["path"].as_str().unwrap().ends_with("home/closed"), "{finished}");

    // In an incremental, too, though the directory stands as it did; and what was read before is kept.
    fs::set_permissions(&dir, fs::Permissions::from_mode(0o700)).unwrap();
    bench.done(&["backup", "home", "--incremental"], 0);
    close(&dir);
    for _ in 0..2 {
        let args = ["backup", "home", "--incremental"];
        ended(&bench.held_to_modes(&args).output().unwrap(), &args, 3);
        assert_eq!(bench.rows(&["find", "closed", "--object", "home"])[0]["flags"], "unreadable");
        assert_eq!(bench.rows(&["find", "inner", "--object", "home"]).len(), 1);
    }
    // What was asked for and is as it was is no matter of what else was not.
    bench.done(&["restore", &format!("home:{}/closed/inner", bench.source_text()), "--to", "inner"], 0);
    fs::set_permissions(&dir, fs::Permissions::from_mode(0o700)).unwrap();
    bench.done(&["backup", "home", "--incremental"], 0);
    assert_eq!(bench.rows(&["find", "closed", "--object", "home"])[0]["flags"], "");
    bench.done(&["restore", &format!("home:{}/closed", bench.source_text()), "--to", "whole"], 0);
}

/// One source that was not there kept all others from being backed up.
#[test]
fn a_source_that_is_missing_does_not_stop_the_others() {
    let bench = Bench::new(&[]);
    for missing in ["absent", "absent/../absent"] {
        let said = bench.said(&["backup", "home/letters", missing, "home/noise"], 3);
        assert!(said.contains("absent is not backed up: No such file or directory"), "{said}");
        assert!(!said.contains("os error"), "{said}");
    }
    assert_eq!(bench.rows(&["objects"]).len(), 4);
    let said = bench.said(&["backup", "absent", "away"], 1);
    assert!(said.contains("absent") && said.contains("away"), "{said}");
    assert_eq!(bench.rows(&["objects"]).len(), 4);
}

/// A file that vanished while it was backed up made every later restore end with 3.
#[test]
fn what_vanished_is_told_and_a_restore_is_whole_without() {
    let bench = Bench::new(&[]);
    let busy = bench.source().join("busy");
    fs::create_dir(&busy).unwrap();
    // Each socket is a line that somebody must read: more of them than a pipe holds, so that the walk waits amid them
    // while files that it has listed are removed.
    let sockets: Vec<_> = (0..900).map(|n| UnixListener::bind(busy.join(format!("{n:03}"))).unwrap()).collect();
    for number in 0..40 {
        fs::write(busy.join(format!("file-{number}")), "going\n").unwrap();
    }
    let args = ["backup", "home", "--json", "--connections", "1"];
    let mut backup = bench.command(&args).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut printed = BufReader::new(backup.stdout.take().unwrap());
    let mut line = String::new();
    while !line.contains("\"problem\"") {
        line.clear();
        assert_ne!(printed.read_line(&mut line).unwrap(), 0, "no socket was told of");
    }
    for number in 0..40 {
        fs::remove_file(busy.join(format!("file-{number}"))).unwrap();
    }
    let mut rest = Vec::new();
    printed.read_to_end(&mut rest).unwrap();
    drop(sockets);
    let mut said = String::new();
    backup.stderr.take().unwrap().read_to_string(&mut said).unwrap();
    assert_eq!(backup.wait().unwrap().code(), Some(0), "{said}");
    assert!(said.contains("was gone before it could be read"), "{said}");
    let unsteady = lines(&rest).pop().unwrap()["sources"][0]["unsteady"].as_u64().unwrap();
    assert!(unsteady > 0);
    assert_eq!(bench.rows(&["objects"])[0]["problems"], unsteady);
    let said = bench.said(&["restore", "home", "--to", "back"], 0);
    assert_eq!(said.matches("vanished").count(), 1, "{said}");
    let finished = lines(bench.done(&["restore", "home", "--to", "again", "--json"], 0).as_bytes()).pop().unwrap();
    assert_eq!(finished["vanished"].as_array().unwrap().len() as u64, unsteady);
}

/// `--wait` waited for volumes alone: a second nightly job ended with 6.
#[test]
fn a_backup_that_waits_waits_for_whoever_writes() {
    let bench = Bench::new(&[]);
    let path = bench.dir.path().join("state/writer.lock");
    fs::write(&path, "4711\n").unwrap();
    let held = fs::File::open(&path).unwrap();
    held.lock().unwrap();
    let args = ["backup", "home", "--wait", "--json"];
    let mut backup = bench.command(&args).stdout(Stdio::piped()).spawn().unwrap();
    let mut printed = BufReader::new(backup.stdout.take().unwrap());
    let mut line = String::new();
    printed.read_line(&mut line).unwrap();
    let waiting: Value = serde_json::from_str(&line).unwrap();
    assert_eq!(waiting["event"], "waiting", "{line}");
    assert!(waiting["message"].as_str().unwrap().contains("process 4711"), "{line}");
    drop(held);
    let mut rest = Vec::new();
    printed.read_to_end(&mut rest).unwrap();
    assert_eq!(backup.wait().unwrap().code(), Some(0));
    assert_eq!(lines(&rest).last().unwrap()["event"], "finished");
}

/// The mount point of a disk that was not there was backed up as a directory from which all was deleted, and after some
/// nights the real backup expired.
#[test]
fn a_source_that_is_empty_all_at_once_fails_and_loses_nothing() {
    let bench = Bench::new(&[]);
    let (source, away) = (bench.source(), bench.dir.path().join("away"));
    bench.done(&["backup", "home", "--quiet"], 0);
    fs::rename(&source, &away).unwrap();
    fs::create_dir(&source).unwrap();
    for level in [&["backup", "home"][..], &["backup", "home", "--incremental"]] {
        let said = bench.said(level, 1);
        assert!(said.contains("nothing is in it, and something was at its last backup"), "{said}");
    }
    fs::remove_dir(&source).unwrap();
    fs::rename(&away, &source).unwrap();
    fs::write(source.join("new"), "new").unwrap();
    bench.done(&["backup", "home", "--incremental", "--quiet"], 0);
    bench.done(&["restore", "home", "--to", "back", "--quiet"], 0);
    let restored = bench.dir.path().join("back").join(source.strip_prefix("/").unwrap());
    assert_eq!(fs::read(restored.join("letters/ada.txt")).unwrap(), b"dear Ada\n");
    assert!(restored.join("noise").exists() && restored.join("new").exists());

    fs::remove_dir_all(&source).unwrap();
    fs::create_dir(&source).unwrap();
    bench.done(&["backup", "home", "--incremental", "--may-be-empty", "--quiet"], 0);
    bench.done(&["restore", "home", "--to", "empty", "--quiet"], 0);
    let restored = bench.dir.path().join("empty").join(source.strip_prefix("/").unwrap());
    assert_eq!(fs::read_dir(restored).unwrap().count(), 0);
    // From then on it is as it was.
    bench.done(&["backup", "home", "--incremental", "--quiet"], 0);
}

/// Somebody moved a directory to another disk and left a link. The link was backed up, all else as deleted, and the
/// backup was done.
#[test]
fn a_source_that_becomes_a_link_fails_and_loses_nothing() {
    let bench = Bench::new(&[]);
    let (source, moved) = (bench.source(), bench.dir.path().join("moved"));
    bench.done(&["backup", "home", "--quiet"], 0);
    fs::rename(&source, &moved).unwrap();
    symlink(&moved, &source).unwrap();
    for level in [&["backup", "home"][..], &["backup", "home", "--incremental"]] {
        let said = bench.said(level, 1);
        assert!(said.contains("it is no directory any more but a symbolic link or a file"), "{said}");
    }
    fs::remove_file(&source).unwrap();
    fs::rename(&moved, &source).unwrap();
    bench.done(&["backup", "home", "--incremental", "--quiet"], 0);
    bench.done(&["restore", "home", "--to", "back", "--quiet"], 0);
    let restored = bench.dir.path().join("back").join(source.strip_prefix("/").unwrap());
    assert_eq!(fs::read(restored.join("letters/ada.txt")).unwrap(), b"dear Ada\n");

    fs::rename(&source, &moved).unwrap();
    symlink(&moved, &source).unwrap();
    bench.done(&["backup", "home", "--may-be-empty", "--quiet"], 0);
    // From then on the link is what there is.
    bench.done(&["backup", "home", "--incremental", "--quiet"], 0);
}

/// A source that nobody may list is not an empty one: what is wrong with it is said.
#[test]
fn a_source_that_cannot_be_listed_is_not_called_empty() {
    let bench = Bench::new(&[]);
    bench.done(&["backup", "home", "--quiet"], 0);
    close(&bench.source());
    let args = ["backup", "home", "--incremental"];
    let output = bench.held_to_modes(&args).output().unwrap();
    ended(&output, &args, 3);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(said.contains("Permission denied") && !said.contains("nothing is in it"), "{said}");
}

/// A link in the target led what a program had printed out of it, and everybody could read what nobody else was to.
#[test]
fn what_a_program_printed_comes_back_below_the_target_and_as_it_was() {
    let bench = Bench::new(&[]);
    bench.done(&["backup", "--stdin", "db/shop.sql", "--quiet", "--from-command", "--", "echo", "rows"], 0);
    let (to, outside) = (bench.dir.path().join("back"), bench.dir.path().join("outside"));
    fs::create_dir(&to).unwrap();
    fs::create_dir(&outside).unwrap();
    symlink("../outside", to.join("db")).unwrap();
    let said = bench.said(&["restore", "db/shop.sql", "--to", "back"], 3);
    assert!(said.contains("a link or a file stands where the path needs a directory"), "{said}");
    assert_eq!(fs::read_dir(&outside).unwrap().count(), 0);
    fs::remove_file(to.join("db")).unwrap();
    bench.done(&["restore", "db/shop.sql", "--to", "back"], 0);
    let restored = to.join("db/shop.sql");
    assert_eq!(fs::read(&restored).unwrap(), b"rows\n");
    assert_eq!(fs::metadata(&restored).unwrap().permissions().mode() & 0o777, 0o600);
}

/// A block that is gone took all of a file with it, and all of what a program printed.
#[test]
fn what_can_be_read_of_damaged_files_is_kept_where_it_is_asked_for() {
    let bench = Bench::new(&["--encrypt", "none"]);
    let content: Vec<u8> = noise(8_000_000).into_iter().map(|byte| byte | 1).collect();
    fs::write(bench.source().join("large"), &content).unwrap();
    bench.done(&["backup", "home", "--compression", "0", "--quiet"], 0);
    let print = bench.source().join("large").to_str().unwrap().to_owned();
    let program = ["backup", "--stdin", "dump", "--compression", "0", "--quiet", "--from-command", "--", "cat", &print];
    bench.done(&program, 0);
    let cartridge = bench.dir.path().join("state/library/slots/A00001.tape");
    let bytes = fs::read(&cartridge).unwrap();
    let at =
        |from: usize| from + bytes[from..].windows(9).position(|part| part == &content[4_000_000..4_000_009]).unwrap();
    let file = fs::File::options().write(true).open(&cartridge).unwrap();
    for place in [at(0), at(at(0) + 1)] {
        std::os::unix::fs::FileExt::write_all_at(&file, b"ZZZZZZZZ", place as u64).unwrap();
    }
    for (source, path) in [("home", bench.source().strip_prefix("/").unwrap().join("large")), ("dump", "dump".into())] {
        let whole = bench.dir.path().join("back").join(path);
        let damaged = whole.with_extension("damaged");
        let said = bench.said(&["restore", source, "--to", "back"], 3);
        assert!(said.contains("volume A00001: block"), "{said}");
        assert!(!whole.exists() && !damaged.exists(), "{whole:?}");
        let said = bench.said(&["restore", source, "--to", "back", "--keep-damaged"], 3);
        assert!(said.contains("volume A00001: block") && said.contains("with .damaged added"), "{said}");
        assert!(!whole.exists());
        let kept = fs::read(&damaged).unwrap();
        assert_eq!(kept.len(), content.len());
        assert!(kept.contains(&0) && kept.iter().zip(&content).all(|(is, was)| is == was || *is == 0));
    }
}
