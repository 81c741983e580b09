//! The low-water mark of a node's pool: said in its log once each time it is passed, in either direction.

use std::time::Duration;

use capstan_service::housekeeping::NextCheck;

use super::Service;
use crate::desk::KeyPool;

/// How often it looks.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// On which side of its mark a pool was when it was looked at last.
#[derive(Debug, Default)]
pub(super) struct LowWater {
    is_low: bool,
}

/// A mark that was passed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Passed {
    FellBelow,
    AboveAgain,
}

impl LowWater {
    fn look(&mut self, pool: &KeyPool, low: usize) -> Option<Passed> {
        let was_low = std::mem::replace(&mut self.is_low, pool.is_below(low));
        match (was_low, self.is_low) {
            (false, true) => Some(Passed::FellBelow),
            (true, false) => Some(Passed::AboveAgain),
            (true, true) | (false, false) => None,
        }
    }
}

impl LowWater {
    /// Says in the log when the mark was passed.
    pub(super) fn check(&mut self, service: &Service) -> NextCheck<'static> {
        if let Some(node) = service.open_node() {
            let (pool, low) = (node.pool(), node.settings().pool_low);
            let KeyPool { ready, reserve, waiting } = pool;
            match self.look(&pool, low) {
                Some(Passed::FellBelow) => tracing::warn!(
                    ready,
                    reserve,
                    waiting,
                    low,
                    "the pool of keys runs low: see that this node reaches the majority, and that the other nodes run and are unlocked; \
                     one that is alone needs a new backup (`keyd backup`)"
                ),
                Some(Passed::AboveAgain) => {
                    tracing::info!(ready, reserve, waiting, low, "the pool of keys is above its low-water mark again");
                }
                None => {}
            }
        }
        NextCheck::after(LOOK_EVERY)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mark_is_said_to_be_passed_once_in_each_direction() {
        let mut mark = LowWater::default();
        // The smaller half counts, and the mark is for both together.
        let looks = [(9, 9), (9, 2), (9, 1), (0, 0), (1, 9), (2, 2), (9, 9), (9, 1)];
        let said = looks.map(|(ready, reserve)| mark.look(&KeyPool { ready, reserve, waiting: 5 }, 4));
        let (fell, above) = (Some(Passed::FellBelow), Some(Passed::AboveAgain));
        assert_eq!(said, [None, None, fell, None, None, above, None, fell]);
    }
}
