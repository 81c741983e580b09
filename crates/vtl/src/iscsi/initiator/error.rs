//! What can go wrong for an initiator, each with what to do next.

use std::io;
use std::net::SocketAddr;

use thiserror::Error;

use super::super::wire::WireError;

/// Why an initiator could not go on.
#[derive(Debug, Error)]
pub enum InitiatorError {
    /// Nobody is there.
    #[error("cannot reach the target at {portal}: check that it runs, and that no firewall blocks its port")]
    Connect {
        /// Where it should be.
        portal: SocketAddr,
        /// What the host says.
        source: io::Error,
    },
    /// The target refused the login.
    #[error("the target refused the login with status {status:#06x}: {}", advice(*status))]
    Refused {
        /// Class and detail (RFC 7143, 11.13.5).
        status: u16,
    },
    /// The target did not prove that it is who it says.
    #[error(
        "the target did not prove itself: see that its secret for mutual CHAP is the one given here, and that it is the right host"
    )]
    Unproved,
    /// The connection is gone.
    #[error(
        "the connection to the target is gone ({reason}): log in again; what became of the last command is not known"
    )]
    Lost {
        /// What happened.
        reason: String,
    },
    /// The target rejected a request.
    #[error(
        "the target rejected a request with reason {reason:#04x} (RFC 7143, 11.17.1): log in again, and report this with both versions"
    )]
    Rejected {
        /// The reason.
        reason: u8,
    },
    /// The target broke a rule of the protocol.
    #[error("the target broke the protocol ({rule}): log in again, and report this with the target's version")]
    Protocol {
        /// Which rule.
        rule: &'static str,
    },
    /// The caller asks for what cannot be sent.
    #[error("a command cannot have {what}: change the call")]
    Caller {
        /// What it has.
        what: &'static str,
    },
}

fn advice(status: u16) -> &'static str {
    match status {
        0x0201 => "give the name and the secret that the target has for this initiator (CHAP)",
        0x0202 => "add this initiator's name to those that the target admits",
        0x0203 => "ask the portal which targets it has, and name one of them",
        0x0206 | 0x0208 => "log in with a new session",
        0x0301 | 0x0302 => "try again in some seconds; the target is busy, or ends this initiator's old session",
        _ => "see the target's documentation, RFC 7143, 11.13.5 names the status",
    }
}

impl From<WireError> for InitiatorError {
    fn from(error: WireError) -> Self {
        let reason = match &error {
            WireError::Io(source) => source.to_string(),
            other => other.to_string(),
        };
        Self::Lost { reason }
    }
}
