//! What every drive must do, whatever it is made of: one suite for all kinds.
//!
//! It panics at the first rule that is broken, and names it. The cartridge in the drive is overwritten. A real drive passes
//! it with a scratch tape; nothing here relies on the speed, the capacity or the host of a virtual one.

use capstan_format::{Algorithm, KeyTag};

use crate::{Drive, DriveError, DriveKey, EncryptionState, Flush, ReadOutcome, WriteOutcome};

/// Whether a drive can read what it wrote.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Retention {
    /// It can.
    Keeps,
    /// It counts and forgets, as the null drive does; rules about contents are left out.
    Forgets,
}

/// Checks every rule that applies to the drive, whose bay holds a writable cartridge that may be overwritten.
///
/// # Panics
/// If a rule is broken.
pub fn run(drive: &mut dyn Drive, retention: Retention) {
    nothing_goes_without_a_load(drive);
    a_write_moves_on_and_drops_what_lay_behind(drive);
    locate_reaches_the_end_of_data_and_no_further(drive);
    lengths_outside_the_limits_are_refused(drive);
    an_erase_leaves_a_blank_medium(drive);
    a_flush_writes_nothing(drive);
    if retention == Retention::Keeps {
        blocks_and_filemarks_are_read_as_written(drive);
        blocks_of_every_length_are_kept(drive);
        a_block_too_long_for_the_buffer_is_passed(drive);
        filemarks_are_found_in_both_directions(drive);
        everything_is_there_after_a_reload(drive);
    }
    if !drive.identity().encrypts {
        a_drive_without_key_slot_takes_no_key(drive);
    } else if retention == Retention::Keeps {
        let ciphers = ciphers(drive);
        assert!(!ciphers.is_empty(), "an encrypting drive without a cipher");
        for algorithm in ciphers {
            encrypted_blocks_need_their_key(drive, algorithm);
            encrypted_and_plain_are_never_mixed(drive, algorithm);
            writing_from_the_beginning_drops_the_key(drive, algorithm);
            an_unload_clears_the_key_slot(drive, algorithm);
        }
    }
    drive.unload().expect("unload");
}

/// A block whose bytes tell its number and length.
fn block(number: u64, len: usize) -> Vec<u8> {
    let mut state = number.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ len as u64;
    let next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state as u8
    };
    std::iter::repeat_with(next).take(len).collect()
}

fn key(seed: u8, algorithm: Algorithm) -> DriveKey {
    DriveKey { tag: KeyTag([seed; 16]), algorithm, key: [seed ^ 0x5a; 32] }
}

/// The ciphers that an encrypting drive takes keys for: real ones have one.
fn ciphers(drive: &mut dyn Drive) -> Vec<Algorithm> {
    rewound(drive);
    let mut ciphers = vec![Algorithm::Aes256Gcm, Algorithm::Aes256Ccm];
    ciphers.retain(|algorithm| match drive.set_key(Some(key(1, *algorithm))) {
        Err(DriveError::CipherMissing { .. }) => false,
        loaded => {
            loaded.expect("load a key");
            true
        }
    });
    ciphers
}

/// At the beginning of the loaded medium, without a key.
fn rewound(drive: &mut dyn Drive) {
    drive.load().expect("load");
    drive.set_key(None).expect("clear the key slot");
    drive.locate(0).expect("locate to the beginning");
}

fn lbn(drive: &mut dyn Drive) -> u64 {
    drive.position().expect("position").lbn
}

fn write(drive: &mut dyn Drive, block: &[u8]) {
    let outcome = drive.write_block(block).expect("write");
    assert_eq!(outcome, WriteOutcome::Written, "early warning on a scratch medium: use a larger one");
}

fn expect_block(drive: &mut dyn Drive, expected: &[u8]) {
    let at = lbn(drive);
    let mut buffer = vec![0; drive.block_limits().max as usize];
    match drive.read_block(&mut buffer).expect("read") {
        ReadOutcome::Block(len) => assert!(buffer[..len] == *expected, "block {at} differs from what was written"),
        other => panic!("{other:?} at block {at} where a block was written"),
    }
}

