//! What is noted of an act.

use std::fmt;
use std::net::SocketAddr;

use capstan_format::{KeyTag, MediumSerial, Volser};
use capstan_keys::Name;
use capstan_keys::api::PeerId;

use super::Anchor;

/// A value whose text may stand in a log: names, tags, numbers, and texts of the program itself. It must never be
/// implemented for a secret, nor for strings or bytes, which may hold one.
pub trait PublicText {
    /// The text.
    fn text(&self) -> String;
}

/// A text that may stand in a log: made of what can be no secret, and of nothing else.
///
/// There is no way from a `String` or from bytes, so that neither a passphrase nor a key gets in by mistake:
/// ```
/// use capstan_service::audit::AuditFact;
/// fn tag(key: &capstan_keys::VolumeKey) -> AuditFact { AuditFact::from(key.tag()) }
/// ```
/// ```compile_fail
/// use capstan_service::audit::AuditFact;
/// fn key(key: &capstan_keys::VolumeKey) -> AuditFact { AuditFact::from(key.expose()) }
/// ```
/// ```compile_fail
/// use capstan_service::audit::AuditFact;
/// fn passphrase(passphrase: String) -> AuditFact { AuditFact::from(passphrase) }
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AuditFact(String);

impl AuditFact {
    pub(super) fn as_str(&self) -> &str {
        &self.0
    }
}

impl<T: PublicText> From<T> for AuditFact {
    fn from(public: T) -> Self {
        Self(public.text())
    }
}

macro_rules! public_texts {
    ($($public:ty),*) => {
        $(impl PublicText for $public {
            fn text(&self) -> String {
                self.to_string()
            }
        })*
    };
}

public_texts!(&'static str, u64, i64, SocketAddr, KeyTag, &Name, &Volser, &MediumSerial);

impl PublicText for &[Name] {
    fn text(&self) -> String {
        self.iter().map(Name::as_str).collect::<Vec<_>>().join(", ")
    }
}

/// Who did it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AuditActor {
    /// A peer that has proved who it is.
    Peer {
        /// What it is: `user`, `agent`.
        kind: &'static str,
        /// Its name.
        name: Name,
    },
    /// This process, of itself.
    Itself,
    /// Somebody who did not prove to be anybody.
    Nobody,
}

impl AuditActor {
    /// A peer that has proved who it is.
    pub fn of(peer: &PeerId) -> Self {
        Self::Peer { kind: peer.kind.as_str(), name: peer.name.clone() }
    }
}

impl AuditActor {
    /// A peer of this kind and name.
    pub fn peer(kind: &'static str, name: Name) -> Self {
        Self::Peer { kind, name }
    }
}

impl fmt::Display for AuditActor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Peer { kind, name } => write!(f, "{kind}/{name}"),
            Self::Itself => f.write_str("itself"),
            Self::Nobody => f.write_str("nobody"),
        }
    }
}

/// Where it came from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AuditOrigin {
    /// Over the network.
    Address(SocketAddr),
    /// From the process itself.
    Here,
}

impl fmt::Display for AuditOrigin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Address(address) => address.fmt(f),
            Self::Here => f.write_str("here"),
        }
    }
}

/// What was done, by a name of the program's own: an act of a person, or what peers and the program do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AuditAction(&'static str);

impl AuditAction {
    /// An action of this name: `key-for-reading`, `pool-filled`.
    pub const fn named(name: &'static str) -> Self {
        Self(name)
    }

    pub(super) fn name(self) -> &'static str {
        self.0
    }
}

/// What came of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AuditOutcome {
    /// It is about to be done: nobody who sees this alone knows whether it was.
    Begun,
    /// It was done.
    Done,
    /// It was not allowed.
    Refused {
        /// Why.
        why: AuditFact,
    },
    /// It was allowed, and did not succeed.
    Failed {
        /// Why.
        why: AuditFact,
    },
}

/// How much hangs on it when the disk is full.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AuditWeight {
    /// It changes something, or issues a new key: refused when there is no room for it.
    Change,
    /// Keys are given out for reading: goes on, out of the reserve.
    Reading,
}

/// What is noted of one act.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AuditEntry {
    pub(super) who: AuditActor,
    pub(super) from: AuditOrigin,
    pub(super) action: AuditAction,
    pub(super) object: Option<(&'static str, AuditFact)>,
    pub(super) outcome: AuditOutcome,
    pub(super) weight: AuditWeight,
    pub(super) facts: Vec<(&'static str, AuditFact)>,
}

/// A node has seen another's anchor.
pub(super) const WITNESSED: AuditAction = AuditAction::named("anchor-witnessed");

impl AuditEntry {
    /// A change, done.
    pub fn new(who: AuditActor, from: AuditOrigin, action: impl Into<AuditAction>) -> Self {
        let (object, outcome, weight, facts) = (None, AuditOutcome::Done, AuditWeight::Change, Vec::new());
        Self { who, from, action: action.into(), object, outcome, weight, facts }
    }

    /// What this process does of itself.
    pub fn own(action: AuditAction) -> Self {
        Self::new(AuditActor::Itself, AuditOrigin::Here, action)
    }

    /// That this node has seen another's anchor: the other can no longer take back what stands before it, were it to
    /// deceive the ledger.
    pub fn witnessed(anchor: &Anchor) -> Self {
        let entry = Self::own(WITNESSED).of("kma", &anchor.kma).with("sequence", anchor.head.sequence);
        entry.with_hash("hash", anchor.head.hash)
    }

    /// What it was done to: kind and name, as in the paths of the ledger.
    pub fn of(self, kind: &'static str, name: impl Into<AuditFact>) -> Self {
        Self { object: Some((kind, name.into())), ..self }
    }

    /// What came of it.
    pub fn came_to(self, outcome: AuditOutcome) -> Self {
        Self { outcome, ..self }
    }

    /// That keys are given out for reading, nothing else.
    pub fn reading(self) -> Self {
        Self { weight: AuditWeight::Reading, ..self }
    }

    /// One more fact. The last one of a name is the one that stands.
    pub fn with(mut self, name: &'static str, fact: impl Into<AuditFact>) -> Self {
        self.facts.retain(|(other, _)| *other != name);
        self.facts.push((name, fact.into()));
        self
    }

    pub(super) fn with_hash(mut self, name: &'static str, hash: super::LineHash) -> Self {
        self.facts.push((name, AuditFact(hash.to_string())));
        self
    }
}
