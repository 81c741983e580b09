//! Agents and KMIP clients: enrolments are opened, certificates revoked, groups assigned.
//!
//! **Who says which groups:** an operator enrols a drive, and a compliance officer says which keys it may have. So a
//! drive that is enrolled by an operator alone has the group `default` and no other, unless somebody has said more of
//! it before.

use axum::Json;
use capstan_keys::api::{
    AddPeer, AgentGroups, AssignKmipClient, EnrolmentOpened, KmipClientAssigned, KmipUsage, PeerId, PeerKind,
    PeerListed, Revoked, ShownOnce,
};
use capstan_keys::cluster::EnrolmentPassphrase;
use capstan_keys::{Agent, Name};
use capstan_service::enrolment::{Enrolment, EnrolmentState};
use capstan_service::problem::{Input, Refusal};
use std::collections::BTreeMap;

use super::super::access::NodeRoutes;
use super::super::registrar::{CertificateRecord, enrolment_path};
use super::{Of, Person, broken, time};
use crate::authority::Act;
use crate::desk::{Asked, Decided, Operation, decide};
use crate::kmip::{ClientRecord, Usage};
use crate::path::Path;
use crate::state::View;

/// A passphrase is handed on within days, or asked for anew.
const ENROLMENT_TIME_NS: i64 = 7 * 86_400 * 1_000_000_000;
/// Certificates that one transaction revokes.
pub(super) const REVOKED_AT_ONCE: usize = 40;

pub(super) fn routes() -> NodeRoutes {
    NodeRoutes::new()
        .get("/v1/agents", Act::ListAgents, agents)
        .post("/v1/agents", Act::AddAgent, add_agent)
        .post("/v1/agents/{name}/revoke", Act::RevokeAgent, revoke_agent)
        .post("/v1/agents/{name}/groups", Act::AssignGroups, assign)
        .get("/v1/kmip-clients", Act::ListKmipClients, kmip_clients)
        .post("/v1/kmip-clients", Act::AddKmipClient, add_kmip_client)
        .post("/v1/kmip-clients/{name}/assign", Act::AssignGroups, assign_kmip_client)
        .post("/v1/kmip-clients/{name}/revoke", Act::RevokeKmipClient, revoke_kmip_client)
}

async fn agents(person: Person) -> Result<Json<Vec<PeerListed>>, Refusal> {
    person.looks(Act::ListAgents, |view, now_ns| listed(view, PeerKind::Agent, now_ns)).await.map(Json)
}

async fn kmip_clients(person: Person) -> Result<Json<Vec<PeerListed>>, Refusal> {
    let (objects_max, bytes_max) = person.service.domain_quota();
    let looked = person.looks(Act::ListKmipClients, |view, now_ns| {
        let mut clients = listed(view, PeerKind::KmipClient, now_ns)?;
        for client in &mut clients {
            client.usage = client.assigned.as_ref().map(|KmipClientAssigned { domain, .. }| {
                let Usage { objects, bytes } = view.ledger().kmip().usage(domain.as_str());
                KmipUsage { objects, objects_max, bytes, bytes_max }
            });
        }
        Ok(clients)
    });
    looked.await.map(Json)
}

async fn add_agent(person: Person, Input(asked): Input<AddPeer>) -> Result<Json<EnrolmentOpened>, Refusal> {
    person.permitted(Act::AddAgent).await?;
    if asked.groups.is_some() {
        person.permitted(Act::AssignGroups).await?;
    }
    let noted = person.entry(Act::AddAgent).of("agent", &asked.name);
    person.does(noted, open(&person, PeerKind::Agent, &asked.name, asked.groups.clone())).await.map(Json)
}

async fn add_kmip_client(person: Person, Input(asked): Input<AddPeer>) -> Result<Json<EnrolmentOpened>, Refusal> {
    person.permitted(Act::AddKmipClient).await?;
    if asked.groups.is_some() {
        return Err(Refusal::malformed("A KMIP client has no groups of its own."));
    }
    let noted = person.entry(Act::AddKmipClient).of("kmip-client", &asked.name);
    person.does(noted, open(&person, PeerKind::KmipClient, &asked.name, None)).await.map(Json)
}

async fn revoke_agent(person: Person, Of(name): Of<Name>) -> Result<Json<Revoked>, Refusal> {
    person.permitted(Act::RevokeAgent).await?;
    let noted = person.entry(Act::RevokeAgent).of("agent", &name);
    person.does(noted, revoke(&person, PeerId { kind: PeerKind::Agent, name })).await.map(Json)
}

async fn revoke_kmip_client(person: Person, Of(name): Of<Name>) -> Result<Json<Revoked>, Refusal> {
    person.permitted(Act::RevokeKmipClient).await?;
    let noted = person.entry(Act::RevokeKmipClient).of("kmip-client", &name);
    person.does(noted, revoke(&person, PeerId { kind: PeerKind::KmipClient, name })).await.map(Json)
}

