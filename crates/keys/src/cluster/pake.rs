//! The key exchange of an enrolment: OPAQUE (RFC 9807), both sides.
//!
//! Somebody who knows nothing of the cluster but a one-time passphrase must not be fooled by a man in the middle, and a
//! man in the middle must learn nothing that he could guess passphrases with. OPAQUE gives both with proofs, confirms
//! the key in both directions with MACs that are part of the protocol, and lets the node keep a verifier that cannot be
//! used to enrol, where a balanced exchange keeps what is as good as the passphrase.
//!
//! `opaque-ke` was chosen because it follows an RFC with test vectors and an early release of it was audited (NCC
//! Group, 2021; the findings were mended in 1.2, and later releases have had no audit). Rejected: `spake2` (no key
//! confirmation, not RFC 9382 on the wire, not audited), `pake-cpace` (a draft, and one author), `srp` (an older
//! protocol with a weaker proof), SPAKE2 out of AWS-LC (not in aws-lc-rs: it would be unsafe code of our own). Its
//! arithmetic is curve25519-dalek's: the one place where aws-lc-rs does not do ours, since it offers no group
//! operations.
//!
//! ```text
//!  client                                              node
//!    blinded passphrase, key share       ---1--->      looks the verifier up, takes one try off
//!    checks the node's MAC               <--2----      evaluated, envelope, key share, MAC over all so far
//!    MAC over all, request sealed        ---3--->      checks the MAC, opens the request, certifies
//!    opens the certificate               <--4----      certificate sealed
//! ```
//! Bound into the exchange: the purpose and its version (context), the peer (`agent/NAME`, the client's identity) and
//! the cluster's id (the node's identity). Every enrolment has node keys of its own, so that one verifier tells nothing
//! of another. Messages 3 and 4 are sealed with AES-256-GCM, each under a key of its own that seals nothing else; so
//! their nonce is zero.

use aws_lc_rs::aead::{AES_256_GCM, Aad, LessSafeKey, Nonce, UnboundKey};
use opaque_ke::generic_array::typenum::Unsigned;
use opaque_ke::rand::{CryptoRng, Error as RandomError, RngCore};
use opaque_ke::{
    CipherSuite, ClientLogin, ClientLoginFinishParameters, ClientRegistration, ClientRegistrationFinishParameters,
    CredentialFinalization, CredentialRequest, CredentialResponse, Identifiers, Ristretto255, ServerLogin,
    ServerLoginParameters, ServerRegistration, ServerRegistrationLen, ServerSetup, TripleDh,
};
use thiserror::Error;
use zeroize::Zeroizing;

use super::EnrolmentPassphrase;
use crate::api::{ClusterId, PeerId};
use crate::secret::{KEY_LEN, Secret, random};
use crate::{KeyError, derive};

const CONTEXT: &[u8] = b"capstan enrolment v1";

struct Suite;

impl CipherSuite for Suite {
    type OprfCs = Ristretto255;
    type KeyExchange = TripleDh<Ristretto255, sha2::Sha512>;
    // The passphrase has 100 random bits; see there.
    type Ksf = opaque_ke::ksf::Identity;
}

/// Why a key exchange came to nothing. To the other side all of it looks alike.
#[derive(Debug, Error)]
pub enum PakeError {
    /// Peer or operator: the other side did not prove that it knows the passphrase, or a message was altered.
    #[error(
        "the passphrase is wrong, or somebody stands between this machine and the node: compare the passphrase letter by letter"
    )]
    NotProved,
    /// Peer: a message is not one.
    #[error("a message of the key exchange is malformed")]
    Malformed,
    /// Host: random numbers or ciphers failed.
    #[error(transparent)]
    Host(#[from] KeyError),
}

/// The random generator of the cryptographic library, as the key exchange asks for it.
struct Random;

impl CryptoRng for Random {}

impl RngCore for Random {
    fn next_u32(&mut self) -> u32 {
        let mut bytes = [0; 4];
        self.fill_bytes(&mut bytes);
        u32::from_le_bytes(bytes)
    }

    fn next_u64(&mut self) -> u64 {
        let mut bytes = [0; 8];
        self.fill_bytes(&mut bytes);
        u64::from_le_bytes(bytes)
    }

    fn fill_bytes(&mut self, bytes: &mut [u8]) {
        // AWS-LC's generator ends the process itself when the kernel has no randomness to give.
        random(bytes).expect("the generator of the cryptographic library works");
    }

    fn try_fill_bytes(&mut self, bytes: &mut [u8]) -> Result<(), RandomError> {
        self.fill_bytes(bytes);
        Ok(())
    }
}

