//! Repair: what a copy of an object lacks and another has is copied, and nothing else.
//!
//! Twin copies are flushed each in its own time. After a crash, or when one copy's drive failed, one copy may end
//! before the other, lack only its last checkpoint, or have nothing at all. Which copies an object was promised stands
//! in the catalog ([`capstan_catalog::WantedCopy`]), and so does which of them are known to be whole; only the others
//! are looked at. Every block keeps its place in its stream, so what a copy lacks is a set of ranges between blocks.

use std::ops::Range;
use std::sync::atomic::Ordering;
use std::sync::{Mutex, PoisonError};

use capstan_catalog::{Catalog, CopySeen, CopyState, Object, ObjectStatus, WantedCopy};
use capstan_format::{FileEntry, ObjectId, SessionRecord};
use capstan_mover::{
    CopyHost, RestoreWatch, Session, StreamSink, VolumeAccess, WantedMember, plan_reads, read_streams,
};
use capstan_tape::with_causes;

use crate::append::AppendHost;
use crate::chains::{EntriesOf, check_taken, entries_where_they_end};
use crate::copy::{copies_of, move_bytes};
use crate::damage::{BadPlaces, lacks, lost_ranges};
use crate::hold::Hold;
use crate::lacks::Lacks;
use crate::lifetime::Lifetime;
use crate::mounter::{Drives, Mounter, ReadMounter};
use crate::ranges::{MissingRange, stream_lengths};
use crate::request::Shortfall;
use crate::select::{Layout, WhichCopy, locate_streams};
use crate::shared::apart;
use crate::site::{Site, locked};
use crate::{DirectorError, Event};

/// A wanted copy of a complete object that is not whole.
#[derive(Debug)]
pub(crate) struct IncompleteCopy {
    pub(crate) object: Object,
    pub(crate) wanted: WantedCopy,
    ranges: Vec<MissingRange>,
}

impl IncompleteCopy {
    /// Whether one session can write what both lack.
    fn goes_with(&self, other: &Self) -> bool {
        let key = |lack: &Self| (lack.wanted.copy, lack.object.chunk_len);
        self.wanted.pool == other.wanted.pool && key(self) == key(other)
    }
}

/// What of a lack can be mended.
struct Mendable {
    /// What another copy has; `None` where there is nothing to write.
    ranges: Option<Vec<MissingRange>>,
    /// Bytes that no copy has any more.
    lost_bytes: u64,
}

impl Mendable {
    /// How the copy stands once what can be mended is.
    fn end(&self, object: &Object) -> Result<(), DirectorError> {
        if self.lost_bytes == 0 {
            return Ok(());
        }
        Err(DirectorError::NoCopyLeft {
            object: object.id.to_string(),
            source_name: String::from_utf8_lossy(&object.source).into_owned(),
            bytes: self.lost_bytes,
        })
    }
}

/// One reason for a whole group: in its own words for the first, repeated for the others.
fn same_for_all(count: usize, error: DirectorError) -> Vec<Result<(), DirectorError>> {
    let reason = with_causes(&error);
    let others = (1..count).map(|_| Err(DirectorError::Output { reason: reason.clone() }));
    std::iter::once(Err(error)).chain(others).collect()
}

/// Which wanted copies are not whole, and which of those not known to be whole are.
pub(crate) struct CopyAudit {
    pub(crate) lacking: Vec<IncompleteCopy>,
    /// Those that are, with what there was of each when it was looked at.
    pub(crate) whole: Vec<(WantedCopy, CopySeen)>,
}

/// Looks at the extents of wanted copies that are not known to be whole.
pub(crate) fn look(catalog: &Catalog) -> Result<CopyAudit, DirectorError> {
    let mut looked = CopyAudit { lacking: Vec::new(), whole: Vec::new() };
    for wanted in catalog.lacking_copies()? {
        let Some(object) = catalog.object(wanted.object)? else { continue };
        let seen = catalog.copy_seen(object.id, wanted.copy)?;
        let ranges = lacks(catalog, &object, wanted.copy)?;
        if wanted.state == CopyState::Ended && ranges.is_empty() {
            looked.whole.push((wanted, seen));
        } else {
            looked.lacking.push(IncompleteCopy { object, wanted, ranges });
        }
    }
    Ok(looked)
}

