//! What changes something, in touch with the majority: decided, committed, answered.

use std::time::Duration;

use capstan_format::KeyTag;
use capstan_keys::Name;

use super::{Answered, MajorityContact, Memory, Node, NodeError};
use crate::desk::{Asked, Decided, Operation, decide, next_of_pool};
use crate::family::{Ending, ending_of};
use crate::ledger::{LedgerError, Outcome, Transaction};
use crate::state::{Half, Mark, View};

/// How often a decision is made anew because others were faster.
const TRIES: u32 = 20;
/// How long to wait for what others have committed before deciding anew.
const NEWS_PATIENCE: Duration = Duration::from_millis(250);

/// A key of the pool that nobody else in this node gives out meanwhile.
pub(super) struct Reserved<'a> {
    node: &'a Node,
    pub(super) tag: Option<KeyTag>,
}

impl Drop for Reserved<'_> {
    fn drop(&mut self) {
        if let Some(tag) = self.tag {
            self.node.reserved().remove(&tag);
        }
    }
}

/// What became of an attempt to commit.
pub(super) enum Attempt {
    Committed,
    Conflict,
    Failed(LedgerError),
}

impl Node {
    /// Decides by what this node's copy says; what has changed since shows as a conflict.
    pub(super) async fn ask_by_copy(
        &self,
        operation: Operation,
        by: &Name,
        request: [u8; 16],
    ) -> Result<Answered, NodeError> {
        let mut lost = None;
        for _ in 0..TRIES {
            self.check_epoch()?;
            if self.standing() != MajorityContact::Current {
                if !operation.in_isolation() {
                    return Err(NodeError::NeedsMajority { source: lost });
                }
                return self.ask_alone(operation, by, request).await;
            }
            // Back in touch and not yet through with the journal: its entries come first.
            if operation.in_isolation() && !self.journal.lock().await.is_empty() {
                return self.ask_alone(operation, by, request).await;
            }
            let base = self.progress.borrow().applied;
            let (_reserved, decided, transaction) = {
                // Reserved and decided on one state: a key that another commit takes meanwhile is a conflict, and no
                // damage.
                let memory = self.memory();
                self.check_member(&memory.state)?;
                let reserved = self.reserve(&memory, &operation, Half::Ready);
                let operation = operation.clone().drawing(reserved.tag);
                let asked = Asked { operation, request, by: by.clone(), kma: self.name.clone(), now_ns: self.now_ns() };
                let decided = decide(View::of(&memory.state), &self.keys, &asked)?;
                let transaction = decided.transaction(&memory.state, &self.keys, self.epoch)?;
                (reserved, decided, transaction)
            };
            if !decided.changes_anything() {
                return Ok(Answered { answer: decided.answer, standing: MajorityContact::Current });
            }
            match self.commit(&decided, transaction).await? {
                Attempt::Committed => {
                    return Ok(Answered { answer: decided.answer, standing: MajorityContact::Current });
                }
                Attempt::Conflict => {}
                // It may have happened. The next decision is made on what the ledger says of it by then; should both be
                // committed, the data unit that both expect as it was lets only one through.
                Attempt::Failed(error) => lost = Some(error),
            }
            self.wait_for_news(base).await;
        }
        match lost {
            Some(source) => Err(NodeError::NeedsMajority { source: Some(source) }),
            None => Err(NodeError::Contended { tries: TRIES }),
        }
    }

    /// Changes records of other rooms, in touch with the majority: `decide` looks at the state, says what is to be, and
    /// is asked anew where others were faster.
    ///
    /// Unlike [`Node::ask`] it is not told what became of a commit whose answer was lost before it decides anew: it
    /// must decide so that to do a thing twice is to do it once, or to see that it was done.
    pub async fn change<E: From<NodeError>>(
        &self,
        mut decide: impl FnMut(View<'_>) -> Result<Decided, E>,
    ) -> Result<(), E> {
        let checked = |view: View<'_>| {
            self.check_member(view.ledger())?;
            decide(view)
        };
        self.change_as_anybody(checked).await
    }

