//! A drive that fetches keys itself, with a sealed store: what a host is told when a key is destroyed while its volume is in the drive.
#![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use capstan_keys::{Argon2Cost, SealedStore, Unlock};
use capstan_tape::scsi::{Data, Status, Transport};
use capstan_vtl::{DeviceServer, KeyAgent, LAYOUT_FILE, Library, LocalTransport, StoreAgent};

const LAYOUT: &str = "[[drive]]\nmodel = \"LTO-9\"\nencryption = \"agent\"\n\
                      [[cartridge]]\nbarcode = \"A00001L9\"\ncapacity_mib = 16\n";
const BLOCK: &[u8; 8] = b"01234567";
const REWIND: [u8; 6] = [0x01, 0, 0, 0, 0, 0];
const READ: [u8; 6] = [0x08, 0, 0, 0, BLOCK.len() as u8, 0];
const WRITE: [u8; 6] = [0x0a, 0, 0, 0, BLOCK.len() as u8, 0];
const FILEMARK: [u8; 6] = [0x10, 0, 0, 0, 1, 0];
const OVER_FILEMARK: [u8; 6] = [0x11, 1, 0, 0, 1, 0];
const TO_END_OF_DATA: [u8; 6] = [0x11, 3, 0, 0, 0, 0];
/// EXTERNAL DATA ENCRYPTION KEY NOT FOUND.
const KEY_NOT_FOUND: Result<(), (u8, u8, u8)> = Err((7, 0x74, 0x63));

/// A host at a drive with a cartridge, and the operator's way to its keys.
struct Bench {
    drive: LocalTransport,
    folder: tempfile::TempDir,
}

impl Bench {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join(LAYOUT_FILE), LAYOUT).unwrap();
        let cost = Argon2Cost { memory_kib: 8, iterations: 1, lanes: 1 };
        let path = folder.path().join("keys.sealed");
        SealedStore::create(&path, &unlock(), cost).unwrap();
        let agent: Arc<dyn KeyAgent> = Arc::new(StoreAgent::open(&path, &unlock()).unwrap());
        let library: Arc<dyn DeviceServer> = Arc::new(Library::open(folder.path(), Some(&agent)).unwrap());
        let mut bench = Self { drive: LocalTransport::new(Arc::clone(&library), "a host", 1), folder };
        // From slot 1000 to drive 500.
        let mut robot = LocalTransport::new(library, "a host", 0);
        let load = [0xa5, 0, 0, 1, 3, 0xe8, 1, 0xf4, 0, 0, 0, 0];
        while robot.execute(&load, Data::None, Duration::MAX).unwrap().status != Status::Good {}
        while bench.asks(&[0; 6]).is_err() {}
        bench
    }

    fn asks(&mut self, cdb: &[u8]) -> Result<(), (u8, u8, u8)> {
        self.sends(cdb, Data::None)
    }

    fn writes(&mut self) -> Result<(), (u8, u8, u8)> {
        self.sends(&WRITE, Data::Out(BLOCK))
    }

    fn reads(&mut self) -> Result<(), (u8, u8, u8)> {
        let mut block = [0; BLOCK.len()];
        self.sends(&READ, Data::In(&mut block))?;
        assert_eq!(&block, BLOCK);
        Ok(())
    }

    /// Sends a command; the sense data, if it fails.
    fn sends(&mut self, cdb: &[u8], data: Data<'_>) -> Result<(), (u8, u8, u8)> {
        let reply = self.drive.execute(cdb, data, Duration::MAX).unwrap();
        if reply.status == Status::Good {
            return Ok(());
        }
        let sense = reply.sense.unwrap().sense;
        Err((sense.key, sense.asc, sense.ascq))
    }

    fn path(&self) -> PathBuf {
        self.folder.path().join("keys.sealed")
    }

    /// As `capstan keys destroy` does, in another process.
    fn destroys_the_keys(&self) {
        let mut store = SealedStore::open(&self.path(), &unlock()).unwrap();
        for record in store.list().unwrap() {
            store.destroy(&record.tag, 1).unwrap();
        }
    }
}

fn unlock() -> Unlock {
    Unlock::passphrase(String::from("a passphrase").into())
}

