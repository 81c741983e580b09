//! What the cluster knows of its backups: `backup/ID` and `core-backup/ID` in the ledger, as JSON.

use capstan_keys::Name;
use capstan_keys::api::BackupRecord;
use jiff::Timestamp;
use schemars::JsonSchema;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::path::Path;
use crate::state::View;

const DATABASE: &str = "backup/";
const CORE: &str = "core-backup/";

/// A core security backup that was made and opened again.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct CoreBackupRecord {
    /// When it was made.
    pub made: Timestamp,
    /// By whom.
    pub by: Name,
    /// The epoch it was made in.
    pub epoch: u32,
    /// The public name of the cluster key in it.
    pub cluster_key: String,
    /// Its custodians.
    pub custodians: Vec<Name>,
    /// How many of them it takes.
    pub needed: u8,
    /// The SHA-256 of the file, in hexadecimal.
    pub sha256: String,
    /// The request that a quorum approved; none stands in records from before it took one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub request: Option<String>,
}

/// Whether a path is of a database backup.
pub(crate) fn is_of_backup(path: &str) -> bool {
    path.starts_with(DATABASE)
}

/// Where the record of a database backup lies.
pub(crate) fn backup_path(id: &str) -> Path {
    Path::Other(format!("{DATABASE}{id}"))
}

/// Where that of a core security backup lies.
pub(crate) fn core_path(sha256: &str) -> Path {
    Path::Other(format!("{CORE}{sha256}"))
}

/// All database backups that are known. A record that cannot be read is passed over, and named in the log.
pub(crate) fn backups(view: View<'_>) -> Vec<BackupRecord> {
    readable(view, DATABASE)
}

/// All core security backups that are known, likewise.
pub(crate) fn core_backups(view: View<'_>) -> Vec<CoreBackupRecord> {
    readable(view, CORE)
}

fn readable<T: DeserializeOwned>(view: View<'_>, prefix: &str) -> Vec<T> {
    let decoded = view.ledger().others(prefix).filter_map(|(path, bytes)| {
        let decoded = serde_json::from_slice(bytes);
        decoded.inspect_err(|error| tracing::error!(path, %error, "the record of a backup cannot be read")).ok()
    });
    decoded.collect()
}

/// The newest verified backup of this epoch that is kept. Those of earlier epochs count revisions of another ledger.
pub(crate) fn newest_kept(view: View<'_>, epoch: u32) -> Option<BackupRecord> {
    let kept = backups(view).into_iter().filter(|backup| backup.epoch == epoch && backup.is_kept());
    kept.max_by_key(|backup| backup.revision)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

    use capstan_keys::api::BackupState;

    use super::*;
    use crate::state::{LedgerState, Mark};

    fn backup(id: &str, epoch: u32, revision: i64, state: BackupState) -> BackupRecord {
        let (id, sha256, place) = (id.to_owned(), String::new(), String::new());
        let by = "bo".parse().unwrap();
        let made = Timestamp::UNIX_EPOCH;
        BackupRecord { id, epoch, revision, made, by, records: 0, keys: 0, bytes: 0, sha256, place, state }
    }

    #[test]
    fn the_newest_of_this_epoch_that_is_kept_counts() {
        let gone = BackupState::Destroyed { at: Timestamp::UNIX_EPOCH, by: "bo".parse().unwrap() };
        let all = [
            backup("aa", 2, 10, BackupState::Kept),
            backup("bb", 2, 30, gone),
            backup("cc", 2, 20, BackupState::Kept),
            backup("dd", 1, 900, BackupState::Kept),
        ];
        let mut state = LedgerState::default();
        for (revision, backup) in (1..).zip(&all) {
            let path = backup_path(&backup.id).to_string();
            state.put(&path, Mark { revision, change: 1 }, &serde_json::to_vec(backup).unwrap()).unwrap();
        }
        assert_eq!(newest_kept(View::of(&state), 2), Some(all[2].clone()));
        assert_eq!(newest_kept(View::of(&state), 3), None);
        assert_eq!(backups(View::of(&state)).len(), 4);
    }
}
