//! A record's body as bytes.

use capstan_format::{Cursor, FormatError};

use crate::ledger::{PATH_LEN_MAX, RECORD_LEN_MAX};

/// What stands before the sealed bytes: two kinds and the path with its length.
pub(super) const BODY_LEN_MAX: usize = 4 + PATH_LEN_MAX + RECORD_LEN_MAX;
const WHAT: &str = "record of a journal";

/// What is noted: a record that is to be in the ledger, sealed as it is to lie there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JournalEntry {
    /// What it is to whoever reconciles it; the caller's own numbers.
    pub kind: u8,
    /// Where it is to lie.
    pub path: String,
    /// What is to lie there.
    pub sealed: Vec<u8>,
}

impl JournalEntry {
    pub(super) fn is_too_large(&self) -> bool {
        self.path.len() > PATH_LEN_MAX || self.sealed.len() > RECORD_LEN_MAX
    }
}

/// An entry with its place in the journal.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PlacedEntry {
    /// The number of its record, from 1.
    pub sequence: u64,
    /// The entry.
    pub entry: JournalEntry,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Body {
    Entry(JournalEntry),
    Reconciled { up_to: u64 },
}

impl Body {
    pub(super) fn encode(&self) -> Vec<u8> {
        match self {
            Self::Entry(JournalEntry { kind, path, sealed }) => {
                let mut bytes = vec![1, *kind];
                bytes.extend_from_slice(&(path.len() as u16).to_le_bytes());
                bytes.extend_from_slice(path.as_bytes());
                bytes.extend_from_slice(sealed);
                bytes
            }
            Self::Reconciled { up_to } => [&[2][..], &up_to.to_le_bytes()].concat(),
        }
    }

    pub(super) fn decode(bytes: &[u8]) -> Result<Self, FormatError> {
        let mut fields = Cursor::new(WHAT, bytes);
        match fields.u8()? {
            1 => {
                let kind = fields.u8()?;
                let len = usize::from(u16::from_le_bytes(fields.array()?));
                let path = str::from_utf8(fields.take(len)?).map_err(|_| fields.field("path", &"not UTF-8"))?;
                let sealed = bytes.get(4 + len..).unwrap_or_default();
                let entry = JournalEntry { kind, path: path.to_owned(), sealed: sealed.to_vec() };
                if entry.is_too_large() {
                    return Err(fields.field("length", &bytes.len()));
                }
                Ok(Self::Entry(entry))
            }
            2 => {
                let up_to = u64::from_le_bytes(fields.array()?);
                fields.end()?;
                Ok(Self::Reconciled { up_to })
            }
            other => Err(fields.field("kind", &other)),
        }
    }
}
