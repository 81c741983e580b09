//! Repair: what one copy of an object lacks and another has is copied, and nothing else.
//!
//! Twin copies are flushed each in its own time. After a crash, or when one copy's drive failed, one copy may end before the
//! other. Every block keeps its place in its stream, so what is missing is a set of ranges between blocks.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use capstan_catalog::{Extent, Object, ObjectFilter, ObjectStatus};
use capstan_format::{FileEntry, SessionRecord};
use capstan_mover::{CopyHost, RestoreWatch, Session, WantedMember, plan_reads, read_streams};

use crate::append::{AppendHost, Shortfall};
use crate::backup::{explain, record_of};
use crate::copy::move_bytes;
use crate::desk::{Desk, ReadDesk};
use crate::select::{Layout, locate_streams};
use crate::site::{Site, locked};
use crate::{DirectorError, Event};

/// What a copy of one connection's stream lacks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MissingRange {
    /// The copy.
    pub copy: u8,
    /// The connection.
    pub connection: u16,
    /// Sequence of the first block that is missing.
    pub sequence: u32,
    /// Bytes of the stream.
    pub range: Range<u64>,
}

/// What each copy lacks of streams that are whole up to the given lengths: a pure function of the extents.
pub fn missing_ranges(parts: &[(u16, u64)], extents: &[Extent], chunk_len: u32) -> Vec<MissingRange> {
    let mut copies: Vec<u8> = extents.iter().map(|extent| extent.copy).collect();
    copies.sort_unstable();
    copies.dedup();
    let mut missing = Vec::new();
    for &copy in &copies {
        for &(connection, valid_len) in parts {
            let own = extents.iter().filter(|extent| extent.copy == copy && extent.record.connection == connection);
            let mut own: Vec<_> = own.map(|extent| (extent.record.offset, extent.record.plain_len)).collect();
            own.sort_unstable();
            let mut at = 0;
            let mut lack = |range: Range<u64>| {
                if range.start < range.end {
                    let sequence = (range.start / u64::from(chunk_len.max(1))) as u32;
                    missing.push(MissingRange { copy, connection, sequence, range });
                }
            };
            for (offset, len) in own {
                lack(at..offset.min(valid_len));
                at = at.max(offset + len);
            }
            lack(at..valid_len);
        }
    }
    missing
}

impl Site {
    /// Copies what twin copies lack, for every object that is complete. Gives the objects that were mended.
    pub fn repair(&self) -> Result<Vec<Object>, DirectorError> {
        let _lock = self.writer_lock()?;
        self.repair_copies()
    }

    /// The same, for whoever holds the writer's lock.
    pub(crate) fn repair_copies(&self) -> Result<Vec<Object>, DirectorError> {
        let filter = ObjectFilter { status: Some(ObjectStatus::Complete), ..ObjectFilter::default() };
        let objects = locked(&self.catalog).objects(&filter)?;
        let mut mended = Vec::new();
        for object in objects {
            let (parts, extents) = {
                let catalog = locked(&self.catalog);
                (catalog.parts(object.id)?, catalog.extents(object.id, None)?)
            };
            let lengths: Vec<_> = parts.iter().map(|part| (part.connection, part.valid_len)).collect();
            let missing = missing_ranges(&lengths, &extents, object.chunk_len);
            let mut by_copy: BTreeMap<u8, Vec<MissingRange>> = BTreeMap::new();
            missing.into_iter().for_each(|range| by_copy.entry(range.copy).or_default().push(range));
            for (copy, ranges) in &by_copy {
                let own = extents.iter().find(|extent| extent.copy == *copy);
                let pool = own.map(|extent| locked(&self.catalog).volume(&extent.volser)).transpose()?.flatten();
                let Some(pool) = pool.and_then(|volume| volume.pool) else { continue };
                self.copy_ranges(&object, *copy, &pool, ranges)?;
            }
            if !by_copy.is_empty() {
                let message = format!("object {}: what a copy lacked was copied from the other", object.id);
                (self.events)(Event::Notice { message });
                mended.push(object);
            }
        }
        Ok(mended)
    }

