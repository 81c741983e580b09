//! Records as lines, each of which names the hash of the one before.

use std::collections::BTreeMap;
use std::io::{self, BufRead, Read};

use capstan_keys::Name;
use serde::{Deserialize, Serialize};

use super::{AuditEntry, AuditError, AuditOutcome, LineHash, LogHead};
use crate::time::rfc3339;

/// Longest line: names and texts of the program, some dozens of them.
pub(super) const LINE_LEN_MAX: usize = 16 << 10;

impl LogHead {
    /// The next line, and the head that it makes.
    pub(super) fn next_line(&self, kma: &Name, entry: &AuditEntry, at_ns: i64) -> Result<(Vec<u8>, Self), AuditError> {
        let (result, why) = match &entry.outcome {
            AuditOutcome::Begun => ("begun", None),
            AuditOutcome::Done => ("done", None),
            AuditOutcome::Refused { why } => ("refused", Some(why)),
            AuditOutcome::Failed { why } => ("failed", Some(why)),
        };
        let record = Record {
            sequence: self.sequence + 1,
            time: rfc3339(at_ns),
            kma: kma.as_str(),
            who: entry.who.to_string(),
            from: entry.from.to_string(),
            act: entry.action.name(),
            object: entry.object.as_ref().map(|(kind, name)| format!("{kind}/{}", name.as_str())),
            result,
            why: why.map(super::AuditFact::as_str),
            facts: entry.facts.iter().map(|(name, fact)| (*name, fact.as_str())).collect(),
            before: self.hash.to_string(),
        };
        // Strings and maps of strings always have a JSON.
        let mut line = serde_json::to_vec(&record).unwrap_or_default();
        line.push(b'\n');
        if line.len() > LINE_LEN_MAX {
            return Err(AuditError::TooLong { len: line.len() });
        }
        let head = Self { sequence: record.sequence, hash: LineHash::of(&line) };
        Ok((line, head))
    }
}

/// A line. The order of the fields is the order in the file, and `before` stays last.
#[derive(Serialize)]
struct Record<'a> {
    sequence: u64,
    time: String,
    kma: &'a str,
    who: String,
    from: String,
    act: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    object: Option<String>,
    result: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    why: Option<&'a str>,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    facts: BTreeMap<&'a str, &'a str>,
    before: String,
}

/// What a check looks at in a line.
#[derive(Debug, Deserialize)]
pub(super) struct Link {
    pub(super) sequence: u64,
    pub(super) kma: String,
    pub(super) act: String,
    #[serde(default)]
    pub(super) object: String,
    #[serde(default)]
    pub(super) facts: BTreeMap<String, String>,
    pub(super) before: String,
}

impl Link {
    /// The link of a line, if it is one.
    pub(super) fn read(line: &[u8]) -> Option<Self> {
        serde_json::from_slice(line.strip_suffix(b"\n")?).ok()
    }
}

/// The next line with its newline; without one at the end of a torn file, or where it would be longer than a line is.
/// Empty at the end.
pub(super) fn read_line(file: &mut impl BufRead, line: &mut Vec<u8>) -> io::Result<()> {
    line.clear();
    file.take(LINE_LEN_MAX as u64).read_until(b'\n', line)?;
    Ok(())
}
