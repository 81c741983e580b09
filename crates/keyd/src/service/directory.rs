//! The state directory of a node.

use std::fs::{self, DirBuilder, OpenOptions, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use capstan_keys::Name;
use capstan_keys::api::ClusterId;
use capstan_keys::cluster::{Identity, IdentityError};
use capstan_service::identity::OldestTls;
use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::ledger::{EtcdFiles, EtcdMembers};

/// Who a node is and where: `keyd.toml`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct KmaSettings {
    /// Its name, as in its certificate.
    pub name: Name,
    /// The cluster it belongs to.
    pub cluster: ClusterId,
    /// The cluster's epoch that it belongs to.
    pub epoch: u32,
    /// The site it stands at.
    #[serde(default)]
    pub site: String,
    /// Where agents and people reach it: host and port, as the other nodes tell them.
    pub address: String,
    /// Where it listens for them.
    pub listen: String,
    /// Where it listens for those who enrol; nowhere if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub enrol_listen: Option<String>,
    /// Where it listens for KMIP clients; nowhere if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kmip_listen: Option<String>,
    /// The oldest TLS that KMIP clients may speak.
    #[serde(default, skip_serializing_if = "is_newest")]
    pub kmip_tls_oldest: OldestTls,
    /// Objects that one domain of KMIP clients may have.
    #[serde(default = "kmip_domain_objects", skip_serializing_if = "is_kmip_domain_objects")]
    pub kmip_domain_objects: u64,
    /// Bytes that their records may take; an eighth of what etcd takes if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kmip_domain_bytes: Option<u64>,
    /// Where it tells its metrics, in plain HTTP to whoever reaches it; nowhere if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub metrics_listen: Option<String>,
    /// Keys that its pool is filled up to.
    #[serde(default = "pool_keys")]
    pub pool_keys: usize,
    /// Where the key file is to be that it unlocks itself with, if the quorum lets it; in the state directory if
    /// absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub autonomous_key_file: Option<PathBuf>,
    /// The token that its root key is in.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub token: Option<TokenSettings>,
    /// The members of etcd.
    pub etcd: EtcdSettings,
}

/// Where a PKCS#11 token is; its label stands in the sealed root key.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TokenSettings {
    /// Its module.
    pub module: PathBuf,
    /// The file with its PIN, where the node unlocks itself at each start.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pin_file: Option<PathBuf>,
}

fn is_newest(oldest: &OldestTls) -> bool {
    *oldest == OldestTls::V1_3
}

/// As many as one domain has been tried with.
pub(super) fn kmip_domain_objects() -> u64 {
    1_000_000
}

fn is_kmip_domain_objects(objects: &u64) -> bool {
    *objects == kmip_domain_objects()
}

fn pool_keys() -> usize {
    1000
}

/// Where the ledger is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EtcdSettings {
    /// The client addresses of the members, this node's own first.
    pub endpoints: Vec<String>,
    /// Where they speak TLS: the certificates of their authority, PEM.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub authority: Option<PathBuf>,
    /// The node's certificate for etcd, PEM.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub certificate: Option<PathBuf>,
    /// Its private key, PEM.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub private_key: Option<PathBuf>,
    /// What a member takes at most (`--quota-backend-bytes`), where it is not 2 GiB; etcd says it itself from 3.6 on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub quota_bytes: Option<u64>,
}

impl EtcdSettings {
    /// As the ledger takes them.
    pub fn members(&self) -> Result<EtcdMembers, DirectoryError> {
        let files = match (&self.authority, &self.certificate, &self.private_key) {
            (None, None, None) => None,
            (Some(authority), Some(certificate), Some(private_key)) => Some(EtcdFiles {
                authority: authority.clone(),
                certificate: certificate.clone(),
                private_key: private_key.clone(),
            }),
            _ => return Err(DirectoryError::HalfOfTls),
        };
        Ok(EtcdMembers { endpoints: self.endpoints.clone(), files })
    }
}

/// Why a state directory is not used.
#[derive(Debug, Error)]
pub enum DirectoryError {
    /// Operator: there is something already.
    #[error("{} exists already and is left as it is: a node has a directory of its own; name another", path.display())]
    Exists {
        /// What.
        path: PathBuf,
    },
    /// Operator: nothing was founded there.
    #[error("there is no node in {}: `keyd init` makes the first one of a cluster, `keyd join` a further one", path.display())]
    NoNode {
        /// Where.
        path: PathBuf,
    },
    /// Operator: the settings cannot be read.
    #[error("{} cannot be read: correct it", path.display())]
    Settings {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        #[source]
        source: toml::de::Error,
    },
    /// Operator: TLS to etcd takes three files.
    #[error("TLS to etcd takes an authority, a certificate and a private key: give all three, or none")]
    HalfOfTls,
    /// Host: the system refused.
    #[error("{} cannot be written or read", path.display())]
    Host {
        /// What.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
}

/// The state directory of a node.
#[derive(Debug, Clone)]
pub struct StateDirectory(PathBuf);

impl StateDirectory {
    /// A new one, for its owner only.
    pub fn create(path: &Path) -> Result<Self, DirectoryError> {
        let host = |source| DirectoryError::Host { path: path.to_owned(), source };
        match DirBuilder::new().mode(0o700).create(path) {
            Ok(()) => {}
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                if fs::read_dir(path).map_err(host)?.next().is_some() {
                    return Err(DirectoryError::Exists { path: path.to_owned() });
                }
                // Whoever made it for us may have left it open to others.
                fs::set_permissions(path, Permissions::from_mode(0o700)).map_err(host)?;
            }
            Err(error) => return Err(host(error)),
        }
        Ok(Self(path.to_owned()))
    }

