//! What keeps a message from its receivers.

use std::path::PathBuf;

/// Why a message did not arrive.
#[derive(Debug, thiserror::Error)]
pub enum TellError {
    /// The mail server.
    #[error("mail by {server}: {reason}")]
    Mail {
        /// The server, as the settings name it.
        server: String,
        /// What it said, or what kept us from it.
        reason: String,
    },
    /// The file with the password of the mail server.
    #[error("mail: the password file {} cannot be read: {source}", path.display())]
    Password {
        /// The file.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// The receiver of JSON. Its address may hold a secret, and is not named.
    #[error("webhook: {reason}")]
    Webhook {
        /// What it said, or what kept us from it.
        reason: String,
    },
    /// The program.
    #[error("command {program}: {reason}")]
    Command {
        /// Its path.
        program: String,
        /// How it ended, or why it did not begin.
        reason: String,
    },
    /// The server stops.
    #[error("the server stops")]
    Stopped,
}