/// Whom an exchange is between.
#[derive(Clone)]
struct Parties {
    peer: Vec<u8>,
    cluster: Vec<u8>,
}

impl Parties {
    fn new(peer: &PeerId, cluster: &ClusterId) -> Self {
        Self { peer: peer.to_string().into_bytes(), cluster: cluster.0.to_vec() }
    }

    fn identifiers(&self) -> Identifiers<'_> {
        Identifiers { client: Some(&self.peer), server: Some(&self.cluster) }
    }

    fn parameters(&self) -> ServerLoginParameters<'_, '_> {
        ServerLoginParameters { context: Some(CONTEXT), identifiers: self.identifiers() }
    }
}

/// What a node keeps of a passphrase until the enrolment is over: it proves to a client that the node was given it, and
/// checks the client's proof. It is a secret, though it cannot be used to enrol. No `Debug`; zeroised.
pub struct PakeVerifier {
    bytes: Zeroizing<Vec<u8>>,
}

impl PakeVerifier {
    /// The verifier of a passphrase for one peer of one cluster.
    ///
    /// # Errors
    /// [`PakeError::Host`] if the cryptographic library fails.
    pub fn new(passphrase: &EnrolmentPassphrase, peer: &PeerId, cluster: &ClusterId) -> Result<Self, PakeError> {
        // Both sides of a registration, in one place.
        let parties = Parties::new(peer, cluster);
        let setup = ServerSetup::<Suite>::new(&mut Random);
        let client =
            ClientRegistration::<Suite>::start(&mut Random, passphrase.bytes()).map_err(|_| PakeError::Malformed)?;
        let node =
            ServerRegistration::start(&setup, client.message, &parties.peer).map_err(|_| PakeError::Malformed)?;
        let parameters = ClientRegistrationFinishParameters::new(parties.identifiers(), None);
        let upload = client
            .state
            .finish(&mut Random, passphrase.bytes(), node.message, parameters)
            .map_err(|_| PakeError::Malformed)?;
        let (setup, registered) =
            (Zeroizing::new(setup.serialize()), Zeroizing::new(ServerRegistration::finish(upload.message).serialize()));
        Ok(Self { bytes: Zeroizing::new([&registered[..], &setup[..]].concat()) })
    }

    /// Its bytes, to be sealed and kept.
    pub fn expose(&self) -> &[u8] {
        &self.bytes
    }

    /// Takes back what [`PakeVerifier::expose`] gave.
    ///
    /// # Errors
    /// [`PakeError::Malformed`] if the bytes are no verifier.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, PakeError> {
        let verifier = Self { bytes: Zeroizing::new(bytes.to_vec()) };
        verifier.parts().map(|_| verifier)
    }

    fn parts(&self) -> Result<(ServerRegistration<Suite>, ServerSetup<Suite>), PakeError> {
        let (registered, setup) =
            self.bytes.split_at_checked(ServerRegistrationLen::<Suite>::USIZE).ok_or(PakeError::Malformed)?;
        let registered = ServerRegistration::deserialize(registered).map_err(|_| PakeError::Malformed)?;
        Ok((registered, ServerSetup::deserialize(setup).map_err(|_| PakeError::Malformed)?))
    }
}

/// The node's side, between messages 2 and 3.
pub struct PakeServer {
    state: ServerLogin<Suite>,
    parties: Parties,
}

impl PakeServer {
    /// Answers message 1 with message 2. Each answer allows the other side one guess, so a try must have been taken off
    /// before.
    ///
    /// # Errors
    /// [`PakeError::Malformed`] if the message is none.
    pub fn begin(
        verifier: &PakeVerifier,
        peer: &PeerId,
        cluster: &ClusterId,
        message: &[u8],
    ) -> Result<(Self, Vec<u8>), PakeError> {
        let (registered, setup) = verifier.parts()?;
        let parties = Parties::new(peer, cluster);
        let request = CredentialRequest::deserialize(message).map_err(|_| PakeError::Malformed)?;
        let started =
            ServerLogin::start(&mut Random, &setup, Some(registered), request, &parties.peer, parties.parameters())
                .map_err(|_| PakeError::Malformed)?;
        Ok((Self { state: started.state, parties }, started.message.serialize().to_vec()))
    }

    /// Checks the client's proof in message 3, and gives the keys.
    ///
    /// # Errors
    /// [`PakeError::NotProved`] if the client does not know the passphrase; [`PakeError::Malformed`] if the message is
    /// none.
    pub fn finish(self, message: &[u8]) -> Result<PakeKeys, PakeError> {
        let message = CredentialFinalization::deserialize(message).map_err(|_| PakeError::Malformed)?;
        let agreed = self.state.finish(message, self.parties.parameters()).map_err(|_| PakeError::NotProved)?;
        PakeKeys::new(&agreed.session_key, &self.parties)
    }
}

