//! Where a chain of records stands.

use std::fmt;
use std::str::FromStr;

use aws_lc_rs::digest::{SHA256, digest};

/// SHA-256 of a line, its newline included.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct LineHash(pub [u8; 32]);

impl LineHash {
    pub(super) fn of(line: &[u8]) -> Self {
        let mut hash = [0; 32];
        hash.copy_from_slice(digest(&SHA256, line).as_ref());
        Self(hash)
    }
}

impl fmt::Display for LineHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl FromStr for LineHash {
    type Err = NoHash;

    fn from_str(text: &str) -> Result<Self, NoHash> {
        let digit = |digit: u8| match digit {
            b'0'..=b'9' => Ok(digit - b'0'),
            b'a'..=b'f' => Ok(digit - b'a' + 10),
            _ => Err(NoHash),
        };
        let mut hash = [0; 32];
        let (pairs, rest) = text.as_bytes().as_chunks::<2>();
        if pairs.len() != hash.len() || !rest.is_empty() {
            return Err(NoHash);
        }
        for (byte, [high, low]) in hash.iter_mut().zip(pairs) {
            *byte = digit(*high)? << 4 | digit(*low)?;
        }
        Ok(Self(hash))
    }
}

/// A text is no hash.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("no SHA-256: it has 64 digits, 0 to 9 and a to f")]
pub struct NoHash;

/// The last record of a chain: a log that holds this line holds all before it, unchanged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LogHead {
    /// Its number; 0 before the first.
    pub sequence: u64,
    /// The hash of its line; zeros before the first.
    pub hash: LineHash,
}

impl LogHead {
    /// The head of an empty log.
    pub(super) const NONE: Self = Self { sequence: 0, hash: LineHash([0; 32]) };
}
