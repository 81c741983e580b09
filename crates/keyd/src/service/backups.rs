//! Backups, as a node makes them.
//!
//! ```text
//!  POST /v1/backups                   begins: all records of one commit -> file in the state directory -> restored in memory, key by key
//!  GET  /v1/backups/jobs/ID           how far that is; in the end, what was made
//!  GET  /v1/backups/ID/data/FROM      the file, in parts, to whoever asked for it, who writes it and reads it again
//!  POST /v1/backups/ID/kept           they have it, and this is its digest -> record `backup/ID`
//!  GET  /v1/backups                   the records
//!  POST /v1/backups/ID/destroyed      all copies of it are gone
//!  POST /v1/keys/TAG/destruction      a destroyed key is in no backup, at no node and in no history any more
//!  POST /v1/core-backups/ID           the cluster key under its custodians' passphrases, opened again before it is given out (`people/custodians.rs`)
//! ```
//! Only the record counts: on it stands that keys of the pool of a node that is alone are given out, and it is written
//! when somebody has the file. A backup that nobody fetched is none: whoever breaks off, at whatever moment, leaves
//! ciphertext in the state directory until the next is made, and nothing else.

mod core;
mod destruction;
mod left;
mod restore;
mod spool;
mod stored;

use std::sync::Arc;

use axum::extract::Path as InPath;
use axum::{Extension, Json};
use capstan_keys::Name;
use capstan_keys::api::{BackupRecord, BackupState, Base64, JobSeen, JobStarted, Problem, RequestId};
use capstan_service::problem::{Input, Refusal};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::access::NodeRoutes;
use super::jobs::JobProgress;
use super::person::Person;
use super::{Service, entry};
use crate::authority::Act;
use crate::backup::{BackupError, ClusterRecords, HoldsKeys, Knowledge, Known, check, write_database};
use crate::desk::Decided;
use crate::node::{MajorityContact, Node, NodeError};

pub(super) use self::core::make as make_core;
pub use self::core::{AskCoreBackup, CoreBackupMade, Custodian, MakeCoreBackup};
pub use super::backup_record::CoreBackupRecord;
use super::backup_record::backup_path;
pub(super) use super::backup_record::{backups, core_backups, core_path, is_of_backup, newest_kept};
use capstan_service::time::time;
pub(super) use destruction::disks_of;
pub(super) use restore::sweep_copy;
pub use restore::{RestoreError, RestoreInputs, Restored, Source, restore};
pub(super) use spool::Spool;
use spool::hex;
pub use stored::check_stored;

/// A backup that was made and verified, and is to be fetched.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct BackupMade {
    /// Its id.
    pub id: String,
    /// How long it is.
    pub bytes: u64,
    /// The SHA-256 of its bytes, in hexadecimal.
    pub sha256: String,
    /// How many keys it holds.
    pub keys: u64,
}

/// A part of a backup.
#[derive(Serialize, Deserialize, JsonSchema)]
pub struct BackupPart {
    /// Its bytes; none at the end.
    pub data: Base64,
}

/// Somebody has a backup.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct BackupKept {
    /// The SHA-256 of what they read from where they put it.
    pub sha256: String,
    /// Where that is, in their words.
    pub place: String,
}

pub(super) fn routes() -> NodeRoutes {
    NodeRoutes::new()
        .get("/v1/backups", Act::ListBackups, list)
        .post("/v1/backups", Act::CreateBackup, make)
        .get("/v1/backups/jobs/{job}", Act::CreateBackup, making)
        .get("/v1/backups/{id}/data/{from}", Act::CreateBackup, part)
        .post("/v1/backups/{id}/kept", Act::CreateBackup, kept)
        .post("/v1/backups/{id}/destroyed", Act::NoteBackupDestroyed, destroyed)
        .post("/v1/keys/{tag}/destruction", Act::CertifyDestruction, destruction::certificate)
}

/// Tells a node up to which commit a verified backup holds everything, as its records say it now.
pub(super) fn tell_what_is_backed_up(node: &Node, epoch: u32) {
    let newest = node.view(|view| newest_kept(view, epoch));
    node.backed_up(newest.map_or(0, |backup| backup.revision));
}

async fn list(person: Person) -> Result<Json<Vec<BackupRecord>>, Refusal> {
    person.at_once(Act::ListBackups).await?;
    let Person { node, .. } = person;
    Ok(Json(node.view(backups)))
}

async fn make(person: Person, Extension(request): Extension<RequestId>) -> Result<Json<JobStarted>, Refusal> {
    person.at_once(Act::CreateBackup).await?;
    let Person { service, node, user, .. } = person;
    if node.standing() != MajorityContact::Current {
        return Err(NodeError::NeedsMajority { source: None }.into());
    }
    let kept = node.view(|view| view.ledger().kept().count());
    if kept > 0 {
        return Err(Refusal::conflict(format!(
            "{kept} records were taken from the ledger, or altered there, and a backup of it would be without them (`keyd status` \
             names them). This node has them still: `keyd restore --replica` founds the cluster anew from it."
        )));
    }
    let (making, by) = (service.clone(), user.name.clone());
    service.making_backups.begin(request, user.name, |progress| made(making, node, by, progress)).map(Json)
}

async fn making(person: Person, InPath(job): InPath<RequestId>) -> Result<Json<JobSeen<BackupMade>>, Refusal> {
    person.at_once(Act::CreateBackup).await?;
    person.service.making_backups.look(job).map(Json)
}

