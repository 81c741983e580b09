//! Three nodes at two sites, each behind a link to the ledger that can be cut, and what happens to them.

use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::task::{Context, Poll};
use std::time::Duration;

use capstan_format::KeyTag;
use capstan_keyd::desk::Asked;
use capstan_keyd::ledger::{
    Entry, Faults, FaultyLedger, Ledger, LedgerError, Outcome, SimulatedLedger, Snapshot, Transaction, Watched,
};
use capstan_keyd::node::{MajorityContact, Node, NodeSettings, NoteError, Notebook, Noted};
use capstan_keyd::path::Path;
use capstan_keyd::record::{GroupRecord, KmaRecord};
use capstan_keyd::root::ClusterKeys;
use capstan_keys::api::ClusterId;
use capstan_keys::{KeyGroup, Name, Period, Policy, RealmRecord, RootKey, Secret};
use futures_util::StreamExt;
use futures_util::future::BoxFuture;
use futures_util::stream::BoxStream;
use tokio::time::Instant;

pub(crate) const CLUSTER: ClusterId = ClusterId([7; 16]);
const SETTINGS: NodeSettings = NodeSettings {
    pool_keys: 40,
    pool_low: 4,
    commit_patience: Duration::from_millis(100),
    alone_after: Duration::from_millis(400),
};

/// Random numbers that a seed gives again.
pub(crate) struct Seeded(pub(crate) u64);

impl Seeded {
    pub(crate) fn below(&mut self, end: u64) -> u64 {
        self.next() % end
    }

    fn next(&mut self) -> u64 {
        // splitmix64
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }
}

/// What happened in a round, line by line, each with its millisecond.
#[derive(Clone)]
pub(crate) struct Trace {
    begun: Instant,
    lines: Arc<Mutex<Vec<String>>>,
}

impl Trace {
    fn new() -> Self {
        Self { begun: Instant::now(), lines: Arc::default() }
    }

    pub(crate) fn note(&self, what: std::fmt::Arguments<'_>) {
        self.lines.lock().unwrap().push(format!("{} {what}", self.begun.elapsed().as_millis()));
    }

    pub(crate) fn lines(&self) -> Vec<String> {
        self.lines.lock().unwrap().clone()
    }
}

/// A node's way to the ledger.
struct Link {
    kma: Name,
    ledger: Arc<FaultyLedger<SimulatedLedger>>,
    cut: Arc<AtomicBool>,
    trace: Trace,
}

impl Link {
    async fn cut(&self) -> Option<LedgerError> {
        if !self.cut.load(Ordering::SeqCst) {
            return None;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
        Some(LedgerError::Unreachable { source: "the link is cut".into() })
    }
}

impl Ledger for Link {
    fn commit(&self, transaction: Transaction) -> BoxFuture<'_, Result<Outcome, LedgerError>> {
        Box::pin(async move {
            if let Some(error) = self.cut().await {
                return Err(error);
            }
            let paths: Vec<String> = transaction.put.iter().map(|(path, _)| path.clone()).collect();
            let outcome = self.ledger.commit(transaction).await;
            self.trace.note(format_args!("{} commits {paths:?}: {outcome:?}", self.kma));
            // The answer is lost where the link is cut by now.
            match self.cut.load(Ordering::SeqCst) {
                true => Err(LedgerError::Unknown { source: "the link was cut".into() }),
                false => outcome,
            }
        })
    }

    fn read<'a>(&'a self, prefix: &'a str) -> BoxFuture<'a, Result<Snapshot, LedgerError>> {
        Box::pin(async move {
            match self.cut().await {
                Some(error) => Err(error),
                None => self.ledger.read(prefix).await,
            }
        })
    }

    fn forget(&self, revision: i64) -> BoxFuture<'_, Result<(), LedgerError>> {
        self.ledger.forget(revision)
    }

    fn watch(&self, after: i64) -> BoxStream<'_, Result<Watched, LedgerError>> {
        let watched = self.ledger.watch(after);
        Box::pin(watched.then(|next| async {
            match self.cut().await {
                Some(error) => Err(error),
                None => next,
            }
        }))
    }
}

/// A journal that outlives its node, as one of its nodes has it.
#[derive(Clone, Default)]
pub(crate) struct Book {
    pages: Arc<Mutex<Pages>>,
    /// Which of them it is.
    life: u64,
}

