//! No write goes to a position that was not verified.

use capstan_tape::hardware::{DriveCompression, ScsiDrive};
use capstan_tape::scsi::SenseKey;
use capstan_tape::{Drive, DriveError, Flush, WriteOutcome};

use super::script::{Leap, Script, Upset, sense};

const WRITE: u8 = 0x0a;
const FILEMARKS: u8 = 0x10;
const READ_ATTRIBUTE: u8 = 0x8c;
const READ_POSITION: u8 = 0x34;
const TEST_UNIT_READY: u8 = 0x00;

/// A drive with a loaded tape of ten blocks, which stands behind the fourth.
fn drive() -> (Script, ScsiDrive<Script>) {
    let script = Script::new();
    script.bench().end = 10;
    let drive = ScsiDrive::open(script.clone(), "drive-0", DriveCompression::Off).unwrap();
    let mut drive = drive.with_clock(Box::new(Leap(0.0)));
    drive.load().unwrap();
    drive.locate(4).unwrap();
    drive.write_block(b"four").unwrap();
    script.bench().log.clear();
    script.bench().writes.clear();
    (script, drive)
}

fn reset() -> capstan_tape::scsi::SenseData {
    sense(SenseKey::UnitAttention, 0x29, 0x00)
}

#[test]
fn a_write_goes_out_alone_where_nobody_else_sent_anything() {
    let (script, mut drive) = drive();
    drive.write_block(b"five").unwrap();
    drive.write_filemarks(1, Flush::Buffered).unwrap();
    assert_eq!(script.bench().opcodes(), [WRITE, FILEMARKS]);
    assert_eq!(script.bench().writes, [5, 6]);
}

/// Whatever happens, the next write is refused until a locate, and goes to the block that was located.
#[test]
fn whatever_may_have_moved_the_tape_stops_writes_until_a_locate() {
    type Told = fn(&DriveError) -> bool;
    let aborted = sense(SenseKey::AbortedCommand, 0x00, 0x00);
    let deferred = sense(SenseKey::MediumError, 0x0c, 0x00).deferred();
    let cases: &[(&str, Upset, Told)] = &[
        ("reset", Upset::Check(reset()), |error| matches!(error, DriveError::Reset { .. })),
        ("medium changed", Upset::Check(sense(SenseKey::UnitAttention, 0x28, 0x00)), |error| {
            matches!(error, DriveError::Reset { .. })
        }),
        ("another attention", Upset::Check(sense(SenseKey::UnitAttention, 0x3f, 0x01)), |error| {
            matches!(error, DriveError::Reset { .. })
        }),
        ("time-out", Upset::Timeout, |error| matches!(error, DriveError::OutOfReach { .. })),
        ("aborted", Upset::Check(aborted), |error| matches!(error, DriveError::Aborted { .. })),
        ("deferred", Upset::Check(deferred), |error| matches!(error, DriveError::Deferred { .. })),
        ("write error", Upset::Check(sense(SenseKey::MediumError, 0x0c, 0x00)), |error| {
            matches!(error, DriveError::WriteFailed { lbn: 5, .. })
        }),
        ("hardware", Upset::Check(sense(SenseKey::HardwareError, 0x44, 0x00)), |error| {
            matches!(error, DriveError::Hardware { .. })
        }),
    ];
    for (name, upset, is_told) in cases {
        for (opcode, ends_at) in [(WRITE, 2), (FILEMARKS, 2), (WRITE, 5), (FILEMARKS, 5)] {
            let (script, mut drive) = drive();
            script.bench().upset(opcode, upset.clone());
            let failed = if opcode == WRITE {
                drive.write_block(b"five").unwrap_err()
            } else {
                drive.write_filemarks(1, Flush::Synchronous).unwrap_err()
            };
            assert!(is_told(&failed), "{name}: {failed:?}");
            // The tape is somewhere else, or where it was: that alone is no reason to go on, as what lay in the buffer
            // may be lost.
            script.bench().at = ends_at;
            for _ in 0..2 {
                let refused = drive.write_block(b"six").unwrap_err();
                assert!(matches!(refused, DriveError::Reset { .. }), "{name}: {refused:?}");
                let refused = drive.write_filemarks(1, Flush::Buffered).unwrap_err();
                assert!(matches!(refused, DriveError::Reset { .. }), "{name}: {refused:?}");
                let refused = drive.position().unwrap_err();
                assert!(matches!(refused, DriveError::Reset { .. }), "{name}: {refused:?}");
            }
            assert_eq!(script.bench().writes, [], "{name}");
            drive.locate(4).unwrap();
            drive.write_block(b"four").unwrap();
            assert_eq!(script.bench().writes, [4], "{name}");
        }
    }
}

