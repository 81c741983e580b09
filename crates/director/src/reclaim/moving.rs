//! Moving copies off a volume: what only it holds of them is written to other volumes of the pool.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};

use capstan_catalog::{Catalog, Extent, Object, ObjectStatus, Volume, VolumeState};
use capstan_format::{FileEntry, ObjectId, ObjectRecord, Volser};
use capstan_mover::{
    BetweenBlocks, Intake, ReadPlan, RestoreWatch, StreamSink, VolumeAccess, VolumePlace, Wanted, WantedMember,
    WantedStream, joined, open_at_once, plan_reads, read_streams,
};
use capstan_tape::with_causes;

use super::{ReclaimOptions, ReclaimableVolume, Reclaimed};
use crate::DirectorError;
use crate::chains::{EntriesOf, check_taken};
use crate::copy::{MoveFault, copies_of, move_bytes};
use crate::damage::{BadPlaces, lost_ranges};
use crate::jobs::record_of;
use crate::keys::unreadable_volumes;
use crate::mounter::{Drives, Mounter, ReadMounter};
use crate::ranges::{MissingRange, missing_ranges, stream_lengths};
use crate::repair::{take_of, without_lost};
use crate::select::{Layout, WhichCopy, locate_streams};
use crate::shared::apart;
use crate::site::{Site, locked};

/// Copies that are written in one session, at most; and files of them, whose entries are in memory meanwhile, but of
/// one copy at least. Behind each session, both volumes are mounted again.
const COPIES_TOGETHER: usize = 512;
const FILES_TOGETHER: u64 = 500_000;
/// How often what could be read neither from the volume nor elsewhere is looked at again: each time, what was found
/// damaged is passed over.
const ATTEMPTS: u32 = 8;

/// A copy that a volume holds something of.
struct HeldCopy {
    object: Object,
    copy: u8,
    /// Until when it is kept, as its volumes say.
    expires_ns: i64,
    /// Where its first block stands on the volume.
    first_lbn: u64,
    /// Bytes of it that the volume holds.
    bytes: u64,
}

/// What is to be written of a copy.
struct ToMove<'h> {
    held: &'h HeldCopy,
    ranges: Vec<MissingRange>,
    entries: EntriesOf,
    /// Bytes that no volume has any more.
    lost: u64,
}

impl ToMove<'_> {
    /// The object, and why it stays.
    fn why_left(&self, volume: &ReclaimableVolume) -> (ObjectId, String) {
        let object = &self.held.object;
        let reason = format!(
            "{} bytes of it cannot be read, and no other volume has them: back up {} again, or `capstan erase {}` gives \
             them up",
            self.lost,
            String::from_utf8_lossy(&object.source),
            volume.volser
        );
        (object.id, reason)
    }
}

/// A range of a stream, with the entries that go with it.
type Piece = (MissingRange, Vec<(u64, FileEntry)>);

impl Site {
    /// Writes what is needed of a volume to others of its pool, and has the catalog leave it, copy by copy.
    pub(super) fn move_off(
        &self,
        volume: &ReclaimableVolume,
        options: ReclaimOptions,
        watch: &RestoreWatch,
        done: &mut Reclaimed,
    ) -> Result<(), DirectorError> {
        let held = self.held_copies(volume, done)?;
        let mut rest = &held[..];
        let mut host = ReadMounter::new(Mounter::new(self).stopped_by(&watch.stop));
        while !rest.is_empty() {
            let (together, behind) = rest.split_at(that_go_together(rest));
            rest = behind;
            if watch.stop.load(Ordering::Relaxed) {
                return Err(DirectorError::Interrupted);
            }
            let ids = together.iter().map(|held| held.object.id).collect();
            let (_claims, claimed) = self.reserve_as_far_as_free(ids, |ids| copies_of(ids, Some(&volume.pool)))?;
            let (free, taken): (Vec<_>, Vec<_>) = together.iter().partition(|held| claimed.contains(&held.object.id));
            done.left.extend(taken.iter().map(|held| (held.object.id, "another job uses it".to_owned())));
            let free = self.still_there(volume, free)?;
            let mut left = self.move_together(volume, &free, options, &mut host, watch, done)?;
            // A copy brings its entries along, cut otherwise than they were.
            self.seal_complete(&[])?;
            if options.verify || volume.is_to_go {
                let moved: Vec<_> = free.iter().copied().filter(|held| !left.contains_key(&held.object.id)).collect();
                left.extend(self.read_back(volume, &moved, &mut host, watch)?);
            }
            let whole: Vec<_> = free.into_iter().filter(|held| !left.contains_key(&held.object.id)).collect();
            done.left.extend(left);
            self.leave(volume, &whole, done)?;
        }
        Ok(())
    }

