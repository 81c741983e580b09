//! What each source becomes: an object of its own, or the one that an interrupted run left open; and what it is
//! compared with.

use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

use capstan_catalog::{Catalog, Object, ObjectFilter, ObjectStatus, Pool, StateEntry, id_ms_after};
use capstan_format::{EntryFlags, EntryKind, ObjectId, ObjectKind, ObjectRecord, ObjectState, TAGS_MAX};
use capstan_mover::{BaselineBuilder, CutFile, Metadata, SourceFound, SourceSpec};
use capstan_tape::with_causes;
use uuid::Uuid;

use crate::base::{BaseChoice, BaseSelector};
use crate::baseline::StateBaseline;
use crate::catch_up::Known;
use crate::chains::cut_files;
use crate::earlier_attempts::EarlierObjects;
use crate::events::BaseUnavailable;
use crate::left_out::Compared;
use crate::mounter::Mounter;
use crate::pools::is_copy_pool;
use crate::request::{BackupRequest, Level, MissingSource, Retention, Target};
use crate::shared::apart;
use crate::site::{Site, locked};
use crate::{DirectorError, Event};

/// How much earlier than asked a full backup may come for being due.
const FULL_EARLY_MAX_NS: i64 = 3_600_000_000_000;

/// A source, and the object that it is read into.
pub(crate) struct Job {
    pub(crate) spec: SourceSpec,
    /// Where its files are, links followed; none where that cannot be told, and for a stream.
    pub(crate) real_path: Option<PathBuf>,
    pub(crate) record: ObjectRecord,
    pub(crate) resumed: bool,
    /// Files that the interrupted object has the beginning of.
    pub(crate) cut: Vec<CutFile>,
    pub(crate) first_connection: u16,
    pub(crate) baseline: Option<StateBaseline>,
    /// What it would have stood on, and does not.
    pub(crate) base_gone: Option<BaseUnavailable>,
}

impl Job {
    /// All of a source, read into a new object.
    fn on_nothing(spec: SourceSpec, real_path: Option<PathBuf>, record: ObjectRecord) -> Self {
        Self {
            spec,
            real_path,
            record,
            resumed: false,
            cut: Vec::new(),
            first_connection: 0,
            baseline: None,
            base_gone: None,
        }
    }
}

impl Site {
    /// One object a source: a new one, or the one that an interrupted run left open; none for what an earlier attempt
    /// of the same run has backed up. A source that is not there is named, and the others are read, as long as there is
    /// one.
    pub(crate) fn jobs(
        &self,
        mounter: &Mounter,
        request: &BackupRequest,
        pool: &Pool,
        known: Known,
        earlier: &EarlierObjects,
    ) -> Result<(Vec<Job>, Vec<MissingSource>), DirectorError> {
        let (mut jobs, mut missing) = (Vec::new(), Vec::new());
        let mut bases = BaseSelector::new(mounter);
        if let Some(stream) = request.stream.as_ref().filter(|stream| !earlier.has_stream(&stream.name)) {
            let record = self.new_record(stream.name.clone().into_bytes(), ObjectKind::Stream, None, request, pool);
            jobs.push(Job::on_nothing(SourceSpec::Stream(stream.clone()), None, record));
        }
        let is_here = self.sources_are_here();
        let library = std::fs::canonicalize(self.library_dir()).unwrap_or_else(|_| self.library_dir());
        let mut sources: Vec<PathBuf> = Vec::with_capacity(request.sources.len());
        for path in &request.sources {
            // Named twice it is read once: two jobs would take up one interrupted object with the same connections.
            if !sources.contains(path) && !earlier.has_path(path) {
                sources.push(path.clone());
            }
        }
        for (path, found) in sources.iter().zip(self.look_at(&sources)?) {
            let found: SourceFound = match found {
                Ok(found) => found,
                Err(source) => {
                    missing.push((path.clone(), source));
                    continue;
                }
            };
            if is_here && (path == &library || path.starts_with(&library)) {
                return Err(DirectorError::SourceHoldsLibrary { path: path.clone() });
            }
            jobs.push(self.path_job(path, found, &mut bases, request, pool, known)?);
        }
        self.name_objects(&mut jobs)?;
        if jobs.is_empty()
            && earlier.is_empty()
            && let Some((path, source)) = missing.pop()
        {
            let missing = missing.into_iter().map(|(path, _)| path).collect();
            return Err(DirectorError::Source { path, missing, source });
        }
        let missing = missing.into_iter().map(|(path, source)| {
            let missing = MissingSource { source: path.into_os_string().into_vec(), reason: with_causes(&source) };
            let (source, reason) = (missing.source.clone(), missing.reason.clone());
            (self.events)(Event::SourceMissing { source, reason });
            missing
        });
        Ok((jobs, missing.collect()))
    }

