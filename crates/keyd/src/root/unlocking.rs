//! The unlocking of a node, as a state machine.
//!
//! ```text
//!            give (wrong, late, not fitting)
//!               .--.
//!               v  |            give, until there are enough
//!  Locked ----> Unlocking { given } -------------------------> Unlocked
//!    ^  give           |                                          |
//!    '-----------------+---- lock, or 15 minutes without -----<---' lock
//!                            the missing shares
//! ```
//! Pure: opened shares and times are arguments ([`SealedRoot::open_share`] does the slow part beforehand, in a thread
//! that may block). Shares that wait are secrets in memory, so they do not wait for ever.

use std::sync::Arc;

use capstan_keys::Name;

use super::quorum::Share;
use super::{ClusterKeys, Opens, RootError, SealedRoot};

/// How long a share waits for the others: as long as it takes to find somebody, and not over night.
const SHARE_LIFE_NS: i64 = 15 * 60 * 1_000_000_000;

/// Where a node stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum UnlockingStage {
    /// It opens nothing.
    Locked,
    /// Some shares are there.
    Unlocking {
        /// Whose.
        given: Vec<Name>,
        /// How many it takes.
        threshold: u8,
    },
    /// It has the cluster's keys.
    Unlocked,
}

/// The unlocking of a node.
#[derive(Default)]
pub struct Unlocking {
    state: State,
}

#[derive(Default)]
enum State {
    #[default]
    Locked,
    Unlocking {
        shares: Vec<(Share, i64)>,
        threshold: u8,
    },
    Unlocked(Arc<ClusterKeys>),
}

impl Unlocking {
    /// Takes a holder's share, and unlocks the node if it is the last one missing.
    ///
    /// A share of a holder whose share is there already takes its place. If the shares do not give the root key, all
    /// are dropped.
    pub fn give(&mut self, sealed: &SealedRoot, share: Share, now_ns: i64) -> Result<UnlockingStage, RootError> {
        self.expire(now_ns);
        let mut shares = match std::mem::take(&mut self.state) {
            State::Locked => Vec::new(),
            State::Unlocking { shares, .. } => shares,
            unlocked @ State::Unlocked(_) => {
                self.state = unlocked;
                return Ok(self.status());
            }
        };
        shares.retain(|(earlier, _)| earlier.holder() != share.holder());
        shares.push((share, now_ns));
        match sealed.open_with_shares(shares.iter().map(|(share, _)| share)) {
            Ok(root) => self.state = State::Unlocked(Arc::new(root.into_keys())),
            Err(RootError::NotEnoughShares { needed, .. }) => {
                self.state = State::Unlocking { shares, threshold: needed };
            }
            Err(RootError::OtherSplit { holder }) => {
                // One stranger does not cost the others their turn.
                shares.retain(|(share, _)| *share.holder() != holder);
                if let (Opens::Quorum { threshold, .. }, false) = (sealed.opens(), shares.is_empty()) {
                    self.state = State::Unlocking { shares, threshold };
                }
                return Err(RootError::OtherSplit { holder });
            }
            Err(error) => return Err(error),
        }
        Ok(self.status())
    }

    /// Unlocks with keys that were had otherwise: by a token, by a key file, or because the cluster was just founded.
    pub fn admit(&mut self, keys: ClusterKeys) {
        self.state = State::Unlocked(Arc::new(keys));
    }

    /// Forgets shares that waited too long.
    pub fn expire(&mut self, now_ns: i64) {
        if let State::Unlocking { shares, .. } = &mut self.state {
            // A clock that jumps back must not keep them alive either.
            shares.retain(|(_, given_ns)| now_ns.abs_diff(*given_ns) < SHARE_LIFE_NS.unsigned_abs());
            if shares.is_empty() {
                self.state = State::Locked;
            }
        }
    }

    /// Forgets everything. Whoever still holds the keys keeps them until they let go.
    pub fn lock(&mut self) {
        self.state = State::Locked;
    }

    /// Where the node stands.
    pub fn status(&self) -> UnlockingStage {
        match &self.state {
            State::Locked => UnlockingStage::Locked,
            State::Unlocking { shares, threshold } => {
                let given = shares.iter().map(|(share, _)| share.holder().clone()).collect();
                UnlockingStage::Unlocking { given, threshold: *threshold }
            }
            State::Unlocked(_) => UnlockingStage::Unlocked,
        }
    }

    /// The keys of an unlocked node.
    pub fn keys(&self) -> Option<Arc<ClusterKeys>> {
        match &self.state {
            State::Unlocked(keys) => Some(keys.clone()),
            State::Locked | State::Unlocking { .. } => None,
        }
    }
}
