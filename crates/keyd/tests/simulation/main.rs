//! Nodes over a simulated ledger that fails: partitions, lost answers, restarts, while agents mount and write.
//!
//! `CAPSTAN_ROUNDS` says how many rounds, `CAPSTAN_SEED` begins with one seed. What is checked is what the agents
//! themselves have seen.

#![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

mod agent;
mod cluster;
mod removed;

use std::sync::Arc;

use cluster::Cluster;

/// Rounds unless somebody asks for more.
const ROUNDS: u64 = 200;
/// Rounds at the same time: they mostly wait.
const ABREAST: usize = 8;

#[test]
fn nodes_that_fail_give_no_key_twice_and_lose_none() {
    let number = |name: &str| std::env::var(name).ok().map(|text| text.parse::<u64>().unwrap());
    let from = number("CAPSTAN_SEED").unwrap_or_else(|| {
        u64::try_from(std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_millis()).unwrap()
    });
    let rounds =
        number("CAPSTAN_ROUNDS").unwrap_or(if std::env::var_os("CAPSTAN_SEED").is_some() { 1 } else { ROUNDS });
    println!("seeds {from} to {}: CAPSTAN_SEED=N replays one", from + rounds - 1);
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let turns = Arc::new(tokio::sync::Semaphore::new(ABREAST));
        let mut running = tokio::task::JoinSet::new();
        for seed in from..from + rounds {
            let turns = turns.clone();
            running.spawn(async move {
                let _turn = turns.acquire().await.unwrap();
                tokio::spawn(round(seed)).await.map_err(|failed| format!("seed {seed}: {failed}"))
            });
        }
        let mut total = agent::Seen::default();
        while let Some(ended) = running.join_next().await {
            match ended.unwrap() {
                Ok(seen) => total.join(&seen),
                Err(failed) => panic!("{failed}"),
            }
        }
        println!("{total:?}");
        // One round by itself may be a quiet one.
        assert!(rounds < ROUNDS || (total.begun > 0 && total.appended > 0 && total.alone > 0), "{total:?}");
    });
}

async fn round(seed: u64) -> agent::Seen {
    let cluster = Cluster::start(seed).await;
    let seen = agent::run(&cluster, seed).await;
    cluster.heal().await;
    agent::check(&cluster, &seen).await;
    seen
}
