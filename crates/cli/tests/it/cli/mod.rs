//! The command as a person or a script meets it: help, exit codes, JSON, and a small backup that comes back.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use assert_cmd::cargo::CommandCargoExt;
use tempfile::TempDir;

mod care;
mod catalog_copy;
mod cell;
mod client;
mod going_on;
mod jobs;
mod json;
mod key_cluster;
mod labels;
mod libraries;
mod lists;
mod mover;
mod outside;
mod paths;
mod policies;
mod progress;
mod put;
mod unread;
mod upkeep;
mod user;
mod watching;
mod ways_out;

/// Every command, with arguments that list or describe something where it has any.
const COMMANDS: [&str; 48] = [
    "init",
    "backup",
    "put",
    "jobs",
    "policies",
    "schedule",
    "queue",
    "server",
    "client",
    "mover",
    "user",
    "audit",
    "objects",
    "ls",
    "find",
    "versions",
    "show",
    "object",
    "restore",
    "get",
    "cat",
    "verify",
    "scrub",
    "copy",
    "consolidate",
    "reclaim",
    "repair",
    "rebuild",
    "catalog",
    "expire",
    "erase",
    "forget",
    "label",
    "volumes",
    "drives",
    "library",
    "vault",
    "pools",
    "status",
    "history",
    "clock",
    "keys",
    "simulate",
    "lab",
    "vtl",
    "models",
    "completions",
    "man",
];

/// A state directory, a source, and a way to call the command on them.
struct Bench {
    dir: TempDir,
    /// How far the clock of commands is ahead.
    hours_ahead: u32,
    /// What opens the key store, and how commands are told of it; none without a key store.
    unlock: Option<(&'static str, String)>,
}

impl Bench {
    /// With a key file, which opens the store at once: a passphrase takes a fifth of a second, and these are a thousand
    /// commands.
    fn new(init: &[&str]) -> Self {
        let dir = TempDir::new().unwrap();
        let key = dir.path().join("key").to_str().unwrap().to_owned();
        Self::opened_by(init, dir, ("CAPSTAN_KEY_FILE", key))
    }

    fn with_passphrase(init: &[&str]) -> Self {
        Self::opened_by(init, TempDir::new().unwrap(), ("CAPSTAN_PASSPHRASE", "three plain words".to_owned()))
    }

