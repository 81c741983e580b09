//! Hashes and HMAC.

use aws_lc_rs::{digest, hmac};

use crate::enumeration::{Algorithm, HashingAlgorithm};

/// The hash of `data`.
pub(crate) fn hash(algorithm: HashingAlgorithm, data: &[u8]) -> Vec<u8> {
    let algorithm = match algorithm {
        HashingAlgorithm::Sha1 => &digest::SHA1_FOR_LEGACY_USE_ONLY,
        HashingAlgorithm::Sha224 => &digest::SHA224,
        HashingAlgorithm::Sha256 => &digest::SHA256,
        HashingAlgorithm::Sha384 => &digest::SHA384,
        HashingAlgorithm::Sha512 => &digest::SHA512,
    };
    digest::digest(algorithm, data).as_ref().to_vec()
}

/// The HMAC of `data`, or `None` if the algorithm is none.
pub(crate) fn mac(algorithm: Algorithm, key: &[u8], data: &[u8]) -> Option<Vec<u8>> {
    Some(hmac::sign(&hmac_key(algorithm, key)?, data).as_ref().to_vec())
}

/// Whether a MAC is that of `data`, in the same time whatever it is.
pub(crate) fn mac_verify(algorithm: Algorithm, key: &[u8], data: &[u8], mac: &[u8]) -> Option<bool> {
    Some(hmac::verify(&hmac_key(algorithm, key)?, data, mac).is_ok())
}

fn hmac_key(algorithm: Algorithm, key: &[u8]) -> Option<hmac::Key> {
    let algorithm = match algorithm {
        Algorithm::HmacSha1 => hmac::HMAC_SHA1_FOR_LEGACY_USE_ONLY,
        Algorithm::HmacSha224 => hmac::HMAC_SHA224,
        Algorithm::HmacSha256 => hmac::HMAC_SHA256,
        Algorithm::HmacSha384 => hmac::HMAC_SHA384,
        Algorithm::HmacSha512 => hmac::HMAC_SHA512,
        Algorithm::TripleDes | Algorithm::Aes => return None,
    };
    Some(hmac::Key::new(algorithm, key))
}
