//! A node that runs, with its etcd, and clients that are enrolled with it.

use std::io::{BufRead, BufReader};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use capstan_keyd::authority_record::AuthorityRecord;
use capstan_keyd::ledger::{Expected, Ledger, Outcome, Transaction};
use capstan_keyd::root::{ClusterKeys, SealedRoot, Unlocking};
use capstan_keyd::service::{KmaSettings, StateDirectory};
use capstan_keys::api::{Base64, IssuedCertificate, PeerId};
use capstan_keys::cluster::{CertificateKey, EnrolmentPassphrase};
use capstan_service::enrolment::Enrolment;
use capstan_service::identity::random_serial;
use tempfile::TempDir;
use zeroize::Zeroizing;

use crate::cheap_keyd::cheap_keyd;
use crate::etcd::{Etcd, PATIENT, free_ports};

const PASSPHRASE: &str = "a passphrase of the holder Ann";

/// The node. Both processes are killed when this is dropped.
pub(crate) struct Node {
    pub(crate) etcd: Etcd,
    folder: TempDir,
    /// Where KMIP clients reach it.
    pub(crate) kmip: String,
    /// Where agents and people reach it.
    pub(crate) address: String,
    enrol: String,
    process: Option<Child>,
    /// What its people were given to enrol with, as founding said it.
    said: String,
}

impl Node {
    /// Founds a cluster of one node, runs it, and unlocks it.
    pub(crate) async fn start() -> Self {
        Self::start_over(Etcd::start(1).await).await
    }

    /// The same over an etcd of its own kind.
    pub(crate) async fn start_over(etcd: Etcd) -> Self {
        let folder = tempfile::Builder::new().prefix("capstan-kmip.").tempdir().unwrap();
        let ports: [u16; 3] = free_ports(3).try_into().unwrap();
        let [address, enrol, kmip] = ports.map(|port| format!("127.0.0.1:{port}"));
        write_secret(&folder.path().join("passphrase"), PASSPHRASE);
        let mut node = Self { etcd, folder, kmip, address: address.clone(), enrol, process: None, said: String::new() };
        let file = node.file("passphrase");
        let mut found = Command::new(cheap_keyd());
        found.arg("init").arg("--state").arg(node.file("state")).args(["--name", "kma-1", "--address", &address]);
        found.args(["--listen", &address, "--enrol-listen", &node.enrol, "--kmip-listen", &node.kmip]);
        found.args(["--etcd", &node.etcd.endpoints()[0], "--holder", "ann", "--needed", "1", "--pool", "5"]);
        found.arg("--passphrase-file").arg(format!("ann={}", file.display()));
        let users = [
            "ann:security-officer,quorum-member",
            "bob:compliance-officer,quorum-member",
            "eve:operator,quorum-member",
        ];
        for user in users {
            found.args(["--user", user]);
        }
        node.said = done(found);
        node.run_again();
        node
    }

    /// Sets something in its `keyd.toml`; it takes effect when it runs again.
    pub(crate) fn set(&self, line: &str) {
        let file = self.file("state").join("keyd.toml");
        let settings = std::fs::read_to_string(&file).unwrap();
        std::fs::write(&file, format!("{line}\n{settings}")).unwrap();
    }

    /// Renews a client's certificate, into the folder `into`.
    pub(crate) fn renew(&self, client: &Path, into: &str) -> Output {
        let mut renew = self.keyd();
        renew
            .arg("renew")
            .arg("--split")
            .arg(client)
            .arg("--into")
            .arg(self.file(into))
            .args(["--node", &self.address]);
        renew.output().unwrap()
    }

