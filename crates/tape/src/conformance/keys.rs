//! The rules of encryption.

use capstan_format::{Algorithm, KeyTag};

use super::steps::{block, demand, expect, expect_block, locate, rewound, write, write_filemark};
use super::{Verdict, done, key};
use crate::{Drive, DriveError, EncryptionState, Flush, ReadOutcome};

fn load_key(drive: &mut dyn Drive, seed: u8, algorithm: Algorithm) -> Verdict {
    done("load a key", drive.set_key(Some(key(seed, algorithm))))
}

fn clear_key(drive: &mut dyn Drive) -> Verdict {
    done("clear the key slot", drive.set_key(None))
}

/// The key that a read says it would need; a drive that fetches keys itself says so in its own words.
fn needed(read: &Result<ReadOutcome, DriveError>) -> Option<KeyTag> {
    match read {
        Err(DriveError::NoKey { tag, .. } | DriveError::KeyUnavailable { tag, .. }) => Some(*tag),
        Err(DriveError::WrongKey { needed, .. }) => Some(*needed),
        _ => None,
    }
}

pub(super) fn a_drive_without_key_slot_takes_no_key(drive: &mut dyn Drive) -> Verdict {
    rewound(drive)?;
    let refused = drive.set_key(Some(key(1, Algorithm::Aes256Gcm)));
    demand!(matches!(refused, Err(DriveError::NoKeySlot { .. })), "a key without a slot: {refused:?}");
    Ok(())
}

pub(super) fn encrypted_blocks_need_their_key(drive: &mut dyn Drive, algorithm: Algorithm) -> Verdict {
    rewound(drive)?;
    load_key(drive, 1, algorithm)?;
    let longest = block(0, drive.block_limits().max as usize);
    write(drive, &longest)?;
    write_filemark(drive, Flush::Synchronous)?;
    write(drive, &block(2, 100))?;
    let tag = KeyTag([1; 16]);
    let encryption = done("ask for the medium", drive.medium())?.encryption;
    demand!(encryption == EncryptionState::Encrypted { algorithm, tag }, "the medium is {encryption:?}");
    locate(drive, 0)?;
    expect_block(drive, &longest)?;
    expect(drive, ReadOutcome::Filemark)?;
    expect_block(drive, &block(2, 100))?;

    let mut buffer = vec![0; longest.len()];
    locate(drive, 0)?;
    clear_key(drive)?;
    let without = drive.read_block(&mut buffer);
    let refused = needed(&without) == Some(tag);
    demand!(refused, "an encrypted block read without a key: {without:?}");
    load_key(drive, 2, algorithm)?;
    let wrong = drive.read_block(&mut buffer);
    let refused = needed(&wrong) == Some(tag);
    demand!(refused, "an encrypted block read with another key: {wrong:?}");
    demand!(buffer.iter().all(|byte| *byte == 0), "something came out without the key");
    load_key(drive, 1, algorithm)?;
    expect_block(drive, &longest)
}

pub(super) fn encrypted_and_plain_are_never_mixed(drive: &mut dyn Drive, algorithm: Algorithm) -> Verdict {
    rewound(drive)?;
    write(drive, &block(0, 100))?;
    load_key(drive, 1, algorithm)?;
    let mixed = drive.write_block(&block(1, 100)).map(drop);
    demand!(matches!(mixed, Err(DriveError::MixedEncryption { .. })), "encrypted behind plain: {mixed:?}");
    let mixed = drive.write_filemarks(1, Flush::Buffered).map(drop);
    demand!(matches!(mixed, Err(DriveError::MixedEncryption { .. })), "a filemark behind plain: {mixed:?}");
    locate(drive, 0)?;
    expect_block(drive, &block(0, 100))?;
    expect(drive, ReadOutcome::EndOfData)?;

    locate(drive, 0)?;
    write(drive, &block(0, 100))?;
    clear_key(drive)?;
    let mixed = drive.write_block(&block(1, 100)).map(drop);
    demand!(matches!(mixed, Err(DriveError::MixedEncryption { .. })), "plain behind encrypted: {mixed:?}");
    expect(drive, ReadOutcome::EndOfData)
}

pub(super) fn each_block_names_its_own_key(drive: &mut dyn Drive, algorithm: Algorithm) -> Verdict {
    rewound(drive)?;
    // Behind a filemark another key begins; behind the next one the first goes on.
    for (seed, number) in [(1, 0), (2, 2), (1, 4)] {
        load_key(drive, seed, algorithm)?;
        write(drive, &block(number, 100))?;
        write_filemark(drive, Flush::Synchronous)?;
    }
    let encryption = done("ask for the medium", drive.medium())?.encryption;
    let first = EncryptionState::Encrypted { algorithm, tag: KeyTag([1; 16]) };
    demand!(encryption == first, "the medium is {encryption:?} and its first key another");
    locate(drive, 0)?;
    let mut buffer = [0; 100];
    for (seed, other, number) in [(1, 2, 0), (2, 1, 2), (1, 2, 4)] {
        load_key(drive, other, algorithm)?;
        let wrong = drive.read_block(&mut buffer);
        let told = needed(&wrong) == Some(KeyTag([seed; 16]));
        demand!(told, "block {number} read with another block's key: {wrong:?}");
        demand!(buffer.iter().all(|byte| *byte == 0), "something came out without the key");
        load_key(drive, seed, algorithm)?;
        expect_block(drive, &block(number, 100))?;
        expect(drive, ReadOutcome::Filemark)?;
    }
    expect(drive, ReadOutcome::EndOfData)?;

    // From the beginning on they are all gone.
    locate(drive, 0)?;
    load_key(drive, 2, algorithm)?;
    write(drive, &block(0, 100))?;
    let encryption = done("ask for the medium", drive.medium())?.encryption;
    demand!(encryption == EncryptionState::Encrypted { algorithm, tag: KeyTag([2; 16]) }, "it is {encryption:?}");
    expect(drive, ReadOutcome::EndOfData)
}

pub(super) fn writing_from_the_beginning_drops_the_key(drive: &mut dyn Drive, algorithm: Algorithm) -> Verdict {
    rewound(drive)?;
    load_key(drive, 1, algorithm)?;
    write(drive, &block(0, 100))?;
    write(drive, &block(1, 100))?;
    locate(drive, 0)?;
    clear_key(drive)?;
    write(drive, &block(2, 100))?;
    let encryption = done("ask for the medium", drive.medium())?.encryption;
    demand!(encryption == EncryptionState::Plain, "the medium is {encryption:?} behind a plain block");
    expect(drive, ReadOutcome::EndOfData)?;
    locate(drive, 0)?;
    expect_block(drive, &block(2, 100))
}

pub(super) fn an_unload_clears_the_key_slot(drive: &mut dyn Drive, algorithm: Algorithm) -> Verdict {
    rewound(drive)?;
    load_key(drive, 1, algorithm)?;
    write(drive, &block(0, 100))?;
    done("unload", drive.unload())?;
    done("load", drive.load())?;
    let read = drive.read_block(&mut [0; 100]);
    demand!(needed(&read) == Some(KeyTag([1; 16])), "the key outlived the unload: {read:?}");
    load_key(drive, 1, algorithm)?;
    // A volume is appended to under a fresh mount key, and read under both.
    done("space to end of data", drive.space_to_end_of_data())?;
    write(drive, &block(1, 100))?;
    locate(drive, 0)?;
    expect_block(drive, &block(0, 100))?;
    expect_block(drive, &block(1, 100))
}