fn expect(drive: &mut dyn Drive, expected: ReadOutcome) {
    let at = lbn(drive);
    let mut buffer = vec![0; drive.block_limits().max as usize];
    assert_eq!(drive.read_block(&mut buffer).expect("read"), expected, "at block {at}");
}

fn nothing_goes_without_a_load(drive: &mut dyn Drive) {
    drive.unload().expect("unload");
    let no_medium = |result: Result<(), DriveError>, what: &str| {
        assert!(matches!(result, Err(DriveError::NoMedium { .. })), "{what} on an unloaded drive: {result:?}");
    };
    no_medium(drive.medium().map(drop), "medium");
    no_medium(drive.position().map(drop), "position");
    no_medium(drive.locate(0), "locate");
    no_medium(drive.space_to_end_of_data(), "space to end of data");
    no_medium(drive.space_filemarks(1), "space over filemarks");
    no_medium(drive.read_block(&mut [0; 16]).map(drop), "read");
    no_medium(drive.write_block(&[0; 16]).map(drop), "write");
    no_medium(drive.write_filemarks(1, Flush::Buffered).map(drop), "write filemarks");
    no_medium(drive.erase(), "erase");
}

fn a_write_moves_on_and_drops_what_lay_behind(drive: &mut dyn Drive) {
    rewound(drive);
    for number in 0..4 {
        assert_eq!(lbn(drive), number);
        write(drive, &block(number, 100));
    }
    drive.locate(1).expect("locate");
    write(drive, &block(9, 50));
    assert_eq!(lbn(drive), 2);
    expect(drive, ReadOutcome::EndOfData);
    assert_eq!(lbn(drive), 2, "end of data moves nothing");
    drive.write_filemarks(2, Flush::Buffered).expect("write filemarks");
    assert_eq!(lbn(drive), 4, "each filemark counts as a block");
}

fn locate_reaches_the_end_of_data_and_no_further(drive: &mut dyn Drive) {
    rewound(drive);
    for number in 0..3 {
        write(drive, &block(number, 100));
    }
    drive.locate(0).expect("locate to the beginning");
    drive.locate(3).expect("locate to the end of data");
    expect(drive, ReadOutcome::EndOfData);
    let beyond = drive.locate(4);
    assert!(matches!(beyond, Err(DriveError::BlankCheck { .. })), "locate beyond the end of data: {beyond:?}");
    drive.locate(1).expect("locate");
    assert_eq!(lbn(drive), 1);
    drive.space_to_end_of_data().expect("space to end of data");
    assert_eq!(lbn(drive), 3);
}

fn lengths_outside_the_limits_are_refused(drive: &mut dyn Drive) {
    rewound(drive);
    let limits = drive.block_limits();
    let long = drive.write_block(&vec![0; limits.max as usize + 1]);
    assert!(matches!(long, Err(DriveError::BlockLength { .. })), "a block above the limit: {long:?}");
    let empty = drive.write_block(&[]);
    assert!(matches!(empty, Err(DriveError::BlockLength { .. })), "an empty block: {empty:?}");
    assert_eq!(lbn(drive), 0, "a refused block moves nothing");
}

fn an_erase_leaves_a_blank_medium(drive: &mut dyn Drive) {
    rewound(drive);
    write(drive, &block(0, 100));
    drive.erase().expect("erase");
    let medium = drive.medium().expect("medium");
    assert_eq!(medium.encryption, EncryptionState::Blank);
    assert_eq!(medium.remaining_bytes, medium.capacity_bytes);
    assert_eq!(lbn(drive), 0);
    expect(drive, ReadOutcome::EndOfData);
}

fn a_flush_writes_nothing(drive: &mut dyn Drive) {
    rewound(drive);
    write(drive, &block(0, 100));
    drive.write_filemarks(0, Flush::Synchronous).expect("flush");
    assert_eq!(lbn(drive), 1);
    assert_eq!(drive.medium().expect("medium").encryption, EncryptionState::Plain);
}

