//! What earlier attempts of a run have made. An attempt fails behind the end of a source, too: another source cannot be
//! read, a client is lost with its last word, a server is killed before it notes the end. The next one takes what is
//! there as it is, so that no run makes two objects of a source.

use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use capstan_catalog::{Catalog, CopyState, Object, ObjectStatus};
use capstan_format::{ObjectId, ObjectKind};

use crate::DirectorError;
use crate::request::BackupRequest;
use crate::site::{Site, locked};

/// A source that an earlier attempt of the same run has backed up.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MadeBefore {
    /// The object.
    pub object: ObjectId,
    /// The source.
    pub source: Vec<u8>,
    /// Whether it lacks files that could not be read, or a copy.
    pub is_lacking: bool,
}

/// The complete objects of earlier attempts.
#[derive(Default)]
pub(crate) struct Made(Vec<Object>);

impl Made {
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn has_path(&self, path: &Path) -> bool {
        self.0.iter().any(|object| object.kind != ObjectKind::Stream && is_path(&object.source, path))
    }

    pub(crate) fn has_stream(&self, name: &str) -> bool {
        self.0.iter().any(|object| object.kind == ObjectKind::Stream && object.source == name.as_bytes())
    }

    /// Whether nothing that is asked for is left to be made.
    pub(crate) fn has_all(&self, request: &BackupRequest) -> bool {
        !self.is_empty()
            && request.sources.iter().all(|path| self.has_path(path))
            && request.stream.iter().all(|stream| self.has_stream(&stream.name))
    }
}

/// Whether a source is a path, however either is written.
pub(crate) fn is_path(source: &[u8], path: &Path) -> bool {
    Path::new(std::ffi::OsStr::from_bytes(source)) == path
}

impl Site {
    /// What earlier attempts of the run that a request is of have made of what it names.
    pub(crate) fn made_before(&self, request: &BackupRequest) -> Result<Made, DirectorError> {
        let Some(run) = request.run else { return Ok(Made::default()) };
        let catalog = locked(&self.catalog);
        let mut made = complete_of_run(&catalog, run, &self.client)?;
        made.retain(|object| match object.kind {
            ObjectKind::Stream => request.stream.iter().any(|stream| stream.name.as_bytes() == object.source),
            _ => request.sources.iter().any(|path| is_path(&object.source, path)),
        });
        Ok(Made(made))
    }

    /// The same with what it lacks, which is known once lists of files are made and copies were looked at.
    pub(crate) fn report_made(&self, made: &Made) -> Result<Vec<MadeBefore>, DirectorError> {
        let catalog = locked(&self.catalog);
        let report = |Object { id, .. }: &Object| {
            let Some(object) = catalog.object(*id)? else { return Ok(None) };
            let is_lacking = lacks_files(&object) || !lacking_copies(&catalog, *id)?.is_empty();
            Ok(Some(MadeBefore { object: *id, source: object.source, is_lacking }))
        };
        made.0.iter().filter_map(|object| report(object).transpose()).collect()
    }
}

/// The objects of a run's attempts that are complete, of its client.
pub(crate) fn complete_of_run(catalog: &Catalog, run: i64, client: &str) -> Result<Vec<Object>, DirectorError> {
    let mut made = Vec::new();
    for id in catalog.objects_of_run(run)? {
        let complete = |object: &Object| object.client == client && object.status == ObjectStatus::Complete;
        made.extend(catalog.object(id)?.filter(complete));
    }
    Ok(made)
}

/// Whether something of the source could not be read.
pub(crate) fn lacks_files(object: &Object) -> bool {
    object.counts.as_ref().is_some_and(|counts| counts.problems > 0)
}

/// The wanted copies of an object that are not whole.
pub(crate) fn lacking_copies(catalog: &Catalog, object: ObjectId) -> Result<Vec<u8>, DirectorError> {
    let wanted = catalog.wanted_copies(object)?;
    Ok(wanted.iter().filter(|copy| copy.state != CopyState::Whole).map(|copy| copy.copy).collect())
}
