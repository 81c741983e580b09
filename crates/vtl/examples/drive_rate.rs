//! What a drive leaves of a bare socket: blocks of 256 KiB to and from a cartridge, by our own initiator over the
//! loopback.
//!
//! `cargo run --release -p capstan-vtl --example drive_rate -- [MIB] [ROUNDS] [FOLDER...]`. In each round the same
//! bytes go, for each folder, through a bare socket in the same turns (a header and a block one way, a header the other
//! way, and then the next); through such a socket into a plain file and out of it; and to and from a drive, plain and
//! encrypted. What is written counts when it is in the file: a drive gets a synchronous filemark, the plain file a
//! synchronisation.
//!
//! One line of JSON comes out: bytes a second of each round, and seconds of processor time a gigabyte for both ends
//! together, which a busy machine changes less. `./x bench tape` writes it into docs/PERFORMANCE.md.
#![allow(clippy::unwrap_used, reason = "a measurement that cannot be made ends")]

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::Instant;

use capstan_format::{Algorithm, KeyTag, Volser};
use capstan_keys::Cartridge;
use capstan_tape::DriveKey;
use capstan_vtl::iscsi::{Initiator, InitiatorConfig, Server, TargetConfig};
use capstan_vtl::{KeyAgent, KeyAgentError, LAYOUT_FILE, ServedLibrary};
use rustix::time::{ClockId, clock_gettime};

const BLOCK_LEN: usize = 256 << 10;
const HEADER_LEN: usize = 48;
const TARGET: &str = "iqn.2026-01.org.capstan:rate";
/// Logical units of the drives.
const DRIVES: [(u64, &str); 2] = [(1, "plain"), (2, "encrypted")];

const TEST_UNIT_READY: [u8; 6] = [0; 6];
const REWIND: [u8; 6] = [0x01, 0, 0, 0, 0, 0];
const WRITE: [u8; 6] = [0x0a, 0, 4, 0, 0, 0];
const READ: [u8; 6] = [0x08, 0, 4, 0, 0, 0];
/// One, and everything in front of it, on the medium.
const WRITE_FILEMARK: [u8; 6] = [0x10, 0, 0, 0, 1, 0];

/// What one run came to.
#[derive(Debug, Clone, Copy, serde::Serialize)]
struct Run {
    bytes_s: f64,
    processor_s_gb: f64,
}

/// By contestant, round by round.
type Runs = BTreeMap<String, Vec<Run>>;

/// One key for everything.
struct OneKey;

impl OneKey {
    fn key(algorithm: Algorithm) -> DriveKey {
        DriveKey { tag: KeyTag([7; 16]), algorithm, key: [9; 32] }
    }
}

impl KeyAgent for OneKey {
    fn new_key(&self, _: &str, _: &Volser, algorithm: Algorithm) -> Result<DriveKey, KeyAgentError> {
        Ok(Self::key(algorithm))
    }

    fn began(&self, _: &str, _: Cartridge<'_>, _: &KeyTag) -> Result<(), KeyAgentError> {
        Ok(())
    }

    fn key(&self, _: &str, _: Cartridge<'_>, _: &KeyTag) -> Result<DriveKey, KeyAgentError> {
        Ok(Self::key(Algorithm::Aes256Gcm))
    }

    fn key_to_append(&self, drive: &str, cartridge: Cartridge<'_>, tag: &KeyTag) -> Result<DriveKey, KeyAgentError> {
        self.key(drive, cartridge, tag)
    }
}

/// Where bytes go behind a bare socket.
#[derive(Debug, Clone, Copy)]
enum Behind<'a> {
    Nothing,
    File(&'a Path),
}

/// Two ends of a connection over the loopback.
fn connection() -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let (far, _) = listener.accept().unwrap();
    near.set_nodelay(true).unwrap();
    far.set_nodelay(true).unwrap();
    (near, far)
}

