//! A node under many records: nobody waits for whoever looks at all of them, and work grows with what there is to do.

#![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

use std::sync::atomic::{AtomicUsize, Ordering};

use capstan_format::{Algorithm, KeyTag, Volser};
use capstan_keys::api::ClusterId;
use capstan_keys::{IssuedKey, KeyRecord, KeyState, KeyUse, StoredKey};

use super::*;
use crate::desk::{Asked, Operation};
use crate::ledger::{Change, Changes, Entry, Sealed, SimulatedLedger};
use crate::path::Path;
use crate::record::KeyOrigin;

/// A journal in memory that counts the entries that are read out of it.
#[derive(Clone, Default)]
struct Counting {
    noted: Arc<Mutex<Vec<Noted>>>,
    read: Arc<AtomicUsize>,
}

impl Notebook for Counting {
    fn note(&mut self, asked: &[Asked]) -> Result<(), NoteError> {
        let mut noted = self.noted.lock().unwrap();
        let number = noted.len() as u64 + 1;
        noted.push(Noted { number, asked: asked.to_vec() });
        Ok(())
    }

    fn pending(&self, count_max: usize) -> Result<Vec<Noted>, NoteError> {
        let pending: Vec<_> = self.noted.lock().unwrap().iter().take(count_max).cloned().collect();
        self.read.fetch_add(pending.len(), Ordering::SeqCst);
        Ok(pending)
    }

    fn len(&self) -> usize {
        self.noted.lock().unwrap().len()
    }

    fn strike_out(&mut self, number: u64) -> Result<(), NoteError> {
        self.noted.lock().unwrap().retain(|noted| noted.number > number);
        Ok(())
    }

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
}

fn node(journal: Counting) -> Node {
    let keys = Arc::new(ClusterKeys::create(ClusterId([7; 16])).unwrap());
    let settings = NodeSettings { alone_after: Duration::from_secs(3600), ..NodeSettings::default() };
    let clock = Arc::new(|| 1_790_000_000_000_000_000);
    let ledger = Arc::new(SimulatedLedger::new());
    let node = Node::new("a".parse().unwrap(), 1, ledger, keys, Box::new(journal), clock, settings);
    node.heard(Instant::now());
    node
}

fn volser(number: usize) -> Volser {
    Volser::new(&format!("V{number}")).unwrap()
}

/// A key that was issued for a volume, as it lies in the ledger.
fn entry(node: &Node, number: usize, revision: i64) -> Entry {
    let mut tag = KeyTag([0; 16]);
    tag.0[..8].copy_from_slice(&(number as u64).to_be_bytes());
    let record = KeyRecord {
        tag,
        volser: volser(number),
        algorithm: Algorithm::Aes256Gcm,
        state: KeyState::Ready,
        created_ns: 1,
        activated_ns: None,
        retired_ns: None,
        destroyed_ns: None,
        imported_ns: None,
    };
    let group = Name::default();
    let issued = IssuedKey { tag, group, issued_for: KeyUse::Begin, issued_ns: 2, dropped_ns: None };
    let origin = KeyOrigin { request: [0; 16], agent: Name::default(), kma: Name::default() };
    let record = IssuedRecord { stored: StoredKey { record, wrapped: Some([1; 40]) }, issued, origin };
    let path = Path::Key(tag).to_string();
    let sealed = node.keys().sealer().seal(&path, 1, 1, &record.encode()).unwrap();
    Entry { path, sealed, revision }
}

