//! Anchors: where a node's log stood, kept by the others.

use capstan_format::{Cursor, FormatError};
use capstan_keys::Name;
use serde::{Deserialize, Serialize};
use thiserror::Error;

use super::{LineHash, LogHead};

const WHAT: &str = "anchor of an audit log";
const VERSION: u8 = 1;

/// Where a node's log stood at a time; the record `anchor/<kma>` of the ledger. The whole chain up to it is bound by
/// it.
///
/// ```text
/// version 1 (1) | length of the node's name (1), name | sequence (8) | SHA-256 of the line (32) | time (8)
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Anchor {
    /// The node whose log it is.
    pub kma: Name,
    /// Where the log stood.
    pub head: LogHead,
    /// When that was, in nanoseconds since 1970.
    pub at_ns: i64,
}

/// An anchor that would take another back.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error(
    "the audit log of {kma} stands at record {found}, and was seen at record {known} before: it was cut off, or a node was brought \
     back from an old copy. Keep its files, and verify them against the anchor in the ledger"
)]
pub struct AnchorGoesBack {
    /// Whose log.
    pub kma: Name,
    /// What the ledger knows.
    pub known: u64,
    /// What was to take its place.
    pub found: u64,
}

#[derive(Serialize, Deserialize)]
struct Line {
    kma: String,
    sequence: u64,
    hash: String,
    at_ns: i64,
}

impl Anchor {
    /// Whether this one may take the place of an earlier one: it goes forward, or says the same again.
    ///
    /// # Errors
    /// It goes back, or says something else of the same record.
    pub fn check_follows(&self, earlier: &Self) -> Result<(), AnchorGoesBack> {
        if self.head.sequence > earlier.head.sequence || self.head == earlier.head {
            return Ok(());
        }
        Err(AnchorGoesBack { kma: self.kma.clone(), known: earlier.head.sequence, found: self.head.sequence })
    }

    /// The record as bytes.
    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = vec![VERSION, self.kma.as_str().len() as u8];
        bytes.extend_from_slice(self.kma.as_str().as_bytes());
        bytes.extend_from_slice(&self.head.sequence.to_le_bytes());
        bytes.extend_from_slice(&self.head.hash.0);
        bytes.extend_from_slice(&self.at_ns.to_le_bytes());
        bytes
    }

    /// The record of these bytes.
    ///
    /// # Errors
    /// The bytes are no anchor, or of a later version.
    pub fn decode(bytes: &[u8]) -> Result<Self, FormatError> {
        let mut fields = Cursor::new(WHAT, bytes);
        match fields.u8()? {
            VERSION => {}
            found => {
                return Err(FormatError::Version { what: WHAT, found: found.into(), supported: VERSION.into() });
            }
        }
        let len = usize::from(fields.u8()?);
        let kma = str::from_utf8(fields.take(len)?).ok().and_then(|text| text.parse().ok());
        let kma = kma.ok_or_else(|| fields.field("name", &"no name of a node"))?;
        let head = LogHead { sequence: u64::from_le_bytes(fields.array()?), hash: LineHash(fields.array()?) };
        let at_ns = fields.i64()?;
        fields.end()?;
        Ok(Self { kma, head, at_ns })
    }

    /// As a line of JSON, for a check away from the cluster.
    pub fn to_json(&self) -> String {
        let Self { kma, head, at_ns } = self;
        let line = Line { kma: kma.to_string(), sequence: head.sequence, hash: head.hash.to_string(), at_ns: *at_ns };
        // Strings and numbers always have a JSON.
        serde_json::to_string(&line).unwrap_or_default()
    }

    /// What [`Anchor::to_json`] wrote; none if it is anything else.
    pub fn from_json(line: &str) -> Option<Self> {
        let line: Line = serde_json::from_str(line).ok()?;
        let head = LogHead { sequence: line.sequence, hash: line.hash.parse().ok()? };
        Some(Self { kma: line.kma.parse().ok()?, head, at_ns: line.at_ns })
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

    use super::*;

    fn anchor(sequence: u64, hash: u8) -> Anchor {
        let head = LogHead { sequence, hash: LineHash([hash; 32]) };
        Anchor { kma: "kma1".parse().unwrap(), head, at_ns: 5 }
    }

    #[test]
    fn bytes_are_as_documented() {
        let bytes = [b"\x01\x04kma1\x09\0\0\0\0\0\0\0", &[0xab; 32][..], b"\x05\0\0\0\0\0\0\0"].concat();
        assert_eq!(anchor(9, 0xab).encode(), bytes);
        assert_eq!(Anchor::decode(&bytes).unwrap(), anchor(9, 0xab));
        for len in 0..bytes.len() {
            assert!(Anchor::decode(&bytes[..len]).is_err());
        }
        assert!(Anchor::decode(&[&bytes[..], b"\0"].concat()).is_err());
        assert_eq!(Anchor::from_json(&anchor(9, 0xab).to_json()), Some(anchor(9, 0xab)));
        assert_eq!(Anchor::from_json(&anchor(9, 0xab).to_json().replace("ab", "xy")), None);
    }

    #[test]
    fn an_anchor_only_goes_forward() {
        assert_eq!(anchor(9, 1).check_follows(&anchor(8, 1)), Ok(()));
        assert_eq!(anchor(9, 1).check_follows(&anchor(9, 1)), Ok(()));
        for other in [anchor(8, 1), anchor(9, 2)] {
            assert!(other.check_follows(&anchor(9, 1)).is_err());
        }
    }
}
