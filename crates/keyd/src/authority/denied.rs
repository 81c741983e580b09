//! Why somebody may not.

use capstan_keys::Name;
use thiserror::Error;

use super::{Act, CertificateSerial, Roles};

/// Why somebody may not.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum Denied {
    /// Operator: the role is not theirs.
    #[error("user {user} ({has}) may not {}: that is for a user with one of these roles: {}", act.words(), act.roles())]
    Role {
        /// Who.
        user: Name,
        /// The roles that they have.
        has: Roles,
        /// What they asked for.
        act: Act,
    },
    /// Operator: the user was disabled.
    #[error("user {user} is disabled: a security officer can ask the quorum to enable them again")]
    Disabled {
        /// Who.
        user: Name,
    },
    /// Caller: nobody has this certificate.
    #[error("certificate {serial} belongs to no user: enrol it, or use the certificate that was given to you last")]
    UnknownCertificate {
        /// Its serial number.
        serial: CertificateSerial,
    },
}
