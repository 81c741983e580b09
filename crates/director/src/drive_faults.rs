//! What failed in drives, to tell a bad cartridge from a bad drive: one fails in whatever drive it is, the other with
//! whatever cartridge. It is kept for as long as the process runs.

use std::collections::HashMap;

use capstan_format::Volser;

/// A drive of a library; none where an error does not name it.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct DriveAt {
    pub(crate) library: String,
    pub(crate) drive: Option<String>,
}

/// Volumes that could not be used, and drives that took others.
#[derive(Default)]
pub(crate) struct DriveFaults {
    /// Counts what happens.
    last: u64,
    /// Where a volume could not be mounted last, and when.
    failed: HashMap<Volser, (DriveAt, u64)>,
    /// When a drive took a volume last.
    taken: HashMap<DriveAt, u64>,
    /// The volumes that drives could not write on, where nothing was written well since.
    unwritten: HashMap<DriveAt, Volser>,
}

impl DriveFaults {
    fn next(&mut self) -> u64 {
        self.last += 1;
        self.last
    }

    fn taken_since(&self, place: &DriveAt, since: u64) -> bool {
        self.taken.get(place).is_some_and(|taken| *taken > since)
    }

    /// A volume could not be made ready, and the drive may be at fault. Whether it is the volume: it was so before, and
    /// the drive has taken another one since.
    pub(crate) fn failed(&mut self, volser: &Volser, place: &DriveAt) -> bool {
        let now = self.next();
        let before = self.failed.insert(volser.clone(), (place.clone(), now));
        before.is_some_and(|(other, since)| other == *place && self.taken_since(place, since))
    }

    /// A drive has taken a volume.
    pub(crate) fn took(&mut self, volser: &Volser, place: DriveAt) {
        let now = self.next();
        self.failed.remove(volser);
        self.taken.insert(DriveAt { drive: None, ..place.clone() }, now);
        self.taken.insert(place, now);
    }

    /// The volumes that others are to be tried before: since they failed, their drive has taken none.
    pub(crate) fn doubted(&self) -> Vec<Volser> {
        let is_doubted = |(place, since): &(DriveAt, u64)| !self.taken_since(place, *since);
        self.failed.iter().filter(|(_, failed)| is_doubted(failed)).map(|(volser, _)| volser.clone()).collect()
    }

    /// A block could not be written on a volume. Gives another volume of which the same was so before, with nothing
    /// written well between: it is the drive then.
    pub(crate) fn could_not_write(&mut self, volser: &Volser, place: DriveAt) -> Option<Volser> {
        let before = self.unwritten.entry(place).or_insert_with(|| volser.clone());
        (before != volser).then(|| before.clone())
    }

    /// A volume was written to the end of its session.
    pub(crate) fn wrote(&mut self, place: &DriveAt) {
        self.unwritten.remove(place);
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests fail by panicking")]
    use super::*;

    fn volser(name: &str) -> Volser {
        Volser::new(name).unwrap()
    }

    fn place(drive: &str) -> DriveAt {
        let drive = (!drive.is_empty()).then(|| drive.to_owned());
        DriveAt { library: "main".to_owned(), drive }
    }

    /// Two bad cartridges kept all others of a pool from being tried.
    #[test]
    fn bad_cartridges_are_told_from_a_drive_by_one_that_it_takes() {
        let (mut faults, [first, second, third]) = (DriveFaults::default(), ["A00001", "A00002", "A00003"].map(volser));
        for _ in 0..2 {
            assert!(!faults.failed(&first, &place("one")) && !faults.failed(&second, &place("one")));
        }
        let mut doubted = faults.doubted();
        doubted.sort();
        assert_eq!(doubted, [first.clone(), second.clone()]);
        faults.took(&third, place("one"));
        assert!(faults.doubted().is_empty());
        assert!(faults.failed(&first, &place("one")) && faults.failed(&second, &place("one")));
    }

    #[test]
    fn a_drive_that_was_mended_or_another_one_says_nothing_against_a_volume() {
        let (mut faults, [first, second]) = (DriveFaults::default(), ["A00001", "A00002"].map(volser));
        assert!(!faults.failed(&first, &place("one")) && !faults.failed(&second, &place("one")));
        faults.took(&first, place("one"));
        assert!(faults.doubted().is_empty());
        // It has failed once, before the drive was mended.
        assert!(!faults.failed(&first, &place("one")));
        faults.took(&second, place("two"));
        assert!(!faults.failed(&first, &place("one")), "another drive took it");
        // Where nobody says which drive it was, any will do.
        assert!(!faults.failed(&first, &place("")));
        faults.took(&second, place("two"));
        assert!(faults.failed(&first, &place("")));
    }
}
