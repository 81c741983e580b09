//! A request as bytes, and the digest of what is asked for.
//!
//! ```text
//! version 1 (1) | what was asked for: id (16) | act (2) | requested by (name) | requested, expires (8 each) | approvals needed (1) |
//! arguments | number of decisions (1), to 32 | of each: who (name) | verdict (1): 1 approved, 2 rejected | when (8) | digest (32) |
//! end (1): 0 none, 1 withdrawn and when (8), 2 executed, by whom (name) and when (8)
//! ```
//! The digest is SHA-256 of `capstan quorum request v1`, a byte 0, and what was asked for.

use aws_lc_rs::digest::{SHA256, digest};
use capstan_format::{Cursor, FormatError};

use super::super::bytes::{name, put_name, version};
use super::super::{Act, Arguments};
use super::{DECISIONS_MAX, Decision, End, Pending, PendingId, RequestDigest, Vote};

const WHAT: &str = "pending request";
const VERSION: u8 = 1;

impl Pending {
    /// What an approval has to name.
    pub fn digest(&self) -> RequestDigest {
        let mut bytes = b"capstan quorum request v1\0".to_vec();
        self.put_request(&mut bytes);
        let mut sum = [0; 32];
        sum.copy_from_slice(digest(&SHA256, &bytes).as_ref());
        RequestDigest(sum)
    }

    fn put_request(&self, bytes: &mut Vec<u8>) {
        bytes.extend_from_slice(&self.id.0);
        bytes.extend_from_slice(&self.act.code().to_le_bytes());
        put_name(bytes, &self.requested_by);
        bytes.extend_from_slice(&self.requested_ns.to_le_bytes());
        bytes.extend_from_slice(&self.expires_ns.to_le_bytes());
        bytes.push(self.needed);
        self.arguments.encode(bytes);
    }

    /// The record as bytes.
    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = vec![VERSION];
        self.put_request(&mut bytes);
        bytes.push(self.decisions.len() as u8);
        for decision in &self.decisions {
            put_name(&mut bytes, &decision.who);
            bytes.push(match decision.vote {
                Vote::Approved => 1,
                Vote::Rejected => 2,
            });
            bytes.extend_from_slice(&decision.at_ns.to_le_bytes());
            bytes.extend_from_slice(&decision.digest.0);
        }
        match &self.end {
            None => bytes.push(0),
            Some(End::Withdrawn { at_ns }) => {
                bytes.push(1);
                bytes.extend_from_slice(&at_ns.to_le_bytes());
            }
            Some(End::Executed { by, at_ns }) => {
                bytes.push(2);
                put_name(&mut bytes, by);
                bytes.extend_from_slice(&at_ns.to_le_bytes());
            }
        }
        bytes
    }

    /// The record of these bytes.
    pub fn decode(bytes: &[u8]) -> Result<Self, FormatError> {
        let mut fields = Cursor::new(WHAT, bytes);
        version(&mut fields, WHAT, VERSION)?;
        let id = PendingId(fields.array()?);
        let code = u16::from_le_bytes(fields.array()?);
        let act = Act::from_code(code).ok_or_else(|| fields.field("act", &code))?;
        let requested_by = name(&mut fields)?;
        let (requested_ns, expires_ns, needed) = (fields.i64()?, fields.i64()?, fields.u8()?);
        if needed == 0 {
            return Err(fields.field("approvals needed", &needed));
        }
        let arguments = Arguments::decode(&mut fields)?;
        let mut decisions: Vec<Decision> = Vec::new();
        for _ in 0..fields.u8()? {
            let who = name(&mut fields)?;
            if decisions.iter().any(|decision| decision.who == who) || decisions.len() == DECISIONS_MAX {
                return Err(fields.field("decision", &"one person's twice, or too many"));
            }
            let vote = match fields.u8()? {
                1 => Vote::Approved,
                2 => Vote::Rejected,
                other => return Err(fields.field("verdict", &other)),
            };
            decisions.push(Decision { who, vote, at_ns: fields.i64()?, digest: RequestDigest(fields.array()?) });
        }
        let end = match fields.u8()? {
            0 => None,
            1 => Some(End::Withdrawn { at_ns: fields.i64()? }),
            2 => Some(End::Executed { by: name(&mut fields)?, at_ns: fields.i64()? }),
            other => return Err(fields.field("end", &other)),
        };
        fields.end()?;
        Ok(Self { id, act, arguments, requested_by, requested_ns, expires_ns, needed, decisions, end })
    }
}
