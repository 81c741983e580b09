//! Failures and the exit codes they end with.

use std::fmt;
use std::process::ExitCode;

use capstan_client::ClientError;
use capstan_director::DirectorError;
use capstan_format::Volser;
use capstan_server::cell::CellError;
use capstan_tape::without_error_numbers;

/// Why a command failed.
#[derive(Debug)]
pub(crate) enum Failure {
    /// The director could not do it.
    Director(DirectorError),
    /// The command line, beyond what clap sees.
    Usage(String),
    /// A passphrase that is not the key store's could not be had.
    Passphrase(String),
    /// Somebody stopped it.
    Stopped(String),
    /// Something else.
    Other(String),
    /// What was told before, with the exit code that it had.
    Again {
        /// The words.
        text: String,
        /// The code.
        exit_code: u8,
    },
}

/// Failed; the message says what to do.
pub(crate) const FAILED: u8 = 1;

/// Done, with something to look at.
pub(crate) const DONE_WITH_PROBLEMS: u8 = 3;

/// How what ended with an exit code ended, in the word that lists, hooks and metrics have for it.
pub(crate) fn outcome_word(code: u8) -> &'static str {
    match code {
        0 => "done",
        DONE_WITH_PROBLEMS => "problems",
        STOPPED => "stopped",
        BUSY => "busy",
        _ => "failed",
    }
}

/// Somebody stopped it.
pub(crate) const STOPPED: u8 = 130;

/// Exit code where nobody reads the output any more, as of a program that a closed pipe ends.
pub(crate) const PIPE_CLOSED: u8 = 141;

/// It did not begin, because another job had what it needs.
pub(crate) const BUSY: u8 = 6;

/// Done in part, because a key is not there.
pub(crate) const WITHOUT_KEY: u8 = 4;

/// How work ended that could not be done in full: keys that are not there have a code of their own, wherever they are
/// met.
pub(crate) fn ended_in_part(without_key: &[(Volser, DirectorError)]) -> ExitCode {
    ExitCode::from(if without_key.is_empty() { DONE_WITH_PROBLEMS } else { WITHOUT_KEY })
}

/// An error, and on a line each what it does not say itself.
fn with_causes(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let more = error.to_string();
        if !text.contains(&more) {
            text.push_str("\n  because: ");
            text.push_str(&more);
        }
        cause = error.source();
    }
    without_error_numbers(&text)
}

impl Failure {
    /// Something else, with its causes.
    pub(crate) fn because(error: &dyn std::error::Error) -> Self {
        Self::Other(with_causes(error))
    }

    #[expect(clippy::needless_pass_by_value, reason = "map_err gives its error away")]
    pub(crate) fn output(error: std::io::Error) -> Self {
        if error.kind() == std::io::ErrorKind::BrokenPipe && crate::rustix_sigpipe::ends_quietly() {
            // Nobody reads any more, and nothing is wrong.
            std::process::exit(PIPE_CLOSED.into());
        }
        Self::Other(format!("cannot write the output: {error}"))
    }

    pub(crate) fn exit_code(&self) -> u8 {
        match self {
            Self::Usage(_) => 2,
            Self::Other(_) => FAILED,
            Self::Again { exit_code, .. } => *exit_code,
            Self::Stopped(_) => STOPPED,
            Self::Passphrase(_) => WITHOUT_KEY,
            Self::Director(error) => match error {
                DirectorError::Keys(_) | DirectorError::KeysLocked => WITHOUT_KEY,
                // The command is for a key store, and there is none.
                DirectorError::KeysInCluster { .. } => 2,
                DirectorError::NoVolume { .. } | DirectorError::SessionFailed { lacks_volume: true, .. } => 5,
                DirectorError::Busy { .. } | DirectorError::SourceInUse { .. } | DirectorError::InUse { .. } => BUSY,
                DirectorError::Interrupted
                | DirectorError::RestoreInterrupted
                | DirectorError::ConsolidationStopped { .. }
                | DirectorError::ReclaimStopped => STOPPED,
                _ => FAILED,
            },
        }
    }
}

/// What the director, or a room below it, could not do.
pub(crate) fn director(error: impl Into<DirectorError>) -> Failure {
    Failure::Director(error.into())
}

/// What stands in the way of the cell.
pub(crate) fn of_cell(error: CellError) -> Failure {
    match error {
        CellError::Director(error) => error.into(),
        CellError::Address { .. } | CellError::NoMembersAddress { .. } | CellError::NoPortBehind { .. } => {
            Failure::Usage(error.to_string())
        }
        other => Failure::because(&other),
    }
}

/// What stands in the way of a client, a mover or a user.
#[expect(clippy::needless_pass_by_value, reason = "map_err gives its error away")]
pub(crate) fn of_member(error: ClientError) -> Failure {
    match &error {
        ClientError::WrongPassphrase { .. } => Failure::Passphrase(error.to_string()),
        _ => Failure::because(&error),
    }
}

impl From<DirectorError> for Failure {
    fn from(error: DirectorError) -> Self {
        Self::Director(error)
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Usage(text)
            | Self::Passphrase(text)
            | Self::Stopped(text)
            | Self::Other(text)
            | Self::Again { text, .. } => f.write_str(&without_error_numbers(text)),
            Self::Director(error) => f.write_str(&with_causes(error)),
        }
    }
}
