//! What can go wrong with a cell.

use std::net::SocketAddr;
use std::path::PathBuf;

use capstan_catalog::CatalogError;
use capstan_director::DirectorError;
use capstan_keys::KeyError;
use capstan_keys::api::PeerId;
use capstan_keys::cluster::IdentityError;
use capstan_service::identity::AuthorityError;
use thiserror::Error;

use super::NotConnected;

/// Why a cell cannot be served, or a client or mover not be enrolled, listed or revoked.
#[derive(Debug, Error)]
pub enum CellError {
    /// Operator: a setting is no address.
    #[error("{setting}: {text:?} is no address and port: write it as in 0.0.0.0:5701")]
    Address {
        /// The setting.
        setting: &'static str,
        /// What it says.
        text: String,
    },
    /// Operator: something is listened for, and not for members.
    #[error("{setting} is set and listen is not: say where clients are listened for, too (--listen 0.0.0.0:5701)")]
    NoMembersAddress {
        /// What is set.
        setting: &'static str,
    },
    /// Operator: there is no port behind the members' port.
    #[error("there is no port for {setting} behind {members}: name one with --{setting}")]
    NoPortBehind {
        /// The setting.
        setting: &'static str,
        /// Where members are listened for.
        members: SocketAddr,
    },
    /// Operator or host: a port cannot be opened.
    #[error(
        "cannot listen at {address} (--{setting}): another program may have the port, or the address is not of this machine. Name another \
         one"
    )]
    Listen {
        /// The setting.
        setting: &'static str,
        /// The address.
        address: SocketAddr,
        /// What the operating system says.
        #[source]
        source: std::io::Error,
    },
    /// Operator: the client does not wait for orders.
    #[error(transparent)]
    NotConnected(#[from] NotConnected),
    /// Operator: the name is the server's own.
    #[error("{name} is the name of this server itself, whose backups bear it: choose another name for the client")]
    ServersName {
        /// The name.
        name: String,
    },
    /// Operator: there is a client or mover of that name.
    #[error(
        "there is a {0} {1} already, whose certificate holds: choose another name, or run `capstan {0} revoke {1}` first",
        peer.kind, peer.name
    )]
    NameTaken {
        /// Who has it.
        peer: PeerId,
    },
    /// Operator: there is no client or mover of that name.
    #[error("there is no {0} {1} that could be revoked: `capstan {0} list` lists them", peer.kind, peer.name)]
    UnknownMember {
        /// Who is not there.
        peer: PeerId,
    },
    /// Operator: the authority's files are not as they must be.
    #[error("the authority of the cell: {}: {reason}", path.display())]
    AuthorityFile {
        /// The file.
        path: PathBuf,
        /// What is the matter, and what to do.
        reason: String,
    },
    /// Host or operator: a key or certificate file cannot be used.
    #[error(transparent)]
    File(#[from] IdentityError),
    /// Host: nothing can be signed.
    #[error(transparent)]
    Authority(#[from] AuthorityError),
    /// Host: TLS cannot be set up.
    #[error("TLS cannot be set up for the listeners")]
    Tls(#[from] rustls::Error),
    /// Host: the system gives no threads or files.
    #[error("cannot {what}")]
    Host {
        /// What was tried.
        what: &'static str,
        /// What the operating system says.
        #[source]
        source: std::io::Error,
    },
    /// Host: no random numbers.
    #[error(transparent)]
    Random(#[from] KeyError),
    /// The state directory or its catalog cannot be used.
    #[error(transparent)]
    Director(#[from] DirectorError),
}

impl From<CatalogError> for CellError {
    fn from(error: CatalogError) -> Self {
        Self::Director(error.into())
    }
}

/// An error with what caused it, in words.
pub(super) fn in_words(error: &dyn std::error::Error) -> String {
    let causes = std::iter::successors(error.source(), |cause| cause.source());
    causes.fold(error.to_string(), |text, cause| {
        let cause = cause.to_string();
        if text.ends_with(&cause) { text } else { format!("{text}: {cause}") }
    })
}
