//! The sealed root and the gate: quorums that open, and everything that must not.

#![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

use std::path::{Path, PathBuf};

use capstan_format::KeyTag;
use capstan_keys::{Argon2Cost, KeyError, Name};
use proptest::prelude::*;
use zeroize::Zeroizing;

use super::*;
use capstan_keys::api::ClusterId;

pub(crate) mod dump;

const CLUSTER: ClusterId = ClusterId([7; 16]);
const CHEAP: Argon2Cost = Argon2Cost { memory_kib: 64, iterations: 1, lanes: 1 };
const MINUTE_NS: i64 = 60_000_000_000;

fn name(text: &str) -> Name {
    text.parse().unwrap()
}

fn text(text: &str) -> Zeroizing<String> {
    Zeroizing::new(text.to_owned())
}

/// Holders whose passphrases are their names, and an addition.
fn quorum(threshold: u8, names: &[&str], addition: &str) -> Quorum {
    let holder = |holder: &&str| Holder { name: name(holder), passphrase: text(&format!("{holder}{addition}")) };
    Quorum { threshold, holders: names.iter().map(holder).collect(), cost: CHEAP }
}

fn two_of_three() -> (ClusterKeys, SealedRoot) {
    let keys = ClusterKeys::create(CLUSTER).unwrap();
    let sealed = SealedRoot::under_quorum(&keys, 4, &quorum(2, &["ada", "bob", "cyd"], "!")).unwrap();
    (keys, sealed)
}

fn share(sealed: &SealedRoot, holder: &str) -> Share {
    sealed.open_share(&name(holder), &text(&format!("{holder}!"))).unwrap()
}

fn refused<T>(result: Result<T, RootError>) -> RootError {
    match result {
        Ok(_) => panic!("it was taken"),
        Err(error) => error,
    }
}

#[test]
fn each_pair_of_three_opens_and_no_one_alone() {
    let (keys, sealed) = two_of_three();
    let sealed = SealedRoot::decode(&sealed.encode()).unwrap();
    let holders = ["ada", "bob", "cyd"].map(name).to_vec();
    assert_eq!(sealed.opens(), Opens::Quorum { threshold: 2, holders });
    for pair in [["ada", "bob"], ["cyd", "ada"], ["bob", "cyd"]] {
        let shares = pair.map(|holder| share(&sealed, holder));
        assert_eq!(sealed.open_with_shares(&shares).unwrap().into_keys().tag(), keys.tag());
        // The same share twice is one share.
        let alone = sealed.open_with_shares([&shares[0], &shares[0]]);
        assert!(matches!(refused(alone), RootError::NotEnoughShares { given: 1, needed: 2 }));
    }
    assert!(matches!(refused(sealed.open_with_shares([])), RootError::NotEnoughShares { given: 0, needed: 2 }));
    let all = ["ada", "bob", "cyd"].map(|holder| share(&sealed, holder));
    assert_eq!(sealed.open_with_shares(&all).unwrap().into_keys().tag(), keys.tag());
}

#[test]
fn a_wrong_passphrase_is_named_by_its_holder() {
    let (_, sealed) = two_of_three();
    for wrong in ["ada", "bob!", "ada! "] {
        let error = refused(sealed.open_share(&name("ada"), &text(wrong)));
        assert!(matches!(&error, RootError::WrongPassphrase { holder } if holder.as_str() == "ada"), "{error}");
    }
    let error = refused(sealed.open_share(&name("dan"), &text("dan!")));
    assert!(error.to_string().contains("ada, bob, cyd"), "{error}");
    let empty = refused(sealed.open_share(&name("ada"), &text("")));
    assert!(matches!(empty, RootError::Key(KeyError::EmptyPassphrase)));
}

/// The quorum was changed, and one holder still has the old file: same root key, same passphrases, another split.
#[test]
fn a_share_of_another_split_is_noticed() {
    let (keys, old) = two_of_three();
    let root = old.open_with_shares(&["ada", "bob"].map(|holder| share(&old, holder))).unwrap();
    let new = root.under_another_quorum(5, &quorum(2, &["ada", "bob", "cyd"], "!")).unwrap();
    let (a, b) = (share(&new, "ada"), share(&old, "bob"));
    assert!(
        matches!(refused(new.open_with_shares([&a, &b])), RootError::OtherSplit { holder } if holder.as_str() == "bob")
    );
    assert!(
        matches!(refused(old.open_with_shares([&a, &b])), RootError::OtherSplit { holder } if holder.as_str() == "ada")
    );
    let shares = ["bob", "cyd"].map(|holder| share(&new, holder));
    assert_eq!(new.open_with_shares(&shares).unwrap().into_keys().tag(), keys.tag(), "the keys are the same");
}

