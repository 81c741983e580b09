//! What people do about the members of a cell, its clients and movers: open an enrolment, list them, revoke one.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::Duration;

use capstan_catalog::{EnrolmentRow, PeerRow};
use capstan_director::Site;
use capstan_keys::api::{PeerId, PeerKind};
use capstan_keys::cluster::EnrolmentPassphrase;
use capstan_service::enrolment::{Enrolment, EnrolmentState};

use super::authority::{self, host};
use super::{CellAddresses, CellError};
use crate::look::{SEEN_WITHIN, peers_away};

/// The catalog's fact that says where the server that runs listens for machines that join.
const ENROLMENT_FACT: &str = "enrolment listener of the server";

/// An enrolment that waits for its client or mover.
pub struct OpenedEnrolment {
    /// Whom it is for.
    pub peer: PeerId,
    /// What whoever enrols has to know; it is shown once.
    pub passphrase: EnrolmentPassphrase,
    /// When it ends, nanoseconds since 1970.
    pub expires_ns: i64,
}

/// What is known of a client or mover of the cell.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CellPeer {
    /// Its name.
    pub name: String,
    /// Whether it is let in.
    pub state: CellPeerState,
    /// When it was last seen, nanoseconds since 1970.
    pub seen_ns: Option<i64>,
    /// The address that it came from last.
    pub address: Option<String>,
    /// The version of its program, as it said last; empty if it has not.
    pub version: String,
    /// Until when its certificate holds, nanoseconds since 1970; of one that waits, until when it can enrol.
    pub until_ns: Option<i64>,
    /// Whether it waits for orders of a server that runs.
    pub is_connected: bool,
}

/// Whether a client or mover is let in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CellPeerState {
    /// It has a certificate that holds.
    Enrolled,
    /// Its enrolment is open, and nobody has used it.
    Waiting,
    /// Its certificate was revoked.
    Revoked,
    /// Its certificate or its enrolment has ended.
    Expired,
}

/// Opens the enrolment of a client or mover, in place of one that is open.
///
/// # Errors
/// [`CellError::NameTaken`] if one of that kind and name has a certificate; [`CellError::ServersName`] if a client is
/// to have the name of the server's machine. Otherwise the state directory cannot be written.
pub fn enrol_member(site: &Site, peer: &PeerId, valid: Duration) -> Result<OpenedEnrolment, CellError> {
    let now_ns = site.now_ns();
    // Objects are told apart by the names of clients: one of that name would get back the server's own.
    if peer.kind == PeerKind::Client && peer.name.as_str() == site.client() {
        return Err(CellError::ServersName { name: peer.name.to_string() });
    }
    drop(authority::open_or_create(site.dir(), now_ns)?);
    let holds = |row: &PeerRow| row.revoked_ns.is_none() && row.expires_ns > now_ns;
    if site.catalog().peers_named(peer.kind.as_str(), peer.name.as_str())?.iter().any(holds) {
        return Err(CellError::NameTaken(peer.clone()));
    }
    let passphrase = EnrolmentPassphrase::random()?;
    let valid_ns = i64::try_from(valid.as_nanos()).unwrap_or(i64::MAX);
    let expires_ns = now_ns.saturating_add(valid_ns);
    let enrolment = Enrolment::open(peer.clone(), Vec::new(), &passphrase, expires_ns)?;
    site.put_enrolment(&EnrolmentRow { peer: peer.to_string(), record: enrolment.encode().to_vec() })?;
    Ok(OpenedEnrolment { peer: peer.clone(), passphrase, expires_ns })
}

/// What is wrong and what to do, if a client that is not revoked has the name of the server's own machine, which was
/// renamed since it joined; it stays the same up to its first `: `.
///
/// # Errors
/// The catalog cannot be read.
pub fn client_of_servers_name(site: &Site) -> Result<Option<String>, CellError> {
    let name = site.client();
    let rows = site.catalog().peers_named(PeerKind::Client.as_str(), name)?;
    let is_there = rows.iter().any(|row| row.revoked_ns.is_none());
    Ok(is_there.then(|| {
        format!(
            "client {name} has the name of the server's own machine: its runs read the disk of the server instead, it is \
             shown no backups, and restorers of it get the server's. If the server had another name before, write that \
             as `client` into its capstan.toml, and start it again. If \
             not, run `capstan client revoke {name}`, enrol the client under another name, and change its policies"
        )
    }))
}

