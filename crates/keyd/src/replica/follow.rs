//! Keeping a replica up to date: one loop owns it, for as long as the node runs.
//!
//! ```text
//!            +--> no copy, or history too short: snapshot --> reset --> deliver(Whole)
//!  pause <---|
//!  (grows)   +--> watch from the last commit: changes --> apply (on disk) --> deliver(Changes)
//!                                             current --> freshness
//! ```
//! What is delivered is on disk. Whatever goes wrong with the ledger, the loop pauses and goes on, since to be cut off
//! is an ordinary state of a node: the pause doubles up to [`PAUSE_MAX`] as long as nothing comes, and has a random
//! part, so that the nodes of a cluster that comes back do not all ask at once. It ends only with a replica that cannot
//! be used any more.
//!
//! **A ledger that was put back** to an older state, or made anew, is not followed: what is here is then more than it
//! has, and people must say which of them counts. It is asked again and again all the same. When all that it is known
//! by lies there once more ([`super::tips`]), as after somebody has started the right etcd again, it is followed from
//! where the replica stands.
//!
//! Limits: what has come and is not applied is at most [`BATCH`] answers of the ledger; all of them go to the disk in
//! one transaction, so that a node which has fallen behind catches up faster than one commit per flush.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt;
use tokio::sync::watch;
use tokio::time::Instant;

use super::keep::{changes_as_kept, snapshot_as_kept};
use super::tips::Tip;
use super::{Replica, ReplicaError};
use crate::ledger::{Change, Changes, Ledger, LedgerError, Snapshot, Watched};
use crate::seeded::Seeded;

/// First pause after something failed.
const PAUSE_MIN: Duration = Duration::from_millis(100);
/// Longest pause.
const PAUSE_MAX: Duration = Duration::from_secs(5);
/// Most answers of the ledger that go to the disk together.
const BATCH: usize = 64;

/// Where an epoch is put on record when it begins.
const EPOCHS: &str = "epoch/";

/// How far and how fresh a replica is.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Freshness {
    /// The last commit that is durably here, with all before it.
    pub applied: Option<i64>,
    /// When the majority, asked at that moment, had nothing that is not here.
    pub current_at: Option<Instant>,
    /// The last commit of the whole ledger then, of which some concern others alone.
    pub current_revision: Option<i64>,
    /// Why it is not followed at the moment, for people.
    pub trouble: Option<Arc<str>>,
}

