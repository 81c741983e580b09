//! Holds a drive of metal, or one that looks like it to the kernel, to rules. The cartridge in it is overwritten.
//!
//! `cargo run -p capstan-tape --example real_drive -- DEVICE RULE [COMMAND...]`, the device being a node of the tape
//! driver (`/dev/nst0`) or of the generic one (`/dev/sg1`). Rules, the first of which takes a minute on LTO and the
//! second fills the tape:
//!
//! - `conformance`: the suite that every kind of drive passes
//! - `full`: early warning is told, what fits is read back, what does not is refused
//! - `filemarks`: none appears that was not written, at a locate or when the program ends
//! - `claim`: nobody else gets the drive
//! - `protected COMMAND...`: the command has the cartridge's tab slid at its next load; it is read and not written
//! - `reset COMMAND...`: the command has the drive reset; nothing is then written where it does not belong
//! - `faults SEED ROUNDS CAPSTAN FOLDER`: random work on drive 0 of a library that `CAPSTAN vtl serve FOLDER` serves,
//!   while it lets things go wrong
//!
//! It panics, naming the rule that was broken.
#![allow(clippy::unwrap_used, reason = "a broken rule is a panic")]

use std::path::Path;
use std::process::Command;

use capstan_tape::conformance::{self, Readback};
use capstan_tape::hardware::{DriveCompression, ScsiDrive};
use capstan_tape::linux::sg::{SgDevice, Sharing};
use capstan_tape::linux::st::{StDrive, StSettings};
use capstan_tape::{Drive, DriveError, Flush, ReadOutcome, WriteOutcome};

mod faults;

const BLOCK_LEN: usize = 1 << 20;

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [device, rule, command @ ..] = arguments.as_slice() else {
        eprintln!("usage: real_drive DEVICE conformance|full|filemarks|claim|protected|reset|faults [ARGUMENT...]");
        std::process::exit(2);
    };
    let device = Path::new(device);
    let mut drive = open(device).expect("open the drive");
    match rule.as_str() {
        "conformance" => conformance::run(&mut *drive, Readback::Keeps),
        "full" => full(&mut *drive),
        "filemarks" => filemarks(drive, device),
        "claim" => claim(&mut *drive, device),
        "protected" => protected(&mut *drive, command),
        "reset" => reset(&mut *drive, command),
        "faults" => {
            let [seed, rounds, library @ ..] = command else { panic!("faults SEED ROUNDS CAPSTAN FOLDER") };
            faults::faults(drive, device, seed.parse().unwrap(), rounds.parse().unwrap(), library);
        }
        other => panic!("no rule is called {other}"),
    }
    println!("{rule}: kept");
}

fn open(device: &Path) -> Result<Box<dyn Drive>, DriveError> {
    let is_generic = device.canonicalize().unwrap().to_string_lossy().contains("/sg");
    if is_generic {
        let what = || format!("open {}", device.display());
        let transport =
            SgDevice::open(device, Sharing::Exclusive).map_err(|source| DriveError::Host { what: what(), source })?;
        return Ok(Box::new(ScsiDrive::open(transport, device.display().to_string(), DriveCompression::Off)?));
    }
    Ok(Box::new(StDrive::open(device, StSettings::default())?))
}

/// Bytes that no other block has, and that do not compress.
fn block(number: u64) -> Vec<u8> {
    let mut state = number.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let mut words = Vec::with_capacity(BLOCK_LEN);
    while words.len() < BLOCK_LEN {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        words.extend_from_slice(&state.to_le_bytes());
    }
    words
}

fn write(drive: &mut dyn Drive, number: u64) -> WriteOutcome {
    drive.write_block(&block(number)).expect("write")
}

fn write_all(drive: &mut dyn Drive, numbers: std::ops::Range<u64>) {
    for number in numbers {
        assert_eq!(write(drive, number), WriteOutcome::Written, "a tape that is long enough");
    }
}

fn expect(drive: &mut dyn Drive, number: u64) {
    let mut buffer = vec![0; drive.block_limits().max as usize];
    let met = drive.read_block(&mut buffer).expect("read");
    assert_eq!(met, ReadOutcome::Block(BLOCK_LEN), "block {number}");
    assert!(buffer[..BLOCK_LEN] == block(number), "block {number} differs from what was written");
}

fn end_of_data(drive: &mut dyn Drive) -> u64 {
    drive.space_to_end_of_data().expect("space to end of data");
    drive.position().expect("position").lbn
}