/// Bytes a second of `blocks` blocks that another thread takes; its end of the connection is ready when the clock
/// starts.
fn bare_out(framed: &[u8], blocks: usize, behind: Behind<'_>) -> Run {
    let (mut near, mut far) = connection();
    let file = match behind {
        Behind::Nothing => None,
        Behind::File(path) => {
            Some(File::options().read(true).write(true).create(true).truncate(true).open(path).unwrap())
        }
    };
    let taker: JoinHandle<()> = thread::spawn(move || {
        let mut bytes = vec![0; HEADER_LEN + BLOCK_LEN];
        for block in 0..blocks {
            far.read_exact(&mut bytes).unwrap();
            if let Some(file) = &file {
                file.write_all_at(&bytes[HEADER_LEN..], (block * BLOCK_LEN) as u64).unwrap();
            }
            if let (Some(file), true) = (&file, block + 1 == blocks) {
                file.sync_data().unwrap();
            }
            far.write_all(&[0; HEADER_LEN]).unwrap();
        }
    });
    let mut answer = [0; HEADER_LEN];
    let run = run(blocks, || {
        for _ in 0..blocks {
            near.write_all(framed).unwrap();
            near.read_exact(&mut answer).unwrap();
        }
    });
    taker.join().unwrap();
    run
}

/// The same the other way.
fn bare_in(blocks: usize, behind: Behind<'_>) -> Run {
    let (mut near, mut far) = connection();
    let file = match behind {
        Behind::Nothing => None,
        Behind::File(path) => Some(File::open(path).unwrap()),
    };
    let giver: JoinHandle<()> = thread::spawn(move || {
        let (mut bytes, mut header) = (vec![0; HEADER_LEN + BLOCK_LEN], [0; HEADER_LEN]);
        for block in 0..blocks {
            far.read_exact(&mut header).unwrap();
            if let Some(file) = &file {
                file.read_exact_at(&mut bytes[HEADER_LEN..], (block * BLOCK_LEN) as u64).unwrap();
            }
            far.write_all(&bytes).unwrap();
        }
    });
    let mut framed = vec![0; HEADER_LEN + BLOCK_LEN];
    let run = run(blocks, || {
        for _ in 0..blocks {
            near.write_all(&[0; HEADER_LEN]).unwrap();
            near.read_exact(&mut framed).unwrap();
        }
    });
    giver.join().unwrap();
    run
}

fn run(blocks: usize, work: impl FnOnce()) -> Run {
    let bytes = (blocks * BLOCK_LEN) as f64;
    let (begun, spent) = (Instant::now(), processor_s());
    work();
    let wall_s = begun.elapsed().as_secs_f64();
    Run { bytes_s: bytes / wall_s, processor_s_gb: (processor_s() - spent) / bytes * 1e9 }
}

/// Processor time of this process so far.
fn processor_s() -> f64 {
    let spent = clock_gettime(ClockId::ProcessCPUTime);
    spent.tv_sec as f64 + spent.tv_nsec as f64 / 1e9
}

/// A library that is served, and who uses it.
struct Served {
    initiator: Initiator,
    _server: Server,
}

impl Served {
    fn begin(folder: &Path, mib: usize) -> Self {
        let capacity = mib + mib / 4 + 64;
        let layout = format!(
            "[[drive]]\nmodel = \"LTO-9\"\nencryption = \"none\"\n[[drive]]\nmodel = \"LTO-9\"\nencryption = \"agent\"\n\
             [[cartridge]]\nbarcode = \"A00001L9\"\ncapacity_mib = {capacity}\n\
             [[cartridge]]\nbarcode = \"A00002L9\"\ncapacity_mib = {capacity}\n"
        );
        std::fs::write(folder.join(LAYOUT_FILE), layout).unwrap();
        let agent: Arc<dyn KeyAgent> = Arc::new(OneKey);
        let library = Arc::new(ServedLibrary::open(folder, Some(&agent)).unwrap());
        let config = TargetConfig { portal: "127.0.0.1:0".parse().unwrap(), ..TargetConfig::new(TARGET) };
        let server = Server::bind(config, library).unwrap();
        let initiator = Initiator::connect(&InitiatorConfig::new(server.local_address(), TARGET)).unwrap();
        let mut served = Self { initiator, _server: server };
        for (lun, _) in DRIVES {
            // From the first slots, 1000 and on, to the drives, 500 and on.
            let (from, to) = ((999 + lun as u16).to_be_bytes(), (499 + lun as u16).to_be_bytes());
            served.until_ready(0);
            served.does(0, &[0xa5, 0, 0, 1, from[0], from[1], to[0], to[1], 0, 0, 0, 0]);
            served.until_ready(lun);
        }
        served
    }

