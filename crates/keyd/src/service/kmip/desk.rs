//! From a request to what is answered: decided, committed, noted.

use std::net::SocketAddr;
use std::sync::Arc;

use capstan_keys::api::PeerKind;
use capstan_keys::{KeyError, Name};
use capstan_kmip::{ObjectChange, Permitted, RequestDecision, Requester, ResultReason, answer, refuse};
use capstan_service::identity::{Gate, Peer};
use capstan_service::problem::Refusal;
use thiserror::Error;
use zeroize::Zeroizing;

use super::Then;
use super::quota::{Allowance, Exceeded, Kind, Wanted};
use crate::desk::Decided;
use crate::kmip::{Attempt, ClientRecord, ObjectError};
use crate::ledger::{PATH_LEN_MAX, TRANSACTION_BYTES_MAX, TRANSACTION_RECORDS_MAX};
use crate::node::{MajorityContact, Node, NodeError};
use crate::path::Path;
use crate::seal::OVERHEAD_LEN;
use crate::service::Service;
use crate::service::room::Level;
use crate::state::View;

/// What a client is told, and what is done afterwards.
pub(super) struct Said {
    pub(super) response: Zeroizing<Vec<u8>>,
    pub(super) then: Then,
    /// Changes that the answer does not rest on.
    pub(super) notes: Vec<ObjectChange>,
}

