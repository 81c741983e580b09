//! What a node gives: `cargo test --release -p capstan-keyd --test faults -- --ignored --nocapture measure`, or
//! `./x bench-keys`.
//!
//! Agents and node share one machine, so that what is measured is both. Lines of `name: value` go to standard output.

use std::collections::BTreeMap;
use std::fs;
use std::sync::Mutex;
use std::thread::{scope, sleep};
use std::time::{Duration, Instant};

use capstan_format::{Algorithm, KeyTag, Volser};
use capstan_keyd::ledger::{Entry, Snapshot, TRANSACTION_RECORDS_MAX};
use capstan_keyd::path::Path;
use capstan_keyd::record::{GroupRecord, IssuedRecord};
use capstan_keyd::replica::Replica;
use capstan_keys::cluster::Identity;
use capstan_keys::{Secret, VolumeKey};

use super::agents::Agent;
use super::cluster::{Cluster, node_name};
use super::network::{Door, PLACES, SITES};

const THREADS: usize = 8;
const SECONDS: f64 = 4.0;
const OFFERED: f64 = 2_000.0;
/// What an agent does that has just started.
const NEW_SESSIONS: &str = ", a new TLS session and the list of members each";
/// The node that is measured: alone at its site, so that a client of that site asks it and no other.
const PLACE: usize = 2;

fn key_count() -> usize {
    std::env::var("CAPSTAN_KEYS").map_or(1_000_000, |text| text.parse().unwrap())
}

#[test]
#[ignore = "a measurement of minutes"]
fn measure() {
    let mut cluster = Cluster::start_with(1000, "size=4g", |_| None);
    let addresses: Vec<_> = (0..PLACES).map(|place| cluster.network.address(place, Door::Members)).collect();
    let identity = cluster.agent(0);
    super::settle(&cluster, &addresses);
    let open = || Agent::open(&identity, &addresses, SITES[PLACE]).unwrap();
    let agent = open();
    let number = Mutex::new(0);
    let volumes = Mutex::new(Vec::new());
    // Keys are drawn ahead: where more are asked for than are ready, the agent is told so, and that is no key.
    let create = |agent: &Agent| {
        let volume = {
            let mut number = number.lock().unwrap();
            *number += 1;
            Volser::new(&format!("B{number}")).unwrap()
        };
        let tag = agent.begin(&volume, Algorithm::Aes256Gcm);
        tag.map(|tag| volumes.lock().unwrap().push((volume, tag))).is_ok()
    };
    rate("creates", ", sessions kept", &|| create(&agent));
    rate("creates", NEW_SESSIONS, &|| create(&open()));
    let volumes = volumes.into_inner().unwrap();
    assert!(!volumes.is_empty(), "no key was created");
    let get = |agent: &Agent, at: usize| {
        let (volume, tag) = &volumes[at % volumes.len()];
        agent.read(volume, tag).unwrap();
    };
    let got = |agent: &Agent, at: usize| {
        get(agent, at);
        true
    };
    rate("gets", ", sessions kept", &|| got(&agent, 7));
    rate("gets", NEW_SESSIONS, &|| got(&open(), 3));
    offered("", &|| get(&agent, 5));
    fail_over(&mut cluster, &identity, &addresses, &volumes);
    catch_up(&mut cluster, &addresses);
    many_keys(&mut cluster, &identity, &addresses, &volumes);
}

fn said(what: &str, value: &str) {
    println!("measured {what}: {value}");
}

/// How often it is done in a second by threads that do nothing else, and how long each took. What fails is not done.
fn rate(what: &str, how: &str, work: &(dyn Fn() -> bool + Sync)) {
    let (began, all) = (Instant::now(), Mutex::new(Vec::new()));
    let failed = Mutex::new(0);
    scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(|| {
                let mut own = Vec::new();
                while began.elapsed().as_secs_f64() < SECONDS {
                    let asked = Instant::now();
                    if work() {
                        own.push(asked.elapsed());
                    } else {
                        *failed.lock().unwrap() += 1;
                    }
                }
                all.lock().unwrap().extend(own);
            });
        }
    });
    let (all, failed) = (all.into_inner().unwrap(), failed.into_inner().unwrap());
    let done = all.len() as f64 / began.elapsed().as_secs_f64();
    eprintln!("{what}{how}: {} done, {failed} refused", all.len());
    said(&format!("{what} a second{how}"), &format!("{done:.0}"));
    let [p50, p99] = centiles(all);
    said(&format!("{what}, p50 and p99{how}"), &format!("{p50} and {p99}"));
}

