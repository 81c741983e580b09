//! Consolidation: a full object made of an incremental and of what that stands on, without its client.
//!
//! ```text
//! full   a b c d          state at incr 2        the new object, in the place of incr 2
//! incr 1   b'      --->   a  b' c' e      --->   a b' c' e
//! incr 2     c' e (no d)                         what was based on incr 2 stands on it
//! ```
//! Members are moved as they are, headers and all, in the order in which the volumes are read. What a restore of the
//! incremental gives back, a restore of the new object gives back: the same entries, each where it stands now.
//!
//! The new object has the id that comes next behind that of the object it stands for, and is of the same moment. So it
//! ranks behind that one and before all later ones, whenever it is made, and lists, keep rules and `--at` need to know
//! nothing of it. Its record says which object it stands for ([`capstan_format::ObjectRecord::consolidates`]); the
//! catalog has what is based on that stand on the new one while it is whole.
//!
//! Each stream that is open at the same time is written to a connection of its own, and to another one after some
//! blocks: a restore unpacks several connections at a time. Hard links come last, in a connection behind all others, so
//! that a plain reader meets the file before its further names. What a run that was stopped has written counts: the
//! next one writes the rest.

use std::collections::{BTreeMap, HashSet, VecDeque};
use std::io::BufRead;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

use capstan_catalog::{Catalog, CatalogError, Index, Object, ObjectFilter, ObjectStatus, Resource, Wish};
use capstan_format::{EntryFlags, EntryKind, FileEntry, ObjectId, ObjectKind, Volser};
use capstan_mover::{
    Connection, Intake, ReadPlan, RestoreWatch, Session, StreamReader, StreamSink, VolumeAccess, Wanted, open_at_once,
    plan_reads, read_streams, split_at_gaps,
};
use capstan_tape::with_causes;
use uuid::Uuid;

use crate::base::why_gone;
use crate::catch_up::{Known, catch_up_pool};
use crate::hold::{holder, what};
use crate::jobs::{in_pool, record_of};
use crate::lacks::Lacks;
use crate::mounter::{Drives, Mounter, ReadMounter};
use crate::pools::name_of_copy;
use crate::ranges::stream_lengths;
use crate::repair::RepairReport;
use crate::request::Shortfall;
use crate::select::{Located, WhichCopy};
use crate::shared::{apart, first_of};
use crate::site::{Site, locked};
use crate::{DirectorError, Event};

/// The first connection of hard links; each run that writes some has one of its own.
const LINKS: u16 = 65_280;
/// Connections that there are at least, where there is so much to write; and blocks behind which a stream goes to
/// another one.
const CONNECTIONS_MIN: usize = 2;
const BLOCKS_IN_A_ROW: u64 = 8;
/// Volumes that are named where many are away.
const NAMED_MAX: usize = 5;

/// How a consolidation ended.
#[derive(Debug)]
pub struct Consolidated {
    /// The new object.
    pub object: ObjectId,
    /// The object that it stands for.
    pub of: ObjectId,
    /// What it images.
    pub source: Vec<u8>,
    /// The pool that it is in.
    pub pool: String,
    /// Objects that its members come from, at most: the one that it stands for, and what that stands on.
    pub chain: usize,
    /// Members that this run wrote.
    pub members: u64,
    /// Members that an earlier run had written.
    pub written_before: u64,
    /// Bytes of the streams that this run wrote.
    pub bytes: u64,
    /// Blocks read.
    pub blocks: u64,
    /// How long it took.
    pub elapsed_ns: u64,
}

/// What is to be moved.
#[derive(Default)]
struct Members {
    /// Members, by the stream that they are in, in the order of their offsets.
    streams: BTreeMap<(ObjectId, u16), Vec<FileEntry>>,
    /// Entries that have no member: what could not be read, or vanished.
    bare: Vec<FileEntry>,
    has_links: bool,
    count: u64,
    bytes: u64,
    /// How many are there already.
    there: u64,
}