/// A copy that was made whole, or could not be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RepairedCopy {
    /// The object.
    pub object: ObjectId,
    /// Its source.
    pub source: Vec<u8>,
    /// The copy.
    pub copy: u8,
    /// The pool it belongs to.
    pub pool: String,
    /// Why it could not be mended; `None` for one that is whole now.
    pub failure: Option<String>,
}

/// What came of the copies that one session was to mend.
struct Mended {
    /// Of each.
    ended: Vec<Result<(), DirectorError>>,
    /// Whether they could not be written, whatever could be read.
    target_failed: bool,
}

/// How a repair ended.
#[derive(Debug, Default)]
pub struct RepairReport {
    /// Copies that lacked something, in the order they were mended.
    pub copies: Vec<RepairedCopy>,
    /// Why the first one could not be mended, as its cause says.
    pub first_failure: Option<DirectorError>,
    /// Whether some could not be written: their pool has no room, or its drive failed.
    pub target_failed: bool,
}

impl RepairReport {
    /// How it ended: whether all copies that lacked something are whole now.
    ///
    /// # Errors
    /// None is, and why.
    pub fn outcome(self) -> Result<bool, DirectorError> {
        let whole = self.copies.iter().filter(|copy| copy.failure.is_none()).count();
        match self.first_failure {
            None => Ok(whole == self.copies.len()),
            // The copies are as good as they can be: somebody has to back up again.
            Some(DirectorError::NoCopyLeft { .. }) => Ok(false),
            Some(error) if whole == 0 => Err(error),
            Some(_) => Ok(false),
        }
    }
}

impl Site {
    /// The copies of an object that hold all of it. Others are being written, were interrupted, or lost a volume.
    ///
    /// # Errors
    /// The catalog cannot be read.
    pub fn whole_copies(&self, object: &Object) -> Result<Vec<u8>, DirectorError> {
        let catalog = locked(&self.catalog);
        let mut whole = Vec::new();
        let wanted = catalog.wanted_copies(object.id)?;
        for copy in catalog.copies(object.id)? {
            let state = wanted.iter().find(|wanted| wanted.copy == copy.copy).map(|wanted| wanted.state);
            let is_whole = match (object.status, state) {
                (ObjectStatus::Complete, Some(CopyState::Whole)) => true,
                (ObjectStatus::Complete, Some(CopyState::Open)) => false,
                _ => lacks(&catalog, object, copy.copy)?.is_empty(),
            };
            if is_whole {
                whole.push(copy.copy);
            }
        }
        Ok(whole)
    }

    /// Copies what wanted copies lack: of these objects, or of all without any. What cannot be mended is told in the
    /// report and does not keep others from it.
    ///
    /// # Errors
    /// [`DirectorError::Interrupted`] if `watch` stopped it. Otherwise the library cannot be asked, or the catalog
    /// cannot be read or written.
    pub fn repair(
        &self,
        objects: &[ObjectId],
        shortfall: Shortfall,
        watch: &RestoreWatch,
    ) -> Result<RepairReport, DirectorError> {
        let _presence = self.presence()?;
        let mut report = RepairReport::default();
        self.mend_copies(objects, Lacks::All, (Drives::Waited, shortfall), watch, &mut report)?;
        Ok(report)
    }

    /// Keeps which copies are whole, and gives those that are not.
    pub(crate) fn look_at_copies(&self) -> Result<Vec<IncompleteCopy>, DirectorError> {
        let mut catalog = locked(&self.catalog);
        let looked = look(&catalog)?;
        if !looked.whole.is_empty() {
            let whole = looked.whole.iter().map(|(wanted, seen)| (wanted.object, wanted.copy, *seen));
            let whole: Vec<_> = whole.collect();
            catalog.copies_are_whole(&whole)?;
        }
        Ok(looked.lacking)
    }

