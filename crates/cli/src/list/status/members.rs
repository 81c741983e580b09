//! The machines of a cell that have joined it.

use capstan_director::Site;
use capstan_keys::api::PeerKind;
use capstan_server::cell::{CellPeer, CellPeerState, cell_members, client_of_servers_name};
use capstan_server::peers_there_twice;

use crate::failure::{Failure, of_cell};

/// A client or a mover that has joined, and was not revoked.
pub(super) struct Member {
    pub(super) kind: &'static str,
    pub(super) name: String,
    /// Whether it waits for orders of a server that runs.
    pub(super) is_connected: bool,
    /// When it was last seen, nanoseconds since 1970, as written at most once a minute.
    pub(super) seen_ns: Option<i64>,
    /// Until when its certificate holds or held, nanoseconds since 1970; none while it is to join again.
    pub(super) until_ns: Option<i64>,
    /// The version of its program; empty if it has not said it.
    pub(super) version: String,
}

pub(super) fn members(site: &Site) -> Result<Vec<Member>, Failure> {
    let mut members = Vec::new();
    for kind in [PeerKind::Client, PeerKind::Mover] {
        let enrolled = cell_members(site, kind).map_err(of_cell)?;
        members.extend(enrolled.into_iter().filter(has_joined).map(|member| Member {
            kind: kind.as_str(),
            name: member.name,
            is_connected: member.is_connected,
            seen_ns: member.seen_ns,
            until_ns: member.until_ns.filter(|_| member.state != CellPeerState::Waiting),
            version: member.version,
        }));
    }
    Ok(members)
}

/// Members that are taken for others, each in a line that says what to do.
pub(super) fn mistaken(site: &Site) -> Result<Vec<String>, Failure> {
    // What a server that is gone knew is over.
    let mut mistaken = if site.is_served()? { peers_there_twice(site)? } else { Vec::new() };
    mistaken.extend(client_of_servers_name(site).map_err(of_cell)?);
    Ok(mistaken)
}

/// Whether it has joined and is expected to be there: also with a certificate that has ended, which is as bad as any
/// other reason why it does not come.
fn has_joined(member: &CellPeer) -> bool {
    match member.state {
        CellPeerState::Enrolled => true,
        CellPeerState::Revoked => false,
        // An enrolment that nobody has used has no address.
        CellPeerState::Expired | CellPeerState::Waiting => member.address.is_some(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The alert of a client that had been away for long ended with its certificate.
    #[test]
    fn a_member_whose_certificate_has_ended_is_still_one() {
        let member = |state, address: Option<&str>| CellPeer {
            name: "tern".to_owned(),
            state,
            seen_ns: None,
            address: address.map(str::to_owned),
            version: String::new(),
            until_ns: None,
            is_connected: false,
        };
        let joined = Some("192.0.2.7");
        assert!(has_joined(&member(CellPeerState::Enrolled, joined)));
        assert!(has_joined(&member(CellPeerState::Expired, joined)));
        assert!(has_joined(&member(CellPeerState::Waiting, joined)), "it is enrolled again");
        assert!(!has_joined(&member(CellPeerState::Revoked, joined)));
        assert!(!has_joined(&member(CellPeerState::Waiting, None)), "nobody has used the enrolment");
        assert!(!has_joined(&member(CellPeerState::Expired, None)));
    }
}
