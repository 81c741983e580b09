//! Loading, waiting, reading, and drives that know less than others.

use std::sync::{Arc, Mutex};

use capstan_tape::hardware::{DriveCompression, ScsiDrive};
use capstan_tape::scsi::SenseKey;
use capstan_tape::{Drive, DriveError, Flush, ReadOutcome};

use super::script::{Leap, Script, Upset, sense};

const READ: u8 = 0x08;
const LOAD_UNLOAD: u8 = 0x1b;
const TEST_UNIT_READY: u8 = 0x00;

fn opened(script: &Script) -> ScsiDrive<Script> {
    let drive = ScsiDrive::open(script.clone(), "drive-0", DriveCompression::Off).unwrap();
    drive.with_clock(Box::new(Leap(0.0)))
}

fn loaded() -> (Script, ScsiDrive<Script>) {
    let script = Script::new();
    script.bench().end = 10;
    let mut drive = opened(&script);
    drive.load().unwrap();
    script.bench().log.clear();
    (script, drive)
}

#[test]
fn who_it_is_comes_from_the_drive() {
    let script = Script::new();
    for code in [0x28, 0x29, 0x2a] {
        script.bench().attentions.push_back(sense(SenseKey::UnitAttention, code, 0x00));
    }
    let drive = opened(&script);
    let identity = drive.identity();
    assert_eq!((identity.name.as_str(), identity.model.as_str(), identity.encrypts), ("drive-0", "LTO-9", false));
    assert_eq!(drive.serial(), Some("0013AABBCC"));
    // The drive has 8 MiB, the host can move 1 MiB.
    assert_eq!((drive.block_limits().min, drive.block_limits().max), (1, 1 << 20));
}

/// An LTO-9 cartridge's first load: an hour and a half of "becoming ready", told, and not taken for a hang.
#[test]
fn a_calibration_is_announced_and_waited_for() {
    let script = Script::new();
    let told = Arc::new(Mutex::new(Vec::new()));
    let listener = Arc::clone(&told);
    let drive = opened(&script);
    let mut drive = drive.with_on_wait(Box::new(move |waiting| listener.lock().unwrap().push(waiting.to_string())));
    {
        let mut bench = script.bench();
        bench.upset(TEST_UNIT_READY, Upset::Check(sense(SenseKey::NotReady, 0x3a, 0x00)));
        for _ in 0..1080 {
            bench.upset(TEST_UNIT_READY, Upset::Check(sense(SenseKey::NotReady, 0x04, 0x01)));
        }
    }
    drive.load().unwrap();
    let told = told.lock().unwrap();
    assert_eq!(told.len(), 1080);
    assert!(told[0].contains("drive-0 is not ready yet, 0 s so far"), "{}", told[0]);
    assert!(told[1079].contains("calibrates"), "{}", told[1079]);
    assert!(script.bench().opcodes().contains(&LOAD_UNLOAD));
}

#[test]
fn waiting_has_an_end() {
    let script = Script::new();
    let mut drive = opened(&script);
    for _ in 0..2000 {
        script.bench().upset(TEST_UNIT_READY, Upset::Check(sense(SenseKey::NotReady, 0x04, 0x01)));
    }
    let late = drive.load().unwrap_err();
    let told = matches!(&late, DriveError::NotReady { waited, .. } if waited.as_secs() >= 7200);
    assert!(told, "{late:?}");
    script.bench().upsets.clear();
    script.bench().upset(TEST_UNIT_READY, Upset::Check(sense(SenseKey::NotReady, 0x04, 0x03)));
    let now = drive.load().unwrap_err();
    assert!(matches!(now, DriveError::NotReady { .. }), "a person is needed: {now:?}");
}

#[test]
fn an_empty_drive_has_no_medium() {
    let script = Script::new();
    let mut drive = opened(&script);
    for opcode in [TEST_UNIT_READY, LOAD_UNLOAD] {
        script.bench().upset(opcode, Upset::Check(sense(SenseKey::NotReady, 0x3a, 0x00)));
    }
    let empty = drive.load().unwrap_err();
    assert!(matches!(empty, DriveError::NoMedium { .. }), "{empty:?}");
    script.bench().upset(TEST_UNIT_READY, Upset::Check(sense(SenseKey::NotReady, 0x30, 0x03)));
    let cleaning = drive.load().unwrap_err();
    assert!(matches!(cleaning, DriveError::CleaningCartridge { .. }), "{cleaning:?}");
}