/// Whoever looked at all keys held the state as long: with a million of them agents waited for seconds.
#[test]
fn a_look_at_everything_is_in_slices_and_the_state_is_free_between_them() {
    const COUNT: usize = 3 * LOOKED_AT_ONCE + 5;
    let node = node(Counting::default());
    let entries: Vec<_> = (0..COUNT).map(|number| entry(&node, number, 1)).collect();
    let parts = entries.chunks(100).map(|part| part.iter().map(Entry::borrowed)).collect();
    node.load(parts, 1);
    assert_eq!(node.view(|view| (view.ledger().key_count(), view.ledger().realm().unit_count())), (COUNT, COUNT));

    let looked = AtomicUsize::new(0);
    let (mut keys, mut came) = (Vec::new(), COUNT);
    let pick = |_: View<'_>, record: &IssuedRecord| {
        looked.fetch_add(1, Ordering::SeqCst);
        record.stored.record.tag
    };
    node.walk_keys(pick, |slice| {
        assert!(looked.swap(0, Ordering::SeqCst) <= LOOKED_AT_ONCE);
        assert!(node.memory.try_write().is_ok(), "it is held while somebody works with what was picked");
        keys.extend(slice);
        // Somebody commits meanwhile, behind where the look stands.
        if came < COUNT + 2 {
            let change = entry(&node, came, 2);
            node.apply(&Changes { revision: 2, changes: vec![Change::Put(change)] });
            came += 1;
        }
    });
    assert!(keys.is_sorted_by(|one, next| one < next), "a key is seen once");
    assert_eq!((keys.len(), came), (COUNT + 2, COUNT + 2));

    let mut units = 0;
    let pick = |_: View<'_>, unit: &capstan_keys::DataUnit| looked.fetch_add(unit.keys.len(), Ordering::SeqCst);
    node.walk_units(pick, |slice| {
        assert!(looked.swap(0, Ordering::SeqCst) <= LOOKED_AT_ONCE);
        assert!(node.memory.try_write().is_ok(), "it is held while somebody works with what was picked");
        units += slice.len();
    });
    assert_eq!(units, node.view(|view| view.ledger().realm().unit_count()));
}

/// Parts are read on several threads, and filed in their order: a state is the same whatever the threads do.
#[test]
fn a_replica_that_is_read_in_parts_is_the_one_that_is_read_in_one() {
    let node = node(Counting::default());
    let mut entries: Vec<_> = (0..500).map(|number| entry(&node, number, number as i64 + 1)).collect();
    entries[7].sealed[40] ^= 1;
    let seen = |parts: Vec<Vec<Sealed<'_>>>| {
        node.load(parts.into_iter().map(Vec::into_iter).collect(), 500);
        let keys = node.view(|view| view.ledger().keys().cloned().collect::<Vec<_>>());
        let units = node.view(|view| view.ledger().realm().units().cloned().collect::<Vec<_>>());
        (keys, units)
    };
    let whole = seen(vec![entries.iter().map(Entry::borrowed).collect()]);
    assert_eq!(whole.0.len(), 499, "the one that was altered is not believed");
    for len in [1, 7, 250, 499] {
        assert_eq!(seen(entries.chunks(len).map(|part| part.iter().map(Entry::borrowed).collect()).collect()), whole);
    }
    assert_eq!(node.doubts().len(), 1);
}

/// Each entry of a journal that was struck out had all the others read again.
#[tokio::test]
async fn a_long_journal_is_read_once() {
    const COUNT: usize = 1000;
    let mut journal = Counting::default();
    let asked = |number: usize| Asked {
        operation: Operation::End { volser: volser(number), serial: None, last: None },
        request: [0; 16],
        by: "drive".parse().unwrap(),
        kma: "a".parse().unwrap(),
        now_ns: 1,
    };
    (0..COUNT).for_each(|number| journal.note(&[asked(number)]).unwrap());
    let node = node(journal.clone());
    let reconciled = node.reconcile().await.unwrap();
    assert_eq!((reconciled.taken + reconciled.void.len(), journal.len()), (COUNT, 0));
    assert_eq!(journal.read.load(Ordering::SeqCst), COUNT);

    // Two entries of one volume are not said before the first is struck out. What was read for it and not said is read
    // again, and no more than that however long the journal is.
    (0..COUNT).for_each(|_| journal.note(&[asked(1)]).unwrap());
    node.reconcile().await.unwrap();
    let read = journal.read.load(Ordering::SeqCst) - COUNT;
    assert!(read <= COUNT * reconcile::SAID_AT_ONCE, "{read}");
}
