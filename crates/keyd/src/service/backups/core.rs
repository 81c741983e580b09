//! Core security backups: the cluster key under its custodians.

use aws_lc_rs::digest::{SHA256, digest};
use axum::Json;
use capstan_keys::api::Base64;
use capstan_keys::{Argon2Cost, Name};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use zeroize::Zeroizing;

use super::record::{CoreBackupRecord, core_path};
use super::spool::hex;
use super::{refused, time};
use crate::authority::Act;
use crate::backup::{BackupError, CoreBackup};
use crate::desk::Decided;
use crate::door::{Input, Refusal};
use crate::node::NodeError;
use crate::root::{ClusterKeys, Holder, Quorum, RootError};
use crate::service::entry;
use crate::service::people::Person;
use crate::service::registrar::authority_key;

/// A custodian, and what they will open their share with.
#[derive(Serialize, Deserialize, JsonSchema)]
pub struct Custodian {
    /// The name.
    pub name: Name,
    /// The passphrase: typed by them, sent over mutual TLS, kept nowhere.
    #[schemars(with = "String")]
    pub passphrase: Zeroizing<String>,
}

/// What is asked for.
#[derive(Serialize, Deserialize, JsonSchema)]
pub struct MakeCoreBackup {
    /// Its custodians.
    pub custodians: Vec<Custodian>,
    /// How many of them it takes.
    pub needed: u8,
}

/// A core security backup that was made, and opened again as a restore would.
#[derive(Serialize, Deserialize, JsonSchema)]
pub struct CoreBackupMade {
    /// The file.
    pub file: Base64,
    /// What the cluster notes of it.
    pub record: CoreBackupRecord,
}

pub(super) async fn make(person: Person, Input(asked): Input<MakeCoreBackup>) -> Result<Json<CoreBackupMade>, Refusal> {
    person.at_once(Act::BackUpCoreSecurity).await?;
    let Person { service, node, user, peer, from, .. } = person;
    let ca_key = node.view(|view| authority_key(view, node.keys())).ok_or_else(Refusal::failed)?;
    let custodians: Vec<Name> = asked.custodians.iter().map(|custodian| custodian.name.clone()).collect();
    let (keys, epoch, made_ns) = (node.keys().clone(), service.settings.epoch, node.now_ns());
    // Some tenths of a second of Argon2 for each of them, twice.
    let made = tokio::task::spawn_blocking(move || made(&keys, epoch, ca_key.expose(), asked, made_ns));
    let (bytes, needed, cluster_key) = match made.await.map_err(|_| Refusal::failed())? {
        Ok(made) => made,
        Err(BackupError::Root(error @ RootError::ImpossibleQuorum { .. })) => {
            return Err(Refusal::malformed(format!("{error}.")));
        }
        Err(error) => return Err(refused(&error)),
    };
    let sha256 = hex(digest(&SHA256, &bytes).as_ref());
    let record =
        CoreBackupRecord { made: time(made_ns), by: user.name, epoch, cluster_key, custodians, needed, sha256 };
    service.note(entry(&peer, from, Act::BackUpCoreSecurity.into()).with("needed", u64::from(needed))).await?;
    let put = (core_path(&record.sha256), serde_json::to_vec(&record).map_err(|_| Refusal::failed())?);
    node.change(|_| Ok::<_, NodeError>(Decided::records(vec![put.clone()], Vec::new()))).await?;
    Ok(Json(CoreBackupMade { file: Base64(bytes), record }))
}

/// Makes one, and opens what was made with as many passphrases as it takes: a backup that does not open is none.
fn made(
    keys: &ClusterKeys,
    epoch: u32,
    ca_key: &[u8],
    asked: MakeCoreBackup,
    made_ns: i64,
) -> Result<(Vec<u8>, u8, String), BackupError> {
    let holder = |Custodian { name, passphrase }| Holder { name, passphrase };
    let holders = asked.custodians.into_iter().map(holder).collect();
    let quorum = Quorum { threshold: asked.needed, holders, cost: cost() };
    let bytes = CoreBackup::create(keys, epoch, ca_key, &quorum, made_ns)?.encode();
    let again = CoreBackup::decode(&bytes)
        .map_err(|source| BackupError::Format { path: "core security backup".into(), source })?;
    let shares = quorum.holders.iter().take(quorum.threshold.into());
    let shares: Vec<_> =
        shares.map(|holder| again.open_share(&holder.name, &holder.passphrase)).collect::<Result<_, _>>()?;
    let open = again.open(&shares)?;
    if open.key_tag() != keys.tag() || open.ca_key.as_slice() != ca_key {
        return Err(BackupError::OtherKey { database: keys.tag(), core: open.key_tag() });
    }
    Ok((bytes, quorum.threshold, keys.tag().to_string()))
}

/// What a guess of a custodian's passphrase costs. Tests say less.
fn cost() -> Argon2Cost {
    match std::env::var_os("KEYD_TEST_ARGON2") {
        Some(_) => Argon2Cost { memory_kib: 64, iterations: 1, lanes: 1 },
        None => Argon2Cost::default(),
    }
}
