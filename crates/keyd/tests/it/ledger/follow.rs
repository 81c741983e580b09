//! A replica follows its ledger through faults, stopped members and compaction, and is at the end what the ledger is.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use capstan_keyd::ledger::{
    Change, Entry, EtcdTiming, Faults, FaultyLedger, Ledger, LedgerError, Outcome, SimulatedLedger, Transaction,
};
use capstan_keyd::replica::{Delivery, Freshness, Replica, ReplicaError, follow};
use tempfile::TempDir;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::Instant;

use crate::etcd::Etcd;

const PATIENCE: Duration = Duration::from_secs(60);

/// What a node decodes from what it is told.
#[derive(Default)]
struct Decoded {
    records: BTreeMap<String, Entry>,
    whole_copies: usize,
    /// The ledger is not believed.
    lost: bool,
}

impl Decoded {
    fn take(&mut self, delivery: Delivery<'_>) {
        match delivery {
            Delivery::Whole(snapshot) => {
                self.whole_copies += 1;
                self.records = snapshot.entries.iter().map(|entry| (entry.path.clone(), entry.clone())).collect();
            }
            Delivery::Unfollowed(_) => {}
            Delivery::Lost(_) => self.lost = true,
            Delivery::KnownAgain => self.lost = false,
            Delivery::Changes(changes) => {
                for change in &changes.changes {
                    match change {
                        Change::Put(entry) => drop(self.records.insert(entry.path.clone(), entry.clone())),
                        Change::Removed { path, .. } => assert!(self.records.remove(path).is_some(), "{path}"),
                    }
                }
            }
        }
    }
}

/// A node that follows.
struct Node {
    folder: Arc<TempDir>,
    decoded: Arc<Mutex<Decoded>>,
    freshness: watch::Receiver<Freshness>,
    task: JoinHandle<ReplicaError>,
}

impl Node {
    fn start<L: Ledger>(ledger: Arc<L>, folder: Arc<TempDir>) -> Self {
        let (replica, records) = open(&folder);
        let decoded = Arc::new(Mutex::new(Decoded { records, whole_copies: 0, lost: false }));
        let (sender, freshness) = watch::channel(Freshness::default());
        let told = decoded.clone();
        let task = tokio::spawn(async move {
            follow(&*ledger, replica, 1, &sender, |delivery| told.lock().unwrap().take(delivery)).await
        });
        Self { folder, decoded, freshness, task }
    }

    async fn wait(&mut self, what: &str, condition: impl FnMut(&Freshness) -> bool) -> Freshness {
        let waited = tokio::time::timeout(PATIENCE, self.freshness.wait_for(condition)).await;
        match waited.map(|found| found.map(|freshness| freshness.clone())) {
            Ok(freshness) => freshness.unwrap_or_else(|_| panic!("{what}: following ended")),
            Err(_) => panic!("{what}: {:?}", self.freshness.borrow()),
        }
    }

    /// Waits until it is current, asked after this moment.
    async fn wait_until_current(&mut self) -> Freshness {
        let now = Instant::now();
        self.wait("it never is current", |freshness| freshness.current_at.is_some_and(|asked| asked > now)).await
    }

    /// Ends it; its replica is closed then.
    async fn stop(self) -> (Arc<TempDir>, BTreeMap<String, Entry>, usize) {
        self.task.abort();
        assert!(self.task.await.unwrap_err().is_cancelled());
        let decoded = self.decoded.lock().unwrap();
        (self.folder, decoded.records.clone(), decoded.whole_copies)
    }
}

fn folder() -> Arc<TempDir> {
    Arc::new(tempfile::tempdir().unwrap())
}

fn open(folder: &TempDir) -> (Replica, BTreeMap<String, Entry>) {
    let path: PathBuf = folder.path().join("replica.db");
    let mut records = BTreeMap::new();
    let replica = Replica::open(&path, "alpha", 1, |entry| drop(records.insert(entry.path.clone(), entry)));
    (replica.unwrap(), records)
}

/// Puts a record, whatever it takes.
async fn put(ledger: &dyn Ledger, path: &str, sealed: &[u8]) -> i64 {
    change(ledger, Transaction { put: vec![(path.to_owned(), sealed.to_vec())], ..Transaction::default() }).await
}

