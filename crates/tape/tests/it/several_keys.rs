//! A cartridge whose blocks have several keys: what its memory says, and when.

use std::collections::HashSet;
use std::fs;
use std::path::{Path, PathBuf};

use capstan_format::{Algorithm, KeyTag};
use capstan_tape::{CartridgeDrive, CartridgeSpec, Drive, DriveError, DriveKey, EncryptionState, Flush, KeySlotKind};

const RECORDS_AT: usize = 4096;
const HEADER_LEN: usize = 36;
/// Keys that a cartridge's memory has room for.
const KEYS_MAX: u8 = 24;

fn key(number: u8) -> Option<DriveKey> {
    Some(DriveKey { tag: KeyTag([number; 16]), algorithm: Algorithm::Aes256Gcm, key: [number ^ 0x5a; 32] })
}

fn cartridge(directory: &Path) -> (PathBuf, CartridgeDrive) {
    let path = directory.join("A00001.tape");
    let spec = CartridgeSpec {
        volser: "A00001".parse().unwrap(),
        capacity_bytes: 1 << 20,
        early_warning_bytes: 1 << 16,
        generation: "virtual".to_owned(),
    };
    spec.create(&path).unwrap();
    let mut drive = CartridgeDrive::new("virtual-0", &path, KeySlotKind::Fitted);
    drive.load().unwrap();
    (path, drive)
}

fn append(drive: &mut CartridgeDrive, number: u8) -> Result<(), DriveError> {
    drive.set_key(key(number))?;
    drive.write_block(&[number; 100])?;
    drive.write_filemarks(0, Flush::Synchronous).map(drop)
}

/// Version, and number of further keys, in both copies of the memory.
fn memory(path: &Path) -> [(u8, u8); 2] {
    let bytes = fs::read(path).unwrap();
    [0, 2048].map(|at| (bytes[at + 8], bytes[at + 108]))
}

/// The memory must name a key before a block under it can be read; and a volume with one key is what older programs
/// read.
#[test]
fn a_memory_names_a_key_before_its_first_block_and_is_of_version_1_until_then() {
    let directory = tempfile::tempdir().unwrap();
    let (path, mut drive) = cartridge(directory.path());
    append(&mut drive, 1).unwrap();
    assert_eq!(memory(&path), [(1, 0); 2]);
    drive.set_key(key(2)).unwrap();
    drive.write_filemarks(1, Flush::Synchronous).unwrap();
    assert_eq!(memory(&path), [(1, 0); 2], "a filemark has no key");
    drive.write_block(&[2; 100]).unwrap();
    // The block itself is in the drive's buffer still; not so what names its key.
    assert_eq!(memory(&path), [(2, 1); 2]);
    append(&mut drive, 1).unwrap();
    append(&mut drive, 2).unwrap();
    assert_eq!(memory(&path), [(2, 1); 2], "keys that are named are not named again");
    let bytes = fs::read(&path).unwrap();
    let step = HEADER_LEN + 36 + 100;
    let kinds = [RECORDS_AT, RECORDS_AT + step + HEADER_LEN, RECORDS_AT + 2 * step + HEADER_LEN]
        .map(|at| bytes[at + 12..at + 16].to_vec());
    assert_eq!(kinds, [[2, 0, 0, 0], [2, 1, 0, 0], [2, 0, 0, 0]]);

    drive.locate(0).unwrap();
    append(&mut drive, 3).unwrap();
    assert_eq!(memory(&path), [(1, 0); 2], "another life has its own keys");
    let encryption = EncryptionState::Encrypted { algorithm: Algorithm::Aes256Gcm, tag: KeyTag([3; 16]) };
    assert_eq!(drive.medium().unwrap().encryption, encryption);
}

#[test]
fn a_full_list_of_keys_is_told_and_nothing_is_written() {
    let directory = tempfile::tempdir().unwrap();
    let (path, mut drive) = cartridge(directory.path());
    (0..KEYS_MAX).for_each(|number| append(&mut drive, number).unwrap());
    let full = append(&mut drive, KEYS_MAX).unwrap_err();
    assert!(matches!(full, DriveError::KeyListFull { keys: 24, .. }), "{full:?}");
    assert!(full.to_string().contains("another volume"), "{full}");
    assert_eq!(drive.position().unwrap().lbn, u64::from(KEYS_MAX));
    append(&mut drive, 7).unwrap();
    drive.unload().unwrap();

    let mut drive = CartridgeDrive::new("virtual-0", &path, KeySlotKind::Fitted);
    drive.load().unwrap();
    for number in (0..KEYS_MAX).chain([7]) {
        drive.set_key(key(number)).unwrap();
        let mut block = [0; 100];
        drive.read_block(&mut block).unwrap();
        assert_eq!(block, [number; 100]);
    }
}

/// A nonce that repeats under one key reveals plaintext: a key that comes back into the slot of one mount gets another
/// mount key.
#[test]
fn a_key_that_comes_back_draws_another_mount_salt() {
    let directory = tempfile::tempdir().unwrap();
    let (path, mut drive) = cartridge(directory.path());
    let turns = 40;
    for turn in 0..turns {
        append(&mut drive, turn % 2).unwrap();
    }
    let bytes = fs::read(&path).unwrap();
    let prefixes: HashSet<_> = bytes[RECORDS_AT..]
        .chunks_exact(HEADER_LEN + 36 + 100)
        .map(|record| record[HEADER_LEN..HEADER_LEN + 12].to_vec())
        .collect();
    assert_eq!(prefixes.len(), usize::from(turns), "each turn has its own salt");
}

/// Whoever can write to the file and has no key can only make blocks unreadable.
#[test]
fn a_block_under_another_keys_number_is_not_read() {
    let directory = tempfile::tempdir().unwrap();
    let (path, mut drive) = cartridge(directory.path());
    append(&mut drive, 1).unwrap();
    append(&mut drive, 2).unwrap();
    drive.unload().unwrap();
    let whole = fs::read(&path).unwrap();
    for (number, loaded) in [(1, 2), (9, 1), (255, 1)] {
        let mut bytes = whole.clone();
        bytes[RECORDS_AT + 13] = number;
        let mut checked = bytes[RECORDS_AT..RECORDS_AT + 32].to_vec();
        checked.extend_from_slice(&(RECORDS_AT as u64).to_le_bytes());
        let crc = capstan_format::crc32c(&checked);
        bytes[RECORDS_AT + 32..RECORDS_AT + 36].copy_from_slice(&crc.to_le_bytes());
        fs::write(&path, &bytes).unwrap();
        let mut drive = CartridgeDrive::new("virtual-0", &path, KeySlotKind::Fitted);
        drive.load().unwrap();
        drive.set_key(key(loaded)).unwrap();
        let mut block = [0; 100];
        let read = drive.read_block(&mut block);
        let refused = matches!(read, Err(DriveError::Integrity { lbn: 0 } | DriveError::ReadFailed { lbn: 0, .. }));
        assert!(refused && block == [0; 100], "key number {number}: {read:?}");
        assert_eq!(drive.position().unwrap().lbn, 1, "it is passed over");
    }
}
