//! Write-once cartridges as hosts see them: what drives tell of them, and what they refuse.

use std::sync::Arc;

use capstan_tape::conformance::run_write_once;
use capstan_tape::hardware::{DriveCompression, ScsiChanger, ScsiDrive};
use capstan_tape::scsi::command::{Form, Length, PageControl};
use capstan_tape::scsi::sense::Sense;
use capstan_tape::scsi::{Command, SenseData};
use capstan_tape::{Changer, Drive, Rewritability};
use capstan_vtl::{
    Cancel, CommandStatus, DataIn, DeviceServer, LAYOUT_FILE, LocalTransport, Nexus, Request, ServedLibrary, ShelfError,
};

const HOST: &str = "a host";

fn library(drive: &str, cartridge: &str) -> (tempfile::TempDir, Arc<ServedLibrary>) {
    let folder = tempfile::tempdir().unwrap();
    let layout = format!(
        "[[drive]]\n{drive}\n[[cartridge]]\nbarcode = \"A00001L9\"\ncapacity_mib = 64\nworm = true\n{cartridge}\n\
         [[cartridge]]\nbarcode = \"A00002L9\"\ncapacity_mib = 64\n"
    );
    std::fs::write(folder.path().join(LAYOUT_FILE), layout).unwrap();
    let library = Arc::new(ServedLibrary::open(folder.path(), None).unwrap());
    (folder, library)
}

fn way(library: &Arc<ServedLibrary>, lun: u64) -> LocalTransport {
    LocalTransport::new(Arc::clone(library) as Arc<dyn DeviceServer>, HOST, lun)
}

fn drive(library: &Arc<ServedLibrary>) -> ScsiDrive<LocalTransport> {
    ScsiDrive::open(way(library, 1), "the drive", DriveCompression::Off).unwrap()
}

fn insert(library: &Arc<ServedLibrary>, barcode: &str) {
    ScsiChanger::open(way(library, 0), "the library").unwrap().load(&barcode.parse().unwrap(), 0).unwrap();
}

fn run(
    library: &Arc<ServedLibrary>,
    command: &Command,
    data_out: &[u8],
) -> (CommandStatus, Option<SenseData>, Vec<u8>) {
    let nexus = Nexus { initiator: HOST.to_owned(), session: 0 };
    let mut data_in = DataIn::default();
    let done = library.execute(
        &Request { nexus: &nexus, lun: 1, cdb: &command.to_cdb(), data_out, cancel: &Cancel::default() },
        &mut data_in,
    );
    (done.status, SenseData::of_bytes(&done.sense), data_in.bytes().to_vec())
}

/// Key, code and qualifier of a command that must be refused.
fn refused(library: &Arc<ServedLibrary>, command: &Command, data_out: &[u8]) -> (u8, u8, u8) {
    let (_, sense, _) = run(library, command, data_out);
    let Sense { key, asc, ascq, .. } = sense.unwrap_or_else(|| panic!("{command:?} was carried out")).sense;
    (key, asc, ascq)
}

fn good(library: &Arc<ServedLibrary>, command: &Command, data_out: &[u8]) -> Vec<u8> {
    let (status, sense, data) = run(library, command, data_out);
    assert_eq!(status, CommandStatus::Good, "{command:?}: {sense:?}");
    data
}

#[test]
fn what_is_written_once_stays_in_every_kind_of_drive() {
    for layout in [
        "model = \"LTO-9\"\nencryption = \"none\"",
        "model = \"LTO-9\"\nencryption = \"host\"",
        "model = \"LTO-6\"",
        "model = \"T10000D\"",
    ] {
        let (_folder, library) = library(layout, "");
        insert(&library, "A00001L9");
        run_write_once(&mut drive(&library));
        assert_eq!(library.drives()[0].unverified_writes, 0, "{layout}: a write to a position that was not asked for");
    }
}

