//! The journal as the node uses it: what was decided cut off, until the ledger has it.
//!
//! An entry of the journal is what was decided at one time, sealed JSON: keys as they were issued, and what was
//! reported of volumes. It is said to the ledger word for word.

use std::sync::Arc;

use capstan_format::Algorithm;
use capstan_keys::{KeyUse, Name};
use futures_util::future::BoxFuture;
use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::desk::{Adopted, Asked, Operation};
use crate::journal::{self, Journal, JournalEntry};
use crate::root::ClusterKeys;
use crate::seal::SealError;

/// The number of our entries among those of a journal.
const KIND: u8 = 1;

/// An entry that the ledger does not have yet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Noted {
    /// Its number in the journal.
    pub number: u64,
    /// What is to be said to the ledger, in order.
    pub asked: Vec<Asked>,
}

/// Why an entry could not be written or read.
#[derive(Debug, Error)]
pub enum NoteError {
    /// Host: its file.
    #[error(transparent)]
    File(#[from] journal::JournalError),
    /// Host: its seal.
    #[error(transparent)]
    Seal(#[from] SealError),
    /// Peer: sealed by this cluster, and not readable.
    #[error("an entry of the journal cannot be read: {what}")]
    Entry {
        /// What is wrong with it.
        what: String,
    },
}

/// Where a node notes what it decides cut off.
pub trait Notebook: Send {
    /// Notes what was decided, all of it or nothing; on the disk when this returns.
    fn note(&mut self, asked: &[Asked]) -> Result<(), NoteError>;

    /// What was noted and not struck out, in order: the first `count_max` of it. Nothing else is read.
    fn pending(&self, count_max: usize) -> Result<Vec<Noted>, NoteError>;

    /// How much there is of that.
    fn len(&self) -> usize;

    /// Whether there is none of it.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The ledger has an entry, and those before it: they are pending no more.
    fn strike_out(&mut self, number: u64) -> Result<(), NoteError>;

    /// Whether nothing of any entry is left on the disk, once this has taken away what it may. Says where the journal
    /// stands then: number and MAC of its last record.
    fn wiped(&mut self) -> Result<Option<(u64, String)>, NoteError>;

    /// What a peer misses whose copy stands there; nothing if it misses nothing.
    fn since(&mut self, after: u64) -> Result<Option<Vec<u8>>, NoteError>;

    /// The number of the last entry.
    fn sequence(&self) -> u64;

    /// Takes back from a peer's copy what this node's disk has lost.
    fn take_back(&mut self, segment: &[u8]) -> Result<(), NoteError>;
}

/// The other nodes, which keep copies of this one's journal.
pub trait Peers: Send + Sync {
    /// Who can be asked at the moment, and where their copies stand.
    fn standing(&self) -> Vec<(Name, u64)>;

    /// What each that can be reached has of this node's own journal behind that entry.
    fn give_back(&self, after: u64) -> BoxFuture<'_, Vec<Vec<u8>>>;

    /// Sends each what it misses, and waits a moment for those that answer. One that does not is left alone for a
    /// while.
    fn copy(&self, segments: Vec<(Name, Vec<u8>)>) -> BoxFuture<'_, ()>;
}

/// The journal of a node, its entries sealed.
pub struct SealedJournal {
    journal: Journal,
    keys: Arc<ClusterKeys>,
    path: String,
    epoch: u32,
}

impl SealedJournal {
    /// Over an open journal.
    pub fn new(journal: Journal, kma: &Name, keys: Arc<ClusterKeys>, epoch: u32) -> Self {
        Self { journal, keys, path: format!("journal/{kma}"), epoch }
    }
}

impl Notebook for SealedJournal {
    fn note(&mut self, asked: &[Asked]) -> Result<(), NoteError> {
        let told: Vec<_> = asked.iter().filter_map(Told::of).collect();
        let plaintext = serde_json::to_vec(&told).map_err(|error| NoteError::Entry { what: error.to_string() })?;
        let change = self.journal.sequence() + 1;
        let sealed = self.keys.sealer().seal(&self.path, self.epoch, change, &plaintext)?;
        self.journal.append(JournalEntry { kind: KIND, path: self.path.clone(), sealed })?;
        Ok(())
    }

    fn pending(&self, count_max: usize) -> Result<Vec<Noted>, NoteError> {
        let pending = self.journal.pending().take(count_max);
        pending.map(|recorded| read_note(&self.keys, &self.path, recorded)).collect()
    }

    fn len(&self) -> usize {
        self.journal.pending().len()
    }

    fn strike_out(&mut self, number: u64) -> Result<(), NoteError> {
        Ok(self.journal.reconciled(number)?)
    }

    fn wiped(&mut self) -> Result<Option<(u64, String)>, NoteError> {
        self.journal.wipe()?;
        Ok(self.journal.is_wiped().then(|| (self.journal.sequence(), self.journal.end())))
    }

    fn since(&mut self, after: u64) -> Result<Option<Vec<u8>>, NoteError> {
        if after >= self.journal.sequence() {
            return Ok(None);
        }
        Ok(Some(self.journal.since(after)?))
    }

    fn sequence(&self) -> u64 {
        self.journal.sequence()
    }

    fn take_back(&mut self, segment: &[u8]) -> Result<(), NoteError> {
        self.journal.take_back(segment)?;
        Ok(())
    }
}

/// What a copy of a node's journal says that was noted and not struck out, in order.
pub fn read_notes<'a>(
    keys: &ClusterKeys,
    kma: &Name,
    pending: impl Iterator<Item = &'a journal::PlacedEntry>,
) -> Result<Vec<Noted>, NoteError> {
    let path = format!("journal/{kma}");
    pending.map(|recorded| read_note(keys, &path, recorded)).collect()
}

fn read_note(keys: &ClusterKeys, path: &str, recorded: &journal::PlacedEntry) -> Result<Noted, NoteError> {
    let unreadable = |what: String| NoteError::Entry { what };
    let opened = keys.sealer().open(path, &recorded.entry.sealed)?;
    let told: Vec<Told> = serde_json::from_slice(&opened.plaintext).map_err(|error| unreadable(error.to_string()))?;
    let asked = told.into_iter().map(Told::asked).collect::<Result<_, _>>().map_err(unreadable)?;
    Ok(Noted { number: recorded.sequence, asked })
}

/// What is said of one decision, as it stands in the journal.
#[derive(Serialize, Deserialize)]
struct Told {
    request: String,
    by: Name,
    kma: Name,
    now_ns: i64,
    volume: String,
    what: What,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum What {
    Adopt {
        key: String,
        wrapped: String,
        group: Name,
        algorithm: u8,
        first: Option<String>,
        created_ns: i64,
    },
    Activate {
        key: String,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        serial: Option<String>,
    },
    Carried {
        first: String,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        serial: Option<String>,
    },
    End {
        #[serde(default, skip_serializing_if = "Option::is_none")]
        serial: Option<String>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        last: Option<String>,
    },
}

impl Told {
    /// What a node says of what it decided by itself; nothing of what it cannot decide.
    fn of(asked: &Asked) -> Option<Self> {
        let what = match &asked.operation {
            Operation::Adopt(adopted) => What::Adopt {
                key: adopted.tag.to_string(),
                wrapped: hexadecimal(&adopted.wrapped),
                group: adopted.group.clone(),
                algorithm: adopted.algorithm.code(),
                first: match adopted.issued_for {
                    KeyUse::Append { first } => Some(first.to_string()),
                    KeyUse::Begin | KeyUse::Elsewhere => None,
                },
                created_ns: adopted.created_ns,
            },
            Operation::Activate { tag, serial, .. } => {
                What::Activate { key: tag.to_string(), serial: serial.map(|serial| serial.to_string()) }
            }
            Operation::Carried { first, serial, .. } => {
                What::Carried { first: first.to_string(), serial: serial.map(|serial| serial.to_string()) }
            }
            Operation::End { serial, last, .. } => {
                What::End { serial: serial.map(|serial| serial.to_string()), last: last.map(|last| last.to_string()) }
            }
            Operation::Begin { .. }
            | Operation::Append { .. }
            | Operation::Seen { .. }
            | Operation::Claim { .. }
            | Operation::Confirm { .. }
            | Operation::Revoke { .. }
            | Operation::Compromise { .. }
            | Operation::Destroy { .. }
            | Operation::Import { .. }
            | Operation::PutPolicy { .. }
            | Operation::PutGroup { .. }
            | Operation::PutAgent(_)
            | Operation::ExtendReading { .. } => return None,
        };
        Some(Self {
            request: hexadecimal(&asked.request),
            by: asked.by.clone(),
            kma: asked.kma.clone(),
            now_ns: asked.now_ns,
            volume: asked.operation.volser()?.to_string(),
            what,
        })
    }

