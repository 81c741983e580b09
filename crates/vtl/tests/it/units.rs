//! What a unit must never do, each with the story of the fault that it was once.

use std::sync::Arc;

use capstan_tape::Rewritability;
use capstan_tape::scsi::command::{Length, SpaceOver};
use capstan_tape::scsi::encryption::{DecryptionMode, EncryptionMode, PROTOCOL, Scope, SetEncryption, page};
use capstan_tape::scsi::{Command, SenseData};
use capstan_vtl::{
    Cancel, CommandClass, CommandStatus, DataIn, DeviceFault, DeviceServer, FaultOrder, FaultyUnit, LAYOUT_FILE, Nexus,
    Request, ServedLibrary, ShelfError,
};

struct Bench {
    folder: tempfile::TempDir,
    library: Arc<ServedLibrary>,
}

const LAYOUT: &str = "[[drive]]\nmodel = \"LTO-9\"\n[[cartridge]]\nbarcode = \"A00001L9\"\ncapacity_mib = 32\n";

impl Bench {
    /// A library whose one cartridge is in the one drive, and whose attentions are taken.
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join(LAYOUT_FILE), LAYOUT).unwrap();
        let bench = Self { library: Arc::new(ServedLibrary::open(folder.path(), None).unwrap()), folder };
        bench.settle();
        bench.good(0, &Command::MoveMedium { transport: 0, from: 1000, to: 500 }, &[]);
        bench.settle();
        bench
    }

    fn settle(&self) {
        for lun in [0, 1] {
            for _ in 0..4 {
                self.run(lun, &Command::TestUnitReady, &[]);
            }
        }
    }

    fn run(&self, lun: u64, command: &Command, data_out: &[u8]) -> (CommandStatus, Option<SenseData>, Vec<u8>) {
        let nexus = Nexus { initiator: "host".to_owned(), session: 1 };
        let mut data_in = DataIn::default();
        let done = self.library.execute(
            &Request { nexus: &nexus, lun, cdb: &command.to_cdb(), data_out, cancel: &Cancel::default() },
            &mut data_in,
        );
        (done.status, SenseData::of_bytes(&done.sense), data_in.bytes().to_vec())
    }

    fn good(&self, lun: u64, command: &Command, data_out: &[u8]) -> Vec<u8> {
        let (status, sense, data) = self.run(lun, command, data_out);
        assert_eq!(status, CommandStatus::Good, "{command:?}: {sense:?}");
        data
    }

    fn write(&self, block: &[u8]) {
        self.good(1, &Command::Write { length: Length::Variable(block.len() as u32), at: None }, block);
    }

    fn read(&self) -> (CommandStatus, Option<SenseData>, Vec<u8>) {
        self.run(1, &Command::Read { length: Length::Variable(4096), suppress_incorrect_length: true, at: None }, &[])
    }

    fn rewind(&self) {
        self.good(1, &Command::Rewind { immediate: false }, &[]);
    }

    fn flush(&self) -> (CommandStatus, Option<SenseData>, Vec<u8>) {
        self.run(1, &Command::WriteFilemarks { count: 0, immediate: false, at: None }, &[])
    }

    fn set_key(&self, byte: u8) {
        let mut set = SetEncryption::clear(Scope::AllNexuses);
        (set.encryption, set.decryption) = (EncryptionMode::Encrypt, DecryptionMode::Decrypt);
        set.algorithm_index = 1;
        set.key = vec![byte; 32].into();
        set.key_data.unauthenticated = b"sixteen bytes ok".to_vec();
        let bytes = set.to_bytes();
        let len = bytes.len() as u32;
        self.good(1, &Command::SecurityProtocolOut { protocol: PROTOCOL, specific: page::SET, len }, &bytes);
    }

    fn inject(&self, at: CommandClass, fault: DeviceFault) {
        self.library.inject(&FaultOrder { unit: FaultyUnit::Drive(0), at, passing: 0, fault }).unwrap();
    }
}

/// The page that hosts ask said "off" after a reset, and the drive below went on decrypting, and encrypting what was to
/// be plain.
#[test]
fn a_reset_takes_the_key_away_everywhere() {
    let bench = Bench::new();
    bench.set_key(7);
    bench.write(b"secret");
    bench.library.reset_drive(0);
    bench.settle();
    let (status, sense, data) = bench.read();
    assert_eq!((status, sense.map(|sense| sense.codes())), (CommandStatus::CheckCondition, Some((7, 0x74, 1))));
    assert!(data.is_empty());
}