/// Why nothing was done.
#[derive(Debug, Error)]
enum Stopped {
    /// Peers, host: the node.
    #[error(transparent)]
    Node(#[from] NodeError),
    /// Peer or host: records of objects.
    #[error(transparent)]
    Object(#[from] ObjectError),
    /// Host: no random numbers.
    #[error(transparent)]
    Random(#[from] KeyError),
    /// Operator: the record of a client.
    #[error("the record of KMIP client {name} cannot be read: take the client out and add it anew")]
    Client {
        /// The client.
        name: Name,
    },
    /// Client: it has taken its share.
    #[error(transparent)]
    Exceeded(#[from] Exceeded),
    /// Client: it asks for more than is committed at once.
    #[error(
        "the batch changes {records} objects of {bytes} bytes; {TRANSACTION_RECORDS_MAX} of {TRANSACTION_BYTES_MAX} bytes are changed \
         together: ask for less at a time"
    )]
    TooMuch { records: usize, bytes: usize },
}

impl Service {
    /// Answers a request. There is always something to say.
    pub(super) async fn answer_kmip(&self, gate: &Gate, peer: &Peer, from: SocketAddr, request: &[u8]) -> Said {
        let now_s = (self.clock)() / 1_000_000_000;
        let refused = |reason, why: &str| refuse(request, reason, why, now_s);
        let (mut decided, standing, mut then) = if let Err(turned_away) = gate.admits(peer, from) {
            let decided = refused(ResultReason::AuthenticationNotSuccessful, &turned_away.to_string());
            (decided, MajorityContact::Current, Then::HangUp)
        } else if peer.id.kind != PeerKind::KmipClient {
            let why = format!("{} is no KMIP client: enrol one (`keyd kmip-clients add`)", peer.id);
            (refused(ResultReason::AuthenticationNotSuccessful, &why), MajorityContact::Current, Then::HangUp)
        } else {
            match self.node() {
                Ok(node) => {
                    let decided = decide(self.allowance(), &node, &peer.id.name, request).await;
                    let (decided, standing) = decided.unwrap_or_else(|stopped| {
                        tracing::warn!(%peer.id, error = %stopped, "a KMIP request was not done");
                        (refused(stopped.reason(), &stopped.to_string()), node.standing())
                    });
                    (decided, standing, Then::GoOn)
                }
                Err(Refusal(problem)) => {
                    (refused(ResultReason::GeneralFailure, &problem.detail), MajorityContact::Current, Then::GoOn)
                }
            }
        };
        if self.note_acts(peer, from, &decided, standing).await.is_err() {
            let why = "this node cannot write its audit log, so nothing is answered that it should note: make room on its disk, or ask another";
            decided = refused(ResultReason::GeneralFailure, why);
            then = Then::HangUp;
        }
        let RequestDecision { response, notes, .. } = decided;
        Said { response, then, notes }
    }

    /// How many objects and bytes a domain may have.
    pub(in crate::service) fn domain_quota(&self) -> (u64, u64) {
        self.quotas.of_domain(self.room.quota_bytes(self.settings.etcd.quota_bytes))
    }

    fn allowance(&self) -> Allowance<'_> {
        Allowance { quotas: &self.quotas, room: &self.room, quota_bytes: self.settings.etcd.quota_bytes }
    }

    /// Commits what the answers did not rest on, as far as that is easy: each by itself, once, in touch with the
    /// majority.
    pub(super) async fn commit_notes(&self, client: &Name, notes: Vec<ObjectChange>) {
        let Some(node) = self.open_node() else { return };
        for note in notes {
            let written = (note.object().encode().len() + 2 * PATH_LEN_MAX) as u64;
            let wanted = Wanted { objects: 0, grows: 0, written, kind: Kind::Takes };
            let allowance = self.allowance();
            if allowance.room.level() >= Level::Reserved || allowance.take(client, wanted).is_err() {
                return;
            }
            let ObjectChange::Replace { expected, .. } = note else { continue };
            let path = Path::Kmip(note.object().uid.clone());
            let noted = node.change(|view| {
                if view.ledger().mark(&path).revision != expected {
                    return Ok(Decided::records(Vec::new(), Vec::new()));
                }
                let puts =
                    view.ledger().kmip().records(std::slice::from_ref(&note), Attempt::random()?, node.keys())?;
                Ok::<_, Stopped>(Decided::records(puts, Vec::new()))
            });
            if let Err(error) = noted.await {
                tracing::debug!(%error, "that a key was read is not with the ledger");
            }
        }
    }
}

/// Decides a request, and commits what it changes.
async fn decide(
    allowance: Allowance<'_>,
    node: &Arc<Node>,
    client: &Name,
    request: &[u8],
) -> Result<(RequestDecision, MajorityContact), Stopped> {
    let look = |view: View<'_>| {
        let requester = requester(view, client)?;
        Ok::<_, Stopped>(answer(
            request,
            &requester,
            &view.ledger().kmip().open(node.keys()),
            node.now_ns() / 1_000_000_000,
        ))
    };
    // Every attempt, not the last alone: the answer of an earlier one may be the one that was lost, and be heard of
    // late.
    let mut tried: Vec<(RequestDecision, Attempt)> = Vec::new();
    let mut taken = false;
    let changed = node.change(|view| {
        let nothing = || Decided::records(Vec::new(), Vec::new());
        let objects = view.ledger().kmip();
        if let Some(done) = tried.iter().position(|(decided, attempt)| objects.has(*attempt, &decided.changes)) {
            // It was committed, and its answer was lost.
            tried.truncate(done + 1);
            return Ok(nothing());
        }
        if let Some((decided, attempt)) = tried.last()
            && decided.changes.iter().all(|change| may_be_under_way(view, change))
        {
            // It may have been committed and not have come to this node's copy yet. The very same once more is a
            // conflict then, and harms nothing; decided anew it would be done twice.
            return Ok(Decided::records(objects.records(&decided.changes, *attempt, node.keys())?, Vec::new()));
        }
        let (decided, attempt) = (look(view)?, Attempt::random()?);
        let puts = objects.records(&decided.changes, attempt, node.keys())?;
        check_size(&puts)?;
        let wanted = wanted(view, &decided, &puts);
        if !puts.is_empty() {
            let domain = of_client(view, client)?.domain.to_string();
            allowance.check(&domain, objects.usage(&domain), wanted)?;
        }
        // What is decided anew since others were faster is not taken twice.
        if !puts.is_empty() && !std::mem::replace(&mut taken, true) {
            allowance.take(client, wanted)?;
        }
        tried.push((decided, attempt));
        Ok::<_, Stopped>(Decided::records(puts, Vec::new()))
    });
    match (changed.await, tried.pop()) {
        (Ok(()), Some((decided, _))) => Ok((decided, MajorityContact::Current)),
        (Err(Stopped::Node(error @ NodeError::NeedsMajority { .. })), None) => {
            let group = node.view(|view| of_client(view, client))?.group;
            let decided = node.view(look)?;
            // Cut off: what changes nothing is answered from what this node knows, for as long as the policy says.
            node.check_isolated(&group)?;
            if decided.changes.is_empty() { Ok((decided, node.standing())) } else { Err(error.into()) }
        }
        (Err(stopped), _) => Err(stopped),
        // It is not done without having been decided.
        (Ok(()), None) => Err(NodeError::NeedsMajority { source: None }.into()),
    }
}

