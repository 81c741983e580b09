//! What the decoder makes of headers, whole and broken.

#![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

use proptest::prelude::*;

use super::*;
use crate::EntryKind;
use crate::pax::DataExtent;

/// A ustar header block; `edit` changes it before its checksum is computed.
fn block(typeflag: u8, name: &[u8], size: u64, edit: impl FnOnce(&mut [u8; BLOCK_LEN])) -> [u8; BLOCK_LEN] {
    let mut block = [0; BLOCK_LEN];
    block[..name.len()].copy_from_slice(name);
    block[100..108].copy_from_slice(b"0004755\0");
    block[108..116].copy_from_slice(b"0001750\0");
    block[116..124].copy_from_slice(b"0000144\0");
    block[124..136].copy_from_slice(format!("{size:011o}\0").as_bytes());
    block[136..148].copy_from_slice(b"14000000000\0");
    block[156] = typeflag;
    block[257..265].copy_from_slice(b"ustar\x0000");
    edit(&mut block);
    block[148..156].fill(b' ');
    let sum: u32 = block.iter().map(|&byte| u32::from(byte)).sum();
    block[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
    block
}

fn record(key: &[u8], value: &[u8]) -> Vec<u8> {
    let body = key.len() + value.len() + 3;
    let mut len = body;
    while len != body + len.to_string().len() {
        len = body + len.to_string().len();
    }
    [len.to_string().as_bytes(), b" ", key, b"=", value, b"\n"].concat()
}

/// Decodes a member behind an extended header of these records.
fn decode(records: &[u8], header: &[u8; BLOCK_LEN]) -> Result<DecodedMember, FormatError> {
    let mut decoder = MemberDecoder::new();
    let mut member = DecodedMember::new();
    let step = decoder.header(&block(b'x', b"extended", records.len() as u64, |_| ()), &mut member)?;
    assert_eq!(step, Step::Payload(records.len()));
    decoder.payload(records)?;
    assert!(decoder.is_inside());
    assert_eq!(decoder.header(header, &mut member)?, Step::Member);
    assert!(!decoder.is_inside());
    Ok(member)
}

#[test]
fn ustar_fields() {
    let header = block(b'0', b"name", 0o17, |block| block[345..351].copy_from_slice(b"prefix"));
    let mut member = DecodedMember::new();
    assert_eq!(MemberDecoder::new().header(&header, &mut member), Ok(Step::Member));
    assert_eq!(member.path, b"prefix/name");
    assert_eq!((member.kind, member.mode), (EntryKind::File, 0o4755));
    assert_eq!((member.uid, member.gid), (1000, 100));
    assert_eq!((member.size, member.stored), (15, 15));
    assert_eq!(member.mtime_ns, 0o14000000000 * 1_000_000_000);
}

#[test]
fn records_override_the_header_block() {
    let long = [b"d/".repeat(3000), b"f".to_vec()].concat();
    let records = [
        record(b"path", &long),
        record(b"size", b"8589934592"),
        record(b"uid", b"4000000000"),
        record(b"gid", b"7"),
        record(b"mtime", b"1700000000.000000001"),
        record(b"atime", b"-1.5"),
        record(b"SCHILY.xattr.user.a%3Db%25%20%2", b"\x00\n=\xff"),
        record(b"SCHILY.acl.access", b"user::rw-"),
        record(b"comment", b"ignored"),
    ];
    let member = decode(&records.concat(), &block(b'0', b"short", 0, |_| ())).unwrap();
    assert_eq!(member.path, long);
    assert_eq!((member.size, member.stored), (8 << 30, 8 << 30));
    assert_eq!((member.uid, member.gid), (4_000_000_000, 7));
    assert_eq!((member.mtime_ns, member.atime_ns), (1_700_000_000_000_000_001, Some(-1_500_000_000)));
    assert_eq!(member.xattrs, [(b"user.a=b% %2".to_vec(), b"\x00\n=\xff".to_vec())]);
    assert_eq!(member.acl_access, b"user::rw-");
}

#[test]
fn records_of_one_member_do_not_reach_the_next() {
    let mut decoder = MemberDecoder::new();
    let mut member = DecodedMember::new();
    let records = [record(b"path", b"long"), record(b"SCHILY.xattr.user.a", b"1")].concat();
    decoder.header(&block(b'x', b"x", records.len() as u64, |_| ()), &mut member).unwrap();
    decoder.payload(&records).unwrap();
    decoder.header(&block(b'0', b"one", 0, |_| ()), &mut member).unwrap();
    assert_eq!(member.path, b"long");
    decoder.header(&block(b'5', b"two/", 0, |_| ()), &mut member).unwrap();
    assert_eq!((&member.path[..], member.kind, member.xattrs.len()), (&b"two"[..], EntryKind::Directory, 0));
}

#[test]
fn gnu_long_names_and_base256() {
    let mut decoder = MemberDecoder::new();
    let mut member = DecodedMember::new();
    assert_eq!(decoder.header(&block(b'L', b"././@LongLink", 5, |_| ()), &mut member), Ok(Step::Payload(5)));
    decoder.payload(b"long\0").unwrap();
    let gnu = block(b'1', b"name", 0, |block| {
        block[257..265].copy_from_slice(b"ustar  \0");
        block[124..136].copy_from_slice(&[0x80, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 0]);
        block[136..148].copy_from_slice(&[0xff; 12]);
    });
    decoder.header(&gnu, &mut member).unwrap();
    assert_eq!((&member.path[..], member.mtime_ns), (&b"long"[..], -1_000_000_000));
    assert_eq!(member.stored, 0, "a hard link of GNU's has a size and no content");
}

#[test]
fn what_is_not_read_is_an_error() {
    let zeros = [0; BLOCK_LEN];
    assert_eq!(MemberDecoder::new().header(&zeros, &mut DecodedMember::new()), Ok(Step::Zeros));
    for flag in *b"SMDNVA" {
        assert!(MemberDecoder::new().header(&block(flag, b"x", 0, |_| ()), &mut DecodedMember::new()).is_err());
    }
    let mut flipped = block(b'0', b"x", 0, |_| ());
    flipped[0] ^= 1;
    let error = MemberDecoder::new().header(&flipped, &mut DecodedMember::new()).unwrap_err();
    assert!(matches!(error, FormatError::Checksum { .. }));
    let long = block(b'x', b"x", EXTENDED_LEN_MAX as u64 + 1, |_| ());
    assert!(MemberDecoder::new().header(&long, &mut DecodedMember::new()).is_err());
    for records in [
        &b"5 a=b\n"[..],
        b"6 a=b",
        b"7 a=b\n",
        b" 6 a=b\n",
        b"-6 a=b\n",
        b"5 ab\n",
        b"3 \n",
        b"99999999999 a=b\n",
        b"11 size=-1\n",
        b"29 size=99999999999999999999\n",
        b"28 size=9223372036854775808\n",
        b"11 mtime=.5\n",
        b"22 GNU.sparse.major=2\n",
    ] {
        assert!(decode(records, &block(b'0', b"x", 0, |_| ())).is_err(), "{}", records.escape_ascii());
    }
}

fn map(size: u64, text: &str, data: u64) -> Result<Vec<DataExtent>, FormatError> {
    let mut bytes = text.as_bytes().to_vec();
    bytes.resize(text.len().next_multiple_of(BLOCK_LEN), 0);
    let mut decoder = SparseDecoder::new(size, bytes.len() as u64 + data);
    for record in bytes.as_chunks::<BLOCK_LEN>().0 {
        if let Some(map) = decoder.feed(record)? {
            return Ok(map);
        }
    }
    panic!("the map never ended");
}

#[test]
fn sparse_maps() {
    assert_eq!(map(0, "0\n", 0), Ok(Vec::new()));
    let two = [DataExtent { offset: 5, len: 10 }, DataExtent { offset: 100, len: 0 }];
    assert_eq!(map(100, "2\n5\n10\n100\n0\n", 10).unwrap(), two);
    let many: String = (0..1000).map(|at| format!("{}\n1\n", at * 2)).collect();
    assert_eq!(map(2000, &format!("1000\n{many}"), 1000).unwrap().len(), 1000);
    for (size, text, data) in [
        (100, "1\n5\n10\n", 9),
        (100, "1\n95\n6\n", 6),
        (100, "2\n10\n5\n14\n1\n", 6),
        (100, "x\n", 0),
        (100, "\n", 0),
        (100, "1\n18446744073709551615\n1\n", 1),
        (100, "1\n18446744073709551616\n1\n", 1),
        (100, "1\n000000000000000000001\n1\n", 1),
        (100, "99999999\n", 0),
    ] {
        assert!(map(size, text, data).is_err(), "{text}");
    }
    let mut short = SparseDecoder::new(100, 511);
    assert!(short.feed(&[b'1'; BLOCK_LEN]).is_err());
}

proptest! {
    #[test]
    fn no_bytes_make_it_panic(bytes in proptest::collection::vec(any::<u8>(), 0..2048), flag in any::<u8>(), fix: bool) {
        let mut decoder = MemberDecoder::new();
        let mut member = DecodedMember::new();
        for chunk in bytes.as_chunks::<BLOCK_LEN>().0 {
            let mut header = *chunk;
            if fix {
                // A right checksum lets the bytes reach the fields.
                header = block(flag, b"", 0, |block| block[..148].copy_from_slice(&chunk[..148]));
            }
            if let Ok(Step::Payload(len)) = decoder.header(&header, &mut member) {
                let _ = decoder.payload(&bytes[..len.min(bytes.len())]);
            }
        }
        let _ = records::apply(&bytes, &mut member);
        let mut sparse = SparseDecoder::new(u64::MAX, u64::MAX);
        for chunk in bytes.as_chunks::<BLOCK_LEN>().0 {
            let _ = sparse.feed(chunk);
        }
    }

    #[test]
    fn records_come_back(key in "[a-zA-Z.]{1,20}", value in proptest::collection::vec(any::<u8>(), 0..300)) {
        let key = format!("SCHILY.xattr.{key}");
        let member = decode(&record(key.as_bytes(), &value), &block(b'0', b"x", 0, |_| ())).unwrap();
        prop_assert_eq!(&member.xattrs[0].1, &value);
        prop_assert_eq!(&member.xattrs[0].0, &key.as_bytes()["SCHILY.xattr.".len()..]);
    }
}