/// The middle one, and the one that a hundredth are slower than.
fn centiles(mut all: Vec<Duration>) -> [String; 2] {
    all.sort_unstable();
    [0.50, 0.99].map(|share| format!("{:.2} ms", all[(all.len() as f64 * share) as usize].as_secs_f64() * 1e3))
}

/// Latencies at a rate that is offered, from the moment at which a request was due, whether its thread was free or not.
fn offered(when: &str, work: &(dyn Fn() + Sync)) {
    let (began, all) = (Instant::now(), Mutex::new(Vec::new()));
    let threads = 2 * THREADS;
    let step = threads as f64 / OFFERED;
    scope(|scope| {
        for thread in 0..threads {
            let all = &all;
            scope.spawn(move || {
                let mut own = Vec::new();
                let mut due = step * thread as f64 / threads as f64;
                while due < SECONDS {
                    let at = began + Duration::from_secs_f64(due);
                    sleep(at.saturating_duration_since(Instant::now()));
                    work();
                    own.push(at.elapsed());
                    due += step;
                }
                all.lock().unwrap().extend(own);
            });
        }
    });
    let all = all.into_inner().unwrap();
    let done = all.len() as f64 / began.elapsed().as_secs_f64();
    said(&format!("gets a second done of 2000 offered{when}"), &format!("{done:.0}"));
    let [p50, p99] = centiles(all);
    said(&format!("latency p50 at 2000 gets a second{when}"), &p50);
    said(&format!("latency p99 at 2000 gets a second{when}"), &p99);
}

/// How long an agent waits whose node is gone.
fn fail_over(cluster: &mut Cluster, identity: &Identity, addresses: &[String], volumes: &[(Volser, KeyTag)]) {
    let (volume, tag) = &volumes[0];
    let mut waited = BTreeMap::<&str, Vec<f64>>::new();
    for _ in 0..5 {
        for what in ["killed", "stopped"] {
            let agent = Agent::open(identity, addresses, SITES[PLACE]).unwrap();
            agent.read(volume, tag).unwrap();
            match what {
                "killed" => cluster.nodes[PLACE].kill(),
                _ => cluster.nodes[PLACE].freeze(),
            }
            let began = Instant::now();
            agent.read(volume, tag).unwrap();
            waited.entry(what).or_default().push(began.elapsed().as_secs_f64() * 1e3);
            cluster.nodes[PLACE].thaw();
            cluster.unlock(PLACE);
            super::settle(cluster, addresses);
        }
    }
    for (what, mut waited) in waited {
        waited.sort_by(f64::total_cmp);
        said(&format!("fail-over, node {what}"), &format!("{:.0} ms, at most {:.0} ms", waited[2], waited[4]));
    }
}

/// The replica of the node that is measured, which does not run.
struct Lying {
    replica: Replica,
    entries: Vec<Entry>,
    revision: i64,
}

impl Lying {
    fn open(cluster: &Cluster) -> Self {
        let path = cluster.state(PLACE).join("replica.db");
        let mut entries = Vec::new();
        let id = cluster.keys.cluster().to_string();
        let replica = Replica::open(&path, &id, 1, |entry| entries.push(entry)).unwrap();
        let revision = replica.applied().unwrap();
        Self { replica, entries, revision }
    }

