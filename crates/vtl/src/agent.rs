//! Drives that fetch keys themselves: the host's program knows nothing of it, and what lies on the disk is ciphertext.

use capstan_format::{Algorithm, KeyTag, Volser};
use capstan_tape::DriveKey;
use thiserror::Error;

/// Gives drives the keys of their volumes.
pub trait KeyAgent: Send + Sync {
    /// A key for a volume that is about to be written from the beginning of tape; never one that was used before.
    fn new_key(&self, volser: &Volser, algorithm: Algorithm) -> Result<DriveKey, KeyAgentError>;

    /// The first block that is encrypted with a new key is about to be written: from here on it is the volume's key, and older ones only
    /// read. Without this no block goes to the volume: one that is written under a key of which no record says so may be destroyed as
    /// never used.
    fn began(&self, volser: &Volser, tag: &KeyTag) -> Result<(), KeyAgentError>;

    /// The key that a volume names, to read it.
    fn key(&self, volser: &Volser, tag: &KeyTag) -> Result<DriveKey, KeyAgentError>;

    /// The same, to append to the volume: only a key that still encrypts.
    fn key_to_append(&self, volser: &Volser, tag: &KeyTag) -> Result<DriveKey, KeyAgentError>;
}

/// Why there is no key.
#[derive(Debug, Error)]
pub enum KeyAgentError {
    /// Keys: there is none of this name, or it was destroyed (7/74/63).
    #[error("key {tag} of volume {volser} is not there any more: what it encrypted cannot be read")]
    Gone {
        /// The volume.
        volser: Volser,
        /// The key's public name.
        tag: KeyTag,
        /// What the store says.
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// Keys: it only reads any more, or is another volume's (7/74/64).
    #[error("volume {volser} cannot be appended to with the key that it names")]
    Refused {
        /// The volume.
        volser: Volser,
        /// What the store says.
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// Host or peer: the keys could not be asked (7/74/61).
    #[error("the keys of volume {volser} could not be asked: see that the key store can be read, and mount it again")]
    Unreachable {
        /// The volume.
        volser: Volser,
        /// The cause.
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
}
