//! What can go wrong with a cell.

use std::net::SocketAddr;
use std::path::PathBuf;

use capstan_catalog::CatalogError;
use capstan_director::DirectorError;
use capstan_keys::KeyError;
use capstan_keys::api::{PeerId, Problem};
use capstan_keys::cluster::IdentityError;
use capstan_service::audit::AuditError;
use capstan_service::identity::AuthorityError;
use capstan_service::problem::Refusal;
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
        "cannot listen at {address} (setting {setting}): another program may have the port, or the address is not of \
         this machine. Name another one; enrolment and data follow listen, at the next two ports, where they name none"
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
    /// Operator: a text that is no barcode.
    #[error("{text:?} is no barcode: 1 to 8 of A-Z and 0-9")]
    NoBarcode {
        /// The text.
        text: String,
    },
    /// Operator: a volume is to be labelled over the network, and was written.
    #[error(
        "volume {volume} has been written: what destroys copies, or what can still be taken back (`capstan expire \
         --undo`), is typed at the server's machine (`capstan label {volume}` there)"
    )]
    WasWritten {
        /// The volume.
        volume: String,
    },
    /// Operator: whoever asked for a task stopped it.
    #[error("it was stopped")]
    TaskStopped,
    /// Operator: several volumes were to be labelled.
    #[error("no volume was labelled: {reasons}")]
    NoneLabelled {
        /// Why, of each.
        reasons: String,
    },
    /// Operator: somebody lost a right during a task.
    #[error("user {user} may not {what} any more")]
    NoMore {
        /// Who.
        user: String,
        /// What.
        what: &'static str,
    },
    /// Operator: the client does not wait for orders.
    #[error(transparent)]
    NotConnected(#[from] NotConnected),
    /// Operator: the name is the server's own.
    #[error(
        "{name} is the name of the server's own machine, whose backups bear it: enrol the client under another name, \
         and join with that (--name)"
    )]
    ServersName {
        /// The name.
        name: String,
    },
    /// Operator: there is a client or mover of that name.
    #[error(
        "there is a {kind} {name} already, whose certificate holds: choose another name, or run `capstan {kind} revoke \
         {name}` first", kind = .0.kind, name = .0.name
    )]
    NameTaken(PeerId),
    /// Operator: there is no client or mover of that name.
    #[error("there is no {kind} {name}: `capstan {kind} list` lists them", kind = .0.kind, name = .0.name)]
    UnknownMember(PeerId),
    /// Operator: there is nothing left to revoke.
    #[error(
        "{kind} {name} has no certificate that could be revoked: it was revoked or has ended",
        kind = .0.kind, name = .0.name
    )]
    NothingToRevoke(PeerId),
    /// Operator: the name of a user that nobody has.
    #[error("there is no user {name} of this cell: `capstan user list` lists them")]
    UnknownUser {
        /// The name.
        name: String,
    },
    /// Operator: the name of a role that is none.
    #[error("{name:?} is no role: administrator, operator, restorer and auditor are")]
    UnknownRole {
        /// The name.
        name: String,
    },
    /// Operator: roles that do not go together.
    #[error("{reason}")]
    Roles {
        /// Why, and what to do.
        reason: String,
    },
    /// Operator: a passphrase would be valid for too long.
    #[error("a one-time passphrase is valid for 30 days at most: give a shorter time")]
    ValidTooLong,
    /// Operator: the user's roles do not allow it.
    #[error("user {user} ({roles}) may not {what}: that is for {may}")]
    Denied {
        /// Who.
        user: String,
        /// What the user is.
        roles: String,
        /// What was to be done.
        what: &'static str,
        /// Who may.
        may: String,
    },
    /// Operator: the client is none of those that a restorer is named for.
    #[error(
        "user {user} is a restorer, and not of client {client}: an administrator can change that (capstan user change)"
    )]
    NotNamedFor {
        /// Who.
        user: String,
        /// The client.
        client: String,
    },
    /// Operator: the number of a run that is not in the queue.
    #[error("run {0} is not in the queue: `capstan queue` lists what is, `capstan queue done` what was")]
    RunNotQueued(i64),
    /// Operator: a run that cannot be held or released any more.
    #[error("run {0} is at work: only a run that waits can be held or released: `capstan queue cancel` stops this one")]
    RunAtWork(i64),
    /// Operator: a run that nobody holds, and that waits for something else.
    #[error("run {run} is not held, so nothing was released. It waits for: {waits_for}")]
    RunNotHeld {
        /// The number.
        run: i64,
        /// What it waits for, in words.
        waits_for: String,
    },
    /// Operator: the number of a run that cannot be run again.
    #[error("run {0} has not ended, or there is none: `capstan queue done` lists those that can run again")]
    RunNotEnded(i64),
    /// Operator: the number of a restore, which was not a backup of a policy.
    #[error(
        "run {0} was a restore, and only backups are run again: ask for it again with `capstan restore`, or at the client \
         with `capstan client restore`"
    )]
    RunIsRestore(i64),
    /// Caller: more runs than one request may change.
    #[error("100 runs or policies can be named at a time: name fewer")]
    TooManyRuns,
    /// Operator: somebody changed the policies between a look and a change.
    #[error("somebody changed the policies meanwhile, and nothing was done: look again what would change")]
    PoliciesChanged,
    /// Host: the audit log cannot be written, so nothing is done that would stand in it.
    #[error(transparent)]
    Audit(#[from] AuditError),
    /// Host: the audit log cannot be used.
    #[error("the audit log of the cell: {reason}")]
    AuditLog {
        /// Why.
        reason: String,
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

impl CellError {
    /// Why something was not done, in words that may stand in the audit log.
    pub(super) fn for_the_log(&self) -> &'static str {
        match self {
            Self::Denied { .. } => "no role of this user may do it",
            Self::NameTaken(_) | Self::ServersName { .. } => "the name is taken",
            Self::UnknownMember(_) | Self::UnknownUser { .. } => "there is nobody of that name",
            Self::NothingToRevoke(_) => "there is nothing to revoke",
            Self::RunNotQueued(_) | Self::RunNotEnded(_) | Self::RunAtWork(_) => {
                "the run is not where it would have to be"
            }
            Self::RunNotHeld { .. } => "nobody holds the run",
            Self::RunIsRestore(_) => "the run is no backup",
            Self::TaskStopped => "it was stopped",
            Self::WasWritten { .. } => "the volume has been written",
            Self::NoMore { .. } => "the user may not do it any more",
            Self::PoliciesChanged => "somebody changed the policies meanwhile",
            Self::Roles { .. } | Self::UnknownRole { .. } | Self::ValidTooLong => "what was asked makes no sense",
            _ => "it failed",
        }
    }
}

/// The same to somebody who asked over the network.
pub(super) fn refusal_of(error: &CellError) -> Refusal {
    let text = format!("{}.", in_words(error));
    match error {
        CellError::Denied { .. } | CellError::NotNamedFor { .. } => Refusal::forbidden(text),
        CellError::NameTaken(_)
        | CellError::NothingToRevoke(_)
        | CellError::PoliciesChanged
        | CellError::RunAtWork(_)
        | CellError::RunNotHeld { .. } => Refusal::conflict(text),
        CellError::UnknownMember(_)
        | CellError::UnknownUser { .. }
        | CellError::RunNotQueued(_)
        | CellError::RunNotEnded(_)
        | CellError::RunIsRestore(_)
        | CellError::Director(DirectorError::UnknownPolicy { .. } | DirectorError::UnknownLibrary { .. }) => {
            Refusal::not_found(text)
        }
        CellError::Director(DirectorError::Config { .. } | DirectorError::PolicyFault { .. })
        | CellError::Roles { .. }
        | CellError::UnknownRole { .. }
        | CellError::ValidTooLong
        | CellError::TooManyRuns
        | CellError::NoBarcode { .. }
        | CellError::ServersName { .. } => Refusal::malformed(text),
        CellError::Director(_) | CellError::Audit(_) | CellError::AuditLog { .. } => Refusal::unready(text),
        // The server keeps no log that whoever asked could look into.
        _ => Problem::new(500, "failed", "The server failed", text).into(),
    }
}

/// Why what was asked about objects and files is not answered.
pub(super) fn refused(error: &DirectorError) -> Refusal {
    let text = format!("{}.", in_words(error));
    match error {
        DirectorError::Catalog(_) => Refusal::unready(text),
        DirectorError::UnknownPath { .. } | DirectorError::UnknownObject { .. } => Refusal::not_found(text),
        _ => Refusal::malformed(text),
    }
}

impl From<CatalogError> for CellError {
    fn from(error: CatalogError) -> Self {
        Self::Director(error.into())
    }
}

/// An error with what caused it, in words.
pub(crate) fn in_words(error: &dyn std::error::Error) -> String {
    let causes = std::iter::successors(error.source(), |cause| cause.source());
    causes.fold(error.to_string(), |text, cause| {
        let cause = cause.to_string();
        if text.ends_with(&cause) { text } else { format!("{text}: {cause}") }
    })
}