/// Where machines join, as another machine can type it: where the server that runs listens, or else what the settings
/// say. `None` if neither is known.
///
/// # Errors
/// The catalog cannot be read, or the settings name no address.
pub fn enrolment_address(site: &Site) -> Result<Option<String>, CellError> {
    let served = if site.is_served()? { site.catalog().fact(ENROLMENT_FACT)? } else { None };
    let address = match served.and_then(|text| text.parse().ok()) {
        Some(address) => Some(address),
        None => CellAddresses::of(&site.config().server)?.map(|addresses| addresses.enrolment),
    };
    Ok(address.map(|at: SocketAddr| match at.ip().is_unspecified() {
        true => format!("{}:{}", host(), at.port()),
        false => at.to_string(),
    }))
}

/// Notes where machines join.
pub(super) fn note_enrolment_address(site: &Site, address: SocketAddr) -> Result<(), CellError> {
    let (mut catalog, text) = (site.catalog(), address.to_string());
    if catalog.fact(ENROLMENT_FACT)?.as_ref() != Some(&text) {
        catalog.put_fact(ENROLMENT_FACT, &text)?;
    }
    Ok(())
}

/// The clients or the movers of the cell, by name.
///
/// # Errors
/// The catalog cannot be read.
pub fn cell_members(site: &Site, kind: PeerKind) -> Result<Vec<CellPeer>, CellError> {
    let now_ns = site.now_ns();
    let (peers, enrolments) = {
        let catalog = site.catalog();
        (catalog.peers()?, catalog.enrolments()?)
    };
    let mut members: BTreeMap<String, CellPeer> = BTreeMap::new();
    // The newest certificate of each comes last.
    for row in peers.into_iter().filter(|row| row.kind == kind.as_str()) {
        let state = match row.revoked_ns {
            Some(_) => CellPeerState::Revoked,
            None if row.expires_ns <= now_ns => CellPeerState::Expired,
            None => CellPeerState::Enrolled,
        };
        let known = members.get(&row.name);
        // A renewed certificate may not have been used yet, and an address is there from the enrolment on.
        let seen = known.and_then(|known| Some((known.seen_ns?, known.address.clone())));
        let (seen_ns, address) = match (row.seen_ns, seen) {
            (Some(at), Some((before, address))) if before > at => (Some(before), address),
            (None, Some((before, address))) => (Some(before), address),
            (at, _) => (at, Some(row.address)),
        };
        let known = known.map(|known| known.version.clone()).filter(|_| row.version.is_empty());
        let (name, version) = (row.name.clone(), known.unwrap_or(row.version));
        let (until_ns, is_connected) = (Some(row.expires_ns), false);
        members.insert(row.name, CellPeer { name, state, seen_ns, address, version, until_ns, is_connected });
    }
    for row in enrolments {
        let Ok(enrolment) = Enrolment::decode(&row.record) else { continue };
        if enrolment.peer.kind != kind || enrolment.state == EnrolmentState::Used {
            continue;
        }
        let is_open = now_ns < enrolment.expires_ns;
        let state = if is_open { CellPeerState::Waiting } else { CellPeerState::Expired };
        let name = enrolment.peer.name.to_string();
        let (until_ns, version) = (Some(enrolment.expires_ns), String::new());
        let (seen_ns, address, is_connected) = (None, None, false);
        let waiting = CellPeer { name: name.clone(), state, seen_ns, address, version, until_ns, is_connected };
        let member = members.entry(name).or_insert(waiting);
        if is_open && member.state != CellPeerState::Enrolled {
            (member.state, member.until_ns) = (CellPeerState::Waiting, Some(enrolment.expires_ns));
        }
    }
    // The list of those that are away has an end.
    let (is_served, away) = (site.is_served()?, peers_away(site)?);
    let lately_ns = i64::try_from(SEEN_WITHIN.as_nanos()).map_or(0, |within| now_ns.saturating_sub(within));
    for member in members.values_mut().filter(|member| is_served && member.state == CellPeerState::Enrolled) {
        let is_lately = member.seen_ns.is_some_and(|at| at >= lately_ns);
        member.is_connected = is_lately && !away.contains(&format!("{kind}/{}", member.name));
    }
    Ok(members.into_values().collect())
}

/// Revokes a client or mover: its certificates let nobody in any more, and its enrolment is void.
///
/// # Errors
/// [`CellError::UnknownMember`] if there is nothing to revoke. Otherwise the state directory cannot be written.
pub fn revoke_member(site: &Site, peer: &PeerId) -> Result<(), CellError> {
    match site.revoke_peer(peer.kind.as_str(), peer.name.as_str())? {
        0 => {
            let known = cell_members(site, peer.kind)?;
            let is_known = known.iter().any(|member| member.name == peer.name.as_str());
            let peer = peer.clone();
            Err(if is_known { CellError::NothingToRevoke(peer) } else { CellError::UnknownMember(peer) })
        }
        _ => Ok(()),
    }
}
