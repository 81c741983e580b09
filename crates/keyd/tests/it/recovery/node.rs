//! Nodes as processes, and what people type.

use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use capstan_format::{Algorithm, KeyTag};
use capstan_keyd::ledger::{Expected, Ledger, Outcome, Transaction};
use capstan_keyd::root::{ClusterKeys, SealedRoot};
use capstan_keyd::service::StateDirectory;
use capstan_keys::VolumeKey;
use capstan_keys::api::{BeginVolume, KeyGiven, PeerId, ReadVolume, RequestId};
use capstan_keys::cluster::{
    ClusterClient, ClusterError, EnrolmentPassphrase, Identity, KeyRequest, NodeClient, Repeat,
};
use capstan_service::enrolment::Enrolment;
use serde_json::Value;
use tempfile::TempDir;
use tokio::runtime::Runtime;
use zeroize::Zeroizing;

use crate::cheap_keyd::cheap_keyd;
use crate::etcd::{Etcd, PATIENT, free_ports};

const DAY_NS: i64 = 86_400_000_000_000;

/// How long anything is waited for: on a busy machine nothing is quick.
const PATIENCE: Duration = Duration::from_secs(90);

/// Asks until it is so.
pub(crate) fn wait_for<T, E: std::fmt::Display>(mut ask: impl FnMut() -> Result<T, E>) -> T {
    let began = Instant::now();
    loop {
        match ask() {
            Ok(found) => return found,
            Err(error) => assert!(began.elapsed() < PATIENCE, "{error}"),
        }
        std::thread::sleep(Duration::from_millis(100));
    }
}

/// A key to write a volume with.
pub(crate) fn begin(client: &ClusterClient, identity: &Identity, volume: &str) -> Result<VolumeKey, ClusterError> {
    let (key, id) = (KeyRequest::new().unwrap(), RequestId::random().unwrap());
    let peer = identity.certificate().peer.clone();
    let asked = BeginVolume {
        volume: volume.parse().unwrap(),
        drive: peer.name.clone(),
        group: None,
        pool: None,
        algorithm: Algorithm::Aes256Gcm,
        public: key.public(),
    };
    let given: KeyGiven = client.post("/v1/keys/begin", &asked, &id, Repeat::SameRequest)?;
    Ok(key.accept(&given.handed_over, &peer, &id, &given.key, given.algorithm).unwrap())
}

/// A client of this node and no other.
pub(crate) fn client(place: &Place, identity: &Identity) -> NodeClient {
    NodeClient::new(identity, &place.address(), Duration::from_secs(10)).unwrap()
}

/// A key to write a volume with, of this node and no other.
pub(crate) fn begin_at(place: &Place, drive: &Identity, volume: &str) -> Result<KeyTag, ClusterError> {
    let asked = BeginVolume {
        volume: volume.parse().unwrap(),
        drive: drive.certificate().peer.name.clone(),
        group: None,
        pool: None,
        algorithm: Algorithm::Aes256Gcm,
        public: KeyRequest::new().unwrap().public(),
    };
    Ok(client(place, drive).post::<KeyGiven>("/v1/keys/begin", &asked)?.key)
}

/// The key to read it with, likewise.
pub(crate) fn read_at(place: &Place, drive: &Identity, volume: &str, key: KeyTag) -> Result<KeyTag, ClusterError> {
    let name = drive.certificate().peer.name.clone();
    let (volume, public) = (volume.parse().unwrap(), KeyRequest::new().unwrap().public());
    let asked = ReadVolume { volume, serial: None, drive: name, key, public };
    Ok(client(place, drive).post::<KeyGiven>("/v1/keys/read", &asked)?.key)
}

pub(crate) fn runtime() -> Runtime {
    tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap()
}

/// Where a node is.
pub(crate) struct Place {
    name: &'static str,
    etcd: String,
    ports: [u16; 3],
}

