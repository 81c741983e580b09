//! The ledger's records, and what lies apart over them.

#![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

use capstan_format::{Algorithm, KeyTag, Volser};
use capstan_keys::{DataUnit, IssuedKey, KeyRecord, KeyState, KeyUse, Name, RealmRecord, StoredKey};

use super::*;
use crate::record::{IssuedRecord, Origin};

fn volser() -> Volser {
    Volser::new("A00001").unwrap()
}

fn unit() -> (Path, Vec<u8>) {
    let unit = DataUnit { volser: volser(), first_seen_ns: 1, last_seen_ns: 2, read_until_ns: None, keys: Vec::new() };
    (Path::Unit(volser()), RealmRecord::Unit(unit).encode())
}

fn key(byte: u8, group: &str, state: KeyState) -> (Path, Vec<u8>) {
    let tag = KeyTag([byte; 16]);
    let destroyed = state == KeyState::Destroyed;
    let record = KeyRecord {
        tag,
        volser: volser(),
        algorithm: Algorithm::Aes256Gcm,
        state,
        created_ns: 1,
        activated_ns: None,
        retired_ns: None,
        destroyed_ns: destroyed.then_some(9),
        imported_ns: None,
    };
    let group = group.parse().unwrap();
    let issued = IssuedKey { tag, group, issued_for: KeyUse::Begin, issued_ns: 2, dropped_ns: None };
    let origin = Origin { request: [0; 16], agent: Name::default(), kma: Name::default() };
    let stored = StoredKey { record, wrapped: (!destroyed).then_some([byte; 40]) };
    (Path::Key(tag), IssuedRecord { stored, issued, origin }.encode())
}

fn put(state: &mut State, revision: i64, change: u64, (path, plaintext): &(Path, Vec<u8>)) {
    state.put(&path.to_string(), Mark { revision, change }, plaintext).unwrap();
}

/// What a node had decided cut off was laid over a volume that got another key meanwhile, of another group: that key came out as one of
/// `default`, and did not open.
#[test]
fn a_key_that_the_ledger_knows_since_keeps_its_group_under_what_lies_apart() {
    let mut ledger = State::default();
    put(&mut ledger, 1, 1, &unit());
    put(&mut ledger, 2, 1, &key(1, "weekly", KeyState::Ready));
    let mut apart = Apart::default();
    apart.put(&ledger, &[unit(), key(1, "weekly", KeyState::ProtectAndProcess)]).unwrap();
    put(&mut ledger, 3, 1, &key(2, "brief", KeyState::Ready));

    let view = View::with(&ledger, &apart);
    for named in [Some(KeyTag([2; 16])), None] {
        let holdings = view.holdings(Some(&volser()), named.as_ref());
        assert_eq!(holdings.issued(&KeyTag([2; 16])).unwrap().group.as_str(), "brief");
        assert_eq!(holdings.named(&KeyTag([1; 16])).unwrap().state, KeyState::ProtectAndProcess);
    }
    // Another volume's key that is named comes with its issue, too.
    let other = Volser::new("B00001").unwrap();
    let holdings = view.holdings(Some(&other), Some(&KeyTag([2; 16])));
    assert_eq!(holdings.issued(&KeyTag([2; 16])).unwrap().group.as_str(), "brief");
}

/// The majority destroyed a key that a node had copied when it was cut off: it is gone for that node as well, once it has heard of it.
#[test]
fn what_the_majority_destroyed_is_gone_whatever_lies_apart() {
    let mut ledger = State::default();
    put(&mut ledger, 1, 1, &unit());
    put(&mut ledger, 2, 1, &key(1, "weekly", KeyState::Ready));
    let mut apart = Apart::default();
    apart.put(&ledger, &[unit(), key(1, "weekly", KeyState::ProtectAndProcess)]).unwrap();
    put(&mut ledger, 3, 2, &key(1, "weekly", KeyState::Destroyed));
    let known = View::with(&ledger, &apart).key(&KeyTag([1; 16])).unwrap();
    assert_eq!((known.stored.record.state, known.stored.wrapped), (KeyState::Destroyed, None));
}

#[test]
fn a_record_that_goes_back_is_refused_and_one_that_is_known_changes_nothing() {
    let mut ledger = State::default();
    put(&mut ledger, 5, 3, &key(1, "weekly", KeyState::Destroyed));
    let (path, older) = key(1, "weekly", KeyState::Ready);
    // The watch brings what was taken in at the commit, or something older.
    put(&mut ledger, 5, 3, &(path.clone(), older.clone()));
    put(&mut ledger, 4, 2, &(path.clone(), older.clone()));
    assert_eq!(ledger.key(&KeyTag([1; 16])).unwrap().stored.record.state, KeyState::Destroyed);
    // Somebody put an older version back.
    let put_back = ledger.put(&path.to_string(), Mark { revision: 6, change: 2 }, &older);
    assert!(matches!(put_back, Err(StateError::WentBack { known: 3, found: 2, .. })));
    assert_eq!(ledger.key(&KeyTag([1; 16])).unwrap().stored.record.state, KeyState::Destroyed);
}