/// What has changed in a replica.
#[derive(Debug, Clone, Copy)]
pub enum Delivery<'a> {
    /// Everything was replaced by this.
    Whole(&'a Snapshot),
    /// These came, in this order.
    Changes(&'a Changes),
    /// What the ledger says of epochs, which is not followed any more: nothing of it is in the replica.
    Unfollowed(&'a Snapshot),
    /// The ledger is not the one that was followed, and why: from here on it is as if it could not be reached.
    Lost(&'a str),
    /// It is known again, and followed.
    KnownAgain,
}

/// Why a round of following ended.
enum Ended {
    Ledger(LedgerError),
    Replica(ReplicaError),
    /// The ledger ended a watch and said nothing.
    Silently,
}

impl From<LedgerError> for Ended {
    fn from(error: LedgerError) -> Self {
        Self::Ledger(error)
    }
}

impl From<ReplicaError> for Ended {
    fn from(error: ReplicaError) -> Self {
        Self::Replica(error)
    }
}

/// Follows `ledger` with `replica`, tells `deliver` of everything that is on disk, and keeps `freshness`. Runs until it
/// is dropped, or until it must not go on, which it returns: the replica stays as it is, and can be answered from.
/// `seed` is for the pauses: another one on each node.
pub async fn follow<L: Ledger + ?Sized>(
    ledger: &L,
    replica: Replica,
    seed: u64,
    freshness: &watch::Sender<Freshness>,
    deliver: impl FnMut(Delivery<'_>),
) -> ReplicaError {
    let mut follower = Follower {
        ledger,
        replica: Some(replica),
        whole_copy: WholeCopy::IfEmpty,
        freshness,
        deliver,
        heard: false,
        lost: None,
    };
    let mut seeded = Seeded::new(seed);
    let mut pause = PAUSE_MIN;
    follower.publish(None, None);
    loop {
        let trouble = match follower.round().await {
            Ended::Ledger(LedgerError::Compacted { from }) => {
                follower.whole_copy = WholeCopy::Needed;
                LedgerError::Compacted { from }.to_string()
            }
            // It may grow past what is here, and would then look like a ledger that only went on: now is when it can be
            // told.
            Ended::Ledger(LedgerError::WentBack { known, found }) => {
                let error = follower.went_back(known, found);
                follower.lose(&error).await
            }
            Ended::Replica(error @ ReplicaError::WentBack { .. }) => follower.lose(&error).await,
            Ended::Ledger(error) => describe(&error),
            // The disk has room again one day. All else is about the file itself.
            Ended::Replica(error @ ReplicaError::DiskFull { .. }) => describe(&error),
            Ended::Replica(error) => {
                follower.publish(None, Some(describe(&error)));
                return error;
            }
            Ended::Silently => "the ledger ended its report".to_owned(),
        };
        if std::mem::take(&mut follower.heard) {
            pause = PAUSE_MIN;
        }
        tracing::warn!(%trouble, ?pause, "the ledger is not followed");
        follower.publish(None, Some(trouble));
        let random_ms = seeded.below(u64::try_from(pause.as_millis()).unwrap_or(u64::MAX) / 2 + 1);
        tokio::time::sleep(pause / 2 + Duration::from_millis(random_ms)).await;
        pause = (pause * 2).min(PAUSE_MAX);
    }
}

/// An error with what lies below it.
fn describe(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(below) = source {
        text = format!("{text}: {below}");
        source = below.source();
    }
    text
}

/// When a snapshot is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum WholeCopy {
    IfEmpty,
    Needed,
}

struct Follower<'a, L: ?Sized, F> {
    ledger: &'a L,
    /// Away only while the disk is waited for.
    replica: Option<Replica>,
    whole_copy: WholeCopy,
    freshness: &'a watch::Sender<Freshness>,
    deliver: F,
    /// The watch of this round has brought something.
    heard: bool,
    /// The ledger is not believed, since it was seen to be another; what it said of epochs then.
    lost: Option<Option<Snapshot>>,
}

impl<L: Ledger + ?Sized, F: FnMut(Delivery<'_>)> Follower<'_, L, F> {
    /// Follows until something fails.
    async fn round(&mut self) -> Ended {
        match self.try_round().await {
            Ok(()) => Ended::Silently,
            Err(ended) => ended,
        }
    }

    async fn try_round(&mut self) -> Result<(), Ended> {
        let ledger = self.ledger;
        let known = self.applied();
        if let Some(applied) = known {
            self.check_tips(applied).await?;
        }
        let after = match known.filter(|_| self.whole_copy == WholeCopy::IfEmpty) {
            Some(applied) => applied,
            None => self.copy_whole().await?,
        };
        let mut watch = ledger.watch(after).ready_chunks(BATCH);
        while let Some(batch) = watch.next().await {
            let (changes, current, failed) = merge(batch);
            // One that went back says so first of all.
            if (changes.is_some() || current.is_some()) && self.lost.take().is_some() {
                tracing::info!("the ledger is known again, and followed");
                (self.deliver)(Delivery::KnownAgain);
            }
            if let Some(changes) = changes {
                let (mut changes, kept) = self.on_disk(changes, Replica::apply).await?;
                changes_as_kept(&mut changes, kept);
                (self.deliver)(Delivery::Changes(&changes));
            }
            // What was said to be current came after what was brought before it, and that is on disk now.
            self.heard = true;
            self.publish(current, None);
            if let Some(error) = failed {
                return Err(error.into());
            }
        }
        Ok(())
    }

    async fn copy_whole(&mut self) -> Result<i64, Ended> {
        let asked = Instant::now();
        let snapshot = self.ledger.read("").await?;
        let (mut snapshot, kept) = self.on_disk(snapshot, Replica::reset).await?;
        snapshot_as_kept(&mut snapshot, kept);
        self.whole_copy = WholeCopy::IfEmpty;
        (self.deliver)(Delivery::Whole(&snapshot));
        self.publish(Some((asked, snapshot.revision)), None);
        Ok(snapshot.revision)
    }

    /// Whether this is still the ledger that was followed; [`super::tips`] has the rule.
    async fn check_tips(&mut self, applied: i64) -> Result<(), Ended> {
        let tips = self.replica.as_ref().map(Replica::tips).transpose()?;
        let Some((keep, tips)) = tips.flatten() else { return Ok(()) };
        let (mut known, mut known_up_to) = (0, 0);
        let (mut doubtful, mut missing) = (Vec::new(), Vec::new());
        for tip in &tips {
            let snapshot = self.ledger.read(&tip.path).await?;
            if snapshot.revision < applied {
                return Err(LedgerError::WentBack { known: applied, found: snapshot.revision }.into());
            }
            let entry = snapshot.entries.iter().find(|entry| entry.path == tip.path);
            match Tip::held_against(&keep, tip, entry, applied) {
                Tip::Known => (known, known_up_to) = (known + 1, known_up_to.max(tip.revision)),
                Tip::Changed => {}
                Tip::Doubtful => doubtful.push(tip.revision),
                Tip::Missing => missing.push(tip),
                Tip::Other { revision } => {
                    tracing::error!(path = tip.path, was = tip.revision, revision, "the ledger has another history");
                    return Err(LedgerError::WentBack { known: applied, found: revision }.into());
                }
            }
        }
        // What was lost with a newer state is newer than all that is left: any other is a matter of its record.
        let doubtful = doubtful.iter().filter(|revision| **revision > known_up_to).count();
        let newer = missing.iter().filter(|tip| tip.revision > known_up_to);
        let mut missing: BTreeSet<_> = newer.map(|tip| tip.path.as_str()).collect();
        Self::explain(self.ledger, &mut missing, applied).await?;
        if !missing.is_empty() || doubtful > known {
            tracing::error!(?missing, doubtful, known, of = tips.len(), "the ledger has not what it had");
            return Err(LedgerError::WentBack { known: applied, found: 0 }.into());
        }
        Ok(())
    }

    /// Takes out of the records that are missing those whose deletion the ledger's history shows. Nothing of it is
    /// applied.
    async fn explain(ledger: &L, missing: &mut BTreeSet<&str>, applied: i64) -> Result<(), LedgerError> {
        if missing.is_empty() {
            return Ok(());
        }
        let mut watch = ledger.watch(applied);
        while let Some(item) = watch.next().await {
            match item {
                Ok(Watched::Changes(Changes { changes, .. })) => {
                    for change in changes.iter().filter(|change| matches!(change, Change::Removed { .. })) {
                        missing.remove(change.path());
                    }
                }
                Ok(Watched::Current { .. }) | Err(LedgerError::Compacted { .. }) => return Ok(()),
                Err(error) => return Err(error),
            }
            if missing.is_empty() {
                return Ok(());
            }
        }
        Err(LedgerError::Protocol { what: "it ended its report before it was whole".to_owned() })
    }

    /// Shows whoever is told what the ledger says of epochs, where it is not to be followed any more: it may be that of
    /// a later one.
    async fn look_at_epochs(&mut self) {
        let Ok(snapshot) = self.ledger.read(EPOCHS).await else { return };
        if self.lost.as_ref().and_then(Option::as_ref).is_none_or(|known| known.entries != snapshot.entries) {
            (self.deliver)(Delivery::Unfollowed(&snapshot));
            self.lost = Some(Some(snapshot));
        }
    }

    /// The ledger is another. Says why.
    async fn lose(&mut self, error: &ReplicaError) -> String {
        let why = describe(error);
        if self.lost.is_none() {
            self.lost = Some(None);
            tracing::error!(
                why,
                "the ledger is not followed: this node goes on as if cut off, and looks whether the right one comes back"
            );
            (self.deliver)(Delivery::Lost(&why));
        }
        self.look_at_epochs().await;
        why
    }

    fn applied(&self) -> Option<i64> {
        self.replica.as_ref().and_then(Replica::applied)
    }

    /// Writes to the replica, where waiting for the disk holds up nobody else.
    async fn on_disk<T: Send + 'static, K: Send + 'static>(
        &mut self,
        what: T,
        write: impl FnOnce(&mut Replica, &T) -> Result<K, ReplicaError> + Send + 'static,
    ) -> Result<(T, K), ReplicaError> {
        let Some(mut replica) = self.replica.take() else {
            unreachable!("the replica is put back before anything else is asked of it");
        };
        let written = tokio::task::spawn_blocking(move || {
            let result = write(&mut replica, &what);
            (replica, what, result)
        });
        let (replica, what, result) = match written.await {
            Ok(written) => written,
            Err(error) => match error.try_into_panic() {
                Ok(panicked) => std::panic::resume_unwind(panicked),
                // The runtime ends, and this with it.
                Err(_) => std::future::pending().await,
            },
        };
        self.replica = Some(replica);
        result.map(|kept| (what, kept))
    }

    fn went_back(&self, known: i64, found: i64) -> ReplicaError {
        let replica = self.replica.as_ref().map(|replica| replica.path.clone()).unwrap_or_default();
        ReplicaError::WentBack { replica, applied: known, offered: found }
    }

    fn publish(&self, current: Option<(Instant, i64)>, trouble: Option<String>) {
        let applied = self.applied();
        self.freshness.send_modify(|freshness| {
            freshness.applied = applied;
            if let Some((asked, revision)) = current {
                freshness.current_at = Some(asked);
                freshness.current_revision = Some(revision);
            }
            freshness.trouble = trouble.map(Arc::from);
        });
    }
}

/// One change of several, when the last of them was current and at which commit, and how it ended.
fn merge(batch: Vec<Result<Watched, LedgerError>>) -> (Option<Changes>, Option<(Instant, i64)>, Option<LedgerError>) {
    let mut merged: Option<Changes> = None;
    let mut current = None;
    for item in batch {
        match item {
            Ok(Watched::Changes(Changes { revision, changes })) => {
                let merged = merged.get_or_insert_with(|| Changes { revision, changes: Vec::<Change>::new() });
                merged.revision = revision;
                merged.changes.extend(changes);
            }
            Ok(Watched::Current { asked, revision }) => current = Some((asked, revision)),
            Err(error) => return (merged, current, Some(error)),
        }
    }
    (merged, current, None)
}
