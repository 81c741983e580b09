//! What exactly an act is asked for: names and texts that an approver can read.

use std::collections::BTreeMap;

use capstan_format::{Cursor, FormatError};
use thiserror::Error;

use super::bytes::text;

const COUNT_MAX: usize = 64;
const NAME_LEN_MAX: usize = 40;
/// With all its fields a request must fit into a record of the ledger.
const LEN_MAX: usize = 32 << 10;

/// The arguments of an act: `address = 192.0.2.7:5700`, `roles = operator`.
///
/// They are what an approver reads and what is executed afterwards, word for word: an argument that cannot be shown,
/// such as a certificate, stands here by its fingerprint. So that what is read is what is there, a value has neither
/// control characters (which could draw over other lines) nor invisible ones (which could turn the text around). Never
/// put a secret here.
///
/// ```text
/// number (1), to 64 | of each, ascending by name: length of the name (1), name | length of the value (2), value
/// ```
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Arguments(BTreeMap<String, String>);

/// A text is no argument.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum InvalidArgument {
    /// Caller: no name.
    #[error("{name:?} is no name of an argument: it has 1 to {NAME_LEN_MAX} small letters, digits and hyphens")]
    Name {
        /// The text.
        name: String,
    },
    /// Caller: it could not be read as it is.
    #[error("the value of {name} holds {character:?}, which an approver could not see: write it without")]
    Invisible {
        /// The argument.
        name: String,
        /// The first such character.
        character: char,
    },
    /// Caller: nobody would read that.
    #[error("the arguments are more than {COUNT_MAX}, or longer than {LEN_MAX} bytes: ask for less at once")]
    TooLong,
}

impl Arguments {
    /// With one more, or another value of one.
    pub fn with(mut self, name: &str, value: &str) -> Result<Self, InvalidArgument> {
        let allowed = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
        if name.is_empty() || name.len() > NAME_LEN_MAX || !name.bytes().all(allowed) {
            return Err(InvalidArgument::Name { name: name.chars().take(NAME_LEN_MAX).collect() });
        }
        if let Some(character) = value.chars().find(|&character| is_invisible(character)) {
            return Err(InvalidArgument::Invisible { name: name.to_owned(), character });
        }
        self.0.insert(name.to_owned(), value.to_owned());
        if self.0.len() > COUNT_MAX
            || self.0.iter().map(|(name, value)| 3 + name.len() + value.len()).sum::<usize>() > LEN_MAX
        {
            return Err(InvalidArgument::TooLong);
        }
        Ok(self)
    }

    /// The value of one.
    pub fn get(&self, name: &str) -> Option<&str> {
        self.0.get(name).map(String::as_str)
    }

    /// All of them, by name.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter().map(|(name, value)| (name.as_str(), value.as_str()))
    }

    pub(super) fn encode(&self, bytes: &mut Vec<u8>) {
        bytes.push(self.0.len() as u8);
        for (name, value) in &self.0 {
            bytes.push(name.len() as u8);
            bytes.extend_from_slice(name.as_bytes());
            bytes.extend_from_slice(&(value.len() as u16).to_le_bytes());
            bytes.extend_from_slice(value.as_bytes());
        }
    }

    pub(super) fn decode(fields: &mut Cursor<'_>) -> Result<Self, FormatError> {
        let mut arguments = Self::default();
        for _ in 0..fields.u8()? {
            let len = usize::from(fields.u8()?);
            let name = text(fields, len)?;
            let len = usize::from(u16::from_le_bytes(fields.array()?));
            let value = text(fields, len)?;
            if arguments.0.last_key_value().is_some_and(|(last, _)| last.as_str() >= name) {
                return Err(fields.field("argument", &"one out of order"));
            }
            arguments = arguments.with(name, value).map_err(|error| fields.field("argument", &error))?;
        }
        Ok(arguments)
    }
}

/// Whether a character shows nothing, or changes how others show: controls, and those of Unicode's general punctuation
/// that join, turn or hide.
fn is_invisible(character: char) -> bool {
    character.is_control()
        || matches!(character, '\u{ad}' | '\u{61c}' | '\u{180e}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}'
            | '\u{2060}'..='\u{206f}' | '\u{feff}' | '\u{fff9}'..='\u{fffb}' | '\u{e0000}'..='\u{e0fff}')
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

    use super::*;

    #[test]
    fn what_an_approver_could_not_read_is_refused() {
        let with = |name: &str, value: &str| Arguments::default().with(name, value);
        assert!(with("site", "Zürich, cellar 2").is_ok());
        for name in ["", "Site", "a b", "a\nb", &"x".repeat(41)] {
            assert!(matches!(with(name, ""), Err(InvalidArgument::Name { .. })), "{name:?}");
        }
        for value in ["a\nb", "a\x1b[2J", "a\u{202e}b", "a\u{200b}", "\u{feff}"] {
            assert!(matches!(with("a", value), Err(InvalidArgument::Invisible { .. })), "{value:?}");
        }
        assert_eq!(with("a", &"x".repeat(40_000)), Err(InvalidArgument::TooLong));
        let many =
            (0..=COUNT_MAX).try_fold(Arguments::default(), |arguments, at| arguments.with(&format!("a{at}"), ""));
        assert_eq!(many, Err(InvalidArgument::TooLong));
    }
}
