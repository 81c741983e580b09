//! The root key of the cluster: where it is had from, and what hangs under it.
//!
//! ```text
//! token (PKCS#11): root key, never outside ----------------------+--> cluster key --HKDF--> sealing key of each kind of record
//! m of n passphrases --Argon2id--> shares --> secret --> root key +               +-HKDF--> wrapping key of each group
//! key file (only if a quorum said so) ------------------------------> cluster key                  +--> group key --> keys
//! ```
//! A node starts *locked*: it holds `root.sealed` ([`SealedRoot`]), in which the cluster key lies under the root key
//! and the root key under its quorum, and can open nothing. [`Unlocking`] is the state machine of its unlocking. Once
//! the cluster key is there, the root key is dropped again: whatever needs it (another quorum) needs its holders once
//! more. What a node unlocks itself with, where people have approved that ([`OwnUnlock`]), is the cluster key and never
//! the root key.
//!
//! Nothing here reads a clock or waits for the network. Argon2id takes some tenths of a second and a token takes what
//! it takes: whoever serves many peers calls these from a thread that may block.

mod error;
pub(crate) mod file;
mod hierarchy;
mod own;
mod process;
pub(crate) mod quorum;
mod sealed;
mod split;
mod token;
mod unlocking;

use capstan_format::{FormatError, crc32c};

pub use error::RootError;
pub use file::Existing;
pub use hierarchy::{ClusterKeys, GroupKey, HierarchyError};
pub use own::{OnMachine, OwnUnlock};
pub use process::keep_memory_private;
pub use quorum::{Holder, Quorum, Share};
pub use sealed::{OpenRoot, Opens, SealedRoot};
pub use token::{Pin, Token, TokenError};
pub use unlocking::{Unlocking, UnlockingStage};

/// What stands before the CRC32C at the end, once magic, checksum and version are right.
pub(crate) fn checked_body<'a>(
    what: &'static str,
    magic: &[u8; 8],
    supported: u32,
    bytes: &'a [u8],
) -> Result<&'a [u8], FormatError> {
    let Some((head, _)) = bytes.split_first_chunk::<16>() else {
        return Err(FormatError::Truncated { what, needed: 16, found: bytes.len() as u64 });
    };
    if head[..8] != magic[..] {
        return Err(FormatError::Magic { what });
    }
    let (body, stored) = bytes.split_at(bytes.len() - 4);
    let stored = stored.iter().rev().fold(0, |value, &byte| value << 8 | u32::from(byte));
    let computed = crc32c(body);
    if stored != computed {
        return Err(FormatError::Checksum { what, stored, computed });
    }
    let found = head[8..12].iter().rev().fold(0, |value, &byte| value << 8 | u32::from(byte));
    if found != supported {
        return Err(FormatError::Version { what, found, supported });
    }
    Ok(body)
}

#[cfg(test)]
mod tests;
