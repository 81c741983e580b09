//! How fast KMIP clients are answered, beside PyKMIP's server:
//! `cargo test --release -p capstan-keyd --test it -- --ignored --nocapture kmip::bench::measure`, or `./x bench keys`.
//!
//! One client, `tests/kmip/bench.py`, loads both in turn with the same messages. PyKMIP's keeps its objects in SQLite
//! without a second copy, in the clear, and speaks TLS 1.2; a node commits to etcd, here one member on the same disk,
//! and notes every act in its audit log.

use std::fs;
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use capstan_keyd::ledger::{Entry, Snapshot};
use capstan_keyd::replica::Replica;
use capstan_keyd::service::StateDirectory;
use tempfile::TempDir;

use super::node::Node;
use super::{arguments, done, project};

fn object_count() -> usize {
    std::env::var("CAPSTAN_KEYS").map_or(1_000_000, |text| text.parse().unwrap())
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "a measurement of minutes"]
async fn measure() {
    {
        let peer = PyKmip::start();
        print!(
            "{}",
            done(arguments(client(&peer.address, peer.folder.path()), &["keys", "--server", "PyKMIP's server"]))
        );
    }
    let mut node = Node::start().await;
    let files = node.enrol("library").await;
    print!("{}", done(arguments(client(&node.kmip, &files), &["keys", "--server", "KMIP"])));

    let uid = done(arguments(client(&node.kmip, &files), &["make"])).trim().to_owned();
    // Its replica's disk has it a moment after its maker knows.
    sleep(Duration::from_secs(2));
    node.kill();
    let count = object_count();
    fill(&node, &uid, count).await;
    let began = Instant::now();
    node.run_again();
    println!("measured KMIP, start with {count} objects, to unlocked: {:.1} s", began.elapsed().as_secs_f64());
    let of = count.to_string();
    print!("{}", done(arguments(client(&node.kmip, &files), &["locate", "--server", "KMIP", "--of", &of])));
}

fn client(address: &str, files: &Path) -> Command {
    let mut command = Command::new("/usr/bin/python3");
    command.arg(project("tests/kmip/bench.py")).args(["--connect", address]).env("PYTHONDONTWRITEBYTECODE", "1");
    for (option, file) in [("--cert", "cert.pem"), ("--key", "key.pem"), ("--ca", "ca.pem")] {
        command.arg(option).arg(files.join(file));
    }
    command
}

/// Puts copies of an object into the node's replica, each with a Unique Identifier and an Application Specific
/// Information of its own: to create a million through the ledger would take an hour.
async fn fill(node: &Node, uid: &str, count: usize) {
    let (_, settings) = StateDirectory::open(&node.state()).unwrap();
    let path = node.state().join("replica.db");
    let mut entries = Vec::new();
    let cluster = settings.cluster.to_string();
    let mut replica = Replica::open(&path, &cluster, settings.epoch.into(), |entry| entries.push(entry)).unwrap();
    let keys = node.cluster_keys();
    let sample = entries.iter().find(|entry| entry.path == format!("kmip/{uid}")).unwrap().clone();
    let plaintext = keys.sealer().open(&sample.path, &sample.sealed).unwrap().plaintext;
    for number in 1..count {
        let own = format!("{number:0width$x}", width = uid.len());
        let mut plaintext = plaintext.to_vec();
        replace(&mut plaintext, uid.as_bytes(), own.as_bytes());
        replace(&mut plaintext, format!("{:064X}", 0).as_bytes(), format!("{number:064X}").as_bytes());
        let path = format!("kmip/{own}");
        let sealed = keys.sealer().seal(&path, settings.epoch, 1, &plaintext).unwrap();
        entries.push(Entry { path, sealed, revision: sample.revision });
    }
    entries.sort_by(|one, other| one.path.cmp(&other.path));
    let revision = replica.applied().unwrap();
    replica.reset(&Snapshot { revision, entries }).unwrap();
}

/// Puts bytes in the place of as many others, which are there.
fn replace(bytes: &mut [u8], from: &[u8], to: &[u8]) {
    assert_eq!(from.len(), to.len());
    let at = bytes.windows(from.len()).position(|window| window == from).unwrap();
    bytes[at..at + to.len()].copy_from_slice(to);
}

/// PyKMIP's server with certificates of its own.
struct PyKmip {
    process: Child,
    address: String,
    folder: TempDir,
}

impl PyKmip {
    fn start() -> Self {
        let folder = tempfile::Builder::new().prefix("capstan-pykmip.").tempdir().unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        drop(listener);
        let at = |file: &str| folder.path().join(file).display().to_string();
        let certificate = |name: &str, more: &[&str]| {
            let mut openssl = Command::new("openssl");
            openssl.args(["req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]);
            openssl.args(["-days", "2", "-subj", &format!("/CN={name}"), "-keyout", &at(&format!("{name}.key"))]);
            openssl.args(["-out", &at(&format!("{name}.pem"))]).args(more);
            done(openssl);
        };
        certificate("ca", &["-addext", "keyUsage=critical,keyCertSign"]);
        for (name, usage) in [("server", "serverAuth"), ("client", "clientAuth")] {
            let (usage, ca, key) = (format!("extendedKeyUsage={usage}"), at("ca.pem"), at("ca.key"));
            let usual = ["-addext", "basicConstraints=critical,CA:FALSE", "-addext", "subjectAltName=IP:127.0.0.1"];
            certificate(name, &[&usual[..], &["-CA", &ca, "-CAkey", &key, "-addext", &usage]].concat());
        }
        fs::rename(at("client.pem"), at("cert.pem")).unwrap();
        fs::rename(at("client.key"), at("key.pem")).unwrap();
        let settings = [
            ("hostname", "127.0.0.1".to_owned()),
            ("port", port.to_string()),
            ("certificate_path", at("server.pem")),
            ("key_path", at("server.key")),
            ("ca_path", at("ca.pem")),
            ("auth_suite", "TLS1.2".to_owned()),
            ("policy_path", at("")),
            ("enable_tls_client_auth", "True".to_owned()),
            ("tls_cipher_suites", "TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384".to_owned()),
            ("logging_level", "ERROR".to_owned()),
            ("database_path", at("pykmip.db")),
        ];
        let lines: Vec<_> = settings.iter().map(|(name, value)| format!("{name}={value}")).collect();
        fs::write(at("server.conf"), format!("[server]\n{}\n", lines.join("\n"))).unwrap();
        let log = fs::File::create(at("said")).unwrap();
        let mut command = Command::new("/usr/bin/python3");
        command.args(["-W", "ignore", "-c", "from kmip.services.server.server import main; main()"]);
        command.args(["-f", &at("server.conf"), "-l", &at("server.log")]);
        command.stdin(Stdio::null()).stdout(log.try_clone().unwrap()).stderr(log);
        let peer = Self { process: command.spawn().unwrap(), address: format!("127.0.0.1:{port}"), folder };
        let began = Instant::now();
        while TcpStream::connect(&peer.address).is_err() {
            let said = fs::read_to_string(peer.folder.path().join("said")).unwrap_or_default();
            assert!(began.elapsed() < Duration::from_secs(60), "PyKMIP's server does not listen: {said}");
            sleep(Duration::from_millis(100));
        }
        peer
    }
}

impl Drop for PyKmip {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