    /// Gives new objects their ids, which stand in the order of recording whatever the clock says.
    fn name_objects(&self, jobs: &mut [Job]) -> Result<(), DirectorError> {
        let mut last = locked(&self.catalog).last_object()?;
        for job in jobs.iter_mut().filter(|job| !job.resumed) {
            let id = object_id_after(job.record.started_ns, last);
            job.record.object = id;
            last = Some(id);
        }
        Ok(())
    }

    /// Whether an incremental of a source would be a full one, as far as the catalog knows: there is none to stand on,
    /// or the last full one is as old as it may get.
    ///
    /// # Errors
    /// The catalog cannot be read.
    pub fn next_is_full(&self, source: &[u8], full_every_ns: Option<i64>) -> Result<bool, DirectorError> {
        let filter = ObjectFilter {
            source: Some(source.to_vec()),
            status: Some(ObjectStatus::Complete),
            client: Some(self.client.clone()),
            ..ObjectFilter::default()
        };
        let latest = locked(&self.catalog).latest(&filter)?;
        latest.map_or(Ok(true), |base| self.full_is_due(base.id, full_every_ns))
    }

    /// Whether the last full object below a base is as old as a full one may get.
    fn full_is_due(&self, base: ObjectId, full_every_ns: Option<i64>) -> Result<bool, DirectorError> {
        let Some(every_ns) = full_every_ns else { return Ok(false) };
        let (timeline, catalog) = (self.timeline()?, locked(&self.catalog));
        let full = catalog.chain(base)?.last().copied().unwrap_or(base);
        let age_ns = timeline.begun(full).map_or(0, |begun| self.now_ns().saturating_sub(begun.by_ns));
        // A timer does not fire to the second, and a weekly full one is not to slip by a day.
        Ok(age_ns >= every_ns.saturating_sub(FULL_EARLY_MAX_NS.min(every_ns / 8)))
    }

    /// Whether an earlier run of one of the sources was interrupted.
    pub(crate) fn any_interrupted(&self, request: &BackupRequest) -> Result<bool, DirectorError> {
        use std::os::unix::ffi::OsStrExt;
        if self.has_unfinished_attempt(request)? {
            return Ok(true);
        }
        let catalog = locked(&self.catalog);
        for path in &request.sources {
            let source = Some(path.as_os_str().as_bytes().to_vec());
            let status = Some(ObjectStatus::Open);
            let filter = ObjectFilter { source, status, client: Some(self.client.clone()), ..ObjectFilter::default() };
            // What is made of others is no run of the source.
            if catalog.objects(&filter)?.iter().any(|object| object.consolidates.is_none()) {
                return Ok(true);
            }
        }
        Ok(false)
    }

    fn new_record(
        &self,
        source: Vec<u8>,
        kind: ObjectKind,
        base: Option<ObjectId>,
        request: &BackupRequest,
        pool: &Pool,
    ) -> ObjectRecord {
        let started_ns = self.now_ns();
        let keep = match request.retention {
            Retention::OfPool => pool.retention_ns.and_then(|ns| i64::try_from(ns).ok()),
            Retention::For(ns) => Some(ns),
            Retention::ByRule => None,
        };
        ObjectRecord {
            // Named once all are known.
            object: ObjectId([0; 16]),
            source,
            client: self.client.clone(),
            policy: request.policy.clone(),
            kind,
            state: ObjectState::Open,
            base,
            copy: 1,
            chunk_len: self.config.chunk_len() as u32,
            started_ns,
            ended_ns: 0,
            expires_ns: keep.map_or(0, |keep| started_ns.saturating_add(keep)),
            is_locked: request.is_locked,
            consolidates: None,
            tags: request.tags.clone(),
        }
    }

