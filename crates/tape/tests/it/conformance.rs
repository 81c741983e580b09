//! Every kind of drive passes the same suite.

use capstan_format::KeyTag;
use capstan_tape::conformance::{self, Readback};
use capstan_tape::model::built_in;
use capstan_tape::{
    CartridgeDrive, CartridgeSpec, Changer, Drive, KeySlotKind, Keyed, Library, NullDrive, PaceClock, Paced,
    Rewritability, Tab, VirtualLibrary,
};

fn spec(volser: &str) -> CartridgeSpec {
    CartridgeSpec {
        volser: volser.parse().unwrap(),
        capacity_bytes: 64 << 20,
        early_warning_bytes: 1 << 20,
        generation: "virtual".to_owned(),
    }
}

#[test]
fn null_drive() {
    conformance::run(&mut NullDrive::new(), Readback::Forgets);
}

#[test]
fn virtual_drive_with_and_without_key_slot() {
    for key_slot in [KeySlotKind::Fitted, KeySlotKind::Missing] {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("A00001.tape");
        spec("A00001").create(&path).unwrap();
        conformance::run(&mut CartridgeDrive::new("virtual-0", path, key_slot), Readback::Keeps);
    }
}

/// A clock that is always there where it is waited for.
struct Hurried(f64);

impl PaceClock for Hurried {
    fn now_s(&self) -> f64 {
        self.0
    }

    fn wait_until(&mut self, at_s: f64) {
        self.0 = self.0.max(at_s);
    }
}

#[test]
fn write_once_cartridge_in_a_virtual_drive_bare_and_paced() {
    for key_slot in [KeySlotKind::Fitted, KeySlotKind::Missing] {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("A00001.tape");
        spec("A00001").create_as(&path, Rewritability::WriteOnce).unwrap();
        conformance::run_write_once(&mut CartridgeDrive::new("virtual-0", &path, key_slot));
        std::fs::remove_file(&path).unwrap();
        spec("A00001").create_as(&path, Rewritability::WriteOnce).unwrap();
        let drive = CartridgeDrive::new("virtual-0", path, key_slot);
        conformance::run_write_once(&mut Paced::new(drive, built_in("LTO-6").unwrap(), Hurried(0.0)));
    }
}

/// What is on it stays, whatever the tab does and whoever slides it.
#[test]
fn a_write_once_cartridge_stays_one() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("A00001.tape");
    spec("A00001").create_as(&path, Rewritability::WriteOnce).unwrap();
    for tab in [Tab::Protected, Tab::Writable] {
        tab.slide(&path).unwrap();
        let medium = CartridgeDrive::new("virtual-0", &path, KeySlotKind::Missing).load().unwrap();
        assert_eq!(medium.rewritability, Rewritability::WriteOnce);
        assert_eq!(medium.write_protected, tab == Tab::Protected);
    }
}

#[test]
fn paced_drive() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("A00001.tape");
    spec("A00001").create(&path).unwrap();
    let drive = CartridgeDrive::new("virtual-0", path, KeySlotKind::Fitted);
    conformance::run(&mut Paced::new(drive, built_in("LTO-6").unwrap(), Hurried(0.0)), Readback::Keeps);
}

/// It has none of the keys that the suite loads: then it must be like the drive inside.
#[test]
fn drive_that_fetches_keys() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("A00001.tape");
    spec("A00001").create(&path).unwrap();
    let drive = CartridgeDrive::new("virtual-0", path, KeySlotKind::Fitted);
    conformance::run(&mut Keyed::new(drive, |_: &KeyTag| Err("nobody has it")), Readback::Keeps);
}

#[test]
fn drive_of_a_virtual_library() {
    let directory = tempfile::tempdir().unwrap();
    let mut library = VirtualLibrary::open(directory.path(), 2).unwrap();
    library.create_cartridge(&spec("A00001")).unwrap();
    library.load(&"A00001".parse().unwrap(), 1).unwrap();
    conformance::run(&mut library.drive(1, KeySlotKind::Fitted).unwrap(), Readback::Keeps);
    library.unload(1).unwrap();
}
