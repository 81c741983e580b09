//! Steps that rules are made of: write, locate, read, and demand what must hold.

use super::{Broken, Verdict, done};
use crate::{Drive, Flush, ReadOutcome, WriteOutcome};

/// Ends the rule with these words unless the condition holds.
macro_rules! demand {
    ($holds:expr, $($text:tt)+) => {
        if !$holds {
            return Err($crate::conformance::Broken::Rule(format!($($text)+)));
        }
    };
}
pub(super) use demand;

/// A block whose bytes tell its number and length.
pub(super) fn block(number: u64, len: usize) -> Vec<u8> {
    let mut state = number.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ len as u64;
    let next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state as u8
    };
    std::iter::repeat_with(next).take(len).collect()
}

/// At the beginning of the loaded medium, without a key.
pub(super) fn rewound(drive: &mut dyn Drive) -> Verdict {
    done("load", drive.load())?;
    done("clear the key slot", drive.set_key(None))?;
    locate(drive, 0)
}

pub(super) fn locate(drive: &mut dyn Drive, lbn: u64) -> Verdict {
    done(&format!("locate block {lbn}"), drive.locate(lbn))
}

pub(super) fn lbn(drive: &mut dyn Drive) -> Result<u64, Broken> {
    Ok(done("ask for the position", drive.position())?.lbn)
}

pub(super) fn stands_at(drive: &mut dyn Drive, expected: u64, when: &str) -> Verdict {
    let at = lbn(drive)?;
    demand!(at == expected, "{when}: the drive stands at block {at} and not at {expected}");
    Ok(())
}

pub(super) fn write(drive: &mut dyn Drive, block: &[u8]) -> Verdict {
    let outcome = done(&format!("write a block of {} bytes", block.len()), drive.write_block(block))?;
    demand!(outcome == WriteOutcome::Written, "early warning on a scratch medium: use a longer one");
    Ok(())
}

pub(super) fn write_filemark(drive: &mut dyn Drive, flush: Flush) -> Verdict {
    done("write a filemark", drive.write_filemarks(1, flush)).map(drop)
}

pub(super) fn expect_block(drive: &mut dyn Drive, expected: &[u8]) -> Verdict {
    let at = lbn(drive)?;
    let mut buffer = vec![0; drive.block_limits().max as usize];
    match done(&format!("read block {at}"), drive.read_block(&mut buffer))? {
        ReadOutcome::Block(len) => {
            demand!(buffer.get(..len) == Some(expected), "block {at} differs from what was written");
            Ok(())
        }
        other => Err(Broken::Rule(format!("{other:?} at block {at} where a block was written"))),
    }
}

pub(super) fn expect(drive: &mut dyn Drive, expected: ReadOutcome) -> Verdict {
    let at = lbn(drive)?;
    let mut buffer = vec![0; drive.block_limits().max as usize];
    let met = done(&format!("read at block {at}"), drive.read_block(&mut buffer))?;
    demand!(met == expected, "{met:?} at block {at} instead of {expected:?}");
    Ok(())
}
