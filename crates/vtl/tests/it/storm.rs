//! Ten thousand resets, attentions that another handle of the host takes, and tapes that others move: not one write
//! goes to a position that the host could not know, and what was flushed is there, in order, and nothing else.
//!
//! `CAPSTAN_SEED` replays a run.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime};

use capstan_format::{Algorithm, KeyTag};
use capstan_tape::hardware::{DriveCompression, ScsiChanger, ScsiDrive};
use capstan_tape::scsi::{DataPhase, Reply, Transport, TransportError};
use capstan_tape::{Changer, Drive, DriveError, DriveKey, Flush, ReadOutcome};
use capstan_vtl::{DeviceServer, LAYOUT_FILE, LocalTransport, Nexus, ServedLibrary, TaskFunction};

/// Events of each of four storms.
const EVENTS: u64 = 2500;

const LAYOUT: &str = "[[drive]]\nmodel = \"LTO-9\"\nencryption = \"host\"\n\
                      [[cartridge]]\nbarcode = \"A00001\"\ncapacity_mib = 256\ngeneration = \"virtual\"\n";

/// One handle of a host that may count the commands of all of them, as Linux does.
struct Handle {
    way: LocalTransport,
    count: Option<Arc<AtomicU64>>,
}

impl Transport for Handle {
    fn execute(&mut self, cdb: &[u8], data: DataPhase<'_>, timeout: Duration) -> Result<Reply, TransportError> {
        if let Some(count) = &self.count {
            count.fetch_add(1, Ordering::Relaxed);
        }
        self.way.execute(cdb, data, timeout)
    }

    fn commands_seen(&mut self) -> Option<u64> {
        self.count.as_ref().map(|count| count.load(Ordering::Relaxed))
    }

    fn data_max(&self) -> usize {
        self.way.data_max()
    }
}

/// What a run of the storm is about.
#[derive(Debug, Clone, Copy)]
struct Storm {
    host_counts: bool,
    encrypted: bool,
}

struct Draw(u64);

impl Draw {
    /// Xorshift (Marsaglia, 2003).
    fn below(&mut self, below: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % below
    }
}

impl Storm {
    fn key(self) -> Option<DriveKey> {
        self.encrypted.then(|| DriveKey { tag: KeyTag([3; 16]), algorithm: Algorithm::Aes256Gcm, key: [9; 32] })
    }

    fn run(self, draw: &mut Draw) {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join(LAYOUT_FILE), LAYOUT).unwrap();
        let library = Arc::new(ServedLibrary::open(folder.path(), None).unwrap());
        let way = |lun| LocalTransport::new(Arc::clone(&library) as Arc<dyn DeviceServer>, "a host", lun);
        ScsiChanger::open(way(0), "the library").unwrap().load(&"A00001".parse().unwrap(), 0).unwrap();
        let count = self.host_counts.then(Arc::<AtomicU64>::default);
        let mut another = Handle { way: way(1), count: count.clone() };
        let mut drive = ScsiDrive::open(Handle { way: way(1), count }, "unit 1", DriveCompression::Off).unwrap();
        drive.load().unwrap();
        drive.set_key(self.key()).unwrap();

        let (mut committed, mut next, mut events) = (0u64, 0u64, 0);
        while events < EVENTS {
            let event = draw.below(12);
            // A reset; one whose attention somebody else takes; one after which that one moves the tape; a move alone.
            if event < 4 {
                events += 1;
                if event < 3 {
                    let nexus = Nexus { initiator: "another host".to_owned(), session: 1 };
                    library.manage(&nexus, 1, TaskFunction::LogicalUnitReset);
                }
                if event > 0 {
                    send(&mut another, &[0; 6]);
                }
                if event > 1 {
                    let to = draw.below(next + 2).to_be_bytes();
                    let mut locate = [0; 16];
                    locate[0] = 0x92;
                    locate[4..12].copy_from_slice(&to);
                    send(&mut another, &locate);
                }
            }
            for _ in 0..draw.below(6) {
                let done = if draw.below(5) == 0 {
                    drive.write_filemarks(0, Flush::Synchronous).map(|_| committed = next)
                } else {
                    let mut block = next.to_be_bytes().to_vec();
                    block.resize(8 + draw.below(300) as usize, 7);
                    drive.write_block(&block).map(|_| next += 1)
                };
                if let Err(error) = done {
                    let is_news = matches!(
                        error,
                        DriveError::Reset { .. } | DriveError::MovedByOthers { .. } | DriveError::KeyLost { .. }
                    );
                    assert!(is_news, "{self:?} at block {next}: {error:?}");
                    drive.set_key(self.key()).unwrap();
                    drive.locate(committed).unwrap();
                    next = committed;
                }
            }
        }
        // The last event may not have been met yet.
        while drive.write_filemarks(0, Flush::Synchronous).is_err() {
            drive.set_key(self.key()).unwrap();
            drive.locate(committed).unwrap();
            next = committed;
        }
        assert_eq!(library.drives()[0].unverified_writes, 0, "{self:?}");
        drive.locate(0).unwrap();
        let mut block = [0; 400];
        for number in 0..next {
            let read = drive.read_block(&mut block).unwrap();
            assert!(matches!(read, ReadOutcome::Block(_)), "{self:?}: {read:?} at block {number}");
            assert_eq!(block[..8], number.to_be_bytes(), "{self:?}");
        }
        assert!(next > EVENTS / 4, "{self:?}: hardly anything was written");
    }
}

fn send(handle: &mut Handle, cdb: &[u8]) {
    handle.execute(cdb, DataPhase::None, Duration::from_secs(60)).unwrap();
}

#[test]
fn no_write_goes_astray_in_a_storm_of_resets() {
    let drawn = || SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap().as_nanos() as u64;
    let seed = std::env::var("CAPSTAN_SEED").map_or_else(|_| drawn(), |seed| seed.parse().unwrap());
    println!("CAPSTAN_SEED={seed}");
    let mut draw = Draw(seed | 1);
    for (host_counts, encrypted) in [(true, false), (true, true), (false, false), (false, true)] {
        Storm { host_counts, encrypted }.run(&mut draw);
    }
}
