//! Two hosts at one library, over iSCSI: each its own drive, both the same one, and a crowd at the door meanwhile.
//!
//! A program of its own: it measures the memory of its process.
#![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

use std::io::Write;
use std::net::TcpStream;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;

use capstan_vtl::iscsi::{CommandOutcome, Digest, Initiator, InitiatorConfig, Server, TargetConfig, TargetLimits};
use capstan_vtl::{LAYOUT_FILE, ServedLibrary};

const TARGET: &str = "iqn.2026-01.org.capstan:two-hosts";
const LAYOUT: &str = "[[drive]]\nmodel = \"LTO-9\"\n[[drive]]\nmodel = \"LTO-9\"\n\
    [[cartridge]]\nbarcode = \"A00001L9\"\ncapacity_mib = 256\n[[cartridge]]\nbarcode = \"A00002L9\"\ncapacity_mib = 256\n";
const BLOCK_LEN: usize = 256 << 10;
const REWIND: [u8; 6] = [0x01, 0, 0, 0, 0, 0];
const WRITE: [u8; 6] = [0x0a, 0, 4, 0, 0, 0];
const READ: [u8; 6] = [0x08, 0, 4, 0, 0, 0];
const RESERVATION_CONFLICT: u8 = 0x18;

/// One test at a time: memory is counted for the whole process.
static TURN: Mutex<()> = Mutex::new(());

struct Bench {
    server: Server,
    _folder: tempfile::TempDir,
    _turn: MutexGuard<'static, ()>,
}

impl Bench {
    /// A library with a cartridge in each of two drives, units 1 and 2.
    fn new(limits: TargetLimits) -> Self {
        let turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join(LAYOUT_FILE), LAYOUT).unwrap();
        let library = Arc::new(ServedLibrary::open(folder.path(), None).unwrap());
        let portal = "127.0.0.1:0".parse().unwrap();
        let server = Server::bind(TargetConfig { portal, limits, ..TargetConfig::new(TARGET) }, library).unwrap();
        let bench = Self { server, _folder: folder, _turn: turn };
        let mut robot = bench.host("robot", Digest::None);
        for drive in 0..2 {
            // From slot 1000 and on to drive 500 and on.
            robot.must(0, &[0xa5, 0, 0, 1, 3, 0xe8 + drive, 1, 0xf4 + drive, 0, 0, 0, 0], &[]);
        }
        bench
    }

    fn host(&self, name: &str, digest: Digest) -> Host {
        let config = InitiatorConfig {
            name: format!("iqn.2026-01.org.capstan:{name}"),
            header_digest: digest,
            data_digest: digest,
            ..InitiatorConfig::new(self.server.local_address(), TARGET)
        };
        Host(Initiator::connect(&config).unwrap())
    }
}

struct Host(Initiator);

impl Host {
    fn asks(&mut self, lun: u64, cdb: &[u8], data_out: &[u8]) -> CommandOutcome {
        self.0.execute(lun, cdb, data_out, &mut []).unwrap()
    }

    /// Takes the unit attentions that wait, and then it must be good.
    fn must(&mut self, lun: u64, cdb: &[u8], data_out: &[u8]) {
        while !self.asks(lun, &[0; 6], &[]).is_good() {}
        let outcome = self.asks(lun, cdb, data_out);
        assert!(outcome.is_good(), "{cdb:02x?}: {outcome:02x?}");
    }

    fn reads(&mut self, lun: u64) -> Vec<u8> {
        let mut block = vec![0; BLOCK_LEN];
        let outcome = self.0.execute(lun, &READ, &[], &mut block).unwrap();
        assert!(outcome.is_good(), "{outcome:02x?}");
        block
    }

    /// PERSISTENT RESERVE OUT: registers the key, and then does `action` with it, exclusive access.
    fn reserves(&mut self, lun: u64, action: u8, key: u64) -> CommandOutcome {
        let mut list = [0; 24];
        let at = if action == 0 { 8 } else { 0 };
        list[at..at + 8].copy_from_slice(&key.to_be_bytes());
        self.asks(lun, &[0x5f, action, 0x03, 0, 0, 0, 0, 0, 24, 0], &list)
    }
}

