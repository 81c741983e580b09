//! Jobs by name: what the settings say of them, what the command line changes, what runs before and after, and what is
//! kept.

use std::fs;
use std::process::{Command, Stdio};
use std::time::Duration;

use serde_json::Value;

use super::Bench;

impl Bench {
    /// Adds to the settings; `SOURCE` stands for the source.
    pub(super) fn settings(&self, more: &str) {
        let path = self.dir.path().join("state/capstan.toml");
        let text = fs::read_to_string(&path).unwrap() + &more.replace("SOURCE", &self.source_text());
        fs::write(&path, text).unwrap();
    }

    fn policies(&self) -> Vec<String> {
        self.rows(&["objects"]).iter().map(|row| row["policy"].as_str().unwrap().to_owned()).collect()
    }

    /// A program for a job, which writes down what it was told.
    fn hook(&self, name: &str, rest: &str) -> String {
        let path = self.dir.path().join(name);
        let told = self.dir.path().join(format!("{name}.told"));
        let script = format!("#!/bin/sh\nenv >'{}'\necho chatter\n{rest}\n", told.display());
        fs::write(&path, script).unwrap();
        let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
        fs::set_permissions(&path, mode).unwrap();
        path.to_str().unwrap().to_owned()
    }

    fn told(&self, name: &str, variable: &str) -> Option<String> {
        let told = fs::read_to_string(self.dir.path().join(format!("{name}.told"))).ok()?;
        let begin = format!("{variable}=");
        told.lines().find_map(|line| line.strip_prefix(&begin)).map(str::to_owned)
    }
}

#[test]
fn a_job_is_backed_up_by_its_name() {
    let bench = Bench::new(&[]);
    bench.done(&["pools", "add", "vault"], 0);
    fs::write(bench.source().join("left.tmp"), "out\n").unwrap();
    bench.settings(
        "[jobs.nightly]\nsources = [\"SOURCE\"]\nexclude = [\"*.tmp\"]\npool = \"vault\"\nfull_every = \"4w\"\n\
         connections = 1\nretention = \"90d\"\n",
    );
    assert!(bench.said(&["jobs"], 0).is_empty());
    let listed = &bench.rows(&["jobs"])[0];
    assert_eq!((&listed["outcome"], &listed["next"]), (&"never".into(), &"full".into()));

    bench.done(&["backup", "nightly", "-q"], 0);
    bench.done(&["backup", "nightly", "-q", "--exclude", "noise"], 0);
    bench.done(&["backup", "nightly", "-q", "--full", "--pool", "default"], 0);
    let rows = bench.rows(&["objects"]);
    let column = |name: &str| rows.iter().map(|row| row[name].as_str().unwrap()).collect::<Vec<_>>();
    assert_eq!(column("policy"), ["nightly"; 3]);
    assert_eq!(column("level"), ["full", "incr", "full"], "the latest first; the command line goes before the job");
    let keeps = rows[0]["expires_ns"].as_i64().unwrap() - rows[0]["started_ns"].as_i64().unwrap();
    assert_eq!(keeps, 90 * 86_400 * 1_000_000_000);
    let pools: Vec<_> = bench.rows(&["volumes"]).iter().map(|row| row["pool"].as_str().unwrap().to_owned()).collect();
    assert_eq!(pools, ["vault", "default"]);
    assert!(bench.rows(&["find", "*.tmp"]).is_empty());
    assert_eq!(
        bench.rows(&["find", "noise"]).len(),
        3,
        "twice stored, and once deleted by what the command line added"
    );
    let listed = &bench.rows(&["jobs"])[0];
    assert_eq!((&listed["outcome"], &listed["next"]), (&"done".into(), &"incremental".into()));
    assert!(bench.done(&["jobs"], 0).contains("incremental, full every 4w"));
}