/// Makes a backup and checks it: two passes over all records, each of which is a step.
async fn made(
    service: Arc<Service>,
    node: Arc<Node>,
    by: Name,
    progress: Arc<JobProgress>,
) -> Result<BackupMade, Refusal> {
    let making = service.backups.begin();
    let snapshot = service.opening.ledger.read("").await;
    let snapshot = snapshot.map_err(|source| NodeError::NeedsMajority { source: Some(source) })?;
    progress.expect(2 * snapshot.entries.len() as u64);
    let (keys, made_ns) = (node.keys().clone(), node.now_ns());
    // The disk, and an unwrapping of each key: not on the threads that answer drives.
    let draft = tokio::task::spawn_blocking(move || {
        let epoch = service.settings.epoch;
        let counted = |path: &str, plaintext: &[u8]| {
            progress.step();
            ClusterRecords.held(path, plaintext)
        };
        let file = service.backups.clear().map_err(host)?;
        write_database(&file, &keys, epoch, &snapshot, &counted, made_ns).map_err(|error| refused(&error))?;
        let reached = Knowledge::Reached(Known { epoch, revision: snapshot.revision });
        let report = check(&keys, &file, &counted, reached).map_err(|error| refused(&error))?;
        if let Some(first) = report.unproved.first() {
            let first = format!("{}: {}", first.path, first.reason);
            return Err(refused(&BackupError::Unproved { count: report.unproved.len(), first }));
        }
        service.backups.keep(making, report.manifest, by, file).map_err(host)
    });
    let draft = draft.await.map_err(|_| Refusal::failed())??;
    let id = hex(&draft.manifest.id);
    tracing::info!(
        id,
        revision = draft.manifest.revision,
        keys = draft.manifest.keys.len(),
        "a backup is made and verified"
    );
    Ok(BackupMade { id, bytes: draft.bytes, sha256: draft.sha256, keys: draft.manifest.keys.len() as u64 })
}

async fn part(person: Person, InPath((id, at)): InPath<(String, u64)>) -> Result<Json<BackupPart>, Refusal> {
    person.at_once(Act::CreateBackup).await?;
    let Person { service, .. } = person;
    let draft = service.backups.draft(&id).ok_or_else(|| gone(&id))?;
    let part = tokio::task::spawn_blocking(move || draft.part(at)).await.map_err(|_| Refusal::failed())?;
    Ok(Json(BackupPart { data: Base64(part.map_err(host)?) }))
}

async fn kept(
    person: Person,
    InPath(id): InPath<String>,
    Input(asked): Input<BackupKept>,
) -> Result<Json<BackupRecord>, Refusal> {
    person.at_once(Act::CreateBackup).await?;
    let Person { service, node, user, peer, from, .. } = person;
    let draft = service.backups.draft(&id).ok_or_else(|| gone(&id))?;
    if draft.by != user.name {
        return Err(Refusal::forbidden(format!("Backup {id} was made by {}.", draft.by)));
    }
    if asked.sha256 != draft.sha256 {
        let detail =
            "What was written differs from what was sent: the medium or the way to it is at fault. Make another.";
        return Err(Refusal::conflict(detail));
    }
    let record = BackupRecord {
        id: id.clone(),
        epoch: draft.manifest.epoch,
        revision: draft.manifest.revision,
        made: time(draft.manifest.made_ns),
        by: user.name,
        records: draft.manifest.records,
        keys: draft.manifest.keys.len() as u64,
        bytes: draft.bytes,
        sha256: draft.sha256,
        place: asked.place,
        state: BackupState::Kept,
    };
    service.note(entry(&peer, from, Act::CreateBackup.into()).with("revision", record.revision)).await?;
    put(&node, &record).await?;
    service.backups.discard(&id);
    Ok(Json(record))
}

async fn destroyed(person: Person, InPath(id): InPath<String>) -> Result<Json<BackupRecord>, Refusal> {
    person.at_once(Act::NoteBackupDestroyed).await?;
    let Person { service, node, user, peer, from, .. } = person;
    let mut known = node.view(backups).into_iter().filter(|backup| backup.id == id);
    let known =
        known.next().ok_or_else(|| Refusal::not_found(format!("There is no backup {id}: `keyd backups list`.")))?;
    if known.state != BackupState::Kept {
        return Ok(Json(known));
    }
    let record = BackupRecord { state: said_destroyed(&node, user.name), ..known };
    service.note(entry(&peer, from, Act::NoteBackupDestroyed.into()).with("revision", record.revision)).await?;
    put(&node, &record).await?;
    Ok(Json(record))
}

fn said_destroyed(node: &Node, by: Name) -> BackupState {
    BackupState::Destroyed { at: time(node.now_ns()), by }
}

async fn put(node: &Node, record: &BackupRecord) -> Result<(), Refusal> {
    let bytes = serde_json::to_vec(record).map_err(|_| Refusal::failed())?;
    let put = (backup_path(&record.id), bytes);
    node.change(|_| Ok::<_, NodeError>(Decided::records(vec![put.clone()], Vec::new()))).await?;
    Ok(())
}

fn gone(id: &str) -> Refusal {
    Refusal::not_found(format!(
        "Backup {id} does not wait here any more: another was made since, or this is another node."
    ))
}

fn refused(error: &BackupError) -> Refusal {
    tracing::error!(%error, "no backup was made");
    Problem::new(500, "no-backup", "No backup was made", format!("{error}.")).into()
}

#[allow(clippy::needless_pass_by_value, reason = "it is what `map_err` gives")]
fn host(error: std::io::Error) -> Refusal {
    tracing::error!(%error, "the folder for backups in the state directory cannot be used");
    Refusal::unready(format!("The folder for backups in this node's state directory cannot be used: {error}."))
}
