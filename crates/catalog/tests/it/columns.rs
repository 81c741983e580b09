//! An index file read without this crate, by the formulas of `docs/CATALOG.md`.

use std::collections::BTreeMap;
use std::fs::File;

use capstan_format::{EntryFlags, EntryKind, FileEntry, ObjectState};
use parquet::file::reader::{FileReader, SerializedFileReader};
use parquet::record::Field;

use crate::tape::{Tape, catalog, file, object, object_id, part};

fn whole(field: Option<&Field>) -> i128 {
    match field.unwrap() {
        Field::Null => 0,
        Field::UByte(value) => i128::from(*value),
        Field::UShort(value) => i128::from(*value),
        Field::UInt(value) => i128::from(*value),
        Field::Int(value) => i128::from(*value),
        Field::ULong(value) => i128::from(*value),
        Field::Long(value) => i128::from(*value),
        other => panic!("{other:?}"),
    }
}

fn bytes(field: Option<&Field>) -> Vec<u8> {
    match field.unwrap() {
        Field::Null => Vec::new(),
        Field::Bytes(value) => value.data().to_vec(),
        other => panic!("{other:?}"),
    }
}

#[test]
fn the_derived_columns_mean_what_the_page_says() {
    // Every kind and flag that the formula names; two connections, one with a hole between members.
    let mut entries = vec![
        FileEntry { kind: EntryKind::Directory, size: 0, crc: 0, member_len: 512, ..file("a", 0, 0) },
        FileEntry { size: 513, member_len: 1536, ..file("a/x", 0, 512) },
        FileEntry { size: 512, member_len: 1024, ..file("a/y", 1, 0) },
        FileEntry { size: 0, crc: 0, member_len: 512, ..file("a/z", 1, 4096) },
        FileEntry {
            kind: EntryKind::HardLink,
            size: 900,
            member_len: 512,
            link: b"a/x".to_vec(),
            ..file("b", 0, 2048)
        },
        FileEntry { flags: EntryFlags::VANISHED, size: 900, crc: 0, member_len: 0, ..file("c", 0, 2560) },
        FileEntry { flags: EntryFlags::UNREADABLE, size: 900, crc: 0, member_len: 0, ..file("d", 1, 4608) },
        FileEntry { flags: EntryFlags::SPARSE, size: 1 << 40, member_len: 3072, ..file("e", 0, 2560) },
        FileEntry { kind: EntryKind::Deleted, size: 0, crc: 0, member_len: 0, ..file("f", 0, 5632) },
    ];
    let dir = tempfile::tempdir().unwrap();
    let mut tape = Tape::new("A00001", 11);
    let mut catalog = catalog(dir.path(), &[&tape]);
    let id = object_id(1);
    tape.write(part(&object(id, None, ObjectState::Complete), &entries)).record(&mut catalog).unwrap();
    catalog.seal_index(id).unwrap();

    let index = File::open(dir.path().join(format!("index/{id}.1.parquet"))).unwrap();
    let reader = SerializedFileReader::new(index).unwrap();
    let mut ends: BTreeMap<i128, i128> = BTreeMap::new();
    let mut read = Vec::new();
    for row in reader.get_row_iter(None).unwrap() {
        let row = row.unwrap();
        let field = |name: &str| row.get_column_iter().find(|(column, _)| *column == name).map(|(_, field)| field);
        let number = |name: &str| whole(field(name));
        let content =
            if number("kind") == 1 && number("flags") & 36 == 0 { (number("size") + 511) / 512 * 512 } else { 0 };
        let member_len = number("surplus") + content;
        let end = ends.entry(number("connection")).or_insert(0);
        let offset = *end + number("gap");
        *end = offset + member_len;
        let path = [bytes(field("dir")), bytes(field("name"))].join(&b'/');
        let path = path.strip_prefix(b"/").unwrap_or(&path).to_vec();
        read.push((
            path,
            number("connection"),
            offset,
            member_len,
            number("crc"),
            number("change"),
            bytes(field("link")),
        ));
    }
    // By directory, then by name: what stands at the top comes first.
    entries.sort_by_key(|entry| (entry.path.len() > 1, entry.path.clone()));
    let expected: Vec<_> = entries
        .into_iter()
        .map(|entry| {
            let numbers = (i128::from(entry.connection), i128::from(entry.offset), i128::from(entry.member_len));
            let (crc, change) = (i128::from(entry.crc), i128::from(entry.change));
            (entry.path, numbers.0, numbers.1, numbers.2, crc, change, entry.link)
        })
        .collect();
    assert_eq!(read, expected);
}
