//! A node that is unlocked: it answers what is asked of keys from its own copy of the ledger, and commits what changes.
//!
//! ```text
//!            agents, people                        replica (follows the ledger, on disk first)
//!                 | ask, look_up                       | apply
//!                 v                                    v
//!   +----------- Node: state, what was decided apart --------------+
//!   |  in touch:  decide -> commit -> state -> answer              |--> ledger
//!   |  cut off:   decide -> journal -> apart -> answer             |--> journal
//!   |  in touch again: each entry of the journal decided anew, committed, struck out; meanwhile as if cut off
//!   +--------------------------------------------------------------+
//! ```
//! What is looked at or taken in at a time has a bound ([`LOOKED_AT_ONCE`], [`FILED_AT_ONCE`]): a million keys keep
//! nobody waiting.
//!
//! **Locks.** `journal` before `memory`; `memory` before `reserved`; neither is held across an await. Whoever
//! decides holds `memory` for reading alone; a state that changed meanwhile shows as a conflict of the transaction.

mod alone;
mod ask;
mod doubt;
mod doubts;
mod isolation;
mod load;
mod missing;
mod note;
mod reconcile;
mod removed;
mod slices;
mod tend;
#[cfg(test)]
mod tests;

use std::collections::HashSet;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::time::Duration;

use capstan_format::KeyTag;
use capstan_keys::{KeyError, Name, Period, Secret, VolumeKey};
use capstan_service::clock::WallClock;
use thiserror::Error;
use tokio::sync::watch;

use crate::desk::{self, Answer, DeskError, KeyPool};
use crate::ledger::{Entry, Ledger, LedgerError};
use crate::record::IssuedRecord;
use crate::root::ClusterKeys;
use crate::seal::SealError;
use crate::state::{Apart, LedgerState, StateError, View};

use doubts::{Doubt, Doubts};
use tokio::time::Instant;

pub use doubts::DoubtKind;
pub use isolation::{LastHeard, TooLong};
pub use load::FILED_AT_ONCE;
pub use note::{NoteError, Notebook, Noted, Peers, SealedJournal, read_notes};
pub use reconcile::Reconciled;
pub use removed::{JournalSaid, Removal, journals_said};
pub use slices::LOOKED_AT_ONCE;
pub use tend::Tended;

/// How a node behaves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NodeSettings {
    /// Keys that its pool is filled up to.
    pub pool_keys: usize,
    /// Keys below which somebody should hear of it.
    pub pool_low: usize,
    /// How long it waits for a commit.
    pub commit_patience: Duration,
    /// After how long without a word from the majority it takes itself to be cut off.
    pub alone_after: Duration,
}

impl Default for NodeSettings {
    fn default() -> Self {
        Self {
            pool_keys: 1000,
            pool_low: 200,
            commit_patience: Duration::from_millis(800),
            alone_after: Duration::from_secs(3),
        }
    }
}

/// On what an answer stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MajorityContact {
    /// The ledger's majority was heard a moment ago.
    Current,
    /// The node is cut off, and knows what was so then.
    Alone {
        /// When the majority was heard last, in nanoseconds since 1970; 0 if never.
        since_ns: i64,
    },
}

/// An answer, and on what it stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Answered {
    /// The answer.
    pub answer: Answer,
    /// On what it stands.
    pub standing: MajorityContact,
}

/// Why a node does not answer.
#[derive(Debug, Error)]
pub enum NodeError {
    /// The rules, or the state of the key, or the pool.
    #[error(transparent)]
    Desk(#[from] DeskError),
    /// Peers: it takes the majority, which cannot be reached.
    #[error(
        "this needs the cluster's majority, which this node cannot reach: try another node, or see that the nodes reach each other"
    )]
    NeedsMajority {
        /// What the ledger says.
        #[source]
        source: Option<LedgerError>,
    },
    /// Operator: the ledger has no room, and nothing was changed.
    #[error("{source}")]
    LedgerFull {
        /// What the ledger says, and what to do.
        source: LedgerError,
    },
    /// Peers and policy: the node has been cut off for longer than the policy lets it go on.
    #[error(
        "this node has been cut off from the cluster {why}. That is longer than policy {policy} allows ({limit}). Try \
         another node, or see that the nodes reach each other. A policy that is in use cannot be changed; a compliance \
         officer can make another for new groups (`keyd policies add NAME --isolated-for TIME`)"
    )]
    IsolatedTooLong {
        /// The policy.
        policy: Name,
        /// Its limit.
        limit: Period,
        /// Since when the node is cut off, as far as it knows.
        why: TooLong,
    },
    /// Operator: this node is none of the cluster any more.
    #[error(
        "node {kma} was removed from the cluster and answers nobody: ask another node. See `keyd status`; then stop it, and destroy its disks"
    )]
    Removed {
        /// This node.
        kma: Name,
    },
    /// Peers: others change the same records all the time.
    #[error("the same records were changed by others {tries} times in a row: try again")]
    Contended {
        /// How often it was tried.
        tries: u32,
    },
    /// Host: the journal cannot be written, and nothing is given out that it does not hold.
    #[error("this node is cut off and cannot write its journal, so it gives out nothing")]
    Journal(#[from] NoteError),
    /// Operator: the cluster was restored in a later epoch, and this node was left behind.
    #[error(
        "the cluster was restored in epoch {found} without this node, which is still of epoch {epoch} and gives out \
         nothing any more. Join the cluster again under another name: run `keyd join` in a new state directory, and \
         destroy this one"
    )]
    Superseded {
        /// The node's own.
        epoch: u32,
        /// The cluster's.
        found: u32,
    },
    /// Peer: a record that is not believed.
    #[error(transparent)]
    State(#[from] StateError),
}

