//! A drive that fails as hardware does: at once, late, or by forgetting where it is.
//!
//! A write that a drive took into its buffer and could not put on the medium is reported by a later command. Here such
//! writes are taken, never passed on, and reported after a number of further writes, at the next synchronous flush, or
//! by whatever command comes first. A script of faults, or a seed that a script is drawn from, says when.

use std::io;

use crate::{
    BlockLimits, Drive, DriveCare, DriveError, DriveIdentity, DriveKey, Flush, Medium, Position, ReadOutcome,
    WriteOutcome,
};

/// Something that goes wrong. Writes are counted from 0, filemarks included; a flush that writes nothing is none.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// This write fails at once and nothing is written. Happens once.
    WriteFails {
        /// Number of the write.
        write: u64,
    },
    /// From this write on everything is taken and lost, until it is reported: after `writes_until_told` further ones,
    /// or by the next command that is no buffered write. Happens once.
    WritesLost {
        /// Number of the first write lost.
        write: u64,
        /// Writes taken before it is reported.
        writes_until_told: u64,
    },
    /// From this write on everything is taken and lost, and after `writes_until_reset` further ones, or by the next
    /// command that is no buffered write, the drive comes back from a loss of power: what it had in its buffer is not
    /// on the medium, filemarks included, and nobody is told more than that it was reset. Happens once.
    PowerLost {
        /// Number of the first write lost.
        write: u64,
        /// Writes taken before the power goes.
        writes_until_reset: u64,
    },
    /// The end of data cannot be found, by this many searches for it.
    EndOfDataLost {
        /// Searches that fail.
        searches: u32,
    },
    /// This synchronous flush, counted from 0, is refused. Happens once.
    FlushRefused {
        /// Number of the flush.
        flush: u64,
    },
    /// This block cannot be read, ever.
    ReadFails {
        /// The block.
        lbn: u64,
    },
    /// The drive is reset in front of this command, counted from 0 (identity and block limits are no commands):
    /// position and key are gone. Happens once.
    Reset {
        /// Number of the command.
        command: u64,
    },
    /// The drive says that it has failed, in front of this command, counted as for a reset. Happens once.
    HardwareFails {
        /// Number of the command.
        command: u64,
    },
    /// Early warning is met by writes at this block number and behind it.
    EarlyWarning {
        /// The first block behind early warning.
        lbn: u64,
    },
    /// The medium ends in front of this block number.
    EndOfMedium {
        /// The first block that has no room.
        lbn: u64,
    },
}

/// A drive whose faults follow a script.
pub struct FaultyDrive<D> {
    drive: D,
    script: Vec<Fault>,
    commands: u64,
    writes: u64,
    flushes: u64,
    lost: Option<Lost>,
    position: Known,
}

/// Writes that were taken and are lost.
struct Lost {
    /// Where the drive would stand.
    lbn: u64,
    writes_until_told: u64,
    told: Told,
}

/// How lost writes come to light.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Told {
    /// By a deferred error.
    Deferred,
    /// By a reset.
    Reset,
}

/// Numbers drawn from a seed, the same from the same (SplitMix64: Steele, Lea, Flood, 2014).
#[derive(Debug, Clone)]
pub struct Draw(u64);

impl Draw {
    /// From this seed.
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// One below `below`; 0 below 0.
    pub fn below(&mut self, below: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) % below.max(1)
    }
}

/// Numbers of what comes next, for faults that are to happen from now on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Next {
    /// Number of the next command.
    pub command: u64,
    /// Number of the next write.
    pub write: u64,
    /// Number of the next synchronous flush.
    pub flush: u64,
}

#[derive(PartialEq, Eq)]
enum Known {
    Yes,
    No,
}

impl<D: Drive> FaultyDrive<D> {
    /// Follows a script.
    pub fn new(drive: D, script: Vec<Fault>) -> Self {
        Self { drive, script, commands: 0, writes: 0, flushes: 0, lost: None, position: Known::Yes }
    }