#[derive(Default)]
struct Pages {
    last: u64,
    noted: Vec<Noted>,
    /// The node that may write: one that was killed is dead to its disk, though somebody may hold on to it here.
    life: u64,
}

impl Book {
    /// The journal for another node. Those before it write no more.
    fn opened(&self) -> Self {
        let mut pages = self.pages.lock().unwrap();
        pages.life += 1;
        Self { pages: self.pages.clone(), life: pages.life }
    }

    fn written(&self) -> Result<MutexGuard<'_, Pages>, NoteError> {
        let pages = self.pages.lock().unwrap();
        match pages.life == self.life {
            true => Ok(pages),
            false => Err(NoteError::Entry { what: "its node was killed".to_owned() }),
        }
    }
}

impl Notebook for Book {
    fn note(&mut self, asked: &[Asked]) -> Result<(), NoteError> {
        let mut pages = self.written()?;
        pages.last += 1;
        let number = pages.last;
        pages.noted.push(Noted { number, asked: asked.to_vec() });
        Ok(())
    }

    fn pending(&self, count_max: usize) -> Result<Vec<Noted>, NoteError> {
        Ok(self.pages.lock().unwrap().noted.iter().take(count_max).cloned().collect())
    }

    fn sequence(&self) -> u64 {
        self.pages.lock().unwrap().last
    }

    fn take_back(&mut self, _: &[u8]) -> Result<(), NoteError> {
        Ok(())
    }

    fn wiped(&mut self) -> Result<Option<(u64, String)>, NoteError> {
        Ok(None)
    }

    fn since(&mut self, _: u64) -> Result<Option<Vec<u8>>, NoteError> {
        Ok(None)
    }

    fn len(&self) -> usize {
        self.pages.lock().unwrap().noted.len()
    }

    fn strike_out(&mut self, number: u64) -> Result<(), NoteError> {
        self.written()?.noted.retain(|noted| noted.number > number);
        Ok(())
    }
}

/// A place for a node: what stays when it is restarted, and the node that runs there.
pub(crate) struct Seat {
    pub(crate) name: Name,
    cut: Arc<AtomicBool>,
    book: Book,
    /// What its disk holds.
    replica: Arc<Mutex<Snapshot>>,
    running: Mutex<Option<Running>>,
}

struct Running {
    node: Arc<Node>,
    /// What it does besides answering.
    life: Pin<Box<dyn Future<Output = ()> + Send>>,
}

pub(crate) struct Cluster {
    root: RootKey,
    wrapped: capstan_keys::WrappedKey,
    faulty: Arc<FaultyLedger<SimulatedLedger>>,
    pub(crate) seats: Vec<Seat>,
    /// The clock: it may be wrong by years.
    now_ns: Arc<AtomicI64>,
    /// What its keys are drawn from.
    random: Arc<Mutex<Seeded>>,
    pub(crate) trace: Trace,
}

pub(crate) fn name(text: &str) -> Name {
    text.parse().unwrap()
}

impl Cluster {
    pub(crate) async fn start(seed: u64) -> Self {
        let ledger = SimulatedLedger::new();
        let faults = Faults { unreachable: 2, lost_before: 2, lost_after: 3, cut: 2, delayed: 5, compacted: 0 };
        let (root, keys) = (RootKey::random().unwrap(), ClusterKeys::create(CLUSTER).unwrap());
        let wrapped = keys.wrap(&root).unwrap();
        let seats = [("a", "one"), ("b", "one"), ("c", "two")];
        found(&ledger, &keys, &seats).await;
        let faulty = Arc::new(FaultyLedger::new(ledger, seed, faults));
        let seats = seats.map(|(kma, _)| {
            let replica = Arc::new(Mutex::new(Snapshot { revision: 0, entries: Vec::new() }));
            Seat { name: name(kma), cut: Arc::default(), book: Book::default(), replica, running: Mutex::default() }
        });
        let now_ns = Arc::new(AtomicI64::new(1_790_000_000_000_000_000));
        let random = Arc::new(Mutex::new(Seeded(!seed)));
        let cluster = Self { root, wrapped, faulty, seats: seats.into(), now_ns, random, trace: Trace::new() };
        (0..cluster.seats.len()).for_each(|seat| cluster.boot(seat));
        let ready = async {
            for seat in &cluster.seats {
                let node = seat.node().unwrap();
                until("the pool is ready", || node.pool().ready > 8 && node.pool().reserve > 8).await;
            }
        };
        cluster.beside(ready).await;
        cluster
    }

