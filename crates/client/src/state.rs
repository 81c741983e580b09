//! What a client keeps: who it is, and where its server is.

use std::io::Write;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use capstan_keys::cluster::Identity;

use crate::ClientError;

/// Addresses that are kept of the server, at most.
const ADDRESSES_MAX: usize = 16;

/// The state directory of a client.
///
/// ```text
/// client.toml          what the server may ask of this machine
/// cell/identity.pem    key, certificate and authority; only its owner may read it
/// cell/server          addresses of the server, one a line
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClientState {
    dir: PathBuf,
}

impl ClientState {
    /// The one in this directory, whether it is there or not.
    pub fn new(dir: &Path) -> Self {
        Self { dir: dir.to_owned() }
    }

    /// The directory.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// The file that says who this machine is.
    pub fn identity_file(&self) -> PathBuf {
        self.dir.join("cell/identity.pem")
    }

    fn server_file(&self) -> PathBuf {
        self.dir.join("cell/server")
    }

    /// Makes the directory, and checks that a client may have its state there: a server may not, and an identity that
    /// is there is kept unless it is to be replaced. It is asked before an enrolment, which can be used once.
    ///
    /// # Errors
    /// [`ClientError::ServerState`], [`ClientError::HasIdentity`], or the directory cannot be written.
    pub fn prepare(&self, replace: bool) -> Result<(), ClientError> {
        if self.dir.join("capstan.toml").exists() || self.dir.join("cell/authority.pem").exists() {
            return Err(ClientError::ServerState { path: self.dir.clone() });
        }
        let identity = self.identity_file();
        if identity.exists() && !replace {
            return Err(ClientError::HasIdentity { path: identity });
        }
        let cell = self.dir.join("cell");
        let mut builder = std::fs::DirBuilder::new();
        builder.recursive(true).mode(0o700).create(&cell).map_err(ClientError::io("make", &cell))?;
        Ok(capstan_keys::cluster::check_place(&identity)?)
    }

    /// Who this machine is.
    ///
    /// # Errors
    /// [`ClientError::NotJoined`] if it has not joined a cell; otherwise the file cannot be read, or others can read
    /// it.
    pub fn identity(&self) -> Result<Identity, ClientError> {
        let path = self.identity_file();
        if !path.exists() {
            return Err(ClientError::NotJoined { path: self.dir.clone() });
        }
        Ok(Identity::load(&path)?)
    }

    /// Where the server is looked for.
    ///
    /// # Errors
    /// The file cannot be read, or names no address.
    pub fn addresses(&self) -> Result<Vec<String>, ClientError> {
        let path = self.server_file();
        let text = std::fs::read_to_string(&path).map_err(ClientError::io("read", &path))?;
        let lines = text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#'));
        let addresses: Vec<String> = lines.take(ADDRESSES_MAX).map(str::to_owned).collect();
        if addresses.is_empty() {
            let reason = "it names no address: write host and port of the server into it, one a line".to_owned();
            return Err(ClientError::Settings { path, reason });
        }
        Ok(addresses)
    }

    /// Keeps where the server is, in place of what was kept before.
    ///
    /// # Errors
    /// [`ClientError::Io`] if it cannot be written.
    pub(crate) fn keep_addresses(&self, addresses: &[String]) -> Result<(), ClientError> {
        let (path, beside) = (self.server_file(), self.dir.join("cell/server.new"));
        let text: String = addresses.iter().map(|address| format!("{address}\n")).collect();
        let mut options = std::fs::OpenOptions::new();
        options.write(true).create(true).truncate(true).mode(0o600);
        let written = options.open(&beside).and_then(|mut file| {
            file.write_all(text.as_bytes())?;
            file.sync_all()
        });
        written.map_err(ClientError::io("write", &beside))?;
        std::fs::rename(&beside, &path).map_err(ClientError::io("write", &path))
    }
}
