//! Back in touch: what was decided cut off is said to the ledger, entry by entry.

use std::collections::HashSet;

use capstan_format::{KeyTag, Volser};
use capstan_keys::{KeyError, Name};

use super::ask::Attempt;
use super::note::Noted;
use super::{DoubtKind, MajorityContact, Node, NodeError};
use crate::desk::{Asked, Decided, DeskError, decide};
use crate::path::Path;
use crate::state::{Apart, View};

/// Entries that are said before the disk is waited for and they are struck out together: what strikes them out is a
/// record of the journal itself, which is flushed. Entries that were said and not struck out are said once more, and
/// change nothing.
pub(super) const SAID_AT_ONCE: usize = 64;

/// What came of a reconciliation.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Reconciled {
    /// Entries that the ledger has now.
    pub taken: usize,
    /// Entries that no longer fit, and why: the key was destroyed meanwhile, for one.
    pub void: Vec<String>,
}

impl Node {
    /// Says what the journal holds to the ledger. Stops where the majority is lost again; what was said is struck out.
    pub async fn reconcile(&self) -> Result<Reconciled, NodeError> {
        let mut reconciled = Reconciled::default();
        loop {
            let noted = {
                let journal = self.journal.lock().await;
                let noted = journal.pending(SAID_AT_ONCE)?;
                if noted.is_empty() {
                    // Nobody decides alone while this is held: from here on the ledger knows everything.
                    self.memory_mut().apart = Apart::default();
                    return Ok(reconciled);
                }
                one_of_each_volume(noted)
            };
            let (mut last, mut said) = (None, Ok(()));
            for entry in &noted {
                said = self.say_note(entry, &mut reconciled).await;
                if said.is_err() {
                    break;
                }
                last = Some(entry.number);
            }
            // What was said before the majority was lost is said.
            if let Some(last) = last {
                self.wait_for_disk().await?;
                self.journal.lock().await.strike_out(last)?;
            }
            said?;
        }
    }

    async fn say_note(&self, Noted { number, asked }: &Noted, reconciled: &mut Reconciled) -> Result<(), NodeError> {
        for asked in asked {
            // A removed node's journal may have been said by those who hold copies.
            match self.removal() {
                Some(_) => self.say_late(*number, asked, reconciled).await?,
                None => self.say_entry(*number, asked, reconciled).await?,
            }
        }
        Ok(())
    }

    /// Says one thing of an entry to the ledger, or notes why it no longer fits.
    pub(super) async fn say_entry(
        &self,
        number: u64,
        asked: &Asked,
        reconciled: &mut Reconciled,
    ) -> Result<(), NodeError> {
        let kma = &asked.kma;
        match self.say(asked).await {
            Ok(()) => reconciled.taken += 1,
            Err(NodeError::Desk(DeskError::Key(KeyError::KeyOfOtherVolume { tag, volser, owner }))) => {
                let conflict = format!("key {tag} was given out cut off for volume {volser}, and is volume {owner}'s");
                tracing::error!(%kma, number, conflict, "that node's journal or disk was put back to an older state");
                self.note_conflict(kma, &tag, &volser, &owner).await?;
                reconciled.void.push(conflict);
            }
            Err(NodeError::Desk(DeskError::Key(void))) if is_void(&void) => {
                tracing::warn!(%kma, error = %void, number, "an entry of the journal no longer fits");
                reconciled.void.push(void.to_string());
            }
            Err(error) => return Err(error),
        }
        Ok(())
    }

    /// Waits until this node's disk holds what it has committed: until then the journal alone says which keys were
    /// given out, should the node be killed and start again cut off.
    pub(super) async fn wait_for_disk(&self) -> Result<(), NodeError> {
        let own_commit = self.memory().own_commit;
        let mut progress = self.progress.subscribe();
        let on_disk = progress.wait_for(|progress| progress.applied >= own_commit);
        match tokio::time::timeout(self.settings.commit_patience, on_disk).await {
            Ok(Ok(_)) => Ok(()),
            Ok(Err(_)) | Err(_) => Err(NodeError::NeedsMajority { source: None }),
        }
    }

    /// Puts it on record for people that one key may lie under two volumes: `conflict/TAG/VOLUME`.
    async fn note_conflict(&self, kma: &Name, tag: &KeyTag, volser: &Volser, owner: &Volser) -> Result<(), NodeError> {
        let path = Path::Other(format!("conflict/{tag}/{volser}"));
        let (key, volume, owner) = (tag.to_string(), volser.to_string(), owner.to_string());
        let said = serde_json::json!({"key": key, "volume": volume, "owner": owner, "kma": kma});
        self.doubt(DoubtKind::Conflict, format!("{path}: {said}"));
        let put = |view: View<'_>| {
            let known = view.ledger().other(&path.to_string()).is_some();
            let puts = if known { Vec::new() } else { vec![(path.clone(), said.to_string().into_bytes())] };
            Ok::<_, NodeError>(Decided::records(puts, Vec::new()))
        };
        self.change_as_anybody(put).await
    }

    async fn say(&self, asked: &Asked) -> Result<(), NodeError> {
        loop {
            self.check_epoch()?;
            if self.standing() != MajorityContact::Current {
                return Err(NodeError::NeedsMajority { source: None });
            }
            let base = self.progress.borrow().applied;
            let (decided, transaction) = {
                let memory = self.memory();
                let decided = decide(View::of(&memory.state), &self.keys, asked)?;
                let transaction = decided.transaction(&memory.state, &self.keys, self.epoch)?;
                (decided, transaction)
            };
            if !decided.changes_anything() {
                return Ok(());
            }
            match self.commit(&decided, transaction).await? {
                Attempt::Committed => return Ok(()),
                Attempt::Conflict | Attempt::Failed(_) => self.wait_for_news(base).await,
            }
        }
    }
}

/// The first entries, as far as each is of another volume. Of those it is known that to say them twice is to say them
/// once, whatever the node was doing when it was killed; of two of one volume it is not: the end of a volume, said once
/// more after its next beginning, would end that.
fn one_of_each_volume(mut noted: Vec<Noted>) -> Vec<Noted> {
    let mut volumes = HashSet::new();
    let is_new = |noted: &Noted| {
        let of_entry: HashSet<_> = noted.asked.iter().map(|asked| asked.operation.volser().cloned()).collect();
        of_entry.into_iter().all(|volser| volumes.insert(volser))
    };
    let count = noted.iter().map(is_new).take_while(|is_new| *is_new).count();
    // The first is of no volume that came before it.
    noted.truncate(count.max(1));
    noted
}

/// Whether what was noted no longer fits what the majority has decided since, and never will again.
fn is_void(error: &KeyError) -> bool {
    matches!(error, KeyError::KeyDestroyed { .. } | KeyError::KeyRetired { .. } | KeyError::KeyMissing { .. })
}
