//! Data of every length, by every way that a session can agree upon.

use std::sync::Arc;

use capstan_vtl::iscsi::{
    Digest, Initiator, InitiatorConfig, Residual, Server, TargetConfig, TargetLimits, Unsolicited,
};
use capstan_vtl::{LAYOUT_FILE, ServedLibrary};

use super::device::{Bench, DATA_OUT_MAX, ECHO, PANIC, READ_BLOCK, READ_SHORT, TEST_UNIT_READY, WRITE_BLOCK, config};

fn pattern(len: usize) -> Vec<u8> {
    (0..len).map(|at| (at as u32).wrapping_mul(2_654_435_761).to_be_bytes()[0]).collect()
}

/// Lengths around each of the limits that a session may have.
const LENGTHS: [usize; 12] = [1, 3, 512, 4095, 8192, 8193, 65_535, 65_537, 262_144, 262_145, 1_048_577, 3_000_001];

fn round_trips(bench: &Bench, config: &InitiatorConfig) {
    let mut initiator = Initiator::connect(config).unwrap();
    for len in LENGTHS {
        let data = pattern(len);
        let outcome = initiator.execute(1, &[WRITE_BLOCK, 0, 0, 0, 0, 0], &data, &mut []).unwrap();
        assert!(outcome.is_good() && outcome.residual == Residual::None, "{len}: {outcome:?}");
        assert!(bench.device.block(1) == data, "{len} bytes written");
        let mut read = vec![0; len];
        let outcome = initiator.execute(1, &[READ_BLOCK, 0, 0, 0, 0, 0], &[], &mut read).unwrap();
        assert!(outcome.is_good() && outcome.received == len && outcome.residual == Residual::None, "{outcome:?}");
        assert!(read == data, "{len} bytes read");
    }
    initiator.logout().unwrap();
}

#[test]
fn data_come_whole_by_every_way() {
    let bench = Bench::new();
    let ways = [Unsolicited::None, Unsolicited::Immediate, Unsolicited::Separate, Unsolicited::Both];
    for (port, unsolicited) in (0..).zip(ways) {
        for (digest, segment_bytes, burst_bytes, first_burst_bytes) in [
            (Digest::None, 262_144, 1_048_576, 262_144),
            (Digest::Crc32c, 4096, 65_536, 8192),
            (Digest::Crc32c, 5000, 7000, 600),
        ] {
            let config = InitiatorConfig {
                unsolicited,
                header_digest: digest,
                data_digest: digest,
                segment_bytes,
                burst_bytes,
                first_burst_bytes,
                ..bench.initiator(port)
            };
            println!("{unsolicited:?}, {digest:?}, segments of {segment_bytes}, bursts of {burst_bytes}");
            round_trips(&bench, &config);
        }
    }
}

/// A target whose segments are short: unasked data come in many PDUs.
#[test]
fn data_come_whole_to_a_target_of_short_segments() {
    let limits = TargetLimits {
        segment_bytes: 1000,
        first_burst_bytes: 100_000,
        burst_bytes: 100_001,
        ..TargetLimits::default()
    };
    let bench = Bench::with(TargetConfig { limits, ..config() });
    for (port, unsolicited) in [(1, Unsolicited::Both), (2, Unsolicited::Separate), (3, Unsolicited::None)] {
        round_trips(&bench, &InitiatorConfig { unsolicited, ..bench.initiator(port) });
    }
}

#[test]
fn differences_of_length_are_told() {
    let bench = Bench::new();
    let mut initiator = bench.connect(1);
    initiator.execute(0, &[WRITE_BLOCK, 0, 0, 0, 0, 0], &pattern(1000), &mut []).unwrap();
    let mut read = |len: usize, operation: u8| {
        let mut data = vec![0; len];
        initiator.execute(0, &[operation, 0, 0, 0, 0, 0, 0, 0, 0, 0], &[], &mut data).unwrap()
    };
    let short = read(1500, READ_BLOCK);
    assert_eq!((short.received, short.residual), (1000, Residual::Underflow(500)));
    let long = read(600, READ_BLOCK);
    assert_eq!((long.received, long.residual), (600, Residual::Overflow(400)));
    let none = read(0, READ_BLOCK);
    assert_eq!((none.received, none.residual), (0, Residual::Overflow(1000)));
    // Data and sense data of one command, as a tape gives them for a block of another length.
    let both = read(1500, READ_SHORT);
    assert_eq!((both.status, both.received, both.residual), (2, 1000, Residual::Underflow(500)));
    assert_eq!((both.sense.len(), both.sense[0]), (18, 0x70));
}

