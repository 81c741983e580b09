//! The client's side of an enrolment, as a state machine over messages: no sockets, so that tests and fuzzers can be
//! the other side.

use super::enrolment_key::{ChannelBinding, EnrolmentError, EnrolmentKey};
use super::identity::{CertificateKey, Identity};
use super::{ClusterError, EnrolmentPassphrase};
use crate::api::{AskEnrolment, Base64, EnrolmentAnswer, PeerId};

/// After the question: waits for a certificate and for the node's proof.
pub struct EnrolmentClient {
    key: EnrolmentKey,
    certificate_key: CertificateKey,
    peer: PeerId,
    binding: ChannelBinding,
    proof: Vec<u8>,
}

impl EnrolmentClient {
    /// Begins, and gives what is to be sent over the connection with this binding, and over no other.
    ///
    /// # Errors
    /// [`ClusterError::Host`] or [`ClusterError::Identity`] if the cryptographic library fails.
    pub fn begin(
        peer: PeerId,
        passphrase: &EnrolmentPassphrase,
        binding: ChannelBinding,
    ) -> Result<(Self, AskEnrolment), ClusterError> {
        let key = EnrolmentKey::new(passphrase, &peer)?;
        let certificate_key = CertificateKey::generate()?;
        let request = certificate_key.request().to_vec();
        let proof = key.prove_request(&binding, &peer, &request)?;
        let question = AskEnrolment { peer: peer.clone(), request: Base64(request), proof: Base64(proof.clone()) };
        Ok((Self { key, certificate_key, peer, binding, proof }, question))
    }

    /// Takes the certificate of a node that has proved itself; it must be for this key and this peer.
    ///
    /// # Errors
    /// [`ClusterError::Enrolment`] if the node did not prove that it knows the passphrase; [`ClusterError::Identity`]
    /// if the certificate is not for this key.
    pub fn accept(self, answer: &EnrolmentAnswer) -> Result<Identity, ClusterError> {
        self.key.check_answer(&self.binding, &self.proof, &answer.issued, &answer.proof.0)?;
        let identity = self.certificate_key.certified(&answer.issued)?;
        if identity.certificate().peer != self.peer {
            return Err(EnrolmentError::NotProved.into());
        }
        Ok(identity)
    }
}
