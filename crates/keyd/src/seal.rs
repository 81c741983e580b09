//! The sealing of ledger records: what etcd, a replica and a backup hold instead of plaintext.
//!
//! ```text
//!  0   1  version: 1 a record, 2 a tombstone
//!  1   4  epoch of the cluster
//!  5   8  change: how often this record was changed
//! 13  12  nonce, random
//! 25   n  ciphertext
//! ..  16  tag
//! ```
//! Integers are little-endian. The cipher is AES-256-GCM. Its key is HKDF-SHA-256(salt = cluster id, key = cluster key,
//! info = `capstan keyd seal v1 KIND`), where KIND is the first component of the record's path. Its additional data are
//! `capstan keyd record v1`, cluster id (16), path, and the header above (25). So a record opens only at its own path,
//! in its own cluster, and with the epoch and the change that it was sealed with.
//!
//! A record that is to be no more is replaced by a **tombstone**: the same bytes under version 2, sealed at its path
//! with the next change, and nothing in it. So it takes the cluster key to take a record away, and not only the right
//! to write to etcd.
//!
//! What this cannot see is a record that is put back whole to what it was: that opens. Each node therefore keeps
//! ([`Opened::epoch`], [`Opened::change`]) of what it has seen and refuses to go back.
//!
//! Limits: nonces are random, so one kind should have below 2^32 sealings under one cluster key (NIST SP 800-38D, 8.3),
//! which is a change of each of a million records each hour for half a year; a new cluster key begins anew. The derived
//! keys are kept, with their key schedules, as long as the sealer is.

use std::collections::HashMap;
use std::sync::{Arc, PoisonError, RwLock};

use aws_lc_rs::aead::{AES_256_GCM, Aad, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use capstan_keys::api::ClusterId;
use capstan_keys::{KeyError, RootKey, random};
use thiserror::Error;
use zeroize::Zeroizing;

use crate::ledger::{PATH_LEN_MAX, RECORD_LEN_MAX};

const VERSION: u8 = 1;
const VERSION_TOMBSTONE: u8 = 2;
const HEADER_LEN: usize = 1 + 4 + 8 + NONCE_LEN;
const TAG_LEN: usize = 16;
/// Bytes that sealing adds.
pub const OVERHEAD_LEN: usize = HEADER_LEN + TAG_LEN;
/// Longest plaintext of a record.
pub const PLAINTEXT_LEN_MAX: usize = RECORD_LEN_MAX - OVERHEAD_LEN;
const DOMAIN: &[u8] = b"capstan keyd record v1";
const AAD_LEN_MAX: usize = DOMAIN.len() + 16 + PATH_LEN_MAX + HEADER_LEN;
/// Kinds whose keys are kept; there are some 15, and whoever invents paths shall not fill the memory.
const KINDS_MAX: usize = 64;

/// Why a record was not sealed or opened.
#[derive(Debug, Error)]
pub enum SealError {
    /// Peer or attacker: the record is not what this cluster sealed for this path.
    #[error(
        "the record {path} was altered, or sealed for another path or cluster: it is not used. Compare it with the other \
         nodes, and restore it from a backup if they hold no better one"
    )]
    Altered {
        /// The path it was read from.
        path: String,
    },
    /// Operator: a later program sealed it.
    #[error(
        "the record {path} has version {found}, this program reads {VERSION} and {VERSION_TOMBSTONE}: use a newer Capstan on this node"
    )]
    Version {
        /// The path.
        path: String,
        /// The version found.
        found: u8,
    },
    /// Caller: a path or a plaintext that no record has.
    #[error("the record {path:?} cannot be: {reason}")]
    Impossible {
        /// The path, cut where it is too long.
        path: String,
        /// What is wrong with it.
        reason: &'static str,
    },
    /// Host: the cryptographic library failed.
    #[error("sealing or opening the record {path} failed: see the cause below")]
    Host {
        /// The path.
        path: String,
        /// The cause.
        #[source]
        source: KeyError,
    },
}

/// What was sealed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SealedContent {
    /// A record.
    Record,
    /// That the record at this path is no more.
    Tombstone,
}

/// A record that was opened. It may hold secrets: no `Debug`, and the plaintext is zeroised.
pub struct Opened {
    /// The epoch it was sealed in.
    pub epoch: u32,
    /// How often the record had been changed.
    pub change: u64,
    /// Whether it is a record, or says that there is none any more.
    pub content: SealedContent,
    /// What it says; nothing in a tombstone.
    pub plaintext: Zeroizing<Vec<u8>>,
}

/// Seals and opens the records of one cluster; shared by all threads.
pub struct Sealer {
    cluster: ClusterId,
    /// One of them derives the key of a kind that is met for the first time.
    key: Arc<RootKey>,
    kinds: RwLock<HashMap<Box<str>, Arc<LessSafeKey>>>,
}

impl Sealer {
    /// The sealer under a cluster key.
    pub fn new(key: Arc<RootKey>, cluster: ClusterId) -> Self {
        Self { cluster, key, kinds: RwLock::default() }
    }

    /// Seals a record under a fresh nonce. `change` counts the changes of this record: one more each time.
    pub fn seal(&self, path: &str, epoch: u32, change: u64, plaintext: &[u8]) -> Result<Vec<u8>, SealError> {
        let mut nonce = [0; NONCE_LEN];
        random(&mut nonce).map_err(|source| SealError::Host { path: path.to_owned(), source })?;
        self.seal_with(VERSION, path, (epoch, change), nonce, plaintext)
    }