async fn assign(
    person: Person,
    Of(name): Of<Name>,
    Input(asked): Input<AgentGroups>,
) -> Result<Json<AgentGroups>, Refusal> {
    person.permitted(Act::AssignGroups).await?;
    let noted = person.entry(Act::AssignGroups).of("agent", &name);
    let operation = Operation::PutAgent(agent(name, asked.clone()));
    person
        .does(noted, async {
            person.node.ask(operation, &person.user.name, person.request.0).await?;
            Ok(Json(asked))
        })
        .await
}

async fn assign_kmip_client(
    person: Person,
    Of(name): Of<Name>,
    Input(asked): Input<AssignKmipClient>,
) -> Result<Json<KmipClientAssigned>, Refusal> {
    person.permitted(Act::AssignGroups).await?;
    let noted = person.entry(Act::AssignGroups).of("kmip-client", &name);
    let mut assigned = None;
    let assigning = person.change(|view| {
        let peer = PeerId { kind: PeerKind::KmipClient, name: name.clone() };
        let is_known = view.ledger().other(&enrolment_path(&peer).to_string()).is_some()
            || valid_certificates(view, person.node.now_ns())?.contains_key(&peer);
        if !is_known {
            let detail = format!("There is no KMIP client {name}: `keyd kmip-clients list` names those there are.");
            return Err(Refusal::not_found(detail));
        }
        let was = ClientRecord::read(view.ledger().other(&ClientRecord::path(&name).to_string()), &name)
            .map_err(|error| broken(&error))?;
        let AssignKmipClient { domain, group } = asked.clone();
        let record = ClientRecord { domain: domain.unwrap_or(was.domain), group: group.unwrap_or(was.group) };
        if view.ledger().realm().policy_of(&record.group).is_err() {
            let detail = format!("There is no key group {}: `keyd groups list` names those there are.", record.group);
            return Err(Refusal::not_found(detail));
        }
        let bytes = serde_json::to_vec(&record).map_err(|error| broken(&error))?;
        assigned = Some(KmipClientAssigned { domain: record.domain, group: record.group });
        Ok(Decided::records(vec![(ClientRecord::path(&name), bytes)], Vec::new()))
    });
    person.does(noted, assigning).await?;
    assigned.map(Json).ok_or_else(Refusal::failed)
}

fn agent(name: Name, AgentGroups { groups, default_group }: AgentGroups) -> Agent {
    Agent { name, groups, default_group }
}

/// A new enrolment, and what it takes.
pub(super) fn new_enrolment(
    person: &Person,
    peer: PeerId,
    hosts: Vec<String>,
) -> Result<(Enrolment, EnrolmentPassphrase), Refusal> {
    let passphrase = EnrolmentPassphrase::random().map_err(|error| broken(&error))?;
    let expires_ns = enrolment_expires_ns(person.node.now_ns());
    let enrolment = Enrolment::open(peer, hosts, &passphrase, expires_ns).map_err(|error| broken(&error))?;
    Ok((enrolment, passphrase))
}

/// When an enrolment ends that is opened now.
pub(super) fn enrolment_expires_ns(now_ns: i64) -> i64 {
    now_ns.saturating_add(ENROLMENT_TIME_NS)
}

/// Opens an enrolment; an earlier one of the same peer is no longer of use.
async fn open(
    person: &Person,
    kind: PeerKind,
    name: &Name,
    groups: Option<AgentGroups>,
) -> Result<EnrolmentOpened, Refusal> {
    let peer = PeerId { kind, name: name.clone() };
    let (enrolment, passphrase) = new_enrolment(person, peer.clone(), Vec::new())?;
    person
        .change(|view| {
            let mut decided = Decided::records(vec![(enrolment_path(&peer), enrolment.encode().to_vec())], Vec::new());
            let unsaid = || (!is_known(view, name)).then(default_alone);
            if kind == PeerKind::Agent
                && let Some(groups) = groups.clone().or_else(unsaid)
            {
                let operation = Operation::PutAgent(agent(name.clone(), groups));
                let of_agent = decide(view, person.node.keys(), &asked(person, operation))
                    .map_err(crate::node::NodeError::from)?;
                decided.puts.extend(of_agent.puts);
                decided.rests_on.extend(of_agent.rests_on);
            }
            Ok(decided)
        })
        .await?;
    Ok(EnrolmentOpened { peer, passphrase: ShownOnce(passphrase), expires: time(enrolment.expires_ns) })
}

/// Something that a person asks of keys.
pub(super) fn asked(person: &Person, operation: Operation) -> Asked {
    let (request, by, kma) = (person.request.0, person.user.name.clone(), person.node.name().clone());
    Asked { operation, request, by, kma, now_ns: person.node.now_ns() }
}

