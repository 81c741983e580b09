//! Cartridges that were written once, by version 1 of the format and by version 2 (several keys), are read for ever.
//! Files are only ever added.

use std::fs;
use std::path::{Path, PathBuf};

use capstan_format::{Algorithm, KeyTag};
use capstan_tape::{
    CartridgeDrive, CartridgeSpec, Drive, DriveError, DriveKey, EncryptionState, Flush, KeySlotKind, ReadOutcome,
};

/// The first 16 bytes of HMAC-SHA-256 of `capstan key tag v1` under the key below.
const TAG: KeyTag = KeyTag(*b"\x7e\xf4\x14\x5e\x4e\x5a\xca\xd6\x5f\x5d\x05\xe5\xaa\x28\x53\x79");

/// The same of the second key below.
const SECOND_TAG: KeyTag = KeyTag(*b"\xb8\xee\x5b\xcd\x2b\xd8\x18\xbb\x83\x1d\x50\x60\x45\xae\xcb\xfe");

const VOLUMES: [(&str, Option<Algorithm>); 3] =
    [("plain", None), ("aes_256_gcm", Some(Algorithm::Aes256Gcm)), ("aes_256_ccm", Some(Algorithm::Aes256Ccm))];

fn golden(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/golden/v1_{name}.tape"))
}

fn key(algorithm: Algorithm) -> DriveKey {
    DriveKey { tag: TAG, algorithm, key: std::array::from_fn(|at| at as u8) }
}

fn second_key(algorithm: Algorithm) -> DriveKey {
    DriveKey { tag: SECOND_TAG, algorithm, key: std::array::from_fn(|at| 0xff - at as u8) }
}

/// Blocks of the volume; none stands for a filemark. The last was appended in a second mount.
fn contents() -> Vec<Option<Vec<u8>>> {
    let digits: Vec<u8> = (0..300u32).map(|at| b'0' + (at % 10) as u8).collect();
    vec![Some(b"first block".to_vec()), Some(digits), None, Some(vec![0xff; 17]), None, None, Some(b"last".to_vec())]
}

#[test]
fn volumes_of_version_1_are_read() {
    let directory = tempfile::tempdir().unwrap();
    for (name, algorithm) in VOLUMES {
        let path = directory.path().join(format!("{name}.tape"));
        fs::copy(golden(name), &path).unwrap();
        let mut drive = CartridgeDrive::new("virtual-0", path, KeySlotKind::Fitted);
        let medium = drive.load().unwrap();
        assert_eq!(medium.volser.unwrap().as_str(), "A00001L9");
        assert_eq!((medium.capacity_bytes, medium.write_protected), (1 << 20, false));
        let encryption =
            algorithm.map_or(EncryptionState::Plain, |algorithm| EncryptionState::Encrypted { algorithm, tag: TAG });
        assert_eq!(medium.encryption, encryption);
        if let Some(algorithm) = algorithm {
            assert!(matches!(drive.read_block(&mut [0; 400]), Err(DriveError::NoKey { .. })));
            drive.set_key(Some(key(algorithm))).unwrap();
        }
        let mut buffer = [0; 400];
        for expected in contents() {
            match (drive.read_block(&mut buffer).unwrap(), expected) {
                (ReadOutcome::Block(len), Some(block)) => assert_eq!(buffer[..len], block),
                (ReadOutcome::Filemark, None) => {}
                (found, expected) => panic!("{name}: {found:?} where {expected:?} was written"),
            }
        }
        assert_eq!(drive.read_block(&mut buffer).unwrap(), ReadOutcome::EndOfData);
    }
}

/// One block under the first key, one under the second, one under the first again; a filemark behind each.
const SEVERAL: [(bool, &[u8]); 3] = [(false, b"first key"), (true, b"second key"), (false, b"first key again")];

