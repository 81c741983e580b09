//! Three members of etcd and three nodes at two sites, real processes all, and what is done to them.

use std::collections::HashMap;
use std::fs::{self, OpenOptions};
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::net::UnixStream;
use std::path::{Path as FilePath, PathBuf};
use std::process::Command;
use std::sync::{Arc, OnceLock};
use std::thread::sleep;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use capstan_keyd::ledger::{EtcdLedger, EtcdMembers, EtcdTiming, Ledger, Outcome, Transaction};
use capstan_keyd::path::Path;
use capstan_keyd::record::{GroupRecord, KmaRecord};
use capstan_keyd::root::{ClusterKeys, SealedRoot};
use capstan_keys::api::PeerId;
use capstan_keys::cluster::{ClusterClient, EnrolmentPassphrase, Identity, enrol};
use capstan_keys::{KeyGroup, Name, Period, Policy, RealmRecord};
use capstan_service::enrolment::Enrolment;
use tempfile::TempDir;
use zeroize::Zeroizing;

use super::clocks::{Clocks, is_of_clocks};
use super::network::{Door, Network, PLACES, SITES};
use super::process::Process;

#[path = "../cheap_keyd/mod.rs"]
mod cheap_keyd;

const KEYD: &str = env!("CARGO_BIN_EXE_keyd");
const HOLDERS: [&str; 2] = ["holder-one", "holder-two"];
const SECRET: &str = "a passphrase of a holder";
const PATIENCE: Duration = Duration::from_secs(40);
/// Keys in each node's pool.
const POOL: usize = 120;
/// What a node's disk takes where it is to be filled.
const DISK: &str = "size=24m";

pub(crate) struct Cluster {
    pub(crate) members: Vec<Process>,
    pub(crate) nodes: Vec<Process>,
    pub(crate) network: Arc<Network>,
    /// The nodes' own, where they can be set.
    pub(crate) clocks: Option<Arc<Clocks>>,
    pub(crate) keys: ClusterKeys,
    ledger: EtcdLedger,
    runtime: tokio::runtime::Runtime,
    /// One-time passphrases of the founding, by user.
    users: HashMap<String, String>,
    /// Who looks at how nodes are.
    looker: OnceLock<Identity>,
    /// The node whose disk can be filled.
    small_disk: Option<Mounted>,
    folder: TempDir,
}

pub(crate) fn name(text: &str) -> Name {
    text.parse().unwrap()
}

pub(crate) fn node_name(place: usize) -> String {
    format!("kma{place}")
}

impl Cluster {
    /// Founds it, and has the other nodes join.
    pub(crate) fn start() -> Self {
        Self::start_with(POOL, DISK, Clocks::new)
    }

    /// With pools of so many keys, a disk of that size at the last place, and such clocks.
    pub(crate) fn start_with(pool: usize, disk: &str, clocks: impl FnOnce(&FilePath) -> Option<Clocks>) -> Self {
        let folder = tempfile::Builder::new().prefix("capstan-faults.").tempdir_in("/dev/shm");
        let folder = folder.or_else(|_| tempfile::tempdir()).unwrap();
        let network = Arc::new(Network::new());
        let clocks = clocks(folder.path()).map(Arc::new);
        let mut members: Vec<_> = (0..PLACES).map(|place| member(folder.path(), &network, place)).collect();
        members.iter_mut().for_each(Process::start);
        let small_disk = Mounted::new(&folder.path().join(node_name(PLACES - 1)), disk);

        let passphrase_file = folder.path().join("passphrase");
        write_secret(&passphrase_file, SECRET);
        let mut found = Command::new(cheap_keyd::cheap_keyd());
        found.arg("init");
        place_arguments(&mut found, folder.path(), &network, 0, pool);
        for holder in HOLDERS {
            found.args(["--holder", holder, "--passphrase-file"]);
            found.arg(format!("{holder}={}", passphrase_file.display()));
        }
        let sofia = "sofia:security-officer";
        for user in [
            sofia,
            "arno:auditor",
            "carl:compliance-officer",
            "q1:quorum-member",
            "q2:quorum-member",
            "q3:quorum-member",
        ] {
            found.args(["--user", user]);
        }
        let mut said = None;
        retried("a cluster is founded", || {
            said = done(&mut found);
            said.is_some()
        });
        let passphrase = |line: &str| Some(owned(line.strip_prefix("  ")?.split_once("  ")?));
        let users = said.unwrap().lines().filter_map(passphrase).collect();

        let sealed = SealedRoot::read(&folder.path().join(node_name(0)).join("root.sealed")).unwrap();
        let secret = Zeroizing::new(SECRET.to_owned());
        let shares = HOLDERS.map(|holder| sealed.open_share(&name(holder), &secret).unwrap());
        let keys = sealed.open_with_shares(&shares).unwrap().into_keys();
        let runtime = tokio::runtime::Runtime::new().unwrap();
        let endpoints = endpoints(&network, 0);
        let etcd = EtcdMembers { endpoints, files: None };
        let id = keys.cluster().to_string();
        let ledger = runtime.block_on(EtcdLedger::new(&id, &etcd, EtcdTiming::default())).unwrap();
        let nodes = (0..PLACES).map(|place| node(folder.path(), &network, &clocks, place)).collect();
        let mut cluster = Self {
            members,
            nodes,
            network,
            clocks,
            users,
            looker: OnceLock::new(),
            keys,
            ledger,
            runtime,
            small_disk,
            folder,
        };
        cluster.put_group();
        cluster.nodes[0].start();
        cluster.unlock(0);
        for place in 1..PLACES {
            cluster.join(place, pool);
            cluster.nodes[place].start();
            cluster.unlock(place);
        }
        cluster
    }