    /// The same, by a node that was removed as well: what it says last.
    pub(super) async fn change_as_anybody<E: From<NodeError>>(
        &self,
        mut decide: impl FnMut(View<'_>) -> Result<Decided, E>,
    ) -> Result<(), E> {
        let mut lost = None;
        for _ in 0..TRIES {
            self.check_epoch()?;
            if self.standing() != MajorityContact::Current {
                return Err(NodeError::NeedsMajority { source: lost }.into());
            }
            let base = self.progress.borrow().applied;
            let (decided, transaction) = {
                let memory = self.memory();
                let decided = decide(View::of(&memory.state))?;
                let transaction =
                    decided.transaction(&memory.state, &self.keys, self.epoch).map_err(NodeError::from)?;
                (decided, transaction)
            };
            if !decided.changes_anything() {
                return Ok(());
            }
            match self.commit(&decided, transaction).await? {
                Attempt::Committed => return Ok(()),
                Attempt::Conflict => {}
                Attempt::Failed(error) => lost = Some(error),
            }
            self.wait_for_news(base).await;
        }
        Err(match lost {
            Some(source) => NodeError::NeedsMajority { source: Some(source) },
            None => NodeError::Contended { tries: TRIES },
        }
        .into())
    }

    /// Commits what was decided, and takes it in.
    pub(super) async fn commit(&self, decided: &Decided, transaction: Transaction) -> Result<Attempt, NodeError> {
        let outcome = tokio::time::timeout(self.settings.commit_patience, self.ledger.commit(transaction)).await;
        Ok(match outcome {
            Ok(Ok(Outcome::Committed { revision })) => {
                let mut memory = self.memory_mut();
                memory.own_commit = memory.own_commit.max(revision);
                if self.progress.borrow().applied >= revision {
                    // The watch has brought it, and perhaps later commits.
                    return Ok(Attempt::Committed);
                }
                for (path, plaintext) in &decided.puts {
                    // The watch may have brought it already: then it is known, and this changes nothing.
                    let mark = Mark { revision, change: memory.state.mark(path).change + 1 };
                    if memory.state.mark(path).revision < revision {
                        memory.state.put(&path.to_string(), mark, plaintext)?;
                    }
                }
                for path in &decided.removes {
                    let (mark, path) = (memory.state.mark(path), path.to_string());
                    match ending_of(&path) {
                        Ending::Deletion => memory.state.remove(&path),
                        Ending::Tombstone | Ending::Never => {
                            memory.state.bury(&path, Mark { revision, change: mark.change + 1 })?;
                        }
                    }
                }
                Attempt::Committed
            }
            Ok(Ok(Outcome::Conflict)) => Attempt::Conflict,
            // Asked again it would be as large.
            Ok(Err(error @ (LedgerError::TooLarge { .. } | LedgerError::Malformed { .. }))) => {
                return Err(NodeError::NeedsMajority { source: Some(error) });
            }
            // Nor is there more room a moment later; and nothing was changed.
            Ok(Err(source @ LedgerError::Full { .. })) => return Err(NodeError::LedgerFull { source }),
            Ok(Err(error)) => Attempt::Failed(error),
            Err(elapsed) => Attempt::Failed(LedgerError::Unknown { source: Box::new(elapsed) }),
        })
    }

    /// Waits until the node's copy has gone on, or long enough to look whether it is cut off.
    pub(super) async fn wait_for_news(&self, base: i64) {
        let mut progress = self.progress.subscribe();
        let _ = tokio::time::timeout(NEWS_PATIENCE, progress.wait_for(|progress| progress.applied > base)).await;
    }

    /// Reserves a key of the pool for an operation that may need one.
    pub(super) fn reserve(&self, memory: &Memory, operation: &Operation, half: Half) -> Reserved<'_> {
        if !operation.may_draw() {
            return Reserved { node: self, tag: None };
        }
        let mut reserved = self.reserved();
        let taken = |tag: &KeyTag| reserved.contains(tag);
        let tag = next_of_pool(memory.view(), &self.name, memory.backed_up, half, taken);
        reserved.extend(tag);
        Reserved { node: self, tag }
    }
}