impl Members {
    /// Those of the state at an object, without what another has already.
    fn of(catalog: &Catalog, object: ObjectId, there: Option<&Index>) -> Result<Self, DirectorError> {
        let mut members = Self::default();
        for found in catalog.state(object)?.iter() {
            let found = found?;
            let mut entry = found.entry;
            if there.map(|there| there.get(&entry.path)).transpose()?.flatten().is_some() {
                members.there += 1;
                continue;
            }
            if found.unread.is_some() {
                entry.flags = entry.flags.with(EntryFlags::OLDER);
            }
            if entry.member_len == 0 {
                members.bare.push(entry);
                continue;
            }
            members.has_links |= entry.kind == EntryKind::HardLink;
            members.count += 1;
            members.bytes = members.bytes.saturating_add(entry.member_len);
            members.streams.entry((found.object, entry.connection)).or_default().push(entry);
        }
        members.streams.values_mut().for_each(|own| own.sort_by_key(|entry| entry.offset));
        Ok(members)
    }

    /// The entry of a member of a stream.
    fn entry(&self, stream: (ObjectId, u16), offset: u64) -> Option<&FileEntry> {
        let own = self.streams.get(&stream)?;
        own.binary_search_by_key(&offset, |entry| entry.offset).ok().map(|at| &own[at])
    }
}

/// What is read, and from which volumes.
struct Reading {
    wanted: Wanted,
    reads: ReadPlan,
    volumes: Vec<Volser>,
}

impl Site {
    /// Of each source the object to make a full one of: one of which that was begun and not ended; else the latest, if
    /// so many incrementals stand on a full one with it. Of one policy, if one is named. Tells which of the latest
    /// stand on what cannot be used.
    ///
    /// # Errors
    /// The catalog cannot be read.
    pub fn to_consolidate(&self, policy: Option<&str>, chain: usize) -> Result<Vec<Object>, DirectorError> {
        let mut broken_off = Vec::new();
        let found = apart(&self.catalog, |catalog| {
            let filter = ObjectFilter {
                policy: policy.map(str::to_owned),
                status: Some(ObjectStatus::Complete),
                ..ObjectFilter::default()
            };
            let mut seen: HashSet<(Vec<u8>, String)> = HashSet::new();
            let source = |object: &Object| (object.source.clone(), object.client.clone());
            let mut found = Vec::new();
            let begun = ObjectFilter { status: Some(ObjectStatus::Open), ..filter.clone() };
            for of in catalog.objects(&begun)?.into_iter().filter_map(|object| object.consolidates) {
                let Some(object) = catalog.object(of)? else { continue };
                let is_left =
                    object.status == ObjectStatus::Complete && object.base.is_some() && catalog.chain(of).is_ok();
                if is_left && seen.insert(source(&object)) {
                    found.push(object);
                }
            }
            for object in catalog.objects(&filter)? {
                if object.kind != ObjectKind::Tree || !seen.insert(source(&object)) {
                    continue;
                }
                match catalog.chain_as_far(object.id)? {
                    (_, Some(broken)) => broken_off.push((object, broken)),
                    (above, None) if above.len() > chain.max(1) => found.push(object),
                    _ => {}
                }
            }
            found.reverse();
            Ok::<_, DirectorError>(found)
        })?;
        for (object, broken) in broken_off {
            let source = String::from_utf8_lossy(&object.source);
            let message = format!("no full object is made of the last backup of {source}: {}", with_causes(&broken));
            (self.events)(Event::Notice { message });
        }
        Ok(found)
    }

    /// The pool that a full object made of this one goes to in the library of this site: the first of its policy, or
    /// that of the policy's stage if this is one; else the one that it is in.
    ///
    /// # Errors
    /// The catalog cannot be read.
    pub fn pool_to_consolidate(&self, object: &Object) -> Result<String, DirectorError> {
        if let Some(job) = self.config.jobs.get(&object.policy) {
            return Ok(self.policy_in(job, self.library_name()).first_pool().to_owned());
        }
        let promised = locked(&self.catalog).wanted_copies(object.id)?;
        let first = promised.into_iter().min_by_key(|copy| copy.copy);
        first.map(|copy| copy.pool).ok_or_else(|| not_consolidated(object, "no pool has it: name one with --pool"))
    }

