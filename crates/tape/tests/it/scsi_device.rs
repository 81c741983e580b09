//! The conformance suite on a device of this host, through the generic driver: real, or in the guest.
//!
//! ```text
//! CAPSTAN_SCRATCH_DRIVE=/dev/sg1 cargo test -p capstan-tape --test it -- --ignored scsi_device
//! ```
//! The drive holds a cartridge that may be overwritten, and nobody else uses it.

use std::path::PathBuf;
use std::time::Duration;

use capstan_tape::conformance::{Readback, run};
use capstan_tape::hardware::{DriveCompression, ScsiDrive};
use capstan_tape::linux::scan::scan;
use capstan_tape::linux::sg::{SgDevice, Sharing};
use capstan_tape::scsi::{DataPhase, Transport};
use capstan_tape::{Drive, DriveError, Flush};

fn path() -> PathBuf {
    std::env::var_os("CAPSTAN_SCRATCH_DRIVE")
        .expect("CAPSTAN_SCRATCH_DRIVE names no drive: give one like /dev/sg1")
        .into()
}

fn device() -> SgDevice {
    SgDevice::open(path(), Sharing::Exclusive).unwrap()
}

fn drive() -> ScsiDrive<SgDevice> {
    let drive = ScsiDrive::open(device(), path().display().to_string(), DriveCompression::Off).unwrap();
    drive.with_on_wait(Box::new(|waiting| println!("{waiting}")))
}

#[test]
#[ignore = "overwrites the tape in CAPSTAN_SCRATCH_DRIVE"]
fn a_device_conforms() {
    let mut drive = drive();
    println!("{:?} {:?} {:?}", drive.identity(), drive.serial(), drive.block_limits());
    run(&mut drive, Readback::Keeps);
    drive.load().unwrap();
    println!("{:?}", drive.medium().unwrap());
    println!("{:?} {:?}", drive.alerts(), drive.statistics());
}

/// Another program opens the same drive through the kernel's tape driver in mid-session, as a check of its health may.
#[test]
#[ignore = "overwrites the tape in CAPSTAN_SCRATCH_DRIVE"]
fn what_the_tape_driver_does_meanwhile_is_noticed() {
    let real = std::fs::canonicalize(path()).unwrap();
    let nodes = scan().unwrap();
    let node = nodes.iter().find(|node| node.generic.as_deref() == Some(&real)).expect("the scan finds the drive");
    println!("{node:?}");
    let tape = node.tape.clone().expect("the kernel's tape driver has the drive, too");
    let mut drive = drive();
    drive.load().unwrap();
    for number in 0..10u64 {
        drive.write_block(&number.to_be_bytes()).unwrap();
    }
    drive.write_filemarks(0, Flush::Synchronous).unwrap();
    // It looks, and leaves the tape alone, then it moves it: a rewinding node rewinds when it is closed.
    drop(std::fs::File::open(&tape).unwrap());
    let rewinding = PathBuf::from(tape.to_str().unwrap().replace("nst", "st"));
    drive.locate(10).unwrap();
    drop(std::fs::File::open(rewinding).unwrap());
    let refused = drive.write_block(b"astray").unwrap_err();
    assert!(matches!(refused, DriveError::Reset { .. }), "{refused:?}");
    drive.locate(10).unwrap();
    drive.write_block(b"ten").unwrap();
    drive.locate(0).unwrap();
    let mut block = [0; 8];
    drive.read_block(&mut block).unwrap();
    assert_eq!(block, [0; 8], "block 0 was not written over");
}

/// One command of ours is one more in the kernel's count: where it is not, every write costs a look at the position.
#[test]
#[ignore = "needs CAPSTAN_SCRATCH_DRIVE"]
fn the_kernel_counts_as_we_do() {
    let mut device = device();
    let before = device.commands_seen().expect("the kernel counts commands");
    for _ in 0..10 {
        device.execute(&[0; 6], DataPhase::None, Duration::from_secs(10)).unwrap();
    }
    assert_eq!(device.commands_seen(), Some(before + 10));
    println!("moves up to {} bytes at once", device.data_max());
    let second = SgDevice::open(path(), Sharing::Exclusive).err().unwrap();
    assert_eq!(second.kind(), std::io::ErrorKind::ResourceBusy, "{second}");
}
