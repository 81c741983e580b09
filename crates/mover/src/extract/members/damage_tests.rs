//! Where a stream is said to be damaged.

#![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

use std::io::BufReader;

use capstan_format::pax::{BLOCK_LEN, encode};
use capstan_format::{EntryKind, pax};

use super::{MemberReader, StreamError};

/// A file of three bytes, then a member that `damage` is done to.
fn stream(records: &[u8], damage: impl FnOnce(&mut [u8])) -> Vec<u8> {
    let member = |records| pax::Member {
        path: b"file",
        kind: EntryKind::File,
        mode: 0o644,
        uid: 0,
        gid: 0,
        user: b"",
        group: b"",
        size: 3,
        mtime_ns: 0,
        link: b"",
        device: (0, 0),
        records,
        extents: None,
    };
    let mut stream = Vec::new();
    encode(&member(b""), &mut stream);
    stream.extend_from_slice(b"abc");
    stream.resize(2 * BLOCK_LEN, 0);
    encode(&member(records), &mut stream);
    damage(&mut stream[2 * BLOCK_LEN..]);
    stream
}

fn damaged_at(stream: &[u8], buffer_len: usize) -> u64 {
    let mut reader = MemberReader::new(BufReader::with_capacity(buffer_len, stream));
    assert!(reader.next().unwrap().is_some());
    match reader.next() {
        Err(StreamError::Malformed { offset, .. }) => offset,
        other => panic!("the damage was not seen: {other:?}"),
    }
}

/// A header that lay across two buffers was reported 512 bytes further on than one that did not, and malformed records
/// always at their end: the place depended on how the blocks happened to be cut, and called damaged bytes good.
#[test]
fn damage_is_reported_where_it_begins_however_the_stream_is_cut() {
    let header = stream(b"", |member| member[0] ^= 1);
    let second = 2 * BLOCK_LEN as u64;
    for buffer_len in [1, 7, 511, 512, 700, 4096] {
        assert_eq!(damaged_at(&header, buffer_len), second, "header, buffers of {buffer_len}");
    }
    // A global header is checked as it comes: its records begin behind its own block.
    let global = stream(b"12 uid=1234\n", |member| {
        member[156] = b'g';
        member[BLOCK_LEN] = b'x';
        member[148..156].fill(b' ');
        let sum: u32 = member[..BLOCK_LEN].iter().map(|&byte| u32::from(byte)).sum();
        member[148..155].copy_from_slice(format!("{sum:06o}\0").as_bytes());
    });
    for buffer_len in [1, 512, 700, 4096] {
        assert_eq!(damaged_at(&global, buffer_len), second + BLOCK_LEN as u64, "records, buffers of {buffer_len}");
    }
}
