//! A disk that is really full below the audit log and the journal: a file system in memory, mounted in a namespace of
//! the test's own.

use std::fs::{self, File};
use std::io::{ErrorKind, Write};
use std::path::Path;
use std::process::Command;

use capstan_keyd::authority::Act;
use capstan_keyd::journal::{Journal, JournalEntry, JournalError};
use capstan_keys::{Name, Secret};
use capstan_service::audit::{
    Anchor, AuditAction, AuditActor, AuditEntry, AuditError, AuditLog, AuditOrigin, RESERVE_LEN, log_files, verify,
};

const DIRECTORY: &str = "CAPSTAN_TEST_SMALL_DISK";

fn name(text: &str) -> Name {
    text.parse().unwrap()
}

fn change() -> AuditEntry {
    AuditEntry::new(AuditActor::peer("user", name("anna")), AuditOrigin::Here, Act::AddPolicy)
}

fn reading() -> AuditEntry {
    AuditEntry::new(AuditActor::peer("agent", name("d1")), AuditOrigin::Here, AuditAction::named("key-for-reading"))
        .reading()
}

fn assigned() -> JournalEntry {
    JournalEntry { kind: 1, path: "key/1".to_owned(), sealed: vec![1; 5000] }
}

/// Fills the disk to the last byte.
fn fill(path: &Path) {
    let mut file = File::create(path).unwrap();
    for len in [64 << 10, 1] {
        let zeros = vec![0; len];
        loop {
            match file.write(&zeros) {
                Ok(0) => break,
                Ok(_) => {}
                Err(error) if error.kind() == ErrorKind::StorageFull => break,
                Err(error) => panic!("{error}"),
            }
        }
    }
}

#[test]
#[ignore = "the other process of the test here, with a small disk of its own"]
fn on_a_small_disk() {
    let disk = std::env::var(DIRECTORY).unwrap();
    let (disk, fill_path) = (Path::new(&disk), Path::new(&disk).join("fill"));
    let audit = disk.join("audit");
    let log = AuditLog::open(&audit, &name("kma1"), 0).unwrap();
    let key = Secret::random().unwrap();
    let (mut journal, _) = Journal::open(&disk.join("journal"), &name("kma1"), &key).unwrap();
    log.note_blocking(change(), 1).unwrap();
    journal.append(assigned()).unwrap();
    fill(&fill_path);

    // A change finds some room in the last block of the file, and then none.
    let refused = (0..100).find_map(|_| log.note_blocking(change(), 1).err()).unwrap();
    assert!(matches!(refused, AuditError::DiskFull { .. }), "{refused:?}");
    let refused = journal.append(assigned()).unwrap_err();
    assert!(matches!(refused, JournalError::NotNoted { .. }), "{refused:?}");

    assert!(fs::metadata(audit.join("reserve")).unwrap().len() == RESERVE_LEN);
    for _ in 0..1000 {
        log.note_blocking(reading(), 1).unwrap();
    }
    assert!(!audit.join("reserve").exists());
    assert!(matches!(log.note_blocking(change(), 1), Err(AuditError::DiskFull { .. })));

    fs::remove_file(&fill_path).unwrap();
    let head = log.note_blocking(change(), 1).unwrap();
    assert!(audit.join("reserve").exists());
    assert_eq!(journal.append(assigned()).unwrap(), 2);
    drop(journal);
    let (journal, _) = Journal::open(&disk.join("journal"), &name("kma1"), &key).unwrap();
    assert_eq!(journal.pending().count(), 2);
    log.close();
    let report = verify(&name("kma1"), &log_files(&audit).unwrap(), &[Anchor { kma: name("kma1"), head, at_ns: 0 }]);
    assert_eq!(report.unwrap().finding, None);
}

#[test]
fn a_full_disk_stops_changes_and_not_reading() {
    let namespace = ["--mount", "--map-root-user"];
    if !Command::new("unshare").args(namespace).arg("true").status().is_ok_and(|status| status.success()) {
        println!("namespaces are forbidden here: nothing was tested");
        return;
    }
    let disk = tempfile::tempdir().unwrap();
    let script = format!(
        r#"mount -t tmpfs -o size=8m tmpfs "${DIRECTORY}" && exec "$0" --exact full_disk::on_a_small_disk --ignored --nocapture"#
    );
    let mut command = Command::new("unshare");
    command.args(namespace).args(["sh", "-c", &script]).arg(std::env::current_exe().unwrap());
    let output = command.env(DIRECTORY, disk.path()).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert!(String::from_utf8_lossy(&output.stdout).contains("1 passed"), "{output:?}");
}
