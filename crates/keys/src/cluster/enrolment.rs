//! The client's side of an enrolment, as a state machine over messages: no sockets, so that tests and fuzzers can be
//! the other side.

use super::identity::{CertificateKey, Identity};
use super::pake::{PakeClient, PakeError, PakeKeys};
use super::{ClusterError, EnrolmentPassphrase};
use crate::api::{
    Base64, BeginEnrolment, ClusterId, EnrolmentBegun, EnrolmentFinished, FinishEnrolment, IssuedCertificate, PeerId,
};

/// After the first message: waits for the node's proof.
pub struct EnrolmentClient {
    exchange: PakeClient,
    passphrase: EnrolmentPassphrase,
    peer: PeerId,
}

/// After the second message: the node has proved itself, and is to certify this key.
pub struct CertificateAwaited {
    keys: PakeKeys,
    key: CertificateKey,
    peer: PeerId,
    cluster: ClusterId,
}

impl EnrolmentClient {
    /// Begins, and gives what is to be sent.
    ///
    /// # Errors
    /// [`ClusterError::Enrolment`] or [`ClusterError::Identity`] if the cryptographic library fails.
    pub fn begin(peer: PeerId, passphrase: EnrolmentPassphrase) -> Result<(Self, BeginEnrolment), ClusterError> {
        let (exchange, message) = PakeClient::begin(&passphrase)?;
        let first = BeginEnrolment { peer: peer.clone(), message: Base64(message) };
        Ok((Self { exchange, passphrase, peer }, first))
    }

    /// Checks the node's proof, and gives what is to be sent next. Nothing is sent to a node that did not prove itself.
    ///
    /// # Errors
    /// [`ClusterError::Enrolment`] if the node did not prove that it knows the passphrase.
    pub fn answer(self, begun: &EnrolmentBegun) -> Result<(CertificateAwaited, FinishEnrolment), ClusterError> {
        let (message, keys) = self.exchange.finish(&self.passphrase, &self.peer, &begun.cluster, &begun.message.0)?;
        let key = CertificateKey::generate()?;
        let sealed_request = Base64(keys.seal_request(key.request())?);
        let next = FinishEnrolment { conversation: begun.conversation, message: Base64(message), sealed_request };
        Ok((CertificateAwaited { keys, key, peer: self.peer, cluster: begun.cluster }, next))
    }
}

impl CertificateAwaited {
    /// Opens the certificate; it must be for this key, this peer and this cluster.
    ///
    /// # Errors
    /// [`ClusterError::Enrolment`] if the answer cannot be opened; [`ClusterError::Identity`] if the certificate is not
    /// for this key and peer.
    pub fn accept(self, finished: &EnrolmentFinished) -> Result<Identity, ClusterError> {
        let plain = self.keys.open_answer(&finished.sealed_answer.0)?;
        let issued: IssuedCertificate = serde_json::from_slice(&plain).map_err(|_| PakeError::Malformed)?;
        let identity = self.key.certified(&issued)?;
        let fields = identity.certificate();
        if fields.peer != self.peer || fields.cluster != self.cluster {
            return Err(PakeError::NotProved.into());
        }
        Ok(identity)
    }
}