    fn path_job(
        &self,
        path: &Path,
        found: SourceFound,
        bases: &mut BaseSelector<'_>,
        request: &BackupRequest,
        pool: &Pool,
        known: Known,
    ) -> Result<Job, DirectorError> {
        use std::os::unix::ffi::OsStrExt;
        let source = path.as_os_str().as_bytes().to_vec();
        let filter =
            ObjectFilter { source: Some(source.clone()), client: Some(self.client.clone()), ..ObjectFilter::default() };
        let (spec, kind) = (found.spec(path, &request.tree), found.kind_with(&request.tree));
        let real_path = found.real_path;
        if request.target == Target::Null || kind == ObjectKind::Device {
            return Ok(Job::on_nothing(spec, real_path, self.new_record(source, kind, None, request, pool)));
        }
        let latest = locked(&self.catalog).objects(&filter)?.into_iter().find(is_of_its_run);
        let mut wants_base = request.level == Level::Incremental;
        let mut choice = match wants_base {
            true => bases.choice(&ObjectFilter { status: Some(ObjectStatus::Complete), ..filter })?,
            false => BaseChoice::default(),
        };
        if let Some(base) = choice.base
            && self.full_is_due(base, request.full_every_ns)?
        {
            let name = String::from_utf8_lossy(&source);
            let message =
                format!("{name}: the last full backup is older than --full-every allows, so this one is full");
            (self.events)(Event::Notice { message });
            (wants_base, choice) = (false, BaseChoice::default());
        }
        let is_full = !wants_base || choice.base.is_none();
        let open = self.interrupted(latest, is_full, bases, request, known)?;
        let asked_ns = self.new_record(source.clone(), kind, None, request, pool).expires_ns;
        let is_endless =
            |object: &Object| (object.is_locked || request.is_locked) && longer_kept(object.expires_ns, asked_ns) == 0;
        if let Some((object, _)) = open.as_ref().filter(|(object, _)| is_endless(object)) {
            let because = "its retention would be locked, and would not end. Its source is read from the beginning";
            let message = format!("object {} was interrupted and is not continued: {because}", object.id);
            (self.events)(Event::Notice { message });
        }
        let open = open.filter(|(object, _)| !is_endless(object));
        let (mut base, base_gone) = (choice.base, choice.gone);
        let say = |base: Option<ObjectId>| {
            if let Some(gone) = base_gone.clone() {
                (self.events)(Event::BaseUnavailable { source: source.clone(), gone, base });
            }
        };
        if let Some((object, first_connection)) = open {
            if let Some(baseline) = self.baseline_if_listed(BaselineOf::Resumed(object.id), &source)? {
                self.compare_left_out(&source, Compared::Resumed(object.id), &request.tree)?;
                say(object.base);
                let asked = self.new_record(source.clone(), kind, object.base, request, pool);
                let record = ObjectRecord {
                    expires_ns: longer_kept(object.expires_ns, asked.expires_ns),
                    is_locked: object.is_locked || asked.is_locked,
                    tags: joined(&object.tags, asked.tags),
                    ..record_of(&object)
                };
                let baseline = Some(baseline);
                let cut = apart(&self.catalog, |catalog| cut_files(catalog, object.id))?;
                return Ok(Job { spec, real_path, record, resumed: true, cut, first_connection, baseline, base_gone });
            }
            base = None;
            wants_base = false;
        }
        if wants_base && base.is_none() && base_gone.is_none() {
            self.tell_no_base(&source)?;
        }
        let baseline = base.map(|base| self.baseline_if_listed(BaselineOf::Base(base), &source)).transpose()?.flatten();
        let base = base.filter(|_| baseline.is_some());
        let before = match base {
            Some(base) => Some(Compared::Base(base)),
            None if kind == ObjectKind::Tree => self.last_of(&source)?.map(Compared::Before),
            None => None,
        };
        if let Some(with) = before {
            self.compare_left_out(&source, with, &request.tree)?;
        }
        say(base);
        let base = base.map(|base| self.base_to_record(base)).transpose()?;
        let record = self.new_record(source, kind, base, request, pool);
        let cut = Vec::new();
        Ok(Job { spec, real_path, record, resumed: false, cut, first_connection: 0, baseline, base_gone })
    }

    /// The base that volumes are to name: the incremental that a full object stands for, while that can be used. Should
    /// the full one be lost, what is made on it stands on the incremental.
    fn base_to_record(&self, base: ObjectId) -> Result<ObjectId, DirectorError> {
        let catalog = locked(&self.catalog);
        let other = catalog.object(base)?.and_then(|object| object.consolidates);
        let is_usable = |other: &ObjectId| {
            let is_complete = |object: Object| object.status == ObjectStatus::Complete;
            catalog.object(*other).is_ok_and(|found| found.is_some_and(is_complete)) && catalog.chain(*other).is_ok()
        };
        Ok(other.filter(is_usable).unwrap_or(base))
    }