impl From<SealError> for NodeError {
    fn from(error: SealError) -> Self {
        Self::Desk(error.into())
    }
}

/// Where new keys come from.
type KeySource = Box<dyn Fn() -> Result<Secret, KeyError> + Send + Sync>;

/// An unlocked node.
pub struct Node {
    name: Name,
    epoch: u32,
    settings: NodeSettings,
    clock: WallClock,
    ledger: Arc<dyn Ledger>,
    keys: Arc<ClusterKeys>,
    memory: RwLock<Memory>,
    journal: tokio::sync::Mutex<Box<dyn Notebook>>,
    draw: KeySource,
    peers: Option<Arc<dyn Peers>>,
    /// Whether its journal is the one that its peers know, as far as they could be asked.
    journal_fit: AtomicBool,
    /// Whether another node has refused its certificate as revoked.
    turned_away: AtomicBool,
    /// Keys of the pool that a decision under way may give out.
    reserved: Mutex<HashSet<KeyTag>>,
    progress: watch::Sender<LedgerProgress>,
}

#[derive(Default)]
struct Memory {
    state: LedgerState,
    apart: Apart,
    /// Commits that a verified backup holds.
    backed_up: i64,
    /// The last commit of this node's own that was taken in, which its disk need not hold yet.
    own_commit: i64,
    /// A later epoch that was met: the cluster has gone on without this node.
    superseded: Option<u32>,
    /// What is not believed, and why.
    doubts: Doubts,
}

/// How far a node knows the ledger.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LedgerProgress {
    /// The last commit that its own disk holds.
    pub applied: i64,
    /// When the majority was heard last, by a node that follows its ledger.
    pub heard: Option<Instant>,
    /// The same, kept over starts, and of a node that follows its ledger no more.
    pub last_heard: LastHeard,
}

impl Node {
    /// A node with an empty copy: [`Node::load`] fills it.
    pub fn new(
        name: Name,
        epoch: u32,
        ledger: Arc<dyn Ledger>,
        keys: Arc<ClusterKeys>,
        journal: Box<dyn Notebook>,
        clock: WallClock,
        settings: NodeSettings,
    ) -> Self {
        Self {
            name,
            epoch,
            settings,
            clock,
            ledger,
            keys,
            memory: RwLock::default(),
            journal: tokio::sync::Mutex::new(journal),
            draw: Box::new(Secret::random),
            peers: None,
            journal_fit: AtomicBool::new(true),
            turned_away: AtomicBool::new(false),
            reserved: Mutex::default(),
            progress: watch::Sender::new(LedgerProgress {
                applied: 0,
                heard: None,
                last_heard: LastHeard::unknown(Instant::now()),
            }),
        }
    }

    /// The same, with peers that keep copies of its journal.
    pub fn with_peers(self, peers: Arc<dyn Peers>) -> Self {
        Self { peers: Some(peers), journal_fit: AtomicBool::new(false), ..self }
    }

    /// The same, with keys from elsewhere than the random generator: for simulations, whose keys protect nothing.
    pub fn drawing_from(self, draw: impl Fn() -> Result<Secret, KeyError> + Send + Sync + 'static) -> Self {
        Self { draw: Box::new(draw), ..self }
    }

    /// Its name.
    pub fn name(&self) -> &Name {
        &self.name
    }

