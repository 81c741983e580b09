//! The OASIS cases of KMIP 1.4, played by `tests/kmip/replay.py` against a server in this process; and the score in
//! `docs/KMIP.md`, which is what they give.
#![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

#[allow(dead_code, reason = "its main is not called here")]
#[path = "../examples/serve.rs"]
mod serve;

use std::net::{Ipv4Addr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use capstan_kmip::MemoryStore;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Plays cases against a server of their own.
fn replay(options: &[&str], cases: &[PathBuf]) -> Output {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let server = std::thread::spawn(move || serve::serve(&mut listener.accept().unwrap().0, &mut MemoryStore::new()));
    let output = Command::new("python3")
        .arg(root().join("tests/kmip/replay.py"))
        .args(["--connect", &address])
        .args(options)
        .args(cases)
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .output()
        .unwrap();
    server.join().unwrap().unwrap();
    output
}

fn cases() -> Vec<PathBuf> {
    let folder = std::fs::read_dir(root().join("testdata/kmip-1.4")).unwrap();
    let files = folder.map(|entry| entry.unwrap().path());
    files.filter(|path| path.extension().is_some_and(|extension| extension == "xml")).collect()
}

#[test]
fn every_symmetric_case_passes() {
    let output = replay(&[], &cases());
    let score = String::from_utf8(output.stdout).unwrap();
    println!("{score}{}", String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success());
    let count = |word: &str| score.lines().filter(|line| line.split_whitespace().nth(1) == Some(word)).count();
    assert_eq!((cases().len(), count("pass"), count("refused:")), (68, 51, 17));
}

#[test]
fn the_documented_score_is_the_score() {
    let output = replay(&["--table"], &cases());
    let table = String::from_utf8(output.stdout).unwrap();
    let documented = std::fs::read_to_string(root().join("docs/KMIP.md")).unwrap();
    assert!(documented.contains(&table), "put this into docs/KMIP.md:\n{table}");
}

/// A replayer that lets everything pass would prove nothing: cases with one thing changed must fail.
#[test]
fn changed_cases_fail() {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("changed_cases");
    std::fs::create_dir_all(&folder).unwrap();
    let changes = [
        ("SKLC-M-2-14", "value=\"Compromised\"", "value=\"Active\""),
        ("SKLC-M-2-14", "value=\"PermissionDenied\"", "value=\"InvalidField\""),
        ("CS-BC-M-4-14", "d9bcce11b0b437b90239552df3a360c9\"/>", "d9bcce11b0b437b90239552df3a360c8\"/>"),
        ("CS-BC-M-GCM-1-14", "ab6e47d42cec13bdf53a67b21257bddf", "ab6e47d42cec13bdf53a67b21257bdde"),
        (
            "TL-M-2-14",
            "<UniqueBatchItemID type=\"ByteString\" value=\"02\"/>\n    <ResultStatus",
            "<UniqueBatchItemID type=\"ByteString\" value=\"03\"/>\n    <ResultStatus",
        ),
        ("SASED-M-1-14", "value=\"SecretData\"", "value=\"State\""),
        (
            "SKFF-M-9-14",
            "<AttributeName type=\"TextString\" value=\"Revocation Reason\"/>",
            "<AttributeName type=\"TextString\" value=\"Archive Date\"/>",
        ),
    ];
    for (number, (case, from, to)) in changes.into_iter().enumerate() {
        let text = std::fs::read_to_string(root().join(format!("testdata/kmip-1.4/{case}.xml"))).unwrap();
        assert!(text.contains(from), "{case}");
        let changed = folder.join(format!("{case}-{number}.xml"));
        std::fs::write(&changed, text.replace(from, to)).unwrap();
        let output = replay(&[], &[changed]);
        assert!(!output.status.success(), "{case} passes with {to}: {}", String::from_utf8_lossy(&output.stdout));
    }
}
