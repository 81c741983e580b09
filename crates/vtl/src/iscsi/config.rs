//! What an operator decides about a target.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::Duration;

use thiserror::Error;
use zeroize::Zeroizing;

use super::text::is_name;

/// Shortest CHAP secret: 96 bits (RFC 7143, 9.2.1).
const SECRET_LEN_MIN: usize = 12;
/// Longest CHAP secret. Some initiators take 16 at most.
const SECRET_LEN_MAX: usize = 128;
/// TCP port of iSCSI.
const PORT: u16 = 3260;

/// What a name proves itself with.
///
/// Zeroised when dropped, and it must never be printed, logged or cloned:
/// ```compile_fail
/// fn printed(secret: &capstan_vtl::iscsi::ChapSecret) -> String { format!("{secret:?}") }
/// ```
pub struct ChapSecret(Zeroizing<Vec<u8>>);

impl ChapSecret {
    /// A secret of 12 to 128 bytes.
    ///
    /// # Errors
    /// [`ConfigError::SecretLength`].
    pub fn new(secret: Zeroizing<Vec<u8>>) -> Result<Self, ConfigError> {
        match secret.len() {
            SECRET_LEN_MIN..=SECRET_LEN_MAX => Ok(Self(secret)),
            len => Err(ConfigError::SecretLength { len }),
        }
    }

    /// The bytes, for the digest alone; they must not be copied anywhere that is not zeroised.
    pub(crate) fn expose(&self) -> &[u8] {
        &self.0
    }
}

/// A name and its secret.
pub struct ChapCredentials {
    /// `CHAP_N`.
    pub name: String,
    /// What proves it.
    pub secret: ChapSecret,
}

/// Who may ask which targets there are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Discovery {
    /// Everyone who reaches the portal: many initiators have no place for a secret of discovery.
    Open,
    /// Who may log in.
    LikeLogin,
}

/// How much a target takes upon itself.
#[derive(Debug, Clone)]
pub struct TargetLimits {
    /// Sessions at once, discovery included.
    pub sessions: usize,
    /// Connections that have not logged in; when another one comes, the oldest of them is dropped.
    pub half_open: usize,
    /// How long a login may take.
    pub login: Duration,
    /// After how long without a word an initiator is asked whether it is there; after as long again it is given up.
    pub idle: Duration,
    /// How long an initiator may leave what was sent to it unread.
    pub send: Duration,
    /// Commands of one session that wait or run.
    pub commands: u32,
    /// Longest data segment that is received, in bytes. A write of so many bytes needs one PDU.
    pub segment_bytes: u32,
    /// Most data that come without being asked for, in bytes. Each waiting command may hold so many.
    pub first_burst_bytes: u32,
    /// Most data that are asked for at once, in bytes.
    pub burst_bytes: u32,
}

impl Default for TargetLimits {
    fn default() -> Self {
        Self {
            sessions: 64,
            half_open: 64,
            login: Duration::from_secs(15),
            idle: Duration::from_secs(10),
            send: Duration::from_secs(30),
            commands: 32,
            segment_bytes: 256 << 10,
            first_burst_bytes: 256 << 10,
            burst_bytes: 1 << 20,
        }
    }
}

/// A target and its portal.
pub struct TargetConfig {
    /// Its name: `iqn.`, `eui.` or `naa.`.
    pub name: String,
    /// Where it listens, and nowhere else.
    pub portal: SocketAddr,
    /// What initiators must prove; without it anyone may log in who reaches the portal.
    pub chap: Option<ChapCredentials>,
    /// What the target proves to initiators that ask.
    pub mutual: Option<ChapCredentials>,
    /// Who may ask which targets there are.
    pub discovery: Discovery,
    /// Names of the initiators that may log in; all where it is empty.
    pub initiators: Vec<String>,
    /// How much it takes upon itself.
    pub limits: TargetLimits,
}

