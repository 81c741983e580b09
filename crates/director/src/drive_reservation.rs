//! Reservations of drives: other hosts are kept away from a drive that this one uses.
//!
//! The key is "CP", 24 bits of the catalog's name and 24 of the generation under which the job has reserved what it
//! mounts. So whoever finds a drive reserved can look whether the job lives that did it, wherever that ran; the drive
//! of one that is gone is taken over. Of the key of another catalog, or another program, nothing is known, and it
//! stays.

use capstan_format::crc32c;
use capstan_tape::{ChangerError, Drive, DriveError};

/// How a mover's reservation key begins: "CP".
const KEY_PREFIX: u64 = 0x4350;

/// Bits of the catalog's name, and of the generation.
const PART_BITS: u32 = 24;
const PART: u64 = (1 << PART_BITS) - 1;

/// Whose reservation it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct MoverKey(u64);

impl MoverKey {
    pub(crate) fn new(catalog: &str, generation: u64) -> Self {
        let name = u64::from(crc32c(catalog.as_bytes())) & PART;
        Self((KEY_PREFIX << (2 * PART_BITS)) | (name << PART_BITS) | (generation & PART))
    }

    /// Whether another key is of the same catalog, of an older generation, and of none of those that live. A younger
    /// one is of a catalog that this one is a copy of.
    fn is_gone(self, other: u64, living: &[u64]) -> bool {
        let same_catalog = other >> PART_BITS == self.0 >> PART_BITS;
        let older_by = self.0.wrapping_sub(other) & PART;
        let is_older = (1..=PART / 2).contains(&older_by);
        same_catalog && is_older && !living.iter().any(|generation| generation & PART == other & PART)
    }
}

/// Keeps other hosts away from a drive, where it can be done. `living` are the generations of jobs that live; where
/// they are not known, no drive is taken over.
pub(crate) fn reserve(drive: &mut dyn Drive, key: MoverKey, living: Option<&[u64]>) -> Result<(), ChangerError> {
    let Some(care) = drive.care() else { return Ok(()) };
    match care.reserve(key.0, &|other| living.is_some_and(|living| key.is_gone(other, living))) {
        Err(DriveError::InUse { what, holder }) => Err(ChangerError::InUse { what, holder }),
        // A drive that knows no reservations is used without; what else is wrong with it the next command tells.
        _ => Ok(()),
    }
}

/// Lets others have a drive that is not needed any more.
pub(crate) fn release(drive: &mut dyn Drive) {
    if let Some(care) = drive.care() {
        // A reservation that stays is this host's own, or of a job that is gone: the next mount takes it over.
        let _ = care.release();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_drive_is_taken_from_a_job_of_this_catalog_that_is_gone() {
        let own = MoverKey::new("one", 9);
        assert_eq!(own.0 >> 48, 0x4350);
        let (gone, lives) = (MoverKey::new("one", 7), MoverKey::new("one", (1 << PART_BITS) | 8));
        assert!(own.is_gone(gone.0, &[8, 9]) && !own.is_gone(lives.0, &[8, 9]));
        assert!(!own.is_gone(MoverKey::new("other", 7).0, &[8, 9]), "another catalog may be at work");
        assert!(!own.is_gone(0x1234, &[8, 9]));
        assert!(!own.is_gone(MoverKey::new("one", 10).0, &[8, 9]), "this catalog is an older copy");
        assert!(!own.is_gone(own.0, &[]));
        let behind_the_turn = MoverKey::new("one", (1 << PART_BITS) + 2);
        assert!(behind_the_turn.is_gone(MoverKey::new("one", (1 << PART_BITS) - 5).0, &[]));
    }
}
