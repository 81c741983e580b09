//! Names of policies, key groups and agents.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use thiserror::Error;

const LEN_MAX: usize = 63;
const DEFAULT: &str = "default";

/// A name that fits into a path, a table and a command line: 1 to 63 ASCII letters, digits, `.`, `_` and `-`, the first
/// of them a letter or a digit.
///
/// Copies share the text: of a million keys most are of one group, and were asked for by few.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(try_from = "String", into = "String")]
pub struct Name(Arc<str>);

/// A text is no name.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error(
    "{text:?} is no name: give 1 to {LEN_MAX} letters, digits, `.`, `_` or `-`, beginning with a letter or a digit"
)]
pub struct InvalidName {
    /// The text.
    pub text: String,
}

impl Name {
    /// The name as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Whether it names what is there without anybody's doing.
    pub fn is_default(&self) -> bool {
        &*self.0 == DEFAULT
    }
}

impl Default for Name {
    /// `default`, the group and the policy that are always there.
    fn default() -> Self {
        Self(DEFAULT.into())
    }
}

impl FromStr for Name {
    type Err = InvalidName;

    fn from_str(text: &str) -> Result<Self, InvalidName> {
        let begins_well = text.bytes().next().is_some_and(|first| first.is_ascii_alphanumeric());
        let allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
        if begins_well && text.len() <= LEN_MAX && text.bytes().all(allowed) {
            return Ok(Self(text.into()));
        }
        Err(InvalidName { text: text.chars().take(LEN_MAX + 1).collect() })
    }
}

impl TryFrom<String> for Name {
    type Error = InvalidName;

    fn try_from(text: String) -> Result<Self, InvalidName> {
        text.parse()
    }
}

impl From<Name> for String {
    fn from(name: Name) -> Self {
        name.0.as_ref().to_owned()
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_short_and_plain() {
        for good in ["a", "Default", "2024-07.offsite_B", &"x".repeat(63)] {
            assert_eq!(good.parse::<Name>().map(|name| name.to_string()), Ok(good.to_owned()));
        }
        for bad in ["", "-a", ".a", "a b", "ä", "a/b", &"x".repeat(64)] {
            assert!(bad.parse::<Name>().is_err(), "{bad}");
        }
    }
}