/// Some libraries call a move done before the drive has noticed the cartridge: that it was empty ended the mount.
#[test]
fn a_cartridge_that_a_robot_has_just_brought_is_waited_for() {
    let script = Script::new();
    let told = Arc::new(Mutex::new(Vec::new()));
    let listener = Arc::clone(&told);
    let drive = opened(&script).fed_by_robot();
    let mut drive = drive.with_on_wait(Box::new(move |waiting| listener.lock().unwrap().push(waiting.to_string())));
    let empty = |looks: usize| {
        for _ in 0..looks {
            script.bench().upset(TEST_UNIT_READY, Upset::Check(sense(SenseKey::NotReady, 0x3a, 0x00)));
            script.bench().upset(LOAD_UNLOAD, Upset::Check(sense(SenseKey::NotReady, 0x3a, 0x00)));
        }
    };
    empty(20);
    // It has noticed it, and threads it by itself.
    script.bench().upset(TEST_UNIT_READY, Upset::Check(sense(SenseKey::NotReady, 0x04, 0x01)));
    drive.load().unwrap();
    let waits = std::mem::take(&mut *told.lock().unwrap());
    assert_eq!(waits.len(), 21);
    assert!(waits[19].contains("not ready yet, 19 s so far"), "{waits:?}");

    // It has noticed it, and is to be told to load it.
    drive.unload().unwrap();
    empty(10);
    script.bench().upset(TEST_UNIT_READY, Upset::Check(sense(SenseKey::NotReady, 0x3a, 0x00)));
    script.bench().log.clear();
    drive.load().unwrap();
    assert_eq!(script.bench().opcodes().iter().filter(|opcode| **opcode == LOAD_UNLOAD).count(), 11);

    told.lock().unwrap().clear();
    empty(1000);
    let missing = drive.load().unwrap_err();
    assert!(matches!(missing, DriveError::NoMedium { .. }), "{missing:?}");
    let told = told.lock().unwrap();
    assert!(told.last().is_some_and(|text| text.contains("55 s so far")), "{told:?}");
}

/// What lies in the buffer is gone with a reset: a load that meets one must not pass over it in silence.
#[test]
fn a_reset_before_a_load_is_told_if_blocks_were_not_flushed() {
    let (script, mut drive) = loaded();
    drive.write_block(b"zero").unwrap();
    script.bench().attentions.push_back(sense(SenseKey::UnitAttention, 0x29, 0x00));
    let told = drive.load().unwrap_err();
    assert!(matches!(told, DriveError::Reset { .. }), "{told:?}");
    drive.load().unwrap();

    drive.write_block(b"zero").unwrap();
    drive.write_filemarks(0, Flush::Synchronous).unwrap();
    script.bench().attentions.push_back(sense(SenseKey::UnitAttention, 0x29, 0x00));
    drive.load().unwrap();
}

#[test]
fn a_deferred_error_at_unload_is_told_and_the_cartridge_still_goes() {
    let (script, mut drive) = loaded();
    drive.write_block(b"zero").unwrap();
    script.bench().upset(0x10, Upset::Check(sense(SenseKey::MediumError, 0x0c, 0x00).deferred()));
    let told = drive.unload().unwrap_err();
    assert!(matches!(told, DriveError::Deferred { .. }), "{told:?}");
    assert_eq!(script.bench().opcodes().last(), Some(&LOAD_UNLOAD));

    drive.load().unwrap();
    drive.write_block(b"zero").unwrap();
    drive.write_filemarks(0, Flush::Synchronous).unwrap();
    script.bench().upset(LOAD_UNLOAD, Upset::Check(sense(SenseKey::MediumError, 0x0c, 0x00).deferred()));
    script.bench().log.clear();
    let told = drive.unload().unwrap_err();
    assert!(matches!(told, DriveError::Deferred { .. }), "{told:?}");
    assert_eq!(script.bench().opcodes(), [0x1e, LOAD_UNLOAD, LOAD_UNLOAD], "what told of it was not carried out");
}

#[test]
fn drives_that_know_only_short_forms_are_asked_in_those() {
    let script = Script::new();
    script.bench().end = 10;
    // Neither LOCATE(16) nor the long form of READ POSITION.
    let mut drive = opened(&script);
    script.bench().upset(0x92, Upset::Check(sense(SenseKey::IllegalRequest, 0x20, 0x00)));
    drive.load().unwrap();
    script.bench().upset(0x34, Upset::Check(sense(SenseKey::IllegalRequest, 0x24, 0x00)));
    let mut short = vec![0; 20];
    (short[7], short[11]) = (3, 3);
    script.bench().upset(0x34, Upset::Returns(short));
    script.bench().log.clear();
    drive.locate(3).unwrap();
    let bench = script.bench();
    assert_eq!(bench.log[0], [0x2b, 0, 0, 0, 0, 0, 3, 0, 0, 0]);
    assert_eq!(bench.log[1][..2], [0x34, 6]);
    assert_eq!(bench.log[2][..2], [0x34, 0]);
}

