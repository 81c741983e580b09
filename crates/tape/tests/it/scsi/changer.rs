//! Libraries that are not as they said.

use capstan_format::Volser;
use capstan_tape::Finding;
use capstan_tape::hardware::ScsiChanger;
use capstan_tape::scsi::element::MediumType;
use capstan_tape::scsi::{SenseData, SenseKey};
use capstan_tape::{Changer, ChangerError, ChangerRequest, ElementAddress};

use super::library::Library;
use super::script::Leap;

fn volser(text: &str) -> Volser {
    text.parse().unwrap()
}

fn opened(library: &Library) -> ScsiChanger<Library> {
    ScsiChanger::open(library.clone(), "library-0").unwrap().with_clock(Box::new(Leap(0.0)))
}

/// Three volumes in slots 0 to 2.
fn library() -> (Library, ScsiChanger<Library>) {
    let library = Library::new(5);
    for (address, barcode) in [(1000, "A00001L9"), (1001, "A00002L9"), (1002, "A00003L9")] {
        library.put(address, Some(barcode));
    }
    let changer = opened(&library);
    (library, changer)
}

#[test]
fn cartridges_go_to_drives_and_home_again() {
    let (library, mut changer) = library();
    assert_eq!((changer.serial(), changer.drives()), (Some("LIB1"), 2));
    assert_eq!(changer.drive_serials().unwrap(), [Some("SERIAL500".to_owned()), Some("SERIAL501".to_owned())]);
    changer.load(&volser("A00002L9"), 1).unwrap();
    changer.load(&volser("A00002L9"), 1).unwrap();
    let element = changer.inventory().unwrap().into_iter().find(|element| element.address == ElementAddress::Drive(1));
    assert_eq!(element.unwrap().volser, Some(volser("A00002L9")));
    let full = changer.load(&volser("A00001L9"), 1).unwrap_err();
    assert!(matches!(full, ChangerError::DriveFull { drive: 1, .. }), "{full:?}");
    let busy = changer.load(&volser("A00002L9"), 0).unwrap_err();
    assert!(matches!(busy, ChangerError::InOtherDrive { drive: 1, .. }), "{busy:?}");
    changer.unload(1).unwrap();
    assert_eq!(library.shelves().moves, [(1001, 501), (501, 1001)]);
    // One that no job knows by name.
    for (barcode, words) in [
        (None, "drive 0 is in use by a cartridge without a barcode that can be read (`capstan library unload 0`"),
        (Some("clean-me!"), "drive 0 is in use by a cartridge with barcode clean-me!, which is no volser (`capstan"),
    ] {
        library.put(500, barcode);
        let full = changer.load(&volser("A00001L9"), 0).unwrap_err();
        assert!(matches!(full, ChangerError::InUse { .. }) && full.to_string().contains(words), "{full}");
    }
    changer.unload(0).unwrap();
    library.shelves().at(1003).full = false;
    assert_eq!(library.shelves().moves.pop(), Some((500, 1003)));
    // Its slot is taken meanwhile: the first that is free.
    changer.load(&volser("A00002L9"), 1).unwrap();
    library.put(1001, Some("A00009L9"));
    changer.unload(1).unwrap();
    assert_eq!(library.shelves().moves.last(), Some(&(501, 1003)));
    assert!(matches!(changer.unload(1), Err(ChangerError::DriveEmpty { drive: 1 })));
    assert!(matches!(changer.unload(2), Err(ChangerError::UnknownDrive { drive: 2, drives: 2 })));
    assert!(matches!(changer.load(&volser("B00001L9"), 0), Err(ChangerError::UnknownVolume { .. })));
}

/// `rebuild` and `label` loaded cleaning cartridges as volumes, from the mail slot, too; each load takes one of their
/// few uses.
#[test]
fn a_cleaning_cartridge_is_brought_to_a_drive_by_the_errand_alone() {
    let (library, mut changer) = library();
    library.put(1003, Some("CLN001L1"));
    library.put(1004, Some("A00004L9"));
    library.shelves().at(1004).medium_type = Some(MediumType::Cleaning);
    for cleaning in ["CLN001L1", "A00004L9"] {
        for request in [None, Some(ChangerRequest::Exchange { volser: volser(cleaning), drive: 0 })] {
            let refused = match request {
                None => changer.load(&volser(cleaning), 0),
                Some(request) => changer.carry_out_request(&request),
            };
            assert!(matches!(refused, Err(ChangerError::CleaningCartridge { .. })), "{cleaning}: {refused:?}");
        }
    }
    assert_eq!(library.shelves().moves, []);
    changer.carry_out_request(&ChangerRequest::Clean { volser: volser("CLN001L1"), drive: 0 }).unwrap();
    assert_eq!(library.shelves().moves, [(1003, 500)]);
}

/// An open door was an error without a word for it, and an offline library was asked for half an hour.
#[test]
fn an_open_door_and_an_offline_library_are_told_at_once() {
    let (library, mut changer) = library();
    for (codes, words) in [((0x3a, 0x02), "a door or tray is open"), ((0x04, 0x12), "offline")] {
        library.shelves().attentions.push_back(SenseData::new(SenseKey::NotReady, codes.0, codes.1));
        let told = changer.inventory().unwrap_err();
        assert!(matches!(told, ChangerError::NotReady { .. }), "{told:?}");
        assert!(told.to_string().contains(words), "{told}");
    }
    changer.inventory().unwrap();
}

