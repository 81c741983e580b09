//! Exports, whole and damaged.

#![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

use capstan_format::{Algorithm, KeyTag, Volser};
use proptest::prelude::*;

use super::*;

const CHEAP: Argon2Cost = Argon2Cost { memory_kib: 8, iterations: 1, lanes: 1 };

fn passphrase() -> Zeroizing<String> {
    Zeroizing::new("export".to_owned())
}

fn sample_keys() -> Vec<ExportedKey> {
    let sample = |volser: &str, algorithm, state| {
        let key = VolumeKey::random(algorithm).unwrap();
        let record = KeyRecord {
            tag: key.tag(),
            volser: Volser::new(volser).unwrap(),
            algorithm,
            state,
            created_ns: -1,
            activated_ns: Some(2),
            retired_ns: None,
            destroyed_ns: None,
            imported_ns: Some(i64::MAX),
        };
        ExportedKey { record, key }
    };
    vec![
        sample("A", Algorithm::Aes256Gcm, KeyState::ProcessOnly),
        sample("A00001L9", Algorithm::Aes256Ccm, KeyState::ProtectAndProcess),
    ]
}

fn sample() -> Vec<u8> {
    encode_export(&sample_keys(), &passphrase(), CHEAP).unwrap()
}

fn encode_export(keys: &[ExportedKey], passphrase: &Zeroizing<String>, cost: Argon2Cost) -> Result<Vec<u8>, KeyError> {
    let export_key = ExportKey::random()?;
    seal_export(&wrap_for_export(keys, &export_key)?, &export_key, passphrase, cost)
}

fn open(bytes: &[u8]) -> Result<Vec<ExportedKey>, KeyError> {
    let export = KeyExport::read(bytes)?;
    let export_key = export.export_key(&passphrase())?;
    export.open(&export_key)
}

#[test]
fn keys_and_records_come_back() {
    let keys = sample_keys();
    let opened = open(&encode_export(&keys, &passphrase(), CHEAP).unwrap()).unwrap();
    assert_eq!(opened.len(), keys.len());
    for (one, other) in opened.iter().zip(&keys) {
        assert_eq!(one.record, other.record);
        assert_eq!(one.key.expose(), other.key.expose());
        assert_eq!(one.key.algorithm(), other.record.algorithm);
    }
}

/// The layout above, where it can be known beforehand.
#[test]
fn layout() {
    let bytes = sample();
    assert_eq!(&bytes[..22], b"capstan key export v1\n");
    assert_eq!(&bytes[22..34], b"\x08\0\0\0\x01\0\0\0\x01\0\0\0");
    assert_eq!(&bytes[90..94], b"\x02\0\0\0");
    let record = &bytes[94..];
    assert_eq!(&record[16..20], b"\x01\x04\x01A", "algorithm, state, barcode");
    assert_eq!(&record[20..28], &[0xff; 8], "created");
    assert_eq!(&record[28..37], b"\x01\x02\0\0\0\0\0\0\0", "activated");
    assert_eq!(&record[37..40], b"\0\0\x01", "neither retired nor destroyed, but imported");
    assert_eq!(record[48], 1, "a wrapped key follows");
    let second = 94 + 49 + 40;
    assert_eq!(&bytes[second + 16..second + 27], b"\x02\x03\x08A00001L9");
    assert_eq!(bytes.len(), second + 49 + 7 + 40 + 32 + 4);
}

#[test]
fn each_altered_byte_and_each_cut_is_damage_and_not_a_wrong_passphrase() {
    let bytes = sample();
    for at in 0..bytes.len() {
        let mut altered = bytes.clone();
        altered[at] ^= 1 << (at % 8);
        assert!(matches!(open(&altered), Err(KeyError::ExportDamaged { .. })), "byte {at}");
        assert!(matches!(open(&bytes[..at]), Err(KeyError::ExportDamaged { .. })), "cut to {at} bytes");
    }
}

/// Somebody who alters an export computes a new checksum: the MAC, or the wrapping, still sees it.
#[test]
fn each_altered_byte_with_a_good_checksum_is_seen() {
    let bytes = sample();
    for at in 0..bytes.len() - 4 {
        let mut altered = bytes[..bytes.len() - 4].to_vec();
        altered[at] ^= 1 << (at % 8);
        put_checksum(&mut altered);
        // Bytes 22 to 33 are Argon2's parameters: some changes only cost time here.
        if (22..34).contains(&at) && KeyExport::decode(&altered).is_ok_and(|export| export.head.cost.memory_kib > 4096)
        {
            continue;
        }
        match open(&altered) {
            // What opens the export was altered, which looks like another passphrase.
            Err(KeyError::WrongExportPassphrase) => assert!((22..90).contains(&at), "byte {at}"),
            Err(KeyError::ExportDamaged { .. }) => {}
            Err(other) => panic!("byte {at}: {other}"),
            Ok(_) => panic!("byte {at} was not seen"),
        }
    }
}

/// A record that names another key's tag, sealed by somebody who knows the passphrase.
#[test]
fn a_key_is_checked_against_its_tag() {
    let mut keys = sample_keys();
    keys[1].record.tag = KeyTag([7; 16]);
    let bytes = encode_export(&keys, &passphrase(), CHEAP).unwrap();
    let error = open(&bytes).err().unwrap();
    assert!(matches!(&error, KeyError::ExportDamaged { what } if what.contains("A00001L9")), "{error}");
}

