//! The core security backup: the cluster key and the key of its certificate authority, under a quorum of custodians.
//!
//! ```text
//!  0   8  "CAPSCORE"
//!  8   4  version, 1
//! 12  16  cluster id
//! 28   4  epoch
//! 32   8  made, nanoseconds since 1970
//! 40   .  backup root key under its custodians, as in `root/quorum.rs`
//! ..  40  cluster key, wrapped under HKDF(backup root key, salt = cluster id, `capstan keyd cluster wrap v1`)
//! ..   4  length of the sealed CA key
//! ..   n  CA key, sealed as the record `ca/key` of `seal.rs`, under the cluster key
//! ..  32  HMAC-SHA-256 of all before, under HKDF(cluster key, salt = cluster id, `capstan keyd core backup v1`)
//! ..   4  CRC32C of all before
//! ```
//! It has a root key of its own, made for it: so it is the same whether the cluster's root key lies in a token, which
//! never gives it out, or under a quorum, and its custodians need not be those who unlock the nodes.

use std::path::Path;

use aws_lc_rs::hmac;
use capstan_format::{Cursor, FormatError, KeyTag, crc32c};
use capstan_keys::{KeyError, Name, RootKey, WRAPPED_LEN, WrappedKey};
use zeroize::Zeroizing;

use super::BackupError;
use crate::root::quorum::QuorumSealed;
use crate::root::{ClusterKeys, Existing, Quorum, RootError, Share, checked_body, file};
use crate::seal::OVERHEAD_LEN;
use capstan_keys::api::ClusterId;

const MAGIC: &[u8; 8] = b"CAPSCORE";
const VERSION: u32 = 1;
const WHAT: &str = "core security backup";
const MAC_LEN: usize = 32;
/// Longest CA key: one of RSA 8192 has less.
const CA_KEY_LEN_MAX: usize = 8192;
const LEN_MAX: usize = 32 << 10;
const CA_PATH: &str = "ca/key";

/// A core security backup. Nothing in it is secret without enough of its custodians.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CoreBackup {
    cluster: ClusterId,
    epoch: u32,
    made_ns: i64,
    quorum: QuorumSealed,
    cluster_key: WrappedKey,
    ca_key: Vec<u8>,
    mac: [u8; MAC_LEN],
}

/// An opened core security backup: with it everything can be read. No `Debug`, no `Clone`.
pub struct OpenCore {
    /// The keys of the cluster.
    pub keys: ClusterKeys,
    /// The private key of its certificate authority, in the encoding it was given in.
    pub ca_key: Zeroizing<Vec<u8>>,
    /// The epoch it was made in.
    pub epoch: u32,
}

impl CoreBackup {
    /// Makes one. Some tenths of a second for each custodian. Who may ask for it is for the quorum to say.
    pub fn create(
        keys: &ClusterKeys,
        epoch: u32,
        ca_key: &[u8],
        custodians: &Quorum,
        made_ns: i64,
    ) -> Result<Self, BackupError> {
        let root = RootKey::random()?;
        let mut backup = Self {
            cluster: keys.cluster(),
            epoch,
            made_ns,
            quorum: QuorumSealed::seal(&root, keys.cluster(), custodians)?,
            cluster_key: keys.wrap(&root)?,
            ca_key: keys.sealer().seal(CA_PATH, epoch, 0, ca_key)?,
            mac: [0; MAC_LEN],
        };
        if ca_key.len() > CA_KEY_LEN_MAX {
            let (path, reason) = (CA_PATH.to_owned(), format!("a CA key has at most {CA_KEY_LEN_MAX} bytes"));
            return Err(BackupError::Record { path, reason });
        }
        let mac = hmac::sign(&mac_key(keys)?, &backup.encode_signed());
        backup.mac.copy_from_slice(mac.as_ref());
        Ok(backup)
    }

    /// The cluster it is of.
    pub fn cluster(&self) -> ClusterId {
        self.cluster
    }

    /// The epoch it was made in.
    pub fn epoch(&self) -> u32 {
        self.epoch
    }

    /// When it was made, in nanoseconds since 1970.
    pub fn made_ns(&self) -> i64 {
        self.made_ns
    }

