//! What those who work with a node ask before anything else: who the nodes are, how this one is, and to unlock it.

use std::sync::Arc;

use axum::extract::State;
use axum::{Extension, Json};
use capstan_keys::Name;
use capstan_keys::api::{AutonomousUnlock, KmaListed, KmaMember, KmaState, PeerKind, Problem};
use capstan_service::health::Readiness;
use capstan_service::identity::Peer;
use capstan_service::listener::RemoteAddress;
use capstan_service::problem::{Input, Refusal};
use jiff::Timestamp;
use serde_json::{Value, json};

use super::access::{NodeRoutes, RouteAccess};
use super::autonomous::AutonomousRecord;
use super::shares::GivenShare;
use super::unlock::{UNLOCK, said};
use super::{KmaSettings, Service, entry};
use crate::authority::Act;
use crate::node::{MajorityContact, Removal};
use crate::record::KmaRecord;
use crate::state::View;

/// The routes that are there while the node is locked as well.
pub(super) fn routes() -> NodeRoutes {
    NodeRoutes::new()
        .get("/v1/kmas", (RouteAccess::AgentKmaOr(Act::ListKmas), "list the nodes of the cluster"), kmas)
        .get("/v1/status", (RouteAccess::KmaOr(Act::ReadStatus), "ask how this node is"), status)
        .post("/v1/unlock", (RouteAccess::User, "give a holder's share of the root key to this node"), unlock)
        .get("/v1/root", (RouteAccess::Kma, "get the sealed root key, to join"), root)
}

async fn kmas(State(service): State<Arc<Service>>) -> Json<Vec<KmaListed>> {
    let KmaSettings { name, site, address, .. } = &service.settings;
    let Some(node) = service.open_node() else {
        let (name, site, address) = (name.to_string(), site.clone(), address.clone());
        let member = KmaMember { name, site, address, state: KmaState::Locked };
        return Json(vec![KmaListed { member, autonomous_unlock: None }]);
    };
    let removal = node.removal();
    Json(node.view(|view| {
        let known = view.ledger().kmas();
        let member = |(kma, record): (&Name, &KmaRecord)| KmaListed {
            member: KmaMember {
                name: kma.to_string(),
                site: record.site.clone(),
                address: record.address.clone(),
                state: if kma == name && removal.is_none() { KmaState::Serving } else { KmaState::Unknown },
            },
            autonomous_unlock: Some(AutonomousUnlock {
                on: AutonomousRecord::of(view, kma, node.epoch()).is_some_and(|record| record.allowed),
            }),
        };
        // The node itself first, where the cluster says that it stands.
        let own = known.get_key_value(name).map(member);
        own.into_iter().chain(known.iter().filter(|(kma, _)| *kma != name).map(member)).collect()
    }))
}

async fn status(State(service): State<Arc<Service>>) -> Json<Value> {
    let gate = said(service.gate.lock().await.status());
    let KmaSettings { name, cluster, epoch, site, address, .. } = &service.settings;
    let mut status = json!({"name": name, "cluster": cluster, "epoch": epoch, "site": site, "lock": gate});
    status["unlocks_itself"] = json!(service.unlocks_itself());
    status["room"] = json!(service.room_said());
    if let Some(node) = service.open_node() {
        let (pool, progress) = (node.pool(), *node.progress().borrow());
        let standing = match node.standing() {
            MajorityContact::Current => json!("current"),
            MajorityContact::Alone { since_ns } => json!({"cut_off_since_ns": since_ns}),
        };
        let low = pool.is_below(node.settings().pool_low);
        if let Some(removal) = node.removal() {
            status["removed"] = json!(words(&removal));
        }
        if let Some(moved) = node.view(|view| moved(view.ledger().kmas().get(name)?, address, site)) {
            status["moved"] = json!(moved);
        }
        status["standing"] = standing;
        status["applied"] = json!(progress.applied);
        status["pool"] = json!({
            "ready": pool.ready, "reserve": pool.reserve, "waiting": pool.waiting, "low": low
        });
        status["journal_pending"] = json!(node.journal_pending().await.unwrap_or(usize::MAX));
        status["doubts"] = json!(node.doubts());
        let (keys, units) = node.view(|view| (view.ledger().key_count(), view.ledger().realm().unit_count()));
        status["keys"] = json!(keys);
        status["units"] = json!(units);
        let of_lost = |view: View<'_>| (view.ledger().unconfirmed().len(), view.ledger().recovered().count());
        let (unconfirmed, recovered) = node.view(of_lost);
        status["unconfirmed_keys"] = json!(unconfirmed);
        status["recovered_keys"] = json!(recovered);
    } else if let Some(said) = service.locked_by_person() {
        status["locked_by"] = json!(said);
    }
    Json(status)
}

/// What a node that was removed says of itself.
fn words(removal: &Removal) -> String {
    let how = match removal {
        Removal::Recorded(removed) => {
            let when = Timestamp::from_nanosecond(i128::from(removed.removed_ns)).unwrap_or_default();
            format!("on {when}, as {} had asked", removed.by)
        }
        Removal::Refused => "as another node says, which refuses its certificate".to_owned(),
    };
    format!("removed from the cluster {how}: it answers nobody; stop it, and destroy its disks")
}

/// Where the cluster says that the node is, if its own settings say otherwise.
fn moved(record: &KmaRecord, address: &str, site: &str) -> Option<String> {
    let KmaRecord { address: to, site: at, .. } = record;
    (to != address || at != site).then(|| {
        format!("the cluster has this node at {to}, site {at:?}: write that into keyd.toml, and start it again")
    })
}

/// Whoever has a certificate of a person may bring a share: a node that is locked knows neither users nor roles, and
/// the shares are what counts.
async fn unlock(
    State(service): State<Arc<Service>>,
    (Extension(peer), Extension(from)): (Extension<Peer>, Extension<RemoteAddress>),
    Input(asked): Input<GivenShare>,
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
    let bytes = capstan_keys::api::Base64(service.sealed_root().encode());
    Ok(Json(json!({"root": bytes, "epoch": service.settings.epoch})))
}

impl Readiness for Service {
    fn ready(&self) -> Result<(), Problem> {
        self.node().map_err(|refusal| *refusal.0)?;
        self.check_room()
    }
}
