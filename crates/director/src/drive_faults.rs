//! What failed in drives, to tell a bad cartridge from a bad drive: one fails in whatever drive it is, the other with
//! whatever cartridge. It is kept in the catalog, so that each process knows of those before it.

use capstan_format::Volser;
use serde::{Deserialize, Serialize};

use crate::mounter::{InDrive, Mounter};
use crate::shared::locked;

/// Where it stands in the catalog.
const FACT: &str = "drive_faults";

/// A drive of a library; none where an error does not name it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct DriveAt {
    pub(crate) library: String,
    pub(crate) drive: Option<String>,
}

/// A volume that could not be made ready.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct FailedVolume {
    volser: Volser,
    at: DriveAt,
    /// Whether the drive has taken another one since.
    took_another: bool,
}

/// Volumes that could not be used, and drives that could not write.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct DriveFaults {
    failed: Vec<FailedVolume>,
    /// The volumes that drives could not write on, where nothing was written well since.
    unwritten: Vec<(DriveAt, Volser)>,
}

impl DriveFaults {
    /// A volume could not be made ready. Whether it was so before, in whatever drive, and that drive has taken another
    /// one between.
    pub(crate) fn failed(&mut self, volser: &Volser, at: &DriveAt) -> bool {
        let before = self.failed.iter().position(|failed| failed.volser == *volser);
        let before = before.map(|before| self.failed.swap_remove(before));
        self.failed.push(FailedVolume { volser: volser.clone(), at: at.clone(), took_another: false });
        // Of an unnamed drive nobody knows whether it is the one that took another.
        at.drive.is_some() && before.is_some_and(|before| before.at.drive.is_some() && before.took_another)
    }

    /// A drive has failed with one volume after another: what it took before says nothing for it any more.
    pub(crate) fn drive_failed(&mut self, at: &DriveAt) {
        self.failed.iter_mut().filter(|failed| failed.at == *at).for_each(|failed| failed.took_another = false);
    }

    /// A drive has taken a volume.
    pub(crate) fn took(&mut self, volser: &Volser, at: &DriveAt) {
        self.failed.retain(|failed| failed.volser != *volser);
        let is_of = |failed: &&mut FailedVolume| {
            failed.at == *at || (failed.at.drive.is_none() && failed.at.library == at.library)
        };
        self.failed.iter_mut().filter(is_of).for_each(|failed| failed.took_another = true);
    }

    /// The volumes that others are to be tried before: since they failed, their drive has taken none.
    pub(crate) fn doubted(&self) -> Vec<Volser> {
        let doubted = self.failed.iter().filter(|failed| !failed.took_another);
        doubted.map(|failed| failed.volser.clone()).collect()
    }

    /// All that failed when they were tried last.
    pub(crate) fn all_failed(&self) -> Vec<Volser> {
        self.failed.iter().map(|failed| failed.volser.clone()).collect()
    }

    /// A block could not be written on a volume. Gives another volume of which the same was so before, with nothing
    /// written well between: it is the drive then.
    pub(crate) fn could_not_write(&mut self, volser: &Volser, at: DriveAt) -> Option<Volser> {
        match self.unwritten.iter().find(|(drive, _)| *drive == at) {
            Some((_, before)) => (before != volser).then(|| before.clone()),
            None => {
                self.unwritten.push((at, volser.clone()));
                None
            }
        }
    }

    /// A drive has written a session to its end, or much of a volume.
    pub(crate) fn wrote(&mut self, at: &DriveAt) {
        self.unwritten.retain(|(drive, _)| drive != at);
    }

    /// A volume was read to its end and is good, or was written anew: what was before says nothing of it.
    pub(crate) fn forget(&mut self, volser: &Volser) {
        self.failed.retain(|failed| failed.volser != *volser);
        self.unwritten.retain(|(_, unwritten)| unwritten != volser);
    }
}

impl Mounter {
    /// What failed in drives. Where that cannot be read, each run learns it anew.
    pub(crate) fn drive_faults(&self) -> DriveFaults {
        read(locked(&self.catalog).fact(FACT).ok().flatten())
    }

    /// Changes it, in one transaction if there is anything to change.
    pub(crate) fn change_drive_faults<T: Default>(&self, change: impl Fn(&mut DriveFaults) -> T) -> T {
        let before = self.drive_faults();
        let mut faults = before.clone();
        let mut told = change(&mut faults);
        if faults == before {
            return told;
        }
        // Where it cannot be kept, each run learns it anew.
        let _ = locked(&self.catalog).change_fact(FACT, |known| {
            let mut faults = read(known);
            told = change(&mut faults);
            serde_json::to_string(&faults).ok()
        });
        told
    }

    /// Notes that a drive has written a session to its end, or much of a volume.
    pub(crate) fn note_flushed(&self, volume: &InDrive) {
        let drive = Some(volume.drive.clone());
        let at = DriveAt { library: volume.library.name.clone(), drive };
        self.change_drive_faults(|faults| faults.wrote(&at));
    }
}

fn read(kept: Option<String>) -> DriveFaults {
    kept.and_then(|text| serde_json::from_str(&text).ok()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests fail by panicking")]
    use super::*;

    fn volser(name: &str) -> Volser {
        Volser::new(name).unwrap()
    }

    fn at(drive: &str) -> DriveAt {
        let drive = (!drive.is_empty()).then(|| drive.to_owned());
        DriveAt { library: "main".to_owned(), drive }
    }

    /// Two bad cartridges kept all others of a pool from being tried.
    #[test]
    fn bad_cartridges_are_told_from_a_drive_by_one_that_it_takes() {
        let mut faults = DriveFaults::default();
        let [first, second, third] = ["A00001", "A00002", "A00003"].map(volser);
        for _ in 0..2 {
            assert!(!faults.failed(&first, &at("one")) && !faults.failed(&second, &at("one")));
        }
        assert_eq!(faults.doubted(), [first.clone(), second.clone()]);
        faults.took(&third, &at("one"));
        assert_eq!((faults.doubted(), faults.all_failed().len()), (Vec::new(), 2));
        assert!(faults.failed(&first, &at("one")) && faults.failed(&second, &at("one")));
    }

    #[test]
    fn a_drive_that_was_mended_or_another_one_says_nothing_against_a_volume() {
        let (mut faults, [first, second]) = (DriveFaults::default(), ["A00001", "A00002"].map(volser));
        assert!(!faults.failed(&first, &at("one")) && !faults.failed(&second, &at("one")));
        faults.took(&first, &at("one"));
        // The drive is broken again.
        faults.drive_failed(&at("one"));
        assert!(!faults.failed(&second, &at("one")));
        assert!(!faults.failed(&first, &at("one")), "it was well since");
        faults.took(&second, &at("two"));
        assert!(!faults.failed(&first, &at("one")), "another drive took it");
        // One that fails in each drive, where both took others, is bad itself.
        faults.took(&second, &at("one"));
        assert!(faults.failed(&first, &at("two")));
        faults.took(&second, &at("two"));
        faults.forget(&first);
        assert!(!faults.failed(&first, &at("two")), "it was read, and is good");
        // Where nobody says which drive it was, it is tried again and never taken for bad.
        assert!(!faults.failed(&first, &at("")));
        faults.took(&second, &at("two"));
        assert!(faults.doubted().is_empty() && !faults.failed(&first, &at("")));
    }
}