/// Bytes of one holder: split id 16, cost 12, salt 16, share 40, length 1, three letters.
const HOLDER_LEN: usize = 16 + 12 + 16 + 40 + 1 + 3;
const FIRST: usize = 33 + 42;

fn mended(mut bytes: Vec<u8>) -> Vec<u8> {
    let body = bytes.len() - 4;
    bytes.truncate(body);
    bytes.extend_from_slice(&crc32c(&bytes).to_le_bytes());
    bytes
}

#[test]
fn shares_that_were_swapped_or_grafted_in_the_file_are_noticed() {
    let (_, sealed) = two_of_three();
    let bytes = sealed.encode();
    let holder = |bytes: &[u8], at: usize| bytes[FIRST + at * HOLDER_LEN..][..HOLDER_LEN].to_vec();

    // Two holders in each other's place: what they typed is right, and their shares are not those of their places.
    let mut swapped = bytes.clone();
    swapped[FIRST..][..2 * HOLDER_LEN].copy_from_slice(&[holder(&bytes, 1), holder(&bytes, 0)].concat());
    let swapped = SealedRoot::decode(&mended(swapped)).unwrap();
    assert!(matches!(refused(swapped.open_share(&name("ada"), &text("ada!"))), RootError::WrongPassphrase { .. }));

    // A holder of another split, with the same name and passphrase.
    let other = two_of_three().1.encode();
    let mut grafted = bytes.clone();
    grafted[FIRST..][..HOLDER_LEN].copy_from_slice(&holder(&other, 0));
    let error = SealedRoot::decode(&mended(grafted.clone())).unwrap_err();
    assert!(matches!(error, FormatError::Field { field: "share of another split, that of", .. }), "{error}");
    // The same, dressed as one of this split.
    grafted[FIRST..][..16].copy_from_slice(&bytes[FIRST..][..16]);
    let grafted = SealedRoot::decode(&mended(grafted)).unwrap();
    assert!(matches!(refused(grafted.open_share(&name("ada"), &text("ada!"))), RootError::WrongPassphrase { .. }));
}

#[test]
fn what_is_altered_in_the_file_is_noticed_when_it_opens() {
    let (_, sealed) = two_of_three();
    let bytes = sealed.encode();
    let mut lower = bytes.clone();
    lower[33] = 1;
    let lower = SealedRoot::decode(&mended(lower)).unwrap();
    let one = refused(lower.open_share(&name("ada"), &text("ada!")));
    assert!(matches!(one, RootError::WrongPassphrase { .. }), "a share is of its quorum: {one}");

    let mut epoch = bytes.clone();
    epoch[28] ^= 1;
    let epoch = SealedRoot::decode(&mended(epoch)).unwrap();
    let shares = ["ada", "bob"].map(|holder| share(&epoch, holder));
    assert!(matches!(refused(epoch.open_with_shares(&shares)), RootError::Altered { .. }));

    let mut root = bytes;
    root[33 + 2] ^= 1;
    let root = SealedRoot::decode(&mended(root)).unwrap();
    assert!(matches!(refused(root.open_with_shares(&shares)), RootError::SharesDoNotFit { .. }));
}

#[test]
fn impossible_quorums_are_refused() {
    let keys = ClusterKeys::create(CLUSTER).unwrap();
    let many: Vec<String> = (0..33).map(|at| format!("h{at}")).collect();
    let many: Vec<&str> = many.iter().map(String::as_str).collect();
    for (threshold, holders) in [(0, &["ada"][..]), (2, &["ada"]), (1, &[]), (1, &["ada", "ada"]), (2, &many)] {
        let error = refused(SealedRoot::under_quorum(&keys, 1, &quorum(threshold, holders, "!")));
        assert!(matches!(error, RootError::ImpossibleQuorum { .. }), "{error}");
    }
    assert!(SealedRoot::under_quorum(&keys, 1, &quorum(32, &many[..32], "!")).is_ok());
}