    /// Seals that the record at this path is no more. `change` goes on counting.
    pub fn seal_tombstone(&self, path: &str, epoch: u32, change: u64) -> Result<Vec<u8>, SealError> {
        let mut nonce = [0; NONCE_LEN];
        random(&mut nonce).map_err(|source| SealError::Host { path: path.to_owned(), source })?;
        self.seal_with(VERSION_TOMBSTONE, path, (epoch, change), nonce, b"")
    }

    fn seal_with(
        &self,
        version: u8,
        path: &str,
        (epoch, change): (u32, u64),
        nonce: [u8; NONCE_LEN],
        plaintext: &[u8],
    ) -> Result<Vec<u8>, SealError> {
        if plaintext.len() > PLAINTEXT_LEN_MAX {
            return Err(impossible(path, "it is longer than a record may be"));
        }
        let key = self.key(path)?;
        let mut sealed = Vec::with_capacity(OVERHEAD_LEN + plaintext.len());
        sealed.push(version);
        sealed.extend_from_slice(&epoch.to_le_bytes());
        sealed.extend_from_slice(&change.to_le_bytes());
        sealed.extend_from_slice(&nonce);
        sealed.extend_from_slice(plaintext);
        let (header, body) = sealed.split_at_mut(HEADER_LEN);
        let bound = Bound::new(self.cluster, path, header);
        let tag = key
            .seal_in_place_separate_tag(Nonce::assume_unique_for_key(nonce), Aad::from(bound.bytes()), body)
            .map_err(|_| impossible(path, "the cipher refused it"))?;
        sealed.extend_from_slice(tag.as_ref());
        Ok(sealed)
    }

    /// Opens what [`Sealer::seal`] made for this path. Any bytes may be given.
    pub fn open(&self, path: &str, sealed: &[u8]) -> Result<Opened, SealError> {
        let altered = || SealError::Altered { path: path.to_owned() };
        let Some((header, body)) = sealed.split_first_chunk::<HEADER_LEN>() else { return Err(altered()) };
        if body.len() < TAG_LEN || sealed.len() > RECORD_LEN_MAX {
            return Err(altered());
        }
        let content = match header[0] {
            VERSION => SealedContent::Record,
            VERSION_TOMBSTONE => SealedContent::Tombstone,
            found => return Err(SealError::Version { path: path.to_owned(), found }),
        };
        let mut fields = capstan_format::Cursor::new("sealed record", &header[1..]);
        let epoch = fields.u32().map_err(|_| altered())?;
        let change = u64::from_le_bytes(fields.array().map_err(|_| altered())?);
        let nonce = fields.array().map_err(|_| altered())?;

        let key = self.key(path)?;
        let bound = Bound::new(self.cluster, path, header);
        let mut plaintext = Zeroizing::new(body.to_vec());
        let len = key
            .open_in_place(Nonce::assume_unique_for_key(nonce), Aad::from(bound.bytes()), &mut plaintext)
            .map_err(|_| altered())?
            .len();
        plaintext.truncate(len);
        Ok(Opened { epoch, change, content, plaintext })
    }

    /// The epoch and the change that a record says it is of, where nobody can open it: whoever may write to etcd can
    /// say anything here.
    pub(crate) fn claimed(sealed: &[u8]) -> Option<(u32, u64)> {
        let (header, _) = sealed.split_first_chunk::<HEADER_LEN>().filter(|(_, body)| body.len() >= TAG_LEN)?;
        let mut fields = capstan_format::Cursor::new("sealed record", &header[1..]);
        Some((fields.u32().ok()?, u64::from_le_bytes(fields.array().ok()?)))
    }

    /// The key of the path's kind, derived once.
    fn key(&self, path: &str) -> Result<Arc<LessSafeKey>, SealError> {
        if path.len() > PATH_LEN_MAX {
            return Err(impossible(path, "the path is too long"));
        }
        let kind = path.split('/').next().unwrap_or_default();
        if kind.is_empty() {
            return Err(impossible(path, "the path does not begin with a kind of record"));
        }
        if let Some(key) = self.kinds.read().unwrap_or_else(PoisonError::into_inner).get(kind) {
            return Ok(key.clone());
        }
        let host = |source| SealError::Host { path: path.to_owned(), source };
        let secret = self.key.derive(&self.cluster.0, &format!("capstan keyd seal v1 {kind}")).map_err(host)?;
        let key = UnboundKey::new(&AES_256_GCM, secret.expose())
            .map_err(|_| impossible(path, "the cipher refused its key"))?;
        let key = Arc::new(LessSafeKey::new(key));
        let mut kinds = self.kinds.write().unwrap_or_else(PoisonError::into_inner);
        if kinds.len() < KINDS_MAX {
            kinds.insert(kind.into(), key.clone());
        }
        Ok(key)
    }
}

fn impossible(path: &str, reason: &'static str) -> SealError {
    SealError::Impossible { path: path.chars().take(PATH_LEN_MAX).collect(), reason }
}

/// What a record is bound to, without an allocation: the longest has some 300 bytes.
struct Bound {
    bytes: [u8; AAD_LEN_MAX],
    len: usize,
}

impl Bound {
    /// `path` was checked to be no longer than [`PATH_LEN_MAX`].
    fn new(cluster: ClusterId, path: &str, header: &[u8]) -> Self {
        let mut bound = Self { bytes: [0; AAD_LEN_MAX], len: 0 };
        for part in [DOMAIN, &cluster.0, path.as_bytes(), header] {
            bound.bytes[bound.len..bound.len + part.len()].copy_from_slice(part);
            bound.len += part.len();
        }
        bound
    }

    fn bytes(&self) -> &[u8] {
        &self.bytes[..self.len]
    }
}

#[cfg(test)]
mod tests;
