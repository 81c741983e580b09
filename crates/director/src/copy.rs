//! Object copy: from the volumes it is on to another pool, demultiplexed on the way.

use std::collections::BTreeMap;
use std::io::BufRead;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

use capstan_catalog::{CatalogError, CopyState, Object, ObjectCopy, ObjectStatus, Resource, Wish};
use capstan_format::{FileEntry, ObjectId, Volser};
use capstan_mover::{
    Connection, Damage, RestoreWatch, Session, StreamReader, StreamSink, VolumeAccess, WantedMember, plan_reads,
    read_streams,
};
use capstan_tape::with_causes;

use crate::DirectorError;
use crate::chains::{check_taken, entries_where_they_end};
use crate::damage::lacks;
use crate::lacks::Lacks;
use crate::mounter::{Drives, Mounter, PresentForCopies, ReadMounter};
use crate::ranges::stream_lengths;
use crate::request::Shortfall;
use crate::select::{Layout, WhichCopy, locate_streams};
use crate::site::{Site, locked};

/// How an object copy ended.
#[derive(Debug)]
pub struct CopyReport {
    /// The object.
    pub object: ObjectId,
    /// The copy's number.
    pub copy: u8,
    /// Blocks read.
    pub blocks: u64,
    /// Bytes of the object's streams.
    pub bytes: u64,
    /// Blocks that no copy gives; the new copy lacks them.
    pub lost: Vec<Damage>,
    /// Volumes that no key opens, and why. Another copy may have stood in for them.
    pub without_key: Vec<(Volser, DirectorError)>,
    /// How long it took.
    pub elapsed_ns: u64,
}

/// A copy that a pool has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HeldCopy {
    /// Its number.
    pub copy: u8,
    /// Whether it lacks nothing, as far as is known.
    pub is_whole: bool,
}

/// What is reserved by whoever makes copies of objects: nobody else makes some, and none of the objects is written or
/// given up meanwhile; nor is the pool.
pub(crate) fn copies_of(objects: &[ObjectId], pool: Option<&str>) -> Wish {
    let shared = objects.iter().copied().map(Resource::Object);
    Wish {
        alone: objects.iter().copied().map(Resource::CopyOf).collect(),
        shared: shared.chain(pool.map(|pool| Resource::Pool(pool.to_owned()))).collect(),
        ..Wish::default()
    }
}

impl Site {
    /// Writes a further copy of objects to a pool: one connection after the other, so that a restore of it reads
    /// straight on. Objects that have a copy in the pool already are refused before anything is written. One session
    /// writes what can go together, and one mounter reads: each volume is mounted once.
    ///
    /// # Errors
    /// [`DirectorError::CopyInPool`] if the pool has a copy; [`DirectorError::InUse`] if a job is at an object;
    /// [`DirectorError::NoVolume`] if the pool has no room. Otherwise an object has expired, or the new copy cannot be
    /// written. Blocks that no copy gives are in the report.
    pub fn copy_objects(
        &self,
        objects: &[Object],
        pool: &str,
        watch: &RestoreWatch,
    ) -> Result<Vec<CopyReport>, DirectorError> {
        let _presence = self.presence()?;
        let ids: Vec<ObjectId> = objects.iter().map(|object| object.id).collect();
        let claim = self.holds.claim(&copies_of(&ids, Some(pool)))?;
        let mut numbers = Vec::new();
        for object in objects {
            // It may have been given up since it was looked up.
            if locked(&self.catalog).object(object.id)?.is_none_or(|now| now.status == ObjectStatus::Expired) {
                return Err(CatalogError::Expired(object.id).into());
            }
            numbers.push(self.number_of_copy(object, pool)?);
        }
        for object in objects {
            let parts = locked(&self.catalog).parts(object.id)?;
            watch.planned.fetch_add(parts.iter().map(|part| part.valid_len).sum(), Ordering::Relaxed);
        }
        let mut host = ReadMounter::new(Mounter::new(self).stopped_by(&watch.stop));
        let mut reports = Vec::new();
        let mut at = 0;
        while at < objects.len() {
            let key = |at: usize| (numbers[at], objects[at].chunk_len);
            let end = (at..objects.len()).find(|&next| key(next) != key(at)).unwrap_or(objects.len());
            reports.extend(self.copy_together(&objects[at..end], numbers[at], pool, &mut host, watch)?);
            at = end;
        }
        drop(host);
        drop(claim);
        self.look_at_copies()?;
        self.go_on_behind_damage(&mut reports, pool, watch)?;
        Ok(reports)
    }

