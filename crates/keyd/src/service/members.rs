//! What everybody of the cluster may ask: who its nodes are, how this one is, and to unlock it.

use std::sync::Arc;

use axum::extract::State;
use axum::{Extension, Json};
use capstan_keys::api::{KmaMember, KmaState, PeerKind, Problem};
use serde_json::{Value, json};

use super::openapi::{Paths, Who};
use super::unlock::{UNLOCK, Unlock, said};
use super::{Service, entry};
use crate::door::{CameFrom, Input, Readiness, Refusal};
use crate::identity::Peer;
use crate::node::Standing;

/// The routes that are there while the node is locked as well.
pub(super) fn routes() -> Paths {
    Paths::new()
        .get("/v1/kmas", (Who::Member, "list the nodes of the cluster"), kmas)
        .get("/v1/status", (Who::Member, "ask how this node is"), status)
        .post("/v1/unlock", (Who::User, "give a holder's share of the root key to this node"), unlock)
        .get("/v1/root", (Who::Kma, "get the sealed root key, to join"), root)
}

async fn kmas(State(service): State<Arc<Service>>) -> Json<Vec<KmaMember>> {
    let own = |state| KmaMember {
        name: service.settings.name.to_string(),
        site: service.settings.site.clone(),
        address: service.settings.address.clone(),
        state,
    };
    let Some(node) = service.open_node() else { return Json(vec![own(KmaState::Locked)]) };
    let others = node.view(|view| {
        let kmas = view.ledger().kmas().iter().filter(|(name, _)| **name != service.settings.name);
        kmas.map(|(name, record)| KmaMember {
            name: name.to_string(),
            site: record.site.clone(),
            address: record.address.clone(),
            state: KmaState::Unknown,
        })
        .collect::<Vec<_>>()
    });
    Json([vec![own(KmaState::Serving)], others].concat())
}

async fn status(State(service): State<Arc<Service>>) -> Json<Value> {
    let gate = said(service.gate.lock().await.status());
    let mut status = json!({
        "name": service.settings.name, "cluster": service.settings.cluster, "epoch": service.settings.epoch,
        "site": service.settings.site, "lock": gate,
    });
    if let Some(node) = service.open_node() {
        let (pool, progress) = (node.pool(), *node.progress().borrow());
        let standing = match node.standing() {
            Standing::Current => json!("current"),
            Standing::Alone { since_ns } => json!({"cut_off_since_ns": since_ns}),
        };
        let low = pool.is_below(node.settings().pool_low);
        status["standing"] = standing;
        status["applied"] = json!(progress.applied);
        status["pool"] = json!({
            "ready": pool.ready.len(), "reserve": pool.reserve.len(), "waiting": pool.waiting, "low": low
        });
        status["journal_pending"] = json!(node.journal_pending().await.unwrap_or(usize::MAX));
        status["doubts"] = json!(node.doubts());
        let (keys, units) = node.view(|view| (view.ledger().keys().count(), view.ledger().realm().units().count()));
        status["keys"] = json!(keys);
        status["units"] = json!(units);
    }
    Json(status)
}

async fn unlock(
    State(service): State<Arc<Service>>,
    (Extension(peer), Extension(from)): (Extension<Peer>, Extension<CameFrom>),
    Input(asked): Input<Unlock>,
) -> Result<Json<Value>, Refusal> {
    if peer.id.kind != PeerKind::User {
        return Err(Refusal::forbidden(format!("{} is no person: nodes are unlocked by people.", peer.id)));
    }
    let noted = entry(&peer, from, UNLOCK);
    Ok(Json(service.give_share(noted, asked).await?))
}

/// `GET /v1/root`: the sealed root key, for a node that joins. Nothing in it is secret, and only nodes get it.
async fn root(State(service): State<Arc<Service>>, Extension(peer): Extension<Peer>) -> Result<Json<Value>, Refusal> {
    if peer.id.kind != PeerKind::Kma {
        return Err(Refusal::forbidden("The sealed root key goes to nodes alone."));
    }
    let mut sealed = service.sealed_root.clone();
    sealed.forget_own_copy();
    let bytes = capstan_keys::api::Base64(sealed.encode());
    Ok(Json(json!({"root": bytes, "epoch": service.settings.epoch})))
}

impl Readiness for Service {
    fn ready(&self) -> Result<(), Problem> {
        match self.open_node() {
            Some(_) => Ok(()),
            None => Err(super::problem::locked(&self.settings.name)),
        }
    }
}