/// Drives have many codes for a medium that does not take a block. Most were told as a command that the drive refused,
/// or as a block that cannot be read, and the next job was sent to the same place of the same volume.
#[test]
fn a_medium_error_of_a_write_is_a_failed_write_whatever_its_code() {
    const CODES: [(u8, u8); 13] = [
        (0x00, 0x00),
        (0x03, 0x02),
        (0x09, 0x00),
        (0x0c, 0x00),
        (0x0c, 0x02),
        (0x11, 0x00),
        (0x14, 0x00),
        (0x31, 0x00),
        (0x33, 0x00),
        (0x3b, 0x00),
        (0x50, 0x00),
        (0x52, 0x00),
        (0x80, 0x01),
    ];
    let fails = |asc, ascq, opcode| {
        let (script, mut drive) = drive();
        script.bench().upset(opcode, Upset::Check(sense(SenseKey::MediumError, asc, ascq)));
        let failed = match opcode {
            WRITE => drive.write_block(b"five").unwrap_err(),
            _ => drive.write_filemarks(1, Flush::Synchronous).unwrap_err(),
        };
        (failed, drive.write_block(b"six"))
    };
    for opcode in [WRITE, FILEMARKS] {
        for (asc, ascq) in CODES {
            let (failed, again) = fails(asc, ascq, opcode);
            let told = matches!(failed, DriveError::WriteFailed { lbn: 5, .. }) && failed.is_failed_write();
            assert!(told, "{asc:02x}/{ascq:02x}: {failed:?}");
            assert!(matches!(again, Err(DriveError::Reset { .. })), "{asc:02x}/{ascq:02x}: {again:?}");
        }
        let (failed, again) = fails(0x30, 0x00, opcode);
        assert!(matches!(failed, DriveError::Incompatible { .. }), "of the wrong kind: {failed:?}");
        again.unwrap();
    }
}

/// The kernel's tape driver, or a health check, took the unit attention: it never reached this handle.
#[test]
fn an_attention_that_somebody_else_took_is_found_by_the_position() {
    let (script, mut drive) = drive();
    {
        let mut bench = script.bench();
        bench.at = 0;
        bench.seen = bench.seen.map(|seen| seen + 1);
    }
    let refused = drive.write_block(b"five").unwrap_err();
    // A foreign REWIND looks the same, and was told as a reset that had not been.
    let told = "another program on this host sent 1 commands to drive drive-0 in mid-session, and it stands at block 0 instead of 5";
    assert!(refused.to_string().starts_with(told), "{refused}");
    assert_eq!(script.bench().opcodes(), [READ_POSITION]);
    assert!(matches!(drive.write_block(b"five"), Err(DriveError::Reset { .. })));
    drive.locate(5).unwrap();
    drive.write_block(b"five").unwrap();
    assert_eq!(script.bench().writes, [5]);
}

#[test]
fn a_look_by_somebody_else_costs_two_questions_and_no_more() {
    let (script, mut drive) = drive();
    let seen = script.bench().seen;
    script.bench().seen = seen.map(|seen| seen + 3);
    drive.write_block(b"five").unwrap();
    drive.write_block(b"six").unwrap();
    // Where it stands, and whether it is the same cartridge.
    assert_eq!(script.bench().opcodes(), [READ_POSITION, READ_ATTRIBUTE, WRITE, WRITE]);
}

