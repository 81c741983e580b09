//! Whatever is encoded decodes to itself, and whatever is damaged is refused.

use capstan_format::{
    Algorithm, BLOCK_HEADER_LEN, BlockHeader, BlockKind, CatalogPart, Checkpoint, Compression, ENVELOPE_LEN,
    ENVELOPE_PREFIX_LEN, EntryDecoder, EntryEncoder, EntryFlags, EntryKind, Envelope, ExtentRecord, FileEntry,
    Fragment, KeyTag, ObjectId, ObjectKind, ObjectRecord, ObjectState, PartRecord, SessionId, SessionRecord, TAG_LEN,
    Volser, VolumeHeader, VolumeId, crc32c, vol1_decode, vol1_encode,
};
use proptest::collection::vec;
use proptest::prelude::*;

fn entry() -> impl Strategy<Value = FileEntry> {
    let path = vec(any::<u8>(), 0..60);
    let numbers = (any::<u32>(), any::<u32>(), any::<u32>(), any::<u64>(), any::<i64>());
    let place = (any::<u32>(), any::<u32>(), any::<u16>(), any::<u64>(), any::<u64>());
    (path, 1u8..=8, 0u8..128, numbers, place, vec(any::<u8>(), 0..20)).prop_map(
        |(path, kind, flags, (mode, uid, gid, size, mtime_ns), (change, crc, connection, offset, member_len), link)| {
            let kind = EntryKind::from_code(kind).expect("a kind");
            let flags = EntryFlags(flags);
            let has_link = kind == EntryKind::HardLink || flags.contains(EntryFlags::FRAGMENT);
            let link = if has_link { link } else { Vec::new() };
            FileEntry {
                path,
                kind,
                flags,
                mode,
                uid,
                gid,
                size,
                mtime_ns,
                change,
                crc,
                connection,
                offset,
                member_len,
                link,
            }
        },
    )
}

fn object() -> impl Strategy<Value = ObjectRecord> {
    let texts = (vec(any::<u8>(), 0..50), ".{0,20}", ".{0,20}", vec("[a-z0-9=. ]{1,20}", 0..4));
    let times = (any::<i64>(), any::<i64>(), any::<i64>());
    (any::<[u8; 16]>(), texts, any::<Option<(bool, [u8; 16])>>(), any::<(u8, u32, bool, bool, bool)>(), times).prop_map(
        |(
            id,
            (source, client, policy, tags),
            stands,
            (copy, chunk_len, device, open, is_locked),
            (started_ns, ended_ns, expires_ns),
        )| {
            ObjectRecord {
                object: ObjectId(id),
                source,
                client,
                policy,
                kind: if device { ObjectKind::Device } else { ObjectKind::Tree },
                state: if open { ObjectState::Open } else { ObjectState::Complete },
                base: stands.filter(|(is_base, _)| *is_base).map(|(_, other)| ObjectId(other)),
                copy,
                chunk_len,
                started_ns,
                ended_ns,
                expires_ns,
                is_locked,
                consolidates: stands.filter(|(is_base, _)| !*is_base).map(|(_, other)| ObjectId(other)),
                tags,
            }
        },
    )
}

fn part() -> impl Strategy<Value = CatalogPart> {
    let parts = vec(any::<([u8; 16], u16, u64)>(), 0..4);
    let extents = vec(any::<([u8; 16], u16, u32, u64, u32, u64, u64, u64)>(), 0..4);
    let entries = vec((any::<[u8; 16]>(), vec(any::<u8>(), 0..40)), 0..3);
    let continued_on = proptest::option::of("[A-Z0-9]{1,8}");
    (vec(object(), 0..3), parts, extents, entries, continued_on).prop_map(
        |(objects, parts, extents, entries, continued_on)| CatalogPart {
            objects,
            parts: parts
                .into_iter()
                .map(|(id, connection, valid_len)| PartRecord { object: ObjectId(id), connection, valid_len })
                .collect(),
            extents: extents
                .into_iter()
                .map(|(id, connection, first_sequence, first_lbn, blocks, offset, plain_len, stored_len)| {
                    ExtentRecord {
                        object: ObjectId(id),
                        connection,
                        first_sequence,
                        first_lbn,
                        blocks,
                        offset,
                        plain_len,
                        stored_len,
                    }
                })
                .collect(),
            entries: entries.into_iter().map(|(id, run)| (ObjectId(id), run)).collect(),
            continued_on: continued_on.map(|text| Volser::new(&text).expect("a volser")),
        },
    )
}

fn block(payload: &[u8]) -> (BlockHeader, Vec<u8>) {
    let header = BlockHeader {
        kind: BlockKind::Data,
        compression: Compression::None,
        last: true,
        connection: 3,
        volume: VolumeId(0x1122_3344_5566_7788),
        session: SessionId(9),
        object: ObjectId([7; 16]),
        sequence: 5,
        stored_len: payload.len() as u32,
        offset: 1 << 40,
        plain_len: payload.len() as u32,
    };
    let mut bytes = vec![0; BLOCK_HEADER_LEN];
    bytes.extend_from_slice(payload);
    header.seal(&mut bytes);
    (header, bytes)
}