    /// [`Site::repair`] of some of the copies, for whoever is present already. The report has what was done, whatever
    /// ends it.
    pub(crate) fn mend_copies(
        &self,
        objects: &[ObjectId],
        lacks: Lacks<'_>,
        (drives, shortfall): (Drives, Shortfall),
        watch: &RestoreWatch,
        report: &mut RepairReport,
    ) -> Result<(), DirectorError> {
        // What goes to volumes of one pool is written in one session, and read by one mounter: each volume is mounted
        // once.
        let mut groups: Vec<Vec<IncompleteCopy>> = Vec::new();
        let pool = lacks.pool();
        let of_policies = match lacks {
            Lacks::NotOfPolicies => Some(self.copies_of_policies()?),
            Lacks::All | Lacks::OfPool(_) | Lacks::Owed(_) => None,
        };
        let is_meant = |lack: &IncompleteCopy| {
            let is_named = objects.is_empty() || objects.contains(&lack.object.id);
            let is_of_policy = || of_policies.as_ref().is_some_and(|all| all.make(&lack.object, &lack.wanted.pool));
            is_named && pool.is_none_or(|pool| lack.wanted.pool == pool) && !is_of_policy()
        };
        let meant: Vec<_> = self.look_at_copies()?.into_iter().filter(is_meant).collect();
        if meant.is_empty() {
            return Ok(());
        }
        let (claims, claimed) = self.claim_copies(&meant)?;
        // Another job may have mended some until they were reserved.
        for lack in self.look_at_copies()?.into_iter().filter(is_meant) {
            if !claimed.contains(&lack.object.id) {
                let (object, copy, pool) = (lack.object.id, lack.wanted.copy, lack.wanted.pool);
                let failure = Some("another job uses the object, or makes a copy of it: run it again".to_owned());
                report.copies.push(RepairedCopy { object, source: lack.object.source, copy, pool, failure });
                continue;
            }
            let lacking = lack.ranges.iter().map(|lacking| lacking.range.end - lacking.range.start);
            if !matches!(lacks, Lacks::Owed(_)) {
                watch.planned.fetch_add(lacking.sum(), Ordering::Relaxed);
            }
            match groups.iter_mut().find(|group| group[0].goes_with(&lack)) {
                Some(group) => group.push(lack),
                None => groups.push(vec![lack]),
            }
        }
        let mut host = ReadMounter::new(Mounter::new(self).stopped_by(&watch.stop));
        for group in groups {
            // What goes to one pool alone goes to the library that was chosen for it.
            if pool.is_none() {
                host.write_to(&group[0].wanted.pool)?;
            }
            let objects = group.iter().map(|lack| lack.object.id);
            let volumes = self.volumes_to_read(objects, group[0].wanted.copy)?;
            let reads = group.iter().any(|lack| !lack.ranges.is_empty());
            let checked = if reads { host.mounter().check_drives_to_copy(&volumes) } else { Ok(()) };
            let mended = match checked {
                Err(error) => Mended { ended: same_for_all(group.len(), error), target_failed: false },
                // What other jobs use is mended by a later run.
                Ok(()) if !host.reserve(volumes, drives)? => continue,
                Ok(()) => self.mend(&group, shortfall, &mut host, watch),
            };
            let is_stopped = watch.stop.load(Ordering::Relaxed);
            report.target_failed |= mended.target_failed && !is_stopped;
            for (lack, mended) in group.into_iter().zip(mended.ended) {
                let (object, copy, pool) = (lack.object.id, lack.wanted.copy, lack.wanted.pool);
                let mut failure = None;
                match mended {
                    Ok(()) => (self.events)(Event::Mended { object, copy, pool: pool.clone() }),
                    // It has failed at nothing.
                    Err(_) if is_stopped => continue,
                    Err(error) => {
                        let reason = with_causes(&error);
                        let message = format!("object {object}: what copy {copy} lacks could not be copied: {reason}");
                        (self.events)(Event::Notice { message });
                        failure = Some(reason);
                        report.first_failure.get_or_insert(error);
                    }
                }
                report.copies.push(RepairedCopy { object, source: lack.object.source, copy, pool, failure });
            }
            if is_stopped {
                return Err(DirectorError::Interrupted);
            }
        }
        if !report.copies.is_empty() {
            // A copy brings its entries along, cut otherwise than they were.
            self.seal_complete(&[])?;
        }
        drop(host);
        drop(claims);
        Ok(())
    }