    /// Makes a full object of an incremental and of what that stands on. What a run that was stopped, or killed, has
    /// written is not written again.
    ///
    /// # Errors
    /// [`DirectorError::NotConsolidated`] if it cannot be: it is no incremental of files, something of it cannot be
    /// read, or a full one was made of it before. [`DirectorError::ConsolidationStopped`] if `watch` stopped it;
    /// [`DirectorError::NoVolume`] if the pool has no room; [`DirectorError::InUse`] if a job is at an object.
    pub fn consolidate(
        &self,
        object: &Object,
        pool: &str,
        shortfall: Shortfall,
        watch: &RestoreWatch,
    ) -> Result<Consolidated, DirectorError> {
        let began = Instant::now();
        let _presence = self.presence()?;
        let chain = self.chain_to_consolidate(object)?;
        let shared = chain.iter().copied().map(Resource::Object).chain([Resource::Pool(pool.to_owned())]).collect();
        let wish = Wish { alone: vec![Resource::CopyOf(object.id)], shared, ..Wish::default() };
        // Who copies it comes to an end. Nothing else is held meanwhile.
        let claim = self.holds.wait_for(&wish, (&watch.stop, &self.events), |held| {
            format!("{} is in use by {}: this goes on when that has ended", what(&held.resource), holder(held))
        });
        let _claim = claim.map_err(|error| match error {
            DirectorError::Interrupted => DirectorError::ConsolidationStopped { object: object.id },
            other => other,
        })?;
        // It may have been done, or a base given up, until it was reserved.
        let chain = self.chain_to_consolidate(object)?;
        locked(&self.catalog).pool(pool)?.ok_or_else(|| DirectorError::UnknownPool { pool: pool.to_owned() })?;
        let mounter = Mounter::new(self).stopped_by(&watch.stop);
        let (target, is_begun) = self.target(object, pool, &mounter)?;
        let own = self.holds.claim(&Wish::alone(Resource::Object(target.id)))?;
        let members = apart(&self.catalog, |catalog| {
            let there = is_begun.then(|| catalog.index(target.id)).transpose()?;
            Members::of(catalog, object.id, there.as_ref())
        })?;
        watch.planned.fetch_add(members.bytes, Ordering::Relaxed);
        let reading = self.reading_of(object, &members)?;
        let mut host = ReadMounter::new(mounter);
        host.mounter().check_drives_to_copy(&reading.volumes)?;
        host.reserve(reading.volumes.clone(), Drives::Waited)?;
        self.promise_as_of(&target, object, pool)?;
        let mut done = Consolidated {
            object: target.id,
            of: object.id,
            source: object.source.clone(),
            pool: pool.to_owned(),
            chain: chain.len(),
            members: members.count,
            written_before: members.there,
            bytes: members.bytes,
            blocks: 0,
            elapsed_ns: 0,
        };
        done.blocks = self.write_full((object, &target), pool, &members, &reading, &mut host, shortfall, watch)?;
        drop(host);
        self.seal_complete(&[target.id])?;
        let is_complete = |now: Object| now.status == ObjectStatus::Complete;
        if !locked(&self.catalog).object(target.id)?.is_some_and(is_complete) {
            return Err(DirectorError::ConsolidationStopped { object: object.id });
        }
        drop(own);
        self.give_up_others(&target)?;
        self.make_further_copies(&target, watch);
        done.elapsed_ns = began.elapsed().as_nanos() as u64;
        Ok(done)
    }

    /// The object and what it stands on, if a full one can be made of them.
    fn chain_to_consolidate(&self, object: &Object) -> Result<Vec<ObjectId>, DirectorError> {
        let catalog = locked(&self.catalog);
        let fault = |reason: &str| Err(not_consolidated(object, reason));
        let Some(now) = catalog.object(object.id)? else { return Err(CatalogError::UnknownObject(object.id).into()) };
        match now.status {
            ObjectStatus::Complete => {}
            ObjectStatus::Expired => return Err(CatalogError::Expired(object.id).into()),
            ObjectStatus::Open => return fault("its backup was interrupted: run that again first"),
        }
        if now.kind != ObjectKind::Tree {
            return fault("it is not one of files");
        }
        if now.base.is_none() {
            return fault("it is full already");
        }
        for other in self.made_of(&catalog, object)? {
            if other.status == ObjectStatus::Complete && why_gone(&catalog, other.id)?.is_none() {
                return fault(&format!("object {} was made of it before, and stands for it", other.id));
            }
        }
        Ok(catalog.chain(object.id)?)
    }