impl Place {
    pub(crate) fn new(name: &'static str, etcd: &str) -> Self {
        Self { name, etcd: etcd.to_owned(), ports: free_ports(3).try_into().unwrap() }
    }

    pub(crate) fn address(&self) -> String {
        format!("127.0.0.1:{}", self.ports[0])
    }

    /// Where it tells its metrics.
    pub(crate) fn watched_at(&self) -> String {
        format!("127.0.0.1:{}", self.ports[2])
    }

    fn enrol_at(&self) -> String {
        format!("127.0.0.1:{}", self.ports[1])
    }

    fn arguments(&self) -> Vec<String> {
        let (address, enrol_at, watched_at) = (self.address(), self.enrol_at(), self.watched_at());
        let arguments = ["--name", self.name, "--address", &address, "--listen", &address];
        let more = ["--enrol-listen", &enrol_at, "--etcd", &self.etcd, "--pool", "20", "--metrics-listen", &watched_at];
        arguments.iter().chain(&more).map(|&text| text.to_owned()).collect()
    }
}

/// A node that runs; killed when this is dropped.
pub(crate) struct Running(Child);

impl Running {
    /// Its memory, if it can be had: a node keeps itself from everybody but root.
    pub(crate) fn dumped(&self) -> Option<Vec<u8>> {
        let folder = tempfile::tempdir().unwrap();
        let core = folder.path().join("core");
        let output = Command::new("gcore").arg("-o").arg(&core).arg(self.0.id().to_string()).output();
        output.unwrap_or_else(|error| panic!("gcore: {error}: install the package gdb (`./x test` does)"));
        fs::read(folder.path().join(format!("core.{}", self.0.id()))).ok()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A folder with everybody's files.
pub(crate) struct Workshop(TempDir);

impl Workshop {
    pub(crate) fn new() -> Self {
        let workshop = Self(tempfile::tempdir().unwrap());
        for person in ["h1", "h2", "c1", "c2"] {
            workshop.secret(person, &format!("the passphrase of {person}"));
        }
        workshop
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    pub(crate) fn secret(&self, name: &str, text: &str) {
        let path = self.path(&format!("{name}.secret"));
        fs::write(&path, text).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
    }

    fn command(&self) -> Command {
        let mut command = Command::new(cheap_keyd());
        command.current_dir(self.0.path()).env("KEYD_LOG", "warn").stdin(Stdio::null());
        command
    }

    /// Runs the program: what it says, or what it says is wrong.
    pub(crate) fn keyd<S: AsRef<str>>(&self, arguments: &[S]) -> Result<String, String> {
        let output = self.command().args(arguments.iter().map(AsRef::as_ref)).output().unwrap();
        match output.status.success() {
            true => Ok(String::from_utf8(output.stdout).unwrap()),
            false => Err(String::from_utf8(output.stderr).unwrap()),
        }
    }

    fn asking(place: &Place, who: &str, arguments: &[&str]) -> Vec<String> {
        let (identity, node) = (format!("{who}.pem"), place.address());
        let asking = ["--identity", &identity, "--node", &node].map(str::to_owned);
        arguments.iter().map(|&text| text.to_owned()).chain(asking).collect()
    }

    pub(crate) fn keyd_as(&self, place: &Place, who: &str, arguments: &[&str]) -> String {
        self.keyd(&Self::asking(place, who, arguments)).unwrap()
    }

    /// How the program ended, and what it said to each of its outputs.
    pub(crate) fn ended_as(&self, place: &Place, who: &str, arguments: &[&str]) -> (i32, String, String) {
        let output = self.command().args(Self::asking(place, who, arguments)).output().unwrap();
        let [said, aside] = [output.stdout, output.stderr].map(|bytes| String::from_utf8(bytes).unwrap());
        (output.status.code().unwrap(), said, aside)
    }

    pub(crate) fn try_as(&self, place: &Place, who: &str, arguments: &[&str]) -> Result<String, String> {
        self.keyd(&Self::asking(place, who, arguments))
    }

    /// Somebody breaks off what they asked for, after so long.
    pub(crate) fn broken_off(&self, place: &Place, who: &str, arguments: &[&str], after: Duration) {
        let mut command = self.command();
        command.args(Self::asking(place, who, arguments)).stdout(Stdio::null()).stderr(Stdio::null());
        let mut child = command.spawn().unwrap();
        std::thread::sleep(after);
        let _ = child.kill();
        child.wait().unwrap();
    }

    pub(crate) fn has(&self, name: &str) -> bool {
        self.path(name).exists()
    }

    pub(crate) fn text(&self, name: &str) -> String {
        fs::read_to_string(self.path(name)).unwrap()
    }

    /// Makes a place a further node, which is not started yet, with the one-time passphrase that was shown for it.
    pub(crate) fn join(&self, place: &Place, state: &str, at: &Place, passphrase: &str) -> Result<String, String> {
        self.secret(place.name, passphrase);
        let file = format!("{}.secret", place.name);
        let (enrol_at, node) = (at.enrol_at(), at.address());
        let begin = ["join", "--state", state, "--passphrase-file", &file, "--enrol-at", &enrol_at, "--node", &node];
        self.keyd(&begin.map(str::to_owned).into_iter().chain(place.arguments()).collect::<Vec<_>>())
    }

    pub(crate) fn refused_as(&self, place: &Place, who: &str, arguments: &[&str]) -> String {
        self.keyd(&Self::asking(place, who, arguments)).unwrap_err()
    }

    fn root() -> Vec<String> {
        let root = ["--holder", "h1", "--holder", "h2", "--needed", "2"];
        let files = ["--passphrase-file", "h1=h1.secret", "--passphrase-file", "h2=h2.secret"];
        root.iter().chain(&files).map(|&text| text.to_owned()).collect()
    }

    /// Founds a cluster, and starts and unlocks its node. Gives what each user enrols with.
    pub(crate) fn found(&self, place: &Place, state: &str) -> (Running, BTreeMap<String, String>) {
        let passphrases = self.found_only(place, state);
        (self.run(place, state), passphrases)
    }

    /// Founds a cluster. Gives what each user enrols with.
    pub(crate) fn found_only(&self, place: &Place, state: &str) -> BTreeMap<String, String> {
        let users = [
            "ada:security-officer",
            "bo:backup-operator",
            "cy:compliance-officer",
            "q1:quorum-member",
            "q2:quorum-member",
        ];
        let users = users.iter().flat_map(|user| ["--user".to_owned(), (*user).to_owned()]);
        let begin = ["init", "--state", state].map(str::to_owned);
        let arguments: Vec<_> = begin.into_iter().chain(place.arguments()).chain(Self::root()).chain(users).collect();
        let said = self.keyd(&arguments).unwrap();
        let passphrases = said.lines().filter_map(|line| line.strip_prefix("  ")?.split_once("  "));
        passphrases.map(|(user, passphrase)| (user.to_owned(), passphrase.to_owned())).collect()
    }

    /// The same as [`Workshop::keyd_as`], as a program reads it.
    pub(crate) fn json_as(&self, place: &Place, who: &str, arguments: &[&str]) -> Value {
        serde_json::from_str(&self.keyd_as(place, who, &[arguments, &["--json"]].concat())).unwrap()
    }

    /// How a node is.
    pub(crate) fn status(&self, place: &Place) -> Value {
        self.json_as(place, "ada", &["status"])
    }

    /// Two quorum members approve what was asked for.
    pub(crate) fn approved(&self, place: &Place, asked: &Value) {
        let (id, digest) = (asked["id"].as_str().unwrap(), asked["digest"].as_str().unwrap());
        for (who, stage) in [("q1", "waiting"), ("q2", "executed")] {
            // The node that answers may hear of the request a moment later.
            let arguments = Self::asking(place, who, &["pending", "approve", id, "--digest", digest, "--json"]);
            let said = wait_for(|| self.keyd(&arguments));
            assert!(said.contains(&format!("\"stage\": \"{stage}\"")), "{said}");
        }
    }

    /// A core security backup for c1 and c2: asked for, approved and carried out.
    pub(crate) fn back_up_core(&self, place: &Place) {
        let ask = ["core-backup", "--custodian", "c1", "--custodian", "c2", "--needed", "2"];
        let asked = self.json_as(place, "ada", &ask);
        let (id, digest) = (asked["id"].as_str().unwrap(), asked["digest"].as_str().unwrap());
        for member in ["q1", "q2"] {
            let arguments = Self::asking(place, member, &["pending", "approve", id, "--digest", digest]);
            wait_for(|| self.keyd(&arguments));
        }
        let files = ["--passphrase-file", "c1=c1.secret", "--passphrase-file", "c2=c2.secret"];
        self.keyd_as(place, "ada", &[&["core-backup", "--last", "--out", "core"][..], &files].concat());
    }

    /// Looks at a stored backup with what these custodians open, and nothing that runs.
    pub(crate) fn check_backup(&self, database: &str, custodians: &[&str]) -> Result<String, String> {
        let begin = ["backups", "check", database, "--core", "core"].map(str::to_owned);
        let of = |name: &&str| {
            let file = format!("{name}={name}.secret");
            ["--custodian".to_owned(), (*name).to_owned(), "--custodian-passphrase-file".to_owned(), file]
        };
        self.keyd(&begin.into_iter().chain(custodians.iter().flat_map(of)).collect::<Vec<_>>())
    }

    /// Restores a cluster.
    pub(crate) fn restore(&self, place: &Place, state: &str, from: [&str; 2], more: &[&str]) -> Result<String, String> {
        let begin = ["restore", "--state", state, "--core", "core", from[0], from[1]];
        let custodians = [
            "--custodian",
            "c1",
            "--custodian",
            "c2",
            "--custodian-passphrase-file",
            "c1=c1.secret",
            "--custodian-passphrase-file",
            "c2=c2.secret",
        ];
        let fixed = begin.iter().chain(&custodians).chain(more).map(|&text| text.to_owned());
        self.keyd(&fixed.chain(place.arguments()).chain(Self::root()).collect::<Vec<_>>())
    }

    /// Starts a node and unlocks it.
    pub(crate) fn run(&self, place: &Place, state: &str) -> Running {
        self.run_with(place, state, ["h1", "h2"])
    }

    /// Starts a node and unlocks it with the shares of these.
    pub(crate) fn run_with(&self, place: &Place, state: &str, holders: [&str; 2]) -> Running {
        let node = self.start(place, state);
        for holder in holders {
            wait_for(|| self.give_share(state, holder));
        }
        node
    }

    /// Gives a holder's share to a node.
    pub(crate) fn give_share(&self, state: &str, holder: &str) -> Result<String, String> {
        let file = format!("{holder}.secret");
        self.keyd(&["unlock", "--state", state, "--holder", holder, "--passphrase-file", &file])
    }

    /// Starts a node, which is locked then.
    pub(crate) fn start(&self, place: &Place, state: &str) -> Running {
        Self::ready(place, self.command().args(["run", "--state", state]))
    }

    /// The same with everything in its log, in this form, in a file.
    pub(crate) fn start_logging(&self, place: &Place, state: &str, form: &str, file: &str) -> Running {
        let log = fs::File::create(self.path(file)).unwrap();
        let mut command = self.command();
        command.args(["run", "--state", state, "--log", form]).env("KEYD_LOG", "debug").stderr(log);
        Self::ready(place, &mut command)
    }

    fn ready(place: &Place, run: &mut Command) -> Running {
        let mut child = run.stdout(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let node = Running(child);
        assert!(line.contains(&format!("node {} is ready", place.name)), "{line:?}");
        node
    }

    /// Unlocks the node of a state directory.
    pub(crate) fn unlock(&self, state: &str) {
        for holder in ["h1", "h2"] {
            wait_for(|| self.give_share(state, holder));
        }
    }

    /// Enrols somebody, as soon as the node is in touch with its majority.
    pub(crate) fn enrol(&self, place: &Place, kind: &str, name: &str, passphrase: &str) {
        self.secret(name, passphrase);
        let (file, identity, at) = (format!("{name}.secret"), format!("{name}.pem"), place.enrol_at());
        let rest = ["--passphrase-file", &file, "--identity", &identity];
        wait_for(|| self.keyd(&[&["enrol", "--at", &at, "--kind", kind, "--name", name][..], &rest].concat()));
    }

    pub(crate) fn identity(&self, name: &str) -> Identity {
        Identity::load(&self.path(&format!("{name}.pem"))).unwrap()
    }

    /// Opens an enrolment as an operator would, with the root key of a state directory.
    pub(crate) async fn open_enrolment(&self, etcd: &Etcd, state: &str, peer: &str) -> String {
        let (directory, settings) = StateDirectory::open(&self.path(state)).unwrap();
        let keys = Self::keys(&SealedRoot::read(&directory.root()).unwrap());
        let (peer, passphrase): (PeerId, _) = (peer.parse().unwrap(), EnrolmentPassphrase::random().unwrap());
        let expires_ns = i64::try_from(std::time::UNIX_EPOCH.elapsed().unwrap().as_nanos()).unwrap() + DAY_NS;
        let path = format!("enrolment/{peer}");
        let enrolment = Enrolment::open(peer, Vec::new(), &passphrase, expires_ns).unwrap();
        let sealed = keys.sealer().seal(&path, settings.epoch, 1, &enrolment.encode()).unwrap();
        let ledger = etcd.ledger(&settings.cluster.to_string(), 0, PATIENT).await;
        let expect = vec![(path.clone(), Expected::Absent)];
        let outcome = ledger.commit(Transaction { expect, put: vec![(path, sealed)], remove: Vec::new() }).await;
        assert!(matches!(outcome.unwrap(), Outcome::Committed { .. }));
        passphrase.expose().to_string()
    }

    /// At which commit the newest record was written.
    pub(crate) async fn newest(&self, etcd: &Etcd, state: &str) -> i64 {
        let (_directory, settings) = StateDirectory::open(&self.path(state)).unwrap();
        let ledger = etcd.ledger(&settings.cluster.to_string(), 0, PATIENT).await;
        let entries = ledger.read("").await.unwrap().entries;
        entries.iter().map(|entry| entry.revision).max().unwrap()
    }

    /// The cluster's keys, which the holders open.
    pub(crate) fn cluster_keys(&self, state: &str) -> ClusterKeys {
        let (directory, _settings) = StateDirectory::open(&self.path(state)).unwrap();
        Self::keys(&SealedRoot::read(&directory.root()).unwrap())
    }

    /// What a record of the ledger says, and the cluster's identifier.
    pub(crate) async fn record(&self, etcd: &Etcd, state: &str, path: &str) -> (Vec<u8>, String) {
        let (_directory, settings) = StateDirectory::open(&self.path(state)).unwrap();
        let cluster = settings.cluster.to_string();
        let entries = etcd.ledger(&cluster, 0, PATIENT).await.read(path).await.unwrap().entries;
        let entry = entries.iter().find(|entry| entry.path == path).unwrap();
        let opened = self.cluster_keys(state).sealer().open(path, &entry.sealed).unwrap();
        (opened.plaintext.to_vec(), cluster)
    }

    fn keys(root: &SealedRoot) -> ClusterKeys {
        let share = |holder: &str| {
            let passphrase = Zeroizing::new(format!("the passphrase of {holder}"));
            root.open_share(&holder.parse().unwrap(), &passphrase).unwrap()
        };
        root.open_with_shares(&[share("h1"), share("h2")]).unwrap().into_keys()
    }

    /// A disk is gone.
    pub(crate) fn lose(&self, name: &str) {
        fs::remove_dir_all(self.path(name)).unwrap();
    }
}