    /// Follows a script of up to four faults, drawn from a seed, that happen within the first `blocks` blocks.
    pub fn seeded(drive: D, seed: u64, blocks: u64) -> Self {
        let mut numbers = Draw::new(seed);
        let mut draw = |below| numbers.below(below);
        let mut script = Vec::new();
        for _ in 0..=draw(4) {
            script.push(match draw(7) {
                0 => Fault::WriteFails { write: draw(blocks) },
                1 => Fault::WritesLost { write: draw(blocks), writes_until_told: draw(8) },
                2 => Fault::FlushRefused { flush: draw(4) },
                3 => Fault::ReadFails { lbn: draw(blocks) },
                4 => Fault::Reset { command: draw(2 * blocks) },
                5 => Fault::EarlyWarning { lbn: draw(blocks) },
                _ => Fault::EndOfMedium { lbn: draw(blocks) },
            });
        }
        Self::new(drive, script)
    }

    /// Adds a fault to the script, in mid-session.
    pub fn inject(&mut self, fault: impl FnOnce(Next) -> Fault) {
        let next = Next { command: self.commands, write: self.writes, flush: self.flushes };
        self.script.push(fault(next));
    }

    /// Nothing goes wrong any more; what was lost already stays lost.
    pub fn forgive(&mut self) {
        self.script.clear();
    }

    /// What is still to go wrong: print it when a test fails.
    pub fn script(&self) -> &[Fault] {
        &self.script
    }

    /// The drive inside, without its faults.
    pub fn into_inner(self) -> D {
        self.drive
    }

    /// Whether a fault that happens once is due; it is taken off the script.
    fn due(&mut self, fault: impl Fn(&Fault) -> bool) -> Option<Fault> {
        let at = self.script.iter().position(fault)?;
        Some(self.script.remove(at))
    }

    /// Comes in front of every command.
    fn command(&mut self) -> Result<(), DriveError> {
        let number = self.commands;
        self.commands += 1;
        if self.due(|fault| *fault == Fault::Reset { command: number }).is_some() {
            return Err(self.was_reset());
        }
        if self.due(|fault| *fault == Fault::HardwareFails { command: number }).is_some() {
            return Err(DriveError::Hardware { drive: self.drive.identity().name, reason: scripted().to_string() });
        }
        Ok(())
    }

    /// The drive has forgotten everything; what was in its buffer and lost is lost.
    fn was_reset(&mut self) -> DriveError {
        self.lost = None;
        self.position = Known::No;
        // A drive forgets its key with its position; one that never had a slot, or a medium, has nothing to forget.
        let _ = self.drive.set_key(None);
        let _ = self.drive.locate(0);
        self.reset()
    }

    fn reset(&self) -> DriveError {
        DriveError::Reset { drive: self.drive.identity().name }
    }

    fn position_known(&self) -> Result<(), DriveError> {
        if self.position == Known::Yes { Ok(()) } else { Err(self.reset()) }
    }

    /// Reports lost writes.
    fn tell(&mut self) -> Result<(), DriveError> {
        match self.lost.take() {
            None => Ok(()),
            Some(Lost { told: Told::Deferred, .. }) => Err(DriveError::Deferred { source: scripted().into() }),
            Some(Lost { told: Told::Reset, .. }) => Err(self.was_reset()),
        }
    }

    /// A command that needs the position and is no buffered write.
    fn positioned_command(&mut self) -> Result<(), DriveError> {
        self.command()?;
        self.position_known()?;
        self.tell()
    }