    /// Living objects that were made of one, the latest first.
    fn made_of(&self, catalog: &Catalog, object: &Object) -> Result<Vec<Object>, DirectorError> {
        let (source, client) = (Some(object.source.clone()), Some(object.client.clone()));
        let mut found = catalog.objects(&ObjectFilter { source, client, ..ObjectFilter::default() })?;
        found.retain(|other| other.consolidates == Some(object.id));
        Ok(found)
    }

    /// The object that is written, and whether an earlier run has begun it.
    fn target(&self, object: &Object, pool: &str, mounter: &Mounter) -> Result<(Object, bool), DirectorError> {
        let begun = self.made_of(&locked(&self.catalog), object)?;
        let last = begun.iter().map(|other| other.id).max().unwrap_or(object.id);
        if let Some(open) = begun.into_iter().find(|other| other.status == ObjectStatus::Open) {
            // A killed run may have flushed more than it recorded. What it wrote counts, or is known to be no part of
            // any stream that this run writes.
            let seat = mounter.seats(1)?;
            let looked = catch_up_pool(mounter, pool)?;
            drop(seat);
            let catalog = locked(&self.catalog);
            // All of a copy is in volumes of one pool.
            let goes_on = why_gone(&catalog, open.id)?.is_none() && in_pool(&catalog, open.id, pool)?;
            if goes_on && looked.known() == Known::All {
                return Ok((open, true));
            }
        }
        let target = Object {
            id: id_behind(last.max(object.id)),
            status: ObjectStatus::Open,
            base: None,
            made_on: None,
            consolidates: Some(object.id),
            chunk_len: self.config.chunk_len() as u32,
            ended_ns: 0,
            counts: None,
            ..object.clone()
        };
        Ok((target, false))
    }

    /// Where the members are. All of them must be there to be read.
    fn reading_of(&self, object: &Object, members: &Members) -> Result<Reading, DirectorError> {
        let present = self.present()?;
        let located = {
            let catalog = locked(&self.catalog);
            let entries = members.streams.iter().flat_map(|((of, _), own)| own.iter().map(|entry| (*of, entry)));
            self.locate_entries(&catalog, entries, &present, WhichCopy::Any)?
        };
        let Located { wanted, absent, .. } = located;
        if !absent.is_empty() {
            let away = first_of(&absent, NAMED_MAX, ToString::to_string);
            return Err(not_consolidated(object, &format!("parts of it are on {away}: bring in what is not here")));
        }
        let wanted = self.routes()?.split(split_at_gaps(wanted));
        let reads = plan_reads(&wanted);
        if !reads.missing.is_empty() {
            let source = String::from_utf8_lossy(&object.source);
            let reason = format!("parts of it are on no volume any more: back up {source} again with --full");
            return Err(not_consolidated(object, &reason));
        }
        let mut volumes: Vec<_> = reads.passes.iter().map(|pass| wanted.volumes[pass.volume].volser.clone()).collect();
        volumes.sort();
        volumes.dedup();
        Ok(Reading { wanted, reads, volumes })
    }

    /// Promises the new object as many copies as the backup itself was promised; and notes what that left out.
    fn promise_as_of(&self, target: &Object, object: &Object, pool: &str) -> Result<(), DirectorError> {
        let mut catalog = locked(&self.catalog);
        let promised = catalog.copy_numbers(object.id)?;
        let first = promised.iter().find(|(copy, _)| *copy == 1).map_or(pool, |(_, pool)| pool);
        let own = (1..=u8::MAX).take_while(|copy| {
            *copy == 1 || promised.iter().any(|(other, of)| other == copy && *of == name_of_copy(first, *copy))
        });
        let pools: Vec<_> = own.map(|copy| (copy, name_of_copy(pool, copy))).collect();
        let mut wanted = Vec::new();
        for (copy, name) in &pools {
            if catalog.pool(name)?.is_some() {
                wanted.push((target.id, *copy, name.as_str()));
            }
        }
        catalog.promise_copies(&wanted)?;
        if let Some(rules) = catalog.left_out(object.id)? {
            catalog.put_left_out(&[target.id], &rules)?;
        }
        Ok(())
    }

