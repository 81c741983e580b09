//! `root.sealed`: what a node has of the root key while it is locked.
//!
//! ```text
//!  0   8  "CAPSROOT"
//!  8   4  version, 1
//! 12  16  cluster id
//! 28   4  epoch
//! 32   1  what the root key is under: 1 a quorum, 2 a token
//! 33   .  1: the quorum, as in `quorum.rs`; cluster key (40), wrapped under HKDF(root key, salt = cluster id,
//!            `capstan keyd cluster wrap v1`)
//!         2: label of the token: length (1, at most 32), bytes; id of its key (16); how it wraps (1: 1 AES key wrap with
//!            padding, 2 AES-GCM); cluster key: length (1, at most 64), bytes
//! ..  32  HMAC-SHA-256 of all before, under HKDF(cluster key, salt = cluster id, `capstan keyd root file v1`)
//! ..   1  0, or under a quorum 1: 56 bytes that were meant for autonomous unlock, which no command ever wrote and nothing opens
//!         (`own.rs` is what a node unlocks itself with)
//! ..   4  CRC32C of all before
//! ```
//! All nodes of a cluster have the same file. The checksum has no key, so that
//! damage is told from a wrong passphrase before one is known; the MAC tells what somebody altered: a lower threshold,
//! another holder's name, another epoch.

use std::path::Path;

use aws_lc_rs::hmac;
use capstan_format::{Cursor, FormatError, crc32c};
use capstan_keys::{KeyError, Name, RootKey, SALT_LEN, WRAPPED_LEN, WrappedKey};
use zeroize::Zeroizing;

use super::file::{self, Existing};
use super::quorum::{Quorum, QuorumSealed, Share};
use super::token::{Token, TokenSealed};
use super::{ClusterKeys, RootError};
use capstan_keys::api::ClusterId;

const MAGIC: &[u8; 8] = b"CAPSROOT";
const VERSION: u32 = 1;
const WHAT: &str = "sealed root key";
const MAC_LEN: usize = 32;
/// Longest file: 32 holders of 148 bytes, and what stands around them.
const LEN_MAX: usize = 8192;

/// What opens a sealed root, for those who ask for it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Opens {
    /// So many of these holders.
    Quorum {
        /// How many.
        threshold: u8,
        /// Who.
        holders: Vec<Name>,
    },
    /// The token of this label.
    Token {
        /// The label.
        label: String,
    },
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Under {
    Quorum { quorum: QuorumSealed, cluster_key: WrappedKey },
    Token(TokenSealed),
}

/// Kept as it lies there: a file is written again as it was read.
type Tail = [u8; SALT_LEN + WRAPPED_LEN];

/// The root key of a cluster, sealed: nothing in it is secret.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SealedRoot {
    cluster: ClusterId,
    epoch: u32,
    under: Under,
    mac: [u8; MAC_LEN],
    tail: Option<Tail>,
}

/// A root key that a quorum has opened, for what only the quorum may do. Drop it soon. No `Debug`, no `Clone`.
pub struct OpenRoot {
    pub(super) root: RootKey,
    pub(super) keys: ClusterKeys,
}

impl SealedRoot {
    /// A new root key under a quorum, and the keys of a cluster under it.
    pub fn under_quorum(keys: &ClusterKeys, epoch: u32, quorum: &Quorum) -> Result<Self, RootError> {
        Self::split(&RootKey::random()?, keys, epoch, quorum)
    }

    fn split(root: &RootKey, keys: &ClusterKeys, epoch: u32, quorum: &Quorum) -> Result<Self, RootError> {
        let quorum = QuorumSealed::seal(root, keys.cluster(), quorum)?;
        Self::signed(keys, epoch, Under::Quorum { quorum, cluster_key: keys.wrap(root)? })
    }

    /// A new root key made in a token, which it never leaves, and the keys of a cluster under it.
    pub fn under_token(keys: &ClusterKeys, epoch: u32, token: &Token) -> Result<Self, RootError> {
        Self::signed(keys, epoch, Under::Token(token.seal(keys)?))
    }

    fn signed(keys: &ClusterKeys, epoch: u32, under: Under) -> Result<Self, RootError> {
        let mut sealed = Self { cluster: keys.cluster(), epoch, under, mac: [0; MAC_LEN], tail: None };
        let mac = hmac::sign(&mac_key(keys)?, &sealed.encode_signed());
        sealed.mac.copy_from_slice(mac.as_ref());
        Ok(sealed)
    }

    /// The cluster it is of.
    pub fn cluster(&self) -> ClusterId {
        self.cluster
    }

    /// The epoch it was made in.
    pub fn epoch(&self) -> u32 {
        self.epoch
    }

    /// What opens it.
    pub fn opens(&self) -> Opens {
        match &self.under {
            Under::Quorum { quorum, .. } => {
                Opens::Quorum { threshold: quorum.threshold(), holders: quorum.holders().cloned().collect() }
            }
            Under::Token(token) => Opens::Token { label: token.label().to_owned() },
        }
    }

    /// Opens the share of one holder: some tenths of a second, and 64 MiB.
    pub fn open_share(&self, holder: &Name, passphrase: &Zeroizing<String>) -> Result<Share, RootError> {
        let (quorum, _) = self.quorum("a quorum")?;
        quorum.open_share(self.cluster, holder, passphrase)
    }