    /// New keys of the group `default`, each of a volume of its own, as paths and sealed records.
    fn new_keys(&self, cluster: &Cluster, letter: char, count: usize) -> impl Iterator<Item = (String, Vec<u8>)> {
        let sealer = cluster.keys.sealer();
        let find = |prefix: &str| {
            let entry = self.entries.iter().find(|entry| entry.path.starts_with(prefix)).unwrap();
            sealer.open(&entry.path, &entry.sealed).unwrap().plaintext
        };
        let sample = IssuedRecord::decode(&find("key/")).unwrap();
        let group = GroupRecord::decode(&find("group/default")).unwrap();
        let group = cluster.keys.group_key(&group.group.name, &group.wrapped).unwrap();
        (0..count).map(move |number| {
            let key = VolumeKey::new(Secret::random().unwrap(), Algorithm::Aes256Gcm);
            let mut record = sample.clone();
            record.stored.record.tag = key.tag();
            record.stored.record.volser = Volser::new(&format!("{letter}{number}")).unwrap();
            record.stored.wrapped = Some(group.wrap(&key).unwrap());
            record.issued.tag = key.tag();
            let path = Path::Key(key.tag()).to_string();
            let sealed = sealer.seal(&path, 1, 1, &record.encode()).unwrap();
            (path, sealed)
        })
    }
}

/// A node that was away while others went on: until it has all of that.
fn catch_up(cluster: &mut Cluster, addresses: &[String]) {
    let count = key_count() / 10;
    cluster.nodes[PLACE].kill();
    let lying = Lying::open(cluster);
    let missed: Vec<_> = lying.new_keys(cluster, 'C', count).collect();
    drop(lying);
    missed.chunks(TRANSACTION_RECORDS_MAX).for_each(|records| cluster.put_sealed(records));
    let last = cluster.last_commit();
    let began = Instant::now();
    cluster.nodes[PLACE].start();
    cluster.unlock(PLACE);
    let client = cluster.looker(addresses, SITES[PLACE]).unwrap();
    super::cluster::retried("a node catches up", || {
        let Some(status) = cluster.look(&client) else { return false };
        status["name"] == node_name(PLACE) && status["applied"].as_i64().is_some_and(|applied| applied >= last)
    });
    said(
        &format!("a replica catches up with {count} keys, start and unlocking with it"),
        &format!("{:.1} s", began.elapsed().as_secs_f64()),
    );
    super::settle(cluster, addresses);
}

/// A node whose replica holds many keys: how fast it starts, what memory it takes, how fast it answers.
fn many_keys(cluster: &mut Cluster, identity: &Identity, addresses: &[String], volumes: &[(Volser, KeyTag)]) {
    cluster.nodes[PLACE].kill();
    let mut lying = Lying::open(cluster);
    let revision = lying.revision;
    let new: Vec<_> = lying.new_keys(cluster, 'M', key_count()).collect();
    let mut entries = std::mem::take(&mut lying.entries);
    // Of the first commit: by its newest records the node knows the ledger again, and of these etcd has heard nothing.
    entries.extend(new.into_iter().map(|(path, sealed)| Entry { path, sealed, revision: 1 }));
    entries.sort_by(|one, other| one.path.cmp(&other.path));
    let began = Instant::now();
    lying.replica.reset(&Snapshot { revision, entries }).unwrap();
    said(
        &format!("a replica of {} keys written whole", key_count()),
        &format!("{:.1} s", began.elapsed().as_secs_f64()),
    );
    drop(lying);
    let file = fs::metadata(cluster.state(PLACE).join("replica.db")).unwrap();
    said("its file", &format!("{} MB", file.len() / 1_000_000));
    let began = Instant::now();
    cluster.nodes[PLACE].start();
    cluster.unlock(PLACE);
    said("start with them, to unlocked", &format!("{:.1} s", began.elapsed().as_secs_f64()));
    let agent = Agent::open(identity, addresses, SITES[PLACE]).unwrap();
    let get = |at: usize| {
        let (volume, tag) = &volumes[at % volumes.len()];
        agent.read(volume, tag).unwrap();
    };
    get(0);
    // It proves its copy at once: every one of its keys is unwrapped meanwhile.
    offered(" with them, while they are proved", &|| get(5));
    super::settle(cluster, addresses);
    let status = fs::read_to_string(format!("/proc/{}/status", cluster.nodes[PLACE].id())).unwrap();
    let memory = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    let kib: u64 = memory.trim().trim_end_matches(" kB").parse().unwrap();
    said("memory with them", &format!("{} MB", kib / 1000));
}