    /// Does something while the nodes live. All of it is one task, which goes through it in the same order each time:
    /// which of several tasks comes first is chance (`tokio::sync::watch` wakes those that wait for it so).
    pub(crate) async fn beside<T>(&self, work: impl Future<Output = T>) -> T {
        let mut work = pin!(work);
        std::future::poll_fn(|context| {
            let done = work.as_mut().poll(context);
            if done.is_pending() {
                self.seats.iter().for_each(|seat| seat.live(context));
            }
            done
        })
        .await
    }

    /// Starts the node of a seat from what its disk holds.
    pub(crate) fn boot(&self, seat: usize) {
        let seat = &self.seats[seat];
        let (ledger, cut, trace) = (self.faulty.clone(), seat.cut.clone(), self.trace.clone());
        trace.note(format_args!("{} begins", seat.name));
        let link = Arc::new(Link { kma: seat.name.clone(), ledger, cut, trace });
        let keys = ClusterKeys::unwrap(&self.root, CLUSTER, &self.wrapped).unwrap().unwrap();
        let now_ns = self.now_ns.clone();
        let clock = Arc::new(move || now_ns.fetch_add(1_000, Ordering::SeqCst));
        let book = Box::new(seat.book.opened());
        let random = self.random.clone();
        let draw = move || {
            let mut random = random.lock().unwrap();
            Secret::filled(|bytes| {
                bytes.chunks_exact_mut(8).for_each(|bytes| bytes.copy_from_slice(&random.next().to_le_bytes()));
                Ok(())
            })
        };
        let node = Node::new(seat.name.clone(), 1, link.clone(), Arc::new(keys), book, clock, SETTINGS);
        let mut node = node.drawing_from(draw);
        let replica = seat.replica.lock().unwrap().clone();
        node.load(vec![replica.entries.iter().map(Entry::borrowed)], replica.revision);
        node.resume_journal().unwrap();
        let node = Arc::new(node);
        let life = Box::pin(live(node.clone(), link, seat.book.clone(), seat.replica.clone()));
        *seat.running.lock().unwrap() = Some(Running { node, life });
    }

    /// Ends the node of a seat as a kill would: wherever it stands.
    pub(crate) fn kill(&self, seat: usize) {
        if self.seats[seat].running.lock().unwrap().take().is_some() {
            drop(self.seats[seat].book.opened());
            self.trace.note(format_args!("{} is killed", self.seats[seat].name));
        }
    }

    pub(crate) fn cut(&self, seat: usize, cut: bool) {
        self.trace.note(format_args!("{} is cut off: {cut}", self.seats[seat].name));
        self.seats[seat].cut.store(cut, Ordering::SeqCst);
    }

    /// The clock jumps.
    pub(crate) fn jump(&self, by_ns: i64) {
        self.now_ns.fetch_add(by_ns, Ordering::SeqCst);
    }

    /// Everything runs and reaches everything, and the journals are through.
    pub(crate) async fn heal(&self) {
        for seat in 0..self.seats.len() {
            self.cut(seat, false);
            if self.seats[seat].node().is_none() {
                self.boot(seat);
            }
        }
        for seat in &self.seats {
            let node = seat.node().unwrap();
            until("a node is in touch and through with its journal", || {
                node.standing() == MajorityContact::Current && seat.book.is_empty()
            })
            .await;
        }
        let last = self.faulty.inner().read("").await.unwrap().revision;
        for seat in &self.seats {
            let node = seat.node().unwrap();
            until("a node knows everything", || node.progress().borrow().applied >= last).await;
            assert_eq!(node.doubts(), Vec::<String>::new());
        }
    }
}

impl Seat {
    /// Whether this seat's disk has a key, in a pool or issued.
    pub(crate) fn holds(&self, tag: &KeyTag) -> bool {
        let ends = tag.to_string();
        self.replica.lock().unwrap().entries.iter().any(|entry| entry.path.ends_with(&ends))
    }

