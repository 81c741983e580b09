//! Keys: none is trusted before the drive has named it, and none is used after the drive may have lost it.

use capstan_format::{Algorithm, KeyTag};
use capstan_tape::hardware::{DriveCompression, ScsiDrive};
use capstan_tape::scsi::SenseKey;
use capstan_tape::scsi::encryption::{AlgorithmEntry, capabilities};
use capstan_tape::{Drive, DriveError, DriveKey, EncryptionState, Flush, ReadOutcome, WriteOutcome};

use super::script::{KeyState, Leap, Script, Upset, sense};

fn drive(blocks: u64, on_tape: &[u8]) -> (Script, ScsiDrive<Script>) {
    let script = Script::new();
    {
        let mut bench = script.bench();
        bench.end = blocks;
        bench.key = Some(KeyState::default());
        bench.on_tape = on_tape.to_vec();
    }
    let drive = ScsiDrive::open(script.clone(), "drive-0", DriveCompression::Off).unwrap();
    let mut drive = drive.with_clock(Box::new(Leap(0.0)));
    drive.load().unwrap();
    (script, drive)
}

fn key(number: u8) -> Option<DriveKey> {
    Some(DriveKey { tag: KeyTag([number; 16]), algorithm: Algorithm::Aes256Gcm, key: [0x5a; 32] })
}

#[test]
fn a_key_that_the_drive_does_not_name_is_not_trusted() {
    let (script, mut drive) = drive(0, &[]);
    assert!(drive.identity().encrypts);
    script.bench().key = Some(KeyState { is_deaf: true, ..KeyState::default() });
    let refused = drive.set_key(key(1)).unwrap_err();
    assert!(matches!(refused, DriveError::KeyNotTaken { .. }), "{refused:?}");

    script.bench().key = Some(KeyState::default());
    let ccm = DriveKey { algorithm: Algorithm::Aes256Ccm, ..key(1).unwrap() };
    let missing = drive.set_key(Some(ccm)).unwrap_err();
    assert!(missing.to_string().contains("has no AES-256-CCM: take a key for AES-256-GCM"), "{missing}");
}

/// A session that ended in the middle, or another host: the next one's plain blocks must not be encrypted with that
/// key.
#[test]
fn a_key_that_was_left_behind_is_cleared_by_the_load() {
    let (script, mut drive) = drive(0, &[]);
    script.bench().key = Some(KeyState { modes: (2, 2), instance: 5, data: vec![9; 16], is_deaf: false });
    drive.load().unwrap();
    assert_eq!(script.bench().key.as_ref().unwrap().modes, (0, 0));
    // A plain pool's volume is labelled and written without a key, and the page that says so names a cipher that the
    // drive lists.
    drive.set_key(None).unwrap();
    drive.write_block(b"zero").unwrap();
    // One that cannot be cleared is a key manager's.
    script.bench().key.as_mut().unwrap().modes = (2, 2);
    script.bench().upset(0xb5, Upset::Check(sense(SenseKey::IllegalRequest, 0x74, 0x21)));
    drive.load().unwrap();
    assert!(!drive.identity().encrypts);
    assert!(matches!(drive.set_key(key(1)), Err(DriveError::KeysFromElsewhere { .. })));
}

/// A library that manages encryption and has it off for this volume: that was noticed only by a clear that the drive
/// refused, and a volume without encryption could not be labelled.
#[test]
fn a_drive_whose_keys_come_from_elsewhere_is_written_without_keys_of_ours() {
    let entry =
        AlgorithmEntry { index: 1, algorithm: Algorithm::Aes256Gcm, unauthenticated_max: 32, authenticated_max: 12 };
    let prevented = || Upset::Check(sense(SenseKey::IllegalRequest, 0x74, 0x21));
    for page_tells in [true, false] {
        let script = Script::new();
        script.bench().key = Some(KeyState::default());
        if page_tells {
            let mut page = capabilities(&[entry], false);
            page[4] = 0x06;
            script.bench().upset(0xa2, Upset::Returns(page));
        }
        let drive = ScsiDrive::open(script.clone(), "drive-0", DriveCompression::Off).unwrap();
        let mut drive = drive.with_clock(Box::new(Leap(0.0)));
        assert_eq!(drive.identity().encrypts, !page_tells);
        drive.load().unwrap();
        script.bench().upset(0xb5, prevented());
        script.bench().log.clear();
        drive.set_key(None).unwrap();
        assert_eq!(script.bench().opcodes().contains(&0xb5), !page_tells);
        drive.write_block(b"zero").unwrap();
        assert!(!drive.identity().encrypts);
        assert!(matches!(drive.set_key(key(1)), Err(DriveError::KeysFromElsewhere { .. })));
    }
    // A key of ours that cannot be cleared is told.
    let (script, mut drive) = drive(0, &[]);
    drive.set_key(key(1)).unwrap();
    script.bench().upset(0xb5, prevented());
    assert!(matches!(drive.set_key(None), Err(DriveError::KeysFromElsewhere { .. })));
}