/// The client's side, between messages 1 and 2.
pub(super) struct PakeClient {
    state: ClientLogin<Suite>,
}

impl PakeClient {
    /// Message 1.
    pub(super) fn begin(passphrase: &EnrolmentPassphrase) -> Result<(Self, Vec<u8>), PakeError> {
        let started = ClientLogin::<Suite>::start(&mut Random, passphrase.bytes()).map_err(|_| PakeError::Malformed)?;
        Ok((Self { state: started.state }, started.message.serialize().to_vec()))
    }

    /// Checks the node's proof in message 2, and gives message 3 and the keys.
    pub(super) fn finish(
        self,
        passphrase: &EnrolmentPassphrase,
        peer: &PeerId,
        cluster: &ClusterId,
        message: &[u8],
    ) -> Result<(Vec<u8>, PakeKeys), PakeError> {
        let parties = Parties::new(peer, cluster);
        let response = CredentialResponse::deserialize(message).map_err(|_| PakeError::Malformed)?;
        let parameters = ClientLoginFinishParameters::new(Some(CONTEXT), parties.identifiers(), None);
        let finished = self
            .state
            .finish(&mut Random, passphrase.bytes(), response, parameters)
            .map_err(|_| PakeError::NotProved)?;
        Ok((finished.message.serialize().to_vec(), PakeKeys::new(&finished.session_key, &parties)?))
    }
}

/// The keys that were agreed upon, one for each direction. No `Debug`; zeroised.
pub struct PakeKeys {
    request: Secret,
    answer: Secret,
    peer: Vec<u8>,
}

impl PakeKeys {
    fn new(session_key: &[u8], parties: &Parties) -> Result<Self, PakeError> {
        // 64 bytes out of an HKDF that has all messages and both parties in it: 32 of them are as good.
        let session = Secret::filled(|bytes| {
            bytes.copy_from_slice(session_key.get(..KEY_LEN).ok_or(PakeError::Malformed)?);
            Ok::<(), PakeError>(())
        })?;
        Ok(Self {
            request: derive(session.expose(), &parties.cluster, "capstan enrolment request v1")?,
            answer: derive(session.expose(), &parties.cluster, "capstan enrolment answer v1")?,
            peer: parties.peer.clone(),
        })
    }

    pub(super) fn seal_request(&self, plain: &[u8]) -> Result<Vec<u8>, PakeError> {
        seal(&self.request, &self.peer, plain)
    }

    /// Opens what message 3 carries.
    ///
    /// # Errors
    /// [`PakeError::NotProved`] if it was sealed with other keys or altered.
    pub fn open_request(&self, sealed: &[u8]) -> Result<Vec<u8>, PakeError> {
        open(&self.request, &self.peer, sealed)
    }

    /// Seals message 4, the last one: so the keys are used up.
    ///
    /// # Errors
    /// [`PakeError::Host`] if the cryptographic library fails.
    pub fn seal_answer(self, plain: &[u8]) -> Result<Vec<u8>, PakeError> {
        seal(&self.answer, &self.peer, plain)
    }

    pub(super) fn open_answer(&self, sealed: &[u8]) -> Result<Vec<u8>, PakeError> {
        open(&self.answer, &self.peer, sealed)
    }
}

fn cipher(key: &Secret) -> Result<LessSafeKey, PakeError> {
    let key = UnboundKey::new(&AES_256_GCM, key.expose());
    Ok(LessSafeKey::new(key.map_err(|error| KeyError::host("sealing an enrolment", error))?))
}

fn seal(key: &Secret, peer: &[u8], plain: &[u8]) -> Result<Vec<u8>, PakeError> {
    let mut bytes = plain.to_vec();
    cipher(key)?
        .seal_in_place_append_tag(Nonce::assume_unique_for_key([0; 12]), Aad::from(peer), &mut bytes)
        .map_err(|error| KeyError::host("sealing an enrolment", error))?;
    Ok(bytes)
}

fn open(key: &Secret, peer: &[u8], sealed: &[u8]) -> Result<Vec<u8>, PakeError> {
    let mut bytes = sealed.to_vec();
    let plain = cipher(key)?
        .open_in_place(Nonce::assume_unique_for_key([0; 12]), Aad::from(peer), &mut bytes)
        .map_err(|_| PakeError::NotProved)?;
    Ok(plain.to_vec())
}

#[cfg(test)]
mod tests;
