//! Which version of a record is meant.

use crate::ledger::Expected;

/// Which version of a record the ledger has, as far as the state knows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Mark {
    /// The commit that put it there; 0 if there is none.
    pub revision: i64,
    /// How often it was changed.
    pub change: u64,
}

impl Mark {
    /// What a transaction that rests on it expects.
    pub fn expected(self) -> Expected {
        match self.revision {
            0 => Expected::Absent,
            revision => Expected::At { revision },
        }
    }
}
