//! Proof that keys can be had back: every key of every data unit, at three places.
//!
//! ```text
//!  here         its record, unwrapped now under its group's key and compared with its tag
//!  elsewhere    another node has proved its own copy up to a commit that has this record: `proof/KMA`
//!  backup       the newest verified backup that is kept, as is on record, was made at or after the record's last change
//! ```
//!
//! Each node proves its own copy some seconds after keys have changed, and every ten minutes, and says so in the
//! ledger. What is not proved is listed, each with why: a proof that passes over something is none. What a node has
//! said longer ago than [`COUNTS_FOR`] counts no more: it may have burnt since.

mod all;
mod opened;

use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::Json;
use axum::extract::{Extension, Path as InPath};
use capstan_keys::Name;
use capstan_keys::api::{JobSeen, JobStarted, RequestId};
use capstan_service::audit::AuditEntry;
use capstan_service::problem::Refusal;
use jiff::Timestamp;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::access::NodeRoutes;
use super::jobs::JobProgress;
use super::person::Person;
use super::{Service, entry};
use crate::authority::Act;
use crate::desk::Decided;
use crate::node::{Node, NodeError};
use crate::path::Path;
use crate::state::View;
use capstan_service::housekeeping::NextCheck;
use capstan_service::time::time;

use opened::Opened;

/// How often a node proves its own copy unasked.
const EVERY: Duration = Duration::from_secs(600);
/// For how long what a node has proved counts: it proves it again after a rest and a wait of at most [`EVERY`] each.
const COUNTS_FOR: Duration = EVERY.saturating_mul(3);
/// When it tries again what could not be said; and how long at least it rests after a proof.
const SOON: Duration = Duration::from_secs(5);
/// How many times as long as a proof takes it rests after it, though no longer than [`EVERY`].
const REST: u32 = 50;
/// How soon it sees that keys were changed.
const LOOK: Duration = Duration::from_secs(1);
/// Keys that are named in a proof; a copy of which more do not open is none, and its node has proved nothing.
const REFUSED_MAX: usize = 1000;
const PROOF: &str = "proof/";

/// What a node says of its own copy: the record `proof/KMA`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct OwnProof {
    /// The commit up to which it has proved it.
    pub revision: i64,
    /// How many keys it has unwrapped.
    pub keys: u64,
    /// How many objects of KMIP clients it has unwrapped.
    #[serde(default)]
    pub objects: u64,
    /// Those that did not unwrap: tags of keys, `kmip/UID`.
    pub refused: Vec<String>,
    /// When.
    pub at: Timestamp,
}

/// What was proved of all data units, and what was not.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct RetrievalProof {
    /// The node that was asked.
    pub kma: Name,
    /// The commit it was at.
    pub revision: i64,
    /// When.
    pub at: Timestamp,
    /// Data units with keys that are not destroyed.
    pub units: u64,
    /// Keys of theirs that were proved at all three places.
    pub proved: u64,
    /// Keys of lost nodes that no volume has named yet, proved at all three places.
    #[serde(default)]
    pub recovered: u64,
    /// Objects of KMIP clients that were proved at all three places.
    pub objects: u64,
    /// The backup that was counted on, as it is on record: its file was read when it was made, and not for this.
    pub backup: Option<String>,
    /// When that was made.
    #[serde(default)]
    pub backup_made: Option<Timestamp>,
    /// Where it was put, in the words of whoever made it.
    #[serde(default)]
    pub backup_place: Option<String>,
    /// What was not proved: the first thousand.
    pub unproved: Vec<Unproved>,
    /// How much more was not.
    pub unnamed: u64,
}

/// A key or object that was not proved somewhere.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Unproved {
    /// The data unit; `kmip` for an object of a KMIP client, `recovered` for a key of a lost node that no volume has
    /// named yet.
    pub unit: String,
    /// The key, or the object's Unique Identifier.
    pub key: String,
    /// Where, and why not.
    pub why: String,
}

pub(super) fn routes() -> NodeRoutes {
    NodeRoutes::new().post("/v1/proof", Act::ProveRetrieval, prove).get(
        "/v1/proof/jobs/{job}",
        Act::ProveRetrieval,
        proving,
    )
}

/// Proves this node's copy now and then.
#[derive(Default)]
pub(super) struct OwnProofs {
    last: Option<LastProof>,
}

