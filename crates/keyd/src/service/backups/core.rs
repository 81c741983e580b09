//! Core security backups: the cluster key under its custodians.

use aws_lc_rs::digest::{SHA256, digest};
use capstan_keys::api::Base64;
use capstan_keys::{Argon2Cost, Name};
use capstan_service::problem::Refusal;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use zeroize::Zeroizing;

use super::spool::hex;
use super::{refused, time};
use crate::authority::PendingId;
use crate::backup::{BackupError, CoreBackup};
use crate::node::Node;
use crate::root::{ClusterKeys, Holder, Quorum, RootError};
use crate::service::backup_record::CoreBackupRecord;
use crate::service::registrar::authority_key;

/// What the quorum is asked for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct AskCoreBackup {
    /// Its custodians, who need not be users.
    pub custodians: Vec<Name>,
    /// How many of them it takes.
    pub needed: u8,
}

/// A custodian, and what they will open their share with.
#[derive(Serialize, Deserialize, JsonSchema)]
pub struct Custodian {
    /// The name.
    pub name: Name,
    /// The passphrase: typed by them, sent over mutual TLS, kept nowhere.
    #[schemars(with = "String")]
    pub passphrase: Zeroizing<String>,
}

/// What was approved is carried out.
#[derive(Serialize, Deserialize, JsonSchema)]
pub struct MakeCoreBackup {
    /// The custodians that were approved, all of them.
    pub custodians: Vec<Custodian>,
}

/// A core security backup that was made, and opened again as a restore would.
#[derive(Serialize, Deserialize, JsonSchema)]
pub struct CoreBackupMade {
    /// The file.
    pub file: Base64,
    /// What the cluster notes of it.
    pub record: CoreBackupRecord,
}

/// Makes one for these custodians, in the order that was approved, with what the cluster is to note of it. Whoever
/// asked has leave to: that is for the caller to see.
pub(in super::super) async fn make(
    node: &Node,
    by: Name,
    request: PendingId,
    custodians: Vec<Custodian>,
    needed: u8,
    cost: Argon2Cost,
) -> Result<CoreBackupMade, Refusal> {
    let ca_key = node.view(|view| authority_key(view, node.keys())).ok_or_else(Refusal::failed)?;
    let names = custodians.iter().map(|custodian| custodian.name.clone()).collect();
    let holder = |Custodian { name, passphrase }| Holder { name, passphrase };
    let holders = custodians.into_iter().map(holder).collect();
    let quorum = Quorum { threshold: needed, holders, cost };
    let (keys, epoch, made_ns) = (node.keys().clone(), node.epoch(), node.now_ns());
    // Some tenths of a second of Argon2 for each of them, twice.
    let made = tokio::task::spawn_blocking(move || made(&keys, epoch, ca_key.expose(), &quorum, made_ns));
    let (bytes, cluster_key) = match made.await.map_err(|_| Refusal::failed())? {
        Ok(made) => made,
        Err(BackupError::Root(error @ RootError::ImpossibleQuorum { .. })) => {
            return Err(Refusal::malformed(format!("{error}.")));
        }
        Err(error) => return Err(refused(&error)),
    };
    let record = CoreBackupRecord {
        made: time(made_ns),
        by,
        epoch,
        cluster_key,
        custodians: names,
        needed,
        sha256: hex(digest(&SHA256, &bytes).as_ref()),
        request: Some(request.to_string()),
    };
    Ok(CoreBackupMade { file: Base64(bytes), record })
}

/// Makes one, and opens what was made with as many passphrases as it takes: a backup that does not open is none.
fn made(
    keys: &ClusterKeys,
    epoch: u32,
    ca_key: &[u8],
    quorum: &Quorum,
    made_ns: i64,
) -> Result<(Vec<u8>, String), BackupError> {
    let bytes = CoreBackup::create(keys, epoch, ca_key, quorum, made_ns)?.encode();
    let again = CoreBackup::decode(&bytes)
        .map_err(|source| BackupError::Format { path: "core security backup".into(), source })?;
    let shares = quorum.holders.iter().take(quorum.threshold.into());
    let shares: Vec<_> =
        shares.map(|holder| again.open_share(&holder.name, &holder.passphrase)).collect::<Result<_, _>>()?;
    let open = again.open(&shares)?;
    if open.key_tag() != keys.tag() || open.ca_key.as_slice() != ca_key {
        return Err(BackupError::OtherKey { database: keys.tag(), core: open.key_tag() });
    }
    Ok((bytes, keys.tag().to_string()))
}
