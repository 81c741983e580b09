//! Drives that fetch keys themselves: the host's program knows nothing of it, and what lies on the disk is ciphertext.

use capstan_format::{Algorithm, KeyTag, Volser};
use capstan_keys::Cartridge;
use capstan_tape::DriveKey;
use thiserror::Error;

/// Gives drives the keys of their volumes. `drive` is the serial number of the one that asks: it may be held to some of
/// the keys.
pub trait KeyAgent: Send + Sync {
    /// A key for a volume that is about to be written from the beginning of tape; never one that was used before.
    ///
    /// # Errors
    /// [`KeyAgentError::Refused`] if the drive may not have one; [`KeyAgentError::Unreachable`] if the keys could not
    /// be asked.
    fn new_key(&self, drive: &str, volser: &Volser, algorithm: Algorithm) -> Result<DriveKey, KeyAgentError>;

    /// The first block that is encrypted with a new key is about to be written: from here on it is the volume's key,
    /// and older ones only read. Without this no block goes to the volume: one that is written under a key of which no
    /// record says so may be destroyed as never used.
    ///
    /// # Errors
    /// As [`KeyAgent::new_key`], and [`KeyAgentError::Gone`] if the key was destroyed. The block must not be written
    /// then.
    fn began(&self, drive: &str, cartridge: Cartridge<'_>, tag: &KeyTag) -> Result<(), KeyAgentError>;

    /// The key that a volume names, to read it.
    ///
    /// # Errors
    /// [`KeyAgentError::Gone`] if there is no such key any more; else as [`KeyAgent::new_key`].
    fn key(&self, drive: &str, cartridge: Cartridge<'_>, tag: &KeyTag) -> Result<DriveKey, KeyAgentError>;

    /// The key to append with to a volume whose first block names `first`: that one, one that followed it, or a new
    /// one, which is on record as begun.
    ///
    /// # Errors
    /// [`KeyAgentError::Gone`] if the volume's key is not there any more; else as [`KeyAgent::new_key`].
    fn key_to_append(&self, drive: &str, cartridge: Cartridge<'_>, first: &KeyTag) -> Result<DriveKey, KeyAgentError>;
}

/// Why there is no key.
#[derive(Debug, Error)]
pub enum KeyAgentError {
    /// Keys: there is none of this name, or it was destroyed (7/74/63).
    #[error("key {tag} of volume {volser} no longer exists: the data that it encrypted cannot be read")]
    Gone {
        /// The volume.
        volser: Volser,
        /// The key's public name.
        tag: KeyTag,
        /// What the store says.
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// Keys: a policy forbids it, or the key is another volume's (7/74/64).
    #[error("drive {drive} is not allowed to use the key of volume {volser}")]
    Refused {
        /// The drive.
        drive: String,
        /// The volume.
        volser: Volser,
        /// What the store says.
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// Host or peer: the keys could not be asked (7/74/61).
    #[error(
        "the keys of volume {volser} could not be asked: see that the key store can be read, or a node of the key cluster reached, and mount it again"
    )]
    Unreachable {
        /// The volume.
        volser: Volser,
        /// The cause.
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
}
