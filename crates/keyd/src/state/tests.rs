//! The ledger's records, and what lies apart over them.

#![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

use capstan_format::{Algorithm, KeyTag, Volser};
use capstan_keys::{DataUnit, IssuedKey, KeyRecord, KeyState, KeyUse, Name, RealmRecord, SeenCartridges, StoredKey};

use super::*;
use crate::desk::{KeyPool, next_of_pool, pool_of};
use crate::record::{IssuedRecord, KeyOrigin};
use crate::seeded::Seeded;

fn volser() -> Volser {
    Volser::new("A00001").unwrap()
}

fn unit() -> (Path, Vec<u8>) {
    let unit = DataUnit {
        volser: volser(),
        first_seen_ns: 1,
        last_seen_ns: 2,
        read_until_ns: None,
        cartridges: SeenCartridges::default(),
        keys: Vec::new(),
    };
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
    let origin = KeyOrigin { request: [0; 16], agent: Name::default(), kma: Name::default() };
    let stored = StoredKey { record, wrapped: (!destroyed).then_some([byte; 40]) };
    (Path::Key(tag), IssuedRecord { stored, issued, origin }.encode())
}

fn put(state: &mut LedgerState, revision: i64, change: u64, (path, plaintext): &(Path, Vec<u8>)) {
    state.put(&path.to_string(), Mark { revision, change }, plaintext).unwrap();
}

/// What a node had decided cut off was laid over a volume that got another key meanwhile, of another group: that key
/// came out as one of `default`, and did not open.
#[test]
fn a_key_that_the_ledger_knows_since_keeps_its_group_under_what_lies_apart() {
    let mut ledger = LedgerState::default();
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

/// The majority destroyed a key that a node had copied when it was cut off: it is gone for that node as well, once it
/// has heard of it.
#[test]
fn what_the_majority_destroyed_is_gone_whatever_lies_apart() {
    let mut ledger = LedgerState::default();
    put(&mut ledger, 1, 1, &unit());
    put(&mut ledger, 2, 1, &key(1, "weekly", KeyState::Ready));
    let mut apart = Apart::default();
    apart.put(&ledger, &[unit(), key(1, "weekly", KeyState::ProtectAndProcess)]).unwrap();
    put(&mut ledger, 3, 2, &key(1, "weekly", KeyState::Destroyed));
    let known = View::with(&ledger, &apart).key(&KeyTag([1; 16])).unwrap();
    assert_eq!((known.stored.record.state, known.stored.wrapped), (KeyState::Destroyed, None));
}

/// A node that was cut off listed the keys that the ledger has, and none that it gave out itself meanwhile.
#[test]
fn keys_are_listed_in_order_once_each_wherever_they_were_issued() {
    let mut ledger = LedgerState::default();
    put(&mut ledger, 1, 1, &unit());
    for byte in [1, 4, 5] {
        put(&mut ledger, 2, 1, &key(byte, "weekly", KeyState::Ready));
    }
    let mut apart = Apart::default();
    let decided = [2, 4, 6].map(|byte| key(byte, "weekly", KeyState::ProtectAndProcess));
    apart.put(&ledger, &[&[unit()][..], &decided].concat()).unwrap();
    let view = View::with(&ledger, &apart);
    let listed = |view: View<'_>, after: Option<u8>| {
        let after = after.map(|byte| KeyTag([byte; 16]));
        view.keys_after(after.as_ref()).map(|key| key.stored.record.tag.0[0]).collect::<Vec<_>>()
    };
    assert_eq!(listed(view, None), [1, 2, 4, 5, 6]);
    assert_eq!(
        (listed(view, Some(2)), listed(view, Some(4)), listed(view, Some(6))),
        (vec![4, 5, 6], vec![5, 6], vec![])
    );
    assert_eq!(listed(View::of(&ledger), Some(1)), [4, 5]);
    // Each is as it is known here.
    let states: Vec<_> = view.keys_after(Some(&KeyTag([2; 16]))).map(|key| key.stored.record.state).collect();
    assert_eq!(states, [KeyState::ProtectAndProcess, KeyState::Ready, KeyState::ProtectAndProcess]);
}

#[test]
fn a_record_that_goes_back_is_refused_and_one_that_is_known_changes_nothing() {
    let mut ledger = LedgerState::default();
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

/// The pool by a look at every key of it, as [`pool_of`] was before it counted.
fn counted(view: View<'_>, kma: &Name, safe: i64) -> (KeyPool, [Option<KeyTag>; 2]) {
    let (mut pool, mut first) = (KeyPool::default(), [Vec::new(), Vec::new()]);
    for (tag, key, mark) in view.ledger().pool(kma).filter(|(tag, ..)| view.key(tag).is_none()) {
        match (mark.revision <= safe, Half::of(tag)) {
            (false, _) => pool.waiting += 1,
            (true, Half::Ready) => pool.ready += 1,
            (true, Half::Reserve) => pool.reserve += 1,
        }
        if mark.revision <= safe {
            first[Half::of(tag) as usize].push((mark.revision, key.created_ns, *tag));
        }
    }
    (pool, first.map(|keys| keys.into_iter().min().map(|(.., tag)| tag)))
}

/// Keys are drawn, issued here and apart, put back and taken out, in any order: what is counted is what there is.
#[test]
fn a_pool_that_is_counted_is_the_pool_that_is_there() {
    let seed = std::env::var("CAPSTAN_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(7);
    println!("CAPSTAN_SEED={seed}");
    let mut random = Seeded::new(seed);
    let (kma, other): (Name, Name) = ("a".parse().unwrap(), "b".parse().unwrap());
    let (mut ledger, mut apart) = (LedgerState::default(), Apart::default());
    put(&mut ledger, 1, 1, &unit());
    for record in [&kma, &other].map(|kma| Path::Kma(kma.clone())) {
        let said = br#"{"site":"","address":"","joined_ns":0}"#.to_vec();
        put(&mut ledger, 1, 1, &(record, said));
    }
    for revision in 2..3000 {
        let byte = random.below(24) as u8;
        let path = Path::Pool { kma: kma.clone(), tag: KeyTag([byte; 16]) };
        let change = ledger.mark(&path).change + 1;
        match random.below(8) {
            0..4 => {
                let drawn = PoolKey { created_ns: random.below(50) as i64, wrapped: [byte; 40] };
                put(&mut ledger, revision, change, &(path, drawn.encode()));
            }
            4 => ledger.remove(&path.to_string()),
            5 if byte < 12 => {
                let issued = key(byte, "weekly", KeyState::Ready);
                let change = ledger.mark(&issued.0).change + 1;
                put(&mut ledger, revision, change, &issued);
            }
            6 if byte >= 12 => apart.put(&ledger, &[unit(), key(byte, "weekly", KeyState::Ready)]).unwrap(),
            _ if revision % 500 == 0 => apart = Apart::default(),
            _ => {
                let held = (Path::Held(other.clone()), crate::record::encode_held(revision - random.below(9) as i64));
                let change = ledger.mark(&held.0).change + 1;
                put(&mut ledger, revision, change, &held);
            }
        }
        let view = View::with(&ledger, &apart);
        let (pool, first) = counted(view, &kma, ledger.held(&other));
        assert_eq!(pool_of(view, &kma, 0), pool, "at {revision}");
        let next = [Half::Ready, Half::Reserve].map(|half| next_of_pool(view, &kma, 0, half, |_| false));
        assert_eq!(next, first, "at {revision}");
    }
}
