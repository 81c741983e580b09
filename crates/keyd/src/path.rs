//! Paths of the ledger: where each record lies.

use std::fmt;

use capstan_format::{KeyTag, Volser};
use capstan_keys::Name;

pub(crate) const RECOVERED: &str = "recovered/";
const REMOVED: &str = "removed/";

/// Where a record lies that every node decodes. What others keep in the ledger, each under a first component of its
/// own, is [`Path::Other`] to the state.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Path {
    /// `key/TAG`: a key that was issued, and what for.
    Key(KeyTag),
    /// `unit/BARCODE`: a data unit.
    Unit(Volser),
    /// `policy/NAME`.
    Policy(Name),
    /// `group/NAME`: a key group and its wrapped key.
    Group(Name),
    /// `agent/NAME`: which groups it may use.
    Agent(Name),
    /// `pool/KMA/TAG`: a key that was drawn and not issued.
    Pool {
        /// The node whose it is: it alone issues it.
        kma: Name,
        /// The key.
        tag: KeyTag,
    },
    /// `kma/NAME`: a node.
    Kma(Name),
    /// `held/KMA`: how far a node holds the ledger on its own disk.
    Held(Name),
    /// `kmip/UID`: an object of a KMIP client.
    Kmip(String),
    /// Anything else.
    Other(String),
}

impl Path {
    /// `root`: the root key, as its last split has sealed it.
    pub fn root_key() -> Self {
        Self::Other("root".to_owned())
    }

    /// `recovered/TAG`: a key of a pool that a restore, or the removal of its node, has kept.
    pub fn recovered(tag: &KeyTag) -> Self {
        Self::Other(format!("{RECOVERED}{tag}"))
    }

    /// The key of such a path.
    pub fn recovered_tag(&self) -> Option<KeyTag> {
        match self {
            Self::Other(path) => tag(path.strip_prefix(RECOVERED)?),
            _ => None,
        }
    }

    /// `removed/KMA`: a node that is none any more, in the cluster's memory.
    pub fn removed(kma: &Name) -> Self {
        Self::Other(format!("{REMOVED}{kma}"))
    }

    /// The path that a text says. Whatever is not exactly what [`Path`]'s `Display` writes is another.
    pub fn parse(text: &str) -> Self {
        Self::parse_known(text).unwrap_or_else(|| Self::Other(text.to_owned()))
    }

    fn parse_known(text: &str) -> Option<Self> {
        let (kind, rest) = text.split_once('/')?;
        Some(match kind {
            "key" => Self::Key(tag(rest)?),
            "unit" => Self::Unit(Volser::new(rest).ok()?),
            "policy" => Self::Policy(rest.parse().ok()?),
            "group" => Self::Group(rest.parse().ok()?),
            "agent" => Self::Agent(rest.parse().ok()?),
            "pool" => {
                let (kma, rest) = rest.split_once('/')?;
                Self::Pool { kma: kma.parse().ok()?, tag: tag(rest)? }
            }
            "kma" => Self::Kma(rest.parse().ok()?),
            "held" => Self::Held(rest.parse().ok()?),
            "kmip" => Self::Kmip(rest.to_owned()),
            _ => return None,
        })
    }
}

impl fmt::Display for Path {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Key(tag) => write!(f, "key/{tag}"),
            Self::Unit(volser) => write!(f, "unit/{volser}"),
            Self::Policy(name) => write!(f, "policy/{name}"),
            Self::Group(name) => write!(f, "group/{name}"),
            Self::Agent(name) => write!(f, "agent/{name}"),
            Self::Pool { kma, tag } => write!(f, "pool/{kma}/{tag}"),
            Self::Kma(name) => write!(f, "kma/{name}"),
            Self::Held(name) => write!(f, "held/{name}"),
            Self::Kmip(uid) => write!(f, "kmip/{uid}"),
            Self::Other(path) => f.write_str(path),
        }
    }
}

/// A tag in 32 lower-case hexadecimal digits, as it is displayed.
fn tag(text: &str) -> Option<KeyTag> {
    let is_lower_case = |byte: u8| byte.is_ascii_digit() || matches!(byte, b'a'..=b'f');
    text.bytes().all(is_lower_case).then(|| text.parse().ok())?
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

    use super::*;

    #[test]
    fn every_path_reads_as_it_is_written() {
        let (name, tag): (Name, _) = ("kma-1".parse().unwrap(), KeyTag([0xa5; 16]));
        let volser = Volser::new("A00001").unwrap();
        let paths = [
            Path::Key(tag),
            Path::Unit(volser),
            Path::Policy(name.clone()),
            Path::Group(name.clone()),
            Path::Agent(name.clone()),
            Path::Pool { kma: name.clone(), tag },
            Path::Kma(name.clone()),
            Path::Held(name),
            Path::Kmip("7".to_owned()),
            Path::Other("quorum".to_owned()),
        ];
        for path in paths {
            assert_eq!(Path::parse(&path.to_string()), path);
        }
    }

    #[test]
    fn what_is_nearly_a_path_is_another() {
        for text in
            ["key", "key/", "key/A5", "unit/a b", "pool/kma-1", "held/-", "key/A5A5A5A5A5A5A5A5A5A5A5A5A5A5A5A5"]
        {
            assert_eq!(Path::parse(text), Path::Other(text.to_owned()));
        }
    }
}