#[test]
fn where_nobody_counts_every_write_is_preceded_by_a_look() {
    let (script, mut drive) = drive();
    script.bench().seen = None;
    drive.write_block(b"five").unwrap();
    drive.write_filemarks(0, Flush::Synchronous).unwrap();
    assert_eq!(script.bench().opcodes(), [READ_POSITION, WRITE, READ_POSITION, FILEMARKS]);
    script.bench().at = 0;
    let refused = drive.write_block(b"six").unwrap_err();
    assert!(matches!(refused, DriveError::Reset { .. }), "{refused:?}");
}

/// A drive that has lost its way says so by the position that it gives.
#[test]
fn a_locate_that_ends_elsewhere_is_a_failure() {
    let (script, mut drive) = drive();
    elsewhere_again(&script);
    let failed = drive.locate(3).unwrap_err();
    assert!(matches!(failed, DriveError::Hardware { .. }), "{failed:?}");
    assert!(drive.write_block(b"three").is_err());
    // The right block of another partition.
    let mut elsewhere = vec![0; 32];
    (elsewhere[7], elsewhere[15]) = (1, 4);
    script.bench().upset(READ_POSITION, Upset::Returns(elsewhere));
    let failed = drive.locate(4).unwrap_err();
    assert!(matches!(failed, DriveError::Hardware { .. }), "{failed:?}");
    assert!(drive.write_block(b"four").is_err());
    // Beyond the end of data, which is behind it.
    elsewhere_again(&script);
    let failed = drive.locate(6).unwrap_err();
    assert!(matches!(failed, DriveError::Hardware { .. }), "{failed:?}");
    assert!(drive.write_block(b"six").is_err());
    assert_eq!(script.bench().writes, []);
}

/// READ POSITION returns block 7.
fn elsewhere_again(script: &Script) {
    let mut elsewhere = vec![0; 32];
    elsewhere[15] = 7;
    script.bench().upset(READ_POSITION, Upset::Returns(elsewhere));
}

#[test]
fn another_cartridge_after_an_attention_is_not_written() {
    let (script, mut drive) = drive();
    script.bench().attentions.push_back(sense(SenseKey::UnitAttention, 0x28, 0x00));
    script.bench().cartridge = "SERIAL2".to_owned();
    assert!(matches!(drive.write_block(b"five"), Err(DriveError::Reset { .. })));
    let changed = drive.locate(5).unwrap_err();
    let told = matches!(&changed, DriveError::MediumChanged { found, .. } if found.contains("SERIAL2"));
    assert!(told, "{changed:?}");
    assert!(matches!(drive.write_block(b"five"), Err(DriveError::NoMedium { .. })));
    assert_eq!(script.bench().writes, []);
    drive.load().unwrap();
    drive.write_block(b"zero").unwrap();
}

/// A reset sets block length, buffering and compression back: they are set again before anything is written.
#[test]
fn modes_are_set_again_after_a_reset() {
    let (script, mut drive) = drive();
    script.bench().attentions.push_back(reset());
    assert!(drive.write_block(b"five").is_err());
    // A second one, while the first is being dealt with, is no news.
    script.bench().attentions.push_back(sense(SenseKey::UnitAttention, 0x2a, 0x01));
    script.bench().log.clear();
    drive.locate(5).unwrap();
    let bench = script.bench();
    let select = bench.log.iter().find(|cdb| cdb[0] == 0x15).expect("MODE SELECT");
    assert_eq!(select[1], 0x10, "page format");
    assert_eq!(bench.opcodes()[..2], [TEST_UNIT_READY, TEST_UNIT_READY]);
}

