//! Files of keys that arrive part by part, each twice: first to be checked, then to be taken.
//!
//! ```text
//!  check  every part in order: hashed, opened, held against what is known        nothing is changed
//!         the last one: the hash of all is the one that the quorum approved, and so is the number of keys
//!  take   every part, which must be one of those                                 each volume a commit; with the last part the request ends
//! ```
//! The quorum approves a whole file by its SHA-256, and a node has room for a part of it. So nothing is taken before
//! the hash is whole, and what is taken is what was hashed: of each part a digest is kept. It is kept in memory: where
//! another node is asked, or this one was started again, it begins once more, and keys that are there already are
//! known.

use std::collections::{BTreeSet, VecDeque};
use std::sync::{Mutex, MutexGuard, PoisonError};

use aws_lc_rs::digest::{Context, SHA256, digest};
use capstan_keys::api::KeyTaken;
use capstan_service::problem::Refusal;

use crate::authority::PendingId;

/// Files that are arriving at a time; the oldest makes room.
const FILES_MAX: usize = 8;

/// The files that are arriving at this node.
#[derive(Default)]
pub(in super::super) struct Arriving(Mutex<VecDeque<File>>);

struct File {
    request: PendingId,
    hash: Context,
    len: u64,
    keys: usize,
    parts: Vec<Part>,
    /// Whether all of it is there, and is what was approved.
    is_approved: bool,
    taken: BTreeSet<u64>,
    /// What was said to the part with which the request was carried out.
    last_answer: Option<(u64, Vec<KeyTaken>)>,
}

#[derive(PartialEq, Eq)]
struct Part {
    at: u64,
    sha256: [u8; 32],
}

impl Part {
    fn of(at: u64, bytes: &[u8]) -> Self {
        let mut sha256 = [0; 32];
        sha256.copy_from_slice(digest(&SHA256, bytes).as_ref());
        Self { at, sha256 }
    }
}

/// What was approved.
pub(super) struct Approved<'a> {
    pub(super) keys: usize,
    pub(super) sha256: &'a str,
}

impl Arriving {
    /// A part was opened, and contradicts nothing. With the last one the file must be the one that was approved.
    pub(super) fn checked(
        &self,
        request: PendingId,
        (at, bytes): (u64, &[u8]),
        keys: usize,
        last: Option<&Approved<'_>>,
    ) -> Result<(), Refusal> {
        let (part, mut files) = (Part::of(at, bytes), self.lock());
        if at == 0
            && !files.iter().any(|file| file.request == request && file.parts.len() == 1 && file.parts[0] == part)
        {
            files.retain(|file| file.request != request);
            files.truncate(FILES_MAX - 1);
            files.push_front(File {
                request,
                hash: Context::new(&SHA256),
                len: 0,
                keys: 0,
                parts: Vec::new(),
                is_approved: false,
                taken: BTreeSet::new(),
                last_answer: None,
            });
        }
        let file = files.iter_mut().find(|file| file.request == request).ok_or_else(unknown)?;
        // Asked again: its answer was lost.
        if !file.parts.contains(&part) {
            if file.len != at || file.is_approved {
                return Err(unknown());
            }
            file.hash.update(bytes);
            file.len += bytes.len() as u64;
            file.keys += keys;
            file.parts.push(part);
        }
        let Some(&Approved { keys, sha256 }) = last else { return Ok(()) };
        let found: String = file.hash.clone().finish().as_ref().iter().map(|byte| format!("{byte:02x}")).collect();
        if found != sha256 {
            return Err(Refusal::conflict(format!("The quorum approved another file, whose SHA-256 is {sha256}.")));
        }
        if file.keys != keys {
            return Err(Refusal::conflict(format!(
                "The quorum approved {keys} keys, and the file has {}: ask again, with `keyd keys import FILE`.",
                file.keys
            )));
        }
        file.is_approved = true;
        Ok(())
    }

    /// Whether a part may be taken: it is of a file that was checked as a whole.
    pub(super) fn may_be_taken(&self, request: PendingId, at: u64, bytes: &[u8]) -> Result<(), Refusal> {
        let (part, files) = (Part::of(at, bytes), self.lock());
        let file = files.iter().find(|file| file.request == request && file.is_approved);
        file.filter(|file| file.parts.contains(&part)).map(drop).ok_or_else(unknown)
    }

    /// A part was taken. Says whether all are.
    pub(super) fn taken(&self, request: PendingId, at: u64) -> bool {
        let mut files = self.lock();
        let Some(file) = files.iter_mut().find(|file| file.request == request) else { return false };
        file.taken.insert(at);
        file.taken.len() == file.parts.len()
    }

    /// The request was carried out with a part. Should that be asked again, it is only answered again.
    pub(super) fn carried_out(&self, request: PendingId, at: u64, answer: &[KeyTaken]) {
        if let Some(file) = self.lock().iter_mut().find(|file| file.request == request) {
            file.last_answer = Some((at, answer.to_vec()));
        }
    }

    /// What was said to that.
    pub(super) fn answered(&self, request: PendingId, at: u64) -> Option<Vec<KeyTaken>> {
        let files = self.lock();
        let file = files.iter().find(|file| file.request == request)?;
        file.last_answer.as_ref().filter(|(last, _)| *last == at).map(|(_, answer)| answer.clone())
    }

    fn lock(&self) -> MutexGuard<'_, VecDeque<File>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn unknown() -> Refusal {
    Refusal::conflict(
        "This node has not seen the file from its beginning, or saw another: say the same again, which is safe.",
    )
}