    /// Writes the object; gives the number of blocks that were read for it.
    #[expect(clippy::too_many_arguments, reason = "what is written, to where, of what, from where, and who watches")]
    fn write_full(
        &self,
        (object, target): (&Object, &Object),
        pool: &str,
        members: &Members,
        reading: &Reading,
        host: &mut ReadMounter,
        shortfall: Shortfall,
        watch: &RestoreWatch,
    ) -> Result<u64, DirectorError> {
        // Each stream that is open at the same time keeps a buffer, and so do connections that rest.
        let connections = open_at_once(&reading.reads) + CONNECTIONS_MIN + 1;
        let (place, how) = ((pool, 1), (connections, shortfall));
        let session = self.session_for_copies(host.mounter(), place, &[target], how, watch)?;
        let moved = self.move_members((object, target), &session, members, reading, host, watch);
        let written = session.finish().writers.into_iter().find_map(Result::err);
        if watch.stop.load(Ordering::Relaxed) && (moved.is_err() || written.is_some()) {
            return Err(DirectorError::ConsolidationStopped { object: object.id });
        }
        // Why the volume could not be written says more than that nothing could be handed on any more.
        match written.map(DirectorError::of_copy) {
            Some(DirectorError::CopiesFailed(cause)) => Err(DirectorError::Mover(cause)),
            Some(own) => Err(own),
            None => moved,
        }
    }

    fn move_members(
        &self,
        (object, target): (&Object, &Object),
        session: &Session,
        members: &Members,
        reading: &Reading,
        host: &mut ReadMounter,
        watch: &RestoreWatch,
    ) -> Result<u64, DirectorError> {
        let known = stream_lengths(&locked(&self.catalog), target.id)?;
        let after = |of_links: bool, none: u16| {
            let used = known.iter().map(|(connection, _)| *connection).filter(|used| (*used >= LINKS) == of_links);
            used.max().map_or(Some(none), |last| last.checked_add(1))
        };
        let (Some(first), Some(links)) = (after(false, 0).filter(|first| *first < LINKS), after(true, LINKS)) else {
            let reason = format!("it was begun too often: `capstan expire {}`, then begin again", target.id);
            return Err(not_consolidated(object, &reason));
        };
        session.intake().begin_object_again(record_of(target), known)?;
        let sinks = Sinks::new(session.intake(), target, first..LINKS);
        if members.has_links || !members.bare.is_empty() {
            sinks.begin_links(links, &members.bare);
        }
        let stop = AtomicBool::new(false);
        let failure = Mutex::new(None);
        let routes = self.routes()?;
        let access = VolumeAccess { host, drives: routes.drives(), between: None };
        let Reading { wanted, reads, .. } = reading;
        let read = read_streams(wanted, reads, access, (&stop, &watch.meters), &|stream, reader| {
            let stream = &wanted.streams[stream];
            if let Err(reason) = sinks.take_stream((stream.object, stream.connection), reader, members, watch) {
                failure.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(reason);
                stop.store(true, Ordering::Relaxed);
            }
        });
        host.note_bad(&read.bad, "consolidate");
        let lost = read.lost.first().map(|lost| lost.volser.to_string());
        let failure = failure.into_inner().unwrap_or_else(PoisonError::into_inner);
        match (failure, lost) {
            (Some(_), Some(volser)) => {
                let reason = format!(
                    "what it needs of volume {volser} cannot be read, and no other copy has it: `capstan verify {volser}` \
                     says what is damaged; back up {} again with --full",
                    String::from_utf8_lossy(&object.source)
                );
                return Err(not_consolidated(object, &reason));
            }
            (Some(reason), None) => return Err(host.why_not(reason)),
            (None, _) => {}
        }
        let written = sinks.finish()?;
        if written != members.count {
            let reason = format!("{written} of {} files were met on its volumes: run it again", members.count);
            return Err(not_consolidated(object, &reason));
        }
        session.intake().end_object(target.id, object.ended_ns)?;
        Ok(read.blocks)
    }

