//! What a client, a mover or a user keeps: who it is, and where its server is.

use std::io::Write;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use capstan_keys::api::PeerKind;
use capstan_keys::cluster::Identity;

use crate::ClientError;

/// Addresses that are kept of the server, at most.
const ADDRESSES_MAX: usize = 16;

/// The state directory of a member of a cell: a client, a mover or a user.
///
/// ```text
/// client.toml          what the server may ask of this machine; of a mover, mover.toml; of a user, none
/// cell/identity.pem    key, certificate and authority; only its owner may read it
/// cell/server          addresses of the server, one a line
/// cell/owed            scripts of a client that have to be run still, each in a file
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MemberState {
    dir: PathBuf,
    kind: PeerKind,
}

impl MemberState {
    /// That of such a member in this directory, whether it is there or not.
    pub fn new(dir: &Path, kind: PeerKind) -> Self {
        Self { dir: dir.to_owned(), kind }
    }

    /// Whose it is.
    pub fn kind(&self) -> PeerKind {
        self.kind
    }

    /// The directory.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// The file that says who this machine is.
    pub fn identity_file(&self) -> PathBuf {
        self.dir.join("cell/identity.pem")
    }

    /// What lies in the directory whatever the member is.
    pub(crate) fn cell_folder(&self) -> PathBuf {
        self.dir.join("cell")
    }

    /// Where it is noted which scripts have to be run still.
    pub(crate) fn owed_folder(&self) -> PathBuf {
        self.dir.join("cell/owed")
    }

    fn server_file(&self) -> PathBuf {
        self.dir.join("cell/server")
    }

    fn of_other(&self, other: PeerKind) -> ClientError {
        ClientError::OtherRole { path: self.dir.clone(), other, kind: self.kind }
    }

    /// Makes the directory, and checks that a machine may have its state there: a server, or a member of the other
    /// kind, has its own, and an identity that is there is kept unless it is to be replaced. It is asked before an
    /// enrolment, which can be used once.
    ///
    /// # Errors
    /// [`ClientError::OtherRole`], [`ClientError::HasIdentity`], or the directory cannot be written.
    pub fn prepare(&self, replace: bool) -> Result<(), ClientError> {
        self.check_others()?;
        let identity = self.identity_file();
        if identity.exists() && !replace {
            return Err(ClientError::HasIdentity { path: identity });
        }
        let cell = self.cell_folder();
        let mut builder = std::fs::DirBuilder::new();
        builder.recursive(true).mode(0o700).create(&cell).map_err(ClientError::io("make", &cell))?;
        Ok(capstan_keys::cluster::check_place(&identity)?)
    }

    /// Checks that the directory is not that of another kind: of a server, of a member, or of a user.
    ///
    /// # Errors
    /// [`ClientError::OtherRole`].
    pub fn check_others(&self) -> Result<(), ClientError> {
        let signs = [
            ("capstan.toml", PeerKind::Server),
            ("cell/authority.pem", PeerKind::Server),
            ("client.toml", PeerKind::Client),
            ("mover.toml", PeerKind::Mover),
        ];
        let is_other = |(file, kind): &(&str, PeerKind)| *kind != self.kind && self.dir.join(file).exists();
        if let Some((_, other)) = signs.into_iter().find(is_other) {
            return Err(self.of_other(other));
        }
        // A user's has no other sign; an identity that cannot be read is one that is replaced.
        let identity = self.identity_file();
        if identity.exists()
            && let Ok(known) = Identity::load(&identity)
            && known.certificate().peer.kind != self.kind
        {
            return Err(self.of_other(known.certificate().peer.kind));
        }
        Ok(())
    }

    /// Who this machine is.
    ///
    /// # Errors
    /// [`ClientError::NotJoined`] if it has not joined a cell, [`ClientError::OtherRole`] if it is another kind of
    /// member; otherwise the file cannot be read, or others can read it.
    pub fn identity(&self) -> Result<Identity, ClientError> {
        let path = self.identity_file();
        if !path.exists() {
            return Err(ClientError::NotJoined { path: self.dir.clone(), kind: self.kind });
        }
        let identity = Identity::load(&path)?;
        match identity.certificate().peer.kind {
            kind if kind == self.kind => Ok(identity),
            other => Err(self.of_other(other)),
        }
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
