//! Verifying objects: each copy by itself.

use std::collections::{BTreeSet, HashMap};
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use capstan_catalog::{Catalog, Extent, Object, ObjectStatus, StateEntry, Verified};
use capstan_format::{FileEntry, ObjectId, ObjectKind};
use capstan_mover::{RestoreWatch, VolumeAccess, VolumePlace, joined, verify_streams};

use crate::DirectorError;
use crate::chains::Chains;
use crate::damage::BadPlaces;
use crate::mounter::{Mounter, ReadMounter};
use crate::ranges::stream_lengths;
use crate::restore::RestoreReport;
use crate::select::{WhichCopy, sound_first};
use crate::site::{Site, locked};

/// What reading back one copy of an object gave.
#[derive(Debug)]
pub struct VerifiedCopy {
    /// The object.
    pub object: ObjectId,
    /// The copy.
    pub copy: u8,
    /// What was met.
    pub report: RestoreReport,
}

impl Site {
    /// Reads back all copies of objects, every block and every file's checksum: the first copies one after the other,
    /// then the second ones, so that a volume is mounted once. What is found is put on record.
    ///
    /// # Errors
    /// What was found cannot be put on record. Copies that cannot be read are in the report.
    pub fn verify_objects(&self, objects: &[Object], watch: &RestoreWatch) -> Result<Vec<VerifiedCopy>, DirectorError> {
        let mut copies = BTreeSet::new();
        for (number, object) in objects.iter().enumerate() {
            let held = locked(&self.catalog).copies(object.id)?;
            let parts = locked(&self.catalog).parts(object.id)?;
            let len: u64 = parts.iter().map(|part| part.valid_len).sum();
            watch.planned.fetch_add(len * held.len() as u64, Ordering::Relaxed);
            copies.extend(held.into_iter().map(|copy| (copy.copy, number)));
        }
        let mut host = ReadMounter::new(Mounter::new(self).stopped_by(&watch.stop));
        let mut verified = Vec::new();
        for (copy, number) in copies {
            let object = &objects[number];
            let report = self.verify_copy(object, copy, &mut host, watch)?;
            if watch.stop.load(Ordering::Relaxed) {
                return Err(DirectorError::RestoreInterrupted);
            }
            verified.push(VerifiedCopy { object: object.id, copy, report });
        }
        Ok(verified)
    }

    fn verify_copy(
        &self,
        object: &Object,
        copy: u8,
        host: &mut ReadMounter,
        watch: &RestoreWatch,
    ) -> Result<RestoreReport, DirectorError> {
        let began = Instant::now();
        let (entries, copies, held, sound, chains) = {
            let catalog = locked(&self.catalog);
            let index = catalog.index(object.id)?;
            let entries: Result<Vec<_>, _> = index
                .iter()
                .map(|entry| entry.map(|entry| StateEntry { object: object.id, entry, unread: None }))
                .collect();
            let extents = extents_by_copy(&catalog, object.id)?;
            let held = HeldRanges::of(&extents);
            let sound = HeldRanges::of(&BadPlaces::of(&catalog)?.sound(extents, object.chunk_len));
            (entries?, catalog.copies(object.id)?, held, sound, Chains::of(&catalog, object.id)?)
        };
        let load = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let (members, bytes) = (load(&watch.members), load(&watch.bytes));
        // What another copy holds, as far as is known, and this one does not is no damage; what none holds is looked
        // for here, and missed.
        let elsewhere = |StateEntry { entry, .. }: &StateEntry| {
            object.kind != ObjectKind::Device
                && !held.holds((entry, &chains), copy)
                && copies.iter().any(|other| sound.holds((entry, &chains), other.copy))
        };
        let all = entries.len();
        let own: Vec<_> = entries.into_iter().filter(|entry| !elsewhere(entry)).collect();
        let behind = (all - own.len()) as u64;
        let open = object.status == ObjectStatus::Open;
        let plan = self.plan(own, vec![object.id], open, WhichCopy::Only(copy))?;
        let routes = self.routes()?;
        let access = VolumeAccess { host, drives: routes.drives(), between: None };
        let streams = verify_streams(&plan.wanted, &plan.reads, access, watch);
        let mut report = self.report(&plan, streams, host, watch)?;
        (report.behind, report.elapsed_ns) = (behind, began.elapsed().as_nanos() as u64);
        report.members -= members;
        report.bytes -= bytes;
        let complete = report.is_complete() && behind == 0 && !watch.stop.load(Ordering::Relaxed);
        host.note_bad(if complete { &[] } else { &report.bad }, "verify");
        if complete {
            for volser in copies.iter().filter(|held| held.copy == copy).flat_map(|held| &held.volumes) {
                let life = locked(&self.catalog).volume(volser)?.and_then(|volume| volume.id);
                let Some(volume) = life else { continue };
                let place = VolumePlace { volser: volser.clone(), volume };
                let bad: Vec<_> = report.bad.iter().filter(|bad| bad.volser == *volser).cloned().collect();
                host.record_verified(&place, Verified::Object(object.id, &plan.blocks_on(volser)), &bad);
            }
        }
        Ok(report)
    }
}

/// The extents of each copy of an object, without overlap: what is on record as damaged is left out where the copy has
/// it elsewhere. By copy, connection and offset.
pub(crate) fn extents_by_copy(catalog: &Catalog, object: ObjectId) -> Result<Vec<Extent>, DirectorError> {
    let bad = BadPlaces::of(catalog)?;
    let lengths = stream_lengths(catalog, object)?;
    let chunk_len = catalog.object(object)?.map_or(0, |object| object.chunk_len);
    let mut all = Vec::new();
    for copy in catalog.copies(object)? {
        all.extend(sound_first(catalog.extents(object, Some(copy.copy))?, &bad, &lengths, chunk_len));
    }
    all.sort_by_key(|extent| (extent.copy, extent.record.connection, extent.record.offset));
    Ok(all)
}

/// What each copy holds of each stream of an object: ranges that neither overlap nor touch. A block that was damaged
/// and mended lies in two extents of one copy.
pub(crate) struct HeldRanges(HashMap<(u8, u16), Vec<Range<u64>>>);

impl HeldRanges {
    pub(crate) fn of(extents: &[Extent]) -> Self {
        let mut held: HashMap<_, Vec<Range<u64>>> = HashMap::new();
        for Extent { copy, record, .. } in extents {
            let range = record.offset..record.offset.saturating_add(record.plain_len);
            held.entry((*copy, record.connection)).or_default().push(range);
        }
        held.values_mut().for_each(|ranges| *ranges = joined(std::mem::take(ranges)));
        Self(held)
    }

    /// Whether a copy holds the whole of a member.
    pub(crate) fn holds(&self, (entry, chains): (&FileEntry, &Chains), copy: u8) -> bool {
        let holds = |(connection, wanted): (u16, Range<u64>)| {
            let held = self.0.get(&(copy, connection)).map_or(&[][..], |held| held);
            let before = held.partition_point(|range| range.start <= wanted.start);
            wanted.is_empty() || held[..before].last().is_some_and(|range| range.end >= wanted.end)
        };
        chains.ranges(entry).into_iter().all(holds)
    }
}