    /// Gives up full objects of the source that earlier runs have begun, of other incrementals: nobody will go on with
    /// them.
    fn give_up_others(&self, target: &Object) -> Result<(), DirectorError> {
        /// No time of an expiry: what the last of these gave up is what an operator may take back.
        const NEVER_LAST_NS: i64 = 1;
        let (source, client) = (Some(target.source.clone()), Some(target.client.clone()));
        let open = ObjectFilter { source, client, status: Some(ObjectStatus::Open), ..ObjectFilter::default() };
        let begun = locked(&self.catalog).objects(&open)?;
        for other in begun.iter().filter(|other| other.consolidates.is_some() && other.id != target.id) {
            if let Ok(_hold) = self.holds.reserve(&Wish::alone(Resource::Object(other.id)))? {
                locked(&self.catalog).expire(other.id, NEVER_LAST_NS)?;
            }
        }
        Ok(())
    }

    /// Makes the further copies, where drives are free for it. What cannot be made now stays promised.
    fn make_further_copies(&self, target: &Object, watch: &RestoreWatch) {
        let repair = RestoreWatch { stop: watch.stop.clone(), ..RestoreWatch::default() };
        let how = (Drives::IfFree, Shortfall::Fail);
        // Which copies are whole is known then, too.
        let mended = self.look_at_copies().and_then(|lacking| {
            let lacks = lacking.iter().any(|lack| lack.object.id == target.id);
            if lacks {
                self.mend_copies(&[target.id], Lacks::All, how, &repair, &mut RepairReport::default())
            } else {
                Ok(())
            }
        });
        if let Err(error) = mended {
            let reason = with_causes(&error);
            let message = format!("object {}: its further copies are left for `capstan repair`: {reason}", target.id);
            (self.events)(Event::Notice { message });
        }
    }
}

fn not_consolidated(object: &Object, reason: &str) -> DirectorError {
    DirectorError::NotConsolidated { object: object.id, reason: reason.to_owned() }
}

/// An id that comes behind another one, and before any of a later moment.
fn id_behind(other: ObjectId) -> ObjectId {
    /// The random bits at the end of an id.
    const RANDOM: u128 = (1 << 62) - 1;
    let number = u128::from_be_bytes(other.0);
    let left = RANDOM - (number & RANDOM);
    let step = Uuid::new_v4().as_u128() & RANDOM;
    if left > 1 {
        // Half of what is left at most, so that as much room stays for others.
        return ObjectId((number + 1 + step % left.div_ceil(2)).to_be_bytes());
    }
    // The bits in front of the variant count on, within the same millisecond.
    ObjectId((((number >> 64) + 1) << 64 | 1 << 63 | step >> 1).to_be_bytes())
}

/// The connections of the object that is written.
struct Sinks<'s> {
    intake: &'s Intake,
    object: ObjectId,
    /// Bytes behind which a stream goes to another connection.
    in_a_row: u64,
    state: Mutex<SinksLeft>,
    links: Mutex<Option<Connection>>,
}

/// Those that no stream is written to now, the one that rests for longest first; how many there are, and the numbers of
/// further ones.
struct SinksLeft {
    free: VecDeque<Connection>,
    count: usize,
    numbers: std::ops::Range<u16>,
    written: u64,
}

impl<'s> Sinks<'s> {
    fn new(intake: &'s Intake, target: &Object, numbers: std::ops::Range<u16>) -> Self {
        let in_a_row = u64::from(target.chunk_len) * BLOCKS_IN_A_ROW;
        let state = Mutex::new(SinksLeft { free: VecDeque::new(), count: 0, numbers, written: 0 });
        Self { intake, object: target.id, in_a_row, state, links: Mutex::new(None) }
    }

    /// Opens the connection of the hard links, which brings along what has no member.
    fn begin_links(&self, number: u16, bare: &[FileEntry]) {
        let mut sink = self.intake.connection(self.object, number);
        for entry in bare {
            sink.member(FileEntry { connection: number, offset: 0, ..entry.clone() });
        }
        *self.links.lock().unwrap_or_else(PoisonError::into_inner) = Some(sink);
    }

