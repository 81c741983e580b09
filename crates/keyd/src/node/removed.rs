//! Nodes that were removed: what one that is removed does no more, and what the others take in of what it left.
//!
//! ```text
//!  kma/X gone, removed/X there                              (one transaction, by quorum)
//!    X, where it hears of that        answers nobody; says its own journal to the ledger once more, where it can
//!    each holder of X's journal       says what its copy holds: removed-journal/X/HOLDER
//!    any node                         pool/X/TAG --> recovered/TAG: kept to read with, never given out to write with
//! ```
//! **Heard by refusal.** A node that is cut off from the ledger is told by the nodes that it still reaches, which
//! refuse its certificate. It believes that as long as the majority does not tell it otherwise: a node that stops for
//! nothing costs a detour, one that goes on gives keys out that nobody will ever hear of.
//!
//! **Late reports.** A copy may be said weeks after it was made. Keys are taken in whenever they come, since data lie
//! under them. What was reported of a volume is void once the volume was given another key since: else the end of an
//! older life would end the newer one.

use std::sync::atomic::Ordering;

use capstan_format::KeyTag;
use capstan_keys::Name;
use serde::{Deserialize, Serialize};

use super::{MajorityContact, Node, NodeError, Noted, Reconciled};
use crate::desk::{Asked, Decided, Operation};
use crate::path::Path;
use crate::record::{PoolKey, RemovedKma};
use crate::state::{LedgerState, View};

const JOURNALS: &str = "removed-journal/";
/// Keys of a pool that are set aside in one commit, of two changes each.
const SET_ASIDE_MAX: usize = 40;
/// Entries that do not fit any more are named up to here, and counted beyond.
const VOID_NAMED_MAX: usize = 20;

/// What a holder has said to the ledger of the journal of a node that was removed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct JournalSaid {
    /// The number of the copy's last record.
    pub sequence: u64,
    /// Its MAC, in hexadecimal: another copy of the same length is another journal.
    pub end: String,
    /// Entries that the ledger has.
    pub taken: usize,
    /// Entries that no longer fit, and why; the first of them.
    pub void: Vec<String>,
}

impl JournalSaid {
    /// What came of a copy.
    pub fn new(sequence: u64, end: String, mut reconciled: Reconciled) -> Self {
        reconciled.void.truncate(VOID_NAMED_MAX);
        Self { sequence, end, taken: reconciled.taken, void: reconciled.void }
    }
}

/// What the holders have said of a removed node's journal, by holder.
pub fn journals_said<'a>(state: &'a LedgerState, kma: &Name) -> Vec<(&'a str, JournalSaid)> {
    let prefix = format!("{JOURNALS}{kma}/");
    let all = state.others(JOURNALS);
    all.filter_map(|(path, said)| Some((path.strip_prefix(&prefix)?, serde_json::from_slice(said).ok()?))).collect()
}

/// Why a node takes itself to be removed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Removal {
    /// The ledger says so.
    Recorded(Box<RemovedKma>),
    /// Another node refuses its certificate as revoked.
    Refused,
}

impl Node {
    /// Whether, and why, this node is none of the cluster any more.
    pub fn removal(&self) -> Option<Removal> {
        self.removal_in(&self.memory().state)
    }

    fn removal_in(&self, state: &LedgerState) -> Option<Removal> {
        if let Some(removed) = state.removed(&self.name) {
            return Some(Removal::Recorded(Box::new(removed)));
        }
        let refused = self.turned_away.load(Ordering::SeqCst);
        // The majority knows better than whoever refused it.
        let known = self.standing() == MajorityContact::Current && state.kmas().contains_key(&self.name);
        (refused && !known).then_some(Removal::Refused)
    }

    /// Another node has refused this one's certificate as revoked, or not, as it turned out.
    pub fn refused_by_others(&self, refused: bool) {
        self.turned_away.store(refused, Ordering::SeqCst);
    }

    /// Whether that was so, and the majority, heard now, knows this node as one of the cluster.
    pub fn is_refused_in_vain(&self) -> bool {
        let known = || self.memory().state.kmas().contains_key(&self.name);
        self.turned_away.load(Ordering::SeqCst) && self.standing() == MajorityContact::Current && known()
    }