    /// Those of some copies that are reserved that the volume holds still: they may have been forgotten before.
    fn still_there<'h>(
        &self,
        volume: &ReclaimableVolume,
        mut copies: Vec<&'h HeldCopy>,
    ) -> Result<Vec<&'h HeldCopy>, DirectorError> {
        let now: HashSet<_> = locked(&self.catalog).copies_on(&volume.volser)?.into_iter().collect();
        copies.retain(|held| now.contains(&(held.object.id, held.copy)));
        Ok(copies)
    }

    /// The copies on a volume, in the order of the tape. What was not completed is left: a run may go on with it there.
    fn held_copies(&self, volume: &ReclaimableVolume, done: &mut Reclaimed) -> Result<Vec<HeldCopy>, DirectorError> {
        apart(&self.catalog, |catalog| {
            let mut places: HashMap<ObjectId, (u64, u64)> = HashMap::new();
            for Extent { record, .. } in catalog.extents_on(&volume.volser)? {
                let (first, bytes) = places.entry(record.object).or_insert((u64::MAX, 0));
                *first = (*first).min(record.first_lbn);
                *bytes = bytes.saturating_add(record.plain_len);
            }
            let mut held = Vec::new();
            for (id, copy) in catalog.copies_on(&volume.volser)? {
                let Some(object) = catalog.object(id)? else { continue };
                if object.status != ObjectStatus::Complete {
                    let reason = "its backup was interrupted: the next one goes on with it, or gives it up";
                    done.left.push((id, reason.to_owned()));
                    continue;
                }
                let ends = catalog.copy_ends(Some(id))?;
                let end = ends.iter().find(|end| end.copy == copy);
                let expires_ns = end.map_or(object.expires_ns, |end| end.expires_ns);
                let (first_lbn, bytes) = places.get(&id).copied().unwrap_or((u64::MAX, 0));
                held.push(HeldCopy { object, copy, expires_ns, first_lbn, bytes });
            }
            held.sort_by_key(|held| (held.copy, held.object.chunk_len, held.first_lbn));
            Ok(held)
        })
    }

    /// Writes copies in one session; gives those that are not all elsewhere then, and why.
    fn move_together(
        &self,
        volume: &ReclaimableVolume,
        copies: &[&HeldCopy],
        options: ReclaimOptions,
        host: &mut ReadMounter,
        watch: &RestoreWatch,
        done: &mut Reclaimed,
    ) -> Result<HashMap<ObjectId, String>, DirectorError> {
        let mut left: HashMap<ObjectId, String> = HashMap::new();
        let mut to_do: Vec<&HeldCopy> = copies.to_vec();
        let mut before = u64::MAX;
        for attempt in 0..ATTEMPTS {
            let known = {
                let catalog = locked(&self.catalog);
                (BadPlaces::of(&catalog)?, unsafe_volumes(&catalog)?)
            };
            let mut moves =
                to_do.iter().map(|held| self.to_move(volume, held, &known)).collect::<Result<Vec<_>, _>>()?;
            let bytes = moves.iter().map(|moved| len_of(&moved.ranges)).sum();
            if attempt == 0 {
                // What an earlier run has moved.
                let held: u64 = to_do.iter().map(|held| held.bytes).sum();
                let less = |planned: u64| Some(planned.saturating_sub(held.saturating_sub(bytes)));
                let _ = watch.planned.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less);
            }
            // What can be had of these was had before.
            let is_over = |moved: &ToMove<'_>| moved.lost > 0 && len_of(&moved.ranges) == 0;
            left.extend(moves.iter().filter(|moved| is_over(moved)).map(|moved| moved.why_left(volume)));
            moves.retain(|moved| !is_over(moved));
            // The second time, any other copy is read where the volume cannot be.
            if moves.is_empty() || attempt > 1 && bytes == before {
                break;
            }
            before = bytes;
            let mut failed = self.write_elsewhere((volume, attempt == 0), &moves, options, host, watch, done)?;
            to_do.retain(|held| failed.contains_key(&held.object.id));
            for moved in &moves {
                let object = &moved.held.object;
                let lost = (moved.lost > 0).then(|| moved.why_left(volume).1);
                match failed.remove(&object.id).or(lost) {
                    Some(reason) => left.insert(object.id, reason),
                    None => left.remove(&object.id),
                };
            }
        }
        Ok(left)
    }

    /// What only this volume holds of a copy, and what no volume does.
    fn to_move<'h>(
        &self,
        volume: &ReclaimableVolume,
        held: &'h HeldCopy,
        (bad, unsafe_ones): &(BadPlaces, BTreeSet<Volser>),
    ) -> Result<ToMove<'h>, DirectorError> {
        let HeldCopy { object, copy, .. } = held;
        let (missing, lost) = {
            let catalog = locked(&self.catalog);
            let mut elsewhere = catalog.extents(object.id, Some(*copy))?;
            elsewhere.retain(|extent| extent.volser != volume.volser && !unsafe_ones.contains(&extent.volser));
            let sound = bad.sound(elsewhere, object.chunk_len);
            let parts = stream_lengths(&catalog, object.id)?;
            let missing = missing_ranges(*copy, &parts, &sound, object.chunk_len);
            (missing, lost_ranges(&catalog, object, bad)?)
        };
        let readable = without_lost(&missing, &lost, object.chunk_len);
        let lost = len_of(&missing) - len_of(&readable);
        let (ranges, entries) = self.to_copy(object, &readable)?;
        Ok(ToMove { held, ranges, entries, lost })
    }

    /// Writes copies to other volumes; gives those of which something could not be read, and why.
    fn write_elsewhere(
        &self,
        (volume, from_it): (&ReclaimableVolume, bool),
        moves: &[ToMove<'_>],
        options: ReclaimOptions,
        host: &mut ReadMounter,
        watch: &RestoreWatch,
        done: &mut Reclaimed,
    ) -> Result<HashMap<ObjectId, String>, DirectorError> {
        let wanted = self.wanted_of((volume, from_it), moves)?;
        let reads = plan_reads(&wanted);
        let mut failed: HashMap<ObjectId, String> = HashMap::new();
        for (stream, _) in &reads.missing {
            let reason = "parts of it are on volumes that are not in a library".to_owned();
            failed.insert(wanted.streams[*stream].object, reason);
        }
        let mut volumes: Vec<_> = reads.passes.iter().map(|pass| wanted.volumes[pass.volume].volser.clone()).collect();
        volumes.sort();
        volumes.dedup();
        host.mounter().check_drives_to_copy(&volumes)?;
        // From one session to the next, the volume stays in its drive.
        if !host.has_reserved(&volumes) {
            host.reserve(volumes, Drives::Waited)?;
        }
        let objects: Vec<&Object> = moves.iter().map(|moved| &moved.held.object).collect();
        let copy = moves.first().map_or(1, |moved| moved.held.copy);
        let how = (open_at_once(&reads) + 1, options.shortfall);
        let session = self.session_for_copies(host.mounter(), (&volume.pool, copy), &objects, how, watch)?;
        let moved = self.hand_on(session.intake(), moves, (&wanted, &reads), host, watch, done, &mut failed);
        let written = session.finish().writers.into_iter().find_map(Result::err);
        if watch.stop.load(Ordering::Relaxed) && (moved.is_err() || written.is_some()) {
            return Err(DirectorError::Interrupted);
        }
        // Why the volume could not be written says more than that nothing could be handed on any more.
        match written.map(DirectorError::of_copy) {
            Some(DirectorError::CopiesFailed(cause)) => Err(DirectorError::Mover(cause)),
            Some(own) => Err(own),
            None => moved.map(|()| failed),
        }
    }

    /// What is read, and where it stands: on the volume itself, if it can be read there.
    fn wanted_of(
        &self,
        (volume, from_it): (&ReclaimableVolume, bool),
        moves: &[ToMove<'_>],
    ) -> Result<Wanted, DirectorError> {
        let mut streams: BTreeMap<(ObjectId, u16), Vec<WantedMember>> = BTreeMap::new();
        for moved in moves {
            for missing in moved.ranges.iter().filter(|missing| !missing.range.is_empty()) {
                let len = missing.range.end - missing.range.start;
                let member = WantedMember { offset: missing.range.start, len, crc: 0 };
                streams.entry((moved.held.object.id, missing.connection)).or_default().push(member);
            }
        }
        let present = self.present()?;
        let catalog = locked(&self.catalog);
        let mut wanted = locate_streams(&catalog, streams, &present, WhichCopy::Any, Layout::Apart)?.wanted;
        let own = wanted.volumes.iter().position(|place| place.volser == volume.volser).filter(|_| from_it);
        for stream in wanted.streams.iter_mut().filter(|_| own.is_some()) {
            let mut on_it = stream.extents.clone();
            on_it.retain(|extent| Some(extent.volume) == own);
            let alone = Wanted {
                volumes: wanted.volumes.clone(),
                streams: vec![WantedStream { extents: on_it.clone(), ..stream.clone() }],
            };
            if plan_reads(&alone).missing.is_empty() {
                stream.extents = on_it;
            }
        }
        Ok(wanted)
    }

    /// Reads what is to be moved, in the order of the tape, and hands it to the session.
    #[expect(
        clippy::too_many_arguments,
        reason = "what is moved, from where, to where, who watches, and what came of it"
    )]
    fn hand_on(
        &self,
        intake: &Intake,
        moves: &[ToMove<'_>],
        (wanted, reads): (&Wanted, &ReadPlan),
        host: &mut ReadMounter,
        watch: &RestoreWatch,
        done: &mut Reclaimed,
        failed: &mut HashMap<ObjectId, String>,
    ) -> Result<(), DirectorError> {
        let mut pieces: HashMap<(ObjectId, u16), Vec<Piece>> = HashMap::new();
        for moved in moves {
            let HeldCopy { object, copy, expires_ns, .. } = moved.held;
            let known = stream_lengths(&locked(&self.catalog), object.id)?;
            let record = ObjectRecord { expires_ns: *expires_ns, copy: *copy, ..record_of(object) };
            intake.begin_object_again(record, known)?;
            let mut entries = moved.entries.clone();
            for missing in &moved.ranges {
                let own = entries.get_mut(&missing.connection);
                let own = own.map(|own| take_of(own, &missing.range)).unwrap_or_default();
                if missing.range.is_empty() {
                    let (connection, sequence) = (missing.connection, missing.sequence);
                    let mut sink = intake.connection_at(object.id, connection, sequence, missing.range.start);
                    check_taken(&sink, &own)?;
                    own.into_iter().for_each(|(_, entry)| sink.member(entry));
                    sink.finish().map_err(|error| DirectorError::Output { reason: with_causes(&error) })?;
                } else {
                    pieces.entry((object.id, missing.connection)).or_default().push((missing.clone(), own));
                }
            }
        }
        let pieces: HashMap<_, _> = pieces.into_iter().map(|(stream, own)| (stream, Mutex::new(own))).collect();
        let (stop, faults) = (AtomicBool::new(false), Mutex::new(Vec::new()));
        let routes = self.routes()?;
        let access = VolumeAccess { host, drives: routes.drives(), between: None };
        let read = read_streams(wanted, reads, access, (&stop, &watch.meters), &|stream, reader| {
            let stream = &wanted.streams[stream];
            let Some(own) = pieces.get(&(stream.object, stream.connection)) else { return };
            let own = std::mem::take(&mut *own.lock().unwrap_or_else(PoisonError::into_inner));
            for (missing, mut entries) in own {
                let MissingRange { connection, sequence, range, last } = missing;
                let mut sink = intake.connection_at(stream.object, connection, sequence, range.start);
                let moved = match check_taken(&sink, &entries) {
                    Ok(()) => move_bytes(reader, range, &mut sink, &mut entries, watch),
                    Err(error) => Err(MoveFault::Unwritten(error.to_string())),
                };
                // The stream's last block says how far it is whole, where no member ends in it.
                let ended = moved.and_then(|()| {
                    let finished = if last { sink.finish() } else { sink.finish_range() };
                    finished.map_err(|error| MoveFault::Unwritten(error.to_string()))
                });
                if let Err(fault) = ended {
                    if !matches!(fault, MoveFault::Unread(_)) {
                        stop.store(true, Ordering::Relaxed);
                    }
                    let mut faults = faults.lock().unwrap_or_else(PoisonError::into_inner);
                    faults.push((stream.object, fault));
                    return;
                }
            }
        });
        host.note_bad(&read.bad, "reclaim");
        done.blocks += read.blocks;
        done.bytes += read.plain_bytes;
        let faults = faults.into_inner().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, fault)) = faults.iter().find(|(_, fault)| !matches!(fault, MoveFault::Unread(_))) {
            return Err(host.why_not(fault.to_string()));
        }
        for (object, fault) in faults {
            failed.entry(object).or_insert_with(|| fault.to_string());
        }
        // A stream that nobody was given was not met.
        for (stream, own) in &pieces {
            if !own.lock().unwrap_or_else(PoisonError::into_inner).is_empty() {
                let lost = read.lost.iter().find(|lost| lost.object == stream.0);
                let reason = lost.map_or_else(|| "it could not be read".to_owned(), ToString::to_string);
                failed.entry(stream.0).or_insert(reason);
            }
        }
        for moved in moves {
            let object = &moved.held.object;
            match failed.contains_key(&object.id) || moved.lost > 0 {
                true => intake.leave_object(object.id),
                false => intake.end_object(object.id, object.ended_ns)?,
            }
        }
        Ok(())
    }

    /// Reads back what other volumes hold of copies that a volume holds, too; gives those that cannot be read there.
    fn read_back(
        &self,
        volume: &ReclaimableVolume,
        copies: &[&HeldCopy],
        host: &mut ReadMounter,
        watch: &RestoreWatch,
    ) -> Result<HashMap<ObjectId, String>, DirectorError> {
        let mut blocks: BTreeMap<Volser, Vec<(Range<u64>, ObjectId)>> = BTreeMap::new();
        for held in copies {
            let extents = locked(&self.catalog).extents(held.object.id, Some(held.copy))?;
            for extent in in_its_place(&extents, &volume.volser) {
                let first = extent.record.first_lbn;
                let range = first..first.saturating_add(u64::from(extent.record.blocks));
                blocks.entry(extent.volser.clone()).or_default().push((range, held.object.id));
            }
        }
        // Nothing is written meanwhile: its drive may be what is read with.
        host.let_go();
        let mut failed = HashMap::new();
        for (volser, mut own) in blocks {
            own.sort_by_key(|(range, _)| range.start);
            let Some(life) = locked(&self.catalog).volume(&volser)?.and_then(|known| known.id) else { continue };
            let place = VolumePlace { volser, volume: life };
            let ranges = own.iter().map(|(range, _)| range.clone());
            let mut between = BetweenBlocks::new(place.clone(), ranges, &watch.stop);
            let end = own.iter().map(|(range, _)| range.end).max().unwrap_or(0);
            if let Err(error) = host.read_between(&place, &mut between, end) {
                if watch.stop.load(Ordering::Relaxed) {
                    return Err(DirectorError::Interrupted);
                }
                let reason = format!("what was written could not be read back: {}", with_causes(&error));
                failed.extend(own.iter().map(|(_, object)| (*object, reason.clone())));
                continue;
            }
            host.note_bad(&between.bad, "reclaim");
            if watch.stop.load(Ordering::Relaxed) {
                return Err(DirectorError::Interrupted);
            }
            for lost in &between.lost {
                let of = own.iter().filter(|(range, _)| lost.lbn.is_some_and(|lbn| range.contains(&lbn)));
                for (_, object) in of {
                    failed.insert(*object, format!("what was written could not be read back: {lost}"));
                }
            }
        }
        Ok(failed)
    }

    /// Has the catalog leave a volume, as far as all of a copy is on others.
    fn leave(
        &self,
        volume: &ReclaimableVolume,
        copies: &[&HeldCopy],
        done: &mut Reclaimed,
    ) -> Result<(), DirectorError> {
        let mut catalog = locked(&self.catalog);
        let (bad, unsafe_ones) = (BadPlaces::of(&catalog)?, unsafe_volumes(&catalog)?);
        let (mut leave, mut onto) = (Vec::new(), HashMap::new());
        for held in copies {
            let (object, copy) = (&held.object, held.copy);
            let mut extents = catalog.extents(object.id, Some(copy))?;
            let places: HashSet<Volser> =
                in_its_place(&extents, &volume.volser).map(|extent| extent.volser.clone()).collect();
            extents.retain(|extent| extent.volser != volume.volser && !unsafe_ones.contains(&extent.volser));
            let sound = bad.sound(extents, object.chunk_len);
            let parts = stream_lengths(&catalog, object.id)?;
            if missing_ranges(copy, &parts, &sound, object.chunk_len).is_empty() {
                leave.push((object.id, copy));
                onto.insert(object.id, places);
            } else {
                done.left.push((object.id, "other volumes do not hold all of it".to_owned()));
            }
        }
        let left: HashSet<_> = catalog.leave_volume(volume.life, &leave)?.into_iter().collect();
        for (object, copy) in &leave {
            if !left.contains(&(*object, *copy)) {
                done.left.push((*object, "no other volume says that it is complete".to_owned()));
                continue;
            }
            done.copies += 1;
            for volser in onto.remove(object).unwrap_or_default() {
                if !done.onto.contains(&volser) {
                    done.onto.push(volser);
                }
            }
        }
        done.onto.sort();
        Ok(())
    }
}