#[test]
fn what_a_person_must_put_right_is_told_and_left_alone() {
    let (library, mut changer) = library();
    library.put(1003, Some("A00001L9"));
    library.put(200, None);
    library.put(201, Some("clean-me!"));
    library.shelves().at(1004).exception = Some((0x30, 0x00));
    let elements = changer.inventory().unwrap();
    assert_eq!(elements.len(), 9);
    let told: Vec<String> = changer.findings().iter().map(Finding::to_string).collect();
    assert_eq!(
        told,
        [
            "volume A00001L9 is in slot 0 and in slot 3: take one out and give it another barcode",
            "the library reports 30/00 for slot 4: look at it",
            "the cartridge in mail slot 0 has no barcode that can be read: label it, or clean the reader",
            "the cartridge in mail slot 1 has barcode clean-me!: relabel it with up to 8 capital letters and digits",
        ]
    );
    let either = changer.load(&volser("A00001L9"), 0).unwrap_err();
    assert!(matches!(either, ChangerError::DuplicateVolume { .. }), "{either:?}");
    // Neither the slot with an exception nor one with a cartridge of no name is free.
    changer.load(&volser("A00002L9"), 0).unwrap();
    library.put(1001, None);
    let full = changer.unload(0).unwrap_err();
    assert!(matches!(full, ChangerError::NoRoom { .. }), "{full:?}");
    assert_eq!(library.shelves().moves, [(1001, 500)]);
}

#[test]
fn a_library_that_was_changed_meanwhile_is_looked_at_again_once() {
    let (library, mut changer) = library();
    let opened_door = SenseData::new(SenseKey::UnitAttention, 0x28, 0x01);
    library.shelves().upsets.push_back(opened_door);
    changer.load(&volser("A00001L9"), 0).unwrap();
    let reads = |library: &Library| library.shelves().commands.iter().filter(|cdb| cdb[0] == 0xb8).count();
    assert_eq!(reads(&library), 6, "three kinds of elements, twice");
    let prevented = SenseData::new(SenseKey::IllegalRequest, 0x53, 0x02);
    library.shelves().upsets.extend([prevented, prevented]);
    let stuck = changer.unload(0).unwrap_err();
    assert!(matches!(stuck, ChangerError::InUse { .. }), "{stuck:?}");
    let full = SenseData::new(SenseKey::IllegalRequest, 0x3b, 0x0d);
    library.shelves().upsets.extend([full, full]);
    let refused = changer.unload(0).unwrap_err();
    assert!(matches!(refused, ChangerError::Refused { .. }), "{refused:?}");
    changer.unload(0).unwrap();
}

#[test]
fn a_door_that_stays_open_is_waited_for_and_told() {
    let (library, mut changer) = library();
    for _ in 0..10 {
        library.shelves().attentions.push_back(SenseData::new(SenseKey::NotReady, 0x04, 0x01));
    }
    changer.load(&volser("A00001L9"), 0).unwrap();
    for _ in 0..1000 {
        library.shelves().attentions.push_back(SenseData::new(SenseKey::NotReady, 0x04, 0x01));
    }
    let late = changer.unload(0).unwrap_err();
    assert!(matches!(&late, ChangerError::NotReady { waited, .. } if waited.as_secs() >= 1800), "{late:?}");
    library.shelves().attentions.clear();
    library.shelves().attentions.push_back(SenseData::new(SenseKey::UnitAttention, 0x2a, 0x03));
    let taken = changer.unload(0).unwrap_err();
    assert!(matches!(taken, ChangerError::Reserved { .. }), "{taken:?}");
}

#[test]
fn the_mail_slot_and_exchanges() {
    let (library, mut changer) = library();
    changer.export(&volser("A00003L9")).unwrap();
    changer.export(&volser("A00003L9")).unwrap();
    assert_eq!(library.shelves().moves, [(1002, 200)]);
    changer.import(0).unwrap();
    assert_eq!(library.shelves().moves.last(), Some(&(200, 1002)));
    assert!(matches!(changer.import(1), Err(ChangerError::ElementEmpty { .. })));
    // This library knows no EXCHANGE MEDIUM: two moves.
    changer.load(&volser("A00001L9"), 0).unwrap();
    changer.exchange(&volser("A00002L9"), 0).unwrap();
    assert_eq!(library.shelves().moves[3..], [(500, 1000), (1001, 500)]);
}

/// A host that moves little at once, and a library of many slots: the answer is asked for in parts.
#[test]
fn a_library_of_any_size_is_told_whole() {
    for (slots, data_max) in [(3000, 1 << 20), (3000, 64 << 10), (3000, 4 << 10), (700, 256)] {
        let library = Library::new(slots);
        for number in 0..slots {
            library.put(1000 + number, Some(&format!("V{number:05}L9")));
        }
        library.shelves().data_max = data_max;
        let elements = opened(&library).inventory().unwrap();
        assert_eq!(elements.len(), usize::from(slots) + 4, "{data_max}");
        assert!((0..slots).zip(&elements).all(|(number, element)| {
            element.address == ElementAddress::Slot(u32::from(number))
                && element.volser == Some(volser(&format!("V{number:05}L9")))
        }));
    }
}
