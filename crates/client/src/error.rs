//! What can go wrong at a client, a mover or a user's machine.

use std::io;
use std::path::PathBuf;

use capstan_keys::KeyError;
use capstan_keys::api::{PeerId, PeerKind};
use capstan_keys::cluster::{IdentityError, PeerCertificate};
use thiserror::Error;

/// Why a client, a mover or a user cannot do what was asked.
#[derive(Debug, Error)]
pub enum ClientError {
    /// Caller: the state directory is that of a machine of another kind.
    #[error(
        "{} is the state directory of a {other}: give the {kind} another one with --state", path.display()
    )]
    OtherRole {
        /// The directory.
        path: PathBuf,
        /// Whose it is.
        other: PeerKind,
        /// Who was to use it.
        kind: PeerKind,
    },
    /// Caller: the machine has joined a cell already.
    #[error(
        "{} is there: whoever has this state directory has joined a cell. Use --replace to join anew; the old certificate is then lost \
         here", path.display()
    )]
    HasIdentity {
        /// The identity file.
        path: PathBuf,
    },
    /// Caller: the machine has not joined a cell.
    #[error(
        "{}: no {kind} has joined a cell from here. Run `capstan {kind} enrol NAME` at the server, then the command that it prints here",
        path.display()
    )]
    NotJoined {
        /// The state directory.
        path: PathBuf,
        /// What it was to be in a cell.
        kind: PeerKind,
    },
    /// Caller: another process runs from the state directory.
    #[error(
        "{}: {holder} runs as this {kind} already: stop it first (a service: `systemctl stop capstan-{kind}`). Another \
         {kind} joins under a name of its own, with another state directory (--state)",
        path.display()
    )]
    RunsAlready {
        /// The state directory.
        path: PathBuf,
        /// What it is in its cell.
        kind: PeerKind,
        /// Which process, as far as can be told.
        holder: String,
    },
    /// Operator: the passphrase is not that of the enrolment, or somebody stands between.
    #[error(
        "the enrolment came to nothing: the passphrase is not the one of {1} (or somebody stands between this machine and the server). \
         Compare name and passphrase with what `capstan {0} enrol {1}` printed; the newest passphrase counts",
        peer.kind, peer.name
    )]
    WrongPassphrase {
        /// Who the machine was to be.
        peer: PeerId,
    },
    /// Operator: a file of the machine is not as it must be.
    #[error("{}: {reason}", path.display())]
    Settings {
        /// The file.
        path: PathBuf,
        /// What is wrong, and what to do.
        reason: String,
    },
    /// Peer: the server cannot be reached.
    #[error("{address}: {reason}")]
    Away {
        /// Where it was looked for.
        address: String,
        /// What happened, and what to do.
        reason: String,
        /// Whether what was asked may have arrived there, and be done all the same.
        may_have_arrived: bool,
    },
    /// Peer: the connection over which data goes cannot be opened, or broke.
    #[error(
        "data to {address}: {reason}. See that no firewall closes the port; the server's own messages and `capstan history` there say \
         what becomes of the job"
    )]
    Data {
        /// Where data goes.
        address: String,
        /// What happened.
        reason: String,
    },
    /// Host: TLS cannot be set up for data.
    #[error("TLS cannot be set up for data")]
    DataTls(#[source] Box<rustls::Error>),
    /// Operator: the settings of this client do not allow a restore that the server ordered.
    #[error(
        "a user of the cell wanted something restored to {}, which restore_to in client.toml does not allow", directory.display()
    )]
    RestoreNotAllowed {
        /// Where.
        directory: PathBuf,
    },
    /// Operator: a link stands on the way to where a restore that the server ordered is written.
    #[error(
        "a user of the cell wanted something restored to {}, and {} is a symbolic link (or a file), which is not \
         followed: write the path without links into restore_to in client.toml, or put a directory in the place of \
         the link",
        directory.display(), link.display()
    )]
    RestoreThroughLink {
        /// Where.
        directory: PathBuf,
        /// What is in the way.
        link: PathBuf,
    },
    /// Peer: the server refused.
    #[error("the server refused: {reason}")]
    Refused {
        /// Why, in the server's words.
        reason: String,
    },
    /// Operator: somebody revoked this client or mover.
    #[error(
        "the certificate of this {0} was revoked. If that was a mistake, run `capstan {0} enrol {1}` at the server and \
         `capstan {0} join --replace` here",
        peer.kind, peer.name
    )]
    Revoked {
        /// Who.
        peer: PeerId,
    },
    /// Operator: the certificate has ended, as it was not renewed in time.
    #[error(
        "the certificate of this {0} ended on {end}, or a clock is wrong: compare the clock with the server's. If both \
         are right, run `capstan {0} enrol {1}` at the server and `capstan {0} join --replace` here",
        peer.kind, peer.name
    )]
    CertificateEnded {
        /// Whose it is.
        peer: PeerId,
        /// When it ends by its own words.
        end: String,
    },
    /// Host, this one or the server: a clock is wrong.
    #[error(
        "the certificate that the server made out does not hold at the time of this machine: set the clock of whichever machine is wrong, \
         run `capstan {0} revoke {1}` and `capstan {0} enrol {1}` at the server, and join again",
        peer.kind, peer.name
    )]
    OtherTime {
        /// Whose it is.
        peer: PeerId,
    },
    /// Host, operator or peer: the identity of this machine cannot be used.
    #[error(transparent)]
    Identity(#[from] IdentityError),
    /// Host: a file could not be read or written.
    #[error("cannot {what} {}", path.display())]
    Io {
        /// What was tried.
        what: &'static str,
        /// The file.
        path: PathBuf,
        /// What the operating system says.
        #[source]
        source: io::Error,
    },
    /// Host: no random numbers, or TLS could not be set up.
    #[error("the identity of this machine cannot be used: join again with --replace")]
    Tls(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// Host: no random numbers.
    #[error(transparent)]
    Host(#[from] KeyError),
}

impl ClientError {
    pub(crate) fn ended(certificate: &PeerCertificate) -> Self {
        Self::CertificateEnded { peer: certificate.peer.clone(), end: certificate.end_text() }
    }

    pub(crate) fn io(what: &'static str, path: &std::path::Path) -> impl FnOnce(io::Error) -> Self + use<> {
        let path = path.to_owned();
        move |source| Self::Io { what, path, source }
    }
}