fn is_known(view: View<'_>, agent: &Name) -> bool {
    view.ledger().realm().agents().any(|known| known.name == *agent)
}

fn default_alone() -> AgentGroups {
    AgentGroups { groups: [Name::default()].into(), default_group: Name::default() }
}

/// Revokes every certificate of a peer that still holds, and takes its enrolment away. It acts with the next request.
async fn revoke(person: &Person, peer: PeerId) -> Result<Revoked, Refusal> {
    let mut revoked = 0;
    loop {
        let mut found = 0;
        person
            .change(|view| {
                let now_ns = person.node.now_ns();
                let certificates = valid_certificates(view, now_ns)?;
                let of_peer: Vec<_> =
                    certificates.get(&peer).into_iter().flatten().copied().take(REVOKED_AT_ONCE).collect();
                let removes = match view.ledger().other(&enrolment_path(&peer).to_string()) {
                    Some(_) => vec![enrolment_path(&peer)],
                    None => Vec::new(),
                };
                if of_peer.is_empty() && removes.is_empty() && revoked == 0 {
                    return Err(Refusal::not_found(format!("{peer} has no certificate that holds, and no enrolment.")));
                }
                found = of_peer.len();
                let mut decided = revoking(&of_peer, &person.user.name, now_ns);
                decided.removes = removes;
                Ok(decided)
            })
            .await?;
        revoked += found;
        if found < REVOKED_AT_ONCE {
            return Ok(Revoked { certificates: revoked });
        }
    }
}

/// That these certificates let nobody in any more.
pub(super) fn revoking(serials: &[&str], by: &Name, now_ns: i64) -> Decided {
    let said = format!("{{\"by\":\"{by}\",\"at_ns\":{now_ns}}}").into_bytes();
    let puts = serials.iter().map(|serial| (Path::Other(format!("revoked/{serial}")), said.clone()));
    // A renewal that passes writes the old certificate's record anew: then the new one is found as well.
    let rests_on = serials.iter().map(|serial| Path::Other(format!("certificate/{serial}"))).collect();
    Decided { rests_on, ..Decided::records(puts.collect(), Vec::new()) }
}

/// The serial numbers of certificates that let somebody in.
pub(super) fn valid_certificates(view: View<'_>, now_ns: i64) -> Result<BTreeMap<PeerId, Vec<&str>>, Refusal> {
    let mut valid: BTreeMap<PeerId, Vec<&str>> = BTreeMap::new();
    for (path, bytes) in view.ledger().others("certificate/") {
        let record: CertificateRecord = serde_json::from_slice(bytes).map_err(|error| broken(&error))?;
        let serial = path.trim_start_matches("certificate/");
        if record.not_after_ns > now_ns && view.ledger().other(&format!("revoked/{serial}")).is_none() {
            valid.entry(record.peer).or_default().push(serial);
        }
    }
    Ok(valid)
}

fn listed(view: View<'_>, kind: PeerKind, now_ns: i64) -> Result<Vec<PeerListed>, Refusal> {
    let mut peers: BTreeMap<Name, PeerListed> = BTreeMap::new();
    let new = |name: &Name| PeerListed {
        name: name.clone(),
        certificates: 0,
        enrolment: None,
        groups: None,
        assigned: None,
        usage: None,
    };
    for (_, bytes) in view.ledger().others(&format!("enrolment/{kind}/")) {
        let enrolment = Enrolment::decode(bytes).map_err(|error| broken(&error))?;
        let stage = match enrolment.state {
            EnrolmentState::Used => "used",
            EnrolmentState::Open if now_ns >= enrolment.expires_ns => "over",
            EnrolmentState::Open => "open",
        };
        let name = &enrolment.peer.name;
        peers.entry(name.clone()).or_insert_with(|| new(name)).enrolment = Some(stage.to_owned());
    }
    for (peer, serials) in valid_certificates(view, now_ns)?.iter().filter(|(peer, _)| peer.kind == kind) {
        peers.entry(peer.name.clone()).or_insert_with(|| new(&peer.name)).certificates = serials.len();
    }
    if kind == PeerKind::KmipClient {
        for peer in peers.values_mut() {
            let ClientRecord { domain, group } =
                ClientRecord::read(view.ledger().other(&ClientRecord::path(&peer.name).to_string()), &peer.name)
                    .map_err(|error| broken(&error))?;
            peer.assigned = Some(KmipClientAssigned { domain, group });
        }
    }
    if kind == PeerKind::Agent {
        for agent in view.ledger().realm().agents() {
            let groups = AgentGroups { groups: agent.groups.clone(), default_group: agent.default_group.clone() };
            peers.entry(agent.name.clone()).or_insert_with(|| new(&agent.name)).groups = Some(groups);
        }
    }
    Ok(peers.into_values().collect())
}