/// Extents of a copy that hold what one of its volumes holds, too.
fn in_its_place<'e>(extents: &'e [Extent], volser: &'e Volser) -> impl Iterator<Item = &'e Extent> {
    let range = |extent: &Extent| extent.record.offset..extent.record.offset.saturating_add(extent.record.plain_len);
    let mut own: HashMap<u16, Vec<Range<u64>>> = HashMap::new();
    for extent in extents.iter().filter(|extent| extent.volser == *volser) {
        own.entry(extent.record.connection).or_default().push(range(extent));
    }
    own.values_mut().for_each(|ranges| *ranges = joined(std::mem::take(ranges)));
    extents.iter().filter(move |extent| {
        let own = own.get(&extent.record.connection).map_or(&[][..], Vec::as_slice);
        let first = own.partition_point(|own| own.end <= extent.record.offset);
        extent.volser != *volser && own.get(first).is_some_and(|own| own.start < range(extent).end)
    })
}

/// Bytes of ranges.
fn len_of(ranges: &[MissingRange]) -> u64 {
    ranges.iter().map(|one| one.range.end - one.range.start).sum()
}

/// Volumes of which nothing counts as held elsewhere: they were set aside, could not be mounted, or have no key.
fn unsafe_volumes(catalog: &Catalog) -> Result<BTreeSet<Volser>, DirectorError> {
    let mut found = unreadable_volumes(catalog)?;
    let is_set_aside = |volume: &Volume| volume.state == VolumeState::Suspect;
    found.extend(catalog.volumes()?.into_iter().filter(is_set_aside).map(|volume| volume.volser));
    // A doubt about all of a volume names no blocks.
    let doubts = catalog.damage()?.into_iter().filter(|damage| damage.blocks.blocks == 0);
    found.extend(doubts.map(|damage| damage.volser));
    Ok(found)
}

/// How many of these copies, from the first on, are written in one session.
fn that_go_together(copies: &[HeldCopy]) -> usize {
    let Some(first) = copies.first() else { return 0 };
    let mut files = 0u64;
    let fit = copies.iter().take(COPIES_TOGETHER).take_while(|held| {
        files = files.saturating_add(held.object.counts.map_or(0, |counts| counts.entries));
        let goes_with = (held.copy, held.object.chunk_len) == (first.copy, first.object.chunk_len);
        goes_with && files <= FILES_TOGETHER
    });
    fit.count().max(1)
}