    fn opened_by(init: &[&str], dir: TempDir, unlock: (&'static str, String)) -> Self {
        let bench = Self { dir, hours_ahead: 0, unlock: Some(unlock) };
        fs::create_dir_all(bench.source().join("letters")).unwrap();
        fs::write(bench.source().join("letters/ada.txt"), "dear Ada\n").unwrap();
        fs::write(bench.source().join("noise"), noise(3 << 20)).unwrap();
        let args: Vec<_> = [&["init", "--volume-size", "64M"], init].concat();
        bench.done(&args, 0);
        bench
    }

    fn source(&self) -> PathBuf {
        self.dir.path().join("home")
    }

    fn source_text(&self) -> String {
        self.source().to_str().unwrap().to_owned()
    }

    fn command(&self, args: &[&str]) -> Command {
        let mut command = capstan(args);
        if self.hours_ahead > 0 {
            let mut ahead = Command::new("faketime");
            ahead.args(["-f", &format!("+{}h", self.hours_ahead)]).arg(command.get_program()).args(args);
            ahead.stdin(Stdio::null());
            for (name, _) in command.get_envs() {
                ahead.env_remove(name);
            }
            command = ahead;
        }
        command.env("CAPSTAN_STATE", self.dir.path().join("state")).envs(self.unlock.clone());
        command.current_dir(self.dir.path());
        command
    }

    /// Runs a command that must end with `code`, and gives what it printed to standard output.
    fn done(&self, args: &[&str], code: i32) -> String {
        let output = self.command(args).output().unwrap();
        ended(&output, args, code);
        String::from_utf8(output.stdout).unwrap()
    }

    /// The same for what it printed to standard error.
    fn said(&self, args: &[&str], code: i32) -> String {
        let output = self.command(args).output().unwrap();
        ended(&output, args, code);
        String::from_utf8(output.stderr).unwrap()
    }

    /// A list as JSON, an object a line.
    fn rows(&self, args: &[&str]) -> Vec<serde_json::Value> {
        let args = [args, &["--json"]].concat();
        let lines = self.done(&args, 0);
        lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    /// A command that may read nothing that its mode forbids. Root reads everything unless it lays that down.
    fn held_to_modes(&self, args: &[&str]) -> Command {
        use std::os::unix::fs::MetadataExt;
        let plain = self.command(args);
        let root = fs::metadata("/proc/self").unwrap().uid() == 0;
        let mut command = if root { Command::new("setpriv") } else { Command::new("env") };
        if root {
            command.args(["--bounding-set", "-dac_override,-dac_read_search"]);
        }
        command.arg(plain.get_program()).args(plain.get_args()).current_dir(self.dir.path()).stdin(Stdio::null());
        for (name, value) in plain.get_envs() {
            match value {
                Some(value) => command.env(name, value),
                None => command.env_remove(name),
            };
        }
        command
    }

    /// One answer as JSON.
    fn json(&self, args: &[&str]) -> serde_json::Value {
        let args = [args, &["--json"]].concat();
        let text = self.done(&args, 0);
        serde_json::from_str(&text).unwrap_or_else(|error| panic!("{args:?} printed no JSON ({error}):\n{text}"))
    }
}

fn capstan(args: &[&str]) -> Command {
    let mut command = Command::cargo_bin("capstan").unwrap();
    for name in [
        "CAPSTAN_STATE",
        "CAPSTAN_KEY_FILE",
        "CAPSTAN_PASSPHRASE",
        "CAPSTAN_NEW_PASSPHRASE",
        "CAPSTAN_EXPORT_PASSPHRASE",
        "CAPSTAN_ENROLMENT_PASSPHRASE",
    ] {
        command.env_remove(name);
    }
    command.args(args).stdin(Stdio::null());
    command
}

fn ended(output: &Output, args: &[&str], code: i32) {
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(code), "capstan {args:?} said:\n{stderr}");
}

/// Bytes that do not compress: a multiplicative generator with a fixed seed.
fn noise(len: usize) -> Vec<u8> {
    let mut state = 0x9e37_79b9_7f4a_7c15u64;
    let step = || {
        state = state.wrapping_mul(0xd134_2543_de82_ef95).wrapping_add(1);
        (state >> 56) as u8
    };
    std::iter::repeat_with(step).take(len).collect()
}

#[test]
fn every_command_has_an_example() {
    for command in COMMANDS {
        let output = capstan(&[command, "--help"]).output().unwrap();
        ended(&output, &[command, "--help"], 0);
        let help = String::from_utf8(output.stdout).unwrap();
        assert!(help.contains("Example"), "{command} has no example");
        assert!(help.contains(&format!("capstan {command}")), "the example of {command} shows something else");
    }
}

#[test]
fn the_list_of_commands_is_complete() {
    let help = String::from_utf8(capstan(&["--help"]).output().unwrap().stdout).unwrap();
    let listed = help.split("Commands:").nth(1).unwrap().split("Options:").next().unwrap();
    let lines = listed.lines().filter(|line| line.starts_with("  ") && !line.starts_with("   "));
    let names: Vec<_> = lines.filter_map(|line| line.split_whitespace().next()).collect();
    let known: Vec<_> = COMMANDS.iter().copied().chain(["help"]).collect();
    assert_eq!(names, known);
}

#[test]
fn completions_and_the_man_page_come_from_the_same_definitions() {
    for shell in ["bash", "zsh", "fish"] {
        let output = capstan(&["completions", shell]).output().unwrap();
        ended(&output, &["completions", shell], 0);
        assert!(String::from_utf8(output.stdout).unwrap().contains("one-file-system"), "{shell} lacks an option");
    }
    let output = capstan(&["man"]).output().unwrap();
    ended(&output, &["man"], 0);
    let page = String::from_utf8(output.stdout).unwrap();
    assert!(page.contains(".TH capstan") && page.contains("capstan\\-backup") && page.contains("EXIT CODES"), "{page}");
    let output = capstan(&["man", "keys", "policies", "add"]).output().unwrap();
    ended(&output, &["man", "keys", "policies", "add"], 0);
    let page = String::from_utf8(output.stdout).unwrap();
    assert!(page.contains(".TH capstan-keys-policies-add") && page.contains("\\-\\-encrypt\\-for"), "{page}");
    ended(&capstan(&["man", "snapshots"]).output().unwrap(), &["man", "snapshots"], 2);
}

/// The pages as the tools that read them take them, where there is one.
#[test]
fn man_pages_have_no_faults() {
    let dir = TempDir::new().unwrap();
    ended(&capstan(&["man", "--dir", dir.path().to_str().unwrap()]).output().unwrap(), &["man", "--dir"], 0);
    let pages: Vec<_> = fs::read_dir(dir.path()).unwrap().map(|entry| entry.unwrap().path()).collect();
    assert!(pages.iter().any(|page| page.ends_with("capstan-backup.1")), "{pages:?}");
    let mut groff = Command::new("groff");
    // Warnings of all kinds but those of places where a line cannot be broken.
    groff.args(["-man", "-Tutf8", "-ww", "-Wbreak", "-z"]).args(&pages);
    if let Ok(output) = groff.output() {
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success() && said.is_empty(), "groff said:\n{said}");
    }
}

/// Words of other programs got no pointer, or one to `ls`; and each usage line named `--state` as if it had to be
/// given.
#[test]
fn commands_of_other_programs_point_to_ours_and_usage_names_what_is_needed() {
    let dir = TempDir::new().unwrap();
    let run = |args: &[&str]| {
        let output = capstan(args).env("CAPSTAN_STATE", dir.path()).env("CAPSTAN_KEY_FILE", "key").output().unwrap();
        ended(&output, args, 2);
        (String::from_utf8(output.stderr).unwrap(), String::from_utf8(output.stdout).unwrap())
    };
    for (word, ours) in [
        ("snapshots", "capstan objects"),
        ("list", "capstan objects"),
        ("prune", "capstan expire"),
        ("check", "capstan verify"),
        ("delete", "capstan expire"),
        ("mount", "capstan ls"),
    ] {
        for args in [vec![word], vec!["help", word], vec!["--quiet", word, "x"]] {
            let (said, _) = run(&args);
            assert!(said.contains(&format!("there is no command `{word}`: `{ours}")), "{args:?}: {said}");
        }
    }
    let (_, printed) = run(&["--json", "prune"]);
    assert!(printed.contains("\"exit_code\":2"), "{printed}");
    let (said, _) = run(&["restore"]);
    assert!(said.contains("Usage:") && !said.contains("--state") && !said.contains("--key-file"), "{said}");
    assert!(run(&["sanpshot"]).0.contains("unrecognized subcommand"), "what nobody has is a fault as ever");
}

#[test]
fn a_passphrase_is_never_taken_from_the_command_line() {
    for command in COMMANDS {
        for option in ["--passphrase=secret", "--password=secret"] {
            let output = capstan(&[command, option]).output().unwrap();
            ended(&output, &[command, option], 2);
        }
        let help = String::from_utf8(capstan(&[command, "--help"]).output().unwrap().stdout).unwrap();
        assert!(!help.contains("--pass"), "{command} offers a passphrase option");
    }
}

#[test]
fn a_backup_comes_back_and_every_list_is_json() {
    let bench = Bench::new(&[]);
    let source = bench.source_text();
    bench.done(&["backup", &source, "--copies", "2"], 0);
    fs::write(bench.source().join("letters/new.txt"), "dear Grace\n").unwrap();
    bench.done(&["backup", "home", "--copies", "2", "--incremental"], 0);

    bench.done(&["restore", "home", "--to", "back"], 0);
    let back = bench.dir.path().join("back").join(bench.source().strip_prefix("/").unwrap());
    for path in ["letters/ada.txt", "letters/new.txt", "noise"] {
        assert!(fs::read(bench.source().join(path)).unwrap() == fs::read(back.join(path)).unwrap(), "{path} differs");
    }
    let kept = bench.said(&["restore", "home", "--to", "back"], 0);
    assert!(kept.contains("left as they were"), "{kept}");
    let letter = format!("home:{source}/letters/ada.txt");
    assert_eq!(bench.done(&["cat", &letter], 0), "dear Ada\n");
    bench.done(&["verify", "home", "A00001", "--against-source"], 0);

    assert_eq!(bench.rows(&["objects"]).len(), 2);
    assert_eq!(bench.rows(&["objects", "--source", &source]).len(), 2);
    assert_eq!(bench.rows(&["ls", &format!("home:{source}/letters")]).len(), 2);
    assert_eq!(bench.rows(&["find", "ada*"]).len(), 1);
    assert_eq!(bench.rows(&["versions", "home/letters/ada.txt"]).len(), 1);
    assert_eq!(bench.rows(&["volumes"]).len(), 2);
    assert_eq!(bench.rows(&["drives"]).len(), 4);
    assert_eq!(bench.rows(&["pools"]).len(), 2);
    assert_eq!(bench.rows(&["keys", "list"]).len(), 2);
    assert_eq!(bench.json(&["status"])["objects_complete"], 2);
    assert_eq!(bench.json(&["show", "home"])["copies"][0]["whole"], true);
    assert_eq!(bench.json(&["restore", "home", "--dry-run"])["event"], "plan");
    // Listing a volume's objects once asked the catalog for what it was holding, and waited for itself.
    assert_eq!(bench.json(&["show", "A00001"])["objects"].as_array().unwrap().len(), 2);
}

#[test]
fn rebuild_keeps_pools_that_have_no_volume() {
    let bench = Bench::new(&[]);
    bench.done(&["pools", "add", "vault", "--retention", "10y"], 0);
    let before = bench.rows(&["pools"]);
    bench.done(&["rebuild"], 0);
    assert_eq!(bench.rows(&["pools"]), before);
    bench.done(&["backup", "home"], 0);
}

/// A copy that failed before its first checkpoint was forgotten: nothing ever made it.
#[test]
fn repair_makes_the_copies_that_were_promised() {
    let bench = Bench::new(&["--volumes-max", "0"]);
    bench.done(&["label", "A00001", "--pool", "default"], 0);
    bench.done(&["backup", "home", "--copies", "2"], 3);
    let objects = bench.done(&["objects"], 0);
    assert!(objects.contains("A00001 default-copy2(none)"), "{objects}");
    let status = bench.done(&["status"], 3);
    assert!(status.contains("1 object lacks a copy: run `capstan repair`"), "{status}");
    assert!(bench.said(&["repair"], 5).contains("capstan label BARCODE --pool default-copy2"));
    bench.done(&["label", "B00001", "--pool", "default-copy2"], 0);
    let events = bench.done(&["repair", "home", "--json"], 0);
    let events: Vec<serde_json::Value> = events.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert!(events.iter().any(|event| event["event"] == "mended" && event["copy"] == 2), "{events:?}");
    let last = events.last().unwrap();
    assert_eq!((&last["event"], &last["copies"][0]["whole"]), (&"repaired".into(), &true.into()));
    assert_eq!(bench.json(&["show", "home"])["copies"][1]["whole"], true);
    let status = bench.json(&["status"]);
    assert_eq!((&status["objects_protected"], &status["objects_lacking_a_copy"]), (&1.into(), &0.into()));
    assert!(bench.done(&["repair"], 0).contains("every copy"));
    assert!(bench.said(&["repair", "nothing"], 1).contains("capstan objects"));
}

/// A path of which nothing or only an older version is stored was restored, or not, with exit code 0.
#[test]
fn what_comes_back_older_than_asked_is_named_and_ends_with_3() {
    use std::os::unix::fs::PermissionsExt;
    let bench = Bench::new(&[]);
    let letter = bench.source().join("letters/ada.txt");
    bench.done(&["backup", "home"], 0);
    fs::write(&letter, "dear Ada, later\n").unwrap();
    fs::write(bench.source().join("never"), "never read\n").unwrap();
    for path in [&letter, &bench.source().join("never")] {
        fs::set_permissions(path, fs::Permissions::from_mode(0o000)).unwrap();
    }
    let args = ["backup", "home", "--incremental"];
    ended(&bench.held_to_modes(&args).output().unwrap(), &args, 3);

    let place = format!("home:{}", letter.display());
    let older = "letters/ada.txt: could not be read by the last backup";
    assert_eq!(bench.done(&["cat", &place], 3), "dear Ada\n");
    assert!(bench.said(&["cat", &place], 3).contains(older));
    assert_eq!(bench.json(&["restore", "home", "--dry-run"])["older"].as_array().unwrap().len(), 1);
    let said = bench.said(&["restore", "home", "--to", "back"], 3);
    assert_eq!(said.matches(older).count(), 2, "in the plan and at the end: {said}");
    assert!(said.contains("home/never: could not be read when it was backed up; nothing"), "{said}");
    assert!(bench.done(&["ls", &place], 0).contains("unreadable"));
    let back = bench.dir.path().join("back").join(letter.strip_prefix("/").unwrap());
    assert_eq!(fs::read_to_string(back).unwrap(), "dear Ada\n");
    // What was asked for and is as it was is no matter of what else was not.
    bench.done(&["restore", &format!("home:{}/noise", bench.source_text()), "--to", "part"], 0);
}

/// What no key opens any more was counted as protected, and so was what stands on it.
#[test]
fn status_counts_what_can_be_restored() {
    let bench = Bench::new(&[]);
    bench.done(&["backup", "home"], 0);
    bench.done(&["backup", "home", "--incremental", "--copies", "2"], 0);
    assert_eq!(bench.json(&["status"])["objects_protected"], 2);
    bench.done(&["keys", "destroy", "A00001", "--yes"], 0);
    let status: serde_json::Value = serde_json::from_str(&bench.done(&["status", "--json"], 3)).unwrap();
    assert_eq!((&status["objects_complete"], &status["objects_protected"]), (&2.into(), &0.into()));
    assert!(bench.done(&["status"], 3).contains("cannot be restored in full"));
}

#[test]
fn a_wrong_command_line_ends_with_2() {
    let bench = Bench::new(&[]);
    bench.done(&["backup"], 2);
    bench.done(&["bakcup", "home"], 2);
    bench.done(&["label", "not a barcode"], 2);
    bench.done(&["restore", "home", "--to", "back", "--at", "someday"], 2);
    let said = bench.said(&["erase", "A00001"], 2);
    assert!(said.contains("--yes"), "{said}");
}

#[test]
fn what_is_not_there_ends_with_1_and_says_where_to_look() {
    let bench = Bench::new(&[]);
    assert!(bench.said(&["init"], 1).contains("left as it is"));
    assert!(bench.said(&["ls", "nothing"], 1).contains("capstan objects"));
    assert!(bench.said(&["verify", "A00009"], 1).contains("capstan volumes"));
    assert!(bench.said(&["backup", "nothing"], 1).contains("nothing"));
    let said = bench.said(&["--state", "elsewhere", "status"], 1);
    assert!(said.contains("capstan init"), "{said}");
}

#[test]
fn a_source_that_differs_ends_with_3() {
    let bench = Bench::new(&[]);
    bench.done(&["backup", "home"], 0);
    fs::write(bench.source().join("noise"), noise(1 << 20)).unwrap();
    let said = bench.said(&["verify", "home", "--against-source"], 3);
    assert!(said.contains("noise"), "{said}");
}

#[test]
fn keys_that_do_not_open_end_with_4() {
    let bench = Bench::with_passphrase(&[]);
    bench.done(&["backup", "home"], 0);
    let output = bench.command(&["verify", "home"]).env("CAPSTAN_PASSPHRASE", "others").output().unwrap();
    ended(&output, &["verify", "with a wrong passphrase"], 4);
    // Without a terminal nobody can be asked; a session of its own has none, wherever this test is run from.
    let mut alone = Command::new("setsid");
    alone.arg("--wait").arg(assert_cmd::cargo::cargo_bin("capstan")).args(["verify", "home"]).stdin(Stdio::null());
    alone.env("CAPSTAN_STATE", bench.dir.path().join("state")).env_remove("CAPSTAN_PASSPHRASE");
    let output = alone.env_remove("CAPSTAN_KEY_FILE").output().unwrap();
    ended(&output, &["verify", "with no passphrase"], 4);
}

#[test]
fn after_its_key_is_destroyed_every_command_says_that_the_data_is_gone() {
    let bench = Bench::new(&[]);
    bench.done(&["backup", "home"], 0);
    assert!(bench.said(&["keys", "destroy", "A00001"], 2).contains("gone for good"));
    assert!(bench.done(&["keys", "destroy", "A00001", "--yes"], 0).contains("gone for good"));
    let sentence = bench.said(&["verify", "A00001"], 4);
    let sentence = sentence.trim_start_matches("capstan: ").trim_end();
    assert!(sentence.starts_with("key ") && sentence.contains("gone for good"), "{sentence}");
    bench.done(&["pools", "add", "vault"], 0);
    let letter = format!("home:{}/letters/ada.txt", bench.source_text());
    for (args, code) in [
        (&["restore", "home", "--dry-run"][..], 4),
        (&["restore", "home", "--to", "back"], 4),
        (&["verify", "home"], 4),
        (&["cat", "home"], 4),
        (&["cat", &letter], 4),
        (&["copy", "home", "--to-pool", "vault"], 4),
    ] {
        let said = bench.said(args, code);
        assert!(said.contains(sentence), "capstan {args:?} said:\n{said}and not\n{sentence}");
    }
    assert!(bench.said(&["keys", "list"], 0).contains("gone for good"));
    // The next backup adds nothing to that volume.
    bench.done(&["backup", "home"], 0);
    bench.done(&["restore", "home", "--to", "again"], 0);
}

/// A copy that could not be read once passed for a copy, and its original for one that could be written over.
#[test]
fn a_copy_of_nothing_does_not_free_the_original() {
    let bench = Bench::new(&[]);
    bench.done(&["backup", "home"], 0);
    bench.done(&["keys", "destroy", "A00001", "--yes"], 0);
    bench.done(&["pools", "add", "vault"], 0);
    bench.done(&["copy", "home", "--to-pool", "vault"], 4);
    assert!(bench.done(&["objects"], 0).contains("A00002(part)"));
    assert!(bench.said(&["label", "A00001", "--yes"], 1).contains("last copy"));
}

#[test]
fn what_is_lost_by_force_is_named() {
    let bench = Bench::new(&[]);
    // Two copies begin at once; which of them made which volume would be chance.
    bench.done(&["label", "A00001", "--pool", "default"], 0);
    bench.done(&["backup", "home", "--copies", "2"], 0);
    bench.done(&["backup", "home/letters"], 0);
    let said = bench.said(&["erase", "A00001", "--yes"], 1);
    assert!(said.contains("holds 1 object, and may be its last copy"), "{said}");
    let said = bench.said(&["erase", "A00001", "--yes", "--force"], 0);
    assert!(said.contains("belonged to 1 object") && said.contains("home/letters,"), "{said}");
    let events = bench.done(&["label", "A00002", "--force", "--json"], 0);
    let events: Vec<serde_json::Value> = events.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let lost = events.iter().find(|event| event["event"] == "overwritten").unwrap();
    assert_eq!(lost["gone"].as_array().unwrap().len(), 1, "{lost}");
}

#[test]
fn no_volume_ends_with_5_or_waits_for_one() {
    let bench = Bench::new(&["--volumes-max", "0"]);
    let said = bench.said(&["backup", "home"], 5);
    assert!(said.contains("capstan label BARCODE --pool default"), "{said}");

    let mut waiting = bench.command(&["backup", "home", "--wait", "--quiet"]).stderr(Stdio::null()).spawn().unwrap();
    until(&bench, |bench| bench.command(&["backup", "home"]).output().unwrap().status.code() == Some(6));
    bench.done(&["label", "B00001", "--pool", "default"], 0);
    assert!(waiting.wait().unwrap().success());
    bench.done(&["verify", "home"], 0);
}

/// Behind a pipe a dump that died half-way passes for a whole one.
#[test]
fn what_a_program_prints_counts_only_if_it_ends_well() {
    let bench = Bench::new(&[]);
    let run = |script: &'static str| ["backup", "--stdin", "dump", "--from-command", "--", "sh", "-c", script];
    let said = bench.said(&run("seq 1000; exit 3"), 1);
    assert!(said.contains("sh ended with exit status: 3"), "{said}");
    assert!(bench.done(&["objects"], 0).contains("interrupted"));
    let status = bench.done(&["status"], 3);
    assert!(status.contains("backup of dump of ") && status.contains(" was interrupted: run it again\n"), "{status}");
    bench.done(&run("seq 1000"), 0);
    assert_eq!(bench.done(&["cat", "dump:dump"], 0).lines().count(), 1000);
    assert!(!bench.done(&["status"], 0).contains("interrupted"));
    assert!(bench.said(&["backup", "--stdin", "dump", "--from-command"], 2).contains("needs a program"));
    assert!(bench.said(&["backup", "--stdin", "dump", "home"], 2).contains("--from-command"));
}

#[test]
fn a_second_backup_of_a_source_ends_with_6_and_others_run() {
    let bench = Bench::new(&["--volumes-max", "0"]);
    let mut waiting = bench.command(&["backup", "home", "--wait"]).stderr(Stdio::null()).spawn().unwrap();
    until(&bench, |bench| bench.command(&["backup", "home"]).output().unwrap().status.code() == Some(6));
    let said = bench.said(&["backup", "home"], 6);
    assert!(said.contains(&format!("is being backed up by another job (process {})", waiting.id())), "{said}");
    let said = bench.said(&["pools", "remove", "default"], 6);
    assert!(said.contains("pool default is in use by another job"), "{said}");
    bench.done(&["pools", "add", "probe"], 0);
    bench.done(&["expire"], 0);
    // Another source needs a volume, too, and has none.
    bench.done(&["backup", "home/letters"], 5);
    let said = bench.said(&["rebuild"], 6);
    assert!(said.contains("must have it for itself"), "{said}");
    waiting.kill().unwrap();
    waiting.wait().unwrap();
    bench.done(&["label", "B00001"], 0);
    bench.done(&["backup", "home"], 0);
}

/// The settings with another value for one of them.
fn set(bench: &Bench, from: &str, to: &str) {
    let path = bench.dir.path().join("state/capstan.toml");
    let text = fs::read_to_string(&path).unwrap();
    assert!(text.contains(from), "{text}");
    fs::write(&path, text.replace(from, to)).unwrap();
}

fn until(bench: &Bench, reached: impl Fn(&Bench) -> bool) {
    let began = Instant::now();
    while !reached(bench) {
        assert!(began.elapsed() < Duration::from_secs(60), "it never came to that");
        std::thread::sleep(Duration::from_millis(50));
    }
}

#[test]
fn a_key_file_opens_what_it_sealed() {
    let dir = TempDir::new().unwrap();
    fs::write(dir.path().join("note"), "kept").unwrap();
    let run = |key: &Path, args: &[&str], code: i32| {
        let mut command = capstan(args);
        command.current_dir(dir.path()).env("CAPSTAN_STATE", "state").env("CAPSTAN_KEY_FILE", key);
        ended(&command.output().unwrap(), args, code);
    };
    run(Path::new("key"), &["init"], 0);
    run(Path::new("key"), &["backup", "note"], 0);
    run(Path::new("key"), &["verify", "note"], 0);
    run(Path::new("note"), &["verify", "note"], 4);
}

/// A passphrase is changed and a key file set beside it; at each moment something opens the store, and the old one no
/// more.
#[test]
fn the_passphrase_can_be_changed_and_joined_by_a_key_file() {
    let bench = Bench::with_passphrase(&[]);
    bench.done(&["backup", &bench.source_text()], 0);
    let with = |variable: &str, value: &str, args: &[&str], code: i32| {
        let output = bench.command(args).env(variable, value).output().unwrap();
        ended(&output, args, code);
        String::from_utf8(output.stdout).unwrap()
    };
    assert!(
        bench.said(&["keys", "passphrase"], 4).contains("CAPSTAN_NEW_PASSPHRASE"),
        "nobody to ask, nothing changed"
    );
    with("CAPSTAN_NEW_PASSPHRASE", "four other plain words", &["keys", "passphrase"], 0);
    bench.done(&["verify", &bench.source_text()], 4);
    let new = ("CAPSTAN_PASSPHRASE", "four other plain words");
    with(new.0, new.1, &["verify", &bench.source_text()], 0);

    let file = bench.dir.path().join("capstan.key");
    let file = file.to_str().unwrap();
    with(new.0, new.1, &["keys", "add", "--new-key-file", file], 0);
    bench.done(&["--key-file", file, "verify", &bench.source_text()], 0);
    let slots = with(new.0, new.1, &["--json", "keys", "slots"], 0);
    let slots: Vec<serde_json::Value> = slots.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let kinds: Vec<_> = slots.iter().map(|slot| slot["kind"].as_str().unwrap()).collect();
    assert_eq!(kinds, ["key file", "passphrase"]);

    bench.said(&["--key-file", file, "keys", "passphrase"], 2);
    let passphrase = slots[1]["slot"].to_string();
    bench.done(&["--key-file", file, "keys", "remove", &passphrase, "--yes"], 0);
    with(new.0, new.1, &["verify", &bench.source_text()], 4);
    let own = slots[0]["slot"].to_string();
    assert!(bench.said(&["--key-file", file, "keys", "remove", &own, "--yes"], 4).contains("only one"));
    bench.done(&["--key-file", file, "verify", &bench.source_text()], 0);
}

#[test]
fn one_file_whose_name_is_not_utf8_comes_back() {
    use std::ffi::OsStr;
    use std::os::unix::ffi::OsStrExt;
    // Only the directory it lies in could be named: arguments had to be UTF-8.
    let bench = Bench::new(&[]);
    let path = bench.source().join(OsStr::from_bytes(b"caf\xe9: menu"));
    fs::write(&path, "coffee\n").unwrap();
    bench.done(&["backup", "home"], 0);
    let place = [b"home:".as_slice(), path.as_os_str().as_bytes()].concat();
    let named = |command: &str, more: &[&str]| {
        let output = bench.command(&[command]).arg(OsStr::from_bytes(&place)).args(more).output().unwrap();
        ended(&output, &[command], 0);
        String::from_utf8(output.stdout).unwrap()
    };
    assert_eq!(named("cat", &[]), "coffee\n");
    assert!(named("ls", &[]).contains("caf"));
    named("restore", &["--to", "out"]);
    let restored = bench.dir.path().join("out").join(path.strip_prefix("/").unwrap());
    assert_eq!(fs::read_to_string(restored).unwrap(), "coffee\n");
}

/// A volume that is lost is forgotten, and what it held is made again from the other copy.
#[test]
fn a_lost_volume_is_forgotten_and_its_copies_are_made_again() {
    let bench = Bench::new(&[]);
    bench.done(&["backup", &bench.source_text(), "--copies", "2"], 0);
    assert!(bench.said(&["forget", "A00002", "--yes"], 1).contains("is in the library"));
    let slots = bench.dir.path().join("state/library/slots");
    fs::remove_file(slots.join("A00002.tape")).unwrap();
    bench.said(&["erase", "A00002", "--yes"], 1);
    assert!(bench.done(&["forget", "A00002", "--yes"], 0).contains("capstan repair"));
    assert!(bench.done(&["status"], 3).contains("capstan repair"));
    bench.done(&["repair"], 0);
    assert!(bench.done(&["repair"], 0).contains("every copy"));
    fs::remove_file(slots.join("A00001.tape")).unwrap();
    bench.done(&["restore", &bench.source_text(), "--to", "back"], 0);

    let twin = bench.rows(&["volumes"]);
    let mut twin = twin.iter().map(|volume| volume["volume"].as_str().unwrap().to_owned());
    let twin = twin.rfind(|volume| volume != "A00001").unwrap();
    fs::remove_file(slots.join(format!("{twin}.tape"))).unwrap();
    bench.done(&["forget", "A00001", "--yes", "--force"], 0);
    assert!(bench.said(&["forget", &twin, "--yes"], 1).contains("--force"));
}

#[test]
fn a_simulation_is_printed_drawn_and_the_same_again() {
    let dir = TempDir::new().unwrap();
    let (trace, drawing) = (dir.path().join("host.csv"), dir.path().join("drawing.svg"));
    fs::write(&trace, "from_s,to_s,mb_per_s\n0,20,90\n20,40,270\n").unwrap();
    let (trace, drawing) = (trace.to_str().unwrap(), drawing.to_str().unwrap());
    let run = |args: &[&str], code: i32| {
        let output = capstan(args).output().unwrap();
        assert_eq!(output.status.code(), Some(code), "{}", String::from_utf8_lossy(&output.stderr));
        (String::from_utf8(output.stdout).unwrap(), String::from_utf8(output.stderr).unwrap())
    };
    let simulate = ["simulate", "--drive", "t10000d", "--trace", trace, "--svg", drawing, "--json"];
    let (first, _) = run(&simulate, 0);
    let value: serde_json::Value = serde_json::from_str(&first).unwrap();
    assert_eq!((value["backhitches"].as_u64(), value["samples"].as_array().unwrap().len()), (Some(1), 40));
    assert!(fs::read_to_string(drawing).unwrap().starts_with("<svg"));
    assert_eq!(run(&simulate, 0).0, first);
    let (text, _) = run(&["simulate", "--drive", "LTO-6", "--files", "1923x13M", "--sync"], 0);
    assert!(text.contains("backhitches     1923"), "{text}");
    assert!(run(&["models"], 0).0.contains("TS1170"));
    assert!(run(&["simulate", "--drive", "LTO-2", "--files", "1x1M"], 2).1.contains("there are T9840C"));
    fs::write(dir.path().join("host.csv"), "from_s,to_s,mb_per_s\n0,20,90\n30,40,270\n").unwrap();
    assert!(run(&["simulate", "--drive", "LTO-6", "--trace", trace], 2).1.contains("has a gap"));
}

#[test]
fn a_table_is_predicted_row_by_row_and_calibrated_against() {
    let dir = TempDir::new().unwrap();
    let table = dir.path().join("table.csv");
    let head = "drive,data_buffers,buffer_size,encrypted,file_size,compression_ratio";
    fs::write(&table, format!("{head}\nLTO-9,32,2MB,1,10GB,2\nLTO-9,4,256KB,1,32KB,2\n")).unwrap();
    let table = table.to_str().unwrap();
    let output = capstan(&["lab", "characterize", "--grid", table]).output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let lines: Vec<_> = text.lines().collect();
    assert_eq!(lines[0], format!("{head},predicted_mb_per_s,bottleneck"));
    assert!(lines[1].starts_with("LTO-9,32,2MB,1,10GB,2,") && lines[2].ends_with(",source"), "{text}");
    let refused = capstan(&["lab", "characterize", "--grid", table, "--calibrate"]).output().unwrap();
    assert_eq!(refused.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&refused.stderr).contains("no measurements"));
}