#[test]
fn the_gate_unlocks_with_the_last_share_and_forgets_the_others_in_time() {
    let (keys, sealed) = two_of_three();
    let mut gate = Unlocking::default();
    let waiting = |holder| UnlockingStage::Unlocking { given: vec![name(holder)], threshold: 2 };
    assert_eq!(gate.status(), UnlockingStage::Locked);
    assert!(gate.keys().is_none());
    assert_eq!(gate.give(&sealed, share(&sealed, "ada"), 0).unwrap(), waiting("ada"));
    assert_eq!(gate.give(&sealed, share(&sealed, "ada"), MINUTE_NS).unwrap(), waiting("ada"), "once more is not twice");
    gate.expire(15 * MINUTE_NS);
    assert_eq!(gate.status(), waiting("ada"));
    gate.expire(16 * MINUTE_NS);
    assert_eq!(gate.status(), UnlockingStage::Locked);

    assert_eq!(gate.give(&sealed, share(&sealed, "cyd"), 20 * MINUTE_NS).unwrap(), waiting("cyd"));
    // The clock goes back by a year: the share does not live for a year.
    gate.expire(-500_000 * MINUTE_NS);
    assert_eq!(gate.status(), UnlockingStage::Locked);

    gate.give(&sealed, share(&sealed, "cyd"), 0).unwrap();
    let stranger = share(&two_of_three().1, "bob");
    assert!(matches!(gate.give(&sealed, stranger, 1), Err(RootError::OtherSplit { .. })));
    assert_eq!(gate.status(), waiting("cyd"), "a stranger costs the others nothing");
    assert_eq!(gate.give(&sealed, share(&sealed, "bob"), 2).unwrap(), UnlockingStage::Unlocked);
    assert_eq!(gate.keys().unwrap().tag(), keys.tag());
    assert_eq!(gate.give(&sealed, share(&sealed, "ada"), 3).unwrap(), UnlockingStage::Unlocked);
    gate.lock();
    assert_eq!(gate.status(), UnlockingStage::Locked);
    assert!(gate.keys().is_none());
}

#[test]
fn each_altered_byte_and_each_cut_is_seen() {
    let bytes = two_of_three().1.encode();
    for at in 0..bytes.len() {
        let mut altered = bytes.clone();
        altered[at] ^= 1 << (at % 8);
        assert!(SealedRoot::decode(&altered).is_err(), "byte {at}");
        assert!(SealedRoot::decode(&bytes[..at]).is_err(), "cut to {at} bytes");
        // With the checksum made right it is refused, or it is another file with the same bytes: nothing is overlooked.
        if let Ok(sealed) = SealedRoot::decode(&mended(altered.clone())) {
            assert_eq!(sealed.encode(), mended(altered), "byte {at}");
        }
    }
}

fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("testdata/v1").join(name)
}

/// Files of version 1 stay readable. `testdata/` is only ever added to.
#[test]
fn golden() {
    let tag: KeyTag = std::fs::read_to_string(fixture("cluster.tag")).unwrap().trim_end().parse().unwrap();
    let sealed = SealedRoot::read(&fixture("root.sealed")).unwrap();
    assert_eq!((sealed.cluster(), sealed.epoch()), (CLUSTER, 4));
    let shares = ["cyd", "bob"].map(|holder| share(&sealed, holder));
    assert_eq!(sealed.open_with_shares(&shares).unwrap().into_keys().tag(), tag);
    assert_eq!(sealed.encode(), std::fs::read(fixture("root.sealed")).unwrap());
    let bytes = sealed.encode();
    assert_eq!(bytes[..12], *b"CAPSROOT\x01\0\0\0");
    assert_eq!(bytes.len(), FIRST + 3 * HOLDER_LEN + 40 + 32 + 1 + 56 + 4);
}

proptest! {
    #[test]
    fn any_bytes_are_decoded_or_refused(body in proptest::collection::vec(any::<u8>(), 0..400), kind in 0u8..4) {
        let head = [&b"CAPSROOT\x01\0\0\0"[..], &[7; 20], &[kind, 1, 1]].concat();
        let bytes = mended([&head[..], &body, &[0; 4]].concat());
        if let Ok(sealed) = SealedRoot::decode(&bytes) {
            prop_assert_eq!(sealed.encode(), bytes);
        }
    }
}