    /// Comes in front of every write; the position, and whether the write is to be passed on.
    fn write(&mut self, count: u32) -> Result<Option<u64>, DriveError> {
        self.command()?;
        self.position_known()?;
        let number = self.writes;
        self.writes += 1;
        let is_due = |fault: &Fault| matches!(fault, Fault::WritesLost { write, .. } | Fault::PowerLost { write, .. } if *write == number);
        let lost = match self.due(is_due) {
            Some(Fault::WritesLost { writes_until_told, .. }) => Some((writes_until_told, Told::Deferred)),
            Some(Fault::PowerLost { writes_until_reset, .. }) => Some((writes_until_reset, Told::Reset)),
            _ => None,
        };
        if let Some((writes_until_told, told)) = lost {
            let lbn = self.drive.position()?.lbn;
            self.lost = Some(Lost { lbn, writes_until_told, told });
        }
        if let Some(lost) = &mut self.lost {
            if lost.writes_until_told == 0 {
                self.tell()?;
            } else {
                lost.writes_until_told -= 1;
                lost.lbn += u64::from(count);
                return Ok(None);
            }
        }
        let lbn = self.drive.position()?.lbn;
        if self.due(|fault| *fault == Fault::WriteFails { write: number }).is_some() {
            return Err(DriveError::WriteFailed { lbn, source: scripted() });
        }
        let full = |fault: &Fault| matches!(fault, Fault::EndOfMedium { lbn: end } if lbn + u64::from(count) > *end);
        if self.script.iter().any(full) {
            return Err(DriveError::EndOfMedium { lbn });
        }
        Ok(Some(lbn))
    }

    fn warned(&self, lbn: u64) -> bool {
        self.script.iter().any(|fault| matches!(fault, Fault::EarlyWarning { lbn: first } if lbn >= *first))
    }

    fn outcome(&self, lbn: u64, outcome: WriteOutcome) -> WriteOutcome {
        if self.warned(lbn) { WriteOutcome::EarlyWarning } else { outcome }
    }
}

fn scripted() -> io::Error {
    io::Error::other("a fault of the script")
}

impl<D: Drive> Drive for FaultyDrive<D> {
    fn identity(&self) -> DriveIdentity {
        self.drive.identity()
    }

    fn load(&mut self) -> Result<Medium, DriveError> {
        self.command()?;
        self.tell()?;
        let medium = self.drive.load()?;
        self.position = Known::Yes;
        Ok(medium)
    }

    fn unload(&mut self) -> Result<(), DriveError> {
        self.command()?;
        self.tell()?;
        self.drive.unload()
    }

    fn medium(&mut self) -> Result<Medium, DriveError> {
        self.command()?;
        self.drive.medium()
    }

    fn block_limits(&self) -> BlockLimits {
        self.drive.block_limits()
    }

    fn position(&mut self) -> Result<Position, DriveError> {
        self.command()?;
        self.position_known()?;
        let position = self.drive.position()?;
        let lbn = self.lost.as_ref().map_or(position.lbn, |lost| lost.lbn);
        let early_warning = position.early_warning || lbn.checked_sub(1).is_some_and(|last| self.warned(last));
        Ok(Position { lbn, early_warning })
    }

    fn locate(&mut self, lbn: u64) -> Result<(), DriveError> {
        self.command()?;
        self.tell()?;
        self.drive.locate(lbn)?;
        self.position = Known::Yes;
        Ok(())
    }

    fn space_to_end_of_data(&mut self) -> Result<(), DriveError> {
        self.command()?;
        self.tell()?;
        if let Some(Fault::EndOfDataLost { searches }) =
            self.due(|fault| matches!(fault, Fault::EndOfDataLost { searches } if *searches > 0))
        {
            self.script.push(Fault::EndOfDataLost { searches: searches - 1 });
            return Err(DriveError::EndOfDataLost { reason: "a fault of the script".to_owned() });
        }
        self.drive.space_to_end_of_data()?;
        self.position = Known::Yes;
        Ok(())
    }

    fn space_filemarks(&mut self, count: i64) -> Result<(), DriveError> {
        self.positioned_command()?;
        self.drive.space_filemarks(count)
    }

