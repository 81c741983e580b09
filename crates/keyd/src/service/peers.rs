//! Journals that nodes keep for each other.
//!
//! `POST /v1/journals` leaves the newest part of the sender's journal here; `GET /v1/journals/AFTER` gives a node back
//! what this one has of its own journal, for one whose disk was lost or put back. A copy proves itself
//! ([`crate::journal`]), so that no more than the sender's certificate is asked.

use std::collections::HashMap;
use std::io;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

use axum::extract::{Path, State};
use axum::{Extension, Json};
use capstan_keys::api::{Base64, PeerKind, Problem, Serial};
use capstan_keys::cluster::{ClusterError, Identity, NodeClient};
use capstan_keys::{Name, Secret};
use capstan_service::identity::{Peer, REVOKED};
use capstan_service::problem::{Input, Refusal};
use futures_util::future::{BoxFuture, join_all};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::Service;
use super::access::{NodeRoutes, RouteAccess};
use crate::journal::{JournalCopy, JournalError};
use crate::node::{self, Noted, Peers, read_notes};
use crate::root::ClusterKeys;

/// How long a drive that asks for a key is kept waiting for a copy of the journal.
const PATIENCE: Duration = Duration::from_millis(300);
/// How long a peer that did not answer is left alone.
const REST: Duration = Duration::from_secs(5);

/// A part of a journal.
#[derive(Serialize, Deserialize, JsonSchema)]
struct Segment {
    segment: Base64,
}

/// Where a copy stands.
#[derive(Serialize, Deserialize, JsonSchema)]
struct Stands {
    sequence: u64,
}

/// The copies of other nodes' journals that this node keeps.
pub(super) struct Copies {
    directory: PathBuf,
    key: Secret,
    open: Mutex<HashMap<Name, JournalCopy>>,
}

impl Copies {
    pub(super) fn new(directory: PathBuf, key: Secret) -> Self {
        Self { directory, key, open: Mutex::default() }
    }

    fn with<T>(
        &self,
        kma: &Name,
        act: impl FnOnce(&mut JournalCopy) -> Result<T, JournalError>,
    ) -> Result<T, JournalError> {
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        if !open.contains_key(kma) {
            let (copy, _) = JournalCopy::open(&self.directory, kma, &self.key)?;
            open.insert(kma.clone(), copy);
        }
        open.get_mut(kma).map_or_else(|| unreachable!("it was put there"), act)
    }

    /// The nodes of whose entries something is left in a copy here. A copy that cannot be read is taken to hold
    /// something.
    pub(super) fn left(&self) -> io::Result<Vec<Name>> {
        let is_left = |kma: &Name| !self.with(kma, |copy| Ok(copy.is_wiped())).unwrap_or(false);
        Ok(JournalCopy::all(&self.directory)?.into_iter().filter(is_left).collect())
    }

    /// Begins a copy anew that ends there: all that it holds is with the ledger. One that has gone on stays.
    pub(super) fn wipe(&self, kma: &Name, sequence: u64) -> Result<(), JournalError> {
        self.with(kma, |copy| if copy.sequence() == sequence { copy.wipe() } else { Ok(()) })
    }

    /// What the copy of a node's journal says that this node has, if it has one.
    pub(super) fn held_of(&self, kma: &Name, keys: &ClusterKeys) -> Result<Option<HeldCopy>, node::NoteError> {
        if !JournalCopy::is_there(&self.directory, kma) {
            return Ok(None);
        }
        let (sequence, end, pending) =
            self.with(kma, |copy| Ok((copy.sequence(), copy.end(), copy.pending().cloned().collect::<Vec<_>>())))?;
        Ok(Some(HeldCopy { sequence, end, noted: read_notes(keys, kma, pending.iter())? }))
    }
}

/// A copy, read.
pub(super) struct HeldCopy {
    /// The number of its last record, and its MAC.
    pub(super) sequence: u64,
    pub(super) end: String,
    /// What is not reconciled, as far as is known here.
    pub(super) noted: Vec<Noted>,
}

/// The routes of nodes among themselves.
pub(super) fn routes() -> NodeRoutes {
    NodeRoutes::new()
        .post("/v1/journals", (RouteAccess::Kma, "leave the newest part of one's own journal with this node"), keep)
        .get("/v1/journals/{after}", (RouteAccess::Kma, "get back what this node has of one's own journal"), give_back)
}

/// Holds whoever asks to being a node of the cluster.
pub(super) fn asked_by_node(service: &Service, peer: &Peer) -> Result<(), Refusal> {
    if peer.id.kind != PeerKind::Kma {
        return Err(Refusal::forbidden("This is for nodes alone."));
    }
    let node = service.node()?;
    if node.view(|view| view.ledger().removed(&peer.id.name).is_some()) {
        service.removed_was_met(&peer.id.name);
        return Err(Problem::new(403, REVOKED, "This node was removed", format!("{} was removed.", peer.id)).into());
    }
    Ok(())
}

fn copies(service: &Service, peer: &Peer) -> Result<Arc<Copies>, Refusal> {
    asked_by_node(service, peer)?;
    let copies = service.copies.lock().unwrap_or_else(PoisonError::into_inner);
    copies.clone().ok_or_else(Refusal::failed)
}