#[test]
fn a_job_is_told_from_a_path() {
    let bench = Bench::new(&[]);
    bench.settings("[jobs.home]\nsources = [\"SOURCE/letters\"]\n");
    let said = bench.said(&["backup", "home"], 0);
    assert!(said.contains("the path of that name would be ./home"), "{said}");
    bench.done(&["backup", "./home", "-q"], 0);
    bench.done(&["backup", &bench.source_text(), "-q"], 0);
    assert_eq!(bench.policies(), ["manual", "manual", "home"]);
    let said = bench.said(&["backup", "home", "/etc/hostname"], 2);
    assert!(said.contains("a job, which is run by itself"), "{said}");
    let said = bench.said(&["backup", "home", "--policy", "other"], 2);
    assert!(said.contains("leave --policy out"), "{said}");
    let said = bench.said(&["backup", "hoem"], 1);
    assert!(said.contains("hoem is neither a path here nor a job or policy: there are home"), "{said}");
    // Each command reads the settings: what is wrong there is named with its line.
    bench.settings("exlude = [\"x\"]\n");
    let said = bench.said(&["backup", "home"], 1);
    assert!(said.contains("unknown field `exlude`") && said.contains("line "), "{said}");
}

#[test]
fn programs_run_before_and_after_and_are_told_how_it_went() {
    let bench = Bench::with_passphrase(&[]);
    let (before, after) = (bench.hook("before", ""), bench.hook("after", ""));
    bench.settings(&format!(
        "[jobs.nightly]\nsources = [\"SOURCE\"]\nbefore = [\"{before}\", \"now\"]\nafter = [\"{after}\"]\n"
    ));
    let printed = bench.done(&["backup", "nightly", "--json"], 0);
    assert!(printed.lines().all(|line| serde_json::from_str::<Value>(line).is_ok()), "no chatter in {printed}");
    let object = bench.rows(&["objects"])[0]["object"].as_str().unwrap().to_owned();
    for (variable, value) in [
        ("CAPSTAN_JOB", "nightly"),
        ("CAPSTAN_OUTCOME", "done"),
        ("CAPSTAN_EXIT_CODE", "0"),
        ("CAPSTAN_OBJECTS", object.as_str()),
    ] {
        assert_eq!(bench.told("after", variable).as_deref(), Some(value), "{variable}");
    }
    assert_eq!(bench.told("before", "CAPSTAN_JOB").as_deref(), Some("nightly"));
    assert_eq!(bench.told("before", "CAPSTAN_OUTCOME"), None);
    for program in ["before", "after"] {
        assert_eq!(bench.told(program, "CAPSTAN_PASSPHRASE"), None, "{program} was told the passphrase");
        assert!(bench.told(program, "CAPSTAN_STATE").is_some_and(|state| state.ends_with("/state")));
    }

    // One that fails before stops the job, and what runs after runs all the same.
    bench.hook("before", "exit 7");
    let said = bench.said(&["backup", "nightly"], 1);
    assert!(said.contains("before (") && said.contains("exit status: 7; nothing was backed up"), "{said}");
    assert_eq!(bench.rows(&["objects"]).len(), 1);
    assert_eq!(bench.told("after", "CAPSTAN_OUTCOME").as_deref(), Some("failed"));
    assert_eq!(bench.told("after", "CAPSTAN_EXIT_CODE").as_deref(), Some("1"));
    assert_eq!(bench.told("after", "CAPSTAN_OBJECTS").as_deref(), Some(""));

    // One that fails after is said, and is an exception.
    bench.hook("before", "");
    bench.hook("after", "exit 9");
    let output = bench.command(&["backup", "nightly", "--json"]).output().unwrap();
    super::ended(&output, &["backup", "nightly"], 3);
    assert!(String::from_utf8_lossy(&output.stderr).contains("exit status: 9"));
    let last: Value = serde_json::from_slice(output.stdout.split(|byte| *byte == b'\n').rev().nth(1).unwrap()).unwrap();
    assert_eq!((&last["event"], &last["hook"]), (&"hook-failed".into(), &"after".into()));
    fs::remove_file(bench.dir.path().join("before")).unwrap();
    let said = bench.said(&["backup", "nightly"], 1);
    assert!(said.contains("could not be started"), "{said}");
}

