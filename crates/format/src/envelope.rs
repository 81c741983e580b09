//! What an encrypting drive puts around a block: 36 bytes, so that with the block header the cost is 100 bytes.
//!
//! ```text
//!  0  1  algorithm: 1 AES-256-GCM, 2 AES-256-CCM
//!  1 11  mount salt, drawn at random when the key is loaded into the drive
//! 12  8  counter: 0, 1, 2 ... since the key was loaded
//! 20  n  ciphertext, as long as the block
//! 20+n 16  tag
//! ```
//! The key of a mount is
//! `HKDF-SHA-256(salt = mount salt, key = volume key, info = "capstan mount key v1" || algorithm)`, 32 bytes; the nonce
//! is four zero bytes and the counter, big-endian. A fresh mount key for each load of the key means that no counter has
//! to survive a crash for a nonce never to repeat. Additional data: bytes 0 to 19 and the logical block number (8
//! bytes, little-endian), so that a block is readable only where it was written. NIST SP 800-38D section 8.2.1
//! (deterministic construction), RFC 5869.

use serde::{Deserialize, Serialize};

use crate::FormatError;
use crate::cursor::Cursor;

/// Bytes of the mount salt.
pub const MOUNT_SALT_LEN: usize = 11;
/// Bytes of the authentication tag.
pub const TAG_LEN: usize = 16;
/// Bytes in front of the ciphertext.
pub const ENVELOPE_PREFIX_LEN: usize = 20;
/// Bytes that encryption adds to a block.
pub const ENVELOPE_LEN: usize = ENVELOPE_PREFIX_LEN + TAG_LEN;

/// The cipher of a volume.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Algorithm {
    /// AES-256-GCM, as LTO-4 and later drives use.
    Aes256Gcm,
    /// AES-256-CCM, as T10000 and T9840D drives use.
    Aes256Ccm,
}

impl Algorithm {
    /// The algorithm's number on tape.
    pub fn code(self) -> u8 {
        match self {
            Self::Aes256Gcm => 1,
            Self::Aes256Ccm => 2,
        }
    }

    /// The algorithm of a number, if there is one.
    pub fn from_code(code: u8) -> Option<Self> {
        match code {
            1 => Some(Self::Aes256Gcm),
            2 => Some(Self::Aes256Ccm),
            _ => None,
        }
    }

    /// The field's name for it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Aes256Gcm => "AES-256-GCM",
            Self::Aes256Ccm => "AES-256-CCM",
        }
    }
}

/// The clear part of an envelope.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Envelope {
    /// The cipher.
    pub algorithm: Algorithm,
    /// Salt of the mount key.
    pub mount_salt: [u8; MOUNT_SALT_LEN],
    /// Blocks encrypted under the mount key before this one.
    pub counter: u64,
}

impl Envelope {
    /// The 20 bytes in front of the ciphertext.
    pub fn encode(&self) -> [u8; ENVELOPE_PREFIX_LEN] {
        let mut bytes = [0; ENVELOPE_PREFIX_LEN];
        bytes[0] = self.algorithm.code();
        bytes[1..12].copy_from_slice(&self.mount_salt);
        bytes[12..20].copy_from_slice(&self.counter.to_le_bytes());
        bytes
    }

    /// Splits an encrypted block into its envelope and what follows: ciphertext and tag.
    ///
    /// # Errors
    /// [`FormatError::Truncated`] if there is no room for an envelope; [`FormatError::Field`] if its algorithm is
    /// unknown.
    pub fn decode(bytes: &[u8]) -> Result<(Self, &[u8]), FormatError> {
        if bytes.len() < ENVELOPE_LEN {
            let (needed, found) = (ENVELOPE_LEN as u64, bytes.len() as u64);
            return Err(FormatError::Truncated { what: "encrypted block", needed, found });
        }
        let mut cursor = Cursor::new("encrypted block", bytes);
        let code = cursor.u8()?;
        let algorithm = Algorithm::from_code(code).ok_or_else(|| cursor.field("algorithm", &code))?;
        let mount_salt = cursor.array()?;
        let counter = cursor.u64()?;
        Ok((Self { algorithm, mount_salt, counter }, &bytes[ENVELOPE_PREFIX_LEN..]))
    }

    /// The nonce of this block: four zero bytes and the counter, big-endian.
    pub fn nonce(&self) -> [u8; 12] {
        let mut nonce = [0; 12];
        nonce[4..].copy_from_slice(&self.counter.to_be_bytes());
        nonce
    }

    /// The additional data of this block at logical block number `lbn`.
    pub fn additional_data(&self, lbn: u64) -> [u8; ENVELOPE_PREFIX_LEN + 8] {
        let mut bytes = [0; ENVELOPE_PREFIX_LEN + 8];
        bytes[..ENVELOPE_PREFIX_LEN].copy_from_slice(&self.encode());
        bytes[ENVELOPE_PREFIX_LEN..].copy_from_slice(&lbn.to_le_bytes());
        bytes
    }
}
