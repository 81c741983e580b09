//! Logical block protection from a host's memory to the cartridge and back, over a way that flips bits.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use capstan_tape::hardware::{BlockProtection, DriveCompression, ScsiChanger, ScsiDrive};
use capstan_tape::scsi::protection::{LogicalBlockProtection, ProtectionMethod};
use capstan_tape::scsi::{DataPhase, Reply, ScsiStatus, Transport, TransportError};
use capstan_tape::{Changer, Drive, DriveError, Flush, ReadOutcome};
use capstan_vtl::{DeviceServer, LAYOUT_FILE, LocalTransport, ServedLibrary};

const READ: u8 = 0x08;
const WRITE: u8 = 0x0a;
const LAYOUT: &str = "[[drive]]\nmodel = \"LTO-9\"\nencryption = \"host\"\n\
                      [[cartridge]]\nbarcode = \"A00001L9\"\ncapacity_mib = 64\n";

/// Blocks that are to be damaged on the way: by the operation code of the next command that moves one.
type Flips = Arc<Mutex<VecDeque<u8>>>;

/// A cable that damages blocks.
struct BadCable {
    way: LocalTransport,
    flips: Flips,
}

impl BadCable {
    fn flips(&self, opcode: u8) -> bool {
        let mut flips = self.flips.lock().unwrap();
        let damages = flips.front() == Some(&opcode);
        if damages {
            flips.pop_front();
        }
        damages
    }
}

impl Transport for BadCable {
    fn execute(&mut self, cdb: &[u8], data: DataPhase<'_>, timeout: Duration) -> Result<Reply, TransportError> {
        match data {
            DataPhase::Out(bytes) if cdb[0] == WRITE && self.flips(WRITE) => {
                let mut damaged = bytes.to_vec();
                damaged[bytes.len() / 2] ^= 0x10;
                self.way.execute(cdb, DataPhase::Out(&damaged), timeout)
            }
            DataPhase::In(room) if cdb[0] == READ && self.flips(READ) => {
                let reply = self.way.execute(cdb, DataPhase::In(room), timeout)?;
                room[reply.moved / 2] ^= 0x10;
                Ok(reply)
            }
            data => self.way.execute(cdb, data, timeout),
        }
    }

    fn data_max(&self) -> usize {
        self.way.data_max()
    }
}

struct Bench {
    library: Arc<ServedLibrary>,
    flips: Flips,
    _folder: tempfile::TempDir,
}

impl Bench {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join(LAYOUT_FILE), LAYOUT).unwrap();
        let library = Arc::new(ServedLibrary::open(folder.path(), None).unwrap());
        let bench = Self { library, flips: Flips::default(), _folder: folder };
        ScsiChanger::open(bench.way(0), "the library").unwrap().load(&"A00001L9".parse().unwrap(), 0).unwrap();
        bench
    }

    fn way(&self, lun: u64) -> LocalTransport {
        LocalTransport::new(Arc::clone(&self.library) as Arc<dyn DeviceServer>, "a host", lun)
    }

    fn drive(&self, wish: BlockProtection) -> ScsiDrive<BadCable> {
        let cable = BadCable { way: self.way(1), flips: Arc::clone(&self.flips) };
        let mut drive = ScsiDrive::open(cable, "a drive", DriveCompression::Off).unwrap().with_protection(wish);
        drive.load().unwrap();
        drive
    }

    fn damage(&self, opcode: u8, times: usize) {
        self.flips.lock().unwrap().extend(std::iter::repeat_n(opcode, times));
    }

    /// Writes two blocks and reads the first back, the way being bad so often; what came of the writing, and of the
    /// reading.
    fn round(&self, wish: BlockProtection, writes: usize, reads: usize) -> (Result<(), DriveError>, Vec<u8>) {
        let mut drive = self.drive(wish);
        drive.write_block(&block(0)).unwrap();
        self.damage(WRITE, writes);
        let written = drive.write_block(&block(1)).map(drop);
        self.flips.lock().unwrap().clear();
        drive.locate(1).unwrap();
        if written.is_ok() {
            drive.write_filemarks(0, Flush::Synchronous).unwrap();
        } else {
            assert_eq!(drive.read_block(&mut [0; 100]).unwrap(), ReadOutcome::EndOfData, "it was written all the same");
            return (written, Vec::new());
        }
        self.damage(READ, reads);
        let mut read = vec![0; 1000];
        let met = drive.read_block(&mut read);
        self.flips.lock().unwrap().clear();
        match met {
            Ok(ReadOutcome::Block(len)) => (Ok(()), read[..len].to_vec()),
            Ok(other) => panic!("{other:?}"),
            Err(error) => {
                assert_eq!(read, vec![0; 1000], "a damaged block was handed out");
                // The way is good again, and so is the drive.
                drive.locate(1).unwrap();
                assert_eq!(drive.read_block(&mut read).unwrap(), ReadOutcome::Block(900));
                assert_eq!(read[..900], block(1));
                (Err(error), Vec::new())
            }
        }
    }
}

