//! Nodes over a simulated ledger that fails: partitions, lost answers, restarts, while agents mount and write.
//!
//! `CAPSTAN_ROUNDS` says how many rounds, `CAPSTAN_SEED` begins with one seed. What is checked is what the agents
//! themselves have seen.
//!
//! A round is one thread, one task and virtual time: it waits for no clock, and its seed replays it to the
//! millisecond.

#![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

mod agent;
mod cluster;
mod removed;

use cluster::Cluster;

/// Rounds unless somebody asks for more.
const ROUNDS: u64 = 200;

#[test]
fn nodes_that_fail_give_no_key_twice_and_lose_none() {
    let number = |name: &str| std::env::var(name).ok().map(|text| text.parse::<u64>().unwrap());
    let from = number("CAPSTAN_SEED").unwrap_or_else(|| {
        u64::try_from(std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_millis()).unwrap()
    });
    let rounds =
        number("CAPSTAN_ROUNDS").unwrap_or(if std::env::var_os("CAPSTAN_SEED").is_some() { 1 } else { ROUNDS });
    println!("seeds {from} to {}: CAPSTAN_SEED=N replays one", from + rounds - 1);
    let mut total = agent::Seen::default();
    for seed in from..from + rounds {
        let ended = std::panic::catch_unwind(|| round(seed));
        let Ok((seen, _)) = ended else { panic!("seed {seed} fails, as said above: CAPSTAN_SEED={seed} replays it") };
        total.join(&seen);
    }
    println!("{total:?}");
    // One round by itself may be a quiet one.
    assert!(rounds < ROUNDS || (total.begun > 0 && total.appended > 0 && total.alone > 0), "{total:?}");
}

/// The story: the rounds ran on many threads and by the machine's clock, and a seed gave its faults again and nothing
/// else; no failure could be looked at twice.
#[test]
fn a_seed_replays_its_round() {
    let [first, second, other] = [7, 7, 8].map(|seed| round(seed).1);
    assert!(first.iter().any(|line| line.contains("has key")), "{first:?}");
    for (line, again) in first.iter().zip(&second) {
        assert_eq!(line, again);
    }
    assert_eq!(first.len(), second.len());
    assert_ne!(first, other);
}

/// A round, and line by line what happened in it.
fn round(seed: u64) -> (agent::Seen, Vec<String>) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
    runtime.block_on(async {
        let cluster = Cluster::start(seed).await;
        let seen = cluster.beside(agent::run(&cluster, seed)).await;
        cluster.beside(cluster.heal()).await;
        agent::check(&cluster, &seen).await;
        (seen, cluster.trace.lines())
    })
}