/// Which commit the last proof goes up to, and when another is due though no key was changed since.
struct LastProof {
    proved: i64,
    due: Instant,
}

impl OwnProofs {
    /// Proves the copy, if some key was changed since the last proof, or it is long ago.
    pub(super) async fn check<'a>(&mut self, service: &'a Service) -> NextCheck<'a> {
        let opened = service.opened.notified();
        let Some(node) = service.open_node() else { return NextCheck::after(EVERY).or_when(opened) };
        if let Some(LastProof { proved, due }) = &self.last
            && Instant::now() < *due
            && node.view(|view| view.ledger().keys_changed()) <= *proved
        {
            return NextCheck::after(LOOK);
        }
        let began = Instant::now();
        match say_own(&node).await {
            Ok(proved) => {
                let pause = (began.elapsed() * REST).clamp(SOON, EVERY);
                self.last = Some(LastProof { proved, due: Instant::now() + pause + EVERY });
                NextCheck::after(pause)
            }
            Err(error) => {
                tracing::debug!(%error, "this node's copy was proved, and the others do not hear of it yet");
                NextCheck::after(SOON)
            }
        }
    }
}

async fn prove(person: Person, Extension(request): Extension<RequestId>) -> Result<Json<JobStarted>, Refusal> {
    person.at_once(Act::ProveRetrieval).await?;
    let Person { service, node, user, peer, from, .. } = person;
    let noted = entry(&peer, from, Act::ProveRetrieval.into()).reading();
    let proving = service.clone();
    service.proving.begin(request, user.name, |progress| proved(proving, node, noted, progress)).map(Json)
}

async fn proving(person: Person, InPath(job): InPath<RequestId>) -> Result<Json<JobSeen<RetrievalProof>>, Refusal> {
    person.at_once(Act::ProveRetrieval).await?;
    person.service.proving.look(job).map(Json)
}

/// Proves everything; each data unit and each object is a step. It is noted before anybody sees it.
async fn proved(
    service: Arc<Service>,
    node: Arc<Node>,
    noted: AuditEntry,
    progress: Arc<JobProgress>,
) -> Result<RetrievalProof, Refusal> {
    let epoch = service.settings.epoch;
    let proof = tokio::task::spawn_blocking(move || all::prove(&node, epoch, &progress));
    let proof = proof.await.map_err(|_| Refusal::failed())?;
    service.note(noted.with("proved", proof.proved).with("unproved", proof.unproved.len() as u64)).await?;
    Ok(proof)
}

/// Proves this node's own copy, and says so in the ledger. Gives the commit up to which it was proved.
async fn say_own(node: &Arc<Node>) -> Result<i64, NodeError> {
    let (revision, at) = (node.progress().borrow().applied, time(node.now_ns()));
    let at_work = node.clone();
    let Ok(opened) = tokio::task::spawn_blocking(move || Opened::of(&at_work)).await else { return Ok(revision) };
    let Opened { keys, objects, refused } = opened;
    if refused.len() > REFUSED_MAX {
        tracing::error!(refused = refused.len(), "keys cannot be had back from this node, too many to say which");
        return Ok(revision);
    }
    for (name, why) in &refused {
        tracing::error!(name, why, "a key cannot be had back from this node");
    }
    let refused = refused.into_keys().collect();
    let Ok(bytes) = serde_json::to_vec(&OwnProof { revision, keys, objects, refused, at }) else { return Ok(revision) };
    let put = (proof_path(node.name()), bytes);
    node.change(|_| Ok::<_, NodeError>(Decided::records(vec![put.clone()], Vec::new()))).await?;
    Ok(revision)
}

/// Where a node says that.
pub(super) fn proof_path(kma: &Name) -> Path {
    Path::Other(format!("{PROOF}{kma}"))
}

/// The commit up to which a node says that its own copy is proved, and so on its disk.
pub(super) fn proved_up_to(view: View<'_>, kma: &Name) -> i64 {
    own_proof(view, kma).map_or(0, |proof| proof.revision)
}

/// What a node said of its own copy last.
pub(super) fn own_proof(view: View<'_>, kma: &Name) -> Option<OwnProof> {
    serde_json::from_slice(view.ledger().other(&format!("{PROOF}{kma}"))?).ok()
}