proptest! {
    #[test]
    fn entries_round_trip(entries in vec(entry(), 0..20)) {
        let mut encoder = EntryEncoder::new();
        entries.iter().for_each(|entry| encoder.push(entry));
        prop_assert_eq!(encoder.count(), entries.len() as u64);
        let bytes = encoder.finish();
        let decoded: Result<Vec<_>, _> = EntryDecoder::new(&bytes).collect();
        prop_assert_eq!(decoded.expect("entries that were encoded"), entries);
    }

    #[test]
    fn fragments_round_trip(numbers in (any::<u64>(), any::<u64>(), any::<u32>()), before in any::<Option<(u16, u64)>>()) {
        let (content, header_len, header_crc) = numbers;
        let fragment = Fragment { content, header_len, header_crc, continues: before };
        let bytes = fragment.encode();
        prop_assert_eq!(Fragment::decode(&bytes), Ok(fragment));
        prop_assert!((0..bytes.len()).all(|len| Fragment::decode(&bytes[..len]).is_err()));
    }

    #[test]
    fn catalog_parts_round_trip(part in part()) {
        prop_assert_eq!(CatalogPart::decode(&part.encode()).expect("a part that was encoded"), part);
    }

    #[test]
    fn noise_never_panics(bytes in vec(any::<u8>(), 0..300)) {
        let _ = CatalogPart::decode(&bytes);
        let _ = Checkpoint::decode(&bytes);
        let _ = SessionRecord::decode(&bytes);
        let _ = BlockHeader::open(&bytes);
        let _ = VolumeHeader::decode(&bytes);
        let _ = vol1_decode(&bytes);
        let _ = Envelope::decode(&bytes);
        EntryDecoder::new(&bytes).for_each(drop);
    }

    #[test]
    fn a_flipped_bit_of_a_block_is_seen(payload in vec(any::<u8>(), 0..200), at in any::<prop::sample::Index>(), bit in 0u32..8) {
        let (header, mut bytes) = block(&payload);
        prop_assert_eq!(BlockHeader::open(&bytes).expect("an intact block"), (header, payload.as_slice()));
        let at = at.index(bytes.len());
        bytes[at] ^= 1u8 << bit;
        prop_assert!(BlockHeader::open(&bytes).is_err());
    }

    #[test]
    fn a_cut_block_is_seen(payload in vec(any::<u8>(), 1..200), at in any::<prop::sample::Index>()) {
        let (_, bytes) = block(&payload);
        prop_assert!(BlockHeader::open(&bytes[..at.index(bytes.len())]).is_err());
    }
}

#[test]
fn every_flipped_bit_of_a_volume_header_is_seen() {
    let header = VolumeHeader {
        volume: VolumeId(42),
        volser: Volser::new("A00001L9").expect("a volser"),
        labelled_ns: 1_700_000_000_000_000_000,
        pool: "daily".to_owned(),
        block_len_max: 524_352,
        recycled: 2,
    };
    let bytes = header.encode();
    assert_eq!(VolumeHeader::decode(&bytes).expect("an intact header"), header);
    for bit in 0..bytes.len() * 8 {
        let mut damaged = bytes.clone();
        damaged[bit / 8] ^= 1 << (bit % 8);
        assert!(VolumeHeader::decode(&damaged).is_err(), "bit {bit}");
    }
}

#[test]
fn the_checksum_is_crc32c() {
    assert_eq!(crc32c(b"123456789"), 0xE306_9283);
}

#[test]
fn header_and_envelope_cost_a_hundred_bytes() {
    assert_eq!(BLOCK_HEADER_LEN + ENVELOPE_LEN, 100);
    assert_eq!(ENVELOPE_PREFIX_LEN + TAG_LEN, ENVELOPE_LEN);
}

#[test]
fn labels_and_ids_round_trip() {
    let volser = Volser::new("A00001").expect("a volser");
    let label = vol1_encode(&volser);
    assert_eq!((label.len(), label[79]), (80, b'3'));
    assert_eq!(vol1_decode(&label).expect("a label"), volser);
    assert!(Volser::new("a").is_err() && Volser::new("").is_err() && Volser::new("TOOLONG12").is_err());
    let tag = KeyTag([0xab; 16]);
    assert_eq!(tag.to_string().parse::<KeyTag>().expect("a tag"), tag);
    assert!("ab".parse::<KeyTag>().is_err() && "é".repeat(16).parse::<KeyTag>().is_err());
    let envelope = Envelope { algorithm: Algorithm::Aes256Gcm, mount_salt: [3; 11], counter: 0x0102 };
    assert_eq!(envelope.nonce(), [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 2]);
    assert_eq!(envelope.additional_data(5)[20..], [5, 0, 0, 0, 0, 0, 0, 0]);
}

#[test]
fn checkpoints_round_trip() {
    let checkpoint = Checkpoint {
        number: 1,
        previous_lbn: 2,
        part_lbn: 3,
        part_blocks: 4,
        part_len: 5,
        closed: true,
        written_ns: -6,
    };
    assert_eq!(checkpoint.encode().len(), 56);
    assert_eq!(Checkpoint::decode(&checkpoint.encode()).expect("a checkpoint"), checkpoint);
}