    /// A group whose keys encrypt for a few seconds, so that volumes come to have several.
    fn put_group(&self) {
        let policy = Policy { encryption_period: Period::Seconds(3), ..Policy::unlimited(name("brief")) };
        let (_, wrapped) = self.keys.new_group_key(&name("brief")).unwrap();
        let group = KeyGroup { name: name("brief"), policy: name("brief") };
        self.put(&Path::Policy(policy.name.clone()), &RealmRecord::Policy(policy).encode());
        self.put(&Path::Group(name("brief")), &GroupRecord { group, wrapped }.encode());
    }

    fn put(&self, path: &Path, plaintext: &[u8]) {
        let path = path.to_string();
        let sealed = self.keys.sealer().seal(&path, 1, 1, plaintext).unwrap();
        self.put_sealed(&[(path, sealed)]);
    }

    /// Commits records that are sealed already.
    pub(crate) fn put_sealed(&self, records: &[(String, Vec<u8>)]) {
        let transaction = Transaction { put: records.to_vec(), ..Transaction::default() };
        retried("records are put", || {
            let outcome = self.runtime.block_on(self.ledger.commit(transaction.clone()));
            outcome.is_ok_and(|outcome| matches!(outcome, Outcome::Committed { .. }))
        });
    }

    /// Opens an enrolment, as a security officer's command does.
    fn invite(&self, peer: &PeerId, hosts: Vec<String>) -> EnrolmentPassphrase {
        let passphrase = EnrolmentPassphrase::random().unwrap();
        let enrolment = Enrolment::open(peer.clone(), hosts, &passphrase, i64::MAX).unwrap();
        self.put(&Path::Other(format!("enrolment/{peer}")), &enrolment.encode());
        passphrase
    }

    fn join(&self, place: usize, pool: usize) {
        let address = self.network.address(place, Door::Members);
        let peer: PeerId = format!("kma/{}", node_name(place)).parse().unwrap();
        let record = KmaRecord { site: SITES[place].to_owned(), address: address.clone(), joined_ns: 0 };
        self.put(&Path::Other(format!("joining/{}", node_name(place))), &serde_json::to_vec(&record).unwrap());
        let host = address.split(':').next().unwrap().to_owned();
        let passphrase = self.invite(&peer, vec![host]);
        let file = self.folder.path().join(format!("join{place}"));
        write_secret(&file, passphrase.expose().as_str());
        let mut join = Command::new(KEYD);
        join.arg("join");
        place_arguments(&mut join, self.folder.path(), &self.network, place, pool);
        join.args(["--enrol-at", &self.network.address(0, Door::Strangers)]);
        join.args(["--node", &self.network.address(0, Door::Members)]);
        join.arg("--passphrase-file").arg(&file);
        retried("a node joins", || done(&mut join).is_some());
    }

    /// Enrols an agent.
    pub(crate) fn agent(&self, number: usize) -> Identity {
        let peer: PeerId = format!("agent/drive{number}").parse().unwrap();
        let passphrase = self.invite(&peer, Vec::new());
        self.enrol(&peer, &passphrase.expose())
    }

    /// Enrols a user of the founding.
    /// What the node that an auditor's client finds best says of itself; nothing while none answers.
    pub(crate) fn look(&self, client: &ClusterClient) -> Option<serde_json::Value> {
        client.get("/v1/status").ok()
    }

