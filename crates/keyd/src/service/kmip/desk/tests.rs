//! Decisions over a ledger whose answers get lost.
#![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

use std::time::Duration;

use capstan_keys::api::ClusterId;
use capstan_kmip::{Item, ObjectType, Operation, State, Tag, Value, encode};
use futures_util::StreamExt;
use tokio::time::Instant;

use super::*;
use crate::desk::Asked;
use crate::ledger::{Faults, FaultyLedger, Ledger, SimulatedLedger, Watched};
use crate::node::{NodeSettings, NoteError, Notebook, Noted};
use crate::root::ClusterKeys;
use crate::service::kmip::Quotas;
use crate::service::room::RoomSeen;

/// A journal that nothing is written to: KMIP changes nothing cut off.
struct Blank;

impl Notebook for Blank {
    fn wiped(&mut self) -> Result<Option<(u64, String)>, NoteError> {
        Ok(None)
    }

    fn since(&mut self, _: u64) -> Result<Option<Vec<u8>>, NoteError> {
        Ok(None)
    }

    fn sequence(&self) -> u64 {
        0
    }

    fn take_back(&mut self, _: &[u8]) -> Result<(), NoteError> {
        Ok(())
    }

    fn note(&mut self, _: &[Asked]) -> Result<(), NoteError> {
        panic!("KMIP wrote into the journal")
    }

    fn pending(&self, _: usize) -> Result<Vec<Noted>, NoteError> {
        Ok(Vec::new())
    }

    fn len(&self) -> usize {
        0
    }

    fn strike_out(&mut self, _: u64) -> Result<(), NoteError> {
        Ok(())
    }
}

/// A node that takes itself to be in touch, and hears what was committed even where it hears no answer.
fn node(seed: u64, faults: Faults) -> Arc<Node> {
    let ledger = Arc::new(FaultyLedger::new(SimulatedLedger::new(), seed, faults));
    let keys = Arc::new(ClusterKeys::create(ClusterId([7; 16])).unwrap());
    let settings = NodeSettings { alone_after: Duration::from_secs(3600), ..NodeSettings::default() };
    let clock = Arc::new(|| 1_790_000_000_000_000_000);
    let name = "kma-1".parse().unwrap();
    let node = Arc::new(Node::new(name, 1, ledger.clone(), keys, Box::new(Blank), clock, settings));
    node.heard(Instant::now());
    let listening = Arc::downgrade(&node);
    tokio::spawn(async move {
        let mut news = ledger.inner().watch(0);
        while let (Some(Ok(watched)), Some(node)) = (news.next().await, listening.upgrade()) {
            if let Watched::Changes(changes) = watched {
                node.apply(&changes);
            }
        }
    });
    node
}

fn request(operation: Operation, payload: Vec<Item>) -> Vec<u8> {
    let version = vec![Item::integer(Tag::PROTOCOL_VERSION_MAJOR, 1), Item::integer(Tag::PROTOCOL_VERSION_MINOR, 4)];
    let header = vec![Item::structure(Tag::PROTOCOL_VERSION, version), Item::integer(Tag::BATCH_COUNT, 1)];
    let item = vec![Item::enumeration(Tag::OPERATION, operation), Item::structure(Tag::REQUEST_PAYLOAD, payload)];
    let message = vec![Item::structure(Tag::REQUEST_HEADER, header), Item::structure(Tag::BATCH_ITEM, item)];
    encode(&Item::structure(Tag::REQUEST_MESSAGE, message)).to_vec()
}

fn create(name: &str) -> Vec<u8> {
    let attribute = |name: &str, value| {
        let fields = vec![Item::text(Tag::ATTRIBUTE_NAME, name.to_owned()), Item::new(Tag::ATTRIBUTE_VALUE, value)];
        Item::structure(Tag::ATTRIBUTE, fields)
    };
    let name = vec![Item::text(Tag::NAME_VALUE, name.to_owned()), Item::enumeration(Tag::NAME_TYPE, 1_u32)];
    let attributes = vec![
        attribute("Cryptographic Algorithm", Value::Enumeration(3)),
        attribute("Cryptographic Length", Value::Integer(256)),
        attribute("Cryptographic Usage Mask", Value::Integer(0x0c)),
        attribute("Name", Value::Structure(name)),
    ];
    let object_type = Item::enumeration(Tag::OBJECT_TYPE, ObjectType::SymmetricKey);
    request(Operation::Create, vec![object_type, Item::structure(Tag::TEMPLATE_ATTRIBUTE, attributes)])
}