fn full(drive: &mut dyn Drive) {
    drive.load().expect("load");
    let mut written = 0;
    while write(drive, written) == WriteOutcome::Written {
        written += 1;
    }
    written += 1;
    assert!(drive.position().expect("position").early_warning, "the position says that early warning lies behind");
    // The trailer of a volume.
    let outcome = drive.write_filemarks(1, Flush::Synchronous).expect("a filemark behind early warning");
    assert_eq!(outcome, WriteOutcome::EarlyWarning);
    let trailer = written + 1;
    let mut end = trailer;
    let refused = loop {
        match drive.write_block(&block(end)) {
            Ok(outcome) => assert_eq!(outcome, WriteOutcome::EarlyWarning, "every block behind early warning says so"),
            Err(refused) => break refused,
        }
        end += 1;
        assert!(end < 1 << 20, "the tape never ends");
    };
    assert!(matches!(refused, DriveError::EndOfMedium { lbn } if lbn == end), "{refused:?}");
    assert!(end > trailer, "a trailer has room");
    let again = drive.write_block(&block(end));
    assert!(matches!(again, Err(DriveError::EndOfMedium { .. })), "still full: {again:?}");
    assert_eq!(drive.position().expect("position").lbn, end, "what was refused moved nothing");
    drive.write_filemarks(0, Flush::Synchronous).expect("flush");
    drive.locate(0).expect("locate");
    for number in 0..written {
        expect(drive, number);
    }
    let met = drive.read_block(&mut [0; 512]).expect("read");
    assert_eq!(met, ReadOutcome::Filemark);
    for number in trailer..end {
        expect(drive, number);
    }
    assert_eq!(end_of_data(drive), end);
    println!("{written} blocks before early warning, {} behind it", end - trailer);
}

fn filemarks(mut drive: Box<dyn Drive>, device: &Path) {
    drive.load().expect("load");
    write_all(&mut *drive, 0..3);
    drive.locate(1).expect("locate");
    assert_eq!(end_of_data(&mut *drive), 3, "a locate behind a write adds nothing");
    write_all(&mut *drive, 3..4);
    drive.space_filemarks(-1).expect_err("there is no filemark");
    assert_eq!(end_of_data(&mut *drive), 4, "nor does a space backwards");
    write_all(&mut *drive, 4..5);
    drop(drive);
    let mut drive = open(device).expect("open the drive");
    drive.load().expect("load");
    assert_eq!(end_of_data(&mut *drive), 5, "nor does the end of the program");
}

fn claim(drive: &mut dyn Drive, device: &Path) {
    drive.load().expect("load");
    let second = open(device).map(drop);
    assert!(matches!(&second, Err(DriveError::InUse { .. } | DriveError::Host { .. })), "{second:?}");
    println!("the second is told: {}", second.unwrap_err());
}

fn run(command: &[String]) {
    let [program, arguments @ ..] = command else { panic!("by which command?") };
    assert!(Command::new(program).args(arguments).status().unwrap().success(), "{command:?} failed");
}

fn protected(drive: &mut dyn Drive, command: &[String]) {
    drive.load().expect("load");
    write_all(drive, 0..2);
    drive.unload().expect("unload");
    run(command);
    let medium = drive.load().expect("load");
    assert!(medium.write_protected, "the medium says so");
    expect(drive, 0);
    let refused = [
        ("a block", drive.write_block(&block(1)).map(drop)),
        ("a filemark", drive.write_filemarks(1, Flush::Buffered).map(drop)),
        ("an erase", drive.erase()),
    ];
    for (what, result) in refused {
        assert!(matches!(&result, Err(DriveError::WriteProtected { .. })), "{what}: {result:?}");
    }
    drive.write_filemarks(0, Flush::Synchronous).expect("a flush writes nothing");
    drive.locate(1).expect("locate");
    expect(drive, 1);
    assert_eq!(end_of_data(drive), 2);
    drive.unload().expect("unload");
}

/// Whether a write was refused because the drive stands elsewhere. Where another program took the news of the reset,
/// all that is known is that others sent commands and that the position is another one.
fn is_refused(written: &Result<(), DriveError>) -> bool {
    matches!(written, Err(DriveError::Reset { .. } | DriveError::MovedByOthers { .. }))
}

fn reset(drive: &mut dyn Drive, command: &[String]) {
    drive.load().expect("load");
    write_all(drive, 0..5);
    drive.write_filemarks(0, Flush::Synchronous).expect("flush");
    write_all(drive, 5..7);
    run(command);

    let first = drive.write_block(&block(7)).map(drop);
    assert!(is_refused(&first) || matches!(&first, Err(DriveError::Deferred { .. })), "{first:?}");
    let second = drive.write_block(&block(7)).map(drop);
    assert!(is_refused(&second), "only a locate makes the position known: {second:?}");
    let mark = drive.write_filemarks(1, Flush::Synchronous).map(drop);
    assert!(is_refused(&mark), "for filemarks as well: {mark:?}");
    drive.locate(5).expect("locate to the last flush");
    write_all(drive, 8..9);
    drive.write_filemarks(0, Flush::Synchronous).expect("flush");
    drive.locate(0).expect("locate");
    (0..5).for_each(|number| expect(drive, number));
    expect(drive, 8);
    assert_eq!(end_of_data(drive), 6);
}