    /// The interrupted object of a source that this backup goes on with, and the first number that its streams may
    /// have. Says why, where one is not gone on with.
    fn interrupted(
        &self,
        latest: Option<Object>,
        is_full: bool,
        bases: &mut BaseSelector<'_>,
        request: &BackupRequest,
        known: Known,
    ) -> Result<Option<(Object, u16)>, DirectorError> {
        // One of the same kind; its chunk length is on the volumes already.
        let is_alike = |object: &Object| {
            object.status == ObjectStatus::Open
                && object.base.is_some() != is_full
                && object.chunk_len as usize == self.config.chunk_len()
        };
        let Some(object) = latest.filter(is_alike) else { return Ok(None) };
        // Its volume was erased, or a key is gone: what it had of the source is not there to be gone on with.
        let lost = bases.why_not(object.id)?;
        let catalog = locked(&self.catalog);
        let because = if let Some(reason) = lost {
            format!("{reason}. Its source is read from the beginning")
        } else if object.policy != request.policy {
            // What it is called and how long it is kept stand on volumes, and its excludes were another job's.
            format!(
                "it is of policy {}, and this backup of policy {}. Its source is read from the beginning",
                object.policy, request.policy
            )
        } else if known == Known::NotAll || !in_pool(&catalog, object.id, &request.pool)? {
            "not all volumes it may be on can be read, or they are of another pool; its source is read from the beginning"
                .to_owned()
        } else {
            let used = catalog.parts(object.id)?.iter().map(|part| part.connection).max();
            if let Some(first_connection) = next_connection(used, request.connections.max(request.drives.into())) {
                return Ok(Some((object, first_connection)));
            }
            "it has no numbers left for streams, as it was interrupted too often. Its source is read from the beginning"
                .to_owned()
        };
        drop(catalog);
        let message = format!("object {} was interrupted and is not continued: {because}", object.id);
        (self.events)(Event::Notice { message });
        Ok(None)
    }

    /// Says that there is nothing that an incremental of a source could stand on, and what may be the reason.
    fn tell_no_base(&self, source: &[u8]) -> Result<(), DirectorError> {
        let name = String::from_utf8_lossy(source);
        let others = self.other_clients_of(source)?;
        let message = match others.first() {
            None => format!("{name}: no complete object can be its base, so this backup is a full one"),
            Some(first) => format!(
                "{name}: there are backups of it from {}, and none from this machine ({}): this backup is a full one. \
                 If they are of the same data, stop it and use --client {first} (or `client` in capstan.toml)",
                others.join(", "),
                self.client
            ),
        };
        (self.events)(Event::Notice { message });
        Ok(())
    }

    /// The last complete object of a source of this machine.
    pub(crate) fn last_of(&self, source: &[u8]) -> Result<Option<ObjectId>, DirectorError> {
        let (source, client) = (Some(source.to_vec()), Some(self.client.clone()));
        let filter = ObjectFilter { source, client, status: Some(ObjectStatus::Complete), ..ObjectFilter::default() };
        Ok(locked(&self.catalog).objects(&filter)?.iter().map(|object| object.id).max())
    }

    /// Machines beside this one that have complete objects of a source.
    fn other_clients_of(&self, source: &[u8]) -> Result<Vec<String>, DirectorError> {
        let (source, status) = (Some(source.to_vec()), Some(ObjectStatus::Complete));
        let objects = locked(&self.catalog).objects(&ObjectFilter { source, status, ..ObjectFilter::default() })?;
        let mut clients: Vec<String> = Vec::new();
        for object in objects.into_iter().filter(|object| object.client != self.client) {
            if !clients.contains(&object.client) {
                clients.push(object.client);
            }
        }
        Ok(clients)
    }

    /// The state of an object as a baseline; none where the list of files of one that it is made of is damaged or gone.
    /// A source is backed up all the same.
    fn baseline_if_listed(&self, of: BaselineOf, source: &[u8]) -> Result<Option<StateBaseline>, DirectorError> {
        let error = match self.baseline(of) {
            Err(DirectorError::Catalog(error)) => error,
            other => return other.map(Some),
        };
        let Some(damaged) = error.damaged_index() else { return Err(error.into()) };
        let message = format!(
            "{}: {error}. Until then object {damaged} cannot be a base: this backup is a full one",
            String::from_utf8_lossy(source)
        );
        (self.events)(Event::Notice { message });
        Ok(None)
    }

