//! Verifying an object: each copy by itself.

use std::time::Instant;

use capstan_catalog::{Extent, Object, ObjectStatus, StateEntry};
use capstan_format::{FileEntry, ObjectId, ObjectKind};
use capstan_mover::{RestoreWatch, verify_streams};

use crate::DirectorError;
use crate::desk::{Desk, ReadDesk};
use crate::restore::RestoreReport;
use crate::site::{Site, locked};

impl Site {
    /// Reads back a copy of an object, every block and every file's checksum. All copies, one after the other, without `copy`.
    pub fn verify_object(
        &self,
        object: &Object,
        watch: &RestoreWatch,
    ) -> Result<Vec<(u8, RestoreReport)>, DirectorError> {
        let (entries, copies, extents) = {
            let catalog = locked(&self.catalog);
            let index = catalog.index(object.id)?;
            let entries: Result<Vec<_>, _> = index
                .iter()
                .map(|entry| entry.map(|entry| StateEntry { object: object.id, entry, unread: None }))
                .collect();
            (entries?, catalog.copies(object.id)?, catalog.extents(object.id, None)?)
        };
        let mut reports = Vec::new();
        for copy in &copies {
            let began = Instant::now();
            let open = object.status == ObjectStatus::Open;
            let load = |counter: &std::sync::atomic::AtomicU64| counter.load(std::sync::atomic::Ordering::Relaxed);
            let (members, bytes) = (load(&watch.members), load(&watch.bytes));
            // What another copy holds and this one does not is no damage; what none holds is looked for here, and missed.
            let held = |entry: &StateEntry, copy: u8| is_held(&extents, &entry.entry, copy);
            let elsewhere = |entry: &&StateEntry| {
                object.kind != ObjectKind::Device
                    && !held(entry, copy.copy)
                    && copies.iter().any(|other| held(entry, other.copy))
            };
            let own: Vec<_> = entries.iter().filter(|entry| !elsewhere(entry)).cloned().collect();
            let behind = (entries.len() - own.len()) as u64;
            let mut report = self.verify_entries(own, object.id, open, Some(copy.copy), watch)?;
            report.behind = behind;
            report.elapsed_ns = began.elapsed().as_nanos() as u64;
            report.members -= members;
            report.bytes -= bytes;
            if watch.stop.load(std::sync::atomic::Ordering::Relaxed) {
                return Err(DirectorError::RestoreInterrupted);
            }
            reports.push((copy.copy, report));
        }
        Ok(reports)
    }

    pub(crate) fn verify_entries(
        &self,
        entries: Vec<StateEntry>,
        object: ObjectId,
        open: bool,
        copy: Option<u8>,
        watch: &RestoreWatch,
    ) -> Result<RestoreReport, DirectorError> {
        let plan = self.plan(entries, vec![object], open, copy)?;
        let mut host = ReadDesk::new(Desk::new(self).stopped_by(&watch.stop));
        let streams = verify_streams(&plan.wanted, &plan.reads, &mut host, watch);
        self.report(&plan, streams, host, watch)
    }
}

/// Whether a copy's extents hold the whole of a member.
pub(crate) fn is_held(extents: &[Extent], entry: &FileEntry, copy: u8) -> bool {
    let end = entry.offset + entry.member_len;
    let mut at = entry.offset;
    // Extents come by copy, connection and offset.
    let first = extents.partition_point(|extent| {
        let record = &extent.record;
        (extent.copy, record.connection, record.offset + record.plain_len) <= (copy, entry.connection, at)
    });
    for extent in &extents[first..] {
        let record = &extent.record;
        if at >= end || (extent.copy, record.connection) != (copy, entry.connection) || record.offset > at {
            break;
        }
        at = record.offset + record.plain_len;
    }
    at >= end
}