/// Some drives, and other people's virtual ones, know no LOCATE at all.
#[test]
fn a_drive_without_locate_counts_blocks_and_filemarks_from_the_beginning() {
    let (script, mut drive) = loaded();
    let unknown = || Upset::Check(sense(SenseKey::IllegalRequest, 0x20, 0x00));
    script.bench().upset(0x92, unknown());
    script.bench().upset(0x2b, unknown());
    // Two blocks, a filemark, five blocks more.
    let mut filemark = sense(SenseKey::NoSense, 0x00, 0x01).with_residual(6);
    filemark.filemark = true;
    script.bench().upset(0x11, Upset::Told(filemark));
    drive.locate(8).unwrap();
    let counts: Vec<_> = script.bench().log.iter().filter(|cdb| cdb[0] == 0x11).map(|cdb| (cdb[1], cdb[4])).collect();
    assert_eq!(counts, [(0, 8), (0, 5)]);
    drive.write_block(b"eight").unwrap();
    assert_eq!(script.bench().writes, [8]);
    script.bench().log.clear();
    drive.locate(0).unwrap();
    assert_eq!(script.bench().opcodes(), [0x01, 0x34]);
}

#[test]
fn lengths_are_told_by_the_residual_where_sili_would_hide_them() {
    let (script, mut drive) = loaded();
    let mut short = sense(SenseKey::NoSense, 0x00, 0x00).with_residual(900);
    short.incorrect_length = true;
    script.bench().upset(READ, Upset::Told(short));
    assert_eq!(drive.read_block(&mut [0; 1000]).unwrap(), ReadOutcome::Block(100));
    assert_eq!(script.bench().log[0][..5], [0x08, 0, 0, 0x03, 0xe8], "no SILI");

    let mut long = sense(SenseKey::NoSense, 0x00, 0x00).with_residual(-24);
    long.incorrect_length = true;
    script.bench().upset(READ, Upset::Told(long));
    let passed = drive.read_block(&mut [0; 1000]).unwrap_err();
    assert!(matches!(passed, DriveError::BlockTooLong { lbn: 1, found: 1024, buffer: 1000 }), "{passed:?}");
    assert_eq!(drive.position().unwrap().lbn, 2);

    // As long as any block can be: with SILI.
    script.bench().log.clear();
    let mut buffer = vec![0; 8 << 20];
    drive.read_block(&mut buffer).unwrap();
    assert_eq!(script.bench().log[0][..5], [0x08, 0, 0x10, 0, 0], "the host moves 1 MiB, and a block may be longer");
}

/// The kernel said that it moves 1 MiB in one command, and refused that with EINVAL: told as a matter of power and
/// cable, and a smaller `block_kib` did not help, as labels are read with all the room there is.
#[test]
fn a_host_that_moves_less_than_it_said_is_named_and_done_with() {
    let (script, mut drive) = loaded();
    script.bench().moves_at_most = 512 << 10;
    assert_eq!(drive.read_block(&mut vec![0; 1 << 20]).unwrap(), ReadOutcome::Block(512 << 10));
    assert_eq!(drive.block_limits().max, 512 << 10);
    script.bench().moves_at_most = 256 << 10;
    let refused = drive.write_block(&vec![0; 512 << 10]).unwrap_err();
    let told = "this host moves at most 262144 bytes in one command to drive drive-0, not 524288: set data.block_kib \
                in capstan.toml to 255 or less";
    assert!(refused.to_string().starts_with(told), "{refused}");
    drive.write_block(&vec![0; 256 << 10]).unwrap();
    assert_eq!(script.bench().writes, [1], "nothing was sent, so the position is known");
    let refused = drive.write_block(&vec![0; 512 << 10]).unwrap_err().to_string();
    assert!(refused.ends_with("1 to 262144: set data.block_kib in capstan.toml to 255 or less"), "{refused}");

    script.bench().at = 1;
    drive.locate(1).unwrap();
    let mut long = sense(SenseKey::NoSense, 0x00, 0x00).with_residual(-(256 << 10));
    long.incorrect_length = true;
    script.bench().upset(READ, Upset::Told(long));
    let passed = drive.read_block(&mut vec![0; 1 << 20]).unwrap_err();
    assert!(matches!(passed, DriveError::HostLimit { len: 0x8_0000, limit: 0x4_0000, .. }), "{passed:?}");
    assert_eq!(drive.position().unwrap().lbn, 2);
}

