//! Where the filemarks of the loaded cartridge stand: found out as far as somebody asks, and kept.

use capstan_tape::{Drive, DriveError};

/// Filemarks of a volume, by block number.
#[derive(Debug, Default)]
pub(super) struct Filemarks {
    marks: Vec<u64>,
    /// Below this block number all are known.
    known_to: u64,
    /// Where data end, if that is known.
    end: Option<u64>,
}

impl Filemarks {
    /// A block or filemark was written at `lbn`; what lay behind is gone.
    pub(super) fn written(&mut self, lbn: u64, filemark: bool) {
        self.cut(lbn);
        if filemark {
            // Below an unknown stretch none is put in: it is found when the stretch is looked through.
            if self.known_to == lbn {
                self.marks.push(lbn);
                self.known_to = lbn + 1;
            }
        } else if self.known_to == lbn {
            self.known_to = lbn + 1;
        }
        self.end = Some(lbn + 1);
    }

    /// Data end here now.
    pub(super) fn cut(&mut self, lbn: u64) {
        while self.marks.last().is_some_and(|last| *last >= lbn) {
            self.marks.pop();
        }
        self.known_to = self.known_to.min(lbn);
        self.end = Some(lbn);
    }

    /// Nothing is known any more: a write failed, and how much of it stands is the drive's to say.
    pub(super) fn forget(&mut self) {
        *self = Self::default();
    }

    /// Finds all filemarks below `lbn`; the drive stands where it stood.
    pub(super) fn look(&mut self, drive: &mut dyn Drive, lbn: u64) -> Result<(), DriveError> {
        if self.known_to >= lbn || self.end.is_some_and(|end| self.known_to >= end) {
            return Ok(());
        }
        let stood = drive.position()?.lbn;
        let looked = self.go_on(drive, lbn);
        drive.locate(stood)?;
        looked
    }

    fn go_on(&mut self, drive: &mut dyn Drive, lbn: u64) -> Result<(), DriveError> {
        drive.locate(self.known_to)?;
        while self.known_to < lbn {
            match drive.space_filemarks(1) {
                Ok(()) => {
                    let behind = drive.position()?.lbn;
                    self.marks.push(behind - 1);
                    self.known_to = behind;
                }
                Err(DriveError::BlankCheck { .. }) => {
                    let end = drive.position()?.lbn;
                    self.known_to = end;
                    self.end = Some(end);
                    break;
                }
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Finds everything; where data end.
    pub(super) fn end(&mut self, drive: &mut dyn Drive) -> Result<u64, DriveError> {
        self.look(drive, u64::MAX)?;
        Ok(self.end.unwrap_or(self.known_to))
    }

    /// How many stand below `lbn`, which was looked for.
    pub(super) fn below(&self, lbn: u64) -> u64 {
        self.marks.partition_point(|mark| *mark < lbn) as u64
    }

    /// The first one at `lbn` or behind it.
    pub(super) fn at_or_behind(&self, lbn: u64) -> Option<u64> {
        self.marks.get(self.marks.partition_point(|mark| *mark < lbn)).copied()
    }

    /// The last one in front of `lbn`.
    pub(super) fn in_front_of(&self, lbn: u64) -> Option<u64> {
        let below = self.marks.partition_point(|mark| *mark < lbn);
        below.checked_sub(1).map(|last| self.marks[last])
    }

    /// All of them.
    pub(super) fn all(&self) -> &[u64] {
        &self.marks
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_known_and_what_it_drops_is_forgotten() {
        let mut marks = Filemarks::default();
        for (lbn, filemark) in [(0, false), (1, true), (2, false), (3, true)] {
            marks.written(lbn, filemark);
        }
        assert_eq!((marks.all(), marks.below(3), marks.below(4)), (&[1, 3][..], 1, 2));
        assert_eq!((marks.at_or_behind(2), marks.in_front_of(3), marks.in_front_of(1)), (Some(3), Some(1), None));
        marks.written(2, false);
        assert_eq!((marks.all(), marks.end), (&[1][..], Some(3)));
        marks.written(0, true);
        assert_eq!((marks.all(), marks.end), (&[0][..], Some(1)));
    }

    #[test]
    fn behind_an_unknown_stretch_nothing_is_taken_for_known() {
        let mut marks = Filemarks::default();
        marks.written(100, true);
        assert_eq!((marks.known_to, marks.all().len()), (0, 0));
    }
}
