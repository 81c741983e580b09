//! The keys that one node has drawn and not issued, in the order in which they may be issued.
//!
//! Which of them may be is a question of commits (`crate::desk`): those up to one of them. So they stand in the order
//! of their commits, each half of the pool by itself, and the first that may be issued, and how many may not yet, are
//! found without a look at the others.

use std::collections::{BTreeMap, BTreeSet};

use capstan_format::KeyTag;

use super::{Mark, Marked};
use crate::record::PoolKey;

/// Which half of a pool a key is of: chance says it, by the last digit of its tag.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Half {
    /// For commits.
    Ready,
    /// For when the node is cut off.
    Reserve,
}

impl Half {
    /// The half that a key is of.
    pub fn of(tag: &KeyTag) -> Self {
        if tag.0[15] & 1 == 1 { Self::Reserve } else { Self::Ready }
    }
}

/// Where a key stands among those that may be issued: by its commit, and within one by when it was drawn.
type Turn = (i64, i64, KeyTag);

#[derive(Default)]
pub(super) struct DrawnKeys {
    keys: BTreeMap<KeyTag, Marked<PoolKey>>,
    /// Those that were not issued.
    ready: BTreeSet<Turn>,
    reserve: BTreeSet<Turn>,
}

impl DrawnKeys {
    pub(super) fn put(&mut self, tag: KeyTag, key: Marked<PoolKey>, is_issued: bool) {
        self.remove(&tag);
        if !is_issued {
            self.half_mut(&tag).insert(turn(&tag, &key));
        }
        self.keys.insert(tag, key);
    }

    pub(super) fn remove(&mut self, tag: &KeyTag) {
        self.issue(tag);
        self.keys.remove(tag);
    }

    /// The key was issued: it is no key of the pool any more, even if its record stays, or somebody puts it back.
    pub(super) fn issue(&mut self, tag: &KeyTag) {
        if let Some(turn) = self.keys.get(tag).map(|key| turn(tag, key)) {
            self.half_mut(tag).remove(&turn);
        }
    }

    /// The ledger has something else in the place of a key, by this commit. Whether there is such a key.
    pub(super) fn ledger_has(&mut self, tag: &KeyTag, revision: i64) -> bool {
        let Some(before) = self.keys.get(tag).map(|key| turn(tag, key)) else { return false };
        let is_issued = !self.half_mut(tag).remove(&before);
        if let Some(key) = self.keys.get_mut(tag) {
            key.mark.revision = revision;
        }
        if !is_issued {
            self.half_mut(tag).insert((revision, before.1, *tag));
        }
        true
    }

    pub(super) fn mark(&self, tag: &KeyTag) -> Option<Mark> {
        self.keys.get(tag).map(|key| key.mark)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (&KeyTag, &PoolKey, Mark)> {
        self.keys.iter().map(|(tag, key)| (tag, &key.record, key.mark))
    }

    pub(super) fn get(&self, tag: &KeyTag) -> Option<&PoolKey> {
        self.keys.get(tag).map(|key| &key.record)
    }

    /// How many of a half were not issued.
    pub(super) fn len(&self, half: Half) -> usize {
        self.half(half).len()
    }

    /// Those of a half that commits up to this one have brought, and that were not issued; the first in front.
    pub(super) fn up_to(&self, half: Half, revision: i64) -> impl Iterator<Item = &KeyTag> {
        self.half(half).range(..before(revision.saturating_add(1))).map(|(_, _, tag)| tag)
    }

    /// Those of both halves that commits behind this one have brought.
    pub(super) fn behind(&self, revision: i64) -> impl Iterator<Item = (&KeyTag, i64)> {
        let from = before(revision.saturating_add(1));
        let halves = [&self.ready, &self.reserve];
        halves.into_iter().flat_map(move |half| half.range(from..)).map(|(revision, _, tag)| (tag, *revision))
    }

    fn half(&self, half: Half) -> &BTreeSet<Turn> {
        match half {
            Half::Ready => &self.ready,
            Half::Reserve => &self.reserve,
        }
    }

    fn half_mut(&mut self, tag: &KeyTag) -> &mut BTreeSet<Turn> {
        match Half::of(tag) {
            Half::Ready => &mut self.ready,
            Half::Reserve => &mut self.reserve,
        }
    }
}

fn turn(tag: &KeyTag, key: &Marked<PoolKey>) -> Turn {
    (key.mark.revision, key.record.created_ns, *tag)
}

/// What stands before every key of a commit.
fn before(revision: i64) -> Turn {
    (revision, i64::MIN, KeyTag([0; 16]))
}