/// What runs after must undo what ran before, also where somebody stopped the job between them.
#[test]
fn a_job_that_is_stopped_runs_what_comes_after() {
    let bench = Bench::new(&[]);
    let go = bench.dir.path().join("go");
    let before = bench.hook("before", &format!("while [ ! -e '{}' ]; do sleep 0.05; done", go.display()));
    let after = bench.hook("after", "");
    bench
        .settings(&format!("[jobs.nightly]\nsources = [\"SOURCE\"]\nbefore = [\"{before}\"]\nafter = [\"{after}\"]\n"));
    let mut backup =
        bench.command(&["backup", "nightly", "-q"]).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    while bench.told("before", "CAPSTAN_JOB").is_none() {
        assert!(backup.try_wait().unwrap().is_none(), "it ended before it was stopped");
        std::thread::sleep(Duration::from_millis(20));
    }
    assert!(Command::new("kill").args(["-TERM", &backup.id().to_string()]).status().unwrap().success());
    fs::write(&go, "").unwrap();
    assert_eq!(backup.wait().unwrap().code(), Some(130));
    assert_eq!(bench.told("after", "CAPSTAN_OUTCOME").as_deref(), Some("stopped"));
    assert!(bench.rows(&["objects"]).is_empty());
}

#[test]
fn a_job_keeps_what_a_program_prints() {
    let bench = Bench::new(&[]);
    bench.settings("[jobs.shop]\nstdin = \"shop.sql\"\nstdin_command = [\"printf\", \"rows\\\\n\"]\n");
    bench.done(&["backup", "shop", "-q"], 0);
    assert_eq!(bench.done(&["cat", "shop.sql:shop.sql"], 0), "rows\n");
    assert_eq!(bench.policies(), ["shop"]);
    assert_eq!(bench.rows(&["jobs"])[0]["outcome"], "done");
}

/// One retention a pool was all there was: nothing said which backups are kept.
#[test]
fn expire_keeps_by_the_rule_of_the_job() {
    let bench = Bench::new(&[]);
    bench.settings("[jobs.nightly]\nsources = [\"SOURCE\"]\nkeep = { last = 2, yearly = 1 }\n");
    for _ in 0..4 {
        bench.done(&["backup", "nightly", "-q"], 0);
    }
    bench.done(&["backup", "home/letters", "-q"], 0);
    let last_digits = |row: &Value| row["object"].as_str().map(|id| id[id.len() - 8..].to_owned()).unwrap();
    let ids: Vec<_> = bench.rows(&["objects"]).iter().map(last_digits).collect();
    let said = bench.done(&["expire", "--dry-run"], 0);
    let begins = |begin: String| said.lines().any(|line| line.starts_with(&begin));
    assert!(begins(format!("would keep {} of {}", ids[1], bench.source_text())), "{said}");
    assert!(said.lines().any(|line| line.contains(&ids[1]) && line.ends_with(": last, yearly (nightly)")), "{said}");
    assert!(said.lines().any(|line| line.contains(&ids[2]) && line.ends_with(": last (nightly)")), "{said}");
    assert!(begins(format!("would forget {}", ids[3])) && begins(format!("would forget {}", ids[4])), "{said}");
    assert!(!said.contains(&ids[0]), "no rule is for what was backed up by hand: {said}");
    let plan = bench.json(&["expire", "--dry-run"]);
    assert_eq!(plan["kept_by_rule"][0]["kept_by"], serde_json::json!(["last", "yearly"]));
    bench.done(&["expire"], 0);
    assert_eq!(bench.rows(&["objects"]).len(), 3);
    // Without the rule nothing says how long they are kept: they stay.
    let path = bench.dir.path().join("state/capstan.toml");
    let text = fs::read_to_string(&path).unwrap();
    fs::write(&path, text.replace("keep = { last = 2, yearly = 1 }\n", "")).unwrap();
    assert!(bench.done(&["expire", "--dry-run"], 0).starts_with("0 objects"));
}