/// What a decision would take.
fn wanted(view: View<'_>, decided: &RequestDecision, puts: &[(Path, Vec<u8>)]) -> Wanted {
    let objects = view.ledger().kmip();
    let len = |len: usize| i64::try_from(len).unwrap_or(i64::MAX);
    let mut wanted = Wanted { objects: 0, grows: 0, written: 0, kind: Kind::of(&decided.changes, &decided.acts) };
    for (change, (_, record)) in decided.changes.iter().zip(puts) {
        wanted.objects += u64::from(matches!(change, ObjectChange::Insert { .. }));
        wanted.grows += len(record.len()) - len(objects.record_len(&change.object().uid));
        wanted.written += (record.len() + OVERHEAD_LEN + 2 * PATH_LEN_MAX) as u64;
    }
    wanted
}

/// Whether a change that was tried fits what this node knows: nobody else has changed the object since.
fn may_be_under_way(view: View<'_>, change: &ObjectChange) -> bool {
    let expected = match change {
        ObjectChange::Insert { .. } => 0,
        ObjectChange::Replace { expected, .. } | ObjectChange::Destroy { expected, .. } => *expected,
    };
    view.ledger().mark(&Path::Kmip(change.object().uid.clone())).revision == expected
}

fn of_client(view: View<'_>, client: &Name) -> Result<ClientRecord, Stopped> {
    ClientRecord::read(view.ledger().other(&ClientRecord::path(client).to_string()), client)
        .map_err(|_| Stopped::Client { name: client.clone() })
}

/// Whose objects a client sees.
fn requester(view: View<'_>, client: &Name) -> Result<Requester, Stopped> {
    Ok(Requester { domain: of_client(view, client)?.domain.to_string(), permitted: Permitted::All })
}

/// A request of 256 items may change more than a ledger commits at once; of reads it does not matter how many there
/// are.
fn check_size(puts: &[(Path, Vec<u8>)]) -> Result<(), Stopped> {
    let of_record = |(_, plaintext): &(Path, Vec<u8>)| plaintext.len() + OVERHEAD_LEN + 2 * PATH_LEN_MAX;
    let (records, bytes) = (puts.len(), puts.iter().map(of_record).sum());
    if records > TRANSACTION_RECORDS_MAX || bytes > TRANSACTION_BYTES_MAX {
        return Err(Stopped::TooMuch { records, bytes });
    }
    Ok(())
}

impl Stopped {
    fn reason(&self) -> ResultReason {
        match self {
            Self::TooMuch { .. } => ResultReason::InvalidMessage,
            // There is no reason for this in any version; 2.x has one for the rate alone.
            Self::Exceeded(_) => ResultReason::GeneralFailure,
            Self::Node(_) | Self::Object(_) | Self::Random(_) | Self::Client { .. } => ResultReason::GeneralFailure,
        }
    }
}

#[cfg(test)]
mod tests;
