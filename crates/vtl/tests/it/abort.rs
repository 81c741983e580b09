//! Long commands that nobody wants any more, at a drive that takes as long as a real one.

use std::sync::Arc;
use std::time::{Duration, Instant};

use capstan_tape::scsi::command::Length;
use capstan_tape::scsi::{Command, SenseData, SenseKey};
use capstan_vtl::{
    Cancel, CommandStatus, Completion, DataIn, DeviceServer, LAYOUT_FILE, Nexus, Request, ServedLibrary,
};

/// As fast as the disk, to fill the tape; then at the pace of 80 MB/s, at which VERIFY of the tape takes 3 s and more.
const QUICK: &str = "[[drive]]\nmodel = \"LTO-3\"\nencryption = \"none\"\n\
                     [[cartridge]]\nbarcode = \"A00001L3\"\ncapacity_mib = 300\n";
const BLOCK_LEN: usize = 1 << 20;
const BLOCKS: u32 = 250;
const WHOLE: Command = Command::Verify {
    length: Length::Fixed(0),
    to_end_of_data: true,
    by_filemarks: false,
    check_protection: false,
    compare: false,
};

fn run(library: &ServedLibrary, command: &Command, data_out: &[u8], cancel: &Cancel) -> Completion {
    let nexus = Nexus { initiator: "host".to_owned(), session: 1 };
    let lun = u64::from(!matches!(command, Command::MoveMedium { .. }));
    library.execute(&Request { nexus: &nexus, lun, cdb: &command.to_cdb(), data_out, cancel }, &mut DataIn::default())
}

fn good(library: &ServedLibrary, command: &Command, data_out: &[u8]) {
    let unattended = (0..8).map(|_| run(library, command, data_out, &Cancel::default()));
    let mut answers = unattended.skip_while(|done| done.sense.get(2).is_some_and(|key| key & 0xf == 6));
    let done = answers.next().unwrap();
    assert_eq!(done.status, CommandStatus::Good, "{command:?}: {:?}", SenseData::of_bytes(&done.sense));
}

/// A tape that VERIFY reads for seconds, at its beginning.
fn long_tape() -> (tempfile::TempDir, Arc<ServedLibrary>) {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join(LAYOUT_FILE), QUICK).unwrap();
    let library = ServedLibrary::open(folder.path(), None).unwrap();
    good(&library, &Command::MoveMedium { transport: 0, from: 1000, to: 500 }, &[]);
    let block = vec![7; BLOCK_LEN];
    for _ in 0..BLOCKS {
        good(&library, &Command::Write { length: Length::Variable(BLOCK_LEN as u32), at: None }, &block);
    }
    good(&library, &Command::WriteFilemarks { count: 1, immediate: false, at: None }, &[]);
    drop(library);
    let slow = QUICK.replace("encryption", "pace = \"model\"\nencryption");
    std::fs::write(folder.path().join(LAYOUT_FILE), slow).unwrap();
    let library = Arc::new(ServedLibrary::open(folder.path(), None).unwrap());
    good(&library, &Command::Rewind { immediate: false }, &[]);
    (folder, library)
}

/// Begins VERIFY of all of it, has it given up, and returns its end and how long it lasted.
fn given_up(library: &Arc<ServedLibrary>, how: impl FnOnce(&ServedLibrary, &Cancel)) -> (Completion, Duration) {
    let cancel = Cancel::default();
    let (begun, at_drive, wanted) = (Instant::now(), Arc::clone(library), cancel.clone());
    let verify = std::thread::spawn(move || run(&at_drive, &WHOLE, &[], &wanted));
    std::thread::sleep(Duration::from_millis(200));
    how(library, &cancel);
    (verify.join().unwrap(), begun.elapsed())
}

#[test]
fn verify_of_a_tape_ends_when_it_is_given_up_and_the_drive_goes_on() {
    let (_folder, library) = long_tape();
    let (done, lasted) = given_up(&library, |_, cancel| cancel.order());
    assert!(lasted < Duration::from_secs(2), "{lasted:?}");
    assert_eq!(SenseData::of_bytes(&done.sense).unwrap().sense.key, SenseKey::AbortedCommand as u8);
    good(&library, &Command::Rewind { immediate: false }, &[]);
    let (_, lasted) = given_up(&library, |library, _| library.reset_drive(0));
    assert!(lasted < Duration::from_secs(2), "a reset waits for nobody: {lasted:?}");
    good(&library, &Command::TestUnitReady, &[]);
    let begun = Instant::now();
    good(&library, &WHOLE, &[]);
    assert!(begun.elapsed() > Duration::from_millis(2500), "it is no long command here: {:?}", begun.elapsed());
}