#[test]
fn drives_take_the_time_of_a_model_if_they_are_told_to() {
    let bench = Bench::new(&[]);
    let settings = bench.dir.path().join("state/capstan.toml");
    let text = fs::read_to_string(&settings).unwrap();
    fs::write(&settings, text.replace("pace = \"\"", "pace = \"LTO-9\"")).unwrap();
    let noise: Vec<u8> = (0..8_000_000u32).map(|at| (at.wrapping_mul(2_654_435_761) >> 13) as u8).collect();
    fs::write(bench.source().join("large"), noise).unwrap();
    let said = bench.said(&["backup", "home", "--compression", "0"], 0);
    assert!(said.contains("at the pace of LTO-9:"), "{said}");
    bench.done(&["verify", "home"], 0);
    fs::write(&settings, text.replace("pace = \"\"", "pace = \"LTO-2\"")).unwrap();
    assert!(bench.said(&["status"], 1).contains("no model of a drive is named LTO-2; there are"));
}

#[test]
fn a_data_set_is_made_checked_and_refused() {
    let dir = TempDir::new().unwrap();
    let folder = dir.path().join("set");
    let run = |more: &[&str], code: i32| {
        let mut args = vec!["lab", "create-data", "--preset", "small", folder.to_str().unwrap()];
        args.extend(more);
        let output = capstan(&args).output().unwrap();
        assert_eq!(output.status.code(), Some(code), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    };
    run(&["--files", "700", "--seed", "5"], 0);
    assert_eq!(run(&["--files", "700", "--seed", "5", "--check"], 0), "");
    // Another seed gives other bytes.
    assert_eq!(run(&["--files", "700", "--seed", "6", "--check"], 3).lines().count(), 700);
    run(&["--files", "700"], 1);
    run(&["--files", "10", "--ratio", "20"], 2);
    run(&[], 2);
}
