//! How the two sides of an enrolment prove that they know its one-time passphrase.
//!
//! The client knows nothing of the cluster but the passphrase, so TLS cannot tell it whom it talks to. Each side
//! therefore sends an HMAC-SHA-256 over what it asks or answers and over the exporter value of the TLS connection that
//! it sends it on (RFC 9266, `tls-exporter`). A relay has two connections with two exporter values, and can use no
//! proof of one on the other.
//!
//! ```text
//!  passphrase, 100 random bits --HKDF, peer--> key          client                                  node
//!                                              |   peer, request, proof of the client   --->   checks the proof
//!                                              `-- checks the proof                     <---   certificate, authority, proof
//! ```
//! A wrong node learns one HMAC to guess with. It would have to guess 100 bits before the enrolment is used, and within
//! a week (`docs/KEYS.md`, "Why the proof of an enrolment is simple"). So no password-authenticated key exchange is
//! needed; until version 2 of the record it was OPAQUE (RFC 9807).

use std::convert::Infallible;

use aws_lc_rs::hmac;
use rustls::ConnectionCommon;
use thiserror::Error;

use super::EnrolmentPassphrase;
use crate::api::{IssuedCertificate, PeerId};
use crate::secret::{KEY_LEN, Secret};
use crate::{KeyError, derive_from};

const KEY: &str = "capstan enrolment v2";
const REQUEST: &str = "capstan enrolment request v2";
const ANSWER: &str = "capstan enrolment answer v2";
/// The label that RFC 9266 registers.
const EXPORTER: &[u8] = b"EXPORTER-Channel-Binding";

/// Why an enrolment was not proved.
#[derive(Debug, Error)]
pub enum EnrolmentError {
    /// Peer or operator: the other side did not prove that it knows the passphrase, or a message was altered.
    #[error(
        "the passphrase is not that of the newest enrolment for this kind and name, or somebody stands between this machine and the node: compare kind, name and passphrase"
    )]
    NotProved,
    /// Host: ciphers failed.
    #[error(transparent)]
    Host(#[from] KeyError),
}

/// What only the two ends of one TLS connection know: its exporter value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ChannelBinding([u8; 32]);

impl ChannelBinding {
    /// That of a connection.
    ///
    /// # Errors
    /// The handshake is not over.
    pub fn of<Data>(connection: &ConnectionCommon<Data>) -> Result<Self, rustls::Error> {
        connection.export_keying_material([0; 32], EXPORTER, None).map(Self)
    }

    /// One that a test makes up.
    #[must_use]
    pub fn from_bytes(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }
}

/// What a node keeps of a passphrase until the enrolment is over. Whoever has it can enrol. No `Debug`; zeroised.
pub struct EnrolmentKey(Secret);

impl EnrolmentKey {
    /// The key of a passphrase for one peer.
    ///
    /// # Errors
    /// [`KeyError::Host`] if the cryptographic library fails.
    pub fn new(passphrase: &EnrolmentPassphrase, peer: &PeerId) -> Result<Self, KeyError> {
        derive_from(passphrase.bytes(), peer.to_string().as_bytes(), KEY).map(Self)
    }

    /// Its bytes, to be sealed and kept.
    #[must_use]
    pub fn expose(&self) -> &[u8; KEY_LEN] {
        self.0.expose()
    }

    /// Takes back what [`EnrolmentKey::expose`] gave.
    #[must_use]
    pub fn from_bytes(bytes: &[u8; KEY_LEN]) -> Self {
        let copied = Secret::filled(|own| {
            own.copy_from_slice(bytes);
            Ok::<(), Infallible>(())
        });
        match copied {
            Ok(secret) => Self(secret),
            Err(never) => match never {},
        }
    }

    /// The client's proof.
    ///
    /// # Errors
    /// [`KeyError::Host`] if the cryptographic library fails.
    pub fn prove_request(&self, binding: &ChannelBinding, peer: &PeerId, request: &[u8]) -> Result<Vec<u8>, KeyError> {
        Ok(self.request(binding, peer, request)?.sign().as_ref().to_vec())
    }

    /// Checks the client's proof.
    ///
    /// # Errors
    /// [`EnrolmentError::NotProved`] if it does not know the passphrase, or something was altered or passed on.
    pub fn check_request(
        &self,
        binding: &ChannelBinding,
        peer: &PeerId,
        request: &[u8],
        proof: &[u8],
    ) -> Result<(), EnrolmentError> {
        self.request(binding, peer, request)?.check(proof)
    }

    /// The node's proof, over an answer to the request with this proof.
    ///
    /// # Errors
    /// [`KeyError::Host`] if the cryptographic library fails.
    pub fn prove_answer(
        &self,
        binding: &ChannelBinding,
        request_proof: &[u8],
        issued: &IssuedCertificate,
    ) -> Result<Vec<u8>, KeyError> {
        Ok(self.answer(binding, request_proof, issued)?.sign().as_ref().to_vec())
    }

    /// Checks the node's proof.
    ///
    /// # Errors
    /// [`EnrolmentError::NotProved`] if it does not know the passphrase, or something was altered or passed on.
    pub fn check_answer(
        &self,
        binding: &ChannelBinding,
        request_proof: &[u8],
        issued: &IssuedCertificate,
        proof: &[u8],
    ) -> Result<(), EnrolmentError> {
        self.answer(binding, request_proof, issued)?.check(proof)
    }

