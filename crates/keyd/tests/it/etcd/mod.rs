//! etcd members on loopback, for tests: real ones, each a process that can be stopped, killed and started again by
//! itself.
//!
//! They need the binary `etcd` (Debian's package `etcd-server`). Its data lies in memory where there is room: Debian's
//! 3.4 always waits for the disk, and a test machine's disk is slow enough to lose elections.

use std::collections::HashSet;
use std::fs::File;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Mutex;
use std::time::{Duration, Instant};

use capstan_keyd::ledger::{EtcdFiles, EtcdLedger, EtcdMembers, EtcdTiming};
use etcd_client::{Client, ConnectOptions, GetOptions};
use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

/// Longest that members may take to find each other.
const PATIENCE: Duration = Duration::from_secs(60);
/// What three members may write: each begins with two log files of 64 MB.
const MEMORY_BYTES_MIN: u64 = 1 << 30;

/// Waits on a machine with much else to do: for tests in which nothing is to fail.
pub(crate) const PATIENT: EtcdTiming = EtcdTiming {
    connect: Duration::from_secs(10),
    answer: Duration::from_secs(20),
    page: Duration::from_secs(20),
    beat: Duration::from_millis(200),
    silence: Duration::from_secs(20),
};

/// Members of one etcd; killed when this is dropped.
pub(crate) struct Etcd {
    folder: TempDir,
    members: Vec<Mutex<Member>>,
}

struct Member {
    arguments: Vec<String>,
    endpoint: String,
    log: PathBuf,
    process: Option<Child>,
}

/// How members are reached.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Door {
    Plain,
    Tls,
}

impl Etcd {
    /// Starts so many members and waits until they have a leader.
    pub(crate) async fn start(count: usize) -> Self {
        let etcd = Self::prepare(count, Door::Plain, |_| Vec::new());
        etcd.start_all();
        etcd.wait_for_leader().await;
        etcd
    }

    /// Starts so many members with a further argument.
    pub(crate) async fn start_with(count: usize, argument: &str) -> Self {
        let etcd = Self::prepare(count, Door::Plain, |_| vec![argument.to_owned()]);
        etcd.start_all();
        etcd.wait_for_leader().await;
        etcd
    }

    /// Starts one member that speaks TLS alone and asks for a certificate; `arguments` gets the folder to put files in,
    /// and gives etcd's arguments for them.
    pub(crate) fn start_tls(arguments: impl FnOnce(&Path) -> Vec<String>) -> Self {
        let etcd = Self::prepare(1, Door::Tls, arguments);
        etcd.start_all();
        etcd
    }

    fn prepare(count: usize, door: Door, extra: impl FnOnce(&Path) -> Vec<String>) -> Self {
        let folder = folder();
        let extra = extra(folder.path());
        let ports = free_ports(2 * count);
        let scheme = if door == Door::Tls { "https" } else { "http" };
        let peer = |n: usize| format!("http://127.0.0.1:{}", ports[2 * n]);
        let cluster: Vec<_> = (0..count).map(|n| format!("member{n}={}", peer(n))).collect();
        let members = (0..count).map(|n| {
            let endpoint = format!("{scheme}://127.0.0.1:{}", ports[2 * n + 1]);
            let data = folder.path().join(format!("member{n}"));
            let arguments = [
                ("--name", format!("member{n}")),
                ("--data-dir", data.display().to_string()),
                ("--listen-peer-urls", peer(n)),
                ("--initial-advertise-peer-urls", peer(n)),
                ("--listen-client-urls", endpoint.clone()),
                ("--advertise-client-urls", endpoint.clone()),
                ("--initial-cluster", cluster.join(",")),
                ("--logger", "zap".to_owned()),
                ("--log-outputs", "stderr".to_owned()),
            ];
            let arguments = arguments.into_iter().flat_map(|(name, value)| [name.to_owned(), value]);
            let arguments = arguments.chain(extra.iter().cloned()).collect();
            let log = folder.path().join(format!("member{n}.log"));
            Mutex::new(Member { arguments, endpoint, log, process: None })
        });
        let members = members.collect();
        Self { folder, members }
    }

