//! Random work while a virtual library lets things go wrong: what a flush has confirmed is there, whatever happened
//! since.
//!
//! The program works as a backup does: it writes, flushes now and then, and after an error goes back to the last flush.
//! Faults that a host can do nothing about are left out: a command that is never answered (the kernel waits for 40
//! minutes), a cartridge that is exchanged by hand, a drive that says end of data where there is more.

use std::path::Path;
use std::process::Command;

use capstan_tape::{Drive, DriveError, Flush, ReadOutcome, WriteOutcome};

use crate::open;

/// What goes wrong, and at commands of which class.
const FAULTS: &[(&str, &str)] = &[
    ("sense:3/0c/00", "write"),
    ("sense:3/0c/00", "flush"),
    ("sense:3/50/00", "write"),
    ("sense:4/44/00", "write"),
    ("sense:1/0c/00", "write"),
    ("sense:0/00/17", "write"),
    ("sense:0/00/07", "write"),
    ("sense:7/27/00", "write"),
    ("sense:d/00/02", "write"),
    ("sense:3/11/00", "read"),
    ("sense:4/44/00", "read"),
    ("sense:3/14/00", "move"),
    ("sense:6/29/00", "any"),
    ("sense:b/44/00", "any"),
    ("sense:2/04/01", "any"),
    ("deferred:3/0c/00", "any"),
    ("deferred:3/0c/00", "write"),
    ("lose-writes:0", "write"),
    ("lose-writes:3", "write"),
    ("lose-power:0", "write"),
    ("lose-power:3", "write"),
    ("lose-power:0", "flush"),
    ("reset", "any"),
    ("reset", "write"),
    ("reset", "flush"),
    ("reset", "position"),
    ("early-warning", "write"),
    ("end-of-medium", "write"),
];

const BLOCK_LEN: usize = 20_000;

/// What stands on the tape.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Object {
    Block(u64),
    Filemark,
}

/// SplitMix64 (Steele, Lea, Flood, 2014).
struct Random(u64);

impl Random {
    fn below(&mut self, end: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) % end
    }
}

struct Work {
    drive: Box<dyn Drive>,
    random: Random,
    written: Vec<Object>,
    /// How many of them a flush has confirmed.
    confirmed: usize,
    next_block: u64,
    errors: u64,
}

/// Runs so many rounds, each with one fault. `command` is the program with the library: `capstan`, and the library's
/// folder.
pub(crate) fn faults(drive: Box<dyn Drive>, device: &Path, seed: u64, rounds: u64, command: &[String]) {
    let [program, folder] = command else { panic!("faults SEED ROUNDS CAPSTAN FOLDER") };
    let told = |arguments: &[&str]| {
        let output = Command::new(program).arg("vtl").args(arguments).output().expect("run capstan");
        assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8_lossy(&output.stdout).into_owned()
    };
    // What other programs did before is theirs.
    let writes_astray = || {
        let status = told(&["status", folder, "--json"]);
        let counts = status
            .split("\"unverified_writes\":")
            .skip(1)
            .map(|text| text.split([',', '}']).next().unwrap().to_owned());
        let counts: Vec<String> = counts.collect();
        assert!(!counts.is_empty(), "{status}");
        counts
    };
    let astray_before = writes_astray();
    let mut work = Work { drive, random: Random(seed), written: Vec::new(), confirmed: 0, next_block: 0, errors: 0 };
    work.drive.load().expect("load");
    for round in 0..rounds {
        let (fault, class) = FAULTS[work.random.below(FAULTS.len() as u64) as usize];
        let passing = work.random.below(12).to_string();
        println!("round {round}: {fault} at {class}, passing {passing}");
        told(&["inject", folder, "0", fault, "--at", class, "--passing", &passing]);
        work.round();
        told(&["forgive", folder]);
        if work.random.below(4) == 0 {
            // As after a crash of the program.
            drop(work.drive);
            work.drive = open(device).expect("open the drive");
            work.drive.load().expect("load");
            work.written.truncate(work.confirmed);
        }
        work.check();
    }
    let astray = writes_astray();
    assert_eq!(astray, astray_before, "the library counts writes to a position that was not verified");
    println!("{} errors met in {rounds} rounds, {} blocks written", work.errors, work.next_block);
}