#[test]
fn a_job_leaves_out_what_a_file_of_patterns_and_cache_tags_say() {
    let bench = Bench::new(&[]);
    let patterns = bench.dir.path().join("patterns");
    fs::write(&patterns, "# of every night\n*.tmp\n").unwrap();
    let cache = bench.source().join("cache");
    fs::create_dir(&cache).unwrap();
    fs::write(cache.join("CACHEDIR.TAG"), "Signature: 8a477f597d28d172789f06886806bc55\n").unwrap();
    fs::write(cache.join("cached"), "again\n").unwrap();
    fs::write(bench.source().join("left.tmp"), "out\n").unwrap();
    bench.settings(&format!(
        "[jobs.nightly]\nsources = [\"SOURCE\"]\nexclude_from = [\"{}\"]\nexclude_caches = true\n",
        patterns.display()
    ));
    bench.done(&["backup", "nightly", "-q"], 0);
    assert!(bench.rows(&["find", "left.tmp"]).is_empty() && bench.rows(&["find", "cached"]).is_empty());
    assert_eq!((bench.rows(&["find", "CACHEDIR.TAG"]).len(), bench.rows(&["find", "ada.txt"]).len()), (1, 1));
}

/// `jobs` said nothing of what would make the next run fail, and a date stood beside "never".
#[test]
fn the_list_of_jobs_says_how_the_last_run_ended_and_what_stands_in_the_way() {
    let bench = Bench::new(&[]);
    bench.settings("[jobs.nightly]\nsources = [\"SOURCE\", \"SOURCE-2\"]\n");
    let said = bench.said(&["jobs"], 3);
    assert!(said.contains("job nightly: ") && said.contains("home-2 cannot be backed up"), "{said}");
    bench.done(&["backup", "nightly", "-q"], 3);
    let text = bench.done(&["jobs"], 3);
    assert!(text.contains("problems, 1 source never") && text.contains("last run"), "{text}");
    let listed: Value = serde_json::from_str(&bench.done(&["jobs", "--json"], 3)).unwrap();
    assert_eq!((&listed["outcome"], &listed["sources_never"]), (&"problems".into(), &1.into()));
    assert_eq!(listed["faults"].as_array().unwrap().len(), 1);
    fs::create_dir(bench.dir.path().join("home-2")).unwrap();
    bench.done(&["backup", "nightly", "-q"], 0);
    assert_eq!(bench.rows(&["jobs"])[0]["outcome"], "done");
    assert_eq!(bench.rows(&["history", "nightly"]).len(), 2);
    bench.settings("exclude_from = [\"SOURCE/patterns\"]\n");
    assert!(bench.said(&["jobs"], 3).contains("patterns cannot be read, and the job will not run"));
    bench.done(&["backup", "nightly", "-q"], 2);
}

/// Of a source without a retention that is gone it said that nothing would be forgotten, and not why.
#[test]
fn a_source_that_is_gone_and_has_no_retention_is_told_why_it_stays() {
    let bench = Bench::new(&[]);
    bench.settings("[jobs.nightly]\nsources = [\"SOURCE/letters\"]\nretention = \"90d\"\n");
    bench.done(&["backup", "home", "-q"], 0);
    bench.done(&["backup", "nightly", "-q"], 0);
    let said = bench.done(&["expire", "--gone", "home", "--dry-run"], 0);
    assert!(said.contains("1 object of ") && said.contains("will not expire although the source is gone"), "{said}");
    assert!(said.contains("run `capstan expire OBJECT`"), "{said}");
    let said = bench.done(&["expire", "--gone", "home/letters", "--dry-run"], 0);
    assert!(said.contains("1 object of ") && said.contains("will expire, the first on "), "{said}");
    assert!(!said.contains("will not expire"), "{said}");
}