fn blocks_and_filemarks_are_read_as_written(drive: &mut dyn Drive) {
    rewound(drive);
    write(drive, &block(0, 1000));
    drive.write_filemarks(1, Flush::Synchronous).expect("write a filemark");
    write(drive, &block(2, 1));
    drive.locate(0).expect("locate");
    expect_block(drive, &block(0, 1000));
    expect(drive, ReadOutcome::Filemark);
    expect_block(drive, &block(2, 1));
    expect(drive, ReadOutcome::EndOfData);
    drive.locate(2).expect("locate");
    expect_block(drive, &block(2, 1));
}

fn blocks_of_every_length_are_kept(drive: &mut dyn Drive) {
    rewound(drive);
    let limits = drive.block_limits();
    let lengths = [limits.min, 15, 16, 17, 4095, 4096, 65536, 262_144 + 100, limits.max];
    for (number, len) in (0..).zip(lengths) {
        write(drive, &block(number, len as usize));
    }
    drive.locate(0).expect("locate");
    for (number, len) in (0..).zip(lengths) {
        expect_block(drive, &block(number, len as usize));
    }
}

fn a_block_too_long_for_the_buffer_is_passed(drive: &mut dyn Drive) {
    rewound(drive);
    write(drive, &block(0, 1000));
    write(drive, &block(1, 10));
    drive.locate(0).expect("locate");
    let long = drive.read_block(&mut [0; 999]);
    let told = matches!(long, Err(DriveError::BlockTooLong { lbn: 0, found: 1000, buffer: 999 }));
    assert!(told, "a block longer than the buffer: {long:?}");
    expect_block(drive, &block(1, 10));
}

fn filemarks_are_found_in_both_directions(drive: &mut dyn Drive) {
    rewound(drive);
    // block, filemark, block, filemark, filemark, block
    for filemark in [false, true, false, true, true, false] {
        if filemark {
            drive.write_filemarks(1, Flush::Buffered).expect("write a filemark");
        } else {
            write(drive, &block(0, 10));
        }
    }
    for (from, count, to) in
        [(0, 1, 2), (0, 2, 4), (0, 3, 5), (2, 0, 2), (6, -1, 4), (6, -2, 3), (6, -3, 1), (2, -1, 1)]
    {
        drive.locate(from).expect("locate");
        drive.space_filemarks(count).expect("space over filemarks");
        assert_eq!(lbn(drive), to, "{count} filemarks from block {from}");
    }
    drive.locate(0).expect("locate");
    let forward = drive.space_filemarks(4);
    assert!(matches!(forward, Err(DriveError::BlankCheck { .. })), "more filemarks than there are: {forward:?}");
    assert_eq!(lbn(drive), 6, "the drive stands at the end of data");
    let backward = drive.space_filemarks(-4);
    assert!(matches!(backward, Err(DriveError::BeginningOfMedium)), "more filemarks than there are: {backward:?}");
    assert_eq!(lbn(drive), 0, "the drive stands at the beginning");
}

fn everything_is_there_after_a_reload(drive: &mut dyn Drive) {
    rewound(drive);
    for number in 0..300 {
        write(drive, &block(number, 30));
    }
    drive.unload().expect("unload");
    let medium = drive.load().expect("load");
    assert_eq!(medium.encryption, EncryptionState::Plain);
    for number in (0..300).rev() {
        drive.locate(number).expect("locate");
        expect_block(drive, &block(number, 30));
    }
}

fn a_drive_without_key_slot_takes_no_key(drive: &mut dyn Drive) {
    rewound(drive);
    let refused = drive.set_key(Some(key(1, Algorithm::Aes256Gcm)));
    assert!(matches!(refused, Err(DriveError::NoKeySlot { .. })), "a key without a slot: {refused:?}");
}

