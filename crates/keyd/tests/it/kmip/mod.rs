//! KMIP as clients meet it: `keyd` as a process, its ledger a real etcd, and clients that share nothing with us (the
//! replayer of the OASIS cases, PyKMIP, openssl).
//!
//! They need the binaries `etcd`, `openssl` and Debian's `python3-pykmip`.

mod bench;
mod filled;
mod node;
mod rough;

use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;

use serde_json::json;

use node::Node;

fn project(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(path)
}

/// A program of `tests/kmip`, as the system's Python runs it: PyKMIP comes from its packages.
fn python(program: &str, node: &Node, client: &Path) -> Command {
    let mut command = Command::new("/usr/bin/python3");
    command
        .arg(project("tests/kmip").join(program))
        .args(["--connect", &node.kmip])
        .env("PYTHONDONTWRITEBYTECODE", "1");
    for (option, file) in [("--cert", "cert.pem"), ("--key", "key.pem"), ("--ca", "ca.pem")] {
        command.arg(option).arg(client.join(file));
    }
    command
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&[output.stdout.as_slice(), &output.stderr].concat()).into_owned()
}

fn done(mut command: Command) -> String {
    let output = command.output().unwrap();
    assert!(output.status.success(), "{}", said(&output));
    said(&output)
}

/// The score of the documentation is held by the whole of the node: TLS, ledger, sealed records.
#[tokio::test(flavor = "multi_thread")]
async fn the_cases_of_oasis_pass() {
    let node = Node::start().await;
    let client = node.enrol("cases").await;
    let mut replay = python("replay.py", &node, &client);
    replay.arg("--table");
    let cases = std::fs::read_dir(project("testdata/kmip-1.4")).unwrap().map(|entry| entry.unwrap().path());
    replay.args(cases.filter(|path| path.extension().is_some_and(|extension| extension == "xml")));
    let table = done(replay);
    let documented = std::fs::read_to_string(project("docs/KMIP.md")).unwrap();
    assert!(documented.contains(table.trim()), "{table}");

    // The same in 2.1, by a client of its own: the objects of another have the names already.
    let client = node.enrol("cases-of-2").await;
    let mut replay = python("replay.py", &node, &client);
    replay.args(["--version", "2.1"]);
    for folder in ["testdata/kmip-1.4", "testdata/kmip-2.1"] {
        let cases = std::fs::read_dir(project(folder)).unwrap().map(|entry| entry.unwrap().path());
        replay.args(cases.filter(|path| path.extension().is_some_and(|extension| extension == "xml")));
    }
    let score = done(replay);
    assert_eq!(score.matches(" pass\n").count(), 51 + 7, "{score}");
}

#[tokio::test(flavor = "multi_thread")]
async fn pykmip_keeps_keys_here() {
    let node = Node::start().await;
    let (library, other) = (node.enrol("library").await, node.enrol("other").await);
    let said = done({
        let mut life = python("pykmip.py", &node, &library);
        life.arg("life");
        life
    });
    assert_eq!(said.matches("done at KMIP 1.").count(), 5, "{said}");
    assert!(said.contains("done at KMIP 2.0"), "{said}");

    // What one client keeps another does not see.
    let uid = done(arguments(python("pykmip.py", &node, &library), &["create"]));
    let stolen = arguments(python("pykmip.py", &node, &other), &["get", uid.trim()]).output().unwrap();
    assert!(!stolen.status.success() && self::said(&stolen).contains("ITEM_NOT_FOUND"), "{}", self::said(&stolen));

    // Every act is in the audit log, with who did it.
    let log = node.audit();
    for operation in ["Create", "Get", "Locate", "Activate", "Revoke", "Destroy"] {
        let noted = |line: &&str| line.contains("kmip-client/library") && line.contains(&format!("\"{operation}\""));
        assert!(log.lines().any(|line| noted(&line)), "{operation} is not in the audit log:\n{log}");
    }
    let refused = |line: &&str| line.contains("kmip-client/other") && line.contains("ItemNotFound");
    assert!(log.lines().any(|line| refused(&line)), "{log}");
}

fn arguments(mut command: Command, arguments: &[&str]) -> Command {
    command.args(arguments);
    command
}

/// A node that cannot reach the majority gives the keys it knows and makes none; it says so, and goes on when it can.
#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_is_cut_off_reads_and_changes_nothing() {
    let node = Node::start().await;
    let client = node.enrol("library").await;
    let uid = done(arguments(python("pykmip.py", &node, &client), &["create"]));
    let key = done(arguments(python("pykmip.py", &node, &client), &["get", uid.trim()]));
    node.etcd.freeze(0);
    tokio::time::sleep(Duration::from_secs(4)).await;
    assert_eq!(done(arguments(python("pykmip.py", &node, &client), &["get", uid.trim()])), key);
    let refused = arguments(python("pykmip.py", &node, &client), &["create"]).output().unwrap();
    assert!(!refused.status.success() && said(&refused).contains("GENERAL_FAILURE"), "{}", said(&refused));
    assert!(said(&refused).contains("majority"), "{}", said(&refused));
    node.etcd.thaw(0);
    let again = || {
        let output = arguments(python("pykmip.py", &node, &client), &["create"]).output().unwrap();
        output.status.success()
    };
    assert!((0..20).any(|_| again()), "the node does not come back");
}

