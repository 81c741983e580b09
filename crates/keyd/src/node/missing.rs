//! A key that a node does not know may be one that others know already, and what it refuses may be allowed already:
//! what it says of it, it says by the majority's word.
//!
//! A copy follows the ledger with a delay, so a key that one node gave out may be unknown at the next for a moment, and
//! for as long as that one is cut off. An agent that is told that there is no such key asks nobody else; so a node says
//! it only after the majority had nothing more to tell it, and else that it cannot know. Approvals that members gave at
//! other nodes a moment ago are such news as well.

use capstan_format::{KeyTag, Volser};
use capstan_keys::{KeyError, Name, VolumeKey};
use tokio::time::Instant;

use super::{Answered, MajorityContact, Node, NodeError};
use crate::desk::{self, Decided, DeskError, Operation};
use crate::record::IssuedRecord;
use crate::state::View;

impl Node {
    /// Asks for something that may change what is known. The same request asked again gets the same answer, here or at
    /// another node.
    pub async fn ask(&self, operation: Operation, by: &Name, request: [u8; 16]) -> Result<Answered, NodeError> {
        let began = Instant::now();
        match self.ask_by_copy(operation.clone(), by, request).await {
            Err(error) if is_missing(&error) => {
                self.catch_up(began).await?;
                self.ask_by_copy(operation, by, request).await
            }
            answered => answered,
        }
    }

    /// A key to read a volume with, by what this node's copy says, and by the majority's word where it has none.
    pub async fn look_up(
        &self,
        by: &Name,
        drive: &Name,
        volser: &Volser,
        tag: &KeyTag,
    ) -> Result<(IssuedRecord, VolumeKey, MajorityContact), NodeError> {
        let began = Instant::now();
        let mut has_caught_up = false;
        loop {
            self.check_epoch()?;
            {
                let memory = self.memory();
                self.check_member(&memory.state)?;
                let read = desk::read(memory.view(), &self.keys, (by, drive), (volser, tag), self.now_ns());
                match read.map_err(NodeError::from) {
                    Err(error) if is_missing(&error) && !has_caught_up => {}
                    read => {
                        let (record, key) = read?;
                        let standing = self.standing();
                        self.check_isolation(&memory, &record.issued.group, standing)?;
                        return Ok((record, key, standing));
                    }
                }
            }
            self.catch_up(began).await?;
            has_caught_up = true;
        }
    }

    /// Changes records as [`Node::change`] does; what `decide` refuses, it refuses by what the majority knew when it
    /// was asked, if that is heard in time.
    pub async fn change_or_look_again<E: From<NodeError>>(
        &self,
        mut decide: impl FnMut(View<'_>) -> Result<Decided, E>,
    ) -> Result<(), E> {
        let began = Instant::now();
        let mut refused = false;
        let first = self.change(|view| decide(view).inspect_err(|_| refused = true)).await;
        if first.is_ok() || !refused {
            return first;
        }
        match self.catch_up(began).await {
            Ok(()) => self.change(decide).await,
            Err(_) => first,
        }
    }

    /// Looks at what is known; what `look` refuses, it refuses by what the majority knew when it was asked, if that is
    /// heard in time.
    pub async fn view_or_look_again<T, E>(&self, look: impl Fn(View<'_>) -> Result<T, E>) -> Result<T, E> {
        let began = Instant::now();
        let first = self.view(&look);
        if first.is_err() && self.catch_up(began).await.is_ok() { self.view(look) } else { first }
    }

    /// Waits until this node knows what the majority knew at that moment.
    async fn catch_up(&self, since: Instant) -> Result<(), NodeError> {
        let unknown = || NodeError::NeedsMajority { source: None };
        if self.standing() != MajorityContact::Current {
            return Err(unknown());
        }
        let mut progress = self.progress.subscribe();
        let heard = progress.wait_for(|progress| progress.heard.is_some_and(|heard| heard >= since));
        match tokio::time::timeout(self.settings.commit_patience, heard).await {
            Ok(Ok(_)) => Ok(()),
            Ok(Err(_)) | Err(_) => Err(unknown()),
        }
    }
}

fn is_missing(error: &NodeError) -> bool {
    matches!(error, NodeError::Desk(DeskError::Key(KeyError::KeyMissing { .. })))
}
