//! Secrets as types: what holds key bytes in memory.

use aws_lc_rs::rand;
use zeroize::Zeroize;

use crate::KeyError;

/// Bytes of every key here.
pub const KEY_LEN: usize = 32;

/// 32 secret bytes, on the heap so that moving the value leaves no copy behind, zeroised when dropped.
///
/// Neither `Debug`, `Display` nor `Clone`, and nothing that holds one may derive them.
pub struct Secret(Box<[u8; KEY_LEN]>);

impl Secret {
    /// A secret written in place by `fill`.
    ///
    /// # Errors
    /// What `fill` fails with.
    pub fn filled<E>(fill: impl FnOnce(&mut [u8; KEY_LEN]) -> Result<(), E>) -> Result<Self, E> {
        let mut secret = Self(Box::new([0; KEY_LEN]));
        fill(&mut secret.0)?;
        Ok(secret)
    }

    /// A secret from the random generator.
    ///
    /// # Errors
    /// [`KeyError::Host`] if the random generator fails.
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
///
/// # Errors
/// [`KeyError::Host`] if the generator fails.
pub fn random(bytes: &mut [u8]) -> Result<(), KeyError> {
    rand::fill(bytes).map_err(|error| KeyError::host("drawing random bytes", error))
}