impl Work {
    fn round(&mut self) {
        if self.random.below(3) == 0 {
            (self.written, self.confirmed) = (Vec::new(), 0);
        }
        if let Err(error) = self.go_back() {
            return self.met(&error);
        }
        for _ in 0..30 {
            if let Err(error) = self.step() {
                self.met(&error);
                // What a backup does: from the last flush, on the same tape or, where there is no room, not at all.
                let full = matches!(error, DriveError::EndOfMedium { .. } | DriveError::WriteProtected { .. });
                if full || self.go_back().is_err() {
                    return;
                }
            }
        }
        if self.flush().is_err() {
            self.written.truncate(self.confirmed);
        }
    }

    fn met(&mut self, error: &DriveError) {
        self.errors += 1;
        println!("  {error}");
    }

    fn go_back(&mut self) -> Result<(), DriveError> {
        self.written.truncate(self.confirmed);
        self.drive.locate(self.confirmed as u64)
    }

    fn flush(&mut self) -> Result<(), DriveError> {
        self.drive.write_filemarks(0, Flush::Synchronous)?;
        self.confirmed = self.written.len();
        Ok(())
    }

    fn step(&mut self) -> Result<(), DriveError> {
        match self.random.below(10) {
            0 => self.flush(),
            1 => {
                self.drive.write_filemarks(1, Flush::Buffered)?;
                self.written.push(Object::Filemark);
                Ok(())
            }
            2 => {
                self.drive.write_filemarks(1, Flush::Synchronous)?;
                self.written.push(Object::Filemark);
                self.confirmed = self.written.len();
                Ok(())
            }
            3 if !self.written.is_empty() => {
                let lbn = self.random.below(self.written.len() as u64);
                self.drive.locate(lbn)?;
                self.expect(lbn as usize)?;
                self.drive.locate(self.written.len() as u64)?;
                // To go elsewhere, everything had to be written out.
                assert_eq!(self.drive.position()?.lbn, self.written.len() as u64);
                Ok(())
            }
            _ => {
                let block = block(self.next_block);
                let outcome = self.drive.write_block(&block)?;
                assert!(matches!(outcome, WriteOutcome::Written | WriteOutcome::EarlyWarning));
                self.written.push(Object::Block(self.next_block));
                self.next_block += 1;
                Ok(())
            }
        }
    }

    fn expect(&mut self, at: usize) -> Result<(), DriveError> {
        let mut buffer = vec![0; BLOCK_LEN + 1];
        let met = self.drive.read_block(&mut buffer)?;
        match self.written[at] {
            Object::Filemark => assert_eq!(met, ReadOutcome::Filemark, "at block {at}"),
            Object::Block(number) => {
                assert_eq!(met, ReadOutcome::Block(BLOCK_LEN), "at block {at}");
                assert!(buffer[..BLOCK_LEN] == block(number), "block {at} is not what was written there last");
            }
        }
        Ok(())
    }

    /// Nothing goes wrong any more: everything that was confirmed is read.
    fn check(&mut self) {
        self.written.truncate(self.confirmed);
        // The first may still be told of what went wrong.
        if self.drive.locate(0).is_err() {
            self.drive.load().expect("load");
        }
        self.drive.locate(0).expect("locate");
        for at in 0..self.confirmed {
            self.expect(at).expect("read what was confirmed");
        }
    }
}

fn block(number: u64) -> Vec<u8> {
    let mut block = crate::block(number);
    block.truncate(BLOCK_LEN);
    block
}