    /// Reserves the objects of these copies to make copies of, as far as nobody else uses them; gives those.
    fn claim_copies(&self, lacking: &[IncompleteCopy]) -> Result<(Vec<Hold>, Vec<ObjectId>), DirectorError> {
        let mut ids: Vec<ObjectId> = lacking.iter().map(|lack| lack.object.id).collect();
        ids.dedup();
        self.reserve_as_far_as_free(ids, |ids| copies_of(ids, None))
    }

    /// Makes copies whole that go to one pool, as far as other copies have what they lack; says of each how it ended.
    fn mend(
        &self,
        group: &[IncompleteCopy],
        shortfall: Shortfall,
        host: &mut ReadMounter,
        watch: &RestoreWatch,
    ) -> Mended {
        let planned: Vec<_> = group.iter().map(|lack| self.mendable(lack)).collect();
        if planned.iter().all(|planned| planned.as_ref().is_ok_and(|planned| planned.ranges.is_none())) {
            let ended = group.iter().zip(planned).map(|(lack, planned)| planned?.end(&lack.object)).collect();
            return Mended { ended, target_failed: false };
        }
        let session = self.session_for_copies(
            host.mounter(),
            (&group[0].wanted.pool, group[0].wanted.copy),
            &group.iter().map(|lack| &lack.object).collect::<Vec<_>>(),
            (1, shortfall),
            watch,
        );
        let session = match session {
            Ok(session) => session,
            Err(error) => return Mended { ended: same_for_all(group.len(), error), target_failed: true },
        };
        let mut ended: Vec<Result<(), DirectorError>> = Vec::new();
        for (lack, planned) in group.iter().zip(planned) {
            ended.push(planned.and_then(|planned| {
                if let Some(ranges) = &planned.ranges {
                    self.move_ranges(lack, ranges, &session, host, watch)?;
                }
                planned.end(&lack.object)
            }));
        }
        // Why the copy failed says more than that nothing could be handed to it any more. What was recorded to its end
        // before is whole all the same.
        if let Some(error) = session.finish().writers.into_iter().find_map(Result::err) {
            let error = DirectorError::of_copy(error);
            let (left, whole): (Vec<_>, Vec<_>) = group.iter().partition(|lack| !self.is_whole_now(lack));
            let mut failures = same_for_all(left.len(), error).into_iter();
            let end = |lack: &IncompleteCopy| match whole.iter().any(|whole| std::ptr::eq(*whole, lack)) {
                true => Ok(()),
                false => failures.next().unwrap_or(Ok(())),
            };
            return Mended { ended: group.iter().map(end).collect(), target_failed: true };
        }
        for (lack, _) in group.iter().zip(&ended).filter(|(_, ended)| ended.is_ok()) {
            self.is_whole_now(lack);
        }
        Mended { ended, target_failed: false }
    }

    /// Looks at a copy that lacked something, and keeps whether it is whole. Should that fail, it is looked at again
    /// next time.
    fn is_whole_now(&self, lack: &IncompleteCopy) -> bool {
        let (object, copy) = (lack.object.id, lack.wanted.copy);
        let mut catalog = locked(&self.catalog);
        // In this order: damage that another process finds meanwhile is not passed over.
        if let Ok(seen) = catalog.copy_seen(object, copy)
            && lacks(&catalog, &lack.object, copy).is_ok_and(|lacks| lacks.is_empty())
        {
            let _ = catalog.copies_are_whole(&[(object, copy, seen)]);
        }
        let is_whole = |wanted: &WantedCopy| wanted.copy == copy && wanted.state == CopyState::Whole;
        catalog.wanted_copies(object).is_ok_and(|wanted| wanted.iter().any(is_whole))
    }

