//! A drive that fetches keys itself, with a sealed store: what a host is told when a key is destroyed while its volume
//! is in the drive.

use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use capstan_format::{Algorithm, KeyTag, Volser};
use capstan_keys::{Agent, Argon2Cost, KeyGroup, KeyState, Name, Period, Policy, SealedStore, Unlock};
use capstan_tape::scsi::{DataPhase, ScsiStatus, Transport};
use capstan_vtl::{
    DeviceServer, KeyAgent, LAYOUT_FILE, LocalTransport, Nexus, ProviderAgent, ServedLibrary, TaskFunction,
};

const LAYOUT: &str = "[[drive]]\nmodel = \"LTO-9\"\nencryption = \"agent\"\n\
                      [[cartridge]]\nbarcode = \"A00001L9\"\ncapacity_mib = 16\n";
/// The drive's serial number, made from its number.
const SERIAL: &str = "CPT0000001";
const BLOCK: &[u8; 8] = b"01234567";
const REWIND: [u8; 6] = [0x01, 0, 0, 0, 0, 0];
const READ: [u8; 6] = [0x08, 0, 0, 0, BLOCK.len() as u8, 0];
const WRITE: [u8; 6] = [0x0a, 0, 0, 0, BLOCK.len() as u8, 0];
const FILEMARK: [u8; 6] = [0x10, 0, 0, 0, 1, 0];
const OVER_FILEMARK: [u8; 6] = [0x11, 1, 0, 0, 1, 0];
const TO_END_OF_DATA: [u8; 6] = [0x11, 3, 0, 0, 0, 0];
/// EXTERNAL DATA ENCRYPTION KEY NOT FOUND.
const KEY_NOT_FOUND: Result<(), (u8, u8, u8)> = Err((7, 0x74, 0x63));

/// EXTERNAL DATA ENCRYPTION REQUEST NOT AUTHORIZED.
const NOT_AUTHORIZED: Result<(), (u8, u8, u8)> = Err((7, 0x74, 0x64));