#[test]
fn it_is_told_as_drives_of_metal_tell_it() {
    let sense = |page| Command::ModeSense {
        form: Form::Six,
        no_block_descriptor: true,
        control: PageControl::Current,
        page,
        subpage: 0,
        allocation: 255,
    };
    let medium_type = Command::ReadAttribute { action: 0, volume: 0, partition: 0, first: 0x0408, allocation: 10 };
    for (model, barcode, header, configuration, attribute) in [
        ("LTO-9", "A00001L9", 0x9c, [0x01, 0, 0, 2], 0x80),
        ("LTO-9", "A00002L9", 0x98, [0; 4], 0),
        ("LTO-5", "A00001L9", 0x5c, [0x01, 0, 0, 2], 0x80),
        // Its types have other codes, which are not known.
        ("T10000D", "A00001L9", 0, [0x01, 0, 0, 2], 0x80),
    ] {
        let (_folder, library) = library(&format!("model = \"{model}\""), "");
        insert(&library, barcode);
        assert_eq!(
            drive(&library).load().unwrap().rewritability == Rewritability::WriteOnce,
            attribute == 0x80,
            "{model}, {barcode}"
        );
        let told = good(&library, &sense(0x1d), &[]);
        assert_eq!((told[1], &told[4..6], &told[6..10]), (header, &[0x1d, 0x1e][..], &configuration[..]), "{model}");
        assert_eq!(good(&library, &medium_type, &[])[4..], [0x04, 0x08, 0x80, 0x00, 0x01, attribute][..], "{model}");
        let all = good(&library, &sense(0x3f), &[]);
        assert_eq!(all[all.len() - 32], 0x1d, "it stands among all pages");
        let capabilities = good(&library, &Command::Inquiry { vital_product_data: Some(0xb0), allocation: 255 }, &[]);
        assert_eq!(capabilities[4] & 1, 1, "the drive says that it knows write-once media");
    }
}

#[test]
fn overwriting_and_erasing_are_refused_in_the_standards_words() {
    let (_folder, library) = library("model = \"LTO-9\"", "");
    insert(&library, "A00001L9");
    drive(&library).load().unwrap();
    let erase = Command::Erase { long: false, immediate: false, at: None };
    let rewind = Command::Rewind { immediate: false };
    let write = Command::Write { length: Length::Variable(5), at: None };
    let filemark = Command::WriteFilemarks { count: 1, immediate: false, at: None };
    let overwrite = (0x7, 0x30, 0x0c);
    assert_eq!(refused(&library, &erase, &[]), overwrite, "not even a blank one is erased");
    good(&library, &write, b"first");
    good(&library, &filemark, &[]);
    assert_eq!(refused(&library, &erase, &[]), overwrite, "at the end of data");
    good(&library, &rewind, &[]);
    for command in [&erase, &write, &filemark] {
        let data: &[u8] = if *command == write { b"again" } else { &[] };
        assert_eq!(refused(&library, command, data), overwrite, "{command:?}");
    }
    let read = Command::Read { length: Length::Variable(5), suppress_incorrect_length: false, at: None };
    assert_eq!(good(&library, &read, &[]), b"first");
    // Notes about a volume are no part of it: they go into the cartridge's memory as before.
    let barcode = [&[0x08, 0x06, 0x01, 0, 32][..], &[b'B'; 32]].concat();
    let list = [&(barcode.len() as u32).to_be_bytes()[..], &barcode].concat();
    let set = Command::WriteAttribute { write_through: false, partition: 0, len: list.len() as u32 };
    good(&library, &set, &list);
}

#[test]
fn what_a_cartridge_was_made_as_it_stays() {
    let (folder, library) = library("model = \"LTO-9\"", "");
    let volser = "A00003L9".parse().unwrap();
    library.create(&volser, 16 << 20, None, Rewritability::WriteOnce).unwrap();
    assert!(matches!(
        library.create(&volser, 16 << 20, None, Rewritability::Rewritable),
        Err(ShelfError::Taken { .. })
    ));
    drop(library);
    // The layout says how cartridges are made that are not there, and nothing of those that are.
    let path = folder.path().join(LAYOUT_FILE);
    let layout = std::fs::read_to_string(&path).unwrap().replace("worm = true", "worm = false");
    std::fs::write(&path, layout).unwrap();
    for barcode in ["A00001L9", "A00003L9"] {
        let library = Arc::new(ServedLibrary::open(folder.path(), None).unwrap());
        insert(&library, barcode);
        assert_eq!(drive(&library).load().unwrap().rewritability, Rewritability::WriteOnce, "{barcode}");
        ScsiChanger::open(way(&library, 0), "the library").unwrap().unload(0).unwrap();
    }
}
