//! Rules for a cartridge that is write-once. They use it up: they can be checked once, with a blank one.

use super::steps::{block, demand, expect, expect_block, locate, stands_at, write};
use super::{Verdict, done};
use crate::{Drive, DriveError, EncryptionState, Flush, ReadOutcome, Rewritability};

/// Checks that nothing takes what stands on a write-once cartridge, and that it can be appended to. The drive's bay
/// holds a blank one.
///
/// # Panics
/// If a rule is broken.
pub fn run_write_once(drive: &mut dyn Drive) {
    if let Err(broken) = what_is_written_stays(drive) {
        panic!("write-once: {broken}");
    }
}

fn what_is_written_stays(drive: &mut dyn Drive) -> Verdict {
    let medium = done("load", drive.load())?;
    demand!(medium.rewritability == Rewritability::WriteOnce, "the medium is told as {:?}", medium.rewritability);
    demand!(!medium.write_protected, "a blank write-once cartridge is told as write-protected");
    demand!(medium.encryption == EncryptionState::Blank, "a new cartridge is {:?}", medium.encryption);
    for number in 0..3 {
        write(drive, &block(number, 100))?;
    }
    done("a filemark", drive.write_filemarks(1, Flush::Synchronous))?;

    // The last of these places is in front of the filemark at the end: it stays like all else.
    for lbn in 0..4 {
        locate(drive, lbn)?;
        let over = drive.write_block(&block(9, 100));
        demand!(matches!(over, Err(DriveError::WriteOnce { .. })), "a block over block {lbn}: {over:?}");
        stands_at(drive, lbn, "behind a write that was refused")?;
        let over = drive.write_filemarks(1, Flush::Synchronous);
        demand!(matches!(over, Err(DriveError::WriteOnce { .. })), "a filemark over block {lbn}: {over:?}");
        let erased = drive.erase();
        demand!(matches!(erased, Err(DriveError::WriteOnce { .. })), "erase from block {lbn}: {erased:?}");
        done("a flush in the middle", drive.write_filemarks(0, Flush::Synchronous))?;
    }
    everything_stands(drive, 3)?;

    for round in [1, 2] {
        done("space to the end of data", drive.space_to_end_of_data())?;
        write(drive, &block(9 + round, 100))?;
        done("a filemark behind it", drive.write_filemarks(1, Flush::Synchronous))?;
        done("unload", drive.unload())?;
        let medium = done("load", drive.load())?;
        demand!(medium.rewritability == Rewritability::WriteOnce, "a reload makes it {:?}", medium.rewritability);
        everything_stands(drive, 3)?;
        for appended in 1..=round {
            locate(drive, 2 + 2 * appended)?;
            expect_block(drive, &block(9 + appended, 100))?;
        }
    }
    Ok(())
}

/// The blocks that were written first, and the filemark behind them.
fn everything_stands(drive: &mut dyn Drive, blocks: u64) -> Verdict {
    locate(drive, 0)?;
    for number in 0..blocks {
        expect_block(drive, &block(number, 100))?;
    }
    expect(drive, ReadOutcome::Filemark)
}