    /// The copy of an object that a pool has already.
    ///
    /// # Errors
    /// The catalog cannot be read.
    pub fn copy_in_pool(&self, object: &Object, pool: &str) -> Result<Option<HeldCopy>, DirectorError> {
        let catalog = locked(&self.catalog);
        for copy in catalog.copies(object.id)? {
            for volser in &copy.volumes {
                if catalog.volume(volser)?.is_some_and(|volume| volume.pool.as_deref() == Some(pool)) {
                    let is_whole = lacks(&catalog, object, copy.copy)?.is_empty();
                    return Ok(Some(HeldCopy { copy: copy.copy, is_whole }));
                }
            }
        }
        Ok(None)
    }

    /// Copies what can be read behind what cannot, of objects whose new copy ended there; and counts what the copy
    /// holds then.
    fn go_on_behind_damage(
        &self,
        reports: &mut [CopyReport],
        pool: &str,
        watch: &RestoreWatch,
    ) -> Result<(), DirectorError> {
        let in_part: Vec<_> = reports.iter().filter(|report| !report.lost.is_empty()).map(|one| one.object).collect();
        if in_part.is_empty() {
            return Ok(());
        }
        let how = (Drives::Waited, Shortfall::Fail);
        self.mend_copies(&in_part, Lacks::OfPool(pool), how, watch, &mut Default::default())?;
        for report in reports.iter_mut().filter(|report| !report.lost.is_empty()) {
            let extents = locked(&self.catalog).extents(report.object, Some(report.copy))?;
            report.blocks = extents.iter().map(|extent| u64::from(extent.record.blocks)).sum();
            report.bytes = extents.iter().map(|extent| extent.record.plain_len).sum();
        }
        Ok(())
    }

    /// The number that a further copy in a pool has.
    fn number_of_copy(&self, object: &Object, pool: &str) -> Result<u8, DirectorError> {
        if self.copy_in_pool(object, pool)?.is_some() {
            return Err(DirectorError::CopyInPool { object: object.id.to_string(), pool: pool.to_owned() });
        }
        {
            let catalog = locked(&self.catalog);
            catalog.pool(pool)?.ok_or_else(|| DirectorError::UnknownPool { pool: pool.to_owned() })?;
        }
        let number = self.copy_to_promise(object, pool)?;
        number.ok_or_else(|| DirectorError::TooManyCopies { object: object.id.to_string() })
    }

    /// The number of the copy that an object is promised in a pool: of the one that was promised before, else the next
    /// one. None if an object cannot have more.
    pub(crate) fn copy_to_promise(&self, object: &Object, pool: &str) -> Result<Option<u8>, DirectorError> {
        let catalog = locked(&self.catalog);
        let copies = catalog.copies(object.id)?;
        let promised = catalog.copy_numbers(object.id)?;
        let numbers = copies.iter().map(|copy| copy.copy).chain(promised.iter().map(|(copy, _)| *copy));
        // A copy that was promised to this pool and never begun is the one that is made now; so is one that was there
        // and was forgotten: what its volumes still have of it bears that number.
        let promised = promised.iter().find(|(_, of)| of == pool).map(|(copy, _)| *copy);
        let next = numbers.max().unwrap_or(0).checked_add(1);
        Ok(promised.or(next))
    }

    /// Volumes from which a further copy of objects is read, where nothing on them is found bad.
    pub(crate) fn volumes_to_read(
        &self,
        objects: impl Iterator<Item = ObjectId>,
        copy: u8,
    ) -> Result<Vec<Volser>, DirectorError> {
        let mut volumes = Vec::new();
        let present = self.present_for_copies()?;
        for object in objects {
            let present = self.present_to_copy(&present, object)?;
            let catalog = locked(&self.catalog);
            let parts = catalog.parts(object)?.into_iter();
            let member = |len| WantedMember { offset: 0, len, crc: 0 };
            let streams = parts.map(|part| ((object, part.connection), vec![member(part.valid_len)])).collect();
            let mut wanted = locate_streams(&catalog, streams, &present, WhichCopy::Any, Layout::Apart)?.wanted;
            for stream in &mut wanted.streams {
                stream.extents.retain(|extent| extent.copy != copy);
            }
            let passes = plan_reads(&wanted).passes;
            volumes.extend(passes.iter().map(|pass| wanted.volumes[pass.volume].volser.clone()));
        }
        volumes.sort();
        volumes.dedup();
        Ok(volumes)
    }

