//! A library, its drives, and several users of one directory.

use std::path::Path;

use capstan_format::Volser;
use capstan_tape::{
    CartridgeSpec, Changer, ChangerError, Drive, DriveError, Element, ElementAddress, Flush, KeySlotKind, Library,
    ReadOutcome, Tab, VirtualLibrary,
};

fn volser(number: u32) -> Volser {
    format!("A{number:05}").parse().unwrap()
}

fn spec(number: u32) -> CartridgeSpec {
    CartridgeSpec {
        volser: volser(number),
        capacity_bytes: 10_000,
        early_warning_bytes: 2_000,
        generation: "virtual".to_owned(),
    }
}

fn library(directory: &Path) -> VirtualLibrary {
    let mut library = VirtualLibrary::open(directory, 2).unwrap();
    for number in 1..=3 {
        library.create_cartridge(&spec(number)).unwrap();
    }
    library
}

fn in_element(library: &mut VirtualLibrary, address: ElementAddress) -> Option<Volser> {
    let elements = library.inventory().unwrap();
    elements.into_iter().find(|element| element.address == address).unwrap().volser
}

#[test]
fn the_inventory_follows_the_cartridges() {
    let directory = tempfile::tempdir().unwrap();
    let mut library = library(directory.path());
    let element = |address, volser| Element { address, volser };
    library.load(&volser(2), 0).unwrap();
    spec(9).create(&directory.path().join("mail/A00009.tape")).unwrap();
    let expected = [
        element(ElementAddress::Slot(0), Some(volser(1))),
        element(ElementAddress::Slot(1), None),
        element(ElementAddress::Slot(2), Some(volser(3))),
        element(ElementAddress::Drive(0), Some(volser(2))),
        element(ElementAddress::Drive(1), None),
        element(ElementAddress::ImportExport(0), Some(volser(9))),
    ];
    assert_eq!(library.inventory().unwrap(), expected);
    library.load(&volser(9), 1).unwrap();
    library.unload(0).unwrap();
    assert_eq!(in_element(&mut library, ElementAddress::Slot(1)), Some(volser(2)));
    assert_eq!(in_element(&mut library, ElementAddress::Drive(1)), Some(volser(9)));
}

#[test]
fn a_cartridge_keeps_its_contents_from_drive_to_drive() {
    let directory = tempfile::tempdir().unwrap();
    let mut library = library(directory.path());
    library.load(&volser(1), 0).unwrap();
    let mut first = library.drive(0, KeySlotKind::Missing).unwrap();
    assert_eq!(first.load().unwrap().volser, Some(volser(1)));
    first.write_block(b"kept").unwrap();
    first.unload().unwrap();
    library.unload(0).unwrap();
    assert!(matches!(first.load(), Err(DriveError::NoMedium { .. })));

    library.load(&volser(1), 1).unwrap();
    let mut second = library.drive(1, KeySlotKind::Missing).unwrap();
    second.load().unwrap();
    assert_eq!(second.read_block(&mut [0; 8]).unwrap(), ReadOutcome::Block(4));
}

#[test]
fn moves_that_cannot_be_made_say_why() {
    let directory = tempfile::tempdir().unwrap();
    let mut library = library(directory.path());
    assert!(matches!(library.load(&volser(7), 0), Err(ChangerError::UnknownVolume { .. })));
    assert!(matches!(library.load(&volser(1), 2), Err(ChangerError::UnknownDrive { drive: 2, drives: 2 })));
    assert!(matches!(library.unload(0), Err(ChangerError::DriveEmpty { drive: 0 })));
    library.load(&volser(1), 0).unwrap();
    library.load(&volser(1), 0).unwrap();
    let full = library.load(&volser(2), 0);
    assert!(matches!(full, Err(ChangerError::DriveFull { volser: found, .. }) if found == volser(1)));
    let mut drive = library.drive(0, KeySlotKind::Missing).unwrap();
    let elsewhere = library.load(&volser(1), 1);
    assert!(matches!(elsewhere, Err(ChangerError::InOtherDrive { drive: 0, .. })), "{elsewhere:?}");
    assert!(matches!(library.create_cartridge(&spec(1)), Err(ChangerError::VolserTaken { .. })));
    assert!(matches!(library.remove_cartridge(&volser(1)), Err(ChangerError::InOtherDrive { .. })));

    drive.load().unwrap();
    let loaded = library.unload(0);
    assert!(matches!(loaded, Err(ChangerError::InUse { .. })), "the drive still holds it: {loaded:?}");
    drive.unload().unwrap();
    library.unload(0).unwrap();
    library.remove_cartridge(&volser(1)).unwrap();
    assert!(matches!(library.load(&volser(1), 0), Err(ChangerError::UnknownVolume { .. })));
}

/// Two users of one directory: here two values, which the locks tell apart as they do processes.
#[test]
fn two_users_never_have_one_drive_or_one_cartridge() {
    let directory = tempfile::tempdir().unwrap();
    let mut ours = library(directory.path());
    ours.load(&volser(1), 0).unwrap();
    let mut drive = ours.drive(0, KeySlotKind::Missing).unwrap();
    drive.load().unwrap();

    let mut theirs = VirtualLibrary::open(directory.path(), 2).unwrap();
    let us = std::process::id().to_string();
    let names_us = |error: &dyn std::error::Error| assert!(error.to_string().contains(&us), "{error}");
    names_us(&theirs.drive(0, KeySlotKind::Missing).err().unwrap());
    names_us(&theirs.load(&volser(1), 1).unwrap_err());
    names_us(&theirs.unload(0).unwrap_err());

    let mut other = theirs.drive(1, KeySlotKind::Missing).unwrap();
    theirs.load(&volser(2), 1).unwrap();
    other.load().unwrap();
    let path = directory.path().join("slots/A00001.tape");
    let mut stranger = capstan_tape::CartridgeDrive::new("stranger", path, KeySlotKind::Missing);
    names_us(&stranger.load().unwrap_err());
}

