//! Connections by the thousand that ask for nothing.

use std::io::{BufRead, BufReader, ErrorKind, Read};
use std::net::{SocketAddr, TcpStream};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use capstan_keys::api::PeerId;
use capstan_keys::cluster::ClusterClient;
use capstan_service::listener::ListenerLimits;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::node::{Node, Site};
use crate::slow::{config, connect};

/// Most of the idle ones stand in a process of their own, so that the limit of open files is used up by one end of
/// each.
const ADDRESS: &str = "CAPSTAN_TEST_STRANGERS_GO_TO";
const COUNT: &str = "CAPSTAN_TEST_STRANGERS";

struct Strangers(Child);

impl Strangers {
    fn come(count: usize, address: SocketAddr) -> Self {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["crowds::strangers", "--exact", "--ignored", "--nocapture"])
            .env(ADDRESS, address.to_string())
            .env(COUNT, count.to_string())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        assert!(lines.any(|line| line.unwrap().contains("all are there")), "the strangers did not come");
        Self(child)
    }
}

impl Drop for Strangers {
    fn drop(&mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }
}

#[test]
#[ignore = "the other process of ten_thousand_idle_connections_keep_nobody_out"]
fn strangers() {
    // Somebody runs all ignored tests: there is nowhere to go.
    let Ok(address) = std::env::var(ADDRESS) else { return };
    let address: SocketAddr = address.parse().unwrap();
    let count = std::env::var(COUNT).unwrap().parse().unwrap();
    room_for(count);
    let connections: Vec<_> = (0..count).map(|_| TcpStream::connect(address).unwrap()).collect();
    println!("\nall are there");
    // Until the other process kills this one, or ends.
    let _ = std::io::stdin().read(&mut [0]);
    drop(connections);
}

/// Raises the limit of open files as far as it goes, and says how many connections have room in it.
fn room_for(wanted: usize) -> usize {
    let needed = wanted as u64 + 2000;
    let limit = getrlimit(Resource::Nofile);
    let hard = limit.maximum.unwrap_or(u64::MAX);
    let higher = Rlimit { current: Some(needed.max(hard)), maximum: Some(needed.max(hard)) };
    if setrlimit(Resource::Nofile, higher).is_err() {
        setrlimit(Resource::Nofile, Rlimit { current: Some(hard), maximum: limit.maximum }).unwrap();
    }
    let current = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
    wanted.min(current.saturating_sub(2000) as usize)
}

fn resident_kib() -> usize {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.trim().trim_end_matches(" kB").parse().unwrap()
}

/// The slowest of some requests by somebody who means well.
fn slowest(client: &ClusterClient) -> Duration {
    let times = (0..50).map(|_| {
        let begun = Instant::now();
        client.get::<PeerId>("/v1/whoami").unwrap();
        begun.elapsed()
    });
    times.max().unwrap()
}

/// Most of them never begin TLS, some are members: none keeps the node from others. Set `CAPSTAN_IDLE_MEMBERS` to have
/// more of them be members.
#[test]
fn ten_thousand_idle_connections_keep_nobody_out() {
    let site = Site::new();
    let limits = ListenerLimits { handshake: Duration::from_secs(120), ..ListenerLimits::default() };
    let node = Node::start(&site, "KMA1", limits);
    let addresses = [node.address.to_string()];
    let client = ClusterClient::open(&site.identity("agent/GOOD"), &addresses, "").unwrap();
    let before = slowest(&client);
    let all = room_for(10_000);
    let members = std::env::var("CAPSTAN_IDLE_MEMBERS").map_or(500, |count| count.parse().unwrap()).min(900);
    let config = config(&site.identity("agent/IDLE"));
    let at_first = resident_kib();
    let idle_members: Vec<_> = (0..members).map(|_| connect(&node, &config)).collect();
    let with_members = resident_kib();
    let strangers = Strangers::come(all - members, node.address);
    // The last of them is accepted before whoever comes now.
    let newcomer = ClusterClient::open(&site.identity("agent/NEW"), &addresses, "").unwrap();
    let meanwhile = slowest(&client).max(slowest(&newcomer));
    let at_last = resident_kib();
    println!(
        "{} strangers and {members} members idle; slowest of 50 requests {before:?} before, {meanwhile:?} meanwhile; \
         {:.1} KiB a stranger, {:.1} KiB a member with both ends of TLS",
        all - members,
        (at_last - with_members) as f64 / (all - members).max(1) as f64,
        (with_members - at_first) as f64 / idle_members.len().max(1) as f64,
    );
    drop(strangers);
    assert!(meanwhile < Duration::from_millis(500), "{meanwhile:?}");
    assert!(at_last - at_first < 16 * all, "{} KiB for {all} connections", at_last - at_first);
}

/// More of them than there are places: who asks is served, and who is quiet longest is shown out.
#[test]
fn a_full_listener_evicts_the_quiet() {
    let site = Site::new();
    let node = Node::start(&site, "KMA1", ListenerLimits { connections_max: 50, ..ListenerLimits::default() });
    let addresses = [node.address.to_string()];
    let client = ClusterClient::open(&site.identity("agent/GOOD"), &addresses, "").unwrap();
    let mut strangers: Vec<_> = (0..200).map(|_| TcpStream::connect(node.address).unwrap()).collect();
    slowest(&client);
    ClusterClient::open(&site.identity("agent/NEW"), &addresses, "").unwrap();
    let mut gone = 0;
    for stranger in &mut strangers {
        stranger.set_nonblocking(true).unwrap();
        match stranger.read(&mut [0]) {
            Err(error) if error.kind() == ErrorKind::WouldBlock => {}
            _ => gone += 1,
        }
    }
    println!("{gone} of 200 were shown out");
    assert!(gone >= 150, "only {gone} were shown out");
}

/// One certificate could have every place there is, and nobody came in to revoke it.
#[test]
fn a_peer_has_its_share_of_connections() {
    let site = Site::new();
    let node = Node::start(&site, "KMA1", ListenerLimits { peer_connections_max: 3, ..ListenerLimits::default() });
    let greedy = config(&site.identity("agent/GREEDY"));
    let mut connections: Vec<_> = (0..5).map(|_| connect(&node, &greedy)).collect();
    let is_open = |read: std::io::Result<usize>| matches!(read, Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut));
    for (number, connection) in connections.iter_mut().enumerate() {
        // Those that are idle longest have gone.
        let is_kept = number >= 2;
        if is_kept {
            connection.sock.set_read_timeout(Some(Duration::from_millis(100))).unwrap();
        }
        assert_eq!(is_open(connection.read(&mut [0])), is_kept, "connection {number}");
    }
    ClusterClient::open(&site.identity("agent/GOOD"), &[node.address.to_string()], "").unwrap();
}
