//! Verifying a whole volume.

use std::collections::{HashMap, HashSet};
use std::ops::Range;
use std::sync::atomic::Ordering;
use std::time::Instant;

use capstan_catalog::{Extent, StateEntry, Verified, Volume, VolumeState, without};
use capstan_format::{FileEntry, ObjectId, ObjectKind, Volser, VolumeId};
use capstan_mover::{
    BetweenBlocks, FIRST_SESSION_LBN, ReadHost, RestoreWatch, VolumeAccess, VolumePlace, verify_streams,
};
use capstan_tape::with_causes;

use crate::catch_up::clear_suspicion;
use crate::chains::Chains;
use crate::damage::BadPlaces;
use crate::drive_history::Stay;
use crate::mounter::{Mounter, ReadMounter};
use crate::restore::RestoreReport;
use crate::select::WhichCopy;
use crate::site::{Site, locked};
use crate::verify_object::{HeldRanges, extents_by_copy};
use crate::{DirectorError, Event};

impl Site {
    /// Reads back every block of a volume, from front to back and in one mount: labels, session headers and catalog
    /// parts by themselves, data with every file's checksum. Files that go on on another volume are read from there,
    /// too. What is found is put on record, in place of what was; a volume that was set aside and is found good may be
    /// written again.
    ///
    /// # Errors
    /// [`DirectorError::UnknownVolume`]; the volume cannot be mounted, or no key opens it; or what was found cannot be
    /// put on record. Damage is in the report.
    pub fn verify_volume(&self, volser: &Volser, watch: &RestoreWatch) -> Result<RestoreReport, DirectorError> {
        let (began, since_ns) = (Instant::now(), self.now_ns());
        let known = Mounter::new(self).volume(volser)?;
        let Some(life) = known.id else {
            if known.state == VolumeState::Suspect {
                let message = format!(
                    "volume {volser} holds nothing, so there is nothing to read: `capstan label {volser} --force` writes \
                     its label anew, and lets it be used again if that succeeds"
                );
                (self.events)(Event::Notice { message });
            }
            return Ok(RestoreReport::default());
        };
        let place = VolumePlace { volser: volser.clone(), volume: life };
        let mut host = ReadMounter::new(Mounter::new(self).stopped_by(&watch.stop));
        let opened = host.open(&place);
        if known.checkpoint_lbn == 0 && opened.as_ref().is_err_and(DirectorError::is_without_label) {
            let message = format!(
                "volume {volser} has no label, as the run that was to write it was interrupted: nothing was written on it, and \
                 the next backup to its pool labels it"
            );
            (self.events)(Event::Notice { message });
            return Ok(RestoreReport::default());
        }
        host.note_bad(&[], "verify");
        host.release(opened?, &place);
        let (extents, sound) = {
            let catalog = locked(&self.catalog);
            let extents = catalog.extents_on(volser)?;
            // Damaged blocks are read by themselves: another volume may hold what stood there by now.
            let sound = BadPlaces::of(&catalog)?.sound_of_each(&catalog, extents.clone())?;
            (extents, sound)
        };
        watch.planned.fetch_add(extents.iter().map(|extent| extent.record.plain_len).sum(), Ordering::Relaxed);
        let mut between = BetweenBlocks::new(place.clone(), gaps(known.end_of_data_lbn, &sound), &watch.stop);
        let mut report = RestoreReport::default();
        for group in interleaved(&extents) {
            if watch.stop.load(Ordering::Relaxed) {
                break;
            }
            let part = self.verify_group(&group, &sound, (&mut host, &mut between), watch, &mut report.behind)?;
            report.add(part);
        }
        if !watch.stop.load(Ordering::Relaxed) {
            host.read_between(&place, &mut between, known.end_of_data_lbn)?;
        }
        report.blocks += between.blocks;
        report.lost.extend(between.lost);
        report.bad.extend(between.bad);
        report.members = watch.members.load(Ordering::Relaxed);
        report.bytes = watch.bytes.load(Ordering::Relaxed);
        report.elapsed_ns = began.elapsed().as_nanos() as u64;
        let stopped = watch.stop.load(Ordering::Relaxed);
        let (own, others): (Vec<_>, Vec<_>) = report.bad.iter().cloned().partition(|bad| bad.volser == *volser);
        host.note_bad(&others, "verify");
        // What goes on on another volume may be out of reach without this one being so.
        let all_read = report.without_key.iter().all(|(other, _)| other != volser)
            && report.lost.iter().all(|lost| lost.of_medium || lost.volser != *volser);
        if stopped || !all_read {
            host.note_bad(&own, "verify");
        } else {
            host.record_verified(&place, Verified::Volume, &own);
        }
        drop(host);
        let all_good = report.is_whole() && report.bad.is_empty() && report.is_complete();
        if known.state == VolumeState::Suspect && all_good && !stopped {
            self.clear(&known, life, since_ns, watch)?;
        }
        Ok(report)
    }

