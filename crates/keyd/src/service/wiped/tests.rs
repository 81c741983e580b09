//! Which copies of journals may go, and which tell of something.

#![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

use capstan_format::{Algorithm, Volser};
use capstan_keys::{IssuedKey, KeyRecord, KeyState, KeyUse, StoredKey};

use super::*;
use crate::desk::{Adopted, Asked};
use crate::node::Noted;
use crate::record::{IssuedRecord, KeyOrigin, KmaRecord};
use crate::state::{LedgerState, Mark};

fn name(text: &str) -> Name {
    text.parse().unwrap()
}

/// The ledger of a cluster of `x`, whose copy is looked at, and `p`, which keeps it.
struct House(LedgerState);

impl House {
    fn new() -> Self {
        let mut house = Self(LedgerState::default());
        for kma in ["x", "p"] {
            let record = KmaRecord { site: String::new(), address: "127.0.0.1:1".to_owned(), joined_ns: 0 };
            house.put(1, &Path::Kma(name(kma)), &serde_json::to_vec(&record).unwrap());
        }
        house
    }

    fn put(&mut self, revision: i64, path: &Path, plaintext: &[u8]) {
        self.0.put(&path.to_string(), Mark { revision, change: revision.unsigned_abs() }, plaintext).unwrap();
    }

    fn key(&mut self, revision: i64, byte: u8, volume: &str, state: KeyState) {
        let (tag, destroyed) = (KeyTag([byte; 16]), state == KeyState::Destroyed);
        let record = KeyRecord {
            tag,
            volser: Volser::new(volume).unwrap(),
            algorithm: Algorithm::Aes256Gcm,
            state,
            created_ns: 1,
            activated_ns: None,
            retired_ns: None,
            destroyed_ns: destroyed.then_some(9),
            imported_ns: None,
        };
        let issued =
            IssuedKey { tag, group: Name::default(), issued_for: KeyUse::Begin, issued_ns: 2, dropped_ns: None };
        let origin = KeyOrigin { request: [0; 16], agent: Name::default(), kma: name("x") };
        let stored = StoredKey { record, wrapped: (!destroyed).then_some([byte; 40]) };
        self.put(revision, &Path::Key(tag), &IssuedRecord { stored, issued, origin }.encode());
    }

    /// `x` says that its journal is empty, and where it ends.
    fn said(&mut self, at: i64, sequence: u64) {
        let own = OwnJournal { revision: at, sequence, end: "aa".to_owned() };
        self.put(at + 1, &own_path(&name("x")), &serde_json::to_vec(&own).unwrap());
    }

    /// `p` says that its copies were empty.
    fn emptied(&mut self, at: i64) {
        let kept = KeptCopies { revision: at, left: BTreeMap::new() };
        self.put(at + 1, &copies_path(&name("p")), &serde_json::to_vec(&kept).unwrap());
    }

    fn judged(&self, copy: &HeldCopy) -> Verdict {
        judge(View::of(&self.0), &name("p"), &name("x"), copy)
    }

    fn doubted(&self, copy: &HeldCopy) -> (DoubtKind, String) {
        match self.judged(copy) {
            Verdict::Doubted(kind, words) => (kind, words),
            Verdict::Waits(words) => (DoubtKind::Journal, words),
            other => panic!("{other:?}"),
        }
    }
}

/// A copy in which a key was given out for A00001.
fn copy(sequence: u64, byte: u8) -> HeldCopy {
    let adopted = Adopted {
        volser: Volser::new("A00001").unwrap(),
        tag: KeyTag([byte; 16]),
        wrapped: [byte; 40],
        group: Name::default(),
        algorithm: Algorithm::Aes256Gcm,
        issued_for: KeyUse::Begin,
        created_ns: 1,
    };
    let operation = Operation::Adopt(Box::new(adopted));
    let asked = Asked { operation, request: [0; 16], by: Name::default(), kma: name("x"), now_ns: 3 };
    HeldCopy { sequence, end: "aa".to_owned(), noted: vec![Noted { number: sequence, asked: vec![asked] }] }
}

#[test]
fn a_copy_goes_when_its_node_has_said_all_of_it() {
    let mut house = House::new();
    assert_eq!(house.judged(&copy(3, 1)), Verdict::Stays, "x has said nothing");
    house.key(2, 1, "A00001", KeyState::ProtectAndProcess);
    house.said(3, 3);
    assert_eq!(house.judged(&copy(3, 1)), Verdict::Goes);
    assert_eq!(house.judged(&copy(4, 1)), Verdict::Stays, "x gives out more, cut off");
    let (kind, words) = house.doubted(&copy(3, 2));
    assert_eq!(kind, DoubtKind::Journal);
    assert!(words.contains(&format!("it gave out key {}", KeyTag([2; 16]))), "{words}");
}

/// A node was cut off, gave a key out, was put back to a snapshot, drew the same key for another volume and reconciled
/// that: the key was on record, and the copy that alone showed the first volume was overwritten without a word.
#[test]
fn a_copy_stays_that_shows_one_key_on_two_volumes() {
    let mut house = House::new();
    house.key(2, 1, "B00002", KeyState::ProtectAndProcess);
    house.said(3, 9);
    for sequence in [3, 9, 12] {
        let (kind, words) = house.doubted(&copy(sequence, 1));
        assert_eq!(kind, DoubtKind::Conflict);
        assert!(words.contains("but the key belongs to volume B00002"), "{words}");
        assert!(words.contains("`shred -u`"), "{words}");
    }
}

/// A node lost its disk and began at 0 while the one with the copy was away: every certificate was refused on account
/// of a copy that "is named in `keyd status`", and nothing was named.
#[test]
fn a_copy_that_is_longer_than_its_journal_is_named_once_a_certificate_waits_for_it() {
    let mut house = House::new();
    house.key(2, 1, "A00001", KeyState::ProtectAndProcess);
    house.emptied(3);
    house.said(5, 0);
    assert_eq!(house.judged(&copy(40, 1)), Verdict::Stays, "no key is destroyed");
    house.key(7, 3, "C00003", KeyState::Destroyed);
    assert_eq!(house.judged(&copy(40, 1)), Verdict::Stays, "x has yet to speak");
    house.said(8, 0);
    let (kind, words) = house.doubted(&copy(40, 1));
    assert_eq!(kind, DoubtKind::Journal);
    assert!(words.contains("up to record 40") && words.contains("ends with record 0"), "{words}");
    assert!(words.contains("the ledger has every key that the copy names, so stop p"), "{words}");
    assert!(house.doubted(&copy(40, 2)).1.contains(&format!("under key {}", KeyTag([2; 16]))));
    // It was empty after x had spoken: what is in it now x gives out, cut off.
    house.emptied(10);
    assert_eq!(house.judged(&copy(40, 1)), Verdict::Stays);
}