    /// What there is to read copies from, while others are written in the library of this site.
    fn present_for_copies(&self) -> Result<PresentForCopies, DirectorError> {
        let all = self.present()?;
        if !self.libraries.are_several() || self.library.devices.drives()? != 1 {
            return Ok(PresentForCopies { all, beside: None });
        }
        let volumes = locked(&self.catalog).volumes()?;
        let own = volumes.into_iter().filter(|volume| volume.library == self.library.name);
        Ok(PresentForCopies { all, beside: Some(own.map(|volume| volume.volser).collect()) })
    }

    /// The volumes that a further copy of an object is read from. The library that is written in has one drive, and
    /// another one a whole copy: then those of that alone.
    fn present_to_copy(&self, present: &PresentForCopies, object: ObjectId) -> Result<Vec<Volser>, DirectorError> {
        let PresentForCopies { all: present, beside } = present;
        let Some(own) = beside else { return Ok(present.clone()) };
        let catalog = locked(&self.catalog);
        let wanted = catalog.wanted_copies(object)?;
        let is_whole = |number: u8| wanted.iter().any(|copy| copy.copy == number && copy.state == CopyState::Whole);
        let is_beside = |copy: &ObjectCopy| {
            is_whole(copy.copy) && copy.volumes.iter().all(|volser| present.contains(volser) && !own.contains(volser))
        };
        let has_other = catalog.copies(object)?.iter().any(is_beside);
        Ok(present.iter().filter(|volser| !has_other || !own.contains(volser)).cloned().collect())
    }

    /// The same, as of when `host` was first asked for some: whoever asks a library for each of a thousand objects,
    /// asks for minutes.
    pub(crate) fn present_to_read(
        &self,
        host: &mut ReadMounter,
        object: ObjectId,
    ) -> Result<Vec<Volser>, DirectorError> {
        let present = match host.present.take() {
            Some(present) => present,
            None => self.present_for_copies()?,
        };
        let own = self.present_to_copy(&present, object);
        host.present = Some(present);
        own
    }

    fn copy_together(
        &self,
        objects: &[Object],
        copy: u8,
        pool: &str,
        host: &mut ReadMounter,
        watch: &RestoreWatch,
    ) -> Result<Vec<CopyReport>, DirectorError> {
        let volumes = self.volumes_to_read(objects.iter().map(|object| object.id), copy)?;
        host.mounter().check_drives_to_copy(&volumes)?;
        host.reserve(volumes, Drives::Waited)?;
        let wanted: Vec<_> = objects.iter().map(|object| (object.id, copy, pool)).collect();
        locked(&self.catalog).promise_copies(&wanted)?;
        let together: Vec<_> = objects.iter().collect();
        let session = self.session_for_copies(host.mounter(), (pool, copy), &together, (1, Shortfall::Fail), watch)?;
        let mut reports = Vec::new();
        let moved = objects.iter().try_for_each(|object| {
            let began = Instant::now();
            let known = stream_lengths(&locked(&self.catalog), object.id)?;
            session.intake().begin_object_again(self.record_of_copy(object, pool)?, known)?;
            let mut report = self.move_streams(object, &session, host, watch)?;
            // The copy of an object that a run left open is as open as the object.
            if object.status == ObjectStatus::Complete && report.lost.is_empty() {
                session.intake().end_object(object.id, object.ended_ns)?;
            }
            report.copy = copy;
            report.elapsed_ns = began.elapsed().as_nanos() as u64;
            reports.push(report);
            Ok(())
        });
        // Why the copy failed says more than that nothing could be handed to it any more.
        for outcome in session.finish().writers {
            outcome.map_err(DirectorError::of_copy)?;
        }
        moved.map(|()| reports)
    }