    /// How many of its custodians it takes.
    pub fn threshold(&self) -> u8 {
        self.quorum.threshold()
    }

    /// Its custodians.
    pub fn custodians(&self) -> impl Iterator<Item = &Name> {
        self.quorum.holders()
    }

    /// Opens the share of one custodian: some tenths of a second, and 64 MiB.
    pub fn open_share(&self, custodian: &Name, passphrase: &Zeroizing<String>) -> Result<Share, RootError> {
        self.quorum.open_share(self.cluster, custodian, passphrase)
    }

    /// Opens it with enough shares.
    pub fn open<'a>(&self, shares: impl IntoIterator<Item = &'a Share>) -> Result<OpenCore, BackupError> {
        let altered = |what| RootError::Altered { what, cluster: self.cluster };
        let root = self.quorum.open(self.cluster, shares)?;
        let keys = ClusterKeys::unwrap(&root, self.cluster, &self.cluster_key)?
            .ok_or_else(|| altered("the cluster key in the core security backup"))?;
        hmac::verify(&mac_key(&keys)?, &self.encode_signed(), &self.mac)
            .map_err(|_| altered("the core security backup"))?;
        let opened = keys.sealer().open(CA_PATH, &self.ca_key)?;
        Ok(OpenCore { keys, ca_key: opened.plaintext, epoch: self.epoch })
    }

    fn encode_signed(&self) -> Vec<u8> {
        let mut bytes = MAGIC.to_vec();
        bytes.extend_from_slice(&VERSION.to_le_bytes());
        bytes.extend_from_slice(&self.cluster.0);
        bytes.extend_from_slice(&self.epoch.to_le_bytes());
        bytes.extend_from_slice(&self.made_ns.to_le_bytes());
        self.quorum.encode(&mut bytes);
        bytes.extend_from_slice(&self.cluster_key);
        bytes.extend_from_slice(&(self.ca_key.len() as u32).to_le_bytes());
        bytes.extend_from_slice(&self.ca_key);
        bytes
    }

    /// The bytes of the file.
    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = self.encode_signed();
        bytes.extend_from_slice(&self.mac);
        bytes.extend_from_slice(&crc32c(&bytes).to_le_bytes());
        bytes
    }

    /// Decodes a file: pure, bounded by the bytes given, and for any bytes at all.
    pub fn decode(bytes: &[u8]) -> Result<Self, FormatError> {
        let mut fields = Cursor::new(WHAT, checked_body(WHAT, MAGIC, VERSION, bytes)?);
        fields.take(MAGIC.len() + 4)?;
        let (cluster, epoch, made_ns) = (ClusterId(fields.array()?), fields.u32()?, fields.i64()?);
        let quorum = QuorumSealed::decode(&mut fields)?;
        let (cluster_key, len) = (fields.array::<WRAPPED_LEN>()?, fields.u32()?);
        if len as usize > CA_KEY_LEN_MAX + OVERHEAD_LEN {
            return Err(fields.field("length of the CA key", &len));
        }
        let (ca_key, mac) = (fields.take(len as usize)?.to_vec(), fields.array()?);
        fields.end()?;
        Ok(Self { cluster, epoch, made_ns, quorum, cluster_key, ca_key, mac })
    }

    /// Reads a file.
    pub fn read(path: &Path) -> Result<Self, BackupError> {
        let bytes = file::read(path, LEN_MAX)?;
        Self::decode(&bytes).map_err(|source| BackupError::Format { path: path.to_owned(), source })
    }

    /// Writes a file, for its owner alone, where there is none; it is there as a whole or not at all.
    pub fn write(&self, path: &Path) -> Result<(), BackupError> {
        Ok(file::write(path, &self.encode(), Existing::Kept)?)
    }
}

impl OpenCore {
    /// The public name of the cluster key.
    pub fn key_tag(&self) -> KeyTag {
        self.keys.tag()
    }
}

fn mac_key(keys: &ClusterKeys) -> Result<hmac::Key, KeyError> {
    let key = keys.derive(&keys.cluster().0, "capstan keyd core backup v1")?;
    Ok(hmac::Key::new(hmac::HMAC_SHA256, key.expose()))
}
