//! A key on its way: wrapped for one agent and one request.
//!
//! TLS ends where a proxy, a log of a body or a core dump of the HTTP side begins; a key does not have to. With each
//! request for keys the agent sends a public key that it drew for this request alone, the node answers with another and
//! with the key wrapped under what both agree upon:
//! ```text
//! X25519(agent's ephemeral, node's ephemeral)
//!   --HKDF-SHA-256, salt = both public keys, info = purpose | request id | tag | agent-->  AES-256 key wrap (RFC 5649)
//! ```
//! Who the two are is TLS's business: this adds no proof of identity, only that nobody else, and no other request, can
//! use the answer. Both ephemeral keys are gone afterwards.

use aws_lc_rs::agreement::{PrivateKey, UnparsedPublicKey, X25519, agree};
use aws_lc_rs::hkdf;
use capstan_format::{Algorithm, KeyTag};
use thiserror::Error;

use crate::api::{Base64, HandOver, PeerId, RequestId};
use crate::secret::Secret;
use crate::{KeyError, VolumeKey, WRAPPED_LEN, tag_of, unwrap, wrap};

const PURPOSE: &[u8] = b"capstan hand over v1";
const PUBLIC_LEN: usize = 32;

/// A key did not come across.
#[derive(Debug, Error)]
pub enum HandOverFailed {
    /// Peer: what it sent is no public key, or no key that was wrapped for this agent and request.
    #[error(
        "a key arrived that was not wrapped for this agent and this request: ask again, and look at the node's log if it stays so"
    )]
    NotForUs,
    /// Host: random numbers or ciphers failed.
    #[error(transparent)]
    Host(#[from] KeyError),
}

/// An agent's half: made for one request, used up by its answer. No `Debug`, no `Clone`.
pub struct KeyRequest {
    private: PrivateKey,
    public: Vec<u8>,
}

impl KeyRequest {
    /// A new one, for one request.
    ///
    /// # Errors
    /// [`HandOverFailed`] if the random generator fails.
    pub fn new() -> Result<Self, HandOverFailed> {
        let failed = |error| KeyError::host("drawing a key for one request", error);
        let private = PrivateKey::generate(&X25519).map_err(failed)?;
        let public = private.compute_public_key().map_err(failed)?.as_ref().to_vec();
        Ok(Self { private, public })
    }

    /// One that can be had again: whoever knows `secret`, which is used for nothing else, answers for any of those who
    /// know it.
    ///
    /// # Errors
    /// [`HandOverFailed`] if the cryptographic library fails.
    pub fn derived(secret: &Secret) -> Result<Self, HandOverFailed> {
        let failed = |error| KeyError::host("deriving a key for one request", error);
        let private = PrivateKey::from_private_key(&X25519, secret.expose())
            .map_err(|error| KeyError::host("deriving a key for one request", error))?;
        let public = private.compute_public_key().map_err(failed)?.as_ref().to_vec();
        Ok(Self { private, public })
    }

    /// What goes with the request.
    pub fn public(&self) -> Base64 {
        Base64(self.public.clone())
    }

    /// Takes the key out of the answer, and checks that it is the one with this tag.
    ///
    /// # Errors
    /// [`HandOverFailed`] if the answer cannot be opened, or holds another key.
    pub fn accept(
        &self,
        answer: &HandOver,
        agent: &PeerId,
        request: &RequestId,
        tag: &KeyTag,
        algorithm: Algorithm,
    ) -> Result<VolumeKey, HandOverFailed> {
        let wrapped: &[u8; WRAPPED_LEN] =
            answer.wrapped.0.as_slice().try_into().map_err(|_| HandOverFailed::NotForUs)?;
        let binding = Binding { agent_public: &self.public, node_public: &answer.node.0, agent, request, tag };
        let wrapping = binding.agree(&self.private, &answer.node.0)?;
        let key = unwrap(&wrapping, wrapped).ok_or(HandOverFailed::NotForUs)?;
        if tag_of(key.expose()) != *tag {
            return Err(HandOverFailed::NotForUs);
        }
        Ok(VolumeKey::new(key, algorithm))
    }
}

/// Wraps `key` for the agent and the request that sent `agent_public`.
///
/// # Errors
/// [`HandOverFailed`] if `agent_public` is no public key, or the cryptographic library fails.
pub fn hand_over(
    key: &VolumeKey,
    agent_public: &Base64,
    agent: &PeerId,
    request: &RequestId,
) -> Result<HandOver, HandOverFailed> {
    let ours = KeyRequest::new()?;
    let tag = key.tag();
    let binding = Binding { agent_public: &agent_public.0, node_public: &ours.public, agent, request, tag: &tag };
    let wrapping = binding.agree(&ours.private, &agent_public.0)?;
    let wrapped = wrap(&wrapping, key.expose())?;
    Ok(HandOver { node: ours.public(), wrapped: Base64(wrapped.to_vec()) })
}