#[test]
fn volumes_of_version_2_are_read() {
    let directory = tempfile::tempdir().unwrap();
    for algorithm in [Algorithm::Aes256Gcm, Algorithm::Aes256Ccm] {
        let path = directory.path().join(format!("{}.tape", algorithm.name()));
        fs::copy(golden_v2(algorithm), &path).unwrap();
        let mut drive = CartridgeDrive::new("virtual-0", path, KeySlotKind::Fitted);
        let encryption = drive.load().unwrap().encryption;
        assert_eq!(encryption, EncryptionState::Encrypted { algorithm, tag: TAG });
        let mut buffer = [0; 400];
        for (lbn, (second, block)) in (0..).step_by(2).zip(SEVERAL) {
            let needed = if second { SECOND_TAG } else { TAG };
            drive.set_key(None).unwrap();
            let without = drive.read_block(&mut buffer);
            assert!(matches!(without, Err(DriveError::NoKey { tag, .. }) if tag == needed), "{lbn}: {without:?}");
            drive.set_key(Some(if second { second_key(algorithm) } else { key(algorithm) })).unwrap();
            assert_eq!(drive.read_block(&mut buffer).unwrap(), ReadOutcome::Block(block.len()));
            assert_eq!(&buffer[..block.len()], block);
            assert_eq!(drive.read_block(&mut buffer).unwrap(), ReadOutcome::Filemark);
        }
        assert_eq!(drive.read_block(&mut buffer).unwrap(), ReadOutcome::EndOfData);
    }
}

fn golden_v2(algorithm: Algorithm) -> PathBuf {
    let name = match algorithm {
        Algorithm::Aes256Gcm => "gcm",
        Algorithm::Aes256Ccm => "ccm",
    };
    Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/golden/v2_aes_256_{name}.tape"))
}

#[test]
#[ignore = "writes the volumes of version 2; they are never written again"]
fn write_golden_volumes_of_several_keys() {
    for algorithm in [Algorithm::Aes256Gcm, Algorithm::Aes256Ccm] {
        let path = golden_v2(algorithm);
        assert!(!path.exists(), "{} exists and is never written again", path.display());
        blank(&path);
        let mut drive = CartridgeDrive::new("virtual-0", &path, KeySlotKind::Fitted);
        for (second, block) in SEVERAL {
            drive.load().unwrap();
            drive.space_to_end_of_data().unwrap();
            drive.set_key(Some(if second { second_key(algorithm) } else { key(algorithm) })).unwrap();
            drive.write_block(block).unwrap();
            drive.write_filemarks(1, Flush::Buffered).unwrap();
            drive.unload().unwrap();
        }
        fs::remove_file(path.with_extension("index")).unwrap();
    }
}

fn blank(path: &Path) {
    let spec = CartridgeSpec {
        volser: "A00001L9".parse().unwrap(),
        capacity_bytes: 1 << 20,
        early_warning_bytes: 1 << 16,
        generation: "LTO-9".to_owned(),
    };
    spec.create(path).unwrap();
}

#[test]
#[ignore = "writes the volumes of a new version; those of an old one are never written again"]
fn write_golden_volumes() {
    for (name, algorithm) in VOLUMES {
        let path = golden(name);
        assert!(!path.exists(), "{} exists and is never written again", path.display());
        blank(&path);
        let mut drive = CartridgeDrive::new("virtual-0", &path, KeySlotKind::Fitted);
        let contents = contents();
        let (last, first) = contents.split_last().unwrap();
        for mount in [first, std::slice::from_ref(last)] {
            drive.load().unwrap();
            drive.space_to_end_of_data().unwrap();
            drive.set_key(algorithm.map(key)).unwrap();
            for block in mount {
                match block {
                    Some(block) => drive.write_block(block).unwrap(),
                    None => drive.write_filemarks(1, Flush::Buffered).unwrap(),
                };
            }
            drive.unload().unwrap();
        }
        fs::remove_file(path.with_extension("index")).unwrap();
    }
}
