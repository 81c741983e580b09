//! What whoever may write to etcd can do to a node, and what a report that comes late can.

#![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;
use std::sync::atomic::{AtomicBool, AtomicI64};
use std::time::Duration;

use capstan_format::{Algorithm, KeyTag, MediumSerial, Volser};
use capstan_keys::api::ClusterId;
use capstan_keys::{
    Agent, DataUnit, IssuedKey, KeyGroup, KeyRecord, KeyState, KeyUse, Name, Period, Policy, RealmRecord, Secret,
    SeenAs, SeenCartridge, SeenCartridges, StoredKey,
};
use capstan_service::audit::{Anchor, LineHash, LogHead};
use futures_util::StreamExt;
use tempfile::TempDir;
use tokio::time::Instant;

use super::super::{MajorityContact, Node, NodeError, NodeSettings, SealedJournal};
use crate::desk::{Answer, Asked, Decided, Operation, decide};
use crate::family::{Ending, FAMILIES, Family};
use crate::journal::Journal;
use crate::ledger::{Change, Changes, Entry, Ledger, Outcome, SimulatedLedger, Transaction, Watched};
use crate::path::Path;
use crate::record::{GroupRecord, IssuedRecord, KeyOrigin, KmaRecord, PoolKey, encode_held};
use crate::root::ClusterKeys;
use crate::state::{Half, Mark, View};

const CLUSTER: ClusterId = ClusterId([7; 16]);
const NOW_NS: i64 = 1_790_000_000_000_000_000;
const PATIENCE: Duration = Duration::from_secs(30);

fn name(text: &str) -> Name {
    text.parse().unwrap()
}

fn volser() -> Volser {
    Volser::new("A00001").unwrap()
}

/// A node over a ledger in memory, with a real journal.
struct House {
    node: Arc<Node>,
    ledger: Arc<SimulatedLedger>,
    /// Whether it does not hear that it is current.
    deaf: Arc<AtomicBool>,
    _folder: TempDir,
}

fn house() -> House {
    let (ledger, folder) = (Arc::new(SimulatedLedger::new()), tempfile::tempdir().unwrap());
    let keys = Arc::new(ClusterKeys::create(CLUSTER).unwrap());
    let (journal, _) = Journal::open(folder.path(), &name("a"), &Secret::random().unwrap()).unwrap();
    let journal = Box::new(SealedJournal::new(journal, &name("a"), keys.clone(), 1));
    let settings =
        NodeSettings { pool_keys: 40, pool_low: 1, commit_patience: PATIENCE, alone_after: Duration::from_secs(3600) };
    let time = Arc::new(AtomicI64::new(NOW_NS));
    let clock = Arc::new(move || time.fetch_add(1000, SeqCst));
    let node = Arc::new(Node::new(name("a"), 1, ledger.clone(), keys, journal, clock, settings));
    House { node, ledger, deaf: Arc::default(), _folder: folder }
}

impl House {
    fn sealed(&self, path: &str, epoch: u32, change: u64, plaintext: &[u8]) -> Vec<u8> {
        self.node.keys().sealer().seal(path, epoch, change, plaintext).unwrap()
    }

    fn put(&self, path: &str, sealed: Vec<u8>, revision: i64) {
        let entry = Entry { path: path.to_owned(), sealed, revision };
        self.node.apply(&Changes { revision, changes: vec![Change::Put(entry)] });
    }

    fn remove(&self, path: &str, revision: i64) {
        let changes = vec![Change::Removed { path: path.to_owned(), revision }];
        self.node.apply(&Changes { revision, changes });
    }

    fn mark(&self, path: &str) -> Mark {
        self.node.view(|view| view.ledger().mark(&Path::parse(path)))
    }

