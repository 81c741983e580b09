//! How far work is, told while it goes on.

use std::io::{BufRead, BufReader, Write};
use std::process::Stdio;
use std::sync::mpsc;
use std::time::Duration;

use serde_json::Value;

use super::Bench;

/// `--json` told of checkpoints only, and a file that takes hours had none for a display to draw.
#[test]
fn events_say_how_far_a_backup_is_while_it_runs() {
    let bench = Bench::new(&[]);
    let mut command = bench.command(&["backup", "--stdin", "dump.sql", "--json"]);
    let mut backup = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut input = backup.stdin.take().unwrap();
    let (seen, enough) = mpsc::channel();
    let feeding = std::thread::spawn(move || {
        input.write_all(&super::noise(12 << 20)).unwrap();
        // The pipe stays open until the event was seen; that long it takes only if there is none.
        let _: Result<(), _> = enough.recv_timeout(Duration::from_secs(60));
    });
    let lines = BufReader::new(backup.stdout.take().unwrap()).lines();
    let events: Vec<Value> = lines
        .map(|line| serde_json::from_str(&line.unwrap()).unwrap())
        .inspect(|event: &Value| {
            if event["event"] == "progress" && event["bytes"].as_u64().unwrap() >= 8 << 20 {
                // It may have been told before.
                let _ = seen.send(());
            }
        })
        .collect();
    feeding.join().unwrap();
    assert!(backup.wait().unwrap().success());
    let progress: Vec<_> = events.iter().filter(|event| event["event"] == "progress").collect();
    let told = progress.iter().find(|event| event["bytes"].as_u64().unwrap() >= 8 << 20).unwrap();
    assert_eq!(told["bytes_planned"], Value::Null, "nobody knows how much a program will print");
    assert_eq!(told["bytes_moved"], told["bytes"]);
    assert_eq!(told["volumes"][0]["volume"], "A00001");
    assert!(told["bottleneck"].is_string() && told["elapsed_ns"].as_u64().unwrap() >= 1_000_000_000);
    assert_eq!(events.last().unwrap()["event"], "finished");
    let ways: Vec<_> = events.iter().filter_map(|event| event["event"].as_str()).collect();
    assert!(ways.contains(&"mounted") && ways.contains(&"dismounted"), "{ways:?}");
}
