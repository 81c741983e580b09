//! Locked or open: what follows the ledger goes on through both.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use capstan_keys::Secret;
use capstan_service::clock::WallClock;
use tokio::time::Instant;

use super::Service;
use super::backups::{is_of_backup, tell_what_is_backed_up};
use super::peers::{Copies, OtherNodes};
use crate::journal::Journal;
use crate::ledger::{Change, Changes, Entry, Ledger};
use crate::node::{DoubtKind, LastHeard, Node, NodeSettings, SealedJournal};
use crate::replica::{Delivery, PackedRecords};
use crate::root::ClusterKeys;

/// Records that one thread reads at a time.
const PART_LEN: usize = 4096;

/// What a node knows in the phase it is in.
pub(super) enum Phase {
    /// Sealed records, to be opened.
    Locked(PackedRecords),
    /// The node.
    Open(Arc<Node>),
}

/// What it takes to open a node beside its keys.
pub(super) struct Opening {
    pub(super) ledger: Arc<dyn Ledger>,
    pub(super) journal: PathBuf,
    pub(super) identity: PathBuf,
    /// There from when another node has refused this one as removed.
    pub(super) refused: PathBuf,
    /// There while a person has locked the node.
    pub(super) locked: PathBuf,
    /// The root key, sealed.
    pub(super) root: PathBuf,
    pub(super) node: NodeSettings,
    pub(super) clock: WallClock,
    /// Why the ledger is not followed, while it is another than the one that was.
    pub(super) lost_ledger: Mutex<Option<String>>,
    /// Held by whoever opens it. Before `phase`, which is held only to look and to change it: it takes seconds to open
    /// a million records, and meanwhile the listeners say that the node is locked.
    pub(super) turn: Mutex<()>,
}

impl Service {
    /// Takes in what the replica has on its disk. One after the other: they come from one loop.
    pub(super) fn deliver(&self, delivery: Delivery<'_>) {
        match delivery {
            Delivery::Lost(why) => *self.lost_ledger() = Some(why.to_owned()),
            Delivery::KnownAgain => *self.lost_ledger() = None,
            Delivery::Whole(_) | Delivery::Changes(_) | Delivery::Unfollowed(_) => {}
        }
        if let Some(node) = self.open_node() {
            return self.deliver_to(&node, delivery);
        }
        let whole = match delivery {
            Delivery::Whole(snapshot) => Some(PackedRecords::of(snapshot)),
            Delivery::Changes(_) | Delivery::Unfollowed(_) | Delivery::Lost(_) | Delivery::KnownAgain => None,
        };
        let mut phase = self.phase.write().unwrap_or_else(PoisonError::into_inner);
        match &mut *phase {
            Phase::Locked(records) => match (whole, delivery) {
                (Some(whole), _) => *records = whole,
                (None, Delivery::Changes(changes)) => records.apply(changes),
                // Looked at when it is unlocked.
                (None, Delivery::Unfollowed(snapshot)) => {
                    let changes = snapshot.entries.iter().cloned().map(Change::Put).collect();
                    records.apply(&Changes { revision: records.revision(), changes });
                }
                // Said when it is unlocked.
                (None, Delivery::Whole(_) | Delivery::Lost(_) | Delivery::KnownAgain) => {}
            },
            Phase::Open(node) => {
                let node = node.clone();
                drop(phase);
                self.deliver_to(&node, delivery);
            }
        }
    }

    fn deliver_to(&self, node: &Node, delivery: Delivery<'_>) {
        let is_of_backup = match delivery {
            Delivery::Whole(snapshot) => {
                let parts = snapshot.entries.chunks(PART_LEN).map(|part| part.iter().map(Entry::borrowed));
                node.load(parts.collect(), snapshot.revision);
                true
            }
            Delivery::Changes(changes) => {
                node.apply(changes);
                changes.changes.iter().any(|change| is_of_backup(change.path()))
            }
            Delivery::Unfollowed(snapshot) => {
                node.meet(&snapshot.entries);
                false
            }
            Delivery::Lost(why) => {
                node.lose_touch();
                node.doubt(DoubtKind::WentBack, why.to_owned());
                false
            }
            Delivery::KnownAgain => {
                node.believe(DoubtKind::WentBack);
                false
            }
        };
        if is_of_backup {
            tell_what_is_backed_up(node, self.settings.epoch);
        }
    }

    /// The majority was heard.
    pub(super) fn heard(&self, asked: Instant) {
        let last = LastHeard::just_now(asked, Instant::now(), (self.clock)());
        *self.last_heard.lock().unwrap_or_else(PoisonError::into_inner) = last;
        if let Some(node) = self.open_node() {
            node.heard(asked);
        }
    }

    /// Opens the node with its keys.
    pub(super) fn open(self: &Arc<Self>, keys: Arc<ClusterKeys>) -> anyhow::Result<()> {
        let _turn = self.opening.turn.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(mut records) = self.locked_records() else { return Ok(()) };
        let (name, epoch) = (self.settings.name.clone(), self.settings.epoch);
        let key: Secret = keys.derive(&keys.cluster().0, "capstan keyd journal v1")?;
        let copy_key: Secret = keys.derive(&keys.cluster().0, "capstan keyd journal v1")?;
        let (journal, start) = Journal::open(&self.opening.journal, &name, &key)?;
        tracing::info!(?start, pending = journal.pending().count(), "the journal is open");
        let journal = Box::new(SealedJournal::new(journal, &name, keys.clone(), epoch));
        let copies = Copies::new(self.opening.journal.clone(), copy_key);
        *self.copies.lock().unwrap_or_else(PoisonError::into_inner) = Some(Arc::new(copies));
        let Opening { ledger, node: settings, clock, identity, .. } = &self.opening;
        let peers = Arc::new(OtherNodes::new(Arc::downgrade(self), identity.clone()));
        let node = Node::new(name, epoch, ledger.clone(), keys, journal, clock.clone(), *settings);
        let mut node = node.with_peers(peers);
        node.refused_by_others(self.opening.refused.exists());
        let begun = Instant::now();
        loop {
            node.load(records.parts(), records.revision());
            let mut phase = self.phase.write().unwrap_or_else(PoisonError::into_inner);
            let Phase::Locked(now) = &*phase else { return Ok(()) };
            if !now.is_over(&records) {
                // The ledger was copied anew meanwhile.
                records = now.clone();
                continue;
            }
            node.apply(&now.since());
            tell_what_is_backed_up(&node, self.settings.epoch);
            node.resume_journal()?;
            tracing::info!(records = records.len(), ms = begun.elapsed().as_millis(), "unlocked");
            node.take_up(self.last_heard());
            let sealed = std::mem::replace(&mut *phase, Phase::Open(Arc::new(node)));
            drop(phase);
            drop(sealed);
            let why = self.lost_ledger().clone();
            if let (Some(node), Some(why)) = (self.open_node(), why) {
                self.deliver_to(&node, Delivery::Lost(&why));
            }
            self.opened.notify_waiters();
            return Ok(());
        }
    }

    /// Why the ledger is not followed, while it is not.
    fn lost_ledger(&self) -> MutexGuard<'_, Option<String>> {
        self.opening.lost_ledger.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn locked_records(&self) -> Option<PackedRecords> {
        match &*self.phase.read().unwrap_or_else(PoisonError::into_inner) {
            Phase::Locked(records) => Some(records.clone()),
            Phase::Open(_) => None,
        }
    }
}