    /// A client of somebody who may look at how nodes are: agents may not.
    pub(crate) fn looker(&self, addresses: &[String], site: &str) -> Option<ClusterClient> {
        ClusterClient::open(self.looker.get_or_init(|| self.user("arno")), addresses, site).ok()
    }

    pub(crate) fn user(&self, user: &str) -> Identity {
        self.enrol(&format!("user/{user}").parse().unwrap(), &self.users[user])
    }

    fn enrol(&self, peer: &PeerId, passphrase: &str) -> Identity {
        let mut identity = None;
        retried("somebody enrols", || {
            let passphrase: EnrolmentPassphrase = passphrase.parse().unwrap();
            identity = enrol(&self.network.address(0, Door::Strangers), peer.clone(), &passphrase).ok();
            identity.is_some()
        });
        identity.unwrap()
    }

    /// The last commit of the ledger.
    pub(crate) fn last_commit(&self) -> i64 {
        let mut last = 0;
        retried("the ledger is read", || {
            let read = self.runtime.block_on(self.ledger.read("policy/"));
            last = read.as_ref().map_or(0, |snapshot| snapshot.revision);
            read.is_ok()
        });
        last
    }

    pub(crate) fn state(&self, place: usize) -> PathBuf {
        self.folder.path().join(node_name(place))
    }

