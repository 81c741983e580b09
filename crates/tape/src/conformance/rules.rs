//! The rules, and those of them that need no key.

use super::keys;
use super::steps::{block, demand, expect, expect_block, locate, rewound, stands_at, write, write_filemark};
use super::{Check, Needs, Rule, Verdict, done};
use crate::{Drive, DriveError, EncryptionState, Flush, ReadOutcome};

/// The capacity that is left comes from the cartridge's memory, which a drive writes when it thinks fit.
const CAPACITY_IS_AN_ESTIMATE: &str =
    "a drive of metal tells what is left in whole MiB, by an estimate that it may bring up to date at the next unload";

/// The drive itself would allow it.
const MIXING_IS_ALLOWED: &str = "LTO drives write plain and encrypted blocks, and blocks of several keys, behind each other as they are \
told to (SSC-5, 4.2.22): it is the driver of ours above the drive that refuses";

/// Whatever a drive is made of.
pub(super) const RULES: &[Rule] = &[
    once("nothing goes without a load", Needs::Nothing, nothing_goes_without_a_load),
    once("a write moves on and drops what lay behind", Needs::Nothing, a_write_moves_on_and_drops_what_lay_behind),
    once("locate reaches the end of data and no further", Needs::Nothing, locate_reaches_the_end_of_data),
    once("blocks of a length outside the limits are refused", Needs::Nothing, lengths_outside_the_limits_are_refused),
    once("an erase leaves a blank medium", Needs::Nothing, an_erase_leaves_a_blank_medium),
    Rule {
        name: "an erased medium has all its capacity",
        needs: Needs::Nothing,
        excuse: Some(CAPACITY_IS_AN_ESTIMATE),
        check: Check::Once(an_erased_medium_has_all_its_capacity),
    },
    once("a flush writes nothing", Needs::Nothing, a_flush_writes_nothing),
    once("blocks and filemarks are read as written", Needs::Contents, blocks_and_filemarks_are_read_as_written),
    once("blocks of every length are kept", Needs::Contents, blocks_of_every_length_are_kept),
    once("a block too long for the buffer is passed", Needs::Contents, a_block_too_long_for_the_buffer_is_passed),
    once("filemarks are found in both directions", Needs::Contents, filemarks_are_found_in_both_directions),
    once("everything is there after a reload", Needs::Contents, everything_is_there_after_a_reload),
    once("a drive without key slot takes no key", Needs::NoKeySlot, keys::a_drive_without_key_slot_takes_no_key),
    keyed("encrypted blocks need their key", None, keys::encrypted_blocks_need_their_key),
    keyed("encrypted and plain are never mixed", Some(MIXING_IS_ALLOWED), keys::encrypted_and_plain_are_never_mixed),
    keyed("each block names its own key", None, keys::each_block_names_its_own_key),
    keyed("writing from the beginning drops the key", None, keys::writing_from_the_beginning_drops_the_key),
    keyed("an unload clears the key slot", None, keys::an_unload_clears_the_key_slot),
];

const fn once(name: &'static str, needs: Needs, check: fn(&mut dyn Drive) -> Verdict) -> Rule {
    Rule { name, needs, excuse: None, check: Check::Once(check) }
}

const fn keyed(
    name: &'static str,
    excuse: Option<&'static str>,
    check: fn(&mut dyn Drive, capstan_format::Algorithm) -> Verdict,
) -> Rule {
    Rule { name, needs: Needs::KeySlot, excuse, check: Check::EachCipher(check) }
}

fn nothing_goes_without_a_load(drive: &mut dyn Drive) -> Verdict {
    done("unload", drive.unload())?;
    let no_medium = |what: &str, result: Result<(), DriveError>| {
        demand!(matches!(result, Err(DriveError::NoMedium { .. })), "{what} on an unloaded drive: {result:?}");
        Ok(())
    };
    no_medium("medium", drive.medium().map(drop))?;
    no_medium("position", drive.position().map(drop))?;
    no_medium("locate", drive.locate(0))?;
    no_medium("space to end of data", drive.space_to_end_of_data())?;
    no_medium("space over filemarks", drive.space_filemarks(1))?;
    no_medium("read", drive.read_block(&mut [0; 16]).map(drop))?;
    no_medium("write", drive.write_block(&[0; 16]).map(drop))?;
    no_medium("write filemarks", drive.write_filemarks(1, Flush::Buffered).map(drop))?;
    no_medium("erase", drive.erase())
}

fn a_write_moves_on_and_drops_what_lay_behind(drive: &mut dyn Drive) -> Verdict {
    rewound(drive)?;
    for number in 0..4 {
        stands_at(drive, number, "before a write")?;
        write(drive, &block(number, 100))?;
    }
    locate(drive, 1)?;
    write(drive, &block(9, 50))?;
    stands_at(drive, 2, "behind the second block")?;
    expect(drive, ReadOutcome::EndOfData)?;
    stands_at(drive, 2, "at the end of data, which moves nothing")?;
    done("write filemarks", drive.write_filemarks(2, Flush::Buffered))?;
    stands_at(drive, 4, "behind two filemarks, of which each counts as a block")
}

fn locate_reaches_the_end_of_data(drive: &mut dyn Drive) -> Verdict {
    rewound(drive)?;
    for number in 0..3 {
        write(drive, &block(number, 100))?;
    }
    locate(drive, 0)?;
    locate(drive, 3)?;
    expect(drive, ReadOutcome::EndOfData)?;
    let beyond = drive.locate(4);
    demand!(matches!(beyond, Err(DriveError::BlankCheck { .. })), "locate beyond the end of data: {beyond:?}");
    locate(drive, 1)?;
    stands_at(drive, 1, "behind a locate to block 1")?;
    done("space to end of data", drive.space_to_end_of_data())?;
    stands_at(drive, 3, "at the end of data")
}