/// A process that is killed leaves its cartridge in the drive; the next one to open the library finds it in its slot.
#[test]
fn what_a_dead_process_left_in_a_drive_goes_back() {
    let directory = tempfile::tempdir().unwrap();
    let mut killed = library(directory.path());
    killed.load(&volser(1), 0).unwrap();
    let mut drive = killed.drive(0, KeySlotKind::Missing).unwrap();
    drive.load().unwrap();
    drive.write_block(b"block").unwrap();
    let mut meanwhile = VirtualLibrary::open(directory.path(), 2).unwrap();
    assert_eq!(in_element(&mut meanwhile, ElementAddress::Drive(0)), Some(volser(1)), "it is in use");
    drop(drive);
    drop(killed);

    let mut next = VirtualLibrary::open(directory.path(), 2).unwrap();
    assert_eq!(in_element(&mut next, ElementAddress::Drive(0)), None);
    assert_eq!(in_element(&mut next, ElementAddress::Slot(0)), Some(volser(1)));
}

/// A job that had opened the library before another was killed failed: the volume was in a drive that no process used.
#[test]
fn what_a_dead_process_left_in_a_drive_is_brought_to_another() {
    let directory = tempfile::tempdir().unwrap();
    let mut killed = library(directory.path());
    let mut before = VirtualLibrary::open(directory.path(), 2).unwrap();
    let mut drive = killed.drive(0, KeySlotKind::Missing).unwrap();
    killed.load(&volser(1), 0).unwrap();
    drive.load().unwrap();
    assert!(matches!(before.load(&volser(1), 1), Err(ChangerError::InOtherDrive { drive: 0, .. })));
    drop(drive);
    before.load(&volser(1), 1).unwrap();
    assert_eq!(in_element(&mut before, ElementAddress::Drive(0)), None);
    assert_eq!(in_element(&mut before, ElementAddress::Drive(1)), Some(volser(1)));
}

#[test]
fn a_tab_bars_writing_and_nothing_else() {
    let directory = tempfile::tempdir().unwrap();
    let mut library = library(directory.path());
    let mut drive = library.drive(0, KeySlotKind::Missing).unwrap();
    library.load(&volser(1), 0).unwrap();
    drive.load().unwrap();
    drive.write_block(b"block").unwrap();
    drive.unload().unwrap();
    library.unload(0).unwrap();
    library.slide_tab(&volser(1), Tab::Protected).unwrap();
    library.load(&volser(1), 0).unwrap();
    assert!(drive.load().unwrap().write_protected);
    let refused =
        [drive.write_block(b"other").map(drop), drive.write_filemarks(1, Flush::Buffered).map(drop), drive.erase()];
    assert!(refused.iter().all(|result| matches!(result, Err(DriveError::WriteProtected { .. }))), "{refused:?}");
    assert_eq!(drive.read_block(&mut [0; 8]).unwrap(), ReadOutcome::Block(5));
    drive.unload().unwrap();
    library.unload(0).unwrap();
    library.slide_tab(&volser(1), Tab::Writable).unwrap();
    library.load(&volser(1), 0).unwrap();
    drive.load().unwrap();
    drive.write_block(b"other").unwrap();
}

#[test]
fn early_warning_comes_before_the_end() {
    use capstan_tape::WriteOutcome::{EarlyWarning, Written};
    let directory = tempfile::tempdir().unwrap();
    let mut library = library(directory.path());
    library.load(&volser(1), 0).unwrap();
    let mut drive = library.drive(0, KeySlotKind::Missing).unwrap();
    drive.load().unwrap();
    // 10,000 bytes, 2,000 in reserve: eight blocks of 1,000 and their headers, then one more, then nothing but
    // trailers.
    let block = [7; 964];
    for lbn in 0..8 {
        assert_eq!(drive.write_block(&block).unwrap(), Written, "block {lbn}");
    }
    assert!(!drive.position().unwrap().early_warning);
    assert_eq!(drive.write_block(&block).unwrap(), EarlyWarning);
    assert!(drive.position().unwrap().early_warning);
    assert_eq!(drive.write_block(&block).unwrap(), EarlyWarning);
    assert_eq!(drive.medium().unwrap().remaining_bytes, 0);
    assert!(matches!(drive.write_block(&[1]), Err(DriveError::EndOfMedium { lbn: 10 })));
    assert!(matches!(drive.write_filemarks(1, Flush::Synchronous), Err(DriveError::EndOfMedium { lbn: 10 })));
    drive.write_filemarks(0, Flush::Synchronous).unwrap();

    drive.locate(9).unwrap();
    drive.write_block(b"trailer").unwrap();
    drive.locate(8).unwrap();
    assert_eq!(drive.read_block(&mut [0; 1000]).unwrap(), ReadOutcome::Block(964));
    assert_eq!(drive.read_block(&mut [0; 1000]).unwrap(), ReadOutcome::Block(7));
    assert_eq!(drive.read_block(&mut [0; 1000]).unwrap(), ReadOutcome::EndOfData);
}

#[test]
fn a_file_that_is_no_cartridge_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    let mut library = library(directory.path());
    std::fs::write(directory.path().join("slots/B00001.tape"), vec![b'x'; 10_000]).unwrap();
    library.load(&"B00001".parse().unwrap(), 0).unwrap();
    let mut drive = library.drive(0, KeySlotKind::Missing).unwrap();
    let refused = drive.load();
    assert!(matches!(refused, Err(DriveError::Incompatible { .. })), "{refused:?}");
}
