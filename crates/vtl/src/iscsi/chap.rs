//! CHAP (RFC 1994) as iSCSI carries it (RFC 7143, 12.1.3): digest of an identifier, a secret and a challenge.
//!
//! MD5 is what every initiator has and what the standard demands; its weakness is in collisions, which do not help
//! against a challenge. SHA-256 is taken where the initiator offers it.

use aws_lc_rs::constant_time::verify_slices_are_equal;
use aws_lc_rs::digest::{Context, SHA256};
use aws_lc_rs::rand;
use md5::{Digest, Md5};

use super::config::ChapCredentials;
use super::text::{binary, hex, put};

/// Longest challenge or response that is looked at, in bytes.
const BINARY_LEN_MAX: usize = 1024;

/// What digests are made with, by their numbers at IANA.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Algorithm {
    Md5 = 5,
    Sha256 = 7,
}

impl Algorithm {
    /// The best of a list like `7,5`.
    pub(crate) fn choose(list: &str) -> Option<Self> {
        [Self::Sha256, Self::Md5].into_iter().find(|known| list.split(',').any(|number| number == known.number()))
    }

    pub(crate) fn number(self) -> &'static str {
        match self {
            Self::Md5 => "5",
            Self::Sha256 => "7",
        }
    }

    fn digest(self, id: u8, secret: &[u8], challenge: &[u8]) -> Vec<u8> {
        match self {
            Self::Md5 => Md5::new().chain_update([id]).chain_update(secret).chain_update(challenge).finalize().to_vec(),
            Self::Sha256 => {
                let mut context = Context::new(&SHA256);
                [&[id], secret, challenge].into_iter().for_each(|bytes| context.update(bytes));
                context.finish().as_ref().to_vec()
            }
        }
    }

    /// As long as the digest.
    fn challenge_len(self) -> usize {
        match self {
            Self::Md5 => 16,
            Self::Sha256 => 32,
        }
    }
}

/// A challenge that one side has put.
pub(crate) struct Challenge {
    algorithm: Algorithm,
    id: u8,
    bytes: Vec<u8>,
}

impl Challenge {
    /// A new one; `None` when the host has no random bytes.
    pub(crate) fn new(algorithm: Algorithm) -> Option<Self> {
        let (mut id, mut bytes) = ([0], vec![0; algorithm.challenge_len()]);
        rand::fill(&mut id).ok()?;
        rand::fill(&mut bytes).ok()?;
        Some(Self { algorithm, id: id[0], bytes })
    }

    /// A challenge that came over the wire.
    pub(crate) fn received(algorithm: Algorithm, id: &str, challenge: &str) -> Option<Self> {
        let (id, bytes) = (id.parse().ok()?, binary(challenge)?);
        (1..=BINARY_LEN_MAX).contains(&bytes.len()).then_some(Self { algorithm, id, bytes })
    }

    /// A challenge of the other side, for the same algorithm.
    pub(crate) fn received_like(&self, id: &str, challenge: &str) -> Option<Self> {
        Self::received(self.algorithm, id, challenge)
    }

    /// `CHAP_I` and `CHAP_C`.
    pub(crate) fn put(&self, text: &mut Vec<u8>) {
        put(text, "CHAP_I", &self.id.to_string());
        put(text, "CHAP_C", &hex(&self.bytes));
    }

    /// Whether the other side gave our own challenge back, to have it answered by us (RFC 7143, 9.2.1).
    pub(crate) fn echoes(&self, ours: &Self) -> bool {
        self.bytes == ours.bytes
    }

    /// `CHAP_N` and `CHAP_R`.
    pub(crate) fn answer(&self, credentials: &ChapCredentials, text: &mut Vec<u8>) {
        put(text, "CHAP_N", &credentials.name);
        put(text, "CHAP_R", &hex(&self.algorithm.digest(self.id, credentials.secret.expose(), &self.bytes)));
    }

    /// Whether this name and response answer the challenge; takes as long for a wrong name as for a wrong response.
    pub(crate) fn is_answered(&self, credentials: &ChapCredentials, name: &str, response: &str) -> bool {
        let right = self.algorithm.digest(self.id, credentials.secret.expose(), &self.bytes);
        let response = binary(response).unwrap_or_default();
        let proved = verify_slices_are_equal(&right, &response).is_ok();
        let named = verify_slices_are_equal(credentials.name.as_bytes(), name.as_bytes()).is_ok();
        proved & named
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

    use super::super::config::ChapSecret;
    use super::super::text::parse;
    use super::*;

    fn credentials(secret: &[u8]) -> ChapCredentials {
        ChapCredentials { name: "user".into(), secret: ChapSecret::new(secret.to_vec().into()).unwrap() }
    }

    /// RFC 1321's test of MD5, cut into what CHAP digests.
    #[test]
    fn digest_is_md5_of_id_secret_and_challenge() {
        let digest = Algorithm::Md5.digest(b'a', b"bcdefghijklm", b"nopqrstuvwxyz");
        assert_eq!(hex(&digest), "0xc3fcd3d76192e4007dfb496cca67e13b");
    }

    /// Computed with sha256sum.
    #[test]
    fn digest_is_sha256_where_it_was_chosen() {
        let digest = Algorithm::Sha256.digest(b'a', b"bcdefghijklm", b"nopqrstuvwxyz");
        assert_eq!(hex(&digest), "0x71c480df93d6ae2f1efad1447c66c9525e316218cf51fc8d9ed832f2daf18b73");
    }

    #[test]
    fn best_common_algorithm_is_chosen() {
        assert_eq!(Algorithm::choose("5"), Some(Algorithm::Md5));
        assert_eq!(Algorithm::choose("5,6,7"), Some(Algorithm::Sha256));
        assert_eq!((Algorithm::choose("6,8"), Algorithm::choose("")), (None, None));
    }

    #[test]
    fn challenge_is_answered_by_who_knows_the_secret() {
        for algorithm in [Algorithm::Md5, Algorithm::Sha256] {
            let challenge = Challenge::new(algorithm).unwrap();
            let mut text = Vec::new();
            challenge.put(&mut text);
            let pairs = parse(&text).unwrap();
            let received = Challenge::received(algorithm, pairs[0].1, pairs[1].1).unwrap();
            assert!(received.echoes(&challenge));
            let answer = |secret: &[u8]| {
                let mut text = Vec::new();
                received.answer(&credentials(secret), &mut text);
                parse(&text).unwrap()[1].1.to_owned()
            };
            let right = credentials(b"correct horse");
            assert!(challenge.is_answered(&right, "user", &answer(b"correct horse")));
            assert!(!challenge.is_answered(&right, "user", &answer(b"battery staple")));
            assert!(!challenge.is_answered(&right, "other", &answer(b"correct horse")));
            assert!(!challenge.is_answered(&right, "user", "") && !challenge.is_answered(&right, "user", "0x"));
        }
    }
}
