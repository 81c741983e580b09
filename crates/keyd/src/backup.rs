//! Backups of the cluster: what is left when every node is gone.
//!
//! ```text
//! core security backup    cluster key, CA key, under a quorum of custodians   made when they change       in safes, apart
//! database backup         every sealed record at one revision, and a MAC      made daily, by the node     anywhere
//! ```
//! Neither tells anything without the other: the core security backup ([`CoreBackup`]) opens with its custodians'
//! passphrases and holds no record; the database backup is ciphertext throughout and opens with nothing but the cluster
//! key, which only the core security backup holds. So the first is made rarely, with people in the room, and the second
//! by a timer, with nobody.
//!
//! **A backup counts when it has been restored.** [`verify`] reads a database backup with an opened core security
//! backup as a restore would: it checks the MAC, opens every record, unwraps every key and compares it with its tag,
//! and says which keys it has proved. [`restore`] does the same and gives the records, sealed anew for a new epoch, so
//! that whoever still runs in the old one is told apart. A backup that is older than what is known is named and not
//! believed.
//!
//! A database backup says in clear which keys it holds (their tags tell nothing of them): the certificate that a key is
//! destroyed must account for every backup that could bring it back.

mod core;
mod database;
mod error;
mod known;
mod records;
mod restore;
mod stream;

pub use self::core::{CoreBackup, OpenCore};
pub use database::{Manifest, read_manifest, write_database};
pub use error::BackupError;
pub use known::{Knowledge, Known};
pub use records::ClusterRecords;
pub use restore::{BackupCheck, UnusableRecord, check, restore, verify};

use capstan_format::{Algorithm, KeyTag};
use capstan_keys::{Name, WrappedKey};

/// What a record holds of keys.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Held {
    /// The key of a group, under the cluster key.
    GroupKey {
        /// The group.
        group: Name,
        /// Its key.
        wrapped: WrappedKey,
    },
    /// A key, under the key of its group.
    Key {
        /// Its public name, computed from the key.
        tag: KeyTag,
        /// Its cipher.
        algorithm: Algorithm,
        /// The group whose key wraps it.
        group: Name,
        /// The key.
        wrapped: WrappedKey,
    },
    /// What a KMIP client keeps, under a key of its own.
    Object {
        /// Its Unique Identifier.
        uid: String,
        /// Its material.
        wrapped: Box<[u8]>,
    },
    /// A key that was drawn ahead, under the pool key: it belongs to no group yet.
    PoolKey {
        /// Its public name, computed from the key.
        tag: KeyTag,
        /// Its cipher.
        algorithm: Algorithm,
        /// The key.
        wrapped: WrappedKey,
    },
}

/// Whoever knows the records: backups know only paths and bytes, and ask what keys are in them.
pub trait HoldsKeys {
    /// The wrapped keys in the record at `path`; none in most. The error says what is wrong with the record.
    fn held(&self, path: &str, plaintext: &[u8]) -> Result<Vec<Held>, String>;
}

impl<F: Fn(&str, &[u8]) -> Result<Vec<Held>, String>> HoldsKeys for F {
    fn held(&self, path: &str, plaintext: &[u8]) -> Result<Vec<Held>, String> {
        self(path, plaintext)
    }
}

#[cfg(test)]
mod tests;
