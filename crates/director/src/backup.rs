//! Backups: which object each source goes to, what it is compared with, and the session that writes them.

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Instant;

use capstan_catalog::{Catalog, Object, ObjectFilter, ObjectStatus, Pool, StateEntry};
use capstan_format::{EntryFlags, ObjectId, ObjectKind, ObjectRecord, ObjectState, SessionRecord};
use capstan_mover::{
    Baseline, Bottleneck, CheckpointBounds, Connection, CopyHost, DeviceSource, ExtentBounds, Metadata, Meters,
    PackOptions, Progress, RestoreWatch, Session, SessionOptions, SourceReport, StreamSource, Totals, TreeOptions,
    TreeSource,
};
use uuid::{ContextV7, Timestamp, Uuid};

use crate::append::{AppendHost, Known, Shortfall, catch_up_pool, is_copy_pool};
use crate::baseline::{BaselineBuilder, StateBaseline};
use crate::desk::Desk;
use crate::null::NullHost;
use crate::repair::is_all_there;
use crate::site::{Site, locked};
use crate::{DirectorError, Event};

/// Entry bytes after which a checkpoint is due: its catalog part must fit behind early warning.
pub(crate) const ENTRY_BYTES_MAX: usize = 8 << 20;

/// A source that is one file of at least this length, without holes, is read in ranges by all connections.
const IMAGE_LEN_MIN: u64 = 256 << 20;

/// Everything, or what changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Level {
    /// Everything.
    Full,
    /// What changed since the last complete object of the source.
    Incremental,
}

/// Where blocks go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Target {
    /// Volumes of a pool.
    Pool,
    /// Nowhere.
    Null,
}

/// What is to be backed up.
#[derive(Debug, Clone)]
pub struct BackupRequest {
    /// Paths, absolute.
    pub sources: Vec<PathBuf>,
    /// Name for standard input, if that is the source.
    pub stream: Option<String>,
    /// The pool of the first copy.
    pub pool: String,
    /// The policy's name, for the records.
    pub policy: String,
    /// Streams that read at the same time.
    pub connections: u16,
    /// Copies written at once.
    pub copies: u8,
    /// Everything, or what changed.
    pub level: Level,
    /// What to leave out and where to stop.
    pub tree: TreeOptions,
    /// Where blocks go.
    pub target: Target,
    /// zstd level instead of the one in the settings.
    pub compression: Option<i32>,
    /// Whether files are counted first.
    pub count_first: bool,
    /// What to do when a pool has no volume.
    pub shortfall: Shortfall,
}

/// What a display may look at while a backup runs, and the switch that stops it.
#[derive(Default)]
pub struct BackupWatch {
    /// Files and bytes read.
    pub progress: Progress,
    /// Files there are, once they are counted; 0 before.
    pub files_total: AtomicU64,
    /// The session's counters, once it has begun.
    pub meters: OnceLock<Arc<Meters>>,
    /// Set it to stop at the next chunk.
    pub stop: Arc<AtomicBool>,
}

/// How one source ended.
#[derive(Debug)]
pub struct SourceOutcome {
    /// The object.
    pub object: ObjectId,
    /// The source.
    pub source: Vec<u8>,
    /// Whether an earlier run had begun the object.
    pub resumed: bool,
    /// The object it stands on.
    pub base: Option<ObjectId>,
    /// What was read, if it was read to its end.
    pub report: Result<SourceReport, String>,
}

/// How a backup ended.
#[derive(Debug)]
pub struct BackupReport {
    /// One outcome a source.
    pub sources: Vec<SourceOutcome>,
    /// Bytes of the streams.
    pub plain_bytes: u64,
    /// Bytes written to the first copy.
    pub stored_bytes: u64,
    /// How long it took, to the last flush.
    pub elapsed_ns: u64,
    /// What held it up.
    pub bottleneck: Bottleneck,
    /// Copies that failed while another was finished: number and reason.
    pub failed_copies: Vec<(u8, String)>,
}

struct Job {
    path: Option<PathBuf>,
    source: Vec<u8>,
    record: ObjectRecord,
    resumed: bool,
    first_connection: u16,
    baseline: Option<StateBaseline>,
}

