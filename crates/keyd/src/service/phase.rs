//! Locked or open: what follows the ledger goes on through both.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Arc, PoisonError};
use std::time::Instant;

use capstan_keys::Secret;

use super::Service;
use super::backups::{is_of_backup, tell_what_is_backed_up};
use super::peers::{Copies, OtherNodes};
use crate::journal::Journal;
use crate::ledger::{Change, Entry, Ledger};
use crate::node::{Node, NodeSettings, SealedJournal, WallClock};
use crate::replica::Delivery;
use crate::root::ClusterKeys;

/// What a node knows in the phase it is in.
pub(super) enum Phase {
    /// Sealed records, to be opened.
    Locked {
        /// By path.
        entries: BTreeMap<String, Entry>,
        /// The commit up to which they are all there.
        revision: i64,
    },
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
    /// The root key, sealed.
    pub(super) root: PathBuf,
    pub(super) node: NodeSettings,
    pub(super) clock: WallClock,
    /// When the majority was heard last before this start.
    pub(super) heard_ns: i64,
}

impl Service {
    /// Takes in what the replica has on its disk.
    pub(super) fn deliver(&self, delivery: Delivery<'_>) {
        let mut phase = self.phase.write().unwrap_or_else(PoisonError::into_inner);
        match (&mut *phase, delivery) {
            (Phase::Open(node), Delivery::Whole(snapshot)) => {
                node.load(snapshot.entries.iter(), snapshot.revision, 0);
                tell_what_is_backed_up(node, self.settings.epoch);
            }
            (Phase::Open(node), Delivery::Changes(changes)) => {
                node.apply(changes);
                if changes.changes.iter().any(|change| is_of_backup(change.path())) {
                    tell_what_is_backed_up(node, self.settings.epoch);
                }
            }
            (Phase::Open(node), Delivery::Unfollowed(snapshot)) => node.meet(&snapshot.entries),
            // Looked at when it is unlocked.
            (Phase::Locked { entries, .. }, Delivery::Unfollowed(snapshot)) => {
                entries.extend(snapshot.entries.iter().map(|entry| (entry.path.clone(), entry.clone())));
            }
            (Phase::Locked { entries, revision }, Delivery::Whole(snapshot)) => {
                *entries = snapshot.entries.iter().map(|entry| (entry.path.clone(), entry.clone())).collect();
                *revision = snapshot.revision;
            }
            (Phase::Locked { entries, revision }, Delivery::Changes(changes)) => {
                for change in &changes.changes {
                    match change {
                        Change::Put(entry) => drop(entries.insert(entry.path.clone(), entry.clone())),
                        Change::Removed { path, .. } => drop(entries.remove(path)),
                    }
                }
                *revision = changes.revision;
            }
        }
    }

    /// The majority was heard.
    pub(super) fn heard(&self, asked: Instant) {
        *self.heard.lock().unwrap_or_else(PoisonError::into_inner) = Some(asked);
        if let Some(node) = self.open_node() {
            node.heard(asked);
        }
    }

    /// Opens the node with its keys.
    pub(super) fn open(self: &Arc<Self>, keys: Arc<ClusterKeys>) -> anyhow::Result<()> {
        let mut phase = self.phase.write().unwrap_or_else(PoisonError::into_inner);
        let Phase::Locked { entries, revision } = &mut *phase else { return Ok(()) };
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
        node.load(entries.values(), *revision, self.opening.heard_ns);
        tell_what_is_backed_up(&node, self.settings.epoch);
        node.resume_journal()?;
        tracing::info!(records = entries.len(), ms = begun.elapsed().as_millis(), "unlocked");
        if let Some(asked) = *self.heard.lock().unwrap_or_else(PoisonError::into_inner) {
            node.heard(asked);
        }
        *phase = Phase::Open(Arc::new(node));
        drop(phase);
        self.opened.notify_waiters();
        Ok(())
    }
}
