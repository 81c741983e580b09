//! Headers of any content, decoded by a tar reader that is not ours. The seed of a failing case is printed and kept by
//! proptest.

use std::io::Read;

use capstan_format::EntryKind;
use capstan_format::pax::{DataExtent, Member, encode, padding, put_attribute};
use proptest::prelude::*;

fn name(len: std::ops::Range<usize>) -> impl Strategy<Value = Vec<u8>> {
    // Any byte but NUL and slash, and no line end, which this reader takes for the end of a record; `.` and `..` are no
    // names.
    proptest::collection::vec(prop_oneof![8 => 0x61u8..0x7b, 1 => 0xbu8..0x2f, 1 => 0x30u8..=0xff], len)
        .prop_filter("a name", |name| name != b"." && name != b"..")
}

fn path() -> impl Strategy<Value = Vec<u8>> {
    let lengths = prop_oneof![4 => 1usize..40, 2 => 95usize..105, 1 => 150usize..160, 1 => 250usize..256];
    proptest::collection::vec(lengths.prop_flat_map(|len| name(len..len + 1)), 1..8).prop_map(|names| names.join(&b'/'))
}

fn kind() -> impl Strategy<Value = EntryKind> {
    proptest::sample::select(vec![
        EntryKind::File,
        EntryKind::Directory,
        EntryKind::Symlink,
        EntryKind::HardLink,
        EntryKind::Fifo,
        EntryKind::CharDevice,
        EntryKind::BlockDevice,
    ])
}

