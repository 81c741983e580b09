//! What is noted of an act.

use std::fmt;
use std::net::SocketAddr;

use capstan_format::{KeyTag, MediumSerial, Volser};
use capstan_keys::Name;

use super::Anchor;
use crate::authority::{Act, CertificateSerial, Denied, PendingId, Refused, RequestDigest};

/// A text that may stand in a log: made of what can be no secret, and of nothing else.
///
/// There is no way from a `String` or from bytes, so that neither a passphrase nor a key gets in by mistake:
/// ```
/// use capstan_keyd::audit::Fact;
/// fn tag(key: &capstan_keys::VolumeKey) -> Fact { Fact::from(key.tag()) }
/// ```
/// ```compile_fail
/// use capstan_keyd::audit::Fact;
/// fn key(key: &capstan_keys::VolumeKey) -> Fact { Fact::from(key.expose()) }
/// ```
/// ```compile_fail
/// use capstan_keyd::audit::Fact;
/// fn passphrase(passphrase: String) -> Fact { Fact::from(passphrase) }
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fact(String);

impl Fact {
    pub(super) fn as_str(&self) -> &str {
        &self.0
    }
}

macro_rules! facts {
    ($($public:ty),*) => {
        $(impl From<$public> for Fact {
            fn from(public: $public) -> Self {
                Self(public.to_string())
            }
        })*
    };
}

// Refusals name users, roles, acts, times and serial numbers.
facts!(&'static str, u64, i64, SocketAddr, Act, KeyTag, PendingId, RequestDigest);
facts!(&Name, &Volser, &MediumSerial, &CertificateSerial, &Denied, &Refused);

impl From<&[Name]> for Fact {
    fn from(names: &[Name]) -> Self {
        Self(names.iter().map(Name::as_str).collect::<Vec<_>>().join(", "))
    }
}

/// Who did it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Who {
    /// A person.
    User(Name),
    /// A drive.
    Agent(Name),
    /// A client that speaks KMIP.
    KmipClient(Name),
    /// Another node.
    Kma(Name),
    /// This node, of itself.
    Itself,
    /// Somebody who did not prove to be anybody.
    Nobody,
}

impl fmt::Display for Who {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::User(name) => write!(f, "user/{name}"),
            Self::Agent(name) => write!(f, "agent/{name}"),
            Self::KmipClient(name) => write!(f, "kmip-client/{name}"),
            Self::Kma(name) => write!(f, "kma/{name}"),
            Self::Itself => f.write_str("itself"),
            Self::Nobody => f.write_str("nobody"),
        }
    }
}

/// Where it came from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Origin {
    /// Over the network.
    Address(SocketAddr),
    /// From the node itself.
    Here,
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Address(address) => address.fmt(f),
            Self::Here => f.write_str("here"),
        }
    }
}

/// What was done: an act of a person, or what agents and nodes do, by a name of the program's own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Deed(&'static str);

impl Deed {
    /// A deed that is no act of a person: `key-for-reading`, `pool-filled`.
    pub const fn named(name: &'static str) -> Self {
        Self(name)
    }

    pub(super) fn name(self) -> &'static str {
        self.0
    }
}

impl From<Act> for Deed {
    fn from(act: Act) -> Self {
        Self(act.name())
    }
}

/// What came of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// It is about to be done: nobody who sees this alone knows whether it was.
    Begun,
    /// It was done.
    Done,
    /// It was not allowed.
    Refused {
        /// Why.
        why: Fact,
    },
    /// It was allowed, and did not succeed.
    Failed {
        /// Why.
        why: Fact,
    },
}

/// How much hangs on it when the disk is full.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Weight {
    /// It changes something, or issues a new key: refused when there is no room for it.
    Change,
    /// Keys are given out for reading: goes on, out of the reserve.
    Reading,
}

/// What is noted of one act.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    pub(super) who: Who,
    pub(super) from: Origin,
    pub(super) deed: Deed,
    pub(super) object: Option<(&'static str, Fact)>,
    pub(super) outcome: Outcome,
    pub(super) weight: Weight,
    pub(super) facts: Vec<(&'static str, Fact)>,
}

/// A node has seen another's anchor.
pub(super) const WITNESSED: Deed = Deed::named("anchor-witnessed");

impl Entry {
    /// A change, done.
    pub fn new(who: Who, from: Origin, deed: impl Into<Deed>) -> Self {
        let (object, outcome, weight, facts) = (None, Outcome::Done, Weight::Change, Vec::new());
        Self { who, from, deed: deed.into(), object, outcome, weight, facts }
    }

    /// What this node does of itself.
    pub fn own(deed: Deed) -> Self {
        Self::new(Who::Itself, Origin::Here, deed)
    }

    /// That this node has seen another's anchor: the other can no longer take back what stands before it, were it to
    /// deceive the ledger.
    pub fn witnessed(anchor: &Anchor) -> Self {
        let entry = Self::own(WITNESSED).of("kma", &anchor.kma).with("sequence", anchor.head.sequence);
        entry.with_hash("hash", anchor.head.hash)
    }

    /// What it was done to: kind and name, as in the paths of the ledger.
    pub fn of(self, kind: &'static str, name: impl Into<Fact>) -> Self {
        Self { object: Some((kind, name.into())), ..self }
    }

    /// What came of it.
    pub fn came_to(self, outcome: Outcome) -> Self {
        Self { outcome, ..self }
    }

    /// That keys are given out for reading, nothing else.
    pub fn reading(self) -> Self {
        Self { weight: Weight::Reading, ..self }
    }

    /// One more fact. The last one of a name is the one that stands.
    pub fn with(mut self, name: &'static str, fact: impl Into<Fact>) -> Self {
        self.facts.retain(|(other, _)| *other != name);
        self.facts.push((name, fact.into()));
        self
    }

    pub(super) fn with_hash(mut self, name: &'static str, hash: super::LineHash) -> Self {
        self.facts.push((name, Fact(hash.to_string())));
        self
    }
}