    fn read_block(&mut self, buffer: &mut [u8]) -> Result<ReadOutcome, DriveError> {
        self.positioned_command()?;
        let lbn = self.drive.position()?.lbn;
        let read = self.drive.read_block(buffer)?;
        let bad = self.script.contains(&Fault::ReadFails { lbn });
        if bad && read != ReadOutcome::EndOfData {
            buffer.fill(0);
            return Err(DriveError::ReadFailed { lbn, reason: "a fault of the script".to_owned() });
        }
        Ok(read)
    }

    fn write_block(&mut self, block: &[u8]) -> Result<WriteOutcome, DriveError> {
        match self.write(1)? {
            None => Ok(WriteOutcome::Written),
            Some(lbn) => {
                let outcome = self.drive.write_block(block)?;
                Ok(self.outcome(lbn, outcome))
            }
        }
    }

    fn write_filemarks(&mut self, count: u32, flush: Flush) -> Result<WriteOutcome, DriveError> {
        let passed = if count > 0 {
            self.write(count)?
        } else {
            self.command()?;
            self.position_known()?;
            Some(self.drive.position()?.lbn)
        };
        if flush == Flush::Synchronous {
            let number = self.flushes;
            self.flushes += 1;
            self.tell()?;
            if self.due(|fault| *fault == Fault::FlushRefused { flush: number }).is_some() {
                return Err(DriveError::Deferred { source: scripted().into() });
            }
        }
        match passed {
            None => Ok(WriteOutcome::Written),
            Some(lbn) => {
                let outcome = self.drive.write_filemarks(count, flush)?;
                Ok(self.outcome(lbn, outcome))
            }
        }
    }

    fn erase(&mut self) -> Result<(), DriveError> {
        self.positioned_command()?;
        self.drive.erase()
    }

    fn set_key(&mut self, key: Option<DriveKey>) -> Result<(), DriveError> {
        self.command()?;
        self.drive.set_key(key)
    }

    fn recommended_order(&mut self, stretches: &[(u64, u64)]) -> Result<Option<Vec<usize>>, DriveError> {
        self.drive.recommended_order(stretches)
    }