    /// The state of an object as a baseline.
    fn baseline(&self, of: BaselineOf) -> Result<StateBaseline, DirectorError> {
        let (BaselineOf::Base(object) | BaselineOf::Resumed(object)) = of;
        // Of an interrupted object, all that was recorded is sorted first: others record meanwhile.
        let state = apart(&self.catalog, |catalog| catalog.state(object))?;
        let mut builder = self.sources_are_here().then(BaselineBuilder::default);
        // All of it is looked at before anything stands on it.
        for entry in state.iter() {
            let entry = entry?;
            if let Some(builder) = &mut builder {
                builder.push(&entry.entry.path, &compared(&entry, of));
            }
        }
        let rows = move |found: &mut dyn FnMut(&[u8], &Metadata)| {
            state.iter().try_for_each(|entry| {
                let entry = entry.map_err(|error| with_causes(&error))?;
                found(&entry.entry.path, &compared(&entry, of));
                Ok(())
            })
        };
        Ok(StateBaseline::new(builder, Box::new(rows)))
    }
}

/// What a source is compared with.
#[derive(Debug, Clone, Copy)]
enum BaselineOf {
    /// The object that it is an incremental of.
    Base(ObjectId),
    /// The same object, which was interrupted.
    Resumed(ObjectId),
}

/// What a file is compared by. What was in use when it was read, or could not be read at all, is read again, whatever
/// it looks like now; and is missed if it is gone, so that no older version of it comes back. Attributes that could not
/// be read are tried again by the next backup, not by the one that goes on.
fn compared(state: &StateEntry, of: BaselineOf) -> Metadata {
    let StateEntry { entry, unread, object } = state;
    let unsteady = EntryFlags::GREW.with(EntryFlags::SHRANK).with(EntryFlags::CHANGED).0;
    let lost = EntryFlags::VANISHED.with(EntryFlags::UNREADABLE).0;
    let is_of_resumed = matches!(of, BaselineOf::Resumed(resumed) if resumed == *object);
    let lacks = entry.flags.contains(EntryFlags::LACKS_ATTRIBUTES) && !is_of_resumed;
    let again = unread.is_some() || lacks || entry.flags.0 & (unsteady | lost) != 0;
    let change = if again { !entry.change } else { entry.change };
    let metadata = Metadata { size: entry.size, mtime_ns: entry.mtime_ns, change };
    // What is at the path that it names may be another file by now, of which its own time of change says nothing.
    if entry.kind == EntryKind::HardLink { metadata.as_link_to(&entry.link) } else { metadata }
}

/// A new id (UUID version 7) behind the last one that is known.
fn object_id_after(now_ns: i64, last: Option<ObjectId>) -> ObjectId {
    let random = Uuid::new_v4().into_bytes();
    let mut bytes = [0; 10];
    bytes.copy_from_slice(&random[6..]);
    ObjectId(*uuid::Builder::from_unix_timestamp_millis(id_ms_after(now_ns, last), &bytes).into_uuid().as_bytes())
}

/// Whether all that is known of an object stands on volumes of a pool and of its further copies: only those are looked
/// at for what a killed run did not record.
pub(crate) fn in_pool(catalog: &Catalog, object: ObjectId, pool: &str) -> Result<bool, DirectorError> {
    for volser in catalog.copies(object)?.iter().flat_map(|copy| &copy.volumes) {
        let of = catalog.volume(volser)?.and_then(|volume| volume.pool);
        if !of.is_some_and(|name| is_copy_pool(pool, &name)) {
            return Ok(false);
        }
    }
    Ok(true)
}

/// The number that a resumed object's next connections begin with; `None` if there are not enough above those that were
/// used.
fn next_connection(used: Option<u16>, connections: u16) -> Option<u16> {
    let first = used.map_or(Some(0), |last| last.checked_add(1))?;
    // The numbers of all connections, less the one it begins with.
    first.checked_add(connections.max(1) - 1).map(|_| first)
}