    /// Reads what a volume holds of objects that were written beside each other, in one pass.
    fn verify_group(
        &self,
        group: &[(ObjectId, u8)],
        extents: &[Extent],
        (host, between): (&mut ReadMounter, &mut BetweenBlocks),
        watch: &RestoreWatch,
        behind: &mut u64,
    ) -> Result<RestoreReport, DirectorError> {
        let copies: HashMap<ObjectId, u8> = group.iter().copied().collect();
        let mut wanted = Vec::new();
        for &(object, copy) in group {
            let catalog = locked(&self.catalog);
            let index = catalog.index(object)?;
            // The one member of a device image runs through all connections.
            let joined = catalog.object(object)?.is_some_and(|object| object.kind == ObjectKind::Device);
            let own: Vec<Extent> = extents.iter().filter(|extent| extent.record.object == object).cloned().collect();
            let held = HeldRanges::of(&extents_by_copy(&catalog, object)?);
            let chains = Chains::of(&catalog, object)?;
            for entry in index.iter() {
                let entry = entry?;
                if !joined && !touches(&own, (&entry, &chains)) {
                    continue;
                }
                // A member that this copy holds only part of is what a twin lacks, not damage.
                if !joined && !held.holds((&entry, &chains), copy) {
                    *behind += 1;
                    continue;
                }
                wanted.push(StateEntry { object, entry, unread: None });
            }
        }
        let objects = group.iter().map(|(object, _)| *object).collect();
        let plan = self.plan(wanted, objects, false, WhichCopy::Of(&copies))?;
        let planned = plan.blocks_on(between.volser());
        for Extent { record, .. } in extents.iter().filter(|extent| copies.contains_key(&extent.record.object)) {
            let blocks = record.first_lbn..record.first_lbn.saturating_add(u64::from(record.blocks));
            let first = planned.partition_point(|range| range.end <= blocks.start);
            let end = planned.partition_point(|range| range.start < blocks.end);
            without(blocks, &planned[first..end]).into_iter().for_each(|left| between.add(left));
        }
        let routes = self.routes()?;
        let access = VolumeAccess { host, drives: routes.drives(), between: Some(between) };
        let streams = verify_streams(&plan.wanted, &plan.reads, access, watch);
        self.report(&plan, streams, host, watch)
    }

    /// A volume that was set aside and is good is written again, unless a drive has said since that it is worn. Why it
    /// is not, if so, is no fault of what was read.
    fn clear(&self, known: &Volume, life: VolumeId, since_ns: i64, watch: &RestoreWatch) -> Result<(), DirectorError> {
        let history = self.drive_history(None, Some(&known.volser))?;
        // Its drives were asked while it was read.
        let mut meanwhile = history.stays.iter().take_while(|stay| stay.since_ns >= since_ns);
        let sound = match meanwhile.find_map(Stay::against_medium) {
            Some(alert) => {
                let meaning = alert.meaning.unwrap_or_default();
                let reason = format!("its drive says that {meaning} (TapeAlert {})", alert.flag);
                Err(DirectorError::VolumeWorn { volser: known.volser.clone(), reason })
            }
            None => Ok(()),
        };
        let present = sound.and_then(|()| self.presence());
        let cleared = present.and_then(|_presence| {
            let mounter = Mounter::new(self).stopped_by(&watch.stop).at_volume(&known.volser)?;
            let _seats = mounter.seats(1)?;
            clear_suspicion(&mounter, known, life)
        });
        match cleared {
            Err(
                error @ (DirectorError::Busy { .. }
                | DirectorError::InUse { .. }
                | DirectorError::StateReadOnly { .. }
                | DirectorError::VolumeDiffers { .. }
                | DirectorError::VolumeWorn { .. }),
            ) => {
                let message = format!("volume {} stays set aside: {}", known.volser, with_causes(&error));
                (self.events)(Event::Notice { message });
                Ok(())
            }
            other => other,
        }
    }
}

/// What lies between extents, from the first session on.
fn gaps(end_lbn: u64, extents: &[Extent]) -> Vec<Range<u64>> {
    let mut left = Vec::new();
    let mut at = FIRST_SESSION_LBN;
    for extent in extents {
        let record = &extent.record;
        if at < record.first_lbn {
            left.push(at..record.first_lbn);
        }
        at = at.max(record.first_lbn.saturating_add(u64::from(record.blocks)));
    }
    if at < end_lbn {
        left.push(at..end_lbn);
    }
    left
}

/// Objects on a volume with the copy that it holds of each, in the order of the tape; those that were interleaved are
/// together.
fn interleaved(extents: &[Extent]) -> Vec<Vec<(ObjectId, u8)>> {
    let mut last: HashMap<ObjectId, u64> = HashMap::new();
    for extent in extents {
        let end = extent.record.first_lbn.saturating_add(u64::from(extent.record.blocks));
        let known = last.entry(extent.record.object).or_default();
        *known = (*known).max(end);
    }
    let mut groups: Vec<Vec<(ObjectId, u8)>> = Vec::new();
    let mut until = 0;
    let mut seen = HashSet::new();
    for extent in extents {
        let object = extent.record.object;
        if !seen.insert(object) {
            continue;
        }
        match groups.last_mut().filter(|_| extent.record.first_lbn < until) {
            Some(group) => group.push((object, extent.copy)),
            None => groups.push(vec![(object, extent.copy)]),
        }
        until = until.max(last.get(&object).copied().unwrap_or_default());
    }
    groups
}

fn touches(extents: &[Extent], (entry, chains): (&FileEntry, &Chains)) -> bool {
    let ranges = chains.ranges(entry);
    entry.member_len > 0
        && extents.iter().any(|extent| {
            let record = &extent.record;
            ranges.iter().any(|(connection, range)| {
                record.connection == *connection
                    && range.start < record.offset + record.plain_len
                    && record.offset < range.end
            })
        })
}
