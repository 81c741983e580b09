//! What a server does beside runs: backups expire, and people hear of what runs out.

use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::process::{Child, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::Value;

use super::Bench;
use super::json::events;

/// A server, and its events up to one of a kind.
struct Serving {
    server: Child,
    lines: BufReader<std::process::ChildStdout>,
}

impl Serving {
    fn start(bench: &Bench) -> Self {
        let mut server = bench.command(&["server", "run", "--json"]).stdout(Stdio::piped()).spawn().unwrap();
        let lines = BufReader::new(server.stdout.take().unwrap());
        Self { server, lines }
    }

    /// The next event of a kind; nothing if the server ends before.
    fn next(&mut self, kind: &str) -> Option<Value> {
        let mut events = self.lines.by_ref().lines().map(|line| serde_json::from_str::<Value>(&line.unwrap()).unwrap());
        events.find(|event| event["event"] == kind)
    }

    fn stop(mut self) {
        let _ = rustix::process::kill_process(
            rustix::process::Pid::from_child(&self.server),
            rustix::process::Signal::TERM,
        );
        assert!(self.next("stopped").is_some());
        assert!(self.server.wait().unwrap().success());
    }
}

fn change_setting(bench: &Bench, from: &str, to: &str) {
    let path = bench.dir.path().join("state/capstan.toml");
    let text = fs::read_to_string(&path).unwrap();
    assert_eq!(text.matches(from).count(), 1, "{from}");
    fs::write(&path, text.replace(from, to)).unwrap();
}

fn back_up(bench: &Bench) {
    bench.done(&["backup", &bench.source_text(), "--full", "--pool", "short", "-q"], 0);
}

#[test]
fn backups_expire_by_themselves_but_not_most_of_them() {
    let bench = Bench::new(&[]);
    bench.done(&["pools", "add", "short", "--plain", "--retention", "1s"], 0);
    change_setting(&bench, "expire = \"12:00\"", "expire = \"*:*:*\"");
    for _ in 0..3 {
        back_up(&bench);
    }
    thread::sleep(Duration::from_millis(1_100));
    // Two of three may go: that, a person has to say.
    let mut serving = Serving::start(&bench);
    serving.next("serving").unwrap();
    let until = Instant::now() + Duration::from_secs(60);
    let asks = "the retention of 2 objects has ended, which is more than half of all 3";
    while !bench.done(&["status"], 3).contains(asks) {
        assert!(Instant::now() < until, "{}", bench.done(&["status"], 3));
        thread::sleep(Duration::from_millis(100));
    }
    serving.stop();
    assert_eq!(bench.rows(&["objects"]).len(), 3, "nothing has expired");
    assert!(bench.rows(&["history"]).iter().all(|run| run["kind"] != "expire"));
    bench.done(&["expire", "--yes", "-q"], 0);
    assert_eq!(bench.rows(&["objects"]).len(), 1);

    // One of two goes by itself.
    back_up(&bench);
    thread::sleep(Duration::from_millis(1_100));
    let mut serving = Serving::start(&bench);
    let expired = serving.next("expired").expect("it expires");
    assert_eq!((&expired["objects"], &expired["volumes"]), (&1.into(), &Value::Array(Vec::new())), "{expired}");
    serving.stop();
    assert_eq!(bench.rows(&["objects"]).len(), 1);
    let history = bench.rows(&["history"]);
    assert_eq!((&history[0]["kind"], &history[0]["message"]), (&"expire".into(), &"1 object forgotten".into()));
    // As what is typed is taken back.
    bench.done(&["expire", "--undo"], 0);
    assert_eq!(bench.rows(&["objects"]).len(), 2);
    let said = bench.said(&["status"], 0);
    assert!(!said.contains("retention"), "no server runs: {said}");
}

#[test]
fn a_time_of_expiry_that_is_none_is_named() {
    let bench = Bench::new(&[]);
    change_setting(&bench, "expire = \"12:00\"", "expire = \"noon\"");
    let said = bench.said(&["status"], 1);
    assert!(said.contains("server.expire: \"noon\" is not") && said.contains("leave it empty"), "{said}");
    change_setting(&bench, "expire = \"noon\"", "expire = \"\"");
    bench.done(&["status"], 0);
}

#[test]
fn a_cell_says_which_library_runs_out_of_volumes() {
    let bench = Bench::new(&["--volumes-max", "2"]);
    bench.done(&["pools", "add", "short", "--plain"], 0);
    back_up(&bench);
    bench.done(&["status"], 0);
    let mut serving = Serving::start(&bench);
    serving.next("serving").unwrap();
    let status = bench.done(&["status"], 3);
    assert!(status.contains("1 volume is left in library main for pools that need one"), "{status}");
    assert!(status.contains("Raise its volumes_max in capstan.toml"), "{status}");
    serving.stop();
    change_setting(&bench, "scratch_volumes = 2", "scratch_volumes = 1");
    let mut serving = Serving::start(&bench);
    serving.next("serving").unwrap();
    let status = bench.done(&["status"], 0);
    assert!(!status.contains("library main"), "{status}");
    serving.stop();
    assert_eq!(events(&bench, &["volumes"], 0).len(), 1);
}
