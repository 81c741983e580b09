//! Enrolment and renewal: how a peer comes by its certificate.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Base64, ClusterId, ConversationId, PeerId};

/// `POST /v1/enrolments/begin`: somebody says who it wants to be, and begins to prove that it knows the passphrase.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub struct BeginEnrolment {
    /// Who.
    pub peer: PeerId,
    /// The first message of the key exchange.
    pub message: Base64,
}

/// The answer to [`BeginEnrolment`]. Until the key exchange is over the client takes none of it for true.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub struct EnrolmentBegun {
    /// What to go on with, at the same node.
    pub conversation: ConversationId,
    /// Which cluster this is.
    pub cluster: ClusterId,
    /// The second message: it proves that the node knows what the passphrase was made into.
    pub message: Base64,
}

/// `POST /v1/enrolments/finish`: the proof, and what is to be certified.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub struct FinishEnrolment {
    /// Which conversation.
    pub conversation: ConversationId,
    /// The third message: it proves that the client knows the passphrase.
    pub message: Base64,
    /// A certificate signing request (PKCS#10, DER), sealed under the key that was agreed upon.
    pub sealed_request: Base64,
}

/// The answer to [`FinishEnrolment`].
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub struct EnrolmentFinished {
    /// An [`IssuedCertificate`] in JSON, sealed under the key that was agreed upon.
    pub sealed_answer: Base64,
}

/// `POST /v1/certificates/renew`: a peer asks for a new certificate under the old one.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub struct RenewCertificate {
    /// A certificate signing request (PKCS#10, DER). Only its key counts: kind and name stay those of the peer.
    pub request: Base64,
}

/// What the authority made out.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct IssuedCertificate {
    /// The certificate, DER.
    pub certificate: Base64,
    /// The authority's own, DER: what the peer will know the nodes by.
    pub authority: Base64,
}