    /// One that holds a node.
    pub fn open(path: &Path) -> Result<(Self, KmaSettings), DirectoryError> {
        let directory = Self(path.to_owned());
        let file = directory.file("keyd.toml");
        let text = fs::read_to_string(&file).map_err(|source| match source.kind() {
            io::ErrorKind::NotFound => DirectoryError::NoNode { path: path.to_owned() },
            _ => DirectoryError::Host { path: file.clone(), source },
        })?;
        let settings = toml::from_str(&text).map_err(|source| DirectoryError::Settings { path: file, source })?;
        Ok((directory, settings))
    }

    /// Writes the settings: last of all when a node is made, so that a directory without them holds none.
    pub fn write_settings(&self, settings: &KmaSettings) -> Result<(), DirectoryError> {
        let path = self.file("keyd.toml");
        let host = |source| DirectoryError::Host { path: path.clone(), source };
        let text = toml::to_string(settings).map_err(|error| host(io::Error::other(error)))?;
        let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path).map_err(host)?;
        file.write_all(text.as_bytes()).and_then(|()| file.sync_all()).map_err(host)
    }

    /// Takes away what was made in it: for a founding that came to nothing.
    pub fn discard(self) {
        if let Err(error) = fs::remove_dir_all(&self.0) {
            tracing::warn!(%error, directory = %self.0.display(), "what was begun here could not be taken away");
        }
    }

    /// Keeps the identity of a node that has enrolled.
    pub fn write_identity(&self, identity: &Identity) -> Result<(), IdentityError> {
        identity.save(&self.identity())
    }

    /// Where the sealed root key lies.
    pub fn root(&self) -> PathBuf {
        self.file("root.sealed")
    }

    /// The socket that takes shares while the node runs.
    pub fn socket(&self) -> PathBuf {
        self.file("keyd.sock")
    }

    pub(super) fn identity(&self) -> PathBuf {
        self.file("identity.pem")
    }

    pub(super) fn replica(&self) -> PathBuf {
        self.file("replica.db")
    }

    pub(super) fn journal(&self) -> PathBuf {
        self.file("journal")
    }

    /// There from when another node has refused this one as removed.
    pub(super) fn refused(&self) -> PathBuf {
        self.file("refused")
    }

    /// There while a person has locked the node.
    pub(super) fn locked(&self) -> PathBuf {
        self.file("locked")
    }

    /// When the majority was heard last.
    pub(super) fn last_heard(&self) -> PathBuf {
        self.file("last-heard")
    }

    /// Where backups wait to be fetched.
    pub(super) fn backups(&self) -> PathBuf {
        self.file("backups")
    }

    /// Where the audit log lies.
    pub fn audit(&self) -> PathBuf {
        self.file("audit")
    }

    /// Takes over what another node's directory holds of journals: its own, and its copies of others, which may be all
    /// that is left of what those nodes gave out cut off.
    pub(super) fn copy_journals(&self, from: &Self) -> Result<(), DirectoryError> {
        let (from, to) = (from.journal(), self.journal());
        copy_files(&from, &to)?;
        copy_files(&from.join("copies"), &to.join("copies"))
    }

    pub(super) fn file(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }
}

/// Copies the files of a folder, if there is one, into a new one of its owner's alone; they are on disk when this
/// returns.
fn copy_files(from: &Path, to: &Path) -> Result<(), DirectoryError> {
    let host = |source| DirectoryError::Host { path: from.to_owned(), source };
    let files = match fs::read_dir(from) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        files => files.map_err(host)?,
    };
    DirBuilder::new().mode(0o700).create(to).map_err(host)?;
    for file in files {
        let file = file.map_err(host)?;
        if file.file_type().map_err(host)?.is_file() {
            let copy = to.join(file.file_name());
            fs::copy(file.path(), &copy).map_err(host)?;
            fs::File::open(&copy).and_then(|copy| copy.sync_all()).map_err(host)?;
        }
    }
    fs::File::open(to).and_then(|folder| folder.sync_all()).map_err(host)
}