/// What clients may take, of a ledger that says nothing of its room.
struct Limits {
    quotas: Quotas,
    room: RoomSeen,
    quota_bytes: Option<u64>,
}

impl Limits {
    fn new(objects_max: u64, bytes_max: Option<u64>) -> Self {
        Self { quotas: Quotas::new(objects_max, bytes_max), room: RoomSeen::default(), quota_bytes: None }
    }

    fn allowance(&self) -> Allowance<'_> {
        Allowance { quotas: &self.quotas, room: &self.room, quota_bytes: self.quota_bytes }
    }
}

async fn done(node: &Arc<Node>, request: &[u8]) -> String {
    let limits = Limits::new(1_000_000, None);
    let (decided, _) = decide(limits.allowance(), node, &"library".parse().unwrap(), request).await.unwrap();
    assert_eq!(decided.acts[0].outcome, Ok(()), "{:?}", decided.acts);
    decided.acts[0].uids[0].clone()
}

/// A name can be given once and a key activated once: were a commit that happened taken for one that did not, the
/// second try would be refused, or there would be another key.
#[tokio::test(flavor = "multi_thread")]
async fn a_commit_whose_answer_is_lost_is_done_once_and_answered_so() {
    let seed = std::env::var("CAPSTAN_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(1);
    println!("CAPSTAN_SEED={seed}");
    let node = node(seed, Faults { lost_before: 20, lost_after: 40, ..Faults::default() });
    for number in 1..=20 {
        let uid = done(&node, &create(&format!("key {number}"))).await;
        done(&node, &request(Operation::Activate, vec![Item::text(Tag::UNIQUE_IDENTIFIER, uid.clone())])).await;
        node.view(|view| {
            use capstan_kmip::ObjectStore;
            let objects = view.ledger().kmip();
            assert_eq!(objects.len(), number);
            let open = objects.open(node.keys());
            assert_eq!(open.find(&uid).unwrap().object.state(1_790_000_000), State::Active);
            assert_eq!(open.material(&uid).unwrap().unwrap().expose().len(), 32);
        });
    }
}

#[test]
fn what_a_ledger_does_not_commit_at_once_is_refused_before_it_is_tried() {
    let puts = |count: usize, len| (0..count).map(|n| (Path::Kmip(n.to_string()), vec![0; len])).collect::<Vec<_>>();
    check_size(&puts(TRANSACTION_RECORDS_MAX, 1000)).unwrap();
    for too_much in [puts(TRANSACTION_RECORDS_MAX + 1, 10), puts(TRANSACTION_RECORDS_MAX, 20 << 10)] {
        let stopped = check_size(&too_much).unwrap_err();
        assert_eq!(stopped.reason(), ResultReason::InvalidMessage);
    }
}

/// A backup that holds a library's key which nobody could use again would be found out when it is needed. So it is
/// opened when it is made.
#[tokio::test(flavor = "multi_thread")]
async fn a_backup_names_an_object_whose_material_does_not_open() {
    use crate::backup::{ClusterRecords, Knowledge, check, write_database};
    use crate::kmip::KmipObjectRecord;
    use crate::ledger::{Entry, Snapshot};

    let (node, limits) = (node(1, Faults::default()), Limits::new(1_000_000, None));
    let mut records = Vec::new();
    for name in ["one", "two", "three"] {
        let (decided, _) = decide(limits.allowance(), &node, &"library".parse().unwrap(), &create(name)).await.unwrap();
        let attempt = Attempt::random().unwrap();
        let puts = node.view(|view| view.ledger().kmip().records(&decided.changes, attempt, node.keys()));
        let (path, bytes) = puts.unwrap().remove(0);
        let uid = decided.acts[0].uids[0].clone();
        records.push((path.to_string(), KmipObjectRecord::decode(&uid, &bytes).unwrap()));
    }
    // The second has the first one's material, the third none, as after it was destroyed.
    records[1].1.wrapped = records[0].1.wrapped.clone();
    records[2].1.wrapped = Box::default();
    let altered = records[1].0.clone();
    records.sort_by(|(one, _), (other, _)| one.cmp(other));
    let sealed = |(path, record): &(String, KmipObjectRecord)| {
        let bytes = KmipObjectRecord::encode(record.attempt, &record.object, &record.wrapped);
        Entry { path: path.clone(), sealed: node.keys().sealer().seal(path, 1, 1, &bytes).unwrap(), revision: 5 }
    };
    let snapshot = Snapshot { revision: 5, entries: records.iter().map(sealed).collect() };
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("database");
    write_database(&file, node.keys(), 1, &snapshot, &ClusterRecords, 0).unwrap();
    let report = check(node.keys(), &file, &ClusterRecords, Knowledge::Nothing).unwrap();
    let unproved: Vec<_> = report.unproved.iter().map(|unproved| &unproved.path).collect();
    assert_eq!(unproved, [&altered], "{:?}", report.unproved);
    assert!(report.unproved[0].reason.contains("does not open"), "{:?}", report.unproved);
}

/// What one client keeps is bounded; what it destroys gives it room again, and leaves little behind. All of it was
/// without an end, and a destroyed object kept up to 36 KB.
#[tokio::test(flavor = "multi_thread")]
async fn a_domain_has_so_much_and_gets_room_back_for_what_it_destroys() {
    let (node, client) = (node(1, Faults::default()), "library".parse().unwrap());
    let limits = Limits::new(3, Some(40 << 10));
    let comment = |text: &str| {
        let fields = vec![
            Item::text(Tag::ATTRIBUTE_NAME, "Comment".to_owned()),
            Item::new(Tag::ATTRIBUTE_VALUE, Value::TextString(text.to_owned())),
        ];
        Item::structure(Tag::ATTRIBUTE, fields)
    };
    let about = |uid: &str| Item::text(Tag::UNIQUE_IDENTIFIER, uid.to_owned());
    let adding = |uid: &str| request(Operation::AddAttribute, vec![about(uid), comment(&"x".repeat(30 << 10))]);
    let usage = || node.view(|view| view.ledger().kmip().usage("library"));
    let mut uids = Vec::new();
    for name in ["one", "two", "three"] {
        uids.push(done(&node, &create(name)).await);
    }
    let (small, before) = (usage().bytes, usage().objects);
    assert_eq!(before, 3);
    let refused = decide(limits.allowance(), &node, &client, &create("four")).await.err().unwrap();
    assert!(refused.to_string().contains("has 3 objects"), "{refused}");
    assert_eq!(refused.reason(), ResultReason::GeneralFailure);

    decide(limits.allowance(), &node, &client, &adding(&uids[0])).await.unwrap();
    let refused = decide(limits.allowance(), &node, &client, &adding(&uids[1])).await.err().unwrap();
    assert!(refused.to_string().contains("bytes, and its quota is 40960"), "{refused}");
    assert!(usage().bytes > small + (30 << 10));

    let destroy = request(Operation::Destroy, vec![about(&uids[0])]);
    decide(limits.allowance(), &node, &client, &destroy).await.unwrap();
    assert_eq!(usage().objects, 2);
    assert!(usage().bytes < small + 1024, "{} of {small} bytes are left", usage().bytes);
    decide(limits.allowance(), &node, &client, &create("four")).await.unwrap();
    decide(limits.allowance(), &node, &client, &adding(&uids[1])).await.unwrap();
    assert_eq!(node.view(|view| view.ledger().kmip().usage("other")), crate::kmip::Usage::default());
}
