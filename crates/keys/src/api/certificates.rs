//! Enrolment and renewal: how a peer comes by its certificate.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Base64, PeerId};

/// The kind of problem of an enrolment whose passphrase was not proved.
pub const ENROLMENT_NOT_PROVED: &str = "passphrase-not-proved";

/// `POST /v1/enrolments`: somebody says who they are, and proves that they know the passphrase.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub struct AskEnrolment {
    /// Who.
    pub peer: PeerId,
    /// A certificate signing request (PKCS#10, DER).
    pub request: Base64,
    /// An HMAC-SHA-256 over the exporter value of the TLS connection, the peer and the request, under a key that HKDF
    /// makes of the passphrase.
    pub proof: Base64,
}

/// The answer to [`AskEnrolment`]. Nothing of it is true before the proof is checked.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub struct EnrolmentAnswer {
    /// The certificate.
    pub issued: IssuedCertificate,
    /// An HMAC-SHA-256 over the exporter value, the proof of the request and the certificate: the node knows the
    /// passphrase, too.
    pub proof: Base64,
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
