//! What earlier attempts of a run have backed up. An attempt may fail after a source is complete: another source cannot
//! be read, a client is lost with its last message, a server is killed before it records the end. The next attempt
//! takes what is there, so that no run makes two objects of a source. It takes only what it would make itself: an
//! object that can be restored, in the pools and copies that are asked for, with the same paths left out, that stands
//! on no other one if all is asked for, and that is kept as long. A run may wait for days until it goes on. What it
//! read before the newest time at which another run was due and was passed over for it is read again.

use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use capstan_catalog::{Catalog, CatalogError, CopyState, Object, ObjectStatus, WantedCopy};
use capstan_format::{ObjectId, ObjectKind};

use crate::DirectorError;
use crate::base::why_gone;
use crate::lacks::CopiesOfPolicies;
use crate::pools::name_of_copy;
use crate::request::{BackupRequest, Level, Retention};
use crate::site::{Site, locked};

/// A source that an earlier attempt of the same run has backed up.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EarlierObject {
    /// The object.
    pub object: ObjectId,
    /// The source.
    pub source: Vec<u8>,
    /// What it lacks, in words.
    pub lacks: Vec<String>,
}

/// The complete objects of earlier attempts.
#[derive(Default)]
pub(crate) struct EarlierObjects(Vec<Object>);

impl EarlierObjects {
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The objects.
    pub(crate) fn ids(&self) -> Vec<ObjectId> {
        self.0.iter().map(|object| object.id).collect()
    }

    pub(crate) fn has_path(&self, path: &Path) -> bool {
        self.0.iter().any(|object| is_of_path(object, path))
    }

    pub(crate) fn has_stream(&self, name: &str) -> bool {
        self.0.iter().any(|object| is_of_stream(object, name))
    }

    /// Whether nothing that is asked for is left to be backed up.
    pub(crate) fn has_all(&self, request: &BackupRequest) -> bool {
        !self.is_empty()
            && request.sources.iter().all(|path| self.has_path(path))
            && request.stream.iter().all(|stream| self.has_stream(&stream.name))
    }
}

/// Whether an object is of a path, however either is written.
pub(crate) fn is_of_path(object: &Object, path: &Path) -> bool {
    object.kind != ObjectKind::Stream && Path::new(std::ffi::OsStr::from_bytes(&object.source)) == path
}

/// Whether an object is of a stream of this name.
pub(crate) fn is_of_stream(object: &Object, name: &str) -> bool {
    object.kind == ObjectKind::Stream && object.source == name.as_bytes()
}

impl Site {
    /// What earlier attempts of the request's run have backed up of what it names.
    pub(crate) fn earlier_objects(&self, request: &BackupRequest) -> Result<EarlierObjects, DirectorError> {
        let Some(run) = request.run else { return Ok(EarlierObjects::default()) };
        let catalog = locked(&self.catalog);
        let mut taken: Vec<Object> = Vec::new();
        let skipped_ns = catalog.queued_run(run)?.and_then(|run| run.skipped_due_ns);
        // A time that has not come is of a clock that was ahead.
        let since_ns = skipped_ns.filter(|skipped_ns| *skipped_ns <= self.now_ns());
        for object in restorable_of_run(&catalog, (run, &self.client), since_ns)? {
            let is_named = request.sources.iter().any(|path| is_of_path(&object, path))
                || request.stream.iter().any(|stream| is_of_stream(&object, &stream.name));
            if is_named && is_as_asked(&catalog, &object, request)? {
                // The last one of a source.
                taken.retain(|other| (other.kind, &other.source) != (object.kind, &object.source));
                taken.push(object);
            }
        }
        Ok(EarlierObjects(taken))
    }

