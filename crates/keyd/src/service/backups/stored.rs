//! A backup that lies somewhere, looked at without a node: would a restore take it?

use std::cell::Cell;
use std::path::Path;

use super::restore::opens_authority;
use crate::backup::{BackupCheck, BackupError, ClusterRecords, HoldsKeys, Knowledge, OpenCore, UnusableRecord, verify};
use crate::service::registrar::authority_path;

/// Checks a database backup as a restore would: all of it, every key against its tag, and that the authority in its
/// records is the one of the core security backup. What is wrong with single records stands in the report; errors as
/// [`verify`] has them.
pub fn check_stored(core: &OpenCore, database: &Path, knowledge: Knowledge) -> Result<BackupCheck, BackupError> {
    let authority = authority_path().to_string();
    let found = Cell::new(false);
    let records = |path: &str, plaintext: &[u8]| {
        if path == authority {
            found.set(true);
            opens_authority(core, plaintext).map_err(|error| error.to_string())?;
        }
        ClusterRecords.held(path, plaintext)
    };
    let mut report = verify(core, database, &records, knowledge)?;
    if !found.get() {
        let reason = "there is no certificate authority in the backup".to_owned();
        report.unproved.push(UnusableRecord { path: authority, reason });
    }
    Ok(report)
}