async fn change(ledger: &dyn Ledger, transaction: Transaction) -> i64 {
    let began = Instant::now();
    loop {
        match ledger.commit(transaction.clone()).await {
            Ok(Outcome::Committed { revision }) => return revision,
            // To put the same record twice does no harm here.
            Err(LedgerError::Unreachable { .. } | LedgerError::Unknown { .. }) => {}
            other => panic!("{other:?}"),
        }
        assert!(began.elapsed() < PATIENCE);
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

/// The node knows what the ledger has, and so does its replica when it is opened again.
async fn assert_same(node: Node, ledger: &dyn Ledger) -> usize {
    let snapshot = ledger.read("").await.unwrap();
    let expected: BTreeMap<_, _> = snapshot.entries.into_iter().map(|entry| (entry.path.clone(), entry)).collect();
    let (folder, decoded, whole_copies) = node.stop().await;
    assert_eq!(decoded, expected, "what the node was told");
    assert_eq!(open(&folder).1, expected, "what is on its disk");
    whole_copies
}

#[tokio::test(flavor = "multi_thread")]
async fn a_replica_is_the_same_in_the_end_whatever_fails_on_the_way() {
    let clock = || std::time::UNIX_EPOCH.elapsed().unwrap().subsec_nanos().into();
    let seed = std::env::var("CAPSTAN_SEED").ok().map_or_else(clock, |seed| seed.parse().unwrap());
    println!("CAPSTAN_SEED={seed} replays the faults");
    let faults = Faults { unreachable: 20, cut: 5, delayed: 20, compacted: 10, ..Faults::default() };
    let ledger = Arc::new(FaultyLedger::new(SimulatedLedger::new(), seed, faults));
    let mut node = Node::start(ledger.clone(), folder());
    let mut revision = 0;
    for n in 0..300 {
        revision = put(ledger.inner(), &format!("key/{}", n % 37), &[n as u8; 50]).await;
        if n % 5 == 0 {
            let remove = vec![format!("key/{}", n % 23)];
            revision = change(ledger.inner(), Transaction { remove, ..Transaction::default() }).await;
        }
        if n == 150 {
            // Between two lives it misses some.
            let folder = node.stop().await.0;
            put(ledger.inner(), "key/meanwhile", b"1").await;
            node = Node::start(ledger.clone(), folder);
        }
        tokio::task::yield_now().await;
    }
    node.wait("it never has everything", |freshness| freshness.applied >= Some(revision)).await;
    assert_same(node, ledger.inner()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_compacted_history_is_replaced_by_a_whole_copy() {
    let ledger = Arc::new(SimulatedLedger::new());
    put(&*ledger, "key/gone", b"1").await;
    let mut node = Node::start(ledger.clone(), folder());
    node.wait_until_current().await;
    let (folder, _, whole_copies) = node.stop().await;
    assert_eq!(whole_copies, 1, "the first one");
    change(&*ledger, Transaction { remove: vec!["key/gone".to_owned()], ..Transaction::default() }).await;
    ledger.compact(put(&*ledger, "key/new", b"1").await);
    let mut node = Node::start(ledger.clone(), folder);
    node.wait_until_current().await;
    assert_eq!(assert_same(node, &*ledger).await, 1);
    assert_eq!(ledger.read("").await.unwrap().entries.len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_replica_follows_etcd_past_a_frozen_member_and_a_compaction() {
    let etcd = Etcd::start(3).await;
    let own = (etcd.wait_for_leader().await + 1) % 3;
    let ledger = Arc::new(etcd.ledger("follow", own, EtcdTiming::default()).await);
    let writer = etcd.ledger("follow", (own + 1) % 3, EtcdTiming::default()).await;
    for n in 0..20 {
        put(&writer, &format!("key/{n}"), b"1").await;
    }
    let mut node = Node::start(ledger.clone(), folder());
    node.wait_until_current().await;

    // Its own member stops answering: it finds another one.
    etcd.freeze(own);
    put(&writer, "key/frozen", b"1").await;
    let freshness = node.wait_until_current().await;
    assert_eq!(freshness.trouble, None);
    etcd.thaw(own);
    etcd.wait_for_leader().await;

    // Nobody has a majority: it says so, and says no longer that it is fresh.
    let last = put(&writer, "key/before", b"1").await;
    node.wait("it has everything", |freshness| freshness.applied >= Some(last)).await;
    for member in (0..3).filter(|member| *member != own) {
        etcd.freeze(member);
    }
    let freshness = node.wait("it notices nothing", |freshness| freshness.trouble.is_some()).await;
    assert!(freshness.applied >= Some(last) && freshness.current_at.unwrap() < Instant::now());
    for member in (0..3).filter(|member| *member != own) {
        etcd.thaw(member);
    }
    etcd.wait_for_leader().await;
    node.wait_until_current().await;

    // While it is away its history is forgotten.
    let folder = node.stop().await.0;
    put(&writer, "key/0", b"2").await;
    change(&writer, Transaction { remove: vec!["key/1".to_owned()], ..Transaction::default() }).await;
    etcd.compact(put(&writer, "key/after", b"1").await).await;
    let mut node = Node::start(ledger.clone(), folder);
    node.wait_until_current().await;
    assert_eq!(assert_same(node, &writer).await, 1, "one whole copy");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_replica_follows_a_member_that_dies_and_comes_back() {
    let etcd = Etcd::start(1).await;
    let ledger = Arc::new(etcd.ledger("restart", 0, EtcdTiming::default()).await);
    put(&*ledger, "key/1", b"1").await;
    let mut node = Node::start(ledger.clone(), folder());
    node.wait_until_current().await;
    etcd.kill(0);
    node.wait("it notices nothing", |freshness| freshness.trouble.is_some()).await;
    etcd.restart(0);
    let last = put(&*ledger, "key/2", b"1").await;
    node.wait("it never comes back", |freshness| freshness.applied >= Some(last)).await;
    assert_eq!(assert_same(node, &*ledger).await, 1, "no whole copy was needed but the first");
}

/// A member that is put back to an older state has fewer commits than the replica, and may have other ones of the same
/// number soon.
#[tokio::test(flavor = "multi_thread")]
async fn a_ledger_that_was_put_back_is_not_believed() {
    let etcd = Etcd::start(1).await;
    let ledger = Arc::new(etcd.ledger("put-back", 0, EtcdTiming::default()).await);
    put(&*ledger, "key/1", b"1").await;
    etcd.kill(0);
    etcd.save(0);
    etcd.restart(0);
    let last = put(&*ledger, "key/2", b"lost with the newer state").await;
    let mut node = Node::start(ledger.clone(), folder());
    node.wait("it never has everything", |freshness| freshness.applied >= Some(last)).await;
    etcd.kill(0);
    etcd.put_back(0);
    etcd.restart(0);
    let is_lost = |freshness: &Freshness| freshness.trouble.as_ref().is_some_and(|why| why.contains("older state"));
    node.wait("it notices nothing", is_lost).await;
    assert!(node.decoded.lock().unwrap().lost);
    assert_eq!(node.freshness.borrow().applied, Some(last), "what the node knows it keeps");

    // The right one is there again: nobody has to start the node again, which was what it took.
    etcd.kill(0);
    etcd.put_forward(0);
    etcd.restart(0);
    let last = put(&*ledger, "key/3", b"1").await;
    node.wait("it never comes back", |freshness| freshness.applied >= Some(last)).await;
    assert!(!node.decoded.lock().unwrap().lost);
    assert_eq!(assert_same(node, &*ledger).await, 1, "no whole copy was needed but the first");
}

/// `cargo test --release -p capstan-keyd --test it -- --ignored --nocapture a_million`
#[tokio::test(flavor = "multi_thread")]
#[ignore = "a measurement"]
async fn a_million_records_are_copied() {
    const RECORDS: usize = 1_000_000;
    let etcd = Etcd::start(1).await;
    let ledger = Arc::new(etcd.ledger("million", 0, crate::etcd::PATIENT).await);
    let began = Instant::now();
    let paths: Vec<_> = (0..RECORDS).map(|n| format!("key/{:032x}", n * 7919)).collect();
    let commits = paths.chunks(100).map(|paths| {
        let put = paths.iter().map(|path| (path.clone(), vec![1; 200])).collect();
        change(&*ledger, Transaction { put, ..Transaction::default() })
    });
    futures_util::StreamExt::for_each_concurrent(futures_util::stream::iter(commits), 8, async |commit| {
        commit.await;
    })
    .await;
    println!("commits of {RECORDS} in hundreds: {:?}", began.elapsed());
    let began = Instant::now();
    assert_eq!(ledger.read("").await.unwrap().entries.len(), RECORDS);
    println!("snapshot: {:?}", began.elapsed());
    let began = Instant::now();
    let mut node = Node::start(ledger.clone(), folder());
    node.wait_until_current().await;
    println!("a new replica is current: {:?}", began.elapsed());
    let folder = node.stop().await.0;
    let began = Instant::now();
    let mut node = Node::start(ledger, folder);
    node.wait_until_current().await;
    println!("started again and current: {:?}", began.elapsed());
}
