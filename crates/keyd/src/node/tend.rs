//! What a node does unasked: fills its pool, and says how far it holds the ledger.

use capstan_format::Algorithm;

use super::ask::Attempt;
use super::{MajorityContact, Node, NodeError};
use crate::desk::{self, Decided, pool_key_of};
use crate::path::Path;
use crate::record::encode_held;
use crate::state::Half;

/// Keys that are drawn in one commit.
const DRAWN_MAX: usize = 64;

/// What there was to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Tended {
    /// Keys that were drawn into the pool.
    pub drawn: usize,
    /// Whether more remains to be done at once.
    pub more: bool,
}

impl Node {
    /// Does what is due, in touch with the majority.
    pub async fn tend(&self) -> Result<Tended, NodeError> {
        self.check_epoch()?;
        if self.standing() != MajorityContact::Current || self.removal().is_some() {
            return Ok(Tended::default());
        }
        let filled = self.fill_pool().await;
        // One key that does not open must not keep this node from filling its own pool.
        self.say_what_is_held().await?;
        filled
    }

    async fn fill_pool(&self) -> Result<Tended, NodeError> {
        let mut missing = self.missing_keys();
        let now_ns = self.now_ns();
        let mut puts = Vec::new();
        while puts.len() < DRAWN_MAX && missing != [0, 0] {
            let drawn = (self.draw)().and_then(|key| pool_key_of(&self.keys, &key, now_ns));
            let (tag, key) = drawn.map_err(desk::DeskError::from)?;
            let missing = match Half::of(&tag) {
                Half::Ready => &mut missing[0],
                Half::Reserve => &mut missing[1],
            };
            // Which half a key is of is chance; one of a half that is full is dropped.
            if *missing > 0 {
                *missing -= 1;
                puts.push((Path::Pool { kma: self.name.clone(), tag }, key.encode()));
            }
        }
        let drawn = puts.len();
        if drawn == 0 || !self.put(puts).await? {
            return Ok(Tended::default());
        }
        Ok(Tended { drawn, more: missing != [0, 0] })
    }

    /// Keys that the ready half of the pool lacks, and the reserve. Each is filled for itself: what is issued every day
    /// leaves the reserve alone, which would come to be all of the pool.
    fn missing_keys(&self) -> [usize; 2] {
        let reserve = self.settings.pool_keys / 2;
        let wanted = [(Half::Ready, self.settings.pool_keys - reserve), (Half::Reserve, reserve)];
        let memory = self.memory();
        wanted.map(|(half, wanted)| wanted.saturating_sub(memory.state.pool_len(&self.name, half)))
    }

    /// Says that this node's disk holds the keys that other nodes have drawn, once each of them was opened from what it
    /// holds.
    async fn say_what_is_held(&self) -> Result<(), NodeError> {
        let applied = self.progress.borrow().applied;
        let due = {
            let memory = self.memory();
            let held = memory.state.held(&self.name);
            let others = memory.state.kmas().keys().filter(|kma| **kma != self.name);
            let mut due = false;
            // What is new alone: this is asked five times a second.
            for kma in others {
                for (tag, _) in memory.state.pool_behind(kma, held).filter(|(_, revision)| *revision <= applied) {
                    let wrong = || desk::DeskError::PoolKey { kma: self.name.clone(), tag: *tag };
                    let key = memory.state.pool_key(kma, tag).ok_or_else(wrong)?;
                    desk::open_pool_key(&self.keys, *tag, Algorithm::Aes256Gcm, &key.wrapped)
                        .map_err(desk::DeskError::from)?
                        .ok_or_else(wrong)?;
                    due = true;
                }
            }
            due
        };
        if due {
            self.put(vec![(Path::Held(self.name.clone()), encode_held(applied))]).await?;
        }
        Ok(())
    }

    /// Puts records that are this node's own. Whether it was done: if not, it is due again.
    async fn put(&self, puts: Vec<(Path, Vec<u8>)>) -> Result<bool, NodeError> {
        let base = self.progress.borrow().applied;
        let decided = Decided::records(puts, Vec::new());
        let transaction = decided.transaction(&self.memory().state, &self.keys, self.epoch)?;
        match self.commit(&decided, transaction).await? {
            Attempt::Committed => Ok(true),
            Attempt::Conflict | Attempt::Failed(_) => {
                self.wait_for_news(base).await;
                Ok(false)
            }
        }
    }
}