    fn move_streams(
        &self,
        object: &Object,
        session: &Session,
        host: &mut ReadMounter,
        watch: &RestoreWatch,
    ) -> Result<CopyReport, DirectorError> {
        let present = self.present_to_read(host, object.id)?;
        let (parts, entries) = {
            let catalog = locked(&self.catalog);
            (catalog.parts(object.id)?, entries_where_they_end(&catalog, object.id)?)
        };
        let mut report = CopyReport {
            object: object.id,
            copy: 0,
            blocks: 0,
            bytes: 0,
            lost: Vec::new(),
            without_key: Vec::new(),
            elapsed_ns: 0,
        };
        for part in parts {
            let mut sink = session.intake().connection(object.id, part.connection);
            let own = entries.get(&part.connection).cloned().unwrap_or_default();
            check_taken(&sink, &own)?;
            let member = WantedMember { offset: 0, len: part.valid_len, crc: 0 };
            let streams = BTreeMap::from([((object.id, part.connection), vec![member])]);
            let located = locate_streams(&locked(&self.catalog), streams, &present, WhichCopy::Any, Layout::Apart)?;
            let reads = plan_reads(&located.wanted);
            let failure = Mutex::new(None);
            let shared = Mutex::new((&mut sink, own));
            let stop = AtomicBool::new(false);
            let routes = self.routes()?;
            let access = VolumeAccess { host, drives: routes.drives(), between: None };
            let read = read_streams(&located.wanted, &reads, access, (&stop, &watch.meters), &|_, reader| {
                let mut guard = shared.lock().unwrap_or_else(PoisonError::into_inner);
                let (sink, own) = &mut *guard;
                if let Err(fault) = move_bytes(reader, 0..part.valid_len, sink, own, watch) {
                    *failure.lock().unwrap_or_else(PoisonError::into_inner) = Some(fault.to_string());
                    stop.store(true, Ordering::Relaxed);
                }
            });
            drop(shared);
            report.blocks += read.blocks;
            report.bytes += read.plain_bytes;
            report.lost.extend(read.lost);
            host.note_bad(&read.bad, "copy");
            let failure = failure.into_inner().unwrap_or_else(PoisonError::into_inner);
            if watch.stop.load(Ordering::Relaxed) {
                return Err(DirectorError::Interrupted);
            }
            match failure {
                None => sink.finish().map_err(|error| DirectorError::Output { reason: with_causes(&error) })?,
                Some(_) if !report.lost.is_empty() => break,
                Some(reason) => return Err(host.why_not(reason)),
            }
        }
        report.without_key = host.take_without_key();
        Ok(report)
    }
}

/// Why bytes of a connection were not moved.
#[derive(Debug, thiserror::Error)]
pub(crate) enum MoveFault {
    /// They could not be read.
    #[error("{0}")]
    Unread(String),
    /// They could not be handed on: nobody writes any more.
    #[error("{0}")]
    Unwritten(String),
    /// Somebody stopped it.
    #[error("stopped")]
    Stopped,
}

/// Moves bytes of one connection, from a block's edge on, and tells the sink of each member where it ends. A block that
/// stays what it is, is neither unpacked nor packed again.
pub(crate) fn move_bytes(
    reader: &mut StreamReader<'_>,
    range: Range<u64>,
    sink: &mut Connection,
    entries: &mut Vec<(u64, FileEntry)>,
    watch: &RestoreWatch,
) -> Result<(), MoveFault> {
    let unread = |error: &dyn std::error::Error| MoveFault::Unread(error.to_string());
    let unwritten = |error: &dyn std::error::Error| MoveFault::Unwritten(error.to_string());
    let told = |len: u64| {
        watch.bytes.fetch_add(len, Ordering::Relaxed);
        watch.taken.fetch_add(len, Ordering::Relaxed);
        if watch.stop.load(Ordering::Relaxed) { Err(MoveFault::Stopped) } else { Ok(()) }
    };
    let mut own = entries.drain(..).peekable();
    while sink.position() < range.end {
        let at = sink.position();
        if let Some(block) = reader.stored_at(at).map_err(|error| unread(&error))? {
            let (len, end) = (block.plain_len(), at.saturating_add(block.plain_len()));
            if end <= range.end && sink.passes(&block, end == range.end) {
                let (mut with, mut valid_len) = (Vec::new(), None);
                while let Some((end, entry)) = own.next_if(|(own_end, entry)| entry.member_len == 0 || *own_end <= end)
                {
                    valid_len = valid_len.max(Some(end).filter(|_| entry.member_len > 0));
                    with.push(entry);
                }
                sink.pass_on(block, with, valid_len).map_err(|error| unwritten(&error))?;
                told(len)?;
                continue;
            }
            reader.unpack(block).map_err(|error| unread(&error))?;
        }
        while let Some((_, entry)) = own.next_if(|(end, entry)| entry.member_len == 0 || *end <= sink.position()) {
            sink.member(entry);
        }
        // Up to the end of the next member, so that its entry travels with the block that ends it.
        let until = own.peek().map_or(range.end, |(end, _)| range.end.min(*end));
        let mut bytes = reader.range(at..until);
        let available = bytes.fill_buf().map_err(|error| unread(&error))?;
        let len = available.len();
        sink.write(available).map_err(|error| unwritten(&error))?;
        told(len as u64)?;
    }
    while let Some((_, entry)) = own.next_if(|(end, entry)| entry.member_len == 0 || *end <= range.end) {
        sink.member(entry);
    }
    Ok(())
}