/// Of two nightly jobs at one time one was told as failed.
#[test]
fn a_job_that_another_keeps_from_writing_is_busy() {
    let bench = Bench::new(&[]);
    bench.settings("[jobs.nightly]\nsources = [\"SOURCE\"]\n");
    let path = bench.dir.path().join("state/writer.lock");
    fs::write(&path, "4711\n").unwrap();
    let held = fs::File::open(&path).unwrap();
    held.lock().unwrap();
    bench.done(&["backup", "nightly", "-q"], 6);
    assert_eq!(bench.rows(&["history"])[0]["outcome"], "busy");
    let text = bench.done(&["status"], 3);
    assert!(text.contains("the last run of job nightly") && text.contains("did not begin: another capstan"), "{text}");
    // What the service says waits for the other, and for no volume.
    let mut waiting = bench.command(&["backup", "--wait=writer", "nightly", "--json"]);
    let mut waiting = waiting.stdout(Stdio::piped()).spawn().unwrap();
    let mut line = String::new();
    let mut printed = std::io::BufReader::new(waiting.stdout.take().unwrap());
    std::io::BufRead::read_line(&mut printed, &mut line).unwrap();
    assert_eq!(serde_json::from_str::<Value>(&line).unwrap()["event"], "waiting");
    drop(held);
    std::io::copy(&mut printed, &mut std::io::sink()).unwrap();
    assert!(waiting.wait().unwrap().success());
    assert_eq!(bench.rows(&["jobs"])[0]["outcome"], "done");
    let none = Bench::new(&["--volumes-max", "0"]);
    none.done(&["backup", "--wait=writer", "home", "-q"], 5);
}

/// The units lay in the repository alone, with paths that whoever installed the program had to change.
#[test]
fn the_program_writes_the_units_of_systemd_for_this_machine() {
    let bench = Bench::new(&["--library", "tapes", "--key-file", "the.key"]);
    bench.settings("[jobs.nightly]\nsources = [\"SOURCE\"]\n");
    let dir = bench.dir.path().to_str().unwrap().to_owned();
    let said = bench.done(&["jobs", "--units", &dir, "--key-file", "the.key"], 0);
    assert!(said.contains("capstan-backup@nightly.timer"), "{said}");
    let service = fs::read_to_string(bench.dir.path().join("capstan-backup@.service")).unwrap();
    for line in [
        format!("RequiresMountsFor={dir}/state {dir}/tapes"),
        format!("ReadWritePaths={dir}/state {dir}/tapes"),
        format!("Environment=CAPSTAN_STATE={dir}/state CAPSTAN_KEY_FILE={dir}/the.key"),
    ] {
        assert!(service.lines().any(|other| other == line), "{line} is not in\n{service}");
    }
    assert!(service.contains(" backup --wait=writer %i\n"), "{service}");
    assert!(!service.contains("/usr/bin/capstan") && !service.contains("/var/lib/capstan"), "{service}");
    assert!(bench.dir.path().join("capstan-backup@.timer").exists());
    let odd = bench.dir.path().join("with blank.key");
    fs::copy(bench.dir.path().join("the.key"), &odd).unwrap();
    let said = bench.said(&["jobs", "--units", &dir, "--key-file", odd.to_str().unwrap()], 2);
    assert!(said.contains("give it a plain path"), "{said}");
}