fn encrypted_blocks_need_their_key(drive: &mut dyn Drive, algorithm: Algorithm) {
    rewound(drive);
    drive.set_key(Some(key(1, algorithm))).expect("load a key");
    let longest = block(0, drive.block_limits().max as usize);
    write(drive, &longest);
    drive.write_filemarks(1, Flush::Synchronous).expect("write a filemark");
    write(drive, &block(2, 100));
    let tag = KeyTag([1; 16]);
    assert_eq!(drive.medium().expect("medium").encryption, EncryptionState::Encrypted { algorithm, tag });
    drive.locate(0).expect("locate");
    expect_block(drive, &longest);
    expect(drive, ReadOutcome::Filemark);
    expect_block(drive, &block(2, 100));

    let mut buffer = vec![0; longest.len()];
    drive.locate(0).expect("locate");
    drive.set_key(None).expect("clear the key slot");
    let without = drive.read_block(&mut buffer);
    assert!(matches!(without, Err(DriveError::NoKey { lbn: 0, tag: found, .. }) if found == tag), "{without:?}");
    drive.set_key(Some(key(2, algorithm))).expect("load another key");
    let wrong = drive.read_block(&mut buffer);
    assert!(matches!(wrong, Err(DriveError::WrongKey { needed, .. }) if needed == tag), "{wrong:?}");
    assert!(buffer.iter().all(|byte| *byte == 0), "nothing may come out without the key");
    drive.set_key(Some(key(1, algorithm))).expect("load the key");
    expect_block(drive, &longest);
}

fn encrypted_and_plain_are_never_mixed(drive: &mut dyn Drive, algorithm: Algorithm) {
    rewound(drive);
    write(drive, &block(0, 100));
    drive.set_key(Some(key(1, algorithm))).expect("load a key");
    let mixed = drive.write_block(&block(1, 100)).map(drop);
    assert!(matches!(mixed, Err(DriveError::MixedEncryption { .. })), "encrypted behind plain: {mixed:?}");
    let mixed = drive.write_filemarks(1, Flush::Buffered).map(drop);
    assert!(matches!(mixed, Err(DriveError::MixedEncryption { .. })), "a filemark behind plain: {mixed:?}");
    drive.locate(0).expect("locate");
    expect_block(drive, &block(0, 100));
    expect(drive, ReadOutcome::EndOfData);

    drive.locate(0).expect("locate");
    write(drive, &block(0, 100));
    drive.set_key(None).expect("clear the key slot");
    let mixed = drive.write_block(&block(1, 100)).map(drop);
    assert!(matches!(mixed, Err(DriveError::MixedEncryption { .. })), "plain behind encrypted: {mixed:?}");
    drive.set_key(Some(key(2, algorithm))).expect("load another key");
    let other = drive.write_block(&block(1, 100)).map(drop);
    assert!(matches!(other, Err(DriveError::WrongKey { .. })), "a second key on one volume: {other:?}");
    expect(drive, ReadOutcome::EndOfData);
}

fn writing_from_the_beginning_drops_the_key(drive: &mut dyn Drive, algorithm: Algorithm) {
    rewound(drive);
    drive.set_key(Some(key(1, algorithm))).expect("load a key");
    write(drive, &block(0, 100));
    write(drive, &block(1, 100));
    drive.locate(0).expect("locate");
    drive.set_key(None).expect("clear the key slot");
    write(drive, &block(2, 100));
    assert_eq!(drive.medium().expect("medium").encryption, EncryptionState::Plain);
    expect(drive, ReadOutcome::EndOfData);
    drive.locate(0).expect("locate");
    expect_block(drive, &block(2, 100));
}

fn an_unload_clears_the_key_slot(drive: &mut dyn Drive, algorithm: Algorithm) {
    rewound(drive);
    drive.set_key(Some(key(1, algorithm))).expect("load a key");
    write(drive, &block(0, 100));
    drive.unload().expect("unload");
    drive.load().expect("load");
    let read = drive.read_block(&mut [0; 100]);
    assert!(matches!(read, Err(DriveError::NoKey { .. })), "the key outlived the unload: {read:?}");
    drive.set_key(Some(key(1, algorithm))).expect("load the key");
    write_behind(drive);
}

/// A volume is appended to under a fresh mount key, and read under both.
fn write_behind(drive: &mut dyn Drive) {
    drive.space_to_end_of_data().expect("space to end of data");
    write(drive, &block(1, 100));
    drive.locate(0).expect("locate");
    expect_block(drive, &block(0, 100));
    expect_block(drive, &block(1, 100));
}