/// Two keys with the same sixteen bytes of key data were taken for one. A volume may be written with both; neither
/// opens the other's block.
#[test]
fn key_data_are_no_keys() {
    let bench = Bench::new();
    bench.set_key(7);
    bench.write(b"with the first");
    bench.set_key(8);
    bench.write(b"with the second");
    bench.good(1, &Command::Rewind { immediate: false }, &[]);
    for (right, wrong, block) in [(7, 8, &b"with the first"[..]), (8, 7, b"with the second")] {
        bench.set_key(wrong);
        let (_, sense, data) = bench.read();
        assert_eq!((sense.map(|sense| sense.codes()), data.len()), (Some((7, 0x74, 3)), 0));
        bench.set_key(right);
        assert_eq!(bench.read().2, block);
    }
}

/// Asking how the next block is written swallowed the news of lost blocks, and the flush behind it said that all was
/// well.
#[test]
fn a_question_swallows_no_deferred_error() {
    let bench = Bench::new();
    bench.inject(CommandClass::Write, DeviceFault::LoseWrites { told_after: 100 });
    bench.write(b"lost");
    let ask = Command::SecurityProtocolIn { protocol: PROTOCOL, specific: page::NEXT_BLOCK, allocation: 512 };
    let asked = bench.run(1, &ask, &[]).0;
    let flushed = bench.flush().0;
    assert!(asked == CommandStatus::CheckCondition || flushed == CommandStatus::CheckCondition, "nobody was told");
}

/// The table of filemarks outlived a loss of power: SPACE stopped at a mark that was not there, at the beginning of
/// tape.
#[test]
fn what_is_known_of_filemarks_goes_with_the_power() {
    let bench = Bench::new();
    bench.write(b"kept");
    assert_eq!(bench.flush().0, CommandStatus::Good);
    bench.inject(CommandClass::Filemark, DeviceFault::LosePower { after: 1 });
    bench.good(1, &Command::WriteFilemarks { count: 1, immediate: true, at: None }, &[]);
    bench.run(1, &Command::Rewind { immediate: false }, &[]);
    bench.settle();
    bench.rewind();
    let (_, sense, _) = bench.run(1, &Command::Space { over: SpaceOver::Filemarks, count: 1 }, &[]);
    assert_eq!(sense.map(|sense| sense.codes()), Some((8, 0, 5)));
    bench.write(b"behind");
    bench.rewind();
    assert_eq!(bench.read().2, b"kept");
}

/// The host's own writes were gone when the program ended in good order.
#[test]
fn what_was_written_is_there_after_a_stop() {
    let bench = Bench::new();
    bench.write(b"not flushed by the host");
    assert!(bench.library.flush().is_empty());
    let Bench { folder, library } = bench;
    drop(library);
    let again = Bench { library: Arc::new(ServedLibrary::open(folder.path(), None).unwrap()), folder };
    again.settle();
    assert_eq!(again.read().2, b"not flushed by the host");
}

/// A cartridge that had been taken out was overwritten by the next one of its barcode.
#[test]
fn what_is_outside_is_kept() {
    let bench = Bench::new();
    let volser = "B00001L9".parse().unwrap();
    bench.library.create(&volser, 1 << 20, None, Rewritability::Rewritable).unwrap();
    bench.settle();
    bench.good(0, &Command::MoveMedium { transport: 0, from: 1000, to: 300 }, &[]);
    let outside = bench.library.export(&volser).unwrap();
    assert!(outside.exists());
    let again = bench.library.create(&volser, 1 << 20, None, Rewritability::Rewritable);
    assert!(matches!(again, Err(ShelfError::Outside { .. })), "{again:?}");
    bench.library.import(&volser).unwrap();
    assert!(!outside.exists());
}

/// A list of fourteen thousand empty attributes was counted in sixteen bits.
#[test]
fn a_list_that_is_too_long_is_refused() {
    let bench = Bench::new();
    let mut list = vec![0; 4];
    for _ in 0..14_000 {
        list.extend_from_slice(&[0x08, 0x01, 0x01, 0, 0]);
    }
    let command = Command::WriteAttribute { write_through: false, partition: 0, len: list.len() as u32 };
    let (_, sense, _) = bench.run(1, &command, &list);
    assert_eq!(sense.map(|sense| sense.codes()), Some((5, 0x1a, 0)));
}
