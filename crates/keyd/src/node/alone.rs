//! What is decided cut off from the majority: noted in the journal, on the disk, before it is answered.

use std::sync::atomic::Ordering;

use capstan_format::{KeyTag, MediumSerial, Volser};
use capstan_keys::{KeyState, KeyUse, Name};
use std::sync::PoisonError;

use super::{Answered, MajorityContact, Memory, Node, NodeError, Notebook, Noted};
use crate::desk::{Adopted, Answer, Asked, Decided, Operation, decide};
use crate::record::IssuedRecord;
use crate::root::ClusterKeys;
use crate::state::{Apart, Half, View};

impl Node {
    /// Decides by what this node knows, with keys of its reserve.
    pub(super) async fn ask_alone(
        &self,
        operation: Operation,
        by: &Name,
        request: [u8; 16],
    ) -> Result<Answered, NodeError> {
        let mut journal = self.journal.lock().await;
        if !self.journal_fit.load(Ordering::SeqCst) {
            return Err(NodeError::NeedsMajority { source: None });
        }
        let standing = self.standing();
        let (_reserved, decided, notes) = {
            let memory = self.memory();
            self.check_member(&memory.state)?;
            let reserved = self.reserve(&memory, &operation, Half::Reserve);
            let operation = operation.drawing(reserved.tag);
            let asked = Asked { operation, request, by: by.clone(), kma: self.name.clone(), now_ns: self.now_ns() };
            let decided = decide(memory.view(), &self.keys, &asked)?;
            if let Answer::Key(record) = &decided.answer {
                self.check_isolation(&memory, &record.issued.group, standing)?;
            }
            let notes = notes(memory.view(), &asked, &decided);
            (reserved, decided, notes)
        };
        if decided.changes_anything() {
            journal.note(&notes)?;
            let mut memory = self.memory_mut();
            let memory = &mut *memory;
            memory.apart.put(&memory.state, &decided.puts)?;
        }
        // Noted and laid apart without a pause between: whoever asked may be gone by now, and this with it. A key that
        // the journal says is given out must not look free.
        if decided.changes_anything()
            && let Err(error) = self.copy_journal(&mut **journal).await
        {
            tracing::warn!(%error, "the journal was not left with a peer");
        }
        Ok(Answered { answer: decided.answer, standing })
    }

    /// Leaves the journal with whichever peers can be reached: cut off from the majority is not cut off from everybody,
    /// and a disk may be lost before the majority is back.
    async fn copy_journal(&self, journal: &mut dyn Notebook) -> Result<(), NodeError> {
        let Some(peers) = &self.peers else { return Ok(()) };
        let mut segments = Vec::new();
        for (peer, after) in peers.standing() {
            if let Some(segment) = journal.since(after)? {
                segments.push((peer, segment));
            }
        }
        peers.copy(segments).await;
        Ok(())
    }

    /// Takes back from the peers what this node's disk has lost of its journal: it was lost, or put back to an older
    /// state. Nothing is given out cut off before this was tried, nor after it where the peers know another journal of
    /// this node.
    pub async fn take_journal_back(&self) -> Result<(), NodeError> {
        let Some(peers) = &self.peers else { return Ok(()) };
        let mut journal = self.journal.lock().await;
        loop {
            let known = journal.sequence();
            for segment in peers.give_back(known).await {
                journal.take_back(&segment)?;
            }
            if journal.sequence() == known {
                break;
            }
        }
        let pending = journal.pending(usize::MAX)?;
        let mut memory = self.memory_mut();
        // Decided once more from the beginning: the same entry twice is not the same as once.
        memory.apart = Apart::default();
        memory.lay_apart(&self.keys, &pending)?;
        drop(memory);
        self.journal_fit.store(true, Ordering::SeqCst);
        Ok(())
    }

    /// Decides again what the journal holds, after a restart: before anybody is answered, for its keys must not be
    /// given out twice.
    pub fn resume_journal(&mut self) -> Result<usize, NodeError> {
        let pending = self.journal.get_mut().pending(usize::MAX)?;
        let memory = self.memory.get_mut().unwrap_or_else(PoisonError::into_inner);
        memory.lay_apart(&self.keys, &pending)?;
        Ok(pending.len())
    }
}

impl Memory {
    /// Decides what was noted, over what is known.
    fn lay_apart(&mut self, keys: &ClusterKeys, pending: &[Noted]) -> Result<(), NodeError> {
        for asked in pending.iter().flat_map(|noted| &noted.asked) {
            match decide(self.view(), keys, asked) {
                Ok(decided) => self.apart.put(&self.state, &decided.puts)?,
                // What the ledger has said since may forbid what was noted; the entry is judged when it is reconciled.
                Err(error) => tracing::warn!(%error, "an entry of the journal does not fit what is known"),
            }
        }
        Ok(())
    }
}

/// What must be said to the ledger later for a decision to be true: keys as they were issued, not as they would be by
/// then.
fn notes(view: View<'_>, asked: &Asked, decided: &Decided) -> Vec<Asked> {
    let with = |operation| Asked { operation, ..asked.clone() };
    let Answer::Key(record) = &decided.answer else { return vec![asked.clone()] };
    let IssuedRecord { stored, issued, .. } = &**record;
    let (volser, tag) = (stored.record.volser.clone(), stored.record.tag);
    let mut notes = Vec::new();
    if let Operation::Append { first, serial, .. } = asked.operation
        && view.key(&first).is_some_and(|first| first.stored.record.state == KeyState::Ready)
    {
        // The volume proves that it was begun with it.
        notes.push(with(Operation::Activate { volser: volser.clone(), serial, tag: first }));
    }
    if let Operation::Append { first, serial, .. } = asked.operation
        && (is_dropped(view, &volser, &first) || is_news(view, &volser, serial.as_ref()))
    {
        // It was on record as gone, and the volume proves that it is not; or what it is on was not known.
        notes.push(with(Operation::Carried { volser: volser.clone(), serial, first }));
    }
    if let (None, Some(wrapped)) = (view.key(&tag), stored.wrapped) {
        let adopted = Adopted {
            volser: volser.clone(),
            tag,
            wrapped,
            group: issued.group.clone(),
            algorithm: stored.record.algorithm,
            issued_for: issued.issued_for,
            created_ns: stored.record.created_ns,
        };
        notes.push(with(Operation::Adopt(Box::new(adopted))));
        if matches!(issued.issued_for, KeyUse::Append { .. }) {
            notes.push(with(Operation::Activate { volser, serial: None, tag }));
        }
    }
    notes
}

/// Whether a volume is known to hold nothing any more of the life that it shows.
fn is_dropped(view: View<'_>, volser: &Volser, first: &KeyTag) -> bool {
    let mut keys = view.unit(volser).into_iter().flat_map(|unit| &unit.keys);
    keys.any(|key| key.is_of_life(first) && key.dropped_ns.is_some())
}

/// Whether nobody knows yet that a volume is on this cartridge.
fn is_news(view: View<'_>, volser: &Volser, serial: Option<&MediumSerial>) -> bool {
    let known = |serial| view.unit(volser).is_some_and(|unit| unit.cartridges.knows(serial));
    serial.is_some_and(|serial| !known(serial))
}

impl Answered {
    /// Whether the answer was given cut off from the majority.
    pub fn is_alone(&self) -> bool {
        matches!(self.standing, MajorityContact::Alone { .. })
    }
}