#[test]
fn after_a_reset_nothing_is_written_until_the_key_is_loaded_again() {
    let (script, mut drive) = drive(0, &[]);
    drive.set_key(key(1)).unwrap();
    drive.write_block(b"zero").unwrap();
    script.bench().on_tape = vec![1; 16];
    script.bench().attentions.push_back(sense(SenseKey::UnitAttention, 0x29, 0x00));
    script.bench().key.as_mut().unwrap().modes = (0, 0);
    assert!(matches!(drive.write_block(b"one"), Err(DriveError::Reset { .. })));
    drive.locate(1).unwrap();
    let refused = drive.write_block(b"one").unwrap_err();
    assert!(matches!(refused, DriveError::Reset { .. }), "in plain: {refused:?}");
    drive.set_key(key(1)).unwrap();
    drive.write_block(b"one").unwrap();
    assert_eq!(script.bench().writes, [0, 1]);
    assert_eq!(script.bench().key.as_ref().unwrap().modes, (2, 2));
}

/// Somebody else was there and the tape stands where it stood, but the key is another's, or gone.
#[test]
fn a_key_that_was_changed_by_somebody_else_is_not_written_with() {
    let (script, mut drive) = drive(0, &[]);
    drive.set_key(key(1)).unwrap();
    drive.write_block(b"zero").unwrap();
    {
        let mut bench = script.bench();
        bench.seen = bench.seen.map(|seen| seen + 1);
        bench.key.as_mut().unwrap().instance += 1;
    }
    let refused = drive.write_block(b"one").unwrap_err();
    assert!(matches!(refused, DriveError::KeyLost { .. }), "{refused:?}");
    assert!(matches!(drive.write_block(b"one"), Err(DriveError::Reset { .. })));

    // The same without a key, where somebody has put one in.
    let (script, mut drive) = self::drive(0, &[]);
    drive.write_block(b"zero").unwrap();
    {
        let mut bench = script.bench();
        bench.seen = bench.seen.map(|seen| seen + 1);
        bench.key.as_mut().unwrap().modes = (2, 2);
    }
    let refused = drive.write_block(b"one").unwrap_err();
    assert!(matches!(refused, DriveError::KeyLost { .. }), "{refused:?}");
    assert_eq!(script.bench().writes, [0]);
}

