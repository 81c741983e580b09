//! The machines of a cell that have joined it.

use capstan_director::Site;
use capstan_keys::api::{PeerId, PeerKind};
use capstan_server::cell::{CellPeerState, cell_members};
use capstan_server::{SEEN_WITHIN, peers_away};

use crate::failure::{Failure, of_cell};

/// A client or a mover with a certificate that holds.
pub(super) struct Member {
    pub(super) kind: &'static str,
    pub(super) name: String,
    /// Whether it waits for orders of a server that runs.
    pub(super) is_connected: bool,
    /// When it was last seen, nanoseconds since 1970, as written at most once a minute.
    pub(super) seen_ns: Option<i64>,
    /// Until when its certificate holds, nanoseconds since 1970.
    pub(super) until_ns: Option<i64>,
    /// The version of its program; empty if it has not said it.
    pub(super) version: String,
}

pub(super) fn members(site: &Site) -> Result<Vec<Member>, Failure> {
    let (is_served, away) = (site.is_served()?, peers_away(site)?);
    let lately_ns = i64::try_from(SEEN_WITHIN.as_nanos()).map_or(0, |within| site.now_ns().saturating_sub(within));
    let mut members = Vec::new();
    for kind in [PeerKind::Client, PeerKind::Mover] {
        let enrolled = cell_members(site, kind).map_err(of_cell)?;
        members.extend(enrolled.into_iter().filter(|member| member.state == CellPeerState::Enrolled).map(|member| {
            let peer = member.name.parse().map(|name| PeerId { kind, name }.to_string()).unwrap_or_default();
            Member {
                kind: kind.as_str(),
                name: member.name,
                // The list of those that are away has an end.
                is_connected: is_served && !away.contains(&peer) && member.seen_ns.is_some_and(|at| at >= lately_ns),
                seen_ns: member.seen_ns,
                until_ns: member.until_ns,
                version: member.version,
            }
        }));
    }
    Ok(members)
}