/// The host knows nothing of it: it appends with the key that was put in force, and reads what either encrypted.
#[test]
fn a_volume_that_went_on_under_another_key_is_read_under_both() {
    let mut bench = Bench::new();
    bench.writes().unwrap();
    bench.asks(&FILEMARK).unwrap();
    let mut store = SealedStore::open(&bench.path(), &unlock()).unwrap();
    let first = store.list().unwrap().remove(0);
    let second = store.key_for_new_volume(&first.volser, first.algorithm, 1).unwrap().tag();
    store.activate(&first.volser, &second, 1).unwrap();
    bench.asks(&REWIND).unwrap();
    bench.reads().unwrap();
    bench.asks(&TO_END_OF_DATA).unwrap();
    bench.writes().unwrap();
    bench.asks(&FILEMARK).unwrap();
    for _ in 0..2 {
        bench.asks(&REWIND).unwrap();
        bench.reads().unwrap();
        bench.asks(&OVER_FILEMARK).unwrap();
        bench.reads().unwrap();
    }
    // One of the two is destroyed: the other's block is read still.
    store.destroy(&first.tag, 2).unwrap();
    bench.asks(&REWIND).unwrap();
    assert_eq!(bench.reads(), KEY_NOT_FOUND);
    bench.asks(&OVER_FILEMARK).unwrap();
    bench.reads().unwrap();
    store.destroy(&second, 3).unwrap();
    bench.asks(&REWIND).unwrap();
    bench.asks(&OVER_FILEMARK).unwrap();
    assert_eq!(bench.reads(), KEY_NOT_FOUND, "the second block had the second key");
}

#[test]
fn what_was_written_under_a_key_that_is_gone_is_never_confirmed() {
    let mut bench = Bench::new();
    bench.writes().unwrap();
    bench.asks(&FILEMARK).unwrap();
    bench.destroys_the_keys();
    let _ = bench.writes();
    assert_eq!(bench.asks(&FILEMARK), KEY_NOT_FOUND, "a backup would be reported as done, and could never be read");
    assert_eq!(bench.writes(), KEY_NOT_FOUND);
    bench.asks(&REWIND).unwrap();
    bench.asks(&TO_END_OF_DATA).unwrap();
    assert_eq!(bench.writes(), KEY_NOT_FOUND);
}

#[test]
fn a_new_key_that_is_destroyed_before_the_first_filemark_is_missed_there() {
    let mut bench = Bench::new();
    bench.writes().unwrap();
    bench.destroys_the_keys();
    assert_eq!(bench.asks(&FILEMARK), KEY_NOT_FOUND);
    bench.asks(&REWIND).unwrap();
    bench.writes().unwrap();
    bench.asks(&FILEMARK).unwrap();
}

#[test]
fn a_rewind_flushes_and_tells_too_and_then_lets_the_volume_be_written_anew() {
    let mut bench = Bench::new();
    bench.writes().unwrap();
    bench.asks(&FILEMARK).unwrap();
    bench.writes().unwrap();
    bench.destroys_the_keys();
    assert_eq!(bench.asks(&REWIND), KEY_NOT_FOUND);
    bench.asks(&REWIND).unwrap();
    bench.writes().unwrap();
    bench.asks(&FILEMARK).unwrap();
}

/// Amanda leaves the volumes it has read in their drives: a restore right behind `keys destroy` came back whole.
#[test]
fn a_volume_whose_key_is_gone_is_not_read_again_though_it_stays_in_the_drive() {
    let mut bench = Bench::new();
    bench.writes().unwrap();
    bench.asks(&FILEMARK).unwrap();
    bench.asks(&REWIND).unwrap();
    bench.reads().unwrap();
    bench.destroys_the_keys();
    bench.asks(&REWIND).unwrap();
    assert_eq!(bench.reads(), KEY_NOT_FOUND);
}

#[test]
fn a_volume_whose_key_is_gone_is_written_anew_under_another() {
    let mut bench = Bench::new();
    bench.writes().unwrap();
    bench.asks(&FILEMARK).unwrap();
    bench.destroys_the_keys();
    bench.asks(&REWIND).unwrap();
    assert_eq!(bench.reads(), KEY_NOT_FOUND);
    bench.writes().unwrap();
    bench.asks(&FILEMARK).unwrap();
    bench.asks(&REWIND).unwrap();
    bench.reads().unwrap();
}

#[test]
fn a_volume_may_begin_with_a_filemark() {
    let mut bench = Bench::new();
    bench.asks(&FILEMARK).unwrap();
    bench.writes().unwrap();
    bench.asks(&FILEMARK).unwrap();
    bench.asks(&REWIND).unwrap();
    assert_eq!(bench.reads(), Err((0, 0, 1)), "a filemark");
    bench.reads().unwrap();
}
