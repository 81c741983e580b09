//! Wrapping keys in keys: AES-256 key wrap with padding, and the derivations around it.
//!
//! RFC 5649 (NIST SP 800-38F, KWP) wraps 32 bytes into 40 and sees a wrong wrapping key or an altered byte by itself.
//! It binds no context, so whoever stores a wrapped key binds it to its fields with a MAC, and every unwrapped volume
//! key is checked against its tag. AES-GCM was rejected: it needs a nonce that never repeats, and the keys wrapped here
//! are random already.

use aws_lc_rs::{hkdf, hmac, key_wrap};
use capstan_format::KeyTag;
use key_wrap::KeyWrapPadded;
use zeroize::Zeroizing;

use crate::KeyError;
use crate::secret::{KEY_LEN, Secret};

/// Bytes of a wrapped key.
pub const WRAPPED_LEN: usize = KEY_LEN + 8;
/// A key under another key.
pub type WrappedKey = [u8; WRAPPED_LEN];

const TAG_MESSAGE: &[u8] = b"capstan key tag v1";

/// The public name of a key: the first 16 bytes of HMAC-SHA-256(key, `capstan key tag v1`). It tells nothing of the
/// key.
pub fn tag_of(key: &[u8; KEY_LEN]) -> KeyTag {
    let full = hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, key), TAG_MESSAGE);
    let mut tag = [0; 16];
    tag.copy_from_slice(&full.as_ref()[..16]);
    KeyTag(tag)
}

/// Wraps `key` under `wrapping`.
///
/// # Errors
/// [`KeyError::Host`] if the cryptographic library fails.
pub fn wrap(wrapping: &Secret, key: &[u8; KEY_LEN]) -> Result<WrappedKey, KeyError> {
    let failed = |error| KeyError::host("wrapping a key", error);
    // The interface wants room for the longest padding.
    let mut output = [0; KEY_LEN + 15];
    let kek = key_wrap::AesKek::new(&key_wrap::AES_256, wrapping.expose()).map_err(failed)?;
    let wrapped = kek.wrap_with_padding(key, &mut output).map_err(failed)?;
    WrappedKey::try_from(&*wrapped).map_err(|error| KeyError::host("wrapping a key", error))
}

/// Unwraps a key, or says that `wrapping` is not what it was wrapped under or that it was altered, which look alike.
pub fn unwrap(wrapping: &Secret, wrapped: &WrappedKey) -> Option<Secret> {
    let mut output = Zeroizing::new([0; WRAPPED_LEN]);
    let kek = key_wrap::AesKek::new(&key_wrap::AES_256, wrapping.expose()).ok()?;
    let key = kek.unwrap_with_padding(wrapped, &mut *output).ok()?;
    Secret::filled(|bytes| {
        // Only 32-byte keys are ever wrapped; RFC 5649 itself would allow others.
        let key: &[u8; KEY_LEN] = (&*key).try_into().map_err(|_| ())?;
        bytes.copy_from_slice(key);
        Ok::<(), ()>(())
    })
    .ok()
}

/// HKDF-SHA-256 (RFC 5869) of a secret: one key for each purpose, so that none is used for two things.
///
/// # Errors
/// [`KeyError::Host`] if the cryptographic library fails.
pub fn derive(secret: &[u8; KEY_LEN], salt: &[u8], purpose: &str) -> Result<Secret, KeyError> {
    derive_from(secret, salt, purpose)
}

/// The same of a secret of any length.
pub(crate) fn derive_from(secret: &[u8], salt: &[u8], purpose: &str) -> Result<Secret, KeyError> {
    let failed = |error| KeyError::host("deriving a key", error);
    let extracted = hkdf::Salt::new(hkdf::HKDF_SHA256, salt).extract(secret);
    let info = [purpose.as_bytes()];
    let expanded = extracted.expand(&info, hkdf::HKDF_SHA256).map_err(failed)?;
    Secret::filled(|bytes| expanded.fill(bytes)).map_err(failed)
}

#[cfg(test)]
mod tests;