    /// Whether an earlier attempt of the request's run has begun an object that the catalog does not have as complete.
    pub(crate) fn has_unfinished_attempt(&self, request: &BackupRequest) -> Result<bool, DirectorError> {
        let Some(run) = request.run else { return Ok(false) };
        let catalog = locked(&self.catalog);
        for id in catalog.objects_of_run(run)? {
            // Of one whose first checkpoint was not recorded there is no row.
            if catalog.object(id)?.is_none_or(|object| object.status == ObjectStatus::Open) {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// The same objects for the report. Call it after lists of files are sealed and copies were looked at: what is
    /// lacking is not known before.
    pub(crate) fn report_earlier(&self, earlier: &EarlierObjects) -> Result<Vec<EarlierObject>, DirectorError> {
        let of_policies = self.copies_of_policies()?;
        let catalog = locked(&self.catalog);
        let mut reports = Vec::with_capacity(earlier.0.len());
        for Object { id, .. } in &earlier.0 {
            let Some(object) = catalog.object(*id)? else { continue };
            let mut lacks = lacking_copies(&catalog, &object, &of_policies)?;
            if lacks_files(&object) {
                lacks.push(format!("object {id} lacks something that could not be read, or vanished"));
            }
            reports.push(EarlierObject { object: *id, source: object.source, lacks });
        }
        Ok(reports)
    }
}

/// Whether an object is in the pools and copies that a request asks for, with the same paths left out, whole if that is
/// asked for, and kept for as long.
fn is_as_asked(catalog: &Catalog, object: &Object, request: &BackupRequest) -> Result<bool, DirectorError> {
    // What was migrated since was there.
    let promised = catalog.copy_numbers(object.id)?;
    let has_copies = (1..=request.copies).all(|copy| promised.contains(&(copy, name_of_copy(&request.pool, copy))));
    let left_out = if object.kind == ObjectKind::Tree { catalog.left_out(object.id)? } else { None };
    let is_alike = has_copies && left_out.is_none_or(|rules| rules == request.tree.rules());
    // Somebody may have asked for a full backup since, or for a longer retention.
    let has_level = request.level != Level::Full || object.base.is_none();
    Ok(is_alike && has_level && is_kept_as_asked(catalog, object, request)?)
}

/// Whether an object is kept for as long as a request asks, and locked if it asks for that.
fn is_kept_as_asked(catalog: &Catalog, object: &Object, request: &BackupRequest) -> Result<bool, DirectorError> {
    let asked_ns = match request.retention {
        Retention::OfPool => catalog.pool(&request.pool)?.and_then(|pool| pool.retention_ns),
        Retention::For(ns) => u64::try_from(ns).ok(),
        Retention::ByRule => None,
    };
    let own_ns = object.expires_ns.checked_sub(object.started_ns).and_then(|ns| u64::try_from(ns).ok());
    let is_for_ever = object.expires_ns == 0;
    let is_long = is_for_ever || asked_ns.is_some_and(|asked_ns| own_ns.is_some_and(|own_ns| own_ns >= asked_ns));
    Ok(is_long && (object.is_locked || !request.is_locked))
}

/// The objects of a run's attempts that are complete and can be restored, of its client, and that were read by attempts
/// which began at a time or later.
pub(crate) fn restorable_of_run(
    catalog: &Catalog,
    (run, client): (i64, &str),
    since_ns: Option<i64>,
) -> Result<Vec<Object>, DirectorError> {
    let mut found = Vec::new();
    for id in catalog.objects_of_run(run)? {
        let complete = |object: &Object| object.client == client && object.status == ObjectStatus::Complete;
        if let Some(object) = catalog.object(id)?.filter(complete)
            && is_restorable(catalog, id)?
            && is_read_since(catalog, run, &object, since_ns)?
        {
            found.push(object);
        }
    }
    Ok(found)
}

/// Whether the attempt of a run that read an object began at a time or later. An object that was interrupted is
/// compared with its source again by the attempt that goes on with it.
fn is_read_since(catalog: &Catalog, run: i64, object: &Object, since_ns: Option<i64>) -> Result<bool, DirectorError> {
    let Some(since_ns) = since_ns else { return Ok(true) };
    Ok(catalog.written_by_run_ns(run, object.id)?.unwrap_or(object.started_ns) >= since_ns)
}

/// Whether an object can be restored, with all that it is based on, as far as the catalog knows.
fn is_restorable(catalog: &Catalog, object: ObjectId) -> Result<bool, DirectorError> {
    let chain = match catalog.chain(object) {
        Ok(chain) => chain,
        Err(CatalogError::ChainBroken { .. }) => return Ok(false),
        Err(error) => return Err(error.into()),
    };
    for link in chain {
        if why_gone(catalog, link)?.is_some() {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Whether something of the source could not be read.
pub(crate) fn lacks_files(object: &Object) -> bool {
    object.counts.as_ref().is_some_and(|counts| counts.problems > 0)
}

/// A sentence for each wanted copy of an object that is not whole, but for those that policies make.
pub(crate) fn lacking_copies(
    catalog: &Catalog,
    object: &Object,
    of_policies: &CopiesOfPolicies,
) -> Result<Vec<String>, DirectorError> {
    let wanted = catalog.wanted_copies(object.id)?;
    let is_lacking = |copy: &&WantedCopy| copy.state != CopyState::Whole && !of_policies.make(object, &copy.pool);
    let lacking = wanted.iter().filter(is_lacking);
    let sentence = |copy: u8| format!("copy {copy} of object {} is not whole: `capstan repair` mends it", object.id);
    Ok(lacking.map(|copy| sentence(copy.copy)).collect())
}
