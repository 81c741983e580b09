//! The one-time passphrase of an enrolment.

use std::str::FromStr;

use thiserror::Error;
use zeroize::Zeroizing;

use crate::KeyError;
use crate::secret::random;

/// Crockford's base 32: no `I`, `L`, `O` or `U`, which are misread or read out wrongly.
const ALPHABET: &[u8; 32] = b"0123456789ABCDEFGHJKMNPQRSTVWXYZ";
/// 100 bits: out of reach of guessing also for somebody who has a proof of it, so it needs no slow hash.
const DIGITS: usize = 20;
const GROUP: usize = 4;

/// What somebody types in who is to be enrolled: 20 characters, drawn at random, shown once.
///
/// No `Debug` and no `Display`; zeroised.
pub struct EnrolmentPassphrase(Zeroizing<String>);

/// What was typed is no passphrase of an enrolment. It does not say what was typed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[error("that is no enrolment passphrase: it has {DIGITS} letters and digits, in five groups of four; type it again")]
pub struct InvalidPassphrase;

impl EnrolmentPassphrase {
    /// A new one.
    ///
    /// # Errors
    /// [`KeyError::Host`] if the random generator fails.
    pub fn random() -> Result<Self, KeyError> {
        let mut bytes = Zeroizing::new([0; DIGITS]);
        random(&mut *bytes)?;
        Ok(Self(Zeroizing::new(bytes.iter().map(|byte| char::from(ALPHABET[usize::from(byte % 32)])).collect())))
    }

    /// As it is shown, once, to whoever hands it on: `4XQ2-...`.
    pub fn expose(&self) -> Zeroizing<String> {
        // Capacity for all of it, so that no part is left behind by growing.
        let mut shown = Zeroizing::new(String::with_capacity(DIGITS + DIGITS / GROUP));
        for (at, character) in self.0.chars().enumerate() {
            if at > 0 && at % GROUP == 0 {
                shown.push('-');
            }
            shown.push(character);
        }
        shown
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        self.0.as_bytes()
    }
}

impl FromStr for EnrolmentPassphrase {
    type Err = InvalidPassphrase;

    /// Takes it as people type it: in small letters, without dashes or with spaces, `O` for zero, `I` and `L` for one.
    fn from_str(text: &str) -> Result<Self, InvalidPassphrase> {
        let mut digits = Zeroizing::new(String::with_capacity(DIGITS));
        for character in text.chars().filter(|character| !character.is_whitespace() && *character != '-') {
            let character = match character.to_ascii_uppercase() {
                'O' => '0',
                'I' | 'L' => '1',
                other => other,
            };
            let known = u8::try_from(character).is_ok_and(|byte| ALPHABET.contains(&byte));
            if !known || digits.len() == DIGITS {
                return Err(InvalidPassphrase);
            }
            digits.push(character);
        }
        if digits.len() == DIGITS { Ok(Self(digits)) } else { Err(InvalidPassphrase) }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

    use super::*;

    #[test]
    fn what_is_shown_is_what_is_typed() {
        let passphrase = EnrolmentPassphrase::random().unwrap();
        let shown = passphrase.expose();
        assert_eq!(shown.len(), 24);
        for typed in [shown.to_string(), shown.to_lowercase(), shown.replace('-', ""), shown.replace('-', " ")] {
            assert_eq!(typed.parse::<EnrolmentPassphrase>().unwrap().bytes(), passphrase.bytes());
        }
        let typed: EnrolmentPassphrase = "OIL0-0000-0000-0000-0000".parse().unwrap();
        assert_eq!(typed.bytes(), b"01100000000000000000");
    }

    #[test]
    fn other_texts_are_refused() {
        for text in
            ["", "4XQ2", "UUUU-0000-0000-0000-0000", "0000-0000-0000-0000-0000-0", "\u{ff21}000-0000-0000-0000-0000"]
        {
            assert!(text.parse::<EnrolmentPassphrase>().is_err(), "{text:?} was taken");
        }
    }
}