fn block(host: u8, number: u8) -> Vec<u8> {
    (0..BLOCK_LEN).map(|at| (at * 31 + at / 251) as u8 ^ host ^ number.rotate_left(3)).collect()
}

#[test]
fn two_hosts_use_two_drives_at_once() {
    let bench = Bench::new(TargetLimits::default());
    thread::scope(|scope| {
        for (host, digest) in [(1, Digest::None), (2, Digest::Crc32c)] {
            let mut initiator = bench.host(&format!("host-{host}"), digest);
            scope.spawn(move || {
                let lun = u64::from(host);
                for _ in 0..5 {
                    initiator.must(lun, &REWIND, &[]);
                    (0..50).for_each(|number| initiator.must(lun, &WRITE, &block(host, number)));
                    initiator.must(lun, &REWIND, &[]);
                    assert!((0..50).all(|number| initiator.reads(lun) == block(host, number)));
                }
            });
        }
    });
}

#[test]
fn a_reserved_drive_is_refused_to_the_other_host() {
    let bench = Bench::new(TargetLimits::default());
    let (mut one, mut two) = (bench.host("one", Digest::None), bench.host("two", Digest::None));
    one.must(1, &REWIND, &[]);
    two.must(1, &REWIND, &[]);
    assert!(one.reserves(1, 0, 11).is_good() && one.reserves(1, 1, 11).is_good());
    one.must(1, &WRITE, &block(1, 0));
    for cdb in [&WRITE[..], &READ, &REWIND] {
        let data = if cdb == WRITE { block(2, 0) } else { Vec::new() };
        assert_eq!(two.asks(1, cdb, &data).status, RESERVATION_CONFLICT, "{cdb:02x?}");
    }
    // The other drive is anybody's, and the reservation outlives nothing but a preemption.
    two.must(2, &REWIND, &[]);
    two.must(2, &WRITE, &block(2, 0));
    assert!(two.reserves(1, 0, 22).is_good());
    assert_eq!(two.asks(1, &WRITE, &block(2, 0)).status, RESERVATION_CONFLICT, "to be registered is not to hold it");
    assert!(one.reserves(1, 2, 11).is_good(), "it is released");
    two.must(1, &REWIND, &[]);
    assert_eq!(two.reads(1), block(1, 0), "what the first one wrote, and nothing of the other");
}

/// Memory of this process, in KiB.
fn resident_kib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.trim().trim_end_matches(" kB").parse().unwrap()
}

/// Both ends are in this process, so that what is allowed here is more than what the server alone takes.
#[test]
fn a_thousand_half_open_logins_cost_little_and_hold_nobody_up() {
    const GROWTH_MAX_KIB: u64 = 64 << 10;
    let bench = Bench::new(TargetLimits::default());
    let (mut one, mut two) = (bench.host("one", Digest::None), bench.host("two", Digest::Crc32c));
    for (host, lun) in [(&mut one, 1), (&mut two, 2)] {
        // What the drives need to write is theirs before anything is counted.
        (0..100).for_each(|number| host.must(lun, &WRITE, &block(lun as u8, number)));
        host.must(lun, &REWIND, &[]);
    }
    let (before, mut most) = (resident_kib(), 0);
    let mut silent = Vec::new();
    for number in 0..1000 {
        let mut stream = TcpStream::connect(bench.server.local_address()).unwrap();
        // A login that announces as much text as there may be, and never sends it.
        let mut header = [0; 48];
        (header[0], header[6], header[7]) = (0x43, 0x20, 0);
        let _dropped_already = stream.write_all(&header[..[0, 17, 48][number % 3]]);
        silent.push(stream);
        if number % 50 == 0 {
            one.must(1, &WRITE, &block(1, (number / 50) as u8));
            two.must(2, &WRITE, &block(2, (number / 50) as u8));
            most = most.max(resident_kib());
        }
    }
    println!("{before} kB before, {most} kB at most");
    assert!(most < before + GROWTH_MAX_KIB, "{before} kB before, {most} kB at most");
    for (host, lun) in [(&mut one, 1), (&mut two, 2)] {
        host.must(lun, &REWIND, &[]);
        assert!((0..20).all(|number| host.reads(lun) == block(lun as u8, number)));
    }
}