    /// Runs it, after it was killed, and unlocks it.
    pub(crate) fn run_again(&mut self) {
        let mut run = self.keyd();
        run.args(["run", "--state"]).arg(self.file("state")).stdout(Stdio::piped());
        let log = std::fs::File::options().create(true).append(true).open(self.file("log")).unwrap();
        let mut process = run.stderr(log).spawn().unwrap();
        let mut ready = String::new();
        BufReader::new(process.stdout.take().unwrap()).read_line(&mut ready).unwrap();
        self.process = Some(process);
        assert!(ready.contains("is ready"), "{ready}{}", self.log());
        let mut unlock = self.keyd();
        unlock.args(["unlock", "--holder", "ann", "--state"]).arg(self.file("state"));
        unlock.arg("--passphrase-file").arg(self.file("passphrase"));
        // It says that it is ready before its socket is there.
        let unlocked = (0..50).any(|_| {
            std::thread::sleep(std::time::Duration::from_millis(100));
            unlock.output().unwrap().status.success()
        });
        assert!(unlocked, "{}", self.log());
    }

    /// Kills it (SIGKILL).
    pub(crate) fn kill(&mut self) {
        if let Some(mut process) = self.process.take() {
            let _ = process.kill();
            let _ = process.wait();
        }
    }

    /// Enrols a KMIP client; gives the folder with its `cert.pem`, `key.pem` and `ca.pem`.
    pub(crate) async fn enrol(&self, name: &str) -> PathBuf {
        self.enrol_as(&format!("kmip/{name}")).await
    }

    /// The same for any kind of peer.
    pub(crate) async fn enrol_as(&self, peer: &str) -> PathBuf {
        let peer: PeerId = peer.parse().unwrap();
        let passphrase = self.open_enrolment(&peer).await;
        let file = self.file(&format!("{}.passphrase", peer.name));
        write_secret(&file, &passphrase.expose());
        let folder = self.file(peer.name.as_str());
        let mut enrol = self.keyd();
        enrol.args(["enrol", "--at", &self.enrol, "--kind", &peer.kind.to_string(), "--name", peer.name.as_str()]);
        enrol.arg("--passphrase-file").arg(file).arg("--split").arg(&folder);
        // The node may not have heard of the enrolment yet, which costs no try.
        let enrolled = (0..50).any(|_| {
            std::thread::sleep(std::time::Duration::from_millis(100));
            enrol.output().unwrap().status.success()
        });
        assert!(enrolled, "{}", self.log());
        folder
    }

    /// Enrols one of its people; gives the file of their identity.
    pub(crate) fn person(&self, name: &str) -> PathBuf {
        let line = |line: &str| line.strip_prefix("  ")?.strip_prefix(name)?.strip_prefix("  ").map(str::to_owned);
        let passphrase = self.said.lines().find_map(line).unwrap();
        let (file, identity) = (self.file(&format!("{name}.passphrase")), self.file(&format!("{name}.pem")));
        write_secret(&file, passphrase.trim());
        let mut enrol = self.keyd();
        enrol.args(["enrol", "--at", &self.enrol, "--name", name, "--passphrase-file"]).arg(file);
        done({
            enrol.arg("--identity").arg(&identity);
            enrol
        });
        identity
    }

    /// Has somebody give the node a command.
    pub(crate) fn asked(&self, identity: &Path, command: &str) -> Output {
        let mut asked = self.keyd();
        asked.args(command.split(' ')).arg("--identity").arg(identity).args(["--node", &self.address]);
        asked.output().unwrap()
    }

    /// Its state directory.
    pub(crate) fn state(&self) -> PathBuf {
        self.file("state")
    }

    /// The cluster's keys, which the holder opens.
    pub(crate) fn cluster_keys(&self) -> Arc<ClusterKeys> {
        let (_, gate) = self.open();
        gate.keys().unwrap()
    }