#[test]
fn a_block_names_the_key_that_it_needs() {
    let (script, mut drive) = drive(3, &[7; 16]);
    let encrypted = EncryptionState::Encrypted { algorithm: Algorithm::Aes256Gcm, tag: KeyTag([7; 16]) };
    assert_eq!(drive.medium().unwrap().encryption, encrypted);
    script.bench().upset(0x08, Upset::Check(sense(SenseKey::DataProtect, 0x74, 0x01)));
    let without = drive.read_block(&mut [0; 100]).unwrap_err();
    let told = matches!(&without, DriveError::NoKey { lbn: 0, tag, .. } if *tag == KeyTag([7; 16]));
    assert!(told, "{without:?}");
    drive.set_key(key(2)).unwrap();
    // A drive that has moved over what it could not decrypt is brought back.
    script.bench().upset(0x08, Upset::Check(sense(SenseKey::DataProtect, 0x74, 0x03)));
    script.bench().at = 1;
    let mut buffer = [0xee; 100];
    let wrong = drive.read_block(&mut buffer).unwrap_err();
    let told = matches!(&wrong, DriveError::WrongKey { needed, loaded, .. }
        if (*needed, *loaded) == (KeyTag([7; 16]), KeyTag([2; 16])));
    assert!(told, "{wrong:?}");
    assert_eq!(buffer, [0; 100], "nothing may come out without the key");
    assert_eq!(drive.position().unwrap().lbn, 0);
    drive.locate(3).unwrap();
    drive.set_key(None).unwrap();
    let append = drive.write_block(b"three").unwrap_err();
    assert!(matches!(append, DriveError::MixedEncryption { .. }), "{append:?}");
    // A further key on the same volume: the medium's first one stays what it is.
    drive.set_key(key(2)).unwrap();
    drive.write_block(b"three").unwrap();
    assert_eq!(script.bench().writes, [3]);
    assert_eq!(drive.medium().unwrap().encryption, encrypted);

    drive.set_key(key(7)).unwrap();
    drive.locate(0).unwrap();
    script.bench().upset(0x08, Upset::Check(sense(SenseKey::DataProtect, 0x74, 0x04)));
    let altered = drive.read_block(&mut buffer).unwrap_err();
    assert!(matches!(altered, DriveError::Integrity { lbn: 0 }), "{altered:?}");
    assert_eq!(drive.position().unwrap().lbn, 1);
    script.bench().upset(0x08, Upset::Check(sense(SenseKey::DataProtect, 0x74, 0x02)));
    let foisted = drive.read_block(&mut buffer).unwrap_err();
    assert!(matches!(foisted, DriveError::PlainBlock { lbn: 1 }), "no tag failed: {foisted:?}");
}

/// A drive that cannot name the key of a block, on a volume with several: the volume's first key, which is loaded, was
/// taken for the block's, and the block for altered.
#[test]
fn a_block_whose_key_the_drive_cannot_name_is_not_taken_for_altered() {
    let mut nameless = vec![0; 16];
    (nameless[1], nameless[3], nameless[12]) = (0x21, 12, 6);
    let refused = Upset::Check(sense(SenseKey::IllegalRequest, 0x24, 0x00));
    for page in [refused, Upset::Returns(nameless)] {
        for ascq in [0x01, 0x03, 0x05] {
            let (script, mut drive) = drive(3, &[7; 16]);
            drive.set_key(key(7)).unwrap();
            script.bench().upset(0x08, Upset::Check(sense(SenseKey::DataProtect, 0x74, ascq)));
            script.bench().upset(0xa2, page.clone());
            let wrong = drive.read_block(&mut [0; 100]).unwrap_err();
            let told = matches!(&wrong, DriveError::WrongKey { needed, loaded, .. }
                if (*needed, *loaded) == (KeyTag([0; 16]), KeyTag([7; 16])));
            assert!(told && !wrong.blames_medium(), "{ascq:02x}: {wrong:?}");
            assert_eq!(drive.position().unwrap().lbn, 0, "another key may open it");
            // The drive names the loaded one, and cannot open the block.
            script.bench().upset(0x08, Upset::Check(sense(SenseKey::DataProtect, 0x74, ascq)));
            let altered = drive.read_block(&mut [0; 100]).unwrap_err();
            assert!(matches!(altered, DriveError::Integrity { lbn: 0 }), "{ascq:02x}: {altered:?}");
        }
    }
}

/// A drive that decrypts refuses plain blocks. On a plain volume the key is taken out to read, and is back before it is
/// needed.
#[test]
fn a_plain_volume_is_read_with_a_key_at_hand_and_overwritten_with_it() {
    let (script, mut drive) = drive(3, &[]);
    drive.set_key(key(1)).unwrap();
    script.bench().upset(0x08, Upset::Check(sense(SenseKey::DataProtect, 0x74, 0x02)));
    assert_eq!(drive.read_block(&mut [0; 100]).unwrap(), ReadOutcome::Block(100));
    assert_eq!(script.bench().key.as_ref().unwrap().modes, (0, 0));
    let mixed = drive.write_block(b"one").unwrap_err();
    assert!(matches!(mixed, DriveError::MixedEncryption { .. }), "{mixed:?}");
    drive.locate(0).unwrap();
    drive.write_block(b"zero").unwrap();
    assert_eq!(script.bench().key.as_ref().unwrap().modes, (2, 2));
    let encrypted = EncryptionState::Encrypted { algorithm: Algorithm::Aes256Gcm, tag: KeyTag([1; 16]) };
    assert_eq!(drive.medium().unwrap().encryption, encrypted);
}