/// The pool of a copy: the first is the one that was named, the others are made like it.
pub(crate) fn pool_of_copy(site: &Site, name: &str, copy: u8) -> Result<Pool, DirectorError> {
    let mut catalog = locked(&site.catalog);
    let pool = catalog.pool(name)?.ok_or_else(|| DirectorError::UnknownPool { pool: name.to_owned() })?;
    if copy == 1 {
        return Ok(pool);
    }
    let twin = Pool { name: format!("{name}-copy{copy}"), ..pool };
    if let Some(there) = catalog.pool(&twin.name)? {
        return Ok(there);
    }
    catalog.put_pool(&twin)?;
    Ok(twin)
}

pub(crate) fn new_object_id(now_ns: i64) -> ObjectId {
    let now_ns = u64::try_from(now_ns).unwrap_or_default();
    let at = Timestamp::from_unix(ContextV7::new(), now_ns / 1_000_000_000, (now_ns % 1_000_000_000) as u32);
    ObjectId(*Uuid::new_v7(at).as_bytes())
}

impl Site {
    /// Runs a backup to its end.
    pub fn backup(&self, request: &BackupRequest, watch: &BackupWatch) -> Result<BackupReport, DirectorError> {
        let _lock = match request.target {
            Target::Pool => Some(self.writer_lock()?),
            Target::Null => None,
        };
        let began = Instant::now();
        let pools = (1..=request.copies).map(|copy| pool_of_copy(self, &request.pool, copy));
        let pools = pools.collect::<Result<Vec<_>, _>>()?;
        if request.target == Target::Pool && pools.iter().any(|pool| pool.encryption.is_some()) {
            drop(self.keys()?);
        }
        let desk = Desk::new(self);
        let mut known = Known::All;
        if request.target == Target::Pool && self.any_interrupted(request)? {
            // What a killed run flushed and could not record must be known before connections are numbered: a number that is
            // on a volume already would put two streams into one.
            known = catch_up_pool(&desk, &request.pool)?;
        }
        let jobs = self.jobs(request, &pools[0], known)?;
        if request.target == Target::Pool {
            // Before the first block, so that a copy that fails before its first checkpoint is made later.
            let each =
                jobs.iter().flat_map(|job| (1u8..).zip(&pools).map(|(copy, pool)| (job.record.object, copy, pool)));
            let wanted: Vec<_> = each.map(|(object, copy, pool)| (object, copy, pool.name.as_str())).collect();
            locked(&self.catalog).want_copies(&wanted)?;
        }
        let hosts: Vec<Box<dyn CopyHost>> = match request.target {
            Target::Null => vec![Box::new(NullHost::new(self.clock))],
            Target::Pool => {
                (1..).zip(pools).map(|(copy, pool)| self.append_host(&desk, pool, copy, request, watch)).collect()
            }
        };
        let record = SessionRecord {
            started_ns: self.now_ns(),
            host: self.client.clone(),
            software: concat!("capstan ", env!("CARGO_PKG_VERSION")).to_owned(),
        };
        let options = self.session_options(request);
        let session = Session::start(&options, &record, hosts, Arc::clone(&watch.stop))?;
        let meters = session.meters();
        let _ = watch.meters.set(Arc::clone(&meters));
        let counted: Vec<_> =
            jobs.iter().filter(|job| job.record.kind == ObjectKind::Tree).filter_map(|job| job.path.clone()).collect();
        let totals = Totals::default();
        let sources = std::thread::scope(|scope| {
            // Beside the reading, and by names alone: no file is looked at twice for the sake of a percentage.
            let count = request.count_first && !counted.is_empty();
            let counting = count.then(|| scope.spawn(|| Self::count_files(&counted, request, &totals, watch)));
            let sources = self.read_sources(&session, jobs, request, watch);
            totals.stop();
            if let Some(Err(panic)) = counting.map(std::thread::ScopedJoinHandle::join) {
                std::panic::resume_unwind(panic);
            }
            sources
        });
        let outcome = session.finish();
        let elapsed_ns = began.elapsed().as_nanos() as u64;
        let mut failed_copies = Vec::new();
        let copies = outcome.copies.len();
        let mut first_failure = None;
        for (copy, result) in (1u8..).zip(outcome.copies) {
            if let Err(error) = result {
                let reason = explain(&error);
                (self.events)(Event::CopyFailed { copy, reason: reason.clone() });
                failed_copies.push((copy, reason));
                first_failure.get_or_insert(error);
            }
        }
        if let Some(error) = first_failure.filter(|_| failed_copies.len() == copies) {
            return Err(DirectorError::of_copy(error));
        }
        self.seal_complete()?;
        if request.target == Target::Pool {
            if failed_copies.is_empty() && !watch.stop.load(Ordering::Relaxed) {
                // An earlier run may have lost a copy, or been killed between the flushes of its copies. This run's objects
                // are whole whether or not those can be mended now: what could not be was said.
                let repair = RestoreWatch { stop: Arc::clone(&watch.stop), ..RestoreWatch::default() };
                let _ = self.mend_copies(&[], Shortfall::Fail, &repair);
            } else {
                self.look_at_copies()?;
            }
        }
        if watch.stop.load(Ordering::Relaxed) {
            return Err(DirectorError::Interrupted);
        }
        let cores = std::thread::available_parallelism().map_or(1, |cores| cores.get() as u64);
        Ok(BackupReport {
            sources,
            plain_bytes: meters.plain_bytes.load(Ordering::Relaxed),
            stored_bytes: meters.stored_bytes.load(Ordering::Relaxed),
            elapsed_ns,
            bottleneck: meters.bottleneck(elapsed_ns, cores),
            failed_copies,
        })
    }

