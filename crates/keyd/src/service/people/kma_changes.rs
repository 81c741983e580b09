//! What becomes of nodes when a quorum has approved it: removed, moved, let to unlock themselves.

use capstan_keys::Name;
use capstan_keys::api::{PeerId, PeerKind, Problem};
use capstan_service::problem::Refusal;

use super::super::autonomous::AutonomousRecord;
use super::super::proof::{proof_path, proved_up_to};
use super::super::registrar::{enrolment_path, host_of, joining_path};
use super::super::wiped::wiped_up_to;
use super::carrying::Carrying;
use super::peers::{REVOKED_AT_ONCE, revoking, valid_certificates};
use super::{broken, sites, time};
use crate::desk::Decided;
use crate::path::Path;
use crate::record::{KmaRecord, RemovedKma};
use crate::state::View;

/// What it is that a node may unlock itself. The node does the rest when it reads the record.
pub(super) fn autonomous(on: Carrying<'_>, name: &Name) -> Result<Decided, Refusal> {
    let Carrying { view, node, id, by, now_ns } = on;
    known(view, name)?;
    if AutonomousRecord::of(view, name, node.epoch()).is_some_and(|record| record.allowed) {
        return Err(Refusal::conflict(format!("Node {name} unlocks itself already.")));
    }
    let (by, request, epoch) = (by.clone(), id.to_string(), node.epoch());
    let record = AutonomousRecord { allowed: true, by, request, epoch, since_ns: now_ns };
    let record = serde_json::to_vec(&record).map_err(|error| broken(&error))?;
    let mut decided = Decided::records(vec![(AutonomousRecord::path(name), record)], Vec::new());
    // A node that is removed meanwhile is not let.
    decided.rests_on.push(Path::Kma(name.clone()));
    Ok(decided)
}

/// What the removal of a node is, or why it cannot be.
pub(super) fn removed(on: Carrying<'_>, name: &Name, remaining: &str) -> Result<Decided, Refusal> {
    let Carrying { view, node, now_ns, .. } = on;
    let ledger = view.ledger();
    let was = known(view, name)?.clone();
    if ledger.kmas().len() == 1 {
        return Err(Refusal::conflict(format!(
            "{name} is the only node: with it all keys would be gone. Add another first (`keyd kmas add`)."
        )));
    }
    if name == node.name() {
        // A client that may ask another does so.
        let detail = format!("{name} does not remove itself: another node must be there to go on. Ask that one.");
        return Err(Problem::new(503, "ask-another", "Another node must do this", detail).into());
    }
    if described(view, name) != remaining {
        return Err(Refusal::conflict("The nodes are others than when this was asked for: ask again."));
    }
    let peer = PeerId { kind: PeerKind::Kma, name: name.clone() };
    let certificates = valid_certificates(view, now_ns)?;
    let of_peer = certificates.get(&peer).map(Vec::as_slice).unwrap_or_default();
    if of_peer.len() > REVOKED_AT_ONCE {
        return Err(Refusal::conflict(format!("{peer} has {} certificates, more than any node.", of_peer.len())));
    }
    // As far as its disks hold no key that is destroyed: neither in its replica nor in a journal.
    let held = ledger.held(name).max(proved_up_to(view, name)).min(wiped_up_to(view, name));
    let record = RemovedKma {
        was,
        held,
        epoch: node.epoch(),
        by: on.by.clone(),
        removed_ns: now_ns,
        destroyed_ns: None,
        met_ns: None,
    };
    let record = serde_json::to_vec(&record).map_err(|error| broken(&error))?;
    let mut decided = revoking(of_peer, on.by, now_ns);
    decided.puts.insert(0, (Path::removed(name), record));
    decided.removes.push(Path::Kma(name.clone()));
    let beside = [Path::Held(name.clone()), proof_path(name), enrolment_path(&peer), joining_path(&peer)];
    decided.removes.extend(beside.into_iter().filter(|path| ledger.mark(path).revision != 0));
    // Two removals, each of which leaves the other's node, must not both be made.
    decided.rests_on.extend(ledger.kmas().keys().filter(|kma| *kma != name).cloned().map(Path::Kma));
    Ok(decided)
}

/// What the move of a node is, or why it cannot be.
pub(super) fn moved(on: Carrying<'_>, name: &Name, address: &str, site: &str) -> Result<Decided, Refusal> {
    let was = known(on.view, name)?;
    checked_host(address)?;
    if was.address == address && was.site == site {
        return Err(Refusal::conflict(format!("Node {name} is there already.")));
    }
    let other = on.view.ledger().kmas().iter().find(|(other, record)| *other != name && record.address == address);
    if let Some((other, _)) = other {
        return Err(Refusal::conflict(format!("At {address} there is node {other}.")));
    }
    let at_site = sites::check(on.view, site)?;
    let record = KmaRecord { address: address.to_owned(), site: site.to_owned(), joined_ns: was.joined_ns };
    let record = serde_json::to_vec(&record).map_err(|error| broken(&error))?;
    let mut decided = Decided::records(vec![(Path::Kma(name.clone()), record)], Vec::new());
    decided.rests_on.extend(at_site);
    Ok(decided)
}

pub(super) fn checked_host(address: &str) -> Result<String, Refusal> {
    let is_port = address.rsplit_once(':').is_some_and(|(_, port)| port.parse::<u16>().is_ok());
    let host = host_of(address).filter(|host| is_port && !host.is_empty());
    host.ok_or_else(|| Refusal::malformed(format!("{address:?} is no address: give host and port.")))
}

pub(super) fn known<'a>(view: View<'a>, name: &Name) -> Result<&'a KmaRecord, Refusal> {
    if let Some(removed) = view.ledger().removed(name) {
        let (when, by) = (time(removed.removed_ns), removed.by);
        return Err(Refusal::conflict(format!("Node {name} was removed on {when}, as {by} had asked.")));
    }
    let unknown = || Refusal::not_found(format!("There is no node {name}: `keyd kmas list` names those there are."));
    view.ledger().kmas().get(name).ok_or_else(unknown)
}

/// Who remains without a node, in words.
pub(super) fn described(view: View<'_>, without: &Name) -> String {
    let remaining = view.ledger().kmas().iter().filter(|(name, _)| *name != without);
    let said = remaining.map(|(name, record)| match record.site.as_str() {
        "" => name.to_string(),
        site => format!("{name} ({site})"),
    });
    said.collect::<Vec<_>>().join(", ")
}