/// A host at a drive with a cartridge, and the operator's way to its keys.
struct Bench {
    library: Arc<dyn DeviceServer>,
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
        let agent: Arc<dyn KeyAgent> =
            Arc::new(ProviderAgent::new(Mutex::new(SealedStore::open(&path, &unlock()).unwrap())));
        let library: Arc<dyn DeviceServer> = Arc::new(ServedLibrary::open(folder.path(), Some(&agent)).unwrap());
        let drive = LocalTransport::new(Arc::clone(&library), "a host", 1);
        let mut bench = Self { library: Arc::clone(&library), drive, folder };
        // From slot 1000 to drive 500.
        let mut robot = LocalTransport::new(library, "a host", 0);
        let load = [0xa5, 0, 0, 1, 3, 0xe8, 1, 0xf4, 0, 0, 0, 0];
        while robot.execute(&load, DataPhase::None, Duration::MAX).unwrap().status != ScsiStatus::Good {}
        while bench.asks(&[0; 6]).is_err() {}
        bench
    }

    fn asks(&mut self, cdb: &[u8]) -> Result<(), (u8, u8, u8)> {
        self.sends(cdb, DataPhase::None)
    }

    fn writes(&mut self) -> Result<(), (u8, u8, u8)> {
        self.sends(&WRITE, DataPhase::Out(BLOCK))
    }

    fn reads(&mut self) -> Result<(), (u8, u8, u8)> {
        let mut block = [0; BLOCK.len()];
        self.sends(&READ, DataPhase::In(&mut block))?;
        assert_eq!(&block, BLOCK);
        Ok(())
    }

    /// Sends a command; the sense data, if it fails.
    fn sends(&mut self, cdb: &[u8], data: DataPhase<'_>) -> Result<(), (u8, u8, u8)> {
        let reply = self.drive.execute(cdb, data, Duration::MAX).unwrap();
        if reply.status == ScsiStatus::Good {
            return Ok(());
        }
        let sense = reply.sense.unwrap().sense;
        Err((sense.key, sense.asc, sense.ascq))
    }

    fn path(&self) -> PathBuf {
        self.folder.path().join("keys.sealed")
    }

    /// Each key's tag and state, in the order of their issue.
    fn keys(&self) -> Vec<(KeyTag, KeyState)> {
        let store = SealedStore::open(&self.path(), &unlock()).unwrap();
        store.list().unwrap().into_iter().map(|record| (record.tag, record.state)).collect()
    }

    /// As a bus reset, or a loss of the drive's power.
    fn resets(&mut self) {
        let nexus = Nexus { initiator: "another host".to_owned(), session: 2 };
        self.library.manage(&nexus, 1, TaskFunction::LogicalUnitReset);
        while self.asks(&[0; 6]).is_err() {}
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

/// The host knows nothing of it: behind the encryption period it appends with a new key, and reads what either
/// encrypted.
#[test]
fn a_volume_that_went_on_under_another_key_is_read_under_both() {
    let mut bench = Bench::new();
    let mut store = SealedStore::open(&bench.path(), &unlock()).unwrap();
    let brief: Name = "brief".parse().unwrap();
    let policy = Policy { encryption_period: Period::Seconds(1), ..Policy::unlimited(brief.clone()) };
    store.put_policy(policy).unwrap();
    store.put_group(KeyGroup { name: brief.clone(), policy: brief.clone() }).unwrap();
    let drive = SERIAL.parse().unwrap();
    store.put_agent(Agent { name: drive, groups: [brief.clone()].into(), default_group: brief.clone() }).unwrap();
    bench.writes().unwrap();
    bench.asks(&FILEMARK).unwrap();
    let first = store.list().unwrap().remove(0);
    assert_eq!(store.realm().unwrap().issued(&first).group, brief);
    std::thread::sleep(Duration::from_secs(1));
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
    let second = store.list().unwrap().pop().unwrap().tag;
    assert_ne!(first.tag, second);
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

/// The key stayed `ready`, as if it had never been used, until the first flush: whoever cleared such keys out lost the
/// volume.
#[test]
fn that_a_key_is_used_is_on_record_before_its_first_block_and_a_reset_changes_nothing() {
    let mut bench = Bench::new();
    bench.writes().unwrap();
    let [(tag, KeyState::ProtectAndProcess)] = bench.keys()[..] else { panic!("{:?}", bench.keys()) };
    bench.resets();
    bench.reads().unwrap();
    bench.asks(&TO_END_OF_DATA).unwrap();
    bench.writes().unwrap();
    bench.asks(&FILEMARK).unwrap();
    assert_eq!(bench.keys(), [(tag, KeyState::ProtectAndProcess)], "what is appended has the same key");
}

/// A store that cannot take the record gets no block on the cartridge, and what lies there stays.
#[test]
fn without_a_record_of_its_key_no_block_is_written() {
    let mut bench = Bench::new();
    bench.writes().unwrap();
    bench.asks(&FILEMARK).unwrap();
    bench.asks(&REWIND).unwrap();
    let hidden = bench.folder.path().join("hidden");
    std::fs::rename(bench.path(), &hidden).unwrap();
    assert_eq!(bench.writes(), Err((7, 0x74, 0x61)));
    std::fs::rename(&hidden, bench.path()).unwrap();
    bench.asks(&REWIND).unwrap();
    bench.reads().unwrap();
}

/// A key that reads and encrypts no more was used for appending all the same.
#[test]
fn a_volume_whose_key_is_retired_is_read_and_goes_on_under_one_of_its_own() {
    let mut bench = Bench::new();
    bench.writes().unwrap();
    bench.asks(&FILEMARK).unwrap();
    // The volume was begun anew elsewhere, with this store, and then came back from a copy.
    let volser = Volser::new("A00001L9").unwrap();
    let mut store = SealedStore::open(&bench.path(), &unlock()).unwrap();
    let elsewhere = Agent::anything("CPT0000009".parse().unwrap());
    let newer = store.key_for_new_volume(&volser, &elsewhere, &Name::default(), Algorithm::Aes256Gcm, 2).unwrap();
    store.activate(&volser, &newer.tag(), 3).unwrap();
    assert_eq!(bench.keys()[0].1, KeyState::ProcessOnly);
    bench.asks(&REWIND).unwrap();
    bench.reads().unwrap();
    bench.asks(&TO_END_OF_DATA).unwrap();
    bench.writes().unwrap();
    let [_, elsewhere, appended] = bench.keys()[..] else { panic!("{:?}", bench.keys()) };
    assert_eq!((elsewhere.0, appended.1), (newer.tag(), KeyState::ProtectAndProcess));
    bench.asks(&REWIND).unwrap();
    bench.reads().unwrap();
    bench.asks(&OVER_FILEMARK).unwrap();
    bench.reads().unwrap();
}

/// A drive that is held to other keys has none for this volume, and says so in its own way.
#[test]
fn a_drive_does_not_get_keys_of_groups_that_are_not_its_own() {
    let mut bench = Bench::new();
    bench.writes().unwrap();
    bench.asks(&FILEMARK).unwrap();
    let mut store = SealedStore::open(&bench.path(), &unlock()).unwrap();
    let other: Name = "other".parse().unwrap();
    store.put_group(KeyGroup { name: other.clone(), policy: Name::default() }).unwrap();
    let drive = SERIAL.parse().unwrap();
    store.put_agent(Agent { name: drive, groups: [other.clone()].into(), default_group: other }).unwrap();
    bench.asks(&REWIND).unwrap();
    assert_eq!(bench.reads(), NOT_AUTHORIZED);
    bench.asks(&TO_END_OF_DATA).unwrap();
    assert_eq!(bench.writes(), NOT_AUTHORIZED);
    bench.asks(&REWIND).unwrap();
    bench.writes().unwrap();
    bench.asks(&FILEMARK).unwrap();
}