fn block(number: u8) -> Vec<u8> {
    (0..900).map(|at| (at * 31) as u8 ^ number).collect()
}

/// Which shows that the cable is bad.
#[test]
fn without_it_damage_goes_unseen() {
    for (writes, reads) in [(1, 0), (0, 1)] {
        let (written, read) = Bench::new().round(BlockProtection::Off, writes, reads);
        written.unwrap();
        assert_eq!(read.iter().zip(block(1)).filter(|(read, written)| **read != *written).count(), 1);
    }
}

#[test]
fn a_block_that_was_damaged_once_goes_once_more() {
    for (writes, reads) in [(0, 0), (1, 0), (0, 1), (1, 1)] {
        let (written, read) = Bench::new().round(BlockProtection::WhereOffered, writes, reads);
        written.unwrap();
        assert_eq!(read, block(1));
    }
}

#[test]
fn the_second_time_the_way_is_at_fault() {
    for (writes, reads) in [(2, 0), (0, 2)] {
        let (done, _) = Bench::new().round(BlockProtection::WhereOffered, writes, reads);
        let error = done.unwrap_err();
        assert!(matches!(error, DriveError::Hardware { .. }), "{error:?}");
        assert!(error.to_string().contains("look at cable and host adapter"), "{error}");
    }
}

/// A reset sets modes back: it must be set anew before anything is written again.
#[test]
fn after_a_reset_it_is_set_again() {
    let bench = Bench::new();
    let mut drive = bench.drive(BlockProtection::WhereOffered);
    assert_eq!(drive.protection(), Some(ProtectionMethod::Crc32c));
    drive.write_block(&block(0)).unwrap();
    bench.library.reset_drive(0);
    assert!(matches!(drive.write_block(&block(1)), Err(DriveError::Reset { .. })));
    drive.locate(1).unwrap();
    bench.damage(WRITE, 1);
    drive.write_block(&block(1)).unwrap();
    drive.locate(1).unwrap();
    let mut read = vec![0; 1000];
    assert_eq!(drive.read_block(&mut read).unwrap(), ReadOutcome::Block(900));
    assert_eq!(read[..900], block(1));
}

/// The next program may know nothing of checksums.
#[test]
fn after_an_unload_blocks_go_as_they_are() {
    let bench = Bench::new();
    bench.drive(BlockProtection::WhereOffered).unload().unwrap();
    let mut drive = bench.drive(BlockProtection::Off);
    drive.write_block(&block(0)).unwrap();
    drive.locate(0).unwrap();
    let mut read = vec![0; 1000];
    assert_eq!(drive.read_block(&mut read).unwrap(), ReadOutcome::Block(900));
}

/// A session that was killed left its drive protecting, and the next one was refused with every block.
#[test]
fn what_a_killed_session_left_is_ended_by_the_next() {
    let bench = Bench::new();
    drop(bench.drive(BlockProtection::WhereOffered));
    let mut drive = bench.drive(BlockProtection::Off);
    assert_eq!(drive.protection(), None);
    drive.write_block(&block(0)).unwrap();
    drive.locate(0).unwrap();
    let mut read = vec![0; 1000];
    assert_eq!(drive.read_block(&mut read).unwrap(), ReadOutcome::Block(900));
}

/// A host that speaks SCSI by itself.
struct Host(LocalTransport);

impl Host {
    fn new(bench: &Bench) -> Self {
        let mut host = Self(bench.way(1));
        while host.asks(&[0; 6], DataPhase::None).is_err() {}
        host
    }

    /// How many bytes were moved; or key, code and qualifier.
    fn asks(&mut self, cdb: &[u8], data: DataPhase<'_>) -> Result<usize, (u8, u8, u8)> {
        let reply = self.0.execute(cdb, data, Duration::from_secs(1)).unwrap();
        match (reply.status, reply.sense) {
            (ScsiStatus::Good, _) => Ok(reply.moved),
            (ScsiStatus::CheckCondition, Some(data)) => Err(data.codes()),
            other => panic!("{other:?}"),
        }
    }