    fn copy_ranges(&self, object: &Object, copy: u8, pool: &str, ranges: &[MissingRange]) -> Result<(), DirectorError> {
        let pool =
            locked(&self.catalog).pool(pool)?.ok_or_else(|| DirectorError::UnknownPool { pool: pool.to_owned() })?;
        let desk = Desk::new(self);
        let host: Box<dyn CopyHost> = Box::new(AppendHost {
            desk: desk.clone(),
            config: self.config.clone(),
            pool,
            copy,
            shortfall: Shortfall::Fail,
            mounted: None,
        });
        let record = SessionRecord {
            started_ns: self.now_ns(),
            host: self.client.clone(),
            software: concat!("capstan ", env!("CARGO_PKG_VERSION")).to_owned(),
        };
        let mut options = self.session_options_for_copy(object.chunk_len as usize);
        options.first_copy = copy;
        let session = Session::start(&options, &record, vec![host], Arc::default())?;
        session.begin_object(record_of(object))?;
        let moved = ranges.iter().try_for_each(|missing| self.copy_range_of(object, &session, desk.clone(), missing));
        if moved.is_ok() {
            session.end_object(object.id, ranges.len(), object.ended_ns)?;
        }
        for outcome in session.finish().copies {
            outcome.map_err(DirectorError::CopiesFailed)?;
        }
        moved
    }

    fn copy_range_of(
        &self,
        object: &Object,
        session: &Session,
        desk: Desk,
        missing: &MissingRange,
    ) -> Result<(), DirectorError> {
        let MissingRange { connection, sequence, range, .. } = missing.clone();
        let present = self.present()?;
        let mut entries: Vec<FileEntry> = Vec::new();
        for entry in locked(&self.catalog).index(object.id)?.iter() {
            let entry = entry?;
            let end = entry.offset + entry.member_len;
            if entry.connection == connection && entry.member_len > 0 && range.start < end && end <= range.end {
                entries.push(entry);
            }
        }
        entries.sort_by_key(|entry| entry.offset);
        let member = WantedMember { offset: range.start, len: range.end - range.start, crc: 0 };
        let streams = BTreeMap::from([((object.id, connection), vec![member])]);
        let mut located = locate_streams(&locked(&self.catalog), streams, &present, None, Layout::Apart)?;
        for stream in &mut located.wanted.streams {
            stream.extents.retain(|extent| extent.copy != missing.copy);
        }
        let reads = plan_reads(&located.wanted);
        let mut sink = session.connection_at(object.id, connection, sequence, range.start);
        let failure = Mutex::new(None);
        let shared = Mutex::new((&mut sink, entries));
        let (stop, watch) = (AtomicBool::new(false), RestoreWatch::default());
        read_streams(&located.wanted, &reads, &mut ReadDesk::new(desk), &stop, &|_, reader| {
            let mut guard = shared.lock().unwrap_or_else(PoisonError::into_inner);
            let (sink, entries) = &mut *guard;
            if let Err(reason) = move_bytes(&mut reader.range(range.clone()), sink, entries, &watch) {
                *failure.lock().unwrap_or_else(PoisonError::into_inner) = Some(reason);
                stop.store(true, Ordering::Relaxed);
            }
        });
        drop(shared);
        if let Some(reason) = failure.into_inner().unwrap_or_else(PoisonError::into_inner) {
            return Err(DirectorError::Output { reason });
        }
        sink.finish_range().map_err(|error| DirectorError::Output { reason: explain(&error) })
    }
}

#[cfg(test)]
mod tests {
    use capstan_format::{ExtentRecord, ObjectId, SessionId, Volser};

    use super::*;

    fn extent(copy: u8, offset: u64, plain_len: u64) -> Extent {
        let record = ExtentRecord {
            object: ObjectId([1; 16]),
            connection: 0,
            first_sequence: (offset / 100) as u32,
            first_lbn: 3,
            blocks: plain_len.div_ceil(100) as u32,
            offset,
            plain_len,
            stored_len: plain_len,
        };
        Extent { copy, volser: Volser::new("A").expect("a volser"), session: SessionId(1), record }
    }

    #[test]
    fn a_copy_that_ended_early_lacks_the_rest() {
        let extents = [extent(1, 0, 1000), extent(2, 0, 400)];
        let missing = missing_ranges(&[(0, 950)], &extents, 100);
        assert_eq!(missing, [MissingRange { copy: 2, connection: 0, sequence: 4, range: 400..950 }]);
    }

    #[test]
    fn a_hole_in_the_middle_is_found() {
        let extents = [extent(1, 0, 1000), extent(2, 0, 300), extent(2, 600, 400)];
        let missing = missing_ranges(&[(0, 1000)], &extents, 100);
        assert_eq!(missing, [MissingRange { copy: 2, connection: 0, sequence: 3, range: 300..600 }]);
    }

    #[test]
    fn whole_copies_lack_nothing() {
        assert_eq!(missing_ranges(&[(0, 1000)], &[extent(1, 0, 1000), extent(2, 0, 1000)], 100), []);
    }
}
