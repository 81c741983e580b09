//! Files without a name, gone with the process that holds them.

use std::fs::{self, File, OpenOptions};
use std::io::ErrorKind;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::CatalogError;

/// A file in `dir` that is unlinked before it is used; in the system's folder for such where `dir` cannot be written.
pub(crate) fn scratch_file(dir: &Path) -> Result<File, CatalogError> {
    match unnamed_file(dir) {
        Err(CatalogError::Io { source, .. })
            if matches!(source.kind(), ErrorKind::PermissionDenied | ErrorKind::ReadOnlyFilesystem) =>
        {
            unnamed_file(&std::env::temp_dir())
        }
        other => other,
    }
}

fn unnamed_file(dir: &Path) -> Result<File, CatalogError> {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    let path = dir.join(format!(".scratch-{}-{number}", std::process::id()));
    // A file of a process that died between creating and unlinking may have the same name.
    let file = OpenOptions::new().read(true).write(true).create(true).truncate(true).open(&path);
    let file = file.map_err(|source| CatalogError::io("create", &path, source))?;
    fs::remove_file(&path).map_err(|source| CatalogError::io("remove", &path, source))?;
    Ok(file)
}
