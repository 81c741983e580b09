//! The conformance suite over SCSI commands: the drive that drives hardware, against the hardware that is software.

use std::sync::Arc;

use capstan_tape::conformance::{Readback, run};
use capstan_tape::hardware::{BlockProtection, DriveCompression, ScsiChanger, ScsiDrive};
use capstan_tape::{Changer, Drive, DriveError, ElementAddress, WriteOutcome};
use capstan_vtl::{DeviceServer, LAYOUT_FILE, LocalTransport, ServedLibrary};

fn library(layout: &str) -> (tempfile::TempDir, Arc<ServedLibrary>) {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join(LAYOUT_FILE), layout).unwrap();
    let library = Arc::new(ServedLibrary::open(folder.path(), None).unwrap());
    (folder, library)
}

fn drive(library: &Arc<ServedLibrary>, lun: u64) -> ScsiDrive<LocalTransport> {
    let device = Arc::clone(library) as Arc<dyn DeviceServer>;
    let name = format!("unit {lun}");
    ScsiDrive::open(LocalTransport::new(device, "a host", lun), name, DriveCompression::Off).unwrap()
}

/// A mover that was gone kept its drive for ever: nobody knew whether it lived.
#[test]
fn a_drive_is_taken_over_from_a_mover_that_is_gone() {
    let (_folder, library) =
        library("[[drive]]\nmodel = \"LTO-9\"\n[[cartridge]]\nbarcode = \"A00001L9\"\ncapacity_mib = 16\n");
    changer(&library).load(&"A00001L9".parse().unwrap(), 0).unwrap();
    let of = |host: &str| {
        let device = Arc::clone(&library) as Arc<dyn DeviceServer>;
        ScsiDrive::open(LocalTransport::new(device, host, 1), format!("of {host}"), DriveCompression::Off).unwrap()
    };
    let (mut one, mut two) = (of("one"), of("two"));
    one.load().unwrap();
    one.reserve(11, &|_| true).unwrap();
    one.write_block(b"written").unwrap();
    let refused = two.reserve(22, &|_| false).unwrap_err();
    assert!(refused.to_string().contains("reservation key 000000000000000b"), "{refused}");
    one.write_block(b"and more").unwrap();
    two.reserve(22, &|holder| holder == 11).unwrap();
    assert_eq!(two.reservation_holder(), Some(22));
    let lost = one.write_block(b"too late").unwrap_err();
    assert!(matches!(lost, DriveError::ReservationLost { .. }), "{lost:?}");
    two.load().unwrap();
    two.write_block(b"of the other").unwrap();
    // Whoever comes later opens a drive that is reserved: what it can do it says once it is taken over.
    let mut three = of("three");
    assert!(!three.identity().encrypts);
    assert!(matches!(three.reserve(33, &|_| false), Err(DriveError::InUse { .. })));
    three.reserve(33, &|holder| holder == 22).unwrap();
    assert!(three.identity().encrypts && three.block_limits().max > 1 << 20);
    three.load().unwrap();
    three.write_block(b"of the third").unwrap();
    three.release().unwrap();
    assert_eq!(three.reservation_holder(), None);
}

fn changer(library: &Arc<ServedLibrary>) -> ScsiChanger<LocalTransport> {
    ScsiChanger::open(LocalTransport::new(Arc::clone(library) as Arc<dyn DeviceServer>, "a host", 0), "the library")
        .unwrap()
}

fn conforms(drive_layout: &str) {
    for protection in [BlockProtection::Off, BlockProtection::WhereOffered] {
        conforms_with(drive_layout, protection);
    }
}

fn conforms_with(drive_layout: &str, protection: BlockProtection) {
    let cartridge = "[[cartridge]]\nbarcode = \"A00001\"\ncapacity_mib = 256\ngeneration = \"virtual\"\n";
    let (_folder, library) = library(&format!("[[drive]]\n{drive_layout}\n{cartridge}"));
    changer(&library).load(&"A00001".parse().unwrap(), 0).unwrap();
    let mut drive = drive(&library, 1).with_protection(protection);
    drive.load().unwrap();
    assert_eq!(drive.protection().is_some(), protection == BlockProtection::WhereOffered);
    run(&mut drive, Readback::Keeps);
    assert_eq!(library.drives()[0].unverified_writes, 0, "a write to a position that was not asked for");
}

#[test]
fn a_plain_drive_conforms() {
    conforms("model = \"LTO-9\"\nencryption = \"none\"");
}

#[test]
fn a_drive_that_encrypts_with_gcm_conforms() {
    conforms("model = \"LTO-9\"\nencryption = \"host\"");
}

