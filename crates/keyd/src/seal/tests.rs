//! Sealed records: their bytes, what they are bound to, their limits.

#![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

use proptest::prelude::*;

use super::*;

const CLUSTER: ClusterId = ClusterId([7; 16]);

fn sealer(cluster: ClusterId) -> Sealer {
    let key = RootKey::filled(|bytes| {
        bytes.copy_from_slice(&std::array::from_fn::<u8, 32, _>(|at| at as u8));
        Ok::<(), KeyError>(())
    });
    Sealer::new(Arc::new(key.unwrap()), cluster)
}

fn refused<T>(result: Result<T, SealError>) -> SealError {
    match result {
        Ok(_) => panic!("it was taken"),
        Err(error) => error,
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The bytes of version 1, and that they open. They were computed a second time with Python's `cryptography`.
#[test]
fn golden() {
    let golden = include_str!("../../testdata/v1/record.hex").trim_end();
    let sealed = sealer(CLUSTER).seal_with(VERSION, "key/00ff", (3, 5), [9; NONCE_LEN], b"what is sealed").unwrap();
    assert_eq!(hex(&sealed), golden);
    assert_eq!(hex(&sealed[..HEADER_LEN]), "01030000000500000000000000090909090909090909090909");
    let opened = sealer(CLUSTER).open("key/00ff", &sealed).unwrap();
    assert_eq!((opened.epoch, opened.change, &opened.plaintext[..]), (3, 5, &b"what is sealed"[..]));
}

#[test]
fn a_record_opens_in_its_own_cluster_alone() {
    let sealed = sealer(CLUSTER).seal("unit/A00001", 1, 1, b"x").unwrap();
    for stranger in [sealer(ClusterId([8; 16])), Sealer::new(Arc::new(RootKey::random().unwrap()), CLUSTER)] {
        assert!(matches!(refused(stranger.open("unit/A00001", &sealed)), SealError::Altered { .. }));
    }
    // The same path under another kind has another key and other additional data; each alone suffices.
    assert!(sealer(CLUSTER).open("key/A00001", &sealed).is_err());
}

/// Whoever may write to etcd may put a header of his choice in front of a record that he knows.
#[test]
fn an_older_change_cannot_be_dressed_as_a_newer_one() {
    let sealer = sealer(CLUSTER);
    let older = sealer.seal("policy/default", 1, 4, b"allow").unwrap();
    let mut dressed = older.clone();
    dressed[5..13].copy_from_slice(&5u64.to_le_bytes());
    assert!(matches!(refused(sealer.open("policy/default", &dressed)), SealError::Altered { .. }));
    assert_eq!(sealer.open("policy/default", &older).unwrap().change, 4, "whole, it opens: the caller sees its age");
}

#[test]
fn limits_hold() {
    let sealer = sealer(CLUSTER);
    let longest = vec![0; PLAINTEXT_LEN_MAX];
    let path = format!("key/{}", "x".repeat(PATH_LEN_MAX - 4));
    let sealed = sealer.seal(&path, 1, 1, &longest).unwrap();
    assert_eq!(sealed.len(), RECORD_LEN_MAX);
    assert_eq!(*sealer.open(&path, &sealed).unwrap().plaintext, longest);
    let long = format!("{path}x");
    for (path, plaintext) in [(&*long, 0), ("", 0), ("/key", 0), ("key/x", PLAINTEXT_LEN_MAX + 1)] {
        let error = refused(sealer.seal(path, 1, 1, &vec![0; plaintext]));
        assert!(matches!(error, SealError::Impossible { .. }), "{error}");
    }
    assert!(sealer.open(&long, &sealed).is_err());
    assert!(sealer.open(&path, &[sealed, vec![0]].concat()).is_err());
    assert!(matches!(refused(sealer.open("key/x", &[3; 60])), SealError::Version { found: 3, .. }));
}

#[test]
fn invented_kinds_do_not_fill_the_memory() {
    let sealer = sealer(CLUSTER);
    for kind in 0..3 * KINDS_MAX {
        let path = format!("{kind}/x");
        let sealed = sealer.seal(&path, 1, 1, b"x").unwrap();
        assert_eq!(*sealer.open(&path, &sealed).unwrap().plaintext, b"x");
    }
    assert_eq!(sealer.kinds.read().unwrap().len(), KINDS_MAX);
}

/// How fast a replica is read at the start of a node: `cargo test --release -- --ignored --nocapture`.
#[test]
#[ignore = "measures"]
fn a_million_opens() {
    let sealer = sealer(CLUSTER);
    let sealed = sealer.seal("key/00112233445566778899aabbccddeeff", 1, 1, &[7; 200]).unwrap();
    // Of this thread: a machine that is busy with other things says nothing of the cipher.
    let spent = || {
        let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
        std::time::Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
    };
    let begun = spent();
    for _ in 0..1_000_000 {
        std::hint::black_box(sealer.open("key/00112233445566778899aabbccddeeff", &sealed).unwrap());
    }
    println!("a million opens of 200 bytes took {:?}", spent() - begun);
}

proptest! {
    #[test]
    fn what_is_sealed_opens_and_nothing_else_does(
        path in "(key|unit|policy|group)/[0-9a-z.]{0,40}",
        other in "(key|unit|policy|group)/[0-9a-z.]{0,40}",
        epoch: u32,
        change: u64,
        plaintext in proptest::collection::vec(any::<u8>(), 0..300),
        at: prop::sample::Index,
        bit in 0..8u32,
    ) {
        let sealer = sealer(CLUSTER);
        let sealed = sealer.seal(&path, epoch, change, &plaintext).unwrap();
        let opened = sealer.open(&path, &sealed).unwrap();
        prop_assert_eq!((opened.epoch, opened.change, &*opened.plaintext), (epoch, change, &plaintext));
        prop_assert!(path == other || sealer.open(&other, &sealed).is_err());
        let mut flipped = sealed.clone();
        flipped[at.index(sealed.len())] ^= 1u8 << bit;
        prop_assert!(sealer.open(&path, &flipped).is_err());
        prop_assert!(sealer.open(&path, &sealed[..at.index(sealed.len())]).is_err());
    }

    #[test]
    fn any_bytes_are_refused(path in ".{0,300}", bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        prop_assert!(sealer(CLUSTER).open(&path, &bytes).is_err());
    }
}

/// That a record is no more is sealed as a record is: at its path, with its change, and told from an empty one.
#[test]
fn a_tombstone_is_no_record_and_cannot_be_made_of_one() {
    let sealer = sealer(CLUSTER);
    let tombstone = sealer.seal_tombstone("enrolment/agent/one", 1, 3).unwrap();
    let opened = sealer.open("enrolment/agent/one", &tombstone).unwrap();
    assert_eq!((opened.change, opened.content, opened.plaintext.len()), (3, SealedContent::Tombstone, 0));
    assert!(sealer.open("enrolment/agent/two", &tombstone).is_err());
    let mut empty = sealer.seal("enrolment/agent/one", 1, 3, b"").unwrap();
    assert_eq!(sealer.open("enrolment/agent/one", &empty).unwrap().content, SealedContent::Record);
    empty[0] = tombstone[0];
    assert!(matches!(refused(sealer.open("enrolment/agent/one", &empty)), SealError::Altered { .. }));
}