#[test]
fn more_data_than_a_unit_takes_are_refused_and_the_session_goes_on() {
    let bench = Bench::new();
    for (port, unsolicited) in [(1, Unsolicited::Both), (2, Unsolicited::Separate), (3, Unsolicited::None)] {
        let mut initiator = Initiator::connect(&InitiatorConfig { unsolicited, ..bench.initiator(port) }).unwrap();
        let outcome = initiator.execute(0, &[WRITE_BLOCK, 0, 0, 0, 0, 0], &pattern(DATA_OUT_MAX + 1), &mut []).unwrap();
        assert_eq!((outcome.status, outcome.sense[2], outcome.sense[12]), (2, 5, 0x24), "{unsolicited:?}");
        assert!(initiator.execute(0, &TEST_UNIT_READY, &[], &mut []).unwrap().is_good());
    }
    assert_eq!(bench.device.executed(), [(0, 0); 3]);
}

#[test]
fn descriptor_blocks_of_any_length_arrive() {
    let bench = Bench::new();
    let mut initiator =
        Initiator::connect(&InitiatorConfig { header_digest: Digest::Crc32c, ..bench.initiator(1) }).unwrap();
    for len in [16, 17, 19, 32, 260] {
        let mut cdb = pattern(len);
        cdb[0] = ECHO;
        let mut echo = vec![0; 260];
        let outcome = initiator.execute(0, &cdb, &[], &mut echo).unwrap();
        assert_eq!((&echo[..outcome.received], outcome.is_good()), (&cdb[..], true));
    }
}

#[test]
fn units_that_are_not_there_and_faults_in_commands_are_told_as_sense() {
    let bench = Bench::new();
    let mut initiator = bench.connect(1);
    let nowhere = initiator.execute(7, &TEST_UNIT_READY, &[], &mut []).unwrap();
    assert_eq!((nowhere.status, nowhere.sense[12]), (2, 0x25));
    let fault = initiator.execute(0, &[PANIC, 0, 0, 0, 0, 0], &[], &mut []).unwrap();
    assert_eq!((fault.status, fault.sense[2], fault.sense[12]), (2, 4, 0x44));
    assert!(initiator.execute(0, &TEST_UNIT_READY, &[], &mut []).unwrap().is_good());
    initiator.ping(b"still there").unwrap();
}

/// A drive's WRITE of 10 bytes for which 16 were sent took 10 and said nothing of the other 6 (RFC 7143, 11.4.5).
#[test]
fn differences_of_length_are_told_of_writes_too() {
    let folder = tempfile::tempdir().unwrap();
    let layout = "[[drive]]\nmodel = \"LTO-9\"\n[[cartridge]]\nbarcode = \"A00001L9\"\ncapacity_mib = 16\n";
    std::fs::write(folder.path().join(LAYOUT_FILE), layout).unwrap();
    let library = Arc::new(ServedLibrary::open(folder.path(), None).unwrap());
    let config =
        TargetConfig { portal: "127.0.0.1:0".parse().unwrap(), ..TargetConfig::new("iqn.2026-01.example:tape") };
    let name = config.name.clone();
    let server = Server::bind(config, library).unwrap();
    let mut initiator = Initiator::connect(&InitiatorConfig::new(server.local_address(), name)).unwrap();
    let mut send = |lun: u64, cdb: &[u8], len: usize| {
        loop {
            let done = initiator.execute(lun, cdb, &pattern(len), &mut []).unwrap();
            if done.sense.get(2).is_none_or(|key| key & 0xf != 6) {
                return (done.status, done.residual);
            }
        }
    };
    // From slot 1000 to drive 500.
    assert_eq!(send(0, &[0xa5, 0, 0, 1, 3, 0xe8, 1, 0xf4, 0, 0, 0, 0], 0), (0, Residual::None));
    let write = |len: u8| [0x0a, 0, 0, 0, len, 0];
    assert_eq!(send(1, &write(16), 16), (0, Residual::None));
    assert_eq!(send(1, &write(10), 16), (0, Residual::Underflow(6)));
    assert_eq!(send(1, &write(16), 10), (2, Residual::Overflow(6)), "nothing of it is written");
    assert_eq!(send(1, &write(16), 0), (2, Residual::Overflow(16)));
    assert_eq!(send(1, &[0; 6], 16), (0, Residual::Underflow(16)), "a command that takes no data");
    // Blocks of fixed length: 4, by MODE SELECT, of which the list is 12 long.
    let mut list = [0; 12];
    (list[2], list[3], list[11]) = (0x10, 8, 4);
    let set = initiator.execute(1, &[0x15, 0x10, 0, 0, 12, 0], &list, &mut []).unwrap();
    assert_eq!((set.status, set.residual), (0, Residual::None));
    let fixed = initiator.execute(1, &[0x0a, 1, 0, 0, 3, 0], &pattern(16), &mut []).unwrap();
    assert_eq!((fixed.status, fixed.residual), (0, Residual::Underflow(4)));
}
