//! libiscsi's tools: initiators that nobody here wrote.

use std::process::{Command, Output};
use std::sync::Arc;

use capstan_vtl::iscsi::{ChapCredentials, ChapSecret, Discovery, Server, TargetConfig};

use super::device::{Bench, TARGET, config};
use super::disk::Disk;

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

/// The part of libiscsi's conformance suite that is about the protocol. Left out: wrong DataSNs (`tests/protocol.rs`
/// has them), where the suite loses its own settings with the connection.
#[test]
fn libiscsi_sees_the_protocol_kept() {
    let server = Server::bind(config(), Arc::new(Disk::new())).unwrap();
    let unit = format!("iscsi://{}/{TARGET}/0", server.local_address());
    for (test, count) in [
        ("iSCSI.iSCSIcmdsn", 2),
        ("iSCSI.iSCSITMF", 2),
        ("iSCSI.iSCSIResiduals.Read10Invalid", 1),
        ("iSCSI.iSCSIResiduals.Read10Residuals", 1),
        ("iSCSI.iSCSIResiduals.Read12Residuals", 1),
        ("iSCSI.iSCSIResiduals.Read16Residuals", 1),
        ("iSCSI.iSCSIResiduals.Write10Residuals", 1),
        ("iSCSI.iSCSIResiduals.Write12Residuals", 1),
        ("iSCSI.iSCSIResiduals.Write16Residuals", 1),
    ] {
        let Some(output) = run("iscsi-test-cu", &["--dataloss", "--test", test, &unit]) else { return };
        let told = text(&output);
        // "tests", then how many there are, ran, passed, failed, were inactive.
        let row = told.lines().find_map(|line| line.trim().strip_prefix("tests")).unwrap_or_default();
        let counts: Vec<&str> = row.split_whitespace().collect();
        let count = count.to_string();
        assert_eq!(counts, [&count, &count, &count, "0", "0"], "{test}: {told}");
    }
}