    /// What an operator does: puts an enrolment into the ledger, with the cluster's keys, which the holder opens.
    async fn open_enrolment(&self, peer: &PeerId) -> EnrolmentPassphrase {
        let (settings, gate) = self.open();
        let keys = gate.keys().unwrap();
        let passphrase = EnrolmentPassphrase::random().unwrap();
        let expires_ns = now_ns() + 3_600_000_000_000;
        let enrolment = Enrolment::open(peer.clone(), Vec::new(), &passphrase, expires_ns).unwrap();
        let path = format!("enrolment/{peer}");
        let sealed = keys.sealer().seal(&path, settings.epoch, 1, &enrolment.encode()).unwrap();
        let ledger = self.etcd.ledger(&settings.cluster.to_string(), 0, PATIENT).await;
        let transaction = Transaction {
            expect: vec![(path.clone(), Expected::Absent)],
            put: vec![(path, sealed)],
            remove: Vec::new(),
        };
        assert!(matches!(ledger.commit(transaction).await.unwrap(), Outcome::Committed { .. }));
        passphrase
    }

    /// The state directory's settings, and the cluster's keys.
    fn open(&self) -> (KmaSettings, Unlocking) {
        let (directory, settings) = StateDirectory::open(&self.file("state")).unwrap();
        let root = SealedRoot::read(&directory.root()).unwrap();
        let share = root.open_share(&"ann".parse().unwrap(), &Zeroizing::new(PASSPHRASE.to_owned())).unwrap();
        let mut gate = Unlocking::default();
        gate.give(&root, share, 0).unwrap();
        (settings, gate)
    }

    /// A KMIP client whose certificate was made out by the cluster's authority so many days ago.
    pub(crate) async fn enrolled_before(&self, name: &str, days: i64) -> PathBuf {
        let (settings, gate) = self.open();
        let ledger = self.etcd.ledger(&settings.cluster.to_string(), 0, PATIENT).await;
        let records = ledger.read("authority").await.unwrap().entries;
        let sealed = &records.iter().find(|record| record.path == "authority").unwrap().sealed;
        let record = gate.keys().unwrap().sealer().open("authority", sealed).unwrap().plaintext;
        let record: AuthorityRecord = serde_json::from_slice(&record).unwrap();
        let authority = record.open(&gate.keys().unwrap()).unwrap();
        let key = CertificateKey::generate().unwrap();
        let peer: PeerId = format!("kmip/{name}").parse().unwrap();
        let then_ns = now_ns() - days * 86_400_000_000_000;
        let issued = authority.issue(&peer, &[], key.request(), random_serial().unwrap(), then_ns).unwrap();
        let (certificate, authority) = (Base64(issued.certificate), Base64(record.certificate().to_vec()));
        let folder = self.file(name);
        key.certified(&IssuedCertificate { certificate, authority }).unwrap().save_split(&folder).unwrap();
        folder
    }

    /// Kibibytes of memory that it has.
    pub(crate) fn memory_kib(&self) -> u64 {
        let process = self.process.as_ref().unwrap().id();
        let status = std::fs::read_to_string(format!("/proc/{process}/status")).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
        line.trim().trim_end_matches(" kB").parse().unwrap()
    }

    /// Its audit log.
    pub(crate) fn audit(&self) -> String {
        let files = std::fs::read_dir(self.file("state").join("audit")).unwrap().map(|entry| entry.unwrap().path());
        let logs = files.filter(|path| path.extension().is_some_and(|extension| extension == "jsonl"));
        logs.map(|path| std::fs::read_to_string(path).unwrap()).collect()
    }

    fn keyd(&self) -> Command {
        let mut keyd = Command::new(env!("CARGO_BIN_EXE_keyd"));
        keyd.stdin(Stdio::null());
        keyd
    }

    fn file(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn log(&self) -> String {
        std::fs::read_to_string(self.file("log")).unwrap_or_default()
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        self.kill();
        if std::thread::panicking() {
            eprintln!("the node's log:\n{}", self.log());
        }
    }
}

fn now_ns() -> i64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_nanos() as i64
}

fn write_secret(path: &Path, text: &str) {
    std::fs::write(path, text).unwrap();
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o600)).unwrap();
}

fn done(mut command: Command) -> String {
    let output = command.output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}