#[test]
fn what_no_writer_writes_is_refused() {
    let mut twice = sample_keys();
    twice[1].record.tag = twice[0].record.tag;
    let mut generated = sample_keys();
    generated[0].record.state = KeyState::Generated;
    let mut destroyed = sample_keys();
    destroyed[0].record.state = KeyState::Destroyed;
    for (keys, field) in
        [(twice, "key that is there twice"), (generated, "state of an exported key"), (destroyed, "state")]
    {
        let bytes = encode_export(&keys, &passphrase(), CHEAP).unwrap();
        let error = KeyExport::decode(&bytes).unwrap_err();
        assert!(matches!(error, FormatError::Field { field: found, .. } if found == field), "{error}");
    }
}

fn with_version(version: &str) -> FormatError {
    let mut bytes = [NAME, version.as_bytes(), &[0; 100]].concat();
    put_checksum(&mut bytes);
    KeyExport::decode(&bytes).unwrap_err()
}

#[test]
fn a_later_version_is_told_from_rubbish() {
    assert!(matches!(with_version("2\n"), FormatError::Version { found: 2, supported: 1, .. }));
    assert!(matches!(with_version("12\n"), FormatError::Version { found: 12, .. }));
    for rubbish in ["x\n", "\n", "99999999999\n", "-1\n"] {
        assert!(matches!(with_version(rubbish), FormatError::Magic { .. }), "{rubbish:?}");
    }
}

/// A count of four thousand million keys with none behind it costs nothing.
#[test]
fn a_count_is_not_believed() {
    let mut bytes = sample();
    bytes.truncate(94);
    bytes[90..].copy_from_slice(&[0xff; 4]);
    put_checksum(&mut bytes);
    assert!(matches!(KeyExport::decode(&bytes), Err(FormatError::Truncated { .. })));
}

proptest! {
    #[test]
    fn any_bytes_are_decoded_or_refused(body in proptest::collection::vec(any::<u8>(), 0..600), keep in 0..94usize) {
        let mut bytes = sample()[..keep.max(22)].to_vec();
        bytes.extend_from_slice(&body);
        put_checksum(&mut bytes);
        let _ = KeyExport::decode(&bytes);
        let _ = KeyExport::decode(&body);
    }
}

fn written(parts: &[&[ExportedKey]]) -> Vec<u8> {
    let export_key = ExportKey::random().unwrap();
    let mut export = ExportWriter::begin(std::io::Cursor::new(Vec::new()), &export_key, &passphrase(), CHEAP).unwrap();
    for part in parts {
        assert_eq!(export.add(&wrap_for_export(part, &export_key).unwrap()).unwrap(), part.len());
    }
    let (file, keys) = export.finish().unwrap();
    assert_eq!(keys, parts.iter().map(|part| part.len()).sum::<usize>());
    file.into_inner()
}

fn read(bytes: &[u8], keys_max: usize) -> Result<Vec<ExportedKey>, KeyError> {
    let mut export = ExportReader::open(std::io::Cursor::new(bytes))?;
    let export_key = export.export_key(&passphrase())?;
    export.check(&export_key)?;
    let mut keys = Vec::new();
    loop {
        let records = export.records(keys_max)?;
        if records.is_empty() {
            assert_eq!(keys.len(), export.keys());
            return Ok(keys);
        }
        let opened = open_records(&records, &export_key)?;
        assert!(opened.len() <= keys_max);
        keys.extend(opened);
    }
}

/// An export had to fit into memory as a whole, on both sides: a cluster of a million keys could not be left.
#[test]
fn what_is_written_in_parts_is_an_export_like_any_other() {
    let keys: Vec<_> = (0..400).flat_map(|_| sample_keys()).collect();
    let bytes = written(&[&keys[..1], &[], &keys[1..500], &keys[500..]]);
    for opened in [open(&bytes).unwrap(), read(&bytes, 1).unwrap(), read(&bytes, 333).unwrap()] {
        assert!(
            opened
                .iter()
                .zip(&keys)
                .all(|(one, other)| one.record == other.record && one.key.expose() == other.key.expose())
        );
        assert_eq!(opened.len(), keys.len());
    }
    assert!(read(&written(&[]), 10).unwrap().is_empty());
}

/// Each bit, and each length: what reads a part at a time believes no more than what reads the whole.
#[test]
fn a_damaged_file_is_refused_in_parts_as_well() {
    let bytes = written(&[&sample_keys()]);
    for (at, bit) in (0..bytes.len()).flat_map(|at| (0..8).map(move |bit| (at, bit))) {
        let mut altered = bytes.clone();
        altered[at] ^= 1 << bit;
        assert!(read(&altered, 10).is_err(), "byte {at}, bit {bit}");
        // With the checksum of what it is now: the seal is what tells. Not what a passphrase costs, which would be
        // paid.
        if (22..34).contains(&at) {
            continue;
        }
        let body = altered.len() - 4;
        let checksum = capstan_format::crc32c(&altered[..body]).to_le_bytes();
        altered[body..].copy_from_slice(&checksum);
        assert!(at >= body || read(&altered, 10).is_err(), "byte {at}, bit {bit}, with its checksum");
    }
    for len in 0..bytes.len() {
        assert!(read(&bytes[..len], 10).is_err(), "{len}");
    }
    let mut unfinished = bytes.clone();
    unfinished[90..94].copy_from_slice(&[0; 4]);
    assert!(read(&unfinished, 10).is_err());
}