    /// Nothing is decided or given out by a node that is removed.
    pub(super) fn check_member(&self, state: &LedgerState) -> Result<(), NodeError> {
        match self.removal_in(state) {
            Some(_) => Err(NodeError::Removed { kma: self.name.clone() }),
            None => Ok(()),
        }
    }

    /// Asks the nodes that can be reached whether they still know this one, where it is cut off: they refuse it if not.
    pub async fn ask_whether_removed(&self) {
        let Some(peers) = &self.peers else { return };
        let known = self.journal.lock().await.sequence();
        peers.give_back(known).await;
    }

    /// Says to the ledger what a copy of a removed node's journal holds. Entries that it has already change nothing.
    pub async fn reconcile_copy(&self, kma: &Name, noted: &[Noted]) -> Result<Reconciled, NodeError> {
        let mut reconciled = Reconciled::default();
        for Noted { number, asked } in noted {
            for asked in asked.iter().filter(|asked| asked.kma == *kma) {
                self.say_late(*number, asked, &mut reconciled).await?;
            }
        }
        self.wait_for_disk().await?;
        Ok(reconciled)
    }

    /// Says one thing of a removed node's journal, unless the volume was given another key since.
    pub(super) async fn say_late(
        &self,
        number: u64,
        asked: &Asked,
        reconciled: &mut Reconciled,
    ) -> Result<(), NodeError> {
        let since = begun_anew(&self.memory().state, &asked.operation, asked.now_ns);
        match since {
            Some(since) => reconciled.void.push(since),
            None => self.say_entry(number, asked, reconciled).await?,
        }
        Ok(())
    }

    /// Where this node's own journal ends, if nothing is left in it of what it noted.
    pub async fn wiped_journal(&self) -> Result<Option<(u64, String)>, NodeError> {
        Ok(self.journal.lock().await.wiped()?)
    }

    /// What this node has said of a removed node's journal.
    pub fn journal_said(&self, kma: &Name) -> Option<JournalSaid> {
        let memory = self.memory();
        let said = memory.state.other(&format!("{JOURNALS}{kma}/{}", self.name))?;
        serde_json::from_slice(said).ok()
    }

    /// Puts on record what this node has said of one.
    pub async fn put_journal_said(&self, kma: &Name, said: &JournalSaid) -> Result<(), NodeError> {
        let path = Path::Other(format!("{JOURNALS}{kma}/{}", self.name));
        let bytes = serde_json::to_vec(said).unwrap_or_default();
        self.change(|_| Ok::<_, NodeError>(Decided::records(vec![(path.clone(), bytes.clone())], Vec::new()))).await
    }

    /// Sets some of the keys aside that removed nodes have drawn and not issued. Says whether there are more.
    pub async fn set_pools_aside(&self) -> Result<bool, NodeError> {
        if self.standing() != MajorityContact::Current || self.removal().is_some() {
            return Ok(false);
        }
        let left = |state: &LedgerState| -> Vec<(Name, KeyTag, PoolKey)> {
            let pools = state.removed_kmas().flat_map(|kma| {
                state.pool(&kma).map(|(tag, key, _)| (kma.clone(), *tag, key.clone())).collect::<Vec<_>>()
            });
            pools.take(SET_ASIDE_MAX).collect()
        };
        let count = left(&self.memory().state).len();
        if count > 0 {
            self.change(|view: View<'_>| {
                let mut decided = Decided::records(Vec::new(), Vec::new());
                for (kma, tag, key) in left(view.ledger()) {
                    // One that was issued after all has its record; one that is issued meanwhile leaves the pool, which
                    // is a conflict.
                    if view.ledger().key(&tag).is_none() {
                        decided.puts.push((Path::recovered(&tag), key.encode()));
                    }
                    decided.removes.push(Path::Pool { kma, tag });
                }
                Ok::<_, NodeError>(decided)
            })
            .await?;
        }
        Ok(count == SET_ASIDE_MAX)
    }
}

/// Why a report of a volume is void: the volume was given another key after it.
fn begun_anew(state: &LedgerState, operation: &Operation, reported_ns: i64) -> Option<String> {
    let (Operation::Activate { volser, .. } | Operation::End { volser, .. }) = operation else { return None };
    let keys = &state.realm().unit(volser)?.keys;
    let newer = keys.iter().find(|issued| issued.issued_ns > reported_ns && Some(&issued.tag) != operation.tag())?;
    Some(format!("volume {volser} was given key {} after what was reported of it", newer.tag))
}
