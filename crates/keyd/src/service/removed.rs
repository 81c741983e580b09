//! Nodes that were removed: what this one does with what they have left, and how it finds out that it is one itself.
//!
//! The rules are [`crate::node`]'s; this looks for copies of journals, keeps on disk that this node was refused, and
//! says in the audit log what became of a journal.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::OpenOptions;
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path as FilePath;
use std::sync::{Arc, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use capstan_keys::Name;
use capstan_service::audit::{AuditAction, AuditActor, AuditEntry, AuditOrigin};

use super::Service;
use super::peers::HeldCopy;
use crate::desk::Decided;
use crate::node::{DoubtKind, JournalSaid, MajorityContact, Node, NodeError, Removal};
use crate::path::Path;

const RECONCILED: AuditAction = AuditAction::named("journal-of-removed-node-reconciled");
const MET: AuditAction = AuditAction::named("removed-node-met");
/// How often a node that is cut off asks those that it reaches whether they still know it.
const ASK_EVERY: Duration = Duration::from_secs(5);
/// After how long a copy of a journal that could not be read is looked at again.
const READ_AGAIN_AFTER: Duration = Duration::from_secs(10);

/// What is known of removed nodes since the start.
#[derive(Default)]
pub(super) struct Removed {
    /// Those whose journals are through here, as far as that can be.
    through: BTreeSet<Name>,
    /// Copies that could not be read, and when that was tried last: a disk may be mended, a copy put in its place.
    unread: BTreeMap<Name, Instant>,
    asked: Option<Instant>,
}

impl Removed {
    /// Takes in what removed nodes have left. Says whether there is more to be done at once.
    pub(super) async fn settle(&mut self, service: &Service, node: &Arc<Node>) -> Result<bool, NodeError> {
        if node.is_refused_in_vain() {
            service.is_one_after_all(node);
        }
        if node.removal().is_some() {
            return Ok(false);
        }
        service.settle_met(node).await?;
        let removed: Vec<Name> = node.view(|view| view.ledger().removed_kmas().collect());
        for kma in removed.iter().filter(|kma| self.is_due(kma)).cloned().collect::<Vec<_>>() {
            match service.held_of(node, &kma).await {
                Ok(Some(copy)) => service.say_journal(node, &kma, copy).await?,
                Ok(None) => {}
                Err(what) => {
                    let words = format!("the journal of {kma}, which was removed, is not believed: {what}");
                    node.doubt(DoubtKind::Journal, words);
                    self.unread.insert(kma, Instant::now());
                    continue;
                }
            }
            self.unread.remove(&kma);
            self.through.insert(kma);
        }
        if removed.is_empty() { Ok(false) } else { node.set_pools_aside().await }
    }

    /// Whether the copy of a removed node's journal is to be looked at.
    fn is_due(&self, kma: &Name) -> bool {
        !self.through.contains(kma) && self.unread.get(kma).is_none_or(|tried| tried.elapsed() >= READ_AGAIN_AFTER)
    }

    /// A node that is cut off may have been removed: those that it reaches refuse it then. One whose disks are said to
    /// be destroyed lets the others meet it.
    pub(super) async fn ask_whether_this_is_one(&mut self, service: &Service, node: &Node) {
        let (is_known, is_current) = (node.removal(), node.standing() == MajorityContact::Current);
        let is_to_ask = match &is_known {
            None => !is_current,
            Some(Removal::Recorded(record)) => record.disks_destroyed_ns().is_some(),
            Some(Removal::Refused) => false,
        };
        if !is_to_ask || self.asked.is_some_and(|asked| asked.elapsed() < ASK_EVERY) {
            return;
        }
        self.asked = Some(Instant::now());
        node.ask_whether_removed().await;
        if is_known.is_none() && node.removal().is_some() {
            tracing::error!(kma = %service.settings.name, "this node was removed from the cluster: it answers nobody any more");
        }
    }
}

impl Service {
    /// A node that was removed has asked this one. Where its disks were said to be destroyed, one of them was not, or a
    /// copy of it is somewhere.
    pub(super) fn removed_was_met(&self, kma: &Name) {
        let Some(node) = self.open_node() else { return };
        let record = node.view(|view| view.ledger().removed(kma));
        if record.and_then(|record| record.that_was_met(node.now_ns())).is_some() && self.met().insert(kma.clone()) {
            tracing::error!(%kma, "a node that was removed asks, and its disks were said to be destroyed");
            node.doubt(DoubtKind::Disks, run_again(kma));
        }
    }

    fn met(&self) -> MutexGuard<'_, BTreeSet<Name>> {
        self.met.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Has the ledger say who was met, and people doubt it for as long as it does.
    async fn settle_met(&self, node: &Node) -> Result<(), NodeError> {
        let met = self.met().clone();
        for kma in met {
            let entry = AuditEntry::new(AuditActor::peer("kma", self.settings.name.clone()), AuditOrigin::Here, MET)
                .of("kma", &kma);
            node.change(|view| {
                let record = view.ledger().removed(&kma).and_then(|record| record.that_was_met(node.now_ns()));
                let record = record.and_then(|record| serde_json::to_vec(&record).ok());
                let puts = record.map(|record| (Path::removed(&kma), record)).into_iter().collect();
                Ok::<_, NodeError>(Decided::records(puts, Vec::new()))
            })
            .await?;
            // It is in the ledger; that it is not noted shows in the log of the system.
            let _ = self.note(entry).await;
            self.met().remove(&kma);
        }
        let doubted: Vec<Name> = node.view(|view| {
            let is_doubted = |kma: &Name| view.ledger().removed(kma).is_some_and(|kma| kma.met_since_ns().is_some());
            view.ledger().removed_kmas().filter(is_doubted).collect()
        });
        if doubted.is_empty() && self.met().is_empty() {
            node.believe(DoubtKind::Disks);
        }
        for kma in doubted {
            node.doubt(DoubtKind::Disks, run_again(&kma));
        }
        Ok(())
    }

    async fn held_of(&self, node: &Arc<Node>, kma: &Name) -> Result<Option<HeldCopy>, String> {
        let copies = self.copies.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let Some(copies) = copies else { return Ok(None) };
        let (node, kma) = (node.clone(), kma.clone());
        let held = tokio::task::spawn_blocking(move || copies.held_of(&kma, node.keys()));
        held.await.map_err(|error| error.to_string())?.map_err(|error| error.to_string())
    }

    async fn say_journal(&self, node: &Node, kma: &Name, copy: HeldCopy) -> Result<(), NodeError> {
        let HeldCopy { sequence, end, noted } = copy;
        if node.journal_said(kma).is_some_and(|said| (said.sequence, &said.end) == (sequence, &end)) {
            return Ok(());
        }
        let reconciled = node.reconcile_copy(kma, &noted).await?;
        tracing::info!(%kma, ?reconciled, "the ledger has what a removed node gave out cut off, as far as it is known here");
        let entry = AuditEntry::new(AuditActor::peer("kma", self.settings.name.clone()), AuditOrigin::Here, RECONCILED)
            .of("kma", kma);
        let noted = entry.with("taken", reconciled.taken as u64).with("void", reconciled.void.len() as u64);
        node.put_journal_said(kma, &JournalSaid::new(sequence, end, reconciled)).await?;
        // It is done; that it is not noted shows in the log of the system.
        let _ = self.note(noted).await;
        Ok(())
    }

    /// Another node has refused this one's certificate as revoked. It is kept on disk: a node that starts again cut off
    /// must not forget it.
    pub(super) fn is_refused_by(&self, peer: &Name) {
        let Some(node) = self.open_node() else { return };
        node.refused_by_others(true);
        let path = &self.opening.refused;
        match mark(path, peer) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
                tracing::error!(%error, path = %path.display(), "that this node was removed is not kept");
            }
            Err(_) => {}
            Ok(()) => tracing::error!(%peer, "another node refuses this one's certificate as revoked"),
        }
    }

    /// The majority knows this node: whoever refused it was wrong, or spoke of another time.
    fn is_one_after_all(&self, node: &Node) {
        match std::fs::remove_file(&self.opening.refused) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                tracing::warn!(%error, "that this node was refused is still on its disk");
            }
            _ => node.refused_by_others(false),
        }
    }
}

/// What people are told of disks that were said to be destroyed.
fn run_again(kma: &Name) -> String {
    format!(
        "node {kma} was removed, its disks were said to be destroyed, and it was met since: whoever runs it has a disk of it, or a copy. What \
         was certified as destroyed and rests on its disks is not (`keyd certificates`). Find it and destroy it, then \
         `keyd kmas confirm-destroyed {kma}` again"
    )
}

fn mark(path: &FilePath, peer: &Name) -> io::Result<()> {
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
    writeln!(file, "node {peer} refuses this node's certificate as revoked: it was removed from the cluster")?;
    file.sync_all()
}