    /// Takes the unit attentions that wait.
    fn until_ready(&mut self, lun: u64) {
        while !self.initiator.execute(lun, &TEST_UNIT_READY, &[], &mut []).unwrap().is_good() {}
    }

    fn does(&mut self, lun: u64, cdb: &[u8]) {
        let outcome = self.initiator.execute(lun, cdb, &[], &mut []).unwrap();
        assert!(outcome.is_good(), "{cdb:02x?}: {outcome:02x?}");
    }

    fn write(&mut self, lun: u64, block: &[u8], blocks: usize) -> Run {
        self.does(lun, &REWIND);
        run(blocks, || {
            for _ in 0..blocks {
                assert!(self.initiator.execute(lun, &WRITE, block, &mut []).unwrap().is_good());
            }
            self.does(lun, &WRITE_FILEMARK);
        })
    }

    fn read(&mut self, lun: u64, expected: &[u8], blocks: usize) -> Run {
        self.does(lun, &REWIND);
        let mut block = vec![0; BLOCK_LEN];
        let run = run(blocks, || {
            for _ in 0..blocks {
                assert!(self.initiator.execute(lun, &READ, &[], &mut block).unwrap().is_good());
            }
        });
        assert!(block == expected, "what was read is not what was written");
        run
    }
}

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let number = |at: usize, default| arguments.get(at).map_or(default, |text: &String| text.parse::<usize>().unwrap());
    let (mib, rounds) = (number(0, 1024), number(1, 5));
    let mut folders: Vec<PathBuf> = arguments.iter().skip(2).map(PathBuf::from).collect();
    if folders.is_empty() {
        folders.push(".".into());
    }
    let blocks = (mib << 20) / BLOCK_LEN;
    // Nothing that a file system or a processor could make less of.
    let framed: Vec<u8> = (0..HEADER_LEN + BLOCK_LEN).map(|at| ((at * 2_654_435_761) >> 7) as u8).collect();
    let block = &framed[HEADER_LEN..];
    let mut runs = Runs::new();
    let mut note = |of: String, run: Run| runs.entry(of).or_default().push(run);
    for _ in 0..rounds {
        for folder in &folders {
            let scratch = tempfile::tempdir_in(folder).unwrap();
            let place = folder.display();
            note(format!("{place}: socket, out"), bare_out(&framed, blocks, Behind::Nothing));
            note(format!("{place}: socket, in"), bare_in(blocks, Behind::Nothing));
            let file = scratch.path().join("file");
            note(format!("{place}: socket and file, out"), bare_out(&framed, blocks, Behind::File(&file)));
            note(format!("{place}: socket and file, in"), bare_in(blocks, Behind::File(&file)));
            std::fs::remove_file(file).unwrap();
            let mut served = Served::begin(scratch.path(), mib);
            for (lun, name) in DRIVES {
                note(format!("{place}: {name} drive, out"), served.write(lun, block, blocks));
                note(format!("{place}: {name} drive, in"), served.read(lun, block, blocks));
                // An empty tape gives its memory back.
                served.does(lun, &REWIND);
                served.write(lun, block, 1);
            }
        }
    }
    println!("{}", serde_json::to_string(&runs).unwrap());
}