    fn request(&self, binding: &ChannelBinding, peer: &PeerId, request: &[u8]) -> Result<Statement, KeyError> {
        self.statement(REQUEST, &[&binding.0, peer.to_string().as_bytes(), request])
    }

    fn answer(
        &self,
        binding: &ChannelBinding,
        request_proof: &[u8],
        issued: &IssuedCertificate,
    ) -> Result<Statement, KeyError> {
        self.statement(ANSWER, &[&binding.0, request_proof, &issued.certificate.0, &issued.authority.0])
    }

    /// Each direction has a key of its own, and each part its length in front: nothing of one is taken for another.
    fn statement(&self, purpose: &str, parts: &[&[u8]]) -> Result<Statement, KeyError> {
        let key = derive_from(self.0.expose(), &[], purpose)?;
        let bytes =
            parts.iter().flat_map(|part| (part.len() as u64).to_be_bytes().into_iter().chain(part.iter().copied()));
        Ok(Statement { key: hmac::Key::new(hmac::HMAC_SHA256, key.expose()), bytes: bytes.collect() })
    }
}

/// What a proof is over, and its key.
struct Statement {
    key: hmac::Key,
    bytes: Vec<u8>,
}

impl Statement {
    fn sign(&self) -> hmac::Tag {
        hmac::sign(&self.key, &self.bytes)
    }

    /// In constant time.
    fn check(&self, proof: &[u8]) -> Result<(), EnrolmentError> {
        hmac::verify(&self.key, &self.bytes, proof).map_err(|_| EnrolmentError::NotProved)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests fail by panicking")]
    use super::*;
    use crate::api::Base64;

    const BINDING: ChannelBinding = ChannelBinding([7; 32]);

    fn peer(text: &str) -> PeerId {
        text.parse().unwrap()
    }

    fn issued(certificate: &[u8], authority: &[u8]) -> IssuedCertificate {
        IssuedCertificate { certificate: Base64(certificate.to_vec()), authority: Base64(authority.to_vec()) }
    }

    /// Made with Python's `hmac` and `hashlib`, from the text above: what is on the wire stays what it is.
    #[test]
    fn the_proofs_are_those_of_another_program() {
        let passphrase = "0123-4567-89AB-CDEF-GHJK".parse().unwrap();
        let key = EnrolmentKey::new(&passphrase, &peer("agent/DRIVE1")).unwrap();
        let hex = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
        assert_eq!(hex(key.expose()), "5b490efbc0562908bac499fdc96fb92d0a74d8c50d3411616a7e2c7139095e79");
        let proof = key.prove_request(&BINDING, &peer("agent/DRIVE1"), b"request").unwrap();
        assert_eq!(hex(&proof), "793676770be12409a96c8c5a62cd7884d67858bec4336911eb1d1e109ff56e74");
        let answer = key.prove_answer(&BINDING, &proof, &issued(b"certificate", b"authority")).unwrap();
        assert_eq!(hex(&answer), "ec64be5e1067caf4a4c15ba261b148c58bc6791153d8247c50ad98da91edc73e");
    }

    #[test]
    fn passphrase_peer_connection_and_every_byte_are_bound() {
        let (one, other) = (EnrolmentPassphrase::random().unwrap(), EnrolmentPassphrase::random().unwrap());
        let drive = peer("agent/DRIVE1");
        let key = EnrolmentKey::from_bytes(EnrolmentKey::new(&one, &drive).unwrap().expose());
        let proof = key.prove_request(&BINDING, &drive, b"request").unwrap();
        key.check_request(&BINDING, &drive, b"request", &proof).unwrap();
        let refused = |result| assert!(matches!(result, Err(EnrolmentError::NotProved)));
        refused(EnrolmentKey::new(&other, &drive).unwrap().check_request(&BINDING, &drive, b"request", &proof));
        for named in ["agent/DRIVE2", "user/DRIVE1"] {
            let theirs = EnrolmentKey::new(&one, &peer(named)).unwrap();
            refused(theirs.check_request(&BINDING, &peer(named), b"request", &proof));
            refused(theirs.check_request(&BINDING, &drive, b"request", &proof));
        }
        refused(key.check_request(&ChannelBinding([8; 32]), &drive, b"request", &proof));
        refused(key.check_request(&BINDING, &drive, b"another", &proof));
        refused(key.check_request(&BINDING, &drive, b"request", &proof[..31]));
        for at in 0..proof.len() {
            let mut altered = proof.clone();
            altered[at] ^= 1;
            refused(key.check_request(&BINDING, &drive, b"request", &altered));
        }
        // What one side has sent proves nothing for the other.
        let certificate = issued(b"ab", b"c");
        let answer = key.prove_answer(&BINDING, &proof, &certificate).unwrap();
        key.check_answer(&BINDING, &proof, &certificate, &answer).unwrap();
        refused(key.check_answer(&BINDING, &proof, &certificate, &proof));
        refused(key.check_answer(&ChannelBinding([8; 32]), &proof, &certificate, &answer));
        refused(key.check_answer(&BINDING, &answer, &certificate, &answer));
        refused(key.check_answer(&BINDING, &proof, &issued(b"a", b"bc"), &answer));
    }
}
