//! Who is who: peers, clusters, certificates.

use std::fmt;
use std::str::FromStr;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::{KeyError, Name, random};

/// What kind of peer somebody is. It stands in the certificate, and no route may take one for another.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum PeerKind {
    /// A node of the cluster.
    Kma,
    /// A drive, or the host that asks for several.
    Agent,
    /// A person.
    User,
    /// A program that speaks KMIP: a library, or another backup program.
    KmipClient,
    /// The server of a cell.
    Server,
    /// A mover of a cell: a host with drives.
    Mover,
    /// A client of a cell: a machine whose data is backed up.
    Client,
}

impl PeerKind {
    /// All of them.
    pub const ALL: [Self; 7] =
        [Self::Kma, Self::Agent, Self::User, Self::KmipClient, Self::Server, Self::Mover, Self::Client];

    /// Those of a key cluster.
    pub const OF_KEY_CLUSTER: [Self; 4] = [Self::Kma, Self::Agent, Self::User, Self::KmipClient];

    /// The word that stands in certificates and paths.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Kma => "kma",
            Self::Agent => "agent",
            Self::User => "user",
            Self::KmipClient => "kmip",
            Self::Server => "server",
            Self::Mover => "mover",
            Self::Client => "client",
        }
    }
}

/// A peer: its kind and its name, written `agent/DRIVE1`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(try_from = "String", into = "String")]
pub struct PeerId {
    /// Its kind.
    pub kind: PeerKind,
    /// Its name, unique within its kind.
    pub name: Name,
}

/// A text names no peer, cluster, certificate or conversation.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{text:?} is no {what}")]
pub struct InvalidId {
    what: &'static str,
    text: String,
}

impl InvalidId {
    fn new(what: &'static str, text: &str) -> Self {
        // A hostile text may be long; what is wrong with it shows at its beginning.
        Self { what, text: text.chars().take(80).collect() }
    }
}

impl fmt::Display for PeerKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl FromStr for PeerKind {
    type Err = InvalidId;

    fn from_str(text: &str) -> Result<Self, InvalidId> {
        let found = Self::ALL.into_iter().find(|kind| kind.as_str() == text);
        found.ok_or_else(|| InvalidId::new("kind of peer: give kma, agent, user, kmip, server, mover or client", text))
    }
}

impl fmt::Display for PeerId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.kind, self.name.as_str())
    }
}

impl FromStr for PeerId {
    type Err = InvalidId;

    fn from_str(text: &str) -> Result<Self, InvalidId> {
        let invalid = || InvalidId::new("peer: give its kind and its name, as in agent/DRIVE1", text);
        let (kind, name) = text.split_once('/').ok_or_else(invalid)?;
        Ok(Self { kind: kind.parse()?, name: name.parse().map_err(|_| invalid())? })
    }
}

impl TryFrom<String> for PeerId {
    type Error = InvalidId;

    fn try_from(text: String) -> Result<Self, InvalidId> {
        text.parse()
    }
}

impl From<PeerId> for String {
    fn from(peer: PeerId) -> Self {
        peer.to_string()
    }
}

/// 16 bytes that are written as 32 hexadecimal digits.
macro_rules! hexadecimal {
    ($(#[$doc:meta])* $name:ident, $what:literal) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
        #[serde(try_from = "String", into = "String")]
        pub struct $name(pub [u8; 16]);

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
            }
        }

        impl FromStr for $name {
            type Err = InvalidId;

            fn from_str(text: &str) -> Result<Self, InvalidId> {
                hexadecimal(text).map(Self).ok_or_else(|| InvalidId::new($what, text))
            }
        }

        impl TryFrom<String> for $name {
            type Error = InvalidId;

            fn try_from(text: String) -> Result<Self, InvalidId> {
                text.parse()
            }
        }

        impl From<$name> for String {
            fn from(id: $name) -> Self {
                id.to_string()
            }
        }
    };
}

hexadecimal! {
    /// A cluster, from its beginning to its end; drawn at random. It stands in every certificate.
    ClusterId, "cluster: give 32 hexadecimal digits"
}
hexadecimal! {
    /// The serial number of a certificate: what a revocation names.
    Serial, "serial number of a certificate: give 32 hexadecimal digits"
}
hexadecimal! {
    /// One thing that is asked for, drawn at random by who asks: asked for again, also at another node, it has the
    /// same.
    RequestId, "id of a request: give 32 hexadecimal digits"
}

impl RequestId {
    /// A new one.
    ///
    /// # Errors
    /// [`KeyError::Host`] if the random generator fails.
    pub fn random() -> Result<Self, KeyError> {
        let mut id = Self([0; 16]);
        random(&mut id.0)?;
        Ok(id)
    }
}

fn hexadecimal(text: &str) -> Option<[u8; 16]> {
    if text.len() != 32 || !text.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        return None;
    }
    let mut bytes = [0; 16];
    for (byte, at) in bytes.iter_mut().zip((0..32).step_by(2)) {
        *byte = u8::from_str_radix(&text[at..at + 2], 16).ok()?;
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

    use super::*;

    #[test]
    fn peers_are_written_and_read() {
        for kind in PeerKind::ALL {
            let peer = PeerId { kind, name: "Drive-1.b".parse().unwrap() };
            assert_eq!(peer.to_string().parse::<PeerId>().unwrap(), peer);
            let json = serde_json::to_string(&peer).unwrap();
            assert_eq!(serde_json::from_str::<PeerId>(&json).unwrap(), peer);
        }
        for text in ["", "agent", "agent/", "agent//x", "agent/a/b", "Agent/x", "root/x", "agent/../x", "agent/\u{e9}"]
        {
            assert!(text.parse::<PeerId>().is_err(), "{text:?} was taken for a peer");
        }
    }

    #[test]
    fn identifiers_are_32_digits() {
        let id = ClusterId(*b"0123456789abcdef");
        assert_eq!(id.to_string().parse::<ClusterId>().unwrap(), id);
        let accented = "\u{e9}".repeat(16);
        for text in ["", "00", &"0".repeat(31), &"0".repeat(33), &"+0".repeat(16), &accented, &"g".repeat(32)] {
            assert!(text.parse::<ClusterId>().is_err(), "{text:?} was taken for a cluster");
        }
    }
}