/// Errors are told by number: the sender goes on where the copy stands.
async fn keep(
    State(service): State<Arc<Service>>,
    Extension(peer): Extension<Peer>,
    Input(Segment { segment }): Input<Segment>,
) -> Result<Json<Stands>, Refusal> {
    let copies = copies(&service, &peer)?;
    let name = peer.id.name.clone();
    let kept = tokio::task::spawn_blocking(move || {
        copies.with(&name, |copy| match copy.accept(&segment.0) {
            Ok(sequence) => Ok(sequence),
            Err(error) => {
                tracing::warn!(kma = %name, %error, "a peer's journal is not taken");
                Ok(copy.sequence())
            }
        })
    });
    let sequence = kept.await.map_err(|_| Refusal::failed())?.map_err(|error| Refusal::unready(error.to_string()))?;
    Ok(Json(Stands { sequence }))
}

async fn give_back(
    State(service): State<Arc<Service>>,
    Extension(peer): Extension<Peer>,
    Path(after): Path<u64>,
) -> Result<Json<Segment>, Refusal> {
    let copies = copies(&service, &peer)?;
    let name = peer.id.name.clone();
    let given = tokio::task::spawn_blocking(move || {
        copies.with(&name, |copy| if copy.sequence() > after { copy.since(after) } else { Ok(Vec::new()) })
    });
    let segment = given.await.map_err(|_| Refusal::failed())?.map_err(|error| Refusal::conflict(error.to_string()))?;
    Ok(Json(Segment { segment: Base64(segment) }))
}

/// The other nodes, as the one that is cut off reaches them.
pub(super) struct OtherNodes {
    service: Weak<Service>,
    /// The file: the certificate in it is renewed while the node runs.
    identity: PathBuf,
    known: Mutex<HashMap<Name, Known>>,
}

#[derive(Clone)]
struct Known {
    client: NodeClient,
    /// The certificate that the client shows.
    serial: Serial,
    address: String,
    stands: u64,
    rests_until: Option<Instant>,
}

impl OtherNodes {
    pub(super) fn new(service: Weak<Service>, identity: PathBuf) -> Self {
        Self { service, identity, known: Mutex::default() }
    }

    /// Heeds that a node refuses this one's certificate as revoked.
    fn heed(&self, peer: &Name, error: &ClusterError) {
        let ClusterError::Refused(problem) = error else { return };
        if problem.kind == Problem::new(403, REVOKED, "", "").kind
            && let Some(service) = self.service.upgrade()
        {
            service.is_refused_by(peer);
        }
    }

    fn known(&self) -> MutexGuard<'_, HashMap<Name, Known>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The nodes that the state names, without this one.
    fn look_up(&self) -> HashMap<Name, Known> {
        let Some(service) = self.service.upgrade() else { return HashMap::new() };
        let Some(node) = service.open_node() else { return HashMap::new() };
        let kmas = node.view(|view| view.ledger().kmas().clone());
        let identity = match Identity::load(&self.identity) {
            Ok(identity) => identity,
            Err(error) => {
                tracing::error!(%error, "the other nodes cannot be asked");
                return HashMap::new();
            }
        };
        let serial = identity.certificate().serial;
        let mut known = self.known();
        // A node that was removed keeps nothing for anybody.
        known.retain(|name, _| kmas.contains_key(name));
        for (name, record) in kmas.into_iter().filter(|(name, _)| name != service.name()) {
            if known.get(&name).is_some_and(|known| known.address == record.address && known.serial == serial) {
                continue;
            }
            if let Ok(client) = NodeClient::new(&identity, &record.address, PATIENCE) {
                known.insert(name, Known { client, serial, address: record.address, stands: 0, rests_until: None });
            }
        }
        known.clone()
    }
}

impl Peers for OtherNodes {
    fn standing(&self) -> Vec<(Name, u64)> {
        let now = Instant::now();
        let awake = self.look_up().into_iter().filter(|(_, known)| known.rests_until.is_none_or(|until| until <= now));
        awake.map(|(name, known)| (name, known.stands)).collect()
    }

    fn give_back(&self, after: u64) -> BoxFuture<'_, Vec<Vec<u8>>> {
        let asked = self.look_up().into_iter().map(move |(name, known)| async move {
            let get = move || known.client.get::<Segment>(&format!("/v1/journals/{after}"));
            match tokio::task::spawn_blocking(get).await {
                Ok(Ok(Segment { segment })) => Some(segment.0).filter(|segment| !segment.is_empty()),
                Ok(Err(error)) => {
                    self.heed(&name, &error);
                    tracing::info!(peer = %name, %error, "not asked for what it has of this node's journal");
                    None
                }
                Err(_) => None,
            }
        });
        Box::pin(async { join_all(asked).await.into_iter().flatten().collect() })
    }

    fn copy(&self, segments: Vec<(Name, Vec<u8>)>) -> BoxFuture<'_, ()> {
        Box::pin(async move {
            let sent = segments.into_iter().map(|(name, segment)| async move {
                let Some(client) = self.known().get(&name).map(|known| known.client.clone()) else { return };
                let send = move || client.post::<Stands>("/v1/journals", &Segment { segment: Base64(segment) });
                let stands = tokio::task::spawn_blocking(send).await;
                if let Ok(Err(error)) = &stands {
                    self.heed(&name, error);
                }
                let mut known = self.known();
                let Some(known) = known.get_mut(&name) else { return };
                match stands {
                    Ok(Ok(Stands { sequence })) => {
                        known.stands = sequence;
                        known.rests_until = None;
                    }
                    _ => known.rests_until = Some(Instant::now() + REST),
                }
            });
            join_all(sent).await;
        })
    }
}