    fn start_all(&self) {
        for place in 0..self.members.len() {
            self.restart(place);
        }
    }

    /// The members' client addresses.
    pub(crate) fn endpoints(&self) -> Vec<String> {
        self.members.iter().map(|member| member.lock().unwrap().endpoint.clone()).collect()
    }

    /// A ledger of the cluster of that name, whose own member is that one; it asks the others too.
    pub(crate) async fn ledger(&self, cluster: &str, own: usize, timing: EtcdTiming) -> EtcdLedger {
        let mut endpoints = self.endpoints();
        endpoints.rotate_left(own);
        EtcdLedger::new(cluster, &EtcdMembers { endpoints, files: None }, timing).await.unwrap()
    }

    /// A ledger that knows that member alone.
    pub(crate) async fn ledger_of_one(&self, cluster: &str, own: usize, timing: EtcdTiming) -> EtcdLedger {
        let endpoints = vec![self.endpoints()[own].clone()];
        EtcdLedger::new(cluster, &EtcdMembers { endpoints, files: None }, timing).await.unwrap()
    }

    /// A client of the plain kind, of one member.
    pub(crate) async fn client(&self, place: usize) -> Client {
        let options = ConnectOptions::new().with_connect_timeout(Duration::from_secs(5));
        Client::connect([&self.endpoints()[place]], Some(options)).await.unwrap()
    }

    /// Makes the members forget how they came to that commit.
    pub(crate) async fn compact(&self, revision: i64) {
        self.client(0).await.compact(revision, None).await.unwrap();
    }