    /// Founds a cluster of one node, which follows its ledger and has keys in its pool.
    async fn found(&self) {
        let (_, wrapped) = self.node.keys().new_group_key(&Name::default()).unwrap();
        let group = KeyGroup { name: Name::default(), policy: name("brief") };
        let policy = Policy::unlimited(name("brief"));
        let kma = KmaRecord { site: String::new(), address: "127.0.0.1:1".to_owned(), joined_ns: 0 };
        let puts = vec![
            (Path::Policy(policy.name.clone()), RealmRecord::Policy(policy).encode()),
            (Path::Group(group.name.clone()), GroupRecord { group, wrapped }.encode()),
            (Path::Kma(name("a")), serde_json::to_vec(&kma).unwrap()),
        ];
        self.follow();
        self.node.backed_up(i64::MAX);
        self.until(|node| node.standing() == MajorityContact::Current).await;
        self.node.change(|_| Ok::<_, NodeError>(Decided::records(puts.clone(), Vec::new()))).await.unwrap();
        while self.node.tend().await.unwrap().more {}
    }

    fn follow(&self) {
        let (node, ledger, deaf) = (self.node.clone(), self.ledger.clone(), self.deaf.clone());
        tokio::spawn(async move {
            let mut watch = ledger.watch(1);
            while let Some(Ok(watched)) = watch.next().await {
                match watched {
                    Watched::Changes(changes) => node.apply(&changes),
                    Watched::Current { .. } if deaf.load(SeqCst) => {}
                    Watched::Current { asked, .. } => node.heard(asked),
                }
            }
        });
    }

