//! The cluster's side of an enrolment, as a state machine over messages: no sockets and no store, so that tests and
//! fuzzers can be the other side.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use capstan_keys::api::{
    Base64, BeginEnrolment, ClusterId, ConversationId, EnrolmentBegun, EnrolmentFinished, FinishEnrolment,
    IssuedCertificate, PeerId, Problem,
};
use capstan_keys::cluster::{PakeError, PakeKeys, PakeServer};
use futures_util::future::BoxFuture;

use super::{Enrolment, EnrolmentId};
use crate::audit::AuditOrigin;
use crate::identity::Peer;

/// A client sends the third message at once; a person has typed before the first.
const AGE_MAX: Duration = Duration::from_secs(30);
/// Conversations that may be under way at a time, at some hundred bytes each.
const CONVERSATIONS_MAX: usize = 1024;

/// What enrolment and renewal need of the cluster's state. The program keeps it; nothing is answered before it says
/// so. What it does, and for whom from where, it notes in the audit log.
pub trait Registrar: Send + Sync + 'static {
    /// Finds the enrolment of `peer` and takes a try off it ([`Enrolment::take_try`]); the majority has that on disk
    /// when this returns.
    ///
    /// # Errors
    /// There is no such enrolment, it is over, or it is tried too often.
    fn take_try<'a>(&'a self, peer: &'a PeerId, from: AuditOrigin) -> BoxFuture<'a, Result<Enrolment, Problem>>;

    /// Puts on record that a try came to nothing: whoever made it did not know the passphrase of `peer`.
    ///
    /// # Errors
    /// It cannot be put on record.
    fn not_proved<'a>(&'a self, peer: &'a PeerId, from: AuditOrigin) -> BoxFuture<'a, Result<(), Problem>>;

    /// Uses the enrolment `begun` of `peer` up ([`Enrolment::use_up`]), unless it was replaced meanwhile, and makes out
    /// a certificate over the key of `request`, in one transaction.
    ///
    /// # Errors
    /// The enrolment is over or was replaced, or nothing can be put on record.
    fn admit<'a>(
        &'a self,
        peer: &'a PeerId,
        begun: EnrolmentId,
        request: &'a [u8],
        from: AuditOrigin,
    ) -> BoxFuture<'a, Result<IssuedCertificate, Problem>>;

    /// Makes out another certificate for a peer that has one.
    ///
    /// # Errors
    /// The certificate was revoked or holds for long enough, or nothing can be put on record.
    fn renew<'a>(
        &'a self,
        peer: &'a Peer,
        request: &'a [u8],
        from: AuditOrigin,
    ) -> BoxFuture<'a, Result<IssuedCertificate, Problem>>;
}

/// After the second message: waits for the client's proof.
pub struct Conversation {
    exchange: PakeServer,
    peer: PeerId,
    enrolment: EnrolmentId,
}

/// After the third: the client has proved that it knows the passphrase.
pub struct Proved {
    /// Who it is.
    pub peer: PeerId,
    /// Whose passphrase it knows.
    pub enrolment: EnrolmentId,
    /// Its signing request.
    pub request: Vec<u8>,
    keys: PakeKeys,
}

impl Conversation {
    /// Who it says it is.
    pub fn peer(&self) -> &PeerId {
        &self.peer
    }

    /// Answers the first message, over an enrolment that a try was taken off.
    ///
    /// # Errors
    /// The message is not one of a client.
    pub fn begin(
        enrolment: &Enrolment,
        cluster: ClusterId,
        conversation: ConversationId,
        question: &BeginEnrolment,
    ) -> Result<(Self, EnrolmentBegun), PakeError> {
        let peer = enrolment.peer.clone();
        let (exchange, message) = PakeServer::begin(&enrolment.verifier, &peer, &cluster, &question.message.0)?;
        Ok((
            Self { exchange, peer, enrolment: enrolment.id() },
            EnrolmentBegun { conversation, cluster, message: Base64(message) },
        ))
    }

    /// Checks the client's proof and opens what it wants to have certified. There is no second go: a proof that fails
    /// ends the conversation.
    ///
    /// # Errors
    /// The client does not know the passphrase, or its request was altered.
    pub fn finish(self, question: &FinishEnrolment) -> Result<Proved, PakeError> {
        let keys = self.exchange.finish(&question.message.0)?;
        let request = keys.open_request(&question.sealed_request.0)?;
        Ok(Proved { peer: self.peer, enrolment: self.enrolment, request, keys })
    }
}

impl Proved {
    /// Seals the certificate for the client that has proved itself.
    ///
    /// # Errors
    /// The cryptographic library failed.
    pub fn answer(self, issued: &IssuedCertificate) -> Result<EnrolmentFinished, PakeError> {
        let plain = serde_json::to_vec(issued).map_err(|_| PakeError::Malformed)?;
        Ok(EnrolmentFinished { sealed_answer: Base64(self.keys.seal_answer(&plain)?) })
    }
}

/// The conversations under way in this process: so many and no more, each for a short time, each taken once.
#[derive(Default)]
pub struct Conversations {
    open: HashMap<ConversationId, (Instant, Conversation)>,
}

impl Conversations {
    /// Keeps one until its next message. When there are too many the oldest gives way.
    pub fn keep(&mut self, id: ConversationId, conversation: Conversation, now: Instant) {
        self.open.retain(|_, (since, _)| now.duration_since(*since) < AGE_MAX);
        if self.open.len() >= CONVERSATIONS_MAX
            && let Some(oldest) = self.open.iter().min_by_key(|(_, (since, _))| *since).map(|(id, _)| *id)
        {
            self.open.remove(&oldest);
        }
        self.open.insert(id, (now, conversation));
    }

    /// Takes one out, if it is there and not too old.
    pub fn take(&mut self, id: &ConversationId, now: Instant) -> Option<Conversation> {
        let (since, conversation) = self.open.remove(id)?;
        (now.duration_since(since) < AGE_MAX).then_some(conversation)
    }
}

#[cfg(test)]
mod tests;
