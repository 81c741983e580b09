//! A drive that fetches keys: reads take what they need, writes only what the caller loaded.
//!
//! The random test prints its seed; `CAPSTAN_SEED=n` runs that one again.

use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use capstan_format::{Algorithm, KeyTag};
use capstan_tape::{
    CartridgeDrive, CartridgeSpec, Drive, DriveError, DriveKey, Flush, KeySlotKind, Keyed, ReadOutcome,
};
use proptest::prelude::*;
use proptest::test_runner::{Config, RngAlgorithm, RngSeed, TestRunner};

fn key(number: u8) -> DriveKey {
    DriveKey { tag: KeyTag([number; 16]), algorithm: Algorithm::Aes256Gcm, key: [number ^ 0x5a; 32] }
}

fn drive_at(path: &Path) -> CartridgeDrive {
    CartridgeDrive::new("virtual-0", path, KeySlotKind::Fitted)
}

fn cartridge(directory: &Path) -> PathBuf {
    let path = directory.join("A00001.tape");
    let spec = CartridgeSpec {
        volser: "A00001".parse().unwrap(),
        capacity_bytes: 1 << 20,
        early_warning_bytes: 1 << 16,
        generation: "virtual".to_owned(),
    };
    spec.create(&path).unwrap();
    path
}

/// Keys that may be had, by number; and which were asked for.
#[derive(Clone, Default)]
struct Store(Arc<Mutex<(HashSet<u8>, Vec<u8>)>>);

impl Store {
    fn of(numbers: &[u8]) -> Self {
        Self(Arc::new(Mutex::new((numbers.iter().copied().collect(), Vec::new()))))
    }

    fn source(&self) -> impl FnMut(&KeyTag) -> Result<DriveKey, String> + Send + use<> {
        let store = self.clone();
        move |tag| {
            let number = tag.0[0];
            let (have, asked) = &mut *store.0.lock().unwrap();
            asked.push(number);
            if have.contains(&number) { Ok(key(number)) } else { Err(format!("key {number} was destroyed")) }
        }
    }

    fn asked(&self) -> Vec<u8> {
        std::mem::take(&mut self.0.lock().unwrap().1)
    }

    fn destroy(&self, number: u8) {
        self.0.lock().unwrap().0.remove(&number);
    }
}

/// Blocks under these keys, each holding its key's number.
fn written(directory: &Path, keys: &[u8]) -> PathBuf {
    let path = cartridge(directory);
    let mut drive = drive_at(&path);
    drive.load().unwrap();
    for number in keys {
        drive.set_key(Some(key(*number))).unwrap();
        drive.write_block(&[*number; 50]).unwrap();
    }
    drive.unload().unwrap();
    path
}

