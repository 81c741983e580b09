//! The key of a volume.

use capstan_format::{Algorithm, KeyTag};

use crate::KeyError;
use crate::envelope::tag_of;
use crate::secret::{KEY_LEN, Secret};

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
    /// Never store it, print it, log it, put it into an error, or copy it into memory that is not zeroised. Never use
    /// it as a cipher's key directly: the drive derives the key of each mount from it.
    pub fn expose(&self) -> &[u8; KEY_LEN] {
        self.secret.expose()
    }
}