/// Whether a backup of a path made an object, or goes on with it: not one that is being made of others, nor what
/// somebody stored under the name of the path.
fn is_of_its_run(object: &Object) -> bool {
    object.kind != ObjectKind::Stream && (object.status != ObjectStatus::Open || object.consolidates.is_none())
}

/// The later of two times at which retention ends; 0 for never.
fn longer_kept(one_ns: i64, other_ns: i64) -> i64 {
    if one_ns == 0 || other_ns == 0 { 0 } else { one_ns.max(other_ns) }
}

/// Tags that an object has, and those that are new.
fn joined(there: &[String], asked: Vec<String>) -> Vec<String> {
    let mut tags = there.to_vec();
    tags.extend(asked.into_iter().filter(|tag| !there.contains(tag)));
    tags.truncate(TAGS_MAX);
    tags
}

pub(crate) fn record_of(object: &Object) -> ObjectRecord {
    ObjectRecord {
        object: object.id,
        source: object.source.clone(),
        client: object.client.clone(),
        policy: object.policy.clone(),
        kind: object.kind,
        state: ObjectState::Open,
        // As its volumes say: what stands for its base now may be lost.
        base: object.made_on,
        copy: 1,
        chunk_len: object.chunk_len,
        started_ns: object.started_ns,
        ended_ns: 0,
        expires_ns: object.expires_ns,
        is_locked: object.is_locked,
        consolidates: object.consolidates,
        tags: object.tags.clone(),
    }
}

#[cfg(test)]
mod tests {
    use capstan_format::FileEntry;

    use super::*;

    #[test]
    fn an_id_stands_behind_the_last_one_whatever_the_clock_says() {
        let of_2030 = object_id_after(1_893_456_000_000_000_000, None);
        let next = object_id_after(1_795_000_000_000_000_000, Some(of_2030));
        let third = object_id_after(1_500_000_000_000_000_000, Some(next));
        assert!(of_2030 < next && next < third, "{of_2030} {next} {third}");
        assert_eq!(Uuid::from_bytes(third.0).get_version_num(), 7);
        assert_eq!(third.to_string().len(), of_2030.to_string().len());
        let today = object_id_after(1_795_000_000_000_000_000, None);
        assert_eq!(Uuid::from_bytes(today.0).get_timestamp().map(|at| at.to_unix().0), Some(1_795_000_000));
    }

    /// What could not be read in two ways was not read again: one turned what the other had turned.
    #[test]
    fn what_was_not_read_is_read_again_for_however_many_reasons() {
        let (own, base) = (ObjectId([1; 16]), ObjectId([2; 16]));
        let entry = |flags: EntryFlags| FileEntry {
            path: b"a".to_vec(),
            kind: EntryKind::File,
            flags,
            mode: 0o644,
            uid: 0,
            gid: 0,
            size: 1,
            mtime_ns: 1,
            change: 7,
            crc: 0,
            connection: 0,
            offset: 0,
            member_len: 1024,
            link: Vec::new(),
        };
        let as_it_is = |object, flags, unread: Option<ObjectId>, of| {
            compared(&StateEntry { object, entry: entry(flags), unread }, of).change == 7
        };
        let (lacks, unreadable) = (EntryFlags::LACKS_ATTRIBUTES, EntryFlags::UNREADABLE);
        assert!(as_it_is(base, EntryFlags::SPARSE, None, BaselineOf::Base(base)));
        for flags in [lacks, unreadable, lacks.with(unreadable), lacks.with(EntryFlags::GREW)] {
            assert!(!as_it_is(base, flags, None, BaselineOf::Base(base)), "{flags:?}");
            assert!(!as_it_is(base, flags, Some(own), BaselineOf::Base(own)), "{flags:?}");
        }
        // A run that goes on has it as good as it gets; it would never end otherwise.
        assert!(as_it_is(own, lacks, None, BaselineOf::Resumed(own)));
        assert!(!as_it_is(base, lacks, None, BaselineOf::Resumed(own)));
    }

    #[test]
    fn connections_are_numbered_on_until_the_numbers_are_used_up() {
        assert_eq!(next_connection(None, 8), Some(0));
        assert_eq!(next_connection(Some(7), 8), Some(8));
        assert_eq!(next_connection(Some(u16::MAX - 8), 8), Some(u16::MAX - 7));
        assert_eq!(next_connection(Some(u16::MAX - 7), 8), None);
        assert_eq!(next_connection(Some(u16::MAX), 1), None);
    }
}