    fn protects(&mut self, protection: LogicalBlockProtection) -> Result<usize, (u8, u8, u8)> {
        let select = [&[0, 0, 0x10, 0][..], &protection.to_page()].concat();
        self.asks(&[0x15, 0x10, 0, 0, select.len() as u8, 0], DataPhase::Out(&select))
    }

    fn writes(&mut self, bytes: &[u8]) -> Result<usize, (u8, u8, u8)> {
        self.asks(&[WRITE, 0, 0, (bytes.len() >> 8) as u8, bytes.len() as u8, 0], DataPhase::Out(bytes))
    }

    fn lbn(&mut self) -> u64 {
        let mut bytes = [0; 32];
        self.asks(&[0x34, 0x06, 0, 0, 0, 0, 0, 0, 0, 0], DataPhase::In(&mut bytes)).unwrap();
        u64::from_be_bytes(bytes[8..16].try_into().unwrap())
    }
}

#[test]
fn the_unit_takes_both_methods_and_refuses_what_does_not_fit() {
    for method in [ProtectionMethod::ReedSolomon, ProtectionMethod::Crc32c] {
        let bench = Bench::new();
        let mut host = Host::new(&bench);
        host.protects(LogicalBlockProtection::both_ways(method)).unwrap();
        let good = [&block(0)[..], &method.checksum(&block(0))].concat();
        host.writes(&good).unwrap();
        // LOGICAL BLOCK GUARD CHECK FAILED, and the tape stays where it is.
        let mut bad = good.clone();
        bad[17] ^= 1;
        assert_eq!(host.writes(&bad), Err((4, 0x10, 0x01)));
        assert_eq!(host.lbn(), 1);
        // Nothing but a checksum is no block.
        assert_eq!(host.writes(&[0; 4]), Err((5, 0x24, 0x00)));
        host.writes(&good).unwrap();
        host.asks(&[0x01, 0, 0, 0, 0, 0], DataPhase::None).unwrap();
        // Blocks come with their checksums, which count.
        let mut read = vec![0; 904];
        assert_eq!(host.asks(&[READ, 0, 0, 0x03, 0x88, 0], DataPhase::In(&mut read)), Ok(904));
        assert_eq!(read, good);
        // A buffer without room for it is too short for the block.
        let short = host.asks(&[READ, 0, 0, 0x03, 0x84, 0], DataPhase::In(&mut read[..900]));
        assert_eq!(short, Err((0, 0, 0)));
        assert_eq!(host.lbn(), 2);
        // VERIFY by the method, of two blocks; without a method there is nothing to verify by.
        host.asks(&[0x01, 0, 0, 0, 0, 0], DataPhase::None).unwrap();
        host.asks(&[0x13, 0x30, 0, 0, 0, 0], DataPhase::None).unwrap();
        host.protects(LogicalBlockProtection::NONE).unwrap();
        host.asks(&[0x01, 0, 0, 0, 0, 0], DataPhase::None).unwrap();
        assert_eq!(host.asks(&[0x13, 0x30, 0, 0, 0, 0], DataPhase::None), Err((5, 0x24, 0x00)));
        // What was written protected reads as what it is.
        assert_eq!(host.asks(&[READ, 0, 0, 0x03, 0x84, 0], DataPhase::In(&mut read[..900])), Ok(900));
        assert_eq!(read[..900], block(0));
    }
}

#[test]
fn the_unit_says_which_methods_it_has() {
    let bench = Bench::new();
    let mut host = Host::new(&bench);
    let mut page = [0; 64];
    let len = host.asks(&[0x12, 1, 0xb5, 0, 64, 0], DataPhase::In(&mut page)).unwrap();
    assert_eq!(page[..len], [1, 0xb5, 0, 12, 0, 0, 0, 0, 3, 1, 4, 0xc0, 3, 2, 4, 0xc0]);
    let mut supported = [0; 64];
    let len = host.asks(&[0x12, 1, 0x00, 0, 64, 0], DataPhase::In(&mut supported)).unwrap();
    assert!(supported[4..len].contains(&0xb5));
    // A method that nobody has.
    let mut select =
        [&[0, 0, 0x10, 0][..], &LogicalBlockProtection::both_ways(ProtectionMethod::Crc32c).to_page()].concat();
    select[8] = 3;
    assert_eq!(host.asks(&[0x15, 0x10, 0, 0, select.len() as u8, 0], DataPhase::Out(&select)), Err((5, 0x26, 0x00)));
}