    fn care(&mut self) -> Option<&mut dyn DriveCare> {
        self.drive.care()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests fail by panicking")]
    use super::*;
    use crate::{CartridgeDrive, CartridgeSpec, KeySlotKind};

    fn loaded(script: Vec<Fault>) -> (tempfile::TempDir, FaultyDrive<CartridgeDrive>) {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("A00001.tape");
        let spec = CartridgeSpec {
            volser: "A00001".parse().unwrap(),
            capacity_bytes: 1 << 20,
            early_warning_bytes: 1 << 10,
            generation: "virtual".to_owned(),
        };
        spec.create(&path).unwrap();
        let mut drive = CartridgeDrive::new("virtual-0", path, KeySlotKind::Fitted);
        drive.load().unwrap();
        (directory, FaultyDrive::new(drive, script))
    }

    #[test]
    fn a_write_is_accepted_and_the_flush_refused() {
        let (_directory, mut drive) = loaded(vec![Fault::WritesLost { write: 1, writes_until_told: 100 }]);
        for number in 0..5 {
            drive.write_block(b"block").unwrap();
            assert_eq!(drive.position().unwrap().lbn, number + 1, "nothing is to be noticed");
        }
        let flushed = drive.write_filemarks(1, Flush::Synchronous);
        assert!(matches!(flushed, Err(DriveError::Deferred { .. })), "{flushed:?}");
        drive.space_to_end_of_data().unwrap();
        assert_eq!(drive.position().unwrap().lbn, 1, "only the first block is on the medium");
        drive.write_filemarks(0, Flush::Synchronous).unwrap();
    }

    #[test]
    fn lost_writes_are_told_by_a_later_write() {
        let (_directory, mut drive) = loaded(vec![Fault::WritesLost { write: 0, writes_until_told: 2 }]);
        drive.write_block(b"block").unwrap();
        drive.write_block(b"block").unwrap();
        assert!(matches!(drive.write_block(b"block"), Err(DriveError::Deferred { .. })));
        assert_eq!(drive.position().unwrap().lbn, 0);
        drive.write_block(b"block").unwrap();
    }

    #[test]
    fn lost_writes_are_told_by_any_other_command() {
        let (_directory, mut drive) = loaded(vec![Fault::WritesLost { write: 0, writes_until_told: 100 }]);
        drive.write_block(b"block").unwrap();
        assert!(matches!(drive.locate(0), Err(DriveError::Deferred { .. })));
        drive.locate(0).unwrap();
    }

    #[test]
    fn faults_that_happen_once_happen_once() {
        let (_directory, mut drive) = loaded(vec![Fault::WriteFails { write: 0 }, Fault::FlushRefused { flush: 0 }]);
        assert!(matches!(drive.write_block(b"block"), Err(DriveError::WriteFailed { lbn: 0, .. })));
        drive.write_block(b"block").unwrap();
        assert!(matches!(drive.write_filemarks(0, Flush::Synchronous), Err(DriveError::Deferred { .. })));
        drive.write_filemarks(0, Flush::Synchronous).unwrap();
        assert_eq!(drive.script(), []);
    }

    #[test]
    fn after_a_reset_only_a_locate_helps() {
        let (_directory, mut drive) = loaded(vec![Fault::Reset { command: 1 }]);
        drive.write_block(b"block").unwrap();
        for _ in 0..2 {
            assert!(matches!(drive.write_block(b"block"), Err(DriveError::Reset { .. })));
            assert!(matches!(drive.read_block(&mut [0; 8]), Err(DriveError::Reset { .. })));
            assert!(matches!(drive.position(), Err(DriveError::Reset { .. })));
        }
        drive.locate(1).unwrap();
        drive.write_block(b"block").unwrap();
    }

    #[test]
    fn a_loss_of_power_takes_what_was_not_flushed() {
        let (_directory, mut drive) = loaded(vec![]);
        drive.write_block(b"kept").unwrap();
        drive.write_filemarks(0, Flush::Synchronous).unwrap();
        drive.inject(|next| Fault::PowerLost { write: next.write, writes_until_reset: 2 });
        drive.write_block(b"lost").unwrap();
        drive.write_filemarks(1, Flush::Buffered).unwrap();
        assert!(matches!(drive.write_block(b"block"), Err(DriveError::Reset { .. })));
        assert!(matches!(drive.write_block(b"block"), Err(DriveError::Reset { .. })), "nor without a locate");
        drive.space_to_end_of_data().unwrap();
        assert_eq!(drive.position().unwrap().lbn, 1, "neither the block nor the filemark is there");
    }

    #[test]
    fn bad_blocks_and_ends_stay() {
        let script = vec![Fault::ReadFails { lbn: 0 }, Fault::EarlyWarning { lbn: 1 }, Fault::EndOfMedium { lbn: 2 }];
        let (_directory, mut drive) = loaded(script);
        assert_eq!(drive.write_block(b"block").unwrap(), WriteOutcome::Written);
        assert!(!drive.position().unwrap().early_warning);
        assert_eq!(drive.write_block(b"block").unwrap(), WriteOutcome::EarlyWarning);
        assert!(drive.position().unwrap().early_warning);
        for _ in 0..2 {
            assert!(matches!(drive.write_block(b"block"), Err(DriveError::EndOfMedium { lbn: 2 })));
            drive.locate(0).unwrap();
            assert!(matches!(drive.read_block(&mut [0; 8]), Err(DriveError::ReadFailed { lbn: 0, .. })));
            assert_eq!(drive.read_block(&mut [0; 8]).unwrap(), ReadOutcome::Block(5));
        }
    }

    #[test]
    fn a_seed_is_its_script() {
        for seed in 0..100 {
            let script = |seed| FaultyDrive::seeded(crate::NullDrive::new(), seed, 50).script().to_vec();
            assert_eq!(script(seed), script(seed));
            assert!((1..=4).contains(&script(seed).len()), "seed {seed}");
        }
    }
}
