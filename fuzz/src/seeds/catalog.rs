//! What a session leaves on a volume: valid, and valid but for what it claims.

use capstan_format::{
    CatalogPart, Checkpoint, EntryEncoder, EntryFlags, EntryKind, ExtentRecord, FileEntry, ObjectId, ObjectKind,
    ObjectRecord, ObjectState, PartRecord, SessionRecord,
};

use super::{NOW_NS, OBJECT, Seeds, volser};

pub(super) fn session_record() -> Vec<u8> {
    SessionRecord { started_ns: NOW_NS, host: "mover-1".to_owned(), software: "capstan 0.1.0".to_owned() }.encode()
}

pub(super) fn checkpoint() -> Vec<u8> {
    let (number, previous_lbn, part_lbn, part_blocks, part_len) = (2, 7, 12, 1, 400);
    Checkpoint { number, previous_lbn, part_lbn, part_blocks, part_len, closed: true, written_ns: NOW_NS }.encode()
}

fn file_entries() -> Vec<FileEntry> {
    let kinds = [
        ("a", EntryKind::Directory),
        ("a/file", EntryKind::File),
        ("a/file.link", EntryKind::HardLink),
        ("a/name", EntryKind::Symlink),
        ("b/old", EntryKind::Deleted),
    ];
    let entry = |(number, (path, kind)): (i64, (&str, EntryKind))| FileEntry {
        path: path.into(),
        kind,
        flags: EntryFlags::GREW.with(EntryFlags::SPARSE),
        mode: 0o644,
        uid: 1000,
        gid: 100,
        size: 5,
        mtime_ns: NOW_NS - number,
        change: 1,
        crc: 2,
        connection: 1,
        offset: 1024 * number as u64,
        member_len: 1024,
        link: if kind == EntryKind::HardLink { b"a/file".to_vec() } else { Vec::new() },
    };
    (0..).zip(kinds).map(entry).collect()
}

fn packed(entries: &[FileEntry]) -> Vec<u8> {
    let mut encoder = EntryEncoder::new();
    entries.iter().for_each(|entry| encoder.push(entry));
    encoder.finish()
}

pub(super) fn entries() -> Vec<u8> {
    packed(&file_entries())
}

fn part() -> CatalogPart {
    let object = ObjectRecord {
        object: OBJECT,
        source: b"/srv/data".to_vec(),
        client: "host".to_owned(),
        policy: "nightly".to_owned(),
        kind: ObjectKind::Tree,
        state: ObjectState::Complete,
        base: None,
        copy: 1,
        chunk_len: 1 << 18,
        started_ns: NOW_NS,
        ended_ns: NOW_NS + 1,
        expires_ns: 0,
        is_locked: false,
        consolidates: None,
        tags: Vec::new(),
    };
    let extent = ExtentRecord {
        object: OBJECT,
        connection: 1,
        first_sequence: 0,
        first_lbn: 4,
        blocks: 3,
        offset: 0,
        plain_len: 700_000,
        stored_len: 300_000,
    };
    let other =
        ObjectRecord { object: ObjectId([8; 16]), base: Some(OBJECT), state: ObjectState::Open, ..object.clone() };
    CatalogPart {
        objects: vec![object, other],
        parts: vec![PartRecord { object: OBJECT, connection: 1, valid_len: 699_392 }],
        extents: vec![extent],
        entries: vec![(OBJECT, entries())],
        continued_on: Some(volser()),
    }
}

pub(super) fn catalog_part() -> Vec<u8> {
    part().encode()
}

/// Catalog parts that are well-formed and claim what cannot be: each number at the ends of its range.
pub(super) fn claims() -> Vec<CatalogPart> {
    let mut claims = vec![part()];
    let mut claim = |change: &dyn Fn(&mut CatalogPart)| {
        let mut changed = part();
        change(&mut changed);
        claims.push(changed);
    };
    for value in [0, 1, u64::MAX >> 1, u64::MAX] {
        let small = value as u32;
        claim(&|part| part.objects[0].chunk_len = small);
        claim(&|part| part.parts[0].valid_len = value);
        claim(&|part| part.parts[0].connection = value as u16);
        claim(&|part| part.extents[0].blocks = small);
        claim(&|part| part.extents[0].first_sequence = small);
        claim(&|part| part.extents[0].first_lbn = value);
        claim(&|part| part.extents[0].offset = value);
        claim(&|part| part.extents[0].plain_len = value);
        claim(&|part| part.extents[0].stored_len = value);
        claim(&|part| (part.objects[0].started_ns, part.objects[1].ended_ns) = (value as i64, value as i64));
        claim(&|part| (part.objects[0].expires_ns, part.objects[1].expires_ns) = (value as i64, i64::MIN));
        claim(&|part| {
            part.extents.push(ExtentRecord {
                offset: 1,
                plain_len: value >> 1,
                first_lbn: value >> 1,
                ..part.extents[0]
            });
        });
        let fields: [&dyn Fn(&mut FileEntry); 5] = [
            &|entry| entry.size = value,
            &|entry| entry.offset = value,
            &|entry| entry.member_len = value,
            &|entry| entry.mtime_ns = value as i64,
            &|entry| (entry.offset, entry.member_len) = (value, value),
        ];
        for field in fields {
            let mut entries = file_entries();
            entries.iter_mut().for_each(field);
            claim(&|part| part.entries[0].1 = packed(&entries));
        }
    }
    claim(&|part| part.objects[0].base = Some(OBJECT));
    claim(&|part| part.objects[0].base = Some(part.objects[1].object));
    claim(&|part| part.objects[0].kind = ObjectKind::Stream);
    claim(&|part| part.objects[0].kind = ObjectKind::Device);
    claim(&|part| part.objects[0].source = b"../\xff".to_vec());
    claim(&|part| part.objects[0].copy = 0);
    claim(&|part| part.objects.swap(0, 1));
    claim(&|part| part.entries.push((ObjectId([9; 16]), entries())));
    claims
}

pub(super) fn session_trailer() -> Seeds {
    vec![session_record(), checkpoint(), catalog_part(), CatalogPart::default().encode(), entries()]
}
