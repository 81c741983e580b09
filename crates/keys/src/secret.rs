//! Secrets as types: what holds key bytes in memory.

use aws_lc_rs::rand;
use capstan_format::{Algorithm, KeyTag};
use zeroize::Zeroize;

use crate::KeyError;
use crate::envelope::tag_of;

/// Bytes of every key here.
pub const KEY_LEN: usize = 32;

/// 32 secret bytes, on the heap so that moving the value leaves no copy behind, zeroised when dropped.
///
/// Neither `Debug`, `Display` nor `Clone`, and nothing that holds one may derive them.
pub struct Secret(Box<[u8; KEY_LEN]>);

impl Secret {
    /// A secret written in place by `fill`.
    pub fn filled<E>(fill: impl FnOnce(&mut [u8; KEY_LEN]) -> Result<(), E>) -> Result<Self, E> {
        let mut secret = Self(Box::new([0; KEY_LEN]));
        fill(&mut secret.0)?;
        Ok(secret)
    }

    /// A secret from the random generator.
    pub fn random() -> Result<Self, KeyError> {
        Self::filled(|bytes| random(bytes))
    }

    /// The bytes; they must not be copied anywhere that is not zeroised.
    pub fn expose(&self) -> &[u8; KEY_LEN] {
        &self.0
    }
}

impl Drop for Secret {
    fn drop(&mut self) {
        self.0.zeroize();
    }
}

/// Fills `bytes` from the random generator of the cryptographic library, the only source of randomness here.
pub fn random(bytes: &mut [u8]) -> Result<(), KeyError> {
    rand::fill(bytes).map_err(|error| KeyError::host("drawing random bytes", error))
}

/// The key of one life of one volume.
///
/// It zeroises itself, and it must never be printed, logged, cloned, compared byte by byte, sent unwrapped or written
/// anywhere. It has no `Debug`, `Display` or `Clone`, and what holds one must not have them either:
/// ```compile_fail
/// fn printed(key: capstan_keys::VolumeKey) -> String { format!("{key:?}") }
/// ```
/// ```compile_fail
/// fn doubled(key: &capstan_keys::VolumeKey) -> capstan_keys::VolumeKey { key.clone() }
/// ```
pub struct VolumeKey {
    secret: Secret,
    algorithm: Algorithm,
    tag: KeyTag,
}

impl VolumeKey {
    /// A new one.
    pub(crate) fn random(algorithm: Algorithm) -> Result<Self, KeyError> {
        Ok(Self::new(Secret::random()?, algorithm))
    }

    /// A key that was drawn before, under a cipher.
    pub fn new(secret: Secret, algorithm: Algorithm) -> Self {
        let tag = tag_of(secret.expose());
        Self { secret, algorithm, tag }
    }

    /// The cipher it is for.
    pub fn algorithm(&self) -> Algorithm {
        self.algorithm
    }

    /// Its public name, computed from the key itself: the first 16 bytes of HMAC-SHA-256(key, `capstan key tag v1`).
    pub fn tag(&self) -> KeyTag {
        self.tag
    }

    /// The key itself, for the one purpose of loading it into a drive's key slot.
    ///
    /// Never store it, print it, log it, put it into an error, or copy it into memory that is not zeroised. Never use it
    /// as a cipher's key directly: the drive derives the key of each mount from it.
    pub fn expose(&self) -> &[u8; KEY_LEN] {
        self.secret.expose()
    }
}