    /// Which member leads; waits until those that run agree on one and serve a linearizable read.
    pub(crate) async fn wait_for_leader(&self) -> usize {
        let began = Instant::now();
        loop {
            if let Some(leader) = self.leader().await {
                return leader;
            }
            assert!(began.elapsed() < PATIENCE, "the members of etcd find no leader; their logs:\n{}", self.logs());
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    async fn leader(&self) -> Option<usize> {
        let mut ids = Vec::new();
        let mut leader = 0;
        for place in 0..self.members.len() {
            let mut client = self.client(place).await;
            let status = tokio::time::timeout(Duration::from_secs(1), client.status()).await.ok().and_then(Result::ok);
            leader = status.as_ref().map_or(0, etcd_client::StatusResponse::leader).max(leader);
            ids.push(status.and_then(|status| Some(status.header()?.member_id())));
        }
        let leader = ids.iter().position(|id| *id == Some(leader))?;
        let mut client = self.client(leader).await;
        let read = client.get("nothing", Some(GetOptions::new().with_count_only()));
        tokio::time::timeout(Duration::from_secs(5), read).await.ok()?.ok()?;
        Some(leader)
    }

    /// Stops a member as it is (SIGSTOP): its connections stay, and nothing answers.
    pub(crate) fn freeze(&self, place: usize) {
        self.signal(place, Signal::STOP);
    }

    /// Lets it go on.
    pub(crate) fn thaw(&self, place: usize) {
        self.signal(place, Signal::CONT);
    }

    fn signal(&self, place: usize, signal: Signal) {
        let member = self.members[place].lock().unwrap();
        let process = member.process.as_ref().expect("the member runs");
        kill_process(Pid::from_child(process), signal).unwrap();
    }

    /// Kills a member (SIGKILL); its data stays.
    pub(crate) fn kill(&self, place: usize) {
        self.members[place].lock().unwrap().kill();
    }

    /// Starts a member that was killed.
    pub(crate) fn restart(&self, place: usize) {
        let mut member = self.members[place].lock().unwrap();
        let log = File::options().create(true).append(true).open(&member.log).unwrap();
        let started = Command::new("etcd")
            .args(&member.arguments)
            // Its environment sets whatever its arguments do not.
            .env_clear()
            .env("PATH", std::env::var_os("PATH").unwrap_or_default())
            .stdin(Stdio::null())
            .stdout(log.try_clone().unwrap())
            .stderr(log)
            .spawn();
        member.process = Some(started.unwrap_or_else(|error| {
            panic!("etcd cannot be started ({error}): install it (Debian: apt-get install etcd-server; its service is not needed)")
        }));
    }

    /// Copies the data of a member that does not run.
    pub(crate) fn save(&self, place: usize) {
        copy_folder(&self.data(place), &self.folder.path().join("saved"));
    }

    /// Puts the data of a member forward to what it was when it was put back.
    pub(crate) fn put_forward(&self, place: usize) {
        std::fs::remove_dir_all(self.data(place)).unwrap();
        std::fs::rename(self.folder.path().join("newer"), self.data(place)).unwrap();
    }

    /// Puts the data of a member back that was copied.
    pub(crate) fn put_back(&self, place: usize) {
        std::fs::rename(self.data(place), self.folder.path().join("newer")).unwrap();
        copy_folder(&self.folder.path().join("saved"), &self.data(place));
    }

    fn data(&self, place: usize) -> PathBuf {
        self.folder.path().join(format!("member{place}"))
    }

    fn logs(&self) -> String {
        let tail = |member: &Mutex<Member>| {
            let log = std::fs::read_to_string(&member.lock().unwrap().log).unwrap_or_default();
            log.lines().rev().take(15).collect::<Vec<_>>().into_iter().rev().collect::<Vec<_>>().join("\n")
        };
        self.members.iter().map(tail).collect::<Vec<_>>().join("\n\n")
    }
}

impl Member {
    fn kill(&mut self) {
        if let Some(mut process) = self.process.take() {
            // One that is frozen dies of this as well.
            let _ = process.kill();
            let _ = process.wait();
        }
    }
}

impl Drop for Member {
    fn drop(&mut self) {
        self.kill();
    }
}

/// A folder in memory, if there is room in it, else where temporary files lie.
fn folder() -> TempDir {
    let memory = Path::new("/dev/shm");
    let room = rustix::fs::statvfs(memory).map_or(0, |room| room.f_bavail * room.f_frsize);
    let name = "capstan-etcd.";
    if room >= MEMORY_BYTES_MIN
        && let Ok(folder) = tempfile::Builder::new().prefix(name).tempdir_in(memory)
    {
        return folder;
    }
    tempfile::Builder::new().prefix(name).tempdir().unwrap()
}

fn copy_folder(from: &Path, to: &Path) {
    let copied = Command::new("cp").arg("--archive").arg(from).arg(to).status().unwrap();
    assert!(copied.success());
}

/// From where on the system gives ports to connections that go out: one of these could have the port of a server that
/// is down for a moment.
const GIVEN_OUT_FROM: u16 = 32_768;

/// Ports that nobody has, and no other test of this process was given.
pub(crate) fn free_ports(count: usize) -> Vec<u16> {
    static GIVEN: Mutex<Option<HashSet<u16>>> = Mutex::new(None);
    let mut given = GIVEN.lock().unwrap();
    let given = given.get_or_insert_default();
    let mut ports = Vec::new();
    while ports.len() < count {
        let random = RandomState::new().build_hasher().finish();
        let port = u16::try_from(random % 20_000).unwrap() + (GIVEN_OUT_FROM - 20_000);
        if TcpListener::bind(("127.0.0.1", port)).is_ok() && given.insert(port) {
            ports.push(port);
        }
    }
    ports
}

/// The files of a node that opens a door of etcd, in a folder.
pub(crate) fn files_in(folder: &Path) -> EtcdFiles {
    EtcdFiles {
        authority: folder.join("authority.pem"),
        certificate: folder.join("node.pem"),
        private_key: folder.join("node.key"),
    }
}