    fn left(&self) -> std::sync::MutexGuard<'_, SinksLeft> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn take(&self) -> Result<Connection, String> {
        let number = {
            let mut left = self.left();
            if left.count >= CONNECTIONS_MIN
                && let Some(free) = left.free.pop_front()
            {
                return Ok(free);
            }
            left.count += 1;
            left.numbers.next().ok_or("more streams are read at the same time than can be written")?
        };
        Ok(self.intake.connection(self.object, number))
    }

    /// Writes what is wanted of a stream.
    fn take_stream(
        &self,
        stream: (ObjectId, u16),
        reader: &mut StreamReader<'_>,
        members: &Members,
        watch: &RestoreWatch,
    ) -> Result<(), String> {
        let mut sink = self.take()?;
        let (mut written, mut since) = (0, sink.position());
        for member in reader.members() {
            if sink.position() - since >= self.in_a_row {
                self.left().free.push_back(sink);
                sink = self.take()?;
                since = sink.position();
            }
            let entry = members.entry(stream, member.offset).ok_or("the catalog changed meanwhile")?;
            let mut bytes = reader.range(member.offset..member.offset.saturating_add(member.len));
            if entry.kind == EntryKind::HardLink {
                self.take_link(entry, &mut bytes, watch)?;
            } else {
                move_member(entry, &mut bytes, &mut sink, watch)?;
            }
            written += 1;
        }
        let mut left = self.left();
        left.written += written;
        left.free.push_back(sink);
        Ok(())
    }

    /// Hard links are short, and are read before the next one may be written.
    fn take_link(&self, entry: &FileEntry, bytes: &mut dyn BufRead, watch: &RestoreWatch) -> Result<(), String> {
        let mut member = Vec::new();
        bytes.read_to_end(&mut member).map_err(|error| error.to_string())?;
        let mut links = self.links.lock().unwrap_or_else(PoisonError::into_inner);
        let sink = links.as_mut().ok_or("hard links come behind their end")?;
        move_member(entry, &mut &member[..], sink, watch)
    }

    /// Ends all connections; gives the number of members that were written.
    fn finish(self) -> Result<u64, DirectorError> {
        let SinksLeft { free, written, .. } = self.state.into_inner().unwrap_or_else(PoisonError::into_inner);
        let links = self.links.into_inner().unwrap_or_else(PoisonError::into_inner);
        for sink in free.into_iter().chain(links) {
            sink.finish().map_err(|error| DirectorError::Output { reason: with_causes(&error) })?;
        }
        Ok(written)
    }
}

/// Moves a member's bytes, and tells the sink where it stands now.
fn move_member(
    entry: &FileEntry,
    bytes: &mut dyn BufRead,
    sink: &mut Connection,
    watch: &RestoreWatch,
) -> Result<(), String> {
    let offset = sink.position();
    loop {
        let available = bytes.fill_buf().map_err(|error| error.to_string())?;
        if available.is_empty() {
            break;
        }
        let len = available.len();
        sink.write(available).map_err(|error| error.to_string())?;
        bytes.consume(len);
        watch.taken.fetch_add(len as u64, Ordering::Relaxed);
        watch.bytes.fetch_add(len as u64, Ordering::Relaxed);
        if watch.stop.load(Ordering::Relaxed) {
            return Err("stopped".to_owned());
        }
    }
    if sink.position() - offset != entry.member_len {
        return Err(format!("{} ends before its end", String::from_utf8_lossy(&entry.path)));
    }
    sink.member(FileEntry { connection: sink.connection(), offset, ..entry.clone() });
    watch.members.fetch_add(1, Ordering::Relaxed);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_behind_another_is_of_the_same_moment() {
        let of = |ms: u64, rest: u128| {
            let id = u128::from(ms) << 80 | 7 << 76 | (rest >> 62) << 64 | 2 << 62 | rest & ((1 << 62) - 1);
            ObjectId(id.to_be_bytes())
        };
        for rest in [0, 5, (1 << 62) - 3, (1 << 62) - 2, (1 << 62) - 1, (1 << 73) + 7] {
            let (mut at, first, next) =
                (of(1_795_000_000_000, rest), of(1_795_000_000_000, rest), of(1_795_000_000_001, 0));
            for _ in 0..20 {
                let behind = id_behind(at);
                assert!(at < behind && behind < next, "{at} {behind}");
                assert_eq!(behind.0[..6], first.0[..6]);
                assert_eq!(Uuid::from_bytes(behind.0).get_version_num(), 7);
                at = behind;
            }
        }
    }
}
