//! Bytes of a journal: as documented, with every bit flipped, with zeros of a crash.

#![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

use super::super::JournalEntry;
use super::*;

fn key(byte: u8, kma: &str) -> ChainKey {
    let secret = Secret::filled(|bytes| {
        bytes.fill(byte);
        Ok::<(), ()>(())
    });
    ChainKey::new(&kma.parse().unwrap(), &secret.unwrap())
}

fn entry(kind: u8, sealed_len: usize) -> Body {
    Body::Entry(JournalEntry { kind, path: format!("key/{kind:02x}"), sealed: vec![kind; sealed_len] })
}

fn file(bodies: &[Body]) -> Vec<u8> {
    let mut chain = Chain::new(key(1, "kma1"));
    let mut bytes = chain.header();
    for body in bodies {
        let (record, step) = chain.record(body.clone());
        bytes.extend_from_slice(&record);
        chain.advance(step);
    }
    bytes
}

/// What the page of docs says, put together by hand with the primitives alone.
#[test]
fn bytes_are_as_documented() {
    let mac = |key: &[u8], bytes: &[u8]| hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, key), bytes).as_ref().to_vec();
    let own = mac(&[1; 32], b"capstan journal v1kma1");
    let header = [b"CAPSJRNL\x01\0\0\0\x04kma1\0\0\0\0\0\0\0\0", &[0; 32][..]].concat();
    let header = [&header[..], &mac(&own, &[b"\x01", &header[..]].concat())].concat();
    let mut expected = header;
    let mut before = vec![0; 32];
    let bodies: [(&[u8], &[u8]); 2] = [
        (b"\x0d\0\0\0\x01\0\0\0\0\0\0\0", b"\x01\x07\x06\0key/07\x07\x07\x07"),
        (b"\x09\0\0\0\x02\0\0\0\0\0\0\0", b"\x02\x01\0\0\0\0\0\0\0"),
    ];
    for (head, body) in bodies {
        let record = [head, &crc32c(head).to_le_bytes(), body].concat();
        before = mac(&own, &[b"\x02", &before[..], &record].concat());
        expected = [expected, record, before.clone()].concat();
    }
    assert_eq!(file(&[entry(7, 3), Body::Reconciled { up_to: 1 }]), expected);
}

#[test]
fn every_bit_counts() {
    let bytes = file(&[entry(1, 20), entry(2, 0), Body::Reconciled { up_to: 1 }, entry(3, 50)]);
    let whole = Chain::load(&key(1, "kma1"), &bytes).unwrap();
    assert_eq!((whole.len, whole.chain.sequence, whole.chain.reconciled), (bytes.len(), 4, 1));
    assert_eq!(whole.chain.pending.iter().map(|recorded| recorded.sequence).collect::<Vec<_>>(), [2, 4]);
    for (at, bit) in (0..bytes.len()).flat_map(|at| (0..8).map(move |bit| (at, bit))) {
        let mut altered = bytes.clone();
        altered[at] ^= 1 << bit;
        assert!(Chain::load(&key(1, "kma1"), &altered).is_err(), "byte {at}, bit {bit}");
    }
    assert!(Chain::load(&key(2, "kma1"), &bytes).is_err(), "another key");
    assert!(Chain::load(&key(1, "kma2"), &bytes).is_err(), "another node");
    assert!(Chain::load(&key(1, "kma1"), &[]).is_err());
}

/// A record of one journal is none of another place in it, nor of another node's.
#[test]
fn records_stay_where_they_are() {
    let (one, two) = (file(&[entry(1, 20)]), file(&[entry(1, 20), entry(2, 20)]));
    let second = &two[one.len()..];
    assert!(Chain::load(&key(1, "kma1"), &[&one[..], second, second].concat()).is_err());
    let header_len = file(&[]).len();
    let swapped = [&two[..header_len], second, &two[header_len..one.len()]].concat();
    assert!(Chain::load(&key(1, "kma1"), &swapped).is_err());
    let without_first = [&two[..header_len], second].concat();
    assert!(Chain::load(&key(1, "kma1"), &without_first).is_err());
}

/// Zeros that begin inside a sector were not left by a crash, but by somebody who wipes the end of an acknowledged
/// record.
#[test]
fn zeros_inside_a_sector_are_no_crash() {
    let bytes = file(&[entry(1, 20), entry(2, 900)]);
    let load = |zeros: usize| {
        let mut torn = bytes.clone();
        let len = torn.len();
        torn[len - zeros..].fill(0);
        Chain::load(&key(1, "kma1"), &torn).map(|loaded| loaded.chain.sequence)
    };
    let after_boundary = bytes.len() % SECTOR_LEN;
    assert_eq!(load(after_boundary), Ok(1));
    assert_eq!(load(after_boundary + SECTOR_LEN), Ok(1));
    assert!(load(after_boundary - 1).is_err());
    // Nor are zeros over an earlier record, with something behind.
    let mut hole = file(&[entry(1, 600), entry(2, 600)]);
    hole[512..700].fill(0);
    assert!(Chain::load(&key(1, "kma1"), &hole).is_err());
}