    /// What of a lack some copy has.
    fn mendable(&self, lack: &IncompleteCopy) -> Result<Mendable, DirectorError> {
        let catalog = locked(&self.catalog);
        let lost = lost_ranges(&catalog, &lack.object, &BadPlaces::of(&catalog)?)?;
        let ranges = without_lost(&lack.ranges, &lost, lack.object.chunk_len);
        let none = !lost.is_empty() && ranges.is_empty();
        let lost_bytes = lost.iter().map(|(_, range)| range.end - range.start).sum();
        Ok(Mendable { ranges: (!none).then_some(ranges), lost_bytes })
    }

    fn move_ranges(
        &self,
        lack: &IncompleteCopy,
        ranges: &[MissingRange],
        session: &Session,
        host: &mut ReadMounter,
        watch: &RestoreWatch,
    ) -> Result<(), DirectorError> {
        let (object, copy) = (&lack.object, lack.wanted.copy);
        let (ranges, mut entries) = self.to_copy(object, ranges)?;
        let known = stream_lengths(&locked(&self.catalog), object.id)?;
        let record = self.record_of_copy(object, &lack.wanted.pool)?;
        session.intake().begin_object_again(record, known)?;
        for missing in &ranges {
            let own = entries.get_mut(&missing.connection);
            let own = own.map(|own| take_of(own, &missing.range)).unwrap_or_default();
            self.copy_range_of(object, copy, session, host, missing, own, watch)?;
        }
        Ok(session.intake().end_object(object.id, object.ended_ns)?)
    }

    /// A session that writes copies of objects to volumes of a pool, over so many connections at the same time.
    pub(crate) fn session_for_copies(
        &self,
        mounter: &Mounter,
        (pool, copy): (&str, u8),
        objects: &[&Object],
        (connections, shortfall): (usize, Shortfall),
        watch: &RestoreWatch,
    ) -> Result<Session, DirectorError> {
        let found = locked(&self.catalog).pool(pool)?;
        let pool = found.ok_or_else(|| DirectorError::UnknownPool { pool: pool.to_owned() })?;
        let lifetime = |object: &&Object| self.lifetime_of_copy(object, &pool.name);
        let lifetimes = objects.iter().map(lifetime).collect::<Result<Vec<_>, _>>()?;
        let chunk_len = objects.first().map_or(self.config.chunk_len(), |object| object.chunk_len as usize);
        let append: Box<dyn CopyHost> = Box::new(AppendHost {
            mounter: mounter.clone().here_alone().for_writing(pool.encryption.is_some(), &self.models),
            config: self.config.clone(),
            library_dir: self.library_dir(),
            failed_in: Mutex::default(),
            lifetime: lifetimes.into_iter().max().unwrap_or(Lifetime::ENDLESS),
            pool,
            copy,
            shortfall,
            writing: None,
        });
        let record = SessionRecord {
            started_ns: self.now_ns(),
            host: self.host.clone(),
            software: concat!("capstan ", env!("CARGO_PKG_VERSION")).to_owned(),
        };
        let mut options = self.session_options_for_copy(chunk_len);
        (options.first_copy, options.connections) = (copy, connections);
        Ok(mounter.library.data_path.start_session(&options, &record, vec![append], watch.stop.clone())?)
    }

    /// The ranges that are copied, and the entries that go with them, by connection and offset.
    ///
    /// What has no member (a deleted path, for one) stands beside the stream: it goes along, and twice does no harm.
    /// Where a stream lacks nothing, an empty block brings it.
    pub(crate) fn to_copy(
        &self,
        object: &Object,
        missing: &[MissingRange],
    ) -> Result<(Vec<MissingRange>, EntriesOf), DirectorError> {
        // As long as it takes to go through all that the object lists, others record.
        apart(&self.catalog, |catalog| {
            let mut ranges = missing.to_vec();
            let mut entries = EntriesOf::new();
            for (connection, own) in entries_where_they_end(catalog, object.id)? {
                let goes = |(end, entry): &(u64, FileEntry)| {
                    let ends_in = |missing: &MissingRange| {
                        missing.connection == connection && missing.range.start < *end && *end <= missing.range.end
                    };
                    entry.member_len == 0 || missing.iter().any(ends_in)
                };
                let own: Vec<_> = own.into_iter().filter(goes).collect();
                if !own.is_empty() {
                    entries.insert(connection, own);
                }
            }
            for (connection, valid_len) in stream_lengths(catalog, object.id)? {
                if entries.contains_key(&connection) && !missing.iter().any(|range| range.connection == connection) {
                    let sequence = valid_len.div_ceil(u64::from(object.chunk_len.max(1))) as u32;
                    ranges.push(MissingRange { connection, sequence, range: valid_len..valid_len, last: true });
                }
            }
            Ok((ranges, entries))
        })
    }

