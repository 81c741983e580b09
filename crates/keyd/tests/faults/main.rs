//! Acceptance: a cluster of real processes (three members of etcd, three nodes at two sites) is killed, stopped, cut
//! apart, filled up and given wrong clocks in seeded rounds, while agents mount and write through the client of real
//! agents, and officers destroy keys.
//!
//! ```text
//!  cargo test -p capstan-keyd --test faults -- --nocapture      60 rounds; 200 with CAPSTAN_FULL=1, as `./x test --full` has it;
//!                                                               CAPSTAN_ROUNDS=5000 for more
//!  CAPSTAN_SEED=...                                              the same plan again
//! ```
//! One cluster lives through all rounds, and heals after each. Held against what the agents themselves have seen: no
//! key is on two volumes, none was given out before nodes of both sites had it on their disks, every one that was given
//! out is read again from the nodes of both sites, but for those that were destroyed, which each of them refuses
//! (`officers`); and the audit logs are whole and hold every key that was given out. Every fifth round ends with
//! nothing running, and starts everything in the next of all orders. Without the right to make network namespaces
//! nothing is cut, without that to mount no disk fills, and without a C compiler no clock jumps.
//!
//! A program of its own: `CAPSTAN_ROUNDS` would else reach the other tests of the node.

#![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

mod agents;
mod bench;
mod clocks;
mod cluster;
mod network;
mod officers;
mod process;
mod trouble;

use std::collections::HashSet;
use std::fs;
use std::io::Write;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, RwLock};
use std::time::{Duration, Instant};

use capstan_keys::cluster::Identity;
use capstan_service::audit::{log_files, verify};

use agents::{Agent, Seen, Yard, is_at_both_sites, read_again};
use cluster::{Cluster, name, node_name, now_ns, retried};
use network::{Door, PLACES, SITES};
use officers::Officers;
use trouble::{ORDERS_ALL, ORDERS_TAKE, Round, Seeded};

/// Rounds unless somebody asks for more: a minute and a half.
const ROUNDS: u64 = 60;
/// Rounds of a night, in which everything happens that can: some minutes.
const ROUNDS_FULL: u64 = 200;
const AGENTS: usize = 8;
/// After so many rounds everything is looked at, and at the end.
const LOOK_EVERY: u64 = 200;

#[test]
fn nodes_that_fail_give_no_key_twice_and_lose_none() {
    let number = |name: &str| std::env::var(name).ok().map(|text| text.parse::<u64>().unwrap());
    let seed = number("CAPSTAN_SEED").unwrap_or_else(now_ns);
    let full = std::env::var_os("CAPSTAN_FULL").is_some();
    let rounds = number("CAPSTAN_ROUNDS").unwrap_or(if full { ROUNDS_FULL } else { ROUNDS });
    println!("CAPSTAN_SEED={seed} CAPSTAN_ROUNDS={rounds}");
    let mut cluster = Cluster::start();
    let (can_cut, can_fill, can_set) = (cluster.network.can_cut(), cluster.can_fill_disk(), cluster.clocks.is_some());
    for (can, what) in [(can_cut, "cut a link"), (can_fill, "fill a disk"), (can_set, "set a clock")] {
        if !can {
            skipped(&format!("faults: nothing here can {what}, so that fault was not tried"));
        }
    }
    let addresses: Vec<_> = (0..PLACES).map(|place| cluster.network.address(place, Door::Members)).collect();
    let identities: Vec<_> = (0..AGENTS).map(|number| cluster.agent(number)).collect();
    let officers = Officers::of(&cluster, &addresses);
    let yard = Yard {
        seen: Mutex::default(),
        open: RwLock::default(),
        ends: AtomicBool::new(false),
        states: (0..PLACES).map(|place| cluster.state(place)).collect(),
    };
    // Each node's pool has to have been stored elsewhere before it serves.
    settle(&cluster, &addresses);
    // Before anything fails: a drive that has never heard of the cluster begins with nothing.
    let opened = |(number, identity)| Agent::open(identity, &addresses, SITES[number % PLACES]).unwrap();
    let agents: Vec<_> = identities.iter().enumerate().map(opened).collect();
    let mut orders = HashSet::new();
    std::thread::scope(|scope| {
        for (number, agent) in agents.iter().enumerate() {
            let yard = &yard;
            scope.spawn(move || agent.work(number, yard, Seeded(seed ^ ((number as u64 + 1) << 32))));
        }
        scope.spawn(|| officers.work(&yard, Seeded(seed)));
        let _end = Ends(&yard.ends);
        for round in 0..rounds {
            let began = Instant::now();
            let plan = Round::draw(seed.wrapping_add(round), round, &cluster);
            println!("round {round}: {plan:?}");
            plan.play(&mut cluster);
            orders.extend(plan.order_of_all());
            println!("  {:.1} s", began.elapsed().as_secs_f64());
            if (round + 1) % LOOK_EVERY == 0 || round + 1 == rounds {
                // Mounts end, and none begins while everything is looked at.
                let _closed = yard.open.write().unwrap();
                look(&cluster, &identities[0], &addresses, &yard.seen.lock().unwrap());
            }
            let wrong = &yard.seen.lock().unwrap().wrong;
            assert!(wrong.is_empty(), "seed {seed}, round {round}: {wrong:#?}");
        }
    });
    let seen = yard.seen.lock().unwrap();
    println!("{} keys, {:?}", seen.keys.len(), seen.counts);
    println!("everything was started in {} orders of {ORDERS_ALL}", orders.len());
    assert!(rounds < ORDERS_TAKE || orders.len() == ORDERS_ALL, "{} orders of {ORDERS_ALL}", orders.len());
    assert!(rounds < ROUNDS_FULL || seen.counts.destroyed > 0, "{:?}", seen.counts);
    assert!(rounds < ROUNDS_FULL || seen.counts.alone > 0, "nothing was given out cut off: {:?}", seen.counts);
    // A node whose clock is wrong is passed over: what it says of a certificate is no answer.
    assert!(!seen.counts.refused.contains_key("turned-away"), "{:?}", seen.counts);
    let appended = rounds < ROUNDS_FULL || seen.counts.appended > 0;
    assert!(seen.counts.begun > 0 && appended && seen.counts.read > 0, "{:?}", seen.counts);
}