    /// The epoch of the cluster that it is of.
    pub fn epoch(&self) -> u32 {
        self.epoch
    }

    /// The keys it works with.
    pub fn keys(&self) -> &Arc<ClusterKeys> {
        &self.keys
    }

    /// How far it knows the ledger, as it changes.
    pub fn progress(&self) -> watch::Receiver<LedgerProgress> {
        self.progress.subscribe()
    }

    /// Looks at records of a ledger that is not followed: whether the cluster has gone on without this node.
    pub fn meet(&self, entries: &[Entry]) {
        let mut memory = self.memory_mut();
        for entry in entries {
            let Ok(opened) = self.keys.sealer().open(&entry.path, &entry.sealed) else { continue };
            if opened.epoch > self.epoch {
                memory.superseded = memory.superseded.max(Some(opened.epoch));
                let said = NodeError::Superseded { epoch: self.epoch, found: opened.epoch };
                memory.doubt(DoubtKind::Superseded.that(said.to_string()));
            }
        }
    }

    /// Whether it is still a member of the cluster as it is: in a later epoch nothing of this one is given out.
    pub fn check_epoch(&self) -> Result<(), NodeError> {
        match self.memory().superseded {
            Some(found) => Err(NodeError::Superseded { epoch: self.epoch, found }),
            None => Ok(()),
        }
    }

    /// The ledger is not to be followed any more: from here on it is as if it could not be reached.
    pub fn lose_touch(&self) {
        self.progress.send_modify(|progress| progress.heard = None);
    }

    /// The newest verified backup that is kept holds everything up to that commit; 0 where there is none (any more).
    pub fn backed_up(&self, revision: i64) {
        self.memory_mut().backed_up = revision;
    }

    /// A key that was issued, out of its record.
    pub fn open(&self, record: &IssuedRecord) -> Result<VolumeKey, NodeError> {
        Ok(desk::open(self.memory().view(), &self.keys, record)?)
    }

    /// Looks at what the node knows.
    pub fn view<T>(&self, look: impl FnOnce(View<'_>) -> T) -> T {
        look(self.memory().view())
    }

    /// Its pool.
    pub fn pool(&self) -> KeyPool {
        let memory = self.memory();
        desk::pool_of(memory.view(), &self.name, memory.backed_up)
    }

    /// Entries of its journal that the ledger does not have yet.
    pub async fn journal_pending(&self) -> Result<usize, NodeError> {
        Ok(self.journal.lock().await.len())
    }

    /// What it does not believe, and why; of very many of a kind the first, the last, and how many are left out.
    pub fn doubts(&self) -> Vec<String> {
        self.memory().doubts.said()
    }

    /// How many different ones there were, up to a bound.
    pub fn doubt_count(&self) -> usize {
        self.memory().doubts.count()
    }

    /// Whether it is in touch with the majority.
    pub fn standing(&self) -> MajorityContact {
        let LedgerProgress { heard, last_heard, .. } = *self.progress.borrow();
        match heard {
            Some(heard) if heard.elapsed() <= self.settings.alone_after => MajorityContact::Current,
            _ => MajorityContact::Alone { since_ns: last_heard.since_ns() },
        }
    }

    /// The settings it runs with.
    pub fn settings(&self) -> NodeSettings {
        self.settings
    }

    /// The time by its clock.
    pub fn now_ns(&self) -> i64 {
        (self.clock)()
    }

    /// Notes for people what it does not believe.
    pub fn doubt(&self, kind: DoubtKind, words: String) {
        self.memory_mut().doubt(kind.that(words));
    }

    /// What was doubted of a kind is believed again.
    pub fn believe(&self, kind: DoubtKind) {
        self.memory_mut().doubts.forget(kind);
    }

    fn memory(&self) -> RwLockReadGuard<'_, Memory> {
        self.memory.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn memory_mut(&self) -> RwLockWriteGuard<'_, Memory> {
        self.memory.write().unwrap_or_else(PoisonError::into_inner)
    }

    fn reserved(&self) -> MutexGuard<'_, HashSet<KeyTag>> {
        self.reserved.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Memory {
    fn doubt(&mut self, doubt: Doubt) {
        if let Some(doubt) = self.doubts.take(doubt) {
            tracing::error!(doubt, "a record of the ledger is not believed");
        }
    }

    fn doubt_all(&mut self, doubts: Doubts) {
        for doubt in self.doubts.join(doubts) {
            tracing::error!(doubt, "a record of the ledger is not believed");
        }
    }

    fn view(&self) -> View<'_> {
        View::with(&self.state, &self.apart)
    }
}
