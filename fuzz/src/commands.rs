//! What an initiator may tell the units of a virtual library to do: any commands with any data, in any order.

use std::cell::Cell;
use std::sync::Arc;

use capstan_tape::scsi::{Command, SenseData};
use capstan_vtl::{Cancel, CommandStatus, DataIn, DeviceServer, LAYOUT_FILE, Nexus, Request, ServedLibrary};
use tempfile::TempDir;

use crate::input::Input;
use crate::scratch;

/// Most commands of one input.
const COMMANDS_MAX: usize = 64;
/// A library is thrown away after so many inputs: what they wrote must not fill the memory.
const INPUTS_MAX: u32 = 500;
/// Longest data that a transport passes on.
const DATA_MAX: usize = 16 << 20;

const LAYOUT: &str = "[library]\nslots = 4\nmail_slots = 1\n\
    [[drive]]\nmodel = \"LTO-9\"\nencryption = \"host\"\n[[drive]]\nmodel = \"T10000D\"\nencryption = \"none\"\n\
    [[cartridge]]\nbarcode = \"F00001\"\ncapacity_mib = 8\ngeneration = \"virtual\"\n\
    [[cartridge]]\nbarcode = \"F00002\"\ncapacity_mib = 8\ngeneration = \"virtual\"\n";

thread_local! {
    static BENCH: Cell<Option<(TempDir, Arc<ServedLibrary>, u32)>> = const { Cell::new(None) };
}

fn opened() -> (TempDir, Arc<ServedLibrary>, u32) {
    let folder = scratch::directory();
    std::fs::write(folder.path().join(LAYOUT_FILE), LAYOUT).expect("room for a layout");
    let library = Arc::new(ServedLibrary::open(folder.path(), None).expect("a library opens"));
    (folder, library, 0)
}

/// Commands, each a unit's number (1), a command (16) and data (length 2, bytes), by two initiators in turn. Whatever
/// comes, a unit answers with a status, with sense data where it says that there are some, and with no more than a
/// transport can carry; and it still says who it is afterwards.
pub fn commands(data: &[u8]) {
    let bench = BENCH.with(Cell::take);
    let (folder, library, inputs) = bench.filter(|(.., inputs)| *inputs < INPUTS_MAX).unwrap_or_else(opened);
    let nexuses = ["one", "two"].map(|initiator| Nexus { initiator: initiator.to_owned(), session: 1 });
    let (mut data_in, cancel) = (DataIn::default(), Cancel::default());
    let mut execute = |nexus: &Nexus, lun: u64, cdb: &[u8], data_out: &[u8]| {
        let done = library.execute(&Request { nexus, lun, cdb, data_out, cancel: &cancel }, &mut data_in);
        assert!(data_in.bytes().len() <= DATA_MAX, "{} bytes for {cdb:02x?}", data_in.bytes().len());
        match done.status {
            CommandStatus::CheckCondition => {
                assert!(SenseData::of_bytes(&done.sense).is_some(), "no sense for {cdb:02x?}");
            }
            CommandStatus::Good => assert!(done.sense.is_empty(), "good, and sense data, for {cdb:02x?}"),
            _ => {}
        }
        done.status
    };
    // What waits from the input before, or from the start, is taken first: commands are to be carried out.
    let ready = Command::TestUnitReady.to_cdb();
    for nexus in &nexuses {
        for lun in 0..3 {
            for _ in 0..4 {
                execute(nexus, lun, &ready, &[]);
            }
        }
    }
    for (from, to) in [(1000, 500), (1001, 501)] {
        execute(&nexuses[0], 0, &Command::MoveMedium { transport: 0, from, to }.to_cdb(), &[]);
    }
    let mut input = Input::new(data);
    for _ in 0..COMMANDS_MAX {
        if input.is_empty() {
            break;
        }
        let who = input.byte();
        let cdb: Vec<u8> = std::iter::repeat_with(|| input.byte()).take(16).collect();
        execute(&nexuses[usize::from(who >> 7)], u64::from(who & 3), &cdb, input.counted());
    }
    let inquiry = Command::Inquiry { vital_product_data: None, allocation: 96 }.to_cdb();
    for lun in 0..3 {
        assert_eq!(execute(&nexuses[0], lun, &inquiry, &[]), CommandStatus::Good);
    }
    BENCH.with(|bench| bench.set(Some((folder, library, inputs + 1))));
}