#[test]
fn early_warning_and_the_end_of_the_medium() {
    let (script, mut drive) = drive();
    let mut warning = sense(SenseKey::NoSense, 0x00, 0x02);
    warning.end_of_medium = true;
    script.bench().upset(WRITE, Upset::Told(warning));
    assert_eq!(drive.write_block(b"five").unwrap(), WriteOutcome::EarlyWarning);
    assert_eq!(drive.position().unwrap().lbn, 6);
    // A flush behind early warning says so, though the drive does not say it again.
    assert_eq!(drive.write_filemarks(0, Flush::Synchronous).unwrap(), WriteOutcome::EarlyWarning);
    let full = sense(SenseKey::VolumeOverflow, 0x00, 0x02);
    script.bench().upset(WRITE, Upset::Check(full));
    let ended = drive.write_block(b"six").unwrap_err();
    assert!(matches!(ended, DriveError::EndOfMedium { lbn: 6 }), "{ended:?}");
    assert_eq!(drive.position().unwrap().lbn, 6);
    assert_eq!(script.bench().writes, [5]);
    // Recovered, with a number that is no residual here: it was taken.
    script.bench().upset(WRITE, Upset::Told(sense(SenseKey::RecoveredError, 0x0c, 0x00).with_residual(77)));
    assert_eq!(drive.write_block(b"six").unwrap(), WriteOutcome::Written);
    assert_eq!(drive.position().unwrap().lbn, 7);
    // It says that it stands where it cannot.
    script.bench().upset(WRITE, Upset::Check(full));
    script.bench().at = 2;
    let lost = drive.write_block(b"six").unwrap_err();
    assert!(matches!(lost, DriveError::Reset { .. }), "{lost:?}");
}

/// The mark was counted, and blocks of the checkpoint that it was to flush were still in the buffer.
#[test]
fn a_mark_that_a_full_medium_takes_flushes_what_the_buffer_still_has() {
    let full = sense(SenseKey::VolumeOverflow, 0x00, 0x02);
    let (script, mut drive) = drive();
    script.bench().upset(FILEMARKS, Upset::Told(full));
    assert_eq!(drive.write_filemarks(1, Flush::Synchronous).unwrap(), WriteOutcome::EarlyWarning);
    assert_eq!(script.bench().opcodes(), [FILEMARKS, READ_POSITION, FILEMARKS]);
    assert_eq!(drive.position().unwrap().lbn, 6);
    let (script, mut drive) = self::drive();
    script.bench().upset(FILEMARKS, Upset::Told(full));
    script.bench().upset(FILEMARKS, Upset::Check(full));
    let lost = drive.write_filemarks(1, Flush::Synchronous).unwrap_err();
    assert!(matches!(lost, DriveError::Deferred { .. }), "{lost:?}");
    assert!(matches!(drive.write_block(b"six"), Err(DriveError::Reset { .. })));
}

#[test]
fn a_reservation_that_was_taken_is_not_taken_back() {
    let (script, mut drive) = drive();
    drive.reserve(0x1234, &|_| false).unwrap();
    script.bench().attentions.push_back(sense(SenseKey::UnitAttention, 0x2a, 0x03));
    let lost = drive.write_block(b"five").unwrap_err();
    assert!(matches!(lost, DriveError::ReservationLost { .. }), "{lost:?}");
    drive.locate(5).unwrap();
    for _ in 0..2 {
        let refused = drive.write_block(b"five").unwrap_err();
        assert!(matches!(refused, DriveError::ReservationLost { .. }), "{refused:?}");
    }
    assert_eq!(script.bench().writes, []);
    drive.reserve(0x1234, &|_| false).unwrap();
    drive.write_block(b"five").unwrap();
    script.bench().upset(WRITE, Upset::Conflict);
    let lost = drive.write_block(b"six").unwrap_err();
    assert!(matches!(lost, DriveError::ReservationLost { .. }), "{lost:?}");
}

#[test]
fn a_write_that_the_adapter_cut_is_not_taken_for_written() {
    let (script, mut drive) = drive();
    script.bench().upset(WRITE, Upset::Returns(Vec::new()));
    let cut = drive.write_block(b"five").unwrap_err();
    assert!(matches!(cut, DriveError::Hardware { .. }), "{cut:?}");
    assert!(matches!(drive.write_block(b"six"), Err(DriveError::Reset { .. })));
}
