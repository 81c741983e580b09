//! Members, their content, and holes.

#![allow(clippy::unwrap_used, reason = "tests fail by panicking")]
use super::*;
use capstan_format::EntryKind;
use capstan_format::pax::{Member, encode};
use std::io::BufReader;

fn stream(members: &[(&str, u64, Option<&[DataExtent]>)]) -> Vec<u8> {
    let mut out = Vec::new();
    for &(path, size, extents) in members {
        let (user, group, link, records) = (&b""[..], &b""[..], &b""[..], &b""[..]);
        let (kind, mode, uid, gid, mtime_ns, device) = (EntryKind::File, 0o600, 0, 0, 1, (0, 0));
        let path = path.as_bytes();
        encode(
            &Member { path, kind, mode, uid, gid, user, group, size, mtime_ns, link, device, records, extents },
            &mut out,
        );
        let stored = extents.map_or(size, |extents| extents.iter().map(|extent| extent.len).sum());
        out.extend((0..stored).map(|at| at as u8));
        out.resize(out.len() + padding(stored), 0);
    }
    out
}

#[test]
fn content_need_not_be_read_to_its_end() {
    let bytes = stream(&[("a", 3_000, None), ("b", 700, None), ("c", 0, None)]);
    for buffer_len in [1, 7, 512, 1_000, 100_000] {
        for pieces in 0..4 {
            let mut reader = MemberReader::new(BufReader::with_capacity(buffer_len, &bytes[..]));
            let mut begin = 0;
            for (path, size) in [("a", 3_000), ("b", 700), ("c", 0)] {
                let (head, mut content) = reader.next().unwrap().unwrap();
                assert_eq!((&head.header.path[..], head.header.size), (path.as_bytes(), size));
                assert_eq!(head.offset, begin);
                begin += head.member_len();
                let mut expected = 0;
                for _ in 0..pieces {
                    if let Some(Piece::Data { offset, bytes }) = content.next_piece().unwrap() {
                        assert_eq!((offset, bytes[0]), (expected, expected as u8));
                        expected += bytes.len() as u64;
                    }
                }
            }
            assert!(reader.next().unwrap().is_none());
            assert_eq!(reader.offset(), bytes.len() as u64);
        }
    }
}

#[test]
fn two_blocks_of_zeros_end_it_and_one_does_not() {
    let one = stream(&[("a", 5, None)]);
    let bytes = [&one[..], &[0; 512], &one, &[0; 1024], b"whatever"].concat();
    let mut reader = MemberReader::new(&bytes[..]);
    assert_eq!(reader.next().unwrap().unwrap().0.offset, 0);
    assert_eq!(reader.next().unwrap().unwrap().0.offset, one.len() as u64 + 512);
    assert!(reader.next().unwrap().is_none());
}

#[test]
fn holes_come_between_data_and_behind_it() {
    let extents =
        [DataExtent { offset: 10, len: 5 }, DataExtent { offset: 15, len: 600 }, DataExtent { offset: 2_000, len: 1 }];
    let bytes = stream(&[("sparse", 10 << 40, Some(&extents)), ("next", 1, None)]);
    for buffer_len in [3, 512, 100_000] {
        let mut reader = MemberReader::new(BufReader::with_capacity(buffer_len, &bytes[..]));
        let (head, mut content) = reader.next().unwrap().unwrap();
        assert_eq!(head.header.size, 10 << 40);
        let (mut at, mut data, mut holes) = (0, Vec::new(), Vec::new());
        while let Some(piece) = content.next_piece().unwrap() {
            let (offset, len) = match piece {
                Piece::Data { offset, bytes } => {
                    data.extend_from_slice(bytes);
                    (offset, bytes.len() as u64)
                }
                Piece::Hole { offset, len } => {
                    holes.push((offset, len));
                    (offset, len)
                }
                Piece::Missing { .. } => panic!("all of it is there"),
            };
            assert_eq!(offset, at);
            at += len;
        }
        assert_eq!(at, 10 << 40);
        assert_eq!(holes, [(0, 10), (615, 1_385), (2_001, (10 << 40) - 2_001)]);
        assert!(data.iter().enumerate().all(|(at, &byte)| byte == at as u8) && data.len() == 606);
        assert_eq!(reader.next().unwrap().unwrap().0.header.path, b"next");
    }
}

#[test]
fn a_copy_has_zeros_for_holes() {
    let extents = [DataExtent { offset: 100_000, len: 3 }];
    let bytes = stream(&[("sparse", 200_000, Some(&extents))]);
    let mut reader = MemberReader::new(&bytes[..]);
    let (_, mut content) = reader.next().unwrap().unwrap();
    let mut out = Vec::new();
    assert_eq!(content.copy_to(&mut out).unwrap(), 200_000);
    let mut expected = vec![0; 200_000];
    expected[100_000..100_003].copy_from_slice(&[0, 1, 2]);
    assert!(out == expected);
}