    #[expect(clippy::too_many_arguments, reason = "what is copied, from where, to where, with what, and who watches")]
    fn copy_range_of(
        &self,
        object: &Object,
        copy: u8,
        session: &Session,
        host: &mut ReadMounter,
        missing: &MissingRange,
        mut entries: Vec<(u64, FileEntry)>,
        watch: &RestoreWatch,
    ) -> Result<(), DirectorError> {
        let MissingRange { connection, sequence, range, last } = missing.clone();
        let mut sink = session.intake().connection_at(object.id, connection, sequence, range.start);
        check_taken(&sink, &entries)?;
        if range.is_empty() {
            entries.drain(..).for_each(|(_, entry)| sink.member(entry));
        } else {
            let present = self.present_to_read(host, object.id)?;
            let member = WantedMember { offset: range.start, len: range.end - range.start, crc: 0 };
            let streams = [((object.id, connection), vec![member])].into();
            let mut located = locate_streams(&locked(&self.catalog), streams, &present, WhichCopy::Any, Layout::Apart)?;
            for stream in &mut located.wanted.streams {
                stream.extents.retain(|extent| extent.copy != copy);
            }
            let reads = plan_reads(&located.wanted);
            let failure = Mutex::new(None);
            let shared = Mutex::new((&mut sink, entries));
            let routes = self.routes()?;
            let access = VolumeAccess { host, drives: routes.drives(), between: None };
            let read = read_streams(&located.wanted, &reads, access, (&watch.stop, &watch.meters), &|_, reader| {
                let mut guard = shared.lock().unwrap_or_else(PoisonError::into_inner);
                let (sink, entries) = &mut *guard;
                if let Err(fault) = move_bytes(reader, range.clone(), sink, entries, watch) {
                    *failure.lock().unwrap_or_else(PoisonError::into_inner) = Some(fault.to_string());
                }
            });
            drop(shared);
            host.note_bad(&read.bad, "repair");
            if watch.stop.load(Ordering::Relaxed) {
                return Err(DirectorError::Interrupted);
            }
            if let Some(reason) = failure.into_inner().unwrap_or_else(PoisonError::into_inner) {
                return Err(host.why_not(reason));
            }
        }
        // The stream's last block says how far it is whole, where no member ends in it.
        let finished = if last { sink.finish() } else { sink.finish_range() };
        finished.map_err(|error| DirectorError::Output { reason: with_causes(&error) })
    }
}

/// The missing ranges that some copy has: those that none has are cut out.
pub(crate) fn without_lost(missing: &[MissingRange], lost: &[(u16, Range<u64>)], chunk_len: u32) -> Vec<MissingRange> {
    let mut left = Vec::new();
    for one in missing {
        let mut at = one.range.start;
        let mut keep = |range: Range<u64>| {
            if range.start < range.end {
                let sequence = (range.start / u64::from(chunk_len.max(1))) as u32;
                let last = one.last && range.end == one.range.end;
                left.push(MissingRange { connection: one.connection, sequence, range, last });
            }
        };
        for (_, lost) in lost.iter().filter(|(connection, _)| *connection == one.connection) {
            keep(at..lost.start.min(one.range.end));
            at = at.max(lost.end);
        }
        keep(at..one.range.end);
    }
    left
}

/// Takes the entries that end in a range or have no member out of those of a connection.
pub(crate) fn take_of(entries: &mut Vec<(u64, FileEntry)>, range: &Range<u64>) -> Vec<(u64, FileEntry)> {
    let goes = |(end, entry): &mut (u64, FileEntry)| entry.member_len == 0 || *end <= range.end;
    entries.extract_if(.., goes).collect()
}