/// A read that met a servo error was told as a failed write, and the block was not recorded as bad.
#[test]
fn a_medium_error_of_a_read_is_a_block_that_cannot_be_read_whatever_its_code() {
    for (asc, ascq) in [(0x00, 0x00), (0x09, 0x00), (0x0c, 0x00), (0x11, 0x02), (0x3b, 0x00), (0x52, 0x00)] {
        let (script, mut drive) = loaded();
        drive.locate(2).unwrap();
        script.bench().upset(READ, Upset::Check(sense(SenseKey::MediumError, asc, ascq)));
        let failed = drive.read_block(&mut [0; 100]).unwrap_err();
        let told = matches!(failed, DriveError::ReadFailed { lbn: 2, .. }) && failed.blames_medium();
        assert!(told, "{asc:02x}/{ascq:02x}: {failed:?}");
        assert_eq!(drive.position().unwrap().lbn, 3);
    }
    let (script, mut drive) = loaded();
    script.bench().upset(READ, Upset::Check(sense(SenseKey::MediumError, 0x30, 0x00)));
    let unfit = drive.read_block(&mut [0; 100]).unwrap_err();
    assert!(matches!(unfit, DriveError::Incompatible { .. }), "of the wrong kind: {unfit:?}");
}

/// No block is read or written on the way to one.
#[test]
fn a_medium_error_on_the_way_to_a_block_is_no_failed_write() {
    let servo = || Upset::Check(sense(SenseKey::MediumError, 0x09, 0x00));
    for (opcode, name) in [(0x92, "LOCATE"), (0x11, "SPACE")] {
        let (script, mut drive) = loaded();
        script.bench().upset(opcode, servo());
        let failed = match opcode {
            0x92 => drive.locate(7).unwrap_err(),
            _ => drive.space_to_end_of_data().unwrap_err(),
        };
        assert!(matches!(failed, DriveError::Refused { command, .. } if command == name), "{failed:?}");
        assert!(matches!(drive.write_block(b"seven"), Err(DriveError::Reset { .. })));
        drive.locate(7).unwrap();
    }
    let (script, mut drive) = loaded();
    script.bench().upset(0x92, Upset::Check(sense(SenseKey::MediumError, 0x14, 0x00)));
    let missing = drive.locate(7).unwrap_err();
    assert!(matches!(missing, DriveError::ReadFailed { lbn: 7, .. }), "not where it stood: {missing:?}");
    // What cannot be read is the block, though the drive cannot go behind it either.
    drive.locate(3).unwrap();
    script.bench().upset(READ, servo());
    script.bench().upset(0x92, servo());
    let failed = drive.read_block(&mut [0; 100]).unwrap_err();
    assert!(matches!(failed, DriveError::ReadFailed { lbn: 3, .. }), "{failed:?}");
    assert!(matches!(drive.read_block(&mut [0; 100]), Err(DriveError::Reset { .. })));
}

#[test]
fn filemarks_end_of_data_and_errors_of_reading() {
    let (script, mut drive) = loaded();
    let mut filemark = sense(SenseKey::NoSense, 0x00, 0x01).with_residual(100);
    filemark.filemark = true;
    script.bench().upset(READ, Upset::Told(filemark));
    assert_eq!(drive.read_block(&mut [0; 100]).unwrap(), ReadOutcome::Filemark);
    assert_eq!(drive.position().unwrap().lbn, 1);

    script.bench().upset(READ, Upset::Told(sense(SenseKey::RecoveredError, 0x17, 0x01)));
    assert_eq!(drive.read_block(&mut [0; 100]).unwrap(), ReadOutcome::Block(100));
    assert_eq!(drive.statistics().recovered_errors, 1);

    // The drive stays in front of what it cannot read; it is passed over all the same.
    script.bench().upset(READ, Upset::Check(sense(SenseKey::MediumError, 0x11, 0x00)));
    let failed = drive.read_block(&mut [0; 100]).unwrap_err();
    assert!(matches!(failed, DriveError::ReadFailed { lbn: 2, .. }), "{failed:?}");
    assert_eq!(drive.position().unwrap().lbn, 3);

    drive.space_to_end_of_data().unwrap();
    assert_eq!(drive.read_block(&mut [0; 100]).unwrap(), ReadOutcome::EndOfData);
    assert_eq!(drive.position().unwrap().lbn, 10);
    script.bench().upset(0x11, Upset::Check(sense(SenseKey::BlankCheck, 0x00, 0x05)));
    drive.space_to_end_of_data().unwrap();
    let beyond = drive.locate(11).unwrap_err();
    assert!(matches!(beyond, DriveError::BlankCheck { lbn: 11, end_of_data: 10 }), "{beyond:?}");

    script.bench().upset(READ, Upset::Check(sense(SenseKey::BlankCheck, 0x14, 0x03)));
    let lost = drive.read_block(&mut [0; 100]).unwrap_err();
    assert!(matches!(lost, DriveError::EndOfDataLost { .. }), "{lost:?}");
}
