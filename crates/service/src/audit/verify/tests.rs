//! Logs that were altered in every way, checked by this program and by the checker in Python.

#![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

use std::fs;
use std::path::Path;
use std::process::Command;

use super::super::{AuditAction, AuditEntry, AuditLog, LineHash};
use super::*;

fn kma() -> Name {
    "kma1".parse().unwrap()
}

/// A log of ten records in one file, as lines, and its heads.
fn log(directory: &Path) -> (Vec<String>, Vec<LogHead>) {
    let log = AuditLog::open(directory, &kma(), 0).unwrap();
    let mut heads = vec![LogHead::NONE, log.head()];
    for number in 2..=10u64 {
        heads.push(
            log.note_blocking(AuditEntry::own(AuditAction::named("pool-filled")).with("number", number), 1).unwrap(),
        );
    }
    log.close();
    let text = fs::read_to_string(directory.join("000000000001.jsonl")).unwrap();
    (text.split_inclusive('\n').map(str::to_owned).collect(), heads)
}

fn anchor(head: LogHead) -> Anchor {
    Anchor { kma: kma(), head, at_ns: 0 }
}

/// The finding of this program for lines in one file, after the checker in Python was seen to agree on whether there is
/// one.
fn finding(lines: &[String], anchors: &[Anchor]) -> Option<AuditFinding> {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("000000000001.jsonl");
    fs::write(&file, lines.concat()).unwrap();
    let finding = verify(&kma(), std::slice::from_ref(&file), anchors).unwrap().finding;

    let mut checker = Command::new("python3");
    checker.arg(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/audit.py")).arg("--kma").arg("kma1");
    for anchor in anchors {
        checker.arg("--anchor").arg(anchor.to_json());
    }
    let output = checker.arg(&file).output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert_eq!(output.status.success(), finding.is_none(), "{finding:?}, and the checker: {output:?}");
    match &finding {
        Some(AuditFinding::Missing { first, .. }) => {
            assert!(said.contains(&format!("record {first} is missing")), "{said}");
        }
        Some(AuditFinding::Altered { sequence, .. }) => {
            assert!(said.contains(&format!("record {sequence} ")), "{said}");
        }
        _ => {}
    }
    finding
}

#[test]
fn a_whole_log_is_whole_and_an_anchor_vouches_up_to_itself() {
    let directory = tempfile::tempdir().unwrap();
    let (lines, heads) = log(directory.path());
    assert_eq!(finding(&lines, &[]), None);
    assert_eq!(finding(&lines, &[anchor(heads[4]), anchor(heads[10])]), None);
    let files = [directory.path().join("000000000001.jsonl")];
    let report = verify(&kma(), &files, &[anchor(heads[4])]).unwrap();
    assert_eq!((report.first, report.last, report.anchored_to), (1, heads[10], 4));
}

#[test]
fn the_first_record_that_is_altered_is_named() {
    let directory = tempfile::tempdir().unwrap();
    let (lines, heads) = log(directory.path());
    for at in [2, 5, 9] {
        // What it says, and what it says it followed.
        for (from, to) in [("pool-filled", "pool-killed"), ("\"before\":\"", "\"before\":\"0")] {
            let mut altered = lines.clone();
            altered[at - 1] = altered[at - 1].replace(from, to);
            let found = finding(&altered, &[]);
            assert!(
                matches!(found, Some(AuditFinding::Altered { sequence, .. }) if sequence == at as u64),
                "{at}: {found:?}"
            );
        }
        let mut garbled = lines.clone();
        garbled[at - 1] = garbled[at - 1].replacen('{', "", 1);
        let found = finding(&garbled, &[]);
        assert!(
            matches!(found, Some(AuditFinding::Altered { sequence, .. }) if sequence == at as u64),
            "{at}: {found:?}"
        );
    }
    // The last one is vouched for by its anchor alone.
    let mut altered = lines.clone();
    altered[9] = altered[9].replace("pool-filled", "pool-killed");
    assert_eq!(finding(&altered, &[]), None);
    assert_eq!(finding(&altered, &[anchor(heads[10])]), Some(AuditFinding::Rewritten { sequence: 10, whole_to: 0 }));
}

#[test]
fn records_that_are_gone_or_elsewhere_are_named() {
    let directory = tempfile::tempdir().unwrap();
    let (lines, heads) = log(directory.path());
    for at in [2, 5, 9usize] {
        let mut fewer = lines.clone();
        fewer.remove(at - 1);
        let found = finding(&fewer, &[]);
        let first = at as u64;
        assert!(
            matches!(found, Some(AuditFinding::Missing { first: f, last, .. }) if (f, last) == (first, first)),
            "{found:?}"
        );

        let mut swapped = lines.clone();
        swapped.swap(at - 1, at);
        let found = finding(&swapped, &[]);
        let (sequence, found_there) = (at as u64, at as u64 + 1);
        assert!(
            matches!(found, Some(AuditFinding::Reordered { sequence: s, found: f, .. }) if (s, f) == (sequence, found_there)),
            "{found:?}"
        );

        let mut twice = lines.clone();
        twice.insert(at, lines[at - 1].clone());
        assert!(matches!(finding(&twice, &[]), Some(AuditFinding::Reordered { .. })));
    }
    for len in [0, 4, 9] {
        let found = finding(&lines[..len], &[anchor(heads[10])]);
        assert_eq!(found, Some(AuditFinding::Shorter { last: len as u64, anchored: 10 }));
    }
}

/// Whoever has the node can write a log anew that is a chain: the anchor tells.
#[test]
fn a_log_written_anew_is_not_the_one_that_was_anchored() {
    let (directory, elsewhere) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let (lines, heads) = log(directory.path());
    let anew = AuditLog::open(elsewhere.path(), &kma(), 7).unwrap();
    for number in 2..=10u64 {
        anew.note_blocking(AuditEntry::own(AuditAction::named("nothing-at-all")).with("number", number), 1).unwrap();
    }
    anew.close();
    let text = fs::read_to_string(elsewhere.path().join("000000000001.jsonl")).unwrap();
    let anew: Vec<_> = text.split_inclusive('\n').map(str::to_owned).collect();
    assert_eq!(finding(&anew, &[]), None, "it is a chain");
    let anchors = [anchor(heads[3]), anchor(heads[8])];
    assert_eq!(finding(&anew, &anchors), Some(AuditFinding::Rewritten { sequence: 3, whole_to: 0 }));
    // From the fifth record on only, after an anchor.
    let mut from_fifth = lines[..4].to_vec();
    let mut before = heads[4].hash;
    for (at, line) in anew.iter().enumerate().skip(4) {
        let own_before = LineHash::of(anew[at - 1].as_bytes()).to_string();
        from_fifth.push(line.replace(&own_before, &before.to_string()));
        before = LineHash::of(from_fifth[at].as_bytes());
    }
    assert_eq!(finding(&from_fifth, &anchors), Some(AuditFinding::Rewritten { sequence: 8, whole_to: 3 }));
}

#[test]
fn another_nodes_log_is_not_this_ones() {
    let directory = tempfile::tempdir().unwrap();
    let (lines, _) = log(directory.path());
    let others: Vec<_> = lines.iter().map(|line| line.replace("kma1", "kma2")).collect();
    assert!(matches!(finding(&others, &[]), Some(AuditFinding::Altered { sequence: 1, .. })));
}

/// Old files may be put away; one from the middle may not.
#[test]
fn files_put_away_are_seen() {
    let directory = tempfile::tempdir().unwrap();
    let log = AuditLog::open_with(directory.path(), &kma(), 500, 0).unwrap();
    for number in 0..9u64 {
        log.note_blocking(AuditEntry::own(AuditAction::named("pool-filled")).with("number", number), 1).unwrap();
    }
    let head = log.close();
    let mut files = super::super::log_files(directory.path()).unwrap();
    assert!(files.len() >= 4, "{files:?}");
    let report = verify(&kma(), &files[1..], &[anchor(head)]).unwrap();
    assert!(report.first > 1 && report.finding.is_none() && report.anchored_to == head.sequence, "{report:?}");
    files.remove(1);
    assert!(matches!(verify(&kma(), &files, &[]).unwrap().finding, Some(AuditFinding::Missing { .. })));
}
