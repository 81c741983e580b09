//! How many must approve, and how long a request waits for them.

use capstan_format::{Cursor, FormatError};

use super::bytes::version;

const WHAT: &str = "quorum rule";
const VERSION: u8 = 1;
/// More approvals than that nobody collects.
const NEEDED_MAX: u8 = 16;

/// How many approvals an act by quorum takes, and how long it waits for them; the record `quorum` of the ledger.
///
/// ```text
/// version 1 (1) | approvals needed (1), 1 to 16 | seconds that a request waits (4), at least 1
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct QuorumRule {
    needed: u8,
    waits_seconds: u32,
}

impl Default for QuorumRule {
    /// Two approvals within three days: over a weekend, and not over a holiday.
    fn default() -> Self {
        Self { needed: 2, waits_seconds: 3 * 24 * 3600 }
    }
}

impl QuorumRule {
    /// A rule, if it can work: 1 to 16 approvals, within at least a second.
    pub fn new(needed: u8, waits_seconds: u32) -> Option<Self> {
        ((1..=NEEDED_MAX).contains(&needed) && waits_seconds > 0).then_some(Self { needed, waits_seconds })
    }

    /// Approvals that an act takes, of people who are not its requester.
    pub fn needed(&self) -> u8 {
        self.needed
    }

    /// For how long a request waits for them.
    pub fn waits_seconds(&self) -> u32 {
        self.waits_seconds
    }

    /// When a request of `now_ns` expires.
    pub fn expires_ns(&self, now_ns: i64) -> i64 {
        now_ns.saturating_add(i64::from(self.waits_seconds) * 1_000_000_000)
    }

    /// The record as bytes.
    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = vec![VERSION, self.needed];
        bytes.extend_from_slice(&self.waits_seconds.to_le_bytes());
        bytes
    }

    /// The record of these bytes.
    pub fn decode(bytes: &[u8]) -> Result<Self, FormatError> {
        let mut fields = Cursor::new(WHAT, bytes);
        version(&mut fields, WHAT, VERSION)?;
        let (needed, waits_seconds) = (fields.u8()?, fields.u32()?);
        fields.end()?;
        Self::new(needed, waits_seconds).ok_or_else(|| fields.field("approvals or time", &needed))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

    use super::super::bytes::check_hostile;
    use super::*;

    #[test]
    fn bytes_are_as_documented() {
        let rule = QuorumRule::new(3, 3600).unwrap();
        assert_eq!(rule.encode(), [1, 3, 0x10, 0x0e, 0, 0]);
        check_hostile(&rule, &rule.encode(), QuorumRule::decode);
    }

    #[test]
    fn a_rule_that_cannot_work_is_none() {
        assert_eq!([QuorumRule::new(0, 1), QuorumRule::new(17, 1), QuorumRule::new(2, 0)], [None; 3]);
    }
}