#[test]
fn a_drive_that_encrypts_with_ccm_conforms() {
    conforms("model = \"T10000D\"\nencryption = \"host\"");
}

#[test]
fn cartridges_are_moved_and_drives_are_told_by_their_serial_numbers() {
    let (_folder, library) = library(
        "[[drive]]\nmodel = \"LTO-9\"\n[[drive]]\nmodel = \"LTO-9\"\nserial = \"SECOND\"\n\
         [[cartridge]]\nbarcode = \"A00001L9\"\ncapacity_mib = 16\n[[cartridge]]\nbarcode = \"A00002L9\"\ncapacity_mib = 16\n",
    );
    let mut changer = changer(&library);
    let serials = changer.drive_serials().unwrap();
    assert_eq!(serials, [Some("CPT0000001".to_owned()), Some("SECOND".to_owned())]);
    let volser = "A00002L9".parse().unwrap();
    changer.load(&volser, 1).unwrap();
    let in_drive = |changer: &mut ScsiChanger<LocalTransport>, number| {
        let elements = changer.inventory().unwrap();
        let found = elements.into_iter().find(|element| element.address == ElementAddress::Drive(number));
        found.and_then(|element| element.volser)
    };
    assert_eq!(in_drive(&mut changer, 1), Some(volser));
    changer.exchange(&"A00001L9".parse().unwrap(), 1).unwrap();
    assert_eq!(in_drive(&mut changer, 1), Some("A00001L9".parse().unwrap()));
    changer.unload(1).unwrap();
    assert_eq!(in_drive(&mut changer, 1), None);
    let home: Vec<_> = library.elements().into_iter().filter_map(|row| row.volser.map(|_| row.place)).collect();
    assert_eq!(home, ["slot 0", "slot 1"]);
}

/// Where a host wants more room behind early warning than the drive leaves by itself.
#[test]
fn early_warning_comes_where_it_was_asked_for() {
    let cartridge = "[[cartridge]]\nbarcode = \"A00001L9\"\ncapacity_mib = 256\n";
    let written = |reserve: Option<u64>| {
        let (_folder, library) = library(&format!("[[drive]]\nmodel = \"LTO-9\"\n{cartridge}"));
        changer(&library).load(&"A00001L9".parse().unwrap(), 0).unwrap();
        let mut drive = drive(&library, 1);
        if let Some(bytes) = reserve {
            drive = drive.with_reserve(bytes);
        }
        drive.load().unwrap();
        let block = vec![7; 1 << 20];
        let mut blocks: u64 = 1;
        while drive.write_block(&block).unwrap() == WriteOutcome::Written {
            blocks += 1;
        }
        // It holds: for what is written, by the position, and after going away and coming back.
        assert_eq!(drive.write_block(&block).unwrap(), WriteOutcome::EarlyWarning);
        assert!(drive.position().unwrap().early_warning);
        drive.locate(0).unwrap();
        drive.space_to_end_of_data().unwrap();
        assert!(drive.position().unwrap().early_warning);
        blocks
    };
    let by_itself = written(None);
    let asked = written(Some(256 << 20));
    // A twentieth of the cartridge, 14 MB: more than that would be wished, of this one.
    println!("{asked} blocks of 1 MiB in front of it, {by_itself} by itself");
    assert!(asked < by_itself && asked >= 256 - 14, "{asked} blocks, {by_itself} by itself");
    assert_eq!(written(Some(0)), by_itself);
}

/// On a tape of wraps the nearest block is not the next by number: the drive knows, and says so.
#[test]
fn a_drive_recommends_an_order() {
    let cartridge = "[[cartridge]]\nbarcode = \"A00001L9\"\ncapacity_mib = 64\n";
    let (_folder, library) = library(&format!("[[drive]]\nmodel = \"LTO-9\"\n{cartridge}"));
    changer(&library).load(&"A00001L9".parse().unwrap(), 0).unwrap();
    let mut drive = drive(&library, 1);
    drive.load().unwrap();
    let block = vec![7; 64 << 10];
    for _ in 0..200 {
        drive.write_block(&block).unwrap();
    }
    drive.locate(0).unwrap();
    // Of one wrap: then it is front to back.
    let order = drive.recommended_order(&[(150, 160), (10, 12), (90, 90)]).unwrap();
    assert_eq!(order, Some(vec![1, 2, 0]));
    assert_eq!(drive.position().unwrap().lbn, 0, "the tape does not move");
    // Blocks that there are not.
    assert!(drive.recommended_order(&[(0, 200)]).is_err());
    assert_eq!(drive.recommended_order(&[]).unwrap(), None);
    // More than a list takes.
    assert_eq!(drive.recommended_order(&[(0, 0); 2731]).unwrap(), None);
}