/// With which keys the blocks of a cartridge are encrypted: told by a drive that has none.
fn keys_of(path: &Path) -> Vec<u8> {
    let mut drive = drive_at(path);
    drive.load().unwrap();
    let mut keys = Vec::new();
    loop {
        match drive.read_block(&mut []) {
            Err(DriveError::NoKey { lbn, tag, .. }) => {
                keys.push(tag.0[0]);
                drive.locate(lbn + 1).unwrap();
            }
            Ok(ReadOutcome::Filemark) => {}
            Ok(ReadOutcome::EndOfData) => return keys,
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn a_volume_of_several_keys_is_read_like_one_of_one() {
    let directory = tempfile::tempdir().unwrap();
    let path = written(directory.path(), &[1, 1, 2, 2, 3, 1]);
    let store = Store::of(&[1, 2, 3]);
    let mut drive = Keyed::new(drive_at(&path), store.source());
    drive.load().unwrap();
    for number in [1, 1, 2, 2, 3, 1] {
        let mut block = [0; 50];
        assert_eq!(drive.read_block(&mut block).unwrap(), ReadOutcome::Block(50));
        assert_eq!(block, [number; 50]);
    }
    assert_eq!(drive.read_block(&mut [0; 50]).unwrap(), ReadOutcome::EndOfData);
    assert_eq!(store.asked(), [1, 2, 3, 1], "asked once where the key changes");
}

#[test]
fn a_key_that_cannot_be_had_loses_its_blocks_and_no_others() {
    let directory = tempfile::tempdir().unwrap();
    let path = written(directory.path(), &[1, 2, 1]);
    let store = Store::of(&[1]);
    let mut drive = Keyed::new(drive_at(&path), store.source());
    drive.load().unwrap();
    let mut block = [0; 50];
    drive.read_block(&mut block).unwrap();
    let lost = drive.read_block(&mut block).unwrap_err();
    let DriveError::KeyUnavailable { lbn: 1, tag, source } = &lost else { panic!("{lost:?}") };
    assert_eq!((tag.0[0], source.to_string().as_str()), (2, "key 2 was destroyed"));
    assert_eq!(drive.position().unwrap().lbn, 1, "it is not passed over");
    drive.locate(2).unwrap();
    drive.read_block(&mut block).unwrap();
    assert_eq!(block, [1; 50]);
}

/// The one thing that must never happen: a block written with a key that was loaded for reading.
#[test]
fn what_is_written_has_the_callers_key_whatever_was_read() {
    let directory = tempfile::tempdir().unwrap();
    let path = written(directory.path(), &[1]);
    let store = Store::of(&[1, 2]);
    let mut drive = Keyed::new(drive_at(&path), store.source());
    drive.load().unwrap();
    drive.set_key(Some(key(2))).unwrap();
    for _ in 0..2 {
        drive.locate(0).unwrap();
        drive.read_block(&mut [0; 50]).unwrap();
        drive.space_to_end_of_data().unwrap();
        drive.write_block(&[2; 50]).unwrap();
    }
    // Without its key nothing is written, not even a filemark; nor with the one that happens to be there.
    drive.locate(0).unwrap();
    drive.read_block(&mut [0; 50]).unwrap();
    drive.space_to_end_of_data().unwrap();
    store.destroy(2);
    for refused in [drive.write_block(&[2; 50]), drive.write_filemarks(1, Flush::Buffered)] {
        let refused = refused.unwrap_err();
        assert!(matches!(refused, DriveError::KeyUnavailable { lbn: 3, .. }), "{refused:?}");
    }
    drive.write_filemarks(0, Flush::Synchronous).unwrap();
    // Without any key of the caller's, there is none to write with.
    drive.set_key(None).unwrap();
    drive.locate(0).unwrap();
    drive.read_block(&mut [0; 50]).unwrap();
    drive.space_to_end_of_data().unwrap();
    let plain = drive.write_block(&[0; 50]).unwrap_err();
    assert!(matches!(plain, DriveError::MixedEncryption { .. }), "{plain:?}");
    drive.unload().unwrap();
    assert_eq!(keys_of(&path), [1, 2, 2]);
}

#[test]
fn another_key_than_the_one_asked_for_is_not_loaded() {
    let directory = tempfile::tempdir().unwrap();
    let path = written(directory.path(), &[1]);
    let mut drive = Keyed::new(drive_at(&path), |_: &KeyTag| Ok::<_, String>(key(2)));
    drive.load().unwrap();
    let error = drive.read_block(&mut [0; 50]).unwrap_err();
    assert!(matches!(error, DriveError::KeyUnavailable { lbn: 0, .. }), "{error:?}");
}

#[derive(Debug, Clone)]
enum Step {
    Load(u8),
    Read(u8),
    Write,
    Filemark,
    Destroy(u8),
    Reload,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => (0..4u8).prop_map(Step::Load),
        8 => any::<u8>().prop_map(Step::Read),
        8 => Just(Step::Write),
        2 => Just(Step::Filemark),
        1 => (0..4u8).prop_map(Step::Destroy),
        1 => Just(Step::Reload),
    ]
}

/// What was done, checked at the end by a drive that has no keys.
fn check(steps: Vec<Step>) {
    let directory = tempfile::tempdir().unwrap();
    let path = written(directory.path(), &[0]);
    let store = Store::of(&[0, 1, 2, 3]);
    let mut drive = Keyed::new(drive_at(&path), store.source());
    drive.load().unwrap();
    let (mut expected, mut loaded, mut end) = (vec![0], None, 1);
    for step in steps {
        match step {
            Step::Load(number) => {
                drive.set_key(Some(key(number))).unwrap();
                loaded = Some(number);
            }
            Step::Read(part) => {
                drive.locate(u64::from(part) * end / 256).unwrap();
                let _ = drive.read_block(&mut [0; 50]);
            }
            Step::Write => {
                drive.space_to_end_of_data().unwrap();
                if drive.write_block(&[9; 50]).is_ok() {
                    expected.push(loaded.expect("something was written without a key"));
                    end += 1;
                }
            }
            Step::Filemark => {
                drive.space_to_end_of_data().unwrap();
                end += u64::from(drive.write_filemarks(1, Flush::Buffered).is_ok());
            }
            Step::Destroy(number) => store.destroy(number),
            Step::Reload => {
                drive.unload().unwrap();
                drive.load().unwrap();
                loaded = None;
            }
        }
    }
    drive.unload().unwrap();
    assert_eq!(keys_of(&path), expected);
}

/// Keys are loaded, fetched and destroyed in any order: a block that was taken has the key that the caller loaded last.
#[test]
fn no_order_of_reads_changes_the_key_of_a_write() {
    let given = std::env::var("CAPSTAN_SEED").ok().map(|seed| seed.parse().unwrap());
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_secs();
    let seed = given.unwrap_or(now);
    println!("CAPSTAN_SEED={seed}");
    let config = Config {
        cases: 100,
        rng_seed: RngSeed::Fixed(seed),
        rng_algorithm: RngAlgorithm::ChaCha,
        failure_persistence: None,
        ..Config::default()
    };
    let outcome = TestRunner::new(config).run(&proptest::collection::vec(step(), 1..60), |steps| {
        check(steps);
        Ok(())
    });
    if let Err(error) = outcome {
        panic!("{error}\nreplay with CAPSTAN_SEED={seed}");
    }
}
