//! How a cluster looks from here: every node asked by itself, at the same time.

use std::thread;
use std::time::Duration;

use super::known_nodes::KnownNodes;
use super::place::ClusterPlace;
use super::{ClusterError, Identity, IdentityError, NodeClient, PeerCertificate};
use crate::api::{KmaMember, KmaState};

/// How long a node may take to answer.
const PATIENCE: Duration = Duration::from_secs(5);

/// A cluster, as this machine sees it.
#[derive(Debug)]
pub struct ClusterStatus {
    /// Who this machine is for it.
    pub certificate: PeerCertificate,
    /// The nodes that it has, and addresses that were given and none of them calls its own.
    pub nodes: Vec<NodeStatus>,
}

/// A node, as this machine sees it.
#[derive(Debug)]
pub struct NodeStatus {
    /// Its name; none for an address of which no node that answers knows.
    pub name: Option<String>,
    /// Its site.
    pub site: String,
    /// Where it was asked.
    pub address: String,
    /// How the nodes that answer see it; the best that one of them says.
    pub state: KmaState,
    /// Whether it answers here, or why not.
    pub answer: Result<(), ClusterError>,
}

impl ClusterStatus {
    /// Asks every node there is. Takes as long as the slowest is waited for, some seconds.
    pub(super) fn ask(place: &ClusterPlace) -> Result<Self, IdentityError> {
        let identity = Identity::load(&place.identity)?;
        let mut addresses = place.nodes.clone();
        let known = KnownNodes::beside(&place.identity, identity.certificate().cluster).nodes();
        addresses.extend(known.into_iter().map(|node| node.address).filter(|known| !place.nodes.contains(known)));
        let mut asked = ask_each(&identity, addresses);
        let named = members(&asked);
        let is_asked = |member: &&KmaMember| asked.iter().any(|(address, _)| *address == member.address);
        let others = named.iter().filter(|member| !is_asked(member)).map(|member| member.address.clone()).collect();
        asked.extend(ask_each(&identity, others));
        // The others have told of themselves by now.
        let members = members(&asked);
        let nodes = asked.into_iter().map(|(address, answer)| {
            let member = members.iter().find(|member| member.address == address);
            NodeStatus {
                name: member.map(|member| member.name.clone()),
                site: member.map(|member| member.site.clone()).unwrap_or_default(),
                state: member.map_or(KmaState::Unknown, |member| member.state),
                address,
                answer: answer.map(drop),
            }
        });
        Ok(Self { certificate: identity.certificate().clone(), nodes: nodes.collect() })
    }
}

impl KmaState {
    /// How the nodes at these addresses are, as each says of itself.
    pub fn of_each(identity: &Identity, addresses: Vec<String>) -> Vec<(String, Result<Self, ClusterError>)> {
        let own = |(address, answer): Asked| {
            // A node names itself first.
            let state = answer.map(|members| members.first().map_or(Self::Unknown, |own| own.state));
            (address, state)
        };
        ask_each(identity, addresses).into_iter().map(own).collect()
    }
}

/// What a node that was asked said of all nodes.
type Asked = (String, Result<Vec<KmaMember>, ClusterError>);

/// The nodes that there are, each as the best that one of them says.
fn members(asked: &[Asked]) -> Vec<KmaMember> {
    let mut members: Vec<KmaMember> = Vec::new();
    for told in asked.iter().filter_map(|(_, answer)| answer.as_ref().ok()).flatten() {
        match members.iter_mut().find(|known| known.address == told.address) {
            Some(known) => known.state = better(known.state, told.state),
            None => members.push(told.clone()),
        }
    }
    members
}

fn ask_each(identity: &Identity, addresses: Vec<String>) -> Vec<Asked> {
    let ask = |address: String| {
        let client = NodeClient::new(identity, &address, PATIENCE);
        let members = client.and_then(|client| client.get("/v1/kmas"));
        (address, members)
    };
    thread::scope(|scope| {
        let asking: Vec<_> = addresses.into_iter().map(|address| scope.spawn(move || ask(address))).collect();
        asking.into_iter().filter_map(|thread| thread.join().ok()).collect()
    })
}

/// Who serves for one node and is unheard of by another serves.
fn better(one: KmaState, other: KmaState) -> KmaState {
    match (one, other) {
        (KmaState::Serving, _) | (_, KmaState::Serving) => KmaState::Serving,
        (KmaState::Locked, _) | (_, KmaState::Locked) => KmaState::Locked,
        (KmaState::Unknown, KmaState::Unknown) => KmaState::Unknown,
    }
}
