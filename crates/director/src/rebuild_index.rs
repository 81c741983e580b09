//! The list of files of one object, made anew from that object's volumes alone.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use capstan_catalog::{Object, PartPlaces, Resource, Wish};
use capstan_format::{ObjectId, Volser};
use capstan_tape::with_causes;

use crate::DirectorError;
use crate::mounter::{InDrive, Mounter};
use crate::site::{Site, locked};

/// How it ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IndexReport {
    /// The object.
    pub object: ObjectId,
    /// Paths that it has now.
    pub entries: u64,
    /// Paths that it had by the record, if that is known.
    pub entries_before: Option<u64>,
    /// Catalog parts that it was made from; none if the list that there is can be read, and was kept because no copy
    /// was read in full.
    pub parts: u64,
    /// What could not be read, and why. Another copy may have stood in for it.
    pub problems: Vec<(Volser, String)>,
}

impl IndexReport {
    /// Whether nothing is known to be missing.
    pub fn is_whole(&self) -> bool {
        self.entries_before.map_or_else(|| self.problems.is_empty(), |before| before == self.entries)
    }
}

impl Site {
    /// Makes the index of a complete object anew: from one copy, and from the others where that one does not give all.
    /// Of each volume no more is read than the catalog parts of sessions that wrote the object. An index that can be
    /// read stays where no copy is read in full: a part of a list takes the place of no whole one.
    ///
    /// # Errors
    /// [`DirectorError::InUse`] if a job is at the object; [`DirectorError::IndexOutOfReach`] if no volume that is here
    /// gives anything of it; [`DirectorError::Interrupted`] if `stop` is set. Otherwise the catalog cannot be written.
    pub fn rebuild_index(&self, object: &Object, stop: &Arc<AtomicBool>) -> Result<IndexReport, DirectorError> {
        let _presence = self.presence()?;
        let _object = self.holds.claim(&Wish { shared: vec![Resource::Object(object.id)], ..Wish::default() })?;
        let places = locked(&self.catalog).places_of_parts(object.id)?;
        let mounter = Mounter::new(self).stopped_by(stop);
        let present = mounter.present()?;
        let entries_before = object.counts.map(|counts| counts.entries);
        let mut report = IndexReport { object: object.id, entries: 0, entries_before, parts: 0, problems: Vec::new() };
        let (mut runs, mut is_all) = (Vec::new(), false);
        for copy in places.chunk_by(|one, next| one.copy == next.copy) {
            let mut all_read = true;
            for place in copy {
                if stop.load(Ordering::Relaxed) {
                    return Err(DirectorError::Interrupted);
                }
                if !present.contains(&place.volser) {
                    all_read = false;
                    report.problems.push((place.volser.clone(), "it is not in the library".to_owned()));
                    continue;
                }
                match read_parts(&mounter, place, object.id, &mut runs) {
                    Ok(parts) => report.parts += parts,
                    Err(error) if error.no_keys_at_all() => return Err(error),
                    Err(error) => {
                        all_read = false;
                        report.problems.push((place.volser.clone(), with_causes(&error)));
                    }
                }
            }
            is_all = all_read;
            if is_all {
                break;
            }
        }
        if runs.is_empty() && entries_before.is_none_or(|before| before > 0) {
            return Err(DirectorError::IndexOutOfReach { object: object.id, problems: report.problems });
        }
        let index = if is_all { None } else { locked(&self.catalog).index(object.id).ok() };
        if let (Some(index), Some(before)) = (index, entries_before)
            && index.iter().all(|entry| entry.is_ok())
        {
            (report.entries, report.parts) = (before, 0);
            return Ok(report);
        }
        let (_, now) = locked(&self.catalog).index_anew(object.id, &runs)?;
        report.entries = now.entries;
        Ok(report)
    }
}

/// Adds the runs of entries of an object that a volume has, and says how many catalog parts were read.
fn read_parts(
    mounter: &Mounter,
    place: &PartPlaces,
    object: ObjectId,
    runs: &mut Vec<Vec<u8>>,
) -> Result<u64, DirectorError> {
    let hold = mounter.hold_to_read(std::slice::from_ref(&place.volser), false)?;
    let volume = mounter.mount_to_read(&place.volser, place.volume, hold)?;
    let read = parts_of(&volume, place, object, runs);
    mounter.dismount(volume)?;
    read
}

fn parts_of(
    volume: &InDrive,
    place: &PartPlaces,
    object: ObjectId,
    runs: &mut Vec<Vec<u8>>,
) -> Result<u64, DirectorError> {
    let mut parts = 0;
    for lbn in &place.lbns {
        let found = volume.checkpoint(place.volume, *lbn)?;
        let part = volume.catalog_part(place.volume, &found)?;
        runs.extend(part.entries.into_iter().filter(|(of, _)| *of == object).map(|(_, run)| run));
        parts += 1;
    }
    Ok(parts)
}