    /// What its journal holds: what a peer's copy of it would.
    pub(crate) fn journal(&self) -> Vec<Noted> {
        self.book.pending(usize::MAX).unwrap()
    }

    pub(crate) fn node(&self) -> Option<Arc<Node>> {
        self.running.lock().unwrap().as_ref().map(|running| running.node.clone())
    }

    fn live(&self, context: &mut Context<'_>) {
        if let Some(Running { life, .. }) = &mut *self.running.lock().unwrap() {
            assert_eq!(life.as_mut().poll(context), Poll::Pending, "a node lives until it is killed");
        }
    }
}

pub(crate) async fn until(what: &str, is_so: impl Fn() -> bool) {
    for _ in 0..3000 {
        if is_so() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("it did not come to pass in 30 s that {what}");
}

/// What a node does besides answering.
async fn live(node: Arc<Node>, ledger: Arc<Link>, book: Book, replica: Arc<Mutex<Snapshot>>) {
    let following = follow(&node, &*ledger, &replica);
    let tending = async {
        loop {
            let tended = node.tend().await;
            let _ = node.set_pools_aside().await;
            if node.standing() == MajorityContact::Current && !book.is_empty() {
                let _ = node.reconcile().await;
            }
            if !tended.is_ok_and(|tended| tended.more) {
                tokio::time::sleep(Duration::from_millis(30)).await;
            }
        }
    };
    tokio::join!(following, tending);
}

async fn follow(node: &Node, ledger: &dyn Ledger, held: &Mutex<Snapshot>) {
    loop {
        let known = held.lock().unwrap().revision;
        if known == 0 {
            if let Ok(snapshot) = ledger.read("").await {
                node.load(vec![snapshot.entries.iter().map(Entry::borrowed)], snapshot.revision);
                *held.lock().unwrap() = snapshot;
            }
            continue;
        }
        let mut watch = ledger.watch(known);
        while let Some(Ok(watched)) = watch.next().await {
            match watched {
                Watched::Changes(changes) => {
                    // On the disk first.
                    let mut replica = held.lock().unwrap();
                    for change in &changes.changes {
                        let path = match change {
                            capstan_keyd::ledger::Change::Put(entry) => entry.path.clone(),
                            capstan_keyd::ledger::Change::Removed { path, .. } => path.clone(),
                        };
                        replica.entries.retain(|entry| entry.path != path);
                        if let capstan_keyd::ledger::Change::Put(entry) = change {
                            replica.entries.push(entry.clone());
                        }
                    }
                    replica.revision = changes.revision;
                    drop(replica);
                    node.apply(&changes);
                }
                Watched::Current { asked, .. } => node.heard(asked),
            }
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

/// The first records of a cluster: nodes, and groups with their keys.
async fn found(ledger: &SimulatedLedger, keys: &ClusterKeys, seats: &[(&str, &str)]) {
    let mut puts: Vec<(Path, Vec<u8>)> = Vec::new();
    for (kma, site) in seats {
        let record = KmaRecord { site: (*site).to_owned(), address: "127.0.0.1:1".to_owned(), joined_ns: 0 };
        puts.push((Path::Kma(name(kma)), serde_json::to_vec(&record).unwrap()));
    }
    // An encryption period of a minute by the clock of the nodes, which jumps.
    let policy = Policy { encryption_period: Period::Seconds(60), ..Policy::unlimited(name("brief")) };
    puts.push((Path::Policy(policy.name.clone()), RealmRecord::Policy(policy).encode()));
    for (group, policy) in [("default", "default"), ("brief", "brief")] {
        let (_, wrapped) = keys.new_group_key(&name(group)).unwrap();
        let group = KeyGroup { name: name(group), policy: name(policy) };
        puts.push((Path::Group(group.name.clone()), GroupRecord { group, wrapped }.encode()));
    }
    let mut transaction = Transaction::default();
    for (path, plaintext) in puts {
        let path = path.to_string();
        let sealed = keys.sealer().seal(&path, 1, 1, &plaintext).unwrap();
        transaction.put.push((path, sealed));
    }
    assert!(matches!(ledger.commit(transaction).await, Ok(Outcome::Committed { .. })));
}