    /// Counts what there is, for the display.
    fn count_files(paths: &[PathBuf], request: &BackupRequest, totals: &Totals, watch: &BackupWatch) {
        // A source that cannot be read is reported where it is read.
        if let Ok(tree) = TreeSource::new(paths, &request.tree) {
            tree.count(totals);
        }
        if totals.is_complete() {
            watch.files_total.store(totals.files(), Ordering::Relaxed);
        }
    }

    pub(crate) fn seal_complete(&self) -> Result<(), DirectorError> {
        let mut catalog = locked(&self.catalog);
        for object in catalog.unsealed()? {
            catalog.seal_index(object)?;
        }
        Ok(())
    }

    fn append_host(
        &self,
        desk: &Desk,
        pool: Pool,
        copy: u8,
        request: &BackupRequest,
        watch: &BackupWatch,
    ) -> Box<dyn CopyHost> {
        Box::new(AppendHost {
            desk: desk.clone(),
            config: self.config.clone(),
            pool,
            copy,
            shortfall: request.shortfall,
            stop: Arc::clone(&watch.stop),
            mounted: None,
        })
    }

    /// Options of a session that copies one object, a connection at a time.
    pub(crate) fn session_options_for_copy(&self, chunk_len: usize) -> SessionOptions {
        let mut options = self.options(chunk_len, self.config.data.compression_level);
        options.connections = 1;
        options
    }

    fn session_options(&self, request: &BackupRequest) -> SessionOptions {
        let data = &self.config.data;
        let level = match (request.compression, request.target) {
            (Some(level), _) => level,
            (None, Target::Pool) => data.compression_level,
            // To null the source is measured, not the compressor.
            (None, Target::Null) => 0,
        };
        let mut options = self.options(self.config.chunk_len(), level);
        options.connections = usize::from(request.connections.max(1));
        options
    }

    fn options(&self, chunk_len: usize, level: i32) -> SessionOptions {
        let data = &self.config.data;
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        SessionOptions {
            chunk_len,
            pool_bytes: data.buffer_mib << 20,
            pack: if level == 0 { PackOptions::Store } else { PackOptions::Zstd(level) },
            pack_workers: cores.saturating_sub(1).max(1),
            connections: 1,
            first_copy: 1,
            extents: ExtentBounds {
                worthwhile: data.extent_worthwhile_mib << 20,
                longest: data.extent_longest_mib << 20,
            },
            checkpoints: CheckpointBounds {
                bytes: data.checkpoint_mib << 20,
                every: self.config.checkpoint_every(),
                entry_bytes: ENTRY_BYTES_MAX.min(self.config.reserve_bytes_min() / 2),
            },
        }
    }