    /// Opens the root with enough shares of different holders.
    pub fn open_with_shares<'a>(&self, shares: impl IntoIterator<Item = &'a Share>) -> Result<OpenRoot, RootError> {
        let (quorum, cluster_key) = self.quorum("a quorum")?;
        let root = quorum.open(self.cluster, shares)?;
        let keys = self.cluster_keys(&root, cluster_key)?;
        Ok(OpenRoot { root, keys })
    }

    /// The keys of the cluster, with the token.
    pub fn open_with_token(&self, token: &Token) -> Result<ClusterKeys, RootError> {
        let Under::Token(sealed) = &self.under else {
            let instead = "its holders give their shares";
            return Err(RootError::NotThisWay { cluster: self.cluster, offered: "a token", instead });
        };
        self.checked(token.unseal(sealed, self.cluster)?)
    }

    /// Whether this is the root key of that cluster, in that epoch, as somebody made it who had the cluster's keys.
    pub fn check_of(&self, keys: &ClusterKeys, epoch: u32) -> Result<(), RootError> {
        let altered = |_| RootError::Altered { what: "the sealed root key", cluster: self.cluster };
        hmac::verify(&mac_key(keys)?, &self.encode_signed(), &self.mac).map_err(altered)?;
        match self.cluster == keys.cluster() && self.epoch == epoch {
            true => Ok(()),
            false => Err(RootError::Altered { what: "the epoch of the sealed root key", cluster: self.cluster }),
        }
    }

    fn quorum(&self, offered: &'static str) -> Result<(&QuorumSealed, &WrappedKey), RootError> {
        match &self.under {
            Under::Quorum { quorum, cluster_key } => Ok((quorum, cluster_key)),
            Under::Token(_) => {
                let instead = "it is made in a token and never leaves it. Plug that in, and give its PIN";
                Err(RootError::NotThisWay { cluster: self.cluster, offered, instead })
            }
        }
    }

    fn cluster_keys(&self, root: &RootKey, wrapped: &WrappedKey) -> Result<ClusterKeys, RootError> {
        let altered = RootError::Altered { what: "the wrapped cluster key", cluster: self.cluster };
        self.checked(ClusterKeys::unwrap(root, self.cluster, wrapped)?.ok_or(altered)?)
    }

    fn checked(&self, keys: ClusterKeys) -> Result<ClusterKeys, RootError> {
        hmac::verify(&mac_key(&keys)?, &self.encode_signed(), &self.mac)
            .map_err(|_| RootError::Altered { what: "the file of the sealed root key", cluster: self.cluster })?;
        Ok(keys)
    }

    fn encode_signed(&self) -> Vec<u8> {
        let mut bytes = MAGIC.to_vec();
        bytes.extend_from_slice(&VERSION.to_le_bytes());
        bytes.extend_from_slice(&self.cluster.0);
        bytes.extend_from_slice(&self.epoch.to_le_bytes());
        match &self.under {
            Under::Quorum { quorum, cluster_key } => {
                bytes.push(1);
                quorum.encode(&mut bytes);
                bytes.extend_from_slice(cluster_key);
            }
            Under::Token(token) => {
                bytes.push(2);
                token.encode(&mut bytes);
            }
        }
        bytes
    }

    /// The bytes of the file.
    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = self.encode_signed();
        bytes.extend_from_slice(&self.mac);
        match &self.tail {
            None => bytes.push(0),
            Some(tail) => {
                bytes.push(1);
                bytes.extend_from_slice(tail);
            }
        }
        bytes.extend_from_slice(&crc32c(&bytes).to_le_bytes());
        bytes
    }

    /// Decodes a file: pure, bounded by the bytes given, and for any bytes at all.
    pub fn decode(bytes: &[u8]) -> Result<Self, FormatError> {
        let body = super::checked_body(WHAT, MAGIC, VERSION, bytes)?;
        let mut fields = Cursor::new(WHAT, body);
        fields.take(MAGIC.len() + 4)?;
        let (cluster, epoch) = (ClusterId(fields.array()?), fields.u32()?);
        let under = match fields.u8()? {
            1 => Under::Quorum {
                quorum: QuorumSealed::decode(&mut fields)?,
                cluster_key: fields.array::<WRAPPED_LEN>()?,
            },
            2 => Under::Token(TokenSealed::decode(&mut fields)?),
            other => return Err(fields.field("what the root key is under", &other)),
        };
        let mac = fields.array()?;
        let tail = match (fields.u8()?, &under) {
            (0, _) => None,
            (1, Under::Quorum { .. }) => Some(fields.array()?),
            (other, _) => return Err(fields.field("what follows the seal", &other)),
        };
        fields.end()?;
        Ok(Self { cluster, epoch, under, mac, tail })
    }

    /// Reads a file.
    pub fn read(path: &Path) -> Result<Self, RootError> {
        Self::decode(&file::read(path, LEN_MAX)?).map_err(|source| RootError::Format { path: path.to_owned(), source })
    }

    /// Writes a file, for its owner alone; it is there as a whole or not at all.
    pub fn write(&self, path: &Path, existing: Existing) -> Result<(), RootError> {
        file::write(path, &self.encode(), existing)
    }
}

impl OpenRoot {
    /// The keys of the cluster; the root key is dropped.
    pub fn into_keys(self) -> ClusterKeys {
        self.keys
    }

    /// The same root key under another quorum. Shares and files of the old one open the root key for as long as they
    /// exist: destroy them, or found a new root key where a holder is not trusted any more.
    pub fn under_another_quorum(&self, epoch: u32, quorum: &Quorum) -> Result<SealedRoot, RootError> {
        SealedRoot::split(&self.root, &self.keys, epoch, quorum)
    }
}

fn mac_key(keys: &ClusterKeys) -> Result<hmac::Key, KeyError> {
    let key = keys.derive(&keys.cluster().0, "capstan keyd root file v1")?;
    Ok(hmac::Key::new(hmac::HMAC_SHA256, key.expose()))
}
