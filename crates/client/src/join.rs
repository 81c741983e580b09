//! A machine joins a cell.

use capstan_keys::Name;
use capstan_keys::api::PeerId;
use capstan_keys::cluster::{EnrolmentPassphrase, Identity};

use crate::orders::ListenersAnswer;
use crate::server_link::{ServerLink, explained};
use crate::{ClientError, MemberState, settings};

/// Joins the cell whose server takes enrolments at `address` (host and port), as the client or mover `name`, and keeps
/// the identity and where the server is. [`MemberState::prepare`] comes first.
///
/// # Errors
/// [`ClientError::Away`], [`ClientError::Refused`] or [`ClientError::WrongPassphrase`] says why there is no
/// certificate; [`ClientError::OtherTime`] that it does not hold at `now_ns`. Otherwise the state directory cannot be
/// written.
pub fn join(
    state: &MemberState,
    address: &str,
    name: &Name,
    passphrase: &EnrolmentPassphrase,
    now_ns: i64,
) -> Result<Identity, ClientError> {
    let peer = PeerId { kind: state.kind(), name: name.clone() };
    let enrolled = capstan_keys::cluster::enrol(address, peer.clone(), passphrase);
    let identity = enrolled.map_err(|error| explained(error, address, &peer))?;
    if !identity.certificate().holds(now_ns) {
        return Err(ClientError::OtherTime { peer });
    }
    // The enrolment is used up by now: what it gave is kept before anything else can fail.
    identity.save(&state.identity_file())?;
    settings::write_default(state)?;
    state.keep_addresses(&[members_address(&identity, address)])?;
    Ok(identity)
}

/// Where the server listens for its members: at the same host, at the port that it names. One that does not answer now
/// is taken to have the port before that of enrolments, which is the default.
fn members_address(identity: &Identity, address: &str) -> String {
    let (host, port) = address.rsplit_once(':').unwrap_or((address, ""));
    let asked = ServerLink::new(identity, address).and_then(|link| link.get::<ListenersAnswer>("/v1/listeners"));
    let usual = || port.parse::<u16>().ok()?.checked_sub(1);
    let members = asked.map(|answer| answer.members_port).ok().or_else(usual).unwrap_or_default();
    format!("{host}:{members}")
}
