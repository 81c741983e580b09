//! Why the root key is not had, each with what to do next.

use std::io;
use std::path::{Path, PathBuf};

use capstan_format::FormatError;
use capstan_keys::{KeyError, Name};
use thiserror::Error;

use super::token::TokenError;
use capstan_keys::api::ClusterId;

/// Why the root key could not be split, opened or kept.
#[derive(Debug, Error)]
pub enum RootError {
    /// Operator: this holder's passphrase is another.
    #[error(
        "the passphrase does not open the share of {holder}: {holder} types it again, with the right keyboard layout, or \
         another holder gives theirs. If it surely is the right one, the share was altered: take it from another node"
    )]
    WrongPassphrase {
        /// Whose share it is.
        holder: Name,
    },
    /// Operator: nobody of this name has a share.
    #[error("{holder} holds no share here: its holders are {holders}")]
    NoSuchHolder {
        /// The name given.
        holder: Name,
        /// The names there are.
        holders: String,
    },
    /// Operator: too few shares.
    #[error("{given} of {needed} shares were given: the others follow, each by its holder, until there are enough")]
    NotEnoughShares {
        /// How many different ones.
        given: usize,
        /// How many it takes.
        needed: u8,
    },
    /// Operator: a share that is not of this split.
    #[error(
        "the share of {holder} is of another split of the root key: it was made before the quorum was last changed, or \
         for another cluster. Take the shares from the same file"
    )]
    OtherSplit {
        /// Whose share it is.
        holder: Name,
    },
    /// Medium or attacker: every share opens, and what they give is not the root key.
    #[error(
        "the shares of {holders} open, but together they do not give the root key: the file was altered. Take it from \
         another node, or the core security backup"
    )]
    SharesDoNotFit {
        /// Whose shares.
        holders: String,
    },
    /// Caller: a quorum that cannot be.
    #[error("there is no quorum of {threshold} of {holders} holders: {reason}")]
    ImpossibleQuorum {
        /// How many shares it would take.
        threshold: u8,
        /// How many there would be.
        holders: usize,
        /// What is wrong.
        reason: &'static str,
    },
    /// Medium or attacker: the root opens, and what lies under it is not what was put there.
    #[error("{what} of cluster {cluster} was altered: take it from another node, or the core security backup")]
    Altered {
        /// What.
        what: &'static str,
        /// Whose it says it is.
        cluster: ClusterId,
    },
    /// Operator: it opens by something else.
    #[error("the root key of cluster {cluster} is not had by {offered}: {instead}")]
    NotThisWay {
        /// The cluster.
        cluster: ClusterId,
        /// What was tried.
        offered: &'static str,
        /// What to do.
        instead: &'static str,
    },
    /// Medium: the bytes are not what they should be.
    #[error("{} cannot be read: it is damaged, or no file of this kind. Take it from another node, or a backup", path.display())]
    Format {
        /// The file.
        path: PathBuf,
        /// What is wrong with its bytes.
        #[source]
        source: FormatError,
    },
    /// Operator: there is none.
    #[error("there is no file {}: found the cluster, join one, or name the right state directory", path.display())]
    Missing {
        /// Where it was looked for.
        path: PathBuf,
    },
    /// Operator: a file that holds keys is never overwritten unasked.
    #[error("{} exists already and is left as it is: choose another path", path.display())]
    Exists {
        /// What exists.
        path: PathBuf,
    },
    /// Host: no room.
    #[error("no room on the disk for {}: nothing was written and nothing is lost. Free some and repeat", path.display())]
    DiskFull {
        /// What was to be written.
        path: PathBuf,
    },
    /// Host: the system refused.
    #[error("{what} {} failed: repair the cause below and repeat", path.display())]
    Host {
        /// What was done.
        what: &'static str,
        /// To which file.
        path: PathBuf,
        /// The cause.
        #[source]
        source: io::Error,
    },
    /// The token did not do it.
    #[error(transparent)]
    Token(#[from] TokenError),
    /// The cryptographic library, a passphrase or a key file.
    #[error(transparent)]
    Key(#[from] KeyError),
}

impl RootError {
    /// The error of a system call on a file, by what the operator does about it.
    pub(crate) fn file(what: &'static str, path: &Path, source: io::Error) -> Self {
        let path = path.to_owned();
        match source.kind() {
            io::ErrorKind::NotFound if what == "reading" => Self::Missing { path },
            io::ErrorKind::AlreadyExists => Self::Exists { path },
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => Self::DiskFull { path },
            _ => Self::Host { what, path, source },
        }
    }
}
