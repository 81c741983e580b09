//! `openssl s_client` as a peer that shares nothing with us.

use std::io::Write;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use capstan_keys::cluster::Identity;
use capstan_service::identity::{PresentedCertificate, member_tls};
use capstan_service::listener::{ConnectionCounts, ListenerLimits, serve_streams};
use capstan_service::shutdown::ShutdownTrigger;
use tempfile::TempDir;
use tokio::net::TcpListener;

use crate::node::{Node, Site, clock, echo, gate};

const QUESTION: &str = "GET /v1/whoami HTTP/1.1\r\nHost: kma\r\nConnection: close\r\n\r\n";

struct Peer {
    directory: TempDir,
}

impl Peer {
    fn new(identity: &Identity) -> Self {
        let directory = TempDir::new().unwrap();
        identity.save(&directory.path().join("identity.pem")).unwrap();
        let pem = std::fs::read_to_string(directory.path().join("identity.pem")).unwrap();
        let authority = &pem[pem.rfind("-----BEGIN").unwrap()..];
        std::fs::write(directory.path().join("authority.pem"), authority).unwrap();
        Self { directory }
    }

    fn file(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// What `s_client` prints on both of its outputs, having sent `input`.
    fn says(&self, address: std::net::SocketAddr, arguments: &[&str], input: &str) -> String {
        let mut child = Command::new("openssl")
            .args(["s_client", "-connect", &address.to_string(), "-CAfile"])
            .arg(self.file("authority.pem"))
            .args(["-verify_return_error", "-verify_ip", "127.0.0.1", "-ign_eof"])
            .args(arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        // It may be gone already, which is what some of this tests.
        let _ = child.stdin.take().unwrap().write_all(input.as_bytes());
        let output = child.wait_with_output().unwrap();
        String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned()
    }

    fn with_certificate(&self, address: std::net::SocketAddr, more: &[&str], input: &str) -> String {
        let identity = self.file("identity.pem");
        let identity = identity.to_str().unwrap();
        self.says(address, &[&["-tls1_3", "-cert", identity, "-key", identity], more].concat(), input)
    }
}

#[test]
fn only_who_has_a_certificate_is_served() {
    let site = Site::new();
    let node = Node::start(&site, "KMA1", ListenerLimits::default());
    let peer = Peer::new(&site.identity("agent/DRIVE1"));
    let said = peer.with_certificate(node.address, &[], QUESTION);
    assert!(said.contains("200 OK") && said.contains(r#""agent/DRIVE1""#), "{said}");
    assert!(said.contains("Verify return code: 0 (ok)") || said.contains("Verification: OK"), "{said}");

    let without = peer.says(node.address, &["-tls1_3"], QUESTION);
    assert!(without.contains("certificate required") && !without.contains("200 OK"), "{without}");
    let stranger = Peer::new(&Site::new().identity("agent/DRIVE1"));
    std::fs::copy(peer.file("authority.pem"), stranger.file("authority.pem")).unwrap();
    let of_another_cluster = stranger.with_certificate(node.address, &[], QUESTION);
    assert!(of_another_cluster.contains("alert") && !of_another_cluster.contains("200 OK"), "{of_another_cluster}");
}

#[test]
fn nothing_older_than_tls_1_3_is_spoken() {
    let site = Site::new();
    let node = Node::start(&site, "KMA1", ListenerLimits::default());
    let peer = Peer::new(&site.identity("agent/DRIVE1"));
    let identity = peer.file("identity.pem");
    let identity = identity.to_str().unwrap();
    for address in [node.address, node.strangers] {
        let said = peer.says(address, &["-tls1_2", "-cert", identity, "-key", identity], QUESTION);
        assert!(said.contains("protocol version") && !said.contains("200 OK"), "{said}");
    }
}

/// A ticket is resumed, and who resumes one is looked at as if he came anew.
#[test]
fn sessions_are_resumed_and_do_not_outlive_a_revocation() {
    let site = Site::new();
    let node = Node::start(&site, "KMA1", ListenerLimits::default());
    let identity = site.identity("agent/DRIVE1");
    let peer = Peer::new(&identity);
    let session = peer.file("session");
    let session = session.to_str().unwrap();
    let first = peer.with_certificate(node.address, &["-sess_out", session], QUESTION);
    assert!(first.contains("New, TLSv1.3") && first.contains("200 OK"), "{first}");
    let again = peer.with_certificate(node.address, &["-sess_in", session], QUESTION);
    assert!(again.contains("Reused, TLSv1.3") && again.contains(r#""agent/DRIVE1""#), "{again}");
    site.revoke(&identity);
    let revoked = peer.with_certificate(node.address, &["-sess_in", session], QUESTION);
    assert!(revoked.contains("403 Forbidden") && revoked.contains("revoked"), "{revoked}");
}

#[test]
fn a_listener_for_streams_knows_its_peers() {
    let site = Site::new();
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let listener = runtime.block_on(TcpListener::bind("127.0.0.1:0")).unwrap();
    let address = listener.local_addr().unwrap();
    let presented = PresentedCertificate::new(&site.identity("kma/KMA1")).unwrap();
    let tls = member_tls(presented, site.authority.certificate().clone(), clock(&site)).unwrap();
    let (trigger, shutdown) = ShutdownTrigger::new();
    let served = runtime.spawn(serve_streams(
        listener,
        tls,
        gate(&site),
        ListenerLimits::default(),
        ConnectionCounts::default(),
        shutdown,
        echo,
    ));
    let peer = Peer::new(&site.identity("kmip/LIBRARY1"));
    // `Q` on a line of its own makes s_client leave, except with -ign_eof; so our end closes the listener's half.
    let identity = peer.file("identity.pem");
    let mut child = Command::new("openssl")
        .args(["s_client", "-connect", &address.to_string(), "-quiet", "-no_ign_eof", "-cert"])
        .arg(&identity)
        .arg("-key")
        .arg(&identity)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut reader = std::io::BufReader::new(child.stdout.take().unwrap());
    let mut stdin = child.stdin.take().unwrap();
    let mut line = String::new();
    std::io::BufRead::read_line(&mut reader, &mut line).unwrap();
    assert_eq!(line, "you are kmip/LIBRARY1\n");
    stdin.write_all(b"say it again\n").unwrap();
    line.clear();
    std::io::BufRead::read_line(&mut reader, &mut line).unwrap();
    assert_eq!(line, "say it again\n");
    drop(stdin);
    child.wait().unwrap();
    trigger.begin();
    runtime.block_on(served).unwrap();
}