    /// Gives a node the holders' shares, as soon as it listens.
    pub(crate) fn unlock(&mut self, place: usize) {
        let (began, mut said) = (Instant::now(), None);
        while began.elapsed() < PATIENCE {
            if !self.nodes[place].is_there() {
                self.nodes[place].start();
            }
            said = self.give_shares(place, PATIENCE).or(said);
            if said.as_ref().is_some_and(|said| said.contains(r#""unlocked""#)) {
                return;
            }
            sleep(Duration::from_millis(20));
        }
        panic!("node {place} cannot be unlocked: {said:?}\n{}", self.log_of(place));
    }

    /// The same for a second at most: something else may keep it from that.
    pub(crate) fn unlock_soon(&self, place: usize) {
        for _ in 0..10 {
            let said = self.give_shares(place, Duration::from_millis(300));
            if said.is_some_and(|said| said.contains(r#""unlocked""#)) {
                return;
            }
            sleep(Duration::from_millis(70));
        }
    }

    /// The same once, without waiting for longer. What it says, if it says anything.
    pub(crate) fn give_shares(&self, place: usize, patience: Duration) -> Option<String> {
        let socket = self.state(place).join("keyd.sock");
        let give = |holder: &str| -> Option<String> {
            let mut stream = UnixStream::connect(&socket).ok()?;
            stream.set_read_timeout(Some(patience)).unwrap();
            writeln!(stream, r#"{{"holder":"{holder}","passphrase":"{SECRET}"}}"#).ok()?;
            let mut answer = String::new();
            BufReader::new(stream).read_line(&mut answer).ok()?;
            Some(answer)
        };
        let mut said = None;
        for holder in HOLDERS {
            said = give(holder).or(said);
        }
        said
    }

    pub(crate) fn fill_disk(&self) {
        if let Some(Mounted(at)) = &self.small_disk {
            let ballast = OpenOptions::new().create(true).append(true).open(at.join("ballast"));
            let mut ballast = ballast.unwrap();
            while ballast.write_all(&[0; 4096]).is_ok() {}
        }
    }

    pub(crate) fn empty_disk(&self) {
        if let Some(Mounted(at)) = &self.small_disk {
            let _ = fs::remove_file(at.join("ballast"));
        }
    }

    pub(crate) fn can_fill_disk(&self) -> bool {
        self.small_disk.is_some()
    }

    /// Sets a node's clock by years ahead, or back; or right.
    pub(crate) fn set_clock(&self, place: usize, years: i64) {
        self.clocks.iter().for_each(|clocks| clocks.set(place, years));
    }

    /// Whether a node may say this: nobody alters what the ledger holds, but clocks are set wrong.
    pub(crate) fn may_doubt(&self, doubt: &str) -> bool {
        is_of_clocks(doubt) && self.clocks.as_ref().is_some_and(|clocks| clocks.have_jumped())
    }

    /// How often a node's log says this.
    pub(crate) fn said(&self, place: usize, what: &str) -> usize {
        fs::read_to_string(&self.nodes[place].log).unwrap().matches(what).count()
    }

    pub(crate) fn log_of(&self, place: usize) -> String {
        let log = fs::read_to_string(&self.nodes[place].log).unwrap_or_default();
        let lines: Vec<_> = log.lines().rev().take(12).collect();
        lines.into_iter().rev().collect::<Vec<_>>().join("\n")
    }
}

fn endpoints(network: &Network, own: usize) -> Vec<String> {
    (0..PLACES).map(|next| format!("http://{}", network.address((own + next) % PLACES, Door::EtcdClients))).collect()
}

fn member(folder: &FilePath, network: &Arc<Network>, place: usize) -> Process {
    let peer = |place| format!("http://{}", network.address(place, Door::EtcdPeers));
    let client = format!("http://{}", network.address(place, Door::EtcdClients));
    let all: Vec<_> = (0..PLACES).map(|place| format!("member{place}={}", peer(place))).collect();
    let arguments = [
        ("--name", format!("member{place}")),
        ("--data-dir", folder.join(format!("member{place}")).display().to_string()),
        ("--listen-peer-urls", peer(place)),
        ("--initial-advertise-peer-urls", peer(place)),
        ("--listen-client-urls", client.clone()),
        ("--advertise-client-urls", client),
        ("--initial-cluster", all.join(",")),
        ("--log-level", "error".to_owned()),
        ("--logger", "zap".to_owned()),
        ("--log-outputs", "stderr".to_owned()),
    ];
    let network = network.clone();
    Process::new(folder.join(format!("member{place}.log")), move || {
        let mut command = network.command(place, "etcd");
        command.args(arguments.iter().flat_map(|(name, value)| [*name, value.as_str()]));
        command
    })
}

fn node(folder: &FilePath, network: &Arc<Network>, clocks: &Option<Arc<Clocks>>, place: usize) -> Process {
    let state = folder.join(node_name(place));
    let (network, clocks) = (network.clone(), clocks.clone());
    Process::new(folder.join(format!("{}.log", node_name(place))), move || {
        let mut command = network.command(place, KEYD);
        command.arg("run").arg("--state").arg(&state);
        if let Some(clocks) = &clocks {
            clocks.give(&mut command, place);
        }
        command
    })
}

fn place_arguments(command: &mut Command, folder: &FilePath, network: &Network, place: usize, pool: usize) {
    let address = network.address(place, Door::Members);
    command.arg("--state").arg(folder.join(node_name(place)));
    command.args(["--name", &node_name(place), "--site", SITES[place], "--address", &address, "--listen", &address]);
    command.args(["--enrol-listen", &network.address(place, Door::Strangers), "--pool", &pool.to_string()]);
    command.args(endpoints(network, place).iter().flat_map(|endpoint| ["--etcd", endpoint.as_str()]));
}

fn write_secret(path: &FilePath, text: &str) {
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path).unwrap();
    file.write_all(text.as_bytes()).unwrap();
}

fn owned((one, other): (&str, &str)) -> (String, String) {
    (one.to_owned(), other.to_owned())
}

/// What a program says that does what it should.
fn done(command: &mut Command) -> Option<String> {
    let output = command.output().unwrap();
    if !output.status.success() {
        println!("{}", String::from_utf8_lossy(&output.stderr).trim_end());
    }
    output.status.success().then(|| String::from_utf8(output.stdout).unwrap())
}

pub(crate) fn retried(what: &str, mut is_so: impl FnMut() -> bool) {
    let began = Instant::now();
    while !is_so() {
        assert!(began.elapsed() < PATIENCE, "it did not come to pass in {PATIENCE:?} that {what}");
        sleep(Duration::from_millis(100));
    }
}

pub(crate) fn now_ns() -> u64 {
    u64::try_from(SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_nanos()).unwrap()
}

/// A small file system of a node's own.
struct Mounted(PathBuf);

impl Mounted {
    fn new(at: &FilePath, size: &str) -> Option<Self> {
        fs::create_dir(at).unwrap();
        let mut mount = Command::new("mount");
        mount.args(["-t", "tmpfs", "-o", size, "tmpfs"]).arg(at);
        mount.output().is_ok_and(|output| output.status.success()).then(|| Self(at.to_owned()))
    }
}

/// What failed is looked into by the logs.
impl Drop for Cluster {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let kept = std::env::temp_dir().join(format!("capstan-faults-{}", now_ns()));
            let _ = fs::create_dir_all(&kept);
            for process in self.members.iter().chain(&self.nodes) {
                let _ = fs::copy(&process.log, kept.join(process.log.file_name().unwrap_or_default()));
            }
            println!("the logs of members and nodes are kept in {}", kept.display());
        }
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("--lazy").arg(&self.0).output();
    }
}