    async fn until(&self, is_so: impl Fn(&Node) -> bool) {
        let began = Instant::now();
        while !is_so(&self.node) {
            assert!(began.elapsed() < PATIENCE, "it did not come to pass");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    async fn ask(&self, operation: Operation) -> Answer {
        let mut request = [0; 16];
        capstan_keys::random(&mut request).unwrap();
        self.node.ask(operation, &name("host"), request).await.unwrap().answer
    }

    async fn begin(&self) -> KeyTag {
        let answer = self.ask(begin()).await;
        let Answer::Key(record) = answer else { panic!("no key") };
        record.stored.record.tag
    }

    fn asked(&self, operation: Operation) -> Asked {
        Asked { operation, request: [1; 16], by: name("host"), kma: name("a"), now_ns: self.node.now_ns() }
    }
}

fn begin() -> Operation {
    let (drive, algorithm) = (name("drive"), Algorithm::Aes256Gcm);
    Operation::Begin { volser: volser(), drive, group: None, algorithm, draw: None }
}

fn key_record() -> Vec<u8> {
    let tag = KeyTag([5; 16]);
    let record = KeyRecord {
        tag,
        volser: volser(),
        algorithm: Algorithm::Aes256Gcm,
        state: KeyState::Ready,
        created_ns: 1,
        activated_ns: None,
        retired_ns: None,
        destroyed_ns: None,
        imported_ns: None,
    };
    let issued = IssuedKey { tag, group: Name::default(), issued_for: KeyUse::Begin, issued_ns: 2, dropped_ns: None };
    let origin = KeyOrigin { request: [0; 16], agent: Name::default(), kma: Name::default() };
    IssuedRecord { stored: StoredKey { record, wrapped: Some([5; 40]) }, issued, origin }.encode()
}

/// The record of a KMIP object without attributes.
fn kmip_record() -> Vec<u8> {
    let whole = concat!(
        "434b4d4f01000000",
        "5400000100000068",
        "42009407000000026b31000000000000",
        "54000107000000076c69627261727900",
        "42005705000000040000000200000000",
        "42008d05000000040000000200000000",
        "4200400100000020",
        "42004205000000040000000100000000",
        "42002805000000040000000300000000",
    );
    let object: Vec<u8> =
        (0..whole.len() / 2).map(|at| u8::from_str_radix(&whole[2 * at..2 * at + 2], 16).unwrap()).collect();
    [&[1][..], &[0; 16], &(object.len() as u32).to_le_bytes(), &object].concat()
}

/// A path of a family, and what such a record says.
fn sample(family: &Family) -> (String, Vec<u8>) {
    let (tag, own) = (KeyTag([5; 16]), name("one"));
    let unit = DataUnit {
        volser: volser(),
        first_seen_ns: 1,
        last_seen_ns: 2,
        read_until_ns: None,
        cartridges: SeenCartridges::default(),
        keys: Vec::new(),
    };
    let agent = Agent { name: own.clone(), groups: [Name::default()].into(), default_group: Name::default() };
    let group = KeyGroup { name: own.clone(), policy: Name::default() };
    let kma = KmaRecord { site: String::new(), address: "127.0.0.1:1".to_owned(), joined_ns: 0 };
    match family.kind {
        "key" => (format!("key/{tag}"), key_record()),
        "unit" => ("unit/A00001".to_owned(), RealmRecord::Unit(unit).encode()),
        "policy" => ("policy/one".to_owned(), RealmRecord::Policy(Policy::unlimited(own)).encode()),
        "group" => ("group/one".to_owned(), GroupRecord { group, wrapped: [9; 40] }.encode()),
        "pool" => (format!("pool/b/{tag}"), PoolKey { created_ns: 1, wrapped: [9; 40] }.encode()),
        "agent" => ("agent/one".to_owned(), RealmRecord::Agent(agent).encode()),
        "kma" => ("kma/one".to_owned(), serde_json::to_vec(&kma).unwrap()),
        "held" => ("held/one".to_owned(), encode_held(3)),
        "kmip" => ("kmip/k1".to_owned(), kmip_record()),
        other => (format!("{other}/one"), b"{}".to_vec()),
    }
}

/// Whoever could write to etcd could delete `revoked/SERIAL`, and the certificate let in again: a node believed what it
/// was shown.
#[tokio::test]
async fn a_bare_deletion_is_believed_of_those_families_alone_that_the_table_names() {
    for family in &FAMILIES {
        let (house, (path, plaintext)) = (house(), sample(family));
        house.put(&path, house.sealed(&path, 1, 1, &plaintext), 10);
        assert_eq!(
            house.mark(&path),
            Mark { revision: 10, change: 1 },
            "{path} was not taken in: {:?}",
            house.node.doubts()
        );
        house.remove(&path, 11);
        let (mark, doubts) = (house.mark(&path), house.node.doubts());
        match family.ending {
            Ending::Deletion => assert_eq!((mark, doubts.len()), (Mark::default(), 0), "{path}"),
            Ending::Never | Ending::Tombstone => {
                // A change of it that a node decides counts on from it, and expects the ledger as it is.
                assert_eq!(mark, Mark { revision: 0, change: 1 }, "{path}");
                assert!(doubts.iter().any(|doubt| doubt.contains(&path)), "{path}: {doubts:?}");
                house.put(&path, house.sealed(&path, 1, 2, &plaintext), 12);
                assert_eq!(house.mark(&path), Mark { revision: 12, change: 2 }, "{path}");
            }
        }
    }
}

/// An enrolment that was used, or taken back, could be put back as it was, and its passphrase let somebody in again.
#[tokio::test]
async fn what_a_node_removes_cannot_be_put_back_by_whoever_writes_to_etcd() {
    for family in FAMILIES.iter().filter(|family| family.ending != Ending::Deletion) {
        let (house, (path, plaintext)) = (house(), sample(family));
        let old = house.sealed(&path, 1, 1, &plaintext);
        house.put(&path, old.clone(), 10);
        let decided = Decided::records(Vec::new(), vec![Path::parse(&path)]);
        let keys = house.node.keys();
        let transaction = house.node.view(|view| decided.transaction(view.ledger(), keys, 1));
        if family.ending == Ending::Never {
            assert!(transaction.is_err(), "{path} was removed");
            continue;
        }
        let transaction = transaction.unwrap();
        assert_eq!((transaction.put.len(), transaction.remove.len()), (1, 0), "{path}");
        house.put(&path, transaction.put[0].1.clone(), 11);
        assert!(house.node.doubts().is_empty());
        let is_there =
            || house.node.view(|view| view.ledger().other(&path).is_some() || view.ledger().kmas().len() == 1);
        assert!(!is_there(), "{path} is there after its tombstone");
        house.remove(&path, 12);
        house.put(&path, old, 13);
        assert!(!is_there(), "{path} was put back");
        assert!(!house.node.doubts().is_empty());
        // A node says anew what is to lie there.
        house.put(&path, house.sealed(&path, 1, 3, &plaintext), 14);
        assert_eq!(house.mark(&path), Mark { revision: 14, change: 3 });
    }
}

/// What cannot be read counts for as little as it can: a revocation revokes, and an agent has no group.
#[tokio::test]
async fn a_record_that_never_opened_gives_nothing_away() {
    let house = house();
    house.put("revoked/0a", b"rubbish".to_vec(), 10);
    house.put("agent/one", b"rubbish".to_vec(), 11);
    house.node.view(|view| {
        assert!(view.ledger().is_unreadable("revoked/0a"));
        assert!(!view.ledger().realm().agent(&name("one")).may_use(&Name::default()));
    });
    // Deleted again, nothing is left to look into; that it was there may have hidden what it counts for.
    assert_eq!(house.node.doubts().len(), 2);
    house.remove("revoked/0a", 12);
    house.remove("agent/one", 13);
    assert_eq!(house.node.doubts(), Vec::<String>::new());
    house.node.view(|view| {
        assert!(view.ledger().is_unreadable("revoked/0a"));
        assert!(!view.ledger().realm().agent(&name("one")).may_use(&Name::default()));
    });
}

/// A node that was left behind by a restore went on giving out keys as if all were well.
#[tokio::test]
async fn a_record_of_a_later_epoch_ends_a_nodes_service() {
    let house = house();
    house.found().await;
    house.begin().await;
    let entry = Entry { path: "epoch/2".to_owned(), sealed: house.sealed("epoch/2", 2, 1, b"{}"), revision: 1 };
    house.node.meet(&[Entry { sealed: b"rubbish".to_vec(), ..entry.clone() }]);
    house.begin().await;
    house.node.meet(&[entry]);
    let refused = house.node.ask(begin(), &name("host"), [2; 16]).await.unwrap_err();
    assert!(matches!(refused, NodeError::Superseded { epoch: 1, found: 2 }), "{refused}");
    let (host, tag) = (name("host"), KeyTag([1; 16]));
    assert!(matches!(house.node.look_up(&host, &host, &volser(), &tag).await, Err(NodeError::Superseded { .. })));
    assert!(house.node.doubts().iter().any(|doubt| doubt.contains("keyd join")));
}

/// A mover's report that was held up retired the key of the volume's next life.
#[tokio::test]
async fn a_late_report_says_nothing_of_a_later_life() {
    let house = house();
    house.found().await;
    let activate = |tag| Operation::Activate { volser: volser(), serial: None, tag };
    let end = |last| Operation::End { volser: volser(), serial: None, last };
    let (first, second) = (house.begin().await, house.begin().await);
    assert_eq!(house.ask(activate(second)).await, Answer::Retired(Vec::new()));
    for late in [activate(first), end(Some(first)), end(None)] {
        assert_eq!(house.ask(late.clone()).await, Answer::Late, "{late:?}");
        let (state, dropped) = state_of(&house, &second);
        assert_eq!((state, dropped), (KeyState::ProtectAndProcess, false), "{late:?}");
    }
    // A key that is issued and not yet in use is none of that report's either.
    let third = house.begin().await;
    assert_eq!(house.ask(end(Some(second))).await, Answer::Done);
    assert_eq!(state_of(&house, &second), (KeyState::ProcessOnly, true));
    assert_eq!(state_of(&house, &third), (KeyState::Ready, false));
}

fn state_of(house: &House, tag: &KeyTag) -> (KeyState, bool) {
    house.node.view(|view| {
        let record = view.key(tag).unwrap();
        (record.stored.record.state, record.issued.dropped_ns.is_some())
    })
}

/// A volume that was on record as ended went on cut off: that it holds its keys again was never said to the ledger.
#[tokio::test]
async fn an_append_cut_off_says_that_the_volume_was_not_ended() {
    let house = house();
    house.found().await;
    let first = house.begin().await;
    house.ask(Operation::Activate { volser: volser(), serial: None, tag: first }).await;
    house.ask(Operation::End { volser: volser(), serial: None, last: Some(first) }).await;
    assert_eq!(state_of(&house, &first), (KeyState::ProcessOnly, true));
    let append = Operation::Append { volser: volser(), serial: None, drive: name("drive"), first, draw: None };
    house.deaf.store(true, SeqCst);
    house.node.lose_touch();
    assert!(house.node.ask(append, &name("host"), [3; 16]).await.unwrap().is_alone());
    assert!(house.node.journal_pending().await.unwrap() > 0);
    house.deaf.store(false, SeqCst);
    house.until(|node| node.standing() == MajorityContact::Current).await;
    house.node.reconcile().await.unwrap();
    house.node.view(|view| {
        let issued = &view.ledger().key(&first).unwrap().issued;
        assert_eq!(issued.dropped_ns, None, "the ledger was not told");
    });
}

/// What a drive told cut off of its cartridge is on record once the majority is back: that is all that anybody learns
/// of two cartridges with one label.
#[tokio::test]
async fn the_cartridge_that_was_told_cut_off_is_said_to_the_ledger() {
    let house = house();
    house.found().await;
    let [one, two] = ["one", "two"].map(|text| MediumSerial::new(text).unwrap());
    let first = house.begin().await;
    let activate = |serial, tag| Operation::Activate { volser: volser(), serial, tag };
    let append =
        |serial, first| Operation::Append { volser: volser(), serial, drive: name("drive"), first, draw: None };
    house.ask(activate(None, first)).await;
    let seen = |house: &House| -> Vec<_> {
        let seen = |seen: &SeenCartridge| (seen.serial, seen.seen_as);
        house.node.view(|view| view.ledger().realm().unit(&volser()).unwrap().cartridges.iter().map(seen).collect())
    };
    assert_eq!(seen(&house), []);

    house.deaf.store(true, SeqCst);
    house.node.lose_touch();
    // Twice: what is known by now is not noted again.
    for serial in [Some(one), Some(one), None, Some(two), Some(two)] {
        assert!(house.node.ask(append(serial, first), &name("host"), [3; 16]).await.unwrap().is_alone());
    }
    assert_eq!(house.node.journal_pending().await.unwrap(), 2);
    house.deaf.store(false, SeqCst);
    house.until(|node| node.standing() == MajorityContact::Current).await;
    house.node.reconcile().await.unwrap();
    assert_eq!(seen(&house), [(Some(one), SeenAs::Own), (Some(two), SeenAs::Another)]);

    let second = house.begin().await;
    house.ask(activate(Some(two), second)).await;
    house.ask(activate(Some(one), second)).await;
    assert_eq!(seen(&house).last(), Some(&(Some(two), SeenAs::Own)), "a report that is repeated says nothing new");
}

/// A policy was changed at the moment at which its first key was issued elsewhere: each saw the other's record as it
/// was.
#[tokio::test]
async fn the_first_use_of_a_policy_and_its_change_exclude_each_other() {
    for use_first in [true, false] {
        let house = house();
        house.found().await;
        let policy = Policy { encryption_period: Period::Seconds(60), ..Policy::unlimited(name("brief")) };
        let draw =
            house.node.view(|view| view.ledger().pool_up_to(house.node.name(), Half::Ready, i64::MAX).next().copied());
        let decisions =
            [begin().drawing(draw), Operation::PutPolicy { policy, known: capstan_keys::KnownPolicy::Replaced }];
        let mut transactions: Vec<_> = house.node.view(|view| {
            let decided = decisions
                .into_iter()
                .map(|operation| decide(view, house.node.keys(), &house.asked(operation)).unwrap());
            decided.map(|decided| decided.transaction(view.ledger(), house.node.keys(), 1).unwrap()).collect()
        });
        if !use_first {
            transactions.reverse();
        }
        let mut outcomes = Vec::new();
        for transaction in transactions {
            outcomes.push(house.ledger.commit(transaction).await.unwrap());
        }
        assert!(matches!(outcomes[..], [Outcome::Committed { .. }, Outcome::Conflict]), "{outcomes:?}");
    }
}

/// A node judged certificates by a clock that was years off, and nobody was told.
#[tokio::test]
async fn clocks_that_are_far_apart_are_a_doubt() {
    const YEAR_NS: i64 = 365 * 86_400 * 1_000_000_000;
    let told = |kma: &str, at_ns: i64, current: bool| {
        let house = house();
        if current {
            house.node.heard(Instant::now());
        }
        let head = LogHead { sequence: 1, hash: LineHash([0; 32]) };
        let path = format!("anchor/{kma}");
        let anchor = Anchor { kma: name(kma), head, at_ns };
        house.put(&path, house.sealed(&path, 1, 1, &anchor.encode()), 10);
        house.node.doubts().len()
    };
    assert_eq!(told("b", NOW_NS + YEAR_NS, false), 1, "no anchor is of the future");
    assert_eq!(told("b", NOW_NS - YEAR_NS, true), 1);
    assert_eq!(told("b", NOW_NS - YEAR_NS, false), 0, "an old one, met while catching up");
    assert_eq!(told("b", NOW_NS, true), 0);
    assert_eq!(told("a", NOW_NS + YEAR_NS, true), 0, "its own");
}

/// A request was refused for want of approvals that had been given at another node a moment before.
#[tokio::test]
async fn what_this_node_has_not_heard_of_yet_refuses_nothing() {
    let house = house();
    house.found().await;
    // Another node commits it; this one hears of it after it has decided.
    let commits = |path: &str| {
        let put = vec![(path.to_owned(), house.sealed(path, 1, 1, b"{}"))];
        let (ledger, transaction) = (house.ledger.clone(), Transaction { put, ..Transaction::default() });
        tokio::spawn(async move { ledger.commit(transaction).await });
    };
    let (path, tried) = (Path::parse("user/cy"), AtomicI64::new(0));
    let is_there = |view: View<'_>| match view.ledger().other("user/ann") {
        Some(_) => Ok(Decided::records(vec![(path.clone(), b"{}".to_vec())], Vec::new())),
        None => {
            if tried.fetch_add(1, SeqCst) == 0 {
                commits("user/ann");
            }
            Err(NodeError::Contended { tries: 0 })
        }
    };
    house.node.change_or_look_again(is_there).await.unwrap();
    assert_eq!(house.node.view(|view| view.ledger().other("user/cy").map(<[u8]>::to_vec)), Some(b"{}".to_vec()));

    // So is what is only looked at.
    let looked = AtomicI64::new(0);
    let seen = house.node.view_or_look_again(|view| {
        if looked.fetch_add(1, SeqCst) == 0 {
            commits("user/bea");
        }
        view.ledger().other("user/bea").map(<[u8]>::to_vec).ok_or("it is not here")
    });
    assert_eq!(seen.await, Ok(b"{}".to_vec()));

    // What is there for nobody is refused.
    let refuse = |_: View<'_>| Err::<Decided, _>(NodeError::Contended { tries: 0 });
    let refused = house.node.change_or_look_again(refuse).await.unwrap_err();
    assert!(matches!(refused, NodeError::Contended { tries: 0 }), "{refused}");
}
