//! libiscsi's tools: initiators that nobody here wrote.

use std::process::{Command, Output};

use capstan_vtl::iscsi::{ChapCredentials, ChapSecret, Discovery, TargetConfig};

use super::device::{Bench, TARGET, config};

/// Runs a tool; where it is not installed (package libiscsi-bin) the test says so and shows nothing.
fn run(tool: &str, arguments: &[&str]) -> Option<Output> {
    match Command::new(tool).args(arguments).output() {
        Ok(output) => Some(output),
        Err(error) => {
            println!("{tool} was not run: {error}");
            None
        }
    }
}

fn text(output: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}

#[test]
fn libiscsi_finds_target_and_units() {
    let bench = Bench::new();
    let portal = format!("iscsi://{}", bench.address());
    let Some(output) = run("iscsi-ls", &["--show-luns", &portal]) else { return };
    let told = text(&output);
    assert!(output.status.success() && told.contains(TARGET), "{told}");
    assert!(["Lun:0", "Lun:1", "Lun:2"].iter().all(|lun| told.contains(lun)), "{told}");
    let unit = format!("{portal}/{TARGET}/1");
    let Some(output) = run("iscsi-inq", &[&unit]) else { return };
    let told = text(&output);
    assert!(output.status.success() && told.contains("Vendor:CAPSTAN") && told.contains("TEST TAPE"), "{told}");
}

#[test]
fn libiscsi_proves_itself() {
    let secret = |secret: &[u8]| ChapSecret::new(secret.to_vec().into()).unwrap();
    let chap = ChapCredentials { name: "host".into(), secret: secret(b"correct-horse") };
    let bench = Bench::with(TargetConfig { chap: Some(chap), discovery: Discovery::LikeLogin, ..config() });
    let address = bench.address();
    let Some(output) = run("iscsi-inq", &[&format!("iscsi://host%correct-horse@{address}/{TARGET}/0")]) else { return };
    assert!(output.status.success() && text(&output).contains("Vendor:CAPSTAN"), "{}", text(&output));
    for wrong in ["host%battery-staple@", "other%correct-horse@", ""] {
        let Some(output) = run("iscsi-inq", &[&format!("iscsi://{wrong}{address}/{TARGET}/0")]) else { return };
        assert!(!output.status.success() && !text(&output).contains("Vendor"), "{wrong}: {}", text(&output));
        let Some(output) = run("iscsi-ls", &[&format!("iscsi://{wrong}{address}")]) else { return };
        assert!(!text(&output).contains(TARGET), "{wrong}: {}", text(&output));
    }
    assert!(bench.server.sessions().is_empty());
}