/// Two controllers of one library share its keys once a compliance officer says so, and no sooner; and a policy can end
/// what a node that is cut off goes on giving out. That record was read and could not be written, and such a node gave
/// out KMIP objects without an end.
#[tokio::test(flavor = "multi_thread")]
async fn a_client_is_assigned_a_domain_and_a_policy() {
    let node = Node::start().await;
    let (one, other) = (node.enrol("one").await, node.enrol("other").await);
    let (bob, eve) = (node.person("bob"), node.person("eve"));
    let get = |client: &Path, uid: &str| arguments(python("pykmip.py", &node, client), &["get", uid]);
    let uid = done(arguments(python("pykmip.py", &node, &one), &["create"]));
    let uid = uid.trim();
    let unseen = get(&other, uid).output().unwrap();
    assert!(!unseen.status.success() && said(&unseen).contains("ITEM_NOT_FOUND"), "{}", said(&unseen));
    for (who, command, why) in [
        (&eve, "kmip-clients assign other --domain one", "may not"),
        (&bob, "kmip-clients assign nobody --domain one", "There is no KMIP client nobody"),
        (&bob, "kmip-clients assign other --group brief", "There is no key group brief"),
    ] {
        let refused = node.asked(who, command);
        assert!(!refused.status.success() && said(&refused).contains(why), "{}", said(&refused));
    }
    for command in [
        "policies add brief --isolated-for 5s",
        "groups add brief --policy brief",
        "kmip-clients assign other --domain one",
        "kmip-clients assign one --group brief",
    ] {
        let output = node.asked(&bob, command);
        assert!(output.status.success(), "{command}: {}", said(&output));
    }
    let listed = said(&node.asked(&bob, "kmip-clients list --json"));
    let listed: Vec<serde_json::Value> = serde_json::from_str(&listed).unwrap();
    let assigned: Vec<_> = listed.iter().map(|client| (&client["name"], &client["assigned"])).collect();
    let (brief, default) = (json!({"domain": "one", "group": "brief"}), json!({"domain": "one", "group": "default"}));
    assert_eq!(assigned, [(&json!("one"), &brief), (&json!("other"), &default)]);
    let key = done(get(&one, uid));
    assert_eq!(done(get(&other, uid)), key);

    node.etcd.freeze(0);
    tokio::time::sleep(Duration::from_secs(10)).await;
    let refused = get(&one, uid).output().unwrap();
    assert!(!refused.status.success() && said(&refused).contains("policy brief"), "{}", said(&refused));
    assert_eq!(done(get(&other, uid)), key, "the group default has no limit");
    node.etcd.thaw(0);
    assert!((0..20).any(|_| get(&one, uid).output().unwrap().status.success()), "the node does not come back");
}

/// A node is killed while it commits and answers: what was answered is there afterwards, byte for byte.
#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_is_killed_loses_nothing_that_it_answered() {
    let mut node = Node::start().await;
    let client = node.enrol("library").await;
    let mut acknowledged: Vec<String> = Vec::new();
    for round in 0..3 {
        let mut asking = arguments(python("pykmip.py", &node, &client), &["keep-creating"])
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(asking.stdout.take().unwrap()).lines();
        acknowledged.extend(lines.by_ref().take(5 + 7 * round).map(Result::unwrap));
        node.kill();
        // What it had printed by then counts as well.
        acknowledged.extend(lines.map_while(Result::ok));
        end(asking);
        node.run_again();
    }
    assert!(acknowledged.len() >= 30, "{} were acknowledged", acknowledged.len());
    let mut check = arguments(python("pykmip.py", &node, &client), &["check"]).stdin(Stdio::piped()).spawn().unwrap();
    check.stdin.take().unwrap().write_all((acknowledged.join("\n") + "\n").as_bytes()).unwrap();
    assert!(check.wait().unwrap().success(), "what was answered is not there");
}

fn end(mut child: Child) {
    let _ = child.kill();
    child.wait().unwrap();
}

/// What openssl hears when it asks for the versions that the node speaks.
fn discover(node: &Node, folder: &Path, more: &[&str]) -> Output {
    // Discover Versions of KMIP 1.2.
    let request = "42007801000000604200770100000038420069010000002042006a0200000004000000010000000042006b02000000040000000200\
        0000004200 0d0200000004000000010000000042000f010000001842005c05000000040000001e000000004200790100000000";
    let digits: Vec<u8> = request.chars().filter_map(|digit| digit.to_digit(16)).map(|digit| digit as u8).collect();
    let request: Vec<u8> = digits.chunks(2).map(|pair| pair[0] << 4 | pair[1]).collect();
    let mut openssl = Command::new("timeout");
    openssl.args(["3", "openssl", "s_client", "-quiet", "-connect", &node.kmip, "-verify_return_error", "-CAfile"]);
    openssl.arg(folder.join("ca.pem")).args(more);
    openssl.arg("-cert").arg(folder.join("cert.pem")).arg("-key").arg(folder.join("key.pem"));
    let mut child = openssl.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    // It may be gone already, which is what some of this tests. Its input stays open until it ends.
    let mut input = child.stdin.take().unwrap();
    let _ = input.write_all(&request);
    let output = child.wait_with_output().unwrap();
    drop(input);
    output
}