fn lengths_outside_the_limits_are_refused(drive: &mut dyn Drive) -> Verdict {
    rewound(drive)?;
    let limits = drive.block_limits();
    let long = drive.write_block(&vec![0; limits.max as usize + 1]);
    demand!(matches!(long, Err(DriveError::BlockLength { .. })), "a block above the limit: {long:?}");
    let empty = drive.write_block(&[]);
    demand!(matches!(empty, Err(DriveError::BlockLength { .. })), "an empty block: {empty:?}");
    stands_at(drive, 0, "behind blocks that were refused")
}

fn an_erase_leaves_a_blank_medium(drive: &mut dyn Drive) -> Verdict {
    rewound(drive)?;
    write(drive, &block(0, 100))?;
    done("erase", drive.erase())?;
    let encryption = done("ask for the medium", drive.medium())?.encryption;
    demand!(encryption == EncryptionState::Blank, "the medium is {encryption:?} behind an erase");
    stands_at(drive, 0, "behind an erase")?;
    expect(drive, ReadOutcome::EndOfData)
}

fn an_erased_medium_has_all_its_capacity(drive: &mut dyn Drive) -> Verdict {
    rewound(drive)?;
    done("erase", drive.erase())?;
    let medium = done("ask for the medium", drive.medium())?;
    let (left, all) = (medium.remaining_bytes, medium.capacity_bytes);
    demand!(left == all, "{left} of {all} bytes are left behind an erase");
    Ok(())
}

fn a_flush_writes_nothing(drive: &mut dyn Drive) -> Verdict {
    rewound(drive)?;
    write(drive, &block(0, 100))?;
    done("flush", drive.write_filemarks(0, Flush::Synchronous))?;
    stands_at(drive, 1, "behind a flush")?;
    let encryption = done("ask for the medium", drive.medium())?.encryption;
    demand!(encryption == EncryptionState::Plain, "the medium is {encryption:?} behind a plain block");
    Ok(())
}

fn blocks_and_filemarks_are_read_as_written(drive: &mut dyn Drive) -> Verdict {
    rewound(drive)?;
    write(drive, &block(0, 1000))?;
    write_filemark(drive, Flush::Synchronous)?;
    write(drive, &block(2, 1))?;
    locate(drive, 0)?;
    expect_block(drive, &block(0, 1000))?;
    expect(drive, ReadOutcome::Filemark)?;
    expect_block(drive, &block(2, 1))?;
    expect(drive, ReadOutcome::EndOfData)?;
    locate(drive, 2)?;
    expect_block(drive, &block(2, 1))
}

fn blocks_of_every_length_are_kept(drive: &mut dyn Drive) -> Verdict {
    rewound(drive)?;
    let limits = drive.block_limits();
    let mut lengths = vec![limits.min, 15, 16, 17, 4095, 4096, 65536, 262_144 + 100, limits.max];
    lengths.retain(|len| (limits.min..=limits.max).contains(len));
    for (number, len) in (0..).zip(&lengths) {
        write(drive, &block(number, *len as usize))?;
    }
    locate(drive, 0)?;
    for (number, len) in (0..).zip(&lengths) {
        expect_block(drive, &block(number, *len as usize))?;
    }
    Ok(())
}

fn a_block_too_long_for_the_buffer_is_passed(drive: &mut dyn Drive) -> Verdict {
    rewound(drive)?;
    write(drive, &block(0, 1000))?;
    write(drive, &block(1, 10))?;
    locate(drive, 0)?;
    let long = drive.read_block(&mut [0; 999]);
    let told = matches!(long, Err(DriveError::BlockTooLong { lbn: 0, found: 1000, buffer: 999 }));
    demand!(told, "a block of 1000 bytes read into a buffer of 999: {long:?}");
    expect_block(drive, &block(1, 10))
}

fn filemarks_are_found_in_both_directions(drive: &mut dyn Drive) -> Verdict {
    rewound(drive)?;
    // block, filemark, block, filemark, filemark, block
    for filemark in [false, true, false, true, true, false] {
        if filemark {
            write_filemark(drive, Flush::Buffered)?;
        } else {
            write(drive, &block(0, 10))?;
        }
    }
    for (from, count, to) in
        [(0, 1, 2), (0, 2, 4), (0, 3, 5), (2, 0, 2), (6, -1, 4), (6, -2, 3), (6, -3, 1), (2, -1, 1)]
    {
        locate(drive, from)?;
        done(&format!("space over {count} filemarks from block {from}"), drive.space_filemarks(count))?;
        stands_at(drive, to, &format!("{count} filemarks from block {from}"))?;
    }
    locate(drive, 0)?;
    let forward = drive.space_filemarks(4);
    demand!(matches!(forward, Err(DriveError::BlankCheck { .. })), "more filemarks than there are: {forward:?}");
    stands_at(drive, 6, "at the end of data, behind too few filemarks")?;
    let backward = drive.space_filemarks(-4);
    demand!(matches!(backward, Err(DriveError::BeginningOfMedium)), "more filemarks than there are: {backward:?}");
    stands_at(drive, 0, "at the beginning, before too few filemarks")
}

fn everything_is_there_after_a_reload(drive: &mut dyn Drive) -> Verdict {
    rewound(drive)?;
    for number in 0..300 {
        write(drive, &block(number, 30))?;
    }
    done("unload", drive.unload())?;
    let encryption = done("load", drive.load())?.encryption;
    demand!(encryption == EncryptionState::Plain, "the medium is {encryption:?} behind a reload");
    for number in (0..300).rev() {
        locate(drive, number)?;
        expect_block(drive, &block(number, 30))?;
    }
    Ok(())
}
