//! No key in a core dump: a process that has the keys of a cluster is dumped, and the dump is searched for them.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, Command, Stdio};

use aws_lc_rs::digest::{SHA256, digest};
use capstan_keys::Secret;

use super::*;

const INNER: &str = "CAPSTAN_TEST_DUMPED";

/// What must be found, so that not finding can be believed: 32 bytes on the heap that stand in no program file.
pub(crate) fn canary() -> Secret {
    let hash = digest(&SHA256, b"canary of the dump test");
    Secret::filled(|bytes| {
        bytes.copy_from_slice(hash.as_ref());
        Ok::<(), ()>(())
    })
    .unwrap()
}

fn open_fixture() -> (SealedRoot, OpenRoot) {
    let sealed = SealedRoot::read(&fixture("root.sealed")).unwrap();
    let shares = ["cyd", "bob"].map(|holder| share(&sealed, holder));
    let root = sealed.open_with_shares(&shares).unwrap();
    (sealed, root)
}

/// Ends the process that it started, whatever happens.
struct Dumped {
    child: Child,
    _stdin: ChildStdin,
}

impl Drop for Dumped {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// What a node does: opens its root, keeps root and cluster key, and seals and opens with them. Then it waits to be
/// dumped.
fn be_dumped() {
    let canary = canary();
    let (sealed, root) = open_fixture();
    let mut gate = Unlocking::default();
    for holder in ["ada", "cyd"] {
        gate.give(&sealed, share(&sealed, holder), 0).unwrap();
    }
    let keys = gate.keys().unwrap();
    let record = keys.sealer().seal("key/x", 1, 1, b"plaintext").unwrap();
    keys.sealer().open("key/x", &record).unwrap();
    keys.new_group_key(&name("weekly")).unwrap();
    wait_to_be_dumped();
    drop((canary, root, keys));
}

/// Runs this test again in a process of its own, which calls [`wait_to_be_dumped`], and gives its core dump.
pub(crate) fn dump_of(test: &str, mark: &str) -> Vec<u8> {
    let directory = tempfile::tempdir().unwrap();
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args([test, "--exact", "--nocapture"])
        .env(mark, "1")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let stdin = child.stdin.take().unwrap();
    let lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let dumped = Dumped { child, _stdin: stdin };
    assert!(lines.map_while(Result::ok).any(|line| line == "ready"), "the process to dump has ended");

    let core = directory.path().join("core");
    let output = Command::new("gcore").arg("-o").arg(&core).arg(dumped.child.id().to_string()).output();
    let output = output.unwrap_or_else(|error| panic!("gcore: {error}: install the package gdb (`./x test` does)"));
    let said = [output.stdout, output.stderr].concat();
    let dump = std::fs::read(directory.path().join(format!("core.{}", dumped.child.id())));
    dump.unwrap_or_else(|error| panic!("{error}: {}", String::from_utf8_lossy(&said)))
}

/// What the process to dump does in the end, with all it has.
pub(crate) fn wait_to_be_dumped() {
    println!("\nready");
    std::io::stdout().flush().unwrap();
    let _ = std::io::stdin().read_line(&mut String::new());
}

pub(crate) fn assert_absent(dump: &[u8], secrets: &[(&str, &[u8; 32])]) {
    let holds = |secret: &[u8; 32]| dump.windows(32).any(|window| window == secret);
    println!("a dump of {} bytes", dump.len());
    assert!(holds(canary().expose()), "the dump does not hold what every dump holds: this test proves nothing");
    for (what, secret) in secrets {
        assert!(!holds(secret), "the {what} is in the dump");
    }
}

#[test]
fn a_core_dump_holds_neither_root_nor_cluster_key() {
    if std::env::var_os(INNER).is_some() {
        return be_dumped();
    }
    let dump = dump_of("root::tests::dump::a_core_dump_holds_neither_root_nor_cluster_key", INNER);
    let (_, root) = open_fixture();
    assert_absent(&dump, &[("cluster key", root.keys.key().expose()), ("root key", root.root.expose())]);
}
