//! The record of the cluster's certificate authority: its certificate, and its private key under a key of its own.
//!
//! Records are sealed in the ledger, and open in the memory of a node that is unlocked. With this key whoever reads
//! that memory makes out certificates for anybody, so it is open only while something is signed.

use aws_lc_rs::key_wrap::{AES_256, AesKek, KeyWrapPadded};
use capstan_keys::api::Base64;
use capstan_service::identity::{Authority, AuthorityError, AuthorityKey};
use rustls::pki_types::CertificateDer;
use serde::{Deserialize, Serialize};
use zeroize::Zeroizing;

use crate::root::ClusterKeys;

/// What a wrap adds at most: its check value and the padding of the last 8 bytes.
const WRAP_LEN_MAX: usize = 8 + 7;

/// The record.
#[derive(Debug, Serialize, Deserialize)]
pub struct AuthorityRecord {
    certificate: Base64,
    /// The private key (PKCS#8), wrapped (AES key wrap with padding) under a key derived from the cluster key.
    wrapped: Base64,
}

impl AuthorityRecord {
    /// The record of a new authority.
    pub fn new(authority: &Authority, key: &AuthorityKey, keys: &ClusterKeys) -> Result<Self, AuthorityError> {
        let plain = key.expose();
        let mut wrapped = vec![0; plain.len() + WRAP_LEN_MAX];
        let failed = |_| AuthorityError::Wrapped;
        let len = kek(keys)?.wrap_with_padding(plain, &mut wrapped).map_err(failed)?.len();
        wrapped.truncate(len);
        Ok(Self { certificate: Base64(authority.certificate().to_vec()), wrapped: Base64(wrapped) })
    }

    /// Its certificate.
    pub fn certificate(&self) -> CertificateDer<'static> {
        CertificateDer::from(self.certificate.0.clone())
    }

    /// Its private key.
    pub fn key(&self, keys: &ClusterKeys) -> Result<AuthorityKey, AuthorityError> {
        let mut plain = Zeroizing::new(vec![0; self.wrapped.0.len()]);
        let failed = |_| AuthorityError::Wrapped;
        let len = kek(keys)?.unwrap_with_padding(&self.wrapped.0, &mut plain).map_err(failed)?.len();
        plain.truncate(len);
        Ok(AuthorityKey::new(plain))
    }

    /// The authority, able to sign.
    pub fn open(&self, keys: &ClusterKeys) -> Result<Authority, AuthorityError> {
        Authority::open(self.certificate(), &self.key(keys)?)
    }
}

fn kek(keys: &ClusterKeys) -> Result<AesKek, AuthorityError> {
    let wrapping = keys.derive(&keys.cluster().0, "capstan keyd authority wrap v1")?;
    AesKek::new(&AES_256, wrapping.expose()).map_err(|_| AuthorityError::Wrapped)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

    use capstan_keys::api::ClusterId;

    use super::*;

    #[test]
    fn its_key_opens_in_its_cluster_alone_and_stands_nowhere_in_the_record() {
        let cluster = ClusterId([1; 16]);
        let keys = ClusterKeys::create(cluster).unwrap();
        let (authority, key) = Authority::create(cluster, 1_800_000_000_000_000_000).unwrap();
        let mut record = AuthorityRecord::new(&authority, &key, &keys).unwrap();
        assert_eq!(record.key(&keys).unwrap().expose(), key.expose());
        assert_eq!(record.open(&keys).unwrap().certificate(), authority.certificate());
        assert!(!record.wrapped.0.windows(16).any(|window| key.expose().windows(16).any(|clear| clear == window)));
        assert!(record.key(&ClusterKeys::create(cluster).unwrap()).is_err());
        record.wrapped.0[20] ^= 1;
        assert!(record.key(&keys).is_err());
    }
}