/// Edges of fields and of record lengths, and anything between.
fn number() -> impl Strategy<Value = u64> {
    let edges = [0, 7, 8, 0o777_7777, 0o1000_0000, 0o777_7777_7777, 0o1000_0000_0000, u64::from(u32::MAX)];
    prop_oneof![proptest::sample::select(edges.to_vec()), any::<u32>().prop_map(u64::from), 0..1u64 << 62]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(500))]

    #[test]
    fn any_header_is_read_back(
        path in path(),
        link in path(),
        kind in kind(),
        mode in 0u32..0o10000,
        (uid, gid) in (number(), number()),
        size in number(),
        mtime_ns in prop_oneof![any::<i64>(), any::<i32>().prop_map(|s| i64::from(s) * 1_000_000_000)],
        user in name(0..60),
        attribute in proptest::collection::vec(any::<u8>().prop_filter("no line end", |&byte| byte != b'\n'), 0..1_200),
    ) {
        let (uid, gid) = (uid as u32, gid as u32);
        let mut records = Vec::new();
        put_attribute(&mut records, b"user.test", &attribute);
        let has_link = matches!(kind, EntryKind::Symlink | EntryKind::HardLink);
        let member = Member {
            path: &path,
            kind,
            mode,
            uid,
            gid,
            user: &user,
            group: b"group",
            size,
            mtime_ns: mtime_ns.into(),
            link: if has_link { &link } else { b"" },
            device: (0o777_7777, 5),
            records: &records,
            extents: None,
        };
        let mut bytes = b"before".to_vec();
        encode(&member, &mut bytes);
        let bytes = bytes.split_off(6);
        prop_assert_eq!(bytes.len() % 512, 0);
        let mut archive = tar::Archive::new(&bytes[..]);
        let mut entry = archive.entries().unwrap().next().unwrap().unwrap();
        let mut expected = path.clone();
        if kind == EntryKind::Directory {
            expected.push(b'/');
        }
        prop_assert_eq!(entry.path_bytes().into_owned(), expected);
        if has_link {
            prop_assert_eq!(entry.link_name_bytes().unwrap().into_owned(), link);
        }
        prop_assert_eq!(entry.size(), if kind == EntryKind::File { size } else { 0 });
        let mut found = std::collections::HashMap::new();
        for extension in entry.pax_extensions().unwrap().unwrap() {
            let extension = extension.unwrap();
            found.insert(extension.key_bytes().to_vec(), extension.value_bytes().to_vec());
        }
        prop_assert_eq!(found.get(&b"SCHILY.xattr.user.test"[..]), Some(&attribute));
        let header = entry.header();
        prop_assert_eq!(header.mode().unwrap(), mode);
        prop_assert_eq!(header.entry_type().as_byte(), b"0521634"[kind.code() as usize - 1]);
        prop_assert!(header.as_ustar().is_some());
        for (key, field, id) in [(&b"uid"[..], header.uid().unwrap(), uid), (b"gid", header.gid().unwrap(), gid)] {
            let recorded = found.get(key).map(|value| str::from_utf8(value).unwrap().parse().unwrap());
            prop_assert_eq!(recorded.unwrap_or(field), u64::from(id));
        }
        let time = match found.get(&b"mtime"[..]) {
            None => i128::from(header.mtime().unwrap()) * 1_000_000_000,
            Some(text) => nanoseconds(str::from_utf8(text).unwrap()),
        };
        prop_assert_eq!(time, i128::from(mtime_ns));
        let recorded = found.get(&b"uname"[..]).map_or(header.username_bytes().unwrap(), |name| name);
        prop_assert_eq!(recorded, &user[..]);
        if let Some(charset) = found.get(&b"hdrcharset"[..]) {
            prop_assert_eq!(&charset[..], b"BINARY");
        } else {
            prop_assert!(found.get(&b"path"[..]).is_none_or(|path| str::from_utf8(path).is_ok()));
        }
    }

    #[test]
    fn a_sparse_map_says_where_the_data_is(
        runs in proptest::collection::vec((0u64..1 << 40, 1u64..1 << 14), 0..40),
        tail in 0u64..1 << 35,
    ) {
        let mut extents = Vec::new();
        let mut at = 0;
        for (hole, len) in runs {
            extents.push(DataExtent { offset: at + hole, len });
            at += hole + len;
        }
        let size = at + tail;
        let member = Member {
            path: b"some/file",
            kind: EntryKind::File,
            mode: 0o644,
            uid: 0,
            gid: 0,
            user: b"",
            group: b"",
            size,
            mtime_ns: 0,
            link: b"",
            device: (0, 0),
            records: b"",
            extents: Some(&extents),
        };
        let mut bytes = Vec::new();
        encode(&member, &mut bytes);
        let stored: u64 = extents.iter().map(|extent| extent.len).sum();
        let mut archive = tar::Archive::new((&bytes[..]).chain(std::io::repeat(1).take(stored)));
        let mut entry = archive.entries().unwrap().next().unwrap().unwrap();
        let map_len = entry.size() - stored;
        prop_assert_eq!(padding(map_len), 0);
        let mut map = vec![0; map_len as usize];
        entry.read_exact(&mut map).unwrap();
        let end = map.iter().rposition(|&byte| byte != 0).unwrap() + 1;
        let numbers: Vec<u64> = str::from_utf8(&map[..end]).unwrap().lines().map(|line| line.parse().unwrap()).collect();
        let mut expected: Vec<(u64, u64)> = extents.iter().map(|extent| (extent.offset, extent.len)).collect();
        if tail > 0 || extents.is_empty() {
            expected.push((size, 0));
        }
        prop_assert_eq!(numbers[0] as usize, expected.len());
        let found: Vec<(u64, u64)> = numbers[1..].chunks(2).map(|pair| (pair[0], pair[1])).collect();
        prop_assert_eq!(found, expected);
        let mut rest = Vec::new();
        entry.read_to_end(&mut rest).unwrap();
        prop_assert!(rest.iter().all(|&byte| byte == 1));
        prop_assert_eq!(rest.len() as u64, stored);
    }
}

/// A decimal number of seconds as POSIX writes it.
fn nanoseconds(text: &str) -> i128 {
    let (sign, digits) = text.strip_prefix('-').map_or((1, text), |digits| (-1, digits));
    let (whole, fraction) = digits.split_once('.').unwrap_or((digits, ""));
    let fraction: i128 = format!("{fraction:0<9}").parse().unwrap();
    sign * (whole.parse::<i128>().unwrap() * 1_000_000_000 + fraction)
}