#[test]
fn chains_of_a_job_are_made_full_ones_without_its_source() {
    let bench = Bench::new(&[]);
    let job = "[jobs.daily]\nsources = [\"SOURCE\"]\nconsolidate_after = 2\n";
    bench.settings(job);
    let said = bench.said(&["status"], 1);
    assert!(said.contains("consolidate_after") && said.contains("set level = \"incremental\""), "{said}");
    bench.settings("level = \"incremental\"\n");
    let change = |name: &str| fs::write(bench.source().join(name), name).unwrap();
    for name in ["one", "two", "three"] {
        change(name);
        bench.done(&["backup", "daily", "-q"], 0);
    }
    let levels = || {
        let rows = bench.rows(&["objects"]);
        rows.iter().map(|row| row["level"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(levels(), ["full", "incr", "incr", "full"]);
    assert!(bench.done(&["jobs"], 0).contains("incremental, made full after 2"));
    let rows = bench.rows(&["objects"]);
    assert_eq!(rows[0]["consolidates"], rows[1]["object"]);
    let short = |row: &Value| row["object"].as_str().unwrap()[24..].to_owned();
    let shown = bench.done(&["show", &short(&rows[0])], 0);
    assert!(shown.contains(&format!("made of      {} and what that was based on", short(&rows[1]))), "{shown}");
    // The next one stands on it, and what it was made of can go.
    change("four");
    bench.done(&["backup", "daily", "-q"], 0);
    let next = bench.rows(&["objects"]).remove(0);
    assert_eq!(next["base"], rows[0]["object"]);
    let ids: Vec<_> = rows[1..].iter().map(|row| row["object"].as_str().unwrap().to_owned()).collect();
    bench.done(&[&["expire", "--yes"], &ids.iter().map(String::as_str).collect::<Vec<_>>()[..]].concat(), 0);
    let to = bench.dir.path().join("back");
    bench.done(&["restore", &bench.source_text(), "--to", to.to_str().unwrap()], 0);
    let restored = to.join(bench.source().strip_prefix("/").unwrap());
    for name in ["one", "two", "three", "four"] {
        assert_eq!(fs::read_to_string(restored.join(name)).unwrap(), name);
    }
    // In the history it is part of the run that made it; what could not be done is said there, and the backup counts.
    change("five");
    bench.settings("pool = \"nowhere\"\n");
    let said = bench.said(&["backup", "daily", "-q", "--pool", "default"], 3);
    assert!(said.contains("no full backup was made of object") && said.contains("there is no pool"), "{said}");
    let last = bench.rows(&["history", "--last", "1"]).remove(0);
    assert!(last["message"].as_str().unwrap().contains("no full backup was made of object"), "{last}");
}

#[test]
fn incrementals_are_made_full_ones_by_hand() {
    let bench = Bench::new(&[]);
    let source = bench.source_text();
    bench.done(&["backup", &source, "-q"], 0);
    assert!(bench.said(&["consolidate"], 0).contains("no source has incrementals"));
    let said = bench.said(&["consolidate", &source], 1);
    assert!(said.contains("no full object is made of object") && said.contains("it is full already"), "{said}");
    fs::write(bench.source().join("new"), "new").unwrap();
    bench.done(&["backup", &source, "-q", "--incremental"], 0);
    assert!(bench.said(&["consolidate", "--after", "2"], 0).contains("no source has incrementals"));
    let lines = bench.rows(&["consolidate"]);
    let done = lines.iter().find(|line| line["event"] == "consolidated").unwrap();
    let rows = bench.rows(&["objects"]);
    assert_eq!(&done["object"], &rows[0]["object"]);
    assert_eq!((&done["of"], &done["backups"], &done["pool"]), (&rows[1]["object"], &2.into(), &"default".into()));
    assert_eq!((&rows[0]["level"], &rows[0]["started_ns"]), (&"full".into(), &rows[1]["started_ns"]));
    let last = bench.rows(&["history", "--last", "1"]).remove(0);
    assert_eq!((&last["kind"], &last["subject"]), (&"consolidate".into(), &"all sources".into()));
    assert!(last["message"].as_str().unwrap().starts_with("1 full object made of incrementals"), "{last}");
    bench.done(&["verify", done["object"].as_str().unwrap()], 0);
}