struct Binding<'a> {
    agent_public: &'a [u8],
    node_public: &'a [u8],
    agent: &'a PeerId,
    request: &'a RequestId,
    tag: &'a KeyTag,
}

impl Binding<'_> {
    fn agree(&self, ours: &PrivateKey, theirs: &[u8]) -> Result<Secret, HandOverFailed> {
        if theirs.len() != PUBLIC_LEN {
            return Err(HandOverFailed::NotForUs);
        }
        let salt = [self.agent_public, self.node_public].concat();
        let agent = self.agent.to_string();
        // What varies in length comes last, so that no two different bindings give the same bytes.
        let info: [&[u8]; 4] = [PURPOSE, &self.request.0, &self.tag.0, agent.as_bytes()];
        // A public key of low order is refused in here: it would make the secret known to everybody.
        agree(ours, UnparsedPublicKey::new(&X25519, theirs), HandOverFailed::NotForUs, |shared| {
            let extracted = hkdf::Salt::new(hkdf::HKDF_SHA256, &salt).extract(shared);
            let failed = |error| HandOverFailed::Host(KeyError::host("deriving a key", error));
            let expanded = extracted.expand(&info, hkdf::HKDF_SHA256).map_err(failed)?;
            Secret::filled(|bytes| expanded.fill(bytes)).map_err(failed)
        })
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

    use super::*;

    const REQUEST: &RequestId = &RequestId([1; 16]);

    fn agent(name: &str) -> PeerId {
        name.parse().unwrap()
    }

    #[test]
    fn a_key_comes_across_and_to_no_one_else() {
        let key = VolumeKey::random(Algorithm::Aes256Gcm).unwrap();
        let (asked, other) = (KeyRequest::new().unwrap(), KeyRequest::new().unwrap());
        let answer = hand_over(&key, &asked.public(), &agent("agent/D1"), REQUEST).unwrap();
        let accept = |by: &KeyRequest, answer: &HandOver, name, request, tag| {
            by.accept(answer, &agent(name), request, tag, Algorithm::Aes256Gcm)
        };
        let tag = key.tag();
        let taken = accept(&asked, &answer, "agent/D1", REQUEST, &tag).unwrap();
        assert_eq!(taken.expose(), key.expose());
        for refused in [
            accept(&other, &answer, "agent/D1", REQUEST, &tag),
            accept(&asked, &answer, "agent/D2", REQUEST, &tag),
            accept(&asked, &answer, "user/D1", REQUEST, &tag),
            accept(&asked, &answer, "agent/D1", &RequestId([2; 16]), &tag),
            accept(&asked, &answer, "agent/D1", REQUEST, &KeyTag([0; 16])),
        ] {
            assert!(matches!(refused, Err(HandOverFailed::NotForUs)));
        }
        for at in 0..PUBLIC_LEN + WRAPPED_LEN {
            let mut altered = answer.clone();
            // The highest bit of a public key is not looked at (RFC 7748), but it is bound in.
            match at.checked_sub(PUBLIC_LEN) {
                None => altered.node.0[at] ^= 0x80,
                Some(at) => altered.wrapped.0[at] ^= 0x80,
            }
            assert!(accept(&asked, &altered, "agent/D1", REQUEST, &tag).is_err(), "byte {at} does not count");
        }
    }

    #[test]
    fn what_is_no_public_key_is_refused() {
        let key = VolumeKey::random(Algorithm::Aes256Gcm).unwrap();
        // The last two are of low order: with them the shared secret would be zero.
        let one = {
            let mut one = vec![0; 32];
            one[0] = 1;
            one
        };
        for public in [vec![], vec![9; 31], vec![9; 33], vec![0; 32], one] {
            let refused = hand_over(&key, &Base64(public.clone()), &agent("agent/D1"), REQUEST);
            assert!(matches!(refused, Err(HandOverFailed::NotForUs)), "{public:?} was taken for a public key");
        }
    }

    #[test]
    fn no_two_answers_are_alike() {
        let key = VolumeKey::random(Algorithm::Aes256Ccm).unwrap();
        let asked = KeyRequest::new().unwrap();
        let answer = || hand_over(&key, &asked.public(), &agent("agent/D1"), REQUEST).unwrap();
        assert_ne!(answer(), answer());
    }
}
