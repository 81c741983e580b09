//! A node's process is killed at any moment: what its audit log and its journal had acknowledged is there, and both go
//! on.

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, UNIX_EPOCH};

use capstan_keyd::journal::{Journal, JournalEntry};
use capstan_keys::{Name, Secret};
use capstan_service::audit::{Anchor, AuditAction, AuditEntry, AuditLog, log_files, verify};

const DIRECTORY: &str = "CAPSTAN_TEST_KILLED";
const WRITERS: usize = 4;
const ROUNDS: usize = 12;

fn kma() -> Name {
    "kma1".parse().unwrap()
}

fn key() -> Secret {
    Secret::filled(|bytes| {
        bytes.fill(7);
        Ok::<(), ()>(())
    })
    .unwrap()
}

/// Says what was acknowledged, a line each.
#[test]
#[ignore = "the other process of the test here"]
fn child_that_writes_until_it_is_killed() {
    let directory = std::env::var(DIRECTORY).unwrap();
    let directory = Path::new(&directory);
    let log = Arc::new(AuditLog::open(&directory.join("audit"), &kma(), 1).unwrap());
    let (journal, _) = Journal::open(&directory.join("journal"), &kma(), &key()).unwrap();
    let journal = Mutex::new(journal);
    thread::scope(|scope| {
        for _ in 0..WRITERS {
            scope.spawn(|| {
                loop {
                    let head = log.note_blocking(AuditEntry::own(AuditAction::named("pool-filled")), 1).unwrap();
                    say(&format!("audit {} {}", head.sequence, head.hash));
                }
            });
        }
        loop {
            let mut journal = journal.lock().unwrap();
            let number = journal.sequence() + 1;
            let entry = JournalEntry { kind: 1, path: format!("key/{number}"), sealed: vec![number as u8; 200] };
            let sequence = journal.append(entry).unwrap();
            say(&format!("journal {sequence} -"));
        }
    });
}

fn say(line: &str) {
    // The test's own harness captures print; whoever kills this reads the pipe.
    let mut out = std::io::stderr().lock();
    writeln!(out, "acknowledged {line}").unwrap();
}

fn child(directory: &Path) -> Child {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command
        .args(["--exact", "killed::child_that_writes_until_it_is_killed", "--ignored", "--nocapture"])
        .env(DIRECTORY, directory);
    command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap()
}

#[test]
fn what_was_acknowledged_outlives_a_kill() {
    let seed = std::env::var("CAPSTAN_SEED").ok().map(|seed| seed.parse().unwrap());
    let mut random: u64 = seed.unwrap_or_else(|| UNIX_EPOCH.elapsed().unwrap().as_nanos() as u64) | 1;
    println!("CAPSTAN_SEED={random}");
    let directory = tempfile::tempdir().unwrap();
    let (mut anchors, mut journalled) = (Vec::new(), 0);
    for round in 0..ROUNDS {
        // xorshift64: delays need no better.
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        let mut child = child(directory.path());
        let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
        let mut said: Vec<String> = lines.next().into_iter().map(Result::unwrap).collect();
        thread::sleep(Duration::from_micros(random % 60_000));
        child.kill().unwrap();
        said.extend(lines.map_while(Result::ok));
        child.wait().unwrap();

        for line in said {
            let words: Vec<_> = line.split(' ').collect();
            match words[..] {
                ["acknowledged", "audit", sequence, hash] if hash.len() == 64 => {
                    let json = format!(r#"{{"kma":"kma1","sequence":{sequence},"hash":"{hash}","at_ns":0}}"#);
                    anchors.push(Anchor::from_json(&json).unwrap());
                }
                ["acknowledged", "journal", sequence, "-"] => journalled = journalled.max(sequence.parse().unwrap()),
                // Of its last line a killed process may have said a part.
                _ => println!("round {round}: {line}"),
            }
        }
        let report = verify(&kma(), &log_files(&directory.path().join("audit")).unwrap(), &anchors).unwrap();
        assert_eq!(report.finding, None, "round {round}");
        let (journal, start) = Journal::open(&directory.path().join("journal"), &kma(), &key()).unwrap();
        println!("round {round}: {start:?}, audit to {}, journal to {}", report.last.sequence, journal.sequence());
        assert!(journal.sequence() >= journalled, "round {round}: {} of {journalled}", journal.sequence());
        let mut expected = 0;
        for recorded in journal.pending() {
            expected += 1;
            assert_eq!((recorded.sequence, recorded.entry.path.as_str()), (expected, &*format!("key/{expected}")));
        }
        assert_eq!(expected, journal.sequence());
    }
    assert!(anchors.len() > ROUNDS && journalled > ROUNDS as u64, "{} and {journalled}", anchors.len());
}
