//! etcd members that stop, die and come back in the middle of work.

use std::sync::Arc;
use std::time::{Duration, Instant};

use capstan_keyd::ledger::{
    EtcdTiming, Expected, Faults, FaultyLedger, Ledger, LedgerError, Outcome, SimulatedLedger, Transaction,
};

use crate::etcd::{Etcd, PATIENT};

/// Longest that a cluster may take to come back on a machine with much else to do.
const PATIENCE: Duration = Duration::from_secs(60);
const TASKS: u64 = 4;
const INCREMENTS: u64 = 40;

async fn number(ledger: &dyn Ledger, path: &str) -> Result<Option<(u64, i64)>, LedgerError> {
    let found = ledger.read(path).await?.entries.into_iter().find(|entry| entry.path == path);
    Ok(found.map(|entry| (u64::from_le_bytes(entry.sealed.try_into().unwrap()), entry.revision)))
}

/// Adds one to the counter, once, whatever happens on the way: a mark that only this increment makes tells whether it
/// took place.
async fn increment(ledger: &dyn Ledger, mark: &str) {
    let began = Instant::now();
    loop {
        match try_increment(ledger, mark).await {
            Ok(true) => return,
            Ok(false) | Err(LedgerError::Unreachable { .. } | LedgerError::Unknown { .. }) => {}
            Err(error) => panic!("{mark}: {error:?}"),
        }
        assert!(began.elapsed() < PATIENCE, "{mark} does not come through");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

async fn try_increment(ledger: &dyn Ledger, mark: &str) -> Result<bool, LedgerError> {
    if number(ledger, mark).await?.is_some() {
        return Ok(true);
    }
    let counter = number(ledger, "counter").await?;
    let expected = counter.map_or(Expected::Absent, |(_, revision)| Expected::At { revision });
    let next = counter.map_or(0, |(value, _)| value) + 1;
    let transaction = Transaction {
        expect: vec![("counter".to_owned(), expected), (mark.to_owned(), Expected::Absent)],
        put: vec![("counter".to_owned(), next.to_le_bytes().into()), (mark.to_owned(), next.to_le_bytes().into())],
        remove: Vec::new(),
    };
    // A conflict may be with oneself: a commit that was taken for lost and came late.
    Ok(matches!(ledger.commit(transaction).await?, Outcome::Committed { .. }))
}

/// Several tasks count together through their ledgers; gives the tasks.
fn count_together<L: Ledger>(ledgers: Vec<Arc<L>>) -> Vec<tokio::task::JoinHandle<()>> {
    let task = |(task, ledger): (u64, Arc<L>)| {
        tokio::spawn(async move {
            for n in 0..INCREMENTS {
                increment(&*ledger, &format!("mark/{task}/{n}")).await;
            }
        })
    };
    (0..TASKS).zip(ledgers.into_iter().cycle()).map(task).collect()
}

async fn assert_exact(ledger: &dyn Ledger) {
    let (sum, _) = number(ledger, "counter").await.unwrap().unwrap();
    assert_eq!(sum, TASKS * INCREMENTS, "every increment counts once");
    assert_eq!(ledger.read("mark/").await.unwrap().entries.len() as u64, TASKS * INCREMENTS);
}

#[tokio::test(flavor = "multi_thread")]
async fn increments_are_exact_while_answers_are_lost() {
    let clock = || std::time::UNIX_EPOCH.elapsed().unwrap().subsec_nanos().into();
    let seed = std::env::var("CAPSTAN_SEED").ok().map_or_else(clock, |seed| seed.parse().unwrap());
    println!("CAPSTAN_SEED={seed} replays the faults");
    let faults = Faults { unreachable: 10, lost_before: 10, lost_after: 10, ..Faults::default() };
    let ledger = Arc::new(FaultyLedger::new(SimulatedLedger::new(), seed, faults));
    for task in count_together(vec![ledger.clone()]) {
        task.await.unwrap();
    }
    assert_exact(ledger.inner()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn increments_are_exact_while_leaders_die() {
    let etcd = Etcd::start(3).await;
    let mut ledgers = Vec::new();
    for own in 0..3 {
        ledgers.push(Arc::new(etcd.ledger("counts", own, EtcdTiming::default()).await));
    }
    let tasks = count_together(ledgers);
    let witness = etcd.ledger("counts", 0, PATIENT).await;
    for (part, blow) in [(1, Blow::Kill), (2, Blow::Freeze)] {
        let began = Instant::now();
        while number(&witness, "counter").await.ok().flatten().is_none_or(|(n, _)| n < part * TASKS * INCREMENTS / 3) {
            assert!(began.elapsed() < PATIENCE);
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        let leader = etcd.wait_for_leader().await;
        match blow {
            Blow::Kill => etcd.kill(leader),
            Blow::Freeze => etcd.freeze(leader),
        }
        etcd.wait_for_leader().await;
        match blow {
            Blow::Kill => etcd.restart(leader),
            Blow::Freeze => etcd.thaw(leader),
        }
    }
    for task in tasks {
        task.await.unwrap();
    }
    assert_exact(&witness).await;
}

#[derive(Clone, Copy)]
enum Blow {
    Kill,
    Freeze,
}

fn one_record() -> Transaction {
    Transaction { put: vec![("a".to_owned(), b"1".to_vec())], ..Transaction::default() }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_member_without_its_majority_says_so_and_does_not_hang() {
    let etcd = Etcd::start(3).await;
    let own = (etcd.wait_for_leader().await + 1) % 3;
    let alone = etcd.ledger_of_one("minority", own, EtcdTiming::default()).await;
    let among_all = etcd.ledger("minority", own, EtcdTiming::default()).await;
    for ledger in [&alone, &among_all] {
        ledger.commit(one_record()).await.unwrap();
    }
    for other in (0..3).filter(|other| *other != own) {
        etcd.freeze(other);
    }
    // In the first moments the member believes that its leader is there: what it was given then may have happened.
    let mut before = Instant::now();
    let began = before;
    while let Ok(_) | Err(LedgerError::Unknown { .. }) = alone.commit(one_record()).await {
        assert!(before.elapsed() < Duration::from_secs(4), "2 s were promised: {:?}", before.elapsed());
        assert!(began.elapsed() < PATIENCE, "it never notices");
        before = Instant::now();
    }
    for ledger in [&alone, &among_all] {
        let began = Instant::now();
        let read = ledger.read("").await.unwrap_err();
        assert!(matches!(read, LedgerError::Unreachable { .. }), "{read:?}");
        let commit = ledger.commit(one_record()).await.unwrap_err();
        assert!(matches!(commit, LedgerError::Unreachable { .. }), "nothing was proposed: {commit:?}");
        assert!(began.elapsed() < Duration::from_secs(8), "2 s each were promised: {:?}", began.elapsed());
    }
    for other in (0..3).filter(|other| *other != own) {
        etcd.thaw(other);
    }
    etcd.wait_for_leader().await;
    for ledger in [&alone, &among_all] {
        let began = Instant::now();
        while let Err(error) = ledger.read("").await {
            assert!(matches!(error, LedgerError::Unreachable { .. }), "{error:?}");
            assert!(began.elapsed() < PATIENCE, "it never comes back: {error:?}");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn other_members_stand_in_for_the_own_one() {
    let etcd = Etcd::start(3).await;
    let own = (etcd.wait_for_leader().await + 1) % 3;
    let ledger = etcd.ledger("stand-in", own, EtcdTiming::default()).await;
    ledger.commit(one_record()).await.unwrap();
    etcd.kill(own);
    // What was on its way when the member died is unknown; what comes after goes to another one, at once.
    let outcome = match ledger.commit(one_record()).await {
        Err(LedgerError::Unknown { .. }) => ledger.commit(one_record()).await,
        outcome => outcome,
    };
    assert!(matches!(outcome.unwrap(), Outcome::Committed { .. }));
    assert_eq!(ledger.read("").await.unwrap().entries.len(), 1);
}