    fn asked(self) -> Result<Asked, String> {
        let volser: capstan_format::Volser = parsed(&self.volume)?;
        let operation = match self.what {
            What::Adopt { key, wrapped, group, algorithm, first, created_ns } => {
                let first = first.map(|first| parsed(&first)).transpose()?;
                Operation::Adopt(Box::new(Adopted {
                    volser,
                    tag: parsed(&key)?,
                    wrapped: bytes(&wrapped)?,
                    group,
                    algorithm: Algorithm::from_code(algorithm).ok_or_else(|| format!("cipher {algorithm}"))?,
                    issued_for: first.map_or(KeyUse::Begin, |first| KeyUse::Append { first }),
                    created_ns,
                }))
            }
            What::Activate { key, serial } => {
                let serial = serial.map(|serial| parsed(&serial)).transpose()?;
                Operation::Activate { volser, serial, tag: parsed(&key)? }
            }
            What::Carried { first, serial } => {
                let serial = serial.map(|serial| parsed(&serial)).transpose()?;
                Operation::Carried { volser, serial, first: parsed(&first)? }
            }
            What::End { serial, last } => {
                let serial = serial.map(|serial| parsed(&serial)).transpose()?;
                Operation::End { volser, serial, last: last.map(|last| parsed(&last)).transpose()? }
            }
        };
        let Self { request, by, kma, now_ns, .. } = self;
        Ok(Asked { operation, request: bytes(&request)?, by, kma, now_ns })
    }
}

fn parsed<T: std::str::FromStr<Err: std::fmt::Display>>(text: &str) -> Result<T, String> {
    text.parse().map_err(|error: T::Err| error.to_string())
}

fn hexadecimal(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn bytes<const N: usize>(text: &str) -> Result<[u8; N], String> {
    let mut bytes = [0; N];
    if text.len() != 2 * N || !text.is_ascii() {
        return Err(format!("{text:?} has not {N} bytes"));
    }
    for (place, byte) in bytes.iter_mut().enumerate() {
        *byte = u8::from_str_radix(&text[2 * place..2 * place + 2], 16).map_err(|error| error.to_string())?;
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

    use capstan_format::{KeyTag, MediumSerial, Volser};

    use super::*;

    #[test]
    fn what_is_told_is_what_was_asked() {
        let volser = Volser::new("A00001").unwrap();
        let tag = KeyTag([7; 16]);
        let adopted = Adopted {
            volser: volser.clone(),
            tag,
            wrapped: [9; 40],
            group: Name::default(),
            algorithm: Algorithm::Aes256Ccm,
            issued_for: KeyUse::Append { first: KeyTag([1; 16]) },
            created_ns: 5,
        };
        let operations = [
            Operation::Adopt(Box::new(adopted)),
            Operation::Activate { volser: volser.clone(), serial: None, tag },
            Operation::Activate { volser: volser.clone(), serial: MediumSerial::new("HP 1").ok(), tag },
            Operation::Carried { volser: volser.clone(), serial: MediumSerial::new("HP 1").ok(), first: tag },
            Operation::End { volser: volser.clone(), serial: None, last: Some(tag) },
            Operation::End { volser, serial: MediumSerial::new("HP 1").ok(), last: None },
        ];
        for operation in operations {
            let (by, kma) = ("host".parse().unwrap(), "a".parse().unwrap());
            let asked = Asked { operation, request: [0xab; 16], by, kma, now_ns: -3 };
            let json = serde_json::to_vec(&Told::of(&asked).unwrap()).unwrap();
            assert_eq!(serde_json::from_slice::<Told>(&json).unwrap().asked().unwrap(), asked);
        }
    }
}