/// Libraries with nothing newer than TLS 1.2 are let in where that is allowed, with suites that have not been broken.
#[tokio::test(flavor = "multi_thread")]
async fn tls_1_2_is_spoken_where_it_is_allowed() {
    let mut node = Node::start().await;
    let (client, agent) = (node.enrol("library").await, node.enrol_as("agent/DRIVE1").await);
    node.kill();
    node.set("kmip_tls_oldest = \"1.2\"");
    node.run_again();
    let response = [0x42, 0x00, 0x7b, 0x01];
    for version in [["-tls1_2"].as_slice(), &["-tls1_3"], &["-tls1_2", "-cipher", "ECDHE-ECDSA-AES256-GCM-SHA384"]] {
        let welcome = discover(&node, &client, version);
        assert!(welcome.stdout.starts_with(&response), "{version:?}: {}", said(&welcome));
    }
    // Suites without AEAD are not; nor is anybody else's certificate.
    let cbc = discover(&node, &client, &["-tls1_2", "-cipher", "ECDHE-ECDSA-AES128-SHA256"]);
    assert!(cbc.stdout.is_empty() && said(&cbc).contains("handshake failure"), "{}", said(&cbc));
    let refused = discover(&node, &agent, &["-tls1_2"]);
    assert!(said(&refused).contains("is no KMIP client"), "{}", said(&refused));
    // The door of agents and people stays as it was.
    let mut other = Command::new("timeout");
    other
        .args(["3", "openssl", "s_client", "-tls1_2", "-connect", &node.address, "-CAfile"])
        .arg(client.join("ca.pem"));
    other.arg("-cert").arg(client.join("cert.pem")).arg("-key").arg(client.join("key.pem"));
    let other = other.stdin(Stdio::null()).output().unwrap();
    assert!(said(&other).contains("protocol version"), "{}", said(&other));
}

/// A KMIP client's certificate is renewed from half of its time on, and works until its end beside the new one: nothing
/// stops.
#[tokio::test(flavor = "multi_thread")]
async fn a_certificate_is_renewed_in_time_without_a_stop() {
    let node = Node::start().await;
    let client = node.enrol("library").await;
    let early = node.renew(&client, "renewed");
    assert!(!early.status.success() && said(&early).contains("holds for long enough"), "{}", said(&early));
    let old = node.enrolled_before("array", 50).await;
    let uid = done(arguments(python("pykmip.py", &node, &old), &["create"]));
    let key = done(arguments(python("pykmip.py", &node, &old), &["get", uid.trim()]));
    let renewed = node.renew(&old, "array.new");
    assert!(renewed.status.success(), "{}", said(&renewed));
    for folder in [old.with_file_name("array.new"), old] {
        assert_eq!(done(arguments(python("pykmip.py", &node, &folder), &["get", uid.trim()])), key);
    }
    // Nothing is overwritten, and nothing is asked for in vain.
    let taken = node.renew(&client, "library");
    assert!(said(&taken).contains("exists already"), "{}", said(&taken));
    assert!(discover(&node, &client, &[]).stdout.starts_with(&[0x42, 0x00, 0x7b, 0x01]), "the old one still holds");
}

#[tokio::test(flavor = "multi_thread")]
async fn only_certificates_of_kmip_clients_open_the_door() {
    let node = Node::start().await;
    let (client, agent) = (node.enrol("library").await, node.enrol_as("agent/DRIVE1").await);
    let with = |folder: &Path, more: &[&str]| discover(&node, folder, more);
    let response = [0x42, 0x00, 0x7b, 0x01];
    let welcome = with(&client, &[]);
    assert!(welcome.stdout.starts_with(&response), "{}", said(&welcome));
    let versions = [0x42, 0x00, 0x69, 0x01];
    assert!(welcome.stdout.windows(4).filter(|bytes| bytes == &versions).count() > 5, "{}", said(&welcome));

    let refused = with(&agent, &[]);
    assert!(
        refused.stdout.starts_with(&response) && said(&refused).contains("is no KMIP client"),
        "{}",
        said(&refused)
    );
    let older = with(&client, &["-tls1_2"]);
    assert!(older.stdout.is_empty() && said(&older).contains("protocol version"), "{}", said(&older));
    let mut nobody = Command::new("timeout");
    nobody.args(["3", "openssl", "s_client", "-quiet", "-connect", &node.kmip, "-CAfile"]).arg(client.join("ca.pem"));
    let nobody = nobody.stdin(Stdio::null()).output().unwrap();
    assert!(nobody.stdout.is_empty() && said(&nobody).contains("certificate required"), "{}", said(&nobody));
}