impl TargetConfig {
    /// A target on this host's loopback, open to all who reach it there.
    pub fn new(name: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            portal: SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), PORT),
            chap: None,
            mutual: None,
            discovery: Discovery::Open,
            initiators: Vec::new(),
            limits: TargetLimits::default(),
        }
    }

    /// Whether it can be served.
    pub(crate) fn check(&self) -> Result<(), ConfigError> {
        for name in std::iter::once(&self.name).chain(&self.initiators) {
            if !is_name(name) {
                return Err(ConfigError::Name { name: name.clone() });
            }
        }
        match (&self.chap, &self.mutual) {
            (None, Some(_)) => Err(ConfigError::MutualAlone),
            // An initiator that knows both could answer for the target (RFC 7143, 9.2.1).
            (Some(chap), Some(mutual)) if chap.secret.expose() == mutual.secret.expose() => {
                Err(ConfigError::SameSecret)
            }
            _ => Ok(()),
        }?;
        let limits = &self.limits;
        let segments = 512..1 << 24;
        let counted = limits.sessions > 0 && limits.half_open > 0 && (1..=1024).contains(&limits.commands);
        let timed = ![limits.login, limits.idle, limits.send].contains(&Duration::ZERO);
        let sized = segments.contains(&limits.segment_bytes)
            && segments.contains(&limits.burst_bytes)
            && (512..=limits.burst_bytes).contains(&limits.first_burst_bytes);
        if counted && timed && sized { Ok(()) } else { Err(ConfigError::Limits) }
    }

    /// Whether an initiator of this name may log in, before it has proved anything.
    pub(crate) fn admits(&self, initiator: &str) -> bool {
        self.initiators.is_empty() || self.initiators.iter().any(|name| name.eq_ignore_ascii_case(initiator))
    }
}

/// Why a configuration cannot be served.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum ConfigError {
    /// A name that the standard does not allow.
    #[error(
        "{name:?} is no iSCSI name: write iqn.YYYY-MM.domain:text, in at most 223 letters, digits, dots, colons and dashes"
    )]
    Name {
        /// The name.
        name: String,
    },
    /// A secret that is too short or too long.
    #[error(
        "a CHAP secret of {len} bytes: choose one of {SECRET_LEN_MIN} to {SECRET_LEN_MAX} bytes, and of 16 at most for \
         initiators on Windows"
    )]
    SecretLength {
        /// Its length in bytes.
        len: usize,
    },
    /// The target would prove itself to whom it does not know.
    #[error("the target has a CHAP secret and its initiators have none: give them one, or remove the target's secret")]
    MutualAlone,
    /// One secret for both directions.
    #[error("initiators and target have the same CHAP secret, so that one can answer for the other: choose two")]
    SameSecret,
    /// Limits that nothing can be served with.
    #[error(
        "the limits leave no room to serve anyone: allow at least one session, one login, 1 to 1024 commands, times \
         above zero, and lengths from 512 to 16777215 bytes, the first burst no longer than a burst"
    )]
    Limits,
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

    use super::*;

    fn credentials(secret: &[u8]) -> ChapCredentials {
        ChapCredentials { name: "user".into(), secret: ChapSecret::new(secret.to_vec().into()).unwrap() }
    }

    #[test]
    fn secrets_have_a_length() {
        assert!(ChapSecret::new(vec![b'a'; 12].into()).is_ok());
        for len in [0, 11, 129] {
            assert_eq!(ChapSecret::new(vec![b'a'; len].into()).err(), Some(ConfigError::SecretLength { len }));
        }
    }

    #[test]
    fn configurations_are_checked() {
        let valid = || TargetConfig::new("iqn.2026-01.example:library");
        assert_eq!(valid().check(), Ok(()));
        let config = TargetConfig { mutual: Some(credentials(b"target-secret")), ..valid() };
        assert_eq!(config.check(), Err(ConfigError::MutualAlone));
        let config = TargetConfig { chap: Some(credentials(b"target-secret")), ..config };
        assert_eq!(config.check(), Err(ConfigError::SameSecret));
        let config = TargetConfig { chap: Some(credentials(b"other-secret!")), ..config };
        assert_eq!(config.check(), Ok(()));
        assert!(matches!(TargetConfig::new("tapes").check(), Err(ConfigError::Name { .. })));
        let limits = TargetLimits { sessions: 0, ..TargetLimits::default() };
        assert_eq!(TargetConfig { limits, ..valid() }.check(), Err(ConfigError::Limits));
    }

    #[test]
    fn initiators_are_admitted_by_name() {
        let mut config = TargetConfig::new("iqn.2026-01.example:library");
        assert!(config.admits("iqn.2026-01.example:anyone"));
        config.initiators.push("iqn.2026-01.example:host".into());
        assert!(config.admits("iqn.2026-01.example:HOST") && !config.admits("iqn.2026-01.example:anyone"));
    }
}