    /// One object a source: a new one, or the one that an interrupted run left open.
    fn jobs(&self, request: &BackupRequest, pool: &Pool, known: Known) -> Result<Vec<Job>, DirectorError> {
        let mut jobs = Vec::new();
        if let Some(name) = &request.stream {
            let record = self.new_record(name.clone().into_bytes(), ObjectKind::Stream, None, request, pool);
            let source = record.source.clone();
            jobs.push(Job { path: None, source, record, resumed: false, first_connection: 0, baseline: None });
        }
        let library = std::fs::canonicalize(self.library_dir()).unwrap_or_else(|_| self.library_dir());
        for (number, path) in request.sources.iter().enumerate() {
            // Named twice it is read once: two jobs would take up one interrupted object with the same connections.
            if request.sources[..number].contains(path) {
                continue;
            }
            std::fs::symlink_metadata(path).map_err(|source| DirectorError::Source { path: path.clone(), source })?;
            if path == &library || path.starts_with(&library) {
                return Err(DirectorError::SourceHoldsLibrary { path: path.clone() });
            }
            jobs.push(self.tree_job(path, request, pool, known)?);
        }
        Ok(jobs)
    }

    /// Whether an earlier run of one of the sources was interrupted.
    fn any_interrupted(&self, request: &BackupRequest) -> Result<bool, DirectorError> {
        use std::os::unix::ffi::OsStrExt;
        let catalog = locked(&self.catalog);
        for path in &request.sources {
            let source = Some(path.as_os_str().as_bytes().to_vec());
            let status = Some(ObjectStatus::Open);
            let filter = ObjectFilter { source, status, client: Some(self.client.clone()), ..ObjectFilter::default() };
            if catalog.latest(&filter)?.is_some() {
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
        let keep = pool.retention_ns.and_then(|ns| i64::try_from(ns).ok());
        ObjectRecord {
            object: new_object_id(started_ns),
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
        }
    }

    fn tree_job(
        &self,
        path: &std::path::Path,
        request: &BackupRequest,
        pool: &Pool,
        known: Known,
    ) -> Result<Job, DirectorError> {
        use std::os::unix::ffi::OsStrExt;
        let source = path.as_os_str().as_bytes().to_vec();
        let filter =
            ObjectFilter { source: Some(source.clone()), client: Some(self.client.clone()), ..ObjectFilter::default() };
        let name = String::from_utf8_lossy(&source).into_owned();
        let kind = kind_of(path);
        if request.target == Target::Null || kind == ObjectKind::Device {
            let record = self.new_record(source.clone(), kind, None, request, pool);
            return Ok(Job {
                path: Some(path.to_owned()),
                source,
                record,
                resumed: false,
                first_connection: 0,
                baseline: None,
            });
        }
        let catalog = locked(&self.catalog);
        let latest = catalog.latest(&filter)?;
        let wants_base = request.level == Level::Incremental;
        // An object of the same kind that was interrupted goes on; its chunk length is on the volumes already.
        let open = latest.filter(|object| {
            object.status == ObjectStatus::Open
                && object.base.is_some() == wants_base
                && object.chunk_len as usize == self.config.chunk_len()
        });
        let open = match open {
            // Its volume was erased: what it had of the source is not there to be gone on with.
            Some(object) if !is_all_there(&catalog, &object)? => None,
            Some(object) if known == Known::NotAll || !in_pool(&catalog, object.id, &request.pool)? => {
                let message = format!(
                    "object {} was interrupted and is not taken up: not all volumes it may be on can be read, or they are of another pool; its source is read from the beginning",
                    object.id
                );
                (self.events)(Event::Notice { message });
                None
            }
            other => other,
        };
        let open = match open {
            Some(object) => {
                let used = catalog.parts(object.id)?.iter().map(|part| part.connection).max();
                let next = next_connection(used, request.connections);
                if next.is_none() {
                    let message = format!(
                        "object {} was interrupted so often that it has no numbers left for streams: its source is read from the beginning",
                        object.id
                    );
                    (self.events)(Event::Notice { message });
                }
                next.map(|first_connection| (object, first_connection))
            }
            None => None,
        };
        if let Some((object, first_connection)) = open {
            drop(catalog);
            let baseline = Some(self.baseline(object.id)?);
            let record = record_of(&object);
            return Ok(Job { path: Some(path.to_owned()), source, record, resumed: true, first_connection, baseline });
        }
        let mut base = None;
        if wants_base {
            let complete = ObjectFilter { status: Some(ObjectStatus::Complete), ..filter };
            let found = catalog.latest(&complete)?.ok_or(DirectorError::NoBase { path: name })?;
            base = Some(found.id);
        }
        drop(catalog);
        let baseline = base.map(|base| self.baseline(base)).transpose()?;
        let record = self.new_record(source.clone(), kind, base, request, pool);
        Ok(Job { path: Some(path.to_owned()), source, record, resumed: false, first_connection: 0, baseline })
    }

    /// The state of an object as a baseline.
    fn baseline(&self, object: ObjectId) -> Result<StateBaseline, DirectorError> {
        let state = locked(&self.catalog).state(object)?;
        let mut builder = BaselineBuilder::new();
        let unsteady = EntryFlags::GREW.with(EntryFlags::SHRANK).with(EntryFlags::CHANGED).0;
        let lost = EntryFlags::VANISHED.with(EntryFlags::UNREADABLE).0;
        for entry in state.iter() {
            let StateEntry { entry, unread, .. } = entry?;
            // What was in use when it was read, or could not be read at all, is read again, whatever it looks like now; and is
            // missed if it is gone, so that no older version of it comes back.
            let again = unread.is_some() || entry.flags.0 & (unsteady | lost) != 0;
            let change = if again { !entry.change } else { entry.change };
            builder.push(&entry.path, &Metadata { size: entry.size, mtime_ns: entry.mtime_ns, change });
        }
        Ok(builder.finish(Box::new(move |found| {
            state.iter().map_while(Result::ok).for_each(|entry| found(&entry.entry.path));
        })))
    }

    /// Reads all sources, as many at a time as there are connections for them.
    fn read_sources(
        &self,
        session: &Session,
        jobs: Vec<Job>,
        request: &BackupRequest,
        watch: &BackupWatch,
    ) -> Vec<SourceOutcome> {
        let at_once = jobs.len().min(usize::from(request.connections.max(1))).max(1);
        let each = (usize::from(request.connections.max(1)) / at_once).max(1);
        let queue = Mutex::new(jobs.into_iter().enumerate().collect::<std::collections::VecDeque<_>>());
        let outcomes = Mutex::new(Vec::new());
        std::thread::scope(|scope| {
            for _ in 0..at_once {
                scope.spawn(|| {
                    loop {
                        let next = locked(&queue).pop_front();
                        let Some((number, job)) = next else { return };
                        let outcome = self.read_source(session, job, each, request, watch);
                        locked(&outcomes).push((number, outcome));
                    }
                });
            }
        });
        let mut outcomes = outcomes.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner);
        outcomes.sort_by_key(|(number, _)| *number);
        outcomes.into_iter().map(|(_, outcome)| outcome).collect()
    }

    /// A pattern for the library, if a tree holds it: volumes are no source for themselves, and each run would store all
    /// earlier ones.
    fn library_below(&self, path: &std::path::Path) -> Option<String> {
        let library = std::fs::canonicalize(self.library_dir()).ok()?;
        let held = library.starts_with(std::fs::canonicalize(path).ok()?);
        let pattern = held.then(|| globset::escape(&library.to_string_lossy()))?;
        let message = format!("the library {} lies in a source, and is left out", library.display());
        (self.events)(Event::Notice { message });
        Some(pattern)
    }

    fn read_source(
        &self,
        session: &Session,
        job: Job,
        connections: usize,
        request: &BackupRequest,
        watch: &BackupWatch,
    ) -> SourceOutcome {
        let object = job.record.object;
        let (source, resumed, base) = (job.source.clone(), job.resumed, job.record.base);
        (self.events)(Event::Begun { object, source: source.clone(), resumed });
        let report = self.feed(session, job, connections, request, watch);
        SourceOutcome { object, source, resumed, base, report }
    }

    fn feed(
        &self,
        session: &Session,
        job: Job,
        connections: usize,
        request: &BackupRequest,
        watch: &BackupWatch,
    ) -> Result<SourceReport, String> {
        let (object, kind, started_ns) = (job.record.object, job.record.kind, job.record.started_ns);
        session.begin_object(job.record).map_err(|error| explain(&error))?;
        let connections = if kind == ObjectKind::Stream { 1 } else { connections };
        let mut sinks: Vec<Connection> =
            (0..connections).map(|number| session.connection(object, job.first_connection + number as u16)).collect();
        let baseline = job.baseline.as_ref().map(|baseline| baseline as &dyn Baseline);
        let read = match (&job.path, kind) {
            (None, _) => {
                let name = String::from_utf8_lossy(&job.source).into_owned();
                let stream = StreamSource::new(&name, std::io::stdin().lock(), started_ns);
                stream.and_then(|stream| stream.run(&mut sinks[0], &watch.progress))
            }
            (Some(path), ObjectKind::Device) => {
                DeviceSource::open(path).and_then(|device| device.run(&mut sinks, &watch.progress))
            }
            (Some(path), _) => {
                let mut options = request.tree.clone();
                options.excludes.extend(self.library_below(path));
                let tree = TreeSource::new(std::slice::from_ref(path), &options);
                tree.and_then(|tree| tree.run(&mut sinks, baseline, &watch.progress))
            }
        };
        let report = read.map_err(|error| explain(&error))?;
        for sink in sinks {
            sink.finish().map_err(|error| explain(&error))?;
        }
        session.end_object(object, connections, self.now_ns()).map_err(|error| explain(&error))?;
        Ok(report)
    }
}

/// Whether all that is known of an object stands on volumes of a pool and of its further copies: only those are looked at for
/// what a killed run did not record.
fn in_pool(catalog: &Catalog, object: ObjectId, pool: &str) -> Result<bool, DirectorError> {
    for volser in catalog.copies(object)?.iter().flat_map(|copy| &copy.volumes) {
        let of = catalog.volume(volser)?.and_then(|volume| volume.pool);
        if !of.is_some_and(|name| is_copy_pool(pool, &name)) {
            return Ok(false);
        }
    }
    Ok(true)
}

/// The number that a resumed object's next connections begin with; `None` if there are not enough above those that were used.
fn next_connection(used: Option<u16>, connections: u16) -> Option<u16> {
    let first = used.map_or(Some(0), |last| last.checked_add(1))?;
    // The numbers of all connections, less the one it begins with.
    first.checked_add(connections.max(1) - 1).map(|_| first)
}

pub(crate) fn record_of(object: &Object) -> ObjectRecord {
    ObjectRecord {
        object: object.id,
        source: object.source.clone(),
        client: object.client.clone(),
        policy: object.policy.clone(),
        kind: object.kind,
        state: ObjectState::Open,
        base: object.base,
        copy: 1,
        chunk_len: object.chunk_len,
        started_ns: object.started_ns,
        ended_ns: 0,
        expires_ns: object.expires_ns,
    }
}

/// A block device, or a file that is large enough to be worth reading in ranges, is read as a device.
fn kind_of(path: &std::path::Path) -> ObjectKind {
    use std::os::unix::fs::{FileTypeExt, MetadataExt};
    let Ok(metadata) = std::fs::symlink_metadata(path) else { return ObjectKind::Tree };
    let image = metadata.is_file() && metadata.len() >= IMAGE_LEN_MIN && metadata.blocks() * 512 >= metadata.len();
    if metadata.file_type().is_block_device() || image { ObjectKind::Device } else { ObjectKind::Tree }
}

/// An error and its causes on one line.
pub(crate) fn explain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let more = error.to_string();
        if !text.contains(&more) {
            text.push_str(": ");
            text.push_str(&more);
        }
        cause = error.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connections_are_numbered_on_until_the_numbers_are_used_up() {
        assert_eq!(next_connection(None, 8), Some(0));
        assert_eq!(next_connection(Some(7), 8), Some(8));
        assert_eq!(next_connection(Some(u16::MAX - 8), 8), Some(u16::MAX - 7));
        assert_eq!(next_connection(Some(u16::MAX - 7), 8), None);
        assert_eq!(next_connection(Some(u16::MAX), 1), None);
    }
}