/// A drive that says it encrypts and does not, or not with this key: found at the first flush, by what stands on the
/// tape. A block under another key is one that the drive itself has no key for, and that was taken for proof.
#[test]
fn the_first_block_is_looked_at_on_the_tape() {
    let mut other_cipher = vec![0; 16];
    (other_cipher[1], other_cipher[3], other_cipher[12]) = (0x21, 12, 4);
    let mut untold = other_cipher.clone();
    untold[12] = 1;
    // What the tape holds, the page that says so if it is another one, and what is told.
    type Case = (&'static [u8], Option<Vec<u8>>, Option<&'static str>);
    let cases: [Case; 5] = [
        (&[], None, Some("stands on the tape as it was given")),
        (&[8; 16], None, Some("under a key that the drive does not have")),
        (&[1; 16], Some(other_cipher), Some("under a cipher that the drive does not have")),
        (&[1; 16], Some(untold), None),
        (&[1; 16], None, None),
    ];
    for (on_tape, page, told) in cases {
        let (script, mut drive) = drive(0, &[]);
        drive.set_key(key(1)).unwrap();
        drive.write_block(b"zero").unwrap();
        script.bench().on_tape = on_tape.to_vec();
        if let Some(page) = page {
            script.bench().upset(0xa2, Upset::Returns(page));
        }
        let flushed = drive.write_filemarks(1, Flush::Synchronous);
        match told {
            None => assert_eq!(flushed.unwrap(), WriteOutcome::Written),
            Some(told) => {
                let refused = flushed.unwrap_err();
                assert!(matches!(refused, DriveError::KeyNotTaken { .. }), "{on_tape:?}: {refused:?}");
                assert!(refused.to_string().contains(told), "{refused}");
            }
        }
        assert_eq!(drive.position().unwrap().lbn, 2);
    }
}

/// The first flush of a session that was appended is its first checkpoint, and its first block lies far behind by then:
/// nothing was looked at. Further flushes cost no locate.
#[test]
fn a_block_of_a_long_session_is_looked_at_once() {
    let locates = |script: &Script| {
        let bench = script.bench();
        bench.log.iter().filter(|cdb| cdb[0] == 0x92).map(|cdb| cdb[11]).collect::<Vec<_>>()
    };
    for (on_tape, is_told) in [(&[1; 16], false), (&[8; 16], true)] {
        let (script, mut drive) = drive(3, on_tape);
        drive.set_key(key(1)).unwrap();
        drive.locate(3).unwrap();
        drive.write_filemarks(1, Flush::Synchronous).unwrap();
        script.bench().log.clear();
        for number in 4..104u64 {
            drive.write_block(&number.to_be_bytes()).unwrap();
        }
        let flushed = drive.write_filemarks(1, Flush::Synchronous);
        assert_eq!(matches!(flushed, Err(DriveError::KeyNotTaken { .. })), is_told, "{on_tape:?}: {flushed:?}");
        assert_eq!(locates(&script), [103, 105], "the last block, and back");
        script.bench().log.clear();
        drive.write_block(b"105").unwrap();
        let again = drive.write_filemarks(1, Flush::Synchronous);
        assert_eq!(matches!(again, Err(DriveError::KeyNotTaken { .. })), is_told, "{on_tape:?}: {again:?}");
        assert_eq!(locates(&script), if is_told { vec![105, 107] } else { vec![] });
    }
}

/// A block that lies behind the position is not on the tape any more once something was written in front of it.
#[test]
fn a_block_that_was_written_over_is_not_looked_for() {
    let (script, mut drive) = drive(0, &[1; 16]);
    drive.set_key(key(1)).unwrap();
    for _ in 0..3 {
        drive.write_block(b"block").unwrap();
    }
    drive.locate(1).unwrap();
    script.bench().log.clear();
    drive.write_filemarks(1, Flush::Synchronous).unwrap();
    assert_eq!(script.bench().opcodes(), [0x10]);
    assert_eq!(drive.position().unwrap().lbn, 2);
}
