//! The OASIS cases of KMIP 1.4, played by `tests/kmip/replay.py` against a server in this process, as they are and said
//! in every other version; the cases of 2.1 that are our own; and the score in `docs/KMIP.md`, which is what they give.

#[allow(dead_code, reason = "its main is not called here")]
#[path = "../../examples/serve.rs"]
mod serve;

use std::net::{Ipv4Addr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use capstan_kmip::{MemoryStore, VERSIONS, Version};

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
    cases_of("kmip-1.4")
}

fn cases_of(folder: &str) -> Vec<PathBuf> {
    let folder = std::fs::read_dir(root().join("testdata").join(folder)).unwrap();
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

/// For each version a row: how many cases pass, are refused as the standard says, and need what the version does not
/// have.
#[test]
fn the_documented_score_of_every_version_is_the_score() {
    let documented = std::fs::read_to_string(root().join("docs/KMIP.md")).unwrap();
    for Version { major, minor } in VERSIONS {
        let version = format!("{major}.{minor}");
        let output = replay(&["--row", "--version", &version], &cases());
        let row = String::from_utf8(output.stdout).unwrap();
        assert!(output.status.success(), "{row}{}", String::from_utf8_lossy(&output.stderr));
        assert!(documented.contains(&row), "put this into docs/KMIP.md:\n{row}");
    }
}

#[test]
fn our_own_cases_of_2_1_pass() {
    let cases = cases_of("kmip-2.1");
    let output = replay(&["--version", "2.1"], &cases);
    let score = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success(), "{score}{}", String::from_utf8_lossy(&output.stderr));
    assert_eq!((cases.len(), score.matches(" pass\n").count()), (7, 7), "{score}");
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
    let changes = changes.into_iter().flat_map(|change| [("1.4", change), ("2.1", change)]);
    let of_two = [
        ("SET-1-21", "value=\"second\"/>\n      </Attributes>", "value=\"first\"/>\n      </Attributes>"),
        ("ADJUST-1-21", "type=\"Integer\" value=\"-2\"", "type=\"Integer\" value=\"-3\""),
        ("CURRENT-1-21", "AttributeInstanceNotFound", "AttributeNotFound"),
        ("UID-1-21", "value=\"PreActive\"", "value=\"Active\""),
        (
            "STORAGE-1-21",
            "<AttributeReference type=\"Enumeration\" value=\"KeyFormatType\"",
            "<AttributeReference type=\"Enumeration\" value=\"Comment\"",
        ),
    ];
    let changes = changes.chain(of_two.map(|change| ("2.1", change)));
    for (number, (version, (case, from, to))) in changes.enumerate() {
        let written = if case.ends_with("-21") { "2.1" } else { "1.4" };
        let text = std::fs::read_to_string(root().join(format!("testdata/kmip-{written}/{case}.xml"))).unwrap();
        assert!(text.contains(from), "{case}");
        let changed = folder.join(format!("{case}-{number}.xml"));
        std::fs::write(&changed, text.replace(from, to)).unwrap();
        let output = replay(&["--version", version], &[changed]);
        assert!(
            !output.status.success(),
            "{case} at {version} passes with {to}: {}",
            String::from_utf8_lossy(&output.stdout)
        );
    }
}