/// Any two disks were enough, and two of the three nodes stand at one site: a key that no other site had was not seen.
#[test]
fn two_disks_at_one_site_are_not_two_sites() {
    let kept = [[true, false, true], [false, true, true], [true, true, true]];
    assert!(kept.into_iter().all(is_at_both_sites));
    let lost = [[true, true, false], [false, false, true], [false, false, false]];
    assert!(!lost.into_iter().any(is_at_both_sites));
}

/// Says that something was not tried here, past the harness, which keeps to itself what passing tests print. `./x test`
/// counts it.
fn skipped(reason: &str) {
    let _ = writeln!(std::io::stderr(), "\nSKIP {reason}");
}

/// A node whose clock was ahead by years took its certificate to have ended, and made one out for itself that began
/// years later. The clock was set right, and nobody took that certificate; nor did the node renew it, since it was to
/// hold for years.
#[test]
fn a_certificate_that_a_clock_ahead_made_out_does_not_outlive_the_error() {
    let cluster = Cluster::start();
    if cluster.clocks.is_none() {
        skipped("there is no C compiler for a clock that can be set");
        return;
    }
    let addresses: Vec<_> = (0..PLACES).map(|place| cluster.network.address(place, Door::Members)).collect();
    settle(&cluster, &addresses);
    let renewed = || cluster.said(0, "this node has a new certificate");
    cluster.set_clock(0, 10);
    retried("the node renews its certificate", || renewed() == 1);
    cluster.set_clock(0, 0);
    retried("the node renews its certificate again", || renewed() == 2);
    settle(&cluster, &addresses);
}

/// Lets agents end, also where a round panics.
struct Ends<'a>(&'a AtomicBool);

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}

/// Waits until every node is in touch, is through with its journal, knows everything, and has both halves of its pool.
fn settle(cluster: &Cluster, addresses: &[String]) {
    let last = cluster.last_commit();
    let mut said = vec![String::from("nothing"); PLACES];
    let began = Instant::now();
    retried("every node knows everything", || {
        for place in 0..PLACES {
            let own = &addresses[place..=place];
            // A client asks whom it finds best; the answer says whose it is.
            let Some(client) = cluster.looker(own, SITES[place]) else { continue };
            for _ in 0..2 {
                let Some(status) = cluster.look(&client) else { continue };
                let whose = (0..PLACES).find(|place| status["name"] == node_name(*place)).unwrap();
                said[whose] = status.to_string();
                let whole = status["standing"] == "current"
                    && status["journal_pending"] == 0
                    && status["applied"].as_i64().is_some_and(|applied| applied >= last)
                    && ["ready", "reserve"]
                        .iter()
                        .all(|half| status["pool"][half].as_u64().is_some_and(|keys| keys > 40));
                if whole {
                    let doubts: Vec<String> = serde_json::from_value(status["doubts"].clone()).unwrap();
                    let unfounded: Vec<_> = doubts.iter().filter(|doubt| !cluster.may_doubt(doubt)).collect();
                    assert!(unfounded.is_empty(), "node {whose} doubts what nobody altered: {unfounded:#?}");
                    said[whose].clear();
                }
            }
        }
        if began.elapsed() > Duration::from_secs(30) {
            println!("{said:#?}");
        }
        said.iter().all(String::is_empty)
    });
}

/// Everything that was given out is read again, and the audit logs are whole and hold it.
fn look(cluster: &Cluster, identity: &Identity, addresses: &[String], seen: &Seen) {
    let began = Instant::now();
    settle(cluster, addresses);
    let settled = began.elapsed();
    let lost = read_again(identity, addresses, seen);
    assert!(lost.is_empty(), "{lost:#?}");
    let mut noted = String::new();
    for place in 0..PLACES {
        let log = fs::read_to_string(&cluster.nodes[place].log).unwrap();
        let doubts: Vec<_> =
            log.lines().filter(|line| line.contains("is not believed") && !cluster.may_doubt(line)).collect();
        assert!(doubts.is_empty(), "node {place} doubts what nobody altered: {doubts:#?}");
        let files = log_files(&cluster.state(place).join("audit")).unwrap();
        let report = verify(&name(&node_name(place)), &files, &[]).unwrap();
        assert_eq!(report.finding, None, "the audit log of node {place}");
        let script = concat!(env!("CARGO_MANIFEST_DIR"), "/../service/tests/audit.py");
        let python = Command::new("python3").args([script, "--kma", &node_name(place)]).args(&files).output().unwrap();
        assert!(python.status.success(), "audit.py: {}", String::from_utf8_lossy(&python.stdout));
        files.iter().for_each(|file| noted.push_str(&fs::read_to_string(file).unwrap()));
    }
    for tag in seen.keys.keys() {
        assert!(noted.contains(&tag.to_string()), "key {tag} was given out, and no audit log says so");
    }
    println!("looked at {} keys: {settled:?} to settle, {:?} in all", seen.keys.len(), began.elapsed());
}
